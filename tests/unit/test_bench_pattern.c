/* The pattern engine: every item once, right bytes in every row, bounded read-ahead, ends when told. test-label:
 * concurrent */
#include "base/common.h"
#include "base/content.h"
#include "bench/pattern_internal.h"
#include "dataset/generate.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#define FILES 6
#define PER_FILE 10
#define RECORD 700u

static char root[] = "/tmp/mr-pattern-XXXXXX";
static struct mr_store *store;
static struct mr_dataset *set;

static int make_data(void **state)
{
    (void)state;
    struct mr_error err;
    struct mr_gen *g = NULL;
    struct mr_gen_plan plan;
    struct mr_gen_spec spec = {.format = "indexed_binary",
                               .dtype = "uint8",
                               .prefix = "img",
                               .files = FILES,
                               .samples_per_file = PER_FILE,
                               .seed = 5,
                               .size_bytes = RECORD,
                               .compression_level = 4,
                               .quality = 90};
    if (!mkdtemp(root))
        return -1;
    struct mr_gen_options o = {.folder = root, .plan = &plan, .world = 1, .threads = 1};
    int rc = mr_gen_plan_resolve(&spec, "train", &plan, &err);
    if (!rc)
        rc = mr_store_open("posix", &store, &err);
    o.store = store;
    if (!rc)
        rc = mr_gen_open(&o, &g, &err);
    if (rc || (rc = mr_gen_prepare(g, &err)) || (rc = mr_gen_run(g, &err)) || (rc = mr_gen_finish(g, &err)))
        fprintf(stderr, "%s\n", err.message);
    mr_gen_close(g);
    return rc ? rc : mr_dataset_open_in(root, store, &set, &err);
}

