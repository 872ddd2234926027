/* What only file-backed stores can show: errors of the operating system with path, range and hint; files that change
 * under us; io_uring forbidden; direct I/O where it is refused; signals in the middle of I/O.
 *
 * test-label: concurrent */
#include "amount.h"
#include "base/common.h"
#include "base/log.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static struct mr_store *open_store(const char *spec)
{
    struct mr_store *s;
    struct mr_error err;
    if (mr_store_open(spec, &s, &err) != 0)
        fail_msg("'%s': %s", spec, err.message);
    return s;
}

static const char *temp_path(const char *name)
{
    static char path[256];
    const char *base = getenv("TMPDIR");
    snprintf(path, sizeof(path), "%s/mr-%s-%ld", base ? base : P_tmpdir, name, (long)getpid());
    return path;
}

static char notes[4096];
static void keep_note(void *user, enum mr_log_level level, const char *text)
{
    (void)user;
    (void)level;
    size_t used = strlen(notes);
    snprintf(notes + used, sizeof(notes) - used, "%s\n", text);
}

static void full_device_is_reported_with_range_and_hint(void **state)
{
    (void)state;
    struct mr_store *s = open_store("posix");
    struct mr_object *o;
    struct mr_error err;
    char buf[1000] = {0};
    assert_int_equal(mr_object_open(s, "/dev/full", MR_OBJ_WRITE, &o, &err), 0);
    assert_int_equal(mr_object_write(o, buf, sizeof(buf), 0, &err), -ENOSPC);
    assert_non_null(strstr(err.message, "cannot write '/dev/full': want 1000 bytes at 0, have 0"));
    assert_non_null(strstr(err.message, "No space left"));
    assert_non_null(strstr(err.hint, "df -h"));
    mr_object_close(o, NULL);
    mr_store_close(s);
}

/* A file-size limit stops a write half way: the part that fits is there, the error says how far it came. */
static void partial_write_then_error_says_how_far(void **state)
{
    (void)state;
    struct mr_store *s = open_store("posix");
    struct mr_object *o;
    struct mr_error err;
    struct rlimit old, cut = {.rlim_cur = 5000};
    char *buf = calloc(1, 10000);
    const char *path = temp_path("limit");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    cut.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(mr_object_open(s, path, MR_OBJ_WRITE | MR_OBJ_CREATE, &o, &err), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &cut), 0);
    int rc = mr_object_write(o, buf, 10000, 0, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(rc, -EFBIG);
    assert_non_null(strstr(err.message, "want 5000 bytes at 5000"));
    mr_object_close(o, NULL);
    s->ops->unlink(s, path, NULL);
    mr_store_close(s);
    free(buf);
}

static void proc_files_without_a_size_are_read_whole(void **state)
{
    (void)state;
    struct mr_store *s = open_store("posix");
    void *data;
    size_t len;
    assert_int_equal(mr_store_read_file(s, "/proc/self/status", 1 << 20, &data, &len, NULL), 0);
    assert_true(len > 255);
    assert_non_null(strstr(data, "VmRSS"));
    free(data);
    mr_store_close(s);
}

static void truncated_map_is_an_error_not_a_crash(void **state)
{
    (void)state;
    struct mr_store *s = open_store("mmap");
    struct mr_object *o;
    struct mr_error err;
    enum { BYTES = 1 << 20 };
    char *buf = calloc(1, BYTES);
    const char *path = temp_path("shrink");
    assert_int_equal(mr_store_write_file(s, path, buf, BYTES, &err), 0);
    assert_int_equal(mr_object_open(s, path, MR_OBJ_READ, &o, &err), 0);
    assert_int_equal(mr_object_read(o, buf, BYTES, 0, &err), 0);
    static const off_t sizes[] = {BYTES - 10, 8192 + 5, 0}; /* within the last page, whole pages, everything */
    for (size_t i = 0; i < MR_ARRAY_LEN(sizes); i++) {
        assert_int_equal(truncate(path, sizes[i]), 0);
        assert_int_equal(mr_object_read(o, buf, BYTES, 0, &err), MR_E_CHANGED);
        assert_non_null(strstr(err.message, "shrank"));
        assert_non_null(strstr(err.message, path));
        if (sizes[i] > 100)
            assert_int_equal(mr_object_read(o, buf, 100, 0, &err), 0); /* what is left can be read */
        struct mr_ioq *q;                                              /* and through threads */
        struct mr_io io = {.op = MR_IO_READ, .object = o, .buf = buf, .len = BYTES}, *l = &io;
        assert_int_equal(s->ops->ioq_create(s, 1, &q, &err), 0);
        assert_int_equal(s->ops->ioq_submit(q, &l, 1, &err), 0);
        assert_int_equal(s->ops->ioq_reap(q, 1, 1, &l, &err), 1);
        assert_int_equal(io.result, MR_E_CHANGED);
        s->ops->ioq_free(q);
    }
    mr_object_close(o, NULL);
    s->ops->unlink(s, path, NULL);
    struct sigaction during, after;
    sigaction(SIGBUS, NULL, &during);
    mr_store_close(s);
    sigaction(SIGBUS, NULL, &after);
    assert_true(during.sa_sigaction != after.sa_sigaction); /* the handler is gone with the store */
    free(buf);
}

