/* The registry of formats, what they share (dtypes, default operations, per-thread decoder scratch) and the simple way
 * to read one sample. A format is one struct mr_format_ops in a file of its own; adding one means adding a row below.
 *
 * What must stay true: the registry grows only at the start (plug-ins), then it may be used from any thread; a decoder
 * belongs to one thread; no length taken from a layout, a ref or a file is added or multiplied before it is checked. */
#include "format/format.h"
#include "format/format_bytes.h"
#include "base/cgroup.h"
#include "base/content.h"
#include "base/strbuf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Every format of the build. The order is the one help texts show. */
extern const struct mr_format_ops mr_format_npz, mr_format_npy, mr_format_hdf5, mr_format_tfrecord, mr_format_jpeg,
    mr_format_png, mr_format_csv, mr_format_json, mr_format_jsonl, mr_format_indexed_binary,
    mr_format_mmap_indexed_binary, mr_format_tar, mr_format_parquet, mr_format_raw;

#define REGISTERED_MAX 64
static const struct mr_format_ops *present[14 + REGISTERED_MAX + 1] = {
    &mr_format_npz,
    &mr_format_npy,
    &mr_format_hdf5,
    &mr_format_tfrecord,
    &mr_format_jpeg,
    &mr_format_png,
    &mr_format_csv,
    &mr_format_json,
    &mr_format_jsonl,
    &mr_format_indexed_binary,
    &mr_format_mmap_indexed_binary,
    &mr_format_tar,
    &mr_format_parquet,
    &mr_format_raw,
};

const struct mr_format_ops *const *mr_format_registry(void)
{
    return present;
}

/* The format that somebody who wrote `name` may have meant: its files end like that ("jpg"), or it is spelt nearly so.
 */
static const struct mr_format_ops *nearest(const char *name)
{
    char file[64];
    snprintf(file, sizeof file, "x.%.60s", name[0] == '.' ? name + 1 : name);
    const struct mr_format_ops *best = mr_format_for_path(file);
    unsigned best_d = ~0u;
    for (const struct mr_format_ops *const *f = present; !best && *f; f++)
        best_d = MR_MIN(best_d, mr_edit_distance(name, (*f)->name));
    for (const struct mr_format_ops *const *f = present; !best && *f && mr_edit_is_near(name, best_d); f++)
        best = mr_edit_distance(name, (*f)->name) == best_d ? *f : NULL;
    return best;
}

const struct mr_format_ops *mr_format_find(const char *name, struct mr_error *err)
{
    for (const struct mr_format_ops *const *f = present; *f; f++)
        if (strcasecmp((*f)->name, name) == 0)
            return *f;
    struct mr_strbuf names = {0};
    for (const struct mr_format_ops *const *f = present; *f; f++)
        mr_strbuf_printf(&names, "%s%s", f == present ? "" : ", ", (*f)->name);
    mr_error_plain(err, MR_E_USAGE, "unknown format '%s': must be one of %s", name, names.text ? names.text : "(none)");
    mr_strbuf_done(&names);
    const struct mr_format_ops *near = nearest(name);
    if (near)
        mr_error_hint(err, "did you mean '%s'?", near->name);
    return NULL;
}

const struct mr_field_ops *mr_format_fields(const struct mr_format_ops *ops)
{
    const struct mr_field_ops *f = ops->size >= sizeof(*ops) ? ops->fields : NULL;
    return f && f->size >= offsetof(struct mr_field_ops, writes_as) && f->scan ? f : NULL;
}

const char *mr_field_storage_name(enum mr_field_storage s)
{
    static const char *const names[MR_FIELD_STORAGES] = {"raw", "label", "jpeg", "png", "text", "npy"};
    return s < MR_FIELD_STORAGES ? names[s] : "?";
}

const char *mr_field_role_name(enum mr_field_role r)
{
    static const char *const names[MR_FIELD_ROLES] = {"input", "target", "weight", "other"};
    return r < MR_FIELD_ROLES ? names[r] : "?";
}

static bool is_taken(const char *name)
{
    for (const struct mr_format_ops *const *f = present; *f; f++)
        if (strcasecmp((*f)->name, name) == 0)
            return true;
    return false;
}

