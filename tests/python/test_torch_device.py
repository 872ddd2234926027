"""Pictures decoded on a device, with a decoder that stands for nvJPEG: the same batches as the CPU's, whatever the share, with states,
errors and abandoned iterations; and the share that finds its place. Skipped without PyTorch or torchvision."""
import gc
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import folder, plain_pictures, raises, run, skip  # noqa: E402

try:
    import torch
    import torchvision
    from torchvision import transforms as T
except Exception as reason:
    skip(f"no PyTorch with torchvision ({reason})")

import millrace  # noqa: E402
from millrace import _device  # noqa: E402
from millrace.torch import DataLoader  # noqa: E402

torch.set_num_threads(1)
ROOT = plain_pictures("pictures", "--files", "60", "--dims", "90x120x3", "--subfolders", "3")
NORMALISE = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
TRAIN = T.Compose([T.RandomResizedCrop(96), T.RandomHorizontalFlip(), T.ToTensor(), NORMALISE])  # a row has room for a file
CHOOSING = T.Compose([T.RandomResizedCrop(96), T.ToTensor()])
CHOOSING.transforms[0].interpolation = (T.InterpolationMode.BILINEAR, T.InterpolationMode.BICUBIC)  # as timm's "random"
decoded = []


def stand_in(data, device):
    decoded.append(len(data))
    return [torchvision.io.decode_jpeg(one, torchvision.io.ImageReadMode.RGB) for one in data]


def broken(data, device):
    raise RuntimeError("Error while decoding JPEG images")


REAL = _device.why_not
_device.decode_jpegs, _device.why_not = stand_in, lambda device: None
_device.Share.FIRST = 0.4


def loader(decode="cpu", root=ROOT, **more):
    options = dict(transform=TRAIN, seed=3, device="cpu", decode=decode, uint8_transfer=True, num_workers=2)
    return DataLoader(root, **{"batch_size": 8, **options, **more})


def same(one, two, within=1e-6):
    a, b = list(one), list(two)
    assert len(a) == len(b)
    for (x, y), (u, v) in zip(a, b):
        assert torch.equal(y, v) and x.shape == u.shape and x.stride() == u.stride() and x.dtype == u.dtype
        assert (x.float() - u.float()).abs().mean() <= within, (x.float() - u.float()).abs().mean()


def batches_are_the_cpus():
    """A value on the border of two bytes may fall to either side: one in thousands."""
    for transform in (
        TRAIN,
        T.Compose([T.Resize(110), T.CenterCrop(96), T.ToTensor()]),
        T.Compose([T.RandomResizedCrop(96, interpolation=T.InterpolationMode.BICUBIC), T.RandomHorizontalFlip(), T.ToTensor()]),
        CHOOSING,
        T.Compose([T.Resize((100, 96)), T.RandomHorizontalFlip(), T.PILToTensor()]),
        T.Compose([T.CenterCrop((120, 100)), T.RandomHorizontalFlip(), T.ToTensor()]),
        T.Compose([T.Resize(80), T.RandomCrop(88, padding=5), T.RandomHorizontalFlip(), T.ToTensor()]),
        T.Compose([T.CenterCrop((88, 90)), T.RandomHorizontalFlip(), T.ToTensor(), NORMALISE]),
    ):
        for last in (False, True):
            cpu = loader(transform=transform, channels_last=last)
            for decode in ("gpu", "hybrid"):
                there = loader(decode, transform=transform, channels_last=last)
                del decoded[:]
                for epoch in range(2):
                    cpu.set_epoch(epoch)
                    same(cpu, there, 0.02)
                rows = sum(decoded)
                assert rows == 120 if decode == "gpu" else 0 < rows < 120, (decode, rows)
                assert there.stats()["device_rows"] <= 8 and f"decode {decode}" in repr(there)


def exact_without_a_resize():
    transform = T.Compose([T.CenterCrop(80), T.RandomHorizontalFlip(), T.PILToTensor()])
    del decoded[:]
    same(loader(transform=transform), loader("gpu", transform=transform), 0)
    assert sum(decoded) == 60


