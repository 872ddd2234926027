/* Writing one file front to back in large writes, optionally through gzip. Small puts are gathered in a buffer; a piece
 * of at least MR_STREAM_DIRECT bytes goes to the store as it is, without a copy. Belongs to one thread. After a failure
 * every further put fails with the same code; close or abort frees in any case. */
#ifndef MR_FORMAT_STREAM_OUT_H
#define MR_FORMAT_STREAM_OUT_H

#include "format/format.h"

#define MR_STREAM_DIRECT (256u * 1024u)

struct mr_stream_out;

/* Creates (or truncates) `path`. `buffer_bytes` is the size of a gathered write; 0 = 512 KiB. */
int mr_stream_out_open(struct mr_store *s, const char *path, enum mr_compression compression, int level,
                       size_t buffer_bytes, struct mr_stream_out **out, struct mr_error *err);
/* A part of a file that others write as well: from `offset` on, what else is there stays. The part that ends at
 * `whole_bytes` sets the file's size. whole_bytes = 0: a file of its own, as with mr_stream_out_open. */
int mr_stream_out_open_part(struct mr_store *s, const char *path, size_t buffer_bytes, uint64_t offset,
                            uint64_t whole_bytes, struct mr_stream_out **out, struct mr_error *err);
int mr_stream_out_put(struct mr_stream_out *o, const void *data, size_t len, struct mr_error *err);
int mr_stream_out_zeros(struct mr_stream_out *o, size_t len, struct mr_error *err);
/* Room for `len` bytes (at most half the buffer) to print into; mr_stream_out_advance tells how many were used. */
char *mr_stream_out_room(struct mr_stream_out *o, size_t len, struct mr_error *err);
void mr_stream_out_advance(struct mr_stream_out *o, size_t len);
/* The place where the next put of `len` bytes would be copied to, or NULL when it does not fit there as a whole. What
 * is made there and then put is not copied. */
void *mr_stream_out_here(struct mr_stream_out *o, size_t len);
/* Bytes put so far: the position in the file, or in the unpacked stream of a gzip file. */
uint64_t mr_stream_out_position(const struct mr_stream_out *o);
/* Flushes, closes, frees. *file_bytes (may be NULL) is the size on storage. */
int mr_stream_out_close(struct mr_stream_out *o, uint64_t *file_bytes, struct mr_error *err);
void mr_stream_out_abort(struct mr_stream_out *o); /* accepts NULL */

#endif
