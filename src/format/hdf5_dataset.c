/* HDF5: what the messages of a dataset's object header say about it: shape, type, where the bytes lie, filters and fill
 * value. Everything that we cannot turn into bytes of one of our types is refused by name. See hdf5_file.h. */
#include "format/hdf5_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The messages of a dataset as they are collected. */
struct parts {
    struct mr_h5_file *f;
    struct mr_h5_dataset *d;
    bool has_space, has_type, has_layout;
    uint8_t raw_fill[16];
    unsigned fill_len;
    int depth; /* of shared datatypes */
};

static int unsupported(struct mr_error *err, const char *what)
{
    return mr_error_plain(err, MR_E_UNSUPPORTED, "%s is not supported", what);
}

static int too_short(struct mr_error *err, const char *what, uint64_t addr)
{
    return mr_error_plain(err, MR_E_FORMAT, "%s message at %llu is too short", what, (unsigned long long)addr);
}

/* ---- dataspace (IV.A.2.b) ---- */

static int parse_space(struct parts *p, const uint8_t *b, size_t len, uint64_t addr, struct mr_error *err)
{
    if (len < 4)
        return too_short(err, "dataspace", addr);
    unsigned version = b[0], n = b[1], flags = b[2], lb = p->f->length_bytes;
    size_t at = version == 1 ? 8 : 4;
    if (version != 1 && version != 2)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "dataspace version %u", version);
    if (version == 2 && b[3] == 2)
        return unsupported(err, "an empty (null) dataspace");
    if (n > MR_H5_AXES)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "dataset has %u axes (limit %u)", n, MR_H5_AXES);
    size_t lists = flags & 1 ? 2 : 1;
    if (len < at + lists * n * lb)
        return too_short(err, "dataspace", addr);
    p->d->n = n;
    for (unsigned i = 0; i < n; i++) {
        p->d->dim[i] = mr_h5_uint(b + at + i * lb, lb);
        p->d->max_dim[i] = p->d->dim[i];
        if (flags & 1) {
            uint64_t max = mr_h5_uint(b + at + (n + i) * lb, lb),
                     ones = lb == 8 ? UINT64_MAX : ((uint64_t)1 << (8 * lb)) - 1;
            p->d->max_dim[i] = max == ones ? UINT64_MAX : max;
        }
        if (p->d->max_dim[i] < p->d->dim[i])
            return mr_error_plain(err, MR_E_FORMAT, "axis %u has %llu elements, more than its maximum %llu", i,
                                  (unsigned long long)p->d->dim[i], (unsigned long long)p->d->max_dim[i]);
    }
    p->has_space = true;
    return 0;
}

/* ---- datatype (IV.A.2.d) ---- */

static int fixed_point(struct mr_h5_dataset *d, const uint8_t *b, size_t len, struct mr_error *err)
{
    static const enum mr_dtype unsigned_types[] = {[1] = MR_U8, [2] = MR_U16, [4] = MR_U32, [8] = MR_U64};
    static const enum mr_dtype signed_types[] = {[1] = MR_I8, [2] = MR_I16, [4] = MR_I32, [8] = MR_I64};
    uint32_t size = mr_load_le32(b + 4);
    if (len < 12 || (size != 1 && size != 2 && size != 4 && size != 8) || mr_load_le16(b + 8) != 0 ||
        mr_load_le16(b + 10) != 8 * size)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "integers of %u bytes that do not use all their bits", size);
    d->dtype = b[1] & 8 ? signed_types[size] : unsigned_types[size];
    d->swap = (b[1] & 1) && size > 1;
    return 0;
}

static int floating_point(struct mr_h5_dataset *d, const uint8_t *b, size_t len, struct mr_error *err)
{
    /* size, sign bit, exponent location and size, mantissa location and size, bias */
    static const struct {
        enum mr_dtype dtype;
        uint32_t size, sign, exp_at, exp_n, man_at, man_n, bias;
    } known[] = {
        {MR_F16, 2, 15, 10, 5, 0, 10, 15},
        {MR_BF16, 2, 15, 7, 8, 0, 7, 127},
        {MR_F32, 4, 31, 23, 8, 0, 23, 127},
        {MR_F64, 8, 63, 52, 11, 0, 52, 1023},
    };
    uint32_t size = mr_load_le32(b + 4);
    for (size_t i = 0; len >= 20 && i < MR_ARRAY_LEN(known); i++)
        if (known[i].size == size && known[i].sign == b[2] && mr_load_le16(b + 8) == 0 &&
            mr_load_le16(b + 10) == 8 * size && known[i].exp_at == b[12] && known[i].exp_n == b[13] &&
            known[i].man_at == b[14] && known[i].man_n == b[15] && known[i].bias == mr_load_le32(b + 16) &&
            (b[1] & 0x40) == 0) {
            d->dtype = known[i].dtype;
            d->swap = b[1] & 1;
            return 0;
        }
    return mr_error_plain(err, MR_E_UNSUPPORTED, "floating-point numbers of %u bytes that are not IEEE or bfloat16",
                          size);
}

