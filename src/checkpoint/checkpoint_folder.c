/* Naming, finding and removing checkpoints: see the header for the names and what each means. */
#include "checkpoint/checkpoint_folder.h"

#include "base/common.h"
#include "base/log.h"
#include "base/vec.h"
#include "checkpoint/checkpoint_foreign.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MIN 12
#define DIGITS_MAX 18
#define ATTEMPTS 5 /* to remove a folder in which another rank is just ending its part */

static const char *const suffix_of[] = {[MR_CHECKPOINT_COMPLETE] = "",
                                        [MR_CHECKPOINT_OLD] = ".old",
                                        [MR_CHECKPOINT_AGAIN] = ".again",
                                        [MR_CHECKPOINT_TMP] = ".tmp"};

struct mr_path mr_path(const char *fmt, ...)
{
    struct mr_path p;
    va_list args;
    va_start(args, fmt);
    vsnprintf(p.text, sizeof p.text, fmt, args);
    va_end(args);
    return p;
}

struct mr_path mr_checkpoint_dir_path(const char *folder, uint64_t step, enum mr_checkpoint_kind kind)
{
    return mr_path("%s/step-%012" PRIu64 "%s", folder, step, suffix_of[kind]);
}

uint64_t mr_checkpoint_step_of(const char *dir_path)
{
    return strtoull(strrchr(dir_path, '/') + strlen("/step-"), NULL, 10);
}

/* Only names that mr_checkpoint_dir_path makes: sscanf would also take "step- 5" and "step--5". */
static bool parse_name(const char *name, struct mr_checkpoint_dir *out)
{
    if (strncmp(name, "step-", 5) != 0)
        return false;
    size_t digits = strspn(name + 5, "0123456789");
    if (digits < DIGITS_MIN || digits > DIGITS_MAX || (digits > DIGITS_MIN && name[5] == '0'))
        return false;
    for (size_t k = 0; k < MR_ARRAY_LEN(suffix_of); k++)
        if (strcmp(name + 5 + digits, suffix_of[k]) == 0) {
            *out = (struct mr_checkpoint_dir){.step = strtoull(name + 5, NULL, 10), .kind = (enum mr_checkpoint_kind)k};
            return true;
        }
    return false;
}

static int collect(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    struct mr_checkpoint_dirs *d = user;
    struct mr_checkpoint_dir found;
    if (!is_dir || !parse_name(name, &found))
        return 0;
    struct mr_checkpoint_dir *new = MR_VEC_ADD(d);
    if (!new)
        return mr_error_set(err, -ENOMEM, "cannot list checkpoints");
    *new = found;
    return 0;
}

static int by_step(const void *a, const void *b)
{
    const struct mr_checkpoint_dir *x = a, *y = b;
    return x->step != y->step ? MR_ORDER(x->step, y->step) : (int)x->kind - (int)y->kind;
}

int mr_checkpoint_dirs_read(struct mr_store *s, const char *folder, struct mr_checkpoint_dirs *out,
                            struct mr_error *err)
{
    *out = (struct mr_checkpoint_dirs){0};
    int rc = s->ops->list(s, folder, collect, out, err);
    uint64_t had = UINT64_MAX; /* the step of the last usable one: the first of a step counts */
    if (out->n)
        qsort(out->item, out->n, sizeof(*out->item), by_step);
    for (struct mr_checkpoint_dir *d = out->item; rc >= 0 && d < out->item + out->n; d++) {
        d->usable = d->kind != MR_CHECKPOINT_TMP && d->step != had;
        if (d->usable && mr_store_puts_whole(s)) { /* C9 */
            rc = mr_checkpoint_has_list(s, mr_checkpoint_dir_path(folder, d->step, d->kind).text, err);
            d->usable = rc > 0;
        }
        had = d->usable ? d->step : had;
    }
    if (rc < 0)
        mr_checkpoint_dirs_done(out);
    return MR_MIN(rc, 0);
}

void mr_checkpoint_dirs_done(struct mr_checkpoint_dirs *d)
{
    free(d->item);
    *d = (struct mr_checkpoint_dirs){0};
}

int mr_checkpoint_find(struct mr_store *s, const char *folder, uint64_t step, struct mr_path *out, struct mr_error *err)
{
    struct mr_checkpoint_dirs d;
    uint64_t newest = UINT64_MAX;
    int rc = mr_checkpoint_dirs_read(s, folder, &d, err);
    if (rc == -ENOTDIR) {
        mr_error_plain(err, MR_E_INCOMPLETE, "'%s' is no folder of checkpoints", folder);
        return mr_checkpoint_hint_foreign(s, folder, err), MR_E_INCOMPLETE;
    }
    if (rc)
        return rc == -ENOENT
                   ? mr_error_plain(err, MR_E_INCOMPLETE,
                                    "there is no complete checkpoint in '%s': the folder does not exist", folder)
                   : rc;
    rc = MR_E_INCOMPLETE;
    for (size_t i = d.n; i-- > 0 && rc;) {
        if (!d.item[i].usable)
            continue;
        newest = newest == UINT64_MAX ? d.item[i].step : newest;
        if (step == UINT64_MAX || step == d.item[i].step) {
            *out = mr_checkpoint_dir_path(folder, d.item[i].step, d.item[i].kind);
            rc = 0;
        }
    }
    bool unfinished = d.n > 0;
    mr_checkpoint_dirs_done(&d);
    if (!rc)
        return 0;
    if (step == UINT64_MAX)
        mr_error_plain(err, MR_E_INCOMPLETE, "there is no complete checkpoint in '%s'%s", folder,
                       unfinished ? ", only unfinished ones" : "");
    else
        mr_error_plain(err, MR_E_INCOMPLETE, "there is no complete checkpoint of step %" PRIu64 " in '%s'", step,
                       folder);
    if (newest != UINT64_MAX)
        mr_error_hint(err, "the newest is of step %" PRIu64, newest);
    else
        mr_checkpoint_hint_foreign(s, folder, err);
    return MR_E_INCOMPLETE;
}

