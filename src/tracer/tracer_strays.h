/* Stray system calls: those made by an instruction outside the C library. What the rest of the tracer needs of them;
 * the how is in tracer_strays.c. Nothing here does anything unless MILLRACE_TRACE_STRAYS asks for it. */
#ifndef MR_TRACER_STRAYS_H
#define MR_TRACER_STRAYS_H

#include "tracer/tracer_core.h"

#include <signal.h>

struct row;
/* A system call in progress; see wrap_syscall.c. */
struct mr_syscall {
    const struct row *row;
    const long *arg;
    uint32_t file;
    uint64_t t0, t1;
};
/* Before the call: false if it is not one that is recorded. */
MR_HIDDEN bool mr_syscall_is_deep(long number); /* begin needs more than a page of stack */
MR_HIDDEN bool mr_syscall_begin(struct mr_syscall *s, long number, const long *arg);
/* After it, with t1 set: `r` is -1 with errno set on failure. `raw`: it did not come through the C library. */
MR_HIDDEN void mr_syscall_end(const struct mr_syscall *s, long r, bool raw);

/* Linux's asynchronous I/O (wrap_libaio.c): operations that are about to be handed over, and completions that were
 * seen. */
struct iocb;
struct io_event;
MR_HIDDEN void mr_libaio_submitting(struct iocb *const *block, long n, uint64_t t0);
MR_HIDDEN void mr_libaio_submitted(struct iocb *const *block, long n, long taken);
MR_HIDDEN void mr_libaio_completed(const struct io_event *e, long n, uint64_t now);

/* Rings of io_uring that are used without liburing (wrap_uring.c; not there if the library was built without it). */
#define MR_MAYBE __attribute__((weak, visibility("hidden")))
extern MR_MAYBE void mr_ring_made(int fd, const void *params);
extern MR_MAYBE int mr_ring_fd(int fd, unsigned flags); /* of io_uring_enter with these flags */
extern MR_MAYBE void mr_ring_mapped(int fd, uint64_t offset, void *at);
extern MR_MAYBE void mr_ring_unmapped(const void *at, uint64_t len);
extern MR_MAYBE void mr_ring_look(int fd, bool submits);
extern MR_MAYBE void mr_ring_forget(int fd);
extern MR_MAYBE void mr_ring_registered(int fd, unsigned opcode, const void *arg, unsigned n);
extern MR_MAYBE void mr_rings_last_look(void);

/* Strays of this thread are not recorded while the sum is not 0: a wrapped library makes them, whose calls are events
 * already. */
extern MR_HIDDEN __thread int mr_strays_silent __attribute__((tls_model("initial-exec")));
static inline void mr_strays_quiet(int more)
{
    mr_strays_silent += more;
}

/* Once per image, before the program's main; arms the calling thread. */
MR_HIDDEN void mr_strays_begin(void);
/* A thread of this process that has just started. */
MR_HIDDEN void mr_strays_thread(void);
/* In a child made by the system call `number`; arms it if it has its own memory. */
MR_HIDDEN void mr_strays_after_fork(long number, const long *arg);
/* True while this thread's stray calls are seen, and its SIGSYS is therefore ours. */
MR_HIDDEN bool mr_strays_on(void);
/* True if some thread of this process is. */
MR_HIDDEN bool mr_strays_used(void);
/* The kernel's SIGSYS is ours: what the program believes of it. */
MR_HIDDEN int mr_strays_action(const struct sigaction *act, struct sigaction *old);
/* The SIGSYS bit of the thread's mask, as the program sees it; returns the bit before. */
MR_HIDDEN bool mr_strays_block(bool blocked);
MR_HIDDEN bool mr_strays_blocked(void);
/* A mask that a call waits with: itself, or a copy of it in `space` without SIGSYS. */
MR_HIDDEN const sigset_t *mr_wait_mask(const sigset_t *mask, sigset_t *space);
/* Which signals' handlers were given a mask with SIGSYS. */
MR_HIDDEN bool mr_strays_masked(int signal, int set); /* set -1: only ask */
MR_HIDDEN void mr_strays_disowned(void);              /* the thread took the mechanism for itself */

#endif
