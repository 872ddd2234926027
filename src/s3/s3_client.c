/* Clients and lanes: see s3_client.h. Invariants:
 *   C1  An op is in one place: the caller's hands, ready, waiting, under way (with one or two sends), done.
 *   C2  A send belongs to the lane's free list or to one op; while its request runs in the transport it stays put.
 *   C3  A place is written by requests of its op alone, and no longer once the op is handed back: what still runs is
 *       cancelled before.
 *   C4  The client's lock is held for a look at shared fields and while credentials are renewed; no lane waits for its
 *       own requests under it. */
#include "s3/s3_client.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "s3/s3_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/time.h>
#include <time.h>

#define NS_PER_S 1000000000ull
#define FIRST_CONTACT_NS (5 * NS_PER_S) /* so long a client looks for a server that has never answered */
#define BACKOFF_MIN_NS (50 * MR_NS_PER_MS)
#define BACKOFF_MAX_NS (5 * NS_PER_S)
#define TOKENS_PER_S 10.0
#define TOKENS_PER_ANSWER 0.2

/* ---- callbacks of the transport ---- */

static bool is_name(const char *name, size_t len, const char *want)
{
    return len == strlen(want) && strncasecmp(name, want, len) == 0;
}

static void take_number(const char *value, size_t len, uint64_t *out)
{
    char text[32];
    snprintf(text, sizeof text, "%.*s", (int)MR_MIN(len, sizeof text - 1), value);
    *out = strtoull(text, NULL, 10);
}

static time_t http_time(const char *value, size_t len)
{
    char text[64];
    struct tm tm = {0};
    snprintf(text, sizeof text, "%.*s", (int)MR_MIN(len, sizeof text - 1), value);
    return strptime(text, "%a, %d %b %Y %H:%M:%S", &tm) ? timegm(&tm) : 0;
}

/* Looked at once a second: answers of the same second have the same text. */
static void note_clock(struct mr_s3_lane *l, const char *value, size_t len)
{
    size_t n = MR_MIN(len, sizeof l->date - 1);
    if (!memcmp(l->date, value, n) && !l->date[n])
        return;
    memcpy(l->date, value, n);
    l->date[n] = '\0';
    time_t server = http_time(value, len);
    if (server)
        atomic_store_explicit(&l->c->skew_ms, ((int64_t)server - (int64_t)time(NULL)) * 1000, memory_order_relaxed);
}

static void on_header(struct mr_http_request *r, const char *name, size_t name_len, const char *value, size_t len)
{
    struct mr_s3_send *s = (struct mr_s3_send *)r;
    const char *slash;
    if (is_name(name, name_len, "content-length")) {
        take_number(value, len, &s->length);
    } else if (is_name(name, name_len, "content-range")) {
        s->has_first = len > 6 && !strncasecmp(value, "bytes ", 6) && value[6] >= '0' && value[6] <= '9';
        if (s->has_first)
            take_number(value + 6, len - 6, &s->first);
        if ((slash = memchr(value, '/', len)) && (size_t)(slash + 1 - value) < len && slash[1] != '*') {
            take_number(slash + 1, len - (size_t)(slash + 1 - value), &s->total);
            s->has_total = true;
        }
    } else if (is_name(name, name_len, "etag")) {
        snprintf(s->etag, sizeof s->etag, "%.*s", (int)MR_MIN(len, sizeof s->etag - 1), value);
    } else if (is_name(name, name_len, "last-modified")) {
        if (s->op->verb == MR_S3_HEAD) /* reads have no use for it */
            s->mtime_s = (uint64_t)http_time(value, len);
    } else if (is_name(name, name_len, "date")) {
        note_clock(s->lane, value, len);
    } else if (is_name(name, name_len, "x-amz-bucket-region")) {
        snprintf(s->region_hint, sizeof s->region_hint, "%.*s", (int)MR_MIN(len, sizeof s->region_hint - 1), value);
    } else if (is_name(name, name_len, "server")) {
        if (len >= 5 && !strncmp(value, "MinIO", 5))
            atomic_store_explicit(&s->lane->c->minio, true, memory_order_relaxed);
    } else if (is_name(name, name_len, "retry-after")) {
        uint64_t wait = 0;
        take_number(value, len, &wait);
        s->retry_after_s = (long)MR_MIN(wait, 60u);
    }
}

