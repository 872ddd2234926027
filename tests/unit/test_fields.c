/* Samples of several fields, through scan, manifest and the loader's C interface: every value is the one that was
 * generated (MR_LOADER_VERIFY_CONTENT checks each), whichever way its bytes come; projections read what they need; bad
 * files are named. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "amount.h"
#include "dataset/scan.h"
#include "loader_fixture.h"

/* One row per format whose files can hold several fields. */
static const struct {
    const char *name, *format, *fields;
    int64_t per_file, labels;
    int compression;
} sets[] = {
    {"hdf5", "hdf5", "data:f4:4x48x72,mask:i4:48x72:target,weight:f8:-", 5, 0, 0},
    {"parquet", "parquet", "data:f4:4x48x72,mask:i4:48x72:target,weight:f8:-", 5, 0, 0},
    {"parquet-gzip", "parquet", "data:f4:4x48x72,mask:i4:48x72:target,weight:f8:-", 20, 7, 1},
    {"hdf5-gzip", "hdf5", "data:f4:4x48x72,mask:i4:48x72:target,weight:f8:-", 5, 7, 1},
    {"tar", "tar", "data:f4:4x48x72,mask:i4:48x72:target,weight:f8:-", 5, 7, 0},
    {"tfrecord", "tfrecord", "data:f4:4x48x72,mask:i4:48x72:target,weight:f8:-,tokens:i8:5", 5, 7, 0},
    {"tfrecord-gzip", "tfrecord", "data:f4:4x48x72,mask:i4:48x72:target,weight:f8:-", 5, 0, 1},
    {"npz", "npz", "data:f4:4x48x72,mask:i4:48x72:target,weight:f8:-", 5, 7, 0},
    {"npz-zip", "npz", "data:f4:4x48x72,mask:i4:48x72:target,weight:f8:-", 5, 0, 2},
    {"npz-one", "npz", "data:f4:4x48x72,mask:i4:48x72:target,weight:f8:-", 1, 0, 2},
    {"json", "json", "data:f4:4x48x72,mask:i4:48x72:target,weight:f8:-", 5, 7, 0},
    {"tar-gzip", "tar", "data:f4:4x48x72,mask:i4:48x72:target,weight:f8:-", 5, 0, 1},
};

static int make_sets(void **state)
{
    (void)state;
    open_root("fields");
    for (size_t i = 0; i < MR_ARRAY_LEN(sets); i++) {
        struct mr_arena arena = {0};
        struct mr_gen_spec spec;
        default_spec(&arena, &spec);
        spec.format = sets[i].format;
        spec.fields = sets[i].fields;
        spec.files = 40 / sets[i].per_file;
        spec.samples_per_file = sets[i].per_file;
        spec.labels = sets[i].labels;
        spec.compression = sets[i].compression;
        write_set(sets[i].name, &spec);
        mr_arena_done(&arena);
    }
    return 0;
}

static int remove_sets(void **state)
{
    (void)state;
    remove_root();
    return 0;
}

static const char *const everything[] = {"*"};

static struct mr_loader_params field_params(const char *name, char path[512])
{
    struct mr_loader_params p = params(name, path);
    p.fields = everything;
    p.n_fields = 1;
    return p;
}

static const struct mr_batch_field *find(const struct mr_batch *b, const char *name)
{
    for (uint32_t k = 0; k < b->n_fields; k++)
        if (strcmp(b->fields[k]->name, name) == 0)
            return b->fields[k];
    fail_msg("the batch has no field '%s'", name);
    return NULL;
}

static void check_batch(const struct mr_batch *b, bool labelled)
{
    const struct mr_batch_field *data = find(b, "data"), *mask = find(b, "mask"), *weight = find(b, "weight");
    assert_in_range(b->n_fields, labelled ? 4 : 3, labelled ? 5 : 3); /* a set has one more */
    assert_int_equal(data->shape.n_dims, 3);
    assert_string_equal(data->shape.dtype, "f4");
    assert_int_equal(mask->shape.dims[0], 48);
    assert_int_equal(mask->role, MR_FIELD_TARGET);
    assert_int_equal(weight->shape.n_dims, 0);
    assert_int_equal(weight->role, MR_FIELD_WEIGHT);
    assert_ptr_equal(b->data, data->data);
    for (uint32_t i = 0; i < b->n; i++) {
        assert_int_equal(mask->bytes[i], 4 * 48 * 72);
        assert_ptr_equal(mask->rows[i], (const uint8_t *)mask->data + i * mask->row_bytes);
        assert_true(labelled ? b->labels[i] >= 0 && b->labels[i] < 7 : b->labels[i] == MR_SAMPLE_NO_LABEL);
    }
}