/* The first thing that must be there and is not, or NULL. */
static const char *missing_op(const struct mr_format_ops *o)
{
    const struct {
        const char *name;
        bool there;
    } ops[] = {
        {"shape", o->shape},
        {"synth", o->synth},
        {"check", o->check},
        {"writer_open", o->writer_open},
        {"sample_begin", o->sample_begin},
        {"sample_data", o->sample_data},
        {"sample_end", o->sample_end},
        {"writer_close", o->writer_close},
        {"writer_abort", o->writer_abort},
        {"scan", o->scan},
        {"cost", o->cost},
        {"unpack", o->unpack},
        {"plan", o->plan},
        {"decode", o->decode},
        {"part_open", o->part_open || !o->part_bytes},
        {"part_bytes", o->part_bytes || !o->part_open},
        {"extensions", o->extensions && o->extensions[0] == '.'},
        {"side_suffixes", o->side_suffixes},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(ops); i++)
        if (!ops[i].there)
            return ops[i].name;
    return NULL;
}

int mr_format_register(const struct mr_format_ops *ops, struct mr_error *err)
{
    size_t n = 0;
    while (present[n])
        n++;
    /* A plug-in from before there were fields ends in front of them. */
    if (ops->abi != MR_FORMAT_ABI || (ops->size != sizeof(*ops) && ops->size != offsetof(struct mr_format_ops, fields)))
        return mr_error_plain(err, MR_E_UNSUPPORTED,
                              "a format of abi %u with %u bytes of operations; this program has abi %u with %zu",
                              ops->abi, ops->size, MR_FORMAT_ABI, sizeof(*ops));
    if (!ops->name || !*ops->name || strlen(ops->name) > 31 || ops->name[strcspn(ops->name, "/, \t")] || !ops->doc)
        return mr_error_plain(err, MR_E_USAGE, "a format needs a text and a plain name of at most 31 bytes");
    if (is_taken(ops->name))
        return mr_error_plain(err, -EEXIST, "there is a format '%s' already", ops->name);
    const char *missing = missing_op(ops);
    if (missing)
        return mr_error_plain(err, MR_E_USAGE, "format '%s' lacks '%s'", ops->name, missing);
    if (n + 1 >= MR_ARRAY_LEN(present))
        return mr_error_plain(err, MR_E_LIMIT, "cannot add format '%s': %d are registered", ops->name, REGISTERED_MAX);
    present[n] = ops;
    return 0;
}

/* The length of the longest extension in the comma-separated list that ends `path`, or 0. */
static size_t extension_match(const char *list, const char *path)
{
    size_t path_len = strlen(path), best = 0;
    while (list && *list) {
        size_t n = strcspn(list, ",");
        if (n > best && n < path_len && strncasecmp(path + path_len - n, list, n) == 0)
            best = n;
        list += n + (list[n] == ',');
    }
    return best;
}

const struct mr_format_ops *mr_format_for_path(const char *path)
{
    const struct mr_format_ops *found = NULL;
    size_t best = 0;
    for (const struct mr_format_ops *const *f = present; *f; f++) {
        size_t n = extension_match((*f)->extensions, path);
        if (n > best) {
            best = n;
            found = *f;
        }
    }
    return found;
}

/* ---- element types ---- */

static const struct {
    const char *numpy;
    unsigned bytes;
} dtypes[MR_DTYPE_COUNT] = {
#define MR_DTYPE_ROW(name, np, size) [name] = {np, size},
    MR_DTYPE_LIST(MR_DTYPE_ROW)
#undef MR_DTYPE_ROW
};

/* What people call them, besides numpy's short codes. */
static const struct {
    const char *name;
    enum mr_dtype dtype;
} dtype_names[] = {
    {"uint8", MR_U8},    {"int8", MR_I8},    {"uint16", MR_U16},    {"int16", MR_I16},       {"uint32", MR_U32},
    {"int32", MR_I32},   {"uint64", MR_U64}, {"int64", MR_I64},     {"float16", MR_F16},     {"float32", MR_F32},
    {"float64", MR_F64}, {"bool", MR_BOOL},  {"complex64", MR_C64}, {"complex128", MR_C128}, {"bfloat16", MR_BF16},
    {"fp16", MR_F16},    {"half", MR_F16},   {"fp32", MR_F32},      {"float", MR_F32},       {"fp64", MR_F64},
    {"double", MR_F64},  {"bf16", MR_BF16},  {"byte", MR_U8},
};

unsigned mr_dtype_bytes(enum mr_dtype t)
{
    return (unsigned)t < MR_DTYPE_COUNT ? dtypes[t].bytes : 0;
}

const char *mr_dtype_numpy(enum mr_dtype t)
{
    return (unsigned)t < MR_DTYPE_COUNT ? dtypes[t].numpy : "?";
}

