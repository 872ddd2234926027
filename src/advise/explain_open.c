/* From files to an explanation with findings: see explain_open.h. */
#include "advise/explain_open.h"
#include "advise/advise.h"
#include "base/common.h"
#include "explain/clock_align.h"
#include "explain/explain_settings.h"
#include "import/trace_read.h"

#include <math.h>

int mr_explain_read(const char *const *paths, size_t n, unsigned threads, const atomic_bool *stop,
                    struct mr_trace **out, struct mr_error *err)
{
    struct mr_trace *t = NULL;
    int rc = mr_trace_create(&t, err);
    if (!rc)
        t->stop = stop;
    rc = rc ? rc : mr_trace_add_all(t, paths, n, threads, err);
    rc = rc ? rc : mr_trace_finish(t, err);
    rc = rc ? rc : mr_clock_align(t, err);
    if (rc)
        mr_trace_free(t);
    else
        *out = t;
    return rc;
}

static bool is_part(const struct mr_explain_options *o)
{
    return o->rank >= 0 || o->step_from >= 0 || o->from_ns || o->to_ns;
}

/* Bytes that are in no call of the part that is shown are those of the whole run, recorded at its end. */
static void forget_totals(struct mr_explanation *x)
{
    struct mr_explain_facts *f = &x->facts;
    uint64_t calls = 0;
    for (size_t r = 0; r < x->ranks; r++)
        calls += x->rank[r].read_calls;
    if (f->own_run && !calls)
        f->read_bytes = f->wall_bytes_per_s = f->epoch_bytes = f->node_epoch_bytes = f->dataset_bytes = NAN;
}

int mr_explain_trace(const struct mr_trace *t, const struct mr_explain_how *how, struct mr_explanation **out,
                     struct mr_error *err)
{
    struct mr_explanation *x = NULL;
    int rc = mr_explain(t, &how->explain, &x, err);
    if (rc)
        return rc;
    const struct mr_explain_facts of_part = x->facts;
    if (how->summary)
        mr_explain_run_summary(x, how->summary);
    else
        mr_explain_run_folder(x, how->folder);
    if (is_part(&how->explain)) {
        x->facts.au = of_part.au;
        x->facts.au_low = of_part.au_low;
        x->facts.au_high = of_part.au_high;
        x->facts.au_cold = of_part.au_cold;
        forget_totals(x);
    }
    x->counted_from = how->counted_from;
    x->counted_to = how->counted_to;
    rc = how->measure ? how->measure(x, how->explain.stop, err) : 0;
    rc = rc ? rc : mr_advise(x, err);
    if (rc)
        mr_explanation_free(x);
    else
        *out = x;
    return rc;
}

int mr_explain_open(const char *const *paths, size_t n, const struct mr_explain_how *how, struct mr_explanation **out,
                    struct mr_error *err)
{
    struct mr_explain_how use = *how;
    struct mr_trace *t = NULL;
    use.explain.source = use.explain.source ? use.explain.source : paths[0];
    use.folder = use.folder ? use.folder : paths[0];
    int rc = mr_explain_read(paths, n, use.explain.threads, use.explain.stop, &t, err);
    rc = rc ? rc : mr_explain_trace(t, &use, out, err);
    mr_trace_free(t);
    return rc;
}
