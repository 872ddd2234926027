/* Clocks of several hosts: see clock_align.h. One pass over the blocks that have a barrier in them, by what they say of
 * themselves. */
#include "explain/clock_align.h"
#include "analyze/region_rules.h"
#include "base/common.h"
#include "base/vec.h"
#include "metrics/metrics.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BARRIERS_LEAST 3    /* fewer tell nothing about how sure an offset is */
#define BARRIERS_MOST 4096u /* more do not make it surer */

/* The barriers of one host, by the process on it that has the most. */
struct host {
    uint32_t process; /* UINT32_MAX: none */
    size_t n;
    uint64_t *end; /* sorted */
};

struct ends {
    MR_VEC(uint64_t) end;
};

static bool is_barrier(const struct mr_trace_process *p, uint32_t site)
{
    struct mr_trace_string category, name;
    mr_trace_label(p, MR_CALL_region, site, &category, &name);
    return mr_region_classify(category.text, category.len, name.text, name.len).role == MR_ROLE_BARRIER;
}

/* Which strings of a process are sites of barriers; NULL: none. */
static int barrier_sites(const struct mr_trace_process *p, bool **out)
{
    bool any = false, *site = calloc(p->strings + 1, sizeof(*site));
    if (!site)
        return -ENOMEM;
    for (uint32_t i = 1; i < p->strings; i++)
        if (p->string[i].text && p->string[i].kind == MR_STR_SITE && is_barrier(p, i))
            any = site[i] = true;
    if (!any) {
        free(site);
        site = NULL;
    }
    *out = site;
    return 0;
}

struct look {
    const bool *site;
    uint32_t sites;
    bool found;
};

/* A barrier that nobody had to wait in is an instant. */
static bool is_span(unsigned call)
{
    return call == MR_CALL_region || call == MR_CALL_instant;
}

static void look_at(void *user, const struct mr_mrt_aggregate *a)
{
    struct look *l = user;
    l->found |= is_span(a->call) && a->site < l->sites && l->site[a->site];
}

/* Whether a block has barriers: it says so itself, unless it is imported or older. */
static bool may_have(const struct mr_trace_chunk *c, const bool *site, uint32_t sites)
{
    struct look l = {.site = site, .sites = sites};
    struct mr_error ignored;
    if (c->imported)
        return true;
    int covers = mr_mrt_aggregates(&c->view, &(struct mr_mrt_visitor){.function = look_at}, &l, &ignored);
    return covers <= 0 || l.found;
}

