/* Finding samples in HDF5 files: they are the rows of one dataset, or of all datasets with as many rows. We write
 * 'records' (n, *dims) and 'labels', or what `gen --fields` names. Of a foreign file the primary one is 'records',
 * 'data', 'x' or 'images', else the largest dataset of numbers; integers named like labels are the samples' labels.
 *
 * One walk over the file keeps what every dataset is; afterwards each that is used becomes a `struct h5_array`: where
 * its rows lie, one ref per row, and the layout by which readers find and decode them. */
#include "format/hdf5_scan.h"
#include "format/field_names.h"
#include "format/hdf5_layout.h"
#include "base/cgroup.h"
#include "base/log.h"
#include "base/vec.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#define LABELS_MAX (1u << 26)
#define AUX_LIMIT (1u << 24)
#define RANK_OTHER 10

struct h5_scan {
    struct mr_h5_file f;
    struct mr_h5_dataset data, labels;
    bool has_data, has_labels;
    int rank;            /* of data's name: 0 is best */
    uint64_t elements;   /* of data */
    struct mr_error why; /* why the best-named dataset cannot be read */
    int why_rank;
    int64_t *label;
    bool keeps_all; /* every dataset that can be read: */
    struct mr_h5_dataset *all;
    size_t n_all, all_cap;
};

/* Names are those of the file, without the root's slash. */
static const char *name_of(const struct mr_h5_dataset *d)
{
    return d->path + (d->path[0] == '/');
}

static int rank_of(const char *path, const char *const *names)
{
    const char *leaf = strrchr(path, '/');
    leaf = leaf ? leaf + 1 : path;
    for (int i = 0; names[i]; i++)
        if (strcmp(leaf, names[i]) == 0)
            return i;
    return RANK_OTHER;
}

static bool is_integer(enum mr_dtype t)
{
    return t <= MR_I64 || t == MR_BOOL;
}

static int keep(struct h5_scan *s, const struct mr_h5_dataset *d, struct mr_error *err)
{
    if (!s->keeps_all || d->n == 0)
        return 0;
    if (s->n_all >= MR_FIELDS_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "the file has more than %u datasets", MR_FIELDS_MAX);
    if (mr_vec_reserve(&s->all, &s->all_cap, s->n_all + 1, sizeof(*s->all)) < 0)
        return mr_error_set(err, -ENOMEM, "cannot keep %zu datasets", s->n_all + 1);
    s->all[s->n_all++] = *d;
    return 0;
}

static bool is_label(const struct mr_h5_dataset *d)
{
    static const char *const names[] = {"labels", "label", "y", "targets", NULL};
    bool column = d->n == 1 || (d->n == 2 && d->dim[1] == 1);
    return column && rank_of(d->path, names) < RANK_OTHER && is_integer(d->dtype) && d->dim[0] <= LABELS_MAX;
}

static int consider(void *user, const char *path, uint64_t header, struct mr_error *err)
{
    static const char *const data_names[] = {"records", "data", "x", "images", NULL};
    struct h5_scan *s = user;
    struct mr_h5_dataset d;
    int rank = rank_of(path, data_names);
    struct mr_error why = {0};
    int rc = mr_h5_dataset_read(&s->f, header, path, &d, &why);
    if (rc == MR_E_UNSUPPORTED) { /* a string or table beside the samples is fine */
        if (rank < s->why_rank || s->why.code == 0) {
            s->why = why;
            s->why_rank = rank;
        }
        return 0;
    }
    if (rc < 0) {
        if (err)
            *err = why;
        return rc;
    }
    if ((rc = keep(s, &d, err)) < 0)
        return rc;
    if (!s->has_labels && is_label(&d)) {
        s->labels = d;
        s->has_labels = true;
        return 0;
    }
    if (d.n == 0)
        return 0;
    uint64_t elements = mr_dtype_bytes(d.dtype);
    for (unsigned i = 0; i < d.n; i++)
        if (!mr_mul_ok(elements, d.dim[i], &elements))
            elements = UINT64_MAX;
    if (!s->has_data || rank < s->rank || (rank == s->rank && elements > s->elements)) {
        s->data = d;
        s->has_data = true;
        s->rank = rank;
        s->elements = elements;
    }
    return 0;
}

/* ---- labels ---- */

