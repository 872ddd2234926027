/* The keeper of a run: see rerun.h, and L1 and L3 of doc/internals/loop.md. */
#include "loop/rerun.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/temp_folder.h"
#include "base/vec.h"
#include "launch/trace_program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 20
#define LINGER_NS (2 * MR_NS_PER_S)    /* after the program: for descendants that still end */
#define PATIENCE_NS (30 * MR_NS_PER_S) /* for the tracer to write what it has, when the run was ended */
#define HURRY_NS (5 * MR_NS_PER_S)     /* the same, when nobody wants the trace */

struct keeper {
    const struct mr_rerun *r;
    pid_t tracer;                /* our child: it launches the program, or is the program */
    int lifeline;                /* ends when `try` does */
    int from_tracer;             /* its result */
    uint64_t began_ns, ended_ns; /* ended: when we began to end it; 0: not */
    bool abandoned;              /* `try` is gone, or wants no result */
    struct mr_rerun_result result;
};

/* ---- descendants ---- */

struct process {
    pid_t pid, parent;
    bool ours;
};
struct processes {
    MR_VEC(struct process) of;
};

static pid_t parent_of(pid_t pid)
{
    char path[40], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0;
    text[n] = 0;
    const char *end = strrchr(text, ')'); /* the name may hold anything */
    return end && strlen(end) > 4 ? (pid_t)strtol(end + 4, NULL, 10) : 0;
}

static void list_processes(struct processes *all)
{
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        struct process *p = pid > 0 ? MR_VEC_ADD(&all->of) : NULL;
        if (p)
            *p = (struct process){.pid = pid, .parent = parent_of(pid)};
    }
    if (d)
        closedir(d);
}

/* Kills all descendants of this process but `spared`, and returns how many there were. New ones may have come
 * meanwhile: call it until there are none. */
static unsigned kill_descendants(pid_t spared)
{
    struct processes all = {0};
    const pid_t self = getpid();
    unsigned n = 0;
    list_processes(&all);
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < all.of.n; i++) {
            struct process *p = &all.of.item[i];
            bool ours = p->parent == self;
            for (size_t k = 0; k < all.of.n && !ours; k++)
                ours = all.of.item[k].ours && all.of.item[k].pid == p->parent;
            more |= ours && !p->ours;
            p->ours |= ours;
        }
    }
    for (size_t i = 0; i < all.of.n; i++)
        if (all.of.item[i].ours && all.of.item[i].pid != spared)
            n += kill(all.of.item[i].pid, SIGKILL) == 0;
    free(all.of.item);
    return n;
}

/* ---- the window ---- */

/* Every rank of this machine has marked the end of its window. */
static bool all_marked(const char *folder)
{
    int world = 1;
    unsigned ranks = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        const char *at = e->d_name, *const name = "window-";
        char *end;
        if (strncmp(at, name, strlen(name)) != 0)
            continue;
        (void)strtol(at + strlen(name), &end, 10);
        if (*end == '-')
            world = MR_MAX(world, (int)strtol(end + 1, NULL, 10));
        ranks++;
    }
    if (d)
        closedir(d);
    return ranks >= (unsigned)world;
}

/* ---- the run ---- */

