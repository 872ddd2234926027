/* The spec of a generated set: see gen_spec.h. */
#include "dataset/gen_spec.h"
#include "base/common.h"
#include "base/rng.h"

#include <errno.h>
#include <jansson.h>
#include <millrace/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const mr_gen_compressions[] = {"none", "gzip", "zip", NULL};

static const struct mr_option rows[] = {MR_GEN_SPEC_ROWS(0), MR_OPTION_END};
const struct mr_option_table mr_gen_spec_table = {.section = "gen",
                                                  .doc = "What a generated data set is.",
                                                  .options = rows,
                                                  .struct_bytes = sizeof(struct mr_gen_spec)};

static unsigned digits_of(uint64_t n)
{
    unsigned d = 1;
    for (; n >= 10; n /= 10)
        d++;
    return d;
}

static int resolve_names(struct mr_gen_plan *p, struct mr_error *err)
{
    const struct mr_gen_spec *s = &p->spec;
    struct mr_name_template *t = &p->names;
    uint64_t files = (uint64_t)s->files;
    if (!mr_name_is_safe(s->prefix, strlen(s->prefix)) || strchr(s->prefix, '/') || strlen(s->prefix) > 100 ||
        s->prefix[0] == '.' || strpbrk(s->prefix, "\n\r\t\033\177")) {
        mr_error_plain(err, MR_E_USAGE, "bad prefix '%s'", s->prefix);
        return mr_error_hint(err, "use 1 to 100 characters without '/' that do not begin with '.'"), MR_E_USAGE;
    }
    size_t ext = strcspn(p->format->extensions, ",");
    t->digits = digits_of(files);
    t->subfolders = (uint64_t)s->subfolders;
    t->folder_digits = t->subfolders ? digits_of(t->subfolders) : 0;
    snprintf(t->prefix, sizeof t->prefix, "%s_", s->prefix);
    snprintf(t->suffix, sizeof t->suffix, "_of_%llu%.*s", (unsigned long long)files, (int)ext, p->format->extensions);
    return 0;
}

static int check_against_format(const struct mr_gen_plan *p, struct mr_error *err)
{
    const struct mr_gen_spec *s = &p->spec;
    const char *name = p->format->name;
    if (s->samples_per_file > 1 && !(p->format->caps & MR_FMT_MULTI)) {
        mr_error_plain(err, MR_E_USAGE, "format '%s' holds one sample per file, %lld asked", name,
                       (long long)s->samples_per_file);
        return mr_error_hint(err, "use --samples-per-file 1 and more --files, or another format"), MR_E_USAGE;
    }
    if (s->size_stdev_bytes && s->dims.n)
        return mr_error_plain(err, MR_E_USAGE, "dims and size_stdev exclude each other: a fixed shape has one size");
    return 0;
}

/* The shape all samples have when sizes do not vary. */
static int resolve_fixed(struct mr_gen_plan *p, struct mr_error *err)
{
    struct mr_sample_info *i = &p->fixed;
    unsigned element = mr_dtype_bytes(p->writer.dtype);
    *i = (struct mr_sample_info){.dtype = p->writer.dtype, .label = MR_LABEL_NONE};
    if (!p->spec.dims.n && !p->n_fields) {
        int r = p->format->shape(&p->writer, p->spec.size_bytes, i, err);
        if (r < 0)
            return r;
        p->writer.dims = i->dims;
        p->writer.dtype = i->dtype;
        return 0;
    }
    i->dims = p->n_fields ? p->field[0].dims : p->spec.dims;
    i->bytes = element;
    for (unsigned d = 0; d < i->dims.n; d++)
        if (i->dims.dim[d] == 0 || __builtin_mul_overflow(i->bytes, i->dims.dim[d], &i->bytes) ||
            i->bytes > MR_LIMIT_SAMPLE_BYTES)
            return mr_error_plain(err, MR_E_USAGE, "dims give a sample of 0 bytes or beyond %llu GiB",
                                  (unsigned long long)(MR_LIMIT_SAMPLE_BYTES / MR_GIB));
    p->writer.dims = i->dims;
    return 0;
}

#define SPLIT_FILES_MAX 64u /* more than these keep the threads busy as they are */
#define PART_BYTES (64 * MR_MIB)

