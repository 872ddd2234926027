/* Exports of a trace to what other tools read. Every name survives: bytes that a format cannot carry are escaped.
 *
 *   perfetto    Perfetto's protobuf, native: ns, interned names, one track per thread, overlapping spans on tracks of
 *               their own
 *   chrome      Chrome JSON: times in microseconds from the start of the trace, with three decimals
 *   pfw         DFTracer's classic layout, gzip: microseconds of the UNIX epoch
 *   csv         one line per event
 *   timelogger  one line per span that the program named: node, epoch, start, end, duration, pid, thread, name
 *
 * TensorBoard's event files come from an explanation: export_tensorboard.h. */
#ifndef MR_REPORT_EXPORT_H
#define MR_REPORT_EXPORT_H

#include "import/trace_read.h"

enum mr_export_format { MR_EXPORT_PERFETTO, MR_EXPORT_CHROME, MR_EXPORT_PFW, MR_EXPORT_CSV, MR_EXPORT_TIMELOGGER };

/* Writes the file (mode 0600). */
int mr_export(const struct mr_trace *t, enum mr_export_format format, const char *path, struct mr_error *err);

#endif
