/* Systems from YAML: see system_yaml.h for the syntax. Bytes become MB here, and nowhere else. */
#include "model/system_yaml.h"
#include "base/common.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MB 1e6

struct raw_class {
    const char *name;
    uint64_t capacity;
    int64_t threads;
    struct mr_curve read, write;
};

struct raw_request {
    uint64_t size, bandwidth, stream, buffered_bandwidth, buffered_stream;
    double spread, buffered_spread;
};

struct raw_system {
    const char *name, *source, *notes;
    uint64_t compute, preprocess, network;
    uint64_t link, stream, latency_ns;
    double metadata_rate, spread;
    struct mr_curve pfs, pfs_write;
    struct raw_class classes[MR_CLASS_MAX];
    unsigned n_classes;
    struct raw_request requests[MR_REQUESTS_MAX];
    unsigned n_requests;
};

/* {1: 66MB, 2: 86MB}: counts to rates. A single rate stands for any count. */
static int read_curve(const struct mr_yaml_reader *r, const struct mr_yaml_node *n, struct mr_curve *out,
                      struct mr_error *err)
{
    uint64_t bytes;
    *out = (struct mr_curve){0};
    if (n->kind == MR_YAML_SCALAR) {
        if (mr_parse_bytes(n->text, &bytes))
            mr_error_plain(err, MR_E_CONFIG,
                           "bad rate '%.100s': a size like 100MB (per second) or a table {1: 66MB, ...}", n->text);
        else if (mr_curve_add(out, 1, (double)bytes / MB, err) == 0)
            return 0;
        return mr_yaml_where(r, n, MR_E_CONFIG, err);
    }
    if (n->kind != MR_YAML_MAP || n->n == 0) {
        mr_error_plain(err, MR_E_CONFIG, "a rate table is a map of counts to rates, like {1: 66MB, 4: 146MB}");
        return mr_yaml_where(r, n, MR_E_CONFIG, err);
    }
    for (unsigned i = 0; i < n->n; i++) {
        double count;
        if (n->value[i]->kind != MR_YAML_SCALAR || mr_parse_double(n->key[i]->text, &count) ||
            mr_parse_bytes(n->value[i]->text, &bytes))
            mr_error_plain(err, MR_E_CONFIG, "bad entry '%.60s' in a rate table: want COUNT: SIZE, like 4: 146MB",
                           n->key[i]->text);
        else if (mr_curve_add(out, count, (double)bytes / MB, err) == 0)
            continue;
        return mr_yaml_where(r, n->key[i], MR_E_CONFIG, err);
    }
    return 0;
}

static int read_read(const struct mr_yaml_reader *r, const struct mr_yaml_node *n, void *obj, struct mr_error *err)
{
    return read_curve(r, n, &((struct raw_class *)obj)->read, err);
}

static int read_write(const struct mr_yaml_reader *r, const struct mr_yaml_node *n, void *obj, struct mr_error *err)
{
    return read_curve(r, n, &((struct raw_class *)obj)->write, err);
}

static int read_bandwidth(const struct mr_yaml_reader *r, const struct mr_yaml_node *n, void *obj, struct mr_error *err)
{
    return read_curve(r, n, &((struct raw_system *)obj)->pfs, err);
}

static int read_pfs_write(const struct mr_yaml_reader *r, const struct mr_yaml_node *n, void *obj, struct mr_error *err)
{
    return read_curve(r, n, &((struct raw_system *)obj)->pfs_write, err);
}

#define CLASS_FIELD(f) .key = #f, .offset = offsetof(struct raw_class, f)
#define ROW(key, field, type, def, ...) MR_OPTION(raw_class, key, field, type, def, __VA_ARGS__)
static const struct mr_option class_rows[] = {
    {CLASS_FIELD(name), .type = MR_OPT_STRING, .def = "", .doc = "Name of the class, like ram or ssd."},
    {CLASS_FIELD(capacity), .type = MR_OPT_BYTES, .def = "0", .doc = "Capacity per node."},
    {CLASS_FIELD(threads), .type = MR_OPT_INT, .def = "1", .min = 1, .max = 64, .doc = "Prefetch threads."},
    ROW("read", name, STRING, "", .doc = "Read rates by threads."),
    ROW("write", name, STRING, "", .doc = "Write rates by threads; as read if left out."),
    MR_OPTION_END,
};
static const struct mr_option_table class_table = {"classes", "A storage class of a node.", class_rows,
                                                   sizeof(struct raw_class)};
static const struct mr_yaml_nested class_nested[] = {{"read", read_read}, {"write", read_write}, {NULL, NULL}};

