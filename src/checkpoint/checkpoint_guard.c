/* See the header. Everything below a folder by descriptors, without links (C7). */
#include "checkpoint/checkpoint_guard.h"

#include "base/regular_file.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OWNER_FILE ".tier"
#define LOCK_FILE ".saver"

void mr_checkpoint_canonical(const char *folder, char *out, int cap)
{
    char whole[PATH_MAX], part[PATH_MAX], real[PATH_MAX];
    snprintf(whole, sizeof whole, "%s%s", *folder == '/' || mr_store_is_url(folder) ? "" : "./", folder);
    for (size_t n = strlen(whole); n > 1 && whole[n - 1] == '/';)
        whole[--n] = '\0';
    snprintf(part, sizeof part, "%s", mr_store_is_url(folder) ? "" : whole);
    for (char *slash; !realpath(part, real) && (slash = strrchr(part, '/'));)
        *slash = '\0';
    const char *rest = whole + strlen(part);
    bool below_root = !*part || (strcmp(real, "/") == 0 && *rest);
    snprintf(out, (size_t)cap, "%s%s", below_root ? "" : real, rest);
}

/* A descriptor of a regular file in a folder; -1: none. A link or a pipe there is an error. */
static int open_guard(int dir, const char *folder, const char *name, int flags, mode_t mode, int *fd,
                      struct mr_error *err)
{
    int rc = mr_openat_regular(dir, name, flags | O_NOFOLLOW, mode, NULL);
    *fd = rc < 0 ? -1 : rc;
    if (rc != -ELOOP && rc != -EISDIR && rc != MR_E_FORMAT)
        return 0;
    mr_error_plain(err, MR_E_FORMAT, "'%s/%s' is not a regular file", folder, name);
    return mr_error_hint(err, "remove it, and see who put it there"), MR_E_FORMAT;
}

int mr_checkpoint_lock(const char *folder, bool owner_only, int *fd, struct mr_error *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char who[256] = "", host[128] = "";
    int dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC), lock = -1;
    *fd = -1;
    if (dir < 0)
        return 0; /* no folder of the operating system */
    int rc = open_guard(dir, folder, LOCK_FILE, O_RDWR | O_CREAT, owner_only ? 0600 : 0666, &lock, err);
    close(dir);
    if (rc || lock < 0)
        return rc;
    if (fcntl(lock, F_OFD_SETLK, &whole) == 0) {
        gethostname(host, sizeof host - 1);
        int n = snprintf(who, sizeof who, "process %ld on host %s\n", (long)getpid(), host);
        if (ftruncate(lock, 0) == 0 && pwrite(lock, who, (size_t)n, 0) != n) /* only for the message of another job */
            who[0] = '\0';
        *fd = lock;
        return 0;
    }
    bool busy = errno == EAGAIN || errno == EACCES;
    ssize_t n = busy ? pread(lock, who, sizeof who - 1, 0) : 0;
    close(lock);
    if (!busy) /* a file system without locks */
        return 0;
    who[n > 0 ? n : 0] = '\0';
    who[strcspn(who, "\n")] = '\0';
    mr_error_plain(err, -EBUSY, "another saver works in '%s'%s%s", folder, *who ? ": " : "", who);
    mr_error_hint(err, "one job at a time may save into a folder; give this one another");
    return -EBUSY;
}

static int check_owner(int dir, const char *tier, struct mr_error *err)
{
    struct stat st;
    if (fstat(dir, &st) != 0)
        return mr_error_set(err, -errno, "cannot look at the tier '%s'", tier);
    if (st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH)))
        return 0;
    if (st.st_uid != geteuid())
        mr_error_plain(err, -EPERM, "the tier '%s' belongs to user %u", tier, (unsigned)st.st_uid);
    else
        mr_error_plain(err, -EPERM, "other users can write to the tier '%s' (mode %04o)", tier,
                       (unsigned)st.st_mode & 07777);
    mr_error_hint(err, "name a folder below it: it is made for you alone");
    return -EPERM;
}

/* Written beside and linked: it is there whole, and the first of two wins. */
static void write_owner(int dir, const char *text)
{
    char name[64];
    snprintf(name, sizeof name, OWNER_FILE ".%ld.%lx", (long)getpid(), (unsigned long)(uintptr_t)&name);
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return; /* the save that follows has the reason */
    bool whole = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (close(fd) == 0 && whole)
        (void)!linkat(dir, name, dir, OWNER_FILE, 0);
    unlinkat(dir, name, 0);
}

int mr_checkpoint_claim(const char *tier, const char *final, bool look, struct mr_error *err)
{
    char folder[PATH_MAX], want[PATH_MAX + 32], have[PATH_MAX + 32] = "";
    if (mr_is_foreign_link(tier)) { /* the names that we give to tiers can be foreseen */
        mr_error_plain(err, -EPERM, "the tier '%s' is a link of another user", tier);
        return mr_error_hint(err, "give a folder of your own"), -EPERM;
    }
    int dir = open(tier, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
    if (dir < 0)
        return 0;
    int rc = check_owner(dir, tier, err);
    mr_checkpoint_canonical(final, folder, sizeof folder);
    snprintf(want, sizeof want, "%s\n", folder);
    for (int attempt = 0; attempt < 2 && !rc && fd < 0; attempt++) {
        if (attempt && !look)
            write_owner(dir, want);
        rc = open_guard(dir, tier, OWNER_FILE, O_RDONLY, 0, &fd, err);
    }
    ssize_t n = fd >= 0 ? read(fd, have, sizeof have - 1) : 0;
    have[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
    close(dir);
    if (rc || !*have || strcmp(have, want) == 0)
        return rc;
    have[strcspn(have, "\n")] = '\0';
    mr_error_plain(err, MR_E_USAGE, "the tier '%s' belongs to the checkpoints of '%s', not to those of '%s'", tier,
                   have, folder);
    return mr_error_hint(err, "give every folder of checkpoints a tier of its own"), MR_E_USAGE;
}
