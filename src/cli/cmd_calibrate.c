/* `millrace calibrate`: what this machine's storage, memory and network deliver, as a table and as a system file for
 * `millrace sim`. */
#include "cli/commands.h"
#include "cli/workload_args.h"
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "comm/comm.h"
#include "model/calibrate.h"
#include "model/system_yaml.h"

#include <millrace/version.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
        .doc = "Folders to measure: the first stands for the parallel file system, the others for storage classes of a "
               "node.",
        .example = "millrace calibrate /lustre/me /local/ssd"),
    ROW("budget", budget_ns, DURATION, "60s", .min = 1, .max = 86400,
        .doc = "Time for everything, shared by the folders."),
    ROW("file_size", file_size, BYTES, "1GiB", .min = 16777216, .max = 1e13,
        .doc = "The test file's size, at most; never more than 10 % of the free space."),
    ROW("request_size", request_size, BYTES, "1MiB", .min = 4096, .max = 4194304,
        .doc = "Size of the requests that the system's tables are made of: that of your samples; a power of two."),
    ROW("max_threads", max_threads, INT, "8", .min = 1, .max = 64,
        .doc = "Measures 1, 2, 4 ... up to so many threads."),
    ROW("only", only, ENUM, "all", .choices = only_names,
        .doc = "Measures one kind of request at --request-size, or memory, and nothing else: quick, or exact.",
        .example = "--only random-read --request-size 64KiB"),
    ROW("net", net, BOOL, "false",
        .doc = "Also measures the network, point to point: between the ranks of mpirun or srun, else between two local "
               "processes."),
    ROW("out", out, STRING, "", .short_flag = 'o', .doc = "Writes the machine as a system file.",
        .example = "--out here.yaml; millrace sim workload=unet3d_h100 system=here.yaml"),
    ROW("json", json, BOOL, "false", .short_flag = 'j', .doc = "Prints one JSON object."),
    MR_OPTION_END,
};

struct network { /* point to point, from rank 0 to each of the others in turn; the slowest pair counts */
    uint32_t ranks;
    double bytes_per_s, latency_s;
};

struct calibration {
    unsigned n_paths;
    struct mr_path_calibration paths[MR_CALIBRATE_PATHS_MAX];
    struct mr_memory_calibration memory;
    struct network net;
    uint64_t memory_bytes;
    double seconds;
};

/* ---- network ---- */

/* `times` messages from rank 0 to `peer`, and one small answer at the end (bandwidth) or after each (round trips). */
static int exchange(struct mr_comm *c, uint32_t peer, char *buf, size_t len, unsigned times, bool answer_each,
                    double *seconds, struct mr_error *err)
{
    char answer = 0;
    uint64_t begin = mr_now_ns();
    int rc = 0;
    for (unsigned k = 1; k <= times && !rc; k++) {
        bool answers = answer_each || k == times;
        if (c->rank == 0) {
            rc = mr_comm_send(c, buf, len, peer, err);
            rc = !rc && answers ? mr_comm_recv(c, answer_each ? buf : &answer, answer_each ? len : 1, peer, err) : rc;
        } else if (c->rank == peer) {
            rc = mr_comm_recv(c, buf, len, 0, err);
            rc = !rc && answers ? mr_comm_send(c, answer_each ? buf : &answer, answer_each ? len : 1, 0, err) : rc;
        }
    }
    *seconds = (double)(mr_now_ns() - begin) / 1e9;
    return rc;
}

enum { NET_LARGE = 4 << 20, NET_LARGE_TIMES = 32, NET_SMALL_TIMES = 200, NET_ROUNDS = 3 };

/* One pair: the best of the rounds, because a disturbance only slows down. Half a round trip of 8 bytes is the latency.
 */
