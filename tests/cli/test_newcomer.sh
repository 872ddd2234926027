#!/usr/bin/env bash
# What a newcomer stumbles over: names that are almost right, empty and foreign files, hints that can be typed, figures
# that can be read.
set -eu
. "$(dirname "$0")/expect.sh"
says() { grep -qF -- "$1" out err || { cat out err; fail "no '$1'"; }; }
lacks() { ! grep -qF -- "$1" out err || { cat out err; fail "says '$1'"; }; }

# ---- names ----
expect 2 "$MILLRACE" run unet3d
says "'unet3d_a100'"
says "'unet3d_h100'"
expect 2 "$MILLRACE" gen x --format zarr
lacks "did you mean"
expect 2 "$MILLRACE" gen x --format tfrecrd
says "did you mean 'tfrecord'?"

# ---- workload files ----
for text in '' '# only a comment' '---' '{}'; do
    printf '%s\n' "$text" >empty.yaml
    expect 2 "$MILLRACE" run empty.yaml --dry-run
    says "the workload file 'empty.yaml' is empty"
done
printf 'model:\n  name: caf\xe9\n' >latin1.yaml
expect 4 "$MILLRACE" run latin1.yaml --dry-run
says "byte 0xe9 at column 12 (offset 18) is not UTF-8"
says "in latin1.yaml:2"
printf 'model:\n  name: caf\xc3\xa9\nreader:\n  # \xe2\x82\xac \xed\xa0\x80\n' >surrogate.yaml # a lone surrogate
expect 4 "$MILLRACE" run surrogate.yaml --dry-run
says "byte 0xed at column 9"
says "in surrogate.yaml:4"
printf 'a: 1\nb: "\x01"\n' >control.yaml
expect 4 "$MILLRACE" run control.yaml --dry-run
says "in control.yaml:2"

# A workload of checkpoints that leaves training on, as DLIO's llama_1t: no steps, and the checkpoints are written.
cat >ckpt.yaml <<'Y'
model: {name: tiny, type: transformer, num_layers: 2, parallelism: {tensor: 2, pipeline: 2, zero_stage: 1},
        transformer: {vocab_size: 64, hidden_size: 32, ffn_hidden_size: 64, num_attention_heads: 2, num_kv_heads: 2}}
workflow: {generate_data: true, train: true, checkpoint: true}
checkpoint: {checkpoint_folder: ck, num_checkpoints_write: 2, num_checkpoints_read: 1}
Y
expect 0 "$MILLRACE" run ckpt.yaml --out r1
says "no training steps"
says "checkpoint"
[ "$(find ck -type f | wc -l)" -gt 4 ] && [ ! -e data ] || fail "checkpoints: $(find . -type f)"
expect 0 "$MILLRACE" run ckpt.yaml --dry-run
says "2 written, 1 read"
lacks "steps per epoch"
expect 2 "$MILLRACE" run ckpt.yaml --dry-run workflow.train=true reader.batch_size=4
says "not one full batch" # who asks for training gets it

# The same split over as many ranks as DLIO's file: tensor 8 x pipeline 64, one process each.
sed 's/num_layers: 2/num_layers: 64/; s/tensor: 2, pipeline: 2/tensor: 8, pipeline: 64/; s/num_checkpoints_write: 2/num_checkpoints_write: 1/; s/: ck,/: ck512,/' ckpt.yaml >ckpt512.yaml
expect 0 "$MILLRACE" run ckpt512.yaml --dry-run
says "no training steps"
grep -qE "ranks +512$" out || { cat out; fail "ranks of the split"; }
expect 2 "$MILLRACE" run ckpt512.yaml --ranks 8
says "--ranks 512"
if [ -n "${MR_TEST_FULL:-}" ]; then
    expect 0 "$MILLRACE" run ckpt512.yaml --out r512
    says "1 checkpoint written, 1 read back and verified"
    says "512 ranks"
    [ "$(find ck512 -name '*optim*' | wc -l)" = 512 ] || fail "optimizer files: $(find ck512 -type f | head)"
fi

# A check that compares nothing says so.
cat >plain.yaml <<'Y'
dataset: {format: npz, num_files_train: 8, num_samples_per_file: 1, record_length_bytes: 1000}
train: {computation_time: 0.001}
Y
expect 0 "$MILLRACE" workloads check plain.yaml --dir .
says "no expectations: it ran, but nothing was compared"
says "1 rank,"

