/* The settings of a run's loader as the advisor sees them: what they are, how many workers and batches ahead would be
 * enough, what the storage gives at most, and how a change is written down. What a change saves: advise_replay.c. */
#include "conf/run_command.h"
#include "base/common.h"
#include "advise/advise_internal.h"

#include <string.h>

#define WORKERS_MOST 64 /* of one rank: more is no advice */
#define AHEAD_MOST 64
#define MARGIN 1.1 /* more capacity than the mean needs: batches differ */
#define GROWS 1.15 /* so much more from more readers is more */
#define ENOUGH 1.2 /* times what is asked for: such storage is not the limit */
#define NEARLY 0.9

static double batch_part(double part, double all, double other)
{
    return mr_known(part) ? part : mr_known(all) && mr_known(other) ? fmax(0, all - other) : NAN;
}

struct mr_pipeline mr_pipeline_now(const struct mr_advice *a)
{
    const struct mr_explain_facts *f = a->f;
    double ranks = a->x->ranks ? (double)a->x->ranks : 1;
    struct mr_pipeline p = {.team = a->own || f->team, .cpus = f->cpus_per_rank, .compute_s = f->compute_s};
    p.workers = mr_known(f->workers) ? f->workers : f->has_workers ? (double)a->x->workers / ranks : NAN;
    p.ahead = mr_known(f->prefetch) ? f->prefetch : p.workers > 0 ? 2 * p.workers : p.workers;
    p.read_s = batch_part(f->batch_read_s, f->batch_load_s, f->batch_decode_s);
    p.cpu_s = batch_part(f->batch_decode_s, f->batch_load_s, f->batch_read_s);
    if (mr_known(f->batch_load_s) && !mr_known(p.read_s)) { /* the parts are not known: waits tell */
        double share = a->read_s + a->cpu_s > 0 ? a->read_s / (a->read_s + a->cpu_s) : 0.5;
        p.read_s = f->batch_load_s * share;
        p.cpu_s = f->batch_load_s - p.read_s;
    }
    if (mr_storage_is_limit(a))
        p.limit_s = f->demand_bytes_per_s * f->compute_s / mr_storage_limit(a);
    p.storage = mr_known_or(mr_storage_limit(a), 0) / ranks;
    p.serial = mr_waits_in_turn(a) ? 1 : 0;
    p.keeps = a->own || f->persistent;
    return p;
}

struct mr_pipeline mr_pipeline_of_evaluation(const struct mr_advice *a)
{
    const struct mr_explain_facts *f = a->f;
    struct mr_pipeline p = mr_pipeline_now(a);
    double cpu = fmin(1, fmax(0, mr_known_or(f->evaluation_cpu, 0.5)));
    p.workers = f->evaluation_workers;
    p.ahead = 2 * p.workers;
    p.cpu_s = f->evaluation_load_s * cpu;
    p.read_s = f->evaluation_load_s - p.cpu_s;
    p.compute_s = f->evaluation_compute_s;
    return p;
}

bool mr_pipeline_known(const struct mr_pipeline *p)
{
    return mr_known(p->workers) && mr_known(p->ahead) && mr_known(p->read_s) && mr_known(p->cpu_s) &&
           p->read_s + p->cpu_s > 0 && mr_known(p->compute_s);
}

/* CPU time of one batch's load. */
static double batch_cpu_s(const struct mr_advice *a, const struct mr_pipeline *p)
{
    return mr_known(a->f->worker_cpu) ? (p->read_s + p->cpu_s) * fmin(a->f->worker_cpu, 1) : p->cpu_s;
}

double mr_workers_wanted(const struct mr_advice *a, const struct mr_pipeline *p)
{
    double load = p->read_s + p->cpu_s, cpu = batch_cpu_s(a, p);
    double step = fmax(p->compute_s, p->limit_s);
    double most = WORKERS_MOST;
    if (p->team && p->ahead < 1) /* nothing is hidden: a load should be a small part of the step */
        step = fmax(0.01 * p->compute_s, p->limit_s);
    if (p->cpus > 0 && cpu > 0)
        most = fmin(most, fmax(1, floor(p->cpus / (cpu / load) + 0.1)));
    if (p->cpus > 0 && p->cpu_s > p->read_s) /* off the CPU, but for want of one? */
        most = fmin(most, fmax(1, 4 * p->cpus));
    if (mr_known(a->f->knee))
        most = fmin(most, fmax(1, a->f->knee));
    return fmax(1, fmin(step > 0 ? ceil(load / step * MARGIN - 0.05) : most, most));
}

double mr_ahead_wanted(const struct mr_advice *a, const struct mr_pipeline *p)
{
    double load = p->read_s + p->cpu_s;
    double longest = fmax(mr_known_or(a->f->batch_load_p99_s, load), load);
    double alone = p->team && p->workers >= 1 ? longest / p->workers : longest;
    /* Workers that cannot keep up never fill a deep queue: batches come as quickly as they are made. */
    double step = fmax(fmax(p->compute_s, p->limit_s), load / fmax(1, p->workers));
    double ahead = step > 0 ? ceil(alone / step) + 1 : AHEAD_MOST;
    if (!p->team)
        ahead = fmax(ahead, 2 * p->workers);
    return fmin(fmax(ahead, 2), AHEAD_MOST);
}

