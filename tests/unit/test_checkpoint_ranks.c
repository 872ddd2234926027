/* Checkpoints of several ranks, forked: one folder holds all shares, any rank's failure fails all with its message,
 * another number of ranks still reads every file once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "base/common.h"
#include "comm/comm.h"
#include "unit/checkpoint_test.h"

#define CHECK(c, condition)                                                                                            \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rank %u of %u, line %d: %s\n", (c)->rank, (c)->world, __LINE__, #condition);              \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static int agree(void *user, int code, struct mr_error *err)
{
    return mr_comm_agree(user, code, err);
}

static struct mr_checkpointer *open_on(struct mr_comm *c, const char *store)
{
    struct mr_checkpointer *k;
    struct mr_error e;
    struct mr_checkpoint_params p = {.folder = ct_dir,
                                     .store = store,
                                     .rank = c->rank,
                                     .world = c->world,
                                     .fsync = true,
                                     .threads = 2,
                                     .buffer_bytes = 4096,
                                     .random_content = true,
                                     .agree = agree,
                                     .user = c};
    CHECK(c, mr_checkpointer_open(&p, &k, &e) == 0);
    return k;
}

/* Rank r has r files, so rank 0 has none; file f of rank r has 1000 * r + f bytes. */
static uint64_t share(uint32_t rank, struct mr_checkpoint_file *files)
{
    for (uint32_t f = 0; f < rank; f++) {
        files[f] = (struct mr_checkpoint_file){.bytes = 1000 * rank + f};
        snprintf(files[f].name, sizeof files[f].name, "model-%05u-%u.bin", rank, f);
    }
    return rank;
}

static uint64_t share_bytes(uint32_t rank)
{
    return 1000ull * rank * rank + (uint64_t)rank * (rank ? rank - 1 : 0) / 2;
}

static void save_and_load(struct mr_comm *c)
{
    struct mr_checkpointer *k = open_on(c, "posix");
    struct mr_checkpoint_file files[8];
    struct mr_checkpoint_result r;
    struct mr_error e;
    uint64_t n = share(c->rank, files), step;
    for (uint64_t s = 1; s <= 2; s++) {
        CHECK(c, mr_checkpoint_save(k, s, files, n, &r, &e) == 0);
        CHECK(c, r.files == n && r.bytes == share_bytes(c->rank));
    }
    CHECK(c, mr_checkpoint_newest(k, &step, &e) == 0 && step == 2);
    for (uint32_t shift = 0; shift <= c->world; shift++) {
        uint32_t owner = (c->rank + shift) % c->world;
        CHECK(c, mr_checkpoint_load(k, UINT64_MAX, shift, &r, &e) == 0);
        CHECK(c, r.files == owner && r.bytes == share_bytes(owner));
    }
    CHECK(c, ct_count(r.path, ".part") == 0);
    CHECK(c, ct_count(r.path, "") == c->world * (c->world - 1) / 2 + 1);
    mr_checkpointer_close(k);
}

/* A job of another size reads each of the 0 + 1 + ... + 6 files that seven ranks wrote exactly once. */
static void load_all(struct mr_comm *c)
{
    struct mr_checkpointer *k = open_on(c, "posix");
    struct mr_checkpoint_result r;
    struct mr_error e;
    CHECK(c, mr_checkpoint_load(k, UINT64_MAX, 1, &r, &e) == 0);
    uint64_t sums[2] = {r.files, r.bytes}, want = 0;
    CHECK(c, mr_comm_allreduce_u64(c, sums, 2, MR_COMM_SUM, &e) == 0);
    for (uint32_t rank = 0; rank < 7; rank++)
        want += share_bytes(rank);
    CHECK(c, sums[0] == 21 && sums[1] == want);
    mr_checkpointer_close(k);
}

