"""millrace.numpy.Loader and the arrays of millrace._core: content, order, zero copies, DLPack in both forms, states, errors."""
import ctypes
import os
import subprocess
import sys
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import BINARY, folder, gen, plain_pictures, raises, run  # noqa: E402

import numpy as np  # noqa: E402

import millrace  # noqa: E402
from millrace import _core  # noqa: E402
from millrace.numpy import Loader, Samples  # noqa: E402

SHAPES = {"npz": "4x6", "raw": None, "hdf5": "4x6", "tfrecord": None}


def sets(name):
    dims = SHAPES[name]
    per_file = "1" if name in ("npz", "raw") else "10"
    shape = ["--dims", dims, "--dtype", "float32"] if dims else ["--size", "300"]
    return gen(name, "--format", name, "--files", "50" if per_file == "1" else "5", "--samples-per-file", per_file, "--labels", "9", *shape)


PATHS = {name: sets(name) for name in SHAPES}


def content_is_that_of_cat():
    for name, path in PATHS.items():
        with Loader(path, 7) as loader:
            assert len(loader) == 8 and loader.info["samples"] == 50 and loader.info["format"] == name
            rows = [row.tobytes() for b in loader for row in b.data]
        raw = [subprocess.run([os.path.join(BINARY, "bin", "millrace"), "cat", path, str(i)], capture_output=True).stdout for i in (0, 23)]
        assert len(rows) == 50 and (not raw[0] or [rows[0], rows[23]] == raw or name in ("npz", "hdf5", "tfrecord")), name


def orders_and_ranks():
    path = PATHS["npz"]
    plain = np.concatenate([b.ids for b in Loader(path, 8)])
    assert (plain == np.arange(50)).all()
    loader = Loader(path, 8, shuffle=True, seed=3)
    epochs = [np.concatenate([b.ids for b in loader]) for _ in range(3)]
    assert all(sorted(e) == list(range(50)) for e in epochs) and not (epochs[0] == epochs[1]).all()
    ranks = [np.concatenate([b.ids for b in Loader(path, 8, shuffle=True, seed=3, rank=r, world=3)]) for r in range(3)]
    assert [int(i) for group in zip(*ranks) for i in group][:50] == [int(i) for i in epochs[0]]
    loader.set_epoch(1)
    assert (np.concatenate([b.ids for b in loader]) == epochs[1]).all()
    assert len(Loader(path, 8, drop_last=True)) == 6


def arrays_are_kept_and_writable():
    loader = Loader(PATHS["npz"], 4, shuffle=True, seed=1, lookahead=1)
    batches = list(loader)
    ids = np.concatenate([b.ids for b in batches])
    by_id = {int(i): row.tobytes() for b in Loader(PATHS["npz"], 50) for i, row in zip(b.ids, b.data)}
    for b in batches:
        for i, row in zip(b.ids, b.data):
            assert row.tobytes() == by_id[int(i)]
    assert len(set(ids.tolist())) == 50 and batches[0].data.flags.writeable
    batches[0].data[:] = 1
    loader.close()
    assert (batches[0].data == 1).all()
    raises(ValueError, "closed", next, iter(loader))


def dlpack_in_both_forms():
    core = _core.Loader(PATHS["npz"], 5, spare=2)
    core.start_epoch(0)
    array = core.next().data
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    assert name(array.__dlpack__()) == b"dltensor"
    assert name(array.__dlpack__(max_version=(0, 8))) == b"dltensor"
    assert name(array.__dlpack__(max_version=(1, 0))) == b"dltensor_versioned"
    assert array.__dlpack_device__() == (1, 0) and array.shape == (5, 4, 6) and array.dtype == "f4"
    raises(BufferError, "without a copy", array.__dlpack__, copy=True)
    taken = np.from_dlpack(array)
    same = np.asarray(array)
    assert taken.shape == (5, 4, 6) and taken.ctypes.data == same.ctypes.data
    want = same.copy()
    del array, same
    core.close()
    assert taken.tobytes() == want.tobytes()


def states_continue():
    for stop in (0, 3, 6):
        one = Loader(PATHS["hdf5"], 6, shuffle=True, seed=8)
        list(one)
        it = iter(one)
        for _ in range(stop):
            next(it)
        state = one.state_dict()
        rest = [b.ids.tolist() for b in it] + [b.ids.tolist() for b in one]
        two = Loader(PATHS["hdf5"], 6, shuffle=True, seed=8)
        two.load_state_dict(state)
        assert [b.ids.tolist() for b in two] + [b.ids.tolist() for b in two] == rest
    raises(ValueError, "another run: seed", Loader(PATHS["hdf5"], 6).load_state_dict, state)


