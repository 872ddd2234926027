/* One preset against its expectations. Metrics are names; besides those of metrics/io_pattern.h:
 *
 *   plan (of the preset as it is, nothing measured)
 *     dataset.samples dataset.bytes dataset.samples_per_file train.need_bytes_per_s
 *     checkpoint.parameters checkpoint.model_bytes checkpoint.optimizer_bytes
 *   measured
 *     dataset.sample_bytes.mean  train.au train.stall_share train.step_s  run.seconds
 *     checkpoint.count checkpoint.share checkpoint.seconds  samples.repeated samples.missed
 *     train.barrier_violations   steps begun before every rank had computed the one before
 *     samples.out_of_order       loader: samples not in the batch where the order puts them; units file and record:
 *                                those that a reader began after a later one, or nobody began (check_items.c)
 *     drain.count drain.seconds drain.overlap (burst buffer; overlap: share while training went on)
 *   on another storage, with other reader threads, prefetch or slowdown; "-" is the preset's own:
 *     VARIANT                    SYSTEM[/THREADS[/PREFETCH[/SLOWDOWN]]]
 *                                or one of x-millrace.variants in place of SYSTEM: other data, ranks, reader or storage
 *     at VARIANT METRIC
 *     ratio METRIC A B           value at B / value at A
 *     speedup A B                run time at A / at B
 *     spread A B C ...           (longest - shortest) / shortest run time
 *     SYSTEM may be BUFFER>SYSTEM: checkpoints go to a burst buffer on BUFFER and are drained to SYSTEM (not traced: no
 *     posix.write figures); async>SYSTEM: the asynchronous engine writes them behind
 *
 * Executions are kept by variant, so each is made once. Times are noisy on a busy machine: when a shaped line fails,
 * all executions are made again, ATTEMPTS times at most, and the report says how many it took. Exact lines get one
 * attempt. */
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "preset/check.h"
#include "preset/check_storage.h"
#include "base/temp_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VARIANTS_MAX 32
#define ATTEMPTS 3
#define DATA_MAX_BYTES 320e6 /* at the preset's own scale; who asks for more with --scale gets it */

struct execution {
    char variant[64];
    const struct subject *subject;
    struct mr_check_run run;
};

/* What is executed: the preset itself, or one of its variants with another shape and, where that differs, another data
 * set. */
struct subject {
    const char *name; /* "": the preset */
    const struct mr_workload *w;
    struct mr_check_shape shape;
    const struct mr_check_data *data;
    const char *folder;
    struct mr_check_data own; /* `data` where it is not another subject's */
};

struct check {
    const struct mr_check_params *p;
    const struct mr_workload *w;
    struct mr_arena *arena;
    char folder[4096];
    struct subject *subject[VARIANTS_MAX]; /* the preset first */
    unsigned n_subjects;
    struct execution executions[VARIANTS_MAX];
    unsigned n;
    bool runs; /* there is something to execute */
};

/* ---- subjects ---- */

/* The data set of an earlier subject, where it is the same one. */
static bool share_data(const struct check *c, struct subject *s)
{
    for (unsigned i = 0; i < c->n_subjects; i++) {
        const struct subject *o = c->subject[i];
        /* Bytes, padding too: a difference that means nothing only costs a second data set. */
        if (o->data && /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
            !memcmp(&o->shape.w.dataset, &s->shape.w.dataset, sizeof s->shape.w.dataset)) {
            s->data = o->data;
            s->folder = o->folder;
            return true;
        }
    }
    return false;
}

static int make_data(struct check *c, struct subject *s, struct mr_error *err)
{
    if (share_data(c, s))
        return 0;
    s->folder = *s->name ? mr_arena_printf(c->arena, "%s/%s", c->folder, s->name) : c->folder;
    int rc = s->folder ? mr_check_data_make(&s->shape, s->folder, c->p->stop, c->arena, &s->own, err)
                       : mr_error_set(err, -ENOMEM, "cannot keep variant '%s'", s->name);
    if (!rc)
        s->data = &s->own;
    else
        mr_check_data_done(&s->own);
    return rc;
}

