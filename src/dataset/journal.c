/* Journals: see journal.h. A record is magic "MRJ1", four zero bytes, u64 length of the body, body, XXH3-64 of the
 * body. */
#include "dataset/journal.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/strbuf.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define RECORD_MAGIC 0x314a524du /* "MRJ1" */
#define HEAD_BYTES 16u
#define TAIL_BYTES 8u
#define COLUMN_HEAD 26u
#define WINDOW_BYTES (1u << 20)
#define BODY_MAX ((uint64_t)1 << 40)
#define MAX_JOURNALS 65535u

#define PIECE_MIN_NS (2 * (uint64_t)1000000000)

/* Where an object cannot be extended after its close and has no name before (object storage), a journal is a row of
 * pieces, each a whole journal: one is closed and the next begun every two seconds, later every twentieth of the time. */
struct mr_journal {
    struct mr_store *store;
    char *folder, *spec;
    uint32_t rank;
    unsigned run;
    bool in_pieces;
    uint64_t begun_ns, piece_ns;
    struct mr_object *object;
    pthread_mutex_t lock; /* guards object, run, at, piece_ns */
    uint64_t at;
};

static void put64(struct mr_strbuf *s, uint64_t v)
{
    char b[8];
    mr_store_le64(b, v);
    mr_strbuf_add(s, b, 8);
}

static void put_record(struct mr_strbuf *record, const struct mr_strbuf *body)
{
    char head[HEAD_BYTES] = {0};
    mr_store_le32(head, RECORD_MAGIC);
    mr_store_le64(head + 8, body->len);
    mr_strbuf_add(record, head, sizeof head);
    mr_strbuf_add(record, body->text, body->len);
    put64(record, XXH3_64bits(body->text, body->len));
}

static int next_piece(struct mr_journal *j, struct mr_error *err);

/* Under the lock. */
static int append_record(struct mr_journal *j, const struct mr_strbuf *record, struct mr_error *err)
{
    if (!j->object) /* the last piece was closed, and the next could not be begun */
        return mr_error_plain(err, -EIO, "cannot write the journal of '%s' any more", j->folder);
    int r = mr_object_write(j->object, record->text, record->len, j->at, err);
    if (r >= 0)
        j->at += record->len;
    return r;
}

static int append(struct mr_journal *j, const struct mr_strbuf *body, struct mr_error *err)
{
    struct mr_strbuf record = {0};
    put_record(&record, body);
    int r;
    if (record.failed || body->failed) {
        r = mr_error_set(err, -ENOMEM, "cannot write the journal");
    } else {
        assert(record.len == HEAD_BYTES + body->len + TAIL_BYTES);
        pthread_mutex_lock(&j->lock);
        uint64_t now = j->in_pieces ? mr_now_ns() : 0;
        r = append_record(j, &record, err);
        if (r >= 0 && j->in_pieces && now - j->piece_ns > MR_MAX(PIECE_MIN_NS, (now - j->begun_ns) / 20))
            r = next_piece(j, err);
        pthread_mutex_unlock(&j->lock);
    }
    mr_strbuf_done(&record);
    return r < 0 ? r : 0;
}

/* The next file of the journal, with the spec as its first record. */
static int begin_file(struct mr_journal *j, struct mr_error *err)
{
    char path[MR_NAME_MAX + 64];
    int r = -EEXIST;
    for (; r == -EEXIST && j->run < MAX_JOURNALS; j->run++) {
        snprintf(path, sizeof path, "%s/" MR_JOURNAL_FOLDER "/%u-%u.mrj", j->folder, j->run, j->rank);
        r = mr_object_open(j->store, path, MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_EXCLUSIVE, &j->object, err);
    }
    j->at = 0;
    j->piece_ns = j->in_pieces ? mr_now_ns() : 0;
    if (r < 0)
        return r;
    struct mr_strbuf body = {0}, record = {0};
    mr_strbuf_puts(&body, j->spec);
    put_record(&record, &body);
    r = record.failed || body.failed ? mr_error_set(err, -ENOMEM, "cannot write the journal")
                                     : append_record(j, &record, err);
    mr_strbuf_done(&body);
    mr_strbuf_done(&record);
    return r;
}

static int next_piece(struct mr_journal *j, struct mr_error *err)
{
    int r = mr_object_close(j->object, err);
    j->object = NULL;
    return r < 0 ? r : begin_file(j, err);
}