/* Two requests for one place bring the same bytes, or the later one is stopped: they are not of one version. */
static bool is_of_one_version(const struct mr_s3_send *s)
{
    const struct mr_s3_send *other = s->op->send[s->op->send[0] == s];
    return !other || !other->is_body || strcmp(other->etag, s->etag) == 0;
}

static void on_head(struct mr_http_request *r)
{
    struct mr_s3_send *s = (struct mr_s3_send *)r;
    const struct mr_s3_op *op = s->op;
    bool whole = r->status == 200 && (!op->ranged || op->from == 0);
    bool part = r->status == 206 && (!s->has_first || s->first == (op->ranged ? op->from : 0));
    atomic_store_explicit(&s->lane->c->reached, true, memory_order_relaxed);
    s->is_stray = (r->status == 206 && !part) || !is_of_one_version(s);
    s->is_body = op->place && (whole || part) && !s->is_stray;
    if (s->is_body && r->took) {
        r->into = op->place;
        r->into_room = op->room;
    }
}

static void on_took(struct mr_http_request *r, size_t n)
{
    ((struct mr_s3_send *)r)->got += n;
}

/* Bodies go straight to where they belong; of a whole object as much as there is room for. */
static bool on_data(struct mr_http_request *r, const void *data, size_t n)
{
    struct mr_s3_send *s = (struct mr_s3_send *)r;
    const struct mr_s3_op *op = s->op;
    if (s->is_stray)
        return false;
    if (!s->is_body) {
        if (s->answer.len + n > (size_t)16 << 20)
            return false;
        mr_strbuf_add(&s->answer, data, n);
        return !s->answer.failed;
    }
    if (n > op->room - s->got) {
        if (r->status == 206)
            return false;
        n = op->room - s->got;
    }
    memcpy((char *)op->place + s->got, data, n);
    s->got += n;
    return true;
}

/* ---- sends ---- */

static struct mr_s3_send *get_send(struct mr_s3_lane *l)
{
    struct mr_s3_send *s = l->free_sends;
    if (s)
        l->free_sends = s->next_free;
    else
        s = malloc(sizeof(*s));
    if (!s)
        return NULL;
    memset(s, 0, offsetof(struct mr_s3_send, url));
    s->answer = (struct mr_strbuf){0};
    s->url[0] = s->text[0] = '\0';
    s->lane = l;
    s->r.on_header = on_header;
    s->r.head = on_head;
    s->r.data = on_data;
    return s;
}

static void put_send(struct mr_s3_lane *l, struct mr_s3_send *s)
{
    mr_strbuf_done(&s->answer);
    s->next_free = l->free_sends;
    l->free_sends = s;
}

/* ---- lists ---- */

static void unlink_op(struct mr_s3_op **list, struct mr_s3_op *op)
{
    while (*list != op)
        list = &(*list)->next;
    *list = op->next;
}

static void finish(struct mr_s3_lane *l, struct mr_s3_op *op)
{
    op->next = NULL;
    *l->done_tail = op;
    l->done_tail = &op->next;
    if (op->code)
        atomic_fetch_add_explicit(&l->c->stats.failures, 1, memory_order_relaxed);
    if (l->c->ended)
        l->c->ended(l->c->ended_user, op);
}

static void make_ready(struct mr_s3_lane *l, struct mr_s3_op *op)
{
    op->next = NULL;
    *l->ready_tail = op;
    l->ready_tail = &op->next;
}

/* ---- repeating ---- */

/* One token for a repeat; else when there will be one. */
static uint64_t take_token(struct mr_s3_client *c, uint64_t now)
{
    uint64_t at = now;
    pthread_mutex_lock(&c->lock);
    c->tokens = MR_MIN(MR_S3_TOKENS_MAX, c->tokens + (double)(now - c->tokens_ns) / 1e9 * TOKENS_PER_S);
    c->tokens_ns = now;
    c->tokens -= 1;
    if (c->tokens < 0)
        at += (uint64_t)(-c->tokens / TOKENS_PER_S * 1e9);
    pthread_mutex_unlock(&c->lock);
    return at;
}

