/* Lines as SVG; see line_plot.h. */
#include "report/line_plot.h"
#include "base/common.h"
#include "conf/option.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 860, HEIGHT = 480, LEFT = 80, RIGHT = 620, TOP = 50, BOTTOM = 420 };

struct axis {
    bool log;
    double low, high;
    double from, to; /* pixels */
};

static double place(const struct axis *a, double v)
{
    double low = a->log ? log(a->low) : a->low, high = a->log ? log(a->high) : a->high;
    double share = high > low ? ((a->log ? log(v) : v) - low) / (high - low) : 0.5;
    return a->from + share * (a->to - a->from);
}

static void put_text(struct mr_strbuf *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '&': mr_strbuf_puts(out, "&amp;"); break;
        case '<': mr_strbuf_puts(out, "&lt;"); break;
        case '>': mr_strbuf_puts(out, "&gt;"); break;
        default: mr_strbuf_putc(out, (unsigned char)*text < ' ' ? ' ' : *text);
        }
}

/* Eleven colours that stay apart for most colour-blind readers (Okabe-Ito and darker variants). */
static const char *const colours[] = {"#999999", "#000000", "#56b4e9", "#8c510a", "#e69f00", "#f0c030",
                                      "#cc79a7", "#882255", "#44aa99", "#d55e00", "#0072b2"};

static bool numbers(const struct mr_line_plot *p, double *x)
{
    for (unsigned i = 0; i < p->n; i++) {
        uint64_t bytes;
        if (mr_parse_double(p->x[i], &x[i])) {
            if (mr_parse_bytes(p->x[i], &bytes))
                return false;
            x[i] = (double)bytes;
        }
        if (!(x[i] > 0))
            return false;
    }
    return true;
}

static struct axis x_axis(const struct mr_line_plot *p, double *x)
{
    struct axis a = {.from = LEFT + 15, .to = RIGHT - 15, .low = INFINITY};
    if (!numbers(p, x))
        for (unsigned i = 0; i < p->n; i++)
            x[i] = i + 1;
    for (unsigned i = 0; i < p->n; i++) {
        a.low = fmin(a.low, x[i]);
        a.high = fmax(a.high, x[i]);
    }
    a.log = a.high > 8 * a.low;
    return a;
}

static struct axis y_axis(const struct mr_line_plot *p)
{
    struct axis a = {.from = BOTTOM, .to = TOP, .low = INFINITY};
    for (const struct mr_plot_line *l = p->lines; l < p->lines + p->n_lines; l++)
        for (unsigned i = 0; i < p->n; i++)
            if (l->y[i] > 0) {
                a.low = fmin(a.low, l->y[i]);
                a.high = fmax(a.high, l->high ? fmax(l->y[i], l->high[i]) : l->y[i]);
            }
    a.log = a.high > 20 * a.low;
    a.low = a.log ? pow(10, floor(log10(a.low))) : 0;
    a.high = a.log ? pow(10, ceil(log10(a.high))) : a.high * 1.05;
    return a;
}

/* 1, 2 or 5 times a power of ten, about `n` to the axis. */
static double tick_step(double high, double n)
{
    double raw = high / n, base = pow(10, floor(log10(raw)));
    return base * (raw <= base ? 1 : raw <= 2 * base ? 2 : raw <= 5 * base ? 5 : 10);
}

static void put_tick(struct mr_strbuf *out, const struct axis *y, double v)
{
    double at = place(y, v);
    mr_strbuf_printf(out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", LEFT, at, RIGHT, at);
    mr_strbuf_printf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", LEFT - 8, at + 4, v);
}

static void put_axes(struct mr_strbuf *out, const struct mr_line_plot *p, const struct axis *ax, const struct axis *ay,
                     const double *x)
{
    double step = ay->log ? 0 : tick_step(ay->high, 6), v = ay->log ? ay->low : 0;
    while (v <= ay->high * 1.001) {
        put_tick(out, ay, v);
        v = ay->log ? v * 10 : v + step;
    }
    double last = -INFINITY, last_width = 0;
    for (unsigned i = 0; i < p->n; i++) {
        double at = place(ax, x[i]);
        mr_strbuf_printf(out, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#333\"/>\n", at, BOTTOM, at,
                         BOTTOM + 5);
        double width = 8.0 * (double)strlen(p->x[i]);
        if (fabs(at - last) < (width + last_width) / 2 + 4)
            continue; /* would overlap the label before */
        last = at;
        last_width = width;
        mr_strbuf_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", at, BOTTOM + 20);
        put_text(out, p->x[i]);
        mr_strbuf_puts(out, "</text>\n");
    }
    mr_strbuf_printf(out, "<path d=\"M%d %d V%d H%d\" fill=\"none\" stroke=\"#333\"/>\n", LEFT, TOP, BOTTOM, RIGHT);
    mr_strbuf_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (LEFT + RIGHT) / 2, BOTTOM + 42);
    put_text(out, p->x_name);
    mr_strbuf_puts(out, ax->log ? " (logarithmic)</text>\n" : "</text>\n");
    mr_strbuf_printf(out,
                     "<text x=\"22\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 22 %d)\">%s, %s%s</text>\n",
                     (TOP + BOTTOM) / 2, (TOP + BOTTOM) / 2, p->y_name, p->unit, ay->log ? " (logarithmic)" : "");
}

