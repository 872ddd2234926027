/* Help texts from the option tables. */
#include "cli/help.h"

#include "cli/commands.h"
#include "cli/globals.h"
#include "base/common.h"
#include "base/strbuf.h"

#include <ctype.h>
#include <string.h>

#define HELP_COLUMNS 80u

/* One paragraph line, broken at blanks. */
static void wrap_line(FILE *out, const char *line, size_t n, unsigned indent)
{
    while (n && line[n - 1] == ' ')
        n--;
    while (n) {
        size_t room = HELP_COLUMNS - indent, cut = n;
        if (n > room) {
            for (cut = room; cut > 0 && line[cut] != ' '; cut--)
                ;
            if (cut == 0)
                for (cut = room; cut < n && line[cut] != ' '; cut++)
                    ;
        }
        fprintf(out, "%*s%.*s\n", (int)indent, "", (int)cut, line);
        while (cut < n && line[cut] == ' ')
            cut++;
        line += cut;
        n -= cut;
    }
}

void mr_help_wrap(FILE *out, const char *text, unsigned indent)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (n == 0)
            fputc('\n', out);
        else if (*text == ' ')
            fprintf(out, "%*s%.*s\n", (int)indent, "", (int)n, text);
        else
            wrap_line(out, text, n, indent);
        text += n + (text[n] == '\n');
    }
}

const char *mr_help_placeholder(const struct mr_option *o)
{
    switch (o->type) {
    case MR_OPT_BOOL: return "";
    case MR_OPT_INT:
    case MR_OPT_DOUBLE: return "N";
    case MR_OPT_BYTES: return "BYTES";
    case MR_OPT_DURATION: return "TIME";
    case MR_OPT_ENUM: return "WORD";
    case MR_OPT_DIMS: return "DIMS";
    case MR_OPT_DIST: return "SECONDS|DIST";
    case MR_OPT_STRINGS:
    case MR_OPT_UINTS: return "LIST";
    case MR_OPT_STRING: break;
    }
    return "TEXT";
}

static void print_heading(FILE *out, const struct mr_option *o, bool flags)
{
    char name[128];
    snprintf(name, sizeof name, "%s", o->key);
    if (!flags) {
        fprintf(out, "  %s: %s\n", name, o->type == MR_OPT_BOOL ? "BOOL" : mr_help_placeholder(o));
        return;
    }
    if (o->flags & MR_OPTF_POSITIONAL) {
        for (char *c = name; *c; c++)
            *c = (char)toupper((unsigned char)*c);
        fprintf(out, "  %s%s\n", name, o->flags & MR_OPTF_REPEAT ? "..." : "");
        return;
    }
    for (char *c = name; *c; c++)
        *c = *c == '_' ? '-' : *c;
    fputs("  ", out);
    if (o->short_flag)
        fprintf(out, "-%c, ", o->short_flag);
    bool on_by_default = o->type == MR_OPT_BOOL && !strcmp(o->def, "true");
    fprintf(out, "--%s%s%s%s\n", on_by_default ? "[no-]" : "", name, o->type == MR_OPT_BOOL ? "" : " ",
            mr_help_placeholder(o));
}

/* Choices, bounds, default, variable, other names, example: whatever the row has. */
static void print_facts(FILE *out, const struct mr_option_table *t, const struct mr_option *o, bool flags)
{
    struct mr_strbuf s = {0};
    if (o->type == MR_OPT_ENUM) {
        mr_strbuf_puts(&s, "One of:");
        for (int i = 0; o->choices[i]; i++)
            mr_strbuf_printf(&s, "%s %s", i ? "," : "", o->choices[i]);
        mr_strbuf_puts(&s, ". ");
    } else if (o->type != MR_OPT_BOOL && o->type != MR_OPT_STRING && o->type != MR_OPT_STRINGS) {
        mr_strbuf_printf(&s, "Value: %s", mr_option_type_name(o));
        char min[32], max[32];
        if (o->min != 0 || o->max != 0)
            mr_strbuf_printf(&s, ", %s to %s%s", mr_option_bound_text(o->min, min, sizeof min),
                             mr_option_bound_text(o->max, max, sizeof max),
                             o->type == MR_OPT_DURATION || o->type == MR_OPT_DIST ? " s"
                             : o->type == MR_OPT_BYTES                            ? " bytes"
                                                                                  : "");
        mr_strbuf_puts(&s, ". ");
    }
    if (o->flags & MR_OPTF_REQUIRED)
        mr_strbuf_puts(&s, "Required. ");
    else if (*o->def && strcmp(o->def, "[]") != 0 && !(flags && o->type == MR_OPT_BOOL && !strcmp(o->def, "false")))
        mr_strbuf_printf(&s, strcmp(o->def, ".") ? "Default: %s. " : "Default: '%s'. ", o->def);
    if (flags && (o->flags & MR_OPTF_REPEAT) && !(o->flags & MR_OPTF_POSITIONAL))
        mr_strbuf_puts(&s, "May be repeated. ");
    if (o->alias)
        mr_strbuf_printf(&s, "Also written: %s. ", o->alias);
    if (t->section && *t->section && !(o->flags & MR_OPTF_POSITIONAL)) {
        char env[160];
        mr_strbuf_printf(&s, "Environment: %s. ", mr_option_env_name(t, o, env, sizeof env));
    }
    if (o->example)
        mr_strbuf_printf(&s, "Example: %s", o->example);
    if (s.text && !s.failed)
        mr_help_wrap(out, s.text, 8);
    mr_strbuf_done(&s);
}

