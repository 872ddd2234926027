/* The server of `millrace mcp`: the Model Context Protocol over two descriptors. README.md has the invariants.
 *
 * Versions 2024-11-05, 2025-03-26 and 2025-06-18; methods initialize, ping, tools/list, tools/call, and the notification
 * cancelled. A second call waits until the first has ended. */
#ifndef MR_MCP_MCP_H
#define MR_MCP_MCP_H

#include <millrace/error.h>
#include <stdatomic.h>
#include <stdbool.h>

struct mr_mcp_options {
    int in, out;         /* descriptors */
    const char *program; /* the executable to run commands with */
    bool allow_run;      /* offers `try` */
    const atomic_bool *stop;
};

/* Returns at the end of the input, after the calls that were there; MR_E_INTERRUPTED once *stop is set; -errno where the
 * client is gone. */
int mr_mcp_serve(const struct mr_mcp_options *o, struct mr_error *err);

#endif
