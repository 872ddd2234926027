/* A column of tokens in a Parquet file: lists of integers, or byte strings that `dtype` says how to read; a row is a
 * document. The format itself is src/format's: its footer is read when the file is opened, its rows come in units of
 * pages, of which the last ones are kept decoded. */
#include "base/vec.h"
#include "format/format.h"
#include "format/parquet_layout.h"
#include "tokens/tokens_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define UNITS 4u /* that are kept */
#define RANGES 2u

struct unit {
    uint64_t key; /* its first byte */
    void *data;
    size_t len;
    uint64_t used;
};

struct parquet {
    const struct mr_format_ops *ops;
    struct mr_layout layout;
    bool is_bytes;
    uint64_t rows;
    pthread_mutex_t lock; /* of what is below */
    struct mr_decoder *decoder;
    struct unit unit[UNITS];
    uint64_t clock;
};

/* ---- finding the column ---- */

struct looking {
    struct parquet *q;
    const struct token_file *f;
    const char *column;
    enum mr_dtype dtype;
};

static int count_row(void *user, const struct mr_sample_ref *refs, unsigned n, const char *key, struct mr_error *err)
{
    struct looking *x = user;
    (void)refs, (void)n, (void)key, (void)err;
    x->q->rows++;
    return 0;
}

static bool is_integers(const struct mr_field *field)
{
    return field->dtype <= MR_I64 && field->storage == MR_FIELD_RAW && field->dims.n == 1;
}

/* The column that was named, or "tokens", "input_ids", or the only one of lists of integers. */
static int find_column(const struct looking *x, const struct mr_field *fields, unsigned n, struct mr_error *err)
{
    const char *const names[] = {x->column ? x->column : "tokens", x->column ? x->column : "input_ids"};
    for (unsigned i = 0; i < MR_ARRAY_LEN(names); i++)
        for (unsigned k = 0; k < n; k++)
            if (strcmp(fields[k].name, names[i]) == 0)
                return (int)k;
    int only = -1;
    unsigned lists = 0;
    for (unsigned k = 0; k < n; k++)
        if (is_integers(&fields[k])) {
            only = (int)k;
            lists++;
        }
    if (!x->column && lists == 1)
        return only;
    return mr_error_plain(err, MR_E_USAGE,
                          "'%s' has no column '%s': name the one with the tokens by column=", x->f->name, names[0]);
}

static int take_columns(void *user, const struct mr_field *fields, struct mr_layout *layouts, unsigned n,
                        struct mr_error *err)
{
    struct looking *x = user;
    int found = find_column(x, fields, n, err);
    if (found >= 0 && !is_integers(&fields[found]))
        found = mr_error_plain(err, MR_E_UNSUPPORTED, "column '%s' of '%s' has no lists of integers",
                               fields[found].name, x->f->name);
    for (unsigned k = 0; k < n; k++) {
        if (found == (int)k) {
            x->q->layout = layouts[k];
            x->dtype = fields[k].dtype;
        } else {
            free(layouts[k].data);
        }
    }
    return found < 0 ? found : 0;
}

static int parquet_open(struct token_file *f, const char *path, const struct mr_tokens_params *p, struct mr_error *err)
{
    struct parquet *q = f->own = calloc(1, sizeof(*q));
    if (!q)
        return mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    pthread_mutex_init(&q->lock, NULL);
    q->decoder = mr_decoder_create();
    q->ops = mr_format_find("parquet", err);
    struct looking x = {.q = q, .f = f, .column = p->column};
    const struct mr_field_sink sink = {.user = &x, .sample = count_row, .done = take_columns};
    int rc = q->ops ? mr_token_object_init(&f->data, f->store, strdup(path), err) : MR_E_UNSUPPORTED;
    if (rc >= 0 && !q->decoder)
        rc = mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    if (rc < 0)
        return rc;
    rc = mr_format_fields(q->ops)->scan(f->store, path, 0, &sink, err);
    if (rc < 0) {
        mr_error_context(err, "in '%s'", path);
        return rc;
    }
    f->documents = q->rows;
    f->tokens = MR_TOKENS_UNKNOWN;
    q->is_bytes = x.dtype == MR_U8 && p->dtype;
    return mr_token_dtype(path, p->dtype, q->is_bytes ? NULL : &x.dtype, &f->dtype, err);
}

