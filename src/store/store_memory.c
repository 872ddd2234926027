/* The memory backend: a tree of folders and objects inside the process, gone with it. For tests, for a RAM tier, and
 * for measuring everything above the storage.
 *
 * A node is found by hashing (parent, name), so a lookup costs one probe per path component however large the folder
 * is, and renaming a folder moves one node. Content lies in chunks; chunks never written are holes that read as zeros.
 * The first chunk grows from small, so that many small objects stay small.
 *
 * Invariants
 *  1. tree lock: names, parents, children, the hash table. Node lock: size, mtime and chunks of one object.
 *  2. Lock order: tree, then node. Data moves with the node lock only.
 *  3. A node lives while refs > 0: one for being in the tree, one per open object. An unlinked object stays readable.
 *  4. used_bytes counts every chunk and chunk table; with a capacity it never exceeds it. */
#include "base/common.h"
#include "store/store_internal.h"
#include "store/store_workq.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK ((size_t)256 << 10)
#define FIRST_CHUNK_MIN ((size_t)256)
#define MAX_OBJECT_BYTES ((uint64_t)16 << 40)

struct memory_options {
    uint64_t capacity;
    bool timing;
};

struct node {
    char *name;
    struct node *parent, *hash_next;
    struct node *first_child, *prev, *next; /* siblings */
    bool is_dir;
    atomic_uint refs;
    pthread_rwlock_t lock;
    uint64_t size, mtime_ns;
    char **chunk;
    size_t chunk_count, first_bytes; /* table entries; allocated bytes of chunk 0 */
};

struct memory_store {
    struct mr_store base;
    uint64_t capacity; /* 0 = what malloc gives */
    atomic_uint_fast64_t used_bytes;
    pthread_rwlock_t tree;
    struct node *root;
    struct node **bucket;
    size_t bucket_count, node_count;
    struct mr_workpool *queue_pool;
};

struct memory_object {
    struct mr_object base;
    struct node *node;
    bool can_read, can_write;
    char path[];
};

/* ---- space ---- */

static bool reserve(struct memory_store *s, size_t bytes)
{
    uint64_t used = atomic_load(&s->used_bytes);
    do {
        if (s->capacity && (bytes > s->capacity || used > s->capacity - bytes))
            return false;
    } while (!atomic_compare_exchange_weak(&s->used_bytes, &used, used + bytes));
    return true;
}

static void release(struct memory_store *s, size_t bytes)
{
    assert(atomic_load(&s->used_bytes) >= bytes); /* invariant 4 */
    atomic_fetch_sub(&s->used_bytes, bytes);
}

static size_t chunk_bytes(const struct node *n, size_t i)
{
    return i == 0 ? n->first_bytes : CHUNK;
}

/* Frees chunks from `from` on; the table stays. */
static void drop_chunks(struct memory_store *s, struct node *n, size_t from)
{
    for (size_t i = from; i < n->chunk_count; i++) {
        if (!n->chunk[i])
            continue;
        release(s, chunk_bytes(n, i));
        free(n->chunk[i]);
        n->chunk[i] = NULL;
        if (i == 0)
            n->first_bytes = 0;
    }
}

static void node_unref(struct memory_store *s, struct node *n)
{
    assert(atomic_load(&n->refs) > 0); /* invariant 3 */
    if (atomic_fetch_sub(&n->refs, 1) != 1)
        return;
    drop_chunks(s, n, 0);
    release(s, n->chunk_count * sizeof(n->chunk[0]));
    free(n->chunk);
    pthread_rwlock_destroy(&n->lock);
    free(n->name);
    free(n);
}

static bool grow_table(struct memory_store *s, struct node *n, size_t need)
{
    if (need <= n->chunk_count)
        return true;
    size_t count = MR_MAX(need, MR_MIN(n->chunk_count * 2, n->chunk_count + 1024));
    size_t bytes = (count - n->chunk_count) * sizeof(n->chunk[0]);
    if (!reserve(s, bytes))
        return false;
    char **table = realloc(n->chunk, count * sizeof(n->chunk[0]));
    if (!table) {
        release(s, bytes);
        return false;
    }
    memset(table + n->chunk_count, 0, bytes);
    n->chunk = table;
    n->chunk_count = count;
    return true;
}

