/* Waiting for somebody else, and sockets: poll, select, epoll, accept, connect, recv, send, wait. They are recorded so
 * that this time is told from storage; the descriptor's name says what was waited for. poll and select name the first
 * descriptor that was ready, or, if none was, the first that was asked for; the offset is how many there were. */
#include "tracer/tracer_internal.h"
#include "tracer/tracer_strays.h"
#include "tracer/wrap.h"

#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* T1: what the program hands over was read by the kernel if it has not failed. */
static int ready_of(const struct pollfd *p, nfds_t n, int r)
{
    for (nfds_t i = 0; r > 0 && i < n; i++)
        if (p[i].fd >= 0 && p[i].revents)
            return p[i].fd;
    return r >= 0 && n ? p[0].fd : -1;
}

static int first_in(const fd_set *set, int n)
{
    const unsigned long *word = (const void *)set;
    const int bits = (int)(8 * sizeof(*word));
    for (int i = 0; set && i < n; i += bits) {
        unsigned long w = word[i / bits];
        if (n - i < bits)
            w &= (1ul << (n - i)) - 1;
        if (w)
            return i + __builtin_ctzl(w);
    }
    return -1;
}

static int selected(int n, const fd_set *a, const fd_set *b, const fd_set *c, int r)
{
    int fd = r > 0 ? first_in(a, n) : -1;
    fd = r > 0 && fd < 0 ? first_in(b, n) : fd;
    return r > 0 && fd < 0 ? first_in(c, n) : fd;
}

/* Handlers that run during these have their mask, which --strays looks at first. */
#define MASK(m) mr_wait_mask(m, &(sigset_t){{0}})
#define WAITED(c, fd, n) mr_put_fd0(t0, t1, CALL(c), fd, (uint64_t)(n), (int64_t)r)

MR_WRAP(int, poll, (struct pollfd * p, nfds_t n, int ms), (p, n, ms), WAITED(poll, ready_of(p, n, r), n))
MR_ALIAS(__poll, poll)
MR_WRAP(int, __poll_chk, (struct pollfd * p, nfds_t n, int ms, size_t c), (p, n, ms, c),
        WAITED(poll, ready_of(p, n, r), n))
MR_WRAP(int, ppoll, (struct pollfd * p, nfds_t n, const struct timespec *t, const sigset_t *m), (p, n, t, MASK(m)),
        WAITED(ppoll, ready_of(p, n, r), n))
MR_WRAP(int, __ppoll_chk, (struct pollfd * p, nfds_t n, const struct timespec *t, const sigset_t *m, size_t c),
        (p, n, t, MASK(m), c), WAITED(ppoll, ready_of(p, n, r), n))
MR_WRAP(int, select, (int n, fd_set *a, fd_set *b, fd_set *c, struct timeval *t), (n, a, b, c, t),
        WAITED(select, selected(n, a, b, c, r), n))
MR_ALIAS(__select, select)
MR_WRAP(int, pselect, (int n, fd_set *a, fd_set *b, fd_set *c, const struct timespec *t, const sigset_t *m),
        (n, a, b, c, t, MASK(m)), WAITED(pselect, selected(n, a, b, c, r), n))
MR_WRAP(int, epoll_wait, (int fd, struct epoll_event *e, int n, int ms), (fd, e, n, ms), WAITED(epoll_wait, fd, n))
MR_WRAP(int, epoll_pwait, (int fd, struct epoll_event *e, int n, int ms, const sigset_t *m), (fd, e, n, ms, MASK(m)),
        WAITED(epoll_pwait, fd, n))
MR_WRAP(int, epoll_pwait2, (int fd, struct epoll_event *e, int n, const struct timespec *t, const sigset_t *m),
        (fd, e, n, t, MASK(m)), WAITED(epoll_pwait, fd, n))

/* A connection may have given the socket another name. */
static void put_connect(uint64_t t0, uint64_t t1, int fd, int r)
{
    if (r == 0 || errno == EINPROGRESS)
        mr_file_set(fd, 0);
    mr_put_fd0(t0, t1, CALL(connect), fd, NONE, r);
}
MR_WRAP(int, connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), put_connect(t0, t1, fd, r))
MR_ALIAS(__connect, connect)
MR_WRAP(int, accept, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n), if (r >= 0) mr_file_set(r, 0);
        FD0(accept, fd, NONE))
