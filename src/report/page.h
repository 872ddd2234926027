/* The page of an explanation: one HTML file with every picture, for a browser, a mail or the printer. Each figure in it
 * is read from the explanation, as the text and the JSON are; none is computed here but shares and unit changes. The
 * page is below 2 MB for any trace: series have at most 2000 points, tables at most 200 rows, and what is left out is
 * said. Unknown is shown as unknown. */
#ifndef MR_REPORT_PAGE_H
#define MR_REPORT_PAGE_H

#include "explain/explain.h"
#include "report/page_shell.h"

/* A setting that differs from its default, as the user would write it. */
struct mr_page_setting {
    const char *name, *value;
};

struct mr_page_options {
    const char *title; /* "millrace report"; NULL: that */
    const struct mr_page_setting *setting;
    size_t settings;
};

/* Adds the sections of an explanation to a page. */
void mr_page_explain(struct mr_page_shell *p, const struct mr_explanation *x, const struct mr_page_options *o);
/* The whole: one page in one file, "-" for standard output. `o` may be NULL. -errno; a failure leaves no half page. */
int mr_page_write(const char *path, const struct mr_explanation *x, const struct mr_page_options *o,
                  struct mr_error *err);
/* Replaces paths, host names and program arguments by stand-ins, everywhere in the explanation: the same name gets the
 * same stand-in, folders and endings of files stay recognisable ("/d1/d2/f7.npz"). -ENOMEM. */
int mr_explanation_anonymise(struct mr_explanation *x, struct mr_error *err);

#endif