/* The preset's variant of this name, made when it is first asked for; NULL in *out when it has none. */
static int find_subject(struct check *c, const char *name, struct subject **out, struct mr_error *err)
{
    struct mr_workload *w = NULL;
    *out = NULL;
    for (unsigned i = 0; i < c->n_subjects; i++)
        if (!strcmp(c->subject[i]->name, name)) {
            *out = c->subject[i];
            return 0;
        }
    int rc = mr_workload_variant(c->w, name, c->arena, &w, err);
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    struct subject *s = mr_arena_alloc(c->arena, sizeof(*s));
    if (!s || !(s->name = mr_arena_strdup(c->arena, name)) || c->n_subjects == VARIANTS_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "preset '%s' has too many variants", c->w->name);
    s->w = w;
    rc = mr_check_scale(w, c->p->scale, &s->shape, err);
    if (!rc && s->shape.reads)
        rc = make_data(c, s, err);
    if (rc)
        return mr_error_context(err, "in variant '%s'", name), rc;
    if (!s->folder)
        s->folder = c->folder;
    *out = c->subject[c->n_subjects++] = s;
    return 0;
}

/* ---- executions ---- */

static int parse_variant(struct check *c, const char *text, struct mr_check_variant *out, struct subject **subject,
                         struct mr_error *err)
{
    char buf[64], *rest = buf, *field[4] = {NULL};
    int64_t v[4] = {-1, -1, -1, -1};
    snprintf(buf, sizeof buf, "%s", text);
    for (unsigned i = 0; i < 4; i++)
        field[i] = strsep(&rest, "/");
    for (unsigned i = 1; i < 4; i++)
        if (field[i] && strcmp(field[i], "-") != 0 && (mr_parse_int(field[i], &v[i]) || v[i] < 0 || v[i] > 1024))
            return mr_error_plain(err, MR_E_CONFIG,
                                  "bad variant '%s': want [BUFFER>]SYSTEM[/THREADS[/PREFETCH[/SLOWDOWN]]]", text);
    int rc = find_subject(c, field[0], subject, err);
    if (rc)
        return rc;
    bool named = *subject != NULL;
    if (!named)
        *subject = c->subject[0];
    const struct mr_workload *w = (*subject)->w;
    *out = (struct mr_check_variant){
        .storage = "", .threads = v[1], .prefetch = v[2], .slowdown = v[3] > 0 ? (double)v[3] : w->pattern.slowdown};
    char *final = strchr(field[0], '>');
    if (final)
        *final++ = '\0';
    else
        final = field[0];
    const char *model = strcmp(final, "-") != 0 && !named ? final : w->extra.storage_model;
    rc = mr_check_storage(model, out->slowdown, c->p->search, c->arena, &out->storage, err);
    out->async = final != field[0] && strcmp(field[0], "async") == 0;
    return rc || final == field[0] || out->async
               ? rc
               : mr_check_storage(field[0], out->slowdown, c->p->search, c->arena, &out->burst, err);
}

static int execute(struct check *c, const char *variant, struct execution **out, struct mr_error *err)
{
    struct mr_check_variant v;
    struct subject *s = NULL;
    for (unsigned i = 0; i < c->n; i++)
        if (!strcmp(c->executions[i].variant, variant)) {
            *out = &c->executions[i];
            return 0;
        }
    if (c->n == VARIANTS_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "preset '%s' asks for more than %d variants", c->w->name, VARIANTS_MAX);
    int rc = parse_variant(c, variant, &v, &s, err);
    if (!rc)
        rc = mr_check_execute(&s->shape, s->data, &v, s->folder, c->p->stop, &c->executions[c->n].run, err);
    if (rc)
        return rc;
    c->executions[c->n].subject = s;
    snprintf(c->executions[c->n].variant, sizeof c->executions[c->n].variant, "%s", variant);
    *out = &c->executions[c->n++];
    return 0;
}

static void forget(struct check *c)
{
    while (c->n)
        mr_check_run_done(&c->executions[--c->n].run);
}

/* ---- metrics ---- */

