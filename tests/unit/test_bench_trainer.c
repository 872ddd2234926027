/* The trainer over real forked ranks and real files: what it writes down is what happened. test-label: concurrent */
#include "base/clock.h"
#include "base/common.h"
#include "bench/trainer.h"
#include "dataset/generate.h"
#include "store/store.h"

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

static char root[] = "/tmp/mr-trainer-XXXXXX";

static int make_data(void **state)
{
    (void)state;
    struct mr_error err;
    struct mr_store *s = NULL;
    struct mr_gen *g = NULL;
    struct mr_gen_plan plan;
    char folder[128];
    struct mr_gen_spec spec = {.format = "npz",
                               .dtype = "uint8",
                               .prefix = "img",
                               .files = 24,
                               .samples_per_file = 1,
                               .seed = 3,
                               .size_bytes = 3000,
                               .size_stdev_bytes = 500,
                               .compression_level = 4,
                               .quality = 90};
    if (!mkdtemp(root))
        return -1;
    snprintf(folder, sizeof folder, "%s/train", root);
    struct mr_gen_options o = {.folder = folder, .plan = &plan, .world = 1, .threads = 1};
    int rc = mr_gen_plan_resolve(&spec, "train", &plan, &err);
    if (!rc)
        rc = mr_store_open("posix", &s, &err);
    o.store = s;
    if (!rc)
        rc = mr_gen_open(&o, &g, &err);
    if (rc || (rc = mr_gen_prepare(g, &err)) || (rc = mr_gen_run(g, &err)) || (rc = mr_gen_finish(g, &err)))
        fprintf(stderr, "%s\n", err.message);
    mr_gen_close(g);
    mr_store_close(s);
    return rc;
}

static int remove_file(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static int remove_data(void **state)
{
    (void)state;
    return nftw(root, remove_file, 16, FTW_DEPTH | FTW_PHYS);
}

struct job {
    struct mr_arena arena;
    struct mr_workload *w;
    struct mr_workload_plan plan;
    struct mr_bench_board *board;
    struct mr_comm *comm;
    atomic_bool stop;
};

static void open_job(struct job *j, const char *more, uint32_t ranks)
{
    struct mr_error err;
    char text[2048];
    *j = (struct job){.w = NULL};
    snprintf(text, sizeof text,
             "workflow: {train: true}\ndataset: {format: npz, num_files_train: 24, record_length_bytes: 3000}\n%s",
             more);
    if (mr_workload_parse(text, strlen(text), "t", false, &j->arena, &j->w, &err) ||
        mr_plan_make(j->w, ranks, &j->plan, &err))
        fail_msg("%s", err.message);
    assert_int_equal(mr_bench_board_create(ranks, 1000, 10, &j->board, &err), 0);
    assert_int_equal(mr_comm_open(ranks, 1, &j->comm, &err), 0);
}

/* Runs; in the children it ends here. */
static int run_job(struct job *j, struct mr_bench_params *p, struct mr_error *err)
{
    p->workload = j->w;
    p->plan = &j->plan;
    p->comm = j->comm;
    p->board = j->board;
    p->stop = &j->stop;
    p->data = root;
    int rc = mr_bench_run(p, err);
    bool child = j->comm->rank > 0;
    mr_comm_close(j->comm);
    if (child)
        _exit(0);
    return rc;
}

static void close_job(struct job *j)
{
    mr_bench_board_free(j->board);
    mr_arena_done(&j->arena);
}

static void parts_of_a_step_are_disjoint_and_inside_it(void **state)
{
    (void)state;
    struct job j;
    struct mr_error err = {0};
    struct mr_bench_params p = {.lookahead = -1, .seed = 5, .device_copy = true};
    struct mr_rank_series s[3];
    open_job(
        &j,
        "reader: {batch_size: 2, read_threads: 2, sample_shuffle: seed}\ntrain: {epochs: 3, computation_time: 0.002}\n",
        3);
    assert_int_equal(run_job(&j, &p, &err), 0);
    mr_bench_board_series(j.board, s);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(s[r].n, 12);
        for (size_t i = 0; i < s[r].n; i++) {
            const struct mr_step *x = &s[r].steps[i];
            assert_true(x->load_ns + x->copy_ns + x->compute_wall_ns + x->barrier_ns <= x->end_ns - x->start_ns);
            assert_true(x->compute_ns == 2000000 && x->compute_ns <= x->compute_wall_ns);
            assert_int_equal(x->samples, 2);
            assert_true(i == 0 || x->start_ns >= s[r].steps[i - 1].end_ns);
            assert_int_equal(x->epoch, i / 4);
        }
    }
    close_job(&j);
}

static void tell_stop(void *user)
{
    struct job *j = user;
    atomic_store(&j->stop, true);
}

