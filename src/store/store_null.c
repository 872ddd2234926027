/* The null backend: the harness's ceiling. Writes vanish, reads cost as little as asked for; whatever is measured above
 * it is the program itself. It is also the skeleton to copy for a new backend: every operation is here, in the order of
 * struct mr_store_ops, in its simplest correct form.
 *
 * What it remembers: which paths exist and how long they are. stat, list, rename and the end of a file behave as
 * anywhere else; only the content is missing. Reads give zeros, a pattern, or leave the buffer alone (option fill).
 * With size=N every path that was never written exists with N bytes, so a workload can run without generating anything.
 *
 * Invariants
 *  1. `lock` guards the list of entries and their sizes; it is a leaf lock.
 *  2. An entry lives while refs > 0: one for being listed, one per open object. */
#include "base/common.h"
#include "store/store_internal.h"
#include "store/store_workq.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- step 1: options, as rows ---- */

enum null_fill { FILL_ZERO, FILL_PATTERN, FILL_NONE };
static const char *const fill_names[] = {"zero", "pattern", "none", NULL};

struct null_options {
    uint64_t size;
    int fill;
    bool timing;
};

#define ROW(key, field, type, def, ...) MR_OPTION(null_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option null_rows[] = {
    ROW("size", size, BYTES, "0", .doc = "Length of objects that were never written; 0 = they do not exist.",
        .example = "null(size=112KiB)"),
    ROW("fill", fill, ENUM, "zero", .choices = fill_names,
        .doc =
            "What a read puts into the buffer: zeros, the low byte of each offset, or nothing at all (the buffer keeps "
            "what it held; costs nothing)."),
    MR_STORE_TIMING_OPTION(struct null_options),
    MR_OPTION_END,
};

/* ---- step 2: store, object and queue structs begin with the common ones ---- */

struct entry {
    struct entry *next; /* in its bucket */
    char *path;         /* normalised */
    uint64_t bytes, mtime_ns;
    unsigned refs;
    bool is_dir;
};

#define BUCKETS 4096u

struct null_store {
    struct mr_store base;
    uint64_t size;
    enum null_fill fill;
    pthread_mutex_t lock;
    struct entry *bucket[BUCKETS];
    struct mr_workpool *queue_pool;
};

struct null_object {
    struct mr_object base;
    struct entry *entry; /* NULL: never written, has the store's size */
    bool can_read, can_write;
    char path[];
};

/* "a//b/./c/" and "/a/b/c" are the same object "a/b/c"; the root is "". */
static char *normalise(const char *path)
{
    char *out = malloc(strlen(path) + 1), *w = out;
    if (!out)
        return NULL;
    while (*path) {
        size_t len = strcspn(path, "/");
        if (len && !(len == 1 && path[0] == '.')) {
            if (w != out)
                *w++ = '/';
            memcpy(w, path, len);
            w += len;
        }
        path += len + (path[len] == '/');
    }
    *w = '\0';
    return out;
}

static unsigned bucket_of(const char *path)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (; *path; path++)
        h = (h ^ (unsigned char)*path) * 0x100000001b3ull;
    return (unsigned)((h ^ h >> 32) % BUCKETS);
}

static struct entry *find(struct null_store *s, const char *path)
{
    struct entry *e = s->bucket[bucket_of(path)];
    while (e && strcmp(e->path, path) != 0)
        e = e->next;
    return e;
}

static void insert(struct null_store *s, struct entry *e)
{
    struct entry **b = &s->bucket[bucket_of(e->path)];
    e->next = *b;
    *b = e;
}

static void take_out(struct null_store *s, struct entry *e)
{
    struct entry **at = &s->bucket[bucket_of(e->path)];
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
}

static void unref(struct entry *e)
{
    assert(e->refs > 0); /* invariant 2 */
    if (--e->refs == 0) {
        free(e->path);
        free(e);
    }
}

