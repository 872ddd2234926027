/* Decoding of pages: see parquet_unit.h. All pages of a unit are looked at twice: once for how many values there are, so
 * that memory is taken once, and for the dictionary; then each is decoded behind the last.
 *
 *   page --crc--> stored bytes --codec--> levels | values --encoding--> values of the delivered type
 *
 * A page of values that are stored as they are delivered is unpacked, or copied, straight to its place. */
#include "format/parquet_unit.h"
#include "format/array_common.h"
#include "format/parquet_codec.h"
#include "format/parquet_values.h"

#include <assert.h>
#include <errno.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#define SLACK 64u /* behind the values, so that copies may be wide */

uint64_t mr_pq_unit_limit = (uint64_t)1 << 32;

typedef unsigned long long ull;

struct slice {
    const uint8_t *p;
    uint64_t len;
};

struct builder {
    const struct mr_pq_type *t;
    unsigned physical, each; /* bytes of a value as stored, as delivered; 0: they differ */
    uint64_t values;         /* of all data pages, with empty rows */
    uint8_t *unit;
    uint64_t at, cap; /* of unit */
    uint64_t from;    /* where the first value lies in it */
    bool here;        /* the pages lie in unit, too, behind `at` */
    uint64_t *end;    /* ragged: of each row, in bytes from the first value on */
    uint64_t rows;
    bool ragged, open; /* open: a row has begun, and may go on */
    uint8_t *scratch;  /* an unpacked page */
    uint64_t scratch_cap;
    /* The dictionary, if there is one: delivered values, or byte strings. */
    uint8_t *dictionary, *dictionary_page;
    struct slice *word;
    uint64_t words;
    bool has_dictionary;
};

unsigned mr_pq_physical_bytes(const struct mr_pq_type *t)
{
    static const uint8_t bytes[] = {0, 4, 8, 12, 4, 8, 0, 0};
    return t->physical == MR_PQ_FIXED ? t->length : t->physical < 8 ? bytes[t->physical] : 0;
}

unsigned mr_pq_value_bytes(const struct mr_pq_type *t)
{
    if (t->physical == MR_PQ_FIXED)
        return t->length;
    return t->physical == MR_PQ_BYTES ? 0 : mr_dtype_bytes(t->dtype);
}

static int no_memory(uint64_t bytes, struct mr_error *err)
{
    return mr_error_set(err, -ENOMEM, "cannot get %llu bytes for a decoded page", (ull)bytes);
}

static int damaged(const char *what, struct mr_error *err)
{
    return mr_error_plain(err, MR_E_CORRUPT, "a page is damaged: its %s do not fit it", what);
}

/* Room for `more` bytes of values. */
static int grow(struct builder *b, uint64_t more, struct mr_error *err)
{
    uint64_t need = b->at + more + SLACK;
    if (need <= b->cap)
        return 0;
    if (need > mr_pq_unit_limit)
        return mr_error_plain(err, MR_E_LIMIT, "a unit of %llu decoded bytes is over the limit of %llu", (ull)need,
                              (ull)mr_pq_unit_limit);
    uint64_t cap = MR_MAX(need, b->cap + b->cap / 2);
    if (b->at == b->from) { /* nothing is in it */
        free(b->unit);
        b->unit = NULL;
        b->cap = 0;
    }
    uint8_t *grown = realloc(b->unit, cap);
    if (!grown)
        return no_memory(cap, err);
    b->unit = grown;
    b->cap = cap;
    return 0;
}

static int unpack_page(struct builder *b, const uint8_t *p, uint64_t len, uint64_t want, const uint8_t **out,
                       struct mr_error *err)
{
    if (b->t->codec == MR_PQ_UNCOMPRESSED) {
        *out = p;
        return len == want ? 0 : damaged("lengths", err);
    }
    if (want > b->scratch_cap) {
        free(b->scratch);
        b->scratch = malloc(want + SLACK);
        b->scratch_cap = b->scratch ? want : 0;
        if (!b->scratch)
            return no_memory(want, err);
    }
    *out = b->scratch;
    return want ? mr_pq_decompress(b->t->codec, p, len, b->scratch, want, err) : 0;
}

