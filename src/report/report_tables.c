/* The tables of `millrace report`, as text (--tables) and JSON: see report_tables.h. */
#include "report/report_tables.h"
#include "base/common.h"
#include "base/text_escape.h"
#include "base/strbuf.h"
#include "report/out_stream.h"
#include "report/report_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const bin_names[10] = {"0-100",   "100-1Ki",  "1Ki-10Ki",   "10Ki-100Ki", "100Ki-1Mi",
                                          "1Mi-4Mi", "4Mi-10Mi", "10Mi-100Mi", "100Mi-1Gi",  "over 1Gi"};

static void print_line(FILE *out, const char *label, uint64_t ns, uint64_t total)
{
    char t[MR_HUMAN_LEN];
    fprintf(out, "  %-34s %12s %7.2f %%\n", label, mr_human_ns((double)ns, t),
            total ? 100.0 * (double)ns / (double)total : 0.0);
}

/* Prints at most `most` characters of a name; returns how many. */
static int print_name(FILE *out, const char *name, int most)
{
    const uint8_t *p = (const uint8_t *)name;
    size_t left = strlen(name), len;
    int shown = 0;
    for (; left && shown < most; p += len, left -= len, shown++) {
        len = mr_text_is_command(name, (const char *)p) ? 0 : mr_text_printable(p);
        if (len)
            fwrite(p, 1, len, out);
        else
            fputc('?', out);
        len = MR_MAX(len, MR_MAX(mr_utf8_length(p, left), (size_t)1));
    }
    return shown;
}

/* All of a file name, whatever its bytes. */
static void print_path(FILE *out, const struct mr_file_row *f)
{
    const uint8_t *p = (const uint8_t *)f->path;
    for (size_t i = 0, n; i < f->path_len; i += n) {
        n = mr_text_is_command(f->path, f->path + i) ? 0 : mr_text_printable(p + i);
        if (n)
            fwrite(p + i, 1, n, out);
        else
            fprintf(out, "\\x%02x", p[i]), n = 1;
    }
    fputc('\n', out);
}

static void print_functions(FILE *out, const struct mr_summary *s)
{
    char b[8][MR_HUMAN_LEN];
    fprintf(out, "\nCalls and regions, by time\n  %-34s %12s %10s %10s %10s %10s | size %7s %9s %9s %9s %9s %9s\n",
            "function", "count", "time", "p50", "p99", "bytes", "min", "25 %", "mean", "median", "75 %", "max");
    for (size_t i = 0; i < s->functions; i++) {
        const struct mr_function *f = &s->function[i];
        char count[MR_HUMAN_LEN];
        fprintf(out, "  ");
        int width = print_name(out, f->category, 60);
        fputc('.', out);
        width += 1 + print_name(out, f->name, 90);
        fprintf(out, "%*s %12s %10s %10s %10s", MR_MAX(0, 34 - width), "", mr_human_count(f->count, count),
                mr_human_ns((double)f->dur_ns, b[0]), mr_human_ns((double)f->dur_median, b[1]),
                mr_human_ns((double)f->dur_99, b[2]));
        if (f->sizes)
            fprintf(out, " %10s | %12s %9s %9s %9s %9s %9s", mr_human_bytes((double)f->bytes, b[0]),
                    mr_human_bytes((double)f->size_min, b[1]), mr_human_bytes(f->size_25, b[2]),
                    mr_human_bytes((double)f->bytes / (double)f->sizes, b[3]), mr_human_bytes(f->size_median, b[4]),
                    mr_human_bytes(f->size_75, b[5]), mr_human_bytes((double)f->size_max, b[6]));
        if (f->skipped)
            fprintf(out, "  + %llu sampled out", (unsigned long long)f->skipped);
        if (f->errors)
            fprintf(out, "  %llu failed", (unsigned long long)f->errors);
        fprintf(out, "\n");
    }
}

