/* The posix backend: files and folders of the operating system. Direct calls are one system call in the calling thread
 * (store_posix_io.c); queues are served by worker threads (store_workq.c); page-cache control is in
 * store_posix_cache.c.
 *
 * Invariants
 *  1. A direct object has off_align > 0; once it falls to 0 it stays 0 (the file system refused).
 *  2. fd and fd_buffered of one object name the same inode.
 *  3. An object holds no lock; the bounce pool's lock is a leaf. */
#include "store/store_posix.h"

#include "base/common.h"
#include "base/log.h"
#include "base/regular_file.h"
#include "store/store_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- the store ---- */

#define ROW(key, field, type, def, ...) MR_OPTION(mr_posix_options, key, field, type, def, __VA_ARGS__)
const struct mr_option mr_posix_option_rows[] = {
    ROW("threads", threads, INT, "0", .min = 0, .max = 256,
        .doc =
            "Threads that serve I/O queues (with uring: only where it falls back); 0 chooses four per CPU, at least 8 "
            "and at "
            "most 32. Direct calls use none."),
    ROW("direct", direct, BOOL, "false",
        .doc = "Bypass the page cache (O_DIRECT) for every object, with a note where the file system refuses."),
    MR_STORE_TIMING_OPTION(struct mr_posix_options),
    MR_OPTION_END,
};

int mr_posix_init(struct mr_posix_store *s, const struct mr_store_ops *ops, const struct mr_posix_options *o,
                  mr_io_exec_fn *exec, struct mr_error *err)
{
    s->base.ops = ops;
    s->direct = o->direct;
    s->timing = o->timing;
    atomic_init(&s->noted_no_direct, false);
    pthread_mutex_init(&s->bounce.lock, NULL);
    int rc = mr_workpool_create(&s->base, (unsigned)o->threads, exec, o->timing, &s->pool, err);
    if (rc < 0)
        pthread_mutex_destroy(&s->bounce.lock);
    return rc;
}

void mr_posix_done(struct mr_posix_store *s)
{
    mr_workpool_free(s->pool);
    free(s->root);
    while (s->bounce.count > 0)
        free(s->bounce.kept[--s->bounce.count]);
    pthread_mutex_destroy(&s->bounce.lock);
}

static int posix_open(const void *options, struct mr_store *lower, struct mr_store **out, struct mr_error *err)
{
    (void)lower;
    struct mr_posix_store *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot open store 'posix'");
    int rc = mr_posix_init(s, &mr_store_posix_ops, options, mr_posix_exec, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    *out = &s->base;
    return 0;
}

void mr_posix_close(struct mr_store *base)
{
    struct mr_posix_store *s = (struct mr_posix_store *)base;
    mr_posix_done(s);
    free(s);
}

void mr_posix_note_no_direct(struct mr_posix_store *s, const char *path)
{
    if (!atomic_exchange(&s->noted_no_direct, true))
        mr_log(MR_LOG_NOTE, "direct I/O is not possible on the file system of '%s'; using the page cache", path);
}

/* ---- objects ---- */

void mr_posix_ask_alignment(int fd, unsigned *mem_align, unsigned *off_align)
{
    struct statx sx;
    *mem_align = *off_align = MR_BOUNCE_ALIGN;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) != 0 || !(sx.stx_mask & STATX_DIOALIGN))
        return;
    *mem_align = sx.stx_dio_mem_align;
    *off_align = sx.stx_dio_offset_align;
    if (*off_align > MR_BOUNCE_ALIGN || *mem_align > MR_BOUNCE_ALIGN || *mem_align == 0)
        *off_align = 0;
}

static int open_flags(unsigned flags)
{
    int f = O_CLOEXEC;
    if ((flags & MR_OBJ_READ) && (flags & MR_OBJ_WRITE))
        f |= O_RDWR;
    else
        f |= flags & MR_OBJ_WRITE ? O_WRONLY : O_RDONLY;
    if (flags & MR_OBJ_CREATE)
        f |= O_CREAT;
    if (flags & MR_OBJ_TRUNCATE)
        f |= O_TRUNC;
    if (flags & MR_OBJ_EXCLUSIVE)
        f |= O_CREAT | O_EXCL;
    return f;
}

/* ---- below a folder, without links ---- */

