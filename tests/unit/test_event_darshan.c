/* Counters of Darshan: sums, files, ranks and OSTs of a small log; --total; several logs; binary ones by Darshan's own
 * program, or why not. */
#include "base/common.h"
#include "import/counters.h"
#include "import/trace_read.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define CORPUS MR_SOURCE_DIR "/tests/fuzz/corpus/darshan/"

static struct mr_trace *load(const char *one, const char *two)
{
    struct mr_trace *t;
    struct mr_error err;
    const char *paths[] = {one, two};
    assert_int_equal(mr_trace_create(&t, NULL), 0);
    if (mr_trace_add_all(t, paths, two ? 2 : 1, 1, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(mr_trace_finish(t, NULL), 0);
    return t;
}

static void sums_files_and_ranks(void **state)
{
    (void)state;
    struct mr_trace *t = load(CORPUS "four_ranks.txt", NULL);
    assert_non_null(t->counters);
    const struct mr_counters *c = &t->counters->total;
    assert_true(c->has_posix && c->has_mpiio && c->has_stdio && c->has_lustre && c->has_hdf5 && c->per_file);
    assert_int_equal(c->nprocs, 4);
    assert_float_equal(c->run_s, 10.5, 1e-9);
    assert_int_equal(c->value[MR_POSIX_OPENS], 7);
    assert_int_equal(c->value[MR_POSIX_READS], 45); /* -1 is unknown, not a number */
    assert_int_equal(c->value[MR_POSIX_BYTES_READ], 4000500);
    assert_true(isnan(c->value[MR_POSIX_SEEKS]));
    assert_int_equal(c->value[MR_STDIO_BYTES_WRITTEN], 2000000); /* standard output is left out */
    assert_int_equal(c->stdio_data_bytes, 2000000);
    assert_int_equal(c->value[MR_MPIIO_COLL_READS], 40);
    assert_int_equal(c->files, 4);
    assert_int_equal(c->shared_files, 1);
    assert_int_equal(c->shared_bytes, 4000000);
    assert_int_equal(c->written_once_files, 1);
    assert_int_equal(c->unique_read_bytes, 1000100);
    assert_int_equal(c->rank_reread_bytes, 400);     /* of 'small'; four ranks read all of the shared one once */
    assert_int_equal(c->rank_bytes_max, 4000000);    /* rank 0: its quarter, and 3 MB of its own */
    assert_float_equal(c->rank_time_max, 1.6, 1e-9); /* rank 0: 2.4 s / 4, and 1 s of its own */
    assert_int_equal(c->ost_count, 8);
    assert_float_equal(c->ost_bytes_max, 3000000 + 2000000, 1);
    assert_float_equal(c->ost_bytes_mean, 7000000.0 / 8, 1);
    assert_float_equal(c->stripe_count, (4.0 * 2 + 3 * 1) / 7, 1e-9);
    assert_string_equal(t->counters->file[1].path, "/scratch/own file.bin");
    assert_string_equal(t->counters->file[1].fs, "lustre");
    assert_string_equal(t->counters->program, "./train --epochs 2");
    assert_int_equal(t->first_ns, 1700000000000000000ull);
    assert_int_equal(t->last_ns - t->first_ns, 10500000000ull);
    assert_int_equal(t->notes, 1);
    assert_non_null(strstr(t->note[0].text, "no stall can be computed"));
    mr_trace_free(t);
}

static void totals_have_no_files(void **state)
{
    (void)state;
    struct mr_trace *t = load(CORPUS "total.txt", NULL);
    const struct mr_counters *c = &t->counters->total;
    assert_false(c->per_file);
    assert_true(isnan(c->files) && isnan(c->rank_bytes_max) && isnan(c->value[MR_POSIX_MAX_BYTE_READ]));
    assert_int_equal(c->value[MR_POSIX_OPENS], 17);
    mr_trace_free(t);
}

static void logs_of_several_processes_are_added_up(void **state)
{
    (void)state;
    char copy[] = "/tmp/mr-darshan-XXXXXX";
    char command[4200];
    int fd = mkstemp(copy);
    assert_true(fd >= 0);
    FILE *from = fopen(CORPUS "four_ranks.txt", "r"), *to = fdopen(fd, "w");
    assert_true(from && to);
    while (fgets(command, sizeof command, from))
        fputs(command, to);
    fclose(from);
    fclose(to);
    struct mr_trace *t = load(CORPUS "four_ranks.txt", copy);
    const struct mr_counters *c = &t->counters->total;
    assert_int_equal(t->counters->logs, 2);
    assert_int_equal(c->nprocs, 8);
    assert_int_equal(c->value[MR_POSIX_OPENS], 14);
    assert_int_equal(c->files, 4); /* the same ones */
    assert_int_equal(c->rank_bytes_max, 4000000);
    mr_trace_free(t);
    unlink(copy);
}

/* A stand-in for Darshan's program prints the text of the corpus. */
static void binary_logs_need_darshans_program(void **state)
{
    (void)state;
    char dir[] = "/tmp/mr-darshan-XXXXXX", log[64], parser[64];
    static const char head[16] = "3.41\0\0\0\0\x37\x35\x64\0\0\0\0";
    struct mr_trace *t;
    struct mr_error err;
    assert_non_null(mkdtemp(dir));
    snprintf(log, sizeof log, "%s/a.darshan", dir);
    snprintf(parser, sizeof parser, "%s/darshan-parser", dir);
    FILE *f = fopen(log, "w");
    fwrite(head, 1, sizeof head, f);
    fclose(f);
    char *before = strdup(getenv("PATH"));
    setenv("PATH", "/nonexistent", 1);
    assert_int_equal(mr_trace_create(&t, NULL), 0);
    assert_int_equal(mr_trace_add(t, log, &err), MR_E_FORMAT);
    assert_non_null(strstr(err.message, "'darshan-parser' is not on the PATH"));
    mr_trace_free(t);
    f = fopen(parser, "w");
    fprintf(f, "#!/bin/sh\n/bin/cat %sfour_ranks.txt\n", CORPUS);
    fclose(f);
    chmod(parser, 0700);
    setenv("PATH", dir, 1);
    t = load(log, NULL);
    assert_int_equal(t->counters->total.value[MR_POSIX_OPENS], 7);
    mr_trace_free(t);
    f = fopen(parser, "w");
    fprintf(f, "#!/bin/sh\nexit 1\n");
    fclose(f);
    assert_int_equal(mr_trace_create(&t, NULL), 0);
    assert_int_equal(mr_trace_add(t, log, &err), MR_E_FORMAT);
    assert_non_null(strstr(err.message, "fails"));
    mr_trace_free(t);
    setenv("PATH", before, 1);
    free(before);
    unlink(log);
    unlink(parser);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_files_and_ranks),
        cmocka_unit_test(totals_have_no_files),
        cmocka_unit_test(logs_of_several_processes_are_added_up),
        cmocka_unit_test(binary_logs_need_darshans_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
