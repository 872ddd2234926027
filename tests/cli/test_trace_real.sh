#!/usr/bin/env bash
# Real programs under the tracer: output and exit status are the same, and what unusual ones do is counted exactly. Neighbours: sanitizers,
# jemalloc, another preloaded library, cleaned environments, setuid. MR_TEST_FULL=1 adds Python's own test suites, test by test.
# test-label: once (long under sanitizers: there only in make test-full)
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
lib=${MILLRACE%/bin/millrace}/lib/libmillrace_trace.so
[ -e "$lib" ] || { echo "SKIP: no libmillrace_trace.so beside the program"; exit 77; }
cc=${CC:-cc}
src=$MR_SOURCE_DIR/tests/tracer
checked=
left_out=
fail() { echo "FAIL: $*"; exit 1; }
run() { "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$@"; }
rows() { "$MILLRACE" export -f csv -o - "$1" | tail -n +2; }

# Output and status three times: bare, with the collector, with the library alone. The folder is the same and fresh each time.
thrice() { # name, command with {} for the folder
    local name=$1 way status
    shift
    for way in bare traced alone; do
        rm -rf "$dir/w" "$dir/alone.mrt"
        mkdir "$dir/w"
        status=0
        case $way in
        bare) "${@//\{\}/$dir/w}" ;;
        traced) "$MILLRACE" trace --quiet -o "$dir/$name.mrt" -- "${@//\{\}/$dir/w}" ;;
        alone) rm -rf "$dir/$name.alone"; LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/$name.alone "${@//\{\}/$dir/w}" ;;
        esac </dev/null >"$dir/$name.$way.out" 2>"$dir/$name.$way.err" || status=$?
        echo "status $status" >>"$dir/$name.$way.out"
        diff "$dir/$name.bare.out" "$dir/$name.$way.out" >&2 || fail "$name: $way differs (stderr: $(head -c 500 "$dir/$name.$way.err"))"
    done
    checked="$checked $name"
}

$cc -O1 -w -pthread -o "$dir/odd_ways" "$src/odd_ways.c"
thrice odd_ways "$dir/odd_ways" {}
"$MILLRACE" recover "$dir/odd_ways.alone" >/dev/null
for way in traced alone; do
    trace=$dir/odd_ways.$way
    [ $way = alone ] || trace=$dir/odd_ways.mrt
    "$MILLRACE" report "$trace" | grep -q 'none lost' || fail "odd_ways $way: events were lost"
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$trace"
    cat >"$dir/want" <<T
race open 16001
race read 16000
race close 16001
sigsrc pread 200000
jumpout write 200
$(grep '^sigout' "$dir/odd_ways.$way.err")
d1 read 1
d2 read 2
iov open 59
iov read 6
iov readv 5
iov preadv2 1
sparse pwrite 1
forked write 1
daemon open 1
daemon write 1
map mmap 1
stdio fprintf 50
stdio fgets 51
threads open 1651
threads pread 32000
threads close 1651
T
    python3 - "$dir/t.csv" "$dir/w/" "$dir/want" <<'P' || fail "odd_ways $way"
import collections, csv, sys
have = collections.Counter()
rows = csv.reader(open(sys.argv[1], newline="", errors="surrogateescape"))
at_file, at_name = map(next(rows).index, ("file", "name"))
for row in rows:
    if row[at_file].startswith(sys.argv[2]):
        have[row[at_file][len(sys.argv[2]):], row[at_name]] += 1
for line in open(sys.argv[3]):
    file, call, want = line.split()
    assert have[file, call] == int(want), "want %s of %s on '%s', have %d" % (want, call, file, have[file, call])
P
done

thrice programs bash "$src/real_programs.sh" {}/s