MR_WRAP(int, accept4, (int fd, struct sockaddr *a, socklen_t *n, int f), (fd, a, n, f), if (r >= 0) mr_file_set(r, 0);
        FD0(accept, fd, NONE))

MR_WRAP(ssize_t, recv, (int fd, void *b, size_t n, int f), (fd, b, n, f), FD(recv, fd, NONE, n))
MR_WRAP(ssize_t, __recv_chk, (int fd, void *b, size_t n, size_t c, int f), (fd, b, n, c, f), FD(recv, fd, NONE, n))
MR_WRAP(ssize_t, recvfrom, (int fd, void *b, size_t n, int f, struct sockaddr *a, socklen_t *l), (fd, b, n, f, a, l),
        FD(recvfrom, fd, NONE, n))
MR_WRAP(ssize_t, __recvfrom_chk, (int fd, void *b, size_t n, size_t c, int f, struct sockaddr *a, socklen_t *l),
        (fd, b, n, c, f, a, l), FD(recvfrom, fd, NONE, n))
MR_WRAP(ssize_t, recvmsg, (int fd, struct msghdr *m, int f), (fd, m, f), FD0(recvmsg, fd, NONE))
MR_WRAP(ssize_t, send, (int fd, const void *b, size_t n, int f), (fd, b, n, f), FD(send, fd, NONE, n))
MR_ALIAS(__send, send)
MR_WRAP(ssize_t, sendto, (int fd, const void *b, size_t n, int f, const struct sockaddr *a, socklen_t l),
        (fd, b, n, f, a, l), FD(sendto, fd, NONE, n))
MR_WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *m, int f), (fd, m, f), FD0(sendmsg, fd, NONE))

/* They return how many messages there were; events have bytes. */
static int64_t bytes_of(const struct mmsghdr *m, int r)
{
    int64_t sum = 0;
    for (int i = 0; i < r; i++)
        sum += m[i].msg_len;
    return r < 0 ? -1 : sum;
}
MR_WRAP(int, recvmmsg, (int fd, struct mmsghdr *m, unsigned n, int f, struct timespec *t), (fd, m, n, f, t),
        mr_put_fd0(t0, t1, CALL(recvmmsg), fd, NONE, bytes_of(m, r)))
MR_WRAP(int, sendmmsg, (int fd, struct mmsghdr *m, unsigned n, int f), (fd, m, n, f),
        mr_put_fd0(t0, t1, CALL(sendmmsg), fd, NONE, bytes_of(m, r)))

#define WAITED_FOR(c, who) mr_put(t0, t1, CALL(c), 0, 0, (uint64_t)(who), r == -1 ? -(int64_t)errno : (int64_t)r)
MR_WRAP(pid_t, wait, (int *s), (s), WAITED_FOR(waitpid, -1))
MR_ALIAS(__wait, wait)
MR_WRAP(pid_t, waitpid, (pid_t p, int *s, int o), (p, s, o), WAITED_FOR(waitpid, p))
MR_ALIAS(__waitpid, waitpid)
MR_WRAP(pid_t, wait3, (int *s, int o, void *u), (s, o, u), WAITED_FOR(wait4, -1))
MR_WRAP(pid_t, wait4, (pid_t p, int *s, int o, void *u), (p, s, o, u), WAITED_FOR(wait4, p))
MR_WRAP(int, waitid, (idtype_t k, id_t p, siginfo_t *s, int o), (k, p, s, o), WAITED_FOR(waitid, p))

/* Semaphores are what locks, conditions, events and queues of Python wait for, and those of its multiprocessing. Only
 * long waits are events: a shorter one is for a lock that is in use. */
#define SEM_LEAST 1000000u /* stamps: 0.2 to 1 ms, by what the clock counts */

static void put_sem(uint64_t t0, uint64_t t1, int r)
{
    if (t1 - t0 >= SEM_LEAST)
        mr_put(t0, t1, CALL(sem_wait), 0, 0, NONE, r == -1 ? -(int64_t)errno : (int64_t)r);
}
MR_WRAP(int, sem_wait, (sem_t * s), (s), put_sem(t0, t1, r))
MR_WRAP(int, sem_timedwait, (sem_t * s, const struct timespec *t), (s, t), put_sem(t0, t1, r))
MR_WRAP(int, sem_clockwait, (sem_t * s, clockid_t c, const struct timespec *t), (s, c, t), put_sem(t0, t1, r))
