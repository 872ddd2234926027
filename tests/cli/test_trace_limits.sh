#!/usr/bin/env bash
# Programs that set limits on themselves go on unharmed, with the command and with the library alone; what can be kept is kept. Size limit of the
# trace, unknown groups, programs in another pid namespace, children that have done nothing yet when the program ends.
# test-label: once (the tracer is built without sanitizers: there only in make test-full)
set -eu
. "$(dirname "$0")/waiting.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAIL: $*"; exit 1; }
lib=${MILLRACE%/bin/millrace}/lib/libmillrace_trace.so
cat >"$dir/limits.c" <<'C'
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
static int reads(int fd, int n)
{
    char b[64];
    for (int i = 0; i < n; i++)
        if (pread(fd, b, sizeof b, 0) < 0)
            return 1;
    return 0;
}
int main(int argc, char **argv)
{
    struct rlimit limit = {0, 0};
    int fd = open(argv[2], O_RDONLY);
    reads(fd, 1000);
    if (!strcmp(argv[1], "memory")) {
        limit.rlim_cur = limit.rlim_max = 64 << 20;
        setrlimit(RLIMIT_AS, &limit);
    } else if (!strcmp(argv[1], "size")) {
        limit.rlim_cur = limit.rlim_max = 1000;
        setrlimit(RLIMIT_FSIZE, &limit);
    } else if (!strcmp(argv[1], "descriptors")) {
        limit.rlim_cur = limit.rlim_max = 40;
        setrlimit(RLIMIT_NOFILE, &limit);
        while (dup(fd) >= 0) {
        }
    }
    if (fd < 0 || reads(fd, 100000))
        return 1;
    if (!strcmp(argv[1], "descriptors"))
        for (int i = 20; i < 40; i++)
            close(i);
    if (reads(fd, 100000))
        return 1;
    puts("done");
    return argc > 2 ? 7 : 0;
}
C
cc -O1 -o "$dir/limits" "$dir/limits.c"
seq 100 >"$dir/data"
count() { "$MILLRACE" report --json "$@" | python3 -c '
import json, sys
r = json.load(sys.stdin)
print(sum(f["count"] for f in r["functions"] if f["name"].endswith("pread")))'; }
for kind in none memory size descriptors; do
    status=0
    "$MILLRACE" trace --quiet -o "$dir/$kind.mrt" -- "$dir/limits" $kind "$dir/data" >"$dir/out" || status=$?
    [ $status = 7 ] && grep -q 'done' "$dir/out" || fail "$kind, command: status $status"
    [ "$(count "$dir/$kind.mrt")" = 201000 ] || fail "$kind, command: $(count "$dir/$kind.mrt") of 201000"
    status=0
    LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/new/folder/$kind ASAN_OPTIONS=verify_asan_link_order=0 "$dir/limits" $kind "$dir/data" >"$dir/out" 2>"$dir/err" || status=$?
    [ $status = 7 ] && grep -q 'done' "$dir/out" || fail "$kind, library: status $status"
    "$MILLRACE" recover -o "$dir/r.mrt" "$dir/new/folder/$kind" >/dev/null
    n=$(count "$dir/r.mrt")
    case $kind in
    size) grep -q 'limit of file sizes' "$dir/err" && [ "$n" -ge 1000 ] || fail "size: not said, or $n" ;;
    *) [ "$n" = 201000 ] || fail "$kind, library: $n of 201000" ;;
    esac
    rm -f "$dir/r.mrt"
done

