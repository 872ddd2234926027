/* Reading zip archives; see zip_read.h. The directory is found from the end of the file, read in one piece and turned
 * into an array, then checked for overlaps. All 64-bit sums are checked; each read is inside the file or an error. */
#include "format/zip_read.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#define EOCD_BYTES 22u
#define EOCD64_BYTES 56u
#define LOCATOR_BYTES 20u
#define CENTRAL_BYTES 46u
#define COMMENT_MAX 65535u
#define DIRECTORY_MAX (1ull << 30)
#define SIG_LOCAL 0x04034b50u
#define SIG_CENTRAL 0x02014b50u
#define SIG_EOCD 0x06054b50u
#define SIG_EOCD64 0x06064b50u
#define SIG_LOCATOR 0x07064b50u
#define SIG_DESCRIPTOR 0x08074b50u
#define FLAG_ENCRYPTED 0x0001u
#define FLAG_DESCRIPTOR 0x0008u
#define FLAG_STRONG 0x0040u
#define FLAG_MASKED 0x2000u

/* Where the directory is. */
struct directory {
    uint64_t offset, bytes, entries;
    uint64_t prefix; /* bytes before the archive: all stored offsets are short by this much */
};

static int multi_disk(struct mr_error *err)
{
    return mr_error_plain(err, MR_E_UNSUPPORTED, "zip archives on several disks are not supported");
}

/* The zip64 end record, if a locator precedes the ordinary one. Returns 1 if there is one. */
static int read_eocd64(struct mr_object *o, uint64_t eocd_at, struct directory *d, uint64_t *end_at,
                       struct mr_error *err)
{
    uint8_t loc[LOCATOR_BYTES], rec[EOCD64_BYTES];
    int rc;
    if (eocd_at < LOCATOR_BYTES)
        return 0;
    if ((rc = mr_object_read(o, loc, sizeof loc, eocd_at - LOCATOR_BYTES, err)) < 0)
        return rc;
    if (mr_load_le32(loc) != SIG_LOCATOR)
        return 0;
    if (mr_load_le32(loc + 4) != 0 || mr_load_le32(loc + 16) > 1)
        return multi_disk(err);
    uint64_t room = eocd_at - LOCATOR_BYTES, at = mr_load_le64(loc + 8);
    /* Bytes put before the archive make the stored offset wrong; the record then lies just before its locator. */
    uint64_t candidates[2] = {at, room >= EOCD64_BYTES ? room - EOCD64_BYTES : 0};
    for (unsigned i = 0; i < 2; i++) {
        if (candidates[i] > room || room - candidates[i] < EOCD64_BYTES)
            continue;
        if ((rc = mr_object_read(o, rec, sizeof rec, candidates[i], err)) < 0)
            return rc;
        if (mr_load_le32(rec) != SIG_EOCD64)
            continue;
        if (mr_load_le32(rec + 16) != 0 || mr_load_le32(rec + 20) != 0 ||
            mr_load_le64(rec + 24) != mr_load_le64(rec + 32))
            return multi_disk(err);
        d->entries = mr_load_le64(rec + 32);
        d->bytes = mr_load_le64(rec + 40);
        d->offset = mr_load_le64(rec + 48);
        *end_at = candidates[i];
        return 1;
    }
    return mr_error_plain(err, MR_E_FORMAT, "zip64 end record is missing (locator at %llu points to %llu)",
                          (unsigned long long)room, (unsigned long long)at);
}