static int simple_type(struct mr_h5_dataset *d, const uint8_t *b, size_t len, struct mr_error *err)
{
    static const char *const names[] = {"",
                                        "",
                                        "time type",
                                        "string type",
                                        "bit field type",
                                        "opaque type",
                                        "compound type",
                                        "reference type",
                                        "enumeration of other than 1 byte",
                                        "variable-length type",
                                        "array type"};
    if (len < 8)
        return mr_error_plain(err, MR_E_FORMAT, "datatype message is too short (%zu bytes)", len);
    unsigned cls = b[0] & 15;
    if (cls == 0)
        return fixed_point(d, b, len, err);
    if (cls == 1)
        return floating_point(d, b, len, err);
    return unsupported(err, cls < MR_ARRAY_LEN(names) ? names[cls] : "unknown datatype class");
}

/* {r, i}: how h5py stores complex numbers. Returns the length of a member's head, 0 if it is not as expected. */
static size_t complex_member(const uint8_t *b, size_t len, unsigned version, uint32_t size, char name,
                             uint32_t want_offset)
{
    size_t name_len = version >= 3 ? 2 : 8, width = size > 0xff ? 2 : 1;
    size_t head = version == 1 ? name_len + 4 + 4 + 4 + 4 + 16 : version == 2 ? name_len + 4 : name_len + width;
    if (len < head || b[0] != (uint8_t)name || b[1] != 0)
        return 0;
    uint32_t offset = version >= 3 ? (uint32_t)mr_h5_uint(b + name_len, (unsigned)width) : mr_load_le32(b + name_len);
    if (offset != want_offset || (version == 1 && b[name_len + 4] != 0))
        return 0;
    return head;
}

static int compound_type(struct mr_h5_dataset *d, const uint8_t *b, size_t len, struct mr_error *err)
{
    unsigned version = b[0] >> 4;
    uint32_t size = mr_load_le32(b + 4);
    struct mr_h5_dataset part[2] = {{.n = 0}};
    size_t at = 8;
    bool ok = mr_load_le16(b + 1) == 2 && version >= 1 && version <= 5 && (size == 8 || size == 16);
    for (unsigned i = 0; ok && i < 2; i++) {
        size_t head = complex_member(b + at, len - at, version, size, i ? 'i' : 'r', i * size / 2);
        at += head;
        ok = head && len - at >= 20 && (b[at] & 15) == 1 && floating_point(&part[i], b + at, len - at, NULL) == 0 &&
             mr_dtype_bytes(part[i].dtype) == size / 2;
        at += 20;
        ok = ok && at <= len;
    }
    if (!ok || part[0].swap != part[1].swap)
        return unsupported(err, "compound type (other than complex numbers {r, i})");
    d->dtype = size == 8 ? MR_C64 : MR_C128;
    d->swap = part[0].swap;
    return 0;
}

static int parse_type(struct mr_h5_dataset *d, const uint8_t *b, size_t len, struct mr_error *err)
{
    if (len >= 8 && (b[0] & 15) == 6)
        return compound_type(d, b, len, err);
    if (len >= 20 && (b[0] & 15) == 8) { /* enumeration: h5py's bool is one of 1 byte; others count as their integers */
        int rc = simple_type(d, b + 8, len - 8, err);
        if (rc == 0 && mr_load_le32(b + 4) != mr_dtype_bytes(d->dtype))
            return unsupported(err, "enumeration of an unusual base type");
        if (rc == 0 && mr_load_le16(b + 1) == 2 && d->dtype == MR_I8 && len - 20 >= 13 &&
            memcmp(b + 20, "FALSE", 6) == 0)
            d->dtype = MR_BOOL;
        return rc;
    }
    return simple_type(d, b, len, err);
}

static int shared_type_message(void *user, unsigned type, unsigned flags, const uint8_t *b, size_t len, uint64_t addr,
                               struct mr_error *err);

