/* Folders of checkpoints and other people: nothing is removed, made or followed through a link; a tier belongs to one
 * user and one final folder; two live jobs do not share one; a pipe in the place of a file never blocks; a folder in a
 * .tmp that is not ours is kept. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <cmocka.h>

#include "base/common.h"
#include "unit/checkpoint_test.h"

#include <millrace/state.h>

static const struct mr_checkpoint_file files[] = {{"model.bin", 10000}, {"optimizer.bin", 5000}};
#define FILES MR_ARRAY_LEN(files)

static char *at(const char *format, ...) __attribute__((format(printf, 1, 2)));
static char *at(const char *format, ...)
{
    static char path[4][600];
    static unsigned next;
    char *out = path[next++ % 4];
    int n = snprintf(out, 600, "%s/", ct_dir);
    va_list args;
    va_start(args, format);
    vsnprintf(out + n, 600 - (size_t)n, format, args);
    va_end(args);
    return out;
}

static struct mr_checkpointer *open_it(const char *engine, const char *burst)
{
    struct mr_checkpointer *c;
    struct mr_error e = {0};
    struct mr_checkpoint_params p = {.folder = at("final"),
                                     .world = 1,
                                     .engine = engine,
                                     .buffer_bytes = 4096,
                                     .random_content = true,
                                     .burst_folder = burst};
    if (mr_checkpointer_open(&p, &c, &e))
        fail_msg("%s", e.message);
    return c;
}

static int save(struct mr_checkpointer *c, uint64_t step, struct mr_error *e)
{
    struct mr_checkpoint_result r;
    int rc = mr_checkpoint_save(c, step, files, FILES, &r, e);
    return rc ? rc : mr_checkpoint_drain(c, e);
}

static void expect_save(struct mr_checkpointer *c, uint64_t step)
{
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    if (save(c, step, &e) || mr_checkpoint_load(c, step, 0, &r, &e))
        fail_msg("step %d: %s", (int)step, e.message);
}

/* A folder with a file and a folder, outside. */
static void make_victim(void)
{
    assert_int_equal(mkdir(at("victim"), 0700), 0);
    assert_int_equal(mkdir(at("victim/below"), 0700), 0);
    ct_write_text(at("victim/precious"), "precious");
    ct_write_text(at("victim/below/precious"), "precious");
}

static void expect_victim(void)
{
    struct stat st;
    assert_int_equal(stat(at("victim/precious"), &st), 0);
    assert_int_equal(st.st_size, 8);
    assert_int_equal(stat(at("victim/below/precious"), &st), 0);
    assert_int_equal(ct_count(at("victim"), ""), 2);
}

static void links_are_never_followed(void **state)
{
    (void)state;
    static const char *const engines[] = {"sync", "async"};
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    uint64_t step;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ct_setup_in_memory(NULL), 0);
        make_victim();
        assert_int_equal(mkdir(at("final"), 0755), 0);
        assert_int_equal(symlink(at("victim"), at("final/step-000000000005.tmp")), 0);
        assert_int_equal(symlink(at("victim"), at("final/step-000000000006")), 0); /* a checkpoint elsewhere */
        assert_int_equal(symlink(at("victim"), at("final/step-000000000007.old")), 0);
        assert_int_equal(mkdir(at("final/step-000000000008.tmp"), 0755), 0);
        assert_int_equal(symlink(at("victim"), at("final/step-000000000008.tmp/nested")), 0);
        assert_int_equal(symlink(at("victim/precious"), at("final/latest")), 0);
        struct mr_checkpointer *c = open_it(engines[i], NULL);
        assert_int_equal(mr_checkpoint_newest(c, &step, &e), MR_E_INCOMPLETE);
        for (uint64_t s = 5; s <= 8; s++)
            expect_save(c, s);
        expect_victim();
        /* A file of a checkpoint that is a link is not read, and its content nobody's. */
        assert_int_equal(mr_checkpoint_newest(c, &step, &e), 0);
        assert_int_equal(unlink(at("final/step-%012d/checkpoint.json", (int)step)), 0);
        assert_int_equal(symlink(at("victim/precious"), at("final/step-%012d/checkpoint.json", (int)step)), 0);
        assert_true(mr_checkpoint_load(c, step, 0, &r, &e) < 0);
        mr_checkpointer_close(c);
        assert_int_equal(ct_teardown(NULL), 0);
    }
}

