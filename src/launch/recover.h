/* Completes a trace whose program or collector was killed: events live in ring files until they are in the trace. */
#ifndef MR_LAUNCH_RECOVER_H
#define MR_LAUNCH_RECOVER_H

#include "event/collect.h"

#include <limits.h>

struct mr_recovery {
    struct mr_collect_stats stats;
    unsigned unreadable; /* rings that are damaged or of another version; each was named in a warning */
    bool nothing;        /* there was nothing to recover: no file was written */
    char out[PATH_MAX];  /* the trace file */
};

/* `from`: a trace file, its spool folder, or the folder given as MILLRACE_TRACE_OUT. `out`: the trace to write or
 * continue; "" takes the interrupted one, or FOLDER/recovered.mrt. */
int mr_recover(const char *from, const char *out, struct mr_recovery *result, struct mr_error *err);

#endif
