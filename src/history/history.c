/* See history.h. A folder with summary.json is a run; so is one with traces of DFTracer, which writes a file per process.
 * Every other trace is a run by itself. Links to folders are not followed. */
#include "history/history.h"
#include "base/common.h"
#include "base/regular_file.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MOST 8u
#define PATH_CAP 4300
#define LEVEL 0.01
#define LEAST 0.02 /* of a mean; of shares 0.01 */

enum mr_compare_metric mr_history_metric_of(enum mr_history_metric m)
{
    static const enum mr_compare_metric of[] = {
#define METRIC(name) MR_COMPARE_##name,
        MR_HISTORY_METRICS(METRIC)
#undef METRIC
    };
    return of[m];
}

/* ---- which runs there are ---- */

struct walk {
    struct mr_arena *arena;
    MR_VEC(const char *) path;
    bool cut;
};

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n > k && !strcmp(name + n - k, end);
}

static bool is_single_trace(const char *name)
{
    return ends_with(name, ".mrt") || ends_with(name, ".mrt.gz") || ends_with(name, ".darshan");
}

static bool is_dftracer(const char *name)
{
    return ends_with(name, ".pfw") || ends_with(name, ".pfw.gz");
}

static int add_path(struct walk *w, const char *path, struct mr_error *err)
{
    w->cut |= w->path.n == MR_HISTORY_MOST;
    if (w->cut)
        return 0;
    const char **to = MR_VEC_ADD(&w->path);
    char *copy = to ? mr_arena_strdup(w->arena, path) : NULL;
    if (!copy)
        return mr_error_set(err, -ENOMEM, "cannot list '%s'", path);
    *to = copy;
    return 0;
}

static int walk_folder(struct walk *w, const char *folder, unsigned depth, struct mr_error *err)
{
    struct dirent **entry;
    int n = scandir(folder, &entry, NULL, alphasort), rc = 0;
    bool results = false, dftracer = false;
    if (n < 0)
        return mr_error_set(err, -errno, "cannot read the folder '%s'", folder);
    for (int i = 0; i < n; i++) {
        results |= !strcmp(entry[i]->d_name, "summary.json");
        dftracer |= is_dftracer(entry[i]->d_name);
    }
    if (results || dftracer)
        rc = add_path(w, folder, err);
    for (int i = 0; i < n; i++) {
        const char *name = entry[i]->d_name;
        char path[PATH_CAP];
        struct stat st;
        bool fits = snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path;
        if (!rc && fits && *name != '.' && lstat(path, &st) == 0) {
            if (S_ISDIR(st.st_mode) && depth < DEPTH_MOST) {
                struct mr_error why; /* a folder that others closed is no reason to show nothing */
                rc = walk_folder(w, path, depth + 1, &why);
                rc = rc == -ENOMEM ? mr_error_set(err, rc, "cannot list '%s'", path) : 0;
            } else if (S_ISREG(st.st_mode) && !results && is_single_trace(name)) {
                rc = add_path(w, path, err);
            }
        }
        free(entry[i]);
    }
    free(entry);
    return rc;
}

static int walk_path(struct walk *w, const char *path, struct mr_error *err)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return mr_error_set(err, -errno, "cannot find '%s'", path);
    return S_ISDIR(st.st_mode) ? walk_folder(w, path, 0, err) : add_path(w, path, err);
}

/* ---- what each was ---- */

/* The program without what changes from run to run: its words up to the first option behind the script. */
static const char *name_of(const struct mr_compare_run *r, struct mr_arena *a)
{
    const char *name = r->name ? r->name : "", *at = strstr(name, " -");
    char *end = NULL;
    if (!at)
        return mr_arena_strdup(a, name);
    const char *script = strstr(name, ".py"); /* "python -m train --lr 3", "python -u train.py --lr 3" */
    if (script && script > at)
        at = strchr(script, ' ');
    else if (!strncmp(at, " -m ", 4))
        at = strchr(at + 4, ' ');
    end = mr_arena_strdup(a, name);
    if (end && at)
        end[at - name] = '\0';
    return end;
}

