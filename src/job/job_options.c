/* The options of a job as a table of their own; see job_options.h. */
#include "job/job_options.h"

const char *const mr_job_computes[] = {"sleep", "spin", "gemm", NULL};
const char *const mr_job_caches[] = {"asis", "cold", "warm", NULL};
const char *const mr_job_ios[] = {"auto", "threads", "queue", NULL};

static const struct mr_option rows[] = {MR_JOB_OPTION_ROWS(0), MR_OPTION_END};
const struct mr_option_table mr_job_options_table = {
    .section = "run", .doc = "run", .options = rows, .struct_bytes = sizeof(struct mr_job_options)};
