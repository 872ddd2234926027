"""Files of the array formats go both ways: what we write opens in numpy, zipfile and h5py with equal content, and what they
write opens in ours. Content of sample i and its label are recomputed from our reader, so both readers must agree; the reader
itself is checked against numpy's own files."""
import io
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile

try:
    import h5py
    import numpy as np
except ImportError as e:
    print("SKIP: %s" % e)
    sys.exit(77)

TOOL = os.path.join(os.environ.get("MR_BINARY_DIR", "build"), "tests", "test_format_array_cli")
if not os.path.exists(TOOL):
    print("SKIP: %s is not built" % TOOL)
    sys.exit(77)

DTYPES = "u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8 b1 c8 c16".split()


def dump(path, *args):
    """Our reader's view of a file: a list of (array, label)."""
    r = subprocess.run([TOOL, "dump", path, *args], capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(r.stderr)
    out = []
    for line in r.stdout.splitlines():
        dtype, shape, label, data = line.split(" ")
        shape = tuple(int(x) for x in shape[1:-1].split(",") if x)
        array = np.frombuffer(bytes.fromhex(data), "<" + dtype).reshape(shape)
        out.append((array, None if label == "none" else int(label)))
    return out


def write(fmt, path, samples, dtype, dims, *args):
    subprocess.run([TOOL, "write", fmt, path, str(samples), dtype, dims, *args], check=True)


class Interop(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.dir.cleanup()

    def path(self, name):
        return os.path.join(self.dir.name, name)

    def same(self, ours, theirs, labels=None):
        self.assertEqual(len(ours), len(theirs))
        for i, (array, label) in enumerate(ours):
            want = np.ascontiguousarray(theirs[i])
            want = want.astype(want.dtype.newbyteorder("<")).reshape(np.shape(theirs[i]))
            self.assertEqual(array.dtype, want.dtype)
            self.assertEqual(array.shape, want.shape)
            self.assertEqual(array.tobytes(), want.tobytes())
            if labels is not None:
                self.assertEqual(label, int(labels[i]))

    # ---- ours to theirs

    def test_numpy_reads_our_npy(self):
        for dtype in DTYPES:
            for n, dims in ((1, "3x4"), (5, "3x4"), (3, "scalar"), (0, "2"), (2, "0x3")):
                p = self.path("a.npy")
                write("npy", p, n, dtype, dims)
                theirs = np.load(p)
                self.same(dump(p, "rows") if n != 1 else dump(p), theirs if n != 1 else [theirs])

    def test_numpy_and_zipfile_read_our_npz(self):
        for dtype in DTYPES:
            for opts in ([], ["deflate"]):
                for n, dims in ((1, "3x4"), (5, "3x4"), (3, "scalar"), (1, "0")):
                    p = self.path("a.npz")
                    write("npz", p, n, dtype, dims, *opts)
                    with np.load(p) as z:
                        self.same(dump(p), z["x"], z["y"])
                        self.assertEqual(z["y"].tolist(), [3 * i - 4 for i in range(n)])
                    with zipfile.ZipFile(p) as z:
                        self.assertIsNone(z.testzip())

    def test_numpy_reads_our_npz_of_different_sizes(self):
        for opts in ([], ["deflate"]):
            p = self.path("v.npz")
            write("npz", p, 12, "f4", "0", "vary", *opts)
            with np.load(p) as z:
                theirs = [z["x_%06d" % i] for i in range(12)]
                self.same(dump(p), theirs, z["y"])
                self.assertEqual([len(t) for t in theirs], [(i * 37 + 5) % 700 for i in range(12)])

    def test_h5py_reads_our_hdf5(self):
        shapes = (("4x5", []), ("4x5", ["deflate"]), ("6x7", ["chunk=4x3"]), ("6x7", ["chunk=2x4x3", "deflate"]),
                  ("6x7", ["chunk=2x6x7"]), ("scalar", []), ("0", []))
        for dtype in DTYPES:
            for dims, opts in shapes if dtype in ("u1", "f4") else shapes[:2]:
                p = self.path("a.h5")
                write("hdf5", p, 5, dtype, dims, *opts)
                with h5py.File(p, "r") as f:
                    self.same(dump(p), f["records"][...], f["labels"][...])

    def test_h5py_reads_our_hdf5_of_many_chunks(self):
        p = self.path("many.h5")
        write("hdf5", p, 4000, "u1", "9", "chunk=4")
        with h5py.File(p, "r") as f:
            self.assertEqual(f["records"].chunks, (1, 4))
            self.same(dump(p), f["records"][...], f["labels"][...])

    # ---- theirs to ours

    def test_we_read_numpys_npy(self):
        rng = np.random.default_rng(1)
        for dtype in [o + d for d in DTYPES for o in "<>"]:
            for order in "CF":
                a = np.array(rng.integers(0, 2, (4, 3, 5)), dtype=dtype, order=order)
                p = self.path("a.npy")
                np.save(p, a)
                self.same(dump(p), [a])
                self.same(dump(p, "rows"), a)
        for version in ((1, 0), (2, 0), (3, 0)):
            with open(self.path("v.npy"), "wb") as f:
                np.lib.format.write_array(f, a, version)
            self.same(dump(self.path("v.npy")), [a])
        np.save(self.path("s.npy"), np.float32(2.5))
        self.same(dump(self.path("s.npy")), [np.float32(2.5)])
        for bad in (np.array([{}], dtype=object), np.zeros(2, "i4,f4"), np.array(["text"])):
            np.save(self.path("bad.npy"), bad)
            with self.assertRaises(RuntimeError):
                dump(self.path("bad.npy"))

    def test_we_read_numpys_npz(self):
        a = np.arange(60, dtype=">i4").reshape(5, 3, 4)
        for save in (np.savez, np.savez_compressed):
            p = self.path("a.npz")
            save(p, x=a, y=np.arange(5, dtype="u1"))
            self.same(dump(p), a, range(5))
            save(p, a)
            self.same(dump(p), [a])
            self.same(dump(p, "rows"), a)
            save(p, other=a[:1, :1], images=np.asfortranarray(a), label=np.arange(5) - 2)
            self.same(dump(p), a, np.arange(5) - 2)
            # DLIO puts the samples of a file on the last axis
            save(p, x=np.moveaxis(a, 0, 2), y=[7] * 5)
            self.same(dump(p), a, [7] * 5)
            save(p, x=a[:, :, :1], y=[3])
            self.same(dump(p), [a[:, :, :1]], [3])

    def test_we_read_zipfiles_of_every_kind(self):
        a = np.arange(500, dtype="<f8")
        npy = io.BytesIO()
        np.save(npy, a)

        class Pipe(io.RawIOBase):
            def __init__(self):
                self.data = b""

            def writable(self):
                return True

            def write(self, b):
                self.data += bytes(b)
                return len(b)

        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            pipe = Pipe()
            with zipfile.ZipFile(pipe, "w", method) as z:
                z.comment = b"a comment"
                z.writestr("readme.txt", "text")
                z.writestr("arr_0.npy", npy.getvalue())
            for prefix in (b"", b"#!/bin/sh\n"):
                with open(self.path("d.npz"), "wb") as f:
                    f.write(prefix + pipe.data)
                self.same(dump(self.path("d.npz")), [a])
        with zipfile.ZipFile(self.path("b.npz"), "w", zipfile.ZIP_BZIP2) as z:
            z.writestr("x.npy", npy.getvalue())
        with self.assertRaisesRegex(RuntimeError, "compression method 12"):
            dump(self.path("b.npz"))

    def test_we_read_h5pys_files(self):
        rng = np.random.default_rng(2)
        kinds = (
            {}, {"chunks": (1, 6, 7)}, {"chunks": (2, 6, 7)}, {"chunks": (1, 4, 3)},
            {"chunks": (2, 4, 3), "compression": "gzip"},
            {"chunks": (1, 6, 7), "compression": "gzip", "shuffle": True},
            {"chunks": (3, 6, 7), "compression": "gzip", "shuffle": True, "fletcher32": True},
            {"chunks": (40, 6, 7), "compression": "gzip"}, {"chunks": (40, 6, 7)},
            {"maxshape": (None, 6, 7), "chunks": (1, 6, 7)},
            {"maxshape": (None, 6, 7), "chunks": (1, 2, 7), "compression": "gzip"},
            {"maxshape": (50, None, 7), "chunks": (1, 4, 7)},
            {"maxshape": (None, None, 7), "chunks": (1, 4, 7), "compression": "gzip"},
            {"maxshape": (60, 6, 7), "chunks": (1, 6, 7)},
        )
        versions = ("earliest", "v108", "v110", "latest")
        for k, kind in enumerate(kinds):
            for libver in versions:
                dtype = ("u1", ">i2", "<f4", ">f8", "?", "<c8", ">c16")[(k + versions.index(libver)) % 7]
                a = rng.integers(0, 100, (40, 6, 7)).astype(dtype)
                p = self.path("a.h5")
                with h5py.File(p, "w", libver=libver) as f:
                    f.create_dataset("records", data=a, **kind)
                    f.create_dataset("labels", data=np.arange(40) - 5, chunks=(7,), compression="gzip")
                    f["text"] = "beside the samples"
                with self.subTest(kind=kind, libver=libver, dtype=dtype):
                    self.same(dump(p), a, np.arange(40) - 5)

    def test_we_read_large_chunk_indexes(self):
        for libver in ("earliest", "latest"):
            for maxshape in ((4000, 3), (None, 3), (None, None)):
                p = self.path("i.h5")
                a = np.arange(12000, dtype="<u4").reshape(4000, 3)
                with h5py.File(p, "w", libver=libver) as f:
                    f.create_dataset("x", data=a, chunks=(1, 3), maxshape=maxshape)
                with self.subTest(libver=libver, maxshape=maxshape):
                    self.same(dump(p), a)

    def test_we_find_datasets_in_groups_and_holes_in_datasets(self):
        for libver in ("earliest", "latest"):
            p = self.path("g.h5")
            with h5py.File(p, "w", libver=libver, userblock_size=1024) as f:
                for i in range(300):
                    f["many/small%d" % i] = np.arange(2)
                d = f.create_dataset("deep/er/images", (6, 4), ">i4", chunks=(1, 3), fillvalue=-7)
                d[2, 3] = 5
                f.create_dataset("deep/never", (2,), "f4", fillvalue=1.5)
                f["deep/label"] = np.arange(6, dtype="i1")
                f["soft"] = h5py.SoftLink("/nowhere")
                f.attrs["note"] = "x" * 100
                a = d[...]
            self.same(dump(p), a, np.arange(6))

    def test_refusals_say_why(self):
        p = self.path("r.h5")
        for make, reason in (
            (lambda f: f.create_dataset("records", data=np.zeros((4, 4)), chunks=(1, 4), compression="lzf"), "lzf"),
            (lambda f: f.create_dataset("records", data=["a", "b"]), "variable-length"),
            (lambda f: f.create_dataset("records", data=np.zeros(3, "i4,f4")), "compound"),
            (lambda f: f.create_group("records"), "no dataset"),
        ):
            with h5py.File(p, "w") as f:
                make(f)
            with self.assertRaisesRegex(RuntimeError, reason):
                dump(p)
        layout = h5py.VirtualLayout(shape=(2, 3), dtype="i4")
        with h5py.File(p, "w", libver="latest") as f:
            f.create_virtual_dataset("records", layout)
        with self.assertRaisesRegex(RuntimeError, "virtual"):
            dump(p)


if __name__ == "__main__":
    unittest.main()
