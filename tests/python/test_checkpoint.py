"""millrace.checkpoint with NumPy, PyTorch and safetensors: states of all kinds come back equal, in the same types; other programs read what we wrote and
we what they wrote; several processes make one checkpoint; bad states are refused by name; overlapped saves are fenced before the optimizer's step."""
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("SKIP: no numpy")
    sys.exit(77)
if "MR_BINARY_DIR" in os.environ:
    sys.path.insert(0, os.path.join(os.environ["MR_BINARY_DIR"], "python"))
    os.environ["PYTHONPATH"] = sys.path[0] + os.pathsep + os.environ.get("PYTHONPATH", "")  # the other ranks
try:
    from millrace import checkpoint
except ImportError as e:
    print("SKIP: the package is not built:", e)
    sys.exit(77)
try:
    import torch
except ImportError:
    torch = None


def equal(a, b):
    if type(a) is not type(b):
        return False
    if torch is not None and isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.reshape(-1).contiguous().view(torch.uint8) if a.numel() else a, b.reshape(-1).contiguous().view(torch.uint8) if b.numel() else b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b or (a != a and b != b)


def test_numpy(folder):
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    state = {"x": x, "view": x[:, 1:4], "turned": x.T, "reversed": x[::-1], "empty": np.zeros((0, 3), np.int64), "one": np.float64(0.1), "scalar": np.array(7, np.int16),
             "deep": [1, (2, "three", None, {4: True, "five": 2**70}), float("nan"), float("-inf"), b"\x00\xff"], "a.b": np.ones(3), "a": {"b": np.zeros(2)}}
    with checkpoint.Saver(folder, keep_last=2) as s:
        for step in range(4):
            x += 1
            cost = s.save(step, state, loader={"epoch": 3, "batch": step})
            want = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in state.items()}
            assert cost["bytes"] > 0 and cost["blocked_s"] > 0
        x -= 100  # the copy is made
    assert sorted(os.listdir(folder)) == [".saver", "latest", "step-000000000002", "step-000000000003"], os.listdir(folder)
    got = checkpoint.load(folder)
    assert equal(got, want), (got, want)
    assert checkpoint.load(folder, what="loader") == {"epoch": 3, "batch": 3}
    assert checkpoint.load(folder, 2)["x"][0, 0] == want["x"][0, 0] - 1


def test_refusals(folder):
    with checkpoint.Saver(folder) as s:
        for state, what, error in (({"a": {"b": object()}}, "a.b", TypeError), ({"f": lambda: 0}, "f", TypeError), ({"s": np.array(["x"])}, "s", TypeError)):
            try:
                s.save(1, state)
                raise AssertionError("saved " + what)
            except error as e:
                assert "'" + what + "'" in str(e), e
        try:
            checkpoint.Saver(folder)
            raise AssertionError("two savers in one folder")
        except OSError as e:
            assert "another saver" in str(e), e
    try:
        checkpoint.load(folder)
        raise AssertionError("loaded nothing")
    except FileNotFoundError as e:
        assert "no complete checkpoint" in str(e), e
    with checkpoint.Saver(folder, tiers=None) as saver:
        saver.save(1, {"x": 1})
    assert checkpoint.load(folder) == {"x": 1}


def test_safetensors(folder):
    try:
        from safetensors.numpy import load_file, save_file
    except ImportError:
        print("  (safetensors is not installed: not compared)")
        return
    flat = {"w": np.random.rand(300, 7).astype(np.float32), "b": np.arange(5, dtype=np.int64), "h": np.ones((3, 3), np.float16)}
    with checkpoint.Saver(folder) as s:
        s.save(5, flat)
    theirs = load_file(folder + "/step-000000000005/rank-00000.safetensors")
    assert set(theirs) == set(flat) and all(equal(theirs[k], flat[k]) for k in flat)
    save_file(flat, folder + "/theirs.safetensors")
    ours = checkpoint.load(folder + "/theirs.safetensors")
    assert set(ours) == set(flat) and all(np.array_equal(np.asarray(ours[k]), flat[k]) for k in flat)