/* A named datatype: the message holds the address of the object that has it. */
static int shared_type(struct parts *p, const uint8_t *b, size_t len, uint64_t addr, struct mr_error *err)
{
    unsigned version = len >= 2 ? b[0] : 0, ob = p->f->offset_bytes;
    size_t at = version == 1 ? 8 : 2;
    if (version < 1 || version > 3 || len < at + ob || (version == 3 && b[1] != 2) || p->depth > 0)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "shared datatype message (version %u) at %llu", version,
                              (unsigned long long)addr);
    p->depth++;
    return mr_h5_messages(p->f, mr_h5_address(p->f, b + at), shared_type_message, p, err);
}

static int type_message(struct parts *p, unsigned flags, const uint8_t *b, size_t len, uint64_t addr,
                        struct mr_error *err)
{
    if (flags & 2)
        return shared_type(p, b, len, addr, err);
    p->has_type = true;
    return parse_type(p->d, b, len, err);
}

static int shared_type_message(void *user, unsigned type, unsigned flags, const uint8_t *b, size_t len, uint64_t addr,
                               struct mr_error *err)
{
    return type == MR_H5_DATATYPE ? type_message(user, flags, b, len, addr, err) : 0;
}

/* ---- data layout (IV.A.2.i) ---- */

/* The fields of chunk index `index` behind the common part of a version 4 layout; the address comes last. */
static int parse_index(struct parts *p, const uint8_t *b, size_t len, unsigned flags, uint64_t addr,
                       struct mr_error *err)
{
    static const uint8_t fixed[] = {
        [MR_H5_SINGLE] = 0, [MR_H5_IMPLICIT] = 0, [MR_H5_FIXED] = 1, [MR_H5_EXTENSIBLE] = 5, [MR_H5_BTREE2] = 6};
    unsigned ob = p->f->offset_bytes, lb = p->f->length_bytes;
    if (len < 1 || b[0] < MR_H5_SINGLE || b[0] > MR_H5_BTREE2)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "chunk index type %u", len ? b[0] : 0);
    p->d->index = b[0];
    size_t extra = fixed[b[0]];
    if (b[0] == MR_H5_SINGLE && (flags & 2))
        extra = lb + 4;
    if (len < 1 + extra + ob)
        return too_short(err, "layout", addr);
    if (b[0] == MR_H5_SINGLE && (flags & 2)) {
        p->d->single_bytes = mr_h5_uint(b + 1, lb);
        p->d->single_mask = mr_load_le32(b + 1 + lb);
    }
    p->d->addr = mr_h5_address(p->f, b + 1 + extra);
    return 0;
}

static int parse_chunked4(struct parts *p, const uint8_t *b, size_t len, uint64_t addr, struct mr_error *err)
{
    if (len < 5)
        return too_short(err, "layout", addr);
    unsigned flags = b[2], n = b[3], width = b[4];
    if (flags & 1)
        return unsupported(err, "a dataset whose partial edge chunks are unfiltered");
    if (n < 2 || n > MR_H5_AXES + 1 || width < 1 || width > 8 || len < 5 + (size_t)n * width)
        return mr_error_plain(err, MR_E_FORMAT, "bad chunk shape at %llu (%u axes of %u bytes)",
                              (unsigned long long)addr, n, width);
    for (unsigned i = 0; i + 1 < n; i++)
        p->d->chunk[i] = mr_h5_uint(b + 5 + i * width, width);
    p->d->chunk[MR_H5_AXES - 1] = n == MR_H5_AXES + 1 ? p->d->chunk[MR_H5_AXES - 1] : 0;
    p->d->bytes = n - 1; /* the number of axes, checked when all messages are there */
    return parse_index(p, b + 5 + n * width, len - 5 - n * width, flags, addr, err);
}

static int parse_chunked3(struct parts *p, const uint8_t *b, size_t len, uint64_t addr, struct mr_error *err)
{
    unsigned n = len > 2 ? b[2] : 0, ob = p->f->offset_bytes;
    if (n < 2 || n > MR_H5_AXES + 1 || len < 3 + ob + 4u * n)
        return mr_error_plain(err, MR_E_FORMAT, "bad chunk shape at %llu (%u axes)", (unsigned long long)addr, n);
    p->d->index = MR_H5_BTREE1;
    p->d->addr = mr_h5_address(p->f, b + 3);
    for (unsigned i = 0; i + 1 < n; i++)
        p->d->chunk[i] = mr_load_le32(b + 3 + ob + 4 * i);
    p->d->bytes = n - 1;
    return 0;
}

