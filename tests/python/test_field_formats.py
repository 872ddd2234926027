"""Samples of several fields in files that others wrote: exactly what the formats' own readers give, and what is wrong with bad ones is
named by file, sample and field."""
import csv
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
from array import array

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import MILLRACE, folder, gen, run  # noqa: E402
from front_end import raises as fails  # noqa: E402

import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402

from millrace import _core  # noqa: E402
from millrace.numpy import Loader  # noqa: E402

rng = np.random.default_rng(7)


def scan(path, *options, fails=None):
    """`millrace scan`; its error output where it has to fail."""
    done = subprocess.run([MILLRACE, "scan", path, *options], capture_output=True, text=True)
    assert (done.returncode == 0) == (fails is None), done.stderr
    for text in fails or ():
        assert text in done.stderr, f"'{text}' is not in: {done.stderr}"
    return path


def roles(path):
    return {f["name"]: (f["dtype"], f["dims"], f["role"], f["storage"]) for f in _core.schema(path)}


def equal(have, want):
    want = np.asarray(want)
    same_type = have.dtype == want.dtype and have.shape == want.shape
    return same_type and bits(have) == bits(want)


def bits(array):
    return np.ascontiguousarray(array).tobytes()


def check(path, want, **options):
    """Every field of every sample, in shuffled order; `want` has a list by sample of each."""
    seen = 0
    if options.get("fields") == "*":  # of any role
        options["fields"] = list(want)
    for batch in Loader(path, 4, shuffle=True, seed=3, threads=2, **options):
        seen += len(batch.ids)
        assert options.get("fields") is None or list(batch.fields) == list(options["fields"])
        for name, have in batch.fields.items():
            for row, i in zip(have, batch.ids):
                here = want[name][i]
                assert row == here if isinstance(here, str) else equal(row, here), (name, i)
    assert seen == len(next(iter(want.values())))


# ---- tar ----