static int64_t load_integer(const uint8_t *p, enum mr_dtype t)
{
    unsigned n = mr_dtype_bytes(t), shift = 64 - 8 * n;
    uint64_t v = mr_h5_uint(p, n);
    bool is_signed = t == MR_I8 || t == MR_I16 || t == MR_I32;
    return is_signed ? (int64_t)(v << shift) >> shift : (int64_t)v;
}

/* Puts `n` labels from file bytes, starting with number `first`. */
static void put_labels(struct h5_scan *s, const uint8_t *data, uint64_t first, uint64_t n)
{
    unsigned elem = mr_dtype_bytes(s->labels.dtype);
    for (uint64_t i = 0; i < n && first + i < s->labels.dim[0]; i++) {
        uint8_t b[16] = {0};
        if (s->labels.swap)
            mr_array_swap(b, data + i * elem, 1, elem);
        else
            memcpy(b, data + i * elem, elem);
        s->label[first + i] = load_integer(b, s->labels.dtype);
    }
}

static int chunked_labels(struct h5_scan *s, struct mr_error *err)
{
    const struct mr_h5_dataset *d = &s->labels;
    struct mr_h5_pipeline p = {.n = d->filters};
    memcpy(p.filter, d->filter, sizeof p.filter);
    struct mr_h5_chunk *map = NULL;
    uint64_t count = 0;
    int rc;
    if ((rc = mr_h5_pipeline_check(&p, err)) < 0 || (rc = mr_h5_chunk_map(&s->f, d, &map, &count, err)) < 0)
        return rc;
    for (uint64_t i = 0; i < count && rc == 0; i++)
        if (map[i].addr != MR_H5_UNDEF)
            rc = mr_h5_pipeline_plausible(&p, map[i].bytes, d->chunk_bytes, err);
    if (rc < 0) {
        free(map);
        return rc;
    }
    size_t size = mr_h5_unfilter_bytes(d->chunk_bytes);
    uint8_t *work[2] = {mr_malloc_within(size), mr_malloc_within(size)};
    struct libdeflate_decompressor *inflater = libdeflate_alloc_decompressor();
    if (!work[0] || !work[1] || !inflater)
        rc = mr_error_set(err, -ENOMEM, "cannot read labels");
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        if (map[i].addr == MR_H5_UNDEF)
            continue;
        const uint8_t *data = NULL;
        uint8_t *raw = malloc(map[i].bytes);
        if (!raw)
            rc = mr_error_set(err, -ENOMEM, "cannot read labels");
        if (rc == 0)
            rc = mr_h5_read(&s->f, map[i].addr, raw, map[i].bytes, "labels", err);
        if (rc == 0)
            rc = mr_h5_unfilter(&p, map[i].mask, inflater, raw, map[i].bytes, d->chunk_bytes, work, true, &data, err);
        /* A chunk wider than the one column pads each row. */
        uint64_t width = d->n == 2 ? d->chunk[1] : 1;
        for (uint64_t k = 0; rc == 0 && k < d->chunk[0]; k++)
            put_labels(s, data + k * width * mr_dtype_bytes(d->dtype), i * d->chunk[0] + k, 1);
        free(raw);
    }
    libdeflate_free_decompressor(inflater);
    free(work[0]);
    free(work[1]);
    free(map);
    return rc;
}

static int read_labels(struct h5_scan *s, struct mr_error *err)
{
    const struct mr_h5_dataset *d = &s->labels;
    if (!s->has_labels || d->dim[0] != s->data.dim[0] || d->dim[0] == 0)
        return 0;
    s->label = mr_malloc_within(d->dim[0] * sizeof(*s->label));
    if (!s->label)
        return mr_error_set(err, -ENOMEM, "cannot keep %llu labels", (unsigned long long)d->dim[0]);
    for (uint64_t i = 0; i < d->dim[0]; i++)
        put_labels(s, d->fill, i, 1);
    if (d->storage == MR_H5_CHUNKED)
        return chunked_labels(s, err);
    if (d->addr == MR_H5_UNDEF)
        return 0;
    uint8_t *raw = mr_malloc_within(d->bytes);
    int rc = raw ? mr_h5_read(&s->f, d->addr, raw, d->bytes, "labels", err)
                 : mr_error_set(err, -ENOMEM, "cannot read labels");
    if (rc == 0)
        put_labels(s, raw, 0, d->dim[0]);
    free(raw);
    return rc;
}