/* Finds the end record: the last signature whose comment ends within the file. */
static int find_eocd(struct mr_object *o, uint64_t size, uint8_t eocd[EOCD_BYTES], uint64_t *at, struct mr_error *err)
{
    size_t tail = (size_t)MR_MIN(size, EOCD_BYTES + COMMENT_MAX);
    int rc = -1;
    if (tail < EOCD_BYTES)
        return mr_error_plain(err, MR_E_FORMAT, "not a zip archive: %llu bytes are too few", (unsigned long long)size);
    /* Nearly always there is no comment: look at the last bytes before reading 64 KiB. */
    for (size_t take = EOCD_BYTES;; take = tail) {
        uint8_t *buf = malloc(take);
        if (!buf)
            return mr_error_set(err, -ENOMEM, "cannot read a zip directory");
        if ((rc = mr_object_read(o, buf, take, size - take, err)) < 0) {
            free(buf);
            return rc;
        }
        for (size_t i = take - EOCD_BYTES + 1; i-- > 0;)
            if (mr_load_le32(buf + i) == SIG_EOCD && mr_load_le16(buf + i + 20) <= take - i - EOCD_BYTES) {
                memcpy(eocd, buf + i, EOCD_BYTES);
                *at = size - take + i;
                free(buf);
                return 0;
            }
        free(buf);
        if (take == tail)
            return mr_error_plain(err, MR_E_FORMAT,
                                  "not a zip archive, or cut short: no end record in the last %zu bytes of %llu", tail,
                                  (unsigned long long)size);
    }
}

static int find_directory(struct mr_object *o, struct directory *out, struct mr_error *err)
{
    uint64_t size = 0, at = 0, end;
    uint8_t e[EOCD_BYTES] = {0};
    int rc;
    if ((rc = mr_object_size(o, &size, err)) < 0 || (rc = find_eocd(o, size, e, &at, err)) < 0)
        return rc;
    struct directory d = {
        .entries = mr_load_le16(e + 10), .bytes = mr_load_le32(e + 12), .offset = mr_load_le32(e + 16)};
    end = at;
    if ((rc = read_eocd64(o, at, &d, &end, err)) < 0)
        return rc;
    if (rc == 0 &&
        (mr_load_le16(e + 4) != 0 || mr_load_le16(e + 6) != 0 || mr_load_le16(e + 8) != mr_load_le16(e + 10)))
        return multi_disk(err);
    uint64_t stored_end;
    if (!mr_add_ok(d.offset, d.bytes, &stored_end) || stored_end > end)
        return mr_error_plain(err, MR_E_FORMAT, "zip directory does not fit (%llu bytes at %llu, end record at %llu)",
                              (unsigned long long)d.bytes, (unsigned long long)d.offset, (unsigned long long)end);
    d.prefix = end - stored_end;
    d.offset += d.prefix;
    if (d.bytes > DIRECTORY_MAX || d.entries > d.bytes / CENTRAL_BYTES)
        return mr_error_plain(err, MR_E_FORMAT, "zip directory of %llu bytes cannot list %llu members",
                              (unsigned long long)d.bytes, (unsigned long long)d.entries);
    *out = d;
    return 0;
}

/* Takes the fields that are 0xffffffff from the zip64 extra field, in the order the format prescribes. */
static bool apply_zip64(const uint8_t *extra, size_t len, uint64_t *const field[3])
{
    while (len >= 4) {
        size_t id = mr_load_le16(extra), n = mr_load_le16(extra + 2);
        if (n > len - 4)
            break;
        const uint8_t *p = extra + 4;
        for (unsigned i = 0; id == 1 && i < 3; i++) {
            if (!field[i] || *field[i] != UINT32_MAX)
                continue;
            if (n < 8)
                return false;
            *field[i] = mr_load_le64(p);
            p += 8;
            n -= 8;
        }
        if (id == 1)
            return true;
        extra += 4 + n;
        len -= 4 + n;
    }
    /* Without the field, 0xffffffff is an ordinary number. */
    return true;
}

int mr_zip_check_ratio(uint64_t packed_bytes, uint64_t bytes, struct mr_error *err)
{
    if (bytes > MR_LIMIT_UNPACKED_BYTES)
        return mr_error_plain(err, MR_E_LIMIT, "zip member unpacks to %llu bytes (limit %llu)",
                              (unsigned long long)bytes, (unsigned long long)MR_LIMIT_UNPACKED_BYTES);
    if (bytes / MR_LIMIT_UNPACK_RATIO > packed_bytes)
        return mr_error_plain(err, MR_E_LIMIT,
                              "zip member claims to unpack %llu bytes to %llu, which deflate cannot do",
                              (unsigned long long)packed_bytes, (unsigned long long)bytes);
    return 0;
}

