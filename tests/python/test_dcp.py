"""millrace.dcp under torch.distributed.checkpoint: an FSDP training saved by 2 processes (gloo) is loaded by 1, 2 and 4, bit for bit, with its optimizer's state and
what is no tensor; asynchronous saves; the next step without a number; a rank that cannot save stops the others at once; no pickle on disk; other shardings; loads from
tiers of several nodes, lost or damaged ones too; parts of a state, keys that are missing, a step saved again, a rank that is killed."""
import os
import signal
import socket
import subprocess
import sys
import tempfile

if "MR_BINARY_DIR" in os.environ:
    sys.path.insert(0, os.path.join(os.environ["MR_BINARY_DIR"], "python"))
    os.environ["PYTHONPATH"] = sys.path[0] + os.pathsep + os.environ.get("PYTHONPATH", "")  # the other ranks
try:
    import torch
except ImportError:
    print("SKIP: no torch")
    sys.exit(77)
if tuple(int(x) for x in torch.__version__.split(".")[:2] if x.isdigit()) < (2, 3):
    print("SKIP: PyTorch", torch.__version__, "is older than 2.3")
    sys.exit(77)
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

try:
    from millrace import checkpoint
    from millrace.dcp import StorageReader, StorageWriter
except ImportError as e:
    print("SKIP: the package is not built:", e)
    sys.exit(77)
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor


def training(sharded=True):
    """A model with tied shapes of all sorts: rows that do not divide by 4, a vector, statistics of BatchNorm."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(70, 33), torch.nn.BatchNorm1d(33), torch.nn.ReLU(), torch.nn.Linear(33, 5))
    if sharded:
        from torch.distributed.fsdp import fully_shard

        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def step(model, optimizer, k):
    torch.manual_seed(100 + k)  # the same batch on all ranks: the training does not depend on their number
    optimizer.zero_grad()
    model(torch.randn(16, 70)).square().mean().backward()
    optimizer.step()


def state_of(model, optimizer, epoch):
    m, o = get_state_dict(model, optimizer)
    return {"model": m, "optimizer": o, "epoch": epoch, "history": [0.5, (1, "two"), {"three": None}]}


def whole(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


def worker_save(folder, rank, world):
    model, optimizer = training()
    writer = StorageWriter(folder, commit_timeout_s=60)
    for k in range(3):
        step(model, optimizer, k)
        if k == 0:
            dcp.save(state_of(model, optimizer, k), storage_writer=writer)  # step 0
        elif k == 1:
            dcp.async_save(state_of(model, optimizer, k), checkpoint_id=folder + "/step-10", storage_writer=writer).result()
        else:
            dcp.save(state_of(model, optimizer, k), storage_writer=writer)  # step 11
    want = {n: whole(t) for n, t in model.state_dict().items()}
    moments = {n: whole(t) for n, t in get_state_dict(model, optimizer)[1]["state"]["0.weight"].items()}
    if rank == 0:
        torch.save((want, moments), folder + "/want.pt")
    mesh = init_device_mesh("cpu", (world,))
    odd = {"columns": distribute_tensor(torch.arange(210.0).reshape(7, 30), mesh, [Shard(1)]), "all": distribute_tensor(torch.arange(5), mesh, [Replicate()])}
    dcp.save(odd, checkpoint_id=folder + "/odd", storage_writer=writer)
    writer.close()


def worker_load(folder, rank, world):
    want, moments = torch.load(folder + "/want.pt")
    model, optimizer = training()
    state = state_of(model, optimizer, -1)
    dcp.load(state, storage_reader=StorageReader(folder))
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    assert state["epoch"] == 2 and state["history"] == [0.5, (1, "two"), {"three": None}], state
    for n, t in model.state_dict().items():
        assert torch.equal(whole(t), want[n]), n
    for n, t in get_state_dict(model, optimizer)[1]["state"]["0.weight"].items():
        assert torch.equal(whole(t), moments[n]), n
    dcp.load(state, storage_reader=StorageReader(folder + "/step-10"))
    assert state["epoch"] == 1
    mesh = init_device_mesh("cpu", (world,))
    odd = {"columns": distribute_tensor(torch.zeros(7, 30), mesh, [Shard(0)]), "all": torch.zeros(5, dtype=torch.int64)}
    dcp.load(odd, storage_reader=StorageReader(folder + "/odd"))
    assert torch.equal(odd["columns"].full_tensor(), torch.arange(210.0).reshape(7, 30)) and torch.equal(odd["all"], torch.arange(5))


class Odd:
    pass


def worker_refuse(folder, rank, world):
    """Rank 1 has something that no checkpoint holds: both learn, and the next save works."""
    writer = StorageWriter(folder, commit_timeout_s=600)
    mesh = init_device_mesh("cpu", (world,))
    state = {"w": distribute_tensor(torch.arange(64.0), mesh, [Shard(0)]), "o%d" % rank: Odd() if rank else 3}
    try:
        dcp.save(state, storage_writer=writer)
        raise AssertionError("saved")
    except dcp.api.CheckpointException as e:  # DCP's own, with one reason per rank
        assert "o1" in str(e) and "nothing is pickled" in str(e), e
    state["o%d" % rank] = 4
    dcp.save(state, storage_writer=writer)
    writer.close()


def sharded(world, add=0.0):
    mesh = init_device_mesh("cpu", (world,))
    return {"w": distribute_tensor(torch.arange(640.0).reshape(64, 10) + add, mesh, [Shard(0)]), "same": distribute_tensor(torch.arange(7) + int(add), mesh, [Replicate()]),
            "epoch": int(add), "pair": (1, torch.full((3,), float(add)))}


def nodes(folder, rank):
    """Every rank has a node of its own."""
    return [f"{folder}/node{rank}/memory", f"{folder}/node{rank}/disk"]


def worker_tiers_save(folder, rank, world):
    """Steps 0 and 1 get to the folder, 2 is drained for ever, 3 waits behind it; then the job dies."""
    writer = StorageWriter(folder + "/final", tiers=nodes(folder, rank)[:1], commit_timeout_s=60)
    for k in range(2):
        dcp.save(sharded(world, k), storage_writer=writer)
    writer.close()
    dist.barrier()
    writer = StorageWriter(folder + "/final", tiers=nodes(folder, rank), behind=True, drain_bytes_per_s=1, commit_timeout_s=60)
    for k in range(2, 4):
        dcp.save(sharded(world, k), storage_writer=writer)
    while (writer._saver.last() or {"step": 0})["step"] < 3:
        pass
    dist.barrier()
    os.kill(os.getpid(), signal.SIGKILL)


def expect_step(folder, want, world, **options):
    state = sharded(world, 100)
    dcp.load(state, storage_reader=StorageReader(folder + "/final", **options))
    assert state["epoch"] == want and torch.equal(state["w"].full_tensor(), torch.arange(640.0).reshape(64, 10) + want), (state["epoch"], want)
    assert torch.equal(whole(state["same"]), torch.arange(7) + want) and state["pair"][1][0] == want, state


def worker_tiers_load(folder, rank, world):
    """What is only in tiers comes from them, on as many ranks as there are: those without a tier get it from the others."""
    expect_step(folder, 3, world, tiers=nodes(folder, rank) if world > 1 else nodes(folder, 0) + nodes(folder, 1))
    expect_step(folder, 1, world)  # without them
    expect_step(folder, 1, world, step=1, tiers=nodes(folder, rank))


def worker_tiers_lost(folder, rank, world):
    expect_step(folder, 1, world, tiers=nodes(folder, rank))


def worker_tiers_damaged(folder, rank, world):
    """One rank's only copy is damaged: all of them load the step before it."""
    expect_step(folder, 2, world, tiers=nodes(folder, rank))