static uint64_t written_ns(const char *path)
{
    char file[PATH_CAP];
    struct stat st;
    snprintf(file, sizeof file, "%s/summary.json", path);
    if (stat(file, &st) < 0 && stat(path, &st) < 0)
        return 0;
    return (uint64_t)st.st_mtim.tv_sec * MR_NS_PER_S;
}

static int add_entry(struct mr_history *h, const char *path, const struct mr_compare_options *opt, struct mr_error *err)
{
    struct mr_error why;
    struct mr_history_entry e = {.path = path, .series = SIZE_MAX, .name = ""};
    int rc = mr_compare_run_load(path, opt, &h->arena, &e.run, &why);
    if (rc == MR_E_INTERRUPTED || rc == -ENOMEM)
        return mr_error_set(err, rc, "%s", why.message);
    if (rc) {
        e.error = mr_arena_strdup(&h->arena, why.message);
        e.start_ns = written_ns(path);
    } else {
        e.name = name_of(&e.run, &h->arena);
        e.start_ns = e.run.simulated ? written_ns(path) : e.run.start_ns;
        struct mr_compare_run kept = e.run;
        mr_compare_run_done(&e.run); /* steps and settings: of a thousand runs they would fill the memory */
        kept.step = NULL;
        kept.setting = kept.machine = NULL;
        e.run = kept;
    }
    if ((rc && !e.error) || !e.name || mr_vec_reserve(&h->entry, &h->entry_cap, h->entries + 1, sizeof e) < 0)
        return mr_error_set(err, -ENOMEM, "cannot list '%s'", path);
    h->entry[h->entries++] = e;
    return 0;
}

static int by_time(const void *a, const void *b)
{
    const struct mr_history_entry *x = a, *y = b;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    return strcmp(x->path, y->path);
}

/* ---- series ---- */

static bool is_comparable(const struct mr_history_entry *e)
{
    return !e->error && !e->run.simulated && !e->run.incomplete && *e->name;
}

static struct mr_history_series *series_of(struct mr_history *h, const struct mr_history_entry *e)
{
    for (size_t i = 0; i < h->series_count; i++)
        if (!strcmp(h->series[i].name, e->name) && h->series[i].ranks == e->run.work.ranks)
            return &h->series[i];
    if (mr_vec_reserve(&h->series, &h->series_cap, h->series_count + 1, sizeof(*h->series)) < 0)
        return NULL;
    h->series[h->series_count] = (struct mr_history_series){.name = e->name, .ranks = e->run.work.ranks};
    return &h->series[h->series_count++];
}

/* Runs that do not know a figure are passed over; `at` counts them nevertheless. */
static void find_changes(const struct mr_history *h, struct mr_history_series *s, enum mr_history_metric m,
                         double *value, size_t *place)
{
    enum mr_compare_metric metric = mr_history_metric_of(m);
    bool share = mr_compare_metric_info[metric].unit == MR_IN_SHARE;
    size_t n = 0;
    for (size_t i = 0; i < s->entries; i++) {
        double v = h->entry[s->entry[i]].run.value[metric];
        if (!isfinite(v))
            continue;
        value[n] = v;
        place[n++] = i;
    }
    s->metric[m].changes =
        mr_change_points(value, n, LEVEL, share ? LEAST / 2 : LEAST, share, s->metric[m].change, MR_HISTORY_CHANGES);
    for (size_t k = 0; k < s->metric[m].changes; k++)
        s->metric[m].change[k].at = place[s->metric[m].change[k].at];
}

