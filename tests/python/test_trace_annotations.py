"""Annotations, DFTracer's names and automatic instrumentation, checked on the exported trace. Standard library only; NumPy and h5py
are used where they are installed; PyTorch's loader is stood in for by a package of the same shape."""
import csv
import json
import os
import subprocess
import sys
import tempfile
import textwrap

MILLRACE = os.environ["MILLRACE"]
BUILD = os.environ["MR_BINARY_DIR"]
PYTHON = os.path.join(BUILD, "python")

if not os.path.exists(os.path.join(PYTHON, "millrace", "trace", "_trace.abi3.so")) or sys.version_info < (3, 10):
    print("SKIP: the extension is not built for this Python")
    sys.exit(77)


def traced(script, folder, *options, path=(PYTHON,)):
    """Runs a script under the tracer; returns the rows of the CSV export and the Chrome export."""
    name = os.path.join(folder, "script.py")
    with open(name, "w") as f:
        f.write(textwrap.dedent(script))
    trace = os.path.join(folder, "t.mrt")
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(path), PYTHONDONTWRITEBYTECODE="1")
    subprocess.run([MILLRACE, "trace", "--quiet", "-o", trace, *options, "--", sys.executable, name, folder], check=True, env=env)
    for kind in ("csv", "chrome"):
        subprocess.run([MILLRACE, "export", "-f", kind, "-o", trace + "." + kind, trace], check=True)
    with open(trace + ".csv", newline="", errors="surrogateescape") as f:
        rows = list(csv.DictReader(f))
    with open(trace + ".chrome") as f:
        events = json.load(f)["traceEvents"]
    return rows, events


def count(rows, category, name):
    return sum(1 for r in rows if r["category"] == category and r["name"] == name)


def annotations(folder):
    rows, events = traced(
        """
        import os, sys
        from multiprocessing import Process
        from millrace import trace
        assert trace.active()

        @trace.fn
        def plain(x, *, y=1):
            "doc"
            return x + y

        @trace.fn(category="reader", name="get", kind=3)
        def named():
            raise ValueError

        class C:
            @trace.fn(category="cls")
            def method(self, a):
                return (self, a)

        assert plain(1) == 2 and plain(1, y=5) == 6 and plain.__doc__ == "doc" and plain.__name__ == "plain"
        for _ in range(3):
            try:
                named()
            except ValueError:
                pass
        c = C()
        assert c.method(4) == (c, 4)
        with trace.region("step", category="train", epoch=1, step=7, note="a\\nb\\"") as r:
            r.update(lr=0.5)
            with open(os.path.join(sys.argv[1], "x"), "w") as f:
                f.write("hello")
        assert list(trace.iterate(range(5), "loop")) == [0, 1, 2, 3, 4]
        trace.metadata(model="m")
        trace.counter("queue", 3)
        trace.instant("mark", level=2)
        with trace.timed("snippet", epoch=2):
            pass
        trace.stop()
        plain(1)
        trace.start()

        def child():
            with trace.region("in child"):
                pass

        p = Process(target=child)
        p.start()
        p.join()
        """,
        folder,
    )
    assert count(rows, "__main__", "plain") == 2, rows
    assert count(rows, "reader", "get") == 3
    assert count(rows, "cls", "C.method") == 1
    assert count(rows, "app", "loop.iter") == 5 and count(rows, "app", "loop.yield") == 5
    assert count(rows, "app", "in child") == 1
    assert count(rows, "time", "snippet") == 1
    step = next(e for e in events if e["name"] == "step")
    assert step["args"]["epoch"] == 1 and step["args"]["step"] == 7 and step["args"]["lr"] == 0.5 and step["args"]["note"] == 'a\nb"', step
    write = next(e for e in events if e["name"] in ("write", "openat", "open") and e["args"].get("fname", "").endswith("/x"))
    assert step["ts"] <= write["ts"] and write["ts"] + write["dur"] <= step["ts"] + step["dur"]
    assert any(e["ph"] == "C" and e["name"] == "queue" and e["args"]["value"] == 3 for e in events)
    assert any(e["ph"] == "i" and e["name"] == "mark" and e["args"]["level"] == 2 for e in events)