/* ---- values ---- */

static int put_plain(struct builder *b, const uint8_t *p, uint64_t len, uint64_t n, struct mr_error *err)
{
    uint8_t *to = b->unit + b->at;
    if (b->t->physical == MR_PQ_BOOLEAN)
        return mr_pq_unpack_bits(p, len, n, to) ? 0 : damaged("values", err);
    if (len / b->physical < n)
        return damaged("values", err);
    if (b->each == b->physical && to != p)
        memmove(to, p, n * b->each); /* within the unit, where the pages lie in it */
    else if (b->each != b->physical)
        mr_pq_narrow(p, n, b->physical, b->each, to);
    return 0;
}

static inline void gather(uint8_t *to, const uint8_t *from, const uint32_t *index, uint64_t n, unsigned each)
{
    for (uint64_t i = 0; i < n; i++)
        memcpy(to + i * each, from + (uint64_t)index[i] * each, each);
}

static void put_indexed(struct builder *b, const uint32_t *index, uint64_t n, uint8_t *to)
{
    switch (b->each) { /* sizes known where this is compiled */
    case 1: gather(to, b->dictionary, index, n, 1); break;
    case 2: gather(to, b->dictionary, index, n, 2); break;
    case 4: gather(to, b->dictionary, index, n, 4); break;
    case 8: gather(to, b->dictionary, index, n, 8); break;
    default: gather(to, b->dictionary, index, n, b->each);
    }
}

static void repeat(uint8_t *to, const uint8_t *value, uint64_t n, unsigned each)
{
    if (n == 0)
        return;
    memcpy(to, value, each);
    for (uint64_t have = each, all = n * each; have < all;) {
        uint64_t part = MR_MIN(have, all - have);
        memcpy(to + have, to, part);
        have += part;
    }
}

MR_SIMD_CLONES
static uint32_t largest(const uint32_t *v, uint64_t n)
{
    uint32_t max = 0;
    for (uint64_t i = 0; i < n; i++)
        max = MR_MAX(max, v[i]);
    return max;
}

/* Byte strings, of which each is a row. */
static int put_string(struct builder *b, const uint8_t *p, uint64_t len, struct mr_error *err)
{
    int rc = grow(b, len, err);
    if (rc)
        return rc;
    memcpy(b->unit + b->at, p, len);
    b->at += len;
    b->end[b->rows++] = b->at - b->from;
    return 0;
}

static int put_words(struct builder *b, const uint32_t *index, uint64_t n, uint64_t step, struct mr_error *err)
{
    int rc = 0;
    for (uint64_t i = 0; i < n && !rc; i++) {
        const struct slice *w = &b->word[index[i * step]];
        rc = put_string(b, w->p, w->len, err);
    }
    return rc;
}

static int put_dictionary(struct builder *b, const uint8_t *p, uint64_t len, uint64_t n, struct mr_error *err)
{
    uint32_t index[MR_PQ_RUN_BLOCK];
    if (!b->has_dictionary)
        return mr_error_plain(err, MR_E_FORMAT, "a page refers to a dictionary that is not there");
    if (n && (len == 0 || p[0] > 32))
        return damaged("dictionary indices", err);
    struct mr_pq_runs r = {.at = p + 1, .end = p + len, .width = n ? p[0] : 0};
    for (uint8_t *to = b->unit + b->at; n;) {
        uint64_t k = 0;
        bool equal = false;
        int rc = 0;
        if (!mr_pq_runs_take(&r, n, index, &k, &equal) || largest(index, equal ? 1 : k) >= b->words)
            return damaged("dictionary indices", err);
        if (!b->each)
            rc = put_words(b, index, k, !equal, err);
        else if (equal)
            repeat(to, b->dictionary + (uint64_t)index[0] * b->each, k, b->each);
        else
            put_indexed(b, index, k, to);
        if (rc)
            return rc;
        to += k * b->each;
        n -= k;
    }
    return 0;
}

