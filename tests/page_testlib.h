/* Explanations made up for tests: a typical run, a tiny one that knows next to nothing, very large ones, and one with
 * hostile names. Figures are a function of the kind alone. */
#ifndef MR_TESTS_PAGE_TESTLIB_H
#define MR_TESTS_PAGE_TESTLIB_H

#include "base/common.h"
#include "explain/explain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum explain_kind {
    EXPLAIN_TYPICAL, /* 8 ranks, 110 steps, input-bound */
    EXPLAIN_TINY,    /* 1 rank, 2 steps, most is unknown */
    EXPLAIN_WIDE,    /* 1,024 ranks of 100 steps */
    EXPLAIN_LONG,    /* 1 rank of 100,000 steps */
    EXPLAIN_HOSTILE, /* names that try to get out */
    EXPLAIN_HEALTHY, /* no finding */
    EXPLAIN_WORST    /* as much of everything as fits, with hostile names */
};

struct explain_maker {
    struct mr_explanation *x;
    uint64_t seed;
    uint32_t ranks;
    uint64_t steps;
    bool hostile;
};

static inline double explain_random(struct explain_maker *m)
{
    m->seed ^= m->seed << 13;
    m->seed ^= m->seed >> 7;
    m->seed ^= m->seed << 17;
    return (double)(m->seed >> 11) / 9007199254740992.0;
}

static inline uint64_t explain_ns(double s)
{
    return (uint64_t)(s * 1e9);
}

/* A name that a page has to survive: 4 KiB of everything, or one of the classics. */
static inline const char *explain_name(struct explain_maker *m, const char *plain)
{
    static const char *const bad[] = {"/data/<script>alert(1)</script>.npz",
                                      "/data/\"onload=\"alert(1)' x='.npz",
                                      "/data/\x1b[31mred\x07\x01\r\n.npz",
                                      "/data/\xe2\x80\xaegpj.exe\xe2\x81\xa6.npz",
                                      "/data/--></style></svg></title><img src=http://example.com/x>",
                                      "/data/]]>&amp;&#60;script&#62;%s%n{{x}}"};
    static unsigned at;
    if (!m->hostile)
        return plain;
    if (++at % 7 == 0) {
        char *name = mr_arena_alloc(&m->x->arena, 4097);
        for (unsigned i = 0; name && i < 4096; i++)
            name[i] = "/<\"&'>\x01x"[i % 8];
        return name;
    }
    return bad[at % MR_ARRAY_LEN(bad)];
}

static inline void explain_fill_step(struct explain_maker *m, uint32_t rank, uint64_t k, uint64_t *at)
{
    struct mr_explain_step *s = &m->x->step[m->x->steps++];
    bool first = k % 55 == 0, checkpoint = k % 40 == 39;
    double slow = (rank == 5 ? 1.25 : 1) * (first ? 6 : 1);
    double late = explain_random(m) < 0.55 ? (0.6 + explain_random(m)) * slow : 0;
    double storage = late > 0 ? 0.35 * explain_random(m) * slow : 0, decode = 0.12 * late, meta = 0.05 * late;
    *s = (struct mr_explain_step){.rank = rank,
                                  .epoch = (uint32_t)(k / 55),
                                  .step = k,
                                  .batch = k % 55,
                                  .start_ns = *at,
                                  .bytes = 64 * MR_MIB,
                                  .worker = (uint32_t)(k % 4),
                                  .file = (uint32_t)(k % 20),
                                  .accelerator_idle_ns = MR_TIME_UNKNOWN};
    s->stall[MR_STALL_NOT_STARTED] = explain_ns(late);
    s->stall[MR_STALL_STORAGE] = explain_ns(storage);
    s->stall[MR_STALL_DECODE] = explain_ns(decode);
    s->stall[MR_STALL_METADATA] = explain_ns(meta);
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
        s->ns[MR_TIME_STALL] += s->stall[c];
    s->ns[MR_TIME_COMPUTE] = explain_ns(2.2 + 0.05 * explain_random(m));
    s->ns[MR_TIME_BARRIER] = explain_ns(rank == 5 ? 0 : 0.1 * explain_random(m));
    s->ns[MR_TIME_CHECKPOINT] = checkpoint ? explain_ns(4.2) : 0;
    s->ns[MR_TIME_OTHER] = explain_ns(0.03);
    for (unsigned c = 0; c < MR_TIME_CLASS_COUNT; c++)
        *at += s->ns[c];
    s->end_ns = *at;
}

