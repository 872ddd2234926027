#!/usr/bin/env bash
# `millrace run` end to end: data, reading modes, evaluation, checkpoints, page cache, limits, output.
set -eu
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
framework: pytorch
workflow: {train: true}
dataset: {format: npz, num_files_train: 24, num_files_eval: 4, record_length_bytes: 20000, data_folder: d}
reader: {data_loader: pytorch, batch_size: 4, batch_size_eval: 2, read_threads: 2, sample_shuffle: seed}
train: {epochs: 2, computation_time: 0.001}
evaluation: {eval_time: 0.001}
Y
run() { "$MILLRACE" -q run w.yaml --out "${out:-$tmp/o}" --json "$@" >s.json 2>err; }
want() { python3 -c "import json; d=json.load(open('s.json')); m=d['millrace']; t=d['trust']; assert $1, ($1, m, t)" || fail "$1"; }

rc=0; run || rc=$?
[ $rc = 5 ] && grep -q "there is no data set in 'd/train'" err && grep -q "hint: make it with 'millrace gen d --workload w.yaml'" err || fail "missing data: $(cat err)"
run --generate --verify
want "d['complete'] and m['steps'] == 12 and m['samples'] == 48 and m['sample_bytes'] == 48 * 20000"
for f in summary.json config.json rank-0.steps.csv; do [ -s o/$f ] || fail "no $f"; done
[ "$(wc -l <o/rank-0.steps.csv)" = 13 ] || fail "steps in the series"
run --ranks 2; want "m['ranks'] == 2 and m['samples'] == 48 and [r['steps'] for r in m['per_rank']] == [6, 6]"

# total_training_steps counts over the whole run, not in each epoch
run train.total_training_steps=7; want "m['steps'] == 7"
# reading in the trainer's thread, without look-ahead, from memory, without data
run reader.read_threads=0; want "m['steps'] == 12 and m['au'] < 1"
run --lookahead 0; want "m['steps'] == 12 and m['per_rank'][0]['slab_bytes'] < 4 * 21000 + 4096"
run reader.read_type=memory reader.read_threads=1; want "m['steps'] == 12 and m['read_bytes'] == 0 and m['sample_bytes'] == 48 * 20000"
run dataset.format=synthetic; want "m['steps'] == 12 and m['read_bytes'] == 0"
run --copy-to-device; want "m['time_split']['device_copy'] > 0"
run reader.drop_last=false reader.batch_size=5 train.epochs=1; want "m['steps'] == 5 and m['samples'] == 24"
# preprocessing takes CPU time in the threads
run reader.preprocess_time=0.002 train.epochs=1; want "m['per_rank'][0]['transform_s'] > 0.047"
# bytes the trainer gets
run dataset.record_length_bytes_resize=1000; want "m['sample_bytes'] == 48000 and m['read_bytes'] >= 48 * 20000"
run --max-time 50ms train.epochs=1000; want "d['complete'] and m['duration_s'] < 5"
for c in spin gemm; do run --compute $c; want "m['compute_mean_s'] >= 0.00099"; done

# evaluation, with its own batch size and split
run workflow.evaluation=true; want "0 < m['eval_au'] <= 1 and len(d['metric']['eval_au_percentage']) == 2"
grep -c ,eval, o/rank-0.steps.csv | grep -qx 4 || fail "evaluation steps"

