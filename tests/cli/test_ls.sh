#!/usr/bin/env bash
# ls: runs and traces of a folder with verdicts, what cannot be read, a change of level named at its run, the page; check --history against
# the last run that passed, which a worse one does not replace.
# test-label: timing
set -eu
. "$(dirname "$0")/expect.sh"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 16, record_length_bytes: 2000, data_folder: d}
reader: {batch_size: 1, read_threads: 1}
train: {epochs: 1, computation_time: 0.002}
Y
"$MILLRACE" -q gen d --workload w.yaml >/dev/null
run() { "$MILLRACE" -q run w.yaml --no-ceiling --cache warm --out "results/$1" "train.computation_time=$2" >/dev/null || fail "run $1"; }
for i in 1 2 3; do run "a$i" 0.004; done
for i in 4 5 6; do run "b$i" 0.04; done
cp results/a1/trace.mrt results/alone.mrt
mkdir -p results/deep/er && cp results/a1/trace.mrt "results/deep/er/$(printf 'x\033[31m').mrt"
echo nonsense >results/bad.mrt

expect 0 "$MILLRACE" ls results --html page.html
[ "$(wc -l <out)" -ge 10 ] && grep -q 'healthy.* results/a1$' out || fail "lines: $(cat out)"
grep -q "cannot be read: .*bad.mrt" out && ! grep -q $'\033' out || fail "names: $(cat out)"
grep -qE '^ WORSE   w: step, mean .* from .*, results/b4  \(p < 0.0' out || fail "no change named: $(cat out)"
! grep -q 'from .*, results/\(a\|b5\|b6\)' out || fail "too many changes: $(cat out)"
grep -q 'Trends' page.html && grep -q 'results/b4' page.html || fail "page"
python3 "$MR_SOURCE_DIR/tests/cli/check_page.py" page.html >log 2>&1 || { cat log; fail "page"; }
expect 0 "$MILLRACE" ls results --json
python3 - <<'P' || fail "json: $(head -50 out)"
import json
d = json.load(open("out"))
runs = {r["path"]: r for r in d["runs"]}
assert d["schema"] == "millrace.ls/1" and len(runs) == 9 and [r["start_s"] for r in d["runs"]] == sorted(r["start_s"] for r in d["runs"])
assert "error" in runs["results/bad.mrt"] and runs["results/a1"]["verdict"] == "healthy" and runs["results/a1"]["name"] == "w"
summary = json.load(open("results/b4/summary.json"))["millrace"]
assert abs(runs["results/b4"]["wall_s"] - summary["duration_s"]) < 1e-9
steps = [c for c in d["changes"] if c["metric"] == "step_s"]
assert len(steps) == 1 and steps[0]["path"] == "results/b4" and steps[0]["after"] > 5 * steps[0]["before"] and steps[0]["p"] < 0.01
P

# The last good one: none at first; a run that missed its limits is never one.
check() { expect "$1" "$MILLRACE" check "results/$2" --history results --allow-untrusted --limit 'wall_s <= baseline * 3' --limit 'stall_pct <= 101'; }
check 0 a1; grep -q "no earlier run" err && grep -q "^1 of 1 limit met" out || fail "first: $(cat out err)"
check 0 a2; grep -q "the last good one is 'results/a1'" err && grep -q '2 of 2 limits met' out || fail "second: $(cat out err)"
check 3 b4; grep -q "'results/a2'" err || fail "third: $(cat err)"
check 3 b5; grep -q "'results/a2'" err || fail "a missed one became the baseline: $(cat err)"
python3 -c 'import json; assert json.load(open("results/b4/check.json"))["met"] is False'
expect 0 "$MILLRACE" check results/alone.mrt --history results --allow-untrusted --limit 'stall_pct <= 101' && [ -s results/alone.mrt.check.json ] || fail "trace"
expect 2 "$MILLRACE" check results/a1 --history results --baseline results/a2 --limit 'wall_s > 0'
expect 2 "$MILLRACE" check results/a1 results/a2 --history results --limit 'wall_s > 0'
expect 5 "$MILLRACE" check results/a1 --history nosuch --limit 'wall_s > 0'
expect 5 "$MILLRACE" ls nosuch
mkdir empty; expect 4 "$MILLRACE" ls empty
expect 2 "$MILLRACE" ls results --html - --json
echo "ls: ok"
