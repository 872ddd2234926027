#!/usr/bin/env bash
# Killed with SIGKILL at random moments, again and again, a generation still ends with exactly the bytes of an undisturbed one;
# SIGINT ends with 130 and can be continued.
# test-label: once (test_dataset_generate interrupts it at every call there)
set -eu
. "$(dirname "$0")/waiting.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
fail() { echo "FAILED: $1"; exit 1; }
tree() { (cd "$1" && find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum); }
args="--format indexed_binary --files 60 --samples-per-file 5 --size 60KB --size-stdev 9KB --subfolders 3 --threads 2"

"$MILLRACE" gen want $args >/dev/null 2>&1
# 180 writes that take at least 20 ms each, 6 at a time: no machine is done within 0.6 s
slow='fault(op=write,slow=20ms,every=1):posix'
RANDOM=11
kills=0
for i in $(seq 15); do
    ranks=$((i % 3 + 1))
    "$MILLRACE" gen set $args --ranks $ranks --store "$slow" >/dev/null 2>&1 &
    pid=$!
    sleep "$(printf '0.%03d' $((RANDOM % 400)))"
    # only the parent: forked ranks must end with it
    kill -KILL $pid 2>/dev/null && kills=$((kills + 1))
    wait $pid 2>/dev/null || true
    # a set that got complete is thrown away, so that there is something left to kill
    [ ! -f set/train/manifest.mrm ] || rm -rf set
done
[ $kills -gt 3 ] || fail "only $kills of 15 runs were killed in time"
"$MILLRACE" gen set $args >/dev/null 2>&1 || fail "cannot continue after kills"
[ "$(tree set)" = "$(tree want)" ] || fail "bytes differ after kills"
"$MILLRACE" verify set >/dev/null 2>&1 || fail "verify after kills"

# One large file: its parts are written by all threads and ranks, continued after kills, and checked by all threads.
big="--format tfrecord --files 1 --samples-per-file 36000 --size 4096 --labels 10"
"$MILLRACE" gen big-want $big --threads 1 >/dev/null 2>&1
for i in 1 2 3 4; do
    "$MILLRACE" gen big $big --threads 2 --ranks $((i % 2 + 1)) --store "fault(op=write,slow=10ms,every=4):posix" >/dev/null 2>&1 &
    pid=$!
    sleep "0.$((i + 1))"
    kill -KILL $pid 2>/dev/null || true
    wait $pid 2>/dev/null || true
    [ ! -f big/train/manifest.mrm ] || rm -rf big
done
"$MILLRACE" gen big $big >/dev/null 2>&1 || fail "cannot continue a file in parts"
[ "$(tree big)" = "$(tree big-want)" ] || fail "bytes of a file in parts differ after kills"
"$MILLRACE" verify big --threads 3 >/dev/null 2>&1 || fail "verify of a file in parts"
printf X | dd of="$(ls big/train/*.tfrecord)" bs=1 seek=100000000 conv=notrunc status=none
"$MILLRACE" verify big --threads 3 2>/dev/null >out && fail "damage in a file in parts is not found"
grep -q '100000000' out || { cat out; fail "the offset of the damage is not told"; }
"$MILLRACE" verify big --by-sample --threads 3 2>/dev/null >out && fail "damage in a file in parts is not found by sample"
grep -q '1 of 1 file is wrong' out || { cat out; fail "the bad file is not counted once"; }
rm -rf big big-want

# Interrupting one rank interrupts all.
rm -rf slow
"$MILLRACE" gen slow $args --ranks 2 --store 'fault(op=write,slow=300ms,every=1):posix' >/dev/null 2>err &
pid=$!
ready $pid && soon children $pid 1 || { cat err; fail "two ranks do not start"; }
sleep 0.5
kill -INT $pid
code=0
wait $pid || code=$?
[ "$(grep -c '^millrace: interrupted' err)" = 1 ] || { cat err; fail "the interruption is not told once"; }
[ $code = 130 ] || { cat err; fail "SIGINT: want exit status 130, have $code"; }
[ ! -f slow/train/manifest.mrm ] || fail "an interrupted set has a manifest"
"$MILLRACE" verify slow >/dev/null 2>err && fail "an incomplete set verifies"
"$MILLRACE" gen slow $args >/dev/null 2>&1 || fail "cannot continue after SIGINT"
[ "$(tree slow)" = "$(tree want)" ] || fail "bytes differ after SIGINT"
echo "passed ($kills kills)"