def member(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def encoded(array, kind, **options):
    out = io.BytesIO()
    np.save(out, array) if kind == "npy" else Image.fromarray(array).save(out, kind, **options)
    return out.getvalue()


def pixels(data):
    array = np.asarray(Image.open(io.BytesIO(data)))
    return array if array.ndim == 3 else array[..., None]


def shards(name, samples, mode="w", ending=".tar"):
    path = os.path.join(folder, name)
    os.makedirs(path)
    for s in range(0, len(samples), 5):
        with tarfile.open(os.path.join(path, f"shard-{s:03d}{ending}"), mode) as tar:
            for i, parts in enumerate(samples[s : s + 5]):
                for ext, data in parts.items():
                    member(tar, f"{s + i:06d}.{ext}", data)
    return path


def webdataset(n=13):
    samples = []
    for i in range(n):
        h, w = 20 + i, 30 + i % 4
        picture = rng.integers(0, 255, (h, w, 3), dtype=np.uint8)
        samples.append(
            {
                "jpg": encoded(picture, "jpeg", quality=95),
                "mask.png": encoded(rng.integers(0, 9, (h, w), dtype=np.uint8), "png"),
                "boxes.npy": encoded(rng.random((i % 4, 4)).astype(np.float32), "npy"),
                "json": json.dumps({"caption": f"picture {i} \u00e4"}).encode(),
                "cls": str(i % 7).encode(),
            }
        )
    return samples


def shards_of_several_members_are_what_their_readers_give():
    samples = webdataset()
    path = scan(shards("wds", samples))
    have = roles(path)
    assert list(have) == ["jpg", "mask.png", "boxes", "json", "cls"]
    assert have["jpg"] == ("u1", None, "input", "jpeg") and have["mask.png"] == ("u1", None, "target", "png")
    assert have["boxes"] == ("f4", (None, 4), "input", "npy") and have["json"][2:] == ("other", "text")
    assert have["cls"] == ("i8", (), "target", "label")
    want = {
        "jpg": [pixels(s["jpg"]) for s in samples],
        "mask.png": [pixels(s["mask.png"]) for s in samples],
        "boxes": [np.load(io.BytesIO(s["boxes.npy"])) for s in samples],
        "json": [s["json"].decode() for s in samples],
        "cls": [np.int64(s["cls"]) for s in samples],
    }
    check(path, want, fields="*")
    check(path, want)  # all but the text
    assert list(next(iter(Loader(path, 2))).fields) == ["jpg", "mask.png", "boxes", "cls"]
    check(path, want, fields=["json", "boxes"])
    batch = next(iter(Loader(path, 13, fields=["boxes"], variable="pack"))).fields
    assert equal(batch["boxes"], np.concatenate(want["boxes"]))
    assert equal(batch["boxes_offsets"], np.cumsum([0] + [len(b) for b in want["boxes"]]))
    gz = scan(shards("wds-gz", samples, "w:gz", ".tar.gz"))
    check(gz, want, fields="*")
    check(gz, want, fields=["cls", "jpg"], in_memory=True)


def shards_of_pictures_and_classes_are_simple():
    samples = [{k: s[k] for k in ("jpg", "cls")} for s in webdataset(7)]
    path = scan(shards("plain", samples))
    batch = next(iter(Loader(path, 7)))
    assert batch.fields is None and [int(c) for c in batch.labels] == [i % 7 for i in range(7)]
    assert [bytes(row) for row in batch.data] == [s["jpg"] for s in samples]
    check(path, {"jpg": [pixels(s["jpg"]) for s in samples], "cls": [np.int64(i % 7) for i in range(7)]}, fields="*")


def odd_arrays_in_shards_are_what_numpy_reads():
    arrays = [
        {"a": rng.integers(0, 99, (3, 4)).astype(">i4"), "b": np.asfortranarray(rng.random((3, 2 + i))), "c": np.float16(i)}
        for i in range(6)
    ]
    path = scan(shards("odd", [{f"{k}.npy": encoded(v, "npy") for k, v in s.items()} for s in arrays]))
    want = {k: [np.asarray(s[k]).astype(s[k].dtype.newbyteorder("<")) for s in arrays] for k in "abc"}
    check(path, want)
    check(path, want, in_memory=True)


def shards_that_differ_are_named():
    samples = webdataset(9)
    del samples[7]["mask.png"]
    path = shards("missing", samples)
    scan(path, fails=["shard-005.tar", "sample 2 ('000007')", "no member 'mask.png'", "--fields"])
    scan(path, "--skip-bad")
    check(scan(path, "--fields", "jpg,cls"), {"jpg": [pixels(s["jpg"]) for s in samples], "cls": [np.int64(i % 7) for i in range(9)]}, fields="*")
    samples[3]["boxes.npy"] = encoded(np.zeros((1, 4)), "npy")
    scan(shards("types", samples[:5]), fails=["sample 3 ('000003')", "member 'boxes' is f8, in the samples before it f4"])
    samples = webdataset(4)
    for s in samples:
        s["cls"] = b"red"
    assert next(iter(Loader(scan(shards("colours", samples)), 4, fields=["cls"]))).fields["cls"] == ["red"] * 4  # all of one length
    samples = webdataset(4)
    samples[2]["cls"] = b"cat"
    path = scan(shards("words", samples))
    assert roles(path)["cls"] == ("u1", (None,), "target", "text")
    assert next(iter(Loader(path, 4, fields=["cls"]))).fields["cls"] == ["0", "1", "cat", "3"]


def a_shard_that_changed_is_an_error():
    path = scan(shards("changed", webdataset(5)))
    file = os.path.join(path, "shard-000.tar")
    with tarfile.open(file) as tar:
        at = tar.getmember("000002.mask.png").offset_data
    stat = os.stat(file)
    with open(file, "r+b") as f:
        f.seek(at)
        f.write(bytes(20))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    broken = fails(_core.DataError, "mask.png", list, Loader(path, 5))
    assert "sample 2" in str(broken) and "shard-000.tar" in str(broken), broken
    whole = Loader(path, 5, on_error="skip")
    assert [i for b in whole for i in b.ids] == [0, 1, 3, 4] and whole.skipped == 1


def patch(file, old, new):
    """Other bytes in the file, which looks as if nothing had happened."""
    stat = os.stat(file)
    with open(file, "rb") as f:
        data = f.read()
    assert len(old) == len(new) and data.count(old) == 1
    with open(file, "wb") as f:
        f.write(data.replace(old, new))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def values_that_are_not_what_was_promised_are_errors():
    rows = "".join(f'{{"a":"x{i}","v":[{i},7,8]}}\n' for i in range(9))
    path = scan(files("promise", {"0.jsonl": rows}))
    patch(os.path.join(path, "0.jsonl"), b"[5,7,8]", b"[5,78] ")
    for options in ({}, {"in_memory": True}, {"fields": ["v"]}):
        bad = str(fails(_core.DataError, "promises i8, 3; it is i8, 2", list, Loader(path, 4, **options)))
        assert "sample 5" in bad and "0.jsonl" in bad and "field 'v'" in bad, bad
    samples = [{"a.npy": encoded(rng.random(4), "npy"), "b.npy": encoded(rng.random((2, 1 + i, 1 + i)), "npy")} for i in range(4)]
    path = scan(shards("promise-tar", samples))
    shape = str((2, 3, 3)).encode()
    patch(os.path.join(path, "shard-000.tar"), b"'<f8', 'fortran_order': False, 'shape': " + shape, b"'>i8', 'fortran_order': False, 'shape': " + shape)
    bad = str(fails(_core.DataError, "promises f8", list, Loader(path, 4)))
    assert "sample 2" in bad and "field 'b'" in bad, bad


def shuffled_shards_are_resumed_exactly_by_any_number_of_ranks():
    path = os.path.join(folder, "wds")
    options = dict(shuffle=True, seed=9, fields=["boxes", "cls"], drop_last=True)
    whole = [int(i) for b in Loader(path, 2, **options) for i in b.ids]
    assert whole != sorted(whole) and len(set(whole)) == 12  # within shards and over them
    first = Loader(path, 2, **options)
    it = iter(first)
    seen = [int(i) for _ in range(2) for i in next(it).ids]
    assert seen == whole[:4]
    ranks = [Loader(path, 2, rank=r, world=2, **options) for r in range(2)]
    for loader in ranks:
        loader.load_state_dict(first.state_dict())
    parts = [[b.ids.tolist() for b in loader] for loader in ranks]
    rest = [i for pair in zip(*parts) for i in np.array(pair).T.ravel().tolist()]
    assert rest == whole[4:12], (rest, whole)


def nearest(n, to):
    """Source pixels of a resize to `to`, as PyTorch's nearest interpolation has them."""
    return np.minimum(np.floor(np.arange(to, dtype=np.float32) * np.float32(n / to)).astype(int), n - 1)


def masks_and_boxes_follow_their_picture():
    samples = webdataset()
    path = scan(shards("joint", samples))
    for fields in (None, {"jpg": "image", "mask.png": "mask", "boxes": "boxes"}):
        loader = Loader(path, 13, seed=4, pictures={"size": (17, 24), "floats": False}, fields=fields)
        batch = next(iter(loader))
        assert batch.fields["jpg"].shape == (13, 17, 24, 3) and batch.fields["mask.png"].shape == (13, 17, 24)
        sizes = array("I", [n for s in samples for n in pixels(s["jpg"]).shape[:2]]).tobytes()
        plans = loader._core.plans(0, array("Q", range(13)).tobytes(), sizes)
        flips = 0
        for i, plan in enumerate(np.frombuffer(memoryview(plans), np.int32).reshape(13, -1)):
            top, left, h, w, height, width, _, _, flip = plan[4:13].tolist()
            mask = pixels(samples[i]["mask.png"])[top : top + h, left : left + w, 0][nearest(h, height)][:, nearest(w, width)]
            assert np.array_equal(batch.fields["mask.png"][i], mask[:, ::-1] if flip else mask)
            boxes = np.load(io.BytesIO(samples[i]["boxes.npy"])) - np.float32([left, top, left, top])
            boxes = np.clip(boxes, np.float32(0), np.float32([w, h, w, h])) * np.float32([width / w, height / h] * 2)
            boxes = np.stack([width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]], 1) if flip else boxes
            assert np.array_equal(batch.fields["boxes"][i], boxes), i
            flips += flip
        assert 0 < flips < 13
    masks = [b.fields["mask.png"] for b in Loader(path, 13, seed=4, pictures={"size": (17, 24)}, fields={"mask.png": "mask"})]
    assert np.array_equal(masks[0], batch.fields["mask.png"])  # without its picture: the same cuts
    fails(ValueError, "boxes of field 'boxes' follow their picture", Loader, path, 2, pictures={"size": 9}, fields={"boxes": "boxes"})
    samples[3]["mask.png"] = samples[4]["mask.png"]
    other = scan(shards("sizes", samples))
    fails(_core.DataError, "mask of 24 x 30 pixels for a picture of 23 x 33", list, Loader(other, 13, pictures={"size": 9}))


