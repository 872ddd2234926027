/* Masks and boxes that belong to a preprocessed picture: see <millrace/preprocess.h>. Everything follows from the
 * picture's plan: cut (from), resize, cut again (result, at its place), flip. The arithmetic is that of torchvision's
 * v2 functions and PyTorch's nearest interpolation, in their types, so that results are equal and not only near. */
#include "base/common.h"
#include "loader/preprocess_part.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- masks ---- */

void mr_preprocess_mask_shape(const struct mr_preprocess_params *p, struct mr_sample *s)
{
    const unsigned at = s->n_dims - 2;
    struct mr_preprocess_params geometry = *p;
    struct mr_sample picture = {.n_dims = 2, .dims = {s->dims[at], s->dims[at + 1]}};
    geometry.rgb = geometry.planar = false;
    mr_preprocess_shape(&geometry, &picture);
    s->dims[at] = picture.dims[0];
    s->dims[at + 1] = picture.dims[1];
}

/* The source pixel of pixel `to` out of n, of `from` ones. PyTorch's: with a scale in float. */
static uint32_t nearest(uint32_t to, uint32_t from, uint32_t n)
{
    if (from == n)
        return to;
    if (n == 2 * (uint64_t)from)
        return to / 2;
    float scale = (float)from / (float)n;
    return MR_MIN((uint32_t)floorf((float)to * scale), from - 1);
}

#define NOTHING UINT32_MAX

/* Which source pixel each pixel of the result is along one axis: `from` begins at `first`. */
static void map_axis(uint32_t *map, uint32_t n, uint32_t place, uint32_t cut, uint32_t cut_length, uint32_t first,
                     uint32_t from, uint32_t resized, bool flip)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = flip ? n - 1 - i : i;
        bool inside = at >= place && at - place < cut_length;
        map[i] = inside ? first + nearest(cut + at - place, from, resized) : NOTHING;
    }
}

#define COPY_ROW(type)                                                                                                 \
    for (uint32_t i = 0; i < n; i++) {                                                                                 \
        type v = 0;                                                                                                    \
        if (map[i] != NOTHING)                                                                                         \
            memcpy(&v, src + (size_t)map[i] * sizeof v, sizeof v);                                                     \
        memcpy(dst + (size_t)i * sizeof v, &v, sizeof v);                                                              \
    }

static void copy_row(uint8_t *dst, const uint8_t *src, const uint32_t *map, uint32_t n, unsigned element)
{
    switch (element) {
    case 1: COPY_ROW(uint8_t); break;
    case 2: COPY_ROW(uint16_t); break;
    case 4: COPY_ROW(uint32_t); break;
    default: COPY_ROW(uint64_t); break;
    }
}

static unsigned element_of(const struct mr_sample *s)
{
    return (unsigned)strtoul(s->dtype + 1, NULL, 10);
}

static int check_mask(const struct mr_sample *s, uint64_t id, struct mr_error *err)
{
    unsigned element = element_of(s);
    uint64_t pixels = s->n_dims == 3 ? s->dims[0] : 1;
    bool ok = (s->n_dims == 2 || s->n_dims == 3) && (element == 1 || element == 2 || element == 4 || element == 8);
    for (unsigned d = s->n_dims == 3; ok && d < s->n_dims; d++) {
        ok = s->dims[d] >= 1 && s->dims[d] <= MR_PREPROCESS_SIDE_MAX;
        pixels *= s->dims[d];
    }
    if (ok && pixels * element == s->bytes)
        return 0;
    return mr_error_plain(err, MR_E_USAGE, "sample %llu has no mask to preprocess: %u axes of '%s', %zu bytes",
                          (unsigned long long)id, s->n_dims, s->dtype, s->bytes);
}

int mr_preprocess_mask(struct mr_preprocess *x, uint64_t epoch, uint64_t id, const struct mr_sample *in, void *dst,
                       size_t cap, struct mr_sample *out, struct mr_error *err)
{
    struct mr_preprocess_plan plan;
    int rc = check_mask(in, id, err);
    if (rc)
        return rc;
    const unsigned axis = in->n_dims - 2, element = element_of(in);
    const uint64_t height = in->dims[axis], width = in->dims[axis + 1], planes = axis ? in->dims[0] : 1;
    if ((rc = mr_preprocess_plan(x, epoch, id, height, width, &plan, err)))
        return rc;
    struct mr_sample made = *in;
    made.dims[axis] = plan.place.height;
    made.dims[axis + 1] = plan.place.width;
    made.bytes = (size_t)(planes * plan.place.height * plan.place.width * element);
    out->bytes = made.bytes;
    if (made.bytes > cap)
        return mr_error_plain(err, MR_E_LIMIT, "the preprocessed mask of sample %llu has %zu bytes, a row %zu",
                              (unsigned long long)id, made.bytes, cap);
    uint32_t *ys = mr_preprocess_scratch(x, sizeof(*ys) * (plan.place.height + (size_t)plan.place.width));
    if (!ys)
        return mr_error_set(err, -ENOMEM, "cannot resize a mask");
    uint32_t *xs = ys + plan.place.height;
    map_axis(ys, plan.place.height, plan.place.top, plan.result.top, plan.result.height, plan.from.top,
             plan.from.height, plan.height, false);
    map_axis(xs, plan.place.width, plan.place.left, plan.result.left, plan.result.width, plan.from.left,
             plan.from.width, plan.width, plan.flip);
    const size_t row = (size_t)plan.place.width * element;
    uint8_t *to = dst;
    for (uint64_t p = 0; p < planes; p++)
        for (uint32_t y = 0; y < plan.place.height; y++, to += row) {
            const uint8_t *src = (const uint8_t *)in->data + (p * height + ys[y]) * width * element;
            if (ys[y] == NOTHING)
                memset(to, 0, row);
            else
                copy_row(to, src, xs, plan.place.width, element);
        }
    made.data = dst;
    *out = made;
    return 0;
}

