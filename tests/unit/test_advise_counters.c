/* The advisor over counters made by hand: each pattern that costs is found by its own rule, and jobs like healthy ones
 * (large collective calls, a few files of their own, an interpreter's start-up) have no finding at all. */
#include "advise/advise.h"
#include "explain_testlib.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* 16 processes, 100 s, of which each reads 20 s and writes 20 s: 16 GiB in 1 MiB requests, each its own file. */
static struct mr_counters healthy_job(void)
{
    struct mr_counters c;
    for (unsigned i = 0; i < MR_COUNTER_COUNT; i++)
        c.value[i] = 0;
    memset(&c.nprocs, 0xff, (size_t)((char *)(&c + 1) - (char *)&c.nprocs));
    c.nprocs = 16;
    c.run_s = 100;
    c.has_mpiio = c.has_stdio = c.has_hdf5 = c.has_lustre = false;
    c.has_posix = c.per_file = true;
    c.files = 16;
    c.shared_files = c.shared_bytes = 0;
    c.rank_bytes_mean = c.rank_bytes_max = 2147483648.0;
    c.rank_reread_bytes = c.stdio_data_bytes = 0;
    c.value[MR_POSIX_OPENS] = 32;
    c.value[MR_POSIX_READS] = c.value[MR_POSIX_WRITES] = 16384;
    c.value[MR_POSIX_SIZE_READ_1M_4M] = c.value[MR_POSIX_SIZE_WRITE_1M_4M] = 16384;
    c.value[MR_POSIX_BYTES_READ] = c.value[MR_POSIX_BYTES_WRITTEN] = 16384 * 1048576.0;
    c.value[MR_POSIX_MAX_BYTE_READ] = c.value[MR_POSIX_MAX_BYTE_WRITTEN] = 1073741823;
    c.value[MR_POSIX_SEQ_READS] = c.value[MR_POSIX_CONSEC_READS] = 16368;
    c.value[MR_POSIX_SEQ_WRITES] = c.value[MR_POSIX_CONSEC_WRITES] = 16368;
    c.value[MR_POSIX_F_READ_TIME] = c.value[MR_POSIX_F_WRITE_TIME] = 320;
    c.value[MR_POSIX_F_META_TIME] = 1;
    return c;
}

static void share_file(struct mr_counters *c)
{
    c->shared_files = c->files = 1;
    c->shared_bytes = c->value[MR_POSIX_BYTES_READ] + c->value[MR_POSIX_BYTES_WRITTEN];
    c->value[MR_POSIX_SLOWEST_RANK_BYTES] = c->value[MR_POSIX_FASTEST_RANK_BYTES] = 2147483648.0;
    c->value[MR_POSIX_F_SLOWEST_RANK_TIME] = 40;
}

static void set_size(struct mr_counters *c, double bytes, enum mr_counter bin)
{
    c->value[MR_POSIX_SIZE_READ_1M_4M] = c->value[MR_POSIX_SIZE_WRITE_1M_4M] = 0;
    c->value[bin] = c->value[bin + 10] = 16384;
    c->value[MR_POSIX_BYTES_READ] = c->value[MR_POSIX_BYTES_WRITTEN] = 16384 * bytes;
}

static struct mr_explanation *advise(const struct mr_counters *c)
{
    struct mr_explanation *x = xt_new(1, 0, 0);
    struct mr_error err = {0};
    x->counters = c;
    x->facts.counters_only = true;
    x->trust.events = 0;
    assert_int_equal(mr_advise(x, &err), 0);
    return x;
}

/* Exactly the ids in `want`, separated by spaces. */
static void assert_findings(const struct mr_counters *c, const char *want)
{
    struct mr_explanation *x = advise(c);
    char got[256] = "";
    size_t words = 0;
    for (const char *p = want; *p; p += strcspn(p, " "), p += *p == ' ')
        words++;
    for (size_t i = 0; i < x->findings; i++) {
        strncat(got, x->finding[i].id, sizeof got - strlen(got) - 1);
        strncat(got, " ", sizeof got - strlen(got) - 1);
        if (!strstr(want, x->finding[i].id))
            fail_msg("not asked for: %s (%s)", x->finding[i].id, x->finding[i].title);
        assert_true(x->finding[i].severity > MR_SEVERITY_NOTE);
    }
    if (x->findings != words)
        fail_msg("'%s', not '%s'", got, want);
    assert_int_equal(x->verdict.verdict, words ? MR_VERDICT_IO : MR_VERDICT_HEALTHY);
    assert_non_null(x->verdict.line[0]);
    mr_explanation_free(x);
}

