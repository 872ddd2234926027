/* See gen_lock.h. The store has no locks, so this goes to the file system itself; paths of persistent stores are paths
 * of the file system. Must stay true: whoever holds a lock holds it on the file that has the name now. The file is
 * removed while it is locked, so after locking one looks whether the name still means the same file, and tries again if
 * not. */
#include "dataset/gen_lock.h"
#include "dataset/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct mr_gen_lock {
    int fd;
    char path[MR_NAME_MAX + sizeof MR_GEN_LOCK_NAME];
};

/* 1 locked, 0 cannot be locked, -EAGAIN the file was removed meanwhile, -EWOULDBLOCK (the same number on Linux as
 * EAGAIN, hence -EBUSY here) somebody has it. */
static int try_once(struct mr_gen_lock *l)
{
    struct stat ours, named;
    l->fd = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (l->fd < 0)
        return 0;
    int r = flock(l->fd, LOCK_EX | LOCK_NB) == 0 ? 1 : errno == EWOULDBLOCK ? -EBUSY : 0;
    if (r == 1 && (fstat(l->fd, &ours) != 0 || stat(l->path, &named) != 0 || ours.st_ino != named.st_ino))
        r = -EAGAIN;
    if (r != 1) {
        close(l->fd);
        l->fd = -1;
    }
    return r;
}

int mr_gen_lock_take(struct mr_store *s, const char *folder, struct mr_gen_lock **out, struct mr_error *err)
{
    int r = -EAGAIN;
    if (!(mr_store_caps(s) & MR_STORE_CAP_PERSISTENT) || mr_store_is_url(folder)) /* object storage has no locks */
        return 0;
    struct mr_gen_lock *l = malloc(sizeof(*l));
    if (!l)
        return mr_error_set(err, -ENOMEM, "cannot lock '%s'", folder);
    snprintf(l->path, sizeof l->path, "%s/" MR_GEN_LOCK_NAME, folder);
    for (int tries = 0; r == -EAGAIN && tries < 100; tries++)
        r = try_once(l);
    if (r == 1) {
        *out = l;
        return 1;
    }
    free(l);
    if (r == 0)
        return 0;
    mr_error_plain(err, -EBUSY, "another process is writing to '%s'", folder);
    mr_error_hint(err, "wait for it and run the command again: what it has finished is kept");
    return -EBUSY;
}

void mr_gen_lock_release(struct mr_gen_lock *l)
{
    if (!l)
        return;
    unlink(l->path);
    close(l->fd);
    free(l);
}
