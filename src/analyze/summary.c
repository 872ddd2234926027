/* Summary of traces. Names are made global once (functions, files). Then chunks are taken in the order of time, a few
 * million events at once: first they are counted and their intervals listed, in parallel over chunks; then the
 * intervals are united, in parallel over slices of time. Lists that reach beyond these events stay for the next round,
 * so nothing is decoded twice. Each worker has its own counters, which are added up at the end. */
#include "analyze/summary.h"
#include "base/common.h"
#include "base/rng.h"
#include "base/workers.h"
#include "event/path_glob.h"

#include <errno.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROUND_EVENTS (4u << 20)
#define SLICE_EVENTS 50000u /* fewer are not worth a slice of their own */
#define DISTINCT 4096u      /* different sizes counted exactly per function */
#define FEW 6 /* buckets of durations listed before there is a histogram: a program may have a name for every step */

enum { CLASS_NONE = 0, CLASS_P = 1 << MR_SET_P, CLASS_A = 1 << MR_SET_A, CLASS_C = 1 << MR_SET_C };

struct size_count {
    uint64_t size, count; /* count 0: free */
};

struct bucket_count {
    uint64_t count;
    uint32_t bucket;
};

/* Counters of one function in one worker. A histogram is large: there is one only where it is needed. */
struct tally {
    uint64_t count, errors, bytes, dur_ns, dur_min, dur_max;
    struct bucket_count few[FEW]; /* durations; the used ones are the first */
    struct mr_histogram *dur;  /* all durations, once they fall into more buckets; only its buckets are counted here */
    struct mr_histogram *size; /* sizes that are not counted one by one; NULL: there are none */
    uint64_t bin[MR_TALLY_BINS];
    struct size_count *sizes; /* hash table */
    uint32_t slots, used, last;
    bool spilled; /* some sizes are in the histogram only */
    bool failed;  /* no memory */
};

struct worker {
    struct mr_event_batch batch;
    struct tally *tally; /* by function */
    struct mr_file_row *file;
    struct mr_timeline timeline;
    struct mr_time_split all, *group;
    uint64_t *group_events, *group_first, *group_last;
    uint8_t *did_io, *did_compute, *present; /* by lane; present: has something in what filters leave */
    /* The block being visited. */
    struct tally *now;
    uint32_t process;
    uint8_t classes, mixed; /* sets its functions belong to; some belong to none */
    bool odd, failed;       /* has events of no function; no memory */
};

struct job {
    const struct mr_trace *t;
    const struct mr_summary_options *opt;
    struct mr_function *function;
    uint8_t *function_class;
    size_t functions, function_cap;
    uint32_t *owner;    /* by process: whose tables it uses */
    uint32_t **site_of; /* by process, string id: function of a site */
    uint32_t **file_of; /* by process, string id: global file + 1 */
    struct mr_file_row *file;
    size_t files, file_cap;
    uint8_t *file_wanted;
    uint64_t *key; /* hash table over texts */
    uint32_t *value;
    size_t slots, used;
    struct worker *worker;
    unsigned workers;
    uint32_t *lane_of; /* by chunk: number of its thread */
    uint32_t lanes;
    uint32_t *group_of; /* by process */
    int32_t *group_rank;
    uint32_t groups;
    uint32_t *order; /* wanted chunks by time */
    size_t ordered;
    struct mr_run *run; /* of the chunks at hand */
    size_t runs, run_cap, first_run, first_chunk;
    uint64_t slice_from, slice_to;
    unsigned slices;
    pthread_mutex_t lock;
    struct mr_intervals spare[64]; /* memory of lists to be used again; under lock */
    unsigned spares;
    struct mr_histogram dur, size; /* of the function that is being finished */
    struct mr_intervals
        *steps; /* by group: when its wanted steps are; behind the last group those of all, for groups without steps */
    uint64_t from_ns, to_ns;
    struct mr_arena *arena;
    uint8_t call_kind[MR_CALL_COUNT];
    bool call_on_file[MR_CALL_COUNT];
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
        (category->len == 2 && !memcmp(category->text, "io", 2)) || has(name->text, name->len, ".io.") ||
        (category->len == 4 && !memcmp(category->text, "data", 4) && !has(name->text, name->len, "preprocess")))
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

static int add_function(struct job *j, const char *category, size_t clen, const char *name, size_t nlen, unsigned call,
                        uint8_t klass, uint32_t *index)
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
    int rc =
        add_function(j, category.text, category.len, name.text, name.len, 0, region_class(&category, &name), index);
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

struct owner {
    const struct mr_trace_string *string;
    uint32_t process;
};

static int by_strings(const void *a, const void *b)
{
    const struct owner *x = a, *y = b;
    return x->string != y->string    ? (x->string < y->string ? -1 : 1)
           : x->process < y->process ? -1
                                     : x->process > y->process;
}

/* Processes can share one list of strings (ranks of a simulation, imported files): the first of them makes the tables
 * for all. */
static int find_owners(struct job *j)
{
    size_t n = j->t->processes;
    struct owner *o = malloc((n + 1) * sizeof(*o));
    j->owner = malloc((n + 1) * sizeof(*j->owner));
    if (!o || !j->owner) {
        free(o);
        return -ENOMEM;
    }
    for (size_t p = 0; p < n; p++)
        o[p] = (struct owner){j->t->process[p].string, (uint32_t)p};
    qsort(o, n, sizeof(*o), by_strings);
    for (size_t i = 0; i < n; i++)
        j->owner[o[i].process] =
            i && o[i].string && o[i].string == o[i - 1].string ? j->owner[o[i - 1].process] : o[i].process;
    free(o);
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
        j->call_on_file[c] = mr_call_on_file(c);
        rc = add_function(j, layer, strlen(layer), i->name, strlen(i->name), c, call_class(c), &index);
    }
    j->site_of = calloc(j->t->processes + 1, sizeof(*j->site_of));
    j->file_of = calloc(j->t->processes + 1, sizeof(*j->file_of));
    if (!j->site_of || !j->file_of || find_owners(j) < 0)
        return -ENOMEM;
    for (size_t p = 0; p < j->t->processes && rc == 0; p++) {
        const struct mr_trace_process *r = &j->t->process[p];
        if (j->owner[p] != p) {
            j->site_of[p] = j->site_of[j->owner[p]];
            j->file_of[p] = j->file_of[j->owner[p]];
            continue;
        }
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
    const char *glob = j->opt->path;
    bool more = strchr(glob, '{') ||
                glob[strlen(glob) - 1] == '/'; /* what fnmatch does not know, and the tracer's options do */
    j->file_wanted = calloc(j->files + 1, 1);
    char *globs = malloc(MR_GLOBS_BYTES);
    if (!j->file_wanted || !globs) {
        free(globs);
        return -ENOMEM;
    }
    if (!more || !mr_globs_read(glob, globs, MR_GLOBS_BYTES))
        globs[0] = 0;
    for (size_t i = 0; i < j->files; i++) {
        char path[4097];
        size_t n = MR_MIN((size_t)j->file[i].path_len, sizeof(path) - 1);
        memcpy(path, j->file[i].path, n);
        path[n] = 0;
        j->file_wanted[i + 1] = fnmatch(glob, path, 0) == 0 || mr_globs_match(globs, path);
    }
    free(globs);
    return 0;
}

