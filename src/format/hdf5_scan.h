/* Finding the samples of HDF5 files: hdf5_scan.c. */
#ifndef MR_FORMAT_HDF5_SCAN_H
#define MR_FORMAT_HDF5_SCAN_H

#include "format/format.h"

int mr_h5_scan(struct mr_store *store, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
               struct mr_error *err);
int mr_h5_scan_fields(struct mr_store *store, const char *path, unsigned flags, const struct mr_field_sink *sink,
                      struct mr_error *err);

#endif