#define RATE_ROW(f, text)                                                                                              \
    {                                                                                                                  \
        .key = #f, .offset = offsetof(struct raw_request, f), .type = MR_OPT_BYTES, .def = "0", .doc = text            \
    }
#define SPREAD_ROW(f)                                                                                                  \
    {                                                                                                                  \
        .key = #f, .offset = offsetof(struct raw_request, f), .type = MR_OPT_DOUBLE, .def = "0", .min = 0, .max = 10,  \
        .doc = "By which share the rates varied when they were measured."                                              \
    }
static const struct mr_option request_rows[] = {
    RATE_ROW(size, "Bytes of a request."),
    RATE_ROW(bandwidth, "What direct reads of this size get in all; 0 = not known."),
    RATE_ROW(stream, "What one thread gets of it."),
    SPREAD_ROW(spread),
    RATE_ROW(buffered_bandwidth, "What reads through a cold page cache get in all; 0 = not known."),
    RATE_ROW(buffered_stream, "What one thread gets of it."),
    SPREAD_ROW(buffered_spread),
    MR_OPTION_END,
};
static const struct mr_option_table request_table = {"requests", "Rates by the size of requests.", request_rows,
                                                     sizeof(struct raw_request)};

static int read_requests(const struct mr_yaml_reader *r, const struct mr_yaml_node *n, void *obj, struct mr_error *err)
{
    static const struct mr_yaml_nested none[] = {{NULL, NULL}};
    struct raw_system *s = obj;
    if (n->kind != MR_YAML_LIST || n->n > MR_REQUESTS_MAX) {
        mr_error_plain(err, MR_E_CONFIG, "'requests' is a list of at most %d sizes with their rates", MR_REQUESTS_MAX);
        return mr_yaml_where(r, n, MR_E_CONFIG, err);
    }
    int rc = 0;
    for (s->n_requests = 0; s->n_requests < n->n && !rc; s->n_requests++) {
        struct raw_request *q = &s->requests[s->n_requests];
        rc = mr_options_defaults(&request_table, r->arena, q, err);
        if (!rc)
            rc = mr_yaml_read_map(r, n->value[s->n_requests], &request_table, none, q, err);
        if (!rc && (!q->size || (s->n_requests && q->size <= q[-1].size))) {
            mr_error_plain(err, MR_E_CONFIG, "the sizes in 'requests' must rise and be above 0");
            rc = mr_yaml_where(r, n->value[s->n_requests], MR_E_CONFIG, err);
        }
    }
    return rc;
}

#define SYSTEM_FIELD(f) .offset = offsetof(struct raw_system, f)
static const struct mr_option pfs_rows[] = {
    {.key = "link",
     SYSTEM_FIELD(link),
     .type = MR_OPT_BYTES,
     .def = "1000000MB",
     .min = 1,
     .max = 1e18,
     .doc = "Rate between a node and the PFS."},
    {.key = "stream",
     SYSTEM_FIELD(stream),
     .type = MR_OPT_BYTES,
     .def = "0",
     .doc = "What one thread gets from the PFS at most; 0 = no limit of its own."},
    {.key = "latency", SYSTEM_FIELD(latency_ns), .type = MR_OPT_DURATION, .def = "0", .doc = "Latency of a request."},
    {.key = "metadata_rate",
     SYSTEM_FIELD(metadata_rate),
     .type = MR_OPT_DOUBLE,
     .def = "0",
     .min = 0,
     .max = 1e12,
     .doc = "Opens per second over all clients; 0 = unlimited."},
    {.key = "spread",
     SYSTEM_FIELD(spread),
     .type = MR_OPT_DOUBLE,
     .def = "0",
     .min = 0,
     .max = 10,
     .doc = "By which share the rates of reading varied when they were measured; predictions say what follows."},
    {.key = "bandwidth", SYSTEM_FIELD(name), .type = MR_OPT_STRING, .def = "", .doc = "Aggregate rates by clients."},
    {.key = "write",
     SYSTEM_FIELD(name),
     .type = MR_OPT_STRING,
     .def = "",
     .doc = "Aggregate rates of writing by clients; as bandwidth if left out."},
    {.key = "requests",
     SYSTEM_FIELD(name),
     .type = MR_OPT_STRING,
     .def = "",
     .doc =
         "Rates of one client by the size of its requests, direct and buffered, as 'millrace calibrate' writes them; "
         "in place of bandwidth and stream where the size is known."},
    MR_OPTION_END,
};
static const struct mr_option_table pfs_table = {"pfs", "The parallel file system.", pfs_rows,
                                                 sizeof(struct raw_system)};