/* Reads an epoch, or its first batches; returns how many samples there were. */
static uint64_t read_fields(struct mr_loader *l, uint64_t epoch, uint64_t *ids, uint64_t batches, bool labelled)
{
    struct mr_error err = {0};
    struct mr_batch *b;
    uint64_t n = 0;
    int rc = mr_loader_start_epoch(l, epoch, &err);
    for (; rc >= 0 && batches > 0; batches--) {
        rc = mr_loader_next(l, &b, &err);
        if (rc <= 0)
            break;
        check_batch(b, labelled);
        for (uint32_t i = 0; i < b->n; i++)
            ids[n++] = b->ids[i];
        mr_loader_release(l, b);
    }
    if (rc < 0)
        fail_msg("%s / %s", err.message, err.context);
    return n;
}

/* Content is compared inside the loader. */
static void every_way_of_reading_gives_what_was_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < MR_ARRAY_LEN(sets); i++) {
        for (int way = 0; way < 7; way++) {
            /* Every way for the first two; of the others one, and those that keep stored bytes where these are units. */
            bool another = sets[i].compression ? way == 2 || way == 5 : way == 1 + (int)i % 6;
            if (i > 1 && way != 0 && !another)
                continue;
            if (i % mr_test_stride(3))
                continue;
            char path[512];
            uint64_t ids[64];
            struct mr_loader_params p = field_params(sets[i].name, path);
            p.policy = way == 1 ? "naive" : NULL;
            p.flags |= way == 2 ? MR_LOADER_IN_MEMORY : 0;
            p.flags |= way == 3 ? MR_LOADER_DIRECT : 0;
            p.flags |= way == 4 ? MR_LOADER_VERIFY | MR_LOADER_DENSE : 0;
            p.tiers = way == 5 ? "ram=8MiB" : NULL;
            p.transfer_bytes = way == 6 ? 5000 : 0;
            p.last_epoch = 1;
            p.epochs_known = true;
            struct mr_loader *l = must_open(&p);
            for (uint64_t epoch = 0; epoch < 2; epoch++) {
                uint64_t n = read_fields(l, epoch, ids, UINT64_MAX, sets[i].labels > 0);
                assert_int_equal(n, 40);
                check_against_order(&p, 40, epoch, ids, 40);
            }
            mr_loader_close(l);
        }
    }
}

static void a_loader_is_resumed_exactly(void **state)
{
    (void)state;
    char path[512];
    uint64_t whole[64], rest[64];
    struct mr_loader_state at;
    struct mr_error err;
    struct mr_loader_params p = field_params("hdf5", path);
    struct mr_loader *l = must_open(&p);
    assert_int_equal(read_fields(l, 3, whole, UINT64_MAX, false), 40);
    assert_int_equal(read_fields(l, 3, rest, 2, false), 14);
    mr_loader_get_state(l, &at);
    mr_loader_close(l);
    l = must_open(&p);
    assert_int_equal(mr_loader_resume(l, &at, &err), 0);
    assert_int_equal(read_fields(l, 3, rest, UINT64_MAX, false), 26);
    assert_memory_equal(rest, whole + 14, 26 * sizeof *rest);
    mr_loader_close(l);
}

/* Bytes that an epoch read from the store. */
static uint64_t bytes_read(const char *set, const char *const *fields, uint32_t n, uint64_t flags)
{
    char path[512];
    struct mr_error err;
    struct mr_batch *b;
    struct mr_loader_params p = params(set, path);
    uint64_t bytes = 0;
    p.fields = fields;
    p.n_fields = n;
    p.flags = (unsigned)flags;
    struct mr_loader *l = must_open(&p);
    assert_int_equal(mr_loader_start_epoch(l, 0, &err), 0);
    while (mr_loader_next(l, &b, &err) > 0) {
        bytes += b->read_bytes;
        mr_loader_release(l, b);
    }
    mr_loader_close(l);
    return bytes;
}

