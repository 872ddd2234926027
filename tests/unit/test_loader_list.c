/* Epochs in the caller's own order, announced or not; batches that are kept beyond their release, also beyond the
 * loader; samples that are left out; a manifest of listed files. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "loader_fixture.h"

#include <errno.h>

#define SAMPLES 30u

/* A permutation that depends on the epoch. */
static void make_list(uint64_t epoch, uint64_t *ids, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        ids[i] = i % SAMPLES;
    for (uint64_t i = n - 1; i > 0; i--) {
        uint64_t j = mr_mix64(epoch * 1000 + i) % (i + 1), x = ids[i];
        ids[i] = ids[j];
        ids[j] = x;
    }
}

static void check_rest(struct mr_loader *l, uint64_t epoch, const uint64_t *ids, uint64_t n, uint64_t skip,
                       const uint64_t *announce)
{
    struct mr_error err;
    struct mr_batch *b;
    int rc;
    if (mr_loader_start_list(l, epoch, ids, n, skip, &err))
        fail_msg("%s", err.message);
    uint64_t at = skip;
    while ((rc = mr_loader_next(l, &b, &err)) > 0) {
        assert_int_equal(b->epoch, epoch);
        assert_memory_equal(b->ids, ids + at, b->n * sizeof(*ids));
        at += b->n;
        mr_loader_release(l, b);
        if (announce && at >= n / 2)
            assert_int_equal(mr_loader_announce(l, announce, n, &err), 0);
    }
    if (rc)
        fail_msg("%s", err.message);
    assert_int_equal(at, n);
}

static void lists_are_read_in_their_order(void **state)
{
    (void)state;
    for (unsigned variant = 0; variant < 12; variant++) {
        char path[512];
        uint64_t now[64], next[64], n = variant % 3 == 0 ? 30 : variant % 3 == 1 ? 21 : 64;
        struct mr_loader_params p = params("set", path);
        p.lookahead = variant / 2;
        p.policy = variant == 11 ? "naive" : "staging";
        p.io = variant % 2 ? MR_LOADER_IO_QUEUE : MR_LOADER_IO_THREADS;
        struct mr_loader *l = must_open(&p);
        for (uint64_t epoch = 0; epoch < 6; epoch++) {
            make_list(epoch, now, n);
            make_list(epoch == 3 ? 99 : epoch + 1, next, n); /* a wrong announcement changes nothing */
            check_rest(l, epoch, now, n, epoch == 4 ? 14 : 0, epoch % 2 || variant % 4 == 0 ? next : NULL);
        }
        uint64_t ids[64];
        assert_int_equal(read_epoch(l, 2, ids, UINT64_MAX), SAMPLES); /* the loader's own order is still there */
        make_list(7, now, n);
        check_rest(l, 7, now, n, 0, NULL);
        mr_loader_close(l);
    }
}

static void lists_that_cannot_be_are_refused(void **state)
{
    (void)state;
    char path[512];
    struct mr_error err;
    struct mr_loader_params p = params("set", path);
    struct mr_loader *l = must_open(&p);
    uint64_t ids[8] = {0, 1, 2, 3, 4, 5, 6, SAMPLES};
    assert_int_equal(mr_loader_start_list(l, 0, ids, 8, 0, &err), MR_E_USAGE);
    assert_int_equal(mr_loader_start_list(l, 0, ids, 0, 0, &err), MR_E_USAGE);
    assert_int_equal(mr_loader_start_list(l, 0, ids, 7, 3, &err), MR_E_USAGE);
    mr_loader_close(l);
}

/* Kept batches hold what they held, while the loader goes on and after it is gone; without a spare slab one is told. */
static void kept_batches_outlive_the_loader(void **state)
{
    (void)state;
    char path[512];
    struct mr_error err;
    struct mr_loader_params p = params("set", path);
    p.spare = 2;
    p.lookahead = 1;
    struct mr_loader *l = must_open(&p);
    struct mr_batch *b;
    struct mr_slab *slab[2] = {NULL, NULL}, *none;
    const uint8_t *data[2];
    uint8_t first[2];
    assert_int_equal(mr_loader_start_epoch(l, 0, &err), 0);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(mr_loader_next(l, &b, &err), 1);
        if (i < 2) {
            data[i] = b->rows[0];
            first[i] = data[i][0];
            assert_int_equal(mr_loader_take(l, b, NULL, &slab[i]), 0);
        } else {
            assert_int_equal(mr_loader_take(l, b, NULL, &none), -EAGAIN);
        }
        mr_loader_release(l, b);
    }
    mr_slab_free(slab[1]);
    assert_int_equal(mr_loader_next(l, &b, &err), 1);
    assert_int_equal(mr_loader_take(l, b, NULL, &slab[1]), 0);
    data[1] = b->rows[0];
    first[1] = data[1][0];
    mr_loader_release(l, b);
    mr_loader_close(l);
    assert_true(data[0][0] == first[0] && data[1][0] == first[1]);
    mr_slab_free(slab[0]);
    mr_slab_free(slab[1]);
    mr_slab_free(NULL);
}