static bool plan_metric(const struct mr_check_shape *s, const char *name, double *out)
{
    const struct mr_workload_plan *p = &s->full;
    const struct {
        const char *name;
        double value;
    } rows[] = {
        {"dataset.samples", (double)p->train_samples},
        {"dataset.bytes", p->train_bytes},
        {"dataset.samples_per_file", p->train_files ? (double)p->train_samples / (double)p->train_files : NAN},
        {"train.need_bytes_per_s", p->need_bytes_per_s},
        {"checkpoint.parameters", (double)p->checkpoint.parameters},
        {"checkpoint.model_bytes", p->checkpoint.model_bytes},
        {"checkpoint.optimizer_bytes", p->checkpoint.optimizer_bytes},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(rows); i++)
        if (!strcmp(name, rows[i].name)) {
            *out = rows[i].value;
            return true;
        }
    if (!strcmp(name, "checkpoint.count") && !s->writes_checkpoints) {
        *out = (double)p->checkpoint.writes;
        return true;
    }
    return false;
}

static double sample_mean(const struct mr_check_data *d)
{
    double sum = 0;
    for (uint64_t i = 0; d && i < d->n_samples; i++)
        sum += (double)d->sample[i].bytes;
    return d && d->n_samples ? sum / (double)d->n_samples : NAN;
}

static bool run_metric(const struct execution *x, const char *name, double *out)
{
    const struct mr_check_run *r = &x->run;
    const struct {
        const char *name;
        double value;
    } rows[] = {
        {"dataset.sample_bytes.mean", sample_mean(x->subject->data)},
        {"train.au", r->metrics ? r->metrics->au : NAN},
        {"train.stall_share", r->metrics ? r->metrics->split.data : NAN},
        {"train.step_s", r->metrics ? r->metrics->step_s.p50 : NAN},
        {"run.seconds", r->runtime_s},
        {"checkpoint.count", (double)r->checkpoints},
        {"checkpoint.share", r->checkpoint_share},
        {"checkpoint.seconds", r->checkpoint_s},
        {"drain.count", (double)r->drains},
        {"drain.seconds", r->drain_s},
        {"drain.overlap", r->drain_overlap},
        {"samples.repeated", r->repeated_samples},
        {"samples.missed", r->missed_samples},
        {"samples.out_of_order", r->out_of_order},
        {"train.barrier_violations", r->barrier_violations},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(rows); i++)
        if (!strcmp(name, rows[i].name)) {
            *out = rows[i].value;
            return true;
        }
    return false;
}

static bool ends(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && !strcmp(text + a - b, end);
}

/* What a measured figure is divided by to stand beside its target. */
static double ratio_of(const struct mr_check_shape *s, const char *name)
{
    bool read = !strncmp(name, "posix.read.", 11), write = !strncmp(name, "posix.write.", 12);
    bool nothing = s->w.pattern.unit == MR_CONF_UNIT_NONE;
    if (!strcmp(name, "dataset.sample_bytes.mean"))
        return s->record_ratio;
    if (!strcmp(name, "train.step_s"))
        return s->full.compute_s > 0 ? s->step_s / s->full.compute_s : 1;
    if (!read && !write)
        return !strcmp(name, "posix.open.count") ? s->files_ratio : 1;
    if (ends(name, ".file_passes") || ends(name, ".files_touched"))
        return s->files_ratio;
    if (ends(name, ".sharing_degree"))
        return s->w.pattern.same_offsets ? s->ranks_ratio : 1;
    if (strstr(name, ".head"))
        return 1;
    bool count = ends(name, ".count"), bytes = ends(name, ".bytes");
    if (count || bytes)
        return write ? (bytes ? s->write_ratio : 1) : nothing ? s->ranks_ratio : s->bytes_ratio;
    if (read && (ends(name, ".count_per_rank") || ends(name, ".bytes_per_rank")))
        return nothing ? 1 : s->bytes_ratio / s->ranks_ratio;
    return 1;
}

static int measure_at(struct check *c, const char *variant, const char *name, double *out, struct mr_error *err)
{
    struct execution *x = NULL;
    if (plan_metric(&c->subject[0]->shape, name, out))
        return 0;
    if (!c->runs)
        return MR_E_UNSUPPORTED;
    int rc = execute(c, variant, &x, err);
    if (rc || run_metric(x, name, out))
        return rc;
    rc = mr_io_pattern_get(&x->run.calls, name, out);
    if (rc == -ENOENT)
        return mr_error_plain(err, MR_E_CONFIG, "unknown metric '%s' in preset '%s'", name, c->w->name);
    return rc ? mr_error_set(err, rc, "cannot compute '%s'", name) : 0;
}

