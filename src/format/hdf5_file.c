/* HDF5: superblock, checked reads, checksums and object headers. See hdf5_file.h. */
#include "format/hdf5_file.h"
#include "base/vec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES_MAX (16u << 20) /* of one object header, all its pieces together */
#define HEADER_PIECES_MAX 4096u

bool mr_h5_verify_checksums = true;

static const uint8_t h5_magic[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};

uint64_t mr_h5_uint(const uint8_t *p, unsigned n)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

uint64_t mr_h5_address(const struct mr_h5_file *f, const uint8_t *p)
{
    uint64_t v = mr_h5_uint(p, f->offset_bytes),
             ones = f->offset_bytes == 8 ? UINT64_MAX : ((uint64_t)1 << (8 * f->offset_bytes)) - 1;
    return v == ones ? MR_H5_UNDEF : v;
}

bool mr_h5_inside(const struct mr_h5_file *f, uint64_t addr, uint64_t len)
{
    uint64_t at, end;
    return mr_add_ok(addr, f->base, &at) && mr_add_ok(at, len, &end) && end <= f->size;
}

int mr_h5_read(struct mr_h5_file *f, uint64_t addr, void *buf, size_t len, const char *what, struct mr_error *err)
{
    if (addr == MR_H5_UNDEF || !mr_h5_inside(f, addr, len))
        return mr_error_plain(err, MR_E_FORMAT, "%s lies outside the file (want %zu bytes at %llu, file has %llu)",
                              what, len, (unsigned long long)addr, (unsigned long long)f->size);
    if (f->budget == 0)
        return mr_error_plain(err, MR_E_FORMAT, "metadata is cyclic or absurdly large (%s at %llu)", what,
                              (unsigned long long)addr);
    f->budget--;
    return mr_object_read(f->object, buf, len, addr + f->base, err);
}

static uint32_t rot(uint32_t x, unsigned k)
{
    return x << k | x >> (32 - k);
}

uint32_t mr_h5_checksum(const void *data, size_t len)
{
    const uint8_t *p = data;
    uint32_t a = 0xdeadbeef + (uint32_t)len, b = a, c = a;
    for (; len > 12; len -= 12, p += 12) {
        a += mr_load_le32(p);
        b += mr_load_le32(p + 4);
        c += mr_load_le32(p + 8);
        a -= c, a ^= rot(c, 4), c += b;
        b -= a, b ^= rot(a, 6), a += c;
        c -= b, c ^= rot(b, 8), b += a;
        a -= c, a ^= rot(c, 16), c += b;
        b -= a, b ^= rot(a, 19), a += c;
        c -= b, c ^= rot(b, 4), b += a;
    }
    if (len == 0)
        return c;
    uint8_t tail[12] = {0};
    memcpy(tail, p, len);
    a += mr_load_le32(tail);
    b += mr_load_le32(tail + 4);
    c += mr_load_le32(tail + 8);
    c ^= b, c -= rot(b, 14);
    a ^= c, a -= rot(c, 11);
    b ^= a, b -= rot(a, 25);
    c ^= b, c -= rot(b, 16);
    a ^= c, a -= rot(c, 4);
    b ^= a, b -= rot(a, 14);
    c ^= b, c -= rot(b, 24);
    return c;
}

int mr_h5_check(const uint8_t *data, size_t len, const char *what, uint64_t addr, struct mr_error *err)
{
    if (!mr_h5_verify_checksums)
        return 0;
    uint32_t want = mr_load_le32(data + len - 4), have = mr_h5_checksum(data, len - 4);
    return want == have ? 0
                        : mr_error_plain(err, MR_E_CORRUPT, "checksum of %s at %llu is %08x, want %08x", what,
                                         (unsigned long long)addr, have, want);
}

/* ---- superblock (II.A) ---- */

static int check_sizes(struct mr_h5_file *f, struct mr_error *err)
{
    bool ok = (f->offset_bytes == 2 || f->offset_bytes == 4 || f->offset_bytes == 8) &&
              (f->length_bytes == 2 || f->length_bytes == 4 || f->length_bytes == 8);
    return ok ? 0
              : mr_error_plain(err, MR_E_UNSUPPORTED,
                               "superblock with offsets of %u and lengths of %u bytes (want 2, 4 or 8)",
                               f->offset_bytes, f->length_bytes);
}

/* Versions 0 and 1: fixed fields, then the root group's symbol table entry. */
static int superblock_old(struct mr_h5_file *f, uint64_t at, unsigned version, uint64_t *end_of_file,
                          struct mr_error *err)
{
    uint8_t b[28 + 4 * 8 + 2 * 8];
    size_t fixed = version == 0 ? 24 : 28;
    int rc = mr_h5_read(f, at, b, 24, "superblock", err);
    if (rc < 0)
        return rc;
    f->offset_bytes = b[13];
    f->length_bytes = b[14];
    if ((rc = check_sizes(f, err)) < 0 ||
        (rc = mr_h5_read(f, at, b, fixed + 6u * f->offset_bytes, "superblock", err)) < 0)
        return rc;
    const uint8_t *p = b + fixed;
    f->base = mr_h5_uint(p, f->offset_bytes);
    *end_of_file = mr_h5_address(f, p + 2 * f->offset_bytes);
    f->root = mr_h5_address(f, p + 5 * f->offset_bytes);
    return 0;
}

