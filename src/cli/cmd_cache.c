/* `millrace cache`: what lies in a cache folder (the SSD class of a run with tiers), whether it is whole, removing data
 * sets from it, and filling it ahead of a run. */
#include "base/common.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/strbuf.h"
#include "base/vec.h"
#include "base/workers.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "cli/workload_args.h"
#include "dataset/fetch.h"
#include "dataset/walk.h"
#include "tier/ssd.h"
#include "tier/ssd_folder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum action { ACTION_LS, ACTION_VERIFY, ACTION_DROP, ACTION_FILL };
static const char *const actions[] = {"ls", "verify", "drop", "fill", NULL};

struct cache_options {
    int action;
    const char *folder, *data, *store;
    uint64_t capacity;
    int64_t threads;
    bool all, checksums, json;
};

#define ROW(key, field, type, def, ...) MR_OPTION(cache_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option rows[] = {
    ROW("action", action, ENUM, "ls", .choices = actions, .flags = MR_OPTF_POSITIONAL,
        .doc = "ls: one line per data set. verify: reads everything and compares checksums. drop: removes a data set. "
               "fill: reads a data set into the folder."),
    ROW("folder", folder, STRING, "", .flags = MR_OPTF_POSITIONAL, .doc = "The cache folder."),
    ROW("data", data, STRING, "", .flags = MR_OPTF_POSITIONAL,
        .doc = "With fill: folder of the data set, or a manifest. With drop and verify: the data set's key, or the "
               "beginning of it, or its name, as ls shows them."),
    ROW("capacity", capacity, BYTES, "0", .doc = "With fill: what the folder may take, all data sets together.",
        .example = "100GiB"),
    ROW("all", all, BOOL, "false", .doc = "With drop: every data set."),
    ROW("checksums", checksums, BOOL, "false",
        .doc = "With fill: keep stored checksums too, as runs that verify them do (run --verify)."),
    MR_ROW_THREADS(offsetof(struct cache_options, threads),
                   "With verify and fill: samples that are read at once; 0 = one per CPU."),
    MR_ROW_STORE(offsetof(struct cache_options, store), "With fill: storage stack to read the data set through."),
    MR_ROW_JSON(offsetof(struct cache_options, json), MR_DOC_JSON),
    MR_OPTION_END,
};

static unsigned threads_of(const struct cache_options *o)
{
    return o->threads ? (unsigned)o->threads : mr_cpus_available();
}

/* ---- data sets of the folder ---- */

struct set_row {
    char key[MR_SSD_KEY];
    struct mr_ssd_about about;
    int64_t used_s;
    uint64_t samples, bytes;
    bool in_use;
};

struct set_rows {
    MR_VEC(struct set_row) rows;
};

static bool is_meant(const struct cache_options *o, const struct set_row *r)
{
    return !*o->data || !strcmp(o->data, r->about.name) ||
           (strlen(o->data) >= 4 && !strncmp(o->data, r->key, strlen(o->data)));
}

static int open_set(const struct cache_options *o, const char *key, bool look, struct mr_ssd **out,
                    struct mr_error *err)
{
    struct mr_ssd_params p = {.folder = o->folder, .capacity = UINT64_MAX, .look = look};
    (void)mr_ssd_key_parse(key, p.data_set);
    return mr_ssd_open(&p, out, err);
}

static bool is_in_use(const struct mr_ssd_folder *f, const char *key)
{
    struct mr_ssd_pair *pairs = NULL;
    unsigned n = 0;
    bool in_use = false;
    int set = mr_ssd_set_open(f, key);
    if (set < 0)
        return false;
    if (!mr_ssd_set_pairs(set, &pairs, &n))
        for (unsigned i = 0; i < n && !in_use; i++)
            in_use = mr_ssd_pair_in_use(set, &pairs[i]);
    free(pairs);
    close(set);
    return in_use;
}

