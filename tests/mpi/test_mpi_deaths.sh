#!/usr/bin/env bash
# A launcher that does not end a job whose rank was killed (srun --mpi=pmi2 is one): the other ranks see it themselves, end within
# 10 s, one of them names the dead rank and writes the summary, also when that was rank 0.
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
dataset: {format: synthetic, num_files_train: 60, record_length_bytes: 20000}
reader: {batch_size: 2}
train: {epochs: 1000000, computation_time: 0.002}
Y
# What the launcher watches lives on when its rank has ended.
cat >deaf.sh <<'S'
#!/bin/bash
rank=${PMI_RANK:-$OMPI_COMM_WORLD_RANK}
"$@" & echo $! >pid.$rank
rc=0; wait $! || rc=$?
echo $rc >rc.new.$rank; mv rc.new.$rank rc.$rank
until [ -e over ]; do sleep 0.05; done
S
chmod +x deaf.sh
stepped() { has_lines o/rank-0.steps.csv 6 && has_lines o/rank-1.steps.csv 6 && has_lines o/rank-2.steps.csv 6; }
ended() { [ -e rc.0 ] && [ -e rc.1 ] && [ -e rc.2 ]; }
lose() { # launcher, rank
    rm -rf o rc.* pid.* over
    start "$1" 3 ./deaf.sh "$MILLRACE" -q run w.yaml --no-ceiling --out o >out 2>err & job=$!
    soon stepped || fail "$1: no steps: $(cat err)"
    local begin=$SECONDS r
    kill -9 "$(cat "pid.$2")"
    soon ended || fail "$1: ranks go on without rank $2: $(cat err)"
    [ $((SECONDS - begin)) -lt "$(limit 10)" ] || fail "$1, rank $2: $((SECONDS - begin)) s"
    touch over
    wait $job || true
    for r in 0 1 2; do
        [ "$r" = "$2" ] || [ "$(cat rc.$r)" = 5 ] || fail "$1, rank $2 killed: rank $r ends with $(cat rc.$r)"
    done
    [ "$(grep -c "^millrace: rank $2 failed: its process .* died" err)" = 1 ] || fail "$1, rank $2: $(cat err)"
    python3 - "$2" <<'P' || fail "$1, rank $2: results"
import csv, json, sys
s = json.load(open("o/summary.json"))
n = sum(len(list(csv.DictReader(open(f"o/rank-{r}.steps.csv")))) for r in range(3))
m = s["millrace"]
assert s["complete"] is False and f"rank {sys.argv[1]} failed" in m["incomplete_reason"] and m["steps"] == n, (m, n)
P
}
victims=0
# shellcheck disable=SC2154 # launchers: launchers.sh
for kind in $launchers; do
    for victim in ${MR_TEST_FULL:+1} $victims; do lose "$kind" "$victim"; done
    [ -n "${MR_TEST_FULL:-}" ] || victims=2
done
echo "deaths that no launcher notices:$launchers: ok"
