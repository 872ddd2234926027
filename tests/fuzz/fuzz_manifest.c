/* The manifest parser: any bytes either are refused or give a manifest whose every lookup stays inside them. The
 * header's and the sections' checksums are set right first, so that the fuzzer gets past them to the fields behind. */
#include "base/common.h"
#include "dataset/manifest.h"
#include "dataset/manifest_bytes.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fix_checksums(uint8_t *p, size_t size)
{
    if (size < MRM_HEADER_BYTES)
        return;
    uint32_t n = mr_load_le32(p + MRM_H_SECTIONS);
    if (n > MRM_MAX_SECTIONS || MRM_HEADER_BYTES + (size_t)n * MRM_ENTRY_BYTES > size)
        return;
    mr_store_le64(p + MRM_H_LENGTH, size);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *e = p + MRM_HEADER_BYTES + (size_t)i * MRM_ENTRY_BYTES;
        uint64_t at = mr_load_le64(e + MRM_E_OFFSET), bytes = mr_load_le64(e + MRM_E_BYTES);
        if (bytes && at <= size && bytes <= size - at)
            mr_store_le64(e + MRM_E_CHECK, XXH3_64bits(p + at, bytes));
    }
    uint8_t covered[MRM_H_CHECK + MRM_MAX_SECTIONS * MRM_ENTRY_BYTES];
    memcpy(covered, p, MRM_H_CHECK);
    memcpy(covered + MRM_H_CHECK, p + MRM_HEADER_BYTES, (size_t)n * MRM_ENTRY_BYTES);
    mr_store_le64(p + MRM_H_CHECK, XXH3_64bits(covered, MRM_H_CHECK + (size_t)n * MRM_ENTRY_BYTES));
}

static void use(const struct mr_manifest *m)
{
    const struct mr_manifest_info *i = mr_manifest_get_info(m);
    struct mr_manifest_pos p;
    struct mr_layout layout;
    struct mr_error err;
    char name[MR_NAME_MAX];
    uint64_t first, n, step = i->samples / 50 + 1;
    volatile uint8_t sink = 0;
    for (uint64_t id = 0, k = 0; id < i->samples && k < 60; id += step, k++) {
        if (mr_manifest_locate(m, id, &p, &err) < 0)
            continue;
        if (p.file >= i->files)
            abort();
    }
    step = i->files / 50 + 1;
    for (uint64_t f = 0, k = 0; f < i->files && k < 60; f += step, k++) {
        mr_manifest_file_samples(m, f, &first, &n);
        mr_manifest_file_bytes(m, f);
        mr_manifest_file_mtime_ns(m, f);
        mr_manifest_file_layout(m, f, &layout);
        for (size_t b = 0; b < layout.len; b++)
            sink ^= ((const uint8_t *)layout.data)[b];
        int len = mr_manifest_file_name(m, f, name, &err);
        if (len >= 0 && !mr_name_is_safe(name, (size_t)len))
            abort();
        if (len >= 0)
            mr_manifest_find_file(m, name);
    }
    mr_manifest_label_name(m, 0);
    (void)sink;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_manifest *m = NULL;
    struct mr_error err;
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    for (int fixed = 0; fixed < 2; fixed++) {
        if (fixed)
            fix_checksums(copy, size);
        if (mr_manifest_parse(copy, size, "fuzz", &m, &err) >= 0) {
            use(m);
            mr_manifest_close(m);
        }
    }
    free(copy);
    return 0;
}
