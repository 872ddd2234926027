#!/usr/bin/env bash
# A listing of 1,000,000 keys: within 600 MB of memory, over parallel requests where there are folders, and without a request
# for each object. test-label: full
set -eu
# shellcheck source=../s3/server.sh
. "$(dirname "$0")/../s3/server.sh"
dir=$(mktemp -d)
trap 'stop_server; rm -rf "$dir"' EXIT
cd "$dir"
fail() { echo "FAILED: $*"; cat err; exit 1; }
start_server
make_bucket bucket
for set in set flat; do
    admin PUT /_reset >/dev/null
    /usr/bin/env time -f %M -o peak millrace scan "s3://million/$set" --format raw --out "$set.mrm" >out 2>err || fail "scan of $set"
    grep -q "1,000,000 raw files, 1,000,000 samples" out || fail "$(cat out)"
    [ "$(stat_of list_requests)" -le 1110 ] && [ "$(stat_of requests)" -le 1200 ] || fail "$(stat_of requests) requests"
    [ "$(cat peak)" -le 600000 ] || fail "$(cat peak) kB of memory"
done
millrace show flat.mrm --store s3 >out 2>err && grep -q "1,000,000" out || fail show
echo passed
