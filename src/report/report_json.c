/* JSON of an explanation: see report_json.h. */
#include "report/report_json.h"
#include "base/common.h"

#include <math.h>
#include <string.h>

#define STEPS_MOST 20000u /* single steps; sums are of all */

static const char *const time_key[] = {
#define TIME_KEY(name, key, text) [MR_TIME_##name] = key,
    MR_TIME_CLASSES(TIME_KEY)
#undef TIME_KEY
};
static const char *const stall_key[] = {
#define STALL_KEY(name, key, text) [MR_STALL_##name] = key,
    MR_STALL_CAUSES(STALL_KEY)
#undef STALL_KEY
};
static const char *const wait_key[] = {
#define WAIT_KEY(name, key) [MR_WAIT_##name] = key,
    MR_WAIT_CLASSES(WAIT_KEY)
#undef WAIT_KEY
};
static const char *const verdict_key[] = {
#define VERDICT_KEY(name, key) [MR_VERDICT_##name] = key,
    MR_VERDICT_CLASSES(VERDICT_KEY)
#undef VERDICT_KEY
};

static void put_text(struct mr_out *o, const char *text)
{
    if (text)
        mr_out_json(o, text, strlen(text), MR_JSON_PRIVATE);
    else
        mr_out_text(o, "null");
}

static void put_real(struct mr_out *o, double v)
{
    if (isfinite(v))
        mr_out_format(o, "%.15g", v);
    else
        mr_out_text(o, "null");
}

/* "key":value with a comma in front but for the first of an object. */
static void member(struct mr_out *o, const char *key, double v, bool first)
{
    mr_out_format(o, "%s\"%s\":", first ? "" : ",", key);
    put_real(o, v);
}

static void member_ns(struct mr_out *o, const char *key, uint64_t ns, bool first)
{
    mr_out_format(o, "%s\"%s_s\":", first ? "" : ",", key);
    put_real(o, ns == MR_TIME_UNKNOWN ? NAN : (double)ns / 1e9);
}

static void member_text(struct mr_out *o, const char *key, const char *text)
{
    mr_out_format(o, ",\"%s\":", key);
    put_text(o, text);
}

static void member_count(struct mr_out *o, const char *key, uint64_t v)
{
    mr_out_format(o, ",\"%s\":", key);
    if (v == MR_TIME_UNKNOWN)
        mr_out_text(o, "null");
    else
        mr_out_number(o, v);
}

static void put_classes(struct mr_out *o, const char *name, const char *const *key, const uint64_t *ns, unsigned n)
{
    mr_out_format(o, "\"%s\":{", name);
    for (unsigned c = 0; c < n; c++)
        member_ns(o, key[c], ns[c], c == 0);
    mr_out_text(o, "}");
}

static void put_times(struct mr_out *o, const uint64_t *ns, const uint64_t *stall)
{
    put_classes(o, "time", time_key, ns, MR_TIME_CLASS_COUNT);
    mr_out_text(o, ",");
    put_classes(o, "stall", stall_key, stall, MR_STALL_CAUSE_COUNT);
}

/* The same of the run or a rank: without steps there is neither a split of the time nor a stall. */
static void put_split(struct mr_out *o, const struct mr_explanation *x, const uint64_t *ns, const uint64_t *stall,
                      const uint64_t *wait)
{
    uint64_t unknown[MR_MAX((int)MR_TIME_CLASS_COUNT, (int)MR_STALL_CAUSE_COUNT)], waits[MR_WAIT_CLASS_COUNT];
    memset(unknown, 0xff, sizeof unknown);
    _Static_assert(MR_TIME_UNKNOWN == UINT64_MAX, "all bits set");
    for (unsigned c = 0; c < MR_WAIT_CLASS_COUNT; c++)
        waits[c] = x->unseen_waits >> c & 1 ? MR_TIME_UNKNOWN : wait[c];
    put_times(o, x->facts.has_steps ? ns : unknown, x->facts.has_steps ? stall : unknown);
    mr_out_text(o, ",");
    put_classes(o, "waits", wait_key, waits, MR_WAIT_CLASS_COUNT);
}

