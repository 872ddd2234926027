/* A run of a trial: it ends at the marks of all ranks, at its limit, when it is stopped, and when the trial is killed;
 * nothing that it started lives on, and the scratch folder goes. */
#include "base/clock.h"
#include "base/common.h"
#include "base/process.h"
#include "base/temp_folder.h"
#include "loop/rerun.h"
#include "loop/scratch.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[PATH_MAX], marks[PATH_MAX + 8], log_file[PATH_MAX + 8], pids[PATH_MAX + 8];
static const char *extra[2];

static int set_up(void **state)
{
    struct mr_error err;
    static char variable[PATH_MAX + 16];
    (void)state;
    if (mr_temp_folder_make("", "rerun", folder, sizeof folder, &err))
        return -1;
    snprintf(marks, sizeof marks, "%s/marks", folder);
    snprintf(log_file, sizeof log_file, "%s/log", folder);
    snprintf(pids, sizeof pids, "%s/pids", folder);
    snprintf(variable, sizeof variable, "D=%s", folder);
    extra[0] = variable;
    return mkdir(marks, 0700);
}

static int tear_down(void **state)
{
    (void)state;
    return mr_temp_folder_remove(folder, NULL);
}

static int run_shell(const char *text, uint64_t limit_ns, const atomic_bool *stop, struct mr_rerun_result *out)
{
    char *argv[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c", (char *)(uintptr_t)text, NULL};
    const struct mr_rerun r = {
        .argv = argv, .extra = extra, .log = log_file, .marks = marks, .limit_ns = limit_ns, .stop = stop};
    struct mr_error err;
    return mr_rerun(&r, out, &err);
}

/* Processes whose numbers stand in the file `pids`. */
static unsigned living(unsigned *listed)
{
    unsigned n = 0;
    int pid;
    FILE *f = fopen(pids, "r");
    *listed = 0;
    while (f && fscanf(f, "%d", &pid) == 1) {
        n += !mr_process_gone(pid);
        ++*listed;
    }
    if (f)
        fclose(f);
    return n;
}

static void nothing_lives(unsigned expected)
{
    unsigned listed;
    for (unsigned i = 0; i < 200 && living(&listed); i++)
        usleep(10000);
    assert_int_equal(living(&listed), 0);
    assert_int_equal(listed, expected);
}

static void run_that_ends_has_its_status(void **state)
{
    (void)state;
    struct mr_rerun_result r;
    assert_int_equal(run_shell("echo $D; exit 7", 0, NULL, &r), 0);
    assert_true(WIFEXITED(r.status) && WEXITSTATUS(r.status) == 7 && !r.reached && !r.late);
    char line[PATH_MAX] = "";
    FILE *f = fopen(log_file, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    fclose(f);
    assert_int_equal(strncmp(line, folder, strlen(folder)), 0);
}

static void descendants_of_a_run_end_with_it(void **state)
{
    (void)state;
    struct mr_rerun_result r;
    /* One that leaves its session, one whose parent is gone. */
    assert_int_equal(run_shell(": >$D/pids; setsid sh -c 'echo $$ >>$D/pids; sleep 60' & (sh -c 'echo $$ >>$D/pids; "
                               "trap \"\" TERM; sleep 60' &)"
                               "; while [ $(wc -l <$D/pids) -lt 2 ]; do sleep 0.01; done",
                               0, NULL, &r),
                     0);
    nothing_lives(2);
}

static void window_ends_when_all_ranks_are_there(void **state)
{
    (void)state;
    struct mr_rerun_result r;
    uint64_t begin = mr_now_ns();
    assert_int_equal(
        run_shell("echo $$ >>$D/pids; touch $D/marks/window-0-2-11; sleep 0.3; touch $D/marks/window-1-2-12; sleep 60",
                  0, NULL, &r),
        0);
    assert_true(r.reached && !r.late);
    assert_true(mr_now_ns() - begin > 300 * MR_NS_PER_MS && mr_now_ns() - begin < 30 * MR_NS_PER_S);
    nothing_lives(1);
}

static void limit_ends_a_run(void **state)
{
    (void)state;
    struct mr_rerun_result r;
    assert_int_equal(run_shell("echo $$ >>$D/pids; sleep 60", 200 * MR_NS_PER_MS, NULL, &r), 0);
    assert_true(r.late && !r.reached);
    nothing_lives(1);
}

static void stop_ends_a_run(void **state)
{
    (void)state;
    static atomic_bool stop = true;
    struct mr_rerun_result r;
    assert_int_equal(run_shell("echo $$ >>$D/pids; sleep 60", 0, &stop, &r), MR_E_INTERRUPTED);
    unsigned listed;
    for (unsigned i = 0; i < 200 && living(&listed); i++)
        usleep(10000);
    assert_int_equal(living(&listed), 0);
}

static void killed_trial_leaves_neither_processes_nor_folders(void **state)
{
    (void)state;
    char told[PATH_MAX + 8], scratch[PATH_MAX] = "", other[PATH_MAX + 32];
    snprintf(told, sizeof told, "%s/scratch", folder);
    snprintf(other, sizeof other, "%s/%s1", folder, MR_SCRATCH_NAME);
    pid_t pid = fork();
    if (pid == 0) {
        struct mr_scratch s;
        struct mr_rerun_result r;
        char path[PATH_MAX + 16];
        if (mr_scratch_open(&s, NULL))
            _exit(1);
        snprintf(path, sizeof path, "%s/others", s.folder);
        FILE *f = fopen(path, "w"), *t = fopen(told, "w");
        fprintf(f, "%s\n%s\n", other, marks); /* the second one is no folder of ours */
        fprintf(t, "%s\n", s.folder);
        fclose(f);
        fclose(t);
        mkdir(other, 0700);
        run_shell("echo $$ >>$D/pids; sleep 60", 0, NULL, &r);
        _exit(0);
    }
    unsigned listed = 0;
    for (unsigned i = 0; i < 500 && !listed; i++, usleep(10000))
        living(&listed);
    FILE *t = fopen(told, "r");
    assert_non_null(t);
    assert_int_equal(fscanf(t, "%4000s", scratch), 1);
    fclose(t);
    assert_int_equal(access(scratch, F_OK), 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    nothing_lives(1);
    for (unsigned i = 0; i < 500 && access(scratch, F_OK) == 0; i++)
        usleep(10000);
    assert_int_not_equal(access(scratch, F_OK), 0);
    assert_int_not_equal(access(other, F_OK), 0);
    assert_int_equal(access(marks, F_OK), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(run_that_ends_has_its_status),
        TEST(descendants_of_a_run_end_with_it),
        TEST(window_ends_when_all_ranks_are_there),
        TEST(limit_ends_a_run),
        TEST(stop_ends_a_run),
        TEST(killed_trial_leaves_neither_processes_nor_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
