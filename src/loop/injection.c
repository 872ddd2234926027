/* Changes as plans: see injection.h. */
#include "loop/injection.h"
#include "base/common.h"
#include "base/regular_file.h"
#include "base/strbuf.h"
#include "conf/run_command.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RUN "millrace run "
#define LOADER "torch.utils.data.DataLoader"
#define SAVE "torch.save"
#define FILES "data files"
#define EVALUATION LOADER " of evaluation"

/* Arguments of a loader that can be changed when it is used. */
static const char *const arguments[] = {"num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "loader"};
/* More that can be set: whose target is not a loader. */
#define DATA_KEY "data"   /* memory, disk */
#define SAVER_KEY "saver" /* ours */

static bool is_torch(const struct mr_explanation *x)
{
    return x->facts.framework && !strcmp(x->facts.framework, "pytorch");
}

static bool can_inject(const struct mr_change *c)
{
    if (c->kind != MR_CHANGE_INJECTION || !c->key || !c->to)
        return false;
    if (!strcmp(c->target, SAVE))
        return !strcmp(c->key, "saver");
    if (strcmp(c->target, LOADER) != 0 && strcmp(c->target, EVALUATION) != 0)
        return false;
    for (unsigned i = 0; i < MR_ARRAY_LEN(arguments); i++)
        if (!strcmp(c->key, arguments[i]))
            return true;
    return false;
}

/* Of a run of our own: other options. Data that would have to be written anew are none. */
static bool is_option(const struct mr_change *c)
{
    return c->kind == MR_CHANGE_OPTION && c->key && c->to;
}

static bool can_run(const struct mr_explanation *x, const struct mr_finding *f)
{
    bool any = false;
    for (size_t i = 0; i < f->changes; i++) {
        any |= is_option(&f->change[i]);
        if (is_option(&f->change[i]) && strstr(f->change[i].to, "NEW_FOLDER"))
            return false;
    }
    return any && x->facts.workload && f->command && !strncmp(f->command, RUN, strlen(RUN));
}

/* Where the finding wants the data: a copy of files, which takes no line of the program. */
static const char *stage_of(const struct mr_explanation *x, const struct mr_finding *f)
{
    bool memory = !strcmp(f->id, "CA2"), disk = !strcmp(f->id, "CA3");
    for (size_t i = 0; i < f->changes; i++)
        if (!strcmp(f->change[i].target, FILES) && f->change[i].key && f->change[i].kind == MR_CHANGE_INJECTION) {
            memory = !strcmp(f->change[i].to, "memory");
            disk = !memory;
        }
    return is_torch(x) && !x->facts.own_run && (memory || disk) ? (memory ? "memory" : "disk") : NULL;
}

/* A burst buffer takes no line of the program either. */
static bool is_tier(const struct mr_explanation *x, const struct mr_finding *f)
{
    return is_torch(x) && !x->facts.own_run && !strcmp(f->id, "CK1");
}

/* Larger reads, of what Python's open() reads in small pieces. */
static bool is_buffer(const struct mr_explanation *x, const struct mr_finding *f)
{
    return is_torch(x) && !x->facts.own_run && !strcmp(f->id, "SZ1");
}

bool mr_injection_possible(const struct mr_explanation *x, const struct mr_finding *f)
{
    if (x->facts.own_run)
        return can_run(x, f);
    bool saves = false, loads = false;
    if (stage_of(x, f) || is_tier(x, f) || is_buffer(x, f))
        return true;
    for (size_t i = 0; i < f->changes && is_torch(x); i++) {
        bool save = !strcmp(f->change[i].target, SAVE);
        saves |= save && can_inject(&f->change[i]);
        loads |= !save && can_inject(&f->change[i]);
    }
    return saves || (loads && !x->facts.no_loader);
}

/* The program has it already: named, because it belongs to the others. */
static bool is_same(const struct mr_change *c)
{
    return c->from && !strcmp(c->from, c->to);
}

/* A change's value as JSON has it. */
static json_t *value_of(const char *text)
{
    char *end;
    double v = strtod(text, &end);
    if (!strcmp(text, "true") || !strcmp(text, "false"))
        return json_boolean(*text == 't');
    if (*text && !*end && v == floor(v) && fabs(v) < 1e15)
        return json_integer((json_int_t)v);
    return json_string(text);
}

/* The arguments that a finding sets for loaders of a role. */
static json_t *settings_of(const struct mr_finding *f, bool evaluates)
{
    json_t *set = json_object();
    for (size_t i = 0; i < f->changes; i++) {
        const struct mr_change *c = &f->change[i];
        if (can_inject(c) && !strcmp(c->target, evaluates ? EVALUATION : LOADER))
            json_object_set_new(set, c->key, value_of(c->to));
    }
    return set;
}

static bool makes_loaders(const struct mr_explain_place *p, bool evaluates)
{
    return p->file && !isnan(p->loader) && !strcmp(p->call, LOADER) && (evaluates ? p->evaluates : p->trains);
}

/* One line may make the loaders of training and of evaluation, with other arguments: a function does. */
static bool is_mixed(const struct mr_explanation *x, const char *file, unsigned line)
{
    bool has[2] = {false, false};
    for (size_t i = 0; i < x->places; i++)
        for (int k = 0; k < 2; k++)
            has[k] |= makes_loaders(&x->place[i], k) && x->place[i].line == line && !strcmp(x->place[i].file, file);
    return has[0] && has[1];
}

/* A row for every line at which such loaders are made; one for all of them where no line is known. */
static int add_rows(const struct mr_explanation *x, const struct mr_finding *f, bool evaluates, json_t *rows)
{
    const char *role = evaluates ? "evaluation" : "training";
    json_t *set = settings_of(f, evaluates);
    bool any = false;
    int failed = !set;
    for (size_t i = 0; i < x->places && json_object_size(set); i++) {
        const struct mr_explain_place *p = &x->place[i];
        if (!makes_loaders(p, evaluates))
            continue;
        failed |=
            json_array_append_new(rows, json_pack("{s:s, s:s, s:i, s:b, s:O}", "role", role, "file", p->file, "line",
                                                  (int)p->line, "mixed", is_mixed(x, p->file, p->line), "set", set));
        any = true;
    }
    if (!any && json_object_size(set))
        failed |= json_array_append_new(rows, json_pack("{s:s, s:O}", "role", role, "set", set));
    json_decref(set);
    return failed ? -ENOMEM : 0;
}

static const char *wanted_of(const struct mr_explanation *x, const struct mr_finding *f, struct mr_arena *a)
{
    const char *text = "";
    for (size_t i = 0; i < f->changes && text; i++) {
        const struct mr_change *c = &f->change[i];
        if ((x->facts.own_run ? is_option(c) : can_inject(c)) && !is_same(c))
            text = mr_arena_printf(a, "%s%s%s %s%s-> %s", text, *text ? ", " : "", c->key, c->from ? c->from : "",
                                   c->from ? " " : "", c->to);
    }
    return text;
}

/* Where somebody has to change the program, if that is known. */
static int not_possible(const struct mr_explanation *x, const struct mr_finding *f, struct mr_error *err)
{
    const char *snippet = f->snippet[x->facts.own_run ? MR_IDIOM_MILLRACE : MR_IDIOM_PYTORCH];
    const char *why = x->facts.own_run                    ? "it is no option of a run that reads the same data"
                      : x->facts.no_loader && is_torch(x) ? "the loop reads its data by itself"
                      : !is_torch(x) ? "only programs that use PyTorch's DataLoader can be changed from outside"
                                     : "it is neither an argument of a DataLoader nor torch.save";
    int rc = mr_error_plain(err, MR_E_UNSUPPORTED, "%s cannot be tried on the program as it is: %s", f->id, why);
    if (snippet)
        mr_error_hint(err, "change it by hand: %s", snippet);
    else
        mr_error_hint(err, "%s", f->fix ? f->fix : "see 'millrace report'");
    return rc;
}

/* "DataLoader at train.py:41, and one more line". */
static const char *loaders_of(const json_t *rows, struct mr_arena *a)
{
    const json_t *first = json_array_get(rows, 0);
    int line = (int)json_integer_value(json_object_get(first, "line"));
    size_t more = 0;
    for (size_t i = 1; i < json_array_size(rows); i++) {
        size_t k = 0;
        while (k < i && !(json_equal(json_object_get(json_array_get(rows, i), "line"),
                                     json_object_get(json_array_get(rows, k), "line")) &&
                          json_equal(json_object_get(json_array_get(rows, i), "file"),
                                     json_object_get(json_array_get(rows, k), "file"))))
            k++;
        more += k == i;
    }
    return mr_arena_printf(a, "DataLoader at %s:%d%s", json_string_value(json_object_get(first, "file")), line,
                           more > 1    ? mr_arena_printf(a, ", and %zu more lines", more)
                           : more == 1 ? ", and one more line"
                                       : "");
}

int mr_injection_of(const struct mr_explanation *x, const struct mr_finding *f, struct mr_arena *a,
                    struct mr_injection *out, struct mr_error *err)
{
    if (!mr_injection_possible(x, f))
        return not_possible(x, f, err);
    if (x->facts.own_run) {
        *out = (struct mr_injection){
            .words = f->command + strlen(RUN), .target = "workload", .wanted = wanted_of(x, f, a)};
        return out->wanted ? 0 : mr_error_set(err, -ENOMEM, "cannot plan the change");
    }
    struct mr_injection i = {.loaders = json_array(), .wanted = wanted_of(x, f, a)};
    i.stage = stage_of(x, f);
    i.tier = is_tier(x, f);
    i.buffer = is_buffer(x, f);
    if (i.buffer)
        i.wanted = "open(..., buffering=1048576) for the data";
    if (i.tier)
        i.wanted = "saves go to memory, and are copied to where they belong while training goes on";
    if (i.stage)
        i.wanted =
            mr_arena_printf(a, "%s%sread from copies %s", i.wanted ? i.wanted : "", i.wanted && *i.wanted ? ", " : "",
                            *i.stage == 'm' ? "in memory" : "on a local disk");
    for (size_t k = 0; k < f->changes; k++)
        i.saver |= can_inject(&f->change[k]) && !strcmp(f->change[k].target, SAVE);
    int rc = i.loaders && i.wanted ? 0 : -ENOMEM;
    rc = rc ? rc : add_rows(x, f, false, i.loaders);
    rc = rc ? rc : add_rows(x, f, true, i.loaders);
    const json_t *file = json_object_get(json_array_get(i.loaders, 0), "file");
    i.target = file                  ? loaders_of(i.loaders, a)
               : i.stage || i.buffer ? "data files"
               : i.saver || i.tier   ? SAVE
                                     : "DataLoader";
    if (rc || !i.target) {
        json_decref(i.loaders);
        return mr_error_set(err, -ENOMEM, "cannot plan the change");
    }
    *out = i;
    return 0;
}

static int add_setting(const struct mr_explanation *x, const char *text, struct mr_arena *a, struct mr_finding *f,
                       struct mr_error *err)
{
    const char *is = strchr(text, '=');
    const struct mr_explain_place *p = mr_explain_place_of(x, LOADER, false);
    struct mr_change c = {.kind = MR_CHANGE_INJECTION, .framework = MR_IDIOM_PYTORCH, .target = LOADER};
    if (!is || is == text || !is[1])
        return mr_error_plain(err, MR_E_USAGE, "bad value '%s' for '--set': want KEY=VALUE", text);
    c.key = mr_arena_strndup(a, text, (size_t)(is - text));
    c.to = is + 1;
    if (p && p->file && !p->by) {
        c.file = p->file;
        c.line = p->line;
    }
    if (c.key && !strcmp(c.key, SAVER_KEY))
        c.target = SAVE;
    if (c.key && !strcmp(c.key, DATA_KEY))
        c.target = FILES;
    if (strcmp(c.target, LOADER) != 0)
        c.file = NULL;
    if (x->facts.own_run)
        c = (struct mr_change){
            .kind = MR_CHANGE_OPTION, .framework = MR_IDIOM_MILLRACE, .target = "workload", .key = c.key, .to = c.to};
    if (!c.key)
        return mr_error_set(err, -ENOMEM, "cannot plan the change");
    bool data = !strcmp(c.target, FILES) && (!strcmp(c.to, "memory") || !strcmp(c.to, "disk"));
    if (!x->facts.own_run && !data && !can_inject(&c)) {
        mr_error_plain(err, MR_E_USAGE, "'%s' cannot be set while a program runs", c.key);
        return mr_error_hint(
                   err,
                   "num_workers, prefetch_factor, persistent_workers, pin_memory; data=memory, data=disk; saver=ours"),
               MR_E_USAGE;
    }
    f->change[f->changes++] = c;
    return 0;
}

int mr_injection_settings(const struct mr_explanation *x, const char *const *set, struct mr_arena *a,
                          struct mr_finding **out, struct mr_error *err)
{
    size_t n = 0;
    int rc = 0;
    const char *words = "";
    while (set[n])
        n++;
    struct mr_finding *f = mr_arena_alloc(a, sizeof(*f));
    if (!f || !(f->change = mr_arena_alloc(a, n * sizeof(*f->change))))
        return mr_error_set(err, -ENOMEM, "cannot plan the change");
    for (size_t i = 0; i < n && !rc; i++) {
        rc = add_setting(x, set[i], a, f, err);
        words = words ? mr_arena_printf(a, "%s%s%s", words, *words ? " " : "", set[i]) : NULL;
    }
    if (rc)
        return rc;
    f->id = "set";
    f->title = f->fix = words;
    f->saves_s = f->saves_low_s = f->saves_high_s = NAN;
    if (x->facts.own_run && words && x->facts.workload) {
        const char *command = mr_run_command_with(x->facts.workload, words, a);
        f->command = command ? mr_arena_printf(a, RUN "%s", command) : NULL;
    }
    *out = f;
    return words ? 0 : mr_error_set(err, -ENOMEM, "cannot plan the change");
}

/* Adds an argument to the row of a line, which it makes where there is none. */
static int put_place(json_t *list, const char *file, unsigned line, const struct mr_change *c)
{
    json_t *row = NULL;
    for (size_t i = 0; i < json_array_size(list) && !row; i++) {
        row = json_array_get(list, i);
        if (json_integer_value(json_object_get(row, "line")) != line ||
            strcmp(json_string_value(json_object_get(row, "file")), file) != 0)
            row = NULL;
    }
    if (!row &&
        json_array_append_new(list, row = json_pack("{s:s, s:i, s:{}}", "file", file, "line", (int)line, "set")) != 0)
        return -ENOMEM;
    return json_object_set_new(json_object_get(row, "set"), c->key, value_of(c->to));
}

/* Of a change that concerns the loaders of several lines. */
static int put_places(const struct mr_explanation *x, json_t *list, const struct mr_change *c)
{
    bool evaluates = !strcmp(c->target, EVALUATION);
    int failed = 0;
    for (size_t i = 0; i < x->places; i++)
        if (makes_loaders(&x->place[i], evaluates) && !x->place[i].by)
            failed |= put_place(list, x->place[i].file, x->place[i].line, c);
    return failed;
}

int mr_injection_places(const struct mr_explanation *x, const struct mr_finding *f, json_t **out, struct mr_error *err)
{
    json_t *list = json_array();
    int failed = !list;
    for (size_t i = 0; i < f->changes && !failed; i++) {
        const struct mr_change *c = &f->change[i];
        if (can_inject(c) && !is_same(c) && strcmp(c->target, SAVE) != 0 && strcmp(c->key, "loader") != 0)
            failed = c->file ? put_place(list, c->file, c->line, c) : put_places(x, list, c);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        const char *file = json_string_value(json_object_get(row, "file"));
        unsigned line = (unsigned)json_integer_value(json_object_get(row, "line"));
        if (!is_mixed(x, file, line))
            continue;
        mr_error_plain(err, MR_E_UNSUPPORTED,
                       "there is no diff: %s:%u makes the loaders of training and of evaluation; change it by hand",
                       file, line);
        json_decref(list);
        return MR_E_UNSUPPORTED;
    }
    if (!failed && json_array_size(list)) {
        *out = list;
        return 0;
    }
    json_decref(list);
    return failed
               ? mr_error_set(err, -ENOMEM, "cannot make the diff")
               : mr_error_plain(err, MR_E_UNSUPPORTED,
                                "there is no diff: the trace has no line of the program's own that makes the loader");
}

void mr_injection_done(struct mr_injection *i)
{
    json_decref(i->loaders);
    i->loaders = NULL;
}

/* ---- what was done ---- */

static void put_value(struct mr_strbuf *s, const json_t *v)
{
    if (json_is_boolean(v))
        mr_strbuf_puts(s, json_is_true(v) ? "True" : "False");
    else if (json_is_integer(v))
        mr_strbuf_printf(s, "%lld", (long long)json_integer_value(v));
    else
        mr_strbuf_puts(s, json_is_string(v) ? json_string_value(v) : "None");
}

static const char *change_text(const json_t *line, struct mr_arena *a)
{
    struct mr_strbuf s = {0};
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(line, "set"), key, value)
    {
        const json_t *was = json_object_get(json_object_get(line, "was"), key);
        if (json_equal((json_t *)(uintptr_t)was, value))
            continue;
        mr_strbuf_printf(&s, "%s%s ", s.len ? ", " : "", key);
        if (was && !json_is_null(was)) {
            put_value(&s, was);
            mr_strbuf_putc(&s, ' ');
        }
        mr_strbuf_puts(&s, "-> ");
        put_value(&s, value);
    }
    const char *text = s.failed ? NULL : mr_arena_strdup(a, s.text ? s.text : "nothing: it was so already");
    mr_strbuf_done(&s);
    return text;
}

static void take_line(const json_t *line, struct mr_arena *a, struct mr_injected *out)
{
    const json_t *refused = json_object_get(line, "refused");
    const char *file = json_string_value(json_object_get(line, "file"));
    if (json_is_string(refused) && !out->refused)
        out->refused = mr_arena_strdup(a, json_string_value(refused));
    if (!json_object_get(line, "set") || out->changed++)
        return;
    out->change = change_text(line, a);
    out->file = file && *file ? mr_arena_strdup(a, file) : NULL;
    out->line = (unsigned)json_integer_value(json_object_get(line, "line"));
}

int mr_injected_read(const char *path, struct mr_arena *a, struct mr_injected *out, struct mr_error *err)
{
    struct mr_injected i = {0};
    char *text = NULL;
    size_t cap = 0;
    FILE *f = mr_fopen_regular(path);
    if (!f && errno != ENOENT)
        return mr_error_set(err, -errno, "cannot read '%s'", path);
    while (f && getline(&text, &cap, f) > 0) {
        json_t *line = json_loads(text, 0, NULL);
        if (line)
            take_line(line, a, &i);
        json_decref(line);
    }
    free(text);
    if (f)
        fclose(f);
    *out = i;
    return 0;
}
