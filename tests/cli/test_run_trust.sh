#!/usr/bin/env bash
# PASS only for a run that deserves it: other data than the workload's, data in memory that was not meant to be, pinned ranks and too
# few steps withdraw the verdict, in text and JSON; --strict-trust and --expect make exit statuses of it.
# test-label: once (long under sanitizers: there only in make test-full)
set -eu
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 48, record_length_bytes: 20000, data_folder: d}
reader: {batch_size: 2, read_threads: 1, sample_shuffle: seed}
train: {epochs: 1, computation_time: 0.01}
Y
"$MILLRACE" -q gen d --workload w.yaml >/dev/null
n=0
# run WORDS...: text in out, summary in $o/summary.json, exit status in $rc
run() { n=$((n + 1)) o=o$n rc=0; "$MILLRACE" -q run w.yaml --no-ceiling --out $o "$@" >out 2>err || rc=$?; }
# The verdict is withdrawn for this reason, wherever it is told; a busy machine may have doubts of its own.
withdrawn() {
    head -1 out | grep -q "^AU .*: no verdict, because " && grep -q "^  doubt  .*$1" out || fail "text, $1: $(cat out err)"
    ! grep -q "PASS\|is not the limit" out || fail "a verdict all the same: $(cat out)"
    python3 - "$o" "$1" <<'P' || fail "JSON, $1: $(cat $o/summary.json | head -c 400)"
import json, sys
d = json.load(open(sys.argv[1] + "/summary.json"))
assert d["verdict"] == "none" and d["no_verdict_because"] and not d["trust"]["trusted"], d["verdict"]
assert any(sys.argv[2] in x for x in d["trust"]["doubts"]), d["trust"]["doubts"]
P
}
# nothing wrong that we have done: what the text says is what the JSON says, and the status follows
run --cache warm --expect
python3 - "$o" $rc out <<'P' || fail "a good run: $rc $(cat out err)"
import json, sys
d = json.load(open(sys.argv[1] + "/summary.json")); rc = int(sys.argv[2]); first = open(sys.argv[3]).readline()
au, low = d["millrace"]["au"], d["millrace"]["au"] < d["millrace"]["au_target"]
want = "none" if d["trust"]["doubts"] else "FAIL" if low else "PASS"
assert d["verdict"] == want and ("no verdict, because" if want == "none" else f": {want}; ") in first, (d["verdict"], first)
assert rc == (3 if low else 6 if want == "none" else 0), rc
assert want != "PASS" or "storage with its data in memory is not the limit" in first, first
assert not any("says" in x or "page cache" in x or "pinned" in x for x in d["trust"]["doubts"]), d["trust"]
P
# data in memory that nobody has asked for
if python3 -c "import json; exit(json.load(open('$o/summary.json'))['trust']['cold_fraction'] is None)"; then
    run; withdrawn "100 % of the data was in the page cache"; [ $rc = 0 ] || fail "doubts alone are no error: $rc"
    run --strict-trust; withdrawn "page cache"; [ $rc = 6 ] && grep -q "cannot be trusted" err || fail "strict: $rc $(cat err)"
    run --expect train.computation_time=0.05; withdrawn "page cache"; [ $rc = 6 ] && grep -q "no verdict, because" err || fail "expected, not deserved: $rc $(cat err)"
    # an emulated device is as slow with its data in memory
    run --store "throttle(bandwidth=100MB):posix"; ! grep -q "page cache, so" out || fail "throttled: $(cat out)"
