/* The arbiter of a device: see traffic.h for the rules.
 *
 * Readers are looked at when background asks, at most every LOOK_NS. What they did since the last look says whether
 * there is a gap; what they did since the beginning of a window (some reads, WINDOW_NS at least) how long a read takes.
 * A window without background says how long it takes undisturbed; while a drain goes on for long, it pauses for one now
 * and then to learn that anew (PROBE_*).
 *
 * Invariant: everything of a device is under its lock, which is not held while anything waits or moves bytes. */
#include "store/traffic.h"
#include "base/clock.h"
#include "base/common.h"
#include "store/traffic_budget.h"
#include "store/traffic_device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS (MR_NS_PER_MS / 4)
#define GAP_NS (MR_NS_PER_MS / 2)     /* without a read: a gap */
#define IDLE_NS (100 * MR_NS_PER_MS)  /* without a read: nobody reads at the moment */
#define WINDOW_NS (20 * MR_NS_PER_MS) /* in which latency is measured, and reads in it */
#define WINDOW_READS 8u
#define WINDOW_LONG_NS (500 * MR_NS_PER_MS) /* nobody asked for so long: it was undisturbed */
#define WAITED_NS (50 * MR_NS_PER_MS)       /* after somebody waited, drains hold back */
#define YIELD_NS (10 * MR_NS_PER_MS)        /* after a refusal, classes behind it are refused */
#define PROBE_EVERY_NS (2 * MR_NS_PER_S)
#define PROBE_NS (100 * MR_NS_PER_MS)
#define PIECE_NS (3 * MR_NS_PER_MS) /* of the device's time, beside reads */
#define PIECE_IDLE_NS (10 * MR_NS_PER_MS)
#define WINDOW_MAX ((uint64_t)64 << 20)
#define RATE_FIRST 64e6 /* of the buckets; drains can wait */
#define RATE_FIRST_DRAIN 4e6
#define SLOWER 1.5    /* a read may take so much longer while nobody waits */
#define COST 0.02     /* share of the readers' time that a drain may cost while somebody waits */
#define FLOOR_MIN 1e6 /* bytes per second */
#define FLOOR_SHARE 0.02
#define FLOOR_KEPT_S 0.05 /* of it */
#define FLOOR_DEBT_S 0.25
#define IO_BOUND 0.25 /* share of the readers' time in reads from which on who waits, waits for the device */
#define DRIFT 1.0008  /* per window: devices change, and fills may go on for ever */

struct mr_traffic_reader {
    struct mr_traffic *device;
    struct mr_traffic_reader *next;
    mr_traffic_look_fn *look;
    void *user;
    uint64_t reads, read_ns; /* at the last look */
};

struct floor {
    double tokens, rate;
    uint64_t filled_ns;
};

struct mr_traffic {
    struct mr_traffic *next; /* registry lock, as the next two */
    struct mr_device_key key;
    unsigned users;

    pthread_mutex_t lock; /* all below */
    struct mr_traffic_reader *readers;
    uint64_t latest_ns; /* that anybody said it is: threads look at the clock before they get the lock */
    uint64_t looked_ns, active_ns, waited_ns; /* the last look; the last one that found reads; somebody who waits */
    unsigned threads, reading;
    bool waits;
    struct {
        uint64_t since_ns, reads, read_ns;
        bool waits, disturbed;
    } window;
    double io_share; /* of the readers' time that they spent in reads, in the last window */
    uint64_t quiet_ns, probe_until_ns, drained_ns; /* the last undisturbed window; the pause; the last drain's piece */
    struct mr_traffic_budget budget[MR_TRAFFIC_CLASSES];
    struct floor floor[MR_TRAFFIC_CLASSES];
    uint64_t refused_ns[MR_TRAFFIC_CLASSES];
    uint64_t granted[MR_TRAFFIC_CLASSES], outstanding, ended_ns; /* the last piece */
    double speed;      /* bytes per second of background while some is under way */
    uint64_t least_ns; /* that a piece took */
};

/* ---- devices of this process ---- */

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mr_traffic *registry;
static pthread_once_t forked_once = PTHREAD_ONCE_INIT;

/* A child has none of the threads that read: it begins anew. What its copies of the parent's objects hold stays valid.
 */
static void forget_all(void)
{
    pthread_mutex_init(&registry_lock, NULL);
    registry = NULL;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_all);
}

