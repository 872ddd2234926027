/* The memory of the loader: slots (one batch each), their slabs, and where a row lies. See README.md for the invariants
 * (L1 ...).
 *
 * All slabs are one mapping (L8). Rows are a fixed stride apart where all samples are equally long or the caller fixed
 * the row's size, and packed one behind the other where sizes differ; a sample that does not fit its slab gets a buffer
 * of its own, which is freed when the slot is used again (L4). */
#include "base/cgroup.h"
#include "base/strbuf.h"
#include "loader/loader_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define ROW_ALIGN 64u
#define BLOCK 4096u /* direct reads take whole blocks; no file system asks for larger ones */
#define HUGE_PAGE (2 * MR_MIB)
#define QUEUE_ROOM (32 * MR_MIB)
#define PREFAULT_MAX (64 * MR_MIB) /* larger slabs are faulted by their first use, in parallel */

/* Memory of all batches. Huge pages first, faults second: memory that is there already stays in small pages, and a
 * direct read has to pin each of them and hand each to the device. One mapping that starts on a huge page, because each
 * slab of its own would have small pages at both ends. What a kernel refuses here only costs time. */
static void *map_slabs(uint64_t bytes, uint64_t prefault)
{
    uint64_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : BLOCK, room = bytes + align - BLOCK;
    uint8_t *p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    uint64_t head = (align - (uintptr_t)p % align) % align, tail = room - head - bytes;
    if (head)
        munmap(p, head);
    if (tail)
        munmap(p + head + bytes, tail);
    p += head;
    madvise(p, bytes, MADV_HUGEPAGE);
    if (prefault)
        madvise(p, prefault, MADV_POPULATE_WRITE);
    return p;
}

/* One user less; `slab` is spare again, if it is one. The last user frees everything. */
static void leave_pool(struct slab_pool *pool, uint8_t *slab)
{
    pthread_mutex_lock(&pool->lock);
    if (slab)
        pool->free[pool->n_free++] = slab;
    bool last = --pool->users == 0;
    pthread_mutex_unlock(&pool->lock);
    if (!last)
        return;
    if (pool->memory)
        munmap(pool->memory, pool->bytes);
    pthread_mutex_destroy(&pool->lock);
    free(pool->free);
    free(pool);
}

static struct slab_pool *make_pool(uint64_t bytes, uint64_t slab_bytes, unsigned n_slots, unsigned spare)
{
    struct slab_pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pool->users = 1;
    pool->bytes = bytes;
    pool->free = calloc((size_t)n_slots + spare, sizeof(*pool->free));
    /* Spare slabs are not taken before a program holds batches: check_memory does not count them. */
    pool->memory = map_slabs(bytes, slab_bytes <= PREFAULT_MAX ? slab_bytes * n_slots : 0);
    if (!pool->free || !pool->memory) {
        leave_pool(pool, NULL);
        return NULL;
    }
    for (unsigned i = 0; i < spare; i++)
        pool->free[pool->n_free++] = pool->memory + (n_slots + i) * slab_bytes;
    return pool;
}

static int alloc_slot(struct mr_loader *l, struct slot *s, uint8_t *slab, uint64_t slab_bytes)
{
    uint32_t n = l->p.batch_size;
    s->slab_bytes = slab_bytes;
    s->slab = slab;
    s->rows = calloc(n, sizeof(*s->rows));
    s->ids = calloc(n, sizeof(*s->ids));
    s->bytes = calloc(n, sizeof(*s->bytes));
    s->labels = calloc(n, sizeof(*s->labels));
    s->shapes = calloc(n, sizeof(*s->shapes));
    s->has_shape = calloc(n, sizeof(*s->has_shape));
    s->overflow = calloc(n, sizeof(*s->overflow));
    s->bad = calloc(n, sizeof(*s->bad));
    s->stored = calloc(n, sizeof(*s->stored));
    bool there =
        s->rows && s->ids && s->bytes && s->labels && s->shapes && s->has_shape && s->overflow && s->bad && s->stored;
    return there ? mr_loader_alloc_fields(l, s) : -ENOMEM;
}