/* ---- what is to be looked at ---- */

static bool rank_wanted(const struct job *j, const struct mr_trace_process *p)
{
    return j->opt->rank < 0 || p->rank == j->opt->rank;
}

static int by_rank(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

/* Groups are ranks, numbered in their order. */
static int make_groups(struct job *j)
{
    const struct mr_trace *t = j->t;
    j->group_of = calloc(t->processes + 1, sizeof(*j->group_of));
    j->group_rank = calloc(t->processes + 1, sizeof(*j->group_rank));
    if (!j->group_of || !j->group_rank)
        return -ENOMEM;
    for (size_t i = 0; i < t->processes; i++)
        j->group_rank[i] = t->process[i].rank;
    qsort(j->group_rank, t->processes, sizeof(*j->group_rank), by_rank);
    for (size_t i = 0; i < t->processes; i++)
        if (!j->groups || j->group_rank[j->groups - 1] != j->group_rank[i])
            j->group_rank[j->groups++] = j->group_rank[i];
    for (size_t i = 0; i < t->processes; i++) {
        const int32_t *at = bsearch(&t->process[i].rank, j->group_rank, j->groups, sizeof(*at), by_rank);
        j->group_of[i] = (uint32_t)(at - j->group_rank);
    }
    return 0;
}

struct place {
    uint64_t first;
    uint32_t chunk;
};

static int by_first(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Numbers the threads, and lists the chunks that filters leave in the order of time. */
static int order_chunks(struct job *j)
{
    const struct mr_trace *t = j->t;
    struct place *p = malloc((t->chunks + 1) * sizeof(*p));
    j->order = malloc((t->chunks + 1) * sizeof(*j->order));
    j->lane_of = calloc(t->chunks + 1, sizeof(*j->lane_of));
    if (!p || !j->order || !j->lane_of) {
        free(p);
        return -ENOMEM;
    }
    for (size_t i = 0; i < t->chunks; i++) {
        const struct mr_trace_chunk *c = &t->chunk[i];
        if (!rank_wanted(j, &t->process[c->process]))
            continue;
        bool same = i && j->lanes && c->process == t->chunk[i - 1].process && c->tid == t->chunk[i - 1].tid;
        j->lane_of[i] = same ? j->lanes - 1 : j->lanes++;
        if (c->count && c->first_ns < j->to_ns && c->last_ns >= j->from_ns)
            p[j->ordered++] = (struct place){c->first_ns, (uint32_t)i};
    }
    qsort(p, j->ordered, sizeof(*p), by_first);
    for (size_t i = 0; i < j->ordered; i++)
        j->order[i] = p[i].chunk;
    free(p);
    return 0;
}

/* ---- counting ---- */

static struct tally *tally_get(struct worker *w, uint32_t function)
{
    struct tally *f = &w->tally[function];
    if (!f->count)
        f->dur_min = UINT64_MAX;
    return f->failed ? NULL : f;
}

static void put_buckets(struct mr_histogram *h, const struct tally *f)
{
    for (unsigned i = 0; f->dur && i < MR_HIST_BUCKETS; i++)
        h->bucket[i] += f->dur->bucket[i];
    for (unsigned i = 0; i < FEW && f->few[i].count; i++)
        h->bucket[f->few[i].bucket] += f->few[i].count;
}

/* A bucket that is not listed yet, while there is no histogram. */
static void count_new_bucket(struct tally *f, unsigned bucket, uint64_t n)
{
    unsigned i = 0;
    while (i < FEW && f->few[i].count && f->few[i].bucket != bucket)
        i++;
    if (i < FEW) {
        f->few[i].bucket = bucket;
        f->few[i].count += n;
        return;
    }
    struct mr_histogram *h = calloc(1, sizeof(*h));
    if (!h) {
        f->failed = true;
        return;
    }
    put_buckets(h, f);
    memset(f->few, 0, sizeof(f->few));
    h->bucket[bucket] += n;
    f->dur = h;
}

static void count_bucket(struct tally *f, unsigned bucket, uint64_t n)
{
    if (MR_LIKELY(f->dur != NULL))
        f->dur->bucket[bucket] += n;
    else if (n)
        count_new_bucket(f, bucket, n);
}

static struct mr_histogram *size_histogram(struct tally *f)
{
    if (!f->size)
        f->size = calloc(1, sizeof(*f->size));
    f->failed |= !f->size;
    f->spilled = true;
    return f->size;
}

static void count_in_histogram(struct tally *f, uint64_t size, uint64_t n)
{
    struct mr_histogram *h = size_histogram(f);
    if (h)
        mr_histogram_add_n(h, size, n);
    f->bin[mr_tally_bin(size)] += n;
}

static uint32_t size_slot(const struct size_count *table, uint32_t slots, uint64_t size)
{
    uint32_t k = (uint32_t)(mr_mix64(size) & (slots - 1));
    while (table[k].count && table[k].size != size)
        k = (k + 1) & (slots - 1);
    return k;
}

static bool grow_sizes(struct tally *f)
{
    uint32_t slots = f->slots ? f->slots * 2 : 64;
    struct size_count *bigger = calloc(slots, sizeof(*bigger));
    if (!bigger)
        return false;
    for (uint32_t i = 0; i < f->slots; i++)
        if (f->sizes[i].count)
            bigger[size_slot(bigger, slots, f->sizes[i].size)] = f->sizes[i];
    free(f->sizes);
    f->sizes = bigger;
    f->slots = slots;
    f->last = 0;
    return true;
}

/* Counts a size exactly while there are few different ones, in the histogram beyond. */
static void count_size(struct tally *f, uint64_t size, uint64_t n)
{
    if (f->used * 2 >= f->slots && f->used < DISTINCT && !grow_sizes(f)) {
        count_in_histogram(f, size, n);
        return;
    }
    uint32_t k = size_slot(f->sizes, f->slots, size);
    if (!f->sizes[k].count && f->used >= DISTINCT) {
        count_in_histogram(f, size, n);
        return;
    }
    f->used += !f->sizes[k].count;
    f->sizes[k].size = size;
    f->sizes[k].count += n;
    f->last = k;
}

static bool wanted(const struct job *j, uint32_t group, uint32_t file, uint64_t start)
{
    return (!j->file_wanted || j->file_wanted[file]) &&
           (j->opt->step_from < 0 || mr_intervals_has(&j->steps[group], start));
}

static void count_row(struct mr_file_row *row, unsigned kind, uint64_t dur, int64_t result)
{
    row->calls++;
    row->dur_ns += dur;
    row->opens += kind == MR_EV_OPEN && (result >= 0 || result == MR_NO_RESULT);
    if (result > 0) {
        row->read_bytes += kind == MR_EV_READ || kind == MR_EV_COPY ? (uint64_t)result : 0;
        row->written_bytes += kind == MR_EV_WRITE ? (uint64_t)result : 0; /* the file of a copy is the one it reads */
    }
}

static void count_event(struct tally *f, unsigned kind, uint64_t dur, int64_t result)
{
    f->count++;
    f->dur_ns += dur;
    f->dur_min = MR_MIN(f->dur_min, dur);
    f->dur_max = MR_MAX(f->dur_max, dur);
    count_bucket(f, mr_tally_bucket(dur), 1);
    if (result < 0) {
        f->errors += result != MR_NO_RESULT;
    } else if (mr_kind_moves_data(kind)) {
        uint64_t size = (uint64_t)result;
        f->bytes += size;
        if (MR_LIKELY(f->slots && f->sizes[f->last].count && f->sizes[f->last].size == size))
            f->sizes[f->last].count++;
        else
            count_size(f, size, 1);
    }
}

static uint32_t function_of(const struct job *j, uint32_t process, unsigned call, uint32_t id)
{
    const struct mr_trace_process *p = &j->t->process[process];
    if (MR_LIKELY(call > MR_CALL_metadata) || !id || id >= p->strings)
        return call; /* calls of the program itself come first in the table */
    return j->site_of[process][id] ? j->site_of[process][id] : call;
}

/* ---- whole blocks, by what they say themselves ---- */

struct visit {
    struct job *j;
    struct worker *w;
};

static void visit_function(void *user, const struct mr_mrt_aggregate *a)
{
    struct visit *v = user;
    struct worker *w = v->w;
    uint32_t function = function_of(v->j, w->process, a->call, a->site);
    w->now = NULL;
    if (a->call == MR_CALL_metadata || a->call == MR_CALL_counter) {
        w->odd = true;
        return;
    }
    uint8_t klass = v->j->function_class[function];
    w->classes |= klass;
    w->mixed |= !klass;
    w->now = tally_get(w, function);
    if (!w->now) {
        w->failed = true;
        return;
    }
    w->now->count += a->count;
    w->now->errors += a->errors;
    w->now->bytes += a->bytes;
    w->now->dur_ns += a->dur_sum;
    w->now->dur_min = MR_MIN(w->now->dur_min, a->dur_min);
    w->now->dur_max = MR_MAX(w->now->dur_max, a->dur_max);
}

static void visit_duration(void *user, unsigned bucket, uint64_t count)
{
    struct visit *v = user;
    if (v->w->now)
        count_bucket(v->w->now, bucket, count);
}

static void visit_size(void *user, uint64_t size, uint64_t count)
{
    struct visit *v = user;
    if (v->w->now && count)
        count_size(v->w->now, size, count);
}

static void visit_sizes(void *user, const struct mr_mrt_sizes *s)
{
    struct visit *v = user;
    struct tally *f = v->w->now;
    struct mr_histogram *h = f ? size_histogram(f) : NULL;
    if (!h)
        return;
    h->min = h->count ? MR_MIN(h->min, s->min) : s->min;
    h->max = MR_MAX(h->max, s->max);
    for (unsigned b = 0; b < MR_TALLY_BINS; b++)
        f->bin[b] += s->bin[b];
}

static void visit_size_bucket(void *user, unsigned bucket, uint64_t count)
{
    struct visit *v = user;
    struct mr_histogram *h = v->w->now ? size_histogram(v->w->now) : NULL;
    if (!h)
        return;
    h->bucket[bucket] += count;
    h->count += count;
}

static void visit_file(void *user, const struct mr_tally_file *row)
{
    struct visit *v = user;
    uint32_t file = row->id < v->j->t->process[v->w->process].strings ? v->j->file_of[v->w->process][row->id] : 0;
    if (!file)
        return;
    struct mr_file_row *r = &v->w->file[file - 1];
    r->calls += row->calls;
    r->opens += row->opens;
    r->read_bytes += row->read_bytes;
    r->written_bytes += row->written_bytes;
    r->dur_ns += row->dur_ns;
}

static const struct mr_mrt_visitor visitor = {.function = visit_function,
                                              .duration = visit_duration,
                                              .size = visit_size,
                                              .sizes = visit_sizes,
                                              .size_bucket = visit_size_bucket,
                                              .file = visit_file};

/* ---- chunks ---- */

/* Lists the events of a block that all belong to one set. */
static void list_all(const struct mr_event_batch *b, struct mr_intervals *list, bool *normal)
{
    struct mr_interval *item = list->item;
    const uint64_t *start = b->c.start_ns, *end = b->c.end_ns;
    size_t n = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        /* Almost always one call after the other. */
        if (MR_LIKELY(n && start[i] > item[n - 1].end && end[i] > start[i]))
            item[n++] = (struct mr_interval){start[i], end[i]};
        else
            mr_run_append(item, &n, start[i], end[i], normal);
    }
    list->n = n;
}

/* What is to be done with the events of a chunk one by one. */
struct task {
    bool count, rows, list, filtered;
};

#define AHEAD 24 /* events */

/* Rows of many files do not stay in the cache, nor do the numbers of their names. */
/* (Always inline: gcc takes a function that only prefetches for one without effect, and leaves it out.) */
static inline __attribute__((always_inline)) void fetch_ahead(const struct worker *w, const uint32_t *file_of,
                                                              uint32_t strings, const uint32_t *id)
{
    if (id[2 * AHEAD] < strings)
        __builtin_prefetch(&file_of[id[2 * AHEAD]]);
    uint32_t soon = id[AHEAD] < strings ? file_of[id[AHEAD]] : 0;
    if (soon)
        __builtin_prefetch(&w->file[soon - 1], 1);
}

/* Goes through the events of a decoded chunk. `list` is false for chunks of one set, which list_all does. */
static int go_through(struct job *j, struct worker *w, const struct mr_trace_chunk *c, uint32_t lane,
                      const struct task *todo, struct mr_run *run, uint8_t *seen, bool normal[MR_SETS])
{
    const struct mr_event_batch *b = &w->batch;
    const uint32_t *file_of = j->file_of[c->process];
    uint32_t strings = j->t->process[c->process].strings, group = j->group_of[c->process];
    uint64_t first = w->group_first[group], last = w->group_last[group];
    for (uint32_t i = 0; i < b->count; i++) {
        uint64_t start = b->c.start_ns[i], end = b->c.end_ns[i];
        uint32_t id = b->c.file[i];
        unsigned call = b->c.call[i];
        if (todo->rows && i + 2 * AHEAD < b->count)
            fetch_ahead(w, file_of, strings, b->c.file + i);
        if (start >= j->to_ns || (end <= j->from_ns && start < j->from_ns))
            continue;
        bool aside = call == MR_CALL_metadata || call == MR_CALL_counter; /* an event, but of no function */
        uint32_t file = id < strings && !aside ? file_of[id] : 0;
        if (todo->filtered && !wanted(j, group, file, start))
            continue;
        if (todo->count) { /* what reaches into the wanted part of the run is there, and counted where it starts */
            w->present[lane] = 1;
            w->group_events[group] += start >= j->from_ns;
            first = MR_MIN(first, MR_MAX(start, j->from_ns));
            last = MR_MAX(last, MR_MIN(end, j->to_ns));
        }
        if (aside)
            continue;
        uint32_t function = function_of(j, c->process, call, id);
        uint8_t klass = j->function_class[function];
        for (unsigned s = 0; todo->list && klass >> s; s++)
            if (klass & 1u << s)
                mr_run_append(run->set[s].item, &run->set[s].n, start, end, &normal[s]);
        *seen |= klass;
        if (start < j->from_ns)
            continue;
        if (todo->rows && file && j->call_on_file[call])
            count_row(&w->file[file - 1], j->call_kind[call], end - start, b->c.result[i]);
        if (!todo->count)
            continue;
        struct tally *f = tally_get(w, function);
        if (!f)
            return -ENOMEM;
        count_event(f, j->call_kind[call], end - start, b->c.result[i]);
    }
    w->group_first[group] = first;
    w->group_last[group] = last;
    return 0;
}

static int take_list(struct job *j, struct mr_intervals *v, size_t n)
{
    pthread_mutex_lock(&j->lock);
    if (j->spares)
        *v = j->spare[--j->spares];
    pthread_mutex_unlock(&j->lock);
    v->n = 0;
    if (v->cap >= n)
        return 0;
    free(v->item);
    v->cap = MR_MAX(n, (size_t)MR_BLOCK_EVENTS);
    v->item = malloc(v->cap * sizeof(*v->item));
    if (!v->item)
        v->cap = 0;
    return v->item ? 0 : -ENOMEM;
}

static void drop_list(struct job *j, struct mr_intervals *v)
{
    if (v->item && j->spares < MR_ARRAY_LEN(j->spare))
        j->spare[j->spares++] = *v;
    else
        free(v->item);
    *v = (struct mr_intervals){0};
}

/* Gives back what a list does not need, once it is complete: sparse lists would otherwise hold far more than they have.
 */
static void trim_list(struct job *j, struct mr_intervals *v)
{
    if (v->n * 4 > v->cap || !v->item)
        return;
    struct mr_intervals small = {.n = v->n, .cap = v->n, .item = v->n ? malloc(v->n * sizeof(*small.item)) : NULL};
    if (v->n && !small.item)
        return;
    if (v->n)
        memcpy(small.item, v->item, v->n * sizeof(*small.item));
    pthread_mutex_lock(&j->lock);
    drop_list(j, v);
    pthread_mutex_unlock(&j->lock);
    *v = small;
}

/* Counts a whole block by its aggregates, if it has them. Says what is left to do. */
static int by_aggregates(struct job *j, struct worker *w, const struct mr_trace_chunk *c, uint32_t lane,
                         struct task *todo, struct mr_error *err)
{
    struct visit v = {j, w};
    uint32_t group = j->group_of[c->process];
    int covers = mr_mrt_aggregates(&c->view, &visitor, &v, err);
    if (covers < 0)
        return covers;
    if (w->failed)
        return mr_error_set(err, -ENOMEM, "cannot summarise");
    if (!covers)
        return 0;
    todo->count = false;
    todo->rows = !(covers & MR_COVERS_FILES);
    todo->list = w->mixed || w->odd || (w->classes & (w->classes - 1));
    w->group_events[group] += c->count;
    w->group_first[group] = MR_MIN(w->group_first[group], c->first_ns);
    w->group_last[group] = MR_MAX(w->group_last[group], c->last_ns);
    w->present[lane] = 1;
    return 0;
}

static int work_chunk(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct job *j = ctx->user;
    struct worker *w = &j->worker[ctx->thread];
    size_t chunk = j->order[j->first_chunk + index];
    const struct mr_trace_chunk *c = &j->t->chunk[chunk];
    struct mr_run *run = &j->run[j->first_run + index];
    struct task todo = {
        .count = true, .rows = true, .list = true, .filtered = j->file_wanted || j->opt->step_from >= 0};
    bool whole = !c->imported && !todo.filtered && c->first_ns >= j->from_ns && c->last_ns < j->to_ns,
         normal[MR_SETS] = {true, true, true};
    uint8_t seen = 0;
    int rc = 0;
    w->classes = w->mixed = 0;
    w->odd = w->failed = false;
    w->process = c->process;
    if (whole)
        rc = by_aggregates(j, w, c, j->lane_of[chunk], &todo, err);
    bool one_by_one = todo.count || todo.rows || todo.list;
    if (rc == 0 && (one_by_one || w->classes))
        rc = mr_trace_read(j->t, chunk,
                           MR_WANT_TIME | (one_by_one ? MR_WANT_CALL | MR_WANT_FILE : 0) |
                               (todo.count || todo.rows ? MR_WANT_RESULT : 0),
                           &w->batch, err);
    if (rc < 0)
        return rc;
    for (unsigned s = 0; s < MR_SETS && rc == 0; s++)
        if (todo.list || w->classes & 1u << s)
            rc = take_list(j, &run->set[s], c->count);
    if (rc == 0 && one_by_one)
        rc = go_through(j, w, c, j->lane_of[chunk], &todo, run, &seen, normal);
    for (unsigned s = 0; s < MR_SETS && rc == 0 && !todo.list; s++)
        if (w->classes & 1u << s)
            list_all(&w->batch, &run->set[s], &normal[s]);
    for (unsigned s = 0; s < MR_SETS && rc == 0; s++) {
        if (!normal[s])
            mr_intervals_normalise(&run->set[s]);
        trim_list(j, &run->set[s]);
    }
    seen |= w->classes;
    w->did_io[j->lane_of[chunk]] |= seen & CLASS_P;
    w->did_compute[j->lane_of[chunk]] |= (seen & CLASS_C) != 0;
    return rc < 0 ? mr_error_set(err, rc, "cannot summarise") : 0;
}

static int work_slice(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct job *j = ctx->user;
    struct worker *w = &j->worker[ctx->thread];
    uint64_t span = j->slice_to - j->slice_from;
    uint64_t from = j->slice_from + (uint64_t)((unsigned __int128)span * index / j->slices);
    uint64_t to = j->slice_from + (uint64_t)((unsigned __int128)span * (index + 1) / j->slices);
    int rc = mr_timeline_slice(&w->timeline, j->run, j->runs, from, to, &w->all, w->group);
    return rc < 0 ? mr_error_set(err, rc, "cannot summarise") : 0;
}

static int by_group(const void *a, const void *b)
{
    const struct mr_run *x = a, *y = b;
    return x->group != y->group      ? (x->group < y->group ? -1 : 1)
           : x->last_ns < y->last_ns ? -1
                                     : x->last_ns > y->last_ns;
}

static void drop_runs(struct job *j, uint64_t before)
{
    size_t n = 0;
    for (size_t i = 0; i < j->runs; i++) {
        if (j->run[i].last_ns > before) {
            j->run[n++] = j->run[i];
            continue;
        }
        for (unsigned s = 0; s < MR_SETS; s++)
            drop_list(j, &j->run[i].set[s]);
    }
    j->runs = n;
}

/* The next chunks in time: counts them and measures up to where the ones after them start. */
static int work_round(struct job *j, const atomic_bool *stop, struct mr_error *err)
{
    uint64_t events = 0, begin = MR_MAX(j->t->chunk[j->order[j->first_chunk]].first_ns, j->from_ns);
    size_t n = 0;
    while (j->first_chunk + n < j->ordered && events < ROUND_EVENTS)
        events += j->t->chunk[j->order[j->first_chunk + n++]].count;
    if (j->runs + n > j->run_cap) {
        size_t cap = j->runs + n + 64;
        struct mr_run *bigger = realloc(j->run, cap * sizeof(*bigger));
        if (!bigger)
            return mr_error_set(err, -ENOMEM, "cannot summarise");
        j->run = bigger;
        j->run_cap = cap;
    }
    j->first_run = j->runs;
    for (size_t i = 0; i < n; i++) {
        const struct mr_trace_chunk *c = &j->t->chunk[j->order[j->first_chunk + i]];
        j->run[j->runs++] = (struct mr_run){.group = j->group_of[c->process], .last_ns = c->last_ns};
    }
    int rc = mr_workers_run(j->workers, n, 1, work_chunk, j, stop, err);
    if (rc < 0)
        return rc;
    j->first_chunk += n;
    uint64_t end = j->first_chunk < j->ordered ? j->t->chunk[j->order[j->first_chunk]].first_ns : j->to_ns;
    qsort(j->run, j->runs, sizeof(*j->run), by_group);
    j->slice_from = MR_MIN(begin, end);
    j->slice_to = MR_MIN(MR_MAX(end, begin), j->to_ns);
    j->slices = (unsigned)MR_MIN(events / SLICE_EVENTS + 1, (uint64_t)j->workers * 4);
    rc = mr_workers_run(j->workers, j->slices, 1, work_slice, j, stop, err);
    drop_runs(j, end);
    return rc;
}

static int work_all(struct job *j, const atomic_bool *stop, struct mr_error *err)
{
    int rc = 0;
    while (rc == 0 && j->first_chunk < j->ordered)
        rc = work_round(j, stop, err);
    return rc;
}

/* ---- steps ---- */

static bool is_step(const struct mr_trace_string *s)
{
    return s->len == 4 && !memcmp(s->text, "step", 4);
}

/* The step that row `a` of the arguments says its event is of; false if it is about something else, or said again by a
 * later row. */
static bool step_of(const struct mr_event_batch *b, uint32_t a, int64_t *step)
{
    const struct mr_columns *c = &b->c;
    if ((c->arg_type[a] != MR_MORE_INT && c->arg_type[a] != MR_MORE_UINT) ||
        !is_step(mr_trace_string(b->process, c->arg_key[a])))
        return false;
    for (uint32_t next = a + 1; next < b->args && c->arg_event[next] == c->arg_event[a]; next++)
        if (c->arg_key[next] == c->arg_key[a])
            return false;
    *step = (int64_t)c->arg_value[a];
    return true;
}

/* A rank's steps are its own: others may be elsewhere at the same time. Processes of no rank, and ranks that mark no
 * steps, follow all. */
static int gather_steps(struct job *j, struct mr_error *err)
{
    if (j->opt->step_from < 0)
        return 0;
    struct mr_event_batch b = {0};
    bool *has = calloc(j->groups + 1, sizeof(*has));
    int rc = 0;
    j->steps = calloc(j->groups + 1, sizeof(*j->steps));
    if (!has || !j->steps)
        rc = mr_error_set(err, -ENOMEM, "cannot find the steps");
    for (size_t i = 0; i < j->t->chunks && rc == 0; i++) {
        if (!j->t->chunk[i].args)
            continue;
        uint32_t group = j->group_of[j->t->chunk[i].process];
        rc = mr_trace_read(j->t, i, MR_WANT_TIME | MR_WANT_ARGS, &b, err);
        for (uint32_t a = 0; a < b.args && rc == 0; a++) {
            uint32_t e = b.c.arg_event[a];
            int64_t step;
            if (!step_of(&b, a, &step))
                continue;
            has[group] = true;
            if (step >= j->opt->step_from && step <= j->opt->step_to &&
                (mr_intervals_add(&j->steps[group], b.c.start_ns[e], b.c.end_ns[e]) < 0 ||
                 mr_intervals_add(&j->steps[j->groups], b.c.start_ns[e], b.c.end_ns[e]) < 0))
                rc = mr_error_set(err, -ENOMEM, "cannot find the steps");
        }
    }
    mr_event_batch_done(&b);
    for (uint32_t g = 0; rc == 0 && g <= j->groups; g++)
        mr_intervals_normalise(&j->steps[g]);
    for (uint32_t g = 0; rc == 0 && g < j->groups; g++)
        if (!has[g])
            j->steps[g] = j->steps[j->groups]; /* shares its list */
    free(has);
    return rc;
}

/* ---- adding up ---- */

static int by_size(const void *a, const void *b)
{
    const struct size_count *x = a, *y = b;
    return x->size < y->size ? -1 : x->size > y->size;
}

/* The value at a place counted from 0. */
static uint64_t size_at(const struct size_count *s, size_t n, uint64_t place)
{
    uint64_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        seen += s[i].count;
        if (seen > place)
            return s[i].size;
    }
    return 0;
}

