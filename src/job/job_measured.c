/* What a finished run says about its sources, and the machine that follows from it.
 *
 * The source: a throttled store is as it was set. Else with tiers what they measured while they read; else one thread
 * got read_bytes / (sum of all threads' time in reads), the job at most that times its threads, or what the run's
 * supply was if that is more. The classes: those of the run's tiers; else half of the host's memory is class 1. */
#include "base/common.h"
#include "conf/option.h"
#include "job/job_internal.h"
#include "job/job_scenario.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MB 1e6
#define FAST_MBPS 1e6 /* what is not the limit */

static double at(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : 0;
}

/* ---- the store's text ---- */

/* The value of a key among a shim's options, up to the next comma; false: it is not there. */
static bool find_value(const char *options, size_t len, const char *key, char *out, size_t room)
{
    size_t n = strlen(key);
    for (const char *p = options; p < options + len;) {
        size_t word = strcspn(p, ",)");
        if (strncmp(p, key, n) == 0 && p[n] == '=' && word - n - 1 < room) {
            memcpy(out, p + n + 1, word - n - 1);
            out[word - n - 1] = '\0';
            return true;
        }
        p += word + 1;
    }
    return false;
}

static void read_throttle(const char *store, struct mr_job_measured *m)
{
    const char *begin = store ? strstr(store, "throttle(") : NULL;
    if (!begin)
        return;
    begin += strlen("throttle(");
    size_t len = strcspn(begin, ")");
    char text[64];
    uint64_t n;
    if (find_value(begin, len, "bandwidth", text, sizeof text) && !mr_parse_bytes(text, &n))
        m->throttle_bytes_per_s = (double)n;
    if (find_value(begin, len, "stream_bandwidth", text, sizeof text) && !mr_parse_bytes(text, &n))
        m->throttle_stream_bytes_per_s = (double)n;
    if (find_value(begin, len, "open_latency", text, sizeof text) && !mr_parse_duration_ns(text, &n))
        m->throttle_latency_s += (double)n / MR_NS_PER_S;
    if (find_value(begin, len, "latency", text, sizeof text) && !mr_parse_duration_ns(text, &n))
        m->throttle_latency_s += (double)n / MR_NS_PER_S;
    if (find_value(begin, len, "metadata_rate", text, sizeof text))
        m->throttle_metadata_per_s = atof(text);
}

/* ---- the summary ---- */

static double bytes_from(const json_t *sources, const char *from)
{
    return at(json_object_get(sources, from), "bytes");
}

static void read_epochs(const json_t *list, struct mr_job_measured *m)
{
    size_t i;
    const json_t *e;
    json_array_foreach(list, i, e)
    {
        struct mr_job_measured_epoch *to = &m->epoch[MR_MIN(i, MR_SIM_EPOCHS_TOLD - 1u)];
        const json_t *sources = json_object_get(e, "sources");
        to->time_s += at(e, "duration_s");
        to->source_bytes += sources ? bytes_from(sources, "source") : NAN;
        to->peer_bytes += sources ? bytes_from(sources, "peer") : NAN;
        to->own_bytes += sources ? bytes_from(sources, "ram") + bytes_from(sources, "ssd") : NAN;
    }
}

void mr_job_read_sources(const json_t *root, struct mr_job_measured *m)
{
    const json_t *r = json_object_get(root, "millrace"), *t = json_object_get(r, "tiers");
    const json_t *sources = json_object_get(t, "sources");
    const char *policy = json_string_value(json_object_get(json_object_get(r, "policy"), "name"));
    if (!policy) /* a summary that does not say: threads read ahead, no threads on demand */
        policy = m->threads_asked > 0 ? "staging" : "naive";
    snprintf(m->policy, sizeof m->policy, "%s", policy);
    m->duration_s = at(r, "duration_s");
    m->source_bytes = m->read_bytes;
    read_epochs(json_object_get(r, "epochs"), m);
    read_throttle(json_string_value(json_object_get(json_object_get(root, "options"), "store")), m);
    if (!(at(t, "nodes") > 0))
        return;
    m->tier_nodes = at(t, "nodes");
    m->tier_threads = at(t, "source_threads");
    m->ram_bytes = at(t, "ram_capacity_bytes");
    m->ssd_bytes = at(t, "ssd_capacity_bytes");
    m->staging_bytes = at(t, "staging_capacity_bytes");
    m->source_bytes_per_s = at(t, "source_bytes_per_s");
    m->source_bytes = at(t, "source_bytes");
    m->peer_bytes = bytes_from(sources, "peer");
    m->own_bytes = bytes_from(sources, "ram") + bytes_from(sources, "ssd");
}

/* ---- the machine ---- */

static void set_source(const struct mr_job_measured *m, uint32_t ranks, struct mr_system *s)
{
    double threads = fmin(m->threads, MR_JOB_STAGING_THREADS_MOST), stream = 0, job = m->source_bytes_per_s / MB;
    if (m->throttle_bytes_per_s > 0) {
        job = m->throttle_bytes_per_s / MB;
        stream = m->throttle_stream_bytes_per_s / MB;
        s->pfs_in_turn = true;
        s->pfs_latency_s = m->throttle_latency_s;
        s->pfs_metadata_per_s = m->throttle_metadata_per_s;
    } else if (!(job > 0)) {
        stream = fmax(1, m->read_bytes / m->read_s) / MB;
        job = fmax(stream * threads * ranks, m->supply_bytes_per_s / MB);
    }
    s->pfs_stream_mbps = stream;
    if (m->throttle_bytes_per_s > 0 || m->source_bytes_per_s > 0) /* for all clients together */
        s->pfs_mbps = (struct mr_curve){.n = 1, .x = {1}, .y = {job}};
    else
        s->pfs_mbps = (struct mr_curve){.n = 2, .x = {1, MR_MAX(ranks, 2u)}, .y = {job / ranks, job}};
}

static void add_class(struct mr_system *s, const char *name, double bytes, double mbps)
{
    struct mr_storage_class *c = &s->classes[s->n_classes++];
    *c = (struct mr_storage_class){
        .capacity_mb = bytes / MB, .threads = 4, .read_mbps = {.n = 1, .x = {1}, .y = {mbps}}};
    snprintf(c->name, sizeof c->name, "%s", name);
}

void mr_job_measured_system(const struct mr_job_measured *m, uint32_t ranks, struct mr_system *out)
{
    struct mr_system s = {
        .name = "as measured", .preprocess_mbps = FAST_MBPS, .network_mbps = FAST_MBPS, .pfs_link_mbps = FAST_MBPS};
    set_source(m, ranks, &s);
    add_class(&s, "staging", (double)MR_GIB, 10000);
    s.classes[0].threads = (unsigned)fmin(m->threads, MR_JOB_STAGING_THREADS_MOST);
    if (m->tier_nodes > 0 && (m->ram_bytes > 0 || m->ssd_bytes > 0)) {
        if (m->ram_bytes > 0)
            add_class(&s, "ram", m->ram_bytes / m->tier_nodes, 10000);
        if (m->ssd_bytes > 0)
            add_class(&s, "ssd", m->ssd_bytes / m->tier_nodes, 2000);
    } else {
        add_class(&s, "ram", m->memory_gib / 2 * (double)MR_GIB / ranks, 10000);
    }
    *out = s;
}
