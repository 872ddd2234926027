#!/usr/bin/env bash
# Checkpoints through a burst buffer: drained by the end, with figures that can be recomputed; a full or failing buffer, a failing
# drain, a kill and an interruption lose nothing, and the next run finishes the drain.
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
. "$(dirname "$0")/waiting.sh"
. "$(dirname "$0")/expect.sh"
cat >w.yaml <<'Y'
model: {model_size_bytes: 300000}
workflow: {train: true, checkpoint: true}
dataset: {format: synthetic, num_files_train: 1200, num_samples_per_file: 1}
reader: {batch_size: 1}
train: {epochs: 1, computation_time: 0.002, total_training_steps: 60}
checkpoint: {checkpoint_folder: ck, steps_between_checkpoints: 20, type: all_ranks, fsync: true, burst_buffer: {folder: bb}}
Y
buffered() { find bb -name "step-*" -printf "%f\n" | sort -u | wc -l; } # checkpoints in the buffer, whole or not
# Every folder with a final name has all that its list says: sizes here, checksums when it is read back.
whole() {
    python3 - ck <<'P' || fail "$1"
import glob, json, os, sys
for d in glob.glob(sys.argv[1] + "/step-*[0-9]"):
    for f in json.load(open(d + "/checkpoint.json"))["files"]:
        assert os.path.getsize(d + "/" + f["name"]) == f["bytes"], (d, f)
P
}
restore="workflow.train=false checkpoint.num_checkpoints_write=0 checkpoint.num_checkpoints_read=1"

# 1. All ranks write; the figures follow from the files.
expect 0 "$MILLRACE" -q run w.yaml --ranks 2 --out o1 --checkpoint-store 'throttle(bandwidth=20MB):posix' --keep-last 2
grep -q '  drained       3 of the burst buffer' out || fail "no line about the drain: $(cat out)"
[ "$(buffered)" = 0 ] || fail "the buffer is not empty"
[ "$(ls ck)" = "$(printf 'step-%012d\n' 40 60)" ] || fail "keep-last: $(ls ck)"
whole "after a run"
python3 - <<'P' || fail "figures of the drain"
import csv, json
m = json.load(open("o1/summary.json"))["millrace"]["checkpoint"]
b = m["burst_buffer"]
d = [{k: int(v) for k, v in x.items()} for x in csv.DictReader(open("o1/drains.csv"))]
c = list(csv.DictReader(open("o1/checkpoints.csv")))
s = [x for r in (0, 1) for x in csv.DictReader(open(f"o1/rank-{r}.steps.csv"))]
first = min(int(x["start_ns"]) for x in s)
last = max(int(x["end_ns"]) + int(x["checkpoint_ns"]) for x in s)
waits = [(int(x["start_ns"]), int(x["start_ns"]) + int(x["wait_ns"])) for x in c if x["rank"] == "0"]
both = lambda a, b: max(0, min(a[1], b[1]) - max(a[0], b[0]))
overlap = 0
for x in d:
    t = (max(first, x["start_ns"]), min(last, x["start_ns"] + x["duration_ns"]))
    overlap += max(0, t[1] - t[0]) - sum(both(t, w) for w in waits)
near = lambda a, b: abs(a - b) <= 1e-9 * max(abs(a), abs(b), 1e-3)
assert [x["step"] for x in d] == [20, 40, 60] and all(x["bytes"] == 600000 and x["files"] == 6 for x in d), d
assert m["saves"] == b["buffered_saves"] == b["drains"] == 3 and b["failed_drains"] == b["left_in_buffer"] == 0, b
assert b["drained_bytes"] == 1800000 and near(b["drain_total_s"], sum(x["duration_ns"] for x in d) / 1e9), b
assert near(b["drain_overlap_s"], overlap / 1e9) and near(b["drain_overlap_share"], overlap / 1e9 / b["drain_total_s"]), (b, overlap)
assert near(b["drain_bytes_per_s"], 1800000 / b["drain_total_s"]), b
assert b["end_wait_s"] > 0 and all(x["buffered"] == "1" for x in c), (b, c)
assert b["drain_total_s"] >= 3 * 0.015 - 1e-3, b  # each rank drains its own 300000 bytes at 20 MB/s
P
expect 0 "$MILLRACE" -q run w.yaml --ranks 2 --out o1r $restore
grep -q '1 read back and verified' out || fail "not read back: $(cat out)"
rm -rf ck bb