static int put_strings(struct builder *b, const uint8_t *p, uint64_t len, uint64_t n, struct mr_error *err)
{
    int rc = grow(b, len, err);
    const uint8_t *end = p + len;
    for (; n && !rc; n--) {
        if (end - p < 4 || mr_load_le32(p) > (uint64_t)(end - p) - 4)
            return damaged("values", err);
        rc = put_string(b, p + 4, mr_load_le32(p), err);
        p += 4 + mr_load_le32(p);
    }
    return rc;
}

static int put_truths(struct builder *b, const uint8_t *p, uint64_t len, uint64_t n, struct mr_error *err)
{
    if (len < 4 || mr_load_le32(p) > len - 4)
        return damaged("values", err);
    struct mr_pq_runs r = {.at = p + 4, .end = p + 4 + mr_load_le32(p), .width = 1};
    for (uint8_t *to = b->unit + b->at; n;) {
        uint32_t v;
        uint64_t k;
        if (!mr_pq_runs_equal(&r, n, &v, &k))
            return damaged("values", err);
        memset(to, (int)v, k);
        to += k;
        n -= k;
    }
    return 0;
}

/* n values of fixed size, for which there is room, behind the last. */
static int put_fixed(struct builder *b, unsigned encoding, const uint8_t *p, uint64_t len, uint64_t n,
                     struct mr_error *err)
{
    const struct mr_pq_type *t = b->t;
    bool is_int = t->physical == MR_PQ_INT32 || t->physical == MR_PQ_INT64;
    uint8_t *to = b->unit + b->at;
    int rc = 0;
    if (encoding == MR_PQ_PLAIN)
        rc = put_plain(b, p, len, n, err);
    else if (encoding == MR_PQ_RLE_DICTIONARY || encoding == MR_PQ_PLAIN_DICTIONARY)
        rc = put_dictionary(b, p, len, n, err);
    else if (encoding == MR_PQ_DELTA && is_int)
        rc = mr_pq_delta(p, len, n, b->each, to) ? 0 : damaged("values", err);
    else if (encoding == MR_PQ_BYTE_STREAM_SPLIT && b->each == b->physical)
        rc = mr_pq_unsplit(p, len, n, b->each, to) ? 0 : damaged("values", err);
    else if (encoding == MR_PQ_RLE && t->physical == MR_PQ_BOOLEAN)
        rc = put_truths(b, p, len, n, err);
    else
        rc = mr_error_plain(err, MR_E_UNSUPPORTED, "encoding %u of its values is not read", encoding);
    b->at += rc ? 0 : n * b->each;
    return rc;
}

static int put_values(struct builder *b, unsigned encoding, const uint8_t *p, uint64_t len, uint64_t n,
                      struct mr_error *err)
{
    if (b->each)
        return put_fixed(b, encoding, p, len, n, err);
    if (encoding == MR_PQ_PLAIN)
        return put_strings(b, p, len, n, err);
    if (encoding == MR_PQ_RLE_DICTIONARY || encoding == MR_PQ_PLAIN_DICTIONARY)
        return put_dictionary(b, p, len, n, err);
    return mr_error_plain(err, MR_E_UNSUPPORTED, "encoding %s of its values is not read",
                          encoding == MR_PQ_DELTA_LENGTH  ? "DELTA_LENGTH_BYTE_ARRAY"
                          : encoding == MR_PQ_DELTA_BYTES ? "DELTA_BYTE_ARRAY"
                                                          : "(unknown)");
}

/* ---- levels ---- */

static int null_found(uint64_t row, const char *what, struct mr_error *err)
{
    mr_error_plain(err, MR_E_FORMAT, "%s of row %llu of the page's column chunk is null", what, (ull)row);
    mr_error_hint(err, "nulls are not delivered: fill them in, or leave the column out with --fields");
    return MR_E_FORMAT;
}

static unsigned level_bits(unsigned max)
{
    unsigned bits = 0;
    for (; max; max >>= 1)
        bits++;
    return bits;
}

