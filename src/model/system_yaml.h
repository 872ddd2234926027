/* Systems as YAML: the storage models that ship in workloads/systems/ and that `millrace calibrate` writes.
 *
 *     name: lassen
 *     source: "NoPFS, SC'21"
 *     compute: 64MB              # per second; may be left out where the scenario gives seconds per step
 *     preprocess: 200MB
 *     network: 24000MB           # between nodes
 *     pfs: {link: 24000MB, bandwidth: {1: 512MB, 8: 1024MB}, write: {1: 400MB}, stream: 0, latency: 0s, metadata_rate:
 * 0} classes:                   # the first is the staging buffer
 *       - {name: staging, capacity: 5GiB, threads: 8, read: {8: 111GB}}
 *       - {name: ram, capacity: 25GiB, threads: 4, read: {4: 85GB}, write: {4: 60GB}}
 *
 * Sizes are bytes with units; rates are bytes per second. Unknown keys are errors. */
#ifndef MR_MODEL_SYSTEM_YAML_H
#define MR_MODEL_SYSTEM_YAML_H

#include "base/strbuf.h"
#include "conf/yaml_map.h"
#include "model/model.h"

/* From a map node, checked. */
int mr_system_read(const struct mr_yaml_reader *r, const struct mr_yaml_node *map, struct mr_system *out,
                   struct mr_error *err);
/* From a file, or by name in the folders of `search`/systems. */
int mr_system_load(const char *name_or_path, const struct mr_strings *search, struct mr_arena *a, struct mr_system *out,
                   struct mr_error *err);
/* Writes a system as YAML that mr_system_read takes back. `notes` may be "". */
void mr_system_write(const struct mr_system *s, const char *notes, struct mr_strbuf *out);
/* Finds `kind`/NAME.yaml in the search path, or takes an existing path as it is; NULL with err set if there is none. */
const char *mr_model_find_file(const char *name, const char *kind, const struct mr_strings *search, struct mr_arena *a,
                               struct mr_error *err);
/* Names of all YAML files in the `kind` folders of the search path, sorted, without duplicates. */
int mr_model_list_files(const char *kind, const struct mr_strings *search, struct mr_arena *a, struct mr_strings *names,
                        struct mr_error *err);

#endif
