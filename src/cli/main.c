/* The program: finds the sub-command, fills its options (default < environment < flags), runs it, prints the error if
 * there is one, and picks the exit status. The only place that ends the process.
 *
 * Signals: the first SIGINT or SIGTERM sets the stop flag, and the command returns MR_E_INTERRUPTED when it has cleaned
 * up; a second SIGINT ends the process at once. SIGPIPE sets the flag, too, so that `millrace order | head` ends.
 * SIGXFSZ does nothing: the write that went over the limit (ulimit -f) fails, and its error tells where. They are
 * handled, not ignored, since programs that we start would inherit that. Standard output is checked at the end: a
 * result that could not be written is an error. */
#include "cli/commands.h"
#include "cli/globals.h"
#include "cli/help.h"
#include "cli/workload_args.h"
#include "base/arena.h"
#include "base/log.h"
#include "comm/comm.h"
#include "conf/workload.h"

#include <errno.h>
#include <millrace/plugin.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_bool stop_requested;
static volatile sig_atomic_t interrupts, broken_pipe;
static sigset_t ignored_at_start;

static void on_signal(int number)
{
    if (number == SIGPIPE)
        broken_pipe = 1;
    else if (number == SIGINT && interrupts++)
        _exit(130);
    atomic_store(&stop_requested, true);
}

static void do_nothing(int number)
{
    (void)number;
}

static void install_signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction before;
    sigemptyset(&sa.sa_mask);
    sigemptyset(&ignored_at_start);
    for (int number = 1; number < NSIG; number++)
        if (sigaction(number, NULL, &before) == 0 && before.sa_handler == SIG_IGN)
            sigaddset(&ignored_at_start, number);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGPIPE, &sa, NULL);
    sa.sa_handler = do_nothing;
    sigaction(SIGXFSZ, &sa, NULL);
}

static void log_to_stderr(void *user, enum mr_log_level level, const char *text)
{
    static const char *const names[] = {"warning", "note", "info", "debug"};
    (void)user;
    fprintf(stderr, "millrace: %s: %s\n", names[level], text);
}

/* Under mpirun or srun all ranks would log the same notes: only rank 0 does. */
static void set_log_level(const struct mr_globals *g)
{
    mr_log_set_sink(log_to_stderr, NULL,
                    g->debug                                ? MR_LOG_DEBUG
                    : g->verbose                            ? MR_LOG_INFO
                    : g->quiet || mr_comm_detect_rank() > 0 ? MR_LOG_WARN
                                                            : MR_LOG_NOTE);
}

/* Closes standard output. Returns the exit status: 5 if not everything could be written. */
static int finish(int status)
{
    errno = 0;
    bool failed = ferror(stdout) != 0;
    if (fflush(stdout) != 0)
        failed = true;
    int saved = errno;
    if (close(STDOUT_FILENO) != 0 && errno != EBADF && !failed) {
        failed = true;
        saved = errno;
    }
    /* A command that writes past stdio has seen the broken pipe itself; the result is cut short all the same. */
    if (!failed && !broken_pipe)
        return status;
    if (!broken_pipe)
        fprintf(stderr, "millrace: cannot write to standard output%s%s\n", saved ? ": " : "",
                saved ? strerror(saved) : "");
    return status && status != 130 ? status : 5;
}