/* More readers than the run had were tried by a probe: what they got is what there is. Of the run's own, growing rates
 * only tell that the end was not reached. */
double mr_storage_limit(const struct mr_advice *a)
{
    const struct mr_explain_facts *f = a->f;
    double few = f->stream_bytes_per_s[0], many = f->stream_bytes_per_s[1];
    /* A probe may be one process where the run has several: what the run got is no less. */
    if (f->streams[0] > 0 && few > 0 && many > 0)
        return many >= GROWS * few && !(f->streams[1] > f->workers + 0.5)
                   ? NAN
                   : fmax(fmax(few, many), mr_known_or(f->wall_bytes_per_s, 0));
    if (f->queued && a->starved && a->read_s > 0.5 * a->stall_s)
        return f->wall_bytes_per_s;
    if (mr_known(f->knee) && mr_known(f->in_flight) && f->in_flight >= NEARLY * f->knee)
        return f->busy_bytes_per_s;
    if (a->scaling.scales == MR_SCALES_SHARED && a->scaling.waits_for == MR_WAITS_STORAGE && !mr_known(f->knee))
        return f->busy_bytes_per_s;
    return NAN;
}

bool mr_waits_in_turn(const struct mr_advice *a)
{
    return a->scaling.scales == MR_SCALES_SHARED && a->scaling.waits_for != MR_WAITS_STORAGE;
}

bool mr_storage_is_limit(const struct mr_advice *a)
{
    const struct mr_explain_facts *f = a->f;
    double limit = mr_storage_limit(a);
    if (!mr_known(limit) || !mr_known(f->demand_bytes_per_s))
        return false;
    bool grows = f->stream_bytes_per_s[1] >= GROWS * f->stream_bytes_per_s[0];
    return limit < (grows ? NEARLY : ENOUGH) * f->demand_bytes_per_s;
}

/* ---- how it is done ---- */

const char *mr_try_run(struct mr_advice *a, const char *settings)
{
    const struct mr_explain_facts *f = a->f;
    if (a->own)
        return f->workload ? mr_say(a, "millrace run %s", mr_run_command_with(f->workload, settings, &a->x->arena))
                           : NULL;
    return f->program && *f->program && !f->program_cut ? mr_say(a, "millrace trace -o after.mrt -- %s", f->program)
                                                        : NULL;
}

const char *mr_if_format(const struct mr_advice *a, const char *format, const char *text)
{
    return !a->f->format || !strcmp(a->f->format, format) ? text : NULL;
}

void mr_change_to_memory(struct mr_advice *a, struct mr_draft *d)
{
    mr_change_note(mr_change_option(a, d, "reader.read_type", NULL, "memory"), "read once, then from memory");
}

void mr_change_to_new_data(struct mr_advice *a, struct mr_draft *d)
{
    mr_change_option(a, d, "dataset.data_folder", NULL, "NEW_FOLDER");
    mr_change_option(a, d, "workflow.generate_data", "false", "true");
}

void mr_change_loading(struct mr_advice *a, struct mr_draft *d, double workers, double ahead)
{
    const struct mr_pipeline now = mr_pipeline_now(a);
    double factor = fmax(2, ceil(ahead / fmax(1, workers)));
    const char *was = mr_say_number(a, now.workers), *is = mr_say_number(a, workers);
    const char *were = mr_say_number(a, now.ahead), *are = mr_say_number(a, ahead);
    mr_change_option(a, d, "reader.read_threads", was, is);
    mr_change_option(a, d, "reader.prefetch_size", were, are);
    if (a->f->no_loader) {
        mr_change_code(a, d, MR_IDIOM_PYTORCH,
                       mr_say(a,
                              "class Batches(torch.utils.data.Dataset):    # what the loop does for one batch\n"
                              "    def __len__(self): return len(files)\n"
                              "    def __getitem__(self, i): return load(files[i])\n"
                              "for x in torch.utils.data.DataLoader(Batches(), batch_size=None, num_workers=%.0f, "
                              "prefetch_factor=%.0f, persistent_workers=True): ...",
                              workers, factor));
    } else if (a->f->team && !a->own) {
        mr_change_argument(a, d, MR_TARGET_OUR_LOADER, "num_workers", was, is);
        mr_change_argument(a, d, MR_TARGET_OUR_LOADER, "prefetch_factor", were, are);
    } else {
        mr_change_argument(a, d, MR_TARGET_LOADER, "num_workers", was, is);
        mr_change_argument(a, d, MR_TARGET_LOADER, "prefetch_factor",
                           now.workers >= 1 ? mr_say_number(a, now.ahead / now.workers) : NULL,
                           mr_say_number(a, factor));
        mr_change_argument(a, d, MR_TARGET_LOADER, "persistent_workers", a->f->persistent ? "true" : NULL, "true");
    }
    mr_change_argument(a, d, MR_TARGET_DATASET, "num_parallel_calls", was, is);
    mr_change_argument(a, d, MR_TARGET_DATASET, "prefetch", were, mr_say_number(a, fmax(ahead, 1)));
}
