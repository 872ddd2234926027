/* The tools: names, schemas, and the command that a call becomes. */
#ifndef MR_MCP_MCP_TOOLS_H
#define MR_MCP_MCP_TOOLS_H

#include <jansson.h>
#include <millrace/error.h>
#include <stdbool.h>

/* The list that tools/list returns. A new reference. */
json_t *mr_mcp_tools(bool allow_run);
/* Words of the command (without the program's name) for a call, ending with NULL; the caller frees them with
 * mr_mcp_words_free; *runs: it starts a program of the user's. MR_E_USAGE, with a message for the client: no such tool, wrong arguments. */
int mr_mcp_words(const char *tool, const json_t *arguments, bool allow_run, char ***out, bool *runs,
                 struct mr_error *err);
void mr_mcp_words_free(char **words);

#endif
