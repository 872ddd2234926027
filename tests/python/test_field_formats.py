"""Samples of several fields in files that others wrote: exactly what the formats' own readers give, and what is wrong with bad ones is
named by file, sample and field."""
import io
import json
import os
import subprocess
import sys
import tarfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import MILLRACE, folder, gen, run  # noqa: E402

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
    return same_type and np.ascontiguousarray(have).tobytes() == np.ascontiguousarray(want).tobytes()


def check(path, want, **options):
    """Every field of every sample, in shuffled order; `want` has a list by sample of each."""
    seen = 0
    for batch in Loader(path, 4, shuffle=True, seed=3, threads=2, **options):
        seen += len(batch.ids)
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
    try:
        list(Loader(path, 5))
    except _core.DataError as e:
        assert "sample 2" in str(e) and "mask.png" in str(e), e
    else:
        raise AssertionError("a broken picture was delivered")


# ---- every format that gen writes ----

SETS = {"hdf5": (), "tar": ()}


def generated_sets_scan_to_the_same_samples():
    fields = "data:f4:3x24x36,labels:i4:24x36:target,weight:f8:-"
    for fmt, options in SETS.items():
        path = gen(f"gen-{fmt}", "--format", fmt, "--files", "3", "--samples-per-file", "5", "--fields", fields)
        want = [b.fields for b in Loader(path, 4, shuffle=True, seed=1)]
        schema = {name: parts[:3] for name, parts in roles(path).items()}
        subprocess.run([MILLRACE, "-q", "verify", path], check=True, stdout=subprocess.DEVNULL)
        os.unlink(os.path.join(path, "manifest.mrm"))
        scan(path, *options)
        assert {name: parts[:3] for name, parts in roles(path).items()} == schema, fmt
        have = [b.fields for b in Loader(path, 4, shuffle=True, seed=1)]
        assert all(equal(a[name], b[name]) for a, b in zip(have, want) for name in b), fmt
        subprocess.run([MILLRACE, "-q", "verify", path], check=True, stdout=subprocess.DEVNULL)


run(
    [
        shards_of_several_members_are_what_their_readers_give,
        shards_of_pictures_and_classes_are_simple,
        odd_arrays_in_shards_are_what_numpy_reads,
        shards_that_differ_are_named,
        a_shard_that_changed_is_an_error,
        generated_sets_scan_to_the_same_samples,
    ]
)
