/* `millrace watch`: a running job, by the trace that it is writing. On a terminal a screen that is redrawn in place,
 * elsewhere a line per interval; at the end the verdict. */
#include "advise/explain_open.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "base/text_escape.h"
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "report/print.h"
#include "report/report_text.h"
#include "report/watch_text.h"
#include "watch/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct watch_options {
    const char *what;
    uint64_t interval;
    int64_t epochs, steps, screens;
    bool json;
};

#define ROW(key, field, type, def, ...) MR_OPTION(watch_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option watch_options[] = {
    ROW("what", what, STRING, "", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REQUIRED,
        .doc = "A trace that 'millrace trace' is writing, the results folder of a 'millrace run', or the number of a "
               "process of this machine: a traced program, anything it started, or 'millrace' itself."),
    ROW("interval", interval, DURATION, "1s", .min = 0.1, .max = 3600, .short_flag = 'i',
        .doc = "Time between two screens or lines."),
    ROW("epochs", epochs, INT, "0", .min = 0, .max = 1e9,
        .doc = "How many epochs the job trains, for its end; 0: by its command line, where that has --epochs or the "
               "like."),
    ROW("steps", steps, INT, "0", .min = 0, .max = 1e15,
        .doc = "How many training steps the job makes in all; 0: from the epochs."),
    ROW("screens", screens, INT, "0", .min = 0, .max = 1e9, .short_flag = 'n',
        .doc = "Ends after so many screens, if the job has not ended before; 0: watches to the end."),
    MR_ROW_JSON(offsetof(struct watch_options, json), "Prints one JSON object per interval (millrace.watch/1)."),
    MR_OPTION_END,
};

struct terminal {
    bool is_one;
    unsigned drawn; /* lines of the screen before */
    int columns;
};

static void measure(struct terminal *t)
{
    struct winsize w;
    t->columns = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col : 100;
}

/* Cut to the width of the terminal: a longer line would be continued on the next one. Names are escaped. */
static void draw_line(const char *line, size_t n, int columns)
{
    int used = 0;
    for (const char *p = line; p < line + n && used < columns - 1; used++) {
        unsigned len = mr_text_printable((const unsigned char *)p);
        fwrite(p, 1, len ? len : 1, stdout);
        p += len ? len : 1;
    }
    fputs("\033[K\n", stdout);
}

static void draw(struct terminal *t, const char *text)
{
    unsigned lines = 0;
    measure(t);
    if (t->drawn)
        printf("\033[%uA", t->drawn);
    for (const char *p = text, *end; *p; p = end + 1, lines++) {
        end = strchr(p, '\n');
        draw_line(p, (size_t)(end - p), t->columns);
    }
    fputs("\033[J", stdout);
    t->drawn = lines;
}

static int show(const struct watch_options *o, struct terminal *t, const struct mr_watch_figures *f,
                struct mr_error *err)
{
    struct mr_strbuf text = {0};
    int rc = 0;
    if (o->json) {
        json_t *j = mr_watch_json(f);
        char *line = j ? json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
        rc = line ? (puts(line), 0) : mr_error_set(err, -ENOMEM, "cannot build the JSON text");
        free(line);
        json_decref(j);
    } else if (t->is_one) {
        mr_watch_screen(f, &text);
        if (!text.failed)
            draw(t, text.text);
    } else {
        mr_watch_line(f, &text);
        rc = mr_cli_print_text(&text, err);
    }
    mr_strbuf_done(&text);
    fflush(stdout);
    return rc;
}

/* The verdict, as `report` gives it. */
static int conclude(const struct watch_options *o, const char *path, const struct mr_command_ctx *ctx,
                    struct mr_error *err)
{
    struct mr_explanation *x = NULL;
    struct mr_strbuf text = {0};
    const struct mr_explain_how how = {.explain = {.rank = -1, .step_from = -1, .path = path, .stop = ctx->stop}};
    if (o->json)
        return 0;
    int rc = mr_explain_open(&path, 1, &how, &x, err);
    if (!rc) {
        char word[4200];
        mr_report_verdict(x, &text);
        mr_strbuf_printf(&text, "more: millrace report %s\n", mr_shell_word(path, word, sizeof word));
        rc = mr_cli_print_text(&text, err);
    }
    mr_explanation_free(x);
    return rc;
}

static int follow(struct mr_watch *w, const struct watch_options *o, const struct mr_command_ctx *ctx,
                  struct mr_watch_figures *f, struct mr_error *err)
{
    struct terminal t = {.is_one = !o->json && isatty(STDOUT_FILENO)};
    uint64_t next = mr_now_ns();
    int rc = 0;
    for (int64_t n = 0; !rc;) {
        rc = mr_watch_poll(w, ctx->stop, err);
        if (rc)
            break;
        mr_watch_figures(w, f);
        rc = show(o, &t, f, err);
        if (f->ended || (o->screens && ++n >= o->screens))
            break;
        next = MR_MAX(next + o->interval, mr_now_ns()); /* a machine that was asleep owes no screens */
        mr_clock_sleep_until(mr_clock_real(), next, ctx->stop);
    }
    return rc;
}

static int watch_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct watch_options *o = ctx->options;
    struct mr_watch *w = NULL;
    struct mr_watch_figures f = {0};
    int rc = mr_watch_open(o->what, (uint64_t)o->epochs, (uint64_t)o->steps, &w, err);
    rc = rc ? rc : follow(w, o, ctx, &f, err);
    if (!rc && f.ended)
        rc = conclude(o, mr_watch_path(w), ctx, err);
    if (!rc && f.ended && !f.whole) {
        char word[4200];
        rc = mr_error_plain(err, MR_E_INCOMPLETE, "the job ended, and the trace does not reach its end");
        mr_error_hint(err, "millrace recover %s", mr_shell_word(mr_watch_path(w), word, sizeof word));
    }
    mr_watch_close(w);
    return rc;
}

const struct mr_command mr_cmd_watch = {
    .name = "watch",
    .synopsis = "[options] TRACE|RUN|PID",
    .summary = "a running job, live: steps, waits, who is late, storage, when it ends",
    .details =
        "Shows what a job that is being traced does now: on a terminal one screen, redrawn in place, elsewhere a line "
        "per interval. Rates and shares are of the last 5 to 10 seconds. The job does not notice; ^C ends watching "
        "and nothing else. When the job ends, so does this, with the verdict of 'millrace report'; status 6 if the end "
        "of the job is not in the trace.\n\n"
        "Examples:\n"
        "  millrace watch run.mrt\n"
        "  millrace watch results/base --interval 10s",
    .table = {.section = "watch",
              .doc = "Watching.",
              .options = watch_options,
              .struct_bytes = sizeof(struct watch_options)},
    .run = watch_run,
};
