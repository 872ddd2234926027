/* Object storage: `s3://BUCKET/KEY`. Requests, signing, repeats and uploads are src/s3's; this file fits them to the
 * seam. Design: doc/internals/s3.md.
 *
 *   read        one range per request, large ones in pieces of `range` bytes, many at a time; If-Match with the ETag seen
 *               at open
 *   READ_PATH   one request: no HEAD before it
 *   write       into an upload (s3_upload.h); the object has its name and all its bytes after the close
 *   folders     are prefixes: always there, never made; stat finds one by listing one key below it
 *
 * Invariants
 *  1. An ETag that this store has seen for a path is remembered: reading the path later with another one is
 *     MR_E_CHANGED, unless this store wrote or removed it in between, or its user expects changes. `lock` guards that map;
 *     it is a leaf. */
#include "base/common.h"
#include "base/log.h"
#include "base/map.h"
#include "base/vec.h"
#include "store/store_s3.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART_MIN (5 * MR_MIB)
#define PIECES_MAX 64u /* of one direct read, at a time */

static const char *const addressings[] = {"auto", "path", "virtual", NULL};

struct s3_options {
    const char *endpoint, *region, *profile, *ca_file;
    int addressing;
    int64_t connections, upload_threads;
    uint64_t range, part, connect_timeout, stall_timeout, deadline;
    double hedge;
    bool anonymous, insecure, instance, timing;
};

#define ROW(key, field, type, def, ...) MR_OPTION(s3_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option s3_rows[] = {
    ROW("endpoint", endpoint, STRING, "",
        .doc =
            "Address of the server; by default AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's endpoint_url, or "
            "AWS itself.",
        .example = "s3(endpoint=\"http://127.0.0.1:7070\")"),
    ROW("region", region, STRING, "",
        .doc = "Region of the bucket; by default AWS_REGION, the profile's, or us-east-1."),
    ROW("profile", profile, STRING, "",
        .doc = "Section of ~/.aws/credentials and ~/.aws/config; by default AWS_PROFILE."),
    ROW("addressing", addressing, ENUM, "auto", .choices = addressings,
        .doc = "Bucket in the path or in the host's name; auto: in the path unless the server is AWS."),
    ROW("connections", connections, INT, "32", .min = 1, .max = 512,
        .doc = "Requests at once of one queue or one large read."),
    ROW("range", range, BYTES, "8MiB", .min = 65536, .max = 5e9,
        .doc = "Reads longer than this are cut into parallel requests."),
    ROW("part", part, BYTES, "8MiB", .min = 5242880, .max = 5e9,
        .doc = "First size of an upload's parts; larger objects have larger ones."),
    ROW("upload_threads", upload_threads, INT, "4", .min = 1, .max = 32, .doc = "Parts that are sent at a time."),
    ROW("connect_timeout", connect_timeout, DURATION, "5s", .doc = "Longest wait for a connection."),
    ROW("stall_timeout", stall_timeout, DURATION, "20s",
        .doc = "A request on which nothing moves for so long is sent again."),
    ROW("deadline", deadline, DURATION, "60s",
        .doc = "Longest time for one request with all its repeats; then the call fails with what happened last."),
    ROW("hedge", hedge, DOUBLE, "0", .min = 0, .max = 0.5,
        .doc = "Send a second request for this share of the reads, the slowest ones; the first answer counts.",
        .example = "s3(hedge=0.01)"),
    ROW("ca_file", ca_file, STRING, "",
        .doc = "Certificates of the authorities to trust (PEM); by default the system's."),
    ROW("insecure", insecure, BOOL, "false",
        .doc = "Do not check the server's certificate. For tests only; it is said."),
    ROW("anonymous", anonymous, BOOL, "false", .doc = "Send requests unsigned: public buckets."),
    ROW("instance", instance, BOOL, "false",
        .doc = "Take credentials from the instance's metadata service where nothing else has any."),
    MR_STORE_TIMING_OPTION(struct s3_options),
    MR_OPTION_END,
};

/* ---- ETags ---- */

static uint64_t hash_text(const char *text, uint64_t seed)
{
    uint64_t h = mr_hash_bytes(text, strlen(text), seed);
    return h ? h : 1;
}