static inline void explain_fill_ranks(struct explain_maker *m)
{
    struct mr_explanation *x = m->x;
    x->ranks = m->ranks;
    x->rank = mr_arena_alloc(&x->arena, m->ranks * sizeof(*x->rank));
    x->step = mr_arena_alloc(&x->arena, m->ranks * m->steps * sizeof(*x->step));
    for (uint32_t r = 0; r < m->ranks; r++) {
        struct mr_explain_rank *k = &x->rank[r];
        uint64_t at = explain_ns(3.1);
        *k = (struct mr_explain_rank){.rank = (int32_t)r,
                                      .host = explain_name(m, r < m->ranks / 2 ? "node01" : "node02"),
                                      .steps = m->steps,
                                      .samples = m->steps * 64,
                                      .read_bytes = m->steps * 64 * MR_MIB,
                                      .written_bytes = 2 * MR_GIB,
                                      .read_calls = m->steps * 256,
                                      .write_calls = 64,
                                      .metadata_calls = m->steps * 8,
                                      .accelerator_idle_ns = MR_TIME_UNKNOWN,
                                      .ended = true};
        k->ns[MR_TIME_STARTUP] = at;
        for (uint64_t s = 0; s < m->steps; s++)
            explain_fill_step(m, r, s, &at);
        for (uint64_t s = 0; s < m->steps; s++) {
            const struct mr_explain_step *e = &x->step[r * m->steps + s];
            for (unsigned c = 0; c < MR_TIME_CLASS_COUNT; c++)
                k->ns[c] += e->ns[c];
            for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
                k->stall[c] += e->stall[c];
        }
        k->end_ns = at;
        k->train_ns = at - k->ns[MR_TIME_STARTUP];
        k->io_ns = k->stall[MR_STALL_STORAGE] * 5;
        k->wait[MR_WAIT_STORAGE] = k->io_ns;
        x->duration_ns = MR_MAX(x->duration_ns, at);
        x->worst_rank = k->ns[MR_TIME_STALL] > x->rank[x->worst_rank].ns[MR_TIME_STALL] ? r : x->worst_rank;
    }
    for (uint32_t r = 0; r < m->ranks; r++) {
        x->train_ns += x->rank[r].train_ns / m->ranks;
        for (unsigned c = 0; c < MR_TIME_CLASS_COUNT; c++)
            x->ns[c] += x->rank[r].ns[c] / m->ranks;
        for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
            x->stall[c] += x->rank[r].stall[c] / m->ranks;
        for (unsigned c = 0; c < MR_WAIT_CLASS_COUNT; c++)
            x->wait[c] += x->rank[r].wait[c] / m->ranks;
    }
}

