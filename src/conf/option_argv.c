/* Command line and environment by option tables. Flags may stand anywhere before "--"; positionals are filled in table
 * order; Hydra words (key=value, +key=value, ++key=value, ~key) go to the caller when it wants them. */
#include "conf/option.h"

#include "base/common.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct argv_state {
    const struct mr_options_target *targets;
    unsigned n_targets;
    int argc;
    char *const *argv;
    int i;
    struct mr_arena *arena;
    struct mr_strings *overrides;
    const struct mr_option *next_positional;
    bool flags_over;
    uint64_t given; /* rows of the first table seen, by index (tables are far smaller than 64 rows) */
};

static int append_string(struct mr_arena *a, struct mr_strings *list, const char *text)
{
    const char **item = mr_arena_alloc(a, (list->n + 1) * sizeof(*item));
    char *copy = mr_arena_strdup(a, text);
    if (!item || !copy)
        return -ENOMEM;
    if (list->n)
        memcpy(item, list->item, list->n * sizeof(*item));
    item[list->n++] = copy;
    list->item = item;
    return 0;
}

static void mark_given(struct argv_state *s, const struct mr_options_target *g, const struct mr_option *o, bool *first)
{
    uint64_t bit = 0;
    if (g == &s->targets[0])
        bit = 1ull << ((o - g->table->options) & 63);
    *first = !(s->given & bit);
    s->given |= bit;
}

/* One value for one row. The shell has split words already, so a repeatable list takes the word as it is. */
static int assign(struct argv_state *s, const struct mr_options_target *g, const struct mr_option *o, const char *shown,
                  const char *text, struct mr_error *err)
{
    bool first;
    mark_given(s, g, o, &first);
    if (o->type == MR_OPT_STRINGS && (o->flags & MR_OPTF_REPEAT)) {
        struct mr_strings *list = (struct mr_strings *)(void *)((char *)g->obj + o->offset);
        if (first)
            *list = (struct mr_strings){0};
        int rc = append_string(s->arena, list, text);
        return rc ? mr_error_set(err, rc, "cannot keep the value of '%s'", shown) : 0;
    }
    if (!first && !(o->flags & MR_OPTF_REPEAT))
        return mr_error_plain(err, MR_E_USAGE, "'%s' is given twice", shown);
    struct mr_option named = *o;
    named.key = shown;
    struct mr_option_table bare = {.section = "", .options = g->table->options, .struct_bytes = g->table->struct_bytes};
    int rc = mr_option_parse(&bare, &named, text, s->arena, g->obj, err);
    if (rc == MR_E_CONFIG && err)
        err->code = MR_E_USAGE;
    return rc == MR_E_CONFIG ? MR_E_USAGE : rc;
}

static const struct mr_option *find_flag(struct argv_state *s, const char *key, size_t n,
                                         const struct mr_options_target **g)
{
    char name[128];
    if (n >= sizeof name)
        return NULL;
    memcpy(name, key, n);
    name[n] = '\0';
    for (unsigned t = 0; t < s->n_targets; t++) {
        const struct mr_option *o = mr_option_find(s->targets[t].table, name);
        if (o) {
            *g = &s->targets[t];
            return o;
        }
    }
    return NULL;
}

static int unknown_flag(struct argv_state *s, const char *word, struct mr_error *err)
{
    const char *key = word + strspn(word, "-");
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(key, "="), key);
    mr_error_plain(err, MR_E_USAGE, "unknown option '%.200s'", word);
    for (unsigned t = 0; t < s->n_targets; t++) {
        const char *near = mr_option_nearest(s->targets[t].table, name);
        char flag[128];
        if (!near)
            continue;
        snprintf(flag, sizeof flag, "%s", near);
        for (char *c = flag; *c; c++)
            *c = *c == '_' ? '-' : *c;
        mr_error_hint(err, "did you mean '--%s'?", flag);
    }
    const char *cmd = s->targets[0].table->section;
    mr_error_hint(err, "list the options with 'millrace %s%s--help'", cmd, *cmd ? " " : "");
    return MR_E_USAGE;
}

static int take_value(struct argv_state *s, const char *shown, const char **out, struct mr_error *err)
{
    if (s->i + 1 >= s->argc)
        return mr_error_plain(err, MR_E_USAGE, "'%s' needs a value", shown);
    *out = s->argv[++s->i];
    return 0;
}