def webdataset_reads_the_same():
    try:
        import webdataset
    except ImportError:
        print("  (there is no webdataset)")
        return
    path = gen("wds-ours", "--format", "tar", "--files", "2", "--samples-per-file", "4", "--labels", "3", "--fields", "data:f4:3x4,mask:i2:4:target")
    for folder_ in (path, os.path.join(folder, "wds-plain")):
        if folder_ != path:
            os.makedirs(folder_)
            with webdataset.ShardWriter(os.path.join(folder_, "s-%03d.tar"), maxcount=5, verbose=0) as w:
                for i in range(9):
                    picture = rng.integers(0, 255, (8, 9, 3), dtype=np.uint8)
                    w.write({"__key__": f"{i:04d}", "png": picture, "box.npy": rng.random((i % 3, 4)), "cls": i % 4, "json": {"i": i}, "txt": f"n{i}"})
            scan(folder_)
        shards_ = sorted(os.path.join(folder_, n) for n in os.listdir(folder_) if n.endswith(".tar"))
        theirs = list(webdataset.WebDataset(shards_, shardshuffle=False, empty_check=False).decode("rgb8"))
        names = {n if n in theirs[0] else n + ".npy": n for n in roles(folder_)}
        want = {ours: [t[n] if n not in ("json", "cls") else json.dumps(t[n]) if n == "json" else np.int64(t[n]) for t in theirs] for n, ours in names.items()}
        for batch in Loader(folder_, 3, shuffle=True, seed=1, fields=list(want)):
            for name, rows in batch.fields.items():
                for row, i in zip(rows, batch.ids):
                    here = want[name][i]
                    same = json.loads(row) == json.loads(here) if name == "json" else row == here if isinstance(row, str) else equal(np.asarray(row), here)
                    assert same, (name, i)


