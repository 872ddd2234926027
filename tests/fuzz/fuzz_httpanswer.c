/* Heads and chunked bodies of HTTP on arbitrary bytes, whole and in pieces: the same result, and never more than there is. */
#include "s3/http_answer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void count(void *user, const char *name, size_t name_len, const char *value, size_t len)
{
    (void)name, (void)value;
    *(size_t *)user += name_len + len;
}

static size_t unchunk(const char *text, size_t n, size_t piece, bool *ended, bool *bad)
{
    struct mr_http_chunks c = {0};
    size_t got = 0;
    *ended = *bad = false;
    for (size_t at = 0; at < n && !*ended && !*bad;) {
        const char *body = NULL;
        size_t len = 0, most = n - at < piece ? n - at : piece;
        int64_t used = mr_http_chunks_take(&c, text + at, most, &body, &len, ended);
        if (used > (int64_t)most || (used >= 0 && len > (size_t)used) || (len && body + len > text + n))
            abort();
        *bad = used < 0;
        got += used < 0 ? 0 : len;
        at += used < 0 ? 0 : (size_t)used;
    }
    return got;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1); /* its own block: a read beyond it is seen */
    struct mr_http_head h;
    size_t seen = 0;
    bool ended[2], bad[2];
    if (!text)
        return 0;
    memcpy(text, data, size);
    int used = mr_http_head_parse(text, size, &h, count, &seen);
    if (used > (int)size || (used > 0 && (h.status < 100 || h.status > 999 || seen > size)))
        abort();
    size_t whole = unchunk(text, size, size + 1, &ended[0], &bad[0]),
           parts = unchunk(text, size, 1, &ended[1], &bad[1]);
    if (ended[0] != ended[1] || bad[0] != bad[1] || (!bad[0] && whole != parts))
        abort();
    free(text);
    return 0;
}
