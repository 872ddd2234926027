#!/usr/bin/env bash
# Every parser gets 200 damaged inputs that are new in each run (tests/fuzz/mutate.py): it refuses them or reads them, and
# neither crashes nor hangs. The seed is printed; MR_DAMAGE_SEED=N repeats a run, MR_DAMAGE_INPUTS=N makes it longer.
# test-label: full
set -eu
. "$MR_SOURCE_DIR/tests/cli/expect.sh"
seed=${MR_DAMAGE_SEED:-$(date +%s)} inputs=${MR_DAMAGE_INPUTS:-200} targets=0
echo "seed $seed"
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}allocator_may_return_null=1
for target in "$MR_BINARY_DIR"/tests/fuzz_*; do
    [ -f "$target" ] && [ -x "$target" ] || continue
    parser=$(basename "$target") parser=${parser#fuzz_}
    python3 "$MR_SOURCE_DIR/tests/fuzz/mutate.py" "$MR_SOURCE_DIR/tests/fuzz/corpus/$parser" "$parser" "$inputs" "$seed"
    timeout -k 1 300 "$target" "$parser" >out 2>&1 || { tail -20 out; fail "$parser, seed $seed"; }
    rm -r "$parser"
    targets=$((targets + 1))
done
[ "$targets" -ge 25 ] || fail "only $targets fuzz targets are built"