/* One line per rank; a trace without ranks has nothing to compare. */
static void print_ranks(FILE *out, const struct mr_summary *s)
{
    char b[8][MR_HUMAN_LEN];
    if (s->ranks < 2 && (!s->ranks || s->rank[0].rank < 0))
        return;
    fprintf(
        out,
        "\nRanks (unions over the threads of each; overlapped = I/O during compute)\n  %6s %14s %11s %11s %11s %11s "
        "%11s %11s %11s\n",
        "rank", "events", "total", "app I/O", "not overl.", "I/O", "overlapped", "not overl.", "compute");
    for (size_t i = 0; i < s->ranks; i++) {
        const struct mr_rank_row *r = &s->rank[i];
        char rank[16] = "none";
        if (r->rank >= 0)
            snprintf(rank, sizeof(rank), "%d", r->rank);
        fprintf(out, "  %6s %14s %11s %11s %11s %11s %11s %11s %11s\n", rank, mr_human_count(r->events, b[0]),
                mr_human_ns((double)r->total_ns, b[1]), mr_human_ns((double)r->time.ns[MR_SET_A], b[2]),
                mr_human_ns((double)(r->time.ns[MR_SET_A] - r->time.a_and_c), b[3]),
                mr_human_ns((double)r->time.ns[MR_SET_P], b[4]), mr_human_ns((double)r->time.p_and_c, b[5]),
                mr_human_ns((double)(r->time.ns[MR_SET_P] - r->time.p_and_c), b[6]),
                mr_human_ns((double)r->time.ns[MR_SET_C], b[7]));
    }
}

void mr_report_print_tables(FILE *out, const struct mr_summary *s, int64_t top)
{
    char b[4][MR_HUMAN_LEN];
    fprintf(out, "Allocation\n  nodes %llu, processes %llu, threads %llu (I/O %llu, compute %llu)\n",
            (unsigned long long)s->nodes, (unsigned long long)s->processes, (unsigned long long)s->threads,
            (unsigned long long)s->io_threads, (unsigned long long)s->compute_threads);
    fprintf(out, "  events %s, files %s", mr_human_count(s->events, b[0]), mr_human_count(s->files, b[1]));
    fprintf(out, s->lost ? ", LOST %llu events\n" : ", none lost\n", (unsigned long long)s->lost);
    if (s->gone)
        fprintf(out, "  %s more were recorded but dropped again (--max-size keeps the newest)\n",
                mr_human_count(s->gone, b[2]));
    if (s->sampled_out)
        fprintf(
            out,
            "  %s more calls have no event of their own (--sample, or aggregated lines); filters by time, steps and "
            "path do not apply to them\n",
            mr_human_count(s->sampled_out, b[3]));
    if (s->skipped_bytes || s->skipped_lines)
        fprintf(out, "  unreadable: %llu bytes, %llu lines\n", (unsigned long long)s->skipped_bytes,
                (unsigned long long)s->skipped_lines);
    fprintf(out,
            "\nSplit of time (unions over all threads; I/O = POSIX, STDIO, io_uring; app-level I/O = reader and loader "
            "spans, HDF5, MPI-IO)\n");
    print_line(out, "total time", s->total_ns, s->total_ns);
    print_line(out, "app-level I/O", s->app_io_ns, s->total_ns);
    print_line(out, "app-level I/O without compute", s->app_io_only_ns, s->total_ns);
    print_line(out, "compute without app-level I/O", s->compute_only_app_ns, s->total_ns);
    print_line(out, "compute", s->compute_ns, s->total_ns);
    print_line(out, "I/O", s->io_ns, s->total_ns);
    print_line(out, "I/O without compute", s->io_only_ns, s->total_ns);
    print_line(out, "compute without I/O", s->compute_only_ns, s->total_ns);
    fprintf(out, "\nData\n  read %s in %s calls, written %s in %s calls\n", mr_human_bytes((double)s->read_bytes, b[0]),
            mr_human_count(s->read_calls, b[1]), mr_human_bytes((double)s->written_bytes, b[2]),
            mr_human_count(s->write_calls, b[3]));
    fprintf(out, "  summed over threads: %s in data calls, %s in other calls\n", mr_human_ns((double)s->data_ns, b[0]),
            mr_human_ns((double)s->metadata_ns, b[1]));
    print_ranks(out, s);
    print_functions(out, s);
    fprintf(out, "\nSizes of reads and writes, bytes\n");
    for (int i = 0; i < 10; i++)
        if (s->size_bins[i])
            fprintf(out, "  %-12s %14s\n", bin_names[i], mr_human_count(s->size_bins[i], b[0]));
    if (top && s->file_rows)
        fprintf(out, "\nFiles, by bytes\n  %10s %10s %12s %10s  path\n", "read", "written", "calls", "time");
    for (size_t i = 0; i < s->file_rows && (int64_t)i < top; i++) {
        const struct mr_file_row *f = &s->file[i];
        fprintf(out, "  %10s %10s %12s %10s  ", mr_human_bytes((double)f->read_bytes, b[0]),
                mr_human_bytes((double)f->written_bytes, b[1]), mr_human_count(f->calls, b[2]),
                mr_human_ns((double)f->dur_ns, b[3]));
        print_path(out, f);
    }
}

