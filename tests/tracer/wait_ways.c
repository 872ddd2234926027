/* Every way to wait for another process, and every call on sockets, by the C library's own symbols: under their plain,
 * fortified and old names. Each line of standard output is a call that must be in the trace, as often as it is printed.
 * With "child" as the first word it is another program: one pipe and a child that sleeps. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *names[256];
static int count, failures;
static void *libc;

static void *find(const char *symbol)
{
    return dlsym(libc, symbol) ? dlsym(RTLD_DEFAULT, symbol) : NULL;
}

#define TRY(call, symbol, ret, params, check)                                                                          \
    do {                                                                                                               \
        ret(*fn) params = (ret(*) params)find(#symbol);                                                                \
        if (fn && !(check)) {                                                                                          \
            dprintf(2, "waits: %s failed: %s\n", #symbol, strerror(errno));                                            \
            failures++;                                                                                                \
        }                                                                                                              \
        if (fn)                                                                                                        \
            names[count++] = #call;                                                                                    \
    } while (0)

static int pair[2], quiet[2], events;
static char b[64];
static struct sockaddr_in address;
static socklen_t address_len;

static fd_set *set_of(int fd)
{
    static fd_set s[3];
    static unsigned turn;
    fd_set *f = &s[turn++ % 3];
    FD_ZERO(f);
    FD_SET(fd, f);
    return f;
}

/* pair[1] has something to be read all the time, quiet[1] never. */
static void ready(void)
{
    struct pollfd p[2] = {{.fd = quiet[1], .events = POLLIN}, {.fd = pair[1], .events = POLLIN}};
    const struct timespec t = {.tv_nsec = 1000000};
    struct timeval v = {.tv_usec = 1000};
    struct epoll_event e;
    TRY(poll, poll, int, (struct pollfd *, nfds_t, int), fn(p, 2, 1000) == 1);
    TRY(poll, poll, int, (struct pollfd *, nfds_t, int), fn(p, 1, 1) == 0);
    TRY(poll, poll, int, (struct pollfd *, nfds_t, int), fn((void *)8, 1, 0) == -1 && errno == EFAULT);
    TRY(poll, __poll, int, (struct pollfd *, nfds_t, int), fn(p, 2, 1000) == 1);
    TRY(poll, __poll_chk, int, (struct pollfd *, nfds_t, int, size_t), fn(p, 2, 1000, sizeof(p)) == 1);
    TRY(ppoll, ppoll, int, (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *), fn(p, 2, &t, 0) == 1);
    TRY(ppoll, __ppoll_chk, int, (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t),
        fn(p, 2, &t, 0, sizeof(p)) == 1);
    TRY(select, select, int, (int, fd_set *, fd_set *, fd_set *, struct timeval *),
        fn(pair[1] + 1, set_of(pair[1]), 0, 0, &v) == 1);
    TRY(select, select, int, (int, fd_set *, fd_set *, fd_set *, struct timeval *),
        fn(quiet[1] + 1, set_of(quiet[1]), 0, 0, &v) == 0);
    TRY(select, __select, int, (int, fd_set *, fd_set *, fd_set *, struct timeval *),
        fn(pair[1] + 1, 0, set_of(pair[1]), 0, &v) == 1);
    TRY(pselect, pselect, int, (int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *),
        fn(pair[1] + 1, set_of(pair[1]), 0, set_of(quiet[1]), &t, 0) == 1);
    TRY(epoll_wait, epoll_wait, int, (int, struct epoll_event *, int, int), fn(events, &e, 1, 1000) == 1);
    TRY(epoll_pwait, epoll_pwait, int, (int, struct epoll_event *, int, int, const sigset_t *),
        fn(events, &e, 1, 1000, 0) == 1);
    TRY(epoll_pwait, epoll_pwait2, int, (int, struct epoll_event *, int, const struct timespec *, const sigset_t *),
        fn(events, &e, 1, &t, 0) == 1);
}

