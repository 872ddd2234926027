/* Reading and writing .npy headers; see npy_header.h. The parser is a small recursive-free scanner over the dict
 * literal: it accepts what Python's repr writes for a dict of these three keys, in any order, and nothing else, so that
 * a damaged header is an error with an offset and not a guess. */
#include "format/npy_header.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t npy_magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

int mr_npy_header_length(const uint8_t prefix[MR_NPY_PREFIX], uint64_t *out, struct mr_error *err)
{
    if (memcmp(prefix, npy_magic, sizeof npy_magic) != 0)
        return mr_error_plain(err, MR_E_FORMAT, "not a .npy array: wrong magic bytes at its start");
    unsigned major = prefix[6];
    if (major < 1 || major > 3 || prefix[7] != 0)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "unknown .npy version %u.%u (want 1.0, 2.0 or 3.0)", major,
                              prefix[7]);
    uint64_t len = major == 1 ? 10u + mr_load_le16(prefix + 8) : 12ull + mr_load_le32(prefix + 8);
    if (len < MR_NPY_PREFIX || len > MR_LIMIT_HEADER_BYTES)
        return mr_error_plain(err, MR_E_LIMIT, "bad .npy header length %llu (limit %u bytes)", (unsigned long long)len,
                              MR_LIMIT_HEADER_BYTES);
    *out = len;
    return 0;
}

/* A cursor over the dict literal. */
struct scanner {
    const char *at, *end;
};

static void skip_space(struct scanner *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\t' || *s->at == '\r'))
        s->at++;
}

static bool accept(struct scanner *s, char c)
{
    skip_space(s);
    if (s->at >= s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

static bool accept_word(struct scanner *s, const char *word)
{
    skip_space(s);
    size_t n = strlen(word);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0)
        return false;
    s->at += n;
    return true;
}

/* A quoted string without escapes, copied with a NUL; false when it is absent or too long. */
static bool scan_string(struct scanner *s, char *out, size_t cap)
{
    skip_space(s);
    if (s->at >= s->end || (*s->at != '\'' && *s->at != '"'))
        return false;
    char quote = *s->at++;
    size_t n = 0;
    while (s->at < s->end && *s->at != quote) {
        if (*s->at == '\\' || *s->at == 0 || n + 1 >= cap)
            return false;
        out[n++] = *s->at++;
    }
    out[n] = 0;
    return accept(s, quote);
}

static bool scan_shape(struct scanner *s, struct mr_npy_header *h, bool *too_many)
{
    h->n = 0;
    if (!accept(s, '('))
        return false;
    while (!accept(s, ')')) {
        skip_space(s);
        uint64_t v = 0;
        const char *first = s->at;
        for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
            if (!mr_mul_ok(v, 10, &v) || !mr_add_ok(v, (uint64_t)(*s->at - '0'), &v))
                return false;
        if (s->at == first)
            return false;
        accept(s, 'L'); /* Python 2 wrote long integers so */
        if (h->n == MR_NPY_AXES) {
            *too_many = true;
            return false;
        }
        h->shape[h->n++] = v;
        if (!accept(s, ',')) {
            /* "(5)" is no tuple in Python; every shape that ends without a comma has at least two axes. */
            return h->n >= 2 && accept(s, ')');
        }
    }
    return true;
}

static int parse_descr(const char *text, struct mr_npy_header *h, struct mr_error *err)
{
    char kind = text[0] && strchr("<>|=", text[0]) ? text[1] : text[0];
    if (kind == 'O')
        return mr_error_plain(err, MR_E_UNSUPPORTED, "object arrays need pickle; refused (dtype '%s')", text);
    if (strcmp(text, "|V2") == 0 || strcmp(text, "<V2") == 0) { /* how bfloat16 arrays reach numpy files */
        h->dtype = MR_BF16;
        return 0;
    }
    bool swap = false;
    if (kind && strchr("SUaVMm", kind))
        return mr_error_plain(err, MR_E_UNSUPPORTED, "dtype '%s' is not a number", text);
    if (mr_dtype_parse(text, &h->dtype, &swap, NULL) < 0)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "unsupported dtype '%s'", text);
    h->flags |= swap && mr_dtype_swap_unit(h->dtype) > 1 ? MR_ARRAY_SWAP : 0;
    return 0;
}