static void links_in_tiers_and_buffers_are_never_followed(void **state)
{
    (void)state;
    char folder[600] = "", path[700];
    struct mr_error e = {0};
    make_victim();
    struct mr_checkpointer *c = open_it("sync", at("burst"));
    expect_save(c, 1);
    mr_checkpointer_close(c);
    DIR *d = opendir(at("burst"));
    for (const struct dirent *x; d && (x = readdir(d));)
        if (x->d_name[0] != '.')
            snprintf(folder, sizeof folder, "%s", at("burst/%s/rank-00000", x->d_name));
    if (d)
        closedir(d);
    snprintf(path, sizeof path, "%s/step-000000000002.tmp", folder);
    assert_int_equal(symlink(at("victim"), path), 0);
    snprintf(path, sizeof path, "%s/step-000000000003", folder);
    assert_int_equal(symlink(at("victim"), path), 0);
    c = open_it("sync", at("burst"));
    expect_save(c, 2);
    expect_save(c, 3);
    mr_checkpointer_close(c);
    expect_victim();
    /* The rank's own folder. */
    assert_int_equal(nftw(folder, ct_remove, 16, FTW_DEPTH | FTW_PHYS), 0);
    assert_int_equal(symlink(at("victim"), folder), 0);
    c = open_it("sync", at("burst"));
    expect_save(c, 4); /* around the buffer */
    mr_checkpointer_close(c);
    (void)e;
    expect_victim();
}

static void locks_are_files(void **state)
{
    (void)state;
    struct mr_error e = {0};
    make_victim();
    assert_int_equal(mkdir(at("final"), 0755), 0);
    assert_int_equal(symlink(at("victim/precious"), at("final/.saver")), 0);
    struct mr_checkpointer *c = open_it("sync", NULL);
    assert_int_equal(save(c, 1, &e), MR_E_FORMAT);
    assert_non_null(strstr(e.message, ".saver"));
    assert_int_equal(unlink(at("final/.saver")), 0);
    assert_int_equal(mkfifo(at("final/.saver"), 0600), 0);
    assert_int_equal(save(c, 1, &e), MR_E_FORMAT); /* and does not wait for a writer */
    assert_int_equal(unlink(at("final/.saver")), 0);
    expect_save(c, 1);
    mr_checkpointer_close(c);
    expect_victim();
}

static void pipes_never_block(void **state)
{
    (void)state;
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    struct mr_checkpointer *c = open_it("sync", NULL);
    static const char *const names[] = {"model.bin", "checkpoint.json"};
    alarm(20); /* a hang is a failure */
    for (int i = 0; i < 2; i++) {
        expect_save(c, 1);
        assert_int_equal(unlink(at("final/step-000000000001/%s", names[i])), 0);
        assert_int_equal(mkfifo(at("final/step-000000000001/%s", names[i]), 0600), 0);
        assert_int_equal(mr_checkpoint_load(c, 1, 0, &r, &e), MR_E_FORMAT);
        assert_non_null(strstr(e.message, names[i]));
    }
    alarm(0);
    mr_checkpointer_close(c);
}

/* Two jobs at once: the second is refused, with the process that has the folder. */
static void live_jobs_do_not_share_a_folder(void **state)
{
    (void)state;
    static const char *const engines[] = {"sync", "async"};
    char pid[32];
    struct mr_error e = {0};
    snprintf(pid, sizeof pid, "process %ld on host", (long)getpid());
    for (int i = 0; i < 2; i++) {
        struct mr_checkpointer *a = open_it(engines[i], NULL), *b = open_it(engines[1 - i], NULL);
        expect_save(a, 1);
        assert_int_equal(save(b, 2, &e), -EBUSY);
        assert_non_null(strstr(e.message, pid));
        expect_save(a, 3);
        mr_checkpointer_close(a);
        expect_save(b, 4);
        mr_checkpointer_close(b);
    }
}

