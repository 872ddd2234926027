#!/usr/bin/env bash
# SIGKILL at random moments, of the program and of the collector: every read that was done is in the recovered trace.
# MR_TEST_FULL=1 does 100 rounds.
# test-label: once (long under sanitizers: there only in make test-full)
set -eu
. "$(dirname "$0")/waiting.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
lib=${MILLRACE%/bin/millrace}/lib/libmillrace_trace.so
[ -e "$lib" ] || { echo "SKIP: no libmillrace_trace.so beside the program"; exit 77; }
${CC:-cc} -O1 -D_GNU_SOURCE -pthread -o "$dir/workload" "$MR_SOURCE_DIR/tests/tracer/io_workload.c"
echo 0123456789abcdef >"$dir/data"
rounds=12
[ -z "${MR_TEST_FULL:-}" ] || rounds=100
begun() { # the program is at work
    soon test -s "$dir/data.progress" || { echo "FAIL: the program does not start"; exit 1; }
}
reads() { # trace, file: the trace holds the reads of the file that its .progress tells, or one more, done but not counted any more
    "$MILLRACE" report --json --path "$2" "$1" >"$dir/report.json"
    python3 - "$dir/report.json" "$2.progress" <<'P'
import json, struct, sys
reads = sum(f["count"] for f in json.load(open(sys.argv[1]))["functions"] if f["name"] == "pread")
counter = open(sys.argv[2], "rb").read(8)
done = struct.unpack("<Q", counter)[0] if len(counter) == 8 else 0  # killed before the counter had its size
assert done <= reads <= done + 1, f"{done} reads done, {reads} in the trace"
P
}
for i in $(seq $rounds); do
    rm -rf "$dir/t.mrt" "$dir/data.progress" "$dir/alone"
    # The moments are spread by the round's number, so a failure can be repeated.
    nap=$(printf '0.%03d' $((20 + i * 37 % 400)))
    case $((i % 3)) in
    0) # the program dies, the collector ends by itself
        "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- sh -c "\"$dir/workload\" kill \"$dir/data\" 1 & sleep $nap; kill -9 \$!; wait" 2>/dev/null || true
        trace=$dir/t.mrt ;;
    1) # the collector dies first, then the program; the rest comes by recover
        "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/workload" kill "$dir/data" 1 &
        collector=$!
        begun
        sleep "$nap"
        child=$(pgrep -P $collector)
        kill -9 $collector
        sleep 0.05
        kill -9 $child
        wait $collector 2>/dev/null || true
        soon gone $child
        "$MILLRACE" recover "$dir/t.mrt" >/dev/null
        trace=$dir/t.mrt ;;
    2) # the library alone
        LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/alone "$dir/workload" kill "$dir/data" 1 &
        child=$!
        begun
        sleep "$nap"
        kill -9 $child
        wait $child 2>/dev/null || true
        "$MILLRACE" recover "$dir/alone" >/dev/null
        trace=$dir/alone ;;
    esac
    [ "$(stat -c %s "$dir/data.progress" 2>/dev/null || echo 0)" -ge 8 ] || continue # killed before it began
    reads "$trace" "$dir/data"
done

# Everything at once, as the OOM killer does to a group: the collector and four programs.
rm -rf "$dir"/t.mrt* "$dir"/data.progress
for n in 1 2 3 4; do echo 0123456789abcdef >"$dir/g$n"; done
setsid "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- sh -c "for n in 1 2 3 4; do \"$dir/workload\" kill \"$dir/g\$n\" 1 & done; wait" &
group=$!
all_four() { [ "$(find "$dir" -name 'g?.progress' -size +0 | wc -l)" = 4 ]; }
soon all_four || { echo "FAIL: the programs do not start"; exit 1; }
sleep 0.1
members=$(pgrep -g $group)
kill -9 -- -$group
wait $group 2>/dev/null || true
soon gone $members
"$MILLRACE" recover "$dir/t.mrt" >/dev/null
[ ! -L "$dir/t.mrt.spool" ] || { echo "FAIL: the spool stays after recovery"; exit 1; }
for n in 1 2 3 4; do reads "$dir/t.mrt" "$dir/g$n"; done

# A process that was killed while it began leaves nothing behind.
"$MILLRACE" trace --quiet -o "$dir/t.mrt" -- sh -c 'echo "$MILLRACE_SPOOL"; head -c 8192 /dev/zero >"$MILLRACE_SPOOL/4194304.00000000000000aa.0.ring"' >"$dir/spool"
[ -n "$(cat "$dir/spool")" ] && [ ! -e "$(cat "$dir/spool")" ] || { echo "FAIL: a process that never began leaves its ring"; exit 1; }

# Threads at work when the process leaves: none of their reads is lost, with the collector and with the library alone.
${CC:-cc} -O1 -D_GNU_SOURCE -pthread -o "$dir/leave" "$MR_SOURCE_DIR/tests/tracer/leave_at_work.c"
ulimit -c 0
chmod +x "$dir/data" # no program: exec gets as far as the kernel
for way in return _exit quick_exit abort exec failed_exec raise; do
    rm -rf "$dir"/t.mrt* "$dir/alone"
    for how in command library; do
        if [ $how = command ]; then
            "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/leave" $way "$dir/data" 2>/dev/null || true
            trace=$dir/t.mrt
        else
            (LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/alone "$dir/leave" $way "$dir/data" || true) >/dev/null 2>&1
            "$MILLRACE" recover "$dir/alone" >/dev/null
            trace=$dir/alone
        fi
        "$MILLRACE" report --json --path "$dir/data" "$trace" >"$dir/report.json"
        python3 - "$dir/report.json" "$dir/data.progress" "$way, $how" <<'P'