# checkpoints by steps, by epochs, by time; keep-last
run workflow.checkpoint=true checkpoint.steps_between_checkpoints=5 model.model_size_bytes=300000 --checkpoint-folder "$tmp/c"
want "m['checkpoint']['saves'] == 2 and m['checkpoint']['saved_bytes'] == 600000"
[ "$(ls c | tr '\n' ' ')" = "step-000000000005 step-000000000010 " ] || fail "checkpoints: $(ls c)"
run workflow.checkpoint=true checkpoint.checkpoint_after_epoch=2 model.model_size_bytes=3000 --checkpoint-folder "$tmp/c2" --ranks 2 checkpoint.type=all_ranks
want "m['checkpoint']['saves'] == 1 and m['checkpoint']['saved_bytes'] == 6000"
run workflow.checkpoint=true --checkpoint-every 1ms train.epochs=4 model.model_size_bytes=3000 --checkpoint-folder "$tmp/c3" --keep-last 2
want "m['checkpoint']['saves'] >= 10"
[ "$(ls c3 | wc -l)" = 2 ] || fail "keep-last: $(ls c3)"
# checkpoint-only: a transformer over tensor and pipeline ranks, written, paused, read back shifted
run workflow.train=false workflow.checkpoint=true checkpoint.num_checkpoints_write=2 checkpoint.num_checkpoints_read=2 --ranks 4 \
    model.type=transformer model.num_layers=2 model.transformer.hidden_size=64 model.transformer.vocab_size=100 \
    model.transformer.ffn_hidden_size=128 model.transformer.num_attention_heads=4 model.transformer.num_kv_heads=4 \
    model.parallelism.tensor=2 model.parallelism.pipeline=2 model.parallelism.zero_stage=1 checkpoint.recovery_rank_shift=true \
    checkpoint.time_between_checkpoints=0.05 --checkpoint-folder "$tmp/c4"
want "m['checkpoint']['saves'] == 2 and m['checkpoint']['loads'] == 2 and m['checkpoint']['saved_bytes'] == m['checkpoint']['loaded_bytes']"
python3 - <<'PY' || fail "size of the transformer's checkpoint"
import json
m = json.load(open("s.json"))["millrace"]["checkpoint"]
h, v, f, L = 64, 100, 128, 2
p = 2 * v * h + L * (2 * h + h * 3 * h + h * h + 3 * f * h) + h
assert m["saved_bytes"] == 2 * (2 * p + 4 * (3 * p + 15 * h)), (m, p)
PY

# page cache
run --cache warm; want "t['cold_fraction'] == 0 and t['cache_asked'] == 'warm'"
run --cache cold
if python3 -c "import json; exit(json.load(open('s.json'))['trust']['cold_fraction'] > 0.9)"; then
    rc=0; run --cache cold --strict-trust || rc=$? # a file system in memory cannot be cold
    [ $rc = 6 ] && grep -q "asked for a cold cache" err || fail "strict trust on a warm file system: $rc"
else
    run --cache cold --cache-each-epoch
    want "t['cold_fraction'] > 0.9"
fi

# text: verdict first, at most 40 lines; nothing else on stdout
"$MILLRACE" -q run w.yaml --out o train.epochs=12 workflow.evaluation=true >out 2>err
head -1 out | grep -qE '^AU [0-9.]+ % \(target 90 %\): (PASS|FAIL); ' || fail "verdict: $(head -1 out)"
[ "$(wc -l <out)" -le 40 ] || fail "long summary"
# a set that is not what the workload says: the set counts, and that is said
run dataset.num_files_train=30; want "m['samples'] == 48 and any('24 samples' in n for n in d['notes'])"
# generating only, as DLIO's first command; a set made for one run may go with it
"$MILLRACE" -q run w.yaml workflow.generate_data=true workflow.train=false --data g >out 2>err || fail "generate only: $(cat err)"
grep -q "was generated in 'g': 24 training samples" out || fail "generate only: $(cat out)"
"$MILLRACE" -q run w.yaml workflow.generate_data=true dataset.keep_files=false --data g2 --out o >out 2>err || fail "$(cat err)"
[ ! -e g2/train/manifest.mrm ] || fail "keep_files=false keeps"
"$MILLRACE" -q run w.yaml workflow.generate_data=true dataset.keep_files=false --data g --out o >out 2>err || fail "$(cat err)"
[ -e g/train/manifest.mrm ] || fail "keep_files=false removed a set that was there before"
# errors
rc=0; run storage.storage_type=s3 || rc=$?; [ $rc = 2 ] && grep -q "only local_fs" err || fail "s3: $rc"
rc=0; run workflow.train=false || rc=$?; [ $rc = 2 ] || fail "nothing to do: $rc"
rc=0; run --threads 2 reader.batch_size=100 || rc=$?; [ $rc = 2 ] || fail "no full batch: $rc"
rc=0; out=/proc/none run || rc=$?; [ $rc = 5 ] && grep -q "cannot" err && want "d['complete']" || fail "unwritable results: $rc $(cat err)"
echo "run: ok"
