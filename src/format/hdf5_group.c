/* HDF5: groups. Finds every dataset below the root, whichever way the links are kept: symbol tables (a version 1 B-tree
 * over a local heap), link messages in the header, or, for many links in the newer format, a version 2 B-tree over a
 * fractal heap. Soft and external links are skipped. See hdf5_file.h. */
#include "format/hdf5_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_DEPTH_MAX 8
#define HEAP_BYTES_MAX (64u << 20)

struct walk {
    struct mr_h5_file *f;
    mr_h5_object_fn *fn;
    void *user;
    int depth;
    char path[MR_H5_PATH_MAX];
    size_t path_len;
};

/* What an object header shows about its object. */
struct object_look {
    struct mr_h5_file *f;
    bool is_dataset;
    uint64_t tree, heap; /* symbol table */
    uint64_t dense_heap, dense_tree;
    struct walk *walk; /* set while links are followed */
};

static int visit(struct walk *w, const char *name, size_t len, uint64_t header, struct mr_error *err);

/* One link message (IV.A.2.g). */
static int follow_link(struct walk *w, const uint8_t *b, size_t len, struct mr_error *err)
{
    size_t at = 2;
    if (len < 4 || b[0] != 1)
        return mr_error_plain(err, MR_E_FORMAT, "bad link message (%zu bytes, version %u)", len, len ? b[0] : 0);
    unsigned flags = b[1], type = 0, width = 1u << (flags & 3);
    if (flags & 8)
        type = b[at++];
    at += (flags & 4) ? 8 : 0;
    at += (flags & 16) ? 1 : 0;
    if (len < at + width)
        return mr_error_plain(err, MR_E_FORMAT, "link message is too short (%zu bytes)", len);
    uint64_t n = mr_h5_uint(b + at, width);
    at += width;
    if (n > len - at || (type == 0 && len - at - n < w->f->offset_bytes))
        return mr_error_plain(err, MR_E_FORMAT, "link name does not fit its message (%llu bytes)",
                              (unsigned long long)n);
    if (type != 0)
        return 0;
    return visit(w, (const char *)b + at, n, mr_h5_address(w->f, b + at + n), err);
}

static int look_message(void *user, unsigned type, unsigned flags, const uint8_t *b, size_t len, uint64_t addr,
                        struct mr_error *err)
{
    struct object_look *o = user;
    unsigned ob = o->f->offset_bytes;
    (void)flags;
    if (type == MR_H5_LAYOUT) {
        o->is_dataset = true;
    } else if (type == MR_H5_SYMBOL_TABLE) {
        if (len < 2 * ob)
            return mr_error_plain(err, MR_E_FORMAT, "symbol table message at %llu is too short",
                                  (unsigned long long)addr);
        o->tree = mr_h5_address(o->f, b);
        o->heap = mr_h5_address(o->f, b + ob);
    } else if (type == MR_H5_LINK_INFO) {
        size_t at = len >= 2 && (b[1] & 1) ? 10 : 2;
        if (len < at + 2 * ob)
            return mr_error_plain(err, MR_E_FORMAT, "link info message at %llu is too short", (unsigned long long)addr);
        o->dense_heap = mr_h5_address(o->f, b + at);
        o->dense_tree = mr_h5_address(o->f, b + at + ob);
    } else if (type == MR_H5_LINK && o->walk) {
        return follow_link(o->walk, b, len, err);
    }
    return 0;
}

/* ---- symbol tables (III.A.1, III.B, III.D) ---- */

struct local_heap {
    char *data;
    uint64_t len;
};

static int read_heap(struct mr_h5_file *f, uint64_t addr, struct local_heap *out, struct mr_error *err)
{
    uint8_t b[8 + 2 * 8 + 8];
    unsigned ob = f->offset_bytes, lb = f->length_bytes;
    int rc = mr_h5_read(f, addr, b, 8 + 2u * lb + ob, "local heap", err);
    if (rc < 0)
        return rc;
    uint64_t len = mr_h5_uint(b + 8, lb), data = mr_h5_address(f, b + 8 + 2 * lb);
    if (memcmp(b, "HEAP", 4) != 0 || len > HEAP_BYTES_MAX || !mr_h5_inside(f, data, len))
        return mr_error_plain(err, MR_E_FORMAT, "bad local heap at %llu", (unsigned long long)addr);
    struct local_heap h = {.data = malloc(len + 1), .len = len};
    if (!h.data)
        return mr_error_set(err, -ENOMEM, "cannot read a heap of %llu bytes", (unsigned long long)len);
    if ((rc = mr_h5_read(f, data, h.data, len, "local heap", err)) < 0) {
        free(h.data);
        return rc;
    }
    h.data[len] = 0;
    *out = h;
    return 0;
}

