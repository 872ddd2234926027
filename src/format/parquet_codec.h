/* Compression of Parquet's pages: snappy and LZ4 blocks by hand (decoders of about 60 lines, smaller than a library and
 * its glue), gzip by libdeflate, zstd by libzstd. */
#ifndef MR_FORMAT_PARQUET_CODEC_H
#define MR_FORMAT_PARQUET_CODEC_H

#include "format/parquet_meta.h"

/* "snappy"; "unknown" for a number without a name. */
const char *mr_pq_codec_name(unsigned codec);
/* Is it one of those we read? */
bool mr_pq_codec_is_read(unsigned codec);
/* Exactly dst_len bytes come out, or MR_E_CORRUPT. Any codec but UNCOMPRESSED. */
int mr_pq_decompress(unsigned codec, const void *src, size_t len, void *dst, size_t dst_len, struct mr_error *err);

#endif