static int open_saver(const char *final, const char *tier, struct mr_saver **s, struct mr_error *e)
{
    struct mr_saver_tier t = {.folder = tier};
    struct mr_saver_params p = {
        .size = sizeof p, .folder = final, .world = 1, .tier = &t, .tiers = 1, .copy_threads = 1};
    return mr_saver_open(&p, s, e);
}

static void tiers_belong_to_one_folder_and_one_live_job(void **state)
{
    (void)state;
    struct mr_saver *s, *other;
    struct mr_error e = {0};
    struct stat st;
    uint64_t step;
    size_t place;
    assert_int_equal(open_saver(at("one"), at("tier"), &s, &e), 0);
    assert_int_equal(open_saver(at("two"), at("tier"), &other, &e), MR_E_USAGE);
    assert_non_null(strstr(e.message, "/one'"));
    assert_int_equal(open_saver(at("one"), at("tier"), &other, &e), -EBUSY);
    uint64_t n = 10, v[10] = {7};
    struct mr_tensor t = {.name = "v", .dtype = "U64", .dims = 1, .shape = &n, .data = v};
    struct mr_state state_of = {.size = sizeof state_of, .tensor = &t, .tensors = 1};
    assert_int_equal(mr_saver_save(s, 1, &state_of, NULL, &e), 0);
    assert_int_equal(mr_saver_close(s, &e), 0);
    /* Nobody else reads it. */
    assert_int_equal(stat(at("tier"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(stat(at("tier/rank-00000/step-000000000001/rank-00000.safetensors"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    /* The weights of another job are not found. */
    struct mr_saver_tier tier = {.folder = at("tier")};
    struct mr_saver_params p = {.size = sizeof p, .folder = at("two"), .world = 1, .tier = &tier, .tiers = 1};
    assert_int_equal(mr_state_nearest(&p, &step, &place, &e), MR_E_USAGE);
    p.folder = at("./one//");
    assert_int_equal(mr_state_nearest(&p, &step, &place, &e), 0);
    assert_int_equal(place, 0);
    assert_int_equal(open_saver(at("one"), at("tier"), &s, &e), 0); /* the next job goes on */
    assert_int_equal(mr_saver_close(s, &e), 0);
    assert_int_equal(chmod(at("tier"), 0777), 0);
    assert_int_equal(open_saver(at("one"), at("tier"), &s, &e), -EPERM);
    assert_non_null(strstr(e.message, "can write"));
    if (geteuid() == 0) {
        assert_int_equal(chmod(at("tier"), 0700), 0);
        assert_int_equal(chown(at("tier"), 12345, (gid_t)-1), 0);
        assert_int_equal(open_saver(at("one"), at("tier"), &s, &e), -EPERM);
        assert_non_null(strstr(e.message, "12345"));
    }
}

static void foreign_folders_are_kept_and_do_not_stop_saves(void **state)
{
    (void)state;
    struct mr_checkpointer *c = open_it("sync", NULL);
    expect_save(c, 1);
    assert_int_equal(mkdir(at("final/step-000000000002.tmp"), 0755), 0);
    assert_int_equal(mkdir(at("final/step-000000000002.tmp/mine"), 0755), 0);
    ct_write_text(at("final/step-000000000002.tmp/mine/notes"), "notes");
    expect_save(c, 2);
    expect_save(c, 3);
    assert_int_equal(access(at("final/step-000000000002.tmp.kept-0/mine/notes"), F_OK), 0);
    mr_checkpointer_close(c);
}

#define T(f) cmocka_unit_test_setup_teardown(f, ct_setup_in_memory, ct_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_are_never_followed),
        T(links_in_tiers_and_buffers_are_never_followed),
        T(locks_are_files),
        T(pipes_never_block),
        T(live_jobs_do_not_share_a_folder),
        T(tiers_belong_to_one_folder_and_one_live_job),
        T(foreign_folders_are_kept_and_do_not_stop_saves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
