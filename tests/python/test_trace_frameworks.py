"""`millrace trace --python` on the real libraries: what is in the trace is what the program did, and the program does not notice.
NumPy, h5py and Pillow always; PyTorch's DataLoader with forked workers where PyTorch is installed. MR_TEST_FULL=1 adds forkserver and
spawn. MR_TEST_PYTHONS may name further interpreters (separated by blanks) that have other PyTorch versions, TensorFlow or Grain."""
import collections
import csv
import os
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


def has(python, module):
    return subprocess.run([python, "-c", "import " + module], capture_output=True).returncode == 0


def traced(script, folder, *args, python=sys.executable):
    """Runs a script with --python; returns how often each (category, name) and each (file, name) is in the trace."""
    name, trace = os.path.join(folder, "script.py"), os.path.join(folder, "t.mrt")
    with open(name, "w") as f:
        f.write(textwrap.dedent(script))
    env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", TF_CPP_MIN_LOG_LEVEL="3")
    subprocess.run([MILLRACE, "trace", "--quiet", "--python", "-o", trace, "--", python, name, folder, *args], check=True, env=env)
    subprocess.run([MILLRACE, "export", "-f", "csv", "-o", trace + ".csv", trace], check=True)
    spans, files = collections.Counter(), collections.Counter()
    with open(trace + ".csv", newline="", errors="surrogateescape") as f:
        for row in csv.DictReader(f):
            spans[row["category"], row["name"]] += 1
            files[os.path.basename(row["file"])[:3], row["name"]] += 1
    return spans, files


def expect(spans, category, **wanted):
    for name, want in wanted.items():
        name = name.replace("__dot__", ".").replace("__space__", " ")
        assert spans[category, name] == want, "%s: want %d, have %d; all: %s" % (name, want, spans[category, name], spans)


def unnoticed(folder):
    """Functions that became spans are still what programs expect of functions; scalars of libraries are numbers."""
    spans, _ = traced(
        """
        import copy, importlib.util, inspect, os, pickle, sys
        assert importlib.util.find_spec("numpy")  # looking for a module does not keep it from being instrumented
        import numpy as np
        from millrace import trace
        a = os.path.join(sys.argv[1], "a.npy")
        np.save(a, np.arange(10.0))
        m = np.memmap(a, dtype="f8", mode="r", offset=128)
        assert isinstance(m, np.memmap) and m.sum() == 45 and isinstance(np.load(a, mmap_mode="r"), np.memmap)
        assert pickle.loads(pickle.dumps(np.load)) is np.load and copy.deepcopy({1: np.load})[1] is np.load
        assert "mmap_mode" in inspect.signature(np.load).parameters and np.load.__defaults__ == np.load.__wrapped__.__defaults__

        class C:
            @trace.fn
            def m(self):
                return self
        c = C()
        assert c.m == c.m and hash(c.m) == hash(c.m) and c.m != C().m and len({c.m, c.m}) == 1 and c.m() is c
        named = trace.fn(len, name="other")
        assert pickle.loads(pickle.dumps(named))([1, 2]) == 2
        with trace.region("numbers", step=np.int64(5), lr=np.float32(0.5), big=1 << 70, text="t"):
            pass
        """,
        folder,
    )
    expect(spans, "reader", numpy__dot__load=1, numpy__dot__save=1, numpy__dot__memmap=2)
    trace = os.path.join(folder, "t.mrt")
    steps = subprocess.run([MILLRACE, "report", "--json", "--steps", "5:6", trace], capture_output=True, text=True, check=True).stdout
    assert '"numbers"' in steps, "a NumPy integer is not a step"


def readers(folder):
    spans, _ = traced(
        """
        import os, sys, numpy as np, h5py
        from PIL import Image
        at = lambda name: os.path.join(sys.argv[1], name)
        with h5py.File(at("d.h5"), "w") as f:
            f["x"] = np.arange(1000)
        with h5py.File(at("d.h5"), "r") as f:
            assert sum(int(f["x"][i]) for i in range(20)) == 190
            f["x"].read_direct(np.empty(1000, dtype=int))
        Image.new("RGB", (8, 8)).save(at("i.png"))
        for _ in range(3):
            with Image.open(at("i.png")) as image:
                image.load()
        np.savez(at("z.npz"), a=np.ones(3))
        assert np.load(at("z.npz"))["a"].sum() == 3
        np.ones(4).tofile(at("raw"))
        assert np.fromfile(at("raw")).size == 4
        """,
        folder,
    )
    expect(spans, "reader", h5py__dot__File__dot____init__=2, h5py__dot__Dataset__dot____getitem__=20, h5py__dot__Dataset__dot__read_direct=1,
           PIL__dot__Image__dot__open=3, numpy__dot__savez=1, numpy__dot__load=1, numpy__dot__fromfile=1)