int mr_store_confine(struct mr_store *s, const char *folder, bool owner_only)
{
    while (s->lower)
        s = s->lower;
    if (s->ops->list != mr_posix_list)
        return 0;
    struct mr_posix_store *p = (struct mr_posix_store *)s;
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    char *root = strndup(folder, n);
    if (!root)
        return -ENOMEM;
    free(p->root);
    p->root = root;
    p->owner_only = owner_only;
    return 0;
}

/* Where a call goes: a name in an open folder, or the path as it is. */
struct way {
    int dir;
    const char *name;
    bool confined;
    char part[NAME_MAX + 1]; /* of the path: its last component */
};

static void leave(const struct way *w)
{
    int keep = errno;
    if (w->dir >= 0)
        close(w->dir);
    errno = keep;
}

/* The next component of *rest into `part`; false at the end. -1 in errno's words for one that is too long. */
static bool next_part(const char **rest, char part[NAME_MAX + 1], int *code)
{
    *rest += strspn(*rest, "/");
    size_t n = strcspn(*rest, "/");
    if (n == 0)
        return false;
    if (n > NAME_MAX) {
        *code = -ENAMETOOLONG;
        return false;
    }
    memcpy(part, *rest, n);
    part[n] = '\0';
    *rest += n;
    return true;
}

/* Looked at for every call: who may write to the folder above can put another one there at any time. */
static bool is_private(int dir)
{
    struct stat st;
    return fstat(dir, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH));
}

/* 0 or -errno. On 0 the caller calls `leave`. */
static int find_way(const struct mr_store *base, const char *path, struct way *w)
{
    const struct mr_posix_store *s = (const struct mr_posix_store *)base;
    size_t n = s->root ? strlen(s->root) : 0;
    int code = 0;
    *w = (struct way){.dir = AT_FDCWD, .name = path}; /* AT_FDCWD is negative: nothing to close */
    if (!s->root || strncmp(path, s->root, n) != 0 || (path[n] != '/' && s->root[n - 1] != '/'))
        return 0;
    const char *rest = path + n;
    if (!next_part(&rest, w->part, &code))
        return code;
    int dir = open(s->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0 && s->owner_only && (!is_private(dir) || mr_is_foreign_link(s->root))) {
        close(dir);
        return -EPERM;
    }
    char part[NAME_MAX + 1];
    while (dir >= 0 && next_part(&rest, part, &code)) {
        int next = strcmp(w->part, "..") == 0 ? (errno = EXDEV, -1)
                                              : openat(dir, w->part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int keep = errno;
        close(dir);
        errno = keep;
        dir = next;
        memcpy(w->part, part, sizeof part);
    }
    if (dir < 0)
        return -errno;
    w->dir = dir;
    w->name = w->part;
    w->confined = true;
    if (code) {
        leave(w);
        w->dir = AT_FDCWD;
    }
    return code;
}

static int open_folder(const struct mr_store *s, const char *path)
{
    struct way w;
    int code = find_way(s, path, &w);
    if (code)
        return code;
    int fd = openat(w.dir, w.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (w.confined ? O_NOFOLLOW : 0));
    code = fd < 0 ? -errno : fd;
    leave(&w);
    return code;
}

/* A descriptor or -errno. O_NONBLOCK: a pipe does not wait for its other end. */
static int open_file(const struct mr_store *base, const char *path, int flags)
{
    const struct mr_posix_store *s = (const struct mr_posix_store *)base;
    struct way w;
    struct stat st;
    int code = find_way(base, path, &w), fd, now;
    if (code)
        return code;
    if ((flags & O_CREAT) && !w.confined && mr_is_foreign_link(path)) /* what it points to is not ours to replace */
        return -ELOOP;
    do /* a pipe that took the place of a file is opened or refused at once; reading it by offset then fails */
        fd = openat(w.dir, w.name, flags | O_NONBLOCK | (w.confined ? O_NOFOLLOW : 0), s->owner_only ? 0600 : 0666);
    while (fd < 0 && errno == EINTR);
    code = fd < 0 ? -errno : fd;
    if (fd >= 0 && (now = fcntl(fd, F_GETFL)) >= 0) /* a ring returns EAGAIN for a file that does not block */
        (void)fcntl(fd, F_SETFL, now & ~O_NONBLOCK);
    leave(&w);
    if (fd < 0 || !w.confined)
        return code;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    close(fd);
    return S_ISDIR(st.st_mode) ? -EISDIR : MR_E_FORMAT;
}

/* Turns direct I/O on for an open object, after the open: open(O_CREAT|O_DIRECT) would leave a file behind where it is
 * refused. Returns 0 also when it is refused, with a note. */
static int make_direct(struct mr_posix_store *s, struct mr_posix_object *o, bool writable, struct mr_error *err)
{
    unsigned mem_align, off_align;
    mr_posix_ask_alignment(o->fd, &mem_align, &off_align);
    int flags = fcntl(o->fd, F_GETFL);
    if (!off_align || flags < 0 || fcntl(o->fd, F_SETFL, flags | O_DIRECT) != 0) {
        mr_posix_note_no_direct(s, o->base.path);
        return 0;
    }
    if (writable) {
        struct stat a, b;
        o->fd_buffered = open_file(&s->base, o->base.path, O_WRONLY | O_CLOEXEC);
        if (o->fd_buffered < 0)
            return mr_store_fail_path(err, o->fd_buffered, "open", o->base.path);
        if (fstat(o->fd, &a) != 0 || fstat(o->fd_buffered, &b) != 0)
            return mr_store_fail_path(err, -errno, "open", o->base.path);
        if (a.st_dev != b.st_dev || a.st_ino != b.st_ino)
            return mr_error_plain(err, MR_E_CHANGED, "cannot open '%s': it was replaced while it was opened",
                                  o->base.path);
    }
    o->mem_align = mem_align;
    atomic_store(&o->off_align, off_align);
    return 0;
}

/* Asked before opening: opening a pipe for reading waits for a writer, which may never come. */
static int check_kind(const struct mr_store *s, const char *path, struct mr_error *err)
{
    struct stat st;
    struct way w;
    int code = find_way(s, path, &w);
    if (!code && fstatat(w.dir, w.name, &st, w.confined ? AT_SYMLINK_NOFOLLOW : 0) != 0)
        code = -errno;
    leave(&w);
    if (code)
        return mr_store_fail_path(err, code, "open", path);
    if (S_ISLNK(st.st_mode))
        return mr_store_fail_path(err, -ELOOP, "open", path);
    if (S_ISDIR(st.st_mode))
        return mr_store_fail_path(err, -EISDIR, "open", path);
    if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)) /* /dev/zero has no end, a pipe no offsets */
        return mr_error_plain(err, MR_E_FORMAT, "cannot open '%s': it is neither a file nor a block device", path);
    return 0;
}