static inline void explain_fill_workers(struct explain_maker *m)
{
    struct mr_explanation *x = m->x;
    x->workers = (size_t)m->ranks * 4;
    x->worker = mr_arena_alloc(&x->arena, x->workers * sizeof(*x->worker));
    for (size_t i = 0; i < x->workers; i++) {
        struct mr_explain_worker *w = &x->worker[i];
        double whole = (double)x->duration_ns, busy = 0.4 + 0.4 * explain_random(m);
        *w = (struct mr_explain_worker){.rank = (uint32_t)(i / 4),
                                        .pid = 1000 + (uint32_t)i,
                                        .tid = 1000 + (uint32_t)i,
                                        .id = (uint32_t)(i % 4),
                                        .label = explain_name(m, i % 4 == 0   ? "worker 0"
                                                                 : i % 4 == 1 ? "worker 1"
                                                                 : i % 4 == 2 ? "worker 2"
                                                                              : "worker 3"),
                                        .end_ns = x->duration_ns,
                                        .batches = m->steps / 4,
                                        .cpu_ns = (uint64_t)(whole * busy * 0.4)};
        w->ns[MR_STALL_STORAGE] = (uint64_t)(whole * busy * 0.55);
        w->ns[MR_STALL_DECODE] = (uint64_t)(whole * busy * 0.3);
        w->ns[MR_STALL_METADATA] = (uint64_t)(whole * busy * 0.1);
        w->ns[MR_STALL_QUEUE] = (uint64_t)(whole * busy * 0.05);
        w->blocked_ns = (uint64_t)(whole * 0.1);
        w->idle_ns = (uint64_t)(whole * (0.9 - busy));
    }
}

static inline void explain_fill_files(struct explain_maker *m, size_t files)
{
    struct mr_explanation *x = m->x;
    x->files = MR_MIN(files, 200);
    x->all_files = files;
    x->file = mr_arena_alloc(&x->arena, x->files * sizeof(*x->file));
    for (size_t i = 0; i < x->files; i++) {
        bool saved = i % 10 == 9;
        const char *plain = mr_arena_printf(
            &x->arena, saved ? "/lustre/run/checkpoint-%04zu.pt" : "/data/imagenet/train-%05zu-of-01024.tfrecord", i);
        x->file[i] = (struct mr_explain_file){.path = explain_name(m, plain),
                                              .fs = i % 3 ? "lustre" : NULL,
                                              .read_bytes = saved ? 0 : (400 - i) * MR_MIB,
                                              .written_bytes = saved ? 512 * MR_MIB : 0,
                                              .reads = saved ? 0 : 1600 - 4 * i,
                                              .writes = saved ? 64 : 0,
                                              .opens = 8,
                                              .calls = 1700,
                                              .dur_ns = explain_ns(4 - 0.01 * (double)i),
                                              .size = 140 * MR_MIB,
                                              .unique_bytes = i % 4 ? 140 * MR_MIB : MR_TIME_UNKNOWN,
                                              .ranks = MR_MIN(m->ranks, 8),
                                              .pattern = (uint8_t)(saved   ? MR_PATTERN_STREAMING
                                                                   : i % 2 ? MR_PATTERN_SHUFFLED_RECORDS
                                                                           : MR_PATTERN_WHOLE_FILE)};
    }
    x->groups = 3;
    x->group = mr_arena_alloc(&x->arena, x->groups * sizeof(*x->group));
    for (size_t i = 0; i < x->groups; i++)
        x->group[i] =
            (struct mr_explain_group){.name = explain_name(m, i == 0   ? "/data/imagenet/*.tfrecord"
                                                              : i == 1 ? "/lustre/run/*.pt"
                                                                       : "/opt/conda/lib/*.py"),
                                      .files = i == 0   ? 1024
                                               : i == 1 ? 20
                                                        : 4200,
                                      .read_bytes = i == 1 ? 0 : (60u >> (4 * i)) * MR_GIB,
                                      .written_bytes = i == 1 ? 16 * MR_GIB : 0,
                                      .reads = 235910 >> i,
                                      .opens = 8192,
                                      .dur_ns = explain_ns(300.0 / (double)(1 + 9 * i)),
                                      .unique_bytes = i == 1 ? MR_TIME_UNKNOWN : 40 * MR_GIB,
                                      .pattern = (uint8_t)(i == 0 ? MR_PATTERN_SHUFFLED_RECORDS : MR_PATTERN_STREAMING),
                                      .checkpoint = i == 1,
                                      .data = i == 0};
    x->hits = 24;
    x->hit_ratio = mr_arena_alloc(&x->arena, x->hits * sizeof(double));
    x->hit_ram_bytes = mr_arena_alloc(&x->arena, x->hits * sizeof(double));
    for (size_t i = 0; i < x->hits; i++) {
        x->hit_ram_bytes[i] = exp2(28 + 0.4 * (double)i);
        x->hit_ratio[i] = fmin(0.66, 0.66 * x->hit_ram_bytes[i] / (40.0 * 0x1p30));
    }
}

