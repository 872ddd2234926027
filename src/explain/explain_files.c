/* Files, groups of files, sizes of calls and the pictures: the workers' counters added up. */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FILES_SHOWN 200u
#define GROUPS_SHOWN 50u
#define POINTS_SHOWN 4000u
#define BUSIEST 16u /* files of the access map */

static void add_tally(struct explain_tally *to, const struct explain_tally *from)
{
    to->read_bytes += from->read_bytes;
    to->written_bytes += from->written_bytes;
    to->reads += from->reads;
    to->writes += from->writes;
    to->opens += from->opens;
    to->calls += from->calls;
    to->dur_ns += from->dur_ns;
    to->end = MR_MAX(to->end, from->end);
    to->small_reads += from->small_reads;
    to->consecutive += from->consecutive;
    to->sequential += from->sequential;
    to->streamed += from->streamed;
    to->strided += from->strided;
    to->same_size += from->same_size;
    to->ranks |= from->ranks;
    to->maps += from->maps;
    to->net_answer_ns += from->net_answer_ns;
    to->net_transfer_ns += from->net_transfer_ns;
    to->net_bytes += from->net_bytes;
    to->net_requests += from->net_requests;
    to->faulted += from->faulted;
    to->for_batch |= from->for_batch;
    to->for_checkpoint |= from->for_checkpoint;
}

/* How a file is read. Shares of reads that are not the first of their stream; a file that is read by one call each time
 * has none of these. */
static uint8_t pattern_of(const struct explain_tally *t)
{
    double n = (double)t->streamed;
    uint64_t unique = MR_MIN(t->read_bytes, t->end);
    if (!t->reads || !t->read_bytes)
        return MR_PATTERN_NONE;
    bool in_order = !t->streamed || (double)t->consecutive >= 0.9 * n;
    uint64_t passes = MR_MAX(t->opens, (uint64_t)1);
    if (in_order && unique && (double)t->read_bytes >= 0.9 * (double)t->end * (double)passes * 0.9)
        return MR_PATTERN_WHOLE_FILE;
    if (in_order && t->streamed)
        return MR_PATTERN_STREAMING;
    if ((double)t->strided >= 0.6 * n && t->streamed)
        return MR_PATTERN_STRIDED;
    if ((double)t->same_size >= 0.5 * n)
        return t->streamed ? MR_PATTERN_SHUFFLED_RECORDS : MR_PATTERN_STREAMING;
    return MR_PATTERN_RANDOM;
}

/* Every byte of a file is assumed to be read before one is read again: exact for whole passes. */
static uint64_t unique_of(const struct explain_tally *t)
{
    return MR_MIN(t->read_bytes, t->end);
}

struct weight {
    uint64_t bytes, calls;
    uint32_t file;
};

static int by_bytes(const void *a, const void *b)
{
    const struct weight *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    if (x->calls != y->calls)
        return x->calls > y->calls ? -1 : 1;
    return x->file < y->file ? -1 : x->file > y->file;
}

/* A name that can be printed as text: bytes that are not UTF-8 become '?'. */
const char *mr_explain_clean_name(struct mr_arena *a, const char *text, size_t len)
{
    char *out = mr_arena_strndup(a, text, len);
    for (size_t i = 0; out && i < len;) {
        unsigned char c = (unsigned char)out[i];
        size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
        bool good = n && i + n <= len;
        for (size_t k = 1; good && k < n; k++)
            good = ((unsigned char)out[i + k] & 0xc0) == 0x80;
        good = good && !(c == 0xe0 && (unsigned char)out[i + 1] < 0xa0) &&
               !(c == 0xed && (unsigned char)out[i + 1] > 0x9f) && !(c == 0xf0 && (unsigned char)out[i + 1] < 0x90) &&
               !(c == 0xf4 && (unsigned char)out[i + 1] > 0x8f) && c;
        if (!good)
            out[i] = '?';
        i += good ? n : 1;
    }
    return out;
}

