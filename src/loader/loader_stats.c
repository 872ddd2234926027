/* Statistics: sums over the loader's life, how many batches are ready, and the last second.
 *
 * Now and then (MOMENT_NS apart, whenever a batch becomes ready or is taken) the sums are kept in a ring of moments.
 * The last second is the difference between now and one second ago; that place is interpolated between the two moments
 * around it, which is exact while the loader does one thing, such as waiting, for longer. Sums include what a thread or
 * the consumer is in the middle of. Invariant: `lock` guards moments and the integral of ready batches. */
#include "loader/loader_internal.h"

#include <string.h>

uint64_t mr_loader_reads_since(const struct engine_thread *t)
{
    uint64_t direct = atomic_load_explicit(&mr_dataset_reader_times(t->reader)->reading_since, memory_order_relaxed);
    return direct || !t->queue ? direct : mr_queue_reader_waits_since(t->queue);
}

/* So far of what began then; 0 = nothing began. */
static uint64_t lasts(uint64_t since, uint64_t now)
{
    return since && now > since ? now - since : 0;
}

struct loader_sums mr_loader_thread_sums(struct mr_loader *l, uint64_t now)
{
    struct loader_sums s = {0};
    for (unsigned i = 0; i < l->n_threads; i++) {
        struct engine_thread *t = &l->threads[i];
        s.read_ns += t->read_ns + lasts(mr_loader_reads_since(t), now);
        s.decode_ns += t->decode_ns;
        s.transform_ns += t->transform_ns;
        s.idle_ns += t->idle_ns + lasts(t->idle_since, now);
    }
    return s;
}

static struct moment look(struct mr_loader *l, uint64_t now)
{
    struct moment m = {.at_ns = now,
                       .samples = (double)l->samples,
                       .sample_bytes = (double)l->sample_bytes,
                       .read_bytes = (double)l->read_bytes,
                       .wait_ns = (double)(l->wait_ns + lasts(l->wait_since, now))};
    struct loader_sums s = mr_loader_thread_sums(l, now);
    m.read_ns = (double)s.read_ns;
    m.decode_ns = (double)s.decode_ns;
    m.transform_ns = (double)s.transform_ns;
    m.idle_ns = (double)s.idle_ns;
    return m;
}

void mr_loader_keep_moment(struct mr_loader *l, uint64_t now)
{
    if (l->n_moments && now - l->moment[l->last_moment].at_ns < MOMENT_NS)
        return;
    l->last_moment = l->n_moments ? (l->last_moment + 1) % MOMENTS : 0;
    l->moment[l->last_moment] = look(l, now);
    l->n_moments = MR_MIN(l->n_moments + 1, MOMENTS);
}

uint64_t mr_loader_watch_ready(struct mr_loader *l, int change)
{
    uint64_t now = mr_now_ns();
    double dt = (double)(now - l->ready_seen_ns);
    if (l->ready_count > 0)
        l->ready_area += dt * (double)l->ready_count;
    else
        l->empty_ns += dt; /* below 0 while the consumer has a batch whose last thread has not come here yet */
    l->watched_ns += dt;
    l->ready_seen_ns = now;
    l->ready_count += change;
    mr_loader_keep_moment(l, now);
    return now;
}

/* a + share of the way to b. */
static struct moment between(const struct moment *a, const struct moment *b, uint64_t at)
{
    double share = b->at_ns > a->at_ns ? (double)(at - a->at_ns) / (double)(b->at_ns - a->at_ns) : 0;
    struct moment m = {.at_ns = at};
#define MIX(field) m.field = a->field + share * (b->field - a->field)
    MIX(samples);
    MIX(sample_bytes);
    MIX(read_bytes);
    MIX(wait_ns);
    MIX(read_ns);
    MIX(decode_ns);
    MIX(transform_ns);
    MIX(idle_ns);
#undef MIX
    return m;
}

/* The sums a second before `now`, or as long ago as there are any; under the lock. */
static struct moment one_second_ago(const struct mr_loader *l, const struct moment *now)
{
    const struct moment *later = now;
    for (unsigned i = 0; i < l->n_moments; i++) {
        const struct moment *m = &l->moment[(l->last_moment + MOMENTS - i) % MOMENTS];
        if (now->at_ns - m->at_ns >= MR_NS_PER_S)
            return between(m, later, now->at_ns - MR_NS_PER_S);
        later = m;
    }
    return *later;
}

/* Without engine threads the consumer is idle, as seen from here, when it is not in next(). */
static const char *find_limiter(const struct mr_loader *l, const struct moment *from, const struct moment *to)
{
    double read = to->read_ns - from->read_ns, made = to->decode_ns - from->decode_ns;
    double idle = to->idle_ns - from->idle_ns;
    made += to->transform_ns - from->transform_ns;
    if (!l->read_ahead)
        idle = (double)(to->at_ns - from->at_ns) - (to->wait_ns - from->wait_ns);
    if (read + made + idle <= 0 || idle > read + made)
        return "consumer";
    return read >= made ? "storage" : "decode";
}

static void add_recent(const struct mr_loader *l, const struct moment *from, const struct moment *to,
                       struct mr_loader_stats *out)
{
    double s = (double)(to->at_ns - from->at_ns) / 1e9;
    out->recent_ns = to->at_ns - from->at_ns;
    out->limiter = find_limiter(l, from, to);
    if (s <= 0)
        return;
    out->recent_samples_per_s = (to->samples - from->samples) / s;
    out->recent_bytes_per_s = (to->sample_bytes - from->sample_bytes) / s;
    out->recent_read_bytes_per_s = (to->read_bytes - from->read_bytes) / s;
    out->recent_wait_ratio = MR_MAX(0.0, MR_MIN(1.0, (to->wait_ns - from->wait_ns) / 1e9 / s));
}

static void get_stats(struct mr_loader *l, struct mr_loader_stats *out)
{
    struct mr_loader_stats s = {.batches = l->batches,
                                .samples = l->samples,
                                .sample_bytes = l->sample_bytes,
                                .read_bytes = l->read_bytes,
                                .wait_ns = l->wait_ns,
                                .threads = l->n_threads,
                                .loaded_bytes = l->loaded_bytes};
    for (unsigned i = 0; i < l->n_threads; i++) {
        s.read_ns += l->threads[i].read_ns;
        s.decode_ns += l->threads[i].decode_ns;
        s.transform_ns += l->threads[i].transform_ns;
        s.idle_ns += l->threads[i].idle_ns;
        s.cpu_ns += l->threads[i].cpu_ns;
    }
    for (unsigned i = 0; i < l->n_slots; i++)
        s.slab_bytes += l->slots[i].slab_bytes;
    pthread_mutex_lock(&l->lock);
    s.ready_mean = l->watched_ns > 0 ? l->ready_area / l->watched_ns : 0;
    s.empty_ratio = l->watched_ns > 0 ? l->empty_ns / l->watched_ns : 0;
    struct moment now = look(l, mr_now_ns()), before = one_second_ago(l, &now), birth = {.at_ns = l->opened_ns};
    mr_loader_keep_moment(l, now.at_ns);
    pthread_mutex_unlock(&l->lock);
    add_recent(l, &before, &now, &s);
    mr_loader_tier_stats(l, &s.tier);
    s.lifetime_limiter = find_limiter(l, &birth, &now);
    *out = s;
}

void mr_loader_get_stats_sized(struct mr_loader *l, struct mr_loader_stats *out, size_t size)
{
    struct mr_loader_stats s;
    get_stats(l, &s);
    memset(out, 0, size);
    memcpy(out, &s, MR_MIN(size, sizeof s));
}