int mr_journal_create(struct mr_store *s, const char *folder, uint32_t rank, const char *spec, struct mr_journal **out,
                      struct mr_error *err)
{
    struct mr_journal *j = calloc(1, sizeof(*j));
    if (!j)
        return mr_error_set(err, -ENOMEM, "cannot write the journal");
    pthread_mutex_init(&j->lock, NULL);
    j->store = s;
    j->rank = rank;
    j->folder = strdup(folder);
    j->spec = strdup(spec);
    j->in_pieces = mr_store_puts_whole(s);
    j->begun_ns = j->in_pieces ? mr_now_ns() : 0;
    int r = j->folder && j->spec ? begin_file(j, err) : mr_error_set(err, -ENOMEM, "cannot write the journal");
    if (r >= 0 && j->in_pieces) /* the first one at once: a folder with files and no journal is taken for another's */
        r = next_piece(j, err);
    if (r < 0)
        mr_journal_close(j, NULL);
    else
        *out = j;
    return r;
}

static void put_column(struct mr_strbuf *body, const struct mr_column *c)
{
    mr_strbuf_putc(body, (char)c->encoding);
    mr_strbuf_putc(body, (char)c->width);
    put64(body, c->count);
    put64(body, c->base);
    put64(body, c->step);
    if (c->data_bytes)
        mr_strbuf_add(body, (const char *)c->data, c->data_bytes);
}

static void put_layout(struct mr_strbuf *body, const struct mr_layout *l)
{
    put64(body, l->len);
    mr_strbuf_add(body, l->len ? l->data : "", l->len);
}

int mr_journal_add(struct mr_journal *j, uint64_t file, const struct mr_manifest_file *f, struct mr_error *err)
{
    struct mr_strbuf body = {0};
    put64(&body, file);
    put64(&body, f->bytes);
    put_layout(&body, &f->layout);
    for (unsigned k = 0; k < MR_SC_COUNT; k++)
        put_column(&body, &f->column[k]);
    if (f->n_own)
        put64(&body, f->n_own);
    for (unsigned i = 0; i < f->n_own; i++) {
        put_layout(&body, &f->own[i].layout);
        for (unsigned k = 0; k < MR_FC_LAYOUT; k++)
            put_column(&body, &f->own[i].column[k]);
    }
    int r = append(j, &body, err);
    mr_strbuf_done(&body);
    return r;
}

int mr_journal_sync(struct mr_journal *j, struct mr_error *err)
{
    if (j->in_pieces) /* a piece is durable when it is closed, which another thread may be doing now */
        return 0;
    return j->object ? j->object->store->ops->fsync(j->object, err) : 0;
}

int mr_journal_close(struct mr_journal *j, struct mr_error *err)
{
    if (!j)
        return 0;
    int r = mr_object_close(j->object, err);
    pthread_mutex_destroy(&j->lock);
    free(j->folder);
    free(j->spec);
    free(j);
    return r;
}

/* One journal being read through a window that moves with the records. */
struct source {
    struct mr_object *object;
    uint64_t size, start;
    size_t len, cap;
    uint8_t *window;
    int failed; /* code of a read that failed; 0 when the journal just ends */
};

struct mr_journals {
    uint64_t files;
    struct source *source;
    unsigned n_sources;
    char *spec;
    uint64_t *where; /* per file: source number + 1 in the top 16 bits, offset of the body below; 0 = no record */
    uint64_t *bytes;
    struct mr_field_values *own; /* of the record that was looked at last */
};

/* Bytes [at, at + len) of a journal; NULL when it ends before or cannot be read. */
static const uint8_t *fetch(struct source *s, uint64_t at, uint64_t len, struct mr_error *err)
{
    if (at > s->size || len > s->size - at)
        return NULL;
    if (at >= s->start && at + len <= s->start + s->len)
        return s->window + (at - s->start);
    if (len > s->cap) {
        size_t cap = (size_t)MR_MAX(len, MR_MIN(s->size, WINDOW_BYTES));
        uint8_t *grown = realloc(s->window, cap);
        if (!grown)
            return NULL;
        s->window = grown;
        s->cap = cap;
    }
    assert(len <= s->cap && at + len <= s->size);
    size_t n = (size_t)MR_MIN(s->cap, s->size - at);
    s->len = 0;
    s->failed = mr_object_read(s->object, s->window, n, at, err);
    if (s->failed < 0)
        return NULL;
    s->start = at;
    s->len = n;
    return s->window;
}

