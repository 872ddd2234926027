/* `millrace trace`: runs a program with the preload library and drains its rings beside it. The program's standard
 * streams, exit status and signals are its own; ours is one line on stderr at the end. */
#include "cli/commands.h"
#include "cli/cmd_trace_faults.h"
#include "cli/unseen_programs.h"
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "event/calls.h"
#include "event/collect.h"
#include "event/path_glob.h"
#include "event/program_kind.h"
#include "event/raw.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct trace_options {
    const char *out;
    struct mr_strings include, exclude, groups, program;
    uint64_t max_size, linger;
    int64_t signal, sample;
    bool start, python, strays, mmap;
};

struct globs {
    char *include, *exclude; /* as mr_globs_match takes them */
};

#define FIELD(name) .key = #name, .offset = offsetof(struct trace_options, name)
#define ROW(key, field, type, def, ...) MR_OPTION(trace_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option trace_options[] = {
    {FIELD(out), .type = MR_OPT_STRING, .def = "millrace.mrt", .short_flag = 'o',
     .doc = "The trace file; created with mode 0600.", .example = "-o run1.mrt"},
    {FIELD(include), .type = MR_OPT_STRINGS, .def = "", .flags = MR_OPTF_REPEAT,
     .doc = "Only files whose absolute path matches one of these globs: '*' (also matches '/'), '?', [a-z], {one,two}; "
            "'FOLDER/' is the folder and all below it. "
            "Decided when a file is opened, by the path that the program gives.",
     .example = "--include '/data/*' --include '*.npz'"},
    {FIELD(exclude), .type = MR_OPT_STRINGS, .def = "", .flags = MR_OPTF_REPEAT,
     .doc = "No files that match one of these globs.", .example = "--exclude '/proc/*'"},
    {FIELD(groups), .type = MR_OPT_STRINGS, .def = "", .flags = MR_OPTF_REPEAT,
     .doc = "Only these groups of calls: layers (posix, stdio, uring, mpiio, hdf5, app), kinds (open, read, write, "
            "stat, list ...) or names of calls.",
     .example = "--groups posix,app"},
    {FIELD(max_size), .type = MR_OPT_BYTES, .def = "0", .max = 0x1p62,
     .doc = "Keeps about this much of the newest events; 0 keeps all.", .example = "--max-size 1GiB"},
    {FIELD(start), .type = MR_OPT_BOOL, .def = "true",
     .doc = "Records from the start; --no-start waits for the signal or for millrace_trace_start() in the program."},
    {FIELD(signal), .type = MR_OPT_INT, .def = "0", .min = 0, .max = 64,
     .doc = "A signal (number) that switches recording on and off; 0 installs no handler.", .example = "--signal 12"},
    {FIELD(sample), .type = MR_OPT_INT, .def = "0", .min = 0, .max = 1e9,
     .doc = "Of a call that a thread makes more than 1000 times keep every N-th; how many were left out is counted "
            "exactly. 0 keeps all.",
     .example = "--sample 100"},
    {FIELD(python), .type = MR_OPT_BOOL, .def = "false",
     .doc = "Instruments Python programs: data loader iteration, __getitem__, collate, load and save of arrays, models "
            "and images."},
    {FIELD(strays), .type = MR_OPT_BOOL, .def = "false",
     .doc = "Also records system calls that are made by instruction, outside the C library (inline assembler, Go, "
            "other run-time systems). "
            "They cost some microseconds each. Needs Linux 5.11 on x86-64."},
    {FIELD(mmap), .type = MR_OPT_BOOL, .def = "false",
     .doc = "Also records page faults on mapped files, by the kernel's perf events: which page was touched, when, and "
            "whether it had to be read. "
            "Also sees statically linked programs."},
    {FIELD(linger), .type = MR_OPT_DURATION, .def = "2s",
     .doc =
         "How long to wait for processes that outlive the program; what they do later is kept for 'millrace recover'."},
    ROW("program", program, STRINGS, "", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REPEAT | MR_OPTF_REST,
        .doc = "The program and its arguments; options of 'trace' come before it."),
    MR_OPTION_END,
};

