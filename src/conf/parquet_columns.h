/* dataset.parquet.columns of a workload, as MLPerf Storage writes them: a list of maps with name, dtype, size (values of a
 * row, default 1) and read (default true). `count: N` is ours: N columns NAME0 ... NAME(N - 1) alike. */
#ifndef MR_CONF_PARQUET_COLUMNS_H
#define MR_CONF_PARQUET_COLUMNS_H

#include "base/strbuf.h"
#include "conf/workload.h"

#define MR_PARQUET_COLUMNS_MAX 256u

struct mr_parquet_column {
    char name[64], dtype[16];
    uint64_t size;
    bool read;
};

struct mr_parquet_columns {
    unsigned n;
    struct mr_parquet_column column[MR_PARQUET_COLUMNS_MAX];
};

/* Of a workload; n = 0: it names none, and a sample is one array of bytes. MR_E_CONFIG names what is wrong. */
int mr_parquet_columns_of(const struct mr_workload *w, struct mr_parquet_columns *out, struct mr_error *err);
/* As `gen --fields` takes them: "name:dtype:size,...". */
void mr_parquet_columns_to_fields(const struct mr_parquet_columns *c, struct mr_strbuf *out);

#endif
