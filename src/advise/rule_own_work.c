/* Rules about time that no storage gives back: what the training thread writes and reads for itself, and waiting for a
 * free CPU. */
#include "advise/advise_internal.h"

#define LOG_SHARE 0.01
#define CPU_SHARE 0.1 /* of the waits for data */

/* The file with most calls among those the training thread writes: an example for the text. */
static const struct mr_explain_file *logged(const struct mr_explanation *x)
{
    const struct mr_explain_file *best = NULL;
    for (size_t i = 0; i < x->files; i++)
        if (x->file[i].own_log && (!best || x->file[i].calls > best->calls))
            best = &x->file[i];
    return best;
}

bool mr_rule_lg1(struct mr_advice *a, struct mr_draft *d)
{
    double logs = mr_pool_s(a, MR_POOL_LOGGING), share = a->run_s > 0 ? logs / a->run_s : 0;
    const struct mr_explain_file *f = logged(a->x);
    if (share < LOG_SHARE)
        return mr_silent(a, "logs, histories and settings took %s of the time", mr_say_share(a, share));
    d->f.saves_s = 0.9 * logs;
    d->f.saves_low_s = 0.7 * logs;
    d->f.saves_high_s = logs;
    d->f.confidence = 0.8;
    d->f.title = mr_say(a, "%s went to the training process's own logs, histories and settings", mr_say_s(a, logs));
    d->f.fix =
        "write logs and read settings every 100 steps, or in a thread; append to a history instead of writing it anew";
    d->f.evidence = f ? mr_say(a, "%s: %s calls, %s read, %s written", f->path, mr_say_count(a, (double)f->calls),
                               mr_say_bytes(a, (double)f->read_bytes), mr_say_bytes(a, (double)f->written_bytes))
                      : "calls of the training thread between its steps, on files that hold no data";
    d->f.formula = "0.9 x time in these calls and between them (0.7 to 1)";
    mr_change_code(a, d, MR_IDIOM_PYTORCH, "if step % 100 == 0: log(...)    # settings: read once, before the loop");
    return true;
}

bool mr_rule_cpu2(struct mr_advice *a, struct mr_draft *d)
{
    double wait = mr_stall_s(a, MR_STALL_CPU);
    if (!a->starved || wait < CPU_SHARE * a->stall_s)
        return mr_silent(a, "batches waited %s for a free CPU", mr_say_s(a, wait));
    d->f.saves_s = wait;
    d->f.saves_low_s = 0;
    d->f.saves_high_s = wait;
    d->f.confidence = 0.6;
    d->f.title = mr_say(a, "readers were ready to run and had no CPU for %s of the %s waited%s", mr_say_s(a, wait),
                        mr_say_s(a, a->stall_s),
                        mr_known(a->f->cpus_per_node) ? mr_say(a, "; %.0f CPUs", a->f->cpus_per_node) : "");
    d->f.fix = "more CPUs for this job, or fewer threads on them: one per worker, and none beside it";
    d->f.evidence = "time in the kernel's run queue (schedstat), per batch";
    d->f.formula = "time without a CPU while a batch was waited for";
    mr_change_code(a, d, MR_IDIOM_PYTORCH,
                   "torch.set_num_threads(1)    # in each worker; OMP_NUM_THREADS=1 for libraries");
    mr_change_storage(a, d, MR_TARGET_MACHINE, "srun --cpus-per-task=N ...");
    return true;
}
