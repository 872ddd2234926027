"""States of JAX through millrace.checkpoint: arrays of 8 devices in any sharding come back in any other, bit for bit, bfloat16 and keys of random numbers too;
NamedTuples and registered classes as `like` has them; two processes save one array together, and one loads it; what does not fit is refused by name."""
import os
import socket
import subprocess
import sys
import tempfile
from typing import NamedTuple

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=" + ("2" if len(sys.argv) > 2 else "8")
os.environ["JAX_PLATFORMS"] = "cpu"
if "MR_BINARY_DIR" in os.environ:
    sys.path.insert(0, os.path.join(os.environ["MR_BINARY_DIR"], "python"))
try:
    import jax
    import jax.numpy as jnp
    import numpy as np
except ImportError as e:
    print("SKIP: no JAX:", e)
    sys.exit(77)
try:
    from millrace import checkpoint
except ImportError as e:
    print("SKIP: the package is not built:", e)
    sys.exit(77)
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


class Moments(NamedTuple):
    count: int
    mu: jax.Array
    nu: jax.Array


@jax.tree_util.register_pytree_node_class
class Model:
    def __init__(self, w, b, name):
        self.w, self.b, self.name = w, b, name

    def tree_flatten(self):
        return (self.w, self.b), self.name

    @classmethod
    def tree_unflatten(cls, name, parts):
        return cls(*parts, name)


def same(a, b):
    if jax.numpy.issubdtype(a.dtype, jax.dtypes.prng_key):
        a, b = jax.random.key_data(a), jax.random.key_data(b)
    return a.dtype == b.dtype and a.shape == b.shape and np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_pytrees(folder):
    w = jax.random.normal(jax.random.key(1), (6, 5)).astype(jnp.bfloat16)
    tree = {"model": Model(w, jnp.arange(5), "net"), "moments": Moments(3, w * 2, np.ones(4)), "key": jax.random.key(7), "empty": jnp.zeros((0, 3)),
            "scalar": jnp.float32(2.5), "list": [1, "two", (jnp.ones(2),)]}
    with checkpoint.Saver(folder) as s:
        s.save(1, tree)
        s.save(2, {k: v for k, v in tree.items() if k != "model"}, overlapped=True)
    got = checkpoint.load(folder, 1, like=tree)
    assert jax.tree_util.tree_structure(got) == jax.tree_util.tree_structure(tree)
    for a, b in zip(jax.tree_util.tree_leaves(got), jax.tree_util.tree_leaves(tree)):
        assert same(a, b) if hasattr(a, "dtype") else a == b, (a, b)
    assert isinstance(got["moments"], Moments) and isinstance(got["moments"].nu, np.ndarray) and isinstance(got["model"].w, jax.Array) and got["model"].name == "net"
    free = checkpoint.load(folder, 2)  # without `like`: fields by name all the same
    assert free["moments"].count == 3 and same(free["moments"].mu, tree["moments"].mu) and same(free["key"], tree["key"])
    assert float(jax.random.uniform(free["key"])) == float(jax.random.uniform(tree["key"]))
    for like, what in ((None, "like"), ({**tree, "key": 1, "list": [1, "two"]}, "'list'"), ({**tree, "model": 3}, "'model'"),
                       ({k: v for k, v in tree.items() if k != "key"}, "target"), ({**tree, "moments": Moments(0, jnp.ones(3), np.ones(4))}, "shape (6, 5)")):
        try:
            checkpoint.load(folder, 1, like=like) if like else checkpoint.load(folder, 1)
            raise AssertionError("loaded: " + what)
        except ValueError as e:
            assert what in str(e), (what, e)


def test_shardings(folder):
    mesh, line = Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y")), Mesh(np.array(jax.devices()), ("d",))
    whole = np.arange(16 * 24, dtype=np.float32).reshape(16, 24)
    saved = [NamedSharding(mesh, P("x", "y")), NamedSharding(mesh, P(None, "x")), NamedSharding(line, P("d")), NamedSharding(mesh, P()), None]
    wanted = saved + [NamedSharding(line, P(None, "d"))]
    with checkpoint.Saver(folder) as s:
        s.save(1, [jax.device_put(whole, x) if x else jnp.asarray(whole) for x in saved])
    rows = checkpoint._core.State(folder, 1, 0, False).tensors()
    assert [sum(1 for r in rows if r[0].startswith(str(i))) for i in range(5)] == [8, 4, 8, 1, 1], rows  # each part once, replicas not
    for x in wanted:
        like = jax.ShapeDtypeStruct(whole.shape, whole.dtype, sharding=x) if x else jnp.zeros((16, 24))
        for got in checkpoint.load(folder, like=[like] * 5):
            assert np.array_equal(np.asarray(got), whole) and (x is None or got.sharding == x), x


def worker(folder, port, rank):
    jax.distributed.initialize("127.0.0.1:" + port, 2, rank)
    mesh = Mesh(np.array(jax.devices()), ("d",))
    whole = np.arange(40.0, dtype=np.float32).reshape(8, 5)
    make = lambda spec: jax.make_array_from_callback(whole.shape, NamedSharding(mesh, spec), lambda i: whole[i])
    state = {"rows": make(P("d")), "all": make(P()), "rank": rank}
    with checkpoint.Saver(folder, rank=rank, world=2, job="j" + port) as s:
        s.save(4, state)
    got = checkpoint.load(folder, rank=rank, like=state)
    assert got["rank"] == rank and all(np.array_equal(np.asarray(x.data), whole[x.index]) for k in ("rows", "all") for x in got[k].addressable_shards)


def test_processes(folder):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    children = [subprocess.Popen([sys.executable, os.path.abspath(__file__), folder, port, str(r)], env={k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}) for r in range(2)]
    assert [c.wait(300) for c in children] == [0, 0]
    got = checkpoint.load(folder, rank=0)
    assert all(np.array_equal(np.asarray(got[k]), np.arange(40.0).reshape(8, 5)) for k in ("rows", "all"))
    try:
        checkpoint.load(folder, rank=2)
        raise AssertionError("rank 2 never saved")
    except ValueError as e:
        assert "2 ranks" in str(e), e


if len(sys.argv) > 2:
    worker(sys.argv[1], sys.argv[2], int(sys.argv[3]))
else:
    for t in (test_pytrees, test_shardings, test_processes):
        with tempfile.TemporaryDirectory() as d:
            t(d)
            print("ok", t.__name__)
