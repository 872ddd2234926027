/* Scenarios as YAML: a machine, a data set and a training run.
 *
 *     system: thesis                  # a name in systems/, a path, or the map itself
 *     nodes: 4
 *     dataset: {samples: 150000, size: 1MB, size_stdev: 0.1MB}
 *     batch: 100                      # over all nodes, or local_batch: 25
 *     epochs: 10
 *     compute: 100MB                  # optional; or step_time: 0.25s, seconds of compute per step
 *     drop_last: true
 *     seed: 1
 *     order: torch                    # or cipher, sequential
 */
#ifndef MR_SIM_SCENARIO_YAML_H
#define MR_SIM_SCENARIO_YAML_H

#include "conf/yaml_map.h"
#include "sim/sim.h"

/* Reads and checks. `overrides` are "key=value" texts for the scalar keys (nodes, epochs, batch ...), applied last. */
int mr_scenario_load(const char *name_or_path, const struct mr_strings *search, const struct mr_strings *overrides,
                     struct mr_arena *a, struct mr_scenario *out, struct mr_error *err);
/* Parses from memory (tests, fuzzing). */
int mr_scenario_parse(const char *text, size_t len, const char *name, const struct mr_strings *search,
                      const struct mr_strings *overrides, struct mr_arena *a, struct mr_scenario *out,
                      struct mr_error *err);
/* Changes keys of a scenario that was not read from a file, as the overrides do, and checks it. nodes= keeps the batch
 * of a node. On failure *s is as it was. */
int mr_scenario_change(struct mr_scenario *s, const struct mr_strings *words, const struct mr_strings *search,
                       struct mr_arena *a, struct mr_error *err);
#endif
