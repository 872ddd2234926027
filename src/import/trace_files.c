/* Files of a trace: which they are, and what is in them.
 *
 * In two steps: files are opened, decompressed and, if they are DFTracer's, parsed by several threads at once; then
 * they are added to the trace, one after the other in the order in which they were given. */
#include "import/trace_internal.h"
#include "base/common.h"
#include "base/log.h"
#include "base/vec.h"
#include "base/workers.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define READ_BYTES 65536 /* room for each read of a pipe */

/* A file, whatever its path. */
struct mr_trace_source {
    struct mr_trace_source *next;
    dev_t device;
    ino_t inode;
};

struct input {
    char *path;
    bool in_folder;
    bool again; /* the same file as one before it */
    dev_t device;
    ino_t inode;
    uint64_t bytes;      /* as stored */
    const uint8_t *data; /* the content, decompressed; NULL where `pfw` has it already */
    size_t len;
    void *memory; /* that it is in */
    size_t memory_len;
    bool mapped;
    struct mr_pfw *pfw;
    char *segments; /* text of DXT beside the counters of `data` */
    size_t segments_len;
    uint64_t skipped_bytes;
    bool cut;        /* gzip that ends too early */
    bool unfinished; /* own: its collector has not ended it */
    int rc;          /* of loading it, and why */
    struct mr_error err;
};

static void let_go(struct input *in)
{
    if (in->mapped && in->memory)
        munmap(in->memory, in->memory_len);
    else if (!in->mapped)
        free(in->memory);
    in->memory = NULL;
    in->data = NULL;
}

static void take(struct input *in, void *memory, size_t len, bool mapped)
{
    let_go(in);
    in->data = in->memory = memory;
    assert(memory || !len);
    in->len = in->memory_len = len;
    in->mapped = mapped;
}

/* Reads a pipe to its end. */
static int read_pipe(int fd, void **out, size_t *len)
{
    size_t n = 0, cap = 0;
    char *data = NULL;
    for (ssize_t k = 1; k;) {
        if (mr_vec_reserve(&data, &cap, n + READ_BYTES, 1) < 0) {
            free(data);
            return -ENOMEM;
        }
        k = read(fd, data + n, cap - n);
        if (k < 0 && errno != EINTR) {
            int rc = -errno;
            free(data);
            return rc;
        }
        n += k > 0 ? (size_t)k : 0;
    }
    *out = data;
    *len = n;
    return 0;
}

static int map_file(int fd, size_t len, void **out)
{
    void *data = len ? mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    if (data == MAP_FAILED)
        return -errno;
    *out = data;
    return 0;
}

/* True if the trace is still being written, or its collector was killed. */
static bool is_unfinished(const char *path)
{
    char spool[4096];
    struct stat st;
    return snprintf(spool, sizeof(spool), "%s.spool", path) < (int)sizeof(spool) && lstat(spool, &st) == 0;
}

/* True if there are events that the collector has not written to the trace. */
static bool has_rings(const char *path)
{
    char spool[4096];
    bool found = false;
    snprintf(spool, sizeof(spool), "%s.spool", path);
    DIR *d = opendir(spool);
    for (const struct dirent *e; d && !found && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        found = n > 5 && !strcmp(e->d_name + n - 5, ".ring");
    }
    if (d)
        closedir(d);
    return found;
}

/* Opens a file. With a size limit two files alternate: between two turns the file may be missing or empty for a
 * moment. */
