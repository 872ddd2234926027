/* Ways past the tracer, each chosen by its name, for tests/cli/test_trace_reach.sh. Usage: reach_ways NAME FILE
 * [LIBRARY]. As a shared library
 * (-DLIBRARY) it stands between a program and the C library's pread, which it asks the C library for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef ssize_t pread_fn(int fd, void *to, size_t n, off_t at);

static pread_fn *from_c_library(void)
{
    return (pread_fn *)dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), "pread");
}

#ifdef LIBRARY
static int calls;
ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    calls++;
    return from_c_library()(fd, to, n, at);
}
int reach_calls(void)
{
    return calls;
}
int reach_work(const char *file)
{
    char b[4];
    int fd = open(file, O_RDONLY);
    ssize_t n = read(fd, b, 1);
    close(fd);
    return n == 1 ? 0 : 1;
}
#else
/* Functions by the C library's handle, by the program's own, and by the next library's. */
static int handles(const char *file)
{
    char b[8];
    int fd = open(file, O_RDONLY), n = 0;
    pread_fn *next = (pread_fn *)dlsym(RTLD_NEXT, "pread"), *any = (pread_fn *)dlsym(RTLD_DEFAULT, "pread");
    pread_fn *own = (pread_fn *)dlsym(dlopen(NULL, RTLD_LAZY), "pread");
    for (int i = 0; i < 10; i++)
        n += from_c_library()(fd, b, 1, 0) == 1 && next(fd, b, 1, 0) == 1 && any(fd, b, 1, 0) == 1 &&
             own(fd, b, 1, 0) == 1;
    close(fd);
    return n != 10 || dlsym(RTLD_DEFAULT, "no_such_function") ||
           dlsym(dlopen("libc.so.6", RTLD_LAZY), "no_such_function");
}

/* The same with a version. An older version of a function is another one, and stays what it is; errors are told as
 * ever. */
static int versions(const char *file)
{
    char b[8];
    int fd = open(file, O_RDONLY), n = 0;
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    pread_fn *by_handle = (pread_fn *)dlvsym(libc, "pread", "GLIBC_2.2.5"),
             *any = (pread_fn *)dlvsym(RTLD_DEFAULT, "pread", "GLIBC_2.2.5");
    pread_fn *next = (pread_fn *)dlvsym(RTLD_NEXT, "pread", "GLIBC_2.2.5");
    void *old = dlvsym(libc, "posix_spawn", "GLIBC_2.2.5"), *today = dlvsym(libc, "posix_spawn", "GLIBC_2.15");
    if (!by_handle || !any || !next || !old || !today || old == today || dlerror())
        return 1;
    for (int i = 0; i < 10; i++)
        n += by_handle(fd, b, 1, 0) == 1 && any(fd, b, 1, 0) == 1 && next(fd, b, 1, 0) == 1;
    close(fd);
    if (n != 10 || dlvsym(libc, "pread", "GLIBC_1.0") || !dlerror() ||
        dlvsym(RTLD_DEFAULT, "no_such_function", "GLIBC_2.2.5") || !dlerror())
        return 2;
    return 0;
}

/* A child closes, unused, what it has inherited. */
static int inherits(const char *file)
{
    int fd = open(file, O_RDONLY), status;
    pid_t pid = fork();
    if (pid == 0) {
        close(fd);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    close(fd);
    return status;
}

/* A child in its parent's memory opens, uses and closes. */
static int borrows(const char *file)
{
    int status;
    char b;
    pid_t pid = vfork();
    if (pid == 0) {
        int fd = open(file, O_RDONLY);
        (void)!read(fd, &b, 1);
        close(fd);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    return status;
}

/* A child becomes another user before its first call; the others change nothing. */
static int drops(const char *file)
{
    int status;
    setuid(getuid()), setgid(getgid()), seteuid(geteuid()), setegid(getegid()), setreuid(-1, -1), setregid(-1, -1);
    setresgid(-1, -1, -1), setns(-1, 0), unshare(0);
    pid_t pid = fork();
    if (pid == 0) {
        if (setresuid(65534, 65534, 65534))
            _exit(77);
        char b;
        int fd = open(file, O_RDONLY);
        ssize_t n = read(fd, &b, 1);
        _exit(n != 1);
    }
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

static int loads(const char *file, const char *library, int apart)
{
    void *handle = apart ? dlmopen(LM_ID_NEWLM, library, RTLD_NOW) : dlopen(library, RTLD_NOW | RTLD_DEEPBIND);
    if (!handle)
        return 77;
    int (*work)(const char *) = (int (*)(const char *))dlsym(handle, "reach_work");
    return work(file);
}

#ifdef GO_NOTE
__asm__(".pushsection .note.go.buildid, \"a\", @note\n"
        "    .long 4, 4, 4\n"
        "    .asciz \"Go\\0\"\n"
        "    .long 0\n"
        ".popsection\n");
#endif

int main(int argc, char **argv)
{
    const char *name = argc > 2 ? argv[1] : "", *preload = getenv("LD_PRELOAD");
    if (!strcmp(name, "told")) /* whether the program is told of the tracer */
        return puts(preload && strstr(preload, "libmillrace_trace") ? "told" : preload ? preload : "not told") == EOF;
    if (!strcmp(name, "between")) {
        char b[4];
        int fd = open(argv[2], O_RDONLY), (*calls)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "reach_calls");
        ssize_t n = pread(fd, b, 1, 0);
        return !(n == 1 && calls && calls() == 1);
    }
    return !strcmp(name, "handles")    ? handles(argv[2])
           : !strcmp(name, "versions") ? versions(argv[2])
           : !strcmp(name, "inherits") ? inherits(argv[2])
           : !strcmp(name, "borrows")  ? borrows(argv[2])
           : !strcmp(name, "drops")    ? drops(argv[2])
           : !strcmp(name, "deep")     ? loads(argv[2], argv[argc - 1], 0)
           : !strcmp(name, "apart")    ? loads(argv[2], argv[argc - 1], 1)
                                       : 2;
}
#endif