static void object_read_reports_a_file_cut_short(void **state)
{
    (void)state;
    static const char *const specs[] = {"posix", "uring"};
    for (unsigned i = 0; i < 2; i++) {
        struct mr_store *s = open_store(specs[i]);
        struct mr_object *o;
        struct mr_error err;
        char buf[4096] = {0};
        const char *path = temp_path("cut");
        assert_int_equal(mr_store_write_file(s, path, buf, 4096, &err), 0);
        assert_int_equal(mr_object_open(s, path, MR_OBJ_READ, &o, &err), 0);
        assert_int_equal(truncate(path, 1000), 0);
        assert_int_equal(mr_object_read(o, buf, 4096, 0, &err), MR_E_FORMAT);
        assert_non_null(strstr(err.message, "want 4096 bytes at 0, file has 1000"));
        mr_object_close(o, NULL);
        s->ops->unlink(s, path, NULL);
        mr_store_close(s);
    }
}

static void direct_is_given_up_with_one_note_where_refused(void **state)
{
    (void)state;
    /* A file of /proc refuses O_DIRECT everywhere. */
    static const char *const specs[] = {"posix(direct=true)", "uring(direct=true)"};
    for (unsigned i = 0; i < 2; i++) {
        struct mr_store *s = open_store(specs[i]);
        struct mr_error err;
        struct mr_ioq *q;
        char buf[256];
        notes[0] = '\0';
        mr_log_set_sink(keep_note, NULL, MR_LOG_DEBUG);
        assert_int_equal(s->ops->ioq_create(s, 1, &q, &err), 0);
        for (unsigned k = 0; k < 3; k++) {
            struct mr_object *o;
            assert_int_equal(mr_object_open(s, "/proc/self/status", MR_OBJ_READ, &o, &err), 0);
            assert_int_equal(mr_object_read(o, buf, 100, 0, &err), 0);
            mr_object_close(o, NULL);
            struct mr_io io = {.op = MR_IO_READ_PATH, .path = "/proc/self/status", .buf = buf, .len = 100}, *l = &io;
            assert_int_equal(s->ops->ioq_submit(q, &l, 1, &err), 0);
            assert_int_equal(s->ops->ioq_reap(q, 1, 1, &l, &err), 1);
            assert_int_equal(io.result, 100);
        }
        s->ops->ioq_free(q);
        mr_store_close(s);
        mr_log_set_sink(NULL, NULL, MR_LOG_WARN);
        const char *first = strstr(notes, "direct I/O is not possible");
        assert_non_null(first);
        assert_null(strstr(first + 1, "direct I/O is not possible"));
    }
}

/* ---- io_uring forbidden, as containers do ---- */

