/* `make bench`: the program. Options, rounds, the table. Measurements are in bench_*.c, floors in floor_*.c. */
#include "bench.h"
#include "base/common.h"

#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 64u
#define MORE_ROUNDS 3u /* how many times a missed budget may measure again */

static FILE *table;
static unsigned missed, measured;

bool bench_wanted(const struct bench_options *o, const char *name)
{
    for (const char *text = o->only, *end; text; text = *end ? end + 1 : NULL) {
        end = strchrnul(text, '|');
        if (memmem(name, strlen(name), text, (size_t)(end - text)))
            return true;
    }
    return !o->only;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

void bench_remove_tree(const char *path)
{
    if (nftw(path, remove_one, 32, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        bench_die("cannot empty '%s': %s", path, strerror(errno));
}

/* ---- rows ---- */

__attribute__((format(printf, 1, 2))) static void emit(const char *fmt, ...)
{
    va_list ap, copy;
    va_start(ap, fmt);
    va_copy(copy, ap);
    vprintf(fmt, ap);
    fflush(stdout);
    if (table)
        vfprintf(table, fmt, copy);
    va_end(copy);
    va_end(ap);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct series {
    double rate[ROUNDS_MAX * (MORE_ROUNDS + 1)];
    double cpu_rate; /* best units per CPU second */
    unsigned n;
};

static double best(struct series *s)
{
    qsort(s->rate, s->n, sizeof(s->rate[0]), by_value);
    return s->rate[s->n - 1];
}

/* How far the median lies below the best, in per cent: large on a busy machine. */
static double spread(struct series *s)
{
    double top = best(s);
    return 100 * (1 - s->rate[s->n / 2] / top);
}

static void one(bench_fn *fn, void *user, unsigned threads, struct series *s)
{
    struct bench_run r = {0};
    fn(user, threads, &r);
    if (r.time.wall_s <= 0 || r.time.cpu_s <= 0)
        bench_die("a run took no time");
    s->rate[s->n++] = r.units / r.time.wall_s;
    s->cpu_rate = MR_MAX(s->cpu_rate, r.units / r.time.cpu_s);
}

void bench_compare(const struct bench_options *o, const char *name, unsigned threads, bench_fn *product,
                   bench_fn *floor, void *user, double divide, const char *unit, double budget)
{
    struct series p = {.n = 0}, f = {.n = 0};
    double ratio = 0;
    for (unsigned again = 0; again <= (o->quick ? 0 : MORE_ROUNDS); again++) {
        for (unsigned i = 0; i < o->rounds; i++) { /* alternate who goes first */
            one(i % 2 ? floor : product, user, threads, i % 2 ? &f : &p);
            one(i % 2 ? product : floor, user, threads, i % 2 ? &p : &f);
        }
        ratio = best(&p) / best(&f);
        if (ratio >= budget)
            break;
    }
    bool miss = ratio < budget;
    missed += miss;
    measured++;
    emit("| %s | %u | %.4g | %.4g | %s | %.2f | %.2f | ", name, threads, best(&p) / divide, best(&f) / divide, unit,
         ratio, p.cpu_rate / f.cpu_rate);
    if (budget > 0)
        emit("%.2f | %s | %.0f / %.0f %% of %u |\n", budget, miss ? "MISS" : "pass", spread(&p), spread(&f), p.n);
    else
        emit("- | | %.0f / %.0f %% of %u |\n", spread(&p), spread(&f), p.n);
}

void bench_value(const char *name, double value, const char *unit, bool at_most, double limit)
{
    bool miss = limit > 0 && (at_most ? value > limit : value < limit);
    missed += miss;
    measured++;
    emit("| %s | 1 | %.4g | - | %s | - | - | ", name, value, unit);
    if (limit > 0)
        emit("%s %.4g | %s | |\n", at_most ? "<=" : ">=", limit, miss ? "MISS" : "pass");
    else
        emit("- | | |\n");
}

void bench_absent(const char *name, const char *what)
{
    emit("| %s | | not here: no %s | | | | | | | |\n", name, what);
}

void bench_failed(const char *name, const char *why)
{
    missed++;
    measured++;
    emit("| %s | | failed: %s | | | | | | MISS | |\n", name, why);
}

/* ---- children ---- */

void bench_spawn(char *const *argv, struct bench_child *out)
{
    int fds[2], status;
    struct rusage usage;
    char text[256] = "";
    if (pipe(fds) != 0)
        bench_die("pipe: %s", strerror(errno));
    struct bench_time start = bench_clock();
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDOUT_FILENO);
        close(fds[0]);
        close(fds[1]);
        execv(argv[0], argv);
        _exit(127);
    }
    close(fds[1]);
    size_t len = 0;
    char more[4096]; /* read to the end, or a talkative child would be killed by its pipe */
    for (ssize_t n; (n = len < sizeof text - 1 ? read(fds[0], text + len, sizeof text - 1 - len)
                                               : read(fds[0], more, sizeof more)) > 0;)
        len = MR_MIN(len + (size_t)n, sizeof text - 1);
    close(fds[0]);
    if (pid < 0 || wait4(pid, &status, 0, &usage) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        bench_die("child '%s %s %s' failed", argv[0], argv[1] ? argv[1] : "", argv[1] && argv[2] ? argv[2] : "");
    *out = (struct bench_child){.seconds = bench_since(start).wall_s,
                                .peak_bytes = (double)usage.ru_maxrss * 1024,
                                .value = strtod(text, NULL)};
}

/* ---- the program ---- */

static void cpu_name(char *out, size_t cap)
{
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(out, cap, "unknown CPU");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (colon && strncmp(line, "model name", 10) == 0) {
            snprintf(out, cap, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
            break;
        }
    }
    if (f)
        fclose(f);
}

static void print_head(const struct bench_options *o)
{
    char cpu[256], date[64];
    struct utsname u;
    struct statfs fs;
    double load[1] = {0};
    time_t now = time(NULL);
    struct tm tm;
    cpu_name(cpu, sizeof cpu);
    uname(&u);
    statfs(o->dir, &fs);
    if (getloadavg(load, 1) != 1)
        load[0] = -1;
    strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &tm));
    emit("# Millrace against its floors\n\n%s, %s, %ld CPUs, Linux %s, file system type 0x%lx, load average at start "
         "%.2f.\n",
         date, cpu, sysconf(_SC_NPROCESSORS_ONLN), u.release, (unsigned long)fs.f_type, load[0]);
    emit("Best of at least %u interleaved rounds; the last column says how far the medians lie below (product / floor, "
         "of how many).\n\n",
         o->rounds);
    emit("| path | threads | Millrace | floor | unit | ratio | by CPU time | budget | | spread "
         "|\n|---|---|---|---|---|---|---|---|---|---|\n");
}

static struct bench_options parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"dir", 1, NULL, 'd'},    {"millrace", 1, NULL, 'm'},  {"out", 1, NULL, 'o'},   {"only", 1, NULL, 'y'},
        {"rounds", 1, NULL, 'r'}, {"hot-floor", 0, NULL, 'h'}, {"quick", 0, NULL, 'q'}, {0}};
    struct bench_options o = {.dir = "bench-data", .self = "/proc/self/exe", .rounds = 5};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (c) {
        case 'd': o.dir = optarg; break;
        case 'm': o.millrace = optarg; break;
        case 'o': o.out = optarg; break;
        case 'y': o.only = optarg; break;
        case 'r': o.rounds = (unsigned)strtoul(optarg, NULL, 10); break;
        case 'h': o.hot = true; break;
        case 'q':
            o.quick = true;
            o.rounds = 1;
            break;
        default: exit(2);
        }
    if (optind < argc || o.rounds < 1 || o.rounds > ROUNDS_MAX) {
        fprintf(stderr,
                "usage: bench_formats [--dir FOLDER] [--millrace PROGRAM] [--out FILE] [--only TEXT] [--rounds 1..%u] "
                "[--quick] [--hot-floor]\n",
                ROUNDS_MAX);
        exit(2);
    }
    return o;
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--child") == 0)
        return bench_child_main(argc - 2, argv + 2);
    struct bench_options o = parse(argc, argv);
    bench_remove_tree(o.dir);
    if (mkdir(o.dir, 0777) != 0)
        bench_die("cannot create '%s': %s", o.dir, strerror(errno));
    if (o.out && !(table = fopen(o.out, "w")))
        bench_die("cannot write '%s': %s", o.out, strerror(errno));
    print_head(&o);
    bench_ssd_all(&o);
    bench_misc_all(&o);
    bench_generate_all(&o);
    bench_read_all(&o);
    bench_loader_all(&o);
    bench_remove_tree(o.dir);
    emit("\n%u rows, %u budgets missed.\n", measured, missed);
    if (table && fclose(table) != 0)
        bench_die("cannot write '%s': %s", o.out, strerror(errno));
    if (measured == 0)
        bench_die("no row contains '%s'", o.only ? o.only : "");
    return missed ? 3 : 0;
}