unsigned mr_loader_slab_number(const struct mr_loader *l, const uint8_t *slab)
{
    const uint8_t *first = l->pool->memory;
    const unsigned n = l->n_slots + l->p.spare;
    return slab >= first && slab < first + n * l->slab_bytes ? (unsigned)((uint64_t)(slab - first) / l->slab_bytes) : n;
}

void mr_loader_forget_overflow(struct mr_loader *l, struct slot *s)
{
    for (uint32_t i = 0; s->overflow && !l->n_fields && i < l->p.batch_size; i++)
        if (s->overflow[i]) {
            free(s->overflow[i]);
            s->overflow[i] = NULL;
        }
}

static void free_slot(struct mr_loader *l, struct slot *s)
{
    mr_loader_forget_overflow(l, s);
    mr_loader_free_fields(l, s);
    free(s->rows);
    free(s->ids);
    free(s->bytes);
    free(s->labels);
    free(s->shapes);
    free(s->has_shape);
    free(s->overflow);
    free(s->bad);
    free(s->stored);
}

void *mr_loader_row(struct mr_loader *l, struct slot *s, uint32_t row, uint64_t need, uint64_t slack)
{
    if (l->p.row_bytes && need > l->p.row_bytes)
        return NULL;
    uint64_t room = MR_ALIGN_UP(MR_MAX(need + slack, 1u), (uint64_t)l->row_align);
    if (!l->packed && room <= l->row_bytes)
        return s->slab + (uint64_t)row * l->row_bytes;
    if (l->packed) {
        uint64_t at = atomic_fetch_add(&s->slab_used, room);
        if (at + room <= s->slab_bytes)
            return s->slab + at;
    }
    free(s->overflow[row]);
    s->overflow[row] = aligned_alloc(MR_MAX(l->row_align, ROW_ALIGN), MR_ALIGN_UP(room, (uint64_t)ROW_ALIGN));
    return s->overflow[row];
}

/* What decoding makes of a sample, where the manifest knows one shape for all; 0: it does not. */
static uint64_t known_bytes(const struct mr_loader *l)
{
    const struct mr_dataset_info *in = &l->info;
    const struct mr_preprocess_params *made = &l->preprocess;
    if (l->p.preprocess && made->rgb && (made->height || made->last_crop != MR_CROP_NONE))
        return mr_preprocess_bytes(made, 0, 0, 3);                           /* whatever the pictures are */
    uint64_t bytes = strtoull(in->dtype + (in->dtype[0] != '\0'), NULL, 10); /* u1, f4, c16 */
    for (unsigned i = 0; i < in->n_dims; i++)
        if (__builtin_mul_overflow(bytes, in->dims[i], &bytes))
            return 0;
    if (!in->n_dims || !bytes)
        return 0;
    if (l->p.preprocess && (in->n_dims == 2 || in->n_dims == 3))
        return mr_preprocess_bytes(&l->preprocess, in->dims[0], in->dims[1], in->n_dims == 3 ? in->dims[2] : 1);
    return bytes;
}

/* Row sizes: a stride where all samples are equally long or the caller fixed it; packed where sizes differ. Where the
 * manifest does not say what decoding makes of a sample, a few are read. */
