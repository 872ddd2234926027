/* Walking a folder tree: see walk.h. The folders of one level are the work items; what they contain makes the next
 * level. */
#include "dataset/walk.h"
#include "base/common.h"
#include "base/strbuf.h"
#include "base/vec.h"
#include "base/workers.h"
#include "dataset/manifest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_DEPTH 128

struct level {
    struct mr_strbuf text; /* NUL-terminated names */
    size_t *at;
    size_t n, cap;
};

struct walk {
    struct mr_store *store;
    const char *root;
    mr_walk_fn *fn;
    void *user;
    struct level current, *next; /* next: one per thread */
};

struct visit {
    struct walk *w;
    unsigned thread;
    const char *folder; /* "" for the root */
};

static bool level_add(struct level *l, const char *name)
{
    if (mr_vec_reserve(&l->at, &l->cap, l->n + 1, sizeof(*l->at)) < 0)
        return false;
    l->at[l->n++] = l->text.len;
    mr_strbuf_add(&l->text, name, strlen(name) + 1);
    return !l->text.failed;
}

static void level_done(struct level *l)
{
    mr_strbuf_done(&l->text);
    free(l->at);
    *l = (struct level){0};
}

/* Is the folder the same as one above it? Identity needs the file system itself; where the path means nothing to it
 * (stores in memory) there are no links either. */
static bool is_loop(const struct walk *w, const char *name)
{
    char path[4 * MR_NAME_MAX];
    struct stat self, above;
    size_t root = strlen(w->root);
    snprintf(path, sizeof path, "%s/%s", w->root, name);
    if (stat(path, &self) != 0)
        return false;
    for (char *slash; (slash = strrchr(path, '/')) && slash >= path + root;) {
        *slash = '\0';
        if (stat(path, &above) == 0 && above.st_dev == self.st_dev && above.st_ino == self.st_ino)
            return true;
    }
    return false;
}

static int visit_entry(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    struct visit *v = user;
    char full[2 * MR_NAME_MAX];
    if (name[0] == '.')
        return 0;
    int n = snprintf(full, sizeof full, "%s%s%s", v->folder, *v->folder ? "/" : "", name);
    if (n >= MR_NAME_MAX)
        return mr_error_set(err, -ENAMETOOLONG, "cannot use '%s/%s'", v->w->root, full);
    if (!is_dir)
        return v->w->fn(v->w->user, v->thread, full, err);
    unsigned depth = 0;
    for (const char *p = full; *p; p++)
        depth += *p == '/';
    if (depth > MAX_DEPTH || is_loop(v->w, full))
        return 0;
    return level_add(&v->w->next[v->thread], full) ? 0 : mr_error_set(err, -ENOMEM, "cannot list '%s'", v->w->root);
}

static int list_folder(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct walk *w = ctx->user;
    struct visit v = {.w = w, .thread = ctx->thread, .folder = w->current.text.text + w->current.at[index]};
    char path[2 * MR_NAME_MAX];
    snprintf(path, sizeof path, "%s%s%s", w->root, *v.folder ? "/" : "", v.folder);
    return w->store->ops->list(w->store, path, visit_entry, &v, err);
}

static bool gather(struct walk *w, unsigned threads)
{
    struct level all = {0};
    bool ok = true;
    for (unsigned t = 0; t < threads; t++) {
        for (size_t i = 0; ok && i < w->next[t].n; i++)
            ok = level_add(&all, w->next[t].text.text + w->next[t].at[i]);
        level_done(&w->next[t]);
    }
    level_done(&w->current);
    w->current = all;
    return ok;
}

int mr_walk(struct mr_store *s, const char *root, unsigned threads, const atomic_bool *stop, mr_walk_fn *fn, void *user,
            struct mr_error *err)
{
    struct walk w = {.store = s, .root = root, .fn = fn, .user = user};
    threads = MR_MAX(threads, 1u);
    w.next = calloc(threads, sizeof(*w.next));
    int r = w.next && level_add(&w.current, "") ? 0 : mr_error_set(err, -ENOMEM, "cannot list '%s'", root);
    while (r >= 0 && w.current.n) {
        r = mr_workers_run(threads, w.current.n, 1, list_folder, &w, stop, err);
        if (r >= 0 && !gather(&w, threads))
            r = mr_error_set(err, -ENOMEM, "cannot list '%s'", root);
    }
    for (unsigned t = 0; w.next && t < threads; t++)
        level_done(&w.next[t]);
    free(w.next);
    level_done(&w.current);
    return r < 0 ? r : 0;
}

bool mr_is_storage_error(int code)
{
    return mr_error_exit_status(code) == 5 && code != -ENOENT && code != -ENOTDIR;
}
