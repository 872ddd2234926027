#!/usr/bin/env bash
# --strays: system calls made by instruction are captured, as many as strace sees, in threads, forked children and after exec; programs that
# block signals, have their own SIGSYS handler, run on tiny stacks or are interrupted behave as without it; calls through the C library are
# not recorded twice; a static program runs unchanged and is reported as not seen. MR_TEST_FULL=1 also tries a Go program.
# test-label: once (the tracer is built without sanitizers: there only in make test-full)
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
lib=${MILLRACE%/bin/millrace}/lib/libmillrace_trace.so
[ -e "$lib" ] || { echo "SKIP: no libmillrace_trace.so beside the program"; exit 77; }
[ "$(uname -m)" = x86_64 ] || { echo "SKIP: stray calls are recorded on x86-64 only"; exit 77; }
fail() { echo "FAIL: $*"; exit 1; }
cc=${CC:-cc}
src=$MR_SOURCE_DIR/tests/tracer
$cc -O2 -D_GNU_SOURCE -pthread -o "$dir/raw" "$src/raw_calls.c"
echo "some content of a file" >"$dir/data"
counts() { # of the layer $2 on the file, "name count" lines
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$1"
    grep ",$2," "$dir/t.csv" >"$dir/layer.csv" || true
    (head -n 1 "$dir/t.csv"; cat "$dir/layer.csv") >"$dir/l.csv"
    python3 "$src/csv_count.py" "$dir/l.csv" --file "$dir/data" | grep -v '^pids' || true
}
"$MILLRACE" trace --strays -o "$dir/t.mrt" -- "$dir/raw" single "$dir/data" 1 2>"$dir/err"
if grep -q 'not recorded' "$dir/err"; then echo "SKIP: $(cat "$dir/err")"; exit 77; fi