static int measure_pair(struct mr_comm *c, uint32_t peer, char *buf, struct network *out, struct mr_error *err)
{
    *out = (struct network){.latency_s = INFINITY};
    int rc = 0;
    for (int k = 0; k < NET_ROUNDS && !rc; k++) {
        double large = 0, small = 0;
        rc = mr_comm_barrier(c, err);
        rc = rc ? rc : exchange(c, peer, buf, NET_LARGE, NET_LARGE_TIMES, false, &large, err);
        rc = rc ? rc : exchange(c, peer, buf, 8, NET_SMALL_TIMES, true, &small, err);
        out->bytes_per_s = fmax(out->bytes_per_s, (double)NET_LARGE * NET_LARGE_TIMES / fmax(large, 1e-9));
        out->latency_s = fmin(out->latency_s, small / NET_SMALL_TIMES / 2);
    }
    return rc;
}

/* Only rank 0's figures mean something; the others take part. */
static int measure_net(struct mr_comm *c, struct network *out, struct mr_error *err)
{
    if (c->world < 2) {
        mr_error_plain(err, MR_E_USAGE, "--net needs at least two ranks, %s started one",
                       mr_comm_detect_launcher(NULL) ? "the launcher" : "this job has");
        return mr_error_hint(err, "start two: mpirun -n 2 --map-by node millrace calibrate ... --net"), MR_E_USAGE;
    }
    char *buf = calloc(1, NET_LARGE);
    int rc = buf ? 0 : mr_error_set(err, -ENOMEM, "measuring the network");
    struct network worst = {.ranks = c->world, .bytes_per_s = INFINITY};
    for (uint32_t peer = 1; peer < c->world && !rc; peer++) {
        struct network pair;
        rc = measure_pair(c, peer, buf, &pair, err);
        worst.bytes_per_s = fmin(worst.bytes_per_s, pair.bytes_per_s);
        worst.latency_s = fmax(worst.latency_s, pair.latency_s);
    }
    free(buf);
    if (!rc)
        *out = worst;
    return rc;
}

/* Joins the ranks and measures; *others is set on those that have nothing more to do. Forks, so it comes before any
 * thread. */
static int run_net(struct network *out, bool *others, struct mr_error *err)
{
    struct mr_comm *c;
    int rc = mr_comm_open(mr_comm_detect_launcher(NULL) ? 0 : 2, 0, &c, err);
    if (rc)
        return rc;
    rc = measure_net(c, out, err);
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
    if (c->opens_per_s.n)
        printf("  open+close %.0f/s, stat %.0f/s with %u threads\n", c->opens_per_s.median, c->stats_per_s.median,
               c->meta_threads);
    putchar('\n');
}

static void print_text(const struct calibration *c)
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
    printf("took %.1f s\n", c->seconds);
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

static json_t *calibration_json(const struct calibration *c)
{
    json_t *paths = json_array(), *memory = json_array();
    for (unsigned i = 0; i < c->n_paths; i++)
        json_array_append_new(paths, path_json(&c->paths[i]));
    for (unsigned i = 0; i < c->memory.n; i++)
        json_array_append_new(memory, json_pack("{s:i, s:I, s:o?}", "threads", (int)c->memory.points[i].threads,
                                                "block_bytes", (json_int_t)c->memory.points[i].block_bytes,
                                                "bytes_per_s", rate_json(&c->memory.points[i].bytes_per_s)));
    json_t *root = json_pack("{s:s, s:o, s:o, s:I, s:f}", "schema", "millrace.calibrate/1", "paths", paths, "memory",
                             memory, "memory_bytes", (json_int_t)c->memory_bytes, "took_s", c->seconds);
    if (root && c->net.ranks)
        json_object_set_new(root, "network",
                            json_pack("{s:i, s:f, s:f}", "ranks", (int)c->net.ranks, "bytes_per_s", c->net.bytes_per_s,
                                      "latency_s", c->net.latency_s));
    return root;
}

/* ---- the system file ---- */

