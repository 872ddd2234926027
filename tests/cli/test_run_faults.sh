#!/usr/bin/env bash
# A run that is interrupted, loses a rank, meets a read error or a full disk: no hang, a clear message, valid partial results.
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
. "$(dirname "$0")/waiting.sh"
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 60, record_length_bytes: 20000, data_folder: d}
reader: {batch_size: 2, read_threads: 2, sample_shuffle: seed}
train: {epochs: 1000, computation_time: 0.002}
Y
"$MILLRACE" -q gen d --workload w.yaml >/dev/null 2>&1
partial() { # the results of folder $1 are valid and marked incomplete, with at least $2 steps
    python3 - "$1" "$2" <<'P' || fail "results in $1"
import csv, json, sys
s = json.load(open(sys.argv[1] + "/summary.json"))
m = s["millrace"]
assert s["complete"] is False and m["incomplete_reason"], s
n = sum(len(list(csv.DictReader(open(f"{sys.argv[1]}/rank-{r}.steps.csv")))) for r in range(m["ranks"]))
assert n == m["steps"] >= int(sys.argv[2]), (n, m["steps"])
P
}
# The process has read 2 MB, 100 samples: more than ten steps have ended. Steps are not to be seen from outside before the end.
has_read() { [ "$(awk '/^rchar/ { print $2 }' "/proc/$1/io")" -gt 2000000 ]; }
working() { if [ -r "/proc/$1/io" ]; then soon has_read "$1" || fail "no steps: $(cat err)"; else sleep 3; fi; }
# SIGINT at any moment
for delay in 0 0.01 0.02 0.05 0.1 0.2 0.35 working; do
    rm -rf o
    "$MILLRACE" -q run w.yaml --ranks 2 --out o >out 2>err & p=$!
    ready $p
    if [ $delay = working ]; then working $p; else sleep $delay; fi
    kill -INT $p
    rc=0; wait $p || rc=$?
    [ $rc = 130 ] || fail "SIGINT after $delay s: exit $rc: $(cat err)"
    if [ -e o/summary.json ]; then partial o 0; fi
done
[ -e o/summary.json ] || fail "no results after SIGINT"
partial o 1
# one interrupted while it waits for storage that hangs: a read would take 200 s
export ASAN_OPTIONS=detect_leaks=0 # threads that cannot be ended keep their memory
"$MILLRACE" -q run w.yaml --ranks 2 --out o1 --store "fault(op=read,path=*.npz,every=1,slow=200s):posix" >out 2>err & p=$!
ready $p; sleep 0.5; kill -INT $p; start=$SECONDS
rc=0; wait $p || rc=$?
[ $rc = 130 ] && [ $((SECONDS - start)) -le "$(limit 9)" ] || fail "SIGINT while reading: $rc after $((SECONDS - start)) s"
partial o1 0
unset ASAN_OPTIONS
# one interrupted in a checkpoint that would take minutes
"$MILLRACE" -q run w.yaml --ranks 2 --out o6 workflow.checkpoint=true checkpoint.steps_between_checkpoints=5 model.model_size_bytes=2GB \
    --checkpoint-folder "$tmp/c6" --checkpoint-store "throttle(bandwidth=20MB):posix" >out 2>err & p=$!
begun() { [ -n "$(ls c6)" ]; }
ready $p; soon begun || fail "no checkpoint begins: $(cat err)"; kill -INT $p; start=$SECONDS
rc=0; wait $p || rc=$?
[ $rc = 130 ] && [ $((SECONDS - start)) -le "$(limit 9)" ] || fail "SIGINT in a checkpoint: $rc after $((SECONDS - start)) s: $(cat err)"
partial o6 1
[ -z "$(find c6 -mindepth 1 -maxdepth 1 ! -name '.*' ! -name '*tmp*' 2>/dev/null)" ] || fail "half a checkpoint has a name: $(ls c6)"
# kill -9 of any rank
for victim in 0 1 2; do
    rm -rf o2
    "$MILLRACE" -q run w.yaml --ranks 3 --out o2 >out 2>err & p=$!
    soon children $p 2 || fail "no three ranks: $(cat err)"
    working $p
    if [ $victim = 0 ]; then who=$p; else who=$(pgrep -P $p | sed -n ${victim}p); fi
    kids=$(pgrep -P $p)
    start=$SECONDS
    kill -9 "$who"
    rc=0; wait $p 2>/dev/null || rc=$?
    # shellcheck disable=SC2086
    soon gone $kids && [ $((SECONDS - start)) -lt "$(limit 10)" ] || fail "killing rank $victim: $((SECONDS - start)) s"
    [ $victim = 0 ] || [ $rc = 5 ] || fail "killing rank $victim: exit $rc"
    [ "$(grep -c "rank $victim failed: its process died" err)" = 1 ] || fail "killing rank $victim: $(cat err)"
    [ $victim = 0 ] || grep -q "died: signal 9" err || fail "killing rank $victim: no cause: $(cat err)" # rank 0 has no parent here that could tell
    partial o2 10
