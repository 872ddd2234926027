/* Text exports: Chrome JSON, DFTracer's .pfw.gz, CSV; and the choice between all of them. */
#include "report/export.h"
#include "base/common.h"
#include "base/log.h"
#include "report/context.h"
#include "report/export_perfetto.h"
#include "report/lanes.h"
#include "report/out_stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One event with everything that belongs to it. */
struct row {
    const struct mr_trace *t;
    const struct mr_event_batch *b;
    uint32_t i, arg, arg_end; /* rows [arg, arg_end) of the arguments */
    uint64_t id;
    struct mr_context *context;   /* NULL where a format shows by nesting what is inherited */
    const struct mr_lanes *lanes; /* NULL where a format has no tracks */
};

typedef void row_fn(struct mr_out *o, const struct row *r);

/* What a format wants to know of the events around one; `lane` is called when a thread with several lanes begins. */
struct around {
    struct mr_context *context;
    struct mr_lanes *lanes;
    void (*lane)(struct mr_out *o, const struct mr_trace *t, const struct mr_trace_chunk *c, unsigned lane);
};

static int enter_chunk(const struct mr_trace *t, struct mr_out *o, const struct around *a, size_t chunk,
                       struct mr_error *err)
{
    bool fresh = false;
    int rc = a->context ? mr_context_enter(a->context, chunk, err) : 0;
    if (rc == 0 && a->lanes)
        rc = mr_lanes_enter(a->lanes, t, chunk, &fresh, err);
    for (unsigned lane = 1; rc == 0 && fresh && lane < a->lanes->count; lane++)
        a->lane(o, t, &t->chunk[chunk], lane);
    return rc;
}

static int each_event(const struct mr_trace *t, struct mr_out *o, row_fn *fn, const struct around *a,
                      struct mr_error *err)
{
    struct mr_event_batch b = {0};
    uint64_t id = 0;
    int rc = 0;
    for (size_t c = 0; c < t->chunks && rc == 0; c++) {
        rc = enter_chunk(t, o, a, c, err);
        rc = rc ? rc : mr_trace_read(t, c, MR_WANT_ALL, &b, err);
        uint32_t arg = 0;
        for (uint32_t i = 0; i < b.count && rc == 0; i++) {
            uint32_t end = arg;
            while (end < b.args && b.c.arg_event[end] == i)
                end++;
            const struct row r = {.t = t,
                                  .b = &b,
                                  .i = i,
                                  .arg = arg,
                                  .arg_end = end,
                                  .id = id++,
                                  .context = a->context,
                                  .lanes = a->lanes};
            fn(o, &r);
            arg = end;
        }
    }
    mr_event_batch_done(&b);
    return rc;
}

static bool is_app(const struct row *r)
{
    return mr_call_get(r->b->c.call[r->i])->layer == MR_LAYER_APP;
}

static double as_double(uint64_t bits)
{
    double d;
    memcpy(&d, &bits, 8);
    return d;
}

/* As short as reads back the same, and always with a mark of a double; what JSON cannot say is null. */
static void put_double(struct mr_out *o, double d)
{
    char text[40];
    if (d - d != 0) {
        mr_out_text(o, "null");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, d);
        if (strtod(text, NULL) == d)
            break;
    }
    mr_out_text(o, text);
    if (!strpbrk(text, ".e"))
        mr_out_text(o, ".0");
}

/* A text that is written as a whole number: DFTracer quotes numbers, too. */
static bool like_number(const struct mr_trace_string *s)
{
    uint32_t i = s->len > 1 && s->text[0] == '-';
    for (; i < s->len && s->text[i] >= '0' && s->text[i] <= '9'; i++) {
    }
    return s->len && s->len <= 20 && i == s->len; /* longer ones are no numbers to anyone */
}

/* A text as a JSON string. One like a number has its first character escaped in .pfw, which says to our importer that
 * it is none, and nothing to others. */
