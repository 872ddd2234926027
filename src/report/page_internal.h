/* Shared by the page_*.c files: one function per section. */
#ifndef MR_REPORT_PAGE_INTERNAL_H
#define MR_REPORT_PAGE_INTERNAL_H

#include "report/page.h"
#include "report/svg_chart.h"

#define MR_PAGE_ROWS 200u    /* of a table */
#define MR_PAGE_COLUMNS 600u /* of the step strip */
#define MR_PAGE_LANES 48u    /* rows of a drawing */

struct mr_page {
    struct mr_page_shell *shell;
    struct mr_strbuf *b; /* the shell's body */
    const struct mr_explanation *x;
    const struct mr_page_options *o;
};

void mr_page_verdict(struct mr_page *p);
void mr_page_findings(struct mr_page *p);
void mr_page_steps(struct mr_page *p);
void mr_page_ranks(struct mr_page *p);
void mr_page_timeline(struct mr_page *p);
void mr_page_sizes(struct mr_page *p);
void mr_page_access(struct mr_page *p);
void mr_page_files(struct mr_page *p);
void mr_page_checkpoints(struct mr_page *p);
void mr_page_workers(struct mr_page *p);
void mr_page_snippets(struct mr_page *p);
void mr_page_trust(struct mr_page *p);
void mr_page_glossary(struct mr_page *p);

/* ---- help ---- */

/* "rank 5", "all" where the trace names none. */
const char *mr_page_rank_name(const struct mr_explanation *x, uint32_t rank, char out[MR_HUMAN_LEN]);
/* The cause with the largest part of a stall; MR_STALL_CAUSE_COUNT without a stall. */
unsigned mr_page_main_cause(const uint64_t stall[MR_STALL_CAUSE_COUNT]);
/* Whether the trace has any read, write or metadata call. Without one, bytes are unknown and not 0. */
bool mr_page_has_calls(const struct mr_explanation *x);
/* Where time axes begin: with training, in seconds from the job's begin; 0 without steps. */
double mr_page_training_s(const struct mr_explanation *x);
/* Columns of a time axis that lie wholly before training. */
uint32_t mr_page_before_training(const struct mr_explanation *x, uint64_t column_ns, uint32_t columns);
/* Seconds of the job's window. */
double mr_page_seconds(const struct mr_explanation *x);
/* Shades every other epoch over a chart whose x axis is time, and the checkpoints; names them after the shapes. */
void mr_page_bands(struct mr_page *p, struct mr_chart *c);
void mr_page_band_names(struct mr_page *p, struct mr_chart *c);
/* "x of y", where a drawing or a table has not all. */
void mr_page_cut(struct mr_page *p, size_t shown, size_t all, const char *what);

#endif