static int64_t label_of(const struct h5_scan *s, uint64_t i)
{
    return s->label ? s->label[i] : MR_LABEL_NONE;
}

/* ---- arrays whose rows are samples ---- */

struct h5_array {
    const struct mr_h5_dataset *d;
    struct mr_h5_layout l;
    uint64_t sample_bytes, base;
    struct mr_h5_chunk *map; /* chunked: where the chunks lie in the file */
    uint64_t count, per_sample;
};

/* The mode that fits the chunks; see hdf5_layout.h. */
static enum mr_h5_mode choose_mode(const struct mr_h5_dataset *d, const struct mr_h5_chunk *map, uint64_t count)
{
    bool whole = true, exact = true, masked = false;
    for (unsigned i = 1; i < d->n; i++) {
        whole &= d->chunk[i] >= d->dim[i];
        exact &= d->chunk[i] == d->dim[i];
    }
    for (uint64_t i = 0; i < count; i++)
        masked |= map[i].mask != 0;
    if (exact && d->filters == 0)
        return MR_H5_DIRECT;
    return whole && !masked && d->filters && d->chunk[0] <= AUX_LIMIT ? MR_H5_CHUNK : MR_H5_MAP;
}

static struct mr_sample_ref chunk_ref(const struct mr_h5_dataset *d, enum mr_h5_mode mode,
                                      const struct mr_h5_chunk *map, uint64_t per_sample, uint64_t sample_bytes,
                                      uint64_t i)
{
    struct mr_sample_ref ref = {.raw = {0, 0}};
    uint64_t row = i % d->chunk[0];
    const struct mr_h5_chunk *c = map + i / d->chunk[0] * per_sample;
    if (mode == MR_H5_MAP) {
        ref.aux = (uint32_t)i;
        for (uint64_t k = 0; k < per_sample; k++)
            ref.raw.length += c[k].addr == MR_H5_UNDEF ? 0 : c[k].bytes;
        ref.raw.offset = c[0].addr == MR_H5_UNDEF ? 0 : c[0].addr;
    } else if (c->addr != MR_H5_UNDEF && mode == MR_H5_DIRECT) {
        ref.raw = (struct mr_extent){c->addr + row * sample_bytes, sample_bytes};
    } else if (mode == MR_H5_CHUNK) {
        ref.aux = (uint32_t)row;
        if (c->addr != MR_H5_UNDEF)
            ref.raw = (struct mr_extent){c->addr, c->bytes};
    }
    return ref;
}

static struct mr_sample_ref array_ref(const struct h5_array *a, uint64_t i)
{
    const struct mr_h5_dataset *d = a->d;
    struct mr_sample_ref ref = {.raw = {0, 0}};
    if (d->storage != MR_H5_CHUNKED) {
        if (d->addr != MR_H5_UNDEF)
            ref.raw = (struct mr_extent){a->base + d->addr + i * a->sample_bytes, a->sample_bytes};
        return ref;
    }
    if (a->count)
        return chunk_ref(d, a->l.mode, a->map, a->per_sample, a->sample_bytes, i);
    ref.aux = a->l.mode == MR_H5_MAP ? (uint32_t)i : 0; /* samples without bytes have no chunks */
    return ref;
}

static int open_chunks(struct mr_h5_file *f, struct h5_array *a, struct mr_error *err)
{
    const struct mr_h5_dataset *d = a->d;
    struct mr_h5_layout *l = &a->l;
    int rc;
    l->pipeline.n = d->filters;
    memcpy(l->pipeline.filter, d->filter, sizeof l->pipeline.filter);
    if ((rc = mr_h5_pipeline_check(&l->pipeline, err)) < 0 || (rc = mr_h5_chunk_map(f, d, &a->map, &a->count, err)) < 0)
        return rc;
    for (uint64_t i = 0; i < a->count && rc == 0; i++) {
        if (a->map[i].addr == MR_H5_UNDEF)
            continue;
        a->map[i].addr += f->base; /* from here on addresses are offsets in the file */
        rc = mr_h5_pipeline_plausible(&l->pipeline, a->map[i].bytes, d->chunk_bytes, err);
    }
    l->mode = choose_mode(d, a->map, a->count);
    if (l->mode == MR_H5_DIRECT) {
        l->pipeline.n = 0;
    } else {
        l->chunk_axes = d->n;
        memcpy(l->chunk, d->chunk, sizeof l->chunk);
    }
    if (l->mode == MR_H5_MAP && d->dim[0] > AUX_LIMIT)
        rc = mr_error_plain(err, MR_E_LIMIT, "%llu samples in chunks of this shape (limit %u)",
                            (unsigned long long)d->dim[0], AUX_LIMIT);
    uint64_t bands = d->dim[0] / d->chunk[0] + (d->dim[0] % d->chunk[0] != 0);
    a->per_sample = bands ? a->count / bands : 0;
    return rc;
}

