/* Answers of object storage and AWS's profile files on arbitrary bytes: listings, uploads, errors, times, sections. */
#include "s3/s3_credentials.h"
#include "s3/s3_xml.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int count(void *user, const struct mr_s3_entry *e)
{
    if (!e->key[0] || strlen(e->key) > 4000 || strlen(e->etag) > 4000)
        abort();
    ++*(uint64_t *)user;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char token[1024], id[1200], text[300], *file = malloc(size + 1);
    uint64_t n = 0;
    if (!file)
        return 0;
    memcpy(file, data, size);
    file[size] = '\0';
    mr_s3_xml_listing((const char *)data, size, count, &n, token, sizeof token);
    mr_s3_xml_uploads((const char *)data, size, count, &n, token, sizeof token, id, sizeof id);
    if (n > size)
        abort(); /* more entries than bytes */
    mr_s3_xml_find((const char *)data, size, "Code", text, sizeof text);
    mr_s3_parse_time(file);
    mr_s3_ini_value(file, "default", "region", text, sizeof text);
    mr_s3_url_decode(file);
    free(file);
    return 0;
}
