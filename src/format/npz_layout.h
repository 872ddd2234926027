/* Where and how a sample lies in an NPZ file; see format_npz.c for the ways to read.
 *
 * Layout: version u8 = 1, mode u8, descriptor bytes u8, strip u8 (DEFLATED: the member's first axis, of length 1, is
 * the sample axis and not part of the sample), local header bytes u32, .npy header bytes u32, member offset u64,
 * member's packed bytes u64 (both 0 where each sample has its own member), array description. */
#ifndef MR_FORMAT_NPZ_LAYOUT_H
#define MR_FORMAT_NPZ_LAYOUT_H

#include "format/npy_header.h"
#include "format/zip_read.h"

/* UNIT: as PACKED, but readers take the member alone, not the whole file: a field of several. */
enum mr_npz_mode { MR_NPZ_STORED, MR_NPZ_DEFLATED, MR_NPZ_PACKED, MR_NPZ_UNIT };

struct mr_npz_layout {
    enum mr_npz_mode mode;
    bool strip;
    struct mr_zip_place place;
    uint32_t npy_bytes;
    uint64_t member_offset, packed_bytes;
    struct mr_array_desc desc;
};

int mr_npz_layout_put(const struct mr_npz_layout *l, struct mr_layout *out, struct mr_error *err);
bool mr_npz_layout_equal(const struct mr_npz_layout *a, const struct mr_npz_layout *b);
/* MR_E_FORMAT: not a layout of ours. */
int mr_npz_layout_get(const struct mr_layout *layout, struct mr_npz_layout *out, struct mr_error *err);

/* Finds the samples of a file; `rows`: the first axis of its array counts samples. */
int mr_npz_scan(struct mr_store *store, const char *path, bool rows, mr_scan_fn *fn, void *user,
                struct mr_layout *layout, struct mr_error *err);
int mr_npz_scan_fields(struct mr_store *store, const char *path, unsigned flags, const struct mr_field_sink *sink,
                       struct mr_error *err);
extern const struct mr_field_ops mr_npz_field_ops; /* npz_fields.c */

#endif
