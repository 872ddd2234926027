/* HDF5: the chunk map of a dataset, from any of the six indexes the format has: version 1 B-tree (everything written
 * for old readers), single chunk, implicit, fixed array, extensible array and version 2 B-tree (libver='latest'). Each
 * node is read once, so the time is linear in the number of chunks; the library's own queries in version 1.10 are
 * quadratic.
 *
 * Chunks are collected into one array in row-major order of the chunk grid. A chunk that appears twice, lies outside
 * the file or has an impossible size is an error. See hdf5_file.h. */
#include "format/hdf5_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNKS_MAX ((uint64_t)1 << 28)

struct collect {
    struct mr_h5_file *f;
    const struct mr_h5_dataset *d;
    uint64_t along[MR_H5_AXES];
    struct mr_h5_chunk *map;
    uint64_t count;
    unsigned size_len; /* of a filtered chunk's size in the newer indexes */
};

static unsigned log2_floor(uint64_t v)
{
    return v ? 63u - (unsigned)__builtin_clzll(v) : 0;
}

/* Bytes needed for values up to `limit`. */
static unsigned enc_size(uint64_t limit)
{
    return log2_floor(limit) / 8 + 1;
}

static int put_chunk(struct collect *c, const uint64_t *scaled, uint64_t addr, uint64_t bytes, uint32_t mask,
                     struct mr_error *err)
{
    uint64_t index = 0;
    for (unsigned i = 0; i < c->d->n; i++) {
        if (scaled[i] >= c->along[i])
            return 0; /* beyond the current size: left over from a larger one */
        index = index * c->along[i] + scaled[i];
    }
    if (addr == MR_H5_UNDEF)
        return 0;
    if (bytes == 0 || bytes > UINT32_MAX || !mr_h5_inside(c->f, addr, bytes) ||
        (c->d->filters == 0 && bytes != c->d->chunk_bytes))
        return mr_error_plain(err, MR_E_FORMAT, "chunk %llu does not fit (want %llu bytes at %llu, file has %llu)",
                              (unsigned long long)index, (unsigned long long)bytes, (unsigned long long)addr,
                              (unsigned long long)c->f->size);
    struct mr_h5_chunk *m = &c->map[index];
    if (m->addr != MR_H5_UNDEF)
        return mr_error_plain(err, MR_E_FORMAT, "chunk %llu appears twice in the index (at %llu and %llu)",
                              (unsigned long long)index, (unsigned long long)m->addr, (unsigned long long)addr);
    *m = (struct mr_h5_chunk){.addr = addr, .bytes = (uint32_t)bytes, .mask = mask};
    return 0;
}

/* ---- version 1 B-tree (III.A.1) ---- */

static int btree1(struct collect *c, uint64_t addr, int level, struct mr_error *err)
{
    unsigned ob = c->f->offset_bytes, n = c->d->n;
    uint8_t head[8 + 16];
    int rc = mr_h5_read(c->f, addr, head, 8 + 2u * ob, "chunk B-tree node", err);
    if (rc < 0)
        return rc;
    if (memcmp(head, "TREE", 4) != 0 || head[4] != 1 || (level >= 0 && head[5] != level))
        return mr_error_plain(err, MR_E_FORMAT, "no chunk B-tree node of the right level at %llu",
                              (unsigned long long)addr);
    size_t key = 8 + 8 * (size_t)(n + 1), pair = key + ob, entries = mr_load_le16(head + 6);
    uint8_t *b = malloc(entries * pair + 1);
    if (!b)
        return mr_error_set(err, -ENOMEM, "cannot read a B-tree node");
    rc = mr_h5_read(c->f, addr + 8 + 2u * ob, b, entries * pair, "chunk B-tree node", err);
    for (size_t i = 0; i < entries && rc >= 0; i++) {
        const uint8_t *e = b + i * pair;
        uint64_t child = mr_h5_address(c->f, e + key), scaled[MR_H5_AXES];
        if (head[5] > 0) {
            rc = btree1(c, child, head[5] - 1, err);
            continue;
        }
        for (unsigned k = 0; k < n && rc >= 0; k++) {
            uint64_t at = mr_load_le64(e + 8 + 8 * k);
            scaled[k] = at / c->d->chunk[k];
            if (at % c->d->chunk[k])
                rc = mr_error_plain(
                    err, MR_E_FORMAT, "chunk offset %llu on axis %u is not a multiple of %llu (B-tree node at %llu)",
                    (unsigned long long)at, k, (unsigned long long)c->d->chunk[k], (unsigned long long)addr);
        }
        if (rc >= 0)
            rc = put_chunk(c, scaled, child, mr_load_le32(e), mr_load_le32(e + 4), err);
    }
    free(b);
    return rc;
}