static int probe_decoded(struct mr_loader *l, uint64_t *bytes, struct mr_error *err)
{
    uint64_t largest = 0, n = l->info.samples;
    if ((*bytes = known_bytes(l)))
        return 0;
    for (unsigned i = 0; i < 8; i++) {
        struct mr_sample s;
        int rc = mr_dataset_read(l->threads[0].reader, n * i / 8, 0, NULL, 0, &s, err);
        if (rc < 0 && l->p.flags & MR_LOADER_SKIP_BAD && (i < 7 || largest)) /* one of them will do */
            continue;
        if (rc < 0)
            return rc;
        uint64_t need = s.bytes;
        if (l->p.preprocess && (s.n_dims == 2 || s.n_dims == 3)) /* other shapes fail when they are read */
            need = mr_preprocess_bytes(&l->preprocess, s.dims[0], s.dims[1], s.n_dims == 3 ? s.dims[2] : 1);
        largest = MR_MAX(largest, need);
    }
    *bytes = largest;
    return 0;
}

static int choose_rows(struct mr_loader *l, uint64_t *slab_bytes, struct mr_error *err)
{
    struct mr_read_cost cost;
    if (l->n_fields)
        return mr_loader_place_fields(l, slab_bytes, err);
    int rc = mr_dataset_file_cost(l->dataset, 0, &cost, err);
    if (rc < 0)
        return rc;
    const struct mr_dataset_info *in = &l->info;
    uint64_t row = l->p.row_bytes;
    bool stored =
        ((cost.verbatim && cost.access == MR_ACCESS_RANGE) || (l->p.flags & MR_LOADER_RAW)) && !l->p.preprocess;
    bool blocks = stored && l->queued && (l->p.flags & MR_LOADER_DIRECT); /* read in place, with the blocks around it */
    l->row_extra = l->p.flags & LOADER_RAW_WITH_CHECKSUMS ? ROW_ALIGN : 0;
    uint64_t slack = (blocks ? BLOCK : 0) + l->row_extra;
    l->in_place = blocks && (l->p.flags & MR_LOADER_IN_PLACE);
    bool dense =
        l->p.flags & MR_LOADER_DENSE && !blocks && (row || !stored || in->sample_min_bytes == in->sample_max_bytes);
    l->row_align = blocks ? BLOCK : dense ? 1 : ROW_ALIGN;
    if (!row && stored && in->sample_min_bytes != in->sample_max_bytes) {
        l->packed = true;
        uint64_t mean = in->sample_bytes / in->samples + slack + l->row_align;
        /* Room for an ordinary batch and one long sample; more goes into buffers of its own. */
        *slab_bytes =
            MR_ALIGN_UP(mean * l->p.batch_size + mean * l->p.batch_size / 8 + in->sample_max_bytes + slack, BLOCK);
        return 0;
    }
    if (!row && stored)
        row = in->sample_max_bytes;
    else if (!row && (rc = probe_decoded(l, &row, err)) < 0)
        return rc;
    l->row_bytes = MR_ALIGN_UP(MR_MAX(row + slack, 1u), (uint64_t)l->row_align);
    l->row_room = l->p.row_bytes ? l->p.row_bytes : l->row_bytes;
    *slab_bytes = MR_ALIGN_UP(l->row_bytes * l->p.batch_size, BLOCK);
    return 0;
}

/* A queue stays full only if its requests find rows while the consumer holds a batch and the next one waits for its
 * last rows. Where batches are small, the look-ahead has too few of them; what is lacking is added as long as it is
 * little memory. */
static unsigned slots_for_queue(const struct mr_loader *l, uint64_t slab_bytes)
{
    uint64_t batch = l->p.batch_size, want = (l->queue_depth + batch - 1) / batch + 2;
    if (!l->queued || want <= l->n_slots)
        return 0;
    uint64_t room = QUEUE_ROOM, used = slab_bytes * l->n_slots;
    if (l->p.memory_bytes)
        room = MR_MIN(room, l->p.memory_bytes - MR_MIN(used, l->p.memory_bytes));
    return (unsigned)MR_MIN(want - l->n_slots, room / slab_bytes);
}

