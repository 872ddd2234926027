/* Members of a tar archive: see tar_walk.h. A gzip'ed archive is unpacked first. */
#include "format/tar_walk.h"
#include "format/text_values.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 4096u
#define EXTENDED_MAX MR_STREAM_IN_MAX /* pax and long-name members */

typedef unsigned long long ull;

/* The checksum counts its own field as blanks. Old writers summed signed bytes. */
static bool checksum_fits(const uint8_t h[MR_TAR_BLOCK], unsigned *want_out, unsigned *have_out)
{
    unsigned sum = 0, want = 0;
    int signed_sum = 0;
    for (unsigned i = 0; i < MR_TAR_BLOCK; i++) {
        uint8_t c = i >= MR_TAR_SUM_AT && i < MR_TAR_SUM_AT + MR_TAR_SUM_LEN ? ' ' : h[i];
        sum += c;
        signed_sum += (int8_t)c;
    }
    unsigned i = MR_TAR_SUM_AT;
    while (i < MR_TAR_SUM_AT + MR_TAR_SUM_LEN && h[i] == ' ')
        i++;
    for (; i < MR_TAR_SUM_AT + MR_TAR_SUM_LEN && h[i] >= '0' && h[i] <= '7'; i++)
        want = want * 8 + (h[i] - '0');
    *want_out = want;
    *have_out = sum;
    return want == sum || (int)want == signed_sum;
}

static bool parse_size(const uint8_t *p, uint64_t *out)
{
    uint64_t v = 0;
    if (*p & 0x80) { /* GNU: big-endian binary */
        for (unsigned i = 0; i < MR_TAR_SIZE_LEN; i++) {
            uint8_t c = i ? p[i] : p[i] & 0x7f;
            if (v >> 56)
                return false;
            v = v << 8 | c;
        }
        *out = v;
        return true;
    }
    unsigned i = 0, digits = 0;
    while (i < MR_TAR_SIZE_LEN && p[i] == ' ')
        i++;
    for (; i < MR_TAR_SIZE_LEN && p[i] >= '0' && p[i] <= '7'; i++, digits++)
        v = v * 8 + (p[i] - '0');
    *out = v;
    return (digits || i == 0 || !p[i]) && (i == MR_TAR_SIZE_LEN || p[i] == 0 || p[i] == ' ');
}

struct tar_walk {
    struct mr_stream_in in;
    mr_tar_fn *fn;
    void *user;
    struct mr_error *err;
    uint64_t at;
    bool size_given; /* by a pax header for the next member */
    uint64_t pax_size;
    char long_name[NAME_MAX_BYTES + 1]; /* from a pax or GNU header for the next member, or empty */
    char name[NAME_MAX_BYTES + 1];
    char key[NAME_MAX_BYTES + 1];
};

/* A name from the file in messages: control and non-ASCII bytes as \xHH, cut at 120. */
static const char *quoted(const char *name, char out[160])
{
    size_t n = 0;
    for (const char *p = name; *p && n < 150; p++)
        n += (size_t)((*p >= ' ' && *p < 127) ? snprintf(out + n, 160 - n, "%c", *p)
                                              : snprintf(out + n, 160 - n, "\\x%02x", (unsigned)(uint8_t)*p));
    out[n] = 0;
    return out;
}

int mr_tar_bad_member(const struct mr_stream_in *in, const struct mr_tar_member *m, const char *what,
                      struct mr_error *err)
{
    char q[160];
    return mr_error_plain(err, MR_E_FORMAT, "member '%s' at offset %llu of '%s': %s", quoted(m->name, q),
                          (ull)m->header_at, in->path, what);
}

static int bad_member(struct tar_walk *t, uint64_t at, const char *what)
{
    return mr_tar_bad_member(&t->in, &(struct mr_tar_member){.name = t->name, .header_at = at}, what, t->err);
}

static bool name_is_safe(const char *name)
{
    if (*name == '/')
        return false;
    for (const char *p = name; *p;) {
        size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.')
            return false;
        p += n + (p[n] == '/');
    }
    return true;
}