int mr_dtype_parse(const char *text, enum mr_dtype *out, bool *swap, struct mr_error *err)
{
    bool big = *text == '>';
    const char *name = text + (*text && strchr("<>=|", *text) != NULL);
    for (size_t i = 0; i < MR_ARRAY_LEN(dtype_names) && name == text; i++)
        if (strcasecmp(name, dtype_names[i].name) == 0) {
            *out = dtype_names[i].dtype;
            if (swap)
                *swap = false;
            return 0;
        }
    for (unsigned t = 0; t < MR_DTYPE_COUNT; t++)
        if (strcmp(name, dtypes[t].numpy) == 0) {
            if (big && !swap)
                break;
            *out = t;
            if (swap)
                *swap = big && dtypes[t].bytes > 1;
            return 0;
        }
    return mr_error_plain(
        err, MR_E_USAGE,
        "unknown element type '%.64s': must be one of uint8, int8, uint16, int16, uint32, int32, uint64, "
        "int64, float16, bfloat16, float32, float64, bool, complex64, complex128",
        text);
}

/* ---- defaults and stubs for the table ---- */

int mr_format_shape_flat(const struct mr_writer_spec *spec, uint64_t want_bytes, struct mr_sample_info *info,
                         struct mr_error *err)
{
    unsigned size = mr_dtype_bytes(spec->dtype);
    if (!size)
        return mr_error_plain(err, MR_E_INTERNAL, "element type %d does not exist", (int)spec->dtype);
    if (want_bytes > MR_LIMIT_SAMPLE_BYTES)
        return mr_error_plain(err, MR_E_LIMIT, "a sample of %llu bytes is over the limit of %llu",
                              (unsigned long long)want_bytes, (unsigned long long)MR_LIMIT_SAMPLE_BYTES);
    uint64_t elements = (want_bytes + size / 2) / size;
    info->dtype = spec->dtype;
    info->dims = (struct mr_dims){.n = 1, .dim = {elements}};
    info->bytes = elements * size;
    return 0;
}

void mr_format_synth_content(const struct mr_writer_spec *spec, const void *content, const struct mr_sample_info *info,
                             uint64_t offset, void *dst, size_t len)
{
    (void)spec;
    mr_content_fill(content, info->id, offset, dst, len);
}

int mr_format_check_equal(const struct mr_writer_spec *spec, const void *content, const struct mr_sample_info *info,
                          const struct mr_sample_out *have, struct mr_error *err)
{
    (void)spec;
    if (have->bytes != info->bytes)
        return mr_error_plain(err, MR_E_CORRUPT, "sample %llu has the wrong size (want %llu bytes, have %zu)",
                              (unsigned long long)info->id, (unsigned long long)info->bytes, have->bytes);
    size_t same = mr_content_verify(content, info->id, 0, have->data, have->bytes);
    if (same != have->bytes)
        return mr_error_plain(err, MR_E_CORRUPT, "sample %llu differs from its content at byte %zu of %zu",
                              (unsigned long long)info->id, same, have->bytes);
    return 0;
}

int mr_format_no_unpack(const struct mr_layout *layout, const void *raw, size_t len, void **out, size_t *out_len,
                        struct mr_error *err)
{
    (void)layout, (void)raw, (void)len, (void)out, (void)out_len;
    return mr_error_plain(err, MR_E_UNSUPPORTED, "this file is read in ranges; there is nothing to unpack");
}

int mr_format_plan_single(const struct mr_layout *layout, const struct mr_sample_ref *ref, unsigned flags,
                          struct mr_extent *ext, unsigned max, unsigned *n, struct mr_error *err)
{
    (void)layout, (void)flags;
    *n = 1;
    if (max < 1)
        return mr_error_plain(err, MR_E_LIMIT, "the sample needs room for 1 extent, have 0");
    ext[0] = ref->raw;
    return 0;
}

int mr_format_decode_bytes(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                           unsigned flags, const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err)
{
    (void)d, (void)layout, (void)flags;
    if (len != ref->raw.length)
        return mr_error_plain(err, MR_E_FORMAT, "sample at offset %llu has the wrong size (want %llu bytes, have %zu)",
                              (unsigned long long)ref->raw.offset, (unsigned long long)ref->raw.length, len);
    out->data = raw;
    out->bytes = len;
    out->dtype = MR_U8;
    out->dims = (struct mr_dims){.n = 1, .dim = {len}};
    out->label = ref->label;
    return 0;
}

