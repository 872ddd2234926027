/* The set in memory: read once, and never again from storage; the batches are those of a loader that reads; loading can
 * be interrupted, timed and repeated. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "loader_fixture.h"

#include <errno.h>

static const struct {
    const char *name, *format;
    int64_t files, per_file;
    uint64_t size, stdev;
} sets[] = {
    {"npz", "npz", 30, 1, 5000, 0},   {"npzvar", "npz", 30, 1, 9000, 3000}, {"tfrecord", "tfrecord", 3, 10, 3000, 800},
    {"hdf5", "hdf5", 3, 10, 4096, 0}, {"jpeg", "jpeg", 30, 1, 6000, 0},     {"csv", "csv", 3, 10, 200, 0}};
#define SAMPLES 30u

static _Atomic uint64_t transformed;

static int64_t note(void *user, uint64_t epoch, uint64_t id, void *row, size_t cap, size_t bytes)
{
    (void)user, (void)epoch, (void)id, (void)row, (void)cap;
    transformed++;
    return (int64_t)bytes;
}

static void move_files(const char *set, const char *from, const char *to)
{
    char a[600], b[600];
    snprintf(a, sizeof a, "%s/%s/%s", root, set, from);
    snprintf(b, sizeof b, "%s/%s/%s", root, set, to);
    assert_int_equal(rename(a, b), 0);
}

/* Epochs are served with the files gone; content, labels and checksums are checked as ever. */
static void no_epoch_reads_from_storage(void **state)
{
    (void)state;
    uint64_t ids[100];
    for (unsigned set = 0; set < MR_ARRAY_LEN(sets); set++)
        for (unsigned how = 0; how < 6; how++) {
            char path[512];
            struct mr_error err = {0};
            struct mr_loader_stats st;
            struct mr_loader_params p = params(sets[set].name, path);
            p.flags |= MR_LOADER_IN_MEMORY | (how == 1 ? MR_LOADER_VERIFY : 0) | (how == 2 ? MR_LOADER_DIRECT : 0);
            p.policy = how == 3 ? "naive" : "staging";
            p.io = how == 4 ? MR_LOADER_IO_QUEUE : MR_LOADER_IO_AUTO;
            p.store = how == 5 ? "uring" : NULL;
            p.last_epoch = how % 2 ? 0 : 3;
            p.transform = note;
            transformed = 0;
            struct mr_loader *l = must_open(&p);
            assert_int_equal(mr_loader_load(l, MR_LOADER_FOREVER, &err), 0);
            assert_int_equal(transformed, 0);
            move_files(sets[set].name, "train", "gone");
            for (uint64_t e = 0; e < 3; e++)
                check_against_order(&p, SAMPLES, e, ids, read_epoch(l, e, ids, UINT64_MAX));
            mr_loader_get_stats(l, &st);
            mr_loader_close(l);
            move_files(sets[set].name, "gone", "train");
            assert_int_equal(st.read_bytes, 0);
            assert_true(st.loaded_bytes > 0);
            assert_true(transformed >= 3 * SAMPLES); /* in every epoch */
        }
}

static void rows_are_those_of_a_loader_that_reads(void **state)
{
    (void)state;
    for (unsigned set = 0; set < MR_ARRAY_LEN(sets); set++)
        for (unsigned raw = 0; raw < 2; raw++) {
            char path[512];
            struct mr_error err;
            struct mr_batch *a, *b;
            struct mr_loader_params p = params(sets[set].name, path);
            p.flags = raw ? MR_LOADER_RAW : 0;
            struct mr_loader *x = must_open(&p);
            p.flags |= MR_LOADER_IN_MEMORY;
            struct mr_loader *y = must_open(&p);
            assert_int_equal(mr_loader_start_epoch(x, 1, &err), 0);
            assert_int_equal(mr_loader_start_epoch(y, 1, &err), 0); /* loads */
            while (mr_loader_next(x, &a, &err) == 1) {
                assert_int_equal(mr_loader_next(y, &b, &err), 1);
                assert_int_equal(a->n, b->n);
                assert_int_equal(b->read_bytes, 0);
                for (uint32_t i = 0; i < a->n; i++) {
                    assert_int_equal(a->bytes[i], b->bytes[i]);
                    assert_int_equal(a->labels[i], b->labels[i]);
                    assert_memory_equal(a->rows[i], b->rows[i], a->bytes[i]);
                    assert_memory_equal(mr_batch_shape(a, i), mr_batch_shape(b, i), sizeof(struct mr_shape));
                }
                mr_loader_release(x, a);
                mr_loader_release(y, b);
            }
            mr_loader_close(x);
            mr_loader_close(y);
        }
}

