/* exec_ways FOLDER END: exec in every spelling, of programs that seem to be there and that the kernel refuses, with a
 * read of FOLDER/data before each; then by children of vfork and fork, then END (return, kill, _exit, exec). Prints the
 * events of exec that a trace of it must have: who|call|file|result. With END loop FILE: a read and an exec that is
 * refused, counted in FILE, until it is killed. The folder has data, junk (no program), script (of an interpreter that
 * is not there) and busy (open for writing). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *args[] = {"x", NULL}, *many[] = {"x", NULL, NULL};
static int fd;

static void expect(const char *who, const char *call, const char *file, int result)
{
    printf("%s|%s|%s|%d\n", who, call, file, result);
    fflush(stdout);
}

static void look(size_t bytes)
{
    char b[16];
    if (pread(fd, b, bytes, 0) != (ssize_t)bytes)
        exit(2);
}

#define REFUSED(name, file, error, ...)                                                                                \
    do {                                                                                                               \
        look(1);                                                                                                       \
        if ((__VA_ARGS__) != -1 || errno != (error)) {                                                                 \
            fprintf(stderr, "%s of %s: errno %d\n", name, file, errno);                                                \
            exit(2);                                                                                                   \
        }                                                                                                              \
        expect("parent", name, file, -(error));                                                                        \
    } while (0)

static void *sleeper(void *arg)
{
    look(5);
    pause();
    return arg;
}

static void refused(const char *dir, const char *junk, const char *script, const char *busy)
{
    char *big = malloc(200 << 10); /* a word may have 128 KiB */
    memset(big, 'a', 200 << 10);
    big[(200 << 10) - 1] = 0;
    many[1] = big;
    int written = open(busy, O_WRONLY), program = open(junk, O_RDONLY), folder = open(dir, O_RDONLY | O_DIRECTORY);
    REFUSED("execve", junk, ENOEXEC, execve(junk, args, environ));
    REFUSED("execv", script, ENOENT, execv(script, args));
    REFUSED("execve", busy, ETXTBSY, execve(busy, args, environ));
    REFUSED("execve", "/bin/true", E2BIG, execve("/bin/true", many, environ));
    REFUSED("execl", "/bin/true", E2BIG, execl("/bin/true", "x", big, (char *)NULL));
    REFUSED("execle", "/bin/true", E2BIG, execle("/bin/true", "x", big, (char *)NULL, environ));
    REFUSED("execlp", "/bin/true", E2BIG, execlp("true", "x", big, (char *)NULL));
    REFUSED("execvp", "/bin/true", E2BIG, execvp("true", many));
    REFUSED("execvpe", "/bin/true", E2BIG, execvpe("true", many, environ));
    REFUSED("fexecve", junk, ENOEXEC, fexecve(program, args, environ));
    REFUSED("execveat", junk, ENOEXEC, execveat(folder, "junk", args, environ, 0));
    REFUSED("execve", junk, ENOEXEC, syscall(SYS_execve, junk, args, environ));
    close(written);
}

static void children(const char *junk)
{
    pid_t p;
    if (posix_spawn(&p, junk, NULL, NULL, args, environ) != ENOEXEC)
        exit(2);
    expect("parent", "posix_spawn", junk, -ENOEXEC);
    if ((p = vfork()) == 0) {
        execve(junk, args, environ);
        execl("/bin/true", "true", (char *)NULL);
        _exit(9);
    }
    waitpid(p, NULL, 0);
    expect("parent", "execve", junk, -ENOEXEC);
    expect("parent", "execl", "/bin/true", 0);
    if ((p = vfork()) == 0) {
        execve(junk, args, environ);
        _exit(9);
    }
    waitpid(p, NULL, 0);
    expect("parent", "execve", junk, -ENOEXEC);
    if ((p = fork()) == 0) {
        look(2);
        execve(junk, args, environ);
        look(3);
        execve("/bin/true", args, environ);
        _exit(9);
    }
    waitpid(p, NULL, 0);
    expect("child", "execve", junk, -ENOEXEC);
    expect("child", "execve", "/bin/true", 0);
}

static int loop(const char *junk, const char *progress)
{
    int counter = open(progress, O_RDWR | O_CREAT | O_TRUNC, 0600);
    volatile long *done = counter < 0 || ftruncate(counter, 4096)
                              ? MAP_FAILED
                              : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, counter, 0);
    while (done != MAP_FAILED) {
        look(1);
        done[0]++;
        execve(junk, args, environ);
        done[1]++;
    }
    return 2;
}

int main(int argc, char **argv)
{
    static char data[4096], junk[4096], script[4096], busy[4096];
    pthread_t t;
    if (argc < 3)
        return 2;
    snprintf(data, sizeof(data), "%s/data", argv[1]);
    snprintf(junk, sizeof(junk), "%s/junk", argv[1]);
    snprintf(script, sizeof(script), "%s/script", argv[1]);
    snprintf(busy, sizeof(busy), "%s/busy", argv[1]);
    setenv("PATH", "/no/such/folder:/bin:/usr/bin", 1);
    fd = open(data, O_RDONLY);
    if (argc > 3 && !strcmp(argv[2], "loop"))
        return loop(junk, argv[3]);
    refused(argv[1], junk, script, busy);
    children(junk);
    if (argc > 3 && !pthread_create(&t, NULL, sleeper, NULL)) { /* with another thread that has recorded */
        usleep(50000);
        REFUSED("execve", junk, ENOEXEC, execve(junk, args, environ));
    }
    look(4);
    if (!strcmp(argv[2], "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(argv[2], "_exit"))
        _exit(0);
    if (!strcmp(argv[2], "exec")) {
        expect("parent", "execl", "/bin/true", 0);
        execl("/bin/true", "true", (char *)NULL);
    }
    return 0;
}
