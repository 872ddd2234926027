/* A data set, and the place of a sample in it, as text and JSON: `millrace show`. Reads the manifest only. */
#ifndef MR_REPORT_DATASET_TEXT_H
#define MR_REPORT_DATASET_TEXT_H

#include "base/strbuf.h"

#include <jansson.h>
#include <millrace/dataset.h>

int mr_report_dataset(const struct mr_dataset *ds, struct mr_strbuf *o, struct mr_error *err);
int mr_report_dataset_json(const struct mr_dataset *ds, json_t **out, struct mr_error *err);

void mr_report_sample(const struct mr_dataset *ds, uint64_t id, const struct mr_sample_place *p, struct mr_strbuf *o);
json_t *mr_report_sample_json(const struct mr_dataset *ds, uint64_t id, const struct mr_sample_place *p);

#endif