truth() { # calls on the file by strace, "name count" lines
    strace -f -qq -y -e trace=openat,read,pread64,write,close -o "$dir/s.txt" "$@"
    # A call that another process interrupts is two lines: count where it begins.
    grep -F "$dir/data" "$dir/s.txt" | grep -v 'resumed>' | sed -E 's/^[0-9]+ +([a-z0-9]+)\(.*/\1/' | sort | uniq -c | awk '{print $2, $1}'
}
for spec in single:1 threads:4 forks:5 exec:1 blocked:3 own:2 masks:9; do
    mode=${spec%:*}
    n=$((${spec#*:} * 30))
    want=$(printf 'close %d\nopenat %d\npread64 %d\nread %d\nwrite %d\n' $n $n $n $n $n)
    "$MILLRACE" trace --quiet --strays -o "$dir/t.mrt" -- "$dir/raw" "$mode" "$dir/data" 30 || fail "$mode: status $?"
    have=$(counts "$dir/t.mrt" SYSCALL)
    [ "$have" = "$want" ] || fail "$mode: want $want, have $have"
    [ $mode != exec ] || "$MILLRACE" export -f csv -o - "$dir/t.mrt" | grep -q ",SYSCALL,execve,$dir/raw,,0," || fail "exec by instruction has no name"
    case $mode in threads | forks | exec) ;; *) continue ;; esac
    rm -rf "$dir/alone"
    LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/alone MILLRACE_TRACE_STRAYS=1 "$dir/raw" "$mode" "$dir/data" 30 || fail "$mode alone: status $?"
    "$MILLRACE" recover "$dir/alone" >/dev/null
    have=$(counts "$dir/alone" SYSCALL)
    [ "$have" = "$want" ] || fail "$mode alone: want $want, have $have"
done
if command -v strace >/dev/null && strace -qq true 2>/dev/null; then
    for mode in single blocked; do
        "$MILLRACE" trace --quiet --strays -o "$dir/t.mrt" -- "$dir/raw" $mode "$dir/data" 7
        [ "$(counts "$dir/t.mrt" SYSCALL)" = "$(truth "$dir/raw" $mode "$dir/data" 7)" ] || fail "$mode: strace saw $(truth "$dir/raw" $mode "$dir/data" 7)"
    done
    # A kernel without Syscall User Dispatch: the run goes on without, and this is said. (The leak sanitizer of a test build does not work under strace.)
    old() { ASAN_OPTIONS=detect_leaks=0 strace -f -qq -e trace=prctl -e inject=prctl:error=EINVAL -o /dev/null "$@" 2>"$dir/err"; }
    old "$MILLRACE" trace --quiet --strays -o "$dir/t.mrt" -- "$dir/raw" single "$dir/data" 7 || fail "an older kernel: status $?"
    grep -q 'not recorded: this needs Syscall User Dispatch' "$dir/err" || fail "an older kernel is not told: $(cat "$dir/err")"
    old -E "LD_PRELOAD=$lib" -E MILLRACE_TRACE_STRAYS=1 -E "MILLRACE_TRACE_OUT=$dir/old" "$dir/raw" single "$dir/data" 7 || fail "an older kernel, alone: status $?"
    grep -q 'not recorded: this kernel has no Syscall User Dispatch' "$dir/err" || fail "an older kernel, alone, is not told: $(cat "$dir/err")"
else
    echo "note: no strace here; only the known counts were compared"
fi
# Linux's asynchronous I/O, by library, by syscall(2) and by instruction: each operation once.
$cc -O1 -D_GNU_SOURCE -o "$dir/kaio" "$src/kernel_aio.c" -ldl
head -c 8192 /dev/zero >"$dir/data.aio"
for way in libaio syscall raw; do
    "$dir/kaio" $way "$dir/data.aio" || { echo "note: asynchronous I/O by $way is not to be had here"; continue; }
    "$MILLRACE" trace --quiet --strays -o "$dir/t.mrt" -- "$dir/kaio" $way "$dir/data.aio" || fail "asynchronous I/O by $way: status $?"
    "$MILLRACE" report --json "$dir/t.mrt" | python3 -c '
import json, sys
f = {x["name"]: x for x in json.load(sys.stdin)["functions"]}
assert f["io_read"]["count"] == 32 and f["io_read"]["bytes"] == 28 * 512, f["io_read"]
assert f["io_write"]["count"] == 8 and f["io_write"]["bytes"] == 800, f["io_write"]
assert f["io_submit"]["count"] == 4, f["io_submit"]' || fail "asynchronous I/O by $way: operations"
done
# io_uring without liburing.
$cc -O1 -D_GNU_SOURCE -o "$dir/ring" "$src/bare_ring.c"
for way in syscall raw; do
    "$dir/ring" $way "$dir/data.aio" || { echo "note: io_uring is not to be had here"; break; }
    "$MILLRACE" trace --quiet --strays -o "$dir/t.mrt" -- "$dir/ring" $way "$dir/data.aio" || fail "io_uring by $way: status $?"
    "$MILLRACE" report --json "$dir/t.mrt" | python3 -c '
import json, sys
f = {x["name"]: x for x in json.load(sys.stdin)["functions"]}
if "uring_read" not in f and sys.argv[1] == "syscall": sys.exit(0 if f["io_uring_enter"]["count"] == 12 else 1) # built without liburing
assert f["uring_read"]["count"] == 40 and f["uring_read"]["bytes"] == 40 * 512, f["uring_read"]
assert f["uring_write"]["count"] == 10 and f["uring_write"]["bytes"] == 1000, f["uring_write"]' $way || fail "io_uring by $way: operations"
done
for mode in interrupted small registers thread; do
    "$MILLRACE" trace --quiet --strays -o "$dir/t.mrt" -- "$dir/raw" $mode "$dir/data" 20 || fail "$mode: status $?"
done

# Not twice: a program that uses the C library has the same POSIX events, and none of the layer SYSCALL on its files.
"$MILLRACE" trace --quiet -o "$dir/t.mrt" -- cat "$dir/data" >/dev/null
plain=$(counts "$dir/t.mrt" POSIX)
"$MILLRACE" trace --quiet --strays -o "$dir/t.mrt" -- cat "$dir/data" >/dev/null
[ -n "$plain" ] && [ "$(counts "$dir/t.mrt" POSIX)" = "$plain" ] || fail "calls through the C library changed"
[ -z "$(counts "$dir/t.mrt" SYSCALL)" ] || fail "calls through the C library were recorded as strays"

# The default action of SIGSYS is the program's.
set +e
"$MILLRACE" trace --quiet --strays -o "$dir/t.mrt" -- bash -c 'kill -SYS $$' 2>/dev/null
[ $? = 159 ] || fail "SIGSYS no longer ends a program"
set -e

# The report marks them, and exports carry them.
"$MILLRACE" trace --quiet --strays -o "$dir/t.mrt" -- "$dir/raw" single "$dir/data" 30
"$MILLRACE" report --tables "$dir/t.mrt" | grep -q 'SYSCALL.pread64 *30 ' || fail "the report does not show stray calls"
"$MILLRACE" export -f pfw -o "$dir/t.pfw.gz" "$dir/t.mrt"
[ "$(counts "$dir/t.pfw.gz" SYSCALL)" = "$(counts "$dir/t.mrt" SYSCALL)" ] || fail "the .pfw export lost the layer"

# Static programs cannot be seen, and that is said.
printf '#include <unistd.h>\nint main(void) { return write(1, "fine\\n", 5) == 5 ? 4 : 1; }\n' >"$dir/static.c"
if $cc -static -o "$dir/static" "$dir/static.c" 2>/dev/null; then
    set +e
    "$MILLRACE" trace --strays -o "$dir/t.mrt" -- "$dir/static" >"$dir/out" 2>"$dir/err"
    [ $? = 4 ] && [ "$(cat "$dir/out")" = fine ] || fail "a static program changed"
    grep -q 'linked statically' "$dir/err" || fail "a static program was not reported as unseen: $(cat "$dir/err")"
    sed 's/5 ? 4 : 1/5 ? 127 : 1/' "$dir/static.c" >"$dir/missing.c" && $cc -static -o "$dir/missing" "$dir/missing.c"
    "$MILLRACE" trace -o "$dir/t.mrt" -- "$dir/missing" >"$dir/out" 2>"$dir/err"
    [ $? = 127 ] && grep -q 'linked statically' "$dir/err" && ! grep -q 'cannot run' "$dir/err" || fail "exit 127 was taken for a missing program: $(cat "$dir/err")"
    "$MILLRACE" trace --strays -o "$dir/t.mrt" -- bash -c "'$dir/static'; '$dir/static'; true" >/dev/null 2>"$dir/err" || fail "a static child changed the program"
    grep -q "linked statically.* were started 2 times: '$dir/static'" "$dir/err" || fail "static children are not said: $(cat "$dir/err")"
    set -e
else
    echo "note: no static C library here; static programs were not tried"
fi

# Valgrind's own system calls are not the program's.
if command -v valgrind >/dev/null && valgrind -q cat "$dir/data" >/dev/null 2>&1; then
    "$MILLRACE" trace --strays -o "$dir/t.mrt" -- valgrind -q cat "$dir/data" >"$dir/out" 2>"$dir/err" || fail "Valgrind: status $?"
    cmp -s "$dir/out" "$dir/data" || fail "Valgrind: output"
    grep -q 'inside Valgrind' "$dir/err" || fail "Valgrind is not told of: $(cat "$dir/err")"
    counts "$dir/t.mrt" POSIX | grep -q '^open 1$' || fail "Valgrind: the program inside was not traced"
fi

if [ -n "${MR_TEST_FULL:-}" ] && command -v go >/dev/null; then
    (cd "$dir" && cp "$src/go_files.go" . && CGO_ENABLED=1 go build -o "$dir/gofiles" go_files.go)
    for _ in 1 2 3; do
        "$MILLRACE" trace --quiet --strays -o "$dir/t.mrt" -- "$dir/gofiles" "$dir/data" 100 || fail "Go: status $?"
        counts "$dir/t.mrt" SYSCALL | grep -q '^openat 800$' || fail "Go: $(counts "$dir/t.mrt" SYSCALL)"
    done
else
    echo "note: the Go program was not tried (MR_TEST_FULL=1 with go)"
fi
echo "strays are seen"
