/* The data set of a job: found, made when that is allowed, and taken as it is. */
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "conf/sample_fields.h"
#include "job/job_generate.h"
#include "job/job_internal.h"
#include "dataset/dataset_parts.h"
#include "dataset/journal.h"
#include "format/format.h"
#include "store/store.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- where it lies ---- */

/* Where the set is looked at and written: past the shims of --store, which are there for what the job reads. */
const char *mr_job_data_store(const struct mr_job *j)
{
    return j->data_store && *j->data_store ? j->data_store : NULL;
}

static const char *data_backend(const struct mr_job *j)
{
    const char *s = mr_job_data_store(j);
    return s ? s : "posix";
}

/* 1 there, 0 not, or it cannot be looked at. */
static bool is_there(const struct mr_job *j, const char *path)
{
    struct mr_store *s;
    struct mr_store_stat st;
    if (!mr_store_is_url(path))
        return access(path, F_OK) == 0;
    if (mr_store_open(data_backend(j), &s, NULL) < 0)
        return false;
    bool there = mr_store_stat(s, path, &st, NULL) >= 0;
    mr_store_close(s);
    return there;
}

/* ---- generating ---- */

/* By one process: the ranks are not there yet, or wait. */
static int generate(struct mr_job *j, struct mr_error *err)
{
    struct mr_gen_spec train, valid;
    struct mr_job_split splits[2];
    struct mr_comm *self = NULL;
    const struct mr_job_gen_params p = {
        .folder = j->data, .store = data_backend(j), .makes_valid = true, .stop = j->stop, .progress = j->req.progress};
    int rc = mr_job_gen_spec(j->w, j->arena, &train, &valid, err);
    if (!rc)
        rc = mr_job_split_init(&splits[0], &train, "train", j->data, err);
    if (!rc && valid.files)
        rc = mr_job_split_init(&splits[1], &valid, "valid", j->data, err);
    if (!rc)
        rc = mr_comm_open(0, 1, &self, err);
    if (!rc)
        rc = mr_job_generate(&p, self, splits, valid.files ? 2 : 1, err);
    mr_comm_close(self);
    return rc;
}

/* A generator was here and has not finished: it goes on where it was. */
static bool is_unfinished(const struct mr_job *j, const char *folder)
{
    char manifest[8300], journal[8300];
    snprintf(manifest, sizeof manifest, "%s/" MR_MANIFEST_NAME, folder);
    snprintf(journal, sizeof journal, "%s/" MR_JOURNAL_FOLDER, folder);
    return !is_there(j, manifest) && is_there(j, journal);
}

static void put_word(struct mr_strbuf *s, const char *before, const char *text)
{
    char word[4096];
    mr_strbuf_printf(s, "%s%s", before, mr_shell_word(text, word, sizeof word));
}

/* 'gen' with the same workload and overrides, which a reader of the message can type as it is. */
static void put_gen_words(const struct mr_job *j, struct mr_strbuf *s)
{
    const struct mr_job_options *o = &j->opt;
    put_word(s, "millrace gen ", j->data);
    bool is_word = false; /* workload=NAME stands among the overrides */
    for (unsigned i = 0; i < j->req.overrides.n; i++)
        is_word |= !strncmp(j->req.overrides.item[i] + strspn(j->req.overrides.item[i], "+"), "workload=", 9);
    if (*o->workload && !is_word)
        put_word(s, " --workload ", o->workload);
    if (*o->config_dir)
        put_word(s, " --config-dir ", o->config_dir);
    if (o->lenient)
        mr_strbuf_puts(s, " --lenient");
    for (unsigned i = 0; i < j->req.overrides.n; i++)
        put_word(s, " ", j->req.overrides.item[i]);
}

static int missing(const struct mr_job *j, const char *path, struct mr_error *err)
{
    struct mr_strbuf s = {0};
    struct stat st;
    if (!mr_store_is_url(j->data) && stat(j->data, &st) == 0 && !S_ISDIR(st.st_mode)) {
        mr_error_plain(err, -ENOTDIR, "the data set '%s' is not a folder", j->data);
        return mr_error_hint(err, "--data names the folder that holds train/ and valid/"), -ENOTDIR;
    }
    put_gen_words(j, &s);
    bool begun = is_unfinished(j, path);
    mr_error_plain(err, -ENOENT, begun ? "the data set in '%s' is not finished" : "there is no data set in '%s'", path);
    mr_error_hint(err,
                  begun ? "finish it with '%s', or let the run do it with --generate"
                        : "make it with '%s', or let the run do it with --generate",
                  s.text ? s.text : "millrace gen");
    mr_strbuf_done(&s);
    return -ENOENT;
}