static int remove_file(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static int remove_data(void **state)
{
    (void)state;
    mr_dataset_close(set);
    mr_store_close(store);
    return nftw(root, remove_file, 16, FTW_DEPTH | FTW_PHYS);
}

/* Samples of two fields, three files of ten; Parquet has row groups of four. */
static struct mr_dataset *make_fields(char *folder, const char *format)
{
    struct mr_error err;
    struct mr_gen *g = NULL;
    struct mr_gen_plan *plan = malloc(sizeof(*plan));
    struct mr_gen_spec spec = {.format = format,
                               .dtype = "uint8",
                               .prefix = "img",
                               .chunk = {.n = strcmp(format, "hdf5") != 0, .dim = {4}},
                               .fields = "a:u1:300,b:i2:25:target",
                               .files = 3,
                               .samples_per_file = PER_FILE,
                               .seed = 5,
                               .size_bytes = RECORD,
                               .compression_level = 4,
                               .quality = 90};
    struct mr_dataset *made = NULL;
    struct mr_gen_options o = {.store = store, .folder = folder, .plan = plan, .world = 1, .threads = 1};
    assert_non_null(mkdtemp(folder));
    int rc = mr_gen_plan_resolve(&spec, "train", plan, &err);
    if (!rc)
        rc = mr_gen_open(&o, &g, &err);
    if (rc || (rc = mr_gen_prepare(g, &err)) || (rc = mr_gen_run(g, &err)) || (rc = mr_gen_finish(g, &err)) ||
        (rc = mr_dataset_open_in(folder, store, &made, &err)) ||
        (rc = mr_dataset_select(made, (const char *const[]){"a", "b"}, 2, &err)))
        fail_msg("%s", err.message);
    mr_gen_close(g);
    free(plan);
    return made;
}

static struct mr_workload *parse(struct mr_arena *a, const char *more)
{
    struct mr_error err;
    struct mr_workload *w = NULL;
    char text[1024];
    snprintf(
        text, sizeof text,
        "workflow: {train: true}\ndataset: {format: indexed_binary, num_files_train: 6, num_samples_per_file: 10}\n%s",
        more);
    if (mr_workload_parse(text, strlen(text), "t", false, a, &w, &err))
        fail_msg("%s", err.message);
    return w;
}

/* Reads all epochs of one rank; counts[epoch][id]. Every row must hold its sample's content. */
static void drink(struct mr_pattern *s, uint64_t epochs, unsigned *counts, bool whole)
{
    const struct mr_content c = {.seed = 5};
    struct mr_pattern_batch b;
    struct mr_error err;
    assert_int_equal(mr_pattern_preload(s, &err), 0);
    for (uint64_t e = 0; e < epochs; e++)
        for (uint64_t i = 0; i < mr_pattern_batches(s); i++) {
            if (mr_pattern_next(s, &b, &err) != 1)
                fail_msg("%s", err.message);
            for (uint32_t k = 0; k < b.n; k++) {
                assert_true(b.bytes[k] <= RECORD && (!whole || b.bytes[k] == RECORD));
                assert_int_equal(mr_content_verify(&c, b.ids[k], 0, b.rows[k], b.bytes[k]), b.bytes[k]);
                counts[e * FILES * PER_FILE + b.ids[k]]++;
            }
            mr_pattern_release(s);
        }
    assert_int_equal(mr_pattern_finish(s, &err), 0);
}

static struct mr_pattern *open_set(const struct mr_workload *w, const struct mr_dataset *from, unsigned readers)
{
    struct mr_error err;
    struct mr_pattern *s = NULL;
    const struct mr_pattern_params p = {.workload = w,
                                        .dataset = from,
                                        .store = store,
                                        .world = 1,
                                        .seed = 9,
                                        .readers = readers,
                                        .prefetch = 2,
                                        .keep = true,
                                        .verify = true};
    if (mr_pattern_open(&p, &s, &err))
        fail_msg("%s", err.message);
    return s;
}

/* A byte of the last value of the second field of the last file. */
static void damage(const struct mr_dataset *fields)
{
    struct mr_manifest_pos pos;
    struct mr_field_place place;
    struct mr_error err;
    char path[2 * MR_NAME_MAX];
    const struct mr_manifest *m = mr_dataset_manifest(fields);
    assert_int_equal(mr_manifest_locate(m, 29, &pos, &err), 0);
    assert_int_equal(mr_manifest_locate_field(m, 1, 29, &pos, &place, &err), 0);
    assert_int_equal(mr_dataset_file_path(fields, pos.file, path, &err), 0);
    FILE *f = fopen(path, "r+b");
    assert_int_equal(fseek(f, (long)place.ref.raw.offset + 3, SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, (long)place.ref.raw.offset + 3, SEEK_SET), 0);
    fputc(c ^ 1, f);
    fclose(f);
}

/* By record, by runs that cross files and the end of the set, by file: every value of both fields, rows of the first. */
static void fields_of_records_and_files_are_read_and_compared(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        uint64_t read_bytes; /* of an epoch; 0: files */
    } cases[] = {
        {"reader: {batch_size: 3, sample_shuffle: seed, drop_last: false}\npattern: {unit: record}\n", 30 * 350},
        {"reader: {batch_size: 3, drop_last: false, transfer_size: 100}\npattern: {unit: record, sequential_samples: "
         "4}\n",
         32 * 350},
        {"reader: {batch_size: 5, drop_last: false, file_shuffle: seed}\npattern: {unit: file}\n", 0},
        {"reader: {batch_size: 3, drop_last: false}\npattern: {unit: record, part: 0.5}\n", 30 * 200},
    };
    char folder[] = "/tmp/mr-pattern-fields-XXXXXX";
    struct mr_dataset *fields = make_fields(folder, "hdf5");
    for (size_t i = 0; i < MR_ARRAY_LEN(cases) * 2; i++) {
        struct mr_arena a = {0};
        const struct mr_workload *w = parse(&a, cases[i / 2].more);
        struct mr_pattern *s = open_set(w, fields, i % 2 ? 3 : 0);
        struct mr_pattern_batch b;
        struct mr_error err;
        struct mr_loader_stats stats;
        const struct mr_content c = {.seed = 5};
        unsigned counts[30] = {0};
        uint64_t most = i / 2 == 3 ? 150 : 300;
        assert_int_equal(mr_pattern_preload(s, &err), 0);
        for (uint64_t n = mr_pattern_batches(s); n > 0; n--) {
            if (mr_pattern_next(s, &b, &err) != 1)
                fail_msg("%s", err.message);
            assert_int_equal(b.sample_bytes, b.n * (most + 50));
            for (uint32_t k = 0; k < b.n; k++) {
                assert_int_equal(b.bytes[k], most);
                assert_int_equal(mr_content_verify(&c, b.ids[k], 0, b.rows[k], most), most);
                counts[b.ids[k]]++;
            }
            mr_pattern_release(s);
        }
        for (unsigned id = 0; id < 30; id++)
            assert_in_range(counts[id], 1, i / 2 == 1 ? 2 : 1);
        mr_pattern_get_stats(s, &stats);
        if (cases[i / 2].read_bytes)
            assert_int_equal(stats.read_bytes, cases[i / 2].read_bytes);
        mr_pattern_close(s);
        mr_arena_done(&a);
    }
    damage(fields);
    struct mr_arena a = {0};
    struct mr_pattern *s = open_set(parse(&a, cases[1].more), fields, 0);
    struct mr_pattern_batch b;
    struct mr_error err;
    int rc = mr_pattern_preload(s, &err);
    for (uint64_t n = mr_pattern_batches(s); n > 0 && rc >= 0; n--) {
        rc = mr_pattern_next(s, &b, &err);
        if (rc > 0)
            mr_pattern_release(s);
    }
    assert_int_equal(rc, MR_E_CORRUPT);
    assert_non_null(strstr(err.context, "field 'b'"));
    mr_pattern_close(s);
    mr_arena_done(&a);
    mr_dataset_close(fields);
    nftw(folder, remove_file, 16, FTW_DEPTH | FTW_PHYS);
}

