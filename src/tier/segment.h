/* The memory that the ranks of a node share: for every rank a ring of deliveries, and the bytes of samples. Made by the
 * leader (memfd, all pages reserved, so that a full machine is an error at open and never a SIGBUS later); the others
 * map its descriptor. Nothing of it has a name: it ends with the last process that maps it.
 *
 *   header | rank 0 .. n-1 | rings | bytes (space.h gives out places)
 *
 * A delivery is number n of its rank, n counting the rank's samples from the last seek on. Its life:
 *
 *   (nothing) --leader: plan--> PLANNED --leader: bytes there--> READY --rank: used--> DONE --leader: reclaims--> (next
 * lap)
 *                                  '----leader: no source had it--> FAILED --rank: told--> DONE
 *
 * Invariants
 *  S1. ring[n % depth] belongs to the leader until it is READY or FAILED with number n, to the rank until it is DONE,
 *      then to the leader again; the state changes by release stores, so what the owner wrote is seen by the next one.
 *  S2. The bytes of a READY delivery do not change and are not given up before it is DONE.
 *  S3. Every wait wakes at least every 100 ms and looks whether the other side lives (`failed`, `closing`, the process
 *      itself by pid and start time), so nothing hangs on a process that was killed.
 *  S4. A rank that is gone can be cleared by the leader: its deliveries up to `planned` are what it may still hold.
 *
 *  S5. No lost wake-up: who waits is listed first and looks at its delivery then; who delivers sets it first and looks
 * at the list then. Nothing sleeps without a waiter listed, so nobody calls the kernel when nobody waits.
 *
 *  S6. While there is a directory, everything that it lists stays where it is, and ranks find samples there by
 *      themselves. Deliveries that were planned before are used up first; no more are planned, and the leader has
 *      nothing to do. It goes with a seek.
 *
 * Who calls what: "leader" functions by the leader's process only, any thread, under the caller's lock; "rank"
 * functions by engine threads of the rank, each delivery by one thread. */
#ifndef MR_TIER_SEGMENT_H
#define MR_TIER_SEGMENT_H

#include <millrace/error.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct mr_segment;

enum mr_delivery_state {
    MR_DELIVERY_NONE,
    MR_DELIVERY_PLANNED,
    MR_DELIVERY_READY,
    MR_DELIVERY_FAILED,
    MR_DELIVERY_DONE
};

/* Where a delivered sample came from, for statistics and events. */
enum mr_tier_from { MR_TIER_RAM, MR_TIER_SSD, MR_TIER_PEER, MR_TIER_SOURCE, MR_TIER_FROMS };

struct mr_delivery {
    uint64_t id;
    uint64_t at, bytes; /* in the segment's bytes */
    uint64_t began_ns;  /* when a device or a peer began on it; 0: it was there, or came for another delivery */
    uint64_t came_ns;   /* when they had come */
    int code;           /* FAILED */
    enum mr_tier_from from;
};

struct mr_segment_params {
    uint32_t ranks; /* of the node */
    uint32_t depth; /* deliveries of a rank that may be out; a power of two */
    uint64_t data_bytes;
    uint32_t first_rank; /* number of the node's first rank in the job, for messages */
};
/* The leader's: of the process that calls. Errors: -ENOMEM with how much was wanted and what is free or what the
 * control group allows. */
int mr_segment_create(const struct mr_segment_params *p, struct mr_segment **out, struct mr_error *err);
/* Another rank's: maps the descriptor (which stays the caller's). MR_E_CONFIG for another version. */
int mr_segment_map(int fd, struct mr_segment **out, struct mr_error *err);
/* The leader's close ends the waits of the others (MR_E_PEER). Accepts NULL. */
void mr_segment_close(struct mr_segment *s);
int mr_segment_fd(const struct mr_segment *s);
uint32_t mr_segment_depth(const struct mr_segment *s);
uint64_t mr_segment_data_bytes(const struct mr_segment *s);
uint8_t *mr_segment_data(const struct mr_segment *s, uint64_t at);
/* MR_SEGMENT_SHARED bytes, zero at first, for figures that all ranks may see; aligned to a page. */
#define MR_SEGMENT_SHARED 4096u
void *mr_segment_shared(const struct mr_segment *s);

/* ---- the leader ---- */
/* Sets delivery n of the rank (PLANNED; READY or FAILED if that is known at once). The place must be free:
 * n < mr_segment_reclaimed + depth. Nobody is woken. */
void mr_segment_plan(struct mr_segment *s, uint32_t rank, uint64_t n, const struct mr_delivery *d,
                     enum mr_delivery_state state);
