#!/usr/bin/env bash
# The MPI modules under a real mpirun at 1, 2, 3 and 7 ranks, with every implementation found: collectives, agreement, and a
# rank that reports a failure.
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
. "$(dirname "$0")/launchers.sh"
program=$MR_BINARY_DIR/tests/test_comm_ranks
[ -x "$program" ] || { echo "SKIP: the unit tests are not built"; exit 77; }
# shellcheck disable=SC2154 # launchers: launchers.sh
for kind in $launchers; do
    for n in 1 2 3 7; do
        out=$(start "$kind" $n "$program" --under-mpirun all 2>&1) || { echo "$out"; echo "FAILED: $n ranks of $kind"; exit 1; }
        grep -q "mpi: $n ranks" <<<"$out" || { echo "$out"; echo "FAILED: $n ranks of $kind did not meet over MPI"; exit 1; }
    done
    # A rank that gives up: the others hear of it while they wait. How mpirun then ends the job is its own affair.
    out=$(start "$kind" 3 "$program" --under-mpirun fail 2>&1) || true
    grep -q "mpi: 3 ranks" <<<"$out" || { echo "$out"; echo "FAILED: the failure was not heard ($kind)"; exit 1; }
    grep -q "line [0-9]*:" <<<"$out" && { echo "$out"; echo "FAILED: a check failed ($kind)"; exit 1; }
done
echo "mpi:$launchers: 1, 2, 3 and 7 ranks passed"
