#!/usr/bin/env bash
# millrace scan: class folders, hostile names, link loops, broken files, manifests elsewhere; stable whatever the threads.
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
"$MILLRACE" gen g --format jpeg --files 12 --size 4000 >/dev/null 2>&1
mkdir -p tree/cat tree/dog "tree/zebra fish"
n=0
for f in g/train/*.jp*g; do
    case $((n % 3)) in 0) d="cat" ;; 1) d="dog" ;; 2) d="zebra fish" ;; esac
    cp "$f" "tree/$d/$n.jpeg"
    n=$((n + 1))
done
mv "tree/cat/0.jpeg" "$(printf 'tree/cat/new\nline \377.jpeg')"
ln -s .. tree/dog/loop
ln -s ../../tree "tree/zebra fish/again"
echo text >tree/notes.txt
expect 0 "$MILLRACE" scan tree
grep -q '12 jpeg files, 12 samples.*3 classes' out || { cat out; fail "summary"; }
expect 0 "$MILLRACE" verify tree
cp tree/manifest.mrm one
for t in 1 4; do
    expect 0 "$MILLRACE" scan tree --threads $t
    cmp tree/manifest.mrm one || fail "the manifest depends on threads"
done
expect 0 "$MILLRACE" show tree 3
grep -q 'new\\x0aline \\xff.jpeg' out || { cat out; fail "a hostile name is not escaped"; }
grep -q '^label   0 cat' out || { cat out; fail "label"; }
expect 0 "$MILLRACE" show tree 11 --json
python3 -c 'import json; d=json.load(open("out")); assert d["label"]==2 and d["class"]=="zebra fish", d' || fail "json label"
"$MILLRACE" cat tree 3 --raw >raw && cmp raw "$(printf 'tree/cat/new\nline \377.jpeg')" || fail "cat --raw"

expect 0 "$MILLRACE" scan tree --out elsewhere.mrm --json
python3 -c 'import json; d=json.load(open("out")); assert d["files"]==12 and d["classes"]==3, d' || fail "json"
"$MILLRACE" cat elsewhere.mrm 3 --raw | cmp - raw || fail "manifest elsewhere"

echo "not an image" >tree/dog/broken.jpeg
expect 4 "$MILLRACE" scan tree --out x.mrm
grep -q "broken.jpeg'" err && grep -q '1 of 13 files are broken' err || { cat err; fail "broken file not named"; }
[ ! -e x.mrm ] || fail "a manifest was written in spite of broken files"
expect 0 "$MILLRACE" scan tree --out x.mrm --skip-bad
grep -q 'left out: 1 broken' out || fail "skip-bad"
head -c 1000 tree/dog/1.jpeg >tree/dog/broken.jpeg # a scan looks at the signature only; reading finds the rest
expect 0 "$MILLRACE" scan tree --out x.mrm
expect 4 "$MILLRACE" verify x.mrm
grep -q 'broken.jpeg: ' out || { cat out; fail "a cut image verifies"; }

"$MILLRACE" gen many --format tar --files 3 --samples-per-file 7 --size 900 --labels 5 >/dev/null 2>&1
"$MILLRACE" cat many 17 >want
rm many/train/manifest.mrm
expect 0 "$MILLRACE" scan many/train
grep -q '3 tar files, 21 samples' out || { cat out; fail "tar"; }
"$MILLRACE" cat many 17 | cmp - want || fail "tar sample"

expect 0 "$MILLRACE" scan many/train/img_1_of_3.tar
grep -q '1 tar file, 7 samples' out || fail "single file"
# JSON also when nothing comes of it
echo broken >many/train/img_9_of_3.tar
expect 4 "$MILLRACE" scan many/train --json
grep -q '"manifest": null' out && grep -q '"bad_files": 1' out && grep -q '"error": "1 of 4 files are broken"' out || { cat out; fail "JSON of broken files"; }
expect 5 "$MILLRACE" scan nowhere --json
grep -q '"error"' out || fail "JSON of nothing"
expect 5 "$MILLRACE" scan many/train --store 'fault(op=read,path=*_1_of_3.tar,every=1,error=EIO):posix'
# files without samples, names of formats
mkdir void
: >void/a.tfrecord
expect 4 "$MILLRACE" scan void
grep -q "'void' holds no samples (1 file of format 'tfrecord')" err || { cat err; fail "no samples"; }
[ ! -e void/manifest.mrm ] || fail "a manifest of nothing"
expect 2 "$MILLRACE" scan tree --format jpg
grep -q "did you mean 'jpeg'" err || fail "jpg is not recognised"
expect 2 "$MILLRACE" gen x --format tfrecrod
grep -q "did you mean 'tfrecord'" err || fail "misspelt format"
# bytes of a sample in a file that is compressed as a whole
"$MILLRACE" gen gz --format tfrecord --files 1 --samples-per-file 3 --compression gzip --size 900 >/dev/null 2>&1
expect 2 "$MILLRACE" cat gz 1 --raw
grep -q 'compressed as a whole' err || fail "raw bytes of a compressed file"
expect 0 "$MILLRACE" cat gz 1
[ "$(wc -c <out)" = 900 ] || fail "sample of a compressed file"
expect 2 "$MILLRACE" gen packed --format raw --compression gzip
grep -q 'probe' err && { cat err; fail "an error names a file that nobody knows"; }
mkdir empty
expect 4 "$MILLRACE" scan empty
expect 5 "$MILLRACE" scan nowhere
expect 2 "$MILLRACE" scan tree --format nothing
echo passed