static void read_about(const struct mr_ssd_folder *f, struct set_row *r)
{
    int set = mr_ssd_set_open(f, r->key);
    if (set < 0)
        return;
    (void)mr_ssd_about_read(set, &r->about);
    close(set);
}

/* Rows of all data sets that are meant, last used first. */
static int list_sets(const struct cache_options *o, struct mr_ssd_folder *f, struct set_rows *out, struct mr_error *err)
{
    struct mr_ssd_set *sets = NULL;
    unsigned n = 0;
    int rc = mr_ssd_folder_lock(f, err);
    if (rc)
        return rc;
    rc = mr_ssd_folder_sets(f, &sets, &n, err);
    for (unsigned i = n; !rc && i-- > 0;) {
        struct set_row r = {.used_s = sets[i].used_s};
        memcpy(r.key, sets[i].key, sizeof r.key);
        read_about(f, &r);
        if (!is_meant(o, &r))
            continue;
        r.in_use = is_in_use(f, r.key);
        struct set_row *place = MR_VEC_ADD(&out->rows);
        if (place)
            *place = r;
        else
            rc = mr_error_set(err, -ENOMEM, "cannot list '%s'", o->folder);
    }
    free(sets);
    mr_ssd_folder_unlock(f);
    if (!rc && !out->rows.n && *o->data) {
        mr_error_plain(err, MR_E_USAGE, "there is no data set '%s' in '%s'", o->data, o->folder);
        mr_error_hint(err, "'millrace cache ls %s' shows keys and names", o->folder);
        return MR_E_USAGE;
    }
    return rc;
}

/* ---- ls ---- */

static const char *time_text(int64_t s, char out[32])
{
    struct tm tm;
    time_t t = (time_t)s;
    if (!s || !localtime_r(&t, &tm) || !strftime(out, 32, "%Y-%m-%d %H:%M", &tm))
        snprintf(out, 32, "never");
    return out;
}

static double share_of(const struct set_row *r)
{
    return r->about.samples ? (double)r->samples / (double)r->about.samples : 0;
}

static void print_set(const struct set_row *r)
{
    char samples[MR_HUMAN_LEN], size[MR_HUMAN_LEN], used[32], name[1024];
    printf("%.12s %12s %6.1f %% %11s  %-16s %-6s %s\n", r->key, mr_human_count(r->samples, samples), 100 * share_of(r),
           mr_human_bytes((double)r->bytes, size), time_text(r->used_s, used), r->in_use ? "in use" : "",
           mr_name_escape(r->about.name, name, sizeof name));
}

static json_t *set_json(const struct set_row *r)
{
    return json_pack("{s:s, s:o, s:I, s:I, s:I, s:f, s:I, s:b}", "key", r->key, "name", mr_cli_name_json(r->about.name),
                     "samples", (json_int_t)r->samples, "of_samples", (json_int_t)r->about.samples, "bytes",
                     (json_int_t)r->bytes, "share", share_of(r), "last_use_s", (json_int_t)r->used_s, "in_use",
                     r->in_use);
}

static int count_set(const struct cache_options *o, struct set_row *r, struct mr_error *err)
{
    struct mr_ssd *s;
    struct mr_ssd_stats st;
    int rc = open_set(o, r->key, true, &s, err);
    if (rc)
        return rc;
    mr_ssd_stats(s, &st);
    mr_ssd_close(s);
    r->samples = st.samples;
    r->bytes = st.bytes;
    return 0;
}

