/* Places of checkpoints: see the header, and README.md for the invariants C1 and C2 that the comments refer to. */
#include "checkpoint/checkpoint_place.h"

#include "base/common.h"
#include "store/traffic.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIST_MAX_BYTES (64 * MR_MIB)

void mr_checkpoint_emit(struct mr_events *events, enum mr_span what, uint64_t step, uint64_t start_ns, uint64_t end_ns,
                        uint64_t bytes)
{
    struct mr_where at = MR_NOWHERE;
    at.step = step;
    mr_emit(events, what, start_ns, end_ns, &at, (int64_t)bytes);
}

int mr_checkpoint_place_open(const char *folder, const char *store, uint32_t rank, struct mr_events *events,
                             struct mr_checkpoint_place *out, struct mr_error *err)
{
    if (!folder || !*folder || strlen(folder) > MR_CHECKPOINT_FOLDER_MAX)
        return mr_error_plain(err, MR_E_USAGE, "checkpoints need a folder, with a path of at most %d bytes",
                              MR_CHECKPOINT_FOLDER_MAX);
    struct mr_checkpoint_place p = {.folder = strdup(folder), .lock_fd = -1};
    char *spec = NULL;
    int rc = p.folder ? mr_store_spec_for(store, folder, &spec, err)
                      : mr_error_set(err, -ENOMEM, "cannot make a checkpointer");
    rc = rc ? rc : mr_store_open_with_events(spec, mr_events_calls(events), &p.store, err);
    free(spec);
    p.by_list = !rc && mr_store_puts_whole(p.store);
    /* Else a checkpoint gets its name when it is complete: a store that cannot rename is refused before the first save. */
    struct mr_path what = mr_path("keep checkpoints in '%s'", folder);
    if (p.by_list)
        mr_store_expect_changes(p.store);
    else
        rc = rc ? rc : mr_store_require(p.store, MR_STORE_CAP_WRITE | MR_STORE_CAP_RENAME, what.text, err);
    if (!rc && mr_store_confine(p.store, folder, false)) /* C7 */
        rc = mr_error_set(err, -ENOMEM, "cannot make a checkpointer");
    if (rc) {
        mr_checkpoint_place_close(&p);
        return rc;
    }
    p.shared = mr_store_caps(p.store) & MR_STORE_CAP_PERSISTENT;
    p.lead = rank == 0 || !p.shared;
    p.device = mr_traffic_get(p.store, p.folder);
    *out = p;
    return 0;
}

void mr_checkpoint_place_close(struct mr_checkpoint_place *p)
{
    if (p->store) {
        mr_traffic_put(p->device);
        mr_store_close(p->store);
        if (p->lock_fd >= 0)
            close(p->lock_fd);
    }
    free(p->folder);
    free(p->base);
    *p = (struct mr_checkpoint_place){0};
}

int mr_checkpoint_read_part(const struct mr_checkpoint_place *at, const char *path, struct mr_checkpoint_list *out,
                            struct mr_error *err)
{
    void *data;
    size_t len;
    int rc = mr_store_read_file(at->store, path, LIST_MAX_BYTES, &data, &len, err);
    if (rc < 0)
        return rc;
    rc = mr_checkpoint_list_parse(data, len, path, out, err);
    free(data);
    return rc;
}

int mr_checkpoint_read_list(const struct mr_checkpoint_place *at, const char *dir, struct mr_checkpoint_list *out,
                            struct mr_error *err)
{
    struct mr_path path = mr_path("%s/" MR_CHECKPOINT_LIST_NAME, dir);
    int rc = mr_checkpoint_read_part(at, path.text, out, err);
    uint64_t step = mr_checkpoint_step_of(dir);
    if (!rc && out->step != step) {
        rc = mr_error_plain(err, MR_E_CORRUPT, "'%s' is of step %" PRIu64 ", its folder's name says %" PRIu64,
                            path.text, out->step, step);
        mr_checkpoint_list_done(out);
    }
    if (rc != -ENOENT)
        return rc;
    mr_error_plain(err, MR_E_CORRUPT, "'%s' is missing: without its list '%s' is no checkpoint", path.text, dir);
    return mr_error_hint(err, "load an older checkpoint"), MR_E_CORRUPT;
}

bool mr_checkpoint_is_of(const struct mr_checkpoint_place *at, const char *dir, const char *save)
{
    struct mr_checkpoint_list l;
    if (mr_checkpoint_read_list(at, dir, &l, NULL))
        return false;
    bool same = strcmp(l.save, save) == 0;
    mr_checkpoint_list_done(&l);
    return same;
}

