/* Perfetto's native protobuf; see export.h. */
#ifndef MR_REPORT_EXPORT_PERFETTO_H
#define MR_REPORT_EXPORT_PERFETTO_H

#include "import/trace_read.h"
#include "report/out_stream.h"

int mr_export_perfetto(const struct mr_trace *t, struct mr_out *o, struct mr_error *err);

#endif
