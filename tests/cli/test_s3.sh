#!/usr/bin/env bash
# Object storage from end to end against a server of our own that checks every signature: gen, verify, show, cat, scan,
# run with tiers; what the server is asked for, and what is said when something is wrong.
set -eu
# shellcheck source=../s3/server.sh
. "$(dirname "$0")/../s3/server.sh"
dir=$(mktemp -d)
trap 'stop_server; rm -rf "$dir"' EXIT
cd "$dir"
fail() { echo "FAILED: $*"; cat err 2>/dev/null || true; exit 1; }
start_server
make_bucket bucket

# Written, described and verified; a second gen finds it complete; nothing half is left.
millrace gen s3://bucket/set --format npy --files 40 --size 50KB -q >/dev/null 2>err || fail gen
millrace verify s3://bucket/set >out 2>err || fail verify
grep -q "good: 40 files, 40 samples" out || fail "verify says $(cat out)"
millrace show s3://bucket/set >out 2>err && grep -q "samples    40 in 40 files" out || fail show
millrace gen s3://bucket/set --format npy --files 40 --size 50KB >out 2>err && grep -q "already complete" out || fail again
[ "$(admin GET /_uploads)" = "[]" ] || fail "uploads are left: $(admin GET /_uploads)"

# The same bytes as on disk.
millrace gen here --format npy --files 40 --size 50KB -q >/dev/null
millrace cat s3://bucket/set/train 7 >a 2>err || fail cat
millrace cat here/train 7 >b
cmp a b || fail "other bytes than on disk"

# Large objects go up in parts, the header of a format last; every format can be written there.
millrace gen s3://bucket/large --format npz --files 2 --size 20MB -q >/dev/null 2>err || fail large
for format in raw npy npz hdf5 tfrecord csv json jpeg png tar indexed_binary; do
    millrace gen "s3://bucket/$format" --format $format --files 2 --samples-per-file 1 --size 20KB -q >/dev/null 2>err || fail "$format"
    millrace verify "s3://bucket/$format" >out 2>err || fail "verify $format"
done
millrace verify s3://bucket/large >out 2>err || fail "verify large"

# A writer that is killed with its first files done, before its journal's first piece is full: the same command continues.
admin PUT /_faults '[{"kind": "slow", "seconds": 30, "method": "PUT", "match": "*early/train/img*", "nth": 3}]' >/dev/null
millrace gen s3://bucket/early --format raw --files 4 --size 1KB -q >/dev/null 2>err &
pid=$!
for _ in $(seq 200); do admin GET /_keys | grep -q "early/train/img" && break; sleep 0.05; done
kill -9 $pid
wait $pid 2>/dev/null || true
admin PUT /_reset >/dev/null
millrace gen s3://bucket/early --format raw --files 4 --size 1KB -q >/dev/null 2>err || fail "gen after a kill"
millrace verify s3://bucket/early >out 2>err || fail "verify after a kill"

# Existing objects get a manifest there, or on a disk; such a set is read with --store s3.
millrace gen s3://bucket/plain --format npy --files 30 --size 1KB -q >/dev/null 2>err || fail plain
millrace scan s3://bucket/plain/train >out 2>err && grep -q "30 npy files, 30 samples" out || fail "scan: $(cat out)"
admin PUT /_reset >/dev/null
millrace scan s3://bucket/plain/train --out here.mrm >out 2>err || fail "scan with a manifest on a disk"
[ "$(stat_of HEAD)" -le 40 ] || fail "$(stat_of HEAD) HEAD requests for 30 listed objects"
millrace cat here.mrm 7 --store s3 >a 2>err || fail "cat of a manifest on a disk"
millrace cat s3://bucket/plain/train 7 >b 2>err && cmp a b || fail "other bytes by a manifest on a disk"