/* Between two values it is interpolated, as NumPy, pandas and with them DFTracer's analyser do. */
static double exact_quantile(const struct size_count *s, size_t n, uint64_t total, double q)
{
    double place = q * (double)(total - 1);
    uint64_t below = (uint64_t)place;
    double low = (double)size_at(s, n, below), high = below + 1 < total ? (double)size_at(s, n, below + 1) : low;
    return low + (high - low) * (place - (double)below);
}

/* Exact quantiles while the different sizes are few; from the histogram (within 3.2 %) otherwise. */
static int finish_sizes(struct job *j, struct mr_function *f, uint32_t index)
{
    size_t n = 0, m = 0, room = 1;
    bool spilled = false;
    for (unsigned k = 0; k < j->workers; k++)
        room += j->worker[k].tally[index].used;
    struct size_count *s = malloc(room * sizeof(*s));
    if (!s)
        return -ENOMEM;
    for (unsigned k = 0; k < j->workers; k++) {
        const struct tally *t = &j->worker[k].tally[index];
        for (uint32_t i = 0; i < t->slots; i++)
            if (t->sizes[i].count)
                s[n++] = t->sizes[i];
        spilled |= t->spilled;
    }
    qsort(s, n, sizeof(*s), by_size);
    for (size_t i = 0; i < n; i++) {
        if (m && s[m - 1].size == s[i].size)
            s[m - 1].count += s[i].count;
        else
            s[m++] = s[i];
    }
    f->sizes = j->size.count;
    f->size_min = j->size.min;
    f->size_max = j->size.max;
    f->sizes_exact = !spilled;
    double *const to[] = {&f->size_25, &f->size_median, &f->size_75};
    for (unsigned q = 0; q < 3 && f->sizes; q++)
        *to[q] =
            spilled ? mr_histogram_between(&j->size, 0.25 * (q + 1)) : exact_quantile(s, m, f->sizes, 0.25 * (q + 1));
    free(s);
    return 0;
}

