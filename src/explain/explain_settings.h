/* Facts that no timing tells: how a run was set up, and what its machine is. */
#ifndef MR_EXPLAIN_EXPLAIN_SETTINGS_H
#define MR_EXPLAIN_EXPLAIN_SETTINGS_H

#include "analyze/run_trace.h"
#include "explain/explain.h"

#include <jansson.h>

/* From what a run of our own told when it was ready to train. Sets only what it told. */
void mr_explain_settings(const struct mr_run_trace *run, struct mr_explanation *x);
/* From the sums that the readers of a run told at its end: what a batch costs, and, where the trace has no events of
 * samples, an estimate of why batches came late. True: the causes are such an estimate. */
bool mr_explain_reader_sums(const struct mr_run_trace *run, struct mr_explanation *x);
/* From the summary of a run of our own: what the storage gave to more readers, the harness's own limit, and how the run
 * is started again. */
void mr_explain_run_summary(struct mr_explanation *x, const json_t *summary);
/* The same from its results folder, where `path` is one. Does nothing otherwise. */
void mr_explain_run_folder(struct mr_explanation *x, const char *path);
/* The trace was taken on this machine: by the first rank's host. */
bool mr_explain_is_here(const struct mr_explanation *x);
/* Stripes of a file by its attribute lustre.lov; false: none, or a layout in parts. */
bool mr_lustre_stripes(const void *xattr, size_t len, double *count, double *bytes);
/* CPUs, memory and local disk of this machine, where the trace was taken on it (the first rank's host) and does not
 * tell them itself. */
void mr_explain_machine_here(struct mr_explanation *x);

#endif
