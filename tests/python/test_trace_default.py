"""`millrace trace python train.py` without an option: the wait for every batch is found, and what which worker did for it. Checked on the exported trace:
numbers of batches, epochs, loaders and workers against what the script knows; interpreters that ignore the environment (-I, -E, -S); a sitecustomize of the
program's own; the idle time of an accelerator, with one that is made of Python. PyTorch, torchvision and Pillow where they are installed."""
import collections
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap

MILLRACE = os.environ["MILLRACE"]
PYTHON = os.path.join(os.environ["MR_BINARY_DIR"], "python")
FULL = os.environ.get("MR_TEST_FULL")

if not os.path.exists(os.path.join(PYTHON, "millrace", "trace", "_trace.abi3.so")) or sys.version_info < (3, 10):
    print("SKIP: the extension is not built for this Python")
    sys.exit(77)


def has(module):
    return subprocess.run([sys.executable, "-c", "import " + module], capture_output=True).returncode == 0


def traced(script, folder, *args, flags=(), options=(), env=None):
    """Runs a script; returns the spans as dictionaries (with their arguments), and what was said at the end."""
    name, trace = os.path.join(folder, "script.py"), os.path.join(folder, "t.mrt")
    with open(name, "w") as f:
        f.write(textwrap.dedent(script))
    env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", **env or {})
    run = subprocess.run([MILLRACE, "trace", *options, "-o", trace, "--", sys.executable, *flags, name, folder, *args], env=env, stderr=subprocess.PIPE,
                         text=True)
    assert run.returncode == 0, run.stderr
    subprocess.run([MILLRACE, "export", "-f", "csv", "-o", trace + ".csv", trace], check=True)
    spans = []
    with open(trace + ".csv", newline="", errors="surrogateescape") as f:
        for row in csv.DictReader(f):
            if row["category"] not in ("POSIX", "STDIO", "URING", "SYSCALL"):
                row["begin"] = int(row["start_unix_ns"])
                row["end"] = row["begin"] + int(row["dur_ns"])
                row["said"] = json.loads(row["args"]) if row["args"] else {}
                spans.append(row)
    return spans, run.stderr


def named(spans, category, name):
    return [s for s in spans if s["category"] == category and s["name"] == name]


LOADERS = """
    import sys, torch
    from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
    class Numbers(Dataset):
        def __len__(self):
            return 12
        def __getitem__(self, i):
            return torch.full((3,), float(i)), i
    class Uneven(IterableDataset):
        def __iter__(self):  # the first worker has more
            return iter(range(9 if get_worker_info().id == 0 else 2))
    def told(worker):
        assert worker in (0, 1)
    def main():
        many = dict(num_workers=2, worker_init_fn=told)
        loaders = [DataLoader(Numbers(), batch_size=3), DataLoader(Numbers(), batch_size=3, num_workers=1, multiprocessing_context="fork"),
                   DataLoader(Numbers(), batch_size=3, multiprocessing_context="fork", **many),
                   DataLoader(Numbers(), batch_size=3, multiprocessing_context="fork", persistent_workers=True, prefetch_factor=3, **many),
                   DataLoader(Numbers(), batch_size=3, num_workers=1, multiprocessing_context="spawn", persistent_workers=True),
                   DataLoader(Uneven(), batch_size=2, multiprocessing_context="fork", **many)]
        if "in_order" in DataLoader.__init__.__code__.co_varnames:
            loaders.append(DataLoader(Numbers(), batch_size=3, multiprocessing_context="fork", in_order=False, **many))
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for n, loader in enumerate(loaders):
            assert loader.worker_init_fn is (told if loader.num_workers == 2 else None)
            for epoch in range(2):
                for batch in loader:
                    if n == 0:
                        model(batch[0]).sum().backward()
                        optimizer.step()
        print(len(loaders))
    if __name__ == "__main__":
        main()
"""