/* Adds up the durations of a function: exact counts beside the buckets, as if every value had been added. */
static void finish_durations(struct job *j, struct mr_function *f, uint32_t index)
{
    struct mr_histogram *h = &j->dur;
    mr_histogram_init(h);
    h->count = f->count;
    h->min = UINT64_MAX;
    for (unsigned k = 0; k < j->workers; k++) {
        const struct tally *t = &j->worker[k].tally[index];
        if (!t->count)
            continue;
        put_buckets(h, t);
        h->min = MR_MIN(h->min, t->dur_min);
        h->max = MR_MAX(h->max, t->dur_max);
    }
    f->dur_min = h->min;
    uint64_t *const to[] = {&f->dur_25, &f->dur_median, &f->dur_75, &f->dur_99};
    static const double at[] = {0.25, 0.5, 0.75, 0.99};
    for (unsigned q = 0; q < MR_ARRAY_LEN(at); q++) {
        double ns = mr_histogram_between(h, at[q]);
        *to[q] = ns < (double)h->max ? (uint64_t)(ns + 0.5) : h->max;
    }
    f->dur_max = h->max;
}

static void add_sizes(struct job *j, struct tally *t)
{
    if (t->size)
        mr_histogram_merge(&j->size, t->size);
    for (uint32_t i = 0; i < t->slots; i++)
        if (t->sizes[i].count) {
            mr_histogram_add_n(&j->size, t->sizes[i].size, t->sizes[i].count);
            t->bin[mr_tally_bin(t->sizes[i].size)] += t->sizes[i].count;
        }
}

