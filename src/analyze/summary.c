/* Summary of traces. Names are made global once (functions, files); then slices of time are worked on in parallel, each worker with
 * its own counters, which are added up at the end. */
#include "analyze/summary.h"
#include "base/common.h"
#include "base/rng.h"
#include "base/workers.h"
#include "metrics/intervals.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define SLICE_EVENTS (1u << 20)
#define DISTINCT 512 /* different sizes counted exactly per function and worker */

enum set { SET_P, SET_A, SET_C, SETS };
enum { CLASS_NONE = 0, CLASS_P = 1 << SET_P, CLASS_A = 1 << SET_A, CLASS_C = 1 << SET_C };

struct size_counts {
    uint64_t size[DISTINCT];
    uint64_t count[DISTINCT];
    unsigned n, last;
    bool overflow;
};

/* Counters of one function in one worker. Totals that follow from others (bytes, sizes, reads and writes of all functions) are
 * computed at the end, so that an event costs few additions. */
struct tally {
    uint64_t count, errors, dur_ns, dur_min, dur_max;
    struct mr_histogram *dur;  /* only its buckets are counted here */
    struct mr_histogram *size; /* sizes beyond the exact ones */
    struct size_counts *sizes;
};

struct worker {
    struct mr_batch batch;
    struct tally *tally; /* by function */
    struct mr_file_row *file;
    struct mr_intervals set[SETS], lane[SETS], scratch;
    uint64_t length[SETS], a_and_c, p_and_c;
    uint64_t first_ns, last_ns;
    uint8_t *did_io, *did_compute; /* by lane */
};

struct job {
    const struct mr_trace *t;
    const struct mr_summary_options *opt;
    struct mr_function *function;
    uint8_t *function_class;
    size_t functions, function_cap;
    uint32_t **site_of;  /* by process, string id: function of a site */
    uint32_t **file_of;  /* by process, string id: global file + 1 */
    struct mr_file_row *file;
    size_t files, file_cap;
    uint8_t *file_wanted;
    uint64_t *key;       /* hash table over texts */
    uint32_t *value;
    size_t slots, used;
    struct worker *worker;
    unsigned workers;
    uint64_t *slice;     /* slices + 1 borders */
    size_t slices;
    uint32_t *lane_of;   /* by chunk: number of its thread */
    uint32_t lanes;
    struct mr_intervals steps;
    uint64_t from_ns, to_ns;
    struct mr_arena *arena;
    uint8_t call_kind[MR_CALL_COUNT];
};

/* ---- names ---- */

static uint64_t hash_text(const char *p, size_t n, uint64_t seed)
{
    uint64_t h = seed * 0x9e3779b97f4a7c15ull + n + 1;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        h = mr_mix64(h ^ v);
    }
    uint64_t v = 0;
    memcpy(&v, p, n);
    h = mr_mix64(h ^ v ^ 0xabcdef);
    return h ? h : 1;
}

static uint32_t *slot_of(struct job *j, uint64_t key)
{
    if (j->used * 2 >= j->slots) {
        size_t slots = j->slots ? j->slots * 2 : 4096;
        uint64_t *keys = calloc(slots, sizeof(*keys));
        uint32_t *values = calloc(slots, sizeof(*values));
        if (!keys || !values) {
            free(keys);
            free(values);
            return NULL;
        }
        for (size_t i = 0; i < j->slots; i++)
            if (j->key[i]) {
                size_t k = j->key[i] & (slots - 1);
                while (keys[k])
                    k = (k + 1) & (slots - 1);
                keys[k] = j->key[i];
                values[k] = j->value[i];
            }
        free(j->key);
        free(j->value);
        j->key = keys;
        j->value = values;
        j->slots = slots;
    }
    size_t i = key & (j->slots - 1);
    while (j->key[i] && j->key[i] != key)
        i = (i + 1) & (j->slots - 1);
    if (!j->key[i]) {
        j->key[i] = key;
        j->used++;
    }
    return &j->value[i];
}

static bool has(const char *text, size_t len, const char *word)
{
    return memmem(text, len, word, strlen(word)) != NULL;
}

