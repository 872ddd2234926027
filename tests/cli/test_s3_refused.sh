#!/usr/bin/env bash
# Object storage that refuses or changes: what is said, with which hint; and a known secret is in no output, trace, page,
# result or process list. test-label: once (long under sanitizers: there only in make test-full)
set -eu
# shellcheck source=../s3/server.sh
. "$(dirname "$0")/../s3/server.sh"
dir=$(mktemp -d)
trap 'stop_server; rm -rf "$dir"' EXIT
cd "$dir"
fail() { echo "FAILED: $*"; cat err 2>/dev/null || true; exit 1; }
says() { # STATUS TEXT COMMAND...
    local want=$1 text=$2 rc=0
    shift 2
    "$@" >out 2>err || rc=$?
    [ $rc = "$want" ] && grep -q "$text" err || fail "$*: status $rc (want $want and '$text')"
}
small="--format npy --files 8 --size 4KB -q"
work="dataset.format=npy dataset.record_length_bytes=4096 reader.batch_size=2 workflow.checkpoint=false"

# A session token that has expired; a clock that is wrong; another region, which is found.
start_server --token fresh-token-0001
AWS_SESSION_TOKEN=fresh-token-0001 make_bucket bucket
AWS_SESSION_TOKEN=fresh-token-0001 millrace gen s3://bucket/set $small >out 2>err || fail "gen with a token"
says 5 "ExpiredToken" env AWS_SESSION_TOKEN=stale-token-0001 millrace verify s3://bucket/set
says 5 "hint: get new credentials" env AWS_SESSION_TOKEN=stale-token-0001 millrace verify s3://bucket/set
stop_server
start_server --clock-offset 4000
says 5 "RequestTimeTooSkewed" millrace verify s3://bucket/set
says 5 "ahead of this machine's: set the clock" millrace verify s3://bucket/set
stop_server
start_server --region eu-west-1
S3_TEST_REGION=eu-west-1 make_bucket bucket
millrace gen s3://bucket/set ${small% -q} >out 2>err || fail "gen in another region"
grep -q "in region 'eu-west-1'.*set AWS_REGION" err || fail "the region is not said"
says 0 "" env AWS_REGION=eu-west-1 millrace verify s3://bucket/set
! grep -q "eu-west-1" err || fail "a region that was given is said"
stop_server

# One prefix that may not be written; a host that does not exist; objects that change.
start_server --readonly-prefix closed/
make_bucket bucket
says 5 "AccessDenied" millrace gen s3://bucket/closed/set $small
says 5 "hint: these credentials may not do this here" millrace gen s3://bucket/closed/set $small
millrace gen s3://bucket/set $small >out 2>err || fail "gen beside a closed prefix"
# An unknown host is looked for once: all requests but the first repeat it, and nothing follows.
says 5 "unknown host.*; [0-9]* tries in" env AWS_ENDPOINT_URL=http://no-such-host.invalid:9000 millrace verify s3://bucket/set --store 's3(deadline=0.5s)'
read -r repeats requests < <(sed -n 's/.*s3: \([0-9]*\) of \([0-9]*\) requests.*/\1 \2/p' err)
[ $((requests - repeats)) = 1 ] || fail "$repeats of $requests were repeats"
# A server in trouble: HEAD is repeated; the GET that asks for the reason is not, and the reason is said.
admin PUT /_reset >/dev/null
admin PUT /_faults '[{"kind": "500"}]' >/dev/null
says 5 "InternalError: injected" millrace verify s3://bucket/set --store 's3(deadline=0.3s)'
[ $((2 * $(stat_of GET))) -le "$(stat_of HEAD)" ] || fail "$(stat_of GET) GET for $(stat_of HEAD) HEAD requests"
# What cannot be seen is not absent: where listings fail, a set is not one of no files.
admin PUT /_faults '[{"kind": "500", "match": "*list-type*"}]' >/dev/null
says 5 "InternalError: injected" millrace verify s3://bucket/set --store 's3(deadline=0.3s)'
admin PUT /_reset >/dev/null
# shellcheck disable=SC2086
millrace run --data s3://bucket/set $work train.epochs=400 train.computation_time=0.01 >out 2>err &
pid=$!
for _ in $(seq 200); do [ "$(stat_of data_requests.other)" -gt 20 ] && break; sleep 0.1; done
admin PUT /_replace >/dev/null
rc=0; wait $pid || rc=$?
[ $rc != 0 ] && grep -q "replaced" err && grep -q "hint: do not write to a data set that is being read" err || fail "replaced objects: $rc"
stop_server

# The secret, from a profile, in whatever the program writes.
export AWS_SHARED_CREDENTIALS_FILE=$dir/credentials AWS_PROFILE=tests
secret=kept/Quiet+0123456789abcdefABCDEF
start_server --secret "$secret" --token token-kept-quiet-0001
printf '[tests]\naws_access_key_id = test-key-0001\naws_secret_access_key = %s\naws_session_token = token-kept-quiet-0001\n' "$secret" >credentials
AWS_SECRET_ACCESS_KEY=$secret AWS_SESSION_TOKEN=token-kept-quiet-0001 make_bucket bucket
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
mkdir seen
millrace -v gen s3://bucket/set --format npy --files 8 --size 4KB >seen/gen 2>&1 || fail gen
# shellcheck disable=SC2086
millrace -v run --data s3://bucket/set $work train.epochs=30 train.computation_time=0.01 --out seen/result >seen/run 2>&1 &
pid=$!
for _ in $(seq 200); do [ "$(stat_of data_requests.other)" -gt 20 ] && break; sleep 0.1; done
tr '\0' '\n' <"/proc/$pid/cmdline" >seen/cmdline
tr "\0" "\n" <"/proc/$pid/environ" >seen/environ
ps axww -o args >seen/ps
wait $pid || fail "run: $(cat seen/run)"
millrace report seen/result --format html --out seen/page.html >seen/report 2>&1 || millrace report seen/result >seen/report 2>&1
millrace doctor >seen/doctor 2>&1 || true
for rule in '{"kind": "denied"}' '{"kind": "500"}' '{"kind": "garbage"}' '{"kind": "expired"}'; do
    admin PUT /_faults "[$rule]" >/dev/null
    millrace -v verify s3://bucket/set --store 's3(deadline=0.3s)' >>seen/faults 2>&1 && fail "no failure with $rule"
    admin PUT /_reset >/dev/null
done
printf '[tests]\naws_access_key_id = test-key-0001\naws_secret_access_key = %s/wrong\n' "$secret" >credentials
millrace -v verify s3://bucket/set >>seen/faults 2>&1 && fail "no failure with a wrong key"
grep -rlF -e "$secret" -e token-kept-quiet-0001 -e "kept/Quiet" seen | grep -v seen/ps >found || true
grep -F "$secret" seen/ps | grep -v "s3_server.py\|grep" >>found || true
[ ! -s found ] || fail "the secret is in $(cat found)"
echo passed