void mr_gen_plan_split(struct mr_gen_plan *p, uint64_t part_bytes)
{
    struct mr_sample_info one = p->fixed;
    uint64_t each = 0, k = p->writer.samples;
    one.label = p->spec.labels ? p->spec.labels - 1 : MR_LABEL_NONE;
    if (p->writer.fixed_size && !p->n_fields && p->format->part_bytes && (uint64_t)p->spec.files < SPLIT_FILES_MAX)
        each = p->format->part_bytes(&p->writer, &one);
    p->parts = 1;
    p->part_samples = k;
    if (!each || k < 4 || (double)each * (double)k < 2.0 * (double)part_bytes)
        return;
    p->record_bytes = each;
    p->part_samples = MR_MAX(part_bytes / each, 2u);
    while (k % p->part_samples == 1)
        p->part_samples++; /* no part of one sample: it could not tell the distance between two */
    p->parts = (k + p->part_samples - 1) / p->part_samples;
}

static double sample_bytes(const struct mr_gen_plan *p)
{
    double sum = 0;
    for (unsigned k = 0; k < p->n_fields; k++)
        sum += (double)p->field[k].bytes;
    return p->n_fields ? sum : (double)(p->spec.dims.n ? p->fixed.bytes : p->spec.size_bytes);
}

int mr_gen_plan_resolve(const struct mr_gen_spec *spec, const char *split, struct mr_gen_plan *out,
                        struct mr_error *err)
{
    struct mr_gen_plan p = {.spec = *spec, .split = split};
    p.format = mr_format_find(spec->format, err);
    if (!p.format)
        return MR_E_USAGE;
    enum mr_dtype dtype;
    bool swap;
    int r = mr_dtype_parse(spec->dtype, &dtype, &swap, err);
    if (r < 0)
        return r;
    if (swap)
        return mr_error_plain(err, MR_E_USAGE, "data sets are written little-endian, '%s' is big-endian", spec->dtype);
    if ((r = check_against_format(&p, err)) < 0 || (r = resolve_names(&p, err)) < 0)
        return r;
    if (__builtin_mul_overflow((uint64_t)spec->files, (uint64_t)spec->samples_per_file, &p.samples))
        return mr_error_plain(err, MR_E_USAGE, "files times samples_per_file is beyond 64 bits");
    bool valid = strcmp(split, "valid") == 0;
    uint64_t seed = (uint64_t)spec->seed;
    p.content = (struct mr_content){.seed = valid ? mr_mix64(seed ^ 0x64696c6176ull) >> 1 : seed,
                                    .compress_percent = (unsigned)spec->compressibility};
    p.writer = (struct mr_writer_spec){
        .samples = (uint64_t)spec->samples_per_file,
        .dtype = dtype,
        .fixed_size = spec->size_stdev_bytes == 0,
        .compression = (enum mr_compression)spec->compression,
        .compression_level = (int)spec->compression_level,
        .chunk_dims = spec->chunk,
        .quality = (unsigned)spec->quality,
        .content_seed = p.content.seed,
    };
    if ((r = mr_gen_fields_resolve(&p, err)) < 0)
        return r;
    p.writer.dtype = p.n_fields ? p.field[0].dtype : dtype;
    if (p.writer.fixed_size) {
        if ((r = resolve_fixed(&p, err)) < 0)
            return r;
        p.want_bytes = (double)p.samples * sample_bytes(&p);
    } else {
        p.size_per_file = spec->samples_per_file > 1 && !(p.format->caps & MR_FMT_VARSIZE);
        r = mr_sizes_init(&p.sizes, p.size_per_file ? (uint64_t)spec->files : p.samples, p.content.seed,
                          (double)spec->size_bytes, (double)spec->size_stdev_bytes, err);
        if (r < 0)
            return r;
        p.want_bytes = (double)p.samples * (double)spec->size_bytes;
    }
    mr_gen_plan_split(&p, PART_BYTES);
    *out = p;
    return 0;
}

int mr_gen_plan_sample(const struct mr_gen_plan *p, uint64_t id, struct mr_sample_info *out, struct mr_error *err)
{
    if (p->writer.fixed_size) {
        *out = p->fixed;
    } else {
        struct mr_sample_info i = {.id = id, .dtype = p->writer.dtype};
        uint64_t draw = p->size_per_file ? id / p->writer.samples : id;
        int r = p->format->shape(&p->writer, mr_sizes_at(&p->sizes, draw), &i, err);
        if (r < 0)
            return r;
        *out = i;
    }
    out->id = id;
    out->label =
        p->spec.labels ? mr_manifest_random_label(p->content.seed, id, (uint64_t)p->spec.labels) : MR_LABEL_NONE;
    return 0;
}

