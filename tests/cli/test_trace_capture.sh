#!/usr/bin/env bash
# Captured = truth: the number of calls of programs that fork, use threads, are killed, close everything; the same with the
# library alone; and every kind of call of tests/tracer/call_probe.c, built plainly, fortified and with 64-bit names.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
lib=${MILLRACE%/bin/millrace}/lib/libmillrace_trace.so
[ -e "$lib" ] || { echo "SKIP: no libmillrace_trace.so beside the program"; exit 77; }
cc=${CC:-cc}
src=$MR_SOURCE_DIR/tests/tracer
$cc -O1 -D_GNU_SOURCE -pthread -o "$dir/workload" "$src/io_workload.c"
echo content >"$dir/data"

check() { # name, factor: the trace must hold factor x 50 opens, reads, closes of the file
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$2"
    local got
    got=$(python3 "$src/csv_count.py" "$dir/t.csv" --file "$dir/data" | tr '\n' ' ')
    for call in open read close; do
        case "$got" in *"$call $(($3 * 50)) "*) ;; *) echo "FAIL $1: want $(($3 * 50)) of $call, have: $got"; exit 1 ;; esac
    done
}

for spec in single:1 threads:2 forks:8 burst:200 exits:6 closeall:1; do
    mode=${spec%:*}
    factor=${spec#*:}
    "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/workload" "$mode" "$dir/data" 50
    [ "$(stat -c %a "$dir/t.mrt")" = 600 ] || { echo "FAIL: mode of the trace is not 0600"; exit 1; }
    check "$mode" "$dir/t.mrt" "$factor"
    rm -rf "$dir/alone"
    LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/alone "$dir/workload" "$mode" "$dir/data" 50
    "$MILLRACE" recover "$dir/alone" >/dev/null
    check "$mode alone" "$dir/alone" "$factor"
done
[ -z "$(ls "$dir" | grep spool || true)" ] || { echo "FAIL: spool left behind"; exit 1; }

for flags in "" "-D_FORTIFY_SOURCE=2" "-D_FILE_OFFSET_BITS=64"; do
    $cc -O2 -w -D_GNU_SOURCE $flags -o "$dir/probe" "$src/call_probe.c"
    rm -rf "$dir/work"
    mkdir "$dir/work"
    "$MILLRACE" trace --quiet -o "$dir/p.mrt" -- "$dir/probe" "$dir/work" >"$dir/names"
    "$MILLRACE" export -f csv -o "$dir/p.csv" "$dir/p.mrt"
    python3 "$src/csv_count.py" "$dir/p.csv" | cut -d' ' -f1 | sort >"$dir/seen"
    sort -u "$dir/names" >"$dir/wanted"
    missing=$(comm -23 "$dir/wanted" "$dir/seen")
    [ -z "$missing" ] || { echo "FAIL: not captured ($flags):" $missing; exit 1; }
done

# Exit status and output are the program's own.
set +e
"$MILLRACE" trace --quiet -o "$dir/t.mrt" -- sh -c 'echo out; exit 7' >"$dir/out"
[ $? = 7 ] && [ "$(cat "$dir/out")" = out ] || { echo "FAIL: exit status or output changed"; exit 1; }
"$MILLRACE" trace --quiet -o "$dir/t.mrt" -- sh -c 'kill -9 $$'
[ $? = 137 ] || { echo "FAIL: status of a killed program"; exit 1; }
echo "captured everything"
