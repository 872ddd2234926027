/* Settings of what_if.h as those of a replay: the advisor's own pipeline (advise_settings.c) with what is changed put
 * in, so that the advice and a search over settings give the same seconds. */
#include "advise/what_if.h"
#include "advise/advise_internal.h"
#include "advise/replay.h"
#include "base/common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct mr_what_if {
    struct mr_advice a;
    struct mr_pipeline now;
    struct mr_replay_save *save; /* of all ranks: one after the other */
    size_t saves;
    double saved_bytes, read_bytes, latency_s, stream; /* of a read: as measured */
};

struct mr_what_if_settings mr_what_if_same(void)
{
    return (struct mr_what_if_settings){.workers = NAN,
                                        .ahead = NAN,
                                        .persistent = NAN,
                                        .storage_bytes_per_s = NAN,
                                        .stream_bytes_per_s = NAN,
                                        .read_latency_s = NAN,
                                        .read_bytes = NAN,
                                        .cached_share = NAN,
                                        .cached_bytes_per_s = NAN,
                                        .cached_from = NAN,
                                        .save_bytes_per_s = NAN,
                                        .saves = MR_WHAT_IF_SAVES_SAME};
}

/* Latency and rate of one reader: the line through the sizes that were read. Reads of one size only do
 * not separate them: then a read is all latency below 64 KiB, and all rate above. */
static void measure_reads(struct mr_what_if *w)
{
    const struct mr_explain_sizes *s = &w->a.x->read_sizes;
    double ops = 0, bytes = 0, seconds = 0, xx = 0, xy = 0;
    for (unsigned k = 0; k < MR_EXPLAIN_SIZE_BINS; k++) {
        ops += (double)s->ops[k];
        bytes += (double)s->bytes[k];
        seconds += (double)s->dur_ns[k] / 1e9;
    }
    if (!(ops > 0) || !(bytes > 0) || !(seconds > 0))
        return;
    double mean = bytes / ops, each = seconds / ops;
    for (unsigned k = 0; k < MR_EXPLAIN_SIZE_BINS; k++) {
        double n = (double)s->ops[k], x = n > 0 ? (double)s->bytes[k] / n - mean : 0;
        xx += n * x * x;
        xy += n * x * ((double)s->dur_ns[k] / 1e9 / fmax(n, 1) - each);
    }
    bool apart = xx > 0.01 * ops * mean * mean;
    double per_byte = apart ? fmin(fmax(0, xy / xx), each / mean) : mean < 65536 ? 0 : each / mean;
    w->read_bytes = mean;
    w->latency_s = each - per_byte * mean;
    w->stream = per_byte > 0 ? 1 / per_byte : INFINITY;
}