/* ---- boxes ---- */

/* One coordinate's way: axis 0 is x, 1 is y. */
struct way {
    bool cuts, resizes, cuts_last, flips;
    int64_t first, length; /* of the cut */
    float ratio;
    int64_t shift, last; /* of the second cut */
};

static struct way way_of(const struct mr_preprocess_params *p, const struct mr_preprocess_plan *plan, bool is_y)
{
    const uint32_t from = is_y ? plan->from.height : plan->from.width, to = is_y ? plan->height : plan->width;
    const int64_t place = is_y ? plan->place.top : plan->place.left, cut = is_y ? plan->result.top : plan->result.left;
    return (struct way){.cuts = p->crop != MR_CROP_NONE,
                        .resizes = plan->from.height != plan->height || plan->from.width != plan->width,
                        .cuts_last = p->last_crop != MR_CROP_NONE,
                        .flips = plan->flip && !is_y,
                        .first = is_y ? plan->from.top : plan->from.left,
                        .length = from,
                        .ratio = (float)((double)to / (double)from),
                        .shift = cut - place,
                        .last = is_y ? plan->place.height : plan->place.width};
}

#define CLAMPED(v, most) ((v) < 0 ? 0 : (v) > (most) ? (most) : (v))

/* As PyTorch does it: subtraction and clamping in the boxes' type, the product in `product`. */
#define GO(name, type, product)                                                                                        \
    static type name(const struct way *w, type v)                                                                      \
    {                                                                                                                  \
        if (w->cuts) {                                                                                                 \
            v = v - (type)w->first;                                                                                    \
            v = CLAMPED(v, (type)w->length);                                                                           \
        }                                                                                                              \
        if (w->resizes)                                                                                                \
            v = (type)((product)v * (product)w->ratio);                                                                \
        if (w->cuts_last) {                                                                                            \
            v = v - (type)w->shift;                                                                                    \
            v = CLAMPED(v, (type)w->last);                                                                             \
        }                                                                                                              \
        return w->flips ? -(v - (type)w->last) : v;                                                                    \
    }

GO(go_float, float, float)
GO(go_double, double, double)
GO(go_int32, int32_t, float)
GO(go_int64, int64_t, float)

#define EACH(type, function)                                                                                           \
    for (size_t i = 0; i < n; i++) {                                                                                   \
        type v[4], out[4];                                                                                             \
        memcpy(v, p + i * sizeof v, sizeof v);                                                                         \
        for (unsigned k = 0; k < 4; k++)                                                                               \
            out[way[k % 2].flips ? 2 - k : k] = function(&way[k % 2], v[k]);                                           \
        memcpy(p + i * sizeof v, out, sizeof v);                                                                       \
    }

int mr_preprocess_boxes(const struct mr_preprocess *x, uint64_t epoch, uint64_t id, uint64_t height, uint64_t width,
                        struct mr_sample *boxes, void *data, struct mr_error *err)
{
    struct mr_preprocess_plan plan;
    uint64_t n = 1;
    for (unsigned d = 0; d + 1 < boxes->n_dims; d++)
        n *= boxes->dims[d];
    const unsigned element = element_of(boxes);
    const bool four = boxes->n_dims >= 1 && boxes->dims[boxes->n_dims - 1] == 4;
    const bool known = strcmp(boxes->dtype, "f4") == 0 || strcmp(boxes->dtype, "f8") == 0 ||
                       strcmp(boxes->dtype, "i4") == 0 || strcmp(boxes->dtype, "i8") == 0;
    if (!four || !known || boxes->bytes != n * 4 * element)
        return mr_error_plain(err, MR_E_USAGE,
                              "sample %llu has no boxes: %u axes of '%s', %zu bytes; want four floats or integers each",
                              (unsigned long long)id, boxes->n_dims, boxes->dtype, boxes->bytes);
    int rc = mr_preprocess_plan(x, epoch, id, height, width, &plan, err);
    if (rc)
        return rc;
    const struct mr_preprocess_params *params = mr_preprocess_params_of(x);
    const struct way way[2] = {way_of(params, &plan, false), way_of(params, &plan, true)};
    uint8_t *p = data;
    switch (boxes->dtype[0] == 'f' ? element : element + 1) {
    case 4: EACH(float, go_float); break;
    case 8: EACH(double, go_double); break;
    case 5: EACH(int32_t, go_int32); break;
    default: EACH(int64_t, go_int64); break;
    }
    boxes->data = data;
    return 0;
}