static int write_file(const char *path, const struct mr_strbuf *text, struct mr_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return mr_error_set(err, -errno, "cannot write '%s'", path);
    int rc = 0;
    for (size_t n = 0; n < text->len && !rc;) {
        ssize_t w = write(fd, text->text + n, text->len - n);
        if (w < 0 && errno != EINTR)
            rc = -errno;
        n += w > 0 ? (size_t)w : 0;
    }
    if (close(fd) && !rc)
        rc = -errno;
    return rc ? mr_error_set(err, rc, "cannot write '%s'", path) : 0;
}

static int write_system(const struct calibration *c, const struct calibrate_options *o, struct mr_error *err)
{
    struct mr_system s;
    struct mr_strbuf text = {0};
    char host[64] = "this machine";
    mr_calibration_system(c->paths, c->n_paths, &c->memory, o->request_size, c->memory_bytes, c->net.bytes_per_s / 1e6,
                          &s);
    (void)gethostname(host, sizeof host - 1);
    snprintf(s.name, sizeof s.name, "%s", host);
    snprintf(s.source, sizeof s.source, "millrace calibrate %s on %s", MR_VERSION, host);
    mr_system_write(&s,
                    c->net.ranks
                        ? "The PFS table holds one client, this machine. No compute rate: give step_time or compute."
                        : "The PFS table holds one client, this machine; the network was not measured and stands for "
                          "unlimited. No compute rate: give step_time or compute.",
                    &text);
    int rc = text.failed ? mr_error_set(err, -ENOMEM, "writing '%s'", o->out) : write_file(o->out, &text, err);
    mr_strbuf_done(&text);
    return rc;
}

/* ---- run ---- */

static uint64_t usable_memory(void)
{
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE),
             limit = mr_cgroup_memory_limit();
    return limit ? MR_MIN(machine, limit) : machine;
}

static int measure_all(const struct calibrate_options *o, const atomic_bool *stop, struct calibration *c,
                       struct mr_error *err)
{
    double budget = (double)o->budget_ns / 1e9, files = o->only == MR_CALIBRATE_MEMORY ? 0
                                                        : o->only == MR_CALIBRATE_ALL  ? 0.9
                                                                                       : 1;
    struct mr_calibrate_options one = {.only = (enum mr_calibrate_only)o->only,
                                       .budget_s = files * budget / o->paths.n,
                                       .file_bytes = o->file_size,
                                       .request_bytes = o->request_size,
                                       .copy_bytes = c->memory_bytes / 16,
                                       .max_threads = (unsigned)o->max_threads,
                                       .stop = stop};
    int rc = 0;
    for (unsigned i = 0; i < o->paths.n && !rc && files > 0; i++) {
        mr_log(MR_LOG_INFO, "measuring '%s' for %.0f s", o->paths.item[i], one.budget_s);
        rc = mr_calibrate_path(o->paths.item[i], &one, &c->paths[i], err);
    }
    c->n_paths = files > 0 ? o->paths.n : 0;
    if (rc || files == 1)
        return rc;
    one.budget_s = (files > 0 ? 0.08 : 1) * budget;
    one.max_threads = MR_MIN(one.max_threads, 2 * mr_cpus_affinity());
    return mr_calibrate_memory(&one, &c->memory, err);
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
    struct calibration *c = calloc(1, sizeof(*c));
    bool others = false;
    rc = !c ? mr_error_set(err, -ENOMEM, "calibrating") : o->net ? run_net(&c->net, &others, err) : 0;
    if (!rc && !others) {
        c->memory_bytes = usable_memory();
        rc = measure_all(o, ctx->stop, c, err);
        if (!rc && *o->out)
            rc = write_system(c, o, err);
        c->seconds = (double)(mr_now_ns() - begin) / 1e9;
        if (!rc && o->json)
            rc = mr_cli_print_json(stdout, calibration_json(c), err);
        else if (!rc)
            print_text(c);
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
        "and how "
        "many files can be opened per second; then memory and, with --net, the network. Every figure is the median of "
        "three "
        "probes. The knee is the least number of threads that reaches 90 % of the best rate.\n"
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