static void json_function(struct mr_out *o, const struct mr_function *f, bool first)
{
    mr_out_text(o, first ? "\n{\"category\":" : ",\n{\"category\":");
    mr_out_json(o, f->category, strlen(f->category), MR_JSON_PRIVATE);
    mr_out_text(o, ",\"name\":");
    mr_out_json(o, f->name, strlen(f->name), MR_JSON_PRIVATE);
    mr_out_format(o,
                  ",\"count\":%llu,\"errors\":%llu,\"time_ns\":%llu,\"bytes\":%llu,\"min_ns\":%llu,\"p25_ns\":%llu,"
                  "\"mean_ns\":%.1f,\"p50_ns\":%llu,\"p75_ns\":%llu,\"p99_ns\":%llu,\"max_ns\":%llu",
                  (unsigned long long)f->count, (unsigned long long)f->errors, (unsigned long long)f->dur_ns,
                  (unsigned long long)f->bytes, (unsigned long long)f->dur_min, (unsigned long long)f->dur_25,
                  (double)f->dur_ns / (double)f->count, (unsigned long long)f->dur_median,
                  (unsigned long long)f->dur_75, (unsigned long long)f->dur_99, (unsigned long long)f->dur_max);
    if (f->skipped)
        mr_out_format(o, ",\"sampled_out\":%llu", (unsigned long long)f->skipped);
    if (f->sizes)
        mr_out_format(o,
                      ",\"size_count\":%llu,\"size_min_bytes\":%llu,\"size_25_bytes\":%.12g,\"size_mean_bytes\":%.3f,"
                      "\"size_median_bytes\":%.12g,\"size_75_bytes\":%.12g,\"size_max_bytes\":%llu,\"size_exact\":%s",
                      (unsigned long long)f->sizes, (unsigned long long)f->size_min, f->size_25,
                      (double)f->bytes / (double)f->sizes, f->size_median, f->size_75, (unsigned long long)f->size_max,
                      f->sizes_exact ? "true" : "false");
    mr_out_text(o, "}");
}

static void json_rank(struct mr_out *o, const struct mr_rank_row *r, bool first)
{
    mr_out_format(o,
                  "%s{\"rank\":%d,\"events\":%llu,\"total_time_ns\":%llu,\"app_io_ns\":%llu,\"overlapped_app_io_ns\":%"
                  "llu,\"unoverlapped_app_io_ns\":%llu,\"io_ns\":%llu,\"overlapped_io_ns\":%llu,\"unoverlapped_io_ns\":"
                  "%llu,\"compute_ns\":%llu}",
                  first ? "\n" : ",\n", r->rank, (unsigned long long)r->events, (unsigned long long)r->total_ns,
                  (unsigned long long)r->time.ns[MR_SET_A], (unsigned long long)r->time.a_and_c,
                  (unsigned long long)(r->time.ns[MR_SET_A] - r->time.a_and_c),
                  (unsigned long long)r->time.ns[MR_SET_P], (unsigned long long)r->time.p_and_c,
                  (unsigned long long)(r->time.ns[MR_SET_P] - r->time.p_and_c),
                  (unsigned long long)r->time.ns[MR_SET_C]);
}

static void json_run(struct mr_out *o, json_t *j)
{
    char *text = j ? json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    if (text) {
        mr_out_text(o, ",\n\"run\":");
        mr_out_text(o, text);
    }
    free(text);
    json_decref(j);
}