static int bad_dict(const struct scanner *s, const uint8_t *data, const char *want, struct mr_error *err)
{
    return mr_error_plain(err, MR_E_FORMAT, "bad .npy header at byte %zu: want %s",
                          (size_t)((const uint8_t *)s->at - data), want);
}

static int parse_value(struct scanner *s, const char *key, const uint8_t *data, struct mr_npy_header *h,
                       struct mr_error *err)
{
    if (strcmp(key, "descr") == 0) {
        char descr[32];
        skip_space(s);
        if (s->at < s->end && (*s->at == '[' || *s->at == '('))
            return mr_error_plain(err, MR_E_UNSUPPORTED, "structured dtypes are not supported");
        if (!scan_string(s, descr, sizeof descr))
            return bad_dict(s, data, "a dtype string", err);
        return parse_descr(descr, h, err);
    }
    if (strcmp(key, "fortran_order") == 0) {
        if (accept_word(s, "True"))
            h->flags |= MR_ARRAY_FORTRAN;
        else if (!accept_word(s, "False"))
            return bad_dict(s, data, "True or False", err);
        return 0;
    }
    if (strcmp(key, "shape") == 0) {
        bool too_many = false;
        if (!scan_shape(s, h, &too_many))
            return too_many ? mr_error_plain(err, MR_E_UNSUPPORTED, "array has more than %u axes", MR_NPY_AXES)
                            : bad_dict(s, data, "a tuple of sizes", err);
        return 0;
    }
    return mr_error_plain(err, MR_E_FORMAT, "unknown key '%s' in the .npy header", key);
}

static int check_size(struct mr_npy_header *h, struct mr_error *err)
{
    uint64_t n = mr_dtype_bytes(h->dtype);
    bool empty = false, fits = true;
    for (unsigned i = 0; i < h->n; i++)
        empty |= h->shape[i] == 0;
    for (unsigned i = 0; i < h->n && fits; i++)
        fits = mr_mul_ok(n, empty ? MR_MIN(h->shape[i], 1) : h->shape[i], &n);
    if (!fits || n > (uint64_t)INT64_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "the shape in the .npy header overflows 63 bits");
    h->payload_bytes = n;
    return 0;
}

int mr_npy_header_parse(const uint8_t *data, size_t len, struct mr_npy_header *out, struct mr_error *err)
{
    struct mr_npy_header h = {0};
    if (len < MR_NPY_PREFIX)
        return mr_error_plain(err, MR_E_FORMAT, "unexpected end of the .npy header (want %u bytes, have %zu)",
                              MR_NPY_PREFIX, len);
    int rc = mr_npy_header_length(data, &h.payload_offset, err);
    if (rc < 0)
        return rc;
    if (h.payload_offset > len)
        return mr_error_plain(err, MR_E_FORMAT, "unexpected end of the .npy header (want %llu bytes, have %zu)",
                              (unsigned long long)h.payload_offset, len);
    struct scanner s = {(const char *)data + (data[6] == 1 ? 10 : 12), (const char *)data + h.payload_offset};
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    unsigned seen = 0;
    if (!accept(&s, '{'))
        return bad_dict(&s, data, "'{'", err);
    while (!accept(&s, '}')) {
        char key[20];
        if (!scan_string(&s, key, sizeof key) || !accept(&s, ':'))
            return bad_dict(&s, data, "a key", err);
        if ((rc = parse_value(&s, key, data, &h, err)) < 0)
            return rc;
        for (unsigned i = 0; i < 3; i++)
            seen |= strcmp(key, keys[i]) == 0 ? 1u << i : 0;
        if (!accept(&s, ',')) {
            if (!accept(&s, '}'))
                return bad_dict(&s, data, "',' or '}'", err);
            break;
        }
    }
    skip_space(&s);
    if (s.at != s.end)
        return bad_dict(&s, data, "only spaces after '}'", err);
    for (unsigned i = 0; i < 3; i++)
        if (!(seen & 1u << i))
            return mr_error_plain(err, MR_E_FORMAT, "the .npy header lacks the key '%s'", keys[i]);
    if ((rc = check_size(&h, err)) < 0)
        return rc;
    *out = h;
    return 0;
}