TORCH = """
    import itertools, os, sys, numpy as np, torch
    from torch.utils.data import DataLoader, Dataset, IterableDataset
    root, way, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    class Files(Dataset):
        def __len__(self):
            return 32
        def __getitem__(self, i):
            with open(os.path.join(root, "s%02d" % i), "rb") as f:
                return torch.from_numpy(np.frombuffer(f.read(), dtype="u1").copy()), i
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(6))
    class Batches(Files):
        def __getitems__(self, indices):
            return [self[i] for i in indices]
    def main():
        how = dict(num_workers=workers, multiprocessing_context=way) if workers else {}
        loader, total = DataLoader(Files(), batch_size=4, shuffle=True, **how), 0
        for epoch in range(2):
            for x, i in loader:
                assert x.shape == (4, 100) and (x[:, 0] == i).all()
                total += int(i.sum())
        assert total == 2 * sum(range(32)), total
        if not workers:
            assert [b.tolist() for b in DataLoader(Stream(), batch_size=2)] == [[0, 1], [2, 3], [4, 5]]
            assert sum(1 for _ in DataLoader(Batches(), batch_size=16)) == 2
        log = open(os.path.join(root, "log"), "w")
        os.fsync(log.fileno())
        os.fsync(log.fileno())  # of a log: no part of a checkpoint, nor is one that follows it
        torch.save({"w": torch.ones(100)}, os.path.join(root, "ckpt.pt"))
        os.fsync(log.fileno())
        assert torch.load(os.path.join(root, "ckpt.pt"))["w"].sum() == 100
    if __name__ == "__main__":
        main()
"""


def samples(folder):
    for i in range(32):
        with open(os.path.join(folder, "s%02d" % i), "wb") as f:
            f.write(bytes([i]) * 100)


def per_file(files, name):
    return sum(n for (file, call), n in files.items() if call == name and file[:1] == "s" and file[1:].isdigit())


def torch_loader(folder, python=sys.executable):
    samples(folder)
    for way in (("none", "fork", "forkserver", "spawn") if FULL else ("none", "fork")):
        workers = 0 if way == "none" else 2
        spans, files = traced(TORCH, folder, way, str(workers), python=python)
        both = 0 if workers else 1  # the extra data sets run in the process itself
        items = spans["data_loader", "Batches.__getitem__"]
        assert spans["data_loader", "Files.__getitem__"] == 64, spans
        assert items + 16 * spans["data_loader", "Batches.__getitems__"] == 32 * both, spans
        assert spans["data_loader", "collate"] == 16 + 5 * both and spans["data_loader", "DataLoader.next"] == 16 + 5 * both, spans
        assert spans["data_loader", "DataLoader.end"] == 2 + 2 * both, spans
        assert spans["data_loader", "Stream.__next__"] >= 6 * both
        expect(spans, "checkpoint", torch__dot__serialization__dot__save=1, torch__dot__serialization__dot__load=1, fsync=2, os__dot__fsync=1)
        opens, reads = per_file(files, "open"), per_file(files, "read")
        assert opens == 64 + 32 * both and reads == 2 * opens, (opens, reads)  # the second read finds the end
        print("ok torch", way, python)


def torch_compiled(folder, python=sys.executable):
    """DFTracer's names for compiled models and PyTorch's profiler."""
    os.environ["PYTHONPATH"] = os.path.join(PYTHON, "dropin")
    spans, _ = traced(
        """
        import sys, torch
        if not hasattr(torch, "compile"):
            sys.exit(0)
        from dftracer.python import dftracer, dynamo
        from dftracer.python.dynamo import create_backend
        from dftracer.python.torch import trace_handler
        log, x = dftracer.initialize_log("x", None, -1), torch.randn(2, 4)
        def f(a):
            return (a * 2).relu()
        for autograd in (True, False):
            assert torch.equal(torch.compile(f, backend=create_backend(name="mine", epoch=1, autograd=autograd))(x), f(x))
        assert torch.equal(dynamo.compile(f)(x), f(x))
        from millrace import trace
        from dftracer.python import dft_fn
        for traced in (trace.fn(category="fwd"), dft_fn("fwd").log):
            class Model(torch.nn.Module):
                @traced
                def forward(self, a):
                    return a + 1
            for made in (torch.compile(Model(), backend="eager"), torch.fx.symbolic_trace(Model()), torch.jit.script(Model())):
                assert torch.equal(made(x), x + 1)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], on_trace_ready=trace_handler):
            f(x)
        print("compiled")
        """,
        folder,
        python=python,
    )
    del os.environ["PYTHONPATH"]
    names = [name for category, name in spans.elements() if category == "dynamo"]
    assert not names or (sum("mul" in n for n in names) == sum("relu" in n for n in names) == 3 and spans["PP", "aten::relu"] == 1 and spans["fwd", "Model.forward"] >= 2), spans


