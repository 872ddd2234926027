/* Whole gzip streams in memory: any number of members one after the other, as `cat a.gz b.gz` makes them. */
#ifndef MR_FORMAT_GZIP_INFLATE_H
#define MR_FORMAT_GZIP_INFLATE_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>

/* Does the data start like gzip (magic and deflate method)? */
bool mr_gzip_is(const void *data, size_t len);
/* Inflates all members into one malloc'ed buffer (with one spare byte), checking their CRC-32. MR_E_LIMIT beyond
 * MR_LIMIT_UNPACKED_BYTES or MR_LIMIT_UNPACK_RATIO, MR_E_FORMAT for anything that is not gzip or is cut short,
 * MR_E_CORRUPT for a wrong checksum. Zero bytes after the last member are padding; anything else is an error. */
int mr_gzip_inflate(const void *data, size_t len, void **out, size_t *out_len, struct mr_error *err);

#endif