static void put_verdict(struct mr_out *o, const struct mr_explanation *x)
{
    const struct mr_verdict *v = &x->verdict;
    mr_out_format(o, "\"verdict\":{\"class\":\"%s\"", verdict_key[v->verdict]);
    bool steps = x->facts.has_steps;
    member(o, "stall_share", steps ? v->stall_share : NAN, false);
    member(o, "stall_s", steps ? v->stall_s : NAN, false);
    member(o, "evaluation_stall_s", steps ? v->evaluation_s : NAN, false);
    member_text(o, "cause", x->ns[MR_TIME_STALL] ? stall_key[v->cause] : NULL);
    mr_out_text(o, ",\"lines\":[");
    for (unsigned i = 0, n = 0; i < MR_ARRAY_LEN(v->line); i++)
        if (v->line[i]) {
            mr_out_text(o, n++ ? "," : "");
            put_text(o, v->line[i]);
        }
    mr_out_text(o, "]");
    member_text(o, "missing", v->missing);
    mr_out_text(o, "},\n");
}

/* A value as JSON has it: what was a number or true in the program is one here. */
static void put_typed(struct mr_out *o, const char *name, const char *text)
{
    char *end = NULL;
    mr_out_format(o, ",\"%s\":", name);
    if (text && *text && ((void)strtod(text, &end), !*end) && strspn(text, "0123456789.-") == strlen(text))
        mr_out_text(o, text);
    else if (text && (!strcmp(text, "true") || !strcmp(text, "false")))
        mr_out_text(o, text);
    else
        put_text(o, text);
}

static void put_changes(struct mr_out *o, const struct mr_finding *f)
{
#define KEY(name, key, ...) key,
    static const char *const kind[] = {MR_CHANGE_KINDS(KEY)}, *const framework[] = {MR_IDIOMS(KEY)};
#undef KEY
    mr_out_text(o, ",\"changes\":[");
    for (size_t i = 0; i < f->changes; i++) {
        const struct mr_change *c = &f->change[i];
        mr_out_format(o, "%s\n {\"kind\":\"%s\",\"framework\":\"%s\"", i ? "," : "", kind[c->kind],
                      framework[c->framework]);
        member_text(o, "target", c->target);
        member_text(o, "key", c->key);
        put_typed(o, "from", c->from);
        put_typed(o, "to", c->to);
        member_text(o, "note", c->note);
        member_text(o, "file", c->file);
        mr_out_format(o, ",\"line\":");
        mr_out_format(o, c->file ? "%u}" : "null}", c->line);
    }
    mr_out_text(o, "]");
}

static void put_findings(struct mr_out *o, const struct mr_explanation *x)
{
    mr_out_text(o, "\"findings\":[");
    for (size_t i = 0; i < x->findings; i++) {
        const struct mr_finding *f = &x->finding[i];
        static const char *const language[] = {"yaml", "pytorch", "tf_data", "shell"};
        mr_out_format(o, "%s\n{\"id\":\"%s\",\"severity\":\"%s\"", i ? "," : "", f->id,
                      mr_severity_name((enum mr_severity)f->severity));
        member(o, "saves_s", f->saves_s, false);
        member(o, "saves_low_s", f->saves_low_s, false);
        member(o, "saves_high_s", f->saves_high_s, false);
        member(o, "adds_s", f->adds_s, false);
        member(o, "confidence", f->confidence, false);
        member_text(o, "title", f->title);
        member_text(o, "evidence", f->evidence);
        member_text(o, "formula", f->formula);
        member_text(o, "fix", f->fix);
        put_changes(o, f);
        mr_out_text(o, ",\"snippets\":{");
        for (unsigned k = 0, n = 0; k < MR_ARRAY_LEN(language); k++)
            if (f->snippet[k]) {
                mr_out_format(o, "%s\"%s\":", n++ ? "," : "", language[k]);
                put_text(o, f->snippet[k]);
            }
        mr_out_text(o, "}");
        member_text(o, "command", f->command);
        mr_out_format(o, ",\"potential\":%s}", f->potential ? "true" : "false");
    }
    mr_out_text(o, "],\n");
}

