/* Data files and their copies: see stage.h. */
#include "loop/stage.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/regular_file.h"
#include "base/vec.h"
#include "base/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PIECE_BYTES (4 * MR_MIB)
#define GROUPS_ALL 50u /* more groups than an explanation lists */
#define ROOM 0.9       /* of what is free: more is not taken */

/* ---- which ---- */

static bool is_data(const struct mr_explain_group *g)
{
    return g->data && !g->checkpoint && g->read_bytes > 0 && g->name && g->name[0] == '/' && strstr(g->name, "/*");
}

/* A path is of a group: "FOLDER/" and the ending behind the star. */
static bool is_of(const char *path, const char *group, bool any_folder)
{
    const char *star = strrchr(group, '*'), *slash = strrchr(path, '/');
    size_t folder = (size_t)(star - group), ending = strlen(star + 1), len = strlen(path);
    bool here = any_folder || ((size_t)(slash + 1 - path) == folder && !strncmp(path, group, folder));
    return here && len >= ending && !strcmp(path + len - ending, star + 1);
}

static bool is_wanted(const struct mr_explanation *x, const char *path)
{
    bool many = x->groups >= GROUPS_ALL; /* there are folders that are not listed */
    for (size_t i = 0; i < x->groups; i++)
        if (is_data(&x->group[i]) && is_of(path, x->group[i].name, many))
            return true;
    return false;
}

/* The folder that all groups have in common, without a slash at its end. */
static void find_root(const struct mr_explanation *x, char root[PATH_MAX])
{
    *root = 0;
    for (size_t i = 0; i < x->groups; i++) {
        const char *name = x->group[i].name;
        if (!is_data(&x->group[i]))
            continue;
        if (!*root)
            snprintf(root, PATH_MAX, "%s", name);
        size_t same = 0;
        while (root[same] && root[same] == name[same])
            same++;
        root[same] = 0;
        char *slash = strrchr(root, '/');
        if (slash)
            *slash = 0;
    }
}

static int add_file(struct mr_data_files *f, const char *path, uint64_t bytes)
{
    if (f->n == f->cap && mr_vec_reserve(&f->file, &f->cap, f->n + 1, sizeof(*f->file)) < 0)
        return -ENOMEM;
    f->file[f->n] = (struct mr_data_file){strdup(path), bytes};
    if (!f->file[f->n].path)
        return -ENOMEM;
    f->n++;
    f->bytes += bytes;
    return 0;
}

static int list_files(const struct mr_explanation *x, struct mr_data_files *f)
{
    char *roots[] = {f->root, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    int rc = walk ? 0 : -errno;
    for (FTSENT *e; walk && !rc && (e = fts_read(walk));)
        if (e->fts_info == FTS_F && is_wanted(x, e->fts_path))
            rc = add_file(f, e->fts_path, (uint64_t)e->fts_statp->st_size);
    if (walk)
        fts_close(walk);
    return rc;
}

int mr_data_files_of(const struct mr_explanation *x, struct mr_data_files *out, struct mr_error *err)
{
    struct mr_data_files f = {0};
    find_root(x, f.root);
    if (!*f.root)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "the trace does not show which files are read for batches");
    int rc = list_files(x, &f);
    if (!rc && !f.n)
        rc = mr_error_plain(err, MR_E_UNSUPPORTED, "the data files are no longer in '%s'", f.root);
    else if (rc)
        mr_error_set(err, rc, "cannot list the data files in '%s'", f.root);
    if (rc)
        mr_data_files_done(&f);
    else
        *out = f;
    return rc;
}

void mr_data_files_done(struct mr_data_files *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->file[i].path);
    free(f->file);
    *f = (struct mr_data_files){0};
}

void mr_data_files_evict(const struct mr_data_files *f)
{
    for (size_t i = 0; i < f->n; i++) {
        int fd = mr_openat_regular(AT_FDCWD, f->file[i].path, O_RDONLY, 0, NULL);
        if (fd >= 0) {
            (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            close(fd);
        }
    }
}

/* ---- copies ---- */

struct copying {
    const struct mr_data_files *f;
    const char *to;
};

static int make_folders(char *path, size_t from)
{
    for (char *slash = strchr(path + from, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        int rc = mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
        *slash = '/';
        if (rc)
            return rc;
    }
    return 0;
}

static int copy_bytes(int from, int to, char *buffer)
{
    ssize_t got;
    while ((got = read(from, buffer, PIECE_BYTES)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        for (ssize_t done = 0, n; done < got; done += n)
            if ((n = write(to, buffer + done, (size_t)(got - done))) < 0) {
                if (errno != EINTR)
                    return -errno;
                n = 0;
            }
    }
    (void)posix_fadvise(from, 0, 0, POSIX_FADV_DONTNEED);
    return 0;
}

static int copy_one(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    const struct copying *c = ctx->user;
    const char *path = c->f->file[index].path;
    char to[2 * PATH_MAX];
    snprintf(to, sizeof to, "%s%s", c->to, path + strlen(c->f->root));
    char *buffer = malloc(PIECE_BYTES);
    int from = mr_openat_regular(AT_FDCWD, path, O_RDONLY, 0, NULL), rc = from < 0 ? from : 0;
    rc = rc ? rc : make_folders(to, strlen(c->to) + 1);
    int out = rc ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (!rc && (out < 0 || !buffer))
        rc = buffer ? -errno : -ENOMEM;
    rc = rc ? rc : copy_bytes(from, out, buffer);
    if (out >= 0 && close(out) < 0 && !rc)
        rc = -errno;
    if (from >= 0)
        close(from);
    free(buffer);
    return rc ? mr_error_set(err, rc, "cannot copy '%s' to '%s'", path, c->to) : 0;
}

int mr_data_files_copy(const struct mr_data_files *f, const char *to, unsigned threads, const atomic_bool *stop,
                       double *seconds, struct mr_error *err)
{
    struct statvfs fs;
    struct copying c = {f, to};
    uint64_t begin = mr_now_ns();
    if (statvfs(to, &fs) < 0)
        return mr_error_set(err, -errno, "cannot copy the data to '%s'", to);
    double room = ROOM * (double)fs.f_bavail * (double)fs.f_frsize;
    if ((double)f->bytes > room)
        return mr_error_plain(err, MR_E_UNSUPPORTED,
                              "there is no room for the data in '%s': they have %llu bytes, %.0f are free", to,
                              (unsigned long long)f->bytes, room);
    int rc = mr_workers_run(MR_MAX(threads, 1u), f->n, 1, copy_one, &c, stop, err);
    *seconds = (double)(mr_now_ns() - begin) / 1e9;
    return rc;
}
