#!/usr/bin/env bash
# `mpirun -n 4 millrace run`, with every MPI implementation found, reads the same samples on the same ranks, in the same order,
# as `millrace run --ranks 4`, and its summary holds all ranks' steps. Data generation, checkpoints and errors work under
# mpirun, too, and a launcher that is only known by its process manager interface is recognised.
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
fail() { echo "FAIL: $*" >&2; exit 1; }
. "$(dirname "$0")/launchers.sh"
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
list() { awk -F'\t' '$1 == "read" && $4 == 4096 { print $6, $2, $3 }' "$1" | sort -n | cut -d' ' -f2-; }
# shellcheck disable=SC2154 # launchers: launchers.sh
for kind in $launchers; do
    rm -rf d m f c c2 ./*.tsv ./*.mrt
    start $kind 4 "$MILLRACE" -q run w.yaml --generate --out m --no-ceiling --store "trace(file=m.{rank}.mrt):posix" >out 2>err || fail "$kind: $(cat err)"
    "$MILLRACE" -q run w.yaml --ranks 4 --out f --no-ceiling --checkpoint-folder c2 --store "trace(file=f.{rank}.mrt):posix" >/dev/null 2>err || fail "$(cat err)"
    python3 "$MR_SOURCE_DIR/tests/cli/calls_as_tsv.py" "$MILLRACE" ./*.mrt
    for r in 0 1 2 3; do
        for k in m f; do list $k.$r.tsv >$k.$r.list; done
        [ "$(wc -l <m.$r.list)" = 48 ] || fail "$kind: rank $r read $(wc -l <m.$r.list) samples"
        cmp m.$r.list f.$r.list || fail "$kind: rank $r read other samples"
    done
    python3 - <<'P' || fail "$kind: summary under mpirun"
import csv, json
a, b = (json.load(open(k + "/summary.json"))["millrace"] for k in "mf")
for k in ("ranks", "steps", "samples", "sample_bytes", "read_bytes"): assert a[k] == b[k], (k, a[k], b[k])
assert a["ranks"] == 4 and [r["steps"] for r in a["per_rank"]] == [12] * 4
assert a["checkpoint"]["saves"] == b["checkpoint"]["saves"] == 2 and a["checkpoint"]["saved_bytes"] == 800000
for r in range(4): assert len(list(csv.DictReader(open(f"m/rank-{r}.steps.csv")))) == 12
P
    [ "$(grep -c '^AU' out)" = 1 ] || fail "$kind: more than one rank speaks"
    rc=0
    start $kind 2 "$MILLRACE" -q run w.yaml --data none >out 2>err || rc=$?
    [ $rc != 0 ] && [ "$(grep -c "there is no data set" err)" = 1 ] || fail "$kind: missing data: $rc $(cat err)"
    # searches start jobs of their own and are refused; what is only computed is told once, for as many ranks as were started
    rc=0; start $kind 2 "$MILLRACE" -q run w.yaml --sweep reader.read_threads=1,2 >out 2>err || rc=$?
    [ $rc != 0 ] && grep -q -- "--sweep cannot be used under mpirun" err && [ ! -s out ] || fail "$kind: sweep: $rc $(cat out err)"
    start $kind 3 "$MILLRACE" -q run w.yaml --dry-run >out 2>err || fail "$kind: $(cat err)"
    [ "$(grep -c "^  ranks  *3$" out)" = 1 ] || fail "$kind: dry run: $(cat out)"
    # what there is to note, one rank notes
    start $kind 3 "$MILLRACE" run w.yaml --out s --no-ceiling >out 2>err || fail "$kind: $(cat err)"
    [ "$(grep -c "checkpoint.type decides" err)" = 1 ] || fail "$kind: notes of every rank: $(cat err)"
    # as under srun: Slurm's own variable and the process manager's, nothing of this mpirun
    start $kind 3 env -u OMPI_COMM_WORLD_SIZE SLURM_STEP_NUM_TASKS=3 "$MILLRACE" -q run w.yaml workflow.checkpoint=false --out s --no-ceiling >out 2>err ||
        fail "$kind as under srun: $(cat err)"
    grep -q '"ranks": 3' s/summary.json || fail "$kind as under srun: $(grep '"ranks"' s/summary.json)"
done
# a launcher that pins a rank to fewer CPUs than it has threads withdraws the verdict, and the way out is named
if [[ " $launchers " == *" openmpi "* ]] && [ "$(nproc)" -gt 1 ]; then
    bound() { start openmpi 1 env "$MILLRACE" -q run w.yaml --cache warm --threads 3 --no-ceiling --out bound >out 2>err || fail "bound: $(cat err)"; }
    OMPI_MCA_hwloc_base_binding_policy=core bound
    grep -q "no verdict, because 3 threads are pinned to 1 of $(nproc) CPUs .*--bind-to none" out || fail "bound: $(cat out)"
    OMPI_MCA_hwloc_base_binding_policy=none bound
    ! grep -q pinned out || fail "not bound: $(cat out)"
fi
# words that are wrong for all ranks are told once
for kind in $launchers; do
    rc=0; start "$kind" 3 "$MILLRACE" run no-such-workload >out 2>err || rc=$?
    [ $rc != 0 ] && [ "$(grep -c "there is no workload" err)" = 1 ] || fail "$kind, usage: $rc $(cat err)"
done

echo "run under mpirun:$launchers: ok"