static const struct mr_yaml_nested pfs_nested[] = {
    {"bandwidth", read_bandwidth}, {"write", read_pfs_write}, {"requests", read_requests}, {NULL, NULL}};

static int read_pfs(const struct mr_yaml_reader *r, const struct mr_yaml_node *n, void *obj, struct mr_error *err)
{
    return mr_yaml_read_map(r, n, &pfs_table, pfs_nested, obj, err);
}

static int read_classes(const struct mr_yaml_reader *r, const struct mr_yaml_node *n, void *obj, struct mr_error *err)
{
    struct raw_system *s = obj;
    if (n->kind != MR_YAML_LIST || n->n == 0 || n->n > MR_CLASS_MAX) {
        mr_error_plain(err, MR_E_CONFIG,
                       "'classes' is a list of 1 to %d storage classes; the first is the staging buffer", MR_CLASS_MAX);
        return mr_yaml_where(r, n, MR_E_CONFIG, err);
    }
    int rc = 0;
    for (s->n_classes = 0; s->n_classes < n->n && !rc; s->n_classes++) {
        struct raw_class *k = &s->classes[s->n_classes];
        rc = mr_options_defaults(&class_table, r->arena, k, err);
        if (!rc)
            rc = mr_yaml_read_map(r, n->value[s->n_classes], &class_table, class_nested, k, err);
    }
    return rc;
}

static const struct mr_option system_rows[] = {
    {.key = "name", SYSTEM_FIELD(name), .type = MR_OPT_STRING, .def = "", .doc = "Name of the system."},
    {.key = "source", SYSTEM_FIELD(source), .type = MR_OPT_STRING, .def = "", .doc = "Where the figures come from."},
    {.key = "notes",
     SYSTEM_FIELD(notes),
     .type = MR_OPT_STRING,
     .def = "",
     .doc = "What a reader should know about the figures."},
    {.key = "compute",
     SYSTEM_FIELD(compute),
     .type = MR_OPT_BYTES,
     .def = "0",
     .doc = "How fast a node consumes samples, per second."},
    {.key = "preprocess",
     SYSTEM_FIELD(preprocess),
     .type = MR_OPT_BYTES,
     .def = "1000000MB",
     .min = 1,
     .max = 1e18,
     .doc = "How fast a thread preprocesses, per second."},
    {.key = "network",
     SYSTEM_FIELD(network),
     .type = MR_OPT_BYTES,
     .def = "1000000MB",
     .min = 1,
     .max = 1e18,
     .doc = "Rate between nodes."},
    {.key = "pfs", SYSTEM_FIELD(name), .type = MR_OPT_STRING, .def = "", .doc = "The parallel file system."},
    {.key = "classes", SYSTEM_FIELD(name), .type = MR_OPT_STRING, .def = "", .doc = "Storage classes of a node."},
    MR_OPTION_END,
};
static const struct mr_option_table system_table = {"system", "A machine.", system_rows, sizeof(struct raw_system)};
static const struct mr_yaml_nested system_nested[] = {{"pfs", read_pfs}, {"classes", read_classes}, {NULL, NULL}};

static void convert_requests(const struct raw_system *raw, struct mr_system *out)
{
    out->n_requests = raw->n_requests;
    for (unsigned i = 0; i < raw->n_requests; i++) {
        const struct raw_request *q = &raw->requests[i];
        out->requests[i] = (struct mr_request_rates){
            .mb = (double)q->size / MB,
            .direct = {(double)q->bandwidth / MB, (double)q->stream / MB, q->spread},
            .buffered = {(double)q->buffered_bandwidth / MB, (double)q->buffered_stream / MB, q->buffered_spread}};
    }
}

static void convert(const struct raw_system *raw, struct mr_system *out)
{
    *out = (struct mr_system){.compute_mbps = (double)raw->compute / MB,
                              .preprocess_mbps = (double)raw->preprocess / MB,
                              .network_mbps = (double)raw->network / MB,
                              .pfs_link_mbps = (double)raw->link / MB,
                              .pfs_stream_mbps = (double)raw->stream / MB,
                              .pfs_latency_s = (double)raw->latency_ns / 1e9,
                              .pfs_metadata_per_s = raw->metadata_rate,
                              .pfs_spread = raw->spread,
                              .pfs_mbps = raw->pfs,
                              .pfs_write_mbps = raw->pfs_write,
                              .n_classes = raw->n_classes};
    convert_requests(raw, out);
    snprintf(out->name, sizeof out->name, "%s", raw->name);
    snprintf(out->source, sizeof out->source, "%s", raw->source);
    for (unsigned j = 0; j < raw->n_classes; j++) {
        const struct raw_class *k = &raw->classes[j];
        out->classes[j] = (struct mr_storage_class){.capacity_mb = (double)k->capacity / MB,
                                                    .threads = (unsigned)k->threads,
                                                    .read_mbps = k->read,
                                                    .write_mbps = k->write};
        snprintf(out->classes[j].name, sizeof out->classes[j].name, "%s", k->name);
    }
}