static int list_files(struct explain_job *j, const struct explain_tally *tally)
{
    struct mr_explanation *x = j->x;
    struct weight *w = malloc((j->file.n + 1) * sizeof(*w));
    uint32_t *shown = malloc((j->file.n + 1) * sizeof(*shown)), n = 0;
    if (!w || !shown) {
        free(w);
        free(shown);
        return -ENOMEM;
    }
    for (uint32_t f = 0; f < j->file.n; f++) {
        shown[f] = NO_INDEX;
        if (tally[f].calls && !j->file.item[f].code)
            w[n++] = (struct weight){tally[f].read_bytes + tally[f].written_bytes, tally[f].calls, f};
    }
    qsort(w, n, sizeof(*w), by_bytes);
    x->all_files = n;
    x->file = mr_arena_alloc(&x->arena, (MR_MIN(n, FILES_SHOWN) + 1) * sizeof(*x->file));
    int rc = x->file ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < n && i < FILES_SHOWN && !rc; i++) {
        const struct explain_tally *t = &tally[w[i].file];
        const struct explain_file *f = &j->file.item[w[i].file];
        x->file[i] = (struct mr_explain_file){.path = mr_explain_clean_name(&x->arena, f->path, f->len),
                                              .fs = f->fs ? mr_arena_strdup(&x->arena, f->fs) : NULL,
                                              .read_bytes = t->read_bytes,
                                              .written_bytes = t->written_bytes,
                                              .reads = t->reads,
                                              .writes = t->writes,
                                              .opens = t->opens,
                                              .calls = t->calls,
                                              .dur_ns = t->dur_ns,
                                              .size = t->end,
                                              .unique_bytes = unique_of(t),
                                              .ranks = (uint32_t)__builtin_popcountll(t->ranks),
                                              .small_reads = t->small_reads,
                                              .consecutive = t->consecutive,
                                              .sequential = t->sequential,
                                              .streamed = t->streamed,
                                              .pattern = pattern_of(t),
                                              .own_log = f->log};
        rc = x->file[i].path ? 0 : -ENOMEM;
        x->files = i + 1;
        shown[w[i].file] = i;
    }
    for (size_t i = 0; i < j->step.n; i++)
        j->step.item[i].file = j->step.item[i].file != NO_INDEX ? shown[j->step.item[i].file] : NO_INDEX;
    for (size_t i = 0, k = 0; i <= x->accesses && x->accesses; i++) { /* the access map: of the busiest */
        if (i == x->accesses) {
            x->accesses = k;
            break;
        }
        x->access[i].file = shown[x->access[i].file];
        if (x->access[i].file < BUSIEST)
            x->access[k++] = x->access[i];
    }
    free(w);
    free(shown);
    return rc;
}

/* ---- groups ---- */

struct group {
    struct mr_explain_group g;
    uint64_t pattern[MR_PATTERN_RANDOM + 1]; /* bytes by pattern */
    const char *path;
    uint32_t folder, ending, len; /* lengths of the parts */
};

static void parts_of(const struct explain_file *f, uint32_t *folder, uint32_t *ending)
{
    *folder = f->len;
    while (*folder && f->path[*folder - 1] != '/')
        --*folder;
    *ending = f->len;
    while (*ending > *folder && f->path[*ending - 1] != '.')
        --*ending;
    *ending = *ending > *folder ? *ending - 1 : f->len; /* without one: all of the name is a star */
}

static int by_group_bytes(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    uint64_t p = x->g.read_bytes + x->g.written_bytes, q = y->g.read_bytes + y->g.written_bytes;
    return p != q ? (p > q ? -1 : 1) : x->g.files != y->g.files ? (x->g.files > y->g.files ? -1 : 1) : 0;
}

static void add_to_group(struct group *g, const struct explain_tally *t)
{
    g->g.files++;
    g->g.read_bytes += t->read_bytes;
    g->g.written_bytes += t->written_bytes;
    g->g.reads += t->reads;
    g->g.opens += t->opens;
    g->g.dur_ns += t->dur_ns;
    g->g.unique_bytes += unique_of(t);
    g->pattern[pattern_of(t)] += t->read_bytes + 1;
    g->g.checkpoint |= t->for_checkpoint;
    g->g.data |= t->for_batch;
}