static void only_selected_fields_are_read(void **state)
{
    (void)state;
    const uint64_t data = 40 * 4 * 4 * 48 * 72, mask = 40 * 4 * 48 * 72, weight = 40 * 8;
    assert_int_equal(bytes_read("hdf5", (const char *[]){"mask"}, 1, 0), mask);
    assert_int_equal(bytes_read("hdf5", (const char *[]){"weight"}, 1, 0), weight);
    assert_int_equal(bytes_read("hdf5", (const char *[]){"mask", "data"}, 2, 0), mask + data);
    uint64_t all = bytes_read("hdf5", everything, 1, MR_LOADER_RAW); /* neighbours are read over gaps of a page */
    assert_in_range(all, mask + data + weight, (mask + data + weight) * 101 / 100);
}

/* Tables of numbers are read as columns, many rows at a time: the same values, whatever the order, the batch and the
 * number of threads; what cannot be read is named by its row. */
static void columns_are_read_in_any_order(void **state)
{
    (void)state;
    static const enum mr_order_mode orders[] = {MR_ORDER_SEQUENTIAL, MR_ORDER_CIPHER, MR_ORDER_FILE};
    struct mr_arena arena = {0};
    struct mr_gen_spec spec;
    default_spec(&arena, &spec);
    spec.format = "parquet";
    spec.fields = "a:f4:-,b:i8:-,c:i2:3,d:f8:2x2";
    spec.files = 3;
    spec.samples_per_file = 1000;
    spec.labels = 9;
    spec.chunk = (struct mr_dims){.n = 1, .dim = {170}};
    write_set("table", &spec);
    mr_arena_done(&arena);
    for (size_t o = 0; o < MR_ARRAY_LEN(orders); o++)
        for (unsigned dense = 0; dense < 2; dense++) {
            char path[512], checked[512];
            struct mr_error err = {0};
            struct mr_batch *a, *b;
            struct mr_loader_params p = field_params("table", path), q = field_params("table", checked);
            p.order.mode = q.order.mode = orders[o];
            p.batch_size = q.batch_size = 700;
            p.flags = dense ? MR_LOADER_DENSE : 0; /* q's content is compared, sample by sample */
            p.threads = 3;
            struct mr_loader *l = must_open(&p), *m = must_open(&q);
            assert_int_equal(mr_loader_start_epoch(l, 1, &err), 0);
            assert_int_equal(mr_loader_start_epoch(m, 1, &err), 0);
            uint64_t rows = 0;
            while (mr_loader_next(l, &a, &err) > 0 && mr_loader_next(m, &b, &err) > 0) {
                assert_int_equal(a->n, b->n);
                assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
                assert_memory_equal(a->labels, b->labels, a->n * sizeof *a->labels);
                for (uint32_t k = 0; k < a->n_fields; k++)
                    for (uint32_t i = 0; i < a->n; i++) {
                        assert_int_equal(a->fields[k]->bytes[i], b->fields[k]->bytes[i]);
                        assert_memory_equal(a->fields[k]->rows[i], b->fields[k]->rows[i], a->fields[k]->bytes[i]);
                    }
                rows += a->n;
                mr_loader_release(l, a);
                mr_loader_release(m, b);
            }
            assert_int_equal(rows, 3000);
            mr_loader_close(l);
            mr_loader_close(m);
        }
}