int mr_posix_object_open(struct mr_store *base, const char *path, unsigned flags, struct mr_object **out,
                         struct mr_error *err)
{
    struct mr_posix_store *s = (struct mr_posix_store *)base;
    size_t len = strlen(path) + 1;
    struct mr_posix_object *o = calloc(1, sizeof(*o) + len);
    if (!o)
        return mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    memcpy(o->path, path, len);
    o->base = (struct mr_object){.store = base, .path = o->path};
    o->fd = o->fd_buffered = -1;
    int rc = flags & (MR_OBJ_WRITE | MR_OBJ_KNOWN)
                 ? 0
                 : check_kind(base, path, err); /* open(2) itself refuses to write a folder */
    if (rc == 0) {
        o->fd = open_file(base, path, open_flags(flags));
        if (o->fd == MR_E_FORMAT || o->fd == -ENXIO)
            rc = mr_error_plain(err, MR_E_FORMAT, "cannot open '%s': it is not a regular file", path);
        else if (o->fd == -ELOOP && mr_is_foreign_link(path))
            rc = mr_error_plain(err, -ELOOP, "cannot write '%s': it is a link of another user", path);
        else
            rc = o->fd < 0 ? mr_store_fail_path(err, o->fd, "open", path) : 0;
    }
    if (rc == 0 && ((flags & MR_OBJ_DIRECT) || s->direct))
        rc = make_direct(s, o, flags & MR_OBJ_WRITE, err);
    if (rc == 0 && (flags & MR_OBJ_RANDOM))
        (void)posix_fadvise(o->fd, 0, 0, POSIX_FADV_RANDOM); /* advice: a refusal changes no result */
    if (rc < 0) {
        if (o->fd >= 0)
            close(o->fd);
        if (o->fd_buffered >= 0)
            close(o->fd_buffered);
        free(o);
        return rc;
    }
    *out = &o->base;
    return 0;
}