/* "speedup A B", "spread A B ...", "ratio METRIC A B", "at A METRIC". */
static int compound(struct check *c, const char *text, double *out, struct mr_error *err)
{
    char buf[512], *rest = buf, *word[16];
    double v[16] = {0}, low = INFINITY, high = -INFINITY;
    unsigned n = 0;
    int rc = 0;
    snprintf(buf, sizeof buf, "%s", text);
    while (n < 16 && (word[n] = strsep(&rest, " ")))
        n += *word[n] != '\0';
    if (n == 0)
        return mr_error_plain(err, MR_E_CONFIG, "an expectation of preset '%s' has no metric", c->w->name);
    if (!strcmp(word[0], "at") && n == 3)
        return measure_at(c, word[1], word[2], out, err);
    bool ratio = !strcmp(word[0], "ratio") && n == 4, speedup = !strcmp(word[0], "speedup") && n == 3;
    if (!ratio && !speedup && !(!strcmp(word[0], "spread") && n >= 3))
        return mr_error_plain(err, MR_E_CONFIG, "unknown metric '%s' in preset '%s'", text, c->w->name);
    for (unsigned i = ratio ? 2 : 1; i < n && !rc; i++) {
        rc = measure_at(c, word[i], ratio ? word[1] : "run.seconds", &v[i], err);
        low = MR_MIN(low, v[i]);
        high = MR_MAX(high, v[i]);
    }
    if (!rc)
        *out = ratio ? v[3] / v[2] : speedup ? v[1] / v[2] : (high - low) / low;
    return rc;
}

/* ---- verdicts ---- */

static bool holds(const struct mr_expectation *e, double v)
{
    /* A tolerance is relative to the target; bounds have none unless they say so. */
    double slack = 1e-9;
    if (isnan(v))
        return false;
    if (!isnan(e->eq) && fabs(v - e->eq) > fabs(e->eq) * (e->tol + slack) + 1e-12)
        return false;
    if (!isnan(e->ge) && v < e->ge - fabs(e->ge) * (e->tol + slack))
        return false;
    return isnan(e->le) || v <= e->le + fabs(e->le) * (e->tol + slack);
}

/* Files that were made so small that the last, shorter read of each is too large a part of all: nothing can be said of
 * the shares of sizes, while at full scale they would come out. */
static bool too_few_reads(const struct check *c, const struct mr_expectation *e)
{
    const struct mr_workload *small = &c->subject[0]->shape.w, *full = c->w;
    double piece = (double)full->reader.transfer_size, share[2];
    if (!strstr(e->metric, "read.size_share.") || isnan(e->ge) || piece <= 0)
        return false;
    for (int i = 0; i < 2; i++) {
        const struct mr_workload *w = i ? full : small;
        double reads = (double)w->dataset.num_samples_per_file * mr_workload_record_bytes(w) / piece;
        share[i] = floor(reads) / ceil(reads);
    }
    return share[0] < e->ge && share[1] >= e->ge;
}

/* Where a rank reads for others, the calls do not tell whose turn it was. */
static bool order_unknown(const struct mr_expectation *e, double v)
{
    return isnan(v) && ends(e->metric, "samples.out_of_order");
}

