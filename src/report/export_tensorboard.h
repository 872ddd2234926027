/* Event files for TensorBoard: scalars per step of every rank, I/O over time, the verdict as text. */
#ifndef MR_REPORT_EXPORT_TENSORBOARD_H
#define MR_REPORT_EXPORT_TENSORBOARD_H

#include "explain/explain.h"

/* Writes into the folder, which it makes: one file of one rank, else a folder per rank ("rank-3"), each a run of
 * TensorBoard's. Files of an earlier export of the same trace are replaced. The explanation has pictures. */
int mr_export_tensorboard(const struct mr_explanation *x, const char *folder, struct mr_error *err);

#endif
