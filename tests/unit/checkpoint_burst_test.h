/* What the tests of the burst buffer share: a checkpointer with a buffer, looking at both folders, and a recovery that
 * works whatever happened before. */
#ifndef MR_TESTS_CHECKPOINT_BURST_TEST_H
#define MR_TESTS_CHECKPOINT_BURST_TEST_H

#include "base/common.h"
#include "unit/checkpoint_test.h"

static const struct mr_checkpoint_file files[] = {{"model.bin", 10000}, {"empty", 0}, {"optimizer.bin", 5000}};
#define FILES MR_ARRAY_LEN(files)
#define BYTES 15000u

struct setup {
    const char *final, *burst; /* stores; NULL = posix */
    uint64_t capacity;
    unsigned keep, threads; /* threads 0: two */
    bool (*stopped)(void *user);
    void *user;
};

static inline struct mr_checkpointer *open_with(struct setup s, const char *name)
{
    struct mr_checkpointer *c;
    struct mr_error e = {0};
    char folder[320], burst[320];
    snprintf(folder, sizeof folder, "%s/%s", ct_dir, name);
    snprintf(burst, sizeof burst, "%s/burst", ct_dir);
    struct mr_checkpoint_params p = {.folder = folder,
                                     .store = s.final,
                                     .world = 1,
                                     .fsync = true,
                                     .threads = s.threads ? s.threads : 2,
                                     .buffer_bytes = 4096,
                                     .random_content = true,
                                     .keep_last = s.keep,
                                     .burst_folder = burst,
                                     .burst_store = s.burst,
                                     .burst_bytes = s.capacity,
                                     .stopped = s.stopped,
                                     .user = s.user};
    if (mr_checkpointer_open(&p, &c, &e))
        fail_msg("%s", e.message);
    return c;
}

#define OPEN(...) open_with((struct setup){__VA_ARGS__}, "final")

static inline unsigned in_final(const char *suffix)
{
    char path[320];
    snprintf(path, sizeof path, "%s/final", ct_dir);
    return ct_count(path, suffix);
}

static inline bool final_has(uint64_t step)
{
    char path[400];
    snprintf(path, sizeof path, "%s/final/step-%012llu/checkpoint.json", ct_dir, (unsigned long long)step);
    return access(path, F_OK) == 0;
}

/* Checkpoints below the folders that the buffer has for checkpoint folders and ranks: 0 when all is drained. */
static int in_buffer_n;
static int in_buffer_count(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st;
    in_buffer_n += type == FTW_D && strncmp(path + f->base, "step-", 5) == 0;
    return 0;
}

static inline unsigned in_buffer(void)
{
    char path[320];
    snprintf(path, sizeof path, "%s/burst", ct_dir);
    in_buffer_n = 0;
    nftw(path, in_buffer_count, 16, FTW_PHYS);
    return (unsigned)in_buffer_n;
}

static inline void save(struct mr_checkpointer *c, uint64_t step, struct mr_checkpoint_result *r)
{
    struct mr_error e = {0};
    if (mr_checkpoint_save(c, step, files, FILES, r, &e))
        fail_msg("cannot save step %llu: %s", (unsigned long long)step, e.message);
}

static inline void drain(struct mr_checkpointer *c)
{
    struct mr_error e = {0};
    if (mr_checkpoint_drain(c, &e))
        fail_msg("cannot drain: %s", e.message);
    assert_int_equal(mr_checkpoint_buffered(c), 0);
    assert_int_equal(in_buffer(), 0);
}

/* Without the buffer: what is in the final folder stands alone. */
static inline void expect_final(uint64_t step)
{
    char folder[320];
    struct mr_checkpointer *c;
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    snprintf(folder, sizeof folder, "%s/final", ct_dir);
    struct mr_checkpoint_params p = {.folder = folder, .world = 1};
    assert_int_equal(mr_checkpointer_open(&p, &c, &e), 0);
    if (mr_checkpoint_load(c, step, 0, &r, &e))
        fail_msg("step %llu: %s", (unsigned long long)step, e.message);
    assert_int_equal(r.bytes, BYTES);
    mr_checkpointer_close(c);
}

/* Afterwards: whatever failed, a healthy run finds step `newest`, finishes the drain and goes on. */
static inline void expect_recovery(uint64_t newest, const char *after)
{
    struct mr_checkpointer *c = OPEN(.capacity = 0);
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    uint64_t step = 0;
    if (mr_checkpoint_newest(c, &step, &e) || step != newest || mr_checkpoint_load(c, UINT64_MAX, 0, &r, &e))
        fail_msg("after %s: newest is %llu: %s", after, (unsigned long long)step, e.message);
    assert_int_equal(r.bytes, BYTES);
    save(c, newest + 1, &r);
    drain(c);
    mr_checkpointer_close(c);
    expect_final(newest);
    expect_final(newest + 1);
    assert_int_equal(in_final(".tmp") + in_final(".old"), 0);
}

#endif
