/* Calls: see s3_calls.h. Query strings are written in the order of their names, which signing wants. */
#include "s3/s3_calls.h"
#include "base/common.h"
#include "base/vec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_TEXT (3 * MR_S3_KEY_MAX + 1)
#define DELETE_AT_ONCE 1000

static int bad_answer(const char *bucket, const char *what, struct mr_error *err)
{
    mr_error_plain(err, -EPROTO, "cannot %s 's3://%s': the answer is not S3's", what, bucket);
    return mr_error_hint(err, "is the endpoint an S3 server? 'millrace doctor' shows what is used"), -EPROTO;
}

int mr_s3_head(struct mr_s3_client *c, const char *bucket, const char *key, struct mr_s3_object_info *out,
               struct mr_error *err)
{
    struct mr_s3_op op = {.verb = MR_S3_HEAD, .bucket = bucket, .key = key, .verb_text = "open"};
    int rc = mr_s3_run(c, &op, err);
    if (rc && rc != -ENOENT && op.status >= 400) { /* an answer to HEAD has no body: GET brings the server's words */
        char one;
        bool is_late = op.status >= 500 || op.status == 429 || op.status == 408; /* HEAD took its deadline: no more */
        mr_s3_op_done(&op);
        op = (struct mr_s3_op){.verb = MR_S3_GET,
                               .bucket = bucket,
                               .key = key,
                               .ranged = true,
                               .place = &one,
                               .room = 1,
                               .once = is_late,
                               .verb_text = "open"};
        rc = mr_s3_run(c, &op, err);
    }
    if (!rc && *key && !*op.etag)
        rc = bad_answer(bucket, "open an object of", err);
    if (!rc) {
        *out = (struct mr_s3_object_info){.bytes = op.total, .mtime_s = op.mtime_s};
        memcpy(out->etag, op.etag, sizeof out->etag);
    }
    mr_s3_op_done(&op);
    return rc;
}

/* Counts entries, and stops at the most that are wanted. */
struct limited {
    mr_s3_entry_fn *fn;
    void *user;
    uint64_t left;
    int result;
    bool full;
};

static int pass_on(void *user, const struct mr_s3_entry *e)
{
    struct limited *l = user;
    if (l->left == 0) {
        l->full = true;
        return 1;
    }
    l->left--;
    l->result = l->fn(l->user, e);
    return l->result;
}

static bool list_query(char *out, size_t cap, const char *token, const char *prefix, const char *delimiter,
                       uint64_t most)
{
    char t[3 * 1024], p[KEY_TEXT], d[16];
    if (!mr_s3_encode(token, false, t, sizeof t) || !mr_s3_encode(prefix, false, p, sizeof p) ||
        !mr_s3_encode(delimiter, false, d, sizeof d))
        return false;
    int n = snprintf(out, cap, "%s%s%s%s%s%sencoding-type=url&list-type=2&max-keys=%llu&prefix=%s",
                     *t ? "continuation-token=" : "", t, *t ? "&" : "", *d ? "delimiter=" : "", d, *d ? "&" : "",
                     (unsigned long long)(most ? MR_MIN(most, 1000u) : 1000u), p);
    return n > 0 && (size_t)n < cap;
}

int mr_s3_list(struct mr_s3_client *c, const char *bucket, const char *prefix, const char *delimiter, uint64_t most,
               mr_s3_entry_fn *fn, void *user, struct mr_error *err)
{
    char token[1024] = "", before[1024], query[8192];
    struct limited l = {.fn = fn, .user = user, .left = most ? most : UINT64_MAX};
    int rc = 0;
    do {
        if (!list_query(query, sizeof query, token, prefix, delimiter, most))
            return mr_error_set(err, -ENAMETOOLONG, "cannot list 's3://%s/%s'", bucket, prefix);
        struct mr_s3_op op = {.verb = MR_S3_GET, .bucket = bucket, .key = "", .query = query, .verb_text = "list"};
        rc = mr_s3_run(c, &op, err);
        if (!rc) {
            memcpy(before, token, sizeof before);
            rc = mr_s3_xml_listing(op.text.text ? op.text.text : "", op.text.len, pass_on, &l, token, sizeof token);
            if (!rc && *token && !strcmp(before, token)) /* the same page again would never end */
                rc = -EBADMSG;
            if (rc == -EBADMSG && !l.result)
                rc = bad_answer(bucket, "list", err);
        }
        mr_s3_op_done(&op);
    } while (!rc && *token);
    return l.full ? 0 : rc;
}

int mr_s3_delete(struct mr_s3_client *c, const char *bucket, const char *key, struct mr_error *err)
{
    struct mr_s3_op op = {.verb = MR_S3_DELETE, .bucket = bucket, .key = key, .verb_text = "remove"};
    int rc = mr_s3_run(c, &op, err);
    mr_s3_op_done(&op);
    return rc;
}

static void put_escaped(struct mr_strbuf *b, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '&': mr_strbuf_puts(b, "&amp;"); break;
        case '<': mr_strbuf_puts(b, "&lt;"); break;
        case '>': mr_strbuf_puts(b, "&gt;"); break;
        case '\r': mr_strbuf_puts(b, "&#13;"); break;
        default: mr_strbuf_putc(b, *text);
        }
}

