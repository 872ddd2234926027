#!/usr/bin/env bash
# millrace verify: finds changed, missing and extra files, in generated and in scanned sets; quick, sampled and JSON.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
fail() { echo "FAILED: $1"; exit 1; }
expect() {
    local want=$1 have=0
    shift
    "$@" >out 2>err || have=$?
    [ "$have" = "$want" ] || { cat out err; fail "exit status of '$*': want $want, have $have"; }
}
"$MILLRACE" gen u --format tfrecord --files 6 --samples-per-file 10 --size 2000 >/dev/null 2>&1
"$MILLRACE" gen set --format tfrecord --files 6 --samples-per-file 10 --size 2000 >/dev/null 2>&1
expect 0 "$MILLRACE" verify set
grep -q 'good: 6 files, 60 samples' out || fail "summary"
expect 0 "$MILLRACE" verify set --quick
expect 0 "$MILLRACE" verify set --sample-rate 0.3

printf '\001' | dd of=set/train/img_2_of_6.tfrecord bs=1 seek=5000 conv=notrunc status=none
expect 0 "$MILLRACE" verify set --quick
expect 4 "$MILLRACE" verify set --json
python3 - <<'PY' || fail "json"
import json
d = json.load(open("out"))
assert d["schema"] == "millrace.verify/1" and not d["good"] and d["bad_files"] == 1, d
f = d["findings"][0]
assert f["offset_bytes"] == 5000 and f["sample"] == 22 and f["have"] == 1, f
PY
rm set/train/img_0_of_6.tfrecord
truncate -s 100 set/train/img_1_of_6.tfrecord
cp set/train/img_4_of_6.tfrecord set/train/other.tfrecord
expect 4 "$MILLRACE" verify set --quick
grep -q 'img_0_of_6.tfrecord: file is missing' out || fail "missing"
grep -q 'img_1_of_6.tfrecord: wrong size: want 2.*, have 100' out || fail "size"
grep -q 'other.tfrecord: file is not in the manifest' out || fail "extra"
rm set/train/other.tfrecord

# Half of a generated set is not a good set.
"$MILLRACE" gen half --files 3 --eval-files 2 --size 500 --fsync >/dev/null 2>&1
expect 0 "$MILLRACE" verify half
grep -q 'good: 5 files' out || fail "both splits"
rm half/train/manifest.mrm
expect 4 "$MILLRACE" verify half

# A scanned set has no seed: checksums, sizes and times tell.
"$MILLRACE" gen s --format tfrecord --files 3 --samples-per-file 4 --size 3000 >/dev/null 2>&1
rm s/train/manifest.mrm
expect 0 "$MILLRACE" scan s/train
expect 0 "$MILLRACE" verify s
touch -d '2001-01-01' s/train/img_1_of_3.tfrecord
expect 4 "$MILLRACE" verify s --quick
grep -q 'img_1_of_3.tfrecord: file was modified' out || fail "mtime"
expect 0 "$MILLRACE" scan s/train
printf 'x' | dd of=s/train/img_1_of_3.tfrecord bs=1 seek=100 conv=notrunc status=none
touch -d '2001-01-01' s/train/img_1_of_3.tfrecord
expect 4 "$MILLRACE" verify s
grep -q 'img_1_of_3.tfrecord' out || fail "checksum"

printf 'x' | dd of=s/train/manifest.mrm bs=1 seek=100 conv=notrunc status=none
expect 4 "$MILLRACE" verify s
grep -q 'damaged' err || fail "a damaged manifest is not told"
expect 4 "$MILLRACE" verify "$dir"
expect 5 "$MILLRACE" verify nowhere
# Storage that fails tells nothing about the data: 5, not 4; something known to be wrong outweighs it.
for how in '' --by-sample; do
    expect 5 "$MILLRACE" verify u $how --store 'fault(op=read,path=*_2_of_6*,every=1,error=EIO):posix'
    grep -q '_2_of_6' out || { cat out; fail "the unreadable file is not named"; }
    grep -q 'cannot be read' err || { cat err; fail "unreadable is not told"; }
done
expect 5 "$MILLRACE" verify u --json --store 'fault(op=open,path=*_2_of_6*,every=1,error=EACCES):posix'
grep -q '"kind": "unreadable"' out || { cat out; fail "kind of an unreadable file"; }
printf 'x' | dd of=u/train/img_1_of_6.tfrecord bs=1 seek=100 conv=notrunc status=none
expect 4 "$MILLRACE" verify u --store 'fault(op=read,path=*_2_of_6*,every=1,error=EIO):posix'
echo passed