static void loading_goes_on_after_timeouts_and_stops(void **state)
{
    (void)state;
    char path[512];
    struct mr_error err;
    uint64_t ids[100], timeouts = 0;
    struct mr_loader_params p = params("npz", path);
    p.flags |= MR_LOADER_IN_MEMORY;
    p.store = "throttle(latency=3ms):posix";
    p.threads = 1;
    struct mr_loader *l = must_open(&p);
    int rc;
    while ((rc = mr_loader_load(l, 5 * MR_NS_PER_MS, &err)) == MR_E_TIMEOUT)
        if (++timeouts == 2) {
            mr_loader_stop(l);
            assert_int_equal(mr_loader_load(l, MR_LOADER_FOREVER, &err), MR_E_INTERRUPTED);
            mr_loader_restart(l);
        }
    assert_int_equal(rc, 0);
    assert_true(timeouts > 2);
    struct mr_loader_stats st;
    mr_loader_get_stats(l, &st);
    assert_true(st.loaded_bytes >= SAMPLES * 5000 && st.loaded_bytes < SAMPLES * 6000); /* nothing twice */
    check_against_order(&p, SAMPLES, 0, ids, read_epoch(l, 0, ids, UINT64_MAX));
    mr_loader_close(l);
}

static void a_failed_load_can_be_repeated(void **state)
{
    (void)state;
    for (int nth = 1; nth < 30; nth += 6) {
        char path[512], store[100];
        struct mr_error err = {0};
        uint64_t ids[100];
        struct mr_loader_params p = params("npz", path);
        snprintf(store, sizeof store, "fault(op=read,path=*.npz,nth=%d,error=EIO):posix", nth);
        p.flags |= MR_LOADER_IN_MEMORY;
        p.store = store;
        struct mr_loader *l = must_open(&p);
        assert_int_equal(mr_loader_load(l, MR_LOADER_FOREVER, &err), -EIO);
        assert_non_null(strstr(err.context, "sample"));
        check_against_order(&p, SAMPLES, 0, ids, read_epoch(l, 0, ids, UINT64_MAX));
        mr_loader_close(l);
    }
}

/* A group with room for the set or for the batches, not for both: an error before anything is read. */
static void a_set_without_room_beside_its_batches_is_refused(void **state)
{
    (void)state;
    char path[512], groups[600], folder[600], command[4096];
    struct mr_error err = {0};
    snprintf(folder, sizeof folder, "%s/groups.d", root);
    snprintf(groups, sizeof groups, "%s/groups", root);
    snprintf(command, sizeof command,
             "mkdir -p %s/g && echo 0::/g >%s && echo 90000000 >%s/g/memory.max && echo 1000 >%s/g/memory.current",
             folder, groups, folder, folder);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    assert_int_equal(pclose(p), 0);
    make_set("large", "npy", 8, 1, 8000000, 0);
    struct mr_loader_params with = params("large", path);
    with.flags |= MR_LOADER_IN_MEMORY;
    with.batch_size = 2;
    with.lookahead = 1;
    struct mr_loader *l = must_open(&with);
    mr_cgroup_use(folder, groups);
    int rc = mr_loader_load(l, MR_LOADER_FOREVER, &err);
    mr_cgroup_use(NULL, NULL);
    assert_int_equal(rc, -ENOMEM);
    assert_non_null(strstr(err.message, "the data set and its batches"));
    mr_loader_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_epoch_reads_from_storage),
        cmocka_unit_test(a_set_without_room_beside_its_batches_is_refused),
        cmocka_unit_test(rows_are_those_of_a_loader_that_reads),
        cmocka_unit_test(loading_goes_on_after_timeouts_and_stops),
        cmocka_unit_test(a_failed_load_can_be_repeated),
    };
    open_root("loader-memory");
    for (unsigned i = 0; i < MR_ARRAY_LEN(sets); i++)
        make_set(sets[i].name, sets[i].format, sets[i].files, sets[i].per_file, sets[i].size, sets[i].stdev);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    remove_root();
    return rc;
}
