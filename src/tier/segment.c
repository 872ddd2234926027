/* The mapping of a segment, who lives and who has ended; segment.h has the contract, segment_ring.c the deliveries.
 *
 *   head | shared figures | ranks | rings | bytes        each from a page on; where they begin stands in the head
 *
 * A memfd, sealed against other sizes once all its pages are reserved: no access can fault later. Pages are reserved
 * piece by piece with a look at the free memory before each, because neither a machine without memory nor a control
 * group at its limit refuses them: they end a process. */
#include "tier/segment.h"
#include "base/cgroup.h"
#include "base/common.h"
#include "base/futex.h"
#include "base/strbuf.h"
#include "tier/segment_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096u
#define RESERVE_PIECE (256 * MR_MIB)
#define RANKS_MAX 4096u
#define DEPTH_MAX (1u << 24)

/* ---- making and mapping ---- */

static struct mr_segment_head layout(const struct mr_segment_params *p)
{
    struct mr_segment_head h = {.magic = MR_SEGMENT_MAGIC,
                                .version = MR_SEGMENT_VERSION,
                                .ranks = p->ranks,
                                .depth = p->depth,
                                .first_rank = p->first_rank,
                                .data_bytes = p->data_bytes,
                                .leader = mr_process_self()};
    h.shared_at = MR_ALIGN_UP(sizeof h, PAGE);
    h.rank_at = h.shared_at + MR_SEGMENT_SHARED;
    h.ring_at = MR_ALIGN_UP(h.rank_at + (uint64_t)p->ranks * sizeof(struct mr_segment_rank), PAGE);
    h.data_at = MR_ALIGN_UP(h.ring_at + (uint64_t)p->ranks * p->depth * sizeof(struct mr_segment_slot), PAGE);
    h.total_bytes = MR_ALIGN_UP(h.data_at + p->data_bytes, PAGE);
    return h;
}

static int no_memory(uint64_t bytes, const struct mr_machine_memory *m, struct mr_error *err)
{
    char want[MR_HUMAN_LEN], have[MR_HUMAN_LEN], all[MR_HUMAN_LEN];
    mr_error_plain(err, -ENOMEM, "no memory for the node's segment: it needs %s, and %s of %s are free%s",
                   mr_human_bytes((double)bytes, want), mr_human_bytes((double)m->free_bytes, have),
                   mr_human_bytes((double)m->total_bytes, all),
                   mr_cgroup_memory_limit() ? " in this control group" : "");
    mr_error_hint(err, "give the tiers less, e.g. --tiers ram=%lluMiB",
                  (unsigned long long)(m->free_bytes / 2 / MR_MIB));
    return -ENOMEM;
}

static int reserve(int fd, uint64_t bytes, struct mr_error *err)
{
    if (ftruncate(fd, (off_t)bytes) != 0)
        return mr_error_set(err, -errno, "cannot make a shared memory segment of %llu bytes",
                            (unsigned long long)bytes);
    for (uint64_t at = 0; at < bytes;) {
        struct mr_machine_memory m = mr_machine_memory();
        uint64_t piece = MR_MIN(bytes - at, RESERVE_PIECE);
        /* The first look sees all of it, so that a segment that is too large is refused before it takes anything. */
        if (m.free_bytes && m.free_bytes < bytes - at)
            return no_memory(bytes, &m, err);
        if (fallocate(fd, 0, (off_t)at, (off_t)piece) == 0)
            at += piece;
        else if (errno == ENOMEM || errno == ENOSPC)
            return no_memory(bytes, &m, err);
        else if (errno != EINTR)
            return mr_error_set(err, -errno, "cannot reserve %llu bytes of shared memory", (unsigned long long)bytes);
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return mr_error_set(err, -errno, "cannot seal the shared memory segment");
    return 0;
}

static int map(struct mr_segment *s, int fd, uint64_t bytes, struct mr_error *err)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return mr_error_set(err, -errno, "cannot map the node's segment (%llu bytes)", (unsigned long long)bytes);
    s->head = at;
    s->map_bytes = bytes;
    return 0;
}