static int parse_long(struct argv_state *s, const char *word, struct mr_error *err)
{
    const char *key = word + 2, *eq = strchr(key, '=');
    size_t n = eq ? (size_t)(eq - key) : strlen(key);
    const struct mr_options_target *g = NULL;
    const struct mr_option *o = find_flag(s, key, n, &g);
    bool negated = false;
    if (!o && !strncmp(key, "no-", 3) && (o = find_flag(s, key + 3, n - 3, &g))) {
        negated = true;
        if (o->type != MR_OPT_BOOL || eq)
            return mr_error_plain(err, MR_E_USAGE, "'%.200s' is not possible: '--%.200s' is no switch", word, key + 3);
    }
    if (!o || (o->flags & MR_OPTF_POSITIONAL))
        return unknown_flag(s, word, err);
    char shown[128];
    snprintf(shown, sizeof shown, "--%.*s", (int)n, key);
    if (negated)
        return assign(s, g, o, shown, "false", err);
    if (o->type == MR_OPT_BOOL && !eq)
        return assign(s, g, o, shown, "true", err);
    const char *value = eq ? eq + 1 : NULL;
    int rc = value ? 0 : take_value(s, shown, &value, err);
    return rc ? rc : assign(s, g, o, shown, value, err);
}

static const struct mr_option *find_short(struct argv_state *s, char c, const struct mr_options_target **g)
{
    for (unsigned t = 0; t < s->n_targets; t++)
        for (const struct mr_option *o = s->targets[t].table->options; o->key; o++)
            if (o->short_flag == c) {
                *g = &s->targets[t];
                return o;
            }
    return NULL;
}

/* -x, -xyz for switches, -j4 and -j 4 for values. */
static int parse_short(struct argv_state *s, const char *word, struct mr_error *err)
{
    for (const char *c = word + 1; *c; c++) {
        const struct mr_options_target *g = NULL;
        const struct mr_option *o = find_short(s, *c, &g);
        if (!o)
            return unknown_flag(s, word, err);
        const char shown[] = {'-', *c, '\0'};
        int rc;
        if (o->type == MR_OPT_BOOL) {
            rc = assign(s, g, o, shown, "true", err);
            if (rc)
                return rc;
            continue;
        }
        const char *value = c[1] ? c + 1 : NULL;
        rc = value ? 0 : take_value(s, shown, &value, err);
        return rc ? rc : assign(s, g, o, shown, value, err);
    }
    return 0;
}

/* key=value, +key=value, ++key=value, ~key; the key has letters, digits, '_', '-', '.' and '/'. */
static bool is_override(const char *word)
{
    const char *key = word;
    if (*key == '~')
        return key[1] != '\0' && key[1] != '/';
    while (*key == '+' && key - word < 2)
        key++;
    size_t n = 0;
    while (isalnum((unsigned char)key[n]) || key[n] == '_' || key[n] == '.' || key[n] == '-')
        n++;
    return n && key[n] == '=';
}

static int parse_word(struct argv_state *s, const char *word, bool may_override, struct mr_error *err)
{
    if (may_override && s->overrides && is_override(word)) {
        int rc = append_string(s->arena, s->overrides, word);
        return rc ? mr_error_set(err, rc, "cannot keep '%s'", word) : 0;
    }
    const struct mr_option *o = s->next_positional;
    while (o->key && !(o->flags & MR_OPTF_POSITIONAL))
        o++;
    if (!o->key)
        return mr_error_plain(err, MR_E_USAGE, "unexpected argument '%.200s'", word);
    s->next_positional = o->flags & MR_OPTF_REPEAT ? o : o + 1;
    s->flags_over |= (o->flags & MR_OPTF_REST) != 0;
    return assign(s, &s->targets[0], o, o->key, word, err);
}

