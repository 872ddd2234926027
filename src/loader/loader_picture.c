/* Pictures inside of other formats: a sample of a tar shard, a record or a blob that is a whole JPEG or PNG file is
 * decoded where it is to be preprocessed, with the part that preprocessing needs and no more. */
#include "loader/loader_internal.h"
#include "format/image_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_picture_file(const struct mr_sample *s)
{
    static const char jpeg[] = "\xff\xd8\xff", png[] = "\x89PNG\r\n\x1a\n";
    return s->n_dims == 1 && strcmp(s->dtype, "u1") == 0 && s->bytes > sizeof png &&
           (memcmp(s->data, jpeg, sizeof jpeg - 1) == 0 || memcmp(s->data, png, sizeof png - 1) == 0);
}

int mr_loader_decode_picture(struct engine_thread *t, uint64_t epoch, uint64_t id, struct mr_sample *sample,
                             struct mr_part *part, struct mr_error *err)
{
    if (MR_LIKELY(!is_picture_file(sample)))
        return 0;
    if (!t->pictures && !(t->pictures = mr_decoder_create()))
        return mr_error_set(err, -ENOMEM, "cannot make a decoder");
    struct part_of of = {.thread = t, .epoch = epoch, .id = id};
    struct mr_sample_out out = {.label = sample->label,
                                .choose_part = mr_loader_decodes_parts(t->loader) ? mr_loader_choose_part : NULL,
                                .choose_user = &of};
    struct mr_layout layout;
    struct mr_sample_ref ref = {.raw = {0, sample->bytes}, .label = sample->label};
    int rc = mr_image_layout(&layout, err);
    if (rc)
        return rc;
    rc = mr_format_jpeg.decode(t->pictures, &layout, &ref, 0, sample->data, sample->bytes, &out, err);
    free(layout.data);
    if (rc)
        return rc;
    *sample = (struct mr_sample){.data = out.data, .bytes = out.bytes, .label = sample->label, .n_dims = out.dims.n};
    memcpy(sample->dtype, out.dtype == MR_U8 ? "u1" : "u2", 3);
    for (unsigned d = 0; d < out.dims.n; d++)
        sample->dims[d] = out.dims.dim[d];
    *part = out.part;
    return 0;
}
