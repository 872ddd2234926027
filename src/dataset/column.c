/* Building columns: see column.h. Invariant: while !raw, value i equals base + step * (i % group) for all i < n. */
#include "dataset/column.h"
#include "base/common.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t rule_index(const struct mr_colbuild *b, uint64_t i)
{
    return b->group == UINT64_MAX ? i : i % b->group;
}

static void put(struct mr_colbuild *b, uint64_t i, uint64_t value)
{
    uint8_t *p = b->values + i * b->raw_width;
    assert(b->raw && (i + 1) * b->raw_width <= b->cap_bytes);
    for (unsigned k = 0; k < b->raw_width; k++)
        p[k] = (uint8_t)(value >> (8 * k));
    b->min = MR_MIN(b->min, value);
    b->max = MR_MAX(b->max, value);
}

static int reserve(struct mr_colbuild *b, uint64_t values)
{
    if (values > SIZE_MAX / 16)
        return -ENOMEM;
    size_t need = (size_t)values * b->raw_width;
    if (need <= b->cap_bytes)
        return 0;
    size_t cap = MR_MAX(need, b->cap_bytes + b->cap_bytes / 2 + 256);
    uint8_t *grown = realloc(b->values, cap);
    if (!grown)
        return -ENOMEM;
    b->values = grown;
    b->cap_bytes = cap;
    return 0;
}

static int break_rule(struct mr_colbuild *b)
{
    assert(!b->raw); /* a rule is broken once */
    int r = reserve(b, b->n + 1);
    if (r < 0)
        return r;
    b->min = UINT64_MAX;
    b->max = 0;
    b->raw = true;
    for (uint64_t i = 0; i < b->n; i++)
        put(b, i, b->base + b->step * rule_index(b, i));
    return 0;
}

int mr_colbuild_add(struct mr_colbuild *b, uint64_t j, uint64_t value)
{
    if (!b->raw) {
        if (b->n == 0) {
            b->base = value;
            b->step = 0;
            b->group = UINT64_MAX;
        } else if (b->n == 1 && j == 1) {
            b->step = value - b->base;
        } else if (j == 0 && b->group == UINT64_MAX) {
            b->group = b->n;
        }
        bool regular = b->step == 0 || j == rule_index(b, b->n);
        if (regular && value == b->base + b->step * j) {
            b->n++;
            return 0;
        }
        /* Undo what this value taught: the rule must describe only the values before it. */
        if (b->n == 1)
            b->step = 0;
        int r = break_rule(b);
        if (r < 0)
            return r;
    }
    int r = reserve(b, b->n + 1);
    if (r < 0)
        return r;
    put(b, b->n++, value);
    return 0;
}

int mr_colbuild_add_group(struct mr_colbuild *b, const struct mr_column *c)
{
    bool rule = c->encoding != MR_COLUMN_PACKED;
    uint64_t step = c->encoding == MR_COLUMN_AFFINE && c->count > 1 ? c->step : 0;
    if (rule && c->count && b->n == 0 && !b->raw) {
        b->base = c->base;
        b->step = step;
        b->group = UINT64_MAX;
        b->n = c->count;
        return 0;
    }
    if (rule && c->count && !b->raw && c->base == b->base && step == b->step &&
        (step == 0 || c->count == (b->group == UINT64_MAX ? b->n : b->group))) {
        if (b->group == UINT64_MAX)
            b->group = b->n;
        if (step == 0 || b->n % b->group == 0) {
            b->n += c->count;
            return 0;
        }
    }
    for (uint64_t j = 0; j < c->count; j++) {
        int r = mr_colbuild_add(b, j, mr_column_get(c, j, j));
        if (r < 0)
            return r;
    }
    return 0;
}

void mr_colbuild_finish(struct mr_colbuild *b, struct mr_column *out)
{
    *out = (struct mr_column){.encoding = MR_COLUMN_CONST, .count = b->n, .base = b->base};
    if (!b->raw) {
        if (b->step) {
            out->encoding = MR_COLUMN_AFFINE;
            out->step = b->step;
        }
        return;
    }
    out->base = b->min;
    if (b->min == b->max)
        return;
    unsigned width = (unsigned)(64 - __builtin_clzll(b->max - b->min) + 7) / 8;
    assert(width <= b->raw_width); /* or writing would overtake reading below */
    struct mr_column from = {.encoding = MR_COLUMN_PACKED, .width = (uint8_t)b->raw_width, .data = b->values};
    uint64_t min = b->min;
    for (uint64_t i = 0; i < b->n; i++) { /* in place: the write position never overtakes the read position */
        uint64_t v = mr_column_get(&from, i, 0) - min;
        uint8_t *p = b->values + i * width;
        for (unsigned k = 0; k < width; k++)
            p[k] = (uint8_t)(v >> (8 * k));
    }
    out->encoding = MR_COLUMN_PACKED;
    out->width = (uint8_t)width;
    out->data = b->values;
    out->data_bytes = b->n * width;
}

void mr_colbuild_done(struct mr_colbuild *b)
{
    free(b->values);
    *b = (struct mr_colbuild){0};
}
