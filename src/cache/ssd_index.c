/* The bytes of an index file: see ssd_index.h. */
#include "cache/ssd_index.h"

#include "base/common.h"

#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define MAGIC "\x89MRI\r\n\x1a\n"

enum { H_VERSION = 8, H_BYTES = 12, H_DATA_SET = 16, H_SALT = 32, H_NUMBER = 40, H_CHECK = 56 };
enum { R_ID = 0, R_BLOCK = 8, R_LENGTH = 12, R_HASH = 16, R_CHECK = 24 };

void mr_ssd_header_write(const struct mr_ssd_header *h, uint8_t out[MR_SSD_HEADER])
{
    memset(out, 0, MR_SSD_HEADER);
    memcpy(out, MAGIC, 8);
    mr_store_le32(out + H_VERSION, MR_SSD_VERSION);
    mr_store_le32(out + H_BYTES, MR_SSD_HEADER);
    memcpy(out + H_DATA_SET, h->data_set, sizeof h->data_set);
    mr_store_le64(out + H_SALT, h->salt);
    mr_store_le32(out + H_NUMBER, h->number);
    mr_store_le64(out + H_CHECK, XXH3_64bits(out, H_CHECK));
}

bool mr_ssd_header_read(const uint8_t *bytes, size_t n, struct mr_ssd_header *out, uint32_t *version)
{
    *version = 0;
    if (n < MR_SSD_HEADER || memcmp(bytes, MAGIC, 8) != 0)
        return false;
    if (mr_load_le64(bytes + H_CHECK) != XXH3_64bits(bytes, H_CHECK))
        return false;
    *version = mr_load_le32(bytes + H_VERSION);
    if (*version != MR_SSD_VERSION || mr_load_le32(bytes + H_BYTES) != MR_SSD_HEADER)
        return false;
    memcpy(out->data_set, bytes + H_DATA_SET, sizeof out->data_set);
    out->salt = mr_load_le64(bytes + H_SALT);
    out->number = mr_load_le32(bytes + H_NUMBER);
    return true;
}

void mr_ssd_record_write(const struct mr_ssd_record *r, uint64_t salt, uint8_t out[MR_SSD_RECORD])
{
    mr_store_le64(out + R_ID, r->id);
    mr_store_le32(out + R_BLOCK, r->block);
    mr_store_le32(out + R_LENGTH, r->length);
    mr_store_le64(out + R_HASH, r->hash);
    mr_store_le64(out + R_CHECK, XXH3_64bits_withSeed(out, R_CHECK, salt));
}

bool mr_ssd_record_read(const uint8_t bytes[MR_SSD_RECORD], uint64_t salt, struct mr_ssd_record *out)
{
    if (mr_load_le64(bytes + R_CHECK) != XXH3_64bits_withSeed(bytes, R_CHECK, salt))
        return false;
    *out = (struct mr_ssd_record){.id = mr_load_le64(bytes + R_ID),
                                  .block = mr_load_le32(bytes + R_BLOCK),
                                  .length = mr_load_le32(bytes + R_LENGTH),
                                  .hash = mr_load_le64(bytes + R_HASH)};
    return true;
}