static void the_time_limit_ends_all_ranks_at_one_step(void **state)
{
    (void)state;
    struct job j;
    struct mr_error err = {0};
    struct mr_bench_params p = {.lookahead = -1, .seed = 5, .max_ns = 60 * MR_NS_PER_MS};
    struct mr_rank_series s[2];
    open_job(&j, "reader: {batch_size: 2, read_threads: 1}\ntrain: {epochs: 100, computation_time: 0.004}\n", 2);
    assert_int_equal(run_job(&j, &p, &err), 0);
    mr_bench_board_series(j.board, s);
    assert_true(s[0].n >= 1 && s[0].n < 600);
    assert_int_equal(s[0].n, s[1].n);
    close_job(&j);
}

static void a_stop_ends_all_ranks_and_keeps_their_steps(void **state)
{
    (void)state;
    struct job j;
    struct mr_error err = {0};
    struct mr_bench_params p = {.lookahead = -1, .seed = 5};
    struct mr_rank_series s[2];
    open_job(&j, "reader: {batch_size: 2, read_threads: 1}\ntrain: {epochs: 100, computation_time: 0.004}\n", 2);
    if (j.comm->rank == 1) { /* only this rank is told, by its first tick */
        p.tick = tell_stop;
        p.tick_user = &j;
    }
    assert_int_equal(run_job(&j, &p, &err), MR_E_INTERRUPTED);
    mr_bench_board_series(j.board, s);
    assert_true(s[0].n >= 1 && s[0].n < 600);
    assert_int_equal(s[0].n, s[1].n);
    close_job(&j);
}

static void a_failing_read_is_everybodys_error(void **state)
{
    (void)state;
    struct job j;
    struct mr_error err = {0};
    struct mr_bench_params p = {
        .lookahead = -1, .seed = 5, .store = "fault(op=read,path=*img_07*,nth=2,error=EIO):posix"};
    struct mr_rank_series s[2];
    open_job(&j, "reader: {batch_size: 2, read_threads: 2}\ntrain: {epochs: 50}\n", 2);
    int rc = run_job(&j, &p, &err);
    assert_int_equal(rc, -5);
    assert_non_null(strstr(err.message, "img_07"));
    assert_non_null(strstr(err.context, "rank"));
    mr_bench_board_series(j.board, s);
    assert_int_equal(s[0].n, s[1].n);
    close_job(&j);
}

static void a_set_in_memory_is_read_once(void **state)
{
    (void)state;
    struct job j;
    struct mr_error err = {0};
    struct mr_bench_params p = {.lookahead = -1, .seed = 5};
    struct mr_rank_series s[1];
    open_job(&j,
             "reader: {batch_size: 5, read_threads: 2, read_type: memory, drop_last: false, sample_shuffle: seed}\n"
             "train: {epochs: 2}\n",
             1);
    assert_int_equal(run_job(&j, &p, &err), 0);
    mr_bench_board_series(j.board, s);
    assert_int_equal(s[0].n, 10);
    uint64_t bytes[2] = {0}, samples = 0;
    for (size_t i = 0; i < s[0].n; i++) {
        assert_int_equal(s[0].steps[i].read_bytes, 0);
        bytes[i / 5] += s[0].steps[i].sample_bytes;
        samples += s[0].steps[i].samples;
    }
    assert_int_equal(samples, 48);
    assert_int_equal(bytes[0], bytes[1]);
    close_job(&j);
}

/* Gradients: one sum of that many numbers after every training step, on every rank; a job of one does it, too. */
static uint64_t sums_made, numbers_summed;

static int count_sum(struct mr_comm *c, double *v, size_t n, enum mr_comm_op op, struct mr_error *err)
{
    (void)c, (void)v, (void)err;
    assert_int_equal(op, MR_COMM_SUM);
    sums_made++;
    numbers_summed += n;
    return 0;
}

static void gradients_are_summed_after_every_step(void **state)
{
    (void)state;
    struct job j;
    struct mr_error err;
    struct mr_bench_params p = {.store = "posix", .lookahead = -1};
    open_job(&j, "reader: {batch_size: 2}\ntrain: {epochs: 2, allreduce_bytes: 8004}\n", 1);
    struct mr_comm_ops ops = *j.comm->ops;
    ops.allreduce_f64 = count_sum;
    j.comm->ops = &ops;
    assert_int_equal(run_job(&j, &p, &err), 0);
    assert_int_equal(sums_made, 24);
    assert_int_equal(numbers_summed, 24 * 1001); /* whole numbers of 8 bytes */
    close_job(&j);
    open_job(&j, "reader: {batch_size: 2}\ntrain: {epochs: 2, allreduce_bytes: 3MB}\n",
             3); /* checks the sum by itself */
    assert_int_equal(run_job(&j, &p, &err), 0);
    assert_int_equal(atomic_load(&j.board->ranks[2].n_steps), 8);
    close_job(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_a_step_are_disjoint_and_inside_it),
        cmocka_unit_test(the_time_limit_ends_all_ranks_at_one_step),
        cmocka_unit_test(a_stop_ends_all_ranks_and_keeps_their_steps),
        cmocka_unit_test(a_failing_read_is_everybodys_error),
        cmocka_unit_test(a_set_in_memory_is_read_once),
        cmocka_unit_test(gradients_are_summed_after_every_step),
    };
    return cmocka_run_group_tests(tests, make_data, remove_data);
}
