/* The summary against a recount by the simplest means: every nanosecond of a short virtual run is a byte with one bit
 * per set, every event is looked at. Two worlds: many sizes, files and sites (blocks without complete aggregates), and
 * few (blocks that are not decoded).
 *
 * test-label: concurrent */
#include "amount.h"
#include "analyze/summary.h"
#include "base/common.h"
#include "base/rng.h"
#include "event/mrt_sink.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define WORLD 3u
#define EVENTS 80000u
#define SPAN 400000u

enum what { WHAT_READ, WHAT_WRITE, WHAT_OPEN, WHAT_COMPUTE, WHAT_FETCH, WHAT_OTHER, WHATS };

struct one {
    uint32_t rank, tid, file, step;
    enum what what;
    uint64_t start, end;
    int64_t result;
};

struct world {
    struct one *e;
    struct mr_trace *t;
    char path[32];
};

/* Some files are pipes: calls on them count as calls, but not as I/O. */
static bool is_pipe(uint32_t file)
{
    return file % 5 == 4;
}

static void name_of(uint32_t file, char name[32])
{
    snprintf(name, 32, is_pipe(file) ? "pipe:[%u]" : "/data/%u", file);
}

static uint64_t draw(uint64_t *at, uint64_t below)
{
    return mr_rng_at(3, MR_RNG_TEST, (*at)++) % below;
}

/* Rank 0 makes most events, so that it has several blocks. Ends are in order within a thread, as a tracer has them;
 * regions nest. */
static void make_events(struct one *e, bool varied)
{
    uint64_t seed = varied ? 1 : 1000000, clock[WORLD][2] = {{0}};
    for (uint32_t i = 0; i < EVENTS; i++) {
        uint32_t rank = (uint32_t)(draw(&seed, 10) < 8 ? 0 : 1 + draw(&seed, 2)), tid = (uint32_t)draw(&seed, 2);
        uint64_t end = clock[rank][tid] + 1 + draw(&seed, 10), dur = draw(&seed, 30);
        e[i] = (struct one){.rank = rank,
                            .tid = tid,
                            .what = (enum what)draw(&seed, WHATS),
                            .end = end,
                            .start = end > dur ? end - dur : 0,
                            .file = (uint32_t)draw(&seed, varied ? 400 : 20),
                            .step = (uint32_t)(end / 1000)};
        e[i].result = draw(&seed, 50) ? (int64_t)(varied ? 50 + draw(&seed, 6000) : 4096 * draw(&seed, 3)) : -5;
        clock[rank][tid] = end;
        assert_true(end < SPAN);
    }
}

/* What a simulator may do: events in any order. */
static void shuffle(struct one *e)
{
    uint64_t seed = 77;
    for (uint32_t i = EVENTS - 1; i; i--) {
        uint32_t k = (uint32_t)draw(&seed, i + 1);
        struct one t = e[i];
        e[i] = e[k];
        e[k] = t;
    }
}

