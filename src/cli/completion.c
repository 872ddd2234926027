/* Shell completion for bash, zsh and fish from the tables of commands and options. The shell
 * asks the program for names of presets when it completes them, because they depend on where it searches. */
#include "cli/help.h"

#include "cli/commands.h"
#include "cli/globals.h"
#include "conf/workload.h"
#include "format/format.h"
#include "policy/policy_list.h"

#include <string.h>

static void put_flag_name(FILE *out, const char *key)
{
    for (; *key; key++)
        fputc(*key == '_' ? '-' : *key, out);
}

/* Text inside single quotes: quotes and brackets that the shell or zsh's _arguments would take are dropped. */
static void put_quoted(FILE *out, const char *text)
{
    for (; *text; text++)
        if (!strchr("'[]:\\`$", *text))
            fputc(*text, out);
}

/* Prints the names of presets, one per line. */
#define LIST_PRESETS "workloads list 2>/dev/null | sed -n '2,$s/ .*//p'"

/* Prints the names of scenarios, one per line. */
#define LIST_SCENARIOS "sim --list 2>/dev/null | sed -n '2,/^systems/s/^  \\([^ ]*\\) .*/\\1/p'"

static bool takes_preset(const struct mr_command *c)
{
    return !strcmp(c->name, "run") || !strcmp(c->name, "workloads");
}

static bool is_format(const struct mr_command *c, const struct mr_option *o)
{
    return !strcmp(o->key, "format") && (!strcmp(c->name, "gen") || !strcmp(c->name, "scan"));
}

static bool is_policy(const struct mr_command *c, const struct mr_option *o)
{
    return !strcmp(o->key, "policy") && !strcmp(c->name, "sim");
}

static void put_policies(FILE *out)
{
    fputs("all", out);
    for (int i = 0; i < mr_policy_count(); i++)
        fprintf(out, " %s", mr_policy_name((enum mr_policy_id)i));
}

/* Keys of a workload as 'section.key=', with spaces between. */
static void put_keys(FILE *out)
{
    for (int s = 0; mr_workload_sections[s].table; s++) {
        const struct mr_option_table *t = mr_workload_sections[s].table;
        for (const struct mr_option *o = t->options; o->key; o++)
            fprintf(out, "%s%s%s= ", t->section, *t->section ? "." : "", o->key);
    }
}

static bool has_words(const struct mr_command *c, const struct mr_option *o)
{
    return o->type == MR_OPT_ENUM || (c && (is_format(c, o) || is_policy(c, o)));
}

/* The words an option takes, with spaces between; false: it takes others. */
static bool put_choices(FILE *out, const struct mr_command *c, const struct mr_option *o, const char *before)
{
    bool formats = c && is_format(c, o);
    if (!has_words(c, o))
        return false;
    fputs(before, out);
    if (c && is_policy(c, o)) {
        put_policies(out);
        return true;
    }
    for (int i = 0; formats && mr_format_registry()[i]; i++)
        fprintf(out, "%s%s", i ? " " : "", mr_format_registry()[i]->name);
    for (int i = 0; !formats && o->choices[i]; i++)
        fprintf(out, "%s%s", i ? " " : "", o->choices[i]);
    return true;
}

static bool is_flag(const struct mr_option *o)
{
    return !(o->flags & (MR_OPTF_POSITIONAL | MR_OPTF_HIDDEN));
}

static void bash_flags(FILE *out, const struct mr_option_table *t)
{
    for (const struct mr_option *o = t->options; o && o->key; o++)
        if (is_flag(o)) {
            fputs(" --", out);
            put_flag_name(out, o->key);
        }
}

static void bash_choices(FILE *out, const struct mr_command *cmd)
{
    for (const struct mr_option *o = cmd->table.options; o && o->key; o++) {
        if (!is_flag(o) || !has_words(cmd, o))
            continue;
        fprintf(out, "    '%s --", cmd->name);
        put_flag_name(out, o->key);
        if (o->short_flag)
            fprintf(out, "'|'%s -%c", cmd->name, o->short_flag);
        put_choices(out, cmd, o, "') words='");
        fputs("' ;;\n", out);
    }
}

