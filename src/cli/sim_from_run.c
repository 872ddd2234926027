/* A scenario from the results of a finished `millrace run`: the data set, batch, epochs and compute that were measured,
 * and a machine with the rates that the run saw. Keys that the summary lacks are errors, not defaults.
 *
 * The machine: one thread got read_bytes / (sum of all threads' time in reads), the job at most that times its threads,
 * or what the run's supply was if that is more; preprocessing from the time in decode and transform. Half of the host's
 * memory is class 1. */
#include "cli/sim_output.h"
#include "base/common.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A number at "a.b.c"; config values are {"value": ...}. NAN if there is none. */
static double number(const json_t *v)
{
    if (json_is_object(v))
        v = json_object_get(v, "value");
    if (json_is_array(v))
        v = json_array_get(v, 0);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

struct run_facts {
    double ranks, samples, batch, epochs, size, stdev, compute_s, read_bytes, read_s, convert_s, threads, supply,
        memory_gib, seed;
    const char *name;
};

static void per_rank(const json_t *list, struct run_facts *f)
{
    size_t i;
    const json_t *r;
    json_array_foreach(list, i, r)
    {
        f->read_s += number(json_object_get(r, "read_s"));
        f->convert_s += number(json_object_get(r, "decode_s")) + number(json_object_get(r, "transform_s"));
        f->threads = fmax(f->threads, number(json_object_get(r, "threads")));
    }
}

static int facts_of(const json_t *root, const char *path, struct run_facts *out, struct mr_error *err)
{
    const json_t *m = json_object_get(root, "millrace"), *c = json_object_get(root, "config");
    const char *schema = json_string_value(json_object_get(root, "schema"));
    if (!schema || strcmp(schema, "millrace.run/1") != 0)
        return mr_error_plain(err, MR_E_FORMAT, "'%s' is not the summary of a run (schema '%s')", path,
                              schema ? schema : "");
    double epochs = number(json_object_get(root, "epochs")), used = number(json_object_get(m, "samples"));
    struct run_facts f = {.ranks = number(json_object_get(m, "ranks")),
                          .batch = number(json_object_get(c, "reader.batch_size")),
                          .epochs = epochs,
                          .size = number(json_object_get(m, "sample_bytes")) / used,
                          .stdev = number(json_object_get(c, "dataset.record_length_bytes_stdev")),
                          .compute_s = number(json_object_get(m, "compute_mean_s")),
                          .read_bytes = number(json_object_get(m, "read_bytes")),
                          .supply = number(json_object_get(m, "supply_bytes_per_s")),
                          .seed = number(json_object_get(m, "seed")),
                          .memory_gib = number(json_object_get(root, "host_memory_GB")),
                          .name = json_string_value(json_object_get(m, "workload"))};
    f.samples = number(json_object_get(c, "dataset.num_files_train")) *
                number(json_object_get(c, "dataset.num_samples_per_file"));
    per_rank(json_object_get(m, "per_rank"), &f);
    const double must[] = {f.ranks, f.batch, f.epochs, f.size, f.read_bytes, f.samples};
    for (unsigned i = 0; i < MR_ARRAY_LEN(must); i++)
        if (!(must[i] > 0) || !isfinite(must[i]))
            return mr_error_plain(err, MR_E_INCOMPLETE, "the run in '%s' read nothing, or its summary is incomplete",
                                  path);
    if (!(f.read_s > 0) || !(f.threads > 0))
        return mr_error_plain(err, MR_E_INCOMPLETE, "the run in '%s' has no read times of its threads", path);
    *out = f;
    return 0;
}

static void write_scenario(const struct run_facts *f, struct mr_strbuf *out)
{
    double threads = fmin(f->threads, 48), stream = f->read_bytes / f->read_s;
    double job = fmax(stream * threads * f->ranks, f->supply > 0 ? f->supply : 0);
    double beta = f->convert_s > 0 ? f->size * f->samples * f->epochs / f->convert_s : 1e12;
    mr_strbuf_printf(out,
                     "nodes: %.0f\ndataset: {samples: %.0f, size: %.0f, size_stdev: %.0f}\nlocal_batch: %.0f\nepochs: "
                     "%.0f\nseed: %.0f\n",
                     f->ranks, f->samples, f->size, f->stdev > 0 ? f->stdev : 0, f->batch, f->epochs,
                     f->seed >= 0 ? f->seed : 1);
    if (f->compute_s > 0)
        mr_strbuf_printf(out, "step_time: %.9fs\n", f->compute_s);
    else
        mr_strbuf_puts(out, "compute: 1000000MB\n");
    mr_strbuf_printf(
        out,
        "system:\n  name: as measured\n  preprocess: %.0f\n  pfs: {stream: %.0f, bandwidth: {1: %.0f, %.0f: %.0f}}\n",
        fmax(1, beta), fmax(1, stream), fmax(1, job / f->ranks), f->ranks + (f->ranks < 1.5), fmax(1, job));
    mr_strbuf_printf(out, "  classes:\n    - {name: staging, capacity: 1GiB, threads: %.0f, read: 10GB}\n", threads);
    mr_strbuf_printf(out, "    - {name: ram, capacity: %.0f, threads: 4, read: 10GB}\n",
                     fmax(0, (f->memory_gib > 0 ? f->memory_gib : 0) / 2 * (double)MR_GIB / f->ranks));
}

int mr_cli_scenario_of_run(const char *folder, char name[64], struct mr_strbuf *out, struct mr_error *err)
{
    char path[4096];
    struct stat st;
    json_error_t where;
    bool is_folder = stat(folder, &st) == 0 && S_ISDIR(st.st_mode);
    snprintf(path, sizeof path, "%s%s", folder, is_folder ? "/summary.json" : "");
    json_t *root = json_load_file(path, 0, &where);
    if (!root) {
        int rc = mr_error_plain(err, access(path, R_OK) ? -errno : MR_E_FORMAT,
                                "cannot read the run's summary '%s': %s", path, where.text);
        return mr_error_hint(err, "give the results folder of a 'millrace run'"), rc;
    }
    struct run_facts f = {0};
    int rc = facts_of(root, path, &f, err);
    if (!rc) {
        write_scenario(&f, out);
        snprintf(name, 64, "%s", f.name && *f.name ? f.name : "run");
    }
    json_decref(root);
    return rc;
}
