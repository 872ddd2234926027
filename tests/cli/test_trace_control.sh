#!/usr/bin/env bash
# What is recorded can be chosen: by path, by group, by signal and from inside, by size; several traces are reported together; errors say what
# to do.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
lib=${MILLRACE%/bin/millrace}/lib/libmillrace_trace.so
[ -e "$lib" ] || { echo "SKIP: no libmillrace_trace.so beside the program"; exit 77; }
mkdir "$dir/data" "$dir/other"
for i in 1 2 3; do echo $i >"$dir/data/f$i.npz"; echo $i >"$dir/other/g$i"; done
fail() { echo "FAIL: $*"; exit 1; }
rows() { "$MILLRACE" export -f csv -o - "$1" | tail -n +2; }
run() { "$MILLRACE" trace --quiet -o "$dir/t.mrt" "$@"; }

run --include "$dir/data/*" -- cat "$dir"/data/* "$dir"/other/* >/dev/null
rows "$dir/t.mrt" | grep -q "$dir/other" && fail "--include let another folder in"
[ "$(rows "$dir/t.mrt" | grep -c 'npz')" -ge 6 ] || fail "--include lost what it should keep"
run --exclude '*.npz' -- cat "$dir"/data/* "$dir"/other/* >/dev/null
rows "$dir/t.mrt" | grep -q 'npz' && fail "--exclude did not exclude"
rows "$dir/t.mrt" | grep -q "$dir/other/g2" || fail "--exclude excluded too much"
run --groups open,close -- cat "$dir"/data/f1.npz >/dev/null
[ -z "$(rows "$dir/t.mrt" | cut -d, -f8 | grep -vE '^(open|openat|close|fopen|fclose|opendir|closedir|close_range)$' || true)" ] || fail "--groups let another kind in"

# Globs, by flag and by variable, with the command and with the library alone.
names() { rows "$1" | cut -d, -f9 | grep -oE '(data|other)/[fg][0-9]' | sort -u | tr '\n' ' '; }
globs() { # wanted, globs
    for way in flag variable alone; do
        rm -rf "$dir/alone" "$dir/t.mrt"
        case $way in
            flag)
                run --include "$2" -- cat "$dir"/data/* "$dir"/other/* 2>"$dir/err"
                [ ! -s "$dir/err" ] || fail "--include '$2': $(cat "$dir/err")"
                ;;
            variable) MILLRACE_TRACE_INCLUDE=$2 run -- cat "$dir"/data/* "$dir"/other/* ;;
            alone) LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/alone MILLRACE_TRACE_INCLUDE=$2 cat "$dir"/data/* "$dir"/other/*; ln -s "$dir/alone" "$dir/t.mrt" ;;
        esac >/dev/null
        [ "$(names "$dir/t.mrt")" = "$1" ] || fail "$way: --include '$2': $(names "$dir/t.mrt")"
    done
    rm "$dir/t.mrt"
}
globs "data/f1 data/f2 data/f3 " "$dir/data/"
globs "data/f1 data/f2 data/f3 " "$dir/**.npz"
globs "data/f2 " "$dir/data/f2.???"
globs "data/f1 data/f3 other/g1 other/g3 " "$dir/{data,other}/[fg][!2]*"
globs "data/f1 data/f2 other/g3 " "$dir/data/{f1,f2}.npz,$dir/other/g3"
globs "data/f1 other/g3 " "$dir/data/f1.npz:$dir/other/g3"
run --include 'data/*' --include "$dir/other" -- true 2>"$dir/err"
grep -q "'data/\*' matches nothing" "$dir/err" && grep -q "'$dir/other' matches only the folder" "$dir/err" || fail "globs that match nothing: $(cat "$dir/err")"
LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/alone MILLRACE_TRACE_INCLUDE='data/*' MILLRACE_TRACE_INCLUDES=x cat "$dir/data/f1.npz" >/dev/null 2>"$dir/err"
grep -q "'data/\*' matches no file" "$dir/err" && grep -q "'MILLRACE_TRACE_INCLUDES' is none" "$dir/err" || fail "alone, what cannot work: $(cat "$dir/err")"
many=$(for i in {1..200}; do printf '/no/such/folder/with/a/long/name/%s/*:' $i; done)
globs "data/f2 " "$many$dir/data/f2*"

# Flags count before variables, also where they say none.
export MILLRACE_TRACE_INCLUDE='/no/such/*' MILLRACE_TRACE_GROUPS=write MILLRACE_TRACE_SAMPLE=10 MILLRACE_TRACE_START=false MILLRACE_TRACE_SIGNAL=12 \
    MILLRACE_TRACE_MAX_SIZE=1KiB MILLRACE_TRACE_STRAYS=1
run --include '*' --groups all --sample 0 --start --signal 0 --max-size 0 --no-strays -- bash -c 'for i in {1..1500}; do read -r x <"$1"; done; trap -p USR2; env' bash "$dir/data/f1.npz" >"$dir/out"
unset MILLRACE_TRACE_INCLUDE MILLRACE_TRACE_GROUPS MILLRACE_TRACE_SAMPLE MILLRACE_TRACE_START MILLRACE_TRACE_SIGNAL MILLRACE_TRACE_MAX_SIZE MILLRACE_TRACE_STRAYS
grep -qE 'MILLRACE_TRACE_(SAMPLE|SIGNAL|STRAYS)' "$dir/out" && fail "variables beside flags: $(grep MILLRACE "$dir/out")"
[ "$(rows "$dir/t.mrt" | grep -c ',open.*f1.npz')" = 1500 ] || fail "a flag does not count before its variable: $(rows "$dir/t.mrt" | grep -c ',open.*f1.npz')"

# Off at the start, on by signal in the middle.
cat >"$dir/s.sh" <<'S'
read -r a <"$1/f1.npz"
kill -USR2 $$
read -r a <"$1/f2.npz"
kill -USR2 $$
read -r a <"$1/f3.npz"
(read -r a <"$1/f3.npz"; read -r a <"$1/f3.npz")
S
run --no-start --signal 12 -- bash "$dir/s.sh" "$dir/data"
rows "$dir/t.mrt" | grep -q 'f2.npz' || fail "the signal did not start recording"
rows "$dir/t.mrt" | grep -qE 'f1.npz|f3.npz' && fail "recorded while switched off, or in a child forked then"

# A size limit keeps the newest events.
run --max-size 40KB -- bash -c "for i in {1..3000}; do echo \$i >'$dir/ring'; done; echo >'$dir/last'"
[ "$(stat -c %s "$dir/t.mrt")" -lt 200000 ] || fail "--max-size was exceeded"
rows "$dir/t.mrt" | grep -q "$dir/last" || fail "--max-size lost the newest events"

# Sampling keeps exact counts; filters of paths cannot know what was left out, and say so.
run --sample 10 -- dd if=/dev/zero of=/dev/null bs=7 count=5000 2>/dev/null
for filter in '' '--path /dev/zero'; do
    "$MILLRACE" report --json $filter "$dir/t.mrt" | python3 -c '
import json, sys
r = json.load(sys.stdin)
f = {x["name"]: x for x in r["functions"]}["read"]
assert r["sampled_out"] > 7000 and 1000 < f["count"] < 1500, (r["sampled_out"], f)
assert f["count"] + f["sampled_out"] >= 5000 if not sys.argv[1:] else "sampled_out" not in f, f' $filter || fail "--sample with '$filter'"
done
"$MILLRACE" report --tables "$dir/t.mrt" | grep -q 'more calls have no event' || fail "--sample is not said"
LD_PRELOAD=$lib MILLRACE_TRACE_SAMPLE=10k MILLRACE_TRACE_SIGNAL=12x MILLRACE_TRACE_OUT=$dir/all bash -c 'dd if=/dev/zero of=/dev/null bs=7 count=3000; grep SigCgt /proc/$$/status' \
    >"$dir/out" 2>"$dir/err"
grep -q 'every call is kept' "$dir/err" && [ "$(rows "$dir/all" | grep -c ',read,/dev/zero')" = 3000 ] || fail "MILLRACE_TRACE_SAMPLE that is no number is said, and used all the same"
[ $((0x$(awk '{ print $2 }' "$dir/out") & 0x800)) = 0 ] || fail "MILLRACE_TRACE_SIGNAL that is no number is said, and used all the same"

# Every thread's first 1000 calls are kept, also where it follows another one in the same ring.
cat >"$dir/threads.py" <<'P'
import os, sys, threading
fd = os.open(sys.argv[1], os.O_RDONLY)
def work():
    for i in range(1500):
        os.pread(fd, 3, 0)
for i in range(3):
    t = threading.Thread(target=work)
    t.start()
    t.join()
P
run --sample 1000000 -- python3 "$dir/threads.py" "$dir/data/f1.npz"
LD_PRELOAD=$lib MILLRACE_TRACE_SAMPLE=1000000 MILLRACE_TRACE_OUT=$dir/threads python3 "$dir/threads.py" "$dir/data/f1.npz"
for trace in "$dir/t.mrt" "$dir/threads"; do
    "$MILLRACE" report --json "$trace" | python3 -c '
import json, sys
f = [f for f in json.load(sys.stdin)["functions"] if f["name"] == "pread"][0]
assert (f["count"], f["sampled_out"]) == (3000, 1500), f' || fail "--sample: threads one after the other, $trace"
done

# Several traces together, filters, JSON.
run -- cat "$dir/data/f1.npz" >/dev/null
cp "$dir/t.mrt" "$dir/a.mrt"
run -- cat "$dir/data/f2.npz" >/dev/null
"$MILLRACE" report --json "$dir/a.mrt" "$dir/t.mrt" | python3 -c '
import json, sys
r = json.load(sys.stdin)
assert r["schema"] == "millrace.report/1" and r["processes"] == 2, r["processes"]'
"$MILLRACE" report --json --path '*/f2.npz' "$dir/a.mrt" "$dir/t.mrt" | python3 -c '
import json, sys
r = json.load(sys.stdin)
assert r["files"] == 1 and r["top_files"][0]["path"].endswith("/f2.npz"), r'