/* A PLANNED one has come or failed; `err` (may be NULL) is kept for the rank to read. */
void mr_segment_deliver(struct mr_segment *s, uint32_t rank, uint64_t n, const struct mr_delivery *d,
                        const struct mr_error *err);
/* Wakes the rank's threads that wait, if any do: after a run of plans and deliveries. */
void mr_segment_wake(struct mr_segment *s, uint32_t rank);
/* The next delivery of the rank in order that is DONE is taken back: true and its number's content; false: none is. */
bool mr_segment_reclaim(struct mr_segment *s, uint32_t rank, struct mr_delivery *d);
/* The same for the next one whatever its state, which is in *was: before a seek is done, or when the rank is gone. */
bool mr_segment_take_back(struct mr_segment *s, uint32_t rank, struct mr_delivery *d, enum mr_delivery_state *was);
uint64_t mr_segment_reclaimed(const struct mr_segment *s, uint32_t rank);
/* Waits until ranks are DONE with something, one begins to wait, all ask for a seek, one is gone (then `failed` is told
 * to all), or somebody kicks; at most timeout_ns. What came since the last call ends it at once. A rank that has much
 * in its ring tells only now and then that it is DONE. By one thread. */
void mr_segment_wait_ranks(struct mr_segment *s, uint64_t timeout_ns);
void mr_segment_kick(struct mr_segment *s); /* ends that wait; from any process */
/* Is a thread of the rank waiting for a delivery now, and for which? For urgency. UINT64_MAX: none. */
uint64_t mr_segment_wanted(const struct mr_segment *s, uint32_t rank);
/* Every rank that still lives has asked for the same seek, newer than the last taken: true, and which. A rank that is
 * gone makes it fail: *gone is set and `failed` is told to all. */
bool mr_segment_seek_asked(struct mr_segment *s, uint64_t *epoch, uint64_t *position, bool *gone);
/* The rings are empty and begin at number 0 again: ranks that wait in mr_segment_seek go on. */
void mr_segment_seek_done(struct mr_segment *s);
/* S6. `at`: in the segment's bytes, an entry for each of the `samples`; MR_SEGMENT_NO_DIRECTORY: there is none any
 * more, while no rank uses deliveries (all have asked for a seek). Threads that wait look there. */
struct mr_segment_entry {
    uint64_t at, bytes;
};
#define MR_SEGMENT_NO_DIRECTORY UINT64_MAX
void mr_segment_list(struct mr_segment *s, uint64_t at, uint64_t samples);
/* The job cannot go on: everybody's waits end with this error; the first one counts. From any rank. */
void mr_segment_fail(struct mr_segment *s, const struct mr_error *why);

/* That error, or 0. */
int mr_segment_failed(const struct mr_segment *s, struct mr_error *err);
/* Looks now whether a rank that joined has ended without leaving; true: one has, and `failed` was told to all. */
bool mr_segment_look(struct mr_segment *s);

/* ---- a rank ---- */
/* This process is rank `rank` of the node from here on (pid and start time are noted). */
void mr_segment_join(struct mr_segment *s, uint32_t rank);
/* Leaves: its deliveries are all DONE, those that come later too. */
void mr_segment_leave(struct mr_segment *s, uint32_t rank);
/* Asks the leader to begin anew at a place in the training, and waits until it has. All ranks of the node do it. By one
 * thread of the rank, with no delivery in use. `over` is asked now and then; true ends the wait (MR_E_INTERRUPTED). */
int mr_segment_seek(struct mr_segment *s, uint32_t rank, uint64_t epoch, uint64_t position, bool (*over)(void *user),
                    void *user, struct mr_error *err);
/* Delivery n is there, or failed. */
bool mr_segment_has_come(const struct mr_segment *s, uint32_t rank, uint64_t n);
/* The bytes of sample `id` by the directory; *d says where they lie. NULL: there is none. Nothing is to be given back.
 */
const void *mr_segment_find(const struct mr_segment *s, uint64_t id, struct mr_delivery *d);
/* S3 for who never waits: has the other side ended? 0, or a code and the text. Now and then, it asks the kernel. */
int mr_segment_check(struct mr_segment *s, struct mr_error *err);
/* Waits for delivery n and returns where its bytes lie; *d (may be NULL) is a copy. NULL: it failed, or `over`; err
 * says why. -EAGAIN: there is a directory now. */
const void *mr_segment_take(struct mr_segment *s, uint32_t rank, uint64_t n, struct mr_delivery *d,
                            bool (*over)(void *user), void *user, struct mr_error *err);
/* Its threads that wait ask `over` now. */
void mr_segment_interrupt(struct mr_segment *s, uint32_t rank);
/* It was used: the bytes may go. Wakes the leader if it waits for room. */
void mr_segment_done(struct mr_segment *s, uint32_t rank, uint64_t n);

#endif
