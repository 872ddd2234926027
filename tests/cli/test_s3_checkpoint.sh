#!/usr/bin/env bash
# Checkpoints in object storage against a server of our own: every engine, a burst buffer before it, `ckpt`, a step saved
# again, restoring, what a killed save left, a server that refuses or fails, and no multipart upload left behind.
# test-label: full
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
# shellcheck source=../s3/server.sh
. "$(dirname "$0")/../s3/server.sh"
dir=$(mktemp -d)
trap 'stop_server; rm -rf "$dir"' EXIT
cd "$dir"
fail() { echo "FAILED: $*"; cat out err 2>/dev/null || true; exit 1; }
start_server
make_bucket bucket
cat >w.yaml <<'Y'
model: {model_size_bytes: 12000000}
workflow: {train: true, checkpoint: true}
dataset: {format: synthetic, num_files_train: 64, num_samples_per_file: 1}
reader: {batch_size: 1}
train: {epochs: 1, computation_time: 0.001, total_training_steps: 20}
checkpoint: {steps_between_checkpoints: 10, type: all_ranks, fsync: true}
Y
train() { millrace -q run w.yaml --out o --checkpoint-folder "$@" >out 2>err; }
keys() { admin GET /_keys | python3 -c 'import json, sys; print("\n".join(k for k in json.load(sys.stdin) if k.startswith(sys.argv[1])))' "bucket/$1/"; }
complete() { millrace ckpt ls "$1" 2>err | grep -c complete || true; }
tidy() { # no upload is left, nothing that ranks leave for each other, and no object of a folder without a list
    local folder
    [ "$(admin GET /_uploads)" = "[]" ] || fail "uploads are left: $(admin GET /_uploads)"
    ! keys "$1" | grep -q '\.tmp/' || fail "left in $1: $(keys "$1")"
    for folder in $(keys "$1" | grep -o '.*/step-[^/]*/' | sort -u); do
        keys "$1" | grep -qF "${folder}checkpoint.json" || fail "no list in $folder"
    done
}
restore="workflow.train=false checkpoint.num_checkpoints_write=0 checkpoint.num_checkpoints_read=1"

# Every engine, alone and with two ranks, straight to the bucket and through a burst buffer.
n=0
all=("--ranks 2" "checkpoint.engine=async" "--burst-buffer $dir/bb")
[ "${MR_TEST_FULL:-}" != 1 ] || all+=("--ranks 2 checkpoint.engine=async" "--ranks 2 --burst-buffer $dir/bb2" "checkpoint.engine=async --burst-buffer $dir/bb3")
for options in "${all[@]}"; do
    at=s3://bucket/e$((n += 1))
    # shellcheck disable=SC2086
    train $at $options || fail "run $options"
    [ "$(complete $at)" = 2 ] || fail "$options: $(millrace ckpt ls $at)"
    millrace ckpt verify $at >out 2>err || fail "verify after $options"
    # shellcheck disable=SC2086
    train $at $options $restore || fail "restore $options"
    tidy e$n
done

# The same steps again: each replaces the one before, and only one copy stays; a third time too.
for again in 1 2; do
    train s3://bucket/e1 || fail "again"
    [ "$(complete s3://bucket/e1)" = 2 ] || fail "saved again: $(millrace ckpt ls s3://bucket/e1)"
    millrace ckpt verify s3://bucket/e1 >out 2>err || fail "verify of what was saved again"
    [ "$(keys e1 | grep -c checkpoint.json)" = 2 ] || fail "copies: $(keys e1)"
    [ "$again" = 2 ] || keys e1 | grep -q '/step-000000000020.again/' || fail "no second slot: $(keys e1)"
done
! keys e1 | grep -q again || fail "the first slot is not used again: $(keys e1)"

# keep-last, and rm: the list goes first; the last one wants --force.
train s3://bucket/e1 --keep-last 1 || fail "keep-last"
[ "$(complete s3://bucket/e1)" = 1 ] || fail "keep-last: $(keys e1)"
! millrace ckpt rm s3://bucket/e1 --step 20 >out 2>err || fail "the last one is removed without --force"
millrace ckpt rm s3://bucket/e1 --step 20 --force >out 2>err || fail "rm"
[ -z "$(keys e1)" ] || fail "rm leaves: $(keys e1)"

# A torn save: objects without a list are no checkpoint; the next save removes them and the uploads that have no owner.
train s3://bucket/torn || fail "before it is torn"
millrace -q run w.yaml --out o --checkpoint-folder s3://bucket/torn model.model_size_bytes=300000000 >out 2>err &
pid=$!
for _ in $(seq 400); do [ "$(admin GET /_uploads)" = "[]" ] || break; sleep 0.02; done
kill -9 $pid
wait $pid 2>/dev/null || true
[ "$(admin GET /_uploads)" != "[]" ] || fail "the kill came too late: nothing is under way"
[ "$(complete s3://bucket/torn)" = 2 ] || fail "after a kill: $(millrace ckpt ls s3://bucket/torn)"
millrace ckpt verify s3://bucket/torn >out 2>err || fail "verify after a kill"
train s3://bucket/torn || fail "after a kill"
tidy torn
[ "$(complete s3://bucket/torn)" = 2 ] || fail "the save after a kill: $(keys torn)"

# A server that refuses or loses requests costs repeats, not the checkpoint; one that refuses all of them, the run.
admin PUT /_faults '[{"kind": "503", "probability": 0.1, "seed": 3}, {"kind": "reset", "probability": 0.03, "seed": 4}, {"kind": "lost", "probability": 0.03, "seed": 5}]' >/dev/null
train s3://bucket/faults checkpoint.engine=async || fail "with faults"
admin PUT /_reset >/dev/null
millrace ckpt verify s3://bucket/faults >out 2>err || fail "verify after faults"
train s3://bucket/faults checkpoint.engine=async || fail "after faults"
tidy faults
admin PUT /_faults '[{"kind": "500", "match": "*step-000000000020/checkpoint.json", "method": "PUT"}]' >/dev/null
! train s3://bucket/refused --checkpoint-store 's3(deadline=2s)' || fail "no list can be written, and nothing is said"
admin PUT /_reset >/dev/null
[ "$(complete s3://bucket/refused)" = 1 ] || fail "without its list: $(millrace ckpt ls s3://bucket/refused)"
# Whether a list is there cannot be seen: nothing is taken for incomplete, and nothing removed.
admin PUT /_faults '[{"kind": "500", "match": "*checkpoint.json"}]' >/dev/null
! train s3://bucket/refused --checkpoint-store 's3(deadline=2s)' || fail "lists cannot be looked for, and nothing is said"
admin PUT /_reset >/dev/null
millrace ckpt verify s3://bucket/refused --step 10 >out 2>err || fail "a look that failed cost a checkpoint: $(keys refused)"

millrace ckpt ls s3://bucket/nothing >out 2>err && fail "ls of nothing"
grep -q "s3://bucket/nothing" err || fail "ls of nothing: $(cat err)"
! train s3://bucket/e1 --burst-buffer s3://bucket/bb || fail "a burst buffer in the bucket"
grep -q 'is in object storage' err || fail "says: $(cat err)"