struct mr_traffic *mr_traffic_create(void)
{
    struct mr_traffic *d = calloc(1, sizeof(*d));
    if (!d)
        return NULL;
    pthread_mutex_init(&d->lock, NULL);
    for (unsigned c = 0; c < MR_TRAFFIC_CLASSES; c++)
        mr_budget_init(&d->budget[c], c == MR_TRAFFIC_DRAIN ? RATE_FIRST_DRAIN : RATE_FIRST);
    d->users = 1;
    return d;
}

struct mr_traffic *mr_traffic_get(struct mr_store *s, const char *path)
{
    struct mr_device_key key;
    struct mr_traffic *d;
    const char *off = getenv("MILLRACE_TRAFFIC");
    if ((off && strcmp(off, "off") == 0) || !mr_device_find(s, path, &key))
        return NULL;
    pthread_once(&forked_once, watch_forks);
    pthread_mutex_lock(&registry_lock);
    for (d = registry; d && !(d->key.kind == key.kind && d->key.a == key.a && d->key.b == key.b); d = d->next)
        ;
    if (d) {
        d->users++;
    } else if ((d = mr_traffic_create())) {
        d->key = key;
        d->next = registry;
        registry = d;
    }
    pthread_mutex_unlock(&registry_lock);
    return d;
}

