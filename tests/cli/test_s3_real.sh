#!/usr/bin/env bash
# Object storage against real servers, versitygw and MinIO: the conformance suite of stores; gen, verify, show, cat, scan and
# run; odd keys; parts; what is left after a killed writer. test-label: full
set -eu
# shellcheck source=../s3/real.sh
. "$(dirname "$0")/../s3/real.sh"
dir=$(mktemp -d)
# shellcheck disable=SC2154 # s3_folder: real.sh
trap 'stop_server; rm -rf "$dir" ${s3_folder:+"$s3_folder" "$s3_folder.log"}' EXIT
cd "$dir"
fail() { echo "FAILED ($server): $*"; cat err 2>/dev/null || true; exit 1; }

conformance() { # the suite whole, for a stack of each kind
    for stack in s3 's3(connections=3,range=64KiB,part=5MiB)'; do
        MR_CONFORMANCE_ONLY=$stack MR_CONFORMANCE_DIR=s3://bucket/conf "$MR_BINARY_DIR/tests/test_store_conformance" >out 2>&1 ||
            { grep -v "^\[ *\(RUN\|OK\)" out | tail -30; fail "conformance of '$stack'"; }
    done
}

first_slice() {
    millrace gen s3://bucket/set --format npy --files 40 --size 50KB -q >/dev/null 2>err || fail gen
    millrace verify s3://bucket/set >out 2>err && grep -q "good: 40 files, 40 samples" out || fail "verify: $(cat out)"
    millrace show s3://bucket/set >out 2>err && grep -q "samples    40 in 40 files" out || fail show
    millrace gen s3://bucket/set --format npy --files 40 --size 50KB >out 2>err && grep -q "already complete" out || fail again
    millrace gen "here" --format npy --files 40 --size 50KB -q >/dev/null
    millrace cat s3://bucket/set/train 7 >a 2>err || fail cat
    millrace cat here/train 7 >b
    cmp a b || fail "other bytes than on disk"
    millrace run --data s3://bucket/set --tiers auto dataset.format=npy dataset.record_length_bytes=50000 train.epochs=3 \
        reader.batch_size=4 train.computation_time=0 workflow.checkpoint=false --verify >out 2>err || fail "run: $(tail -3 out)"
    odd='s3://bucket/a b+c%20d ä&=?#'
    millrace gen "$odd" --format raw --files 2 --size 1KB -q >/dev/null 2>err || fail "odd name"
    millrace verify "$odd" >out 2>err || fail "verify of an odd name"
    millrace gen s3://bucket/large --format npz --files 2 --size 20MB -q >/dev/null 2>err || fail large
    millrace verify s3://bucket/large >out 2>err || fail "verify large"
}

# A gen that is killed in the middle of an upload: the next one removes what it left, and finishes the set.
killed_writer() {
    millrace gen s3://bucket/killed --format raw --files 6 --size 24MB -q >/dev/null 2>err &
    local pid=$!
    sleep 0.7
    kill -9 $pid 2>/dev/null || true
    wait $pid 2>/dev/null || true
    millrace gen s3://bucket/killed --format raw --files 6 --size 24MB -q >/dev/null 2>err || fail "gen after a kill"
    millrace verify s3://bucket/killed >out 2>err || fail "verify after a kill"
}

says() { # STATUS TEXT COMMAND...
    local want=$1 text=$2 rc=0
    shift 2
    "$@" >out 2>err || rc=$?
    [ $rc = "$want" ] && grep -q "$text" err || fail "$*: status $rc (want $want), said: $(cat err)"
}

refusals() {
    says 2 "NoSuchBucket" millrace verify s3://nobucket/set
    says 5 "SignatureDoesNotMatch" env AWS_SECRET_ACCESS_KEY=wrong millrace verify s3://bucket/set
    says 5 "check AWS_ACCESS_KEY_ID" env AWS_ACCESS_KEY_ID=wrong millrace verify s3://bucket/set
    says 5 "No such file" millrace show s3://bucket/nothing
}

tried=
for server in versitygw minio; do
    real_server $server || { echo "without $server: not installed, and Go cannot build it here (MR_TEST_FULL=1 tries)"; continue; }
    tried+=" $server"
    conformance
    first_slice
    killed_writer
    refusals
    drop_real_server
done
[ -n "$tried" ] || { echo "SKIP: neither versitygw nor minio"; exit 77; }
echo "passed:$tried"