static void earn_tokens(struct mr_s3_lane *l)
{
    struct mr_s3_client *c = l->c;
    if (++l->answers % 16)
        return;
    pthread_mutex_lock(&c->lock);
    c->tokens += 16 * TOKENS_PER_ANSWER;
    pthread_mutex_unlock(&c->lock);
}

static void slow_down(struct mr_s3_lane *l, uint64_t now)
{
    atomic_fetch_add_explicit(&l->c->stats.slowdowns, 1, memory_order_relaxed);
    if (now - l->slowed_ns < NS_PER_S / 4) /* one storm, one step */
        return;
    l->slowed_ns = now;
    l->limit = MR_MAX(1.0, l->limit / 2);
}

/* When an op ends at the latest. A server that has never answered is looked for once, not once more by each op. */
static uint64_t last_ns(struct mr_s3_client *c, const struct mr_s3_op *op)
{
    if (atomic_load_explicit(&c->reached, memory_order_relaxed))
        return op->deadline_ns;
    uint64_t first = atomic_load_explicit(&c->first_ns, memory_order_relaxed);
    return MR_MIN(op->deadline_ns, first + MR_MIN(c->deadline_ns, FIRST_CONTACT_NS));
}

static void try_again(struct mr_s3_lane *l, struct mr_s3_op *op, long retry_after_s)
{
    uint64_t now = mr_now_ns();
    uint64_t most = MR_MIN(BACKOFF_MAX_NS, BACKOFF_MIN_NS << MR_MIN(op->tries - 1, 10u));
    uint64_t half = most / 2, wait = half + (uint64_t)(mr_rng_unit(mr_mix64(++l->seed)) * (double)half);
    if (retry_after_s > 0)
        wait = MR_MAX(wait, (uint64_t)retry_after_s * NS_PER_S);
    uint64_t at = MR_MAX(take_token(l->c, now), now + wait);
    if (op->once || at > last_ns(l->c, op)) {
        size_t len = strlen(op->why.message);
        snprintf(op->why.message + len, sizeof op->why.message - len, "; %u %s in %.0f s", op->tries,
                 mr_plural(op->tries, "try", "tries"), (double)(now - op->submit_ns) / 1e9);
        finish(l, op);
        return;
    }
    atomic_fetch_add_explicit(&l->c->stats.retries, 1, memory_order_relaxed);
    mr_log(MR_LOG_INFO, "s3: %s; trying again in %.1f s", op->why.message, (double)(at - now) / 1e9);
    op->next_ns = at;
    op->next = l->waiting;
    l->waiting = op;
}

static void use_region(struct mr_s3_client *c, const struct mr_s3_send *s)
{
    char region[64] = "";
    const char *text = s->answer.text ? s->answer.text : "";
    for (const char *at = strstr(text, "<Region>"); at; at = NULL)
        snprintf(region, sizeof region, "%.*s", (int)MR_MIN(strcspn(at + 8, "<"), sizeof region - 1), at + 8);
    if (!*region)
        snprintf(region, sizeof region, "%s", s->region_hint);
    for (const char *p = region; *p; p++)
        if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789-", *p))
            return;
    pthread_mutex_lock(&c->lock);
    if (strcmp(c->region, region) != 0) {
        mr_log(MR_LOG_NOTE, "s3: the bucket is in region '%s', not '%s'; set AWS_REGION to spare a request", region,
               c->region);
        snprintf(c->region, sizeof c->region, "%s", region);
        if (c->is_aws)
            snprintf(c->host, sizeof c->host, "s3.%s.amazonaws.com%s", region, mr_s3_cn_suffix(region));
        c->region_generation++;
    }
    pthread_mutex_unlock(&c->lock);
}

static void renew(struct mr_s3_client *c, const struct mr_s3_lane *l)
{
    pthread_mutex_lock(&c->lock);
    if (c->credentials.generation == l->credentials.generation) /* nobody else has */
        c->have_credentials = false;
    pthread_mutex_unlock(&c->lock);
}

/* ---- sending and receiving ---- */