def dftracer_names(folder):
    rows, events = traced(
        """
        from dftracer.logger import dftracer, dft_fn
        from dftracer.python import ai
        log = dftracer.initialize_log("x", "all", -1)
        d = dft_fn("cat")

        class R:
            @d.log_init
            def __init__(self):
                pass
            @d.log
            def get(self):
                return 5

        assert R().get() == 5
        with dft_fn("io", "block", epoch=3) as b:
            b.update(step=4)
        assert list(d.iter(range(3), name="it")) == [0, 1, 2]

        @ai.compute.forward
        def forward(x):
            return x * 2

        assert forward(4) == 8
        ai.update(epoch=9)
        with ai.data.io.read:
            pass
        assert sum(1 for _ in ai.dataloader.fetch.iter(range(4))) == 4
        ai.comm.disable()
        with ai.comm.barrier:
            pass
        from dftracer.python import DFTRACER_ENABLE, compute, pipeline
        assert compute is ai.compute and DFTRACER_ENABLE

        @d.log
        def train(x, step=0, epoch=None):
            return x

        assert train(3, 4, epoch=2) == 3
        def unnamed():
            whole = dft_fn("whole")
            whole.update(args={"k": 1})
            whole.flush()
        unnamed()
        pipeline.epoch.start()
        pipeline.epoch.stop()
        pipeline.test.start(metadata=True)
        log.log_event("logged", "c", 1, 2, int_args={"n": (0, 7)})
        log.log_metadata_event("k", "v")
        log.finalize()
        """,
        folder,
        path=(PYTHON, os.path.join(PYTHON, "dropin")),
    )
    assert count(rows, "cat", "R.get") == 1 and count(rows, "cat", "R.__init__") == 1
    block = next(e for e in events if e["name"] == "block")
    assert block["args"]["epoch"] == 3 and block["args"]["step"] == 4
    assert count(rows, "cat", "it.iter") == 3
    assert count(rows, "compute", "forward") == 1
    assert count(rows, "dataloader", "fetch.iter") == 4 and count(rows, "dataloader", "fetch.block") == 4
    assert next(e for e in events if e["name"] == "read" and e["cat"] == "io")["args"]["epoch"] == 9
    assert count(rows, "comm", "barrier") == 0
    train = next(e for e in events if e["name"].endswith("train") and e["cat"] == "cat")
    assert train["args"]["step"] == 4 and train["args"]["epoch"] == 2, train
    assert count(rows, "whole", "unnamed") == 1, "without a name it is the function's"
    assert count(rows, "pipeline", "epoch") == 1 and count(rows, "pipeline", "test.start") == 1
    assert next(e for e in events if e["name"] == "logged")["args"]["n"] == 7


FAKE_TORCH = {
    "torch/__init__.py": "",
    "torch/utils/__init__.py": "",
    "torch/utils/data/__init__.py": "from .dataloader import DataLoader\n",
    "torch/utils/data/_utils/__init__.py": "from . import fetch\n",
    "torch/utils/data/_utils/fetch.py": """
class _MapDatasetFetcher:
    def __init__(self, dataset, collate_fn):
        self.dataset, self.collate_fn = dataset, collate_fn
    def fetch(self, index):
        return self.collate_fn([self.dataset[i] for i in index])
""",
    "torch/utils/data/dataloader.py": """
from . import _utils
class _BaseDataLoaderIter:
    def __init__(self, loader):
        self._fetcher = _utils.fetch._MapDatasetFetcher(loader.dataset, list)
        self._batches = iter(loader.batches)
    def __next__(self):
        return self._next_data()
    def __iter__(self):
        return self
class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    def _next_data(self):
        return self._fetcher.fetch(next(self._batches))
class DataLoader:
    def __init__(self, dataset, batches):
        self.dataset, self.batches = dataset, batches
    def __iter__(self):
        return _SingleProcessDataLoaderIter(self)
""",
}


def automatic(folder):
    fake = os.path.join(folder, "fake")
    for name, text in FAKE_TORCH.items():
        os.makedirs(os.path.dirname(os.path.join(fake, name)), exist_ok=True)
        with open(os.path.join(fake, name), "w") as f:
            f.write(text)
    rows, _ = traced(
        """
        from torch.utils.data import DataLoader
        class Set:
            def __getitem__(self, i):
                return i * 10
            def __len__(self):
                return 6
        assert list(DataLoader(Set(), [[0, 1, 2], [3, 4, 5]])) == [[0, 10, 20], [30, 40, 50]]
        """,
        folder,
        "--python",
        path=(fake,),
    )
    assert count(rows, "data_loader", "Set.__getitem__") == 6
    assert count(rows, "data_loader", "collate") == 2
    assert count(rows, "data_loader", "DataLoader.next") == 3  # the last one ends the loop
    try:
        import numpy  # noqa: F401
    except ImportError:
        return
    rows, _ = traced(
        """
        import sys, os, numpy as np
        p = os.path.join(sys.argv[1], "a.npy")
        np.save(p, np.arange(10))
        assert np.load(p).sum() == 45
        """,
        folder,
        "--python",
        path=[p for p in sys.path if p],
    )
    assert count(rows, "reader", "numpy.load") == 1 and count(rows, "reader", "numpy.save") == 1


for test in (annotations, dftracer_names, automatic):
    with tempfile.TemporaryDirectory() as folder:
        test(folder)
        print("ok", test.__name__)
