/* What the program and the machine are, as figures that rules ask for. Figures of steps come from the formulas of
 * metrics.h, so that they are those of `millrace run`. */
#include "base/common.h"
#include "base/strbuf.h"
#include "explain/explain_internal.h"
#include "explain/explain_settings.h"
#include "metrics/metrics.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AHEAD_LEAST 0.1    /* of the work: with less of it between waits, nothing is prepared ahead */
#define PROGRAM_MOST 4000u /* bytes of a command line: the tracer keeps no more for sure */

static bool has(const struct mr_trace_string *s, const char *word)
{
    return s->text && memmem(s->text, s->len, word, strlen(word));
}

static bool starts(const struct mr_trace_string *s, const char *word)
{
    return s->text && s->len >= strlen(word) && !memcmp(s->text, word, strlen(word));
}

/* A word that a shell reads back as it was; false: it holds something that no printed command can. */
static bool put_word(struct mr_strbuf *out, const char *text, size_t len, struct mr_arena *a)
{
    char *quoted = malloc(4 * len + 8);
    const char *word = mr_explain_clean_name(a, text, len);
    bool exact = word && strlen(word) == len && !memcmp(word, text, len);
    for (size_t i = 0; i < len; i++)
        exact &= (unsigned char)text[i] >= 0x20 && text[i] != 0x7f;
    if (!quoted || !word)
        out->failed = true;
    else
        mr_strbuf_printf(out, "%s%s", out->len ? " " : "", mr_shell_word(word, quoted, 4 * len + 8));
    free(quoted);
    return exact;
}

/* The command line as one would type it, whole: commands to try are made of it. */
static const char *program_of(struct explain_job *j, const struct mr_trace_process *p)
{
    const struct mr_trace_string *s = p->cmdline.len ? &p->cmdline : &p->exe;
    struct mr_strbuf out = {0};
    size_t len = s->len;
    bool exact = len < PROGRAM_MOST;
    while (len && !s->text[len - 1])
        len--;
    for (size_t at = 0, n; at < len && out.len < PROGRAM_MOST; at += n + 1) {
        for (n = 0; at + n < len && s->text[at + n]; n++)
            continue;
        exact &= put_word(&out, s->text + at, MR_MIN(n, (size_t)PROGRAM_MOST), &j->x->arena);
    }
    const char *text = out.failed ? NULL : mr_arena_strdup(&j->x->arena, out.text ? out.text : "");
    j->x->facts.program_cut = !exact;
    mr_strbuf_done(&out);
    return text;
}

static const char *framework_of(const struct explain_job *j)
{
    const struct mr_explain_facts *f = &j->x->facts;
    if (j->run)
        return "millrace";
    for (size_t p = 0; p < j->t->processes; p++) {
        const struct mr_trace_process *r = &j->t->process[p];
        for (uint32_t s = 1; s < r->strings; s++) {
            struct mr_trace_string category, name;
            if (r->string[s].kind != MR_STR_SITE || !r->string[s].text)
                continue;
            mr_trace_label(r, MR_CALL_region, s, &category, &name);
            if (!starts(&category, "data_loader"))
                continue;
            if (starts(&name, "DataLoader.") || starts(&name, "torchdata.") || has(&name, "Torch"))
                return "pytorch";
            if (starts(&name, "OwnedIterator") || has(&name, "TF"))
                return "tensorflow";
            if (has(&name, "grain") || has(&name, "DatasetIterator"))
                return "grain";
        }
    }
    return j->compiled ? "jax" : f->no_loader ? "pytorch" : ""; /* that has optimiser's steps */
}

/* What one would start to see it again: not a worker or a rank that the program started itself. */
static size_t first_of(const struct mr_trace *t, size_t process)
{
    for (size_t up = process, deep = 0; deep < 64; deep++) {
        size_t parent = t->processes;
        for (size_t p = 0; p < t->processes; p++)
            if (p != up && t->process[p].pid == t->process[up].ppid && t->process[p].node == t->process[up].node &&
                t->process[p].cmdline.len && t->process[p].start_ns <= t->process[up].start_ns)
                parent = p;
        if (parent == t->processes)
            return up;
        up = parent;
    }
    return process;
}

