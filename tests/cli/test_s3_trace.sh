#!/usr/bin/env bash
# Object storage in reports: requests of our own runs as events, with their repeats; the sockets of a traced program as object
# storage by its client library; nothing secret in traces and pages, and neither bucket nor key in an anonymous page.
# test-label: once
set -eu
# shellcheck source=../s3/server.sh
. "$(dirname "$0")/../s3/server.sh"
dir=$(mktemp -d)
trap 'stop_server; rm -rf "$dir"' EXIT
cd "$dir"
fail() { echo "FAILED: $*"; cat err 2>/dev/null || true; exit 1; }
start_server --anonymous # the program below signs nothing
make_bucket quietbucket

# Our own run: sums in the trace, repeats counted, a rule that names them.
millrace gen s3://quietbucket/secretset --format npy --files 60 --size 20KB -q >/dev/null 2>err || fail gen
admin PUT /_faults '[{"kind": "503", "method": "GET", "match": "*.npy", "every": 10}]' >/dev/null
millrace run --data s3://quietbucket/secretset dataset.format=npy dataset.record_length_bytes=20000 train.epochs=2 reader.batch_size=4 \
    reader.read_threads=2 train.computation_time=0.001 workflow.checkpoint=false --out own >out 2>err || fail "run: $(tail -3 out)"
admin PUT /_reset >/dev/null
millrace report own >text 2>err || fail report
grep -q "object storage: millrace  [0-9]* requests of" text || fail "no requests in: $(cat text)"
grep -q "new connections* .* repeats" text || fail "no repeats in: $(cat text)"
millrace report own --json >json 2>err || fail json
python3 - <<'PY' || fail "figures of the run"
import json
r = json.load(open("json"))
o = r["facts"]["object_storage"]
assert o["client"] == "millrace" and o["peer"] is None, o
assert 120 <= o["requests"] <= 260 and o["retries"] >= 10 and o["slowdowns"] >= 10, o
assert 120 * 20000 <= o["bytes"] <= 140 * 20400, o
assert 0 < o["first_byte_s"] <= o["answer_s"] and 1 <= o["connections"] <= o["requests"], o
assert any(f["id"] == "OB5" for f in r["findings"]), [f["id"] for f in r["findings"]]
PY
millrace report own --anonymous --html page.html >out 2>err || millrace report own --anonymous -o page.html >out 2>err || fail "page"
! grep -q "quietbucket\|secretset" page.html || fail "the page names: $(grep -o '.\{40\}quietbucket.\{20\}\|.\{40\}secretset.\{20\}' page.html | head -3)"

# Every sample's request is an event where samples are.
millrace run --data s3://quietbucket/secretset dataset.format=npy dataset.record_length_bytes=20000 train.epochs=1 reader.batch_size=4 \
    train.computation_time=0 workflow.checkpoint=false --out calls --trace calls.mrt >out 2>err || fail "run: $(tail -3 out)"
millrace export calls.mrt --format chrome -o calls.json >out 2>err || fail "export"
[ "$(grep -o '"name":"request"' calls.json | wc -l)" -ge 60 ] || fail "no event for each request"

# Another program: its client library names the sockets. A stand-in for boto3, one connection, small objects, a slow server.
mkdir boto3
cat >boto3/__init__.py <<'PY'
import http.client, os, urllib.parse
def get(n, keep):
    at = urllib.parse.urlsplit(os.environ["AWS_ENDPOINT_URL"])
    c = http.client.HTTPConnection(at.hostname, at.port)
    for i in range(n):
        c.request("GET", "/" + os.environ["OBJECT"])
        r = c.getresponse()
        assert len(r.read()) > 20000
        if not keep:
            c.close()
PY
OBJECT=$(admin GET /_keys | tr -d '[],' | tr '"' '\n' | grep npy | head -1) PYTHONPATH=. millrace trace -o other python3 -c 'import boto3; boto3.get(80, True); boto3.get(80, False)' >out 2>err || fail "trace"
millrace report other --json >json 2>err || fail "report of the program"
python3 - <<'PY' || fail "the sockets of the program: $(head -c 3000 json)"
import json, os
o = json.load(open("json"))["facts"]["object_storage"]
assert o and o["client"] == "boto3" and o["peer"] == os.environ["AWS_ENDPOINT_URL"].split("//")[1] and not o["tls"], o
assert o["requests"] == 160 and 80 <= o["connections"] <= 82, o
assert 0.5 <= o["in_flight"] <= 1.01 and 0 < o["first_byte_s"] <= o["answer_s"], o
PY

# The secret is nowhere.
! grep -raqF "$AWS_SECRET_ACCESS_KEY" own calls other page.html text json calls.json err out || fail "the secret is in a file"
echo passed