static int list(const struct cache_options *o, struct mr_ssd_folder *f, struct set_rows *all, struct mr_error *err)
{
    uint64_t taken = mr_ssd_folder_bytes(f);
    char size[MR_HUMAN_LEN];
    json_t *sets = json_array();
    int rc = 0;
    if (!o->json && all->rows.n)
        printf("%-12s %12s %8s %11s  %-16s %-6s %s\n", "key", "samples", "share", "size", "last use", "", "data set");
    for (size_t i = 0; !rc && i < all->rows.n; i++) {
        struct set_row *r = &all->rows.item[i];
        rc = count_set(o, r, err);
        if (!rc && o->json)
            json_array_append_new(sets, set_json(r));
        else if (!rc)
            print_set(r);
    }
    if (!rc && o->json)
        return mr_cli_print_json(stdout,
                                 json_pack("{s:s, s:o, s:I, s:o}", "schema", "millrace.cache/1", "folder",
                                           mr_cli_name_json(o->folder), "folder_bytes", (json_int_t)taken, "data_sets",
                                           sets),
                                 err);
    json_decref(sets);
    if (!rc)
        printf("%s: %zu data %s, %s on the file system\n", o->folder, all->rows.n,
               mr_plural(all->rows.n, "set", "sets"), mr_human_bytes((double)taken, size));
    return rc;
}

/* ---- verify ---- */

struct checking {
    struct mr_ssd *s;
    struct mr_progress *progress;
    MR_VEC(uint64_t) ids;
    atomic_uint_fast64_t samples, bytes, corrupt, unreadable, biggest;
    bool no_memory, json;
    void **buffer; /* one per thread */
    const char *name;
};

static void note_id(void *user, uint64_t id, uint64_t bytes)
{
    struct checking *c = user;
    uint64_t *place = MR_VEC_ADD(&c->ids);
    if (place)
        *place = id;
    else
        c->no_memory = true;
    if (bytes > c->biggest)
        c->biggest = bytes;
}

static int check_one(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct checking *c = ctx->user;
    struct mr_error why;
    uint64_t id = c->ids.item[index], bytes = mr_ssd_find(c->s, id);
    (void)err;
    int rc = bytes && bytes <= c->biggest ? mr_ssd_read(c->s, id, c->buffer[ctx->thread], bytes, &why) : -ENOENT;
    if (rc == -ENOENT) /* another job has dropped it */
        return 0;
    if (rc && !c->json)
        printf("%s\n", why.message);
    atomic_fetch_add(rc == MR_E_CORRUPT ? &c->corrupt : rc ? &c->unreadable : &c->samples, 1);
    atomic_fetch_add(&c->bytes, rc ? 0 : bytes);
    mr_progress_add(c->progress, 1, bytes);
    return 0;
}

static int check_all(struct checking *c, unsigned threads, const atomic_bool *stop, struct mr_error *err)
{
    struct mr_ssd_stats st;
    c->biggest = 0;
    c->ids.n = 0;
    mr_ssd_each(c->s, note_id, c);
    mr_ssd_stats(c->s, &st);
    c->buffer = calloc(threads, sizeof(void *));
    for (unsigned i = 0; c->buffer && i < threads; i++)
        c->no_memory |= posix_memalign(&c->buffer[i], 4096, MR_ALIGN_UP(c->biggest + 1, 4096)) != 0;
    const struct mr_progress_options po = {.verb = "verifying",
                                           .unit = "samples",
                                           .total = c->ids.n,
                                           .total_bytes = st.bytes,
                                           .stream = mr_log_shows(MR_LOG_NOTE) ? stderr : NULL,
                                           .force_tty = -1};
    int rc = c->no_memory || !c->buffer ? mr_error_set(err, -ENOMEM, "cannot verify '%s'", c->name) : 0;
    if (!rc)
        rc = mr_progress_start(&po, &c->progress, err);
    if (rc >= 0)
        rc = mr_workers_run(threads, c->ids.n, 1, check_one, c, stop, err);
    mr_progress_stop(c->progress);
    c->progress = NULL;
    for (unsigned i = 0; c->buffer && i < threads; i++)
        free(c->buffer[i]);
    free(c->buffer);
    return rc;
}

