#!/usr/bin/env bash
# Simulated against real: the emulated trainer on a throttled store and the simulator with the same parameters agree within 5 % in
# run time, reading on demand (naive) and ahead (staging). A disturbed machine can only make the run slower, so the fastest of up to
# five runs counts. Samples are large and steps long, so that the wake-ups of a busy machine are few; all of it takes a minute at most.
# test-label: timing
# test-label: full
set -eu
export MILLRACE_RUN_OVERWRITE=true # the fastest of several runs counts
[ -n "${MR_TEST_FULL:-}" ] || { echo "SKIP: it times real runs, which a busy machine disturbs; 'make test-full' runs it"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
fail() { echo "FAILED: $1"; exit 1; }
cat >s.yaml <<'YAML'
system: {pfs: {bandwidth: 100MB}, classes: [{capacity: 112MB, threads: 4, read: 1TB}]}
dataset: {samples: 84, size: 4MB}
batch: 7
epochs: 1
step_time: 0.2s
YAML
"$MILLRACE" sim s.yaml -p naive,staging --json >sim.json
real() { # read threads
    "$MILLRACE" run unet3d_h100 dataset.num_files_train=84 dataset.record_length_bytes=4000000 dataset.record_length_bytes_stdev=0 \
        train.epochs=1 train.computation_time=0.2 reader.read_threads=$1 --store 'throttle(bandwidth=100MB):posix' --data data --generate \
        --out "res-$1" >out 2>&1 || [ $? = 3 ] || { cat out; fail "the run"; } # 3: a preset's target was missed, as intended here
}
check() { # policy, read threads
    for _ in 1 2 3 4 5; do
        real "$2"
        python3 - "$1" "res-$2" >>log <<'PY' && return
import json, sys
want = {p["name"]: p["time_s"] for p in json.load(open("sim.json"))["policies"]}[sys.argv[1]]
have = json.load(open(sys.argv[2] + "/summary.json"))["millrace"]["duration_s"]
print(f"{sys.argv[1]}: simulated {want:.3f} s, real {have:.3f} s, {100 * (have / want - 1):+.1f} %")
sys.exit(abs(have / want - 1) > 0.05)
PY
    done
    cat log
    fail "$1: simulated and real differ by more than 5 %"
}
check naive 0
check staging 4
cat log
echo passed