/* Flat: all are there. */
static int check_flat(struct builder *b, struct slice def, uint64_t n, struct mr_error *err)
{
    struct mr_pq_runs r = {.at = def.p, .end = def.p + def.len, .width = level_bits(b->t->max_def)};
    for (uint64_t done = 0; done < n;) {
        uint32_t v;
        uint64_t k;
        if (!mr_pq_runs_equal(&r, n - done, &v, &k))
            return damaged("levels", err);
        if (v != b->t->max_def)
            return null_found(b->rows + done, "the value", err);
        done += k;
    }
    return 0;
}

/* k entries of equal levels: items of the open row, or k rows that begin. `items` counts the values before. */
static int add_level_run(struct builder *b, uint32_t rep, uint32_t def, uint64_t k, uint64_t *items,
                         struct mr_error *err)
{
    const struct mr_pq_type *t = b->t;
    uint64_t first = (b->at - b->from) / b->each;
    if (rep > 1 || def > t->max_def || (rep == 1 && !b->open))
        return damaged("levels", err);
    if (def < t->max_def && def >= t->list_def)
        return null_found(b->rows - b->open, "an item", err);
    if (def + 1u < t->list_def)
        return null_found(rep ? b->rows - 1 : b->rows, "the list", err);
    if (rep == 1) {
        if (def != t->max_def)
            return damaged("levels", err);
        *items += k;
        b->end[b->rows - 1] = (first + *items) * b->each;
        return 0;
    }
    b->open = true;
    for (uint64_t i = 0; i < k; i++) {
        *items += def == t->max_def;
        b->end[b->rows++] = (first + *items) * b->each;
    }
    return 0;
}

/* Lists: rows and how many values there are. */
static int add_lists(struct builder *b, struct slice rep, struct slice def, uint64_t n, uint64_t *items,
                     struct mr_error *err)
{
    struct mr_pq_runs r = {.at = rep.p, .end = rep.p + rep.len, .width = level_bits(b->t->max_rep)};
    struct mr_pq_runs d = {.at = def.p, .end = def.p + def.len, .width = level_bits(b->t->max_def)};
    uint64_t nr = 0, nd = 0;
    uint32_t vr = 0, vd = 0;
    *items = 0;
    while (n) {
        if ((!nr && !mr_pq_runs_equal(&r, n, &vr, &nr)) || (!nd && !mr_pq_runs_equal(&d, n, &vd, &nd)))
            return damaged("levels", err);
        uint64_t k = MR_MIN(nr, nd);
        int rc = add_level_run(b, vr, vd, k, items, err);
        if (rc)
            return rc;
        nr -= k;
        nd -= k;
        n -= k;
    }
    return 0;
}

/* ---- pages ---- */

struct page_parts {
    struct slice rep, def, values;
};

/* v1: levels stand before the values, each behind its length, and are compressed with them. */
static bool take_level(struct slice *from, unsigned max, struct slice *out)
{
    if (max == 0)
        return true;
    if (from->len < 4 || mr_load_le32(from->p) > from->len - 4)
        return false;
    *out = (struct slice){from->p + 4, mr_load_le32(from->p)};
    from->p += 4 + out->len;
    from->len -= 4 + out->len;
    return true;
}

static int split_v1(struct builder *b, const struct mr_pq_page *page, const uint8_t *body, struct page_parts *out,
                    struct mr_error *err)
{
    if ((b->t->max_def && page->def_encoding != MR_PQ_RLE) || (b->t->max_rep && page->rep_encoding != MR_PQ_RLE))
        return mr_error_plain(err, MR_E_UNSUPPORTED, "levels of the deprecated encoding BIT_PACKED are not read");
    int rc = unpack_page(b, body, page->bytes, page->unpacked_bytes, &out->values.p, err);
    out->values.len = page->unpacked_bytes;
    if (rc)
        return rc;
    return take_level(&out->values, b->t->max_rep, &out->rep) && take_level(&out->values, b->t->max_def, &out->def)
               ? 0
               : damaged("levels", err);
}

