/* The loader over tiers (src/tier): with a policy that keeps samples, engine threads get the stored bytes of each
 * sample from there instead of from the store. The ticket of a sample is the number of its delivery, so a stream of the
 * loader and what the tiers deliver after a seek are the same sequence; every stream begins with a seek.
 *
 * Invariants: R1 the tiers are told to stop before the engine's threads are waited for (end of a stream, close), so
 * none waits for bytes that nobody wants. R2 a source's bytes are given back when the row is made, by the thread that
 * made it. R3 `waits_tier` changes under `lock`, so that a stop from another thread
 * ends a seek or a drain. */
#include "loader/loader_internal.h"
#include "dataset/fetch.h"
#include "event/emit.h"
#include "tier/tier.h"
#include "wire/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EPOCHS_ASSUMED 64u /* where the caller announces none: as the tiers assume */
#define EXCHANGE_NS (60 * MR_NS_PER_S)

int mr_loader_choose_policy(struct mr_loader *l, struct mr_error *err)
{
    struct mr_loader_choice c;
    int rc = mr_loader_choose(l->p.policy, l->p.tiers, &c, err);
    if (rc)
        return rc;
    if (c.tiers && l->p.flags & MR_LOADER_IN_MEMORY) {
        mr_error_plain(err, MR_E_USAGE, "policy '%s' and the whole set in memory do not go together", c.policy);
        return mr_error_hint(err, "leave out MR_LOADER_IN_MEMORY (reader.read_type memory): ram=... does it"),
               MR_E_USAGE;
    }
    if (c.is_perfect && l->p.flags & MR_LOADER_SKIP_BAD)
        return mr_error_plain(err, MR_E_USAGE, "policy 'perfect' prepares whole batches and leaves nothing out");
    l->p.policy = c.policy;
    l->p.tiers = c.tiers; /* the caller's until open returns */
    l->tiered = c.tiers != NULL;
    l->is_perfect = c.is_perfect;
    l->read_ahead = c.reads_ahead;
    return 0;
}

static bool knows_last(const struct mr_loader *l)
{
    return (l->p.last_epoch && l->p.last_epoch != UINT64_MAX) || l->p.epochs_known;
}

/* ---- opening and closing ---- */

static int no_exchange(const struct mr_loader *l, struct mr_error *err)
{
    mr_error_plain(err, MR_E_USAGE, "%u ranks with tiers have to find each other, and no way is given",
                   l->p.order.world);
    return mr_error_hint(err, "start them with torchrun (MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE), or give "
                              "mr_loader_params.exchange"),
           MR_E_USAGE;
}

static int no_key(const struct mr_loader *l, struct mr_error *err)
{
    mr_error_plain(err, MR_E_USAGE, "%u ranks with tiers have to find each other over TCP, which needs a key",
                   l->p.order.world);
    return mr_error_hint(err, "PyTorch: call torch.distributed.init_process_group before; numpy.Loader: key_file; C: "
                              "mr_loader_params.key_file"),
           MR_E_USAGE;
}

/* *key: NULL if none was given. */
static int take_key(const struct mr_loader *l, uint8_t bytes[MR_LOADER_KEY_BYTES], const uint8_t **key,
                    struct mr_error *err)
{
    *key = NULL;
    if (l->p.order.world == 1 || (!l->p.key && !l->p.key_file))
        return 0;
    if (l->p.key && l->p.key_file)
        return mr_error_plain(err, MR_E_USAGE, "there is a key and a key file; give one of them");
    int rc = l->p.key_file ? mr_wire_key_read(l->p.key_file, bytes, err) : 0;
    if (l->p.key)
        memcpy(bytes, l->p.key, MR_LOADER_KEY_BYTES);
    if (!rc)
        *key = bytes;
    return rc;
}

/* By torchrun's variables. */
static int open_exchange(struct mr_loader *l, const uint8_t *key, struct mr_error *err)
{
    struct mr_wire_tcp_params tcp;
    if (l->p.exchange || l->p.order.world == 1)
        return 0;
    if (!key)
        return no_key(l, err);
    if (!mr_wire_tcp_from_torchrun(&tcp))
        return no_exchange(l, err);
    if (tcp.rank != l->p.order.rank || tcp.world != l->p.order.world)
        return mr_error_plain(err, MR_E_USAGE,
                              "the order is for rank %u of %u, but the environment says this is rank %u of %u",
                              l->p.order.rank, l->p.order.world, tcp.rank, tcp.world);
    tcp.key = key;
    tcp.timeout_ns = EXCHANGE_NS;
    int rc = mr_wire_tcp_open(&tcp, &l->tcp, err);
    if (rc)
        return rc;
    l->p.exchange = mr_wire_exchange_tcp;
    l->p.exchange_ctx = l->tcp;
    return 0;
}

