/* Files of tokens: which format one has, reading ranges of them, numbers of every type as int64. */
#include "tokens/tokens_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Files that this process keeps open between calls. More are opened for each read: corpora of thousands of files must
 * not use up the descriptors. */
#define KEEP_OPEN 256
static atomic_int kept_open;

static const struct token_file_ops *const formats[] = {&mr_token_flat,     &mr_token_npy, &mr_token_llmc,
                                                       &mr_token_megatron, &mr_token_mds, &mr_token_jsonl,
                                                       &mr_token_parquet};

/* ---- scratch ---- */

void *mr_token_scratch(struct token_scratch *s, unsigned slot, size_t bytes)
{
    if (s->cap[slot] >= bytes && s->slot[slot])
        return s->slot[slot];
    size_t cap = MR_MAX(bytes, 2 * s->cap[slot]);
    void *made = malloc(MR_MAX(cap, (size_t)64));
    if (!made)
        return NULL;
    free(s->slot[slot]);
    s->slot[slot] = made;
    s->cap[slot] = cap;
    return made;
}

void mr_token_scratch_done(struct token_scratch *s)
{
    for (unsigned i = 0; i < MR_ARRAY_LEN(s->slot); i++)
        free(s->slot[i]);
}

/* ---- ranges of files ---- */

char *mr_token_path(const char *folder, const char *name)
{
    size_t len = strlen(folder) + strlen(name) + 2;
    char *out = malloc(len);
    if (out)
        snprintf(out, len, "%s%s%s", folder, name[0] == '.' ? "" : "/", name);
    return out;
}

int mr_token_object_init(struct token_object *o, struct mr_store *s, char *path, struct mr_error *err)
{
    struct mr_store_stat st;
    o->path = path;
    if (!path)
        return mr_error_set(err, -ENOMEM, "cannot open a file of tokens");
    int rc = mr_store_stat(s, path, &st, err);
    if (rc >= 0 && st.is_dir)
        rc = mr_error_plain(err, MR_E_USAGE, "'%s' is a folder, not a file of tokens", path);
    if (rc >= 0)
        o->bytes = st.bytes;
    return rc;
}

void mr_token_object_done(struct token_object *o)
{
    struct mr_object *kept = atomic_exchange(&o->kept, NULL);
    if (kept) {
        mr_object_close(kept, NULL);
        atomic_fetch_sub(&kept_open, 1);
    }
    free(o->path);
    o->path = NULL;
}

int mr_token_object_read(struct token_object *o, struct mr_store *s, void *buf, size_t len, uint64_t offset,
                         struct mr_error *err)
{
    struct mr_object *at = atomic_load_explicit(&o->kept, memory_order_acquire), *none = NULL;
    if (at)
        return mr_object_read(at, buf, len, offset, err);
    int rc = mr_object_open(s, o->path, MR_OBJ_READ, &at, err);
    if (rc < 0)
        return rc;
    if (atomic_fetch_add(&kept_open, 1) < KEEP_OPEN && atomic_compare_exchange_strong(&o->kept, &none, at))
        return mr_object_read(at, buf, len, offset, err);
    atomic_fetch_sub(&kept_open, 1);
    rc = mr_object_read(at, buf, len, offset, err);
    mr_object_close(at, NULL);
    return rc;
}

/* ---- numbers ---- */

#define WIDEN(type)                                                                                                    \
    for (size_t i = 0; i < n; i++) {                                                                                   \
        type v;                                                                                                        \
        memcpy(&v, (const uint8_t *)raw + i * sizeof v, sizeof v);                                                     \
        out[i] = (int64_t)v;                                                                                           \
    }                                                                                                                  \
    break

void mr_token_widen(int64_t *out, const void *raw, enum mr_dtype dtype, size_t n)
{
    switch (dtype) {
    case MR_U8: WIDEN(uint8_t);
    case MR_I8: WIDEN(int8_t);
    case MR_U16: WIDEN(uint16_t);
    case MR_I16: WIDEN(int16_t);
    case MR_U32: WIDEN(uint32_t);
    case MR_I32: WIDEN(int32_t);
    default: WIDEN(int64_t);
    }
}

int mr_token_dtype(const char *path, const char *want, const enum mr_dtype *known, enum mr_dtype *out,
                   struct mr_error *err)
{
    enum mr_dtype named = known ? *known : MR_U16;
    bool swap = false;
    if (want) {
        int rc = mr_dtype_parse(want, &named, &swap, err);
        if (rc < 0)
            return rc;
    }
    if (known && named != *known)
        return mr_error_plain(err, MR_E_USAGE, "'%s' says that its tokens are %s, not %s", path, mr_dtype_numpy(*known),
                              want);
    if (swap || named > MR_I64)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "tokens of '%s' cannot be %s: they are little-endian integers",
                              path, want ? want : mr_dtype_numpy(named));
    *out = named;
    return 0;
}

