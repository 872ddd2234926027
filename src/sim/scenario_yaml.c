/* Scenarios from YAML and from key=value: see scenario_yaml.h. */
#include "sim/scenario_yaml.h"
#include "model/system_yaml.h"
#include "base/common.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MB 1e6
#define AS_SYSTEM UINT64_MAX

struct raw_scenario {
    const char *name, *source, *notes, *order;
    int64_t nodes, batch, local_batch, epochs, seed;
    int64_t samples;
    uint64_t size, size_stdev, compute, step_time_ns;
    bool drop_last;
    bool have_system;
    struct mr_system system;
    uint64_t capacity[MR_CLASS_MAX]; /* instead of the system's; AS_SYSTEM: not given */
    double pfs_factor;               /* scales the PFS table */
    const struct mr_strings *search;
};

#define ROW(key, field, type, def, ...) MR_OPTION(raw_scenario, key, field, type, def, __VA_ARGS__)
static const struct mr_option dataset_rows[] = {
    ROW("samples", samples, INT, "0", .min = 1, .max = 4294967294.0, .doc = "Samples in the data set."),
    ROW("size", size, BYTES, "0", .min = 1, .max = 1e15, .doc = "Mean sample size."),
    ROW("size_stdev", size_stdev, BYTES, "0", .doc = "Standard deviation of the sample size."),
    MR_OPTION_END,
};
static const struct mr_option_table dataset_table = {"dataset", "The data set.", dataset_rows,
                                                     sizeof(struct raw_scenario)};

static int read_dataset(const struct mr_yaml_reader *r, const struct mr_yaml_node *n, void *obj, struct mr_error *err)
{
    return mr_yaml_read_map(r, n, &dataset_table, NULL, obj, err);
}

static int read_system(const struct mr_yaml_reader *r, const struct mr_yaml_node *n, void *obj, struct mr_error *err)
{
    struct raw_scenario *raw = obj;
    raw->have_system = true;
    if (n->kind == MR_YAML_MAP)
        return mr_system_read(r, n, &raw->system, err);
    if (n->kind == MR_YAML_SCALAR) {
        int rc = mr_system_load(n->text, raw->search, r->arena, &raw->system, err);
        return rc ? mr_yaml_where(r, n, rc, err) : 0;
    }
    mr_error_plain(err, MR_E_CONFIG, "'system' is a name, a path or a map");
    return mr_yaml_where(r, n, MR_E_CONFIG, err);
}

static const struct mr_option scenario_rows[] = {
    ROW("name", name, STRING, "", .doc = "Name of the scenario."),
    ROW("source", source, STRING, "", .doc = "Where the figures come from."),
    ROW("notes", notes, STRING, "", .doc = "What a reader should know."),
    ROW("nodes", nodes, INT, "1", .min = 1, .max = 65535, .doc = "Nodes."),
    ROW("batch", batch, INT, "0", .min = 0, .max = 1e9, .doc = "Samples per step over all nodes."),
    ROW("local_batch", local_batch, INT, "0", .min = 0, .max = 1e9, .doc = "Samples per step of one node."),
    ROW("epochs", epochs, INT, "1", .min = 1, .max = 65535, .doc = "Epochs."),
    ROW("seed", seed, INT, "1", .min = 0, .max = 0x1p62, .doc = "Seed of sizes and order."),
    ROW("order", order, STRING, "auto", .doc = "Order of the samples: torch, cipher, sequential or auto."),
    ROW("drop_last", drop_last, BOOL, "true",
        .doc = "Leaves out the samples that do not fill a step; always so in the simulator."),
    ROW("compute", compute, BYTES, "0", .doc = "How fast a node consumes samples, per second; overrides the system's."),
    ROW("step_time", step_time_ns, DURATION, "0", .doc = "Compute per step; overrides compute."),
    ROW("staging", capacity[0], BYTES, "0", .doc = "Capacity of the staging buffer; without it the system's."),
    ROW("class1", capacity[1], BYTES, "0", .doc = "Capacity of class 1 (usually RAM); without it the system's."),
    ROW("class2", capacity[2], BYTES, "0", .doc = "Capacity of class 2 (usually SSD); without it the system's."),
    ROW("pfs_factor", pfs_factor, DOUBLE, "1", .min = 1e-6, .max = 1e6, .doc = "Makes the PFS this much faster."),
    ROW("dataset", name, STRING, "", .doc = "The data set."),
    ROW("system", name, STRING, "", .doc = "The machine."),
    MR_OPTION_END,
};
static const struct mr_option_table scenario_table = {"scenario", "A simulated training run.", scenario_rows,
                                                      sizeof(struct raw_scenario)};