static int open_sources(struct mr_loader *l, struct mr_error *err)
{
    for (unsigned i = 0; i < l->n_threads; i++) {
        struct engine_thread *t = &l->threads[i];
        t->tier = mr_tier_source(l->tier, err);
        if (!t->tier)
            return err->code;
        mr_dataset_reader_use(t->reader, t->tier);
    }
    return 0;
}

/* A rank that could not open its own parts must not be waited for in what follows. */
static int agree(struct mr_loader *l, int code, struct mr_error *err)
{
    uint32_t world = l->p.order.world;
    int32_t mine = code, *all = world > 1 ? calloc(world, sizeof(*all)) : NULL;
    if (world == 1)
        return code;
    int rc = all ? l->p.exchange(l->p.exchange_ctx, &mine, sizeof mine, all, err)
                 : mr_error_set(err, -ENOMEM, "cannot ask %u ranks", world);
    for (uint32_t r = 0; !rc && !code && r < world; r++)
        if (all[r])
            rc = mr_error_plain(err, MR_E_PEER, "rank %u could not open the data set; it says why", r);
    free(all);
    return code ? code : rc;
}

int mr_loader_open_tier(struct mr_loader *l, int code, struct mr_error *err)
{
    struct mr_error own;
    uint8_t bytes[MR_LOADER_KEY_BYTES];
    const uint8_t *key;
    err = err ? err : &own;
    int rc = take_key(l, bytes, &key, code ? &own : err);
    if (!rc)
        rc = open_exchange(l, key, code ? &own : err);
    if (!rc)
        rc = agree(l, code, code ? &own : err);
    if (rc || code)
        return code ? code : rc;
    struct mr_tier_params p = {.dataset = l->dataset,
                               .store = l->store,
                               .name = mr_dataset_name(l->dataset, l->dataset_path),
                               .read_flags = mr_loader_read_flags(l),
                               .open_flags = l->p.flags & MR_LOADER_DIRECT ? MR_OBJ_DIRECT : 0,
                               .order = l->p.order,
                               .batch_size = l->p.batch_size,
                               .whole_steps = l->p.drop_last_batch,
                               .rank_max = l->p.max_samples,
                               .last_epoch = knows_last(l) ? l->p.last_epoch : UINT64_MAX,
                               .policy = l->p.policy,
                               .spec = l->p.tiers,
                               .peers = l->p.peers != MR_LOADER_PEERS_OFF,
                               .peers_optional = l->p.peers == MR_LOADER_PEERS_AUTO,
                               .events = l->p.events,
                               .exchange = l->p.exchange,
                               .exchange_ctx = l->p.exchange_ctx,
                               .key = key};
    mr_loader_fill_order(l, &p.order);
    rc = mr_tier_open(&p, &l->tier, err);
    explicit_bzero(bytes, sizeof bytes);
    return rc ? rc : open_sources(l, err);
}

bool mr_loader_read_all(const struct mr_loader *l)
{
    bool whole = l->in_epoch && knows_last(l) && l->epoch >= l->p.last_epoch && l->delivered - l->base == l->n_batches;
    return !l->failed && !atomic_load(&l->stop) && (whole || l->together);
}

void mr_loader_close_together(struct mr_loader *l)
{
    if (l)
        l->together = true;
    mr_loader_close(l);
}

void mr_loader_close_tier(struct mr_loader *l, bool clean)
{
    for (unsigned i = 0; l->threads && i < l->n_threads; i++) {
        mr_fetch_source_free(l->threads[i].tier);
        l->threads[i].tier = NULL;
    }
    mr_tier_close(l->tier, clean);
    l->tier = NULL;
    mr_wire_tcp_close(l->tcp);
    l->tcp = NULL;
}

const char *mr_loader_chosen(const struct mr_loader *l)
{
    return l->tier ? mr_tier_chosen(l->tier) : "";
}

/* ---- streams ---- */

uint64_t mr_loader_last_epoch(const struct mr_loader *l, uint64_t from)
{
    return l->tiered && !knows_last(l) ? from + EPOCHS_ASSUMED - 1 : l->p.last_epoch;
}

static int begin_wait(struct mr_loader *l, struct mr_error *err)
{
    pthread_mutex_lock(&l->lock);
    bool waits = l->waits_tier = !atomic_load(&l->stop);
    pthread_mutex_unlock(&l->lock);
    return waits ? 0 : mr_error_plain(err, MR_E_INTERRUPTED, "the loader was stopped");
}

