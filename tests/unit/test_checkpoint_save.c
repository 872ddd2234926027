/* Checkpoints of one rank: what was saved loads, verified; damage of any kind is found and named; what is kept and
 * removed. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/common.h"
#include "unit/checkpoint_test.h"

#include <sys/resource.h>

static struct mr_checkpointer *open_with(struct mr_checkpoint_params p)
{
    struct mr_checkpointer *c;
    struct mr_error e = {0};
    if (!p.folder)
        p.folder = ct_dir;
    if (!p.world)
        p.world = 1;
    if (mr_checkpointer_open(&p, &c, &e))
        fail_msg("%s", e.message);
    return c;
}

static void save(struct mr_checkpointer *c, uint64_t step, const struct mr_checkpoint_file *files, uint64_t n)
{
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    if (mr_checkpoint_save(c, step, files, n, &r, &e))
        fail_msg("%s / %s", e.message, e.context);
    assert_int_equal(r.files, n);
}

static const struct mr_checkpoint_file small[] = {{"model.bin", 10000}, {"optimizer.bin", 20001}};

static void checkpoint_loads_what_was_saved_in_every_way(void **state)
{
    (void)state;
    struct mr_checkpoint_file files[] = {{"empty", 0},           {"one", 1},
                                         {"odd", 4097},          {"a buffer", 8192},
                                         {"many", 8192 * 5 + 3}, {"snow-\xe2\x9d\x84.bin", 100000}};
    uint64_t bytes = 0;
    for (unsigned i = 0; i < MR_ARRAY_LEN(files); i++)
        bytes += files[i].bytes;
    for (unsigned way = 0; way < 24; way++) {
        struct mr_checkpoint_params p = {.threads = way % 3 + 1,
                                         .buffer_bytes = 8192,
                                         .direct = way / 3 & 1,
                                         .fsync = way / 6 & 1,
                                         .random_content = way / 12 & 1,
                                         .seed = way,
                                         .store = way % 2 ? "posix" : "uring"};
        struct mr_checkpointer *c = open_with(p);
        struct mr_checkpoint_result r;
        struct mr_error e = {0};
        save(c, way, files, MR_ARRAY_LEN(files));
        if (mr_checkpoint_load(c, UINT64_MAX, 0, &r, &e))
            fail_msg("way %u: %s", way, e.message);
        assert_int_equal(r.files, MR_ARRAY_LEN(files));
        assert_int_equal(r.bytes, bytes);
        assert_true(strstr(r.path, "/step-0000000000"));
        mr_checkpointer_close(c);
    }
    assert_int_equal(ct_count(ct_dir, ""), 24);
}

/* Random content is random, constant content is constant, and content differs between files and steps. */
static void checkpoint_content_is_as_asked(void **state)
{
    (void)state;
    struct mr_checkpointer *c = open_with((struct mr_checkpoint_params){.random_content = true});
    save(c, 1, small, 2);
    save(c, 2, small, 2);
    mr_checkpointer_close(c);
    c = open_with((struct mr_checkpoint_params){.random_content = false});
    save(c, 3, small, 2);
    mr_checkpointer_close(c);
    static char data[4][10000];
    const char *names[] = {"model.bin", "optimizer.bin", "model.bin", "model.bin"};
    const uint64_t steps[] = {1, 1, 2, 3};
    for (int i = 0; i < 4; i++) {
        char path[512];
        ct_path(path, sizeof path, steps[i], names[i]);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        assert_int_equal(fread(data[i], 1, sizeof data[i], f), sizeof data[i]);
        fclose(f);
    }
    assert_memory_not_equal(data[0], data[1], 10000);
    assert_memory_not_equal(data[0], data[2], 10000);
    assert_memory_not_equal(data[0], data[0] + 5000, 5000);
    assert_memory_equal(data[3], data[3] + 5000, 5000);
}