int mr_report_print_json(const struct mr_summary *s, const struct mr_explanation *x, json_t *run, int64_t top,
                         struct mr_error *err)
{
    struct mr_out o;
    int rc = mr_out_open(&o, "-", false, err);
    if (rc < 0) {
        json_decref(run);
        return rc;
    }
    mr_out_format(&o,
                  "{\"schema\":\"millrace.report/"
                  "1\",\"nodes\":%llu,\"processes\":%llu,\"threads\":%llu,\"io_threads\":%llu,\"compute_threads\":%llu,"
                  "\"events\":%llu,\"files\":%llu,\"lost_events\":%llu,\"gone_events\":%llu,\"sampled_out\":%llu,"
                  "\"skipped_bytes\":%llu,\"skipped_lines\":%llu,",
                  (unsigned long long)s->nodes, (unsigned long long)s->processes, (unsigned long long)s->threads,
                  (unsigned long long)s->io_threads, (unsigned long long)s->compute_threads,
                  (unsigned long long)s->events, (unsigned long long)s->files, (unsigned long long)s->lost,
                  (unsigned long long)s->gone, (unsigned long long)s->sampled_out, (unsigned long long)s->skipped_bytes,
                  (unsigned long long)s->skipped_lines);
    mr_out_format(
        &o,
        "\"total_time_ns\":%llu,\"app_io_ns\":%llu,\"unoverlapped_app_io_ns\":%llu,\"unoverlapped_app_compute_ns\":%"
        "llu,\"compute_ns\":%llu,\"io_ns\":%llu,\"unoverlapped_io_ns\":%llu,\"unoverlapped_compute_ns\":%llu,",
        (unsigned long long)s->total_ns, (unsigned long long)s->app_io_ns, (unsigned long long)s->app_io_only_ns,
        (unsigned long long)s->compute_only_app_ns, (unsigned long long)s->compute_ns, (unsigned long long)s->io_ns,
        (unsigned long long)s->io_only_ns, (unsigned long long)s->compute_only_ns);
    mr_out_format(&o,
                  "\"read_bytes\":%llu,\"read_calls\":%llu,\"written_bytes\":%llu,\"write_calls\":%llu,\"data_time_"
                  "ns\":%llu,\"other_time_ns\":%llu,\n\"functions\":[",
                  (unsigned long long)s->read_bytes, (unsigned long long)s->read_calls,
                  (unsigned long long)s->written_bytes, (unsigned long long)s->write_calls,
                  (unsigned long long)s->data_ns, (unsigned long long)s->metadata_ns);
    for (size_t i = 0; i < s->functions; i++)
        json_function(&o, &s->function[i], i == 0);
    mr_out_text(&o, "],\n\"ranks\":[");
    for (size_t i = 0; i < s->ranks; i++)
        json_rank(&o, &s->rank[i], i == 0);
    mr_out_text(&o, "],\n\"size_histogram\":[");
    for (int i = 0; i < 10; i++)
        mr_out_format(&o, "%s{\"bin_bytes\":\"%s\",\"count\":%llu}", i ? "," : "", bin_names[i],
                      (unsigned long long)s->size_bins[i]);
    mr_out_text(&o, "],\n\"top_files\":[");
    for (size_t i = 0; i < s->file_rows && (int64_t)i < top; i++) {
        const struct mr_file_row *f = &s->file[i];
        mr_out_text(&o, i ? ",\n{\"path\":" : "\n{\"path\":");
        mr_out_json(&o, f->path, f->path_len, MR_JSON_PRIVATE);
        mr_out_format(&o, ",\"calls\":%llu,\"opens\":%llu,\"read_bytes\":%llu,\"written_bytes\":%llu,\"time_ns\":%llu}",
                      (unsigned long long)f->calls, (unsigned long long)f->opens, (unsigned long long)f->read_bytes,
                      (unsigned long long)f->written_bytes, (unsigned long long)f->dur_ns);
    }
    mr_out_text(&o, "]");
    json_run(&o, run);
    if (x) {
        mr_out_text(&o, ",\n");
        mr_report_json(&o, x);
    }
    mr_out_text(&o, "}\n");
    return mr_out_close(&o, err);
}