static void end_wait(struct mr_loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->waits_tier = false;
    pthread_mutex_unlock(&l->lock);
}

int mr_loader_seek_tier(struct mr_loader *l, uint64_t epoch, uint64_t position, struct mr_error *err)
{
    if (!l->tier)
        return 0;
    int rc = begin_wait(l, err);
    if (rc)
        return rc;
    rc = mr_tier_seek(l->tier, epoch, position, err);
    end_wait(l);
    return rc;
}

int mr_loader_drain(struct mr_loader *l, struct mr_error *err)
{
    if (!l->tier)
        return 0;
    int rc = begin_wait(l, err);
    if (rc)
        return rc;
    rc = mr_tier_drain(l->tier, err);
    end_wait(l);
    return rc;
}

void mr_loader_stop_tier(struct mr_loader *l)
{
    if (l->tier)
        mr_tier_stop(l->tier);
}

/* ---- rows ---- */

void mr_loader_tier_at(struct engine_thread *t, uint64_t id)
{
    mr_tier_source_at(t->tier, t->ticket, id);
}

static void count(_Atomic uint64_t *sum, uint64_t more)
{
    atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + more, memory_order_relaxed);
}

uint64_t mr_loader_tier_done(struct engine_thread *t, bool made)
{
    struct mr_delivery d = {.from = MR_TIER_FROMS};
    mr_tier_source_done(t->tier, &d);
    t->from = d.from;
    if (!made || d.from >= MR_TIER_FROMS)
        return 0;
    struct from_sums *s = &t->came[d.from];
    count(&s->samples, 1);
    count(&s->bytes, d.bytes);
    count(&s->fetch_ns, d.began_ns && d.came_ns > d.began_ns ? d.came_ns - d.began_ns : 0);
    return d.from == MR_TIER_SOURCE ? d.bytes : 0;
}

enum mr_span mr_loader_fetch_span(const struct engine_thread *t)
{
    static const enum mr_span span[] = {[MR_TIER_RAM] = MR_SPAN_FETCH_RAM,
                                        [MR_TIER_SSD] = MR_SPAN_FETCH_SSD,
                                        [MR_TIER_PEER] = MR_SPAN_FETCH_PEER,
                                        [MR_TIER_SOURCE] = MR_SPAN_FETCH_STORE,
                                        [MR_TIER_FROMS] = MR_SPAN_FETCH_STORE};
    if (t->loader->loaded)
        return MR_SPAN_FETCH_RAM;
    return t->tier ? span[t->from] : MR_SPAN_FETCH_STORE;
}

/* ---- statistics ---- */

void mr_loader_tier_stats(struct mr_loader *l, struct mr_loader_tier_stats *out)
{
    struct mr_tier_stats s;
    if (!l->tier)
        return;
    mr_tier_get_stats(l->tier, &s);
    *out = (struct mr_loader_tier_stats){.used = true,
                                         .source_bytes = s.source_bytes,
                                         .source_reads = s.source_reads,
                                         .distinct_bytes = s.distinct_bytes,
                                         .served = s.served,
                                         .served_bytes = s.served_bytes,
                                         .refetched = s.refetched,
                                         .corrupt = s.corrupt,
                                         .ssd_refused = s.ssd_refused,
                                         .ram_bytes = s.ram_bytes,
                                         .ram_capacity = s.ram_capacity,
                                         .ssd_bytes = s.ssd_bytes,
                                         .ssd_capacity = s.ssd_capacity,
                                         .staging_capacity = s.staging_capacity,
                                         .node = s.node,
                                         .nodes = s.nodes,
                                         .threads = s.threads,
                                         .peers_lost = s.peers_lost,
                                         .source_busy_ns = s.source_busy_ns,
                                         .set_bytes = l->info.sample_bytes};
    struct mr_loader_from *from[MR_TIER_FROMS] = {[MR_TIER_RAM] = &out->ram,
                                                  [MR_TIER_SSD] = &out->ssd,
                                                  [MR_TIER_PEER] = &out->peer,
                                                  [MR_TIER_SOURCE] = &out->source};
    for (unsigned f = 0; f < MR_TIER_FROMS; f++) {
        out->filled_bytes += s.fills[f].bytes;
        for (unsigned i = 0; i < l->n_threads; i++) {
            const struct from_sums *c = &l->threads[i].came[f];
            from[f]->samples += c->samples;
            from[f]->bytes += c->bytes;
            from[f]->fetch_ns += c->fetch_ns;
        }
    }
}
