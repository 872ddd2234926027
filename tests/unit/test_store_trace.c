/* The trace shim: what it reports is what happened, in order, and reporting allocates nothing.
 *
 * test-label: concurrent */
#include "base/common.h"
#include "event/event.h"
#include "import/trace_read.h"
#include "store/store.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

enum { MAX_EVENTS = 4096 };

struct list_sink {
    struct mr_event_sink base;
    pthread_mutex_t lock;
    unsigned count, paths;
    char path[64][128];
    struct mr_event event[MAX_EVENTS];
};

static uint32_t list_intern(struct mr_event_sink *base, const char *path)
{
    struct list_sink *s = (struct list_sink *)base;
    pthread_mutex_lock(&s->lock);
    uint32_t id = 0;
    for (unsigned i = 0; i < s->paths && !id; i++)
        if (strcmp(s->path[i], path) == 0)
            id = i + 1;
    if (!id && s->paths < 64) {
        snprintf(s->path[s->paths++], sizeof(s->path[0]), "%s", path);
        id = s->paths;
    }
    pthread_mutex_unlock(&s->lock);
    return id;
}

static void list_emit(struct mr_event_sink *base, const struct mr_event *e)
{
    struct list_sink *s = (struct list_sink *)base;
    pthread_mutex_lock(&s->lock);
    if (s->count < MAX_EVENTS)
        s->event[s->count++] = *e;
    pthread_mutex_unlock(&s->lock);
}

