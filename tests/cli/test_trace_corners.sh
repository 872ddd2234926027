#!/usr/bin/env bash
# Corners: inlined stream functions, children in the parent's memory, programs that forbid themselves system calls, handlers at every instruction, a changing environment, exec
# that fails or goes by number, another root, registered files of io_uring, data sets of HDF5 under a path filter. With the command and with the
# library alone; the programs end as they do without the tracer.
# test-label: once (long under sanitizers: there only in make test-full)
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
lib=${MILLRACE%/bin/millrace}/lib/libmillrace_trace.so
[ -e "$lib" ] || { echo "SKIP: no libmillrace_trace.so beside the program"; exit 77; }
src=$MR_SOURCE_DIR/tests/tracer
cc=${CC:-cc}
$cc -O2 -w -pthread -o "$dir/corner" "$src/corner_ways.c"
echo content >"$dir/data"
fail() { echo "FAIL $*"; exit 1; }

traced() { # way, name; leaves counts of the calls on the file in $dir/seen
    if [ "$1" = command ]; then
        timeout 60 "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/corner" "$2" "$dir/data" >"$dir/out" 2>"$dir/err"
    else
        rm -rf "$dir/alone" "$dir/t.mrt"
        LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/alone timeout 60 "$dir/corner" "$2" "$dir/data" >"$dir/out" 2>"$dir/err" || return
        "$MILLRACE" recover --out "$dir/t.mrt" "$dir/alone" >/dev/null
    fi
}
count() { # arguments of csv_count.py
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$dir/t.mrt"
    python3 "$src/csv_count.py" "$dir/t.csv" "$@" >"$dir/seen"
}

for way in command alone; do
    traced $way inlined || fail "$way: inlined"
    "$MILLRACE" report --json "$dir/t.mrt" | python3 -c '
import json, sys
f = {x["name"]: x["bytes"] for x in json.load(sys.stdin)["functions"]}
assert f.get("getc") == 10000 and f.get("putc") == 10000, f' || fail "$way: bytes of inlined stream functions"
    traced $way mixed || fail "$way: mixed"
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$dir/t.mrt"
    python3 - "$dir" <<'EOF' || fail "$way: bytes of inlined stream functions among others"
import csv, sys
def moved(file, names):
    rows = csv.DictReader(open(sys.argv[1] + "/t.csv", newline=""))
    return sum(int(r["result"]) for r in rows if r["file"] == sys.argv[1] + file and r["name"] in names)
n = int(open(sys.argv[1] + "/out").read())
assert moved("/data.out", ("putc", "fprintf")) == n, (n, moved("/data.out", ("putc", "fprintf")))
assert moved("/data.out", ("getc", "fgets")) == n, (n, moved("/data.out", ("getc", "fgets")))
assert moved("/out", ("printf", "putc")) == len(str(n)) + 2, moved("/out", ("printf", "putc"))
EOF
    traced $way shared || fail "$way: a child in the same memory"
    count --file "$dir/data"
    grep -qx 'pread 40010' "$dir/seen" || fail "$way: a child in the same memory took events with it: $(tr '\n' ' ' <"$dir/seen")"
    for name in strict filter filter2; do
        status=0
        "$dir/corner" $name "$dir/data" >"$dir/plain" || status=$?
        [ $status = 77 ] && continue
        traced $way $name || fail "$way: a program that confines itself ($name) ends with $?"
        cmp -s "$dir/plain" "$dir/out" || fail "$way: output of $name"
        [ "$(grep -c 'millrace trace:' "$dir/err")" = 1 ] || fail "$way: $name is not said in one line: $(cat "$dir/err")"
        count --file "$dir/data"
        grep -qx 'open 1' "$dir/seen" || fail "$way: $name lost what came before"
    done
    if "$dir/corner" filtered "$dir/data"; then
        traced $way filtered || fail "$way: filtered"
        count --file "$dir/data"
        grep -qx 'pread 100' "$dir/seen" && [ ! -s "$dir/err" ] || fail "$way: a filter that allows all we need ends tracing"
    fi
    traced $way nomemory || fail "$way: a program without memory ends with $?"
    count --file "$dir/data"
    grep -qx 'pread 3000' "$dir/seen" || fail "$way: a program without memory has no names: $(tr '\n' ' ' <"$dir/seen")"
    status=0
    "$dir/corner" crowded "$dir/data" || status=$?
    if [ $status = 0 ]; then
        traced $way crowded || fail "$way: a program without free descriptors ends with $?"
        count --file "$dir/data"
        grep -qx 'pread 50' "$dir/seen" && [ ! -s "$dir/err" ] || fail "$way: a program without free descriptors: $(cat "$dir/seen" "$dir/err" | tr '\n' ' ')"
    fi
    status=0
    "$dir/corner" smallfiles "$dir/data" || status=$?
    if [ $status = 0 ]; then
        traced $way smallfiles || fail "$way: children under a limit of file sizes end with $?"
        count --file "$dir/data"
        grep -qx 'pread 50' "$dir/seen" || fail "$way: children under a limit of file sizes: $(cat "$dir/seen" "$dir/err" | tr '\n' ' ')"
    fi
    traced $way cleared || fail "$way: a program without an environment ends with $?"
    count --file "$dir/data"
    grep -qx 'pread 18' "$dir/seen" || fail "$way: children of a program without an environment: $(tr '\n' ' ' <"$dir/seen")"
    "$dir/corner" stack "$dir/data" || fail "a handler with little stack fails without the tracer: $?"
    traced $way stack || fail "$way: a handler with little stack ends with $?"
    count --file "$dir/data"
    grep -qx 'pread 6' "$dir/seen" || fail "$way: a handler with little stack: $(tr '\n' ' ' <"$dir/seen")"
    traced $way together || fail "$way: threads that begin a forked child end it with $?"
    count --file "$dir/data"
    grep -qx 'pread 5502' "$dir/seen" && [ ! -s "$dir/err" ] || fail "$way: threads that begin a forked child: $(cat "$dir/seen" "$dir/err" | tr '\n' ' ')"
    traced $way handler || fail "$way: children of a handler end with $?"
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$dir/t.mrt"
    # shellcheck disable=SC2046 # two numbers, two arguments
    python3 - "$dir/t.csv" $(cat "$dir/out") <<'P' || fail "$way: children of a handler"
