#!/usr/bin/env bash
# millrace cache: fill up to a capacity, list, verify and drop damage, go on after a kill, refuse what is not a cache.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
. "$MR_SOURCE_DIR/tests/cli/waiting.sh"
fail() { echo "FAILED: $1"; exit 1; }
expect() {
    local want=$1 have=0
    shift
    "$@" >out 2>err || have=$?
    [ "$have" = "$want" ] || { cat out err; fail "exit status of '$*': want $want, have $have"; }
}
cache() { "$MILLRACE" cache "$@"; }
"$MILLRACE" gen raw --format raw --files 300 --samples-per-file 1 --size 30000 >/dev/null 2>&1
"$MILLRACE" gen rec --format tfrecord --files 6 --samples-per-file 20 --size 5000 >/dev/null 2>&1

expect 5 cache ls nothing
expect 2 cache ls
expect 2 cache fill c raw
grep -q -- "--capacity" err || fail "fill without a capacity"
[ ! -e c ] || fail "a refused fill made the folder"
expect 0 cache fill c raw --capacity 64MiB
grep -q "300 of 300 samples" out || fail "fill: $(cat out)"
[ "$(stat -c %a c)" = 700 ] || fail "mode of the folder"
expect 0 cache fill c rec --capacity 64MiB --threads 3 --json
python3 -c 'import json; r=json.load(open("out")); assert r["samples"]==r["of_samples"]==r["written_samples"]==120 and not r["full"], r' || fail "fill --json"
expect 0 cache fill c rec --capacity 64MiB --json
python3 -c 'import json; r=json.load(open("out")); assert r["samples"]==120 and r["written_samples"]==0 and r["read_bytes"]==0, r' || fail "filled again"

expect 0 cache ls c
grep -Eq "120 +100.0 % .* rec$" out && grep -Eq "300 +100.0 % .* raw$" out && grep -q "2 data sets" out || fail "ls: $(cat out)"
expect 0 cache ls c --json
python3 - <<'PY' || fail "ls --json"
import json, os
r = json.load(open("out"))
du = sum(os.lstat(os.path.join(d, f)).st_blocks * 512 for d, _, fs in os.walk("c") for f in fs + ["."])
assert r["schema"] == "millrace.cache/1" and r["folder_bytes"] == du, (r, du)
assert sorted((s["name"], s["samples"], s["bytes"], s["in_use"]) for s in r["data_sets"]) == [("raw", 300, 9000000, False), ("rec", 120, 120 * 5000, False)], r
PY

# damage: found by verify, named, dropped, filled again; two data sets, one of them whole
expect 0 cache verify c
grep -q "420 samples and 9.16 MiB match their checksums, 0 do not" out || fail "verify: $(cat out)"
seg=$(find c -name '0001.seg' -size +1000k)
for at in 40000 1000000; do printf 'X' | dd of="$seg" bs=1 seek=$at conv=notrunc status=none; done
expect 4 cache verify c
[ "$(grep -c "sample [0-9]* in '$seg' at offset [0-9]* does not have its checksum" out)" = 2 ] && grep -q "2 corrupt samples" err || fail "damage: $(cat out err)"
expect 0 cache verify c --json
python3 -c 'import json; r=json.load(open("out")); assert r["good"] and r["samples"]==418 and r["corrupt"]==0, r' || fail "verify --json: $(cat out)"
expect 0 cache fill c raw --capacity 64MiB --json
python3 -c 'import json; r=json.load(open("out")); assert r["samples"]==300 and r["written_samples"]==2, r' || fail "refilled"

# capacity: not exceeded, and said
expect 0 cache fill small raw --capacity 4MiB
grep -q "the capacity is used up" out || fail "full: $(cat out)"
[ "$(du -s --block-size=1 small | cut -f1)" -le $((4 << 20)) ] || fail "$(du -s small) KiB in 4 MiB"
expect 0 cache verify small

# interrupted: what was read stays; killed: the same, less what was in the air
for signal in INT KILL; do
    "$MILLRACE" cache fill slow raw --store 'throttle(latency=5ms):posix' --threads 1 --capacity 64MiB >out 2>err &
    pid=$!
    ready $pid && soon sh -c 'ls slow/*/0001.idx >/dev/null' || fail "fill does not begin"
    sleep 0.3
    kill -$signal $pid
    have=0
    wait $pid 2>/dev/null || have=$?
    case $signal:$have in INT:130 | KILL:137) ;; *) fail "$signal: status $have: $(cat out err)" ;; esac
    expect 0 cache verify slow
    expect 0 cache ls slow
done
expect 0 cache fill slow raw --capacity 64MiB
grep -q "300 of 300" out || fail "after a kill: $(cat out)"
expect 0 cache verify slow

# drop: one by name, one by key, never a folder that is not a cache
expect 2 cache drop c
expect 2 cache drop c nosuch
expect 0 cache drop c rec
expect 0 cache ls c
grep -q "1 data set" out && ! grep -q "rec$" out || fail "drop: $(cat out)"
mkdir mine && echo thesis >mine/thesis
expect 2 cache drop mine --all
expect 2 cache fill mine raw --capacity 64MiB
[ "$(cat mine/thesis)" = thesis ] || fail "a folder that is not a cache was touched"
key=$(cd c && ls -d ????????????????????????????????)
echo letter >"c/$key/letter"
expect 0 cache drop c "${key:0:8}"
[ "$(cat "c/$key/letter")" = letter ] || fail "drop removed what is not ours"
rm "c/$key/letter"
expect 0 cache drop c --all --json
[ "$(ls -A c)" = cache.lock ] || fail "left: $(ls -A c)"
# a data set that a job uses stays
"$MILLRACE" cache fill c raw --store 'throttle(latency=20ms):posix' --threads 1 --capacity 64MiB >out2 2>err2 &
pid=$!
soon sh -c 'ls c/*/0001.idx >/dev/null' || fail "fill does not begin"
expect 6 cache drop c --all
kill -INT $pid
wait $pid || true
expect 0 cache drop c --all
echo ok
