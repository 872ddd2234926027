"""Two ranks with tiers that meet over TCP: their key comes through the process group's store and does not stay there; a file does the same for
millrace.numpy.Loader; without either they are refused."""

import importlib.util
import os
import socket
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import folder, gen, raises, run, skip  # noqa: E402

if importlib.util.find_spec("torch") is None:
    skip("PyTorch is not installed")

from millrace._key import job_key  # noqa: E402
from millrace.numpy import Loader  # noqa: E402

N = 40


def rank_with_a_group(path, rank):
    import torch.distributed as dist

    import millrace.torch

    dist.init_process_group("gloo")
    store = dist.distributed_c10d._get_default_store()
    loader = millrace.torch.DataLoader(path, 4, shuffle=True, seed=2, tiers="ram=8MiB", peers="off", distributed=True)
    assert len(list(loader)) == 5
    dist.barrier()
    first = job_key(rank, 2)
    dist.barrier()
    assert len(first) == 32 and first != job_key(rank, 2)
    dist.barrier()
    for n in (1, 2, 3):
        assert store.add(f"millrace/key/{n}/taken", 0) == 2
        assert not store.delete_key(f"millrace/key/{n}"), "the key is still in the store"
    dist.barrier()
    assert job_key(rank, 1) is None and job_key(rank, 3) is None
    dist.destroy_process_group()


def rank_with_a_file(path, rank):
    options = dict(shuffle=True, seed=2, rank=rank, world=2, tiers="ram=8MiB", peers="off")
    raises(ValueError, "key", Loader, path, 4, **options)
    with Loader(path, 4, key_file=os.path.join(os.path.dirname(path), "key"), **options) as loader:
        assert sum(len(b.ids) for b in loader) == N // 2
        raises(ValueError, "32", _short_key, path, options)


def _short_key(path, options):
    from millrace import _core

    _core.Loader(os.path.join(path, "manifest.mrm"), 4, key=b"short", rank=0, world=2, tiers="ram=8MiB")


def ranks(what, path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    children = []
    for r in range(2):
        more = dict(RANK=str(r), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
        children.append(subprocess.Popen([sys.executable, os.path.abspath(__file__), what, path], env=dict(os.environ, **more)))
    assert [c.wait(200) for c in children] == [0, 0], what


def keys_come_through_the_process_group():
    ranks("rank_with_a_group", gen("group", "--format", "raw", "--files", str(N), "--samples-per-file", "1", "--size", "300"))


def keys_come_from_a_file():
    path = gen("file", "--format", "raw", "--files", str(N), "--samples-per-file", "1", "--size", "300")
    key = os.path.join(os.path.dirname(path), "key")
    with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as f:
        f.write(os.urandom(32))
    ranks("rank_with_a_file", path)
    os.chmod(key, 0o644)
    raises(ValueError, "open to others", Loader, path, 4, rank=0, world=2, tiers="ram=8MiB", key_file=key)


if len(sys.argv) == 3:
    globals()[sys.argv[1]](sys.argv[2], int(os.environ["RANK"]))
else:
    assert folder
    run([keys_come_through_the_process_group, keys_come_from_a_file])
