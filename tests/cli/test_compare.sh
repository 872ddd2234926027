#!/usr/bin/env bash
# compare: same work or not, sides of several runs, one run never wins, a slower run is found, settings that differ, and what it says
# about input that is no run.
set -eu
. "$(dirname "$0")/expect.sh"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 32, record_length_bytes: 2000, data_folder: d}
reader: {batch_size: 1, read_threads: 1, sample_shuffle: seed}
train: {epochs: 1, computation_time: 0.002}
Y
"$MILLRACE" -q gen d --workload w.yaml >/dev/null
runs() { "$MILLRACE" -q run w.yaml --no-ceiling --cache warm "$@" >/dev/null || fail "run $*"; }
runs --repeat 4 --out a
runs --repeat 4 --out b train.computation_time=0.02
runs --out other train.epochs=2

# twice as slow and more: found, with the setting that did it
expect 0 "$MILLRACE" compare a b
head -1 out | grep -q '^same work: yes (32 steps, 32 samples, ' || fail "first line: $(head -1 out)"
grep -q '^4 + 4 runs, 32 steps each' out || fail "runs: $(cat out)"
grep -qE '^ wall .*\+[0-9]+\.[0-9] %  worse  \(p < 0.001\)' out || fail "wall: $(cat out)"
grep -q 'changed: train.computation_time 0.002 -> 0.02' out || fail "settings: $(cat out)"
expect 2 "$MILLRACE" compare fast=a slow=a/repeat-1,b/repeat-1
grep -q "different settings: train.computation_time is 0.002 in 'a/repeat-1' and 0.02 in 'b/repeat-1'" err || fail "mixed: $(cat err)"

# a trace says nothing about settings: they are unknown, not gone; a doubt that several runs share is said once
cp a/repeat-1/trace.mrt alone.mrt
expect 0 "$MILLRACE" compare alone.mrt a
! grep -q '(none)' out || fail "settings of a trace: $(cat out)"
expect 0 "$MILLRACE" compare a b
[ "$(grep -c 'not to be trusted' out)" -le 2 ] || fail "the same doubt again and again: $(cat out)"

# names, lists and folders are the same runs; JSON has the same figures
expect 0 "$MILLRACE" compare base=a/repeat-1,a/repeat-2,a/repeat-3,a/repeat-4 slow=b --json
python3 - <<'P' || fail "json: $(cat out)"
import json
d = json.load(open("out"))
assert d["schema"] == "millrace.compare/1" and d["same_work"] is True and d["level"] == 0.01 and d["least_effect"] == 0.01
assert [s["name"] for s in d["sides"]] == ["base", "slow"] and [len(s["runs"]) for s in d["sides"]] == [4, 4]
wall = next(m for m in d["metrics"] if m["metric"] == "wall_s")
walls = [[json.load(open(r["path"] + "/summary.json"))["millrace"]["duration_s"] for r in s["runs"]] for s in d["sides"]]
for side, w in zip(wall["sides"], walls):
    assert side["runs"] == 4 and abs(side["mean"] - sum(w) / 4) < 1e-9 and side["min"] == min(w) and side["max"] == max(w)
c = wall["changes"][0]
means = [sum(w) / 4 for w in walls]
assert c["verdict"] == "worse" and abs(c["change"] - (means[1] / means[0] - 1)) < 1e-9 and c["p"] < 0.001 and c["low"] < c["change"] < c["high"]
P

# the page: one file with the same verdict, names stay text, nothing from elsewhere
expect 0 "$MILLRACE" compare "<b>x=a" slow=b --html c.html
grep -q "worse (p" c.html && grep -q "&lt;b&gt;x" c.html && ! grep -qE "<b>x|https?://[^w]" c.html && [ "$(stat -c %s c.html)" -lt 500000 ] || fail "page"
expect 0 "$MILLRACE" compare a b --html -; head -c 15 out | grep -qi '<!doctype' || fail "page on standard output"

# one run on a side: figures, no winner, and what to do
for two in "a/repeat-1 b/repeat-1" "a b/repeat-1"; do
    expect 0 "$MILLRACE" compare $two
    ! grep -qE 'better|worse' out && grep -q "not judged: one run" out && grep -q -- "--repeat 5" out || fail "$two: $(cat out)"
