/* `--html`: how the commands write pages. */
#ifndef MR_REPORT_PAGE_OUTPUT_H
#define MR_REPORT_PAGE_OUTPUT_H

#include "base/arena.h"
#include "conf/workload.h"
#include "explain/explain.h"

/* What --html and --anonymous say, in every command that has them. */
#define MR_DOC_HTML                                                                                                    \
    "Also writes a page with every picture: one file that loads nothing, for a browser, a mail or the printer."
#define MR_DOC_ANONYMOUS                                                                                               \
    "Replaces paths, host names and arguments of the program by stand-ins, to give the report away."

struct mr_page_request {
    const char *path, *title;    /* the file; "millrace run" */
    const struct mr_workload *w; /* its settings; may be NULL */
    bool anonymous;              /* the explanation is; settings that may be paths are left out */
};
/* Writes the page of an explanation that has pictures, and says so. */
int mr_cli_write_page(const struct mr_explanation *x, const struct mr_page_request *q, struct mr_error *err);
/* Says where the page is and how large. */
void mr_cli_tell_page(const char *path);

#endif