fi
# sample size (also where it has a standard deviation), count and format
run --cache warm dataset.record_length_bytes=2000000
withdrawn "the samples of the training set have 20000 bytes, the workload says 2.0 MB"
grep -q "by DLIO .*no MB/s: it takes a sample for 2,000,000 bytes, here it has 20" out || fail "MB/s of bytes that nobody read: $(cat out)"
run --cache warm dataset.record_length_bytes=2000000 dataset.record_length_bytes_stdev=500000; withdrawn "have 20000 bytes, the workload says 2.0 MB"
run --cache warm dataset.record_length_bytes=25000 dataset.record_length_bytes_stdev=60000 # 48 samples may well be 20000 bytes long
! grep -q "doubt .*have 20000" out || fail "chance: $(cat out)"
"$MILLRACE" -q gen v --workload w.yaml dataset.record_length_bytes_stdev=5000 >/dev/null
run --cache warm --data v dataset.record_length_bytes_stdev=5000; ! grep -q "doubt .*samples" out || fail "its own set: $(cat out)"
run --cache warm --data v dataset.record_length_bytes=146600628 dataset.record_length_bytes_stdev=68341808; withdrawn "the workload says 146.6 MB"
run --cache warm dataset.num_files_train=480; withdrawn "the training set has 48 samples, the workload says 480"
run --cache warm dataset.format=hdf5; withdrawn "the training set holds npz files, the workload says hdf5"
# a larger set serves with its first files, and that is the workload; what nobody has chosen is not asked for
run --cache warm dataset.num_files_train=24; ! grep -q "doubt .*says" out || fail "first files: $(cat out)"
rc=0; "$MILLRACE" -q run --data d --out plain dataset.format=npz reader.batch_size=2 train.computation_time=0.01 --cache warm >out 2>err || fail "$(cat err)"
! grep -q "doubt .*says" out || fail "defaults: $(cat out)"
# too few steps
run --cache warm train.total_training_steps=5; withdrawn "too few steps: the AU is that of 4 steps per rank"
# pinned to fewer CPUs than threads
if [ "$(nproc)" -gt 1 ]; then
    cpu=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
    n=$((n + 1)) o=o$n rc=0
    taskset -c "$cpu" "$MILLRACE" -q run w.yaml --no-ceiling --out $o --cache warm --threads 3 --strict-trust >out 2>err || rc=$?
    withdrawn "3 threads are pinned to 1 of $(nproc) CPUs"; [ $rc = 6 ] || fail "pinned: $rc"
    grep -q "bind-to" out && fail "no mpirun here: $(cat out)"
    taskset -c "$cpu" "$MILLRACE" -q run w.yaml --no-ceiling --out $o.1 --cache warm --threads 1 >out 2>err || fail "$(cat err)"
    ! grep -q "pinned" out || fail "one thread on one CPU: $(cat out)"
fi
# below the target: 3, also when there are doubts
run --cache warm --expect --store "throttle(bandwidth=1MB):posix"
[ $rc = 3 ] && grep -q "the AU is .* below the target of 90.0 %" err || fail "--expect: $rc $(cat err)"
run --expect --store "throttle(bandwidth=1MB):posix" train.total_training_steps=4; withdrawn "too few steps"; [ $rc = 3 ] || fail "--expect with doubts: $rc"
run --expect --sweep reader.read_threads=1,2; [ $rc = 2 ] && grep -q -- "--expect judges one run" err || fail "--expect in a sweep: $rc"
run --expect workflow.train=false workflow.checkpoint=true checkpoint.num_checkpoints_write=1 checkpoint.num_checkpoints_read=0 \
    model.model_size_bytes=3000 --checkpoint-folder "$tmp/c"
[ $rc = 6 ] && grep -q "there is no AU" err || fail "nothing to expect: $rc $(cat err)"
# a table withdraws it, too
run --sweep reader.read_threads=1 dataset.record_length_bytes=2000000 --cache warm
grep -q "^1 .* none " out && grep -q "^1: no verdict, because the samples" out || fail "sweep: $(cat out err)"
# and so does a report on the run
run --cache warm dataset.format=hdf5; "$MILLRACE" report --tables $o >out 2>err || fail "report: $(cat err)"
grep -q "no verdict, because the training set holds npz" out || fail "report: $(head -5 out)"
echo "run, trust: ok"