/* '=' breaks words in bash: workload=NAME arrives as three. */
static void bash_presets(FILE *out)
{
    fputs("  local list=; case \"$cmd $prev $cur\" in 'sim --policy '*,*|'sim -p '*,*) list=${cur%,*}, cur=${cur##*,} "
          ";; esac\n",
          out);
    fputs("  case \"${COMP_WORDS[*]:0:$((COMP_CWORD+1))}|\" in\n"
          "    *\" --workload $cur|\"|*\" -w $cur|\"|*\"workload = $cur|\"|*'workload =|') cur=${cur#=} "
          "words=$(\"${COMP_WORDS[0]}\" " LIST_PRESETS ") ;;\n"
          "  esac\n"
          "  case \"$cmd $cur\" in *' -'*) ;;\n",
          out);
    for (int i = 0; mr_commands[i]; i++)
        if (takes_preset(mr_commands[i]))
            fprintf(out, "    %s\\ *) [ -n \"$words\" ] || words=$(\"${COMP_WORDS[0]}\" " LIST_PRESETS ") ;;\n",
                    mr_commands[i]->name);
    fputs("    sim\\ *) [ -n \"$words\" ] || words=$(\"${COMP_WORDS[0]}\" " LIST_SCENARIOS ") ;;\n  esac\n"
          "  case \"$cmd $cur $prev\" in *' -'*|*' ='*) ;; *=*) ;;\n"
          "    run\\ *|gen\\ *|sim\\ *) words=\"$words ",
          out);
    put_keys(out);
    fputs("\" ;;\n  esac\n", out);
}

static void bash(FILE *out)
{
    fputs("# bash completion of millrace; load with: source <(millrace help --completion bash)\n"
          "_millrace() {\n"
          "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd=${COMP_WORDS[1]} words=\n"
          "  if [ \"$COMP_CWORD\" = 1 ]; then\n    COMPREPLY=($(compgen -W '",
          out);
    for (int i = 0; mr_commands[i]; i++)
        fprintf(out, "%s ", mr_commands[i]->name);
    fputs("--version' -- \"$cur\"))\n    return\n  fi\n  case \"$cmd $prev\" in\n", out);
    for (int i = 0; mr_commands[i]; i++)
        bash_choices(out, mr_commands[i]);
    fputs("  esac\n", out);
    bash_presets(out);
    fputs("  if [ -z \"$words\" ]; then\n    case \"$cmd\" in\n", out);
    for (int i = 0; mr_commands[i]; i++) {
        fprintf(out, "    %s) words='", mr_commands[i]->name);
        bash_flags(out, &mr_commands[i]->table);
        bash_flags(out, &mr_globals_table);
        fputs("' ;;\n", out);
    }
    fputs("    esac\n    case \"$cur\" in -*) ;; *) words= ;; esac\n  fi\n"
          "  COMPREPLY=($(compgen -P \"$list\" -W \"$words\" -- \"$cur\"))\n"
          "  case \"${COMPREPLY[0]}\" in *=) compopt -o nospace 2>/dev/null ;; esac\n"
          "  [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- \"$cur\"))\n}\n"
          "complete -o filenames -F _millrace millrace\n",
          out);
}

static void zsh_options(FILE *out, const struct mr_command *cmd, const struct mr_option_table *t)
{
    for (const struct mr_option *o = t->options; o && o->key; o++) {
        if (!is_flag(o))
            continue;
        fputs("      '--", out);
        put_flag_name(out, o->key);
        fputs(o->type == MR_OPT_BOOL ? "[" : "=[", out);
        put_quoted(out, o->doc);
        fputc(']', out);
        if (put_choices(out, cmd, o, ":word:(")) {
            fputc(')', out);
        } else if (o->type != MR_OPT_BOOL) {
            fputs(":value:_files", out);
        }
        fputs("' \\\n", out);
    }
}