/* Sends the op's request, as its first or its second one. */
static int send_op(struct mr_s3_lane *l, struct mr_s3_op *op, unsigned which, struct mr_error *err)
{
    struct mr_s3_send *s = get_send(l);
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot send a request");
    s->op = op;
    s->r.took = op->place ? on_took : NULL;
    int rc = mr_s3_prepare(l, op, s, err);
    if (!rc && (rc = l->c->http->start(l->http, &s->r)) < 0)
        mr_error_set(err, rc, "cannot send a request");
    if (rc) {
        put_send(l, s);
        return rc;
    }
    assert(!op->send[which]); /* C2 */
    op->send[which] = s;
    l->in_flight++;
    atomic_fetch_add_explicit(&l->c->stats.requests, 1, memory_order_relaxed);
    return 0;
}

static void begin_try(struct mr_s3_lane *l, struct mr_s3_op *op)
{
    struct mr_error err;
    int rc = send_op(l, op, 0, &err);
    if (rc) {
        op->code = rc;
        op->why = err;
        finish(l, op);
        return;
    }
    op->sent_ns = mr_now_ns();
    op->tries++;
    op->next = l->flying;
    l->flying = op;
}

static void drop_send(struct mr_s3_lane *l, struct mr_s3_op *op, unsigned which)
{
    struct mr_s3_send *s = op->send[which];
    if (!s)
        return;
    op->send[which] = NULL;
    l->in_flight--;
    s->dropped = !s->r.handle; /* the loop that goes through those handed back still has it */
    if (s->dropped)
        return;
    l->c->http->cancel(l->http, &s->r);
    put_send(l, s);
}

static void note_times(struct mr_s3_lane *l, struct mr_s3_op *op, const struct mr_s3_send *s)
{
    struct mr_s3_stats *st = &l->c->stats;
    op->connect_ns = s->r.connect_ns;
    op->first_byte_ns = s->r.first_byte_ns;
    op->end_ns = s->r.end_ns;
    atomic_fetch_add_explicit(&st->answers, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&st->first_byte_ns, s->r.first_byte_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&st->bytes_in, s->got + s->answer.len, memory_order_relaxed);
    atomic_fetch_add_explicit(&st->bytes_out, op->body_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&st->answer_ns, s->r.end_ns, memory_order_relaxed);
    if (s->r.connect_ns) {
        atomic_fetch_add_explicit(&st->connects, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&st->connect_ns, s->r.connect_ns, memory_order_relaxed);
    }
}

static void note_good(struct mr_s3_lane *l, const struct mr_s3_send *s)
{
    l->limit = MR_MIN((double)l->c->connections, l->limit + 1 / l->limit);
    earn_tokens(l);
    l->latency_ns[l->latencies++ % MR_ARRAY_LEN(l->latency_ns)] = s->r.end_ns;
    l->slow_ns = 0; /* to be computed again */
}

static void act(struct mr_s3_lane *l, struct mr_s3_op *op, struct mr_s3_send *s, enum mr_s3_verdict v)
{
    switch (v) {
    case MR_S3_SLOWER:
        slow_down(l, mr_now_ns());
        try_again(l, op, s->retry_after_s);
        return;
    case MR_S3_AGAIN: try_again(l, op, 0); return;
    case MR_S3_RENEW:
        op->renewed = true;
        renew(l->c, l);
        try_again(l, op, 0);
        return;
    case MR_S3_REDIRECT:
        op->redirected = true;
        use_region(l->c, s);
        make_ready(l, op);
        return;
    default:
        if (!op->code)
            note_good(l, s);
        finish(l, op);
    }
}

static void arrived(struct mr_s3_lane *l, struct mr_s3_send *s)
{
    struct mr_s3_op *op = s->op;
    unsigned which = op->send[1] == s, other = !which;
    op->send[which] = NULL;
    l->in_flight--;
    note_times(l, op, s);
    enum mr_s3_verdict v = mr_s3_judge(l, op, s);
    if (v != MR_S3_DONE && op->send[other]) { /* the other request may do better */
        put_send(l, s);
        return;
    }
    if (op->send[other] || which)
        atomic_fetch_add_explicit(&l->c->stats.hedges_won, which && !op->code, memory_order_relaxed);
    drop_send(l, op, other); /* C3 */
    unlink_op(&l->flying, op);
    act(l, op, s, v);
    put_send(l, s);
}

