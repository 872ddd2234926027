#!/usr/bin/env bash
# Checkpoints in object storage against real servers, versitygw and MinIO: every engine, two ranks, a burst buffer before it,
# restoring, a step saved again, many files removed at once; a server that is killed and started again while a checkpoint is
# written; a killed save, whose uploads the next one removes. test-label: full
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
# shellcheck source=../s3/real.sh
. "$(dirname "$0")/../s3/real.sh"
dir=$(mktemp -d)
# shellcheck disable=SC2154 # s3_folder: real.sh
trap 'stop_server; rm -rf "$dir" ${s3_folder:+"$s3_folder" "$s3_folder.log"}' EXIT
cd "$dir"
fail() { echo "FAILED ($server): $*"; cat out err 2>/dev/null || true; exit 1; }
cat >w.yaml <<'Y'
model: {model_size_bytes: 12000000}
workflow: {train: true, checkpoint: true}
dataset: {format: synthetic, num_files_train: 64, num_samples_per_file: 1}
reader: {batch_size: 1}
train: {epochs: 1, computation_time: 0.001, total_training_steps: 20}
checkpoint: {steps_between_checkpoints: 10, type: all_ranks, fsync: true}
Y
train() { millrace -q run w.yaml --out o --checkpoint-folder "$@" >out 2>err; }
complete() { millrace ckpt ls "$1" 2>err | grep -c complete || true; }
no_uploads() { [ "$(real_uploads)" = 0 ] || fail "$1: $(real_uploads) uploads are left"; }

engines() {
    local n=0 at options
    for options in "--ranks 2" "--ranks 2 checkpoint.engine=async" "--burst-buffer $dir/bb-$server"; do
        at=s3://bucket/e$((n += 1))
        # shellcheck disable=SC2086
        train $at $options || fail "run $options"
        # shellcheck disable=SC2086
        train $at $options || fail "the same steps again, $options"
        [ "$(complete $at)" = 2 ] || fail "$options: $(millrace ckpt ls $at)"
        millrace ckpt verify $at >out 2>err || fail "verify after $options"
        # shellcheck disable=SC2086
        train $at $options workflow.train=false checkpoint.num_checkpoints_write=0 checkpoint.num_checkpoints_read=1 ||
            fail "restore $options"
    done
    millrace ckpt rm s3://bucket/e1 --step 10 >out 2>err || fail "rm"
    [ "$(complete s3://bucket/e1)" = 1 ] || fail "after rm: $(millrace ckpt ls s3://bucket/e1)"
    ! signed GET /bucket "list-type=2&prefix=e1%2Fstep-000000000010" | grep -q "<Key>" || fail "rm leaves objects"
    no_uploads "after all engines"
}

wait_for_upload() {
    for _ in $(seq 600); do [ "$(real_uploads)" = 0 ] || return 0; sleep 0.02; done
    fail "no upload has begun"
}

# Requests under way fail; they are repeated until the server is back, and the checkpoint is complete.
server_restarts() {
    local pid
    for engine in sync async; do
        train s3://bucket/down-$engine checkpoint.engine=$engine model.model_size_bytes=400000000 train.total_training_steps=10 &
        pid=$!
        wait_for_upload
        kill_real_server
        sleep 2
        kill -0 $pid 2>/dev/null || fail "$engine: the run ended while the server was away"
        serve_real
        wait $pid || fail "$engine: a server that was killed and started again costs the run"
        [ "$(complete s3://bucket/down-$engine)" = 1 ] || fail "$engine: $(millrace ckpt ls s3://bucket/down-$engine)"
        millrace ckpt verify s3://bucket/down-$engine >out 2>err || fail "$engine: verify after the server was killed"
    done
    train s3://bucket/down-async || fail "the next save"
    train s3://bucket/down-sync || fail "the next save"
    no_uploads "after the server was killed"
}

killed_save() {
    train s3://bucket/killed || fail "before the kill"
    millrace -q run w.yaml --out o --checkpoint-folder s3://bucket/killed model.model_size_bytes=400000000 >out 2>err &
    local pid=$!
    wait_for_upload
    kill -9 $pid
    wait $pid 2>/dev/null || true
    [ "$(real_uploads)" != 0 ] || fail "the kill came too late"
    [ "$(complete s3://bucket/killed)" = 2 ] || fail "after the kill: $(millrace ckpt ls s3://bucket/killed)"
    millrace ckpt verify s3://bucket/killed >out 2>err || fail "verify after the kill"
    train s3://bucket/killed || fail "the save after the kill"
    [ "$(complete s3://bucket/killed)" = 2 ] || fail "after the next save: $(millrace ckpt ls s3://bucket/killed)"
    no_uploads "after the save that follows a kill"
}

tried=
for server in ${MR_S3_SERVERS:-versitygw minio}; do
    real_server $server || { echo "without $server: not installed, and Go cannot build it here (MR_TEST_FULL=1 tries)"; continue; }
    tried+=" $server"
    engines
    server_restarts
    killed_save
    drop_real_server
done
[ -n "$tried" ] || { echo "SKIP: neither versitygw nor minio"; exit 77; }
echo "passed:$tried"
