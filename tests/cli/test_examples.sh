#!/usr/bin/env bash
# Every example of the help texts, of README.md and of doc/ runs. Folders such as /data become folders of the test. What
# reads or writes real data is made small through the environment, which stands below the command line; predictions
# (--dry-run, --virtual, sim) run exactly as printed. 'workloads check all' has its own test (test_workloads_check.sh).
# test-label: once (long under sanitizers: there only in make test-full)
set -eu
. "$(dirname "$0")/expect.sh"
src=$MR_SOURCE_DIR
mkdir bin local
ln -s "$MILLRACE" bin/millrace
# shellcheck disable=SC2154 # dir: expect.sh
export PATH=$dir/bin:$PATH MILLRACE_WORKLOADS=$src/workloads MILLRACE_CALIBRATE_BUDGET=3s
export ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=report_bugs=0 # MPI libraries leak at exit
mpi='' mpi_flags=''
if command -v mpirun >/dev/null; then
    mpi=mpich
    mpirun --version 2>/dev/null | grep -q "Open MPI" && mpi=openmpi mpi_flags="--oversubscribe --allow-run-as-root"
    [ -f "$MR_BINARY_DIR/lib/millrace_mpi_$mpi.so" ] || mpi=
fi
command -v python >/dev/null || ln -s "$(command -v python3)" bin/python
s3=
if [ -e "$MR_BINARY_DIR/lib/millrace_s3_curl.so" ]; then # a bucket for the examples of object storage
    # shellcheck source=../s3/server.sh
    . "$src/tests/s3/server.sh"
    start_server
    trap 'stop_server; rm -rf "$dir"' EXIT
    make_bucket bucket
    s3=1
fi

# One command per line, without remarks; continuation lines of code blocks are not used in examples.
help_examples() {
    for c in $(millrace help | awk '/^  [a-z]/{print $1}'); do
        millrace "$c" --help | sed -n '/^options:/q;p' | grep -E '^  (mpirun .*)?millrace [a-z]' || :
    done
    for t in $(millrace help topics | awk '/^  /{print $1}'); do millrace help "$t" | grep -E '^  millrace [a-z]' || :; done
}
doc_examples() {
    awk 'FNR == 1 {inside = 0} /^ *```/ {inside = !inside; next} inside || /^    /' "$src/README.md" "$src"/doc/*.md "$src"/doc/*/*.md |
        grep -E '^ *(\$ )?(mpirun .*)?millrace [a-z]' | grep -v '──' || :
}
{ help_examples; doc_examples; } | sed -E 's/^ *(\$ )?//; s/ +# .*//; s/ +$//' | awk '!seen[$0]++' >examples
[ "$(wc -l <examples)" -gt 60 ] || { cat examples; fail "hardly an example found"; }

# ---- what the examples presuppose ----
cat >train.py <<'Y'
import os
for i in range(4):
    with open("step", "wb") as f:
        f.write(os.urandom(4096))