static void parquet_close(struct token_file *f)
{
    struct parquet *q = f->own;
    if (!q)
        return;
    for (unsigned i = 0; i < UNITS; i++)
        free(q->unit[i].data);
    free(q->layout.data);
    mr_decoder_free(q->decoder);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

/* ---- rows ---- */

/* Under the lock: reads and decodes the ranges of a unit in place of the one that was used longest ago. */
static int load_unit(struct token_file *f, const struct mr_extent *range, unsigned n, struct unit **out,
                     struct mr_error *err)
{
    struct parquet *q = f->own;
    struct unit *u = &q->unit[0];
    for (unsigned i = 1; i < UNITS; i++)
        u = q->unit[i].used < u->used ? &q->unit[i] : u;
    uint64_t bytes = 0, at = 0;
    for (unsigned i = 0; i < n; i++)
        bytes += range[i].length;
    uint8_t *raw = bytes <= MR_LIMIT_UNPACKED_BYTES ? malloc((size_t)bytes + 1) : NULL;
    int rc = raw ? 0 : mr_error_set(err, -ENOMEM, "cannot read %llu bytes of '%s'", (ull)bytes, f->name);
    for (unsigned i = 0; rc >= 0 && i < n; at += range[i++].length)
        rc = mr_token_object_read(&f->data, f->store, raw + at, (size_t)range[i].length, range[i].offset, err);
    void *data = NULL;
    size_t len = 0;
    if (rc >= 0)
        rc = q->ops->unpack(&q->layout, raw, (size_t)bytes, &data, &len, err);
    free(raw);
    if (rc < 0) {
        mr_error_context(err, "in '%s'", f->name);
        return rc;
    }
    free(u->data);
    *u = (struct unit){.key = range[0].offset, .data = data, .len = len};
    *out = u;
    return 0;
}

/* Under the lock: the values of a row, good until the next call. */
static int row_values(struct token_file *f, uint64_t row, struct mr_sample_out *out, struct mr_error *err)
{
    struct parquet *q = f->own;
    const struct mr_sample_ref ref = mr_pq_ref(row, 0);
    struct mr_extent range[RANGES];
    struct unit *u = NULL;
    unsigned n = 0;
    int rc = q->ops->plan(&q->layout, &ref, 0, range, RANGES, &n, err);
    for (unsigned i = 0; rc >= 0 && i < UNITS; i++)
        if (q->unit[i].data && q->unit[i].key == range[0].offset)
            u = &q->unit[i];
    if (rc >= 0 && !u)
        rc = load_unit(f, range, n, &u, err);
    if (rc < 0)
        return rc;
    u->used = ++q->clock;
    *out = (struct mr_sample_out){.dst = NULL};
    rc = q->ops->decode(q->decoder, &q->layout, &ref, 0, u->data, u->len, out, err);
    if (rc >= 0 && out->bytes % mr_dtype_bytes(f->dtype))
        rc = mr_error_plain(err, MR_E_FORMAT, "'%s': row %llu has %llu bytes, which are no whole number of %s", f->name,
                            (ull)row, (ull)out->bytes, mr_dtype_numpy(f->dtype));
    return rc;
}

static int parquet_runs(struct token_file *f, uint64_t first, size_t n, struct token_run *runs, struct token_scratch *s,
                        struct mr_error *err)
{
    struct parquet *q = f->own;
    int rc = 0;
    (void)s;
    pthread_mutex_lock(&q->lock);
    for (size_t i = 0; rc >= 0 && i < n; i++) {
        struct mr_sample_out out;
        rc = row_values(f, first + i, &out, err);
        if (rc >= 0)
            runs[i] = (struct token_run){.offset = first + i, .tokens = out.bytes / mr_dtype_bytes(f->dtype)};
    }
    pthread_mutex_unlock(&q->lock);
    return rc;
}

static int parquet_read(struct token_file *f, const struct token_run *run, uint64_t from, size_t n, int64_t *out,
                        struct token_scratch *s, struct mr_error *err)
{
    struct parquet *q = f->own;
    struct mr_sample_out values;
    uint64_t item = mr_dtype_bytes(f->dtype);
    (void)s;
    pthread_mutex_lock(&q->lock);
    int rc = row_values(f, run->offset, &values, err);
    if (rc >= 0 && values.bytes != run->tokens * item)
        rc = mr_error_plain(err, MR_E_CHANGED, "'%s' was changed: row %llu", f->name, (ull)run->offset);
    if (rc >= 0)
        mr_token_widen(out, (const uint8_t *)values.data + from * item, f->dtype, n);
    pthread_mutex_unlock(&q->lock);
    return rc;
}

const struct token_file_ops mr_token_parquet = {
    .name = "parquet", .open = parquet_open, .close = parquet_close, .runs = parquet_runs, .read = parquet_read};
