/* What descriptors are, by their names in a trace, and the table of mounts: from the kernel's text to the question
 * which file system a path lies on. */
#include "base/common.h"
#include "event/fd_class.h"
#include "event/mounts.h"
#include "event/mrt_sink.h"
#include "import/trace_read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void names_tell_what_a_descriptor_is(void **state)
{
    static const struct {
        const char *name, *fs;
        enum mr_fd_class is;
    } want[] = {
        {"/data/a.npz", NULL, MR_FD_FILE},
        {"/data/a.npz", "ext4", MR_FD_FILE},
        {"/data/a.npz", "lustre", MR_FD_FILE},
        {"/scratch/a", "tmpfs", MR_FD_MEMORY},
        {"data/a.npz", NULL, MR_FD_FILE},
        {"pipe:[12]", NULL, MR_FD_PIPE},
        {"/data/pipe:[12]", NULL, MR_FD_FILE},
        {"socket:[12]", NULL, MR_FD_SOCKET_LOCAL},
        {"socket:[local 12]", NULL, MR_FD_SOCKET_LOCAL},
        {"socket:[inet 10.0.0.1:443]", NULL, MR_FD_SOCKET_NET},
        {"socket:[inet [fe80:0:0:0:0:0:0:1]:443]", NULL, MR_FD_SOCKET_NET},
        {"anon_inode:[eventfd]", NULL, MR_FD_EVENT},
        {"anon_inode:inotify", NULL, MR_FD_EVENT},
        {"/dev/pts/3", "devpts", MR_FD_TTY},
        {"/dev/tty", NULL, MR_FD_TTY},
        {"/dev/null", "devtmpfs", MR_FD_DEVICE},
        {"/dev/nvidia0", "devtmpfs", MR_FD_DEVICE},
        {"/dev/nvme0", NULL, MR_FD_DEVICE},
        {"/dev/nvme0n1", NULL, MR_FD_BLOCK},
        {"/dev/sda1", "devtmpfs", MR_FD_BLOCK},
        {"/dev/shm/torch_1", "tmpfs", MR_FD_MEMORY},
        {"/memfd:x (deleted)", NULL, MR_FD_MEMORY},
        {"/proc/self/maps", NULL, MR_FD_MEMORY},
        {"/process/x", NULL, MR_FD_FILE},
        {"", NULL, MR_FD_UNKNOWN},
    };
    (void)state;
    for (size_t i = 0; i < MR_ARRAY_LEN(want); i++)
        assert_string_equal(mr_fd_class_name(mr_fd_class_of(want[i].name, strlen(want[i].name), want[i].fs)),
                            mr_fd_class_name(want[i].is));
    assert_true(mr_fd_class_stores(MR_FD_FILE) && mr_fd_class_stores(MR_FD_MEMORY) && mr_fd_class_stores(MR_FD_BLOCK));
    assert_false(mr_fd_class_stores(MR_FD_PIPE) || mr_fd_class_stores(MR_FD_SOCKET_NET) ||
                 mr_fd_class_stores(MR_FD_TTY) || mr_fd_class_stores(MR_FD_DEVICE));
}

static const char mountinfo[] =
    "22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
    "31 22 0:27 / /mnt/my\\040data rw,relatime shared:5 master:2 - lustre 10.0.0.1@tcp:/fs rw\n"
    "garbage\n"
    "32 22 0:28 / /mnt rw - nfs4 server:/export rw\n"
    "33 22 0:29 / /tmp rw - tmpfs tmpfs rw\n"
    "34 33 0:30 / /tmp rw - xfs /dev/sdb rw\n"
    "35 22 0:31 / /cut rw - ext4";

static void mounts_are_read_from_the_kernels_text(void **state)
{
    uint8_t payload[4096];
    uint32_t count;
    struct mr_mount_entry e;
    (void)state;
    size_t n = mr_mounts_encode(mountinfo, sizeof(mountinfo) - 1, payload, sizeof(payload), &count);
    const uint8_t *at = payload;
    assert_int_equal(count, 5);
    assert_true(mr_mounts_next(&at, payload + n, &e));
    assert_int_equal(e.type_len, 4);
    assert_memory_equal(e.type, "ext4", 4);
    assert_memory_equal(e.source, "/dev/nvme0n1p2", e.source_len);
    assert_true(mr_mounts_next(&at, payload + n, &e));
    assert_int_equal(e.path_len, strlen("/mnt/my data"));
    assert_memory_equal(e.path, "/mnt/my data", e.path_len);
    for (unsigned i = 0; i < 3; i++)
        assert_true(mr_mounts_next(&at, payload + n, &e));
    assert_false(mr_mounts_next(&at, payload + n, &e));
    for (size_t cap = 0; cap < n; cap += 7) { /* what does not fit is left out whole */
        size_t got = mr_mounts_encode(mountinfo, sizeof(mountinfo) - 1, payload, cap, &count);
        assert_true(got <= cap && count < 5);
    }
}

static uint32_t put_mounts(uint8_t *block, uint64_t key)
{
    struct mr_mrt_block b = {.type = MR_MRT_MOUNTS, .key = key};
    b.payload_bytes =
        (uint32_t)mr_mounts_encode(mountinfo, sizeof(mountinfo) - 1, block + MR_MRT_HEADER, 2048, &b.count);
    return (uint32_t)mr_mrt_seal(block, &b);
}