/* Hands out a regular file. */
static int hand_out(struct tar_walk *t, uint64_t header_at, struct mr_extent data)
{
    const char *name = t->name;
    while (name[0] == '.' && name[1] == '/')
        name += 2;
    const char *base = strrchr(name, '/');
    base = base ? base + 1 : name;
    const char *dot = strchr(base, '.');
    if (!dot || dot == base || strncmp(base, "__", 2) == 0)
        return 0;
    size_t key_len = (size_t)(dot - name);
    memcpy(t->key, name, key_len);
    t->key[key_len] = 0;
    const struct mr_tar_member m = {
        .name = t->name, .key = t->key, .ext = dot + 1, .header_at = header_at, .data = data};
    return t->fn(t->user, &t->in, &m, t->err);
}

/* "LEN key=value\n" lines; only path and size matter. */
static int read_pax(struct tar_walk *t, const char *p, size_t n, uint64_t at)
{
    for (size_t i = 0; i < n && p[i];) {
        size_t len = 0, start = i;
        for (; i < n && p[i] >= '0' && p[i] <= '9' && len < EXTENDED_MAX; i++)
            len = len * 10 + (size_t)(p[i] - '0');
        if (i == n || p[i] != ' ' || len > n - start || len < i - start + 3 || p[start + len - 1] != '\n')
            return bad_member(t, at, "malformed pax header");
        const char *key = p + i + 1, *end = p + start + len - 1;
        const char *eq = memchr(key, '=', (size_t)(end - key));
        if (!eq)
            return bad_member(t, at, "malformed pax header");
        size_t key_len = (size_t)(eq - key), value_len = (size_t)(end - eq - 1);
        if (key_len >= 10 && memcmp(key, "GNU.sparse", 10) == 0)
            return bad_member(t, at, "sparse members are not supported");
        if (key_len == 4 && memcmp(key, "path", 4) == 0) {
            if (value_len > NAME_MAX_BYTES || memchr(eq + 1, 0, value_len))
                return bad_member(t, at, "its pax path is too long or holds a NUL byte");
            memcpy(t->long_name, eq + 1, value_len);
            t->long_name[value_len] = 0;
        } else if (key_len == 4 && memcmp(key, "size", 4) == 0) {
            struct mr_number num;
            int64_t v;
            if (mr_number_lex(eq + 1, end, false, &num) != value_len || !mr_number_to_int64(&num, &v) || v < 0)
                return bad_member(t, at, "malformed size in its pax header");
            t->size_given = true;
            t->pax_size = (uint64_t)v;
        }
        i = start + len;
    }
    return 0;
}

static int read_extended(struct tar_walk *t, char type, uint64_t at, struct mr_extent data)
{
    const uint8_t *p;
    if (data.length > EXTENDED_MAX)
        return bad_member(t, at, "its extended header is over the limit of 64 KiB");
    if (type == 'g')
        return 0; /* global headers hold comments and defaults we do not use */
    int rc = mr_stream_in_get(&t->in, data.offset, (size_t)data.length, &p, t->err);
    if (rc < 0)
        return rc;
    if (type == 'x')
        return read_pax(t, (const char *)p, (size_t)data.length, at);
    size_t n = strnlen((const char *)p, (size_t)data.length);
    if (n > NAME_MAX_BYTES)
        return bad_member(t, at, "its name is too long");
    memcpy(t->long_name, p, n);
    t->long_name[n] = 0;
    return 0;
}

/* The member's name, from the extended header before it or from its own two fields. */
static void take_name(struct tar_walk *t, const uint8_t h[MR_TAR_BLOCK])
{
    size_t n = 0;
    if (t->long_name[0]) {
        n = strlen(t->long_name);
        memcpy(t->name, t->long_name, n);
    } else {
        if (memcmp(h + MR_TAR_MAGIC_AT, "ustar\0", 6) == 0 && h[MR_TAR_PREFIX_AT]) {
            n = strnlen((const char *)h + MR_TAR_PREFIX_AT, MR_TAR_PREFIX_LEN);
            memcpy(t->name, h + MR_TAR_PREFIX_AT, n);
            t->name[n++] = '/';
        }
        size_t m = strnlen((const char *)h + MR_TAR_NAME_AT, MR_TAR_NAME_LEN);
        memcpy(t->name + n, h + MR_TAR_NAME_AT, m);
        n += m;
    }
    t->name[n] = 0;
}