struct chunk_sum {
    uint64_t n, bytes;
};

static int sum_chunk(void *user, const struct mr_pattern_range *r, struct mr_error *err)
{
    struct chunk_sum *s = user;
    (void)err;
    s->n++;
    s->bytes += r->bytes;
    return 0;
}

/* Column chunks as they lie in the file: each is read once for the run of records that share it, and every byte of a
 * chunk is in a row. */
static void chunks_of_tables_are_read_once_and_not_decoded(void **state)
{
    (void)state;
    char folder[] = "/tmp/mr-pattern-chunks-XXXXXX";
    struct mr_dataset *fields = make_fields(folder, "parquet");
    struct mr_arena a = {0};
    struct mr_error err;
    const struct mr_workload *w =
        parse(&a, "reader: {batch_size: 4, drop_last: false}\npattern: {unit: record, sequential_samples: 2}\n");
    const struct mr_pattern_params p = {
        .workload = w, .dataset = fields, .store = store, .world = 1, .seed = 9, .keep = true};
    struct mr_pattern *s = NULL;
    struct mr_pattern_batch b;
    struct mr_loader_stats stats;
    uint64_t rows = 0;
    assert_int_equal(mr_pattern_open(&p, &s, &err), 0);
    assert_int_equal(mr_pattern_preload(s, &err), 0);
    for (uint64_t n = mr_pattern_batches(s); n > 0; n--) {
        if (mr_pattern_next(s, &b, &err) != 1)
            fail_msg("%s", err.message);
        rows += b.n;
        assert_true(b.bytes[0] > 350); /* a half of two chunks of four values */
        mr_pattern_release(s);
    }
    assert_int_equal(rows, 30);
    /* Row groups of 4, 4 and 2: runs of two begin a chunk twice, but for the last of a file. */
    struct chunk_sum all = {0};
    for (uint64_t id = 0; id < 30; id += 2) {
        struct pattern_slot slot = {.first_id = id};
        struct chunk_sum one = {0};
        assert_int_equal(mr_pattern_each_range(s, &slot, sum_chunk, &one, &err), 0);
        assert_int_equal(one.n, 2);
        all.bytes += one.bytes;
    }
    mr_pattern_get_stats(s, &stats);
    assert_int_equal(stats.read_bytes, all.bytes);
    mr_pattern_close(s);
    const struct mr_pattern_params compares = {
        .workload = w, .dataset = fields, .store = store, .world = 1, .keep = true, .verify = true};
    assert_int_equal(mr_pattern_open(&compares, &s, &err), MR_E_CONFIG);
    mr_arena_done(&a);
    mr_dataset_close(fields);
    nftw(folder, remove_file, 16, FTW_DEPTH | FTW_PHYS);
}

