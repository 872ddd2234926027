"""Exports of a trace with hostile file names: every name survives, the Chrome JSON is strict JSON, the .pfw.gz comes back event for event,
and the Perfetto protobuf keeps the rules of its trace processor (interned ids defined before use, stacks that balance on every track)."""
import collections
import csv
import gzip
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import unicodedata

MILLRACE = os.environ["MILLRACE"]
NAMES = [b"plain", b"new\nline", b'quote"s', b"back\\slash", b"tab\tand\x01control\x7f", b"not \xff\xfe utf-8", "umlaut \u00e4 \U0001f600".encode(), b"comma, semi;", b"'", "private \uef80".encode(),
         "line\u0085s of \u2028Unicode\u2029".encode()]

SCRIPT = r"""
import os, sys
d = os.fsencode(sys.argv[1])
for name in %r:
    fd = os.open(os.path.join(d, name), os.O_CREAT | os.O_RDWR, 0o600)
    os.write(fd, b"x" * 100)
    os.pread(fd, 50, 10)
    os.close(fd)
os.rename(os.path.join(d, b"plain"), os.path.join(d, b'moved "\xff\n'))
""" % (NAMES,)


def cell(path):
    """A path as a CSV cell shows it: what could act in a terminal or end a line is \\xNN, byte by byte."""
    hidden = re.compile(rb"[\x00-\x1f\x7f]|\xc2\x85|\xe2\x80[\xa8\xa9]")
    return hidden.sub(lambda m: b"".join(b"\\x%02x" % byte for byte in m.group()), path)


def export(trace, kind, to):
    subprocess.run([MILLRACE, "export", "-f", kind, "-o", to, trace], check=True)
    assert os.stat(to).st_mode & 0o777 == 0o600
    return to


def damaged(trace, mark, place):
    """A copy in which a bit of every block of that kind is wrong."""
    with open(trace, "rb") as f:
        data = bytearray(f.read())
    at = data.find(mark)
    while at >= 0:
        data[at + place] ^= 1
        at = data.find(mark, at + 1)
    hurt = os.path.join(os.path.dirname(trace), "hurt.mrt")
    with open(hurt, "wb") as f:
        f.write(data)
    return hurt


def csv_rows(path):
    with open(path, newline="", encoding="utf-8", errors="surrogateescape") as f:
        return list(csv.DictReader(f))


# ---- a small protobuf reader ----
def varint(b, i):
    v = s = 0
    while True:
        c = b[i]
        i += 1
        v |= (c & 127) << s
        s += 7
        if c < 128:
            return v, i


def fields(b):
    i = 0
    while i < len(b):
        key, i = varint(b, i)
        kind = key & 7
        if kind == 0:
            v, i = varint(b, i)
        elif kind == 1:
            v, i = b[i:i + 8], i + 8
        elif kind == 2:
            n, i = varint(b, i)
            v, i = b[i:i + n], i + n
            assert len(v) == n
        else:
            raise AssertionError("wire type %d" % kind)
        yield key >> 3, v


def signed(v):
    return v - (1 << 64) if v >= 1 << 63 else v


def check_perfetto(data, want_slices, want_counters):
    interned, described = collections.defaultdict(dict), set()
    events, texts, counters = collections.defaultdict(list), set(), 0
    for number, packet in fields(data):
        assert number == 1
        f = collections.defaultdict(list)
        for k, v in fields(packet):
            f[k].append(v)
        seq = f[10][0]
        if f[13][0] & 1:
            interned[seq] = {}
        table = interned[seq]
        for d in f[60]:
            t = dict(fields(d))
            described.add(t[1])
            assert t.get(5, t[1]) in described, "parent track unknown"
        for d in f[12]:
            for kind, entry in fields(d):
                e = dict(fields(entry))
                assert (kind, e[1]) not in table, "interned twice"
                table[kind, e[1]] = e[2]
                if kind != 29:
                    e[2].decode()  # strings must be UTF-8
        for d in f[11]:
            e = collections.defaultdict(list)
            for k, v in fields(d):
                e[k].append(v)
            kind, track = e[9][0], e[11][0]
            assert track in described and f[8], "event without track or time"
            if kind == 4:
                counters += 1
                assert struct.unpack("<d", e[44][0])
                continue
            if kind != 2:
                assert table[1, e[3][0]] and (2, e[10][0]) in table
                for a in e[4]:
                    note = dict(fields(a))
                    assert (3, note[1]) in table
                    if 17 in note:
                        texts.add(table[29, note[17]])
            events[track].append((f[8][0], len(events[track]), kind))
    slices = 0
    for list_of in events.values():
        depth = 0
        for _, _, kind in sorted(list_of):
            if kind == 1:
                depth, slices = depth + 1, slices + 1
            elif kind == 2:
                depth -= 1
            assert depth >= 0, "an end without a begin"
        assert depth == 0, "an open slice"
    assert slices == want_slices, (slices, want_slices)
    assert counters == want_counters
    return texts


