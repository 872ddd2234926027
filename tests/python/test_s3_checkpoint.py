#!/usr/bin/env python3
"""millrace.checkpoint over s3://: what was saved comes back, from the bucket and from tiers before it, by one and by two ranks; a kill
at any moment leaves the newest complete checkpoint, and the next save leaves no multipart upload. MR_TEST_FULL=1: 200 kills of savers of
64 MiB states (also MR_KILLS=N); else one, of a smaller one; two ranks in full. MR_S3_URL=s3://BUCKET/PREFIX: against the server of the environment."""

# test-label: once
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from typing import Any

SERVER = os.path.join(os.environ["MR_SOURCE_DIR"], "tests", "s3", "server.sh")
if "S3_TEST_CHILD" not in os.environ and "MR_S3_URL" not in os.environ:  # a server first: the shell starts it, and ends it with us
    script = f'. "{SERVER}"; start_server; make_bucket bucket; trap stop_server EXIT; S3_TEST_CHILD=1 "$@"'
    sys.exit(subprocess.call(["bash", "-c", script, "bash", sys.executable, *sys.argv]))

import front_end  # noqa: E402,F401  (finds the built package, or skips)

import numpy as np  # noqa: E402

from millrace import checkpoint  # noqa: E402

URL = os.environ.get("MR_S3_URL", "s3://bucket/test")
FULL = os.environ.get("MR_TEST_FULL") == "1"
MIB = int(os.environ.get("MR_MIB", "64" if FULL else "9"))


def state(step: int, mib: int = 9) -> dict[str, Any]:
    """Tensors whose content says which step they are of."""
    rows = np.arange(mib << 17, dtype=np.float64) + step
    return {"w": rows[: rows.size // 2], "v": rows[rows.size // 2 :], "step": step}


def check(got: dict[str, Any], step: int, mib: int = 9) -> None:
    """It is the state of that step."""
    want = state(step, mib)
    assert got["step"] == step, (got["step"], step)
    assert np.array_equal(got["w"], want["w"]) and np.array_equal(got["v"], want["v"]), step


def uploads() -> list[Any] | None:
    """Multipart uploads of the server; None: another server's are not told."""
    if "MR_S3_URL" in os.environ:
        return None
    with urllib.request.urlopen(os.environ["AWS_ENDPOINT_URL"] + "/_uploads") as r:
        return json.load(r)


def saves_and_loads() -> None:
    """Save, load, latest; a step again; keep_last."""
    at = f"{URL}/one"
    assert checkpoint.latest(at) is None
    with_tier = tempfile.mkdtemp(dir="/dev/shm")
    for again in range(3 if FULL else 2):
        s = checkpoint.Saver(at, keep_last=2)
        for step in (1, 2, 3) if again == 0 else (2, 3):
            s.save(step, state(step + again))
        s.wait()
        s.close()
        assert checkpoint.latest(at) == 3
        check(checkpoint.load(at), 3 + again)
        check(checkpoint.load(at, step=2), 2 + again)
        check(checkpoint.load(f"{at}/step-000000000002"), 2 + again)
        try:
            checkpoint.load(at, step=1)
            raise AssertionError("step 1 is there")
        except FileNotFoundError:
            pass
    s = checkpoint.Saver(at, keep_last=2, tiers=[with_tier])
    s.save(4, state(4))
    s.close()
    check(checkpoint.load(at), 4)
    check(checkpoint.load(at, tiers=[with_tier]), 4)
    secret = os.environ["AWS_SECRET_ACCESS_KEY"]
    os.environ["AWS_SECRET_ACCESS_KEY"] = "another"
    for look in (lambda: checkpoint.latest(at), lambda: checkpoint.load(at), lambda: checkpoint.load(at, tiers=[with_tier])):
        try:  # what cannot be seen is not absent: a training must not begin anew, or from an older one
            raise AssertionError(f"with a wrong key: {look()}")
        except OSError as e:
            assert not isinstance(e, FileNotFoundError), e
    os.environ["AWS_SECRET_ACCESS_KEY"] = secret
    checkpoint.save(state(5), f"{URL}/simple")
    checkpoint.wait(f"{URL}/simple")
    check(checkpoint.load(f"{URL}/simple"), 5)
    assert not uploads()
    print("saves and loads", flush=True)


CHILD = """
import os, sys
sys.path.insert(0, os.path.dirname(sys.argv[0]))
rank, world, url, job = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
import test_s3_checkpoint as t
from millrace import checkpoint
s = checkpoint.Saver(url, rank=rank, world=world, job=job, commit_timeout_s=60)
for step in (1, 2, 2):
    s.save(step, t.state(step * 10 + rank))
s.close()
"""

KILLED = """
import os, sys
import test_s3_checkpoint as t
from millrace import checkpoint
s = checkpoint.Saver(sys.argv[2], keep_last=2)
step = (checkpoint.latest(sys.argv[2]) or 0) + 1
while True:
    s.save(step, t.state(step, t.MIB))
    s.wait()
    with open(sys.argv[3], "a") as f:
        print(step, file=f)
    step += 1
"""


def child(code: str, *arguments: str) -> "subprocess.Popen[str]":
    """Another process with this file as a module."""
    env = {**os.environ, "S3_TEST_CHILD": "1", "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}
    command = [sys.executable, "-c", code, "child", *arguments]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def two_ranks() -> None:
    """Two processes save together, and each loads its own."""
    at = f"{URL}/two"
    both = [child(CHILD, str(r), "2", at, "job") for r in (0, 1)]
    for p in both:
        _, err = p.communicate(timeout=240)
        assert p.returncode == 0, err
    for r in (0, 1):
        check(checkpoint.load(at, rank=r), 20 + r)
        check(checkpoint.load(at, step=1, rank=r), 10 + r)
    assert not uploads()
    print("two ranks", flush=True)


def kills() -> None:
    """Killed at a random moment: at least the last finished step loads; the next saver goes on."""
    n = int(os.environ.get("MR_KILLS", "200" if FULL else "1"))
    at, seed, told, newest = f"{URL}/kills", int(os.environ.get("MR_SEED", "1")), 0, 0
    rng, log = random.Random(seed), tempfile.mktemp()
    took = 0.0
    for i in range(n):
        began, p = time.monotonic(), child(KILLED, at, log)
        deadline = began + 60
        while i == 0 and not os.path.exists(log) and time.monotonic() < deadline:
            time.sleep(0.01)  # the first one finishes a save: kills fall into its start, its files, its commit, and the next
        took = took or time.monotonic() - began
        time.sleep(rng.uniform(0.1 * took, 1.6 * took))
        assert p.poll() is None, p.communicate()
        p.send_signal(signal.SIGKILL)
        p.communicate()
        with open(log) as f:
            told = max(int(x) for x in f.read().split("\n")[:-1])
        newest_now = checkpoint.latest(at) or 0
        assert newest_now >= told, f"kill {i} (seed {seed}): step {told} was complete, the newest is {newest_now}"
        if newest_now:
            check(checkpoint.load(at), newest_now, MIB)
        newest = newest_now
    s = checkpoint.Saver(at, keep_last=2)
    s.save(newest + 1, state(newest + 1, MIB))
    s.close()
    check(checkpoint.load(at), newest + 1, MIB)
    assert not uploads(), uploads()
    print(f"{n} kills, {newest + 1} steps", flush=True)


if __name__ == "__main__":
    saves_and_loads()
    if FULL:
        two_ranks()
    kills()
