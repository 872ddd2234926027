#!/usr/bin/env bash
# `millrace run` end to end: data, reading modes, evaluation, checkpoints, page cache, limits, output.
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
. "$(dirname "$0")/waiting.sh"
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
run --max-time 50ms train.epochs=1000; want "d['complete'] and 1 <= m['steps'] <= 51" # of 6000, 1 ms each at least
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
# A machine that gives memory back by itself may drop a page between filling the cache and the run: asked three times.
warm() { # arguments of run
    for _ in 1 2 3; do
        run "$@"
        ! python3 -c "import json; exit(json.load(open('s.json'))['trust']['cold_fraction'] > 0)" || break
    done
    want "t['cold_fraction'] == 0"
}
warm --cache warm; want "t['cache_asked'] == 'warm'"
run --cache cold
if python3 -c "import json; exit(json.load(open('s.json'))['trust']['cold_fraction'] > 0.9)"; then
    rc=0; run --cache cold --strict-trust || rc=$? # a file system in memory cannot be cold
    [ $rc = 6 ] && grep -q "asked for a cold cache" err || fail "strict trust on a warm file system: $rc"
else
    run --cache cold --cache-each-epoch
    want "t['cold_fraction'] > 0.9"
    # pages that somebody maps cannot be dropped: an epoch that was not cold is told of, also when the first one was
    python3 -c '
import glob, mmap, os, time
while not glob.glob("c7/step-*"): time.sleep(0.01)
maps = [mmap.mmap(os.open(f, os.O_RDONLY), 0, prot=mmap.PROT_READ) for f in glob.glob("d/train/*.npz")]
while not os.path.exists("over"):
    for m in maps: m[::4096]
    open("mapped", "w").close()
    time.sleep(0.01)' &
    mapper=$!
    "$MILLRACE" -q run w.yaml --out o --json --cache cold --cache-each-epoch train.epochs=100000 workflow.checkpoint=true \
        model.model_size_bytes=3000 --checkpoint-folder "$tmp/c7" --keep-last 5 >s.json 2>err & p=$!
    ready $p && soon test -e mapped || fail "the pages are not mapped: $(cat err)"
    last=$(ls c7 | tail -n 1)
    more() { [ "$(ls c7 | tail -n 1)" \> "$last" ]; }
    for _ in 1 2 3; do soon more || fail "no more epochs: $(cat err)"; last=$(ls c7 | tail -n 1); done # in whole epochs the pages were there
    kill -INT $p
    rc=0; wait $p || rc=$?
    touch over
    wait $mapper
    [ $rc = 130 ] || fail "interrupted: $rc $(cat err)"
    want "any('asked for a cold cache' in x for x in t['doubts'])"
fi

# what was read before the first step is told
"$MILLRACE" -q run w.yaml --out o reader.read_type=memory --ranks 2 >out 2>err || fail "$(cat err)"
grep -q "^  preload  .* before the first step" out || fail "preload: $(cat out)"
# text: verdict first, at most 40 lines; nothing else on stdout
"$MILLRACE" -q run w.yaml --out o train.epochs=12 workflow.evaluation=true --cache warm >out 2>err
head -1 out | grep -qE '^AU [0-9.]+ % \(target 90 %\): (PASS; |FAIL; |no verdict, because )' || fail "verdict: $(head -1 out)"
head -1 out | grep -q "$(python3 -c "import json; print({'none': 'no verdict'}.get(v := json.load(open('o/summary.json'))['verdict'], v))")" || fail "another verdict: $(head -1 out)"
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
rc=0; run storage.storage_type=aistore || rc=$?; [ $rc = 2 ] && grep -q "aistore cannot be run" err || fail "aistore: $rc"
rc=0; run workflow.train=false || rc=$?; [ $rc = 2 ] || fail "nothing to do: $rc"
rc=0; run --threads 2 reader.batch_size=100 || rc=$?; [ $rc = 2 ] || fail "no full batch: $rc"
# a results folder that cannot be made is noticed before anything is done, generating included; a run that fails leaves none behind
rc=0; out=/proc/none run --data never --generate || rc=$?
[ $rc = 5 ] && grep -q "cannot" err && grep -q "hint: choose another folder with --out" err && [ ! -e never ] || fail "unwritable results: $rc $(cat err)"
rc=0; out=$tmp/no/result run --data nowhere || rc=$?
[ $rc = 5 ] && [ ! -e no/result ] || fail "an empty results folder stays: $rc"
# two runs of one second do not share a folder
("$MILLRACE" -q run w.yaml train.epochs=1 >a & "$MILLRACE" -q run w.yaml train.epochs=1 >b & wait)
[ "$(grep -h results a b | sort -u | wc -l)" = 2 ] || fail "one folder for two runs: $(cat a b)"
# series and checkpoints of an earlier run in the same folder do not pass for this one's
run --ranks 3 workflow.checkpoint=true --checkpoint-folder "$tmp/c5"; run
[ "$(cd o && echo rank-*.csv check*)" = "rank-0.steps.csv check*" ] || fail "stale results: $(ls o)"
# notes on a workload are told once, also when it is generated
"$MILLRACE" run w.yaml --data g3 --generate --out o >out 2>err || fail "$(cat err)"
[ "$(grep -c 'sample_shuffle shuffles' err)" = 1 ] || fail "notes: $(cat err)"
# the evaluation set is made warm, too, and what is cold of it counts
warm workflow.evaluation=true --cache warm
python3 - <<'PY'
import glob, os
for f in glob.glob("d/valid/*.npz"): # dropped behind the run's back
    fd = os.open(f, os.O_RDONLY); os.fsync(fd); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED); os.close(fd)
