/* The screen of `millrace report`: at most 40 lines of 100 columns, verdict first, trust last. Plain ASCII; with
 * `colour` headings and severities are emphasised. The same figures as in JSON and page: all come from the one struct.
 */
#ifndef MR_REPORT_REPORT_TEXT_H
#define MR_REPORT_REPORT_TEXT_H

#include "base/strbuf.h"
#include "explain/explain.h"

struct mr_report_text {
    bool colour;
    bool all;         /* every finding and every cause */
    bool alarms;      /* no notes among the findings */
    const char *rest; /* how to see what is left out; NULL: "--all" */
    const char *next; /* a command to suggest; NULL: none */
};

void mr_report_text(const struct mr_explanation *x, const struct mr_report_text *how, struct mr_strbuf *out);
/* Only the verdict, only the findings: what `run` says. */
void mr_report_verdict(const struct mr_explanation *x, struct mr_strbuf *out);
void mr_report_findings(const struct mr_explanation *x, const struct mr_report_text *how, struct mr_strbuf *out);
/* How many findings the screen shows; notes alarm nobody where the run is healthy. */
size_t mr_report_shown(const struct mr_explanation *x);
/* A name of a file or program as text: control characters and what is not UTF-8 become '?'. At most `most` characters,
 * cut in front with "..." where it is longer. */
void mr_report_name(struct mr_strbuf *out, const char *name, size_t most);

#endif