static void array_done(struct h5_array *a)
{
    free(a->map);
    a->map = NULL;
}

static int array_open(struct mr_h5_file *f, const struct mr_h5_dataset *d, struct h5_array *a, struct mr_error *err)
{
    uint64_t limit = MR_MAX(f->size, 4096) * MR_LIMIT_UNPACK_RATIO;
    *a = (struct h5_array){
        .d = d,
        .base = f->base,
        .l = {.mode = MR_H5_DIRECT,
              .desc = {.dtype = d->dtype, .flags = MR_ARRAY_ROWS | (d->swap ? MR_ARRAY_SWAP : 0), .rows = d->dim[0]}}};
    struct mr_array_desc *desc = &a->l.desc;
    desc->dims.n = d->n - 1;
    memcpy(desc->dims.dim, d->dim + 1, (d->n - 1) * sizeof(d->dim[0]));
    memcpy(a->l.fill, d->fill, sizeof a->l.fill);
    if (!mr_array_bytes(&desc->dims, d->dtype, &a->sample_bytes) || a->sample_bytes > MR_LIMIT_SAMPLE_BYTES)
        return mr_error_plain(err, MR_E_LIMIT, "samples of '%s' exceed the limit of %llu bytes", d->path,
                              (unsigned long long)MR_LIMIT_SAMPLE_BYTES);
    if (d->dim[0] > limit / MR_MAX(a->sample_bytes, 1))
        return mr_error_plain(err, MR_E_LIMIT, "'%s' claims %llu samples of %llu bytes in a file of %llu", d->path,
                              (unsigned long long)d->dim[0], (unsigned long long)a->sample_bytes,
                              (unsigned long long)f->size);
    int rc = d->storage == MR_H5_CHUNKED ? open_chunks(f, a, err) : 0;
    if (rc < 0)
        array_done(a);
    return rc;
}

static int array_layout(const struct h5_array *a, struct mr_layout *out, struct mr_error *err)
{
    bool chunked = a->d->storage == MR_H5_CHUNKED;
    return mr_h5_layout_make(&a->l, chunked ? a->map : NULL, chunked && a->l.mode == MR_H5_MAP ? a->count : 0, out,
                             err);
}

/* ---- one payload and a label ---- */

/* Walks the file. */
static int open_scan(struct h5_scan *s, struct mr_object *o, struct mr_error *err)
{
    s->rank = s->why_rank = RANK_OTHER;
    int rc = mr_h5_open(o, &s->f, err);
    if (rc == 0)
        rc = mr_h5_walk(&s->f, consider, s, err);
    if (rc < 0)
        return rc;
    bool preferred_unreadable = s->why.code && s->why_rank < s->rank;
    if ((!s->has_data && s->why.code) || preferred_unreadable) {
        if (err)
            *err = s->why;
        return s->why.code;
    }
    return s->has_data ? 0 : mr_error_plain(err, MR_E_FORMAT, "the file has no dataset with at least one axis");
}

static int report_rows(struct h5_scan *s, mr_scan_fn *fn, void *user, struct mr_layout *layout, struct mr_error *err)
{
    struct h5_array a;
    int rc = array_open(&s->f, &s->data, &a, err);
    if (rc < 0)
        return rc;
    for (uint64_t i = 0; i < s->data.dim[0] && rc >= 0; i++) {
        struct mr_sample_ref ref = array_ref(&a, i);
        ref.label = label_of(s, i);
        rc = fn(user, &ref, NULL, err);
    }
    rc = rc < 0 ? rc : array_layout(&a, layout, err);
    array_done(&a);
    return rc;
}

