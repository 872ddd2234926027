/* The bytes of items, out of a store: one open file per reader, read in the pieces of the workload. */
#include "bench/pattern_internal.h"

#include <errno.h>
#include <stdlib.h>

struct store_source {
    struct mr_pattern_source base; /* first */
    const struct mr_pattern *pattern;
    struct mr_pattern_cut cut;
    struct mr_object *object; /* of `file`, or NULL */
    uint64_t file;
    uint8_t *seen; /* a bit for each file: it was opened before */
};

/* ---- pieces ---- */

struct mr_pattern_cut mr_pattern_cut(const struct mr_workload *w)
{
    const struct mr_uints *p = &w->pattern.pieces;
    if (p->n)
        return (struct mr_pattern_cut){p->item, (unsigned)p->n};
    return (struct mr_pattern_cut){&w->reader.transfer_size, w->reader.transfer_size > 0};
}

uint64_t mr_pattern_cut_bytes(const struct mr_pattern_cut *c, uint64_t k, uint64_t left)
{
    return c->n ? MR_MIN(MR_MAX(c->bytes[k % c->n], 1u), left) : left;
}

uint64_t mr_pattern_cut_count(const struct mr_pattern_cut *c, uint64_t bytes)
{
    uint64_t k = 0;
    for (uint64_t at = 0; at < bytes; k++)
        at += mr_pattern_cut_bytes(c, k, bytes - at);
    return k;
}

uint64_t mr_pattern_cut_largest(const struct mr_pattern_cut *c, uint64_t bytes)
{
    uint64_t largest = 0;
    for (unsigned k = 0; k < c->n; k++)
        largest = MR_MAX(largest, c->bytes[k]);
    return c->n ? MR_MIN(largest, bytes) : bytes;
}

/* ---- the store ---- */

static int open_file(struct store_source *s, uint64_t file, struct mr_error *err)
{
    const struct mr_pattern_params *p = &s->pattern->p;
    uint8_t *seen = &s->seen[file / 8], bit = (uint8_t)(1u << file % 8);
    unsigned flags = MR_OBJ_READ | (p->workload->reader.odirect ? MR_OBJ_DIRECT : 0) | (*seen & bit ? MR_OBJ_KNOWN : 0);
    char path[2 * MR_NAME_MAX];
    mr_object_close(s->object, NULL);
    s->object = NULL;
    int rc = mr_dataset_file_path(p->dataset, file, path, err);
    if (!rc)
        rc = mr_object_open(p->store, path, flags, &s->object, err);
    if (rc)
        return rc;
    *seen |= bit;
    s->file = file;
    return 0;
}

/* After a stop the rest is left out: the batch is not used. */
static int store_read(struct mr_pattern_source *base, const struct mr_pattern_range *r, uint8_t *to,
                      struct mr_error *err)
{
    struct store_source *s = (struct store_source *)base;
    int rc = s->object && s->file == r->file ? 0 : open_file(s, r->file, err);
    for (uint64_t at = 0, k = 0; !rc && at < r->bytes && !mr_pattern_over(s->pattern); k++) {
        uint64_t n = mr_pattern_cut_bytes(&s->cut, k, r->bytes - at);
        rc = mr_object_read(s->object, r->overwrite ? to : to + at, n, r->offset + at, err);
        at += n;
        base->read_bytes += rc ? 0 : n;
    }
    if (s->pattern->files && s->object) { /* whole files are opened for each pass, files of records stay open */
        int closed = mr_object_close(s->object, rc ? NULL : err);
        s->object = NULL;
        rc = rc ? rc : closed;
    }
    return rc;
}

static void store_free(struct mr_pattern_source *base)
{
    struct store_source *s = (struct store_source *)base;
    mr_object_close(s->object, NULL);
    free(s->seen);
    free(s);
}

int mr_pattern_open_source(const struct mr_pattern *p, struct mr_pattern_source **out, struct mr_error *err)
{
    struct store_source *s = calloc(1, sizeof(*s));
    uint8_t *seen = calloc(p->info.files / 8 + 1, 1);
    if (!s || !seen) {
        free(s);
        free(seen);
        return mr_error_set(err, -ENOMEM, "cannot make a reader");
    }
    *s = (struct store_source){.base = {.read = store_read, .free = store_free},
                               .pattern = p,
                               .cut = mr_pattern_cut(p->p.workload),
                               .seen = seen};
    *out = &s->base;
    return 0;
}