static struct list_sink *new_sink(void)
{
    struct list_sink *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->base = (struct mr_event_sink){.intern = list_intern, .emit = list_emit};
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

static void free_sink(struct list_sink *s)
{
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static struct mr_store *open_store(const char *spec)
{
    struct mr_store *s;
    struct mr_error err;
    if (mr_store_open(spec, &s, &err) != 0)
        fail_msg("'%s': %s", spec, err.message);
    return s;
}

static void sink_sees_the_order_of_offsets(void **state)
{
    (void)state;
    struct list_sink *sink = new_sink();
    struct mr_store *s = open_store("trace:null(size=1MiB)");
    struct mr_object *o;
    char buf[100];
    static const uint64_t offsets[] = {500, 0, 99999, 12, (1 << 20) - 50};
    assert_int_equal(mr_store_trace_set_sink(s, &sink->base, NULL), 0);
    assert_int_equal(mr_object_open(s, "a/sample", MR_OBJ_READ, &o, NULL), 0);
    for (size_t i = 0; i < MR_ARRAY_LEN(offsets); i++)
        assert_true(s->ops->read(o, buf, 100, offsets[i], NULL) > 0);
    mr_object_close(o, NULL);
    struct mr_store_stat st;
    assert_int_equal(mr_store_stat(s, "b", &st, NULL), 0);
    assert_int_equal(sink->count, 2 + MR_ARRAY_LEN(offsets) + 1);
    assert_int_equal(sink->event[0].kind, MR_EV_OPEN);
    uint64_t last = 0;
    for (size_t i = 0; i < MR_ARRAY_LEN(offsets); i++) {
        const struct mr_event *e = &sink->event[i + 1];
        assert_int_equal(e->kind, MR_EV_READ);
        assert_int_equal(e->offset, offsets[i]);
        assert_int_equal(e->result, i == 4 ? 50 : 100);
        assert_string_equal(sink->path[e->path_id - 1], "a/sample");
        assert_true(e->start_ns >= last);
        assert_int_equal(e->tid, gettid());
        last = e->start_ns + e->dur_ns;
    }
    assert_int_equal(sink->event[6].kind, MR_EV_CLOSE);
    assert_int_equal(sink->event[7].kind, MR_EV_STAT);
    assert_string_equal(sink->path[sink->event[7].path_id - 1], "b");
    mr_store_close(s);
    free_sink(sink);
    s = open_store("null");
    assert_int_equal(mr_store_trace_set_sink(s, NULL, NULL), MR_E_USAGE);
    mr_store_close(s);
}

static void failures_and_queued_calls_are_seen(void **state)
{
    (void)state;
    struct list_sink *sink = new_sink();
    struct mr_store *s = open_store("trace:fault(nth=2,op=read,error=EIO):null(size=1MiB)");
    struct mr_ioq *q;
    char buf[3][64];
    struct mr_io io[3], *list[3], *done[3];
    assert_int_equal(mr_store_trace_set_sink(s, &sink->base, NULL), 0);
    assert_int_equal(s->ops->ioq_create(s, 3, &q, NULL), 0);
    for (unsigned i = 0; i < 3; i++) {
        io[i] = (struct mr_io){.op = MR_IO_READ_PATH, .path = "x", .buf = buf[i], .len = 64, .offset = i * 64};
        list[i] = &io[i];
    }
    assert_int_equal(s->ops->ioq_submit(q, list, 3, NULL), 0);
    assert_int_equal(s->ops->ioq_reap(q, 3, 3, done, NULL), 3);
    s->ops->ioq_free(q);
    mr_store_close(s);
    unsigned failed = 0;
    assert_int_equal(sink->count, 3);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(sink->event[i].kind, MR_EV_READ);
        failed += sink->event[i].result == -EIO && sink->event[i].offset == 64;
    }
    assert_int_equal(failed, 1);
    free_sink(sink);
}

/* Reads a trace; events of kind READ among them, whose offsets are added up. */
static unsigned events_of(const char *path, unsigned *reads, uint64_t *offsets)
{
    struct mr_trace *t;
    struct mr_event_batch b = {0};
    struct mr_error err;
    assert_int_equal(mr_trace_create(&t, &err), 0);
    assert_int_equal(mr_trace_add(t, path, &err), 0);
    assert_int_equal(mr_trace_finish(t, &err), 0);
    unsigned n = 0;
    *reads = 0;
    *offsets = 0;
    for (size_t c = 0; c < t->chunks; c++) {
        assert_int_equal(mr_trace_read(t, c, MR_WANT_ALL, &b, &err), 0);
        for (uint32_t i = 0; i < b.count; i++, n++)
            if (b.c.call[i] == MR_CALL_pread) {
                ++*reads;
                *offsets += b.c.offset[i];
                assert_int_equal(b.c.result[i] > 0, 1);
            }
    }
    mr_event_batch_done(&b);
    mr_trace_free(t);
    return n;
}

static void make_reads(struct mr_store *s, unsigned n)
{
    struct mr_object *o;
    char buf[16];
    assert_int_equal(mr_object_open(s, "x", MR_OBJ_READ, &o, NULL), 0);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(mr_object_read(o, buf, 16, i, NULL), 0);
    mr_object_close(o, NULL);
}

static void stores_with_the_same_file_share_it(void **state)
{
    (void)state;
    char path[200], spec[300];
    unsigned reads;
    uint64_t offsets;
    snprintf(path, sizeof(path), "%s/mr-trace-shared-%ld.mrt", P_tmpdir, (long)getpid());
    snprintf(spec, sizeof(spec), "trace(file=%s):null(size=1MiB)", path);
    struct mr_store *a = open_store(spec);
    make_reads(a, 40000); /* more than one buffer */
    struct mr_store *b = open_store(spec);
    make_reads(b, 9000);
    make_reads(a, 10);
    mr_store_close(b);
    make_reads(a, 10);
    mr_store_close(a);
    assert_int_equal(events_of(path, &reads, &offsets), 40002 + 9002 + 12 + 12);
    assert_int_equal(reads, 49020);
    a = open_store(spec); /* a later run begins anew */
    mr_store_close(a);
    assert_int_equal(events_of(path, &reads, &offsets), 0);
    unlink(path);
}

static void file_has_one_event_per_call(void **state)
{
    (void)state;
    char path[200], spec[300];
    unsigned reads;
    uint64_t offsets;
    snprintf(path, sizeof(path), "%s/mr-trace,%ld.mrt", P_tmpdir, (long)getpid());
    snprintf(spec, sizeof(spec), "trace(file=\"%s\"):null(size=1MiB)", path);
    struct mr_store *s = open_store(spec);
    make_reads(s, 5000);
    mr_store_close(s);
    assert_int_equal(events_of(path, &reads, &offsets), 5002);
    assert_int_equal(reads, 5000);
    assert_int_equal(offsets, 5000 * 4999 / 2);
    unlink(path);
    struct mr_error err;
    assert_int_equal(mr_store_open("trace(file=/no/such/folder/x):null", &s, &err), -ENOENT);
    assert_non_null(strstr(err.message, "/no/such/folder/x"));
}

/* Without a trace shim in the stack one is put on top; with one, that one is used. */
static void a_stack_is_opened_with_the_programs_events(void **state)
{
    (void)state;
    const char *const specs[] = {"null(size=1MiB)", "trace:null(size=1MiB)"};
    for (size_t i = 0; i < MR_ARRAY_LEN(specs); i++) {
        struct list_sink *sink = new_sink();
        struct mr_store *s;
        struct mr_error err;
        assert_int_equal(mr_store_open_with_events(specs[i], &sink->base, &s, &err), 0);
        assert_string_equal(s->ops->name, "trace");
        make_reads(s, 7);
        mr_store_close(s);
        assert_int_equal(sink->count, 9);
        free_sink(sink);
        assert_int_equal(mr_store_open_with_events(specs[i], NULL, &s, &err), 0);
        assert_string_equal(s->ops->name, i ? "trace" : "null");
        mr_store_close(s);
    }
}

static void *read_some(void *arg)
{
    struct mr_object *o = arg;
    char buf[32];
    for (unsigned i = 0; i < 200; i++)
        if (mr_object_read(o, buf, 32, i * 32, NULL) != 0)
            return arg;
    return NULL;
}

static void threads_lose_no_event(void **state)
{
    (void)state;
    struct list_sink *sink = new_sink();
    char path[200], spec[300];
    snprintf(path, sizeof(path), "%s/mr-trace-%ld.mrt", P_tmpdir, (long)getpid());
    snprintf(spec, sizeof(spec), "trace(file=%s):null(size=1MiB)", path);
    struct mr_store *s = open_store(spec);
    struct mr_object *o;
    pthread_t t[4];
    assert_int_equal(mr_store_trace_set_sink(s, &sink->base, NULL), 0);
    assert_int_equal(mr_object_open(s, "x", MR_OBJ_READ, &o, NULL), 0);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, read_some, o), 0);
    for (unsigned i = 0; i < 4; i++) {
        void *rc;
        pthread_join(t[i], &rc);
        assert_null(rc);
    }
    mr_object_close(o, NULL);
    mr_store_close(s);
    assert_int_equal(sink->count, 802);
    unsigned reads;
    uint64_t offsets;
    assert_int_equal(events_of(path, &reads, &offsets), 802);
    unlink(path);
    free_sink(sink);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sink_sees_the_order_of_offsets),
        cmocka_unit_test(failures_and_queued_calls_are_seen),
        cmocka_unit_test(file_has_one_event_per_call),
        cmocka_unit_test(a_stack_is_opened_with_the_programs_events),
        cmocka_unit_test(stores_with_the_same_file_share_it),
        cmocka_unit_test(threads_lose_no_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