static uint32_t put_process(uint8_t *block, uint64_t key, const char *host)
{
    const struct mr_process_info p = {
        .key = key, .pid = 7, .host = host, .host_len = (uint32_t)strlen(host), .exe = "x", .cmdline = "x"};
    struct mr_mrt_block b = {.type = MR_MRT_PROCESS, .key = key, .count = 1};
    b.payload_bytes = (uint32_t)mr_mrt_encode_process(&p, block + MR_MRT_HEADER, 2048);
    return (uint32_t)mr_mrt_seal(block, &b);
}

static void check_fs(const struct mr_trace *t, uint32_t node, const char *path, const char *want)
{
    const char *have = mr_trace_fs_of(t, node, path, strlen(path));
    if (want)
        assert_string_equal(have, want);
    else
        assert_null(have);
}

static void a_path_lies_on_the_longest_mount(void **state)
{
    uint8_t file[16384], id[16] = {1};
    struct mr_trace *t;
    struct mr_error err;
    (void)state;
    mr_mrt_file_header(1, id, file);
    size_t n = MR_MRT_HEADER;
    n += put_process(file + n, 5, "one");
    n += put_mounts(file + n, 5);
    n += put_mounts(file + n, 5); /* twice is once */
    n += put_process(file + n, 6, "two");
    n += put_mounts(file + n, 99); /* of nobody */
    assert_int_equal(mr_trace_create(&t, &err), 0);
    assert_int_equal(mr_trace_add_memory(t, file, n, "test", &err), 0);
    assert_int_equal(mr_trace_finish(t, &err), 0);
    assert_int_equal(t->skipped_bytes, 0);
    assert_int_equal(t->nodes, 2);
    assert_int_equal(t->node[0].mounts, 5);
    check_fs(t, 0, "/", "ext4");
    check_fs(t, 0, "/data/x", "ext4");
    check_fs(t, 0, "/mnt", "nfs4");
    check_fs(t, 0, "/mnt/x", "nfs4");
    check_fs(t, 0, "/mntx", "ext4");
    check_fs(t, 0, "/mnt/my data/x", "lustre");
    check_fs(t, 0, "/tmp/x", "xfs"); /* mounted over the first */
    check_fs(t, 0, "pipe:[1]", NULL);
    check_fs(t, 1, "/data/x", NULL);
    check_fs(t, 9, "/data/x", NULL);
    mr_trace_free(t);
}

/* A file that claims a million mounts costs little. */
static void mounts_have_an_end(void **state)
{
    const size_t cap = (size_t)1 << 20;
    uint8_t *file = malloc(cap + 65536), id[16] = {1};
    char *text = malloc(cap);
    struct mr_mrt_block b = {.type = MR_MRT_MOUNTS, .key = 5};
    struct mr_trace *t;
    struct mr_error err;
    size_t len = 0;
    (void)state;
    for (unsigned i = 0; len + 64 < cap; i++)
        len += (size_t)snprintf(text + len, cap - len, "1 1 0:1 / /%x rw - x y\n", i);
    mr_mrt_file_header(1, id, file);
    size_t n = MR_MRT_HEADER;
    n += put_process(file + n, 5, "one");
    b.payload_bytes = (uint32_t)mr_mounts_encode(text, len, file + n + MR_MRT_HEADER, cap, &b.count);
    assert_true(b.count > 30000);
    n += mr_mrt_seal(file + n, &b);
    assert_int_equal(mr_trace_create(&t, &err), 0);
    assert_int_equal(mr_trace_add_memory(t, file, n, "test", &err), 0);
    assert_true(t->node[0].mounts > 4000 && t->node[0].mounts < 10000);
    mr_trace_free(t);
    free(file);
    free(text);
}

static void a_run_records_the_mounts_of_its_machine(void **state)
{
    char path[] = "/tmp/mr-mounts-XXXXXX";
    struct mr_mrt_sink *sink;
    struct mr_trace *t;
    struct mr_error err;
    (void)state;
    close(mkstemp(path));
    assert_int_equal(mr_mrt_sink_open(path, 0, 1, &sink, &err), 0);
    struct mr_event_sink *s = mr_mrt_sink_get(sink);
    s->emit(s, &(struct mr_event){.kind = MR_EV_READ, .path_id = s->intern(s, "/proc/self/maps"), .start_ns = 1});
    assert_int_equal(mr_mrt_sink_close(sink, &err), 0);
    assert_int_equal(mr_trace_create(&t, &err), 0);
    assert_int_equal(mr_trace_add(t, path, &err), 0);
    assert_int_equal(mr_trace_finish(t, &err), 0);
    check_fs(t, 0, "/proc/self/maps", "proc");
    assert_non_null(mr_trace_fs_of(t, 0, "/", 1));
    mr_trace_free(t);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_tell_what_a_descriptor_is),
        cmocka_unit_test(mounts_are_read_from_the_kernels_text),
        cmocka_unit_test(a_path_lies_on_the_longest_mount),
        cmocka_unit_test(mounts_have_an_end),
        cmocka_unit_test(a_run_records_the_mounts_of_its_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
