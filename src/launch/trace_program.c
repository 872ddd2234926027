/* Running a program under the tracer. The order of things:
 *
 *   spool folder, collector and link   everything that can fail comes before the program starts
 *   fork                               the child waits on the pipe `go`
 *   perf events on the child           they follow it through exec
 *   close `go`                         the child sets its environment, restores its signals and calls exec
 *   drain                              until the program has ended and, within the linger time, its descendants
 *   close                              the collector drains the rest and removes the spool when nobody uses it
 *
 * Signals are passed on to the program; what comes after its end only ends the waiting. */
#include "launch/trace_program.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "launch/page_faults.h"
#include "launch/python_summary.h"
#include "launch/untraced.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct launch {
    const struct mr_trace_program_options *opt;
    struct mr_trace_program_result *result;
    char library[PATH_MAX], link[PATH_MAX];
    mode_t program_umask; /* our own files are 0600 and folders 0700 whatever the user's is */
    struct mr_collector *collector;
    struct mr_fault_filter fault_filter;
    struct mr_faults *faults;
    pid_t child;
    int exec_failed; /* pipe: the child writes errno when exec fails; exec closes it */
};

/* Rings are rewritten all the time, so they belong in memory; the folder next to the result is the fallback. */
static int make_spool(const char *out, char spool[PATH_MAX], struct mr_error *err)
{
    struct statvfs fs;
    if (statvfs("/dev/shm", &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize >= 24 * MR_MIB &&
        access("/dev/shm", W_OK) == 0) {
        snprintf(spool, PATH_MAX, "/dev/shm/millrace-XXXXXX");
        if (mkdtemp(spool))
            return 0;
    }
    char full[PATH_MAX];
    if (out[0] == '/') {
        snprintf(full, sizeof(full), "%s", out);
    } else {
        char cwd[PATH_MAX / 2];
        if (!getcwd(cwd, sizeof(cwd)))
            return mr_error_set(err, -errno, "cannot find the working directory");
        snprintf(full, sizeof(full), "%s/%.2000s", cwd, out);
    }
    snprintf(spool, PATH_MAX, "%.4000s.XXXXXX", full);
    if (!mkdtemp(spool))
        return mr_error_set(err, -errno, "cannot create a spool folder next to '%s'", out);
    return 0;
}

/* For a trace that did not start. */
static void remove_spool(const char *spool)
{
    char session[PATH_MAX];
    snprintf(session, sizeof(session), "%.4000s/session", spool);
    unlink(session);
    rmdir(spool);
}

/* ---- signals ----
 *
 * Signals are for the program: we end when it has ended. Those from the terminal reach it anyway (same process group);
 * those that somebody sends to us are passed on. The program starts with the dispositions that we were started with. */

static const int passed_on[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
static _Atomic uint64_t arrived, to_pass_on; /* bits 1 << number */

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    atomic_fetch_or(&arrived, 1ull << number);
    if (info->si_code <= 0) /* sent by a process, not by the kernel */
        atomic_fetch_or(&to_pass_on, 1ull << number);
}

/* The signals stay blocked until the program has been forked, so that none is lost in between. */
static void signals_begin(sigset_t *mask_before)
{
    struct sigaction act = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigset_t block;
    sigemptyset(&act.sa_mask);
    sigemptyset(&block);
    for (size_t i = 0; i < MR_ARRAY_LEN(passed_on); i++)
        sigaddset(&block, passed_on[i]);
    sigprocmask(SIG_BLOCK, &block, mask_before);
    for (size_t i = 0; i < MR_ARRAY_LEN(passed_on); i++)
        sigaction(passed_on[i], &act, NULL);
    signal(SIGPIPE, SIG_IGN); /* for our messages at the end: the program restores its own */
    signal(SIGCHLD, SIG_DFL); /* if it were ignored, there would be no exit status to wait for */
}

/* In the child. */
static void signals_as_at_start(const sigset_t *ignored, const sigset_t *mask)
{
    for (int number = 1; number < NSIG; number++) {
        struct sigaction now;
        bool ignore = sigismember(ignored, number) == 1;
        if (sigaction(number, NULL, &now) == 0 && (ignore || now.sa_handler != SIG_DFL))
            signal(number, ignore ? SIG_IGN : SIG_DFL);
    }
    sigprocmask(SIG_SETMASK, mask, NULL);
}

static void pass_signals_on(pid_t program)
{
    uint64_t bits = atomic_exchange(&to_pass_on, 0);
    for (size_t i = 0; i < MR_ARRAY_LEN(passed_on); i++)
        if (bits >> passed_on[i] & 1)
            kill(program, passed_on[i]);
}

/* In the child. */
static _Noreturn void run_program(const struct launch *l, int go, const sigset_t *mask)
{
    char byte;
    while (read(go, &byte, 1) < 0 && errno == EINTR) {
    }
    close(go);
    mr_trace_environment_set(&l->opt->settings, l->opt->argv[0], l->library, l->result->spool);
    umask(l->program_umask);
    signals_as_at_start(l->opt->ignored, mask);
    execvp(l->opt->argv[0], l->opt->argv);
    int code = errno;
    (void)!write(l->exec_failed, &code, sizeof(code));
    _exit(code == ENOENT ? 127 : 126);
}

/* A trace without page faults is better than none: where they cannot be recorded, a warning says why. */
static struct mr_faults *watch_faults(struct launch *l)
{
    struct mr_faults *f = NULL;
    struct mr_error err;
    char paranoid[16] = "unknown";
    l->fault_filter = (struct mr_fault_filter){
        .spool = l->result->spool, .include = l->opt->include_globs, .exclude = l->opt->exclude_globs};
    int rc = l->opt->mmap ? mr_faults_open(l->child, &l->fault_filter, &f, &err) : 0;
    if (rc == 0)
        return f;
    if (rc != -EACCES && rc != -EPERM) {
        mr_log(MR_LOG_WARN, "page faults are not recorded: %s", err.message);
        return NULL;
    }
    FILE *p = fopen("/proc/sys/kernel/perf_event_paranoid", "re");
    if (p) {
        if (fgets(paranoid, sizeof(paranoid), p))
            paranoid[strcspn(paranoid, "\n")] = 0;
        fclose(p);
    }
    mr_log(MR_LOG_WARN, "page faults are not recorded: %s (kernel.perf_event_paranoid is %s; 2 or less is needed)",
           err.message, paranoid);
    return NULL;
}

/* Forks the program; it waits until we close the pipe. */
static int start_program(struct launch *l, struct mr_error *err)
{
    sigset_t mask;
    int go[2], failed[2];
    signals_begin(&mask);
    if (atomic_load(l->opt->stop)) /* the signal came while it was not ours to pass on */
        return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted");
    if (pipe2(go, O_CLOEXEC) < 0 || pipe2(failed, O_CLOEXEC | O_NONBLOCK) < 0)
        return mr_error_set(err, -errno, "cannot start '%s'", l->opt->argv[0]);
    l->child = fork();
    if (l->child == 0) {
        close(go[1]);
        l->exec_failed = failed[1];
        run_program(l, go[0], &mask);
    }
    int rc = l->child < 0 ? mr_error_set(err, -errno, "cannot start '%s'", l->opt->argv[0]) : 0;
    sigprocmask(SIG_SETMASK, &mask, NULL);
    close(go[0]);
    close(failed[1]);
    l->exec_failed = failed[0];
    if (rc == 0)
        l->faults = watch_faults(l);
    close(go[1]);
    return rc;
}

/* Sleeps longer and longer while there is nothing to drain, but wakes when the program ends. */
static void sleep_a_little(unsigned idle, int program, uint64_t longest_ns)
{
    struct pollfd p = {.fd = program, .events = POLLIN};
    const struct timespec t = {.tv_nsec = (long)MR_MIN(500000ull * (idle + 1), longest_ns)};
    ppoll(&p, 1, &t, NULL);
}

/* How many processes have inherited our spool: they may not have done any I/O yet. */
static unsigned processes_with(const char *spool)
{
    char want[PATH_MAX + 32], path[64];
    unsigned n = 0;
    size_t len = (size_t)snprintf(want, sizeof(want), "MILLRACE_SPOOL=%.4000s", spool) + 1;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9')
            continue;
        snprintf(path, sizeof(path), "/proc/%.20s/environ", e->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        char *text = fd >= 0 ? malloc(1 << 17) : NULL;
        ssize_t got, have = 0;
        while (text && have < 1 << 17 && (got = read(fd, text + have, (size_t)((1 << 17) - have))) > 0)
            have += got;
        n += text && have && memmem(text, (size_t)have, want, len) != NULL;
        free(text);
        if (fd >= 0)
            close(fd);
    }
    if (d)
        closedir(d);
    return n;
}

struct drain {
    bool ended, failed;   /* the program; writing the trace */
    uint64_t deadline_ns; /* of the linger time */
    uint64_t longest_ns;  /* between two passes */
    int program;          /* pidfd; -1: not available, or it has ended */
    unsigned idle;        /* passes in a row without anything to drain */
};

static void reap_program(struct launch *l, struct drain *d)
{
    if (waitpid(l->child, &l->result->status, WNOHANG) != l->child)
        return;
    d->ended = true;
    d->deadline_ns = mr_now_ns() + l->opt->linger_ns;
    d->longest_ns = 4 * MR_NS_PER_MS;
    atomic_store(&arrived, 0); /* that was for the program; one that comes now ends the lingering */
    if (d->program >= 0)
        close(d->program);
    d->program = -1;
}

/* The program has ended: whether there is nothing to wait for any more. */
static bool lingered_enough(struct launch *l, struct drain *d)
{
    bool late = mr_now_ns() > d->deadline_ns || atomic_load(&arrived);
    bool running = mr_collector_running(l->collector) > 0;
    unsigned others = d->failed || (!late && running) ? 0 : processes_with(l->result->spool);
    if (d->failed || late || (!others && !running)) {
        if (late && !running)
            mr_collector_expect(l->collector, others);
        return true;
    }
    d->longest_ns = (others ? 50 : 4) * MR_NS_PER_MS;
    d->idle = others ? 100 : d->idle;
    return false;
}

static void drain(struct launch *l)
{
    struct drain d = {.longest_ns = (l->faults ? 4 : 20) * MR_NS_PER_MS, /* the kernel's buffers for faults are small */
                      .program = (int)syscall(SYS_pidfd_open, l->child, 0)};
    for (;; d.idle++) {
        struct mr_error err = {0};
        bool busy = false;
        if (!d.ended)
            reap_program(l, &d);
        if (!d.ended)
            pass_signals_on(l->child);
        if (l->faults)
            mr_faults_poll(l->faults);
        if (!d.failed && mr_collector_poll(l->collector, &busy, &err) < 0) {
            mr_log(MR_LOG_WARN, "%s; tracing ends, the program goes on", err.message);
            d.failed = true;
            busy = false;
        }
        if (d.ended && lingered_enough(l, &d))
            break;
        if (busy)
            d.idle = 0;
        sleep_a_little(d.idle, d.program, d.longest_ns);
    }
    l->result->incomplete = d.failed;
}

/* Spool, collector, and the link FILE.spool by which `millrace recover` finds the spool. */
/* An earlier trace of this name was killed: nothing names its rings from now on, and they take memory. */
static void warn_interrupted(const char *link)
{
    char spool[PATH_MAX], session[PATH_MAX + 16];
    if (!realpath(link, spool))
        return;
    snprintf(session, sizeof session, "%s/session", spool);
    if (access(session, F_OK) == 0)
        mr_log(MR_LOG_WARN,
               "an earlier trace of this name was interrupted and is replaced; to have its end: "
               "'millrace recover --out FILE %s'",
               spool);
}

static int open_trace(struct launch *l, struct mr_error *err)
{
    char *spool = l->result->spool;
    int rc = mr_trace_library_find(l->library, err);
    rc = rc ? rc : make_spool(l->opt->out, spool, err);
    if (rc < 0)
        return rc;
    rc = mr_collector_open(spool, l->opt->out, true, false, l->opt->max_bytes, &l->collector, err);
    if (rc < 0) {
        remove_spool(spool);
        if (rc == MR_E_CONFIG)
            mr_error_hint(
                err,
                "a file has one writer: give every rank its own, or use the library alone (doc/guides/tracing.md)");
        return rc;
    }
    mr_collector_program(l->collector, l->opt->argv);
    snprintf(l->link, sizeof(l->link), "%.4000s.spool", l->opt->out); /* the file is ours now, and so is its link */
    warn_interrupted(l->link);
    unlink(l->link);
    if (symlink(spool, l->link) < 0)
        l->link[0] = 0;
    return 0;
}

/* The first failure is told, when it comes up. */
static void note_failure(struct launch *l, int rc, const struct mr_error *err)
{
    if (rc < 0 && !l->result->incomplete)
        mr_log(MR_LOG_WARN, "%s; the trace is not complete, the rest waits for 'millrace recover --out %s %s'",
               err->message, l->opt->out, l->result->spool);
    l->result->incomplete = l->result->incomplete || rc < 0;
}

static void close_trace(struct launch *l)
{
    struct mr_trace_program_result *r = l->result;
    struct mr_error err = {0};
    uint64_t lost = 0;
    char list[PATH_MAX];
    note_failure(l, mr_faults_close(l->faults, &lost, &err), &err);
    mr_warn_untraced(r->spool);
    snprintf(list, sizeof(list), "%.4000s/unseen", r->spool);
    unlink(list);
    mr_python_summary(r->spool, l->opt->settings.python, r->python, sizeof(r->python));
    note_failure(l, mr_collector_close(l->collector, &r->stats, &err), &err);
    r->stats.lost += lost;
    if (access(r->spool, F_OK) != 0)
        unlink(l->link);
}

int mr_trace_program(const struct mr_trace_program_options *opt, struct mr_trace_program_result *out,
                     struct mr_error *err)
{
    struct launch l = {.opt = opt, .result = out, .exec_failed = -1};
    *out = (struct mr_trace_program_result){0};
    out->exec_errno = mr_trace_program_missing(opt->argv[0]);
    if (out->exec_errno) { /* an older trace of that name stays as it is */
        out->status = (out->exec_errno == ENOENT ? 127 : 126) << 8;
        return 0;
    }
    l.program_umask = umask(077);
    int rc = open_trace(&l, err);
    if (rc < 0)
        return rc;
    rc = start_program(&l, err);
    if (rc == 0)
        drain(&l);
    close_trace(&l);
    if (l.exec_failed >= 0 && read(l.exec_failed, &out->exec_errno, sizeof(out->exec_errno)) < 0)
        out->exec_errno = 0;
    if (l.exec_failed >= 0)
        close(l.exec_failed);
    return rc;
}