static bool is_root(const char *path)
{
    return !*path;
}

/* 0 when the folder that would hold `path` exists. */
static int check_parent(struct null_store *s, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return 0;
    char *parent = strndup(path, (size_t)(slash - path));
    if (!parent)
        return -ENOMEM;
    const struct entry *e = find(s, parent);
    free(parent);
    return !e ? -ENOENT : e->is_dir ? 0 : -ENOTDIR;
}

/* Takes ownership of `path` on success. */
static int add_entry(struct null_store *s, char *path, bool is_dir, struct entry **out)
{
    int rc = check_parent(s, path);
    struct entry *e = rc == 0 ? calloc(1, sizeof(*e)) : NULL;
    if (!e)
        return rc < 0 ? rc : -ENOMEM;
    *e = (struct entry){.path = path, .is_dir = is_dir, .refs = 1, .mtime_ns = mr_wall_ns()};
    insert(s, e);
    *out = e;
    return 0;
}

/* ---- step 3: the operations ---- */

static void null_close(struct mr_store *base)
{
    struct null_store *s = (struct null_store *)base;
    mr_workpool_free(s->queue_pool);
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct entry *e = s->bucket[i], *next; e; e = next) {
            next = e->next;
            unref(e);
        }
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static int null_open(const void *options, struct mr_store *lower, struct mr_store **out, struct mr_error *err)
{
    (void)lower; /* NULL for a backend; a shim would keep it and close it */
    const struct null_options *opt = options;
    struct null_store *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot open store 'null'");
    s->base.ops = &mr_store_null_ops;
    s->size = opt->size;
    s->fill = (enum null_fill)opt->fill;
    pthread_mutex_init(&s->lock, NULL);
    int rc = mr_workpool_create_inline(&s->base, mr_io_exec_generic, opt->timing, &s->queue_pool, err);
    if (rc < 0) {
        null_close(&s->base);
        return rc;
    }
    *out = &s->base;
    return 0;
}

/* Under the lock: the entry to open, NULL for one that was never written. Uses up *path when it makes an entry. */
static int open_entry(struct null_store *s, char **path, unsigned flags, struct entry **out)
{
    struct entry *e = find(s, *path);
    if (is_root(*path) || (e && e->is_dir))
        return -EISDIR;
    if (e && (flags & MR_OBJ_EXCLUSIVE))
        return -EEXIST;
    if (!e && (flags & (MR_OBJ_CREATE | MR_OBJ_EXCLUSIVE))) {
        int rc = add_entry(s, *path, false, &e);
        if (rc < 0)
            return rc;
        *path = NULL;
    }
    if (!e && (s->size == 0 || (flags & MR_OBJ_WRITE)))
        return -ENOENT;
    if (e) {
        e->refs++;
        if (flags & MR_OBJ_TRUNCATE)
            e->bytes = 0;
    }
    *out = e;
    return 0;
}

static int null_object_open(struct mr_store *base, const char *path, unsigned flags, struct mr_object **out,
                            struct mr_error *err)
{
    struct null_store *s = (struct null_store *)base;
    size_t len = strlen(path) + 1;
    struct null_object *o = calloc(1, sizeof(*o) + len);
    char *plain = normalise(path);
    int rc = o && plain ? 0 : -ENOMEM;
    if (rc == 0) {
        memcpy(o->path, path, len);
        o->base = (struct mr_object){.store = base, .path = o->path};
        o->can_read = flags & MR_OBJ_READ;
        o->can_write = flags & MR_OBJ_WRITE;
        pthread_mutex_lock(&s->lock);
        rc = open_entry(s, &plain, flags, &o->entry);
        pthread_mutex_unlock(&s->lock);
    }
    free(plain);
    if (rc < 0) {
        free(o);
        return mr_store_fail_path(err, rc, "open", path);
    }
    *out = &o->base;
    return 0;
}

