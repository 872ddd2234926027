/* The operations of the HDF5 writer, for the table in format_hdf5.c, and the box copy that reader and writer share. */
#ifndef MR_FORMAT_HDF5_WRITER_H
#define MR_FORMAT_HDF5_WRITER_H

#include "format/array_common.h"

int mr_h5_writer_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec, struct mr_writer **out,
                      struct mr_error *err);
/* Contiguous files only. */
uint64_t mr_h5_part_bytes(const struct mr_writer_spec *spec, const struct mr_sample_info *one);
int mr_h5_part_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                    const struct mr_sample_info *one, uint64_t first, uint64_t n, struct mr_writer **out,
                    struct mr_error *err);
int mr_h5_sample_begin(struct mr_writer *w, const struct mr_sample_info *info, struct mr_error *err);
void *mr_h5_sample_room(struct mr_writer *base, size_t len);
int mr_h5_sample_data(struct mr_writer *w, const void *data, size_t len, struct mr_error *err);
int mr_h5_sample_end(struct mr_writer *w, struct mr_sample_ref *ref, struct mr_error *err);
int mr_h5_writer_close(struct mr_writer *w, struct mr_layout *layout, uint64_t *file_bytes, struct mr_error *err);
void mr_h5_writer_abort(struct mr_writer *w);

/* Files of several datasets. */
int mr_h5_fields_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                      const struct mr_field *fields, unsigned n, struct mr_writer **out, struct mr_error *err);
int mr_h5_fields_begin(struct mr_writer *w, unsigned field, const struct mr_sample_info *info, struct mr_error *err);
int mr_h5_fields_data(struct mr_writer *w, const void *data, size_t len, struct mr_error *err);
int mr_h5_fields_end(struct mr_writer *w, unsigned field, struct mr_sample_ref *ref, struct mr_error *err);
int mr_h5_fields_close(struct mr_writer *w, struct mr_layout *layouts, uint64_t *file_bytes, struct mr_error *err);
void mr_h5_fields_abort(struct mr_writer *w);

/* Copies a box of `n` axes between two arrays with byte strides; the last axis must be dense (stride = elem) in both.
 * n = 0 copies one element. */
void mr_h5_copy_box(uint8_t *dst, const uint64_t *dst_stride, const uint8_t *src, const uint64_t *src_stride,
                    const uint64_t *box, unsigned n, unsigned elem);

#endif