static void put_trust(struct mr_out *o, const struct mr_explanation *x)
{
    const struct mr_explain_trust *t = &x->trust;
    mr_out_format(o, "\"trust\":{\"complete\":%s,\"cut\":%s,\"clock_jump\":%s", mr_trust_complete(t) ? "true" : "false",
                  t->cut ? "true" : "false", t->clock_jump ? "true" : "false");
    member_count(o, "events", t->events);
    member_count(o, "lost_events", t->lost);
    member_count(o, "gone_events", t->gone);
    member_count(o, "recorded_events", t->recorded);
    member_count(o, "skipped_bytes", t->skipped_bytes);
    member_count(o, "sampled_out", t->sampled_out);
    member_count(o, "ranks_missing", t->ranks_missing);
    member(o, "clock_offset_s", t->clock_offset_s, false);
    member(o, "clock_residual_s", t->clock_residual_s, false);
    member(o, "overhead_share", t->overhead_share, false);
    member(o, "cold_fraction", x->facts.cold_fraction, false);
    mr_out_text(o, ",\"notes\":[");
    for (size_t i = 0; i < t->notes; i++) {
        mr_out_text(o, i ? ",{\"text\":" : "{\"text\":");
        put_text(o, t->note[i].text);
        mr_out_format(o, ",\"serious\":%s}", t->note[i].serious ? "true" : "false");
    }
    mr_out_text(o, "]},\n");
}

static void put_objects(struct mr_out *o, const struct mr_explain_objects *s)
{
    if (!s->client) {
        mr_out_text(o, ",\"object_storage\":null");
        return;
    }
    mr_out_text(o, ",\"object_storage\":{\"client\":");
    put_text(o, s->client);
    member_text(o, "peer", s->peer);
    member(o, "requests", s->requests, false);
    member(o, "bytes", s->bytes, false);
    member(o, "connections", s->connections, false);
    member(o, "connect_s", s->connect_s, false);
    member(o, "first_byte_s", s->first_byte_s, false);
    member(o, "answer_s", s->answer_s, false);
    member(o, "in_flight", s->in_flight, false);
    member(o, "retries", s->retries, false);
    member(o, "slowdowns", s->slowdowns, false);
    mr_out_format(o, ",\"tls\":%s}", s->tls ? "true" : "false");
}

