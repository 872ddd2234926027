/* The job of a finished run, from its summary.json: the workload as it was resolved, the options, and what was
 * measured. Keys that the summary lacks are errors, not defaults. */
#include "base/common.h"
#include "base/regular_file.h"
#include "job/job_internal.h"
#include "conf/job_options.h"
#include "job/job_scenario.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MB 1e6

/* A number; config values are {"value": ...}. NAN if there is none. */
static double number(const json_t *v)
{
    if (json_is_object(v))
        v = json_object_get(v, "value");
    if (json_is_array(v))
        v = json_array_get(v, 0);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static void per_rank(const json_t *list, struct mr_job_measured *m)
{
    size_t i;
    const json_t *r;
    json_array_foreach(list, i, r)
    {
        m->read_s += number(json_object_get(r, "read_s"));
        m->convert_s += number(json_object_get(r, "decode_s")) + number(json_object_get(r, "transform_s"));
        m->threads = fmax(m->threads, number(json_object_get(r, "threads")));
    }
}

static double or_zero(double x)
{
    return x > 0 ? x : 0;
}

static int read_measured(const json_t *root, const char *path, struct mr_job_measured *out, struct mr_error *err)
{
    const json_t *m = json_object_get(root, "millrace");
    double samples = number(json_object_get(m, "samples"));
    struct mr_job_measured r = {.samples = samples,
                                .sample_bytes = number(json_object_get(m, "read_bytes")) / samples,
                                .steps = number(json_object_get(m, "steps")) / number(json_object_get(m, "ranks")),
                                .epochs = number(json_object_get(root, "epochs")),
                                .compute_s = or_zero(number(json_object_get(m, "compute_mean_s"))),
                                .read_bytes = number(json_object_get(m, "read_bytes")),
                                .supply_bytes_per_s = or_zero(number(json_object_get(m, "supply_bytes_per_s"))),
                                .memory_gib = or_zero(number(json_object_get(root, "host_memory_GB")))};
    per_rank(json_object_get(m, "per_rank"), &r);
    const char *asked = json_string_value(json_object_get(json_object_get(root, "options"), "threads"));
    r.threads_asked = asked && atof(asked) > 0
                          ? atof(asked)
                          : number(json_object_get(json_object_get(root, "config"), "reader.read_threads"));
    const struct {
        double value, most;
    } must[] = {{number(json_object_get(m, "ranks")), UINT16_MAX},
                {r.epochs, UINT16_MAX},
                {r.sample_bytes, 1e15},
                {r.read_bytes, 1e24}};
    for (unsigned i = 0; i < MR_ARRAY_LEN(must); i++)
        if (!(must[i].value > 0) || must[i].value > must[i].most)
            return mr_error_plain(err, MR_E_INCOMPLETE, "the run in '%s' read nothing, or its summary is incomplete",
                                  path);
    if (!(r.read_s > 0) || !(r.threads > 0))
        return mr_error_plain(err, MR_E_INCOMPLETE, "the run in '%s' has no read times of its threads", path);
    *out = r;
    mr_job_read_sources(root, out);
    double moved = out->source_bytes + out->peer_bytes + out->own_bytes;
    if (out->tier_nodes > 0 && moved > 0) /* of all places that samples came from */
        out->sample_bytes = moved / samples;
    return 0;
}

/* ---- the job ---- */

static const char *text_at(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static void read_strings(const json_t *list, struct mr_arena *a, struct mr_strings *out)
{
    size_t i;
    const json_t *v;
    json_array_foreach(list, i, v)
    {
        if (json_is_string(v))
            mr_job_note(out, a, "%s", json_string_value(v));
    }
}

/* "2026-01-31T12:00:00.123456", as the summary writes it; 0 if it is not that. */
static uint64_t read_time(const char *text)
{
    struct tm tm = {0};
    unsigned us = 0;
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!rest || sscanf(rest, ".%6u", &us) != 1)
        return 0;
    return (uint64_t)timegm(&tm) * MR_NS_PER_S + us * 1000ull;
}

static void read_trust(const json_t *t, struct mr_arena *a, struct mr_job_trust *out)
{
    double cold = number(json_object_get(t, "cold_fraction"));
    for (int i = 0; mr_job_caches[i]; i++)
        if (!strcmp(text_at(t, "cache_asked"), mr_job_caches[i]))
            out->asked = (enum mr_bench_cache)i;
    out->cold_share = cold >= 0 ? cold : -1;
    out->bypasses_cache = json_is_true(json_object_get(t, "cache_bypassed"));
    out->ceiling_samples_per_s = or_zero(number(json_object_get(t, "harness_ceiling_samples_per_s")));
    out->ceiling_bytes_per_s = or_zero(number(json_object_get(t, "harness_ceiling_bytes_per_s")));
    out->ceiling_share = or_zero(number(json_object_get(t, "harness_ceiling_share")));
    out->cpus = (unsigned)json_integer_value(json_object_get(t, "cpus"));
    out->cpus_around = (unsigned)json_integer_value(json_object_get(t, "cpus_around"));
    out->threads = (unsigned)json_integer_value(json_object_get(t, "threads"));
    out->cpu_share = or_zero(number(json_object_get(t, "reader_cpu_share")));
    out->clock_step_ns = (uint64_t)json_integer_value(json_object_get(t, "clock_step_ns"));
    out->timer_late_ns = (uint64_t)json_integer_value(json_object_get(t, "timer_lateness_ns"));
    double shift = number(json_object_get(t, "clock_shift_s"));
    out->clock_shift_s = isnan(shift) ? 0 : shift;
    read_strings(json_object_get(t, "doubts"), a, &out->doubts);
}

static void read_probe(const json_t *p, struct mr_job_probe *out)
{
    for (unsigned i = 0; i < 2 && json_is_object(p); i++) {
        out->streams[i] = (unsigned)json_integer_value(json_array_get(json_object_get(p, "streams"), i));
        out->bytes_per_s[i] = or_zero(number(json_array_get(json_object_get(p, "bytes_per_s"), i)));
    }
    out->bytes = (uint64_t)json_integer_value(json_object_get(p, "read_bytes"));
}

/* What mr_job_host_json gathers: DLIO's keys lie at the top of the summary. */
static json_t *read_host(const json_t *root)
{
    static const char *const keys[] = {"hostname",     "host_cpu_count", "host_processor_name",
                                       "host_cpuinfo", "host_meminfo",   "host_memory_GB"};
    json_t *dlio = json_object(), *environment = json_deep_copy(json_object_get(root, "environment"));
    for (unsigned i = 0; i < MR_ARRAY_LEN(keys); i++)
        json_object_set(dlio, keys[i], json_object_get(root, keys[i]));
    json_object_del(environment, "ranks_by");
    return json_pack("{s:o?, s:o?}", "dlio", dlio, "environment", environment);
}

static int read_result(const json_t *root, struct mr_job *j, struct mr_error *err)
{
    struct mr_job_result *r = &j->result;
    const json_t *m = json_object_get(root, "millrace");
    json_int_t local = json_integer_value(json_object_get(json_object_get(root, "trust"), "local_ranks"));
    r->world = (uint32_t)j->opt.ranks;
    r->local_world = local > 0 && local <= r->world ? (uint32_t)local : r->world;
    r->ranks_by = mr_arena_strdup(j->arena, text_at(json_object_get(root, "environment"), "ranks_by"));
    r->start_wall_ns = read_time(text_at(root, "start"));
    r->end_wall_ns = read_time(text_at(root, "end"));
    if (!json_is_true(json_object_get(root, "complete")))
        r->code = mr_error_plain(&r->why, MR_E_INCOMPLETE, "%s", text_at(m, "incomplete_reason"));
    read_trust(json_object_get(root, "trust"), j->arena, &r->trust);
    read_probe(json_object_get(root, "storage_probe"), &r->probe);
    r->host = read_host(root);
    j->config = json_deep_copy(json_object_get(root, "config"));
    return r->ranks_by && r->host && j->config ? 0 : mr_error_set(err, -ENOMEM, "cannot read a summary");
}

static int read_job(const json_t *root, const char *path, struct mr_arena *a, struct mr_job *j, struct mr_error *err)
{
    const json_t *m = json_object_get(root, "millrace");
    double ranks = number(json_object_get(m, "ranks")), seed = number(json_object_get(m, "seed"));
    if (!(ranks >= 1) || ranks > 1e6 || !json_is_object(json_object_get(root, "config")))
        return mr_error_plain(err, MR_E_FORMAT, "'%s' does not say its configuration or its ranks", path);
    int rc = mr_job_options_from_json(json_object_get(root, "options"), a, &j->opt, err);
    if (!rc)
        rc = mr_workload_from_json(json_object_get(root, "config"), a, &j->w, err);
    if (rc)
        return rc;
    j->opt.ranks = (int64_t)ranks;
    j->seed = seed >= 0 && seed < 0x1p62 ? (uint64_t)seed : 1;
    j->w->name = mr_arena_strdup(a, text_at(m, "workload"));
    snprintf(j->out, sizeof j->out, "%s", text_at(root, "results_folder"));
    read_strings(json_object_get(root, "notes"), a, &j->notes);
    if (!j->w->name)
        return mr_error_set(err, -ENOMEM, "cannot read a summary");
    return mr_job_make_plan(j, err);
}

static int load_summary(const char *folder, char path[4096], json_t **out, struct mr_error *err)
{
    struct stat st;
    json_error_t where;
    bool is_folder = stat(folder, &st) == 0 && S_ISDIR(st.st_mode);
    snprintf(path, 4096, "%s%s", folder, is_folder ? "/summary.json" : "");
    FILE *f = mr_fopen_regular(path);
    json_t *root = f ? json_loadf(f, 0, &where) : NULL;
    if (!root) {
        int rc = !f ? mr_error_set(err, -errno, "cannot read the run's summary '%s'", path)
                    : mr_error_plain(err, MR_E_FORMAT, "cannot read the run's summary '%s': %s", path, where.text);
        if (f)
            fclose(f);
        return mr_error_hint(err, "give the results folder of a 'millrace run'"), rc;
    }
    const char *schema = json_string_value(json_object_get(root, "schema"));
    if (!schema || strcmp(schema, "millrace.run/1") != 0) {
        mr_error_plain(err, MR_E_FORMAT, "'%s' is not the summary of a run (schema '%s')", path, schema ? schema : "");
        json_decref(root);
        return MR_E_FORMAT;
    }
    *out = root;
    return 0;
}

int mr_job_load_summary(const char *folder, const struct mr_strings *search, struct mr_arena *a, struct mr_job *out,
                        json_t **summary, struct mr_error *err)
{
    char path[4096];
    json_t *root = NULL;
    memset(out, 0, sizeof(*out));
    out->arena = a;
    out->req = (struct mr_job_request){.search_path = *search, .arena = a, .is_local = true};
    int rc = load_summary(folder, path, &root, err);
    if (!rc)
        rc = read_job(root, path, a, out, err);
    if (!rc)
        rc = read_result(root, out, err);
    if (!rc) {
        *summary = root;
        return 0;
    }
    mr_job_done(out);
    json_decref(root);
    return rc;
}

int mr_job_load(const char *folder, const struct mr_strings *search, struct mr_arena *a, struct mr_job *out,
                struct mr_error *err)
{
    json_t *summary = NULL;
    int rc = mr_job_load_summary(folder, search, a, out, &summary, err);
    json_decref(summary);
    return rc;
}

int mr_job_load_measured(const char *folder, struct mr_job_measured *out, struct mr_error *err)
{
    char path[4096];
    json_t *root = NULL;
    int rc = load_summary(folder, path, &root, err);
    if (!rc)
        rc = read_measured(root, path, out, err);
    json_decref(root);
    return rc;
}