/* The body of the record at `at`, or NULL if it is not whole. */
static const uint8_t *fetch_record(struct source *s, uint64_t at, uint64_t *len, struct mr_error *err)
{
    const uint8_t *head = fetch(s, at, HEAD_BYTES, err);
    if (!head || mr_load_le32(head) != RECORD_MAGIC)
        return NULL;
    uint64_t n = mr_load_le64(head + 8);
    if (n > BODY_MAX)
        return NULL;
    const uint8_t *whole = fetch(s, at, HEAD_BYTES + n + TAIL_BYTES, err);
    if (!whole || XXH3_64bits(whole + HEAD_BYTES, n) != mr_load_le64(whole + HEAD_BYTES + n))
        return NULL;
    *len = n;
    return whole + HEAD_BYTES;
}

static int index_source(struct mr_journals *js, unsigned number, struct mr_error *err)
{
    struct source *s = &js->source[number];
    uint64_t at = 0, len = 0;
    for (const uint8_t *body; (body = fetch_record(s, at, &len, err)); at += HEAD_BYTES + len + TAIL_BYTES) {
        if (at == 0) {
            char *spec = strndup((const char *)body, len);
            if (!spec)
                return mr_error_set(err, -ENOMEM, "cannot read the journal");
            if (!js->spec)
                js->spec = spec;
            else
                free(spec);
            continue;
        }
        uint64_t file = len >= 24 ? mr_load_le64(body) : UINT64_MAX;
        if (file < js->files) {
            js->where[file] = (uint64_t)(number + 1) << 48 | at;
            js->bytes[file] = mr_load_le64(body + 8);
        }
    }
    return s->failed < 0 ? s->failed : 0;
}

struct listing {
    struct mr_strbuf names; /* NUL-terminated, one after the other */
    unsigned n;
};

static int collect(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    struct listing *l = user;
    size_t len = strlen(name);
    if (is_dir || len < 4 || strcmp(name + len - 4, ".mrj") != 0 || l->n >= MAX_JOURNALS)
        return 0;
    mr_strbuf_add(&l->names, name, len + 1);
    l->n++;
    return l->names.failed ? mr_error_set(err, -ENOMEM, "cannot list the journals") : 0;
}

static int open_sources(struct mr_journals *js, struct mr_store *s, const char *dir, const struct listing *l,
                        struct mr_error *err)
{
    const char *name = l->names.text;
    for (unsigned i = 0; i < l->n; i++, name += strlen(name) + 1) {
        char path[2 * MR_NAME_MAX];
        snprintf(path, sizeof path, "%s/%s", dir, name);
        struct source *src = &js->source[js->n_sources];
        int r = mr_object_open(s, path, MR_OBJ_READ, &src->object, err);
        if (r < 0)
            return r;
        js->n_sources++;
        if ((r = mr_object_size(src->object, &src->size, err)) < 0 || (r = index_source(js, i, err)) < 0)
            return r;
    }
    return 0;
}

int mr_journals_open(struct mr_store *s, const char *folder, uint64_t files, struct mr_journals **out,
                     struct mr_error *err)
{
    char dir[MR_NAME_MAX + 64];
    struct listing l = {0};
    struct mr_store_stat st;
    snprintf(dir, sizeof dir, "%s/" MR_JOURNAL_FOLDER, folder);
    *out = NULL;
    int r = mr_store_stat(s, dir, &st, err);
    if (r < 0)
        return r == -ENOENT || r == -ENOTDIR ? 0 : r;
    r = s->ops->list(s, dir, collect, &l, err);
    if (r < 0 || l.n == 0) {
        mr_strbuf_done(&l.names);
        return r < 0 ? r : 0;
    }
    struct mr_journals *js = calloc(1, sizeof(*js));
    if (js) {
        js->files = files;
        js->source = calloc(l.n, sizeof(*js->source));
        js->where = calloc(files ? files : 1, sizeof(*js->where));
        js->bytes = calloc(files ? files : 1, sizeof(*js->bytes));
    }
    if (!js || !js->source || !js->where || !js->bytes)
        r = mr_error_set(err, -ENOMEM, "cannot read the journals of %llu files", (unsigned long long)files);
    else
        r = open_sources(js, s, dir, &l, err);
    mr_strbuf_done(&l.names);
    if (r < 0 || !js || !js->spec) {
        mr_journals_close(js);
        return r < 0 ? r : 0;
    }
    *out = js;
    return 0;
}

void mr_journals_close(struct mr_journals *js)
{
    if (!js)
        return;
    for (unsigned i = 0; i < js->n_sources; i++) {
        mr_object_close(js->source[i].object, NULL);
        free(js->source[i].window);
    }
    free(js->own);
    free(js->source);
    free(js->where);
    free(js->bytes);
    free(js->spec);
    free(js);
}

const char *mr_journals_spec(const struct mr_journals *js)
{
    return js->spec;
}