/* ---- arrays of chunk addresses ---- */

/* The element number of arrays counts chunks in row-major order of the grid at its maximum size; the one unlimited axis
 * of an extensible array, whose size has no maximum, comes first. */
struct numbering {
    unsigned axis[MR_H5_AXES]; /* slowest first */
    uint64_t per[MR_H5_AXES];  /* chunks along it; the first is not needed */
};

static int number_axes(const struct mr_h5_dataset *d, struct numbering *out, struct mr_error *err)
{
    unsigned n = 0, unlimited = 0;
    *out = (struct numbering){0};
    for (unsigned i = 0; i < d->n; i++)
        if (d->max_dim[i] == UINT64_MAX) {
            unlimited++;
            out->axis[n++] = i;
        }
    if (unlimited > 1 || (unlimited == 0 && d->index == MR_H5_EXTENSIBLE) ||
        (unlimited == 1 && d->index != MR_H5_EXTENSIBLE))
        return mr_error_plain(err, MR_E_FORMAT, "chunk index %d does not fit %u unlimited axes", d->index, unlimited);
    for (unsigned i = 0; i < d->n; i++)
        if (d->max_dim[i] != UINT64_MAX)
            out->axis[n++] = i;
    for (unsigned i = 0; i < n; i++) {
        unsigned a = out->axis[i];
        out->per[i] =
            d->max_dim[a] == UINT64_MAX ? UINT64_MAX : d->max_dim[a] / d->chunk[a] + (d->max_dim[a] % d->chunk[a] != 0);
        if (out->per[i] == 0)
            out->per[i] = 1;
    }
    return 0;
}

static void number_to_scaled(const struct mr_h5_dataset *d, const struct numbering *num, uint64_t number,
                             uint64_t *scaled)
{
    for (unsigned i = d->n; i-- > 1;) {
        scaled[num->axis[i]] = number % num->per[i];
        number /= num->per[i];
    }
    scaled[num->axis[0]] = number;
}

