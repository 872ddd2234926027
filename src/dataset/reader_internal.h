/* A reader of samples from inside: dataset_reader.c reads one payload, field_read.c several fields. */
#ifndef MR_DATASET_READER_INTERNAL_H
#define MR_DATASET_READER_INTERNAL_H

#include "dataset/dataset_parts.h"
#include "dataset/fetch.h"

#define UNPACKED_FILES 64u
#define UNPACKED_BYTES MR_GIB
#define NO_FILE UINT64_MAX

/* A file, or a unit that samples share, in its unpacked form. */
struct unpacked_file {
    uint64_t file, key; /* key: the slice's unpack_key, or the offset of the unit */
    bool is_unit;
    uint64_t used;
    void *data;
    size_t len;
};

struct mr_dataset_reader {
    struct mr_dataset *ds;
    const struct mr_manifest *manifest;
    const struct mr_format_ops *format;
    struct mr_decoder *decoder;
    struct mr_decoder *pictures; /* of fields that are pictures; NULL until there is one */
    struct mr_fetch_planner planner;
    struct mr_fetch fetch;          /* of the sample that is read */
    struct mr_fetch_source *own;    /* the store */
    struct mr_fetch_source *source; /* `own`, or another that has the sample nearer by; borrowed */
    uint64_t transfer_bytes;        /* 0: reads are not cut */
    struct unpacked_file unpacked[UNPACKED_FILES];
    uint64_t tick, unpacked_bytes;
    uint8_t *raw; /* page-aligned */
    size_t raw_cap;
    struct mr_sample known; /* what decoding in place said of a sample of known_layout; bytes 0: nothing yet */
    uint64_t known_layout;
    bool learns; /* the sample at hand tells what all of its layout and size are */
    mr_choose_part_fn *choose;
    void *choose_user;
    struct mr_part part; /* of the last sample; full_height 0: it is whole */
    struct mr_reader_times times;
    struct mr_fetch part_fetch; /* of some fields of the sample */
    struct field_memory {       /* of a field: its value, where decoding left it nowhere else */
        uint8_t *data;
        size_t cap;
        uint64_t decode_ns;
    } * field;
    unsigned n_fields;
    char path[2 * MR_NAME_MAX];
};

int mr_reader_grow_raw(struct mr_dataset_reader *r, uint64_t bytes, struct mr_error *err);
/* The file of the sample at hand, or the unit that `s` shares, whose bytes are at `raw`, unpacked. NULL and not there:
 * MR_READER_READ_UNIT, the caller reads them. */
#define MR_READER_READ_UNIT 1
int mr_reader_get_unpacked(struct mr_dataset_reader *r, const struct mr_fetch_slice *s, const void *raw,
                           const struct unpacked_file **out, struct mr_error *err);
/* The whole stored sample: into dst if that is not NULL and has room, else wherever it is at hand. With the clock
 * running. */
int mr_reader_fetch(struct mr_dataset_reader *r, uint8_t *dst, size_t cap, const uint8_t **raw, struct mr_error *err);
/* The planned sample's fields: to the consumer, or (RAW) as one row. */
int mr_reader_read_fields(struct mr_dataset_reader *r, unsigned flags, const struct mr_field_consumer *to,
                          struct mr_error *err);
/* The first of the planned fields: what callers get that expect one value. */
int mr_reader_read_first(struct mr_dataset_reader *r, unsigned flags, void *dst, size_t cap, struct mr_sample *out,
                         struct mr_error *err);
int mr_reader_fetch_fields(struct mr_dataset_reader *r, uint8_t *dst, size_t cap, const uint8_t **raw,
                           struct mr_error *err);
/* Says where it was, after `rc`; returns it, or MR_E_CHANGED. */
int mr_reader_explain(struct mr_dataset_reader *r, uint64_t id, int rc, struct mr_error *err);
/* The value of a field is the file of a picture: its pixels (field_picture.c). */
int mr_reader_decode_picture(struct mr_dataset_reader *r, struct mr_sample_out *o, struct mr_error *err);
/* The stored bytes of slice k, one range behind the other, from the store. */
int mr_reader_stored_bytes(struct mr_dataset_reader *r, unsigned k, const uint8_t **raw, struct mr_error *err);
/* The same of a slice of one range, to `to`. */
int mr_reader_stored_bytes_to(struct mr_dataset_reader *r, unsigned k, uint8_t *to, struct mr_error *err);
/* Memory for n fields. */
int mr_reader_reserve_fields(struct mr_dataset_reader *r, unsigned n, struct mr_error *err);
void mr_reader_free_fields(struct mr_dataset_reader *r);
void mr_reader_name_dtype(enum mr_dtype t, char out[8]);

#endif