def back(folder, state):
    with checkpoint.Saver(folder) as s:
        s.save(1, state)
    return checkpoint.load(folder)


def test_odd_values(folder):
    """Kinds of dicts, sets, complex numbers, names that no file may have; a state that is nothing; NumPy's scalars that JSON has no word for."""
    import collections

    state = {"": np.ones(1), "a\0b": np.ones(2), "\ud800": np.ones(3), "../x": np.ones(4), "/etc/x": np.ones(5), "n" * 9000: np.ones(6), "a\\0b": np.ones(7),
             "ordered": collections.OrderedDict(z=1, a=2), "counter": collections.Counter("aab"), "default": collections.defaultdict(list, {"k": [1]}), "set": {1, "x"},
             "frozen": frozenset((2, 3)), "complex": complex("nan+2j"), "c128": np.array([[1 + 2j, 3j]]), "nan": np.float32("nan"), "c": np.complex64(1 - 2j), None: 1, (1, 2): 2, 2.5: 3, b"k": 4}
    got = back(folder + "/a", state)
    assert list(got) == list(state), list(got)
    for k, v in state.items():
        if k not in ("complex", "nan"):
            assert type(got[k]) is type(v) and (np.array_equal(got[k], v) if isinstance(v, np.ndarray) else got[k] == v), (k, got[k])
    assert got["default"]["new"] == [] and got["counter"]["z"] == 0 and got["complex"].imag == 2 and np.isnan(got["nan"]) and type(got["nan"]) is np.float32
    assert back(folder + "/none", None) is None and back(folder + "/list", [1]) == [1] and back(folder + "/empty", {}) == {}
    with checkpoint.Saver(folder + "/s") as s:
        for bad, error in ((-1, ValueError), (10**18, ValueError), ("x", TypeError), (1.5, TypeError)):
            try:
                s.save(bad, {})
                raise AssertionError(bad)
            except error as e:
                assert "18446744073709551615" not in str(e), e
        try:
            s.save(1, {}, loader={"seen": np.ones(3 << 20)})
            raise AssertionError("a loader's large tensor")
        except TypeError as e:
            assert "seen" in str(e)
        s.save(np.int64(4), {"x": np.arange(3)})
    os.remove(folder + "/s/step-000000000004/checkpoint.json")
    try:
        checkpoint.load(folder + "/s")
        raise AssertionError("loaded without a list")
    except OSError as e:
        assert "checkpoint.json' is missing" in str(e), e
    assert checkpoint.load(folder + "/a/step-000000000001")["set"] == {1, "x"}  # one step by its own folder
    for what, says in ((folder, "no complete"), (folder + "/a/step-000000000001/rank-00000.state.json", "is no folder")):
        try:
            checkpoint.load(what)
            raise AssertionError(what)
        except FileNotFoundError as e:
            assert says in str(e), e