def worker_killed(folder, rank, world):
    """Rank 1 dies inside a save: rank 0 is told in time, and what was complete stays."""
    writer = StorageWriter(folder, commit_timeout_s=2)
    dcp.save(sharded(world, 1), storage_writer=writer)
    writer.close()
    if rank == 1:
        StorageWriter.write_data = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    writer = StorageWriter(folder, commit_timeout_s=2)
    try:
        dcp.save(sharded(world, 2), storage_writer=writer)
        os._exit(9)
    except (Exception, dcp.api.CheckpointException) as e:
        told = str(e)
    try:
        writer.close()
    except (Exception, dcp.api.CheckpointException) as e:
        told += str(e)
    assert "rank 1" in told or "Connection closed" in told, told
    os._exit(0)  # the process group is broken


def run(what, folder, world, want=0):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    children = []
    for r in range(world):
        env = dict(os.environ, RANK=str(r), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
        children.append(subprocess.Popen([sys.executable, os.path.abspath(__file__), what, folder], env=env))
    codes = [c.wait(240) for c in children]
    assert codes == (want if isinstance(want, list) else [want] * world), (what, world, codes)


def test_fsdp(folder):
    run("save", folder, 2)
    assert {"step-000000000000", "step-000000000010", "step-000000000011"} <= set(os.listdir(folder)), os.listdir(folder)
    for world in (1, 3, 4):
        run("load", folder, world)
    for root, _, files in os.walk(folder):
        for f in files:
            assert f in ("want.pt", "latest", ".saver") or f.endswith((".safetensors", ".sums", ".json")), f


def test_refused(folder):
    run("refuse", folder, 2)
    got = {"w": torch.zeros(64), "o1": 0}
    dcp.load(got, storage_reader=StorageReader(folder))
    assert torch.equal(got["w"], torch.arange(64.0)) and got["o1"] == 4


def test_tiers(folder):
    run("tiers_save", folder, 2, -signal.SIGKILL)
    assert not os.path.exists(folder + "/final/step-000000000003")
    for world in (1, 2, 3):
        run("tiers_load", folder, world)
    part = folder + "/node1/memory/rank-00001/step-000000000003/rank-00001.safetensors"
    with open(part, "r+b") as f:
        f.seek(-1, 2)
        f.write(b"\xaa")
    run("tiers_damaged", folder, 2)
    os.rename(folder + "/node1", folder + "/gone")
    run("tiers_lost", folder, 2)


def test_killed(folder):
    run("killed", folder, 2, [0, -signal.SIGKILL])
    got = {"epoch": 0, "w": torch.zeros(64, 10)}
    dcp.load(got, storage_reader=StorageReader(folder))
    assert got["epoch"] == 1 and got["w"][63, 9] == 640


def raises(text, f, *args, **options):
    try:
        f(*args, **options)
    except (Exception, dcp.api.CheckpointException) as e:  # DCP's is no Exception
        assert text in str(e), (text, e)
        return
    raise AssertionError("no error: " + text)


def test_usage(folder):
    """What a user of torch.distributed.checkpoint tries."""
    class Stateful:
        def __init__(self, n): self.n = n
        def state_dict(self): return {"n": self.n, "t": torch.full((4,), float(self.n))}
        def load_state_dict(self, s): self.n = s["n"]

    state = {"a": torch.arange(10.0), "deep": {"b": [torch.ones(2, 2, requires_grad=True), 5], "c": torch.nn.Parameter(torch.zeros(3))}, "app": Stateful(7)}
    with open(os.path.join(folder, "notes.txt"), "w") as f:
        f.write("a folder that exists, with something in it")
    dcp.save(state, storage_writer=StorageWriter(folder), no_dist=True)
    part = {"deep": {"b": [torch.zeros(2, 2), 0]}}
    dcp.load(part, storage_reader=StorageReader(folder), no_dist=True)  # a part of it
    assert part["deep"]["b"][0].sum() == 4 and part["deep"]["b"][1] == 5
    app = {"app": Stateful(0)}
    dcp.load(app, storage_reader=StorageReader(folder))
    assert app["app"].n == 7
    raises("missing.key", dcp.load, {"missing.key": torch.zeros(3)}, storage_reader=StorageReader(folder))
    raises("for a", dcp.load, {"a": torch.zeros(11)}, storage_reader=StorageReader(folder))
    with StorageWriter(folder) as writer:  # a step again, by its name
        state["a"] += 1
        dcp.save(state, checkpoint_id=folder + "/step-0", storage_writer=writer)
        future = dcp.async_save({"a": state["a"] + 1}, checkpoint_id=folder + "/step-8", storage_writer=writer)
        future.result()
    got = {"a": torch.zeros(10)}
    dcp.load(got, checkpoint_id=folder + "/step-0", storage_reader=StorageReader(folder))
    assert got["a"][0] == 1
    dcp.load(got, storage_reader=StorageReader(folder))
    assert got["a"][0] == 2
    half = {"a": torch.zeros(10, dtype=torch.float16)}
    dcp.load(half, storage_reader=StorageReader(folder))
    assert half["a"].dtype is torch.float16 and half["a"][9] == 11
    raises("folder does not exist", dcp.load, got, storage_reader=StorageReader(folder + "/nowhere"))
    raises("step 3", dcp.load, got, storage_reader=StorageReader(folder, step=3))
    raises("no complete checkpoint", dcp.load, got, storage_reader=StorageReader(folder + "/nowhere", tiers=[folder + "/no tier"]))
    dcp.save(got, checkpoint_id=folder + "/theirs")  # DCP's own storage
    raises("torch.distributed.checkpoint's own", dcp.load, got, storage_reader=StorageReader(folder + "/theirs"))


def test_one_process(folder):
    state = {"a": torch.randn(6, 4).t(), "b": torch.arange(3), "bf": torch.randn(4).to(torch.bfloat16), "none": torch.empty(0, 2), "lr": 0.1}
    writer = StorageWriter(folder, keep_last=2, behind=True)
    for k in range(4):
        state["lr"] = k
        dcp.save(state, storage_writer=writer)
    writer.wait()
    assert sorted(f for f in os.listdir(folder) if f.startswith("step")) == ["step-000000000002", "step-000000000003"]
    got = {k: torch.zeros_like(v) if isinstance(v, torch.Tensor) else None for k, v in state.items()}
    dcp.load(got, storage_reader=StorageReader(folder))
    assert got["lr"] == 3 and all(torch.equal(got[k], state[k]) for k in ("a", "b", "bf", "none")), got
    try:
        checkpoint.load(folder)
        raise AssertionError("loaded as something else")
    except ValueError as e:
        assert "StorageReader" in str(e), e
    with open(folder + "/step-000000000003/rank-00000.safetensors", "r+b") as f:
        f.seek(-1, 2)
        last = f.read(1)
        f.seek(-1, 2)
        f.write(bytes([last[0] ^ 1]))
    try:
        dcp.load(got, storage_reader=StorageReader(folder))
        raise AssertionError("loaded what is damaged")
    except dcp.api.CheckpointException as e:
        assert "checksum" in str(e), e
    writer.close()


def main():
    if len(sys.argv) == 3:
        dist.init_process_group("gloo")
        globals()["worker_" + sys.argv[1]](sys.argv[2], dist.get_rank(), dist.get_world_size())
        dist.destroy_process_group()
        return
    for t in (test_one_process, test_usage, test_fsdp, test_refused, test_tiers, test_killed):
        with tempfile.TemporaryDirectory() as d:
            t(d)
            print("ok", t.__name__)


main()