# Four epochs through tiers read every byte once; a second run from the SSD class asks for no data.
run() {
    millrace run --data s3://bucket/set --tiers "$1" dataset.format=npy dataset.record_length_bytes=50000 train.epochs=4 \
        reader.batch_size=4 train.computation_time=0 workflow.checkpoint=false >out 2>err || fail "run $1: $(tail -3 out)"
}
admin PUT /_reset >/dev/null
run auto
[ "$(stat_of data_bytes)" -le 2020000 ] || fail "$(stat_of data_bytes) bytes were read of 2,000,000"
run "ram=1MiB,ssd=$dir/ssd:1GiB"
admin PUT /_reset >/dev/null
run "ram=1MiB,ssd=$dir/ssd:1GiB"
[ "$(stat_of data_requests.other)" = 0 ] || fail "the second run asked for $(stat_of data_requests.other) objects"

# The keys of DLIO and MLPerf: server and keys from the file where the environment has none, the environment's else.
cat >dlio.yaml <<YAML
workflow: {generate_data: True, train: True, checkpoint: False}
dataset: {data_folder: ./dlio/, format: npz, num_files_train: 8, num_samples_per_file: 1, record_length_bytes: 5000}
reader: {batch_size: 2}
train: {epochs: 2, computation_time: 0}
storage:
  storage_type: s3
  storage_root: bucket
  storage_options: {endpoint_url: "$AWS_ENDPOINT_URL", access_key_id: "$AWS_ACCESS_KEY_ID", secret_access_key: "$AWS_SECRET_ACCESS_KEY"}
YAML
env -u AWS_ENDPOINT_URL -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY millrace run dlio.yaml --verify --out dlio >out 2>err || fail "dlio: $(tail -3 out)"
millrace verify s3://bucket/dlio >out 2>err && grep -q "good: 8 files" out || fail "the workload's set is not in the bucket"
! grep -rqF "$AWS_SECRET_ACCESS_KEY" dlio err out || fail "the secret of the file is in the results"
sed -i 's|endpoint_url: [^,]*|endpoint_url: "http://127.0.0.1:1"|; s|access_key_id: "[^"]*"|access_key_id: "other"|' dlio.yaml
millrace run dlio.yaml --out dlio2 >out 2>err || fail "the environment does not override the file"

# Odd names.
odd='s3://bucket/a b+c%20d ä&=?#'
millrace gen "$odd" --format raw --files 2 --size 1KB -q >/dev/null 2>err || fail "odd name"
millrace verify "$odd" >out 2>err || fail "verify of an odd name"

# A piece of the journal that cannot be written ends the writer with a message, whatever its other threads write then.
admin PUT /_faults '[{"kind": "slow", "seconds": 0.4, "method": "PUT", "match": "*.raw"}, {"kind": "500", "method": "PUT", "match": "*/1-0.mrj"}]' >/dev/null
rc=0
millrace gen s3://bucket/pieces --format raw --files 60 --size 1KB -q --threads 8 --store 's3(deadline=0.3s)' >out 2>err || rc=$?
[ $rc = 5 ] && grep -q "journal of\|1-0.mrj" err || fail "a piece that cannot be written: $rc"
admin PUT /_reset >/dev/null

# What is said, and the exit status.
says() { # STATUS TEXT COMMAND...
    local want=$1 text=$2 rc=0
    shift 2
    "$@" >out 2>err || rc=$?
    [ $rc = "$want" ] && grep -q "$text" err || fail "$*: status $rc (want $want), said: $(cat err)"
}
says 2 "NoSuchBucket" millrace verify s3://nobucket/set
says 5 "SignatureDoesNotMatch" env AWS_SECRET_ACCESS_KEY=wrong millrace verify s3://bucket/set
says 5 "InvalidAccessKeyId" env AWS_ACCESS_KEY_ID=wrong millrace verify s3://bucket/set
says 5 "check AWS_ACCESS_KEY_ID" env AWS_ACCESS_KEY_ID=wrong millrace verify s3://bucket/set
says 5 "no credentials" env -u AWS_ACCESS_KEY_ID millrace verify s3://bucket/set
says 2 "reads files" millrace verify s3://bucket/set --store uring
says 2 "give --store s3" millrace cat here.mrm 7
says 2 "not in object storage" millrace verify "$dir/here" --store s3
says 5 "no connection" millrace verify s3://bucket/set --store 's3(endpoint="http://127.0.0.1:1",deadline=0.2s)'
says 2 "names no bucket" millrace run dlio.yaml storage.storage_root=./
says 5 "No such file" millrace show s3://bucket/nothing
echo passed