static int read_chunk(const struct mr_trace *t, size_t chunk, const bool *site, struct ends *to,
                      struct mr_event_batch *b, struct mr_error *err)
{
    int rc = mr_trace_read(t, chunk, MR_WANT_TIME | MR_WANT_CALL | MR_WANT_FILE, b, err);
    for (uint32_t i = 0; !rc && i < b->count && to->end.n < BARRIERS_MOST; i++) {
        if (!is_span(b->c.call[i]) || b->c.file[i] >= b->process->strings || !site[b->c.file[i]])
            continue;
        uint64_t *end = MR_VEC_ADD(&to->end);
        if (!end)
            return mr_error_set(err, -ENOMEM, "cannot align clocks");
        *end = b->c.end_ns[i];
    }
    return rc;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Ends of the barriers of every process; chunks are sorted by process. */
static int gather(const struct mr_trace *t, struct ends *of, struct mr_error *err)
{
    struct mr_event_batch b = {0};
    bool *site = NULL;
    uint32_t process = UINT32_MAX;
    int rc = 0;
    for (size_t c = 0; c < t->chunks && !rc; c++) {
        uint32_t p = t->chunk[c].process;
        if (p != process) {
            free(site);
            site = NULL;
            process = p;
            if (barrier_sites(&t->process[p], &site))
                rc = mr_error_set(err, -ENOMEM, "cannot align clocks");
        }
        if (!rc && site && may_have(&t->chunk[c], site, t->process[p].strings))
            rc = read_chunk(t, c, site, &of[p], &b, err);
    }
    free(site);
    mr_event_batch_done(&b);
    for (size_t p = 0; p < t->processes && !rc; p++)
        if (of[p].end.n)
            qsort(of[p].end.item, of[p].end.n, sizeof(uint64_t), ascending);
    return rc;
}

static void choose(const struct mr_trace *t, const struct ends *of, struct host *host)
{
    for (size_t h = 0; h < t->nodes; h++)
        host[h] = (struct host){.process = UINT32_MAX};
    for (size_t p = 0; p < t->processes; p++) {
        struct host *h = &host[t->process[p].node];
        if (t->process[p].node < t->nodes && of[p].end.n > h->n)
            *h = (struct host){.process = (uint32_t)p, .n = of[p].end.n, .end = of[p].end.item};
    }
}

/* Median and median deviation of the differences of the k-th ends. */
static bool compare(const struct host *a, const struct host *b, double *offset, double *residual)
{
    size_t n = a->n;
    double *d = n >= BARRIERS_LEAST && n == b->n ? malloc(n * sizeof(*d)) : NULL;
    if (!d)
        return false;
    for (size_t i = 0; i < n; i++)
        d[i] = (double)(int64_t)(b->end[i] - a->end[i]);
    *offset = mr_quantile(d, n, 0.5);
    for (size_t i = 0; i < n; i++)
        d[i] = fabs(d[i] - *offset);
    *residual = mr_quantile(d, n, 0.5);
    free(d);
    return true;
}

static void move_chunk(struct mr_trace_chunk *c, int64_t by)
{
    c->first_ns += (uint64_t)by;
    c->last_ns += (uint64_t)by;
    for (uint32_t i = 0; c->imported && i < c->count; i++) {
        c->column.start_ns[i] += (uint64_t)by;
        c->column.end_ns[i] += (uint64_t)by;
    }
}

static void move_host(struct mr_trace *t, uint32_t node, int64_t by)
{
    for (size_t c = 0; c < t->chunks; c++)
        if (t->process[t->chunk[c].process].node == node)
            move_chunk(&t->chunk[c], by);
    for (size_t p = 0; p < t->processes; p++)
        if (t->process[p].node == node) {
            t->process[p].real_offset += by;
            t->process[p].start_ns += (uint64_t)by;
            t->process[p].end_ns += t->process[p].end_ns ? (uint64_t)by : 0;
        }
}

static void find_span(struct mr_trace *t)
{
    t->first_ns = UINT64_MAX;
    t->last_ns = 0;
    for (size_t c = 0; c < t->chunks; c++)
        if (t->chunk[c].count) {
            t->first_ns = MR_MIN(t->first_ns, t->chunk[c].first_ns);
            t->last_ns = MR_MAX(t->last_ns, t->chunk[c].last_ns);
        }
    t->first_ns = t->first_ns == UINT64_MAX ? 0 : t->first_ns;
}

static size_t hosts_with_events(const struct mr_trace *t)
{
    bool *seen = calloc(t->nodes + 1, sizeof(*seen));
    size_t n = 0;
    for (size_t c = 0; seen && c < t->chunks; c++) {
        uint32_t node = t->process[t->chunk[c].process].node;
        n += node < t->nodes && t->chunk[c].count && !seen[node];
        seen[MR_MIN((size_t)node, t->nodes)] = true;
    }
    free(seen);
    return n;
}

static int align(struct mr_trace *t, const struct host *host, size_t hosts, struct mr_error *err)
{
    size_t base = 0, aligned = 1;
    double most = 0, worst = 0, offset, residual;
    while (base < t->nodes && host[base].n < BARRIERS_LEAST)
        base++;
    for (size_t h = base + 1; h < t->nodes; h++) {
        if (!compare(&host[base], &host[h], &offset, &residual))
            continue;
        aligned++;
        most = fmax(most, fabs(offset));
        worst = fmax(worst, residual);
        if (fabs(offset) > residual && fabs(offset) < 0x1p62)
            move_host(t, (uint32_t)h, -(int64_t)llround(offset));
    }
    if (aligned > 1) {
        t->clock_offset_ns = most;
        t->clock_residual_ns = worst;
        find_span(t);
    }
    if (base == t->nodes || aligned < hosts)
        return mr_trace_note(t, false, err,
                             "the clocks of %zu of %zu hosts are taken as recorded: they share no barrier to compare "
                             "them by",
                             base == t->nodes ? hosts : hosts - aligned, hosts);
    if (!(most > 0 || worst > 0)) /* one clock, as that of a simulation */
        return 0;
    return mr_trace_note(t, false, err,
                         "the clocks of %zu hosts were aligned by the ends of %zu barriers: up to %.3g us apart, "
                         "%.3g us uncertain",
                         hosts, host[base].n, most / 1e3, worst / 1e3);
}

int mr_clock_align(struct mr_trace *t, struct mr_error *err)
{
    size_t hosts = hosts_with_events(t);
    if (hosts < 2)
        return 0;
    struct ends *of = calloc(t->processes + 1, sizeof(*of));
    struct host *host = calloc(t->nodes + 1, sizeof(*host));
    int rc = of && host ? gather(t, of, err) : mr_error_set(err, -ENOMEM, "cannot align clocks");
    if (!rc) {
        choose(t, of, host);
        rc = align(t, host, hosts, err);
    }
    for (size_t p = 0; of && p < t->processes; p++)
        free(of[p].end.item);
    free(of);
    free(host);
    return rc;
}
