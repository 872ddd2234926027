#!/usr/bin/env bash
# A prediction agrees with the run it predicts, buffered and direct: on emulated devices with a rate for each stream and one for all, the
# rate of `run --virtual` is that of `run` within a tenth. A direct run keeps a queue of requests in flight, and the prediction counts them.
# test-label: timing
# test-label: once (long under sanitizers: there only in make test-full)
set -eu
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 96, record_length_bytes: 200000, data_folder: d}
reader: {batch_size: 4, read_threads: 2, sample_shuffle: seed}
train: {epochs: 1, computation_time: 0.02}
Y
"$MILLRACE" -q gen d --workload w.yaml >/dev/null
# the share of the accelerator's 200 samples/s; the AU leaves the first step out, which in so short a run fills the whole queue
au() { python3 -c "import json; d = json.load(open('out')); print(0.005 * d.get('millrace', d)['samples_per_s'])"; }
# agree ALL STREAM: the rates, in MB/s; the accelerator asks for 40 MB/s
agree() {
    printf 'name: emulated\npfs: {link: 10GB, bandwidth: {1: %dMB}, stream: %dMB}\nclasses: [{name: staging, capacity: 1GB, threads: 2, read: {1: 10GB}}]\n' "$1" "$2" >s.yaml
    for direct in false true; do
        "$MILLRACE" -q run w.yaml reader.odirect=$direct --virtual --system s.yaml --json >out 2>err || fail "virtual: $(cat err)"
        predicted=$(au) tries=
        for _ in 1 2 3 4; do # a busy machine can only be slower
            "$MILLRACE" -q run w.yaml reader.odirect=$direct --no-ceiling --no-probe --store "throttle(bandwidth=${1}MB,stream_bandwidth=${2}MB):posix" --overwrite --out o --json \
                >out 2>err || fail "run: $(cat err)"
            tries="$tries $(au)"
            python3 -c "exit(abs($(au) / $predicted - 1) > 0.1)" && break
        done
        python3 -c "exit(abs(${tries##* } / $predicted - 1) > 0.1)" || fail "$1 MB/s, $2 each, direct $direct: predicted $predicted, measured$tries"
        eval "predicted_$direct=$predicted"
    done
}
agree 10 5; agree 25 5
# the AU is over the same steps: those that output.metric leaves out of a run are left out of its prediction
utilisation() { python3 -c "import json; d = json.load(open('out')); print(d.get('millrace', d)['au'])"; }
predicted() { "$MILLRACE" -q run w.yaml --virtual --system s.yaml --json "$@" >out 2>err || fail "virtual: $(cat err)"; utilisation; }
all=$(predicted output.metric.exclude_start_steps=0) most=$(predicted output.metric.exclude_start_steps=20)
python3 -c "assert $all < $most - 0.001, ($all, $most)" || fail "the first steps: $all $most"
# two threads get 10 MB/s of it, a queue gets all
# shellcheck disable=SC2154 # agree sets them by eval
python3 -c "assert $predicted_false < 0.3 and 0.55 < $predicted_true < 0.7, ($predicted_false, $predicted_true)" || fail "the queue: $predicted_false $predicted_true"
agree 100 15
# without reading ahead on purpose, a queue has only the rows that it may read into
"$MILLRACE" -q run w.yaml reader.odirect=true --io threads --virtual --system s.yaml --json >out 2>err || fail "$(cat err)"
python3 -c "assert abs($(au) - $predicted_false) < 1e-9" || fail "direct reads by threads are two: $(au), not $predicted_false"
# how far to believe it: the ends of what the model's rates were
"$MILLRACE" -q run w.yaml --virtual --system s.yaml >out 2>err || fail "$(cat err)"
grep -q "^  confidence    unknown" out || fail "no spread: $(cat out)"
ends() { # the prediction at STREAM MB/s each, of SPREAD
    printf 'name: emulated\npfs: {link: 10GB, bandwidth: {1: 1GB}, stream: %sMB, spread: %s}\nclasses: [{name: staging, capacity: 1GB, threads: 2, read: {1: 10GB}}]\n' "$1" "$2" >e.yaml
    "$MILLRACE" -q run w.yaml --virtual --system e.yaml --json >out 2>err || fail "$(cat err)"
}
ends 10 0.25; cp out wide; ends 8 0; cp out low; ends 12.5 0; cp out high
python3 - <<'P' || fail "confidence: $(cat wide)"
import json
wide, low, high = (json.load(open(f)) for f in ("wide", "low", "high"))
c = wide["confidence"]
assert abs(c["au_low"] - low["au"]) < 1e-9 and abs(c["au_high"] - high["au"]) < 1e-9 and c["au_low"] < wide["au"] < c["au_high"], (c, wide["au"])
assert low["confidence"]["au_low"] is None
P
ends 10 0.25; "$MILLRACE" -q run w.yaml --virtual --system e.yaml metric.au=0.5 >out 2>err || fail "$(cat err)"
grep -q "^SIMULATED: .*: no verdict, because the spread" out && grep -q "^  confidence .* spread by 25 %: AU between" out || fail "a spread over the target: $(cat out)"
# what a direct run can be trusted for has nothing to do with the page cache, where the file system has direct reads
"$MILLRACE" -q run w.yaml reader.odirect=true --no-ceiling --overwrite --out o >out 2>err || fail "$(cat err)"
if python3 -c "import json; exit(not json.load(open('o/summary.json'))['trust']['cache_bypassed'])"; then
    grep -q "^  trust  *direct reads, around the page cache; " out && ! grep -q "doubt .*page cache" out || fail "direct: $(cat out)"
    "$MILLRACE" -q run w.yaml reader.odirect=true --cache cold --no-ceiling --overwrite --out o >out 2>err || fail "$(cat err)"
    ! grep -q "cold" out || fail "direct and cold: $(cat out)"
fi
echo "run, prediction: ok"