/* Whether filters cut through processes: calls that sampling left out have no time and no file, so nobody knows how
 * many would be left. */
static bool is_cut(const struct job *j)
{
    return j->file_wanted || j->opt->step_from >= 0 || j->opt->from_ns || j->opt->to_ns;
}

static void count_sampled_out(const struct job *j, struct mr_summary *s)
{
    for (size_t p = 0; p < j->t->processes; p++)
        for (unsigned c = 0; j->t->process[p].skipped && rank_wanted(j, &j->t->process[p]) && c < MR_CALL_COUNT; c++)
            s->sampled_out += j->t->process[p].skipped[c];
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
    if (j->size.count || j->size.max)
        mr_histogram_init(&j->size);
    for (unsigned k = 0; k < j->workers; k++) {
        struct tally *t = &j->worker[k].tally[index];
        if (t->failed)
            return -ENOMEM;
        f.errors += t->errors;
        f.dur_ns += t->dur_ns;
        f.bytes += t->bytes;
        add_sizes(j, t);
        for (unsigned b = 0; b < MR_TALLY_BINS && io; b++)
            s->size_bins[b] += t->bin[b];
    }
    for (size_t p = 0; f.call && !is_cut(j) && p < j->t->processes; p++)
        if (j->t->process[p].skipped && rank_wanted(j, &j->t->process[p]))
            f.skipped += j->t->process[p].skipped[f.call];
    finish_durations(j, &f, index);
    int rc = finish_sizes(j, &f, index);
    if (io && f.sizes) { /* totals are those of POSIX: layers above it would count the same bytes again */
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
    if (x->calls != y->calls)
        return x->calls > y->calls ? -1 : 1;
    int order = memcmp(x->path, y->path, MR_MIN(x->path_len, y->path_len));
    return order ? order : (x->path_len > y->path_len) - (x->path_len < y->path_len);
}

static void sort_files(struct mr_summary *s, size_t top)
{
    qsort(s->file, s->file_rows, sizeof(*s->file), by_bytes);
    s->file_rows = MR_MIN(s->file_rows, top);
}

/* Of a million files ten are listed: rows are gathered, sorted when there are twice as many as asked for, and then only
 * better ones are. */
static int finish_files(struct job *j, struct mr_summary *s)
{
    size_t top = j->opt->top_files ? MR_MIN(j->opt->top_files, j->files) : j->files, room = MR_MIN(2 * top, j->files);
    const struct mr_file_row *worst = NULL; /* of the best ones, once there are enough */
    s->file = mr_arena_alloc(&s->arena, (room + 1) * sizeof(*s->file));
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
        if (!r.calls)
            continue;
        s->files++;
        if (worst && by_bytes(&r, worst) > 0)
            continue;
        if (s->file_rows == room) {
            sort_files(s, top);
            worst = &s->file[top - 1];
        }
        s->file[s->file_rows++] = r;
    }
    sort_files(s, top);
    return 0;
}