static int symbol_node(struct walk *w, uint64_t addr, const struct local_heap *heap, struct mr_error *err)
{
    uint8_t head[8], e[2 * 8 + 24];
    unsigned ob = w->f->offset_bytes, size = 2 * ob + 24;
    int rc = mr_h5_read(w->f, addr, head, sizeof head, "symbol table node", err);
    if (rc < 0)
        return rc;
    if (memcmp(head, "SNOD", 4) != 0)
        return mr_error_plain(err, MR_E_FORMAT, "no symbol table node at %llu", (unsigned long long)addr);
    for (unsigned i = 0; i < mr_load_le16(head + 6); i++) {
        if ((rc = mr_h5_read(w->f, addr + 8 + (uint64_t)i * size, e, size, "symbol table entry", err)) < 0)
            return rc;
        uint64_t name = mr_h5_uint(e, ob);
        if (name >= heap->len)
            return mr_error_plain(err, MR_E_FORMAT, "name offset %llu beyond the heap of %llu bytes",
                                  (unsigned long long)name, (unsigned long long)heap->len);
        if (mr_load_le32(e + 2 * ob) == 2) /* soft link */
            continue;
        if ((rc = visit(w, heap->data + name, strlen(heap->data + name), mr_h5_address(w->f, e + ob), err)) < 0)
            return rc;
    }
    return 0;
}