static void name_program(struct explain_job *j)
{
    struct mr_explain_facts *f = &j->x->facts;
    f->framework = framework_of(j);
    f->program = "";
    uint32_t lane = j->ranks ? j->rank[0].consumer : NO_INDEX;
    size_t p = lane != NO_INDEX ? j->lane[lane].process : 0;
    if (j->t->processes)
        j->root = p = first_of(j->t, p);
    if (j->t->processes)
        f->program = program_of(j, &j->t->process[p]);
    f->program = f->program ? f->program : "";
}

void mr_explain_unknown_facts(struct mr_explain_facts *f)
{
    double *const value[] = {&f->from[0],
                             &f->from[1],
                             &f->from[2],
                             &f->from[3],
                             &f->source_bytes,
                             &f->bound_spare_s,
                             &f->net_answer_s,
                             &f->net_transfer_s,
                             &f->net_bytes,
                             &f->net_requests,
                             &f->source_reread,
                             &f->cpus_per_node,
                             &f->cpus_per_rank,
                             &f->memory_bytes,
                             &f->memory_free_bytes,
                             &f->workers,
                             &f->prefetch,
                             &f->batch,
                             &f->sample_bytes,
                             &f->batch_load_s,
                             &f->batch_load_p99_s,
                             &f->batch_read_s,
                             &f->batch_decode_s,
                             &f->compute_s,
                             &f->evaluation_workers,
                             &f->evaluation_load_s,
                             &f->evaluation_compute_s,
                             &f->evaluation_cpu,
                             &f->step_s,
                             &f->step_p99_s,
                             &f->stall_p50_s,
                             &f->stall_p99_s,
                             &f->stall_max_s,
                             &f->stalled_steps,
                             &f->queue_empty,
                             &f->in_flight,
                             &f->epochs,
                             &f->epoch_bytes,
                             &f->dataset_bytes,
                             &f->node_epoch_bytes,
                             &f->files,
                             &f->opens,
                             &f->opens_per_sample,
                             &f->metadata_share,
                             &f->read_bytes,
                             &f->written_bytes,
                             &f->delivered_bytes,
                             &f->busy_bytes_per_s,
                             &f->wall_bytes_per_s,
                             &f->request_bytes_per_s,
                             &f->au,
                             &f->au_low,
                             &f->au_high,
                             &f->au_cold,
                             &f->ceiling,
                             &f->headroom,
                             &f->samples_per_s,
                             &f->shared_share,
                             &f->reread_ratio,
                             &f->first_step_s,
                             &f->worker_cpu,
                             &f->cold_fraction,
                             &f->accelerator_idle_share,
                             &f->accelerator_utilisation,
                             &f->demand_bytes_per_s,
                             &f->streams[0],
                             &f->streams[1],
                             &f->stream_bytes_per_s[0],
                             &f->stream_bytes_per_s[1],
                             &f->flight_slope,
                             &f->flight_error,
                             &f->answer_slope,
                             &f->answer_error,
                             &f->knee,
                             &f->storage_busy,
                             &f->same_offsets,
                             &f->decode_threads,
                             &f->cpu_busy,
                             &f->cpu_demand_s,
                             &f->local_free_bytes,
                             &f->stripe_count,
                             &f->stripe_bytes,
                             &f->read_ahead_bytes,
                             &f->harness_samples_per_s,
                             &f->our_sample_s,
                             &f->mapped_bytes,
                             &f->fault_bytes,
                             &f->opened_bytes,
                             &f->checkpoint_bytes_per_s,
                             &f->fast_write_bytes_per_s};
    for (size_t i = 0; i < MR_ARRAY_LEN(value); i++)
        *value[i] = NAN;
}

/* ---- workers and batches ---- */

static double quantile(double *v, size_t n, double q)
{
    return n ? mr_quantile(v, n, q) : NAN;
}

