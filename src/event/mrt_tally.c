/* The slow side of tallies: looking up functions, files and sizes, and writing them. The three small hash tables here
 * are arrays of fixed size inside the tally: this file is also part of the preload library, which must not allocate. */
#include "event/mrt_tally.h"
#include "event/mrt.h"

#include <string.h>

unsigned mr_tally_bin(uint64_t size)
{
    static const uint64_t top[MR_TALLY_BINS - 1] = {100,      1024,      10240,      102400,  1u << 20,
                                                    4u << 20, 10u << 20, 100u << 20, 1u << 30};
    unsigned b = 0;
    while (b < MR_TALLY_BINS - 1 && size > top[b])
        b++;
    return b;
}

static uint32_t slot_hash(uint64_t v)
{
    return (uint32_t)((v * 0x9e3779b97f4a7c15ull) >> 40);
}

static struct mr_tally_function *new_function(struct mr_tally *t, unsigned call, uint32_t site)
{
    if (t->functions == MR_TALLY_FUNCTIONS) {
        t->too_many_functions = true;
        return NULL;
    }
    struct mr_tally_function *f = &t->function[t->functions++];
    unsigned kind = mr_call_get(call)->kind;
    f->call = call;
    f->site = site;
    f->moves = (uint8_t)mr_kind_moves_data(kind);
    f->reads = f->moves && kind != MR_EV_WRITE;
    f->writes = kind == MR_EV_WRITE; /* the file of a copy is the one it reads */
    f->opens = kind == MR_EV_OPEN;
    f->on_file = mr_call_on_file(call);
    f->dur_min = f->size_min = UINT64_MAX;
    return f;
}

/* Calls have one function each; regions and other events of the program one per site. */
static struct mr_tally_function *function_get(struct mr_tally *t, unsigned call, uint32_t site)
{
    if (call > MR_CALL_metadata || call == MR_CALL_none) {
        if (!t->function_of[call] && new_function(t, call, 0))
            t->function_of[call] = (uint8_t)t->functions;
        return t->function_of[call] ? &t->function[t->function_of[call] - 1] : NULL;
    }
    uint32_t k = slot_hash((uint64_t)site << 8 | call) % MR_ARRAY_LEN(t->site_slot);
    for (; t->site_slot[k]; k = (k + 1) % MR_ARRAY_LEN(t->site_slot)) {
        struct mr_tally_function *f = &t->function[t->site_slot[k] - 1];
        if (f->call == call && f->site == site)
            return f;
    }
    struct mr_tally_function *f = new_function(t, call, site);
    if (f)
        t->site_slot[k] = (uint8_t)t->functions;
    return f;
}

static struct mr_tally_file *row_get(struct mr_tally *t, uint32_t id)
{
    uint32_t k = slot_hash(id) % MR_ARRAY_LEN(t->file_slot);
    for (; t->file_slot[k]; k = (k + 1) % MR_ARRAY_LEN(t->file_slot))
        if (t->row_of[t->file_slot[k] - 1].id == id)
            return &t->row_of[t->file_slot[k] - 1];
    if (t->files == MR_TALLY_FILES) {
        t->too_many_files = true;
        return &t->nowhere;
    }
    t->row_of[t->files] = (struct mr_tally_file){.id = id};
    t->file_slot[k] = (uint16_t)++t->files;
    return &t->row_of[t->files - 1];
}

void mr_tally_begin(struct mr_tally *t, struct mr_tally_streak *s, unsigned call, uint32_t file)
{
    unsigned known = call < MR_CALL_COUNT ? call : MR_CALL_none;
    *s = (struct mr_tally_streak){.call = call, .file = file, .dur_min = UINT64_MAX};
    s->f = t->too_many_functions ? NULL : function_get(t, known, file);
    s->moves = s->f && s->f->moves;
    t->row = s->f && s->f->on_file && file && !t->too_many_files ? row_get(t, file) : &t->nowhere;
}

void mr_tally_end(struct mr_tally *t, const struct mr_tally_streak *s)
{
    struct mr_tally_function *f = s->f;
    if (!f || !s->count)
        return;
    f->count += s->count;
    f->errors += s->errors;
    f->bytes += s->bytes;
    f->dur_sum += s->dur_sum;
    f->dur_min = MR_MIN(f->dur_min, s->dur_min);
    f->dur_max = MR_MAX(f->dur_max, s->dur_max);
    t->row->calls += s->count;
    t->row->dur_ns += s->dur_sum;
    t->row->opens += f->opens ? s->count - s->errors : 0;
    t->row->read_bytes += f->reads ? s->bytes : 0;
    t->row->written_bytes += f->writes ? s->bytes : 0;
    mr_tally_add_size(f, s->size, s->same);
}

static void spill(struct mr_tally_function *f, uint64_t size, uint32_t count)
{
    f->size[mr_tally_bucket(size)] += count;
    f->bin[mr_tally_bin(size)] += count;
    f->size_min = MR_MIN(f->size_min, size);
    f->size_max = MR_MAX(f->size_max, size);
}