static int forbid_io_uring(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {.len = MR_ARRAY_LEN(code), .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

static int use_uring_when_forbidden(void)
{
    struct mr_store *s;
    struct mr_ioq *q;
    char buf[100];
    notes[0] = '\0';
    mr_log_set_sink(keep_note, NULL, MR_LOG_DEBUG);
    if (forbid_io_uring() != 0)
        return 77;
    if (mr_store_open("uring", &s, NULL) != 0 || s->ops->ioq_create(s, 4, &q, NULL) != 0)
        return 2;
    struct mr_io io = {.op = MR_IO_READ_PATH, .path = "/proc/self/status", .buf = buf, .len = 100}, *l = &io;
    if (s->ops->ioq_submit(q, &l, 1, NULL) != 0 || s->ops->ioq_reap(q, 1, 1, &l, NULL) != 1 || io.result != 100)
        return 3;
    s->ops->ioq_free(q);
    mr_store_close(s);
    if (strstr(notes, "built without io_uring; using posix"))
        return 0; /* nothing to forbid; that it works and says so is all there is to show */
    const char *first = strstr(notes, "io_uring is not available");
    if (!first || strstr(first + 1, "io_uring is not available") || !strstr(first, "posix"))
        return 4;
    return 0;
}

static void forbidden_io_uring_falls_back_with_one_note(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(use_uring_when_forbidden());
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- signals ---- */

static void on_alarm(int sig)
{
    (void)sig;
}

/* A signal every 200 us, without SA_RESTART, while a queue and direct calls work. */
static void signals_disturb_no_transfer(void **state)
{
    (void)state;
    static const char *const specs[] = {"posix(threads=2)", "uring", "uring(direct=true)",
                                        "throttle(bandwidth=2GB):uring"};
    enum { BYTES = 1 << 20, PIECES = 8 };
    char *buf = malloc(BYTES);
    memset(buf, 'x', BYTES);
    struct sigaction sa = {.sa_handler = on_alarm}, old;
    struct itimerval timer = {.it_interval = {.tv_usec = 200}, .it_value = {.tv_usec = 200}}, none = {0};
    const char *path = temp_path("signals");
    for (size_t i = 0; i < MR_ARRAY_LEN(specs); i++) {
        struct mr_store *s = open_store(specs[i]);
        struct mr_error err;
        struct mr_ioq *q;
        struct mr_object *o;
        assert_int_equal(mr_store_write_file(s, path, buf, BYTES, &err), 0);
        assert_int_equal(mr_object_open(s, path, MR_OBJ_READ, &o, &err), 0);
        assert_int_equal(s->ops->ioq_create(s, PIECES, &q, &err), 0);
        sigaction(SIGALRM, &sa, &old);
        setitimer(ITIMER_REAL, &timer, NULL);
        int wrong = 0;
        for (unsigned k = 0; k < 30; k++) {
            struct mr_io io[PIECES], *list[PIECES];
            for (unsigned p = 0; p < PIECES; p++) {
                io[p] = (struct mr_io){.op = p % 2 ? MR_IO_READ_PATH : MR_IO_READ,
                                       .object = o,
                                       .path = path,
                                       .buf = buf + p * (BYTES / PIECES),
                                       .len = BYTES / PIECES,
                                       .offset = p * (BYTES / PIECES)};
                list[p] = &io[p];
            }
            wrong |= s->ops->ioq_submit(q, list, PIECES, NULL) != 0;
            wrong |= s->ops->ioq_reap(q, PIECES, PIECES, list, NULL) != PIECES;
            for (unsigned p = 0; p < PIECES; p++)
                wrong |= io[p].result != BYTES / PIECES;
            wrong |= mr_object_read(o, buf, BYTES, 0, NULL) != 0;
        }
        setitimer(ITIMER_REAL, &none, NULL);
        sigaction(SIGALRM, &old, NULL);
        assert_false(wrong);
        s->ops->ioq_free(q);
        mr_object_close(o, NULL);
        s->ops->unlink(s, path, NULL);
        mr_store_close(s);
    }
    free(buf);
}

/* One transfer of more than the kernel moves at once (2 GiB - 4 KiB). The buffer is 64 MiB of memory mapped again and
 * again, the file is a hole with a mark at its end, and direct I/O keeps it out of the page cache. */
static void transfers_beyond_2_gib_are_complete(void **state)
{
    (void)state;
    if (mr_test_in_part(MR_UNDER_TSAN || MR_UNDER_ASAN))
        return; /* one call and its bytes */
    static const char *const specs[] = {"posix(direct=true)", "uring(direct=true)"};
    const size_t piece = 64 * MR_MIB, bytes = 33 * piece;
    const char *path = temp_path("huge");
    int fd = memfd_create("huge", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)piece), 0);
    char *buf = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(buf != MAP_FAILED);
    for (size_t at = 0; at < bytes; at += piece)
        assert_true(mmap(buf + at, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED);
    for (size_t i = 0; i < MR_ARRAY_LEN(specs); i++) {
        struct mr_store *s = open_store(specs[i]);
        struct mr_object *o;
        struct mr_ioq *q;
        struct mr_error err;
        assert_int_equal(mr_object_open(s, path, MR_OBJ_READ | MR_OBJ_WRITE | MR_OBJ_CREATE, &o, &err), 0);
        assert_int_equal(mr_object_write(o, "mark", 4, bytes - 4, &err), 0);
        struct mr_io io = {.op = MR_IO_READ, .object = o, .buf = buf, .len = bytes}, *l = &io;
        assert_int_equal(s->ops->ioq_create(s, 1, &q, &err), 0);
        assert_int_equal(s->ops->ioq_submit(q, &l, 1, &err), 0);
        assert_int_equal(s->ops->ioq_reap(q, 1, 1, &l, &err), 1);
        assert_int_equal(io.result, bytes);
        assert_memory_equal(buf + bytes - 4, "mark", 4);
        s->ops->ioq_free(q);
        mr_object_close(o, NULL);
        s->ops->unlink(s, path, NULL);
        mr_store_close(s);
    }
    munmap(buf, bytes);
    close(fd);
}

static void timing_is_stamped_when_asked(void **state)
{
    (void)state;
    static const char *const specs[] = {"posix(timing=true)", "uring(timing=true)", "memory(timing=true)",
                                        "null(size=1KiB,timing=true)"};
    for (size_t i = 0; i < MR_ARRAY_LEN(specs); i++) {
        struct mr_store *s = open_store(specs[i]);
        struct mr_ioq *q;
        char buf[64];
        struct mr_io io = {.op = MR_IO_READ_PATH, .path = "/proc/self/status", .buf = buf, .len = 64}, *l = &io;
        uint64_t before = mr_now_ns();
        assert_int_equal(s->ops->ioq_create(s, 1, &q, NULL), 0);
        assert_int_equal(s->ops->ioq_submit(q, &l, 1, NULL), 0);
        assert_int_equal(s->ops->ioq_reap(q, 1, 1, &l, NULL), 1);
        assert_true(io.submit_ns >= before && io.done_ns >= io.submit_ns && io.done_ns <= mr_now_ns());
        s->ops->ioq_free(q);
        mr_store_close(s);
    }
}

static void memory_store_keeps_to_its_capacity(void **state)
{
    (void)state;
    struct mr_store *s = open_store("memory(capacity=1MiB)");
    struct mr_object *o;
    struct mr_error err;
    char *buf = calloc(1, 1 << 20);
    uint64_t space, inodes, full, size;
    assert_int_equal(s->ops->free_space(s, "/", &full, &inodes, &err), 0);
    assert_int_equal(full, 1 << 20);
    assert_int_equal(mr_object_open(s, "a", MR_OBJ_WRITE | MR_OBJ_CREATE, &o, &err), 0);
    assert_int_equal(s->ops->allocate(o, 2 << 20, &err), -ENOSPC);
    assert_int_equal(mr_object_write(o, buf, 1 << 20, 0, &err), -ENOSPC);
    assert_non_null(strstr(err.message, "'a'"));
    assert_int_equal(mr_object_size(o, &size, &err), 0);
    assert_true(size > 0 && size < 1 << 20); /* what fitted is there */
    mr_object_close(o, NULL);
    assert_int_equal(s->ops->unlink(s, "a", &err), 0);
    assert_int_equal(s->ops->free_space(s, "/", &space, &inodes, &err), 0);
    assert_int_equal(space, full); /* and nothing is lost */
    mr_store_close(s);
    free(buf);
}

/* Nobody else has the file open: the kernel gives a lease for writing only then. */
static bool is_open_elsewhere(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    bool got = fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
    if (got)
        assert_int_equal(fcntl(fd, F_SETLEASE, F_UNLCK), 0);
    close(fd);
    return !got;
}

/* The ring opens each file into the place of an earlier one: contents must not mix, a missing file must not give
 * another's, and the last ones must not stay open. */
static void reads_by_path_keep_files_apart_and_leave_none_open(void **state)
{
    (void)state;
    enum { FILES = 24, DEPTH = 4, READS = 400 };
    struct mr_store *s = open_store("uring");
    struct mr_ioq *q;
    struct mr_error err;
    char path[FILES + 1][300];
    unsigned buf[DEPTH], number = 0;
    struct mr_io io[DEPTH] = {0}, *list, *done[DEPTH];
    for (unsigned i = 0; i <= FILES; i++) {
        snprintf(path[i], sizeof path[i], "%s-%u", temp_path("apart"), i);
        if (i < FILES)
            assert_int_equal(mr_store_write_file(s, path[i], &i, sizeof i, &err), 0);
    }
    bool leases = !is_open_elsewhere(path[0]);
    assert_int_equal(s->ops->ioq_create(s, DEPTH, &q, &err), 0);
    for (unsigned busy = 0; number < READS || busy > 0;) {
        for (; busy < DEPTH && number < READS; busy++, number++) {
            unsigned i = 0;
            while (io[i].path) /* one is free */
                i++;
            unsigned file = (unsigned)((uint64_t)number * 2654435761u >> 7) % (FILES + 1);
            io[i] = (struct mr_io){
                .op = MR_IO_READ_PATH, .path = path[file], .buf = &buf[i], .len = sizeof buf[i], .user = path[file]};
            list = &io[i];
            assert_int_equal(s->ops->ioq_submit(q, &list, 1, &err), 0);
        }
        int n = s->ops->ioq_reap(q, 1, DEPTH, done, &err);
        assert_true(n > 0);
        for (int k = 0; k < n; k++, busy--) {
            unsigned file = (unsigned)((char(*)[300])done[k]->user - path);
            assert_int_equal(done[k]->result, file == FILES ? -ENOENT : (int64_t)sizeof(unsigned));
            assert_true(file == FILES || *(unsigned *)done[k]->buf == file);
            done[k]->path = NULL;
        }
    }
    for (unsigned i = 0; leases && i < FILES; i++)
        assert_false(is_open_elsewhere(path[i]));
    s->ops->ioq_free(q);
    for (unsigned i = 0; i < FILES; i++)
        unlink(path[i]);
    mr_store_close(s);
}

/* Between two calls somebody who may write to the folder above can put another one there. */
static void a_private_root_is_looked_at_for_every_call(void **state)
{
    char top[] = "/tmp/mr_private_XXXXXX", root[64], inside[96], other[64];
    struct mr_store *s;
    struct mr_error err;
    (void)state;
    assert_non_null(mkdtemp(top));
    snprintf(root, sizeof root, "%s/root", top);
    snprintf(inside, sizeof inside, "%s/in", root);
    snprintf(other, sizeof other, "%s/other", top);
    assert_int_equal(mkdir(root, 0700), 0);
    assert_int_equal(mr_store_open("posix", &s, &err), 0);
    assert_int_equal(mr_store_confine(s, root, true), 0);
    assert_int_equal(s->ops->mkdir(s, inside, &err), 0);
    assert_int_equal(chmod(root, 0777), 0);
    assert_int_equal(s->ops->unlink(s, inside, &err), -EPERM);
    assert_int_equal(chmod(root, 0700), 0);
    assert_int_equal(rename(root, other), 0);
    assert_int_equal(symlink("other", root), 0); /* one's own is as good as the folder */
    assert_int_equal(s->ops->unlink(s, inside, &err), 0);
    assert_int_equal(s->ops->mkdir(s, inside, &err), 0);
    if (geteuid() == 0) {
        assert_int_equal(lchown(root, 65534, 65534), 0);
        assert_int_equal(s->ops->unlink(s, inside, &err), -EPERM);
        assert_int_equal(lchown(root, 0, 0), 0);
        assert_int_equal(chown(other, 65534, 65534), 0);
        assert_int_equal(s->ops->unlink(s, inside, &err), -EPERM);
        assert_int_equal(chown(other, 0, 0), 0);
    }
    assert_int_equal(s->ops->unlink(s, inside, &err), 0);
    mr_store_close(s);
    unlink(root);
    rmdir(other);
    rmdir(top);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_by_path_keep_files_apart_and_leave_none_open),
        cmocka_unit_test(full_device_is_reported_with_range_and_hint),
        cmocka_unit_test(partial_write_then_error_says_how_far),
        cmocka_unit_test(proc_files_without_a_size_are_read_whole),
        cmocka_unit_test(truncated_map_is_an_error_not_a_crash),
        cmocka_unit_test(object_read_reports_a_file_cut_short),
        cmocka_unit_test(direct_is_given_up_with_one_note_where_refused),
        cmocka_unit_test(forbidden_io_uring_falls_back_with_one_note),
        cmocka_unit_test(signals_disturb_no_transfer),
        cmocka_unit_test(transfers_beyond_2_gib_are_complete),
        cmocka_unit_test(timing_is_stamped_when_asked),
        cmocka_unit_test(memory_store_keeps_to_its_capacity),
        cmocka_unit_test(a_private_root_is_looked_at_for_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
