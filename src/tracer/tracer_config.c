/* Settings of the tracer, from the environment. A bad value is reported in one line, and the default is used.
 */
#include "tracer/tracer_internal.h"
#include "tracer/tracer_sys.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct mr_config mr_config;

static size_t env_text(const char *name, char *out, size_t cap)
{
    const char *v = getenv(name);
    out[0] = 0;
    return v ? mr_copy_text(out, cap, v) : 0;
}

static void env_globs(const char *name, char out[MR_GLOBS_BYTES], const char *complaint)
{
    const char *v = getenv(name);
    if (!mr_globs_read(v ? v : "", out, MR_GLOBS_BYTES))
        mr_say_plain(complaint);
}

int64_t mr_env_number(const char *name)
{
    const char *v = getenv(name);
    int64_t n = 0;
    if (!v || *v < '0' || *v > '9')
        return -1;
    for (; *v >= '0' && *v <= '9' && n < INT32_MAX; v++)
        n = n * 10 + (*v - '0');
    return n;
}

/* 0 where nothing is said, and with one line where it is no number or too large. */
static int64_t env_option(const char *name, int64_t most, const char *complaint)
{
    const char *v = getenv(name);
    if (!v || !*v)
        return 0;
    if (!v[strspn(v, "0123456789")] && mr_env_number(name) <= most)
        return mr_env_number(name);
    mr_say_plain(complaint);
    return 0;
}

/* A switch: `otherwise` where nothing is said, and with one line where it is neither on nor off. */
static bool env_switch(const char *name, bool otherwise, const char *complaint)
{
    static const char *const words[] = {"false", "true", "0", "1", "no", "yes", "off", "on"};
    const char *v = getenv(name);
    for (size_t i = 0; v && i < MR_ARRAY_LEN(words); i++)
        if (!strcasecmp(v, words[i]))
            return i % 2;
    if (v && *v)
        mr_say_plain(complaint);
    return otherwise;
}

/* A size as the command takes it, but whole numbers only. False: it is none. */
static bool env_bytes(const char *name, uint64_t *out)
{
    static const struct {
        char name[4];
        uint64_t factor;
    } units[] = {{"", 1},           {"B", 1},        {"K", MR_KIB},      {"M", MR_MIB},           {"G", MR_GIB},
                 {"T", 1ull << 40}, {"KiB", MR_KIB}, {"MiB", MR_MIB},    {"GiB", MR_GIB},         {"TiB", 1ull << 40},
                 {"KB", 1000},      {"MB", 1000000}, {"GB", 1000000000}, {"TB", 1000000000000ull}};
    const char *v = getenv(name);
    uint64_t n = 0;
    *out = 0;
    if (!v || !*v)
        return true;
    bool ok = *v >= '0' && *v <= '9';
    for (; (*v >= '0' && *v <= '9') || *v == '_'; v++)
        if (*v != '_')
            ok = ok && !__builtin_mul_overflow(n, 10, &n) && !__builtin_add_overflow(n, (uint64_t)(*v - '0'), &n);
    v += strspn(v, " ");
    for (size_t i = 0; ok && i < MR_ARRAY_LEN(units); i++)
        if (!strncasecmp(v, units[i].name, sizeof(units[i].name)))
            return !__builtin_mul_overflow(n, units[i].factor, out);
    return false;
}

static void say_of(const char *before, const char *what, size_t len, const char *after)
{
    char line[256];
    size_t n = mr_copy_text(line, sizeof(line), before), m = MR_MIN(len, (size_t)80);
    memcpy(line + n, what, m);
    mr_copy_text(line + n + m, sizeof(line) - n - m, after);
    mr_say_plain(line);
}

/* A variable that looks like one of ours but is none is a misspelling. */
static void check_variables(void)
{
    static const char *const known[] = {"OUT",    "INCLUDE", "EXCLUDE",     "GROUPS", "START",
                                        "SIGNAL", "SAMPLE",  "STRAYS",      "MMAP",   "MAX_SIZE",
                                        "LINGER", "PYTHON",  "PYTHON_SKIP", "PROBE",  NULL};
    const size_t prefix = sizeof("MILLRACE_TRACE_") - 1;
    for (char **e = environ; *e; e++) {
        const char *name = *e + prefix;
        bool ours = !strncmp(*e, "MILLRACE_TRACE_", prefix);
        for (const char *const *k = known; ours && *k; k++)
            ours = strlen(*k) != strcspn(name, "=") || strncmp(*k, name, strlen(*k)) != 0;
        if (ours)
            say_of("environment variable '", *e, strcspn(*e, "="), "' is none of the tracer's");
    }
}

/* Globs are for absolute paths: one that begins with a name matches none. */
static void check_globs(const char *globs)
{
    for (const char *p = globs; *p;) {
        size_t n = strcspn(p, "\n");
        if (n && !strchr("/*?[", *p))
            say_of("the glob '", p, n, "' matches no file: it is compared with absolute paths");
        p += n + (p[n] != 0);
    }
}

