/* Parts of samples in tar shards: see tar_parts.h. */
#include "format/tar_parts.h"
#include "format/json_push.h"

#include <string.h>
#include <strings.h>

#define LABEL_MAX 4096u /* .cls and .json parts that are looked into */

static const char *const payload_extensions[] = {"jpg", "jpeg", "png", "webp", "ppm", "pgm", "bmp",
                                                 "tif", "tiff", "npy", "npz",  "pth", "pt",  "bin",
                                                 "raw", "flac", "wav", "mp3",  "mp4", "avi"};
static const char *const side_extensions[] = {"cls", "json",       "txt",  "index", "inx",
                                              "id",  "transcript", "text", "yaml",  "xml"};

static unsigned find_extension(const char *ext, const char *const *list, unsigned n)
{
    const char *last = strrchr(ext, '.');
    last = last ? last + 1 : ext;
    for (unsigned i = 0; i < n; i++)
        if (strcasecmp(last, list[i]) == 0)
            return i;
    return n;
}

unsigned mr_tar_payload_rank(const char *ext)
{
    const unsigned known = MR_ARRAY_LEN(payload_extensions), side = MR_ARRAY_LEN(side_extensions);
    unsigned r = find_extension(ext, payload_extensions, known);
    if (r < known)
        return r;
    r = find_extension(ext, side_extensions, side);
    return r == side ? known : known + 1 + r;
}

struct json_label {
    bool in_label;
    int64_t label;
};

static int json_label_token(void *user, const struct mr_json_token *t, struct mr_error *err)
{
    struct json_label *l = user;
    (void)err;
    if (t->depth != 1)
        return 0;
    if (t->event == MR_PUSH_KEY) {
        l->in_label = t->len == 5 && memcmp(t->text, "label", 5) == 0;
    } else {
        int64_t v;
        if (l->in_label && t->event == MR_PUSH_NUMBER && mr_number_to_int64(t->number, &v))
            l->label = v;
        l->in_label = false;
    }
    return 0;
}

int mr_tar_read_label(struct mr_stream_in *in, const struct mr_extent *data, bool json, int64_t *out,
                      struct mr_error *err)
{
    const uint8_t *p;
    struct json_label l = {.label = MR_LABEL_NONE};
    *out = MR_LABEL_NONE;
    if (data->length == 0 || data->length > LABEL_MAX)
        return 0;
    size_t n = (size_t)data->length;
    int rc = mr_stream_in_get(in, data->offset, n, &p, err);
    if (rc < 0)
        return rc;
    if (json) {
        struct mr_json j;
        mr_json_init(&j, false, 0, json_label_token, &l);
        if (mr_json_feed(&j, p, n, NULL) >= 0 && mr_json_end(&j, NULL) >= 0)
            *out = l.label;
        return 0;
    }
    struct mr_number num;
    while (n && (p[n - 1] == '\n' || p[n - 1] == '\r' || p[n - 1] == ' '))
        n--;
    if (n && mr_number_lex((const char *)p, (const char *)p + n, false, &num) == n &&
        mr_number_to_int64(&num, &l.label))
        *out = l.label;
    return 0;
}
