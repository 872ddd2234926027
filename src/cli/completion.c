/* Shell completion for bash, zsh and fish from the tables of commands and options. */
#include "cli/help.h"

#include "cli/commands.h"
#include "cli/globals.h"

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
        if (!is_flag(o) || o->type != MR_OPT_ENUM)
            continue;
        fprintf(out, "    '%s --", cmd->name);
        put_flag_name(out, o->key);
        fputs("') words='", out);
        for (int i = 0; o->choices[i]; i++)
            fprintf(out, "%s%s", i ? " " : "", o->choices[i]);
        fputs("' ;;\n", out);
    }
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
    fputs("  esac\n  if [ -z \"$words\" ]; then\n    case \"$cmd\" in\n", out);
    for (int i = 0; mr_commands[i]; i++) {
        fprintf(out, "    %s) words='", mr_commands[i]->name);
        bash_flags(out, &mr_commands[i]->table);
        bash_flags(out, &mr_globals_table);
        fputs("' ;;\n", out);
    }
    fputs("    esac\n    case \"$cur\" in -*) ;; *) words= ;; esac\n  fi\n"
          "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
          "  [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- \"$cur\"))\n}\n"
          "complete -o filenames -F _millrace millrace\n",
          out);
}

static void zsh_options(FILE *out, const struct mr_option_table *t)
{
    for (const struct mr_option *o = t->options; o && o->key; o++) {
        if (!is_flag(o))
            continue;
        fputs("      '--", out);
        put_flag_name(out, o->key);
        fputs(o->type == MR_OPT_BOOL ? "[" : "=[", out);
        put_quoted(out, o->doc);
        fputc(']', out);
        if (o->type == MR_OPT_ENUM) {
            fputs(":word:(", out);
            for (int i = 0; o->choices[i]; i++)
                fprintf(out, "%s%s", i ? " " : "", o->choices[i]);
            fputc(')', out);
        } else if (o->type != MR_OPT_BOOL) {
            fputs(":value:_files", out);
        }
        fputs("' \\\n", out);
    }
}

static void zsh(FILE *out)
{
    fputs("#compdef millrace\n# zsh completion of millrace; save as _millrace in a folder of $fpath\n_millrace() {\n"
          "  local -a commands\n  commands=(\n",
          out);
    for (int i = 0; mr_commands[i]; i++) {
        fprintf(out, "    '%s:", mr_commands[i]->name);
        put_quoted(out, mr_commands[i]->summary);
        fputs("'\n", out);
    }
    fputs("  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n  local cmd=$words[2]\n"
          "  shift words; (( CURRENT-- ))\n  case $cmd in\n",
          out);
    for (int i = 0; mr_commands[i]; i++) {
        fprintf(out, "    %s) _arguments \\\n", mr_commands[i]->name);
        zsh_options(out, &mr_commands[i]->table);
        zsh_options(out, &mr_globals_table);
        fputs("      '*:file:_files' ;;\n", out);
    }
    fputs("  esac\n}\n_millrace \"$@\"\n", out);
}

static void fish_options(FILE *out, const char *cmd, const struct mr_option_table *t)
{
    for (const struct mr_option *o = t->options; o && o->key; o++) {
        if (!is_flag(o))
            continue;
        fprintf(out, "complete -c millrace -n '__fish_seen_subcommand_from %s' -l ", cmd);
        put_flag_name(out, o->key);
        if (o->short_flag)
            fprintf(out, " -s %c", o->short_flag);
        if (o->type != MR_OPT_BOOL)
            fputs(" -r", out);
        if (o->type == MR_OPT_ENUM) {
            fputs(" -a '", out);
            for (int i = 0; o->choices[i]; i++)
                fprintf(out, "%s%s", i ? " " : "", o->choices[i]);
            fputs("'", out);
        }
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
        fish_options(out, mr_commands[i]->name, &mr_commands[i]->table);
        fish_options(out, mr_commands[i]->name, &mr_globals_table);
    }
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