int mr_what_if_open(struct mr_explanation *x, struct mr_what_if **out, struct mr_error *err)
{
    struct mr_what_if *w = calloc(1, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot replay '%s'", x->source ? x->source : "the run");
    mr_advice_prepare(&w->a, x);
    w->now = mr_pipeline_now(&w->a);
    measure_reads(w);
    int rc = mr_checkpoint_saves(&w->a, &w->save, &w->saves);
    for (size_t i = 0; i < w->saves; i++)
        w->saved_bytes += w->save[i].bytes;
    bool told = x->facts.has_steps && mr_known(mr_predict_s(&w->a, &w->now));
    if (!rc && w->a.failed)
        rc = -ENOMEM;
    if (rc || !told) {
        mr_what_if_close(w);
        return rc ? mr_error_set(err, rc, "cannot replay '%s'", x->source ? x->source : "the run")
                  : mr_error_set(err, MR_E_UNSUPPORTED,
                                 "cannot replay '%s': the time that a batch takes to load is unknown",
                                 x->source ? x->source : "the run");
    }
    *out = w;
    return 0;
}

void mr_what_if_close(struct mr_what_if *w)
{
    if (!w)
        return;
    mr_prediction_free(w->a.training);
    mr_prediction_free(w->a.evaluation);
    free(w->save);
    free(w);
}

void mr_what_if_now(const struct mr_what_if *w, struct mr_what_if_settings *out)
{
    *out = mr_what_if_same();
    out->workers = w->now.workers;
    out->ahead = w->now.ahead;
    out->persistent = w->now.keeps;
    out->storage_bytes_per_s = w->now.storage > 0 ? w->now.storage : INFINITY;
    out->stream_bytes_per_s = w->stream;
    out->read_latency_s = w->latency_s;
    out->read_bytes = w->read_bytes;
    out->cached_share = 0;
}

static void set_reads(const struct mr_what_if *w, const struct mr_what_if_settings *s, struct mr_pipeline *q)
{
    bool latency = mr_known(s->read_latency_s), rate = !isnan(s->stream_bytes_per_s), size = mr_known(s->read_bytes);
    if (!isnan(s->storage_bytes_per_s))
        q->storage = isfinite(s->storage_bytes_per_s) ? s->storage_bytes_per_s : 0;
    if (!latency && !rate && !size)
        return;
    double each = latency ? s->read_latency_s : w->latency_s;
    double stream = rate ? s->stream_bytes_per_s : latency ? INFINITY : w->stream;
    double bytes = size ? s->read_bytes : w->read_bytes;
    q->read_s_per_byte = fmax(1e-15, (bytes > 0 ? each / bytes : 0) + (stream > 0 ? 1 / stream : 0));
}

static uint32_t first_epoch(const struct mr_explanation *x)
{
    uint32_t first = UINT32_MAX;
    for (size_t i = 0; i < x->steps; i++)
        first = MR_MIN(first, x->step[i].epoch);
    return first;
}

static struct mr_pipeline changed(const struct mr_what_if *w, const struct mr_what_if_settings *s)
{
    struct mr_pipeline q = w->now;
    q.workers = mr_known_or(s->workers, q.workers);
    q.ahead = mr_known_or(s->ahead, q.ahead);
    if (mr_known(s->workers) && !mr_known(s->ahead) && q.workers != w->now.workers)
        q.ahead = q.team ? q.ahead : fmax(q.ahead, 2 * q.workers); /* as PyTorch does it */
    if (w->now.workers < 1 && q.workers >= 1)
        mr_pipeline_hand_over(&w->a, &q);
    q.keeps = mr_known(s->persistent) ? s->persistent > 0 : q.keeps;
    set_reads(w, s, &q);
    if (s->cached_share > 0) {
        q.tier_share = fmin(1, s->cached_share);
        q.tier_rate = mr_known_or(s->cached_bytes_per_s, MR_RAM_RATE);
        q.tier_meta_x = MR_STAGED_META;
        q.tier_from = first_epoch(w->a.x) + (uint32_t)mr_known_or(s->cached_from, 0);
    }
    return q;
}

void mr_what_if_of_changes(struct mr_what_if_settings *s, const struct mr_change *change, size_t n)
{
    double factor = 2; /* PyTorch's own */
    bool is_own = n && change[0].kind == MR_CHANGE_OPTION;
    for (size_t i = 0; i < n; i++) {
        double v = !strcmp(change[i].to, "true") ? 1 : !strcmp(change[i].to, "false") ? 0 : strtod(change[i].to, NULL);
        if (!strcmp(change[i].key, "num_workers") || !strcmp(change[i].key, "reader.read_threads"))
            s->workers = v;
        else if (!strcmp(change[i].key, "reader.prefetch_size"))
            s->ahead = v;
        else if (!strcmp(change[i].key, "checkpoint.engine"))
            s->saves = strcmp(change[i].to, "async") != 0 ? MR_WHAT_IF_SAVES_SAME : MR_WHAT_IF_SAVES_ASYNC;
        else if (!strcmp(change[i].key, "reader.read_type"))
            s->cached_share = !strcmp(change[i].to, "memory");
        else if (!strcmp(change[i].key, "persistent_workers"))
            s->persistent = v;
        else if (!strcmp(change[i].key, "prefetch_factor"))
            factor = v;
        else if (!strcmp(change[i].key, "saver"))
            s->saves = MR_WHAT_IF_SAVES_ASYNC;
        else if (!strcmp(change[i].key, "data")) {
            s->cached_share = 1;
            s->cached_bytes_per_s = strcmp(change[i].to, "disk") != 0 ? NAN : MR_SSD_RATE;
        }
    }
    if (mr_known(s->workers) && isnan(s->ahead) && !is_own)
        s->ahead = factor * s->workers;
}

static double blocked_s(const struct mr_what_if *w, const struct mr_what_if_settings *s)
{
    if (s->saves == MR_WHAT_IF_SAVES_SAME || !w->saves || !(w->saved_bytes > 0))
        return w->a.checkpoint_s;
    double rate = s->saves == MR_WHAT_IF_SAVES_ASYNC ? MR_COPY_RATE : MR_LOCAL_RATE;
    rate = mr_known_or(s->save_bytes_per_s, rate);
    return mr_replay_saves(w->save, w->saves, 1 / fmax(rate, 1), 1);
}

int mr_what_if_run(struct mr_what_if *w, const struct mr_what_if_settings *s, struct mr_what_if_result *out,
                   struct mr_error *err)
{
    const double value[] = {s->workers,        s->ahead,           s->storage_bytes_per_s, s->stream_bytes_per_s,
                            s->read_latency_s, s->read_bytes,      s->cached_share,        s->cached_bytes_per_s,
                            s->cached_from,    s->save_bytes_per_s};
    for (unsigned i = 0; i < MR_ARRAY_LEN(value); i++)
        if (value[i] < 0)
            return mr_error_set(err, -EINVAL, "a setting of a replay is %g, less than 0", value[i]);
    const struct mr_pipeline q = changed(w, s);
    double saves = mr_predict_s(&w->a, &q);
    if (!mr_known(saves))
        return mr_error_set(err, -ENOMEM, "cannot replay the run");
    double blocked = blocked_s(w, s);
    *out =
        (struct mr_what_if_result){.saves_s = saves, .stall_s = fmax(0, w->a.stall_s - saves), .checkpoint_s = blocked};
    out->wall_s = fmax(0, w->a.run_s - (w->a.stall_s - out->stall_s) - (w->a.checkpoint_s - blocked));
    return 0;
}
