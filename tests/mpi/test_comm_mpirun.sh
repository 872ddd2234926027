#!/usr/bin/env bash
# The MPI module under a real mpirun at 1, 2, 3 and 7 ranks: collectives, agreement, and a rank that reports a failure.
set -eu
skip() { echo "SKIP: $*"; exit 77; }
command -v mpirun >/dev/null || skip "there is no mpirun"
program=$MR_BINARY_DIR/tests/test_comm_ranks
[ -x "$program" ] || skip "the unit tests are not built"
[ -f "$MR_BINARY_DIR/lib/millrace_mpi.so" ] || skip "this build has no MPI module"

flags=
if mpirun --version 2>/dev/null | grep -q "Open MPI"; then
    flags="--allow-run-as-root --oversubscribe --mca btl_vader_single_copy_mechanism none"
fi
export ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=report_bugs=0 # MPI libraries leak at exit
for n in 1 2 3 7; do
    # shellcheck disable=SC2086
    out=$(timeout 120 mpirun $flags -n $n "$program" --under-mpirun all 2>&1) || { echo "$out"; echo "FAILED: $n ranks"; exit 1; }
    grep -q "mpi: $n ranks" <<<"$out" || { echo "$out"; echo "FAILED: $n ranks did not meet over MPI"; exit 1; }
done
# A rank that gives up: the others hear of it while they wait. How mpirun then ends the job is its own affair.
# shellcheck disable=SC2086
out=$(timeout 60 mpirun $flags -n 3 "$program" --under-mpirun fail 2>&1) || true
grep -q "mpi: 3 ranks" <<<"$out" || { echo "$out"; echo "FAILED: the failure was not heard"; exit 1; }
grep -q "line [0-9]*:" <<<"$out" && { echo "$out"; echo "FAILED: a check failed"; exit 1; }
echo "mpi: 1, 2, 3 and 7 ranks passed"
