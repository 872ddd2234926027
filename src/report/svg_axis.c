/* Axes: where values lie, and which round numbers are written. Byte axes have powers of two times 1, 2 or 5's cousins
 * (1, 2, 4, 8 ...), so that labels read "512 KiB" and not "488.3 KiB". */
#include "report/svg_axis.h"
#include "base/common.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double mr_axis_place(const struct mr_axis *a, double v)
{
    double low = a->low, high = a->high;
    if (a->log) {
        low = log(low);
        high = log(high);
        v = v > 0 ? log(v) : low;
    }
    return high != low ? (v - low) / (high - low) : 0;
}

double mr_plot_x(const struct mr_chart *c, double v)
{
    return MR_PLOT_WIDTH * mr_axis_place(&c->x, v);
}

double mr_plot_y(const struct mr_chart *c, double v)
{
    return MR_PLOT_HEIGHT * (1 - mr_axis_place(&c->y, v));
}

void mr_svg_number(struct mr_strbuf *o, double v)
{
    long tenths = lround(v * 10);
    if (tenths % 10)
        mr_strbuf_printf(o, "%s%ld.%ld", tenths < 0 ? "-" : "", labs(tenths) / 10, labs(tenths) % 10);
    else
        mr_strbuf_printf(o, "%ld", tenths / 10);
}

static bool is_binary(enum mr_unit unit)
{
    return unit == MR_UNIT_BYTES || unit == MR_UNIT_RATE;
}

/* A round distance of at least `raw`. */
static double round_step(double raw, enum mr_unit unit)
{
    if (is_binary(unit))
        return raw <= 1 ? 1 : exp2(ceil(log2(raw) - 1e-9));
    double base = pow(10, floor(log10(raw)));
    double step = raw <= 1.0001 * base   ? base
                  : raw <= 2.0001 * base ? 2 * base
                  : raw <= 5.0001 * base ? 5 * base
                                         : 10 * base;
    return unit == MR_UNIT_COUNT ? fmax(1, step) : step;
}

double mr_axis_end(double most, enum mr_unit unit)
{
    if (!(most > 0) || !isfinite(most))
        return 1;
    if (unit == MR_UNIT_SHARE && most > 0.5 && most <= 1.0001)
        return 1;
    double step = round_step(most / 4, unit);
    if (is_binary(unit) && most < 1.5 * step) /* powers of two are far apart */
        step /= 2;
    return ceil(most / step * 0.9999) * step;
}

/* Seconds along one axis share a unit: "0", "20 ms", "40 ms". */
static void seconds_tick(double v, double step, char out[MR_HUMAN_LEN])
{
    static const struct {
        double from, factor;
        const char *unit;
    } units[] = {{7200, 1.0 / 3600, "h"}, {1, 1, "s"}, {1e-3, 1e3, "ms"}, {1e-6, 1e6, "µs"}, {0, 1e9, "ns"}};
    unsigned u = 0;
    double by = fmax(fabs(v), 4 * step);
    while (u + 1 < MR_ARRAY_LEN(units) && by < units[u].from)
        u++;
    snprintf(out, MR_HUMAN_LEN, "%.6g %s", v * units[u].factor, units[u].unit);
}

static void tick_text(const struct mr_axis *a, double v, double step, char out[MR_HUMAN_LEN])
{
    if (v == 0 && a->unit != MR_UNIT_SHARE)
        snprintf(out, MR_HUMAN_LEN, "0");
    else if (a->unit == MR_UNIT_SECONDS)
        seconds_tick(v, step, out);
    else if (a->unit == MR_UNIT_SHARE)
        snprintf(out, MR_HUMAN_LEN, "%.4g %%", 100 * v);
    else if (a->unit == MR_UNIT_NUMBER)
        snprintf(out, MR_HUMAN_LEN, "%.5g", v);
    else if (is_binary(a->unit)) {
        static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
        unsigned u = 0;
        for (; u + 1 < MR_ARRAY_LEN(units) && v >= 1024; u++)
            v /= 1024;
        snprintf(out, MR_HUMAN_LEN, "%.4g %s%s", v, units[u], a->unit == MR_UNIT_RATE ? "/s" : "");
    } else {
        mr_unit_text(a->unit, v, out);
    }
}

/* A few powers of ten are too few to read between: 1, 2 and 5 times each. */
static size_t dense_ticks(const struct mr_axis *a, double low, double high, struct mr_tick tick[MR_TICKS_MAX])
{
    size_t n = 0;
    const int last = (int)ceil(log10(high));
    for (int e = (int)floor(log10(low)); e <= last; e++)
        for (unsigned k = 0; k < 3 && n < MR_TICKS_MAX; k++) {
            double v = pow(10, e) * (k == 0 ? 1 : k == 1 ? 2 : 5);
            if (v < low * 0.9999 || v > high * 1.0001)
                continue;
            tick[n].value = v;
            tick_text(a, v, v / 4, tick[n++].text);
        }
    return n;
}

static size_t log_ticks(const struct mr_axis *a, unsigned want, struct mr_tick tick[MR_TICKS_MAX])
{
    double base = is_binary(a->unit) ? 2 : 10, low = fmin(a->low, a->high), high = fmax(a->low, a->high);
    double first = ceil(log(low) / log(base) - 1e-6), last = floor(log(high) / log(base) + 1e-6);
    double every = fmax(1, ceil((last - first + 1) / want));
    size_t n = 0;
    if (!is_binary(a->unit) && 3 * log10(high / low) <= want)
        return dense_ticks(a, low, high, tick);
    if (is_binary(a->unit) && every > 1) /* 1 KiB, 32 KiB, 1 MiB: on multiples of the distance */
        first = ceil(first / every) * every;
    for (double e = first; e <= last && n < MR_TICKS_MAX; e += every, n++) {
        tick[n].value = pow(base, e);
        tick_text(a, tick[n].value, tick[n].value, tick[n].text);
    }
    return n;
}

size_t mr_axis_ticks(const struct mr_axis *a, unsigned want, struct mr_tick tick[MR_TICKS_MAX])
{
    if (a->bare || a->low == a->high || !isfinite(a->low) || !isfinite(a->high))
        return 0;
    if (a->log)
        return log_ticks(a, want, tick);
    double low = fmin(a->low, a->high), high = fmax(a->low, a->high);
    double step = round_step((high - low) / want, a->unit);
    size_t n = 0;
    for (double k = ceil(low / step - 1e-9); k * step <= high + step * 1e-6 && n < MR_TICKS_MAX; k++, n++) {
        tick[n].value = k == 0 ? 0 : k * step; /* not -0 */
        tick_text(a, tick[n].value, step, tick[n].text);
    }
    return n;
}
