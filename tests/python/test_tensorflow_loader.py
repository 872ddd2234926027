"""millrace.tensorflow.dataset as a tf.data.Dataset: content, epochs, repeat, prefetch, Keras' fit, no copies. Skipped without TensorFlow."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import MILLRACE, folder, gen, plain_pictures, raises, run, skip  # noqa: E402

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
try:
    import tensorflow as tf
except Exception as reason:
    skip(f"no TensorFlow ({reason})")

import numpy as np  # noqa: E402

import millrace.numpy  # noqa: E402
import millrace.tensorflow  # noqa: E402
from millrace.tensorflow import Batches, dataset  # noqa: E402

PATH = gen("numbers", "--format", "npz", "--files", "50", "--dims", "4x6", "--dtype", "float32", "--labels", "9")
PLAIN = gen("plain", "--format", "raw", "--files", "20", "--size", "300")
ROOT = plain_pictures("pictures", "--files", "30", "--dims", "60x80x3", "--subfolders", "3")


def plain_epochs(n, **options):
    loader = millrace.numpy.Loader(PATH, 8, **options)
    return [[(b.data.tobytes(), b.labels.tolist()) for b in loader] for _ in range(n)]


def seen(d):
    return [(x.numpy().tobytes(), y.numpy().tolist()) for x, y in d]


def batches_are_those_of_numpy():
    want = plain_epochs(3, shuffle=True, seed=2)
    d = dataset(PATH, 8, shuffle=True, seed=2)
    assert isinstance(d, tf.data.Dataset) and len(d) == 7
    assert d.element_spec[0].shape.as_list() == [None, 4, 6] and d.element_spec[1].dtype == tf.int64
    assert [seen(d) for _ in range(3)] == want
    assert dataset(PATH, 8, drop_last=True).element_spec[0].shape.as_list() == [8, 4, 6]
    assert seen(dataset(PATH, 8, shuffle=True, seed=2, epoch=2)) == want[2]
    alone = list(dataset(PLAIN, 5))
    assert len(alone) == 4 and alone[0].shape == (5, 300)


def operators_work():
    want = plain_epochs(3, shuffle=True, seed=2)
    assert seen(dataset(PATH, 8, shuffle=True, seed=2).repeat(3).prefetch(2)) == sum(want, [])
    assert seen(dataset(PATH, 8, shuffle=True, seed=2).take(2)) == want[0][:2]
    rows = dataset(PATH, 8).unbatch().map(lambda x, y: y)
    assert [int(y) for y in rows] == [y for _, ys in plain_epochs(1)[0] for y in ys]
    d = dataset(PATH, 8)  # two at a time, and one that is left in its middle
    assert [a == b for a, b in zip(seen(tf.data.Dataset.zip((d, d)).map(lambda a, b: a)), plain_epochs(1)[0])] == [True] * 7
    next(iter(d))
    assert seen(d) == plain_epochs(1)[0]


def arrays_are_not_copied():
    """What TensorFlow has is the loader's own memory."""
    places, real = set(), millrace.tensorflow._plain._numpy

    def noted(batch, *fields):
        out = real(batch, *fields)
        places.add(out.data.ctypes.data)
        return out

    millrace.tensorflow._plain._numpy = noted
    try:
        kept = [x for x, _ in dataset(PATH, 8)]
    finally:
        millrace.tensorflow._plain._numpy = real
    addresses = {np.asarray(memoryview(x)).ctypes.data for x in kept}
    assert addresses <= places, (addresses, places)
    assert [x.numpy().tobytes() for x in kept] == [x for x, _ in plain_epochs(1)[0]]


def keras_fits():
    train = dataset(ROOT, 6, shuffle=True, seed=1, drop_last=True, pictures={"size": 16})
    assert train.element_spec[0].shape.as_list() == [6, 16, 16, 3]
    model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(3)])
    model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(train, epochs=2, verbose=0, validation_data=dataset(ROOT, 6, pictures={"size": 16, "train": False}))
    assert len(history.history["loss"]) == len(history.history["val_loss"]) == 2
    model.fit(train.repeat(), steps_per_epoch=7, epochs=2, verbose=0)