static int parse_layout(struct parts *p, const uint8_t *b, size_t len, uint64_t addr, struct mr_error *err)
{
    if (len < 2)
        return too_short(err, "layout", addr);
    unsigned version = b[0], cls = b[1], ob = p->f->offset_bytes, lb = p->f->length_bytes;
    if (version < 3 || version > 5)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "data layout version %u (want 3 to 5)", version);
    p->has_layout = true;
    p->d->wide_sizes = version == 5;
    if (cls == 3)
        return unsupported(err, "a virtual dataset");
    if (cls > 3)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "data layout class %u", cls);
    p->d->storage = cls;
    if (cls == MR_H5_CHUNKED)
        return version == 3 ? parse_chunked3(p, b, len, addr, err) : parse_chunked4(p, b, len, addr, err);
    if (cls == MR_H5_CONTIGUOUS) {
        if (len < 2u + ob + lb)
            return too_short(err, "layout", addr);
        p->d->addr = mr_h5_address(p->f, b + 2);
        p->d->bytes = mr_h5_uint(b + 2 + ob, lb);
        return 0;
    }
    if (len < 4 || mr_load_le16(b + 2) > len - 4)
        return too_short(err, "layout", addr);
    p->d->bytes = mr_load_le16(b + 2);
    p->d->addr = addr + 4; /* compact data lies in the header itself */
    return 0;
}

/* ---- filters (IV.A.2.l) and fill value (IV.A.2.f) ---- */

static int parse_pipeline(struct parts *p, const uint8_t *b, size_t len, uint64_t addr, struct mr_error *err)
{
    if (len < 2)
        return too_short(err, "filter", addr);
    unsigned version = b[0], n = b[1];
    size_t at = version == 1 ? 8 : 2;
    if ((version != 1 && version != 2) || n > MR_H5_FILTERS)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "filter pipeline version %u with %u filters", version, n);
    for (unsigned i = 0; i < n; i++) {
        if (len < at || len - at < 6)
            return too_short(err, "filter", addr);
        unsigned id = mr_load_le16(b + at);
        bool named = version == 1 || id >= 256;
        if (named && len - at < 8)
            return too_short(err, "filter", addr);
        size_t name = named ? mr_load_le16(b + at + 2) : 0, head = named ? 8 : 6;
        unsigned flags = mr_load_le16(b + at + head - 4), values = mr_load_le16(b + at + head - 2);
        if (version == 1)
            name = MR_ALIGN_UP(name, 8);
        size_t data = 4 * ((size_t)values + (version == 1 ? values & 1 : 0));
        if (len - at < head + name + data)
            return too_short(err, "filter", addr);
        p->d->filter[i] = (struct mr_h5_filter){
            .id = (uint16_t)id, .optional = flags & 1, .value = values ? mr_load_le32(b + at + head + name) : 0};
        at += head + name + data;
    }
    p->d->filters = n;
    return 0;
}

static int parse_fill(struct parts *p, const uint8_t *b, size_t len, uint64_t addr, struct mr_error *err)
{
    if (len < 2)
        return too_short(err, "fill value", addr);
    size_t at;
    if (b[0] == 3)
        at = b[1] & 0x20 ? 2 : 0;
    else if (b[0] == 1 || b[0] == 2)
        at = len >= 4 && (b[0] == 1 || b[3]) ? 4 : 0;
    else
        return mr_error_plain(err, MR_E_UNSUPPORTED, "fill value version %u", b[0]);
    if (at == 0)
        return 0;
    if (len < at + 4 || mr_load_le32(b + at) > len - at - 4)
        return too_short(err, "fill value", addr);
    uint32_t n = mr_load_le32(b + at);
    if (n <= sizeof p->raw_fill) {
        memcpy(p->raw_fill, b + at + 4, n);
        p->fill_len = n;
    }
    return 0;
}

