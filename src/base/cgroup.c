/* Affinity and control-group limits. The group's path stands in /proc/self/cgroup, for version 2 as "0::/a/b", for
 * version 1 per controller as "4:memory:/a/b"; both may be there at once. Every level up to the root may set a limit,
 * and the tightest counts. Inside a container the path may point outside of what is mounted; the walk then simply finds
 * the mounted root's files. */
#include "base/cgroup.h"
#include "base/common.h"
#include "base/strbuf.h"
#include "base/workers.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#define TMPFS 0x01021994
#define OVERLAY 0x794c7630
#define ROOT "/sys/fs/cgroup"
#define CHECKED_ABOVE (64 * MR_MIB) /* less is not worth looking at /proc and /sys for */
#define NO_LIMIT (1ull << 60)       /* version 1 writes "no limit" as a huge number */

static const char *root = ROOT, *own_groups = "/proc/self/cgroup";

void mr_cgroup_use(const char *folder, const char *groups)
{
    root = folder ? folder : ROOT;
    own_groups = groups ? groups : "/proc/self/cgroup";
}

static bool read_line(const char *path, char *line, size_t cap)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool ok = fgets(line, (int)cap, f) != NULL;
    fclose(f);
    return ok;
}

/* Whether `name` is one of the words of "cpu,cpuacct"; "" names version 2, whose list is empty. */
static bool has_controller(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (n && strncmp(list, name, n) == 0 && (list[n] == ',' || !list[n]))
            return true;
    return false;
}

/* The own group's path in the hierarchy of a controller of version 1, or ("") of version 2; "/" where it is unknown. */
static void own_group(const char *controller, char *path, size_t cap)
{
    char line[1024];
    snprintf(path, cap, "/");
    FILE *f = fopen(own_groups, "re");
    if (!f)
        return;
    while (fgets(line, sizeof line, f)) {
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group || group[1] != '/')
            continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        if (*controller ? has_controller(list + 1, controller) : !list[1])
            snprintf(path, cap, "%s", group);
    }
    fclose(f);
}

/* Calls visit(folder) for each level from the own group to the root of a hierarchy. In a container the upper part of
 * the path may not be mounted; files that are missing set no limit. */
static void walk_groups(const char *controller, void (*visit)(void *state, const char *folder), void *state)
{
    char group[1024], folder[2200];
    own_group(controller, group, sizeof group);
    for (;;) {
        snprintf(folder, sizeof folder, "%s%s%s%s", root, *controller ? "/" : "", controller,
                 strcmp(group, "/") ? group : "");
        visit(state, folder);
        char *slash = strrchr(group, '/');
        if (!slash || !strcmp(group, "/"))
            return;
        slash[slash == group] = '\0';
    }
}

static bool read_in(const char *folder, const char *file, char *line, size_t cap)
{
    char path[2300];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return read_line(path, line, cap);
}

unsigned mr_cpus_of_process(pid_t pid)
{
    unsigned found = 0;
    for (int cpus = 1024; !found && cpus <= 1 << 20; cpus *= 4) { /* EINVAL: the mask is too small for this kernel */
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (!set)
            break;
        if (sched_getaffinity(pid, CPU_ALLOC_SIZE((size_t)cpus), set) == 0)
            found = (unsigned)CPU_COUNT_S(CPU_ALLOC_SIZE((size_t)cpus), set);
        CPU_FREE(set);
    }
    return found;
}

unsigned mr_cpus_affinity(void)
{
    return MR_MAX(mr_cpus_of_process(0), 1u);
}

static void lower_quota(double *best, double quota, double period)
{
    if (quota > 0 && period > 0)
        *best = *best > 0 ? MR_MIN(*best, quota / period) : quota / period;
}

static void visit_quota(void *state, const char *folder)
{
    char line[256];
    double quota, period;
    if (read_in(folder, "cpu.max", line, sizeof line) && sscanf(line, "%lf %lf", &quota, &period) == 2)
        lower_quota(state, quota, period);
}

static void visit_quota_v1(void *state, const char *folder)
{
    char quota[64], period[64];
    if (read_in(folder, "cpu.cfs_quota_us", quota, sizeof quota) &&
        read_in(folder, "cpu.cfs_period_us", period, sizeof period))
        lower_quota(state, strtod(quota, NULL), strtod(period, NULL));
}

double mr_cgroup_cpu_quota(void)
{
    double best = 0;
    walk_groups("", visit_quota, &best);
    walk_groups("cpu", visit_quota_v1, &best);
    return best;
}

/* The tightest limit and what is charged to its group; the least that any level leaves, which may be another one: its
 * other groups have used it. */
struct memory_limit {
    uint64_t bytes, used, room;
};

/* Of memory.stat. Version 1 counts the groups below under names of their own. */
struct memory_stat {
    uint64_t file_pages;  /* dropped when memory is wanted */
    uint64_t limit_above; /* version 1: the tightest up to the root, also where that is not mounted */
};