static int make_series(struct mr_history *h, struct mr_error *err)
{
    double *value = malloc((h->entries + 1) * sizeof(*value));
    size_t *place = malloc((h->entries + 1) * sizeof(*place));
    int rc = value && place ? 0 : -ENOMEM;
    for (size_t i = 0; i < h->entries && !rc; i++) {
        struct mr_history_series *s = is_comparable(&h->entry[i]) ? series_of(h, &h->entry[i]) : NULL;
        if (s) {
            h->entry[i].series = (size_t)(s - h->series);
            s->entries++;
        } else if (is_comparable(&h->entry[i])) {
            rc = -ENOMEM;
        }
    }
    for (size_t k = 0; k < h->series_count && !rc; k++) {
        struct mr_history_series *s = &h->series[k];
        s->entry = mr_arena_alloc(&h->arena, s->entries * sizeof(*s->entry));
        s->entries = 0;
        for (size_t i = 0; i < h->entries && s->entry; i++)
            if (h->entry[i].series == k)
                s->entry[s->entries++] = i;
        rc = s->entry ? 0 : -ENOMEM;
        for (unsigned m = 0; m < MR_HISTORY_METRIC_COUNT && !rc; m++)
            find_changes(h, s, (enum mr_history_metric)m, value, place);
    }
    free(value);
    free(place);
    return rc ? mr_error_set(err, rc, "cannot list the runs") : 0;
}

int mr_history_read(const char *const *path, size_t n, const struct mr_compare_options *opt, struct mr_history *h,
                    struct mr_error *err)
{
    struct walk w = {.arena = &h->arena};
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++)
        rc = walk_path(&w, path[i], err);
    if (!rc && !w.path.n) {
        mr_error_plain(err, MR_E_FORMAT, "'%s' holds no runs and no traces", path[0]);
        mr_error_hint(err, "name a folder with results of 'millrace run' or traces of 'millrace trace'");
        rc = MR_E_FORMAT;
    }
    for (size_t i = 0; i < w.path.n && !rc; i++)
        rc = add_entry(h, w.path.item[i], opt, err);
    h->cut = w.cut;
    free(w.path.item);
    if (rc)
        return rc;
    qsort(h->entry, h->entries, sizeof(*h->entry), by_time);
    return make_series(h, err);
}

void mr_history_done(struct mr_history *h)
{
    free(h->entry);
    free(h->series);
    mr_arena_done(&h->arena);
    *h = (struct mr_history){0};
}

/* ---- the last good one ---- */

const char *mr_history_check_file(const char *run, char *out, size_t cap)
{
    struct stat st;
    bool folder = stat(run, &st) == 0 && S_ISDIR(st.st_mode);
    snprintf(out, cap, folder ? "%s/check.json" : "%s.check.json", run);
    return out;
}

static bool passed(const char *run)
{
    char file[PATH_CAP];
    FILE *f = mr_fopen_regular(mr_history_check_file(run, file, sizeof file));
    json_t *j = f ? json_loadf(f, 0, NULL) : NULL;
    bool met = json_is_true(json_object_get(j, "met")) && json_is_true(json_object_get(j, "complete")) &&
               json_is_true(json_object_get(j, "trusted"));
    json_decref(j);
    if (f)
        fclose(f);
    return met;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int mr_history_last_good(const char *folder, const char *run, const struct mr_compare_options *opt, char *out,
                         size_t cap, struct mr_error *err)
{
    struct mr_history h = {0}, mine = {0};
    struct walk w = {.arena = &h.arena};
    const struct mr_history_entry *best = NULL;
    int rc = walk_path(&w, folder, err);
    for (size_t i = 0; i < w.path.n && !rc; i++)
        if (!is_same_file(w.path.item[i], run) && passed(w.path.item[i]))
            rc = add_entry(&h, w.path.item[i], opt, err);
    rc = rc ? rc : mr_history_read(&run, 1, opt, &mine, err);
    for (size_t i = 0; i < h.entries && !rc; i++) {
        const struct mr_history_entry *e = &h.entry[i], *m = &mine.entry[0];
        bool same =
            is_comparable(e) && !m->error && !strcmp(e->name, m->name) && e->run.work.ranks == m->run.work.ranks;
        if (same && e->start_ns < m->start_ns && (!best || e->start_ns > best->start_ns))
            best = e;
    }
    if (best)
        snprintf(out, cap, "%s", best->path);
    rc = rc ? rc : best != NULL;
    free(w.path.item);
    mr_history_done(&h);
    mr_history_done(&mine);
    return rc;
}
