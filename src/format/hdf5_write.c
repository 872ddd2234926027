/* HDF5 metadata for writing; see hdf5_write.h. Addresses of the fixed parts:
 *      0  superblock                  96 bytes
 *     96  root group's object header  40
 *    136  its B-tree node            544
 *    680  its local heap              32 + 8 + names, each from a multiple of 8 on
 *  then  its symbol table node         8 + 40 for each of 2 * K entries
 *  then  dataset headers
 * Names are in alphabetical order, as the symbol table demands. */
#include "format/hdf5_write.h"
#include "format/hdf5_filter.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define AT_ROOT 96u
#define AT_TREE 136u
#define AT_HEAP 680u
#define AT_NAMES 712u
#define GROUP_LEAF_K 4u
#define GROUP_K 16u
#define HEADER_MAX 512u /* a dataset's */
#define CHUNK_K 32u     /* what readers assume for superblock 0 */

/* Appends one header message, padded to 8; returns the position after it. */
static uint8_t *message(uint8_t *p, unsigned type, unsigned flags, const uint8_t *body, size_t len)
{
    size_t padded = MR_ALIGN_UP(len, 8);
    mr_store_le16(p, (uint16_t)type);
    mr_store_le16(p + 2, (uint16_t)padded);
    p[4] = (uint8_t)flags;
    memcpy(p + 8, body, len);
    return p + 8 + padded;
}

/* A number type without its wrapper; returns the length. */
static size_t number_type(enum mr_dtype t, uint8_t b[20])
{
    static const uint8_t f16[] = {15, 10, 5, 10, 15, 0}, f32[] = {31, 23, 8, 23, 127, 0},
                         f64[] = {63, 52, 11, 52, 0xff, 3}, bf16[] = {15, 7, 8, 7, 127, 0};
    const uint8_t *f = t == MR_F16                   ? f16
                       : t == MR_F32 || t == MR_C64  ? f32
                       : t == MR_F64 || t == MR_C128 ? f64
                       : t == MR_BF16                ? bf16
                                                     : NULL;
    unsigned size = mr_dtype_swap_unit(t);
    memset(b, 0, 20);
    mr_store_le32(b + 4, size);
    mr_store_le16(b + 10, (uint16_t)(8 * size));
    if (!f) {
        bool is_signed = t == MR_I8 || t == MR_I16 || t == MR_I32 || t == MR_I64 || t == MR_BOOL;
        b[0] = 0x10;
        b[1] = is_signed ? 8 : 0;
        return 12;
    }
    b[0] = 0x11;
    b[1] = 0x20; /* the leading 1 of the mantissa is implied */
    b[2] = f[0];
    b[12] = f[1];
    b[13] = f[2];
    b[15] = f[3];
    b[16] = f[4];
    b[17] = f[5];
    return 20;
}

/* The datatype message: numbers as they are, booleans and complex numbers as h5py writes them. */
static size_t datatype(enum mr_dtype t, uint8_t b[128])
{
    memset(b, 0, 128);
    if (t == MR_BOOL) {
        b[0] = 0x18;
        b[1] = 2;
        mr_store_le32(b + 4, 1);
        size_t at = 8 + number_type(MR_I8, b + 8);
        memcpy(b + at, "FALSE\0\0\0TRUE\0\0\0\0\0\1", 18);
        return at + 18;
    }
    if (t != MR_C64 && t != MR_C128)
        return number_type(t, b);
    b[0] = 0x16;
    b[1] = 2;
    mr_store_le32(b + 4, mr_dtype_bytes(t));
    size_t at = 8;
    for (unsigned i = 0; i < 2; i++) {
        b[at] = i ? 'i' : 'r';
        mr_store_le32(b + at + 8, i * mr_dtype_bytes(t) / 2);
        at += 40;
        at += number_type(t, b + at);
    }
    return at;
}

static size_t layout_body(const struct mr_h5_dataset *d, uint8_t *b)
{
    b[0] = 3;
    b[1] = (uint8_t)d->storage;
    if (d->storage == MR_H5_CONTIGUOUS) {
        mr_store_le64(b + 2, d->bytes ? d->addr : MR_H5_UNDEF);
        mr_store_le64(b + 10, d->bytes);
        return 18;
    }
    b[2] = (uint8_t)(d->n + 1);
    mr_store_le64(b + 3, d->addr);
    for (unsigned i = 0; i < d->n; i++)
        mr_store_le32(b + 11 + 4 * i, (uint32_t)d->chunk[i]);
    mr_store_le32(b + 11 + 4 * d->n, mr_dtype_bytes(d->dtype));
    return 11 + 4 * (size_t)(d->n + 1);
}

