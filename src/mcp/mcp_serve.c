/* The protocol; see mcp.h. One loop over the client's lines and the output of the command that runs. */
#include "base/common.h"
#include "base/strbuf.h"
#include "base/text_escape.h"
#include "mcp/mcp.h"
#include "mcp/mcp_child.h"
#include "mcp/mcp_tools.h"

#include <errno.h>
#include <millrace/version.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_MOST (4u << 20)
#define QUEUE_MOST 64u
#define TICK_MS 200
#define PATIENCE_NS (MR_NS_PER_S / 2)      /* a command that only reads */
#define RUN_PATIENCE_NS (30 * MR_NS_PER_S) /* one that has a program to end and scratch folders to remove */

enum { PARSE_ERROR = -32700, INVALID_REQUEST = -32600, NO_METHOD = -32601, INVALID_PARAMS = -32602, INTERNAL = -32603 };

struct server {
    const struct mr_mcp_options *o;
    struct mr_strbuf in; /* the begin of a line */
    bool skipping;       /* the rest of a line that is too long */
    bool ended;          /* the input */
    json_t *queue;       /* requests */
    struct mr_mcp_child child;
    json_t *id; /* of the call that runs; NULL: it was cancelled, or none runs */
    int failed; /* -errno: the client is gone */
};

/* ---- answers ---- */

static void send_json(struct server *s, json_t *message)
{
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
    size_t n = text ? strlen(text) : 0;
    json_decref(message);
    if (!text) {
        s->failed = s->failed ? s->failed : -ENOMEM;
        return;
    }
    text[n++] = '\n'; /* in place of the NUL */
    for (size_t at = 0; at < n && !s->failed;) {
        ssize_t k = write(s->o->out, text + at, n - at);
        if (k >= 0)
            at += (size_t)k;
        else if (errno != EINTR)
            s->failed = -errno;
    }
    free(text);
}

static void send_result(struct server *s, const json_t *id, json_t *result)
{
    send_json(s, json_pack("{s:s,s:O,s:o}", "jsonrpc", "2.0", "id", id, "result", result));
}

static void send_error(struct server *s, const json_t *id, int code, const char *message)
{
    json_t *none = json_null();
    char safe[1024];
    send_json(s, json_pack("{s:s,s:O,s:{s:i,s:s}}", "jsonrpc", "2.0", "id", id ? id : none, "error", "code", code,
                           "message", mr_text_escape(message, safe, sizeof safe)));
    json_decref(none);
}

