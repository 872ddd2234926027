#!/usr/bin/env bash
# reader.file_access and the pattern block do in `millrace run` what their names promise, proven from the calls that were
# made: request sizes, offsets without overlap, who reads; and all ranks get the right bytes.
# test-label: once (long under sanitizers)
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: indexed_binary, num_files_train: 1, num_samples_per_file: 96, record_length_bytes: 6000, data_folder: one}
reader: {batch_size: 4, read_threads: 2, prefetch_size: 1}
train: {epochs: 2}
Y
many="dataset.num_files_train=12 dataset.num_samples_per_file=8 dataset.data_folder=many"
"$MILLRACE" -q gen one --workload w.yaml >/dev/null 2>&1
# shellcheck disable=SC2086
"$MILLRACE" -q gen many --workload w.yaml $many >/dev/null 2>&1
run() { # words of a run; calls of every rank go to t.RANK.tsv
    rm -rf t.*.tsv t.*.mrt o
    # shellcheck disable=SC2068
    "$MILLRACE" -q run w.yaml --no-ceiling --verify --out o --store "trace(file=t.{rank}.mrt):posix" $@ >out 2>err || fail "run $*: $(cat err)"
    python3 "$MR_SOURCE_DIR/tests/cli/calls_as_tsv.py" "$MILLRACE" t.*.mrt
}
cat >look.py <<'P'
import csv, glob, json, os, sys
def calls(ranks): # per rank: (time, file, offset, wanted) of data reads, in order of time
    out = []
    for r in range(ranks):
        rows = []
        for name in glob.glob(f"t.{r}.tsv") + glob.glob(f"t.{r}-for-*.tsv"):
            for c in (l.rstrip("\n").split("\t") for l in open(name)):
                if c[0] == "read" and "manifest" not in c[1] and ".idx" not in c[1]:
                    rows.append((int(c[5]), c[1], int(c[2]), int(c[3])))
        out.append(sorted(rows))
    return out
def crc_table():
    t = []
    for i in range(256):
        c = i
        for _ in range(8): c = (c >> 1) ^ (0x82f63b78 if c & 1 else 0)
        t.append(c)
    return t
T = crc_table()
def crc32c(b):
    c = 0xffffffff
    for x in b: c = T[(c ^ x) & 255] ^ (c >> 8)
    return c ^ 0xffffffff
def whole_sum(folder, record=6000):
    total = 0
    for name in sorted(os.listdir(folder)):
        if name.endswith(".idx") or name.endswith(".mrm"): continue
        data = open(f"{folder}/{name}", "rb").read()
        total += sum(crc32c(data[i:i + record]) for i in range(0, len(data), record))
    return total
def sums(): return [r["rows_crc32c_sum"] for r in json.load(open("o/summary.json"))["millrace"]["per_rank"]]
P
check() { # ranks, then Python over `c` (calls of each rank)
    python3 -c "
import sys; sys.path.insert(0, '.'); sys.dont_write_bytecode = True
from look import *
ranks = $1; c = calls(ranks); s = sums(); flat = [x for r in c for x in r]
$2" || fail "$3"
}
all_once='
from collections import Counter
n = Counter((f, o + k) for _, f, o, l in flat for k in range(0, l, 2000))
assert set(n.values()) == {2}, n.most_common(3)   # two epochs
assert sum(n.values()) * 2000 == 2 * 96 * 6000'

# many files without overlap: no file is read by two ranks; everything once per epoch; whole files in pieces of transfer_size
# shellcheck disable=SC2086
run $many reader.file_access=multi pattern.unit=file reader.transfer_size=2000 --ranks 3
check 3 "$all_once
files = [set(f for _, f, _, _ in r) for r in c]
assert all(not (files[i] & files[j]) for i in range(3) for j in range(i)) and all(len(f) == 4 for f in files), files
assert {l for *_, l in flat} == {2000}
assert sum(s) == 2 * whole_sum('many/train'), s" "many files"
# the same through the loader, shuffled inside the rank's own files; where files do not divide evenly the result says so
# shellcheck disable=SC2086
run $many reader.file_access=multi reader.sample_shuffle=seed reader.transfer_size=2000 --ranks 3
check 3 "$all_once
files = [set(f for _, f, _, _ in r) for r in c]
assert all(not (files[i] & files[j]) for i in range(3) for j in range(i)) and all(len(f) == 4 for f in files), files
assert 'do not divide' not in open('o/summary.json').read()" "many files, loader"
# shellcheck disable=SC2086
run $many reader.file_access=multi reader.drop_last=false --ranks 5
grep -q "12 files do not divide by 5 ranks" o/summary.json || fail "no word of files with two readers"
# one shared file, sharded by rank: contiguous parts that do not overlap; fully consecutive
run reader.file_access=shared pattern.unit=record reader.read_threads=1 --ranks 4
check 4 "$all_once
for r in range(4):
    offs = [o for _, _, o, _ in c[r]]
    assert sorted(set(offs)) == list(range(r * 24 * 6000, (r + 1) * 24 * 6000, 6000)), (r, offs)
    assert offs == sorted(set(offs)) * 2, offs