def loaders(folder):
    spans, said = traced(LOADERS, folder)
    assert "Python is instrumented: PyTorch's DataLoader" in said, said
    waits, works = named(spans, "data_loader", "DataLoader.next"), named(spans, "data_loader", "fetch")
    main_pid = {w["pid"] for w in waits}
    assert len(main_pid) == 1
    key = lambda s: (s["said"]["loader"], s["said"]["epoch"], s["said"]["batch"])
    of_wait, of_work = collections.Counter(map(key, waits)), collections.Counter(map(key, works))
    assert set(of_wait.values()) == {1}, of_wait
    missing = set(of_wait) - set(of_work)
    assert not missing, missing  # every wait has the work it waited for; a worker whose data end early has tried once more
    numbers = {loader for loader, _, _ in of_wait}
    assert len(numbers) >= 6 and numbers == set(range(len(numbers)))
    for loader in numbers - {5}:
        assert [n for n in sorted(of_wait) if n[0] == loader] == [(loader, e, b) for e in range(2) for b in range(4)], loader
        assert {k for k in of_work if k[0] == loader} == {k for k in of_wait if k[0] == loader}, loader
    assert sum(n[0] == 5 for n in of_wait) == 2 * (5 + 1)
    workers = {0: set(), 1: {0}, 2: {0, 1}, 3: {0, 1}, 4: {0}, 5: {0, 1}}
    for loader, wanted in workers.items():
        mine = [w for w in works if w["said"]["loader"] == loader]
        assert {w["said"]["worker"] for w in mine if "worker" in w["said"]} == wanted, loader
        assert bool(wanted) != any(w["pid"] in main_pid for w in mine), loader
    ahead = {w["said"]["loader"]: (w["said"]["workers"], w["said"]["prefetch"]) for w in waits}
    assert ahead[0] == (0, 0) and ahead[1] == (1, 2) and ahead[2] == (2, 4) and ahead[3] == (2, 6), ahead
    assert all(w["said"]["rows"] == 3 and w["said"]["bytes"] == 3 * (3 * 4 + 8) for w in waits if w["said"]["loader"] != 5)
    # The samples inside a fetch are those of its batch.
    by_thread = collections.defaultdict(list)
    for item in named(spans, "data_loader", "Numbers.__getitem__"):
        by_thread[item["pid"], item["tid"]].append(item)
    for work in works:
        if work["said"]["loader"] != 5:
            inside = [i["said"]["sample"] for i in by_thread[work["pid"], work["tid"]] if work["begin"] <= i["begin"] and i["end"] <= work["end"]]
            assert inside == [3 * work["said"]["batch"] + i for i in range(3)], (work, inside)
    assert len(named(spans, "data_loader", "DataLoader.end")) == 2 * len(numbers) == len(named(spans, "data_loader", "DataLoader.iter"))
    assert len(named(spans, "train", "optimizer.step")) == 8 == len(named(spans, "train", "backward"))
    puts = collections.Counter(map(key, named(spans, "queue", "put")))
    assert {k for k in puts if k[0] in (1, 2, 3, 4)} == {k for k in of_wait if k[0] in (1, 2, 3, 4)}
    imports = named(spans, "startup", "import torch")
    assert len([i for i in imports if i["pid"] in main_pid]) == 1 and max(i["end"] for i in imports if i["pid"] in main_pid) <= min(w["begin"] for w in waits)


FAKE_CUDA = """
    import sys, time, torch, types
    from torch.utils.data import DataLoader
    ready = []
    class Event:  # a device that finishes its work 10 ms after each step, and tells of it only much later
        made = 0
        def __init__(self, enable_timing):
            assert enable_timing
            Event.made += 1
        def record(self):
            self.at = time.perf_counter()
        def query(self):
            return bool(ready)
        def elapsed_time(self, last):
            assert ready
            return (last.at - self.at) * 1000 - 10
    cuda = torch.cuda
    cuda.is_initialized, cuda.Event, cuda.current_device, cuda.is_current_stream_capturing = lambda: True, Event, lambda: 0, lambda: False
    cuda.get_device_properties = lambda device: types.SimpleNamespace(pci_bus_id=0x3b, pci_domain_id=0, pci_device_id=0)
    class Slow:
        def __len__(self):
            return 8
        def __getitem__(self, i):
            time.sleep(0.03)
            return i
    for n, batch in enumerate(DataLoader(Slow(), batch_size=1)):
        ready.extend([1] if n == 5 else [])
        if n == 6:
            ready.clear()  # the last two are reached when the loop is over
    assert Event.made == 14, Event.made  # those that were reached are used again
    ready.append(1)
"""


