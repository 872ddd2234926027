/* `millrace calibrate`: what this machine's storage, memory and network deliver, as a table and as a system file for
 * `millrace sim`. */
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "cli/workload_args.h"
#include "report/print.h"
#include "base/clock.h"
#include "base/strbuf.h"
#include "probe/calibrate_machine.h"
#include "store/store.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct calibrate_options {
    struct mr_strings paths;
    const char *out;
    uint64_t budget_ns, file_size, request_size;
    int64_t max_threads;
    int only;
    bool net, json;
};

static const char *const only_names[] = MR_CALIBRATE_ONLY_NAMES;

#define ROW(key, field, type, def, ...) MR_OPTION(calibrate_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option calibrate_rows[] = {
    ROW("paths", paths, STRINGS, "[]", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REPEAT | MR_OPTF_REQUIRED,
        .doc = "Folders to measure, or s3://BUCKET/PREFIX: the first stands for the parallel file system, the others "
               "for storage classes of a "
               "node.",
        .example = "millrace calibrate /lustre/me /local/ssd"),
    ROW("budget", budget_ns, DURATION, "60s", .min = 1, .max = 86400,
        .doc = "Time for everything, shared by the folders."),
    ROW("file_size", file_size, BYTES, "1GiB", .min = 16777216, .max = 1e13,
        .doc = "The test file's size, at most; never more than 10 % of the free space."),
    ROW("request_size", request_size, BYTES, "1MiB", .min = 4096, .max = 4194304,
        .doc = "Size of the requests that the system's tables are made of: that of your samples; a power of two."),
    ROW("max_threads", max_threads, INT, "8", .min = 1, .max = 64,
        .doc = "Measures 1, 2, 4 ... up to this many threads."),
    ROW("only", only, ENUM, "all", .choices = only_names,
        .doc = "Measures only one kind of request, at --request-size, or only memory: faster, or more exact in the "
               "same time.",
        .example = "--only random-read --request-size 64KiB"),
    ROW("net", net, BOOL, "false",
        .doc = "Also measures the network, point to point: between the ranks of mpirun or srun, else between two local "
               "processes."),
    ROW("out", out, STRING, "", .short_flag = 'o', .doc = "Writes the machine as a system file.",
        .example = "--out here.yaml; millrace sim workload=unet3d_h100 system=here.yaml"),
    MR_ROW_JSON(offsetof(struct calibrate_options, json), MR_DOC_JSON),
    MR_OPTION_END,
};

/* Joins the ranks and measures; *others is set on ranks other than 0, which have nothing more to do. Forks, so it must
 * come before any thread. */
static int run_net(struct mr_network_rates *out, bool *others, struct mr_error *err)
{
    struct mr_comm *c;
    int rc = mr_comm_open(mr_comm_detect_launcher(NULL) ? 0 : 2, 0, &c, err);
    if (rc)
        return rc;
    rc = mr_network_measure(c, out, err);
    *others = c->rank != 0;
    if (rc < 0 && !*others && mr_comm_is_launched(c))
        mr_cli_tell_error(rc, err);
    mr_comm_close(c);
    return rc;
}

/* ---- text ---- */

static const char *kind_name(const struct mr_probe_spec *s, char out[64])
{
    snprintf(out, 64, "%s %s, %s", s->random ? "random" : "sequential", s->write ? "write" : "read",
             s->direct ? "direct" : "buffered");
    return out;
}

static double best_mbps(const struct mr_path_calibration *c)
{
    double best = 1;
    for (unsigned i = 0; i < c->n; i++)
        best = fmax(best, c->points[i].bytes_per_s.median);
    return best / 1e6;
}

/* One line per kind and size: rates by threads, the knee, the widest spread, and a bar for each rate. */
static void print_kind(const struct mr_path_calibration *c, const struct mr_probe_spec *kind, double best)
{
    static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    struct mr_curve curve;
    char name[64], size[MR_HUMAN_LEN];
    double spread = 0;
    mr_calibration_curve(c, kind, &curve);
    for (unsigned i = 0; i < c->n; i++) {
        const struct mr_calibrate_point *p = &c->points[i];
        if (p->spec.write == kind->write && p->spec.random == kind->random && p->spec.direct == kind->direct &&
            p->spec.request_bytes == kind->request_bytes && p->bytes_per_s.median > 0)
            spread = fmax(spread, (p->bytes_per_s.high - p->bytes_per_s.low) / p->bytes_per_s.median / 2);
    }
    printf("  %-26s %9s", kind_name(kind, name), mr_human_bytes((double)kind->request_bytes, size));
    for (unsigned i = 0; i < curve.n; i++)
        printf(" %8.1f", curve.y[i]);
    printf("  %4u ±%3.0f%%  ", mr_curve_knee(&curve), 100 * spread);
    for (unsigned i = 0; i < curve.n; i++)
        fputs(bars[(int)fmin(7, floor(8 * sqrt(curve.y[i] / best)))], stdout);
    putchar('\n');
}

