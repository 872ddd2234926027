/* A workload's data set: spec and generation; see job_generate.h. Rank 0 prepares and writes the manifest, all ranks
 * write files, and the ranks agree after every phase, so that no rank goes on when another could not. */
#include "job/job_generate.h"
#include "conf/sample_fields.h"
#include "base/common.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/workers.h"
#include "store/store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- the spec ---- */

static int to_compression(const struct mr_workload *w, int *out, struct mr_error *err)
{
    switch (w->dataset.compression) {
    case MR_CC_NONE: *out = MR_COMP_NONE; return 0;
    case MR_CC_GZIP: *out = MR_COMP_GZIP; return 0;
    case MR_CC_ZIP: *out = MR_COMP_ZIP; return 0;
    default: return mr_error_plain(err, MR_E_UNSUPPORTED, "the workload's compression is not supported");
    }
}

static int to_fields(const struct mr_workload *w, struct mr_arena *a, struct mr_gen_spec *s, struct mr_error *err)
{
    struct mr_sample_fields *f = mr_arena_alloc(a, sizeof(*f));
    struct mr_strbuf text = {0};
    if (!f)
        return mr_error_set(err, -ENOMEM, "cannot keep the fields");
    int rc = mr_sample_fields_of(w, f, err);
    if (rc || !f->n)
        return rc;
    mr_sample_fields_to_spec(f, &text);
    s->fields = text.failed ? NULL : mr_arena_strdup(a, text.text);
    s->size_stdev_bytes = 0;
    s->dims.n = 0;
    mr_strbuf_done(&text);
    return s->fields ? 0 : mr_error_set(err, -ENOMEM, "cannot keep the fields");
}

int mr_job_gen_spec(const struct mr_workload *w, struct mr_arena *a, struct mr_gen_spec *train,
                    struct mr_gen_spec *valid, struct mr_error *err)
{
    const struct mr_conf_dataset *d = &w->dataset;
    struct mr_gen_spec s;
    int rc = mr_options_defaults(&mr_gen_spec_table, a, &s, err);
    if (!rc)
        rc = to_compression(w, &s.compression, err);
    if (rc)
        return rc;
    s.format = mr_conf_format_name((enum mr_conf_format)d->format);
    s.files = d->num_files_train;
    s.samples_per_file = d->num_samples_per_file;
    s.size_bytes = (uint64_t)MR_MAX(d->record_length_bytes + 0.5, 1.0); /* a scaled one may be below a byte */
    /* a shape has one size; DLIO ignores the deviation then, too */
    s.size_stdev_bytes = d->record_dims.n ? 0 : (uint64_t)(d->record_length_bytes_stdev + 0.5);
    s.dims = d->record_dims;
    s.dtype = d->record_element_type;
    s.seed = d->seed;
    s.compressibility = (int64_t)(100 * d->compressibility + 0.5);
    s.subfolders = d->num_subfolders_train;
    s.prefix = d->file_prefix;
    s.compression_level = MR_MAX(1, MR_MIN(9, d->compression_level));
    s.chunk = w->hdf5.chunk_dims;
    if (d->format == MR_CF_PARQUET)
        s.chunk = (struct mr_dims){.n = 1, .dim = {(uint64_t)w->parquet.row_group_size}};
    if ((rc = to_fields(w, a, &s, err)))
        return rc;
    *train = s;
    if (valid) {
        s.files = d->num_files_eval;
        s.subfolders = d->num_subfolders_eval;
        *valid = s;
    }
    return 0;
}

/* ---- folders ---- */

static int split_folder(const char *folder, const char *name, char out[4096], struct mr_error *err)
{
    size_t len = strlen(folder);
    while (len > 1 && folder[len - 1] == '/')
        len--;
    if (snprintf(out, 4096, "%.*s/%s", (int)len, folder, name) >= 4096)
        return mr_error_set(err, -ENAMETOOLONG, "cannot use folder '%s'", folder);
    return 0;
}

int mr_job_split_init(struct mr_job_split *s, const struct mr_gen_spec *spec, const char *name, const char *folder,
                      struct mr_error *err)
{
    memset(s, 0, sizeof(*s));
    s->name = name;
    int rc = split_folder(folder, name, s->folder, err);
    return rc < 0 ? rc : mr_gen_plan_resolve(spec, name, &s->plan, err);
}

/* A set that replaces another replaces its evaluation set, too, by none if none is asked for. */
static int drop_valid(const struct mr_job_gen_params *p, struct mr_store *store, struct mr_error *err)
{
    char folder[4096];
    bool removed = false;
    int rc = split_folder(p->folder, "valid", folder, err);
    if (rc >= 0)
        rc = mr_gen_remove(store, folder, &removed, err);
    if (rc >= 0 && removed)
        mr_log(MR_LOG_NOTE, "removed the former evaluation set in '%s': no --eval-files are asked for", folder);
    return rc;
}

static int make_valid(const struct mr_job_gen_params *p, struct mr_store *store, struct mr_error *err)
{
    char folder[4096];
    int rc = split_folder(p->folder, "valid", folder, err);
    return rc < 0 ? rc : mr_store_mkdirs(store, folder, err);
}

/* ---- one split ---- */

