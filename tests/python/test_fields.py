"""Samples of several fields in the Python front ends: exactly what the formats' own readers give, resumed exactly, by name."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import MILLRACE, gen, raises, run  # noqa: E402

import numpy as np  # noqa: E402

from millrace import _core  # noqa: E402
from millrace.numpy import Loader  # noqa: E402

FIELDS = "data:f4:3x24x36,labels:i4:24x36:target,weight:f8:-"
HDF5 = gen("hdf5", "--format", "hdf5", "--files", "3", "--samples-per-file", "7", "--fields", FIELDS)


def bits(a):
    return np.ascontiguousarray(a).view(np.uint8)


def equal(have, want):
    return have.dtype == want.dtype and have.shape == want.shape and np.array_equal(bits(have), bits(want))


def schema_is_that_of_gen():
    fields = _core.schema(HDF5)
    assert [f["name"] for f in fields] == ["data", "labels", "weight"]
    assert [f["dims"] for f in fields] == [(3, 24, 36), (24, 36), ()]
    assert [f["role"] for f in fields] == ["input", "target", "weight"]


def hdf5_is_that_of_h5py():
    try:
        import h5py
    except ImportError:
        print("  (there is no h5py)")
        return
    want = {name: [] for name in ("data", "labels", "weight")}
    for name in sorted(os.listdir(HDF5)):
        if name.endswith(".h5") or name.endswith(".hdf5"):
            with h5py.File(os.path.join(HDF5, name)) as f:
                for field in want:
                    want[field].append(f[field][...])
    want = {name: np.concatenate(parts) for name, parts in want.items()}
    seen = 0
    for batch in Loader(HDF5, 4, shuffle=True, seed=3):
        seen += len(batch.ids)
        for name, have in batch.fields.items():
            assert equal(have, want[name][batch.ids]), name
    assert seen == 21


def every_field_is_delivered_or_those_that_are_named():
    every = next(iter(Loader(HDF5, 4)))
    assert list(every.fields) == ["data", "labels", "weight"] and every.labels is None
    data, labels, ids = every  # as it was before there were fields
    assert data is every.fields["data"] and labels is None and len(ids) == 4
    two = next(iter(Loader(HDF5, 4, fields=["weight", "labels"])))
    assert list(two.fields) == ["weight", "labels"] and two.data is two.fields["weight"]
    assert equal(two.fields["labels"], every.fields["labels"])
    raises(ValueError, "no field 'label'; it has 'data', 'labels', 'weight'", Loader, HDF5, 4, fields=["label"])


def batches_outlive_the_loader():
    loader = Loader(HDF5, 4, lookahead=1)
    kept = [b.fields for b in loader]
    loader.close()
    again = [b.fields for b in Loader(HDF5, 4)]
    assert all(equal(a[n], b[n]) for a, b in zip(kept, again) for n in a)


def states_continue_and_tiers_change_nothing():
    whole = [b.fields for b in Loader(HDF5, 4, shuffle=True, seed=1)]
    first = Loader(HDF5, 4, shuffle=True, seed=1)
    it = iter(first)
    next(it), next(it)
    second = Loader(HDF5, 4, shuffle=True, seed=1)
    second.load_state_dict(first.state_dict())
    rest = [b.fields for b in second]
    assert len(rest) == len(whole) - 2
    assert all(equal(a[n], b[n]) for a, b in zip(rest, whole[2:]) for n in a)
    tiered = Loader(HDF5, 4, shuffle=True, seed=1, tiers="ram=16MiB", epochs=2, rank=0, world=1)
    for _ in range(2):
        got = [b.fields for b in tiered]
        tiered.set_epoch(0)
    tiered.set_epoch(0)
    assert all(equal(a[n], b[n]) for a, b in zip([b.fields for b in tiered], whole) for n in a)
    assert len(got) == len(whole)


def costs_are_counted_per_field():
    loader = Loader(HDF5, 21, fields=["labels", "data"], lookahead=1)
    next(iter(loader))
    stats = loader.stats()["fields"]
    assert list(stats) == ["labels", "data"] and stats["labels"]["bytes"] >= 21 * 4 * 24 * 36


def a_report_of_a_traced_program_has_them():
    """Two loaders that read everything once and once more: the last that each told counts, and they add up."""
    program = (
        "from millrace.numpy import Loader\n"
        "for lookahead in 1, 2:\n"
        f"    loader = Loader({HDF5!r}, 7, fields=['labels', 'data'], lookahead=lookahead)\n"
        "    for epoch in range(2):\n"
        "        loader.set_epoch(epoch)\n"
        "        for batch in loader: pass\n"
    )
    trace = os.path.join(os.path.dirname(HDF5), "fields.mrt")
    subprocess.run([MILLRACE, "-q", "trace", "-o", trace, "--", sys.executable, "-c", program], check=True)
    told = json.loads(subprocess.run([MILLRACE, "report", "--json", trace], check=True, stdout=subprocess.PIPE).stdout)["fields"]
    assert {f["name"] for f in told} == {"data", "labels"}, told
    for field, size in (("data", 3 * 24 * 36 * 4), ("labels", 24 * 36 * 4)):
        f = next(f for f in told if f["name"] == field)
        assert 4 * 21 <= f["samples"] <= 6 * 21 and f["delivered_bytes"] == f["samples"] * size, told


def sets_of_one_payload_are_as_before():
    path = gen("simple", "--format", "hdf5", "--files", "2", "--samples-per-file", "5", "--dims", "4x6", "--labels", "3")
    os.unlink(os.path.join(path, "manifest.mrm"))
    subprocess.run([MILLRACE, "-q", "scan", path], check=True, stdout=subprocess.DEVNULL)
    batch = next(iter(Loader(path, 4)))
    assert batch.fields is None and batch.data.shape == (4, 4, 6) and batch.labels.dtype == np.int64
    named = next(iter(Loader(path, 4, fields="*"))).fields
    assert list(named) == ["records", "labels"] and equal(named["records"], batch.data)


run(
    [
        schema_is_that_of_gen,
        hdf5_is_that_of_h5py,
        every_field_is_delivered_or_those_that_are_named,
        batches_outlive_the_loader,
        states_continue_and_tiers_change_nothing,
        costs_are_counted_per_field,
        a_report_of_a_traced_program_has_them,
        sets_of_one_payload_are_as_before,
    ]
)
