/* Rows that stay as stored, for a decoder on a device: see mr_loader_leave_stored. The last rows of a batch are read
 * straight into their places in the batch, where the decoder finds them; what it makes of them is the caller's. */
#include "loader/loader_internal.h"

#include <string.h>

#define TAIL 64u /* bytes in which the end of a whole JPEG file is looked for */

enum marker { SOI = 0xd8, EOI = 0xd9, APP14 = 0xee, SOF0 = 0xc0, SOF2 = 0xc2, DHT = 0xc4, JPG = 0xc8, DAC = 0xcc };

static bool is_frame(uint8_t marker)
{
    return marker >= SOF0 && marker <= 0xcf && marker != DHT && marker != JPG && marker != DAC;
}

/* Baseline, extended or progressive, 8 bits, grey or YCbCr: what decoders on devices make the same picture of. */
static bool is_common_frame(const uint8_t *segment, size_t len, uint8_t marker)
{
    if (marker > SOF2 || len < 8 || segment[2] != 8)
        return false;
    unsigned n = segment[7];
    if (len < 8 + 3 * (size_t)n)
        return false;
    return n == 1 || (n == 3 && !(segment[8] == 'R' && segment[11] == 'G' && segment[14] == 'B'));
}

/* A file that was cut off has no end; a decoder on a device may not mind, but a training does. */
static bool has_end(const uint8_t *b, size_t n)
{
    for (size_t i = n; i > n - MR_MIN(n - 1, TAIL); i--)
        if (b[i - 1] == EOI && b[i - 2] == 0xff)
            return true;
    return false;
}

static bool is_common_jpeg(const uint8_t *b, size_t n)
{
    if (n < 4 || b[0] != 0xff || b[1] != SOI || !has_end(b, n))
        return false;
    for (size_t at = 2; at + 4 <= n;) {
        const uint8_t marker = b[at + 1], *segment = b + at + 2;
        size_t len = (size_t)segment[0] << 8 | segment[1];
        if (b[at] != 0xff || marker == 0xff || marker < SOF0 || len < 2 || len > n - at - 2)
            return false;
        if (is_frame(marker))
            return is_common_frame(segment, len, marker);
        if (marker == APP14 && len >= 14 && memcmp(segment + 2, "Adobe", 5) == 0 && segment[13] != 1)
            return false; /* not YCbCr */
        at += 2 + len;
    }
    return false;
}

int mr_loader_leave_row(struct engine_thread *t, struct slot *s, uint32_t row, uint64_t id, struct mr_error *err)
{
    struct mr_loader *l = t->loader;
    if (MR_LIKELY(row + atomic_load_explicit(&l->stored_rows, memory_order_relaxed) < s->n))
        return 0;
    struct mr_sample made = {.n_dims = 3, .dims = {1, 1, 3}}, sample;
    made.bytes = mr_preprocess_bytes(&l->preprocess, 1, 1, 3);
    mr_preprocess_shape(&l->preprocess, &made);
    uint8_t *at = mr_loader_row(l, s, row, made.bytes, 0);
    if (!at || mr_dataset_read(t->reader, id, MR_DATASET_RAW, at, l->row_bytes, &sample, err) < 0)
        return 0; /* too long for the row, or what is wrong is said when it is decoded */
    if (!is_common_jpeg(at, sample.bytes))
        return 0;
    made.data = at;
    made.label = sample.label;
    int rc = mr_loader_finish_row(t, s, row, id, at, l->row_bytes, &made, err);
    if (rc < 0)
        return rc;
    s->stored[row] = sample.bytes;
    return 1;
}

int mr_loader_leave_stored(struct mr_loader *l, uint32_t rows, struct mr_error *err)
{
    const struct mr_preprocess_params *p = &l->preprocess;
    const char *why = NULL;
    if (l->n_fields)
        why = "samples have several fields";
    else if (l->queued)
        why = "samples are read through a queue";
    else if (!l->p.preprocess || !p->rgb || (!p->height && p->last_crop == MR_CROP_NONE))
        why = "samples are not pictures that are made equally large";
    else if (l->p.transform || l->p.flags & MR_LOADER_VERIFY_CONTENT)
        why = l->p.transform ? "there is a transform" : "content is checked";
    if (why && rows)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "rows cannot be left as stored: %s", why);
    atomic_store(&l->stored_rows, MR_MIN(rows, l->p.batch_size));
    return 0;
}
