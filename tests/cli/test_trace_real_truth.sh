#!/usr/bin/env bash
# Captured = what the kernel saw: strace counts the calls and bytes on the files of a folder, for one thread, two threads, 8 forked workers,
# Python's workers and, with MR_TEST_FULL=1, PyTorch's DataLoader; the trace of a second run must agree to the call and the byte.
# test-label: once (the tracer is built without sanitizers: there only in make test-full)
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
lib=${MILLRACE%/bin/millrace}/lib/libmillrace_trace.so
[ -e "$lib" ] || { echo "SKIP: no libmillrace_trace.so beside the program"; exit 77; }
command -v strace >/dev/null && strace -o /dev/null true 2>/dev/null || { echo "SKIP: strace is missing or not allowed"; exit 77; }
${CC:-cc} -O1 -D_GNU_SOURCE -pthread -o "$dir/workload" "$MR_SOURCE_DIR/tests/tracer/io_workload.c"
mkdir "$dir/d"
for i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do head -c $((1000 + i)) /dev/zero >"$dir/d/s$i"; done
cat >"$dir/compare.py" <<'P'
import collections, csv, re, sys
strace, trace, folder = sys.argv[1:4]
same = {"openat": "open", "pread64": "pread", "pwrite64": "pwrite", "newfstatat": "stat", "fstatat": "stat", "fstat": "stat", "creat": "open", "openat2": "open"}
kinds = {"open", "read", "pread", "write", "pwrite", "lseek", "readv"}
truth, have = collections.Counter(), collections.Counter()
held = {}  # a call that another thread interrupts is printed in two parts
for line in open(strace, errors="replace"):
    pid, rest = line.split(None, 1)
    if rest.endswith("<unfinished ...>\n"):
        held[pid] = rest[: -len("<unfinished ...>\n")]
        continue
    part = re.match(r"<\.\.\. \w+ resumed>(.*)", rest, re.S)
    rest = held.pop(pid, "") + part.group(1) if part else rest
    call = re.match(r"(\w+)\((.*)\) += (-?\d+)", rest, re.S)
    if not call or folder + "/" not in call.group(2):
        continue
    name = same.get(call.group(1), call.group(1))
    if name in kinds and (name == "open" or folder + "/" in call.group(2).split(",")[0]):
        truth[name, "calls"] += 1
        truth[name, "bytes"] += max(0, int(call.group(3))) if name != "open" and name != "lseek" else 0
for row in csv.DictReader(open(trace, newline="", errors="surrogateescape")):
    name = same.get(row["name"], row["name"])
    if name in kinds and row["category"] == "POSIX" and row["file"].startswith(folder + "/"):
        have[name, "calls"] += 1
        have[name, "bytes"] += max(0, int(row["result"])) if name != "open" and name != "lseek" else 0
assert truth["open", "calls"] and +truth == +have, "strace: %s\ntrace: %s" % (sorted(truth.items()), sorted(have.items()))
print(" ".join("%s %d" % (k[0], v) for k, v in sorted(truth.items()) if k[1] == "calls"))
P
checked=
agree() { # name, command...
    local name=$1
    shift
    strace -f -qq -y -e trace=open,openat,openat2,creat,read,pread64,readv,write,pwrite64,lseek -o "$dir/strace" "$@" >/dev/null
    "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$@" >/dev/null
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$dir/t.mrt"
    counts=$(python3 "$dir/compare.py" "$dir/strace" "$dir/t.csv" "$dir/d") || { echo "FAIL: $name"; exit 1; }
    echo "$name: $counts"
    checked="$checked $name"
}
for mode in single threads forks; do agree $mode "$dir/workload" $mode "$dir/d/s1" 100; done
cat >"$dir/w.py" <<'S'
import multiprocessing, sys
def work(n):
    for i in range(16):
        with open("%s/s%d" % (sys.argv[2], i), "rb") as f:
            f.read(100); f.seek(500); f.read()
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    workers = [context.Process(target=work, args=(i,)) for i in range(3)]
    for w in workers: w.start()
    for w in workers: w.join()
S
for way in fork forkserver spawn; do agree python-$way python3 "$dir/w.py" $way "$dir/d"; done
cat >"$dir/l.py" <<'S'
import sys, torch
from torch.utils.data import DataLoader, Dataset
class Files(Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, i):
        with open("%s/s%d" % (sys.argv[2], i), "rb") as f:
            return len(f.read())
if __name__ == "__main__":
    for epoch in range(2):
        assert sum(int(x.sum()) for x in DataLoader(Files(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])) == 16120
S
if [ -n "${MR_TEST_FULL:-}" ]; then
    python=python3
    for p in ${MR_TEST_PYTHONS:-} /usr/bin/python3 python3; do $p -c 'import torch' 2>/dev/null && { python=$p; break; }; done
    if $python -c 'import torch' 2>/dev/null; then
        for way in fork forkserver spawn; do agree torch-$way $python "$dir/l.py" $way "$dir/d"; done
    else
        echo "not checked: PyTorch is not installed"
    fi
fi
echo "captured = strace:$checked"
