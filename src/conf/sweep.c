/* Parsing of sweeps: see sweep.h. */
#include "conf/sweep.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* Length of the value at the start of `text`: up to the next comma outside brackets. */
static size_t value_length(const char *text)
{
    size_t n = 0;
    for (int depth = 0; text[n] && (text[n] != ',' || depth > 0); n++)
        depth += strchr("[{(", text[n]) ? 1 : strchr("]})", text[n]) ? -1 : 0;
    return n;
}

static int parse_values(const char *text, struct mr_arena *a, struct mr_sweep_axis *x, struct mr_error *err)
{
    x->value = mr_arena_alloc(a, (strlen(text) + 1) * sizeof(*x->value)); /* at least a character each */
    for (const char *at = text; x->value && *at;) {
        size_t len = value_length(at);
        if (len > MR_SWEEP_VALUE_LEN)
            return mr_error_plain(err, MR_E_USAGE, "bad sweep '%s': a value is longer than %u characters", x->key,
                                  MR_SWEEP_VALUE_LEN);
        if (!(x->value[x->n++] = mr_arena_strndup(a, at, len)))
            return mr_error_set(err, -ENOMEM, "cannot hold the sweep");
        at += len + (at[len] == ',');
    }
    return x->value ? 0 : mr_error_set(err, -ENOMEM, "cannot hold the sweep");
}

static int add_axis(const char *text, struct mr_arena *a, struct mr_sweep *sw, struct mr_error *err)
{
    struct mr_sweep_axis x = {0};
    if (strncmp(text, "--", 2) == 0)
        text += 2;
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1])
        return mr_error_plain(err, MR_E_USAGE, "bad sweep '%s': want KEY=VALUE,VALUE,...", text);
    if (!(x.key = mr_arena_strndup(a, text, (size_t)(equals - text))))
        return mr_error_set(err, -ENOMEM, "cannot hold the sweep");
    for (unsigned i = 0; i < sw->n_axes; i++)
        if (!strcmp(sw->axis[i].key, x.key))
            return mr_error_plain(err, MR_E_USAGE, "'%s' is swept twice", x.key);
    int rc = parse_values(equals + 1, a, &x, err);
    if (rc)
        return rc;
    assert(x.n && sw->n && sw->n_axes < MR_SWEEP_AXES); /* checked by the caller and above */
    if (x.n > MR_SWEEP_POINTS / sw->n)
        return mr_error_plain(err, MR_E_USAGE, "a sweep of more than %u points", MR_SWEEP_POINTS);
    sw->axis[sw->n_axes++] = x;
    sw->n *= x.n;
    return 0;
}

int mr_sweep_parse(const struct mr_strings *texts, struct mr_arena *a, struct mr_sweep *out, struct mr_error *err)
{
    struct mr_sweep sw = {.n = 1};
    if (texts->n > MR_SWEEP_AXES)
        return mr_error_plain(err, MR_E_USAGE, "at most %u keys can be swept, not %u", MR_SWEEP_AXES, texts->n);
    for (unsigned i = 0; i < texts->n; i++) {
        int rc = add_axis(texts->item[i], a, &sw, err);
        if (rc)
            return rc;
    }
    *out = sw;
    return 0;
}

const char *mr_sweep_value(const struct mr_sweep *sw, unsigned point, unsigned axis)
{
    assert(point < sw->n && axis < sw->n_axes);
    for (unsigned i = sw->n_axes - 1; i > axis; i--)
        point /= sw->axis[i].n;
    return sw->axis[axis].value[point % sw->axis[axis].n];
}
