#!/usr/bin/env bash
# watch: a traced program and a run while they go on, lines and JSON, by file, folder and process number; what it says at the end, of a
# job that was killed, of a trace that is none and of a process that is not traced. bench/check_watch has what it costs.
set -eu
. "$(dirname "$0")/expect.sh"
. "$(dirname "$0")/waiting.sh"
cc=$(command -v "${CC:-cc}") || { echo "SKIP: no C compiler"; exit 77; }
cat >steps.c <<'C'
#define _GNU_SOURCE
#include <fcntl.h>
#include <millrace/trace.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static void pause_ms(int ms) { nanosleep(&(struct timespec){0, ms * 1000000L}, NULL); }
int main(int argc, char **argv)
{
    static char page[4096];
    int fd = open(argv[0], O_RDONLY), n = atoi(argv[argc - 1]);
    for (int i = 0; i < n; i++) {
        MILLRACE_REGION_BEGIN(wait, "data_stall", "next batch");
        MILLRACE_REGION_INT(wait, "epoch", i / 50);
        for (int k = 0; k < 16; k++)
            if (pread(fd, page, sizeof page, 0) < 0)
                return 1;
        pause_ms(15);
        MILLRACE_REGION_END(wait);
        MILLRACE_REGION_BEGIN(step, "train", "optimizer.step");
        pause_ms(5);
        MILLRACE_REGION_END(step);
    }
    return 0;
}
C
"$cc" -O1 -I "$MR_SOURCE_DIR/include" -o steps steps.c

# A program, by the number of one of its processes: steps grow while it runs, the end is predicted from its own words.
"$MILLRACE" -q trace -o t.mrt -- ./steps --epochs 2 100 &
job=$!
soon test -s t.mrt
soon pgrep -P $job -x steps >pid
"$MILLRACE" watch "$(cat pid)" --json --interval 0.3 >lines || fail "watch of a process: $?"
wait $job
python3 - <<'P' || fail "lines: $(cat lines)"
import json
d = [json.loads(l) for l in open("lines")]
assert all(x["schema"] == "millrace.watch/1" and x["trace"].endswith("t.mrt") for x in d)
steps = [x["steps"] for x in d]
live = [x for x in d if 0 < x["steps"] < 100]
assert steps == sorted(steps) and len({x["steps"] for x in live}) >= 2, steps
last = d[-1]
assert last["ended"] and last["whole"] and last["steps"] == 100 and last["epoch"] == 2, last
assert 0.6 < last["stall_share"] < 0.9 and last["left_s"] in (0, None) and last["all_steps"] == 100, last
assert any(x["left_s"] and x["all_steps_by"] == "--epochs" for x in live), live
reads = sum(m["read_bytes_per_s"] for m in last["storage"])
assert reads > 1e5, last["storage"]
P
# What the report counts is what was counted live.
"$MILLRACE" report t.mrt --json >r.json
[ "$(python3 -c 'import json; print(len(json.load(open("r.json"))["steps"]))')" = 100 ] || fail "the report counts other steps"

# One that has ended: a line and the verdict. Names in a trace obey nobody.
expect 0 "$MILLRACE" watch t.mrt
grep -q '^step 100 of 100, epoch 2 of 2 | ' out && grep -q '^VERDICT ' out && grep -q "^more: millrace report t.mrt$" out || fail "ended: $(cat out)"
# On a terminal the screen is drawn in place.
expect 0 script -qec "'$MILLRACE' watch t.mrt --screens 1" screen
grep -q 'progress  step 100 of 100' out && grep -q $'\033\[K' out || fail "screen: $(cat out)"

# Killed: what is there, status 6, and how to get the rest.
"$MILLRACE" -q trace -o k.mrt -- ./steps 5000 & job=$!
soon test -s k.mrt
"$MILLRACE" watch k.mrt --interval 0.2 >lines 2>err & watcher=$!
soon grep -q 'steps/s' lines
kids=$(pgrep -P $job)
kill -9 $job # before its program: else it completes the trace
kill -9 $kids
have=0; wait $watcher || have=$?
[ $have = 6 ] && grep -q "does not reach its end" err && grep -q "millrace recover k.mrt" err || fail "killed: $have $(cat lines err)"
wait $job 2>/dev/null || true
"$MILLRACE" -q recover k.mrt >/dev/null

# A trace that keeps its newest events: what was not read makes no long step.
"$MILLRACE" -q trace --max-size 6KiB -o m.mrt -- ./steps 100 & job=$!
soon test -s m.mrt
"$MILLRACE" watch m.mrt --interval 1.4 --json >lines || fail "a trace of limited size: $?"
wait $job
python3 - <<'P' || fail "a trace of limited size: $(cat lines)"
import json
d = [json.loads(l) for l in open("lines")]
assert any(x["gaps"] for x in d) and 0 < d[-1]["steps"] <= 100, d[-1]
assert all(x["steps_per_s"] is None or x["steps_per_s"] > 24 for x in d), [x["steps_per_s"] for x in d]
P

# A run of two ranks: its parts, then the whole.
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 32, record_length_bytes: 2000, data_folder: d}
reader: {batch_size: 1, read_threads: 1}
train: {epochs: 6, computation_time: 0.02}
Y
"$MILLRACE" -q gen d --workload w.yaml >/dev/null
"$MILLRACE" -q run w.yaml --no-ceiling --ranks 2 --out r >/dev/null & job=$!
soon test -e r/trace.mrt.rank-1
expect 0 "$MILLRACE" watch r --interval 0.5
wait $job
grep -q '^step [1-9][0-9]* of 96, ' out && tail -4 out | grep -q '^step 96 of 96' && grep -q '^VERDICT ' out || fail "run: $(cat out)"

# What cannot be watched.
expect 5 "$MILLRACE" watch nosuch.mrt
expect 5 "$MILLRACE" watch 99999999
expect 2 "$MILLRACE" watch $$
grep -q "writes no trace" err && grep -q "millrace trace" err || fail "untraced: $(cat err)"
expect 4 "$MILLRACE" watch w.yaml
mkdir e; expect 4 "$MILLRACE" watch e
cp t.mrt cut.mrt; truncate -s -4000 cut.mrt
expect 6 "$MILLRACE" watch cut.mrt
printf 'x%.0s' $(seq 900) | dd of=t.mrt bs=1 seek=700 conv=notrunc 2>/dev/null
"$MILLRACE" watch t.mrt >out 2>err || [ $? -le 6 ] || fail "damage: $(cat err)"
echo "watch: ok"