static bool grow_first(struct memory_store *s, struct node *n, size_t need)
{
    size_t bytes = FIRST_CHUNK_MIN;
    while (bytes < need)
        bytes *= 2;
    if (bytes <= n->first_bytes)
        return true;
    if (!reserve(s, bytes - n->first_bytes))
        return false;
    char *p = realloc(n->chunk[0], bytes);
    if (!p) {
        release(s, bytes - n->first_bytes);
        return false;
    }
    memset(p + n->first_bytes, 0, bytes - n->first_bytes);
    n->chunk[0] = p;
    n->first_bytes = bytes;
    return true;
}

/* Makes bytes [0, end) of chunk i writable. */
static bool have_chunk(struct memory_store *s, struct node *n, size_t i, size_t end)
{
    if (!grow_table(s, n, i + 1))
        return false;
    if (i == 0)
        return grow_first(s, n, end);
    if (n->chunk[i])
        return true;
    if (!reserve(s, CHUNK))
        return false;
    n->chunk[i] = calloc(1, CHUNK);
    if (!n->chunk[i])
        release(s, CHUNK);
    return n->chunk[i] != NULL;
}

/* ---- the tree; all under the tree lock ---- */

static size_t hash_of(const struct node *parent, const char *name, size_t len)
{
    uint64_t h = 0xcbf29ce484222325ull ^ (uintptr_t)parent >> 4;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)name[i]) * 0x100000001b3ull;
    return (size_t)(h ^ h >> 32);
}

static struct node *child_of(struct memory_store *s, struct node *parent, const char *name, size_t len)
{
    struct node *n = s->bucket[hash_of(parent, name, len) & (s->bucket_count - 1)];
    while (n && !(n->parent == parent && strlen(n->name) == len && memcmp(n->name, name, len) == 0))
        n = n->hash_next;
    return n;
}

static void hash_insert(struct memory_store *s, struct node *n)
{
    struct node **b = &s->bucket[hash_of(n->parent, n->name, strlen(n->name)) & (s->bucket_count - 1)];
    n->hash_next = *b;
    *b = n;
}

static void hash_grow(struct memory_store *s)
{
    size_t old_count = s->bucket_count;
    struct node **old = s->bucket, **grown = calloc(old_count * 2, sizeof(*grown));
    if (!grown)
        return; /* longer chains, same answers */
    s->bucket = grown;
    s->bucket_count = old_count * 2;
    for (size_t i = 0; i < old_count; i++)
        for (struct node *n = old[i], *next; n; n = next) {
            next = n->hash_next;
            hash_insert(s, n);
        }
    free(old);
}

static void link_node(struct memory_store *s, struct node *parent, struct node *n)
{
    n->parent = parent;
    n->prev = NULL;
    n->next = parent->first_child;
    if (n->next)
        n->next->prev = n;
    parent->first_child = n;
    if (++s->node_count > s->bucket_count)
        hash_grow(s);
    hash_insert(s, n);
}

static void unlink_node(struct memory_store *s, struct node *n)
{
    struct node **at = &s->bucket[hash_of(n->parent, n->name, strlen(n->name)) & (s->bucket_count - 1)];
    while (*at != n)
        at = &(*at)->hash_next;
    *at = n->hash_next;
    if (n->prev)
        n->prev->next = n->next;
    else
        n->parent->first_child = n->next;
    if (n->next)
        n->next->prev = n->prev;
    n->parent = NULL;
    s->node_count--;
}

static struct node *new_node(const char *name, size_t len, bool is_dir)
{
    struct node *n = calloc(1, sizeof(*n));
    if (!n || !(n->name = strndup(name, len))) {
        free(n);
        return NULL;
    }
    n->is_dir = is_dir;
    n->mtime_ns = mr_wall_ns();
    atomic_init(&n->refs, 1);
    pthread_rwlock_init(&n->lock, NULL);
    return n;
}

/* A resolved path: the folder that holds it, its last name there, and the node if it exists. */
struct place {
    struct node *parent, *node;
    const char *name;
    size_t len;
};