static int superblock_new(struct mr_h5_file *f, uint64_t at, uint64_t *end_of_file, struct mr_error *err)
{
    uint8_t b[12 + 4 * 8 + 4];
    int rc = mr_h5_read(f, at, b, 12, "superblock", err);
    if (rc < 0)
        return rc;
    f->offset_bytes = b[9];
    f->length_bytes = b[10];
    size_t len = 12 + 4u * f->offset_bytes + 4;
    if ((rc = check_sizes(f, err)) < 0 || (rc = mr_h5_read(f, at, b, len, "superblock", err)) < 0 ||
        (rc = mr_h5_check(b, len, "the superblock", at, err)) < 0)
        return rc;
    const uint8_t *p = b + 12;
    f->base = mr_h5_uint(p, f->offset_bytes);
    *end_of_file = mr_h5_address(f, p + 2 * f->offset_bytes);
    f->root = mr_h5_address(f, p + 3 * f->offset_bytes);
    return 0;
}

int mr_h5_open(struct mr_object *o, struct mr_h5_file *out, struct mr_error *err)
{
    struct mr_h5_file f = {.object = o};
    uint8_t b[9];
    uint64_t at = 0, end_of_file = 0;
    int rc = mr_object_size(o, &f.size, err);
    if (rc < 0)
        return rc;
    f.budget = f.size / 8 + 4096;
    /* A user block may precede the superblock, which then stands at 512, 1024, 2048 ... */
    for (;; at = at ? at * 2 : 512) {
        if (at + sizeof b > f.size)
            return mr_error_plain(err, MR_E_FORMAT, "not an HDF5 file: no signature (%llu bytes)",
                                  (unsigned long long)f.size);
        if ((rc = mr_h5_read(&f, at, b, sizeof b, "signature", err)) < 0)
            return rc;
        if (memcmp(b, h5_magic, sizeof h5_magic) == 0)
            break;
    }
    if (b[8] > 3)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "HDF5 superblock version %u (want 0 to 3)", b[8]);
    rc = b[8] <= 1 ? superblock_old(&f, at, b[8], &end_of_file, err) : superblock_new(&f, at, &end_of_file, err);
    if (rc < 0)
        return rc;
    if (f.base != at && f.base != 0)
        return mr_error_plain(err, MR_E_FORMAT, "base address %llu does not fit the superblock at %llu",
                              (unsigned long long)f.base, (unsigned long long)at);
    f.base = at;
    if (end_of_file > f.size)
        return mr_error_plain(err, MR_E_FORMAT,
                              "unexpected end of file (the superblock says %llu bytes, file has %llu)",
                              (unsigned long long)end_of_file, (unsigned long long)f.size);
    *out = f;
    return 0;
}

/* ---- object headers (IV.A) ---- */

struct piece {
    uint64_t addr, len;
};

/* The pieces of a header still to be read. */
struct header_walk {
    struct mr_h5_file *f;
    unsigned version;
    unsigned flags; /* version 2 */
    struct piece *piece;
    size_t n, cap;
    uint64_t total;
    mr_h5_message_fn *fn;
    void *user;
};

static int add_piece(struct header_walk *w, uint64_t addr, uint64_t len, struct mr_error *err)
{
    w->total += MR_MIN(len, (uint64_t)HEADER_BYTES_MAX + 1);
    if (w->total > HEADER_BYTES_MAX || w->n >= HEADER_PIECES_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "object header of more than %u bytes at %llu", HEADER_BYTES_MAX,
                              (unsigned long long)addr);
    if (mr_vec_reserve(&w->piece, &w->cap, w->n + 1, sizeof(*w->piece)) < 0)
        return mr_error_set(err, -ENOMEM, "cannot read an object header");
    w->piece[w->n++] = (struct piece){addr, len};
    return 0;
}

