/* One file of a generated set: see gen_file.h. */
#include "dataset/gen_file.h"
#include "base/clock.h"
#include "base/common.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What limits is told from the times of large pieces and of every 64th small one: three clock readings per tiny sample
 * would cost as much as the sample. */
#define TIMED_BYTES 65536u
#define TIMED_EVERY 64u

int mr_gen_scratch_init(struct mr_gen_scratch *t, struct mr_error *err)
{
    *t = (struct mr_gen_scratch){.scale = 1};
    t->piece = aligned_alloc(4096, MR_GEN_PIECE);
    return t->piece ? 0 : mr_error_set(err, -ENOMEM, "cannot get a buffer of %u bytes", MR_GEN_PIECE);
}

static void forget_fields(struct mr_gen_scratch *t)
{
    for (unsigned k = 0; k < t->n_fields; k++) {
        mr_sample_columns_done(&t->field[k]);
        free(t->own[k].layout.data);
    }
    free(t->field);
    free(t->own);
    t->field = NULL;
    t->own = NULL;
    t->n_fields = 0;
}

void mr_gen_scratch_done(struct mr_gen_scratch *t)
{
    mr_sample_columns_done(&t->columns);
    forget_fields(t);
    free(t->piece);
    t->piece = NULL;
}

double mr_gen_scale(const struct mr_gen_plan *p)
{
    struct mr_sample_info first;
    if (p->n_fields)
        return 1;
    if (mr_gen_plan_sample(p, 0, &first, NULL) < 0 || !first.bytes || !first.file_bytes)
        return 1;
    return (double)first.file_bytes / (double)first.bytes;
}

static int write_sample(const struct mr_gen_plan *p, struct mr_writer *w, const struct mr_sample_info *info,
                        struct mr_gen_scratch *t, const atomic_bool *stop, struct mr_progress *progress,
                        struct mr_error *err)
{
    int r = p->format->sample_begin(w, info, err);
    for (uint64_t at = 0; r >= 0 && at < info->bytes;) {
        size_t n = (size_t)MR_MIN(info->bytes - at, MR_GEN_PIECE);
        if (stop && atomic_load_explicit(stop, memory_order_relaxed))
            return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted");
        void *room = p->format->sample_room ? p->format->sample_room(w, n) : NULL, *to = room ? room : t->piece;
        bool timed = n >= TIMED_BYTES || info->id % TIMED_EVERY == 0;
        uint64_t t0 = timed ? mr_now_ns() : 0;
        p->format->synth(&p->writer, &p->content, info, at, to, n);
        uint64_t t1 = timed ? mr_now_ns() : 0;
        r = p->format->sample_data(w, to, n, err);
        t->synth_ns += t1 - t0;
        t->write_ns += timed ? mr_now_ns() - t1 : 0;
        at += n;
        if (progress && n == MR_GEN_PIECE)
            mr_progress_add(progress, 0, (uint64_t)((double)n * t->scale));
    }
    struct mr_sample_ref ref = {0};
    if (r >= 0)
        r = p->format->sample_end(w, &ref, err);
    ref.label = MR_LABEL_NONE; /* drawn labels are a rule of the manifest: keeping them would cost 4 bytes per sample */
    return r < 0 ? r : mr_sample_columns_add(&t->columns, &ref, err);
}

/* Bytes of the samples of a file that write_sample has not yet told the progress display. */
static uint64_t untold(uint64_t bytes)
{
    return bytes % MR_GEN_PIECE;
}