static void checkpoint_keep_last_keeps_the_newest_and_the_one_just_saved(void **state)
{
    (void)state;
    struct mr_checkpointer *c = open_with((struct mr_checkpoint_params){.keep_last = 2});
    struct mr_error e;
    struct mr_checkpoint_result r;
    uint64_t step;
    char note[300];
    snprintf(note, sizeof note, "%.200s/notes.txt", ct_dir);
    ct_write_text(note, "mine");
    const uint64_t steps[] = {5, 999999999999ull, 100, 1000000000000ull, 7};
    for (unsigned i = 0; i < MR_ARRAY_LEN(steps); i++)
        save(c, steps[i], small, 2);
    assert_int_equal(mr_checkpoint_newest(c, &step, &e), 0);
    assert_int_equal(step, 1000000000000ull);  /* by number: by name it would sort before 999999999999 */
    assert_int_equal(ct_count(ct_dir, ""), 4); /* 7 (just saved), the two newest, and the note, which is not ours */
    assert_int_equal(mr_checkpoint_load(c, 7, 0, &r, &e), 0);
    assert_int_equal(mr_checkpoint_load(c, 999999999999ull, 0, &r, &e), 0);
    assert_int_equal(mr_checkpoint_load(c, 5, 0, &r, &e), MR_E_INCOMPLETE);
    assert_true(strstr(e.message, "step 5") && strstr(e.hint, "1000000000000"));
    mr_checkpointer_close(c);
}

static void checkpoint_of_a_step_saved_twice_is_the_second(void **state)
{
    (void)state;
    struct mr_checkpointer *c = open_with((struct mr_checkpoint_params){.fsync = true});
    struct mr_checkpoint_result r;
    struct mr_error e;
    save(c, 3, small, 2);
    save(c, 3, small + 1, 1);
    assert_int_equal(mr_checkpoint_load(c, 3, 0, &r, &e), 0);
    assert_int_equal(r.files, 1);
    assert_int_equal(r.bytes, small[1].bytes);
    assert_int_equal(ct_count(ct_dir, ""), 1);
    mr_checkpointer_close(c);
}

static void checkpoint_left_by_a_killed_save_is_cleared_or_put_back(void **state)
{
    (void)state;
    struct mr_checkpointer *c = open_with((struct mr_checkpoint_params){0});
    struct mr_checkpoint_result r;
    struct mr_error e;
    char a[512], b[512];
    uint64_t step;
    save(c, 1, small, 2);
    save(c, 2, small, 2);
    /* Killed while step 2 was replaced: the complete copy has the name .old. */
    snprintf(a, sizeof a, "%s/step-%012d", ct_dir, 2);
    snprintf(b, sizeof b, "%s/step-%012d.old", ct_dir, 2);
    assert_int_equal(rename(a, b), 0);
    snprintf(a, sizeof a, "%s/step-%012d.tmp", ct_dir, 9);
    assert_int_equal(mkdir(a, 0777), 0);
    strcat(a, "/half");
    ct_write_text(a, "half");
    assert_int_equal(mr_checkpoint_newest(c, &step, &e), 0);
    assert_int_equal(step, 2);
    assert_int_equal(mr_checkpoint_load(c, UINT64_MAX, 0, &r, &e), 0);
    save(c, 3, small, 2);
    assert_int_equal(ct_count(ct_dir, ".tmp") + ct_count(ct_dir, ".old"), 0);
    assert_int_equal(ct_count(ct_dir, ""), 3);
    assert_int_equal(mr_checkpoint_load(c, 2, 0, &r, &e), 0);
    mr_checkpointer_close(c);
}

/* A folder of an older version: checksums of the whole content, no id of the save. */
static void checkpoint_of_an_older_version_loads(void **state)
{
    (void)state;
    struct mr_checkpointer *c = open_with((struct mr_checkpoint_params){0});
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    uint64_t step;
    ct_write_old(ct_dir, 4);
    assert_int_equal(mr_checkpoint_newest(c, &step, &e), 0);
    assert_int_equal(step, 4);
    if (mr_checkpoint_load(c, 4, 0, &r, &e))
        fail_msg("%s", e.message);
    assert_int_equal(r.files, 2);
    assert_int_equal(r.bytes, CT_OLD_BYTES);
    save(c, 5, small, 2);
    assert_int_equal(mr_checkpoint_load(c, 4, 0, &r, &e), 0);
    mr_checkpointer_close(c);
}

