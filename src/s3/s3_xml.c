/* XML of S3: see s3_xml.h. Must stay true: at <= end; text_len < text_cap; every event moves `at` forward, or ends. */
#include "s3/s3_xml.h"
#include "base/common.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEY_MAX 3200 /* 1,024 bytes of a key, each as %XX */

void mr_s3_xml_init(struct mr_s3_xml *x, const char *data, size_t len, char *text, size_t cap)
{
    *x = (struct mr_s3_xml){.at = data, .end = data + len, .text = text, .text_cap = cap};
    text[0] = '\0';
}

static void put_text(struct mr_s3_xml *x, const char *s, size_t n)
{
    n = MR_MIN(n, x->text_cap - 1 - x->text_len);
    memcpy(x->text + x->text_len, s, n);
    x->text_len += n;
    x->text[x->text_len] = '\0';
}

static void put_code_point(struct mr_s3_xml *x, unsigned long c)
{
    char b[4];
    size_t n = 0;
    if (c == 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        c = 0xfffd;
    if (c < 0x80) {
        b[n++] = (char)c;
    } else if (c < 0x800) {
        b[n++] = (char)(0xc0 | c >> 6);
        b[n++] = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        b[n++] = (char)(0xe0 | c >> 12);
        b[n++] = (char)(0x80 | (c >> 6 & 63));
        b[n++] = (char)(0x80 | (c & 63));
    } else {
        b[n++] = (char)(0xf0 | c >> 18);
        b[n++] = (char)(0x80 | (c >> 12 & 63));
        b[n++] = (char)(0x80 | (c >> 6 & 63));
        b[n++] = (char)(0x80 | (c & 63));
    }
    put_text(x, b, n);
}

/* &amp; and its kin, at x->at. What is none of them stays as it is. */
static void take_entity(struct mr_s3_xml *x)
{
    static const struct {
        const char *name;
        char c;
    } known[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    size_t left = (size_t)(x->end - x->at);
    for (size_t i = 0; i < MR_ARRAY_LEN(known); i++) {
        size_t n = strlen(known[i].name);
        if (left >= n && memcmp(x->at, known[i].name, n) == 0) {
            put_text(x, &known[i].c, 1);
            x->at += n;
            return;
        }
    }
    const char *semi = memchr(x->at, ';', MR_MIN(left, (size_t)12));
    if (semi && left > 3 && x->at[1] == '#') {
        char number[12];
        bool hex = x->at[2] == 'x';
        snprintf(number, sizeof number, "%.*s", (int)(semi - x->at - 2 - hex), x->at + 2 + hex);
        put_code_point(x, strtoul(number, NULL, hex ? 16 : 10));
        x->at = semi + 1;
        return;
    }
    put_text(x, x->at++, 1);
}

/* Behind `mark`, or the end. */
static void skip_past(struct mr_s3_xml *x, const char *mark)
{
    const char *found = memmem(x->at, (size_t)(x->end - x->at), mark, strlen(mark));
    x->at = found ? found + strlen(mark) : x->end;
}

static bool starts(const struct mr_s3_xml *x, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(x->end - x->at) >= n && memcmp(x->at, text, n) == 0;
}

static bool is_name_end(char c)
{
    return c == '>' || c == '/' || c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The name at x->at, without its name space. */
static void take_name(struct mr_s3_xml *x)
{
    const char *from = x->at;
    while (x->at < x->end && !is_name_end(*x->at))
        if (*x->at++ == ':')
            from = x->at;
    snprintf(x->name, sizeof x->name, "%.*s", (int)MR_MIN(x->at - from, (ptrdiff_t)sizeof x->name - 1), from);
}

static enum mr_s3_xml_event take_tag(struct mr_s3_xml *x)
{
    bool closing = starts(x, "</");
    x->at += closing ? 2 : 1;
    take_name(x);
    const char *end = memchr(x->at, '>', (size_t)(x->end - x->at));
    if (!end)
        return MR_XML_BAD;
    x->empty = !closing && end > x->at && end[-1] == '/';
    x->at = end + 1;
    if (closing) {
        if (x->depth == 0)
            return MR_XML_BAD;
        x->depth--;
        return MR_XML_CLOSE;
    }
    x->depth++;
    x->text_len = 0;
    x->text[0] = '\0';
    return MR_XML_OPEN;
}

enum mr_s3_xml_event mr_s3_xml_next(struct mr_s3_xml *x)
{
    if (x->empty) {
        x->empty = false;
        x->depth--;
        return MR_XML_CLOSE;
    }
    while (x->at < x->end) {
        if (*x->at == '&') {
            take_entity(x);
        } else if (*x->at != '<') {
            put_text(x, x->at++, 1);
        } else if (starts(x, "<?")) {
            skip_past(x, "?>");
        } else if (starts(x, "<!--")) {
            skip_past(x, "-->");
        } else if (starts(x, "<!")) {
            return MR_XML_BAD;
        } else {
            return take_tag(x);
        }
    }
    return x->depth ? MR_XML_BAD : MR_XML_END;
}

bool mr_s3_xml_find(const char *data, size_t len, const char *name, char *out, size_t cap)
{
    struct mr_s3_xml x;
    mr_s3_xml_init(&x, data, len, out, cap);
    for (enum mr_s3_xml_event e; (e = mr_s3_xml_next(&x)) == MR_XML_OPEN || e == MR_XML_CLOSE;)
        if (e == MR_XML_CLOSE && strcmp(x.name, name) == 0)
            return true;
    out[0] = '\0';
    return false;
}

uint64_t mr_s3_parse_time(const char *text)
{
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    time_t t = end ? timegm(&tm) : 0;
    return t > 0 ? (uint64_t)t : 0;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

void mr_s3_url_decode(char *text)
{
    char *to = text;
    for (const char *p = text; *p; p++) {
        int a = *p == '%' ? hex_digit(p[1]) : -1, b = a >= 0 ? hex_digit(p[2]) : -1;
        if (b >= 0 && (a || b)) { /* a key has no NUL */
            *to++ = (char)(a << 4 | b);
            p += 2;
        } else { /* AWS and MinIO write a space as '+', and a '+' as %2B */
            *to++ = *p == '+' ? ' ' : *p;
        }
    }
    *to = '\0';
}

/* What both listings gather of one entry. */
struct entry {
    char key[KEY_MAX], tag[1200];
    struct mr_s3_entry e;
    bool url_encoded;
};

static void gather(struct entry *n, const struct mr_s3_xml *x)
{
    if (!strcmp(x->name, "Key") || !strcmp(x->name, "Prefix"))
        snprintf(n->key, sizeof n->key, "%s", x->text);
    else if (!strcmp(x->name, "ETag") || !strcmp(x->name, "UploadId"))
        snprintf(n->tag, sizeof n->tag, "%s", x->text);
    else if (!strcmp(x->name, "Size"))
        n->e.bytes = strtoull(x->text, NULL, 10);
    else if (!strcmp(x->name, "LastModified") || !strcmp(x->name, "Initiated"))
        n->e.mtime_s = mr_s3_parse_time(x->text);
}

static int give(struct entry *n, bool is_prefix, mr_s3_entry_fn *fn, void *user)
{
    if (n->url_encoded)
        mr_s3_url_decode(n->key);
    n->e.key = n->key;
    n->e.etag = n->tag;
    n->e.is_prefix = is_prefix;
    int rc = n->key[0] ? fn(user, &n->e) : 0;
    n->key[0] = n->tag[0] = '\0';
    n->e = (struct mr_s3_entry){0};
    return rc;
}

/* Keys come URL-encoded where the answer says so, which may stand behind them: looked for before. */
static bool is_url_encoded(const char *data, size_t len)
{
    char text[16];
    return mr_s3_xml_find(data, len, "EncodingType", text, sizeof text) && strcmp(text, "url") == 0;
}

struct page {
    const char *root, *item; /* element names */
    struct {
        const char *name;
        char *out;
        size_t cap;
    } marker[2];
    bool truncated;
};

static int read_page(const char *data, size_t len, struct page *p, mr_s3_entry_fn *fn, void *user)
{
    struct mr_s3_xml x;
    struct entry n = {.url_encoded = is_url_encoded(data, len)};
    char text[KEY_MAX];
    enum mr_s3_xml_event e;
    bool in_item = false, in_prefix = false, rooted = false;
    int rc = 0;
    mr_s3_xml_init(&x, data, len, text, sizeof text);
    while (!rc && ((e = mr_s3_xml_next(&x)) == MR_XML_OPEN || e == MR_XML_CLOSE)) {
        bool open = e == MR_XML_OPEN, item = !strcmp(x.name, p->item), prefix = !strcmp(x.name, "CommonPrefixes");
        if (open && x.depth == 1)
            rooted = !strcmp(x.name, p->root);
        if (item || prefix) {
            in_item = item && open;
            in_prefix = prefix && open;
            rc = open ? 0 : give(&n, prefix, fn, user);
        } else if (!open && (in_item || in_prefix)) {
            gather(&n, &x);
        } else if (!open && !strcmp(x.name, "IsTruncated")) {
            p->truncated = !strcmp(x.text, "true");
        } else if (!open) {
            for (int i = 0; i < 2; i++)
                if (p->marker[i].name && !strcmp(x.name, p->marker[i].name))
                    snprintf(p->marker[i].out, p->marker[i].cap, "%s", x.text);
        }
    }
    return rc ? rc : e == MR_XML_BAD || !rooted ? -EBADMSG : 0;
}

int mr_s3_xml_listing(const char *data, size_t len, mr_s3_entry_fn *fn, void *user, char *token, size_t cap)
{
    struct page p = {.root = "ListBucketResult", .item = "Contents", .marker = {{"NextContinuationToken", token, cap}}};
    token[0] = '\0';
    int rc = read_page(data, len, &p, fn, user);
    if (!p.truncated)
        token[0] = '\0';
    return rc;
}

int mr_s3_xml_uploads(const char *data, size_t len, mr_s3_entry_fn *fn, void *user, char *key_marker, size_t key_cap,
                      char *id_marker, size_t id_cap)
{
    struct page p = {.root = "ListMultipartUploadsResult",
                     .item = "Upload",
                     .marker = {{"NextKeyMarker", key_marker, key_cap}, {"NextUploadIdMarker", id_marker, id_cap}}};
    key_marker[0] = id_marker[0] = '\0';
    int rc = read_page(data, len, &p, fn, user);
    if (is_url_encoded(data, len))
        mr_s3_url_decode(key_marker);
    if (!p.truncated)
        key_marker[0] = id_marker[0] = '\0';
    return rc;
}
