/* The board: one anonymous shared mapping made before the ranks are forked. See bench.h. */
#include "base/common.h"
#include "bench/trainer.h"
#include "event/emit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

const char *mr_bench_state_text(enum mr_bench_state s)
{
    static const char *const text[] = {
#define MR_BENCH_STATE_TEXT(name, words) [name] = words,
        MR_BENCH_STATES(MR_BENCH_STATE_TEXT)
#undef MR_BENCH_STATE_TEXT
    };
    return (unsigned)s < MR_ARRAY_LEN(text) ? text[s] : "unknown";
}

/* A run can also drain what earlier ones left in the burst buffer. */
#define DRAINS_MORE 1024u

int mr_bench_board_create(uint32_t world, uint64_t steps, uint64_t checkpoints, struct mr_bench_board **out,
                          struct mr_error *err)
{
    size_t head = MR_ALIGN_UP(sizeof(struct mr_bench_board) + world * sizeof(struct mr_bench_rank), (size_t)4096);
    unsigned __int128 want =
        (unsigned __int128)world *
            (steps * sizeof(struct mr_step) + (unsigned __int128)checkpoints * sizeof(struct mr_checkpoint_event) +
             ((unsigned __int128)checkpoints + DRAINS_MORE) * sizeof(struct mr_drain_event)) +
        head + 3 * 4096;
    if (want > (unsigned __int128)1 << 46)
        return mr_error_plain(err, MR_E_LIMIT, "%llu steps of %u ranks are too many to keep", (unsigned long long)steps,
                              world);
    size_t bytes = (size_t)want;
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return mr_error_set(err, -errno, "cannot get memory for the series of %u ranks", world);
    struct mr_bench_board *b = map;
    b->world = world;
    b->step_cap = steps;
    b->checkpoint_cap = checkpoints;
    b->drain_cap = checkpoints + DRAINS_MORE;
    b->map_bytes = bytes;
    b->ranks = (void *)(b + 1);
    b->checkpoints = (void *)((uint8_t *)map + head);
    size_t ckpt_bytes = MR_ALIGN_UP(world * checkpoints * sizeof(*b->checkpoints), (size_t)4096);
    size_t drain_bytes = MR_ALIGN_UP(world * b->drain_cap * sizeof(*b->drains), (size_t)4096);
    b->drains = (void *)((uint8_t *)map + head + ckpt_bytes);
    b->steps = (void *)((uint8_t *)map + head + ckpt_bytes + drain_bytes);
    *out = b;
    return 0;
}

void mr_bench_board_free(struct mr_bench_board *b)
{
    if (b && !b->in_use)
        munmap(b, b->map_bytes);
}

void mr_bench_board_series(const struct mr_bench_board *b, struct mr_rank_series *out)
{
    for (uint32_t r = 0; r < b->world; r++)
        out[r] = (struct mr_rank_series){.rank = r,
                                         .steps = b->steps + r * b->step_cap,
                                         .n = atomic_load(&b->ranks[r].n_steps),
                                         .checkpoints = b->checkpoints + r * b->checkpoint_cap,
                                         .n_checkpoints = atomic_load(&b->ranks[r].n_checkpoints),
                                         .drains = b->drains + r * b->drain_cap,
                                         .n_drains = atomic_load(&b->ranks[r].n_drains),
                                         .drain_wait_ns = b->ranks[r].drain_wait_ns};
}

/* One row of every rank's array at a time would be slow; a thousand are a message. */
static int collect_array(struct mr_comm *c, void *base, size_t row, uint64_t cap, uint64_t most, struct mr_error *err)
{
    enum { RUN = 1024 };
    uint8_t *own = (uint8_t *)base + (size_t)c->rank * cap * row, *got = NULL;
    if (c->rank == 0 && !(got = malloc((size_t)c->world * RUN * row)))
        return mr_error_set(err, -ENOMEM, "cannot collect the series");
    int rc = 0;
    for (uint64_t at = 0; !rc && at < most; at += RUN) {
        uint64_t n = MR_MIN((uint64_t)RUN, most - at);
        rc = mr_comm_gather(c, own + at * row, n * row, got, 0, err);
        for (uint32_t r = 1; !rc && got && r < c->world; r++)
            memcpy((uint8_t *)base + ((size_t)r * cap + at) * row, got + (size_t)r * n * row, n * row);
    }
    free(got);
    return rc;
}

int mr_bench_collect(struct mr_comm *c, struct mr_bench_board *b, struct mr_error *err)
{
    /* Forked ranks share the board: rank 0 sees the others' processes on it. */
    uint64_t seen = 0;
    for (uint32_t r = 0; r < c->world; r++)
        seen += b->ranks[r].pid != 0;
    int rc = mr_comm_allreduce_u64(c, &seen, 1, MR_COMM_MIN, err);
    if (rc || seen == c->world)
        return rc;
    uint64_t most[] = {atomic_load(&b->ranks[c->rank].n_steps), atomic_load(&b->ranks[c->rank].n_checkpoints),
                       atomic_load(&b->ranks[c->rank].n_drains)};
    if ((rc = mr_comm_allreduce_u64(c, most, MR_ARRAY_LEN(most), MR_COMM_MAX, err)))
        return rc;
    struct mr_bench_rank *all = c->rank == 0 ? calloc(c->world, sizeof(*all)) : NULL;
    rc = mr_comm_agree(c, c->rank == 0 && !all ? mr_error_set(err, -ENOMEM, "cannot collect the series") : 0, err);
    if (!rc)
        rc = mr_comm_gather(c, &b->ranks[c->rank], sizeof(*all), all, 0, err);
    for (uint32_t r = 1; !rc && all && r < c->world; r++)
        memcpy(&b->ranks[r], &all[r], sizeof(*all));
    free(all);
    if (!rc)
        rc = collect_array(c, b->steps, sizeof(*b->steps), b->step_cap, most[0], err);
    if (!rc)
        rc = collect_array(c, b->checkpoints, sizeof(*b->checkpoints), b->checkpoint_cap, most[1], err);
    if (!rc)
        rc = collect_array(c, b->drains, sizeof(*b->drains), b->drain_cap, most[2], err);
    return rc;
}

struct mr_bench_field *mr_bench_field(struct mr_bench_fields *f, const char *name)
{
    char kept[sizeof f->field[0].name];
    snprintf(kept, sizeof kept, "%.*s", (int)sizeof kept - 1, name);
    for (uint32_t k = 0; k < f->n; k++)
        if (strcmp(f->field[k].name, kept) == 0)
            return &f->field[k];
    if (f->n == MR_BENCH_FIELDS - 1)
        memcpy(kept, "(others)", sizeof "(others)");
    struct mr_bench_field *new = &f->field[MR_MIN(f->n, MR_BENCH_FIELDS - 1)];
    if (f->n < MR_BENCH_FIELDS) {
        *new = (struct mr_bench_field){0};
        memcpy(new->name, kept, sizeof kept);
        f->n++;
    }
    return new;
}

void mr_bench_fields_add(struct mr_bench_fields *sum, const struct mr_bench_fields *one)
{
    for (uint32_t k = 0; k < one->n; k++) {
        struct mr_bench_field *to = mr_bench_field(sum, one->field[k].name);
#define ADD(member) to->member += one->field[k].member;
        MR_FIELD_COSTS(ADD)
#undef ADD
    }
}
