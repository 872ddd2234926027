#!/usr/bin/env python3
"""The front ends over s3://: the same batches as from a disk, with tiers and worker processes; what is wrong is an error with a
hint. Each framework is checked where it is installed."""

import hashlib
import os
import subprocess
import sys
import tempfile
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
SERVER = os.path.join(os.environ["MR_SOURCE_DIR"], "tests", "s3", "server.sh")
if "S3_TEST_CHILD" not in os.environ:  # a server first: the shell starts it, and ends it with us
    script = f'. "{SERVER}"; start_server; make_bucket bucket; trap stop_server EXIT; S3_TEST_CHILD=1 "$@"'
    sys.exit(subprocess.call(["bash", "-c", script, "bash", sys.executable, *sys.argv]))

import front_end  # noqa: E402,F401  (finds the built package, or skips)

import numpy as np  # noqa: E402

import millrace.numpy  # noqa: E402


def digest(batches: Any) -> list[str]:
    """A hash per batch, of its first array."""
    out = []
    for x in batches:
        while isinstance(x, (tuple, list)):
            x = x[0]
        if isinstance(x, dict):
            x = x["data"]
        out.append(hashlib.md5(np.ascontiguousarray(np.asarray(x)).tobytes()).hexdigest())
    return out


def same(what: str, make: Any, here: str) -> None:
    """`make` gives the same from the bucket as from the disk."""
    far, near = digest(make("s3://bucket/set")), digest(make(here))
    assert far and far == near, f"{what}: other batches from the bucket"
    print("same:", what, flush=True)


def refused(make: Any, kind: type, text: str) -> None:
    """An error of that kind, with that text."""
    try:
        list(make())
    except kind as e:
        assert text in str(e) + " ".join(getattr(e, "__notes__", [])), f"says: {e}"
        return
    raise AssertionError(f"no {kind}: {text}")


def check_torch(here: str) -> None:
    """millrace.torch.DataLoader."""
    import torch

    import millrace.torch

    for options in ({}, {"num_workers": 2}, {"tiers": "ram=64MiB"}):
        same(
            f"torch {options}",
            lambda p, o=options: millrace.torch.DataLoader(
                p, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(1), **o
            ),
            here,
        )
    refused(lambda: millrace.torch.DataLoader("s3://bucket/nothing", batch_size=4), OSError, "nothing")


def check_jax(here: str) -> None:
    """millrace.jax.Loader."""
    import millrace.jax

    same("jax", lambda p: millrace.jax.Loader(p, 4, shuffle=True, seed=3), here)


def check_tensorflow(here: str) -> None:
    """millrace.tensorflow.dataset."""
    import millrace.tensorflow

    same("tensorflow", lambda p: millrace.tensorflow.dataset(p, 4, shuffle=True, seed=3), here)


def main() -> None:
    """A set in a bucket and on a disk."""
    with tempfile.TemporaryDirectory() as folder:
        here = os.path.join(folder, "set")
        for where in ("s3://bucket/set", here):
            subprocess.run(
                ["millrace", "-q", "gen", where, "--format", "npy", "--files", "40", "--size", "50KB"],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        for options in (
            {},
            {"in_memory": True},
            {"tiers": "auto", "world": 1, "rank": 0},
            {"verify": True, "threads": 2},
        ):
            same(f"numpy {options}", lambda p, o=options: millrace.numpy.Loader(p, 4, shuffle=True, seed=3, **o), here)
        far, near = millrace.numpy.Samples("s3://bucket/set"), millrace.numpy.Samples(here)
        assert len(far) == len(near) == 40 and digest([far[7]]) == digest([near[7]])
        refused(lambda: millrace.numpy.Loader("s3://nobucket/set", 4), ValueError, "NoSuchBucket")
        for check in (check_torch, check_jax, check_tensorflow):
            try:
                check(here)
            except ImportError as e:
                print(f"without {check.__name__[6:]}: {e}")
    print("passed")


if __name__ == "__main__":
    main()
