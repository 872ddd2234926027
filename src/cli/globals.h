/* Options that every sub-command takes, before or after its name, and the facts about this build. */
#ifndef MR_CLI_GLOBALS_H
#define MR_CLI_GLOBALS_H

#include "conf/option.h"

#include <stdio.h>

struct mr_globals {
    bool help, verbose, debug, quiet;
};

extern const struct mr_option_table mr_globals_table;

/* `millrace --version`: one fact per line, or {"schema":"millrace.version/1", ...}. */
int mr_version_print(FILE *out, bool json, struct mr_error *err);

#endif
