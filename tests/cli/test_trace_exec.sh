#!/usr/bin/env bash
# exec that the kernel refuses although the program is there (no format, no interpreter, too many arguments, busy) stands in the trace with its error,
# one that succeeds with 0, each once, and everything before and after is there; with the command, with --strays and with the library alone,
# whatever ends the process.
# test-label: once (long under sanitizers: there only in make test-full)
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
lib=${MILLRACE%/bin/millrace}/lib/libmillrace_trace.so
[ -e "$lib" ] || { echo "SKIP: no libmillrace_trace.so beside the program"; exit 77; }
src=$MR_SOURCE_DIR/tests/tracer
${CC:-cc} -O1 -w -pthread -o "$dir/ways" "$src/exec_ways.c"
mkdir "$dir/d"
echo "some bytes" >"$dir/d/data"
head -c 100 /dev/zero | tr '\0' '\1' >"$dir/d/junk"
echo '#!/no/such/interpreter' >"$dir/d/script"
cp /bin/true "$dir/d/busy"
chmod +x "$dir/d/junk" "$dir/d/script"

compare() { # what is wrong, end, threads
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$dir/t.mrt"
    python3 - "$dir" "$@" <<'P'
import collections, csv, sys
folder, what, end, threads = sys.argv[1], *sys.argv[2:]
rows = list(csv.DictReader(open(folder + "/t.csv")))
parent = next(r["pid"] for r in rows if r["name"] == "posix_spawn")
who = lambda r: "parent" if r["pid"] == parent else "child"
got = [f"{who(r)}|{r['name']}|{r['file']}|{r['result']}" for r in rows if "exec" in r["name"] or "spawn" in r["name"]]
want = open(folder + "/want").read().split("\n")[:-1]
assert collections.Counter(got) == collections.Counter(want), f"{what}: {collections.Counter(want) - collections.Counter(got)} missing, {collections.Counter(got) - collections.Counter(want)} too many"
assert [g for g in got if "child" not in g] == [w for w in want if "child" not in w], f"{what}: order"
reads = collections.Counter(r["result"] for r in rows if r["name"] == "pread")
assert reads == {"1": 12 + bool(threads), "2": 1, "3": 1, "4": 1, **({"5": 1} if threads else {})}, f"{what}: reads {reads}"
P
    processes=$("$MILLRACE" report --json "$dir/t.mrt" | python3 -c 'import json,sys; d=json.load(sys.stdin); print(d["processes"], d["lost_events"])')
    [ "$processes" = "3 0" ] || { echo "FAIL $1: processes and losses: $processes"; exit 1; }
}

for end in return kill _exit exec; do
    for threads in "" threads; do
        for how in command strays alone; do
            what="$how, $end${threads:+, $threads}"
            rm -rf "$dir"/t.mrt* "$dir/alone" "$dir/want"
            status=0
            { (case $how in
                command) exec "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/ways" "$dir/d" $end $threads ;;
                strays) exec "$MILLRACE" trace --quiet --strays -o "$dir/t.mrt" -- "$dir/ways" "$dir/d" $end $threads ;;
                alone) LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/alone exec "$dir/ways" "$dir/d" $end $threads ;;
            esac) >"$dir/want" 2>"$dir/err" || status=$?; } 2>/dev/null
            [ $status = "$([ $end = kill ] && echo 137 || echo 0)" ] || { echo "FAIL $what: status $status: $(cat "$dir/err")"; exit 1; }
            grep -q 'left no room' "$dir/err" && { echo "FAIL $what: programs that were not started are told: $(cat "$dir/err")"; exit 1; }
            [ $how != alone ] || "$MILLRACE" recover --out "$dir/t.mrt" "$dir/alone" >/dev/null
            compare "$what" $end "$threads"
        done
    done
done

# Killed at any moment, also inside an exec or between it and its event: everything that was done is there, nothing twice; at most the last exec, which nobody
# saw fail, stands as a success.
. "$(dirname "$0")/waiting.sh"
past() { [ "$(od -An -td8 -N8 "$dir/progress" 2>/dev/null | tr -d ' ' | grep . || echo 0)" -gt "$1" ]; }
for _ in 1 2 3 4 5 6; do
    for how in command alone; do
        rm -rf "$dir"/t.mrt* "$dir/alone" "$dir/progress"
        if [ $how = command ]; then
            "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/ways" "$dir/d" loop "$dir/progress" &
        else
            LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/alone "$dir/ways" "$dir/d" loop "$dir/progress" &
        fi
        pid=$!
        soon past $((RANDOM % 300)) || { echo "FAIL $how: the program does not start"; exit 1; }
        victim=$pid
        [ $how = alone ] || victim=$(pgrep -P $pid)
        kill -9 $victim
        wait $pid 2>/dev/null || true
        [ $how != alone ] || "$MILLRACE" recover --out "$dir/t.mrt" "$dir/alone" >/dev/null
        "$MILLRACE" report --json "$dir/t.mrt" >"$dir/report.json"
        python3 - "$dir" $how <<'P'
import json, struct, sys
reads, execs = struct.unpack("<qq", open(sys.argv[1] + "/progress", "rb").read(16))
r = json.load(open(sys.argv[1] + "/report.json"))
f = {f["name"]: (f["count"], f["errors"]) for f in r["functions"]}
got, (exec_events, errors) = f["pread"][0], f.get("execve", (0, 0))
assert reads <= got <= reads + 1 and execs <= exec_events <= execs + 1 and exec_events - errors <= 1, f"{sys.argv[2]}: {reads} reads, {execs} execs done; in the trace {f}"
assert r["processes"] == 1 and r["lost_events"] == 0, r
P
    done
done