int mr_format_check_written(const struct mr_sample_info *info, uint64_t written, struct mr_error *err)
{
    if (written == info->bytes)
        return 0;
    return mr_error_plain(err, MR_E_INTERNAL, "sample %llu was announced with %llu bytes but got %llu",
                          (unsigned long long)info->id, (unsigned long long)info->bytes, (unsigned long long)written);
}

int mr_layout_make(const void *data, size_t len, struct mr_layout *layout, struct mr_error *err)
{
    void *copy = malloc(len);
    if (!copy)
        return mr_error_set(err, -ENOMEM, "cannot keep a layout of %zu bytes", len);
    memcpy(copy, data, len);
    *layout = (struct mr_layout){.data = copy, .len = len};
    return 0;
}

/* ---- decoder scratch ---- */

#define SCRATCH_SLOTS 4

struct decoder_private {
    struct decoder_private *next;
    const void *key;
    void *object;
    void (*free_fn)(void *);
};

struct mr_decoder {
    struct mr_growbuf slot[SCRATCH_SLOTS];
    struct decoder_private *privates;
};

struct mr_decoder *mr_decoder_create(void)
{
    return calloc(1, sizeof(struct mr_decoder));
}

void mr_decoder_free(struct mr_decoder *d)
{
    if (!d)
        return;
    for (struct decoder_private *p = d->privates, *next; p; p = next) {
        next = p->next;
        if (p->object && p->free_fn)
            p->free_fn(p->object);
        free(p);
    }
    for (unsigned i = 0; i < SCRATCH_SLOTS; i++)
        free(d->slot[i].data);
    free(d);
}

/* The old content is not kept, so that growing never copies. Grows by at least half, so that slowly rising sizes
 * settle. */
static bool growbuf_reserve(struct mr_growbuf *b, size_t bytes)
{
    if (bytes <= b->cap && b->data)
        return true;
    size_t cap = MR_MAX(bytes, (size_t)4096);
    if (b->cap < SIZE_MAX / 2 && cap < b->cap + b->cap / 2)
        cap = b->cap + b->cap / 2;
    void *data = mr_malloc_within(cap);
    if (!data)
        return false;
    free(b->data);
    *b = (struct mr_growbuf){.data = data, .cap = cap};
    return true;
}

void *mr_decoder_scratch(struct mr_decoder *d, unsigned slot, size_t bytes)
{
    if (slot >= SCRATCH_SLOTS || !growbuf_reserve(&d->slot[slot], bytes))
        return NULL;
    return d->slot[slot].data;
}

void **mr_decoder_private(struct mr_decoder *d, const void *key, void (*free_fn)(void *))
{
    for (struct decoder_private *p = d->privates; p; p = p->next)
        if (p->key == key)
            return &p->object;
    struct decoder_private *p = malloc(sizeof(*p));
    if (!p)
        return NULL;
    *p = (struct decoder_private){.next = d->privates, .key = key, .free_fn = free_fn};
    d->privates = p;
    return &p->object;
}

/* ---- reading one sample the simple way ---- */

#define PLAN_STACK 16

/* Calls plan with room on the stack, or on the heap where a sample needs more. *ext is `stack` or malloc'ed. */
static int plan_all(const struct mr_format_ops *f, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                    unsigned flags, struct mr_extent *stack, struct mr_extent **ext, unsigned *n, struct mr_error *err)
{
    *ext = stack;
    *n = 0;
    int rc = f->plan(layout, ref, flags, stack, PLAN_STACK, n, err);
    if (rc != MR_E_LIMIT || *n <= PLAN_STACK)
        return rc;
    unsigned need = *n;
    struct mr_extent *heap = calloc(need, sizeof(*heap));
    if (!heap)
        return mr_error_set(err, -ENOMEM, "cannot plan a sample of %u extents", need);
    rc = f->plan(layout, ref, flags, heap, need, n, err);
    if (rc < 0) {
        free(heap);
        return rc;
    }
    *ext = heap;
    return 0;
}

static int sum_extents(const struct mr_extent *ext, unsigned n, uint64_t limit, size_t *total, struct mr_error *err)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < n; i++) {
        if (ext[i].offset > limit || ext[i].length > limit - ext[i].offset)
            return mr_error_plain(err, MR_E_FORMAT, "unexpected end of file (want %llu bytes at %llu, file has %llu)",
                                  (unsigned long long)ext[i].length, (unsigned long long)ext[i].offset,
                                  (unsigned long long)limit);
        if (ext[i].length > MR_LIMIT_SAMPLE_BYTES - sum)
            return mr_error_plain(err, MR_E_LIMIT, "a sample of more than %llu bytes is over the limit",
                                  (unsigned long long)MR_LIMIT_SAMPLE_BYTES);
        sum += ext[i].length;
    }
    *total = (size_t)sum;
    return 0;
}

