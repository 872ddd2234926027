#!/usr/bin/env bash
# `mpirun -n 4 millrace run` reads the same samples on the same ranks, in the same order, as `millrace run --ranks 4`, and its
# summary holds all ranks' steps. Data generation, checkpoints and errors work under mpirun, too.
set -eu
fail() { echo "FAIL: $*" >&2; exit 1; }
skip() { echo "SKIP: $*"; exit 77; }
command -v mpirun >/dev/null || skip "there is no mpirun"
[ -f "$MR_BINARY_DIR/lib/millrace_mpi.so" ] || skip "this build has no MPI module"
flags=
if mpirun --version 2>/dev/null | grep -q "Open MPI"; then
    flags="--allow-run-as-root --oversubscribe --mca btl_vader_single_copy_mechanism none"
fi
export ASAN_OPTIONS=detect_leaks=0 # MPI libraries leak at exit
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
workflow: {train: true, checkpoint: true}
model: {model_size_bytes: 100000}
dataset: {format: indexed_binary, num_files_train: 8, num_samples_per_file: 12, record_length_bytes: 4096, data_folder: d}
reader: {batch_size: 4, read_threads: 1, sample_shuffle: seed}
train: {epochs: 2, computation_time: 0.002}
checkpoint: {type: all_ranks, checkpoint_folder: c}
Y
# shellcheck disable=SC2086
timeout 100 mpirun $flags -n 4 "$MILLRACE" -q run w.yaml --generate --out m --no-ceiling --store "trace(file=m.{rank}.tsv):posix" >out 2>err || fail "mpirun: $(cat err)"
"$MILLRACE" -q run w.yaml --ranks 4 --out f --no-ceiling --checkpoint-folder c2 --store "trace(file=f.{rank}.tsv):posix" >/dev/null 2>err || fail "$(cat err)"
for r in 0 1 2 3; do
    for k in m f; do awk -F'\t' '$1 == "read" && $4 == 4096 { print $6, $2, $3 }' $k.$r.tsv | sort -n | cut -d' ' -f2- >$k.$r.list; done
    [ "$(wc -l <m.$r.list)" = 48 ] || fail "rank $r read $(wc -l <m.$r.list) samples"
    cmp m.$r.list f.$r.list || fail "rank $r read other samples"
done
python3 - <<'P' || fail "summary under mpirun"
import csv, json
a, b = (json.load(open(k + "/summary.json"))["millrace"] for k in "mf")
for k in ("ranks", "steps", "samples", "sample_bytes", "read_bytes"): assert a[k] == b[k], (k, a[k], b[k])
assert a["ranks"] == 4 and [r["steps"] for r in a["per_rank"]] == [12] * 4
assert a["checkpoint"]["saves"] == b["checkpoint"]["saves"] == 2 and a["checkpoint"]["saved_bytes"] == 800000
for r in range(4): assert len(list(csv.DictReader(open(f"m/rank-{r}.steps.csv")))) == 12
P
[ "$(grep -c '^AU' out)" = 1 ] || fail "more than one rank speaks"
rc=0
# shellcheck disable=SC2086
timeout 100 mpirun $flags -n 2 "$MILLRACE" -q run w.yaml --data none >out 2>err || rc=$?
[ $rc != 0 ] && [ "$(grep -c "there is no data set" err)" = 1 ] || fail "missing data under mpirun: $rc $(cat err)"
echo "run under mpirun: ok"