# Neighbours.
cat >"$dir/one.c" <<'S'
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    char *b = malloc(100);
    int fd = open(argv[1], O_RDONLY);
    ssize_t n = read(fd, b, 100);
    close(fd);
    printf("%zd\n", n);
    free(b);
    if (argc > 2)
        printf("%d\n", *(volatile char *)b);
    return 0;
}
S
echo hello >"$dir/in"
seen() { # name: the last trace holds open, read and close of the file
    [ "$(rows "$dir/t.mrt" | grep -c "$dir/in,")" = 3 ] || fail "$1: want 3 calls on the file, have $(rows "$dir/t.mrt" | grep -c "$dir/in,")"
    checked="$checked $1"
}
$cc -w -o "$dir/one" "$dir/one.c"
for sanitizer in address thread undefined; do
    if $cc -w -g -fsanitize=$sanitizer -o "$dir/san" "$dir/one.c" 2>/dev/null && "$dir/san" "$dir/in" >/dev/null 2>&1; then
        [ "$(run "$dir/san" "$dir/in")" = 6 ] || fail "-fsanitize=$sanitizer: output"
        seen "sanitizer-$sanitizer"
        if [ $sanitizer = address ]; then # it still finds what it is for
            run "$dir/san" "$dir/in" x >/dev/null 2>"$dir/err" && fail "a use after free went unnoticed"
            grep -q heap-use-after-free "$dir/err" || fail "no report of a use after free"
        fi
    else
        left_out="$left_out -fsanitize=$sanitizer"
    fi