/* The last rank's disk is full in the second save: nobody has a new checkpoint, all know why. */
static void one_fails(struct mr_comm *c)
{
    struct mr_checkpointer *k = open_on(c, "posix");
    struct mr_checkpoint_file files[8];
    struct mr_checkpoint_result r;
    struct mr_error e;
    uint64_t n = share(c->rank, files), step;
    CHECK(c, mr_checkpoint_save(k, 1, files, n, &r, &e) == 0);
    mr_checkpointer_close(k);
    k = open_on(c, c->rank == c->world - 1 ? "fault(op=write,nth=1,error=ENOSPC):posix" : "posix");
    CHECK(c, mr_checkpoint_save(k, 2, files, n, &r, &e) == -ENOSPC);
    char where[32];
    snprintf(where, sizeof where, "rank %u", c->world - 1);
    CHECK(c, strstr(e.message, "step-000000000002.tmp") && strstr(e.context, where));
    CHECK(c, mr_comm_barrier(c, &e) == 0);
    CHECK(c, ct_count(ct_dir, "") == 1);
    CHECK(c, mr_checkpoint_newest(k, &step, &e) == 0 && step == 1);
    CHECK(c, mr_checkpoint_load(k, UINT64_MAX, 0, &r, &e) == 0);
    CHECK(c, mr_checkpoint_save(k, 2, files, n, &r, &e) == 0); /* the fault is over */
    mr_checkpointer_close(k);
}

static void same_name_on_two_ranks(struct mr_comm *c)
{
    struct mr_checkpointer *k = open_on(c, "posix");
    struct mr_checkpoint_file f = ct_file("model.bin", 100000);
    struct mr_checkpoint_result r;
    struct mr_error e;
    CHECK(c, mr_checkpoint_save(k, 1, &f, 1, &r, &e) == MR_E_USAGE);
    CHECK(c, strstr(e.message, "model.bin"));
    CHECK(c, mr_comm_barrier(c, &e) == 0);
    CHECK(c, ct_count(ct_dir, "") == 0);
    mr_checkpointer_close(k);
}

static void damage_on_one_rank(struct mr_comm *c)
{
    struct mr_checkpointer *k = open_on(c, "posix");
    struct mr_checkpoint_file files[8];
    struct mr_checkpoint_result r;
    struct mr_error e;
    CHECK(c, mr_checkpoint_save(k, 1, files, share(c->rank, files), &r, &e) == 0);
    if (c->rank == 1) {
        char path[512];
        ct_path(path, sizeof path, 1, "model-00001-0.bin");
        CHECK(c, truncate(path, 999) == 0);
    }
    CHECK(c, mr_comm_barrier(c, &e) == 0);
    CHECK(c, mr_checkpoint_load(k, 1, 0, &r, &e) == MR_E_CORRUPT);
    CHECK(c, strstr(e.message, "model-00001-0.bin' has 999 bytes") && strstr(e.context, "rank 1"));
    mr_checkpointer_close(k);
}

/* Stores of one process: every rank for itself, no hang. */
static void private_stores(struct mr_comm *c)
{
    struct mr_checkpoint_file files[8];
    struct mr_checkpoint_result r;
    struct mr_error e;
    const char *stores[] = {"memory", "null"};
    for (int i = 0; i < 2; i++) {
        struct mr_checkpointer *k = open_on(c, stores[i]);
        CHECK(c, mr_checkpoint_save(k, 1, files, share(c->rank, files), &r, &e) == 0);
        CHECK(c, mr_checkpoint_load(k, 1, 0, &r, &e) == (i ? MR_E_UNSUPPORTED : 0));
        CHECK(c, r.files == c->rank);
        mr_checkpointer_close(k);
    }
}

static int sum(void *user, uint64_t *value, struct mr_error *err)
{
    return mr_comm_allreduce_u64(user, value, 1, MR_COMM_SUM, err);
}