int mr_npy_header_read(struct mr_object *o, uint64_t offset, uint64_t limit, struct mr_npy_header *out,
                       struct mr_error *err)
{
    uint8_t prefix[MR_NPY_PREFIX];
    uint64_t len;
    int rc;
    if (limit < sizeof prefix)
        return mr_error_plain(err, MR_E_FORMAT,
                              "unexpected end of the array (want a header of %zu bytes at %llu, have %llu)",
                              sizeof prefix, (unsigned long long)offset, (unsigned long long)limit);
    if ((rc = mr_object_read(o, prefix, sizeof prefix, offset, err)) < 0 ||
        (rc = mr_npy_header_length(prefix, &len, err)) < 0)
        return rc;
    if (len > limit)
        return mr_error_plain(err, MR_E_FORMAT,
                              "unexpected end of the array (want a header of %llu bytes at %llu, have %llu)",
                              (unsigned long long)len, (unsigned long long)offset, (unsigned long long)limit);
    uint8_t *data = malloc(len);
    if (!data)
        return mr_error_set(err, -ENOMEM, "cannot read a header of %llu bytes", (unsigned long long)len);
    struct mr_npy_header h;
    rc = mr_object_read(o, data, len, offset, err);
    if (rc >= 0)
        rc = mr_npy_header_parse(data, len, &h, err);
    free(data);
    if (rc < 0)
        return rc;
    if (h.payload_bytes > limit - h.payload_offset)
        return mr_error_plain(err, MR_E_FORMAT, "unexpected end of the array (want %llu bytes at %llu, have %llu)",
                              (unsigned long long)h.payload_bytes, (unsigned long long)(offset + h.payload_offset),
                              (unsigned long long)(limit - h.payload_offset));
    *out = h;
    return 0;
}

size_t mr_npy_header_build(enum mr_dtype dtype, const uint64_t *shape, unsigned n, uint8_t out[MR_NPY_BUILD_MAX])
{
    char dict[MR_NPY_BUILD_MAX - 10];
    const char *np = dtype == MR_BF16 ? "V2" : mr_dtype_numpy(dtype);
    char order = mr_dtype_bytes(dtype) == 1 ? '|' : '<';
    size_t len = (size_t)snprintf(dict, sizeof dict, "{'descr': '%c%s', 'fortran_order': False, 'shape': (", order, np);
    for (unsigned i = 0; i < n; i++)
        len += (size_t)snprintf(dict + len, sizeof dict - len, "%s%llu", i ? ", " : "", (unsigned long long)shape[i]);
    len += (size_t)snprintf(dict + len, sizeof dict - len, "%s), }", n == 1 ? "," : "");
    size_t total = MR_MAX(MR_ALIGN_UP(10 + len + 1, 64), 128);
    memset(out, ' ', total);
    memcpy(out, npy_magic, sizeof npy_magic);
    out[6] = 1;
    out[7] = 0;
    mr_store_le16(out + 8, (uint16_t)(total - 10));
    memcpy(out + 10, dict, len);
    out[total - 1] = '\n';
    return total;
}

int mr_npy_header_desc(const struct mr_npy_header *h, bool rows, bool last, struct mr_array_desc *out,
                       struct mr_error *err)
{
    struct mr_array_desc a = {.dtype = h->dtype, .flags = h->flags};
    if (rows && h->n == 0)
        return mr_error_plain(err, MR_E_USAGE, "the array has no axis, so it has no rows");
    unsigned skip = rows ? 1 : 0;
    if (h->n - skip > MR_DIMS_MAX)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "a sample would have %u axes (limit %u)", h->n - skip,
                              MR_DIMS_MAX);
    a.dims.n = h->n - skip;
    for (unsigned i = 0; i < a.dims.n; i++)
        a.dims.dim[i] = h->shape[last ? i : i + skip];
    if (rows) {
        a.flags |= MR_ARRAY_ROWS | (last ? MR_ARRAY_LAST : 0);
        a.rows = h->shape[last ? h->n - 1 : 0];
    }
    if (a.dims.n <= 1) /* one axis has one order */
        a.flags &= rows && a.dims.n == 1 ? ~0u : ~(unsigned)MR_ARRAY_FORTRAN;
    uint64_t bytes;
    if (!mr_array_bytes(&a.dims, a.dtype, &bytes) || bytes > MR_LIMIT_SAMPLE_BYTES)
        return mr_error_plain(err, MR_E_LIMIT, "a sample exceeds the limit of %llu bytes",
                              (unsigned long long)MR_LIMIT_SAMPLE_BYTES);
    if (!rows && a.dims.n > 0 && bytes / MR_MAX(a.dims.dim[0], 1) > 0)
        a.flags |= MR_ARRAY_FLEX;
    *out = a;
    return 0;
}