/* A required row counts as given when the environment has changed it, too. */
static int check_required(struct argv_state *s, struct mr_error *err)
{
    const struct mr_options_target *g = &s->targets[0];
    for (const struct mr_option *o = g->table->options; o->key; o++) {
        if (!(o->flags & MR_OPTF_REQUIRED) || (s->given >> ((o - g->table->options) & 63) & 1))
            continue;
        char now[256];
        mr_option_print(o, g->obj, now, sizeof now);
        if (strcmp(now, o->def) != 0 && !(o->type == MR_OPT_STRINGS && !strcmp(now, "[]")))
            continue;
        bool positional = o->flags & MR_OPTF_POSITIONAL;
        char flag[128];
        snprintf(flag, sizeof flag, "%s%s", positional ? "" : "--", o->key);
        for (char *c = flag; *c; c++)
            *c = positional ? (char)toupper((unsigned char)*c) : *c == '_' ? '-' : *c;
        mr_error_plain(err, MR_E_USAGE, "%s '%s' is missing", positional ? "argument" : "option", flag);
        mr_error_hint(err, "see 'millrace %s --help'", g->table->section);
        return MR_E_USAGE;
    }
    return 0;
}

int mr_options_parse_targets(const struct mr_options_target *targets, unsigned n_targets, int argc, char *const *argv,
                             struct mr_arena *a, struct mr_strings *overrides, struct mr_error *err)
{
    struct argv_state s = {.targets = targets,
                           .n_targets = n_targets,
                           .argc = argc,
                           .argv = argv,
                           .arena = a,
                           .overrides = overrides,
                           .next_positional = targets[0].table->options};
    for (; s.i < argc; s.i++) {
        const char *word = argv[s.i];
        int rc;
        if (!s.flags_over && !strcmp(word, "--")) {
            s.flags_over = true;
            continue;
        }
        if (!s.flags_over && word[0] == '-' && word[1] == '-')
            rc = parse_long(&s, word, err);
        else if (!s.flags_over && word[0] == '-' && word[1])
            rc = parse_short(&s, word, err);
        else
            rc = parse_word(&s, word, !s.flags_over, err);
        if (rc)
            return rc;
    }
    return check_required(&s, err);
}

/* True if the option's value is the next word: --out FILE, -o FILE, -vo FILE, but not --out=FILE, -oFILE or a switch.
 */
static bool wants_next_word(struct argv_state *s, const char *word)
{
    const struct mr_options_target *g;
    const struct mr_option *o = NULL;
    if (word[1] == '-') {
        o = strchr(word, '=') ? NULL : find_flag(s, word + 2, strlen(word + 2), &g);
        return o && o->type != MR_OPT_BOOL;
    }
    for (const char *c = word + 1; *c; c++) {
        o = find_short(s, *c, &g);
        if (!o || o->type != MR_OPT_BOOL)
            return o && !c[1];
    }
    return false;
}

int mr_options_own_words(const struct mr_options_target *targets, unsigned n_targets, int argc, char *const *argv)
{
    struct argv_state s = {.targets = targets, .n_targets = n_targets};
    bool rest = false;
    for (const struct mr_option *o = targets[0].table->options; o->key; o++)
        rest |= (o->flags & MR_OPTF_REST) != 0;
    int i = 0;
    for (; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (argv[i][0] == '-' && argv[i][1])
            i += rest && wants_next_word(&s, argv[i]);
        else if (rest)
            return i;
    return MR_MIN(i, argc);
}

int mr_options_parse_argv(const struct mr_option_table *t, int argc, char *const *argv, struct mr_arena *a, void *obj,
                          struct mr_strings *overrides, struct mr_error *err)
{
    struct mr_options_target target = {.table = t, .obj = obj};
    return mr_options_parse_targets(&target, 1, argc, argv, a, overrides, err);
}

const char *mr_option_env_name(const struct mr_option_table *t, const struct mr_option *o, char *out, size_t cap)
{
    snprintf(out, cap, "MILLRACE_%s%s%s", t->section, *t->section ? "_" : "", o->key);
    for (char *c = out; *c; c++)
        *c = *c == '.' || *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    return out;
}

int mr_options_parse_env(const struct mr_option_table *t, char *const *envp, struct mr_arena *a, void *obj,
                         struct mr_error *err)
{
    for (const struct mr_option *o = t->options; o->key && envp; o++) {
        char name[160];
        size_t n = strlen(mr_option_env_name(t, o, name, sizeof name));
        for (char *const *e = envp; *e; e++) {
            if (strncmp(*e, name, n) != 0 || (*e)[n] != '=')
                continue;
            int rc = mr_option_parse(t, o, *e + n + 1, a, obj, err);
            if (rc) {
                mr_error_context(err, "in environment variable '%s'", name);
                return rc;
            }
        }
    }
    return 0;
}
