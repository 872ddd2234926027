/* The command that repeats a run: see run_command.h. */
#include "conf/run_command.h"
#include "base/common.h"
#include "base/strbuf.h"
#include "conf/job_options.h"
#include "conf/workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define VALUE_MAX 4200 /* as in summary.json */

static void put_word(struct mr_strbuf *s, const char *word)
{
    size_t cap = 2 * strlen(word) + 3;
    char *quoted = malloc(cap);
    if (!quoted)
        s->failed = true;
    else
        mr_strbuf_printf(s, "%s%s", s->len ? " " : "", mr_shell_word(word, quoted, cap));
    free(quoted);
}

static const struct mr_job_option_pair *pair_of_key(const char *key)
{
    for (const struct mr_job_option_pair *p = mr_job_option_pairs; p->option; p++)
        if (!strcmp(p->key, key))
            return p;
    return NULL;
}

/* ---- options ---- */

static bool differs(const struct mr_option *o, const struct mr_job_options *opt, const struct mr_job_options *def)
{
    char a[VALUE_MAX], b[VALUE_MAX];
    mr_option_print(o, opt, a, sizeof a);
    mr_option_print(o, def, b, sizeof b);
    return strcmp(a, b) != 0;
}

/* A bare word, unless it would be taken for an option or an override. */
static void put_positional(struct mr_strbuf *s, const char *key, const char *value)
{
    char word[VALUE_MAX + 80];
    snprintf(word, sizeof word, "%s=%s", key, value);
    put_word(s, strchr(value, '=') || strchr("-+~", *value) ? word : value);
}

static void put_option(struct mr_strbuf *s, const struct mr_option *o, const struct mr_job_options *opt)
{
    char flag[64], value[VALUE_MAX], word[VALUE_MAX + 80];
    mr_option_print(o, opt, value, sizeof value);
    if (o->flags & MR_OPTF_POSITIONAL)
        return put_positional(s, o->key, value);
    bool is_off = o->type == MR_OPT_BOOL && !strcmp(value, "false");
    snprintf(flag, sizeof flag, "--%s%s", is_off ? "no-" : "", o->key);
    for (char *c = flag; *c; c++)
        *c = *c == '_' ? '-' : *c;
    if (o->type == MR_OPT_BOOL)
        return put_word(s, flag);
    if (*value && *value != '-') {
        put_word(s, flag);
        return put_word(s, value);
    }
    snprintf(word, sizeof word, "%s=%s", flag, value);
    put_word(s, word);
}

/* ---- keys of the workload ---- */

/* The key is set by an option, or is the folder of the results. */
static bool is_left_out(const char *key, const struct mr_job_options *opt, const struct mr_job_options *def)
{
    const struct mr_job_option_pair *p = pair_of_key(key);
    const struct mr_option *o = p ? mr_option_find(&mr_job_options_table, p->option) : NULL;
    return o && ((o->flags & MR_OPTF_RESULT) || (p->is_override && differs(o, opt, def)));
}

/* Text that YAML would take for null, a list, a map or a quoted text needs quotes. */
static bool needs_quotes(const char *text)
{
    return !*text || strchr("[{\"'", *text) || !strcmp(text, "~") || !strcasecmp(text, "null") || !strcmp(text, "None");
}

/* False: the value has no text. */
static bool put_value(struct mr_strbuf *s, const char *key, const struct mr_option *o, const void *obj,
                      const json_t *value)
{
    char raw[VALUE_MAX], text[2 * VALUE_MAX + 3], word[2 * VALUE_MAX + 200];
    if (!mr_workload_json_text(o, value, raw, sizeof raw))
        return false;
    if (o->type == MR_OPT_STRING && needs_quotes(raw))
        mr_option_quote(raw, text, sizeof text);
    else if (o->type == MR_OPT_STRING || o->type == MR_OPT_ENUM) /* the word of a plug-in may be unknown here */
        snprintf(text, sizeof text, "%s", raw);
    else if (mr_option_print(o, obj, text, sizeof text) >= (int)sizeof text)
        return false;
    snprintf(word, sizeof word, "%s=%s", key, text);
    put_word(s, word);
    return true;
}

static bool put_key(struct mr_strbuf *s, const char *key, const struct mr_option *o, const void *obj,
                    const json_t *entry)
{
    const char *origin = json_string_value(json_object_get(entry, "origin"));
    const char *where = json_string_value(json_object_get(entry, "where"));
    if (!origin || (o->flags & MR_OPTF_SECRET))
        return true;
    if (!strcmp(origin, mr_origin_name(MR_ORIGIN_OVERRIDE)) || !strcmp(origin, mr_origin_name(MR_ORIGIN_ENV)))
        return put_value(s, key, o, obj, json_object_get(entry, "value"));
    if (!strcmp(origin, mr_origin_name(MR_ORIGIN_DEFAULT)) && where && *where == '~')
        put_word(s, where);
    return true;
}

