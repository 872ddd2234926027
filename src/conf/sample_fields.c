/* Fields in workload files: see sample_fields.h. The option keeps the list of columns as YAML's flow text,
 * [{name: a, dtype: float32, size: 4, read: false}, ...]; keys that we do not know are an error. */
#include "conf/sample_fields.h"
#include "base/common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef int take_fn(void *user, const struct mr_sample_field *f, struct mr_error *err);

/* Of dataset.parquet.columns. */
struct column {
    char name[64], dtype[16];
    uint64_t size;
    bool read;
};

struct cursor {
    const char *at;
    unsigned n;
    take_fn *take;
    void *user;
    const struct mr_workload *w;
    struct mr_error *err;
};

static int bad(const struct cursor *c, const char *why)
{
    mr_error_plain(c->err, MR_E_CONFIG, "bad 'dataset.parquet.columns' at '%.40s': %s", c->at, why);
    return mr_error_hint(c->err, "a list of maps, e.g. [{name: x, dtype: float32, size: 4, read: true}]"), MR_E_CONFIG;
}

static int bad_field(const char *text, const char *why, struct mr_error *err)
{
    mr_error_plain(err, MR_E_CONFIG, "bad field '%.100s' in 'dataset.fields': %s", text, why);
    return mr_error_hint(err, "name:dtype:shape or name:dtype:shape:role, e.g. 'mask:u1:768x1152:target'"), MR_E_CONFIG;
}

static int put(struct cursor *c, struct mr_sample_field *f)
{
    const struct mr_strings *wanted = &c->w->reader.fields;
    if (c->n++ == MR_SAMPLE_FIELDS_MAX)
        return mr_error_plain(c->err, MR_E_CONFIG, "the workload names more than %u fields", MR_SAMPLE_FIELDS_MAX);
    if (wanted->n && strcmp(wanted->item[0], "*") != 0) {
        f->read = false;
        for (unsigned i = 0; i < wanted->n; i++)
            f->read = f->read || strcmp(wanted->item[i], f->name) == 0;
    }
    return c->take(c->user, f, c->err);
}

/* ---- dataset.parquet.columns ---- */

static void skip_space(struct cursor *c)
{
    c->at += strspn(c->at, " \t\n");
}

/* A word up to one of the stops, without quotes around it. */
static int take_word(struct cursor *c, const char *stops, char *out, size_t cap)
{
    skip_space(c);
    char quote = *c->at == '"' || *c->at == '\'' ? *c->at++ : 0;
    size_t n = quote ? strcspn(c->at, (char[]){quote, 0}) : strcspn(c->at, stops);
    const char *word = c->at;
    c->at += n + (quote && c->at[n]);
    while (!quote && n && word[n - 1] == ' ')
        n--;
    if (n == 0 || n >= cap)
        return bad(c, "a word is missing, or too long");
    memcpy(out, word, n);
    out[n] = '\0';
    skip_space(c);
    return 0;
}

static int take_number(struct cursor *c, const char *text, uint64_t most, uint64_t *out)
{
    char *end;
    uint64_t v = strtoull(text, &end, 10);
    if (*end || text[0] < '0' || text[0] > '9' || v == 0 || v > most)
        return bad(c, "a whole number is wanted");
    *out = v;
    return 0;
}

static int set_key(struct cursor *c, const char *key, const char *value, struct column *col, uint64_t *count)
{
    if (strcmp(key, "name") == 0 && strlen(value) < sizeof col->name - 15)
        memcpy(col->name, value, strlen(value) + 1);
    else if (strcmp(key, "dtype") == 0 && strlen(value) < sizeof col->dtype)
        memcpy(col->dtype, value, strlen(value) + 1);
    else if (strcmp(key, "size") == 0)
        return take_number(c, value, (uint64_t)1 << 32, &col->size);
    else if (strcmp(key, "count") == 0)
        return take_number(c, value, MR_SAMPLE_FIELDS_MAX, count);
    else if (strcmp(key, "read") == 0 && (!strcasecmp(value, "true") || !strcasecmp(value, "false")))
        col->read = !strcasecmp(value, "true");
    else
        return bad(c, "keys are name, dtype, size, read (true or false) and count");
    return 0;
}