bool mr_journals_has(const struct mr_journals *js, uint64_t file, uint64_t *bytes)
{
    if (!js || file >= js->files || !js->where[file])
        return false;
    *bytes = js->bytes[file];
    return true;
}

/* Cuts one column off the front of the record; false when the record does not hold it. */
static bool take_column(const uint8_t **p, const uint8_t *end, struct mr_column *c)
{
    if (end - *p < (ptrdiff_t)COLUMN_HEAD)
        return false;
    const uint8_t *b = *p;
    *c = (struct mr_column){.encoding = b[0],
                            .width = b[1],
                            .count = mr_load_le64(b + 2),
                            .base = mr_load_le64(b + 10),
                            .step = mr_load_le64(b + 18),
                            .data = b + COLUMN_HEAD};
    *p += COLUMN_HEAD;
    if (c->encoding == MR_COLUMN_PACKED) {
        if (c->width < 1 || c->width > 8 || c->count > (uint64_t)(end - *p) / c->width)
            return false;
        c->data_bytes = c->count * c->width;
        *p += c->data_bytes;
    }
    return c->encoding >= MR_COLUMN_CONST && c->encoding <= MR_COLUMN_PACKED;
}

static bool take_layout(const uint8_t **p, const uint8_t *end, struct mr_layout *l)
{
    if (end - *p < 8 || mr_load_le64(*p) > (uint64_t)(end - *p) - 8)
        return false;
    *l = (struct mr_layout){.data = (void *)(uintptr_t)(*p + 8), .len = mr_load_le64(*p)};
    *p += 8 + l->len;
    return true;
}

/* Fields with columns of their own, where the record has some. */
static bool take_own(struct mr_journals *js, const uint8_t *p, const uint8_t *end, struct mr_manifest_file *f)
{
    if (p == end)
        return true;
    uint64_t n = end - p >= 8 ? mr_load_le64(p) : 0;
    if (!n || n > MR_FIELDS_MAX)
        return false;
    p += 8;
    free(js->own);
    js->own = calloc(n, sizeof(*js->own));
    bool ok = js->own != NULL;
    for (uint64_t i = 0; ok && i < n; i++) {
        ok = take_layout(&p, end, &js->own[i].layout);
        for (unsigned k = 0; ok && k < MR_FC_LAYOUT; k++)
            ok = take_column(&p, end, &js->own[i].column[k]) && js->own[i].column[k].count == f->column[0].count;
    }
    f->own = js->own;
    f->n_own = (unsigned)n;
    return ok && p == end;
}

int mr_journals_get(struct mr_journals *js, uint64_t file, struct mr_manifest_file *out, struct mr_error *err)
{
    assert(file < js->files);
    uint64_t where = js->where[file], len = 0;
    const uint8_t *body = NULL;
    if (where)
        body = fetch_record(&js->source[(where >> 48) - 1], where & (((uint64_t)1 << 48) - 1), &len, err);
    const uint8_t *p = body, *end = body + len;
    struct mr_manifest_file f = {0};
    bool ok = body && len >= 24;
    if (ok) {
        f.bytes = mr_load_le64(p + 8);
        p += 16;
        ok = take_layout(&p, end, &f.layout);
    }
    for (unsigned k = 0; ok && k < MR_SC_COUNT; k++)
        ok = take_column(&p, end, &f.column[k]) && f.column[k].count == f.column[0].count;
    ok = ok && take_own(js, p, end, &f);
    if (!ok && where && js->source[(where >> 48) - 1].failed < 0)
        return js->source[(where >> 48) - 1].failed;
    if (!ok) {
        mr_error_plain(err, MR_E_CORRUPT, "the journal has no whole record of file %llu", (unsigned long long)file);
        return mr_error_hint(err, "run the same command again with --overwrite"), MR_E_CORRUPT;
    }
    *out = f;
    return 0;
}

void mr_journals_remove(struct mr_store *s, const char *folder)
{
    char dir[MR_NAME_MAX + 64], path[2 * MR_NAME_MAX];
    struct listing l = {0};
    snprintf(dir, sizeof dir, "%s/" MR_JOURNAL_FOLDER, folder);
    if (s->ops->list(s, dir, collect, &l, NULL) >= 0) {
        const char *name = l.names.text;
        for (unsigned i = 0; i < l.n; i++, name += strlen(name) + 1) {
            snprintf(path, sizeof path, "%s/%s", dir, name);
            s->ops->unlink(s, path, NULL);
        }
        s->ops->unlink(s, dir, NULL); /* an empty folder, where the store can remove one */
    }
    mr_strbuf_done(&l.names);
}