/* v2: levels are not compressed, and the header has their lengths. */
static int split_v2(struct builder *b, const struct mr_pq_page *page, const uint8_t *body, struct page_parts *out,
                    struct mr_error *err)
{
    uint64_t levels = (uint64_t)page->rep_bytes + page->def_bytes;
    if (levels > page->bytes || levels > page->unpacked_bytes)
        return damaged("levels", err);
    out->rep = (struct slice){body, page->rep_bytes};
    out->def = (struct slice){body + page->rep_bytes, page->def_bytes};
    out->values.len = page->unpacked_bytes - levels;
    if (!page->is_compressed) {
        out->values.p = body + levels;
        return page->bytes == page->unpacked_bytes ? 0 : damaged("lengths", err);
    }
    return unpack_page(b, body + levels, page->bytes - levels, out->values.len, &out->values.p, err);
}

/* Nothing but values that are delivered as they are: unpacked to where they go. */
static bool goes_straight(const struct builder *b, const struct mr_pq_page *page)
{
    return b->each && b->each == b->physical && !b->t->max_def && !b->t->max_rep && page->encoding == MR_PQ_PLAIN &&
           page->type == MR_PQ_DATA_PAGE && b->t->codec != MR_PQ_UNCOMPRESSED &&
           page->unpacked_bytes == (uint64_t)page->values * b->each;
}

static int add_data_page(struct builder *b, const struct mr_pq_page *page, const uint8_t *body, struct mr_error *err)
{
    struct page_parts parts = {0};
    uint64_t n = page->values;
    if (goes_straight(b, page)) {
        int rc = n ? mr_pq_decompress(b->t->codec, body, page->bytes, b->unit + b->at, n * b->each, err) : 0;
        b->at += rc ? 0 : n * b->each;
        b->rows += n;
        return rc;
    }
    int rc =
        page->type == MR_PQ_DATA_PAGE ? split_v1(b, page, body, &parts, err) : split_v2(b, page, body, &parts, err);
    if (rc == 0 && b->here && b->at == MR_UNIT_HEAD) /* the first values stay; others follow them */
        b->at = b->from = (uint64_t)(parts.values.p - b->unit);
    if (rc == 0 && b->t->max_rep)
        rc = add_lists(b, parts.rep, parts.def, page->values, &n, err);
    else if (rc == 0 && b->t->max_def)
        rc = check_flat(b, parts.def, n, err);
    if (rc == 0)
        rc = put_values(b, page->encoding, parts.values.p, parts.values.len, n, err);
    if (rc == 0 && b->each && !b->t->max_rep)
        b->rows += n;
    return rc;
}

static int split_words(struct builder *b, const uint8_t *p, uint64_t len, struct mr_error *err)
{
    b->word = calloc(MR_MAX(b->words, 1u), sizeof(*b->word));
    if (!b->word)
        return no_memory(b->words * sizeof(*b->word), err);
    for (uint64_t i = 0; i < b->words; i++) {
        if (len < 4 || mr_load_le32(p) > len - 4)
            return damaged("dictionary", err);
        b->word[i] = (struct slice){p + 4, mr_load_le32(p)};
        p += 4 + b->word[i].len;
        len -= 4 + b->word[i].len;
    }
    return 0;
}

static int read_dictionary(struct builder *b, const struct mr_pq_page *page, const uint8_t *body, struct mr_error *err)
{
    const uint8_t *p;
    if (b->has_dictionary)
        return mr_error_plain(err, MR_E_FORMAT, "a column chunk has two dictionaries");
    if (page->encoding != MR_PQ_PLAIN && page->encoding != MR_PQ_PLAIN_DICTIONARY)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "encoding %u of a dictionary is not read", page->encoding);
    int rc = unpack_page(b, body, page->bytes, page->unpacked_bytes, &p, err);
    if (rc)
        return rc;
    uint64_t len = page->unpacked_bytes;
    b->words = page->values;
    b->has_dictionary = true;
    if (p == b->scratch) { /* pages that follow need another one */
        b->dictionary_page = b->scratch;
        b->scratch = NULL;
        b->scratch_cap = 0;
    }
    if (!b->each)
        return b->words > len / 4 ? damaged("dictionary", err) : split_words(b, p, len, err);
    if (b->t->physical == MR_PQ_BOOLEAN || !b->physical || b->words > len / b->physical)
        return damaged("dictionary", err);
    b->dictionary = malloc(b->words * b->each + SLACK);
    if (!b->dictionary)
        return no_memory(b->words * b->each, err);
    mr_pq_narrow(p, b->words, b->physical, b->each, b->dictionary);
    return 0;
}