int mr_posix_object_close(struct mr_object *base, struct mr_error *err)
{
    struct mr_posix_object *o = (struct mr_posix_object *)base;
    int rc = 0;
    if (o->fd_buffered >= 0 && close(o->fd_buffered) != 0)
        rc = -errno;
    if (close(o->fd) != 0 && rc == 0)
        rc = -errno;
    if (rc == -EINTR) /* on Linux the descriptor is gone all the same, and nothing is lost */
        rc = 0;
    if (rc < 0)
        mr_store_fail_path(err, rc, "close", base->path);
    free(o);
    return rc;
}

int mr_posix_object_size(struct mr_object *base, uint64_t *bytes, struct mr_error *err)
{
    struct mr_posix_object *o = (struct mr_posix_object *)base;
    struct stat st;
    if (fstat(o->fd, &st) != 0)
        return mr_store_fail_path(err, -errno, "get the size of", base->path);
    if (S_ISBLK(st.st_mode)) { /* a block device says 0; its end is its size */
        off_t end = lseek(o->fd, 0, SEEK_END);
        if (end < 0)
            return mr_store_fail_path(err, -errno, "get the size of", base->path);
        st.st_size = end;
    }
    *bytes = (uint64_t)st.st_size;
    return 0;
}

int mr_posix_allocate(struct mr_object *base, uint64_t bytes, struct mr_error *err)
{
    struct mr_posix_object *o = (struct mr_posix_object *)base;
    if (bytes == 0)
        return 0;
    /* Not posix_fallocate: where the file system cannot reserve, it would write every block. */
    int rc;
    do
        rc = fallocate(o->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes);
    while (rc != 0 && errno == EINTR);
    if (rc == 0 || errno == EOPNOTSUPP || errno == ENOSYS)
        return 0;
    return mr_store_fail_range(err, -errno, "reserve space for", base->path, (size_t)bytes, 0, 0);
}

int mr_posix_truncate(struct mr_object *base, uint64_t bytes, struct mr_error *err)
{
    struct mr_posix_object *o = (struct mr_posix_object *)base;
    int rc;
    do
        rc = ftruncate(o->fd, (off_t)bytes);
    while (rc != 0 && errno == EINTR);
    return rc == 0 ? 0 : mr_store_fail_path(err, -errno, "truncate", base->path);
}

/* ---- paths ---- */

int mr_posix_stat(struct mr_store *s, const char *path, struct mr_store_stat *out, struct mr_error *err)
{
    struct statx sx;
    struct way w;
    int code = find_way(s, path, &w);
    if (!code &&
        statx(w.dir, w.name, w.confined ? AT_SYMLINK_NOFOLLOW : 0, STATX_BASIC_STATS | STATX_DIOALIGN, &sx) != 0)
        code = -errno;
    leave(&w);
    if (code)
        return mr_store_fail_path(err, code, "stat", path);
    *out = (struct mr_store_stat){
        .bytes = sx.stx_size,
        .mtime_ns = (uint64_t)sx.stx_mtime.tv_sec * MR_NS_PER_S + sx.stx_mtime.tv_nsec,
        .is_dir = S_ISDIR(sx.stx_mode),
    };
    if (S_ISREG(sx.stx_mode) || S_ISBLK(sx.stx_mode))
        out->direct_align = sx.stx_mask & STATX_DIOALIGN ? sx.stx_dio_offset_align : MR_BOUNCE_ALIGN;
    return 0;
}