def test_threads(folder):
    """Saves and waits by several threads at once, and a saver in a forked child."""
    import threading

    with checkpoint.Saver(folder, ring_bytes=32 << 20) as s:
        def saves(k):
            for i in range(15):
                s.save(100 * k + i, {"a": np.full(1000 + k, k), "b": [np.full(5, i)] * 20})
                if i % 4 == k:
                    s.wait()

        threads = [threading.Thread(target=saves, args=(k,)) for k in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        pid = os.fork()
        if pid == 0:
            try:
                s.save(1, {})
            except ValueError as e:
                os._exit(0 if "forked" in str(e) else 1)
            os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
    for k in range(3):
        for i in range(15):
            got = checkpoint.load(folder, 100 * k + i)
            assert got["a"][0] == k and got["b"][19][4] == i


RANK = """
import sys, numpy as np
from millrace import checkpoint
rank = int(sys.argv[2])
with checkpoint.Saver(sys.argv[1], rank=rank, world=3, job="j1", commit_timeout_s=60) as s:
    for step in range(3):
        s.save(step, {"x": np.full(1000, 10 * step + rank)})
"""


def test_ranks(folder):
    children = [subprocess.Popen([sys.executable, "-c", RANK, folder, str(r)]) for r in range(3)]
    assert [c.wait() for c in children] == [0, 0, 0]
    for r in range(3):
        assert checkpoint.load(folder, rank=r)["x"][0] == 20 + r


def test_tiers(folder):
    tiers = [folder + "/memory", {"folder": folder + "/disk", "capacity": 1 << 20, "keep_last": 2}]
    with checkpoint.Saver(folder + "/final", tiers=tiers, keep_last=2) as s:
        for step in range(3):
            s.save(step, {"x": np.full(1000, step), "step": step}, loader={"at": step})
            assert s.step() is False
    assert checkpoint.latest(folder + "/final") == 2 and checkpoint.latest(folder + "/nowhere") is None
    assert checkpoint.load(folder + "/final", tiers=tiers)["step"] == 2 and checkpoint.load(folder + "/final", tiers=tiers, what="loader") == {"at": 2}
    for tier in ("memory", "disk"):  # damaged there: the next one is used
        path = folder + f"/{tier}/rank-00000/step-000000000002/rank-00000.safetensors"
        with open(path, "r+b") as f:
            f.seek(-1, 2)
            f.write(b"X")
        assert checkpoint.load(folder + "/final", tiers=tiers)["x"][999] == 2
    for bad in ([{"folder": "a", "size": 3}], ["a", "b", "c", "d", "e"]):
        try:
            checkpoint.Saver(folder + "/other", tiers=bad)
            raise AssertionError("taken: " + str(bad))
        except (TypeError, ValueError):
            pass


PREEMPTED = """
import os, sys, time, numpy as np
from millrace import checkpoint
saver = checkpoint.Saver(sys.argv[1])
saver.on_sigterm(within=60)
x = np.zeros(100000)
for step in range(100000):
    x += 1
    print(step, flush=True)
    time.sleep(0.01)
    if saver.step(step, lambda: {"x": x, "step": step}):
        print("left after", step)
        sys.exit(7)
"""


def test_sigterm(folder):
    import signal

    child = subprocess.Popen([sys.executable, "-c", PREEMPTED, folder], stdout=subprocess.PIPE, text=True)
    while int(child.stdout.readline()) < 5:
        pass
    child.send_signal(signal.SIGTERM)
    out = child.communicate()[0]
    assert child.returncode == 7, child.returncode
    got = checkpoint.load(folder)
    assert got["step"] >= 5 and got["x"][0] == got["step"] + 1 and f"left after {got['step']}" in out, got["step"]


AT_EXIT = """
import sys, numpy as np
from millrace import checkpoint
saver = checkpoint.Saver(sys.argv[1], rank=0, world=2, job="j", commit_timeout_s=1)
saver.save(1, {"x": np.zeros(10)})
"""


def test_told_at_exit(folder):
    """A saver that nobody closes: what failed is told when the program ends."""
    run = subprocess.run([sys.executable, "-c", AT_EXIT, folder], stderr=subprocess.PIPE, text=True)
    assert run.returncode == 0 and "could not be written" in run.stderr and "rank 1" in run.stderr, run.stderr


def test_drop_in(folder):
    state = {"w": np.arange(10.0)}
    checkpoint.save(state, folder, keep_last=2)
    state["w"] += 1
    checkpoint.save(state, folder)
    checkpoint.wait(folder)
    assert checkpoint.load(folder)["w"][0] == 1 and checkpoint.load(folder, 0)["w"][0] == 0


def test_torch(folder):
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 8))
    model[2].weight = torch.nn.Parameter(model[0].weight[:8].detach())
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        model(torch.randn(16, 64)).sum().backward()
        optimizer.step()

    step()
    tied = torch.randn(1000)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state(), "bf": torch.randn(3, 3).to(torch.bfloat16),
             "turned": torch.randn(5, 7).t(), "tied": tied, "too": tied, "scalar": torch.tensor(3), "none": torch.empty(0, 4)}
    with checkpoint.Saver(folder) as s:
        s.save(1, state)
        want = {k: {n: t.clone() for n, t in v.items()} if k == "model" else v for k, v in state.items()}
        want["optimizer"] = json.loads("null")
        step()
    got = checkpoint.load(folder)
    fresh = torch.optim.Adam(model.parameters())
    fresh.load_state_dict(got["optimizer"])
    for k in ("rng", "bf", "turned", "tied", "too", "scalar", "none"):
        assert equal(got[k], state[k]), k
    assert list(got["model"]) == list(want["model"]) and all(equal(got["model"][n], want["model"][n]) for n in want["model"])


