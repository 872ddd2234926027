/* Memory as a source: see fetch_memory.h. */
#include "dataset/fetch_memory.h"

#include "base/cgroup.h"
#include "base/strbuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_BYTES (16 * MR_MIB)
#define CHECKED_BYTES                                                                                                  \
    (64 * MR_MIB) /* so many are free when the first of them is taken: the kernel kills whom it refuses */

struct mr_memory_set {
    struct mr_fetch_source base;
    uint8_t *data; /* samples one behind the other */
    uint64_t data_bytes, samples, added;
    uint64_t *offset; /* samples + 1 */
};

static const void *memory_borrow(struct mr_fetch_source *base, const struct mr_fetch *f)
{
    const struct mr_memory_set *m = (struct mr_memory_set *)base;
    bool there = f->id < m->added && m->offset[f->id + 1] - m->offset[f->id] == f->length;
    return there ? m->data + m->offset[f->id] : NULL;
}

/* All of it can be borrowed; what is not there is nowhere. */
static int memory_read(struct mr_fetch_source *base, const struct mr_fetch *f, void *place, struct mr_error *err)
{
    (void)base, (void)place;
    return mr_error_plain(err, MR_E_INTERNAL, "sample %llu with %llu bytes is not in memory", (unsigned long long)f->id,
                          (unsigned long long)f->length);
}

static int memory_read_file(struct mr_fetch_source *base, uint64_t file, void *to, uint64_t bytes, struct mr_error *err)
{
    (void)base, (void)to, (void)bytes;
    return mr_error_plain(err, MR_E_INTERNAL, "file %llu is not in memory", (unsigned long long)file);
}

static void memory_free(struct mr_fetch_source *base)
{
    struct mr_memory_set *m = (struct mr_memory_set *)base;
    if (m->data)
        munmap(m->data, m->data_bytes);
    free(m->offset);
    free(m);
}

static const struct mr_fetch_source_ops memory_ops = {.name = "memory",
                                                      .kind = MR_FETCH_RAM,
                                                      .borrow = memory_borrow,
                                                      .read = memory_read,
                                                      .read_file = memory_read_file,
                                                      MR_FETCH_NO_QUEUE,
                                                      .free = memory_free};

int mr_memory_set_create(uint64_t samples, uint64_t bytes, struct mr_memory_set **out, struct mr_error *err)
{
    struct mr_memory_set *m = calloc(1, sizeof(*m));
    if (!m)
        return mr_error_set(err, -ENOMEM, "cannot hold the data set in memory");
    m->base.ops = &memory_ops;
    m->samples = samples;
    m->offset = calloc(samples + 1, sizeof(*m->offset));
    m->data_bytes = MR_MAX(bytes, FIRST_BYTES);
    void *data = mmap(NULL, m->data_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    m->data = data == MAP_FAILED ? NULL : data;
    if (!m->offset || !m->data) {
        memory_free(&m->base);
        return mr_error_set(err, -ENOMEM, "cannot hold the data set in memory (%llu bytes)", (unsigned long long)bytes);
    }
    *out = m;
    return 0;
}

static int check_room(const struct mr_memory_set *m, uint64_t bytes, struct mr_error *err)
{
    char have[MR_HUMAN_LEN];
    if (!mr_memory_require(MR_MAX(bytes, CHECKED_BYTES), "", NULL))
        return 0;
    mr_error_plain(
        err, -ENOMEM, "no memory for the data set: %llu of its %llu samples take %s, and nearly nothing is free%s",
        (unsigned long long)m->added, (unsigned long long)m->samples, mr_human_bytes((double)m->offset[m->added], have),
        mr_cgroup_memory_limit() ? " in this control group" : "");
    return mr_error_hint(err, "read it from storage, or keep a part: tiers ram=SIZE"), -ENOMEM;
}

int mr_memory_set_add(struct mr_memory_set *m, const void *data, uint64_t bytes, struct mr_error *err)
{
    uint64_t at = m->offset[m->added], need = at + bytes;
    int rc;
    if (m->added == m->samples)
        return mr_error_plain(err, MR_E_INTERNAL, "more samples than the data set has");
    if (need / CHECKED_BYTES != at / CHECKED_BYTES && (rc = check_room(m, bytes, err)))
        return rc;
    if (need > m->data_bytes) {
        uint64_t grown = MR_MAX(need, m->data_bytes + m->data_bytes / 2);
        void *moved = mremap(m->data, m->data_bytes, grown, MREMAP_MAYMOVE);
        if (moved == MAP_FAILED)
            return mr_error_set(err, -ENOMEM, "cannot hold the data set in memory (%llu bytes so far)",
                                (unsigned long long)at);
        m->data = moved;
        m->data_bytes = grown;
    }
    memcpy(m->data + at, data, bytes);
    m->offset[++m->added] = need;
    return 0;
}

uint64_t mr_memory_set_bytes(const struct mr_memory_set *m)
{
    return m->offset[m->added];
}

struct mr_fetch_source *mr_memory_set_source(struct mr_memory_set *m)
{
    return &m->base;
}
