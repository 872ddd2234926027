/* The parts of the store s3 that its two files share: store_s3.c (objects, folders) and store_s3_queue.c. */
#ifndef MR_STORE_STORE_S3_H
#define MR_STORE_STORE_S3_H

#include "base/map.h"
#include "s3/s3_calls.h"
#include "s3/s3_upload.h"
#include "store/store_internal.h"

#include <pthread.h>

struct mr_events;

struct s3_store {
    struct mr_store base;
    struct mr_events *events; /* mr_store_emit_requests; NULL: none */
    struct mr_s3_client *client;
    struct mr_s3_senders *senders;
    uint64_t range, part;
    bool timing;
    pthread_mutex_t lock;
    struct mr_map etags;  /* of a path's hash: a hash of the ETag */
    bool remembers;       /* listings answer stat */
    bool changes;         /* mr_store_expect_changes */
    struct mr_map listed; /* of a path's hash: an index into `entry`, plus one */
    struct mr_s3_listed {
        uint64_t bytes, mtime_s;
    } * entry;
    size_t entries, entries_cap;
};

struct s3_object {
    struct mr_object base;
    char bucket[MR_S3_BUCKET_MAX];
    const char *key; /* into path */
    struct mr_s3_object_info info;
    bool has_info;
    struct mr_s3_upload *upload; /* of one that is written */
    char path[];
};

static inline struct s3_store *store_of(struct mr_store *s)
{
    return (struct s3_store *)s;
}

/* 0, or MR_E_CHANGED: this store has seen the path with another content. */
int mr_s3_store_check_etag(struct s3_store *s, const char *path, const char *etag, struct mr_error *err);

void mr_s3_emit_sums(const struct s3_store *s); /* store_s3_events.c */

int mr_s3_ioq_create(struct mr_store *s, unsigned depth, struct mr_ioq **out, struct mr_error *err);
void mr_s3_ioq_free(struct mr_ioq *q);
int mr_s3_ioq_submit(struct mr_ioq *q, struct mr_io *const *ios, unsigned n, struct mr_error *err);
int mr_s3_ioq_reap(struct mr_ioq *q, unsigned min, unsigned max, struct mr_io **done, struct mr_error *err);
int mr_s3_ioq_register(struct mr_ioq *q, const struct iovec *iov, unsigned n, struct mr_error *err);

#endif
