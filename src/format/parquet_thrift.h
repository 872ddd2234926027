/* Thrift's compact protocol, as far as Parquet uses it: footers and page headers are structs of it.
 *
 *   struct   fields one behind the other, 0 ends it
 *   field    one byte: (id - last id) << 4 | type; a distance of 0: the id follows as a zigzag varint
 *   numbers  zigzag varints; binary: varint of its length, then the bytes
 *   list     one byte: size << 4 | type of its items; a size of 15: the size follows as a varint
 *
 * The reader is a cursor over bytes that are in memory. What it meets is hostile: every length is held against what is
 * left, nesting is limited, and after the first failure everything reads as 0 and `failed` stays set, so that one check
 * at the end is enough. Loops over lists end by mr_thrift_more. Nothing here allocates. */
#ifndef MR_FORMAT_PARQUET_THRIFT_H
#define MR_FORMAT_PARQUET_THRIFT_H

#include "base/strbuf.h"

#include <stdint.h>

enum mr_thrift_type {
    MR_THRIFT_TRUE = 1,
    MR_THRIFT_FALSE,
    MR_THRIFT_I8,
    MR_THRIFT_I16,
    MR_THRIFT_I32,
    MR_THRIFT_I64,
    MR_THRIFT_DOUBLE,
    MR_THRIFT_BINARY,
    MR_THRIFT_LIST,
    MR_THRIFT_SET,
    MR_THRIFT_MAP,
    MR_THRIFT_STRUCT,
};

struct mr_thrift {
    const uint8_t *at, *end;
    bool failed;
};

struct mr_thrift_field {
    int id; /* 0 before the first one */
    unsigned type;
};

/* The next field of the struct at the cursor; false at its end. What it holds is then read or skipped. */
bool mr_thrift_next(struct mr_thrift *t, struct mr_thrift_field *f);
uint64_t mr_thrift_varint(struct mr_thrift *t);
/* The field's integer; skips what is none and returns 0. */
int64_t mr_thrift_int(struct mr_thrift *t, unsigned type);
/* The field's bytes, borrowed; of another type: skipped, and *len is 0. */
const uint8_t *mr_thrift_bytes(struct mr_thrift *t, unsigned type, size_t *len);
/* Items of the field's list, of type *item; of another type: skipped, and 0. */
uint64_t mr_thrift_list(struct mr_thrift *t, unsigned type, unsigned *item);
/* One more item: counts *left down; false at the end of the list and after a failure. */
bool mr_thrift_more(struct mr_thrift *t, uint64_t *left);
void mr_thrift_skip(struct mr_thrift *t, unsigned type);

/* Writing: fields in ascending order of their ids. `last` is the id before, 0 at the start of a struct. */
void mr_thrift_put_varint(struct mr_strbuf *s, uint64_t v);
void mr_thrift_put_field(struct mr_strbuf *s, int *last, int id, enum mr_thrift_type type);
void mr_thrift_put_i32(struct mr_strbuf *s, int *last, int id, int32_t v);
void mr_thrift_put_i64(struct mr_strbuf *s, int *last, int id, int64_t v);
void mr_thrift_put_text(struct mr_strbuf *s, int *last, int id, const char *text, size_t len);
void mr_thrift_put_bool(struct mr_strbuf *s, int *last, int id, bool v);
void mr_thrift_put_list(struct mr_strbuf *s, int *last, int id, enum mr_thrift_type item, uint64_t n);
/* An item of a list of integers. */
void mr_thrift_put_int(struct mr_strbuf *s, int64_t v);
/* Ends a struct. */
void mr_thrift_put_stop(struct mr_strbuf *s);

#endif