static void print_path(const struct mr_path_calibration *c)
{
    char size[MR_HUMAN_LEN], space[MR_HUMAN_LEN];
    bool objects = mr_store_is_url(c->path);
    if (objects)
        printf("%s: reads of an object of %s; 'threads' are requests at a time\n", c->path,
               mr_human_bytes((double)c->file_bytes, size));
    else
        printf("%s: test file %s, %s free%s%s\n", c->path, mr_human_bytes((double)c->file_bytes, size),
               mr_human_bytes((double)c->free_bytes, space), c->in_memory ? ", memory without a device behind it" : "",
               c->direct ? "" : ", no direct I/O: reads are buffered, after dropping the cache");
    printf("  %-26s %9s", "MB/s (median of 3)", "threads");
    for (unsigned i = 0;
         i < c->n && c->points[i].spec.request_bytes == c->points[0].spec.request_bytes &&
         c->points[i].spec.write == c->points[0].spec.write && (i == 0 || c->points[i].spec.threads > 1);
         i++)
        printf(" %8u", c->points[i].spec.threads);
    printf("  %4s spread\n", "knee");
    for (unsigned i = 0; i < c->n; i++)
        if (c->points[i].spec.threads == 1)
            print_kind(c, &c->points[i].spec, best_mbps(c));
    if (c->opens_per_s.n && objects)
        printf("  requests of one byte %.0f/s with %u at a time, HEAD %.0f/s one after the other\n",
               c->opens_per_s.median, c->meta_threads, c->stats_per_s.median);
    else if (c->opens_per_s.n)
        printf("  open+close %.0f/s, stat %.0f/s with %u %s\n", c->opens_per_s.median, c->stats_per_s.median,
               c->meta_threads, mr_plural(c->meta_threads, "thread", "threads"));
    putchar('\n');
}

static void print_text(const struct mr_machine_calibration *c, double seconds)
{
    for (unsigned i = 0; i < c->n_paths; i++)
        print_path(&c->paths[i]);
    char block[MR_HUMAN_LEN];
    if (c->memory.n)
        printf("memory: copying blocks of %s, MB/s by threads:",
               mr_human_bytes((double)c->memory.points[0].block_bytes, block));
    for (unsigned i = 0; i < c->memory.n; i++)
        printf("  %u: %.0f%s", c->memory.points[i].threads, c->memory.points[i].bytes_per_s.median / 1e6,
               i + 1 < c->memory.n ? "" : "\n");
    if (c->net.ranks)
        printf("network: %.0f MB/s, %.1f us one way, point to point from rank 0%s\n", c->net.bytes_per_s / 1e6,
               c->net.latency_s * 1e6, c->net.ranks == 2 ? "" : ", the slowest of the other ranks");
    printf("took %.1f s\n", seconds);
}

/* ---- JSON ---- */

static json_t *rate_json(const struct mr_rate *r)
{
    return json_pack("{s:f, s:f, s:f, s:i}", "median", r->median, "low", r->low, "high", r->high, "n", (int)r->n);
}

static json_t *path_json(const struct mr_path_calibration *c)
{
    json_t *points = json_array();
    for (unsigned i = 0; i < c->n; i++) {
        const struct mr_calibrate_point *p = &c->points[i];
        json_array_append_new(
            points, json_pack("{s:s, s:s, s:b, s:i, s:I, s:o?}", "operation", p->spec.write ? "write" : "read",
                              "pattern", p->spec.random ? "random" : "sequential", "direct", (int)p->spec.direct,
                              "threads", (int)p->spec.threads, "request_bytes", (json_int_t)p->spec.request_bytes,
                              "bytes_per_s", rate_json(&p->bytes_per_s)));
    }
    return json_pack("{s:s, s:b, s:b, s:I, s:I, s:o, s:i, s:o?, s:o?}", "path", c->path, "direct", (int)c->direct,
                     "in_memory", (int)c->in_memory, "file_bytes", (json_int_t)c->file_bytes, "free_bytes",
                     (json_int_t)c->free_bytes, "points", points, "metadata_threads", (int)c->meta_threads,
                     "opens_per_s", rate_json(&c->opens_per_s), "stats_per_s", rate_json(&c->stats_per_s));
}