static int null_object_close(struct mr_object *base, struct mr_error *err)
{
    (void)err;
    struct null_object *o = (struct null_object *)base;
    struct null_store *s = (struct null_store *)base->store;
    pthread_mutex_lock(&s->lock);
    if (o->entry)
        unref(o->entry);
    pthread_mutex_unlock(&s->lock);
    free(o);
    return 0;
}

static int null_object_size(struct mr_object *base, uint64_t *bytes, struct mr_error *err)
{
    (void)err;
    struct null_object *o = (struct null_object *)base;
    struct null_store *s = (struct null_store *)base->store;
    if (!o->entry) {
        *bytes = s->size;
        return 0;
    }
    pthread_mutex_lock(&s->lock);
    *bytes = o->entry->bytes;
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static int64_t null_read(struct mr_object *base, void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    struct null_object *o = (struct null_object *)base;
    const struct null_store *s = (const struct null_store *)base->store;
    uint64_t size = 0;
    if (!o->can_read)
        return mr_store_fail_range(err, -EBADF, "read", base->path, len, offset, 0);
    null_object_size(base, &size, NULL);
    if (offset >= size)
        return 0;
    len = (size_t)MR_MIN((uint64_t)len, size - offset);
    if (s->fill == FILL_ZERO)
        memset(buf, 0, len);
    else if (s->fill == FILL_PATTERN)
        for (size_t i = 0; i < len; i++)
            ((unsigned char *)buf)[i] = (unsigned char)(offset + i);
    return (int64_t)len;
}

static int64_t null_write(struct mr_object *base, const void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    (void)buf;
    struct null_object *o = (struct null_object *)base;
    struct null_store *s = (struct null_store *)base->store;
    if (!o->can_write)
        return mr_store_fail_range(err, -EBADF, "write", base->path, len, offset, 0);
    if (len > INT64_MAX || offset > INT64_MAX - len)
        return mr_store_fail_range(err, -EFBIG, "write", base->path, len, offset, 0);
    pthread_mutex_lock(&s->lock);
    if (len)
        o->entry->bytes = MR_MAX(o->entry->bytes, offset + len);
    pthread_mutex_unlock(&s->lock);
    return (int64_t)len;
}

static int null_fsync(struct mr_object *o, struct mr_error *err)
{
    (void)o;
    (void)err;
    return 0;
}

static int null_allocate(struct mr_object *o, uint64_t bytes, struct mr_error *err)
{
    (void)o;
    (void)bytes;
    (void)err;
    return 0;
}

static int null_truncate(struct mr_object *base, uint64_t bytes, struct mr_error *err)
{
    struct null_object *o = (struct null_object *)base;
    struct null_store *s = (struct null_store *)base->store;
    if (!o->can_write)
        return mr_store_fail_path(err, -EINVAL, "truncate", base->path);
    pthread_mutex_lock(&s->lock);
    o->entry->bytes = bytes;
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static int null_stat(struct mr_store *base, const char *path, struct mr_store_stat *out, struct mr_error *err)
{
    struct null_store *s = (struct null_store *)base;
    char *plain = normalise(path);
    if (!plain)
        return mr_store_fail_path(err, -ENOMEM, "stat", path);
    int rc = 0;
    pthread_mutex_lock(&s->lock);
    const struct entry *e = find(s, plain);
    if (e)
        *out = (struct mr_store_stat){.bytes = e->bytes, .mtime_ns = e->mtime_ns, .is_dir = e->is_dir};
    else if (is_root(plain))
        *out = (struct mr_store_stat){.is_dir = true};
    else if (s->size)
        *out = (struct mr_store_stat){.bytes = s->size};
    else
        rc = -ENOENT;
    pthread_mutex_unlock(&s->lock);
    free(plain);
    return rc < 0 ? mr_store_fail_path(err, rc, "stat", path) : 0;
}

/* The name of `e` inside `folder` when it lies directly there, else NULL. */
static const char *name_in(const struct entry *e, const char *folder)
{
    size_t len = strlen(folder);
    if (len && (strncmp(e->path, folder, len) != 0 || e->path[len] != '/'))
        return NULL;
    const char *name = e->path + (len ? len + 1 : 0);
    return strchr(name, '/') ? NULL : name;
}

static int null_list(struct mr_store *base, const char *path, mr_store_list_fn *fn, void *user, struct mr_error *err)
{
    struct null_store *s = (struct null_store *)base;
    struct mr_names names = {0};
    char *plain = normalise(path);
    if (!plain)
        return mr_store_fail_path(err, -ENOMEM, "list", path);
    pthread_mutex_lock(&s->lock);
    const struct entry *folder = find(s, plain);
    int rc = is_root(plain) || (folder && folder->is_dir) ? 0 : folder ? -ENOTDIR : -ENOENT;
    for (unsigned i = 0; i < BUCKETS; i++)
        for (const struct entry *e = s->bucket[i]; rc == 0 && e; e = e->next) {
            const char *name = name_in(e, plain);
            if (name)
                rc = mr_names_add(&names, name, e->is_dir);
        }
    pthread_mutex_unlock(&s->lock);
    free(plain);
    if (rc == 0)
        return mr_names_give(&names, fn, user, err);
    mr_names_done(&names);
    return mr_store_fail_path(err, rc, "list", path);
}

static int null_mkdir(struct mr_store *base, const char *path, struct mr_error *err)
{
    struct null_store *s = (struct null_store *)base;
    char *plain = normalise(path);
    if (!plain)
        return mr_store_fail_path(err, -ENOMEM, "make folder", path);
    pthread_mutex_lock(&s->lock);
    struct entry *e = find(s, plain);
    int rc = 0;
    if (e) {
        rc = e->is_dir ? 0 : -ENOTDIR;
    } else if (!is_root(plain)) {
        rc = add_entry(s, plain, true, &e);
        if (rc == 0)
            plain = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    free(plain);
    return rc < 0 ? mr_store_fail_path(err, rc, "make folder", path) : 0;
}

static bool is_below(const struct entry *e, const char *folder)
{
    size_t len = strlen(folder);
    return strncmp(e->path, folder, len) == 0 && e->path[len] == '/';
}

static bool has_children(const struct null_store *s, const char *folder)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        for (const struct entry *e = s->bucket[i]; e; e = e->next)
            if (is_below(e, folder))
                return true;
    return false;
}

static int null_unlink(struct mr_store *base, const char *path, struct mr_error *err)
{
    struct null_store *s = (struct null_store *)base;
    char *plain = normalise(path);
    if (!plain)
        return mr_store_fail_path(err, -ENOMEM, "remove", path);
    pthread_mutex_lock(&s->lock);
    struct entry *e = find(s, plain);
    int rc = !e ? -ENOENT : e->is_dir && has_children(s, plain) ? -ENOTEMPTY : 0;
    if (rc == 0) {
        take_out(s, e);
        unref(e);
    }
    pthread_mutex_unlock(&s->lock);
    free(plain);
    return rc < 0 ? mr_store_fail_path(err, rc, "remove", path) : 0;
}

/* Gives `e` the path `to` + (its path behind `from`). */
static int repath(struct null_store *s, struct entry *e, const char *from, const char *to)
{
    size_t skip = strlen(from), a = strlen(to), b = strlen(e->path + skip);
    char *path = malloc(a + b + 1);
    if (!path)
        return -ENOMEM;
    memcpy(path, to, a);
    memcpy(path + a, e->path + skip, b + 1);
    take_out(s, e);
    free(e->path);
    e->path = path;
    insert(s, e);
    return 0;
}

static int move(struct null_store *s, const char *from, const char *to)
{
    struct entry *a = find(s, from), *b = find(s, to);
    if (!a)
        return -ENOENT;
    if (a == b)
        return 0;
    int rc = check_parent(s, to);
    if (rc < 0)
        return rc;
    if (strncmp(to, from, strlen(from)) == 0 && to[strlen(from)] == '/')
        return -EINVAL;
    if (b && b->is_dir != a->is_dir)
        return b->is_dir ? -EISDIR : -ENOTDIR;
    if (b && b->is_dir && has_children(s, to))
        return -ENOTEMPTY;
    if (b) {
        take_out(s, b);
        unref(b);
    }
    rc = repath(s, a, from, to);
    for (unsigned i = 0; rc == 0 && i < BUCKETS; i++) {
        for (struct entry *e = s->bucket[i], *next; rc == 0 && e; e = next) {
            next = e->next;
            if (is_below(e, from))
                rc = repath(s, e, from, to);
        }
    }
    return rc;
}

static int null_rename(struct mr_store *base, const char *from, const char *to, struct mr_error *err)
{
    struct null_store *s = (struct null_store *)base;
    char *a = normalise(from), *b = normalise(to);
    int rc = -ENOMEM;
    if (a && b) {
        pthread_mutex_lock(&s->lock);
        rc = move(s, a, b);
        pthread_mutex_unlock(&s->lock);
    }
    free(a);
    free(b);
    return rc < 0 ? mr_error_set(err, rc, "cannot rename '%s' to '%s'", from, to) : 0;
}

static int null_sync_dir(struct mr_store *s, const char *path, struct mr_error *err)
{
    struct mr_store_stat st = {0};
    int rc = null_stat(s, path, &st, err);
    return rc < 0 || st.is_dir ? rc : mr_store_fail_path(err, -ENOTDIR, "sync folder", path);
}

static int null_free_space(struct mr_store *s, const char *path, uint64_t *bytes, uint64_t *inodes,
                           struct mr_error *err)
{
    struct mr_store_stat st;
    int rc = null_stat(s, path, &st, err);
    if (rc < 0)
        return rc;
    *bytes = INT64_MAX; /* whatever is asked will fit */
    *inodes = UINT64_MAX;
    return 0;
}

static int null_ioq_create(struct mr_store *s, unsigned depth, struct mr_ioq **out, struct mr_error *err)
{
    return mr_workq_create(((struct null_store *)s)->queue_pool, depth, out, err);
}

/* ---- step 4: the table; then one row in the registry in store.c ---- */

const struct mr_store_ops mr_store_null_ops = {
    .abi = MR_STORE_ABI,
    .size = sizeof(struct mr_store_ops),
    .name = "null",
    .doc = "No storage at all: reads give zeros, writes vanish, sizes are remembered. Measures the program itself.",
    .caps = MR_STORE_CAP_WRITE | MR_STORE_CAP_RENAME | MR_STORE_CAP_OFFSET_WRITE | MR_STORE_CAP_APPEND,
    .options = {.section = "null",
                .doc = "No storage at all",
                .options = null_rows,
                .struct_bytes = sizeof(struct null_options)},
    .open = null_open,
    .close = null_close,
    .object_open = null_object_open,
    .object_close = null_object_close,
    .object_size = null_object_size,
    .read = null_read,
    .write = null_write,
    .fsync = null_fsync,
    .allocate = null_allocate,
    .truncate = null_truncate,
    .stat = null_stat,
    .list = null_list,
    .mkdir = null_mkdir,
    .unlink = null_unlink,
    .rename = null_rename,
    .sync_dir = null_sync_dir,
    .free_space = null_free_space,
    .drop_cache = mr_store_no_drop_cache,
    .resident = mr_store_no_resident,
    .ioq_create = null_ioq_create,
    .ioq_free = mr_workq_free,
    .ioq_submit = mr_workq_submit,
    .ioq_reap = mr_workq_reap,
    .ioq_register = mr_workq_register,
};