int mr_token_read_numbers(struct token_file *f, const struct token_run *run, uint64_t from, size_t n, int64_t *out,
                          struct token_scratch *s, struct mr_error *err)
{
    unsigned item = mr_dtype_bytes(f->dtype);
    (void)s;
    /* Into the end of what it becomes: number i is read before int64 i is written over it or one before it. */
    uint8_t *raw = (uint8_t *)out + n * (sizeof(*out) - item);
    int rc = mr_token_object_read(&f->data, f->store, raw, n * item, run->offset + from * item, err);
    if (rc >= 0)
        mr_token_widen(out, raw, f->dtype, n);
    return rc;
}

/* ---- which format ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a > b && strcmp(text + a - b, end) == 0;
}

static bool exists(struct mr_store *s, const char *path, const char *more, bool *is_dir)
{
    struct mr_store_stat st;
    char *whole = mr_token_path(path, more);
    bool found = whole && mr_store_stat(s, whole[0] && !more[1] ? path : whole, &st, NULL) >= 0;
    if (found && is_dir)
        *is_dir = st.is_dir;
    free(whole);
    return found;
}

/* A Megatron data file is known by the index beside it. */
static bool has_index(struct mr_store *s, const char *path)
{
    char *prefix = strdup(path);
    if (!prefix)
        return false;
    prefix[strlen(prefix) - (ends_with(path, ".bin") ? 4 : 0)] = '\0';
    bool found = exists(s, prefix, ".idx", NULL);
    free(prefix);
    return found;
}

static int find_format(struct mr_store *s, const char *path, const struct token_file_ops **out, struct mr_error *err)
{
    uint8_t head[12] = {0};
    struct mr_store_stat st;
    struct mr_object *o;
    *out = NULL;
    if (ends_with(path, ".idx") || has_index(s, path))
        *out = &mr_token_megatron;
    else if (ends_with(path, ".jsonl") || ends_with(path, ".json") || ends_with(path, ".ndjson"))
        *out = &mr_token_jsonl;
    else if (ends_with(path, ".parquet") || ends_with(path, ".pq"))
        *out = &mr_token_parquet;
    if (*out)
        return 0;
    int rc = mr_store_stat(s, path, &st, err);
    if (rc < 0 || st.is_dir || ends_with(path, "/index.json")) {
        *out = &mr_token_mds;
        return rc;
    }
    rc = mr_object_open(s, path, MR_OBJ_READ, &o, err);
    if (rc < 0)
        return rc;
    size_t len = (size_t)MR_MIN(st.bytes, sizeof head);
    rc = mr_object_read(o, head, len, 0, err);
    mr_object_close(o, NULL);
    *out = mr_token_flat_is_npy(head, len)    ? &mr_token_npy
           : mr_token_flat_is_llmc(head, len) ? &mr_token_llmc
                                              : &mr_token_flat;
    return rc;
}

int mr_token_file_open(struct token_file *f, struct mr_store *store, const char *path, const struct mr_tokens_params *p,
                       struct mr_error *err)
{
    int rc = 0;
    f->store = store;
    f->name = strdup(path);
    f->column = p->column ? strdup(p->column) : NULL;
    if (!f->name || (p->column && !f->column))
        return mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    for (size_t i = 0; p->format && i < MR_ARRAY_LEN(formats); i++)
        if (strcmp(formats[i]->name, p->format) == 0)
            f->ops = formats[i];
    if (p->format && !f->ops) {
        mr_error_plain(err, MR_E_USAGE, "unknown format of tokens '%s'", p->format);
        return mr_error_hint(err, "choose one of bin, npy, llmc, megatron, mds, jsonl, parquet"), MR_E_USAGE;
    }
    if (!f->ops)
        rc = find_format(store, path, &f->ops, err);
    if (rc >= 0 && p->has_eos && f->ops->open != mr_token_flat.open && f->ops->open != mr_token_npy.open &&
        f->ops->open != mr_token_llmc.open)
        rc = mr_error_plain(err, MR_E_USAGE, "'%s' has documents of its own: an end-of-text token does not go with it",
                            path);
    return rc < 0 ? rc : f->ops->open(f, path, p, err);
}

void mr_token_file_close(struct token_file *f)
{
    if (f->ops)
        f->ops->close(f);
    mr_token_object_done(&f->data);
    free(f->name);
    free(f->column);
    free(f->first_pack);
    free(f->place);
    free(f->first_token);
}
