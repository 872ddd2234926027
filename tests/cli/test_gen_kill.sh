#!/usr/bin/env bash
# Killed with SIGKILL at random moments, again and again, a generation still ends with exactly the bytes of an undisturbed one;
# SIGINT ends with 130 and can be continued.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
fail() { echo "FAILED: $1"; exit 1; }
tree() { (cd "$1" && find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum); }
args="--format indexed_binary --files 60 --samples-per-file 5 --size 60KB --size-stdev 9KB --subfolders 3 --threads 2"

"$MILLRACE" gen want $args >/dev/null 2>&1
start=$(date +%s%N)
"$MILLRACE" gen probe $args >/dev/null 2>&1
whole_ms=$((($(date +%s%N) - start) / 1000000 + 1))
RANDOM=11
kills=0
for i in $(seq 15); do
    ranks=$((i % 3 + 1))
    "$MILLRACE" gen set $args --ranks $ranks >/dev/null 2>&1 &
    pid=$!
    sleep "$(printf '0.%03d' $((RANDOM % (whole_ms > 900 ? 900 : whole_ms))))"
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

# Interrupting one rank interrupts all.
rm -rf slow
"$MILLRACE" gen slow $args --ranks 2 --store 'fault(op=write,slow=20ms,every=1):posix' >/dev/null 2>err &
pid=$!
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