/* Whether it was made for an evaluation: that of another loader, with workers of its own. */
static bool for_evaluation(const struct explain_job *j, const struct explain_make *m, const uint32_t *of_make)
{
    uint32_t wait = of_make[m - j->make.item];
    uint32_t step = wait != NO_INDEX ? j->wait.item[wait].step : NO_INDEX;
    return step != NO_INDEX && j->step.item[step].phase == MR_EXPLAIN_EVAL;
}

/* By make: the wait that it served; NO_INDEX: none. */
static uint32_t *served_waits(const struct explain_job *j)
{
    uint32_t *of = malloc((j->make.n + 1) * sizeof(*of));
    for (size_t i = 0; of && i < j->make.n; i++)
        of[i] = NO_INDEX;
    for (uint32_t i = 0; of && i < j->wait.n; i++)
        if (j->wait.item[i].make != NO_INDEX)
            of[j->wait.item[i].make] = i;
    return of;
}

/* Of the time of a make in no call and no span: the share on a CPU. 1 where nobody measured. */
static double rest_cpu(const struct explain_make *m, double rest)
{
    if (m->cpu_ns == UNKNOWN || !(rest > 0))
        return 1;
    uint64_t busy = m->cause[MR_STALL_PAGE_CACHE] + m->cause[MR_STALL_METADATA] + m->cause[MR_STALL_DECODE] +
                    m->cause[MR_STALL_TRANSFORM] + m->cause[MR_STALL_QUEUE];
    return fmin(1, (double)explain_span_ns(busy, m->cpu_ns) / rest);
}

/* Of our own loader a batch is made by several threads: how long one takes is all of their time together. */
static int make_facts(struct explain_job *j)
{
    struct mr_explain_facts *f = &j->x->facts;
    double *load = malloc((j->make.n + 1) * sizeof(*load)), read = 0, decode = 0, cpu = 0, busy = 0;
    double batches = 0, makes = 0;
    uint32_t *of_make = served_waits(j);
    bool own = false, cpu_known = false, parts = false; /* parts: several threads make a batch */
    if (!load || !of_make) {
        free(load);
        free(of_make);
        return -ENOMEM;
    }
    for (size_t i = 0; i < j->make.n; i++) {
        const struct explain_make *m = &j->make.item[i];
        if (j->lane[m->lane].rank == NO_INDEX || for_evaluation(j, m, of_make))
            continue; /* of a rank that was not asked for, or not of training */
        uint64_t dur = m->end - m->start, told = 0;
        for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
            told += m->cause[c];
        double faults = mr_explain_fault_ns(m), rest = (double)explain_span_ns(told, dur) - faults;
        own |= m->own;
        parts |= m->own || m->task;
        f->persistent |= i && m->lane == m[-1].lane && !j->lane[m->lane].consumer && !m->own && m->epoch != UNKNOWN &&
                         m[-1].epoch != UNKNOWN && m->epoch != m[-1].epoch;
        load[(size_t)makes++] = (double)dur / 1e9;
        double spans = (double)(m->cause[MR_STALL_DECODE] + m->cause[MR_STALL_TRANSFORM] + m->cause[MR_STALL_QUEUE]);
        double slept = m->own ? 0
                              : (double)m->cause[MR_STALL_WORKER] + (1 - rest_cpu(m, rest)) * rest +
                                    mr_explain_span_sleep(m) * spans;
        double helped = j->helped.asleep > 0 ? slept * j->helped.reads / j->helped.asleep : 0;
        read += helped;
        decode -= helped;
        read += (double)(m->cause[MR_STALL_STORAGE] + m->cause[MR_STALL_PAGE_CACHE] + m->cause[MR_STALL_METADATA] +
                         m->cause[MR_STALL_NETWORK]) +
                faults;
        decode += (double)(m->cause[MR_STALL_DECODE] + m->cause[MR_STALL_TRANSFORM] + m->cause[MR_STALL_QUEUE]) +
                  (m->own ? 0 : rest + (double)m->cause[MR_STALL_WORKER]); /* it waits for a process or thread */
        busy += (double)dur;
        if (m->cpu_ns != UNKNOWN) {
            cpu += (double)m->cpu_ns;
            cpu_known = true;
        }
    }
    for (size_t i = 0; i < j->wait.n; i++) {
        const struct explain_wait *w = &j->wait.item[i];
        batches += w->make != NO_INDEX && !for_evaluation(j, &j->make.item[w->make], of_make);
    }
    if (makes > 0 && batches > 0) {
        batches = own || !parts ? batches : (double)MR_MAX(j->step.n, 1u); /* a step waits for the last of its tasks */
        double each = parts ? batches : makes, scale = parts ? makes / batches : 1; /* makes of a batch */
        f->batch_load_s = busy / 1e9 / each;
        f->batch_load_p99_s = quantile(load, (size_t)makes, 0.99) * scale;
        f->batch_read_s = read / 1e9 / each;
        f->batch_decode_s = decode / 1e9 / each;
        f->worker_cpu = cpu_known && busy > 0 ? MR_MIN(cpu / busy, 1.0) : NAN;
    }
    f->team |= own;
    f->cpu_demand_s = cpu_known ? cpu / 1e9 : NAN;
    free(load);
    free(of_make);
    return 0;
}

