/* The count shim: what passed is in the file, for all processes and also for killed ones, and goes on from run to run.
 */
#include "base/common.h"
#include "store/store.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

enum { MAGIC, OPENS, READS, READ_BYTES, WRITES, WRITTEN_BYTES, FAILED, FIELDS };

static char path[] = "/tmp/mr_count_XXXXXX", spec[128];

static void totals(uint64_t out[FIELDS])
{
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_int_equal(fread(out, sizeof(uint64_t), FIELDS, f), FIELDS);
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
    assert_memory_equal(&out[MAGIC], "mrcount1", 8);
}

static int new_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    snprintf(spec, sizeof(spec), "count(file=%s):memory", path);
    return fd < 0 || close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    unlink(path);
    memcpy(path + strlen(path) - 6, "XXXXXX", 6);
    return 0;
}

/* One write, then one open and `reads` reads of 1000 bytes, the last one beyond the end by half. */
static void work(unsigned reads)
{
    struct mr_store *s;
    struct mr_object *o;
    struct mr_error err;
    char buf[1000] = {0};
    assert_int_equal(mr_store_open(spec, &s, &err), 0);
    assert_int_equal(mr_object_open(s, "file", MR_OBJ_READ | MR_OBJ_WRITE | MR_OBJ_CREATE, &o, &err), 0);
    assert_int_equal(mr_object_write(o, buf, 500, 0, &err), 0);
    for (unsigned i = 0; i < reads; i++)
        assert_int_equal(s->ops->read(o, buf, sizeof(buf), 0, &err), 500);
    mr_object_close(o, NULL);
    assert_int_equal(mr_object_open(s, "none", MR_OBJ_READ, &o, &err), -ENOENT);
    mr_store_close(s);
}

static void what_moved_is_counted_and_added_up_over_runs(void **state)
{
    (void)state;
    uint64_t t[FIELDS];
    work(3);
    totals(t);
    assert_int_equal(t[OPENS], 2);
    assert_int_equal(t[READS], 3);
    assert_int_equal(t[READ_BYTES], 1500);
    assert_int_equal(t[WRITES], 1);
    assert_int_equal(t[WRITTEN_BYTES], 500);
    assert_int_equal(t[FAILED], 1);
    work(1);
    totals(t);
    assert_int_equal(t[READ_BYTES], 2000);
}

static void queued_reads_count_as_open_and_read(void **state)
{
    (void)state;
    uint64_t t[FIELDS];
    struct mr_store *s;
    struct mr_ioq *q;
    char buf[1000] = {0};
    assert_int_equal(mr_store_open(spec, &s, NULL), 0);
    assert_int_equal(mr_store_write_file(s->lower, "file", buf, 700, NULL), 0);
    struct mr_io io = {.op = MR_IO_READ_PATH, .path = "file", .buf = buf, .len = 700}, *l = &io;
    assert_int_equal(s->ops->ioq_create(s, 1, &q, NULL), 0);
    assert_int_equal(s->ops->ioq_submit(q, &l, 1, NULL), 0);
    assert_int_equal(s->ops->ioq_reap(q, 1, 1, &l, NULL), 1);
    s->ops->ioq_free(q);
    mr_store_close(s);
    totals(t);
    assert_int_equal(t[OPENS], 1);
    assert_int_equal(t[READS], 1);
    assert_int_equal(t[READ_BYTES], 700);
}

static void processes_add_up_and_killed_ones_count(void **state)
{
    (void)state;
    uint64_t t[FIELDS];
    for (unsigned i = 0; i < 4; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            work(10);
            raise(SIGKILL);
        }
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
    totals(t);
    assert_int_equal(t[READS], 40);
    assert_int_equal(t[READ_BYTES], 20000);
}

static void other_files_are_refused_and_left_as_they_are(void **state)
{
    (void)state;
    struct mr_store *s;
    struct mr_error err;
    static const char *const texts[] = {"notes", "exactly as long as the totals are, but not those...x56"};
    for (unsigned i = 0; i < 2; i++) {
        char have[64] = {0}, text[64] = {0};
        size_t len = i ? FIELDS * sizeof(uint64_t) : strlen(texts[0]);
        memset(text, 'x', len);
        memcpy(text, texts[i], MR_MIN(len, strlen(texts[i])));
        FILE *f = fopen(path, "we");
        assert_non_null(f);
        assert_int_equal(fwrite(text, 1, len, f), len);
        fclose(f);
        assert_int_equal(mr_store_open(spec, &s, &err), MR_E_CONFIG);
        assert_non_null(strstr(err.message, path));
        f = fopen(path, "re");
        assert_non_null(f);
        assert_int_equal(fread(have, 1, sizeof(have), f), len);
        fclose(f);
        assert_memory_equal(have, text, len);
    }
    assert_int_equal(mr_store_open("count():memory", &s, &err), MR_E_CONFIG);
    assert_int_equal(mr_store_open("count(file=/no/such/file):memory", &s, &err), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_moved_is_counted_and_added_up_over_runs, new_file, remove_file),
        cmocka_unit_test_setup_teardown(queued_reads_count_as_open_and_read, new_file, remove_file),
        cmocka_unit_test_setup_teardown(processes_add_up_and_killed_ones_count, new_file, remove_file),
        cmocka_unit_test_setup_teardown(other_files_are_refused_and_left_as_they_are, new_file, remove_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
