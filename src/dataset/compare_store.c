/* The comparing store: see compare_store.h. */
#include "dataset/compare_store.h"
#include "base/common.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (1u << 20)
#define MAX_PENDING 64u

struct mr_compare_shim {
    struct mr_store base;
    struct mr_store *real;
    struct mr_file_diff diff;
    uint8_t *piece;
};

struct pending {
    uint64_t offset;
    int want, have; /* have -1: the file ends before */
};

struct compare_object {
    struct mr_object base;
    struct mr_object *real; /* NULL: the file is missing */
    uint64_t end;           /* size the writer made */
    bool sized;             /* and it is the size of the file, not the end of a part */
    struct pending pending[MAX_PENDING];
    unsigned n;
    char path[1024];
};

static void note(struct mr_compare_shim *c, const struct mr_file_diff *d)
{
    if (c->diff.kind == MR_DIFF_NONE)
        c->diff = *d;
}

static int cmp_object_open(struct mr_store *s, const char *path, unsigned flags, struct mr_object **out,
                           struct mr_error *err)
{
    struct mr_compare_shim *c = (struct mr_compare_shim *)s;
    struct compare_object *o = calloc(1, sizeof(*o));
    if (!o)
        return mr_error_set(err, -ENOMEM, "cannot compare '%s'", path);
    snprintf(o->path, sizeof o->path, "%s", path);
    o->sized = flags & MR_OBJ_TRUNCATE;
    o->base.store = s;
    o->base.path = o->path;
    int r = mr_object_open(c->real, path, MR_OBJ_READ, &o->real, err);
    if (r == -ENOENT) {
        struct mr_file_diff d = {.kind = MR_DIFF_MISSING};
        memcpy(d.path, o->path, sizeof d.path);
        note(c, &d);
        o->real = NULL;
    } else if (r < 0) {
        free(o);
        return r;
    }
    *out = &o->base;
    return 0;
}

static int cmp_object_close(struct mr_object *base, struct mr_error *err)
{
    struct compare_object *o = (struct compare_object *)base;
    struct mr_compare_shim *c = (struct mr_compare_shim *)base->store;
    uint64_t size = 0;
    int r = 0;
    if (o->real) {
        struct mr_file_diff d = {.kind = MR_DIFF_NONE};
        memcpy(d.path, o->path, sizeof d.path);
        r = mr_object_size(o->real, &size, err);
        if (r >= 0 && o->sized && size != o->end) {
            d.kind = MR_DIFF_SIZE;
            d.want = o->end;
            d.have = size;
        } else if (o->n) {
            unsigned first = 0;
            for (unsigned i = 1; i < o->n; i++)
                if (o->pending[i].offset < o->pending[first].offset)
                    first = i;
            d.kind = MR_DIFF_BYTES;
            d.offset = o->pending[first].offset;
            d.want = (uint64_t)o->pending[first].want;
            d.have = (uint64_t)o->pending[first].have;
        }
        if (d.kind)
            note(c, &d);
        mr_object_close(o->real, NULL);
    }
    free(o);
    return r < 0 ? r : 0;
}

static int cmp_object_size(struct mr_object *o, uint64_t *bytes, struct mr_error *err)
{
    (void)err;
    *bytes = ((struct compare_object *)o)->end;
    return 0;
}

static int64_t cmp_read(struct mr_object *base, void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    struct compare_object *o = (struct compare_object *)base;
    return o->real ? mr_object_read_some(o->real, buf, len, offset, err) : 0;
}

static void compare_piece(struct compare_object *o, const uint8_t *want, const uint8_t *have, size_t len, size_t got,
                          uint64_t offset)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < o->n; i++) /* this write replaces what earlier ones said about the range */
        if (o->pending[i].offset < offset || o->pending[i].offset >= offset + len)
            o->pending[kept++] = o->pending[i];
    o->n = kept;
    if (got == len && memcmp(want, have, len) == 0)
        return;
    size_t at = 0;
    while (at < got && want[at] == have[at])
        at++;
    if (o->n < MAX_PENDING)
        o->pending[o->n++] = (struct pending){offset + at, want[at], at < got ? have[at] : -1};
}

static int64_t cmp_write(struct mr_object *base, const void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    struct compare_object *o = (struct compare_object *)base;
    struct mr_compare_shim *c = (struct mr_compare_shim *)base->store;
    o->end = MR_MAX(o->end, offset + len);
    for (size_t done = 0; o->real && done < len;) {
        size_t n = MR_MIN(len - done, PIECE), got = 0;
        while (got < n) {
            int64_t r = mr_object_read_some(o->real, c->piece + got, n - got, offset + done + got, err);
            if (r < 0)
                return r;
            if (r == 0)
                break;
            got += (size_t)r;
        }
        compare_piece(o, (const uint8_t *)buf + done, c->piece, n, got, offset + done);
        done += n;
    }
    return (int64_t)len;
}

static int cmp_truncate(struct mr_object *base, uint64_t bytes, struct mr_error *err)
{
    struct compare_object *o = (struct compare_object *)base;
    (void)err;
    o->end = bytes;
    o->sized = true;
    return 0;
}

static int cmp_fsync(struct mr_object *o, struct mr_error *err)
{
    (void)o;
    (void)err;
    return 0;
}