static int add(struct cursor *c, const struct column *col, uint64_t count)
{
    unsigned element = mr_conf_element_bytes(col->dtype);
    int rc = 0;
    if (!*col->name || !*col->dtype)
        return bad(c, "a column wants a name and a dtype");
    if (!element)
        return bad(c, "the column before it has no dtype that is known");
    for (uint64_t i = 0; i < MR_MAX(count, 1u) && !rc; i++) {
        struct mr_sample_field f = {.bytes = (double)element * (double)col->size, .read = col->read};
        char shape[32] = "-";
        if (count)
            snprintf(f.name, sizeof f.name, "%.48s%u", col->name, (unsigned)(i % 1000));
        else
            memcpy(f.name, col->name, sizeof f.name);
        if (col->size > 1)
            snprintf(shape, sizeof shape, "%llu", (unsigned long long)col->size);
        snprintf(f.spec, sizeof f.spec, "%s:%s:%s", f.name, col->dtype, shape);
        rc = put(c, &f);
    }
    return rc;
}

static int take_column(struct cursor *c)
{
    struct column col = {.size = 1, .read = true};
    char key[64], value[64];
    uint64_t count = 0;
    int rc = 0;
    for (c->at++, skip_space(c); rc == 0 && *c->at != '}'; skip_space(c)) {
        rc = take_word(c, ":", key, sizeof key);
        if (rc == 0 && *c->at != ':')
            return bad(c, "a colon is missing");
        c->at += rc == 0;
        if (rc == 0)
            rc = take_word(c, ",}", value, sizeof value);
        if (rc == 0)
            rc = set_key(c, key, value, &col, &count);
        if (rc == 0 && *c->at != ',' && *c->at != '}')
            return bad(c, "'}' is missing");
        c->at += *c->at == ',';
    }
    c->at += rc == 0;
    return rc < 0 ? rc : add(c, &col, count);
}

static int each_column(struct cursor *c)
{
    int rc = 0;
    skip_space(c);
    if (*c->at != '[')
        return bad(c, "a list is wanted");
    for (c->at++, skip_space(c); rc == 0 && *c->at != ']'; skip_space(c)) {
        if (*c->at != '{')
            return bad(c, "a map is wanted");
        rc = take_column(c);
        skip_space(c);
        c->at += rc == 0 && *c->at == ',';
    }
    return rc;
}

/* ---- dataset.fields ---- */

/* "16x768x1152" or "-"; 0: it is none. */
static double shape_values(const char *text)
{
    double n = 1;
    if (strcmp(text, "-") == 0)
        return 1;
    for (const char *p = text; *p;) {
        char *end;
        uint64_t v = *p >= '0' && *p <= '9' ? strtoull(p, &end, 10) : 0;
        if (v == 0 || (*end && (*end != 'x' || !end[1])))
            return 0;
        n *= (double)v;
        p = *end ? end + 1 : end;
    }
    return *text ? n : 0;
}

static int take_field(struct cursor *c, const char *text)
{
    static const char *const roles[] = {"input", "target", "weight", "other"};
    struct mr_sample_field f = {.read = true};
    char copy[sizeof f.spec], *rest = copy, *part[4] = {NULL};
    bool role_known = false;
    if (strlen(text) >= sizeof copy)
        return bad_field(text, "it is too long", c->err);
    memcpy(copy, text, strlen(text) + 1);
    memcpy(f.spec, copy, sizeof f.spec);
    for (unsigned i = 0; i < MR_ARRAY_LEN(part) && rest; i++)
        part[i] = strsep(&rest, ":");
    if (!part[2] || rest || !*part[0] || strlen(part[0]) >= sizeof f.name)
        return bad_field(text, "a name, a dtype and a shape are wanted", c->err);
    memcpy(f.name, part[0], strlen(part[0]) + 1);
    f.bytes = shape_values(part[2]) * mr_conf_element_bytes(part[1]);
    if (f.bytes <= 0)
        return bad_field(text,
                         mr_conf_element_bytes(part[1]) ? "the shape is numbers joined by 'x', or '-' for one number"
                                                        : "no such dtype; e.g. f4, i8, uint8",
                         c->err);
    for (size_t i = 0; part[3] && i < MR_ARRAY_LEN(roles); i++)
        role_known = role_known || strcmp(part[3], roles[i]) == 0;
    if (part[3] && !role_known)
        return bad_field(text, "roles are input, target, weight and other", c->err);
    f.read = !part[3] || strcmp(part[3], "other") != 0;
    return put(c, &f);
}

/* ---- either ---- */

static int each(const struct mr_workload *w, take_fn *take, void *user, struct mr_error *err)
{
    struct cursor c = {.at = w->parquet.columns, .take = take, .user = user, .w = w, .err = err};
    const struct mr_strings *list = &w->dataset.fields;
    int rc = w->dataset.format == MR_CF_PARQUET ? each_column(&c) : 0;
    if (rc == 0 && c.n && list->n)
        return mr_error_plain(err, MR_E_CONFIG, "dataset.fields and dataset.parquet.columns both name the fields");
    for (unsigned i = 0; i < list->n && rc == 0; i++)
        rc = take_field(&c, list->item[i]);
    return rc;
}

