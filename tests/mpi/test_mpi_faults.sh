#!/usr/bin/env bash
# A job under mpirun that loses a rank, meets a read error or a full disk, or is interrupted: it ends within 10 s, one message
# names the rank, and every rank's series is there, marked incomplete. With every MPI implementation found.
# test-label: once (long under sanitizers: there only in make test-full)
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
. "$(dirname "$0")/../cli/waiting.sh"
fail() { echo "FAIL: $*" >&2; exit 1; }
. "$(dirname "$0")/launchers.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 60, record_length_bytes: 20000, data_folder: d}
reader: {batch_size: 2, read_threads: 2, sample_shuffle: seed}
train: {epochs: 100000, computation_time: 0.002}
Y
"$MILLRACE" -q gen d --workload w.yaml >/dev/null 2>&1
pid_of() { # folder, rank; other tests may run the same command elsewhere
    for p in $(pgrep -f "run w.yaml .*--out $1\$"); do
        [ "$(readlink /proc/$p/exe)" = "$(readlink -f "$MILLRACE")" ] && [ "$(readlink /proc/$p/cwd)" = "$(pwd -P)" ] || continue
        tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -qE "^(OMPI_COMM_WORLD_RANK|PMI_RANK)=$2$" && echo "$p" && return
    done
}
stepped() { has_lines "$1/rank-0.steps.csv" 6 && has_lines "$1/rank-1.steps.csv" 6 && has_lines "$1/rank-2.steps.csv" 6; }
wait_for_steps() { # folder: every rank has written some
    soon stepped "$1" || fail "no steps: $(cat err)"
}
stalled() { # every rank is where it will stay
    grep -q "no step has ended for" err && grep -q "rank 0: waiting for the other ranks" err && grep -q "rank 1: waiting for the other ranks" err &&
        grep -q "rank 2: waiting for a batch" err
}
series() { # folder, least steps of each rank, and whether the summary must count them
    python3 - "$@" <<'P' || fail "results in $1"
import csv, json, sys
folder, least, counted = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "counted"
s = json.load(open(folder + "/summary.json"))
assert s["complete"] is False and s["millrace"]["incomplete_reason"], s["millrace"]
n = []
for r in range(3):
    text = open(f"{folder}/rank-{r}.steps.csv").read()
    rows = list(csv.DictReader(text[:text.rindex("\n") + 1].splitlines())) # a line may have been cut
    assert all(int(x["end_ns"]) >= int(x["start_ns"]) for x in rows)
    n.append(len(rows))
assert min(n) >= least, n
if counted: assert s["millrace"]["steps"] == sum(n), (s["millrace"]["steps"], n)
P
}
# shellcheck disable=SC2154 # launchers: launchers.sh
for kind in $launchers; do
    # kill -9 of any rank
    for victim in 0 1 2; do
        rm -rf o
        start $kind 3 "$MILLRACE" -q run w.yaml --out o >out 2>err & job=$!
        wait_for_steps o
        who=$(pid_of o $victim)
        [ -n "$who" ] || fail "$kind: rank $victim not found"
        begin=$SECONDS
        kill -9 "$who"
        rc=0; wait $job || rc=$?
        [ $rc != 0 ] && [ $((SECONDS - begin)) -lt "$(limit 10)" ] || fail "$kind, killing rank $victim: exit $rc after $((SECONDS - begin)) s"
        grep -qiE "signal 9|killed|BAD TERMINATION" out err || fail "$kind, killing rank $victim: no word of it: $(cat err)"
        series o 4 any
    done
    # a rank that waits for storage: everybody's state is told
    rm -rf o
    start $kind 3 "$MILLRACE" -q run w.yaml --stall-after 500ms reader.sample_shuffle=off reader.prefetch_size=0 \
        --store "fault(op=read,path=*img_05*,every=1,slow=300s):posix" --out o >out 2>err & job=$!
    soon stalled || fail "$kind, stalled: $(cat err)"
    kill -9 "$(pid_of o 2)"
    wait $job || true
    # EIO in the middle, on one rank
    rm -rf o; rc=0
    start $kind 3 "$MILLRACE" -q run w.yaml --store "fault(op=read,path=*img_07*,nth=9,error=EIO):posix" --out o >out 2>err || rc=$?
    [ $rc != 0 ] && [ "$(grep -c '^millrace: .*img_07' err)" = 1 ] && grep -q "rank [0-2]" err || fail "$kind, EIO: $rc $(cat err)"
    series o 1 counted
    # full disk at a checkpoint
    rm -rf o c; rc=0
    start $kind 3 "$MILLRACE" -q run w.yaml workflow.checkpoint=true checkpoint.steps_between_checkpoints=5 model.model_size_bytes=1MB \
        --checkpoint-folder "$tmp/c" --checkpoint-store "fault(op=write,nth=2,error=ENOSPC):posix" --out o >out 2>err || rc=$?
    [ $rc != 0 ] && [ "$(grep -ci "no space left" err)" = 1 ] || fail "$kind, full disk: $rc $(cat err)"
    series o 1 counted
    # one rank is told to stop, before the first step or later: all stop
    for steps in 0 1; do
        rm -rf o
        start $kind 3 "$MILLRACE" -q run w.yaml --out o >out 2>err & job=$!
        if [ $steps = 1 ]; then
            wait_for_steps o
        else
            soon test -e o/rank-0.steps.csv || fail "$kind: no series: $(cat err)"
        fi
        begin=$SECONDS
        who=$(pid_of o 1)
        [ -n "$who" ] && kill -TERM "$who" || fail "$kind: rank 1 not found"
        rc=0; wait $job || rc=$?
        [ $rc != 0 ] && [ $((SECONDS - begin)) -lt "$(limit 10)" ] || fail "$kind, SIGTERM: exit $rc after $((SECONDS - begin)) s"
        if [ $steps = 1 ]; then series o 4 counted; fi
    done
done
echo "faults under mpirun:$launchers: ok"