def test_torch_kinds(folder):
    """Dtypes that safetensors files have no name for; what a module's state dict is more than a dict; what cannot be saved says what to save instead."""
    import collections

    state = {"c": torch.randn(3, 2, dtype=torch.complex128), "conj": torch.randn(3, dtype=torch.complex128).conj(), "t": torch.randn(2, 3, dtype=torch.complex128).t(), "dtype": torch.bfloat16,
             "device": torch.device("cpu"), "expanded": torch.ones(1).expand(4, 5), "nan": torch.tensor([float("nan"), float("inf"), -0.0]), "0d": torch.tensor(True),
             "grad": torch.ones(3, requires_grad=True), "param": torch.nn.Parameter(torch.ones(2))}
    for odd in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"):
        if hasattr(torch, odd):
            state[odd] = torch.arange(6, dtype=torch.uint8).reshape(2, 3).view(getattr(torch, odd))
    got = back(folder + "/a", state)
    for k, v in state.items():
        if isinstance(v, torch.Tensor):
            assert got[k].dtype == v.dtype and got[k].shape == v.shape, k
            bits = [x.detach().resolve_conj().contiguous().reshape(-1) for x in (got[k], v)]
            bits = [torch.view_as_real(x) if x.is_complex() else x for x in bits]
            assert torch.equal(*(x.contiguous().view(torch.uint8) for x in bits)), k
        else:
            assert got[k] == v, k
    model = torch.nn.BatchNorm1d(3).state_dict()
    got = back(folder + "/m", model)
    assert type(got) is collections.OrderedDict and got._metadata == model._metadata
    refused = {"sparse": (torch.eye(3).to_sparse(), "indices()"), "meta": (torch.empty(3, device="meta"), "no values"), "module": (torch.nn.Linear(1, 1), "state_dict()")}
    with checkpoint.Saver(folder + "/r") as s:
        for k, (x, says) in refused.items():
            try:
                s.save(1, {"deep": {k: x}})
                raise AssertionError(k)
            except TypeError as e:
                assert "'deep." + k in str(e) and says in str(e), e


def test_torch_save(folder):
    from millrace import torch as mt

    state = {"model": torch.nn.Linear(3, 4).state_dict(), "epoch": 3}
    path = folder + "/model.pt"
    for k in range(3):
        state["epoch"] = k
        mt.save(state, path)
    got = mt.load(path, map_location="cpu", weights_only=True)
    assert got["epoch"] == 2 and equal(dict(got["model"]), dict(state["model"])) and len([f for f in os.listdir(path) if f.startswith("step")]) == 1
    torch.save(state, folder + "/old.pt")
    assert mt.load(folder + "/old.pt")["epoch"] == 2  # what was there before
    with open(folder + "/file.pt", "wb") as f:
        mt.save(state, f)
    assert torch.load(folder + "/file.pt")["epoch"] == 2
    try:
        mt.save(state, folder + "/old.pt")
        raise AssertionError("a file became a folder")
    except FileExistsError as e:
        assert "old.pt" in str(e)
    env = dict(os.environ, RANK="0", WORLD_SIZE="4")  # rank 0 of a job saves by itself, as with torch.save
    code = "from millrace import torch as mt; import torch, sys; mt.save({'a': torch.ones(3)}, sys.argv[1]); assert mt.load(sys.argv[1])['a'][0] == 1"
    assert subprocess.run([sys.executable, "-c", code, folder + "/r.pt"], env=env).returncode == 0


RANK_BAD = """
import sys, numpy as np
from millrace import checkpoint
rank = int(sys.argv[2])
with checkpoint.Saver(sys.argv[1], rank=rank, world=2, job="bad" + sys.argv[3], commit_timeout_s=600) as s:
    for step in range(2):
        try:
            s.save(step, {"x": object() if step == 0 and rank == int(sys.argv[3]) else np.full(1000, rank)})
            s.wait()
            assert step == 1
        except (TypeError, RuntimeError) as e:
            assert step == 0 and "object" in str(e), e
"""


