/* One clock. Everything that measures or waits uses it, so that a simulation or a test can put a virtual clock in its
 * place. Time is monotonic nanoseconds from an arbitrary origin. A `struct mr_clock` is shared freely between threads;
 * the virtual clock only moves when somebody sleeps on it or calls mr_clock_advance. */
#ifndef MR_BASE_CLOCK_H
#define MR_BASE_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct mr_clock {
    bool is_virtual;
    _Atomic uint64_t virtual_now_ns;
};

/* The real monotonic clock; never NULL, needs no clean-up. */
struct mr_clock *mr_clock_real(void);
/* Makes `c` a virtual clock that starts at `start_ns`. */
void mr_clock_init_virtual(struct mr_clock *c, uint64_t start_ns);

uint64_t mr_clock_now_ns(const struct mr_clock *c);
/* Sleeps to an absolute time; returns at once if it has passed. EINTR is resumed unless *stop (may be NULL) is set. */
void mr_clock_sleep_until(struct mr_clock *c, uint64_t deadline_ns, const atomic_bool *stop);
/* Moves a virtual clock forward to at least `to_ns`; no effect on the real one. */
void mr_clock_advance(struct mr_clock *c, uint64_t to_ns);

/* Shorthand for the real clock, the common case on hot paths: one vDSO call. */
uint64_t mr_now_ns(void);
/* Wall-clock time (UNIX epoch, ns), only for labels in results; never for durations. */
uint64_t mr_wall_ns(void);

#endif
