/* Files: groups, the busiest ones, how often they are read again, and what a page cache of a size would hold. */
#include "base/common.h"
#include "report/page_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double unknown_or(uint64_t v)
{
    return v == MR_TIME_UNKNOWN ? NAN : (double)v;
}

/* ---- tables ---- */

static void put_groups(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    if (!x->groups)
        return;
    mr_strbuf_puts(p->b, "<h3>Groups</h3><div class=\"scroll\">\n");
    mr_page_table(p->shell, NULL,
                  "folder and ending|role|#files|#read|#distinct|#written|#reads|#opens|#time in calls|pattern");
    for (size_t i = 0; i < MR_MIN(x->groups, 50); i++) {
        const struct mr_explain_group *g = &x->group[i];
        mr_strbuf_puts(p->b, "<tr>");
        mr_page_text_cell(p->shell, g->name, 70);
        mr_strbuf_printf(p->b, "<td>%s</td>", g->data ? "batches" : g->checkpoint ? "checkpoints" : "");
        mr_html_cell(p->b, MR_UNIT_COUNT, (double)g->files);
        mr_html_cell(p->b, MR_UNIT_BYTES, (double)g->read_bytes);
        mr_html_cell(p->b, MR_UNIT_BYTES, unknown_or(g->unique_bytes));
        mr_html_cell(p->b, MR_UNIT_BYTES, (double)g->written_bytes);
        mr_html_cell(p->b, MR_UNIT_COUNT, (double)g->reads);
        mr_html_cell(p->b, MR_UNIT_COUNT, (double)g->opens);
        mr_html_cell(p->b, MR_UNIT_SECONDS, mr_ns_to_s(g->dur_ns));
        mr_strbuf_printf(p->b, "<td>%s</td></tr>\n", mr_access_pattern_name(g->pattern));
    }
    mr_page_table_end(p->shell);
    mr_strbuf_puts(p->b, "</div>\n");
}

static void put_file_row(struct mr_page *p, const struct mr_explain_file *f, double waited_s)
{
    mr_strbuf_puts(p->b, "<tr>");
    mr_page_text_cell(p->shell, f->path, 70);
    if (f->fs) {
        mr_strbuf_puts(p->b, "<td>");
        mr_html_short(p->b, f->fs, 24);
        mr_strbuf_puts(p->b, "</td>");
    } else {
        mr_strbuf_puts(p->b, "<td class=\"unknown\">unknown</td>");
    }
    mr_html_cell(p->b, MR_UNIT_SECONDS, waited_s);
    mr_html_cell(p->b, MR_UNIT_BYTES, (double)f->read_bytes);
    mr_html_cell(p->b, MR_UNIT_BYTES, (double)f->written_bytes);
    mr_html_cell(p->b, MR_UNIT_BYTES, unknown_or(f->unique_bytes));
    mr_html_cell(p->b, MR_UNIT_COUNT, (double)(f->reads + f->writes));
    mr_html_cell(p->b, MR_UNIT_COUNT, (double)f->opens);
    mr_html_cell(p->b, MR_UNIT_SECONDS, mr_ns_to_s(f->dur_ns));
    mr_html_cell(p->b, MR_UNIT_COUNT, f->ranks);
    mr_strbuf_printf(p->b, "<td>%s</td></tr>\n", mr_access_pattern_name(f->pattern));
}

struct waited_file {
    const struct mr_explain_file *file;
    double waited_s; /* for its reads, opens: of the steps for whose batch it was read last or longest; all ranks */
};

/* By the time that steps waited for their reads; then files that are read before those that are written, by the time in
 * their calls. */
static int by_wait(const void *a, const void *b)
{
    const struct waited_file *l = a, *r = b;
    const struct mr_explain_file *x = l->file, *y = r->file;
    bool reads_x = x->read_bytes > x->written_bytes, reads_y = y->read_bytes > y->written_bytes;
    if (l->waited_s != r->waited_s)
        return l->waited_s > r->waited_s ? -1 : 1;
    if (reads_x != reads_y)
        return reads_x ? -1 : 1;
    if (x->dur_ns != y->dur_ns)
        return x->dur_ns > y->dur_ns ? -1 : 1;
    return x < y ? -1 : x > y; /* as they were: by bytes */
}