static int open_file(const char *path, struct stat *st)
{
    int fd, tries = is_unfinished(path) ? 100 : 1;
    for (;;) {
        fd = open(path, O_RDONLY | O_CLOEXEC);
        bool ok = fd >= 0 && fstat(fd, st) == 0;
        if (--tries == 0 || (ok && (st->st_size || !S_ISREG(st->st_mode))) || (fd < 0 && errno != ENOENT))
            return fd;
        if (fd >= 0)
            close(fd);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static int read_file(struct input *in)
{
    struct stat st;
    void *data = NULL;
    int fd = open_file(in->path, &st), rc = 0;
    if (fd < 0 || fstat(fd, &st) < 0) {
        rc = mr_error_set(&in->err, -errno, "cannot open the trace '%s'", in->path);
    } else {
        bool mapped = !S_ISFIFO(st.st_mode) && !S_ISSOCK(st.st_mode);
        size_t len = (size_t)st.st_size;
        rc = mapped ? map_file(fd, len, &data) : read_pipe(fd, &data, &len);
        if (rc < 0)
            rc = mr_error_set(&in->err, rc, "cannot read the trace '%s'", in->path);
        else
            take(in, data, len, mapped);
        in->bytes = len;
        if (rc == 0 && (!data || !len))
            rc = mr_error_plain(&in->err, MR_E_FORMAT, "the trace '%s' is empty", in->path);
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

static int decompress(struct input *in)
{
    char *text = NULL;
    size_t n = 0;
    if (in->len < 2 || in->data[0] != 0x1f || in->data[1] != 0x8b)
        return 0;
    int rc = mr_trace_gunzip(in->data, in->len, in->path, &text, &n, &in->skipped_bytes, &in->cut, &in->err);
    if (rc == 0)
        take(in, text, n, false);
    return rc;
}

static int read_darshan_log(struct input *in)
{
    char *text = NULL;
    size_t n = 0;
    int rc = mr_darshan_log_text(in->path, &text, &n, &in->segments, &in->segments_len, &in->err);
    if (rc == 0)
        take(in, text, n, false);
    return rc;
}

static void name_folder(struct input *in)
{
    const char *slash = strrchr(in->path, '/');
    mr_error_hint(&in->err, "name its folder: millrace report '%.*s'", slash ? (int)(slash - in->path) : 1,
                  slash ? in->path : ".");
}

/* JSON that we wrote ourselves: what it is, and where the trace of it may be. 0: it is none of these. */
static int refuse_own_json(struct input *in)
{
    static const struct {
        const char *schema, *what;
    } known[] = {{"millrace.run/", "the summary of a run"},       {"millrace.report/", "a report"},
                 {"millrace.compare/", "a comparison"},           {"millrace.check/", "the result of a check"},
                 {"millrace.sim/", "the result of a simulation"}, {"millrace.", "a result of millrace"}};
    const char *text = (const char *)in->data, *at = memmem(text, MR_MIN(in->len, (size_t)4096), "\"schema\"", 8);
    const char *slash = strrchr(in->path, '/');
    const char *origin = at ? NULL : memmem(text, MR_MIN(in->len, (size_t)4096), "\"origin\"", 8);
    if (in->len && *text == '{' && origin && !strcmp(slash ? slash + 1 : in->path, "config.json")) {
        mr_error_plain(&in->err, MR_E_FORMAT, "'%s' has the settings of a run, it is not a trace", in->path);
        return name_folder(in), MR_E_FORMAT;
    }
    if (!in->len || *text != '{' || !at)
        return 0;
    size_t left = MR_MIN((size_t)(text + in->len - at), (size_t)64);
    for (size_t i = 0; i < MR_ARRAY_LEN(known); i++)
        if (memmem(at, left, known[i].schema, strlen(known[i].schema))) {
            mr_error_plain(&in->err, MR_E_FORMAT, "'%s' is %s, not a trace", in->path, known[i].what);
            if (i == 0)
                name_folder(in);
            return MR_E_FORMAT;
        }
    return 0;
}

static int parse(struct input *in)
{
    if (refuse_own_json(in))
        return MR_E_FORMAT;
    if (mr_darshan_log_is(in->data, in->len))
        return read_darshan_log(in);
    const char *text = (const char *)in->data;
    if (mr_mrt_is_header(in->data, in->len) || mr_dxt_is(text, in->len))
        return 0;
    bool kineto = mr_kineto_is(text, in->len), csv = !kineto && mr_timelogger_is(text, in->len);
    if (!kineto && !csv && !mr_pfw_is(text, in->len)) {
        mr_error_plain(&in->err, MR_E_FORMAT, "'%s' is not a trace", in->path);
        return mr_error_hint(&in->err,
                             "readable are .mrt, .pfw, the JSON of torch.profiler, the CSV of TimeLogger, all "
                             "also gzipped, and Darshan's logs"),
               MR_E_FORMAT;
    }
    int rc = (kineto ? mr_kineto_parse
              : csv  ? mr_timelogger_parse
                     : mr_pfw_parse)(text, in->len, in->path, &in->pfw, &in->err);
    let_go(in);
    return rc;
}

/* What can be done for each file on its own. A failure is kept in the input, and the others continue. */
static void load(struct input *in)
{
    in->rc = in->data ? 0 : read_file(in);
    in->rc = in->rc ? in->rc : decompress(in);
    in->rc = in->rc ? in->rc : parse(in);
}

static int load_one(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct input *in = &((struct input *)ctx->user)[index];
    (void)err;
    if (!in->again)
        load(in);
    return 0;
}

/* The trace keeps the content of own files: events are decoded from it later. */
static int join_content(struct mr_trace *t, struct input *in, struct mr_error *err)
{
    if (in->pfw) {
        struct mr_pfw *p = in->pfw;
        in->pfw = NULL;
        return mr_pfw_join(t, p, err);
    }
    if (!mr_mrt_is_header(in->data, in->len)) {
        const char *text = (const char *)in->data;
        int done = mr_darshan_import(t, text, in->len, in->path, err);
        done = done ? done : mr_dxt_import(t, text, in->len, in->path, err);
        return done || !in->segments ? done : mr_dxt_import(t, in->segments, in->segments_len, in->path, err);
    }
    int rc = in->memory ? mr_trace_keep_memory(t, in->memory, in->memory_len, in->mapped, err) : 0;
    if (rc < 0)
        return rc;
    t->mapped = in->memory && in->mapped;
    in->memory = NULL;
    rc = mr_trace_add_mrt(t, in->data, in->len, in->path, err);
    if (t->mapped && rc == 0) /* it was read once, to check it; what is decoded later is read again */
        (void)madvise((void *)(uintptr_t)in->data, in->len, MADV_DONTNEED);
    t->mapped = false;
    return rc;
}

static int join(struct mr_trace *t, struct input *in, struct mr_error *err)
{
    if (in->rc < 0) {
        if (err)
            *err = in->err;
        return in->rc;
    }
    struct mr_trace_source *s = mr_arena_alloc(&t->arena, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot load the trace");
    *s = (struct mr_trace_source){.next = t->sources, .device = in->device, .inode = in->inode};
    t->sources = s;
    t->file_bytes += in->bytes;
    t->skipped_bytes += in->skipped_bytes;
    uint64_t before = t->skipped_bytes;
    int rc = join_content(t, in, err);
    if (in->cut && t->skipped_bytes == before) /* cut off between two events */
        t->skipped_bytes++;
    t->unfinished |= in->unfinished;
    if (rc == 0 && in->unfinished)
        rc = mr_trace_note(t, true, err,
                           "the trace has no end: the program still runs, or was killed ('millrace recover' adds what "
                           "it had not written yet)");
    return rc;
}

static void content_done(struct input *in)
{
    let_go(in);
    mr_pfw_free(in->pfw);
    free(in->segments);
    in->pfw = NULL;
    in->segments = NULL;
}

/* May be called again. */
static void input_done(struct input *in)
{
    content_done(in);
    free(in->path);
    in->path = NULL;
}

int mr_trace_add_memory(struct mr_trace *t, const void *data, size_t len, const char *name, struct mr_error *err)
{
    char *path = strdup(name);
    if (!path)
        return mr_error_set(err, -ENOMEM, "cannot load the trace");
    struct input in = {.path = path, .data = data, .len = len, .mapped = true};
    load(&in);
    int rc = join(t, &in, err);
    content_done(&in);
    free(path);
    return rc;
}

static bool is_source(const struct mr_trace *t, const struct stat *st)
{
    for (const struct mr_trace_source *s = t->sources; s; s = s->next)
        if (s->device == st->st_dev && s->inode == st->st_ino)
            return true;
    return false;
}

bool mr_trace_reads(const struct mr_trace *t, const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && is_source(t, &st);
}

struct inputs {
    struct input *item;
    size_t n, cap;
};

static int input_add(struct inputs *all, const char *path, const struct stat *st, bool in_folder, struct mr_error *err)
{
    char *copy = MR_VEC_RESERVE(all, all->n + 1) ? NULL : strdup(path);
    if (!copy)
        return mr_error_set(err, -ENOMEM, "cannot load the trace");
    all->item[all->n++] =
        (struct input){.path = copy, .in_folder = in_folder, .device = st->st_dev, .inode = st->st_ino, .mapped = true};
    return 0;
}

static int by_file(const void *a, const void *b)
{
    const struct input *x = *(struct input *const *)a, *y = *(struct input *const *)b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->inode != y->inode)
        return x->inode < y->inode ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Files that were named twice, or added before. */
static int find_again(const struct mr_trace *t, struct inputs *all, struct mr_error *err)
{
    struct input **in = malloc((all->n + 1) * sizeof(struct input *));
    if (!in)
        return mr_error_set(err, -ENOMEM, "cannot load the trace");
    for (size_t i = 0; i < all->n; i++)
        in[i] = &all->item[i];
    qsort(in, all->n, sizeof(struct input *), by_file);
    for (size_t i = 0; i < all->n; i++) {
        const struct stat st = {.st_dev = in[i]->device, .st_ino = in[i]->inode};
        in[i]->again =
            is_source(t, &st) || (i && in[i]->device == in[i - 1]->device && in[i]->inode == in[i - 1]->inode);
    }
    free(in);
    return 0;
}

static bool is_trace_name(const char *name)
{
    static const char *const ends[] = {".mrt",     ".mrt.gz",  ".pfw",         ".pfw.gz",        ".dxt",
                                       ".dxt.txt", ".darshan", ".darshan.txt", ".pt.trace.json", ".pt.trace.json.gz"};
    size_t n = strlen(name);
    for (size_t i = 0; i < MR_ARRAY_LEN(ends); i++)
        if (n > strlen(ends[i]) && !strcmp(name + n - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Adds the traces of a folder; *found is how many there were. */
static int list_traces(struct inputs *all, const char *path, int *found, struct mr_error *err)
{
    struct dirent **entry;
    int rc = 0, n = scandir(path, &entry, NULL, by_name);
    if (n < 0)
        return mr_error_set(err, -errno, "cannot read the folder '%s'", path);
    for (int i = 0; i < n; i++) {
        char file[4096];
        struct stat st = {0};
        snprintf(file, sizeof(file), "%s/%s", path, entry[i]->d_name);
        bool trace = rc == 0 && is_trace_name(entry[i]->d_name);
        free(entry[i]);
        bool there = trace && stat(file, &st) == 0;
        if (!trace || (there && !S_ISREG(st.st_mode)))
            continue; /* also folders and pipes: opening a pipe would wait for a writer */
        (*found)++;
        if (there && st.st_size == 0)
            continue; /* its process was killed between creating the file and writing to it */
        rc = there ? input_add(all, file, &st, true, err)
                   : mr_error_set(err, -errno, "cannot open the trace '%s'", file);
    }
    free(entry);
    return rc;
}

static int has_traces(const char *path)
{
    struct dirent **entry;
    int found = 0, n = scandir(path, &entry, NULL, NULL);
    for (int i = 0; i < n; i++) {
        found |= is_trace_name(entry[i]->d_name);
        free(entry[i]);
    }
    if (n >= 0)
        free(entry);
    return found;
}

/* A folder of folders with traces: of the hosts of one job they are one trace; of several runs each is its own. */
static int list_below(struct inputs *all, const char *path, struct mr_error *err)
{
    struct dirent **entry;
    char first[4096] = "", inner[4096], summary[4200];
    int rc = 0, runs = 0, found = 0, n = scandir(path, &entry, NULL, by_name);
    for (int i = 0; i < n; i++) {
        int len = snprintf(inner, sizeof(inner), "%s/%s", path, entry[i]->d_name);
        bool look = rc == 0 && entry[i]->d_name[0] != '.' && len < (int)sizeof(inner) && has_traces(inner);
        free(entry[i]);
        if (!look)
            continue;
        snprintf(summary, sizeof(summary), "%s/summary.json", inner);
        runs += access(summary, F_OK) == 0;
        if (!*first)
            memcpy(first, inner, (size_t)len + 1);
        rc = list_traces(all, inner, &found, err);
    }
    if (n >= 0)
        free(entry);
    if (rc == 0 && runs > 1) {
        rc = mr_error_plain(err, MR_E_FORMAT, "the folder '%s' holds %d runs", path, runs);
        mr_error_hint(err, "name one, as '%s'; 'millrace compare' takes the folder as one side", first);
    } else if (rc == 0 && !found) {
        rc = mr_error_plain(err, MR_E_FORMAT, "the folder '%s' holds no traces, nor do its subfolders", path);
        mr_error_hint(err, "traces end in .mrt, .pfw, .dxt, .darshan or .pt.trace.json, also with .gz");
    }
    return rc;
}

static int list_folder(struct inputs *all, const char *path, struct mr_error *err)
{
    int found = 0, rc = list_traces(all, path, &found, err);
    return rc < 0 || found ? rc : list_below(all, path, err);
}

/* The older of two alternating files belongs to the trace. */
static int list_older(struct inputs *all, const char *path, struct mr_error *err)
{
    char older[4096];
    struct stat st;
    if (snprintf(older, sizeof(older), "%s.1", path) >= (int)sizeof(older) || stat(older, &st) < 0 ||
        !S_ISREG(st.st_mode) || !st.st_size)
        return 0;
    return input_add(all, older, &st, true, err);
}

static int list(struct inputs *all, const char *path, struct mr_error *err)
{
    struct stat st = {0};
    if (!strcmp(path, "-"))
        path = "/dev/stdin";
    bool unfinished = is_unfinished(path);
    if (stat(path, &st) < 0 && !unfinished)
        return mr_error_set(err, -errno, "cannot open the trace '%s'", path);
    if (S_ISDIR(st.st_mode))
        return list_folder(all, path, err);
    int rc = input_add(all, path, &st, false, err);
    if (rc || !unfinished)
        return rc;
    all->item[all->n - 1].unfinished = has_rings(path);
    return list_older(all, path, err);
}

/* A file of a folder that is no trace, or was cut off in its first bytes, is skipped with a warning; if all of them
 * are, that is an error. */
static int join_all(struct mr_trace *t, struct inputs *all, struct mr_error *err)
{
    size_t left_out = 0;
    int rc = 0;
    for (size_t i = 0; i < all->n && rc == 0; i++) {
        struct input *in = &all->item[i];
        bool bad = in->in_folder && in->rc == MR_E_FORMAT && left_out + 1 < all->n;
        if (!bad) {
            rc = in->again ? 0 : join(t, in, err);
        } else {
            left_out++;
            t->skipped_bytes += in->bytes;
            mr_log(MR_LOG_WARN, "%s: skipped", in->err.message);
        }
        input_done(in);
    }
    return rc;
}

int mr_trace_add_all(struct mr_trace *t, const char *const *paths, size_t n, unsigned threads, struct mr_error *err)
{
    struct inputs all = {0};
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = list(&all, paths[i], err);
    rc = rc ? rc : find_again(t, &all, err);
    if (rc == 0)
        rc = mr_workers_run(
            (unsigned)MR_MIN((size_t)(threads ? threads : mr_cpus_available()), MR_MAX(all.n, (size_t)1)), all.n, 1,
            load_one, all.item, t->stop, err);
    rc = rc ? rc : join_all(t, &all, err);
    for (size_t i = 0; i < all.n; i++)
        input_done(&all.item[i]);
    free(all.item);
    return rc;
}

int mr_trace_add(struct mr_trace *t, const char *path, struct mr_error *err)
{
    return mr_trace_add_all(t, &path, 1, 1, err);
}
