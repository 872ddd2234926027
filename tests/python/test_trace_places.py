"""What a trace holds for changing a program and starting it again: file and line of the calls that make its loaders and write its checkpoints, with their
arguments, also where a library makes the loader anew; working directory, command line, the environment that matters and no secret. Findings name the line."""
import json
import os
import subprocess
import sys
import tempfile
import textwrap

MILLRACE = os.environ["MILLRACE"]
PYTHON = os.path.join(os.environ["MR_BINARY_DIR"], "python")

if not os.path.exists(os.path.join(PYTHON, "millrace", "trace", "_trace.abi3.so")) or sys.version_info < (3, 10):
    print("SKIP: the extension is not built for this Python")
    sys.exit(77)
if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode:
    print("SKIP: PyTorch is not installed")
    sys.exit(77)

LIBRARY = """
from torch.utils.data import DataLoader

def prepare(loader):  # as accelerate and Lightning: the same data, another object
    return DataLoader(loader.dataset, batch_size=loader.batch_size, num_workers=loader.num_workers)

def make(data):
    return DataLoader(data, batch_size=4)

def wrap():  # as Lightning while it asks for loaders
    init = DataLoader.__init__
    def wrapper(obj, *args, **kwargs):
        return init(obj, *args, **kwargs)
    DataLoader.__init__ = wrapper
"""

SCRIPT = """
import os, sys, time
os.chdir("/")
import accelerate, torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, i):
        time.sleep(0.003)
        return torch.full((3,), float(i))

class Mine(DataLoader):
    def __init__(self, data):
        super().__init__(data, batch_size=4, pin_memory=False)

accelerate.wrap()
train = accelerate.prepare(DataLoader(  # MADE
    Slow(), batch_size=4, num_workers=0))
test = Mine(Slow())  # TEST
other = accelerate.make(Slow())  # OTHER
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for x in train:
        model(x).sum().backward()
        optimizer.step()
    with torch.no_grad():
        for loader in (test, other):
            for x in loader:
                model(x)
    torch.save(model.state_dict(), sys.argv[1])  # SAVED
left = iter(DataLoader(test.dataset, num_workers=1))  # LEFT: thrown away when the interpreter ends
next(left)
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("accelerate.py", LIBRARY), ("train.py", SCRIPT)):
            with open(os.path.join(folder, name), "w") as f:
                f.write(textwrap.dedent(text))
        lines = {line.split("# ")[1].split(":")[0]: n for n, line in enumerate(SCRIPT.split("\n"), 1) if "# " in line}
        env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", MINE="3", HF_TOKEN="secret", OMP_NUM_THREADS="1")
        command = [sys.executable, "train.py", folder + "/m.pt"]
        traced = subprocess.run([MILLRACE, "trace", "--quiet", "-o", "t.mrt", "--", *command], cwd=folder, env=env, check=True, stderr=subprocess.PIPE, text=True)
        assert "Error" not in traced.stderr, traced.stderr
        told = json.loads(subprocess.run([MILLRACE, "report", "--json", "t.mrt"], cwd=folder, check=True, stdout=subprocess.PIPE).stdout)
        start, script = told["start"], os.path.join(os.path.realpath(folder), "train.py")
        assert start["folder"] == os.path.realpath(folder) and start["command"] == command and start["launcher"] == [], start
        assert "MINE=3" in start["environment"] and "OMP_NUM_THREADS=1" in start["environment"], start
        assert "secret" not in json.dumps(told)
        places = {(p["call"], p["line"]): p for p in told["places"]}
        loader = "torch.utils.data.DataLoader"
        wanted = {(loader, lines[k]) for k in ("MADE", "TEST", "OTHER", "LEFT")} | {("torch.save", lines["SAVED"])}
        assert set(places) == wanted, places
        assert all(os.path.realpath(p["file"]) == script for p in places.values()), places
        made, test, other = (places[loader, lines[k]] for k in ("MADE", "TEST", "OTHER"))
        assert made["trains"] and not made["evaluates"] and made["by"] is None and made["num_workers"] == 0 and made["batch_size"] == 4, made
        assert test["evaluates"] and test["by"] is None and test["pin_memory"] is False and test["data_set"] == "Slow", test
        assert other["evaluates"] and other["by"] == "accelerate" and places["torch.save", lines["SAVED"]]["loader"] is None
        changes = [c for f in told["findings"] for c in f["changes"] if c["target"] == loader]
        assert changes and all(c["file"] == made["file"] and c["line"] == lines["MADE"] for c in changes), told["findings"]
        assert any(c["key"] == "persistent_workers" and c["from"] is False for c in changes), changes


main()