static int resolve(struct memory_store *s, const char *path, struct place *out)
{
    struct place p = {.parent = s->root, .node = s->root, .name = ""};
    for (const char *c = path; *c;) {
        size_t len = strcspn(c, "/");
        if (len == 0 || (len == 1 && c[0] == '.')) {
            c += len ? len : 1;
            continue;
        }
        if (!p.node)
            return -ENOENT;
        if (!p.node->is_dir)
            return -ENOTDIR;
        if (len == 2 && c[0] == '.' && c[1] == '.') {
            p.node = p.node->parent ? p.node->parent : p.node;
            p.parent = p.node->parent ? p.node->parent : p.node;
            p.name = p.node->name;
            p.len = strlen(p.name);
        } else {
            p = (struct place){.parent = p.node, .name = c, .len = len, .node = child_of(s, p.node, c, len)};
        }
        c += len;
    }
    *out = p;
    return 0;
}

/* ---- objects ---- */

static int find_or_create(struct memory_store *s, const char *path, unsigned flags, struct node **out)
{
    struct place p;
    int rc = resolve(s, path, &p);
    if (rc < 0)
        return rc;
    if (!p.node) {
        if (!(flags & (MR_OBJ_CREATE | MR_OBJ_EXCLUSIVE)))
            return -ENOENT;
        p.node = new_node(p.name, p.len, false);
        if (!p.node)
            return -ENOMEM;
        link_node(s, p.parent, p.node);
    } else if (p.node->is_dir) {
        return -EISDIR;
    } else if (flags & MR_OBJ_EXCLUSIVE) {
        return -EEXIST;
    }
    atomic_fetch_add(&p.node->refs, 1);
    *out = p.node;
    return 0;
}

static int memory_object_open(struct mr_store *base, const char *path, unsigned flags, struct mr_object **out,
                              struct mr_error *err)
{
    struct memory_store *s = (struct memory_store *)base;
    size_t len = strlen(path) + 1;
    struct memory_object *o = calloc(1, sizeof(*o) + len);
    if (!o)
        return mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    memcpy(o->path, path, len);
    o->base = (struct mr_object){.store = base, .path = o->path};
    o->can_read = flags & MR_OBJ_READ;
    o->can_write = flags & MR_OBJ_WRITE;
    if (flags & (MR_OBJ_CREATE | MR_OBJ_EXCLUSIVE))
        pthread_rwlock_wrlock(&s->tree);
    else
        pthread_rwlock_rdlock(&s->tree);
    int rc = find_or_create(s, path, flags, &o->node);
    pthread_rwlock_unlock(&s->tree);
    if (rc < 0) {
        free(o);
        return mr_store_fail_path(err, rc, "open", path);
    }
    if (flags & MR_OBJ_TRUNCATE) {
        pthread_rwlock_wrlock(&o->node->lock);
        drop_chunks(s, o->node, 0);
        o->node->size = 0;
        pthread_rwlock_unlock(&o->node->lock);
    }
    *out = &o->base;
    return 0;
}

static int memory_object_close(struct mr_object *base, struct mr_error *err)
{
    (void)err;
    struct memory_object *o = (struct memory_object *)base;
    node_unref((struct memory_store *)base->store, o->node);
    free(o);
    return 0;
}

static int memory_object_size(struct mr_object *base, uint64_t *bytes, struct mr_error *err)
{
    (void)err;
    struct node *n = ((struct memory_object *)base)->node;
    pthread_rwlock_rdlock(&n->lock);
    *bytes = n->size;
    pthread_rwlock_unlock(&n->lock);
    return 0;
}

/* Copies up to the end of one chunk. */
static size_t copy_out(const struct node *n, char *buf, size_t len, uint64_t offset)
{
    size_t i = (size_t)(offset / CHUNK), at = (size_t)(offset % CHUNK);
    size_t part = MR_MIN(len, CHUNK - at);
    size_t have = i < n->chunk_count && n->chunk[i] ? chunk_bytes(n, i) : 0;
    size_t real = at < have ? MR_MIN(part, have - at) : 0;
    if (real)
        memcpy(buf, n->chunk[i] + at, real);
    memset(buf + real, 0, part - real);
    return part;
}

static int64_t memory_read(struct mr_object *base, void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    struct memory_object *o = (struct memory_object *)base;
    if (!o->can_read)
        return mr_store_fail_range(err, -EBADF, "read", base->path, len, offset, 0);
    struct node *n = o->node;
    size_t done = 0;
    pthread_rwlock_rdlock(&n->lock);
    if (offset < n->size)
        len = (size_t)MR_MIN((uint64_t)len, n->size - offset);
    else
        len = 0;
    while (done < len)
        done += copy_out(n, (char *)buf + done, len - done, offset + done);
    pthread_rwlock_unlock(&n->lock);
    return (int64_t)done;
}

