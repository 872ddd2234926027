"""The report on a .pfw agrees with a straightforward recount in Python: counts, bytes, times, and the exact unions. The trace is made here
in the flavours DFTracer has written; MR_EXAMPLE_PFW names a real one to check as well."""
import collections
import gzip
import json
import os
import random
import subprocess
import tempfile

MILLRACE = os.environ["MILLRACE"]
SAME = {"lseek64": "lseek", "open64": "open", "__fxstat64": "fstat", "__xstat64": "stat"}


def union(intervals):
    out = []
    for start, end in sorted(i for i in intervals if i[0] < i[1]):
        if out and start <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([start, end])
    return out


def length(v):
    return sum(e - s for s, e in v)


def common(a, b):
    i = k = total = 0
    while i < len(a) and k < len(b):
        total += max(0, min(a[i][1], b[k][1]) - max(a[i][0], b[k][0]))
        if a[i][1] < b[k][1]:
            i += 1
        else:
            k += 1
    return total


def recount(path):
    counts, times, files = collections.Counter(), collections.Counter(), set()
    io, compute, read, first, last = [], [], 0, 1 << 62, 0
    names = {}
    texts = [s for s in (line.strip().rstrip(",") for line in gzip.open(path, "rt")) if s.startswith("{") and s.endswith("}")]
    lines = [json.loads(s) for s in dict.fromkeys(texts)]  # what a forked process wrote again, with its id, counts once
    for o in lines:
        if o["name"] == "FH":
            names[str(o["args"]["value"])] = o["args"]["name"]
    for o in lines:
        if str(o.get("ph")) not in ("X", "1"):
            continue
        name = SAME.get(o["name"], o["name"]) if o["cat"] == "POSIX" else o["name"]
        start, dur, args = int(o["ts"]), int(o["dur"]), o.get("args", {})
        counts[o["cat"], name] += 1
        times[o["cat"], name] += dur
        first, last = min(first, start), max(last, start + dur)
        if o["cat"] == "POSIX":
            io.append((start, start + dur))
            read += int(args["ret"]) if name in ("read", "pread") and int(args["ret"]) >= 0 else 0
            file = args.get("fname") or names.get(str(args.get("fhash")))
            if file:
                files.add(file)
        if "compute" in o["name"]:
            compute.append((start, start + dur))
    io, compute = union(io), union(compute)
    return {"functions": {k: (counts[k], times[k] * 1000) for k in counts}, "read_bytes": read, "events": sum(counts.values()),
            "files": len(files), "total_time_ns": (last - first) * 1000, "io_ns": length(io) * 1000, "compute_ns": length(compute) * 1000,
            "unoverlapped_io_ns": (length(io) - common(io, compute)) * 1000,
            "unoverlapped_compute_ns": (length(compute) - common(io, compute)) * 1000}


def quantile(v, q):
    """Of a sorted list, as NumPy does it."""
    place = q * (len(v) - 1)
    low, high = v[int(place)], v[min(int(place) + 1, len(v) - 1)]
    return low + (high - low) * (place - int(place))


def told(command, cut):
    """What the command prints; a file with a cut line is a part of a trace, status 6."""
    done = subprocess.run(command, stdout=subprocess.PIPE)
    assert done.returncode == (6 if cut else 0), (command, done.returncode)
    return done.stdout


