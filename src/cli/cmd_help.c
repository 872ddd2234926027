/* `millrace help`: topics, commands, man pages, shell completion. */
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/help_topics.h"

#include <string.h>

struct help_options {
    const char *topic;
    bool man;
    int completion;
};

static const char *const shells[] = {"none", "bash", "zsh", "fish", NULL};

#define ROW(key, field, type, def, ...) MR_OPTION(help_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option help_options[] = {
    ROW("topic", topic, STRING, "", .flags = MR_OPTF_POSITIONAL, .doc = "A command or a topic; 'topics' lists them."),
    ROW("man", man, BOOL, "false",
        .doc = "Prints the manual page of the command (or of the program) in roff, for man(1).",
        .example = "millrace help --man run | man -l -"),
    ROW("completion", completion, ENUM, "none", .choices = shells, .doc = "Prints a completion script for the shell.",
        .example = "source <(millrace help --completion bash)"),
    MR_OPTION_END,
};

static const struct mr_help_topic *find_topic(const char *name)
{
    for (const struct mr_help_topic *t = mr_help_topics; t->name; t++)
        if (!strcmp(t->name, name))
            return t;
    return NULL;
}

static int unknown_topic(const char *name, const char *nearest, struct mr_error *err)
{
    struct mr_nearest near = {.word = name};
    for (const struct mr_help_topic *t = mr_help_topics; t->name; t++)
        mr_nearest_offer(&near, t->name);
    nearest = nearest ? nearest : mr_nearest_name(&near);
    mr_error_plain(err, MR_E_USAGE, "there is no help on '%.200s'", name);
    if (nearest)
        mr_error_hint(err, "did you mean 'millrace help %s'?", nearest);
    return mr_error_hint(err, "list the topics with 'millrace help topics'"), MR_E_USAGE;
}

static int help_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct help_options *opt = ctx->options;
    if (opt->completion != MR_SHELL_NONE) {
        mr_completion(stdout, (enum mr_shell)opt->completion);
        return 0;
    }
    const char *nearest = NULL;
    const struct mr_command *cmd = *opt->topic ? mr_command_find(opt->topic, &nearest) : NULL;
    const struct mr_help_topic *topic = find_topic(opt->topic);
    if (*opt->topic && !cmd && (!topic || opt->man))
        return unknown_topic(opt->topic, nearest, err);
    if (opt->man)
        mr_man_page(stdout, cmd);
    else if (cmd)
        mr_help_command(stdout, cmd);
    else if (!topic)
        mr_help_overview(stdout);
    else if (topic->print)
        topic->print(stdout);
    else
        mr_help_wrap(stdout, topic->text, 0);
    return 0;
}

const struct mr_command mr_cmd_help = {
    .name = "help",
    .synopsis = "[TOPIC] [--man] [--completion SHELL]",
    .summary = "explain a command or a topic; man pages; shell completion",
    .details = "Without a topic it lists the commands.\n\n"
               "  millrace help units\n  millrace help --man run | man -l -\n"
               "  source <(millrace help --completion bash)\n",
    .table = {.section = "help", .doc = "help", .options = help_options, .struct_bytes = sizeof(struct help_options)},
    .run = help_run,
};
