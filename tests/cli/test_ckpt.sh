#!/usr/bin/env bash
# `millrace ckpt`: lists, shows, verifies and removes checkpoints of both engines, names damage, says how often to save.
set -u
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir" || exit 1
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
    compgen -G "$c/step-*$step" >/dev/null && fail "rm left it"
    last=$("$MILLRACE" ckpt ls $c | awk '/complete/ {print $1}')
    "$MILLRACE" ckpt rm $c --step "$last" 2>err; [ $? = 2 ] && grep -q "only complete" err || fail "rm of the last one"
    "$MILLRACE" ckpt rm $c --step "$last" --force || fail "rm --force"
    "$MILLRACE" ckpt verify $c 2>err; [ $? = 6 ] || fail "nothing to verify: $(cat err)"
done
"$MILLRACE" ckpt show c-async 2>err; [ $? = 6 ] || fail "show of nothing"
"$MILLRACE" ckpt interval --mtbf 6h --cost 12s --json | python3 -c 'import json,sys; r=json.load(sys.stdin); assert abs(r["young_s"] - 720) < 1e-6 and 705 < r["interval_s"] < 720 and 0.03 < r["lost_share"] < 0.04, r' || fail interval
"$MILLRACE" ckpt interval r-sync --mtbf 1h | grep -q "save every" || fail "interval of a run"
"$MILLRACE" ckpt interval --mtbf 6h 2>err; [ $? = 2 ] && grep -q -- "--cost" err || fail "interval without a cost"
"$MILLRACE" ckpt interval --mtbf 1s --cost 10s 2>err; [ $? = 2 ] && grep -q "does not get on" err || fail "interval that does not exist: $(cat err)"
# What is no checkpoint of ours is named, with what reads it; a damaged one is shown as such.
mkdir hf dcp pt tier; : >hf/model.safetensors.index.json; : >dcp/.metadata; : >pt/a.pt; mkdir tier/rank-00000; printf 'PK\003\004' >m.pt
printf '\065\000\000\000\000\000\000\000{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}ab' >hf/a.safetensors
for row in "hf:Hugging Face" "dcp:dcp.load" "pt:torch.save" "m.pt:millrace.torch.load" "tier:tiers" "hf/a.safetensors:no checksums"; do
    for action in ls show verify; do
        [ "$action$row" = "showhf/a.safetensors:no checksums" ] && continue
        "$MILLRACE" ckpt $action "${row%%:*}" >out 2>&1
        grep -q "${row#*:}" out || fail "$action ${row%%:*}: $(cat out)"
    done
done
"$MILLRACE" ckpt show hf/a.safetensors | grep -q "U8.*\[2\].*w" || fail "show of a file"
"$MILLRACE" ckpt show hf/a.safetensors --json | python3 -c 'import json,sys; r=json.load(sys.stdin)["tensors"]; assert r[0]["name"]=="w", r' || fail "show of a file as JSON"
"$MILLRACE" -q run default --data data --out r-again workflow.checkpoint=true checkpoint.engine=async model.model_size_bytes=1MB checkpoint.epochs_between_checkpoints=1 \
    checkpoint.checkpoint_folder="$dir/c-again" train.computation_time=0.001 train.epochs=1 >out 2>err || fail "again: $(cat err)"
victim=$(find c-again -name '*.safetensors' | head -1)
"$MILLRACE" ckpt show "$(dirname "$victim")" 2>err; grep -q "folder above" err || fail "show of one step: $(cat err)"
truncate -s 1000 "$victim"; "$MILLRACE" ckpt show c-again >out 2>err; [ $? = 4 ] && grep -q "1000 bytes" err || fail "show of a cut one: $(cat out err)"
rm "$(dirname "$victim")/checkpoint.json"; "$MILLRACE" ckpt verify c-again 2>err; [ $? = 4 ] && grep -q "checkpoint.json' is missing" err || fail "without its list: $(cat err)"
# Virtual runs with all engines: what training waits for, and what goes on behind.
predict() { "$MILLRACE" -q run tf-ckpt --virtual --system "$@" --json 2>err || fail "virtual $*: $(cat err)"; }
{ predict hdd; predict hdd checkpoint.engine=async; predict lassen checkpoint.burst_buffer.folder=b; predict lassen
  predict hdd checkpoint.engine=async checkpoint.steps_between_checkpoints=1; } >out
python3 - <<'END' out || fail "virtual runs: $(cat out)"
import json, sys
text, rows, at = open(sys.argv[1]).read(), [], 0
while text[at:].strip():
    row, n = json.JSONDecoder().raw_decode(text[at:].lstrip())
    at = len(text) - len(text[at:].lstrip()) + n
    rows.append((row["checkpoint"], row["duration_s"]))
(sync, total), (behind, less), (burst, _), (direct, _), (pressed, _) = rows
assert [c["engine"] for c, _ in rows] == ["sync", "async", "burst", "sync", "async"], rows
assert 8 < sync["save_s"] < 9 and sync["durable_s"] == sync["save_s"] and sync["saves"] == 2
assert behind["save_s"] < 0.1 and 8 < behind["durable_s"] < 9 and behind["tail_s"] == 0 and total - less > 16
assert burst["save_s"] < direct["save_s"] and burst["durable_s"] > direct["save_s"], rows
# saves every 1.92 s that take 8.46 s to write: training is held up to the rate of the disk, and the last one outlives it
assert pressed["saves"] == 50 and 6 < pressed["save_s"] < 8.46 and pressed["tail_s"] > 6, pressed
END
"$MILLRACE" -q run tf-ckpt --virtual --system hdd checkpoint.burst_buffer.folder=b 2>err; [ $? = 2 ] && grep -q "no device of the node" err || fail "burst without a device: $(cat err)"
# A model of 112 GB by 8 ranks at a hundred thousandth of its size, by every engine.
for engine in sync async burst; do
    with="checkpoint.engine=$engine"; [ $engine = burst ] && with="$with checkpoint.burst_buffer.folder=$dir/bb"
    # shellcheck disable=SC2086
    "$MILLRACE" -q run llama3_8b --scale 0.00001 --out "l-$engine" $with checkpoint.checkpoint_folder="$dir/l-c-$engine" \
        checkpoint.num_checkpoints_write=2 checkpoint.num_checkpoints_read=1 checkpoint.time_between_checkpoints=0 >out 2>err || fail "llama $engine: $(cat err)"
    bytes=$(find "$dir/l-c-$engine"/step-*1 "$dir/l-c-$engine"/step-*0 -name '*.bin' -o -name '*.safetensors' 2>err | head -40 | xargs cat | wc -c)
    [ "$bytes" -gt 1100000 ] && [ "$bytes" -lt 2600000 ] || fail "llama $engine: $bytes bytes"
done
"$MILLRACE" -q run llama3_8b --scale 0.00001 --out l-none checkpoint.engine=burst checkpoint.checkpoint_folder="$dir/l-none-c" 2>err; [ $? = 2 ] && grep -q "needs a burst buffer" err || fail "burst without a buffer: $(cat err)"
echo ok