# ---- NPZ ----


def archives_are_what_numpy_reads():
    for name, save in (("npz", np.savez), ("npz-deflated", np.savez_compressed)):
        path = os.path.join(folder, name)
        os.makedirs(path)
        files = []
        for i, n in enumerate((5, 3, 1)):
            arrays = {
                "x": rng.random((n, 4, 6)).astype(np.float32),
                "mask": np.asfortranarray(rng.integers(0, 9, (n, 4, 6)).astype(np.int16)),
                "weight": rng.random(n).astype(">f8"),
                "y": rng.integers(0, 5, n),
                "about": np.arange(99 - i),  # neither as many rows nor one label per sample
                "words": np.array(["text"]),
            }
            save(os.path.join(path, f"{i}.npz"), **arrays)
            files.append(arrays)
        scan(path)
        have = roles(path)
        assert set(have) == {"x", "mask", "weight", "y"} and have["y"] == ("i8", (), "target", "label")
        assert have["x"] == ("f4", (4, 6), "input", "raw") and have["weight"][2] == "weight"
        want = {k: [row.astype(row.dtype.newbyteorder("<")) for f in files for row in f[k]] for k in have}
        check(path, want)
        check(path, want, in_memory=True)
        check(path, want, fields=["mask", "y"], tiers="ram=4MiB", rank=0, world=1, epochs=1)
        scan(path, "--fields", "words", fails=["0.npz", "words"])


