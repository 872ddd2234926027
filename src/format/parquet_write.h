/* The operations of the Parquet writer, for the table in format_parquet.c. */
#ifndef MR_FORMAT_PARQUET_WRITE_H
#define MR_FORMAT_PARQUET_WRITE_H

#include "format/parquet_layout.h"

extern const struct mr_format_ops mr_format_parquet;

int mr_pq_writer_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec, struct mr_writer **out,
                      struct mr_error *err);
int mr_pq_sample_begin(struct mr_writer *w, const struct mr_sample_info *info, struct mr_error *err);
int mr_pq_data(struct mr_writer *w, const void *data, size_t len, struct mr_error *err);
int mr_pq_sample_end(struct mr_writer *w, struct mr_sample_ref *ref, struct mr_error *err);

int mr_pq_fields_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                      const struct mr_field *fields, unsigned n, struct mr_writer **out, struct mr_error *err);
int mr_pq_begin(struct mr_writer *w, unsigned field, const struct mr_sample_info *info, struct mr_error *err);
int mr_pq_end(struct mr_writer *w, unsigned field, struct mr_sample_ref *ref, struct mr_error *err);
/* n layouts; also for one payload. */
int mr_pq_close(struct mr_writer *w, struct mr_layout *layouts, uint64_t *file_bytes, struct mr_error *err);
void mr_pq_abort(struct mr_writer *w);

#endif
