#!/usr/bin/env bash
# A rank whose process was stopped: the job names it, and ends after --rank-timeout, whichever rank it is; a job that was
# stopped as a whole, and a rank that is continued in time, go on.
# test-label: once (it waits)
set -eu
export MILLRACE_RUN_OVERWRITE=true
. "$(dirname "$0")/waiting.sh"
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 12, record_length_bytes: 5000, data_folder: d}
reader: {batch_size: 1, read_threads: 1, prefetch_size: 1}
train: {epochs: 100000, computation_time: 0.01}
Y
"$MILLRACE" -q gen d --workload w.yaml >/dev/null 2>&1
start() { # folder, timeout, more words: $p is rank 0, $child the process of rank 1
    local out=$1 timeout=$2; shift 2
    "$MILLRACE" -q run w.yaml --ranks 2 --rank-timeout "$timeout" --out "$out" "$@" >"$out.txt" 2>"$out.err" & p=$!
    soon children $p 1 || fail "$out did not start: $(cat "$out.err")"
    child=$(pgrep -P $p)
    sleep 0.7 # the ranks have begun
}

stopped() {
    start stopped 2s
    began=$SECONDS
    kill -STOP "$child"
    soon grep -q "rank 1 (process $child) has been silent for" stopped.err || fail "not named: $(cat stopped.err)"
    rc=0; wait $p || rc=$?
    [ $rc = 5 ] || fail "exit $rc: $(cat stopped.err)"
    [ $((SECONDS - began)) -le "$(limit 8)" ] || fail "took $((SECONDS - began)) s"
    grep -q "rank 1 failed: its process ($child) was silent for 2" stopped.err || fail "no cause: $(cat stopped.err)"
    grep -q "rank-timeout" stopped.err || fail "no hint: $(cat stopped.err)"
    grep -q '"complete": false' stopped/summary.json || fail "no partial result"
    gone "$child" || fail "the stopped process is still there"
}
# Named, and continued in time; then the whole job is stopped for longer than the time-out, which is nobody's silence.
continued() {
    start back 4s --max-time 9s
    kill -STOP "$child"
    soon grep -q "rank 1 (process $child) has been silent" back.err || fail "not named: $(cat back.err)"
    kill -CONT "$child"
    soon grep -q "rank 1 (process $child) goes on" back.err || fail "not back: $(cat back.err)"
    kill -STOP "$p" "$child"; sleep 4.5; kill -CONT "$p" "$child"
    wait $p || fail "exit $?: $(cat back.err)"
}
# Rank 0: the other one says so.
of_rank_0() {
    start first 2s
    kill -STOP "$p"
    soon grep -q "rank 0 (process $p) has been silent" first.err || fail "not named: $(cat first.err)"
    soon gone "$child" || fail "rank 1 goes on without rank 0"
    kill -CONT "$p"
    rc=0; wait $p || rc=$?
    [ $rc = 5 ] || fail "exit $rc after rank 0 was silent: $(cat first.err)"
}
cases=
for one in stopped continued of_rank_0; do $one & cases="$cases $!"; done
for one in $cases; do wait "$one" || exit 1; done
echo "run, silent ranks: ok"
