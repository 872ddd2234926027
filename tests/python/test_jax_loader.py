"""millrace.jax: pytrees, states, shardings over four devices, and Grain's own loader over our data source. Skipped without JAX; Grain's
part where Grain is missing."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import folder, gen, plain_pictures, raises, run, skip  # noqa: E402

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
try:
    import jax
except Exception as reason:
    skip(f"no JAX ({reason})")
try:
    import grain.python as grain
except Exception as reason:
    print(f"note: no Grain ({reason}): our data source is not tried under it")
    grain = None

import numpy as np  # noqa: E402

import millrace.numpy  # noqa: E402
from millrace.jax import Loader, Source, data_sharding, shard  # noqa: E402

PATH = gen("numbers", "--format", "npz", "--files", "50", "--dims", "4x6", "--dtype", "float32", "--labels", "9")
PLAIN = gen("plain", "--format", "raw", "--files", "20", "--size", "300")
ROOT = plain_pictures("pictures", "--files", "30", "--dims", "60x80x3", "--subfolders", "3")


def same(a, b):
    return jax.tree_util.tree_all(jax.tree_util.tree_map(lambda x, y: np.asarray(x).tobytes() == np.asarray(y).tobytes(), a, b))


def batches_are_pytrees():
    want = list(millrace.numpy.Loader(PATH, 8, shuffle=True, seed=2))
    have = list(Loader(PATH, 8, shuffle=True, seed=2))
    assert len(have) == len(want) == 7 and set(have[0]) == {"data", "label"}
    assert all(same(h, {"data": w.data, "label": w.labels}) for h, w in zip(have, want))
    one = next(iter(Loader(PATH, 8, structure="tuple")))
    assert isinstance(one, tuple) and len(one) == 2
    assert set(next(iter(Loader(PATH, 8, keys=("image", "class"))))) == {"image", "class"}
    assert set(next(iter(Loader(PLAIN, 4)))) == {"data"}
    total = jax.jit(lambda b: b["label"].sum())(have[0])
    assert int(total) == int(want[0].labels.sum())


def epochs_follow_each_other():
    plain = millrace.numpy.Loader(PATH, 8, shuffle=True, seed=2)
    want = [b.labels.tolist() for _ in range(3) for b in plain]
    loader = Loader(PATH, 8, shuffle=True, seed=2, epochs=3)
    assert [b["label"].tolist() for b in loader] == want
    assert [b["label"].tolist() for b in loader] == want  # again from the start
    endless = iter(Loader(PATH, 8, shuffle=True, seed=2, epochs=None))
    assert [next(endless)["label"].tolist() for _ in range(len(want))] == want
    ranks = [Loader(PATH, 8, shuffle=True, seed=2, rank=r, world=2) for r in (0, 1)]
    assert sum(len(b["label"]) for r in ranks for b in r) == 50


def states_continue():
    for placed in (None, data_sharding(jax.devices()[:2])):
        loader = Loader(PATH, 8, shuffle=True, seed=3, epochs=3, sharding=placed, drop_last=placed is not None)
        n = len(loader)
        for stop in (0, 1, n - 1, n, n + 2, 3 * n):
            it = iter(Loader(PATH, 8, shuffle=True, seed=3, epochs=3, sharding=placed, drop_last=placed is not None))
            for _ in range(stop):
                next(it)
            state = it.get_state()
            assert isinstance(state, bytes)
            rest = [np.asarray(b["label"]).tolist() for b in it]
            assert len(rest) == 3 * n - stop, (stop, len(rest))
            again = iter(loader)
            again.set_state(state)
            assert again.get_state() == state
            assert [np.asarray(b["label"]).tolist() for b in again] == rest, stop
    raises(ValueError, "another run: seed", iter(Loader(PATH, 8, seed=9)).set_state, state)


def batches_are_spread_over_devices():
    assert len(jax.devices()) == 4
    want = list(millrace.numpy.Loader(PATH, 8, drop_last=True))
    loader = Loader(PATH, 8, drop_last=True, sharding=data_sharding())
    for have, w in zip(loader, want):
        assert isinstance(have["data"], jax.Array) and len(have["data"].addressable_shards) == 4
        assert have["data"].addressable_shards[0].data.shape == (2, 4, 6)
        assert same(have["data"], w.data) and np.array_equal(have["label"], w.labels)  # JAX makes int32 of them
    kept = list(loader)  # more than the loader has room for
    assert all(same(k["data"], w.data) for k, w in zip(kept, want))
    one = next(iter(Loader(PATH, 8, sharding=jax.devices()[2])))
    assert one["data"].devices() == {jax.devices()[2]}
    raises(ValueError, "batch_size 6 cannot be cut into 4", Loader, PATH, 6, sharding=data_sharding())
    raises(ValueError, "2 rows cannot be cut into 4", list, Loader(PATH, 8, sharding=data_sharding()))
    assert shard({"a": np.arange(8)}, data_sharding())["a"].sharding.is_equivalent_to(data_sharding(), 1)


def mixtures_of_tokens_are_streams():
    from millrace.tokens import Mixture, Tokens

    path = os.path.join(folder, "tokens.bin")
    np.arange(40000, dtype=np.uint16).tofile(path)
    data = Tokens(path, 64)
    mix = Mixture([(data, 2), (data, 1)], seed=4)
    want = mix.__getitems__(range(24))
    for step, batch in enumerate(Loader(mix, 8, sharding=data_sharding(), rank=0, world=1, steps=3)):
        assert isinstance(batch["tokens"], jax.Array) and len(batch["targets"].addressable_shards) == 4
        for i in range(8):
            assert np.array_equal(batch["tokens"][i], want[8 * step + i]["tokens"])
    packed = Loader(Tokens(path, 64, samples="packed"), 4, sharding=data_sharding(), rank=0, world=1)
    assert next(iter(packed))["cu_seqlens"][-1] == 256


def pictures_of_a_folder():
    loader = Loader(ROOT, 10, shuffle=True, seed=1, pictures={"size": 32})
    shapes = [b["data"].shape for b in loader]
    assert shapes == [(10, 32, 32, 3)] * 3
    fixed = dict(pictures={"size": (20, 24), "train": False, "floats": False, "channels_first": True})
    middle = next(iter(Loader(ROOT, 10, **fixed)))
    assert middle["data"].shape == (10, 3, 20, 24) and middle["data"].dtype == np.uint8 and set(middle["label"]) <= {0, 1, 2}
    source = Source(ROOT, **fixed)
    assert all(same(source[i]["data"], middle["data"][i]) for i in range(10))
    normal = next(iter(Loader(ROOT, 10, pictures={"size": (20, 24), "train": False, "mean": [0.5] * 3, "std": [0.25] * 3})))["data"]
    assert np.abs(normal.transpose(0, 3, 1, 2) - (middle["data"] / 255 - 0.5) / 0.25).max() < 1.1 / 255 / 0.25


def grain_reads_our_source():
    import pickle

    want = np.concatenate([b.data for b in millrace.numpy.Loader(PATH, 50)])
    source = Source(PATH)
    assert len(source) == 50 and same(source[-1]["data"], want[49]) and same(source[np.int64(7)]["data"], want[7])
    assert same(pickle.loads(pickle.dumps(source))[3]["data"], want[3]) and "50" in repr(source)
    raises(IndexError, "sample 50 of 50", source.__getitem__, 50)
    if grain is None:
        return
    sampler = grain.IndexSampler(50, shard_options=grain.NoSharding(), shuffle=True, num_epochs=1, seed=1)
    for workers in (0, 2) if os.environ.get("MR_TEST_FULL") else (0,):
        loader = grain.DataLoader(data_source=source, sampler=sampler, worker_count=workers, operations=[grain.Batch(10)])
        rows = [row.tobytes() for b in loader for row in b["data"]]
        assert sorted(rows) == sorted(w.tobytes() for w in want)
    chain = grain.MapDataset.source(source).shuffle(seed=4).batch(10)
    assert sorted(r.tobytes() for b in chain for r in b["data"]) == sorted(rows)


def orbax_saves_our_iterator():
    if grain is None:
        return
    from etils import epath

    handler = grain.PyGrainCheckpointHandler()
    it = iter(Loader(PATH, 8, shuffle=True, seed=3))
    next(it), next(it)
    place = epath.Path(folder) / "checkpoint"
    place.mkdir()
    handler.save(place, it)
    rest = [b["label"].tolist() for b in it]
    again = handler.restore(place, iter(Loader(PATH, 8, shuffle=True, seed=3)))
    assert [b["label"].tolist() for b in again] == rest


def fields_are_leaves_by_their_names():
    path = gen("fields", "--format", "npz", "--files", "3", "--samples-per-file", "8", "--fields", "x:f4:4x6,mask:i4:4x6:target")
    want = [b.fields for b in millrace.numpy.Loader(path, 8, shuffle=True, seed=2)]
    have = list(Loader(path, 8, shuffle=True, seed=2, sharding=data_sharding()))
    assert len(have) == 3 and set(have[0]) == {"x", "mask"} and all(same(h, w) for h, w in zip(have, want))
    assert len(have[0]["mask"].sharding.device_set) == 4
    one = next(iter(Loader(path, 8, structure="tuple", fields=["mask"])))
    assert isinstance(one, tuple) and one[0].shape == (8, 4, 6)
    it = iter(Loader(path, 8, shuffle=True, seed=2))
    next(it)
    again = iter(Loader(path, 8, shuffle=True, seed=2))
    again.set_state(it.get_state())
    assert same(next(again), want[1])


def errors_have_their_class():
    raises(FileNotFoundError, "/nowhere", Loader, "/nowhere")
    raises(ValueError, "structure", Loader, PATH, structure="list")
    raises(ValueError, "go together", Loader, PATH, rank=1)
    raises(ValueError, "larger than the 50 samples", Loader, PATH, 60, drop_last=True)
    raises(TypeError, "", Loader, PATH, 4, nonsense=1)


run([batches_are_pytrees, epochs_follow_each_other, states_continue, batches_are_spread_over_devices, mixtures_of_tokens_are_streams, pictures_of_a_folder, grain_reads_our_source, orbax_saves_our_iterator, fields_are_leaves_by_their_names, errors_have_their_class])  # fmt: skip
