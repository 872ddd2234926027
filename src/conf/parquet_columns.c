/* Columns of Parquet sets in workload files: see parquet_columns.h. The option keeps the list as YAML's flow text,
 * [{name: a, dtype: float32, size: 4, read: false}, ...]; keys that we do not know are an error. */
#include "conf/parquet_columns.h"
#include "base/common.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct cursor {
    const char *at;
    struct mr_error *err;
};

static int bad(const struct cursor *c, const char *why)
{
    mr_error_plain(c->err, MR_E_CONFIG, "bad 'dataset.parquet.columns' at '%.40s': %s", c->at, why);
    return mr_error_hint(c->err, "a list of maps, e.g. [{name: x, dtype: float32, size: 4, read: true}]"), MR_E_CONFIG;
}

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

static int set_key(struct cursor *c, const char *key, const char *value, struct mr_parquet_column *col, uint64_t *count)
{
    if (strcmp(key, "name") == 0 && strlen(value) < sizeof col->name - 15)
        memcpy(col->name, value, strlen(value) + 1);
    else if (strcmp(key, "dtype") == 0 && strlen(value) < sizeof col->dtype)
        memcpy(col->dtype, value, strlen(value) + 1);
    else if (strcmp(key, "size") == 0)
        return take_number(c, value, (uint64_t)1 << 32, &col->size);
    else if (strcmp(key, "count") == 0)
        return take_number(c, value, MR_PARQUET_COLUMNS_MAX, count);
    else if (strcmp(key, "read") == 0 && (!strcasecmp(value, "true") || !strcasecmp(value, "false")))
        col->read = !strcasecmp(value, "true");
    else
        return bad(c, "keys are name, dtype, size, read (true or false) and count");
    return 0;
}

static int add(struct cursor *c, struct mr_parquet_columns *out, const struct mr_parquet_column *col, uint64_t count)
{
    if (!*col->name || !*col->dtype)
        return bad(c, "a column wants a name and a dtype");
    for (uint64_t i = 0; i < MR_MAX(count, 1u); i++) {
        if (out->n == MR_PARQUET_COLUMNS_MAX)
            return bad(c, "there are more than 256 columns");
        struct mr_parquet_column *x = &out->column[out->n++];
        *x = *col;
        if (count)
            snprintf(x->name, sizeof x->name, "%.48s%u", col->name, (unsigned)(i % 1000));
    }
    return 0;
}

static int take_column(struct cursor *c, struct mr_parquet_columns *out)
{
    struct mr_parquet_column col = {.size = 1, .read = true};
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
    return rc < 0 ? rc : add(c, out, &col, count);
}

int mr_parquet_columns_of(const struct mr_workload *w, struct mr_parquet_columns *out, struct mr_error *err)
{
    struct cursor c = {.at = w->parquet.columns, .err = err};
    int rc = 0;
    out->n = 0;
    skip_space(&c);
    if (*c.at != '[')
        return bad(&c, "a list is wanted");
    for (c.at++, skip_space(&c); rc == 0 && *c.at != ']'; skip_space(&c)) {
        if (*c.at != '{')
            return bad(&c, "a map is wanted");
        rc = take_column(&c, out);
        skip_space(&c);
        c.at += rc == 0 && *c.at == ',';
    }
    return rc;
}

void mr_parquet_columns_to_fields(const struct mr_parquet_columns *c, struct mr_strbuf *out)
{
    for (unsigned i = 0; i < c->n; i++) {
        const struct mr_parquet_column *x = &c->column[i];
        mr_strbuf_printf(out, "%s%s:%s:", i ? "," : "", x->name, x->dtype);
        if (x->size == 1)
            mr_strbuf_putc(out, '-');
        else
            mr_strbuf_printf(out, "%llu", (unsigned long long)x->size);
    }
}