def tensorflow_data(folder, python):
    samples(folder)
    spans, files = traced(
        """
        import os, sys, tensorflow as tf
        root = sys.argv[1]
        data = tf.data.Dataset.from_tensor_slices([os.path.join(root, "s%02d" % i) for i in range(32)]).map(tf.io.read_file).batch(4)
        assert sum(1 for _ in data) == 8
        assert next(iter(data.as_numpy_iterator())).shape == (4,)
        checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
        checkpoint.restore(checkpoint.save(os.path.join(root, "ck")))
        from millrace import trace
        @trace.fn(category="graph")
        def chosen(x):  # AutoGraph reads the function and changes its `if`
            if tf.reduce_sum(x) > 0:
                return x + 1
            return x
        for compiled in (tf.function(chosen), tf.function(lambda x: chosen(x))):
            assert compiled(tf.ones(2)).numpy().tolist() == [2, 2]
        """,
        folder,
        python=python,
    )
    expect(spans, "data_loader", OwnedIterator__dot__next=10)
    assert spans["graph", "chosen"] >= 2, spans
    expect(spans, "checkpoint", tf__dot__Checkpoint__dot__save=1, tf__dot__Checkpoint__dot__restore=1)
    assert per_file(files, "open") >= 36, files
    print("ok tensorflow", python)


def grain_iterators(folder, python):
    samples(folder)
    spans, files = traced(
        """
        import os, sys, numpy as np, grain.python as grain
        from absl import flags
        class Source:
            def __len__(self):
                return 32
            def __getitem__(self, i):
                with open(os.path.join(sys.argv[1], "s%02d" % i), "rb") as f:
                    return np.frombuffer(f.read(), dtype="u1")
        def main():
            flags.FLAGS(sys.argv[:1])
            sampler = grain.IndexSampler(32, shard_options=grain.NoSharding(), shuffle=True, num_epochs=1, seed=1)
            for workers in (0, 2):
                loader = grain.DataLoader(data_source=Source(), sampler=sampler, operations=[grain.Batch(4)], worker_count=workers)
                assert sum(b.shape[0] for b in loader) == 32
        if __name__ == "__main__":
            main()
        """,
        folder,
        python=python,
    )
    expect(spans, "data_loader", grain__dot__DataLoader__dot__next=18)
    assert spans["data_loader", "grain.source.getitem"] >= 64 and per_file(files, "open") == 64, (spans, files)
    print("ok grain", python)


def jax_compiled(folder, python):
    """Compiled functions stay what programs expect of them; calls inside others tell nothing."""
    spans, _ = traced(
        """
        import functools, inspect, pickle
        import jax, jax.numpy as jnp, numpy as np
        @jax.jit
        def update(w, x):
            "doc"
            return w - 0.1 * jax.grad(lambda v: ((x @ v) ** 2).mean())(w)
        @functools.partial(jax.jit, static_argnums=1)
        def power(x, n):
            return x ** n
        class Owner:
            @functools.partial(jax.jit, static_argnums=0)
            def more(self, x):
                return x + 1
        w, x = jnp.ones((3, 1)), jnp.ones((4, 3))
        assert update.__name__ == "update" and update.__doc__ == "doc" and list(inspect.signature(update).parameters) == ["w", "x"]
        assert np.allclose(update.lower(w, x).compile()(w, x), update.__wrapped__(w, x))
        assert power(x, 2).shape == (4, 3) and Owner().more(x)[0, 0] == 2
        assert jax.vmap(update, in_axes=(0, None))(jnp.ones((2, 3, 1)), x).shape == (2, 3, 1)
        assert jax.eval_shape(update, w, x).shape == (3, 1) and jax.make_jaxpr(update)(w, x)
        outer = jax.jit(lambda w: update(update(w, x), x))
        for _ in range(5):
            w = outer(w)
            assert w.block_until_ready() is w and np.asarray(w).shape == (3, 1) and isinstance(float(w[0, 0]), float)
            jax.block_until_ready({"a": w, "b": [w, w]})
        """,
        folder,
        python=python,
    )
    expect(spans, "train", jit__space__lambda=5, jit__space__power=1, jit__space__more=1)
    assert spans["train", "wait for device"] >= 5, spans
    print("ok jax", python)


def main():
    jobs = [unnoticed, readers]
    if has(sys.executable, "torch"):
        jobs += [torch_loader, torch_compiled]
    else:
        print("not checked: PyTorch is not installed")
    for python in os.environ.get("MR_TEST_PYTHONS", "").split():
        for module, job in (("torch", torch_loader), ("torch", torch_compiled), ("tensorflow", tensorflow_data), ("grain", grain_iterators), ("jax", jax_compiled)):
            if has(python, module):
                jobs.append(lambda folder, job=job, python=python: job(folder, python=python))
    for job in jobs:
        with tempfile.TemporaryDirectory() as folder:
            job(folder)
            print("ok", getattr(job, "__name__", "job"))


main()
