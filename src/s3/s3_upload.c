/* Uploads: see s3_upload.h. Invariants:
 *   U1  A part's buffer is filling (writers may copy into it), queued or with a sender; who moves it on holds the lock
 *       of the senders. Only `filling` parts without writers are queued.
 *   U2  At most `room` parts are queued or being sent; a writer that has filled one more waits. Senders never wait for
 *       writers, and every request has a deadline, so that wait ends.
 *   U3  The first failure is kept; nothing is sent after it, and the end aborts the upload.
 *   U4  An object gets its name by one request, after all its parts are there. */
#include "s3/s3_upload.h"
#include "base/common.h"
#include "base/vec.h"
#include "s3/s3_calls.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTS_MAX 10000u
#define DOUBLES_AFTER 1000u
#define THREADS_MAX 32u

struct extent {
    uint64_t from, to;
};

struct part {
    struct mr_s3_upload *u;
    struct part *next; /* in the queue of the senders */
    unsigned number;
    enum { FILLING, QUEUED, SENDING, SENT } state;
    char *data;
    uint64_t cap, end;     /* end: of what was written */
    struct extent *filled; /* sorted, apart */
    size_t n_filled, filled_cap;
    unsigned writers;
    char etag[MR_S3_ETAG_MAX];
};

struct mr_s3_senders {
    struct mr_s3_client *c;
    pthread_mutex_t lock;
    pthread_cond_t work, change;
    struct part *head, **tail;
    unsigned busy, room, threads, started; /* busy: queued or being sent */
    bool stop;
    pthread_t thread[THREADS_MAX];
};

struct mr_s3_upload {
    struct mr_s3_senders *s;
    char bucket[MR_S3_BUCKET_MAX], *key;
    uint64_t part_bytes, end;
    bool if_absent, creating;
    bool begun_twice; /* an answer with an id was lost, and that upload has no owner */
    char *id;         /* of the multipart upload */
    struct part **part;
    size_t n_parts, parts_cap;
    unsigned sending; /* queued or being sent */
    int failed;
    struct mr_error why;
};

/* ---- parts ---- */

void mr_s3_part_range(uint64_t first_bytes, unsigned number, uint64_t *from, uint64_t *bytes)
{
    uint64_t at = 0, each = first_bytes;
    for (; number >= DOUBLES_AFTER; number -= DOUBLES_AFTER) {
        at += each * DOUBLES_AFTER;
        each *= 2;
    }
    *from = at + each * number;
    *bytes = each;
}

unsigned mr_s3_part_of(uint64_t first_bytes, uint64_t offset)
{
    unsigned number = 0;
    uint64_t each = first_bytes;
    while (offset >= each * DOUBLES_AFTER && number < PARTS_MAX) {
        offset -= each * DOUBLES_AFTER;
        each *= 2;
        number += DOUBLES_AFTER;
    }
    return number + (unsigned)MR_MIN(offset / each, (uint64_t)PARTS_MAX);
}

static void free_part(struct part *p)
{
    if (!p)
        return;
    free(p->data);
    free(p->filled);
    free(p);
}

static int make_part(struct mr_s3_upload *u, unsigned number)
{
    if (mr_vec_reserve(&u->part, &u->parts_cap, number + 1, sizeof(struct part *)) < 0)
        return -ENOMEM;
    while (u->n_parts <= number)
        u->part[u->n_parts++] = NULL;
    if (u->part[number])
        return 0;
    struct part *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    uint64_t from;
    p->u = u;
    p->number = number;
    mr_s3_part_range(u->part_bytes, number, &from, &p->cap);
    u->part[number] = p;
    return 0;
}

/* Notes that [from, to) of the part is there. */
static int add_extent(struct part *p, uint64_t from, uint64_t to)
{
    size_t i = 0, j;
    if (mr_vec_reserve(&p->filled, &p->filled_cap, p->n_filled + 1, sizeof(*p->filled)) < 0)
        return -ENOMEM;
    while (i < p->n_filled && p->filled[i].to < from)
        i++;
    for (j = i; j < p->n_filled && p->filled[j].from <= to; j++) {
        from = MR_MIN(from, p->filled[j].from);
        to = MR_MAX(to, p->filled[j].to);
    }
    memmove(p->filled + i + 1, p->filled + j, (p->n_filled - j) * sizeof(*p->filled));
    p->n_filled = p->n_filled + 1 - (j - i);
    p->filled[i] = (struct extent){from, to};
    p->end = MR_MAX(p->end, to);
    return 0;
}

static bool is_full(const struct part *p)
{
    return p->n_filled == 1 && p->filled[0].from == 0 && p->filled[0].to == p->cap;
}