/* ---- second requests for the slowest ---- */

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* How long only the slowest share of the recent requests took; UINT64_MAX: too few of them. */
static uint64_t slow_after(struct mr_s3_lane *l)
{
    uint64_t sorted[MR_ARRAY_LEN(l->latency_ns)];
    unsigned n = MR_MIN(l->latencies, (unsigned)MR_ARRAY_LEN(sorted));
    if (n < 16)
        return UINT64_MAX;
    if (l->slow_ns)
        return l->slow_ns;
    memcpy(sorted, l->latency_ns, n * sizeof(sorted[0]));
    qsort(sorted, n, sizeof(sorted[0]), by_size);
    l->slow_ns = sorted[(unsigned)((1 - l->c->hedge) * (double)(n - 1))] * 3 / 2 + MR_NS_PER_MS;
    return l->slow_ns;
}

/* Sends second requests where it is time; returns when to look again. */
static uint64_t hedge(struct mr_s3_lane *l, uint64_t now)
{
    uint64_t next = UINT64_MAX, after = l->c->hedge > 0 && l->flying ? slow_after(l) : UINT64_MAX;
    struct mr_error ignored;
    if (after == UINT64_MAX)
        return next;
    for (struct mr_s3_op *op = l->flying; op; op = op->next) {
        if (op->verb != MR_S3_GET || op->send[1] || !op->send[0])
            continue;
        if (op->sent_ns + after > now)
            next = MR_MIN(next, op->sent_ns + after);
        else if (l->in_flight < 2 * l->c->connections && take_token(l->c, now) <= now && !send_op(l, op, 1, &ignored))
            atomic_fetch_add_explicit(&l->c->stats.hedges, 1, memory_order_relaxed);
    }
    return next;
}

/* ---- the loop ---- */

/* Moves what is due from waiting to ready; returns when the next is. */
static uint64_t wake_waiting(struct mr_s3_lane *l, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    for (struct mr_s3_op **at = &l->waiting; *at;) {
        struct mr_s3_op *op = *at;
        if (op->next_ns <= now) {
            *at = op->next;
            make_ready(l, op);
        } else {
            next = MR_MIN(next, op->next_ns);
            at = &op->next;
        }
    }
    return next;
}

static void start_ready(struct mr_s3_lane *l)
{
    while (l->ready && l->in_flight < (unsigned)MR_MAX(1.0, l->limit)) {
        struct mr_s3_op *op = l->ready;
        l->ready = op->next;
        if (!l->ready)
            l->ready_tail = &l->ready;
        begin_try(l, op);
    }
}

static struct mr_s3_op *take_done(struct mr_s3_lane *l)
{
    struct mr_s3_op *op = l->done;
    if (!op)
        return NULL;
    l->done = op->next;
    if (!l->done)
        l->done_tail = &l->done;
    l->under_way--;
    return op;
}

static int wait_ms(uint64_t now, uint64_t until)
{
    if (until <= now)
        return 0;
    return (int)MR_MIN((until - now + MR_NS_PER_MS - 1) / MR_NS_PER_MS, 1000u);
}

struct mr_s3_op *mr_s3_lane_wait(struct mr_s3_lane *l, uint64_t until_ns)
{
    for (;;) {
        uint64_t now = mr_now_ns(), next = wake_waiting(l, now);
        start_ready(l);
        next = MR_MIN(next, hedge(l, now));
        struct mr_s3_op *op = take_done(l);
        if (op || !l->under_way)
            return op;
        struct mr_http_request *r = l->c->http->poll(l->http, wait_ms(now, MR_MIN(next, until_ns)));
        for (struct mr_http_request *after; r; r = after) {
            struct mr_s3_send *s = (struct mr_s3_send *)r;
            after = r->next;
            if (s->dropped)
                put_send(l, s);
            else
                arrived(l, s);
        }
        if (l->done)
            return take_done(l);
        if (until_ns <= now)
            return NULL;
    }
}

void mr_s3_lane_start(struct mr_s3_lane *l, struct mr_s3_op *op)
{
    op->code = 0;
    op->got = 0;
    op->tries = 0;
    op->renewed = op->redirected = false;
    op->send[0] = op->send[1] = NULL;
    op->submit_ns = mr_now_ns();
    op->deadline_ns = op->submit_ns + l->c->deadline_ns;
    uint64_t none = 0;
    atomic_compare_exchange_strong_explicit(&l->c->first_ns, &none, op->submit_ns, memory_order_relaxed,
                                            memory_order_relaxed);
    l->under_way++;
    make_ready(l, op);
}