struct pair {
    uint32_t node, pid, again;
};

static int by_pair(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    return x->again < y->again ? -1 : x->again > y->again;
}

static bool is_present(const struct job *j, size_t chunk)
{
    bool there = !is_cut(j);
    for (unsigned k = 0; k < j->workers && !there; k++)
        there = j->worker[k].present[j->lane_of[chunk]] != 0;
    return there;
}

/* Processes are counted by machine and pid: an exec'd image is the same process. Where filters cut, those count that
 * have something left. */
static int count_processes(struct job *j, struct mr_summary *s)
{
    struct pair *p = malloc((j->t->processes + 1) * sizeof(*p));
    bool *there = calloc(j->t->processes + 1, sizeof(*there));
    size_t n = 0;
    if (!p || !there) {
        free(p);
        free(there);
        return -ENOMEM;
    }
    for (size_t i = 0; i < j->t->chunks && is_cut(j); i++)
        if (rank_wanted(j, &j->t->process[j->t->chunk[i].process]))
            there[j->t->chunk[i].process] |= is_present(j, i);
    for (size_t i = 0; i < j->t->processes; i++)
        if (rank_wanted(j, &j->t->process[i]) && (there[i] || !is_cut(j)))
            p[n++] = (struct pair){j->t->process[i].node, j->t->process[i].pid, j->t->process[i].again};
    free(there);
    qsort(p, n, sizeof(*p), by_pair);
    for (size_t i = 0; i < n; i++) {
        s->processes += !i || by_pair(&p[i], &p[i - 1]);
        s->nodes += !i || p[i].node != p[i - 1].node;
    }
    free(p);
    return 0;
}