static void checkpoint_none_is_incomplete_with_the_reason(void **state)
{
    (void)state;
    char missing[300];
    struct mr_error e;
    uint64_t step = 77;
    snprintf(missing, sizeof missing, "%s/none", ct_dir);
    struct mr_checkpointer *c = open_with((struct mr_checkpoint_params){.folder = missing});
    assert_int_equal(mr_checkpoint_newest(c, &step, &e), MR_E_INCOMPLETE);
    assert_non_null(strstr(e.message, "does not exist"));
    assert_int_equal(mkdir(missing, 0777), 0);
    assert_int_equal(mr_checkpoint_newest(c, &step, &e), MR_E_INCOMPLETE);
    assert_int_equal(step, 77);
    /* None of these is a complete checkpoint. */
    const char *others[] = {"step-000000000001.tmp",    "step-1",
                            "step- 00000000001",        "step--00000000001",
                            "step-000000000001x",       "step-0000000000001",
                            "step-99999999999999999999"};
    for (unsigned i = 0; i < MR_ARRAY_LEN(others); i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", missing, others[i]);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    assert_int_equal(mr_checkpoint_newest(c, &step, &e), MR_E_INCOMPLETE);
    assert_non_null(strstr(e.message, "unfinished"));
    mr_checkpointer_close(c);
}

/* ---- damage ---- */

static void expect_corrupt(struct mr_checkpointer *c, const char *in_message)
{
    struct mr_checkpoint_result r = {.files = 99};
    struct mr_error e = {0};
    int rc = mr_checkpoint_load(c, UINT64_MAX, 0, &r, &e);
    if (rc != MR_E_CORRUPT || !strstr(e.message, in_message) || r.files != 99)
        fail_msg("want MR_E_CORRUPT with '%s', have %s: %s", in_message, mr_error_name(rc), e.message);
}

static void checkpoint_every_flipped_byte_and_length_is_found(void **state)
{
    (void)state;
    struct mr_checkpointer *c = open_with((struct mr_checkpoint_params){.buffer_bytes = 4096, .random_content = true});
    struct mr_checkpoint_result r;
    struct mr_error e;
    char path[512];
    save(c, 1, small, 2);
    ct_path(path, sizeof path, 1, "optimizer.bin");
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    for (off_t at = 0; at < 20001; at += at < 19999 ? 1999 : 1) {
        unsigned char byte;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        expect_corrupt(c, "optimizer.bin");
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    assert_int_equal(mr_checkpoint_load(c, 1, 0, &r, &e), 0);
    assert_int_equal(ftruncate(fd, 20002), 0);
    expect_corrupt(c, "has 20002 bytes");
    assert_int_equal(ftruncate(fd, 20000), 0);
    expect_corrupt(c, "has 20000 bytes");
    close(fd);
    assert_int_equal(unlink(path), 0);
    expect_corrupt(c, "optimizer.bin' is missing");
    ct_path(path, sizeof path, 1, "checkpoint.json");
    assert_int_equal(unlink(path), 0);
    expect_corrupt(c, "checkpoint.json' is missing");
    mr_checkpointer_close(c);
}

#define HEAD "{\"schema\":\"millrace.checkpoint/1\",\"step\":1,\"world\":1,\"fsync\":false,\"files\":["
#define ENTRY(name, bytes, hash, rank)                                                                                 \
    "{\"name\":\"" name "\",\"bytes\":" bytes ",\"xxh3\":\"" hash "\",\"rank\":" rank "}"
#define H "0123456789abcdef"

static void checkpoint_hostile_list_is_refused(void **state)
{
    (void)state;
    struct mr_checkpointer *c = open_with((struct mr_checkpoint_params){0});
    char list[512], secret[512];
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "null",
        "{}",
        "\xff\xfe",
        "{\"files\":[]}",
        "{\"schema\":\"millrace.checkpoint/2\",\"step\":1,\"world\":1,\"fsync\":false,\"files\":[]}",
        "{\"schema\":\"millrace.checkpoint/1\",\"step\":2,\"world\":1,\"fsync\":false,\"files\":[]}",
        "{\"schema\":\"millrace.checkpoint/1\",\"step\":1,\"world\":0,\"fsync\":false,\"files\":[]}",
        "{\"schema\":\"millrace.checkpoint/1\",\"step\":-1,\"world\":1,\"fsync\":false,\"files\":[]}",
        "{\"schema\":\"millrace.checkpoint/1\",\"step\":1,\"world\":99999999999,\"fsync\":false,\"files\":[]}",
        "{\"schema\":\"millrace.checkpoint/1\",\"step\":1,\"world\":1,\"fsync\":false,\"files\":{}}",
        HEAD "1]}",
        HEAD ENTRY("../secret", "4", H, "0") "]}",
        HEAD ENTRY("/etc/passwd", "4", H, "0") "]}",
        HEAD ENTRY("a/b", "4", H, "0") "]}",
        HEAD ENTRY("..", "4", H, "0") "]}",
        HEAD ENTRY("", "4", H, "0") "]}",
        HEAD ENTRY("a\\u0000b", "4", H, "0") "]}",
        HEAD ENTRY("a\\nb", "4", H, "0") "]}",
        HEAD ENTRY("checkpoint.json", "4", H, "0") "]}",
        HEAD ENTRY("f", "-1", H, "0") "]}",
        HEAD ENTRY("f", "1e3", H, "0") "]}",
        HEAD ENTRY("f", "99999999999999999999", H, "0") "]}",
        HEAD ENTRY("f", "9223372036854775807", H, "0") "]}",
        HEAD ENTRY("f", "4", "xyz", "0") "]}",
        HEAD ENTRY("f", "4", "0123456789abcdeF", "0") "]}",
        HEAD ENTRY("f", "4", H, "1") "]}",
        HEAD ENTRY("f", "4", H, "4294967296") "]}",
        HEAD ENTRY("f", "4", H, "0") "," ENTRY("f", "4", H, "0") "]}",
        HEAD ENTRY("f", "4", H, "0") "]}",
    };
    save(c, 1, small, 2);
    ct_path(list, sizeof list, 1, "checkpoint.json");
    ct_path(secret, sizeof secret, 1, "../secret");
    ct_write_text(secret, "data");
    for (unsigned i = 0; i < MR_ARRAY_LEN(texts); i++) {
        ct_write_text(list, texts[i]);
        expect_corrupt(c, "step-000000000001/");
    }
    char *deep = malloc(200001);
    memset(deep, '[', 200000);
    deep[200000] = 0;
    ct_write_text(list, deep);
    expect_corrupt(c, "checkpoint.json");
    free(deep);
    mr_checkpointer_close(c);
}

/* Figures of the list that no file contradicts: the rank that reads a file, whether it was synced, which save it was. */
static void checkpoint_claimed_length_costs_no_memory(void **state)
{
    (void)state;
    struct mr_checkpointer *c = open_with((struct mr_checkpoint_params){0});
    struct rusage before, after;
    char list[512];
    save(c, 1, small, 2);
    ct_path(list, sizeof list, 1, "checkpoint.json");
    ct_write_text(list, HEAD "{\"name\":\"model.bin\",\"bytes\":140737488355328,\"xxh3\":\"" H
                             "\",\"rank\":0,\"chunk_bytes\":8388608}]}");
    getrusage(RUSAGE_SELF, &before);
    expect_corrupt(c, "the checkpoint's list says 140737488355328");
    getrusage(RUSAGE_SELF, &after);
    assert_in_range(after.ru_maxrss - before.ru_maxrss, 0, 100 << 10); /* KiB */
    mr_checkpointer_close(c);
}

static void checkpoint_changed_list_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *is, *becomes;
    } changes[] = {{"\"rank\": 0", "\"rank\": 1"},
                   {"\"world\": 1", "\"world\": 2"},
                   {"\"fsync\": false", "\"fsync\": true"},
                   {"\"save\": \"", "\"save\": \"x"},
                   {"\"list_xxh3\": \"", "\"list_xxh3\": \"0"}};
    struct mr_checkpointer *c = open_with((struct mr_checkpoint_params){0});
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    char list[512], text[4000], changed[4100];
    save(c, 1, small, 2);
    ct_path(list, sizeof list, 1, "checkpoint.json");
    FILE *f = fopen(list, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    for (unsigned i = 0; i < MR_ARRAY_LEN(changes); i++) {
        const char *at = strstr(text, changes[i].is);
        assert_non_null(at);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, changes[i].becomes,
                 at + strlen(changes[i].is));
        ct_write_text(list, changed);
        expect_corrupt(c, "its own checksum");
    }
    ct_write_text(list, text);
    assert_int_equal(mr_checkpoint_load(c, 1, 0, &r, &e), 0);
    mr_checkpointer_close(c);
}