import json, struct, sys
reads = sum(f["count"] for f in json.load(open(sys.argv[1]))["functions"] if f["name"] == "pread")
done = [struct.unpack("<Q", open(sys.argv[2], "rb").read()[64 * i : 64 * i + 8])[0] for i in range(3)]
assert sum(done) <= reads <= sum(done) + 3, f"{sys.argv[3]}: {sum(done)} reads done, {reads} in the trace"
P
    done
done
chmod -x "$dir/data"

# A process that has written to a file of its own, because the collector was too slow, outlives the program: nothing is lost.
rm -rf "$dir"/t.mrt* "$dir"/data.progress
"$MILLRACE" trace --quiet --linger 100ms -o "$dir/t.mrt" -- sh -c '"$1" kill "$2" 1 & echo $! >"$3"; until [ -e "$4" ]; do sleep 0.02; done' \
    sh "$dir/workload" "$dir/data" "$dir/pid" "$dir/go" 2>/dev/null &
collector=$!
begun
kill -STOP $collector
own() { cat "$dir"/t.mrt.spool/*.mrt 2>/dev/null | wc -c; }
more_than() { [ "$(own)" -gt "$1" ]; }
soon more_than 0 || { echo "FAIL: the program does not write a file of its own"; exit 1; }
kill -CONT $collector
: >"$dir/go"
wait $collector
soon more_than "$(own)" || { echo "FAIL: the program that was left behind does not go on"; exit 1; }
child=$(cat "$dir/pid")
kill -9 $child
soon gone $child
"$MILLRACE" recover "$dir/t.mrt" >/dev/null
reads "$dir/t.mrt" "$dir/data"

count() { "$MILLRACE" export -f csv -o - "$dir/t.mrt" | grep -c "pread[0-9]*,$1,"; }
# A process whose first thread has ended has not.
${CC:-cc} -O1 -D_GNU_SOURCE -pthread -o "$dir/first_ends" "$MR_SOURCE_DIR/tests/tracer/first_thread_ends.c"
"$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/first_ends" "$dir/data"
[ "$(count "$dir/data")" = 20 ] || { echo "FAIL: $(count "$dir/data") of 20 reads after the first thread's end"; exit 1; }
# Two processes of the same number, in two pid namespaces.
if unshare -p -f true 2>/dev/null; then
    cp "$dir/data" "$dir/second"
    # The second one starts when the first one has read.
    "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- sh -c 'unshare -p -f "$1" "$2" & sleep 0.2; unshare -p -f "$1" "$3"; wait' sh "$dir/first_ends" "$dir/data" "$dir/second"
    [ "$(count "$dir/data") $(count "$dir/second")" = "20 20" ] || { echo "FAIL: two namespaces: $(count "$dir/data") and $(count "$dir/second") of 20 reads"; exit 1; }
fi

# Killed between making its file and writing to it: the other traces of the folder are read.
LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/folder cat "$dir/data" >/dev/null
: >"$dir/folder/$$.0123456789abcdef.mrt"
"$MILLRACE" recover "$dir/folder" >/dev/null
"$MILLRACE" export -f csv -o - "$dir/folder" | grep -q "$dir/data" || { echo "FAIL: an empty file hides the others"; exit 1; }
# A ring that cannot be read is named, and counted.
mkdir "$dir/damaged"
printf 'no ring' >"$dir/damaged/4194305.0123456789abcdef.0.ring" # a pid that no process has
"$MILLRACE" recover --json "$dir/damaged" 2>"$dir/err" | grep -q '"unreadable_rings":1,' || { echo "FAIL: a damaged ring is not counted"; exit 1; }
grep -q "4194305.*cannot be recovered" "$dir/err" || { echo "FAIL: a damaged ring is not named: $(cat "$dir/err")"; exit 1; }
# One whose process was ended while it made it has nothing in it, and goes.
mkdir "$dir/unborn"
truncate -s 1M "$dir/unborn/4194305.0123456789abcdef.0.ring"
"$MILLRACE" recover -o "$dir/unborn.mrt" "$dir/unborn" >/dev/null
[ ! -e "$dir/unborn" ] || { echo "FAIL: an empty ring stays: $(ls "$dir/unborn")"; exit 1; }
# A folder of something else is left as it was.
mkdir "$dir/none"
touch "$dir/none/file"
"$MILLRACE" recover "$dir/none" | grep -q "nothing to recover in" || { echo "FAIL: recover: a folder without rings is not told"; exit 1; }
[ "$(ls -A "$dir/none")" = file ] || { echo "FAIL: recover left something in a folder without rings: $(ls -A "$dir/none")"; exit 1; }
echo "$rounds kills, nothing lost"