static int64_t memory_write(struct mr_object *base, const void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    struct memory_object *o = (struct memory_object *)base;
    struct memory_store *s = (struct memory_store *)base->store;
    if (!o->can_write)
        return mr_store_fail_range(err, -EBADF, "write", base->path, len, offset, 0);
    if (offset > MAX_OBJECT_BYTES || len > MAX_OBJECT_BYTES - offset)
        return mr_store_fail_range(err, -EFBIG, "write", base->path, len, offset, 0);
    struct node *n = o->node;
    size_t done = 0;
    pthread_rwlock_wrlock(&n->lock);
    while (done < len) {
        size_t i = (size_t)((offset + done) / CHUNK), at = (size_t)((offset + done) % CHUNK);
        size_t part = MR_MIN(len - done, CHUNK - at);
        if (!have_chunk(s, n, i, at + part))
            break;
        memcpy(n->chunk[i] + at, (const char *)buf + done, part);
        done += part;
    }
    if (done) {
        n->size = MR_MAX(n->size, offset + done);
        n->mtime_ns = mr_wall_ns();
    }
    pthread_rwlock_unlock(&n->lock);
    if (done == 0 && len > 0)
        return mr_store_fail_range(err, -ENOSPC, "write", base->path, len, offset, 0);
    return (int64_t)done;
}

static int memory_fsync(struct mr_object *o, struct mr_error *err)
{
    (void)o;
    (void)err;
    return 0;
}

static int memory_allocate(struct mr_object *base, uint64_t bytes, struct mr_error *err)
{
    const struct memory_store *s = (const struct memory_store *)base->store;
    uint64_t used = atomic_load(&s->used_bytes);
    if (s->capacity && bytes > s->capacity - MR_MIN(used, s->capacity))
        return mr_store_fail_range(err, -ENOSPC, "reserve space for", base->path, (size_t)bytes, 0,
                                   (size_t)(s->capacity - MR_MIN(used, s->capacity)));
    return 0;
}

static int memory_truncate(struct mr_object *base, uint64_t bytes, struct mr_error *err)
{
    struct memory_object *o = (struct memory_object *)base;
    struct node *n = o->node;
    if (!o->can_write)
        return mr_store_fail_path(err, -EINVAL, "truncate", base->path);
    if (bytes > MAX_OBJECT_BYTES)
        return mr_store_fail_path(err, -EFBIG, "truncate", base->path);
    pthread_rwlock_wrlock(&n->lock);
    if (bytes < n->size) {
        size_t i = (size_t)(bytes / CHUNK), at = (size_t)(bytes % CHUNK);
        drop_chunks((struct memory_store *)base->store, n, at ? i + 1 : i);
        /* What lies behind the end must read as zeros when the object grows again. */
        if (at && i < n->chunk_count && n->chunk[i] && at < chunk_bytes(n, i))
            memset(n->chunk[i] + at, 0, chunk_bytes(n, i) - at);
    }
    n->size = bytes;
    n->mtime_ns = mr_wall_ns();
    pthread_rwlock_unlock(&n->lock);
    return 0;
}

/* ---- paths ---- */

static int memory_stat(struct mr_store *base, const char *path, struct mr_store_stat *out, struct mr_error *err)
{
    struct memory_store *s = (struct memory_store *)base;
    struct place p;
    pthread_rwlock_rdlock(&s->tree);
    int rc = resolve(s, path, &p);
    if (rc == 0 && !p.node)
        rc = -ENOENT;
    if (rc == 0) {
        pthread_rwlock_rdlock(&p.node->lock);
        *out = (struct mr_store_stat){.bytes = p.node->size, .mtime_ns = p.node->mtime_ns, .is_dir = p.node->is_dir};
        pthread_rwlock_unlock(&p.node->lock);
    }
    pthread_rwlock_unlock(&s->tree);
    return rc < 0 ? mr_store_fail_path(err, rc, "stat", path) : 0;
}

