#!/usr/bin/env bash
# pack of 20,000 small files, killed 20 times at random moments and continued each time: the result equals, byte by byte,
# that of a run that was left alone, and every sample the source's. test-label: full
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
m=$MILLRACE
fail() { echo "FAIL: $1"; exit 1; }
python3 - <<'P'
import os, random
r = random.Random(5)
for c in range(20):
    os.makedirs(f"small/class{c:02}")
    for i in range(1000):
        with open(f"small/class{c:02}/{i:04}.raw", "wb") as f:
            f.write(r.randbytes(r.randrange(2000, 20001)))
P
pack() { "$m" -q pack small "$1" --to indexed_binary --samples-per-file 50 --from raw --threads 1; }
begin=$(date +%s%N)
pack whole >out 2>err || fail "whole: $(cat err)"
took=$((($(date +%s%N) - begin) / 1000000))
kills=0
while [ $kills -lt 20 ]; do
    "$m" -q pack small killed --to indexed_binary --samples-per-file 50 --from raw --threads 1 >out 2>err & # its own pid
    pid=$!
    sleep "$(python3 -c "import random; print(random.uniform(0.02, $took / 1000 / 4))")"
    if ! kill -9 $pid 2>/dev/null; then
        wait $pid || fail "ended by itself: $(cat err)"
        [ -e killed/manifest.mrm ] && rm -rf killed # too quick: from the start
        continue
    fi
    wait $pid 2>/dev/null
    kills=$((kills + 1))
    [ -e killed/manifest.mrm ] && { rm -rf killed; continue; }
    find killed -name 'part_*' 2>/dev/null | wc -l >>progress
done
[ -e killed/manifest.mrm ] || pack killed >out 2>err || fail "continue: $(cat err)"
grep -q 'verified: every sample' out || fail "the comparison: $(cat out)"
for f in whole/part_*; do cmp -s "$f" "killed/${f#whole/}" || fail "$f differs after $kills kills"; done
[ "$(find whole -name 'part_*' | wc -l)" = "$(find killed -name 'part_*' | wc -l)" ] || fail "other files"
[ "$(find killed -name '.*' | wc -l)" = 0 ] || fail "left behind: $(find killed -name '.*')"
echo "ok, $kills kills, files kept before them: $(tr '\n' ' ' <progress 2>/dev/null)"