static void put_text(struct mr_out *o, const struct mr_trace_string *s, enum mr_json_mode mode)
{
    if (mode == MR_JSON_PRIVATE && like_number(s))
        mr_out_format(o, "\"\\u%04x%.*s\"", (unsigned char)s->text[0], (int)(s->len - 1), s->text + 1);
    else
        mr_out_json(o, s->text, s->len, mode);
}

static void put_inherited(struct mr_out *o, const struct mr_inherited_arg *s, enum mr_json_mode mode)
{
    switch (s->type) {
    case MR_MORE_INT: mr_out_signed(o, (int64_t)s->value); break;
    case MR_MORE_DOUBLE: put_double(o, as_double(s->value)); break;
    case MR_MORE_TEXT: put_text(o, mr_trace_string(s->process, (uint32_t)s->value), mode); break;
    default: mr_out_number(o, s->value); break;
    }
}

static void put_value(struct mr_out *o, const struct row *r, uint32_t a, enum mr_json_mode mode)
{
    const struct mr_columns *c = &r->b->c;
    put_inherited(o,
                  &(struct mr_inherited_arg){
                      .process = r->b->process, .key = c->arg_key[a], .type = c->arg_type[a], .value = c->arg_value[a]},
                  mode);
}

/* True if the same key comes again in this event: updated, the last value counts. */
static bool is_replaced(const struct row *r, uint32_t a)
{
    const struct mr_columns *c = &r->b->c;
    for (uint32_t next = a + 1; next < r->arg_end; next++)
        if (c->arg_key[next] == c->arg_key[a] && c->arg_key[a])
            return true;
    return false;
}

/* The arguments as members of a JSON object, each with a comma before it. One that is called as the member `taken` gets
 * a '_' behind its name: there must not be two. */
static void put_args(struct mr_out *o, const struct row *r, const char *taken, enum mr_json_mode mode)
{
    const struct mr_columns *c = &r->b->c;
    for (uint32_t a = r->arg; a < r->arg_end; a++) {
        const struct mr_trace_string *key = mr_trace_string(r->b->process, c->arg_key[a]), *s;
        if (c->arg_type[a] == MR_MORE_COUNT || c->arg_type[a] == MR_MORE_FILE2) {
            s = mr_trace_string(r->b->process, (uint32_t)c->arg_value[a]);
            mr_out_text(o, c->arg_type[a] == MR_MORE_COUNT ? ",\"count\":" : ",\"fname2\":");
            if (c->arg_type[a] == MR_MORE_COUNT)
                mr_out_number(o, c->arg_value[a]);
            else
                mr_out_json(o, s->text, s->len, mode);
            continue;
        }
        if (is_replaced(r, a))
            continue;
        mr_out_text(o, ",");
        if (taken && key->len == strlen(taken) && !memcmp(key->text, taken, key->len))
            mr_out_format(o, "\"%s_\"", taken);
        else
            mr_out_json(o, key->text, key->len, mode);
        mr_out_text(o, ":");
        put_value(o, r, a, mode);
    }
}

static void put_io_args(struct mr_out *o, const struct row *r, enum mr_json_mode mode)
{
    const struct mr_columns *c = &r->b->c;
    if (c->result[r->i] == MR_NO_RESULT) {
        mr_out_text(o, "\"p_idx\":-1"); /* a field of DFTracer's that says nothing: others follow with a comma */
    } else {
        mr_out_text(o, "\"ret\":");
        mr_out_signed(o, c->result[r->i]);
    }
    if (c->offset[r->i] != MR_NO_OFFSET) {
        mr_out_text(o, ",\"offset\":");
        mr_out_signed(o, (int64_t)c->offset[r->i]);
    }
    if (c->fd[r->i]) {
        mr_out_text(o, ",\"fd\":");
        mr_out_number(o, c->fd[r->i] - 1u);
    }
    if (c->file[r->i]) {
        const struct mr_trace_string *f = mr_trace_string(r->b->process, c->file[r->i]);
        mr_out_text(o, ",\"fname\":");
        mr_out_json(o, f->text, f->len, mode);
    }
}

