/* What the JPEG and PNG tests share: writing one picture through a format into the memory store and getting its bytes.
 */
#ifndef TEST_IMAGE_TEST_H
#define TEST_IMAGE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/common.h"
#include "base/content.h"
#include "base/rng.h"
#include "format/image_file.h"
#include "format/image_synth.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED 20240607u

static const struct mr_content image_content = {.seed = SEED};

struct image_file {
    uint8_t *data;
    size_t len;
    struct mr_layout layout;
    struct mr_sample_ref ref;
};

static inline void image_file_done(struct image_file *f)
{
    free(f->data);
    free(f->layout.data);
    *f = (struct image_file){0};
}

static inline struct mr_sample_info image_info(uint64_t id, uint64_t h, uint64_t w, uint64_t c)
{
    return (struct mr_sample_info){
        .id = id, .dtype = MR_U8, .dims = {.n = 3, .dim = {h, w, c}}, .bytes = h * w * c, .label = (int64_t)id};
}

/* Writes the picture in pieces of `piece` bytes; the result must be what the store then holds. */
static inline struct image_file image_write(const struct mr_format_ops *f, const struct mr_writer_spec *spec,
                                            const struct mr_sample_info *info, size_t piece)
{
    struct mr_error err = {0};
    struct mr_store *s;
    struct mr_writer *w;
    struct image_file out = {0};
    void *data;
    uint64_t file_bytes;
    assert_int_equal(mr_store_open("memory", &s, &err), 0);
    assert_int_equal(f->writer_open(s, "image", spec, &w, &err), 0);
    assert_int_equal(f->sample_begin(w, info, &err), 0);
    uint8_t *pixels = malloc(piece);
    assert_non_null(pixels);
    for (uint64_t at = 0; at < info->bytes; at += piece) {
        size_t n = (size_t)MR_MIN((uint64_t)piece, info->bytes - at);
        f->synth(spec, &image_content, info, at, pixels, n);
        assert_int_equal(f->sample_data(w, pixels, n, &err), 0);
    }
    free(pixels);
    assert_int_equal(f->sample_end(w, &out.ref, &err), 0);
    assert_int_equal(f->writer_close(w, &out.layout, &file_bytes, &err), 0);
    assert_int_equal(mr_store_read_file(s, "image", UINT64_MAX, &data, &out.len, &err), 0);
    out.data = data;
    assert_int_equal(out.len, file_bytes);
    assert_int_equal(out.ref.raw.length, file_bytes);
    mr_store_close(s);
    return out;
}

/* Decodes an exact-size copy, so that ASan sees a read beyond the end. */
static inline int image_decode(const struct mr_format_ops *f, struct mr_decoder *d, const void *data, size_t len,
                               struct mr_sample_out *out, struct mr_error *err)
{
    uint8_t version = 1;
    struct mr_layout layout = {.data = &version, .len = 1};
    struct mr_sample_ref ref = {.raw = {0, len}, .label = MR_LABEL_NONE};
    void *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, data, len);
    int rc = f->decode(d, &layout, &ref, MR_READ_VERIFY, copy, len, out, err);
    free(copy);
    return rc;
}

#endif