/* One entry of the directory. *used = its length. */
static int parse_central(const uint8_t *p, size_t len, const struct directory *d, struct mr_zip_member *m, char *name,
                         size_t *used, struct mr_error *err)
{
    if (len < CENTRAL_BYTES || mr_load_le32(p) != SIG_CENTRAL)
        return mr_error_plain(err, MR_E_FORMAT, "bad zip directory: entry signature is missing");
    size_t n = mr_load_le16(p + 28), extra = mr_load_le16(p + 30), comment = mr_load_le16(p + 32);
    if (len - CENTRAL_BYTES < n + extra + comment)
        return mr_error_plain(err, MR_E_FORMAT, "bad zip directory: last entry is cut short");
    *m = (struct mr_zip_member){.name = name,
                                .flags = mr_load_le16(p + 8),
                                .method = mr_load_le16(p + 10),
                                .crc = mr_load_le32(p + 16),
                                .packed_bytes = mr_load_le32(p + 20),
                                .bytes = mr_load_le32(p + 24),
                                .header_offset = mr_load_le32(p + 42)};
    memcpy(name, p + CENTRAL_BYTES, n);
    name[n] = 0;
    uint64_t *const fields[3] = {&m->bytes, &m->packed_bytes, &m->header_offset};
    if (!apply_zip64(p + CENTRAL_BYTES + n, extra, fields))
        return mr_error_plain(err, MR_E_FORMAT, "zip member '%s' has a short zip64 field", name);
    if (mr_load_le16(p + 34) != 0 && mr_load_le16(p + 34) != UINT16_MAX)
        return multi_disk(err);
    uint64_t end;
    if (!mr_add_ok(m->header_offset, d->prefix, &m->header_offset) ||
        !mr_add_ok(m->header_offset, MR_ZIP_LOCAL_BYTES + n, &end) || !mr_add_ok(end, m->packed_bytes, &end) ||
        end > d->offset)
        return mr_error_plain(err, MR_E_FORMAT, "zip member '%s' does not fit (%llu bytes at %llu, directory at %llu)",
                              name, (unsigned long long)m->packed_bytes, (unsigned long long)m->header_offset,
                              (unsigned long long)d->offset);
    if (m->method == MR_ZIP_STORED && m->packed_bytes != m->bytes && !(m->flags & FLAG_ENCRYPTED))
        return mr_error_plain(err, MR_E_FORMAT, "stored zip member '%s' has %llu bytes but claims %llu", name,
                              (unsigned long long)m->packed_bytes, (unsigned long long)m->bytes);
    *used = CENTRAL_BYTES + n + extra + comment;
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct mr_zip_member *const *x = a, *const *y = b;
    return (*x)->header_offset < (*y)->header_offset ? -1 : (*x)->header_offset > (*y)->header_offset;
}

static int check_overlap(const struct mr_zip_list *l, struct mr_error *err)
{
    if (l->n < 2)
        return 0;
    const struct mr_zip_member **sorted = malloc(l->n * sizeof(*sorted));
    if (!sorted)
        return mr_error_set(err, -ENOMEM, "cannot check %zu zip members", l->n);
    for (size_t i = 0; i < l->n; i++)
        sorted[i] = &l->member[i];
    qsort(sorted, l->n, sizeof(*sorted), by_offset);
    int rc = 0;
    for (size_t i = 1; i < l->n && rc == 0; i++) {
        const struct mr_zip_member *a = sorted[i - 1], *b = sorted[i];
        if (a->header_offset + MR_ZIP_LOCAL_BYTES + strlen(a->name) + a->packed_bytes > b->header_offset)
            rc = mr_error_plain(err, MR_E_FORMAT, "zip members '%s' and '%s' overlap at byte %llu; refused", a->name,
                                b->name, (unsigned long long)b->header_offset);
    }
    free(sorted);
    return rc;
}