/* A kernel takes at most 1 GiB as one buffer; memory beyond what fits here is read into as before. */
static void name_slabs(struct mr_loader *l)
{
    for (uint64_t at = 0; at < l->slabs_bytes && l->n_slab_parts < MR_ARRAY_LEN(l->slab_parts); at += MR_GIB)
        l->slab_parts[l->n_slab_parts++] =
            (struct iovec){.iov_base = l->pool->memory + at, .iov_len = MR_MIN(MR_GIB, l->slabs_bytes - at)};
}

/* Memory is mapped without being taken, so a ring that is too large would be found out by the kernel, which ends the
 * process. The spare slabs do not count: a program that holds no batches never touches them. */
static int check_memory(const struct mr_loader *l, uint64_t slab_bytes, struct mr_error *err)
{
    uint64_t rows = MR_MIN((uint64_t)l->p.batch_size, MR_MAX(l->info.samples, (uint64_t)1)), need;
    if (__builtin_mul_overflow(slab_bytes / l->p.batch_size * rows, (uint64_t)l->n_slots, &need))
        need = UINT64_MAX;
    char what[64];
    snprintf(what, sizeof what, "%u batches of %u samples", l->n_slots, l->p.batch_size);
    if (!mr_memory_require(need, what, err))
        return 0;
    return mr_error_hint(err, "make batches smaller, or read fewer of them ahead"), -ENOMEM;
}

int mr_loader_alloc_slots(struct mr_loader *l, struct mr_error *err)
{
    uint64_t slab_bytes;
    int rc = choose_rows(l, &slab_bytes, err);
    if (rc < 0)
        return rc;
    if (l->packed && l->p.flags & MR_LOADER_SKIP_BAD)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "bad samples cannot be left out where rows differ in size");
    l->slab_bytes = slab_bytes;
    l->n_slots = l->read_ahead ? l->p.lookahead + 1 : 1;
    l->n_slots += slots_for_queue(l, slab_bytes);
    l->ring = l->n_slots;
    const unsigned n_slabs = l->n_slots + l->p.spare;
    if (l->p.memory_bytes && slab_bytes * n_slabs > l->p.memory_bytes) {
        mr_error_plain(err, MR_E_CONFIG, "%u batches of %u rows need %llu bytes of memory, the limit is %llu", n_slabs,
                       l->p.batch_size, (unsigned long long)(slab_bytes * n_slabs),
                       (unsigned long long)l->p.memory_bytes);
        return mr_error_hint(err, "read fewer batches ahead, or allow more memory"), MR_E_CONFIG;
    }
    if ((rc = check_memory(l, slab_bytes, err)) < 0)
        return rc;
    l->slots = aligned_alloc(CACHE_LINE, l->n_slots * sizeof(*l->slots));
    if (!l->slots)
        return mr_error_set(err, -ENOMEM, "cannot make %u batches", l->n_slots);
    memset(l->slots, 0, l->n_slots * sizeof(*l->slots));
    l->slabs_bytes = slab_bytes * n_slabs;
    uint64_t rounded = MR_ALIGN_UP(l->slabs_bytes, HUGE_PAGE);
    if (l->slabs_bytes >= 8 * HUGE_PAGE && (!l->p.memory_bytes || rounded <= l->p.memory_bytes))
        l->slabs_bytes = rounded; /* the last pages are huge, too */
    l->pool = make_pool(l->slabs_bytes, slab_bytes, l->n_slots, l->p.spare);
    bool failed = !l->pool;
    for (unsigned i = 0; i < l->n_slots && !failed; i++)
        failed = alloc_slot(l, &l->slots[i], l->pool->memory + i * slab_bytes, slab_bytes) < 0;
    if (!failed && l->row_align == BLOCK) /* rows are read into directly */
        name_slabs(l);
    if (failed)
        return mr_error_set(err, -ENOMEM, "cannot get %u batches of %llu bytes", n_slabs,
                            (unsigned long long)slab_bytes);
    return mr_loader_alloc_columns(l, n_slabs, err);
}

