/* Who may use a device now: one arbiter per device and process for everything that moves bytes beside a training.
 *
 *   demand       reads that a training needs: of the loader, of the tiers. Never delayed and never counted one by one:
 *                who reads joins with a function that says what it is doing, and is asked when background wants to go.
 *   background   fills of a cache, copies to an SSD, checkpoints on their way to storage, in this order. It asks for
 *                every piece.
 *
 * A piece goes
 *   at once      where nobody has joined, or whoever asks is in a hurry because somebody waits for it;
 *   at once      in a gap: no read is in flight and none began lately. In pieces of a few milliseconds of the device's
 *                time, so that a read that comes meanwhile waits no longer than that;
 *   by tokens    beside reads. Each class has a bucket whose rate grows while reads take no longer than without
 *                background (half again as long counts as no longer) and is halved when they do (traffic_budget.h). A
 *                drain does not go that way while somebody waits for bytes of this device, and its rate is halved;
 * where readers spend their time on something else, it must not cost them 2 % of it; by a floor   in any case: 2 % of
 * what the device takes, 1 MB/s at least, or what a drain needs to end before the next one begins. Nothing is starved.
 * A class yields to those before it that were refused lately, except for its floor.
 *
 * A device is a disk (st_dev; partitions are their disk), a mount of a parallel file system, or an emulated one
 * (throttle: its group, or the store itself). Memory is none. Ranks that are processes of one machine each see their
 * own reads; a drain slows down for those of its own rank, which the others' resemble.
 *
 * Thread safety: all calls, from any thread. Lock order: a leaf, except that it calls `look`, which takes no lock. */
#ifndef MR_STORE_TRAFFIC_H
#define MR_STORE_TRAFFIC_H

#include <stdbool.h>
#include <stdint.h>

struct mr_store;
struct mr_traffic;

/* The device of a path, or of its first parent that exists; s NULL: of a file of this machine. NULL: there is none, no
 * memory, or MILLRACE_TRAFFIC=off is in the environment (to measure what the arbiter is worth). All functions accept
 * NULL and let everything pass. */
struct mr_traffic *mr_traffic_get(struct mr_store *s, const char *path);
void mr_traffic_put(struct mr_traffic *d);
/* For tests: a device that nobody else has. */
struct mr_traffic *mr_traffic_create(void);

/* ---- demand ---- */

/* Sums since it joined, and the present moment. */
struct mr_demand {
    uint64_t reads;   /* that are over, or about to be */
    uint64_t read_ns; /* what they took */
    unsigned threads; /* that may read */
    unsigned reading; /* of them, now */
    bool waits;       /* somebody needs bytes that are not there */
};
typedef void mr_traffic_look_fn(void *user, uint64_t now_ns, struct mr_demand *out);

struct mr_traffic_reader;
/* `look` is called from other threads until it leaves. NULL without memory, or without a device. */
struct mr_traffic_reader *mr_traffic_join(struct mr_traffic *d, mr_traffic_look_fn *look, void *user);
void mr_traffic_leave(struct mr_traffic_reader *r); /* accepts NULL */

/* ---- background ---- */

enum mr_traffic_class { MR_TRAFFIC_FILL, MR_TRAFFIC_COPY, MR_TRAFFIC_DRAIN, MR_TRAFFIC_CLASSES };

struct mr_traffic_ask {
    enum mr_traffic_class class;
    bool hurry;        /* somebody waits for it */
    uint64_t bytes;    /* that are to be moved */
    uint64_t least;    /* the smallest piece that makes sense; == bytes: it cannot be cut */
    double need_per_s; /* bytes per second that it must get; 0: what is left over */
};
/* Bytes that may go now, a multiple of MR_TRAFFIC_PIECE or all; 0: none, ask again after *wait_ns. What was granted is
 * given back with mr_traffic_done when it was moved or not. */
uint64_t mr_traffic_take(struct mr_traffic *d, const struct mr_traffic_ask *ask, uint64_t now_ns, uint64_t *wait_ns);
void mr_traffic_done(struct mr_traffic *d, uint64_t bytes, uint64_t start_ns, uint64_t now_ns);
#define MR_TRAFFIC_PIECE ((uint64_t)64 << 10)

/* Does anybody read there? */
bool mr_traffic_shared(struct mr_traffic *d);

/* What is going on, for tests and curious people. */
struct mr_traffic_state {
    double rate[MR_TRAFFIC_CLASSES], floor; /* bytes per second */
    double speed;                           /* of background while it goes; 0: not known */
    uint64_t window;                        /* bytes that may be under way beside reads */
    uint64_t outstanding;
    uint64_t granted[MR_TRAFFIC_CLASSES]; /* bytes so far */
};
void mr_traffic_state(struct mr_traffic *d, struct mr_traffic_state *out);

#endif
