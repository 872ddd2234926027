/* `millrace mcp`: our answers for assistants, by the Model Context Protocol over standard input and output. */
#include "base/log.h"
#include "cli/commands.h"
#include "mcp/mcp.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

struct mcp_options {
    bool allow_run;
};

#define ROW(key, field, type, def, ...) MR_OPTION(mcp_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option mcp_options[] = {
    ROW("allow_run", allow_run, BOOL, "false",
        .doc = "Also offers 'try', which starts the traced program again. Without it nothing of yours is run."),
    MR_OPTION_END,
};

static int mcp_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct mcp_options *o = ctx->options;
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0)
        return mr_error_set(err, -errno, "cannot find this program");
    program[n] = '\0';
    if (isatty(STDIN_FILENO))
        mr_log(MR_LOG_NOTE, "this is a server: it is started by an assistant, and reads messages of its protocol");
    const struct mr_mcp_options how = {
        .in = STDIN_FILENO, .out = STDOUT_FILENO, .program = program, .allow_run = o->allow_run, .stop = ctx->stop};
    return mr_mcp_serve(&how, err);
}

const struct mr_command mr_cmd_mcp = {
    .name = "mcp",
    .synopsis = "[options]",
    .summary = "the same answers for assistants, over the Model Context Protocol",
    .details = "A server on standard input and output, for assistants that can use tools: report, explain, compare, "
               "check, sim, ls and watch, each the command of that name. It reads what you may read, and writes "
               "nothing. With --allow-run there is also 'try'.\n\n"
               "Example:\n"
               "  millrace mcp </dev/null",
    .table = {.section = "mcp",
              .doc = "Assistants.",
              .options = mcp_options,
              .struct_bytes = sizeof(struct mcp_options)},
    .run = mcp_run,
};