/* Room for one checkpoint of all ranks; the last rank's buffer fails once in the third save. */
static void through_a_burst_buffer(struct mr_comm *c)
{
    char folder[320], burst[320];
    struct mr_checkpointer *k;
    struct mr_checkpoint_file files[8];
    struct mr_checkpoint_result r;
    struct mr_error e;
    uint64_t n = share(c->rank, files), all = share_bytes(c->rank);
    bool last = c->rank == c->world - 1;
    CHECK(c, mr_comm_allreduce_u64(c, &all, 1, MR_COMM_SUM, &e) == 0);
    snprintf(folder, sizeof folder, "%s/final", ct_dir);
    snprintf(burst, sizeof burst, "%s/burst", ct_dir);
    struct mr_checkpoint_params p = {
        .folder = folder,
        .rank = c->rank,
        .world = c->world,
        .fsync = true,
        .buffer_bytes = 4096,
        .random_content = true,
        .keep_last = 3,
        .agree = agree,
        .burst_folder = burst,
        .burst_store = last ? "fault(op=open,path=*step-000000000003*,nth=1,error=ENOSPC):posix" : "posix",
        .burst_bytes = all,
        .sum = sum,
        .user = c};
    CHECK(c, mr_checkpointer_open(&p, &k, &e) == 0);
    for (uint64_t step = 1; step <= 4; step++) {
        CHECK(c, mr_checkpoint_save(k, step, files, n, &r, &e) == 0);
        CHECK(c, r.files == n && r.bytes == share_bytes(c->rank));
        CHECK(c, r.buffered == (step != 3));
    }
    CHECK(c, mr_checkpoint_drain(k, &e) == 0 && mr_checkpoint_buffered(k) == 0);
    struct mr_checkpoint_drained d[8];
    CHECK(c, mr_checkpoint_drains(k, 0, d, 8) == (c->rank ? 0 : 3));
    CHECK(c, c->rank || (d[2].step == 4 && d[2].bytes == all));
    CHECK(c, ct_count(folder, "") == 3);
    CHECK(c, mr_checkpoint_load(k, UINT64_MAX, 1, &r, &e) == 0 && !r.buffered);
    CHECK(c, r.bytes == share_bytes((c->rank + 1) % c->world));
    mr_checkpointer_close(k);
}

/* The final storage takes nothing: the drain's error is everybody's, and all read from the buffer. */
static void burst_buffer_cannot_drain(struct mr_comm *c)
{
    char folder[320], burst[320];
    struct mr_checkpointer *k;
    struct mr_checkpoint_file files[8];
    struct mr_checkpoint_result r;
    struct mr_error e;
    snprintf(folder, sizeof folder, "%s/final", ct_dir);
    snprintf(burst, sizeof burst, "%s/burst", ct_dir);
    struct mr_checkpoint_params p = {.folder = folder,
                                     .store = "fault(op=write,every=1,error=EROFS):posix",
                                     .rank = c->rank,
                                     .world = c->world,
                                     .agree = agree,
                                     .burst_folder = burst,
                                     .sum = sum,
                                     .user = c};
    CHECK(c, mr_checkpointer_open(&p, &k, &e) == 0);
    CHECK(c, mr_checkpoint_save(k, 1, files, share(c->rank, files), &r, &e) == 0 && r.buffered);
    CHECK(c, mr_checkpoint_drain(k, &e) == -EROFS);
    CHECK(c, strstr(e.context, "draining the checkpoint of step 1"));
    CHECK(c, mr_checkpoint_load(k, UINT64_MAX, 0, &r, &e) == 0 && r.buffered && r.files == c->rank);
    mr_checkpointer_close(k);
}

