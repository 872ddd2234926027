/* The access map: where in a file reads and writes fell, over time. A line that rises is a stream, a cloud is a
 * shuffle, several lines are several readers or epochs. One small picture for each of the busiest files. */
#include "base/common.h"
#include "report/page_internal.h"

#include <math.h>
#include <stdlib.h>

#define MAPS 6

struct busy_file {
    uint32_t file;
    size_t points;
};

static int by_points(const void *a, const void *b)
{
    const struct busy_file *x = a, *y = b;
    return x->points != y->points ? (x->points < y->points) - (x->points > y->points)
                                  : (x->file > y->file) - (x->file < y->file);
}

/* Since training began, where anything was accessed since then; else since the job did. */
static double from_of(const struct mr_explanation *x)
{
    double from = mr_page_training_s(x);
    for (size_t i = 0; i < x->accesses; i++)
        if ((double)x->access[i].at_ns / 1e9 >= from)
            return from;
    return 0;
}

/* The files with the most points, at most MAPS. */
static size_t find_busy(const struct mr_explanation *x, double from, struct busy_file top[MAPS])
{
    struct busy_file *all = calloc(x->files + 1, sizeof(*all));
    size_t n = 0;
    if (!all)
        return 0;
    for (size_t i = 0; i < x->files; i++)
        all[i].file = (uint32_t)i;
    for (size_t i = 0; i < x->accesses; i++)
        if (x->access[i].file < x->files && (double)x->access[i].at_ns / 1e9 >= from)
            all[x->access[i].file].points++;
    qsort(all, x->files, sizeof(*all), by_points);
    while (n < MR_MIN(x->files, MAPS) && all[n].points) {
        top[n] = all[n];
        n++;
    }
    free(all);
    return n;
}

static void draw_points(struct mr_page *p, struct mr_chart *c, uint32_t file, bool write, double *at)
{
    double from = c->x.low;
    const struct mr_explanation *x = p->x;
    size_t n = 0;
    double *offset = at + x->accesses, *end = offset + x->accesses;
    for (size_t i = 0; i < x->accesses; i++)
        if (x->access[i].file == file && x->access[i].write == write && (double)x->access[i].at_ns / 1e9 >= from) {
            at[n] = (double)x->access[i].at_ns / 1e9;
            offset[n] = (double)x->access[i].offset;
            end[n++] = (double)(x->access[i].offset + x->access[i].bytes);
        }
    if (n)
        mr_chart_strokes(c, n, at, offset, end, write ? "wr" : "rd");
}

static void draw_map(struct mr_page *p, uint32_t file, double from, double *room)
{
    const struct mr_explain_file *f = &p->x->file[file];
    double end = (double)f->size;
    for (size_t i = 0; i < p->x->accesses; i++)
        if (p->x->access[i].file == file)
            end = fmax(end, (double)(p->x->access[i].offset + p->x->access[i].bytes));
    struct mr_chart c = {.out = p->b, .height = 150, .link = "time", .is_small = true};
    c.x = (struct mr_axis){.low = from, .high = mr_page_seconds(p->x), .unit = MR_UNIT_SECONDS, .name = "time"};
    c.y = (struct mr_axis){.high = fmax(1, end * 1.02), .unit = MR_UNIT_BYTES};
    mr_strbuf_puts(p->b, "<div><h3 class=\"mono\">");
    mr_html_name(p->b, f->path, 52);
    mr_strbuf_puts(p->b, "</h3><p class=\"cap\">");
    mr_strbuf_puts(p->b, mr_access_pattern_name((enum mr_access_pattern)f->pattern));
    if (f->pattern > MR_PATTERN_WHOLE_FILE && f->streamed > 10)
        mr_strbuf_printf(p->b, ", %.0f %% of the reads continue where the last one ended",
                         100.0 * (double)f->consecutive / (double)f->streamed);
    mr_strbuf_puts(p->b, "</p>");
    mr_chart_open(&c, "Access map", "Offset of reads and writes over time in one file.");
    draw_points(p, &c, file, false, room);
    draw_points(p, &c, file, true, room);
    mr_chart_close(&c);
    mr_strbuf_puts(p->b, "</div>\n");
}

void mr_page_access(struct mr_page *p)
{
    struct busy_file top[MAPS];
    double from = from_of(p->x);
    size_t n = p->x->accesses ? find_busy(p->x, from, top) : 0;
    double *room = n ? malloc(3 * p->x->accesses * sizeof(double)) : NULL;
    if (!room)
        return;
    mr_page_section(p->shell, "access", "Access map",
                    "Where in its file each access fell, over time: a rising line is a stream, a cloud is a shuffle, "
                    "one column is a file read at once.");
    mr_legend_open(p->b);
    mr_legend_item(p->b, "rd", "read");
    mr_legend_item(p->b, "wr", "written");
    mr_legend_close(p->b);
    mr_strbuf_puts(p->b, "<div class=\"grid2\">");
    for (size_t i = 0; i < n; i++)
        draw_map(p, top[i].file, from, room);
    mr_strbuf_puts(p->b, "</div>");
    mr_page_section_end(p->shell);
    free(room);
}
