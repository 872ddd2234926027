/* How the conformance programs take plug-ins: MILLRACE_PLUGIN_PATH loads them as the program does, and with
 * MR_CONFORMANCE_ONLY=NAME the suite runs over that implementation alone (a stack text for stores). */
#ifndef MR_TESTS_CONFORMANCE_PLUGINS_H
#define MR_TESTS_CONFORMANCE_PLUGINS_H

#include <millrace/plugin.h>
#include <stdio.h>
#include <stdlib.h>

/* The name, or NULL: all that are built in. Ends the program when a plug-in cannot be loaded. */
static inline const char *conformance_only(void)
{
    struct mr_error err = {0};
    const char *only = getenv("MR_CONFORMANCE_ONLY");
    if (mr_plugins_load(getenv("MILLRACE_PLUGIN_PATH"), &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return only && *only ? only : NULL;
}

#endif
