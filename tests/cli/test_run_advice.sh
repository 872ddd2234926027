#!/usr/bin/env bash
# Advice that knows the limit: where more threads bring no more bytes, the storage is the limit and is named with its rate; where each
# stream has its own, more threads are the advice; where both, as many as help. Emulated devices of three rates each.
# test-label: timing
set -eu
case ${MR_BINARY_DIR:-} in
*/dev) [ -n "${MR_TEST_FULL:-}" ] || { echo "SKIP: long under sanitizers; set MR_TEST_FULL=1"; exit 77; } ;;
esac
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
n=0
run() { local shape=$1; shift; n=$((n + 1)) o=o$n; "$MILLRACE" -q run w.yaml --no-ceiling --out $o --store "throttle($shape):posix" "$@" >out 2>err || fail "$shape: $(cat err)"; }
json() { python3 -c "import json; d = json.load(open('$o/summary.json')); p = d['storage_probe']; assert $1, (d['advice'], p)" || fail "$2: $1: $(cat out)"; }
# all streams share one device, whether the run had few or many of them
for rate in 10 20 40; do
    for threads in 2 $([ $rate = 20 ] && echo 12); do
        run "bandwidth=${rate}MB" --threads $threads
        said=$(sed -n 's/^  advice .*the storage is the limit: \([0-9.]*\) MB\/s, to '$threads' threads as to .*More threads do not help.*/\1/p' out)
        python3 -c "assert abs(float('${said:-0}') / $rate - 1) < 0.1" || fail "a limit of $rate MB/s, $threads threads: '$said' $(cat out)"
        ! grep -q "try --threads" out || fail "threads that do not help: $(cat out)"
        json "abs(p['storage_limit_bytes_per_s'] / ${rate}e6 - 1) < 0.1 and 'the storage is the limit' in d['advice']" "$rate MB/s"
    done
done
# more threads than are ever busy: most are idle, and still the storage is the limit, not the look-ahead
for rate in 60 40; do
    run "bandwidth=${rate}MB" --threads 15
    grep -q "^  advice .*the storage is the limit: $rate MB/s" out && grep -q "limited by storage" out || fail "15 threads, $rate MB/s: $(cat out)"
    ! grep -q "try --\|look-ahead" out || fail "15 threads, $rate MB/s: $(cat out)"
done
# every stream has a rate of its own: as many as it takes, give or take what a busy machine adds
for rate in 10 20 40; do
    run "stream_bandwidth=${rate}MB"
    said=$(sed -n 's/^  advice .*: try --threads \([0-9]*\) --lookahead [0-9]* (2 threads read .*/\1/p' out)
    python3 -c "assert 100 / $rate <= ${said:-0} <= 1.5 * 100 / $rate + 2" || fail "$rate MB/s per stream: '$said' $(cat out)"
    json "p['storage_limit_bytes_per_s'] is None and p['bytes_per_s'][1] > 1.3 * p['bytes_per_s'][0]" "$rate MB/s per stream"
done
# both: up to where the device ends, and what is missing then
run "bandwidth=40MB,stream_bandwidth=10MB"
grep -q "advice .*try --threads [45] --lookahead [56]; then the storage is the limit: [34][0-9] MB/s, of .* that the accelerators ask for" out || fail "both: $(cat out)"
# nothing is asked of a run that had what it wanted, or when told not to
run "bandwidth=1GB" train.computation_time=0.05; json "p is None and d['advice'] is None" "fast enough"
run "bandwidth=10MB" --no-probe; json "p is None and 'if storage and CPUs allow' in d['advice']" "--no-probe"
# a report says what the run said
run "bandwidth=10MB"; "$MILLRACE" report --tables $o >told 2>err || fail "report: $(cat err)"
[ "$(grep advice out)" = "$(grep advice told)" ] || fail "report: $(grep advice out told)"
echo "run, advice: ok"
