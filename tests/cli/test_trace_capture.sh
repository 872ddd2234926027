#!/usr/bin/env bash
# Captured = truth: the number of calls of programs that fork, use threads, are killed, close everything; the same with the
# library alone; every kind of call of tests/tracer/call_probe.c, built plainly, fortified and with 64-bit names; and every other spelling of a
# call that the library exports.
# test-label: once (long under sanitizers: there only in make test-full)
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
[ -z "$(find "$dir" -mindepth 1 -maxdepth 1 -name '*spool*')" ] || { echo "FAIL: spool left behind"; exit 1; }

# Call by call, as the program wrote them down, with signals in between.
$cc -O1 -D_GNU_SOURCE -pthread -o "$dir/repeat" "$src/repeat_ways.c"
mkdir "$dir/files"
same() { # name, trace
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$2"
    python3 "$src/csv_same.py" "$dir/truth" "$dir/t.csv" "$(cat "$dir/signals")" || { echo "FAIL: $1: see above"; exit 1; }
}
"$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/repeat" "$dir/files" >"$dir/truth" 2>"$dir/signals"
same "calls one by one" "$dir/t.mrt"
rm -rf "$dir/alone"
LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/alone "$dir/repeat" "$dir/files" >"$dir/truth" 2>"$dir/signals"
"$MILLRACE" recover "$dir/alone" >/dev/null
same "calls one by one, the library alone" "$dir/alone"

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

# Every other spelling, as often as it was called; what the probe sees does not change.
$cc -O1 -w -D_GNU_SOURCE -o "$dir/spell" "$src/call_spellings.c" -ldl
mkdir "$dir/w1" "$dir/w2"
"$dir/spell" "$dir/w1" >"$dir/names1" || { echo "FAIL: the probe of spellings fails without a tracer"; exit 1; }
"$MILLRACE" trace --quiet -o "$dir/p.mrt" -- "$dir/spell" "$dir/w2" >"$dir/names" || { echo "FAIL: the probe of spellings fails under the tracer"; exit 1; }
cmp "$dir/names1" "$dir/names" || { echo "FAIL: the probe of spellings goes another way under the tracer"; exit 1; }
"$MILLRACE" export -f csv -o "$dir/p.csv" "$dir/p.mrt"
python3 "$src/csv_count.py" "$dir/p.csv" >"$dir/seen"
sort "$dir/names" | uniq -c | while read -r want name; do
    have=$(awk -v n="$name" '$1 == n {print $2}' "$dir/seen")
    [ "${have:-0}" -ge "$want" ] || { echo "FAIL: $name: want $want, have ${have:-0}"; exit 1; }
done

# No wrapper without a probe: every function the library exports is named in one of the test programs.
if command -v nm >/dev/null; then
    cat "$src"/*.c | grep -oE '[A-Za-z_][A-Za-z_0-9]*' | sort -u >"$dir/words"
    nm -D --defined-only "$lib" | awk '$2 == "T" || $2 == "W" || $2 == "i" {print $3}' | grep -vE '^(P?MPI_|mpi_|H5|io_uring|__io_uring|millrace_)' | sort -u >"$dir/exported"
    bare=$(comm -23 "$dir/exported" "$dir/words" | tr '\n' ' ')
    [ -z "$bare" ] || { echo "FAIL: exported, but no test calls: $bare"; exit 1; }
fi

# Formatted input: the bytes it took add up to the file.
seq 1 20000 >"$dir/numbers"
printf '#include <stdio.h>\nint main(int c, char **v) { FILE *f = fopen(v[c - 1], "r"); int n; while (fscanf(f, "%%d", &n) == 1) {} return fclose(f); }\n' >"$dir/scan.c"
$cc -o "$dir/scan" "$dir/scan.c"
"$MILLRACE" trace --quiet -o "$dir/p.mrt" -- "$dir/scan" "$dir/numbers"
"$MILLRACE" report --json "$dir/p.mrt" | python3 -c '
import json, sys
f = [f for f in json.load(sys.stdin)["functions"] if f["name"] == "fscanf"][0]
assert f["count"] == 20001 and f["bytes"] == int(sys.argv[1]), f' "$(stat -c %s "$dir/numbers")" || { echo "FAIL: bytes of fscanf"; exit 1; }

# Exit status and output are the program's own.
set +e
"$MILLRACE" trace --quiet -o "$dir/t.mrt" -- sh -c 'echo out; exit 7' >"$dir/out"
[ $? = 7 ] && [ "$(cat "$dir/out")" = out ] || { echo "FAIL: exit status or output changed"; exit 1; }
"$MILLRACE" trace --quiet -o "$dir/t.mrt" -- sh -c 'kill -9 $$'
[ $? = 137 ] || { echo "FAIL: status of a killed program"; exit 1; }
echo "captured everything"