/* Memory of the caller's takes the place of the loader's, batch after batch. */
static void memory_of_the_caller_is_used(void **state)
{
    (void)state;
    char path[512];
    struct mr_error err;
    struct mr_loader_params p = params("set", path);
    p.flags |= MR_LOADER_DENSE;
    struct mr_loader *l = must_open(&p);
    uint64_t bytes = (mr_loader_slab_bytes(l) + 63) / 64 * 64;
    void *memory[8];
    unsigned places = mr_loader_places(l), used = 0;
    assert_true(places < 8);
    for (unsigned i = 0; i < 8; i++)
        memory[i] = aligned_alloc(64, bytes);
    for (unsigned i = 0; i < places; i++)
        mr_loader_set_memory(l, i, memory[used++]);
    struct mr_batch *b;
    struct mr_slab *none;
    assert_int_equal(mr_loader_start_epoch(l, 0, &err), 0);
    void *fresh = memory[used];
    while (mr_loader_next(l, &b, &err) > 0) {
        void *old = (void *)(uintptr_t)b->data;
        bool ours = false;
        for (unsigned i = 0; i < 8; i++)
            ours = ours || old == memory[i];
        assert_true(ours);
        assert_int_equal((uintptr_t)b->rows[1] - (uintptr_t)b->rows[0], b->bytes[0]);
        assert_int_equal(mr_loader_take(l, b, fresh, &none), 0);
        assert_null(none);
        fresh = old;
        mr_loader_release(l, b);
    }
    mr_loader_close(l);
    for (unsigned i = 0; i < 8; i++)
        free(memory[i]);
}

