/* The job's key from a file; see wire.h. The descriptor is what is checked, so that nobody can exchange the file between
 * the look and the read. */
#include "base/common.h"
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int check(int fd, const char *path, struct mr_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return mr_error_set(err, -errno, "cannot read the key file '%s'", path);
    if (!S_ISREG(st.st_mode))
        return mr_error_plain(err, MR_E_USAGE, "the key file '%s' is no regular file", path);
    if (st.st_uid != geteuid())
        return mr_error_plain(err, MR_E_USAGE, "the key file '%s' belongs to another user (%u)", path,
                              (unsigned)st.st_uid);
    if (st.st_mode & 077) {
        mr_error_plain(err, MR_E_USAGE, "the key file '%s' is open to others (mode %04o)", path,
                       (unsigned)(st.st_mode & 07777));
        return mr_error_hint(err, "chmod 600 '%s', and draw a new key if somebody may have read it", path), MR_E_USAGE;
    }
    if (st.st_size != MR_WIRE_SECRET_BYTES) {
        mr_error_plain(err, MR_E_USAGE, "the key file '%s' has %lld bytes; want %d", path, (long long)st.st_size,
                       MR_WIRE_SECRET_BYTES);
        return mr_error_hint(err, "make one: (umask 077; head -c %d /dev/urandom > '%s')", MR_WIRE_SECRET_BYTES, path),
               MR_E_USAGE;
    }
    return 0;
}

int mr_wire_key_read(const char *path, uint8_t key[MR_WIRE_SECRET_BYTES], struct mr_error *err)
{
    uint8_t bytes[MR_WIRE_SECRET_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && errno == ELOOP)
        return mr_error_plain(err, MR_E_USAGE, "the key file '%s' is a link", path);
    if (fd < 0)
        return mr_error_set(err, -errno, "cannot read the key file '%s'", path);
    int rc = check(fd, path, err);
    if (!rc && read(fd, bytes, sizeof bytes) != (ssize_t)sizeof bytes)
        rc = mr_error_set(err, -EIO, "cannot read the key file '%s'", path);
    close(fd);
    if (!rc)
        memcpy(key, bytes, sizeof bytes);
    explicit_bzero(bytes, sizeof bytes);
    return rc;
}
