/* The shapes of a chart, in the stretched plot. Many small things become one path: a column of a stack is "M x y h w v
 * h h -w z", about 20 bytes, so that 600 columns of 8 classes fit 100 KB. */
#include "base/common.h"
#include "report/svg_axis.h"
#include "report/svg_chart.h"

#include <math.h>
#include <stdlib.h>

/* Coordinates out of the plot cost digits and show nothing. */
static double held(double v, double most)
{
    return isnan(v) ? 0 : v < -most ? -most : v > 2 * most ? 2 * most : v;
}

static void put_point(struct mr_strbuf *o, char letter, double x, double y)
{
    mr_strbuf_putc(o, letter);
    mr_svg_number(o, held(x, MR_PLOT_WIDTH));
    mr_strbuf_putc(o, ' ');
    mr_svg_number(o, held(y, MR_PLOT_HEIGHT));
}

static void put_command(struct mr_strbuf *o, char letter, double v)
{
    mr_strbuf_putc(o, letter);
    mr_svg_number(o, v);
}

/* Where the stack of column i stands below series `upto`. */
static double stack_below(const struct mr_series *s, size_t upto, size_t i)
{
    double sum = 0;
    for (size_t k = 0; k < upto; k++)
        if (s[k].value[i] > 0)
            sum += s[k].value[i];
    return sum;
}

void mr_chart_columns(struct mr_chart *c, size_t n, const struct mr_series *s, size_t series, double gap)
{
    double width = n ? MR_PLOT_WIDTH / (double)n : 0;
    for (size_t k = 0; k < series; k++) {
        bool any = false;
        for (size_t i = 0; i < n; i++) {
            double v = s[k].value[i], below = stack_below(s, k, i);
            if (!(v > 0) || below >= c->y.high)
                continue;
            double y0 = mr_plot_y(c, below), y1 = fmax(0, mr_plot_y(c, below + v));
            if (y0 - y1 < 0.05)
                continue;
            if (!any)
                mr_strbuf_printf(c->out, "<path class=\"%s\" d=\"", s[k].css);
            any = true;
            put_point(c->out, 'M', ((double)i + gap / 2) * width, y1);
            put_command(c->out, 'h', width * (1 - gap));
            put_command(c->out, 'V', y0);
            put_command(c->out, 'h', -width * (1 - gap));
            mr_strbuf_putc(c->out, 'z');
        }
        if (any)
            mr_strbuf_puts(c->out, "\"/>");
    }
}

/* "M x y H x V y H x ...": two commands per value; equal neighbours are one. */
static void put_steps(struct mr_chart *c, size_t n, const double *value, bool closed)
{
    double width = MR_PLOT_WIDTH / (double)n, base = MR_PLOT_HEIGHT;
    bool pen = false;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(value[i])) {
            if (pen && closed)
                put_command(c->out, 'V', base);
            pen = false;
            continue;
        }
        double y = held(mr_plot_y(c, value[i]), MR_PLOT_HEIGHT);
        if (!pen)
            put_point(c->out, 'M', (double)i * width, closed ? base : y);
        pen = true;
        put_command(c->out, 'V', y);
        size_t same = i;
        while (same + 1 < n && value[same + 1] == value[i])
            same++;
        i = same;
        put_command(c->out, 'H', (double)(i + 1) * width);
    }
    if (pen && closed)
        put_command(c->out, 'V', base);
}

static void open_series(struct mr_chart *c, const char *kind, const char *css, const char *name)
{
    mr_strbuf_printf(c->out, "<path class=\"%s %s\"", kind, css);
    if (name) {
        mr_strbuf_puts(c->out, " data-n=\"");
        mr_html_short(c->out, name, 40);
        mr_strbuf_putc(c->out, '"');
    }
    mr_strbuf_puts(c->out, " d=\"");
}

void mr_chart_area(struct mr_chart *c, size_t n, const double *value, const char *css, const char *name)
{
    open_series(c, "ar", css, name);
    put_steps(c, n, value, true);
    mr_strbuf_puts(c->out, "\"/>");
}

void mr_chart_edge(struct mr_chart *c, size_t n, const double *value, const char *css, const char *name)
{
    open_series(c, "ln", css, name);
    put_steps(c, n, value, false);
    mr_strbuf_puts(c->out, "\"/>");
}

void mr_chart_line(struct mr_chart *c, size_t n, const double *x, const double *y, const char *css)
{
    bool pen = false;
    mr_strbuf_printf(c->out, "<path class=\"ln %s\" d=\"", css);
    for (size_t i = 0; i < n; i++) {
        if (isfinite(x[i]) && isfinite(y[i]))
            put_point(c->out, pen ? 'L' : 'M', mr_plot_x(c, x[i]), mr_plot_y(c, y[i]));
        pen = isfinite(x[i]) && isfinite(y[i]);
    }
    mr_strbuf_puts(c->out, "\"/>");
}

/* A line of no length with round ends is a dot that the stretching leaves round. */
void mr_chart_dots(struct mr_chart *c, size_t n, const double *x, const double *y, const char *css)
{
    mr_strbuf_printf(c->out, "<path class=\"dt %s\" d=\"", css);
    for (size_t i = 0; i < n; i++)
        if (isfinite(x[i]) && isfinite(y[i])) {
            put_point(c->out, 'M', mr_plot_x(c, x[i]), mr_plot_y(c, y[i]));
            mr_strbuf_puts(c->out, "h0");
        }
    mr_strbuf_puts(c->out, "\"/>");
}

void mr_chart_strokes(struct mr_chart *c, size_t n, const double *x, const double *y0, const double *y1,
                      const char *css)
{
    mr_strbuf_printf(c->out, "<path class=\"sp %s\" d=\"", css);
    for (size_t i = 0; i < n; i++)
        if (isfinite(x[i]) && isfinite(y0[i]) && isfinite(y1[i])) {
            put_point(c->out, 'M', mr_plot_x(c, x[i]), mr_plot_y(c, y0[i]));
            put_command(c->out, 'v',
                        held(mr_plot_y(c, y1[i]), MR_PLOT_HEIGHT) - held(mr_plot_y(c, y0[i]), MR_PLOT_HEIGHT));
        }
    mr_strbuf_puts(c->out, "\"/>");
}

void mr_chart_box(struct mr_chart *c, double x0, double x1, double y0, double y1, const char *css, const char *tip)
{
    double left = held(mr_plot_x(c, x0), MR_PLOT_WIDTH), right = held(mr_plot_x(c, x1), MR_PLOT_WIDTH);
    double a = held(mr_plot_y(c, y0), MR_PLOT_HEIGHT), b = held(mr_plot_y(c, y1), MR_PLOT_HEIGHT);
    mr_strbuf_printf(c->out, "<rect class=\"%s\" x=\"", css);
    mr_svg_number(c->out, fmin(left, right));
    mr_strbuf_puts(c->out, "\" y=\"");
    mr_svg_number(c->out, fmin(a, b));
    mr_strbuf_puts(c->out, "\" width=\"");
    mr_svg_number(c->out, fmax(0.1, fabs(right - left)));
    mr_strbuf_puts(c->out, "\" height=\"");
    mr_svg_number(c->out, fabs(a - b));
    if (tip) {
        mr_strbuf_puts(c->out, "\"><title>");
        mr_html_text(c->out, tip);
        mr_strbuf_puts(c->out, "</title></rect>");
    } else {
        mr_strbuf_puts(c->out, "\"/>");
    }
}

void mr_chart_band(struct mr_chart *c, double x0, double x1, const char *css, const char *tip)
{
    mr_chart_box(c, x0, x1, c->y.low, c->y.high, css, tip);
}