static void setup(struct world *w, bool varied, bool shuffled)
{
    static const uint16_t kind[WHATS] = {MR_EV_READ, MR_EV_WRITE, MR_EV_OPEN, MR_EV_REGION, MR_EV_REGION, MR_EV_REGION};
    struct mr_mrt_sink *sink;
    struct mr_error err;
    w->e = calloc(EVENTS, sizeof(*w->e));
    snprintf(w->path, sizeof(w->path), "/tmp/mr-summary-XXXXXX");
    close(mkstemp(w->path));
    make_events(w->e, varied);
    if (shuffled)
        shuffle(w->e);
    assert_int_equal(
        mr_mrt_sink_open_sim(w->path, &(struct mr_mrt_sim){.world = WORLD, .program = "test"}, &sink, &err), 0);
    struct mr_event_sink *s = mr_mrt_sink_get(sink);
    uint32_t key = mr_mrt_sink_key(sink, "step");
    for (uint32_t i = 0; i < EVENTS; i++) {
        const struct one *o = &w->e[i];
        char name[32];
        struct mr_event e = {.kind = kind[o->what],
                             .rank = o->rank,
                             .tid = o->tid,
                             .start_ns = o->start,
                             .dur_ns = o->end - o->start,
                             .offset = UINT64_MAX,
                             .result = o->what < WHAT_COMPUTE ? o->result : 0};
        name_of(o->file, name);
        if (o->what < WHAT_COMPUTE)
            e.path_id = s->intern(s, name);
        else if (o->what == WHAT_OTHER && varied) /* more functions than a block can tell */
            e.path_id = mr_mrt_sink_site(sink, "misc", name);
        else
            e.path_id = mr_mrt_sink_site(sink,
                                         o->what == WHAT_COMPUTE ? "compute"
                                         : o->what == WHAT_FETCH ? "loader"
                                                                 : "misc",
                                         "x");
        if (o->what == WHAT_COMPUTE)
            mr_mrt_sink_emit_args(sink, &e, &(struct mr_mrt_arg){.key = key, .value = o->step}, 1);
        else
            s->emit(s, &e);
    }
    assert_int_equal(mr_mrt_sink_close(sink, &err), 0);
    assert_int_equal(mr_trace_create(&w->t, &err), 0);
    assert_int_equal(mr_trace_add(w->t, w->path, &err), 0);
    assert_int_equal(mr_trace_finish(w->t, &err), 0);
    assert_int_equal(w->t->events, EVENTS);
}