int mr_h5_scan(struct mr_store *store, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
               struct mr_error *err)
{
    struct h5_scan s = {0};
    struct mr_object *o;
    int rc = mr_object_open(store, path, MR_OBJ_READ, &o, err);
    if (rc < 0)
        return rc;
    if ((rc = open_scan(&s, o, err)) == 0 && (rc = read_labels(&s, err)) == 0)
        rc = report_rows(&s, fn, user, layout, err);
    if (rc == 0)
        mr_log(MR_LOG_INFO, "'%s': %llu samples from dataset '%s', labels from %s%s%s", path,
               (unsigned long long)s.data.dim[0], s.data.path, s.label ? "'" : "nowhere", s.label ? s.labels.path : "",
               s.label ? "'" : "");
    else
        mr_error_context(err, "in '%s'", path);
    free(s.label);
    (void)mr_object_close(o, NULL); /* nothing was written */
    return rc;
}

/* ---- several fields ---- */

struct h5_fields {
    struct h5_scan s;
    const struct mr_field_sink *sink;
    unsigned n;
    const struct mr_h5_dataset **set; /* of each field */
    struct mr_field *field;
    struct h5_array *array; /* a label has none */
    struct mr_layout *layout;
    struct mr_sample_ref *ref;
};

static int reserve(struct h5_fields *x, size_t n, struct mr_error *err)
{
    x->set = calloc(n, sizeof(*x->set));
    x->field = calloc(n, sizeof(*x->field));
    x->array = calloc(n, sizeof(*x->array));
    x->layout = calloc(n, sizeof(*x->layout));
    x->ref = calloc(n, sizeof(*x->ref));
    bool there = x->set && x->field && x->array && x->layout && x->ref;
    return there ? 0 : mr_error_set(err, -ENOMEM, "cannot look at %zu datasets", n);
}

static void fields_done(struct h5_fields *x)
{
    for (unsigned i = 0; i < x->n; i++) {
        array_done(&x->array[i]);
        free(x->layout[i].data);
    }
    free(x->set);
    free(x->field);
    free(x->array);
    free(x->layout);
    free(x->ref);
    free(x->s.label);
    free(x->s.all);
}

/* The manifest keeps 32 bits; larger integers are a field like any other. */
static void drop_wide_labels(struct h5_scan *s)
{
    bool fits = true;
    for (uint64_t i = 0; s->label && i < s->labels.dim[0]; i++)
        fits &= s->label[i] > INT32_MIN && s->label[i] <= INT32_MAX;
    if (!fits) {
        free(s->label);
        s->label = NULL;
    }
}

static bool is_stored_label(const struct h5_scan *s, const struct mr_h5_dataset *d)
{
    return s->label && strcmp(s->labels.path, d->path) == 0;
}

static const struct mr_h5_dataset *find_set(const struct h5_scan *s, const char *name)
{
    for (size_t i = 0; i < s->n_all; i++)
        if (strcmp(name_of(&s->all[i]), name) == 0)
            return &s->all[i];
    return NULL;
}

/* The fields that were asked for, in their order. */
static int choose_wanted(struct h5_fields *x, struct mr_error *err)
{
    for (unsigned i = 0; i < x->sink->n_wanted; i++) {
        const char *name = x->sink->wanted[i];
        const struct mr_h5_dataset *d = find_set(&x->s, name);
        if (!d)
            return mr_error_plain(err, MR_E_FORMAT, "the file has no dataset '%.80s' that can be read", name);
        if (i && d->dim[0] != x->set[0]->dim[0])
            return mr_error_plain(err, MR_E_FORMAT, "dataset '%.80s' has %llu rows, '%.80s' has %llu", name,
                                  (unsigned long long)d->dim[0], name_of(x->set[0]),
                                  (unsigned long long)x->set[0]->dim[0]);
        x->set[x->n++] = d;
    }
    return 0;
}

/* The primary one, then every other with as many rows. */
static void choose_all(struct h5_fields *x)
{
    const struct h5_scan *s = &x->s;
    x->set[x->n++] = &s->data;
    for (size_t i = 0; i < s->n_all; i++) {
        const struct mr_h5_dataset *d = &s->all[i];
        if (d->dim[0] == s->data.dim[0] && strcmp(d->path, s->data.path) != 0)
            x->set[x->n++] = d;
    }
}