# What the tracer writes itself never ends a program: no file may grow, or nobody reads its stderr. First what it does bare.
${CC:-cc} -static -o "$dir/static" "$dir/limits.c" 2>/dev/null || cp "$dir/limits" "$dir/static"
no_growth() { # command...: stdout is a pipe, stderr a file that is full already
    (set +e; "$@" bash -c 'ulimit -f 0; exec "$1" none "$2"' bash "$dir/static" "$dir/data" 2>"$dir/err"; echo $?) | cat
}
nobody_reads() { # command...: stderr is a pipe without a reader; the limit makes tracing fail
    python3 - "$@" bash -c 'ulimit -f 0; /bin/echo reached | cat' <<'P'
import os, subprocess, sys
read, write = os.pipe()
os.close(read)
r = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=write)
print(r.stdout.decode(), r.returncode)
P
}
alone=(env LD_PRELOAD="$lib" MILLRACE_TRACE_OUT="$dir/quiet" ASAN_OPTIONS=verify_asan_link_order=0)
for how in no_growth nobody_reads; do
    want=$($how)
    [ -n "$want" ] || fail "$how: bare"
    [ "$($how "$MILLRACE" trace --quiet -o "$dir/t.mrt" --)" = "$want" ] || fail "$how, command: $($how "$MILLRACE" trace --quiet -o "$dir/t.mrt" --), not $want"
    [ "$($how "${alone[@]}")" = "$want" ] || fail "$how, library: $($how "${alone[@]}"), not $want"
done

# Processes that are too limited for a ring leave the program's stderr alone; the command tells it.
"$MILLRACE" trace --quiet -o "$dir/t.mrt" -- bash -c 'ulimit -v 200000; for i in 1 2 3; do cat "$1"; done >/dev/null 2>"$2"' bash "$dir/data" "$dir/theirs" 2>"$dir/err"
[ ! -s "$dir/theirs" ] || fail "limited memory: on the program's stderr: $(cat "$dir/theirs")"
grep -q "ran untraced, for lack of memory.*'.*cat'" "$dir/err" || fail "limited memory is not told: $(cat "$dir/err")"

# A size limit holds, and it is the newest that is kept.
"$MILLRACE" trace --max-size 100KiB -o "$dir/small.mrt" -- bash -c "for i in {1..60000}; do echo \$i; done >'$dir/ring'; : <'$dir/data'" 2>"$dir/err"
[ "$(stat -c %s "$dir/small.mrt")" -le 110000 ] || fail "--max-size: $(stat -c %s "$dir/small.mrt") bytes"
grep -q 'of 1 process, the newest in' "$dir/err" || fail "--max-size: $(cat "$dir/err")"
"$MILLRACE" export -f csv -o - "$dir/small.mrt" | grep -q "$dir/data" || fail "--max-size lost the newest event"
"$MILLRACE" report --json "$dir/small.mrt" | python3 -c '
import json, sys
r = json.load(sys.stdin)
assert r["gone_events"] > 0 and r["events"] + r["gone_events"] >= 60000, (r["events"], r["gone_events"])' || fail "--max-size: what was dropped is not told"
# Also where whole processes are gone.
all=$("$MILLRACE" trace --max-size 20KB -o "$dir/small.mrt" -- sh -c 'for i in $(seq 1 100); do cat "$1"; done' sh "$dir/data" 2>&1 >/dev/null | grep -oE '[0-9,]+ events of' | tr -dc 0-9)
"$MILLRACE" report --json "$dir/small.mrt" | python3 -c '
import json, sys
r = json.load(sys.stdin)
assert r["gone_events"] > 0 and r["events"] + r["gone_events"] == int(sys.argv[1]), (r["events"], r["gone_events"], sys.argv[1])' "$all" || fail "--max-size: processes that are gone are not told"

# The collector is killed: what is older lies in a second file, which recover puts back; it knows how many events are gone.
cat >"$dir/forever.py" <<'PY'
import os, sys
fd, n = os.open(sys.argv[1], os.O_RDONLY), 0
with open(sys.argv[3], "w") as f:
    f.write(str(os.getpid()))
while not os.path.exists(sys.argv[2]):
    for _ in range(2000):
        os.pread(fd, 1 + n % 977, 0)
        n += 1
