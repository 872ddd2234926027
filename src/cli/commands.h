/* The list of sub-commands, in the order help shows them. To add one: write src/cli/cmd_<name>.c that defines
 * `const struct mr_command mr_cmd_<name>` and add X(<name>) below; help, man pages, completion and dispatch follow. A
 * '-' in a command's shown name is a '_' here. */
#ifndef MR_CLI_COMMANDS_H
#define MR_CLI_COMMANDS_H

#include "cli/command.h"

#define MR_COMMANDS(X)                                                                                                 \
    X(run)                                                                                                             \
    X(workloads)                                                                                                       \
    X(gen)                                                                                                             \
    X(verify)                                                                                                          \
    X(scan)                                                                                                            \
    X(pack)                                                                                                            \
    X(show)                                                                                                            \
    X(cat)                                                                                                             \
    X(order)                                                                                                           \
    X(ckpt)                                                                                                            \
    X(cache)                                                                                                           \
    X(sim)                                                                                                             \
    X(calibrate)                                                                                                       \
    X(demo)                                                                                                            \
    X(doctor)                                                                                                          \
    X(trace)                                                                                                           \
    X(watch)                                                                                                           \
    X(recover)                                                                                                         \
    X(report)                                                                                                          \
    X(ls)                                                                                                              \
    X(try)                                                                                                             \
    X(tune)                                                                                                            \
    X(compare)                                                                                                         \
    X(check)                                                                                                           \
    X(export)                                                                                                          \
    X(mcp)                                                                                                             \
    X(help)

#define MR_COMMAND_DECLARE(name) extern const struct mr_command mr_cmd_##name;
MR_COMMANDS(MR_COMMAND_DECLARE)
#undef MR_COMMAND_DECLARE

/* All of them, ending with NULL. */
extern const struct mr_command *const mr_commands[];

/* NULL if there is none; then *nearest (if wanted) is the closest name or NULL. */
const struct mr_command *mr_command_find(const char *name, const char **nearest);

#endif