PY
run --cache asis; want "t['cold_fraction'] == 0" # the evaluation set is not read
run workflow.evaluation=true --cache asis --max-time 1ns; want "t['cold_fraction'] == 0 or 0.1 < t['cold_fraction'] < 0.2" # in memory, or a seventh
warm workflow.evaluation=true --cache warm --cache-each-epoch
# an epoch that total_training_steps cuts short is followed by its evaluation and checkpoint, and the plan says so
run workflow.evaluation=true workflow.checkpoint=true train.total_training_steps=9 model.model_size_bytes=3000 --checkpoint-folder "$tmp/c6"
want "m['steps'] == 9 and m['checkpoint']['saves'] == 2 and len(d['metric']['eval_au_percentage']) == 2"
grep -c ,eval, o/rank-0.steps.csv | grep -qx 4 || fail "evaluation of a short epoch"
"$MILLRACE" -q run w.yaml --dry-run --json workflow.evaluation=true workflow.checkpoint=true train.total_training_steps=9 >s.json
python3 -c "import json; p=json.load(open('s.json'))['plan']; assert p['evaluations'] == 2 and p['checkpoint']['checkpoints_written'] == 2, p" || fail "plan of a short epoch"
# warm-up steps are not in AU
run output.metric.exclude_start_steps=4 output.metric.exclude_end_steps=2; want "m['au_steps_counted'] == 6 and m['steps'] == 12"
# one subfolder is one; DLIO, which may read the set next, wants a folder for the evaluation set even without one
run dataset.num_subfolders_train=1 dataset.num_files_eval=0 --data g4 --generate
[ "$(find g4 -type d | sort | tr '\n' ' ')" = "g4 g4/train g4/train/0 g4/valid " ] || fail "folders: $(find g4 -type d)"
"$MILLRACE" -q verify g4 >out 2>err || fail "verify with an empty evaluation set: $(cat out err)"
rc=0; run dataset.num_subfolders_train=1 workflow.evaluation=true --data g4 || rc=$?
[ $rc = 5 ] && grep -q "there is no data set in 'g4/valid'" err || fail "empty evaluation set: $rc $(cat err)"
run dataset.num_subfolders_train=1 workflow.evaluation=true --data g4 --generate; want "m['eval_au'] > 0"
# phases that never come are told of; a run without any is refused
told() { python3 -c "import json; n=json.load(open('s.json'))['notes']; assert any('$1' in x for x in n), n" || fail "note: $1"; }
run workflow.evaluation=true dataset.num_files_eval=0; told "num_files_eval is 0"
run workflow.evaluation=true reader.batch_size_eval=3 --ranks 2; told "4 samples are not one batch of 3 for each of 2 ranks"
run workflow.evaluation=true evaluation.eval_after_epoch=3; told "eval_after_epoch is 3, and there are 2 epochs"
run workflow.checkpoint=true checkpoint.checkpoint_after_epoch=3; told "no checkpoint is written"
rc=0; run workflow.train=false workflow.checkpoint=true || rc=$?; [ $rc = 2 ] && grep -q "nothing to do" err || fail "no checkpoints to write or read: $rc"
# options that would do nothing are refused
for idle in "--system hdd" "--cache-each-epoch" "--checkpoint-every 1s" "--keep-last 2"; do
    # shellcheck disable=SC2086
    rc=0; run $idle || rc=$?; [ $rc = 2 ] && grep -q "without which it has no effect" err || fail "$idle: $rc"
done
echo "run: ok"