import csv, sys
rows = [r for r in csv.DictReader(open(sys.argv[1], newline="")) if r["name"] == "pread"]
first = [r for r in rows if r["offset_bytes"] == "0"]
second = [r for r in rows if r["offset_bytes"] == "1"]
mine, theirs = int(sys.argv[2]), int(sys.argv[3])
# A child may also record the call it was forked in.
assert mine <= len(first) <= mine + theirs // 50 and len(second) == theirs, (len(first), mine, len(second), theirs)
P
    traced $way names || fail "$way: names that are made anew: $?"
    count --file "$dir/data"
    grep -qx 'pread 7' "$dir/seen" || fail "$way: names that are made anew: $(tr '\n' ' ' <"$dir/seen")"
    for name in refused cancelled dispatched locked; do
        status=0
        "$dir/corner" $name "$dir/data" >"$dir/plain" || status=$?
        traced $way $name && got=0 || got=$?
        [ $got = $status ] && cmp -s "$dir/plain" "$dir/out" || fail "$way: $name: ends with $got instead of $status: $(diff "$dir/plain" "$dir/out")"
    done
    status=0
    "$dir/corner" locked "$dir/data" || status=$?
    if [ $status = 0 ]; then
        traced $way locked || fail "$way: a program that locks its memory ends with $?"
        count --file "$dir/data"
        grep -qx 'pread 205' "$dir/seen" && [ ! -s "$dir/err" ] || fail "$way: a program that locks its memory: $(cat "$dir/seen" "$dir/err" | tr '\n' ' ')"
    fi
    traced $way refused || fail "$way: refused"
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$dir/t.mrt"
    python3 - "$dir" <<'P' || fail "$way: calls that fail in a program of one thread"
import csv, sys
said = [l.split() for l in open(sys.argv[1] + "/out")]
want = [(l[0].split("(")[0], -int(l[-1]) if l[-2] == "-1" else int(l[-2])) for l in said]
rows = [r for r in csv.DictReader(open(sys.argv[1] + "/t.csv", newline="")) if r["name"] in ("read", "write", "pread", "pwrite", "lseek")]
have = [(r["name"], int(r["result"])) for r in rows if not r["file"].endswith("/out")]
at = next((i for i in range(len(have)) if have[i] == want[0]), 0)
assert len(want) == 36 and have[at:at + len(want)] == want, (want, have)
P
    traced $way environment || fail "$way: a changed environment"
    traced $way execs || fail "$way: execs"
    count --file "$dir/data"
    grep -qE ',execve,/nonexistent/program,,-[0-9]+,' "$dir/t.csv" || fail "$way: an exec that failed shows as done: $(grep exec "$dir/t.csv")"
    grep -qE ',execvp,[^,]*no-such-program-anywhere,,-[0-9]+,' "$dir/t.csv" || fail "$way: an execvp that failed shows as done"
    grep -qx 'open 1' "$dir/seen" || fail "$way: the program started by syscall(2) with an empty environment was not traced: $(cat "$dir/seen")"
