/* S3's calls that the store is made of, each complete when it returns. Errors: as in s3_client.h, with the server's
 * words. */
#ifndef MR_S3_CALLS_H
#define MR_S3_CALLS_H

#include "s3/s3_client.h"
#include "s3/s3_xml.h"

struct mr_s3_object_info {
    uint64_t bytes, mtime_s;
    char etag[MR_S3_ETAG_MAX];
};

int mr_s3_head(struct mr_s3_client *c, const char *bucket, const char *key, struct mr_s3_object_info *out,
               struct mr_error *err);
/* Entries whose keys begin with `prefix`, in order of their keys; with a delimiter ("/") what lies deeper is one prefix
 * per folder. At most `most` (0: all). fn's nonzero result ends the listing and is returned. */
int mr_s3_list(struct mr_s3_client *c, const char *bucket, const char *prefix, const char *delimiter, uint64_t most,
               mr_s3_entry_fn *fn, void *user, struct mr_error *err);
int mr_s3_delete(struct mr_s3_client *c, const char *bucket, const char *key, struct mr_error *err);
/* Many keys, a thousand per request. */
int mr_s3_delete_many(struct mr_s3_client *c, const char *bucket, const char *const *key, size_t n,
                      struct mr_error *err);
/* Aborts multipart uploads below `prefix`; *n: how many there were. */
int mr_s3_abort_below(struct mr_s3_client *c, const char *bucket, const char *prefix, uint64_t *n,
                      struct mr_error *err);
/* Ends all uploads of one key, as far as that can be done: those whose beginning was answered to nobody. */
void mr_s3_abort_of(struct mr_s3_client *c, const char *bucket, const char *key);
int mr_s3_abort(struct mr_s3_client *c, const char *bucket, const char *key, const char *upload, struct mr_error *err);

#endif
