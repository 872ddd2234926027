#!/usr/bin/env bash
# `millrace ckpt`: lists, shows, verifies and removes checkpoints of both engines, names damage, says how often to save.
set -u
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
fail() { echo "FAIL: $*"; exit 1; }
for engine in sync async; do
    "$MILLRACE" run default --generate --data data --ranks 2 --out "r-$engine" workflow.checkpoint=true checkpoint.engine=$engine \
        model.model_size_bytes=9MB checkpoint.steps_between_checkpoints=2 checkpoint.epochs_between_checkpoints=1 \
        checkpoint.checkpoint_folder="$dir/c-$engine" train.computation_time=0.001 train.epochs=1 --keep-last 2 >out 2>err || fail "$engine: $(cat err)"
    c=c-$engine
    "$MILLRACE" ckpt ls $c >out 2>err || fail "ls $c: $(cat err)"
    [ "$(grep -c complete out)" = 2 ] || fail "ls $c: $(cat out)"
    step=$(awk '/complete/ {print $1; exit}' out)
    mkdir "$c/step-000000000999.tmp"
    "$MILLRACE" ckpt ls $c | grep -q "999  unfinished" || fail "an unfinished one is not shown"
    "$MILLRACE" ckpt ls $c --json | python3 -c 'import json,sys; r=json.load(sys.stdin)["checkpoints"]; assert [x["state"] for x in r]==["complete","complete","unfinished"], r' || fail "ls --json"
    "$MILLRACE" ckpt verify $c >out || fail "verify $c"
    grep -q "match their checksums" out || fail "$(cat out)"
    "$MILLRACE" ckpt show $c --step "$step" >out || fail "show $c"
    victim=$(find "$c" -path "*$step/*" -size +1M | head -1)
    printf 'X' | dd of="$victim" bs=1 seek=500000 conv=notrunc 2>err
    "$MILLRACE" ckpt verify $c --step "$step" >out 2>err; [ $? = 4 ] && grep -q "$(basename "$victim").*checksum" err || fail "damage: $(cat out err)"
    "$MILLRACE" ckpt rm $c --step "$step" || fail "rm"
    [ -e "$c"/step-*"$step" ] && fail "rm left it"
    last=$("$MILLRACE" ckpt ls $c | awk '/complete/ {print $1}')
    "$MILLRACE" ckpt rm $c --step "$last" 2>err; [ $? = 2 ] && grep -q "only complete" err || fail "rm of the last one"
    "$MILLRACE" ckpt rm $c --step "$last" --force || fail "rm --force"
    "$MILLRACE" ckpt verify $c 2>err; [ $? = 6 ] || fail "nothing to verify: $(cat err)"
done
"$MILLRACE" ckpt show c-async 2>err; [ $? = 6 ] || fail "show of nothing"
"$MILLRACE" ckpt interval --mtbf 6h --cost 12s --json | python3 -c 'import json,sys; r=json.load(sys.stdin); assert abs(r["young_s"] - 720) < 1e-6 and 705 < r["interval_s"] < 720 and 0.03 < r["lost_share"] < 0.04, r' || fail interval
"$MILLRACE" ckpt interval r-sync --mtbf 1h | grep -q "save every" || fail "interval of a run"
"$MILLRACE" ckpt interval --mtbf 6h 2>err; [ $? = 2 ] && grep -q -- "--cost" err || fail "interval without a cost"
echo ok
