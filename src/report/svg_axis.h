/* Ticks of an axis; shared by the files of the chart. */
#ifndef MR_REPORT_SVG_AXIS_H
#define MR_REPORT_SVG_AXIS_H

#include "report/svg_chart.h"

#define MR_TICKS_MAX 24

struct mr_tick {
    double value;
    char text[MR_HUMAN_LEN];
};
/* About `want` ticks on round numbers within the axis. */
size_t mr_axis_ticks(const struct mr_axis *a, unsigned want, struct mr_tick tick[MR_TICKS_MAX]);
/* 0 at low, 1 at high. */
double mr_axis_place(const struct mr_axis *a, double v);
/* A coordinate, as short as it gets: one digit behind the point, or none. */
void mr_svg_number(struct mr_strbuf *o, double v);
/* The plot's own coordinates: 0 to MR_PLOT_WIDTH, 0 (top) to MR_PLOT_HEIGHT. */
#define MR_PLOT_WIDTH 2000.0
#define MR_PLOT_HEIGHT 1000.0
double mr_plot_x(const struct mr_chart *c, double v);
double mr_plot_y(const struct mr_chart *c, double v);

#endif