static void put_label(struct mr_out *o, const struct row *r, enum mr_json_mode mode)
{
    struct mr_trace_string category, name;
    mr_trace_label(r->b->process, r->b->c.call[r->i], r->b->c.file[r->i], &category, &name);
    mr_out_text(o, "\"name\":");
    mr_out_json(o, name.text, name.len, mode);
    mr_out_text(o, ",\"cat\":");
    mr_out_json(o, category.text, category.len, mode);
}

static void put_us(struct mr_out *o, uint64_t ns)
{
    mr_out_format(o, "%llu.%03u", (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
}

/* Each member is a series of its own to the viewers, so there is nothing but numbers. */
static void put_series(struct mr_out *o, const struct row *r)
{
    const struct mr_columns *c = &r->b->c;
    const char *comma = "";
    for (uint32_t a = r->arg; a < r->arg_end; a++) {
        const struct mr_trace_string *key = mr_trace_string(r->b->process, c->arg_key[a]);
        if (c->arg_type[a] > MR_MORE_DOUBLE || is_replaced(r, a))
            continue;
        mr_out_text(o, comma);
        mr_out_json(o, key->text, key->len, MR_JSON_HEX);
        mr_out_text(o, ":");
        if (c->arg_type[a] == MR_MORE_UINT &&
            c->arg_value[a] > INT64_MAX) /* viewers have 64 bits with a sign, or doubles */
            put_double(o, (double)c->arg_value[a]);
        else
            put_value(o, r, a, MR_JSON_HEX);
        comma = ",";
    }
}

/* A counter whose values are numbers. One that is infinite or none (null in JSON) is no point of a curve to the
 * viewers, but a mistake; one without values would not be shown. */
static bool is_curve(const struct row *r)
{
    const struct mr_columns *c = &r->b->c;
    bool finite = c->call[r->i] == MR_CALL_counter, any = false;
    for (uint32_t a = r->arg; a < r->arg_end && finite; a++) {
        double d = as_double(c->arg_value[a]);
        finite = c->arg_type[a] != MR_MORE_DOUBLE || d - d == 0;
        any |= c->arg_type[a] <= MR_MORE_DOUBLE;
    }
    return finite && any;
}

/* Viewers know a process by its pid alone, and take a thread for a stack. So processes of further machines, others that
 * had the same number, and spans that overlap others of their thread, get numbers that no real process or thread has:
 * Linux has fewer than this. */
#define PIDS 4194304u

static uint32_t chrome_pid(const struct mr_trace *t, const struct mr_trace_process *p)
{
    return p->pid + (p->node + p->again * (uint32_t)t->nodes) * PIDS;
}

static uint32_t chrome_tid(const struct mr_trace *t, const struct mr_trace_process *p, uint32_t tid, unsigned lane)
{
    return tid + (p->node + p->again * (uint32_t)t->nodes + lane) * PIDS;
}

static void chrome_lane(struct mr_out *o, const struct mr_trace *t, const struct mr_trace_chunk *c, unsigned lane)
{
    const struct mr_trace_process *p = &t->process[c->process];
    mr_out_format(o,
                  ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":\"overlapping in "
                  "thread %u\"}}",
                  chrome_pid(t, p), chrome_tid(t, p, c->tid, lane), c->tid);
}

static void chrome_row(struct mr_out *o, const struct row *r)
{
    const struct mr_columns *c = &r->b->c;
    unsigned call = c->call[r->i];
    bool curve = is_curve(r),
         instant = call == MR_CALL_instant || call == MR_CALL_metadata || (call == MR_CALL_counter && !curve);
    mr_out_text(o, ",\n{");
    put_label(o, r, MR_JSON_HEX);
    mr_out_text(o, curve ? ",\"ph\":\"C\"" : instant ? ",\"ph\":\"i\",\"s\":\"t\"" : ",\"ph\":\"X\"");
    unsigned lane = mr_lane_of(r->lanes, r->i);
    mr_out_format(o, ",\"pid\":%u,\"tid\":%u,\"ts\":", chrome_pid(r->t, r->b->process),
                  chrome_tid(r->t, r->b->process, r->b->tid, lane));
    put_us(o, c->start_ns[r->i] - r->t->first_ns);
    if (!curve && !instant) {
        mr_out_text(o, ",\"dur\":");
        put_us(o, c->end_ns[r->i] - c->start_ns[r->i]);
    }
    mr_out_text(o, ",\"args\":{");
    if (curve) {
        put_series(o, r);
    } else {
        if (is_app(r))
            mr_out_text(o, "\"layer\":\"app\"");
        else
            put_io_args(o, r, MR_JSON_HEX);
        put_args(o, r, is_app(r) ? "layer" : NULL, MR_JSON_HEX);
    }
    mr_out_text(o, "}}");
}

static void chrome_names(struct mr_out *o, const struct mr_trace *t)
{
    for (size_t i = 0; i < t->processes; i++) {
        const struct mr_trace_process *p = &t->process[i];
        const char *slash = p->exe.len ? memrchr(p->exe.text, '/', p->exe.len) : NULL;
        const char *name = slash ? slash + 1 : p->exe.text ? p->exe.text : "process";
        size_t n = p->exe.text ? (size_t)(p->exe.text + p->exe.len - name) : 7;
        mr_out_format(o, "%s{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":",
                      i ? ",\n" : "", chrome_pid(t, p), chrome_tid(t, p, p->pid, 0));
        mr_out_json(o, name, n, MR_JSON_HEX);
        if ((t->nodes > 1 || p->again) && p->node < t->nodes) {
            mr_out_format(o, ",\"pid\":%u,\"host\":", p->pid);
            mr_out_json(o, t->node[p->node].name, strlen(t->node[p->node].name), MR_JSON_HEX);
        }
        mr_out_text(o, "}}");
    }
    if (!t->processes)
        mr_out_text(o, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"empty\"}}");
}

static int export_chrome(const struct mr_trace *t, struct mr_out *o, struct mr_error *err)
{
    mr_out_format(o, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"start_unix_ns\":\"%llu\"},\"traceEvents\":[\n",
                  (unsigned long long)t->first_ns);
    chrome_names(o, t);
    struct mr_lanes lanes = {0};
    int rc = each_event(t, o, chrome_row, &(struct around){.lanes = &lanes, .lane = chrome_lane}, err);
    mr_lanes_done(&lanes);
    mr_out_text(o, "\n]}\n");
    return rc;
}

/* Facts about the run, as DFTracer writes them: a line for each, here with its time. */
static void pfw_facts(struct mr_out *o, const struct row *r, const char *host)
{
    const struct mr_columns *c = &r->b->c;
    for (uint32_t a = r->arg; a < r->arg_end; a++) {
        const struct mr_trace_string *key = mr_trace_string(r->b->process, c->arg_key[a]);
        mr_out_format(o,
                      "{\"id\":%llu,\"name\":\"CM\",\"cat\":\"dftracer\",\"pid\":%u,\"tid\":%u,\"ts\":%llu,\"ph\":"
                      "\"M\",\"args\":{\"hostname\":",
                      (unsigned long long)r->id, r->b->process->pid, r->b->tid,
                      (unsigned long long)(c->start_ns[r->i] / 1000));
        mr_out_json(o, host, strlen(host), MR_JSON_PRIVATE);
        mr_out_text(o, ",\"name\":");
        mr_out_json(o, key->text, key->len, MR_JSON_PRIVATE);
        mr_out_text(o, ",\"value\":");
        put_value(o, r, a, MR_JSON_PRIVATE);
        mr_out_text(o, "}}\n");
    }
}

static void pfw_row(struct mr_out *o, const struct row *r)
{
    const struct mr_columns *c = &r->b->c;
    const char *host = r->t->nodes ? r->t->node[r->b->process->node].name : "unknown";
    unsigned call = c->call[r->i];
    uint64_t start = c->start_ns[r->i] / 1000, end = c->end_ns[r->i] / 1000;
    if (call == MR_CALL_metadata) {
        pfw_facts(o, r, host);
        return;
    }
    mr_out_text(o, "{\"id\":");
    mr_out_number(o, r->id);
    mr_out_text(o, ",");
    put_label(o, r, MR_JSON_PRIVATE);
    mr_out_text(o, ",\"pid\":");
    mr_out_number(o, r->b->process->pid);
    mr_out_text(o, ",\"tid\":");
    mr_out_number(o, r->b->tid);
    mr_out_text(o, ",\"ts\":");
    mr_out_number(o, start);
    mr_out_text(o, ",\"dur\":");
    mr_out_number(o, end - start);
    mr_out_text(o, call == MR_CALL_counter   ? ",\"ph\":\"C\",\"args\":{"
                   : call == MR_CALL_instant ? ",\"ph\":\"i\",\"args\":{"
                                             : ",\"ph\":\"X\",\"args\":{");
    mr_out_text(o, "\"hostname\":");
    mr_out_json(o, host, strlen(host), MR_JSON_PRIVATE);
    if (!is_app(r)) {
        bool has_count = false;
        for (uint32_t a = r->arg; a < r->arg_end; a++)
            has_count |= c->arg_type[a] == MR_MORE_COUNT;
        mr_out_text(o, ",");
        put_io_args(o, r, MR_JSON_PRIVATE);
        if (!has_count && mr_kind_moves_data(mr_call_get(call)->kind) && c->result[r->i] != MR_NO_RESULT) {
            mr_out_text(o, ",\"count\":");
            mr_out_signed(o, c->result[r->i]);
        }
    }
    put_args(o, r, NULL, MR_JSON_PRIVATE);
    mr_out_text(o, "}}\n");
}

/* Ranks, as DFTracer writes them. */
static void pfw_ranks(struct mr_out *o, const struct mr_trace *t)
{
    for (size_t i = 0; i < t->processes; i++) {
        const struct mr_trace_process *p = &t->process[i];
        if (p->rank < 0 || !t->nodes)
            continue;
        mr_out_format(
            o,
            "{\"id\":0,\"name\":\"PR\",\"cat\":\"dftracer\",\"pid\":%u,\"tid\":%u,\"ph\":\"M\",\"args\":{\"hostname\":",
            p->pid, p->pid);
        mr_out_json(o, t->node[p->node].name, strlen(t->node[p->node].name), MR_JSON_PRIVATE);
        mr_out_format(o, ",\"name\":\"rank\",\"value\":%d}}\n", p->rank);
    }
}

static int export_pfw(const struct mr_trace *t, struct mr_out *o, struct mr_error *err)
{
    mr_out_text(o, "[\n");
    pfw_ranks(o, t);
    int rc = each_event(t, o, pfw_row, &(struct around){0}, err);
    mr_out_text(o, "]\n");
    return rc;
}

/* What has no column: a second file, and the arguments of annotations, as a JSON object. */
static void csv_args(struct mr_out *o, const struct row *r)
{
    const struct mr_columns *c = &r->b->c;
    bool any = false;
    for (uint32_t a = r->arg; a < r->arg_end; a++) {
        if (c->arg_type[a] == MR_MORE_COUNT || is_replaced(r, a))
            continue;
        if (!any)
            mr_out_field_begin(o);
        mr_out_text(o, any ? "," : "{");
        any = true;
        if (c->arg_type[a] == MR_MORE_FILE2) {
            const struct mr_trace_string *s = mr_trace_string(r->b->process, (uint32_t)c->arg_value[a]);
            mr_out_text(o, "\"file2\":");
            mr_out_json(o, s->text, s->len, MR_JSON_HEX);
            continue;
        }
        const struct mr_trace_string *key = mr_trace_string(r->b->process, c->arg_key[a]);
        mr_out_json(o, key->text, key->len, MR_JSON_HEX);
        mr_out_text(o, ":");
        put_value(o, r, a, MR_JSON_HEX);
    }
    if (any) {
        mr_out_text(o, "}");
        mr_out_field_end(o);
    }
}

/* What the spans around the event and the facts of its process say about it, as a JSON object. */
static void csv_inherited(struct mr_out *o, const struct row *r)
{
    const struct mr_inherited_arg *s;
    size_t n = mr_context_of(r->context, r->b, r->i, r->arg, r->arg_end, &s);
    if (!n)
        return;
    mr_out_field_begin(o);
    for (size_t k = 0; k < n; k++) {
        const struct mr_trace_string *key = mr_trace_string(s[k].process, s[k].key);
        mr_out_text(o, k ? "," : "{");
        mr_out_json(o, key->text, key->len, MR_JSON_HEX);
        mr_out_text(o, ":");
        put_inherited(o, &s[k], MR_JSON_HEX);
    }
    mr_out_text(o, "}");
    mr_out_field_end(o);
}

static void csv_row(struct mr_out *o, const struct row *r)
{
    const struct mr_columns *c = &r->b->c;
    const struct mr_trace_process *p = r->b->process;
    const char *host = r->t->nodes ? r->t->node[p->node].name : "";
    struct mr_trace_string category, name;
    uint64_t count = 0;
    mr_trace_label(p, c->call[r->i], c->file[r->i], &category, &name);
    mr_out_csv(o, host, strlen(host));
    mr_out_format(o, ",%d,%u,%u,%llu,%llu,", p->rank, p->pid, r->b->tid, (unsigned long long)c->start_ns[r->i],
                  (unsigned long long)(c->end_ns[r->i] - c->start_ns[r->i]));
    mr_out_csv(o, category.text, category.len);
    mr_out_text(o, ",");
    mr_out_csv(o, name.text, name.len);
    mr_out_text(o, ",");
    if (!is_app(r)) {
        const struct mr_trace_string *f = mr_trace_string(p, c->file[r->i]);
        mr_out_csv(o, f->text, f->len);
        mr_out_text(o, ",");
        if (c->offset[r->i] != MR_NO_OFFSET)
            mr_out_signed(o, (int64_t)c->offset[r->i]);
        mr_out_text(o, ",");
        if (c->result[r->i] != MR_NO_RESULT)
            mr_out_signed(o, c->result[r->i]);
        mr_out_text(o, ",");
        count = c->result[r->i] > 0 ? (uint64_t)c->result[r->i] : 0;
    } else {
        mr_out_text(o, ",,,");
    }
    bool counted =
        !is_app(r) && mr_kind_moves_data(mr_call_get(c->call[r->i])->kind) && c->result[r->i] != MR_NO_RESULT;
    for (uint32_t a = r->arg; a < r->arg_end; a++)
        if (c->arg_type[a] == MR_MORE_COUNT) {
            count = c->arg_value[a];
            counted = true;
        }
    if (counted)
        mr_out_number(o, count);
    mr_out_text(o, ",");
    if (c->fd[r->i])
        mr_out_number(o, c->fd[r->i] - 1u);
    mr_out_text(o, ",");
    csv_args(o, r);
    mr_out_text(o, ",");
    csv_inherited(o, r);
    mr_out_text(o, "\n");
}

static int export_csv(const struct mr_trace *t, struct mr_out *o, struct mr_error *err)
{
    mr_out_text(o, "host,rank,pid,tid,start_unix_ns,dur_ns,category,name,file,offset_bytes,result,requested_bytes,fd,"
                   "args,inherited\n");
    struct mr_context *context = NULL;
    int rc = mr_context_create(t, &context, err);
    rc = rc ? rc : each_event(t, o, csv_row, &(struct around){.context = context}, err);
    mr_context_free(context);
    return rc;
}

/* ---- TimeLogger ---- */

/* An argument of the span or of what is around it, as far as it is a whole number. */
static void put_fact(struct mr_out *o, const struct row *r, const char *name)
{
    const struct mr_columns *c = &r->b->c;
    const struct mr_inherited_arg *s;
    size_t n = strlen(name), more = mr_context_of(r->context, r->b, r->i, r->arg, r->arg_end, &s);
    for (uint32_t a = r->arg; a < r->arg_end; a++) {
        const struct mr_trace_string *key = mr_trace_string(r->b->process, c->arg_key[a]);
        if (c->arg_type[a] == MR_MORE_INT && key->len == n && !memcmp(key->text, name, n)) {
            mr_out_signed(o, (int64_t)c->arg_value[a]);
            return;
        }
    }
    for (size_t k = 0; k < more; k++) {
        const struct mr_trace_string *key = mr_trace_string(s[k].process, s[k].key);
        if (s[k].type == MR_MORE_INT && key->len == n && !memcmp(key->text, name, n)) {
            mr_out_signed(o, (int64_t)s[k].value);
            return;
        }
    }
}

/* A snippet: a span that the program or a framework named. Calls are none. */
static void timelogger_row(struct mr_out *o, const struct row *r)
{
    const struct mr_columns *c = &r->b->c;
    const struct mr_trace_process *p = r->b->process;
    const char *host = r->t->nodes ? r->t->node[p->node].name : "";
    struct mr_trace_string category, name;
    uint64_t start = c->start_ns[r->i], end = MR_MAX(c->end_ns[r->i], start), dur = end - start;
    if (c->call[r->i] != MR_CALL_region)
        return;
    mr_trace_label(p, c->call[r->i], c->file[r->i], &category, &name);
    mr_out_csv(o, host, strlen(host));
    mr_out_text(o, ",");
    put_fact(o, r, "epoch");
    mr_out_format(o, ",%llu.%09llu,%llu.%09llu,%llu.%09llu,%u,%u,", (unsigned long long)(start / MR_NS_PER_S),
                  (unsigned long long)(start % MR_NS_PER_S), (unsigned long long)(end / MR_NS_PER_S),
                  (unsigned long long)(end % MR_NS_PER_S), (unsigned long long)(dur / MR_NS_PER_S),
                  (unsigned long long)(dur % MR_NS_PER_S), p->pid, r->b->tid);
    mr_out_csv(o, name.text, name.len);
    mr_out_text(o, ",");
    mr_out_csv(o, category.text, category.len);
    mr_out_text(o, ",");
    put_fact(o, r, "step");
    mr_out_text(o, ",");
    if (p->rank >= 0)
        mr_out_signed(o, p->rank);
    mr_out_text(o, "\n");
}

/* Names of spans are strings of their own kind. */
static bool has_regions(const struct mr_trace *t)
{
    for (size_t p = 0; p < t->processes; p++)
        for (uint32_t s = 1; s < t->process[p].strings; s++)
            if (t->process[p].string[s].kind == MR_STR_SITE && t->process[p].string[s].text)
                return true;
    return false;
}

static int export_timelogger(const struct mr_trace *t, struct mr_out *o, struct mr_error *err)
{
    struct mr_context *context = NULL;
    if (!has_regions(t))
        mr_log(MR_LOG_WARN, "the trace has no named span: the table has its heading alone");
    mr_out_text(o, "node,epoch,start,end,duration,pid,thread,name,category,step,rank\n");
    int rc = mr_context_create(t, &context, err);
    rc = rc ? rc : each_event(t, o, timelogger_row, &(struct around){.context = context}, err);
    mr_context_free(context);
    return rc;
}

int mr_export(const struct mr_trace *t, enum mr_export_format format, const char *path, struct mr_error *err)
{
    struct mr_out o;
    int rc = mr_out_open(&o, path, format == MR_EXPORT_PFW, err);
    if (rc < 0)
        return rc;
    switch (format) {
    case MR_EXPORT_PERFETTO: rc = mr_export_perfetto(t, &o, err); break;
    case MR_EXPORT_CHROME: rc = export_chrome(t, &o, err); break;
    case MR_EXPORT_PFW: rc = export_pfw(t, &o, err); break;
    case MR_EXPORT_CSV: rc = export_csv(t, &o, err); break;
    case MR_EXPORT_TIMELOGGER: rc = export_timelogger(t, &o, err); break;
    }
    struct mr_error second;
    o.failed = o.failed ? o.failed : MR_MIN(rc, 0);
    int closed = mr_out_close(&o, rc ? &second : err);
    return rc ? rc : closed;
}