# 2. A failing drain is told and ends the run with an error; the next run, or a restore, finishes it.
expect 5 "$MILLRACE" run w.yaml --ranks 2 --out o2 --checkpoint-store 'fault(op=write,every=1,error=EIO):posix'
grep -q '3 checkpoints are in it (3 drains failed)' out || fail "failed drains are not in the summary: $(cat out)"
grep -q 'cannot drain the checkpoint of step 20 from the burst buffer' err || fail "the failing drain is not told: $(cat err)"
grep -q 'next run with this burst buffer drains it' err || fail "no hint: $(cat err)"
[ "$(buffered)" = 3 ] || fail "want 3 in the buffer, have $(buffered)"
[ -z "$(ls ck)" ] || fail "something is left on the final storage: $(ls ck)"
python3 -c '
import json
b = json.load(open("o2/summary.json"))["millrace"]["checkpoint"]["burst_buffer"]
assert b["failed_drains"] == 3 and b["left_in_buffer"] == 3 and b["drains"] == 0, b' || fail "failed drains in the summary"
expect 0 "$MILLRACE" run w.yaml --ranks 3 --out o2r $restore
grep -q '3 checkpoints of an earlier run are drained' err || fail "the recovery is not told: $(cat err)"
[ "$(buffered)" = 0 ] && [ "$(ls ck | wc -l)" = 3 ] || fail "the drain was not finished: $(ls ck)"
whole "after a recovery"
rm -rf ck bb

# 3. A buffer that is too small, full or fails is gone around.
expect 0 "$MILLRACE" run w.yaml --ranks 2 --out o3 checkpoint.burst_buffer.capacity=1MB train.computation_time=0
expect 0 "$MILLRACE" run w.yaml --out o3 checkpoint.burst_buffer.capacity=1KB
grep -q 'goes around the burst buffer: the burst buffer .* has room for 1000 bytes, the checkpoint has 300000' err || fail "too small: $(cat err)"
grep -q '3 of 3 checkpoints went around it' out || fail "summary: $(cat out)"
expect 0 "$MILLRACE" run w.yaml --ranks 2 --out o3 'checkpoint.burst_buffer.store=fault(op=write,nth=2,error=ENOSPC):posix'
grep -q 'goes around the burst buffer: .*No space left' err || fail "full: $(cat err)"
touch file
expect 0 "$MILLRACE" run w.yaml --out o3 --burst-buffer file/bb
grep -q 'goes around the burst buffer: .*Not a directory' err || fail "no folder: $(cat err)"
whole "around the buffer"
rm -rf ck bb

# 4. Killed at any moment.
drained() { [ -n "$(find ck -mindepth 1 -maxdepth 1 -name 'step-*' ! -name 'step-*[!0-9]*')" ]; }
for i in 1 2 3 4 5 6 7 8; do
    "$MILLRACE" -q run w.yaml --ranks 2 --out o4 train.total_training_steps=1000 checkpoint.steps_between_checkpoints=3 --keep-last 3 \
        --checkpoint-store 'throttle(bandwidth=100MB):posix' >out 2>err & p=$!
    soon test -d bb || fail "the run does not begin: $(cat err)"
    # The last one is killed when there is a checkpoint, which takes a slow disk a while.
    if [ $i = 8 ]; then soon drained || fail "no checkpoint: $(cat err)"; else sleep 0.$((RANDOM % 4))$((RANDOM % 10)); fi
    ranks="$(pgrep -P $p || true) $p" # perhaps none yet
    kill -9 $ranks 2>/dev/null || true
    wait $p 2>/dev/null || true
    soon gone $ranks
    whole "torn after a kill"
done
expect 0 "$MILLRACE" -q run w.yaml --ranks 2 --out o4 $restore
[ "$(buffered)" = 0 ] || fail "kills: the drain was not finished"
drained || fail "kills: no checkpoint"
whole "after kills"
rm -rf ck bb

# 5. Interrupted while the end waits for a slow drain: not for long, and nothing is lost.
"$MILLRACE" -q run w.yaml --out o5 --checkpoint-store 'throttle(bandwidth=1KB):posix' >out 2>err & p=$!
three() { [ "$(buffered)" = 3 ]; }
ready $p && soon three || fail "want 3 in the buffer, have $(buffered): $(cat err)"
kill -INT $p
rc=0; wait $p || rc=$?
[ $rc = 130 ] || fail "SIGINT in the drain: exit $rc: $(cat err)"
# (The third may be on the disk a moment before it counts as saved.)
grep -q '[23] checkpoints are in it (0 drains failed); the next run drains what is there' out || fail "SIGINT: what is left is not told: $(cat out)"
python3 -c '
import json
b = json.load(open("o5/summary.json"))["millrace"]["checkpoint"]["burst_buffer"]
assert b["left_in_buffer"] == b["buffered_saves"] and b["left_in_buffer"] in (2, 3) and b["failed_drains"] == 0, b' || fail "SIGINT: summary"
expect 0 "$MILLRACE" -q run w.yaml --out o5 $restore
[ "$(buffered)" = 0 ] && [ -e ck/step-000000000020/checkpoint.json ] || fail "SIGINT: the drain was not finished"

# 6. What would do nothing, or cannot be done, is said.
expect 2 "$MILLRACE" run w.yaml --virtual --system hdd
grep -q 'no device of the node for a burst buffer' err || fail "--virtual: $(cat err)"
expect 2 "$MILLRACE" run w.yaml --burst-buffer x workflow.checkpoint=false
expect 0 "$MILLRACE" run w.yaml --dry-run --burst-buffer /fast checkpoint.burst_buffer.folder= checkpoint.burst_buffer.capacity=1MB
if grep -q 'needs a folder' err; then fail "the flag is not taken for the folder"; fi
