#!/usr/bin/env bash
# Traced programs behave as untraced ones: same output, same exit status. git, sqlite3 and a program full of odd ways to start others;
# MR_TEST_FULL=1 adds Python's own tests.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
lib=${MILLRACE%/bin/millrace}/lib/libmillrace_trace.so
[ -e "$lib" ] || { echo "SKIP: no libmillrace_trace.so beside the program"; exit 77; }
checked=
same() { # name, command...: runs it three times: bare, traced, with the library alone
    local name=$1
    shift
    local a=0 b=0 c=0
    "$@" </dev/null >"$dir/a" 2>&1 || a=$?
    "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$@" </dev/null >"$dir/b" 2>&1 || b=$?
    rm -rf "$dir/alone"
    LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/alone "$@" </dev/null >"$dir/c" 2>&1 || c=$?
    [ $a = $b ] && [ $a = $c ] || { echo "FAIL $name: status $a, traced $b, alone $c"; exit 1; }
    diff "$dir/a" "$dir/b" >&2 && diff "$dir/a" "$dir/c" >&2 || { echo "FAIL $name: output differs"; exit 1; }
    [ -n "$(ls "$dir/alone")" ] || { echo "FAIL $name: not traced"; exit 1; }
    checked="$checked $name"
}

cat >"$dir/odd.c" <<'S'
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static void ended(const char *what, pid_t p)
{
    int status = -1;
    waitpid(p, &status, 0);
    printf("%s: %x\n", what, status);
    fflush(stdout);
}
int main(void)
{
    char *args[] = {"cat", "/dev/null", NULL}, *none[] = {NULL}, byte;
    struct stat st;
    pid_t p = vfork();
    if (!p) {
        execl("/bin/cat", "cat", "/dev/null", (char *)NULL);
        _exit(1);
    }
    ended("vfork execl", p);
    p = vfork();
    if (!p) {
        close(0);
        _exit(3);
    }
    ended("vfork _exit", p);
    printf("descriptor 0 after vfork: %d\n", fcntl(0, F_GETFD) >= 0);
    posix_spawn(&p, "/bin/cat", NULL, NULL, args, none);
    ended("spawn without environment", p);
    fflush(stdout);
    if (!(p = fork())) {
        execve("/bin/cat", args, none);
        _exit(9);
    }
    ended("execve without environment", p);
    if (!(p = fork())) {
        execve("/no/such/program", args, none);
        _exit(errno == ENOENT ? 7 : 8);
    }
    ended("failed execve", p);
    if (!(p = fork()))
        execlp("sh", "sh", "-c", "exit 5", (char *)NULL);
    ended("execlp", p);
    p = (pid_t)syscall(SYS_fork); /* a fork the C library knows nothing of */
    if (!p) {
        int fd = open("/dev/null", O_RDONLY);
        _exit(fd >= 0 && read(fd, &byte, 1) == 0 ? 4 : 1);
    }
    ended("raw fork", p);
    errno = 0;
    printf("bad pointers: %d %d", open((const char *)8, O_RDONLY), errno);
    printf(" %d %d", stat((const char *)8, &st), errno);
    printf(" %zd %d\n", read(0, (void *)8, 0), errno);
    printf("bad descriptor: %d %d\n", close(12345), errno);
    printf("system: %d\n", system("exit 3"));
    for (int fd = 3; fd < 5000; fd++)
        close(fd);
    printf("lowest descriptor: %d\n", open("/dev/null", O_RDONLY));
    return 42;
}
S
${CC:-cc} -O2 -w -D_GNU_SOURCE -o "$dir/odd" "$dir/odd.c"
same odd "$dir/odd"

cat >"$dir/g.sh" <<'S'
set -e
rm -rf "$1/repo" "$1/clone"; mkdir "$1/repo"; cd "$1/repo"
export GIT_AUTHOR_DATE=2020-01-01T00:00:00Z GIT_COMMITTER_DATE=2020-01-01T00:00:00Z GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q -b main .
for i in 1 2 3 4 5 6 7 8; do echo $i >f$i; done
git add .; git commit -q -m one; echo x >>f1; git diff; git commit -qam two; git log --stat; git gc -q; git fsck; git clone -q . ../clone; git rev-parse HEAD
S
if command -v git >/dev/null; then same git bash "$dir/g.sh" "$dir"; fi

cat >"$dir/q.sh" <<'S'
rm -f "$1/db"*
sqlite3 "$1/db" "create table t(a integer primary key, b text); with recursive c(x) as (select 1 union all select x+1 from c where x<2000) insert into t select x, hex(x*7) from c; create index i on t(b); select count(*), sum(a), min(b) from t; pragma integrity_check; vacuum; pragma journal_mode=wal; delete from t where a%2; select count(*) from t;"
S
if command -v sqlite3 >/dev/null; then same sqlite3 bash "$dir/q.sh" "$dir"; fi

# Arguments up to the kernel's last byte.
cat >"$dir/long.py" <<'P'
import os, subprocess
def starts(how, n):
    words = ["/bin/true"] + ["x" * 99990] * (n // 100000) + ["y" * (n % 100000)]
    try:
        if how == "exec":
            return subprocess.run(words, env={}).returncode == 0
        return os.waitpid(os.posix_spawn("/bin/true", words, {}), 0)[1] == 0
    except OSError:
        return False
for how in ("exec", "spawn"):
    low, high = 0, 8 << 20
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if starts(how, middle) else (low, middle - 1)
    print(how, low)
P
python3 "$dir/long.py" >"$dir/a"
"$MILLRACE" trace --quiet -o "$dir/t.mrt" -- python3 "$dir/long.py" >"$dir/b" 2>"$dir/err"
diff "$dir/a" "$dir/b" || { echo "FAIL: less room for arguments"; exit 1; }
grep -q "no room for the tracer's variables" "$dir/err" || { echo "FAIL: programs without the tracer are not told: $(cat "$dir/err")"; exit 1; }
checked="$checked arguments"

if [ -n "${MR_TEST_FULL:-}" ] && python3 -c 'import test.test_io' 2>/dev/null; then
    for module in test_io test_os test_subprocess; do
        "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- python3 -m test -q $module >"$dir/b" 2>&1 || { tail -20 "$dir/b"; echo "FAIL: $module"; exit 1; }
        checked="$checked $module"
    done
fi
echo "same as untraced:$checked"
