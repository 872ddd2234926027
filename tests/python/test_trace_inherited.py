"""What a call inherits from the annotations around it, in the CSV export: of random spans, nested and overlapping, against a plain search through
all of them; and in a real program with regions, facts, threads and a forked child. Standard library only."""
import collections
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import textwrap

MILLRACE = os.environ["MILLRACE"]
PYTHON = os.path.join(os.environ["MR_BINARY_DIR"], "python")
T0 = 1700000000000000


def rows_of(trace):
    out = trace + ".csv"
    subprocess.run([MILLRACE, "export", "--quiet", "-f", "csv", "-o", out, trace], check=True)
    with open(out, newline="", encoding="utf-8", errors="surrogateescape") as f:
        return [dict(r, inherited=json.loads(r["inherited"] or "{}"), args=json.loads(r["args"] or "{}")) for r in csv.DictReader(f)]


def made_up(folder):
    rng = random.Random(3)
    events, used = [], set()
    for i in range(3000):
        tid, start, dur = rng.randrange(1, 4), rng.randrange(4000), rng.choice((0, 1, 3, 10, 50, 400, 2000))
        span = rng.random() < 0.4
        if (tid, start, dur) in used:  # which of two alike is the outer one, only their order says
            continue
        used.add((tid, start, dur))
        args = {key: rng.randrange(100) for key in rng.sample(("epoch", "step", "batch", "own"), rng.randrange(4))} if span else {}
        events.append((tid, start, start + dur, span, args))
    facts = [(rng.randrange(4000), {rng.choice(("epoch", "model")): n}) for n in range(40)]
    facts = list({when: (when, what) for when, what in facts}.values())
    name = os.path.join(folder, "made.pfw")
    with open(name, "w") as f:
        for when, what in facts:
            (key, value), = what.items()
            f.write(json.dumps({"name": "CM", "cat": "dftracer", "pid": 1, "tid": 1, "ts": T0 + when, "ph": "M", "args": {"name": key, "value": value}}) + "\n")
        for i, (tid, start, end, span, args) in enumerate(events):
            f.write(json.dumps({"id": i, "name": "s%d" % i if span else "read", "cat": "app" if span else "POSIX", "pid": 1, "tid": tid, "ts": T0 + start,
                                "dur": end - start, "ph": "X", "args": args if span else {"ret": 1, "fd": i % 1000}}) + "\n")

    def wanted(i):
        tid, start, end, _, own = events[i]
        around = [(s, -e, args) for k, (t, s, e, span, args) in enumerate(events) if span and k != i and t == tid and s <= start < e and e >= end]
        out = {}
        for _, what in sorted(facts, key=lambda f: f[0]):
            if _ <= start:
                out.update(what)
        for _, _, args in sorted(around, key=lambda a: a[:2]):  # by start, of those that start together the longer one first
            out.update(args)
        return {key: value for key, value in out.items() if key not in own}

    want, have = collections.Counter(), collections.Counter()
    for i, (tid, start, end, span, args) in enumerate(events):
        want[tid, start, end - start, "s%d" % i if span else "read", str(sorted(wanted(i).items()))] += 1
    for r in rows_of(name):
        if r["name"] != "metadata":
            have[int(r["tid"]), int(r["start_unix_ns"]) // 1000 - T0, int(r["dur_ns"]) // 1000, r["name"], str(sorted(r["inherited"].items()))] += 1
    assert want == have, (list((want - have).items())[:3], list((have - want).items())[:3])
    print("ok", sum(want.values()), "made up")


PROGRAM = """
import multiprocessing, os, sys, threading
from millrace import trace

def look(name):
    os.access(os.path.join(sys.argv[1], name), os.R_OK)

def child():
    look("child")
    trace.metadata(epoch=9)
    look("child later")

trace.metadata(model="m", epoch=0)
with trace.region("epoch", epoch=1):
    with trace.region("step", step=2, batch="b") as r:
        look("in step")
        r.update(loss=0.5, batch="c")
        with trace.region("inner", step=100):
            look("inner")
    look("between")
    t = threading.Thread(target=look, args=("thread",))
    t.start()
    t.join()
trace.metadata(epoch=7)
look("after")
p = multiprocessing.get_context("fork").Process(target=child)
p.start()
p.join()
with trace.timed("snippet", epoch=3):
    look("timed")
"""

INHERITED = {
    "in step": {"model": "m", "epoch": 1, "step": 2, "batch": "c", "loss": 0.5},
    "inner": {"model": "m", "epoch": 1, "step": 100, "batch": "c", "loss": 0.5},
    "between": {"model": "m", "epoch": 1},
    "thread": {"model": "m", "epoch": 0},
    "after": {"model": "m", "epoch": 7},
    "child": {"model": "m", "epoch": 7},
    "child later": {"model": "m", "epoch": 9},
    "timed": {"model": "m", "epoch": 3},
}


def real(folder):
    if not os.path.exists(os.path.join(PYTHON, "millrace", "trace", "_trace.abi3.so")) or sys.version_info < (3, 10):
        print("the extension is not built for this Python: no real program")
        return
    script, trace = os.path.join(folder, "s.py"), os.path.join(folder, "t.mrt")
    with open(script, "w") as f:
        f.write(textwrap.dedent(PROGRAM))
    subprocess.run([MILLRACE, "trace", "--quiet", "-o", trace, "--", sys.executable, script, folder], check=True, env=dict(os.environ, PYTHONPATH=PYTHON))
    found = {os.path.basename(r["file"]): r["inherited"] for r in rows_of(trace) if r["name"] == "access" and os.path.dirname(r["file"]) == folder}
    assert {name: found.get(name) for name in INHERITED} == INHERITED, found
    print("ok", len(INHERITED), "real")


with tempfile.TemporaryDirectory() as work:
    made_up(work)
    real(os.path.realpath(work))
