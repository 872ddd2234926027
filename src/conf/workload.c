/* Resolving a workload: defaults, then the file, then the environment, then the overrides, then the notes and checks.
 */
#include "conf/workload_apply.h"
#include "conf/sample_fields.h"

#include "base/common.h"
#include "base/strbuf.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int create(struct mr_arena *a, struct mr_workload **out, struct mr_error *err)
{
    struct mr_workload *w = mr_arena_alloc(a, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot hold a workload");
    w->name = w->file = w->extra.source = w->extra.storage_model = "";
    w->extra.scale = 1;
    for (int s = 0; mr_workload_sections[s].table; s++) {
        const struct mr_option_table *t = mr_workload_sections[s].table;
        unsigned rows = 0;
        while (t->options[rows].key)
            rows++;
        w->origins[s] = mr_arena_alloc(a, (rows + 1) * sizeof(*w->origins[s]));
        if (!w->origins[s])
            return mr_error_set(err, -ENOMEM, "cannot hold a workload");
        for (unsigned i = 0; i < rows; i++)
            w->origins[s][i].where = "";
        int rc = mr_options_defaults(t, a, (char *)w + mr_workload_sections[s].offset, err);
        if (rc)
            return rc;
    }
    *out = w;
    return 0;
}

/* ---- environment ---- */

static int env_unknown(struct mr_applier *ap, const char *name)
{
    for (int s = 1; mr_workload_sections[s].table; s++) {
        const struct mr_option_table *t = mr_workload_sections[s].table;
        const struct mr_option probe = {.key = ""};
        char prefix[160], key[100];
        size_t n = strlen(mr_option_env_name(t, &probe, prefix, sizeof prefix));
        /* "model" must not take MILLRACE_MODEL_PARALLELISM_...: the longest section is tried by the others. */
        bool longer = false;
        for (int o = 1; mr_workload_sections[o].table; o++) {
            char other[160];
            size_t m = strlen(mr_option_env_name(mr_workload_sections[o].table, &probe, other, sizeof other));
            longer |= m > n && !strncmp(name, other, m);
        }
        if (longer || strncmp(name, prefix, n) != 0)
            continue;
        snprintf(key, sizeof key, "%s", name + n);
        for (char *c = key; *c; c++)
            *c = (char)(*c >= 'A' && *c <= 'Z' ? *c + 32 : *c);
        return mr_apply_unknown(ap, t->section, key, 0);
    }
    return 0;
}

static int apply_variable(struct mr_applier *ap, const char *name, const char *value)
{
    for (int s = 0; mr_workload_sections[s].table; s++) {
        const struct mr_option_table *t = mr_workload_sections[s].table;
        for (const struct mr_option *o = t->options; o->key; o++) {
            char env[160];
            if (!strcmp(mr_option_env_name(t, o, env, sizeof env), name))
                return mr_apply_text(ap, s, o, value, 0);
        }
    }
    return env_unknown(ap, name);
}

static int apply_env(struct mr_applier *ap, char *const *envp)
{
    ap->kind = MR_ORIGIN_ENV;
    for (; envp && *envp; envp++) {
        const char *eq = strchr(*envp, '=');
        if (strncmp(*envp, "MILLRACE_", 9) != 0 || !eq)
            continue;
        ap->where = mr_arena_strndup(ap->arena, *envp, (size_t)(eq - *envp));
        int rc = ap->where ? apply_variable(ap, ap->where, eq + 1) : mr_error_set(ap->err, -ENOMEM, "out of memory");
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- overrides ---- */

struct override {
    bool remove;
    char *path;        /* without "workload."; arena */
    const char *value; /* or NULL */
};

static int split_override(const char *word, struct mr_arena *a, struct override *out, const char **shown)
{
    const char *key = word;
    out->remove = *key == '~';
    if (out->remove)
        key++;
    while (*key == '+')
        key++;
    const char *eq = strchr(key, '=');
    size_t n = eq ? (size_t)(eq - key) : strlen(key);
    *shown = mr_arena_strndup(a, word, (size_t)(key - word) + n);
    if (n > 9 && !strncmp(key, "workload.", 9)) {
        key += 9;
        n -= 9;
    }
    out->path = mr_arena_strndup(a, key, n);
    out->value = eq ? eq + 1 : NULL;
    return out->path && *shown ? 0 : -ENOMEM;
}

/* Lists, maps and quoted texts are YAML; everything else is a bare text, so that s3://x or *.npz need no quotes. */
static int value_node(struct mr_applier *ap, const char *text, struct mr_yaml_node **out)
{
    if (*text && strchr("[{\"'", *text))
        return mr_yaml_parse(text, strlen(text), ap->where, ap->arena, out, ap->err);
    struct mr_yaml_node *n = mr_arena_alloc(ap->arena, sizeof(*n));
    if (!n)
        return mr_error_set(ap->err, -ENOMEM, "cannot keep an override");
    *n = (struct mr_yaml_node){.kind = MR_YAML_SCALAR, .plain = true, .line = 1, .text = text, .weight = 1};
    *out = n;
    return 0;
}

/* Wraps `leaf` into {name: leaf}. */
static struct mr_yaml_node *wrap(struct mr_arena *a, const char *name, struct mr_yaml_node *leaf)
{
    struct mr_yaml_node *map = mr_arena_alloc(a, sizeof(*map)), *key = mr_arena_alloc(a, sizeof(*key));
    if (!map || !key || !(map->key = mr_arena_alloc(a, sizeof(struct mr_yaml_node *))) ||
        !(map->value = mr_arena_alloc(a, sizeof(struct mr_yaml_node *))))
        return NULL;
    key->kind = MR_YAML_SCALAR;
    key->line = map->line = 1;
    key->text = name;
    map->kind = MR_YAML_MAP;
    map->n = 1;
    map->key[0] = key;
    map->value[0] = leaf;
    return map;
}

static int set_path(struct mr_applier *ap, char *path, const char *value)
{
    struct mr_yaml_node *node = NULL;
    int rc = value_node(ap, value, &node);
    unsigned depth = 0;
    while (!rc && node) {
        char *dot = strrchr(path, '.');
        const char *name = dot ? dot + 1 : path;
        if (!*name || ++depth > 8) {
            mr_error_plain(ap->err, MR_E_USAGE, "not a key: '%s'", ap->where);
            return MR_E_USAGE;
        }
        node = wrap(ap->arena, name, node);
        if (!dot)
            break;
        *dot = '\0';
    }
    if (rc)
        return rc;
    return node ? mr_apply_top(ap, node) : mr_error_set(ap->err, -ENOMEM, "cannot keep an override");
}

/* The default again. Where something else was set, the origin says that it was removed: default ~section.key. */
static int remove_key(struct mr_applier *ap, int section, const struct mr_option *o)
{
    const struct mr_option_table *t = mr_workload_sections[section].table;
    struct mr_value_origin *v = &ap->w->origins[section][o - t->options];
    bool was_set = v->kind != MR_ORIGIN_DEFAULT;
    int rc = mr_apply_default(ap, section, o);
    if (rc || !was_set)
        return rc;
    v->where = mr_arena_printf(ap->arena, "~%s%s%s", t->section, *t->section ? "." : "", o->key);
    return v->where ? 0 : mr_error_set(ap->err, -ENOMEM, "cannot keep an override");
}

/* ~key is the default again; ~section as well, for all keys in it; ~key=value only where that is the value. */
static int remove_path(struct mr_applier *ap, const struct override *ov)
{
    int section = mr_workload_section_index(ov->path);
    if (section > 0) {
        for (const struct mr_option *o = mr_workload_sections[section].table->options; o->key; o++) {
            int rc = remove_key(ap, section, o);
            if (rc)
                return rc;
        }
        return 0;
    }
    const char *dot = strrchr(ov->path, '.'), *key = dot ? dot + 1 : ov->path;
    char parent[128];
    snprintf(parent, sizeof parent, "%.*s", dot ? (int)(dot - ov->path) : 0, ov->path);
    section = mr_workload_section_index(parent);
    const struct mr_option *o = section >= 0 ? mr_option_find(mr_workload_sections[section].table, key) : NULL;
    if (!o)
        return mr_apply_unknown(ap, section >= 0 ? mr_workload_sections[section].table->section : parent, key, 0);
    if (ov->value) {
        char now[512];
        mr_option_print(o, (const char *)ap->w + mr_workload_sections[section].offset, now, sizeof now);
        if (strcasecmp(now, ov->value) != 0) {
            mr_error_plain(ap->err, MR_E_CONFIG, "'%s' is '%s', not '%.100s', so it is not removed", ov->path, now,
                           ov->value);
            return mr_apply_where(ap, 0), MR_E_CONFIG;
        }
    }
    return remove_key(ap, section, o);
}

static int apply_hydra(struct mr_applier *ap, const struct override *ov)
{
    if (!strcmp(ov->path, "hydra.run.dir") && ov->value && !ov->remove) {
        int s = mr_workload_section_index("output");
        mr_workload_note(ap->w, ap->arena, "hydra.run.dir is taken as output.folder");
        return mr_apply_text(ap, s, mr_option_find(mr_workload_sections[s].table, "folder"), ov->value, 0);
    }
    if (ap->lenient)
        return mr_workload_note(ap->w, ap->arena, "'%s' is ignored: Hydra itself is not used", ov->path);
    mr_error_plain(ap->err, MR_E_CONFIG, "'%s' is a setting of Hydra itself, which is not used here", ov->path);
    return mr_error_hint(ap->err, "leave it out, or use 'output.folder=DIR' for the results; '--lenient' ignores it"),
           MR_E_CONFIG;
}

/* `plugins`: only the key `plugin`, which comes before everything that may name what plug-ins bring. */
static int apply_overrides(struct mr_applier *ap, const struct mr_strings *words, bool plugins)
{
    ap->kind = MR_ORIGIN_OVERRIDE;
    for (unsigned i = 0; i < words->n; i++) {
        struct override ov;
        if (split_override(words->item[i], ap->arena, &ov, &ap->where))
            return mr_error_set(ap->err, -ENOMEM, "cannot keep an override");
        int rc;
        if (!strcmp(ov.path, "workload"))
            continue; /* chosen before */
        if (plugins != !strcmp(ov.path, "plugin"))
            continue;
        if (!strncmp(ov.path, "hydra.", 6))
            rc = apply_hydra(ap, &ov);
        else if (ov.remove)
            rc = remove_path(ap, &ov);
        else if (!ov.value)
            rc = mr_error_plain(ap->err, MR_E_USAGE, "'%s' needs a value: KEY=VALUE", words->item[i]);
        else
            rc = set_path(ap, ov.path, ov.value);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- presets ---- */

static bool is_path(const char *name)
{
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 5 && !strcmp(name + n - 5, ".yaml")) || (n > 4 && !strcmp(name + n - 4, ".yml"));
}

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* The presets whose names begin with `name` and '_': "unet3d" stands for unet3d_a100, unet3d_h100. */
static void put_family(const struct mr_strings *names, const char *name, struct mr_strbuf *out)
{
    size_t n = strlen(name);
    for (unsigned i = 0; n && i < names->n; i++)
        if (!strncmp(names->item[i], name, n) && strchr("_-", names->item[i][n]) && names->item[i][n])
            mr_strbuf_printf(out, "%s'%s'", out->len ? ", " : "", names->item[i]);
}

static int unknown_workload(const char *name, const struct mr_strings *search_path, struct mr_arena *a,
                            struct mr_error *err)
{
    struct mr_strings names = {0};
    struct mr_nearest near = {.word = name};
    struct mr_strbuf family = {0};
    mr_error_plain(err, MR_E_CONFIG, "there is no workload '%.200s'", name);
    if (!mr_workload_list(search_path, a, &names, NULL)) {
        for (unsigned i = 0; i < names.n; i++)
            mr_nearest_offer(&near, names.item[i]);
        put_family(&names, name, &family);
    }
    if (family.len && !family.failed)
        mr_error_hint(err, "there is %.400s", family.text);
    else if (mr_nearest_name(&near))
        mr_error_hint(err, "did you mean '%s'?", mr_nearest_name(&near));
    mr_strbuf_done(&family);
    return mr_error_hint(err, "list them with 'millrace workloads list', or name a file"), MR_E_CONFIG;
}

int mr_workload_find(const char *name, const struct mr_strings *search_path, struct mr_arena *a, const char **path,
                     struct mr_error *err)
{
    static const char *const forms[] = {"%s/%s.yaml", "%s/workload/%s.yaml", "%s/%s.yml"};
    char *copy = is_path(name) ? mr_arena_strdup(a, name) : NULL;
    if (copy) {
        *path = copy;
        return 0;
    }
    for (unsigned i = 0; i < search_path->n; i++)
        for (size_t f = 0; f < MR_ARRAY_LEN(forms); f++) {
            char candidate[4096];
            snprintf(candidate, sizeof candidate, forms[f], search_path->item[i], name);
            if (!is_file(candidate))
                continue;
            copy = mr_arena_strdup(a, candidate);
            if (!copy) {
                mr_error_set(err, -ENOMEM, "cannot keep the name of a workload");
                return -ENOMEM;
            }
            *path = copy;
            return 0;
        }
    return unknown_workload(name, search_path, a, err);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int list_folder(const char *folder, struct mr_arena *a, struct mr_strings *names, unsigned *cap)
{
    DIR *d = opendir(folder);
    int rc = 0;
    for (struct dirent *e; d && !rc && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (n < 6 || e->d_name[0] == '.' || strcmp(e->d_name + n - 5, ".yaml") != 0)
            continue;
        if (names->n == *cap) {
            unsigned wanted = *cap ? *cap * 2 : 64;
            const char **item = mr_arena_alloc(a, wanted * sizeof(*item));
            if (!item) {
                rc = -ENOMEM;
                break;
            }
            if (names->n)
                memcpy(item, names->item, names->n * sizeof(*item));
            names->item = item;
            *cap = wanted;
        }
        if (!(names->item[names->n] = mr_arena_strndup(a, e->d_name, n - 5)))
            rc = -ENOMEM;
        else
            names->n++;
    }
    if (d)
        closedir(d);
    return rc;
}

int mr_workload_list(const struct mr_strings *search_path, struct mr_arena *a, struct mr_strings *names,
                     struct mr_error *err)
{
    struct mr_strings all = {0};
    unsigned cap = 0, kept = 0;
    for (unsigned i = 0; i < search_path->n; i++) {
        char sub[4096];
        snprintf(sub, sizeof sub, "%s/workload", search_path->item[i]);
        if (list_folder(search_path->item[i], a, &all, &cap) || list_folder(sub, a, &all, &cap))
            return mr_error_set(err, -ENOMEM, "cannot list the workloads");
    }
    if (all.n)
        qsort(all.item, all.n, sizeof(*all.item), compare_names);
    for (unsigned i = 0; i < all.n; i++)
        if (i == 0 || strcmp(all.item[i], all.item[i - 1]) != 0)
            all.item[kept++] = all.item[i];
    all.n = kept;
    *names = all;
    return 0;
}

/* ---- resolving ---- */

static const char *stem(const char *path, struct mr_arena *a)
{
    const char *base = strrchr(path, '/'), *dot;
    base = base ? base + 1 : path;
    dot = strrchr(base, '.');
    const char *name = mr_arena_strndup(a, base, dot && dot != base ? (size_t)(dot - base) : strlen(base));
    return name ? name : "";
}

/* workload=NAME, the last one wins; otherwise what the caller asked for. */
const char *mr_workload_chosen(const struct mr_workload_request *req)
{
    const char *name = req->workload && *req->workload ? req->workload : NULL;
    for (unsigned i = 0; i < req->overrides.n; i++) {
        const char *word = req->overrides.item[i] + strspn(req->overrides.item[i], "+");
        if (!strncmp(word, "workload=", 9))
            name = word + 9;
    }
    return name;
}

static int load_file(struct mr_applier *ap, const char *name, const struct mr_strings *search_path)
{
    struct mr_yaml_node *root = NULL;
    const char *path = NULL;
    int rc = mr_workload_find(name, search_path, ap->arena, &path, ap->err);
    if (!rc)
        rc = mr_yaml_load(path, ap->arena, &root, ap->err);
    if (!rc && root->kind == MR_YAML_MAP && root->n == 0) {
        rc = mr_error_plain(ap->err, MR_E_CONFIG, "the workload file '%s' is empty", path);
        mr_error_hint(ap->err, "to run on the defaults, give no workload; 'millrace help config' lists the keys");
    }
    if (rc)
        return rc;
    assert(path); /* set by mr_workload_find on success */
    ap->kind = MR_ORIGIN_FILE;
    ap->where = path;
    ap->w->file = path;
    ap->w->name = stem(path, ap->arena);
    return mr_apply_top(ap, root);
}

int mr_workload_resolve(const struct mr_workload_request *req, struct mr_arena *a, struct mr_workload **out,
                        struct mr_error *err)
{
    struct mr_error scratch;
    struct mr_applier ap = {.arena = a, .lenient = req->lenient, .err = err ? err : &scratch};
    const char *name = mr_workload_chosen(req);
    int rc = create(a, &ap.w, ap.err);
    if (!rc)
        rc = apply_overrides(&ap, &req->overrides, true);
    struct mr_strings overridden = rc ? (struct mr_strings){0} : ap.w->top.plugin;
    if (!rc && name)
        rc = load_file(&ap, name, &req->search_path);
    if (!rc)
        rc = apply_env(&ap, req->envp);
    if (!rc)
        rc = apply_overrides(&ap, &req->overrides, false);
    if (!rc && overridden.n)
        rc = apply_overrides(&ap, &req->overrides, true); /* again, for the value and its origin: loaded once */
    if (!rc)
        rc = mr_trap_finish(ap.w, a, ap.err);
    if (!rc)
        *out = ap.w;
    return rc;
}

int mr_workload_parse(const char *text, size_t len, const char *name, bool lenient, struct mr_arena *a,
                      struct mr_workload **out, struct mr_error *err)
{
    struct mr_error scratch;
    struct mr_applier ap = {
        .arena = a, .lenient = lenient, .kind = MR_ORIGIN_FILE, .where = name, .err = err ? err : &scratch};
    struct mr_yaml_node *root = NULL;
    int rc = mr_yaml_parse(text, len, name, a, &root, ap.err);
    if (!rc)
        rc = create(a, &ap.w, ap.err);
    if (!rc)
        rc = mr_apply_top(&ap, root);
    if (!rc)
        rc = mr_trap_finish(ap.w, a, ap.err);
    if (!rc)
        *out = ap.w;
    return rc;
}

/* ---- what a value is ---- */

double mr_dist_mean(const struct mr_dist *d)
{
    switch (d->kind) {
    case MR_DIST_UNIFORM: return (d->a + d->b) / 2;
    case MR_DIST_GAMMA: return d->a * d->b;
    case MR_DIST_CONSTANT:
    case MR_DIST_NORMAL:
    case MR_DIST_EXPONENTIAL:
    case MR_DIST_POISSON: break;
    }
    return d->a;
}

unsigned mr_conf_element_bytes(const char *name)
{
    static const struct {
        const char *name;
        unsigned bytes;
    } types[] = {
        {"uint8", 1},       {"int8", 1},     {"bool", 1},  {"uint16", 2},  {"int16", 2}, {"float16", 2},
        {"fp16", 2},        {"bfloat16", 2}, {"bf16", 2},  {"uint32", 4},  {"int32", 4}, {"float32", 4},
        {"fp32", 4},        {"uint64", 8},   {"int64", 8}, {"float64", 8}, {"fp64", 8},  {"complex64", 8},
        {"complex128", 16}, {"u1", 1},       {"i1", 1},    {"u2", 2},      {"i2", 2},    {"f2", 2},
        {"u4", 4},          {"i4", 4},       {"f4", 4},    {"u8", 8},      {"i8", 8},    {"f8", 8},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(types); i++)
        if (!strcasecmp(types[i].name, name))
            return types[i].bytes;
    return 0;
}

static double sample_bytes(const struct mr_workload *w, bool only_read)
{
    const struct mr_conf_dataset *d = &w->dataset;
    double bytes = mr_conf_element_bytes(d->record_element_type), all, read;
    if (bytes == 0)
        return -1;
    if (mr_sample_fields_bytes(w, &all, &read, NULL) == 1)
        return all < 9007199254740992.0 ? (only_read ? read : all) : -1;
    if (!d->record_dims.n)
        return d->record_length_bytes;
    for (unsigned i = 0; i < d->record_dims.n; i++)
        bytes *= (double)d->record_dims.dim[i];
    return bytes < 9007199254740992.0 ? bytes : -1;
}

double mr_workload_record_bytes(const struct mr_workload *w)
{
    return sample_bytes(w, false);
}

double mr_workload_read_bytes(const struct mr_workload *w)
{
    return sample_bytes(w, true);
}

/* Which compressions a format has here. DLIO ignores the others without a word. */
static bool can_compress(const struct mr_conf_dataset *d)
{
    switch ((enum mr_conf_format)d->format) {
    case MR_CF_TFRECORD:
    case MR_CF_HDF5:
    case MR_CF_PARQUET:
    case MR_CF_CSV:
    case MR_CF_JSON:
    case MR_CF_JSONL: return d->compression == MR_CC_GZIP;
    case MR_CF_NPZ: return d->compression == MR_CC_ZIP;
    default: return d->format >= MR_CF_COUNT; /* a plug-in's writer says what it knows */
    }
}

int mr_workload_check_supported(const struct mr_workload *w, struct mr_error *err)
{
    const struct mr_conf_dataset *d = &w->dataset;
    bool needs_data = w->workflow.train || w->workflow.generate_data || w->workflow.evaluation;
    if (!needs_data)
        return 0;
    if (d->compression != MR_CC_NONE && !can_compress(d)) {
        const struct mr_workload_section *s = &mr_workload_sections[mr_workload_section_index("dataset")];
        char name[32];
        mr_option_print(mr_option_find(s->table, "compression"), d, name, sizeof name);
        mr_error_plain(err, MR_E_UNSUPPORTED, "compression '%s' is not available for format '%s'", name,
                       mr_conf_format_name((enum mr_conf_format)d->format));
        return mr_error_hint(err, "gzip works for tfrecord, hdf5, parquet, csv, json and jsonl, zip for npz"),
               MR_E_UNSUPPORTED;
    }
    return 0;
}