void mr_loader_free_slots(struct mr_loader *l)
{
    for (unsigned i = 0; l->slots && i < l->n_slots; i++)
        free_slot(l, &l->slots[i]);
    if (l->pool)
        leave_pool(l->pool, NULL);
    mr_loader_free_columns(l);
    free(l->slots);
}

/* ---- batches that are kept ---- */

struct mr_slab {
    struct slab_pool *pool;
    uint8_t *memory;
};

static uint8_t *spare_slab(struct slab_pool *pool)
{
    uint8_t *got = NULL;
    pthread_mutex_lock(&pool->lock);
    if (pool->n_free) {
        got = pool->free[--pool->n_free];
        pool->users++;
    }
    pthread_mutex_unlock(&pool->lock);
    return got;
}

static bool in_slab(const struct slot *s)
{
    for (uint32_t i = 0; i < s->batch.n; i++) {
        const uint8_t *row = s->rows[i];
        if (row < s->slab || row + s->bytes[i] > s->slab + s->slab_bytes)
            return false;
    }
    return true;
}

int mr_loader_take(struct mr_loader *l, struct mr_batch *b, void *fresh, struct mr_slab **out)
{
    if (l->is_perfect)
        return -EAGAIN;
    struct slot *s = MR_CONTAINER_OF(b, struct slot, batch);
    if (l->n_fields ? !mr_loader_fields_in_slab(l, s) : !in_slab(s))
        return -EAGAIN;
    if (fresh) {
        s->slab = fresh;
        *out = NULL;
        return 0;
    }
    struct mr_slab *slab = malloc(sizeof(*slab));
    uint8_t *spare = slab ? spare_slab(l->pool) : NULL;
    if (!spare) {
        free(slab);
        return -EAGAIN;
    }
    *slab = (struct mr_slab){.pool = l->pool, .memory = s->slab};
    s->slab = spare;
    *out = slab;
    return 0;
}

void mr_slab_free(struct mr_slab *slab)
{
    if (!slab)
        return;
    leave_pool(slab->pool, slab->memory);
    free(slab);
}

void mr_loader_set_memory(struct mr_loader *l, unsigned index, void *fresh)
{
    l->slots[index].slab = fresh;
    l->n_slab_parts = 0; /* queues do not know it */
}

unsigned mr_loader_places(const struct mr_loader *l)
{
    return l->n_slots;
}

uint64_t mr_loader_slab_bytes(const struct mr_loader *l)
{
    return l->slab_bytes;
}

/* ---- samples that are left out ---- */

/* What belongs to row `from` becomes row `to`'s. */
static void move_row(struct mr_loader *l, struct slot *s, uint32_t from, uint32_t to)
{
    uint8_t *at = s->slab + (uint64_t)to * l->row_bytes;
    if (s->rows[from] == s->slab + (uint64_t)from * l->row_bytes) {
        memcpy(at, s->rows[from], MR_MIN(MR_MAX(s->bytes[from], s->stored[from]), l->row_bytes));
        s->rows[to] = at;
    } else { /* a buffer of its own */
        s->rows[to] = s->rows[from];
    }
    s->ids[to] = s->ids[from];
    s->bytes[to] = s->bytes[from];
    s->labels[to] = s->labels[from];
    s->shapes[to] = s->shapes[from];
    s->has_shape[to] = s->has_shape[from];
    s->stored[to] = s->stored[from];
}

uint32_t mr_loader_leave_out_bad(struct mr_loader *l, struct slot *s)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->bad[i])
            continue;
        if (kept != i) {
            move_row(l, s, i, kept);
            mr_loader_move_fields(l, s, i, kept);
        }
        kept++;
    }
    return kept;
}

uint64_t mr_loader_skipped(struct mr_loader *l, struct mr_error *first)
{
    pthread_mutex_lock(&l->lock);
    uint64_t n = atomic_load(&l->skipped);
    if (n && first)
        *first = l->first_skipped;
    pthread_mutex_unlock(&l->lock);
    return n;
}