static struct mr_pattern *open_rank(const struct mr_workload *w, uint32_t rank, uint32_t world, unsigned readers,
                                    unsigned prefetch)
{
    struct mr_error err;
    struct mr_pattern *s = NULL;
    const struct mr_pattern_params p = {.workload = w,
                                        .dataset = set,
                                        .store = store,
                                        .rank = rank,
                                        .world = world,
                                        .seed = 9,
                                        .readers = readers,
                                        .prefetch = prefetch,
                                        .drop_last = w->reader.drop_last,
                                        .keep = true,
                                        .verify = true};
    if (mr_pattern_open(&p, &s, &err))
        fail_msg("%s", err.message);
    return s;
}

static void every_sample_once_per_epoch_over_all_ranks(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        uint32_t world;
        unsigned readers, prefetch;
    } cases[] = {
        {"reader: {batch_size: 3, sample_shuffle: seed, drop_last: false}\npattern: {unit: record}\ntrain: {epochs: "
         "3}\n",
         2, 3, 2},
        {"reader: {batch_size: 4, drop_last: false, transfer_size: 100}\npattern: {unit: record}\ntrain: {epochs: 2}\n",
         3, 0, 0},
        {"reader: {batch_size: 4, file_access: shared, drop_last: false}\npattern: {unit: record}\ntrain: {epochs: "
         "2}\n",
         4, 2, 7},
        {"reader: {batch_size: 4, file_shuffle: seed, drop_last: false, transfer_size: 999}\npattern: {unit: "
         "file}\ntrain: {epochs: 3}\n",
         3, 2, 1},
        {"reader: {batch_size: 7, drop_last: false}\npattern: {unit: file}\ntrain: {epochs: 2}\n", 1, 0, 3},
        {"reader: {batch_size: 5, read_type: memory, sample_shuffle: seed}\npattern: {unit: record}\ntrain: {epochs: "
         "3}\n",
         2, 3, 2},
        {"reader: {batch_size: 5, read_type: memory}\npattern: {unit: file}\ntrain: {epochs: 2}\n", 2, 1, 0},
        {"reader: {batch_size: 4, sample_shuffle: seed, drop_last: false}\npattern: {unit: record, sequential_samples: "
         "5, pieces: [64, 200]}\n",
         3, 4, 4},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_arena a = {0};
        struct mr_workload *w = parse(&a, cases[i].more);
        uint64_t epochs = (uint64_t)w->train.epochs;
        unsigned counts[3 * FILES * PER_FILE] = {0};
        for (uint32_t r = 0; r < cases[i].world; r++) {
            struct mr_pattern *s = open_rank(w, r, cases[i].world, cases[i].readers, cases[i].prefetch);
            drink(s, epochs, counts, true);
            mr_pattern_close(s);
        }
        for (uint64_t k = 0; k < epochs * FILES * PER_FILE; k++)
            if (counts[k] != 1)
                fail_msg("case %zu: sample %llu was read %u times", i, (unsigned long long)k, counts[k]);
        mr_arena_done(&a);
    }
}

static void a_part_of_a_file_gives_the_rows_in_it(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_workload *w = parse(&a, "reader: {batch_size: 10}\npattern: {unit: file, part: 0.25}\n");
    unsigned counts[FILES * PER_FILE] = {0};
    struct mr_loader_stats stats;
    struct mr_pattern *s = open_rank(w, 0, 1, 2, 1);
    drink(s, 1, counts, false);
    mr_pattern_get_stats(s, &stats);
    assert_int_equal(stats.read_bytes, FILES * PER_FILE * RECORD / 4);
    assert_int_equal(stats.sample_bytes, stats.read_bytes);
    mr_pattern_close(s);
    mr_arena_done(&a);
}