static void two_of_forty_columns_cost_their_bytes(void **state)
{
    (void)state;
    char fields[1024] = "", path[512];
    struct mr_arena arena = {0};
    struct mr_gen_spec spec;
    struct mr_error err = {0};
    struct mr_batch *b;
    uint64_t bytes = 0, want = 0;
    for (unsigned i = 0; i < 40; i++)
        snprintf(fields + strlen(fields), sizeof fields - strlen(fields), "%sc%u:f%u:-", i ? "," : "", i,
                 i % 2 ? 4 : 8);
    default_spec(&arena, &spec);
    spec.format = "parquet";
    spec.fields = fields;
    spec.files = 2;
    spec.samples_per_file = 20000;
    spec.chunk = (struct mr_dims){.n = 1, .dim = {6144}};
    write_set("forty", &spec);
    mr_arena_done(&arena);
    struct mr_loader_params p = params("forty", path);
    p.order.mode = MR_ORDER_SEQUENTIAL;
    p.fields = (const char *[]){"c7", "c30"};
    p.n_fields = 2;
    p.batch_size = 1000;
    p.threads = 4;
    p.flags = 0;
    struct mr_loader *l = must_open(&p);
    assert_int_equal(mr_loader_start_epoch(l, 0, &err), 0);
    for (want = 40000 * (4 + 8); mr_loader_next(l, &b, &err) > 0; mr_loader_release(l, b))
        bytes += b->read_bytes;
    assert_in_range(bytes, want, want * 11 / 10);
    mr_loader_close(l);
}

static void costs_are_counted_per_field(void **state)
{
    (void)state;
    char path[512];
    uint64_t ids[64];
    struct mr_loader_field_stats s;
    struct mr_loader_params p = field_params("hdf5-gzip", path);
    struct mr_loader *l = must_open(&p);
    assert_int_equal(read_fields(l, 0, ids, UINT64_MAX, true), 40);
    assert_true(mr_loader_get_field_stats(l, 1, &s));
    assert_string_equal(s.name, "mask");
    assert_int_equal(s.samples, 40);
    assert_int_equal(s.bytes, 40 * 4 * 48 * 72);
    assert_true(s.stored_bytes > 0 && s.decode_ns > 0);
    assert_false(mr_loader_get_field_stats(l, 4, &s));
    struct {
        const char *name;
        uint64_t samples, behind;
    } older = {.behind = 77};
    assert_true(
        mr_loader_get_field_stats_sized(l, 0, (void *)&older, offsetof(struct mr_loader_field_stats, stored_bytes)));
    assert_int_equal(older.samples, 40);
    assert_int_equal(older.behind, 77);
    mr_loader_close(l);
}

static void wrong_selections_are_refused(void **state)
{
    (void)state;
    char path[512];
    struct mr_loader *l;
    struct mr_error err;
    struct mr_loader_params p = field_params("hdf5", path);
    const char *const none[] = {"masks"}, *const twice[] = {"mask", "mask"};
    p.fields = none;
    assert_int_equal(mr_loader_open(&p, &l, &err), MR_E_USAGE);
    assert_non_null(strstr(err.message, "'masks'"));
    assert_non_null(strstr(err.message, "'mask'"));
    p.fields = twice;
    p.n_fields = 2;
    assert_int_equal(mr_loader_open(&p, &l, &err), MR_E_USAGE);
    p.fields = NULL;
    assert_int_equal(mr_loader_open(&p, &l, &err), MR_E_USAGE);
}

/* ---- scan ---- */

static void keep_first(void *user, const char *path, const struct mr_error *why)
{
    struct mr_error *first = user;
    (void)path;
    if (!first->code)
        *first = *why;
}

static void write_one_file(const char *set, const char *prefix, const char *fields)
{
    struct mr_arena arena = {0};
    struct mr_gen_spec spec;
    default_spec(&arena, &spec);
    spec.format = "hdf5";
    spec.files = 1;
    spec.samples_per_file = 3;
    spec.prefix = prefix;
    spec.fields = fields;
    write_set(set, &spec);
    mr_arena_done(&arena);
}

/* Puts the second set's file beside the first one's and scans both. */
static int scan_together(const char *a, const char *b, struct mr_scan_result *r, struct mr_error *first)
{
    char command[2048], folder[512];
    struct mr_store *store;
    struct mr_error err;
    snprintf(command, sizeof command, "cd '%s' && rm -rf both && mkdir both && cp %s/train/*.h* %s/train/*.h* both",
             root, a, b);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(pclose(f), 0);
    snprintf(folder, sizeof folder, "%s/both", root);
    assert_int_equal(mr_store_open("posix", &store, &err), 0);
    *first = (struct mr_error){0};
    struct mr_scan_options o = {.store = store, .path = folder, .threads = 2, .bad = keep_first, .user = first};
    int rc = mr_scan(&o, r, &err);
    mr_store_close(store);
    return rc;
}

