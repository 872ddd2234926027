/* Rules about the measurement itself: what the trace did not see, lost, or saw from a cache. They claim no seconds. */
#include "base/common.h"
#include "advise/advise_internal.h"

#include <string.h>

bool mr_rule_vis1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    double unseen = fmax(mr_known_or(f->mapped_bytes, 0), mr_known_or(f->opened_bytes, 0)),
           seen = mr_known_or(f->read_bytes, 0);
    double sampled = mr_known_or(f->fault_bytes, 0);
    if (unseen < 1048576 || unseen < 0.1 * seen)
        return mr_silent(a, "what was opened was read by calls that the trace shows");
    if (sampled >= 0.01 * unseen)
        return mr_silent(a, "page faults of mapped files are in the trace: %s", mr_say_bytes(a, sampled));
    d->f.confidence = 0.7;
    d->f.title =
        mr_say(a,
               "%s of data files were opened or mapped, and only %s read by calls: reads through memory maps or other "
               "interfaces do not show",
               mr_say_bytes(a, unseen), mr_say_bytes(a, seen));
    d->f.fix = "trace page faults, too; until then reads may be missing from every figure";
    d->f.evidence =
        mr_say(a, "mapped %s, opened and hardly read %s, read by calls %s, page faults %s",
               mr_say_bytes(a, mr_known_or(f->mapped_bytes, 0)), mr_say_bytes(a, mr_known_or(f->opened_bytes, 0)),
               mr_say_bytes(a, seen), mr_say_bytes(a, sampled));
    d->f.formula = "none: nothing is saved by knowing";
    d->f.command = f->program && *f->program && !f->program_cut
                       ? mr_say(a, "millrace trace --mmap -o mapped.mrt -- %s", f->program)
                       : NULL;
    return true;
}

bool mr_rule_cch1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    if (!f->own_run)
        return mr_silent(a, "not a benchmark run: a warm cache is welcome");
    if (!mr_known(f->cold_fraction))
        return mr_silent(a, "how much came from the device is not known");
    if (f->workload && strstr(f->workload, "throttle("))
        return mr_silent(a, "an emulated device is as slow with its data in memory");
    if (f->cold_fraction >= 0.5 || !(f->read_bytes >= 1e6))
        return mr_silent(a, "%s of the bytes came from the device", mr_say_share(a, f->cold_fraction));
    d->f.confidence = 0.9;
    d->f.title = mr_say(a, "%s of the bytes came from the page cache: the run measured memory, not storage",
                        mr_say_share(a, 1 - f->cold_fraction));
    d->f.fix = "drop the cache before the run, read directly, or use a data set larger than memory";
    d->f.evidence = mr_say(a, "%s read", mr_say_bytes(a, f->read_bytes));
    d->f.formula = "none: the result means something else";
    mr_change_option(a, d, "--cache", NULL, "cold");
    return true;
}

bool mr_rule_clk1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_trust *t = &a->x->trust;
    double limit = fmin(0.01, mr_known_or(a->f->step_s, 0.1) / 10);
    if (!mr_known(t->clock_residual_s))
        return mr_silent(a, "one clock");
    if (t->clock_residual_s <= limit)
        return mr_silent(a, "clocks agree to %s", mr_say_s(a, t->clock_residual_s));
    d->f.confidence = 0.9;
    d->f.title = mr_say(a, "clocks of the hosts differ by up to %s: who waited for whom is not certain",
                        mr_say_s(a, t->clock_residual_s));
    d->f.fix = "synchronise the hosts (chrony), trace again";
    d->f.evidence = mr_say(a, "offset %s, %s left after alignment; limit %s", mr_say_s(a, t->clock_offset_s),
                           mr_say_s(a, t->clock_residual_s), mr_say_s(a, limit));
    d->f.formula = "none: a matter of trust";
    return true;
}

bool mr_rule_trc1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_trust *t = &a->x->trust;
    double lost = (double)(t->lost + t->gone);
    if (!(lost > 0))
        return mr_silent(a, "no event was lost");
    d->f.confidence = 1;
    d->f.title = mr_say(a, "%s of %s events were lost: sums are too small", mr_say_count(a, lost),
                        mr_say_count(a, lost + (double)t->events));
    d->f.fix = "larger buffers, or trace less (only the data folder)";
    d->f.evidence = mr_say(a, "%s dropped while tracing, %s gone from the file", mr_say_count(a, (double)t->lost),
                           mr_say_count(a, (double)t->gone));
    d->f.formula = "none: a matter of trust";
    return true;
}