/* ---- looking ---- */

/* Of a sample's fields together, as they are delivered where they have one shape, else as stored. */
static uint64_t fields_bytes(const struct mr_dataset *ds)
{
    const struct mr_manifest *m = mr_dataset_manifest(ds);
    const struct mr_schema *s = mr_manifest_schema(m);
    uint64_t samples = MR_MAX(mr_manifest_get_info(m)->all_samples, 1u), sum = 0;
    for (unsigned k = 0; k < s->n; k++) {
        const struct mr_field *f = &s->field[k].field;
        uint64_t bytes = mr_dtype_bytes(f->dtype);
        for (unsigned d = 0; d < f->dims.n; d++)
            bytes *= f->dims.dim[d];
        sum += f->variable == MR_FIELD_FIXED ? bytes : s->field[k].sum_bytes / samples;
    }
    return sum;
}

/* A set whose fields the workload names is described by all of them. */
static int look(const struct mr_job *j, const char *path, struct mr_dataset_info *info, struct mr_error *err)
{
    struct mr_dataset *ds;
    int rc = mr_dataset_open(path, mr_job_data_store(j), &ds, err);
    if (rc)
        return rc;
    mr_dataset_get_info(ds, info);
    if (mr_sample_fields_check(j->w, NULL) == 1) {
        info->n_dims = 0;
        info->sample_bytes = fields_bytes(ds) * info->samples;
    }
    mr_dataset_close(ds);
    return 0;
}