/* The object header of a dataset at p; returns the position after it. */
static uint8_t *dataset_header(uint8_t *p, const struct mr_h5_dataset *d)
{
    uint8_t b[160] = {1, (uint8_t)d->n};
    uint8_t *head = p;
    unsigned messages = 4;
    p += 16;
    for (unsigned i = 0; i < d->n; i++)
        mr_store_le64(b + 8 + 8 * i, d->dim[i]);
    p = message(p, MR_H5_DATASPACE, 0, b, 8 + 8 * (size_t)d->n);
    p = message(p, MR_H5_DATATYPE, 1, b, datatype(d->dtype, b));
    bool chunked = d->storage == MR_H5_CHUNKED;
    const uint8_t fill[8] = {2, chunked ? 3 : 1, 2,
                             1}; /* allocated step by step or at once; written if set; default value */
    p = message(p, MR_H5_FILL, 1, fill, sizeof fill);
    memset(b, 0, sizeof b);
    p = message(p, MR_H5_LAYOUT, 0, b, layout_body(d, b));
    if (d->filters) {
        uint8_t f[32] = {1, 1, [8] = MR_H5_DEFLATE, [10] = 8, [12] = 1, [14] = 1};
        memcpy(f + 16, "deflate", 7);
        mr_store_le32(f + 24, d->filter[0].value);
        p = message(p, MR_H5_PIPELINE, 1, f, sizeof f);
        messages++;
    }
    head[0] = 1;
    mr_store_le16(head + 2, (uint16_t)messages);
    mr_store_le32(head + 4, 1); /* links to it */
    mr_store_le32(head + 8, (uint32_t)(p - head - 16));
    return p;
}