def fields_are_tensors_by_their_names():
    path = gen("fields", "--format", "npz", "--files", "3", "--samples-per-file", "8", "--fields", "x:f4:4x6,mask:i4:4x6:target")
    want = [b.fields for b in millrace.numpy.Loader(path, 5, shuffle=True, seed=2)]
    have = list(dataset(path, 5, shuffle=True, seed=2))
    assert len(have) == len(want) == 5 and have[0]["x"].shape == (5, 4, 6) and have[4]["x"].shape == (4, 4, 6)
    assert all(h[n].numpy().tobytes() == w[n].tobytes() for h, w in zip(have, want) for n in w)
    ragged = os.path.join(folder, "ragged")
    os.makedirs(ragged)
    arrays = [np.arange(3 * i, dtype=np.float32).reshape(i, 3) for i in range(6)]
    for i, a in enumerate(arrays):
        np.savez(os.path.join(ragged, f"{i}.npz"), x=np.float32([i]), points=a)
    subprocess.run([MILLRACE, "-q", "scan", ragged], check=True, stdout=subprocess.DEVNULL)
    raises(ValueError, "'points' differ in shape", dataset, ragged, 4)
    packed = [b["points"] for b in dataset(ragged, 4, variable="pack")]
    assert [row.numpy().tolist() for b in packed for row in b] == [a.tolist() for a in arrays]
    padded = next(iter(dataset(ragged, 4, variable="pad")))
    assert padded["points"].shape == (4, 3, 3) and padded["points_lengths"].numpy().tolist() == [0, 1, 2, 3]
    batches = Batches(ragged, 4, variable="pack")
    assert [b["points"].row_lengths().numpy().tolist() for b in batches] == [[0, 1, 2, 3], [4, 5]]


def errors_have_their_class():
    raises(FileNotFoundError, "/nowhere", dataset, "/nowhere")
    raises(ValueError, "larger than the 50 samples", dataset, PATH, 60, drop_last=True)
    varied = gen("varied", "--format", "npz", "--files", "12", "--dims", "4x6")
    with open(os.path.join(varied, sorted(f for f in os.listdir(varied) if f.endswith(".npz"))[5]), "r+b") as f:
        f.truncate(60)
    raises(Exception, ".npz", list, dataset(varied, 4))
    assert [len(x) for x in dataset(varied, 4, on_error="skip")] == [4, 3, 4]


def states_continue():
    """At every batch, through a Checkpoint, and by a number of steps."""
    want = sum(plain_epochs(3, shuffle=True, seed=2), [])

    def made():
        return millrace.tensorflow.Batches(PATH, 8, shuffle=True, seed=2)

    place = os.path.join(os.path.dirname(os.path.dirname(PATH)), "checkpoint")
    for stop in (1, 5, 7, 9):
        one, have = made(), []
        while len(have) < stop:
            for x, y in one:
                have.append((x.numpy().tobytes(), y.numpy().tolist()))
                if len(have) == stop:
                    break
        saved = tf.train.Checkpoint(batches=one).save(place)
        two = made()
        tf.train.Checkpoint(batches=two).restore(saved)
        assert two.get_state() == one.get_state() and two.epoch == stop // 7
        while len(have) < len(want):
            have += seen(two)
        assert have == want, stop
        d = dataset(PATH, 8, shuffle=True, seed=2, step=stop)
        assert seen(d) + seen(d) == want[stop : (stop // 7 + 2) * 7]
        assert (len(d) == 7 if stop == 7 else d.cardinality() == tf.data.UNKNOWN_CARDINALITY)
    raises(ValueError, "another run", millrace.tensorflow.Batches(PATH, 8, seed=3).set_state, one.get_state())


run([batches_are_those_of_numpy, operators_work, arrays_are_not_copied, keras_fits, states_continue, fields_are_tensors_by_their_names, errors_have_their_class])
