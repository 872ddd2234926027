/* Help texts, man pages and shell completion, all generated from the option tables. */
#ifndef MR_CLI_HELP_H
#define MR_CLI_HELP_H

#include "cli/command.h"

#include <stdio.h>

/* `millrace help`: what there is. */
void mr_help_overview(FILE *out);
/* `millrace CMD --help`. */
void mr_help_command(FILE *out, const struct mr_command *cmd);
/* The options of one table, as help shows them. `flags`: rows are command-line flags; otherwise keys of a section. */
void mr_help_options(FILE *out, const struct mr_option_table *t, bool flags);
/* What stands for an option's value: N, BYTES, WORD; "" for a switch. */
const char *mr_help_placeholder(const struct mr_option *o);
/* Paragraphs at 80 columns with an indent; lines that start with a blank stay as they are. */
void mr_help_wrap(FILE *out, const char *text, unsigned indent);

/* Roff for man(1): one command, or the program itself for NULL. */
void mr_man_page(FILE *out, const struct mr_command *cmd);

enum mr_shell { MR_SHELL_NONE, MR_SHELL_BASH, MR_SHELL_ZSH, MR_SHELL_FISH };
void mr_completion(FILE *out, enum mr_shell shell);

#endif