int mr_gen_plan_compare(const struct mr_gen_plan *p, uint64_t id, const struct mr_sample *s, struct mr_error *err)
{
    struct mr_sample_info info;
    struct mr_sample_out have = {.data = s->data, .bytes = s->bytes, .label = s->label, .dims.n = s->n_dims};
    bool swap;
    int r = mr_gen_plan_sample(p, id, &info, err);
    if (r < 0 || (r = mr_dtype_parse(s->dtype, &have.dtype, &swap, err)) < 0)
        return r;
    for (unsigned d = 0; d < s->n_dims; d++)
        have.dims.dim[d] = s->dims[d];
    if (!(p->format->caps & MR_FMT_LOSSY) && s->bytes != info.bytes)
        return mr_error_plain(err, MR_E_CORRUPT, "wrong size: want %llu bytes, have %zu",
                              (unsigned long long)info.bytes, s->bytes);
    if (s->label != info.label && info.label != MR_LABEL_NONE)
        return mr_error_plain(err, MR_E_CORRUPT, "wrong label: want %lld, have %lld", (long long)info.label,
                              (long long)s->label);
    return p->format->check(&p->writer, &p->content, &info, &have, err);
}

static void put_json_string(struct mr_strbuf *out, const char *key, const char *value)
{
    json_t *text = json_string(value);
    char *quoted = text ? json_dumps(text, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
    if (quoted)
        mr_strbuf_printf(out, "%s\"%s\":%s", out->len > 1 ? "," : "", key, quoted);
    else
        out->failed = true;
    free(quoted);
    json_decref(text);
}

void mr_gen_plan_to_json(const struct mr_gen_plan *p, struct mr_strbuf *out)
{
    char value[1024];
    mr_strbuf_putc(out, '{');
    put_json_string(out, "producer", "gen");
    put_json_string(out, "version", MR_VERSION);
    put_json_string(out, "split", p->split);
    for (const struct mr_option *o = rows; o->key; o++) {
        mr_option_print(o, &p->spec, value, sizeof value);
        put_json_string(out, o->key, value);
    }
    mr_strbuf_putc(out, '}');
}

static int read_json(json_t *root, struct mr_arena *a, struct mr_gen_spec *spec, const char **split,
                     const char **version, struct mr_error *err)
{
    const char *producer = json_string_value(json_object_get(root, "producer"));
    const char *split_text = json_string_value(json_object_get(root, "split"));
    const char *version_text = json_string_value(json_object_get(root, "version"));
    if (!producer || strcmp(producer, "gen") != 0 || !split_text)
        return mr_error_plain(err, MR_E_FORMAT, "the data set was not made by 'millrace gen'");
    int r = mr_options_defaults(&mr_gen_spec_table, a, spec, err);
    for (const struct mr_option *o = rows; r >= 0 && o->key; o++) {
        const char *value = json_string_value(json_object_get(root, o->key));
        if (value)
            r = mr_option_parse(&mr_gen_spec_table, o, value, a, spec, err);
    }
    *split = strcmp(split_text, "valid") == 0 ? "valid" : "train";
    if (version)
        *version = mr_arena_strdup(a, version_text ? version_text : "");
    return r < 0 ? MR_E_FORMAT : 0;
}

int mr_gen_spec_from_json(const char *json, struct mr_arena *a, struct mr_gen_spec *spec, const char **split,
                          const char **version, struct mr_error *err)
{
    json_t *root = json_loads(json, 0, NULL);
    if (!root)
        return mr_error_plain(err, MR_E_FORMAT, "the spec in the manifest is not JSON");
    int r = read_json(root, a, spec, split, version, err);
    json_decref(root);
    return r;
}

bool mr_gen_plan_of_manifest(const struct mr_manifest *m, struct mr_arena *a, struct mr_gen_plan *out,
                             const char **version)
{
    const struct mr_manifest_info *i = mr_manifest_get_info(m);
    struct mr_gen_spec spec;
    struct mr_gen_plan plan;
    const char *split;
    struct mr_error ignored;
    if (!(i->flags & MR_MANIFEST_GENERATED) || i->content_version != MR_CONTENT_VERSION ||
        i->rng_version != MR_RNG_VERSION)
        return false;
    if (mr_gen_spec_from_json(mr_manifest_get_spec(m), a, &spec, &split, version, &ignored) < 0 ||
        mr_gen_plan_resolve(&spec, split, &plan, &ignored) < 0 || plan.samples != i->all_samples ||
        (uint64_t)spec.files != i->all_files || plan.content.seed != i->seed)
        return false;
    *out = plan;
    return true;
}

unsigned mr_gen_spec_diff(const struct mr_gen_spec *there, const struct mr_gen_spec *asked, struct mr_strbuf *out)
{
    unsigned n = 0;
    char a[1024], b[1024];
    for (const struct mr_option *o = rows; o->key; o++) {
        mr_option_print(o, there, a, sizeof a);
        mr_option_print(o, asked, b, sizeof b);
        if (strcmp(a, b) != 0)
            mr_strbuf_printf(out, "%s%s is %s there, %s asked", n++ ? "; " : "", o->key, a, b);
    }
    return n;
}