static const char *zsh_words(const char *name)
{
    return !strcmp(name, "run")         ? "_millrace_run"
           : !strcmp(name, "workloads") ? "_millrace_presets"
           : !strcmp(name, "sim")       ? "_millrace_scenarios"
           : !strcmp(name, "gen")       ? "_millrace_keys"
                                        : "_files";
}

static void zsh(FILE *out)
{
    fputs("#compdef millrace\n# zsh completion of millrace; save as _millrace in a folder of $fpath\n"
          "_millrace_presets() {\n  local -a presets\n  presets=(${(f)\"$(millrace " LIST_PRESETS ")\"})\n"
          "  compadd -a presets\n  _files\n}\n_millrace_scenarios() {\n  local -a scenarios\n"
          "  scenarios=(${(f)\"$(millrace " LIST_SCENARIOS ")\"})\n  compadd -a scenarios\n  _millrace_keys\n}\n"
          "_millrace_keys() {\n  compadd -S '' -- ",
          out);
    put_keys(out);
    fputs("\n  _files\n}\n_millrace_run() {\n  _millrace_presets\n  _millrace_keys\n}\n"
          "_millrace() {\n  local -a commands\n  commands=(\n",
          out);
    for (int i = 0; mr_commands[i]; i++) {
        fprintf(out, "    '%s:", mr_commands[i]->name);
        put_quoted(out, mr_commands[i]->summary);
        fputs("'\n", out);
    }
    fputs(
        "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n  local cmd=$words[2]\n"
        "  shift words; (( CURRENT-- ))\n  case $cmd in\n",
        out);
    for (int i = 0; mr_commands[i]; i++) {
        fprintf(out, "    %s) _arguments \\\n", mr_commands[i]->name);
        zsh_options(out, mr_commands[i], &mr_commands[i]->table);
        zsh_options(out, NULL, &mr_globals_table);
        fprintf(out, "      '*:file:%s' ;;\n", zsh_words(mr_commands[i]->name));
    }
    fputs("  esac\n}\n_millrace \"$@\"\n", out);
}

static void fish_options(FILE *out, const struct mr_command *cmd, const struct mr_option_table *t)
{
    for (const struct mr_option *o = t->options; o && o->key; o++) {
        if (!is_flag(o))
            continue;
        fprintf(out, "complete -c millrace -n '__fish_seen_subcommand_from %s' -l ", cmd->name);
        put_flag_name(out, o->key);
        if (o->short_flag)
            fprintf(out, " -s %c", o->short_flag);
        if (o->type != MR_OPT_BOOL)
            fputs(" -r", out);
        if (put_choices(out, cmd, o, " -a '"))
            fputs("'", out);
        fputs(" -d '", out);
        put_quoted(out, o->doc);
        fputs("'\n", out);
    }
}

static void fish(FILE *out)
{
    fputs("# fish completion of millrace; load with: millrace help --completion fish | source\n", out);
    for (int i = 0; mr_commands[i]; i++) {
        fprintf(out, "complete -c millrace -n __fish_use_subcommand -f -a %s -d '", mr_commands[i]->name);
        put_quoted(out, mr_commands[i]->summary);
        fputs("'\n", out);
        fish_options(out, mr_commands[i], &mr_commands[i]->table);
        fish_options(out, mr_commands[i], &mr_globals_table);
        if (takes_preset(mr_commands[i]))
            fprintf(out,
                    "complete -c millrace -n '__fish_seen_subcommand_from %s' -a \"(millrace " LIST_PRESETS ")\"\n",
                    mr_commands[i]->name);
    }
    fputs("complete -c millrace -n '__fish_seen_subcommand_from sim' -a \"(millrace " LIST_SCENARIOS ")\"\n"
          "complete -c millrace -n '__fish_seen_subcommand_from run gen sim' -a '",
          out);
    put_keys(out);
    fputs("'\n", out);
}

void mr_completion(FILE *out, enum mr_shell shell)
{
    switch (shell) {
    case MR_SHELL_BASH: bash(out); break;
    case MR_SHELL_ZSH: zsh(out); break;
    case MR_SHELL_FISH: fish(out); break;
    case MR_SHELL_NONE: break;
    }
}