/* `level` is what the node above says about this one, or -1 at the root. */
static int symbol_tree(struct walk *w, uint64_t addr, int level, const struct local_heap *heap, struct mr_error *err)
{
    uint8_t head[8 + 16], pair[16];
    unsigned ob = w->f->offset_bytes, lb = w->f->length_bytes;
    int rc = mr_h5_read(w->f, addr, head, 8 + 2u * ob, "group B-tree node", err);
    if (rc < 0)
        return rc;
    if (memcmp(head, "TREE", 4) != 0 || head[4] != 0 || (level >= 0 && head[5] != level))
        return mr_error_plain(err, MR_E_FORMAT, "no group B-tree node of the right level at %llu",
                              (unsigned long long)addr);
    for (unsigned i = 0; i < mr_load_le16(head + 6); i++) {
        if ((rc = mr_h5_read(w->f, addr + 8 + 2u * ob + (uint64_t)i * (lb + ob), pair, lb + ob, "group B-tree node",
                             err)) < 0)
            return rc;
        uint64_t child = mr_h5_address(w->f, pair + lb);
        rc = head[5] == 0 ? symbol_node(w, child, heap, err) : symbol_tree(w, child, head[5] - 1, heap, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- dense links: fractal heap (III.G) under a version 2 B-tree ---- */

struct fractal_heap {
    struct walk *walk;
    unsigned id_len, offset_len, length_len, width, max_rows, rows, max_direct_rows;
    uint64_t start, max_direct, root;
};

static unsigned log2_floor(uint64_t v)
{
    return v ? 63u - (unsigned)__builtin_clzll(v) : 0;
}

static int read_fractal_heap(struct walk *w, uint64_t addr, struct fractal_heap *out, struct mr_error *err)
{
    struct mr_h5_file *f = w->f;
    unsigned ob = f->offset_bytes, lb = f->length_bytes;
    uint8_t b[256];
    size_t len = 14 + lb + ob + lb + ob + 8u * lb + 2 + 2u * lb + 4 + ob + 2 + 4;
    int rc = mr_h5_read(f, addr, b, len, "fractal heap", err);
    if (rc < 0)
        return rc;
    if (memcmp(b, "FRHP", 4) != 0 || b[4] != 0 || mr_load_le16(b + 7) != 0)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "fractal heap at %llu (filtered or of another version)",
                              (unsigned long long)addr);
    if ((rc = mr_h5_check(b, len, "a fractal heap", addr, err)) < 0)
        return rc;
    const uint8_t *p = b + 14 + lb + ob + lb + ob + 8 * lb;
    struct fractal_heap h = {.walk = w, .id_len = mr_load_le16(b + 5), .width = mr_load_le16(p)};
    h.start = mr_h5_uint(p + 2, lb);
    h.max_direct = mr_h5_uint(p + 2 + lb, lb);
    unsigned bits = mr_load_le16(p + 2 + 2 * lb);
    h.root = mr_h5_address(f, p + 2 + 2 * lb + 4);
    h.rows = mr_load_le16(p + 2 + 2 * lb + 4 + ob);
    uint64_t max_managed = mr_load_le32(b + 10);
    if (h.width == 0 || h.start == 0 || (h.start & (h.start - 1)) || h.max_direct < h.start ||
        h.max_direct > HEAP_BYTES_MAX || bits == 0 || bits > 64 || max_managed == 0)
        return mr_error_plain(err, MR_E_FORMAT, "bad fractal heap at %llu", (unsigned long long)addr);
    h.offset_len = (bits + 7) / 8;
    h.length_len = log2_floor(MR_MIN(h.max_direct, max_managed)) / 8 + 1;
    h.max_direct_rows = log2_floor(h.max_direct) - log2_floor(h.start) + 2;
    if (h.id_len < 1 + h.offset_len + h.length_len)
        return mr_error_plain(err, MR_E_FORMAT, "bad fractal heap at %llu (identifiers of %u bytes)",
                              (unsigned long long)addr, h.id_len);
    *out = h;
    return 0;
}

/* The file address of heap offset `offset`: descends from the root indirect block to the direct block that holds it. */
static int heap_address(const struct fractal_heap *h, uint64_t offset, uint64_t *out, struct mr_error *err)
{
    struct mr_h5_file *f = h->walk->f;
    unsigned ob = f->offset_bytes, rows = h->rows;
    uint64_t block = h->root;
    for (unsigned levels = 0; rows > 0 && levels < 8; levels++) {
        uint64_t size = h->start, row_at = 0;
        unsigned row = 0;
        for (; row < rows; row++) {
            size = row < 2 ? h->start : h->start << (row - 1);
            if (row > 40 || size > (uint64_t)1 << 40 || offset - row_at < size * h->width)
                break;
            row_at += size * h->width;
        }
        if (row >= rows || row > 40 || size > (uint64_t)1 << 40)
            return mr_error_plain(err, MR_E_FORMAT, "heap offset %llu lies beyond the heap",
                                  (unsigned long long)offset);
        uint64_t column = (offset - row_at) / size;
        uint64_t entry = 5 + ob + h->offset_len + ((uint64_t)row * h->width + column) * ob;
        uint8_t b[8];
        int rc = mr_h5_read(f, block + entry, b, ob, "fractal heap block", err);
        if (rc < 0)
            return rc;
        block = mr_h5_address(f, b);
        offset -= row_at + column * size;
        if (block == MR_H5_UNDEF)
            return mr_error_plain(err, MR_E_FORMAT, "heap block is missing");
        /* A row beyond the direct ones holds indirect blocks, with as many rows as fill its size. */
        rows = row < h->max_direct_rows ? 0 : log2_floor(size) - log2_floor(h->start * h->width) + 1;
    }
    if (!mr_add_ok(block, offset, out))
        return mr_error_plain(err, MR_E_FORMAT, "heap address overflows");
    return 0;
}

static int dense_record(void *user, const uint8_t *record, size_t len, struct mr_error *err)
{
    struct fractal_heap *h = user;
    if (len < 4u + h->id_len || (record[4] & 0x30) != 0)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "a link name too long for its heap block");
    uint64_t offset = mr_h5_uint(record + 5, h->offset_len), n = mr_h5_uint(record + 5 + h->offset_len, h->length_len),
             addr = 0;
    uint8_t b[MR_H5_PATH_MAX + 64];
    if (n > sizeof b)
        return mr_error_plain(err, MR_E_LIMIT, "link message of %llu bytes", (unsigned long long)n);
    int rc = heap_address(h, offset, &addr, err);
    if (rc < 0 || (rc = mr_h5_read(h->walk->f, addr, b, n, "link", err)) < 0)
        return rc;
    return follow_link(h->walk, b, n, err);
}

static int dense_links(struct walk *w, uint64_t heap, uint64_t tree, struct mr_error *err)
{
    struct fractal_heap h;
    int rc = read_fractal_heap(w, heap, &h, err);
    return rc < 0 ? rc : mr_h5_btree2(w->f, tree, 5, 5, dense_record, &h, err);
}

/* ---- the walk ---- */

static int walk_group(struct walk *w, uint64_t header, const struct object_look *look, struct mr_error *err)
{
    int rc = 0;
    if (w->depth >= GROUP_DEPTH_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "groups nested deeper than %d at '%s'", GROUP_DEPTH_MAX, w->path);
    w->depth++;
    if (look->tree != MR_H5_UNDEF) {
        struct local_heap heap = {0};
        rc = read_heap(w->f, look->heap, &heap, err);
        if (rc == 0)
            rc = symbol_tree(w, look->tree, -1, &heap, err);
        free(heap.data);
    } else if (look->dense_heap != MR_H5_UNDEF) {
        rc = dense_links(w, look->dense_heap, look->dense_tree, err);
    } else {
        struct object_look links = {.f = w->f, .walk = w};
        rc = mr_h5_messages(w->f, header, look_message, &links, err);
    }
    w->depth--;
    return rc;
}

static int visit(struct walk *w, const char *name, size_t len, uint64_t header, struct mr_error *err)
{
    size_t before = w->path_len, slash = before ? 1 : 0;
    if (before + slash + len >= sizeof w->path || memchr(name, 0, len))
        return mr_error_plain(err, MR_E_LIMIT, "object name is too long or has a NUL in '%s'", w->path);
    if (slash)
        w->path[before] = '/';
    memcpy(w->path + before + slash, name, len);
    w->path_len = before + slash + len;
    w->path[w->path_len] = 0;
    struct object_look look = {.f = w->f, .tree = MR_H5_UNDEF, .dense_heap = MR_H5_UNDEF};
    int rc = mr_h5_messages(w->f, header, look_message, &look, err);
    if (rc == 0)
        rc = look.is_dataset ? w->fn(w->user, w->path, header, err) : walk_group(w, header, &look, err);
    w->path_len = before;
    w->path[before] = 0;
    return rc;
}

int mr_h5_walk(struct mr_h5_file *f, mr_h5_object_fn *fn, void *user, struct mr_error *err)
{
    struct walk w = {.f = f, .fn = fn, .user = user};
    return visit(&w, "", 0, f->root, err);
}
