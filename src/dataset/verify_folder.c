/* A generated folder holds up to two data sets, train and valid: both are verified, and their results added up. */
#include "dataset/verify_folder.h"
#include "base/common.h"

static int one_entry(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    (void)name, (void)is_dir, (void)err;
    *(bool *)user = true;
    return 0;
}

/* 1 or 0, or an error. Sets made for DLIO have a folder for the evaluation set even when there is none. */
static int holds_something(struct mr_store *store, const char *folder, struct mr_error *err)
{
    bool any = false;
    struct mr_store_stat st;
    int there = mr_store_look(store, folder, &st, err);
    if (there <= 0 || !st.is_dir)
        return MR_MIN(there, 0);
    int rc = store->ops->list(store, folder, one_entry, &any, err);
    return rc < 0 ? rc : any;
}

/* The paths to check: both splits of a generated folder, finished or not, else the one that is given. Their number, or why
 * that cannot be seen: nothing is taken for absent then. */
static int splits_of(struct mr_store *store, const char *folder, char paths[2][2 * MR_NAME_MAX], struct mr_error *err)
{
    static const char *const names[] = {"train", "valid"};
    struct mr_store_stat st;
    int n = 0, finished = 0;
    char manifest[3 * MR_NAME_MAX];
    snprintf(manifest, sizeof manifest, "%.4000s/" MR_MANIFEST_NAME, folder);
    bool apart = mr_store_is_remote(store) && !mr_store_is_url(folder); /* the manifest lies on a disk, alone */
    int rc = apart ? 1 : mr_store_look(store, manifest, &st, err);
    for (unsigned i = 0; i < 2 && rc == 0; i++) {
        snprintf(paths[n], sizeof paths[n], "%.4000s/%s", folder, names[i]);
        snprintf(manifest, sizeof manifest, "%s/" MR_MANIFEST_NAME, paths[n]);
        int filled = holds_something(store, paths[n], err);
        int done = filled < 0 ? filled : mr_store_look(store, manifest, &st, err);
        rc = MR_MIN(done, 0);
        finished |= done > 0;
        n += filled > 0;
    }
    if (rc < 0)
        return rc;
    if (finished)
        return n;
    snprintf(paths[0], sizeof paths[0], "%.4000s", folder);
    return 1;
}

static void add(struct mr_verify_result *sum, const struct mr_verify_result *r, bool first)
{
    sum->files += r->files;
    sum->samples += r->samples;
    sum->bytes += r->bytes;
    sum->bad_files += r->bad_files;
    sum->bad_samples += r->bad_samples;
    sum->missing += r->missing;
    sum->extra += r->extra;
    sum->unreadable += r->unreadable;
    sum->wrong += r->wrong;
    sum->byte_exact = r->byte_exact && (first || sum->byte_exact);
}

static int verify_one(const char *path, struct mr_store *store, const struct mr_verify_options *o, FILE *progress_to,
                      struct mr_verify_result *out, struct mr_error *err)
{
    struct mr_dataset *ds;
    struct mr_verify_options own = *o;
    int rc = mr_dataset_open_in(path, store, &ds, err);
    if (rc < 0)
        return rc;
    const struct mr_manifest_info *i = mr_manifest_get_info(mr_dataset_manifest(ds));
    struct mr_progress_options po = {.verb = "verifying",
                                     .unit = "files",
                                     .total = i->files,
                                     .total_bytes = o->quick || o->sample_rate < 1 ? 0 : i->file_bytes,
                                     .stream = progress_to,
                                     .force_tty = -1};
    rc = mr_progress_start(&po, &own.progress, err);
    if (rc >= 0)
        rc = mr_verify(ds, &own, out, err);
    mr_progress_stop(own.progress);
    mr_dataset_close(ds);
    return rc;
}

int mr_verify_folder(const char *folder, struct mr_store *store, const struct mr_verify_options *o, FILE *progress_to,
                     struct mr_verify_result *out, struct mr_error *err)
{
    char paths[2][2 * MR_NAME_MAX];
    struct mr_verify_result sum = {0}, one;
    int n = splits_of(store, folder, paths, err);
    if (n < 0)
        return n;
    for (int i = 0; i < n; i++) {
        int rc = verify_one(paths[i], store, o, progress_to, &one, err);
        if (rc < 0)
            return rc;
        add(&sum, &one, i == 0);
    }
    *out = sum;
    return 0;
}
