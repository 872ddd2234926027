/* The options of a job as a table of their own, and as JSON; see job_options.h. */
#include "conf/job_options.h"

const char *const mr_job_computes[] = {"sleep", "spin", "gemm", NULL};
const char *const mr_job_caches[] = {"asis", "cold", "warm", NULL};
const char *const mr_job_ios[] = {"auto", "threads", "queue", NULL};

static const struct mr_option rows[] = {MR_JOB_OPTION_ROWS(0), MR_OPTION_END};
const struct mr_option_table mr_job_options_table = {
    .section = "run", .doc = "run", .options = rows, .struct_bytes = sizeof(struct mr_job_options)};

const struct mr_job_option_pair mr_job_option_pairs[] = {
    {"policy", "reader.policy", true},
    {"tiers", "reader.tiers", true},
    {"peers", "reader.peers", true},
    {"burst_buffer", "checkpoint.burst_buffer.folder", true},
    {"threads", "reader.read_threads", false},
    {"lookahead", "reader.prefetch_size", false},
    {"data", "dataset.data_folder", false},
    {"out", "output.folder", false},
    {"checkpoint_folder", "checkpoint.checkpoint_folder", false},
    {"seed", "train.seed", false},
    {"generate", "workflow.generate_data", false},
    {NULL, NULL, false},
};

json_t *mr_job_options_to_json(const struct mr_job_options *opt)
{
    json_t *o = json_object();
    for (const struct mr_option *x = rows; x->key; x++) {
        char text[4200];
        mr_option_print(x, opt, text, sizeof text);
        json_object_set_new(o, x->key, json_string(text));
    }
    return o;
}

int mr_job_options_from_json(const json_t *given, struct mr_arena *a, struct mr_job_options *out, struct mr_error *err)
{
    int rc = mr_options_defaults(&mr_job_options_table, a, out, err);
    for (const struct mr_option *o = rows; o->key && !rc; o++) {
        const char *text = json_string_value(json_object_get(given, o->key));
        if (text)
            rc = mr_option_parse(&mr_job_options_table, o, text, a, out, err);
    }
    return rc;
}