static int cmp_allocate(struct mr_object *o, uint64_t bytes, struct mr_error *err)
{
    (void)o;
    (void)bytes;
    (void)err;
    return 0;
}

static int refuse(struct mr_error *err)
{
    return mr_error_plain(err, MR_E_UNSUPPORTED, "the comparing store changes nothing");
}

static int cmp_stat(struct mr_store *s, const char *path, struct mr_store_stat *out, struct mr_error *err)
{
    return mr_store_stat(((struct mr_compare_shim *)s)->real, path, out, err);
}

static int cmp_list(struct mr_store *s, const char *path, mr_store_list_fn *fn, void *user, struct mr_error *err)
{
    struct mr_store *real = ((struct mr_compare_shim *)s)->real;
    return real->ops->list(real, path, fn, user, err);
}

static int cmp_path(struct mr_store *s, const char *path, struct mr_error *err)
{
    (void)s;
    (void)path;
    return refuse(err);
}

static int cmp_rename(struct mr_store *s, const char *from, const char *to, struct mr_error *err)
{
    (void)s;
    (void)from;
    (void)to;
    return refuse(err);
}

static int cmp_free_space(struct mr_store *s, const char *path, uint64_t *bytes, uint64_t *inodes, struct mr_error *err)
{
    struct mr_store *real = ((struct mr_compare_shim *)s)->real;
    return real->ops->free_space(real, path, bytes, inodes, err);
}

static int cmp_drop_cache(struct mr_object *o, struct mr_error *err)
{
    (void)o;
    return refuse(err);
}

static int cmp_resident(struct mr_object *o, uint64_t *resident, uint64_t *total, struct mr_error *err)
{
    (void)o;
    (void)resident;
    (void)total;
    return refuse(err);
}

static int cmp_ioq_create(struct mr_store *s, unsigned depth, struct mr_ioq **out, struct mr_error *err)
{
    (void)s;
    (void)depth;
    (void)out;
    return refuse(err);
}

static void cmp_ioq_free(struct mr_ioq *q)
{
    (void)q;
}

static int cmp_ioq_submit(struct mr_ioq *q, struct mr_io *const *ios, unsigned n, struct mr_error *err)
{
    (void)q;
    (void)ios;
    (void)n;
    return refuse(err);
}

static int cmp_ioq_reap(struct mr_ioq *q, unsigned min, unsigned max, struct mr_io **done, struct mr_error *err)
{
    (void)q;
    (void)min;
    (void)max;
    (void)done;
    return refuse(err);
}

static int cmp_ioq_register(struct mr_ioq *q, const struct iovec *iov, unsigned n, struct mr_error *err)
{
    (void)q;
    (void)iov;
    (void)n;
    return refuse(err);
}

static int cmp_open(const void *options, struct mr_store *lower, struct mr_store **out, struct mr_error *err)
{
    (void)options;
    (void)lower;
    (void)out;
    return refuse(err);
}

static void cmp_close(struct mr_store *s)
{
    (void)s;
}

static const struct mr_option no_options[] = {MR_OPTION_END};

static const struct mr_store_ops compare_ops = {
    .abi = MR_STORE_ABI,
    .size = sizeof(struct mr_store_ops),
    .name = "compare",
    .doc = "Compares writes with what is there.",
    .caps = MR_STORE_CAP_WRITE | MR_STORE_CAP_OFFSET_WRITE,
    .is_shim = true,
    .options = {.section = "compare", .doc = "", .options = no_options},
    .open = cmp_open,
    .close = cmp_close,
    .object_open = cmp_object_open,
    .object_close = cmp_object_close,
    .object_size = cmp_object_size,
    .read = cmp_read,
    .write = cmp_write,
    .fsync = cmp_fsync,
    .allocate = cmp_allocate,
    .truncate = cmp_truncate,
    .stat = cmp_stat,
    .list = cmp_list,
    .mkdir = cmp_path,
    .unlink = cmp_path,
    .rename = cmp_rename,
    .sync_dir = cmp_path,
    .free_space = cmp_free_space,
    .drop_cache = cmp_drop_cache,
    .resident = cmp_resident,
    .ioq_create = cmp_ioq_create,
    .ioq_free = cmp_ioq_free,
    .ioq_submit = cmp_ioq_submit,
    .ioq_reap = cmp_ioq_reap,
    .ioq_register = cmp_ioq_register,
};

int mr_compare_create(struct mr_store *real, struct mr_compare_shim **out, struct mr_error *err)
{
    struct mr_compare_shim *c = calloc(1, sizeof(*c));
    if (c)
        c->piece = malloc(PIECE);
    if (!c || !c->piece) {
        free(c);
        return mr_error_set(err, -ENOMEM, "cannot compare files");
    }
    c->base.ops = &compare_ops;
    c->real = real;
    *out = c;
    return 0;
}

void mr_compare_free(struct mr_compare_shim *c)
{
    if (!c)
        return;
    free(c->piece);
    free(c);
}

struct mr_store *mr_compare_store(struct mr_compare_shim *c)
{
    return &c->base;
}

void mr_compare_take(struct mr_compare_shim *c, struct mr_file_diff *out)
{
    *out = c->diff;
    c->diff = (struct mr_file_diff){0};
}