static void superblock(uint8_t *b, unsigned leaf_k, uint64_t file_bytes)
{
    static const uint8_t magic[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    memcpy(b, magic, sizeof magic);
    b[13] = 8;
    b[14] = 8;
    mr_store_le16(b + 16, (uint16_t)leaf_k);
    mr_store_le16(b + 18, GROUP_K);
    mr_store_le64(b + 32, MR_H5_UNDEF);
    mr_store_le64(b + 40, file_bytes);
    mr_store_le64(b + 48, MR_H5_UNDEF);
    mr_store_le64(b + 64, AT_ROOT);
    mr_store_le32(b + 72, 1); /* the entry caches where tree and heap are */
    mr_store_le64(b + 80, AT_TREE);
    mr_store_le64(b + 88, AT_HEAP);
}

static size_t name_bytes(const char *name)
{
    return MR_ALIGN_UP(strlen(name) + 1, (size_t)8);
}

static unsigned leaf_k(unsigned n)
{
    return MR_MAX(GROUP_LEAF_K, (n + 1) / 2);
}

/* What parts take that depend on the datasets' names and number. */
static size_t heap_bytes(const struct mr_h5_member *m, unsigned n)
{
    size_t bytes = 8;
    for (unsigned i = 0; i < n; i++)
        bytes += name_bytes(m[i].name);
    return bytes;
}

uint64_t mr_h5_metadata_bytes(const struct mr_h5_member *m, unsigned n)
{
    uint64_t bytes = AT_NAMES + heap_bytes(m, n) + 8 + 80ull * leaf_k(n) + (uint64_t)n * HEADER_MAX;
    return MR_ALIGN_UP(bytes, (uint64_t)MR_H5_META_BYTES);
}

static void group(uint8_t *out, size_t heap, uint64_t last_name)
{
    uint8_t table[16], *tree = out + AT_TREE;
    out[AT_ROOT] = 1;
    out[AT_ROOT + 2] = 1;
    mr_store_le32(out + AT_ROOT + 4, 1);
    mr_store_le32(out + AT_ROOT + 8, 24);
    mr_store_le64(table, AT_TREE);
    mr_store_le64(table + 8, AT_HEAP);
    message(out + AT_ROOT + 16, MR_H5_SYMBOL_TABLE, 0, table, sizeof table);
    memcpy(tree, "TREE", 4);
    mr_store_le16(tree + 6, 1);
    mr_store_le64(tree + 8, MR_H5_UNDEF);
    mr_store_le64(tree + 16, MR_H5_UNDEF);
    mr_store_le64(tree + 32, AT_NAMES + heap);
    mr_store_le64(tree + 40, last_name);
    memcpy(out + AT_HEAP, "HEAP", 4);
    mr_store_le64(out + AT_HEAP + 8, heap);
    mr_store_le64(out + AT_HEAP + 16, 1); /* no free block */
    mr_store_le64(out + AT_HEAP + 24, AT_NAMES);
}

void mr_h5_metadata(const struct mr_h5_member *m, unsigned n, uint64_t file_bytes, uint8_t *out, size_t bytes)
{
    size_t heap = heap_bytes(m, n), name = 8, last = 0;
    memset(out, 0, bytes);
    superblock(out, leaf_k(n), file_bytes);
    uint8_t *symbols = out + AT_NAMES + heap, *entry = symbols + 8, *p = entry + 80ull * leaf_k(n);
    unsigned present = 0;
    for (unsigned i = 0; i < n; i++) {
        memcpy(out + AT_NAMES + name, m[i].name, strlen(m[i].name));
        if (m[i].dataset) {
            mr_store_le64(entry, name);
            mr_store_le64(entry + 8, (uint64_t)(p - out));
            p = dataset_header(p, m[i].dataset);
            entry += 40;
            last = name;
            present++;
        }
        name += name_bytes(m[i].name);
    }
    assert(p <= out + bytes);
    group(out, heap, last);
    memcpy(symbols, "SNOD", 4);
    symbols[4] = 1;
    mr_store_le16(symbols + 6, (uint16_t)present);
}

/* ---- chunk B-tree ---- */

struct tree_writer {
    struct mr_array_output *o;
    const struct mr_h5_dataset *d;
    const struct mr_h5_chunk *map;
    uint64_t count;
    uint64_t along[MR_H5_AXES];
    size_t key_bytes, node_bytes;
    uint8_t *node;
};

/* The key of chunk `number`: its size and offsets; past the last chunk: a key greater than all. */
static void put_key(const struct tree_writer *t, uint64_t number, uint8_t *p)
{
    bool past = number >= t->count;
    uint64_t rest = past ? t->count - 1 : number;
    unsigned n = t->d->n;
    memset(p, 0, t->key_bytes);
    if (!past)
        mr_store_le32(p, t->map[number].bytes);
    for (unsigned i = n; i-- > 0;) {
        uint64_t scaled = rest % t->along[i] + past;
        rest /= t->along[i];
        mr_store_le64(p + 8 + 8 * i, scaled * t->d->chunk[i]);
    }
    mr_store_le64(p + 8 + 8 * n, past ? mr_dtype_bytes(t->d->dtype) : 0);
}

/* Writes one level whose children are `children`; child i begins with chunk number i * span. For leaves the children
 * are the chunks themselves; above, nodes that follow each other from `child_base` on. */
static int write_level(struct tree_writer *t, unsigned level, uint64_t children, uint64_t span, uint64_t child_base,
                       uint64_t *base, struct mr_error *err)
{
    const unsigned fan = 2 * CHUNK_K;
    uint64_t nodes = (children + fan - 1) / fan;
    *base = mr_array_output_pos(t->o);
    for (uint64_t i = 0; i < nodes; i++) {
        uint8_t *b = t->node;
        uint64_t first = i * fan, n = MR_MIN(fan, children - first), here = *base + i * t->node_bytes;
        memset(b, 0, t->node_bytes);
        memcpy(b, "TREE", 4);
        b[4] = 1;
        b[5] = (uint8_t)level;
        mr_store_le16(b + 6, (uint16_t)n);
        mr_store_le64(b + 8, i ? here - t->node_bytes : MR_H5_UNDEF);
        mr_store_le64(b + 16, i + 1 < nodes ? here + t->node_bytes : MR_H5_UNDEF);
        uint8_t *p = b + 24;
        for (uint64_t k = 0; k < n; k++) {
            put_key(t, (first + k) * span, p);
            p += t->key_bytes;
            mr_store_le64(p, level ? child_base + (first + k) * t->node_bytes : t->map[first + k].addr);
            p += 8;
        }
        put_key(t, first + n < children ? (first + n) * span : t->count, p);
        int rc = mr_array_output_add(t->o, b, t->node_bytes, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int mr_h5_write_btree(struct mr_array_output *o, const struct mr_h5_dataset *d, const struct mr_h5_chunk *map,
                      uint64_t count, uint64_t *root, struct mr_error *err)
{
    struct tree_writer t = {.o = o, .d = d, .map = map, .count = count};
    if (count == 0) {
        *root = MR_H5_UNDEF;
        return 0;
    }
    for (unsigned i = 0; i < d->n; i++)
        t.along[i] = d->dim[i] / d->chunk[i] + (d->dim[i] % d->chunk[i] != 0);
    t.key_bytes = 8 + 8 * (size_t)(d->n + 1);
    t.node_bytes = 24 + 2 * CHUNK_K * 8 + (2 * CHUNK_K + 1) * t.key_bytes;
    t.node = malloc(t.node_bytes);
    if (!t.node)
        return mr_error_set(err, -ENOMEM, "cannot write a chunk index");
    uint64_t children = count, span = 1, base = 0;
    int rc = 0;
    for (unsigned level = 0; rc == 0; level++) {
        uint64_t below = base;
        rc = write_level(&t, level, children, span, below, &base, err);
        children = (children + 2 * CHUNK_K - 1) / (2 * CHUNK_K);
        span *= 2 * CHUNK_K;
        if (children == 1)
            break;
    }
    free(t.node);
    if (rc == 0)
        *root = base;
    return rc;
}