void mr_help_options(FILE *out, const struct mr_option_table *t, bool flags)
{
    for (const struct mr_option *o = t->options; o->key; o++) {
        if (o->flags & MR_OPTF_HIDDEN)
            continue;
        print_heading(out, o, flags);
        mr_help_wrap(out, o->doc, 8);
        print_facts(out, t, o, flags);
    }
}

void mr_help_command(FILE *out, const struct mr_command *cmd)
{
    fprintf(out, "usage: millrace %s%s%s\n\n", cmd->name, *cmd->synopsis ? " " : "", cmd->synopsis);
    mr_help_wrap(out, cmd->summary, 0);
    if (cmd->details && *cmd->details) {
        fputc('\n', out);
        mr_help_wrap(out, cmd->details, 0);
    }
    if (cmd->table.options && cmd->table.options[0].key) {
        fputs("\noptions:\n", out);
        mr_help_options(out, &cmd->table, true);
    }
    fputs("\noptions of every command:\n", out);
    mr_help_options(out, &mr_globals_table, true);
}

/* What a newcomer looks for, in that order. A command that no group names is listed under "Other". */
static const struct {
    const char *title, *names; /* each name between blanks */
} groups[] = {
    {"Try", " demo doctor help "},
    {"Benchmark", " run workloads "},
    {"Trace and explain", " trace watch report ls try tune compare check export recover mcp "},
    {"Simulate", " sim calibrate "},
    {"Data", " gen verify scan pack show cat order ckpt cache "},
};

static bool is_named(const char *names, const char *name)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", name);
    return strstr(names, word) != NULL;
}

static void print_group(FILE *out, const char *names)
{
    for (const char *at = names + 1; *at; at += strcspn(at, " ") + 1)
        for (int i = 0; mr_commands[i]; i++)
            if (strlen(mr_commands[i]->name) == strcspn(at, " ") &&
                !strncmp(at, mr_commands[i]->name, strcspn(at, " ")))
                fprintf(out, "  %-14s %s\n", mr_commands[i]->name, mr_commands[i]->summary);
}

static void print_ungrouped(FILE *out)
{
    bool first = true;
    for (int i = 0; mr_commands[i]; i++) {
        bool grouped = false;
        for (size_t g = 0; g < MR_ARRAY_LEN(groups); g++)
            grouped |= is_named(groups[g].names, mr_commands[i]->name);
        if (grouped)
            continue;
        fprintf(out, "%s  %-14s %s\n", first ? "\nOther\n" : "", mr_commands[i]->name, mr_commands[i]->summary);
        first = false;
    }
}

void mr_help_overview(FILE *out)
{
    fputs("usage: millrace [-v|-q] COMMAND [options]\n"
          "       millrace --version [--json]\n\n"
          "Measures, explains and predicts the I/O of deep-learning training.\n"
          "New here? millrace demo\n",
          out);
    for (size_t g = 0; g < MR_ARRAY_LEN(groups); g++) {
        fprintf(out, "\n%s\n", groups[g].title);
        print_group(out, groups[g].names);
    }
    print_ungrouped(out);
    fputs("\n'millrace COMMAND --help' explains a command, 'millrace help topics' lists other topics.\n", out);
}