static void checkpoint_bad_calls_are_refused_and_remove_nothing(void **state)
{
    (void)state;
    struct mr_checkpointer *c = open_with((struct mr_checkpoint_params){0}), *none;
    struct mr_checkpoint_result r;
    struct mr_error e;
    save(c, 1, small, 2);
    const char *names[] = {"", ".hidden", "..", "a/b", "/a", "a\nb", "checkpoint.json", "rank-00001.part", "\xff\xfe"};
    for (unsigned i = 0; i < MR_ARRAY_LEN(names); i++) {
        struct mr_checkpoint_file f = ct_file(names[i], 5);
        assert_int_equal(mr_checkpoint_save(c, 1, &f, 1, &r, &e), MR_E_USAGE);
    }
    struct mr_checkpoint_file open_ended;
    memset(&open_ended, 'x', sizeof open_ended);
    assert_int_equal(mr_checkpoint_save(c, 1, &open_ended, 1, &r, &e), MR_E_USAGE);
    struct mr_checkpoint_file twice[] = {{"same", 1}, {"other", 1}, {"same", 2}}, huge = {"huge", UINT64_MAX};
    assert_int_equal(mr_checkpoint_save(c, 1, twice, 3, &r, &e), MR_E_USAGE);
    assert_non_null(strstr(e.message, "'same'"));
    assert_int_equal(mr_checkpoint_save(c, 1, &huge, 1, &r, &e), MR_E_USAGE);
    assert_int_equal(mr_checkpoint_save(c, UINT64_MAX, small, 2, &r, &e), MR_E_USAGE);
    assert_int_equal(mr_checkpoint_load(c, 1, 0, &r, &e), 0);
    assert_int_equal(ct_count(ct_dir, ""), 1);
    mr_checkpointer_close(c);
    char far[2000];
    memset(far, 'd', sizeof far - 1);
    far[sizeof far - 1] = 0;
    struct mr_checkpoint_params bad[] = {{.world = 1},
                                         {.folder = ct_dir},
                                         {.folder = ct_dir, .world = 2, .rank = 2},
                                         {.folder = ct_dir, .world = 2},
                                         {.folder = far, .world = 1},
                                         {.folder = ct_dir, .world = 1, .threads = 100000},
                                         {.folder = ct_dir, .world = 1, .buffer_bytes = UINT64_MAX}};
    for (unsigned i = 0; i < MR_ARRAY_LEN(bad); i++)
        assert_int_equal(mr_checkpointer_open(&bad[i], &none, &e), MR_E_USAGE);
    assert_int_equal(
        mr_checkpointer_open(&(struct mr_checkpoint_params){.folder = ct_dir, .world = 1, .store = "posx"}, &none, &e),
        MR_E_CONFIG);
}

