/* File order: files shuffled globally, samples of a file in sequence, equal counts per rank by construction.
 *
 *   files in shuffled order  | f(0)  | f(1) | f(2)    | ...       laid end to end: n samples
 *   ranks                    |   rank 0   |   rank 1   | ...      cut into world equal slices
 *
 * A file on a border is shared by two neighbouring ranks, each reading a contiguous part; that is what makes the counts
 * equal without padding more than one sample. Files of equal size need no table: the place of a file follows from its
 * number (only the last file may be shorter, and the inverse of the cipher says where it landed). Otherwise the table
 * of first places in shuffled order (8 bytes per file) is built once per epoch. */
#include "order/order_modes.h"
#include "base/common.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

struct file_order {
    struct mr_cipher files; /* shuffled place -> file */
    uint64_t n_files, per_file;
    uint64_t short_place; /* shuffled place of the last, possibly shorter file; equal sizes only */
    uint64_t short_by;    /* samples it lacks */
    uint64_t *place;      /* first place of each shuffled file, n_files + 1 entries; NULL for equal sizes */
};

static int make_state(struct mr_order *o, struct mr_error *err)
{
    struct file_order *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot prepare a file order");
    s->per_file = o->p.samples_per_file;
    s->n_files = o->p.n_files;
    if (!o->p.file_first) {
        s->n_files = o->p.samples / s->per_file + (o->p.samples % s->per_file != 0);
        s->short_by = o->p.samples % s->per_file ? s->per_file - o->p.samples % s->per_file : 0;
    } else {
        s->place = malloc((size_t)(s->n_files + 1) * sizeof(*s->place));
        if (!s->place) {
            free(s);
            return mr_error_set(err, -ENOMEM, "cannot hold the order of %" PRIu64 " files", o->p.n_files);
        }
    }
    o->mode_state = s;
    return 0;
}

static int prepare_file(struct mr_order *o, struct mr_error *err)
{
    int code = o->mode_state ? 0 : make_state(o, err);
    if (code)
        return code;
    struct file_order *s = o->mode_state;
    mr_cipher_init(&s->files, s->n_files, mr_order_key(o, 0));
    s->short_place = mr_cipher_inverse(&s->files, s->n_files - 1);
    for (uint64_t f = 0, at = 0; s->place && f <= s->n_files; f++) {
        s->place[f] = at;
        if (f < s->n_files) {
            uint64_t file = mr_cipher_at(&s->files, f);
            at += o->p.file_first[file + 1] - o->p.file_first[file];
        }
    }
    return 0;
}

static void done_file(struct mr_order *o)
{
    struct file_order *s = o->mode_state;
    if (s)
        free(s->place);
    free(s);
}

struct span {
    uint64_t sample, len; /* samples sample ... sample+len-1 lie in sequence from the asked place on */
};

static struct span span_equal(const struct file_order *s, uint64_t at)
{
    uint64_t short_end = s->short_place * s->per_file + (s->per_file - s->short_by);
    uint64_t shifted = at < short_end ? at : at + s->short_by; /* as if the short file were full */
    uint64_t f = shifted / s->per_file, in = shifted % s->per_file;
    uint64_t len = s->per_file - (f == s->short_place ? s->short_by : 0);
    return (struct span){.sample = mr_cipher_at(&s->files, f) * s->per_file + in, .len = len - in};
}

static struct span span_table(const struct mr_order *o, const struct file_order *s, uint64_t at)
{
    uint64_t low = 0, high = s->n_files; /* place[low] <= at < place[high] */
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if (s->place[mid] <= at)
            low = mid;
        else
            high = mid;
    }
    uint64_t in = at - s->place[low];
    return (struct span){.sample = o->p.file_first[mr_cipher_at(&s->files, low)] + in,
                         .len = s->place[low + 1] - s->place[low] - in};
}

static size_t fill_file(const struct mr_order *o, uint32_t rank, uint64_t k, uint64_t *ids, size_t count)
{
    const struct file_order *s = o->mode_state;
    uint64_t at = mr_order_slice(o, rank).first + k;
    for (size_t done = 0; done < count;) {
        struct span run = s->place ? span_table(o, s, at) : span_equal(s, at);
        size_t n = (size_t)MR_MIN((uint64_t)(count - done), run.len);
        for (size_t i = 0; i < n; i++)
            ids[done + i] = run.sample + i;
        done += n;
        at += n;
    }
    return count;
}

/* The file of a sample: the last one that begins at or before it and is not empty. */
static uint64_t file_of(const struct mr_order *o, const struct file_order *s, uint64_t id)
{
    if (!s->place)
        return id / s->per_file;
    uint64_t low = 0, high = s->n_files; /* file_first[low] <= id < file_first[high] */
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if (o->p.file_first[mid] <= id)
            low = mid;
        else
            high = mid;
    }
    return low;
}

static void find_file(const struct mr_order *o, const uint64_t *ids, uint64_t *places, size_t count)
{
    const struct file_order *s = o->mode_state;
    for (size_t i = 0; i < count; i++) {
        uint64_t file = file_of(o, s, ids[i]), f = mr_cipher_inverse(&s->files, file);
        uint64_t at = s->place ? s->place[f] + (ids[i] - o->p.file_first[file])
                               : f * s->per_file - (f > s->short_place ? s->short_by : 0) + ids[i] % s->per_file;
        uint32_t rank = mr_order_slice_of(o, at);
        places[i] = (at - mr_order_slice(o, rank).first) * o->p.world + rank;
    }
}

const struct mr_order_ops mr_order_file = {
    .rank_local = true, .prepare = prepare_file, .done = done_file, .fill_local = fill_file, .find = find_file};