static void put_facts(struct mr_out *o, const struct mr_explain_facts *f)
{
    const struct {
        const char *key;
        double value;
    } row[] = {{"ranks", f->ranks},
               {"nodes", f->nodes},
               {"workers", f->workers},
               {"prefetch_batches", f->prefetch},
               {"batch_samples", f->batch},
               {"sample_bytes", f->sample_bytes},
               {"batch_load_s", f->batch_load_s},
               {"batch_load_p99_s", f->batch_load_p99_s},
               {"evaluation_workers", f->evaluation_workers},
               {"evaluation_load_s", f->evaluation_load_s},
               {"batch_read_s", f->batch_read_s},
               {"batch_decode_s", f->batch_decode_s},
               {"compute_s", f->compute_s},
               {"step_p50_s", f->step_s},
               {"step_p99_s", f->step_p99_s},
               {"stall_p50_s", f->stall_p50_s},
               {"stall_p99_s", f->stall_p99_s},
               {"stall_max_s", f->stall_max_s},
               {"stalled_steps_share", f->stalled_steps},
               {"queue_empty_share", f->queue_empty},
               {"reads_in_flight", f->in_flight},
               {"epochs", f->epochs},
               {"epoch_bytes", f->epoch_bytes},
               {"dataset_bytes", f->dataset_bytes},
               {"data_files", f->files},
               {"opens_per_sample", f->opens_per_sample},
               {"metadata_share", f->metadata_share},
               {"data_read_bytes", f->read_bytes},
               {"data_written_bytes", f->written_bytes},
               {"busy_bytes_per_s", f->busy_bytes_per_s},
               {"wall_bytes_per_s", f->wall_bytes_per_s},
               {"request_bytes_per_s", f->request_bytes_per_s},
               {"au", f->au},
               {"au_low", f->au_low},
               {"au_high", f->au_high},
               {"au_cold", f->au_cold},
               {"ceiling", f->ceiling},
               {"headroom", f->headroom},
               {"samples_per_s", f->samples_per_s},
               {"shared_share", f->shared_share},
               {"reread_ratio", f->reread_ratio},
               {"first_step_s", f->first_step_s},
               {"worker_cpu_share", f->worker_cpu},
               {"storage_busy_share", f->storage_busy},
               {"accelerator_idle_share", f->accelerator_idle_share},
               {"accelerator_utilisation", f->accelerator_utilisation},
               {"demand_bytes_per_s", f->demand_bytes_per_s}};
    mr_out_text(o, "\"facts\":{\"program\":");
    put_text(o, f->program);
    member_text(o, "framework", f->framework);
    member_text(o, "file_system", f->device);
    for (size_t i = 0; i < MR_ARRAY_LEN(row); i++)
        member(o, row[i].key, row[i].value, false);
    put_objects(o, &f->objects);
    mr_out_format(o, ",\"has_steps\":%s,\"has_workers\":%s,\"own_run\":%s,\"counters_only\":%s,\"shuffled\":%s},\n",
                  f->has_steps ? "true" : "false", f->has_workers ? "true" : "false", f->own_run ? "true" : "false",
                  f->counters_only ? "true" : "false", f->shuffled ? "true" : "false");
}

static void put_fields(struct mr_out *o, const struct mr_explanation *x)
{
    mr_out_text(o, "\"fields\":[");
    for (size_t i = 0; i < x->fields; i++) {
        const struct mr_explain_field *f = &x->field[i];
        mr_out_text(o, i ? ",\n{\"name\":" : "\n{\"name\":");
        put_text(o, f->name);
        member_count(o, "samples", f->samples);
        member_count(o, "stored_bytes", f->stored_bytes);
        member_count(o, "delivered_bytes", f->bytes);
        member_ns(o, "decode", f->decode_ns, false);
        member_ns(o, "transform", f->transform_ns, false);
        mr_out_text(o, "}");
    }
    mr_out_text(o, "],\n");
}

static void put_list(struct mr_out *o, const char *key, const char *const *text)
{
    mr_out_format(o, ",\"%s\":[", key);
    for (size_t i = 0; text[i]; i++) {
        mr_out_text(o, i ? "," : "");
        put_text(o, text[i]);
    }
    mr_out_text(o, "]");
}

static void put_start(struct mr_out *o, const struct mr_explain_start *s)
{
    mr_out_text(o, "\"start\":");
    if (s) {
        mr_out_text(o, "{\"folder\":");
        put_text(o, s->folder);
        put_list(o, "command", s->command);
        put_list(o, "launcher", s->launcher);
        put_list(o, "environment", s->environment);
    }
    mr_out_text(o, s ? "},\n" : "null,\n");
}

static void put_truth(struct mr_out *o, const char *key, double v)
{
    mr_out_format(o, ",\"%s\":%s", key, isnan(v) ? "null" : v > 0 ? "true" : "false");
}

