#!/usr/bin/env bash
# Rules that ask the file system: data that a program maps and no call reads is missed aloud (VIS1), unless page faults are traced or calls read it.
set -eu
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
command -v python3 >/dev/null || { echo "SKIP: there is no python3"; exit 77; }
head -c 4194304 /dev/urandom >data.bin
cat >maps.py <<'P'
import mmap, os, sys
fd = os.open("data.bin", os.O_RDONLY)
if sys.argv[1] == "reads":
    while os.read(fd, 1 << 20):
        pass
with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as m:
    sum(m[i] for i in range(0, len(m), 4096))
P
for way in maps reads; do "$MILLRACE" -q trace --no-python -o $way.mrt -- python3 maps.py $way || fail "trace"; "$MILLRACE" report $way.mrt --explain VIS1 >$way.txt || fail "report"; done
grep -q "^VIS1 note" maps.txt && grep -q "mapped 4.00 MiB" maps.txt && grep -q "trace --mmap" maps.txt || fail "mapped and not read: $(cat maps.txt)"
grep -q "^VIS1 does not apply" reads.txt || fail "mapped and read: $(cat reads.txt)"
mv data.bin elsewhere # what is not there any more cannot be asked
"$MILLRACE" report maps.mrt --explain VIS1 >gone.txt && grep -q "^VIS1 does not apply" gone.txt || fail "a file that is gone: $(cat gone.txt)"
# a profile that has steps and no loader says so
cat >k.json <<'J'
{"schemaVersion":1,"traceEvents":[
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#0","pid":1,"tid":1,"ts":1000,"dur":100000},
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":101000,"dur":100000}]}
J
"$MILLRACE" report k.json >out || fail "profile"
tr -s '\n ' ' ' <out | grep -q "Incomplete.*the profile has 2 steps and no span of a loader" || fail "profile: $(cat out)"
echo "report, facts of the file system: ok"