static int keep_groups(struct mr_explanation *x, struct group *group, size_t n)
{
    x->groups = MR_MIN(n, (size_t)GROUPS_SHOWN);
    x->group = mr_arena_alloc(&x->arena, (x->groups + 1) * sizeof(*x->group));
    if (!x->group)
        return -ENOMEM;
    for (size_t i = 0; i < x->groups; i++) {
        assert(group); /* n > 0 */
        struct group *g = &group[i];
        unsigned best = 0;
        for (unsigned p = 0; p <= MR_PATTERN_RANDOM; p++)
            best = g->pattern[p] > g->pattern[best] ? p : best;
        g->g.pattern = (uint8_t)best;
        const char *folder = mr_explain_clean_name(&x->arena, g->path, g->folder);
        const char *ending = mr_explain_clean_name(&x->arena, g->path + g->ending, g->len - g->ending);
        g->g.name = folder && ending ? mr_arena_printf(&x->arena, "%s*%s", folder, ending) : NULL;
        if (!g->g.name)
            return -ENOMEM;
        x->group[i] = g->g;
    }
    return 0;
}

static int list_groups(struct explain_job *j, const struct explain_tally *tally)
{
    MR_VEC(struct group) group = {0};
    struct mr_map map = {0};
    int rc = 0;
    for (uint32_t f = 0; f < j->file.n; f++) {
        const struct explain_file *file = &j->file.item[f];
        uint32_t folder, ending;
        if (!tally[f].calls || file->code || file->log)
            continue;
        parts_of(file, &folder, &ending);
        uint64_t key =
            mr_hash_bytes(file->path, folder, 7) ^ mr_hash_bytes(file->path + ending, file->len - ending, 11);
        uint64_t *at = mr_map_put(&map, key);
        if (at && !*at) {
            struct group *g = MR_VEC_ADD(&group);
            if (g)
                *g = (struct group){.path = file->path, .folder = folder, .ending = ending, .len = file->len};
            *at = g ? group.n : 0;
        }
        if (!at || !*at) {
            rc = -ENOMEM;
            break;
        }
        assert(group.item && *at <= group.n); /* the map has 1 + the index of a group */
        add_to_group(&group.item[*at - 1], &tally[f]);
    }
    if (!rc && group.n)
        qsort(group.item, group.n, sizeof(*group.item), by_group_bytes);
    rc = rc ? rc : keep_groups(j->x, group.item, group.n);
    free(group.item);
    mr_map_done(&map);
    return rc;
}

/* ---- how much of the data is read again ---- */

#define HIT_POINTS 24u

/* Share of the reads after the first pass that a page cache of `part` of the data set would serve, by least recently
 * used: when every pass has a new random order, the distance between two reads of a byte is 1 - u(1 - v) of the set
 * with u and v uniform, so that P(distance <= part) = 1 - c + c ln c with c = 1 - part. In the same order each time it
 * is everything or nothing. */
static double hits_of(double part, bool shuffled)
{
    double c = 1 - part;
    if (part >= 1)
        return 1;
    return shuffled ? 1 - c + (c > 0 ? c * __builtin_log(c) : 0) : 0;
}

static int predict_hits(struct explain_job *j, uint64_t read, uint64_t unique)
{
    struct mr_explanation *x = j->x;
    if (!unique || read <= unique)
        return 0;
    x->hit_ratio = mr_arena_alloc(&x->arena, HIT_POINTS * sizeof(double));
    x->hit_ram_bytes = mr_arena_alloc(&x->arena, HIT_POINTS * sizeof(double));
    if (!x->hit_ratio || !x->hit_ram_bytes)
        return -ENOMEM;
    for (unsigned i = 0; i < HIT_POINTS; i++) {
        double part = (double)(i + 1) / (HIT_POINTS - 4);
        x->hit_ram_bytes[i] = part * (double)unique;
        x->hit_ratio[i] = (double)(read - unique) / (double)read * hits_of(part, x->facts.shuffled);
    }
    x->hits = HIT_POINTS;
    return 0;
}

