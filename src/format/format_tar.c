/* Tar shards as WebDataset uses them: members that follow each other and share their name up to the first dot of the
 * last path component (the key) form one sample; the rest of the name is the part's extension.
 *
 *   0000017.bin   payload: the first of the known payload extensions, else the first part that is no label or text
 *   0000017.cls   label, an integer as text; or  .json with a member "label"
 *
 * The payload of a member is contiguous in the file, 512-byte aligned, so samples are read in place. Understood: ustar,
 * GNU long names and base-256 sizes, pax headers (path, size). Refused: sparse members, names that are absolute or
 * climb with "..", anything cut short, an archive without its end blocks. Links, devices, folders, names without an
 * extension and names that start with a dot are skipped, as WebDataset skips them. gzip'ed archives are unpacked as a
 * whole.
 *
 * Layout: byte 0 version = 1, byte 1 flags (1 = gzip). */
#include "base/strbuf.h"
#include "format/format_bytes.h"
#include "format/gzip_inflate.h"
#include "format/json_push.h"
#include "format/stream_in.h"
#include "format/stream_out.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TAR_LAYOUT_VERSION 1
#define TAR_GZIP 1
#define BLOCK 512u
#define NAME_MAX_BYTES 4096u
#define EXTENDED_MAX MR_STREAM_IN_MAX           /* pax and long-name members */
#define LABEL_MAX 4096u                         /* .cls and .json parts that are looked into */
#define OCTAL_SIZE_MAX ((uint64_t)077777777777) /* 8 GiB - 1: beyond, a pax header carries the size */

typedef unsigned long long ull;

/* ---- header blocks ---- */

enum {
    NAME_AT = 0,
    NAME_LEN = 100,
    MODE_AT = 100,
    UID_AT = 108,
    GID_AT = 116,
    SIZE_AT = 124,
    SIZE_LEN = 12,
    MTIME_AT = 136,
    SUM_AT = 148,
    SUM_LEN = 8,
    TYPE_AT = 156,
    MAGIC_AT = 257,
    PREFIX_AT = 345,
    PREFIX_LEN = 155
};

/* The checksum counts its own field as blanks. Old writers summed signed bytes. */
static bool checksum_fits(const uint8_t h[BLOCK], unsigned *want_out, unsigned *have_out)
{
    unsigned sum = 0, want = 0;
    int signed_sum = 0;
    for (unsigned i = 0; i < BLOCK; i++) {
        uint8_t c = i >= SUM_AT && i < SUM_AT + SUM_LEN ? ' ' : h[i];
        sum += c;
        signed_sum += (int8_t)c;
    }
    unsigned i = SUM_AT;
    while (i < SUM_AT + SUM_LEN && h[i] == ' ')
        i++;
    for (; i < SUM_AT + SUM_LEN && h[i] >= '0' && h[i] <= '7'; i++)
        want = want * 8 + (h[i] - '0');
    *want_out = want;
    *have_out = sum;
    return want == sum || (int)want == signed_sum;
}

static bool parse_size(const uint8_t *p, uint64_t *out)
{
    uint64_t v = 0;
    if (*p & 0x80) { /* GNU: big-endian binary */
        for (unsigned i = 0; i < SIZE_LEN; i++) {
            uint8_t c = i ? p[i] : p[i] & 0x7f;
            if (v >> 56)
                return false;
            v = v << 8 | c;
        }
        *out = v;
        return true;
    }
    unsigned i = 0, digits = 0;
    while (i < SIZE_LEN && p[i] == ' ')
        i++;
    for (; i < SIZE_LEN && p[i] >= '0' && p[i] <= '7'; i++, digits++)
        v = v * 8 + (p[i] - '0');
    *out = v;
    return (digits || i == 0 || !p[i]) && (i == SIZE_LEN || p[i] == 0 || p[i] == ' ');
}

/* ---- writing ---- */

struct tar_writer {
    struct mr_writer base;
    struct mr_stream_out *out;
    struct mr_sample_info info;
    uint64_t start, written;
    bool gzip;
};

static void put_octal(uint8_t *p, unsigned len, uint64_t v)
{
    p[len - 1] = 0;
    for (unsigned i = len - 1; i-- > 0; v >>= 3)
        p[i] = (uint8_t)('0' + (v & 7));
}