/* ---- names ---- */

int mr_checkpoint_retire_older(const struct mr_checkpoint_place *at, uint64_t just_saved, struct mr_error *err)
{
    struct mr_checkpoint_dirs d;
    int rc = mr_checkpoint_dirs_read(at->store, at->folder, &d, err);
    if (rc)
        return rc;
    unsigned kept = 0;
    for (size_t i = d.n; i-- > 0 && !rc;)
        if (d.item[i].usable && ++kept > at->keep_last && d.item[i].step != just_saved)
            rc = mr_checkpoint_retire(at->store, at->folder, d.item[i].step, err);
    mr_checkpoint_dirs_done(&d);
    if (rc && err)
        mr_error_context(err, "removing older checkpoints; the new one of step %" PRIu64 " is complete", just_saved);
    return rc;
}

int mr_checkpoint_target(const struct mr_checkpoint_place *at, uint64_t step, enum mr_checkpoint_kind *out,
                         struct mr_error *err)
{
    struct mr_path final = mr_checkpoint_dir_path(at->folder, step, MR_CHECKPOINT_COMPLETE);
    int complete = at->by_list ? mr_checkpoint_has_list(at->store, final.text, err) : 0;
    if (complete >= 0)
        *out = !at->by_list ? MR_CHECKPOINT_TMP : complete ? MR_CHECKPOINT_AGAIN : MR_CHECKPOINT_COMPLETE;
    return MR_MIN(complete, 0);
}

int mr_checkpoint_publish(const struct mr_checkpoint_place *at, uint64_t step, enum mr_checkpoint_kind target,
                          struct mr_error *err)
{
    const struct mr_store_ops *ops = at->store->ops;
    struct mr_path tmp = mr_checkpoint_dir_path(at->folder, step, MR_CHECKPOINT_TMP);
    struct mr_path final = mr_checkpoint_dir_path(at->folder, step, MR_CHECKPOINT_COMPLETE);
    struct mr_path old = mr_checkpoint_dir_path(at->folder, step, MR_CHECKPOINT_OLD);
    struct mr_path again = mr_checkpoint_dir_path(at->folder, step, MR_CHECKPOINT_AGAIN);
    if (at->by_list) { /* the other copy goes, and what the ranks left for each other */
        const char *other = target == MR_CHECKPOINT_AGAIN ? final.text : again.text;
        int rc = mr_checkpoint_dir_remove(at->store, other, err);
        return rc ? rc : mr_checkpoint_dir_remove(at->store, tmp.text, err);
    }
    struct mr_store_stat st;
    bool replaces = ops->stat(at->store, final.text, &st, NULL) == 0;
    int rc = replaces ? ops->rename(at->store, final.text, old.text, err) : 0;
    if (rc)
        return rc;
    rc = ops->rename(at->store, tmp.text, final.text, err);
    if (rc && replaces) /* if this fails as well, readers and the next save find the old one */
        ops->rename(at->store, old.text, final.text, NULL);
    if (!rc && at->fsync)
        rc = ops->sync_dir(at->store, at->folder, err);
    if (!rc && replaces)
        rc = mr_checkpoint_dir_remove(at->store, old.text, err);
    return rc;
}

int mr_checkpoint_begin(const struct mr_checkpoint_place *at, uint64_t step, struct mr_error *err)
{
    struct mr_path tmp = mr_checkpoint_dir_path(at->folder, step, MR_CHECKPOINT_TMP);
    struct mr_store_stat st;
    bool is_new = at->store->ops->stat(at->store, at->folder, &st, NULL) != 0;
    int rc = mr_store_mkdirs(at->store, at->folder, err);
    rc = rc ? rc : mr_store_abort_unfinished(at->store, at->folder, "step-", NULL, err);
    struct mr_path folder = mr_path("%s", at->folder);
    if (!rc && is_new && at->fsync) /* the folder itself must outlive a crash, too: its name lies in its parent */
        rc = at->store->ops->sync_dir(at->store, dirname(folder.text), err);
    rc = rc ? rc : mr_checkpoint_folder_repair(at->store, at->folder, err);
    if (!rc) /* or a file or a link has its name: that goes, not what it points to */
        rc = mr_checkpoint_dir_remove(at->store, tmp.text, err);
    return rc ? rc : at->store->ops->mkdir(at->store, tmp.text, err);
}
