/* Looking at a file while scanning it: any position, through a window that is read in large pieces when the scan moves
 * forward in small steps and in small pieces when it jumps from record to record. A gzip file is unpacked first and
 * looked at in memory. Belongs to one thread. */
#ifndef MR_FORMAT_STREAM_IN_H
#define MR_FORMAT_STREAM_IN_H

#include "format/format.h"

#define MR_STREAM_IN_MAX (64u * 1024u) /* the most bytes one mr_stream_in_get may ask for */

struct mr_stream_in {
    const char *path;         /* borrowed, for messages */
    struct mr_object *object; /* NULL: in memory */
    uint8_t *buf;             /* the window, or the whole unpacked file */
    size_t buf_cap;
    uint64_t base, len; /* what the window holds */
    uint64_t size;      /* of the file, or of what it unpacks to */
    bool gzip;
};

/* `is_plain` (may be NULL) looks at up to MR_STREAM_IN_HEAD first bytes and may say that what looks like gzip is not.
 */
#define MR_STREAM_IN_HEAD 12u
typedef bool mr_stream_in_plain_fn(const uint8_t *head, size_t len);
int mr_stream_in_open(struct mr_store *s, const char *path, mr_stream_in_plain_fn *is_plain, struct mr_stream_in *in,
                      struct mr_error *err);
void mr_stream_in_close(struct mr_stream_in *in);
/* Exactly `len` bytes at `offset`; MR_E_FORMAT with want/have when the file ends before. Valid until the next call. */
int mr_stream_in_get(struct mr_stream_in *in, uint64_t offset, size_t len, const uint8_t **out, struct mr_error *err);
/* As many bytes as one read gives at `offset`, at least one; 0 at the end of the file. For front-to-back scans. */
int64_t mr_stream_in_chunk(struct mr_stream_in *in, uint64_t offset, const uint8_t **out, struct mr_error *err);

#endif