/* Samples [id, id + n) go to the writer, which is used up. */
static int write_samples(const struct mr_gen_plan *p, struct mr_writer *w, uint64_t id, uint64_t n,
                         struct mr_gen_scratch *t, const atomic_bool *stop, struct mr_progress *progress,
                         struct mr_manifest_file *out, struct mr_error *err)
{
    uint64_t tell = 0;
    int r = 0;
    mr_sample_columns_done(&t->columns);
    w->ops = p->format;
    struct mr_sample_info info = {0};
    for (uint64_t j = 0; r >= 0 && j < n; j++) {
        r = mr_gen_plan_sample(p, id + j, &info, err);
        if (r >= 0)
            r = write_sample(p, w, &info, t, stop, progress, err);
        tell += untold(info.bytes);
        if (progress && tell >= 16 * MR_GEN_PIECE) {
            mr_progress_add(progress, 0, (uint64_t)((double)tell * t->scale));
            tell = 0;
        }
    }
    if (r < 0) {
        p->format->writer_abort(w);
        return r;
    }
    struct mr_manifest_file f = {0};
    uint64_t t0 = mr_now_ns();
    r = p->format->writer_close(w, &f.layout, &f.bytes, err);
    t->write_ns += mr_now_ns() - t0;
    if (r < 0)
        return r;
    if (progress)
        mr_progress_add(progress, 0, (uint64_t)((double)tell * t->scale));
    mr_sample_columns_finish(&t->columns, f.column);
    *out = f;
    return 0;
}

/* ---- several fields ---- */

static int reserve_fields(struct mr_gen_scratch *t, unsigned n, struct mr_error *err)
{
    forget_fields(t);
    t->field = calloc(n, sizeof(*t->field));
    t->own = calloc(n, sizeof(*t->own));
    t->n_fields = t->field && t->own ? n : 0;
    return t->n_fields ? 0 : mr_error_set(err, -ENOMEM, "cannot write %u fields", n);
}

static int write_value(const struct mr_gen_plan *p, const struct mr_field_ops *ops, struct mr_writer *w, unsigned k,
                       uint64_t id, struct mr_gen_scratch *t, const atomic_bool *stop, struct mr_error *err)
{
    struct mr_sample_info info;
    struct mr_sample_ref ref = {0};
    if (p->field[k].storage == MR_FIELD_LABEL)
        return 0;
    int r = mr_gen_plan_field_sample(p, k, id, &info, err);
    if (r >= 0)
        r = ops->begin(w, k, &info, err);
    for (uint64_t at = 0; r >= 0 && at < info.bytes;) {
        size_t n = (size_t)MR_MIN(info.bytes - at, MR_GEN_PIECE);
        if (stop && atomic_load_explicit(stop, memory_order_relaxed))
            return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted");
        uint64_t t0 = mr_now_ns();
        p->format->synth(&p->writer, &p->field[k].content, &info, at, t->piece, n);
        uint64_t t1 = mr_now_ns();
        r = ops->data(w, t->piece, n, err);
        t->synth_ns += t1 - t0;
        t->write_ns += mr_now_ns() - t1;
        at += n;
    }
    if (r >= 0)
        r = ops->end(w, k, &ref, err);
    ref.label = MR_LABEL_NONE;
    return r < 0 ? r : mr_sample_columns_add(&t->field[k], &ref, err);
}

/* All values in the order of the format: by_field, or sample by sample. */
static int write_values(const struct mr_gen_plan *p, const struct mr_field_ops *ops, struct mr_writer *w, uint64_t id,
                        struct mr_gen_scratch *t, const atomic_bool *stop, struct mr_progress *progress,
                        struct mr_error *err)
{
    uint64_t samples = p->writer.samples, tell = 0;
    unsigned outer = ops->by_field ? p->n_fields : 1, inner = ops->by_field ? 1 : p->n_fields;
    int r = 0;
    for (unsigned f = 0; f < outer && r >= 0; f++)
        for (uint64_t j = 0; j < samples && r >= 0; j++)
            for (unsigned k = 0; k < inner && r >= 0; k++) {
                r = write_value(p, ops, w, f + k, id + j, t, stop, err);
                tell += p->field[f + k].bytes;
                if (progress && tell >= 16 * MR_GEN_PIECE) {
                    mr_progress_add(progress, 0, (uint64_t)((double)tell * t->scale));
                    tell = 0;
                }
            }
    if (progress)
        mr_progress_add(progress, 0, (uint64_t)((double)tell * t->scale));
    return r;
}