/* What was never written is zero, up to `bytes`. */
static int fill_holes(struct part *p, uint64_t bytes)
{
    uint64_t at = 0;
    if (!p->data && !(p->data = malloc(MR_MAX(bytes, 1u))))
        return -ENOMEM;
    for (size_t i = 0; i < p->n_filled; i++) {
        memset(p->data + at, 0, p->filled[i].from - at);
        at = p->filled[i].to;
    }
    if (at < bytes)
        memset(p->data + at, 0, bytes - at);
    p->end = bytes;
    return 0;
}

/* ---- senders ---- */

static void fail_upload(struct mr_s3_upload *u, int code, const struct mr_error *why)
{
    if (u->failed)
        return;
    u->failed = code; /* U3 */
    u->why = *why;
}

/* The upload's id, made by whoever needs it first. The lock is held at entry and exit, not during the request. */
static int need_id(struct mr_s3_upload *u, struct mr_error *err)
{
    struct mr_s3_senders *s = u->s;
    while (u->creating)
        pthread_cond_wait(&s->change, &s->lock);
    if (u->failed) {
        *err = u->why;
        return u->failed;
    }
    if (u->id)
        return 0;
    u->creating = true;
    pthread_mutex_unlock(&s->lock);
    char id[1200];
    struct mr_s3_op op = {
        .verb = MR_S3_POST, .bucket = u->bucket, .key = u->key, .query = "uploads=", .verb_text = "write"};
    int rc = mr_s3_run(s->c, &op, err);
    if (!rc && !mr_s3_xml_find(op.text.text ? op.text.text : "", op.text.len, "UploadId", id, sizeof id))
        rc =
            mr_error_plain(err, -EPROTO, "cannot write 's3://%s/%s': the server gives no upload id", u->bucket, u->key);
    mr_s3_op_done(&op);
    pthread_mutex_lock(&s->lock);
    u->begun_twice |= op.tries > 1;
    if (!rc && !(u->id = strdup(id)))
        rc = mr_error_set(err, -ENOMEM, "cannot write 's3://%s/%s'", u->bucket, u->key);
    u->creating = false;
    pthread_cond_broadcast(&s->change);
    return rc;
}

static int send_part(struct mr_s3_client *c, struct part *p, struct mr_error *err)
{
    struct mr_s3_upload *u = p->u;
    char query[3 * 1200 + 64], id[3 * 1200];
    mr_s3_encode(u->id, false, id, sizeof id);
    snprintf(query, sizeof query, "partNumber=%u&uploadId=%s", p->number + 1, id);
    struct mr_s3_op op = {.verb = MR_S3_PUT,
                          .bucket = u->bucket,
                          .key = u->key,
                          .query = query,
                          .body = p->data,
                          .body_bytes = p->end,
                          .verb_text = "write"};
    int rc = mr_s3_run(c, &op, err);
    if (!rc && !*op.etag)
        rc = mr_error_plain(err, -EPROTO, "cannot write 's3://%s/%s': the server gives part %u no ETag", u->bucket,
                            u->key, p->number + 1);
    memcpy(p->etag, op.etag, sizeof p->etag);
    mr_s3_op_done(&op);
    return rc;
}

/* One part to its end; the lock is held at entry and exit. */
static void serve(struct mr_s3_senders *s, struct part *p)
{
    struct mr_s3_upload *u = p->u;
    struct mr_error err;
    p->state = SENDING;
    int rc = need_id(u, &err);
    if (!rc) {
        pthread_mutex_unlock(&s->lock);
        rc = send_part(s->c, p, &err);
        pthread_mutex_lock(&s->lock);
    }
    if (rc)
        fail_upload(u, rc, &err);
    p->state = SENT;
    free(p->data);
    p->data = NULL;
    u->sending--;
    s->busy--;
    pthread_cond_broadcast(&s->change);
}

static void *sender(void *arg)
{
    struct mr_s3_senders *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->head && !s->stop)
            pthread_cond_wait(&s->work, &s->lock);
        struct part *p = s->head;
        if (!p)
            break;
        s->head = p->next;
        if (!s->head)
            s->tail = &s->head;
        serve(s, p);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Under the lock. One more thread while there is more to do than threads; the program's signals stay its own. */
static int start_thread(struct mr_s3_senders *s)
{
    sigset_t all, old;
    if (s->started >= s->threads || s->started >= s->busy)
        return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&s->thread[s->started], NULL, sender, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    s->started += rc == 0;
    return s->started ? 0 : -rc;
}