static void messages(void)
{
    struct iovec v = {b, 4};
    struct mmsghdr m[2] = {{.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}},
                           {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}}};
    TRY(send, send, ssize_t, (int, const void *, size_t, int), fn(pair[0], b, 4, 0) == 4);
    TRY(send, __send, ssize_t, (int, const void *, size_t, int), fn(pair[0], b, 4, 0) == 4);
    TRY(sendto, sendto, ssize_t, (int, const void *, size_t, int, const struct sockaddr *, socklen_t),
        fn(pair[0], b, 4, 0, 0, 0) == 4);
    TRY(sendmsg, sendmsg, ssize_t, (int, const struct msghdr *, int), fn(pair[0], &m[0].msg_hdr, 0) == 4);
    TRY(sendmmsg, sendmmsg, int, (int, struct mmsghdr *, unsigned, int), fn(pair[0], m, 2, 0) == 2);
    TRY(recv, recv, ssize_t, (int, void *, size_t, int), fn(pair[1], b, 4, 0) == 4);
    TRY(recv, recv, ssize_t, (int, void *, size_t, int), fn(quiet[1], b, 4, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    TRY(recv, __recv_chk, ssize_t, (int, void *, size_t, size_t, int), fn(pair[1], b, 4, sizeof(b), 0) == 4);
    TRY(recvfrom, recvfrom, ssize_t, (int, void *, size_t, int, struct sockaddr *, socklen_t *),
        fn(pair[1], b, 4, 0, 0, 0) == 4);
    TRY(recvfrom, __recvfrom_chk, ssize_t, (int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *),
        fn(pair[1], b, 4, sizeof(b), 0, 0, 0) == 4);
    TRY(recvmsg, recvmsg, ssize_t, (int, struct msghdr *, int), fn(pair[1], &m[0].msg_hdr, 0) == 4);
    TRY(recvmmsg, recvmmsg, int, (int, struct mmsghdr *, unsigned, int, struct timespec *),
        fn(pair[1], m, 1, MSG_DONTWAIT, 0) == 1);
}

static int listening(void)
{
    int s = socket(AF_INET, SOCK_STREAM, 0);
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    address_len = sizeof(address);
    if (s < 0 || bind(s, (void *)&address, address_len) || listen(s, 4) ||
        getsockname(s, (void *)&address, &address_len))
        failures++;
    return s;
}

/* Connections to this machine. */
static void connections(void)
{
    int s = listening(), c[2] = {socket(AF_INET, SOCK_STREAM, 0), socket(AF_INET, SOCK_STREAM, 0)}, a;
    TRY(connect, connect, int, (int, const struct sockaddr *, socklen_t), fn(c[0], (void *)&address, address_len) == 0);
    TRY(connect, __connect, int, (int, const struct sockaddr *, socklen_t),
        fn(c[1], (void *)&address, address_len) == 0);
    TRY(accept, accept, int, (int, struct sockaddr *, socklen_t *), (a = fn(s, 0, 0)) >= 0 && close(a) == 0);
    TRY(accept, accept4, int, (int, struct sockaddr *, socklen_t *, int), (a = fn(s, 0, 0, 0)) >= 0 && close(a) == 0);
    close(c[0]), close(c[1]), close(s);
}

static pid_t child(void)
{
    pid_t p = fork();
    if (p == 0)
        _exit(0);
    return p;
}

static void children(void)
{
    int status;
    siginfo_t info;
    pid_t p;
    TRY(waitpid, wait, pid_t, (int *), (p = child()) == fn(&status));
    TRY(waitpid, __wait, pid_t, (int *), (p = child()) == fn(&status));
    TRY(waitpid, waitpid, pid_t, (pid_t, int *, int), (p = child()) == fn(p, &status, 0));
    TRY(waitpid, __waitpid, pid_t, (pid_t, int *, int), (p = child()) == fn(p, &status, 0));
    TRY(waitpid, waitpid, pid_t, (pid_t, int *, int), fn(-1, &status, 0) == -1 && errno == ECHILD);
    TRY(wait4, wait3, pid_t, (int *, int, void *), (p = child()) == fn(&status, 0, 0));
    TRY(wait4, wait4, pid_t, (pid_t, int *, int, void *), (p = child()) == fn(p, &status, 0, 0));
    TRY(waitid, waitid, int, (int, id_t, siginfo_t *, int),
        (p = child()) > 0 && fn(P_PID, (id_t)p, &info, WEXITED) == 0 && info.si_pid == p);
}

static void *post_late(void *s)
{
    const struct timespec t = {.tv_nsec = 30000000};
    nanosleep(&t, NULL);
    sem_post(s);
    return NULL;
}

/* Another thread posts after 30 ms. */
static sem_t *posted_late(void)
{
    static sem_t s;
    pthread_t thread;
    sem_init(&s, 0, 0);
    return pthread_create(&thread, NULL, post_late, &s) || pthread_detach(thread) ? NULL : &s;
}

/* Only long waits are recorded: the last one ends at once. */
static void semaphores(void)
{
    struct timespec soon;
    sem_t there;
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec = 0;
    soon.tv_sec += 60;
    TRY(sem_wait, sem_wait, int, (sem_t *), fn(posted_late()) == 0);
    TRY(sem_wait, sem_timedwait, int, (sem_t *, const struct timespec *), fn(posted_late(), &soon) == 0);
    TRY(sem_wait, sem_clockwait, int, (sem_t *, clockid_t, const struct timespec *),
        fn(posted_late(), CLOCK_REALTIME, &soon) == 0);
    sem_init(&there, 0, 1);
    failures += sem_wait(&there) != 0;
}

static int sleeping_child(void)
{
    const struct timespec t = {.tv_nsec = 300000000};
    int p[2];
    if (pipe(p) < 0)
        return 1;
    pid_t pid = fork();
    if (pid == 0) {
        nanosleep(&t, NULL);
        _exit(write(p[1], b, 1) != 1);
    }
    close(p[1]);
    int bad = read(p[0], b, 1) != 1, status;
    return waitpid(pid, &status, 0) != pid || status || bad;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "child"))
        return sleeping_child();
    libc = dlopen("libc.so.6", RTLD_LAZY);
    struct epoll_event e = {.events = EPOLLIN};
    int event = eventfd(1, 0);
    uint64_t value;
    if (!libc || socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) || socketpair(AF_UNIX, SOCK_DGRAM, 0, quiet) ||
        send(pair[0], b, 4, 0) != 4 || (events = epoll_create1(0)) < 0 ||
        epoll_ctl(events, EPOLL_CTL_ADD, pair[1], &e) || read(event, &value, sizeof(value)) != sizeof(value))
        return 2;
    names[count++] = "send";
    ready();
    messages();
    connections();
    children();
    semaphores();
    for (int i = 0; i < count; i++)
        printf("%s\n", names[i]);
    return failures != 0;
}