/* What the command does where there is one. */
static void read_for_library(void)
{
    check_variables();
    check_globs(mr_config.include);
    check_globs(mr_config.exclude);
    if (env_switch("MILLRACE_TRACE_MMAP", false,
                   "MILLRACE_TRACE_MMAP: neither true nor false; page faults are not recorded"))
        mr_say_plain("MILLRACE_TRACE_MMAP: the library alone does not record page faults; run the program by 'millrace "
                     "trace --mmap'");
    if (!env_bytes("MILLRACE_TRACE_MAX_SIZE", &mr_config.max_bytes))
        mr_say_plain("MILLRACE_TRACE_MAX_SIZE: not a size in bytes (4096, 256KiB, 100MB); everything is kept");
}

static bool word_in(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; *p;) {
        size_t k = strcspn(p, ",: ");
        if (k == n && !strncasecmp(p, word, n))
            return true;
        p += k + (p[k] != 0);
    }
    return false;
}

static void check_groups(const char *list)
{
    for (const char *p = list; *p;) {
        size_t k = strcspn(p, ",: ");
        if (k && !mr_call_group_known(p, k))
            say_of("MILLRACE_TRACE_GROUPS: there is no group or call '", p, k, "'");
        p += k + (p[k] != 0);
    }
}

/* Groups are layers (posix, stdio, uring, mpiio, hdf5, app), kinds (open, read, stat ...) or names of calls. */
static void read_groups(void)
{
    const char *list = getenv("MILLRACE_TRACE_GROUPS");
    bool all = !list || !*list || word_in(list, "all");
    if (!all)
        check_groups(list);
    for (unsigned c = 1; c < MR_CALL_COUNT; c++) {
        const struct mr_call_info *i = mr_call_get(c);
        mr_core.call_on[c] = all || word_in(list, mr_layer_name(i->layer)) || word_in(list, mr_kind_name(i->kind)) ||
                             word_in(list, i->name);
    }
    mr_core.call_on[MR_CALL_more] = 1;
    for (unsigned c = MR_CALL_metadata + 1; c < MR_CALL_COUNT && mr_core.sample > 1; c++)
        if (mr_core.call_on[c] && mr_call_get(c)->kind != MR_EV_PROCESS)
            mr_core.call_on[c] = 2;
    mr_core.choosy = !all || mr_core.sample > 1;
}

void mr_config_read(void)
{
    struct mr_config *c = &mr_config;
    c->collected = env_text("MILLRACE_SPOOL", c->dir, sizeof(c->dir)) > 0;
    if (!c->collected && !env_text("MILLRACE_TRACE_OUT", c->dir, sizeof(c->dir)))
        mr_copy_text(c->dir, sizeof(c->dir), "millrace-trace");
    if (c->dir[0] != '/') {
        char name[MR_PATH_BYTES];
        mr_copy_text(name, sizeof(name), c->dir);
        long n = mr_sys2(SYS_getcwd, c->dir, sizeof(c->dir) - 1);
        n = n > 0 ? n - 1 : 0;
        c->dir[n] = '/';
        mr_copy_text(c->dir + n + 1, sizeof(c->dir) - (size_t)n - 1, name);
    }
    if (!c->collected)
        mr_copy_text(c->out + mr_copy_text(c->out, sizeof(c->out), "MILLRACE_TRACE_OUT="), MR_PATH_BYTES, c->dir);
    env_globs("MILLRACE_TRACE_INCLUDE", c->include, "MILLRACE_TRACE_INCLUDE: too long; every file is recorded");
    env_globs("MILLRACE_TRACE_EXCLUDE", c->exclude, "MILLRACE_TRACE_EXCLUDE: too long; no file is left out");
    c->start = env_switch("MILLRACE_TRACE_START", true, "MILLRACE_TRACE_START: neither true nor false; it starts");
    c->strays = env_switch("MILLRACE_TRACE_STRAYS", false,
                           "MILLRACE_TRACE_STRAYS: neither true nor false; they are not recorded");
    int64_t signal_number =
        env_option("MILLRACE_TRACE_SIGNAL", 64, "MILLRACE_TRACE_SIGNAL: not a signal's number; there is none");
    int64_t sample = env_option("MILLRACE_TRACE_SAMPLE", 1000000000,
                                "MILLRACE_TRACE_SAMPLE: not a number up to 1000000000; every call is kept");
    c->signal = mr_signal_can_switch(signal_number) ? (int)signal_number : 0;
    if (signal_number && !c->signal)
        mr_say_plain("MILLRACE_TRACE_SIGNAL: no program can handle this signal; there is none");
    mr_core.sample = sample > 1 ? (uint32_t)sample : 0;
    read_groups();
    mr_python_begin(env_switch("MILLRACE_TRACE_PYTHON", true,
                               "MILLRACE_TRACE_PYTHON: neither true nor false; Python is instrumented"),
                    getenv("MILLRACE_TRACE_PYTHON") != NULL && !c->collected);
    if (!c->collected)
        read_for_library();
}

bool mr_path_wanted(const char *path)
{
    if (mr_config.include[0] && !mr_globs_match(mr_config.include, path))
        return false;
    return !mr_config.exclude[0] || !mr_globs_match(mr_config.exclude, path);
}