def behind_the_last_batch_is_the_next_epoch():
    one, states = Loader(PATHS["npz"], 8, shuffle=True, seed=3), []
    for _ in one:
        states.append(one.state_dict())
    assert [(s["epoch"], s["position"]) for s in states[-2:]] == [(0, 48), (1, 0)]
    two = Loader(PATHS["npz"], 8, shuffle=True, seed=3)
    two.load_state_dict(states[-1])
    assert [b.ids.tolist() for b in two] == [b.ids.tolist() for b in one]


def samples_by_number():
    for name, path in PATHS.items():
        (whole,) = Loader(path, 50)
        samples = Samples(path)
        assert len(samples) == 50
        for i in (0, 49, 7, -1):
            data, label = samples[i]
            assert data.tobytes() == whole.data[i].tobytes() and label == whole.labels[i], (name, i)
    raises(IndexError, "sample 50 of 50", samples.__getitem__, 50)


def folders_of_pictures():
    root = plain_pictures("pictures", "--files", "30", "--dims", "60x80x3", "--subfolders", "3")
    loader = Loader(root, 10, shuffle=True, pictures={"size": 32})
    first, second = list(loader), list(loader)
    assert len(loader.classes) == 3 and first[0].data.shape == (10, 32, 32, 3) and first[0].data.dtype == np.float32
    sums = [{int(i): float(r.sum()) for b in e for i, r in zip(b.ids, b.data)} for e in (first, second)]
    assert sums[0].keys() == sums[1].keys() and sum(sums[0][i] != sums[1][i] for i in sums[0]) > 20  # each epoch its own crops
    (whole,) = Loader(root, 30, pictures={"size": 20, "train": False, "floats": False})
    assert whole.data.shape == (30, 20, 20, 3) and sorted(set(whole.labels.tolist())) == [0, 1, 2]
    cubic, linear = (next(iter(Loader(root, 10, pictures={"size": 32, "interpolation": name}))).data for name in ("bicubic", "bilinear"))
    assert 0 < abs(cubic - linear).mean() < 0.1 and cubic.min() >= 0 and cubic.max() <= 1
    for wrong, text in (({"size": 8, "interpolation": "cubic"}, "bicubic"), ({"size": 8, "sice": 1}, "no option 'sice'"), ({}, "needs a 'size'"), ({"size": 0}, "at least 1")):
        raises(ValueError, text, Loader, root, pictures=wrong)
    raises(ValueError, "three values", Loader, root, pictures={"size": 8, "mean": [1.0]})
    raises(ValueError, "need floats", Loader, root, pictures={"size": 8, "mean": [1.0] * 3, "floats": False})


def two_iterations_of_one_loader():
    loader = Loader(PATHS["npz"], 8)
    first, second = iter(loader), iter(loader)
    next(first), next(second)
    raises(RuntimeError, "another iteration", next, first)


def errors_have_their_class():
    raises(FileNotFoundError, "/nowhere", Loader, "/nowhere")
    bare = os.path.join(folder, "bare", "inner")
    os.makedirs(bare)
    for path in (bare, os.path.dirname(bare)):
        raises(millrace.DataError, "no manifest", Loader, path)
    raises(ValueError, "batch_size", Loader, PATHS["npz"], 0)
    raises(ValueError, "", Loader, PATHS["npz"], 2, order="sideways")
    bad = gen("broken", "--format", "npz", "--files", "12", "--dims", "4x6")
    names = sorted(f for f in os.listdir(bad) if f.endswith(".npz"))
    with open(os.path.join(bad, names[5]), "r+b") as f:
        f.truncate(60)
    it = iter(Loader(bad, 4))
    next(it)
    e = raises(OSError, names[5], next, it)
    assert isinstance(e, millrace.DataError)
    loader = Loader(bad, 4, on_error="skip")
    assert [len(b.data) for b in loader] == [4, 3, 4] and loader.skipped == 1


def imports_are_light():
    program = "import sys, millrace; print(len([m for m in ('torch', 'numpy', 'jax', 'tensorflow') if m in sys.modules]))"
    env = dict(os.environ, PYTHONPATH=os.path.join(BINARY, "python"))
    assert subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True).stdout == "0\n"
    out = subprocess.run([sys.executable, "-m", "millrace", "--version"], env=env, capture_output=True, text=True).stdout
    assert millrace.version in out


