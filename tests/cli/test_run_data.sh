#!/usr/bin/env bash
# The data set of a run: one that a killed generator left behind is finished, the generator does not outlive the run that started it,
# and a set that is not what the workload says is named.
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
. "$(dirname "$0")/waiting.sh"
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 4000, record_length_bytes: 4000, data_folder: d}
reader: {batch_size: 100, read_threads: 2, sample_shuffle: seed}
Y
has_files() { [ "$(ls d/train 2>/dev/null | wc -l)" -ge 20 ]; }
"$MILLRACE" -q run w.yaml --generate --no-ceiling --out o >out 2>err & p=$!
soon has_files || fail "no files: $(cat err)"
children=$(pgrep -P $p || true)
kill -9 $p
wait $p 2>/dev/null || true
# shellcheck disable=SC2086
soon gone $children || fail "the generator goes on after its run was killed"
if [ ! -e d/train/manifest.mrm ]; then # else it was faster than we
    rc=0; "$MILLRACE" -q run w.yaml --no-ceiling --out o >out 2>err || rc=$?
    [ $rc = 5 ] || fail "unfinished set: exit $rc: $(cat err)"
    grep -q "d/train' is not finished" err && grep -q -- "--generate" err || fail "$(cat err)"
fi
"$MILLRACE" -q run w.yaml --generate --no-ceiling --verify --out o >out 2>err || fail "not continued: $(cat err)"
[ "$(ls d/train/*.npz | wc -l)" = 4000 ] || fail "$(ls d/train | wc -l) entries"
# files of others are not touched
mkdir -p foreign/train && echo x >foreign/train/note.npz
rc=0; "$MILLRACE" -q run w.yaml --generate --data foreign --out o >out 2>err || rc=$?
[ $rc = 4 ] || fail "a folder of others: exit $rc: $(cat err)"
[ "$(ls -A foreign/train)" = note.npz ] || fail "$(ls -A foreign/train)"
# the set is another one than the workload says
"$MILLRACE" run w.yaml dataset.format=hdf5 dataset.record_length_bytes=8000 train.total_training_steps=2 --no-ceiling --out o >out 2>err || fail "$(cat err)"
grep -q "holds npz files, the workload says hdf5" err || fail "format: $(cat err)"
grep -q "have 4,000 bytes, the workload says 8,000" err || fail "size: $(cat err)"
"$MILLRACE" run w.yaml train.total_training_steps=2 --no-ceiling --out o >out 2>err || fail "$(cat err)"
if grep -q "workload says" err; then fail "nothing differs: $(cat err)"; fi
# the set that is there decides how many batches there are, not the workload: 4000 samples, where it says 8
"$MILLRACE" run dataset.format=npz dataset.record_length_bytes=4000 reader.batch_size=100 --data d --ranks 3 --no-ceiling --out o >out 2>err || fail "counts: $(cat err)"
grep -q "has 4000 samples, the workload says 8; the set counts" err || fail "counts: $(cat err)"
[ "$(grep -c "the set counts" err)" = 1 ] || fail "told twice: $(cat err)"
rc=0; "$MILLRACE" -q run dataset.format=npz reader.batch_size=2000 --data d --ranks 3 --out o >out 2>err || rc=$?
[ $rc = 2 ] && grep -q "not one full batch: 4000 samples" err || fail "too few: $rc $(cat err)"

# a larger set than the workload asks for serves with its first files, whatever the way of reading; a count that nobody has chosen asks for nothing
files() { # files SET WORDS...: the files that were read
    local set=$1
    shift
    "$MILLRACE" trace --quiet -o t.mrt --include "$PWD/d/$set/*.npz" -- "$MILLRACE" -q run w.yaml --data d --no-ceiling --out o "$@" >out 2>err || fail "$*: $(cat err)"
    "$MILLRACE" export -f csv -o - t.mrt | grep -o "d/$set/[^,]*npz" | sort -u
}
ls d/train/*.npz | sort | head -40 >want
for more in "" "--ranks 3" "reader.read_type=memory" "--cache cold" "pattern.unit=file"; do
    # shellcheck disable=SC2086
    files train dataset.num_files_train=40 reader.batch_size=4 $more >have
    cmp -s want have || fail "the first 40 files, '$more': $(wc -l <have) files: $(diff want have | head -3)"
done
"$MILLRACE" run w.yaml dataset.num_files_train=40 reader.batch_size=4 --verify --no-ceiling --out o >out 2>err || fail "$(cat err)"
[ "$(grep -c "has 4000 files, the workload says 40: the first 40 are read" err)" = 1 ] || fail "not told once: $(cat err)"
python3 -c '
import json
r = json.load(open("o/summary.json"))
assert r["num_files_train"] == 40, r["num_files_train"]' || fail "summary"
"$MILLRACE" -q gen e --format npz --files 8 --eval-files 12 --size 4000 >/dev/null 2>err || fail "$(cat err)"
"$MILLRACE" run w.yaml dataset.num_files_train=8 dataset.num_files_eval=4 workflow.evaluation=true reader.batch_size=2 reader.batch_size_eval=2 --data e --verify --no-ceiling \
    --out o >out 2>err || fail "evaluation: $(cat err)"
grep -q "the evaluation set has 12 files, the workload says 4: the first 4 are read" err || fail "evaluation: $(cat err)"

echo "data of a run: ok"
