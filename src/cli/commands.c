/* The table of sub-commands, from the one list in commands.h. */
#include "cli/commands.h"

#include <string.h>

const struct mr_command *const mr_commands[] = {
#define MR_COMMAND_ROW(name) &mr_cmd_##name,
    MR_COMMANDS(MR_COMMAND_ROW)
#undef MR_COMMAND_ROW
        NULL,
};

const struct mr_command *mr_command_find(const char *name, const char **nearest)
{
    const char *best = NULL;
    unsigned best_d = ~0u;
    for (int i = 0; mr_commands[i]; i++) {
        if (!strcmp(mr_commands[i]->name, name))
            return mr_commands[i];
        unsigned d = mr_edit_distance(name, mr_commands[i]->name);
        if (d < best_d) {
            best_d = d;
            best = mr_commands[i]->name;
        }
    }
    if (nearest)
        *nearest = best && mr_edit_is_near(name, best_d) ? best : NULL;
    return NULL;
}