/* One member: header at t->at, which moves to the next. */
static int scan_member(struct tar_walk *t, const uint8_t *h)
{
    uint64_t at = t->at, size = 0;
    char type = (char)h[MR_TAR_TYPE_AT];
    bool extended = type == 'x' || type == 'g' || type == 'L' || type == 'K';
    unsigned want, have;
    if (!checksum_fits(h, &want, &have)) {
        mr_error_plain(t->err, MR_E_CORRUPT, "header at offset %llu of '%s': checksum differs (want %u, have %u)",
                       (ull)at, t->in.path, want, have);
        return mr_error_hint(t->err, "the file is damaged there or is no tar archive"), MR_E_CORRUPT;
    }
    bool sized = parse_size(h + MR_TAR_SIZE_AT, &size);
    take_name(t, h);
    if (!extended && t->size_given) {
        size = t->pax_size;
        sized = true;
    }
    if (!sized)
        return bad_member(t, at, "malformed size");
    /* Only regular files and extended headers have data, whatever the size field of a link says. */
    bool regular = type == '0' || type == 0 || type == '7';
    if (type == 'S')
        return bad_member(t, at, "sparse members are not supported");
    if (!regular && !extended)
        size = type >= '1' && type <= '6' ? 0 : size;
    uint64_t left = t->in.size - at - MR_TAR_BLOCK;
    if (size > left)
        return mr_error_plain(
            t->err, MR_E_FORMAT,
            "member at offset %llu of '%s': unexpected end of file (want %llu bytes at %llu, file has %llu)", (ull)at,
            t->in.path, (ull)size, (ull)(at + MR_TAR_BLOCK), (ull)t->in.size);
    struct mr_extent data = {at + MR_TAR_BLOCK, size};
    uint64_t padded = MR_ALIGN_UP(size, MR_TAR_BLOCK);
    t->at = padded > left ? t->in.size : at + MR_TAR_BLOCK + padded;
    if (extended)
        return type == 'K' ? 0 : read_extended(t, type, at, data);
    t->long_name[0] = 0;
    t->size_given = false;
    if (!regular)
        return 0;
    if (!name_is_safe(t->name))
        return bad_member(t, at, "its name leaves the archive's folder");
    return hand_out(t, at, data);
}

static bool is_zero_block(const uint8_t *h)
{
    for (unsigned i = 0; i < MR_TAR_BLOCK; i++)
        if (h[i])
            return false;
    return true;
}

static int scan_members(struct tar_walk *t)
{
    const uint8_t *h;
    for (;;) {
        if (t->in.size - t->at < MR_TAR_BLOCK) {
            mr_error_plain(t->err, MR_E_FORMAT,
                           "'%s' is cut short: no end-of-archive block before the end of the file at %llu", t->in.path,
                           (ull)t->in.size);
            return mr_error_hint(t->err, "copy or write the archive again"), MR_E_FORMAT;
        }
        int rc = mr_stream_in_get(&t->in, t->at, MR_TAR_BLOCK, &h, t->err);
        if (rc < 0)
            return rc;
        if (is_zero_block(h))
            return 0;
        rc = scan_member(t, h);
        if (rc < 0)
            return rc;
    }
}

int mr_tar_walk(struct mr_store *s, const char *path, mr_tar_fn *fn, void *user, bool *gzip, struct mr_error *err)
{
    struct tar_walk *t = calloc(1, sizeof(*t));
    if (!t)
        return mr_error_set(err, -ENOMEM, "cannot scan '%s'", path);
    *t = (struct tar_walk){.fn = fn, .user = user, .err = err};
    int rc = mr_stream_in_open(s, path, NULL, &t->in, err);
    if (rc >= 0) {
        rc = scan_members(t);
        *gzip = t->in.gzip;
        mr_stream_in_close(&t->in);
    }
    free(t);
    return rc < 0 ? rc : 0;
}