static void put_places(struct mr_out *o, const struct mr_explanation *x)
{
    mr_out_text(o, "\"places\":[");
    for (size_t i = 0; i < x->places; i++) {
        const struct mr_explain_place *p = &x->place[i];
        mr_out_text(o, i ? ",\n{\"call\":" : "\n{\"call\":");
        put_text(o, p->call);
        member_text(o, "file", p->file);
        mr_out_format(o, p->file ? ",\"line\":%u" : ",\"line\":null", p->line);
        member_text(o, "by", p->by);
        member_count(o, "times", p->times);
        member(o, "loader", p->loader, false);
        member_text(o, "data_set", p->data_set);
        member(o, "num_workers", p->workers, false);
        member(o, "prefetch_factor", p->prefetch_factor, false);
        member(o, "batch_size", p->batch, false);
        put_truth(o, "persistent_workers", p->persistent);
        put_truth(o, "pin_memory", p->pinned);
        mr_out_format(o, ",\"trains\":%s,\"evaluates\":%s}", p->trains ? "true" : "false",
                      p->evaluates ? "true" : "false");
    }
    mr_out_text(o, "],\n");
}

static void put_rank(struct mr_out *o, const struct mr_explanation *x, const struct mr_explain_rank *r, bool first)
{
    mr_out_format(o, "%s\n{\"rank\":%d,\"host\":", first ? "" : ",", r->rank);
    put_text(o, r->host);
    member_ns(o, "start", r->start_ns, false);
    member_ns(o, "end", r->end_ns, false);
    member_ns(o, "training", r->train_ns, false);
    member_ns(o, "after", r->after_ns, false);
    mr_out_text(o, ",");
    put_split(o, x, r->ns, r->stall, r->wait);
    member_ns(o, "behind", r->behind_ns, false);
    member_count(o, "steps", r->steps);
    member_count(o, "samples", r->samples);
    member_count(o, "read_bytes", r->read_bytes);
    member_count(o, "written_bytes", r->written_bytes);
    member_count(o, "read_calls", r->read_calls);
    member_count(o, "write_calls", r->write_calls);
    member_count(o, "metadata_calls", r->metadata_calls);
    member_ns(o, "io", r->io_ns, false);
    member_ns(o, "io_sum", r->io_sum_ns, false);
    member_ns(o, "io_in_compute", r->io_in_compute_ns, false);
    mr_out_format(o, ",\"ended\":%s}", r->ended ? "true" : "false");
}

static void put_step(struct mr_out *o, const struct mr_explanation *x, const struct mr_explain_step *s, bool first)
{
    mr_out_format(o, "%s\n{\"rank\":%d,\"step\":%llu,\"epoch\":%u", first ? "" : ",", x->rank[s->rank].rank,
                  (unsigned long long)s->step, s->epoch);
    member_count(o, "batch", s->batch);
    member_ns(o, "start", s->start_ns, false);
    member_ns(o, "end", s->end_ns, false);
    mr_out_text(o, ",");
    put_times(o, s->ns, s->stall);
    member_ns(o, "behind", s->behind_ns, false);
    member_ns(o, "accelerator_idle", s->accelerator_idle_ns, false);
    member_ns(o, "accelerator_collective", s->collective_ns, false);
    member_count(o, "read_bytes", s->bytes);
    member_text(o, "worker", s->worker < x->workers ? x->worker[s->worker].label : NULL);
    mr_out_format(o, ",\"phase\":\"%s\"}", s->phase == MR_EXPLAIN_EVAL ? "eval" : "train");
}

static void put_workers(struct mr_out *o, const struct mr_explanation *x)
{
    mr_out_text(o, "\"workers\":[");
    for (size_t i = 0; i < x->workers; i++) {
        const struct mr_explain_worker *w = &x->worker[i];
        mr_out_format(o, "%s\n{\"rank\":%d,\"pid\":%u,\"tid\":%u", i ? "," : "", x->rank[w->rank].rank, w->pid, w->tid);
        member_text(o, "label", w->label);
        member_count(o, "batches", w->batches);
        mr_out_text(o, ",");
        put_classes(o, "busy", stall_key, w->ns, MR_STALL_CAUSE_COUNT);
        member_ns(o, "idle", w->idle_ns, false);
        member_ns(o, "blocked", w->blocked_ns, false);
        member_ns(o, "cpu", w->cpu_ns, false);
        mr_out_text(o, "}");
    }
    mr_out_text(o, "],\n");
}