static unsigned questions;
static bool stop_at_five(void *user)
{
    (void)user;
    return ++questions >= 5;
}

static void checkpoint_stops_when_asked_and_leaves_nothing(void **state)
{
    (void)state;
    struct mr_checkpointer *c = open_with((struct mr_checkpoint_params){.stopped = stop_at_five, .buffer_bytes = 4096});
    struct mr_checkpoint_file f = ct_file("f", 1 << 20);
    struct mr_checkpoint_result r;
    struct mr_error e;
    questions = 0;
    assert_int_equal(mr_checkpoint_save(c, 1, &f, 1, &r, &e), MR_E_INTERRUPTED);
    assert_int_equal(questions, 5);
    assert_int_equal(ct_count(ct_dir, ""), 0);
    mr_checkpointer_close(c);
}

static void checkpoint_on_stores_of_one_process(void **state)
{
    (void)state;
    struct mr_checkpoint_result r;
    struct mr_error e;
    struct mr_checkpointer *c =
        open_with((struct mr_checkpoint_params){.store = "memory", .folder = "/ckpt", .fsync = true, .keep_last = 1});
    save(c, 1, small, 2);
    save(c, 2, small, 2);
    save(c, 2, small, 2);
    assert_int_equal(mr_checkpoint_load(c, UINT64_MAX, 0, &r, &e), 0);
    assert_int_equal(mr_checkpoint_load(c, 1, 0, &r, &e), MR_E_INCOMPLETE);
    mr_checkpointer_close(c);
    c = open_with((struct mr_checkpoint_params){.store = "null", .folder = "/ckpt", .fsync = true, .keep_last = 1});
    save(c, 1, small, 2);
    save(c, 2, small, 2);
    assert_int_equal(mr_checkpoint_load(c, UINT64_MAX, 0, &r, &e), MR_E_UNSUPPORTED);
    mr_checkpointer_close(c);
}

#define T(f) cmocka_unit_test_setup_teardown(f, ct_setup, ct_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(checkpoint_loads_what_was_saved_in_every_way),
        T(checkpoint_content_is_as_asked),
        T(checkpoint_keep_last_keeps_the_newest_and_the_one_just_saved),
        T(checkpoint_of_a_step_saved_twice_is_the_second),
        T(checkpoint_left_by_a_killed_save_is_cleared_or_put_back),
        T(checkpoint_of_an_older_version_loads),
        T(checkpoint_none_is_incomplete_with_the_reason),
        T(checkpoint_every_flipped_byte_and_length_is_found),
        T(checkpoint_hostile_list_is_refused),
        T(checkpoint_claimed_length_costs_no_memory),
        T(checkpoint_changed_list_is_found),
        T(checkpoint_bad_calls_are_refused_and_remove_nothing),
        T(checkpoint_stops_when_asked_and_leaves_nothing),
        T(checkpoint_on_stores_of_one_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
