/* Pages from the command line: see page_output.h. */
#include "report/page_output.h"
#include "base/common.h"
#include "base/log.h"
#include "report/page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- settings ---- */

/* Folders, names and the like say where and who, not how. */
static bool may_identify(const struct mr_option *o, const char *value)
{
    return o->type == MR_OPT_STRING && strchr(value, '/');
}

/* Keys of the workload that differ from their defaults; freed by the caller with its texts in `a`. */
static int settings_of(const struct mr_page_request *q, struct mr_arena *a, struct mr_page_setting **out, size_t *n)
{
    size_t room = 0;
    *out = NULL;
    *n = 0;
    for (int s = 0; q->w && mr_workload_sections[s].table; s++)
        for (const struct mr_option *o = mr_workload_sections[s].table->options; o->key; o++)
            room++;
    if (room && !(*out = calloc(room, sizeof(**out))))
        return -ENOMEM;
    for (int s = 0; q->w && mr_workload_sections[s].table; s++) {
        const struct mr_option_table *t = mr_workload_sections[s].table;
        const void *obj = (const char *)q->w + mr_workload_sections[s].offset;
        for (const struct mr_option *o = t->options; o->key; o++) {
            char value[512];
            mr_workload_value_text(o, obj, value, sizeof value);
            bool hidden = q->anonymous && may_identify(o, value);
            if (q->w->origins[s][o - t->options].kind == MR_ORIGIN_DEFAULT)
                continue;
            struct mr_page_setting *e = &(*out)[(*n)++];
            e->name = mr_arena_printf(a, "%s%s%s", t->section, *t->section ? "." : "", o->key);
            e->value = mr_arena_strdup(a, hidden ? "(left out)" : value);
            if (!e->name || !e->value)
                return -ENOMEM;
        }
    }
    return 0;
}

/* ---- writing ---- */

void mr_cli_tell_page(const char *path)
{
    struct stat st;
    char size[MR_HUMAN_LEN];
    if (strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode))
        mr_log(MR_LOG_NOTE, "wrote the page '%s' (%s); open it in a browser", path,
               mr_human_bytes((double)st.st_size, size));
}

int mr_cli_write_page(const struct mr_explanation *x, const struct mr_page_request *q, struct mr_error *err)
{
    struct mr_page_options o = {.title = q->title};
    struct mr_page_setting *settings;
    struct mr_arena a = {0};
    int rc = settings_of(q, &a, &settings, &o.settings);
    o.setting = settings;
    rc = rc ? mr_error_set(err, rc, "cannot write '%s'", q->path) : mr_page_write(q->path, x, &o, err);
    if (!rc)
        mr_cli_tell_page(q->path);
    free(settings);
    mr_arena_done(&a);
    return rc;
}