unsigned mr_s3_lane_under_way(const struct mr_s3_lane *l)
{
    return l->under_way;
}

static bool is_in(const struct mr_s3_op *list, const struct mr_s3_op *op)
{
    while (list && list != op)
        list = list->next;
    return list != NULL;
}

void mr_s3_lane_cancel(struct mr_s3_lane *l, struct mr_s3_op *op)
{
    drop_send(l, op, 0);
    drop_send(l, op, 1);
    if (is_in(l->flying, op)) {
        unlink_op(&l->flying, op);
    } else if (is_in(l->waiting, op)) {
        unlink_op(&l->waiting, op);
    } else {
        bool ready = is_in(l->ready, op);
        unlink_op(ready ? &l->ready : &l->done, op);
        struct mr_s3_op ***tail = ready ? &l->ready_tail : &l->done_tail;
        for (*tail = ready ? &l->ready : &l->done; **tail; *tail = &(**tail)->next)
            ;
    }
    l->under_way--;
}

int mr_s3_run(struct mr_s3_client *c, struct mr_s3_op *op, struct mr_error *err)
{
    struct mr_s3_lane *l;
    int rc = mr_s3_lane_get(c, &l, err);
    if (rc)
        return rc;
    mr_s3_lane_start(l, op);
    mr_s3_lane_wait(l, UINT64_MAX);
    mr_s3_lane_put(l);
    if (op->code && err)
        *err = op->why;
    return op->code;
}

void mr_s3_op_done(struct mr_s3_op *op)
{
    mr_strbuf_done(&op->text);
}

/* ---- lanes and clients ---- */

static void free_lane(struct mr_s3_lane *l)
{
    l->c->http->close(l->http);
    while (l->free_sends) {
        struct mr_s3_send *s = l->free_sends;
        l->free_sends = s->next_free;
        explicit_bzero(s->text, sizeof s->text);
        free(s);
    }
    explicit_bzero(&l->credentials, sizeof l->credentials);
    explicit_bzero(&l->key, sizeof l->key);
    free(l);
}

static struct mr_s3_lane *make_lane(struct mr_s3_client *c)
{
    const struct mr_http_config h = {.connections = c->hedge > 0 ? 2 * c->connections : c->connections,
                                     .connect_timeout_ms = (unsigned)(c->connect_timeout_ns / MR_NS_PER_MS),
                                     .stall_timeout_ms = (unsigned)(c->stall_timeout_ns / MR_NS_PER_MS),
                                     .ca_file = *c->ca_file ? c->ca_file : NULL,
                                     .insecure = c->insecure,
                                     .user_agent = "millrace"};
    struct mr_s3_lane *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    l->c = c;
    l->ready_tail = &l->ready;
    l->done_tail = &l->done;
    l->limit = c->connections;
    l->seed = mr_now_ns();
    l->http = c->http->open(&h);
    if (l->http)
        return l;
    free(l);
    return NULL;
}

int mr_s3_lane_get(struct mr_s3_client *c, struct mr_s3_lane **out, struct mr_error *err)
{
    pthread_mutex_lock(&c->lock);
    struct mr_s3_lane *l = c->free_lanes;
    if (l)
        c->free_lanes = l->next;
    pthread_mutex_unlock(&c->lock);
    if (!l && !(l = make_lane(c)))
        return mr_error_set(err, -ENOMEM, "cannot open connections to '%s'", c->shown);
    *out = l;
    return 0;
}

void mr_s3_lane_put(struct mr_s3_lane *l)
{
    assert(l->under_way == 0 && l->in_flight == 0);
    pthread_mutex_lock(&l->c->lock);
    l->next = l->c->free_lanes;
    l->c->free_lanes = l;
    pthread_mutex_unlock(&l->c->lock);
}

void mr_s3_client_close(struct mr_s3_client *c)
{
    if (!c)
        return;
    while (c->free_lanes) {
        struct mr_s3_lane *l = c->free_lanes;
        c->free_lanes = l->next;
        free_lane(l);
    }
    pthread_mutex_destroy(&c->lock);
    explicit_bzero(&c->credentials, sizeof c->credentials);
    free(c);
}