/* Every rank has a buffer of its own, as on the nodes of a cluster: each drains what it has. */
static void burst_buffer_of_each_rank(struct mr_comm *c)
{
    char folder[320], burst[320];
    struct mr_checkpointer *k;
    struct mr_checkpoint_file files[8];
    struct mr_checkpoint_result r;
    struct mr_error e;
    snprintf(folder, sizeof folder, "%s/final", ct_dir);
    snprintf(burst, sizeof burst, "%s/burst-%u", ct_dir, c->rank);
    struct mr_checkpoint_params p = {.folder = folder,
                                     .rank = c->rank,
                                     .world = c->world,
                                     .agree = agree,
                                     .burst_folder = burst,
                                     .sum = sum,
                                     .user = c};
    CHECK(c, mr_checkpointer_open(&p, &k, &e) == 0);
    for (uint64_t step = 1; step <= 2; step++)
        CHECK(c, mr_checkpoint_save(k, step, files, share(c->rank, files), &r, &e) == 0 && r.buffered);
    CHECK(c, mr_checkpoint_drain(k, &e) == 0 && mr_checkpoint_buffered(k) == 0);
    CHECK(c, mr_checkpoint_load(k, UINT64_MAX, 1, &r, &e) == 0 && !r.buffered);
    CHECK(c, r.files == (c->rank + 1) % c->world && ct_count(folder, "") == 2);
    mr_checkpointer_close(k);
}

/* Rank 0 is a child, too, so that a failed check does not end the test program. */
static void on_ranks(uint32_t n, void (*body)(struct mr_comm *c))
{
    fflush(NULL);
    pid_t runner = fork();
    if (runner == 0) {
        struct mr_comm *c;
        struct mr_error e;
        if (mr_comm_open(n, 1, &c, &e))
            _exit(3);
        body(c);
        if (mr_comm_barrier(c, &e)) /* all were content, not only ended */
            _exit(4);
        mr_comm_close(c);
        _exit(0);
    }
    int status = -1;
    waitpid(runner, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        fail_msg("a job of %u ended with status %d", n, status);
}

static void in_new_folder(uint32_t n, void (*body)(struct mr_comm *c))
{
    assert_int_equal(ct_setup(NULL), 0);
    on_ranks(n, body);
    assert_int_equal(ct_teardown(NULL), 0);
}

static void checkpoint_holds_all_shares_at_1_2_3_7_ranks(void **state)
{
    (void)state;
    const uint32_t worlds[] = {1, 2, 3, 7};
    for (unsigned i = 0; i < MR_ARRAY_LEN(worlds); i++)
        in_new_folder(worlds[i], save_and_load);
}

static void checkpoint_of_seven_ranks_loads_on_any_number(void **state)
{
    (void)state;
    const uint32_t worlds[] = {1, 2, 5, 7, 9};
    assert_int_equal(ct_setup(NULL), 0);
    on_ranks(7, save_and_load);
    for (unsigned i = 0; i < MR_ARRAY_LEN(worlds); i++)
        on_ranks(worlds[i], load_all);
    assert_int_equal(ct_teardown(NULL), 0);
}

static void checkpoint_failure_of_one_rank_is_everybodys(void **state)
{
    (void)state;
    in_new_folder(2, one_fails);
    in_new_folder(3, one_fails);
    in_new_folder(3, damage_on_one_rank);
    in_new_folder(2, same_name_on_two_ranks);
    in_new_folder(5, same_name_on_two_ranks);
}

static void checkpoint_private_stores_keep_one_per_rank(void **state)
{
    (void)state;
    in_new_folder(3, private_stores);
}

static void checkpoint_ranks_share_a_burst_buffer(void **state)
{
    (void)state;
    in_new_folder(2, through_a_burst_buffer);
    in_new_folder(5, through_a_burst_buffer);
    in_new_folder(3, burst_buffer_cannot_drain);
    in_new_folder(3, burst_buffer_of_each_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoint_holds_all_shares_at_1_2_3_7_ranks),
        cmocka_unit_test(checkpoint_of_seven_ranks_loads_on_any_number),
        cmocka_unit_test(checkpoint_failure_of_one_rank_is_everybodys),
        cmocka_unit_test(checkpoint_private_stores_keep_one_per_rank),
        cmocka_unit_test(checkpoint_ranks_share_a_burst_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
