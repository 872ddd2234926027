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
    except RuntimeError as e:
        assert "no complete checkpoint" in str(e), e


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
        assert [c.wait(120) for c in children] == [0, 0]
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


def main():
    tests = [test_numpy, test_refusals, test_safetensors, test_ranks, test_rank_refused, test_tiers, test_sigterm, test_told_at_exit, test_drop_in] + ([test_torch, test_torch_save, test_overlapped] if torch is not None else [])
    for t in tests:
        with tempfile.TemporaryDirectory() as d:
            t(d)
            print("ok", t.__name__)
    if torch is None:
        print("SKIP: no torch, its part was left out")


main()