static const struct mr_yaml_nested scenario_nested[] = {
    {"dataset", read_dataset}, {"system", read_system}, {NULL, NULL}};

static int convert(const struct raw_scenario *raw, struct mr_scenario *out, struct mr_error *err)
{
    if (!raw->have_system) {
        mr_error_plain(err, MR_E_CONFIG, "the scenario names no 'system'");
        return mr_error_hint(err, "give system=NAME; 'millrace sim --list' shows the shipped ones"), MR_E_CONFIG;
    }
    if (raw->samples == 0 || raw->size == 0)
        return mr_error_plain(err, MR_E_CONFIG, "the scenario needs 'dataset: {samples: N, size: BYTES}'");
    if ((raw->batch > 0) == (raw->local_batch > 0))
        return mr_error_plain(err, MR_E_CONFIG, "give either 'batch' (over all nodes) or 'local_batch'");
    if (!raw->drop_last)
        return mr_error_plain(err, MR_E_CONFIG, "drop_last: false is not simulated; the last step must be full");
    struct mr_scenario s = {.system = raw->system,
                            .nodes = (uint32_t)raw->nodes,
                            .samples = (uint64_t)raw->samples,
                            .epochs = (uint32_t)raw->epochs,
                            .drop_last = true,
                            .size_mean_mb = (double)raw->size / MB,
                            .size_stdev_mb = (double)raw->size_stdev / MB,
                            .seed = (uint64_t)raw->seed};
    s.batch_asked = s.batch = raw->batch > 0 ? (uint64_t)raw->batch : (uint64_t)(raw->local_batch * raw->nodes);
    s.batch -= s.batch >= s.nodes ? s.batch % s.nodes : 0; /* an even split; the rest goes to the next step */
    snprintf(s.name, sizeof s.name, "%s", raw->name);
    uint64_t window = 0;
    int rc = mr_order_mode_parse(raw->order, &s.order_mode, &window, err);
    if (rc)
        return rc;
    if (s.order_mode > MR_ORDER_CIPHER)
        return mr_error_plain(err, MR_E_CONFIG,
                              "order '%s' is rank-local; the simulator takes torch, cipher or sequential", raw->order);
    if (raw->compute)
        s.system.compute_mbps = (double)raw->compute / MB;
    if (raw->step_time_ns) { /* the rate is for the rules of the published simulator, which know no time of a step */
        s.step_s = (double)raw->step_time_ns / 1e9;
        s.system.compute_mbps = s.size_mean_mb * (double)s.batch / s.nodes / s.step_s;
    }
    for (unsigned j = 0; j < MR_CLASS_MAX; j++) {
        if (raw->capacity[j] == AS_SYSTEM)
            continue;
        if (j >= s.system.n_classes)
            return mr_error_plain(err, MR_E_CONFIG, "system '%s' has no class %u", s.system.name, j);
        s.system.classes[j].capacity_mb = (double)raw->capacity[j] / MB;
    }
    for (unsigned i = 0; i < s.system.pfs_mbps.n; i++)
        s.system.pfs_mbps.y[i] *= raw->pfs_factor;
    rc = mr_scenario_check(&s, err);
    if (!rc)
        *out = s;
    return rc;
}

/* Overrides before conversion: the scalar keys of the two tables. */
static int override(struct raw_scenario *raw, const char *text, struct mr_arena *a, struct mr_error *err)
{
    const char *eq = strchr(text, '=');
    char key[64];
    snprintf(key, sizeof key, "%.*s", eq ? (int)MR_MIN(eq - text, 60) : 60, text);
    const struct mr_option_table *t = mr_option_find(&dataset_table, key) ? &dataset_table : &scenario_table;
    const struct mr_option *o = mr_option_find(t, key);
    if (eq && strcmp(key, "system") == 0) {
        raw->have_system = true;
        return mr_system_load(eq + 1, raw->search, a, &raw->system, err);
    }
    if (!eq || !o || strcmp(key, "dataset") == 0) {
        mr_error_plain(err, MR_E_USAGE, "cannot set '%.100s'", text);
        const char *near = mr_option_nearest(&scenario_table, key);
        if (near)
            return mr_error_hint(err, "did you mean '%s=...'?", near), MR_E_USAGE;
        return mr_error_hint(err, "keys: nodes, epochs, batch, local_batch, samples, size, size_stdev, seed, "
                                  "order, compute, step_time, staging, "
                                  "class1, class2, pfs_factor, system"),
               MR_E_USAGE;
    }
    if (strcmp(key, "batch") == 0)
        raw->local_batch = 0;
    if (strcmp(key, "local_batch") == 0)
        raw->batch = 0;
    if (strcmp(key, "compute") == 0) /* of two ways to say it the later one counts */
        raw->step_time_ns = 0;
    return mr_option_parse(t, o, eq + 1, a, raw, err);
}

