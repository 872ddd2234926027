/* The access order: parameters, positions, ranks and padding; the modes themselves are in order_*.c.
 *
 * What must stay true, for every mode, world size and position (the tests prove each):
 *   1. Without drop_last the union over ranks holds every sample; samples read twice are exactly total - n.
 *   2. With drop_last no sample is read twice and fewer than `world` are left out.
 *   3. All ranks get equally many.
 *   4. mr_order_get on rank r equals mr_order_get_for(r) on any other rank.
 *   5. Reading from position p equals reading from 0 and skipping p; in global modes for any world sizes before and
 *      after. */
#include "order/order_modes.h"
#include "base/common.h"
#include "base/rng.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    const struct mr_order_ops *ops;
} modes[] = {
    [MR_ORDER_AUTO] = {"auto", NULL},
    [MR_ORDER_SEQUENTIAL] = {"sequential", &mr_order_sequential},
    [MR_ORDER_TORCH] = {"torch", &mr_order_torch},
    [MR_ORDER_CIPHER] = {"cipher", &mr_order_cipher},
    [MR_ORDER_SHARD] = {"shard", &mr_order_shard},
    [MR_ORDER_BUFFER] = {"buffer", &mr_order_buffer},
    [MR_ORDER_FILE] = {"file", &mr_order_file},
};

static void fill_sequential(const struct mr_order *o, uint64_t at, uint64_t stride, uint64_t *ids, size_t count)
{
    (void)o;
    for (size_t i = 0; i < count; i++)
        ids[i] = at + i * stride;
}

static void find_sequential(const struct mr_order *o, const uint64_t *ids, uint64_t *places, size_t count)
{
    (void)o;
    memmove(places, ids, count * sizeof(*ids));
}

const struct mr_order_ops mr_order_sequential = {.fill_global = fill_sequential, .find = find_sequential};

const char *mr_order_mode_name(enum mr_order_mode mode)
{
    return (unsigned)mode < MR_ARRAY_LEN(modes) ? modes[mode].name : "unknown";
}

/* "buffer(1024)": the number in the parentheses; 0 if it is not one. */
static uint64_t parse_window(const char *text)
{
    char *end;
    if (*text < '0' || *text > '9')
        return 0;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    return errno == 0 && end[0] == ')' && end[1] == '\0' ? v : 0;
}

int mr_order_mode_parse(const char *name, enum mr_order_mode *mode, uint64_t *window, struct mr_error *err)
{
    for (unsigned m = 0; m < MR_ARRAY_LEN(modes); m++)
        if (strcmp(name, modes[m].name) == 0) {
            *mode = (enum mr_order_mode)m;
            return 0;
        }
    if (strncmp(name, "buffer(", 7) == 0) {
        uint64_t v = parse_window(name + 7);
        if (!v)
            return mr_error_plain(err, MR_E_USAGE, "bad order mode '%s': want buffer(K) with a whole number K >= 1",
                                  name);
        *mode = MR_ORDER_BUFFER;
        if (window)
            *window = v;
        return 0;
    }
    mr_error_plain(err, MR_E_USAGE, "unknown order mode '%s'", name);
    return mr_error_hint(err, "choose one of auto, sequential, torch, cipher, shard, buffer(K), file"), MR_E_USAGE;
}

static int check_files(const struct mr_order_params *p, struct mr_error *err)
{
    if (!p->file_first) {
        if (p->samples_per_file)
            return 0;
        mr_error_plain(err, MR_E_USAGE, "order mode 'file' needs to know the files");
        mr_error_hint(err, "give --samples-per-file");
        return MR_E_USAGE;
    }
    bool ok = p->n_files > 0 && p->n_files < UINT64_MAX / 16 && p->file_first[0] == 0 &&
              p->file_first[p->n_files] == p->samples;
    for (uint64_t f = 0; ok && f < p->n_files; f++)
        ok = p->file_first[f] <= p->file_first[f + 1];
    return ok ? 0
              : mr_error_plain(err, MR_E_USAGE,
                               "the first samples of the %" PRIu64
                               " files do not ascend from 0 to the sample count %" PRIu64,
                               p->n_files, p->samples);
}