done
# A thread sanitizer sees the program's threads, not what ours do with the tracer's memory.
cat >"$dir/threads.c" <<'S'
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static const char *file;
static int shared;
static void *work(void *racing)
{
    char b[8];
    for (int i = 0; i < 300; i++) {
        int fd = open(file, O_RDONLY);
        FILE *f = fopen(file, "r");
        if (pread(fd, b, sizeof b, 0) < 0 || !f || !fgets(b, sizeof b, f))
            return NULL;
        fclose(f);
        close(fd);
        if (racing)
            shared++;
    }
    return NULL;
}
int main(int argc, char **argv)
{
    pthread_t t[4];
    file = argv[1];
    for (int i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, work, argc > 2 ? &shared : NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    pid_t p = fork();
    if (!p)
        return open(file, O_RDONLY) < 0;
    int status = -1;
    waitpid(p, &status, 0);
    printf("ended %d\n", status);
    return 0;
}
S
if $cc -w -g -pthread -fsanitize=thread -o "$dir/tsan" "$dir/threads.c" 2>/dev/null && "$dir/tsan" "$dir/in" >/dev/null 2>&1; then
    run "$dir/tsan" "$dir/in" >"$dir/out" 2>&1 || fail "a thread sanitizer complains: $(head -n 30 "$dir/out")"
    [ "$(cat "$dir/out")" = "ended 0" ] || fail "a thread sanitizer: $(head -n 30 "$dir/out")"
    [ "$(rows "$dir/t.mrt" | grep -c "pread,$dir/in,")" = 1200 ] || fail "threads under a sanitizer: $(rows "$dir/t.mrt" | grep -c "pread,$dir/in,") of 1200 reads"
    rm -rf "$dir/alone"
    LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/alone "$dir/tsan" "$dir/in" >"$dir/out" 2>&1 || fail "a thread sanitizer, library alone: $(head -n 30 "$dir/out")"
    run "$dir/tsan" "$dir/in" racing >"$dir/out" 2>&1 && fail "a race of the program went unnoticed"
    grep -q 'data race' "$dir/out" || fail "no report of a race"
    checked="$checked threads-sanitized"
fi
jemalloc=$(ls /usr/lib/*/libjemalloc.so.2 2>/dev/null | head -n 1)
if [ -n "$jemalloc" ]; then
    # By env, because a sanitized millrace itself does not run with another allocator.
    [ "$(run env LD_PRELOAD="$jemalloc" "$dir/one" "$dir/in")" = 6 ] || fail "jemalloc"
    seen jemalloc
    for order in "$lib:$jemalloc" "$jemalloc:$lib"; do
        [ "$(LD_PRELOAD=$order MILLRACE_TRACE_OUT=$dir/alone "$dir/one" "$dir/in")" = 6 ] || fail "preload order $order"
    done
else
    left_out="$left_out jemalloc"
fi
cat >"$dir/other.c" <<'S'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
ssize_t read(int fd, void *b, size_t n)
{
    ssize_t (*next)(int, void *, size_t) = dlsym(RTLD_NEXT, "read"), r = next(fd, b, n);
    (void)!write(2, "other\n", 6);
    return r;
}
S
sed -i 's/), r = next(fd, b, n);/);\n    ssize_t r = next(fd, b, n);/' "$dir/other.c"
$cc -shared -fPIC -w -o "$dir/other.so" "$dir/other.c" -ldl
for order in "$lib:$dir/other.so" "$dir/other.so:$lib"; do
    rm -rf "$dir/alone"
    [ "$(LD_PRELOAD=$order MILLRACE_TRACE_OUT=$dir/alone "$dir/one" "$dir/in" 2>"$dir/err")" = 6 ] || fail "another preloaded library"
    [ "$(grep -c other "$dir/err")" = 1 ] || fail "another preloaded library is passed over"
    [ "$(rows "$dir/alone" | grep -c "$dir/in,")" = 3 ] || fail "another preloaded library hides calls ($order)"
done
checked="$checked other-preload"
run env -i "$dir/one" "$dir/in" >/dev/null; seen env-i
run env -u LD_PRELOAD "$dir/one" "$dir/in" >/dev/null; seen env-u
run bash -c "exec -c '$dir/one' '$dir/in'" >/dev/null; seen exec-c
if $cc -static -w -o "$dir/static" "$dir/one.c" 2>/dev/null; then
    run "$dir/static" "$dir/in" 2>"$dir/err" >/dev/null
    grep -q 'did not load the tracer' "$dir/err" || fail "a static program was not said to be untraced"
    checked="$checked static"
fi
own() { cp "$1" "$2" && chown 65534 "$2" && chmod 4755 "$2"; }
chmod 755 "$dir"
chmod 644 "$dir/in"
# A file system may ignore the bit, or the folders above may be closed to others.
if [ "$(id -u)" = 0 ] && own "$dir/one" "$dir/suid" && own "$(command -v id)" "$dir/who" && [ "$("$dir/who" -u)" = 65534 ] &&
    [ "$("$dir/suid" "$dir/in")" = 6 ]; then
    [ "$(run "$dir/suid" "$dir/in" 2>/dev/null)" = 6 ] || fail "a setuid program behaves differently"
    [ "$(rows "$dir/t.mrt" | grep -c "$dir/in,")" = 0 ] || fail "a setuid program was traced"
    checked="$checked setuid"
else
    left_out="$left_out setuid"
fi

# Python's own tests: every verdict equal. Only verdicts that stand on the line of their test are compared: what a test prints itself may
# come between. test_user of test_subprocess is such a one: a child of another user cannot be traced, and says so.
verdicts() { sed -nE 's/^(test[^ ]* \([^)]*\)).* \.\.\. (ok|FAIL|ERROR|skipped).*$/\1 \2/p' "$1" | grep -vE '\.test_user\)' | sort; }
python=/usr/bin/python3
if [ -n "${MR_TEST_FULL:-}" ]; then
    [ -x $python ] || python=python3
    if $python -c 'import test.test_io' 2>/dev/null; then
        for module in test_io test_fileio test_file test_os test_posix test_mmap test_tempfile test_shutil test_subprocess test_fcntl test_pathlib test_zipfile test_gzip; do
            $python -m test -v $module >"$dir/a" 2>&1 && a=0 || a=$?
            "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- $python -m test -v $module >"$dir/b" 2>&1 && b=0 || b=$?
            [ $a = $b ] || fail "$module: status $a, traced $b: $(grep -E '^(FAIL|ERROR)' "$dir/b")"
            diff <(verdicts "$dir/a") <(verdicts "$dir/b") || fail "$module: verdicts differ"
            checked="$checked $module($(verdicts "$dir/a" | wc -l))"
        done
    else
        left_out="$left_out Python's-tests(libpython3.11-testsuite)"
    fi
fi
echo "same as untraced:$checked"
[ -z "$left_out" ] || echo "not checked, missing here:$left_out"