# A file given twice counts once; a pipe is read; an export does not replace what it reads.
events() { "$MILLRACE" report --json "$@" | grep -o '"events":[0-9]*' | head -1; }
mkdir "$dir/both"
ln "$dir/t.mrt" "$dir/both/linked.mrt"
[ "$(events "$dir/t.mrt" "$dir/t.mrt" "$dir/both")" = "$(events "$dir/t.mrt")" ] || fail "a trace given twice counts twice"
[ "$(events <(cat "$dir/t.mrt"))" = "$(events "$dir/t.mrt")" ] || fail "a trace from a pipe"
for to in "$dir/t.mrt" "$dir/both/linked.mrt"; do
    "$MILLRACE" export -f csv -o "$to" "$dir/both" 2>"$dir/err" && fail "an export replaced the trace"
    grep -q 'would be overwritten' "$dir/err" || fail "an export onto the trace: $(cat "$dir/err")"
done
events "$dir/t.mrt" >/dev/null || fail "the trace is gone"
"$MILLRACE" trace -o "$dir/rel.mrt" --include 'data/*' -- true 2>&1 | grep -q "use '\*/data/\*'" || fail "no word about a relative glob"

# Errors.
set +e
"$MILLRACE" trace 2>"$dir/err"; [ $? = 2 ] && grep -q 'hint' "$dir/err" || fail "no program: status or hint"
run --signal 9 -- true 2>"$dir/err"; [ $? = 2 ] && grep -q "'9' for '--signal'" "$dir/err" || fail "a signal without handlers: status or text"
for wrong in START=maybe STRAYS=7 SIGNAL=19 SIGNAL=x SAMPLE=-1 GROUPS=none-such; do
    env LD_PRELOAD="$lib" MILLRACE_TRACE_OUT="$dir/alone" MILLRACE_TRACE_$wrong cat "$dir/data/f1.npz" >"$dir/out" 2>"$dir/err"
    [ $? = 0 ] && [ "$(cat "$dir/out")" = 1 ] && [ "$(grep -c "MILLRACE_TRACE_${wrong%=*}" "$dir/err")" = 1 ] || fail "$wrong with the library alone: $(cat "$dir/err")"
