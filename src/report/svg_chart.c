/* The frame of a chart: one SVG with percentages across, pixels down, and inside it a second one for the plot, which is
 * stretched to the width of the page.
 *
 *     <svg width=100%>              ticks, lines, labels: text keeps its size
 *       <svg class=p viewBox=...>   shapes: stretched, lines keep their width (vector-effect)
 *
 * Labels of the y axis lie left of x = 0, in the padding of the box around the chart. The script zooms by changing the
 * viewBox of the plot and writing the ticks anew, for which the axis is in data-x0, data-x1 and data-xu. */
#include "report/svg_chart.h"
#include "base/common.h"
#include "report/svg_axis.h"

#include <math.h>
#include <string.h>

/* Numbers the charts of a page: ids of titles differ. A page is drawn by one thread. */
static unsigned next_id(const struct mr_strbuf *o)
{
    return (unsigned)(o->len & 0xffffff); /* the place in the page: unique, and the same in every run */
}

static void put_y_ticks(const struct mr_chart *c)
{
    struct mr_tick tick[MR_TICKS_MAX];
    size_t n = mr_axis_ticks(&c->y, c->height < 90 ? 2 : 4, tick);
    for (size_t i = 0; i < n; i++) {
        double y = c->height * (1 - mr_axis_place(&c->y, tick[i].value));
        mr_strbuf_printf(c->out,
                         "<line class=\"g\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"y\" x=\"-8\" "
                         "y=\"%.1f\">%s</text>",
                         y, y, y + 4, tick[i].text);
    }
}

static void put_x_ticks(const struct mr_chart *c)
{
    struct mr_tick tick[MR_TICKS_MAX];
    size_t n = mr_axis_ticks(&c->x, c->is_small ? 4 : 8, tick);
    mr_strbuf_puts(c->out, "<g class=\"xt\">");
    for (size_t i = 0; i < n; i++) {
        double at = 100 * mr_axis_place(&c->x, tick[i].value);
        const char *anchor = at < 2 ? " s" : at > 97 ? " e" : "";
        mr_strbuf_printf(c->out,
                         "<line x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"%.0f\" y2=\"%.0f\"/><text class=\"x%s%s\" "
                         "x=\"%.2f%%\" y=\"%.0f\">%s</text>",
                         at, at, c->height, c->height + 4, !c->is_small && i % 2 ? " odd" : "", anchor, at,
                         c->height + 17, tick[i].text);
    }
    mr_strbuf_puts(c->out, "</g>");
    if (c->x.name) {
        mr_strbuf_printf(c->out, "<text class=\"an\" x=\"100%%\" y=\"%.0f\">", c->height + 32);
        mr_html_text(c->out, c->x.name);
        mr_strbuf_puts(c->out, "</text>");
    }
}

static void put_column_times(const struct mr_chart *c)
{
    if (!c->column_time)
        return;
    mr_strbuf_puts(c->out, " data-t=\"");
    for (size_t i = 0; i <= c->columns; i++)
        mr_strbuf_printf(c->out, "%s%.6g", i ? " " : "", c->column_time[i]);
    mr_strbuf_putc(c->out, '"');
}

void mr_chart_open(struct mr_chart *c, const char *title, const char *description)
{
    struct mr_strbuf *o = c->out;
    double below = c->x.name ? 36 : c->x.bare ? 2 : 20;
    c->id = next_id(o);
    mr_strbuf_printf(
        o,
        "<div class=\"chart%s\"><svg role=\"img\" aria-labelledby=\"t%u d%u\" width=\"100%%\" height=\"%.0f\" "
        "data-h=\"%.0f\" data-x0=\"%.12g\" data-x1=\"%.12g\" data-xu=\"%d\"",
        c->wide_labels ? " wide" : "", c->id, c->id, c->height + below, c->height, c->x.low, c->x.high, (int)c->x.unit);
    mr_strbuf_printf(o, " data-y0=\"%.9g\" data-y1=\"%.9g\" data-yu=\"%d\"", c->y.low, c->y.high, (int)c->y.unit);
    if (c->link)
        mr_strbuf_printf(o, " data-link=\"%s\"", c->link);
    put_column_times(c);
    mr_strbuf_printf(o, "><title id=\"t%u\">", c->id);
    mr_html_text(o, title);
    mr_strbuf_printf(o, "</title><desc id=\"d%u\">", c->id);
    mr_html_text(o, description);
    mr_strbuf_puts(o, "</desc>");
    put_y_ticks(c);
    put_x_ticks(c);
    if (c->y.name) {
        mr_strbuf_puts(o, "<text class=\"yn\" x=\"4\" y=\"12\">");
        mr_html_text(o, c->y.name);
        mr_strbuf_puts(o, "</text>");
    }
    mr_strbuf_printf(o,
                     "<svg class=\"p\" width=\"100%%\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
                     "preserveAspectRatio=\"none\">",
                     c->height, MR_PLOT_WIDTH, MR_PLOT_HEIGHT);
    c->in_plot = true;
}