static bool wants_help(const struct mr_command *cmd, int argc, char *const *argv)
{
    const struct mr_options_target targets[] = {{&cmd->table, NULL}, {&mr_globals_table, NULL}};
    int own = mr_options_own_words(targets, 2, argc, argv);
    for (int i = 0; i < own; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return true;
    return false;
}

/* Options before the command's name. *used is how many words they took. */
static int parse_leading(int argc, char *const *argv, struct mr_arena *a, struct mr_globals *g, int *used,
                         struct mr_error *err)
{
    struct mr_options_target target = {.table = &mr_globals_table, .obj = g};
    int n = 0;
    while (n < argc && argv[n][0] == '-')
        n++;
    *used = n;
    return mr_options_parse_targets(&target, 1, n, argv, a, NULL, err);
}

/* A variable that looks like an option of this command but is none is a misspelling. */
static void warn_of_variables(const struct mr_option_table *t)
{
    char prefix[160], name[160];
    const struct mr_option none = {.key = ""};
    size_t n = strlen(mr_option_env_name(t, &none, prefix, sizeof prefix));
    for (char **e = environ; *e; e++) {
        bool known = strncmp(*e, prefix, n) != 0;
        for (const struct mr_option *o = t->options; !known && o->key; o++) {
            size_t len = strlen(mr_option_env_name(t, o, name, sizeof name));
            known = !strncmp(*e, name, len) && (*e)[len] == '=';
        }
        if (!known)
            mr_log(MR_LOG_WARN, "environment variable '%.*s' matches no option of '%s'", (int)strcspn(*e, "="), *e,
                   t->section);
    }
}

static int run_command(const struct mr_command *cmd, int argc, char *const *argv, struct mr_arena *a,
                       struct mr_globals *g, struct mr_error *err)
{
    struct mr_command_ctx ctx = {
        .command = cmd, .arena = a, .argc = argc, .argv = argv, .stop = &stop_requested, .ignored = &ignored_at_start};
    ctx.options = mr_arena_alloc(a, cmd->table.struct_bytes + 1);
    if (!ctx.options)
        return mr_error_set(err, -ENOMEM, "cannot start '%s'", cmd->name);
    struct mr_options_target targets[] = {{&cmd->table, ctx.options}, {&mr_globals_table, g}};
    int rc = mr_options_defaults(&cmd->table, a, ctx.options, err);
    if (!rc)
        rc = mr_options_parse_env(&cmd->table, environ, a, ctx.options, err);
    if (!rc)
        rc = mr_options_parse_targets(targets, 2, argc, argv, a, cmd->takes_overrides ? &ctx.overrides : NULL, err);
    if (rc) {
        mr_error_hint(err, "see 'millrace %s --help'", cmd->name);
        return rc;
    }
    set_log_level(g);
    warn_of_variables(&cmd->table);
    rc = cmd->run(&ctx, err);
    if (rc == 0 && ctx.whole)
        atomic_store(&stop_requested, false);
    return rc;
}

/* The user's plug-ins. A plug-in that fails to load is an error, except for `help` and `doctor`. */
static int load_plugins(const char *command, bool only_help, struct mr_error *err)
{
    struct mr_error why = {0};
    mr_workload_set_plugin_loader(mr_cli_load_plugin);
    int rc = mr_plugins_load(getenv("MILLRACE_PLUGIN_PATH"), &why);
    if (rc == 0)
        return 0;
    if (only_help || !strcmp(command, "help") || !strcmp(command, "doctor")) {
        mr_log(MR_LOG_WARN, "MILLRACE_PLUGIN_PATH: %s", why.message);
        return 0;
    }
    mr_error_context(&why, "in the environment variable MILLRACE_PLUGIN_PATH");
    *err = why;
    return rc;
}

static int unknown_command(const char *name, const char *nearest, struct mr_error *err)
{
    mr_error_plain(err, MR_E_USAGE, "there is no command '%.200s'", name);
    if (nearest)
        mr_error_hint(err, "did you mean 'millrace %s'?", nearest);
    return mr_error_hint(err, "list the commands with 'millrace help'"), MR_E_USAGE;
}

static int dispatch(int argc, char *const *argv, struct mr_arena *a, struct mr_error *err)
{
    struct mr_globals globals = {0};
    int used = 0;
    while (argc > 1 && (!strcmp(argv[0], "-q") || !strcmp(argv[0], "-v")) && !strcmp(argv[1], "--version"))
        argc--, argv++;
    if (argc > 0 && (!strcmp(argv[0], "--version") || !strcmp(argv[0], "version"))) {
        bool json = argc == 2 && !strcmp(argv[1], "--json");
        if (argc > 1 && !json)
            return mr_error_plain(err, MR_E_USAGE, "unexpected argument '%.200s' after '%s'", argv[1], argv[0]);
        return mr_version_print(stdout, json, err);
    }
    int rc = mr_options_defaults(&mr_globals_table, a, &globals, err);
    if (!rc)
        rc = parse_leading(argc, argv, a, &globals, &used, err);
    if (rc)
        return rc;
    set_log_level(&globals);
    if (globals.help) {
        mr_help_overview(stdout);
        return 0;
    }
    if (used == argc) {
        mr_help_overview(stderr);
        return mr_error_plain(err, MR_E_USAGE, "no command given");
    }
    const char *nearest = NULL;
    const struct mr_command *cmd = mr_command_find(argv[used], &nearest);
    if (!cmd)
        return unknown_command(argv[used], nearest, err);
    bool only_help = wants_help(cmd, argc - used - 1, argv + used + 1);
    rc = load_plugins(cmd->name, only_help, err);
    if (rc)
        return rc;
    if (only_help) {
        mr_help_command(stdout, cmd);
        return 0;
    }
    return run_command(cmd, argc - used - 1, argv + used + 1, a, &globals, err);
}

int main(int argc, char **argv)
{
    struct mr_arena arena = {0};
    struct mr_error err = {0};
    install_signals();
    int rc = dispatch(argc > 0 ? argc - 1 : 0, argv + (argc > 0), &arena, &err);
    if (rc == 0 && atomic_load(&stop_requested) && !broken_pipe)
        rc = mr_error_plain(&err, MR_E_INTERRUPTED, "interrupted");
    if (rc < 0 && mr_error_exit_status(rc) == 2 && mr_comm_detect_rank() > 0 && !freopen("/dev/null", "w", stderr))
        rc = MR_E_INTERNAL; /* all ranks have the same arguments: rank 0 reports what is wrong with them */
    int status = rc < 0 ? (rc == MR_E_INTERRUPTED && broken_pipe && !interrupts ? 5 : mr_cli_tell_error(rc, &err)) : rc;
    mr_arena_done(&arena);
    return finish(status);
}