static inline void explain_fill_timeline(struct explain_maker *m)
{
    struct mr_explanation *x = m->x;
    struct mr_explain_timeline *t = &x->timeline;
    t->bins = 1000;
    t->bin_ns = x->duration_ns / t->bins + 1;
    double **all[] = {&t->read_bytes, &t->written_bytes, &t->in_flight, &t->stall,
                      &t->compute,    &t->checkpoint,    &t->ready};
    for (size_t i = 0; i < MR_ARRAY_LEN(all); i++)
        *all[i] = mr_arena_alloc(&x->arena, t->bins * sizeof(double));
    double drift = 0.5;
    for (uint32_t i = 0; i < t->bins; i++) {
        bool saves = i % 360 > 345, first = i % 500 < 30;
        drift = fmin(1, fmax(0.05, drift + 0.2 * (explain_random(m) - 0.5)));
        t->read_bytes[i] = saves ? 0 : (first ? 1.4 : drift) * 353e6 * (double)t->bin_ns / 1e9;
        t->written_bytes[i] = saves ? 900e6 * (double)t->bin_ns / 1e9 : 0;
        t->in_flight[i] = saves ? 1 : 1 + 4 * drift;
        t->stall[i] = saves ? 0 : first ? 0.9 : 0.6 * (1 - drift);
        t->checkpoint[i] = saves;
        t->compute[i] = 1 - t->stall[i] - t->checkpoint[i];
        t->ready[i] = first ? 0 : 2 * drift;
    }
}

static inline void explain_fill_heat(struct explain_maker *m)
{
    struct mr_explanation *x = m->x;
    struct mr_explain_heat *h = &x->heat;
    h->rows = MR_MIN(m->ranks, 256);
    h->ranks_per_row = (m->ranks + h->rows - 1) / h->rows;
    h->columns = 512;
    h->column_ns = x->duration_ns / h->columns + 1;
    size_t cells = (size_t)h->rows * h->columns;
    double **all[] = {&h->read_bytes, &h->written_bytes, &h->stall};
    for (size_t i = 0; i < MR_ARRAY_LEN(all); i++)
        *all[i] = mr_arena_alloc(&x->arena, cells * sizeof(double));
    for (size_t i = 0; i < cells; i++) {
        size_t row = i / h->columns, column = i % h->columns;
        bool saves = column % 180 > 172;
        h->read_bytes[i] = saves ? 0 : explain_random(m) * 40e6 * (row == 5 ? 0.4 : 1);
        h->written_bytes[i] = saves ? 80e6 * (0.7 + 0.3 * explain_random(m)) : 0;
        h->stall[i] = saves ? 0
                            : fmin(1, (row == 5 ? 1.5 : 0.9) * explain_random(m) * explain_random(m) +
                                          (column % 250 < 12 ? 0.6 : 0));
    }
}

static inline void explain_fill_access(struct explain_maker *m)
{
    struct mr_explanation *x = m->x;
    x->accesses = 4000;
    x->access = mr_arena_alloc(&x->arena, x->accesses * sizeof(*x->access));
    for (size_t i = 0; i < x->accesses; i++) {
        uint32_t file = (uint32_t)(i % 6 == 5 ? 9 : i % 6);
        double at = (double)i / (double)x->accesses, in_pass = fmod(at * (1 + file), 1);
        bool streams = file % 2 == 0 || file == 9;
        x->access[i] =
            (struct mr_explain_access){.at_ns = (uint64_t)(at * (double)x->duration_ns),
                                       .offset = (uint64_t)((streams ? in_pass : explain_random(m)) * 140 * 0x1p20),
                                       .bytes = 256 * MR_KIB,
                                       .file = MR_MIN(file, (uint32_t)x->files - 1),
                                       .rank = (uint32_t)(i % m->ranks),
                                       .write = file == 9};
    }
}

