#!/usr/bin/env bash
# Waiting for others is no I/O: every way to wait and every call on sockets is in the trace, exactly as often as it was made; descriptors have
# names that say what they are; the report's I/O holds neither pipes, sockets and terminals nor waits; the mounts of the machine are in the trace.
# test-label: once (the tracer is built without sanitizers: there only in make test-full)
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
lib=${MILLRACE%/bin/millrace}/lib/libmillrace_trace.so
[ -e "$lib" ] || { echo "SKIP: no libmillrace_trace.so beside the program"; exit 77; }
src=$MR_SOURCE_DIR/tests/tracer
${CC:-cc} -O1 -w -D_GNU_SOURCE -o "$dir/waits" "$src/wait_ways.c" -ldl -lpthread

"$dir/waits" >"$dir/names1" || { echo "FAIL: the probe fails without a tracer"; exit 1; }
"$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/waits" >"$dir/names" || { echo "FAIL: the probe fails under the tracer"; exit 1; }
cmp "$dir/names1" "$dir/names" || { echo "FAIL: the probe goes another way under the tracer"; exit 1; }
LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/alone "$dir/waits" >"$dir/names2"
cmp "$dir/names1" "$dir/names2" || { echo "FAIL: the probe goes another way under the library alone"; exit 1; }
for trace in "$dir/t.mrt" "$dir/alone"; do
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$trace"
    python3 "$src/csv_count.py" "$dir/t.csv" >"$dir/seen"
    sort "$dir/names" | uniq -c | while read -r want name; do
        have=$(awk -v n="$name" '$1 == n {print $2}' "$dir/seen")
        [ "${have:-0}" = "$want" ] || { echo "FAIL: $name: want $want, have ${have:-0} ($trace)"; exit 1; }
    done
done
# Addresses of both versions, and of version 4 behind a socket of version 6.
cat >"$dir/both.py" <<'P'
import socket, threading
try:
    s = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
except OSError:
    raise SystemExit(0)
def serve():
    for _ in range(2):
        c, _a = s.accept()
        c.sendall(c.recv(10))
        c.close()
t = threading.Thread(target=serve)
t.start()
for a in ("127.0.0.1", "::1"):
    c = socket.create_connection((a, s.getsockname()[1]))
    c.sendall(b"x")
    c.recv(10)
    c.close()
t.join()
print("both")
P
if [ "$("$MILLRACE" trace --quiet -o "$dir/both.mrt" -- python3 "$dir/both.py")" = both ]; then
    "$MILLRACE" export -f csv -o "$dir/both.csv" "$dir/both.mrt"
    for name in '\[inet 127\.0\.0\.1:[0-9]*\]' '\[inet \[0:0:0:0:0:0:0:1\]:[0-9]*\]'; do
        [ "$(grep -o "socket:$name" "$dir/both.csv" | sort -u | wc -l)" = 2 ] || { echo "FAIL: $name: two ends: $(grep -o 'socket:[^,]*' "$dir/both.csv" | sort -u)"; exit 1; }
    done
fi

python3 - "$dir/t.csv" "$dir/t.mrt" "$dir/alone"/*.mrt <<'P'
import csv, re, struct, sys
rows = list(csv.DictReader(open(sys.argv[1])))
name, path = "name", "file"
of = {}
for r in rows:
    of.setdefault(r[name], set()).add(re.sub(r"\d+", "N", r[path]))
for call in ("recv", "send", "sendmsg", "poll", "select", "ppoll", "accept", "connect"):
    seen = of[call] - {""}
    assert seen and all(p in ("socket:[local N]", "socket:[inet N.N.N.N:N]") for p in seen), (call, of[call])
assert of["epoll_wait"] == {"anon_inode:[eventpoll]"}, of["epoll_wait"]
assert "anon_inode:[eventfd]" in of["read"], of["read"]

def mounts(file):
    data, at, found = open(file, "rb").read(), 64, []
    while at + 64 <= len(data) and data[at:at + 4] == b"MRB1":
        kind, _, size = struct.unpack_from("<HHI", data, at + 4)
        if kind == 6:
            p, end = at + 64, at + 64 + size
            while p < end:
                words = []
                for _ in range(3):
                    n = struct.unpack_from("<H", data, p)[0]
                    words.append(data[p + 2:p + 2 + n].decode(errors="replace"))
                    p += 2 + n
                found.append(tuple(words))
        at += 64 + (size + 7) // 8 * 8
    return found

real = [(l.split(" - ")[1].split()[0], l.split()[4].replace("\\040", " ")) for l in open("/proc/self/mountinfo")]
assert [m[:2] for m in mounts(sys.argv[2])] == real, (mounts(sys.argv[2]), real)
with_table = [f for f in sys.argv[3:] if mounts(f)]
assert len(with_table) == 1 and [m[:2] for m in mounts(with_table[0])] == real, (with_table, sys.argv[3:])
P

io_share() { # trace: the report's I/O in percent of the total
    "$MILLRACE" report --json "$1" | python3 -c '
import json, sys
t = json.load(sys.stdin)

def find(o, key):
    if isinstance(o, dict):
        if key in o: return o[key]
        o = list(o.values())
    for v in o if isinstance(o, list) else []:
        r = find(v, key)
        if r is not None: return r
print(int(100 * find(t, "io_ns") / find(t, "total_time_ns")))'
}
"$MILLRACE" trace --quiet -o "$dir/c.mrt" -- "$dir/waits" child
share=$(io_share "$dir/c.mrt")
[ "$share" -lt 20 ] || { echo "FAIL: one pipe and a sleeping child: I/O is $share % of the time"; exit 1; }

# Workers that hand over what they made through a pipe, the parent reading it: a data loader, without one.
cat >"$dir/workers.py" <<'P'
import os, sys, time
ends = []
for w in range(2):
    r, s = os.pipe()
    if os.fork() == 0:
        os.close(r)
        for i in range(10):
            with open(sys.argv[1], "rb") as f:
                f.read()
            time.sleep(0.02)
            os.write(s, b"x" * 100)
        os._exit(0)
    os.close(s)
    ends.append(r)
for r in ends:
    while os.read(r, 1000):
        pass
while ends:
    os.close(ends.pop())
    os.wait()
P
head -c 200000 /dev/zero >"$dir/data"
python=$(python3 -c 'import sys; print(sys.executable)')
"$MILLRACE" trace --quiet -o "$dir/w.mrt" --include "$dir/*" --include '*pipe*' -- "$python" -S "$dir/workers.py" "$dir/data"
share=$(io_share "$dir/w.mrt")
[ "$share" -lt 40 ] || { echo "FAIL: forked workers: I/O is $share % of the time"; exit 1; }
echo "waiting is no I/O"
