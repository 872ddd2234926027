/* Man pages in roff from the option tables: millrace(1) and one millrace-CMD(1) per command. */
#include "cli/help.h"

#include "cli/commands.h"
#include "cli/globals.h"

#include <ctype.h>
#include <millrace/version.h>
#include <string.h>

/* Roff takes '\' as escape, a '.' or ''' at the start of a line as a request, and '-' as a hyphen. */
static void put_text(FILE *out, const char *text)
{
    bool line_start = true;
    for (; *text; text++) {
        if (line_start && (*text == '.' || *text == '\''))
            fputs("\\&", out);
        line_start = *text == '\n';
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
    }
}

/* Paragraphs; lines that start with a blank are shown as they are. */
static void put_paragraphs(FILE *out, const char *text)
{
    bool literal = false;
    char line[1024];
    while (*text) {
        size_t n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        bool want_literal = line[0] == ' ';
        if (want_literal != literal && n)
            fputs(want_literal ? ".PP\n.nf\n" : ".fi\n", out);
        if (n)
            literal = want_literal;
        if (n == 0) {
            fputs(".PP\n", out);
        } else {
            put_text(out, line);
            fputc('\n', out);
        }
        text += n + (text[n] == '\n');
    }
    if (literal)
        fputs(".fi\n", out);
}

static void put_option(FILE *out, const struct mr_option_table *t, const struct mr_option *o)
{
    char name[128];
    snprintf(name, sizeof name, "%s", o->key);
    bool positional = o->flags & MR_OPTF_POSITIONAL;
    for (char *c = name; *c; c++)
        *c = positional ? (char)toupper((unsigned char)*c) : *c == '_' ? '-' : *c;
    fputs(".TP\n", out);
    if (positional) {
        fprintf(out, ".I %s\n", name);
    } else {
        fputs(".B ", out);
        if (o->short_flag)
            fprintf(out, "\\-%c, ", o->short_flag);
        fputs("\\-\\-", out);
        put_text(out, name);
        if (o->type != MR_OPT_BOOL)
            fprintf(out, " \\fI%s\\fP", mr_help_placeholder(o));
        fputc('\n', out);
    }
    put_text(out, o->doc);
    fputc('\n', out);
    if (o->type == MR_OPT_ENUM) {
        fputs("One of:", out);
        for (int i = 0; o->choices[i]; i++) {
            fputs(i ? ", " : " ", out);
            put_text(out, o->choices[i]);
        }
        fputs(".\n", out);
    }
    if (o->type != MR_OPT_ENUM && o->type != MR_OPT_BOOL && (o->min != 0 || o->max != 0)) {
        char min[32], max[32];
        fputs("From ", out);
        put_text(out, mr_option_bound_text(o->min, min, sizeof min));
        fputs(" to ", out);
        put_text(out, mr_option_bound_text(o->max, max, sizeof max));
        fputs(o->type == MR_OPT_DURATION || o->type == MR_OPT_DIST ? " s.\n"
              : o->type == MR_OPT_BYTES                            ? " bytes.\n"
                                                                   : ".\n",
              out);
    }
    if (*o->def && o->type != MR_OPT_BOOL) {
        fputs("Default: ", out);
        put_text(out, o->def);
        fputs(".\n", out);
    }
    if (t->section && *t->section && !positional) {
        char env[160];
        fprintf(out, "Environment: %s.\n", mr_option_env_name(t, o, env, sizeof env));
    }
}

static void put_options(FILE *out, const struct mr_option_table *t)
{
    for (const struct mr_option *o = t->options; o && o->key; o++)
        put_option(out, t, o);
}

static void put_exit_status(FILE *out)
{
    fputs(".SH EXIT STATUS\n0 success; 1 internal error; 2 wrong usage or configuration; 3 a budget or expectation was "
          "not met; 4 a bad input file; 5 an I/O error; 6 an incomplete or untrusted result; 130 interrupted.\n",
          out);
}

static void put_command(FILE *out, const struct mr_command *cmd)
{
    fprintf(out, ".TH MILLRACE\\-%s 1 \"\" \"millrace %s\"\n.SH NAME\nmillrace\\-%s \\- ", cmd->name, MR_VERSION,
            cmd->name);
    put_text(out, cmd->summary);
    fprintf(out, "\n.SH SYNOPSIS\n.B millrace %s\n", cmd->name);
    put_text(out, cmd->synopsis);
    fputs("\n.SH DESCRIPTION\n", out);
    put_paragraphs(out, cmd->details && *cmd->details ? cmd->details : cmd->summary);
    fputs(".SH OPTIONS\n", out);
    put_options(out, &cmd->table);
    put_options(out, &mr_globals_table);
    put_exit_status(out);
    fputs(".SH SEE ALSO\n.BR millrace (1)\n", out);
}

void mr_man_page(FILE *out, const struct mr_command *cmd)
{
    if (cmd) {
        put_command(out, cmd);
        return;
    }
    fprintf(out,
            ".TH MILLRACE 1 \"\" \"millrace %s\"\n.SH NAME\nmillrace \\- measures, explains, predicts and fixes the "
            "I/O of deep\\-learning training\n.SH SYNOPSIS\n.B millrace\n[\\-v|\\-q] COMMAND [options]\n.SH COMMANDS\n",
            MR_VERSION);
    for (int i = 0; mr_commands[i]; i++) {
        fprintf(out, ".TP\n.B %s\n", mr_commands[i]->name);
        put_text(out, mr_commands[i]->summary);
        fputc('\n', out);
    }
    fputs(".SH OPTIONS\n", out);
    put_options(out, &mr_globals_table);
    put_exit_status(out);
}