/* Of evaluation: its loader's workers, what one of them takes for a batch, what a step of it computes. */
static void evaluation_facts(struct explain_job *j)
{
    struct mr_explain_facts *f = &j->x->facts;
    double load = 0, compute = 0, makes = 0, steps = 0, cpu = 0;
    for (size_t i = 0; i < j->wait.n; i++) {
        const struct explain_wait *w = &j->wait.item[i];
        if (w->step == NO_INDEX || j->step.item[w->step].phase != MR_EXPLAIN_EVAL)
            continue;
        const struct explain_make *m = w->make != NO_INDEX ? &j->make.item[w->make] : NULL;
        steps++;
        compute += (double)j->step.item[w->step].ns[MR_TIME_COMPUTE] / 1e9;
        f->evaluation_workers = w->workers != UNKNOWN ? (double)w->workers : f->evaluation_workers;
        makes += m && !m->own;
        load += m && !m->own ? (double)(m->end - m->start) / 1e9 : 0;
        cpu += m && !m->own && m->cpu_ns != UNKNOWN ? (double)m->cpu_ns / 1e9 : 0;
    }
    f->evaluation_cpu = load > 0 ? cpu / load : NAN;
    f->evaluation_load_s = makes > 0 ? load / makes : NAN;
    f->evaluation_compute_s = steps > 0 ? compute / steps : NAN;
}

/* Our own loader in somebody's program, of samples too small to be told of one by one: what all readers did until the
 * last batch. */
static void sum_facts(struct explain_job *j)
{
    struct mr_explain_facts *f = &j->x->facts;
    const struct explain_readers *most = NULL;
    double batches = 0;
    for (size_t i = 0; i < j->wait.n; i++) {
        const struct explain_wait *w = &j->wait.item[i];
        if (w->sums.readers == UNKNOWN || w->rank)
            continue;
        batches++;
        if (!most || w->sums.read + w->sums.decode + w->sums.idle > most->read + most->decode + most->idle)
            most = &w->sums;
    }
    if (j->run || j->make.n || !most)
        return;
    f->team = true;
    f->batch_read_s = (double)most->read / batches / 1e9;
    f->batch_decode_s = (double)(most->decode + most->transform) / batches / 1e9;
    f->batch_load_s = f->batch_load_p99_s = f->batch_read_s + f->batch_decode_s;
}