done
# other work: the duration is not judged
expect 0 "$MILLRACE" compare a other
grep -q '^same work: NO (samples: 32 ' out && grep -q "wall .*not comparable: other work" out || fail "other work: $(cat out)"
# a trace alone
expect 0 "$MILLRACE" compare a/repeat-1/trace.mrt b/repeat-1/trace.mrt
grep -q "traces do not tell settings" out || fail "traces: $(cat out)"
# simulations are predictions; counters have no steps, and are not zeros
"$MILLRACE" -q sim thesis-1 -p staging --trace s1.mrt >/dev/null
"$MILLRACE" -q sim thesis-1 -p nopfs --trace s2.mrt >/dev/null
expect 0 "$MILLRACE" compare s1.mrt s2.mrt
grep -q '^same work: yes (4000 steps, 100000 samples, .* in the same order)' out && grep -q "wall .*predicted" out && ! grep -qE "better|worse" out || fail "sim: $(cat out)"
corpus=$MR_SOURCE_DIR/tests/fuzz/corpus
expect 0 "$MILLRACE" compare "$corpus/darshan/four_ranks.txt" "$corpus/darshan/four_ranks.txt"
grep -q "^same work: yes" out && ! grep -q "data stall" out || fail "counters: $(cat out)"
# an incomplete run is said to be one
sed 's/"complete": true/"complete": false/' a/repeat-2/summary.json >t && cp t a/repeat-2/summary.json
expect 0 "$MILLRACE" compare a b
grep -q "note: 'a/repeat-2' is incomplete" out || fail "incomplete: $(cat out)"

expect 2 "$MILLRACE" compare a
expect 5 "$MILLRACE" compare a nosuch
mkdir empty; expect 4 "$MILLRACE" compare a empty
grep -q "holds no runs and no traces" err || fail "empty: $(cat err)"
cp w.yaml t.mrt; expect 4 "$MILLRACE" compare a t.mrt
echo '{"schema": ' >other/summary.json; expect 4 "$MILLRACE" compare a other

# a run with itself, twenty times: at most one false winner
# spans that a program named, over several runs: how they scale
for n in 1 2 4; do
    python3 -c "
print('node,epoch,start,end,duration,pid,thread,name,category,step,rank')
for i in range(20):
    at = 1700000000 + 0.02 * i
    for name, took in (('augment', 0.002 * $n), ('read', 0.004)):
        print('n0,0,%.9f,%.9f,%.9f,7,7,%s,time,,' % (at, at + took, took, name))
        at += took
" >spans$n.csv
done
"$MILLRACE" compare one=spans1.csv two=spans2.csv four=spans4.csv --json >j || fail "named spans"
python3 -c "
import json
found = {x['name']: [s['median_s'] for s in x['sides']] for x in json.load(open('j'))['named_spans']}
assert all(abs(t / 0.004 - 1) < 0.05 for t in found['read']), found
assert all(abs(t / (0.002 * n) - 1) < 0.05 for t, n in zip(found['augment'], (1, 2, 4))), found
" || fail "named spans: $(cat j)"
"$MILLRACE" -q compare one=spans1.csv two=spans2.csv four=spans4.csv --html c.html >out || fail "named spans"
grep -q "augment .* \(1.9\|2.0\)[0-9]x .* \(3.9\|4.0\)[0-9]x" out && grep -q "How named spans scale" c.html || fail "named spans: $(cat out)"
[ -n "${MR_TEST_FULL:-}" ] || { echo "compare: ok"; exit 0; }
wrong=0
for i in $(seq 20); do
    runs --repeat 3 --out "x$i"; runs --repeat 3 --out "y$i"
    expect 0 "$MILLRACE" compare "x$i" "y$i"
    ! grep -qE 'better|worse' out || { cat out; wrong=$((wrong + 1)); }
done
[ $wrong -le 1 ] || fail "$wrong of 20 comparisons of equal runs have a winner"
echo "compare: ok, $wrong of 20 wrong"