/* ---- all ---- */

/* What the kernel tells of itself is nobody's data. */
static bool is_kernels(const char *fs)
{
    return fs && (!strcmp(fs, "proc") || !strcmp(fs, "sysfs") || !strncmp(fs, "cgroup", 6));
}

static void file_facts(struct explain_job *j, const struct explain_tally *tally)
{
    struct mr_explain_facts *f = &j->x->facts;
    uint64_t read = 0, unique = 0, shared = 0, opens = 0, disorder = 0, files = 0;
    uint64_t by_fs = 0, all_opens = 0;
    bool known = j->make.n > 0; /* which files are read for batches */
    for (uint32_t i = 0; i < j->file.n; i++)
        known |= tally[i].for_batch && tally[i].read_bytes;
    for (uint32_t i = 0; i < j->file.n; i++) {
        const struct explain_tally *t = &tally[i];
        unsigned p = pattern_of(t);
        all_opens += j->file.item[i].code ? 0 : t->opens;
        if (!t->reads || (known && !t->for_batch) || is_kernels(j->file.item[i].fs) || j->file.item[i].code ||
            j->file.item[i].log)
            continue;
        files++;
        read += t->read_bytes;
        unique += unique_of(t);
        opens += t->opens;
        shared += __builtin_popcountll(t->ranks) > 1 ? unique_of(t) : 0;
        disorder += p == MR_PATTERN_SHUFFLED_RECORDS || p == MR_PATTERN_RANDOM ? t->read_bytes : 0;
        if (t->read_bytes > by_fs && j->file.item[i].fs) {
            by_fs = t->read_bytes;
            f->device = mr_arena_strdup(&j->x->arena, j->file.item[i].fs);
        }
    }
    f->opens = (double)all_opens;
    f->files = (double)files;
    f->dataset_bytes = (double)unique;
    f->reread_ratio = unique ? (double)read / (double)unique : __builtin_nan("");
    f->shared_share = unique && j->ranks > 1 ? (double)shared / (double)unique : __builtin_nan("");
    f->shuffled = disorder * 2 > read;
    f->opens_per_sample = (double)opens; /* divided when the samples are known */
}

/* Who answers most, by "socket:[inet ADDRESS:PORT]", and what the waits for it were for. */
static void network_facts(struct explain_job *j, const struct explain_tally *tally)
{
    static const char stem[] = "socket:[inet ";
    struct mr_explain_facts *f = &j->x->facts;
    uint64_t most = 0, answer = 0, transfer = 0, bytes = 0, requests = 0;
    for (uint32_t i = 0; i < j->file.n; i++) {
        const struct explain_tally *t = &tally[i];
        const struct explain_file *file = &j->file.item[i];
        uint64_t all = t->net_answer_ns + t->net_transfer_ns;
        answer += t->net_answer_ns;
        transfer += t->net_transfer_ns;
        bytes += t->net_bytes;
        requests += t->net_requests;
        if (all <= most || file->len <= sizeof stem || memcmp(file->path, stem, sizeof stem - 1) != 0)
            continue;
        most = all;
        f->peer = mr_explain_clean_name(&j->x->arena, file->path + sizeof stem - 1, file->len - sizeof stem);
    }
    if (!most)
        return;
    f->net_answer_s = (double)answer / 1e9;
    f->net_transfer_s = (double)transfer / 1e9;
    f->net_bytes = (double)bytes;
    f->net_requests = (double)requests;
}