/* A pipeline of which only sums are known: what all of its threads did during the waits, and between them. */
static void beside_facts(struct explain_job *j)
{
    struct mr_explain_facts *f = &j->x->facts;
    double inside = j->beside.cpu + j->beside.io, reads = 0, steps = (double)MR_MAX(j->step.n, 1u);
    for (uint32_t r = 0; r < j->ranks; r++)
        reads += (double)j->x->rank[r].io_sum_ns;
    double outside = j->beside.between + fmax(0, reads - j->beside.io);
    f->causes_estimated |= j->beside.n > 0;
    if (!j->beside.n || j->make.n || inside < 0.3 * j->beside.waits)
        return;
    if (!j->beside.told && j->beside.n > 1) { /* waits inside compiled functions: only the pipeline's settings tell */
        if (!isfinite(f->workers))
            return;
        f->batch_load_s = fmin(inside / j->beside.waits, fmax(1, f->workers)) * f->step_s;
    } else if (outside < AHEAD_LEAST * inside) { /* nothing happens but while the program waits */
        f->workers = f->prefetch = 0;
        f->batch_load_s = j->beside.waits / 1e9 / steps;
    } else {
        f->workers = fmax(1, round(inside / j->beside.waits));
        f->batch_load_s = fmin((inside + outside) / 1e9 / steps, f->step_s * f->workers);
    }
    f->batch_load_p99_s = fmax(f->batch_load_s, f->stall_p99_s);
    f->batch_read_s = f->batch_load_s * j->beside.io / inside;
    f->batch_decode_s = f->batch_load_s - f->batch_read_s;
}

/* How many CPUs those that make batches took or asked for, of all that there are: the rest of the job comes on top. */
static void busy_facts(struct explain_job *j)
{
    struct mr_explain_facts *f = &j->x->facts;
    double all = f->cpus_per_node * fmax(1, f->nodes) * (double)j->x->train_ns / 1e9, demand = f->cpu_demand_s;
    if (j->run)
        for (uint32_t r = 0; r < j->run->world; r++) {
            const struct mr_run_figure *cpu = mr_run_rank_figure(&j->run->rank[r], "loader_cpu_ns");
            demand = (isfinite(demand) && r ? demand : 0) + (cpu && !cpu->is_real ? (double)cpu->value / 1e9 : 0);
        }
    if (isfinite(all) && all > 0 && isfinite(demand))
        f->cpu_busy = fmin(1, demand / all);
}

/* A reader begins or ends. */
struct change {
    uint64_t at;
    uint32_t rank;
    int by;
};

static int by_rank_and_time(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->at != y->at ? (x->at < y->at ? -1 : 1) : x->by - y->by;
}

/* Readers of one rank at a time, at most: a program may make them anew for every epoch. NAN: no memory. */
static double living_workers(const struct mr_explanation *x)
{
    struct change *c = malloc((2 * x->workers + 1) * sizeof(*c));
    int alive = 0, most = 1;
    if (!c)
        return NAN;
    for (size_t i = 0; i < x->workers; i++) {
        const struct mr_explain_worker *w = &x->worker[i];
        c[2 * i] = (struct change){w->start_ns, w->rank, 1};
        c[2 * i + 1] = (struct change){MR_MAX(w->end_ns, w->start_ns + 1), w->rank, -1};
    }
    qsort(c, 2 * x->workers, sizeof(*c), by_rank_and_time);
    for (size_t i = 0; i < 2 * x->workers; i++) {
        alive += c[i].by;
        most = MR_MAX(most, alive);
    }
    free(c);
    return most;
}

static void worker_facts(struct explain_job *j)
{
    struct mr_explanation *x = j->x;
    struct mr_explain_facts *f = &x->facts;
    uint64_t workers = UNKNOWN, prefetch = UNKNOWN, rows = 0, bytes = 0, empty = 0, told = 0;
    for (size_t i = 0; i < j->wait.n; i++) {
        const struct explain_wait *w = &j->wait.item[i];
        if (w->step == NO_INDEX || w->last || j->step.item[w->step].phase == MR_EXPLAIN_EVAL)
            continue;
        workers = w->workers != UNKNOWN ? w->workers : workers;
        prefetch = w->prefetch != UNKNOWN ? w->prefetch : prefetch;
        rows = w->rows != UNKNOWN ? MR_MAX(rows, w->rows) : rows;
        bytes += w->bytes != UNKNOWN ? w->bytes : 0;
        uint64_t ready = w->make != NO_INDEX ? j->make.item[w->make].end : w->ready;
        told += ready != UNKNOWN;
        empty += ready != UNKNOWN && ready > w->start;
    }
    f->has_workers = x->workers > 0;
    if (workers != UNKNOWN)
        f->workers = (double)workers;
    else if (x->workers)
        f->workers = living_workers(x);
    else if (j->make.n)
        f->workers = 0;
    if (workers == 0)
        f->prefetch = 0;
    else if (prefetch != UNKNOWN)
        f->prefetch = (double)prefetch;
    if (rows)
        f->batch = (double)rows;
    if (told)
        f->queue_empty = (double)empty / (double)told;
    if (bytes)
        f->delivered_bytes = (double)bytes;
}