static int keep(void *user, const struct mr_sample_field *f, struct mr_error *err)
{
    struct mr_sample_fields *out = user;
    (void)err;
    out->field[out->n++] = *f;
    return 0;
}

static int check_wanted(const struct mr_workload *w, const struct mr_sample_fields *f, struct mr_error *err)
{
    const struct mr_strings *wanted = &w->reader.fields;
    for (unsigned i = 0; f->n && i < wanted->n; i++) {
        unsigned k = 0;
        while (k < f->n && strcmp(f->field[k].name, wanted->item[i]) != 0)
            k++;
        if (k == f->n && strcmp(wanted->item[i], "*") != 0)
            return mr_error_plain(err, MR_E_CONFIG, "'reader.fields' names '%.100s', which is none of the set's fields",
                                  wanted->item[i]);
    }
    for (unsigned k = 1; k < f->n; k++)
        for (unsigned i = 0; i < k; i++)
            if (strcmp(f->field[i].name, f->field[k].name) == 0)
                return mr_error_plain(err, MR_E_CONFIG, "there are two fields '%s'", f->field[k].name);
    return 0;
}

int mr_sample_fields_of(const struct mr_workload *w, struct mr_sample_fields *out, struct mr_error *err)
{
    out->n = 0;
    int rc = each(w, keep, out, err);
    return rc ? rc : check_wanted(w, out, err);
}

int mr_sample_fields_check(const struct mr_workload *w, struct mr_error *err)
{
    struct mr_sample_fields *f = malloc(sizeof(*f));
    int rc = f ? mr_sample_fields_of(w, f, err) : mr_error_set(err, -ENOMEM, "cannot keep the fields");
    if (!rc)
        rc = f->n > 0;
    free(f);
    return rc;
}

struct sums {
    unsigned n;
    double all, read;
};

static int sum_up(void *user, const struct mr_sample_field *f, struct mr_error *err)
{
    struct sums *s = user;
    (void)err;
    s->n++;
    s->all += f->bytes;
    s->read += f->read ? f->bytes : 0;
    return 0;
}

int mr_sample_fields_bytes(const struct mr_workload *w, double *all, double *read, struct mr_error *err)
{
    struct sums s = {0};
    int rc = each(w, sum_up, &s, err);
    if (rc || !s.n)
        return rc;
    *all = s.all;
    *read = s.read;
    return 1;
}

void mr_sample_fields_to_spec(const struct mr_sample_fields *f, struct mr_strbuf *out)
{
    for (unsigned i = 0; i < f->n; i++)
        mr_strbuf_printf(out, "%s%s", i ? "," : "", f->field[i].spec);
}

/* What reader.fields says where the workload does not say what fields there are. */
static int copy_wanted(const struct mr_workload *w, const char ***names, uint32_t *n, struct mr_error *err)
{
    const struct mr_strings *wanted = &w->reader.fields;
    const char **list = wanted->n ? calloc(wanted->n, sizeof(*list)) : NULL;
    if (wanted->n && !list)
        return mr_error_set(err, -ENOMEM, "cannot keep the fields");
    for (unsigned i = 0; i < wanted->n; i++)
        list[i] = wanted->item[i]; /* the workload's */
    *names = list;
    *n = wanted->n;
    return 0;
}

int mr_sample_fields_names(const struct mr_workload *w, const char ***names, uint32_t *n, struct mr_error *err)
{
    struct mr_sample_fields *f = malloc(sizeof(*f));
    const char **list = calloc(1, MR_SAMPLE_FIELDS_MAX * (sizeof(*list) + sizeof f->field[0].name));
    int rc = f && list ? mr_sample_fields_of(w, f, err) : mr_error_set(err, -ENOMEM, "cannot keep the fields");
    uint32_t count = 0;
    if (!rc && f->n) {
        char *text = (char *)(list + MR_SAMPLE_FIELDS_MAX);
        for (unsigned i = 0; i < f->n; i++)
            if (f->field[i].read) {
                list[count++] = memcpy(text, f->field[i].name, sizeof f->field[i].name);
                text += sizeof f->field[i].name;
            }
        *names = list;
        *n = count;
        list = NULL;
        if (!count)
            rc = mr_error_plain(err, MR_E_CONFIG, "none of the set's fields is read");
    } else if (!rc) {
        rc = copy_wanted(w, names, n, err);
    }
    free(f);
    free(list);
    return rc;
}
