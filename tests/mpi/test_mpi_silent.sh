#!/usr/bin/env bash
# A job under mpirun with a rank whose process was stopped: the ranks beside it name it and end the job after --rank-timeout.
# test-label: once
set -eu
export MILLRACE_RUN_OVERWRITE=true
. "$(dirname "$0")/../cli/waiting.sh"
fail() { echo "FAIL: $*" >&2; exit 1; }
. "$(dirname "$0")/launchers.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 60, record_length_bytes: 20000, data_folder: d}
reader: {batch_size: 2, read_threads: 1}
train: {epochs: 100000, computation_time: 0.002}
Y
"$MILLRACE" -q gen d --workload w.yaml >/dev/null 2>&1
pid_of() { # rank
    for p in $(pgrep -f "run w.yaml .*--out o\$"); do
        [ "$(readlink /proc/$p/exe)" = "$(readlink -f "$MILLRACE")" ] && [ "$(readlink /proc/$p/cwd)" = "$(pwd -P)" ] || continue
        tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -qE "^(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1$" && echo "$p" && return
    done
}
stepped() { has_lines o/rank-0.steps.csv 6 && has_lines o/rank-1.steps.csv 6; }
[ -n "${MR_TEST_FULL:-}" ] || launchers=$(set -- $launchers; echo "$1") # each takes ten seconds
for kind in $launchers; do
    rm -rf o
    start $kind 2 "$MILLRACE" -q run w.yaml --rank-timeout 2s --out o >out 2>err & job=$!
    soon eval "stepped || gone $job"; stepped || fail "$kind: no steps: $(cat err)"
    who=$(pid_of 1)
    begin=$SECONDS
    kill -STOP "$who"
    soon grep -q "rank 1 (process $who) has been silent for" err || fail "$kind: not named: $(cat err)"
    soon grep -q "rank 1 failed: its process ($who) was silent" err || fail "$kind: no cause: $(cat err)"
    soon gone $job || fail "$kind: did not end"
    [ $((SECONDS - begin)) -lt "$(limit 20)" ] || fail "$kind: ended after $((SECONDS - begin)) s"
    kill -9 "$who" 2>/dev/null || true
done
echo "mpi, silent ranks: ok"
