/* A storage backend as a plug-in: plain files through plain system calls, with one option (`root`, put in front of
 * every path). To write your own, rename it and replace the system calls; the header <millrace/plugin_store.h> says
 * what each operation promises. The queue functions come from the program: requests are executed by its worker threads.
 *
 *     millrace run --store 'skeleton(root=/mnt/x)' ...            also below shims: throttle(bandwidth=1GB):skeleton */
#include <millrace/plugin.h>
#include <millrace/plugin_store.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define ROOT_BYTES 2048
#define PATH_BYTES 8192 /* more than the kernel takes, so that what is cut here is refused there */

/* Filled by the program from what the user wrote; valid only during `open`. */
struct options {
    const char *root;
    bool timing;
};

static const struct mr_option rows[] = {
    MR_OPTION(options, "root", root, STRING, "", .doc = "Folder that all paths are below; empty: paths as they are."),
    MR_OPTION(options, "timing", timing, BOOL, "false", .doc = "Stamp every queued request with its times."),
    MR_OPTION_END,
};

struct store {
    struct mr_store base; /* first, so that a struct mr_store * is a struct store * */
    struct mr_workpool *pool;
    char root[ROOT_BYTES];
};

struct object {
    struct mr_object base;
    int fd;
    char path[]; /* as the caller gave it */
};

static const struct mr_store_ops skeleton;

static const char *full(const struct mr_store *s, const char *path, char out[PATH_BYTES])
{
    const char *root = ((const struct store *)s)->root;
    snprintf(out, PATH_BYTES, "%s%s%s", root, *root && *path != '/' ? "/" : "", path);
    return out;
}

/* ---- the store ---- */

