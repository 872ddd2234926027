"""Files written by us open in Python's own modules with equal content, and files written by those open in ours.

The C side is the tool mode of test_format_core. TensorFlow takes part when it can be imported.
"""
import csv
import gzip
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest

TOOL = os.path.join(os.environ.get("MR_BINARY_DIR", "build"), "tests", "test_format_core")


def read(path):
    with open(path, "rb") as f:
        return f.read()


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)


def tool(*args):
    return subprocess.run([TOOL, *map(str, args)], capture_output=True, text=True)


def dump(fmt, path):
    r = tool("dump", fmt, path)
    assert r.returncode == 0, r.stderr
    out = []
    for line in r.stdout.splitlines():
        label, dtype, dims, data = (line.split(" ") + [""])[:4]
        out.append((None if label.startswith("none:") else int(label), dtype, dims, bytes.fromhex(data)))
    return out


def payloads(path, n, size):
    """What the tool writes, as another format holds it: indexed binary is nothing but the payloads."""
    plain = path + ".plain"
    assert tool("write", "indexed_binary", plain, n, size).returncode == 0
    data = read(plain)
    return [data[i * size:(i + 1) * size] for i in range(n)]


LABELS = [(-7 if i == 5 else i * 37 % 1000) for i in range(64)]

CRC_TABLE = []
for i in range(256):
    c = i
    for _ in range(8):
        c = (c >> 1) ^ 0x82F63B78 if c & 1 else c >> 1
    CRC_TABLE.append(c)


def masked_crc(data):
    c = 0xFFFFFFFF
    for b in data:
        c = CRC_TABLE[(c ^ b) & 255] ^ (c >> 8)
    c ^= 0xFFFFFFFF
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data):
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked_crc(head)) + data + struct.pack("<I", masked_crc(data))


def records(blob):
    at = 0
    while at < len(blob):
        (n,) = struct.unpack_from("<Q", blob, at)
        assert struct.unpack_from("<I", blob, at + 8)[0] == masked_crc(blob[at:at + 8])
        data = blob[at + 12:at + 12 + n]
        assert struct.unpack_from("<I", blob, at + 12 + n)[0] == masked_crc(data)
        yield data
        at += n + 16