static int memory_list(struct mr_store *base, const char *path, mr_store_list_fn *fn, void *user, struct mr_error *err)
{
    struct memory_store *s = (struct memory_store *)base;
    struct place p;
    struct mr_names names = {0};
    pthread_rwlock_rdlock(&s->tree);
    int rc = resolve(s, path, &p);
    if (rc == 0)
        rc = !p.node ? -ENOENT : !p.node->is_dir ? -ENOTDIR : 0;
    for (const struct node *n = rc == 0 ? p.node->first_child : NULL; n && rc == 0; n = n->next)
        rc = mr_names_add(&names, n->name, n->is_dir);
    pthread_rwlock_unlock(&s->tree);
    if (rc == 0)
        return mr_names_give(&names, fn, user, err);
    mr_names_done(&names);
    return mr_store_fail_path(err, rc, "list", path);
}

static int memory_mkdir(struct mr_store *base, const char *path, struct mr_error *err)
{
    struct memory_store *s = (struct memory_store *)base;
    struct place p;
    pthread_rwlock_wrlock(&s->tree);
    int rc = resolve(s, path, &p);
    if (rc == 0 && p.node) {
        rc = p.node->is_dir ? 0 : -ENOTDIR;
    } else if (rc == 0) {
        struct node *n = new_node(p.name, p.len, true);
        if (n)
            link_node(s, p.parent, n);
        else
            rc = -ENOMEM;
    }
    pthread_rwlock_unlock(&s->tree);
    return rc < 0 ? mr_store_fail_path(err, rc, "make folder", path) : 0;
}

static int memory_unlink(struct mr_store *base, const char *path, struct mr_error *err)
{
    struct memory_store *s = (struct memory_store *)base;
    struct place p;
    pthread_rwlock_wrlock(&s->tree);
    int rc = resolve(s, path, &p);
    if (rc == 0)
        rc = !p.node ? -ENOENT : p.node == s->root ? -EBUSY : p.node->first_child ? -ENOTEMPTY : 0;
    if (rc == 0)
        unlink_node(s, p.node);
    pthread_rwlock_unlock(&s->tree);
    if (rc < 0)
        return mr_store_fail_path(err, rc, "remove", path);
    node_unref(s, p.node);
    return 0;
}

static bool is_inside(const struct node *n, const struct node *folder)
{
    while (n && n != folder)
        n = n->parent;
    return n != NULL;
}

/* Under the tree lock. *gone is the replaced node, for the caller to drop. */
static int move(struct memory_store *s, const char *from, const char *to, struct node **gone)
{
    struct place a = {0}, b = {0};
    int rc = resolve(s, from, &a);
    if (rc < 0 || (rc = resolve(s, to, &b)) < 0)
        return rc;
    if (!a.node)
        return -ENOENT;
    if (a.node == b.node)
        return 0;
    if (is_inside(b.parent, a.node))
        return -EINVAL;
    if (b.node && b.node->is_dir && !a.node->is_dir)
        return -EISDIR;
    if (b.node && a.node->is_dir && !b.node->is_dir)
        return -ENOTDIR;
    if (b.node && b.node->first_child)
        return -ENOTEMPTY;
    char *name = strndup(b.name, b.len);
    if (!name)
        return -ENOMEM;
    if (b.node)
        unlink_node(s, b.node);
    unlink_node(s, a.node);
    free(a.node->name);
    a.node->name = name;
    link_node(s, b.parent, a.node);
    *gone = b.node;
    return 0;
}

static int memory_rename(struct mr_store *base, const char *from, const char *to, struct mr_error *err)
{
    struct memory_store *s = (struct memory_store *)base;
    struct node *gone = NULL;
    pthread_rwlock_wrlock(&s->tree);
    int rc = move(s, from, to, &gone);
    pthread_rwlock_unlock(&s->tree);
    if (gone)
        node_unref(s, gone);
    return rc < 0 ? mr_error_set(err, rc, "cannot rename '%s' to '%s'", from, to) : 0;
}

static int memory_sync_dir(struct mr_store *s, const char *path, struct mr_error *err)
{
    struct mr_store_stat st = {0};
    int rc = memory_stat(s, path, &st, err);
    return rc < 0 || st.is_dir ? rc : mr_store_fail_path(err, -ENOTDIR, "sync folder", path);
}