/* A run of array elements (addresses, or addresses with size and mask), the first of which is number `first`. */
static int put_elements(struct collect *c, const struct numbering *num, const uint8_t *b, uint64_t n, uint64_t first,
                        struct mr_error *err)
{
    unsigned ob = c->f->offset_bytes;
    size_t size = c->d->filters ? ob + c->size_len + 4 : ob;
    for (uint64_t i = 0; i < n; i++, b += size) {
        uint64_t scaled[MR_H5_AXES] = {0}, bytes = c->d->chunk_bytes;
        uint32_t mask = 0;
        if (c->d->filters) {
            bytes = mr_h5_uint(b + ob, c->size_len);
            mask = mr_load_le32(b + ob + c->size_len);
        }
        number_to_scaled(c->d, num, first + i, scaled);
        int rc = put_chunk(c, scaled, mr_h5_address(c->f, b), bytes, mask, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Reads `n` elements and their checksum at `addr`, behind `prefix` bytes that the checksum covers too, and puts them.
 */
static int read_elements(struct collect *c, const struct numbering *num, uint64_t addr, size_t prefix, uint64_t n,
                         uint64_t first, const char *what, struct mr_error *err)
{
    size_t size = c->d->filters ? c->f->offset_bytes + c->size_len + 4 : c->f->offset_bytes;
    uint64_t len;
    if (!mr_mul_ok(n, size, &len) || !mr_add_ok(len, prefix + 4, &len) || !mr_h5_inside(c->f, addr, len))
        return mr_error_plain(err, MR_E_FORMAT, "%s at %llu lies outside the file (%llu elements)", what,
                              (unsigned long long)addr, (unsigned long long)n);
    uint8_t *b = malloc(len);
    if (!b)
        return mr_error_set(err, -ENOMEM, "cannot read %llu bytes of chunk index", (unsigned long long)len);
    int rc = mr_h5_read(c->f, addr, b, len, what, err);
    if (rc == 0)
        rc = mr_h5_check(b, len, what, addr, err);
    if (rc == 0)
        rc = put_elements(c, num, b + prefix, n, first, err);
    free(b);
    return rc;
}

/* Elements in pages of 2^page_bits, each with a checksum; pages whose bit is clear were never written. `bits` may be
 * NULL: all pages are there. */
static int read_pages(struct collect *c, const struct numbering *num, uint64_t addr, uint64_t n, uint64_t first,
                      unsigned page_bits, const uint8_t *bits, const char *what, struct mr_error *err)
{
    uint64_t per = (uint64_t)1 << page_bits;
    size_t size = c->d->filters ? c->f->offset_bytes + c->size_len + 4 : c->f->offset_bytes;
    for (uint64_t page = 0, at = 0; at < n; page++, at += per) {
        uint64_t count = MR_MIN(per, n - at);
        int rc = 0;
        if (!bits || (bits[page / 8] & (0x80 >> (page % 8))))
            rc = read_elements(c, num, addr, 0, count, first + at, what, err);
        if (rc < 0)
            return rc;
        addr += count * size + 4;
    }
    return 0;
}

/* ---- fixed array (VII.C) ---- */

static int fixed_array(struct collect *c, struct mr_error *err)
{
    unsigned ob = c->f->offset_bytes, lb = c->f->length_bytes;
    uint8_t b[8 + 8 + 8 + 4];
    size_t len = 8u + lb + ob + 4;
    struct numbering num;
    int rc;
    if ((rc = number_axes(c->d, &num, err)) < 0 || (rc = mr_h5_read(c->f, c->d->addr, b, len, "fixed array", err)) < 0)
        return rc;
    size_t elem = c->d->filters ? ob + c->size_len + 4 : ob;
    if (memcmp(b, "FAHD", 4) != 0 || b[4] != 0 || b[5] != (c->d->filters ? 1 : 0) || b[6] != elem || b[7] > 30)
        return mr_error_plain(err, MR_E_FORMAT, "bad fixed array at %llu (elements of %u bytes, want %zu)",
                              (unsigned long long)c->d->addr, b[6], elem);
    if ((rc = mr_h5_check(b, len, "a fixed array", c->d->addr, err)) < 0)
        return rc;
    unsigned page_bits = b[7];
    uint64_t n = mr_h5_uint(b + 8, lb), block = mr_h5_address(c->f, b + 8 + lb);
    if (block == MR_H5_UNDEF)
        return 0;
    if (n > CHUNKS_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "fixed array of %llu chunks (limit %llu)", (unsigned long long)n,
                              (unsigned long long)CHUNKS_MAX);
    size_t prefix = 6 + ob;
    if (n <= (uint64_t)1 << page_bits)
        return read_elements(c, &num, block, prefix, n, 0, "fixed array block", err);
    uint64_t pages = (n + ((uint64_t)1 << page_bits) - 1) >> page_bits;
    size_t bits_len = (size_t)(pages + 7) / 8;
    if (!mr_h5_inside(c->f, block, prefix + bits_len + 4))
        return mr_error_plain(err, MR_E_FORMAT, "fixed array block at %llu lies outside the file",
                              (unsigned long long)block);
    uint8_t *bits = malloc(prefix + bits_len + 4);
    if (!bits)
        return mr_error_set(err, -ENOMEM, "cannot read a chunk index");
    rc = mr_h5_read(c->f, block, bits, prefix + bits_len + 4, "fixed array block", err);
    if (rc == 0)
        rc = mr_h5_check(bits, prefix + bits_len + 4, "a fixed array block", block, err);
    if (rc == 0)
        rc =
            read_pages(c, &num, block + prefix + bits_len + 4, n, 0, page_bits, bits + prefix, "fixed array page", err);
    free(bits);
    return rc;
}

/* ---- extensible array (VII.D) ---- */

struct earray {
    struct collect *c;
    struct numbering num;
    unsigned max_bits, index_elems, min_elems, min_ptrs, page_bits, offset_len;
    uint64_t max_set; /* elements that were ever set: nothing lies beyond */
};

static int ea_data_block(struct earray *a, uint64_t addr, uint64_t n, uint64_t first, const uint8_t *page_init,
                         struct mr_error *err)
{
    size_t prefix = 6u + a->c->f->offset_bytes + a->offset_len;
    if (addr == MR_H5_UNDEF)
        return 0;
    if (n > (uint64_t)1 << a->page_bits)
        return read_pages(a->c, &a->num, addr + prefix + 4, n, first, a->page_bits, page_init, "extensible array page",
                          err);
    return read_elements(a->c, &a->num, addr, prefix, n, first, "extensible array block", err);
}

/* Super block u: 2^(u/2) data blocks of 2^((u+1)/2) * min elements. */
static int ea_super_block(struct earray *a, unsigned u, uint64_t addr, uint64_t first, struct mr_error *err)
{
    unsigned ob = a->c->f->offset_bytes;
    uint64_t blocks = (uint64_t)1 << (u / 2), per = ((uint64_t)1 << ((u + 1) / 2)) * a->min_elems;
    uint64_t pages = per > (uint64_t)1 << a->page_bits ? per >> a->page_bits : 0;
    uint64_t init_len = (pages + 7) / 8, prefix = 6u + ob + a->offset_len,
             len = prefix + blocks * init_len + blocks * ob + 4;
    if (addr == MR_H5_UNDEF)
        return 0;
    if (!mr_h5_inside(a->c->f, addr, len))
        return mr_error_plain(err, MR_E_FORMAT, "extensible array super block at %llu lies outside the file",
                              (unsigned long long)addr);
    uint8_t *b = malloc(len);
    if (!b)
        return mr_error_set(err, -ENOMEM, "cannot read a chunk index");
    int rc = mr_h5_read(a->c->f, addr, b, len, "extensible array super block", err);
    if (rc == 0 && memcmp(b, "EASB", 4) != 0)
        rc = mr_error_plain(err, MR_E_FORMAT, "no extensible array super block at %llu", (unsigned long long)addr);
    if (rc == 0)
        rc = mr_h5_check(b, len, "an extensible array super block", addr, err);
    for (uint64_t i = 0; i < blocks && rc == 0 && first + i * per < a->max_set; i++)
        rc = ea_data_block(a, mr_h5_address(a->c->f, b + prefix + blocks * init_len + i * ob), per, first + i * per,
                           init_len ? b + prefix + i * init_len : NULL, err);
    free(b);
    return rc;
}

/* The index block: the first elements, then addresses of data blocks, then of super blocks. */
static int ea_index_block(struct earray *a, uint64_t addr, struct mr_error *err)
{
    struct collect *c = a->c;
    unsigned ob = c->f->offset_bytes, supers = 1 + a->max_bits - log2_floor(a->min_elems);
    unsigned direct = 2 * (a->min_ptrs - 1), skipped = 2 * log2_floor(a->min_ptrs);
    size_t elem = c->d->filters ? ob + c->size_len + 4 : ob, prefix = 6 + ob;
    unsigned super_ptrs = supers > skipped ? supers - skipped : 0;
    size_t len = prefix + a->index_elems * elem + (size_t)(direct + super_ptrs) * ob + 4;
    uint8_t *b = malloc(len);
    if (!b)
        return mr_error_set(err, -ENOMEM, "cannot read a chunk index");
    int rc = mr_h5_read(c->f, addr, b, len, "extensible array index block", err);
    if (rc == 0 && memcmp(b, "EAIB", 4) != 0)
        rc = mr_error_plain(err, MR_E_FORMAT, "no extensible array index block at %llu", (unsigned long long)addr);
    if (rc == 0)
        rc = mr_h5_check(b, len, "an extensible array index block", addr, err);
    if (rc == 0)
        rc = put_elements(c, &a->num, b + prefix, a->index_elems, 0, err);
    const uint8_t *ptr = b + prefix + a->index_elems * elem;
    uint64_t first = a->index_elems;
    unsigned used = 0;
    for (unsigned u = 0; u < supers && rc == 0 && first < a->max_set; u++) {
        uint64_t blocks = (uint64_t)1 << (u / 2), per = ((uint64_t)1 << ((u + 1) / 2)) * a->min_elems;
        if (u < skipped) {
            for (uint64_t i = 0; i < blocks && rc == 0 && used < direct; i++, used++)
                rc = ea_data_block(a, mr_h5_address(c->f, ptr + used * ob), per, first + i * per, NULL, err);
        } else {
            rc = ea_super_block(a, u, mr_h5_address(c->f, ptr + (direct + u - skipped) * (size_t)ob), first, err);
        }
        first += blocks * per;
    }
    free(b);
    return rc;
}

static int extensible_array(struct collect *c, struct mr_error *err)
{
    unsigned ob = c->f->offset_bytes, lb = c->f->length_bytes;
    uint8_t b[12 + 6 * 8 + 8 + 4];
    size_t len = 12u + 6 * lb + ob + 4, elem = c->d->filters ? ob + c->size_len + 4 : ob;
    struct earray a = {.c = c};
    int rc;
    if ((rc = number_axes(c->d, &a.num, err)) < 0 ||
        (rc = mr_h5_read(c->f, c->d->addr, b, len, "extensible array", err)) < 0)
        return rc;
    a.max_bits = b[7];
    a.index_elems = b[8];
    a.min_elems = b[9];
    a.min_ptrs = b[10];
    a.page_bits = b[11];
    bool ok = memcmp(b, "EAHD", 4) == 0 && b[4] == 0 && b[5] == (c->d->filters ? 1 : 0) && b[6] == elem &&
              a.max_bits >= 1 && a.max_bits <= 40 && a.min_elems >= 1 && !(a.min_elems & (a.min_elems - 1)) &&
              a.min_ptrs >= 2 && !(a.min_ptrs & (a.min_ptrs - 1)) && a.page_bits <= 30 &&
              log2_floor(a.min_elems) <= a.max_bits;
    if (!ok)
        return mr_error_plain(err, MR_E_FORMAT, "bad extensible array at %llu", (unsigned long long)c->d->addr);
    if ((rc = mr_h5_check(b, len, "an extensible array", c->d->addr, err)) < 0)
        return rc;
    a.offset_len = (a.max_bits + 7) / 8;
    a.max_set = mr_h5_uint(b + 12 + 4 * lb, lb);
    uint64_t index = mr_h5_address(c->f, b + 12 + 6 * lb);
    return index == MR_H5_UNDEF ? 0 : ea_index_block(&a, index, err);
}

/* ---- version 2 B-tree (III.A.2) ---- */

#define BTREE2_DEPTH_MAX 16

struct tree2 {
    struct mr_h5_file *f;
    uint32_t node_bytes;
    unsigned record_bytes, nrec_len, type;
    unsigned total_len[BTREE2_DEPTH_MAX + 1]; /* bytes of "records below" in a pointer to a node of that depth */
    mr_h5_record_fn *fn;
    void *user;
};

static int tree2_node(struct tree2 *t, uint64_t addr, unsigned depth, uint64_t records, struct mr_error *err)
{
    unsigned ob = t->f->offset_bytes;
    size_t pointer = depth ? ob + t->nrec_len + (depth > 1 ? t->total_len[depth - 1] : 0) : 0;
    uint64_t len = 6 + records * t->record_bytes + (depth ? (records + 1) * pointer : 0) + 4;
    if (len > t->node_bytes || !mr_h5_inside(t->f, addr, len))
        return mr_error_plain(err, MR_E_FORMAT, "B-tree node at %llu does not fit (%llu records)",
                              (unsigned long long)addr, (unsigned long long)records);
    uint8_t *b = malloc(len);
    if (!b)
        return mr_error_set(err, -ENOMEM, "cannot read a B-tree node");
    int rc = mr_h5_read(t->f, addr, b, len, "B-tree node", err);
    if (rc == 0 && (memcmp(b, depth ? "BTIN" : "BTLF", 4) != 0 || b[5] != t->type))
        rc = mr_error_plain(err, MR_E_FORMAT, "no B-tree node of the right kind at %llu", (unsigned long long)addr);
    if (rc == 0)
        rc = mr_h5_check(b, len, "a B-tree node", addr, err);
    const uint8_t *record = b + 6, *child = record + records * t->record_bytes;
    for (uint64_t i = 0; i <= records && rc >= 0; i++) {
        if (depth)
            rc = tree2_node(t, mr_h5_address(t->f, child + i * pointer), depth - 1,
                            mr_h5_uint(child + i * pointer + ob, t->nrec_len), err);
        if (rc >= 0 && i < records)
            rc = t->fn(t->user, record + i * t->record_bytes, t->record_bytes, err);
    }
    free(b);
    return rc;
}

int mr_h5_btree2(struct mr_h5_file *f, uint64_t header, unsigned type_a, unsigned type_b, mr_h5_record_fn *fn,
                 void *user, struct mr_error *err)
{
    unsigned ob = f->offset_bytes, lb = f->length_bytes;
    uint8_t b[16 + 8 + 2 + 8 + 4];
    size_t len = 16u + ob + 2 + lb + 4;
    int rc = mr_h5_read(f, header, b, len, "B-tree", err);
    if (rc < 0)
        return rc;
    struct tree2 t = {.f = f,
                      .node_bytes = mr_load_le32(b + 6),
                      .record_bytes = mr_load_le16(b + 10),
                      .type = b[5],
                      .fn = fn,
                      .user = user};
    unsigned depth = mr_load_le16(b + 12);
    if (memcmp(b, "BTHD", 4) != 0 || b[4] != 0 || (b[5] != type_a && b[5] != type_b) || t.record_bytes == 0 ||
        t.node_bytes < 10u + t.record_bytes || depth > BTREE2_DEPTH_MAX)
        return mr_error_plain(err, MR_E_FORMAT, "bad B-tree at %llu (type %u, depth %u)", (unsigned long long)header,
                              b[5], depth);
    if ((rc = mr_h5_check(b, len, "a B-tree", header, err)) < 0)
        return rc;
    uint64_t most = (t.node_bytes - 10) / t.record_bytes, below = most;
    t.nrec_len = enc_size(most);
    for (unsigned u = 1; u <= depth; u++) {
        uint64_t pointer = ob + t.nrec_len + (u > 1 ? t.total_len[u - 1] : 0);
        if (t.node_bytes < 10 + pointer)
            return mr_error_plain(err, MR_E_FORMAT, "bad B-tree at %llu (nodes of %u bytes)",
                                  (unsigned long long)header, t.node_bytes);
        most = (t.node_bytes - 10 - pointer) / (t.record_bytes + pointer);
        if (!mr_mul_ok(most + 1, below, &below) || !mr_add_ok(below, most, &below))
            return mr_error_plain(err, MR_E_FORMAT, "bad B-tree at %llu (depth %u)", (unsigned long long)header, depth);
        t.total_len[u] = enc_size(below);
    }
    uint64_t root = mr_h5_address(f, b + 16), records = mr_load_le16(b + 16 + ob);
    return root == MR_H5_UNDEF ? 0 : tree2_node(&t, root, depth, records, err);
}

static int chunk_record(void *user, const uint8_t *r, size_t len, struct mr_error *err)
{
    struct collect *c = user;
    unsigned ob = c->f->offset_bytes;
    size_t at = ob + (c->d->filters ? c->size_len + 4 : 0);
    uint64_t scaled[MR_H5_AXES], bytes = c->d->filters ? mr_h5_uint(r + ob, c->size_len) : c->d->chunk_bytes;
    if (len != at + 8 * c->d->n)
        return mr_error_plain(err, MR_E_FORMAT, "chunk record of %zu bytes (want %zu)", len, at + 8 * c->d->n);
    for (unsigned i = 0; i < c->d->n; i++)
        scaled[i] = mr_load_le64(r + at + 8 * i);
    return put_chunk(c, scaled, mr_h5_address(c->f, r), bytes, c->d->filters ? mr_load_le32(r + ob + c->size_len) : 0,
                     err);
}

/* ---- the map ---- */

int mr_h5_chunk_grid(const struct mr_h5_file *f, const struct mr_h5_dataset *d, uint64_t along[MR_H5_AXES],
                     uint64_t *count, struct mr_error *err)
{
    uint64_t n = 1;
    bool fits = true;
    for (unsigned i = 0; i < d->n; i++) {
        along[i] = d->dim[i] / d->chunk[i] + (d->dim[i] % d->chunk[i] != 0);
        fits = fits && mr_mul_ok(n, along[i], &n);
    }
    if (!fits || n > CHUNKS_MAX || n > f->size)
        return mr_error_plain(err, MR_E_LIMIT, "the dataset's shape has more chunks than a file of %llu bytes can hold",
                              (unsigned long long)f->size);
    *count = n;
    return 0;
}

static int implicit_chunks(struct collect *c, struct mr_error *err)
{
    struct numbering num;
    int rc = number_axes(c->d, &num, err);
    if (rc == 0 && c->d->filters)
        rc = mr_error_plain(err, MR_E_FORMAT, "filtered chunks without an index");
    uint64_t total = 1; /* chunks at the maximum size, which fixes the order */
    for (unsigned i = 0; i < c->d->n && rc == 0; i++)
        if (!mr_mul_ok(total, num.per[i], &total) || total > c->f->size)
            rc = mr_error_plain(err, MR_E_LIMIT, "more chunks than a file of %llu bytes can hold",
                                (unsigned long long)c->f->size);
    for (uint64_t i = 0; i < total && rc == 0; i++) {
        uint64_t scaled[MR_H5_AXES] = {0}, at;
        number_to_scaled(c->d, &num, i, scaled);
        if (!mr_mul_ok(i, c->d->chunk_bytes, &at) || !mr_add_ok(at, c->d->addr, &at) || at == MR_H5_UNDEF)
            rc = mr_error_plain(err, MR_E_FORMAT, "chunk %llu lies outside the file", (unsigned long long)i);
        else
            rc = put_chunk(c, scaled, at, c->d->chunk_bytes, 0, err);
    }
    return rc;
}

static int single_chunk(struct collect *c, struct mr_error *err)
{
    const uint64_t scaled[MR_H5_AXES] = {0};
    if (c->count > 1)
        return mr_error_plain(err, MR_E_FORMAT, "a single chunk for a grid of %llu", (unsigned long long)c->count);
    return put_chunk(c, scaled, c->d->addr, c->d->filters ? c->d->single_bytes : c->d->chunk_bytes, c->d->single_mask,
                     err);
}

int mr_h5_chunk_map(struct mr_h5_file *f, const struct mr_h5_dataset *d, struct mr_h5_chunk **out, uint64_t *count,
                    struct mr_error *err)
{
    struct collect c = {
        .f = f, .d = d, .size_len = d->wide_sizes ? 8 : MR_MIN(1 + (log2_floor(d->chunk_bytes) + 8) / 8, 8)};
    int rc = mr_h5_chunk_grid(f, d, c.along, &c.count, err);
    if (rc < 0)
        return rc;
    c.map = malloc((c.count + 1) * sizeof(*c.map));
    if (!c.map)
        return mr_error_set(err, -ENOMEM, "cannot keep a map of %llu chunks", (unsigned long long)c.count);
    for (uint64_t i = 0; i < c.count; i++)
        c.map[i] = (struct mr_h5_chunk){.addr = MR_H5_UNDEF};
    if (d->addr != MR_H5_UNDEF && c.count > 0) {
        rc = d->index == MR_H5_BTREE1       ? btree1(&c, d->addr, -1, err)
             : d->index == MR_H5_SINGLE     ? single_chunk(&c, err)
             : d->index == MR_H5_IMPLICIT   ? implicit_chunks(&c, err)
             : d->index == MR_H5_FIXED      ? fixed_array(&c, err)
             : d->index == MR_H5_EXTENSIBLE ? extensible_array(&c, err)
                                            : mr_h5_btree2(f, d->addr, 10, 11, chunk_record, &c, err);
    }
    if (rc < 0) {
        free(c.map);
        return mr_error_context(err, "chunk index of dataset '%s'", d->path), rc;
    }
    *out = c.map;
    *count = c.count;
    return 0;
}
