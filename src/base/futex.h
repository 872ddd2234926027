/* Waiting for a word of memory to change, also across processes that share it. Nobody is woken without a reason, but a
 * wait may end without one: look again. */
#ifndef MR_BASE_FUTEX_H
#define MR_BASE_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Until the word is not `seen` any more and someone wakes with a bit of `bits`; at most timeout_ns. */
static inline void mr_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns, uint32_t bits)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end); /* FUTEX_WAIT_BITSET wants the end, not the length */
    uint64_t ns = (uint64_t)end.tv_nsec + timeout_ns;
    end.tv_sec += (time_t)(ns / 1000000000u);
    end.tv_nsec = (long)(ns % 1000000000u);
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, &end, NULL, bits);
}

static inline void mr_futex_wake(_Atomic uint32_t *word, uint32_t bits)
{
    syscall(SYS_futex, word, FUTEX_WAKE_BITSET, INT32_MAX, NULL, NULL, bits);
}

#endif