static int tell_verified(const struct cache_options *o, struct checking *c, struct mr_error *err)
{
    char size[MR_HUMAN_LEN];
    int rc = 0;
    if (o->json)
        rc = mr_cli_print_json(stdout,
                               json_pack("{s:s, s:o, s:b, s:I, s:I, s:I, s:I}", "schema", "millrace.cache_verify/1",
                                         "folder", mr_cli_name_json(o->folder), "good", !c->corrupt && !c->unreadable,
                                         "samples", (json_int_t)c->samples, "bytes", (json_int_t)c->bytes, "corrupt",
                                         (json_int_t)c->corrupt, "unreadable", (json_int_t)c->unreadable),
                               err);
    else
        printf("%s: %" PRIuFAST64 " samples and %s match their checksums, %" PRIuFAST64 " do not\n", o->folder,
               c->samples, mr_human_bytes((double)c->bytes, size), c->corrupt);
    if (rc)
        return rc;
    if (c->corrupt) {
        mr_error_plain(err, MR_E_CORRUPT, "'%s' had %" PRIuFAST64 " corrupt %s; %s dropped", o->folder, c->corrupt,
                       mr_plural(c->corrupt, "sample", "samples"), mr_plural(c->corrupt, "it is", "they are"));
        return mr_error_hint(err, "the next run reads them from the source again; look at the device"), MR_E_CORRUPT;
    }
    return c->unreadable ? mr_error_plain(err, -EIO, "%" PRIuFAST64 " %s in '%s' cannot be read", c->unreadable,
                                          mr_plural(c->unreadable, "sample", "samples"), o->folder)
                         : 0;
}

static int verify(const struct cache_options *o, struct set_rows *all, const atomic_bool *stop, struct mr_error *err)
{
    struct checking c = {.json = o->json, .name = o->folder};
    int rc = 0;
    for (size_t i = 0; !rc && i < all->rows.n; i++) {
        rc = open_set(o, all->rows.item[i].key, false, &c.s, err);
        if (rc)
            break;
        rc = check_all(&c, threads_of(o), stop, err);
        mr_ssd_close(c.s);
    }
    free(c.ids.item);
    return rc ? rc : tell_verified(o, &c, err);
}

/* ---- drop ---- */

static void drop_set(struct mr_ssd_folder *f, const char *key, uint64_t *freed, unsigned *kept)
{
    struct mr_ssd_pair *pairs = NULL;
    unsigned n = 0;
    int set = mr_ssd_set_open(f, key);
    if (set < 0)
        return;
    if (!mr_ssd_set_pairs(set, &pairs, &n))
        for (unsigned i = 0; i < n; i++)
            *kept += !mr_ssd_pair_remove(set, &pairs[i], freed);
    free(pairs);
    close(set);
    mr_ssd_set_remove_empty(f, key);
}

static int drop(const struct cache_options *o, struct mr_ssd_folder *f, struct set_rows *all, struct mr_error *err)
{
    uint64_t freed = 0;
    unsigned kept = 0;
    char size[MR_HUMAN_LEN];
    int rc = mr_ssd_folder_lock(f, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < all->rows.n; i++)
        drop_set(f, all->rows.item[i].key, &freed, &kept);
    mr_ssd_folder_unlock(f);
    if (o->json)
        rc = mr_cli_print_json(stdout,
                               json_pack("{s:s, s:o, s:I, s:I, s:I}", "schema", "millrace.cache_drop/1", "folder",
                                         mr_cli_name_json(o->folder), "data_sets", (json_int_t)all->rows.n,
                                         "freed_bytes", (json_int_t)freed, "files_in_use", (json_int_t)kept),
                               err);
    else
        printf("%s: %s freed\n", o->folder, mr_human_bytes((double)freed, size));
    if (rc || !kept)
        return rc;
    mr_error_plain(err, MR_E_INCOMPLETE,
                   "%u %s of '%s' could not be removed: a job uses %s, or the folder is read-only", kept,
                   mr_plural(kept, "file", "files"), o->folder, mr_plural(kept, "it", "them"));
    return mr_error_hint(err, "drop again when the job has ended"), MR_E_INCOMPLETE;
}