static bool is_empty(const char *folder)
{
    DIR *d = opendir(folder);
    const struct dirent *e = d ? readdir(d) : NULL;
    while (e && (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")))
        e = readdir(d);
    if (d)
        closedir(d);
    return d && !e;
}

static int find_split(struct mr_job *j, const char *split, struct mr_dataset_info *info, bool *made,
                      struct mr_error *err)
{
    char path[8192];
    struct mr_error first;
    snprintf(path, sizeof path, "%s/%s", j->data, split);
    int rc = look(j, path, info, &first);
    if (rc == 0)
        return 0;
    bool url = mr_store_is_url(path);
    bool absent = rc == -ENOENT || rc == MR_E_INCOMPLETE || (rc == MR_E_USAGE && !url) ||
                  (!url && (access(path, F_OK) != 0 || is_empty(path))) ||
                  ((!url || rc == MR_E_FORMAT) && is_unfinished(j, path));
    if (!absent) {
        *err = first;
        return rc;
    }
    if (!*made && (j->opt.generate || j->w->workflow.generate_data)) {
        *made = j->made_data = true;
        rc = generate(j, err);
        return rc ? rc : look(j, path, info, err);
    }
    return missing(j, path, err);
}

static void note(struct mr_job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(struct mr_job *j, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (unsigned i = 0; i < j->notes.n; i++)
        if (strcmp(j->notes.item[i], text) == 0)
            return; /* looked at before */
    mr_job_note(&j->notes, j->arena, "%s", text);
    if (!j->req.is_quiet)
        mr_log(MR_LOG_NOTE, "%s", text);
}

/* Remembered for the trust block: what was measured is not the workload. */
static void unlike(struct mr_job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void unlike(struct mr_job *j, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (unsigned i = 0; i < j->unlike.n; i++)
        if (strcmp(j->unlike.item[i], text) == 0)
            return;
    mr_job_note(&j->unlike, j->arena, "%s", text);
}

/* Mean bytes of a sample, as the workload counts them; 0: not known (packed samples of several shapes). */
static double sample_mean(const struct mr_job *j, const struct mr_dataset_info *in)
{
    bool stored = !strcmp(in->format, "jpeg") || !strcmp(in->format, "png") ||
                  (!in->n_dims && (j->w->dataset.compression == MR_CC_NONE || mr_sample_fields_check(j->w, NULL) == 1));
    if (stored)
        return in->samples ? (double)in->sample_bytes / (double)in->samples : 0;
    double bytes = in->n_dims ? strtod(in->dtype + (in->dtype[0] != '\0'), NULL) : 0; /* u1, f4, c16 */
    for (unsigned i = 0; i < in->n_dims; i++)
        bytes *= (double)in->dims[i];
    return bytes;
}

static const char *size_text(double bytes, char text[64])
{
    snprintf(text, 64, bytes >= 1e6 ? "%.1f MB" : "%.0f bytes", bytes >= 1e6 ? bytes / 1e6 : bytes);
    return text;
}

/* A mean that a fifth separates from the asked one is another workload; a few samples of a wide distribution may lie
 * further off. */
static bool is_other_size(const struct mr_job *j, const struct mr_dataset_info *in, double mean, double asked)
{
    double chance = 3 * j->w->dataset.record_length_bytes_stdev / sqrt(fmax((double)in->samples, 1));
    return mean > 1.2 * asked + chance || mean < asked / 1.2 - chance;
}

/* What a sample is. DLIO's rates are computed with the size that the workload says. */
static void fit_kind(struct mr_job *j, const char *set, const struct mr_dataset_info *in)
{
    const char *says = mr_conf_format_name((enum mr_conf_format)j->w->dataset.format);
    const struct mr_format_ops *want = mr_format_find(says, NULL);
    double mean = sample_mean(j, in), asked = mr_workload_record_bytes(j->w);
    char is[64], should[64];
    if (want && strcmp(want->name, in->format) != 0) {
        note(j, "the %s set holds %s files, the workload says %s; the set counts", set, in->format, says);
        if (mr_workload_is_set(j->w, "dataset", "format"))
            unlike(j, "the %s set holds %s files, the workload says %s", set, in->format, says);
    }
    if (mean <= 0 || !is_other_size(j, in, mean, asked))
        return;
    char have[MR_HUMAN_LEN], want_bytes[MR_HUMAN_LEN];
    note(j,
         "the samples of the %s set have %s bytes, the workload says %s; DLIO would compute its MB/s with the latter",
         set, mr_human_count((unsigned long long)(mean + 0.5), have),
         mr_human_count((unsigned long long)(asked + 0.5), want_bytes));
    if (mr_workload_is_set(j->w, "dataset", "record_length_bytes") || j->w->dataset.record_dims.n)
        unlike(j, "the samples of the %s set have %s, the workload says %s", set, size_text(mean, is),
               size_text(asked, should));
}

/* A larger set than the workload asks for serves with its first files, as in DLIO. Numbers that nobody has chosen do
 * not count. */
static int take_first(struct mr_job *j, bool eval, struct mr_dataset_info *in, struct mr_error *err)
{
    const struct mr_conf_dataset *d = &j->w->dataset;
    uint64_t files = (uint64_t)(eval ? d->num_files_eval : d->num_files_train);
    char path[8192];
    if (!mr_workload_is_set(j->w, "dataset", eval ? "num_files_eval" : "num_files_train") || !files ||
        files >= in->files)
        return 0;
    note(j, "the %s set has %llu files, the workload says %llu: the first %llu are read",
         eval ? "evaluation" : "training", (unsigned long long)in->files, (unsigned long long)files,
         (unsigned long long)files);
    j->first_files[eval] = files;
    snprintf(path, sizeof path, "%s/%s@files=%llu", j->data, eval ? "valid" : "train", (unsigned long long)files);
    return look(j, path, in, err);
}

/* The set is what is read; where the workload says something else, the result says so. */
static void fit(struct mr_job *j, bool eval, const struct mr_dataset_info *in)
{
    struct mr_conf_dataset *d = &j->w->dataset;
    int64_t *files = eval ? &d->num_files_eval : &d->num_files_train;
    uint64_t want = (uint64_t)*files * (uint64_t)d->num_samples_per_file;
    const char *set = eval ? "evaluation" : "training";
    fit_kind(j, set, in);
    if (want == in->samples)
        return;
    note(j, "the %s set has %llu samples, the workload says %llu; the set counts", set, (unsigned long long)in->samples,
         (unsigned long long)want);
    if (mr_workload_is_set(j->w, "dataset", eval ? "num_files_eval" : "num_files_train"))
        unlike(j, "the %s set has %llu samples, the workload says %llu", set, (unsigned long long)in->samples,
               (unsigned long long)want);
    if (in->samples % (uint64_t)d->num_samples_per_file == 0) {
        *files = (int64_t)(in->samples / (uint64_t)d->num_samples_per_file);
        return;
    }
    if (!eval) { /* count single samples */
        d->num_files_eval *= d->num_samples_per_file;
        d->num_samples_per_file = 1;
    }
    *files = (int64_t)(in->samples / (uint64_t)d->num_samples_per_file);
}

int mr_job_remove_data(const struct mr_job *j, struct mr_error *err)
{
    struct mr_store *s;
    char path[4200];
    bool removed;
    int rc = mr_store_open(data_backend(j), &s, err);
    if (rc < 0)
        return rc;
    for (int i = 0; rc >= 0 && i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", j->data, i ? "valid" : "train");
        if (is_there(j, path))
            rc = mr_gen_remove(s, path, &removed, err);
    }
    mr_store_close(s);
    return rc < 0 ? rc : 0;
}

/* pattern.header_file: a file apart, of which only the size matters. */
static int find_header(struct mr_job *j, struct mr_error *err)
{
    const struct mr_conf_pattern *c = &j->w->pattern;
    struct mr_store *s = NULL;
    char path[4200];
    snprintf(path, sizeof path, "%s/header", j->data);
    if (!j->w->workflow.train || !c->header_file || !c->header_reads || is_there(j, path))
        return 0;
    if (!j->opt.generate && !j->w->workflow.generate_data) {
        mr_error_plain(err, -ENOENT, "there is no header file '%s'", path);
        return mr_error_hint(err, "let the run make it with --generate"), -ENOENT;
    }
    void *content = calloc(1, c->header_file);
    int rc = content ? mr_store_open(data_backend(j), &s, err) : mr_error_set(err, -ENOMEM, "cannot make '%s'", path);
    if (!rc)
        rc = mr_store_mkdirs(s, j->data, err);
    if (!rc)
        rc = mr_store_write_file(s, path, content, c->header_file, err);
    mr_store_close(s);
    free(content);
    return rc;
}

/* The folder; and for an address of object storage the stack that reaches it. */
static int choose_data(struct mr_job *j, struct mr_error *err)
{
    char *store, *backend = NULL;
    snprintf(j->data, sizeof j->data, "%s", *j->opt.data ? j->opt.data : j->w->dataset.data_folder);
    for (size_t n = strlen(j->data); n > 1 && j->data[n - 1] == '/'; n--)
        j->data[n - 1] = '\0';
    j->data_store = "";
    if (!mr_store_is_url(j->data) && j->w->storage.storage_type == MR_CS_S3 && !*j->opt.data) {
        mr_error_plain(err, MR_E_CONFIG, "storage.storage_type is s3, and dataset.data_folder '%s' names no bucket",
                       j->data);
        return mr_error_hint(err, "set storage.storage_root=BUCKET, or give --data s3://BUCKET/FOLDER"), MR_E_CONFIG;
    }
    if (!mr_store_is_url(j->data))
        return 0;
    int rc = mr_store_spec_for(j->opt.store, j->data, &store, err);
    if (rc)
        return rc;
    rc = mr_store_backend_for(strncmp(store, "null", 4) ? store : NULL, j->data, &backend, err);
    if (!rc) {
        j->opt.store = mr_arena_strdup(j->arena, store);
        j->data_store = mr_arena_strdup(j->arena, backend);
        if (!j->opt.store || !j->data_store)
            rc = mr_error_set(err, -ENOMEM, "cannot open '%s'", j->data);
    }
    free(store);
    free(backend);
    return rc;
}

bool mr_job_fit_data(struct mr_job *j)
{
    char path[8192];
    struct mr_error ignored;
    if (choose_data(j, &ignored))
        return false;
    snprintf(path, sizeof path, "%s/train", j->data);
    if (!j->w->workflow.train || j->w->dataset.format == MR_CF_SYNTHETIC || look(j, path, &j->info, &ignored) != 0 ||
        take_first(j, false, &j->info, &ignored) != 0)
        return false;
    fit(j, false, &j->info);
    return true;
}

int mr_job_prepare_data(struct mr_job *j, struct mr_error *err)
{
    const struct mr_workload *w = j->w;
    bool made = false;
    int rc = choose_data(j, err);
    rc = rc ? rc : find_header(j, err);
    if (rc || w->dataset.format == MR_CF_SYNTHETIC || !(w->workflow.train || w->workflow.generate_data))
        return rc;
    rc = find_split(j, "train", &j->info, &made, err);
    rc = rc ? rc : take_first(j, false, &j->info, err);
    if (rc)
        return rc;
    fit(j, false, &j->info);
    struct mr_dataset_info eval = {0};
    if (!w->workflow.evaluation || w->dataset.num_files_eval == 0)
        return 0;
    rc = find_split(j, "valid", &eval, &made, err);
    rc = rc ? rc : take_first(j, true, &eval, err);
    if (!rc)
        fit(j, true, &eval);
    return rc;
}