static int check_params(const struct mr_order_params *p, struct mr_error *err)
{
    if ((unsigned)p->mode >= MR_ARRAY_LEN(modes))
        return mr_error_plain(err, MR_E_USAGE, "order mode number %d does not exist", (int)p->mode);
    if (p->samples == 0)
        return mr_error_plain(err, MR_E_USAGE, "an order needs at least one sample");
    if (p->samples > MR_ORDER_MAX_SAMPLES)
        return mr_error_plain(err, MR_E_USAGE, "%" PRIu64 " samples are more than an order can hold (%" PRIu64 ")",
                              p->samples, (uint64_t)MR_ORDER_MAX_SAMPLES);
    if (p->world == 0 || p->rank >= p->world)
        return mr_error_plain(err, MR_E_USAGE, "rank %u does not exist in a world of %u ranks", p->rank, p->world);
    if (p->mode == MR_ORDER_BUFFER && p->window == 0) {
        mr_error_plain(err, MR_E_USAGE, "order mode 'buffer' needs a window of at least one sample");
        mr_error_hint(err, "give --window K or --mode 'buffer(K)'");
        return MR_E_USAGE;
    }
    return p->mode == MR_ORDER_FILE ? check_files(p, err) : 0;
}

static int copy_files(struct mr_order *o, struct mr_error *err)
{
    if (o->p.mode != MR_ORDER_FILE || !o->p.file_first) {
        o->p.file_first = NULL;
        return 0;
    }
    size_t bytes = (size_t)(o->p.n_files + 1) * sizeof(uint64_t);
    uint64_t *copy = malloc(bytes);
    if (!copy)
        return mr_error_set(err, -ENOMEM, "cannot hold the table of %" PRIu64 " files", o->p.n_files);
    memcpy(copy, o->p.file_first, bytes);
    o->p.file_first = copy;
    return 0;
}

int mr_order_create(const struct mr_order_params *p, struct mr_order **out, struct mr_error *err)
{
    int code = check_params(p, err);
    if (code)
        return code;
    struct mr_order *o = calloc(1, sizeof(*o));
    if (!o)
        return mr_error_set(err, -ENOMEM, "cannot create an order");
    o->p = *p;
    if (p->mode == MR_ORDER_AUTO)
        o->p.mode = p->samples <= MR_ORDER_AUTO_TORCH_MAX ? MR_ORDER_TORCH : MR_ORDER_CIPHER;
    o->ops = modes[o->p.mode].ops;
    code = copy_files(o, err);
    if (code) {
        free(o);
        return code;
    }
    code = o->ops->prepare ? o->ops->prepare(o, err) : 0;
    if (code) {
        mr_order_free(o);
        return code;
    }
    *out = o;
    return 0;
}

void mr_order_free(struct mr_order *o)
{
    if (!o)
        return;
    if (o->ops->done)
        o->ops->done(o);
    free((uint64_t *)(uintptr_t)o->p.file_first);
    free(o);
}

enum mr_order_mode mr_order_mode_of(const struct mr_order *o)
{
    return o->p.mode;
}

uint64_t mr_order_epoch(const struct mr_order *o)
{
    return o->p.epoch;
}

int mr_order_set_epoch(struct mr_order *o, uint64_t epoch, struct mr_error *err)
{
    uint64_t old = o->p.epoch;
    o->p.epoch = epoch;
    bool same = old == epoch || !o->p.shuffle_each_epoch; /* the same plan: keep it */
    int code = same || !o->ops->prepare ? 0 : o->ops->prepare(o, err);
    if (code) {
        o->p.epoch = old;
        return code;
    }
    o->start = 0;
    return 0;
}

uint64_t mr_order_key(const struct mr_order *o, uint64_t which)
{
    uint64_t epoch = o->p.shuffle_each_epoch ? o->p.epoch : 0;
    return mr_rng_at(mr_rng_at(o->p.seed, MR_RNG_ORDER, epoch), MR_RNG_ORDER, which);
}

struct mr_slice mr_order_slice(const struct mr_order *o, uint32_t rank)
{
    uint64_t first = (uint64_t)((unsigned __int128)o->p.samples * rank / o->p.world);
    uint64_t end = (uint64_t)((unsigned __int128)o->p.samples * (rank + (uint64_t)1) / o->p.world);
    assert(rank < o->p.world && first <= end && end <= o->p.samples); /* slices tile the samples */
    return (struct mr_slice){.first = first, .len = end - first};
}

