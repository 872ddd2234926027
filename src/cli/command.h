/* Sub-commands: one file each (src/cli/cmd_<name>.c), one row each in MR_COMMANDS (src/cli/commands.h). A command
 * is its option table plus a function; --help, the man page and shell completion come from the table.
 *
 * The command line is the only layer that prints results or decides exit codes. Results go to stdout, messages and
 * progress to stderr. Every command has --json where it prints a result.
 *
 * To add one: write cmd_<name>.c with its struct, its rows and its run function; add X(<name>) to
 * MR_COMMANDS in commands.h. */
#ifndef MR_CLI_COMMAND_H
#define MR_CLI_COMMAND_H

#include "conf/option.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

struct mr_command_ctx {
    const struct mr_command *command;
    void *options;               /* the command's struct, parsed */
    struct mr_strings overrides; /* key=value words, if the command takes them */
    struct mr_arena *arena;      /* lives until the process ends */
    int argc;                    /* the command's own words, as given: for commands that parse them again on top of */
    char *const *argv;           /* other defaults (a workload's) */
    const atomic_bool *stop;     /* set by SIGINT/SIGTERM: finish cleanly, return MR_E_INTERRUPTED */
    const sigset_t
        *ignored; /* signals that were ignored when we were started: a program that we start is to ignore them, too */
    bool whole;   /* set by the command: its result is complete, a stop that came meanwhile came too late */
};

struct mr_command {
    const char *name;
    const char *synopsis; /* "[options] FOLDER" */
    const char *summary;  /* one line for the list of commands */
    const char *details;  /* paragraphs for --help and the man page, with examples */
    struct mr_option_table table;
    bool takes_overrides;
    /* Returns 0 or a negative code with err filled; main prints the error and picks the exit status. A positive value
     * is an exit status, for commands that pass on that of another program. */
    int (*run)(struct mr_command_ctx *ctx, struct mr_error *err);
};

/* Prints an error and returns its exit status. main calls it; whoever has to speak earlier calls it first, and main's
 * call then prints nothing. */
int mr_cli_tell_error(int code, const struct mr_error *err);

#endif
