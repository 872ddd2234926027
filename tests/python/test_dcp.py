"""millrace.dcp under torch.distributed.checkpoint: an FSDP training saved by 2 processes (gloo) is loaded by 1, 2 and 4, bit for bit, with its optimizer's state and
what is no tensor; asynchronous saves; the next step without a number; a rank that cannot save stops the others at once; no pickle on disk; other shardings."""
import os
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


def run(what, folder, world):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    children = []
    for r in range(world):
        env = dict(os.environ, RANK=str(r), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
        children.append(subprocess.Popen([sys.executable, os.path.abspath(__file__), what, folder], env=env))
    codes = [c.wait() for c in children]
    assert codes == [0] * world, (what, world, codes)


def test_fsdp(folder):
    run("save", folder, 2)
    assert {"step-000000000000", "step-000000000010", "step-000000000011"} <= set(os.listdir(folder)), os.listdir(folder)
    for world in (1, 4):
        run("load", folder, world)
    for root, _, files in os.walk(folder):
        for f in files:
            assert f in ("want.pt", "latest", ".saver") or f.endswith((".safetensors", ".sums", ".json")), f


def test_refused(folder):
    run("refuse", folder, 2)
    got = {"w": torch.zeros(64), "o1": 0}
    dcp.load(got, storage_reader=StorageReader(folder))
    assert torch.equal(got["w"], torch.arange(64.0)) and got["o1"] == 4


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
    for t in (test_one_process, test_fsdp, test_refused):
        with tempfile.TemporaryDirectory() as d:
            t(d)
            print("ok", t.__name__)


main()
