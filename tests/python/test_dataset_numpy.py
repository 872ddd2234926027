"""Data sets of ours in other people's tools, and the other way round: numpy reads generated files, labels and content follow from the
documented functions, the manifest is what doc/reference/manifest.md says, and arrays written by numpy are scanned and read back."""
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("SKIP: numpy is missing")
    sys.exit(77)

MILLRACE = os.environ.get("MILLRACE", "millrace")
M64 = (1 << 64) - 1


def run(*args, status=0):
    p = subprocess.run([MILLRACE, *args], capture_output=True)
    assert p.returncode == status, (args, p.returncode, p.stderr.decode())
    return p.stdout


def mix64(x):
    for _ in range(2):
        x ^= x >> 32
        x = x * 0xD6E8FEB86659FD93 & M64
    return x ^ x >> 32


def rng_at(seed, stream, counter):
    k = mix64((seed + 0x9E3779B97F4A7C15 * (stream + 1)) & M64)
    return mix64(mix64((counter + k) & M64) ^ (k >> 1) ^ 0x2545F4914F6CDD1D)


def label(seed, sample, classes):
    return rng_at(seed, 4, sample) * classes >> 64


def column(manifest, entry, i, j):
    _, enc, width, count, base, step, offset, size = struct.unpack_from("<IBBxxQQqQQ", manifest, entry)
    if enc == 1:
        return base
    if enc == 2:
        return base + step * j
    assert enc == 3
    return base + int.from_bytes(manifest[offset + i * width : offset + (i + 1) * width], "little")


def check_manifest(path, samples, files):
    data = open(path, "rb").read()
    assert data[:8] == b"\x89MRM\r\n\x1a\n"
    version, endian, length, n, f = struct.unpack_from("<IIQQQ", data, 8)
    assert (version, endian, length, n, f) == (1, 0x01020304, len(data), samples, files)
    sections, per_file = struct.unpack_from("<I4xQ", data, 184)
    assert per_file == samples // files
    entry = {struct.unpack_from("<I", data, 256 + 64 * i)[0]: 256 + 64 * i for i in range(sections)}
    sizes = [column(data, entry[3], i, i % per_file) for i in range(samples)]
    offsets = [column(data, entry[2], i, i % per_file) for i in range(samples)]
    return offsets, sizes


def numpy_reads_a_generated_set(folder):
    run("gen", folder, "--format", "npy", "--files", "40", "--size", "8000", "--size-stdev", "2000", "--dtype", "float32",
        "--labels", "1000", "--seed", "9")
    offsets, sizes = check_manifest(f"{folder}/train/manifest.mrm", 40, 40)
    for i in range(40):
        name = f"{folder}/train/img_{i:02d}_of_40.npy"
        a = np.load(name)
        assert a.dtype == np.float32 and a.nbytes == sizes[i]
        raw = open(name, "rb").read()
        assert raw[offsets[i] : offsets[i] + sizes[i]] == a.tobytes() == run("cat", folder, str(i))
        assert json.loads(run("show", folder, str(i), "--json"))["label"] == label(9, i, 1000)
    assert abs(np.mean(sizes) / 8000 - 1) < 0.01 and abs(np.std(sizes) / 2000 - 1) < 0.01, (np.mean(sizes), np.std(sizes))
    assert len(set(sizes)) > 20


def numpy_reads_shapes(folder):
    run("gen", folder, "--format", "npz", "--files", "2", "--samples-per-file", "3", "--dims", "6x5x2", "--dtype", "int16")
    z = np.load(f"{folder}/train/img_0_of_2.npz")
    a = z["x"]
    assert a.dtype == np.int16 and a.size == 180, (a.dtype, a.shape)
    meta = json.loads(run("cat", folder, "1", "--json"))
    assert meta["dims"] == [6, 5, 2] and meta["dtype"] == "i2", meta


def compressibility_is_what_was_asked(folder):
    import zlib

    run("gen", folder, "--format", "raw", "--files", "1", "--size", "1MiB", "--compressibility", "30")
    data = open(f"{folder}/train/img_0_of_1.raw", "rb").read()
    assert 0.66 < len(zlib.compress(data, 1)) / len(data) < 0.76


def arrays_of_numpy_are_scanned(folder):
    os.mkdir(folder)
    want = {}
    rng = np.random.default_rng(1)
    for i, (order, dtype) in enumerate([("C", "<f4"), ("F", "<f8"), ("C", ">i2"), ("C", "|u1")]):
        a = np.asarray(rng.integers(0, 100, (7, 4, 3)), dtype=dtype, order=order)
        np.save(f"{folder}/a{i}.npy", a)
        want[i] = a
    out = json.loads(run("scan", folder, "--json"))
    assert out["files"] == 4 and out["samples"] == 4
    for i, a in want.items():
        got = np.frombuffer(run("cat", folder, str(i)), dtype=a.dtype.newbyteorder("<")).reshape(a.shape)
        assert np.array_equal(got, a), i
    out = json.loads(run("scan", folder, "--rows", "--json"))
    assert out["samples"] == 28
    got = np.frombuffer(run("cat", folder, "9"), dtype="<f8").reshape(4, 3)
    assert np.array_equal(got, want[1][2])


with tempfile.TemporaryDirectory() as tmp:
    numpy_reads_a_generated_set(tmp + "/a")
    numpy_reads_shapes(tmp + "/b")
    compressibility_is_what_was_asked(tmp + "/c")
    arrays_of_numpy_are_scanned(tmp + "/d")
print("passed")