static bool entry_is_dir(DIR *d, const struct dirent *e, bool follow)
{
    if (e->d_type == DT_LNK && !follow)
        return false;
    if (e->d_type != DT_UNKNOWN && e->d_type != DT_LNK)
        return e->d_type == DT_DIR;
    struct stat st;
    return fstatat(dirfd(d), e->d_name, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

int mr_posix_list(struct mr_store *s, const char *path, mr_store_list_fn *fn, void *user, struct mr_error *err)
{
    int fd = open_folder(s, path);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (fd >= 0 && !d) {
        int code = -errno;
        close(fd);
        fd = code;
    }
    if (!d)
        return mr_store_fail_path(err, fd, "list", path);
    const bool follow = !((struct mr_posix_store *)s)->root;
    int rc = 0;
    while (rc == 0) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (!e) {
            if (errno)
                rc = mr_store_fail_path(err, -errno, "list", path);
            break;
        }
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = fn(user, e->d_name, entry_is_dir(d, e, follow), err);
    }
    closedir(d);
    return rc;
}

int mr_posix_mkdir(struct mr_store *s, const char *path, struct mr_error *err)
{
    struct way w;
    struct stat st;
    int code = find_way(s, path, &w);
    if (code)
        return mr_store_fail_path(err, code, "make folder", path);
    if (mkdirat(w.dir, w.name, ((struct mr_posix_store *)s)->owner_only ? 0700 : 0777) != 0) {
        code = -errno;
        /* A folder that exists may also answer EROFS, EACCES or EISDIR ("/") before EEXIST. */
        if (fstatat(w.dir, w.name, &st, w.confined ? AT_SYMLINK_NOFOLLOW : 0) == 0)
            code = S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
    }
    leave(&w);
    return code ? mr_store_fail_path(err, code, "make folder", path) : 0;
}

int mr_posix_unlink(struct mr_store *s, const char *path, struct mr_error *err)
{
    struct way w;
    int code = find_way(s, path, &w);
    if (code)
        return mr_store_fail_path(err, code, "remove", path);
    if (unlinkat(w.dir, w.name, 0) != 0)
        code = -errno;
    if ((code == -EISDIR || code == -EPERM) && unlinkat(w.dir, w.name, AT_REMOVEDIR) == 0)
        code = 0;
    if (code == -EISDIR)
        code = -errno; /* why the folder could not be removed */
    leave(&w);
    return code ? mr_store_fail_path(err, code, "remove", path) : 0;
}

int mr_posix_rename(struct mr_store *s, const char *from, const char *to, struct mr_error *err)
{
    struct way a, b;
    int code = find_way(s, from, &a);
    if (!code) {
        code = find_way(s, to, &b);
        if (!code && renameat(a.dir, a.name, b.dir, b.name) != 0)
            code = -errno;
        leave(&b);
        leave(&a);
    }
    if (code)
        mr_error_set(err, code, "cannot rename '%s' to '%s'", from, to);
    return code;
}

int mr_posix_sync_dir(struct mr_store *s, const char *path, struct mr_error *err)
{
    int fd = open_folder(s, path);
    if (fd < 0)
        return mr_store_fail_path(err, fd, "open folder", path);
    int code = fsync(fd) == 0 ? 0 : -errno;
    close(fd);                                            /* opened for reading only */
    if (code == 0 || code == -EINVAL || code == -ENOTSUP) /* some file systems have nothing to sync here */
        return 0;
    return mr_store_fail_path(err, code, "sync folder", path);
}

int mr_posix_free_space(struct mr_store *s, const char *path, uint64_t *bytes, uint64_t *inodes, struct mr_error *err)
{
    (void)s;
    struct statvfs v;
    if (statvfs(path, &v) != 0)
        return mr_store_fail_path(err, -errno, "measure free space at", path);
    *bytes = (uint64_t)v.f_bavail * v.f_frsize;
    *inodes = v.f_files ? v.f_favail : UINT64_MAX; /* some file systems make inodes as they go */
    return 0;
}

int mr_posix_ioq_create(struct mr_store *s, unsigned depth, struct mr_ioq **out, struct mr_error *err)
{
    return mr_workq_create(((struct mr_posix_store *)s)->pool, depth, out, err);
}

const struct mr_store_ops mr_store_posix_ops = {
    MR_POSIX_OPS,
    .name = "posix",
    .doc = "Files of the operating system; direct calls in the calling thread, queues served by worker threads.",
    .options = {.section = "posix",
                .doc = "Files of the operating system",
                .options = mr_posix_option_rows,
                .struct_bytes = sizeof(struct mr_posix_options)},
    .open = posix_open,
    .ioq_create = mr_posix_ioq_create,
    .ioq_free = mr_workq_free,
    .ioq_submit = mr_workq_submit,
    .ioq_reap = mr_workq_reap,
    .ioq_register = mr_workq_register,
};