static int store_open(const void *given, struct mr_store *lower, struct mr_store **out, struct mr_error *err)
{
    const struct options *o = given;
    (void)lower; /* NULL: this is a backend. A shim keeps it and closes it. */
    if (strlen(o->root) >= ROOT_BYTES)
        return mr_error_plain(err, MR_E_CONFIG, "the root of store 'skeleton' has %zu bytes", strlen(o->root));
    struct store *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot open store 'skeleton'");
    s->base.ops = &skeleton;
    snprintf(s->root, sizeof(s->root), "%s", o->root);
    int rc = mr_workpool_create(&s->base, 0, mr_io_exec_generic, o->timing, &s->pool, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    *out = &s->base;
    return 0;
}

static void store_close(struct mr_store *s)
{
    mr_workpool_free(((struct store *)s)->pool);
    free(s);
}

/* ---- objects ---- */

static int open_flags(unsigned flags)
{
    int f = O_CLOEXEC;
    f |= (flags & MR_OBJ_READ) && (flags & MR_OBJ_WRITE) ? O_RDWR : flags & MR_OBJ_WRITE ? O_WRONLY : O_RDONLY;
    f |= flags & MR_OBJ_CREATE ? O_CREAT : 0;
    f |= flags & MR_OBJ_TRUNCATE ? O_TRUNC : 0;
    f |= flags & MR_OBJ_EXCLUSIVE ? O_EXCL : 0;
    return f; /* DIRECT, RANDOM and KNOWN are advice: we do not have CAP_DIRECT */
}

static int object_open(struct mr_store *s, const char *path, unsigned flags, struct mr_object **out,
                       struct mr_error *err)
{
    char name[PATH_BYTES];
    struct stat st;
    size_t n = strlen(path) + 1;
    struct object *o = malloc(sizeof(*o) + n);
    if (!o)
        return mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    o->fd = open(full(s, path, name), open_flags(flags), 0666);
    int code = o->fd < 0 || fstat(o->fd, &st) != 0 ? -errno : S_ISDIR(st.st_mode) ? -EISDIR : 0;
    if (code < 0) {
        if (o->fd >= 0)
            close(o->fd);
        free(o);
        return mr_store_fail_path(err, code, "open", path);
    }
    memcpy(o->path, path, n);
    o->base.store = s;
    o->base.path = o->path;
    *out = &o->base;
    return 0;
}

static int object_close(struct mr_object *base, struct mr_error *err)
{
    struct object *o = (struct object *)base;
    int rc = close(o->fd) == 0 || errno == EINTR ? 0 : mr_store_fail_path(err, -errno, "close", o->path);
    free(o);
    return rc;
}

static int object_size(struct mr_object *base, uint64_t *bytes, struct mr_error *err)
{
    struct stat st;
    if (fstat(((struct object *)base)->fd, &st) != 0)
        return mr_store_fail_path(err, -errno, "stat", base->path);
    *bytes = (uint64_t)st.st_size;
    return 0;
}

static int64_t object_read(struct mr_object *base, void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    ssize_t n = pread(((struct object *)base)->fd, buf, len, (off_t)offset);
    return n >= 0 ? n : mr_store_fail_range(err, -errno, "read", base->path, len, offset, 0);
}

static int64_t object_write(struct mr_object *base, const void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    ssize_t n = pwrite(((struct object *)base)->fd, buf, len, (off_t)offset);
    return n >= 0 ? n : mr_store_fail_range(err, -errno, "write", base->path, len, offset, 0);
}

static int object_fsync(struct mr_object *base, struct mr_error *err)
{
    return fsync(((struct object *)base)->fd) == 0 ? 0 : mr_store_fail_path(err, -errno, "sync", base->path);
}

static int object_allocate(struct mr_object *base, uint64_t bytes, struct mr_error *err)
{
    (void)base, (void)bytes, (void)err;
    return 0; /* advice */
}

static int object_truncate(struct mr_object *base, uint64_t bytes, struct mr_error *err)
{
    return ftruncate(((struct object *)base)->fd, (off_t)bytes) == 0
               ? 0
               : mr_store_fail_path(err, -errno, "truncate", base->path);
}

/* ---- paths ---- */

static int store_stat(struct mr_store *s, const char *path, struct mr_store_stat *out, struct mr_error *err)
{
    char name[PATH_BYTES];
    struct stat st;
    if (stat(full(s, path, name), &st) != 0)
        return mr_store_fail_path(err, -errno, "stat", path);
    *out = (struct mr_store_stat){.bytes = (uint64_t)st.st_size,
                                  .mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec,
                                  .is_dir = S_ISDIR(st.st_mode)};
    return 0;
}

/* The names are copied first: the callback may remove what it is told. */
static int store_list(struct mr_store *s, const char *path, mr_store_list_fn *fn, void *user, struct mr_error *err)
{
    char name[PATH_BYTES], child[2 * PATH_BYTES];
    struct dirent **list = NULL;
    int n = scandir(full(s, path, name), &list, NULL, alphasort), rc = 0;
    if (n < 0)
        return mr_store_fail_path(err, -errno, "list", path);
    for (int i = 0; i < n; i++) {
        struct stat st;
        bool real = strcmp(list[i]->d_name, ".") != 0 && strcmp(list[i]->d_name, "..") != 0;
        snprintf(child, sizeof(child), "%s/%s", name, list[i]->d_name);
        if (rc == 0 && real)
            rc = fn(user, list[i]->d_name, lstat(child, &st) == 0 && S_ISDIR(st.st_mode), err);
        free(list[i]);
    }
    free(list);
    return rc;
}

static int store_mkdir(struct mr_store *s, const char *path, struct mr_error *err)
{
    char name[PATH_BYTES];
    struct stat st;
    if (mkdir(full(s, path, name), 0777) == 0)
        return 0;
    int code = -errno;
    if (code == -EEXIST && stat(name, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return 0;
        code = -ENOTDIR;
    }
    return mr_store_fail_path(err, code, "make folder", path);
}

static int store_unlink(struct mr_store *s, const char *path, struct mr_error *err)
{
    char name[PATH_BYTES];
    return remove(full(s, path, name)) == 0 ? 0 : mr_store_fail_path(err, -errno, "remove", path);
}

static int store_rename(struct mr_store *s, const char *from, const char *to, struct mr_error *err)
{
    char a[PATH_BYTES], b[PATH_BYTES];
    if (rename(full(s, from, a), full(s, to, b)) == 0)
        return 0;
    return mr_error_set(err, -errno, "cannot rename '%s' to '%s'", from, to);
}

static int store_sync_dir(struct mr_store *s, const char *path, struct mr_error *err)
{
    char name[PATH_BYTES];
    int fd = open(full(s, path, name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd >= 0 && fsync(fd) == 0 ? 0 : mr_store_fail_path(err, -errno, "sync", path);
    if (fd >= 0)
        close(fd);
    return rc;
}

static int store_free_space(struct mr_store *s, const char *path, uint64_t *bytes, uint64_t *inodes,
                            struct mr_error *err)
{
    char name[PATH_BYTES];
    struct statvfs v;
    if (statvfs(full(s, path, name), &v) != 0)
        return mr_store_fail_path(err, -errno, "ask for the free space of", path);
    *bytes = (uint64_t)v.f_bavail * v.f_frsize;
    *inodes = v.f_files ? (uint64_t)v.f_favail : UINT64_MAX; /* some file systems have no limit and say 0 */
    return 0;
}

static int ioq_create(struct mr_store *s, unsigned depth, struct mr_ioq **out, struct mr_error *err)
{
    return mr_workq_create(((struct store *)s)->pool, depth, out, err);
}

static const struct mr_store_ops skeleton = {
    .abi = MR_STORE_ABI,
    .size = sizeof(struct mr_store_ops),
    .name = "skeleton",
    .doc = "Files through plain system calls: the store to copy for a plug-in.",
    .caps = MR_STORE_CAP_WRITE | MR_STORE_CAP_PERSISTENT | MR_STORE_CAP_CONTENT | MR_STORE_CAP_RENAME |
            MR_STORE_CAP_OFFSET_WRITE | MR_STORE_CAP_APPEND,
    .options = {.section = "skeleton", .doc = "Plain files", .options = rows, .struct_bytes = sizeof(struct options)},
    .open = store_open,
    .close = store_close,
    .object_open = object_open,
    .object_close = object_close,
    .object_size = object_size,
    .read = object_read,
    .write = object_write,
    .fsync = object_fsync,
    .allocate = object_allocate,
    .truncate = object_truncate,
    .stat = store_stat,
    .list = store_list,
    .mkdir = store_mkdir,
    .unlink = store_unlink,
    .rename = store_rename,
    .sync_dir = store_sync_dir,
    .free_space = store_free_space,
    .drop_cache = mr_store_no_drop_cache,
    .resident = mr_store_no_resident,
    .ioq_create = ioq_create,
    .ioq_free = mr_workq_free,
    .ioq_submit = mr_workq_submit,
    .ioq_reap = mr_workq_reap,
    .ioq_register = mr_workq_register,
};

MR_PLUGIN_DEFINE({MR_PLUGIN_STORE, &skeleton});
