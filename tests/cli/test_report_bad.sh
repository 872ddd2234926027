#!/usr/bin/env bash
# Bad input of report: cut, damaged and foreign files, folders of runs, missing ranks, events out of order, hostile names, many files.
# Something is always said, nothing is zero that is not known, and the exit status is 4 (no trace) or 6 (a part of one).
set -eu
. "$(dirname "$0")/expect.sh"
said() { grep -qF -- "$1" out err || { cat out err; fail "not said: $1"; }; }
quiet() { ! grep -qF -- "$1" out err || { cat out err; fail "said: $1"; }; }
report() { local want=$1; shift; expect "$want" "$MILLRACE" report "$@"; }

cat >reads.py <<'P'
import os
f = os.open("reads.py", os.O_RDONLY)
for i in range(80000): os.pread(f, 64, i % 50)
P
"$MILLRACE" -q trace --no-python -o t.mrt -- python3 reads.py >/dev/null
report 0 t.mrt; said "trace complete"
n=$(stat -c %s t.mrt)

# ---- cut off, at any place; damaged in the middle ----
for part in 99 70 40; do
    head -c $((n * part / 100)) t.mrt >cut.mrt
    report 6 cut.mrt; said "trace is cut off: "; quiet "trace complete"
    report 6 --json cut.mrt; python3 -c 'import json; d = json.load(open("out")); assert d["trust"]["cut"] and not d["trust"]["complete"]' || fail "json of a cut trace"
done
for bytes in 40 200 700; do
    head -c $bytes t.mrt >cut.mrt
    have=0; "$MILLRACE" report cut.mrt >out 2>err || have=$?
    [ $have = 4 ] || [ $have = 6 ] || fail "the first $bytes bytes: status $have"
    quiet "0.00 s"
done
cp t.mrt damaged.mrt; head -c 64 /dev/zero | dd of=damaged.mrt bs=1 seek=$((n / 2)) conv=notrunc status=none
report 6 damaged.mrt; said "cut off"
expect 6 "$MILLRACE" check damaged.mrt --limit 'duration_s > 0'