static int check_line(struct check *c, const struct mr_expectation *e, struct mr_check_line *line, struct mr_error *err)
{
    bool words = strchr(e->metric, ' ') != NULL;
    double v = NAN;
    *line = (struct mr_check_line){.e = e, .ratio = words ? 1 : ratio_of(&c->subject[0]->shape, e->metric), .why = ""};
    int rc = words ? compound(c, e->metric, &v, err) : measure_at(c, "-", e->metric, &v, err);
    bool cut = c->subject[0]->shape.compute_cut && !strcmp(e->metric, "train.au");
    if (rc == MR_E_UNSUPPORTED || (!rc && cut)) {
        line->verdict = MR_CHECK_SKIPPED;
        line->why = !rc ? "compute was shortened" : "not executed: the plan alone is checked";
        line->measured = NAN;
        return 0;
    }
    if (rc)
        return mr_error_context(err, "%s:%u", c->w->file, e->line), rc;
    if (order_unknown(e, v)) {
        line->verdict = MR_CHECK_SKIPPED;
        line->why = "the order of these reads is not known";
        line->measured = NAN;
        return 0;
    }
    line->measured = v / line->ratio;
    bool ok = holds(e, line->measured);
    if (!ok && too_few_reads(c, e)) {
        line->verdict = MR_CHECK_SKIPPED;
        line->why = "files are too small at this scale";
        return 0;
    }
    line->verdict = e->cls == MR_EXPECT_NATIVE ? MR_CHECK_NATIVE : ok ? MR_CHECK_OK : MR_CHECK_FAIL;
    return 0;
}

static int check_lines(struct check *c, struct mr_check_report *out, struct mr_error *err)
{
    bool again = true;
    int rc = 0;
    for (out->attempts = 0; again && !rc && out->attempts < ATTEMPTS;) {
        out->attempts++;
        out->failed = 0;
        again = false;
        bool hard = false;
        forget(c);
        for (unsigned i = 0; i < out->n_lines && !rc; i++) {
            rc = check_line(c, &c->w->extra.expect[i], &out->lines[i], err);
            bool bad = !rc && out->lines[i].verdict == MR_CHECK_FAIL;
            out->failed += bad;
            hard |= bad && out->lines[i].e->cls == MR_EXPECT_EXACT;
            again |= bad;
        }
        again &= !hard;
    }
    return rc;
}

int mr_check_preset(const struct mr_workload *w, const struct mr_check_params *p, struct mr_arena *a,
                    struct mr_check_report *out, struct mr_error *err)
{
    struct check *c = mr_arena_alloc(a, sizeof(*c));
    struct mr_error why;
    uint64_t start = mr_now_ns();
    memset(out, 0, sizeof(*out));
    out->name = w->name;
    out->n_lines = w->extra.n_expect;
    out->lines = mr_arena_alloc(a, (out->n_lines + 1) * sizeof(*out->lines));
    if (!c || !out->lines)
        return mr_error_set(err, -ENOMEM, "cannot check preset '%s'", w->name);
    struct subject *self = mr_arena_alloc(a, sizeof(*self));
    if (!self)
        return mr_error_set(err, -ENOMEM, "cannot check preset '%s'", w->name);
    *c = (struct check){.p = p, .w = w, .arena = a, .subject = {self}, .n_subjects = 1};
    *self = (struct subject){.name = "", .w = w, .folder = c->folder};
    int rc = mr_check_scale(w, p->scale, &self->shape, err);
    if (rc)
        return rc;
    if (mr_workload_check_supported(w, &why)) {
        out->skipped = mr_arena_strdup(a, why.message);
        self->shape.reads = false;
    }
    if (self->shape.reads && p->scale <= 0 && self->shape.data_bytes > DATA_MAX_BYTES) {
        char size[MR_HUMAN_LEN];
        mr_error_plain(err, MR_E_CONFIG, "preset '%s' is too large at its default scale: %s", w->name,
                       mr_human_bytes(self->shape.data_bytes, size));
        return mr_error_hint(err, "lower x-millrace.scale.default in '%s'", w->file), MR_E_CONFIG;
    }
    c->runs = !out->skipped && (self->shape.reads || self->shape.writes_checkpoints || w->pattern.outputs.n);
    if (c->runs)
        rc = mr_temp_folder_make(p->dir, "check", c->folder, sizeof c->folder, err);
    if (!rc && c->runs && self->shape.reads)
        rc = make_data(c, self, err);
    if (!rc)
        rc = check_lines(c, out, err);
    forget(c);
    for (unsigned i = 0; i < c->n_subjects; i++)
        mr_check_data_done(&c->subject[i]->own);
    if (*c->folder && !p->keep)
        mr_temp_folder_remove(c->folder, NULL);
    else if (*c->folder)
        mr_log(MR_LOG_INFO, "files kept in '%s'", c->folder);
    out->shape = self->shape;
    out->seconds = (double)(mr_now_ns() - start) / 1e9;
    return rc;
}
