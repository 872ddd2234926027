#!/usr/bin/env bash
# Advice that knows the limit: where more threads bring no more bytes, the storage is the limit and is named with its rate; where each
# stream has its own, more threads are the advice; where both, as many as help. Emulated devices; of three rates each with MR_TEST_FULL=1.
# test-label: timing
# test-label: once (long under sanitizers: there only in make test-full)
set -eu
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 64, record_length_bytes: 400000, data_folder: d}
reader: {batch_size: 2, read_threads: 2, sample_shuffle: seed}
train: {epochs: 1, computation_time: 0.008}
Y
# the accelerator asks for 100 MB/s
"$MILLRACE" -q gen d --workload w.yaml >/dev/null
more=${MR_TEST_FULL:+10 40}
n=0
run() { local shape=$1; shift; n=$((n + 1)) o=o$n; "$MILLRACE" -q run w.yaml --no-ceiling --out $o --store "throttle($shape):posix" "$@" >out 2>err || fail "$shape: $(cat err)"; }
json() { python3 -c "import json; d = json.load(open('$o/summary.json')); p = d['storage_probe']; l = d['limiter']; assert $1, (d['advice'], l, p)" || fail "$2: $1: $(cat out)"; }
first() { grep -q "^ 1 $1 " out || fail "$2: the first finding is not $1: $(cat out)"; }
# all streams share one device, whether the run had few or many of them
for rate in 20 $more; do
    for threads in 2 $([ $rate = 20 ] && echo 12); do
        run "bandwidth=${rate}MB" --threads $threads
        first TH4 "$rate MB/s"
        said=$(tr -s '\n ' ' ' <out | sed -n 's/.* the storage is the limit: \([0-9.]*\) MB\/s, with '$threads' reads at a time as with .*/\1/p')
        python3 -c "assert abs(float('${said:-0}') / $rate - 1) < 0.1" || fail "a limit of $rate MB/s, $threads threads: '$said' $(cat out)"
        tr -s '\n ' ' ' <out | grep -q "more readers do not help" || fail "threads that do not help: $(cat out)"
        ! grep -q "read_threads=" out || fail "threads that do not help: $(cat out)"
        json "abs(p['storage_limit_bytes_per_s'] / ${rate}e6 - 1) < 0.1 and 'storage is the limit' in d['advice'] and l.startswith('storage')" "$rate MB/s"
    done
done
# more threads than are ever busy: most are idle, and still the storage is the limit, not the look-ahead
for rate in 60 ${MR_TEST_FULL:+40}; do
    run "bandwidth=${rate}MB" --threads 15
    first TH4 "15 threads, $rate MB/s"
    grep -q "The storage is the limit: $rate MB/s" out && grep -q "limited by storage" out || fail "15 threads, $rate MB/s: $(cat out)"
    ! grep -q "read_threads=\|too late" out || fail "15 threads, $rate MB/s: $(cat out)"
done
# every stream has a rate of its own: as many as it takes, give or take what a busy machine adds
for rate in 20 $more; do
    run "stream_bandwidth=${rate}MB"
    first TH1 "$rate MB/s per stream"
    said=$(sed -n 's/.*try: millrace run w.yaml .* reader.read_threads=\([0-9]*\) .*/\1/p' out | head -1)
    python3 -c "assert 100 / $rate <= ${said:-0} <= 1.5 * 100 / $rate + 2" || fail "$rate MB/s per stream: '$said' $(cat out)"
    json "p['storage_limit_bytes_per_s'] is None and p['bytes_per_s'][1] > 1.3 * p['bytes_per_s'][0]" "$rate MB/s per stream"
done
# both: up to where the device ends, and what is missing then
run "bandwidth=40MB,stream_bandwidth=10MB"
first TH1 both
grep -q "read_threads=[456] " out && grep -q "The storage is the limit: [34][0-9] MB/s, of .* that the accelerators ask for" out || fail "both: $(cat out)"
# threads that keep a queue of requests in flight each: more of them are no more requests
run "bandwidth=10MB" --io queue; first TH4 "a queue"; ! grep -q "read_threads=" out || fail "a queue: $(cat out)"
# nothing is asked of a run that had what it wanted, or when told not to
run "bandwidth=1GB" train.computation_time=0.05; json "p is None and d['advice'] is None" "fast enough"
grep -q "^VERDICT  Healthy" out && ! grep -q "^FINDINGS" out || fail "fast enough: $(cat out)"
run "bandwidth=10MB" --no-probe; json "p is None and d['advice']" "--no-probe"
tr -s '\n ' ' ' <out | grep -q "was not tried" || fail "--no-probe: $(cat out)"
# a report says what the run said, and the command that it tells to try runs
run "bandwidth=10MB"; "$MILLRACE" report $o >told 2>err || fail "report: $(cat err)"
[ "$(sed -n '/^VERDICT/,/^ *No setting/p' out)" = "$(sed -n '/^VERDICT/,/^ *No setting/p' told)" ] || fail "report: $(cat out told)"
[ "$(sed -n '/^ 1 TH4/,/try:/p' out)" = "$(sed -n '/^ 1 TH4/,/try:/p' told)" ] || fail "report, findings: $(cat out told)"
# the change as data is what the command sets
"$MILLRACE" report $o --json >told 2>err && python3 - <<'P' || fail "changes: $(cat told err)"
import json
f = json.load(open("told"))["findings"][0]
change = f["changes"][0]
assert f["id"] == "TH4" and {"kind", "framework", "target", "key", "from", "to", "note", "file", "line"} == set(change)
assert (change["kind"], change["framework"], change["target"]) == ("option", "millrace", "workload")
assert f"{change['key']}={change['to']}" in f["command"] and change["file"] is None
P
command=$(sed -n 's/^ *try: millrace //p' out | head -1)
eval "\"$MILLRACE\" -q $command --out again" >out 2>err && grep -q "Healthy\|first batch\|AU" out || fail "'$command': $(cat err)"
echo "run, advice: ok"