static const char *colour_of(const struct mr_plot_line *l)
{
    return l->is_bound ? "#555" : colours[l->colour % MR_ARRAY_LEN(colours)];
}

/* How many of the later lines lie on this one, within a pixel or two at every point. */
static unsigned lines_on_top(const struct mr_line_plot *p, const struct mr_plot_line *l, const struct axis *ay)
{
    unsigned count = 0;
    for (const struct mr_plot_line *m = l + 1; m < p->lines + p->n_lines; m++) {
        bool same = true;
        for (unsigned i = 0; i < p->n && same; i++)
            same =
                (l->y[i] > 0) == (m->y[i] > 0) && (!(l->y[i] > 0) || fabs(place(ay, l->y[i]) - place(ay, m->y[i])) < 2);
        count += same;
    }
    return count;
}

static void put_error_bars(struct mr_strbuf *out, const struct mr_line_plot *p, const struct mr_plot_line *l,
                           const struct axis *ax, const struct axis *ay, const double *x)
{
    for (unsigned i = 0; l->low && i < p->n; i++)
        if (l->low[i] > 0 && l->high[i] > l->low[i]) {
            double at = place(ax, x[i]), top = place(ay, l->high[i]), bottom = place(ay, l->low[i]);
            mr_strbuf_printf(
                out, "<path class=\"error\" fill=\"none\" stroke=\"%s\" d=\"M%.1f %.1f h8 m-4 0 V%.1f m-4 0 h8\"/>\n",
                colour_of(l), at - 4, top, bottom);
        }
}

static void put_line(struct mr_strbuf *out, const struct mr_line_plot *p, const struct mr_plot_line *l,
                     const struct axis *ax, const struct axis *ay, const double *x)
{
    bool pen = false;
    unsigned above = lines_on_top(p, l, ay);
    mr_strbuf_printf(out, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%u\"%s d=\"", colour_of(l), 2 + 4 * above,
                     l->is_bound ? " stroke-dasharray=\"6 4\"" : "");
    for (unsigned i = 0; i < p->n; i++) {
        if (l->y[i] > 0)
            mr_strbuf_printf(out, "%s%.1f %.1f", pen ? " L" : " M", place(ax, x[i]), place(ay, l->y[i]));
        pen = l->y[i] > 0;
    }
    mr_strbuf_puts(out, "\"/>\n");
    for (unsigned i = 0; !l->is_bound && i < p->n; i++)
        if (l->y[i] > 0)
            mr_strbuf_printf(
                out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%u\" fill=\"%s\"><title>%s: %.2f %s</title></circle>\n",
                place(ax, x[i]), place(ay, l->y[i]), 3 + 2 * above, colour_of(l), l->name, l->y[i], p->unit);
    put_error_bars(out, p, l, ax, ay, x);
}

static void put_legend(struct mr_strbuf *out, const struct mr_plot_line *l, unsigned row)
{
    int y = TOP + 10 + (int)row * 22;
    mr_strbuf_printf(out,
                     "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"2\"%s/><text x=\"%d\" "
                     "y=\"%d\">%s</text>\n",
                     RIGHT + 20, y, RIGHT + 48, y, colour_of(l), l->is_bound ? " stroke-dasharray=\"6 4\"" : "",
                     RIGHT + 56, y + 4, l->name);
}

void mr_line_plot_svg(const struct mr_line_plot *p, struct mr_strbuf *out)
{
    double x[MR_PLOT_POINTS_MAX];
    struct axis ax = x_axis(p, x), ay = y_axis(p);
    mr_strbuf_printf(out,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                     "role=\"img\" font-family=\"sans-serif\" font-size=\"13\">\n<title>",
                     WIDTH, HEIGHT, WIDTH, HEIGHT);
    put_text(out, p->title);
    mr_strbuf_puts(out, "</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
    mr_strbuf_printf(out, "<text x=\"%d\" y=\"28\" font-size=\"16\">", LEFT);
    put_text(out, p->title);
    mr_strbuf_puts(out, "</text>\n");
    put_axes(out, p, &ax, &ay, x);
    for (unsigned i = 0; i < p->n_lines; i++) {
        put_line(out, p, &p->lines[i], &ax, &ay, x);
        put_legend(out, &p->lines[i], i);
    }
    mr_strbuf_puts(out, "</svg>\n");
}