print(n)
PY
"$MILLRACE" trace --quiet --max-size 100KB -o "$dir/killed.mrt" -- python3 "$dir/forever.py" "$dir/data" "$dir/stop" "$dir/pid" >"$dir/reads" 2>/dev/null &
collector=$!
soon test -s "$dir/pid" || fail "--max-size: the program did not start"
soon test -s "$dir/killed.mrt.1" || fail "--max-size: no second file"
first=$(stat -c %y "$dir/killed.mrt.1")
turned() { [ "$(stat -c %y "$dir/killed.mrt.1")" != "$first" ]; }
soon turned || fail "--max-size: no third file"
between() { # stopped where the new file is there: not in the moment between two files, in which there is only the older one
    kill -STOP $collector
    test -s "$dir/killed.mrt" || { kill -CONT $collector; return 1; }
}
soon between || fail "--max-size: no new file"
kill -9 $collector
touch "$dir/stop"
wait $collector 2>/dev/null || true
soon gone "$(cat "$dir/pid")" || fail "--max-size: the program did not end"
events() { "$MILLRACE" report --json "$1" 2>/dev/null | grep -o '"events":[0-9]*' | head -n 1 | cut -d: -f2; }
cp "$dir/killed.mrt" "$dir/alone.mrt"
newer=$(events "$dir/alone.mrt") older=$(events "$dir/killed.mrt.1")
[ "$(events "$dir/killed.mrt")" = $((newer + older)) ] || fail "--max-size: $(events "$dir/killed.mrt") events reported of $newer and, in the older file, $older"
"$MILLRACE" recover "$dir/killed.mrt" >/dev/null
[ ! -e "$dir/killed.mrt.1" ] || fail "--max-size: recover left the older file alone"
"$MILLRACE" report --json "$dir/killed.mrt" | python3 -c '
import json, sys
r = json.load(sys.stdin)
reads = sum(f["count"] for f in r["functions"] if f["name"] == "pread")
assert r["gone_events"] > 0 and r["events"] + r["gone_events"] >= int(sys.argv[1]) >= reads > 0, (r["events"], r["gone_events"], reads, sys.argv[1])' "$(cat "$dir/reads")" ||
    fail "--max-size, recovered: what is gone is not told"
