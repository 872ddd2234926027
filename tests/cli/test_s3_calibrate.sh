#!/usr/bin/env bash
# calibrate s3://: what a slow server gives is in the system file, nothing stays behind, a prefix that may not be written is read;
# the shipped system `s3` emulates latency, the rate of a request and of all. doctor s3://: what it finds. test-label: once
set -eu
# shellcheck source=../s3/server.sh
. "$(dirname "$0")/../s3/server.sh"
dir=$(mktemp -d)
trap 'stop_server; rm -rf "$dir"' EXIT
cd "$dir"
fail() { echo "FAILED: $*"; cat err 2>/dev/null || true; exit 1; }

# Emulated: 3,200 objects, 32 requests at a time of 100 ms and 64 KiB at 87.5 MB/s: 100 turns of 100.75 ms.
cat >w.yaml <<'YAML'
workflow: {train: true, checkpoint: false}
dataset: {format: raw, num_files_train: 3200, num_samples_per_file: 1, record_length_bytes: 65536, data_folder: ./nothing}
reader: {batch_size: 32, read_threads: 32}
train: {epochs: 1, computation_time: 0.0001}
YAML
millrace -q run w.yaml --virtual --system s3 --json >json 2>err || fail "virtual run"
python3 -c 'import json; t = json.load(open("json"))["duration_s"]; assert 10.0 < t < 10.3, t' || fail "seconds of the emulated run"

start_server --store "$dir/kept"
make_bucket bucket
millrace gen s3://bucket/closed --format raw --files 2 --size 5MB -q >/dev/null 2>err || fail gen
admin PUT /_faults '[{"kind": "slow", "seconds": 0.03, "method": "GET", "match": "*calibrate*"}]' >/dev/null
millrace calibrate s3://bucket/cal --budget 1500ms --file-size 16MiB --max-threads 2 --out here.yaml >out 2>err || fail "calibrate"
grep -q "are requests at a time" out || fail "calibrate says $(cat out)"
! admin GET /_keys | grep -q calibrate || fail "left behind: $(admin GET /_keys)"
python3 - <<'PY' || fail "the system file: $(cat here.yaml)"
import re
text = open("here.yaml").read()
size, all_, one = map(float, re.search(r"size: (65536), bandwidth: (\d+), stream: (\d+)", text).groups())
assert one <= size / 0.03 * 1.02 and one <= all_ <= 16 * size / 0.03 * 1.02, (one, all_)
rate = float(re.search(r"metadata_rate: (\d+)", text).group(1))
assert rate <= 16 / 0.03 * 1.02, rate
PY
millrace -q run w.yaml --virtual --system here.yaml --json >json 2>err || fail "virtual run over what was measured"
admin PUT /_reset >/dev/null

# Where it may not write it reads what is there, or says what it needs.
stop_server
start_server --store "$dir/kept" --readonly-prefix closed/
millrace calibrate s3://bucket/closed/train --budget 1s --only random-read >out 2>err || fail "calibrate of a closed prefix"
grep -q "reads of an object of 4.7. MiB" out || fail "calibrate says $(cat out)"
says() { # STATUS TEXT COMMAND...
    local want=$1 text=$2 rc=0
    shift 2
    "$@" >out 2>err || rc=$?
    [ $rc = "$want" ] || fail "$*: status $rc, not $want: $(cat err)"
    grep -q "$text" err || fail "$*: no '$text' in: $(cat err)"
}
says 5 "none of 4 MiB or more is there" millrace calibrate s3://bucket/closed/empty --budget 1s --only random-read
says 2 "no page cache" millrace calibrate s3://bucket/cal --budget 1s --only buffered-read
says 2 "NoSuchBucket" millrace calibrate s3://nobucket/cal --budget 1s --only random-read

# What doctor finds: a server, one that is not there, a bucket that is not there, a clock that is wrong, credentials that end.
finds() { # TEXT COMMAND...
    local text=$1
    shift
    "$@" >out 2>err || fail "$*: status $?"
    grep -q "$text" out || fail "$*: no '$text' in: $(cat out)"
}
finds "OK    object storage      http://127.0.0.1:[0-9]* answers, region 'us-east-1'" millrace doctor s3://bucket/closed
# on a busy machine the first byte takes long, which is a note
for text in "credentials         environment, no end known" "server's clock      as this machine's" \
    "connections         32 of 32 requests at a time answered"; do
    grep -Eq "^(OK  |NOTE)  $text" out || fail "no '$text' in: $(cat out)"
done
finds "nothing below the prefix" millrace doctor s3://bucket/nothing
finds "WARN  object storage.*NoSuchBucket" millrace doctor s3://nobucket/x
finds "WARN  object storage.*SignatureDoesNotMatch" env AWS_SECRET_ACCESS_KEY=wrong millrace doctor s3://bucket/x
finds "WARN  object storage.*no connection" env AWS_ENDPOINT_URL=http://127.0.0.1:1 millrace doctor s3://bucket/x
says 2 "no bucket" millrace doctor s3://
stop_server
start_server --store "$dir/kept" --clock-offset 120
finds "NOTE  server's clock      ahead" millrace doctor s3://bucket/closed
stop_server
start_server --store "$dir/kept" --clock-offset 4000
finds "WARN  object storage.*RequestTimeTooSkewed" millrace doctor s3://bucket/closed
grep -q "WARN  server's clock" out || fail "no clock in: $(cat out)"
! grep -qF "$AWS_SECRET_ACCESS_KEY" out err || fail "the secret is shown"
echo passed