done

# Another root: the loader there cannot find the tracer and must not be told to look for it.
if [ "$(id -u)" = 0 ] && command -v chroot >/dev/null && loader=$(ls /lib64/ld-linux-x86-64.so.2 2>/dev/null); then
    mkdir -p "$dir/root/lib64" "$dir/root/bin"
    cp "$loader" "$dir/root/lib64/"
    cp /bin/true "$dir/root/bin/"
    for l in $(ldd /bin/true | grep -oE '/[^ ]+\.so[^ ]*'); do
        mkdir -p "$dir/root${l%/*}"
        cp "$l" "$dir/root$l"
    done
    if chroot "$dir/root" /bin/true 2>/dev/null; then
        "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- chroot "$dir/root" /bin/true 2>"$dir/err" || fail "chroot: status $?"
        ! grep -q 'ld.so' "$dir/err" || fail "chroot: the loader complains: $(cat "$dir/err")"
        [ "$(grep -c 'runs untraced' "$dir/err")" = 1 ] || fail "chroot: not said: $(cat "$dir/err")"
    fi
fi

# The loader as a program loads the tracer.
if loader=$(ls /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1 2>/dev/null | head -n 1) && [ -n "$loader" ]; then
    "$MILLRACE" trace -o "$dir/t.mrt" -- sh -c '"$1" /bin/cat "$2"; :' sh "$loader" "$dir/data" >"$dir/out" 2>"$dir/err"
    cmp -s "$dir/data" "$dir/out" || fail "a program started by the loader: output"
    ! grep -q 'cannot load the tracer' "$dir/err" || fail "a program started by the loader is said to be untraced: $(cat "$dir/err")"
    count --file "$dir/data"
    grep -qx 'open 1' "$dir/seen" || fail "a program started by the loader is not traced: $(tr '\n' ' ' <"$dir/seen")"
fi

# A sanitized program with a cleaned environment, and with the library alone.
printf '#include <unistd.h>\nint main(void) { return access("/", F_OK); }\n' >"$dir/a.c"
if $cc -fsanitize=address -o "$dir/a" "$dir/a.c" 2>/dev/null && "$dir/a"; then
    "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- env -i "$dir/a" || fail "a sanitized program with an empty environment"
    LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/alone "$dir/a" || fail "a sanitized program with the library alone"
fi

if $cc -w -o "$dir/ring" "$src/ring_ways.c" -luring 2>/dev/null; then
    for name in fixed deep quiet bad; do
        status=0
        timeout 60 "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/ring" $name "$dir/data" </dev/null >"$dir/names" || status=$?
        [ $status = 77 ] && continue
        [ $status = 0 ] || fail "io_uring $name: status $status"
        count --file "$dir/data"
        while read -r call n; do
            grep -qx "$call $n" "$dir/seen" || fail "io_uring $name: want $n of $call, have: $(tr '\n' ' ' <"$dir/seen")"
        done <"$dir/names"
        ! grep -q '^read ' "$dir/seen" || fail "io_uring $name: standard input was taken for a file of the ring"
    done
fi
h5=$(pkg-config --libs hdf5-serial 2>/dev/null || pkg-config --libs hdf5 2>/dev/null || true)
h5_flags=$(pkg-config --cflags hdf5-serial 2>/dev/null || pkg-config --cflags hdf5 2>/dev/null || true)
if $cc -w -D_GNU_SOURCE -DLAYER_HDF5 $h5_flags -o "$dir/h5" "$src/layers.c" $h5 2>/dev/null; then
    "$MILLRACE" trace --quiet --include "$dir/*.h5" -o "$dir/t.mrt" -- "$dir/h5" "$dir/data" >/dev/null
    count --file "$dir/data.h5:/x"
    grep -qx 'H5Dread 3' "$dir/seen" || fail "HDF5: a filter by the file's path loses its data sets: $(tr '\n' ' ' <"$dir/seen")"
    "$MILLRACE" trace --quiet --exclude '*.h5' -o "$dir/t.mrt" -- "$dir/h5" "$dir/data" >/dev/null
    count
    ! grep -qE '^H5(F|Dread|Dwrite|Dclose|O)' "$dir/seen" || fail "HDF5: an excluded file's data sets are recorded"
fi

