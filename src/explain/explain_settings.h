/* Facts that no timing tells: how a run was set up, and what its machine is. */
#ifndef MR_EXPLAIN_EXPLAIN_SETTINGS_H
#define MR_EXPLAIN_EXPLAIN_SETTINGS_H

#include "analyze/run_trace.h"
#include "explain/explain.h"

/* From what a run of our own told when it was ready to train. Sets only what it told. */
void mr_explain_settings(const struct mr_run_trace *run, struct mr_explanation *x);
/* From the sums that the readers of a run told at its end: what a batch costs, and, where the trace has no events of
 * samples, an estimate of why batches came late. True: the causes are such an estimate. */
bool mr_explain_reader_sums(const struct mr_run_trace *run, struct mr_explanation *x);
/* From the results folder of a run, where `path` is one: what the storage gave to more readers, the harness's own
 * limit, and how the run is started again. Does nothing otherwise. */
void mr_explain_run_folder(struct mr_explanation *x, const char *path);
/* CPUs, memory and local disk of this machine, where the trace was taken on it (the first rank's host) and does not
 * tell them itself. */
void mr_explain_machine_here(struct mr_explanation *x);

#endif
