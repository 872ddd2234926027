/* What a finding changes, as data, and everything that is made from it: lines of a workload file, of PyTorch and of
 * tf.data, commands of the shell, and the command that tries it.
 *
 *     rule ──mr_change_*──> struct mr_change[] ──mr_changes_finish──> snippet[framework], command
 *
 * C1 What is shown and what is tried are the same change: no rule writes a snippet or a setting of a command itself.
 * C2 The settings of one framework stand together, in the order in which the rule named them. */
#include "advise/advise_internal.h"
#include "base/common.h"
#include "base/strbuf.h"
#include "conf/job_options.h"

#include <stdlib.h>
#include <string.h>

#define CHANGES_MOST 16 /* of a finding */

/* ---- making them ---- */

static struct mr_change *add(struct mr_advice *a, struct mr_draft *d, struct mr_change c)
{
    struct mr_finding *f = &d->f;
    if (!f->change)
        f->change = mr_arena_alloc(&a->x->arena, CHANGES_MOST * sizeof(*f->change));
    if (!f->change || f->changes == CHANGES_MOST) {
        a->failed |= !f->change;
        return NULL;
    }
    f->change[f->changes] = c;
    return &f->change[f->changes++];
}

/* Options that 'run' does not take together: a key, and words of a command line that it refuses beside it. */
static const struct {
    const char *key, *beside[3];
} refused[] = {
    {"reader.read_type", {"tiers", "policy", "file_access"}},
    {"reader.tiers", {"read_type=memory", "file_access=collective", "file_access=mpio"}},
    {"reader.peers", {"read_type=memory", "file_access=collective", "file_access=mpio"}},
    {"reader.file_access", {"tiers", "policy", "read_type=memory"}},
};

static bool is_refused(const struct mr_advice *a, const char *key)
{
    const char *command = a->f->workload ? a->f->workload : "";
    for (unsigned i = 0; i < MR_ARRAY_LEN(refused); i++)
        for (unsigned k = 0; k < MR_ARRAY_LEN(refused[i].beside) && !strcmp(refused[i].key, key); k++)
            if (strstr(command, refused[i].beside[k]))
                return true;
    return !strcmp(key, "reader.read_type") && mr_known(a->f->from[0]); /* tiers of the workload file */
}

struct mr_change *mr_change_option(struct mr_advice *a, struct mr_draft *d, const char *key, const char *from,
                                   const char *to)
{
    if (a->own && is_refused(a, key))
        return NULL;
    return add(a, d,
               (struct mr_change){.kind = MR_CHANGE_OPTION,
                                  .framework = MR_IDIOM_MILLRACE,
                                  .target = "workload",
                                  .key = key,
                                  .from = from,
                                  .to = to});
}

static bool is_tensorflow(const char *target)
{
    return !strncmp(target, "tf.", 3);
}

struct mr_change *mr_change_argument(struct mr_advice *a, struct mr_draft *d, const char *target, const char *key,
                                     const char *from, const char *to)
{
    return add(a, d,
               (struct mr_change){.kind = MR_CHANGE_INJECTION,
                                  .framework = is_tensorflow(target) ? MR_IDIOM_TENSORFLOW : MR_IDIOM_PYTORCH,
                                  .target = target,
                                  .key = key,
                                  .from = from,
                                  .to = to});
}

void mr_change_code(struct mr_advice *a, struct mr_draft *d, enum mr_idiom framework, const char *text)
{
    if (text)
        add(a, d,
            (struct mr_change){
                .kind = MR_CHANGE_CODE, .framework = (uint8_t)framework, .target = MR_TARGET_PROGRAM, .to = text});
}

void mr_change_storage(struct mr_advice *a, struct mr_draft *d, const char *target, const char *text)
{
    add(a, d, (struct mr_change){.kind = MR_CHANGE_STORAGE, .framework = MR_IDIOM_ANY, .target = target, .to = text});
}

void mr_change_note(struct mr_change *c, const char *note)
{
    if (c)
        c->note = note;
}

void mr_change_drop(struct mr_draft *d, enum mr_idiom framework)
{
    size_t n = 0;
    for (size_t i = 0; i < d->f.changes; i++)
        if (d->f.change[i].framework != framework)
            d->f.change[n++] = d->f.change[i];
    d->f.changes = n;
}