static int add_up(struct mr_comm *c, struct mr_gen_result *r, struct mr_error *err)
{
    uint64_t v[] = {r->files_written, r->bytes_written, r->files_kept, r->bytes_kept};
    int rc = mr_comm_allreduce_u64(c, v, MR_ARRAY_LEN(v), MR_COMM_SUM, err);
    if (rc >= 0) {
        r->files_written = v[0];
        r->bytes_written = v[1];
        r->files_kept = v[2];
        r->bytes_kept = v[3];
    }
    return rc;
}

static int run_with_progress(struct mr_gen *g, const struct mr_job_gen_params *p, struct mr_comm *c,
                             const struct mr_job_split *s, struct mr_error *err)
{
    struct mr_progress *progress = NULL;
    uint64_t items = (uint64_t)s->plan.spec.files * s->plan.parts;
    struct mr_progress_options po = {.verb = p->repair ? "checking" : "generating",
                                     .unit = s->plan.parts > 1 ? "parts" : "files",
                                     .total = (items + c->world - 1) / c->world,
                                     .total_bytes = (uint64_t)(s->plan.want_bytes / (double)c->world),
                                     .stream = c->rank == 0 ? p->progress : NULL,
                                     .force_tty = -1};
    int rc = mr_progress_start(&po, &progress, err);
    mr_gen_set_progress(g, progress);
    if (rc >= 0)
        rc = mr_gen_run(g, err);
    mr_gen_set_progress(g, NULL);
    mr_progress_stop(progress);
    return rc;
}

static int write_split(struct mr_gen *g, const struct mr_job_gen_params *p, struct mr_comm *c, struct mr_job_split *s,
                       struct mr_error *err)
{
    int rc = mr_comm_agree(c, c->rank == 0 ? mr_gen_prepare(g, err) : 0, err);
    if (rc >= 0)
        rc = mr_comm_agree(c, run_with_progress(g, p, c, s, err), err);
    if (rc >= 0)
        rc = mr_comm_agree(c, c->rank == 0 ? mr_gen_finish(g, err) : 0, err);
    if (rc < 0)
        return rc;
    mr_gen_get_result(g, &s->result);
    return add_up(c, &s->result, err);
}

static int generate_split(const struct mr_job_gen_params *p, struct mr_comm *c, struct mr_store *store,
                          struct mr_job_split *s, struct mr_error *err)
{
    struct mr_gen *g = NULL;
    uint64_t start = mr_now_ns();
    struct mr_gen_options go = {
        .store = store,
        .folder = s->folder,
        .plan = &s->plan,
        .rank = c->rank,
        .world = c->world,
        .threads = p->threads ? p->threads : MR_MAX(mr_cpus_available() / MR_MAX(c->local_world, 1u), 1u),
        .overwrite = p->overwrite,
        .repair = p->repair,
        .fsync = p->fsync,
        .stop = p->stop,
        .all_stop = p->all_stop,
    };
    int rc = mr_gen_open(&go, &g, err);
    if (rc >= 0)
        rc = write_split(g, p, c, s, err);
    mr_gen_close(g);
    s->seconds = (double)(mr_now_ns() - start) / 1e9;
    return rc;
}

/* ---- the set ---- */

int mr_job_generate(const struct mr_job_gen_params *p, struct mr_comm *c, struct mr_job_split *splits, unsigned n,
                    struct mr_error *err)
{
    struct mr_store *store = NULL;
    int rc = mr_store_open_at(p->store, p->folder, &store, err);
    if (rc >= 0 && c->world > 1 && !(mr_store_caps(store) & MR_STORE_CAP_PERSISTENT))
        rc = mr_error_plain(err, MR_E_USAGE, "store '%s' is not shared between ranks", p->store);
    if (rc >= 0 && !(mr_store_caps(store) & MR_STORE_CAP_CONTENT))
        rc = mr_error_plain(err, MR_E_USAGE, "store '%s' keeps nothing: a data set cannot be written to it", p->store);
    rc = mr_comm_agree(c, rc, err);
    for (unsigned i = 0; rc >= 0 && i < n; i++)
        rc = generate_split(p, c, store, &splits[i], err);
    if (rc >= 0 && n == 1 && p->overwrite && c->rank == 0)
        rc = drop_valid(p, store, err);
    if (rc >= 0 && n == 1 && p->makes_valid && c->rank == 0)
        rc = make_valid(p, store, err);
    mr_store_close(store);
    return rc < 0 ? rc : 0;
}

int mr_job_gen_estimate(const struct mr_job_gen_params *p, struct mr_job_split *splits, unsigned n,
                        struct mr_error *err)
{
    struct mr_store *store;
    int rc = mr_store_open_at(p->store, p->folder, &store, err);
    if (rc < 0)
        return rc;
    uint64_t before = 0;
    for (unsigned i = 0; rc >= 0 && i < n; i++) {
        char where[MR_NAME_MAX];
        uint64_t bytes, inodes;
        struct mr_job_split *s = &splits[i];
        rc = mr_gen_estimate(&s->plan, &s->estimate, err);
        if (rc < 0)
            break;
        bool known = mr_gen_free_space(store, s->folder, where, &bytes, &inodes, NULL) >= 0;
        s->free_bytes = !known           ? UINT64_MAX
                        : bytes > before ? bytes - before
                                         : 0; /* the second split comes on top of the first */
        before += s->estimate.bytes;
    }
    mr_store_close(store);
    return rc < 0 ? rc : 0;
}
