/* The generator's journal: whatever lies in the file, reading it gives whole records or none, and never leaves the
 * buffer. Each input is tried as it is, and as the body of a record with a right checksum. */
#include "base/common.h"
#include "dataset/journal.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PATH "d/" MR_JOURNAL_FOLDER "/0-0.mrj"

static size_t frame(uint8_t *out, const uint8_t *body, size_t len)
{
    memset(out, 0, 16);
    memcpy(out, "MRJ1", 4);
    mr_store_le64(out + 8, len);
    memcpy(out + 16, body, len);
    mr_store_le64(out + 16 + len, XXH3_64bits(body, len));
    return len + 24;
}

static void read_all(struct mr_store *s)
{
    struct mr_journals *js = NULL;
    struct mr_error err;
    if (mr_journals_open(s, "d", 8, &js, &err) < 0 || !js)
        return;
    for (uint64_t f = 0; f < 8; f++) {
        struct mr_manifest_file file;
        uint64_t bytes;
        if (!mr_journals_has(js, f, &bytes) || mr_journals_get(js, f, &file, &err) < 0)
            continue;
        volatile uint64_t sink = 0;
        for (unsigned k = 0; k < MR_SC_COUNT; k++)
            if (file.column[k].count)
                sink ^= mr_column_get(&file.column[k], file.column[k].count - 1, 0);
        for (size_t i = 0; i < file.layout.len; i++)
            sink ^= ((const uint8_t *)file.layout.data)[i];
        (void)sink;
    }
    mr_journals_close(js);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct mr_store *s; /* kept: opening one costs more than all the rest */
    uint8_t *framed = malloc(size + 128);
    if (!s && (mr_store_open("memory", &s, NULL) < 0 || mr_store_mkdirs(s, "d/" MR_JOURNAL_FOLDER, NULL) < 0))
        abort();
    if (framed) {
        if (mr_store_write_file(s, PATH, data, size, NULL) >= 0)
            read_all(s);
        size_t n = frame(framed, (const uint8_t *)"{}", 2);
        n += frame(framed + n, data, size);
        if (mr_store_write_file(s, PATH, framed, n, NULL) >= 0)
            read_all(s);
    }
    free(framed);
    return 0;
}
