/* Sets side by side: see pack.h. */
#include "base/clock.h"
#include "base/common.h"
#include "base/workers.h"
#include "pack/pack_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RUN 256u /* samples of one item of work */

void mr_pack_set_close(struct mr_pack_set *set)
{
    for (unsigned k = 0; k < set->n; k++)
        mr_dataset_close(set->ds[k]);
    set->n = 0;
}

static bool is_stored_as_it_is(const struct mr_format_ops *f)
{
    return strcmp(f->name, "jpeg") == 0 || strcmp(f->name, "png") == 0 || !(f->caps & MR_FMT_DTYPE);
}

static bool is_named(const char *name, const char *const *names, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return n == 0;
}

/* Which of the schema's fields are values that are packed. */
static int choose_values(const struct mr_schema *s, const char *const *names, unsigned n_names,
                         unsigned value[MR_PACK_FIELDS_MAX], unsigned *n, bool *with_label, struct mr_error *err)
{
    *n = 0;
    *with_label = n_names == 0;
    for (unsigned i = 0; i < n_names; i++)
        if (mr_schema_find(s, names[i]) < 0)
            return mr_error_plain(err, MR_E_USAGE, "samples have no field '%s'", names[i]);
    for (unsigned i = 0; i < s->n; i++) {
        const struct mr_field *f = &s->field[i].field;
        bool named = is_named(f->name, names, n_names);
        *with_label = *with_label || (named && f->storage == MR_FIELD_LABEL);
        if (!named || f->storage == MR_FIELD_LABEL)
            continue;
        if (*n == MR_PACK_FIELDS_MAX)
            return mr_error_plain(err, MR_E_UNSUPPORTED, "samples have %u fields, at most %u can be packed", s->n,
                                  MR_PACK_FIELDS_MAX);
        value[(*n)++] = i;
    }
    return *n ? 0 : mr_error_plain(err, MR_E_USAGE, "no field but a label is named: there is nothing to pack");
}

int mr_pack_set_open(struct mr_pack_set *set, struct mr_store *store, const char *path, const char *const *names,
                     unsigned n_names, struct mr_error *err)
{
    struct mr_dataset *first;
    unsigned value[MR_PACK_FIELDS_MAX], n;
    int rc = mr_dataset_open_in(path, store, &first, err);
    if (rc < 0)
        return rc;
    const struct mr_schema *s = mr_manifest_schema(mr_dataset_manifest(first));
    *set = (struct mr_pack_set){.n = 1, .ds = {first}, .field = {s->field[0].field}};
    rc = choose_values(s, names, n_names, value, &n, &set->with_label, err);
    bool one_payload = rc == 0 && n == 1 && value[0] == 0;
    if (one_payload)
        set->flags = is_stored_as_it_is(mr_dataset_format(first)) ? MR_DATASET_RAW : 0;
    for (unsigned k = 0; !one_payload && rc == 0 && k < n; k++) {
        const char *name = s->field[value[k]].field.name;
        if (k)
            rc = mr_dataset_open_in(path, store, &set->ds[k], err);
        if (rc == 0) {
            set->n = k + 1;
            set->field[k] = s->field[value[k]].field;
            rc = mr_dataset_select(set->ds[k], &name, 1, err);
        }
    }
    if (rc < 0)
        mr_pack_set_close(set);
    return rc < 0 ? rc : 0;
}

/* ---- comparing ---- */

struct comparing {
    const struct mr_pack_set *a, *b;
    uint64_t n;
};

static int differs(uint64_t id, const char *what, const struct mr_field *f, struct mr_error *err)
{
    return mr_error_plain(err, MR_E_CORRUPT, "sample %llu, field '%s': its %s differs from the source's",
                          (unsigned long long)id, f->name, what);
}

static int compare_one(struct mr_dataset_reader *a, struct mr_dataset_reader *b, const struct comparing *c, unsigned k,
                       uint64_t id, struct mr_error *err)
{
    struct mr_sample x = {0}, y = {0};
    int rc = mr_dataset_read(a, id, c->a->flags, NULL, 0, &x, err);
    if (rc == 0)
        rc = mr_dataset_read(b, id, c->b->flags, NULL, 0, &y, err);
    if (rc < 0)
        return rc;
    const struct mr_field *f = &c->a->field[k];
    if (k == 0 && c->a->with_label && x.label != y.label)
        return differs(id, "label", f, err);
    if (x.bytes != y.bytes || (x.bytes && memcmp(x.data, y.data, x.bytes) != 0))
        return differs(id, "content", f, err);
    bool same = strcmp(x.dtype, y.dtype) == 0 && x.n_dims == y.n_dims &&
                memcmp(x.dims, y.dims, x.n_dims * sizeof(x.dims[0])) == 0;
    bool bytes_only = (c->a->flags | c->b->flags) & MR_DATASET_RAW || strcmp(y.dtype, "u1") == 0;
    return same || bytes_only ? 0 : differs(id, "shape", f, err);
}

static int compare_run(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    const struct comparing *c = ctx->user;
    int rc = 0;
    for (unsigned k = 0; k < c->a->n && rc == 0; k++) {
        struct mr_dataset_reader *a = NULL, *b = NULL;
        rc = mr_dataset_reader_create(c->a->ds[k], &a, err);
        if (rc == 0)
            rc = mr_dataset_reader_create(c->b->ds[k], &b, err);
        for (uint64_t id = index * RUN; id < MR_MIN(c->n, (index + 1) * RUN) && rc == 0; id++)
            rc = compare_one(a, b, c, k, id, err);
        mr_dataset_reader_free(a);
        mr_dataset_reader_free(b);
    }
    return rc;
}

int mr_pack_compare(const struct mr_pack_set *source, const struct mr_pack_set *packed, uint64_t n, unsigned threads,
                    const atomic_bool *stop, struct mr_error *err)
{
    struct comparing c = {.a = source, .b = packed, .n = n};
    if (source->n != packed->n)
        return mr_error_plain(err, MR_E_CORRUPT, "samples have %u fields, those of the source %u", packed->n,
                              source->n);
    return mr_workers_run(threads, (n + RUN - 1) / RUN, 1, compare_run, &c, stop, err);
}

int mr_pack_rate(const struct mr_pack_set *set, uint64_t n, double *rate, struct mr_error *err)
{
    uint64_t begin = mr_now_ns();
    int rc = 0;
    for (unsigned k = 0; k < set->n && rc == 0; k++) {
        struct mr_dataset_reader *r = NULL;
        struct mr_sample s;
        rc = mr_dataset_reader_create(set->ds[k], &r, err);
        for (uint64_t id = 0; id < n && rc == 0; id++)
            rc = mr_dataset_read(r, id, set->flags, NULL, 0, &s, err);
        mr_dataset_reader_free(r);
    }
    *rate = (double)n / MR_MAX(1e-9 * (double)(mr_now_ns() - begin), 1e-9);
    return rc;
}
