/* The fetch seam: plans merge what is better read together and nothing else, the bytes are those of the ranges whatever
 * was merged, cut or read in blocks, directly and queued; open files stay open and held ones are never closed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "dataset/fetch.h"
#include "event/event.h"
#include "loader_fixture.h"

#include <sys/stat.h>

static struct mr_dataset *set; /* "chunked": 3 files of 10 samples, each in seven chunks */
static struct mr_store *store; /* counts its calls */
static uint8_t *content;       /* of file 0 */
static uint64_t content_bytes;
static _Atomic uint64_t reads, opens;

static uint32_t intern(struct mr_event_sink *s, const char *path)
{
    (void)s;
    return strstr(path, ".hdf5") || strstr(path, ".h5") ? 2 : 1;
}

static void count(struct mr_event_sink *s, const struct mr_event *e)
{
    (void)s;
    reads += e->kind == MR_EV_READ && e->path_id == 2;
    opens += e->kind == MR_EV_OPEN && e->path_id == 2;
}
static struct mr_event_sink sink = {.intern = intern, .emit = count};

/* A format whose plan is what the test says. */
static struct mr_extent asked[64];
static unsigned n_asked;

static int plan_asked(const struct mr_layout *layout, const struct mr_sample_ref *ref, unsigned flags,
                      struct mr_extent *e, unsigned cap, unsigned *n, struct mr_error *err)
{
    (void)layout, (void)ref, (void)flags;
    *n = n_asked;
    if (n_asked > cap)
        return mr_error_plain(err, MR_E_LIMIT, "too many");
    memcpy(e, asked, n_asked * sizeof(*e));
    return 0;
}

static int cost_asked(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    (void)layout, (void)err;
    *out = (struct mr_read_cost){.access = MR_ACCESS_RANGE, .verbatim = true};
    return 0;
}
static const struct mr_format_ops asking = {.plan = plan_asked, .cost = cost_asked};

static void ask(const struct mr_extent *e, unsigned n, unsigned align, bool merge, struct mr_fetch *f)
{
    struct mr_fetch_planner p;
    struct mr_error err;
    mr_fetch_planner_init(&p, set, align, merge, 64);
    p.format = &asking;
    memcpy(asked, e, n * sizeof(*e));
    n_asked = n;
    assert_int_equal(mr_fetch_plan(&p, 0, 0, f, &err), 0);
    assert_int_equal(f->n_ranges, n);
    mr_fetch_planner_done(&p);
}

static void neighbours_within_the_gap_are_one_read(void **state)
{
    (void)state;
    const uint64_t gap = MR_FETCH_GAP, small = MR_FETCH_SMALL;
    const struct {
        struct mr_extent e[3];
        unsigned n, reads, unmerged;
    } cases[] = {
        {{{0, 100}, {100, 100}, {200, 5}}, 3, 1, 3},               /* no gap */
        {{{0, 10 * small}, {10 * small, 10 * small}}, 2, 1, 2},    /* no gap, however long */
        {{{0, 100}, {100 + gap, 100}}, 2, 1, 2},                   /* just within */
        {{{0, 100}, {101 + gap, 100}}, 2, 2, 2},                   /* just beyond */
        {{{0, 100}, {200, small}, {300 + small, 1}}, 3, 1, 3},     /* small ones behind gaps */
        {{{0, 100}, {200, small + 1}, {201 + small, 1}}, 3, 2, 3}, /* too much to move */
        {{{500, 100}, {100, 100}}, 2, 2, 2},                       /* backwards */
        {{{0, 100}, {50, 100}}, 2, 2, 2},                          /* overlapping */
        {{{0, 100}, {700, 0}, {100, 50}}, 3, 1, 2},                /* nothing in between */
    };
    struct mr_fetch f = {0};
    for (unsigned i = 0; i < MR_ARRAY_LEN(cases); i++) {
        ask(cases[i].e, cases[i].n, 1, true, &f);
        assert_int_equal(f.n_reads, cases[i].reads);
        ask(cases[i].e, cases[i].n, 1, false, &f);
        assert_int_equal(f.n_reads, cases[i].unmerged);
        assert_int_equal(f.room, f.length);
    }
    /* Direct reads take whole blocks: two ranges in one block are one read of it. */
    ask((struct mr_extent[]){{10, 100}, {4000, 200}}, 2, 4096, true, &f);
    assert_int_equal(f.n_reads, 1);
    assert_int_equal(f.room, 8192);
    mr_fetch_done(&f);
}

static void check_bytes(const struct mr_fetch *f, uint8_t *place)
{
    static uint8_t copy[1 << 20];
    uint64_t at = 0;
    mr_fetch_copy(f, place, copy);
    const uint8_t *have = mr_fetch_collect(f, place);
    for (unsigned i = 0; i < f->n_ranges; i++) {
        const struct mr_extent *e = &f->range[i].extent;
        assert_memory_equal(have + at, content + e->offset, e->length);
        assert_memory_equal(copy + at, content + e->offset, e->length);
        at += e->length;
    }
    assert_int_equal(at, f->length);
}

static struct mr_fetch_source *open_source(const struct mr_fetch_store_options *o)
{
    struct mr_fetch_source *s;
    struct mr_error err;
    if (mr_fetch_store_create(set, o, &s, &err))
        fail_msg("%s", err.message);
    return s;
}

