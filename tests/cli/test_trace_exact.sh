#!/usr/bin/env bash
# Events say exactly what happened (tests/tracer/exact_ways.c): pointers that nobody could read, paths that say less than the file, bytes of streams, programs that are searched for,
# control blocks that are used again, rings of io_uring in the program's own memory and operations without a descriptor. The program's results are the same without the tracer.
# test-label: once (the tracer is built without sanitizers: there only in make test-full)
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
dir=$(cd "$dir" && pwd -P)
lib=${MILLRACE%/bin/millrace}/lib/libmillrace_trace.so
[ -e "$lib" ] || { echo "SKIP: no libmillrace_trace.so beside the program"; exit 77; }
src=$MR_SOURCE_DIR/tests/tracer
cc=${CC:-cc}
fail() { echo "FAIL $*"; exit 1; }
$cc -O1 -w -pthread -DWITH_LIBURING -o "$dir/exact" "$src/exact_ways.c" -luring -lrt 2>/dev/null || $cc -O1 -w -pthread -o "$dir/exact" "$src/exact_ways.c" -lrt

groups="pointers paths programs descriptors files range directories mappings streams aio"
grep -q io_uring_peek_batch_cqe "$lib" && groups="$groups memory uring" # the tracer may have been built without
for group in $groups; do
    mkdir "$dir/bare" "$dir/work"
    status=0
    (cd "$dir/bare" && "$dir/exact" $group >"$dir/plain") || status=$?
    [ $status = 77 ] && rmdir "$dir/bare" "$dir/work" && continue
    [ $status = 0 ] || fail "$group without the tracer: $status"
    (cd "$dir/work" && timeout 60 "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/exact" $group >"$dir/out") || fail "$group ends with $?"
    cmp -s "$dir/plain" "$dir/out" || fail "$group: results differ: $(diff "$dir/plain" "$dir/out")"
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$dir/t.mrt"
    python3 "$src/csv_expect.py" "$dir/t.csv" "$dir/out" "$dir/work" || fail "$group"
    rm -r "$dir/bare" "$dir/work"
done
echo ok