static int parse_directory(const uint8_t *raw, const struct directory *d, struct mr_zip_list *l, struct mr_error *err)
{
    size_t at = 0, name_at = 0;
    for (uint64_t i = 0; i < d->entries; i++) {
        size_t used = 0;
        int rc = parse_central(raw + at, d->bytes - at, d, &l->member[l->n], l->names + name_at, &used, err);
        if (rc < 0)
            return mr_error_context(err, "zip directory entry %llu at byte %llu", (unsigned long long)i,
                                    (unsigned long long)(d->offset + at)),
                   rc;
        name_at += strlen(l->member[l->n].name) + 1;
        l->n++;
        at += used;
    }
    return check_overlap(l, err);
}

int mr_zip_list_read(struct mr_object *o, struct mr_zip_list *out, struct mr_error *err)
{
    struct directory d = {0};
    struct mr_zip_list l = {0};
    int rc = find_directory(o, &d, err);
    if (rc < 0)
        return rc;
    uint8_t *raw = malloc(d.bytes + 1);
    l.member = malloc((d.entries + 1) * sizeof(*l.member));
    l.names = malloc(d.bytes + 1); /* names and their NULs are shorter than the entries they come from */
    l.directory_offset = d.offset;
    if (!raw || !l.member || !l.names)
        rc = mr_error_set(err, -ENOMEM, "cannot read a zip directory of %llu bytes", (unsigned long long)d.bytes);
    if (rc == 0 && d.bytes)
        rc = mr_object_read(o, raw, d.bytes, d.offset, err);
    if (rc == 0)
        rc = parse_directory(raw, &d, &l, err);
    free(raw);
    if (rc < 0)
        mr_zip_list_done(&l);
    else
        *out = l;
    return rc;
}

void mr_zip_list_done(struct mr_zip_list *l)
{
    free(l->member);
    free(l->names);
    *l = (struct mr_zip_list){0};
}

const struct mr_zip_member *mr_zip_find(const struct mr_zip_list *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->member[i].name, name) == 0)
            return &l->member[i];
    return NULL;
}

/* Length of the data descriptor in front of `p`, recognised by the values it must hold; 0 if there is none. */
static uint32_t descriptor_length(const uint8_t *p, size_t len, const struct mr_zip_member *m)
{
    for (unsigned sig = 0; sig < 2; sig++)
        for (unsigned wide = 0; wide < 2; wide++) {
            size_t at = sig ? 4 : 0, need = at + 4 + (wide ? 16 : 8);
            if (len < need || (sig && mr_load_le32(p) != SIG_DESCRIPTOR) || mr_load_le32(p + at) != m->crc)
                continue;
            uint64_t packed = wide ? mr_load_le64(p + at + 4) : mr_load_le32(p + at + 4);
            uint64_t bytes = wide ? mr_load_le64(p + at + 12) : mr_load_le32(p + at + 8);
            if (packed == m->packed_bytes && bytes == m->bytes)
                return (uint32_t)need;
        }
    return 0;
}

int mr_zip_locate(struct mr_object *o, const struct mr_zip_list *l, const struct mr_zip_member *m,
                  struct mr_zip_place *out, struct mr_error *err)
{
    uint8_t h[MR_ZIP_LOCAL_BYTES];
    struct mr_zip_place place = {0};
    int rc;
    if (m->flags & (FLAG_ENCRYPTED | FLAG_STRONG | FLAG_MASKED))
        return mr_error_plain(err, MR_E_UNSUPPORTED, "zip member '%s' is encrypted", m->name);
    if (m->method != MR_ZIP_STORED && m->method != MR_ZIP_DEFLATED)
        return mr_error_plain(err, MR_E_UNSUPPORTED,
                              "zip member '%s' has compression method %u (want 0 stored or 8 deflated)", m->name,
                              m->method);
    if (m->method == MR_ZIP_DEFLATED && (rc = mr_zip_check_ratio(m->packed_bytes, m->bytes, err)) < 0)
        return rc;
    if ((rc = mr_object_read(o, h, sizeof h, m->header_offset, err)) < 0)
        return rc;
    place.prefix_bytes = MR_ZIP_LOCAL_BYTES + mr_load_le16(h + 26) + mr_load_le16(h + 28);
    uint64_t data = m->header_offset + place.prefix_bytes; /* header_offset is below the file size: no overflow */
    if (mr_load_le32(h) != SIG_LOCAL || mr_load_le16(h + 8) != m->method || data > l->directory_offset ||
        m->packed_bytes > l->directory_offset - data)
        return mr_error_plain(err, MR_E_FORMAT,
                              "local header of zip member '%s' at byte %llu disagrees with the directory", m->name,
                              (unsigned long long)m->header_offset);
    if (m->flags & FLAG_DESCRIPTOR) {
        uint8_t tail[24];
        uint64_t room = l->directory_offset - data - m->packed_bytes;
        size_t n = (size_t)MR_MIN(room, sizeof tail);
        if (n && (rc = mr_object_read(o, tail, n, data + m->packed_bytes, err)) < 0)
            return rc;
        place.descriptor_bytes = descriptor_length(tail, n, m);
        if (place.descriptor_bytes == 0)
            return mr_error_plain(err, MR_E_FORMAT,
                                  "data descriptor of zip member '%s' at byte %llu disagrees with the directory",
                                  m->name, (unsigned long long)(data + m->packed_bytes));
    }
    *out = place;
    return 0;
}

