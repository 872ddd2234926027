#!/usr/bin/env bash
# Ways to run that exclude each other are refused; a mistake that only the ranks find leaves no result; -q means quiet; a machine
# that wakes the trainer late is a doubt, and so are checkpoints that were to be read cold and were not.
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 8, record_length_bytes: 4000, data_folder: d}
reader: {batch_size: 2, read_threads: 1}
train: {epochs: 2, computation_time: 0.001}
Y
refused() { rc=0; "$MILLRACE" run w.yaml "$@" >out 2>err || rc=$?; [ $rc = 2 ] && [ ! -s out ] || fail "$*: $rc $(cat out err)"; }
refused --sweep reader.read_threads=1,2 --find-max-accelerators
grep -q -- "--sweep and --find-max-accelerators exclude each other" err || fail "$(cat err)"
refused --dry-run --find-max-accelerators
refused --virtual --sweep reader.read_threads=1,2
"$MILLRACE" -q gen d --workload w.yaml >/dev/null
refused --store 'throtle(bandwidth=1MB):posix' --out o
grep -q "did you mean 'throttle'" err && [ ! -e o/summary.json ] || fail "mistyped store: $(cat err)"
# a terminal gets the live line, unless it asked for quiet; script gives one
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    live() { script -qec "'$MILLRACE' $1 run w.yaml --out o train.computation_time=0.1 --json >/dev/null" /dev/null </dev/null >typed 2>&1 || fail "$(cat typed)"; }
    live ""; grep -q "ETA" typed || fail "no live line: $(cat typed)"
    live -q; ! grep -q "ETA" typed || fail "-q draws: $(cat typed)"
fi
# advice is something that can be done: no thousands of threads, no threads without CPUs
"$MILLRACE" -q run w.yaml --out o train.epochs=1 train.computation_time=0.0001 --store "throttle(bandwidth=1GB,latency=50ms):posix" >out 2>err || fail "$(cat err)"
! grep -q "read_threads=\([0-9]\{3,\}\|6[5-9]\|[7-9][0-9]\)" out && grep -q "^ 1 TH1\|^ 1 TH4" out || fail "advice on latency: $(cat out)"
"$MILLRACE" -q run w.yaml --out o train.epochs=1 train.computation_time=0.0001 reader.preprocess_time=0.1 >out 2>err || fail "$(cat err)"
threads=$(sed -n 's/.* reader.read_threads=\([0-9]*\) .*/\1/p' out | head -1)
grep -q "^ 1 \(CPU1\|TH2\) " out && [ "${threads:-1}" -le "$(nproc)" ] || fail "advice on preprocessing: $(cat out)"
# the order that was read in has a name
"$MILLRACE" -q run w.yaml --out o reader.sample_shuffle=seed >out 2>err || fail "$(cat err)"
grep -q "torch order" out || fail "order: $(cat out)"
# sleeping that takes a tenth longer than asked is a doubt, told in the result, and exit status 6 on demand
"$MILLRACE" -q run w.yaml --out o train.computation_time=0.00001 >/dev/null 2>err || fail "$(cat err)"
rc=0; "$MILLRACE" -q run w.yaml --out o2 train.computation_time=0.00001 --strict-trust >/dev/null 2>err || rc=$?
python3 - $rc <<'P' || fail "late wake-ups: $rc $(cat err)"
import csv, json, sys
for folder in ("o", "o2"):
    t = json.load(open(f"{folder}/summary.json"))["trust"]
    rows = list(csv.DictReader(open(f"{folder}/rank-0.steps.csv")))
    asked, took = (sum(int(x[k]) for x in rows) for k in ("compute_ns", "compute_wall_ns"))
    said = any("too busy for these compute times" in d for d in t["doubts"])
    assert said == (took > 1.1 * asked), (folder, asked, took, t)
    assert t["trusted"] == (not t["doubts"]), t
assert (sys.argv[1] == "6") == bool(t["doubts"]), (sys.argv, t)
P
# checkpoints are read back cold when asked, and it is said whether they were
restore() {
    rc=0
    "$MILLRACE" -q run w.yaml --out o3 --ranks "${ranks:-2}" workflow.train=false workflow.checkpoint=true checkpoint.type=all_ranks checkpoint.num_checkpoints_write=2 \
        checkpoint.num_checkpoints_read=3 checkpoint.time_between_checkpoints=0 model.model_size_bytes=3000000 --checkpoint-folder "$tmp/c" "$@" >out 2>err || rc=$?
}
cold() { python3 -c "import json; t=json.load(open('o3/summary.json'))['trust']; f=t['cold_fraction']; assert $1, t" || fail "checkpoints, $1: $(cat err)"; }
restore; [ $rc = 0 ] || fail "$(cat err)"; cold "f is not None and f <= 1"
restore --cache cold --strict-trust
# a file system in memory cannot be cold, and says so; a busy machine may have other doubts
cold "(f is not None and f >= 0.95) or any('asked for a cold cache' in d for d in t['doubts'])"
cold "$rc == (6 if t['doubts'] else 0)"
rm -rf c; ranks=1 restore --checkpoint-store memory; [ $rc = 0 ] || fail "checkpoints in memory: $(cat err)"
cold "f is None"
# a run of one step has no utilisation: said, not printed as a number that is none
rm -rf d; "$MILLRACE" -q run w.yaml --generate train.total_training_steps=1 --no-ceiling --out o4 >out 2>err || fail "one step: $(cat err)"
grep -q "^  AU            none" out && ! grep -qi "nan" out || fail "one step: $(cat out)"

echo "run, modes: ok"
