"""One list of events in every spelling that DFTracer's .pfw has had, and in gzip files that are joined, cut or damaged: all say the same.
And annotations with every type of value through .pfw.gz and back. Standard library only."""
import collections
import csv
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile

MILLRACE = os.environ["MILLRACE"]
PYTHON = os.path.join(os.environ["MR_BINARY_DIR"], "python")
T0 = 1700000000000000
CALLS = (("POSIX", "read", "read"), ("POSIX", "pread64", "pread"), ("POSIX", "__xstat", "stat"), ("STDIO", "fopen64", "fopen"), ("POSIX", "lseek64", "lseek"))


def events():
    """Host, pid, tid, start us, duration us, category, name, name as we call it, file, result."""
    out = []
    for i in range(200):
        cat, name, ours = CALLS[i % 5]
        out.append((i % 3 // 2, 100 + i % 3, 100 + i % 3 + i % 2 * 1000, T0 + i * 10, i * 7 % 30, cat, name, ours, i % 7, (0, 1, 4096, -2)[i % 4]))
    return out


def lines(hexadecimal=False, quoted=False, ph="X", meta="M", unit=1, base=0):
    """As dictionaries, one per line: hosts, ranks and files by hash, then the events."""

    def mark(n):
        n = n * 0x9E3779B97F4A7C15 % 2**64
        return "%016x" % n if hexadecimal else n

    def fact(kind, pid, name, value, host):
        return {"id": 0, "name": kind, "cat": "dftracer", "pid": pid, "tid": pid, "ph": meta, "args": {"hhash": mark(70 + host), "name": name, "value": value}}

    out = [fact("HH", 100, "host0", mark(70), 0), fact("HH", 102, "host1", mark(71), 1)]
    out += [fact("PR", 100 + r, "rank", r, r // 2) for r in range(3)]
    out += [fact("FH", 100, "/data/fil\u00e9 \"%d" % n, mark(n + 1), 0) for n in range(7)]
    for i, (host, pid, tid, ts, dur, cat, name, _, file, result) in enumerate(events()):
        ts, dur = (ts - base) * unit, dur * unit
        args = {"hhash": mark(70 + host), "p_idx": -1, "level": 1, "ret": result, "fhash": mark(file + 1), "count": 4096, "fd": 4}
        out.append({"id": i, "name": name, "cat": cat, "pid": pid, "tid": tid, "ts": str(ts) if quoted else ts, "dur": str(dur) if quoted else dur,
                    "ph": ph, "args": args})
    return out


def told(*traces, **how):
    """The report on a trace; status 6 says that some of it could not be read, and why."""
    done = subprocess.run([MILLRACE, "report", "--json", *traces], capture_output=True, **how)
    assert done.returncode in (0, 6), done
    return done


def read(path):
    """What the CSV export says about a trace, and how much of it could not be read."""
    out = path + ".csv"
    subprocess.run([MILLRACE, "export", "--quiet", "-f", "csv", "-o", out, path], check=True)
    with open(out, newline="", encoding="utf-8", errors="surrogateescape") as f:
        rows = list(csv.DictReader(f))
    report = json.loads(told(path).stdout)
    return rows, report["skipped_lines"], report["skipped_bytes"]


def content(rows, shift=0):
    return sorted((r["host"], int(r["rank"]), int(r["pid"]), int(r["tid"]), int(r["start_unix_ns"]) + shift, int(r["dur_ns"]), r["category"],
                   r["name"], r["file"], int(r["result"])) for r in rows)


def wanted():
    return sorted(("host%d" % e[0], e[1] - 100, e[1], e[2], e[3] * 1000, e[4] * 1000, e[5], e[7], "/data/fil\u00e9 \"%d" % e[8], e[9]) for e in events())


def flavours(folder):
    text = [json.dumps(x, separators=(",", ":")) for x in lines()]
    classic = "[\n" + "\n".join(text) + "\n]"
    spaced = "[\n" + "\n".join(json.dumps(x, ensure_ascii=False) for x in lines()) + "\n]"
    other = {
        "hex": lines(hexadecimal=True), "quoted": lines(quoted=True), "numeric": lines(hexadecimal=True, ph=1, meta=4), "ns": lines(unit=1000),
        "late names": lines()[12:] + lines()[:12],
    }
    whole = gzip.compress(classic.encode())
    thirds = [("\n".join(text[a:b]) + "\n").encode() for a, b in ((0, 80), (80, 150), (150, None))]
    members = [gzip.compress(part) for part in thirds]
    broken = members[1][:len(members[1]) // 2] + b"\0" * 20 + members[1][len(members[1]) // 2 + 20:]
    files = {
        "classic.pfw": classic, "commas.pfw": "[\n" + ",\n".join(text) + "\n]", "one line.pfw": "[" + ",".join(text) + "]", "spaced.pfw": spaced,
        "wrapped.pfw": '{"traceEvents":[' + ",\n".join(text) + '],"displayTimeUnit":"ns"}', "crlf.pfw": classic.replace("\n", "\r\n"),
        "mark.pfw": "\ufeff" + classic, "unclosed.pfw": "\n".join(text), "indented.pfw": json.dumps(lines(), indent=2), "tabs.pfw": json.dumps(lines(), indent="\t", ensure_ascii=False).replace("\n", "\r\n"),
        "cut line.pfw": classic[:-2] + "\n" + text[-1][:60],
        "whole.pfw.gz": whole, "members.pfw.gz": b"".join(members) + gzip.compress(b""), "padded.pfw.gz": whole + b"\0" * 512, "no end.pfw.gz": whole[:-8],
    }
    files.update((name + ".pfw", "\n".join(json.dumps(x) for x in one)) for name, one in other.items())
    for name, data in files.items():
        path = os.path.join(folder, name)
        with open(path, "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())
        rows, skipped, passed = read(path)
        assert content(rows) == wanted(), (name, len(rows), [r for r in content(rows) if r not in wanted()][:2])
        assert (skipped, passed) == ((1, 60) if name == "cut line.pfw" else (0, 0)), (name, skipped, passed)
    for base in (T0, T0 - 5 * 10**8, T0 - 2 * 10**11):  # since some start, in us
        path = os.path.join(folder, "since.pfw")
        with open(path, "w") as f:
            f.write("\n".join(json.dumps(x) for x in lines(base=base)))
        assert content(read(path)[0], base * 1000) == wanted(), base
    for hexadecimal in (False, True):  # names of hosts and files in a file of their own, as after a fork
        apart = os.path.join(folder, "apart")
        os.makedirs(apart, exist_ok=True)
        both = lines(hexadecimal=hexadecimal)
        for name, part in (("a", both[5:12]), ("b", both[2:5] + both[12:]), ("c", both[:2])):
            with open(os.path.join(apart, name + ".pfw"), "w") as f:
                f.write("\n".join(json.dumps(x) for x in part))
        rows = read(apart)[0]
        assert content(rows) == wanted(), [r for r in content(rows) if r not in wanted()][:2]
    path = os.path.join(folder, "host.pfw")
    with open(path, "w") as f:
        for i in range(6):
            f.write(json.dumps({"id": i, "name": "x", "cat": "c", "pid": i % 3, "tid": 1, "ts": T0 + i, "dur": 5, "ph": "X", "args": {"hostname": "a\0b"}}) + "\n")
    report = json.loads(told(path).stdout)
    assert report["nodes"] == 1 and report["processes"] == 3, report
    # Without DFTRACER_INC_METADATA there is no result: neither a failure nor a size, and still not after an export.
    path = os.path.join(folder, "bare.pfw")
    with open(path, "w") as f:
        for i, name in enumerate(("read", "write", "open64")):
            f.write(json.dumps({"id": i, "name": name, "cat": "POSIX", "pid": 1, "tid": 1, "ts": T0 + i * 10, "dur": 5, "ph": "X"}) + "\n")
        f.write(json.dumps({"id": 3, "name": "read", "cat": "POSIX", "pid": 1, "tid": 1, "ts": T0 + 40, "dur": 5, "ph": "X", "args": {"ret": 7, "fname": "/f"}}) + "\n")
    for kind in ("pfw", "chrome"):
        subprocess.run([MILLRACE, "export", "-f", kind, "-o", path + "." + kind, path], check=True)
    for one in (path, path + ".pfw", path + ".chrome"):
        rows = read(one)[0]
        assert [(r["name"], r["result"], r["requested_bytes"]) for r in rows] == [("read", "", ""), ("write", "", ""), ("open", "", ""), ("read", "7", "7")], (one, rows)
        report = json.loads(told(one).stdout)
        found = {f["name"]: (f["count"], f["errors"], f.get("size_count")) for f in report["functions"]}
        assert found == {"read": (2, 0, 1), "write": (1, 0, None), "open": (1, 0, None)} and report["read_bytes"] == 7 and report["write_calls"] == 0, (one, found)
    path = os.path.join(folder, "damaged.pfw.gz")
    with open(path, "wb") as f:
        f.write(members[0] + broken + members[2])
    rows, skipped, passed = read(path)
    got = content(rows)
    last = {tuple(r) for r in wanted()} & {tuple(r) for r in got}
    assert passed > 0 and 138 - 12 <= len(last) < 200 and len(last) == len(got), (passed, skipped, len(last), len(got))
    for data, said in ((whole[:len(whole) // 2], True), (whole, False), (b"".join(members), False), (b"".join(members)[:-20], True)):
        with open(path, "wb") as f:
            f.write(data)
        done = told(path, text=True)
        assert ("is truncated" in done.stderr) == said, (said, done.stderr)
    print("ok flavours", len(files) + 4)


ANNOTATED = r"""
import os, sys
from millrace import trace
trace.metadata(model="m", epochs=3, lr=0.1)
trace.metadata(a=1)
trace.metadata(a="1")
with trace.region("x", hostname="h", hhash=3, level=4, fname="f", s="007", whole="12", minus="-5", f=3.0, key="a", big=2**64 - 1, tenth=0.1, nan=float("nan")) as r:
    r.update(level=5)
trace.counter("c", 3)
trace.counter("c", float("inf"))
trace.instant("i", level=1)
with trace.region("data.io.read", category="data"):
    pass
with open("from", "wb") as f, open("to", "wb") as g:
    f.write(b"x" * 1000)
    f.flush()
    with open("from", "rb") as r:
        os.sendfile(g.fileno(), r.fileno(), 0, 600)
"""


def alike(folder):
    """Lines that differ from the one before in a few values, at random. One per line they are read by what they have in common, all on one line each for itself."""
    rng = random.Random(11)
    values = {
        "id": (lambda: rng.randrange(10**rng.randrange(1, 12))), "pid": (lambda: rng.choice((1, 12, 123))), "tid": (lambda: rng.choice((1, 12, 121))),
        "ts": (lambda: T0 + rng.randrange(10**rng.randrange(1, 8))), "dur": (lambda: rng.choice((0, 5, 50, 12345678, 123456789012345678))),
        "name": (lambda: rng.choice(("read", "pread", "write", "step"))), "cat": (lambda: rng.choice(("POSIX", "app"))), "ph": (lambda: "X"),
    }
    facts = {
        "hostname": (lambda: rng.choice(("a", "ab"))), "ret": (lambda: rng.choice((0, 7, 77, -1, 4096, 10**15, 10**16, 123456789012345678))),
        "offset": (lambda: rng.randrange(10**rng.randrange(1, 18))), "fname": (lambda: "/d/" + rng.choice(("a", "aa", "b\n\"", "a" * 40, "\u00e9\\"))),
        "fd": (lambda: rng.choice((3, 33))), "count": (lambda: rng.choice((1, 4096))), "epoch": (lambda: rng.choice((1, 12, -12, 0.5, "1", "x", None, True, 2**63))),
        "step": (lambda: rng.randrange(-1000, 1000)), "deep": (lambda: {"a": [1, "}"]}),
    }
    kinds = []
    for _ in range(12):
        some = rng.sample(sorted(facts), rng.randrange(len(facts)))
        kinds.append((rng.sample(sorted(values), len(values)), some, rng.sample(sorted(values) + some, rng.randrange(1, 5))))
    lines, seen, count = [], {}, 0
    for _ in range(150):
        kind = rng.randrange(len(kinds))
        members, some, changing = kinds[kind]
        for k in range(rng.choice((1, 2, 40))):
            now = seen.setdefault(kind, {})
            often = rng.random() < 0.1
            for key in members + some:
                if key not in now or key in changing or (often and rng.random() < 0.2):
                    now[key] = (values if key in values else facts)[key]()
            event = {key: now[key] for key in members}
            event["args"] = {key: now[key] for key in some}
            lines.append(json.dumps(event, separators=rng.choice(((",", ":"), (",", ":"), (", ", ": ")))))
            count += 1
    out = []
    for name, text in (("lines", "[\n" + "\n".join(lines) + "\n]\n"), ("objects", "[" + ",".join(lines) + "]")):
        path = os.path.join(folder, name + ".pfw")
        with open(path, "w") as f:
            f.write(text)
        csv_text = subprocess.run([MILLRACE, "export", "--quiet", "-f", "csv", "-o", "-", path], check=True, capture_output=True).stdout
        out.append(csv_text)
    assert len(out[0]) > 50 * count
    assert out[0] == out[1], next((a, b) for a, b in zip(out[0].splitlines(), out[1].splitlines()) if a != b)
    print("ok alike", count)


def many_files(folder):
    """A folder of files, read by one thread and by several, some named twice: the same report. One of them is no trace."""
    place = os.path.join(folder, "many")
    os.mkdir(place)
    every = lines()
    facts, rest = [e for e in every if e["ph"] == "M"], [e for e in every if e["ph"] != "M"]
    for n in range(20):  # the names are in the first one only
        some = [json.dumps(e) for e in (facts if n == 0 else []) + rest[n::20]]
        with (gzip.open if n % 2 else open)(os.path.join(place, "%02d.pfw%s" % (n, ".gz" if n % 2 else "")), "wt") as f:
            f.write("[\n" + "\n".join(some) + "\n]\n")
    with open(os.path.join(place, "10a.pfw"), "w") as f:
        f.write("nothing")
    reports = set()
    for arguments in (["--threads", "1", place], ["--threads", "8", place], [place, os.path.join(place, "03.pfw.gz"), place]):
        out = told(*arguments, text=True)
        assert out.stderr.count("10a.pfw") == 1 and ": skipped" in out.stderr, out.stderr
        reports.add(out.stdout)
    assert len(reports) == 1, reports
    report = json.loads(reports.pop())
    assert report["events"] == 200 and report["files"] == 7 and report["processes"] == 3, report
    print("ok many files")


def annotations(folder):
    if not os.path.exists(os.path.join(PYTHON, "millrace", "trace", "_trace.abi3.so")) or sys.version_info < (3, 10):
        print("the extension is not built for this Python: no annotations")
        return
    script, trace, back = (os.path.join(folder, n) for n in ("s.py", "t.mrt", "t.pfw.gz"))
    with open(script, "w") as f:
        f.write(ANNOTATED)
    env = dict(os.environ, PYTHONPATH=PYTHON, RANK="3", WORLD_SIZE="4")
    subprocess.run([MILLRACE, "trace", "--quiet", "-o", trace, "--", sys.executable, script], check=True, env=env, cwd=folder)
    subprocess.run([MILLRACE, "export", "--quiet", "-f", "pfw", "-o", back, trace], check=True)

    def rounded(rows):
        out = collections.Counter()
        for r in rows:
            start = int(r.pop("start_unix_ns"))
            end = start + int(r.pop("dur_ns"))
            out[start // 1000, end // 1000, tuple(r.items())] += 1
        return out

    there, again = rounded(read(trace)[0]), rounded(read(back)[0])
    assert there == again, (list((there - again))[:2], list((again - there))[:2])
    x = next(dict(k[2]) for k in there if dict(k[2])["name"] == "x")
    assert x["args"] == ('{"hostname":"h","hhash":3,"level":5,"fname":"f","s":"007","whole":"12","minus":"-5","f":3.0,"key":"a","big":18446744073709551615,'
                         '"tenth":0.1,"nan":null}'), x["args"]
    for options in ((), ("--time", "0:100000"), ("--rank", "3")):  # by blocks' own counts and event by event
        command = [MILLRACE, "report", "--json", "--top", "100000", *options, trace]
        report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        assert report["events"] == sum(there.values()) == sum(r["events"] for r in report["ranks"]), (options, report["events"])
        files = {os.path.basename(f["path"]): (f["read_bytes"], f["written_bytes"]) for f in report["top_files"]}
        assert files["from"] == (600, 1000), files["from"]
        assert report["app_io_ns"] > 0
    print("ok annotations", sum(there.values()))


with tempfile.TemporaryDirectory() as work:
    flavours(work)
    alike(work)
    many_files(work)
    annotations(work)