/* ---- steps ---- */

/* A rank's steps in the form of metrics.h. */
static int make_series(const struct explain_job *j, struct mr_step **steps, struct mr_rank_series *series)
{
    struct mr_step *s = calloc(j->step.n + 1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    for (size_t i = 0; i < j->step.n; i++) {
        const struct mr_explain_step *x = &j->step.item[i];
        s[i] = (struct mr_step){.start_ns = x->start_ns,
                                .end_ns = x->end_ns - x->ns[MR_TIME_CHECKPOINT],
                                .load_ns = x->ns[MR_TIME_STALL],
                                .copy_ns = x->ns[MR_TIME_COPY],
                                .compute_ns = x->ns[MR_TIME_COMPUTE],
                                .compute_wall_ns = x->ns[MR_TIME_COMPUTE],
                                .barrier_ns = x->ns[MR_TIME_BARRIER],
                                .checkpoint_ns = x->ns[MR_TIME_CHECKPOINT],
                                .read_bytes = x->bytes != UNKNOWN ? x->bytes : 0,
                                .sample_bytes = x->bytes != UNKNOWN ? x->bytes : 0,
                                .samples = isfinite(j->x->facts.batch) ? (uint32_t)j->x->facts.batch : 0,
                                .epoch = x->epoch,
                                .step = (uint32_t)(x->batch != UNKNOWN ? x->batch : x->step),
                                .phase = x->phase == MR_EXPLAIN_EVAL ? MR_PHASE_EVAL : MR_PHASE_TRAIN};
    }
    for (uint32_t r = 0; r < j->ranks; r++)
        series[r] = (struct mr_rank_series){.rank = r, .steps = s + j->rank[r].step, .n = j->rank[r].steps};
    *steps = s;
    return 0;
}

static void take_metrics(struct explain_job *j, const struct mr_metrics *m)
{
    struct mr_explain_facts *f = &j->x->facts;
    f->au = m->au;
    f->au_low = m->au_low;
    f->au_high = m->au_high;
    f->au_cold = m->au_cold;
    f->ceiling = m->ceiling;
    f->headroom = m->headroom;
    f->samples_per_s = m->samples ? m->samples_per_s : NAN;
    f->step_s = m->step_s.p50;
    f->step_p99_s = m->step_s.p99;
    f->stall_p50_s = m->stall_s.p50;
    f->stall_p99_s = m->stall_s.p99;
    f->stall_max_s = m->stall_s.max;
    f->stalled_steps = m->stalled_steps;
    f->epochs = (double)m->n_epochs;
    f->demand_bytes_per_s = m->read_bytes ? m->demand_bytes_per_s : NAN;
    if (j->run && m->sample_bytes)
        f->delivered_bytes = (double)m->sample_bytes;
    if (m->samples && m->read_bytes)
        f->sample_bytes = (double)m->read_bytes / (double)m->samples;
}

static int step_facts(struct explain_job *j)
{
    struct mr_explain_facts *f = &j->x->facts;
    struct mr_rank_series *series = calloc(MR_MAX(j->ranks, j->run ? j->run->world : 1u) + 1, sizeof(*series));
    struct mr_metrics *m = malloc(sizeof(*m));
    struct mr_step *steps = NULL;
    double *compute = malloc((j->step.n + 1) * sizeof(*compute)), *first = malloc((j->step.n + 1) * sizeof(*first));
    const struct mr_explain_step *before = NULL; /* of the training */
    size_t n = 0, firsts = 0;
    bool whole = j->opt->rank < 0 && j->opt->step_from < 0 && !j->opt->from_ns && !j->opt->to_ns;
    int rc = series && m && compute && first ? 0 : -ENOMEM;
    if (!rc && j->run && whole)
        mr_run_trace_series(j->run, series);
    else if (!rc)
        rc = make_series(j, &steps, series);
    if (!rc && j->step.n) {
        mr_metrics_compute(series, j->run && whole ? j->run->world : j->ranks,
                           &(struct mr_metrics_params){.seed = 1, .exclude_start = 1}, m);
        take_metrics(j, m);
    }
    for (size_t i = 0; i < j->step.n && !rc; i++) {
        const struct mr_explain_step *s = &j->step.item[i];
        if (s->phase == MR_EXPLAIN_EVAL)
            continue;
        compute[n++] = (double)s->ns[MR_TIME_COMPUTE] / 1e9;
        bool begins = before && before->rank == s->rank && before->epoch != s->epoch;
        before = s;
        if (begins)
            first[firsts++] = (double)(s->end_ns - s->start_ns) / 1e9;
    }
    f->compute_s = rc ? NAN : quantile(compute, n, 0.5);
    f->first_step_s = rc ? NAN : quantile(first, firsts, 0.5);
    free(series);
    free(m);
    free(steps);
    free(compute);
    free(first);
    return rc;
}

/* ---- I/O ---- */

static void io_facts(struct explain_job *j)
{
    struct mr_explanation *x = j->x;
    struct mr_explain_facts *f = &x->facts;
    double read = 0, written = 0, busy = 0, sum = 0, wall = 0, meta = 0, train = 0, idle = 0;
    double samples = 0;
    for (uint32_t r = 0; r < j->ranks; r++) {
        const struct mr_explain_rank *k = &x->rank[r];
        read += (double)k->read_bytes;
        written += (double)k->written_bytes;
        busy += (double)k->io_ns;
        sum += (double)k->io_sum_ns;
        meta += (double)k->wait[MR_WAIT_METADATA];
        wall = fmax(wall, (double)(k->train_ns ? k->train_ns : k->end_ns - k->start_ns));
        train += (double)(k->train_ns ? k->train_ns : k->end_ns - k->start_ns);
        idle += (double)k->accelerator_idle_ns;
        samples += (double)k->samples;
    }
    f->read_bytes = read;
    f->written_bytes = written;
    f->busy_bytes_per_s = busy > 0 ? read / (busy / 1e9 / (double)MR_MAX(j->ranks, 1u)) : NAN;
    f->wall_bytes_per_s = wall > 0 ? read / (wall / 1e9) : NAN;
    f->request_bytes_per_s = sum > 0 ? read / (sum / 1e9) : NAN;
    f->in_flight = busy > 0 ? sum / busy : NAN;
    f->metadata_share = busy > 0 ? fmin(meta / busy, 1) : NAN;
    f->storage_busy = train > 0 && sum > 0 ? fmin((double)x->wait[MR_WAIT_STORAGE] * (double)j->ranks / train, 1) : NAN;
    f->accelerator_idle_share = idle > 0 && train > 0 ? idle / train : NAN;
    if (isfinite(f->epochs) && f->epochs > 0) {
        f->epoch_bytes = read / f->epochs;
        f->node_epoch_bytes = f->epoch_bytes / fmax(f->nodes, 1);
    }
    f->opens_per_sample = samples > 0 ? f->opens_per_sample / samples : NAN;
}

/* Ranks that made the same reads, in whatever order: 1; others are not compared further. */
static void sharing_facts(struct explain_job *j)
{
    struct explain_sums first = {0};
    bool same = j->ranks > 1;
    for (uint32_t r = 0; r < j->ranks && same; r++) {
        struct explain_sums sum = {0};
        for (unsigned w = 0; w < j->workers; w++) {
            sum.extents += j->worker[w].sums[r].extents;
            sum.extent_reads += j->worker[w].sums[r].extent_reads;
        }
        first = r ? first : sum;
        same = sum.extent_reads > 0 && sum.extents == first.extents && sum.extent_reads == first.extent_reads;
    }
    if (same)
        j->x->facts.same_offsets = 1;
}

static int flight_facts(struct explain_job *j)
{
    struct explain_flight **f = malloc(j->workers * sizeof(*f));
    struct mr_explain_facts *x = &j->x->facts;
    for (unsigned w = 0; f && w < j->workers; w++)
        f[w] = &j->worker[w].flight;
    int rc = f ? mr_explain_flight_facts(f, j->workers, (double)j->ranks, x) : -ENOMEM;
    for (unsigned w = 0; f && w < j->workers; w++)
        f[w] = &j->worker[w].answers;
    rc = rc ? rc : mr_explain_flight_slope(f, j->workers, &x->answer_slope, &x->answer_error);
    free(f);
    return rc;
}

/* Our own loader told what its readers did: how many reads there were at once, at least on the average. */
static void reader_facts(struct explain_job *j)
{
    struct mr_explain_facts *f = &j->x->facts;
    double read = 0, train = 0;
    for (uint32_t r = 0; r < j->ranks; r++) {
        const struct explain_wait *last = NULL;
        for (uint32_t i = j->rank[r].wait; i < j->rank[r].wait + j->rank[r].waits; i++)
            last = j->wait.item[i].sums.readers != UNKNOWN ? &j->wait.item[i] : last;
        read += last ? (double)last->sums.read : 0;
        train += (double)j->x->rank[r].train_ns;
    }
    if (!isfinite(f->in_flight) && read > 0 && train > 0)
        f->in_flight = fmax(read / train, 1);
    if (!isfinite(f->wall_bytes_per_s) || !(f->wall_bytes_per_s > 0))
        f->wall_bytes_per_s = train > 0 ? f->read_bytes * (double)j->ranks / (train / 1e9) : NAN;
}

/* Of a program with one reader, asked when it had ended. By how much more readers get more counts; the rate is that which
 * the program had. */
static void probe_facts(struct explain_job *j)
{
    struct mr_explain_facts *f = &j->x->facts;
    const struct mr_storage_probe *p = &j->t->probe;
    if (j->run || !p->streams[0] || isfinite(f->streams[0]) || !(f->busy_bytes_per_s > 0))
        return;
    for (unsigned i = 0; i < 2; i++) {
        f->streams[i] = p->streams[i];
        f->stream_bytes_per_s[i] = f->busy_bytes_per_s * p->bytes_per_s[i] / p->bytes_per_s[0];
    }
}

int mr_explain_facts(struct explain_job *j)
{
    struct mr_explanation *x = j->x;
    struct mr_explain_facts *f = &x->facts;
    for (uint32_t r = 0; r < j->ranks; r++)
        f->no_loader |= j->rank[r].hand;
    name_program(j);
    f->ranks = (double)j->ranks;
    f->nodes = (double)MR_MAX(j->t->nodes, (size_t)1);
    f->own_run = j->run != NULL;
    f->has_steps = j->step.n > 0;
    for (size_t i = 0; i < j->wait.n && !j->run; i++)
        if (j->wait.item[i].step != NO_INDEX && j->wait.item[i].rows != UNKNOWN)
            x->rank[j->wait.item[i].rank].samples += j->wait.item[i].rows;
    worker_facts(j);
    sum_facts(j);
    evaluation_facts(j);
    int rc = make_facts(j);
    rc = rc ? rc : step_facts(j);
    if (!rc)
        beside_facts(j);
    if (!rc)
        io_facts(j);
    rc = rc ? rc : flight_facts(j);
    rc = rc ? rc : mr_explain_find_objects(j);
    if (!rc)
        probe_facts(j);
    if (!rc)
        sharing_facts(j);
    if (!rc && j->run) {
        mr_explain_settings(j->run, x);
        f->causes_estimated |= mr_explain_reader_sums(j->run, x) || j->summed;
        reader_facts(j);
    }
    if (!rc) {
        mr_explain_machine_here(x);
        busy_facts(j);
    }
    return rc;
}