static void parts(struct mr_segment *s)
{
    uint8_t *base = (uint8_t *)s->head;
    s->shared = base + s->head->shared_at;
    s->rank = (struct mr_segment_rank *)(void *)(base + s->head->rank_at);
    s->ring = (struct mr_segment_slot *)(void *)(base + s->head->ring_at);
    s->data = base + s->head->data_at;
    s->depth = s->head->depth;
    s->mask = s->head->depth - 1;
    s->ranks = s->head->ranks;
}

static struct mr_segment *empty(struct mr_error *err)
{
    struct mr_segment *s = calloc(1, sizeof(*s));
    if (!s) {
        mr_error_set(err, -ENOMEM, "cannot hold the node's segment");
        return NULL;
    }
    s->fd = -1;
    s->maker = getpid();
    return s;
}

int mr_segment_create(const struct mr_segment_params *p, struct mr_segment **out, struct mr_error *err)
{
    if (p->ranks == 0 || p->ranks > RANKS_MAX || p->depth == 0 || p->depth > DEPTH_MAX || (p->depth & (p->depth - 1)) ||
        p->data_bytes >> 56)
        return mr_error_plain(err, MR_E_INTERNAL, "a segment of %u ranks, depth %u and %llu bytes cannot be", p->ranks,
                              p->depth, (unsigned long long)p->data_bytes);
    struct mr_segment *s = empty(err);
    if (!s)
        return -ENOMEM;
    struct mr_segment_head h = layout(p);
    int rc = 0;
    s->leads = true;
    s->reclaimed = calloc(p->ranks, sizeof(*s->reclaimed));
    s->asks = calloc(p->ranks, sizeof(*s->asks));
    if (!s->reclaimed || !s->asks)
        rc = mr_error_set(err, -ENOMEM, "cannot hold the node's segment");
    else if ((s->fd = memfd_create("millrace-tier", MFD_CLOEXEC | MFD_ALLOW_SEALING)) < 0)
        rc = mr_error_set(err, -errno, "cannot make a shared memory segment");
    if (rc == 0)
        rc = reserve(s->fd, h.total_bytes, err);
    if (rc == 0)
        rc = map(s, s->fd, h.total_bytes, err);
    if (rc != 0) {
        mr_segment_close(s);
        return rc;
    }
    assert(s->head); /* map() succeeded */
    *s->head = h;
    parts(s);
    *out = s;
    return 0;
}

static int check_head(const struct mr_segment_head *h, uint64_t bytes, struct mr_error *err)
{
    assert(h);
    struct mr_segment_params p = {h->ranks, h->depth, h->data_bytes, h->first_rank};
    struct mr_segment_head want = layout(&p);
    if (h->magic != MR_SEGMENT_MAGIC)
        return mr_error_plain(err, MR_E_CONFIG, "this is no segment of tiers");
    if (h->version != MR_SEGMENT_VERSION || h->total_bytes != bytes || h->total_bytes != want.total_bytes ||
        h->data_at != want.data_at || h->ring_at != want.ring_at || h->rank_at != want.rank_at) {
        mr_error_plain(err, MR_E_CONFIG, "the node's segment has version %u, this program knows version %u", h->version,
                       MR_SEGMENT_VERSION);
        mr_error_hint(err, "all ranks of a node must run the same build of Millrace");
        return MR_E_CONFIG;
    }
    return 0;
}