const char *mr_say_number(struct mr_advice *a, double x)
{
    return mr_known(x) ? mr_say(a, "%.0f", x) : NULL;
}

/* ---- as text ---- */

static bool is_number(const char *text)
{
    char *end;
    (void)strtod(text, &end);
    return *text && !*end;
}

/* A word that YAML takes as it is. */
static bool is_plain(const char *text)
{
    return *text && !strpbrk(text, ":#{}[],&*!|>'\"%@`\n");
}

static void end_line(struct mr_strbuf *s, const struct mr_change *c)
{
    if (c->note)
        mr_strbuf_printf(s, "    # %s", c->note);
}

/* Sections that this key has in common with the one before are not repeated. */
static void put_yaml(struct mr_strbuf *s, const struct mr_change *c, const char *before)
{
    const char *key = c->key;
    unsigned depth = 0;
    bool same = before != NULL;
    for (const char *dot; (dot = strchr(key, '.')); key = dot + 1, depth++) {
        size_t n = (size_t)(dot - key) + 1;
        same = same && !strncmp(key, before + (key - c->key), n);
        if (!same)
            mr_strbuf_printf(s, "%s%*s%.*s:", s->len ? "\n" : "", (int)(2 * depth), "", (int)(n - 1), key);
    }
    const char *quote = is_plain(c->to) || is_number(c->to) ? "" : "'";
    mr_strbuf_printf(s, "%s%*s%s: %s%s%s", s->len ? "\n" : "", (int)(2 * depth), "", key, quote, c->to, quote);
    end_line(s, c);
}

/* As Python writes it; what is neither a number nor a name of tf.data is a text. */
static void put_value(struct mr_strbuf *s, const char *text)
{
    if (!strcmp(text, "true") || !strcmp(text, "false"))
        mr_strbuf_puts(s, *text == 't' ? "True" : "False");
    else if (!strcmp(text, "AUTOTUNE"))
        mr_strbuf_puts(s, "tf.data.AUTOTUNE");
    else
        mr_strbuf_printf(s, is_number(text) ? "%s" : "'%s'", text);
}

/* A call with new arguments. `first`: what stands before them. */
static void put_call(struct mr_strbuf *s, const struct mr_change *c, bool opens, bool closes)
{
    const char *target = !strcmp(c->target, MR_TARGET_LOADER) ? "DataLoader" : c->target;
    const char *first = is_tensorflow(target) ? "files" : "...";
    if (!strcmp(target, MR_TARGET_EVALUATION)) {
        target = "DataLoader";
        first = "validation";
    }
    if (opens)
        mr_strbuf_printf(s, "%s%s(%s", s->len ? "\n" : "", target, first);
    mr_strbuf_printf(s, ", %s=", c->key);
    put_value(s, c->to);
    if (closes)
        mr_strbuf_putc(s, ')');
    if (closes)
        end_line(s, c);
}

/* A data set of tf.data is a chain of calls. */
static void put_chain(struct mr_strbuf *s, const struct mr_change *c, bool opens, bool closes)
{
    if (opens)
        mr_strbuf_printf(s, "%s%s", s->len ? "\n" : "", strcmp(c->target, MR_TARGET_DATASET) ? "validation" : "ds");
    if (!strcmp(c->key, "num_parallel_calls")) {
        mr_strbuf_puts(s, ".map(load, num_parallel_calls=");
        put_value(s, c->to);
    } else {
        mr_strbuf_printf(s, ".%s(", c->key);
        if (strcmp(c->to, "memory") != 0)
            put_value(s, c->to);
    }
    mr_strbuf_putc(s, ')');
    if (closes)
        end_line(s, c);
}

/* What a call is replaced by. */
static void put_saver(struct mr_strbuf *s)
{
    mr_strbuf_printf(s, "%sfrom millrace import checkpoint; saver = checkpoint.Saver(folder); saver.save(step, state)",
                     s->len ? "\n" : "");
}

static bool is_of_call(const struct mr_change *a, const struct mr_change *b)
{
    return a && b && a->kind == b->kind && a->framework == b->framework && !strcmp(a->target, b->target);
}