void mr_traffic_put(struct mr_traffic *d)
{
    if (!d)
        return;
    pthread_mutex_lock(&registry_lock);
    bool last = --d->users == 0;
    struct mr_traffic **at = &registry;
    while (last && *at && *at != d)
        at = &(*at)->next;
    if (last && *at)
        *at = d->next;
    pthread_mutex_unlock(&registry_lock);
    if (!last)
        return;
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* ---- demand ---- */

struct mr_traffic_reader *mr_traffic_join(struct mr_traffic *d, mr_traffic_look_fn *look, void *user)
{
    struct mr_traffic_reader *r = d ? calloc(1, sizeof(*r)) : NULL;
    if (!r)
        return NULL;
    *r = (struct mr_traffic_reader){.device = d, .look = look, .user = user};
    pthread_mutex_lock(&registry_lock);
    d->users++;
    pthread_mutex_unlock(&registry_lock);
    pthread_mutex_lock(&d->lock);
    r->next = d->readers;
    d->readers = r;
    pthread_mutex_unlock(&d->lock);
    return r;
}

void mr_traffic_leave(struct mr_traffic_reader *r)
{
    if (!r)
        return;
    struct mr_traffic *d = r->device;
    pthread_mutex_lock(&d->lock);
    struct mr_traffic_reader **at = &d->readers;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    pthread_mutex_unlock(&d->lock);
    free(r);
    mr_traffic_put(d);
}

static void restart_window(struct mr_traffic *d, uint64_t now)
{
    d->window.since_ns = now;
    d->window.reads = d->window.read_ns = 0;
    d->window.waits = false;
    d->window.disturbed = d->outstanding > 0 || (d->ended_ns && now - d->ended_ns < WINDOW_NS); /* or delayed by it */
}

/* How much longer a read may take before the background is felt. */
static double tolerance(const struct mr_traffic *d, enum mr_traffic_class c)
{
    if (c != MR_TRAFFIC_DRAIN || !d->window.waits)
        return SLOWER;
    return 1 + COST / MR_MAX(d->io_share, COST);
}

static void judge_window(struct mr_traffic *d, uint64_t now)
{
    uint64_t span = now - d->window.since_ns;
    if (span < WINDOW_NS || (d->window.reads < WINDOW_READS && span < WINDOW_LONG_NS))
        return;
    if (d->window.reads && d->threads) {
        double mean = (double)d->window.read_ns / (double)d->window.reads;
        d->io_share = (double)d->window.read_ns / ((double)span * d->threads);
        for (unsigned c = 0; c < MR_TRAFFIC_CLASSES; c++) {
            if (!d->window.disturbed)
                mr_budget_quiet(&d->budget[c], mean);
            else
                mr_budget_latency(&d->budget[c], mean, tolerance(d, c), now);
            if (c != MR_TRAFFIC_DRAIN)
                d->budget[c].best_ns *= DRIFT;
        }
        if (!d->window.disturbed)
            d->quiet_ns = now;
    }
    restart_window(d, now);
}

/* Somebody waits, or has waited a moment ago, and for this device. */
static bool is_waited_for(const struct mr_traffic *d, uint64_t now)
{
    return d->waited_ns && now - d->waited_ns < WAITED_NS && d->io_share > IO_BOUND;
}

static void look(struct mr_traffic *d, uint64_t now)
{
    if (d->looked_ns && now - d->looked_ns < LOOK_NS)
        return;
    uint64_t reads = 0, read_ns = 0;
    if (now - d->looked_ns >= WINDOW_LONG_NS && !d->outstanding)
        d->window.disturbed = false;
    d->threads = d->reading = 0;
    d->waits = false;
    for (struct mr_traffic_reader *r = d->readers; r; r = r->next) {
        struct mr_demand x = {0};
        r->look(r->user, now, &x);
        if (x.reads >= r->reads && x.read_ns >= r->read_ns) { /* else it began anew */
            reads += x.reads - r->reads;
            read_ns += x.read_ns - r->read_ns;
        }
        r->reads = x.reads;
        r->read_ns = x.read_ns;
        d->threads += x.threads;
        d->reading += x.reading;
        d->waits |= x.waits;
    }
    d->window.reads += reads;
    d->window.read_ns += read_ns;
    d->window.waits |= d->waits;
    if (d->waits)
        d->waited_ns = now;
    if (is_waited_for(d, now) && d->window.disturbed)
        mr_budget_cut(&d->budget[MR_TRAFFIC_DRAIN], now);
    if (reads || read_ns || d->reading)
        d->active_ns = now;
    d->looked_ns = now;
    if (!d->window.since_ns)
        restart_window(d, now);
    judge_window(d, now);
}

/* ---- background ---- */

/* Bytes that may be under way: what the device moves in a few milliseconds, beyond what any request costs; without that
 * where somebody waits for reads, and there is no hurry. */
static uint64_t window_of(const struct mr_traffic *d, bool idle, double need_per_s)
{
    bool small = d->waits && need_per_s <= FLOOR_MIN;
    double ns = (double)((idle ? PIECE_IDLE_NS : PIECE_NS) + (small ? 0 : 2 * d->least_ns));
    uint64_t bytes = MR_MIN((uint64_t)(d->speed * ns / 1e9), WINDOW_MAX);
    return MR_MAX(bytes / MR_TRAFFIC_PIECE * MR_TRAFFIC_PIECE, MR_TRAFFIC_PIECE);
}

static double floor_of(const struct mr_traffic *d, const struct mr_traffic_ask *ask)
{
    return MR_MAX(MR_MAX(FLOOR_MIN, FLOOR_SHARE * d->speed), ask->need_per_s);
}

/* The floor's tokens are kept for a moment only: who did not want them does not get them later. What a class gets in
 * any way counts, so that one that finds gaps leaves reads alone. */
static bool has_floor(struct mr_traffic *d, const struct mr_traffic_ask *ask, uint64_t now)
{
    struct floor *f = &d->floor[ask->class];
    f->rate = floor_of(d, ask);
    if (f->filled_ns && now > f->filled_ns)
        f->tokens = MR_MIN(MR_MAX(f->rate * FLOOR_KEPT_S, (double)MR_TRAFFIC_PIECE),
                           f->tokens + f->rate * (double)(now - f->filled_ns) / 1e9);
    f->filled_ns = now;
    return f->tokens > 0;
}

static void count_floor(struct floor *f, uint64_t bytes)
{
    double most = MR_MAX(f->rate * FLOOR_DEBT_S, (double)MR_TRAFFIC_PIECE);
    f->tokens = MR_MAX(f->tokens - (double)bytes, -most);
}

static bool yields(const struct mr_traffic *d, enum mr_traffic_class c, uint64_t now)
{
    for (unsigned before = 0; before < c; before++)
        if (d->refused_ns[before] && now - d->refused_ns[before] < YIELD_NS)
            return true;
    return false;
}

/* A drain pauses now and then, so that there is something to compare with. */
static bool is_probing(struct mr_traffic *d, uint64_t now, bool idle)
{
    if (now < d->probe_until_ns)
        return true;
    bool is_draining = d->drained_ns && now - d->drained_ns < IDLE_NS;
    if (idle || !is_draining || now - MR_MAX(d->quiet_ns, d->probe_until_ns) < PROBE_EVERY_NS)
        return false;
    d->probe_until_ns = now + PROBE_NS;
    return true;
}

/* Whether a piece may go beside what is going on. */
static bool may_go(struct mr_traffic *d, const struct mr_traffic_ask *ask, uint64_t piece, uint64_t now, bool idle)
{
    bool drain = ask->class == MR_TRAFFIC_DRAIN;
    bool gap = idle || (!d->reading && now - d->active_ns >= GAP_NS);
    if (drain && is_probing(d, now, idle))
        return false;
    if (!yields(d, ask->class, now)) {
        if (gap)
            return true;
        if (!(drain && is_waited_for(d, now)) && mr_budget_take(&d->budget[ask->class], piece, now))
            return true;
    }
    return has_floor(d, ask, now);
}

static void grant(struct mr_traffic *d, enum mr_traffic_class c, uint64_t bytes, uint64_t now)
{
    d->outstanding += bytes;
    d->granted[c] += bytes;
    d->refused_ns[c] = 0;
    count_floor(&d->floor[c], bytes);
    d->window.disturbed = true;
    if (c == MR_TRAFFIC_DRAIN)
        d->drained_ns = now;
}

static uint64_t take(struct mr_traffic *d, const struct mr_traffic_ask *ask, uint64_t now, uint64_t *wait_ns)
{
    if (ask->hurry || !d->readers) {
        grant(d, ask->class, ask->bytes, now);
        return ask->bytes;
    }
    look(d, now);
    bool idle = !d->reading && now - d->active_ns >= IDLE_NS;
    uint64_t window = window_of(d, idle, ask->need_per_s), piece = ask->bytes;
    if (ask->least < ask->bytes)
        piece = MR_MIN(piece, MR_MAX(window, ask->least));
    bool full = ask->class == MR_TRAFFIC_DRAIN && d->outstanding && d->outstanding + piece > window;
    if (!full && may_go(d, ask, piece, now, idle)) {
        grant(d, ask->class, piece, now);
        return piece;
    }
    d->refused_ns[ask->class] = now;
    *wait_ns = MR_NS_PER_MS;
    return 0;
}

uint64_t mr_traffic_take(struct mr_traffic *d, const struct mr_traffic_ask *ask, uint64_t now_ns, uint64_t *wait_ns)
{
    *wait_ns = 0;
    if (!d)
        return ask->bytes;
    pthread_mutex_lock(&d->lock);
    d->latest_ns = MR_MAX(d->latest_ns, now_ns);
    uint64_t got = take(d, ask, d->latest_ns, wait_ns);
    pthread_mutex_unlock(&d->lock);
    return got;
}

void mr_traffic_done(struct mr_traffic *d, uint64_t bytes, uint64_t start_ns, uint64_t now_ns)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    uint64_t took = now_ns > start_ns ? now_ns - start_ns : 1;
    double speed = (double)MR_MAX(d->outstanding, bytes) * 1e9 / (double)took; /* of all that was under way */
    d->speed = d->speed > 0 ? d->speed + (speed - d->speed) / 8 : speed;
    d->least_ns = d->least_ns ? MR_MIN(d->least_ns, took) : took;
    d->outstanding -= MR_MIN(bytes, d->outstanding);
    d->ended_ns = d->latest_ns = MR_MAX(d->latest_ns, now_ns);
    pthread_mutex_unlock(&d->lock);
}

bool mr_traffic_shared(struct mr_traffic *d)
{
    if (!d)
        return false;
    pthread_mutex_lock(&d->lock);
    bool shared = d->readers != NULL;
    pthread_mutex_unlock(&d->lock);
    return shared;
}

void mr_traffic_state(struct mr_traffic *d, struct mr_traffic_state *out)
{
    *out = (struct mr_traffic_state){0};
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    for (unsigned c = 0; c < MR_TRAFFIC_CLASSES; c++) {
        out->rate[c] = d->budget[c].rate;
        out->granted[c] = d->granted[c];
    }
    out->floor = floor_of(d, &(struct mr_traffic_ask){0});
    out->speed = d->speed;
    out->window = window_of(d, false, 0);
    out->outstanding = d->outstanding;
    pthread_mutex_unlock(&d->lock);
}