/* Under the lock. */
static int enqueue(struct mr_s3_senders *s, struct part *p)
{
    assert(p->state == FILLING && p->writers == 0); /* U1 */
    s->busy++;
    int rc = start_thread(s);
    if (rc) {
        s->busy--;
        return rc;
    }
    p->state = QUEUED;
    p->next = NULL;
    *s->tail = p;
    s->tail = &p->next;
    p->u->sending++;
    pthread_cond_signal(&s->work);
    return 0;
}

int mr_s3_senders_create(struct mr_s3_client *c, unsigned threads, struct mr_s3_senders **out, struct mr_error *err)
{
    struct mr_s3_senders *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot write to object storage");
    s->c = c;
    s->threads = MR_MIN(MR_MAX(threads, 1u), THREADS_MAX);
    s->room = 2 * s->threads;
    s->tail = &s->head;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->change, NULL);
    *out = s;
    return 0;
}

void mr_s3_senders_free(struct mr_s3_senders *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    for (unsigned i = 0; i < s->started; i++)
        pthread_join(s->thread[i], NULL);
    assert(s->busy == 0);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->change);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---- writing ---- */

int mr_s3_upload_create(struct mr_s3_senders *s, const struct mr_s3_upload_params *p, struct mr_s3_upload **out,
                        struct mr_error *err)
{
    struct mr_s3_upload *u = calloc(1, sizeof(*u));
    if (u && !(u->key = strdup(p->key))) {
        free(u);
        u = NULL;
    }
    if (!u)
        return mr_error_set(err, -ENOMEM, "cannot write 's3://%s/%s'", p->bucket, p->key);
    u->s = s;
    snprintf(u->bucket, sizeof u->bucket, "%s", p->bucket);
    u->part_bytes = p->part_bytes;
    u->if_absent = p->if_absent;
    *out = u;
    return 0;
}

static int fail_write(const struct mr_s3_upload *u, int code, struct mr_error *err)
{
    return mr_error_set(err, code, "cannot write 's3://%s/%s'", u->bucket, u->key);
}

/* Under the lock: the part, ready to be copied into. */
static int claim(struct mr_s3_upload *u, unsigned number, uint64_t offset, struct part **out, struct mr_error *err)
{
    if (u->failed) {
        if (err)
            *err = u->why;
        return u->failed;
    }
    if (number >= PARTS_MAX)
        return fail_write(u, -EFBIG, err);
    int rc = make_part(u, number);
    if (rc)
        return fail_write(u, rc, err);
    struct part *p = u->part[number];
    if (p->state != FILLING) {
        mr_error_plain(err, MR_E_UNSUPPORTED, "cannot write 's3://%s/%s' again at %llu: those bytes were sent",
                       u->bucket, u->key, (unsigned long long)offset);
        return mr_error_hint(err, "object storage takes each byte once; write to a file system and copy the file"),
               MR_E_UNSUPPORTED;
    }
    if (!p->data && !(p->data = malloc(p->cap)))
        return fail_write(u, -ENOMEM, err);
    p->writers++;
    *out = p;
    return 0;
}

/* Under the lock: the copy is made. A full part goes on, but for the first, which waits for the end. */
static int release(struct mr_s3_upload *u, struct part *p, uint64_t from, uint64_t to, struct mr_error *err)
{
    struct mr_s3_senders *s = u->s;
    uint64_t base, ignored;
    mr_s3_part_range(u->part_bytes, p->number, &base, &ignored);
    p->writers--;
    int rc = add_extent(p, from, to);
    u->end = MR_MAX(u->end, base + to);
    if (!rc && p->number > 0 && is_full(p) && !p->writers) {
        while (s->busy >= s->room) /* U2 */
            pthread_cond_wait(&s->change, &s->lock);
        if (p->state == FILLING && !p->writers)
            rc = enqueue(s, p);
    }
    return rc ? fail_write(u, rc, err) : 0;
}

int mr_s3_upload_write(struct mr_s3_upload *u, const void *data, size_t len, uint64_t offset, struct mr_error *err)
{
    struct mr_s3_senders *s = u->s;
    const char *from = data;
    int rc = 0;
    while (!rc && len) {
        struct part *p = NULL;
        uint64_t base, bytes;
        unsigned number = mr_s3_part_of(u->part_bytes, offset);
        mr_s3_part_range(u->part_bytes, number, &base, &bytes);
        uint64_t at = offset - base;
        size_t n = (size_t)MR_MIN((uint64_t)len, bytes - MR_MIN(at, bytes));
        pthread_mutex_lock(&s->lock);
        rc = claim(u, number, offset, &p, err);
        pthread_mutex_unlock(&s->lock);
        if (rc)
            break;
        memcpy(p->data + at, from, n);
        pthread_mutex_lock(&s->lock);
        rc = release(u, p, at, at + n, err);
        pthread_mutex_unlock(&s->lock);
        from += n;
        len -= n;
        offset += n;
    }
    if (rc) {
        struct mr_error why;
        pthread_mutex_lock(&s->lock);
        fail_upload(u, fail_write(u, rc, &why), err ? err : &why);
        pthread_mutex_unlock(&s->lock);
    }
    return rc;
}

