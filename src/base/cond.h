/* Condition variables that wait until a time of our clock (mr_now_ns), not of the wall's. */
#ifndef MR_BASE_COND_H
#define MR_BASE_COND_H

#include "base/common.h"

#include <pthread.h>
#include <time.h>

static inline void mr_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(c, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* pthread_cond_timedwait; 0, or ETIMEDOUT. */
static inline int mr_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns)
{
    const struct timespec t = {(time_t)(until_ns / MR_NS_PER_S), (long)(until_ns % MR_NS_PER_S)};
    return pthread_cond_timedwait(c, lock, &t);
}

#endif
