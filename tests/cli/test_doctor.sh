#!/usr/bin/env bash
# `millrace doctor`: every topic is examined, memory file systems are called out, nothing is left behind, bad paths end
# with 5.
set -eu
m=$MILLRACE
fail() { echo "FAILED: $*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

out=$("$m" doctor "$work") || fail "exit status $?"
for topic in "file system" "mount options" space inodes memory "page cache" cores load io_uring "open files" \
    "locked memory" MPI clock "CPU frequency" kernel machine; do
    grep -qE "^(OK|NOTE|WARN) +$topic  " <<<"$out" || fail "no line on '$topic'"
done
grep -qE "^[0-9]+ warnings?, [0-9]+ notes? for '$work'" <<<"$out" || fail "no summary"
[ -z "$(ls -A "$work")" ] || fail "it left something behind: $(ls -A "$work")"

json=$("$m" doctor "$work" --json)
grep -q '"schema": "millrace.doctor/1"' <<<"$json" || fail "schema"
for key in space_free_bytes memory_available_bytes cores_affinity_count clock_read_cost_ns; do
    grep -qE "\"$key\": [0-9.]+" <<<"$json" || fail "no figure '$key'"
done
[ "$(grep -c '"level": "warn"' <<<"$json")" = "$(sed -nE 's/.*"warnings": ([0-9]+).*/\1/p' <<<"$json")" ] || fail "warning count"

# a warning never comes without advice
awk '/^(NOTE|WARN)/ {want = NR + 1} NR == want && !/^ +[A-Z]/ {print; bad = 1} END {exit bad}' <<<"$out" || fail "no advice"

if [ -d /dev/shm ] && [ "$(stat -f -c %T /dev/shm)" = tmpfs ]; then
    "$m" doctor /dev/shm | grep -qE "^WARN +file system .*tmpfs" || fail "tmpfs is not called out"
fi
# a file stands for its folder
touch "$work/a file"
"$m" doctor "$work/a file" | grep -q "for '$work'" || fail "a file as path"
mkdir "$work/mit "$'\xff'
"$m" doctor "$work/mit "$'\xff' --json >/dev/null || fail "a path that is not UTF-8"

rc=0; err=$("$m" doctor "$work/nowhere" 2>&1 >/dev/null) || rc=$?
[ $rc = 5 ] || fail "missing path: want exit 5, have $rc"
grep -q "cannot examine '.*nowhere': No such file" <<<"$err" || fail "message: $err"
if [ "$(id -u)" != 0 ]; then
    mkdir -m 0 "$work/closed"
    rc=0; "$m" doctor "$work/closed" >/dev/null 2>&1 || rc=$?
    [ $rc = 5 ] || fail "unreadable path: want exit 5, have $rc"
fi
rc=0; "$m" doctor a b >/dev/null 2>&1 || rc=$?
[ $rc = 2 ] || fail "two paths: want exit 2, have $rc"
echo "doctor: all checks passed"