uint64_t mr_s3_upload_bytes(struct mr_s3_upload *u)
{
    pthread_mutex_lock(&u->s->lock);
    uint64_t n = u->end;
    pthread_mutex_unlock(&u->s->lock);
    return n;
}

void mr_s3_upload_extend(struct mr_s3_upload *u, uint64_t bytes)
{
    pthread_mutex_lock(&u->s->lock);
    u->end = MR_MAX(u->end, bytes);
    pthread_mutex_unlock(&u->s->lock);
}

/* ---- the end ---- */

/* "There is such an object already" to a repeat: the first try may have made it, and its answer was lost. */
static bool is_own(struct mr_s3_upload *u)
{
    char *there = malloc(MR_MAX(u->end, 1u));
    struct mr_s3_op op = {.verb = MR_S3_GET, .bucket = u->bucket, .key = u->key, .place = there, .room = u->end};
    bool same = there && mr_s3_run(u->s->c, &op, NULL) == 0 && op.total == u->end && op.got == u->end &&
                memcmp(there, u->part[0]->data, u->end) == 0;
    mr_s3_op_done(&op);
    free(there);
    return same;
}

static int put_whole(struct mr_s3_upload *u, char etag[MR_S3_ETAG_MAX], struct mr_error *err)
{
    int rc = make_part(u, 0);
    if (!rc)
        rc = fill_holes(u->part[0], u->end);
    if (rc)
        return fail_write(u, rc, err);
    struct mr_s3_op op = {.verb = MR_S3_PUT,
                          .bucket = u->bucket,
                          .key = u->key,
                          .body = u->part[0]->data,
                          .body_bytes = u->end,
                          .if_absent = u->if_absent,
                          .verb_text = "write"};
    rc = mr_s3_run(u->s->c, &op, err);
    memcpy(etag, op.etag, sizeof op.etag);
    bool lost = rc == -EEXIST && op.tries > 1;
    if (!rc && !*op.etag)
        rc = mr_error_plain(err, -EPROTO, "cannot write 's3://%s/%s': the answer is not S3's", u->bucket, u->key);
    mr_s3_op_done(&op);
    return lost && is_own(u) ? 0 : rc;
}