static inline void explain_fill_sizes(struct explain_maker *m)
{
    struct mr_explain_sizes *r = &m->x->read_sizes, *w = &m->x->write_sizes;
    for (unsigned k = 9; k < 20; k++) {
        r->ops[k] = k == 18 ? 231000 : 300 * (uint64_t)(k - 8);
        r->bytes[k] = r->ops[k] << k;
        r->dur_ns[k] = r->ops[k] * explain_ns(1e-4 * exp2((k - 9.0) / 4));
    }
    r->zero = 8192;
    r->p50_ns = explain_ns(0.00021);
    r->p95_ns = explain_ns(0.0018);
    r->p99_ns = explain_ns(0.0039);
    r->max_ns = explain_ns(0.41);
    r->top = 2;
    r->top_size[0] = 256 * MR_KIB;
    r->top_ops[0] = 231000;
    r->top_size[1] = 32768;
    r->top_ops[1] = 1500;
    w->ops[23] = 1280;
    w->bytes[23] = 1280ull << 23;
    w->dur_ns[23] = explain_ns(14);
    w->p50_ns = w->p95_ns = w->p99_ns = w->max_ns = explain_ns(0.011);
}

static inline void explain_fill_checkpoints(struct explain_maker *m)
{
    struct mr_explanation *x = m->x;
    size_t each = m->steps / 40;
    x->checkpoint = mr_arena_alloc(&x->arena, (each * m->ranks + 1) * sizeof(*x->checkpoint));
    for (size_t i = 0; i < x->steps; i++) {
        const struct mr_explain_step *s = &x->step[i];
        if (!s->ns[MR_TIME_CHECKPOINT] || x->checkpoints >= each * m->ranks)
            continue;
        uint64_t end = s->end_ns - s->ns[MR_TIME_OTHER], start = end - s->ns[MR_TIME_CHECKPOINT];
        bool drains = x->checkpoints % 2 == 0;
        x->checkpoint[x->checkpoints++] =
            (struct mr_explain_checkpoint){.rank = s->rank,
                                           .start_ns = start,
                                           .end_ns = end,
                                           .write_ns = explain_ns(2.9),
                                           .fsync_ns = explain_ns(1.1),
                                           .drain_start_ns = drains ? end : MR_TIME_UNKNOWN,
                                           .drain_end_ns = drains ? end + explain_ns(9) : MR_TIME_UNKNOWN,
                                           .bytes = MR_GIB,
                                           .path = explain_name(m, "/lustre/run/checkpoint-0039.pt"),
                                           .fs = "lustre"};
    }
}

static inline void explain_fill_culprits(struct explain_maker *m)
{
    struct mr_explanation *x = m->x;
    x->culprits = MR_MIN(m->ranks, 2);
    x->culprit = mr_arena_alloc(&x->arena, 2 * sizeof(*x->culprit));
    for (uint32_t i = 0; i < x->culprits; i++) {
        x->culprit[i] = (struct mr_explain_culprit){.rank = i ? 2 : 5,
                                                    .steps = i ? 12 : 71,
                                                    .waited_ns = explain_ns(i ? 3 : 61),
                                                    .lost_ns = explain_ns(i ? 0.5 : 9.4)};
        x->culprit[i].cause[MR_TIME_STALL] = explain_ns(i ? 1 : 40);
        x->culprit[i].stall[MR_STALL_NOT_STARTED] = explain_ns(i ? 1 : 40);
    }
}