static int check_crc(const struct mr_pq_page *page, const uint8_t *body, struct mr_error *err)
{
    uint32_t have = page->has_crc ? libdeflate_crc32(0, body, page->bytes) : 0;
    if (!page->has_crc || have == page->crc)
        return 0;
    return mr_error_plain(err, MR_E_CORRUPT, "a page has the wrong checksum (want %08x, have %08x)", page->crc, have);
}

static bool is_data(const struct mr_pq_page *p)
{
    return p->type == MR_PQ_DATA_PAGE || p->type == MR_PQ_DATA_PAGE_V2;
}

/* First pass: counts values and reads the dictionary. */
static int look_at_pages(struct builder *b, const uint8_t *raw, size_t len, struct mr_error *err)
{
    struct mr_pq_page page;
    for (size_t at = 0; at < len; at += page.header_bytes + page.bytes) {
        int rc = mr_pq_page_parse(raw + at, len - at, len - at, &page, err);
        const uint8_t *body = raw + at + (rc ? 0 : page.header_bytes);
        if (rc == 0 && is_data(&page))
            b->values += page.values;
        else if (rc == 0 && page.type == MR_PQ_DICTIONARY_PAGE && (rc = check_crc(&page, body, err)) == 0)
            rc = read_dictionary(b, &page, body, err);
        if (rc)
            return mr_error_context(err, "in the page at byte %zu of the unit", at), rc;
    }
    return 0;
}

static int decode_pages(struct builder *b, const uint8_t *raw, size_t len, struct mr_error *err)
{
    struct mr_pq_page page;
    for (size_t at = 0; at < len; at += page.header_bytes + page.bytes) {
        int rc = mr_pq_page_parse(raw + at, len - at, len - at, &page, err);
        const uint8_t *body = raw + at + (rc ? 0 : page.header_bytes);
        if (rc == 0 && is_data(&page) && (rc = check_crc(&page, body, err)) == 0)
            rc = add_data_page(b, &page, body, err);
        if (rc)
            return mr_error_context(err, "in the page at byte %zu of the unit", at), rc;
    }
    return 0;
}

static int reserve_ends(struct builder *b, struct mr_error *err)
{
    if (b->values > mr_pq_unit_limit / sizeof(*b->end))
        return mr_error_plain(err, MR_E_LIMIT, "a unit of %llu rows is over the limit", (ull)b->values);
    b->end = malloc((b->values + 1) * sizeof(*b->end));
    return b->end ? 0 : no_memory(b->values * sizeof(*b->end), err);
}

static int reserve(struct builder *b, struct mr_error *err)
{
    uint64_t bytes = 0;
    b->at = b->from = sizeof(struct mr_pq_unit);
    if (!mr_mul_ok(b->values, b->each, &bytes))
        bytes = UINT64_MAX / 2;
    int rc = grow(b, bytes, err);
    return rc || !b->ragged ? rc : reserve_ends(b, err);
}

/* Are all rows as long as the first one? */
static uint64_t common_length(const struct builder *b)
{
    uint64_t each = b->rows ? b->end[0] : 0;
    for (uint64_t i = 1; i < b->rows; i++)
        if (b->end[i] != (i + 1) * each)
            return 0;
    return each;
}

