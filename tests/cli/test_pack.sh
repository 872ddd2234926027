#!/usr/bin/env bash
# pack: samples, labels, classes and fields arrive as they were; a run that is killed again and again is continued; what
# does not fit is refused by name. test-label: once
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
m=$MILLRACE
fail() { echo "FAIL: $1"; exit 1; }

# Pictures in class folders: bytes as they were, labels and class names with them.
"$m" -q gen g --format jpeg --files 30 --size 3000 --labels 3 >out || fail "gen"
mkdir -p small/cat small/dog
i=0
for f in g/train/*.jpeg g/train/*.jpg; do
    [ -e "$f" ] || continue
    i=$((i + 1))
    cp "$f" "small/$([ $((i % 2)) = 0 ] && echo cat || echo dog)/$(basename "$f")"
done
for to in tar indexed_binary tfrecord parquet; do
    "$m" -q pack small "to_$to" --to $to --samples-per-file 7 >out 2>err || fail "pack to $to: $(cat err)"
    grep -q '5 '$to' files, 30 of 30 samples from 30 files' out || fail "$to: $(cat out)"
    grep -q 'verified: every sample and label' out || fail "$to is not verified: $(cat out)"
    "$m" show "to_$to" >out || fail "show $to"
    "$m" cat "to_$to" 3 >sample 2>/dev/null || fail "cat $to"
    cmp -s sample "$(find small -type f | LC_ALL=C sort | sed -n 4p)" || fail "sample 3 of $to is another"
    [ "$(find "to_$to" -name '.*' -type f | wc -l)" = 0 ] || fail "$to left files behind"
done
# Members are called what they are: others, and a scan without the manifest, find pictures and classes.
tar tf to_tar/part_1_of_5.tar | sort >members
[ "$(grep -c '\.jpg$' members)" = 7 ] && [ "$(grep -c '\.cls$' members)" = 7 ] || fail "members: $(head -3 members)"
"$m" -q scan to_tar --out again.mrm >out 2>err || fail "scan of packed tars: $(cat err)"
"$m" show again.mrm | grep -q 'jpg .*jpeg' || fail "pictures in packed tars: $("$m" show again.mrm)"
"$m" -q pack small to_tar --to tar >out 2>err && fail "a complete set was overwritten"
grep -q "holds a complete data set already" err || fail "the complete set: $(cat err)"

# Several fields, by field and by sample; text to binary.
"$m" -q gen f --format hdf5 --files 2 --samples-per-file 20 --fields x:f4:3x4,y:i8:-,w:f8:2 --labels 5 >out || fail "gen fields"
for to in parquet hdf5; do
    "$m" -q pack f/train "fields_$to" --to $to --samples-per-file 15 >out 2>err || fail "fields to $to: $(cat err)"
    "$m" show "fields_$to" | grep -q '^fields     4' || fail "fields of $to"
done
"$m" -q gen c --format csv --files 1 --samples-per-file 50 --dims 6 --dtype f4 >out || fail "gen csv"
"$m" -q pack c/train binary --to indexed_binary >out 2>err || fail "csv: $(cat err)"
"$m" -q pack f/train nothing --to indexed_binary >out 2>err && fail "fields in a format without"
grep -q "cannot hold samples of 3 fields" err || fail "fields in a format without: $(cat err)"

# Some of the fields, the label among them or not; one alone is a payload.
"$m" -q pack f/train two --to parquet --fields w,x >out 2>err || fail "two fields: $(cat err)"
"$m" show two | grep -q '^fields     2' || fail "two fields: $("$m" show two)"
"$m" -q pack f/train one --to indexed_binary --fields y,labels >out 2>err || fail "a field: $(cat err)"
grep -q 'every sample and label equals' out || fail "a field and its label: $(cat out)"
"$m" -q pack f/train bad --to tar --fields y,z >out 2>err && fail "a field that is not there"
grep -q "samples have no field 'z'" err || fail "a field that is not there: $(cat err)"

# Refused before anything is written or said to be done; formats that can be chosen are named.
for words in "f/train no --to jpeg" "f/train no --to nonsense" "nowhere no --to tar"; do
    # shellcheck disable=SC2086
    "$m" pack $words >out 2>err && fail "packed: $words"
    grep -q '0 samples' err && fail "something was done, it says: $(cat err)"
    [ ! -e no ] || fail "$words made a folder"
done
"$m" pack f/train no --to nonsense 2>err; grep -q "must be one of" err && ! grep -q jpeg err || fail "formats: $(cat err)"

# A share, with what all would gain.
"$m" -q pack small share --to tar --sample 10% >out || fail "share"
grep -q '3 of 30 samples' out && grep -q 'samples/s before' out || fail "share: $(cat out)"
"$m" pack small x --sample 0% 2>err >out && fail "a share of nothing"

# Killed 20 times.
mkdir many
for i in $(seq -w 0 599); do echo "sample $i$i$i" >"many/$i.raw"; done
kills=0
for n in $(seq 1 200); do
    "$m" -q pack many killed --to tar --samples-per-file 5 --from raw --threads 1 >out 2>err &
    pid=$!
    sleep "0.$(printf %02d $((n * 2 % 60)))"
    kill -9 $pid 2>/dev/null && kills=$((kills + 1))
    wait $pid 2>/dev/null && break
    [ $kills = 20 ] && break
done
[ -e killed/manifest.mrm ] || "$m" -q pack many killed --to tar --samples-per-file 5 --from raw >out 2>err || fail "continue: $(cat err)"
"$m" -q pack many killed --to tar --samples-per-file 6 --from raw >out 2>err && fail "another request was accepted"
"$m" -q pack many whole --to tar --samples-per-file 5 --from raw >out || fail "whole"
for f in whole/*.tar; do cmp -s "$f" "killed/$(basename "$f")" || fail "$f differs after $kills kills"; done
cmp -s <("$m" cat whole 599) <("$m" cat killed 599) || fail "the last sample"
echo "ok, $kills kills"
