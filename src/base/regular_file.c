/* Opening regular files: see regular_file.h. O_NONBLOCK makes the open return at once; it is taken away again, because
 * io_uring returns EAGAIN for a non-blocking file whose pages are not in memory. */
#include "base/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static int check_open(int fd, int flags, struct stat *st)
{
    int now;
    if (fstat(fd, st) != 0)
        return -errno;
    if (!S_ISREG(st->st_mode))
        return S_ISDIR(st->st_mode) ? -EISDIR : MR_E_FORMAT;
    if ((now = fcntl(fd, F_GETFL)) < 0 || fcntl(fd, F_SETFL, now & ~O_NONBLOCK) != 0)
        return -errno;
    if (flags & O_TRUNC) {
        if (ftruncate(fd, 0) != 0)
            return -errno;
        st->st_size = 0;
    }
    return 0;
}

int mr_openat_regular(int dir, const char *name, int flags, unsigned mode, struct stat *st)
{
    struct stat own;
    int fd;
    do
        fd = openat(dir, name, (flags & ~O_TRUNC) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) /* ENXIO: a socket, a FIFO without a reader, a device that is not there */
        return errno == ENXIO ? MR_E_FORMAT : -errno;
    int rc = check_open(fd, flags, st ? st : &own);
    if (rc < 0)
        close(fd);
    return rc < 0 ? rc : fd;
}

int mr_open_regular(const char *path, int flags, unsigned mode, struct stat *st, struct mr_error *err)
{
    int fd = mr_openat_regular(AT_FDCWD, path, flags, mode, st);
    if (fd == MR_E_FORMAT)
        return mr_error_plain(err, fd, "cannot open '%s': it is not a regular file", path);
    return fd < 0 ? mr_error_set(err, fd, "cannot open '%s'", path) : fd;
}

bool mr_is_foreign_link(const char *path)
{
    struct stat st;
    char name[PATH_MAX];
    size_t n = strnlen(path, sizeof name - 1);
    memcpy(name, path, n);
    while (n > 1 && name[n - 1] == '/') /* lstat("link/") would look at the folder */
        n--;
    name[n] = '\0';
    return lstat(name, &st) == 0 && S_ISLNK(st.st_mode) && st.st_uid && st.st_uid != geteuid();
}

#define CREATE_ATTEMPTS 100 /* somebody puts the name back as often as we remove it */

int mr_create_anew(const char *path, unsigned mode)
{
    for (int attempt = 0; attempt < CREATE_ATTEMPTS; attempt++) {
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
        if (fd >= 0)
            return fd;
        if (errno != EEXIST && errno != EINTR)
            return -errno;
        if (errno == EEXIST && unlink(path) != 0 && errno != ENOENT)
            return -errno;
    }
    return -EEXIST;
}

FILE *mr_fcreate_anew(const char *path)
{
    int fd = mr_create_anew(path, 0666);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (fd < 0)
        errno = -fd;
    else if (!f)
        close(fd);
    return f;
}

FILE *mr_fopen_regular(const char *path)
{
    int fd = mr_openat_regular(AT_FDCWD, path, O_RDONLY, 0, NULL);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    if (fd < 0)
        errno = fd == MR_E_FORMAT ? EINVAL : -fd;
    else if (!f)
        close(fd);
    return f;
}
