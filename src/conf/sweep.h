/* Sweeps: "KEY=VALUE,VALUE,..." texts become the axes of a grid. The one parser behind `run --sweep` and `sim --sweep`.
 *
 *   {"nodes=1,2", "class1=1GB,2GB"} ──> points 0..3: (1, 1GB) (1, 2GB) (2, 1GB) (2, 2GB); the last axis moves fastest
 *
 * Commas inside brackets belong to the value: train.computation_time={type: normal, mean: 1},0.5 has two values. A
 * value may be empty ("tiers=,ram=1GiB"). Keys and values are only cut apart here; whether a key exists and takes
 * a value is for the caller to check, before the first point is run. */
#ifndef MR_CONF_SWEEP_H
#define MR_CONF_SWEEP_H

#include "conf/option.h"

#define MR_SWEEP_AXES 8u
#define MR_SWEEP_POINTS 10000u
#define MR_SWEEP_VALUE_LEN 300u /* characters of one value */

struct mr_sweep_axis {
    const char *key;
    const char **value;
    unsigned n;
};

struct mr_sweep {
    unsigned n_axes, n; /* n: points, the product of the axes' values; 1 without axes */
    struct mr_sweep_axis axis[MR_SWEEP_AXES];
};

/* Keys may have the dashes of an option ("--ranks=1,2"). Strings live in the arena. Without texts: one point and no
 * axis. Errors: MR_E_USAGE (no KEY=VALUE, a key given twice, more than the limits above), -ENOMEM. */
int mr_sweep_parse(const struct mr_strings *texts, struct mr_arena *a, struct mr_sweep *out, struct mr_error *err);
/* The value of one axis at a point; point < n, axis < n_axes. */
const char *mr_sweep_value(const struct mr_sweep *sw, unsigned point, unsigned axis);

#endif
