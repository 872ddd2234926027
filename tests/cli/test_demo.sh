#!/usr/bin/env bash
# `millrace demo`: starved, fixed, faster; leaves nothing behind, or what it was asked to leave.
set -eu
. "$(dirname "$0")/waiting.sh"
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
# Exit status 3 says that the fix did not help: on a machine that is busy enough it cannot.
try() { rc=0; wait $1 || rc=$?; [ $rc = 0 ] || [ $rc = 3 ] || fail "exit status $rc: $(cat err)"; }
"$MILLRACE" demo kept --keep --json >json 2>err & kept=$!
"$MILLRACE" demo here >out 2>err & here=$!
try $here
[ ! -e here ] || fail "the folder is still there"
for text in '\$ millrace gen here/data' '\$ millrace run unet3d_h100' 'why: ' 'before ' 'after ' 'times as fast'; do
    grep -q -- "$text" out || fail "no '$text' in: $(cat out)"
done
try $kept
python3 - $rc <<'P' || fail "the JSON"
import json, sys
d = json.load(open("json"))
assert d["schema"] == "millrace.demo/1" and d["kept"] and d["before"]["limiter"] and d["after"]["limiter"], d
# The emulated storage gives one reader 30 MB/s at most, four 120 MB/s: bounds that no slow machine breaks.
for side, most in (("before", 30e6), ("after", 120e6)):
    assert 0 < d[side]["samples_per_s"] <= 1.15 * most / 524288, (side, d)
assert (d["speedup"] > 1) == (sys.argv[1] == "0"), d
P
[ -s kept/before/summary.json ] && [ -s kept/after/summary.json ] || fail "results are not kept"
rc=0; "$MILLRACE" demo kept >out 2>err || rc=$?
[ $rc = 5 ] && grep -q "cannot create 'kept'" err && [ -s kept/after/summary.json ] || fail "a folder that exists: $rc $(cat err)"
# interrupted: nothing is left
"$MILLRACE" demo stopped >out 2>err & pid=$!
ready $pid && soon test -e stopped/data || fail "no data: $(cat err)"
kill -INT $pid
rc=0; wait $pid || rc=$?
[ $rc = 130 ] && [ ! -e stopped ] || fail "interrupted: $rc $(ls)"
echo "demo: ok"
