/* Making a job: the workload resolved once, and what makes no sense refused before anything is read or written. */
#include "explain/explain.h"
#include "job/job_internal.h"
#include "base/common.h"
#include "conf/workload_apply.h"
#include "job/job_tiers.h"
#include "store/store.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void mr_job_note(struct mr_strings *list, struct mr_arena *a, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char **grown = mr_arena_alloc(a, (list->n + 1) * sizeof(*grown));
    const char *copy = mr_arena_strdup(a, text);
    if (!grown || !copy)
        return;
    if (list->n)
        memcpy(grown, list->item, list->n * sizeof(*grown));
    grown[list->n++] = copy;
    list->item = grown;
}

/* An option that would change nothing is a mistake of whoever gave it. */
static int check_idle(const struct mr_job *j, struct mr_error *err)
{
    const struct mr_job_options *o = &j->opt;
    const struct mr_conf_workflow *flow = &j->w->workflow;
    const char *what =
        o->cache_each_epoch && o->cache == MR_CACHE_ASIS ? "--cache-each-epoch needs --cache cold or warm"
        : o->checkpoint_every_ns && !flow->checkpoint    ? "--checkpoint-every needs workflow.checkpoint=true"
        : o->checkpoint_every_ns && !flow->train         ? "--checkpoint-every needs workflow.train=true"
        : o->keep_last && !flow->checkpoint              ? "--keep-last needs workflow.checkpoint=true"
        : *o->burst_buffer && !flow->checkpoint          ? "--burst-buffer needs workflow.checkpoint=true"
                                                         : NULL;
    return what ? mr_error_plain(err, MR_E_USAGE, "%s, without which it has no effect", what) : 0;
}

/* The words given, and the options that stand for a key of the workload. */
static int all_overrides(const struct mr_job_request *req, struct mr_strings *out, struct mr_error *err)
{
    const size_t pairs = 16;
    unsigned n = req->overrides.n;
    const char **item = mr_arena_alloc(req->arena, (n + pairs) * sizeof(*item));
    if (!item)
        return mr_error_set(err, -ENOMEM, "cannot read the options");
    for (unsigned i = 0; i < n; i++)
        item[i] = req->overrides.item[i];
    for (const struct mr_job_option_pair *p = mr_job_option_pairs; p->option; p++) {
        const struct mr_option *o = mr_option_find(&mr_job_options_table, p->option);
        const char *value;
        if (!p->is_override)
            continue;
        assert(o && o->type == MR_OPT_STRING && n - req->overrides.n < pairs);
        memcpy(&value, (const char *)req->options + o->offset, sizeof(value));
        if (!*value)
            continue;
        if (!(item[n] = mr_arena_printf(req->arena, "%s=%s", p->key, value)))
            return mr_error_set(err, -ENOMEM, "cannot read the options");
        n++;
    }
    *out = (struct mr_strings){.n = n, .item = item};
    return 0;
}

int mr_job_resolve(const struct mr_job_request *req, struct mr_job *out, struct mr_error *err)
{
    struct mr_workload_request ask = {.workload = req->options->workload,
                                      .search_path = req->search_path,
                                      .envp = req->envp,
                                      .lenient = req->options->lenient};
    memset(out, 0, sizeof(*out));
    out->opt = *req->options;
    out->req = *req;
    out->req.options = NULL; /* the caller's may change */
    out->arena = req->arena;
    out->stop = req->stop;
    int rc = all_overrides(req, &ask.overrides, err);
    if (!rc)
        rc = mr_workload_resolve(&ask, req->arena, &out->w, err);
    if (!rc)
        mr_job_export_storage(out->w);
    const char *name = mr_workload_chosen(&ask); /* workload=NAME is recorded, too */
    out->opt.workload = name ? name : "";
    out->seed = rc ? 0 : out->opt.seed >= 0 ? (uint64_t)out->opt.seed : (uint64_t)out->w->train.seed;
    return rc;
}

/* A workload file may be somebody else's. The folders that it may write to have keys of their own; a shim's file would
 * be replaced wherever it is. */
static int check_stores(const struct mr_job *j, struct mr_error *err)
{
    const struct mr_value_origin *from = mr_workload_origin(j->w, "checkpoint.burst_buffer", "store");
    char which[128];
    if (from->kind != MR_ORIGIN_FILE || !mr_store_spec_writes(j->w->burst_buffer.store, which, sizeof which))
        return 0;
    mr_error_plain(err, MR_E_CONFIG, "%s:%u: a workload file may not name a place that a store writes to: %s in '%s'",
                   from->where, from->line, which, j->w->burst_buffer.store);
    return mr_error_hint(err, "if you mean it: 'checkpoint.burst_buffer.store=...' on the command line"), MR_E_CONFIG;
}

int mr_job_check(const struct mr_job *j, struct mr_error *err)
{
    int rc = mr_workload_check_supported(j->w, err);
    if (!rc)
        rc = check_stores(j, err);
    if (!rc)
        rc = mr_job_check_tiers(j, err);
    return rc ? rc : check_idle(j, err);
}

int mr_job_make_plan(struct mr_job *j, struct mr_error *err)
{
    uint32_t launched = j->req.is_local ? 0 : mr_comm_detect_launcher(NULL);
    int rc = mr_plan_make(j->w, j->opt.ranks ? (uint32_t)j->opt.ranks : launched, &j->plan, err);
    j->plan.checkpoint.scale = j->opt.scale;
    return rc;
}

int mr_job_check_work(const struct mr_job *j, struct mr_error *err)
{
    const struct mr_conf_workflow *flow = &j->w->workflow;
    if (j->w->storage.storage_type == MR_CS_AISTORE) {
        mr_error_plain(err, MR_E_UNSUPPORTED, "storage.storage_type: aistore cannot be run in this version");
        return mr_error_hint(err, "to run it on files: storage.storage_type=local_fs --data FOLDER"), MR_E_UNSUPPORTED;
    }
    if (flow->train)
        return 0;
    if (!flow->checkpoint && (flow->generate_data || j->opt.generate))
        return 0;
    if (!flow->checkpoint) {
        mr_error_plain(err, MR_E_CONFIG, "the workload has nothing to do: train, checkpoint and generate_data are off");
        return mr_error_hint(err, "set 'workflow.train=true'"), MR_E_CONFIG;
    }
    if (j->w->checkpoint.num_checkpoints_write <= 0 && j->w->checkpoint.num_checkpoints_read <= 0) {
        mr_error_plain(err, MR_E_CONFIG,
                       "the workload has nothing to do: it neither trains nor writes nor reads checkpoints");
        return mr_error_hint(err, "set 'checkpoint.num_checkpoints_write=10 checkpoint.num_checkpoints_read=10'"),
               MR_E_CONFIG;
    }
    return 0;
}

void mr_job_done(struct mr_job *j)
{
    mr_bench_board_free(j->result.board);
    free(j->result.series);
    free(j->result.metrics);
    free(j->result.dlio);
    mr_explanation_free(j->result.explained);
    json_decref(j->result.host);
    json_decref(j->config);
    j->config = NULL;
    memset(&j->result, 0, sizeof j->result);
}
