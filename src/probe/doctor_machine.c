/* The machine part of `millrace doctor`: memory, cores, load, clocks, kernel features, limits, MPI. Everything is read
 * from /proc and /sys or tried with a system call; what is not visible is reported as such. */
#include "probe/doctor.h"
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/strbuf.h"
#include "base/workers.h"
#include "comm/comm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* A line of /proc/meminfo in bytes; 0 if it is not there. */
static double meminfo(const char *key)
{
    FILE *f = fopen("/proc/meminfo", "re");
    char line[256];
    double bytes = 0;
    size_t len = strlen(key);
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, len) == 0 && line[len] == ':')
            bytes = strtod(line + len + 1, NULL) * 1024;
    if (f)
        fclose(f);
    return bytes;
}

static void check_memory(struct mr_doctor *d)
{
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN];
    double total = meminfo("MemTotal"), available = meminfo("MemAvailable"), cached = meminfo("Cached");
    double limit = (double)mr_cgroup_memory_limit(), used = (double)mr_cgroup_memory_used();
    mr_doctor_figure(d, "memory_total_bytes", total);
    mr_doctor_figure(d, "memory_available_bytes", available);
    mr_doctor_figure(d, "page_cache_bytes", cached);
    mr_doctor_figure(d, "cgroup_memory_limit_bytes", limit);
    bool small = available < 2.0 * (double)MR_GIB;
    mr_doctor_add(d, "memory", small ? MR_DOCTOR_WARN : MR_DOCTOR_OK,
                  small ? "Little memory is free: buffers compete with the page cache, and swapping looks like slow "
                          "storage. Stop other programs."
                        : "",
                  "%s available of %s", mr_human_bytes(available, a), mr_human_bytes(total, b));
    double reach = limit > 0 && limit < total ? limit : total;
    mr_doctor_add(d, "page cache", MR_DOCTOR_NOTE,
                  mr_arena_printf(d->arena,
                                  "A data set smaller than about %s is served from memory after its first epoch. Use a "
                                  "larger one, O_DIRECT, or let runs drop the cache between epochs.",
                                  mr_human_bytes(reach, a)),
                  "%s in use", mr_human_bytes(cached, b));
    if (limit > 0)
        mr_doctor_add(d, "memory limit", limit < total ? MR_DOCTOR_NOTE : MR_DOCTOR_OK,
                      limit < total ? "The control group's page cache counts against its limit: a job with a smaller "
                                      "limit caches less than this machine's memory suggests."
                                    : "",
                      "control group allows %s, uses %s", mr_human_bytes(limit, a), mr_human_bytes(used, b));
}

static void check_cores(struct mr_doctor *d)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned affinity = mr_cpus_affinity(), usable = mr_cpus_available();
    double quota = mr_cgroup_cpu_quota(), load = 0;
    char line[128];
    mr_doctor_figure(d, "cores_online_count", (double)online);
    mr_doctor_figure(d, "cores_affinity_count", affinity);
    mr_doctor_figure(d, "cores_quota_cores", quota);
    if (quota > 0 && quota < affinity)
        mr_doctor_add(d, "cores", MR_DOCTOR_WARN,
                      "The control group is stopped for the rest of each period once its quota is used up: stalls that "
                      "look like slow storage. Use no more threads than the quota, or raise it.",
                      "%ld online, %u in the affinity mask, quota %.2f: %u usable", online, affinity, quota, usable);
    else if (affinity < online)
        mr_doctor_add(d, "cores", MR_DOCTOR_NOTE, "Bound to some of the cores; thread counts follow the mask.",
                      "%ld online, %u in the affinity mask", online, affinity);
    else
        mr_doctor_add(d, "cores", MR_DOCTOR_OK, "", "%ld, all usable", online);
    if (mr_doctor_read("/proc/loadavg", line, sizeof line))
        load = strtod(line, NULL);
    mr_doctor_figure(d, "load_1min_tasks", load);
    bool busy = load > 0.3 * (double)online;
    mr_doctor_add(
        d, "load", busy ? MR_DOCTOR_WARN : MR_DOCTOR_OK,
        busy ? "Other programs use the cores or wait for storage: results will be slower and vary. Wait or stop them."
             : "",
        "%.2f over the last minute", load);
}

/* Asks for the smallest ring by number, so that the answer does not depend on liburing being there. */
static int probe_uring(void)
{
    struct {
        uint32_t field[30]; /* struct io_uring_params: 120 bytes */
    } params = {{0}};
    long fd = syscall(425 /* io_uring_setup on every architecture */, 1, &params);
    if (fd < 0)
        return -errno;
    close((int)fd);
    return 0;
}