done
rm -rf "$dir/alone"
env LD_PRELOAD="$lib" MILLRACE_TRACE_OUT="$dir/alone" MILLRACE_TRACE_START=False cat "$dir/data/f1.npz" >"$dir/out" 2>"$dir/err"
[ ! -s "$dir/err" ] || fail "False is a value: $(cat "$dir/err")"
"$MILLRACE" report --json "$dir/alone" 2>/dev/null | grep -q '"events":[1-9]' && fail "started although told not to"
"$MILLRACE" report "$dir/data/f1.npz" 2>"$dir/err"; [ $? = 4 ] && grep -q 'not a trace' "$dir/err" || fail "not a trace: status or text"
# Where the trace cannot be made, nothing stays behind; only strace knows where it would be.
for way in $(command -v strace >/dev/null && echo "2:$dir/data" "5:$dir/none/t.mrt"); do
    out=${way#*:}
    # A leak checker cannot work beside strace.
    ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 strace -o "$dir/calls" -e trace=mkdir,mkdirat "$MILLRACE" trace -o "$out" -- true 2>"$dir/err"; [ $? = "${way%%:*}" ] || fail "$out cannot be written: status"
    for spool in $(sed -nE 's/.*"([^"]*millrace-[^"]*)".* = 0$/\1/p' "$dir/calls"); do
        [ ! -e "$spool" ] || fail "$out cannot be written: $spool is left"
    done
done
"$MILLRACE" report "$dir/none.mrt" 2>"$dir/err"; [ $? = 5 ] || fail "missing trace: status"
for bad in '--time x' '--time nan' '--time 1e300:' '--time 2:1' '--time 0:0' '--time 1:2:3' '--steps 1.5' '--steps 2:1' '--steps -1:3' '--steps 1e30' '--steps :'x; do
    "$MILLRACE" report $bad "$dir/t.mrt" >"$dir/out" 2>"$dir/err"; [ $? = 2 ] && grep -qF "'${bad#* }'" "$dir/err" || fail "$bad: status or text"
done
"$MILLRACE" report --steps 3 "$dir/t.mrt" 2>&1 >/dev/null | grep -q "no event of .* matches.*'step'" || fail "a filter that leaves nothing: no word"
for good in '--time 0:1' '--time :1.5' '--time 0.5' '--time 1:' '--steps 3' '--steps 3:' '--steps :3' '--steps 3:3'; do
    "$MILLRACE" report $good --json "$dir/t.mrt" >"$dir/out" 2>"$dir/err" || fail "$good was refused"
done
cp "$dir/t.mrt" "$dir/before.mrt"
"$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/no-such-program" 2>"$dir/err"; [ $? = 127 ] || fail "missing program: status"
printf '#!/no/such/interpreter\n' >"$dir/badscript"; chmod +x "$dir/badscript"
for program in no-such-program "$dir/no-such-program" "$dir/badscript" "$dir" "$dir/a.mrt"; do # a trace that is there stays as it is
    "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$program" 2>"$dir/err"
    status=$?
    [ $status = 127 ] || [ $status = 126 ] || fail "$program cannot be run: status $status"
    [ "$(wc -l <"$dir/err")" = 1 ] && grep -qF "cannot run '$program'" "$dir/err" || fail "$program cannot be run: $(cat "$dir/err")"
    cmp -s "$dir/t.mrt" "$dir/before.mrt" && [ ! -e "$dir/t.mrt.spool" ] || fail "$program cannot be run, but the trace is another"
done
head -c 700 "$dir/a.mrt" >"$dir/cut.mrt"
"$MILLRACE" report "$dir/cut.mrt" >/dev/null 2>"$dir/err" # readable as far as it goes, and said to be cut
status=$?
[ $status = 6 ] || [ $status = 4 ] || fail "a cut trace: status $status: $(cat "$dir/err")"
grep -q "cut off" "$dir/err" || fail "a cut trace: $(cat "$dir/err")"
# A full disk ends the trace with one line, not the program. Needs the right to mount.
mkdir "$dir/small"
if mount -t tmpfs -o size=64k none "$dir/small" 2>/dev/null; then
    "$MILLRACE" trace --quiet -o "$dir/many.mrt" -- find /usr/bin -name x >/dev/null 2>&1
    echo older >"$dir/small/old.csv" # nor does an export leave half a file, or ruin one
    for file in old.csv new.csv; do
        "$MILLRACE" export -f csv -o "$dir/small/$file" "$dir/many.mrt" 2>"$dir/err" && fail "an export on a full disk succeeds"
        [ "$(ls "$dir/small")" = old.csv ] && [ "$(cat "$dir/small/old.csv")" = older ] || fail "an export on a full disk leaves: $(ls -l "$dir/small")"
    done
    "$MILLRACE" trace --quiet -o "$dir/small/t.mrt" -- bash -c "for i in {1..60000}; do echo \$i; done >'$dir/ring'; echo fine; exit 3" >"$dir/out" 2>"$dir/err"
    status=$?
    spool=$(readlink "$dir/small/t.mrt.spool") # what could not be written waits there for 'millrace recover'
    [ -z "$spool" ] || rm -rf "$spool"
    umount "$dir/small"
    [ $status = 3 ] && [ "$(cat "$dir/out")" = fine ] || fail "a full disk changed the program: status $status"
    [ "$(grep -c 'No space left' "$dir/err")" = 1 ] || fail "a full disk was not said once: $(cat "$dir/err")"
fi
# Neither does full shared memory, with the command and with the library alone, whatever the last page is taken for.
if unshare -m true 2>/dev/null; then
    cat >"$dir/full.sh" <<'S'
mount -t tmpfs -o size=28m none /dev/shm || exit 77
"$MILLRACE" trace --quiet -o "$1/t.mrt" -- bash -c 'cat "$1"; head -c 30m /dev/zero >/dev/shm/fill; cat "$1"; cat "$1"; exit 3' sh "$2" >"$1/out" 2>"$1/err"
[ $? = 3 ] && [ "$(wc -l <"$1/out")" = 3 ] || exit 1
for kib in 12 16 20 24 28 32 36 40 48 64; do
    mount -t tmpfs -o size=${kib}k none "$1/small" || exit 77
    LD_PRELOAD=$3 MILLRACE_TRACE_OUT=$1/small/t bash -c 'cat "$1"; (cat "$1"); exit 3' sh "$2" >"$1/out" 2>"$1/err"
    [ $? = 3 ] && [ "$(wc -l <"$1/out")" = 2 ] || exit 2
    umount "$1/small"
done
S
    echo line >"$dir/line"
    unshare -m bash "$dir/full.sh" "$dir" "$dir/line" "$lib" 2>/dev/null
    status=$?
    [ $status = 0 ] || [ $status = 77 ] || fail "full shared memory changed the program: $status $(cat "$dir/err")"
    [ $status = 77 ] || "$MILLRACE" report "$dir/t.mrt" | grep -q 'none lost' || fail "full shared memory: no trace of what came before"
fi
# A program with a limit on file sizes runs on, untraced.
(ulimit -f 1000; "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- sh -c 'echo fine' >"$dir/out" 2>/dev/null)
[ "$(cat "$dir/out")" = fine ] || fail "a file size limit stopped the program"
# The trace of a running program has what is older than 10 s.
if [ "${MR_TEST_FULL:-}" = 1 ]; then
    mkfifo "$dir/fifo"
    "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- bash -c "read x <'$dir/data/f1.npz'; read -t 60 x <>'$dir/fifo'" &
    for _ in $(seq 50); do
        sleep 1
        ! rows "$dir/t.mrt" 2>/dev/null | grep -q f1.npz || break
    done
    rows "$dir/t.mrt" 2>/dev/null | grep -q f1.npz || fail "a running program's trace stays empty"
    kill $!
    wait || true
fi
echo "control works"