/* Commands print valid UTF-8; should one not, what is left of the line is worth more than nothing. */
static json_t *text_of(const char *text)
{
    json_t *v = json_string(text);
    if (v)
        return v;
    char *copy = strdup(text);
    for (char *p = copy; p && *p; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    v = copy ? json_string(copy) : NULL;
    free(copy);
    return v;
}

/* 3: a limit is missed; 6: the result is of a part, or in doubt. Both are answers. */
static bool is_answer(int status)
{
    return status == 0 || status == 3 || status == 6;
}

static void answer_call(struct server *s)
{
    struct mr_mcp_child *c = &s->child;
    int status = mr_mcp_child_wait(c);
    struct mr_strbuf text = {0};
    mr_strbuf_puts(&text, c->text.text ? c->text.text : "");
    if (c->cut)
        mr_strbuf_puts(&text, "\n(cut: the output is longer than 1 MiB; ask for less of it)\n");
    if (c->said.len && (!is_answer(status) || status))
        mr_strbuf_printf(&text, "%s%s", text.len ? "\n" : "", c->said.text);
    if (!text.len)
        mr_strbuf_printf(&text, "the command ended with status %d and printed nothing", status);
    if (s->id)
        send_result(s, s->id,
                    json_pack("{s:[{s:s,s:o}],s:b}", "content", "type", "text", "text",
                              text_of(text.text ? text.text : ""), "isError", !is_answer(status)));
    mr_strbuf_done(&text);
    mr_mcp_child_done(c);
    json_decref(s->id);
    s->id = NULL;
}

/* ---- requests ---- */

static void initialize(struct server *s, const json_t *id, const json_t *params)
{
    static const char *const versions[] = {"2025-06-18", "2025-03-26", "2024-11-05"};
    const char *wanted = json_string_value(json_object_get(params, "protocolVersion")), *version = versions[0];
    for (size_t i = 0; wanted && i < MR_ARRAY_LEN(versions); i++)
        if (!strcmp(wanted, versions[i]))
            version = versions[i];
    send_result(s, id,
                json_pack("{s:s,s:{s:{}},s:{s:s,s:s},s:s}", "protocolVersion", version, "capabilities", "tools",
                          "serverInfo", "name", "millrace", "version", MR_VERSION, "instructions",
                          "Millrace measures and explains the I/O of deep-learning training. Traces are made with "
                          "'millrace trace -o run.mrt -- python train.py'. Call report on a trace first: it has the "
                          "verdict, and findings with the change to make; explain shows one finding in depth, compare "
                          "judges two runs."));
}

static void call_tool(struct server *s, const json_t *id, const json_t *params)
{
    struct mr_error err = {0};
    char **words = NULL;
    bool runs = false;
    int rc = mr_mcp_words(json_string_value(json_object_get(params, "name")), json_object_get(params, "arguments"),
                          s->o->allow_run, &words, &runs, &err);
    if (!rc)
        rc = mr_mcp_child_start(s->o->program, words, runs ? RUN_PATIENCE_NS : PATIENCE_NS, &s->child, &err);
    mr_mcp_words_free(words);
    if (rc)
        send_error(s, id, rc == MR_E_USAGE ? INVALID_PARAMS : INTERNAL, err.message);
    else
        s->id = json_incref((json_t *)(uintptr_t)id);
}

static void take_request(struct server *s, const json_t *m)
{
    const json_t *id = json_object_get(m, "id"), *params = json_object_get(m, "params");
    const char *method = json_string_value(json_object_get(m, "method"));
    if (!strcmp(method, "initialize"))
        initialize(s, id, params);
    else if (!strcmp(method, "ping"))
        send_result(s, id, json_object());
    else if (!strcmp(method, "tools/list"))
        send_result(s, id, json_pack("{s:o}", "tools", mr_mcp_tools(s->o->allow_run)));
    else if (!strcmp(method, "tools/call"))
        call_tool(s, id, params);
    else
        send_error(s, id, NO_METHOD, "this server has tools only");
}

static void cancel(struct server *s, const json_t *params)
{
    const json_t *id = json_object_get(params, "requestId");
    if (s->child.pid > 0 && s->id && json_equal(id, s->id)) {
        mr_mcp_child_ask(&s->child);
        json_decref(s->id);
        s->id = NULL; /* no answer */
    }
    for (size_t i = json_array_size(s->queue); i-- > 0;)
        if (json_equal(id, json_object_get(json_array_get(s->queue, i), "id")))
            json_array_remove(s->queue, i);
}

static void take_message(struct server *s, json_t *m)
{
    const char *method = json_string_value(json_object_get(m, "method"));
    const json_t *id = json_object_get(m, "id");
    bool is_id = json_is_string(id) || json_is_integer(id);
    if (!json_is_object(m) || !method || (id && !is_id)) {
        if (!json_is_object(m) || !(json_object_get(m, "result") || json_object_get(m, "error")))
            send_error(s, is_id ? id : NULL, INVALID_REQUEST, "no request of JSON-RPC 2.0");
        return;
    }
    if (!id) {
        if (!strcmp(method, "notifications/cancelled"))
            cancel(s, json_object_get(m, "params"));
        return;
    }
    if (!strcmp(method, "tools/call") && (s->child.pid > 0 || json_array_size(s->queue))) {
        if (json_array_size(s->queue) < QUEUE_MOST)
            json_array_append(s->queue, m);
        else
            send_error(s, id, INTERNAL, "too many calls wait already");
        return;
    }
    take_request(s, m);
}

static void take_line(struct server *s, const char *line, size_t n)
{
    while (n && (line[n - 1] == '\r' || line[n - 1] == ' '))
        n--;
    if (!n)
        return;
    json_t *m = json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (m)
        take_message(s, m);
    else
        send_error(s, NULL, PARSE_ERROR, "the line is no JSON");
    json_decref(m);
}

/* Whole lines are taken, the begin of one stays. */
static void take_input(struct server *s)
{
    char piece[65536];
    ssize_t n = read(s->o->in, piece, sizeof piece);
    if (n < 0 && errno == EINTR)
        return;
    if (n <= 0) {
        s->ended = true;
        if (s->in.len && !s->skipping)
            take_line(s, s->in.text, s->in.len);
        return;
    }
    for (const char *p = piece, *end = piece + n; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t k = (size_t)((stop ? stop : end) - p);
        if (!s->skipping && s->in.len + k > LINE_MOST) {
            send_error(s, NULL, INVALID_REQUEST, "the line is longer than 4 MiB");
            s->skipping = true;
        }
        if (!s->skipping)
            mr_strbuf_add(&s->in, p, k);
        if (stop) {
            if (!s->skipping && s->in.len)
                take_line(s, s->in.text, s->in.len);
            mr_strbuf_done(&s->in);
            s->skipping = false;
        }
        p = stop ? stop + 1 : end;
    }
}

/* ---- the loop ---- */

static void look(struct server *s)
{
    struct pollfd fd[3] = {{.fd = s->ended ? -1 : s->o->in, .events = POLLIN},
                           {.fd = s->child.pid > 0 ? s->child.out : -1, .events = POLLIN},
                           {.fd = s->child.pid > 0 ? s->child.messages : -1, .events = POLLIN}};
    if (poll(fd, 3, TICK_MS) <= 0)
        return;
    for (int k = 1; k < 3; k++)
        if (fd[k].revents)
            mr_mcp_child_read(&s->child, fd[k].fd);
    if (fd[0].revents)
        take_input(s);
}

int mr_mcp_serve(const struct mr_mcp_options *o, struct mr_error *err)
{
    struct server s = {.o = o, .queue = json_array(), .child = {.out = -1, .messages = -1}};
    bool stopped = false;
    while (s.queue && !s.failed) {
        stopped = o->stop && atomic_load(o->stop);
        bool busy = s.child.pid > 0;
        if (busy && (stopped || s.failed))
            mr_mcp_child_ask(&s.child);
        if (!busy && (stopped || (s.ended && !json_array_size(s.queue))))
            break;
        if (!busy && json_array_size(s.queue)) {
            json_t *next = json_incref(json_array_get(s.queue, 0));
            json_array_remove(s.queue, 0);
            take_request(&s, next);
            json_decref(next);
            continue;
        }
        look(&s);
        mr_mcp_child_urge(&s.child);
        if (s.child.pid > 0 && s.child.out < 0 && s.child.messages < 0)
            answer_call(&s);
    }
    int rc = !s.queue   ? mr_error_set(err, -ENOMEM, "cannot serve")
             : s.failed ? mr_error_set(err, s.failed, "the client is gone")
             : stopped  ? mr_error_set(err, MR_E_INTERRUPTED, "stopped")
                        : 0;
    if (s.child.pid > 0) { /* nobody is there for its answer */
        mr_mcp_child_ask(&s.child);
        while (!mr_mcp_child_gone(&s.child)) {
            mr_mcp_child_urge(&s.child);
            poll(NULL, 0, TICK_MS);
        }
    }
    mr_mcp_child_done(&s.child);
    mr_strbuf_done(&s.in);
    json_decref(s.id);
    json_decref(s.queue);
    return rc;
}
