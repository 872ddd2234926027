/* What a Parquet file says of itself: the footer (columns, row groups, where their chunks lie), page headers, and the
 * optional index of pages. doc/reference/format-parquet.md has the bytes.
 *
 * A column that we cannot read (nested groups, decimals, INT96 ...) is part of the footer all the same and carries the
 * reason: a scan that wants it is refused with its name, one that does not want it is not concerned.
 *
 * All input is hostile: offsets and lengths are held against the file's size, counts against each other. */
#ifndef MR_FORMAT_PARQUET_META_H
#define MR_FORMAT_PARQUET_META_H

#include "format/format.h"

/* Numbers of the Parquet specification. */
enum mr_pq_physical {
    MR_PQ_BOOLEAN,
    MR_PQ_INT32,
    MR_PQ_INT64,
    MR_PQ_INT96,
    MR_PQ_FLOAT,
    MR_PQ_DOUBLE,
    MR_PQ_BYTES,
    MR_PQ_FIXED
};
enum mr_pq_codec {
    MR_PQ_UNCOMPRESSED,
    MR_PQ_SNAPPY,
    MR_PQ_GZIP,
    MR_PQ_LZO,
    MR_PQ_BROTLI,
    MR_PQ_LZ4_HADOOP,
    MR_PQ_ZSTD,
    MR_PQ_LZ4,
};
enum mr_pq_encoding {
    MR_PQ_PLAIN = 0,
    MR_PQ_PLAIN_DICTIONARY = 2,
    MR_PQ_RLE = 3,
    MR_PQ_BIT_PACKED = 4,
    MR_PQ_DELTA = 5,
    MR_PQ_DELTA_LENGTH = 6,
    MR_PQ_DELTA_BYTES = 7,
    MR_PQ_RLE_DICTIONARY = 8,
    MR_PQ_BYTE_STREAM_SPLIT = 9,
};
enum mr_pq_page_type { MR_PQ_DATA_PAGE, MR_PQ_INDEX_PAGE, MR_PQ_DICTIONARY_PAGE, MR_PQ_DATA_PAGE_V2 };

/* How the values of a column lie in pages, and what becomes of them. Part of layouts. */
struct mr_pq_type {
    uint8_t physical, codec;
    uint8_t max_def, max_rep;
    uint8_t list_def; /* of a list: a definition level of at least this is an item */
    uint8_t dtype;    /* of what is delivered; BYTES: u1 */
    uint32_t length;  /* of FIXED */
};

struct mr_pq_column {
    char name[MR_FIELD_NAME_MAX];
    struct mr_pq_type type; /* codec: of its first chunk */
    bool is_text;
    const char *refused; /* why it cannot be read; NULL: it can */
    struct mr_dims dims; /* our own writer's: of each value; n = 0: not said */
    bool has_dims;
};

struct mr_pq_chunk {
    uint64_t offset, bytes;      /* of all its pages */
    uint64_t dictionary;         /* where its dictionary page lies; 0: it has none */
    uint64_t values, nulls;      /* nulls: by its statistics; 0 where it has none */
    uint64_t index, index_bytes; /* of pages; 0: there is none */
    uint32_t encodings;          /* 1 << each */
    uint8_t codec;
};

struct mr_pq_file {
    unsigned n_columns;
    struct mr_pq_column *column;
    uint64_t n_groups, rows;
    uint64_t *group_rows;
    struct mr_pq_chunk *chunk; /* of column c in group g: [g * n_columns + c] */
};
void mr_pq_file_done(struct mr_pq_file *f);
/* Reads the footer of an open file. MR_E_FORMAT, MR_E_UNSUPPORTED (encrypted), MR_E_LIMIT. */
int mr_pq_file_read(struct mr_object *o, struct mr_pq_file *out, struct mr_error *err);
/* The same from the footer's bytes; chunks lie before `end`. */
int mr_pq_file_parse(const void *footer, size_t len, uint64_t end, struct mr_pq_file *out, struct mr_error *err);

struct mr_pq_page {
    uint8_t type, encoding, def_encoding, rep_encoding;
    bool has_crc, is_compressed;
    uint32_t crc;
    uint32_t header_bytes, bytes, unpacked_bytes; /* bytes: as stored, behind the header */
    uint32_t values, rows, nulls;                 /* rows, nulls: of DATA_PAGE_V2 */
    uint32_t def_bytes, rep_bytes;                /* of DATA_PAGE_V2 */
};
/* The header at p, of which len bytes are in memory; header and page lie within `within` bytes. */
int mr_pq_page_parse(const uint8_t *p, size_t len, uint64_t within, struct mr_pq_page *out, struct mr_error *err);

/* The key under which our writer keeps a column's shape, "16x768x1152", before the column's name. */
#define MR_PQ_SHAPE_KEY "millrace.shape."
#define MR_PQ_PAGE_MAX ((uint32_t)1 << 30)

#endif