int mr_explain_finish_files(struct explain_job *j)
{
    struct explain_tally *all = j->worker[0].file;
    for (unsigned w = 1; w < j->workers; w++)
        for (size_t f = 0; f < j->file.n; f++)
            if (j->worker[w].file[f].calls || j->worker[w].file[f].net_answer_ns ||
                j->worker[w].file[f].net_transfer_ns)
                add_tally(&all[f], &j->worker[w].file[f]);
    file_facts(j, all);
    network_facts(j, all);
    mr_explain_disk(j, all);
    uint64_t read = 0, unique = 0;
    for (size_t f = 0; f < j->file.n; f++) {
        read += all[f].read_bytes;
        unique += all[f].read_bytes ? unique_of(&all[f]) : 0;
    }
    int rc = list_files(j, all);
    rc = rc ? rc : list_groups(j, all);
    for (unsigned w = 0; w < j->workers; w++) { /* of a million files they are large */
        free(j->worker[w].file);
        j->worker[w].file = NULL;
    }
    return rc ? rc : predict_hits(j, read, unique);
}

/* ---- sizes ---- */

static void add_sizes(struct mr_explain_sizes *to, const struct mr_explain_sizes *from)
{
    for (unsigned b = 0; b < MR_EXPLAIN_SIZE_BINS; b++) {
        to->ops[b] += from->ops[b];
        to->bytes[b] += from->bytes[b];
        to->dur_ns[b] += from->dur_ns[b];
    }
    to->zero += from->zero;
    to->zero_ns += from->zero_ns;
}

static void latencies(struct mr_explain_sizes *s, const struct mr_histogram *h)
{
    s->p50_ns = mr_histogram_quantile(h, 0.5);
    s->p95_ns = mr_histogram_quantile(h, 0.95);
    s->p99_ns = mr_histogram_quantile(h, 0.99);
    s->max_ns = mr_histogram_quantile(h, 1);
}

static void note_top(struct mr_explain_sizes *s, uint64_t size, uint64_t count)
{
    unsigned at = s->top;
    while (at && (s->top_ops[at - 1] < count || (s->top_ops[at - 1] == count && s->top_size[at - 1] > size)))
        at--;
    if (at == 8)
        return;
    s->top = MR_MIN(s->top + 1, 8u);
    for (unsigned i = s->top - 1; i > at; i--) {
        s->top_size[i] = s->top_size[i - 1];
        s->top_ops[i] = s->top_ops[i - 1];
    }
    s->top_size[at] = size;
    s->top_ops[at] = count;
}

int mr_explain_finish_sizes(struct explain_job *j)
{
    struct explain_worker *first = &j->worker[0];
    struct mr_map sizes = {0};
    const struct mr_map_slot *s;
    int rc = 0;
    for (unsigned i = 0; i < j->workers; i++) {
        struct explain_worker *w = &j->worker[i];
        add_sizes(&j->x->read_sizes, &w->read);
        add_sizes(&j->x->write_sizes, &w->write);
        if (!i)
            continue;
        mr_histogram_merge(first->read_time, w->read_time);
        mr_histogram_merge(first->write_time, w->write_time);
        mr_histogram_merge(first->storage_time, w->storage_time);
    }
    for (uint32_t l = 0; l < j->lanes && !rc; l++)
        for (size_t at = 0; !rc && (s = mr_map_next(&j->lane[l].sizes, &at));) {
            uint64_t *count = mr_map_put(&sizes, s->key);
            rc = count ? 0 : -ENOMEM;
            if (count)
                *count += s->value;
        }
    latencies(&j->x->read_sizes, first->read_time);
    latencies(&j->x->write_sizes, first->write_time);
    j->x->read_sizes.storage_p50_ns = mr_histogram_quantile(first->storage_time, 0.5);
    j->x->read_sizes.storage_p99_ns = mr_histogram_quantile(first->storage_time, 0.99);
    for (size_t at = 0; (s = mr_map_next(&sizes, &at));)
        note_top(&j->x->read_sizes, s->key, s->value);
    mr_map_done(&sizes);
    return rc;
}

/* ---- pictures ---- */