# What a filter by path sees: the file behind "..", no streams in memory, no closed descriptors it does not know; and where chdir went.
mkdir "$dir/in" "$dir/other"
echo a >"$dir/in/a"
echo b >"$dir/other/b"
cat >"$dir/f.c" <<'S'
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    char b[4] = "xyz";
    int s[2];
    FILE *m = fmemopen(b, 4, "r");
    getc(m);
    fclose(m);
    socketpair(AF_UNIX, SOCK_STREAM, 0, s);
    close(s[0]);
    close(s[1]);
    if (chdir(argv[argc - 1]) < 0 || chdir("in") < 0)
        return 1;
    read(open("../other/b", O_RDONLY), b, 1);
    read(open("../in/a", O_RDONLY), b, 1);
    int fd = open("a", O_RDONLY);
    char again[64];
    snprintf(again, sizeof(again), "/proc/self/fd/%d", fd);
    pread(open(again, O_RDONLY), b, 1, 0);
    fd = open(".", O_TMPFILE | O_RDWR, 0600);
    if (fd >= 0)
        pwrite(fd, b, 1, 0);
    return 0;
}
S
$cc -w -o "$dir/f" "$dir/f.c"
"$MILLRACE" trace --quiet --include "$dir/in*" -o "$dir/t.mrt" -- "$dir/f" "$dir"
"$MILLRACE" export -f csv -o "$dir/t.csv" "$dir/t.mrt"
python3 - "$dir" "$dir/t.csv" <<'P'
import csv, sys
rows = [(r["name"], r["file"]) for r in csv.DictReader(open(sys.argv[2], newline=""))]
d = sys.argv[1]
want = [("chdir", d + "/in"), ("open", d + "/in/a"), ("read", d + "/in/a"), ("open", d + "/in/a"), ("open", d + "/in/a"), ("pread", d + "/in/a")]
named = [r for r in rows if r[0] != "close" or r[1]]
assert named[:6] == want, rows
# Without O_TMPFILE in the file system the open of the folder fails.
assert [r[0] for r in named[6:]] in (["open"], ["open", "pwrite"]) and (len(named) == 7 or named[6][1].startswith(d + "/in/#")), rows
assert not [r for r in rows if r[0] in ("close", "fclose", "getc", "fmemopen") and not r[1]], rows
P

# A trace whose rings nobody has written out is told of.
LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/killed sh -c 'cat "$1" >/dev/null; kill -9 $$' sh "$dir/data" 2>/dev/null || true
"$MILLRACE" report "$dir/killed" 2>"$dir/err" >/dev/null || true
grep -q 'millrace recover' "$dir/err" || fail "a killed program's rings are not told of: $(cat "$dir/err")"
"$MILLRACE" recover "$dir/killed" >/dev/null
"$MILLRACE" report "$dir/killed" 2>"$dir/err" >/dev/null
[ ! -s "$dir/err" ] || fail "a recovered trace is said to be incomplete: $(cat "$dir/err")"

# Programs the tracer cannot be in are named: started by a script's first line, and with the library alone.
printf 'int main(void) { return 0; }\n' >"$dir/s.c"
if $cc -static -o "$dir/static" "$dir/s.c" 2>/dev/null; then
    printf '#!%s\n' "$dir/static" >"$dir/script"
    chmod +x "$dir/script"
    "$MILLRACE" trace -o "$dir/t.mrt" -- sh -c '"$1"; "$1"; :' sh "$dir/script" 2>"$dir/err"
    grep -q "2 times: '$dir/static'" "$dir/err" || fail "a static program behind a script is not named: $(cat "$dir/err")"
    rm -rf "$dir/alone"
    LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/alone sh -c '"$1"; :' sh "$dir/static"
    "$MILLRACE" report "$dir/alone" 2>"$dir/err" >/dev/null
    grep -q "1 time: '$dir/static'" "$dir/err" || fail "a static program is not named with the library alone: $(cat "$dir/err")"
fi

