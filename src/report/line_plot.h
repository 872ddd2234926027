/* A plot of lines as a self-contained SVG, e.g. run time over the values of a swept key, one line per policy. The x
 * axis is logarithmic when the values span more than a factor of eight, and evenly spaced when they are no numbers
 * (sizes with units are); the y axis is logarithmic when the values span more than a factor of twenty. Lines that lie
 * on each other are nested: each is as much wider as there are lines on top of it. */
#ifndef MR_REPORT_LINE_PLOT_H
#define MR_REPORT_LINE_PLOT_H

#include "base/strbuf.h"

#include <stdbool.h>

#define MR_PLOT_POINTS_MAX 64u

struct mr_plot_line {
    const char *name;
    const double *y;          /* one per x value; not above 0: there is none, and the line is interrupted */
    const double *low, *high; /* error bars, or NULL */
    unsigned colour;          /* an index; the same index is the same colour in every plot */
    bool is_bound;            /* dashed grey, without points */
};

struct mr_line_plot {
    const char *title, *x_name, *y_name, *unit; /* unit: of the points' titles */
    unsigned n;                                 /* x values, at most MR_PLOT_POINTS_MAX */
    const char *const *x;                       /* as text */
    const struct mr_plot_line *lines;
    unsigned n_lines;
};

void mr_line_plot_svg(const struct mr_line_plot *p, struct mr_strbuf *out);

#endif