/* What a region is, by the names that DLIO, PyTorch, our own Python package and DFTracer's taxonomy use. */
static uint8_t region_class(const struct mr_trace_string *category, const struct mr_trace_string *name)
{
    if (has(name->text, name->len, "compute") || (category->len == 7 && !memcmp(category->text, "compute", 7)))
        return CLASS_C;
    if (has(category->text, category->len, "reader") || has(category->text, category->len, "loader") ||
        (category->len == 2 && !memcmp(category->text, "io", 2)))
        return CLASS_A;
    return CLASS_NONE;
}

static uint8_t call_class(unsigned call)
{
    const struct mr_call_info *i = mr_call_get(call);
    if (i->layer == MR_LAYER_APP || i->kind == MR_EV_PROCESS)
        return CLASS_NONE;
    return i->layer == MR_LAYER_HDF5 || i->layer == MR_LAYER_MPIIO ? CLASS_A : CLASS_P;
}

static int add_function(struct job *j, const char *category, size_t clen, const char *name, size_t nlen, unsigned call, uint8_t klass, uint32_t *index)
{
    if (j->functions == j->function_cap) {
        size_t cap = j->function_cap ? j->function_cap * 2 : 1024;
        struct mr_function *f = realloc(j->function, cap * sizeof(*f));
        if (f)
            j->function = f;
        uint8_t *k = realloc(j->function_class, cap);
        if (k)
            j->function_class = k;
        if (!f || !k)
            return -ENOMEM;
        j->function_cap = cap;
    }
    struct mr_function *f = &j->function[j->functions];
    memset(f, 0, sizeof(*f));
    f->category = mr_arena_strndup(j->arena, category, clen);
    f->name = mr_arena_strndup(j->arena, name, nlen);
    f->call = call;
    j->function_class[j->functions] = klass;
    *index = (uint32_t)j->functions++;
    return f->category && f->name ? 0 : -ENOMEM;
}

static int site_function(struct job *j, const struct mr_trace_process *p, uint32_t id, uint32_t *index)
{
    struct mr_trace_string category, name;
    const struct mr_trace_string *s = mr_trace_string(p, id);
    uint32_t *at = slot_of(j, hash_text(s->text, s->len, 2));
    if (!at)
        return -ENOMEM;
    if (*at) {
        *index = *at - 1;
        return 0;
    }
    mr_trace_label(p, MR_CALL_region, id, &category, &name);
    int rc = add_function(j, category.text, category.len, name.text, name.len, 0, region_class(&category, &name), index);
    *at = *index + 1;
    return rc;
}

static int path_file(struct job *j, const struct mr_trace_string *s, uint32_t *out)
{
    uint32_t *at = slot_of(j, hash_text(s->text, s->len, 1));
    if (!at)
        return -ENOMEM;
    if (!*at) {
        if (j->files == j->file_cap) {
            size_t cap = j->file_cap ? j->file_cap * 2 : 1024;
            struct mr_file_row *f = realloc(j->file, cap * sizeof(*f));
            if (!f)
                return -ENOMEM;
            j->file = f;
            j->file_cap = cap;
        }
        j->file[j->files] = (struct mr_file_row){.path = s->text, .path_len = s->len};
        *at = (uint32_t)++j->files;
    }
    *out = *at;
    return 0;
}

/* Functions of all calls first: their index is their number; then sites and files of every process. */
static int gather_names(struct job *j)
{
    uint32_t index;
    int rc = 0;
    for (unsigned c = 0; c < MR_CALL_COUNT && rc == 0; c++) {
        const struct mr_call_info *i = mr_call_get(c);
        const char *layer = mr_layer_name(i->layer);
        j->call_kind[c] = i->kind;
        rc = add_function(j, layer, strlen(layer), i->name, strlen(i->name), c, call_class(c), &index);
    }
    j->site_of = calloc(j->t->processes + 1, sizeof(*j->site_of));
    j->file_of = calloc(j->t->processes + 1, sizeof(*j->file_of));
    if (!j->site_of || !j->file_of)
        return -ENOMEM;
    for (size_t p = 0; p < j->t->processes && rc == 0; p++) {
        const struct mr_trace_process *r = &j->t->process[p];
        j->site_of[p] = calloc((size_t)r->strings + 1, sizeof(uint32_t));
        j->file_of[p] = calloc((size_t)r->strings + 1, sizeof(uint32_t));
        if (!j->site_of[p] || !j->file_of[p])
            return -ENOMEM;
        for (uint32_t s = 1; s < r->strings && rc == 0; s++) {
            if (!r->string[s].text)
                continue;
            if (r->string[s].kind == MR_STR_SITE)
                rc = site_function(j, r, s, &j->site_of[p][s]);
            else if (r->string[s].kind == MR_STR_PATH)
                rc = path_file(j, &r->string[s], &j->file_of[p][s]);
        }
    }
    return rc;
}

