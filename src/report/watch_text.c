/* See watch_text.h. What is not known is left out of lines and is null in JSON. */
#include "report/watch_text.h"
#include "base/common.h"
#include "base/text_escape.h"

#include <math.h>
#include <string.h>

static void put_rank_name(const struct mr_watch_rank *r, struct mr_strbuf *o)
{
    if (r->rank >= 0)
        mr_strbuf_printf(o, "rank %d", r->rank);
    else
        mr_strbuf_printf(o, "process %u", r->pid);
}

static void put_progress(const struct mr_watch_figures *f, struct mr_strbuf *o)
{
    char n1[MR_HUMAN_LEN], n2[MR_HUMAN_LEN];
    bool is_known = f->all_steps && strcmp(f->all_by, "this epoch") != 0;
    mr_strbuf_printf(o, "%sstep %s", f->gaps ? "at least " : "", mr_human_count(f->steps, n1));
    if (is_known)
        mr_strbuf_printf(o, " of %s", mr_human_count(f->all_steps, n2));
    if (f->epoch && f->epochs)
        mr_strbuf_printf(o, ", epoch %llu of %llu", (unsigned long long)f->epoch, (unsigned long long)f->epochs);
    else if (f->epoch)
        mr_strbuf_printf(o, ", epoch %llu", (unsigned long long)f->epoch);
}

static void put_rate(const struct mr_watch_figures *f, struct mr_strbuf *o)
{
    char t[MR_HUMAN_LEN];
    if (!isnan(f->steps_per_s))
        mr_strbuf_printf(o, " | %.3g steps/s, %s a step", f->steps_per_s, mr_human_ns(1e9 / f->steps_per_s, t));
    else
        mr_strbuf_puts(o, f->steps ? " | no step has ended lately" : " | no step has ended yet");
}

static void put_end(const struct mr_watch_figures *f, struct mr_strbuf *o)
{
    char t[MR_HUMAN_LEN];
    if (isnan(f->left_s) || f->ended)
        return;
    bool epoch = !strcmp(f->all_by, "this epoch");
    mr_strbuf_printf(o, " | %s in %s", epoch ? "epoch ends" : "ends", mr_human_ns(f->left_s * 1e9, t));
    if (!epoch)
        mr_strbuf_printf(o, " (by %s)", f->all_by);
}

static void put_share(const char *name, double v, bool *any, struct mr_strbuf *o)
{
    if (isnan(v))
        return;
    mr_strbuf_printf(o, "%s%s %.0f %%", *any ? ", " : "", name, 100 * v);
    *any = true;
}

static void put_waits(const struct mr_watch_figures *f, struct mr_strbuf *o)
{
    bool any = false;
    put_share("data", f->stall, &any, o);
    put_share("checkpoint", f->checkpoint, &any, o);
    if (f->ranks > 1 || f->barrier > 0)
        put_share("other ranks", f->barrier, &any, o);
    put_share("accelerator idle", f->idle, &any, o);
    if (!isnan(f->utilisation))
        mr_strbuf_printf(o, "%saccelerator used %.0f %%", any ? ", " : "", f->utilisation);
    else if (!any)
        mr_strbuf_puts(o, "not known");
}

static void put_late(const struct mr_watch_figures *f, struct mr_strbuf *o)
{
    char t[MR_HUMAN_LEN];
    if (f->late == SIZE_MAX)
        return;
    put_rank_name(&f->rank[f->late], o);
    mr_strbuf_printf(o, ": %s a step behind the others", mr_human_ns(f->late_s * 1e9, t));
}

/* A rank that has not ended a step for much longer than the others. */
static const struct mr_watch_rank *silent_rank(const struct mr_watch_figures *f)
{
    const struct mr_watch_rank *worst = NULL;
    double least = INFINITY;
    for (size_t i = 0; i < f->ranks; i++) {
        least = fmin(least, f->rank[i].quiet_s);
        worst = !worst || f->rank[i].quiet_s > worst->quiet_s ? &f->rank[i] : worst;
    }
    double step = isnan(f->steps_per_s) ? 0 : 1 / f->steps_per_s;
    return worst && !f->ended && worst->quiet_s > least + 10 + 10 * step ? worst : NULL;
}