static void check_uring(struct mr_doctor *d)
{
    char line[32];
    int code = probe_uring();
    bool disabled = mr_doctor_read("/proc/sys/kernel/io_uring_disabled", line, sizeof line) && line[0] != '0';
    if (code == 0 && d->built_with_uring)
        mr_doctor_add(d, "io_uring", MR_DOCTOR_OK, "", "available");
    else if (code == 0)
        mr_doctor_add(
            d, "io_uring", MR_DOCTOR_NOTE,
            "Runs use the posix backend (threads) instead. Rebuild with liburing for deep queues on few cores.",
            "the kernel has it, this build does not");
    else
        mr_doctor_add(
            d, "io_uring", MR_DOCTOR_NOTE,
            disabled ? "Runs fall back to the posix backend (threads). Allow it: sysctl kernel.io_uring_disabled=0."
                     : "Runs fall back to the posix backend (threads). Containers often forbid it; the kernel must be "
                       "5.6 or newer.",
            "not available: %s%s", strerror(-code), disabled ? ", switched off by sysctl" : "");
}

static const char *limit_text(struct mr_doctor *d, rlim_t v)
{
    char a[MR_HUMAN_LEN];
    return v == RLIM_INFINITY ? "unlimited" : mr_arena_strdup(d->arena, mr_human_count((unsigned long long)v, a));
}

static void check_limits(struct mr_doctor *d)
{
    struct rlimit files = {0}, lock = {0};
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_MEMLOCK, &lock);
    bool few = files.rlim_cur < 4096;
    mr_doctor_figure(d, "limit_open_files_count", files.rlim_cur == RLIM_INFINITY ? -1 : (double)files.rlim_cur);
    mr_doctor_figure(d, "limit_locked_memory_bytes", lock.rlim_cur == RLIM_INFINITY ? -1 : (double)lock.rlim_cur);
    mr_doctor_add(d, "open files", few ? MR_DOCTOR_NOTE : MR_DOCTOR_OK,
                  few ? "Many ranks or many open shards may hit the limit. Raise it: ulimit -n 65536." : "",
                  "%s (hard limit %s)", limit_text(d, files.rlim_cur), limit_text(d, files.rlim_max));
    bool little = lock.rlim_cur != RLIM_INFINITY && lock.rlim_cur < 64 * MR_MIB;
    mr_doctor_add(
        d, "locked memory", little ? MR_DOCTOR_NOTE : MR_DOCTOR_OK,
        little ? "Buffers cannot be registered with the kernel or pinned for a GPU beyond this. Raise it: ulimit -l."
               : "",
        "%s bytes", limit_text(d, lock.rlim_cur));
}

static bool in_path(const char *program)
{
    const char *path = getenv("PATH");
    char file[4096];
    while (path && *path) {
        size_t len = strcspn(path, ":");
        snprintf(file, sizeof file, "%.*s/%s", (int)len, path, program);
        if (len && access(file, X_OK) == 0)
            return true;
        path += len + (path[len] == ':');
    }
    return false;
}

static void check_mpi(struct mr_doctor *d)
{
    char module[4096];
    bool launcher = in_path("mpirun") || in_path("srun"), have = mr_comm_module_find(module, sizeof module);
    const char *started_by = NULL;
    uint32_t started = mr_comm_detect_launcher(&started_by);
    if (started)
        mr_doctor_add(d, "MPI", have ? MR_DOCTOR_OK : MR_DOCTOR_WARN,
                      have ? "" : "The MPI module is missing: ranks cannot communicate. Build with mpicc installed.",
                      "started by %s as one of %u", started_by, started);
    else if (launcher && have)
        mr_doctor_add(d, "MPI", MR_DOCTOR_OK, "", "launcher and module found");
    else
        mr_doctor_add(
            d, "MPI", launcher ? MR_DOCTOR_NOTE : MR_DOCTOR_OK,
            launcher
                ? "Runs over several machines need it: build with mpicc installed. One machine does not: --ranks N."
                : "",
            "%s",
            launcher ? "launcher found, but this build has no MPI module"
            : have   ? "module found, no launcher; local ranks work with --ranks N"
                     : "not found; local ranks work with --ranks N");
}

/* What one reading of our clock costs, the best of several tries. */
static double clock_cost_ns(void)
{
    double best = 1e9;
    for (int try = 0; try < 20; try++) {
        uint64_t begin = mr_now_ns(), now = begin;
        for (int i = 0; i < 200; i++)
            now = mr_now_ns();
        best = MR_MIN(best, (double)(now - begin) / 200);
    }
    return best;
}

static bool cpu_flag(const char *flag)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char *line = NULL;
    size_t cap = 0;
    bool found = false;
    while (f && !found && getline(&line, &cap, f) > 0) {
        if (strncmp(line, "flags", 5) != 0)
            continue;
        for (char *save = NULL, *w = strtok_r(line, " \t\n", &save); w && !found; w = strtok_r(NULL, " \t\n", &save))
            found = strcmp(w, flag) == 0;
        break;
    }
    free(line);
    if (f)
        fclose(f);
    return found;
}