int mr_zip_local_parse(const uint8_t *span, size_t len, const struct mr_zip_place *place, struct mr_zip_local *out,
                       struct mr_error *err)
{
    uint64_t around = (uint64_t)place->prefix_bytes + place->descriptor_bytes;
    if (place->prefix_bytes < MR_ZIP_LOCAL_BYTES || around > len || mr_load_le32(span) != SIG_LOCAL ||
        MR_ZIP_LOCAL_BYTES + mr_load_le16(span + 26) + mr_load_le16(span + 28) != place->prefix_bytes)
        return mr_error_plain(err, MR_E_CHANGED, "zip local header is not where it was (have %zu bytes)", len);
    struct mr_zip_local z = {.method = mr_load_le16(span + 8),
                             .crc = mr_load_le32(span + 14),
                             .packed_bytes = mr_load_le32(span + 18),
                             .bytes = mr_load_le32(span + 22)};
    size_t name = mr_load_le16(span + 26), extra = mr_load_le16(span + 28);
    uint64_t *const fields[3] = {&z.bytes, &z.packed_bytes, NULL};
    if (place->descriptor_bytes) {
        const uint8_t *p = span + len - place->descriptor_bytes;
        unsigned n = place->descriptor_bytes;
        p += n == 16 || n == 24 ? 4 : 0;
        bool wide = n >= 20;
        z.crc = mr_load_le32(p);
        z.packed_bytes = wide ? mr_load_le64(p + 4) : mr_load_le32(p + 4);
        z.bytes = wide ? mr_load_le64(p + 12) : mr_load_le32(p + 8);
    } else if (!apply_zip64(span + MR_ZIP_LOCAL_BYTES + name, extra, fields)) {
        return mr_error_plain(err, MR_E_FORMAT, "zip local header has a short zip64 field");
    }
    if (z.packed_bytes != len - around)
        return mr_error_plain(err, MR_E_CHANGED, "zip member has %llu bytes now, %llu when it was scanned",
                              (unsigned long long)z.packed_bytes, (unsigned long long)(len - around));
    *out = z;
    return 0;
}

int mr_zip_inflate(void *inflater, const void *packed, size_t packed_bytes, void *out, size_t bytes,
                   struct mr_error *err)
{
    size_t got = 0;
    enum libdeflate_result r = libdeflate_deflate_decompress(inflater, packed, packed_bytes, out, bytes, &got);
    if (r == LIBDEFLATE_INSUFFICIENT_SPACE)
        return mr_error_plain(err, MR_E_CORRUPT, "deflated data is longer than the %zu bytes it claims", bytes);
    if (r != LIBDEFLATE_SUCCESS)
        return mr_error_plain(err, MR_E_CORRUPT, "deflated data is damaged (%zu bytes packed, %zu wanted)",
                              packed_bytes, bytes);
    if (got != bytes)
        return mr_error_plain(err, MR_E_CORRUPT, "deflated data is shorter than it claims (want %zu bytes, have %zu)",
                              bytes, got);
    return 0;
}