static void add_split(struct mr_time_split *to, const struct mr_time_split *from)
{
    for (unsigned n = 0; n < MR_SETS; n++)
        to->ns[n] += from->ns[n];
    to->a_and_c += from->a_and_c;
    to->p_and_c += from->p_and_c;
}

/* Rows of ranks, and the whole. */
static int finish_times(struct job *j, struct mr_summary *s)
{
    uint64_t first = UINT64_MAX, last = 0;
    struct mr_time_split all = {0};
    s->rank = mr_arena_alloc(&s->arena, (j->groups + 1) * sizeof(*s->rank));
    if (!s->rank)
        return -ENOMEM;
    for (uint32_t g = 0; g < j->groups; g++) {
        struct mr_rank_row *r = &s->rank[s->ranks];
        uint64_t from = UINT64_MAX, to = 0;
        *r = (struct mr_rank_row){.rank = j->group_rank[g]};
        for (unsigned k = 0; k < j->workers; k++) {
            const struct worker *w = &j->worker[k];
            r->events += w->group_events[g];
            from = MR_MIN(from, w->group_first[g]);
            to = MR_MAX(to, w->group_last[g]);
            add_split(&r->time, &w->group[g]);
        }
        r->total_ns = to > from ? to - from : 0;
        first = MR_MIN(first, from);
        last = MR_MAX(last, to);
        s->events += r->events;
        s->ranks += r->events != 0;
    }
    for (unsigned k = 0; k < j->workers; k++)
        add_split(&all, &j->worker[k].all);
    s->total_ns = last > first ? last - first : 0;
    s->app_io_ns = all.ns[MR_SET_A];
    s->compute_ns = all.ns[MR_SET_C];
    s->io_ns = all.ns[MR_SET_P];
    s->app_io_only_ns = s->app_io_ns - all.a_and_c;
    s->compute_only_app_ns = s->compute_ns - all.a_and_c;
    s->io_only_ns = s->io_ns - all.p_and_c;
    s->compute_only_ns = s->compute_ns - all.p_and_c;
    return 0;
}

struct thread {
    uint32_t node, pid, again, tid;
    bool io, compute, there;
};

