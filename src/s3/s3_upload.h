/* Writing one object. It has no name before its end, and all its bytes after it.
 *
 * What fits one part is put in one request when the object ends. Larger objects become a multipart upload: a part goes
 * to the senders (threads that all uploads of a store share) as soon as all its bytes are there, in any order; the first
 * part waits for the end, so that a format can write its header last. Part sizes double every 1,000 parts, so that
 * 10,000 parts reach 5 TiB. Bytes never written are zeros, as in a file.
 *
 * Threads may write different ranges at once. A range is written once: again only in the first part, or in one that is
 * not complete; elsewhere it is refused, for those bytes are on their way. */
#ifndef MR_S3_UPLOAD_H
#define MR_S3_UPLOAD_H

#include "s3/s3_client.h"

struct mr_s3_senders;
struct mr_s3_upload;

/* `threads` send at a time; started with the first part. */
int mr_s3_senders_create(struct mr_s3_client *c, unsigned threads, struct mr_s3_senders **out, struct mr_error *err);
void mr_s3_senders_free(struct mr_s3_senders *s); /* all uploads have ended; accepts NULL */

struct mr_s3_upload_params {
    const char *bucket, *key; /* copied */
    uint64_t part_bytes;      /* at least 5 MiB */
    bool if_absent;           /* -EEXIST at the end if there is such an object by then */
};
int mr_s3_upload_create(struct mr_s3_senders *s, const struct mr_s3_upload_params *p, struct mr_s3_upload **out,
                        struct mr_error *err);
int mr_s3_upload_write(struct mr_s3_upload *u, const void *data, size_t len, uint64_t offset, struct mr_error *err);
uint64_t mr_s3_upload_bytes(struct mr_s3_upload *u);
/* The object has at least so many bytes. */
void mr_s3_upload_extend(struct mr_s3_upload *u, uint64_t bytes);
/* Gives the object its name (`keep`), or leaves nothing of it; frees u in any case. */
int mr_s3_upload_end(struct mr_s3_upload *u, bool keep, char etag[MR_S3_ETAG_MAX], struct mr_error *err);

/* Part `number` (from 0) of an object with this first part: [*from, *from + *bytes). */
void mr_s3_part_range(uint64_t first_bytes, unsigned number, uint64_t *from, uint64_t *bytes);
unsigned mr_s3_part_of(uint64_t first_bytes, uint64_t offset);

#endif