static int dataset_message(void *user, unsigned type, unsigned flags, const uint8_t *b, size_t len, uint64_t addr,
                           struct mr_error *err)
{
    struct parts *p = user;
    if ((flags & 2) && type != MR_H5_DATATYPE &&
        (type == MR_H5_DATASPACE || type == MR_H5_FILL || type == MR_H5_PIPELINE || type == MR_H5_LAYOUT))
        return mr_error_plain(err, MR_E_UNSUPPORTED, "shared header message of type %u at %llu", type,
                              (unsigned long long)addr);
    switch (type) {
    case MR_H5_DATASPACE: return parse_space(p, b, len, addr, err);
    case MR_H5_DATATYPE: return type_message(p, flags, b, len, addr, err);
    case MR_H5_LAYOUT: return parse_layout(p, b, len, addr, err);
    case MR_H5_PIPELINE: return parse_pipeline(p, b, len, addr, err);
    case MR_H5_FILL: return parse_fill(p, b, len, addr, err);
    case MR_H5_EXTERNAL: return unsupported(err, "a dataset in external files");
    default: return 0;
    }
}

static int check_chunks(const struct mr_h5_file *f, struct mr_h5_dataset *d, struct mr_error *err)
{
    uint64_t bytes = mr_dtype_bytes(d->dtype);
    bool fits = d->bytes == d->n;
    (void)f;
    for (unsigned i = 0; i < d->n && fits; i++)
        fits = d->chunk[i] > 0 && mr_mul_ok(bytes, d->chunk[i], &bytes);
    if (!fits || bytes > UINT32_MAX)
        return mr_error_plain(err, fits ? MR_E_LIMIT : MR_E_FORMAT,
                              "bad chunk shape (%llu axes, dataset has %u, chunks of %llu bytes)",
                              (unsigned long long)d->bytes, d->n, (unsigned long long)bytes);
    d->chunk_bytes = bytes;
    return 0;
}

static int check_contiguous(const struct mr_h5_file *f, struct mr_h5_dataset *d, struct mr_error *err)
{
    uint64_t bytes = mr_dtype_bytes(d->dtype);
    for (unsigned i = 0; i < d->n; i++)
        if (!mr_mul_ok(bytes, d->dim[i], &bytes))
            return mr_error_plain(err, MR_E_LIMIT, "the dataset's size overflows 64 bits");
    if (d->filters)
        return mr_error_plain(err, MR_E_FORMAT, "filters on a dataset that is not chunked");
    if (d->addr == MR_H5_UNDEF || bytes == 0) { /* never written: all fill values */
        d->addr = MR_H5_UNDEF;
        if (bytes > f->size * MR_LIMIT_UNPACK_RATIO)
            return mr_error_plain(err, MR_E_LIMIT, "a dataset of %llu bytes that was never written",
                                  (unsigned long long)bytes);
    } else if (bytes != d->bytes && !(d->storage == MR_H5_COMPACT && bytes < d->bytes)) {
        return mr_error_plain(err, MR_E_FORMAT, "the dataset has %llu bytes, its shape needs %llu",
                              (unsigned long long)d->bytes, (unsigned long long)bytes);
    } else if (!mr_h5_inside(f, d->addr, bytes)) {
        return mr_error_plain(err, MR_E_FORMAT, "unexpected end of file (want %llu bytes at %llu, file has %llu)",
                              (unsigned long long)bytes, (unsigned long long)d->addr, (unsigned long long)f->size);
    }
    d->bytes = bytes;
    return 0;
}

int mr_h5_dataset_read(struct mr_h5_file *f, uint64_t header, const char *path, struct mr_h5_dataset *out,
                       struct mr_error *err)
{
    struct mr_h5_dataset d = {0};
    struct parts p = {.f = f, .d = &d};
    size_t n = strlen(path);
    if (n >= sizeof d.path)
        return mr_error_plain(err, MR_E_LIMIT, "dataset name of %zu bytes (limit %u)", n, MR_H5_PATH_MAX - 1);
    memcpy(d.path, path, n + 1);
    int rc = mr_h5_messages(f, header, dataset_message, &p, err);
    if (rc == 0 && (!p.has_space || !p.has_type || !p.has_layout))
        rc = mr_error_plain(err, MR_E_FORMAT, "the header lacks a %s message",
                            !p.has_space  ? "dataspace"
                            : !p.has_type ? "datatype"
                                          : "layout");
    if (rc == 0)
        rc = d.storage == MR_H5_CHUNKED ? check_chunks(f, &d, err) : check_contiguous(f, &d, err);
    if (rc < 0)
        return mr_error_context(err, "dataset '%s', object header at %llu", path, (unsigned long long)header), rc;
    if (p.fill_len == mr_dtype_bytes(d.dtype))
        memcpy(d.fill, p.raw_fill, p.fill_len);
    *out = d;
    return 0;
}
