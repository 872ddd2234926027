/* Fields of generated sets: see gen_fields.h. */
#include "dataset/gen_fields.h"
#include "base/common.h"
#include "base/rng.h"
#include "dataset/gen_spec.h"
#include "format/field_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int bad(const char *part, size_t len, const char *why, struct mr_error *err)
{
    mr_error_plain(err, MR_E_USAGE, "bad field '%.*s': %s", (int)len, part, why);
    return mr_error_hint(err, "name:dtype:shape or name:dtype:shape:role, e.g. 'data:f4:16x768x1152,mask:u1:768x1152'"),
           MR_E_USAGE;
}

/* The next piece of text up to `end` or one of `stops`; cuts it off the front. */
static size_t piece(const char **p, const char *end, char stop, char *out, size_t cap)
{
    const char *at = memchr(*p, stop, (size_t)(end - *p));
    size_t len = at ? (size_t)(at - *p) : (size_t)(end - *p);
    snprintf(out, cap, "%.*s", (int)MR_MIN(len, cap - 1), *p);
    *p = at ? at + 1 : end;
    return len;
}

static int parse_dims(const char *text, struct mr_gen_field *f)
{
    f->bytes = mr_dtype_bytes(f->dtype);
    f->dims.n = 0;
    if (strcmp(text, "-") == 0)
        return 0;
    for (const char *p = text; *p;) {
        char *end;
        if (*p < '0' || *p > '9' || f->dims.n == MR_DIMS_MAX)
            return -1;
        uint64_t v = strtoull(p, &end, 10);
        if (v == 0 || (*end && *end != 'x') || (*end && !end[1]) || __builtin_mul_overflow(f->bytes, v, &f->bytes) ||
            f->bytes > MR_LIMIT_SAMPLE_BYTES)
            return -1;
        f->dims.dim[f->dims.n++] = v;
        p = *end ? end + 1 : end;
    }
    return f->dims.n ? 0 : -1;
}

static int parse_role(const char *text, enum mr_field_role *out)
{
    for (int r = 0; r < MR_FIELD_ROLES; r++)
        if (strcmp(text, mr_field_role_name((enum mr_field_role)r)) == 0) {
            *out = (enum mr_field_role)r;
            return 0;
        }
    return -1;
}

static bool name_fits(const char *name)
{
    return *name && name[0] != '.' && !strpbrk(name, "/:,\"\\ ") && mr_field_name_is_sound(name, strlen(name));
}

static int parse_one(const char *p, const char *end, bool first, struct mr_gen_field *f, struct mr_error *err)
{
    const char *whole = p;
    size_t len = (size_t)(end - p);
    char dtype[32], dims[256], role[32];
    bool swap;
    if (piece(&p, end, ':', f->name, sizeof f->name) >= sizeof f->name || !name_fits(f->name))
        return bad(whole, len, "names have 1 to 63 characters, without spaces, quotes, '/', ':' and ','", err);
    piece(&p, end, ':', dtype, sizeof dtype);
    if (mr_dtype_parse(dtype, &f->dtype, &swap, NULL) < 0 || swap)
        return bad(whole, len, "no such dtype; e.g. f4, i8, uint8", err);
    piece(&p, end, ':', dims, sizeof dims);
    if (parse_dims(dims, f) < 0)
        return bad(whole, len, "the shape is numbers joined by 'x', or '-' for one number", err);
    f->role = first ? MR_FIELD_INPUT : mr_field_role_of_name(f->name);
    if (p < end && (piece(&p, end, ':', role, sizeof role), parse_role(role, &f->role)) < 0)
        return bad(whole, len, "roles are input, target, weight and other", err);
    return p < end ? bad(whole, len, "there is something behind the role", err) : 0;
}

static int add_label(struct mr_gen_plan *p, struct mr_error *err)
{
    static const struct {
        const char *format, *name;
    } names[] = {{"hdf5", "labels"}, {"npz", "labels"}, {"tar", "cls"}};
    const char *name = "label";
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++)
        if (strcmp(p->format->name, names[i].format) == 0)
            name = names[i].name;
    for (unsigned i = 0; i < p->n_fields; i++)
        if (strcmp(p->field[i].name, name) == 0)
            return mr_error_plain(err, MR_E_USAGE, "--labels makes a field '%s', and --fields names one, too", name);
    if (p->n_fields == MR_GEN_FIELDS_MAX)
        return mr_error_plain(err, MR_E_USAGE, "more than %u fields", MR_GEN_FIELDS_MAX);
    struct mr_gen_field *f = &p->field[p->n_fields++];
    *f = (struct mr_gen_field){
        .dtype = MR_I64, .storage = MR_FIELD_LABEL, .role = MR_FIELD_TARGET, .bytes = sizeof(int64_t)};
    snprintf(f->name, sizeof f->name, "%s", name);
    return 0;
}

