"""Pictures with masks and boxes, cut, resized and flipped together: masks and boxes equal torchvision's v2 functions given the same cuts,
pictures are within 1/255 in the mean; tv_tensors say what is what, and come back. Skipped without PyTorch or torchvision.
test-label: full"""
import io
import os
import sys
import tarfile
from array import array

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import MILLRACE, folder, run, skip  # noqa: E402

try:
    import torch
    import torchvision
    from torchvision import tv_tensors
    from torchvision.transforms import v2
    from torchvision.transforms.v2 import functional as F
except Exception as reason:
    skip(f"no PyTorch with torchvision ({reason})")

import subprocess  # noqa: E402

import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402

from millrace.numpy import Loader  # noqa: E402
from millrace.torch import DataLoader  # noqa: E402

torch.set_num_threads(1)
rng = np.random.default_rng(11)
N = 24


def encoded(array, kind):
    out = io.BytesIO()
    np.save(out, array) if kind == "npy" else Image.fromarray(array).save(out, kind, **({"quality": 97} if kind == "jpeg" else {}))
    return out.getvalue()


def member(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def write():
    samples = []
    path = os.path.join(folder, "shards")
    os.makedirs(path)
    with tarfile.open(os.path.join(path, "0.tar"), "w") as tar:
        for i in range(N):
            h, w = int(rng.integers(40, 160)), int(rng.integers(40, 160))
            smooth = np.asarray(Image.fromarray(rng.integers(0, 255, (9, 9, 3), dtype=np.uint8)).resize((w, h), Image.BICUBIC))
            corners = np.sort(rng.random((int(rng.integers(0, 5)), 2, 2)), axis=1).reshape(-1, 4) * [w, h, w, h]
            parts = {
                "jpg": encoded(smooth, "jpeg"),
                "mask.png": encoded(rng.integers(0, 9, (h, w), dtype=np.uint8), "png"),
                "instances.npy": encoded(rng.random((2, h, w)) < 0.5, "npy"),
                "depth.npy": encoded(rng.random((h, w)).astype(np.float32), "npy"),
                "boxes.npy": encoded(corners.astype(np.float32), "npy"),
                "exact.npy": encoded(corners, "npy"),
                "pixels.npy": encoded(corners.astype(np.int64), "npy"),
            }
            samples.append({k.removesuffix(".npy"): v for k, v in parts.items()})
            for ext, data in parts.items():
                member(tar, f"{i:04d}.{ext}", data)
    subprocess.run([MILLRACE, "-q", "scan", path], check=True, stdout=subprocess.DEVNULL)
    return path, samples


PATH, SAMPLES = write()
USES = {"jpg": tv_tensors.Image, "mask.png": tv_tensors.Mask, "instances": "mask", "depth": "mask", "boxes": tv_tensors.BoundingBoxes,
        "exact": "boxes", "pixels": "boxes"}  # fmt: skip


def source(i):
    """The sample as torchvision has it."""
    s = SAMPLES[i]
    picture = torch.from_numpy(np.array(Image.open(io.BytesIO(s["jpg"])))).permute(2, 0, 1)
    size = tuple(picture.shape[1:])
    out = {"jpg": tv_tensors.Image(picture), "mask.png": tv_tensors.Mask(torch.from_numpy(np.array(Image.open(io.BytesIO(s["mask.png"])))))}
    for name in ("instances", "depth"):
        out[name] = tv_tensors.Mask(torch.from_numpy(np.load(io.BytesIO(s[name]))))
    for name in ("boxes", "exact", "pixels"):
        out[name] = tv_tensors.BoundingBoxes(torch.from_numpy(np.load(io.BytesIO(s[name]))), format="XYXY", canvas_size=size)
    return out


def check(pictures):
    loader = Loader(PATH, 5, shuffle=True, seed=5, pictures=pictures, fields=USES)
    worst, flips, seen = 0.0, 0, 0
    for batch in loader:
        here = {i: source(int(i)) for i in batch.ids}
        sizes = array("I", [n for i in batch.ids for n in here[i]["jpg"].shape[1:]]).tobytes()
        plans = np.frombuffer(memoryview(loader._core.plans(0, array("Q", [int(i) for i in batch.ids]).tobytes(), sizes)), np.int32)
        for row, (i, plan) in enumerate(zip(batch.ids, plans.reshape(len(batch.ids), -1))):
            top, left, h, w, height, width, rtop, rleft, flip = plan[4:13].tolist()
            for name, value in here[i].items():
                want = value
                if pictures.get("train", True):
                    want = F.resized_crop(want, top, left, h, w, [height, width], antialias=True)
                else:
                    want = F.crop(F.resize(want, [height, width], antialias=True), rtop, rleft, 40, 44)
                want = F.horizontal_flip(want) if flip else want
                have = batch.fields[name][row]
                if name == "jpg":
                    worst = max(worst, float(np.abs(have.astype(np.float64) - want.permute(1, 2, 0).numpy() / 255.0).mean()) * 255)
                else:
                    assert have.dtype == want.numpy().dtype, name
                    assert np.array_equal(have, want.numpy()), (name, int(i), plan)
            flips += flip
            seen += 1
    assert seen == N and worst <= 1.0, worst
    return flips


def masks_and_boxes_equal_those_of_v2():
    for size in (40, 64, (31, 97)):
        assert 0 < check({"size": size}) < N
    assert check({"size": (40, 44), "resize": 48, "train": False}) == 0


def tv_tensors_come_back():
    transform = v2.Compose([v2.RandomResizedCrop(48, antialias=True), v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    fields = {k: v for k, v in USES.items() if not isinstance(v, str)}
    batch = next(iter(DataLoader(PATH, 6, transform=transform, fields=fields, seed=3)))
    assert type(batch["jpg"]) is tv_tensors.Image and batch["jpg"].shape == (6, 3, 48, 48)
    assert type(batch["mask.png"]) is tv_tensors.Mask and batch["mask.png"].shape == (6, 48, 48)
    assert all(type(b) is tv_tensors.BoundingBoxes and b.canvas_size == (48, 48) for b in batch["boxes"])


print(f"torch {torch.__version__}, torchvision {torchvision.__version__}")
run([masks_and_boxes_equal_those_of_v2, tv_tensors_come_back])