static int by_thread(const void *a, const void *b)
{
    const struct thread *x = a, *y = b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    if (x->again != y->again)
        return x->again < y->again ? -1 : 1;
    return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* Threads are counted by machine, pid and tid: a process may have several images, by exec or because its page faults
 * were watched. */
static int count_threads(const struct job *j, struct mr_summary *s)
{
    struct thread *t = calloc((size_t)j->lanes + 1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    for (size_t i = 0; i < j->t->chunks; i++) {
        const struct mr_trace_process *p = &j->t->process[j->t->chunk[i].process];
        uint32_t l = j->lane_of[i];
        if (!rank_wanted(j, p))
            continue;
        t[l] = (struct thread){
            .node = p->node, .pid = p->pid, .again = p->again, .tid = j->t->chunk[i].tid, .there = is_present(j, i)};
        for (unsigned k = 0; k < j->workers; k++) {
            t[l].io |= j->worker[k].did_io[l] != 0;
            t[l].compute |= j->worker[k].did_compute[l] != 0;
        }
    }
    qsort(t, j->lanes, sizeof(*t), by_thread);
    for (uint32_t i = 0; i < j->lanes; i++) {
        bool next = i + 1 < j->lanes && by_thread(&t[i], &t[i + 1]) == 0;
        if (next) { /* one thread: what it did is passed on */
            t[i + 1].io |= t[i].io;
            t[i + 1].compute |= t[i].compute;
            t[i + 1].there |= t[i].there;
            continue;
        }
        s->threads += t[i].there;
        s->io_threads += t[i].io;
        s->compute_threads += t[i].compute;
    }
    free(t);
    return 0;
}

static int finish_all(struct job *j, struct mr_summary *s)
{
    s->function = mr_arena_alloc(&s->arena, (j->functions + 1) * sizeof(*s->function));
    int rc = s->function ? count_processes(j, s) : -ENOMEM;
    for (uint32_t i = 0; i < j->functions && rc == 0; i++)
        rc = finish_function(j, s, i);
    rc = rc ? rc : finish_files(j, s);
    rc = rc ? rc : finish_times(j, s);
    if (rc < 0)
        return rc;
    qsort(s->function, s->functions, sizeof(*s->function), by_time);
    if (count_threads(j, s) < 0)
        return -ENOMEM;
    count_sampled_out(j, s);
    s->lost = j->t->lost;
    s->skipped_bytes = j->t->skipped_bytes;
    s->skipped_lines = j->t->skipped_lines;
    s->gone = j->t->gone;
    return 0;
}

/* Zeroed memory that is looked at in no order: large pages spare most of the address translation. */
static void *table_alloc(size_t n)
{
    const size_t large = 2 * MR_MIB;
    if (n < 4 * large)
        return calloc(1, n);
    n = MR_ALIGN_UP(n, large);
    void *p = aligned_alloc(large, n);
    if (p) {
        madvise(p, n, MADV_HUGEPAGE);
        memset(p, 0, n);
    }
    return p;
}

static int make_workers(struct job *j)
{
    j->worker = calloc(j->workers, sizeof(*j->worker));
    for (unsigned k = 0; j->worker && k < j->workers; k++) {
        struct worker *w = &j->worker[k];
        w->tally = calloc(j->functions + 1, sizeof(*w->tally));
        w->file = table_alloc((j->files + 1) * sizeof(*w->file));
        w->group = calloc(j->groups + 1, sizeof(*w->group));
        w->group_events = calloc(j->groups + 1, sizeof(*w->group_events));
        w->group_first = malloc((j->groups + 1) * sizeof(*w->group_first));
        w->group_last = calloc(j->groups + 1, sizeof(*w->group_last));
        w->did_io = calloc(j->lanes + 1, 1);
        w->did_compute = calloc(j->lanes + 1, 1);
        w->present = calloc(j->lanes + 1, 1);
        if (!w->tally || !w->file || !w->group || !w->group_events || !w->group_first || !w->group_last || !w->did_io ||
            !w->did_compute || !w->present)
            return -ENOMEM;
        for (uint32_t g = 0; g < j->groups; g++)
            w->group_first[g] = UINT64_MAX;
    }
    return j->worker ? 0 : -ENOMEM;
}

static void worker_done(struct job *j, struct worker *w)
{
    for (size_t i = 0; w->tally && i < j->functions; i++) {
        free(w->tally[i].dur);
        free(w->tally[i].size);
        free(w->tally[i].sizes);
    }
    mr_timeline_done(&w->timeline);
    mr_event_batch_done(&w->batch);
    free(w->tally);
    free(w->file);
    free(w->group);
    free(w->group_events);
    free(w->group_first);
    free(w->group_last);
    free(w->did_io);
    free(w->did_compute);
    free(w->present);
}

static void job_done(struct job *j)
{
    for (unsigned k = 0; j->worker && k < j->workers; k++)
        worker_done(j, &j->worker[k]);
    drop_runs(j, UINT64_MAX);
    while (j->spares)
        free(j->spare[--j->spares].item);
    for (size_t p = 0; j->owner && p < j->t->processes; p++)
        if (j->owner[p] == p) {
            free(j->site_of[p]);
            free(j->file_of[p]);
        }
    free(j->owner);
    for (uint32_t g = 0; j->steps && g <= j->groups; g++)
        if (g == j->groups || j->steps[g].item != j->steps[j->groups].item)
            mr_intervals_done(&j->steps[g]);
    free(j->steps);
    pthread_mutex_destroy(&j->lock);
    free(j->worker);
    free(j->site_of);
    free(j->file_of);
    free(j->function);
    free(j->function_class);
    free(j->file);
    free(j->file_wanted);
    free(j->key);
    free(j->value);
    free(j->run);
    free(j->order);
    free(j->group_of);
    free(j->group_rank);
    free(j->lane_of);
}

int mr_summarise(const struct mr_trace *t, const struct mr_summary_options *opt, const atomic_bool *stop,
                 struct mr_summary **out, struct mr_error *err)
{
    struct mr_summary *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot summarise");
    struct job j = {.t = t, .opt = opt, .arena = &s->arena};
    j.workers = opt->threads ? opt->threads : mr_cpus_available();
    j.from_ns = t->first_ns + opt->from_ns;
    j.to_ns = opt->to_ns ? MR_MIN(t->last_ns + 1, t->first_ns + opt->to_ns) : t->last_ns + 1;
    pthread_mutex_init(&j.lock, NULL);
    int rc = gather_names(&j);
    rc = rc ? rc : choose_files(&j);
    rc = rc ? rc : make_groups(&j);
    rc = rc ? rc : order_chunks(&j);
    rc = rc ? rc : make_workers(&j);
    if (rc < 0)
        rc = mr_error_set(err, rc, "cannot summarise");
    rc = rc ? rc : gather_steps(&j, err);
    if (rc == 0 && j.from_ns < j.to_ns)
        rc = work_all(&j, stop, err);
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
