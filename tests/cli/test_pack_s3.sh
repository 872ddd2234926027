#!/usr/bin/env bash
# pack over object storage: from there to a disk, from a disk to there and within it; samples are compared at the end; a
# folder without a manifest is refused with what to do. test-label: once
set -eu
# shellcheck source=../s3/server.sh
. "$(dirname "$0")/../s3/server.sh"
dir=$(mktemp -d)
trap 'stop_server; rm -rf "$dir"' EXIT
cd "$dir"
fail() { echo "FAILED: $*"; exit 1; }
pack() { # files and format of the result, words
    local want=$1
    shift
    millrace -q pack "$@" >out 2>err || fail "$*: $(cat err)"
    if ! grep -q "$want" out || ! grep -q "verified: every sample" out; then fail "$*: $(cat out)"; fi
}
start_server
make_bucket bucket
millrace -q gen s3://bucket/set --format hdf5 --files 2 --samples-per-file 8 --fields a:f4:3,b:i8:- >/dev/null
mkdir small
for i in $(seq -w 0 59); do echo "sample $i$i" >"small/$i.raw"; done
pack "1 parquet file, 16 of 16" s3://bucket/set/train disk --to parquet
pack "1 hdf5 file, 16 of 16" s3://bucket/set/train s3://bucket/other --to hdf5
rc=0
millrace -q pack small s3://bucket/packed --to tar >out 2>err || rc=$?
{ [ $rc = 2 ] && grep -q "millrace scan small" err; } || fail "no manifest: $rc $(cat err)"
millrace -q scan small --format raw >/dev/null
pack "9 tar files, 60 of 60" small s3://bucket/packed --to tar --samples-per-file 7
[ "$(millrace cat s3://bucket/packed 59)" = "sample 5959" ] || fail "the last sample"
[ "$(admin GET /_uploads)" = "[]" ] || fail "uploads are left: $(admin GET /_uploads)"
echo passed