/* Random ranges, in any order, through every way of reading. */
static void whatever_is_merged_the_bytes_are_those_of_the_ranges(void **state)
{
    (void)state;
    uint64_t draw = 0, cut_bytes = 700;
    uint8_t *place = aligned_alloc(4096, 8 << 20);
    for (unsigned way = 0; way < 8; way++) {
        bool merge = way & 1, cut = way & 2, queued = way & 4;
        unsigned align = queued && merge ? 4096 : 1;
        struct mr_fetch_source *s =
            open_source(&(struct mr_fetch_store_options){.store = store,
                                                         .open_flags = align > 1 ? MR_OBJ_DIRECT : 0,
                                                         .open_files = 2,
                                                         .transfer_bytes = cut ? cut_bytes : 0,
                                                         .depth = queued ? 3 : 0});
        struct mr_fetch_job j = {.place = place}, *done;
        struct mr_error err;
        for (unsigned round = 0; round < 60; round++) {
            struct mr_extent e[16];
            unsigned n = 1 + (unsigned)(mr_rng_at(1, 1, draw++) % 16);
            uint64_t at = mr_rng_at(1, 1, draw++) % 5000;
            for (unsigned i = 0; i < n; i++) {
                e[i].length = 1 + mr_rng_at(1, 1, draw++) % 3000;
                e[i].offset = at + (i % 3 ? 0 : mr_rng_at(1, 1, draw++) % 2000);
                at = e[i].offset + e[i].length > content_bytes - 8000 ? 0 : e[i].offset + e[i].length;
            }
            ask(e, n, align, merge, &j.plan);
            if (!queued)
                assert_int_equal(s->ops->read(s, &j.plan, place, &err), 0);
            for (done = NULL; queued && !done;) {
                if (s->ops->room(s) && s->in_flight == 0)
                    assert_int_equal(s->ops->start(s, &j, &err), 0);
                do
                    assert_int_equal(s->ops->reap(s, &done, &err), 0);
                while (!done);
            }
            assert_true(!queued || (done == &j && j.code == 0 && !j.is_short));
            check_bytes(&j.plan, place);
        }
        mr_fetch_done(&j.plan);
        s->ops->leave(s);
        mr_fetch_source_free(s);
    }
    free(place);
}

/* Seven chunks that follow each other are one call; with a transfer size they are what was asked for. */
static void a_chunked_sample_takes_one_read(void **state)
{
    (void)state;
    struct mr_error err;
    for (unsigned cut = 0; cut < 2; cut++) {
        struct mr_dataset_reader *r;
        struct mr_sample sample;
        struct mr_dataset *ds;
        char path[512];
        snprintf(path, sizeof path, "%s/chunked", root);
        assert_int_equal(mr_dataset_open_in(path, store, &ds, &err), 0);
        assert_int_equal(mr_dataset_reader_create(ds, &r, &err), 0);
        assert_int_equal(mr_dataset_reader_tune(r, cut ? 1000 : 0, 0, 16, &err), 0);
        reads = opens = 0;
        for (uint64_t id = 0; id < 30; id++)
            assert_int_equal(mr_dataset_read(r, id, 0, NULL, 0, &sample, &err), 0);
        assert_int_equal(reads, cut ? 30 * 11 : 30); /* a sample has 10885 bytes */
        assert_int_equal(opens, 3);
        mr_dataset_reader_free(r);
        mr_dataset_close(ds);
    }
}

static void held_files_stay_open(void **state)
{
    (void)state;
    struct mr_file_cache *c;
    struct mr_cached_file *a, *b, *again;
    struct mr_error err;
    assert_int_equal(mr_file_cache_create(set, store, 0, 1, &c, &err), 0);
    opens = 0;
    assert_int_equal(mr_file_cache_get(c, 0, &a, &err), 0);
    assert_int_equal(mr_file_cache_get(c, 1, &b, &err), MR_FILE_CACHE_BUSY);
    assert_int_equal(mr_file_cache_get(c, 0, &again, &err), 0);
    assert_ptr_equal(a, again);
    mr_file_cache_put(a);
    assert_int_equal(mr_file_cache_get(c, 1, &b, &err), MR_FILE_CACHE_BUSY); /* held twice */
    mr_file_cache_put(a);
    assert_int_equal(mr_file_cache_get(c, 1, &b, &err), 0);
    assert_false(mr_file_cache_has(c, 0));
    mr_file_cache_put(b);
    assert_int_equal(opens, 2);
    mr_file_cache_free(c);
}

static int set_up(void **state)
{
    (void)state;
    struct mr_error err;
    char path[512], file[2 * MR_NAME_MAX];
    void *data;
    size_t len;
    snprintf(path, sizeof path, "%s/chunked", root);
    if (mr_store_open("trace:posix", &store, &err) || mr_store_trace_set_sink(store, &sink, &err) ||
        mr_dataset_open(path, NULL, &set, &err) || mr_dataset_file_path(set, 0, file, &err) ||
        mr_store_read_file(store, file, MR_GIB, &data, &len, &err))
        return -1;
    content = data;
    content_bytes = len;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    mr_dataset_close(set);
    mr_store_close(store);
    free(content);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_within_the_gap_are_one_read),
        cmocka_unit_test(whatever_is_merged_the_bytes_are_those_of_the_ranges),
        cmocka_unit_test(a_chunked_sample_takes_one_read),
        cmocka_unit_test(held_files_stay_open),
    };
    open_root("fetch");
    make_chunked_set("chunked", "hdf5", 3, 10, 0, 0, (struct mr_dims){2, {5, 311}});
    int rc = cmocka_run_group_tests(tests, set_up, tear_down);
    remove_root();
    return rc;
}