def pictures_that_do_not_fit_are_the_cpus():
    """Files longer than a row, PNG files, CMYK: never at the device."""
    from PIL import Image

    small = T.Compose([T.RandomResizedCrop(16), T.ToTensor()])
    del decoded[:]
    same(loader(transform=small), loader("gpu", transform=small), 0.02)
    assert not decoded
    root = os.path.join(os.path.dirname(os.path.dirname(ROOT)), "odd")
    os.makedirs(os.path.join(root, "a"))
    colour = Image.merge("RGB", [Image.effect_noise((64, 48), s) for s in (30, 60, 90)])
    colour.save(f"{root}/a/plain.jpg")
    colour.save(f"{root}/a/plain.png")
    colour.save(f"{root}/a/png.jpg", format="PNG")
    colour.convert("CMYK").save(f"{root}/a/cmyk.jpg")
    colour.convert("L").save(f"{root}/a/grey.jpg")
    colour.save(f"{root}/a/progressive.jpg", progressive=True)
    del decoded[:]
    same(loader(root=root), loader("gpu", root=root), 2e-3)
    assert sum(decoded) == 3, decoded


def errors_name_the_file():
    bad = plain_pictures("bad", "--files", "20", "--dims", "90x120x3", "--subfolders", "2")
    victims = sorted(os.path.join(d, f) for d, _, fs in os.walk(bad) for f in fs)
    with open(victims[7], "r+b") as f:  # an end too early, and the end
        f.seek(700)
        f.write(b"\xff\xd9")
    _device.decode_jpegs = broken
    try:
        e = raises(millrace.DataError, os.path.basename(victims[7]), list, loader("gpu", bad, batch_size=5))
        assert "in sample 7 of" in str(e)
        there = loader("gpu", bad, batch_size=5, on_error="skip")
        import warnings

        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            sizes = [(len(x), len(y)) for x, y in there]
        assert sizes == [(5, 5), (4, 4), (5, 5), (5, 5)] and there.skipped == 1, (sizes, there.skipped)
        assert os.path.basename(victims[7]) in str(said[-1].message)
        same(loader(), loader("gpu"), 0)  # what the decoder refuses the CPU decodes
    finally:
        _device.decode_jpegs = stand_in
    with open(victims[8], "r+b") as f:
        f.truncate(2000)
    raises(millrace.DataError, os.path.basename(victims[7]), list, loader(root=bad))
    raises(millrace.DataError, os.path.basename(victims[8]), list, loader("gpu", bad, batch_size=5, sampler=[8, 9]))


def what_is_not_possible_is_said():
    raises(ValueError, "decode is 'cpu'", loader, "tpu")
    raises(NotImplementedError, "equally large", loader, "gpu", transform=T.Compose([T.Resize(30), T.ToTensor()]))
    raises(NotImplementedError, "bilinear and bicubic", loader, "gpu", transform=T.Compose([T.Resize((96, 96), T.InterpolationMode.BOX), T.ToTensor()]))
    _device.why_not, here = REAL, _device.why_not
    try:
        raises(NotImplementedError, "device='cuda'", loader, "hybrid")
        if not torch.cuda.is_available():
            raises(RuntimeError, "no CUDA device", loader, device="cuda")
    finally:
        _device.why_not = here


def states_and_abandoned_iterations():
    threads = threading.active_count()
    for stop in (1, 4, 8):
        one = loader("hybrid", shuffle=True, generator=torch.Generator().manual_seed(2))
        it = iter(one)
        for _ in range(stop):
            next(it)
        state, rest = one.state_dict(), list(it)
        two = loader("hybrid", shuffle=True, generator=torch.Generator().manual_seed(2))
        two.load_state_dict(state)
        have = list(two)
        assert len(have) == len(rest) == 8 - stop and all(torch.equal(a[1], b[1]) for a, b in zip(have, rest))
    for _ in range(20):
        it = iter(loader("hybrid"))
        next(it)
    try:
        for _ in loader("gpu"):
            raise KeyError
    except KeyError:
        pass
    del it, one, two
    gc.collect()
    assert threading.active_count() <= threads, threading.enumerate()
    kept = loader("hybrid")
    it = iter(kept)
    next(it)
    kept.close()  # with a thread at work
    del it
    gc.collect()
    assert threading.active_count() <= threads


