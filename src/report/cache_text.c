/* The cache folder as text and JSON: see cache_text.h. */
#include "report/cache_text.h"
#include "base/common.h"
#include "base/text_escape.h"
#include "report/name_json.h"

#include <time.h>

/* ---- list ---- */

static const char *time_text(int64_t s, char out[32])
{
    struct tm tm;
    time_t t = (time_t)s;
    if (!s || !localtime_r(&t, &tm) || !strftime(out, 32, "%Y-%m-%d %H:%M", &tm))
        snprintf(out, 32, "never");
    return out;
}

static double share_of(const struct mr_cache_set *s)
{
    return s->about.samples ? (double)s->samples / (double)s->about.samples : 0;
}

static void print_set(struct mr_strbuf *o, const struct mr_cache_set *s)
{
    char samples[MR_HUMAN_LEN], size[MR_HUMAN_LEN], used[32], name[1024];
    mr_strbuf_printf(o, "%.12s %12s %6.1f %% %11s  %-16s %-6s %s\n", s->key, mr_human_count(s->samples, samples),
                     100 * share_of(s), mr_human_bytes((double)s->bytes, size), time_text(s->used_s, used),
                     s->in_use ? "in use" : "", mr_name_escape(s->about.name, name, sizeof name));
}

void mr_report_cache_list(const char *folder, const struct mr_cache_list *l, uint64_t folder_bytes, struct mr_strbuf *o)
{
    char size[MR_HUMAN_LEN];
    if (l->n)
        mr_strbuf_printf(o, "%-12s %12s %8s %11s  %-16s %-6s %s\n", "key", "samples", "share", "size", "last use", "",
                         "data set");
    for (size_t i = 0; i < l->n; i++)
        print_set(o, &l->set[i]);
    mr_strbuf_printf(o, "%s: %zu data %s, %s on the file system\n", folder, l->n, mr_plural(l->n, "set", "sets"),
                     mr_human_bytes((double)folder_bytes, size));
}

static json_t *set_json(const struct mr_cache_set *s)
{
    return json_pack("{s:s, s:o, s:I, s:I, s:I, s:f, s:I, s:b}", "key", s->key, "name", mr_name_json(s->about.name),
                     "samples", (json_int_t)s->samples, "of_samples", (json_int_t)s->about.samples, "bytes",
                     (json_int_t)s->bytes, "share", share_of(s), "last_use_s", (json_int_t)s->used_s, "in_use",
                     s->in_use);
}

json_t *mr_report_cache_list_json(const char *folder, const struct mr_cache_list *l, uint64_t folder_bytes)
{
    json_t *sets = json_array();
    for (size_t i = 0; i < l->n; i++)
        json_array_append_new(sets, set_json(&l->set[i]));
    return json_pack("{s:s, s:o, s:I, s:o}", "schema", "millrace.cache/1", "folder", mr_name_json(folder),
                     "folder_bytes", (json_int_t)folder_bytes, "data_sets", sets);
}

/* ---- verify, drop, fill ---- */

void mr_report_cache_verified(const char *folder, const struct mr_cache_verified *v, struct mr_strbuf *o)
{
    char size[MR_HUMAN_LEN];
    mr_strbuf_printf(o, "%s: %llu samples and %s match their checksums, %llu do not\n", folder,
                     (unsigned long long)v->samples, mr_human_bytes((double)v->bytes, size),
                     (unsigned long long)v->corrupt);
}

json_t *mr_report_cache_verified_json(const char *folder, const struct mr_cache_verified *v)
{
    return json_pack("{s:s, s:o, s:b, s:I, s:I, s:I, s:I}", "schema", "millrace.cache_verify/1", "folder",
                     mr_name_json(folder), "good", !v->corrupt && !v->unreadable, "samples", (json_int_t)v->samples,
                     "bytes", (json_int_t)v->bytes, "corrupt", (json_int_t)v->corrupt, "unreadable",
                     (json_int_t)v->unreadable);
}

void mr_report_cache_dropped(const char *folder, uint64_t freed, struct mr_strbuf *o)
{
    char size[MR_HUMAN_LEN];
    mr_strbuf_printf(o, "%s: %s freed\n", folder, mr_human_bytes((double)freed, size));
}

json_t *mr_report_cache_dropped_json(const char *folder, size_t sets, uint64_t freed, unsigned kept)
{
    return json_pack("{s:s, s:o, s:I, s:I, s:I}", "schema", "millrace.cache_drop/1", "folder", mr_name_json(folder),
                     "data_sets", (json_int_t)sets, "freed_bytes", (json_int_t)freed, "files_in_use", (json_int_t)kept);
}

void mr_report_cache_filled(const char *folder, const char *data, uint64_t of_samples, const struct mr_cache_filled *f,
                            struct mr_strbuf *o)
{
    char samples[MR_HUMAN_LEN], size[MR_HUMAN_LEN], of[MR_HUMAN_LEN];
    mr_strbuf_printf(o, "%s: %s of %s samples of '%s', %s%s\n", folder, mr_human_count(f->samples, samples),
                     mr_human_count(of_samples, of), data, mr_human_bytes((double)f->bytes, size),
                     f->full ? "; the capacity is used up" : "");
}

json_t *mr_report_cache_filled_json(const char *folder, uint64_t of_samples, const struct mr_cache_filled *f)
{
    return json_pack("{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:b}", "schema", "millrace.cache_fill/1", "folder",
                     mr_name_json(folder), "samples", (json_int_t)f->samples, "of_samples", (json_int_t)of_samples,
                     "bytes", (json_int_t)f->bytes, "written_samples", (json_int_t)f->written, "read_bytes",
                     (json_int_t)f->read_bytes, "full", f->full);
}