/* Of the written file: the primary field's columns and layout, and those of the fields with columns of their own. */
static void describe_fields(const struct mr_gen_plan *p, struct mr_gen_scratch *t, struct mr_layout *layout,
                            struct mr_manifest_file *out)
{
    struct mr_column column[MR_SC_COUNT];
    mr_sample_columns_finish(&t->field[0], out->column);
    out->layout = layout[0];
    out->own = t->own;
    for (unsigned k = 1; k < p->n_fields; k++) {
        struct mr_field f = mr_gen_plan_field(p, k);
        if (!mr_field_is_own(&f, k))
            continue;
        struct mr_field_values *v = &t->own[out->n_own++];
        mr_sample_columns_finish(&t->field[k], column);
        v->layout = layout[k];
        memcpy(v->column, column, sizeof v->column);
    }
}

static int write_fields(const struct mr_gen_plan *p, struct mr_store *s, const char *path, uint64_t file,
                        struct mr_gen_scratch *t, const atomic_bool *stop, struct mr_progress *progress,
                        struct mr_manifest_file *out, struct mr_error *err)
{
    const struct mr_field_ops *ops = mr_format_fields(p->format);
    struct mr_field field[MR_GEN_FIELDS_MAX];
    struct mr_layout layout[MR_GEN_FIELDS_MAX] = {{0}};
    struct mr_manifest_file f = {0};
    struct mr_writer *w = NULL;
    for (unsigned k = 0; k < p->n_fields; k++)
        field[k] = mr_gen_plan_field(p, k);
    int r = reserve_fields(t, p->n_fields, err);
    if (r >= 0)
        r = ops->writer_open(s, path, &p->writer, field, p->n_fields, &w, err);
    if (r < 0)
        return r;
    r = write_values(p, ops, w, file * p->writer.samples, t, stop, progress, err);
    if (r < 0) {
        ops->writer_abort(w);
        return r;
    }
    uint64_t t0 = mr_now_ns();
    r = ops->writer_close(w, layout, &f.bytes, err);
    t->write_ns += mr_now_ns() - t0;
    if (r < 0)
        return r;
    describe_fields(p, t, layout, &f);
    *out = f;
    return 0;
}

int mr_gen_write_file(const struct mr_gen_plan *p, struct mr_store *s, const char *path, uint64_t file,
                      struct mr_gen_scratch *t, const atomic_bool *stop, struct mr_progress *progress,
                      struct mr_manifest_file *out, struct mr_error *err)
{
    struct mr_writer *w = NULL;
    uint64_t k = p->writer.samples;
    struct mr_writer_spec spec = p->writer;
    if (p->n_fields)
        return write_fields(p, s, path, file, t, stop, progress, out, err);
    spec.fixed_size |= p->size_per_file;
    int r = p->format->writer_open(s, path, &spec, &w, err);
    return r < 0 ? r : write_samples(p, w, file * k, k, t, stop, progress, out, err);
}

int mr_gen_write_part(const struct mr_gen_plan *p, struct mr_store *s, const char *path, uint64_t file, uint64_t part,
                      struct mr_gen_scratch *t, const atomic_bool *stop, struct mr_progress *progress,
                      struct mr_manifest_file *out, struct mr_error *err)
{
    struct mr_writer *w = NULL;
    uint64_t k = p->writer.samples, first = part * p->part_samples, n = MR_MIN(p->part_samples, k - first);
    struct mr_sample_info one;
    int r = mr_gen_plan_sample(p, file * k + first, &one, err);
    if (r >= 0)
        r = p->format->part_open(s, path, &p->writer, &one, first, n, &w, err);
    return r < 0 ? r : write_samples(p, w, file * k + first, n, t, stop, progress, out, err);
}

void mr_gen_path(const char *folder, const char *name, char *out)
{
    snprintf(out, 2 * MR_NAME_MAX, "%s/%s", folder, name);
}

void mr_gen_temporary_path(const char *folder, const char *name, char *out)
{
    const char *slash = strrchr(name, '/');
    int dir = slash ? (int)(slash - name) + 1 : 0;
    snprintf(out, 2 * MR_NAME_MAX, "%s/%.*s.%s.tmp", folder, dir, name, name + dir);
}