class Interop(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)

    def path(self, name):
        return os.path.join(self.dir.name, name)

    def write(self, fmt, name, n, size, *more):
        r = tool("write", fmt, self.path(name), n, size, *more)
        self.assertEqual(r.returncode, 0, r.stderr)
        return self.path(name)

    # ---- ours, read by Python ----

    def test_tar_written_by_us(self):
        want = payloads(self.path("a"), 8, 700)
        for name, more in (("f.tar", ()), ("f.tar.gz", ("gzip",))):
            with tarfile.open(self.write("tar", name, 8, 700, *more)) as t:
                members = t.getmembers()
                self.assertEqual([m.name for m in members[:2]], ["000001000.bin", "000001000.cls"])
                data = [t.extractfile(m).read() for m in members]
                self.assertEqual(data[0::2], want)
                self.assertEqual([int(d) for d in data[1::2]], LABELS[:8])

    def test_csv_written_by_us(self):
        want = payloads(self.path("a"), 8, 300)
        for name, opener, more in (("f.csv", open, ()), ("f.csv.gz", gzip.open, ("gzip",))):
            with opener(self.write("csv", name, 8, 300, *more), "rt", newline="") as f:
                rows = list(csv.reader(f))
            self.assertEqual(rows[0][:3], ["label", "x0", "x1"])
            self.assertEqual([int(r[0]) for r in rows[1:]], LABELS[:8])
            self.assertEqual([bytes(map(int, r[1:])) for r in rows[1:]], want)

    def test_json_written_by_us(self):
        want = payloads(self.path("a"), 8, 300)
        with open(self.write("json", "f.json", 8, 300)) as f:
            rows = json.load(f)
        with open(self.write("jsonl", "f.jsonl", 8, 300)) as f:
            self.assertEqual(rows, [json.loads(line) for line in f])
        self.assertEqual([r["label"] for r in rows], LABELS[:8])
        self.assertEqual([bytes(r["x"]) for r in rows], want)

    def test_tfrecord_written_by_us(self):
        want = payloads(self.path("a"), 8, 5000)
        plain = read(self.write("tfrecord", "f.tfrecord", 8, 5000))
        packed = gzip.decompress(read(self.write("tfrecord", "f.tfrecord.gz", 8, 5000, "gzip")))
        self.assertEqual(plain, packed)
        got = list(records(plain))
        self.assertEqual([g[-5000:] for g in got], want)
        index = [tuple(map(int, line.split())) for line in read(self.path("f.tfrecord.idx")).splitlines()]
        self.assertEqual([list(records(plain[o:o + n]))[0] for o, n in index], got)

    def test_indexed_binary_written_by_us(self):
        path = self.write("indexed_binary", "f", 8, 700)
        off = struct.unpack("<8Q", read(path + ".off.idx"))
        size = struct.unpack("<8Q", read(path + ".sz.idx"))
        self.assertEqual(list(off), [i * 700 for i in range(8)])
        self.assertEqual(list(size), [700] * 8)

    # ---- Python's, read by us ----

    def test_tar_written_by_python(self):
        deep = "d\u00e9/" * 60
        for fmt in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            for mode in ("w", "w:gz"):
                path = self.path("p.tar" + (".gz" if ":" in mode else ""))
                with tarfile.open(path, mode, format=fmt) as t:
                    def add(name, data):
                        info = tarfile.TarInfo(name)
                        info.size = len(data)
                        t.addfile(info, io.BytesIO(data))
                    add("x/0.jpg", b"image zero")
                    add("x/0.cls", b"12")
                    add("x/1.json", b'{"label": 5}')
                    add("x/1.npy", b"array one")
                    if fmt != tarfile.USTAR_FORMAT:
                        add(deep + "2.bin", b"deep")
                want = [(12, "u1", "10", b"image zero"), (5, "u1", "9", b"array one")]
                if fmt != tarfile.USTAR_FORMAT:
                    want.append((None, "u1", "4", b"deep"))
                self.assertEqual(dump("tar", path), want)

    def test_csv_written_by_python(self):
        rows = [[i, i * 3, -i] for i in range(20)]
        for dialect in ("excel", "unix"):
            with open(self.path("p.csv"), "w", newline="") as f:
                w = csv.writer(f, dialect=dialect)
                w.writerow(["a", "label", "b"])
                w.writerows(rows)
            self.assertEqual(dump("csv", self.path("p.csv")),
                             [(r[1], "i8", "2", struct.pack("<2q", r[0], r[2])) for r in rows])
        floats = [[0.1, 1e300, -2.5e-310], [1 / 3, 1e16 + 1, -0.0]]
        with open(self.path("p.csv"), "w", newline="") as f:
            csv.writer(f).writerows(floats)
        self.assertEqual(dump("csv", self.path("p.csv")), [(None, "f8", "3", struct.pack("<3d", *r)) for r in floats])
        text = [["bob", 'says "hi"\nthere'], ["ann", "x,y"]]
        with open(self.path("p.csv"), "w", newline="") as f:
            csv.writer(f).writerows(text)
        self.assertEqual([list(csv.reader(io.StringIO(d.decode(), newline="")))[0] for _, _, _, d in dump("csv", self.path("p.csv"))], text)

    def test_json_written_by_python(self):
        rows = [{"label": i, "x": [[i, 2.5], [1 / 3, 1e-300]]} for i in range(5)]
        want = [(i, "f8", "2x2", struct.pack("<4d", i, 2.5, 1 / 3, 1e-300)) for i in range(5)]
        for indent in (None, 1):
            with open(self.path("p.json"), "w") as f:
                json.dump(rows, f, indent=indent)
            self.assertEqual(dump("json", self.path("p.json")), want)
        with gzip.open(self.path("p.jsonl.gz"), "wt") as f:
            for r in rows:
                f.write(json.dumps(r) + "\n")
        self.assertEqual(dump("jsonl", self.path("p.jsonl.gz")), want)
        texts = [{"text": "\u00e9\U0001f600 \"q\" \\", "n": None}, {"text": ""}]
        with open(self.path("p.jsonl"), "w") as f:
            f.write("\n".join(json.dumps(t) for t in texts))
        self.assertEqual([json.loads(d) for _, _, _, d in dump("jsonl", self.path("p.jsonl"))], texts)

    def test_tfrecord_written_by_python(self):
        blobs = [b"no example", b"", bytes(range(256)) * 50]
        with open(self.path("p.tfrecord"), "wb") as f:
            f.write(b"".join(map(record, blobs)))
        self.assertEqual([d for _, _, _, d in dump("tfrecord", self.path("p.tfrecord"))], blobs)
        # Two gzip members, as a restarted writer leaves them.
        with open(self.path("p.tfrecord.gz"), "wb") as f:
            f.write(gzip.compress(record(blobs[0])) + gzip.compress(record(blobs[2])))
        self.assertEqual([d for _, _, _, d in dump("tfrecord", self.path("p.tfrecord.gz"))], [blobs[0], blobs[2]])

    def test_indexed_binary_written_by_python(self):
        parts = [b"one", b"", b"three" * 100]
        at, off = 0, []
        for p in parts:
            off.append(at)
            at += len(p)
        put(self.path("p"), b"".join(parts))
        put(self.path("p.off.idx"), struct.pack("<3Q", *off))
        put(self.path("p.sz.idx"), struct.pack("<3Q", *map(len, parts)))
        self.assertEqual([d for _, _, _, d in dump("indexed_binary", self.path("p"))], parts)

    def test_damaged_files_end_with_exit_4(self):
        path = self.write("tfrecord", "f.tfrecord", 3, 500)
        os.truncate(path, 900)
        os.unlink(path + ".idx")
        r = tool("dump", "tfrecord", path)
        self.assertEqual(r.returncode, 4)
        self.assertIn("unexpected end of file", r.stderr)

    def test_tensorflow_both_ways(self):
        try:
            import tensorflow as tf
        except ImportError:
            self.skipTest("tensorflow is not installed")
        want = payloads(self.path("a"), 8, 500)
        for name, kind, more in (("f.tfrecord", "", ()), ("f.tfrecord.gz", "GZIP", ("gzip",))):
            path = self.write("tfrecord", name, 8, 500, *more)
            spec = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64),
                    "size": tf.io.FixedLenFeature([], tf.int64)}
            got = [tf.io.parse_single_example(r, spec) for r in tf.data.TFRecordDataset(path, compression_type=kind)]
            self.assertEqual([g["image"].numpy() for g in got], want)
            self.assertEqual([int(g["label"]) for g in got], LABELS[:8])
            self.assertTrue(all(int(g["size"]) == 500 for g in got))
        with tf.io.TFRecordWriter(self.path("t.tfrecord")) as w:
            for i in range(4):
                w.write(tf.train.Example(features=tf.train.Features(feature={
                    "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"img%d" % i])),
                    "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i])),
                    "image/filename": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"name"])),
                })).SerializeToString())
        self.assertEqual(dump("tfrecord", self.path("t.tfrecord")), [(i, "u1", "4", b"img%d" % i) for i in range(4)])


if __name__ == "__main__":
    if not os.access(TOOL, os.X_OK):
        print("SKIP: %s is not built" % TOOL)
        sys.exit(77)
    unittest.main()