static void put_change(struct mr_strbuf *s, const struct mr_change *before, const struct mr_change *c,
                       const struct mr_change *after)
{
    bool opens = !is_of_call(before, c), closes = !is_of_call(c, after);
    switch (c->kind) {
    case MR_CHANGE_OPTION:
        if (strncmp(c->key, "--", 2) != 0)
            put_yaml(s, c, is_of_call(before, c) ? before->key : NULL);
        break;
    case MR_CHANGE_INJECTION:
        if (!strcmp(c->target, MR_TARGET_SAVE))
            put_saver(s);
        else if (!strcmp(c->key, "loader"))
            mr_strbuf_printf(s, "%sfrom millrace.torch import DataLoader    # the same arguments", s->len ? "\n" : "");
        else if (!strcmp(c->target, MR_TARGET_DATASET) || !strcmp(c->target, MR_TARGET_EVALUATED))
            put_chain(s, c, opens, closes);
        else
            put_call(s, c, opens, closes);
        break;
    default: mr_strbuf_printf(s, "%s%s", s->len ? "\n" : "", c->to); break;
    }
}

static const char *snippet(struct mr_advice *a, const struct mr_finding *f, unsigned framework)
{
    struct mr_strbuf s = {0};
    for (size_t i = 0; i < f->changes; i++)
        if (f->change[i].framework == framework)
            put_change(&s, i ? &f->change[i - 1] : NULL, &f->change[i], i + 1 < f->changes ? &f->change[i + 1] : NULL);
    const char *text = s.len && !s.failed ? mr_arena_strdup(&a->x->arena, s.text) : NULL;
    a->failed |= s.failed || (s.len && !text);
    mr_strbuf_done(&s);
    return text;
}

/* ---- the command ---- */

/* The option that wins over a key of the workload, where there is one: it may be set on the command line already. */
static const char *option_of(const char *key)
{
    for (const struct mr_job_option_pair *p = mr_job_option_pairs; p->option; p++)
        if (p->is_override && !strcmp(p->key, key))
            return p->option;
    return NULL;
}

static const char *settings(struct mr_advice *a, const struct mr_finding *f)
{
    const char *words = "";
    char word[4400];
    for (size_t i = 0; i < f->changes; i++) {
        const struct mr_change *c = &f->change[i];
        const char *option = c->kind == MR_CHANGE_OPTION ? option_of(c->key) : NULL;
        if (c->kind != MR_CHANGE_OPTION)
            continue;
        const char *before = *words ? " " : "", *value = mr_shell_word(c->to, word, sizeof word);
        if (option) {
            char flag[64];
            snprintf(flag, sizeof flag, "%s", option);
            for (char *p = flag; *p; p++)
                *p = *p == '_' ? '-' : *p;
            words = mr_say(a, "%s%s--%s %s", words, before, flag, value);
        } else if (!strncmp(c->key, "--", 2)) {
            words = mr_say(a, "%s%s%s %s", words, before, c->key, value);
        } else {
            words = mr_say(a, "%s%s%s=%s", words, before, c->key, value);
        }
    }
    return words;
}

/* Where the program makes what is changed, and what it gave for it. A library's loader has no line of its own. */
static void place_change(struct mr_advice *a, struct mr_change *c)
{
    bool evaluates = !strcmp(c->target, MR_TARGET_EVALUATION);
    const struct mr_explain_place *p =
        c->kind == MR_CHANGE_INJECTION ? mr_explain_place_of(a->x, evaluates ? MR_TARGET_LOADER : c->target, evaluates)
                                       : NULL;
    if (p && p->file && !p->by) {
        c->file = p->file;
        c->line = p->line;
    }
    if (!p || !c->key || c->from)
        return;
    if (!strcmp(c->key, "prefetch_factor"))
        c->from = mr_say_number(a, p->prefetch_factor);
    else if (!strcmp(c->key, "persistent_workers") && mr_known(p->persistent))
        c->from = p->persistent > 0 ? "true" : "false";
    else if (!strcmp(c->key, "pin_memory") && mr_known(p->pinned))
        c->from = p->pinned > 0 ? "true" : "false";
}

void mr_changes_finish(struct mr_advice *a, struct mr_draft *d)
{
    struct mr_finding *f = &d->f;
    for (size_t i = 0; i < f->changes; i++)
        place_change(a, &f->change[i]);
    for (unsigned i = 0; i < MR_IDIOM_COUNT; i++)
        f->snippet[i] = snippet(a, f, i);
    if (f->command || !f->changes || a->f->counters_only)
        return;
    const char *words = settings(a, f);
    if (!a->own || *words)
        f->command = mr_try_run(a, words);
}
