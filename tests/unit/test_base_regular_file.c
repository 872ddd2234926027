/* Opening a file that must be regular: never waits, never empties or follows what is something else. */
#include "base/regular_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static char folder[] = "/tmp/mr_regular_XXXXXX";
static int dir = -1;

static void put_file(const char *name, const char *text)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static int make_folder(void **state)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    (void)state;
    assert_non_null(mkdtemp(folder));
    dir = open(folder, O_RDONLY | O_DIRECTORY);
    assert_int_equal(mkfifoat(dir, "fifo", 0600), 0);
    assert_int_equal(mkdirat(dir, "sub", 0700), 0);
    assert_int_equal(symlinkat("file", dir, "link"), 0);
    put_file("file", "text");
    snprintf(at.sun_path, sizeof at.sun_path, "%s/socket", folder);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&at, sizeof at), 0);
    close(s);
    return 0;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"fifo", "link", "file", "socket", "made"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)unlinkat(dir, names[i], 0);
    (void)unlinkat(dir, "sub", AT_REMOVEDIR);
    close(dir);
    return rmdir(folder);
}

static void other_kinds_are_refused_at_once(void **state)
{
    static const int flags[] = {O_RDONLY, O_WRONLY, O_RDWR, O_WRONLY | O_CREAT | O_TRUNC};
    (void)state;
    alarm(5); /* instead of waiting for ever */
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        assert_int_equal(mr_openat_regular(dir, "fifo", flags[i], 0600, NULL), MR_E_FORMAT);
        assert_int_equal(mr_openat_regular(dir, "socket", flags[i], 0600, NULL), MR_E_FORMAT);
        assert_int_equal(mr_openat_regular(dir, "sub", flags[i], 0600, NULL), -EISDIR);
        assert_int_equal(mr_openat_regular(dir, "link", flags[i] | O_NOFOLLOW, 0600, NULL), -ELOOP);
    }
    assert_int_equal(mr_openat_regular(AT_FDCWD, "/dev/zero", O_RDONLY, 0, NULL), MR_E_FORMAT);
    assert_int_equal(mr_openat_regular(dir, "none", O_RDONLY, 0, NULL), -ENOENT);
    alarm(0);
}

static void regular_files_open_for_blocking_use(void **state)
{
    struct stat st;
    (void)state;
    int fd = mr_openat_regular(dir, "link", O_RDONLY, 0, &st);
    assert_true(fd >= 0);
    assert_int_equal(st.st_size, 4);
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    close(fd);
    fd = mr_openat_regular(dir, "file", O_WRONLY | O_TRUNC, 0, &st);
    assert_true(fd >= 0);
    assert_int_equal(st.st_size, 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, 0);
    close(fd);
    fd = mr_openat_regular(dir, "made", O_WRONLY | O_CREAT | O_EXCL, 0600, &st);
    assert_true(fd >= 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    close(fd);
}

static void messages_name_the_path(void **state)
{
    char path[64];
    struct mr_error err;
    (void)state;
    snprintf(path, sizeof path, "%s/fifo", folder);
    assert_int_equal(mr_open_regular(path, O_RDONLY, 0, NULL, &err), MR_E_FORMAT);
    assert_non_null(strstr(err.message, "fifo': it is not a regular file"));
    assert_null(mr_fopen_regular(path));
    assert_int_equal(errno, EINVAL);
    snprintf(path, sizeof path, "%s/none", folder);
    assert_int_equal(mr_open_regular(path, O_RDONLY, 0, NULL, &err), -ENOENT);
    assert_null(mr_fopen_regular(path));
    assert_int_equal(errno, ENOENT);
}

/* Who follows a planted link, or waits for a planted pipe's reader, writes where somebody else wants. */
static void a_new_file_is_ours_whatever_has_its_name(void **state)
{
    static const char *const names[] = {"link", "fifo", "socket", "file", "new"};
    char path[64], text[8] = "";
    (void)state;
    put_file("file", "text");
    alarm(5);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        FILE *f = mr_fcreate_anew(path);
        assert_non_null(f);
        fputs("new", f);
        fclose(f);
        assert_int_equal(lstat(path, &st), 0);
        assert_true(S_ISREG(st.st_mode) && st.st_size == 3);
        if (i == 0) { /* what the link named */
            int fd = openat(dir, "file", O_RDONLY);
            assert_int_equal(read(fd, text, 4), 4);
            assert_string_equal(text, "text");
            close(fd);
        }
    }
    unlinkat(dir, "new", 0);
    snprintf(path, sizeof path, "%s/sub", folder);
    assert_int_equal(mr_create_anew(path, 0600), -EISDIR);
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_kinds_are_refused_at_once), cmocka_unit_test(regular_files_open_for_blocking_use),
        cmocka_unit_test(messages_name_the_path),
        cmocka_unit_test(a_new_file_is_ours_whatever_has_its_name), /* last: it replaces them */
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
