/* Zip archives, as far as NPZ needs them: the list of members from the central directory (zip64, comments, bytes before
 * the archive), and one member's local header. Stored and deflated members. Refused with a clear message: encryption,
 * archives on several disks, members that overlap, sizes that deflate cannot produce. Nothing is trusted: sizes in the
 * central directory, the local header and the data descriptor must agree with each other and with the file. */
#ifndef MR_FORMAT_ZIP_READ_H
#define MR_FORMAT_ZIP_READ_H

#include "format/array_common.h"

#define MR_ZIP_STORED 0
#define MR_ZIP_DEFLATED 8
#define MR_ZIP_LOCAL_BYTES 30u

struct mr_zip_member {
    const char *name; /* inside the list; NUL-terminated */
    uint64_t header_offset;
    uint64_t packed_bytes, bytes;
    uint32_t crc;
    uint16_t method, flags;
};

struct mr_zip_list {
    struct mr_zip_member *member; /* in the order of the directory */
    size_t n;
    uint64_t directory_offset; /* members end here */
    char *names;
};

/* Reads the central directory. *out is to be released with mr_zip_list_done. */
int mr_zip_list_read(struct mr_object *o, struct mr_zip_list *out, struct mr_error *err);
void mr_zip_list_done(struct mr_zip_list *l);
/* NULL if there is none. */
const struct mr_zip_member *mr_zip_find(const struct mr_zip_list *l, const char *name);

/* Where a member's bytes lie. */
struct mr_zip_place {
    uint32_t prefix_bytes;     /* local header with name and extra field */
    uint32_t descriptor_bytes; /* data descriptor behind the data; 0 = sizes and CRC are in the local header */
};
/* Reads the local header (and descriptor) and checks them against the directory. */
int mr_zip_locate(struct mr_object *o, const struct mr_zip_list *l, const struct mr_zip_member *m,
                  struct mr_zip_place *out, struct mr_error *err);

/* What a member's own bytes (local header, data, descriptor) say about it. `span` is all of them, and `place` where the
 * data lies in it. */
struct mr_zip_local {
    uint64_t packed_bytes, bytes;
    uint32_t crc;
    uint16_t method;
};
int mr_zip_local_parse(const uint8_t *span, size_t len, const struct mr_zip_place *place, struct mr_zip_local *out,
                       struct mr_error *err);
/* Can deflate make `bytes` out of `packed_bytes`, and are they within the limit? */
int mr_zip_check_ratio(uint64_t packed_bytes, uint64_t bytes, struct mr_error *err);

/* Inflates exactly `bytes` bytes; `inflater` is a struct libdeflate_decompressor. */
int mr_zip_inflate(void *inflater, const void *packed, size_t packed_bytes, void *out, size_t bytes,
                   struct mr_error *err);

#endif