static void redirect(const struct mr_rerun *r)
{
    int null = open("/dev/null", O_RDONLY), log = open(r->log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
    if (null >= 0)
        dup2(null, 0);
    for (int fd = 1; fd <= 2 && log >= 0; fd++)
        dup2(log, fd);
    if (null > 2)
        close(null);
    if (log > 2)
        close(log);
}

static void set_environment(const struct mr_rerun *r)
{
    for (const char *const *e = r->extra; e && *e; e++) {
        char *copy = strdup(*e), *value = copy ? strchr(copy, '=') : NULL;
        if (value) {
            *value = 0;
            setenv(copy, value + 1, 1);
        }
        free(copy);
    }
}

static void trace(const struct mr_rerun *r, struct mr_rerun_result *out)
{
    static const atomic_bool never;
    sigset_t none;
    struct mr_error err;
    struct mr_trace_program_result t = {0};
    sigemptyset(&none);
    const struct mr_trace_program_options o = {.argv = r->argv,
                                               .out = r->trace,
                                               .settings = {.start = true, .python = true},
                                               .include_globs = "",
                                               .exclude_globs = "",
                                               .linger_ns = LINGER_NS,
                                               .ignored = &none,
                                               .stop = &never};
    int rc = mr_trace_program(&o, &t, &err);
    if (rc < 0)
        fprintf(stderr, "millrace: %s\n", err.message);
    out->status = rc < 0 ? 1 << 8 : t.status;
    out->exec_errno = t.exec_errno;
    out->lost = t.stats.lost + t.stats.dropped;
}

/* In a process of its own: the tracer installs signal handlers, and is one at a time per process. */
static _Noreturn void launch(const struct mr_rerun *r, int answer)
{
    struct mr_rerun_result out = {0};
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* passed on to the program */
    for (int number = 1; number < NSIG; number++)
        if (number != SIGKILL && number != SIGSTOP)
            signal(number, SIG_DFL);
    redirect(r);
    if (r->folder && chdir(r->folder) < 0) {
        fprintf(stderr, "millrace: cannot enter '%s': %s\n", r->folder, strerror(errno));
        _exit(1);
    }
    set_environment(r);
    if (!r->trace) {
        execvp(r->argv[0], r->argv);
        out.exec_errno = errno;
    } else {
        trace(r, &out);
    }
    (void)!write(answer, &out, sizeof out);
    _exit(0);
}

static bool is_gone(int lifeline)
{
    struct pollfd p = {.fd = lifeline, .events = POLLIN};
    return poll(&p, 1, LOOK_MS) > 0;
}

/* Children that have ended; the tracer's status. True: that one has. */
static bool reap(struct keeper *k)
{
    int status;
    for (pid_t p; (p = waitpid(-1, &status, WNOHANG)) > 0;)
        if (p == k->tracer) {
            k->result.status = status;
            k->tracer = 0;
        }
    return !k->tracer;
}

/* Why the run is to be ended now, if it is. */
static bool wants_end(struct keeper *k)
{
    uint64_t now = mr_now_ns();
    if (k->abandoned)
        return true;
    if (k->r->marks && all_marked(k->r->marks))
        k->result.reached = true;
    else if (k->r->limit_ns && now - k->began_ns > k->r->limit_ns)
        k->result.late = true;
    return k->result.reached || k->result.late;
}

/* A tracer that had to be killed leaves its rings in memory; the link beside the trace names them. */
static void remove_spool(const struct mr_rerun *r)
{
    char link[PATH_MAX], spool[PATH_MAX];
    if (!r->trace)
        return;
    snprintf(link, sizeof link, "%.4000s.spool", r->trace);
    if (realpath(link, spool) && strstr(spool, "/millrace-"))
        (void)mr_temp_folder_remove(spool, NULL);
    unlink(link);
}

static void watch(struct keeper *k)
{
    while (!reap(k)) {
        k->abandoned |= is_gone(k->lifeline);
        if (!k->ended_ns && wants_end(k))
            k->ended_ns = mr_now_ns();
        if (k->ended_ns) {
            uint64_t most = k->abandoned ? HURRY_NS : PATIENCE_NS;
            bool patient = k->r->trace && mr_now_ns() - k->ended_ns < most;
            kill_descendants(patient ? k->tracer : 0);
            if (!patient)
                remove_spool(k->r);
            if (k->abandoned)
                poll(NULL, 0, LOOK_MS); /* the lifeline waits no more */
        }
    }
}

static _Noreturn void keep(struct keeper *k, int answer)
{
    int from[2];
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (int number = 1; number < NSIG; number++)
        if (number != SIGKILL && number != SIGSTOP)
            signal(number, number == SIGCHLD ? SIG_DFL : SIG_IGN);
    if (pipe2(from, O_CLOEXEC) < 0)
        _exit(1);
    k->began_ns = mr_now_ns();
    k->tracer = fork();
    if (k->tracer == 0) {
        close(k->lifeline);
        close(answer);
        launch(k->r, from[1]);
    }
    if (k->tracer < 0)
        _exit(1);
    close(from[1]);
    watch(k);
    struct mr_rerun_result of_tracer;
    if (read(from[0], &of_tracer, sizeof of_tracer) == sizeof of_tracer) {
        k->result.exec_errno = of_tracer.exec_errno;
        k->result.lost = of_tracer.lost;
        k->result.status = k->r->trace ? of_tracer.status : k->result.status;
    }
    while (kill_descendants(0)) {
        reap(k);
        poll(NULL, 0, 1);
    }
    k->result.took_ns = mr_now_ns() - k->began_ns;
    (void)!write(answer, &k->result, sizeof k->result);
    _exit(0);
}

/* Waits for the keeper's answer. A stop closes the lifeline, and the answer means nothing then. */
static bool await(int answer, int lifeline, const atomic_bool *stop, struct mr_rerun_result *out)
{
    ssize_t got = -1;
    bool stopped = false;
    for (;;) {
        struct pollfd p = {.fd = answer, .events = POLLIN};
        if (!stopped && stop && atomic_load(stop)) {
            close(lifeline);
            stopped = true;
        }
        if (poll(&p, 1, 100) > 0 && ((got = read(answer, out, sizeof *out)) >= 0 || errno != EINTR))
            break;
    }
    if (!stopped)
        close(lifeline);
    return got == sizeof *out && !stopped;
}

int mr_rerun(const struct mr_rerun *r, struct mr_rerun_result *out, struct mr_error *err)
{
    int life[2], answer[2];
    struct mr_rerun_result result;
    if (pipe2(life, O_CLOEXEC) < 0)
        return mr_error_set(err, -errno, "cannot run '%s'", r->argv[0]);
    if (pipe2(answer, O_CLOEXEC) < 0) {
        close(life[0]);
        close(life[1]);
        return mr_error_set(err, -errno, "cannot run '%s'", r->argv[0]);
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct keeper k = {.r = r, .lifeline = life[0]};
        close(life[1]);
        close(answer[0]);
        keep(&k, answer[1]);
    }
    int rc = pid < 0 ? mr_error_set(err, -errno, "cannot run '%s'", r->argv[0]) : 0;
    close(life[0]);
    close(answer[1]);
    bool answered = pid > 0 && await(answer[0], life[1], r->stop, &result);
    if (pid < 0)
        close(life[1]);
    close(answer[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    if (rc)
        return rc;
    if (r->stop && atomic_load(r->stop))
        return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted");
    if (!answered)
        return mr_error_plain(err, MR_E_INTERNAL, "the process that kept '%s' ended without an answer", r->argv[0]);
    *out = result;
    return 0;
}