static bool find_waits(const struct mr_explanation *x, struct waited_file *file)
{
    static const uint8_t reads[] = {MR_STALL_STORAGE, MR_STALL_PAGE_CACHE, MR_STALL_METADATA};
    bool any = false;
    for (size_t i = 0; i < x->files; i++)
        file[i] = (struct waited_file){.file = &x->file[i]};
    for (size_t i = 0; i < x->steps; i++)
        for (unsigned k = 0; x->step[i].file < x->files && k < MR_ARRAY_LEN(reads); k++) {
            file[x->step[i].file].waited_s += (double)x->step[i].stall[reads[k]] / 1e9;
            any |= x->step[i].stall[reads[k]] > 0;
        }
    return any;
}

static void put_files(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    size_t n = MR_MIN(x->files, MR_PAGE_ROWS);
    struct waited_file *file = malloc((x->files + 1) * sizeof(*file));
    if (!file) {
        p->b->failed = true;
        return;
    }
    bool known = find_waits(x, file);
    qsort(file, x->files, sizeof(*file), by_wait);
    mr_strbuf_printf(p->b,
                     "<h3>Busiest files</h3><p class=\"cap\">%s Time in calls is summed over threads%s.</p><div "
                     "class=\"scroll\">\n",
                     known ? "Sorted by the time that steps of all ranks waited for their reads; the others follow."
                           : "Data first.",
                     known ? "" : ", and sorts the table");
    mr_page_table(p->shell, NULL,
                  "file|on|#waited for|#read|#written|#distinct|#calls|#opens|#time in calls|#ranks|pattern");
    for (size_t i = 0; i < n; i++)
        put_file_row(p, file[i].file, file[i].waited_s);
    free(file);
    mr_page_table_end(p->shell);
    mr_strbuf_puts(p->b, "</div>");
    mr_page_cut(p, n, x->all_files, "files");
}

/* ---- reuse ---- */

#define PASSES 8 /* once or less, up to 2, 4, 8 ... times */

static void draw_reuse(struct mr_page *p)
{
    static const char *const names[PASSES] = {"part of it", "once", "2", "3-4", "5-8", "9-16", "17-32", "more"};
    const struct mr_explanation *x = p->x;
    double count[PASSES] = {0}, most = 0;
    for (size_t i = 0; i < x->files; i++) {
        const struct mr_explain_file *f = &x->file[i];
        if (!f->read_bytes || !f->size)
            continue;
        double passes = (double)f->read_bytes / (double)f->size;
        unsigned k = passes < 0.95 ? 0 : passes < 1.5 ? 1 : (unsigned)fmin(PASSES - 1, 1 + ceil(log2(passes) - 1e-9));
        most = fmax(most, ++count[k]);
    }
    if (!(most > 0))
        return;
    struct mr_chart c = {.out = p->b, .height = 150, .is_small = true};
    c.x = (struct mr_axis){.high = PASSES, .unit = MR_UNIT_COUNT, .bare = true, .name = "times that a file is read"};
    c.y = (struct mr_axis){.high = mr_axis_end(most, MR_UNIT_COUNT), .unit = MR_UNIT_COUNT, .name = "files"};
    mr_strbuf_puts(p->b, "<div><h3>How often files are read</h3>");
    mr_chart_open(&c, "Reuse", "Number of files by how often their content is read.");
    mr_chart_columns(&c, PASSES, &(struct mr_series){"rd", count}, 1, 0.2);
    for (unsigned k = 0; k < PASSES; k++) {
        char tip[64];
        snprintf(tip, sizeof tip, "%s: %.0f %s", names[k], count[k],
                 mr_plural((unsigned long long)count[k], "file", "files"));
        mr_chart_band(&c, k, k + 1, "hit", tip);
    }
    for (unsigned k = 0; k < PASSES; k++)
        mr_chart_note(&c, k + 0.5, -0.1 * c.y.high, "middle", names[k]);
    mr_chart_close(&c);
    mr_strbuf_puts(p->b, "</div>");
}