/* The folder of this program, to find what lies beside it. */
static int own_folder(char out[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
    if (n <= 0)
        return -1;
    out[n] = 0;
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = 0;
    return 0;
}

static const char *first_existing(const char *folder, const char *const *names, char out[PATH_MAX])
{
    for (; *names; names++) {
        char path[PATH_MAX * 2];
        snprintf(path, sizeof(path), "%s/%s", folder, *names);
        if (realpath(path, out))
            return out;
    }
    return NULL;
}

static int find_library(char out[PATH_MAX], struct mr_error *err)
{
    static const char *const places[] = {"../lib/libmillrace_trace.so",
                                         "../lib/millrace/libmillrace_trace.so",
                                         "../lib64/millrace/libmillrace_trace.so",
                                         "../lib/x86_64-linux-gnu/millrace/libmillrace_trace.so",
                                         "../lib/aarch64-linux-gnu/millrace/libmillrace_trace.so",
                                         "libmillrace_trace.so",
                                         NULL};
    char folder[PATH_MAX];
    if (own_folder(folder) == 0 && first_existing(folder, places, out))
        return 0;
    mr_error_plain(err, MR_E_CONFIG, "cannot find 'libmillrace_trace.so' near this program");
    return mr_error_hint(err, "install Millrace with 'make install', or run it from its build folder"), MR_E_CONFIG;
}

/* Rings are rewritten all the time: memory is the place for them. The folder next to the result is the second choice.
 */
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

/* Of a trace that did not begin. */
static void remove_spool(const char *spool)
{
    char session[PATH_MAX];
    snprintf(session, sizeof(session), "%.4000s/session", spool);
    unlink(session);
    rmdir(spool);
}

static char *join(const struct mr_strings *list)
{
    struct mr_strbuf s = {0};
    for (unsigned i = 0; i < list->n; i++)
        mr_strbuf_printf(&s, "%s%s", i ? ":" : "", list->item[i]);
    return s.len ? mr_strbuf_take(&s) : NULL;
}

/* Flags count before variables, also where they say "none": what the caller had is gone then. */
static void set_or_unset(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static void set_list(const char *name, const struct mr_strings *list)
{
    char *text = join(list);
    set_or_unset(name, text);
    free(text);
}

static void set_number(const char *name, int64_t value)
{
    char number[24];
    snprintf(number, sizeof(number), "%lld", (long long)value);
    set_or_unset(name, value ? number : NULL);
}

static void prepend(const char *name, const char *value, char separator)
{
    const char *old = getenv(name);
    struct mr_strbuf s = {0};
    mr_strbuf_printf(&s, "%s", value);
    if (old && *old)
        mr_strbuf_printf(&s, "%c%s", separator, old);
    if (s.text)
        setenv(name, s.text, 1);
    mr_strbuf_done(&s);
}

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

/* Whether this kernel can tell stray calls from others; switching it off where it is off does nothing. */
static bool strays_possible(void)
{
    return prctl(PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0) == 0;
}

static long read_at(int fd, void *to, size_t bytes, uint64_t at)
{
    return pread(fd, to, bytes, (off_t)at);
}

/* A program that cannot load the tracer must not be asked to. `depth`: a script's program may not be a script. */
static bool cannot_load(const char *path, bool *found, unsigned depth)
{
    char first[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *found = fd >= 0 && access(path, X_OK) == 0;
    if (fd < 0)
        return false;
    ssize_t n = pread(fd, first, sizeof(first) - 1, 0);
    bool script = n > 0 && mr_script_program(first, (size_t)n), ignored;
    bool foreign = *found && !script && mr_program_kind(fd, read_at) == MR_PROGRAM_FOREIGN;
    close(fd);
    return foreign || (*found && script && !depth && cannot_load(first, &ignored, 1));
}

static bool program_cannot_load(const char *name)
{
    bool found = false, foreign = false;
    if (strchr(name, '/'))
        return cannot_load(name, &found, 0);
    const char *p = getenv("PATH");
    for (p = p ? p : "/bin:/usr/bin"; *p && !found; p += strcspn(p, ":") + (p[strcspn(p, ":")] != 0)) {
        char full[PATH_MAX];
        int k = (int)strcspn(p, ":");
        snprintf(full, sizeof(full), "%.*s/%s", k ? k : 1, k ? p : ".", name);
        foreign = cannot_load(full, &found, 0);
    }
    return foreign;
}

/* In the child: the environment that the library and its descendants read. */
static void set_environment(const struct trace_options *o, const char *library, const char *spool)
{
    static const char *const python_places[] = {"../share/millrace/python", "../python", NULL};
    char folder[PATH_MAX], site[PATH_MAX];
    setenv("MILLRACE_SPOOL", spool, 1);
    set_list("MILLRACE_TRACE_INCLUDE", &o->include);
    set_list("MILLRACE_TRACE_EXCLUDE", &o->exclude);
    set_list("MILLRACE_TRACE_GROUPS", &o->groups);
    setenv("MILLRACE_TRACE_START", o->start ? "true" : "false", 1);
    set_number("MILLRACE_TRACE_SIGNAL", o->signal);
    set_number("MILLRACE_TRACE_SAMPLE", o->sample);
    set_or_unset("MILLRACE_TRACE_STRAYS", o->strays && strays_possible() ? "1" : NULL);
    if (!program_cannot_load(o->program.item[0]))
        prepend("LD_PRELOAD", library, ':');
    /* A program built with a sanitizer insists on being first in the list of libraries; it works as second as well. */
    prepend("ASAN_OPTIONS", "verify_asan_link_order=0", ':');
    set_or_unset("MILLRACE_TRACE_PYTHON", o->python ? "1" : NULL);
    if (o->python && own_folder(folder) == 0 && first_existing(folder, python_places, site)) {
        char autoload[PATH_MAX + 32];
        snprintf(autoload, sizeof(autoload), "%s/millrace/trace/autoload", site);
        prepend("PYTHONPATH", site, ':');
        prepend("PYTHONPATH", autoload, ':');
    }
}

/* ---- signals ----
 *
 * Whatever asks a program to end, or tells it something, is for the program to answer; we end when it has. What comes
 * from the terminal reaches the program by itself; what somebody sends to us is passed on. The program gets the signals
 * as we found them, ignored or not. */

static const int passed_on[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
static _Atomic uint64_t arrived, to_pass_on; /* bits 1 << number */

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    atomic_fetch_or(&arrived, 1ull << number);
    if (info->si_code <= 0) /* sent by a process, not by the kernel */
        atomic_fetch_or(&to_pass_on, 1ull << number);
}

/* The signals stay blocked until the program has been forked: what comes before is for it. */
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
    signal(SIGPIPE, SIG_IGN); /* of our last line only */
    signal(SIGCHLD, SIG_DFL); /* ignored, it would leave us no exit status */
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

static mode_t umask_before; /* the program's; our own files are 0600 and folders 0700 under any */

static _Noreturn void run_program(const struct trace_options *o, const char *library, const char *spool, int go,
                                  const sigset_t *ignored, const sigset_t *mask, struct mr_arena *a)
{
    char byte;
    while (read(go, &byte, 1) < 0 && errno == EINTR) {
    }
    close(go);
    char **argv = mr_arena_alloc(a, (o->program.n + 1) * sizeof(*argv));
    for (unsigned i = 0; argv && i < o->program.n; i++)
        argv[i] = (char *)o->program.item[i];
    set_environment(o, library, spool);
    umask(umask_before);
    signals_as_at_start(ignored, mask);
    if (argv)
        execvp(argv[0], argv);
    fprintf(stderr, "millrace: cannot run '%s': %s\n", o->program.item[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

/* Waits longer and longer while there is nothing to do, but not beyond the end of the program. */
static void nap(unsigned idle, int program, uint64_t longest_ns)
{
    struct pollfd p = {.fd = program, .events = POLLIN};
    const struct timespec t = {.tv_nsec = (long)MR_MIN(500000ull * (idle + 1), longest_ns)};
    ppoll(&p, 1, &t, NULL);
}

/* Processes that have inherited our spool: they may not have done any I/O yet. */
static unsigned users_of(const char *spool)
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

/* Drains until the program has ended and, within the linger time, its descendants. */
static int drain(struct mr_collector *c, const char *spool, struct mr_faults *faults, pid_t child, uint64_t linger_ns,
                 int *status, struct mr_error *err)
{
    bool ended = false, busy, failed = false;
    uint64_t end_ns = 0,
             longest_ns = (faults ? 4 : 20) * MR_NS_PER_MS; /* the kernel's buffers for page faults are small */
    int rc = 0, program = (int)syscall(SYS_pidfd_open, child, 0);
    for (unsigned idle = 0;; idle++) {
        if (!ended && waitpid(child, status, WNOHANG) == child) {
            struct timespec t;
            clock_gettime(CLOCK_MONOTONIC, &t);
            end_ns = (uint64_t)t.tv_sec * MR_NS_PER_S + (uint64_t)t.tv_nsec + linger_ns;
            ended = true;
            atomic_store(&arrived,
                         0); /* that was for the program; what comes now ends the waiting for those it left behind */
            if (program >= 0)
                close(program);
            program = -1;
            longest_ns = 4 * MR_NS_PER_MS;
        }
        if (!ended)
            pass_signals_on(child);
        if (faults)
            mr_faults_poll(faults);
        if (!failed && (rc = mr_collector_poll(c, &busy, err)) < 0) {
            fprintf(stderr, "millrace: %s; tracing ends, the program goes on\n", err->message);
            failed = true;
        }
        if (failed)
            busy = false;
        if (ended) {
            struct timespec t;
            clock_gettime(CLOCK_MONOTONIC, &t);
            bool late = (uint64_t)t.tv_sec * MR_NS_PER_S + (uint64_t)t.tv_nsec > end_ns || atomic_load(&arrived);
            unsigned others = failed || (!late && mr_collector_running(c)) ? 0 : users_of(spool);
            if (failed || late || (!others && !mr_collector_running(c))) {
                if (late && !mr_collector_running(c))
                    mr_collector_expect(c, others);
                return failed ? rc : 0;
            }
            longest_ns = others ? 50 * MR_NS_PER_MS : 4 * MR_NS_PER_MS;
            idle = others ? 100 : idle;
        }
        if (busy)
            idle = 0;
        nap(idle, program, longest_ns);
    }
}

static void talk(const struct trace_options *o, const struct mr_collect_stats *s, const char *spool, int status)
{
    char events[MR_HUMAN_LEN], bytes[MR_HUMAN_LEN], processes[MR_HUMAN_LEN];
    mr_log(MR_LOG_NOTE, "%s events of %s process%s%s in '%s' (%s)", mr_human_count(s->events, events),
           mr_human_count(s->processes, processes), s->processes == 1 ? "" : "es", s->dropped ? ", the newest" : "",
           o->out, mr_human_bytes((double)s->bytes, bytes));
    if (access(o->out, F_OK) != 0)
        mr_log(MR_LOG_WARN, "'%s' is gone: it was removed while the program ran", o->out);
    if (s->lost)
        mr_log(MR_LOG_WARN, "%llu events were lost", (unsigned long long)s->lost);
    if (s->unnamed)
        mr_log(MR_LOG_WARN, "%llu file names did not fit the table of names; their events are there without a name",
               (unsigned long long)s->unnamed);
    if (!s->processes && status != 126 << 8 && status != 127 << 8) /* that was us: no such program */
        mr_log(MR_LOG_WARN,
               "the program did not load the tracer: it is linked statically, not with glibc, for another machine, or "
               "changes its user (setuid)%s",
               s->events ? "; only its page faults were seen" : "");
    if (s->running)
        mr_log(MR_LOG_WARN, "%u processes still run; join their later events with 'millrace recover --out %s %s'",
               s->running, o->out, spool);
}

/* Page faults are an extra: where they cannot be had, one line says so. */
static struct mr_faults *watch_faults(const struct trace_options *o, const struct globs *globs, pid_t child,
                                      const char *spool)
{
    const struct mr_faults_options opt = {.spool = spool, .include = globs->include, .exclude = globs->exclude};
    struct mr_faults *f = NULL;
    struct mr_error err;
    char paranoid[16] = "unknown";
    int rc = o->mmap ? mr_faults_open(child, &opt, &f, &err) : 0;
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

/* Forks the program; it waits until we let it go. */
static pid_t start_program(struct mr_command_ctx *ctx, const struct globs *globs, const char *library,
                           const char *spool, struct mr_faults **faults, struct mr_error *err)
{
    const struct trace_options *o = ctx->options;
    sigset_t mask;
    int go[2];
    signals_begin(&mask);
    if (atomic_load(ctx->stop)) /* before it was ours to pass on */
        return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted");
    if (pipe2(go, O_CLOEXEC) < 0)
        return mr_error_set(err, -errno, "cannot start '%s'", o->program.item[0]);
    pid_t child = fork();
    if (child == 0) {
        close(go[1]);
        run_program(o, library, spool, go[0], ctx->ignored, &mask, ctx->arena);
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    int rc = child < 0 ? mr_error_set(err, -errno, "cannot start '%s'", o->program.item[0]) : 0;
    close(go[0]);
    if (child > 0)
        *faults = watch_faults(o, globs, child, spool);
    close(go[1]);
    return rc ? rc : child;
}

static int check_groups(const struct mr_strings *list, struct mr_error *err)
{
    for (unsigned i = 0; i < list->n; i++)
        for (const char *p = list->item[i]; *p;) {
            size_t k = strcspn(p, ",: ");
            if (k && !mr_call_group_known(p, k)) {
                int rc = mr_error_plain(err, MR_E_USAGE, "there is no group or call '%.*s'", (int)k, p);
                mr_error_hint(err, "layers: posix, stdio, uring, mpiio, hdf5, app; kinds: open, read, write, stat ...; "
                                   "or a call as 'millrace report' names it");
                return rc;
            }
            p += k + (p[k] != 0);
        }
    return 0;
}

/* Globs are for absolute paths: one that begins with a name matches none, and one that is a folder matches nothing in
 * it. */
static void warn_of_glob(const char *flag, const char *glob, const char *globs)
{
    char inside[PATH_MAX];
    struct stat st;
    snprintf(inside, sizeof(inside), "%.4000s/x", glob);
    if (!strchr("/*?[", *glob))
        mr_log(MR_LOG_WARN, "--%s '%s' matches no file: it is compared with absolute paths; '*/%s' would do", flag,
               glob, glob);
    else if (!strpbrk(glob, "*?[") && stat(glob, &st) == 0 && S_ISDIR(st.st_mode) && !mr_globs_match(globs, inside))
        mr_log(MR_LOG_WARN, "--%s '%s' matches the folder only, not what is in it; '%s/' would do", flag, glob, glob);
}

/* The globs of a flag in the form that mr_globs_match takes; the caller frees *out. */
static int read_globs(const char *flag, const struct mr_strings *list, char **out, struct mr_error *err)
{
    char *text = join(list), *save = NULL;
    *out = calloc(1, MR_GLOBS_BYTES);
    char *copy = *out ? malloc(MR_GLOBS_BYTES) : NULL;
    int rc = copy ? 0 : mr_error_set(err, -ENOMEM, "cannot read the globs of --%s", flag);
    if (rc == 0 && !mr_globs_read(text ? text : "", *out, MR_GLOBS_BYTES))
        rc = mr_error_plain(err, MR_E_USAGE,
                            "the globs of --%s are too long: more than %d bytes, with braces spread out", flag,
                            MR_GLOBS_BYTES);
    if (rc == 0) {
        memcpy(copy, *out, MR_GLOBS_BYTES);
        for (char *glob = strtok_r(copy, "\n", &save); glob; glob = strtok_r(NULL, "\n", &save))
            warn_of_glob(flag, glob, *out);
    }
    free(copy);
    free(text);
    return rc;
}

static int check_signal(int64_t number, struct mr_error *err)
{
    if (!number || mr_signal_can_switch(number))
        return 0;
    mr_error_plain(err, MR_E_USAGE, "bad value '%lld' for '--signal': no program can handle this signal",
                   (long long)number);
    return mr_error_hint(err, "12 (SIGUSR2) is free in most programs"), MR_E_USAGE;
}

static int run_traced(struct mr_command_ctx *ctx, struct globs *globs, struct mr_error *err)
{
    const struct trace_options *o = ctx->options;
    char library[PATH_MAX], spool[PATH_MAX], link[PATH_MAX], unseen[PATH_MAX];
    struct mr_collector *c = NULL;
    struct mr_faults *faults = NULL;
    struct mr_collect_stats stats = {0};
    uint64_t lost = 0;
    int status = 0;
    if (!o->program.n) {
        mr_error_plain(err, MR_E_USAGE, "no program given");
        return mr_error_hint(err, "millrace trace -o run.mrt -- python train.py"), MR_E_USAGE;
    }
    int rc = check_groups(&o->groups, err);
    rc = rc ? rc : check_signal(o->signal, err);
    rc = rc ? rc : read_globs("include", &o->include, &globs->include, err);
    rc = rc ? rc : read_globs("exclude", &o->exclude, &globs->exclude, err);
    if (rc < 0)
        return rc;
    if (o->strays && !strays_possible())
        mr_log(MR_LOG_WARN, "system calls outside the C library are not recorded: this needs Syscall User Dispatch "
                            "(Linux 5.11 or later, x86-64)");
    umask_before = umask(077);
    rc = find_library(library, err);
    rc = rc ? rc : make_spool(o->out, spool, err);
    if (rc < 0)
        return rc;
    rc = mr_collector_open(spool, o->out, true, false, o->max_size, &c, err);
    if (rc < 0) {
        remove_spool(spool);
        if (rc == MR_E_CONFIG)
            mr_error_hint(err, "a file has one writer: give every rank its own, or use the library alone "
                               "(doc/tracing.md)");
        return rc;
    }
    snprintf(link, sizeof(link), "%.4000s.spool", o->out); /* the file is ours now, and so is its link */
    unlink(link);
    if (symlink(spool, link) < 0)
        link[0] = 0;
    pid_t child = start_program(ctx, globs, library, spool, &faults, err);
    rc = child < 0 ? child : drain(c, spool, faults, child, o->linger, &status, err);
    struct mr_error second;
    int watched = mr_faults_close(faults, &lost, rc ? &second : err);
    rc = rc ? rc : watched;
    mr_unseen_tell(spool);
    snprintf(unseen, sizeof(unseen), "%.4000s/unseen", spool);
    unlink(unseen);
    int closed = mr_collector_close(c, &stats, rc ? &second : err);
    stats.lost += lost;
    if (access(spool, F_OK) != 0)
        unlink(link);
    if (child < 0)
        return child;
    if (rc == 0 && closed < 0)
        fprintf(stderr, "millrace: %s; the trace is not complete, the rest waits for 'millrace recover --out %s %s'\n",
                err->message, o->out, spool);
    talk(o, &stats, spool, status);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int trace_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    struct globs globs = {0};
    int rc = run_traced(ctx, &globs, err);
    free(globs.include);
    free(globs.exclude);
    return rc;
}

const struct mr_command mr_cmd_trace = {
    .name = "trace",
    .synopsis = "[options] [--] PROGRAM [ARGUMENTS]",
    .summary = "Records every I/O call of a program, its threads and its children.",
    .details =
        "Runs PROGRAM with a preloaded library that records every call which touches storage, without changing or "
        "rebuilding "
        "the program, and writes one trace file. The exit status is the program's (128 + n if signal n ended it).\n\n"
        "In batch jobs the library works alone: LD_PRELOAD=libmillrace_trace.so with MILLRACE_TRACE_OUT=FOLDER writes "
        "one file per "
        "process there; MILLRACE_TRACE_INCLUDE, _EXCLUDE, _GROUPS, _START, _SIGNAL, _SAMPLE, _MAX_SIZE, _PYTHON and "
        "_STRAYS are the options of the same name.\n\n"
        "Statically linked and setuid programs cannot be traced; they run unchanged and are named at the end.\n\n"
        "Example:\n  millrace trace -o run.mrt -- python train.py\n  millrace report run.mrt",
    .table = {.section = "trace",
              .doc = "Recording.",
              .options = trace_options,
              .struct_bytes = sizeof(struct trace_options)},
    .run = trace_run,
};
