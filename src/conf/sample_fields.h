/* The fields of a workload's samples, where it names them: `dataset.fields`, a list of name:dtype:shape[:role] as
 * `gen --fields` takes them, or `dataset.parquet.columns` as MLPerf Storage writes them, a list of maps with name, dtype,
 * size (values of a row, default 1) and read (default true); `count: N` there is ours: N columns NAME0 ... NAME(N - 1)
 * alike. `reader.fields` names those that are read; without it these are all but role other and `read: false`. */
#ifndef MR_CONF_SAMPLE_FIELDS_H
#define MR_CONF_SAMPLE_FIELDS_H

#include "base/strbuf.h"
#include "conf/workload.h"

#define MR_SAMPLE_FIELDS_MAX 256u

struct mr_sample_field {
    char name[64];
    char spec[192]; /* as `gen --fields` takes it */
    double bytes;   /* of a value */
    bool read;
};

struct mr_sample_fields {
    unsigned n;
    struct mr_sample_field field[MR_SAMPLE_FIELDS_MAX];
};

/* Of a workload; n = 0: it names none, and a sample is one array. MR_E_CONFIG says what is wrong. */
int mr_sample_fields_of(const struct mr_workload *w, struct mr_sample_fields *out, struct mr_error *err);
/* 1: the workload names fields, each once, and reads some of them; 0: it names none; or MR_E_CONFIG. */
int mr_sample_fields_check(const struct mr_workload *w, struct mr_error *err);
/* Bytes of a sample and of what is read of it. 1; 0: the workload names no fields; or MR_E_CONFIG. */
int mr_sample_fields_bytes(const struct mr_workload *w, double *all, double *read, struct mr_error *err);
/* As `gen --fields` takes them: "name:dtype:shape[:role],...". */
void mr_sample_fields_to_spec(const struct mr_sample_fields *f, struct mr_strbuf *out);
/* Names for mr_loader_params.fields, in one block that the caller frees; *n = 0, *names NULL: none are named, and the
 * primary field is read. */
int mr_sample_fields_names(const struct mr_workload *w, const char ***names, uint32_t *n, struct mr_error *err);

#endif