static int from_tree(const struct mr_yaml_reader *r, const struct mr_yaml_node *root, const struct mr_strings *search,
                     const struct mr_strings *overrides, struct mr_scenario *out, struct mr_error *err)
{
    struct raw_scenario raw;
    int rc = mr_options_defaults(&scenario_table, r->arena, &raw, err);
    raw.search = search;
    for (unsigned j = 0; j < MR_CLASS_MAX; j++)
        raw.capacity[j] = AS_SYSTEM; /* no default in the table says that: 0 is a size */
    if (!rc)
        rc = mr_yaml_read_map(r, root, &scenario_table, scenario_nested, &raw, err);
    for (unsigned i = 0; overrides && i < overrides->n && !rc; i++)
        rc = override(&raw, overrides->item[i], r->arena, err);
    if (rc)
        return rc;
    rc = convert(&raw, out, err);
    if (rc)
        mr_error_context(err, "in %s", r->file);
    return rc;
}

int mr_scenario_parse(const char *text, size_t len, const char *name, const struct mr_strings *search,
                      const struct mr_strings *overrides, struct mr_arena *a, struct mr_scenario *out,
                      struct mr_error *err)
{
    struct mr_yaml_node *root;
    int rc = mr_yaml_parse(text, len, name, a, &root, err);
    struct mr_yaml_reader r = {name, a};
    return rc ? rc : from_tree(&r, root, search, overrides, out, err);
}

int mr_scenario_load(const char *name_or_path, const struct mr_strings *search, const struct mr_strings *overrides,
                     struct mr_arena *a, struct mr_scenario *out, struct mr_error *err)
{
    const char *path = mr_model_find_file(name_or_path, "scenarios", search, a, err);
    if (!path)
        return MR_E_CONFIG;
    struct mr_yaml_node *root;
    int rc = mr_yaml_load(path, a, &root, err);
    struct mr_yaml_reader r = {path, a};
    rc = rc ? rc : from_tree(&r, root, search, overrides, out, err);
    if (!rc && !*out->name) /* the file is its name */
        snprintf(out->name, sizeof out->name, "%s", name_or_path);
    return rc;
}

/* What no word has changed keeps its exact value: the raw form has whole bytes and nanoseconds. */
static void keep_exact(const struct raw_scenario *before, const struct raw_scenario *after,
                       const struct mr_scenario *old, struct mr_scenario *out)
{
    if (after->size == before->size)
        out->size_mean_mb = old->size_mean_mb;
    if (after->size_stdev == before->size_stdev)
        out->size_stdev_mb = old->size_stdev_mb;
    if (after->step_time_ns == before->step_time_ns)
        out->step_s = old->step_s;
    bool same_length = after->epochs == before->epochs && after->samples == before->samples &&
                       out->batch == old->batch && out->nodes == old->nodes;
    out->steps = same_length ? old->steps : 0;
    out->staging_serves = old->staging_serves;
    if (out->step_s > 0)
        out->system.compute_mbps = out->size_mean_mb * (double)out->batch / out->nodes / out->step_s;
}

int mr_scenario_change(struct mr_scenario *s, const struct mr_strings *words, const struct mr_strings *search,
                       struct mr_arena *a, struct mr_error *err)
{
    struct raw_scenario raw, before;
    struct mr_scenario changed;
    int rc = mr_options_defaults(&scenario_table, a, &raw, err);
    if (rc)
        return rc;
    raw.search = search;
    raw.have_system = true;
    raw.system = s->system;
    raw.nodes = s->nodes;
    raw.local_batch = (int64_t)(s->batch / MR_MAX(s->nodes, 1u));
    raw.epochs = s->epochs;
    raw.seed = (int64_t)s->seed;
    raw.order = mr_order_mode_name(s->order_mode);
    raw.samples = (int64_t)s->samples;
    raw.size = (uint64_t)fmax(1, round(s->size_mean_mb * MB));
    raw.size_stdev = (uint64_t)round(s->size_stdev_mb * MB);
    raw.step_time_ns = (uint64_t)round(s->step_s * 1e9);
    for (unsigned j = 0; j < MR_CLASS_MAX; j++)
        raw.capacity[j] = AS_SYSTEM;
    before = raw;
    for (unsigned i = 0; i < words->n && !rc; i++)
        rc = override(&raw, words->item[i], a, err);
    if (!rc)
        rc = convert(&raw, &changed, err);
    if (rc)
        return rc;
    keep_exact(&before, &raw, s, &changed);
    snprintf(changed.name, sizeof changed.name, "%s", raw.name == before.name ? s->name : raw.name);
    *s = changed;
    return 0;
}
