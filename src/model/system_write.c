/* Systems to YAML; the counterpart of system_yaml.c. Rates and sizes are whole bytes, so that reading them back gives
 * the same numbers. */
#include "model/system_yaml.h"

#include <math.h>

#define MB 1e6

/* Double-quoted YAML: the two characters that need it are escaped, control characters become blanks. */
static void put_quoted(struct mr_strbuf *out, const char *text)
{
    mr_strbuf_putc(out, '"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            mr_strbuf_putc(out, '\\');
        mr_strbuf_putc(out, (unsigned char)*text < ' ' ? ' ' : *text);
    }
    mr_strbuf_putc(out, '"');
}

static void put_curve(struct mr_strbuf *out, const struct mr_curve *c)
{
    mr_strbuf_putc(out, '{');
    for (unsigned i = 0; i < c->n; i++)
        mr_strbuf_printf(out, "%s%g: %.0f", i ? ", " : "", c->x[i], fmax(1, c->y[i] * MB));
    mr_strbuf_putc(out, '}');
}

static void put_kind(struct mr_strbuf *out, const char *prefix, const struct mr_kind_rates *k)
{
    if (k->mbps > 0)
        mr_strbuf_printf(out, ", %sbandwidth: %.0f, %sstream: %.0f, %sspread: %.4f", prefix, k->mbps * MB, prefix,
                         k->stream_mbps * MB, prefix, k->spread);
}

void mr_system_write(const struct mr_system *s, const char *notes, struct mr_strbuf *out)
{
    mr_strbuf_puts(out, "name: ");
    put_quoted(out, s->name);
    mr_strbuf_puts(out, "\nsource: ");
    put_quoted(out, s->source);
    if (*notes) {
        mr_strbuf_puts(out, "\nnotes: ");
        put_quoted(out, notes);
    }
    if (s->compute_mbps > 0)
        mr_strbuf_printf(out, "\ncompute: %.0f", s->compute_mbps * MB);
    mr_strbuf_printf(out,
                     "\npreprocess: %.0f\nnetwork: %.0f\npfs:\n  link: %.0f\n  bandwidth: ", s->preprocess_mbps * MB,
                     s->network_mbps * MB, s->pfs_link_mbps * MB);
    put_curve(out, &s->pfs_mbps);
    if (s->pfs_write_mbps.n) {
        mr_strbuf_puts(out, "\n  write: ");
        put_curve(out, &s->pfs_write_mbps);
    }
    if (s->pfs_stream_mbps > 0)
        mr_strbuf_printf(out, "\n  stream: %.0f", s->pfs_stream_mbps * MB);
    if (s->pfs_spread > 0)
        mr_strbuf_printf(out, "\n  spread: %.4f", s->pfs_spread);
    for (unsigned i = 0; i < s->n_requests; i++) {
        const struct mr_request_rates *r = &s->requests[i];
        mr_strbuf_printf(out, "%s\n    - {size: %.0f", i ? "" : "\n  requests:", r->mb * MB);
        put_kind(out, "", &r->direct);
        put_kind(out, "buffered_", &r->buffered);
        mr_strbuf_putc(out, '}');
    }
    mr_strbuf_printf(out, "\n  latency: %.9fs\n  metadata_rate: %.0f\nclasses:\n", s->pfs_latency_s,
                     s->pfs_metadata_per_s);
    for (unsigned j = 0; j < s->n_classes; j++) {
        const struct mr_storage_class *k = &s->classes[j];
        mr_strbuf_puts(out, "  - name: ");
        put_quoted(out, k->name);
        mr_strbuf_printf(out, "\n    capacity: %.0f\n    threads: %u\n    read: ", k->capacity_mb * MB, k->threads);
        put_curve(out, &k->read_mbps);
        if (k->write_mbps.n) {
            mr_strbuf_puts(out, "\n    write: ");
            put_curve(out, &k->write_mbps);
        }
        mr_strbuf_putc(out, '\n');
    }
}
