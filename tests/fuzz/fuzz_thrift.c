/* Thrift's compact protocol: footers, page headers and structs that are skipped. */
#include "format/parquet_meta.h"
#include "format/parquet_thrift.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_thrift t = {.at = data, .end = data + size};
    struct mr_thrift_field f = {0};
    struct mr_pq_file file;
    struct mr_pq_page page;
    struct mr_error err;
    while (mr_thrift_next(&t, &f))
        mr_thrift_skip(&t, f.type);
    if (t.at > t.end)
        abort();
    if (mr_pq_file_parse(data, size, 1 << 20, &file, &err) == 0)
        mr_pq_file_done(&file);
    if (mr_pq_page_parse(data, size, size, &page, &err) == 0 && page.header_bytes + (size_t)page.bytes > size)
        abort();
    return 0;
}