LD_PRELOAD=$lib MILLRACE_TRACE_MAX_SIZE=100KiB MILLRACE_TRACE_OUT=$dir/ring.d bash -c "for i in {1..60000}; do echo \$i; done >'$dir/ring'; : <'$dir/data'"
bytes=$(cat "$dir"/ring.d/*.mrt | wc -c)
[ "$bytes" -le 110000 ] && [ "$bytes" -gt 25000 ] || fail "MILLRACE_TRACE_MAX_SIZE: $bytes bytes"
"$MILLRACE" report --json "$dir/ring.d" >"$dir/ring.json"
"$MILLRACE" recover --out "$dir/ring.mrt" "$dir/ring.d" | grep -q 'of 1 process' || fail "MILLRACE_TRACE_MAX_SIZE: one process counts as more"
nameless() { sed "s|\"source\":\"$dir/ring\.[a-z]*\"||"; } # the report says where it read
"$MILLRACE" report --json "$dir/ring.mrt" | nameless | cmp -s - <(nameless <"$dir/ring.json") || fail "MILLRACE_TRACE_MAX_SIZE: joined it says something else"
python3 -c '
import json, sys
r = json.load(open(sys.argv[1]))
assert r["gone_events"] > 0 and r["events"] + r["gone_events"] >= 60000 and r["processes"] == 1, r' "$dir/ring.json" || fail "MILLRACE_TRACE_MAX_SIZE: what was dropped is not told"
"$MILLRACE" export -f csv -o - "$dir/ring.mrt" | grep -q "$dir/data" || fail "MILLRACE_TRACE_MAX_SIZE lost the newest event"
LD_PRELOAD=$lib MILLRACE_TRACE_MAX_SIZE=much MILLRACE_TRACE_OUT=$dir/much cat "$dir/data" 2>"$dir/err" >/dev/null
grep -q 'MILLRACE_TRACE_MAX_SIZE: not a size' "$dir/err" || fail "a size that is none: $(cat "$dir/err")"

status=0
"$MILLRACE" trace --groups posix,nosuch -o "$dir/t.mrt" -- true 2>"$dir/err" || status=$?
[ $status = 2 ] && grep -q "no group or call 'nosuch'" "$dir/err" || fail "unknown group: $status $(cat "$dir/err")"
LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/groups MILLRACE_TRACE_GROUPS=open,nosuch cat "$dir/data" 2>"$dir/err" >/dev/null
grep -q "no group or call 'nosuch'" "$dir/err" || fail "unknown group, library: $(cat "$dir/err")"
"$MILLRACE" trace -o "$dir/t.mrt" -- "$dir/no-such-program" 2>"$dir/err" && fail "a missing program succeeded"
grep -q 'statically' "$dir/err" && fail "a missing program was called static"

# A child that does its first I/O after the end is waited for, then left to recover.
cat >"$dir/late.py" <<'P'
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
child = os.fork()
if child:
    print(child, flush=True)
    os._exit(0)
signal.sigwait({signal.SIGUSR1})
open(sys.argv[1]).read()
open(sys.argv[2], "w").close()
P
"$MILLRACE" trace --linger 100ms -o "$dir/t.mrt" -- python3 "$dir/late.py" "$dir/data" "$dir/over" >"$dir/pid" 2>"$dir/err"
child=$(cat "$dir/pid")
grep -q '1 process is still running' "$dir/err" || fail "a child that outlives the program was not told: $(cat "$dir/err")"
kill -USR1 "$child"
soon gone "$child" || fail "the late child does not end"
[ -e "$dir/over" ] || fail "the late child did not end well"
"$MILLRACE" recover "$dir/t.mrt" >/dev/null
"$MILLRACE" export -f csv -o - "$dir/t.mrt" | grep -q "read,$dir/data" || fail "the late child's events are lost"

# Another pid namespace, where we may make one: the collector must not take the inner pid for one of its own.
if unshare -p -f true 2>/dev/null; then
    "$MILLRACE" trace -o "$dir/t.mrt" -- unshare -p -f sh -c "cat '$dir/data' >/dev/null; sleep 0.2; cat '$dir/data' >/dev/null" 2>"$dir/err"
    grep -q 'still running' "$dir/err" && fail "processes of another namespace: $(cat "$dir/err")"
    [ "$("$MILLRACE" export -f csv -o - "$dir/t.mrt" | grep -c "open[a-z]*,$dir/data")" = 2 ] || fail "events of another namespace are lost"
fi

# More threads than slots, and no descriptor for more: what they do is counted as lost.
cat >"$dir/crowd.c" <<'C'
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>
#define THREADS 20
static pthread_barrier_t all;
static int fd;
static void *run(void *arg)
{
    char b;
    for (int i = 0; i < 10; i++)
        if (pread(fd, &b, 1, 0) != 1)
            _exit(1);
    pthread_barrier_wait(&all);
    return arg;
}
int main(int argc, char **argv)
{
    const struct rlimit none = {0, 0};
    pthread_t t[THREADS];
    fd = open(argv[argc - 1], O_RDONLY);
    pthread_barrier_init(&all, 0, THREADS);
    if (setrlimit(RLIMIT_NOFILE, &none))
        return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&t[i], 0, run, 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], 0);
    return 0;
}
C
${CC:-cc} -O1 -pthread -o "$dir/crowd" "$dir/crowd.c"
"$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/crowd" "$dir/data" 2>/dev/null
kept=$("$MILLRACE" export -f csv -o - "$dir/t.mrt" | grep -c "pread,$dir/data") lost=$("$MILLRACE" report --json "$dir/t.mrt" | grep -o '"lost_events":[0-9]*' | head -n 1 | cut -d: -f2)
[ "$lost" -gt 0 ] && [ $((kept + lost)) = 200 ] || fail "20 threads, too few slots: $kept reads kept, $lost said to be lost, of 200"