static void draw_hits(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    if (x->hits < 2 || !(x->hit_ram_bytes[0] > 0))
        return;
    struct mr_chart c = {.out = p->b, .height = 150, .is_small = true};
    c.x = (struct mr_axis){.low = x->hit_ram_bytes[0],
                           .high = x->hit_ram_bytes[x->hits - 1],
                           .unit = MR_UNIT_BYTES,
                           .log = true,
                           .name = "memory for the page cache of a node"};
    c.y = (struct mr_axis){.high = 1, .unit = MR_UNIT_SHARE};
    if (!(c.x.high > c.x.low))
        return;
    mr_strbuf_puts(p->b, "<div><h3>Predicted page-cache hits</h3>");
    mr_chart_open(&c, "Hit ratio by memory",
                  "Predicted share of the reads that a page cache of each size would answer.");
    mr_chart_line(&c, x->hits, x->hit_ram_bytes, x->hit_ratio, "rd");
    double now = x->facts.memory_bytes;
    if (isfinite(now) && now > c.x.low && now < c.x.high)
        mr_chart_box(&c, now, now * 1.004, 0, 1, "quiet", "memory of a node here");
    for (size_t i = 0; i + 1 < x->hits; i++) {
        char tip[96], size[MR_HUMAN_LEN], share[MR_HUMAN_LEN];
        snprintf(tip, sizeof tip, "%s: %s of the reads", mr_human_bytes(x->hit_ram_bytes[i], size),
                 mr_unit_text(MR_UNIT_SHARE, x->hit_ratio[i], share));
        mr_chart_band(&c, x->hit_ram_bytes[i], x->hit_ram_bytes[i + 1], "hit", tip);
    }
    if (isfinite(now) && now > c.x.low && now < c.x.high)
        mr_chart_note(&c, now, 0.94, "end", "this node ");
    mr_chart_close(&c);
    mr_strbuf_puts(p->b, "</div>");
}

/* ---- fields ---- */

static void put_fields(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    if (x->fields < 2)
        return;
    mr_strbuf_puts(p->b,
                   "<h3>Fields of the samples</h3><p class=\"cap\">What each cost, over all ranks; time is summed over "
                   "threads.</p><div class=\"scroll\">\n");
    mr_page_table(p->shell, NULL, "field|#samples|#read|#delivered|#decoded in|#transformed in");
    for (size_t i = 0; i < MR_MIN(x->fields, MR_PAGE_ROWS); i++) {
        const struct mr_explain_field *f = &x->field[i];
        mr_strbuf_puts(p->b, "<tr>");
        mr_page_text_cell(p->shell, f->name, 70);
        mr_html_cell(p->b, MR_UNIT_COUNT, (double)f->samples);
        mr_html_cell(p->b, MR_UNIT_BYTES, (double)f->stored_bytes);
        mr_html_cell(p->b, MR_UNIT_BYTES, (double)f->bytes);
        mr_html_cell(p->b, MR_UNIT_SECONDS, (double)f->decode_ns / 1e9);
        mr_html_cell(p->b, MR_UNIT_SECONDS, (double)f->transform_ns / 1e9);
        mr_strbuf_puts(p->b, "</tr>\n");
    }
    mr_page_table_end(p->shell);
    mr_strbuf_puts(p->b, "</div>");
    mr_page_cut(p, MR_MIN(x->fields, MR_PAGE_ROWS), x->fields, "fields");
}

void mr_page_files(struct mr_page *p)
{
    if (!p->x->files && !p->x->groups && p->x->fields < 2)
        return;
    mr_page_section(p->shell, "files", "Files",
                    "Which files were read and written, how, and whether memory could have saved reading them again.");
    put_fields(p);
    put_groups(p);
    mr_strbuf_puts(p->b, "<div class=\"grid2\">");
    draw_reuse(p);
    draw_hits(p);
    mr_strbuf_puts(p->b, "</div>");
    if (p->x->files)
        put_files(p);
    mr_page_section_end(p->shell);
}