static void put_mount(const struct mr_watch_mount *m, struct mr_strbuf *o)
{
    char r[MR_HUMAN_LEN], w[MR_HUMAN_LEN], t[MR_HUMAN_LEN];
    mr_strbuf_text(o, *m->path ? m->path : "(no mount known)");
    mr_strbuf_puts(o, " ");
    if (*m->type) {
        mr_strbuf_puts(o, "(");
        mr_strbuf_text(o, m->type);
        mr_strbuf_puts(o, ") ");
    }
    mr_strbuf_printf(o, "read %s, write %s, %.3g opens/s, %.2g in flight, %s a call",
                     mr_human_rate(m->read_bytes_per_s, r), mr_human_rate(m->written_bytes_per_s, w), m->opens_per_s,
                     m->in_flight, mr_human_ns(m->call_s * 1e9, t));
}

static void put_ranks(const struct mr_watch_figures *f, struct mr_strbuf *o)
{
    size_t most = f->ranks > MR_WATCH_RANK_LINES ? MR_WATCH_RANK_LINES : f->ranks;
    for (size_t i = 0; f->ranks > 1 && i < most; i++) {
        const struct mr_watch_rank *r = &f->rank[i];
        char t[MR_HUMAN_LEN];
        mr_strbuf_puts(o, i ? "           " : " ranks     ");
        put_rank_name(r, o);
        mr_strbuf_printf(o, ": step %llu", (unsigned long long)r->steps);
        if (!isnan(r->own_s))
            mr_strbuf_printf(o, ", %s of its own", mr_human_ns(r->own_s * 1e9, t));
        if (!isnan(r->stall))
            mr_strbuf_printf(o, ", data %.0f %%", 100 * r->stall);
        if (!isnan(r->barrier))
            mr_strbuf_printf(o, ", other ranks %.0f %%", 100 * r->barrier);
        mr_strbuf_putc(o, '\n');
    }
    if (f->ranks > most && f->ranks > 1)
        mr_strbuf_printf(o, "           and %zu more\n", f->ranks - most);
}

static void put_head(const struct mr_watch_figures *f, struct mr_strbuf *o)
{
    char t[MR_HUMAN_LEN], n[MR_HUMAN_LEN];
    mr_strbuf_text(o, f->path);
    mr_strbuf_printf(o, "  %s %s, %s events", f->ended ? "ended after" : "running for",
                     mr_human_ns((double)f->elapsed_ns, t), mr_human_count(f->events, n));
    if (!f->ended && f->behind_s > 5)
        mr_strbuf_printf(o, ", the newest %s old", mr_human_ns(f->behind_s * 1e9, t));
    mr_strbuf_putc(o, '\n');
    if (*f->program) {
        mr_strbuf_puts(o, " program   ");
        mr_strbuf_text(o, f->program);
        mr_strbuf_putc(o, '\n');
    }
}

void mr_watch_screen(const struct mr_watch_figures *f, struct mr_strbuf *o)
{
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN];
    const struct mr_watch_rank *silent = silent_rank(f);
    put_head(f, o);
    mr_strbuf_puts(o, " progress  ");
    put_progress(f, o);
    put_rate(f, o);
    put_end(f, o);
    mr_strbuf_puts(o, "\n waits     ");
    put_waits(f, o);
    mr_strbuf_putc(o, '\n');
    if (f->late != SIZE_MAX) {
        mr_strbuf_puts(o, " late      ");
        put_late(f, o);
        mr_strbuf_putc(o, '\n');
    }
    if (silent) {
        mr_strbuf_puts(o, " silent    ");
        put_rank_name(silent, o);
        mr_strbuf_printf(o, ": no step has ended for %s\n", mr_human_ns(silent->quiet_s * 1e9, a));
    }
    if (f->has_slow)
        mr_strbuf_printf(o, " worker    number %lld takes %s for a batch, others %s\n", (long long)f->slow.number,
                         mr_human_ns(f->slow.batch_s * 1e9, a), mr_human_ns(f->slow.others_s * 1e9, b));
    put_ranks(f, o);
    for (size_t i = 0; i < f->mounts; i++) {
        mr_strbuf_puts(o, i ? "           " : " storage   ");
        put_mount(&f->mount[i], o);
        mr_strbuf_putc(o, '\n');
    }
}

