"""A program whose workers decode pictures is told to use our loader (LD1): as a trial, and with `report --measure` by a number that was measured on
this machine, with the change as data; the program with that change waits less.

test-label: full
test-label: timing"""
import json
import os
import subprocess
import sys

from front_end import BINARY, MILLRACE, folder, plain_pictures, run, skip

try:
    import torch  # noqa: F401
    import torchvision  # noqa: F401
except ImportError as why:
    skip(f"no PyTorch or torchvision: {why}")

SCRIPT = """
import sys, time
import torch, torchvision
from torchvision import transforms
from %s import DataLoader
torch.set_num_threads(1)
chain = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
data = torchvision.datasets.ImageFolder(sys.argv[1], transforms.Compose(chain))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
waited = 0.0
for epoch in range(2):
    batches = iter(DataLoader(data, batch_size=8, shuffle=True, num_workers=2))
    while True:
        begin = time.perf_counter()
        batch = next(batches, None)
        waited += time.perf_counter() - begin
        if batch is None:
            break
        optimizer.zero_grad()
        model(batch[0].flatten(1)[:, :8]).mean().backward()
        time.sleep(0.005)
        optimizer.step()
print(waited)
"""


def program(name, loader):
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write(SCRIPT % loader)
    return [sys.executable, "-W", "ignore", path, pictures]


def finding(*options):
    done = subprocess.run([MILLRACE, "report", "--json", trace, *options], check=True, stdout=subprocess.PIPE)
    return next(f for f in json.loads(done.stdout)["findings"] if f["id"] == "LD1")


def waits(command):
    env = dict(os.environ, PYTHONPATH=os.path.join(BINARY, "python"))
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=env).stdout)


pictures = plain_pictures("measured", "--files", "96", "--dims", "400x500x3", "--subfolders", "2")
trace = os.path.join(folder, "t.mrt")


def test_our_loader_is_named_with_a_measured_rate():
    theirs = program("theirs.py", "torch.utils.data")
    subprocess.run([MILLRACE, "trace", "--quiet", "-o", trace, "--", *theirs], check=True, stdout=subprocess.DEVNULL)
    untried, measured = finding(), finding("--measure")
    assert untried["saves_low_s"] == 0 and "--measure" in untried["title"], untried
    assert measured["saves_low_s"] > 0 and "pictures/s" in measured["title"], measured
    change = [c for c in measured["changes"] if c["key"] == "loader"][0]
    assert (change["kind"], change["to"]) == ("injection", "millrace.torch.DataLoader"), change
    before, after = waits(theirs), waits(program("ours.py", "millrace.torch"))
    assert after < before, (before, after)
    print("waits %.2f s, with our loader %.2f s; predicted to save %.2f s" % (before, after, measured["saves_s"]))


run([test_our_loader_is_named_with_a_measured_rate])
