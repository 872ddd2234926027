"""Makes the seed corpora of fuzz_npy, fuzz_npz, fuzz_hdf5 and fuzz_arraylayout with numpy and h5py: small files that reach
every branch of the parsers. Run: tests/python/run tests/fuzz/make_array_corpus.py (writes below tests/fuzz/corpus)."""
import io
import os
import struct
import zipfile

import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


def put(parser, name, data):
    folder = os.path.join(HERE, "corpus", parser)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data)


def npy(array, version=None):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version)
    return out.getvalue()


def npz(compressed=False, **arrays):
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **arrays)
    return out.getvalue()


class Pipe(io.RawIOBase):
    """A sink that cannot seek, so that zipfile writes data descriptors."""

    def __init__(self):
        self.data = b""

    def writable(self):
        return True

    def write(self, b):
        self.data += bytes(b)
        return len(b)


def hdf5(libver, **kw):
    out = io.BytesIO()
    extra = kw.pop("links", 0)
    rows = kw.pop("rows", 5)
    dtype = kw.pop("dtype", "<f4")
    shape = (rows,) + kw.pop("shape", (3, 2))
    with h5py.File(out, "w", libver=libver) as f:
        f.create_dataset("records", data=np.arange(int(np.prod(shape))).reshape(shape).astype(dtype), **kw)
        f["labels"] = np.arange(rows)
        for i in range(extra):
            f.create_group("group%02d" % i)
    return out.getvalue()


def desc(dtype, flags, rows, dims):
    return struct.pack("<BBBBQ", dtype, flags, len(dims), 0, rows) + b"".join(struct.pack("<Q", d) for d in dims)


def layout_case(fmt, flags, layout, offset, length, aux, raw):
    return struct.pack("<BBBHHB", fmt, flags, len(layout), offset, length, aux) + layout + raw


a = np.arange(12, dtype="<f4").reshape(3, 4)
put("npy", "c_order", npy(a))
put("npy", "fortran_big_endian", npy(np.asfortranarray(a.astype(">f8"))))
put("npy", "version3", npy(a.astype("c8"), (3, 0)))
put("npy", "scalar", npy(np.int8(3)))
put("npy", "empty", npy(np.zeros((0, 2), "?")))
put("npz", "stored", npz(x=a, y=np.arange(3)))
put("npz", "deflated_rows", npz(True, x=a, y=np.arange(3)))
put("npz", "deflated_one", npz(True, arr_0=a))
put("npz", "last_axis", npz(x=np.zeros((2, 2, 3), "u1"), y=np.zeros(3, "i8")))
put("npz", "numbered", npz(x_000000=np.arange(3), x_000001=np.arange(5), y=np.arange(2)))
pipe = Pipe()
with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as z:
    z.comment = b"comment"
    z.writestr("data.npy", npy(a))
put("npz", "descriptor", b"prefix" + pipe.data)
put("hdf5", "contiguous", hdf5("latest"))
put("hdf5", "btree1", hdf5("earliest", shape=(), chunks=(2,), compression="gzip"))
put("hdf5", "single", hdf5("latest", chunks=(5, 3, 2), compression="gzip", shuffle=True, fletcher32=True))
put("hdf5", "fixed_array", hdf5("latest", chunks=(1, 3, 2)))
put("hdf5", "fixed_array_deflate", hdf5("latest", chunks=(1, 2, 2), compression="gzip", dtype=">i2"))
put("hdf5", "extensible", hdf5("latest", chunks=(1, 3, 2), maxshape=(None, 3, 2), rows=30, dtype="u1"))
put("hdf5", "btree2", hdf5("latest", chunks=(1, 3, 2), maxshape=(None, None, 2)))
put("hdf5", "many_links", hdf5("latest", links=12, rows=1))
put("hdf5", "complex", hdf5("v108", dtype="c8", rows=2))
put("arraylayout", "npy", layout_case(0, 0, b"\1" + desc(9, 2, 0, [2, 3]), 0, 24, 0, bytes(24)))
put("arraylayout", "npy_rows", layout_case(0, 0, b"\1" + desc(9, 6, 2, [3]), 0, 12, 0, npy(np.asfortranarray(a[:2, :3]))))
npz_head = struct.pack("<BBBBIIQQ", 1, 0, 0, 0, 30, 128, 0, 0)
put("arraylayout", "npz", layout_case(1, 1, npz_head + desc(0, 16, 0, [0]), 158, 30, 0, bytes(200)))
h5_head = bytes([1, 2, 1, 2, 12, 0, 0, 0]) + bytes(16) + struct.pack("<HHI", 2, 0, 1) + struct.pack("<QQ", 1, 2)
put("arraylayout", "hdf5_map",
    layout_case(2, 0, h5_head + desc(0, 4, 1, [3]) + struct.pack("<Q", 2) + struct.pack("<QIQI", 10, 2, 20, 2), 0, 0, 0, bytes(8)))