int mr_segment_map(int fd, struct mr_segment **out, struct mr_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return mr_error_set(err, -errno, "cannot look at the node's segment");
    if ((uint64_t)st.st_size < sizeof(struct mr_segment_head))
        return mr_error_plain(err, MR_E_CONFIG, "this is no segment of tiers");
    struct mr_segment *s = empty(err);
    if (!s)
        return -ENOMEM;
    int rc = 0;
    if ((s->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)
        rc = mr_error_set(err, -errno, "cannot keep the descriptor of the node's segment");
    if (rc == 0)
        rc = map(s, s->fd, (uint64_t)st.st_size, err);
    if (rc == 0)
        rc = check_head(s->head, s->map_bytes, err);
    if (rc != 0) {
        mr_segment_close(s);
        return rc;
    }
    parts(s);
    *out = s;
    return 0;
}

void mr_segment_close(struct mr_segment *s)
{
    if (!s)
        return;
    if (s->leads && s->rank && s->maker == getpid()) { /* a forked child has a copy of this, and is not the leader */
        atomic_store(&s->head->closing, 1);
        for (uint32_t r = 0; r < s->ranks; r++)
            mr_segment_wake_all(s, r);
    }
    if (s->head)
        munmap(s->head, s->map_bytes);
    if (s->fd >= 0)
        close(s->fd);
    free(s->reclaimed);
    free(s->asks);
    free(s);
}

int mr_segment_fd(const struct mr_segment *s)
{
    return s->fd;
}

uint32_t mr_segment_depth(const struct mr_segment *s)
{
    return s->depth;
}

uint64_t mr_segment_data_bytes(const struct mr_segment *s)
{
    return s->head->data_bytes;
}

uint8_t *mr_segment_data(const struct mr_segment *s, uint64_t at)
{
    return s->data + at;
}

void *mr_segment_shared(const struct mr_segment *s)
{
    return s->shared;
}

/* ---- life and death ---- */

void mr_segment_fail(struct mr_segment *s, const struct mr_error *why)
{
    uint32_t none = MR_FAILED_NONE;
    if (!atomic_compare_exchange_strong(&s->head->failed, &none, MR_FAILED_CLAIMED))
        return;
    s->head->why = *why;
    atomic_store(&s->head->failed, MR_FAILED_SET);
    for (uint32_t r = 0; r < s->ranks; r++)
        mr_segment_wake_all(s, r);
    mr_segment_kick(s);
}

int mr_segment_failed(const struct mr_segment *s, struct mr_error *err)
{
    if (atomic_load_explicit(&s->head->failed, memory_order_acquire) != MR_FAILED_SET)
        return 0;
    int code = s->head->why.code; /* written by another process: an error whatever it says */
    if (err) {
        *err = s->head->why;
        err->message[sizeof err->message - 1] = err->context[sizeof err->context - 1] = '\0';
        err->hint[sizeof err->hint - 1] = '\0';
    }
    return code < 0 ? code : MR_E_PEER;
}

bool mr_segment_look(struct mr_segment *s)
{
    for (uint32_t r = 0; r < s->ranks; r++) {
        struct mr_segment_rank *rank = &s->rank[r];
        if (atomic_load_explicit(&rank->state, memory_order_acquire) != MR_RANK_JOINED ||
            mr_process_lives(&rank->process) ||
            atomic_load_explicit(&rank->state, memory_order_acquire) != MR_RANK_JOINED)
            continue;
        struct mr_error why;
        mr_error_plain(&why, MR_E_PEER, "rank %u (process %ld) has ended without finishing", s->head->first_rank + r,
                       (long)rank->process.pid);
        mr_error_hint(&why, "what it printed last, and 'dmesg' for the out-of-memory killer, say why");
        mr_segment_fail(s, &why);
        return true;
    }
    return false;
}

int mr_segment_ended(struct mr_segment *s, bool look, struct mr_error *err)
{
    int rc = mr_segment_failed(s, err);
    if (rc == 0 && s->leads && look && mr_segment_look(s))
        rc = mr_segment_failed(s, err);
    if (rc != 0 || s->leads)
        return rc;
    if (atomic_load_explicit(&s->head->closing, memory_order_acquire))
        return mr_error_plain(err, MR_E_PEER, "rank %u, which reads for this node, has closed its tiers",
                              s->head->first_rank);
    if (!look || mr_process_lives(&s->head->leader))
        return 0;
    struct mr_error why;
    mr_error_plain(&why, MR_E_PEER, "rank %u (process %ld), which reads for this node, has ended without finishing",
                   s->head->first_rank, (long)s->head->leader.pid);
    mr_error_hint(&why, "what it printed last, and 'dmesg' for the out-of-memory killer, say why");
    mr_segment_fail(s, &why);
    if ((rc = mr_segment_failed(s, err)) == 0) { /* who claimed it was killed before it said why */
        rc = why.code;
        if (err)
            *err = why;
    }
    return rc;
}

void mr_segment_join(struct mr_segment *s, uint32_t rank)
{
    s->rank[rank].process = mr_process_self();
    atomic_store_explicit(&s->rank[rank].state, MR_RANK_JOINED, memory_order_release);
}

void mr_segment_leave(struct mr_segment *s, uint32_t rank)
{
    atomic_store(&s->rank[rank].state, MR_RANK_LEFT);
    mr_segment_kick(s);
}
