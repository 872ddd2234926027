/* The agreed holders: see homes.h. */
#include "policy/homes.h"
#include "base/common.h"
#include "base/rng.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 256u
#define EXACT_MAX ((uint64_t)1 << 20) /* samples whose sizes are summed up one by one */
#define CHAIN_NODES_MAX 32u           /* beyond it a chain buys nothing: doc/guides/simulator.md */
#define CHAIN_EXACT_MAX 4096u         /* samples of which all are tried */
#define CHAIN_SAMPLES 1024u           /* of more, so many */
#define BUCKETS 4096u
#define REACH_LEAST 4u
#define REACH_STEPS 64u /* reach is a multiple of a quarter of an epoch */
#define SALT 0x6d696c6c72616365ull

uint64_t mr_homes_hash(uint64_t id)
{
    return mr_mix64(id ^ SALT);
}

uint32_t mr_homes_dealt(const struct mr_homes *h, uint64_t hash)
{
    if (hash < h->readers_end || !h->dealt_end || hash >= h->dealt_end[h->w->nodes - 1])
        return UINT32_MAX;
    uint32_t low = 0, high = h->w->nodes - 1; /* the first node whose range ends behind the hash */
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (h->dealt_end[mid] > hash)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

void mr_homes_first(const struct mr_homes *h, const uint64_t *ids, uint64_t *first, uint32_t *readers, size_t n)
{
    struct mr_schedule *s = h->w->schedule;
    uint64_t e = mr_schedule_first_epoch(s), last = MR_MIN(mr_schedule_last_epoch(s), e + MR_HOME_EPOCHS - 1);
    if (mr_schedule_find(s, e, ids, first, n, NULL))
        memset(first, 0xff, n * sizeof(*first));
    mr_schedule_readers(s, e, first, readers, n);
    for (size_t i = 0; i < n; i++)
        for (uint64_t q = e + 1; first[i] == MR_NO_ACCESS && q <= last; q++)
            if (mr_schedule_find(s, q, &ids[i], &first[i], 1, NULL) == 0)
                mr_schedule_readers(s, q, &first[i], &readers[i], 1);
}

/* ---- the share of every node ---- */

static double capacity_of(const struct mr_homes *h, uint32_t node, uint64_t entries_max)
{
    double bytes = 0, mean = (double)h->w->total_bytes / (double)h->w->samples;
    uint64_t each = MR_MAX(h->w->sample_bytes, (uint64_t)1); /* whole samples, where they are equal */
    for (unsigned j = 1; j < h->classes; j++) {
        uint64_t whole = mr_policy_capacity(h->w, node, j) / each;
        bytes += (double)(whole * each);
    }
    return fmin(bytes, 0.98 * (double)entries_max * mean);
}

/* Bytes by hash: what each node reads first, in buckets of hashes. Summed up sample by sample, or estimated from a
 * draw. */
struct histogram {
    double *bytes; /* [node * BUCKETS + bucket] */
};

static unsigned bucket_of(uint64_t hash)
{
    return (unsigned)(hash / (UINT64_MAX / BUCKETS + 1));
}

static uint64_t bucket_end(unsigned bucket)
{
    return bucket + 1 < BUCKETS ? (UINT64_MAX / BUCKETS + 1) * (bucket + 1) : UINT64_MAX;
}

/* Of many samples every node reads its ranks' part first, and hashes are even. */
static void even_histogram(const struct mr_homes *h, struct histogram *g)
{
    const struct mr_policy_world *w = h->w;
    double each = (double)w->total_bytes / mr_schedule_world(w->schedule) / BUCKETS;
    for (uint32_t i = 0; i < w->nodes; i++)
        for (unsigned b = 0; b < BUCKETS; b++)
            g->bytes[(uint64_t)i * BUCKETS + b] =
                each * (mr_schedule_first_rank(w->schedule, i + 1) - mr_schedule_first_rank(w->schedule, i));
}

static void fill_histogram(const struct mr_homes *h, struct histogram *g)
{
    const struct mr_policy_world *w = h->w;
    uint64_t ids[BLOCK], first[BLOCK];
    uint32_t reader[BLOCK];
    if (w->samples > EXACT_MAX) {
        even_histogram(h, g);
        return;
    }
    for (uint64_t at = 0; at < w->samples; at += BLOCK) {
        size_t m = (size_t)MR_MIN(w->samples - at, (uint64_t)BLOCK);
        for (size_t k = 0; k < m; k++)
            ids[k] = at + k;
        mr_homes_first(h, ids, first, reader, m);
        for (size_t k = 0; k < m; k++)
            if (reader[k] < w->nodes)
                g->bytes[(uint64_t)reader[k] * BUCKETS + bucket_of(mr_homes_hash(ids[k]))] +=
                    (double)mr_policy_bytes(w, ids[k]);
    }
}

/* What was not summed up is off by about one over the root of a node's samples, a few times that where sizes differ
 * much; that must not matter. */
static double even_margin(const struct mr_policy_world *w)
{
    double root = sqrt((double)w->samples / w->nodes);
    return w->samples > EXACT_MAX ? fmin(0.05, (w->sample_bytes ? 4 : 12) / root) : 0;
}

/* What a node has room for, less what stays empty at the end of each class because no sample is that small: half of one
 * on average. */
static double room_of(const struct mr_homes *h, uint32_t node, uint64_t entries_max)
{
    double mean = (double)h->w->total_bytes / (double)h->w->samples;
    double empty = h->w->sample_bytes ? 0 : 0.5 * mean * (h->classes - 1);
    return fmax(0, capacity_of(h, node, entries_max) * (1 - even_margin(h->w)) - empty);
}

/* The first bucket that does not fit the node any more. */
static unsigned fitting(const double *bytes, double room)
{
    unsigned b = 0;
    while (b < BUCKETS && bytes[b] <= room)
        room -= bytes[b++];
    return b;
}

/* Deals buckets from `at` on, node after node, as far as the room goes. */
static void deal(struct mr_homes *h, const struct histogram *g, const double *room, unsigned at)
{
    uint32_t nodes = h->w->nodes;
    for (uint32_t i = 0; i < nodes; i++) {
        double left = room[i];
        for (; at < BUCKETS; at++) {
            double bytes = 0;
            for (uint32_t k = 0; k < nodes; k++)
                bytes += g->bytes[(uint64_t)k * BUCKETS + at];
            if (bytes > left)
                break;
            left -= bytes;
        }
        h->dealt_end[i] = at ? bucket_end(at - 1) : 0;
    }
}

static int set_shares(struct mr_homes *h, const struct mr_homes_options *o, struct mr_error *err)
{
    uint32_t nodes = h->w->nodes;
    struct histogram g = {.bytes = calloc((uint64_t)nodes * BUCKETS, sizeof(*g.bytes))};
    double *room = malloc(nodes * sizeof(*room));
    int rc = g.bytes && room ? 0 : mr_error_set(err, -ENOMEM, "homes of %u nodes", nodes);
    unsigned t = BUCKETS;
    if (!rc)
        fill_histogram(h, &g);
    for (uint32_t i = 0; i < nodes && !rc; i++) {
        room[i] = room_of(h, i, o->entries_max);
        unsigned own = fitting(g.bytes + (uint64_t)i * BUCKETS, room[i]);
        t = MR_MIN(t, own);
        if (h->reader_end)
            h->reader_end[i] = own ? bucket_end(own - 1) : 0;
    }
    if (!rc) {
        h->readers_end = t ? bucket_end(t - 1) : 0;
    }
    for (uint32_t i = 0; i < nodes && !rc; i++)
        for (unsigned b = 0; b < t; b++)
            room[i] -= g.bytes[(uint64_t)i * BUCKETS + b];
    if (!rc && t < BUCKETS && o->deal)
        deal(h, &g, room, t);
    free(g.bytes);
    free(room);
    return rc;
}

/* ---- the chain ---- */

void mr_homes_sight(const struct mr_homes *h, uint64_t epoch, uint64_t *low, uint64_t *high)
{
    struct mr_schedule *s = h->w->schedule;
    uint64_t first = mr_schedule_first_epoch(s), last = mr_schedule_last_epoch(s);
    uint64_t before = mr_chain_anchor(first, epoch > first ? epoch - 1 : epoch, h->window),
             after = mr_chain_anchor(first, epoch, h->window);
    *low = before - first >= MR_CHAIN_MARGIN - 1 ? before - (MR_CHAIN_MARGIN - 1) : first;
    *high = MR_MIN(last, after + h->window + MR_CHAIN_MARGIN - 1);
}

static bool keeps_over(const struct mr_chain *c, const uint8_t *keep, unsigned i, unsigned step)
{
    return ((keep[i] & MR_CHAIN_OWN) && mr_chain_next_own(c, i) > step) || (i == step && (keep[i] & MR_CHAIN_NEXT));
}

/* Adds those who keep it from read `step` on until the next one. */
static unsigned add_holders(const struct mr_homes *h, const struct mr_chain *c, unsigned step, uint32_t *nodes,
                            unsigned n, unsigned most)
{
    uint8_t keep[MR_CHAIN_MAX];
    mr_chain_cover(c, mr_chain_anchor(mr_schedule_first_epoch(h->w->schedule), c->epoch[step], h->window), h->window,
                   h->reach, keep);
    for (unsigned i = 0; i <= step && n < most; i++) {
        bool known = !keeps_over(c, keep, i, step);
        for (unsigned m = 0; m < n && !known; m++)
            known = nodes[m] == c->node[i];
        if (!known)
            nodes[n++] = c->node[i];
    }
    return n;
}

unsigned mr_homes_before(const struct mr_homes *h, const struct mr_chain *c, uint64_t access, uint32_t *nodes,
                         unsigned most, unsigned *at)
{
    unsigned n = 0, k = 0;
    while (k < c->n && c->when[k] < access)
        k++;
    *at = k;
    if (k == 0)
        return 0;
    n = add_holders(h, c, k - 1, nodes, n, most);
    if (k > 1 && access - c->when[k - 1] <= h->w->skew) /* the newest may not have it yet */
        n = add_holders(h, c, k - 2, nodes, n, most);
    return n;
}

/* Until when the reader of `at` keeps it, by what the window's cover says. */
static uint64_t until_of(const struct mr_homes *h, const struct mr_chain *c, unsigned at, const uint8_t *keep)
{
    struct mr_schedule *s = h->w->schedule;
    uint64_t until = 0;
    if (c->epoch[at] == mr_schedule_last_epoch(s))
        return 0;
    unsigned own = mr_chain_next_own(c, at);
    if ((keep[at] & MR_CHAIN_OWN) && own < c->n)
        until = c->when[own];
    if (keep[at] & MR_CHAIN_NEXT) /* no read in sight: as long as one may come */
        until = MR_MAX(until, at + 1 < c->n ? c->when[at + 1] : c->when[at] + MR_CHAIN_MARGIN * mr_schedule_stride(s));
    return until;
}

uint64_t mr_homes_until(const struct mr_homes *h, const struct mr_chain *c, unsigned at)
{
    uint8_t keep[MR_CHAIN_MAX];
    mr_chain_cover(c, mr_chain_anchor(mr_schedule_first_epoch(h->w->schedule), c->epoch[at], h->window), h->window,
                   h->reach, keep);
    return until_of(h, c, at, keep);
}

/* Reads of one sample in epochs low ... high. */
static int load_chain(struct mr_schedule *s, uint64_t id, uint64_t low, uint64_t high, struct mr_chain *c)
{
    c->n = 0;
    for (uint64_t e = low; e <= high; e++) {
        uint64_t when;
        int rc = mr_schedule_find(s, e, &id, &when, 1, NULL);
        if (rc)
            return rc;
        if (when == MR_NO_ACCESS)
            continue;
        assert(c->n < MR_CHAIN_MAX);
        c->epoch[c->n] = e;
        c->when[c->n] = when;
        mr_schedule_readers(s, e, &when, &c->node[c->n++], 1);
    }
    return 0;
}

#define TRIAL_EPOCHS (3u * MR_CHAIN_WINDOW)
#define POINTS (4u * TRIAL_EPOCHS)

/* The reads of a drawn sample and its bytes; long enough for three windows. */
struct trial {
    uint64_t bytes;
    unsigned n;
    uint64_t epoch[TRIAL_EPOCHS + MR_CHAIN_MARGIN], when[TRIAL_EPOCHS + MR_CHAIN_MARGIN];
    uint32_t node[TRIAL_EPOCHS + MR_CHAIN_MARGIN];
};

static void chain_of_trial(const struct trial *t, uint64_t low, uint64_t high, struct mr_chain *c)
{
    c->n = 0;
    for (unsigned i = 0; i < t->n; i++)
        if (t->epoch[i] >= low && t->epoch[i] <= high) {
            c->epoch[c->n] = t->epoch[i];
            c->when[c->n] = t->when[i];
            c->node[c->n++] = t->node[i];
        }
}

/* Adds what the sample takes at the points in time: used[node * POINTS + k] at a quarter of an epoch after the other.
 */
static void use_of_trial(const struct mr_homes *h, const struct trial *t, uint64_t grace, double *used)
{
    struct mr_schedule *s = h->w->schedule;
    uint64_t first = mr_schedule_first_epoch(s), step = MR_MAX(mr_schedule_stride(s) / 4, (uint64_t)1);
    for (uint64_t anchor = first; anchor < first + TRIAL_EPOCHS; anchor += h->window) {
        uint8_t keep[MR_CHAIN_MAX];
        struct mr_chain c;
        uint64_t low = anchor - first >= MR_CHAIN_MARGIN - 1 ? anchor - (MR_CHAIN_MARGIN - 1) : first;
        chain_of_trial(t, low, anchor + h->window + MR_CHAIN_MARGIN - 1, &c);
        mr_chain_cover(&c, anchor, h->window, h->reach, keep);
        for (unsigned i = 0; i < c.n; i++) {
            if (c.epoch[i] < anchor || c.epoch[i] >= anchor + h->window)
                continue;
            uint64_t until = until_of(h, &c, i, keep), k = (c.when[i] - first * mr_schedule_stride(s)) / step + 1;
            for (; k < POINTS && until && until + grace >= first * mr_schedule_stride(s) + k * step; k++)
                used[(uint64_t)c.node[i] * POINTS + k] += (double)t->bytes;
        }
    }
}

/* By how much the agreed copies exceed the room, with the reach at hand: above 1 they do. All samples: the worst node
 * at the worst time. A draw: the mean over nodes at the worst time, and what a node has to keep varies around it. */
static double need_of(const struct mr_homes *h, const struct trial *trials, uint64_t n, uint64_t grace,
                      const double *room, double *used)
{
    uint32_t nodes = h->w->nodes;
    double scale = (double)h->w->samples / (double)n, worst = 0, mean = 0, least = INFINITY;
    memset(used, 0, (uint64_t)nodes * POINTS * sizeof(*used));
    for (uint64_t i = 0; i < n; i++)
        use_of_trial(h, &trials[i], grace, used);
    for (unsigned k = 0; k < POINTS; k++) {
        double sum = 0;
        for (uint32_t i = 0; i < nodes; i++) {
            sum += used[(uint64_t)i * POINTS + k];
            worst = fmax(worst, used[(uint64_t)i * POINTS + k] / room[i]);
            least = fmin(least, room[i]);
        }
        mean = fmax(mean, sum * scale / nodes);
    }
    double margin = 1 + 1 / sqrt((double)h->w->samples / nodes + 1);
    return n == h->w->samples ? 1.005 * worst : margin * mean / least;
}

static int draw_trials(const struct mr_homes *h, struct trial *trials, uint64_t n)
{
    struct mr_schedule *s = h->w->schedule;
    uint64_t first = mr_schedule_first_epoch(s), last = mr_schedule_last_epoch(s);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t id = (uint64_t)((unsigned __int128)i * h->w->samples / n);
        trials[i].bytes = mr_policy_bytes(h->w, id);
        for (uint64_t e = first; e <= MR_MIN(last, first + TRIAL_EPOCHS + MR_CHAIN_MARGIN - 1); e++) {
            uint64_t when;
            int rc = mr_schedule_find(s, e, &id, &when, 1, NULL);
            if (rc)
                return rc;
            if (when == MR_NO_ACCESS)
                continue;
            trials[i].epoch[trials[i].n] = e;
            trials[i].when[trials[i].n] = when;
            mr_schedule_readers(s, e, &when, &trials[i].node[trials[i].n++], 1);
        }
    }
    return 0;
}