done
# the same when a rank waits for what another reads
for victim in 1 2; do
    rm -rf o2
    "$MILLRACE" -q run w.yaml --ranks 3 --out o2 reader.file_access=collective pattern.collective_readers=2 >out 2>err & p=$!
    soon children $p 2 || fail "no three ranks: $(cat err)"
    sleep 0.3
    kill -9 "$(pgrep -P $p | sed -n ${victim}p)"
    rc=0; wait $p 2>/dev/null || rc=$?
    [ $rc = 5 ] && [ "$(grep -c "rank $victim failed: its process died" err)" = 1 ] || fail "collective, killing rank $victim: $rc $(cat err)"
    partial o2 0
done
# EIO in the middle, on one rank of three
rc=0; "$MILLRACE" -q run w.yaml --ranks 3 --out o3 --store "fault(op=read,path=*img_07*,nth=9,error=EIO):posix" >out 2>err || rc=$?
[ $rc = 5 ] || fail "EIO: exit $rc: $(cat err)"
[ "$(grep -c '^millrace: ' err)" = 1 ] && grep -q "img_07" err && grep -q "rank [0-2]" err || fail "EIO: $(cat err)"
partial o3 1
# damaged data is found with --verify
cp -r d bad; printf '\252' | dd of=bad/train/img_07_of_60.npz bs=1 seek=5000 conv=notrunc status=none
rc=0; "$MILLRACE" -q run w.yaml --data bad --verify train.epochs=1 --out o4 >out 2>err || rc=$?
[ $rc = 4 ] || fail "damaged sample: exit $rc: $(cat err)"
# full disk: checkpoints, then results
rc=0; "$MILLRACE" -q run w.yaml --out o5 workflow.checkpoint=true checkpoint.steps_between_checkpoints=5 --ranks 2 \
    model.model_size_bytes=1MB --checkpoint-folder "$tmp/c" --checkpoint-store "fault(op=write,nth=2,error=ENOSPC):posix" >out 2>err || rc=$?
[ $rc = 5 ] && grep -qi "no space left" err || fail "full disk at a checkpoint: exit $rc: $(cat err)"
partial o5 1
if [ -w /dev/full ] && mkdir full && mount -t tmpfs -o size=4k none full 2>/dev/null; then
    rc=0; TMPDIR=$tmp "$MILLRACE" -q run w.yaml train.epochs=2 --out full/o >out 2>err || rc=$?
    umount full
    [ $rc = 5 ] && grep -qi "no space left" err && head -1 out | grep -q '^AU' || fail "full disk for results: exit $rc: $(cat err)"
    kept=$(sed -n "s/.*the results are in '\(.*\)' instead/\1/p" err)
    [ -s "$kept/rank-0.steps.csv" ] && grep -q "results  *$kept" out && grep -q '"complete": true' "$kept/summary.json" || fail "results are lost: $(cat out err)"
fi
# SIGINT while the results are written: nothing is missing any more, and that is what the exit status says
if command -v strace >/dev/null && strace -o probe true 2>/dev/null; then
    rc=0; ASAN_OPTIONS=detect_leaks=0 strace -f -o /dev/null -e trace=rename -e inject=rename:signal=SIGINT:when=1 \
        "$MILLRACE" -q run w.yaml train.epochs=2 --ranks 2 --out o6 >out 2>err || rc=$?
    [ $rc = 0 ] && [ ! -s err ] && grep -q '"complete": true' o6/summary.json || fail "SIGINT at the end: exit $rc: $(cat err)"
fi
echo "run, faults: ok"