with tempfile.TemporaryDirectory() as folder:
    work = os.path.join(folder, "work")
    os.mkdir(work)
    trace = os.path.join(folder, "t.mrt")
    subprocess.run([MILLRACE, "trace", "--quiet", "-o", trace, "--include", work + "/*", "--", sys.executable, "-c", SCRIPT, work], check=True)
    rows = csv_rows(export(trace, "csv", os.path.join(folder, "t.csv")))
    paths = {os.fsencode(r["file"]) for r in rows}
    for name in NAMES:
        assert cell(os.path.join(os.fsencode(work), name)) in paths, name
    moved = [json.loads(r["args"]) for r in rows if r["name"] == "rename"]
    assert moved == [{"file2": os.path.join(work, 'moved "\\xff\n')}], moved
    reads = [r for r in rows if r["name"] == "pread"]
    assert len(reads) == len(NAMES) and all(r["offset_bytes"] == "10" and r["result"] == "50" for r in reads)

    with open(export(trace, "chrome", os.path.join(folder, "t.json")), encoding="utf-8") as f:
        chrome = json.load(f)["traceEvents"]  # strict: control characters or bad escapes would fail
    spans = [e for e in chrome if e["ph"] == "X"]
    assert len(spans) == len(rows)
    assert min(e["ts"] for e in spans) >= 0 and any("\\xff" in e["args"].get("fname", "") for e in spans)

    shown = subprocess.run([MILLRACE, "report", "--tables", "--top", "100", trace], check=True, stdout=subprocess.PIPE).stdout.decode()  # all of it is UTF-8
    assert all(c == "\n" or unicodedata.category(c) != "Cc" for c in shown) and "/not \\xff\\xfe utf-8" in shown and "/line\\xc2\\x85s" in shown, shown

    pfw = export(trace, "pfw", os.path.join(folder, "t.pfw.gz"))
    with gzip.open(pfw, "rt", encoding="utf-8") as f:
        lines = [json.loads(s) for s in f.read().splitlines() if s.startswith("{")]  # which splits at all that Unicode calls a line's end
    assert len(lines) == len(rows)
    for line in lines:
        json.dumps(line, ensure_ascii=False).encode()  # strict parsers refuse lone surrogates
    back = csv_rows(export(pfw, "csv", os.path.join(folder, "back.csv")))

    def content(r):
        return (r["host"], r["pid"], r["tid"], int(r["start_unix_ns"]) // 1000, r["category"], r["name"], r["file"], r["offset_bytes"], r["result"],
                r["requested_bytes"], r["fd"], r["args"])

    assert sorted(map(content, rows)) == sorted(map(content, back)), "round trip through .pfw.gz"

    with open(export(trace, "perfetto", os.path.join(folder, "t.pftrace")), "rb") as f:
        texts = check_perfetto(f.read(), len(rows), 0)
    for name in NAMES:
        assert os.path.join(os.fsencode(work), name) in texts, name

    # Nested and overlapping spans, counters: an imported trace has them all.
    made = os.path.join(folder, "n.pfw")
    with open(made, "w") as f:
        f.write("[\n")
        for i, (start, dur) in enumerate([(0, 100), (10, 20), (10, 20), (40, 100), (50, 10), (130, 0), (130, 50)]):
            f.write(json.dumps({"name": "s%d" % i, "cat": "c", "pid": 1, "tid": 1, "ts": 1700000000000000 + start, "dur": dur, "ph": "X", "args": {"k": 1.5, "t": "x"}}) + "\n")
        for i in range(3):
            f.write(json.dumps({"name": "q", "cat": "c", "pid": 1, "tid": 1, "ts": 1700000000000000 + i, "ph": "C", "args": {"value": i}}) + "\n")
        f.write(json.dumps({"name": "CM", "cat": "dftracer", "pid": 1, "tid": 1, "ts": 1700000000000005, "ph": "M", "args": {"name": "batch \"size\"", "value": "a fact"}}) + "\n")
    with open(export(made, "perfetto", os.path.join(folder, "n.pftrace")), "rb") as f:
        assert b"a fact" in check_perfetto(f.read(), 7, 3)  # one about the run is an instant
    again = csv_rows(export(export(made, "pfw", os.path.join(folder, "n.pfw.gz")), "csv", os.path.join(folder, "n.csv")))
    assert sorted(map(content, again)) == sorted(map(content, csv_rows(export(made, "csv", os.path.join(folder, "m.csv"))))), "facts and arguments"
    assert [json.loads(r["args"]) for r in again if r["name"] == "metadata"] == [{'batch "size"': "a fact"}]

    # From a pipe and packed: the same trace.
    packed = os.path.join(folder, "t.mrt.gz")
    with open(trace, "rb") as f, gzip.open(packed, "wb") as g:
        g.write(f.read())
    with open(trace, "rb") as f:
        piped = subprocess.run([MILLRACE, "report", "--json", "-"], check=True, stdin=f, stdout=subprocess.PIPE).stdout
    whole, unpacked = (subprocess.run([MILLRACE, "report", "--json", t], check=True, stdout=subprocess.PIPE).stdout for t in (trace, packed))
    nameless = [{k: v for k, v in json.loads(text).items() if k != "source"} for text in (piped, whole, unpacked)]  # which they were given by
    assert nameless[0] == nameless[1] == nameless[2] and nameless[1]["events"] == len(rows)

    # In a folder, what is no trace is skipped with a warning; alone it is an error. Folders and pipes with such names are passed over.
    together = os.path.join(folder, "together")
    os.makedirs(os.path.join(together, "sub.mrt"))
    os.mkfifo(os.path.join(together, "pipe.mrt"))
    cut = os.path.join(together, "cut.mrt")
    with open(trace, "rb") as f, open(cut, "wb") as g:
        g.write(f.read(10))
    done = subprocess.run([MILLRACE, "report", together], capture_output=True, text=True)
    assert done.returncode == 4 and "cut.mrt' is not a trace" in done.stderr, done
    os.link(trace, os.path.join(together, "t.mrt"))
    done = subprocess.run([MILLRACE, "report", "--json", together], capture_output=True, text=True)
    assert done.returncode == 6, done  # some of it is missing
    report = json.loads(done.stdout)
    assert ": skipped" in done.stderr and report["events"] == len(rows) and report["skipped_bytes"] == 10, (done.stderr, report)

    # A process whose block is damaged keeps its time: its events know what time it was.
    hurt = damaged(trace, b"MRB1\1\0", 70)
    there, left = ({int(r["start_unix_ns"]) // 10**9 for r in csv_rows(export(t, "csv", os.path.join(folder, "h.csv")))} for t in (trace, hurt))
    assert min(there) - 1 <= min(left) and max(left) <= max(there) + 1, (there, left)
    report = json.loads(subprocess.run([MILLRACE, "report", "--json", hurt], stdout=subprocess.PIPE).stdout)
    assert report["events"] == len(rows) and report["skipped_bytes"] > 0, report

    # Of a process whose events are all damaged it is still known how many there were.
    damaged(trace, b"MRB1\3\0", 100)
    done = subprocess.run([MILLRACE, "report", "--json", hurt], capture_output=True, text=True)
    assert done.returncode == 4 and not done.stdout and "none of the %d events" % len(rows) in done.stderr, done

    # Names of annotations are the program's: none reaches a terminal as it is. Counters that are no numbers are no curve to viewers.
    named = os.path.join(folder, "a.mrt")
    source = os.path.join(folder, "a.c")
    with open(source, "w") as f:
        f.write("""#include <millrace/trace.h>
        int main(void) { MILLRACE_REGION_BEGIN(r, "bad\\xff", "line\\nC1\\xc2\\x85 caf\\xc3\\xa9"); MILLRACE_REGION_END(r);
        double zero = 0; MILLRACE_COUNTER("c", "curve", 2.5); MILLRACE_COUNTER("c", "curve", zero / zero); MILLRACE_COUNTER("c", "curve", 1 / zero); return 0; }""")
    include = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "include")
    subprocess.run([os.environ.get("CC", "cc"), "-I", include, "-o", os.path.join(folder, "a"), source], check=True)
    subprocess.run([MILLRACE, "trace", "--quiet", "-o", named, "--", os.path.join(folder, "a")], check=True)
    shown = subprocess.run([MILLRACE, "report", "--tables", named], check=True, stdout=subprocess.PIPE).stdout.decode()
    assert "  bad?.line?C1? caf\u00e9                 " in shown and all(c == "\n" or unicodedata.category(c) != "Cc" for c in shown), shown
    with open(export(named, "chrome", os.path.join(folder, "a.json"))) as f:
        curve = [(e["ph"], e["args"].get("value", 0)) for e in json.load(f)["traceEvents"] if e["name"] == "curve"]
    assert curve == [("C", 2.5), ("i", None), ("i", None)], curve
print("exports are well-formed")
