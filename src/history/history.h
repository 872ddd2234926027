/* The runs that lie in folders: results of `millrace run`, and traces of any kind. What `millrace ls` lists, and where
 * `check --history` finds the last good one. README.md has the invariants. */
#ifndef MR_HISTORY_HISTORY_H
#define MR_HISTORY_HISTORY_H

#include "compare/compare.h"
#include "history/change_points.h"

/* The figures whose trends are looked at; the first that a series has is the one it is judged by. */
#define MR_HISTORY_METRICS(X) X(STEP) X(WALL) X(STALL) X(SAMPLES_RATE)
enum mr_history_metric {
#define MR_HISTORY_ENUM(name) MR_HISTORY_##name,
    MR_HISTORY_METRICS(MR_HISTORY_ENUM)
#undef MR_HISTORY_ENUM
        MR_HISTORY_METRIC_COUNT
};
enum mr_compare_metric mr_history_metric_of(enum mr_history_metric m);

struct mr_history_entry {
    const char *path;
    struct mr_compare_run run; /* without steps and settings; nothing of it where `error` is set */
    const char *error;         /* why it cannot be read; NULL */
    const char *name;          /* what ran: the workload, or the program without its options; "" unknown */
    uint64_t start_ns;         /* real time; of simulations when their file was written */
    size_t series;             /* index; SIZE_MAX: belongs to none (H2) */
};

#define MR_HISTORY_CHANGES 16u

struct mr_history_series {
    const char *name;
    uint64_t ranks;
    size_t *entry; /* indices, by time; the arena's */
    size_t entries;
    struct {
        struct mr_change_point change[MR_HISTORY_CHANGES]; /* `at`: index into entry */
        size_t changes;
    } metric[MR_HISTORY_METRIC_COUNT];
};

struct mr_history {
    struct mr_arena arena;
    struct mr_history_entry *entry; /* by time */
    size_t entries, entry_cap;
    struct mr_history_series *series;
    size_t series_count, series_cap;
    bool cut; /* there were more than MR_HISTORY_MOST */
};

#define MR_HISTORY_MOST 20000u

/* Fills a zeroed history with the runs of the paths. MR_E_FORMAT where there is none, MR_E_INTERRUPTED. */
int mr_history_read(const char *const *path, size_t n, const struct mr_compare_options *opt, struct mr_history *h,
                    struct mr_error *err);
void mr_history_done(struct mr_history *h);

/* ---- the last good one ---- */

/* Where a check keeps its result beside what it checked: FOLDER/check.json, or TRACE.check.json. Returned. */
const char *mr_history_check_file(const char *run, char *out, size_t cap);
/* The newest run of a folder that a check let pass, of the same name and ranks as `run`, and not `run` itself. Returns
 * 1 with its path in `out`, 0 if there is none, or an error. Runs without the result of a check are not opened. */
int mr_history_last_good(const char *folder, const char *run, const struct mr_compare_options *opt, char *out,
                         size_t cap, struct mr_error *err);

#endif
