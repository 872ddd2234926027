/* The real and the virtual clock. */
#include "base/clock.h"

#include <errno.h>
#include <time.h>

static uint64_t read_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

uint64_t mr_now_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

uint64_t mr_wall_ns(void)
{
    return read_ns(CLOCK_REALTIME);
}

struct mr_clock *mr_clock_real(void)
{
    static struct mr_clock real;
    return &real;
}

void mr_clock_init_virtual(struct mr_clock *c, uint64_t start_ns)
{
    c->is_virtual = true;
    atomic_init(&c->virtual_now_ns, start_ns);
}

uint64_t mr_clock_now_ns(const struct mr_clock *c)
{
    return c->is_virtual ? atomic_load(&c->virtual_now_ns) : mr_now_ns();
}

void mr_clock_advance(struct mr_clock *c, uint64_t to_ns)
{
    if (!c->is_virtual)
        return;
    uint64_t seen = atomic_load(&c->virtual_now_ns);
    while (seen < to_ns && !atomic_compare_exchange_weak(&c->virtual_now_ns, &seen, to_ns)) {
    }
}

void mr_clock_sleep_until(struct mr_clock *c, uint64_t deadline_ns, const atomic_bool *stop)
{
    if (c->is_virtual) {
        mr_clock_advance(c, deadline_ns);
        return;
    }
    struct timespec t = {.tv_sec = (time_t)(deadline_ns / 1000000000ull),
                         .tv_nsec = (long)(deadline_ns % 1000000000ull)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
        if (stop && atomic_load(stop))
            return;
    }
}