# Calls on mapped files have the file's name, also behind a moved mapping; those on other memory are not I/O.
cat >"$dir/m.c" <<'S'
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int fd = open(argv[argc - 1], O_RDWR);
    char *m = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    char *a = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(a, 4096, MADV_DONTNEED);
    munmap(a, 65536);
    msync(m + 4096, 4096, MS_ASYNC);
    munmap(m + 32768, 4096);
    m = mremap(m, 32768, 1 << 20, MREMAP_MAYMOVE);
    msync(m + 65536, 4096, MS_ASYNC);
    syscall(SYS_munmap, m, 1 << 20);
    return madvise(m, 4096, MADV_RANDOM) == 0;
}
S
$cc -w -o "$dir/m" "$dir/m.c"
head -c 65536 /dev/zero >"$dir/mapped"
"$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/m" "$dir/mapped"
count --file "$dir/mapped"
[ "$(tr '\n' ' ' <"$dir/seen")" = "close 1 mmap 1 mremap 1 msync 2 munmap 2 open 1 pids 1 " ] || fail "calls on a mapped file: $(tr '\n' ' ' <"$dir/seen")"
count
! grep -q madvise "$dir/seen" && grep -qx 'munmap 2' "$dir/seen" || fail "calls on memory that is no file's: $(tr '\n' ' ' <"$dir/seen")"

# An error that is returned and happens to be 1, with errno 0.
cat >"$dir/m.c" <<'S'
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
int main(void)
{
    int fd = memfd_create("sealed", MFD_ALLOW_SEALING);
    fcntl(fd, F_ADD_SEALS, F_SEAL_GROW);
    errno = 0;
    return posix_fallocate(fd, 0, 4096) != EPERM || errno;
}
S
$cc -w -o "$dir/m" "$dir/m.c"
"$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/m" || fail "posix_fallocate of a sealed file"
"$MILLRACE" export -f csv -o "$dir/t.csv" "$dir/t.mrt"
grep -q ',posix_fallocate,.*,-1,4096,' "$dir/t.csv" || fail "the error of posix_fallocate: $(grep fallocate "$dir/t.csv")"

# Another library that puts itself in the way of the C library's own code.
if [ "$(uname -m)" = x86_64 ]; then
    cat >"$dir/m.c" <<'S'
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    char b[6];
    int fd = open(argv[argc - 1], O_RDONLY), all = 1;
    for (int i = 0; i < 3; i++)
        all &= pread(fd, b, 6, 0) == 6 && !memcmp(b, "hooked", 6);
    return !all;
}
S
    $cc -O2 -w -o "$dir/m" "$dir/m.c"
    $cc -O2 -w -shared -fPIC -o "$dir/hook.so" "$src/hook_ways.c"
    LD_PRELOAD=$dir/hook.so "$dir/m" "$dir/data" || fail "the hook does not work without the tracer"
    "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- env LD_PRELOAD="$dir/hook.so" "$dir/m" "$dir/data" || fail "a hook in the C library is passed by"
fi

# A filter that asks where a call comes from.
if [ "$(uname -m)" = x86_64 ]; then
    $cc -O2 -w -o "$dir/m" "$src/confined_code.c"
    "$dir/m" "$dir/data" || fail "the filter does not work without the tracer"
    "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/m" "$dir/data" || fail "a call comes from elsewhere than the C library"
    count --file "$dir/data"
    grep -qx 'pread 2' "$dir/seen" || fail "under a filter that asks where a call comes from: $(tr '\n' ' ' <"$dir/seen")"
fi

# A handler at every instruction of a call: it forks, or records on its own.
if [ "$(uname -m)" = x86_64 ]; then
    $cc -O2 -w -o "$dir/step" "$src/step_ways.c"
    head -c 65536 /dev/zero >"$dir/mapped"
    for way in fork record; do
        for call in pread far end refused lseek fsync rename; do
            timeout 120 "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/step" $way $call "$dir/mapped" "$dir/data" >"$dir/out" 2>"$dir/err" ||
                fail "a handler that does a $way in $call: $(tail -n 2 "$dir/err")"
            "$MILLRACE" export -f csv -o "$dir/t.csv" "$dir/t.mrt"
            python3 - "$dir" $way $call <<'P' || fail "events of a handler that does a $way in $call"
import csv, sys
folder, way, call = sys.argv[1:]
name = {"far": "pread", "end": "pread", "refused": "pread", "fsync": "fdatasync"}.get(call, call)
rows = list(csv.DictReader(open(folder + "/t.csv", newline="")))
parent = next(r["pid"] for r in rows if r["name"] == "open" and r["file"] == folder + "/mapped")
rounds = int(open(folder + "/out").read())
def count(name, file):
    return sum(r["name"] == name and r["pid"] == parent and r["file"] == file for r in rows)
have = count(name, folder + "/mapped"), count("fork", ""), count("pread", folder + "/data")
want = rounds + 1, (rounds - 1) * (way == "fork"), (rounds - 1) * (way == "record")
assert rounds > 50 and have == want, (have, want)
names = {r["name"] for r in rows if r["file"] == folder + "/mapped"}
assert names == {"open", name}, names
P
        done
    done
fi
echo "corners hold"
