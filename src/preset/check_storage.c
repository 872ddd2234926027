/* Storage models as text for the throttle shim. A preset names a system (workloads/systems/NAME.yaml, whose file system
 * is emulated) or gives the shim's options itself: "throttle(latency=200us,stream_bandwidth=1.2GB)". With a slowdown
 * all rates are divided and all latencies multiplied by it. */
#include "base/common.h"
#include "base/strbuf.h"
#include "preset/check_storage.h"
#include "model/system_yaml.h"

#include <errno.h>
#include <string.h>

static void add_rate(struct mr_strbuf *s, const char *key, double mbps, double slowdown)
{
    if (mbps > 0)
        mr_strbuf_printf(s, "%s%s=%.0f", s->len && s->text[s->len - 1] != '(' ? "," : "", key, mbps * 1e6 / slowdown);
}

static void add_seconds(struct mr_strbuf *s, const char *key, double seconds, double slowdown)
{
    if (seconds > 0)
        mr_strbuf_printf(s, "%s%s=%.0fns", s->len && s->text[s->len - 1] != '(' ? "," : "", key,
                         seconds * 1e9 * slowdown);
}

/* The shared file system of a model: what all clients get together by their number, what one of them and one stream
 * gets. */
static void system_text(const struct mr_system *y, double slowdown, struct mr_strbuf *s)
{
    mr_strbuf_puts(s, "throttle(");
    if (y->pfs_mbps.n == 1) {
        add_rate(s, "bandwidth", y->pfs_mbps.y[0], slowdown);
    } else {
        mr_strbuf_puts(s, "aggregate=\"");
        for (unsigned i = 0; i < y->pfs_mbps.n; i++)
            mr_strbuf_printf(s, "%s%.0f:%.0f", i ? "/" : "", y->pfs_mbps.x[i], y->pfs_mbps.y[i] * 1e6 / slowdown);
        mr_strbuf_puts(s, "\",active=processes");
    }
    if (y->pfs_write_mbps.n) /* the shim has one rate for all writes: that of the most clients */
        add_rate(s, "write_bandwidth", y->pfs_write_mbps.y[y->pfs_write_mbps.n - 1], slowdown);
    add_rate(s, "stream_bandwidth", y->pfs_stream_mbps, slowdown);
    add_rate(s, "client_bandwidth", y->pfs_link_mbps, slowdown);
    add_seconds(s, "latency", y->pfs_latency_s, slowdown);
    if (y->pfs_metadata_per_s > 0)
        mr_strbuf_printf(s, ",metadata_rate=%.6g", y->pfs_metadata_per_s / slowdown);
    mr_strbuf_puts(s, ")");
}

static int slow_option(const char *word, size_t len, double slowdown, struct mr_strbuf *s, struct mr_error *err)
{
    char text[128], *value;
    snprintf(text, sizeof text, "%.*s", (int)len, word);
    if (!(value = strchr(text, '=')))
        return mr_error_plain(err, MR_E_CONFIG, "bad storage model: '%s' is no option of the throttle", text);
    *value++ = '\0';
    uint64_t n;
    if (!strcmp(text, "readahead"))
        mr_strbuf_printf(s, "%sreadahead=%s", s->text[s->len - 1] != '(' ? "," : "", value);
    else if (strstr(text, "bandwidth") && mr_parse_bytes(value, &n) == 0)
        add_rate(s, text, (double)n / 1e6, slowdown);
    else if (strstr(text, "latency") && mr_parse_duration_ns(value, &n) == 0)
        add_seconds(s, text, (double)n / 1e9, slowdown);
    else
        return mr_error_plain(err, MR_E_CONFIG, "storage model option '%s=%s' cannot be slowed down", text, value);
    return 0;
}

static int inline_text(const char *model, double slowdown, struct mr_strbuf *s, struct mr_error *err)
{
    const char *open = strchr(model, '('), *close = strrchr(model, ')');
    if (!close || close < open || close[1])
        return mr_error_plain(err, MR_E_CONFIG, "bad storage model '%s': parentheses do not match", model);
    if (slowdown <= 1) {
        mr_strbuf_puts(s, model);
        return 0;
    }
    mr_strbuf_add(s, model, (size_t)(open - model) + 1);
    for (const char *at = open + 1; at < close;) {
        size_t len = strcspn(at, ",)");
        int rc = slow_option(at, len, slowdown, s, err);
        if (rc)
            return rc;
        at += len + 1;
    }
    mr_strbuf_puts(s, ")");
    return 0;
}

int mr_check_storage(const char *model, double slowdown, const struct mr_strings *search, struct mr_arena *a,
                     const char **out, struct mr_error *err)
{
    struct mr_strbuf s = {0};
    int rc = 0;
    if (strchr(model, '(')) {
        rc = inline_text(model, slowdown, &s, err);
    } else if (*model) {
        struct mr_system y;
        rc = mr_system_load(model, search, a, &y, err);
        if (!rc)
            system_text(&y, slowdown, &s);
    }
    if (!rc && (s.failed || !(*out = mr_arena_strdup(a, s.text ? s.text : ""))))
        rc = mr_error_set(err, -ENOMEM, "cannot keep the storage model");
    mr_strbuf_done(&s);
    return rc;
}