static void healthy_jobs_have_no_finding(void **state)
{
    (void)state;
    struct mr_counters c = healthy_job();
    assert_findings(&c, "");
    share_file(&c); /* collective calls on one file */
    c.has_mpiio = true;
    c.value[MR_MPIIO_COLL_READS] = c.value[MR_MPIIO_COLL_WRITES] = 16384;
    assert_findings(&c, "");
    c = healthy_job(); /* an interpreter that looks for its modules */
    c.value[MR_POSIX_OPENS] += 16 * 180;
    c.value[MR_POSIX_STATS] = 16 * 650;
    c.value[MR_POSIX_READS] += 16 * 300;
    c.value[MR_POSIX_SIZE_READ_1K_10K] = 16 * 300;
    c.value[MR_POSIX_F_META_TIME] = 16 * 5;
    assert_findings(&c, "");
}

/* Small requests that take 0.2 % of the run are a pattern, and nobody is bound by it. */
static void a_pattern_without_a_cost_makes_no_class(void **state)
{
    (void)state;
    struct mr_counters c = healthy_job();
    set_size(&c, 4096, MR_POSIX_SIZE_READ_1K_10K);
    double all = c.value[MR_POSIX_F_READ_TIME] + c.value[MR_POSIX_F_WRITE_TIME] + c.value[MR_POSIX_F_META_TIME];
    c.run_s = all / c.nprocs / 0.002;
    struct mr_explanation *x = advise(&c);
    assert_true(x->findings > 0);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_HEALTHY);
    assert_non_null(strstr(x->verdict.line[0], "without a cost"));
    assert_null(x->verdict.line[2]);
    mr_explanation_free(x);
}

static void small_requests(void **state)
{
    (void)state;
    struct mr_counters c = healthy_job();
    set_size(&c, 4096, MR_POSIX_SIZE_READ_1K_10K);
    assert_findings(&c, "SZ3");
    c.value[MR_POSIX_FILE_NOT_ALIGNED] = 32000;
    c.value[MR_POSIX_FILE_ALIGNMENT] = 1048576;
    assert_findings(&c, "SZ3 ALN1");
}

static void random_order(void **state)
{
    (void)state;
    struct mr_counters c = healthy_job();
    c.value[MR_POSIX_SEQ_READS] = 8200;
    c.value[MR_POSIX_CONSEC_READS] = 10;
    assert_findings(&c, "RND1");
    c = healthy_job(); /* strides ascend */
    c.value[MR_POSIX_CONSEC_READS] = c.value[MR_POSIX_CONSEC_WRITES] = 0;
    assert_findings(&c, "");
}

static void metadata_and_files(void **state)
{
    (void)state;
    struct mr_counters c = healthy_job();
    set_size(&c, 64, MR_POSIX_SIZE_READ_0_100);
    c.value[MR_POSIX_OPENS] = 32768;
    c.files = 16384;
    assert_findings(&c, "MD3");
    c = healthy_job();
    c.nprocs = 128;
    c.files = 133;
    c.value[MR_POSIX_OPENS] = 256;
    c.value[MR_POSIX_F_WRITE_TIME] = 128 * 20;
    assert_findings(&c, "FIL1");
}

static void sync_after_every_write(void **state)
{
    (void)state;
    struct mr_counters c = healthy_job();
    c.value[MR_POSIX_FSYNCS] = 16384;
    assert_findings(&c, "SYN1");
}

static void uneven_ranks_and_servers(void **state)
{
    (void)state;
    struct mr_counters c = healthy_job();
    c.rank_bytes_max = 10 * c.rank_bytes_mean;
    assert_findings(&c, "IMB1");
    c = healthy_job();
    share_file(&c);
    c.has_mpiio = c.has_lustre = true;
    c.value[MR_MPIIO_COLL_READS] = c.value[MR_MPIIO_COLL_WRITES] = 16384;
    c.stripe_count = 1;
    c.ost_count = 12;
    assert_findings(&c, "OST1");
}

static void interfaces(void **state)
{
    (void)state;
    struct mr_counters c = healthy_job();
    share_file(&c);
    assert_findings(&c, "MPI1");
    set_size(&c, 500000, MR_POSIX_SIZE_READ_100K_1M);
    share_file(&c);
    c.has_mpiio = true;
    c.value[MR_MPIIO_INDEP_READS] = c.value[MR_MPIIO_INDEP_WRITES] = 16384;
    assert_findings(&c, "COL1");
    c = healthy_job();
    c.has_stdio = true;
    c.value[MR_STDIO_BYTES_WRITTEN] = c.stdio_data_bytes = 64e9;
    c.value[MR_STDIO_F_WRITE_TIME] = 320;
    assert_findings(&c, "LIB1");
}