FAKE_NVML = r"""
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) { *device = (void *)42; return strcmp(bus, "00000000:3b:00.0"); }
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) { rates[0] = 77; rates[1] = 5; return device != (void *)42; }
"""


def idle(folder):
    library = os.path.join(folder, "libnvidia-ml.so.1")
    made = subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-x", "c", "-o", library, "-"], input=FAKE_NVML, text=True).returncode == 0
    found = os.environ.get("LD_LIBRARY_PATH")
    spans, _ = traced(FAKE_CUDA, folder, env={"LD_LIBRARY_PATH": folder + (":" + found if found else "")})
    if made:
        assert [s["said"] for s in named(spans, "accelerator", "utilisation")] == [{"value": 77.0}], [s for s in spans if s["category"] == "accelerator"]
    waits = {w["said"]["batch"]: w for w in named(spans, "data_loader", "DataLoader.next")}
    idles = {i["said"]["batch"]: i for i in named(spans, "accelerator", "idle")}
    assert len(waits) == 8 and set(idles) == set(range(8)), (sorted(idles), len(waits))
    for batch, i in idles.items():
        wait = waits[batch]
        assert wait["begin"] < i["begin"] and abs(wait["end"] - i["end"]) < 20e6, (wait, i)
        assert abs((wait["end"] - wait["begin"]) - (i["end"] - i["begin"]) - 10e6) < 5e6, (wait, i)  # all of the wait but the work before it


def pictures(folder):
    spans, said = traced(
        """
        import os, sys, torch
        from PIL import Image
        from torchvision import io, transforms
        try:
            from torchvision.transforms import v2
        except ImportError:  # before 0.15
            v2 = transforms
        root = sys.argv[1]
        for i in range(4):
            Image.new("RGB", (40, 30), (i, i, i)).save(os.path.join(root, "%d.jpg" % i))
        class Pictures:
            change = transforms.Compose([transforms.CenterCrop(16), transforms.ToTensor()])
            def __len__(self):
                return 4
            def __getitem__(self, i):
                image = Image.open(os.path.join(root, "%d.jpg" % i))
                image = image.convert("RGB")
                image.load()  # nothing left to decode
                return self.change(image)
        for batch in torch.utils.data.DataLoader(Pictures(), batch_size=2):
            assert batch.shape == (2, 3, 16, 16)
        picture = v2.Compose([v2.CenterCrop(8)])(io.read_image(os.path.join(root, "0.jpg")))
        assert picture.shape == (3, 8, 8)
        """,
        folder,
    )
    have = collections.Counter((s["category"], s["name"]) for s in spans)
    wanted = {("reader", "PIL.Image.open"): 4, ("decode", "Image.load"): 4, ("transform", "CenterCrop"): 5, ("transform", "ToTensor"): 4,
              ("transform", "Compose"): 5, ("reader", "read_file"): 1, ("decode", "decode_image"): 1, ("startup", "import torchvision"): 1}
    assert all(have[k] == n for k, n in wanted.items()), have


def own_loaders(folder):
    """Our own loaders: their waits have the same names."""
    data = os.path.join(folder, "set")
    subprocess.run([MILLRACE, "gen", data, "--quiet", "--format", "npy", "--files", "24", "--size", "4KiB"], check=True)
    spans, _ = traced(
        """
        import os, sys
        from millrace.numpy import Loader
        loader = Loader(os.path.join(sys.argv[1], "set"), batch_size=4)
        for epoch in range(2):
            assert sum(len(batch.ids) for batch in loader) == 24
        for batch in loader:
            break
        """,
        folder,
        env={"PYTHONPATH": PYTHON},
    )
    waits = [(w["said"]["loader"], w["said"]["epoch"], w["said"]["batch"]) for w in named(spans, "data_loader", "DataLoader.next")]
    assert waits == [(0, e, b) for e in range(2) for b in range(6)] + [(0, 2, 0)], waits
    assert len(named(spans, "data_loader", "DataLoader.end")) == 2