/* 0, or MR_E_CHANGED: this store has seen the path with another content. */
int mr_s3_store_check_etag(struct s3_store *s, const char *path, const char *etag, struct mr_error *err)
{
    uint64_t now = hash_text(etag, 1);
    if (!*etag || s->changes)
        return 0;
    pthread_mutex_lock(&s->lock);
    uint64_t *seen = mr_map_put(&s->etags, hash_text(path, 0));
    bool changed = seen && *seen > 1 && *seen != now;
    if (seen && !changed)
        *seen = now;
    pthread_mutex_unlock(&s->lock);
    if (!changed)
        return 0;
    mr_error_plain(err, MR_E_CHANGED, "'%s' was replaced since it was first read", path);
    return mr_error_hint(err, "do not write to a data set that is being read; run again to read the new one"),
           MR_E_CHANGED;
}

/* This store has written or removed it: what comes next is new. */
static void forget_etag(struct s3_store *s, const char *path)
{
    pthread_mutex_lock(&s->lock);
    if (mr_map_get(&s->etags, hash_text(path, 0))) {
        uint64_t *seen = mr_map_put(&s->etags, hash_text(path, 0));
        if (seen)
            *seen = 1;
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- listings that answer stat ---- */

#define LISTED_MAX 20000000u

bool mr_store_is_remote(const struct mr_store *s)
{
    while (s->lower)
        s = s->lower;
    return s->ops == &mr_store_s3_ops;
}

void mr_store_remember_listings(struct mr_store *s)
{
    while (s->lower)
        s = s->lower;
    if (s->ops == &mr_store_s3_ops)
        store_of(s)->remembers = true;
}

void mr_store_expect_changes(struct mr_store *s)
{
    while (s->lower)
        s = s->lower;
    if (s->ops == &mr_store_s3_ops)
        store_of(s)->changes = true;
}

static void note_listed(struct s3_store *s, const char *bucket, const struct mr_s3_entry *e)
{
    char path[MR_S3_BUCKET_MAX + MR_S3_KEY_MAX + 16];
    snprintf(path, sizeof path, "s3://%s/%s", bucket, e->key);
    pthread_mutex_lock(&s->lock);
    if (s->entries < LISTED_MAX && mr_vec_reserve(&s->entry, &s->entries_cap, s->entries + 1, sizeof(*s->entry)) == 0) {
        uint64_t *at = mr_map_put(&s->listed, hash_text(path, 0));
        if (at) {
            s->entry[s->entries] = (struct mr_s3_listed){e->bytes, e->mtime_s};
            *at = ++s->entries;
        }
    }
    pthread_mutex_unlock(&s->lock);
}

static bool find_listed(struct s3_store *s, const char *path, struct mr_store_stat *out)
{
    uint64_t at = 0;
    if (!s->remembers)
        return false;
    pthread_mutex_lock(&s->lock);
    at = mr_map_get(&s->listed, hash_text(path, 0));
    if (at)
        *out =
            (struct mr_store_stat){.bytes = s->entry[at - 1].bytes, .mtime_ns = s->entry[at - 1].mtime_s * MR_NS_PER_S};
    pthread_mutex_unlock(&s->lock);
    return at != 0;
}

/* ---- the store ---- */

static void s3_close(struct mr_store *base)
{
    struct s3_store *s = store_of(base);
    mr_s3_senders_free(s->senders);
    if (s->client) {
        const struct mr_s3_stats *st = mr_s3_client_stats(s->client);
        if (st->retries || st->slowdowns)
            mr_log(MR_LOG_NOTE, "s3: %llu of %llu requests were repeats (%llu answers asked to slow down)",
                   (unsigned long long)st->retries, (unsigned long long)st->requests,
                   (unsigned long long)st->slowdowns);
        mr_log(MR_LOG_INFO, "s3: %llu requests over %llu connections, %llu bytes in, %llu out",
               (unsigned long long)st->requests, (unsigned long long)st->connects, (unsigned long long)st->bytes_in,
               (unsigned long long)st->bytes_out);
        if (st->hedges)
            mr_log(MR_LOG_NOTE, "s3: %llu second requests for slow ones, %llu of them answered first",
                   (unsigned long long)st->hedges, (unsigned long long)st->hedges_won);
    }
    mr_s3_emit_sums(s);
    mr_s3_client_close(s->client);
    mr_map_done(&s->etags);
    mr_map_done(&s->listed);
    free(s->entry);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static int s3_open(const void *options, struct mr_store *lower, struct mr_store **out, struct mr_error *err)
{
    (void)lower;
    const struct s3_options *o = options;
    struct s3_store *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot open store 's3'");
    const struct mr_s3_config c = {.endpoint = o->endpoint,
                                   .region = o->region,
                                   .profile = o->profile,
                                   .ca_file = o->ca_file,
                                   .addressing = (enum mr_s3_addressing)o->addressing,
                                   .insecure = o->insecure,
                                   .anonymous = o->anonymous,
                                   .from_instance = o->instance,
                                   .connections = (unsigned)o->connections,
                                   .connect_timeout_ns = o->connect_timeout,
                                   .stall_timeout_ns = o->stall_timeout,
                                   .deadline_ns = o->deadline,
                                   .hedge = o->hedge};
    s->base.ops = &mr_store_s3_ops;
    s->range = o->range;
    s->part = MR_MAX(o->part, PART_MIN);
    s->timing = o->timing;
    pthread_mutex_init(&s->lock, NULL);
    int rc = mr_s3_client_open(&c, &s->client, err);
    if (!rc)
        rc = mr_s3_senders_create(s->client, (unsigned)o->upload_threads, &s->senders, err);
    if (rc)
        s3_close(&s->base);
    else
        *out = &s->base;
    return rc;
}

/* ---- folders, which are prefixes ---- */

/* The key of a folder with the '/' at its end ("" for the bucket), in `out` of MR_S3_KEY_MAX + 2 bytes. */
static int folder_of(const char *path, char bucket[MR_S3_BUCKET_MAX], char *out, struct mr_error *err)
{
    const char *key;
    int rc = mr_s3_split(path, bucket, &key, err);
    if (rc)
        return rc;
    size_t n = strlen(key);
    while (n && key[n - 1] == '/')
        n--;
    memcpy(out, key, n);
    if (n)
        out[n++] = '/';
    out[n] = '\0';
    return 0;
}

static int found_one(void *user, const struct mr_s3_entry *e)
{
    (void)e;
    *(bool *)user = true;
    return 0;
}

/* 1: there is something below it, or it is a bucket; 0: no. */
static int is_folder(struct s3_store *s, const char *path, struct mr_error *err)
{
    char bucket[MR_S3_BUCKET_MAX], prefix[MR_S3_KEY_MAX + 2];
    bool found = false;
    int rc = folder_of(path, bucket, prefix, err);
    if (!rc)
        rc = mr_s3_list(s->client, bucket, prefix, "", 1, found_one, &found, err);
    return rc ? rc : found || !*prefix;
}

static int s3_stat(struct mr_store *base, const char *path, struct mr_store_stat *out, struct mr_error *err)
{
    struct s3_store *s = store_of(base);
    struct mr_s3_object_info info;
    char bucket[MR_S3_BUCKET_MAX];
    const char *key;
    int rc = mr_s3_split(path, bucket, &key, err);
    if (rc)
        return rc;
    if (find_listed(s, path, out))
        return 0;
    size_t n = strlen(key);
    rc = n && key[n - 1] != '/' ? mr_s3_head(s->client, bucket, key, &info, err) : -ENOENT;
    if (!rc) {
        *out = (struct mr_store_stat){.bytes = info.bytes, .mtime_ns = info.mtime_s * MR_NS_PER_S};
        return 0;
    }
    struct mr_error why;
    int folder = rc == -ENOENT ? is_folder(s, path, &why) : 0;
    if (folder < 0) {
        if (err)
            *err = why;
        return folder;
    }
    if (folder)
        *out = (struct mr_store_stat){.is_dir = true};
    return folder ? 0 : rc == -ENOENT ? mr_store_fail_path(err, -ENOENT, "stat", path) : rc;
}

struct listing {
    struct mr_names names;
    size_t skip; /* bytes of the prefix */
    struct s3_store *store;
    const char *bucket;
};

static int add_name(void *user, const struct mr_s3_entry *e)
{
    struct listing *l = user;
    size_t n = strlen(e->key);
    if (n <= l->skip) /* the folder's own mark, which some tools put */
        return 0;
    if (l->store->remembers && !e->is_prefix)
        note_listed(l->store, l->bucket, e);
    char name[MR_S3_KEY_MAX + 2];
    snprintf(name, sizeof name, "%s", e->key + l->skip);
    n = strlen(name);
    bool is_dir = n && name[n - 1] == '/';
    if (is_dir)
        name[n - 1] = '\0';
    return *name ? mr_names_add(&l->names, name, is_dir) : 0;
}

static int s3_list(struct mr_store *base, const char *path, mr_store_list_fn *fn, void *user, struct mr_error *err)
{
    struct s3_store *s = store_of(base);
    struct mr_store_stat st = {0};
    struct listing l = {0};
    char bucket[MR_S3_BUCKET_MAX], prefix[MR_S3_KEY_MAX + 2];
    int rc = folder_of(path, bucket, prefix, err);
    if (rc)
        return rc;
    l.skip = strlen(prefix);
    l.store = s;
    l.bucket = bucket;
    rc = mr_s3_list(s->client, bucket, prefix, "/", 0, add_name, &l, err);
    if (!rc && l.names.count == 0 && *prefix) {
        rc = s3_stat(base, path, &st, err);
        if (!rc && !st.is_dir)
            rc = mr_store_fail_path(err, -ENOTDIR, "list", path);
    }
    if (!rc)
        return mr_names_give(&l.names, fn, user, err);
    mr_names_done(&l.names);
    return rc == -ENOMEM ? mr_error_set(err, rc, "cannot list '%s'", path) : rc;
}

static int s3_mkdir(struct mr_store *base, const char *path, struct mr_error *err)
{
    (void)base, (void)path, (void)err; /* a prefix is there when something is below it */
    return 0;
}

/* An object; or a folder, of which nothing is left to remove. */
static int s3_unlink(struct mr_store *base, const char *path, struct mr_error *err)
{
    struct s3_store *s = store_of(base);
    char bucket[MR_S3_BUCKET_MAX];
    struct mr_s3_object_info info;
    const char *key;
    int rc = mr_s3_split(path, bucket, &key, err);
    if (rc || !*key)
        return rc;
    rc = mr_s3_head(s->client, bucket, key, &info, err); /* S3 removes what is not there without a word */
    if (rc == -ENOENT) {
        int folder = is_folder(s, path, err);
        return folder < 0 ? folder : mr_store_fail_path(err, folder ? -ENOTEMPTY : -ENOENT, "remove", path);
    }
    forget_etag(s, path);
    return rc ? rc : mr_s3_delete(s->client, bucket, key, err);
}

static int s3_sync_dir(struct mr_store *base, const char *path, struct mr_error *err)
{
    (void)base, (void)path, (void)err; /* an object that has its name is durable */
    return 0;
}

static int s3_free_space(struct mr_store *base, const char *path, uint64_t *bytes, uint64_t *inodes,
                         struct mr_error *err)
{
    (void)base, (void)bytes, (void)inodes;
    return mr_error_plain(err, MR_E_UNSUPPORTED, "object storage does not say how much room '%s' has", path);
}

int mr_store_abort_unfinished(struct mr_store *s, const char *folder, const char *begins, uint64_t *n,
                              struct mr_error *err)
{
    char bucket[MR_S3_BUCKET_MAX], below[MR_S3_KEY_MAX + 2], prefix[2 * MR_S3_KEY_MAX];
    uint64_t uncounted;
    n = n ? n : &uncounted;
    *n = 0;
    while (s->lower)
        s = s->lower;
    if (s->ops != &mr_store_s3_ops)
        return 0;
    int rc = folder_of(folder, bucket, below, err);
    snprintf(prefix, sizeof prefix, "%s%.256s", rc ? "" : below, begins);
    rc = rc ? rc : mr_s3_abort_below(store_of(s)->client, bucket, prefix, n, err);
    if (!rc && *n)
        mr_log(MR_LOG_NOTE, "s3: removed %llu unfinished %s below '%s'", (unsigned long long)*n,
               mr_plural(*n, "upload", "uploads"), folder);
    return rc == -EACCES ? 0 : rc;
}

struct doomed {
    MR_VEC(char *) key;
    char first[MR_S3_KEY_MAX + 256]; /* is removed before the others; "" once that is done */
    bool has_first;
};

static int doom(void *user, const struct mr_s3_entry *e)
{
    struct doomed *d = user;
    bool first = strcmp(e->key, d->first) == 0;
    d->has_first |= first;
    char **room = e->is_prefix || first ? NULL : MR_VEC_ADD(&d->key);
    if (room)
        *room = strdup(e->key);
    return e->is_prefix || first || (room && *room) ? 0 : -ENOMEM;
}

static int remove_listed(struct s3_store *s, const char *bucket, const struct doomed *d, struct mr_error *err)
{
    int rc = d->has_first ? mr_s3_delete(s->client, bucket, d->first, err) : 0;
    if (rc || !mr_s3_delete_many(s->client, bucket, (const char *const *)d->key.item, d->key.n, NULL))
        return rc;
    for (size_t i = 0; i < d->key.n && !rc; i++) /* a server without that request */
        rc = mr_s3_delete(s->client, bucket, d->key.item[i], err);
    return rc;
}

static int s3_remove_objects(struct s3_store *s, const char *folder, const char *first, struct mr_error *err)
{
    struct doomed d = {0};
    char bucket[MR_S3_BUCKET_MAX], prefix[MR_S3_KEY_MAX + 2], path[MR_S3_BUCKET_MAX + MR_S3_KEY_MAX + 16];
    int rc = folder_of(folder, bucket, prefix, err);
    snprintf(d.first, sizeof d.first, "%s%s", rc ? "" : prefix, first);
    rc = rc ? rc : mr_s3_list(s->client, bucket, prefix, "/", 0, doom, &d, err);
    rc = rc == -ENOMEM ? mr_error_set(err, rc, "cannot list '%s'", folder) : rc;
    rc = rc ? rc : remove_listed(s, bucket, &d, err);
    for (size_t i = 0; i < d.key.n; i++) {
        snprintf(path, sizeof path, "s3://%s/%s", bucket, d.key.item[i] ? d.key.item[i] : "");
        forget_etag(s, path);
        free(d.key.item[i]);
    }
    free(d.key.item);
    return rc;
}

struct folder {
    struct mr_store *s;
    const char *path;
};

static int remove_below(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    const struct folder *f = user;
    char path[2 * MR_S3_KEY_MAX];
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    int rc = is_dir ? 0 : f->s->ops->unlink(f->s, path, err);
    return rc == -ENOENT ? 0 : rc;
}

int mr_store_remove_objects(struct mr_store *s, const char *folder, const char *first, struct mr_error *err)
{
    struct folder f = {s, folder};
    struct mr_store *bottom = s;
    while (bottom->lower)
        bottom = bottom->lower;
    if (bottom->ops == &mr_store_s3_ops)
        return s3_remove_objects(store_of(bottom), folder, first, err);
    int rc = remove_below(&f, first, false, err);
    rc = rc ? rc : s->ops->list(s, folder, remove_below, &f, err);
    return rc == -ENOENT ? 0 : rc;
}

/* ---- objects ---- */

static int make_object(struct s3_store *s, const char *path, struct s3_object **out, struct mr_error *err)
{
    size_t len = strlen(path) + 1;
    struct s3_object *o = calloc(1, sizeof(*o) + len);
    if (!o)
        return mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    memcpy(o->path, path, len);
    o->base = (struct mr_object){.store = &s->base, .path = o->path};
    int rc = mr_s3_split(o->path, o->bucket, &o->key, err);
    if (!rc && !*o->key)
        rc = mr_store_fail_path(err, -EISDIR, "open", path);
    if (rc)
        free(o);
    else
        *out = o;
    return rc;
}

/* Size and ETag as they are now; -EISDIR where the path is a folder. */
static int look_up(struct s3_store *s, struct s3_object *o, struct mr_error *err)
{
    int rc = mr_s3_head(s->client, o->bucket, o->key, &o->info, err);
    if (rc == -ENOENT) {
        int folder = is_folder(s, o->path, err);
        return folder < 0 ? folder : mr_store_fail_path(err, folder ? -EISDIR : -ENOENT, "open", o->path);
    }
    o->has_info = rc == 0;
    return rc;
}

static int open_for_reading(struct s3_store *s, struct s3_object *o, unsigned flags, struct mr_error *err)
{
    if (flags & MR_OBJ_KNOWN) /* the first read finds out */
        return 0;
    int rc = look_up(s, o, err);
    return rc ? rc : mr_s3_store_check_etag(s, o->path, o->info.etag, err);
}

static int open_for_writing(struct s3_store *s, struct s3_object *o, unsigned flags, struct mr_error *err)
{
    bool makes = flags & (MR_OBJ_CREATE | MR_OBJ_EXCLUSIVE), whole = (flags & MR_OBJ_TRUNCATE) && makes;
    if (flags & MR_OBJ_READ)
        return mr_error_plain(err, MR_E_UNSUPPORTED,
                              "cannot open '%s' for reading and writing at once: store 's3' "
                              "writes new objects only",
                              o->path);
    int rc = whole && !(flags & MR_OBJ_EXCLUSIVE) ? -ENOENT : look_up(s, o, err);
    if (rc == 0 && (flags & MR_OBJ_EXCLUSIVE))
        return mr_store_fail_path(err, -EEXIST, "open", o->path);
    if (rc == 0 && !(flags & MR_OBJ_TRUNCATE)) {
        mr_error_plain(err, MR_E_UNSUPPORTED, "cannot change '%s' in place: store 's3' writes new objects only",
                       o->path);
        return MR_E_UNSUPPORTED;
    }
    if (rc && (rc != -ENOENT || !makes))
        return rc;
    const struct mr_s3_upload_params p = {
        .bucket = o->bucket, .key = o->key, .part_bytes = s->part, .if_absent = flags & MR_OBJ_EXCLUSIVE};
    return mr_s3_upload_create(s->senders, &p, &o->upload, err);
}

static int s3_object_open(struct mr_store *base, const char *path, unsigned flags, struct mr_object **out,
                          struct mr_error *err)
{
    struct s3_store *s = store_of(base);
    struct s3_object *o = NULL;
    struct mr_error why; /* a missing object is no failure of one that is made */
    int rc = make_object(s, path, &o, err);
    if (rc)
        return rc;
    rc = flags & MR_OBJ_WRITE ? open_for_writing(s, o, flags, &why) : open_for_reading(s, o, flags, &why);
    if (rc) {
        free(o);
        if (err)
            *err = why;
        return rc;
    }
    *out = &o->base;
    return 0;
}

static int s3_object_close(struct mr_object *base, struct mr_error *err)
{
    struct s3_object *o = (struct s3_object *)base;
    char etag[MR_S3_ETAG_MAX];
    int rc = 0;
    if (o->upload) {
        rc = mr_s3_upload_end(o->upload, !base->abandoned, etag, err);
        forget_etag(store_of(base->store), o->path);
    }
    free(o);
    return rc;
}

static int s3_object_size(struct mr_object *base, uint64_t *bytes, struct mr_error *err)
{
    struct s3_object *o = (struct s3_object *)base;
    int rc = o->upload || o->has_info ? 0 : look_up(store_of(base->store), o, err);
    if (!rc)
        *bytes = o->upload ? mr_s3_upload_bytes(o->upload) : o->info.bytes;
    return rc;
}

/* ---- direct reads ---- */

static void plan_piece(struct mr_s3_op *op, const struct s3_object *o, void *buf, size_t len, uint64_t offset)
{
    *op = (struct mr_s3_op){.verb = MR_S3_GET,
                            .bucket = o->bucket,
                            .key = o->key,
                            .ranged = true,
                            .from = offset,
                            .if_match = o->info.etag,
                            .place = buf,
                            .room = len,
                            .verb_text = "read"};
}

/* What the first answer says of an object that was opened unseen. */
static int learn(struct s3_object *o, const struct mr_s3_op *op, struct mr_error *err)
{
    if (o->has_info)
        return 0;
    o->info.bytes = op->total;
    memcpy(o->info.etag, op->etag, sizeof o->info.etag);
    return mr_s3_store_check_etag(store_of(o->base.store), o->path, op->etag, err);
}

static int64_t read_one(struct s3_object *o, void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    struct mr_s3_op op;
    plan_piece(&op, o, buf, len, offset);
    int rc = mr_s3_run(store_of(o->base.store)->client, &op, err);
    if (!rc && op.got)
        rc = learn(o, &op, err);
    int64_t got = (int64_t)op.got;
    mr_s3_op_done(&op);
    return rc ? rc : got;
}

/* Up to PIECES_MAX ranges at a time, on one lane. */
static int64_t read_pieces(struct s3_object *o, char *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    struct s3_store *s = store_of(o->base.store);
    unsigned n = (unsigned)MR_MIN((len + s->range - 1) / s->range, (size_t)PIECES_MAX);
    struct mr_s3_op *ops = calloc(n, sizeof(*ops));
    struct mr_s3_lane *l = NULL;
    if (!ops)
        return mr_error_set(err, -ENOMEM, "cannot read '%s'", o->path);
    int rc = mr_s3_lane_get(s->client, &l, err);
    size_t at = 0;
    for (unsigned i = 0; !rc && i < n; i++) {
        size_t bytes = MR_MIN((size_t)s->range, len - at);
        plan_piece(&ops[i], o, buf + at, bytes, offset + at);
        mr_s3_lane_start(l, &ops[i]);
        at += bytes;
    }
    for (struct mr_s3_op *op; l && (op = mr_s3_lane_wait(l, UINT64_MAX));)
        if (op->code && !rc) {
            rc = op->code;
            if (err)
                *err = op->why;
        }
    size_t got = 0;
    for (unsigned i = 0; !rc && i < n; i++) {
        got += ops[i].got;
        if (ops[i].got < ops[i].room)
            break;
    }
    for (unsigned i = 0; i < n; i++)
        mr_s3_op_done(&ops[i]);
    free(ops);
    if (l)
        mr_s3_lane_put(l);
    return rc ? rc : (int64_t)got;
}

static int64_t s3_read(struct mr_object *base, void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    struct s3_object *o = (struct s3_object *)base;
    if (o->upload)
        return mr_store_fail_range(err, -EBADF, "read", o->path, len, offset, 0);
    if (o->has_info)
        len = offset < o->info.bytes ? (size_t)MR_MIN((uint64_t)len, o->info.bytes - offset) : 0;
    if (len == 0)
        return 0;
    if (len <= store_of(base->store)->range || !o->has_info)
        return read_one(o, buf, MR_MIN(len, (size_t)store_of(base->store)->range), offset, err);
    return read_pieces(o, buf, len, offset, err);
}

/* ---- writes ---- */

static int64_t s3_write(struct mr_object *base, const void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    struct s3_object *o = (struct s3_object *)base;
    if (!o->upload)
        return mr_store_fail_range(err, -EBADF, "write", o->path, len, offset, 0);
    if (len > INT64_MAX || offset > INT64_MAX - len)
        return mr_store_fail_range(err, -EFBIG, "write", o->path, len, offset, 0);
    int rc = mr_s3_upload_write(o->upload, buf, len, offset, err);
    return rc ? rc : (int64_t)len;
}

static int s3_fsync(struct mr_object *base, struct mr_error *err)
{
    (void)base, (void)err; /* the close makes it durable, or says why not */
    return 0;
}

static int s3_allocate(struct mr_object *base, uint64_t bytes, struct mr_error *err)
{
    (void)base, (void)bytes, (void)err;
    return 0;
}

static int s3_truncate(struct mr_object *base, uint64_t bytes, struct mr_error *err)
{
    struct s3_object *o = (struct s3_object *)base;
    if (!o->upload)
        return mr_store_fail_path(err, -EINVAL, "truncate", o->path);
    if (bytes < mr_s3_upload_bytes(o->upload))
        return mr_error_plain(err, MR_E_UNSUPPORTED, "cannot shorten '%s': store 's3' writes new objects only",
                              o->path);
    mr_s3_upload_extend(o->upload, bytes);
    return 0;
}

const struct mr_store_ops mr_store_s3_ops = {
    .abi = MR_STORE_ABI,
    .size = sizeof(struct mr_store_ops),
    .name = "s3",
    .doc = "Object storage (S3): paths are s3://BUCKET/KEY. Chosen by itself where a path is such an address.",
    .caps = MR_STORE_CAP_WRITE | MR_STORE_CAP_PERSISTENT | MR_STORE_CAP_CONTENT | MR_STORE_CAP_WHOLE_PUT |
            MR_STORE_CAP_MULTIPART,
    .options = {.section = "s3",
                .doc = "Object storage.",
                .options = s3_rows,
                .struct_bytes = sizeof(struct s3_options)},
    .open = s3_open,
    .close = s3_close,
    .object_open = s3_object_open,
    .object_close = s3_object_close,
    .object_size = s3_object_size,
    .read = s3_read,
    .write = s3_write,
    .fsync = s3_fsync,
    .allocate = s3_allocate,
    .truncate = s3_truncate,
    .stat = s3_stat,
    .list = s3_list,
    .mkdir = s3_mkdir,
    .unlink = s3_unlink,
    .rename = mr_store_no_rename,
    .sync_dir = s3_sync_dir,
    .free_space = s3_free_space,
    .drop_cache = mr_store_no_drop_cache,
    .resident = mr_store_no_resident,
    .ioq_create = mr_s3_ioq_create,
    .ioq_free = mr_s3_ioq_free,
    .ioq_submit = mr_s3_ioq_submit,
    .ioq_reap = mr_s3_ioq_reap,
    .ioq_register = mr_s3_ioq_register,
};
