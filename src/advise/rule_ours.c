/* Rules that name parts of our own where they win: the loader, where decoding pictures is what takes long. */
#include "advise/advise_internal.h"
#include "base/common.h"

#include <string.h>
#include <strings.h>

#define DECODES 0.5    /* of a batch's load */
#define PUBLISHED 2.35 /* times as quick as torchvision's: ResNet-50's pictures, 16 CPUs (bench/RESULTS.md) */
#define MEASURED_X 1.3 /* other transforms than those that were measured cost so much more */
#define OURS_AHEAD 3   /* batches: the default of millrace.torch.DataLoader */

static bool is_picture(const char *ending)
{
    static const char *const pictures[] = {"jpg", "jpeg", "png"};
    for (unsigned i = 0; i < MR_ARRAY_LEN(pictures); i++)
        if (!strcasecmp(ending, pictures[i]))
            return true;
    return false;
}

/* Most of the bytes that were read are pictures. */
bool mr_has_pictures(const struct mr_explanation *x)
{
    double all = 0, pictures = 0;
    for (size_t i = 0; i < x->files; i++) {
        const struct mr_explain_file *f = &x->file[i];
        const char *dot = f->path && !f->own_log ? strrchr(f->path, '.') : NULL;
        all += (double)f->read_bytes;
        pictures += dot && is_picture(dot + 1) ? (double)f->read_bytes : 0;
    }
    return pictures > 0.5 * all || (x->facts.format && is_picture(x->facts.format));
}

static double batch_of(const struct mr_advice *a)
{
    double samples = 0;
    for (size_t i = 0; i < a->x->ranks; i++)
        samples += (double)a->x->rank[i].samples;
    double steps = (double)a->x->steps;
    return mr_known(a->f->batch) ? a->f->batch : samples > 0 && steps > 0 ? samples / steps : NAN;
}

/* All CPUs of the rank as threads that make batches together, each of `times` its present CPU time. */
static struct mr_pipeline ours(const struct mr_pipeline *p, double times)
{
    struct mr_pipeline q = *p;
    q.workers = fmax(1, floor(mr_known_or(p->cpus, fmax(1, p->workers))));
    q.ahead = OURS_AHEAD;
    q.team = q.keeps = true;
    q.cpu_x = times;
    return q;
}

bool mr_rule_ld1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    struct mr_pipeline p = mr_pipeline_now(a);
    double batch = batch_of(a);
    bool measured = mr_known(f->our_sample_s) && mr_known(batch) && p.cpu_s > 0;
    if (!a->starved)
        return mr_silent(a, "waits for data take %s of the time", mr_say_share(a, a->stall_share));
    if (!f->framework || strcmp(f->framework, "pytorch") != 0 || f->team || f->no_loader)
        return mr_silent(a, "the program has no DataLoader of PyTorch");
    if (!mr_has_pictures(a->x))
        return mr_silent(a, "the data are no pictures that our loader decodes");
    if (!mr_pipeline_known(&p) || p.cpu_s < DECODES * (p.read_s + p.cpu_s))
        return mr_silent(a, "reading a batch takes %s, decoding it %s", mr_say_s(a, p.read_s), mr_say_s(a, p.cpu_s));
    double times = measured ? f->our_sample_s * batch / p.cpu_s : 1 / PUBLISHED;
    struct mr_pipeline q = ours(&p, times), slower = ours(&p, MEASURED_X * times);
    if (!mr_predict(a, d, &q))
        return mr_silent(a, "how long it takes to load a batch is not in the trace");
    double least = fmax(0, mr_predict_s(a, &slower));
    (void)mr_predict_s(a, &q); /* the one that the text shows */
    d->f.saves_low_s = measured ? fmin(d->f.saves_low_s, least) : 0;
    d->f.confidence = measured ? 0.85 : 0.6;
    d->f.title = mr_say(a, "a batch takes %s of a CPU to decode and transform%s", mr_say_s(a, p.cpu_s),
                        measured ? mr_say(a, "; our loader decodes %.0f pictures/s with %.0f threads on this machine",
                                          q.workers / f->our_sample_s, q.workers)
                                 : "; how quick our loader is here was not measured ('millrace report --measure')");
    d->f.fix = "millrace.torch.DataLoader in place of PyTorch's: the same arguments, order and pictures, decoded by "
               "threads without Python";
    d->f.evidence =
        mr_say(a, "%.0f workers, %.3g CPUs for each rank; data: %s", p.workers, mr_known_or(p.cpus, NAN), f->format);
    d->f.formula =
        mr_replay_formula(a, mr_say(a, "%.0f threads of our loader, decoding in %s of the time (%s)", q.workers,
                                    mr_say_share(a, times), measured ? "measured" : "as published"));
    mr_change_argument(a, d, MR_TARGET_LOADER, "loader", MR_TARGET_LOADER, MR_TARGET_OUR_LOADER);
    return true;
}