def pictures_inside_of_shards():
    """JPEG files in a tar shard become what they become as files."""
    import tarfile

    root = plain_pictures("files", "--files", "30", "--dims", "60x80x3", "--subfolders", "3")
    shards = os.path.join(os.path.dirname(os.path.dirname(root)), "shards")
    os.makedirs(shards)
    files = sorted(os.path.join(d, f) for d, _, fs in os.walk(root) for f in fs)
    with tarfile.open(os.path.join(shards, "0.tar"), "w") as tar:
        for i, path in enumerate(files):
            tar.add(path, f"{i:05d}.jpg")
    subprocess.run([os.path.join(BINARY, "bin", "millrace"), "-q", "scan", shards], check=True, stdout=subprocess.DEVNULL)
    for options in ({"size": 32}, {"size": (20, 30), "train": False, "fast": True}, {"size": 24, "floats": False}):
        one, two = Loader(root, 8, pictures=options, threads=2), Loader(shards, 8, pictures=options, threads=2)
        both = [(a.data, b.data) for a, b in zip(one, two)]
        assert len(both) == 4 and all((a == b).all() for a, b in both), options


def tiers_change_nothing_but_where_bytes_come_from():
    path = PATHS["npz"]
    want = [[(b.data.tobytes(), b.ids.tolist()) for b in plain] for plain in [Loader(path, 8, shuffle=True, seed=3)] * 3]
    for options in (dict(tiers="ram=64MiB", epochs=3), dict(tiers="ram=64MiB"), dict(policy="nopfs", tiers="ram=20KiB")):
        with Loader(path, 8, shuffle=True, seed=3, **options) as loader:
            assert [[(b.data.tobytes(), b.ids.tolist()) for b in loader] for _ in range(3)] == want
            told = loader.stats()["tiers"]
            assert told["ram"]["samples"] > 0 and told["ram"]["samples"] + told["source"]["samples"] >= 150 and options.get("policy", "millrace") in told["chosen"]
            assert told["source"]["samples"] <= 60 or "policy" in options
    with Loader(path, 8, shuffle=True, seed=3, tiers="ram=64MiB") as loader:
        it = iter(loader)
        next(it), next(it)
        state = loader.state_dict()
    with Loader(path, 8, shuffle=True, seed=3, tiers="ram=64MiB") as loader:
        loader.load_state_dict(state)
        assert [(b.data.tobytes(), b.ids.tolist()) for b in loader] == want[0][2:]
    assert "tiers" not in Loader(path, 8).stats()
    raises(ValueError, "peers is", Loader, path, 8, tiers="auto", peers="perhaps")
    raises(ValueError, "", Loader, path, 8, tiers="disk=3")


def ranks_are_those_of_the_environment():
    """RANK and WORLD_SIZE divide the data, a launcher's variables only cause a warning; states go on with other ranks, or say why not."""
    path, names = PATHS["hdf5"], ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
    before = {name: os.environ.pop(name, None) for name in names}
    try:
        late = Loader(path, 8, shuffle=True, seed=3)
        want, full = [list(map(int, b.ids)) for b in late], len(late)
        os.environ.update(OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            late.set_epoch(0)
            assert [list(map(int, b.ids)) for b in late] == want
            assert len(said) == 1 and "2 processes" in str(said[0].message)
            os.environ.update(RANK="1", WORLD_SIZE="2")
            late.set_epoch(0)
            ids = [int(i) for b in late for i in b.ids]
            assert len(said) == 2 and "rank 1 of 2" in str(said[1].message)
        assert ids == sum(want, [])[1::2] and len(late) == -(-full // 2) and (late.rank, late.world) == (1, 2)
        assert len(Loader(path, 8, rank=0, world=1)) == full
        local = Loader(path, 5, order="file")
        next(iter(local))
        state = local.state_dict()
        assert state["world"] == 2
        os.environ.update(WORLD_SIZE="3")
        raises(ValueError, "the order 'file' of 2 ranks", Loader(path, 5, order="file").load_state_dict, state)
        raises(ValueError, "order file, here sequential", Loader(path, 5).load_state_dict, state)
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


run([ranks_are_those_of_the_environment, content_is_that_of_cat, orders_and_ranks, arrays_are_kept_and_writable, dlpack_in_both_forms, states_continue, behind_the_last_batch_is_the_next_epoch, samples_by_number, folders_of_pictures, two_iterations_of_one_loader, errors_have_their_class, imports_are_light, pictures_inside_of_shards, tiers_change_nothing_but_where_bytes_come_from])  # fmt: skip