static int choose_files(struct job *j)
{
    if (!j->opt->path || !*j->opt->path)
        return 0;
    j->file_wanted = calloc(j->files + 1, 1);
    if (!j->file_wanted)
        return -ENOMEM;
    for (size_t i = 0; i < j->files; i++) {
        char path[4097];
        size_t n = MR_MIN((size_t)j->file[i].path_len, sizeof(path) - 1);
        memcpy(path, j->file[i].path, n);
        path[n] = 0;
        j->file_wanted[i + 1] = fnmatch(j->opt->path, path, 0) == 0;
    }
    return 0;
}

/* ---- slices ---- */

struct span {
    uint64_t first, count;
};

static int by_first(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

static int make_slices(struct job *j)
{
    const struct mr_trace *t = j->t;
    struct span *s = malloc((t->chunks + 1) * sizeof(*s));
    uint64_t each = MR_MAX(MR_MIN(t->events / (j->workers * 2) + 1, (uint64_t)SLICE_EVENTS), (uint64_t)200000), sum = 0;
    j->slice = malloc((t->chunks + 2) * sizeof(*j->slice));
    j->lane_of = calloc(t->chunks + 1, sizeof(*j->lane_of));
    if (!s || !j->slice || !j->lane_of) {
        free(s);
        return -ENOMEM;
    }
    for (size_t i = 0; i < t->chunks; i++) {
        s[i] = (struct span){t->chunk[i].first_ns, t->chunk[i].count};
        bool same = i && t->chunk[i].process == t->chunk[i - 1].process && t->chunk[i].tid == t->chunk[i - 1].tid;
        j->lane_of[i] = same ? j->lanes - 1 : j->lanes++;
    }
    qsort(s, t->chunks, sizeof(*s), by_first);
    j->slice[0] = j->from_ns;
    j->slices = 1;
    for (size_t i = 0; i < t->chunks; i++) {
        sum += s[i].count;
        if (sum > each && s[i].first > j->slice[j->slices - 1] && s[i].first < j->to_ns) {
            j->slice[j->slices++] = s[i].first;
            sum = 0;
        }
    }
    j->slice[j->slices] = j->to_ns;
    free(s);
    return 0;
}

/* ---- counting ---- */

static struct tally *tally_get(struct worker *w, uint32_t function)
{
    struct tally *f = &w->tally[function];
    if (!f->dur) {
        f->dur_min = UINT64_MAX;
        f->dur = calloc(1, sizeof(*f->dur));
        f->size = calloc(1, sizeof(*f->size));
        f->sizes = calloc(1, sizeof(*f->sizes));
    }
    return f->dur && f->size && f->sizes ? f : NULL;
}

/* False when there is no room for another size. */
static bool count_other_size(struct size_counts *s, uint64_t size)
{
    for (unsigned i = 0; i < s->n; i++)
        if (s->size[i] == size) {
            s->count[i]++;
            s->last = i;
            return true;
        }
    if (s->n == DISTINCT) {
        s->overflow = true;
        return false;
    }
    s->size[s->n] = size;
    s->count[s->n] = 1;
    s->last = s->n++;
    return true;
}

static unsigned bucket_of(uint64_t v)
{
    if (v < (1u << MR_HIST_SUB_BITS))
        return (unsigned)v;
    unsigned shift = 63 - (unsigned)__builtin_clzll(v) - MR_HIST_SUB_BITS;
    return ((shift + 1) << MR_HIST_SUB_BITS) + (unsigned)(v >> shift & ((1u << MR_HIST_SUB_BITS) - 1));
}

static bool wanted(const struct job *j, uint32_t file, uint64_t start)
{
    return (!j->file_wanted || j->file_wanted[file]) && (j->opt->step_from < 0 || mr_intervals_has(&j->steps, start));
}

/* One event that starts in the slice. */
static void count_event(struct tally *f, struct mr_file_row *row, unsigned kind, uint64_t dur, int64_t result)
{
    f->count++;
    f->dur_ns += dur;
    f->dur_min = MR_MIN(f->dur_min, dur);
    f->dur_max = MR_MAX(f->dur_max, dur);
    f->dur->bucket[bucket_of(dur)]++;
    if (row) {
        row->calls++;
        row->dur_ns += dur;
        row->opens += kind == MR_EV_OPEN && result >= 0;
    }
    if (result < 0) {
        f->errors++;
    } else if (kind == MR_EV_READ || kind == MR_EV_WRITE || kind == MR_EV_COPY) {
        struct size_counts *s = f->sizes;
        uint64_t size = (uint64_t)result;
        if (MR_LIKELY(s->n && s->size[s->last] == size))
            s->count[s->last]++;
        else if (!count_other_size(s, size))
            mr_histogram_add(f->size, size);
        if (row) {
            row->read_bytes += kind != MR_EV_WRITE ? size : 0;
            row->written_bytes += kind != MR_EV_READ ? size : 0;
        }
    }
}

static uint32_t function_of(const struct job *j, uint32_t process, unsigned call, uint32_t id)
{
    const struct mr_trace_process *p = &j->t->process[process];
    if (MR_LIKELY(call > MR_CALL_metadata) || !id || id >= p->strings)
        return call; /* calls of the program itself come first in the table */
    return j->site_of[process][id] ? j->site_of[process][id] : call;
}

static int work_chunk(struct job *j, struct worker *w, size_t chunk, uint64_t from, uint64_t to, struct mr_error *err)
{
    const struct mr_trace_chunk *c = &j->t->chunk[chunk];
    struct mr_batch *b = &w->batch;
    uint64_t first = w->first_ns, last = w->last_ns;
    uint8_t seen = 0;
    int rc = mr_trace_read(j->t, chunk, MR_WANT_TIME | MR_WANT_CALL | MR_WANT_FILE | MR_WANT_RESULT, b, err);
    bool filtered = j->file_wanted || j->opt->step_from >= 0;
    const uint32_t *file_of = j->file_of[c->process];
    uint32_t strings = j->t->process[c->process].strings;
    for (uint32_t i = 0; i < b->count && rc == 0; i++) {
        uint64_t start = b->c.start_ns[i], end = b->c.end_ns[i];
        if (start >= to || (end <= from && start < from))
            continue;
        uint32_t id = b->c.file[i];
        unsigned call = b->c.call[i];
        if (call == MR_CALL_metadata || call == MR_CALL_counter)
            continue;
        uint32_t file = id < strings ? file_of[id] : 0;
        if (filtered && !wanted(j, file, start))
            continue;
        uint32_t function = function_of(j, c->process, call, id);
        uint8_t klass = j->function_class[function];
        for (unsigned s = 0; klass >> s; s++)
            if (klass & 1u << s && mr_intervals_add(&w->lane[s], MR_MAX(start, from), MR_MIN(end, to)) < 0)
                rc = -ENOMEM;
        seen |= klass;
        if (start < from || rc < 0)
            continue;
        struct tally *f = tally_get(w, function);
        if (!f)
            rc = -ENOMEM;
        else /* layers above POSIX would count a file's bytes again */
            count_event(f, file && !(klass & CLASS_A) ? &w->file[file - 1] : NULL, j->call_kind[call], end - start, b->c.result[i]);
        first = MR_MIN(first, start);
        last = MR_MAX(last, end);
    }
    w->first_ns = first;
    w->last_ns = last;
    w->did_io[j->lane_of[chunk]] |= seen & CLASS_P;
    w->did_compute[j->lane_of[chunk]] |= (seen & CLASS_C) != 0;
    return rc == -ENOMEM ? mr_error_set(err, rc, "cannot summarise") : rc;
}

static int end_lane(struct worker *w)
{
    int rc = 0;
    for (unsigned s = 0; s < SETS; s++) {
        mr_intervals_normalise(&w->lane[s]);
        if (mr_intervals_merge(&w->set[s], &w->lane[s], &w->scratch) < 0)
            rc = -ENOMEM;
        w->lane[s].n = 0;
    }
    return rc;
}

static int work_slice(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct job *j = ctx->user;
    struct worker *w = &j->worker[ctx->thread];
    uint64_t from = j->slice[index], to = j->slice[index + 1];
    int rc = 0;
    for (unsigned s = 0; s < SETS; s++)
        w->set[s].n = w->lane[s].n = 0;
    for (size_t i = 0; i < j->t->chunks && rc == 0; i++) {
        const struct mr_trace_chunk *c = &j->t->chunk[i];
        if (i && j->lane_of[i] != j->lane_of[i - 1] && end_lane(w) < 0)
            rc = mr_error_set(err, -ENOMEM, "cannot summarise");
        if (rc == 0 && c->count && c->first_ns < to && c->last_ns >= from && (j->opt->rank < 0 || j->t->process[c->process].rank == j->opt->rank))
            rc = work_chunk(j, w, i, from, to, err);
    }
    if (rc < 0)
        return rc;
    if (end_lane(w) < 0)
        return mr_error_set(err, -ENOMEM, "cannot summarise");
    for (unsigned s = 0; s < SETS; s++)
        w->length[s] += mr_intervals_length(&w->set[s]);
    w->a_and_c += mr_intervals_common(&w->set[SET_A], &w->set[SET_C]);
    w->p_and_c += mr_intervals_common(&w->set[SET_P], &w->set[SET_C]);
    return 0;
}

/* ---- steps ---- */

static bool is_step(const struct mr_trace_string *s)
{
    return s->len == 4 && !memcmp(s->text, "step", 4);
}

static int gather_steps(struct job *j, struct mr_error *err)
{
    struct mr_batch b = {0};
    int rc = 0;
    for (size_t i = 0; i < j->t->chunks && rc == 0 && j->opt->step_from >= 0; i++) {
        if (!j->t->chunk[i].args)
            continue;
        rc = mr_trace_read(j->t, i, MR_WANT_TIME | MR_WANT_ARGS, &b, err);
        for (uint32_t a = 0; a < b.args && rc == 0; a++) {
            uint32_t e = b.c.arg_event[a];
            int64_t step = (int64_t)b.c.arg_value[a];
            if (b.c.arg_type[a] == MR_MORE_INT && is_step(mr_trace_string(b.process, b.c.arg_key[a])) && step >= j->opt->step_from &&
                step <= j->opt->step_to && mr_intervals_add(&j->steps, b.c.start_ns[e], b.c.end_ns[e]) < 0)
                rc = mr_error_set(err, -ENOMEM, "cannot find the steps");
        }
    }
    mr_batch_done(&b);
    mr_intervals_normalise(&j->steps);
    return rc;
}

/* ---- adding up ---- */

struct size_count {
    uint64_t size, count;
};

static int by_size(const void *a, const void *b)
{
    const struct size_count *x = a, *y = b;
    return x->size < y->size ? -1 : x->size > y->size;
}

static double exact_quantile(const struct size_count *s, size_t n, uint64_t total, double q)
{
    uint64_t rank = (uint64_t)(q * (double)(total - 1)), seen = 0;
    for (size_t i = 0; i < n; i++) {
        seen += s[i].count;
        if (seen > rank)
            return (double)s[i].size;
    }
    return 0;
}

/* Exact quantiles while the different sizes are few; from the histogram (within 3.2 %) otherwise. */
static int finish_sizes(struct job *j, struct mr_function *f, uint32_t index)
{
    struct size_count *s = malloc(j->workers * DISTINCT * sizeof(*s));
    size_t n = 0, m = 0;
    bool overflow = false;
    if (!s)
        return -ENOMEM;
    for (unsigned k = 0; k < j->workers; k++) {
        const struct size_counts *c = j->worker[k].tally[index].sizes;
        for (unsigned i = 0; c && i < c->n; i++)
            s[n++] = (struct size_count){c->size[i], c->count[i]};
        overflow |= c && c->overflow;
    }
    qsort(s, n, sizeof(*s), by_size);
    for (size_t i = 0; i < n; i++) {
        if (m && s[m - 1].size == s[i].size)
            s[m - 1].count += s[i].count;
        else
            s[m++] = s[i];
    }
    f->sizes = f->size->count;
    f->size_min = f->size->min;
    f->size_max = f->size->max;
    f->sizes_exact = !overflow;
    f->size_25 = overflow ? (double)mr_histogram_quantile(f->size, 0.25) : f->sizes ? exact_quantile(s, m, f->sizes, 0.25) : 0;
    f->size_median = overflow ? (double)mr_histogram_quantile(f->size, 0.5) : f->sizes ? exact_quantile(s, m, f->sizes, 0.5) : 0;
    f->size_75 = overflow ? (double)mr_histogram_quantile(f->size, 0.75) : f->sizes ? exact_quantile(s, m, f->sizes, 0.75) : 0;
    free(s);
    return 0;
}

/* Puts the exact counts beside the buckets, as if every value had been added. */
static void finish_histogram(struct tally *t)
{
    t->dur->count = t->count;
    t->dur->min = t->dur_min;
    t->dur->max = t->dur_max;
    t->dur->sum = (double)t->dur_ns;
    for (unsigned i = 0; i < t->sizes->n; i++)
        mr_histogram_add_n(t->size, t->sizes->size[i], t->sizes->count[i]);
}

static int finish_function(struct job *j, struct mr_summary *s, uint32_t index)
{
    struct mr_function f = j->function[index];
    uint8_t kind = j->call_kind[f.call];
    bool io = j->function_class[index] & CLASS_P;
    for (unsigned k = 0; k < j->workers; k++)
        f.count += j->worker[k].tally[index].count;
    if (!f.count)
        return 0;
    f.dur = mr_arena_alloc(&s->arena, sizeof(*f.dur));
    f.size = mr_arena_alloc(&s->arena, sizeof(*f.size));
    if (!f.dur || !f.size)
        return -ENOMEM;
    for (unsigned k = 0; k < j->workers; k++) {
        struct tally *t = &j->worker[k].tally[index];
        f.errors += t->errors;
        f.dur_ns += t->dur_ns;
        if (t->count) {
            finish_histogram(t);
            mr_histogram_merge(f.dur, t->dur);
            mr_histogram_merge(f.size, t->size);
            for (unsigned i = 0; i < t->sizes->n; i++)
                f.bytes += t->sizes->size[i] * t->sizes->count[i];
        }
    }
    for (size_t p = 0; f.call && p < j->t->processes; p++)
        if (j->t->process[p].skipped && (j->opt->rank < 0 || j->t->process[p].rank == j->opt->rank))
            f.skipped += j->t->process[p].skipped[f.call];
    int rc = finish_sizes(j, &f, index);
    if (!f.sizes_exact)
        f.bytes = (uint64_t)f.size->sum;
    s->events += f.count;
    if (io && f.sizes) { /* totals are those of POSIX: layers above it would count the same bytes again */
        mr_histogram_merge(&s->size, f.size);
        s->read_bytes += kind != MR_EV_WRITE ? f.bytes : 0;
        s->read_calls += kind != MR_EV_WRITE ? f.sizes : 0;
        s->written_bytes += kind != MR_EV_READ ? f.bytes : 0;
        s->write_calls += kind != MR_EV_READ ? f.sizes : 0;
    }
    if (io)
        *(mr_kind_moves_data(kind) ? &s->data_ns : &s->metadata_ns) += f.dur_ns;
    s->function[s->functions++] = f;
    return rc;
}

static int by_time(const void *a, const void *b)
{
    const struct mr_function *x = a, *y = b;
    if (x->dur_ns != y->dur_ns)
        return x->dur_ns > y->dur_ns ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_bytes(const void *a, const void *b)
{
    const struct mr_file_row *x = a, *y = b;
    uint64_t p = x->read_bytes + x->written_bytes, q = y->read_bytes + y->written_bytes;
    if (p != q)
        return p > q ? -1 : 1;
    return x->calls != y->calls ? (x->calls > y->calls ? -1 : 1) : 0;
}

static int finish_files(struct job *j, struct mr_summary *s)
{
    s->file = mr_arena_alloc(&s->arena, (j->files + 1) * sizeof(*s->file));
    if (!s->file)
        return -ENOMEM;
    for (size_t i = 0; i < j->files; i++) {
        struct mr_file_row r = j->file[i];
        for (unsigned k = 0; k < j->workers; k++) {
            const struct mr_file_row *w = &j->worker[k].file[i];
            r.calls += w->calls;
            r.read_bytes += w->read_bytes;
            r.written_bytes += w->written_bytes;
            r.dur_ns += w->dur_ns;
            r.opens += w->opens;
        }
        if (r.calls)
            s->file[s->file_rows++] = r;
    }
    s->files = s->file_rows;
    qsort(s->file, s->file_rows, sizeof(*s->file), by_bytes);
    return 0;
}

static void bin_sizes(struct job *j, struct mr_summary *s)
{
    static const uint64_t top[9] = {100, 1024, 10240, 102400, 1u << 20, 4u << 20, 10u << 20, 100u << 20, 1u << 30};
    for (uint32_t i = 0; i < j->functions; i++)
        for (unsigned k = 0; k < j->workers && j->function_class[i] & CLASS_P; k++) {
            const struct size_counts *c = j->worker[k].tally[i].sizes;
            for (unsigned n = 0; c && n < c->n; n++) {
                unsigned b = 0;
                while (b < 9 && c->size[n] > top[b])
                    b++;
                s->size_bins[b] += c->count[n];
            }
        }
}

struct pair {
    uint32_t node, pid;
};

static int by_pair(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    return x->node != y->node ? (x->node < y->node ? -1 : 1) : x->pid != y->pid ? (x->pid < y->pid ? -1 : 1) : 0;
}

/* Processes are counted by machine and pid: an exec'd image is the same process. */
static int count_processes(struct job *j, struct mr_summary *s)
{
    struct pair *p = malloc((j->t->processes + 1) * sizeof(*p));
    size_t n = 0;
    if (!p)
        return -ENOMEM;
    for (size_t i = 0; i < j->t->processes; i++)
        if (j->opt->rank < 0 || j->t->process[i].rank == j->opt->rank)
            p[n++] = (struct pair){j->t->process[i].node, j->t->process[i].pid};
    qsort(p, n, sizeof(*p), by_pair);
    for (size_t i = 0; i < n; i++) {
        s->processes += !i || by_pair(&p[i], &p[i - 1]);
        s->nodes += !i || p[i].node != p[i - 1].node;
    }
    free(p);
    return 0;
}

static int finish_all(struct job *j, struct mr_summary *s)
{
    uint64_t first = UINT64_MAX, last = 0, a_and_c = 0, p_and_c = 0, length[SETS] = {0};
    s->function = mr_arena_alloc(&s->arena, (j->functions + 1) * sizeof(*s->function));
    int rc = s->function ? count_processes(j, s) : -ENOMEM;
    for (uint32_t i = 0; i < j->functions && rc == 0; i++)
        rc = finish_function(j, s, i);
    rc = rc ? rc : finish_files(j, s);
    if (rc < 0)
        return rc;
    qsort(s->function, s->functions, sizeof(*s->function), by_time);
    bin_sizes(j, s);
    for (unsigned k = 0; k < j->workers; k++) {
        const struct worker *w = &j->worker[k];
        first = MR_MIN(first, w->first_ns);
        last = MR_MAX(last, w->last_ns);
        a_and_c += w->a_and_c;
        p_and_c += w->p_and_c;
        for (unsigned n = 0; n < SETS; n++)
            length[n] += w->length[n];
    }
    for (uint32_t l = 0; l < j->lanes; l++) {
        bool io = false, compute = false;
        for (unsigned k = 0; k < j->workers; k++) {
            io |= j->worker[k].did_io[l];
            compute |= j->worker[k].did_compute[l];
        }
        s->io_threads += io;
        s->compute_threads += compute;
    }
    s->threads = j->lanes;
    s->total_ns = last > first ? last - first : 0;
    s->app_io_ns = length[SET_A];
    s->compute_ns = length[SET_C];
    s->io_ns = length[SET_P];
    s->app_io_only_ns = length[SET_A] - a_and_c;
    s->compute_only_app_ns = length[SET_C] - a_and_c;
    s->io_only_ns = length[SET_P] - p_and_c;
    s->compute_only_ns = length[SET_C] - p_and_c;
    s->lost = j->t->lost;
    s->skipped_bytes = j->t->skipped_bytes;
    s->skipped_lines = j->t->skipped_lines;
    return 0;
}

static int make_workers(struct job *j)
{
    j->worker = calloc(j->workers, sizeof(*j->worker));
    for (unsigned k = 0; j->worker && k < j->workers; k++) {
        struct worker *w = &j->worker[k];
        w->first_ns = UINT64_MAX;
        w->tally = calloc(j->functions + 1, sizeof(*w->tally));
        w->file = calloc(j->files + 1, sizeof(*w->file));
        w->did_io = calloc(j->lanes + 1, 1);
        w->did_compute = calloc(j->lanes + 1, 1);
        if (!w->tally || !w->file || !w->did_io || !w->did_compute)
            return -ENOMEM;
    }
    return j->worker ? 0 : -ENOMEM;
}

static void job_done(struct job *j)
{
    for (unsigned k = 0; j->worker && k < j->workers; k++) {
        struct worker *w = &j->worker[k];
        for (size_t i = 0; w->tally && i < j->functions; i++) {
            free(w->tally[i].dur);
            free(w->tally[i].size);
            free(w->tally[i].sizes);
        }
        for (unsigned s = 0; s < SETS; s++) {
            mr_intervals_done(&w->set[s]);
            mr_intervals_done(&w->lane[s]);
        }
        mr_intervals_done(&w->scratch);
        mr_batch_done(&w->batch);
        free(w->tally);
        free(w->file);
        free(w->did_io);
        free(w->did_compute);
    }
    for (size_t p = 0; p < j->t->processes; p++) {
        if (j->site_of)
            free(j->site_of[p]);
        if (j->file_of)
            free(j->file_of[p]);
    }
    mr_intervals_done(&j->steps);
    free(j->worker);
    free(j->site_of);
    free(j->file_of);
    free(j->function);
    free(j->function_class);
    free(j->file);
    free(j->file_wanted);
    free(j->key);
    free(j->value);
    free(j->slice);
    free(j->lane_of);
}

int mr_summarise(const struct mr_trace *t, const struct mr_summary_options *opt, const atomic_bool *stop, struct mr_summary **out, struct mr_error *err)
{
    struct mr_summary *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot summarise");
    struct job j = {.t = t, .opt = opt, .arena = &s->arena};
    j.workers = opt->threads ? opt->threads : mr_cpus_available();
    j.from_ns = t->first_ns + opt->from_ns;
    j.to_ns = opt->to_ns ? MR_MIN(t->last_ns + 1, t->first_ns + opt->to_ns) : t->last_ns + 1;
    mr_histogram_init(&s->size);
    int rc = gather_names(&j);
    rc = rc ? rc : choose_files(&j);
    rc = rc ? rc : make_slices(&j);
    rc = rc ? rc : make_workers(&j);
    if (rc < 0)
        rc = mr_error_set(err, rc, "cannot summarise");
    rc = rc ? rc : gather_steps(&j, err);
    if (rc == 0 && j.from_ns < j.to_ns)
        rc = mr_workers_run(j.workers, j.slices, 1, work_slice, &j, stop, err);
    if (rc == 0 && finish_all(&j, s) < 0)
        rc = mr_error_set(err, -ENOMEM, "cannot summarise");
    job_done(&j);
    if (rc < 0) {
        mr_summary_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void mr_summary_free(struct mr_summary *s)
{
    if (!s)
        return;
    mr_arena_done(&s->arena);
    free(s);
}
