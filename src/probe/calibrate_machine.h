/* Calibration of a machine: storage under several folders, memory and, if measured before, the network. */
#ifndef MR_PROBE_CALIBRATE_MACHINE_H
#define MR_PROBE_CALIBRATE_MACHINE_H

#include "probe/calibrate.h"
#include "probe/network_probe.h"

struct mr_machine_calibration {
    unsigned n_paths;
    struct mr_path_calibration paths[MR_CALIBRATE_PATHS_MAX];
    struct mr_memory_calibration memory;
    struct mr_network_rates net; /* the caller's: see mr_network_measure */
    uint64_t memory_bytes;       /* what a job may use here: the machine's, or the control group's limit */
};

/* Measures up to MR_CALIBRATE_PATHS_MAX folders and memory; o->budget_s is for everything, o->copy_bytes is ignored.
 * Starts threads. MR_E_INTERRUPTED when o->stop is set. */
int mr_machine_calibrate(const char *const *paths, unsigned n, const struct mr_calibrate_options *o,
                         struct mr_machine_calibration *c, struct mr_error *err);
/* Writes it as a system file for the simulator, named after this host. */
int mr_machine_write_system(const struct mr_machine_calibration *c, uint64_t request_bytes, const char *path,
                            struct mr_error *err);

#endif
