/* Drawings for pages: one chart is one inline SVG, drawn here in full; a script may add tooltips and zoom, but nothing
 * needs it. Used by every page we write (report, run, sim, compare).
 *
 *     struct mr_chart c = {.out = o, .height = 160, .x = {.high = seconds, .unit = MR_UNIT_SECONDS},
 *                          .y = {.high = most, .unit = MR_UNIT_RATE}};
 *     mr_chart_open(&c, "Bandwidth", "Bytes read per second over the run.");
 *     mr_chart_area(&c, bins, rate, "a0", "read");
 *     mr_chart_close(&c);
 *
 * Shapes take data coordinates. A chart is as wide as the page: the plot is stretched, text and lines are not, so that
 * it can be read at 390 pixels as at 1280.
 *
 * Colours are CSS classes; the same thing has the same colour in all pictures, and light or dark is the page's
 * business:
 *
 *     "t-<key>"   classes of time (mr_time_css)
 *     "s-<key>"   causes of a stall (mr_stall_css)
 *     "a0".."a5"  series without a meaning of their own: runs that are compared, files
 *     "rd", "wr"  reads and writes
 *     "quiet"     what is only there for comparison
 *
 * Whatever is drawn from a trace's names is escaped by these functions; tips are plain text. */
#ifndef MR_REPORT_SVG_CHART_H
#define MR_REPORT_SVG_CHART_H

#include "base/strbuf.h"
#include "explain/explain.h"
#include "report/html_text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mr_axis {
    double low, high; /* high < low: the axis runs the other way */
    enum mr_unit unit;
    const char *name; /* written at its end; NULL: none */
    bool log;         /* low and high above 0 */
    bool bare;        /* without ticks and lines */
};

struct mr_chart {
    /* set by the caller */
    struct mr_strbuf *out;
    struct mr_axis x, y;
    double height;             /* of the plot, pixels */
    const char *link;          /* "step" or "time": charts of one link zoom together; NULL: no zoom */
    bool is_small;             /* shares a row with others: fewer ticks */
    bool wide_labels;          /* room for names of rows on the left */
    const double *column_time; /* link "step": when each of `columns` columns begins, and the end: seconds */
    size_t columns;
    /* its own */
    unsigned id;
    bool in_plot;
};

/* Begins the chart; `title` and `description` are for those who cannot see it. */
void mr_chart_open(struct mr_chart *c, const char *title, const char *description);
void mr_chart_close(struct mr_chart *c);

/* ---- shapes, between open and close ---- */

struct mr_series {
    const char *css;
    const double *value; /* NAN: none */
};
/* n stacked columns that fill the x axis; one path per series. `gap` is the share of a column left free. What is above
 * the axis is cut off. */
void mr_chart_columns(struct mr_chart *c, size_t n, const struct mr_series *s, size_t series, double gap);
/* n values as steps that fill the x axis, as an area or only its upper edge; NAN interrupts. `name` (may be NULL) is
 * what the value under the pointer is called. */
void mr_chart_area(struct mr_chart *c, size_t n, const double *value, const char *css, const char *name);
void mr_chart_edge(struct mr_chart *c, size_t n, const double *value, const char *css, const char *name);
/* A line or dots through n points; NAN interrupts. */
void mr_chart_line(struct mr_chart *c, size_t n, const double *x, const double *y, const char *css);
void mr_chart_dots(struct mr_chart *c, size_t n, const double *x, const double *y, const char *css);
/* Upright strokes from y0 to y1 with round ends: a dot where they are the same. */
void mr_chart_strokes(struct mr_chart *c, size_t n, const double *x, const double *y0, const double *y1,
                      const char *css);
/* A rectangle; `tip` (may be NULL) is what a reader sees who points at it. */
void mr_chart_box(struct mr_chart *c, double x0, double x1, double y0, double y1, const char *css, const char *tip);
/* The whole height from x0 to x1: an epoch, a checkpoint, or (css "hit") nothing but its tip. */
void mr_chart_band(struct mr_chart *c, double x0, double x1, const char *css, const char *tip);
/* rows x columns of values 0 to 1 in shades of one colour, row 0 at the top; NAN is grey. `most` is what 1 stands for,
 * in `unit`. */
enum mr_heat_hue { MR_HEAT_BLUE, MR_HEAT_GREEN, MR_HEAT_RED };
void mr_chart_heat(struct mr_chart *c, size_t rows, size_t columns, const double *value, enum mr_heat_hue hue,
                   double most, enum mr_unit unit, size_t ranks_per_row, size_t ranks);
/* Text at a place of the plot, unstretched. May only follow all shapes. `anchor`: "start", "middle", "end". */
void mr_chart_note(struct mr_chart *c, double x, double y, const char *anchor, const char *text);
/* The name of a row on the left, centred at y. May only follow all shapes. */
void mr_chart_row_name(struct mr_chart *c, double y, const char *text);

/* ---- legends ---- */
void mr_legend_open(struct mr_strbuf *o);
void mr_legend_item(struct mr_strbuf *o, const char *css, const char *text);
void mr_legend_close(struct mr_strbuf *o);

const char *mr_time_css(enum mr_time_class t);
const char *mr_stall_css(enum mr_stall_cause s);
const char *mr_time_text(enum mr_time_class t); /* "data stall" */
const char *mr_stall_text(enum mr_stall_cause s);

/* The end of an axis from 0 that holds `most`: a little above, on a round number; 1 where there is nothing. */
double mr_axis_end(double most, enum mr_unit unit);

#endif