static bool put_keys(struct mr_strbuf *s, const json_t *config, const struct mr_workload *w,
                     const struct mr_job_options *opt, const struct mr_job_options *def)
{
    bool ok = true;
    for (int i = 0; mr_workload_sections[i].table; i++) {
        const struct mr_option_table *t = mr_workload_sections[i].table;
        const void *obj = (const char *)w + mr_workload_sections[i].offset;
        for (const struct mr_option *o = t->options; o->key; o++) {
            char key[128];
            snprintf(key, sizeof key, "%s%s%s", t->section, *t->section ? "." : "", o->key);
            if (!is_left_out(key, opt, def))
                ok &= put_key(s, key, o, obj, json_object_get(config, key));
        }
    }
    return ok;
}

const char *mr_run_command(const json_t *options, const json_t *config, struct mr_arena *a)
{
    struct mr_job_options opt, def;
    struct mr_workload *w;
    struct mr_error err;
    struct mr_strbuf s = {0};
    if (!json_is_object(options) || mr_options_defaults(&mr_job_options_table, a, &def, &err) ||
        mr_job_options_from_json(options, a, &opt, &err) || mr_workload_from_json(config, a, &w, &err))
        return NULL;
    for (const struct mr_option *o = mr_job_options_table.options; o->key; o++)
        if (!(o->flags & MR_OPTF_RESULT) && differs(o, &opt, &def))
            put_option(&s, o, &opt);
    bool ok = put_keys(&s, config, w, &opt, &def) && !s.failed && s.len;
    const char *out = ok ? mr_arena_strdup(a, s.text) : NULL;
    mr_strbuf_done(&s);
    return out;
}

/* ---- with a change ---- */

/* The end of a word that mr_shell_word made. */
static const char *word_end(const char *p)
{
    for (bool quoted = false; *p && (quoted || *p != ' '); p++) {
        if (*p == '"')
            quoted = !quoted;
        else if (*p == '\\' && p[1])
            p++;
    }
    return p;
}

/* What a word sets: an option, or else a key of the workload. */
struct setting {
    const struct mr_option *option;
    bool takes_next; /* its value is the next word */
    char key[128];
};

static void read_option(const char *name, size_t len, struct setting *out)
{
    size_t n = strcspn(name, "=\" ");
    n = MR_MIN(n, len);
    snprintf(out->key, sizeof out->key, "%.*s", (int)n, name);
    for (char *c = out->key; *c; c++)
        *c = *c == '-' ? '_' : *c;
    out->option = mr_option_find(&mr_job_options_table, out->key);
    out->takes_next = out->option && out->option->type != MR_OPT_BOOL && name[n] != '=';
    if (!out->option && !strncmp(out->key, "no_", 3))
        out->option = mr_option_find(&mr_job_options_table, out->key + 3);
}

static bool read_setting(const char *word, const char *end, struct setting *out)
{
    *out = (struct setting){0};
    word += *word == '"';
    if (end - word > 2 && !strncmp(word, "--", 2)) {
        read_option(word + 2, (size_t)(end - word - 2), out);
        return out->option;
    }
    bool removes = *word == '~';
    word += strspn(word, "~+");
    size_t n = strcspn(word, "=\" ");
    if (!removes && word[n] != '=')
        return false;
    snprintf(out->key, sizeof out->key, "%.*s", (int)n, word);
    return true;
}

static bool are_paired(const struct setting *option, const struct setting *key)
{
    const struct mr_job_option_pair *p = pair_of_key(key->key);
    return p && !strcmp(p->option, option->option->key);
}

static bool sets_same(const struct setting *a, const struct setting *b)
{
    if (a->option && b->option)
        return a->option == b->option;
    if (!a->option && !b->option)
        return !strcmp(a->key, b->key);
    return a->option ? are_paired(a, b) : are_paired(b, a);
}

static bool is_changed(const struct setting *s, const char *settings)
{
    struct setting by;
    for (const char *word = settings, *end; *word; word = end + (*end == ' ')) {
        end = word_end(word);
        if (read_setting(word, end, &by) && sets_same(s, &by))
            return true;
    }
    return false;
}

const char *mr_run_command_with(const char *command, const char *settings, struct mr_arena *a)
{
    struct mr_strbuf s = {0};
    for (const char *word = command, *end; *word; word = end + (*end == ' ')) {
        struct setting set;
        end = word_end(word);
        bool is_set = read_setting(word, end, &set);
        if (is_set && set.takes_next && *end)
            end = word_end(end + 1);
        if (!is_set || !is_changed(&set, settings))
            mr_strbuf_printf(&s, "%s%.*s", s.len ? " " : "", (int)(end - word), word);
    }
    if (*settings)
        mr_strbuf_printf(&s, "%s%s", s.len ? " " : "", settings);
    const char *out = s.failed ? NULL : mr_arena_strdup(a, s.text ? s.text : "");
    mr_strbuf_done(&s);
    return out;
}