void mr_watch_line(const struct mr_watch_figures *f, struct mr_strbuf *o)
{
    char r[MR_HUMAN_LEN], w[MR_HUMAN_LEN];
    put_progress(f, o);
    put_rate(f, o);
    mr_strbuf_puts(o, " | waits: ");
    put_waits(f, o);
    if (f->late != SIZE_MAX) {
        mr_strbuf_puts(o, " | late: ");
        put_late(f, o);
    }
    double read = 0, written = 0;
    for (size_t i = 0; i < f->mounts; i++) {
        read += f->mount[i].read_bytes_per_s;
        written += f->mount[i].written_bytes_per_s;
    }
    if (f->mounts)
        mr_strbuf_printf(o, " | read %s, write %s", mr_human_rate(read, r), mr_human_rate(written, w));
    put_end(f, o);
    mr_strbuf_putc(o, '\n');
}

/* ---- JSON ---- */

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

/* Bytes that are not UTF-8 are escaped. */
static json_t *text_of(const char *text)
{
    struct mr_strbuf s = {0};
    mr_strbuf_text(&s, text);
    json_t *out = json_string(s.text ? s.text : "");
    mr_strbuf_done(&s);
    return out;
}

static json_t *rank_json(const struct mr_watch_rank *r)
{
    return json_pack("{s:i,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "rank", (int)r->rank, "pid",
                     (json_int_t)r->pid, "steps", (json_int_t)r->steps, "evaluation_steps", (json_int_t)r->evaluated,
                     "epoch", (json_int_t)r->epoch, "step_s", number(r->step_s), "own_step_s", number(r->own_s),
                     "stall_share", number(r->stall), "barrier_share", number(r->barrier), "checkpoint_share",
                     number(r->checkpoint), "accelerator_idle_share", number(r->idle), "quiet_s", number(r->quiet_s));
}

static json_t *mount_json(const struct mr_watch_mount *m)
{
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "path", text_of(m->path), "type", text_of(m->type),
                     "read_bytes_per_s", number(m->read_bytes_per_s), "written_bytes_per_s",
                     number(m->written_bytes_per_s), "opens_per_s", number(m->opens_per_s), "in_flight",
                     number(m->in_flight), "call_s", number(m->call_s));
}

json_t *mr_watch_json(const struct mr_watch_figures *f)
{
    json_t *ranks = json_array(), *mounts = json_array();
    for (size_t i = 0; i < f->ranks; i++)
        json_array_append_new(ranks, rank_json(&f->rank[i]));
    for (size_t i = 0; i < f->mounts; i++)
        json_array_append_new(mounts, mount_json(&f->mount[i]));
    json_t *late = f->late == SIZE_MAX ? json_null()
                                       : json_pack("{s:i,s:I,s:o}", "rank", (int)f->rank[f->late].rank, "pid",
                                                   (json_int_t)f->rank[f->late].pid, "late_s", number(f->late_s));
    json_t *slow = !f->has_slow ? json_null()
                                : json_pack("{s:I,s:I,s:o,s:o}", "pid", (json_int_t)f->rank[f->slow.rank].pid, "worker",
                                            (json_int_t)f->slow.number, "batch_s", number(f->slow.batch_s), "others_s",
                                            number(f->slow.others_s));
    json_t *all = f->all_steps ? json_integer((json_int_t)f->all_steps) : json_null();
    return json_pack(
        "{s:s,s:o,s:o,s:b,s:b,s:b,s:o,s:o,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}",
        "schema", "millrace.watch/1", "trace", text_of(f->path), "program", text_of(f->program), "ended", f->ended,
        "whole", f->whole, "gaps", f->gaps, "elapsed_s", number((double)f->elapsed_ns / 1e9), "behind_s",
        number(f->behind_s), "events", (json_int_t)f->events, "processes", (json_int_t)f->processes, "steps",
        (json_int_t)f->steps, "epoch", (json_int_t)f->epoch, "all_steps", all, "all_steps_by",
        f->all_by ? json_string(f->all_by) : json_null(), "left_s", number(f->left_s), "steps_per_s",
        number(f->steps_per_s), "stall_share", number(f->stall), "barrier_share", number(f->barrier),
        "checkpoint_share", number(f->checkpoint), "accelerator_idle_share", number(f->idle), "accelerator_used_pct",
        number(f->utilisation), "late", late, "slow_worker", slow, "ranks", ranks, "storage", mounts);
}