def the_share_finds_its_place():
    """CPUs make 9 rows in the time in which the device makes 4: of 128 rows about 39 are the device's; fewer when nobody takes them."""
    share = _device.Share(128, 3, True)
    for _ in range(1000):
        cpu, device = (128 - share.rows) / 9, share.rows / 4
        share.add(max(0.0, cpu - device), device, 0.0)
    assert 31 <= share.rows <= 45, share.rows
    for _ in range(1000):
        share.add(5.0, 1.0, 9.0)
    assert share.rows == 128  # CPUs that are late are the limit, whatever else is slow
    for _ in range(60):
        share.add(0.0, 1.0, 9.0)
    assert share.rows == 0
    fixed = _device.Share(128, 3, False)
    for _ in range(100):
        assert not fixed.add(1.0, 0.0, 0.0)
    assert fixed.rows == 128


def kernel_makes_what_the_operators_make():
    """The kernel's own text, compiled for the CPU, with loops in place of a device's threads."""
    import ctypes
    import subprocess

    from millrace import _kernel

    shim = """
#include <math.h>
#define __device__
#define __global__
struct place { int x, y, z; };
static struct place blockIdx, threadIdx, blockDim = {1, 1, 1};
"""
    loops = """
extern "C" void all(unsigned char *out, const long long *pictures, const int *plans, const int *rows, int n, int height, int width, int planar)
{
    for (blockIdx.z = 0; blockIdx.z < n; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < height + 3; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < width + 5; blockIdx.x++)
                mr_resize(out, pictures, plans, rows, height, width, planar);
}
"""
    path = os.path.join(folder, "kernel")
    with open(path + ".cpp", "w") as f:
        f.write(shim + _kernel.SOURCE + loops)
    try:
        subprocess.run(["c++", "-O1", "-shared", "-fPIC", "-o", path + ".so", path + ".cpp"], check=True)
    except FileNotFoundError:
        print("note: no C++ compiler: the kernel is not compared")
        return
    library, used = ctypes.CDLL(path + ".so"), []

    class OnCpu:
        def __call__(self, out, pictures, plans, rows, size, planar):
            used.append(len(rows))
            library.all(*(ctypes.c_void_p(t.data_ptr()) for t in (out, pictures, plans, rows)), len(rows), *size, int(planar))

    for transform in (TRAIN, CHOOSING, T.Compose([T.Resize((100, 96)), T.PILToTensor()]), T.Compose([T.CenterCrop((120, 100)), T.RandomHorizontalFlip(), T.ToTensor()]),
                      T.Compose([T.Resize(80), T.RandomCrop(88, padding=5), T.RandomHorizontalFlip(), T.ToTensor()])):  # fmt: skip
        for last in (False, True):
            cpu, there = loader(transform=transform, channels_last=last), loader("hybrid", transform=transform, channels_last=last)
            there._mode.delivery.decoding.decoder._kernel = OnCpu()
            same(cpu, there, 0.02)
    assert sum(used) > 100


def fast_pictures_are_alike():
    large = plain_pictures("large", "--files", "24", "--dims", "400x500x3", "--subfolders", "2")
    transform = T.Compose([T.RandomResizedCrop(40), T.RandomHorizontalFlip(), T.ToTensor()])
    exact, fast = loader(root=large, transform=transform), loader(root=large, transform=transform, fast=True)
    for (x, _), (u, _) in zip(exact, fast):
        difference = (x - u).abs().mean().item() * 255
        assert 0 < difference < 4, difference
    same(loader(transform=TRAIN, fast=True), loader(transform=TRAIN), 0)  # nothing is reduced to a half


run([
    batches_are_the_cpus, exact_without_a_resize, pictures_that_do_not_fit_are_the_cpus, errors_name_the_file,
    what_is_not_possible_is_said, states_and_abandoned_iterations, the_share_finds_its_place,
    kernel_makes_what_the_operators_make, fast_pictures_are_alike,
])  # fmt: skip
