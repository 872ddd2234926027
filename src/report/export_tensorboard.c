/* TensorBoard's event files: TFRecords of protobuf messages Event. A record is the length (u64), its masked CRC-32C, the
 * message, its masked CRC-32C. Of the messages we write:
 *
 *     Event    1 wall_time: double   2 step: int64   3 file_version: string   5 summary: Summary
 *     Summary  1 value: Value, repeated
 *     Value    1 tag: string   2 simple_value: float   8 tensor: TensorProto   9 metadata: SummaryMetadata
 *     SummaryMetadata  1 plugin_data { 1 plugin_name: string }
 *     TensorProto      1 dtype: 7 = string   2 tensor_shape { 2 dim { 1 size } }   8 string_val: bytes
 *
 * The scalars of a step are one Event each: its wall time is the end of the step, its step the number of the step. */
#include "report/export_tensorboard.h"
#include "base/common.h"
#include "base/crc32c.h"
#include "base/strbuf.h"
#include "report/out_stream.h"
#include "report/report_text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* ---- protobuf ---- */

static void put_varint(struct mr_strbuf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        mr_strbuf_putc(b, (char)(v | 0x80));
    mr_strbuf_putc(b, (char)v);
}

static void put_key(struct mr_strbuf *b, unsigned field, unsigned wire)
{
    put_varint(b, field << 3 | wire);
}

static void put_bytes(struct mr_strbuf *b, unsigned field, const char *p, size_t n)
{
    put_key(b, field, WIRE_BYTES);
    put_varint(b, n);
    if (n)
        mr_strbuf_add(b, p, n);
}

static void put_message(struct mr_strbuf *b, unsigned field, struct mr_strbuf *inner)
{
    put_bytes(b, field, inner->text, inner->len);
    b->failed |= inner->failed;
    mr_strbuf_done(inner);
}

static void put_double(struct mr_strbuf *b, unsigned field, double v)
{
    put_key(b, field, WIRE_64);
    mr_strbuf_add(b, (const char *)&v, sizeof v);
}

/* ---- records ---- */

static void put_record(struct mr_out *o, struct mr_strbuf *event)
{
    uint64_t n = event->len;
    uint32_t crc = mr_crc32c_mask(mr_crc32c(0, &n, sizeof n));
    mr_out_bytes(o, &n, sizeof n);
    mr_out_bytes(o, &crc, sizeof crc);
    mr_out_bytes(o, event->text, event->len);
    crc = mr_crc32c_mask(mr_crc32c(0, event->text, event->len));
    mr_out_bytes(o, &crc, sizeof crc);
    if (event->failed && !o->failed)
        o->failed = -ENOMEM;
    mr_strbuf_done(event);
}

static void begin_event(struct mr_strbuf *event, double wall_s, uint64_t step)
{
    put_double(event, 1, wall_s);
    put_key(event, 2, WIRE_VARINT);
    put_varint(event, step);
}

static void put_version(struct mr_out *o, double wall_s)
{
    struct mr_strbuf event = {0};
    put_double(&event, 1, wall_s);
    put_bytes(&event, 3, "brain.Event:2", 13);
    put_record(o, &event);
}

static void add_scalar(struct mr_strbuf *summary, const char *tag, double v)
{
    struct mr_strbuf value = {0};
    float single = (float)v;
    if (!isfinite(v))
        return;
    put_bytes(&value, 1, tag, strlen(tag));
    put_key(&value, 2, WIRE_32);
    mr_strbuf_add(&value, (const char *)&single, sizeof single);
    put_message(summary, 1, &value);
}

static void put_summary(struct mr_out *o, double wall_s, uint64_t step, struct mr_strbuf *summary)
{
    struct mr_strbuf event = {0};
    begin_event(&event, wall_s, step);
    put_message(&event, 5, summary);
    put_record(o, &event);
}

static void put_text(struct mr_out *o, double wall_s, const char *tag, const struct mr_strbuf *text)
{
    struct mr_strbuf summary = {0}, value = {0}, tensor = {0}, shape = {0}, dim = {0}, metadata = {0}, plugin = {0};
    put_key(&dim, 1, WIRE_VARINT);
    put_varint(&dim, 1);
    put_message(&shape, 2, &dim);
    put_key(&tensor, 1, WIRE_VARINT);
    put_varint(&tensor, 7);
    put_message(&tensor, 2, &shape);
    put_bytes(&tensor, 8, text->text, text->len);
    put_bytes(&plugin, 1, "text", 4);
    put_message(&metadata, 1, &plugin);
    put_bytes(&value, 1, tag, strlen(tag));
    put_message(&value, 8, &tensor);
    put_message(&value, 9, &metadata);
    put_message(&summary, 1, &value);
    put_summary(o, wall_s, 0, &summary);
}

/* ---- what is written ---- */

static double wall_of(const struct mr_explanation *x, uint64_t ns)
{
    return (double)(x->start_ns + ns) / 1e9;
}

static double seconds(uint64_t ns)
{
    return ns == MR_TIME_UNKNOWN ? (double)NAN : (double)ns / 1e9;
}

/* Of a class or cause that the rank never has there is no chart. */
struct shown {
    bool time[MR_TIME_CLASS_COUNT], stall[MR_STALL_CAUSE_COUNT];
};

