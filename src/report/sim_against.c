/* `sim --from RUN`: the prediction of the run's own policy beside what the run measured, by epoch and by source. */
#include "base/common.h"
#include "report/sim_text.h"

#include <math.h>
#include <string.h>

#define MB 1e6

static double off_by(double predicted, double measured)
{
    return measured > 0 ? predicted / measured - 1 : NAN;
}

static json_t *real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static const struct mr_sim_result *find_own(const struct mr_study *st, const struct mr_job_measured *m)
{
    for (unsigned i = 0; i < st->n; i++)
        if (st->rows[i].mean.possible && strcmp(mr_policy_name(st->rows[i].mean.policy), m->policy) == 0)
            return &st->rows[i].mean;
    return NULL;
}

static double own_mb(const struct mr_sim_result *r)
{
    double sum = 0;
    for (unsigned j = 0; j < MR_CLASS_MAX; j++) /* with what was staged already */
        sum += r->class_mb[j];
    return sum;
}

static unsigned epochs_of(const struct mr_study *st)
{
    return MR_MIN(st->scenario.epochs, (uint32_t)MR_SIM_EPOCHS_TOLD);
}

/* "12.3 MB / 12.4 MB": predicted and measured; a dash where the run does not say. */
static const char *pair(double predicted_bytes, double measured_bytes, char out[64])
{
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN];
    snprintf(out, 64, "%s / %s", mr_human_bytes(predicted_bytes, a),
             isfinite(measured_bytes) ? mr_human_bytes(measured_bytes, b) : "-");
    return out;
}

static void print_line(struct mr_strbuf *o, const char *name, double predicted_s, double measured_s,
                       const struct mr_sim_epoch *p, const struct mr_job_measured_epoch *m)
{
    char source[64], peer[64], own[64];
    mr_strbuf_printf(o, "%-6s %10.2f %10.2f %+8.1f %%  %23s %23s %23s\n", name, predicted_s, measured_s,
                     100 * off_by(predicted_s, measured_s), pair(p->pfs_mb * MB, m->source_bytes, source),
                     pair(p->peer_mb * MB, m->peer_bytes, peer), pair(p->own_mb * MB, m->own_bytes, own));
}

void mr_report_against(const struct mr_study *st, const struct mr_job_measured *m, struct mr_strbuf *o)
{
    const struct mr_sim_result *r = find_own(st, m);
    if (!r)
        return;
    mr_strbuf_printf(o, "\nthe run itself, policy %s: predicted / measured\n%-6s %10s %10s %10s  %23s %23s %23s\n",
                     m->policy, "EPOCH", "TIME s", "RUN s", "OFF", "FROM SOURCE", "FROM PEERS", "FROM OWN CLASSES");
    for (unsigned e = 0; e < epochs_of(st); e++) {
        char name[16];
        bool rest = e + 1 == MR_SIM_EPOCHS_TOLD && st->scenario.epochs > MR_SIM_EPOCHS_TOLD;
        snprintf(name, sizeof name, "%u%s", e + 1, rest ? "..." : "");
        print_line(o, name, r->epochs[e].time_s, m->epoch[e].time_s, &r->epochs[e], &m->epoch[e]);
    }
    const struct mr_sim_epoch all = {.pfs_mb = r->pfs_mb, .peer_mb = r->peer_mb, .own_mb = own_mb(r)};
    const struct mr_job_measured_epoch run = {
        .source_bytes = m->source_bytes, .peer_bytes = m->peer_bytes, .own_bytes = m->own_bytes};
    print_line(o, "all", r->time_s, m->duration_s, &all, &run);
}

static json_t *figures(double time_s, double source, double peer, double own)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "time_s", real(time_s), "source_bytes", real(source), "peer_bytes",
                     real(peer), "own_bytes", real(own));
}

json_t *mr_report_against_json(const struct mr_study *st, const struct mr_job_measured *m)
{
    const struct mr_sim_result *r = find_own(st, m);
    if (!r)
        return json_null();
    json_t *list = json_array();
    for (unsigned e = 0; e < epochs_of(st); e++) {
        const struct mr_sim_epoch *p = &r->epochs[e];
        const struct mr_job_measured_epoch *x = &m->epoch[e];
        json_array_append_new(list,
                              json_pack("{s:i, s:o, s:o}", "epoch", (int)e, "predicted",
                                        figures(p->time_s, p->pfs_mb * MB, p->peer_mb * MB, p->own_mb * MB), "measured",
                                        figures(x->time_s, x->source_bytes, x->peer_bytes, x->own_bytes)));
    }
    return json_pack("{s:s, s:o, s:o, s:o, s:o}", "policy", m->policy, "off", real(off_by(r->time_s, m->duration_s)),
                     "predicted", figures(r->time_s, r->pfs_mb * MB, r->peer_mb * MB, own_mb(r) * MB), "measured",
                     figures(m->duration_s, m->source_bytes, m->peer_bytes, m->own_bytes), "epochs", list);
}
