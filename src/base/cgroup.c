/* Affinity and control-group limits. The group's path stands in /proc/self/cgroup ("0::/a/b"); every level up to the
 * root may set a limit, and the tightest counts. Inside a container the path may point outside of what is mounted; the
 * walk then simply finds the mounted root's files. */
#include "base/cgroup.h"
#include "base/common.h"
#include "base/workers.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#define TMPFS 0x01021994
#define OVERLAY 0x794c7630
#define ROOT "/sys/fs/cgroup"

static bool read_line(const char *path, char *line, size_t cap)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool ok = fgets(line, (int)cap, f) != NULL;
    fclose(f);
    return ok;
}

static void own_group(char *path, size_t cap)
{
    char line[1024];
    snprintf(path, cap, "/");
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f)
        return;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "0::/", 4) == 0) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(path, cap, "%s", line + 3);
        }
    fclose(f);
}

/* Calls visit(line, folder) for `file` at each level from the own group to the root. */
static void walk_groups(const char *file, void (*visit)(void *state, const char *line, const char *folder), void *state)
{
    char group[1024], folder[1100], path[1200], line[256];
    own_group(group, sizeof group);
    for (;;) {
        snprintf(folder, sizeof folder, ROOT "%s", strcmp(group, "/") ? group : "");
        snprintf(path, sizeof path, "%s/%s", folder, file);
        if (read_line(path, line, sizeof line))
            visit(state, line, folder);
        char *slash = strrchr(group, '/');
        if (!slash || !strcmp(group, "/"))
            return;
        slash[slash == group] = '\0';
    }
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

static void visit_quota(void *state, const char *line, const char *folder)
{
    (void)folder;
    double quota, period, *best = state;
    if (sscanf(line, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0)
        *best = *best > 0 ? MR_MIN(*best, quota / period) : quota / period;
}

double mr_cgroup_cpu_quota(void)
{
    double best = 0;
    char line[64], line2[64];
    walk_groups("cpu.max", visit_quota, &best);
    if (best == 0 && read_line(ROOT "/cpu/cpu.cfs_quota_us", line, sizeof line) &&
        read_line(ROOT "/cpu/cpu.cfs_period_us", line2, sizeof line2)) {
        double quota = strtod(line, NULL), period = strtod(line2, NULL);
        if (quota > 0 && period > 0)
            best = quota / period;
    }
    return best;
}

struct memory_limit {
    uint64_t bytes;
    char folder[1100];
};

static void visit_memory(void *state, const char *line, const char *folder)
{
    struct memory_limit *best = state;
    char *end;
    unsigned long long v = strtoull(line, &end, 10); /* "max" is no number: no limit at this level */
    if (end != line && (!best->bytes || v < best->bytes)) {
        best->bytes = v;
        snprintf(best->folder, sizeof best->folder, "%s", folder);
    }
}

static struct memory_limit tightest_memory(void)
{
    struct memory_limit best = {0};
    char line[64];
    walk_groups("memory.max", visit_memory, &best);
    if (!best.bytes && read_line(ROOT "/memory/memory.limit_in_bytes", line, sizeof line)) {
        unsigned long long v = strtoull(line, NULL, 10);
        if (v < 1ull << 60) /* version 1 writes "no limit" as a huge number */
            best.bytes = v;
    }
    return best;
}

/* Pages of files among what is charged to the group: dropped when memory is wanted. Version 1 counts the groups below
 * under names of their own. */
static uint64_t file_pages(const char *path)
{
    static const char *const keys[] = {"inactive_file ", "active_file ", "total_inactive_file ", "total_active_file "};
    uint64_t bytes[MR_ARRAY_LEN(keys)] = {0};
    char line[256];
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        for (unsigned k = 0; k < MR_ARRAY_LEN(keys); k++)
            if (strncmp(line, keys[k], strlen(keys[k])) == 0)
                bytes[k] = strtoull(line + strlen(keys[k]), NULL, 10);
    if (f)
        fclose(f);
    return MR_MAX(bytes[0] + bytes[1], bytes[2] + bytes[3]);
}

static uint64_t reclaimable(void)
{
    struct memory_limit best = tightest_memory();
    char path[1200];
    snprintf(path, sizeof path, "%s/memory.stat", *best.folder ? best.folder : ROOT "/memory");
    return best.bytes ? file_pages(path) : 0;
}

uint64_t mr_cgroup_memory_limit(void)
{
    return tightest_memory().bytes;
}

uint64_t mr_cgroup_memory_used(void)
{
    struct memory_limit best = tightest_memory();
    char path[1200], line[64];
    snprintf(path, sizeof path, "%s/memory.current", best.folder);
    if (!best.bytes ||
        !(read_line(path, line, sizeof line) || read_line(ROOT "/memory/memory.usage_in_bytes", line, sizeof line)))
        return 0;
    return strtoull(line, NULL, 10);
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
    uint64_t limit = mr_cgroup_memory_limit(), used = mr_cgroup_memory_used();
    if (limit && limit < m.total_bytes) {
        m.total_bytes = limit;
        used -= MR_MIN(used, reclaimable());
        m.free_bytes = MR_MIN(m.free_bytes, limit > used ? limit - used : 0);
    }
    return m;
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
