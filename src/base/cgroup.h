/* What this process may use of the machine: CPU affinity and the limits of its control groups (version 2 and
 * version 1, nested). A container sees all of the machine's cores and memory in /proc, but gets only these. Reads /proc
 * and /sys on every call; meant for start-up, not for hot paths. */
#ifndef MR_BASE_CGROUP_H
#define MR_BASE_CGROUP_H

#include <millrace/error.h>
#include <stdint.h>
#include <sys/types.h>

/* For tests: another place than /sys/fs/cgroup and /proc/self/cgroup; NULL restores them. The texts must stay. */
void mr_cgroup_use(const char *folder, const char *groups);

/* CPUs in a process's affinity mask (pid 0: this one); 0 if it cannot be told. */
unsigned mr_cpus_of_process(pid_t pid);
/* CPUs in the affinity mask, at least 1. */
unsigned mr_cpus_affinity(void);
/* CPU quota in cores (1.5 = one and a half), the tightest of this group and its parents; 0 = none. */
double mr_cgroup_cpu_quota(void);
/* Memory limit in bytes, the tightest of this group and its parents, memory.high included; 0 = none. */
uint64_t mr_cgroup_memory_limit(void);
/* Bytes charged to the group that has that tightest limit; 0 when there is no limit. */
uint64_t mr_cgroup_memory_used(void);
/* Memory of the machine, or of the tightest control group: all, and what programs could still get without swapping
 * (clean pages of the page cache counted in); 0 unknown. */
struct mr_machine_memory {
    uint64_t total_bytes, free_bytes;
};
struct mr_machine_memory mr_machine_memory(void);
/* -ENOMEM and "no memory for WHAT: they need 2.24 GiB, and 292 MiB are free in this control group" where that much is
 * not free now. Large mappings are given without being taken: the kernel ends the process that touches them. Requests
 * below 64 MiB are not looked at. */
int mr_memory_require(uint64_t bytes, const char *what, struct mr_error *err);
/* malloc of a size that a file says, at least 1 byte; NULL also where that much is not free. */
void *mr_malloc_within(uint64_t bytes);
/* Bytes free on the local disk that temporary files go to (TMPDIR, /tmp); 0 where that is memory, part of a
 * container's layers, or unknown. */
uint64_t mr_local_free_bytes(void);

#endif