static void write_file(const char *name, const void *data, size_t len)
{
    char path[700];
    snprintf(path, sizeof path, "%s/pictures/train/%s", root, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static struct mr_loader *open_pictures(unsigned flags, struct mr_preprocess_params *pre)
{
    char path[512];
    struct mr_loader_params p = params("listed.mrm", path);
    mr_preprocess_params_init(pre);
    pre->crop = MR_CROP_RANDOM_RESIZED;
    pre->height = pre->width = 24;
    pre->rgb = true;
    p.flags = flags | MR_LOADER_DENSE;
    p.preprocess = pre;
    p.order.mode = MR_ORDER_SEQUENTIAL;
    return must_open(&p);
}

/* Ten pictures, the fourth and the last of which are broken: as many rows less, the others in their order. */
static void bad_samples_are_left_out(void **state)
{
    (void)state;
    char dir[600], manifest[600], text[10][64];
    const char *all[10];
    int64_t of[10];
    struct mr_error err;
    snprintf(dir, sizeof dir, "%s/pictures/train", root);
    snprintf(manifest, sizeof manifest, "%s/listed.mrm", root);
    struct mr_dataset *ds;
    snprintf(manifest, sizeof manifest, "%s/pictures", root);
    assert_int_equal(mr_dataset_open(manifest, NULL, &ds, &err), 0);
    for (unsigned i = 0; i < 10; i++) {
        struct mr_sample_place place;
        assert_int_equal(mr_dataset_locate(ds, i, &place, &err), 0);
        snprintf(text[i], sizeof text[i], "%s", strrchr(place.path, '/') + 1);
        all[i] = text[i];
        of[i] = (int64_t)(i + 100);
    }
    mr_dataset_close(ds);
    write_file(text[3], "no picture", 10);
    write_file(text[9], "", 0);
    snprintf(manifest, sizeof manifest, "%s/listed.mrm", root);
    struct mr_file_list list = {.root = dir, .names = all, .labels = of, .n = 10, .format = "jpeg"};
    if (mr_dataset_index_files(&list, manifest, &err))
        fail_msg("%s", err.message);
    struct mr_preprocess_params pre;
    struct mr_loader *l = open_pictures(MR_LOADER_SKIP_BAD, &pre);
    struct mr_batch *b;
    assert_int_equal(mr_loader_start_epoch(l, 0, &err), 0);
    assert_int_equal(mr_loader_next(l, &b, &err), 1);
    assert_int_equal(b->n, 6);
    static const uint64_t kept[] = {0, 1, 2, 4, 5, 6};
    assert_memory_equal(b->ids, kept, sizeof kept);
    assert_int_equal(b->labels[3], 104);
    assert_ptr_equal(b->rows[5], (const uint8_t *)b->data + 5 * b->row_bytes);
    mr_loader_release(l, b);
    assert_int_equal(mr_loader_next(l, &b, &err), 1);
    assert_int_equal(b->n, 2);
    mr_loader_release(l, b);
    struct mr_error first;
    assert_int_equal(mr_loader_skipped(l, &first), 2);
    assert_non_null(strstr(first.context, ".jpg"));
    mr_loader_close(l);
    l = open_pictures(0, &pre); /* without the flag it is an error that names file and sample */
    assert_int_equal(mr_loader_start_epoch(l, 0, &err), 0);
    assert_int_equal(mr_loader_next(l, &b, &err), MR_E_FORMAT);
    assert_non_null(strstr(err.context, "in sample 3 of"));
    mr_loader_close(l);
}

static void lists_of_files_are_checked(void **state)
{
    (void)state;
    struct mr_error err;
    char dir[600], manifest[600];
    const char *names[] = {"b", "a"};
    snprintf(dir, sizeof dir, "%s/pictures", root);
    snprintf(manifest, sizeof manifest, "%s/never.mrm", root);
    struct mr_file_list list = {.root = dir, .names = names, .n = 2, .format = "jpeg"};
    assert_int_equal(mr_dataset_index_files(&list, manifest, &err), -ENOENT);
    list.format = "tfrecord";
    assert_int_equal(mr_dataset_index_files(&list, manifest, &err), MR_E_USAGE);
    list = (struct mr_file_list){.root = dir, .n = 0, .format = "jpeg"};
    assert_int_equal(mr_dataset_index_files(&list, manifest, &err), MR_E_USAGE);
}

/* Records of a plain file, every third byte one of five: they overlap, and a rest too short is no record. */
static void records_of_one_file(void **state)
{
    (void)state;
    struct mr_error err;
    struct mr_dataset *ds;
    struct mr_dataset_reader *r;
    struct mr_dataset_info info;
    struct mr_sample sample;
    char path[600], manifest[600], got[5];
    snprintf(path, sizeof path, "%s/letters.bin", root);
    snprintf(manifest, sizeof manifest, "%s/letters.mrm", root);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("abcdefghijklmnopqrstuvwxyz", f);
    fclose(f);
    assert_int_equal(mr_dataset_index_records(path, 0, 5, 3, manifest, &err), 0);
    assert_int_equal(mr_dataset_open(manifest, NULL, &ds, &err), 0);
    mr_dataset_get_info(ds, &info);
    assert_int_equal(info.samples, 8);
    assert_int_equal(mr_dataset_reader_create(ds, &r, &err), 0);
    assert_int_equal(mr_dataset_read(r, 7, 0, got, sizeof got, &sample, &err), 0);
    assert_memory_equal(got, "vwxyz", 5);
    assert_int_equal(mr_dataset_read(r, 1, 0, got, sizeof got, &sample, &err), 0);
    assert_memory_equal(got, "defgh", 5);
    mr_dataset_reader_free(r);
    mr_dataset_close(ds);
    assert_int_equal(mr_dataset_index_records(path, 0, 27, 1, manifest, &err), MR_E_USAGE);
    assert_int_equal(mr_dataset_index_records(path, 0, 5, 0, manifest, &err), MR_E_USAGE);
    assert_int_equal(mr_dataset_index_records("letters.bin", 0, 5, 5, manifest, &err), MR_E_USAGE);
    snprintf(path, sizeof path, "%s/none.bin", root);
    assert_int_equal(mr_dataset_index_records(path, 0, 5, 5, manifest, &err), -ENOENT);
}

static int setup(void **state)
{
    (void)state;
    open_root("loader-list");
    make_set("set", "npz", 30, 1, 5000, 0);
    make_set("pictures", "jpeg", 10, 1, 9000, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    remove_root();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read_in_their_order),
        cmocka_unit_test(lists_that_cannot_be_are_refused),
        cmocka_unit_test(kept_batches_outlive_the_loader),
        cmocka_unit_test(memory_of_the_caller_is_used),
        cmocka_unit_test(records_of_one_file),
        cmocka_unit_test(lists_of_files_are_checked),
        cmocka_unit_test(bad_samples_are_left_out),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