static inline void explain_fill_snippets(struct explain_maker *m)
{
    static const char *const names[] = {"forward", "backward", "augment", "loss.item"};
    struct mr_explanation *x = m->x;
    x->snippets = MR_ARRAY_LEN(names);
    x->snippet = mr_arena_alloc(&x->arena, x->snippets * sizeof(*x->snippet));
    x->snippet_spans = 400;
    x->snippet_span = mr_arena_alloc(&x->arena, x->snippet_spans * sizeof(*x->snippet_span));
    for (size_t i = 0; i < x->snippets; i++) {
        double base = 0.8 / (double)(1 + 3 * i);
        x->snippet[i] = (struct mr_explain_snippet){.category = "user",
                                                    .name = explain_name(m, names[i]),
                                                    .count = 880,
                                                    .sum_ns = explain_ns(880 * base),
                                                    .min_ns = explain_ns(base * 0.7),
                                                    .p25_ns = explain_ns(base * 0.9),
                                                    .median_ns = explain_ns(base),
                                                    .p75_ns = explain_ns(base * 1.15),
                                                    .p99_ns = explain_ns(base * 2),
                                                    .max_ns = explain_ns(base * 5)};
    }
    for (size_t i = 0; i < x->snippet_spans; i++) {
        size_t thread = i / 100, k = i % 100;
        uint64_t start = x->duration_ns / 100 * k;
        x->snippet_span[i] = (struct mr_explain_snippet_span){.snippet = (uint32_t)(k % 4),
                                                              .pid = 1000 + (uint32_t)(thread / 2),
                                                              .tid = 1000 + (uint32_t)thread,
                                                              .start_ns = start,
                                                              .end_ns = start + x->duration_ns / 150};
    }
}

static inline void explain_fill_lanes(struct explain_maker *m)
{
    static const char *const names[] = {"main", "worker 0", "worker 1", "worker 2", "worker 3"};
    struct mr_explanation *x = m->x;
    struct mr_explain_lanes *l = &x->lanes;
    *l = (struct mr_explain_lanes){
        .rank = 5, .step = 61, .start_ns = explain_ns(200), .end_ns = explain_ns(206), .lanes = 5};
    l->name = mr_arena_alloc(&x->arena, l->lanes * sizeof(*l->name));
    l->span = mr_arena_alloc(&x->arena, 64 * sizeof(*l->span));
    for (uint32_t i = 0; i < 5; i++) {
        l->name[i] = explain_name(m, names[i]);
        uint64_t at = l->start_ns + explain_ns(0.3 * i);
        static const uint8_t order[] = {MR_STALL_METADATA, MR_STALL_STORAGE, MR_STALL_DECODE, MR_STALL_QUEUE};
        static const double lasts[] = {0.1, 1.1, 0.7, 0.15};
        for (uint32_t k = 0; i > 0 && k < 8; k++) {
            uint64_t end = at + explain_ns(lasts[k % 4]);
            l->span[l->spans++] = (struct mr_explain_lane_span){
                .start_ns = at, .end_ns = end, .batch = 60 + i + 4 * (k / 4), .lane = i, .kind = order[k % 4]};
            at = end;
        }
    }
    l->span[l->spans++] = (struct mr_explain_lane_span){
        .start_ns = l->start_ns, .end_ns = l->start_ns + explain_ns(3.4), .batch = 61, .kind = MR_STALL_NOT_STARTED};
    l->span[l->spans++] = (struct mr_explain_lane_span){.start_ns = l->start_ns + explain_ns(3.4),
                                                        .end_ns = l->end_ns,
                                                        .batch = 61,
                                                        .kind = MR_STALL_CAUSE_COUNT + MR_TIME_COMPUTE};
}

static inline void explain_fill_facts(struct explain_maker *m)
{
    struct mr_explain_facts *f = &m->x->facts;
    double *from = &f->ranks, *to = &f->accelerator_utilisation;
    for (double *p = from; p <= to; p++)
        *p = NAN;
    f->program = explain_name(m, "python train.py --lr 0.1");
    f->framework = "pytorch";
    f->device = "lustre";
    f->ranks = m->ranks;
    f->has_steps = m->steps > 0;
}