assert sum(s) == 2 * whole_sum('one/train')" "shared file"
# the same through the loader, with transfer size and shuffling inside the shard
run reader.file_access=shared reader.sample_shuffle=seed reader.transfer_size=2000 --ranks 4
check 4 "$all_once
for r in range(4):
    assert {o // (24 * 6000) for _, _, o, _ in c[r]} == {r} and {l for *_, l in c[r]} == {2000}
    offs = [o for _, _, o, _ in c[r]]
    assert offs[:72] != offs[72:] and offs[:72] != sorted(offs[:72])
assert sum(s) == 2 * whole_sum('one/train')" "shared file, loader"
# jump, then read a run in sequence
run reader.file_access=posix pattern.unit=record pattern.sequential_samples=4 reader.sample_shuffle=seed reader.read_threads=1 --ranks 2
check 2 "$all_once
for r in range(2):
    ids = [o // 6000 for _, _, o, _ in c[r]]
    runs = [ids[i:i + 4] for i in range(0, len(ids), 4)]
    assert all(x == list(range(x[0], x[0] + 4)) for x in runs), runs
    jumps = sum(a[-1] + 1 != b[0] for a, b in zip(runs, runs[1:]))
    assert jumps > len(runs) // 2 and runs[:12] != runs[12:]" "jump, then sequential"
# runs that do not divide the set: with drop_last=false nothing is left out, the last run goes on at the start
run reader.file_access=posix pattern.unit=record pattern.sequential_samples=7 reader.sample_shuffle=seed reader.batch_size=1 reader.drop_last=false \
    train.epochs=1 train.total_training_steps=0 --ranks 2
check 2 "
from collections import Counter
n = Counter(o // 6000 for _, _, o, _ in flat)
assert len(n) == 96 and sum(n.values()) == 98 and n[0] == n[1] == 2, n" "runs that do not divide"
# pieces in turn
run pattern.unit=record pattern.pieces=[1000,3000] --ranks 1
check 1 "
assert [l for *_, l in flat].count(3000) == 2 * 96 and [l for *_, l in flat].count(1000) == 3 * 2 * 96
assert sum(s) == 2 * whole_sum('one/train')" "pieces"
# everything at the start, by every rank alike; later epochs come from memory
run reader.read_type=memory pattern.unit=file pattern.same_offsets=true reader.transfer_size=64KiB train.epochs=3 --ranks 2
check 2 "
for r in c:
    assert sum(l for *_, l in r) == 96 * 6000 and max(l for *_, l in r) == 65536, r
assert s == [3 * whole_sum('one/train')] * 2
assert json.load(open('o/summary.json'))['millrace']['steps'] == 2 * 3 * 24" "memory"
# on demand: with prefetch 0 no record is read before the step that needs it, so a cut run reads only what it used
run pattern.unit=record reader.prefetch_size=0 train.total_training_steps=3 --ranks 2
check 2 "assert [len(r) for r in c] == [12, 12], [len(r) for r in c]" "on demand"
run pattern.unit=record reader.prefetch_size=5 train.total_training_steps=3 --ranks 2
check 2 "assert [len(r) for r in c] == [12, 12], [len(r) for r in c]" "nothing is read for steps that do not come"

# collective: a subset reads, all get the same rows as if they had read themselves
for n in "sample 3 7" "sample 1 2" "record 2 3" "file 2 4"; do
    # shellcheck disable=SC2086
    set -- $n
    unit=$1; shift
    # shellcheck disable=SC2086
    run $many reader.sample_shuffle=seed pattern.unit=$unit reader.drop_last=false --ranks $2
    python3 -c "from look import *; import json; json.dump(sums(), open('alone.json', 'w'))"
    # shellcheck disable=SC2086
    run $many reader.sample_shuffle=seed pattern.unit=$unit reader.drop_last=false reader.file_access=collective pattern.collective_readers=$1 --ranks $2
    check $2 "
assert [r for r in range(ranks) if c[r]] == list(range($1)), [len(r) for r in c]
assert s == json.load(open('alone.json')), 'other rows'" "collective $unit, $1 of $2 ranks read"
done
if command -v strace >/dev/null && strace -o /dev/null true 2>/dev/null; then
    # the same from the kernel's side: which processes read data, and how much at once
    # shellcheck disable=SC2086
    strace -f -e trace=pread64,clone,clone3,fork,vfork -o s.txt env ASAN_OPTIONS=detect_leaks=0 "$MILLRACE" -q run w.yaml --no-ceiling \
        --out o --ranks 4 $many reader.file_access=collective pattern.collective_readers=2 pattern.unit=file reader.transfer_size=16KiB \
        >out 2>err || fail "strace: $(cat err)"
    python3 - <<'P' || fail "strace of a collective run"
import re
process = {}  # thread -> process
reads = []
lines, pending = [], {}
for l in open("s.txt"):
    m = re.match(r"(\d+) +(.*) <unfinished \.\.\.>", l)
    r = re.match(r"(\d+) +<\.\.\. \w+ resumed>(.*)", l)
    if m: pending[m[1]] = m[2]
    elif r: lines.append(f"{r[1]} {pending.pop(r[1], '')}{r[2]}")
    else: lines.append(l.rstrip())
first = lines[0].split()[0]
process[first] = first
for l in lines: # a new process may run before the call that made it returns: first learn who is who
    m = re.match(r"(\d+) +(?:clone3?|fork|vfork)\((.*) = (\d+)", l)
    if m: process[m[3]] = (m[1], "CLONE_THREAD" in m[2])
def owner(t):
    while isinstance(process[t], tuple):
        parent, thread = process[t]
        if not thread: return t
        t = parent
    return t
for l in lines:
    m = re.match(r"(\d+) +pread64\(\d+,.*, (\d+), (\d+)\) += (\d+)", l)
    if m and int(m[4]) in (16384, 48000 - 2 * 16384): reads.append((owner(m[1]), int(m[4]), int(m[3])))
assert len({p for p, *_ in reads}) == 2, "not two processes read data"
assert sum(n for _, n, _ in reads) == 2 * 96 * 6000, sum(n for _, n, _ in reads)
assert all(o % 16384 == 0 for *_, o in reads)
P
fi
# who cannot be served says so
refused() { # words, then a pattern of the message
    local want=$1; shift
    local rc=0
    "$MILLRACE" -q run w.yaml --out o "$@" >out 2>err || rc=$?
    [ $rc = 2 ] && grep -q "$want" err || fail "'$*' gave $rc: $(cat err)"
}
refused "mpio needs MPI" reader.file_access=mpio pattern.unit=record --ranks 2
refused "do not go together" reader.file_access=collective reader.read_type=memory --ranks 2
refused "must be 1" reader.file_access=collective pattern.unit=record pattern.same_offsets=true pattern.collective_readers=2 --ranks 3
# a reader that fails: one message with its rank, on all ranks the same end
rc=0
"$MILLRACE" -q run w.yaml --out o7 --ranks 4 reader.file_access=collective pattern.collective_readers=2 pattern.unit=record \
    --store "fault(op=read,path=*img*,nth=30,error=EIO):posix" >out 2>err || rc=$?
[ $rc = 5 ] && [ "$(grep -c '^millrace: ' err)" = 1 ] && grep -q "rank [01]" err || fail "EIO of a collective reader: $rc $(cat err)"
# header reads and outputs of a preset, files counted by name
"$MILLRACE" -q run climateseg-theta --generate --data "$tmp/h" --out o8 --ranks 2 train.total_training_steps=2 train.computation_time=0.001 \
    --store "trace(file=h.{rank}.mrt):posix" --no-ceiling >out 2>err || fail "climateseg: $(cat err)"
python3 "$MR_SOURCE_DIR/tests/cli/calls_as_tsv.py" "$MILLRACE" h.*.mrt
[ "$(grep -c '^read.*header' h.0.tsv)" = 50 ] && [ "$(grep -c '^read.*header' h.1.tsv)" = 50 ] || fail "header reads"
[ "$(find o8 -name 'output-*' -size 4000000c | wc -l)" = 6 ] || fail "outputs: $(ls o8)"
# text: floats as the format writes them count as intact, a changed digit does not; through the loader and a pattern
csv="dataset.format=csv dataset.num_files_train=2 dataset.num_samples_per_file=8 dataset.record_dims=[12,12] dataset.record_element_type=float32 --data csv"
for how in pattern.unit=sample "pattern.unit=file reader.read_type=memory"; do
    # shellcheck disable=SC2086
    "$MILLRACE" -q run w.yaml $csv $how --generate --verify --no-ceiling --out o9 >out 2>err || fail "CSV, $how: $(cat err)"
    cp -r csv csv.good
    f=$(ls csv/train/*.csv | head -1)
    python3 - "$f" <<'P'
import re, sys
t = open(sys.argv[1]).read()
m = [x for x in re.finditer(r"(?<=\.)[1-8](?=[0-9]{2})", t)][-3] # the first digit behind a point of the last row
open(sys.argv[1], "w").write(t[:m.start()] + str(int(m[0]) + 1) + t[m.end():])
P
    rc=0
    # shellcheck disable=SC2086
    "$MILLRACE" -q run w.yaml $csv $how --verify --no-ceiling --out o9 >out 2>err || rc=$?
    [ $rc = 4 ] && grep -q "differs" err || fail "CSV, $how, changed: $rc $(cat err)"
    rm -rf csv; mv csv.good csv
done
echo "run, patterns: ok"
