/* Rows that differ, joined to one array: padded with zeros to the largest, or packed one behind the other (K2 of
 * loader_fields.h). The rows are copied once, by the thread that completes the batch. */
#include "loader/loader_fields.h"
#include "loader/loader_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Is the row of the batch to be left out? */
static bool is_bad(const struct mr_loader *l, const struct slot *s, uint32_t row)
{
    return l->p.flags & MR_LOADER_SKIP_BAD && s->bad[row];
}

/* Room for the array: in its region, or of its own. */
static uint8_t *joined_room(struct mr_loader *l, struct slot *s, unsigned k, uint64_t bytes)
{
    struct field_slot *f = &s->field[k];
    if (bytes <= l->field[k].joined_bytes)
        return s->slab + l->field[k].joined_at;
    if (bytes > f->joined_cap) {
        free(f->joined);
        f->joined_cap = MR_ALIGN_UP(bytes + bytes / 8, (uint64_t)4096);
        f->joined = aligned_alloc(4096, f->joined_cap);
        f->joined_cap = f->joined ? f->joined_cap : 0;
    }
    return f->joined;
}

/* ---- pack ---- */

static int pack(struct mr_loader *l, struct slot *s, unsigned k)
{
    struct field_slot *f = &s->field[k];
    uint64_t total = 0, length = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        total += is_bad(l, s, i) ? 0 : f->bytes[i];
    uint8_t *to = joined_room(l, s, k, total), *at = to;
    if (!to)
        return -ENOMEM;
    f->out = (struct mr_batch_field){
        .rows = f->rows, .data = to, .bytes = f->bytes, .shape = l->field[k].shape, .shapes = f->shapes};
    for (uint32_t i = 0; i < s->n; i++) {
        if (is_bad(l, s, i))
            continue;
        memcpy(at, f->rows[i], f->bytes[i]);
        f->rows[i] = at;
        f->offsets[n++] = length;
        length += f->shapes[i].dims[0];
        at += f->bytes[i];
    }
    f->offsets[n] = length;
    f->out.shape.dims[0] = length;
    f->out.offsets = f->offsets;
    return 0;
}

/* ---- pad ---- */

static uint64_t element_bytes(const struct mr_shape *s)
{
    return strtoull(s->dtype + 1, NULL, 10);
}

/* One value into the corner of a larger array. */
static void place(uint8_t *to, const struct mr_shape *all, const uint8_t *from, const struct mr_shape *own, int axis)
{
    uint64_t run = element_bytes(own), step = element_bytes(all);
    for (int d = axis + 1; d < own->n_dims; d++) {
        run *= own->dims[d];
        step *= all->dims[d];
    }
    bool dense = axis == own->n_dims - 1 || run == step;
    if (own->n_dims == 0 || dense) {
        memcpy(to, from, run * (own->n_dims ? own->dims[axis] : 1));
        return;
    }
    for (uint64_t i = 0; i < own->dims[axis]; i++)
        place(to + i * step, all, from + i * run, own, axis + 1);
}

/* As large as the largest value in each axis; false: values have differing numbers of axes. */
static bool largest(const struct mr_loader *l, const struct slot *s, unsigned k, struct mr_shape *out)
{
    const struct field_slot *f = &s->field[k];
    bool first = true;
    for (uint32_t i = 0; i < s->n; i++) {
        if (is_bad(l, s, i))
            continue;
        if (first)
            *out = f->shapes[i];
        else if (f->shapes[i].n_dims != out->n_dims)
            return false;
        first = false;
        for (int d = 0; d < out->n_dims; d++)
            out->dims[d] = MR_MAX(out->dims[d], f->shapes[i].dims[d]);
    }
    return true;
}

static int pad(struct mr_loader *l, struct slot *s, unsigned k)
{
    struct field_slot *f = &s->field[k];
    struct mr_shape all = l->field[k].shape;
    uint32_t n = 0;
    if (!largest(l, s, k, &all))
        return MR_E_UNSUPPORTED;
    uint64_t each = element_bytes(&all), total;
    for (int d = 0; d < all.n_dims; d++)
        if (__builtin_mul_overflow(each, all.dims[d], &each))
            return -ENOMEM;
    if (__builtin_mul_overflow(each, (uint64_t)s->n, &total))
        return -ENOMEM;
    uint8_t *to = joined_room(l, s, k, total);
    if (!to)
        return -ENOMEM;
    memset(to, 0, total);
    for (uint32_t i = 0; i < s->n; i++) {
        if (is_bad(l, s, i))
            continue;
        uint8_t *at = to + n * each;
        if (f->bytes[i])
            place(at, &all, f->rows[i], &f->shapes[i], 0);
        for (int d = 0; d < all.n_dims; d++)
            f->lengths[(uint64_t)n * (unsigned)all.n_dims + (unsigned)d] = f->shapes[i].dims[d];
        f->rows[i] = at;
        f->bytes[i] = each;
        n++;
    }
    f->out = (struct mr_batch_field){.rows = f->rows,
                                     .data = to,
                                     .row_bytes = each,
                                     .bytes = f->bytes,
                                     .shape = all,
                                     .shapes = f->shapes,
                                     .lengths = f->lengths};
    return 0;
}

int mr_loader_join_fields(struct mr_loader *l, struct slot *s)
{
    int rc = 0;
    for (unsigned k = 0; k < l->n_fields && !rc; k++)
        if (!l->field[k].fixed && l->p.ragged != MR_RAGGED_LIST)
            rc = l->p.ragged == MR_RAGGED_PACK ? pack(l, s, k) : pad(l, s, k);
    return rc;
}