static int parse_all(struct mr_gen_plan *p, struct mr_error *err)
{
    const char *text = p->spec.fields, *end = text + strlen(text);
    while (text < end) {
        const char *comma = memchr(text, ',', (size_t)(end - text)), *stop = comma ? comma : end;
        if (p->n_fields == MR_GEN_FIELDS_MAX)
            return mr_error_plain(err, MR_E_USAGE, "more than %u fields", MR_GEN_FIELDS_MAX);
        struct mr_gen_field *f = &p->field[p->n_fields];
        int r = parse_one(text, stop, p->n_fields == 0, f, err);
        if (r < 0)
            return r;
        for (unsigned i = 0; i < p->n_fields; i++)
            if (strcmp(p->field[i].name, f->name) == 0)
                return bad(text, (size_t)(stop - text), "there are two of this name", err);
        p->n_fields++;
        text = comma ? comma + 1 : end;
    }
    return 0;
}

struct mr_content mr_gen_field_content(const struct mr_content *set, unsigned k)
{
    struct mr_content c = *set;
    if (k)
        c.seed = mr_mix64(set->seed + k);
    return c;
}

int mr_gen_fields_resolve(struct mr_gen_plan *p, struct mr_error *err)
{
    const struct mr_field_ops *ops = mr_format_fields(p->format);
    if (!p->spec.fields || !*p->spec.fields)
        return 0;
    if (!ops || !ops->writer_open) {
        mr_error_plain(err, MR_E_USAGE, "format '%s' cannot be written with several fields", p->format->name);
        return mr_error_hint(err, "use hdf5, npz, tfrecord, tar, parquet, csv or json"), MR_E_USAGE;
    }
    if (p->spec.dims.n || p->spec.size_stdev_bytes)
        return mr_error_plain(err, MR_E_USAGE,
                              "--fields gives every field its shape: leave out --dims and --size-stdev");
    int r = parse_all(p, err);
    if (r >= 0 && p->spec.labels)
        r = add_label(p, err);
    for (unsigned k = 0; r >= 0 && k < p->n_fields; k++) {
        p->field[k].content = mr_gen_field_content(&p->content, k);
        if (p->field[k].storage != MR_FIELD_LABEL)
            p->field[k].storage = MR_FIELD_OPS_HAVE(ops, writes_as) ? ops->writes_as : MR_FIELD_RAW;
    }
    return r;
}

struct mr_field mr_gen_plan_field(const struct mr_gen_plan *p, unsigned k)
{
    const struct mr_gen_field *f = &p->field[k];
    return (struct mr_field){.name = f->name,
                             .dtype = f->dtype,
                             .storage = f->storage,
                             .role = f->role,
                             .variable = MR_FIELD_FIXED,
                             .dims = f->dims};
}

int mr_gen_plan_field_sample(const struct mr_gen_plan *p, unsigned k, uint64_t id, struct mr_sample_info *out,
                             struct mr_error *err)
{
    const struct mr_gen_field *f = &p->field[k];
    int r = mr_gen_plan_sample(p, id, out, err);
    if (r >= 0) {
        out->dtype = f->dtype;
        out->dims = f->dims;
        out->bytes = f->bytes;
    }
    return r;
}

int mr_gen_plan_compare_field(const struct mr_gen_plan *p, const char *name, uint64_t id, const struct mr_sample *s,
                              struct mr_error *err)
{
    struct mr_sample_info info;
    unsigned k = 0;
    while (k < p->n_fields && strcmp(p->field[k].name, name) != 0)
        k++;
    if (k == p->n_fields)
        return p->n_fields ? mr_error_plain(err, MR_E_CORRUPT, "the set was not generated with this field")
                           : mr_gen_plan_compare(p, id, s, err);
    int r = mr_gen_plan_field_sample(p, k, id, &info, err);
    if (r < 0)
        return r;
    if (p->field[k].storage == MR_FIELD_LABEL)
        return s->label == info.label ? 0
                                      : mr_error_plain(err, MR_E_CORRUPT, "wrong label: want %lld, have %lld",
                                                       (long long)info.label, (long long)s->label);
    if (s->bytes != info.bytes)
        return mr_error_plain(err, MR_E_CORRUPT, "wrong size: want %llu bytes, have %zu",
                              (unsigned long long)info.bytes, s->bytes);
    struct mr_sample_out have = {.data = s->data, .bytes = s->bytes, .dtype = info.dtype, .dims = info.dims};
    return p->format->check(&p->writer, &p->field[k].content, &info, &have, err);
}