void mr_tally_add_size(struct mr_tally_function *f, uint64_t size, uint32_t n)
{
    if (!n || f->spilled) {
        if (n)
            spill(f, size, n);
        return;
    }
    uint32_t k = slot_hash(size) % MR_ARRAY_LEN(f->slot);
    while (f->slot[k].count && f->slot[k].size != size)
        k = (k + 1) % MR_ARRAY_LEN(f->slot);
    if (f->slot[k].count || f->listed < MR_TALLY_SIZES) {
        f->listed += !f->slot[k].count;
        f->slot[k].size = size;
        f->slot[k].count += n;
        return;
    }
    for (k = 0; k < MR_ARRAY_LEN(f->slot); k++)
        if (f->slot[k].count) {
            spill(f, f->slot[k].size, f->slot[k].count);
            f->slot[k].count = 0;
        }
    f->spilled = true;
    spill(f, size, n);
}

/* ---- writing ---- */

static uint8_t *put_histogram(uint8_t *p, uint32_t *bucket)
{
    uint32_t pairs = 0, before = 0;
    for (unsigned b = 0; b < MR_HIST_BUCKETS; b++)
        pairs += bucket[b] != 0;
    p = mr_put_varint(p, pairs);
    for (unsigned b = 0; b < MR_HIST_BUCKETS && pairs; b++)
        if (bucket[b]) {
            p = mr_put_varint(p, b - before);
            p = mr_put_varint(p, bucket[b]);
            bucket[b] = 0;
            before = b;
            pairs--;
        }
    return p;
}

/* Sizes in ascending order as differences, with their counts. */
static uint8_t *put_sizes(uint8_t *p, struct mr_tally_function *f)
{
    struct mr_tally_size list[MR_TALLY_SIZES];
    uint32_t n = 0;
    uint64_t before = 0;
    for (uint32_t k = 0; k < MR_ARRAY_LEN(f->slot) && n < f->listed; k++)
        if (f->slot[k].count) {
            uint32_t at = n++;
            for (; at && list[at - 1].size > f->slot[k].size; at--)
                list[at] = list[at - 1];
            list[at] = f->slot[k];
            f->slot[k] = (struct mr_tally_size){0};
        }
    p = mr_put_varint(p, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        p = mr_put_varint(p, list[i].size - before);
        p = mr_put_varint(p, list[i].count);
        before = list[i].size;
    }
    return p;
}

static uint8_t *put_spilled(uint8_t *p, struct mr_tally_function *f)
{
    p = mr_put_varint(p, 0);
    p = mr_put_varint(p, f->size_min);
    p = mr_put_varint(p, f->size_max);
    for (unsigned b = 0; b < MR_TALLY_BINS; b++)
        p = mr_put_varint(p, f->bin[b]);
    return put_histogram(p, f->size);
}

static uint8_t *put_files(const struct mr_tally *t, uint8_t *p)
{
    uint32_t before = 0;
    p = mr_put_varint(p, t->too_many_files ? 0 : t->files + 1);
    for (uint32_t i = 0; i < t->files && !t->too_many_files; i++) {
        const struct mr_tally_file *r = &t->row_of[i];
        const uint64_t field[] = {mr_zigzag((int64_t)r->id - (int64_t)before),
                                  r->calls,
                                  r->opens,
                                  r->read_bytes,
                                  r->written_bytes,
                                  r->dur_ns};
        for (size_t k = 0; k < MR_ARRAY_LEN(field); k++)
            p = mr_put_varint(p, field[k]);
        before = r->id;
    }
    return p;
}

static uint8_t *put_function(uint8_t *p, struct mr_tally_function *f)
{
    const uint64_t field[] = {f->call, f->site, f->count, f->errors, f->bytes, f->dur_sum, f->dur_min, f->dur_max};
    for (size_t k = 0; k < MR_ARRAY_LEN(field); k++)
        p = mr_put_varint(p, field[k]);
    p = put_histogram(p, f->dur);
    return f->spilled ? put_spilled(p, f) : put_sizes(p, f);
}

uint8_t *mr_tally_put(struct mr_tally *t, uint8_t *out, uint16_t *count)
{
    uint8_t *p = out;
    for (uint32_t i = 0; i < t->functions; i++) {
        struct mr_tally_function *f = &t->function[i];
        uint8_t *end = put_function(p, f); /* also empties it */
        p = t->too_many_functions ? p : end;
        memset(f, 0, offsetof(struct mr_tally_function, dur));
        memset(f->bin, 0, sizeof(f->bin));
    }
    *count = t->too_many_functions ? MR_TALLY_NONE : (uint16_t)t->functions;
    if (!t->too_many_functions)
        p = put_files(t, p);
    memset(t, 0, offsetof(struct mr_tally, row_of));
    return p;
}
