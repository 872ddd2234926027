/* `millrace doctor`: what on this machine will distort results, and what to do about it. Looks, tries a small temporary
 * file in PATH, changes nothing. Warnings do not change the exit status: they are the result. */
#include "cli/commands.h"
#include "cli/doctor.h"
#include "base/common.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct doctor_options {
    const char *path;
    bool json;
};

#define ROW(key, field, type, def, ...) MR_OPTION(doctor_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option doctor_options[] = {
    ROW("path", path, STRING, ".", .flags = MR_OPTF_POSITIONAL, .doc = "The folder where data sets would lie.",
        .example = "millrace doctor /scratch"),
    ROW("json", json, BOOL, "false", .short_flag = 'j', .doc = "Prints one JSON object."),
    MR_OPTION_END,
};

static const char *const level_names[] = {"OK", "NOTE", "WARN"};

void mr_doctor_add(struct mr_doctor *d, const char *topic, enum mr_doctor_level level, const char *advice,
                   const char *value, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, value);
    vsnprintf(text, sizeof text, value, ap);
    va_end(ap);
    const char *kept = mr_arena_strdup(d->arena, text);
    if (d->n < MR_ARRAY_LEN(d->finding) && kept)
        d->finding[d->n++] = (struct mr_doctor_finding){topic, level, kept, advice};
}

void mr_doctor_figure(struct mr_doctor *d, const char *key, double value)
{
    if (d->n_figures < MR_DOCTOR_FIGURES) {
        d->figure[d->n_figures].key = key;
        d->figure[d->n_figures++].value = value;
    }
}

bool mr_doctor_read(const char *path, char *line, size_t cap)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool ok = fgets(line, (int)cap, f) != NULL;
    fclose(f);
    if (ok)
        line[strcspn(line, "\n")] = '\0';
    return ok;
}

static unsigned count(const struct mr_doctor *d, enum mr_doctor_level level)
{
    unsigned n = 0;
    for (unsigned i = 0; i < d->n; i++)
        n += d->finding[i].level == level;
    return n;
}

/* Advice under the value, broken at about 100 columns. */
static void print_advice(const char *text)
{
    while (*text) {
        size_t len = strlen(text), cut = len;
        if (len > 98)
            for (cut = 98; cut > 20 && text[cut] != ' ';)
                cut--;
        printf("                          %.*s\n", (int)cut, text);
        text += cut + (text[cut] == ' ');
    }
}

static void print_text(const struct mr_doctor *d)
{
    for (unsigned i = 0; i < d->n; i++) {
        const struct mr_doctor_finding *f = &d->finding[i];
        printf("%-5s %-19s %s\n", level_names[f->level], f->topic, f->value);
        print_advice(f->advice);
    }
    unsigned warn = count(d, MR_DOCTOR_WARN), note = count(d, MR_DOCTOR_NOTE);
    printf("\n%u warning%s, %u note%s for '%s'\n", warn, warn == 1 ? "" : "s", note, note == 1 ? "" : "s", d->path);
}

/* Paths and mount options need not be UTF-8, which JSON demands. */
static json_t *json_text(const char *text)
{
    json_t *s = json_string(text);
    if (s)
        return s;
    char clean[1024];
    size_t n = 0;
    for (; text[n] && n + 1 < sizeof clean; n++)
        clean[n] = (unsigned char)text[n] < 128 ? text[n] : '?';
    clean[n] = '\0';
    return json_string(clean);
}

static int print_json(const struct mr_doctor *d, struct mr_error *err)
{
    static const char *const names[] = {"ok", "note", "warn"};
    json_t *root = json_object(), *checks = json_array();
    json_object_set_new(root, "schema", json_string("millrace.doctor/1"));
    json_object_set_new(root, "path", json_text(d->path));
    json_object_set_new(root, "warnings", json_integer(count(d, MR_DOCTOR_WARN)));
    json_object_set_new(root, "notes", json_integer(count(d, MR_DOCTOR_NOTE)));
    for (unsigned i = 0; i < d->n_figures; i++) {
        double v = d->figure[i].value;
        bool whole = v >= 0 && v < 0x1p62 && v == (double)(json_int_t)v;
        json_object_set_new(root, d->figure[i].key, whole ? json_integer((json_int_t)v) : json_real(v));
    }
    for (unsigned i = 0; i < d->n; i++) {
        json_t *c = json_object();
        json_object_set_new(c, "topic", json_string(d->finding[i].topic));
        json_object_set_new(c, "level", json_string(names[d->finding[i].level]));
        json_object_set_new(c, "value", json_text(d->finding[i].value));
        json_object_set_new(c, "advice", json_string(d->finding[i].advice));
        json_array_append_new(checks, c);
    }
    json_object_set_new(root, "checks", checks);
    char *text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    if (!text)
        return mr_error_plain(err, MR_E_INTERNAL, "cannot write the report as JSON");
    puts(text);
    free(text);
    return 0;
}

static int doctor_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct doctor_options *o = ctx->options;
    struct mr_doctor *d = mr_arena_alloc(ctx->arena, sizeof(*d));
    if (!d)
        return mr_error_set(err, -12, "cannot examine this machine");
    d->arena = ctx->arena;
    d->path = o->path;
    int code = mr_doctor_storage(d, err);
    if (code)
        return code;
    mr_doctor_machine(d);
    if (o->json)
        return print_json(d, err);
    print_text(d);
    return 0;
}

const struct mr_command mr_cmd_doctor = {
    .name = "doctor",
    .synopsis = "[PATH] [--json]",
    .summary = "say what on this machine will distort results, and what to do about it",
    .details =
        "Each line is OK, NOTE or WARN. Examines the file system of PATH (default: here), memory, cores, clocks, "
        "limits, io_uring and MPI. It writes and removes one temporary file of 1 MiB in PATH, if it may. The exit "
        "status is 0 whatever it finds, 5 if PATH cannot be examined.\n\n"
        "  millrace doctor /scratch\n  millrace doctor --json | jq '.checks[] | select(.level==\"warn\")'\n",
    .table = {.section = "doctor",
              .doc = "Examining the machine.",
              .options = doctor_options,
              .struct_bytes = sizeof(struct doctor_options)},
    .run = doctor_run,
};