/* ---- fill ---- */

struct filling {
    const struct cache_options *o;
    struct mr_dataset *ds;
    struct mr_ssd *s;
    struct mr_progress *progress;
    struct mr_dataset_reader **reader; /* one per thread */
    atomic_bool full;
    atomic_uint_fast64_t read_bytes, written, there;
};

static int fill_one(struct mr_worker_ctx *ctx, uint64_t id, struct mr_error *err)
{
    struct filling *f = ctx->user;
    struct mr_sample sample;
    if (atomic_load(&f->full))
        return 0;
    uint64_t bytes = mr_ssd_find(f->s, id);
    if (bytes) {
        atomic_fetch_add(&f->there, 1);
        mr_progress_add(f->progress, 1, bytes);
        return 0;
    }
    unsigned flags = MR_DATASET_RAW | (f->o->checksums ? MR_DATASET_VERIFY : 0);
    int rc = mr_dataset_read(f->reader[ctx->thread], id, flags, NULL, 0, &sample, err);
    if (rc < 0)
        return rc;
    rc = sample.bytes ? mr_ssd_write(f->s, id, sample.data, sample.bytes, err) : 0;
    if (rc == -ENOSPC) {
        atomic_store(&f->full, true);
        return 0;
    }
    if (rc && rc != -EEXIST)
        return rc;
    atomic_fetch_add(&f->written, rc == 0);
    atomic_fetch_add(&f->read_bytes, sample.bytes);
    mr_progress_add(f->progress, 1, sample.bytes);
    return 0;
}

static void hold_one(void *user, uint64_t id, uint64_t bytes)
{
    (void)bytes;
    mr_ssd_hold(user, id, true);
}

static int fill_all(struct filling *f, unsigned threads, const atomic_bool *stop, struct mr_error *err)
{
    struct mr_dataset_info info;
    mr_dataset_get_info(f->ds, &info);
    mr_ssd_each(f->s, hold_one, f->s);
    const struct mr_progress_options po = {.verb = "filling",
                                           .unit = "samples",
                                           .total = info.samples,
                                           .total_bytes = info.sample_bytes,
                                           .stream = mr_log_shows(MR_LOG_NOTE) ? stderr : NULL,
                                           .force_tty = -1};
    int rc = 0;
    f->reader = calloc(threads, sizeof(struct mr_dataset_reader *));
    if (!f->reader)
        return mr_error_set(err, -ENOMEM, "cannot fill '%s'", f->o->folder);
    for (unsigned i = 0; i < threads && rc >= 0; i++)
        rc = mr_dataset_reader_create(f->ds, &f->reader[i], err);
    if (rc >= 0)
        rc = mr_progress_start(&po, &f->progress, err);
    if (rc >= 0)
        rc = mr_workers_run(threads, info.samples, 1, fill_one, f, stop, err);
    mr_progress_stop(f->progress);
    for (unsigned i = 0; i < threads; i++)
        mr_dataset_reader_free(f->reader[i]);
    free(f->reader);
    return rc;
}

static int tell_filled(const struct filling *f, const struct mr_ssd_stats *st, struct mr_error *err)
{
    char samples[MR_HUMAN_LEN], size[MR_HUMAN_LEN], of[MR_HUMAN_LEN];
    uint64_t all = mr_dataset_count(f->ds);
    if (f->o->json)
        return mr_cli_print_json(stdout,
                                 json_pack("{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:b}", "schema",
                                           "millrace.cache_fill/1", "folder", mr_cli_name_json(f->o->folder), "samples",
                                           (json_int_t)st->samples, "of_samples", (json_int_t)all, "bytes",
                                           (json_int_t)st->bytes, "written_samples", (json_int_t)f->written,
                                           "read_bytes", (json_int_t)f->read_bytes, "full", (bool)f->full),
                                 err);
    printf("%s: %s of %s samples of '%s', %s%s\n", f->o->folder, mr_human_count(st->samples, samples),
           mr_human_count(all, of), f->o->data, mr_human_bytes((double)st->bytes, size),
           f->full ? "; the capacity is used up" : "");
    return 0;
}

