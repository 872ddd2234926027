"""Data made in the layouts of public data sets: MNIST, CIFAR-10, folders of pictures."""

import pathlib
import pickle
import struct

import numpy

random = numpy.random.default_rng(1)


def mnist(folder: pathlib.Path, train: int = 6000, test: int = 1000) -> None:
    raw = folder / "MNIST/raw"
    raw.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", train), ("t10k", test)):
        pictures = random.integers(0, 256, (rows, 28, 28), dtype=numpy.uint8)
        labels = (numpy.arange(rows) % 10).astype(numpy.uint8)
        (raw / (name + "-images-idx3-ubyte")).write_bytes(struct.pack(">4i", 2051, rows, 28, 28) + pictures.tobytes())
        (raw / (name + "-labels-idx1-ubyte")).write_bytes(struct.pack(">2i", 2049, rows) + labels.tobytes())


def cifar10(folder: pathlib.Path, rows: int = 2000) -> None:
    """Five batches of `rows`, and a test batch. torchvision's checksums are those of the real files: not compared."""
    import torchvision.datasets.cifar as cifar

    cifar.check_integrity = lambda *_: True
    cifar.CIFAR10._check_integrity = lambda _: True
    to = folder / "cifar-10-batches-py"
    to.mkdir(parents=True, exist_ok=True)
    for name in ["data_batch_%d" % i for i in range(1, 6)] + ["test_batch"]:
        batch = {
            "data": random.integers(0, 256, (rows, 3072), dtype=numpy.uint8),
            "labels": [int(x) for x in random.integers(0, 10, rows)],
        }
        (to / name).write_bytes(pickle.dumps(batch))
    (to / "batches.meta").write_bytes(pickle.dumps({"label_names": [str(i) for i in range(10)]}))


def pictures(
    folder: pathlib.Path, count: int, size: "tuple[int, int]", ending: str = "jpg", mask: bool = False
) -> None:
    """Smooth pictures, as large as photographs are when they are compressed; or masks of two values."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        small = random.integers(0, 256, (size[1] // 16, size[0] // 16, 3), dtype=numpy.uint8)
        picture = Image.fromarray(small).resize(size, Image.BICUBIC)
        if mask:
            picture = picture.convert("L").point(lambda grey: 255 * (grey > 127))
        picture.save(folder / ("%04d.%s" % (i, ending)))


def folders(root: pathlib.Path, classes: int, count: int, size: "tuple[int, int]") -> None:
    for i in range(classes):
        pictures(root / ("class%d" % i), count, size)