static struct shown shown_of(const struct mr_explanation *x, uint32_t rank)
{
    struct shown s = {0};
    for (size_t i = 0; i < x->steps; i++) {
        for (int k = 0; k < MR_TIME_CLASS_COUNT && x->step[i].rank == rank; k++)
            s.time[k] |= x->step[i].ns[k] > 0;
        for (int k = 0; k < MR_STALL_CAUSE_COUNT && x->step[i].rank == rank; k++)
            s.stall[k] |= x->step[i].stall[k] > 0;
    }
    return s;
}

static void put_step(struct mr_out *o, const struct mr_explanation *x, const struct mr_explain_step *s,
                     const struct shown *shown)
{
    static const char *const time_tag[] = {
#define TAG(name, key, text) "time/" key "_s",
        MR_TIME_CLASSES(TAG)
#undef TAG
    };
    static const char *const stall_tag[] = {
#define TAG(name, key, text) "data_stall/" key "_s",
        MR_STALL_CAUSES(TAG)
#undef TAG
    };
    struct mr_strbuf summary = {0};
    bool trains = s->phase == MR_EXPLAIN_TRAIN;
    add_scalar(&summary, trains ? "step/duration_s" : "evaluation/duration_s", seconds(s->end_ns - s->start_ns));
    add_scalar(&summary, trains ? "step/data_stall_s" : "evaluation/data_stall_s", seconds(s->ns[MR_TIME_STALL]));
    add_scalar(&summary, "step/accelerator_idle_s", seconds(s->accelerator_idle_ns));
    add_scalar(&summary, "step/read_bytes", s->bytes == MR_TIME_UNKNOWN ? (double)NAN : (double)s->bytes);
    for (int k = 0; k < MR_TIME_CLASS_COUNT && trains; k++)
        if (shown->time[k])
            add_scalar(&summary, time_tag[k], seconds(s->ns[k]));
    for (int k = 0; k < MR_STALL_CAUSE_COUNT && trains; k++)
        if (shown->stall[k])
            add_scalar(&summary, stall_tag[k], seconds(s->stall[k]));
    put_summary(o, wall_of(x, s->end_ns), s->step, &summary);
}

/* Of the whole job: the "step" of these charts is milliseconds since its begin. */
static void put_timeline(struct mr_out *o, const struct mr_explanation *x)
{
    const struct mr_explain_timeline *t = &x->timeline;
    double s = (double)t->bin_ns / 1e9;
    for (uint32_t i = 0; i < t->bins && t->read_bytes && t->written_bytes && s > 0; i++) {
        struct mr_strbuf summary = {0};
        uint64_t at = (uint64_t)i * t->bin_ns;
        add_scalar(&summary, "io/read_bytes_per_s", t->read_bytes[i] / s);
        add_scalar(&summary, "io/written_bytes_per_s", t->written_bytes[i] / s);
        put_summary(o, wall_of(x, at), at / MR_NS_PER_MS, &summary);
    }
}

static void put_verdict(struct mr_out *o, const struct mr_explanation *x)
{
    struct mr_report_text how = {.all = false};
    struct mr_strbuf text = {0}, code = {0};
    mr_report_text(x, &how, &text);
    mr_strbuf_puts(&code, "```\n"); /* TensorBoard shows texts as Markdown */
    mr_strbuf_puts(&code, text.text ? text.text : "");
    mr_strbuf_puts(&code, "```\n");
    put_text(o, wall_of(x, 0), "millrace/report", &code);
    mr_strbuf_done(&text);
    mr_strbuf_done(&code);
}

static int write_rank(const struct mr_explanation *x, uint32_t rank, const char *folder, struct mr_error *err)
{
    struct mr_out o;
    char path[4500];
    const struct shown shown = shown_of(x, rank);
    snprintf(path, sizeof path, "%s/events.out.tfevents.%llu.millrace", folder,
             (unsigned long long)(x->start_ns / MR_NS_PER_S));
    int rc = mr_out_open(&o, path, false, err);
    if (rc < 0)
        return rc;
    put_version(&o, wall_of(x, 0));
    if (!rank) {
        put_verdict(&o, x);
        put_timeline(&o, x);
    }
    for (size_t i = 0; i < x->steps && !o.failed; i++)
        if (x->step[i].rank == rank)
            put_step(&o, x, &x->step[i], &shown);
    return mr_out_close(&o, err);
}

static int make_folder(const char *path, struct mr_error *err)
{
    struct stat st;
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode)))
        return 0;
    return mr_error_set(err, -errno, "cannot make the folder '%s'", path);
}

int mr_export_tensorboard(const struct mr_explanation *x, const char *folder, struct mr_error *err)
{
    int rc = make_folder(folder, err);
    for (uint32_t r = 0; r < MR_MAX(x->ranks, (size_t)1) && !rc; r++) {
        char path[4300];
        bool many = x->ranks > 1;
        if (many)
            snprintf(path, sizeof path, "%s/rank-%d", folder, x->rank[r].rank >= 0 ? x->rank[r].rank : (int)r);
        rc = many ? make_folder(path, err) : 0;
        rc = rc ? rc : write_rank(x, r, many ? path : folder, err);
    }
    return rc;
}
