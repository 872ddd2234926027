/* A generated split of a data set as text and JSON: see split_text.h. */
#include "report/split_text.h"
#include "base/common.h"

json_t *mr_report_split_json(const struct mr_job_split *s, bool dry_run)
{
    const struct mr_gen_result *r = &s->result;
    json_t *j = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I}", "split", s->name, "folder", s->folder, "format",
                          s->plan.format->name, "files", (json_int_t)s->plan.spec.files, "samples",
                          (json_int_t)s->plan.samples, "content_seed", (json_int_t)s->plan.content.seed);
    if (dry_run) {
        json_object_set_new(j, "estimated_bytes", json_integer((json_int_t)s->estimate.bytes));
        if (s->free_bytes != UINT64_MAX) {
            json_object_set_new(j, "free_bytes", json_integer((json_int_t)s->free_bytes));
            json_object_set_new(j, "fits", json_boolean(s->estimate.bytes <= s->free_bytes));
        }
    } else
        json_object_update_new(j, json_pack("{s:I, s:I, s:I, s:I, s:b, s:f}", "files_written",
                                            (json_int_t)r->files_written, "bytes_written", (json_int_t)r->bytes_written,
                                            "files_kept", (json_int_t)r->files_kept, "bytes_kept",
                                            (json_int_t)r->bytes_kept, "already_complete",
                                            r->was_complete && r->files_written == 0, "duration_s", s->seconds));
    return j;
}

void mr_report_split(const struct mr_job_split *s, bool dry_run, struct mr_strbuf *o)
{
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN], c[MR_HUMAN_LEN];
    const struct mr_gen_result *r = &s->result;
    mr_human_count((uint64_t)s->plan.spec.files, a);
    mr_human_count(s->plan.samples, b);
    mr_strbuf_printf(o, "%s: %s %s file%s, %s sample%s in '%s'", s->name, a, s->plan.format->name,
                     s->plan.spec.files == 1 ? "" : "s", b, s->plan.samples == 1 ? "" : "s", s->folder);
    if (dry_run) {
        mr_strbuf_printf(o, ": about %s", mr_human_bytes((double)s->estimate.bytes, c));
        if (s->free_bytes != UINT64_MAX)
            mr_strbuf_printf(o, ", %s (%s free)", s->estimate.bytes <= s->free_bytes ? "fits" : "does not fit",
                             mr_human_bytes((double)s->free_bytes, c));
        mr_strbuf_putc(o, '\n');
        return;
    }
    if (r->files_written == 0 && r->was_complete) {
        mr_strbuf_printf(o, ": already complete (%s)\n", mr_human_bytes((double)r->bytes_kept, c));
        return;
    }
    mr_strbuf_printf(o, ": wrote %s", mr_human_count(r->files_written, a));
    mr_strbuf_printf(o, " (%s", mr_human_bytes((double)r->bytes_written, c));
    mr_strbuf_printf(o, ", %s)", mr_human_rate((double)r->bytes_written / MR_MAX(s->seconds, 1e-9), c));
    if (r->files_kept)
        mr_strbuf_printf(o, ", %s were there", mr_human_count(r->files_kept, a));
    mr_strbuf_putc(o, '\n');
}