static void leave_plot(struct mr_chart *c)
{
    if (c->in_plot)
        mr_strbuf_puts(c->out, "</svg>");
    c->in_plot = false;
}

void mr_chart_close(struct mr_chart *c)
{
    leave_plot(c);
    mr_strbuf_puts(c->out, "</svg></div>\n");
}

void mr_chart_note(struct mr_chart *c, double x, double y, const char *anchor, const char *text)
{
    leave_plot(c);
    mr_strbuf_printf(c->out, "<text class=\"note\" text-anchor=\"%s\" x=\"%.2f%%\" y=\"%.1f\">", anchor,
                     100 * mr_axis_place(&c->x, x), c->height * (1 - mr_axis_place(&c->y, y)));
    mr_html_short(c->out, text, 80);
    mr_strbuf_puts(c->out, "</text>");
}

void mr_chart_row_name(struct mr_chart *c, double y, const char *text)
{
    leave_plot(c);
    mr_strbuf_printf(c->out, "<text class=\"y\" x=\"-8\" y=\"%.1f\">", c->height * (1 - mr_axis_place(&c->y, y)) + 4);
    mr_html_short(c->out, text, 18);
    mr_strbuf_puts(c->out, "</text>");
}

/* ---- legends and names ---- */

void mr_legend_open(struct mr_strbuf *o)
{
    mr_strbuf_puts(o, "<ul class=\"legend\">");
}

void mr_legend_item(struct mr_strbuf *o, const char *css, const char *text)
{
    mr_strbuf_printf(o, "<li><i class=\"%s\"></i>", css);
    mr_html_text(o, text);
    mr_strbuf_puts(o, "</li>");
}

void mr_legend_close(struct mr_strbuf *o)
{
    mr_strbuf_puts(o, "</ul>\n");
}

const char *mr_time_css(enum mr_time_class t)
{
    static const char *const css[] = {
#define TIME_CSS(name, key, text) "t-" key,
        MR_TIME_CLASSES(TIME_CSS)
#undef TIME_CSS
    };
    return (unsigned)t < MR_ARRAY_LEN(css) ? css[t] : "quiet";
}

const char *mr_time_text(enum mr_time_class t)
{
    static const char *const words[] = {
#define TIME_TEXT(name, key, text) text,
        MR_TIME_CLASSES(TIME_TEXT)
#undef TIME_TEXT
    };
    return (unsigned)t < MR_ARRAY_LEN(words) ? words[t] : "";
}

const char *mr_stall_css(enum mr_stall_cause s)
{
    static const char *const css[] = {
#define STALL_CSS(name, key, text) "s-" key,
        MR_STALL_CAUSES(STALL_CSS)
#undef STALL_CSS
    };
    return (unsigned)s < MR_ARRAY_LEN(css) ? css[s] : "quiet";
}

const char *mr_stall_text(enum mr_stall_cause s)
{
    static const char *const words[] = {
#define STALL_TEXT(name, key, text) text,
        MR_STALL_CAUSES(STALL_TEXT)
#undef STALL_TEXT
    };
    return (unsigned)s < MR_ARRAY_LEN(words) ? words[s] : "";
}