static struct memory_stat read_stat(const char *folder)
{
    static const char *const keys[] = {"inactive_file ", "active_file ", "total_inactive_file ", "total_active_file ",
                                       "hierarchical_memory_limit "};
    uint64_t value[MR_ARRAY_LEN(keys)] = {0};
    char line[256], path[2300];
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        for (unsigned k = 0; k < MR_ARRAY_LEN(keys); k++)
            if (strncmp(line, keys[k], strlen(keys[k])) == 0)
                value[k] = strtoull(line + strlen(keys[k]), NULL, 10);
    if (f)
        fclose(f);
    return (struct memory_stat){MR_MAX(value[0] + value[1], value[2] + value[3]), value[4]};
}

/* "max" is no number: no limit at this level. */
static uint64_t read_bytes(const char *folder, const char *file)
{
    char line[64], *end;
    if (!read_in(folder, file, line, sizeof line))
        return 0;
    unsigned long long v = strtoull(line, &end, 10);
    return end != line && v < NO_LIMIT ? v : 0;
}

static uint64_t lower_of(uint64_t a, uint64_t b)
{
    return !a ? b : !b ? a : MR_MIN(a, b);
}

static void tighten(struct memory_limit *best, uint64_t limit, uint64_t used, uint64_t file_pages)
{
    if (!limit)
        return;
    uint64_t busy = used - MR_MIN(used, file_pages), room = limit > busy ? limit - busy : 0;
    best->room = best->bytes ? MR_MIN(best->room, room) : room;
    if (!best->bytes || limit < best->bytes) {
        best->bytes = limit;
        best->used = used;
    }
}

/* Above memory.high a group is slowed down until it stands still: no less a limit than memory.max. */
static void visit_memory(void *state, const char *folder)
{
    tighten(state, lower_of(read_bytes(folder, "memory.max"), read_bytes(folder, "memory.high")),
            read_bytes(folder, "memory.current"), read_stat(folder).file_pages);
}

static void visit_memory_v1(void *state, const char *folder)
{
    struct memory_stat stat = read_stat(folder);
    uint64_t above = stat.limit_above < NO_LIMIT ? stat.limit_above : 0;
    tighten(state, lower_of(read_bytes(folder, "memory.limit_in_bytes"), above),
            read_bytes(folder, "memory.usage_in_bytes"), stat.file_pages);
}

static struct memory_limit tightest_memory(void)
{
    struct memory_limit best = {0};
    walk_groups("", visit_memory, &best);
    walk_groups("memory", visit_memory_v1, &best);
    return best;
}

uint64_t mr_cgroup_memory_limit(void)
{
    return tightest_memory().bytes;
}

uint64_t mr_cgroup_memory_used(void)
{
    return tightest_memory().used;
}

static uint64_t meminfo(const char *key)
{
    FILE *f = fopen("/proc/meminfo", "re");
    char line[256];
    uint64_t bytes = 0;
    size_t len = strlen(key);
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, len) == 0 && line[len] == ':')
            bytes = strtoull(line + len + 1, NULL, 10) * 1024;
    if (f)
        fclose(f);
    return bytes;
}

struct mr_machine_memory mr_machine_memory(void)
{
    struct mr_machine_memory m = {meminfo("MemTotal"), meminfo("MemAvailable")};
    struct memory_limit limit = tightest_memory();
    if (limit.bytes && limit.bytes < m.total_bytes) {
        m.total_bytes = limit.bytes;
        m.free_bytes = MR_MAX(MR_MIN(m.free_bytes, limit.room), 1); /* 0 means unknown */
    }
    return m;
}

int mr_memory_require(uint64_t bytes, const char *what, struct mr_error *err)
{
    if (bytes < CHECKED_ABOVE)
        return 0;
    struct mr_machine_memory m = mr_machine_memory();
    if (!m.free_bytes || bytes <= m.free_bytes)
        return 0;
    char want[MR_HUMAN_LEN], have[MR_HUMAN_LEN];
    return mr_error_plain(err, -ENOMEM, "no memory for %s: they need %s, and %s are free%s", what,
                          mr_human_bytes((double)bytes, want), mr_human_bytes((double)m.free_bytes, have),
                          mr_cgroup_memory_limit() ? " in this control group" : "");
}

void *mr_malloc_within(uint64_t bytes)
{
    return bytes > SIZE_MAX || mr_memory_require(bytes, "", NULL) ? NULL : malloc(MR_MAX((size_t)bytes, (size_t)1));
}

unsigned mr_cpus_available(void)
{
    unsigned cpus = mr_cpus_affinity();
    double quota = mr_cgroup_cpu_quota();
    if (quota > 0 && quota < cpus) {
        unsigned whole = (unsigned)quota;
        cpus = whole + (quota > whole);
    }
    return MR_MAX(cpus, 1u);
}

uint64_t mr_local_free_bytes(void)
{
    const char *folder = getenv("TMPDIR");
    struct statfs fs;
    folder = folder && *folder ? folder : "/tmp";
    if (statfs(folder, &fs) != 0 || fs.f_type == TMPFS || fs.f_type == OVERLAY)
        return 0;
    return (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
}
