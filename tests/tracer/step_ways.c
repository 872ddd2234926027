/* A signal handler at every instruction of a traced call (x86-64, by the trap flag): step_ways fork|record CALL FILE
 * OTHER. In each round the handler comes an instruction later; it forks, and parent and child go on with the call, or
 * it makes a call of its own on OTHER. Prints the number of rounds. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { TRAP = 0x100 };
static volatile long at, wanted;
static volatile int failed;
static int is_child, forks, other;

static void step(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    if (++at != wanted)
        return;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP;
    if (!forks) {
        char b[8];
        failed |= pread(other, b, 3, 1) != 3;
        return;
    }
    int status = 0;
    pid_t pid = fork();
    is_child = pid == 0;
    if (!is_child && (waitpid(pid, &status, 0) != pid || status)) {
        fprintf(stderr, "at instruction %ld the child ended with %x\n", wanted, status);
        failed = 1;
    }
}

static inline void trap_on(void)
{
    __asm__ volatile("sub $128, %%rsp; pushfq; orq $0x100, (%%rsp); popfq; add $128, %%rsp" ::: "memory", "cc");
}

static inline void trap_off(void)
{
    __asm__ volatile("sub $128, %%rsp; pushfq; andq $~0x100, (%%rsp); popfq; add $128, %%rsp" ::: "memory", "cc");
}

/* True if it does what it should. */
static int make(const char *name, const char *file, int fd)
{
    char b[8];
    long r, should;
    errno = 77;
    trap_on();
    if (!strcmp(name, "pread"))
        r = pread(fd, b, 4, 0), should = 4;
    else if (!strcmp(name, "far")) /* not short, but a repeat or a record */
        r = pread(fd, b, 4, wanted * 4096 % 32768), should = 4;
    else if (!strcmp(name, "end"))
        r = pread(fd, b, 8, 65536 - 2), should = 2;
    else if (!strcmp(name, "refused"))
        r = pread(fd, b, 4, -1), should = -1;
    else if (!strcmp(name, "lseek"))
        r = lseek(fd, wanted, SEEK_SET), should = wanted;
    else if (!strcmp(name, "fsync"))
        r = fdatasync(fd), should = 0;
    else
        r = rename(file, file), should = 0;
    trap_off();
    return r == should && errno == (r == -1 ? EINVAL : 77);
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_sigaction = step, .sa_flags = SA_SIGINFO};
    if (argc < 5 || sigaction(SIGTRAP, &action, NULL))
        return 2;
    forks = !strcmp(argv[1], "fork");
    int fd = open(argv[3], O_RDWR);
    other = open(argv[4], O_RDONLY);
    long rounds = 0, stride = strcmp(argv[2], "rename") ? 1 : 9; /* that one is long */
    make(argv[2], argv[3], fd);                                  /* looks it up */
    for (wanted = 1;; wanted += stride) {
        at = 0;
        rounds++;
        failed |= !make(argv[2], argv[3], fd);
        if (is_child)
            _exit(failed);
        if (at < wanted)
            break;
    }
    printf("%ld\n", rounds);
    return failed;
}
