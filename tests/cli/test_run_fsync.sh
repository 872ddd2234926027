#!/usr/bin/env bash
# checkpoint.fsync is honoured: strace sees every file and folder synced before the rename with it, and none without.
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
fail() { echo "FAIL: $*" >&2; exit 1; }
command -v strace >/dev/null || { echo "SKIP: no strace"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
strace -o probe true 2>/dev/null || { echo "SKIP: strace may not trace here"; exit 77; }
export ASAN_OPTIONS=detect_leaks=0 # the leak checker cannot work under a tracer
save() {
    strace -f -e trace=fsync,fdatasync,rename,renameat,renameat2 -o "$1" "$MILLRACE" -q run workflow.train=false workflow.checkpoint=true \
        checkpoint.num_checkpoints_write=2 checkpoint.num_checkpoints_read=0 model.model_size_bytes=2MB --ranks 2 checkpoint.type=all_ranks \
        checkpoint.time_between_checkpoints=0 checkpoint.fsync="$2" --checkpoint-folder "$tmp/$1.d" --out "$tmp/$1.o" >out 2>err || fail "$(cat err)"
}
save with true
save without false
n=$(grep -cE 'f(data)?sync\(' with || true)
[ "$n" -ge 8 ] || fail "2 checkpoints of 2 ranks with fsync: only $n calls" # 2 x (2 files + list + folder), at least
[ "$(grep -cE 'f(data)?sync\(' without || true)" = 0 ] || fail "fsync without being asked"
# the checkpoint's rename comes after its syncs
python3 - <<'P' || fail "a checkpoint got its name before it was durable"
synced = 0
for line in open("with"):
    if "sync(" in line: synced += 1
    if "rename" in line and ".tmp" in line and "step-" in line and "checkpoint.json" not in line and ".part" not in line:
        assert synced >= 3, (synced, line)
        synced = 0
P
echo "run, fsync: ok ($n calls)"