static inline void explain_fill_known_facts(struct explain_maker *m)
{
    struct mr_explain_facts *f = &m->x->facts;
    f->nodes = 2;
    f->cpus_per_node = 64;
    f->cpus_per_rank = 16;
    f->memory_bytes = 512.0 * 0x1p30;
    f->workers = 4;
    f->prefetch = 1;
    f->batch = 64;
    f->sample_bytes = 0x1p20;
    f->batch_load_s = 9.2;
    f->batch_load_p99_s = 24;
    f->compute_s = 2.22;
    f->step_s = 3.71;
    f->step_p99_s = 6.2;
    f->stall_p50_s = 0.9;
    f->stall_p99_s = 3.4;
    f->stall_max_s = 9.8;
    f->in_flight = 3.1;
    f->epochs = 2;
    f->read_bytes = 60.54e9;
    f->dataset_bytes = 40e9;
    f->busy_bytes_per_s = 353e6;
    f->wall_bytes_per_s = 134e6;
    f->au = 0.621;
    f->au_low = 0.612;
    f->au_high = 0.63;
    f->au_cold = 0.589;
    f->ceiling = 1.54;
    f->headroom = 0.66;
    f->samples_per_s = 999;
    f->reread_ratio = 1.51;
    f->cold_fraction = 0.99;
    f->shuffled = f->has_workers = f->checkpoints = true;
}

static inline void explain_fill_advice(struct explain_maker *m, bool healthy)
{
    struct mr_explanation *x = m->x;
    double stall = (double)x->ns[MR_TIME_STALL] / 1e9, whole = (double)x->duration_ns / 1e9;
    x->verdict = (struct mr_verdict){.verdict = healthy ? MR_VERDICT_HEALTHY : MR_VERDICT_INPUT,
                                     .cause = MR_STALL_NOT_STARTED,
                                     .stall_s = stall,
                                     .stall_share = stall / whole};
    x->verdict.line[0] = healthy ? "Healthy. Data kept up with the accelerators."
                                 : "Input-bound. Accelerators waited for data 31 % of the time (140 s of 451 s).";
    if (healthy)
        return;
    x->verdict.line[1] = "Storage was 38 % busy: batches were requested too late, not read too slowly.";
    x->verdict.line[2] = "Best fix: prefetch 1 -> 8, readers 4 -> 12; predicted 451 s -> 338 s (-25 % +/- 5)";
    x->findings = 3;
    x->finding = mr_arena_alloc(&x->arena, 3 * sizeof(*x->finding));
    x->finding[0] =
        (struct mr_finding){.id = "PF1",
                            .severity = MR_SEVERITY_CRITICAL,
                            .saves_s = 82,
                            .saves_low_s = 60,
                            .saves_high_s = 101,
                            .confidence = 0.9,
                            .title = "look-ahead of 1 batch covers 3.7 s; loading a batch takes up to 24 s",
                            .evidence = "prefetch              1 batch\ntime of a step        2.2 s\nbatch load p99    "
                                        "    24 s\nreaders idle          38 % of the time",
                            .formula = "needed depth = ceil(24 s / 2.2 s) + 1 = 12\nsaved = stall 'not started' = 82 s",
                            .fix = "ask for 8 batches ahead",
                            .command = "millrace sim --from runs/imagenet-0714 reader.prefetch_size=8"};
    x->finding[0].snippet[0] = "reader:\n  prefetch_size: 8\n  read_threads: 12";
    x->finding[0].snippet[1] = "DataLoader(dataset, num_workers=12, prefetch_factor=8)";
    x->finding[0].snippet[2] = "dataset.prefetch(8)";
    x->finding[1] =
        (struct mr_finding){.id = "TH1",
                            .severity = MR_SEVERITY_MAJOR,
                            .saves_s = 31,
                            .saves_low_s = NAN,
                            .saves_high_s = NAN,
                            .confidence = 0.6,
                            .title = "3.1 reads in flight; this file system peaks at 12",
                            .evidence = explain_name(m, "busiest: /data/imagenet/train-00000-of-01024.tfrecord"),
                            .fix = "read with 12 threads"};
    x->finding[2] = (struct mr_finding){.id = "CK1",
                                        .severity = MR_SEVERITY_MINOR,
                                        .saves_s = NAN,
                                        .saves_low_s = NAN,
                                        .saves_high_s = NAN,
                                        .confidence = 0.5,
                                        .title = "17.6 s blocked by checkpoints on a parallel file system",
                                        .evidence = "4.2 s each",
                                        .fix = "write to local storage, drain in the background",
                                        .potential = true};
    x->silences = 1;
    x->silence = mr_arena_alloc(&x->arena, sizeof(*x->silence));
    x->silence[0] = (struct mr_silence){"DC1", "decode is 9 % of the stall, below 20 %"};
}

