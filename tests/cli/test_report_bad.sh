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
report 0 r # one level down
"$MILLRACE" report --json r/one >j.json; report 4 j.json; said "is a report, not a trace"
"$MILLRACE" -q run w.yaml --no-ceiling --out r/two >/dev/null
report 4 r; said "holds 2 runs"; said "r/one"
mkdir -p h/node1 h/node2 no/thing; cp t.mrt h/node1/; "$MILLRACE" -q trace --no-python -o h/node2/u.mrt -- cat reads.py >/dev/null
report 0 h # folders of hosts are one trace
report 4 no; said "holds no traces"

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
echo "bad input: ok"