static json_t *calibration_json(const struct mr_machine_calibration *c, double seconds)
{
    json_t *paths = json_array(), *memory = json_array();
    for (unsigned i = 0; i < c->n_paths; i++)
        json_array_append_new(paths, path_json(&c->paths[i]));
    for (unsigned i = 0; i < c->memory.n; i++)
        json_array_append_new(memory, json_pack("{s:i, s:I, s:o?}", "threads", (int)c->memory.points[i].threads,
                                                "block_bytes", (json_int_t)c->memory.points[i].block_bytes,
                                                "bytes_per_s", rate_json(&c->memory.points[i].bytes_per_s)));
    json_t *root = json_pack("{s:s, s:o, s:o, s:I, s:f}", "schema", "millrace.calibrate/1", "paths", paths, "memory",
                             memory, "memory_bytes", (json_int_t)c->memory_bytes, "took_s", seconds);
    if (root && c->net.ranks)
        json_object_set_new(root, "network",
                            json_pack("{s:i, s:f, s:f}", "ranks", (int)c->net.ranks, "bytes_per_s", c->net.bytes_per_s,
                                      "latency_s", c->net.latency_s));
    return root;
}

static int check_options(const struct calibrate_options *o, struct mr_error *err)
{
    if (o->paths.n > MR_CALIBRATE_PATHS_MAX)
        return mr_error_plain(err, MR_E_USAGE, "at most %d folders", MR_CALIBRATE_PATHS_MAX);
    if (o->request_size & (o->request_size - 1))
        return mr_error_plain(err, MR_E_USAGE, "--request-size must be a power of two");
    if (*o->out && o->only != MR_CALIBRATE_ALL)
        return mr_error_plain(err, MR_E_USAGE, "--out needs everything measured; leave out --only");
    return 0;
}

static int calibrate_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct calibrate_options *o = ctx->options;
    uint64_t begin = mr_now_ns();
    int rc = check_options(o, err);
    if (rc)
        return rc;
    struct mr_machine_calibration *c = calloc(1, sizeof(*c));
    bool others = false;
    rc = !c ? mr_error_set(err, -ENOMEM, "cannot calibrate") : o->net ? run_net(&c->net, &others, err) : 0;
    if (!rc && !others) {
        const struct mr_calibrate_options opt = {.only = (enum mr_calibrate_only)o->only,
                                                 .budget_s = (double)o->budget_ns / 1e9,
                                                 .file_bytes = o->file_size,
                                                 .request_bytes = o->request_size,
                                                 .max_threads = (unsigned)o->max_threads,
                                                 .stop = ctx->stop};
        rc = mr_machine_calibrate((const char *const *)o->paths.item, o->paths.n, &opt, c, err);
        if (!rc && *o->out)
            rc = mr_machine_write_system(c, o->request_size, o->out, err);
        double seconds = (double)(mr_now_ns() - begin) / 1e9;
        if (!rc && o->json)
            rc = mr_cli_print_json(stdout, calibration_json(c, seconds), err);
        else if (!rc)
            print_text(c, seconds);
    }
    free(c);
    return rc;
}

const struct mr_command mr_cmd_calibrate = {
    .name = "calibrate",
    .synopsis = "PATH... [--net] [--budget 60s] [--out SYSTEM.yaml] [--json]",
    .summary = "measure storage, memory and network; write a system file for sim",
    .details =
        "Measures each folder with 1, 2, 4 ... threads: random and sequential, direct and buffered, reads and writes, "
        "and how many files can be opened per second; then memory and, with --net, the network. Every figure is the "
        "median of three probes. The knee is the least number of threads that reaches 90 % of the best rate.\n"
        "\n"
        "Of s3://BUCKET/PREFIX a thread is a request at a time (up to 8 x --max-threads), an open a request of one "
        "byte: the "
        "system file has what one connection and all together bring, by size, and how many requests per second there "
        "are. "
        "A test object is written there and removed; where that is not allowed, one that is there is read.\n"
        "\n"
        "The test file has no name and takes at most --file-size and 10 % of the free space; nothing stays behind. "
        "Direct requests bypass the page cache; buffered reads start after the file's pages were dropped.\n"
        "\n"
        "Examples:\n"
        "  millrace calibrate /data --budget 30s --out here.yaml\n"
        "  millrace sim workload=unet3d_h100 system=here.yaml\n"
        "  mpirun -n 2 --map-by node millrace calibrate /lustre/me --net\n",
    .table = {"calibrate", "Calibration.", calibrate_rows, sizeof(struct calibrate_options)},
    .run = calibrate_run,
};
