#!/usr/bin/env bash
# --mmap: page faults of mapped files come with file, offset, thread and process, exactly the pages that were touched; filters apply; a static
# program is seen as well; the report counts them per file.
# test-label: once (the tracer is built without sanitizers: there only in make test-full)
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
lib=${MILLRACE%/bin/millrace}/lib/libmillrace_trace.so
[ -e "$lib" ] || { echo "SKIP: no libmillrace_trace.so beside the program"; exit 77; }
fail() { echo "FAIL: $*"; exit 1; }
cc=${CC:-cc}
$cc -O1 -D_GNU_SOURCE -pthread -o "$dir/touch" "$MR_SOURCE_DIR/tests/tracer/touch_pages.c"
truncate -s 32M "$dir/data"
"$MILLRACE" trace --mmap -o "$dir/t.mrt" -- "$dir/touch" "$dir/data" 2>"$dir/err" || fail "status $?"
if grep -q 'page faults are not recorded' "$dir/err"; then echo "SKIP: $(cat "$dir/err")"; exit 77; fi

# Through a mapping that mremap moved and extended.
"$MILLRACE" trace --quiet --mmap -o "$dir/moved.mrt" -- "$dir/touch" "$dir/data" moved || fail "moved: status $?"
"$MILLRACE" export -f csv -o "$dir/t.csv" "$dir/moved.mrt"
python3 - "$dir/t.csv" "$dir/data" <<'P' || fail "faults behind mremap"
import csv, sys
rows = [r for r in csv.DictReader(open(sys.argv[1], newline="")) if r["category"] == "MMAP" and r["file"] == sys.argv[2]]
pages = [int(r["offset_bytes"]) // 4096 for r in sorted(rows, key=lambda r: int(r["start_unix_ns"]))]
assert pages == [3, 20, 40, 1000, 60], pages
P

check() { # trace
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$1"
    python3 - "$dir/t.csv" "$dir/data" <<'P'
import csv, sys
rows = [r for r in csv.DictReader(open(sys.argv[1], newline="")) if r["category"] == "MMAP" and r["file"] == sys.argv[2]]
rows.sort(key=lambda r: int(r["start_unix_ns"]))
pages = [int(r["offset_bytes"]) / 4096 for r in rows]
assert pages == [3, 1027, 2050, 3075, 5125], pages
assert all(r["result"] == "4096" and r["name"] in ("minor_fault", "major_fault") for r in rows), rows
pids, tids = [r["pid"] for r in rows], [r["tid"] for r in rows]
assert pids[0] == pids[1] == pids[2] and pids[3] == pids[4] != pids[0], pids
assert tids[0] == tids[1] == pids[0] and tids[2] not in (tids[0], tids[3]), tids
P
}
check "$dir/t.mrt" || fail "other pages than those touched"
"$MILLRACE" report --json "$dir/t.mrt" | python3 -c '
import json, sys
r = json.load(sys.stdin)
assert r["processes"] == 2 and r["threads"] == 3, (r["processes"], r["threads"])
f = [f for f in r["top_files"] if f["path"].endswith("/data")][0]
assert f["read_bytes"] == 5 * 4096, f
assert sum(f["count"] for f in r["functions"] if f["category"] == "MMAP") >= 5' || fail "the report does not count faults"
"$MILLRACE" export -f pfw -o "$dir/t.pfw.gz" "$dir/t.mrt"
check "$dir/t.pfw.gz" || fail "the .pfw export lost faults"

"$MILLRACE" trace --quiet --mmap --include "$dir/dat*" -o "$dir/t.mrt" -- "$dir/touch" "$dir/data"
check "$dir/t.mrt" || fail "--include lost faults"
"$MILLRACE" export -f csv -o - "$dir/t.mrt" | grep -q 'libc.so' && fail "--include let another file in"
"$MILLRACE" trace --quiet --mmap --exclude "$dir/*" -o "$dir/t.mrt" -- "$dir/touch" "$dir/data"
"$MILLRACE" export -f csv -o - "$dir/t.mrt" | grep -q "$dir/data" && fail "--exclude did not exclude"

if $cc -O1 -D_GNU_SOURCE -static -pthread -o "$dir/static" "$MR_SOURCE_DIR/tests/tracer/touch_pages.c" 2>/dev/null; then
    "$MILLRACE" trace --mmap -o "$dir/t.mrt" -- "$dir/static" "$dir/data" 2>"$dir/err"
    check "$dir/t.mrt" || fail "faults of a static program"
    grep -q 'only its page faults were recorded' "$dir/err" || fail "what was not seen is not said"
else
    echo "note: no static C library here; static programs were not tried"
fi
# The list of a variable counts for faults as for calls; alone, the library says that it does not see them.
MILLRACE_TRACE_INCLUDE="/no/such/*:$dir/{dat,more}*" "$MILLRACE" trace --quiet --mmap -o "$dir/t.mrt" -- "$dir/touch" "$dir/data"
check "$dir/t.mrt" || fail "MILLRACE_TRACE_INCLUDE lost faults"
LD_PRELOAD=$lib MILLRACE_TRACE_MMAP=1 MILLRACE_TRACE_OUT=$dir/alone "$dir/touch" "$dir/data" 2>"$dir/err" >/dev/null
grep -q 'MILLRACE_TRACE_MMAP: the library alone does not record page faults' "$dir/err" || fail "MILLRACE_TRACE_MMAP without the command: $(cat "$dir/err")"
echo "faults are seen"
