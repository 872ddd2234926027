"""Preprocessing against Pillow and numpy: the library's results for crops, sizes, flips, element types and layouts are those of
independent code, and what it draws at random is the documented function of seed, epoch and sample."""
import ctypes
import math
import os
import subprocess
import sys

try:
    import numpy as np
    from PIL import Image
except ImportError as e:
    print(f"SKIP: {e}")
    sys.exit(77)

path = os.path.join(os.environ.get("MR_BINARY_DIR", "build"), "lib", "libmillrace.so")
if not os.path.exists(path):
    print("SKIP: this build has no shared library")
    sys.exit(77)
if "lib" in subprocess.run(["sh", "-c", f"ldd '{path}' | grep -E 'lib(asan|tsan|ubsan)'"], capture_output=True, text=True).stdout:
    print("SKIP: a sanitizer's library cannot be loaded by Python")
    sys.exit(77)
lib = ctypes.CDLL(path)

NONE, CENTER, RANDOM, RANDOM_RESIZED = range(4)
MASK = (1 << 64) - 1


class Params(ctypes.Structure):
    _fields_ = [("crop", ctypes.c_int), ("crop_height", ctypes.c_uint32), ("crop_width", ctypes.c_uint32),
                ("scale_min", ctypes.c_double), ("scale_max", ctypes.c_double), ("ratio_min", ctypes.c_double),
                ("ratio_max", ctypes.c_double), ("height", ctypes.c_uint32), ("width", ctypes.c_uint32), ("flip", ctypes.c_double),
                ("to_float", ctypes.c_bool), ("mean", ctypes.c_float * 4), ("stdev", ctypes.c_float * 4), ("planar", ctypes.c_bool),
                ("seed", ctypes.c_uint64), ("shorter_side", ctypes.c_uint32), ("last_crop", ctypes.c_int),
                ("last_height", ctypes.c_uint32), ("last_width", ctypes.c_uint32), ("rgb", ctypes.c_bool), ("fast", ctypes.c_bool),
                ("pad", ctypes.c_uint32 * 4), ("pad_if_needed", ctypes.c_bool), ("fill", ctypes.c_uint8 * 4),
                ("filter", ctypes.c_int), ("overshoot", ctypes.c_bool)]


class Sample(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("label", ctypes.c_int64), ("dtype", ctypes.c_char * 8),
                ("n_dims", ctypes.c_uint), ("dims", ctypes.c_uint64 * 8)]


lib.mr_preprocess_run.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.POINTER(Sample), ctypes.c_void_p,
                                  ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t), ctypes.c_void_p]
lib.mr_preprocess_free.argtypes = [ctypes.c_void_p]
lib.mr_preprocess_free.restype = None