static void put_files(struct mr_out *o, const struct mr_explanation *x)
{
    mr_out_text(o, "\"file_groups\":[");
    for (size_t i = 0; i < x->groups; i++) {
        const struct mr_explain_group *g = &x->group[i];
        mr_out_text(o, i ? ",\n{\"name\":" : "\n{\"name\":");
        put_text(o, g->name);
        member_count(o, "files", g->files);
        member_count(o, "read_bytes", g->read_bytes);
        member_count(o, "written_bytes", g->written_bytes);
        member_count(o, "unique_bytes", g->unique_bytes);
        member_count(o, "reads", g->reads);
        member_count(o, "opens", g->opens);
        member_ns(o, "time", g->dur_ns, false);
        mr_out_format(o, ",\"pattern\":\"%s\",\"data\":%s,\"checkpoint\":%s}",
                      mr_access_pattern_name((enum mr_access_pattern)g->pattern), g->data ? "true" : "false",
                      g->checkpoint ? "true" : "false");
    }
    mr_out_text(o, "],\n");
}

static void put_checkpoints(struct mr_out *o, const struct mr_explanation *x)
{
    mr_out_text(o, "\"checkpoints\":[");
    for (size_t i = 0; i < x->checkpoints; i++) {
        const struct mr_explain_checkpoint *c = &x->checkpoint[i];
        mr_out_format(o, "%s\n{\"rank\":%d,\"load\":%s,\"beside_training\":%s", i ? "," : "", x->rank[c->rank].rank,
                      c->is_load ? "true" : "false", c->beside ? "true" : "false");
        member_ns(o, "start", c->start_ns, false);
        member_ns(o, "end", c->end_ns, false);
        member_ns(o, "write", c->write_ns, false);
        member_ns(o, "fsync", c->fsync_ns, false);
        member_count(o, "bytes", c->bytes);
        member_text(o, "path", c->path);
        member_text(o, "file_system", c->fs);
        mr_out_text(o, "}");
    }
    mr_out_text(o, "],\n\"culprits\":[");
    for (size_t i = 0; i < x->culprits; i++) {
        const struct mr_explain_culprit *c = &x->culprit[i];
        mr_out_format(o, "%s\n{\"rank\":%d,\"steps\":%llu", i ? "," : "", x->rank[c->rank].rank,
                      (unsigned long long)c->steps);
        member_ns(o, "waited", c->waited_ns, false);
        member_ns(o, "lost", c->lost_ns, false);
        mr_out_text(o, ",");
        put_times(o, c->cause, c->stall);
        mr_out_text(o, "}");
    }
    mr_out_text(o, "],\n");
}

void mr_report_json(struct mr_out *o, const struct mr_explanation *x)
{
    mr_out_text(o, "\"source\":");
    put_text(o, x->source);
    member_ns(o, "duration", x->duration_ns, false);
    member_ns(o, "training", x->train_ns, false);
    member_ns(o, "after", x->after_ns, false);
    member_ns(o, "behind", x->facts.has_steps ? x->behind_ns : MR_TIME_UNKNOWN, false);
    mr_out_text(o, ",\n");
    put_verdict(o, x);
    put_split(o, x, x->ns, x->stall, x->wait);
    mr_out_text(o, ",\n");
    put_findings(o, x);
    put_trust(o, x);
    put_facts(o, &x->facts);
    put_start(o, x->start);
    put_places(o, x);
    mr_out_text(o, "\"by_rank\":[");
    for (size_t i = 0; i < x->ranks; i++)
        put_rank(o, x, &x->rank[i], i == 0);
    mr_out_format(o, "],\n\"worst_rank\":%d,\n", x->ranks ? x->rank[x->worst_rank].rank : -1);
    put_workers(o, x);
    put_fields(o, x);
    put_files(o, x);
    put_checkpoints(o, x);
    mr_out_text(o, "\"steps\":[");
    for (size_t i = 0; i < x->steps && i < STEPS_MOST; i++)
        put_step(o, x, &x->step[i], i == 0);
    mr_out_text(o, "]");
}