/* The largest reach for which the agreed copies fit. Below an epoch a chain buys nothing: false. */
static bool choose_reach(struct mr_homes *h, const double *room)
{
    uint64_t n = h->w->samples <= CHAIN_EXACT_MAX ? h->w->samples : CHAIN_SAMPLES;
    struct trial *trials = calloc(n, sizeof(*trials));
    double *used = malloc((uint64_t)h->w->nodes * POINTS * sizeof(*used));
    unsigned low = 0, high = REACH_STEPS;
    uint64_t quarter = mr_schedule_stride(h->w->schedule) / 4;
    bool good = trials && used && draw_trials(h, trials, n) == 0;
    h->reach = REACH_LEAST * quarter;
    if (good && need_of(h, trials, n, h->w->skew, room, used) <= 1) /* with what waits for laggards */
        low = REACH_LEAST;
    else
        good = false;
    while (good && high - low > 1) {
        unsigned mid = (low + high) / 2;
        h->reach = mid * quarter;
        if (need_of(h, trials, n, 0, room, used) <= 1)
            low = mid;
        else
            high = mid;
    }
    h->reach = low * quarter;
    free(trials);
    free(used);
    return good;
}

/* A chain pays where nodes have more room than their share and not enough for everything they read. */
static bool can_chain(const struct mr_homes *h, const struct mr_homes_options *o)
{
    const struct mr_policy_world *w = h->w;
    struct mr_schedule *s = w->schedule;
    uint64_t known = mr_schedule_last_epoch(s) - mr_schedule_first_epoch(s) + 1;
    return o->may_chain && h->scarce && h->readers_end == UINT64_MAX && w->nodes > 1 && w->nodes <= CHAIN_NODES_MAX &&
           known > 1 && !mr_schedule_rank_local(s) &&
           mr_schedule_span(s) >= MR_MIN(known, (uint64_t)TRIAL_EPOCHS + MR_CHAIN_MARGIN);
}