static inline void explain_fill_trust(struct explain_maker *m)
{
    struct mr_explain_trust *t = &m->x->trust;
    *t = (struct mr_explain_trust){.events = 1281167,
                                   .recorded = 1281167,
                                   .clock_offset_s = 40e-6,
                                   .clock_residual_s = NAN,
                                   .overhead_share = 0.006};
    t->notes = 2;
    t->note = mr_arena_alloc(&m->x->arena, 2 * sizeof(*t->note));
    t->note[0] = (struct mr_explain_note){explain_name(m, "CPU time of workers was sampled, not counted"), false};
    t->note[1] = (struct mr_explain_note){"2 processes were not traced", true};
}

/* Never NULL; free with mr_explanation_free. */
static inline struct mr_explanation *explain_make(enum explain_kind kind)
{
    struct mr_explanation *x = calloc(1, sizeof(*x));
    struct explain_maker m = {
        .x = x, .seed = 88172645463325252ull, .hostile = kind == EXPLAIN_HOSTILE || kind == EXPLAIN_WORST};
    if (!x)
        abort();
    static const struct {
        uint32_t ranks;
        uint64_t steps;
    } size[] = {[EXPLAIN_TYPICAL] = {8, 110}, [EXPLAIN_TINY] = {1, 2},      [EXPLAIN_WIDE] = {1024, 100},
                [EXPLAIN_LONG] = {1, 100000}, [EXPLAIN_HOSTILE] = {8, 110}, [EXPLAIN_HEALTHY] = {8, 110},
                [EXPLAIN_WORST] = {256, 1200}};
    m.ranks = size[kind].ranks;
    m.steps = size[kind].steps;
    x->source = explain_name(&m, "runs/imagenet-0714");
    x->start_ns = 1752480000000000000ull;
    explain_fill_ranks(&m);
    explain_fill_facts(&m);
    explain_fill_advice(&m, kind == EXPLAIN_HEALTHY);
    explain_fill_trust(&m);
    if (kind == EXPLAIN_TINY) {
        x->verdict = (struct mr_verdict){.verdict = MR_VERDICT_INCOMPLETE,
                                         .missing = "two steps are too few to judge",
                                         .stall_share = NAN,
                                         .stall_s = NAN};
        x->verdict.line[0] = "Incomplete: two steps are too few to judge.";
        x->findings = 0;
        x->rank[0].rank = -1;
        x->trust.cut = true;
        return x;
    }
    explain_fill_known_facts(&m);
    explain_fill_workers(&m);
    explain_fill_files(&m, kind == EXPLAIN_TYPICAL ? 40 : 1000000);
    explain_fill_timeline(&m);
    explain_fill_heat(&m);
    explain_fill_access(&m);
    explain_fill_sizes(&m);
    explain_fill_checkpoints(&m);
    explain_fill_culprits(&m);
    explain_fill_snippets(&m);
    explain_fill_lanes(&m);
    return x;
}

#endif