static int put_header(struct mr_stream_out *o, const char *name, uint64_t size, char type, struct mr_error *err)
{
    uint8_t h[BLOCK] = {0};
    unsigned sum = 0;
    memcpy(h + NAME_AT, name, MR_MIN(strlen(name), (size_t)NAME_LEN));
    put_octal(h + MODE_AT, 8, 0644);
    put_octal(h + UID_AT, 8, 0);
    put_octal(h + GID_AT, 8, 0);
    put_octal(h + SIZE_AT, SIZE_LEN, size <= OCTAL_SIZE_MAX ? size : 0);
    put_octal(h + MTIME_AT, 12, 0); /* constant, so that equal data sets are equal files */
    memset(h + SUM_AT, ' ', SUM_LEN);
    h[TYPE_AT] = (uint8_t)type;
    memcpy(h + MAGIC_AT,
           "ustar\0"
           "00",
           8);
    for (unsigned i = 0; i < BLOCK; i++)
        sum += h[i];
    put_octal(h + SUM_AT, 7, sum);
    return mr_stream_out_put(o, h, BLOCK, err);
}

static int put_padding(struct mr_stream_out *o, uint64_t size, struct mr_error *err)
{
    return mr_stream_out_zeros(o, (size_t)(MR_ALIGN_UP(size, BLOCK) - size), err);
}

/* A pax header "LEN size=N\n", where LEN counts the whole line with itself. */
static int put_pax_size(struct mr_stream_out *o, uint64_t size, struct mr_error *err)
{
    char body[64], line[80];
    int body_len = snprintf(body, sizeof body, " size=%llu\n", (ull)size);
    int len = snprintf(line, sizeof line, "%d%s", body_len + 2, body);
    int rc = put_header(o, "PaxHeader", (uint64_t)len, 'x', err);
    if (rc >= 0)
        rc = mr_stream_out_put(o, line, (size_t)len, err);
    return rc < 0 ? rc : put_padding(o, (uint64_t)len, err);
}

static int tar_writer_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                           struct mr_writer **out, struct mr_error *err)
{
    struct tar_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    w->gzip = spec->compression == MR_COMP_GZIP;
    int rc = mr_stream_out_open(s, path, spec->compression, spec->compression_level, 0, &w->out, err);
    if (rc < 0) {
        free(w);
        return rc;
    }
    *out = &w->base;
    return 0;
}

static int tar_sample_begin(struct mr_writer *base, const struct mr_sample_info *info, struct mr_error *err)
{
    struct tar_writer *w = (struct tar_writer *)base;
    char name[NAME_LEN];
    int rc = 0;
    snprintf(name, sizeof name, "%09llu.bin", (ull)info->id);
    if (info->bytes > OCTAL_SIZE_MAX)
        rc = put_pax_size(w->out, info->bytes, err);
    if (rc >= 0)
        rc = put_header(w->out, name, info->bytes, '0', err);
    w->info = *info;
    w->start = mr_stream_out_position(w->out);
    w->written = 0;
    return rc;
}

static void *tar_sample_room(struct mr_writer *base, size_t len)
{
    return mr_stream_out_here(((struct tar_writer *)base)->out, len);
}

static int tar_sample_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct tar_writer *w = (struct tar_writer *)base;
    w->written += len;
    return mr_stream_out_put(w->out, data, len, err);
}

static int put_label(struct tar_writer *w, struct mr_error *err)
{
    char name[NAME_LEN], text[32];
    snprintf(name, sizeof name, "%09llu.cls", (ull)w->info.id);
    int len = snprintf(text, sizeof text, "%lld", (long long)w->info.label);
    int rc = put_header(w->out, name, (uint64_t)len, '0', err);
    if (rc >= 0)
        rc = mr_stream_out_put(w->out, text, (size_t)len, err);
    return rc < 0 ? rc : put_padding(w->out, (uint64_t)len, err);
}

static int tar_sample_end(struct mr_writer *base, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct tar_writer *w = (struct tar_writer *)base;
    int rc = mr_format_check_written(&w->info, w->written, err);
    if (rc >= 0)
        rc = put_padding(w->out, w->written, err);
    if (rc >= 0 && w->info.label != MR_LABEL_NONE)
        rc = put_label(w, err);
    if (rc < 0)
        return rc;
    *ref = (struct mr_sample_ref){.raw = {w->start, w->written}, .label = w->info.label};
    return 0;
}

static void tar_writer_abort(struct mr_writer *base)
{
    struct tar_writer *w = (struct tar_writer *)base;
    if (!w)
        return;
    mr_stream_out_abort(w->out);
    free(w);
}

static int tar_layout(bool gzip, struct mr_layout *layout, struct mr_error *err)
{
    return mr_layout_make((uint8_t[]){TAR_LAYOUT_VERSION, gzip ? TAR_GZIP : 0}, 2, layout, err);
}