static void describe(struct h5_fields *x, unsigned i)
{
    const struct mr_h5_dataset *d = x->set[i];
    struct mr_field *f = &x->field[i];
    bool label = i && is_stored_label(&x->s, d);
    *f = (struct mr_field){.name = name_of(d),
                           .dtype = d->dtype,
                           .storage = label ? MR_FIELD_LABEL : MR_FIELD_RAW,
                           .role = i ? mr_field_role_of_name(name_of(d)) : MR_FIELD_INPUT,
                           .variable = MR_FIELD_FIXED};
    if (label)
        return;
    f->dims.n = d->n - 1;
    memcpy(f->dims.dim, d->dim + 1, (d->n - 1) * sizeof(d->dim[0]));
}

/* Opens the arrays; one that we cannot read and nobody asked for is left out. */
static int open_arrays(struct h5_fields *x, struct mr_error *err)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < x->n; i++) {
        struct mr_error why = {0};
        x->set[kept] = x->set[i];
        describe(x, kept);
        int rc = 0;
        if (x->field[kept].storage != MR_FIELD_LABEL)
            rc = array_open(&x->s.f, x->set[kept], &x->array[kept], &why);
        bool left_out = kept && !x->sink->n_wanted && (rc == MR_E_UNSUPPORTED || rc == MR_E_LIMIT);
        if (left_out)
            mr_log(MR_LOG_INFO, "dataset '%s' is left out: %s", x->set[kept]->path, why.message);
        if (rc < 0 && !left_out) {
            x->n = kept;
            if (err)
                *err = why;
            return rc;
        }
        kept += !left_out;
    }
    x->n = kept;
    return 0;
}

static int report_fields(struct h5_fields *x, struct mr_error *err)
{
    int rc = 0;
    for (uint64_t i = 0; i < x->set[0]->dim[0] && rc >= 0; i++) {
        for (unsigned k = 0; k < x->n; k++)
            if (x->field[k].storage != MR_FIELD_LABEL)
                x->ref[k] = array_ref(&x->array[k], i);
        x->ref[0].label = label_of(&x->s, i);
        rc = x->sink->sample(x->sink->user, x->ref, x->n, NULL, err);
    }
    for (unsigned k = 0; k < x->n && rc >= 0; k++)
        if (x->field[k].storage != MR_FIELD_LABEL)
            rc = array_layout(&x->array[k], &x->layout[k], err);
    if (rc < 0)
        return rc;
    rc = x->sink->done(x->sink->user, x->field, x->layout, x->n, err);
    memset(x->layout, 0, x->n * sizeof(*x->layout)); /* they are the sink's */
    return rc;
}

static int scan_fields(struct h5_fields *x, struct mr_object *o, struct mr_error *err)
{
    struct h5_scan *s = &x->s;
    s->keeps_all = true;
    int rc = open_scan(s, o, err);
    if (rc == 0 && x->sink->n_wanted) { /* labels are those of the dataset that comes first */
        const struct mr_h5_dataset *first = find_set(s, x->sink->wanted[0]);
        s->data = first ? *first : s->data;
        s->has_labels = s->has_labels && (!first || strcmp(first->path, s->labels.path) != 0);
    }
    if (rc == 0 && (rc = read_labels(s, err)) == 0)
        drop_wide_labels(s);
    if (rc == 0)
        rc = reserve(x, s->n_all + 1, err);
    if (rc == 0 && x->sink->n_wanted > s->n_all)
        rc = mr_error_plain(err, MR_E_FORMAT, "the file has %zu datasets, %u are asked for", s->n_all,
                            x->sink->n_wanted);
    if (rc == 0 && x->sink->n_wanted)
        rc = choose_wanted(x, err);
    else if (rc == 0)
        choose_all(x);
    if (rc == 0)
        rc = open_arrays(x, err);
    return rc == 0 ? report_fields(x, err) : rc;
}

int mr_h5_scan_fields(struct mr_store *store, const char *path, unsigned flags, const struct mr_field_sink *sink,
                      struct mr_error *err)
{
    struct mr_object *o;
    (void)flags; /* the first axis always counts samples */
    int rc = mr_object_open(store, path, MR_OBJ_READ, &o, err);
    if (rc < 0)
        return rc;
    struct h5_fields *x = calloc(1, sizeof(*x));
    if (x) {
        x->sink = sink;
        rc = scan_fields(x, o, err);
        fields_done(x);
    } else {
        rc = mr_error_set(err, -ENOMEM, "cannot scan '%s'", path);
    }
    if (rc < 0)
        mr_error_context(err, "in '%s'", path);
    free(x);
    (void)mr_object_close(o, NULL);
    return rc < 0 ? rc : 0;
}