static void check_clock(struct mr_doctor *d)
{
    char source[64] = "unknown", cost[MR_HUMAN_LEN];
    struct timespec res = {0};
    clock_getres(CLOCK_MONOTONIC, &res);
    mr_doctor_read("/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof source);
    double ns = clock_cost_ns();
    mr_doctor_figure(d, "clock_read_cost_ns", ns);
    mr_doctor_figure(d, "clock_resolution_ns", (double)res.tv_sec * 1e9 + (double)res.tv_nsec);
    bool steady = cpu_flag("constant_tsc") && cpu_flag("nonstop_tsc"), slow = ns > 200;
    mr_doctor_add(d, "clock", slow ? MR_DOCTOR_WARN : MR_DOCTOR_OK,
                  slow ? "Reading the time costs so much that tracing and small-read latencies are distorted. Boot "
                         "with a TSC clock source if the machine has one."
                       : "",
                  "source %s, %s per reading, resolution %ld ns%s", source, mr_human_ns(ns, cost), (long)res.tv_nsec,
                  steady ? ", steady TSC" : "");
}

static void check_power(struct mr_doctor *d)
{
    char governor[64], turbo[16];
    if (!mr_doctor_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", governor, sizeof governor)) {
        mr_doctor_add(d, "CPU frequency", MR_DOCTOR_OK, "", "governor not visible");
        return;
    }
    bool fixed = strcmp(governor, "performance") == 0;
    bool boost =
        mr_doctor_read("/sys/devices/system/cpu/intel_pstate/no_turbo", turbo, sizeof turbo) && turbo[0] == '0';
    mr_doctor_add(d, "CPU frequency", fixed ? MR_DOCTOR_OK : MR_DOCTOR_NOTE,
                  fixed ? ""
                        : "Cores slow down while they wait for I/O, which lengthens decode times. Set it: cpupower "
                          "frequency-set -g performance.",
                  "governor %s%s", governor, boost ? ", turbo on" : "");
}

static void check_kernel(struct mr_doctor *d)
{
    struct utsname u;
    char line[128], ratio[32] = "?", background[32] = "?";
    if (uname(&u) == 0)
        mr_doctor_add(d, "kernel", MR_DOCTOR_OK, "", "%s %s %s", u.sysname, u.release, u.machine);
    if (mr_doctor_read("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line)) {
        bool never = strstr(line, "[never]") != NULL;
        mr_doctor_add(d, "huge pages", never ? MR_DOCTOR_NOTE : MR_DOCTOR_OK,
                      never ? "Large buffers and orders use small pages: more time in page faults. Set it to madvise."
                            : "",
                      "transparent: %s", line);
    }
    if (mr_doctor_read("/proc/sys/vm/dirty_ratio", ratio, sizeof ratio) &&
        mr_doctor_read("/proc/sys/vm/dirty_background_ratio", background, sizeof background))
        mr_doctor_add(d, "write-back", MR_DOCTOR_OK, "", "writers wait at %s %% dirty memory, flushing starts at %s %%",
                      ratio, background);
    if (meminfo("SwapTotal") > 0 && meminfo("SwapTotal") - meminfo("SwapFree") > (double)(64 * MR_MIB))
        mr_doctor_add(d, "swap", MR_DOCTOR_NOTE, "Something was swapped out; swapping back in looks like slow storage.",
                      "in use");
}

static void check_container(struct mr_doctor *d)
{
    char vendor[128] = "", product[128] = "", container[128] = "";
    mr_doctor_read("/sys/class/dmi/id/sys_vendor", vendor, sizeof vendor);
    mr_doctor_read("/sys/class/dmi/id/product_name", product, sizeof product);
    if (!mr_doctor_read("/run/systemd/container", container, sizeof container))
        snprintf(container, sizeof container, "%s",
                 access("/.dockerenv", F_OK) == 0          ? "docker"
                 : access("/run/.containerenv", F_OK) == 0 ? "podman"
                                                           : "");
    bool vm = cpu_flag("hypervisor");
    if (!vm && !container[0]) {
        mr_doctor_add(d, "machine", MR_DOCTOR_OK, "", "%s %s, no virtual machine or container seen", vendor, product);
        return;
    }
    mr_doctor_add(d, "machine", MR_DOCTOR_NOTE,
                  "Neighbours share cores, caches and storage, and the host may cache what O_DIRECT reads. Repeat runs "
                  "and compare medians.",
                  "%s%s%s%s%s", vm ? "virtual machine" : "", vm && container[0] ? ", " : "",
                  container[0] ? "container " : "", container,
                  product[0] ? mr_arena_printf(d->arena, " (%s %s)", vendor, product) : "");
}

void mr_doctor_machine(struct mr_doctor *d)
{
    check_memory(d);
    check_cores(d);
    check_uring(d);
    check_limits(d);
    check_mpi(d);
    check_clock(d);
    check_power(d);
    check_kernel(d);
    check_container(d);
}
