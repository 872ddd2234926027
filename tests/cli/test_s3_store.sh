#!/usr/bin/env bash
# The conformance suite of stores over object storage, against the server of tests/s3: plain, behind shims, with parts and
# ranges cut small, and over TLS.
set -eu
# shellcheck source=../s3/server.sh
. "$(dirname "$0")/../s3/server.sh"
dir=$(mktemp -d)
trap 'stop_server; rm -rf "$dir"' EXIT
suite() { # STACK
    MR_CONFORMANCE_ONLY=$1 MR_CONFORMANCE_DIR=s3://bucket/conf "$MR_BINARY_DIR/tests/test_store_conformance" >"$dir/out" 2>&1 && return 0
    grep -v "^\[ *\(RUN\|OK\)" "$dir/out" | tail -30
    echo "FAILED: the suite over '$1'"
    exit 1
}
start_server
make_bucket bucket
suite s3
suite 's3(connections=3,range=64KiB,part=5MiB,upload_threads=2,timing=true)'
suite 'trace:throttle(bandwidth=200GB,latency=1us):s3(hedge=0.1)'
[ "$(admin GET /_uploads)" = "[]" ] || { echo "FAILED: uploads are left: $(admin GET /_uploads)"; exit 1; }
stop_server
if command -v openssl >/dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 \
        -keyout "$dir/key" -out "$dir/cert" 2>/dev/null
    cat "$dir/key" "$dir/cert" >"$dir/pem"
    start_server --cert "$dir/pem"
    # shellcheck disable=SC2154 # s3_port: server.sh
    export AWS_ENDPOINT_URL=https://127.0.0.1:$s3_port
    make_bucket bucket
    suite "s3(ca_file=\"$dir/cert\")"
    rc=0
    millrace verify s3://bucket/x 2>"$dir/err" || rc=$?
    [ $rc = 5 ] && grep -q "TLS" "$dir/err" && grep -q "ca_file" "$dir/err" || { echo "FAILED: $rc $(cat "$dir/err")"; exit 1; }
    millrace verify s3://bucket/x --store 's3(insecure=true)' 2>"$dir/err" || true
    grep -q "not checked" "$dir/err" || { echo "FAILED: insecure is not said: $(cat "$dir/err")"; exit 1; }
fi
echo passed