static void same_offsets_gives_every_rank_everything(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_workload *w =
        parse(&a, "reader: {batch_size: 6, sample_shuffle: seed}\npattern: {unit: record, same_offsets: true}\n");
    unsigned counts[FILES * PER_FILE] = {0};
    for (uint32_t r = 0; r < 3; r++) {
        struct mr_pattern *s = open_rank(w, r, 3, 1, 1);
        assert_int_equal(mr_pattern_batches(s), FILES * PER_FILE / 6);
        drink(s, 1, counts, true);
        mr_pattern_close(s);
    }
    for (unsigned k = 0; k < FILES * PER_FILE; k++)
        assert_int_equal(counts[k], 3);
    mr_arena_done(&a);
}

/* Without a step asking, readers stop at what prefetch allows; a stop ends them and the consumer. */
static void read_ahead_is_bounded_and_stops(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_error err;
    struct mr_pattern_batch b;
    struct mr_loader_stats stats;
    struct mr_workload *w = parse(&a, "reader: {batch_size: 4}\npattern: {unit: record}\ntrain: {epochs: 5}\n");
    struct mr_pattern *s = open_rank(w, 0, 1, 3, 2);
    assert_int_equal(mr_pattern_preload(s, &err), 0);
    assert_int_equal(mr_pattern_next(s, &b, &err), 1); /* step 0, and two more may be read */
    do {
        usleep(1000);
        mr_pattern_get_stats(s, &stats);
    } while (stats.read_bytes < 12 * RECORD);
    usleep(20000);
    mr_pattern_get_stats(s, &stats);
    assert_int_equal(stats.read_bytes, 12 * RECORD);
    mr_pattern_release(s);
    mr_pattern_stop(s);
    for (int i = 0; i < 4; i++) /* what is there may still come */
        if (mr_pattern_next(s, &b, &err) == MR_E_INTERRUPTED)
            break;
        else
            mr_pattern_release(s);
    assert_int_equal(mr_pattern_next(s, &b, &err), MR_E_INTERRUPTED);
    mr_pattern_close(s);
    mr_arena_done(&a);
}

static void a_failing_read_is_the_next_batchs_error(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_error err;
    struct mr_pattern_batch b;
    struct mr_store *bad;
    struct mr_pattern *s = NULL;
    struct mr_workload *w = parse(&a, "reader: {batch_size: 4}\npattern: {unit: record}\n");
    assert_int_equal(mr_store_open("fault(op=read,nth=9,error=EIO):posix", &bad, &err), 0);
    const struct mr_pattern_params p = {
        .workload = w, .dataset = set, .store = bad, .world = 1, .readers = 2, .prefetch = 1, .keep = true};
    assert_int_equal(mr_pattern_open(&p, &s, &err), 0);
    int rc = 1;
    for (int i = 0; i < 5 && rc == 1; i++) {
        rc = mr_pattern_next(s, &b, &err);
        mr_pattern_release(s);
    }
    assert_int_equal(rc, -5);
    assert_non_null(strstr(err.message, "img"));
    mr_pattern_close(s);
    mr_store_close(bad);
    mr_arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_of_records_and_files_are_read_and_compared),
        cmocka_unit_test(chunks_of_tables_are_read_once_and_not_decoded),
        cmocka_unit_test(every_sample_once_per_epoch_over_all_ranks),
        cmocka_unit_test(a_part_of_a_file_gives_the_rows_in_it),
        cmocka_unit_test(same_offsets_gives_every_rank_everything),
        cmocka_unit_test(read_ahead_is_bounded_and_stops),
        cmocka_unit_test(a_failing_read_is_the_next_batchs_error),
    };
    return cmocka_run_group_tests(tests, make_data, remove_data);
}
