/* Fields that are pictures inside of other formats: a member of a tar shard, a feature of a record, a cell of a column.
 * The format hands out the bytes of the picture's file; here they become pixels, JPEG and PNG told apart by their first
 * bytes. */
#include "dataset/reader_internal.h"
#include "format/image_file.h"

#include <errno.h>
#include <stdlib.h>

int mr_reader_decode_picture(struct mr_dataset_reader *r, struct mr_sample_out *o, struct mr_error *err)
{
    struct mr_layout layout;
    const struct mr_sample_ref ref = {.raw = {0, o->bytes}, .label = o->label};
    if (!r->pictures && !(r->pictures = mr_decoder_create()))
        return mr_error_set(err, -ENOMEM, "cannot make a decoder");
    int rc = mr_image_layout(&layout, err);
    if (rc < 0)
        return rc;
    struct mr_sample_out made = {.label = o->label, .choose_part = o->choose_part, .choose_user = o->choose_user};
    rc = mr_format_jpeg.decode(r->pictures, &layout, &ref, 0, o->data, o->bytes, &made, err);
    free(layout.data);
    if (rc >= 0)
        *o = made;
    return rc < 0 ? rc : 0;
}