static int access_order(const void *a, const void *b)
{
    const struct mr_explain_access *x = a, *y = b;
    if (x->at_ns != y->at_ns)
        return x->at_ns < y->at_ns ? -1 : 1;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return x->rank != y->rank ? (x->rank < y->rank ? -1 : 1) : (int)x->write - (int)y->write;
}

/* The workers thinned their points by themselves; all are thinned to the coarsest of them, and further to what is
 * shown. A worker has room for more than that: it never was the one to decide. */
static int join_access(struct explain_job *j)
{
    struct mr_explanation *x = j->x;
    uint64_t coarsest = 1;
    size_t n = 0;
    for (unsigned i = 0; i < j->workers; i++) {
        coarsest = MR_MAX(coarsest, j->worker[i].access_every);
        n += j->worker[i].access.n;
    }
    x->access = mr_arena_alloc(&x->arena, (n + 1) * sizeof(*x->access));
    if (!x->access)
        return -ENOMEM;
    for (unsigned i = 0; i < j->workers; i++) {
        const struct explain_worker *w = &j->worker[i];
        if (w->access.n)
            memcpy(x->access + x->accesses, w->access.item, w->access.n * sizeof(*x->access));
        x->accesses += w->access.n;
    }
    x->accesses = mr_explain_thin_access(x->access, x->accesses, coarsest);
    for (; x->accesses > POINTS_SHOWN && coarsest < EXPLAIN_EVERY_MOST; coarsest *= 2)
        x->accesses = mr_explain_thin_access(x->access, x->accesses, 2 * coarsest);
    if (x->accesses)
        qsort(x->access, x->accesses, sizeof(*x->access), access_order);
    return 0;
}

/* Batches that were made and not taken, over time; mean over ranks. Of makes without numbers nobody knows. */
static int draw_ready(struct explain_job *j)
{
    struct mr_explain_timeline *t = &j->x->timeline;
    for (size_t i = 0; i < j->wait.n; i++) {
        const struct explain_wait *w = &j->wait.item[i];
        uint64_t ready = w->make == NO_INDEX          ? w->ready
                         : j->make.item[w->make].item ? UNKNOWN
                                                      : j->make.item[w->make].end;
        if (ready == UNKNOWN || w->last || ready < j->x->start_ns)
            continue;
        if (!t->ready && !(t->ready = mr_arena_alloc(&j->x->arena, j->bins * sizeof(double))))
            return -ENOMEM;
        uint64_t from = ready - j->x->start_ns, to = MR_MAX(w->end - j->x->start_ns, from);
        for (uint64_t b = from / j->bin_ns; b < j->bins && b * j->bin_ns < to; b++)
            t->ready[b] += (double)explain_span_ns(MR_MAX(from, b * j->bin_ns), MR_MIN(to, (b + 1) * j->bin_ns)) /
                           (double)j->bin_ns / (double)MR_MAX(j->ranks, 1u);
    }
    return 0;
}

int mr_explain_finish_pictures(struct explain_job *j)
{
    struct mr_explanation *x = j->x;
    size_t cells = (size_t)j->rows * j->columns;
    if (!j->bins)
        return 0;
    for (unsigned w = 0; w < j->workers; w++) {
        const struct explain_worker *k = &j->worker[w];
        for (uint32_t b = 0; b < j->bins; b++) {
            x->timeline.read_bytes[b] += (double)k->read_bins[b] / EXPLAIN_BYTE_PARTS;
            x->timeline.written_bytes[b] += (double)k->write_bins[b] / EXPLAIN_BYTE_PARTS;
            x->timeline.in_flight[b] += (double)k->flight_bins[b];
        }
        for (size_t c = 0; c < cells; c++) {
            x->heat.read_bytes[c] += (double)k->heat_read[c] / EXPLAIN_BYTE_PARTS;
            x->heat.written_bytes[c] += (double)k->heat_write[c] / EXPLAIN_BYTE_PARTS;
        }
    }
    for (uint32_t b = 0; b < j->bins; b++)
        x->timeline.in_flight[b] /= (double)j->bin_ns;
    int rc = draw_ready(j);
    return rc ? rc : join_access(j);
}