static int tar_writer_close(struct mr_writer *base, struct mr_layout *layout, uint64_t *file_bytes,
                            struct mr_error *err)
{
    struct tar_writer *w = (struct tar_writer *)base;
    struct mr_layout made = {0};
    uint64_t bytes = 0;
    bool gzip = w->gzip;
    int rc = mr_stream_out_zeros(w->out, 2 * BLOCK, err);
    if (rc < 0)
        mr_stream_out_abort(w->out);
    else
        rc = mr_stream_out_close(w->out, &bytes, err);
    free(w);
    if (rc >= 0)
        rc = tar_layout(gzip, &made, err);
    if (rc < 0)
        return rc;
    *layout = made;
    *file_bytes = bytes;
    return 0;
}

/* ---- finding ---- */

struct part {
    bool present;
    unsigned rank;
    struct mr_extent data;
};

struct tar_scan {
    struct mr_stream_in in;
    mr_scan_fn *fn;
    void *user;
    struct mr_error *err;
    uint64_t at;
    bool size_given; /* by a pax header for the next member */
    uint64_t pax_size;
    char long_name[NAME_MAX_BYTES + 1]; /* from a pax or GNU header for the next member, or empty */
    char name[NAME_MAX_BYTES + 1];
    char key[NAME_MAX_BYTES + 1];
    bool open; /* a sample is being gathered */
    struct part payload, label;
    bool label_json;
    char seen[32][16]; /* extensions of the sample's parts, to catch duplicates */
    unsigned n_seen;
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

static int bad_member(struct tar_scan *t, uint64_t at, const char *what)
{
    char q[160];
    return mr_error_plain(t->err, MR_E_FORMAT, "member '%s' at offset %llu of '%s': %s", quoted(t->name, q), (ull)at,
                          t->in.path, what);
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

static const char *const payload_extensions[] = {"jpg", "jpeg", "png", "webp", "ppm", "pgm", "bmp",
                                                 "tif", "tiff", "npy", "npz",  "pth", "pt",  "bin",
                                                 "raw", "flac", "wav", "mp3",  "mp4", "avi"};
static const char *const side_extensions[] = {"cls", "json",       "txt",  "index", "inx",
                                              "id",  "transcript", "text", "yaml",  "xml"};

static unsigned find_extension(const char *ext, const char *const *list, unsigned n)
{
    const char *last = strrchr(ext, '.');
    last = last ? last + 1 : ext;
    for (unsigned i = 0; i < n; i++)
        if (strcasecmp(last, list[i]) == 0)
            return i;
    return n;
}

static unsigned payload_rank(const char *ext)
{
    const unsigned known = MR_ARRAY_LEN(payload_extensions), side = MR_ARRAY_LEN(side_extensions);
    unsigned r = find_extension(ext, payload_extensions, known);
    if (r < known)
        return r;
    r = find_extension(ext, side_extensions, side);
    return r == side ? known : known + 1 + r;
}

struct json_label {
    bool in_label;
    int64_t label;
};

static int json_label_token(void *user, const struct mr_json_token *t, struct mr_error *err)
{
    struct json_label *l = user;
    (void)err;
    if (t->depth != 1)
        return 0;
    if (t->event == MR_PUSH_KEY) {
        l->in_label = t->len == 5 && memcmp(t->text, "label", 5) == 0;
    } else {
        int64_t v;
        if (l->in_label && t->event == MR_PUSH_NUMBER && mr_number_to_int64(t->number, &v))
            l->label = v;
        l->in_label = false;
    }
    return 0;
}

/* The label from a .cls or .json part. A part that holds none is not an error: WebDataset users put anything there. */
static int read_label(struct tar_scan *t, int64_t *out)
{
    const uint8_t *p;
    struct json_label l = {.label = MR_LABEL_NONE};
    *out = MR_LABEL_NONE;
    if (!t->label.present || t->label.data.length == 0 || t->label.data.length > LABEL_MAX)
        return 0;
    size_t n = (size_t)t->label.data.length;
    int rc = mr_stream_in_get(&t->in, t->label.data.offset, n, &p, t->err);
    if (rc < 0)
        return rc;
    if (t->label_json) {
        struct mr_json j;
        mr_json_init(&j, false, 0, json_label_token, &l);
        if (mr_json_feed(&j, p, n, NULL) >= 0 && mr_json_end(&j, NULL) >= 0)
            *out = l.label;
        return 0;
    }
    struct mr_number num;
    while (n && (p[n - 1] == '\n' || p[n - 1] == '\r' || p[n - 1] == ' '))
        n--;
    if (n && mr_number_lex((const char *)p, (const char *)p + n, false, &num) == n &&
        mr_number_to_int64(&num, &l.label))
        *out = l.label;
    return 0;
}

static int flush_sample(struct tar_scan *t)
{
    if (!t->open)
        return 0;
    struct mr_sample_ref ref = {.raw = t->payload.data};
    int rc = read_label(t, &ref.label);
    if (rc < 0)
        return rc;
    t->open = false;
    t->payload = t->label = (struct part){0};
    t->label_json = false;
    t->n_seen = 0;
    return t->fn(t->user, &ref, t->key, t->err);
}

static int note_extension(struct tar_scan *t, const char *ext, uint64_t at)
{
    size_t n = strlen(ext);
    if (n >= sizeof t->seen[0])
        return 0;
    for (unsigned i = 0; i < t->n_seen; i++)
        if (strcmp(t->seen[i], ext) == 0)
            return bad_member(t, at, "appears twice in its sample");
    if (t->n_seen < MR_ARRAY_LEN(t->seen))
        memcpy(t->seen[t->n_seen++], ext, n + 1);
    return 0;
}

static int add_part(struct tar_scan *t, uint64_t header_at, struct mr_extent data)
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
    if (!t->open || strlen(t->key) != key_len || memcmp(t->key, name, key_len) != 0) {
        int rc = flush_sample(t);
        if (rc < 0)
            return rc;
        memcpy(t->key, name, key_len);
        t->key[key_len] = 0;
        t->open = true;
    }
    const char *ext = dot + 1;
    int rc = note_extension(t, ext, header_at);
    if (rc < 0)
        return rc;
    unsigned rank = payload_rank(ext);
    if (!t->payload.present || rank < t->payload.rank)
        t->payload = (struct part){true, rank, data};
    bool cls = strcasecmp(ext, "cls") == 0, json = strcasecmp(ext, "json") == 0;
    if (cls || (json && !t->label.present)) {
        t->label = (struct part){.present = true, .data = data};
        t->label_json = json;
    }
    return 0;
}

/* "LEN key=value\n" lines; only path and size matter. */
static int read_pax(struct tar_scan *t, const char *p, size_t n, uint64_t at)
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

static int read_extended(struct tar_scan *t, char type, uint64_t at, struct mr_extent data)
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
static void take_name(struct tar_scan *t, const uint8_t h[BLOCK])
{
    size_t n = 0;
    if (t->long_name[0]) {
        n = strlen(t->long_name);
        memcpy(t->name, t->long_name, n);
    } else {
        if (memcmp(h + MAGIC_AT, "ustar\0", 6) == 0 && h[PREFIX_AT]) {
            n = strnlen((const char *)h + PREFIX_AT, PREFIX_LEN);
            memcpy(t->name, h + PREFIX_AT, n);
            t->name[n++] = '/';
        }
        size_t m = strnlen((const char *)h + NAME_AT, NAME_LEN);
        memcpy(t->name + n, h + NAME_AT, m);
        n += m;
    }
    t->name[n] = 0;
}

/* One member: header at t->at, which moves to the next. */
static int scan_member(struct tar_scan *t, const uint8_t *h)
{
    uint64_t at = t->at, size = 0;
    char type = (char)h[TYPE_AT];
    bool extended = type == 'x' || type == 'g' || type == 'L' || type == 'K';
    unsigned want, have;
    if (!checksum_fits(h, &want, &have)) {
        mr_error_plain(t->err, MR_E_CORRUPT, "header at offset %llu of '%s': checksum differs (want %u, have %u)",
                       (ull)at, t->in.path, want, have);
        return mr_error_hint(t->err, "the file is damaged there or is no tar archive"), MR_E_CORRUPT;
    }
    bool sized = parse_size(h + SIZE_AT, &size);
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
    uint64_t left = t->in.size - at - BLOCK;
    if (size > left)
        return mr_error_plain(
            t->err, MR_E_FORMAT,
            "member at offset %llu of '%s': unexpected end of file (want %llu bytes at %llu, file has %llu)", (ull)at,
            t->in.path, (ull)size, (ull)(at + BLOCK), (ull)t->in.size);
    struct mr_extent data = {at + BLOCK, size};
    uint64_t padded = MR_ALIGN_UP(size, BLOCK);
    t->at = padded > left ? t->in.size : at + BLOCK + padded;
    if (extended)
        return type == 'K' ? 0 : read_extended(t, type, at, data);
    t->long_name[0] = 0;
    t->size_given = false;
    if (!regular)
        return 0;
    if (!name_is_safe(t->name))
        return bad_member(t, at, "its name leaves the archive's folder");
    return add_part(t, at, data);
}

static bool is_zero_block(const uint8_t *h)
{
    for (unsigned i = 0; i < BLOCK; i++)
        if (h[i])
            return false;
    return true;
}

static int scan_members(struct tar_scan *t)
{
    const uint8_t *h;
    for (;;) {
        if (t->in.size - t->at < BLOCK) {
            mr_error_plain(t->err, MR_E_FORMAT,
                           "'%s' is cut short: no end-of-archive block before the end of the file at %llu", t->in.path,
                           (ull)t->in.size);
            return mr_error_hint(t->err, "copy or write the archive again"), MR_E_FORMAT;
        }
        int rc = mr_stream_in_get(&t->in, t->at, BLOCK, &h, t->err);
        if (rc < 0)
            return rc;
        if (is_zero_block(h))
            return flush_sample(t);
        rc = scan_member(t, h);
        if (rc < 0)
            return rc;
    }
}

static int tar_scan(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                    struct mr_error *err)
{
    struct tar_scan *t = calloc(1, sizeof(*t));
    if (!t)
        return mr_error_set(err, -ENOMEM, "cannot scan '%s'", path);
    *t = (struct tar_scan){.fn = fn, .user = user, .err = err};
    int rc = mr_stream_in_open(s, path, NULL, &t->in, err);
    if (rc >= 0) {
        rc = scan_members(t);
        if (rc >= 0)
            rc = tar_layout(t->in.gzip, layout, err);
        mr_stream_in_close(&t->in);
    }
    free(t);
    return rc < 0 ? rc : 0;
}

/* ---- reading ---- */

static int check_layout(const struct mr_layout *layout, bool *gzip, struct mr_error *err)
{
    const uint8_t *p = layout->data;
    if (layout->len != 2 || p[0] != TAR_LAYOUT_VERSION || p[1] > TAR_GZIP)
        return mr_error_plain(err, MR_E_FORMAT, "bad layout of a tar file (want 2 bytes of version %d, have %zu bytes)",
                              TAR_LAYOUT_VERSION, layout->len);
    *gzip = p[1] & TAR_GZIP;
    return 0;
}

static int tar_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    bool gzip = false;
    int rc = check_layout(layout, &gzip, err);
    if (rc < 0)
        return rc;
    *out = (struct mr_read_cost){
        .access = gzip ? MR_ACCESS_UNPACK : MR_ACCESS_RANGE,
        .bytes_read_per_payload_byte = 1.0,
        .verbatim = !gzip,
        .note = gzip ? "gzip: the whole file is inflated once" : "one range per sample, nothing to decode",
    };
    return 0;
}