/* Ctrl-C: what was read stays in the folder, and a later fill goes on from there. */
static int fill(const struct cache_options *o, struct mr_command_ctx *ctx, struct mr_error *err)
{
    struct filling f = {.o = o};
    struct mr_ssd_stats st;
    if (!*o->data || !o->capacity) {
        mr_error_plain(err, MR_E_USAGE, "fill needs a data set and --capacity");
        return mr_error_hint(err, "millrace cache fill %s DATA --capacity 100GiB", o->folder), MR_E_USAGE;
    }
    int rc = mr_dataset_open(o->data, o->store, &f.ds, err);
    if (rc < 0)
        return rc;
    struct mr_ssd_params p = {
        .folder = o->folder, .capacity = o->capacity, .name = o->data, .samples = mr_dataset_count(f.ds)};
    mr_stored_key(f.ds, o->checksums ? MR_DATASET_VERIFY : 0, p.data_set);
    rc = mr_ssd_open(&p, &f.s, err);
    if (!rc) {
        rc = fill_all(&f, threads_of(o), ctx->stop, err);
        mr_ssd_stats(f.s, &st);
        mr_ssd_close(f.s);
        if (!rc || rc == MR_E_INTERRUPTED) {
            int told = tell_filled(&f, &st, err);
            rc = rc ? rc : told;
        }
        ctx->whole = !rc;
    }
    mr_dataset_close(f.ds);
    return rc;
}

static int cache_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct cache_options *o = ctx->options;
    struct mr_ssd_folder f;
    struct set_rows all = {0};
    if (!*o->folder)
        return mr_error_plain(err, MR_E_USAGE, "say which folder: millrace cache %s FOLDER", actions[o->action]);
    if (o->action == ACTION_FILL)
        return fill(o, ctx, err);
    if (o->action == ACTION_DROP && !*o->data == !o->all)
        return mr_error_plain(err, MR_E_USAGE, "say which data set is to be dropped, or --all");
    int rc = mr_ssd_folder_open(o->folder, false, &f, err);
    if (rc)
        return rc;
    rc = list_sets(o, &f, &all, err);
    if (!rc)
        rc = o->action == ACTION_LS       ? list(o, &f, &all, err)
             : o->action == ACTION_VERIFY ? verify(o, &all, ctx->stop, err)
                                          : drop(o, &f, &all, err);
    free(all.rows.item);
    mr_ssd_folder_close(&f);
    return rc;
}

const struct mr_command mr_cmd_cache = {
    .name = "cache",
    .synopsis = "[ls | verify | drop | fill] FOLDER [DATA]",
    .summary = "list, verify, drop and fill the SSD folders of tiers",
    .details =
        "A cache folder is what '--tiers ssd=FOLDER:SIZE' keeps samples in, from run to run; several data sets and "
        "several jobs share it. A sample that does not have its checksum is never used: it is dropped and read from "
        "the source again. verify looks for all of them at once (exit status 4 where there were some). drop removes "
        "what no job uses; a folder that is not a cache is refused, and files that are not ours stay.\n\n"
        "fill reads a data set ahead of a run, up to a capacity; Ctrl-C ends it at any time, what was read stays, and "
        "filling again goes on from there.\n\n"
        "  millrace cache ls /nvme/cache\n  millrace cache fill /nvme/cache /data/imagenet --capacity 100GiB\n"
        "  millrace cache verify /nvme/cache\n  millrace cache drop /nvme/cache /data/imagenet\n",
    .table = {.section = "cache", .doc = "cache", .options = rows, .struct_bytes = sizeof(struct cache_options)},
    .run = cache_run,
};