/* The messages in b[0..len), which stand at file address `addr`. */
static int parse_messages(struct header_walk *w, const uint8_t *b, size_t len, uint64_t addr, struct mr_error *err)
{
    size_t at = 0, head = w->version == 1 ? 8 : 4u + ((w->flags & 4) ? 2 : 0);
    while (len - at >= head) {
        unsigned type = w->version == 1 ? mr_load_le16(b + at) : b[at];
        size_t size = mr_load_le16(b + at + (w->version == 1 ? 2 : 1));
        unsigned flags = b[at + (w->version == 1 ? 4 : 3)];
        at += head;
        if (size > len - at)
            return mr_error_plain(err, MR_E_FORMAT, "header message at %llu does not fit (want %zu bytes, have %zu)",
                                  (unsigned long long)(addr + at), size, len - at);
        int rc;
        unsigned ob = w->f->offset_bytes, lb = w->f->length_bytes;
        if (type == MR_H5_CONTINUATION) {
            if (size < ob + lb)
                return mr_error_plain(err, MR_E_FORMAT, "continuation message at %llu is too short",
                                      (unsigned long long)(addr + at));
            rc = add_piece(w, mr_h5_address(w->f, b + at), mr_h5_uint(b + at + ob, lb), err);
        } else {
            rc = w->fn(w->user, type, flags, b + at, size, addr + at, err);
        }
        if (rc < 0)
            return rc;
        at += size;
    }
    return 0;
}

static int read_piece(struct header_walk *w, size_t i, struct mr_error *err)
{
    struct piece p = w->piece[i];
    bool framed = w->version == 2 && i > 0; /* "OCHK" ... checksum */
    if (!mr_h5_inside(w->f, p.addr, p.len) || (framed && p.len < 8))
        return mr_error_plain(err, MR_E_FORMAT,
                              "object header piece lies outside the file (want %llu bytes at %llu, file has %llu)",
                              (unsigned long long)p.len, (unsigned long long)p.addr, (unsigned long long)w->f->size);
    uint8_t *b = malloc(p.len + 1);
    if (!b)
        return mr_error_set(err, -ENOMEM, "cannot read an object header");
    int rc = mr_h5_read(w->f, p.addr, b, p.len, "object header", err);
    if (rc == 0 && framed) {
        if (memcmp(b, "OCHK", 4) != 0)
            rc = mr_error_plain(err, MR_E_FORMAT, "object header continuation at %llu lacks its signature",
                                (unsigned long long)p.addr);
        else if ((rc = mr_h5_check(b, p.len, "an object header continuation", p.addr, err)) == 0)
            rc = parse_messages(w, b + 4, p.len - 8, p.addr + 4, err);
    } else if (rc == 0) {
        rc = parse_messages(w, b, p.len, p.addr, err);
    }
    free(b);
    return rc;
}

/* Finds the first piece of a version 2 header and checks its sum. */
static int start_version2(struct header_walk *w, uint64_t header, struct mr_error *err)
{
    uint8_t b[6 + 16 + 4 + 8];
    int rc = mr_h5_read(w->f, header, b, 6, "object header", err);
    if (rc < 0)
        return rc;
    w->flags = b[5];
    unsigned width = 1u << (w->flags & 3);
    size_t prefix = 6 + ((w->flags & 0x20) ? 16 : 0) + ((w->flags & 0x10) ? 4 : 0) + width;
    if (b[4] != 2 || (rc = mr_h5_read(w->f, header, b, prefix, "object header", err)) < 0)
        return b[4] != 2 ? mr_error_plain(err, MR_E_UNSUPPORTED, "object header version %u at %llu", b[4],
                                          (unsigned long long)header)
                         : rc;
    uint64_t len = mr_h5_uint(b + prefix - width, width);
    if (len > HEADER_BYTES_MAX || !mr_h5_inside(w->f, header, prefix + len + 4))
        return mr_error_plain(err, MR_E_FORMAT, "object header at %llu does not fit (%llu bytes)",
                              (unsigned long long)header, (unsigned long long)len);
    uint8_t *all = malloc(prefix + len + 4);
    if (!all)
        return mr_error_set(err, -ENOMEM, "cannot read an object header");
    rc = mr_h5_read(w->f, header, all, prefix + len + 4, "object header", err);
    if (rc == 0)
        rc = mr_h5_check(all, prefix + len + 4, "an object header", header, err);
    free(all);
    return rc < 0 ? rc : add_piece(w, header + prefix, len, err);
}

int mr_h5_messages(struct mr_h5_file *f, uint64_t header, mr_h5_message_fn *fn, void *user, struct mr_error *err)
{
    struct header_walk w = {.f = f, .fn = fn, .user = user};
    uint8_t b[16];
    int rc = mr_h5_read(f, header, b, sizeof b, "object header", err);
    if (rc < 0)
        return rc;
    if (memcmp(b, "OHDR", 4) == 0) {
        w.version = 2;
        rc = start_version2(&w, header, err);
    } else if (b[0] == 1) {
        w.version = 1;
        rc = add_piece(&w, header + 16, mr_load_le32(b + 8), err);
    } else {
        rc =
            mr_error_plain(err, MR_E_FORMAT, "no object header at %llu (version %u)", (unsigned long long)header, b[0]);
    }
    for (size_t i = 0; i < w.n && rc >= 0; i++)
        rc = read_piece(&w, i, err);
    free(w.piece);
    return rc;
}