static int tar_unpack(const struct mr_layout *layout, const void *raw, size_t len, void **out, size_t *out_len,
                      struct mr_error *err)
{
    bool gzip = false;
    int rc = check_layout(layout, &gzip, err);
    if (rc < 0)
        return rc;
    return gzip ? mr_gzip_inflate(raw, len, out, out_len, err)
                : mr_format_no_unpack(layout, raw, len, out, out_len, err);
}

const struct mr_format_ops mr_format_tar = {
    .abi = MR_FORMAT_ABI,
    .size = sizeof(struct mr_format_ops),
    .name = "tar",
    .doc = "Tar shards as WebDataset's: KEY.bin and KEY.cls per sample; foreign ones by their extensions; optionally "
           "gzip.",
    .extensions = ".tar,.tar.gz,.tgz",
    .caps = MR_FMT_MULTI | MR_FMT_VARSIZE | MR_FMT_LABEL | MR_FMT_VERBATIM,
    .shape = mr_format_shape_flat,
    .synth = mr_format_synth_content,
    .check = mr_format_check_equal,
    .writer_open = tar_writer_open,
    .sample_begin = tar_sample_begin,
    .sample_data = tar_sample_data,
    .sample_room = tar_sample_room,
    .sample_end = tar_sample_end,
    .writer_close = tar_writer_close,
    .writer_abort = tar_writer_abort,
    .side_suffixes = "",
    .scan = tar_scan,
    .cost = tar_cost,
    .unpack = tar_unpack,
    .plan = mr_format_plan_single,
    .decode = mr_format_decode_bytes,
};
