/* Columns of 64-bit values: the stuff manifests and journals are made of. A column that is constant or affine is kept
 * as its rule; any other as packed little-endian integers above a base. Reading a value is O(1) and needs no unpacking.
 *
 * Affine columns are affine in j, the position inside the current group (sample columns: the file; file columns: the
 * whole set), because offsets restart in every file. Building recognises the rule while values arrive and only starts
 * to keep values when the rule breaks, so 10^9 regular samples need no memory. */
#ifndef MR_DATASET_COLUMN_H
#define MR_DATASET_COLUMN_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mr_column_encoding {
    MR_COLUMN_NONE,
    MR_COLUMN_CONST,
    MR_COLUMN_AFFINE,
    MR_COLUMN_PACKED,
    MR_COLUMN_BLOB,
    MR_COLUMN_RANDOM
};

struct mr_column {
    uint8_t encoding; /* enum mr_column_encoding */
    uint8_t width;    /* PACKED: bytes per value */
    uint64_t count;   /* values; BLOB: bytes */
    uint64_t base, step;
    const uint8_t *data;
    uint64_t data_bytes;
};

/* Value i, which is the j-th of its group. CONST, AFFINE and PACKED only; i < count is the caller's duty. */
static inline uint64_t mr_column_get(const struct mr_column *c, uint64_t i, uint64_t j)
{
    switch (c->encoding) {
    case MR_COLUMN_AFFINE: return c->base + c->step * j;
    case MR_COLUMN_PACKED: {
        const uint8_t *p = c->data + i * c->width;
        uint64_t v = 0;
        for (unsigned b = 0; b < c->width; b++)
            v |= (uint64_t)p[b] << (8 * b);
        return c->base + v;
    }
    default: return c->base;
    }
}

/* A column under construction. Zero-initialise, set raw_width, add, finish, done. */
struct mr_colbuild {
    unsigned raw_width; /* bytes kept per value once the rule is broken, 1..8; values must fit */
    bool raw;           /* the rule is broken: values are in `values` */
    uint64_t n, base, step;
    uint64_t group; /* values per group, or UINT64_MAX while the first group lasts */
    uint64_t min, max;
    uint8_t *values;
    size_t cap_bytes;
};

/* Appends a value that is the j-th of its group. 0 or -ENOMEM. */
int mr_colbuild_add(struct mr_colbuild *b, uint64_t j, uint64_t value);
/* Appends a whole group given as a column (CONST, AFFINE or PACKED, count values). O(1) when it continues the rule. */
int mr_colbuild_add_group(struct mr_colbuild *b, const struct mr_column *c);
/* The result; its data belongs to `b` and lives until mr_colbuild_done. No more values may be added. */
void mr_colbuild_finish(struct mr_colbuild *b, struct mr_column *out);
void mr_colbuild_done(struct mr_colbuild *b);

#endif