static void teardown(struct world *w)
{
    mr_trace_free(w->t);
    unlink(w->path);
    free(w->e);
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

struct recount {
    uint64_t events, count[WHATS], errors[WHATS], bytes[WHATS], dur[WHATS], shortest[WHATS], longest[WHATS], first,
        last, bins[MR_TALLY_BINS];
    uint64_t p, a, c, ac, pc, file_calls[400], file_read[400];
    int64_t *sizes;
    size_t n;
};

/* A rank's steps are its own. */
static bool in_steps(const uint8_t *step, const struct mr_summary_options *o, const struct one *e)
{
    return o->step_from < 0 || step[(size_t)e->rank * SPAN + e->start];
}

/* rank -1: all. */
static void recount(const struct world *w, const struct mr_summary_options *o, int64_t rank, struct recount *r)
{
    uint8_t *bits = calloc(SPAN, 1), *step = calloc((size_t)WORLD * SPAN, 1);
    uint64_t base = w->t->first_ns, from = base + o->from_ns, to = o->to_ns ? base + o->to_ns : SPAN;
    memset(r, 0, offsetof(struct recount, sizes));
    r->n = 0;
    r->first = UINT64_MAX;
    for (uint32_t i = 0; i < EVENTS; i++)
        for (uint64_t t = w->e[i].start; w->e[i].what == WHAT_COMPUTE && t < w->e[i].end; t++)
            if (w->e[i].step >= (uint64_t)o->step_from && w->e[i].step <= (uint64_t)o->step_to)
                step[(size_t)w->e[i].rank * SPAN + t] = 1;
    for (uint32_t i = 0; i < EVENTS; i++) {
        const struct one *e = &w->e[i];
        char name[32];
        name_of(e->file, name);
        if ((rank >= 0 && e->rank != rank) || (o->rank >= 0 && e->rank != o->rank) ||
            (*o->path && (e->what >= WHAT_COMPUTE || strcmp(o->path, name))) || !in_steps(step, o, e))
            continue;
        for (uint64_t t = MR_MAX(e->start, from); t < MR_MIN(e->end, to); t++)
            bits[t] |= e->what < WHAT_COMPUTE    ? !is_pipe(e->file)
                       : e->what == WHAT_FETCH   ? 2
                       : e->what == WHAT_COMPUTE ? 4
                                                 : 0;
        if (e->start >= to || (e->start < from && e->end <= from))
            continue;
        r->first = MR_MIN(r->first, MR_MAX(e->start, from)); /* of the part that is looked at */
        r->last = MR_MAX(r->last, MR_MIN(e->end, to));
        if (e->start < from)
            continue;
        r->events++;
        r->count[e->what]++;
        r->dur[e->what] += e->end - e->start;
        r->shortest[e->what] = MR_MIN(r->count[e->what] == 1 ? UINT64_MAX : r->shortest[e->what], e->end - e->start);
        r->longest[e->what] = MR_MAX(r->longest[e->what], e->end - e->start);
        if (e->what >= WHAT_COMPUTE)
            continue;
        r->file_calls[e->file]++;
        if (e->result < 0) {
            r->errors[e->what]++;
        } else if (e->what != WHAT_OPEN) {
            r->bytes[e->what] += (uint64_t)e->result;
            r->bins[mr_tally_bin((uint64_t)e->result)]++;
            r->file_read[e->file] += e->what == WHAT_READ ? (uint64_t)e->result : 0;
            if (e->what == WHAT_READ)
                r->sizes[r->n++] = e->result;
        }
    }
    for (uint32_t t = 0; t < SPAN; t++) {
        r->p += bits[t] & 1;
        r->a += (bits[t] & 2) != 0;
        r->c += (bits[t] & 4) != 0;
        r->ac += (bits[t] & 6) == 6;
        r->pc += (bits[t] & 5) == 5;
    }
    qsort(r->sizes, r->n, sizeof(*r->sizes), by_value);
    free(bits);
    free(step);
}

static const struct mr_function *find(const struct mr_summary *s, const char *name)
{
    for (size_t i = 0; i < s->functions; i++)
        if (!strcmp(s->function[i].name, name))
            return &s->function[i];
    return NULL;
}

static void check_function(const struct mr_summary *s, const char *name, const struct recount *r, enum what what)
{
    const struct mr_function *f = find(s, name);
    assert_true(!f == !r->count[what]);
    if (!f)
        return;
    assert_int_equal(f->count, r->count[what]);
    assert_int_equal(f->errors, r->errors[what]);
    assert_int_equal(f->bytes, r->bytes[what]);
    assert_int_equal(f->dur_ns, r->dur[what]);
    assert_int_equal(f->dur_min, r->shortest[what]);
    assert_int_equal(f->dur_max, r->longest[what]);
    assert_true(f->dur_min <= f->dur_25 && f->dur_25 <= f->dur_median && f->dur_median <= f->dur_75 &&
                f->dur_75 <= f->dur_99 && f->dur_99 <= f->dur_max);
}

/* Exact, or within a bucket where the summary says so. */
static void check_quantile(const struct mr_function *f, double have, const struct recount *r, double q)
{
    double place = q * (double)(r->n - 1), want = (double)r->sizes[(size_t)place];
    size_t next = (size_t)place + 1 < r->n ? (size_t)place + 1 : r->n - 1;
    if (f->sizes_exact) /* interpolated between two sizes */
        assert_true(have == want + ((double)r->sizes[next] - want) * (place - (double)(size_t)place));
    else
        assert_true(have >= want * (1 - 1.0 / 32) - 1 && have <= want * (1 + 1.0 / 32) + 1);
}

static void check_sizes(const struct mr_summary *s, const struct recount *r)
{
    const struct mr_function *f = find(s, "pread");
    for (unsigned b = 0; b < MR_TALLY_BINS; b++)
        assert_int_equal(s->size_bins[b], r->bins[b]);
    if (!f || !r->n)
        return;
    assert_int_equal(f->sizes, r->n);
    assert_int_equal(f->size_min, r->sizes[0]);
    assert_int_equal(f->size_max, r->sizes[r->n - 1]);
    check_quantile(f, f->size_25, r, 0.25);
    check_quantile(f, f->size_median, r, 0.5);
    check_quantile(f, f->size_75, r, 0.75);
}

static void check_files(const struct mr_summary *s, const struct recount *r)
{
    uint64_t files = 0;
    for (unsigned i = 0; i < 400; i++)
        files += r->file_calls[i] != 0;
    assert_int_equal(s->files, files);
    for (size_t i = 0; i < s->file_rows; i++) {
        unsigned file;
        char name[32];
        snprintf(name, sizeof(name), "%.*s", (int)s->file[i].path_len, s->file[i].path);
        assert_true(sscanf(name, "/data/%u", &file) == 1 || sscanf(name, "pipe:[%u]", &file) == 1);
        assert_int_equal(s->file[i].calls, r->file_calls[file]);
        assert_int_equal(s->file[i].read_bytes, r->file_read[file]);
    }
}

/* Fewer rows are the first of all rows. */
static void check_top_files(const struct world *w, struct mr_summary_options o, const struct mr_summary *all)
{
    static const size_t tops[] = {1, 7, 60, 1000};
    for (size_t k = 0; k < MR_ARRAY_LEN(tops); k++) {
        struct mr_summary *s;
        struct mr_error err;
        o.top_files = tops[k];
        assert_int_equal(mr_summarise(w->t, &o, NULL, &s, &err), 0);
        assert_int_equal(s->files, all->files);
        assert_int_equal(s->file_rows, MR_MIN(tops[k], all->file_rows));
        for (size_t i = 0; i < s->file_rows; i++) {
            assert_ptr_equal(s->file[i].path, all->file[i].path);
            assert_int_equal(s->file[i].calls, all->file[i].calls);
            assert_int_equal(s->file[i].dur_ns, all->file[i].dur_ns);
        }
        mr_summary_free(s);
    }
    for (size_t i = 1; i < all->file_rows; i++)
        assert_true(all->file[i - 1].read_bytes + all->file[i - 1].written_bytes >=
                    all->file[i].read_bytes + all->file[i].written_bytes);
}

static void check(const struct world *w, struct mr_summary_options o, bool varied)
{
    struct recount r = {.sizes = calloc(EVENTS, sizeof(*r.sizes))};
    struct mr_summary *s;
    struct mr_error err;
    o.path = o.path ? o.path : "";
    assert_int_equal(mr_summarise(w->t, &o, NULL, &s, &err), 0);
    recount(w, &o, -1, &r);
    assert_int_equal(s->events, r.events);
    assert_int_equal(s->io_ns, r.p);
    assert_int_equal(s->app_io_ns, r.a);
    assert_int_equal(s->compute_ns, r.c);
    assert_int_equal(s->io_only_ns, r.p - r.pc);
    assert_int_equal(s->app_io_only_ns, r.a - r.ac);
    assert_int_equal(s->compute_only_ns, r.c - r.pc);
    assert_int_equal(s->total_ns, r.last > r.first ? r.last - r.first : 0);
    assert_true(s->io_ns <= s->total_ns && s->app_io_ns <= s->total_ns && s->compute_ns <= s->total_ns);
    check_function(s, "pread", &r, WHAT_READ);
    check_function(s, "pwrite", &r, WHAT_WRITE);
    check_function(s, "open", &r, WHAT_OPEN);
    if (!varied && *o.path == 0)
        assert_int_equal(s->functions, 6);
    check_sizes(s, &r);
    check_files(s, &r);
    check_top_files(w, o, s);
    size_t rows = 0;
    for (int32_t rank = 0; rank < (int32_t)WORLD; rank++) {
        recount(w, &o, rank, &r);
        if (!r.events)
            continue;
        assert_true(rows < s->ranks);
        const struct mr_rank_row *row = &s->rank[rows++];
        assert_int_equal(row->rank, rank);
        assert_int_equal(row->events, r.events);
        assert_int_equal(row->total_ns, r.last - r.first);
        assert_int_equal(row->time.ns[MR_SET_P], r.p);
        assert_int_equal(row->time.ns[MR_SET_A], r.a);
        assert_int_equal(row->time.ns[MR_SET_C], r.c);
        assert_int_equal(row->time.a_and_c, r.ac);
        assert_int_equal(row->time.p_and_c, r.pc);
    }
    assert_int_equal(s->ranks, rows);
    mr_summary_free(s);
    free(r.sizes);
}

static void check_world(bool varied, bool shuffled)
{
    static const struct mr_summary_options filters[] = {
        {.threads = 1, .rank = -1, .step_from = -1},
        {.threads = 3, .rank = -1, .step_from = -1},
        {.threads = 2, .rank = 1, .step_from = -1},
        {.threads = 2, .rank = -1, .step_from = -1, .from_ns = 30001, .to_ns = 90000},
        {.threads = 2, .rank = -1, .step_from = 20, .step_to = 31},
        {.threads = 2, .rank = -1, .step_from = -1, .path = "/data/7"},
    };
    struct world w;
    setup(&w, varied, shuffled);
    if (mr_test_stride(2) == 1) /* else the rest: those with several threads */
        check(&w, filters[0], varied);
    for (size_t i = 1; i < MR_ARRAY_LEN(filters); i += mr_test_stride(2))
        check(&w, filters[i], varied);
    teardown(&w);
}

static void summary_of_blocks_that_tell_all_equals_recount(void **state)
{
    (void)state;
    check_world(false, false);
}

static void summary_of_blocks_that_must_be_decoded_equals_recount(void **state)
{
    (void)state;
    check_world(true, false);
}

static void summary_of_events_in_any_order_equals_recount(void **state)
{
    (void)state;
    check_world(false, true);
}

/* Processes of one number on one machine: those that came after one that had exited are others, and so are their
 * threads. */
static void numbers_that_come_again(void **state)
{
    struct mr_trace *t;
    struct mr_summary *s;
    struct mr_error err;
    char path[2][32];
    (void)state;
    assert_int_equal(mr_trace_create(&t, &err), 0);
    for (int i = 0; i < 2; i++) {
        struct mr_mrt_sink *sink;
        snprintf(path[i], sizeof(path[i]), "/tmp/mr-summary-XXXXXX");
        close(mkstemp(path[i]));
        assert_int_equal(
            mr_mrt_sink_open_sim(path[i], &(struct mr_mrt_sim){.world = 1, .program = "test"}, &sink, &err), 0);
        struct mr_event_sink *to = mr_mrt_sink_get(sink);
        for (uint32_t k = 0; k < 3; k++)
            to->emit(to, &(struct mr_event){.kind = MR_EV_READ,
                                            .tid = 1 + k % 2,
                                            .start_ns = 10 * k,
                                            .dur_ns = 5,
                                            .offset = UINT64_MAX,
                                            .result = 1});
        assert_int_equal(mr_mrt_sink_close(sink, &err), 0);
        assert_int_equal(mr_trace_add(t, path[i], &err), 0);
        unlink(path[i]);
    }
    assert_int_equal(mr_trace_finish(t, &err), 0);
    assert_int_equal(mr_summarise(t, &(struct mr_summary_options){.rank = -1, .step_from = -1}, NULL, &s, &err), 0);
    assert_int_equal(s->nodes, 1);
    assert_int_equal(s->processes, 2);
    assert_int_equal(s->threads, 4);
    assert_int_equal(s->events, 6);
    mr_summary_free(s);
    mr_trace_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(summary_of_blocks_that_tell_all_equals_recount),
                                       cmocka_unit_test(summary_of_blocks_that_must_be_decoded_equals_recount),
                                       cmocka_unit_test(numbers_that_come_again),
                                       cmocka_unit_test(summary_of_events_in_any_order_equals_recount)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
