#!/usr/bin/env bash
# Every registered format: gen, show, verify, cat see the same set, whatever the length of its name.
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
fail() { echo "FAILED: $1"; exit 1; }
formats=$("$MILLRACE" gen none --format nothing 2>&1 | sed -n 's/.*must be one of //; s/,//gp')
[ -n "$formats" ] || fail "no formats"
for f in $formats; do
    per_file=3
    case $f in jpeg | png | raw | npy | npz) per_file=1 ;; esac
    "$MILLRACE" gen -q "$f" --format "$f" --files 2 --samples-per-file $per_file --size 6000 >/dev/null 2>err || { cat err; fail "gen $f"; }
    "$MILLRACE" show "$f" --json >out 2>err || { cat err; fail "show $f"; }
    [ "$(python3 -c 'import json; print(json.load(open("out"))["format"])')" = "$f" ] || { cat out; fail "format of $f"; }
    "$MILLRACE" verify -q "$f" >out 2>err || { cat out err; fail "verify $f"; }
    "$MILLRACE" verify -q --by-sample "$f" >out 2>err || { cat out err; fail "verify --by-sample $f"; }
    "$MILLRACE" cat "$f" 1 >payload 2>err || { cat err; fail "cat $f"; }
    [ "$(wc -c <payload)" -ge 3000 ] || fail "cat $f gives $(wc -c <payload) bytes"
done
# where the samples of a file cannot differ in size, its files do; every byte is checked, by name and through the loader
for format in npy hdf5 csv raw; do
    rm -rf v
    "$MILLRACE" -q gen v --format $format --files 9 --samples-per-file 4 --size 3000 --size-stdev 800 >/dev/null 2>err || { cat err >&2; exit 1; }
    "$MILLRACE" -q verify v >/dev/null 2>err || { cat err >&2; exit 1; }
    [ "$("$MILLRACE" -q show v/train --json | python3 -c 'import json, sys; d = json.load(sys.stdin); print(d["sample_min_bytes"] < d["sample_max_bytes"])')" = True ] ||
        { echo "FAIL: $format: all samples have one size" >&2; exit 1; }
    "$MILLRACE" -q run workflow.train=true dataset.format=$format dataset.num_files_train=9 dataset.num_samples_per_file=4 --data v --verify \
        reader.sample_shuffle=seed --ranks 2 --out o >/dev/null 2>err || { cat err >&2; exit 1; }
done
echo "passed: $formats"