def test_rank_refused(folder):
    """A state that one rank cannot save: the others learn why at once, and the next save works."""
    for bad in range(2):
        children = [subprocess.Popen([sys.executable, "-c", RANK_BAD, folder, str(r), str(bad)]) for r in range(2)]
        try:
            assert [c.wait(120) for c in children] == [0, 0]
        finally:  # one that waits for the other would keep the test's output open
            for c in children:
                c.kill()
        assert checkpoint.load(folder, rank=1)["x"][0] == 1


def test_overlapped(folder):
    import importlib

    if not hasattr(importlib.import_module("torch.optim.optimizer"), "register_optimizer_step_pre_hook"):
        print("  (this PyTorch has no hook before the optimizer's step)")
        return
    model = torch.nn.Sequential(torch.nn.Linear(2000, 2000), torch.nn.BatchNorm1d(2000))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with checkpoint.Saver(folder) as s:
        for k in range(3):
            want = {n: t.clone() for n, t in model.state_dict().items()}
            s.save(k, {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, overlapped=True)
            model(torch.randn(8, 2000)).square().mean().backward()  # changes BatchNorm's statistics
            optimizer.step()  # waits for the copy, then changes the parameters
            assert s._behind is None
            s.wait()
            got = checkpoint.load(folder)["model"]
            assert all(equal(got[n], want[n]) for n in want), [n for n in want if not equal(got[n], want[n])]


def test_loader_state(folder):
    """A loader's state may hold small tensors, as the state of a generator is one; tiers may be None."""
    state = {"order": {"generators": [np.arange(5056, dtype=np.uint8), np.eye(3)[:, ::2]]}, "epoch": 3}
    if torch is not None:
        state["order"]["generators"] += [torch.default_generator.get_state(), torch.ones(2, 3, dtype=torch.bfloat16).t()]
    with checkpoint.Saver(folder, tiers=None) as s:
        s.save(1, {"x": np.ones(3)}, loader=state)
        s.wait()
        s.save(2, {"x": np.ones(3)}, loader={"epoch": 4})
    assert checkpoint.load(folder, what="loader", tiers=None) == {"epoch": 4}
    assert equal(checkpoint.load(folder, 1, what="loader"), state)


def test_dtype_names(folder):
    """A dtype's name in a file is looked up in a table: nothing else of PyTorch can be named."""
    from millrace import _tree

    assert _tree.Reading().value({"torch_dtype": "float16"}) is torch.float16
    for name in ("load", "nn", "__doc__", "float99", 3):
        try:
            _tree.Reading().value({"torch_dtype": name})
            raise AssertionError(name)
        except OSError as e:
            assert repr(name) in str(e), e


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def test_new_folder_each_time(folder):
    """Savers of many folders, one after the other, use the same memory."""
    state = {"x": np.ones(4 << 20)}  # 32 MiB
    checkpoint.save(state, folder + "/0", direct=False)
    checkpoint.wait()
    before = resident()
    for k in range(1, 8):
        checkpoint.save(state, f"{folder}/{k}", direct=False)
        checkpoint.wait(f"{folder}/{k}")
    grown = resident() - before
    assert grown < 2 * state["x"].nbytes, grown
    for k in range(8):
        assert equal(checkpoint.load(f"{folder}/{k}"), state)


def main():
    tests = [test_loader_state, test_new_folder_each_time, test_numpy, test_odd_values, test_threads, test_refusals, test_safetensors, test_ranks, test_rank_refused, test_tiers, test_sigterm, test_told_at_exit, test_drop_in] + ([test_dtype_names, test_torch, test_torch_kinds, test_torch_save, test_overlapped] if torch is not None else [])
    for t in tests:
        with tempfile.TemporaryDirectory() as d:
            t(d)
            print("ok", t.__name__)
    if torch is None:
        print("SKIP: no torch, its part was left out")


main()