def whole_arrays_are_fields_of_one_sample():
    path = os.path.join(folder, "npz-whole")
    os.makedirs(path)
    arrays = [{"image": rng.random((3 + i, 5)), "points": rng.random((i, 2)).astype(np.float32)} for i in range(4)]
    for i, a in enumerate(arrays):
        np.savez_compressed(os.path.join(path, f"{i}.npz"), **a)
    scan(path)
    assert roles(path)["points"] == ("f4", (None, 2), "input", "raw")
    check(path, {k: [a[k] for a in arrays] for k in ("image", "points")}, verify=True)


# ---- TFRecord ----


def varint(v):
    v, out = v % 2**64, b""
    while v > 127:
        out, v = out + bytes([v & 127 | 128]), v >> 7
    return out + bytes([v])


def part(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(value, packed=True):
    """bytes or a list of them, float32 or int64 arrays, None: a Feature without a list."""
    if value is None:
        return b""
    if isinstance(value, (bytes, list)):
        return part(1, b"".join(part(1, v) for v in ([value] if isinstance(value, bytes) else value)))
    if value.dtype == np.float32:
        each = b"".join(varint(1 << 3 | 5) + v.tobytes() for v in value)
        return part(2, part(1, value.tobytes()) if packed else each)
    ints = [varint(int(v)) for v in value]
    return part(3, part(1, b"".join(ints)) if packed else b"".join(varint(1 << 3) + v for v in ints))


def example(features, packed=True):
    return part(1, b"".join(part(1, part(1, n.encode()) + part(2, feature(v, packed))) for n, v in features.items()))


def crc(data):
    table = [0] * 256
    for i in range(256):
        c = i
        for _ in range(8):
            c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
        table[i] = c
    c = 0xFFFFFFFF
    for b in data:
        c = table[(c ^ b) & 255] ^ c >> 8
    c ^= 0xFFFFFFFF
    return ((c >> 15 | c << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")


def records(name, datas, each=5):
    path = os.path.join(folder, name)
    os.makedirs(path)
    for i in range(0, len(datas), each):
        with open(os.path.join(path, f"part-{i:03d}.tfrecord"), "wb") as f:
            for data in datas[i : i + each]:
                size = len(data).to_bytes(8, "little")
                f.write(size + crc(size) + data + crc(data))
    return path


def examples(n=12):
    return [
        {
            "image/encoded": encoded(rng.integers(0, 255, (9 + i, 8, 3), dtype=np.uint8), "png"),
            "image/class/label": np.array([i % 5]),
            "box": rng.random(4 * (i % 3)).astype(np.float32),
            "y": rng.random(3).astype(np.float32),
            "tokens": rng.integers(-(2**62), 2**62, i % 4 + 1),
            "text": f"n\u00e4me {i}".encode(),
            "words": [b"a", b"bc"] if i % 2 else [b"only"],
        }
        for i in range(n)
    ]


def features_of_records_are_what_was_put_in():
    samples = examples()
    for i, s in enumerate(samples):  # protocol buffers keep no order of a map
        at = (i + 3) % 7  # in the third file the strings come first
        samples[i] = dict(list(s.items())[at:] + list(s.items())[:at])
    for name, packed in (("tfr", True), ("tfr-unpacked", False)):
        path = scan(records(name, [example(s, packed) for s in samples]))
        have = roles(path)
        assert have["image/encoded"] == ("u1", None, "input", "jpeg") and have["image/class/label"] == ("i8", (), "target", "label")
        assert have["box"] == ("f4", (None,), "other", "raw") and have["y"] == ("f4", (3,), "target", "raw")
        assert have["tokens"] == ("i8", (None,), "other", "raw") and have["words"][:2] == ("u1", (None,))
        want = {
            "image/encoded": [pixels(s["image/encoded"]) for s in samples],
            "image/class/label": [np.int64(s["image/class/label"][0]) for s in samples],
            "text": [np.frombuffer(s["text"], np.uint8) for s in samples],
            "words": [np.frombuffer(b"\0".join(s["words"]), np.uint8) for s in samples],
            **{n: [s[n] for s in samples] for n in ("box", "y", "tokens")},
        }
        check(path, want, fields="*")
        check(path, want, fields="*", verify=True)
        check(path, want, fields=["tokens", "y"], in_memory=True)
        default = list(next(iter(Loader(path, 2))).fields)
        assert default[0] == "image/encoded" and sorted(default) == ["image/class/label", "image/encoded", "y"]
    flat = next(iter(Loader(path, 12, fields=["tokens"], variable="pack"))).fields
    assert equal(flat["tokens"], np.concatenate(want["tokens"]))


def records_of_cosmoflow_have_both_fields():
    samples = [{"x": rng.integers(0, 99, 64, dtype=np.int16).tobytes(), "y": rng.random(4).astype(np.float32).tobytes()} for _ in range(4)]
    path = scan(records("cosmo", [example(s) for s in samples]))
    assert roles(path) == {"x": ("u1", (128,), "input", "raw"), "y": ("u1", (16,), "target", "raw")}
    check(path, {k: [np.frombuffer(s[k], np.uint8) for s in samples] for k in "xy"})


def records_that_differ_are_named():
    samples = examples(9)
    del samples[8]["y"]
    scan(records("tfr-missing", [example(s) for s in samples]), fails=["part-005", "sample 3", "no feature 'y'"])
    samples = examples(3)
    samples[2]["y"] = np.array([1, 2])
    path = records("tfr-types", [example(s) for s in samples])
    scan(path, fails=["sample 2", "feature 'y' is i8, in the samples before it f4"])
    scan(path, "--fields", "image/encoded,box:target")
    assert [f["role"] for f in _core.schema(path)] == ["input", "target"]
    samples = examples(3)
    samples[1]["box"] = samples[2]["words"] = None  # a Feature that has no list is an empty one
    check(scan(records("tfr-empty", [example(s) for s in samples])), {"box": [s["box"] if s["box"] is not None else np.zeros(0, np.float32) for s in samples]}, fields=["box"])
    scan(records("tfr-mixed", [example(samples[0]), b"\xff no example"]), fails=["record 1", "is no Example"])
    raw = [os.urandom(50) + b"\xff", b"\xff" * 9]
    path = scan(records("tfr-raw", raw))
    check(path, {"data": [np.frombuffer(r, np.uint8) for r in raw]}, fields="*")


def tensorflow_parses_what_we_write():
    try:
        import tensorflow as tf
    except ImportError:
        print("  (there is no TensorFlow)")
        return
    path = gen("tf", "--format", "tfrecord", "--files", "2", "--samples-per-file", "4", "--labels", "3", "--fields",
               "data:f4:3x4,mask:u1:3x4:target,ids:i8:5")  # fmt: skip
    spec = {
        "data": tf.io.FixedLenFeature([3, 4], tf.float32),
        "mask": tf.io.FixedLenFeature([], tf.string),
        "ids": tf.io.FixedLenFeature([5], tf.int64),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    files = sorted(os.path.join(path, n) for n in os.listdir(path) if n.endswith(".tfrecord"))
    theirs = [tf.io.parse_single_example(r, spec) for r in tf.data.TFRecordDataset(files)]
    want = {k: [t[k].numpy() for t in theirs] for k in ("data", "ids", "label")}
    want["mask"] = [np.frombuffer(t["mask"].numpy(), np.uint8).reshape(3, 4) for t in theirs]
    check(path, want)


# ---- CSV and JSON ----


def files(name, contents):
    path = os.path.join(folder, name)
    os.makedirs(path)
    for file, text in contents.items():
        opened = gzip.open if file.endswith(".gz") else open
        with opened(os.path.join(path, file), "wt", encoding="utf-8", newline="") as f:
            f.write(text)
    return path


def columns_are_what_pythons_reader_gives():
    rows = [
        {"name": f"n\u00e4 {i}, \"q\"" if i % 3 else "", "age": 20 + i, "height": 1.5 + i / 7 if i != 4 else None, "label": i % 4}
        for i in range(11)
    ]
    contents = {}
    for s, kind in ((0, "\n"), (6, "\r\n")):
        out = io.StringIO()
        writer = csv.DictWriter(out, rows[0], lineterminator=kind)
        writer.writeheader()
        writer.writerows(rows[s : s + 6])
        contents[f"{s:02d}.csv"] = out.getvalue()
    contents["06.csv"] = contents["06.csv"].rstrip("\r\n")  # the last line may lack its end
    want = {
        "name": [r["name"] for r in rows],
        "age": [np.int64(r["age"]) for r in rows],
        "height": [np.float64(np.nan if r["height"] is None else r["height"]) for r in rows],
        "label": [np.int64(r["label"]) for r in rows],
    }
    for path in (files("csv", contents), files("csv-gz", {k + ".gz": v for k, v in contents.items()})):
        have = roles(scan(path))
        assert have["name"] == ("u1", (None,), "input", "text") and have["age"] == ("i8", (), "input", "raw")
        assert have["height"][0] == "f8" and have["label"] == ("i8", (), "target", "label")
        check(path, want)
        check(path, want, fields=["height", "name"], in_memory=True)
        scan(path, "--fields", "age,height:target")
        check(path, {n: want[n] for n in ("age", "height")})
    scan(path, "--fields", "age,weight", fails=["no column 'weight'"])


def tables_of_numbers_stay_one_array():
    path = scan(files("numbers", {"0.csv": "a,b,label\n1,2.5,7\n3,4,8\n"}))
    batch = next(iter(Loader(path, 2)))
    assert batch.fields is None and batch.data.tolist() == [[1, 2.5], [3, 4]] and batch.labels.tolist() == [7, 8]
    check(scan(path, "--fields", "b,label"), {"b": [np.float64(2.5), np.float64(4)], "label": [np.int64(7), np.int64(8)]}, fields="*")


def columns_that_differ_are_named():
    path = files("csv-types", {"0.csv": "a,b\nx,1\n", "1.csv": "a,b\ny,1.5\n"})
    scan(path, fails=["1.csv", "field 'b' is f8 here and i8 in '0.csv'"])
    scan(files("csv-cut", {"0.csv": "a,b\nx,1\ny\n"}), fails=["0.csv", "line 3"])


def members_of_json_are_what_pythons_reader_gives():
    rows = [
        {
            "text": f"caption \u20ac \U0001f600 {i}\n\t\"" * (i % 3),
            "ids": list(range(i % 4)),
            "grid": [[i / 3, -1e-300], [1.0, 2.0]],
            "score": i / 10 if i % 5 else None,
            "about": {"k": [1, "x"]},
            "label": i - 3,
        }
        for i in range(10)
    ]
    lines = "".join(json.dumps(r, ensure_ascii=bool(i % 2)) + "\n" for i, r in enumerate(rows))
    want = {
        "text": [r["text"] for r in rows],
        "ids": [np.array(r["ids"], np.int64) for r in rows],
        "grid": [np.array(r["grid"]) for r in rows],
        "score": [np.float64(np.nan if r["score"] is None else r["score"]) for r in rows],
        "label": [np.int64(r["label"]) for r in rows],
    }
    for path in (files("jsonl", {"0.jsonl": lines}), files("json", {"0.json": json.dumps(rows, indent=1)}), files("jsonl-gz", {"0.jsonl.gz": lines})):
        have = roles(scan(path))
        assert have["ids"] == ("i8", (None,), "input", "raw") and have["grid"] == ("f8", (2, 2), "input", "raw")
        assert have["text"][3] == have["about"][3] == "text" and have["label"] == ("i8", (), "target", "label")
        check(path, want | {"about": [next(iter(Loader(path, 1, fields=["about"]))).fields["about"][0]] * 10}, fields="*")
        check(path, want, fields=["label", "ids", "text"], verify=True)
    packed = next(iter(Loader(path, 10, fields=["ids"], variable="pack"))).fields
    assert equal(packed["ids"], np.concatenate(want["ids"]))
    del rows[8]["score"]
    path = files("jsonl-missing", {"0.jsonl": "".join(json.dumps(r) + "\n" for r in rows)})
    scan(path, fails=["0.jsonl", "sample 8", "no member 'score'"])


def records_with_an_array_stay_one_array():
    path = scan(files("payload", {"0.jsonl": '{"x":[1,2],"label":3,"id":"a"}\n{"x":[4,5],"label":6,"id":"b"}\n'}))
    batch = next(iter(Loader(path, 2)))
    assert batch.fields is None and batch.data.tolist() == [[1, 2], [4, 5]] and batch.labels.tolist() == [3, 6]
    check(scan(path, "--fields", "id,x"), {"id": ["a", "b"], "x": [np.array([1, 2]), np.array([4, 5])]})
    lists = scan(files("lists", {"0.jsonl": '"one"\n"two"\n'}))  # no objects: their bytes
    assert [bytes(row) for row in next(iter(Loader(lists, 2))).data] == [b'"one"', b'"two"']


# ---- every format that gen writes ----

SETS = {"hdf5": (), "tar": (), "tfrecord": (), "npz": ("--rows",), "csv": ("--fields", "data,labels,weight"),
        "json": ("--fields", "data,labels,weight"), "jsonl": ("--fields", "data,labels,weight")}  # fmt: skip


def generated_sets_scan_to_the_same_samples():
    for fmt, options in SETS.items():
        fields = "data:f4:3x24x36,labels:i4:24x36:target,weight:f8:-" if fmt != "csv" else "data:f4:-,labels:i4:-,weight:f8:-"
        path = gen(f"gen-{fmt}", "--format", fmt, "--files", "3", "--samples-per-file", "5", "--fields", fields)
        want = [b.fields for b in Loader(path, 4, shuffle=True, seed=1)]
        schema = {name: parts[:3] for name, parts in roles(path).items()}
        subprocess.run([MILLRACE, "-q", "verify", path], check=True, stdout=subprocess.DEVNULL)
        os.unlink(os.path.join(path, "manifest.mrm"))
        scan(path, *options)
        flat = fmt in ("tfrecord", "csv", "json", "jsonl")  # types and shapes do not survive in these
        if not flat:
            assert {name: parts[:3] for name, parts in roles(path).items()} == schema, fmt
        have = [b.fields for b in Loader(path, 4, shuffle=True, seed=1, fields="*")]
        if fmt == "tfrecord" or not flat:
            assert all(bits(a[name]) == bits(b[name]) for a, b in zip(have, want) for name in b), fmt
        else:
            assert all(np.array_equal(a[n].ravel().astype(b[n].dtype), b[n].ravel()) for a, b in zip(have, want) for n in b), fmt
            continue
        subprocess.run([MILLRACE, "-q", "verify", path], check=True, stdout=subprocess.DEVNULL)


run(
    [
        shards_of_several_members_are_what_their_readers_give,
        shards_of_pictures_and_classes_are_simple,
        masks_and_boxes_follow_their_picture,
        odd_arrays_in_shards_are_what_numpy_reads,
        webdataset_reads_the_same,
        shards_that_differ_are_named,
        a_shard_that_changed_is_an_error,
        values_that_are_not_what_was_promised_are_errors,
        shuffled_shards_are_resumed_exactly_by_any_number_of_ranks,
        archives_are_what_numpy_reads,
        whole_arrays_are_fields_of_one_sample,
        features_of_records_are_what_was_put_in,
        records_of_cosmoflow_have_both_fields,
        records_that_differ_are_named,
        tensorflow_parses_what_we_write,
        columns_are_what_pythons_reader_gives,
        tables_of_numbers_stay_one_array,
        columns_that_differ_are_named,
        members_of_json_are_what_pythons_reader_gives,
        records_with_an_array_stay_one_array,
        generated_sets_scan_to_the_same_samples,
    ]
)