static int choose_rule(struct mr_homes *h, const struct mr_homes_options *o, struct mr_error *err)
{
    const struct mr_policy_world *w = h->w;
    double *room = malloc(w->nodes * sizeof(*room));
    if (!room)
        return mr_error_set(err, -ENOMEM, "homes of %u nodes", w->nodes);
    for (uint32_t i = 0; i < w->nodes; i++) {
        double all = (double)w->total_bytes * fmin(1.001, 1.1 * (double)w->epochs / w->nodes);
        h->scarce |= capacity_of(h, i, UINT64_MAX / 4) < all;
        room[i] = room_of(h, i, o->entries_max_chain);
    }
    uint64_t steps = w->epochs > 1 ? w->epochs - 1 : 1;
    h->window = steps <= MR_CHAIN_WHOLE ? steps : MR_CHAIN_WINDOW;
    if (can_chain(h, o) && choose_reach(h, room))
        h->rule = MR_HOME_CHAIN;
    free(room);
    return 0;
}

/* ---- interface ---- */

void mr_homes_free(struct mr_homes *h)
{
    if (h) {
        free(h->dealt_end);
        free(h->reader_end);
    }
    free(h);
}

int mr_homes_create(const struct mr_policy_world *w, const struct mr_homes_options *o, struct mr_homes **out,
                    struct mr_error *err)
{
    struct mr_homes *h = calloc(1, sizeof(*h));
    if (!h || !(h->dealt_end = calloc(w->nodes, sizeof(*h->dealt_end))) ||
        (!o->deal && !(h->reader_end = calloc(w->nodes, sizeof(*h->reader_end))))) {
        mr_homes_free(h);
        return mr_error_set(err, -ENOMEM, "homes of %u nodes", w->nodes);
    }
    h->w = w;
    h->classes = o->classes;
    int rc = set_shares(h, o, err);
    if (!rc)
        rc = choose_rule(h, o, err);
    if (rc) {
        mr_homes_free(h);
        return rc;
    }
    *out = h;
    return 0;
}

bool mr_homes_holds(const struct mr_homes *h, uint32_t node, uint64_t id, uint64_t access)
{
    uint64_t hash = mr_homes_hash(id), first;
    uint32_t reader, holders[MR_CHAIN_MAX];
    if (!mr_homes_by_readers(h, hash) || h->rule == MR_HOME_FIRST) {
        mr_homes_first(h, &id, &first, &reader, 1);
        if (mr_homes_kept_by(h, hash, reader))
            return first < access && reader == node;
        return mr_homes_dealt(h, hash) == node && first <= access;
    }
    struct mr_chain c;
    uint64_t low, high, epoch = mr_schedule_epoch_of(h->w->schedule, access);
    mr_homes_sight(h, epoch, &low, &high);
    if (load_chain(h->w->schedule, id, low, high, &c))
        return false;
    unsigned at;
    for (unsigned n = mr_homes_before(h, &c, access, holders, MR_CHAIN_MAX, &at); n-- > 0;)
        if (holders[n] == node)
            return true;
    return false;
}