static int delete_some(struct mr_s3_client *c, const char *bucket, const char *const *key, size_t n,
                       struct mr_error *err)
{
    struct mr_strbuf body = {0};
    char why[256], code[64];
    mr_strbuf_puts(&body, "<Delete><Quiet>true</Quiet>");
    for (size_t i = 0; i < n; i++) {
        mr_strbuf_puts(&body, "<Object><Key>");
        put_escaped(&body, key[i]);
        mr_strbuf_puts(&body, "</Key></Object>");
    }
    mr_strbuf_puts(&body, "</Delete>");
    if (body.failed)
        return mr_error_set(err, -ENOMEM, "cannot remove %zu objects", n);
    struct mr_s3_op op = {.verb = MR_S3_POST,
                          .bucket = bucket,
                          .key = "",
                          .query = "delete=",
                          .body = body.text,
                          .body_bytes = body.len,
                          .needs_md5 = true,
                          .verb_text = "remove objects of"};
    int rc = mr_s3_run(c, &op, err);
    const char *text = op.text.text ? op.text.text : "";
    if (!rc && mr_s3_xml_find(text, op.text.len, "Code", code, sizeof code)) {
        mr_s3_xml_find(text, op.text.len, "Message", why, sizeof why);
        rc = mr_error_plain(err, -EACCES, "cannot remove objects of 's3://%s': %s: %s", bucket, code, why);
    }
    mr_s3_op_done(&op);
    mr_strbuf_done(&body);
    return rc;
}

int mr_s3_delete_many(struct mr_s3_client *c, const char *bucket, const char *const *key, size_t n,
                      struct mr_error *err)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < n; i += DELETE_AT_ONCE)
        rc = delete_some(c, bucket, key + i, MR_MIN(n - i, (size_t)DELETE_AT_ONCE), err);
    return rc;
}

int mr_s3_abort(struct mr_s3_client *c, const char *bucket, const char *key, const char *upload, struct mr_error *err)
{
    char query[3 * 1200 + 16], id[3 * 1200];
    mr_s3_encode(upload, false, id, sizeof id);
    snprintf(query, sizeof query, "uploadId=%s", id);
    struct mr_s3_op op = {.verb = MR_S3_DELETE, .bucket = bucket, .key = key, .query = query, .verb_text = "abort"};
    int rc = mr_s3_run(c, &op, err);
    mr_s3_op_done(&op);
    return rc == -ENOENT ? 0 : rc; /* it is gone */
}

struct uploads {
    struct upload {
        char *key, *id;
    } * item;
    size_t n, cap;
};

static int collect_upload(void *user, const struct mr_s3_entry *e)
{
    struct uploads *u = user;
    if (e->is_prefix)
        return 0;
    if (mr_vec_reserve(&u->item, &u->cap, u->n + 1, sizeof(*u->item)) < 0)
        return -ENOMEM;
    struct upload *one = &u->item[u->n++];
    *one = (struct upload){strdup(e->key), strdup(e->etag)};
    return one->key && one->id ? 0 : -ENOMEM;
}

static int list_uploads(struct mr_s3_client *c, const char *bucket, const char *prefix, struct uploads *u,
                        struct mr_error *err)
{
    char query[8192 + 4096], key[KEY_TEXT] = "", id[1200] = "", p[KEY_TEXT], k[KEY_TEXT], i[3 * 1200];
    int rc = 0;
    do {
        mr_s3_encode(prefix, false, p, sizeof p);
        mr_s3_encode(key, false, k, sizeof k);
        mr_s3_encode(id, false, i, sizeof i);
        snprintf(query, sizeof query, "encoding-type=url%s%s&prefix=%s%s%s&uploads=", *k ? "&key-marker=" : "", k, p,
                 *i ? "&upload-id-marker=" : "", i);
        struct mr_s3_op op = {.verb = MR_S3_GET, .bucket = bucket, .key = "", .query = query, .verb_text = "list"};
        rc = mr_s3_run(c, &op, err);
        if (!rc) {
            rc = mr_s3_xml_uploads(op.text.text ? op.text.text : "", op.text.len, collect_upload, u, key, sizeof key,
                                   id, sizeof id);
            if (rc == -EBADMSG)
                rc = bad_answer(bucket, "list the uploads of", err);
        }
        mr_s3_op_done(&op);
    } while (!rc && *key);
    return rc;
}

/* Those below a prefix, or of one key alone. */
static int abort_some(struct mr_s3_client *c, const char *bucket, const char *prefix, bool is_key, uint64_t *n,
                      struct mr_error *err)
{
    struct uploads u = {0};
    int rc = list_uploads(c, bucket, prefix, &u, err);
    if (!rc && !is_key && mr_s3_client_minio(c)) /* it lists the uploads of one whole key, or those of the bucket */
        rc = list_uploads(c, bucket, "", &u, err);
    for (size_t i = 0; i < u.n; i++) {
        bool meant = is_key ? !strcmp(u.item[i].key, prefix) : !strncmp(u.item[i].key, prefix, strlen(prefix));
        if (!rc && meant) {
            rc = mr_s3_abort(c, bucket, u.item[i].key, u.item[i].id, err);
            rc = rc == -ENOENT ? 0 : rc; /* gone: the answer to an earlier try was lost */
            *n += !rc;
        }
        free(u.item[i].key);
        free(u.item[i].id);
    }
    free(u.item);
    return rc;
}

int mr_s3_abort_below(struct mr_s3_client *c, const char *bucket, const char *prefix, uint64_t *n, struct mr_error *err)
{
    return abort_some(c, bucket, prefix, false, n, err);
}

void mr_s3_abort_of(struct mr_s3_client *c, const char *bucket, const char *key)
{
    uint64_t n = 0;
    abort_some(c, bucket, key, true, &n, NULL);
}
