/* Where a series of numbers, one per run, changed its level. The strongest split of the series in two is kept if
 * Student's t, with the spread of both parts together, calls it certain after correction for the number of places where
 * it could have been (Bonferroni), and if it is large enough; then both parts are looked at alike. A part has at least
 * two runs: one run that is off is no new level. */
#ifndef MR_HISTORY_CHANGE_POINTS_H
#define MR_HISTORY_CHANGE_POINTS_H

#include <stddef.h>

struct mr_change_point {
    size_t at;            /* index of the first run of the new level */
    double before, after; /* means of the levels on both sides */
    double p;             /* corrected */
};

/* Finds at most `cap` of them, in the order of the series; returns how many. `least`: the smallest change, relative to
 * the mean before, or with `absolute` in the series' own unit. */
size_t mr_change_points(const double *value, size_t n, double level, double least, int absolute,
                        struct mr_change_point *out, size_t cap);

#endif