Y
printf 'dataset: {format: npz, num_files_train: 64, record_length_bytes: 1000}\nreader: {batch_size: 1}\n' >my.yaml
cp my.yaml training.yaml
cat >w.yaml <<Y
dataset: {format: raw, num_files_train: 64, record_length_bytes: 5000, data_folder: $dir/w}
reader: {batch_size: 8, read_threads: 2}
train: {epochs: 1, computation_time: 0.05}
Y
printf 'name: rig\npfs: {bandwidth: 100MB}\nclasses: [{name: staging, capacity: 1GB, threads: 2, read: 1TB}]\n' >rig.yaml
millrace -q gen w --workload w.yaml >/dev/null
small() { # the presets' sets at a few kilobytes per sample; steps of a millisecond
    env MILLRACE_DATASET_RECORD_LENGTH_BYTES=4096 MILLRACE_DATASET_RECORD_LENGTH_BYTES_STDEV=0 \
        MILLRACE_DATASET_NUM_SAMPLES_PER_FILE=64 MILLRACE_DATASET_NUM_FILES_TRAIN=28 MILLRACE_READER_BATCH_SIZE=8 \
        MILLRACE_TRAIN_COMPUTATION_TIME=0.001 MILLRACE_TRAIN_EPOCHS=1 MILLRACE_READER_PREPROCESS_TIME=0 \
        MILLRACE_MODEL_MODEL_SIZE_BYTES=100000 "$@"
}
data=$dir/data
millrace -q gen "$data/img" --format jpeg --files 20 --size 8KB --labels 10 --eval-files 5 >/dev/null
millrace -q gen "$data/tfx" --format tfrecord --files 2 --samples-per-file 8 --size 4000 >/dev/null
millrace -q gen "$data/shards" --format tar --files 2 --samples-per-file 8 --size 4000 >/dev/null
mv "$data/shards/train"/* "$data/shards/" && rm -f "$data/shards/manifest.mrm"
millrace -q gen "$data/climate" --format hdf5 --files 2 --samples-per-file 4 --fields data:f4:4x8x12,labels:i4:8x12:target >/dev/null
mkdir -p "$data/imagenet"
cp -r "$data/img/train" "$data/imagenet/train"
rm -f "$data/imagenet/train/manifest.mrm"
millrace -q scan "$data/imagenet/train" >/dev/null
small millrace -q gen "$data/unet3d" workload=unet3d_h100 dataset.num_files_eval=1 >/dev/null
for preset in resnet50_h100:resnet resnet50_h100:r50 cosmoflow_h100:cosmoflow; do
    small millrace -q gen "$data/${preset#*:}" "workload=${preset%:*}" >/dev/null
done
small millrace -q run unet3d_h100 --data "$data/unet3d" --out results/unet3d >/dev/null
for side in base tuned; do small millrace -q run unet3d_h100 --data "$data/unet3d" --out "results/$side" >/dev/null; done
for k in 1 2 3; do cp -r results/base "a$k" && cp -r results/tuned "b$k"; done
cp results/base/trace.mrt before.mrt && cp results/tuned/trace.mrt after.mrt
for k in one two four; do cp before.mrt "$k.mrt"; done
printf 'budget:\n  - stall_pct <= 100\n' >budget.yaml

# ---- run them ----
# The large scenario takes five seconds of a CPU, its sweeps and plans twelve: make test has those of the small one instead.
large=thesis-2 swept=thesis-1
[ -z "${MR_TEST_FULL:-}" ] || swept=thesis-2
! millrace --version | grep -q sanitizers || large=thesis-1 swept=thesis-1 # minutes there
skip() { # reason
    echo "not run: $line: $1"
    skipped=$((skipped + 1))
}
adapted() { # the line with the test's folders and sizes
    sed -E -e "s#/pfs/cosmo#/data/cosmoflow#g" -e "s#(^|[ =:'\"])/(tmp|data|scratch|lustre/me|local/ssd|nvme|mnt|fast)#\1$dir/\2#g" \
        -e 's/--files 10000/--files 20/; s/--samples-per-file 1251/--samples-per-file 16/; s/--size 115KB/--size 8KB/' \
        -e 's/--files 64 --size 4MiB --size-stdev 1MiB/--files 8 --size 40KiB --size-stdev 4KiB/' \
        -e 's/--budget (30|60)s/--budget 3s/; s/--map-by node//' -e "s/mpirun -n [0-9]+/mpirun $mpi_flags -n 2/" \
        -e 's#check runs/\$CI_JOB_ID.mrt#check before.mrt#' -e 's/(--out|report) results( |$)/\1 results-tour\2/; s/--eval-files 500/--eval-files 5/; s/--files 100 --size 10MB/--files 16 --size 100KB/; s/16x768x1152/16x8x12/; s/:768x1152/:8x12/; s/--labels 1000/--labels 10/' \
        -e "s/thesis-2 -/$swept -/; s/thesis-2/$large/" -e 's/--strict-trust//; s/(--find-max-accelerators)/\1 --max-ranks 2/; s/ \| man -l -//' <<<"$1"
}
export CI_JOB_ID=1
mkdir -p runs tmp scratch lustre/me local/ssd nvme mnt fast
millrace -q cache fill "$dir/nvme/cache" "$data/img" --capacity 100MiB >/dev/null
millrace -q trace -o scratch/trace/t.mrt -- python train.py >/dev/null 2>&1 ||
    { mkdir -p scratch/trace && millrace -q trace -o scratch/trace/t.mrt -- python train.py >/dev/null; }
skipped=0 ran=0
while read -r line; do
    case $line in
    *'check all'*) skip "its own test" && continue ;;
    *' recover '*) skip "needs an interrupted trace: test_trace_kill.sh" && continue ;;
    *' tune run.mrt'*) continue ;; # the same program, the same test
    *' try '*' run.mrt'*) skip "needs a PyTorch program: test_torch_try.py" && continue ;;
    *' ckpt '*' checkpoints'*) skip "needs checkpoints of a training: test_ckpt.sh" && continue ;;
    *plugin=* | *--allow-plugins*) skip "needs a plug-in of the reader's" && continue ;;
    *' s3://'*) [ -n "$s3" ] || { skip "built without object storage" && continue; } ;;
    mpirun*) [ -n "$mpi" ] || { skip "no mpirun that fits this build" && continue; } ;;
    *'| jq'*) command -v jq >/dev/null || { skip "no jq" && continue; } ;;
    esac
    cmd=$(adapted "$line")
    case $line in
    *' --data '* | *'gen '*workload=*) run=small ;;
    *) run= ;;
    esac
    rc=0
    $run bash -o pipefail -c "$cmd" >out 2>err </dev/null || rc=$?
    case $line:$rc in
    *'| head'*:5) rc=0 ;;     # the reader left
    *' check '*:6) # a set this small is measured in memory, on a machine with other work: no verdict, but all was compared
        ! grep -q 'cannot be trusted' err || rc=0
        ;;
    *' --history runs '*:3) rc=0 ;; # the limits of a CI job, on a set this small
    *--max-accelerators*:3) ;; # no number of ranks reaches the AU here
    esac
    [ "$rc" = 0 ] || { head -c 2000 out err; fail "example '$line' (as '$cmd'): exit $rc"; }
    ran=$((ran + 1))
done <examples
[ "$ran" -gt 55 ] && [ "$skipped" -lt 8 ] || fail "$ran run, $skipped not"
echo "examples: ok ($ran run, $skipped not)"
