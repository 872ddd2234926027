# Sourced by tests of object storage: start_server [ARGS...] runs tests/s3/s3_server.py and sets the environment that finds
# it; stop_server ends it. Exits 77 where this build has no module for object storage.
# shellcheck shell=bash
s3_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ -e "${MR_BINARY_DIR:?}/lib/millrace_s3_curl.so" ] || { echo "skipped: built without object storage (MR_WITH_S3)"; exit 77; }
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
s3_python=$(python3 -c 'import sys; print(sys.executable)') # not a wrapper that looks for it each time
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION AWS_ENDPOINT_URL_S3 AWS_CA_BUNDLE http_proxy HTTP_PROXY
export AWS_CONFIG_FILE=/nonexistent AWS_SHARED_CREDENTIALS_FILE=/nonexistent

start_server() {
    s3_port_file=$(mktemp -u)
    "$s3_python" "$s3_here/s3_server.py" --port-file "$s3_port_file" "$@" &
    s3_pid=$!
    for _ in $(seq 500); do
        [ -s "$s3_port_file" ] && break
        kill -0 $s3_pid 2>/dev/null || { echo "FAILED: the server does not start"; exit 1; }
        sleep 0.02
    done
    s3_port=$(cat "$s3_port_file")
    rm -f "$s3_port_file"
    export AWS_ENDPOINT_URL=http://127.0.0.1:$s3_port AWS_ACCESS_KEY_ID=test-key-0001 AWS_SECRET_ACCESS_KEY=test/secret+0001
}
stop_server() {
    [ -z "${s3_pid:-}" ] || { kill "$s3_pid"; wait "$s3_pid" 2>/dev/null || true; }
    s3_pid=
}
# A request that is not signed: admin METHOD PATH [BODY]
admin() {
    "$s3_python" - "$AWS_ENDPOINT_URL$2" "$1" "${3:-}" <<'PY'
import ssl, sys, urllib.request
r = urllib.request.Request(sys.argv[1], method=sys.argv[2], data=sys.argv[3].encode() or None)
print(urllib.request.urlopen(r, context=ssl._create_unverified_context()).read().decode())
PY
}
stat_of() { admin GET /_stats | sed "s/.*\"$1\": \([0-9]*\).*/\1/; t; s/.*/0/"; }
# A request signed by Python: signed METHOD PATH [QUERY]; the answer goes to standard output.
signed() {
    "$s3_python" - "$1" "$2" "${3:-}" <<'PY'
import datetime, hashlib, hmac, os, sys, ssl, urllib.request
endpoint, key, secret = (os.environ[n] for n in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
region = os.environ.get("S3_TEST_REGION", "us-east-1")
host, now = endpoint.split("//")[1], datetime.datetime.now(datetime.timezone.utc)
now += datetime.timedelta(seconds=float(os.environ.get("S3_TEST_OFFSET", "0")))
stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
empty = hashlib.sha256(b"").hexdigest()
token = os.environ.get("AWS_SESSION_TOKEN", "")
heads = {"host": host, "x-amz-content-sha256": empty, "x-amz-date": stamp}
if token:
    heads["x-amz-security-token"] = token
names = ";".join(sorted(heads))
canonical = "\n".join([sys.argv[1], sys.argv[2], sys.argv[3], *[f"{k}:{heads[k]}" for k in sorted(heads)], "", names, empty])
scope = f"{day}/{region}/s3/aws4_request"
text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
k = ("AWS4" + secret).encode()
for part in scope.split("/"):
    k = hmac.new(k, part.encode(), hashlib.sha256).digest()
heads["Authorization"] = f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature=" + \
    hmac.new(k, text.encode(), hashlib.sha256).hexdigest()
r = urllib.request.Request(f"{endpoint}{sys.argv[2]}?{sys.argv[3]}".rstrip("?"), method=sys.argv[1], headers=heads)
print(urllib.request.urlopen(r, context=ssl._create_unverified_context()).read().decode(), end="")
PY
}
make_bucket() { signed PUT "/$1"; }