static int memory_free_space(struct mr_store *base, const char *path, uint64_t *bytes, uint64_t *inodes,
                             struct mr_error *err)
{
    struct memory_store *s = (struct memory_store *)base;
    struct mr_store_stat st;
    int rc = memory_stat(base, path, &st, err);
    if (rc < 0)
        return rc;
    uint64_t used = atomic_load(&s->used_bytes);
    *bytes = s->capacity ? s->capacity - MR_MIN(used, s->capacity)
                         : (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    *inodes = UINT64_MAX;
    return 0;
}

static int memory_ioq_create(struct mr_store *s, unsigned depth, struct mr_ioq **out, struct mr_error *err)
{
    return mr_workq_create(((struct memory_store *)s)->queue_pool, depth, out, err);
}

/* ---- the store ---- */

static void free_tree(struct memory_store *s, struct node *n)
{
    /* Depth first without recursion: descend to a leaf, drop it, go on with its parent. */
    while (n) {
        if (n->first_child) {
            n = n->first_child;
            continue;
        }
        struct node *up = n->parent;
        if (up) {
            up->first_child = n->next;
            if (n->next)
                n->next->prev = NULL;
        }
        node_unref(s, n);
        n = up;
    }
}

static void memory_close(struct mr_store *base)
{
    struct memory_store *s = (struct memory_store *)base;
    mr_workpool_free(s->queue_pool);
    free_tree(s, s->root);
    free(s->bucket);
    pthread_rwlock_destroy(&s->tree);
    free(s);
}

static int memory_open(const void *options, struct mr_store *lower, struct mr_store **out, struct mr_error *err)
{
    (void)lower;
    const struct memory_options *opt = options;
    struct memory_store *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot open store 'memory'");
    s->base.ops = &mr_store_memory_ops;
    s->capacity = opt->capacity;
    s->bucket_count = 1024;
    s->bucket = calloc(s->bucket_count, sizeof(s->bucket[0]));
    s->root = new_node("", 0, true);
    int rc = s->bucket && s->root
                 ? mr_workpool_create_inline(&s->base, mr_io_exec_generic, opt->timing, &s->queue_pool, err)
                 : mr_error_set(err, -ENOMEM, "cannot open store 'memory'");
    pthread_rwlock_init(&s->tree, NULL);
    if (rc < 0) {
        memory_close(&s->base);
        return rc;
    }
    *out = &s->base;
    return 0;
}

#define ROW(key, field, type, def, ...) MR_OPTION(memory_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option memory_rows[] = {
    ROW("capacity", capacity, BYTES, "0",
        .doc = "Most bytes the store may hold; a write beyond it fails with 'no space left'. 0 = whatever memory there "
               "is.",
        .example = "memory(capacity=1GiB)"),
    MR_STORE_TIMING_OPTION(struct memory_options),
    MR_OPTION_END,
};

const struct mr_store_ops mr_store_memory_ops = {
    .abi = MR_STORE_ABI,
    .size = sizeof(struct mr_store_ops),
    .name = "memory",
    .doc = "Objects in the memory of this process, gone with it.",
    .caps = MR_STORE_CAP_WRITE | MR_STORE_CAP_CONTENT | MR_STORE_CAP_RENAME | MR_STORE_CAP_OFFSET_WRITE |
            MR_STORE_CAP_APPEND,
    .options = {.section = "memory",
                .doc = "Objects in memory",
                .options = memory_rows,
                .struct_bytes = sizeof(struct memory_options)},
    .open = memory_open,
    .close = memory_close,
    .object_open = memory_object_open,
    .object_close = memory_object_close,
    .object_size = memory_object_size,
    .read = memory_read,
    .write = memory_write,
    .fsync = memory_fsync,
    .allocate = memory_allocate,
    .truncate = memory_truncate,
    .stat = memory_stat,
    .list = memory_list,
    .mkdir = memory_mkdir,
    .unlink = memory_unlink,
    .rename = memory_rename,
    .sync_dir = memory_sync_dir,
    .free_space = memory_free_space,
    .drop_cache = mr_store_no_drop_cache,
    .resident = mr_store_no_resident,
    .ioq_create = memory_ioq_create,
    .ioq_free = mr_workq_free,
    .ioq_submit = mr_workq_submit,
    .ioq_reap = mr_workq_reap,
    .ioq_register = mr_workq_register,
};