/* Unpacks the whole file and copies the planned ranges out of it. */
static int gather_unpacked(const struct mr_format_ops *f, struct mr_object *o, uint64_t file_bytes,
                           const struct mr_layout *layout, const struct mr_extent *ext, unsigned n,
                           struct mr_growbuf *raw, size_t *total, struct mr_error *err)
{
    if (file_bytes > MR_LIMIT_UNPACKED_BYTES)
        return mr_error_plain(err, MR_E_LIMIT, "a packed file of %llu bytes is over the limit of %llu",
                              (unsigned long long)file_bytes, (unsigned long long)MR_LIMIT_UNPACKED_BYTES);
    void *unpacked = NULL, *packed = malloc(file_bytes ? (size_t)file_bytes : 1);
    size_t unpacked_len = 0;
    if (!packed)
        return mr_error_set(err, -ENOMEM, "cannot hold a packed file of %llu bytes", (unsigned long long)file_bytes);
    int rc = mr_object_read(o, packed, (size_t)file_bytes, 0, err);
    if (rc >= 0)
        rc = f->unpack(layout, packed, (size_t)file_bytes, &unpacked, &unpacked_len, err);
    free(packed);
    if (rc >= 0)
        rc = sum_extents(ext, n, unpacked_len, total, err);
    if (rc >= 0 && !growbuf_reserve(raw, *total + 1))
        rc = mr_error_set(err, -ENOMEM, "cannot hold a sample of %zu bytes", *total);
    if (rc >= 0) {
        size_t at = 0;
        for (unsigned i = 0; i < n; at += ext[i++].length)
            memcpy((char *)raw->data + at, (const char *)unpacked + ext[i].offset, ext[i].length);
    }
    free(unpacked);
    return rc;
}

static int gather_ranges(struct mr_object *o, uint64_t file_bytes, const struct mr_extent *ext, unsigned n,
                         struct mr_growbuf *raw, size_t *total, struct mr_error *err)
{
    int rc = sum_extents(ext, n, file_bytes, total, err);
    if (rc < 0)
        return rc;
    if (!growbuf_reserve(raw, *total + 1))
        return mr_error_set(err, -ENOMEM, "cannot hold a sample of %zu bytes", *total);
    size_t at = 0;
    for (unsigned i = 0; i < n; at += ext[i++].length) {
        rc = mr_object_read(o, (char *)raw->data + at, ext[i].length, ext[i].offset, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The bytes read are a unit that samples share: `raw` becomes its unpacked form. */
static int unpack_unit(const struct mr_format_ops *f, const struct mr_layout *layout, struct mr_growbuf *raw,
                       size_t *total, struct mr_error *err)
{
    void *data = NULL;
    size_t len = 0;
    int rc = f->unpack(layout, raw->data, *total, &data, &len, err);
    if (rc < 0)
        return rc;
    free(raw->data);
    *raw = (struct mr_growbuf){.data = data, .cap = len};
    *total = len;
    return 0;
}

int mr_format_read_sample(const struct mr_format_ops *f, struct mr_object *o, struct mr_decoder *d,
                          const struct mr_layout *layout, const struct mr_sample_ref *ref, unsigned flags,
                          struct mr_growbuf *raw, struct mr_sample_out *out, struct mr_error *err)
{
    struct mr_extent stack[PLAN_STACK], *ext = stack;
    struct mr_read_cost cost;
    unsigned n = 0;
    size_t total = 0;
    uint64_t file_bytes = 0;

    int rc = plan_all(f, layout, ref, flags, stack, &ext, &n, err);
    if (rc < 0)
        return rc;
    rc = f->cost(layout, &cost, err);
    if (rc >= 0)
        rc = mr_object_size(o, &file_bytes, err);
    if (rc >= 0)
        rc = cost.access == MR_ACCESS_UNPACK ? gather_unpacked(f, o, file_bytes, layout, ext, n, raw, &total, err)
                                             : gather_ranges(o, file_bytes, ext, n, raw, &total, err);
    if (ext != stack)
        free(ext);
    if (rc >= 0 && cost.access == MR_ACCESS_UNIT)
        rc = unpack_unit(f, layout, raw, &total, err);
    if (rc < 0)
        return rc;
    return f->decode(d, layout, ref, flags, raw->data, total, out, err);
}