def flags(folder):
    """Interpreters that do not look at the environment, or have no sitecustomize, are instrumented all the same."""
    fake = os.path.join(folder, "fake")
    os.makedirs(os.path.join(fake, "PIL"))
    for name, text in (("__init__", ""), ("Image", "def open(x):\n    return x\n")):
        with open(os.path.join(fake, "PIL", name + ".py"), "w") as f:
            f.write(text)
    script = """
        import os, sys
        before = sorted(set(globals()) - {"os", "sys"})
        assert before == ["__annotations__", "__builtins__", "__cached__", "__doc__", "__file__", "__loader__", "__name__", "__package__", "__spec__"], before
        sys.path.insert(0, os.path.join(sys.argv[1], "fake"))
        from PIL import Image
        assert Image.open(3) == 3
        if len(sys.argv) == 2:
            import subprocess
            subprocess.run([sys.executable, "-I", __file__, sys.argv[1], "again"], check=True, env={})
    """
    for flag in ((), ("-I",), ("-E",), ("-S",), ("-W", "ignore", "-sE"), ("-X", "dev", "-I")):
        spans, said = traced(script, folder, flags=flag)
        assert len(named(spans, "reader", "PIL.Image.open")) == 2 and "Python is instrumented: PIL\n" in said, (flag, said)
    spans, said = traced(script, folder, flags=("-I",), options=("--no-python",))
    assert not spans and "Python is not instrumented (--no-python)" in said, said
    run = subprocess.run([MILLRACE, "trace", "-o", os.path.join(folder, "x.mrt"), "--", "true"], check=True, stderr=subprocess.PIPE, text=True)
    assert "Python" not in run.stderr, run.stderr


def wheel(folder):
    """The folders of a wheel: the sources are two folders above the library's."""
    home = os.path.join(folder, "site", "millrace", "_home")
    shutil.copytree(os.path.join(PYTHON, "millrace"), os.path.dirname(home), ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("bin/millrace", "lib/libmillrace_trace.so"):
        os.makedirs(os.path.dirname(os.path.join(home, part)))
        shutil.copy(os.path.join(os.path.dirname(PYTHON), part), os.path.join(home, part))
    script = os.path.join(folder, "script.py")
    with open(script, "w") as f:
        f.write("import sys\nassert sys.modules['millrace.trace.instrument'].__file__.startswith(%r)\n" % os.path.realpath(os.path.join(folder, "site")))
    for flag in ("-B", "-I"):
        subprocess.run([os.path.join(home, "bin", "millrace"), "trace", "-q", "-o", os.path.join(folder, "w.mrt"), "--", sys.executable, flag, script], check=True)


def own_sitecustomize(folder):
    with open(os.path.join(folder, "sitecustomize.py"), "w") as f:
        f.write("import sys\nsys.own = __file__\n")
    spans, said = traced(
        """
        import os, sys, sitecustomize
        assert os.path.samefile(sys.own, os.path.join(sys.argv[1], "sitecustomize.py")) and sitecustomize.__file__ == sys.own
        assert "millrace.trace.instrument" in sys.modules
        """,
        folder,
        env={"PYTHONPATH": folder},
    )
    assert "Python is instrumented: nothing known was imported" in said, said


def main():
    jobs = [flags, own_sitecustomize, wheel]
    jobs += [own_loaders] if has("numpy") and os.path.exists(os.path.join(PYTHON, "millrace", "_core.abi3.so")) else []
    jobs += [loaders, idle] if has("torch") else []
    jobs += [pictures] if has("torchvision") else []
    for job in jobs:
        with tempfile.TemporaryDirectory() as folder:
            job(folder)
        print("ok", job.__name__)


main()