static void files_that_differ_are_named(void **state)
{
    (void)state;
    struct mr_scan_result r;
    struct mr_error err;
    write_one_file("a", "a", "data:f4:3x4,mask:i4:3x4");
    write_one_file("b", "b", "data:f4:3x4,mask:i8:3x4");
    write_one_file("c", "c", "data:f4:3x4,mask:i4:3x9");
    write_one_file("d", "d", "data:f4:3x4");
    assert_int_equal(scan_together("a", "b", &r, &err), MR_E_FORMAT);
    assert_non_null(strstr(err.message, "field 'mask' is i8 here and i4 in 'a_"));
    assert_int_equal(scan_together("a", "d", &r, &err), MR_E_FORMAT);
    assert_non_null(strstr(err.message, "no field 'mask'"));
    assert_int_equal(scan_together("a", "c", &r, &err), 0); /* shapes differ in one axis */
    assert_int_equal(r.fields, 2);
    struct mr_dataset *ds;
    char path[512];
    snprintf(path, sizeof path, "%s/both", root);
    assert_int_equal(mr_dataset_open(path, NULL, &ds, &err), 0);
    assert_int_equal(mr_dataset_fields(ds), 2);
    assert_int_equal(mr_dataset_field(ds, 0)->variable, MR_FIELD_FIXED);
    assert_int_equal(mr_dataset_field(ds, 1)->variable, 1);
    mr_dataset_close(ds);
}

static struct mr_batch *first_batch(const char *set, enum mr_loader_ragged ragged, struct mr_loader **l)
{
    char path[512];
    struct mr_error err = {0};
    struct mr_batch *b = NULL;
    struct mr_loader_params p = field_params(set, path);
    p.order.mode = MR_ORDER_SEQUENTIAL;
    p.flags = 0;
    p.ragged = ragged;
    *l = must_open(&p);
    if (mr_loader_start_epoch(*l, 0, &err) || mr_loader_next(*l, &b, &err) != 1)
        fail_msg("%s / %s", err.message, err.context);
    return b;
}

static void values_that_differ_are_listed_and_padded(void **state)
{
    (void)state;
    struct mr_scan_result r;
    struct mr_error err;
    struct mr_loader *list, *padded;
    assert_int_equal(scan_together("a", "c", &r, &err), 0);
    const struct mr_batch *lb = first_batch("both", MR_RAGGED_LIST, &list);
    const struct mr_batch *pb = first_batch("both", MR_RAGGED_PAD, &padded);
    const struct mr_batch_field *x = lb->fields[1], *y = pb->fields[1];
    assert_int_equal(lb->n, 6);
    assert_null(x->data);
    assert_non_null(x->shapes);
    assert_int_equal(y->shape.n_dims, 2);
    assert_int_equal(y->shape.dims[1], 9);
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t columns = i < 3 ? 4 : 9;
        const int32_t *row = x->rows[i], *wide = y->rows[i];
        assert_int_equal(x->shapes[i].dims[1], columns);
        assert_int_equal(y->lengths[2 * i], 3);
        assert_int_equal(y->lengths[2 * i + 1], columns);
        for (uint64_t k = 0; k < 27; k++)
            assert_int_equal(wide[k], k % 9 < columns ? row[k / 9 * columns + k % 9] : 0);
    }
    mr_loader_close(list);
    mr_loader_close(padded);
    char path[512];
    struct mr_loader *l;
    struct mr_loader_params p = field_params("both", path);
    p.ragged = MR_RAGGED_PACK; /* not along the second axis */
    assert_int_equal(mr_loader_open(&p, &l, &err), MR_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "'mask'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_of_reading_gives_what_was_written),
        cmocka_unit_test(a_loader_is_resumed_exactly),
        cmocka_unit_test(only_selected_fields_are_read),
        cmocka_unit_test(columns_are_read_in_any_order),
        cmocka_unit_test(two_of_forty_columns_cost_their_bytes),
        cmocka_unit_test(costs_are_counted_per_field),
        cmocka_unit_test(wrong_selections_are_refused),
        cmocka_unit_test(files_that_differ_are_named),
        cmocka_unit_test(values_that_differ_are_listed_and_padded),
    };
    return cmocka_run_group_tests(tests, make_sets, remove_sets);
}
