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
    struct mr_nearest near = {.word = name};
    for (int i = 0; mr_commands[i]; i++) {
        if (!strcmp(mr_commands[i]->name, name))
            return mr_commands[i];
        mr_nearest_offer(&near, mr_commands[i]->name);
    }
    if (nearest)
        *nearest = mr_nearest_name(&near);
    return NULL;
}
