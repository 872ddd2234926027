/* Limits of control groups, on made-up trees: version 1 and 2, nested, memory.high, siblings that use the parent's. */
#include "base/cgroup.h"
#include "base/common.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[] = "/tmp/mr_cgroup_XXXXXX", groups[64];

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", top, path);
    for (char *slash = full + strlen(top) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        (void)mkdir(full, 0700);
        *slash = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void in_group(const char *text)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s/*", top);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    pclose(p);
    put("groups", text);
}

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(top));
    snprintf(groups, sizeof groups, "%s/groups", top);
    mr_cgroup_use(top, groups);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    in_group("");
    unlink(groups);
    mr_cgroup_use(NULL, NULL);
    return rmdir(top);
}

static void what_is_not_free_is_not_given(void **state)
{
    struct mr_error err;
    (void)state;
    in_group("0::/\n");
    put("memory.max", "100000000\n");
    put("memory.current", "20000000\n");
    put("memory.stat", "file 0\n");
    assert_int_equal(mr_memory_require(70000000, "a test", &err), 0);
    assert_int_equal(mr_memory_require(90000000, "a test", &err), -ENOMEM);
    assert_non_null(strstr(err.message, "no memory for a test"));
    assert_non_null(strstr(err.message, "in this control group"));
    assert_null(mr_malloc_within(90000000));
    assert_null(mr_malloc_within(UINT64_MAX));
    void *p = mr_malloc_within(0);
    assert_non_null(p);
    free(p);
    put("memory.max", "max\n");
}

static void no_group_is_no_limit(void **state)
{
    (void)state;
    in_group("0::/\n");
    assert_int_equal(mr_cgroup_memory_limit(), 0);
    assert_true(mr_cgroup_cpu_quota() == 0);
    put("memory.max", "max\n");
    put("cpu.max", "max 100000\n");
    assert_int_equal(mr_cgroup_memory_limit(), 0);
    assert_true(mr_cgroup_cpu_quota() == 0);
}

static void version_2_takes_the_tightest_level(void **state)
{
    (void)state;
    in_group("0::/job/step\n");
    put("job/step/memory.max", "max\n");
    put("job/step/memory.current", "1000\n");
    put("job/memory.max", "1048576000\n");
    put("job/memory.current", "400000000\n");
    put("job/memory.stat", "anon 1\ninactive_file 100000000\nactive_file 50000000\n");
    put("job/cpu.max", "150000 100000\n");
    put("job/step/cpu.max", "300000 100000\n");
    assert_int_equal(mr_cgroup_memory_limit(), 1048576000);
    assert_int_equal(mr_cgroup_memory_used(), 400000000);
    assert_int_equal(mr_machine_memory().total_bytes, 1048576000);
    assert_true(mr_machine_memory().free_bytes <= 1048576000 - 250000000);
    assert_true(mr_cgroup_cpu_quota() == 1.5);
}

static void memory_high_is_a_limit(void **state)
{
    (void)state;
    in_group("0::/job\n");
    put("job/memory.max", "800000000\n");
    put("job/memory.high", "600000000\n");
    assert_int_equal(mr_cgroup_memory_limit(), 600000000);
}

static void siblings_use_what_the_parent_allows(void **state)
{
    (void)state;
    in_group("0::/job/step\n");
    put("job/step/memory.max", "500000000\n");
    put("job/step/memory.current", "0\n");
    put("job/memory.max", "900000000\n");
    put("job/memory.current", "800000000\n");
    assert_int_equal(mr_cgroup_memory_limit(), 500000000);
    assert_true(mr_machine_memory().free_bytes <= 100000000);
    put("job/memory.current", "950000000\n"); /* over its limit: nothing is left, which is not "unknown" */
    assert_int_equal(mr_machine_memory().free_bytes, 1);
}

static void version_1_is_walked_by_controller(void **state)
{
    (void)state;
    in_group("9:name=systemd:/\n5:cpu,cpuacct:/slurm/job\n4:memory:/slurm/job/step\n0::/\n");
    put("memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("memory/slurm/job/memory.limit_in_bytes", "700000000\n");
    put("memory/slurm/job/memory.usage_in_bytes", "200000000\n");
    put("memory/slurm/job/memory.stat", "cache 1\ntotal_inactive_file 50000000\ntotal_active_file 0\n");
    put("memory/slurm/job/step/memory.limit_in_bytes", "9223372036854771712\n");
    put("cpu/slurm/job/cpu.cfs_quota_us", "250000\n");
    put("cpu/slurm/job/cpu.cfs_period_us", "100000\n");
    put("cpu/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(mr_cgroup_memory_limit(), 700000000);
    assert_int_equal(mr_cgroup_memory_used(), 200000000);
    assert_true(mr_machine_memory().free_bytes <= 550000000);
    assert_true(mr_cgroup_cpu_quota() == 2.5);
}

/* In a container the path is the host's, and only the own group is mounted. */
static void version_1_reads_the_limit_above_what_is_mounted(void **state)
{
    (void)state;
    in_group("4:memory:/docker/abc\n");
    put("memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("memory/memory.usage_in_bytes", "1000\n");
    put("memory/memory.stat", "hierarchical_memory_limit 300000000\n");
    assert_int_equal(mr_cgroup_memory_limit(), 300000000);
    put("memory/memory.limit_in_bytes", "200000000\n");
    assert_int_equal(mr_cgroup_memory_limit(), 200000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_group_is_no_limit),
        cmocka_unit_test(version_2_takes_the_tightest_level),
        cmocka_unit_test(memory_high_is_a_limit),
        cmocka_unit_test(siblings_use_what_the_parent_allows),
        cmocka_unit_test(version_1_is_walked_by_controller),
        cmocka_unit_test(version_1_reads_the_limit_above_what_is_mounted),
        cmocka_unit_test(what_is_not_free_is_not_given),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
