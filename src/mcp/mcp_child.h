/* One command of this program as a process: its output in memory, its end, and ending it early. */
#ifndef MR_MCP_MCP_CHILD_H
#define MR_MCP_MCP_CHILD_H

#include "base/strbuf.h"

#include <stdint.h>
#include <sys/types.h>

#define MR_MCP_OUTPUT_MOST (1u << 20) /* bytes of output that are kept */

struct mr_mcp_child {
    pid_t pid;         /* 0: none runs */
    int out, messages; /* descriptors of its output; -1 at their end */
    struct mr_strbuf text, said;
    bool cut;
    uint64_t asked_ns;    /* it was asked to end; 0 */
    uint64_t patience_ns; /* how long it may take for that */
};

/* `words`: of the command, ends with NULL. */
int mr_mcp_child_start(const char *program, char *const *words, uint64_t patience_ns, struct mr_mcp_child *c,
                       struct mr_error *err);
/* Takes what is there from one of its descriptors, which became readable. */
void mr_mcp_child_read(struct mr_mcp_child *c, int fd);
/* Asks it to end; once its patience is over, mr_mcp_child_urge kills it with everything it has started. */
void mr_mcp_child_ask(struct mr_mcp_child *c);
void mr_mcp_child_urge(struct mr_mcp_child *c);
bool mr_mcp_child_gone(struct mr_mcp_child *c);
/* Waits for its end, once both descriptors are at theirs: the exit status, or 128 + signal. */
int mr_mcp_child_wait(struct mr_mcp_child *c);
void mr_mcp_child_done(struct mr_mcp_child *c); /* frees the texts */

#endif
