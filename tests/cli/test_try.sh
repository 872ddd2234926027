#!/usr/bin/env bash
# `millrace try` and `tune` on runs of our own: the finding's option is set, the recorded folders stay as they are, bad input is said.
# test_torch_try.py has programs of others.
# test-label: once (its runs compare times)
set -eu
. "$(dirname "$0")/expect.sh"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 18, record_length_bytes: 100000, data_folder: d}
reader: {batch_size: 2, read_threads: 2, prefetch_size: 0}
train: {epochs: 1, computation_time: 0.03}
model: {model_size_bytes: 100000}
checkpoint: {steps_between_checkpoints: 4}
Y
millrace -q gen d --workload w.yaml >/dev/null
mkdir ck
millrace -q run w.yaml workflow.checkpoint=true --checkpoint-folder ck --no-ceiling --store 'throttle(stream_bandwidth=4MB):posix' --out base >/dev/null
find base ck | sort >before

TMPDIR=$PWD millrace try -n PF1 base >plan
grep -q '^  change     workload: reader.prefetch_size 0 -> ' plan || fail "no change: $(cat plan)"
rc=0
TMPDIR=$PWD millrace -q try PF1 base --json --out tried >told 2>err || rc=$?
[ "$rc" = 0 ] || [ "$rc" = 6 ] || fail "exit $rc: $(cat err told)"
python3 - told <<'P' || fail "$(cat told)"
import json, sys
told = json.load(open(sys.argv[1]))
runs = told["runs"]
assert "".join(r["side"] for r in runs) == "abba", runs
a, b = (sum(r["wait_s"] for r in runs if r["side"] == side) for side in "ab")
assert a > 1.3 * b or told["verdict"] == "not decided", told
assert told["verdict"] in ("confirmed", "smaller than predicted", "not decided") and told["predicted"]["share"] > 0.3, told
P
[ "$(ls tried | tr '\n' ' ')" = "a1 a1.log a2 a2.log b1 b1.log b2 b2.log " ] || fail "tried has: $(ls tried)"
find base ck | sort | cmp -s - before || fail "the trial changed the recorded folders"
[ -z "$(ls -d millrace-* ck/../.millrace-* 2>/dev/null)" ] || fail "left behind: $(ls -da millrace-* .millrace-*)"

refuses() { # status, text, arguments...
    expect "$1" millrace try "${@:3}"
    grep -qF -- "$2" err || fail "no '$2' in: $(cat err)"
}
refuses 2 "there is no finding 'XX1'" XX1 base
refuses 2 "no trace given"
refuses 2 "bad value '5:5' for '--steps'" --steps 5:5 base
millrace -q run w.yaml reader.prefetch_size=4 --no-ceiling --out healthy >/dev/null
millrace report healthy --all >told
grep -q CCH1 told || fail "the page cache is no finding: $(cat told)"
refuses 2 "has no finding that can be tried" healthy # a cold cache would be another measurement, and no gain

# tune: searched by replay, measured, and nothing to tune is said
rc=0
millrace -q tune base --budget 17s --steps 2:9 --json >told 2>err || rc=$?
[ "$rc" = 0 ] || [ "$rc" = 6 ] || fail "tune: exit $rc: $(cat err told)"
python3 - told <<'P' || fail "$(cat told)"
import json, sys
told = json.load(open(sys.argv[1]))
assert told["searched"] > 30 and 1 <= len(told["settings"]) <= 5, told
best = [s for s in told["settings"] if s["set"] == told["best"]][0]
assert best["measured_s"] == min(s["measured_s"] for s in told["settings"]), told
assert "reader.prefetch_size=" in told["best"] and best["predicted_s"] < told["base_predicted_s"], told
P
expect 2 millrace tune base --budget 1s
grep -q 'the budget is 1 s' err || fail "$(cat err)"
millrace -q run w.yaml --no-ceiling --out quick >/dev/null
expect 3 millrace tune quick --steps 2:9
grep -q 'nothing to tune' err || fail "$(cat err)"

mv w.yaml gone.yaml
refuses 6 "failed with status" -q PF1 base
echo "try: ok"