def preprocess(image, epoch=0, sample=0, **keys):
    p = Params()
    lib.mr_preprocess_params_init(ctypes.byref(p))
    for key, value in keys.items():
        if key in ("mean", "stdev"):
            for i, v in enumerate(value):
                getattr(p, key)[i] = v
        else:
            setattr(p, key, value)
    error = ctypes.create_string_buffer(65536)
    handle = ctypes.c_void_p()
    assert lib.mr_preprocess_create(ctypes.byref(p), ctypes.byref(handle), error) == 0, error.raw[:200]
    image = np.ascontiguousarray(image)
    s = Sample(image.ctypes.data, image.nbytes, 0, b"u1", image.ndim, (ctypes.c_uint64 * 8)(*image.shape))
    out = np.zeros(4 * 4096 * 4096 // 16, np.uint8)
    n = ctypes.c_size_t()
    assert lib.mr_preprocess_run(handle, epoch, sample, ctypes.byref(s), out.ctypes.data, out.nbytes, ctypes.byref(n), error) == 0, error.raw[:300]
    lib.mr_preprocess_free(handle)
    return out[:n.value].view(np.float32 if p.to_float else np.uint8)


def resize(image, height, width):
    """Separable triangle filter in double."""
    def weights(n_in, n_out):
        scale = n_in / n_out
        support = max(scale, 1.0)
        middle = (np.arange(n_out) + 0.5)[:, None] * scale
        w = np.maximum(0, 1 - np.abs((np.arange(n_in) + 0.5)[None, :] - middle) / support)
        return w / w.sum(1, keepdims=True)
    return np.einsum("yi,xj,ijc->yxc", weights(image.shape[0], height), weights(image.shape[1], width), image.astype(float), optimize=True)


def picture(height, width, channels, seed):
    """Smooth and rough parts, as pictures have."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    base = 120 + 80 * np.sin(x / 17)[:, :, None] * np.cos(y / 23)[:, :, None] * np.ones(channels)
    return np.clip(base + rng.normal(0, 25, (height, width, channels)), 0, 255).astype(np.uint8)


def resizing_is_pillow_s():
    for k, (h, w, oh, ow) in enumerate([(375, 500, 224, 224), (100, 80, 160, 200), (224, 224, 37, 61), (64, 64, 64, 32), (300, 3, 20, 9)]):
        image = picture(h, w, 3, k)
        ours = preprocess(image, height=oh, width=ow).reshape(oh, ow, 3)
        pillow = np.asarray(Image.fromarray(image).resize((ow, oh), Image.BILINEAR))
        assert np.abs(ours.astype(int) - pillow.astype(int)).max() <= 1, (h, w, oh, ow)
        exact = resize(image, oh, ow)
        assert np.abs(ours - exact).max() < 0.502
        f = preprocess(image, height=oh, width=ow, to_float=True).reshape(oh, ow, 3)
        assert np.abs(f * 255.0 - exact).max() < 1e-3


def filters_are_pillow_s():
    """Pillow rounds and clips between its two passes, we do not: values differ by more than one only where both overshoot."""
    filters = [Image.BILINEAR, Image.BICUBIC, Image.NEAREST, Image.BOX, Image.HAMMING, Image.LANCZOS]
    for k, (h, w, oh, ow) in enumerate([(375, 500, 224, 224), (90, 80, 160, 201), (224, 224, 37, 61), (64, 64, 64, 32), (300, 3, 20, 9), (1, 1, 7, 5),
                                        (1, 300, 40, 2), (700, 900, 3, 3), (2, 2, 200, 100)]):  # fmt: skip
        image = picture(h, w, 3, k)
        for number, pillow in enumerate(filters):
            ours = preprocess(image, height=oh, width=ow, filter=number).reshape(oh, ow, 3).astype(int)
            theirs = np.asarray(Image.fromarray(image).resize((ow, oh), pillow)).astype(int)
            off = np.abs(ours - theirs)
            assert off.mean() <= 1 and (off > 1).mean() < 0.001, (h, w, oh, ow, number, off.max(), off.mean())
            if number == 2:
                assert off.max() == 0, (h, w, oh, ow)


def center_crop_flip_and_normalisation():
    mean, stdev = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    for channels in (1, 3, 4):
        image = picture(120, 90, channels, channels)
        part = image[120 // 2 - 50 : 120 // 2 + 50, (90 - 71) // 2 : (90 - 71) // 2 + 71]
        for size in ((100, 71), (48, 40)):
            want = part.astype(float) if size == (100, 71) else resize(part, *size)
            want = want[:, ::-1]
            m = np.array((mean + [0])[:channels])
            s = np.array((stdev + [1])[:channels])
            normal = ((want / 255 - m) / s).astype(np.float32)
            keys = dict(crop=CENTER, crop_height=100, crop_width=71, height=size[0], width=size[1], flip=1.0)
            planes = preprocess(image, to_float=True, planar=True, mean=mean, stdev=stdev, **keys).reshape(channels, *size)
            assert np.abs(planes - normal.transpose(2, 0, 1)).max() < 1e-4
            pixels = preprocess(image, to_float=True, mean=mean, stdev=stdev, **keys).reshape(*size, channels)
            assert np.array_equal(pixels.transpose(2, 0, 1), planes)
            bytes_ = preprocess(image, planar=True, **keys).reshape(channels, *size)
            assert np.abs(bytes_.transpose(1, 2, 0) - want).max() < 0.502


def mix(x):
    for _ in range(2):
        x ^= x >> 32
        x = x * 0xD6E8FEB86659FD93 & MASK
    return x ^ x >> 32


def draw(seed, epoch, sample, n):
    """Number n of a sample in an epoch, uniform from 0 to 1: stream 8 of the counter-based generator."""
    seed ^= mix(epoch + 1)
    k = mix(seed + 0x9E3779B97F4A7C15 * 9 & MASK)
    counter = sample * 64 + n & MASK
    bits = mix(mix(counter + k & MASK) ^ (k >> 1) ^ 0x2545F4914F6CDD1D)
    return (bits >> 11) * 2.0**-53


def part_of(seed, epoch, sample, height, width):
    """The part of a random size, as documented."""
    low, high = math.log(0.75), math.log(4 / 3)
    for i in range(10):
        u = [draw(seed, epoch, sample, 4 * i + 4 + j) for j in range(4)]
        area = height * width * (0.08 + 0.92 * u[0])
        ratio = math.exp(low + (high - low) * u[1])
        w, h = math.floor(math.sqrt(area * ratio) + 0.5), math.floor(math.sqrt(area / ratio) + 0.5)
        if 1 <= w <= width and 1 <= h <= height:
            return int(u[2] * (height - h + 1)), int(u[3] * (width - w + 1)), h, w
    raise AssertionError("ten draws that do not fit")


def random_parts_follow_from_seed_epoch_and_sample():
    image = picture(150, 200, 3, 9)
    for seed, epoch, sample in [(0, 0, 0), (1, 0, 5), (1, 1, 5), (123, 7, 10**9), (2**63, 3, 77)]:
        top, left, h, w = part_of(seed, epoch, sample, 150, 200)
        flip = draw(seed, epoch, sample, 0) < 0.5
        want = resize(image[top : top + h, left : left + w], 64, 64)
        want = want[:, ::-1] if flip else want
        have = preprocess(image, epoch, sample, crop=RANDOM_RESIZED, height=64, width=64, flip=0.5, seed=seed, to_float=True)
        assert np.abs(have.reshape(64, 64, 3) * 255.0 - want).max() < 1e-3, (seed, epoch, sample)
        top, left = int(draw(seed, epoch, sample, 2) * 51), int(draw(seed, epoch, sample, 3) * 101)
        have = preprocess(image, epoch, sample, crop=RANDOM, crop_height=100, crop_width=100, seed=seed)
        assert np.array_equal(have.reshape(100, 100, 3), image[top : top + 100, left : left + 100])


resizing_is_pillow_s()
filters_are_pillow_s()
center_crop_flip_and_normalisation()
random_parts_follow_from_seed_epoch_and_sample()
print("preprocessing: same as Pillow and numpy")