static int finish(struct builder *b, size_t *out_len, struct mr_error *err)
{
    struct mr_pq_unit u = {.rows = b->rows, .each = b->each, .data_at = b->from, .data_bytes = b->at - b->from};
    if (b->ragged)
        u.each = common_length(b);
    if (b->ragged && !u.each) {
        u.is_ragged = 1;
        u.ends_at = MR_ALIGN_UP(b->at, 8);
        b->at = u.ends_at;
        int rc = grow(b, b->rows * sizeof(*b->end), err);
        if (rc)
            return rc;
        memcpy(b->unit + b->at, b->end, b->rows * sizeof(*b->end));
        b->at += b->rows * sizeof(*b->end);
    }
    assert(b->unit && b->from >= sizeof u); /* its header was there first */
    memcpy(b->unit, &u, sizeof u);
    *out_len = b->at;
    return 0;
}

static void builder_done(struct builder *b)
{
    free(b->end);
    free(b->scratch);
    free(b->dictionary);
    free(b->dictionary_page);
    free(b->word);
}

static struct builder builder_of(const struct mr_pq_type *t, const struct mr_unit_memory *m)
{
    struct builder b = {.t = t,
                        .physical = mr_pq_physical_bytes(t),
                        .each = mr_pq_value_bytes(t),
                        .unit = m->data,
                        .cap = m->data ? m->cap : 0};
    b.ragged = t->max_rep || !b.each;
    return b;
}

int mr_pq_unit_decode(const struct mr_pq_type *t, const void *raw, size_t len, struct mr_unit_memory *m,
                      size_t *out_len, struct mr_error *err)
{
    struct builder b = builder_of(t, m);
    int rc = look_at_pages(&b, raw, len, err);
    if (rc == 0)
        rc = reserve(&b, err);
    if (rc == 0)
        rc = decode_pages(&b, raw, len, err);
    if (rc == 0)
        rc = finish(&b, out_len, err);
    *m = (struct mr_unit_memory){b.unit, b.cap};
    builder_done(&b);
    return rc;
}

/* ---- values that stay where they are ---- */

bool mr_pq_unit_may_stay(const struct mr_pq_type *t)
{
    unsigned each = mr_pq_value_bytes(t);
    return t->codec == MR_PQ_UNCOMPRESSED && each && each == mr_pq_physical_bytes(t) && t->physical != MR_PQ_BOOLEAN;
}

/* All pages hold plain values; counts them. */
static bool stays(struct builder *b, const uint8_t *raw, size_t len)
{
    struct mr_pq_page page;
    for (size_t at = 0; at < len; at += page.header_bytes + page.bytes) {
        if (mr_pq_page_parse(raw + at, len - at, len - at, &page, NULL) || !is_data(&page) ||
            page.encoding != MR_PQ_PLAIN)
            return false;
        b->values += page.values;
    }
    return true;
}

int mr_pq_unit_here(const struct mr_pq_type *t, struct mr_unit_memory *m, size_t len, size_t *out_len,
                    struct mr_error *err)
{
    struct builder b = builder_of(t, m);
    const uint8_t *raw = b.unit + MR_UNIT_HEAD;
    static_assert(MR_UNIT_HEAD >= sizeof(struct mr_pq_unit), "no room for the header of a unit");
    if (!mr_pq_unit_may_stay(t) || !stays(&b, raw, len))
        return 1;
    b.here = true;
    b.at = b.from = MR_UNIT_HEAD;
    int rc = b.ragged ? reserve_ends(&b, err) : 0;
    if (rc == 0)
        rc = decode_pages(&b, raw, len, err);
    if (rc == 0)
        rc = finish(&b, out_len, err);
    *m = (struct mr_unit_memory){b.unit, b.cap};
    builder_done(&b);
    return rc;
}

bool mr_pq_unit_row(const void *unit, size_t len, uint64_t row, const void **data, uint64_t *bytes)
{
    struct mr_pq_unit u;
    if (len < sizeof u)
        return false;
    memcpy(&u, unit, sizeof u);
    const uint8_t *values = (const uint8_t *)unit + u.data_at;
    if (row >= u.rows)
        return false;
    if (u.each) {
        *data = values + row * u.each;
        *bytes = u.each;
        return true;
    }
    const uint64_t *end = (const uint64_t *)(const void *)((const uint8_t *)unit + u.ends_at);
    uint64_t from = row ? end[row - 1] : 0;
    *data = values + from;
    *bytes = end[row] - from;
    return true;
}