# ---- a dry run ----
expect 0 "$MILLRACE" run unet3d_h100 --dry-run
says "146,600,628"
says "24,628,905,504 (22.9 GiB)"
says "reader.batch_size"
lacks "model.parallelism.tensor"
lacks "/../"
[ "$(cat out err | grep -c 'reader.sample_shuffle shuffles')" = 1 ] || fail "a note is not given once"
expect 0 "$MILLRACE" -q run unet3d_h100 --dry-run
[ "$(cat out err | grep -c 'reader.sample_shuffle shuffles')" = 1 ] || fail "-q: a note is not given once"
expect 0 "$MILLRACE" -v run unet3d_h100 --dry-run
says "model.parallelism.tensor"
expect 0 "$MILLRACE" workloads show unet3d_h100
lacks "/../"

# ---- columns and plurals ----
long=a-workload-with-a-name-that-is-longer-than-any-of-ours
mkdir cfg
cp plain.yaml cfg/$long.yaml
expect 0 "$MILLRACE" workloads list --config-dir cfg
column=$(awk 'NR == 1 {print index($0, "FORMAT")}' out)
awk -v c="$column" 'NR > 1 && (substr($0, c - 1, 1) != " " || substr($0, c, 1) == " ") {exit 1}' out || { cat out; fail "columns of the list"; }
grep -q "^$long  *npz" out || { cat out; fail "a long name"; }
expect 0 "$MILLRACE" sim --list
awk '/^systems/ {exit} / nodes, / {print index($0, " samples, ")}' out | sort -u | wc -l | grep -qx 1 || { cat out; fail "columns of sim --list"; }
says "14,197,122 samples"
expect 0 "$MILLRACE" sim thesis-1 nodes=1 epochs=1 -p staging
says "1 node, 1 epoch, 10,000 samples"
expect 0 "$MILLRACE" sim thesis-1 nodes=1 epochs=1 --access
says "1 time "

# ---- one step ----
expect 0 "$MILLRACE" gen d8 --files 8 --size 1000
expect 0 "$MILLRACE" run plain.yaml --data d8 reader.batch_size=8 train.epochs=1 --out r2
says "by DLIO       no rate: its formula needs at least 3 steps"
grep -qE 'by DLIO.* -[0-9]' out && fail "a negative rate: $(cat out)"
expect 0 "$MILLRACE" run plain.yaml --data d8 reader.batch_size=1 train.epochs=1 --out r3
grep -qE "by DLIO       AU [0-9.]+ %, [0-9.]+ samples/s, .*DLIO's formulas" out || fail "by DLIO: $(cat out)"

# ---- hints that can be typed ----
expect 5 "$MILLRACE" run unet3d_h100 --data /etc/passwd
says "the data set '/etc/passwd' is not a folder"
lacks "/etc/passwd/train"
expect 5 "$MILLRACE" run plain.yaml --data 'my data/$x' --out r4
says "'millrace gen \"my data/\\\$x\" --workload plain.yaml'"
mkdir 'empty set'
expect 4 "$MILLRACE" verify 'empty set'
says "'millrace scan \"empty set\"'"
# what could not be made is not there to be looked at: not even root makes a folder in /sys
expect 5 "$MILLRACE" scan d8/train --out /sys/y.mrm
grep -qE "hint: .*(ls -ld|findmnt -T) /sys'" err || { cat err; fail "a hint names what does not exist"; }

# ---- repair by the manifest ----
expect 0 "$MILLRACE" gen set --format npy --files 6 --size 3000 --size-stdev 500 --labels 3 --seed 9 --eval-files 2
before=$(cd set && find . -name '*.npy' -print0 | sort -z | xargs -0 sha256sum)
rm set/train/*3_of_6.npy
for f in set/valid/*.npy; do printf 'x' | dd of="$f" bs=1 seek=200 conv=notrunc 2>/dev/null; break; done
expect 0 "$MILLRACE" gen set --repair
[ "$(grep -c 'wrote 1' out)" = 2 ] || { cat out; fail "repair"; }
[ "$(cd set && find . -name '*.npy' -print0 | sort -z | xargs -0 sha256sum)" = "$before" ] || fail "repair changed the set"
expect 2 "$MILLRACE" gen set --repair --files 7
says "files is 6 there, 7 asked"
echo "newcomer: ok"