/* All parts that are left go to the senders; waits until they are gone. */
static int send_rest(struct mr_s3_upload *u, struct mr_error *err)
{
    struct mr_s3_senders *s = u->s;
    unsigned last = mr_s3_part_of(u->part_bytes, u->end - 1);
    int rc = 0;
    pthread_mutex_lock(&s->lock);
    for (unsigned n = 0; !rc && !u->failed && n <= last; n++) {
        uint64_t from, bytes;
        mr_s3_part_range(u->part_bytes, n, &from, &bytes);
        if ((rc = make_part(u, n)) || u->part[n]->state != FILLING)
            continue;
        if (u->part[n]->n_filled == 0)
            u->part[n]->data = NULL;
        while (s->busy >= s->room) /* U2 */
            pthread_cond_wait(&s->change, &s->lock);
        rc = fill_holes(u->part[n], MR_MIN(bytes, u->end - from));
        rc = rc ? rc : enqueue(s, u->part[n]);
    }
    while (u->sending || u->creating)
        pthread_cond_wait(&s->change, &s->lock);
    if (rc)
        rc = fail_write(u, rc, err);
    else if ((rc = u->failed) && err)
        *err = u->why;
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* The ETag of an object in parts: the MD5 of theirs, and how many. False where a server computes them otherwise. */
static bool joined_etag(const struct mr_s3_upload *u, char out[MR_S3_ETAG_MAX])
{
    uint8_t *all = malloc(16 * u->n_parts), sum[16];
    char hex[33];
    bool ok = all != NULL;
    for (size_t i = 0; ok && i < u->n_parts; i++) {
        const char *text = u->part[i]->etag + (u->part[i]->etag[0] == '"');
        for (unsigned b = 0; ok && b < 16; b++)
            ok = sscanf(text + 2 * (size_t)b, "%2hhx", &all[16 * i + b]) == 1 && strspn(text, "0123456789abcdef") == 32;
    }
    if (ok) {
        mr_s3_client_http(u->s->c)->md5(all, 16 * u->n_parts, sum);
        mr_s3_hex(sum, sizeof sum, hex);
        snprintf(out, MR_S3_ETAG_MAX, "\"%s-%zu\"", hex, u->n_parts);
    }
    free(all);
    return ok;
}

/* After an answer that was lost the upload may be complete: then the object there is the one that was sent. */
static bool is_complete(struct mr_s3_upload *u)
{
    struct mr_s3_object_info info;
    char want[MR_S3_ETAG_MAX];
    if (mr_s3_head(u->s->c, u->bucket, u->key, &info, NULL) != 0 || info.bytes != u->end)
        return false;
    return strchr(info.etag, '-') ? joined_etag(u, want) && strcmp(info.etag, want) == 0 : !u->if_absent;
}

static int check_whole(struct mr_s3_upload *u, char etag[MR_S3_ETAG_MAX], struct mr_error *err)
{
    struct mr_s3_object_info info;
    int rc = mr_s3_head(u->s->c, u->bucket, u->key, &info, err);
    if (rc)
        return rc;
    if (info.bytes != u->end)
        return mr_error_plain(err, MR_E_CORRUPT, "'s3://%s/%s' has %llu bytes on the server, %llu were written",
                              u->bucket, u->key, (unsigned long long)info.bytes, (unsigned long long)u->end);
    memcpy(etag, info.etag, sizeof info.etag);
    return 0;
}

static int complete(struct mr_s3_upload *u, char etag[MR_S3_ETAG_MAX], struct mr_error *err)
{
    struct mr_strbuf body = {0};
    char query[3 * 1200 + 16], id[3 * 1200];
    mr_strbuf_puts(&body, "<CompleteMultipartUpload>");
    for (size_t i = 0; i < u->n_parts; i++)
        mr_strbuf_printf(&body, "<Part><PartNumber>%zu</PartNumber><ETag>%s</ETag></Part>", i + 1, u->part[i]->etag);
    mr_strbuf_puts(&body, "</CompleteMultipartUpload>");
    if (body.failed)
        return fail_write(u, -ENOMEM, err);
    mr_s3_encode(u->id, false, id, sizeof id);
    snprintf(query, sizeof query, "uploadId=%s", id);
    struct mr_s3_op op = {.verb = MR_S3_POST,
                          .bucket = u->bucket,
                          .key = u->key,
                          .query = query,
                          .body = body.text,
                          .body_bytes = body.len,
                          .if_absent = u->if_absent,
                          .verb_text = "write"};
    int rc = mr_s3_run(u->s->c, &op, err);
    bool lost = (rc == -ENOENT || rc == -EEXIST) && op.tries > 1 && is_complete(u);
    mr_s3_op_done(&op);
    mr_strbuf_done(&body);
    return rc && !lost ? rc : check_whole(u, etag, err);
}

static int put_parts(struct mr_s3_upload *u, char etag[MR_S3_ETAG_MAX], struct mr_error *err)
{
    int rc = send_rest(u, err);
    return rc ? rc : complete(u, etag, err);
}

/* Nothing of it is with a sender any more. */
static void settle(struct mr_s3_upload *u)
{
    pthread_mutex_lock(&u->s->lock);
    while (u->sending || u->creating)
        pthread_cond_wait(&u->s->change, &u->s->lock);
    pthread_mutex_unlock(&u->s->lock);
}

int mr_s3_upload_end(struct mr_s3_upload *u, bool keep, char etag[MR_S3_ETAG_MAX], struct mr_error *err)
{
    int rc = 0;
    etag[0] = '\0';
    if (!keep && !u->failed) { /* U3: what is queued is not sent */
        struct mr_error why;
        pthread_mutex_lock(&u->s->lock);
        fail_upload(u, mr_error_plain(&why, MR_E_INTERRUPTED, "the writing was given up"), &why);
        pthread_mutex_unlock(&u->s->lock);
    }
    settle(u);
    if (keep && u->failed) {
        rc = u->failed;
        if (err)
            *err = u->why;
    } else if (keep && !u->id && u->end <= u->part_bytes) {
        rc = put_whole(u, etag, err);
    } else if (keep) {
        rc = put_parts(u, etag, err);
    }
    if (u->id && (rc || !keep))
        mr_s3_abort(u->s->c, u->bucket, u->key, u->id, NULL);
    if (u->begun_twice)
        mr_s3_abort_of(u->s->c, u->bucket, u->key);
    for (size_t i = 0; i < u->n_parts; i++)
        free_part(u->part[i]);
    free(u->part);
    free(u->id);
    free(u->key);
    free(u);
    return rc;
}