uint32_t mr_order_slice_of(const struct mr_order *o, uint64_t at)
{
    /* first(r) = floor(n r / w) <= at, so r <= ((at + 1) w - 1) / n, and that one is the last such rank */
    uint32_t rank = (uint32_t)((((unsigned __int128)at + 1) * o->p.world - 1) / o->p.samples);
    assert(rank < o->p.world && at - mr_order_slice(o, rank).first < mr_order_slice(o, rank).len);
    return rank;
}

int mr_order_index(struct mr_order *o, struct mr_error *err)
{
    return o->ops->index ? o->ops->index(o, err) : 0;
}

void mr_order_places(const struct mr_order *o, const uint64_t *ids, uint64_t *places, size_t n)
{
    o->ops->find(o, ids, places, n);
}

/* Per rank, from global position `from` on. */
static uint64_t len_from(const struct mr_order *o, uint64_t from)
{
    uint64_t w = o->p.world, left = from < o->p.samples ? o->p.samples - from : 0;
    return o->p.drop_last ? left / w : left / w + (left % w != 0);
}

uint64_t mr_order_rank_len(const struct mr_order *o)
{
    return len_from(o, o->start);
}

uint64_t mr_order_total(const struct mr_order *o)
{
    return mr_order_rank_len(o) * o->p.world;
}

/* Cuts at every wrap around n, so that the modes see plain indices. PyTorch repeats the whole sequence as often as the
 * padding needs, which is the same as the index modulo n. */
static size_t get_global(const struct mr_order *o, uint32_t rank, uint64_t k, uint64_t *ids, size_t count)
{
    uint64_t n = o->p.samples, w = o->p.world, at = o->start + rank + k * w;
    for (size_t done = 0, run; done < count; done += run, at += run * w) {
        uint64_t i = at % n, fit = (n - 1 - i) / w + 1;
        run = (size_t)MR_MIN((uint64_t)(count - done), fit);
        assert(run > 0 && i + (run - 1) * w < n);
        o->ops->fill_global(o, i, w, ids + done, run);
    }
    return count;
}

/* A slice is at most one sample short of rank_len; that place repeats the slice's own head. Only when there are fewer
 * samples than ranks a slice can be empty: its rank reads the sample next to it. */
static size_t get_local(const struct mr_order *o, uint32_t rank, uint64_t k, uint64_t *ids, size_t count)
{
    struct mr_slice s = mr_order_slice(o, rank);
    size_t done = 0;
    k += o->start / o->p.world;
    if (s.len == 0) {
        for (; s.len == 0; rank = rank + 1 < o->p.world ? rank + 1 : 0)
            s = mr_order_slice(o, rank + 1 < o->p.world ? rank + 1 : 0);
        k = 0;
    }
    while (done < count) {
        uint64_t i = k % s.len;
        assert(i < s.len);
        size_t run = (size_t)MR_MIN((uint64_t)(count - done), s.len - i);
        if (o->ops->fill_local(o, rank, i, ids + done, run) != run)
            return done;
        done += run;
        k += run;
    }
    return done;
}

size_t mr_order_get_for(const struct mr_order *o, uint32_t rank, uint64_t k, uint64_t *ids, size_t n)
{
    uint64_t len = mr_order_rank_len(o);
    if (rank >= o->p.world || k >= len)
        return 0;
    size_t count = (size_t)MR_MIN((uint64_t)n, len - k);
    return o->ops->rank_local ? get_local(o, rank, k, ids, count) : get_global(o, rank, k, ids, count);
}

size_t mr_order_get(const struct mr_order *o, uint64_t k, uint64_t *ids, size_t n)
{
    return mr_order_get_for(o, o->p.rank, k, ids, n);
}

int mr_order_seek(struct mr_order *o, uint64_t pos, struct mr_error *err)
{
    uint64_t end = MR_MAX(o->p.samples, len_from(o, 0) * o->p.world);
    if (pos > end)
        return mr_error_plain(err, MR_E_USAGE, "position %" PRIu64 " is beyond the end of the epoch (%" PRIu64 ")", pos,
                              end);
    if (o->ops->rank_local && pos % o->p.world) {
        mr_error_plain(err, MR_E_USAGE,
                       "position %" PRIu64 " is not a multiple of the world size %u, as mode '%s' needs", pos,
                       o->p.world, mr_order_mode_name(o->p.mode));
        mr_error_hint(err,
                      "resume with the world size the position was taken with, or use a global mode (torch, cipher)");
        return MR_E_USAGE;
    }
    assert(!o->ops->rank_local || pos % o->p.world == 0);
    o->start = pos;
    return 0;
}