/* ---- removing ---- */

struct removal {
    struct mr_store *store;
    const char *dir;
    bool foreign; /* a folder is in it */
};

/* Folders in a checkpoint are not ours and stay: under another name, so that they are in nobody's way. */
static int set_aside(struct mr_store *s, const char *dir, struct mr_error *err)
{
    struct mr_path kept;
    struct mr_store_stat st;
    unsigned n = 0;
    do
        kept = mr_path("%s.kept-%u", dir, n++);
    while (n < 1000 && s->ops->stat(s, kept.text, &st, NULL) == 0);
    int rc = s->ops->rename(s, dir, kept.text, err);
    if (!rc)
        mr_log(MR_LOG_WARN, "'%s' has folders in it that no checkpoint has: they are kept as '%s'", dir, kept.text);
    return rc;
}

static int remove_file(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    struct removal *r = user;
    int rc = r->store->ops->unlink(r->store, mr_path("%s/%s", r->dir, name).text, err);
    r->foreign |= is_dir;
    return rc == -ENOENT || rc == -ENOTEMPTY || rc == -EEXIST ? 0 : rc;
}

int mr_checkpoint_dir_remove(struct mr_store *s, const char *dir, struct mr_error *err)
{
    struct mr_error why;
    struct removal r = {.store = s, .dir = dir};
    int rc = -ENOTEMPTY;
    if (mr_store_puts_whole(s)) /* C9; folders in it are in nobody's way */
        return mr_store_remove_objects(s, dir, MR_CHECKPOINT_LIST_NAME, err);
    for (int attempt = 0; attempt < ATTEMPTS && !r.foreign && (rc == -ENOTEMPTY || rc == -EEXIST); attempt++) {
        rc = s->ops->list(s, dir, remove_file, &r, &why);
        if (rc >= 0 || rc == -ENOTDIR || rc == -ELOOP) /* a file or a link in our way */
            rc = s->ops->unlink(s, dir, &why); /* -ENOTEMPTY: a folder that is not ours, or what a rank still writes */
    }
    if (r.foreign && (rc == -ENOTEMPTY || rc == -EEXIST))
        rc = set_aside(s, dir, &why);
    if (rc == -ENOENT)
        return 0;
    if (rc < 0 && err)
        *err = why;
    return rc < 0 ? rc : 0;
}

int mr_checkpoint_has_list(struct mr_store *s, const char *dir, struct mr_error *err)
{
    struct mr_store_stat st;
    return mr_store_look(s, mr_path("%s/" MR_CHECKPOINT_LIST_NAME, dir).text, &st, err);
}

int mr_checkpoint_retire(struct mr_store *s, const char *folder, uint64_t step, struct mr_error *err)
{
    struct mr_path tmp = mr_checkpoint_dir_path(folder, step, MR_CHECKPOINT_TMP);
    struct mr_path final = mr_checkpoint_dir_path(folder, step, MR_CHECKPOINT_COMPLETE);
    bool by_list = mr_store_puts_whole(s);
    int rc = mr_checkpoint_dir_remove(s, tmp.text, err);
    if (!rc && by_list)
        rc = mr_checkpoint_dir_remove(s, mr_checkpoint_dir_path(folder, step, MR_CHECKPOINT_AGAIN).text, err);
    else if (!rc)
        rc = s->ops->rename(s, final.text, tmp.text, err);
    return rc ? rc : mr_checkpoint_dir_remove(s, by_list ? final.text : tmp.text, err);
}

int mr_checkpoint_folder_repair(struct mr_store *s, const char *folder, struct mr_error *err)
{
    struct mr_checkpoint_dirs d;
    bool by_list = mr_store_puts_whole(s);
    int rc = mr_checkpoint_dirs_read(s, folder, &d, err);
    if (rc)
        return rc == -ENOENT && by_list ? 0 : rc; /* folders are not made there */
    for (const struct mr_checkpoint_dir *i = d.item; i < d.item + d.n && !rc; i++) {
        struct mr_path path = mr_checkpoint_dir_path(folder, i->step, i->kind);
        if (i->usable && i->kind == MR_CHECKPOINT_OLD)
            rc =
                s->ops->rename(s, path.text, mr_checkpoint_dir_path(folder, i->step, MR_CHECKPOINT_COMPLETE).text, err);
        else if (!i->usable && (by_list || i->kind != MR_CHECKPOINT_AGAIN))
            rc = mr_checkpoint_dir_remove(s, path.text, err);
    }
    mr_checkpoint_dirs_done(&d);
    return rc;
}