static void repeated_reads(void **state)
{
    (void)state;
    struct mr_counters c = healthy_job();
    c.rank_reread_bytes = c.value[MR_POSIX_BYTES_READ] = 100e9;
    assert_findings(&c, "REP1");
}

/* All files of a job put together as one record, of all ranks or of one: read once over, by each its own file, and by
 * one process far more than by the others. The same record with a fastest and a slowest rank is one shared file. */
static void sums_in_one_record_are_no_shared_file(void **state)
{
    (void)state;
    for (int of_all = 0; of_all < 2; of_all++) {
        struct mr_counters c = healthy_job();
        c.nprocs = 64;
        c.files = 1;
        c.value[MR_POSIX_OPENS] = 128;
        c.shared_files = of_all;
        c.shared_bytes = of_all ? 2 * 16384 * 1048576.0 : 0;
        c.rank_bytes_mean = 2 * 16384 * 1048576.0 / 64;
        c.rank_bytes_max = of_all ? c.rank_bytes_mean : 64 * c.rank_bytes_mean;
        c.rank_reread_bytes = 0.9 * 16384 * 1048576.0; /* of 64 files, by the length of one */
        c.value[MR_POSIX_MAX_BYTE_READ] = c.value[MR_POSIX_MAX_BYTE_WRITTEN] = 16384 * 1048576.0 / 64 - 1;
        assert_findings(&c, "FIL1");
        c.value[MR_POSIX_MAX_BYTE_WRITTEN] *= 4;
        assert_findings(&c, "FIL1 IMB1");
        c.value[MR_POSIX_SLOWEST_RANK_BYTES] = c.value[MR_POSIX_FASTEST_RANK_BYTES] = c.rank_bytes_mean;
        c.value[MR_POSIX_F_SLOWEST_RANK_TIME] = 10;
        c.rank_reread_bytes = 0;
        assert_findings(&c, "MPI1");
    }
}

static void a_log_without_run_time_is_incomplete(void **state)
{
    (void)state;
    struct mr_counters c = healthy_job();
    c.run_s = NAN;
    struct mr_explanation *x = advise(&c);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INCOMPLETE);
    assert_non_null(x->verdict.missing);
    mr_explanation_free(x);
}

/* Logs without the POSIX module. */
static void mpi_io_alone(void **state)
{
    struct mr_counters c = healthy_job();
    (void)state;
    for (unsigned i = 0; i < MR_COUNTER_COUNT; i++)
        c.value[i] = NAN;
    c.has_posix = false;
    c.has_mpiio = true;
    c.nprocs = 64;
    c.files = 1;
    c.value[MR_MPIIO_INDEP_OPENS] = 64;
    c.value[MR_MPIIO_INDEP_READS] = 640000;
    c.value[MR_MPIIO_BYTES_READ] = 640000 * 500.0;
    c.value[MR_MPIIO_F_READ_TIME] = 3000;
    assert_findings(&c, "SZ3 COL1");
    c.value[MR_MPIIO_INDEP_READS] = 0; /* the same bytes, asked for together */
    c.value[MR_MPIIO_COLL_READS] = 640000;
    assert_findings(&c, "");
    c.value[MR_MPIIO_COLL_READS] = 0;
    c.value[MR_MPIIO_INDEP_READS] = 640;
    c.value[MR_MPIIO_BYTES_READ] = 640 * 4194304.0;
    assert_findings(&c, "");
}

/* A module's name and not one counter: nothing is known, so nothing is healthy. */
static void a_log_without_counters_is_incomplete(void **state)
{
    struct mr_counters c = healthy_job();
    (void)state;
    for (unsigned i = 0; i < MR_COUNTER_COUNT; i++)
        c.value[i] = NAN;
    struct mr_explanation *x = advise(&c);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INCOMPLETE);
    mr_explanation_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(healthy_jobs_have_no_finding),
        cmocka_unit_test(a_pattern_without_a_cost_makes_no_class),
        cmocka_unit_test(small_requests),
        cmocka_unit_test(mpi_io_alone),
        cmocka_unit_test(a_log_without_counters_is_incomplete),
        cmocka_unit_test(random_order),
        cmocka_unit_test(metadata_and_files),
        cmocka_unit_test(sync_after_every_write),
        cmocka_unit_test(uneven_ranks_and_servers),
        cmocka_unit_test(interfaces),
        cmocka_unit_test(repeated_reads),
        cmocka_unit_test(sums_in_one_record_are_no_shared_file),
        cmocka_unit_test(a_log_without_run_time_is_incomplete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
