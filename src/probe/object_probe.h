/* Calibration of object storage: what a bucket gives to one process, by requests at a time and their size, through the
 * store that runs read it with. */
#ifndef MR_PROBE_OBJECT_PROBE_H
#define MR_PROBE_OBJECT_PROBE_H

#include "probe/calibrate.h"

/* As mr_calibrate_path, of s3://BUCKET/PREFIX: a "thread" is a request at a time, an "open" a request for one byte, a
 * "stat" a HEAD after the other. Reads a test object that it writes and removes; where it may not write, the largest of
 * the first objects below the prefix, and writing is not measured. */
int mr_calibrate_objects(const char *url, const struct mr_calibrate_options *o, struct mr_path_calibration *out,
                         struct mr_error *err);

#endif