int mr_system_read(const struct mr_yaml_reader *r, const struct mr_yaml_node *map, struct mr_system *out,
                   struct mr_error *err)
{
    struct raw_system raw;
    int rc = mr_options_defaults(&system_table, r->arena, &raw, err);
    struct raw_system pfs;
    if (!rc)
        rc = mr_options_defaults(&pfs_table, r->arena, &pfs, err);
    if (rc)
        return rc;
    raw.link = pfs.link;
    rc = mr_yaml_read_map(r, map, &system_table, system_nested, &raw, err);
    if (rc)
        return rc;
    struct mr_system s;
    convert(&raw, &s);
    rc = mr_system_check(&s, err);
    if (rc)
        return mr_yaml_where(r, map, rc, err);
    *out = s;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int add_folder(const char *path, struct mr_arena *a, struct mr_strings *names, size_t cap, struct mr_error *err)
{
    DIR *d = opendir(path);
    for (struct dirent *e; d && names->n < cap && (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (len <= 5 || strcmp(e->d_name + len - 5, ".yaml") != 0)
            continue;
        const char *name = mr_arena_printf(a, "%.*s", (int)(len - 5), e->d_name);
        if (!name) {
            closedir(d);
            return mr_error_set(err, -ENOMEM, "listing '%s'", path);
        }
        names->item[names->n++] = name;
    }
    if (d)
        closedir(d);
    return 0;
}

#define LIST_MAX 1024

int mr_model_list_files(const char *kind, const struct mr_strings *search, struct mr_arena *a, struct mr_strings *names,
                        struct mr_error *err)
{
    struct mr_strings found = {.item = mr_arena_alloc(a, LIST_MAX * sizeof(char *))};
    int rc = found.item ? 0 : mr_error_set(err, -ENOMEM, "listing");
    for (unsigned i = 0; i < search->n && !rc; i++) {
        const char *path = mr_arena_printf(a, "%s/%s", search->item[i], kind);
        rc = path ? add_folder(path, a, &found, LIST_MAX, err) : mr_error_set(err, -ENOMEM, "listing");
    }
    if (rc)
        return rc;
    if (found.n)
        qsort(found.item, found.n, sizeof(*found.item), by_name);
    unsigned n = 0;
    for (unsigned i = 0; i < found.n; i++)
        if (n == 0 || strcmp(found.item[n - 1], found.item[i]) != 0)
            found.item[n++] = found.item[i];
    found.n = n;
    *names = found;
    return 0;
}

/* A folder of that name in the working one is none: 'lustre' and 'ssd' are names of systems, too. */
static bool is_readable_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode) && access(path, R_OK) == 0;
}

const char *mr_model_find_file(const char *name, const char *kind, const struct mr_strings *search, struct mr_arena *a,
                               struct mr_error *err)
{
    if (strchr(name, '/') || is_readable_file(name))
        return name;
    for (unsigned i = 0; i < search->n; i++) {
        const char *path = mr_arena_printf(a, "%s/%s/%s.yaml", search->item[i], kind, name);
        if (path && access(path, R_OK) == 0)
            return path;
    }
    struct mr_strings names = {0};
    struct mr_nearest near = {.word = name};
    if (mr_model_list_files(kind, search, a, &names, NULL) == 0)
        for (unsigned i = 0; i < names.n; i++)
            mr_nearest_offer(&near, names.item[i]);
    /* kinds are plural, as their folders */
    mr_error_plain(err, MR_E_CONFIG, "unknown %.*s '%s'", (int)strlen(kind) - 1, kind, name);
    if (mr_nearest_name(&near))
        mr_error_hint(err, "did you mean '%s'?", mr_nearest_name(&near));
    mr_error_hint(err, "list them with 'millrace sim --list', or name a file");
    return NULL;
}

int mr_system_load(const char *name_or_path, const struct mr_strings *search, struct mr_arena *a, struct mr_system *out,
                   struct mr_error *err)
{
    const char *path = mr_model_find_file(name_or_path, "systems", search, a, err);
    if (!path)
        return MR_E_CONFIG;
    struct mr_yaml_node *root;
    int rc = mr_yaml_load(path, a, &root, err);
    struct mr_yaml_reader r = {path, a};
    return rc ? rc : mr_system_read(&r, root, out, err);
}