# ---- the same of other tools' files: nothing in them says how long they were ----
python3 - <<'P'
import gzip, json
t = 1700000000000000
def span(i, cat, name, at, dur): return {"id": i, "name": name, "cat": cat, "pid": 7, "tid": 7, "ph": "X", "ts": t + at, "dur": dur}
loop = [e for s in range(20) for e in (span(2 * s + 1, "data_stall", "next", 25000 * s, 5000), span(2 * s + 2, "compute", "compute", 25000 * s + 5000, 20000))]
text = "[\n" + "".join(json.dumps(e) + "\n" for e in loop)
open("whole.pfw", "w").write(text + "]\n"), open("open.pfw", "w").write(text) # without its bracket, as killed programs leave it
open("whole.pfw.gz", "wb").write(gzip.compress(text.encode()))
ops = [{"ph": "X", "cat": c, "name": n, "pid": 9, "tid": 9, "ts": 1000.5 + 25000 * s + a, "dur": d} for s in range(20)
       for c, n, a, d in (("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 5000), ("cpu_op", "aten::mm", 6000, 18000))]
json.dump({"schemaVersion": 1, "deviceProperties": [], "baseTimeNanoseconds": t * 1000, "traceEvents": ops}, open("whole.pt.trace.json", "w"), indent=1)
open("whole.csv", "w").write("node,epoch,start,end,duration,pid,thread,name\n" + "".join(f"n1,0,{s}.25,{s}.75,0.5,1,1,snippet\n" for s in range(1, 20)))
open("whole.dxt", "w").write("# darshan log version: 3.41\n# start_time: 1700000000\n# nprocs: 1\n# run time: 9\n# DXT, file_id: 1, file_name: /d/a\n"
    "# DXT, rank: 0, hostname: n1\n# DXT, write_count: 0, read_count: 16\n# Module    Rank  Wt/Rd  Segment          Offset       Length    Start(s)      End(s)\n"
    + "".join(f" X_POSIX       0   read {s:8} {s * 4096:15} {4096:12} {s * .1:11.4f} {s * .1 + .05:11.4f}\n" for s in range(16)))
row = lambda r, c, v: f"POSIX\t{r}\t{77 + r}\tPOSIX_{c}\t{v}\t/d/f{r}\t/d\text4\n"
open("whole.txt", "w").write("# darshan log version: 3.41\n# nprocs: 2\n# run time: 9\n# start_time: 1700000000\n" + "".join(
    row(r, c, v) for r in range(2) for c, v in (("OPENS", 1), ("READS", 64), ("BYTES_READ", 65536), ("F_READ_TIME", 2.5), ("F_META_TIME", 0.1), ("F_VARIANCE_RANK_BYTES", 0))))
P
for f in whole.pfw open.pfw whole.pfw.gz whole.pt.trace.json whole.csv whole.dxt whole.txt; do
    report 0 $f; quiet "not complete"; quiet "cut off"
    n=$(stat -c %s $f)
    for part in 92 70; do
        head -c $((n * part / 100)) $f >cut.$f
        report 6 cut.$f; said "cut off"; quiet "trace complete"; quiet "Healthy"; quiet "Input-bound"
        report 6 --json cut.$f; python3 -c 'import json; d = json.load(open("out")); assert d["verdict"]["class"] == "incomplete" and not d["trust"]["complete"]' || fail "json of cut $f"
        expect 6 "$MILLRACE" check cut.$f --limit 'duration_s >= 0'
    done
done
head -n -2 whole.txt >cut.txt; report 6 cut.txt; said "in the record of '/d/f1'" # between two lines
# counters that somebody left out of the last record, and a last line without its end: nothing is cut off
grep -v "F_VARIANCE" whole.txt | head -c -1 >fewer.txt; report 0 fewer.txt; quiet "cut off"
head -n -1 whole.txt >fewer.txt; report 0 fewer.txt; quiet "cut off"
head -n -3 whole.dxt >cut.dxt; report 6 cut.dxt; said "trace is cut off: 13 of at least 16 events"

# ---- what a source does not record is unknown, in text, JSON, page and check ----
report 0 --json whole.dxt
python3 - <<'P' || fail "zeros of DXT: $(cat out)"
import json
d = json.load(open("out"))
assert d["verdict"]["stall_s"] is None and d["time"]["compute_s"] is None and d["stall"]["storage_s"] is None, d["verdict"]
assert d["waits"]["storage_s"] > 0 and d["waits"]["metadata_s"] is None and d["waits"]["network_s"] is None, d["waits"]
P
report 0 whole.dxt; quiet "network"; quiet "open/stat  "
expect 6 "$MILLRACE" check whole.dxt --limit 'stall_s <= 5'
expect 6 "$MILLRACE" check whole.dxt --limit 'waits.metadata_s <= 5'
report 0 whole.csv; said "NAMED SPANS"; said "snippet"; quiet "KEY NUMBERS"; quiet "WHAT CALLS WAITED FOR"; quiet " 0.0 %"
report 0 whole.txt --html counters.html; ! grep -q "[0-9] h [0-9]" counters.html || fail "a time that nobody knows is shown"
grep -q "mean of all processes" counters.html || fail "what the times of counters are"
report 0 whole.pt.trace.json --html profile.html; said "millrace trace -o run.mrt"; ! grep -q "aten::mm" profile.html || fail "operators are no spans of the program"
report 0 whole.dxt whole.csv; said "whole.dxt, whole.csv"; said "report whole.dxt whole.csv --"

printf 'node,epoch,start,end,duration,pid,thread,name\nn1,0,1.5,2.5,1,1,1,"say ""hi"", C:\\new"\n' >quoted.csv
report 0 quoted.csv; said 'say "hi", C:\new'
expect 0 "$MILLRACE" export -f timelogger -o again.csv quoted.csv; grep -qF '"say ""hi"", C:\new"' again.csv || fail "names of a CSV: $(cat again.csv)"

# ---- its collector was killed ----
"$MILLRACE" -q trace --no-python -o live.mrt -- sh -c 'cat reads.py >/dev/null; sleep 4' >/dev/null 2>&1 & tracer=$!
for _ in $(seq 100); do compgen -G 'live.mrt.spool/*ring*' >/dev/null && break; sleep 0.1; done
sleep 0.5; kill -9 $tracer; wait $tracer 2>/dev/null || :
have=0; "$MILLRACE" report live.mrt >out 2>err || have=$?
[ $have = 4 ] || { [ $have = 6 ] && grep -q "the trace has no end" out && ! grep -q "trace complete" out; } || { cat out err; fail "an unfinished trace: $have"; }

# ---- no trace at all ----
printf 'hello\n' >text.txt; report 4 text.txt; said "is not a trace"
head -c 5000 /dev/urandom >noise.mrt; report 4 noise.mrt
: >empty.mrt; report 4 empty.mrt; said "is empty"
echo '{"a": 1}' >foreign.json; report 4 foreign.json; said "there is no event"
printf '[\n]\n' >none.pfw; have=0; "$MILLRACE" report none.pfw >out 2>err || have=$?; [ $have = 6 ] || [ $have = 4 ] || fail "no events: $have"
said "there is no event"; [ ! -s out ] || fail "a report of nothing"
report 5 nosuch.mrt
printf '3.41\0\0\0\0\067\065\144\0\0\0\0\0' >a.darshan; PATH=/usr/bin:/bin report 4 a.darshan; said "darshan-parser"

# ---- results and folders ----
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 16, record_length_bytes: 2000, data_folder: d}
reader: {batch_size: 1, read_threads: 1}
train: {epochs: 1, computation_time: 0.001}
Y
"$MILLRACE" -q gen d --workload w.yaml >/dev/null
"$MILLRACE" -q run w.yaml --no-ceiling --out r/one >/dev/null
report 4 r/one/summary.json; said "is the summary of a run, not a trace"; said "millrace report 'r/one'"
report 4 r/one/config.json; said "has the settings of a run"; said "millrace report 'r/one'"
report 0 r # one level down
"$MILLRACE" report --json r/one >j.json; report 4 j.json; said "is a report, not a trace"
"$MILLRACE" -q run w.yaml --no-ceiling --out r/two >/dev/null
report 4 r; said "holds 2 runs"; said "r/one"
mkdir -p h/node1 h/node2 no/thing; cp t.mrt h/node1/; "$MILLRACE" -q trace --no-python -o h/node2/u.mrt -- cat reads.py >/dev/null
report 0 h # folders of hosts are one trace
report 4 no; said "holds no traces"

# ---- a part of a run: its own figures or none ----
report 4 r/one --steps 900:901; said "no event of"; [ ! -s out ] || fail "a screen of nothing"
report 4 r/one --rank 7; said "no event of"; [ ! -s out ] || fail "a screen of nothing"
report 0 r/one; bytes=$(grep -o 'read [0-9.]* [KMGi]*B ' out | head -1)
report 0 r/one --steps 2:3; [ -z "$bytes" ] || quiet "$bytes"

# ---- tables as CSV and OpenMetrics ----
report 0 r/one --csv tables
python3 - <<'P' || fail "tables"
import csv, json, subprocess, os
r = json.loads(subprocess.run([os.environ["MILLRACE"], "report", "--json", "r/one"], capture_output=True).stdout)
steps = list(csv.DictReader(open("tables/steps.csv")))
assert len(steps) == 16 and abs(sum(float(s["compute_s"]) for s in steps) - r["time"]["compute_s"]) < 1e-6, len(steps)
assert len(list(csv.DictReader(open("tables/ranks.csv")))) == 1 and "path" in open("tables/files.csv").readline()
rows = list(csv.DictReader(open("tables/timeline.csv")))
assert 1 <= len(rows) <= 2000
text = open("tables/metrics.txt").read()
assert text.endswith("# EOF\n") and 'millrace_findings{severity="critical"} 0' in text
line = next(l for l in text.splitlines() if l.startswith('millrace_time_seconds{class="compute"}'))
assert abs(float(line.split()[1]) - r["time"]["compute_s"]) < 1e-6
P
report 2 r/one --csv tables --path '*'

# ---- a table without rows is said to have none ----
expect 0 "$MILLRACE" export -f timelogger -o none.csv t.mrt; said "no named span"
expect 0 "$MILLRACE" export -f timelogger -o some.csv whole.pfw; quiet "no named span"

# ---- missing ranks ----
SLURM_PROCID=1 SLURM_NTASKS=4 "$MILLRACE" -q trace --no-python -o rank.mrt -- cat reads.py >/dev/null
"$MILLRACE" report --json rank.mrt >out 2>err || :
python3 - <<'P' || { cat err; fail "missing ranks"; }
import json
t = json.load(open("out"))["trust"]
assert t["ranks_missing"] == 3 and not t["complete"], t
P

# ---- events out of order, hostile names, many files: as .pfw, which anybody writes ----
python3 - <<'P'
import json, random
names = ["/d/<script>alert(1)</script>", "/d/\"quote'", "/d/\u202ertl", "/d/" + "x" * 4000, "/d/\x1b[31mred", "/d/tab\there", "/d/&amp;"]
names += [f"/many/{i // 1000}/{i}" for i in range(20000)]
events = []
for i, n in enumerate(names):
    t = 1700000000000000 + i * 100
    events.append({"id": i, "name": "pread", "cat": "POSIX", "pid": 1, "tid": 1, "ph": "X", "ts": t, "dur": 50,
                   "args": {"hostname": "<b>host", "fname": n, "ret": 1000 + i % 7, "offset": 0}})
def write(path, list): open(path, "w").write("[\n" + "".join(json.dumps(e) + "\n" for e in list))
write("sorted.pfw", events)
random.seed(1); random.shuffle(events)
write("shuffled.pfw", events)
P
for f in sorted shuffled; do
    report 0 $f.pfw --json; cp out $f.json
    report 0 $f.pfw --tables --html $f.html
    ! grep -q $'\x1b' out || fail "a control character of a name reached the terminal"
    ! grep -qi '<script>alert' $f.html && ! grep -q '<b>host' $f.html && [ "$(stat -c %s $f.html)" -lt 2000000 ] || fail "hostile names in the page"
done
python3 - <<'P' || fail "out of order"
import json
a, b = (json.load(open(f + ".json")) for f in ("sorted", "shuffled"))
for key in ("events", "files", "io_ns", "read_bytes", "total_time_ns", "duration_s", "waits"):
    assert a.get(key) == b.get(key), (key, a.get(key), b.get(key))
assert a["files"] == 20007
P
# a clock that jumps, ahead and back: no crash, no negative time
python3 - <<'P'
import json
with open("jump.pfw", "w") as f:
    f.write("[\n")
    for i in range(100):
        t = 1700000000000000 + i * 1000 + (7200 * 10**6 if 40 <= i < 60 else 0)
        f.write(json.dumps({"id": i, "name": "read", "cat": "POSIX", "pid": 1, "tid": 1, "ph": "X", "ts": t, "dur": 10, "args": {"fname": "/d/a", "ret": 10}}) + "\n")
P
report 0 jump.pfw --json
python3 -c 'import json; d = json.load(open("out")); assert d["trust"]["clock_jump"], d["trust"]' || fail "clock jump: $(cat out)"
# a jump ahead that lasts: the day between is not computing
python3 - <<'P'
import json
with open("ahead.pfw", "w") as f:
    f.write("[\n")
    for s in range(30):
        t = 1700000000000000 + s * 25000 + (86400 * 10**6 if s > 20 else 0)
        for cat, at, dur in (("data_stall", 0, 5000), ("compute", 5000, 20000)):
            f.write(json.dumps({"id": s, "name": cat, "cat": cat, "pid": 1, "tid": 1, "ph": "X", "ts": t + at, "dur": dur}) + "\n")
P
report 0 ahead.pfw; said "Incomplete. Missing: times that can be relied on"; said "the clock jumped"
# a profile of one of four ranks
python3 - <<'P'
import json
events = []
for s in range(4):
    events.append({"ph": "X", "cat": "user_annotation", "name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "pid": 10, "tid": 10, "ts": 1000 + 2000 * s, "dur": 500})
    events.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 10, "tid": 10, "ts": 1600 + 2000 * s, "dur": 500})
json.dump({"schemaVersion": 1, "distributedInfo": {"rank": 1, "world_size": 4}, "baseTimeNanoseconds": 1000, "traceEvents": events}, open("rank1.json", "w"))
P
report 0 rank1.json; said "3 ranks of the job are not in the trace"
echo "bad input: ok"
