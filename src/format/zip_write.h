/* Writing zip archives from front to back: member after member, stored or deflated, CRC-32 computed on the way, the
 * local header patched when the member ends, the directory at the end. Every local header has a zip64 field, as numpy
 * writes it, so a member may pass 4 GiB without being known beforehand; directory and end record use zip64 only where
 * they must. */
#ifndef MR_FORMAT_ZIP_WRITE_H
#define MR_FORMAT_ZIP_WRITE_H

#include "format/array_common.h"

#define MR_ZIP_NAME_MAX 40u

struct mr_zip_written {
    char name[MR_ZIP_NAME_MAX];
    uint64_t header_offset, packed_bytes, bytes;
    uint32_t crc;
    uint16_t method;
};

struct mr_zip_writer {
    struct mr_array_output *out; /* borrowed */
    int level;                   /* 0 = stored */
    void *deflater;              /* z_stream while a deflated member is open */
    uint8_t *packed;             /* its output buffer */
    struct mr_zip_written *member;
    size_t n, cap;
    uint32_t prefix_bytes; /* of the current member: local header with name and extra field */
    uint64_t data_offset;
};

/* Zero-initialise the struct, then set `out` and `level`. */
int mr_zip_member_begin(struct mr_zip_writer *z, const char *name, struct mr_error *err);
int mr_zip_member_data(struct mr_zip_writer *z, const void *data, size_t len, struct mr_error *err);
/* Afterwards z->member[z->n - 1] is complete. */
int mr_zip_member_end(struct mr_zip_writer *z, struct mr_error *err);
int mr_zip_directory(struct mr_zip_writer *z, struct mr_error *err);
void mr_zip_writer_done(struct mr_zip_writer *z);

#endif
