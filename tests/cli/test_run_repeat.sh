#!/usr/bin/env bash
# Repeated runs: medians and intervals of what the runs say themselves, in turn with the other points of a sweep, the same work or told
# otherwise. Results are never overwritten unless that is asked for.
# test-label: once (long under sanitizers: there only in make test-full)
set -eu
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 48, record_length_bytes: 20000, data_folder: d}
reader: {batch_size: 2, read_threads: 1, sample_shuffle: seed}
train: {epochs: 1, computation_time: 0.005}
Y
"$MILLRACE" -q gen d --workload w.yaml >/dev/null
run() { rc=0; "$MILLRACE" -q run w.yaml --no-ceiling --cache warm "$@" >out 2>err || rc=$?; }
ok() { run "$@"; [ $rc = 0 ] || fail "$*: $rc $(cat err)"; }
# one workload, five times
ok --repeat 5 --out o --json; cp out s.json
python3 - <<'P' || fail "repeat: $(cat s.json)"
import json, statistics
d = json.load(open("s.json")); p, = d["points"]
assert d["repeat"] == 5 and d["complete"] and len(p["repeats"]) == 5 and p["same_work"], d
runs = [json.load(open(r["results_folder"] + "/summary.json"))["millrace"] for r in p["repeats"]]
assert [r["results_folder"] for r in p["repeats"]] == [f"o/repeat-{k}" for k in range(1, 6)]
for key, spread in (("au", p["au_spread"]), ("samples_per_s", p["samples_per_s_spread"])):
    v = sorted(r[key] for r in runs)
    assert abs(spread["median"] - statistics.median(v)) < 1e-9 and abs(p[key] - spread["median"]) < 1e-12, (key, v, spread)
    assert abs(spread["low"] - v[0]) < 1e-9 and abs(spread["high"] - v[-1]) < 1e-9 and abs(spread["confidence"] - 0.9375) < 1e-9
P
# in a sweep all points take turns, and the table has medians
ok --repeat 2 --sweep reader.read_threads=1,2 --out s
grep -q "^1 .* 2 .* \.\. " out && grep -q "^2 .* 2 .* \.\. " out && grep -q "every repeat did the same work" out || fail "table: $(cat out)"
grep -q "an interval holds the true median with 50 %" out || fail "confidence: $(cat out)"
python3 - <<'P' || fail "not in turn"
import json
start = lambda t, r: json.load(open(f"s/reader.read_threads={t}/repeat-{r}/summary.json"))["start"]
order = [start(1, 1), start(2, 1), start(1, 2), start(2, 2)]
assert order == sorted(order), order
P
# other work is no repeat: who stops by the clock does not always come equally far
ok --repeat 6 --out t --max-time 60ms train.epochs=1000 train.computation_time='{type: exponential, scale: 0.005}' --json
python3 - <<'P' || fail "same work: $(cat out)"
import json
p, = json.load(open("out"))["points"]
steps = {json.load(open(r["results_folder"] + "/summary.json"))["millrace"]["steps"] for r in p["repeats"]}
assert p["same_work"] == (len(steps) == 1) and ("did other work" in p["no_verdict_because"]) == (len(steps) > 1), (steps, p)
P
# what repeats make no sense with
run --repeat 2 --virtual; [ $rc = 2 ] && grep -q -- "--repeat and --virtual exclude" err || fail "virtual: $rc $(cat err)"
run --repeat 2 --find-max-accelerators; [ $rc = 2 ] || fail "search: $rc"
run --repeat 0; [ $rc = 2 ] || fail "no run at all: $rc"
# an expectation is one of the median
run --repeat 2 --expect --out e --store "throttle(bandwidth=1MB):posix"
[ $rc = 3 ] && grep -q "the median AU is" err || fail "--expect: $rc $(cat err)"
# results stay unless they may go; a sweep or repeat finds that out before its first run
refused() { [ $rc = 2 ] && [ ! -s out ] && grep -q "the results of another run are in '$1'" err && grep -q "hint: .*--overwrite" err || fail "$1: $rc $(cat out err)"; }
ok --out a; sum=$(md5sum a/*)
run --out a; refused a
run --out a --generate --data never; refused a; [ ! -e never ] || fail "generated before it was refused"
[ "$sum" = "$(md5sum a/*)" ] || fail "results were touched"
ok --out a --overwrite; [ "$sum" != "$(md5sum a/*)" ] || fail "--overwrite keeps"
MILLRACE_RUN_OVERWRITE=true run --out a; [ $rc = 0 ] || fail "by the environment: $(cat err)"
mkdir -p b/reader.read_threads=2 && cp a/summary.json b/reader.read_threads=2
run --sweep reader.read_threads=1,2 --out b; refused b/reader.read_threads=2; [ ! -e b/reader.read_threads=1 ] || fail "a run before the refusal"
run --repeat 5 --out o; refused o/repeat-1
mkdir c && echo mine >c/notes; ok --out c; [ "$(cat c/notes)" = mine ] || fail "other files"
run output.folder="$tmp/a"; refused "$tmp/a"
echo "run, repeat: ok"
