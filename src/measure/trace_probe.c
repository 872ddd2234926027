/* See trace_probe.h. Asked are pieces of the data files that the trace names, as large as the program's reads or whole
 * files: half of them by one thread, the other half by as many as the program would need. What one thread gets now must
 * be near to what the program got; else the storage answers from somewhere else now, and nothing is kept. */
#include "measure/trace_probe.h"
#include "advise/explain_open.h"
#include "base/common.h"
#include "base/log.h"
#include "base/rng.h"
#include "event/mrt_file.h"
#include "event/storage_probe.h"
#include "probe/places_probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define EVENTS_MOST 5000000ull
#define PIECES_MOST 2048u
#define PIECE_MOST (4u << 20)
#define PIECES_LEAST 16u
#define STARVED 0.05 /* of training: less is not worth it */
#define EACH_S 0.7   /* of a measurement */
#define STREAMS_MOST 16.0
#define LIKE 3.0 /* times: one stream now, and the program then */

static double storage_s(const struct mr_explanation *x)
{
    return (double)(x->stall[MR_STALL_STORAGE] + x->stall[MR_STALL_METADATA]);
}

/* One reader, which waited for storage. */
static bool is_worth_asking(const struct mr_explanation *x)
{
    const struct mr_explain_facts *f = &x->facts;
    double stall = (double)x->ns[MR_TIME_STALL];
    return f->has_steps && !f->own_run && !f->team && x->ranks == 1 && !(f->workers > 1.5) && x->train_ns &&
           stall >= STARVED * (double)x->train_ns && storage_s(x) >= 0.5 * stall && f->busy_bytes_per_s > 0 &&
           isnan(f->streams[0]) && f->compute_s > 0 && f->batch_load_s > 0;
}

/* Pieces of a file: all of a small one, some of a large one, as large as its reads. */
static size_t cut_file(const struct mr_explain_file *file, size_t share, uint64_t seed, struct mr_place_piece *out,
                       size_t room)
{
    struct stat st;
    uint64_t each = file->reads ? file->read_bytes / file->reads : 0, size = file->size;
    bool whole = file->pattern == MR_PATTERN_WHOLE_FILE;
    if (!file->path || file->own_log || !file->read_bytes || stat(file->path, &st) || !S_ISREG(st.st_mode))
        return 0;
    size = MR_MIN((uint64_t)st.st_size, MR_MAX(size, (uint64_t)1));
    if (whole && size <= PIECE_MOST)
        each = size;
    each = MR_MIN(MR_MAX(each, (uint64_t)4096), (uint64_t)PIECE_MOST);
    size_t n = MR_MIN(MR_MIN(share, room), (size_t)((size + each - 1) / each));
    for (size_t i = 0; i < n; i++)
        out[i] = (struct mr_place_piece){file->path, (i * (size / each) / n) * each, each};
    for (size_t i = n; i > 1; i--) {
        size_t k = (size_t)mr_rng_below(mr_rng_at(seed, MR_RNG_TEST, i), i);
        struct mr_place_piece last = out[i - 1];
        out[i - 1] = out[k];
        out[k] = last;
    }
    return n;
}

static size_t cut_files(const struct mr_explanation *x, struct mr_place_piece *out)
{
    size_t n = 0, data = 0;
    for (size_t i = 0; i < x->files; i++)
        data += x->file[i].read_bytes > 0 && !x->file[i].own_log;
    for (size_t i = 0; i < x->files && data; i++)
        n += cut_file(&x->file[i], MR_MAX(PIECES_MOST / data, (size_t)1), i + 1, out + n, PIECES_MOST - n);
    return n;
}

static void ask(const struct mr_explanation *x, const atomic_bool *stop, struct mr_storage_probe *out)
{
    const struct mr_explain_facts *f = &x->facts;
    struct mr_place_piece *piece = calloc(PIECES_MOST, sizeof(*piece));
    size_t n = piece ? cut_files(x, piece) : 0, half = n / 2;
    double wanted = fmin(fmax(2, ceil(1.1 * f->batch_load_s / f->compute_s)), STREAMS_MOST);
    *out = (struct mr_storage_probe){.streams = {1, (uint32_t)fmin(wanted, fmax(2, (double)half / 4))}};
    for (unsigned i = 0; i < 2 && n >= PIECES_LEAST; i++) /* files that follow each other are in both halves */
        out->bytes_per_s[i] = mr_probe_pieces(piece + i * half, half, out->streams[i], EACH_S, stop);
    free(piece);
}

static int keep(const char *trace, const struct mr_storage_probe *p, struct mr_error *err)
{
    struct mr_mrt_writer *w = NULL;
    uint8_t block[MR_STORAGE_PROBE_BLOCK];
    int rc = mr_mrt_writer_open(trace, true, &w, err);
    if (rc < 0)
        return rc;
    rc = mr_mrt_writer_append(w, block, mr_storage_probe_block(0, p, block), err);
    int end = mr_mrt_writer_close(w, rc ? NULL : err);
    return rc ? rc : end;
}

void mr_trace_probe(const char *trace, unsigned long long events, const atomic_bool *stop)
{
    const struct mr_explain_how how = {.explain = {.rank = -1, .step_from = -1, .stop = stop}};
    struct mr_explanation *x = NULL;
    struct mr_storage_probe p = {.streams = {0}};
    struct mr_error err = {0};
    if (!events || events > EVENTS_MOST || mr_explain_open(&trace, 1, &how, &x, &err) < 0)
        return;
    double was = x->facts.busy_bytes_per_s;
    if (is_worth_asking(x))
        ask(x, stop, &p);
    mr_explanation_free(x);
    if (!(p.bytes_per_s[0] > was / LIKE && p.bytes_per_s[0] < was * LIKE && p.bytes_per_s[1] > 0))
        return;
    if (keep(trace, &p, &err) < 0)
        mr_log(MR_LOG_WARN, "what the storage gives to more readers is not in the trace: %s", err.message);
    else
        mr_log(MR_LOG_NOTE, "the storage gave %.1f MiB/s to one reader, %.1f MiB/s to %u", p.bytes_per_s[0] / MR_MIB,
               p.bytes_per_s[1] / MR_MIB, p.streams[1]);
}