def check_part(path, start, stop):
    """Quantiles of durations, and who was there, in a part of the run; `start` and `stop` in us from its begin."""
    lines = [json.loads(s) for s in (line.strip().rstrip(",") for line in gzip.open(path, "rt")) if s.startswith("{") and s.endswith("}")]
    events = [dict(o, ts=int(o["ts"]), dur=int(o["dur"])) for o in lines if str(o.get("ph")) in ("X", "1")]
    first = min(o["ts"] for o in events)
    reach = [o for o in events if o["ts"] < first + stop and (o["ts"] + o["dur"] > first + start or o["ts"] >= first + start)]
    by_name = collections.defaultdict(list)
    for o in reach:
        if o["ts"] >= first + start:
            by_name[o["cat"], SAME.get(o["name"], o["name"]) if o["cat"] == "POSIX" else o["name"]].append(o["dur"] * 1000)
    command = [MILLRACE, "report", "--json", "--time", "%.6f:%.6f" % (start / 1e6, stop / 1e6), path]
    have = json.loads(told(command, True))
    for f in have["functions"]:
        times = sorted(by_name.pop((f["category"], f["name"])))
        for key, q in (("p25_ns", 0.25), ("p50_ns", 0.5), ("p75_ns", 0.75), ("p99_ns", 0.99)):
            assert abs(f[key] - quantile(times, q)) <= quantile(times, q) / 32 + 1, (path, f["name"], key, f[key], times)
    assert not by_name, by_name
    assert have["processes"] == len({o["pid"] for o in reach}) and have["threads"] == len({(o["pid"], o["tid"]) for o in reach}), have
    total = min(first + stop, max(o["ts"] + o["dur"] for o in reach)) - max(first + start, min(o["ts"] for o in reach)) if reach else 0
    assert have["total_time_ns"] == total * 1000 and have["io_ns"] <= have["total_time_ns"], (total, have["total_time_ns"], have["io_ns"])


def make(path, quoted, numeric, hashes):
    rng = random.Random(7)
    word = (lambda v: str(v)) if quoted else (lambda v: v)
    with gzip.open(path, "wt") as f:
        f.write("" if numeric else "[\n")
        t = 1700000000000000
        for i in range(3000):
            t += rng.randrange(40)
            pid, tid = rng.choice([(1, 1), (1, 2), (9, 9)])
            kind = rng.randrange(10)
            name = "x%d" % rng.randrange(30)
            where = {"fhash": "ab%s" % name} if hashes else {"fname": "/d/" + name}
            common_part = {"id": word(i), "pid": word(pid), "tid": word(tid), "ts": word(t), "dur": word(rng.randrange(90)), "ph": 1 if numeric else "X"}
            if kind < 6:
                o = dict(common_part, name=rng.choice(["read", "pread"]), cat="POSIX", args=dict(where, hostname="h", ret=word(rng.choice([-1, 0, 4096, 100])), count=word(4096), fd=4))
            elif kind < 8:
                o = dict(common_part, name=rng.choice(["lseek64", "open64", "__xstat64", "close"]), cat="POSIX", args=dict(where, hostname="h", ret=word(3)))
            else:
                o = dict(common_part, name=rng.choice(["Torch.compute", "Reader.get", 'odd "name"\\']), cat="app", args={"hostname": "h", "epoch": 3})
            f.write(json.dumps(o) + ("," if i % 3 == 0 else "") + "\n")
        for i in range(30):
            f.write(json.dumps({"name": "FH", "cat": "dftracer", "pid": 1, "tid": 1, "ph": 4 if numeric else "M", "args": {"name": "/d/x%d" % i, "value": "abx%d" % i}}) + "\n")
        f.write('{"id":1,"name":"cut of')


def check(path, cut=True):
    want = recount(path)
    out = told([MILLRACE, "report", "--json", path], cut)
    have = json.loads(out)
    functions = {(f["category"], f["name"]): (f["count"], f["time_ns"]) for f in have["functions"]}
    assert functions == want.pop("functions"), set(functions.items())
    for key, value in want.items():
        assert have[key] == value, (path, key, have[key], value)


with tempfile.TemporaryDirectory() as folder:
    for flavour in range(8):
        name = os.path.join(folder, "f%d.pfw.gz" % flavour)
        make(name, flavour & 1, flavour & 2, flavour & 4)
        check(name)
        for part in ((0, 10**6), (3000, 3040), (3000, 3300), (30000, 30100)):
            check_part(name, *part)
    left = [told([MILLRACE, "report", "--json", "--path", p, name], True)
            for p in ("/d/", "/d/*", "/d/{x1,x2}", "/d/x[12]", "/[d]/x1")]
    assert left[0] == left[1] and left[2] == left[3] and [json.loads(one)["files"] for one in left] == [30, 30, 2, 2, 1], left
if os.environ.get("MR_EXAMPLE_PFW"):
    check(os.environ["MR_EXAMPLE_PFW"], cut=False)
print("recount agrees")
