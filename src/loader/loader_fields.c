/* Samples of several fields: see loader_fields.h. The data set's reader decodes one field after the other and asks where
 * each goes; a value of known size is decoded, or even read, straight into its row.
 *
 * Hot path (mr_loader_read_fields): no malloc while values fit their region, no lock. */
#include "loader/loader_fields.h"
#include "loader/loader_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD_ALIGN 64u
#define PROBES 4u /* samples that are decoded to see how large values of unknown size become */

/* ---- which fields ---- */

static bool has_use(const struct mr_loader *l, enum mr_field_use use)
{
    for (unsigned k = 0; k < l->n_fields; k++)
        if (l->field[k].use == use)
            return true;
    return false;
}

static int check_uses(struct mr_loader *l, struct mr_error *err)
{
    for (unsigned k = 0; k < l->n_fields; k++) {
        struct loader_field *f = &l->field[k];
        bool packs = l->p.ragged == MR_RAGGED_PACK && f->field->variable != MR_FIELD_FIXED;
        if (packs && f->field->variable != 0)
            return mr_error_plain(
                err, MR_E_UNSUPPORTED,
                "values of field '%s' do not differ in the first axis alone, so they cannot be packed", f->field->name);
        if (f->use > MR_USE_BOXES)
            return mr_error_plain(err, MR_E_USAGE, "field '%s' has no use %d", f->field->name, (int)f->use);
        if (!l->p.preprocess && f->use > MR_USE_IMAGE)
            f->use = MR_USE_VALUE;
        if (f->use == MR_USE_BOXES && !has_use(l, MR_USE_IMAGE)) {
            mr_error_plain(err, MR_E_USAGE, "boxes of field '%s' follow their picture, which is not among the fields",
                           f->field->name);
            return mr_error_hint(err, "ask for the picture, too"), MR_E_USAGE;
        }
    }
    return 0;
}

static bool is_picture(const struct mr_field *f)
{
    return f->storage == MR_FIELD_JPEG || f->storage == MR_FIELD_PNG;
}

static bool looks_like_picture(const struct mr_field *f)
{
    bool shaped = f->dims.n == 2 || (f->dims.n == 3 && f->dims.dim[2] <= MR_PREPROCESS_CHANNELS);
    return is_picture(f) || (f->dtype == MR_U8 && shaped);
}

static bool is_mask(const struct mr_field *f)
{
    return f->role == MR_FIELD_TARGET &&
           (is_picture(f) || (f->dims.n == 2 && (f->dtype <= MR_I64 || f->dtype == MR_BOOL)));
}

static bool is_boxes(const struct mr_field *f)
{
    static const char *const names[] = {"boxes", "bboxes", "bbox"};
    bool named = false;
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++)
        named = named || strcmp(f->name, names[i]) == 0;
    return named && f->variable != MR_FIELD_ANY_SHAPE && f->dims.n == 2 && f->dims.dim[1] == 4;
}

/* AUTO: the first picture among the inputs; with it label images, and arrays that are named boxes. */
static void choose_uses(struct mr_loader *l)
{
    bool has_image = has_use(l, MR_USE_IMAGE);
    for (unsigned k = 0; k < l->n_fields; k++) {
        struct loader_field *f = &l->field[k];
        bool is_image =
            l->p.preprocess && !has_image && f->field->role == MR_FIELD_INPUT && looks_like_picture(f->field);
        if (f->use == MR_USE_AUTO)
            f->use = is_image ? MR_USE_IMAGE : MR_USE_VALUE;
        has_image = has_image || is_image;
    }
    for (unsigned k = 0; has_image && k < l->n_fields; k++) {
        struct loader_field *f = &l->field[k];
        if (!f->use_given && f->use == MR_USE_VALUE)
            f->use = is_mask(f->field) ? MR_USE_MASK : is_boxes(f->field) ? MR_USE_BOXES : MR_USE_VALUE;
    }
}

int mr_loader_select_fields(struct mr_loader *l, struct mr_error *err)
{
    const unsigned *number;
    int rc = mr_dataset_select(l->dataset, l->p.fields, l->p.n_fields, err);
    if (rc)
        return rc;
    unsigned n = mr_dataset_selected(l->dataset, &number);
    bool uses_fit = !l->p.uses || n == l->p.n_fields;
    l->field_name = calloc(n, sizeof(*l->field_name));
    l->field = calloc(n, sizeof(*l->field));
    if (!l->field_name || !l->field)
        return mr_error_set(err, -ENOMEM, "cannot load %u fields", n);
    if (!uses_fit)
        return mr_error_plain(err, MR_E_USAGE, "uses go with fields that are named one by one");
    for (unsigned k = 0; k < n; k++) {
        l->field[k].field = mr_dataset_field(l->dataset, number[k]);
        l->field[k].use = l->p.uses ? l->p.uses[k] : MR_USE_AUTO;
        l->field[k].use_given = l->field[k].use != MR_USE_AUTO;
        l->field_name[k] = l->field[k].field->name;
        assert(l->main_field <= k);
        if (l->field[k].field->role == MR_FIELD_INPUT && l->field[l->main_field].field->role != MR_FIELD_INPUT)
            l->main_field = k;
    }
    l->p.fields = l->field_name; /* the caller's are its own again */
    l->p.n_fields = n;
    l->p.uses = NULL;
    if (l->p.flags & MR_LOADER_RAW) /* one row of stored bytes: the data set's selection is all it takes */
        return 0;
    l->n_fields = n;
    choose_uses(l);
    return check_uses(l, err);
}

/* ---- where they lie ---- */

static struct mr_shape shape_of_field(const struct mr_field *f)
{
    struct mr_shape s = {.n_dims = (int)f->dims.n};
    snprintf(s.dtype, sizeof s.dtype, "%s", mr_dtype_numpy(f->dtype));
    for (unsigned d = 0; d < f->dims.n; d++)
        s.dims[d] = f->dims.dim[d];
    return s;
}

uint64_t mr_loader_shape_bytes(const struct mr_shape *s)
{
    uint64_t bytes = strtoull(s->dtype + 1, NULL, 10);
    for (int d = 0; d < s->n_dims; d++)
        bytes *= s->dims[d]; /* at most a sample's limit: checked by scan */
    return bytes;
}

static struct mr_shape shape_of_sample(const struct mr_sample *x)
{
    struct mr_shape s = {.n_dims = (int)x->n_dims};
    memcpy(s.dtype, x->dtype, sizeof s.dtype);
    for (unsigned d = 0; d < x->n_dims; d++)
        s.dims[d] = x->dims[d];
    return s;
}

/* What preprocessing makes, where that is the same for all; false: sizes differ. */
static bool preprocessed_shape(const struct mr_loader *l, const struct mr_field *f, struct mr_shape *out)
{
    const struct mr_preprocess_params *p = &l->preprocess;
    bool fixed_size = p->height || p->last_crop != MR_CROP_NONE,
         known = f->variable == MR_FIELD_FIXED && f->dims.n >= 2;
    if (!known && !(p->rgb && fixed_size))
        return false;
    struct mr_sample s = {.n_dims = 3, .dims = {1, 1, 3}};
    for (unsigned d = 0; known && d < f->dims.n; d++)
        s.dims[d] = f->dims.dim[d];
    s.n_dims = known ? f->dims.n : 3;
    mr_preprocess_shape(p, &s);
    *out = shape_of_sample(&s);
    return true;
}

/* The same of a mask; a picture's one channel is no axis of it. */
static bool mask_shape(const struct mr_loader *l, const struct mr_field *f, struct mr_shape *out)
{
    const struct mr_preprocess_params *p = &l->preprocess;
    bool fixed_size = p->height || p->last_crop != MR_CROP_NONE, picture = is_picture(f);
    bool known = f->variable == MR_FIELD_FIXED && (f->dims.n == 2 || f->dims.n == 3);
    if (picture ? !fixed_size : !known)
        return false;
    struct mr_sample s = {.n_dims = 2, .dims = {1, 1}};
    for (unsigned d = 0; !picture && d < f->dims.n; d++)
        s.dims[d] = f->dims.dim[d];
    s.n_dims = picture ? 2 : f->dims.n;
    memcpy(s.dtype, out->dtype, sizeof s.dtype);
    mr_preprocess_mask_shape(p, &s);
    *out = shape_of_sample(&s);
    return true;
}

/* The largest of a few values of a field whose size is not in the manifest. */
static int probe(struct mr_loader *l, uint64_t *largest, struct mr_error *err)
{
    struct mr_sample *s = calloc(l->n_fields, sizeof(*s));
    int rc = s ? 0 : mr_error_set(err, -ENOMEM, "cannot look at %u fields", l->n_fields);
    for (unsigned i = 0; i < PROBES && !rc; i++) {
        struct mr_error why;
        if (mr_dataset_read_fields(l->threads[0].reader, l->info.samples * i / PROBES, 0, s, l->n_fields, &why) < 0)
            continue; /* its own batch says what is wrong */
        for (unsigned k = 0; k < l->n_fields; k++)
            largest[k] = MR_MAX(largest[k], s[k].bytes);
    }
    free(s);
    return rc;
}

static int choose_room(struct mr_loader *l, unsigned k, uint64_t largest, struct mr_error *err)
{
    const unsigned *number;
    struct loader_field *f = &l->field[k];
    mr_dataset_selected(l->dataset, &number);
    const struct mr_schema_field *x = &mr_manifest_schema(mr_dataset_manifest(l->dataset))->field[number[k]];
    uint64_t n = l->p.batch_size, align = l->p.flags & MR_LOADER_DENSE ? 1 : FIELD_ALIGN;
    bool too_large = false;
    if (f->fixed) {
        f->stride = MR_ALIGN_UP(MR_MAX(mr_loader_shape_bytes(&f->shape), 1u), align);
        too_large = __builtin_mul_overflow(f->stride, n, &f->bytes);
    } else { /* room for an ordinary batch and one long value; more goes into buffers of its own */
        uint64_t all = mr_manifest_get_info(mr_dataset_manifest(l->dataset))->all_samples;
        uint64_t mean = MR_MAX(x->sum_bytes / MR_MAX(all, 1u), largest) + FIELD_ALIGN;
        too_large = __builtin_mul_overflow(mean + mean / 8, n, &f->bytes);
        f->bytes += MR_MAX(x->max_bytes, largest);
        f->joined_bytes = l->p.ragged == MR_RAGGED_LIST ? 0 : f->bytes;
    }
    return too_large ? mr_error_plain(err, MR_E_CONFIG, "batches of %u samples are too large", l->p.batch_size) : 0;
}

int mr_loader_place_fields(struct mr_loader *l, uint64_t *slab_bytes, struct mr_error *err)
{
    uint64_t *largest = calloc(l->n_fields, sizeof(*largest)), at = 0;
    bool probes = false;
    for (unsigned k = 0; k < l->n_fields; k++) {
        struct loader_field *f = &l->field[k];
        f->shape = shape_of_field(f->field);
        f->fixed = f->use == MR_USE_IMAGE  ? preprocessed_shape(l, f->field, &f->shape)
                   : f->use == MR_USE_MASK ? mask_shape(l, f->field, &f->shape)
                                           : f->field->variable == MR_FIELD_FIXED && !is_picture(f->field);
        probes = probes || !f->fixed;
    }
    int rc = largest ? 0 : mr_error_set(err, -ENOMEM, "cannot load %u fields", l->n_fields);
    if (!rc && probes)
        rc = probe(l, largest, err);
    for (unsigned k = 0; k < l->n_fields && !rc; k++) {
        struct loader_field *f = &l->field[k];
        rc = choose_room(l, k, largest[k], err);
        f->at = at;
        f->joined_at = MR_ALIGN_UP(at + f->bytes, (uint64_t)FIELD_ALIGN);
        at = MR_ALIGN_UP(f->joined_at + f->joined_bytes, (uint64_t)FIELD_ALIGN);
    }
    free(largest);
    l->row_align = FIELD_ALIGN;
    l->row_bytes = l->field[l->main_field].stride;
    mr_loader_choose_columns(l);
    *slab_bytes = MR_ALIGN_UP(MR_MAX(at, 1u), (uint64_t)4096);
    return rc;
}

int mr_loader_alloc_fields(struct mr_loader *l, struct slot *s)
{
    uint32_t n = l->p.batch_size;
    if (!l->n_fields)
        return 0;
    s->field = calloc(l->n_fields, sizeof(*s->field));
    s->field_out = calloc(l->n_fields, sizeof(*s->field_out));
    bool there = s->field && s->field_out;
    for (unsigned k = 0; there && k < l->n_fields; k++) {
        struct field_slot *f = &s->field[k];
        f->rows = l->columns ? NULL : calloc(n, sizeof(*f->rows)); /* columns: of the slab's table */
        f->bytes = calloc(n, sizeof(*f->bytes));
        f->shapes = calloc(n, sizeof(*f->shapes));
        f->overflow = calloc(n, sizeof(*f->overflow));
        f->offsets = calloc((size_t)n + 1, sizeof(*f->offsets));
        f->lengths = calloc((size_t)n * MR_SAMPLE_DIMS_MAX, sizeof(*f->lengths));
        there = (f->rows || l->columns) && f->bytes && f->shapes && f->overflow && f->offsets && f->lengths;
        s->field_out[k] = &f->out;
    }
    return there ? 0 : -ENOMEM;
}

static void forget_overflow(struct mr_loader *l, struct field_slot *f)
{
    for (uint32_t i = 0; f->overflow && i < l->p.batch_size; i++) {
        free(f->overflow[i]);
        f->overflow[i] = NULL;
    }
}

void mr_loader_free_fields(struct mr_loader *l, struct slot *s)
{
    for (unsigned k = 0; s->field && k < l->n_fields; k++) {
        struct field_slot *f = &s->field[k];
        forget_overflow(l, f);
        if (!l->columns)
            free(f->rows);
        free(f->bytes);
        free(f->shapes);
        free(f->overflow);
        free(f->offsets);
        free(f->lengths);
        free(f->joined);
    }
    free(s->field);
    free(s->field_out);
}

void mr_loader_prepare_fields(struct mr_loader *l, struct slot *s)
{
    for (unsigned k = 0; k < l->n_fields; k++) {
        struct field_slot *f = &s->field[k];
        if (!l->field[k].fixed)
            forget_overflow(l, f);
        atomic_store(&f->used, 0);
    }
    atomic_store(&s->to_join, s->n);
    if (l->columns)
        mr_loader_prepare_columns(l, s);
    else
        memset(s->bytes, 0, s->n * sizeof(*s->bytes));
}

/* ---- reading a sample ---- */

struct reading {
    struct engine_thread *t;
    struct slot *s;
    uint32_t row;
    uint64_t id;
    struct part_of part;    /* of the picture */
    bool has_picture;       /* it was decoded: */
    uint64_t height, width; /* all of it */
};

static void *place_row(struct mr_loader *l, struct slot *s, unsigned k, uint32_t row, uint64_t bytes)
{
    const struct loader_field *x = &l->field[k];
    struct field_slot *f = &s->field[k];
    if (x->fixed && bytes <= x->stride)
        return s->slab + x->at + row * x->stride;
    uint64_t room = MR_ALIGN_UP(MR_MAX(bytes, 1u), (uint64_t)FIELD_ALIGN);
    uint64_t at = x->fixed ? x->bytes : atomic_fetch_add(&f->used, room);
    if (at + room <= x->bytes)
        return s->slab + x->at + at;
    free(f->overflow[row]);
    f->overflow[row] = aligned_alloc(FIELD_ALIGN, room);
    return f->overflow[row];
}

static void *room(void *user, unsigned k, uint64_t bytes, struct mr_error *err)
{
    const struct reading *g = user;
    struct mr_loader *l = g->t->loader;
    (void)err; /* `value` says that there was no memory */
    return l->field[k].use >= MR_USE_IMAGE ? NULL : place_row(l, g->s, k, g->row, bytes);
}

static mr_choose_part_fn *choose(void *user, unsigned k, void **choose_user)
{
    struct reading *g = user;
    *choose_user = &g->part;
    bool part = g->t->loader->field[k].use == MR_USE_IMAGE && mr_loader_decodes_parts(g->t->loader);
    return part ? mr_loader_choose_part : NULL;
}

/* The picture's row. */
static int preprocess(struct reading *g, unsigned k, struct mr_sample *s, const struct mr_part *part,
                      struct mr_error *err)
{
    struct engine_thread *t = g->t;
    struct mr_loader *l = t->loader;
    struct mr_part opened = {0};
    uint64_t epoch = g->s->batch.epoch;
    int rc = mr_loader_decode_picture(t, epoch, g->id, s, &opened, err);
    if (rc)
        return rc;
    struct mr_sample made = *s;
    part = opened.full_height ? &opened : part;
    if (part) {
        made.dims[0] = part->full_height;
        made.dims[1] = part->full_width;
    }
    g->has_picture = true;
    g->height = made.dims[0];
    g->width = made.dims[1];
    uint64_t start = mr_now_ns();
    bool shaped = s->n_dims == 2 || s->n_dims == 3; /* else run says what is wrong */
    uint64_t need =
        shaped ? mr_preprocess_bytes(&l->preprocess, made.dims[0], made.dims[1], s->n_dims == 3 ? s->dims[2] : 1) : 0;
    void *at = place_row(l, g->s, k, g->row, need);
    if (!at)
        return mr_loader_no_row(l, g->id, need, err);
    rc = mr_preprocess_run_part(t->preprocess, epoch, g->id, s, part, at, need, &made.bytes, err);
    uint64_t end = mr_now_ns();
    mr_loader_note_transform(t, start, end);
    atomic_fetch_add_explicit(&t->field[k].transform_ns, end - start, memory_order_relaxed);
    if (rc < 0)
        return rc;
    mr_preprocess_shape(&l->preprocess, &made);
    made.data = at;
    *s = made;
    return 0;
}

/* The mask's row, cut as its picture. */
static int mask(struct reading *g, unsigned k, struct mr_sample *s, struct mr_error *err)
{
    struct mr_loader *l = g->t->loader;
    struct mr_sample in = *s, made = {0};
    if (is_picture(l->field[k].field) && in.n_dims == 3) { /* grey: its one channel is no axis of a mask */
        if (in.dims[2] != 1)
            return mr_error_plain(err, MR_E_FORMAT, "a mask has one channel, this picture %llu",
                                  (unsigned long long)in.dims[2]);
        in.n_dims = 2;
    }
    const unsigned axis = in.n_dims >= 2 ? in.n_dims - 2 : 0;
    if (g->has_picture && in.n_dims >= 2 && (in.dims[axis] != g->height || in.dims[axis + 1] != g->width))
        return mr_error_plain(err, MR_E_FORMAT, "a mask of %llu x %llu pixels for a picture of %llu x %llu",
                              (unsigned long long)in.dims[axis], (unsigned long long)in.dims[axis + 1],
                              (unsigned long long)g->height, (unsigned long long)g->width);
    int rc = mr_preprocess_mask(g->t->preprocess, g->s->batch.epoch, g->id, &in, NULL, 0, &made, err);
    if (rc != MR_E_LIMIT) /* it says how much room is needed */
        return rc < 0 ? rc : MR_E_INTERNAL;
    void *at = place_row(l, g->s, k, g->row, made.bytes);
    if (!at)
        return mr_loader_no_row(l, g->id, made.bytes, err);
    rc = mr_preprocess_mask(g->t->preprocess, g->s->batch.epoch, g->id, &in, at, made.bytes, &made, err);
    *s = rc ? *s : made;
    return rc;
}

static int boxes(struct reading *g, unsigned k, struct mr_sample *s, struct mr_error *err)
{
    void *at = place_row(g->t->loader, g->s, k, g->row, s->bytes);
    if (!at)
        return mr_loader_no_row(g->t->loader, g->id, s->bytes, err);
    if (s->bytes)
        memcpy(at, s->data, s->bytes);
    return mr_preprocess_boxes(g->t->preprocess, g->s->batch.epoch, g->id, g->height, g->width, s, at, err);
}

/* What belongs to the picture. */
static int join_picture(struct reading *g, unsigned k, struct mr_sample *s, struct mr_error *err)
{
    uint64_t start = mr_now_ns();
    int rc = g->t->loader->field[k].use == MR_USE_MASK ? mask(g, k, s, err) : boxes(g, k, s, err);
    uint64_t end = mr_now_ns();
    mr_loader_note_transform(g->t, start, end);
    atomic_fetch_add_explicit(&g->t->field[k].transform_ns, end - start, memory_order_relaxed);
    return rc;
}

static int value(void *user, unsigned k, struct mr_sample *s, const struct mr_part *part, struct mr_error *err)
{
    struct reading *g = user;
    struct mr_loader *l = g->t->loader;
    struct field_slot *f = &g->s->field[k];
    int rc = 0;
    if (l->p.flags & MR_LOADER_VERIFY_CONTENT &&
        (rc = mr_gen_plan_compare_field(l->plan, l->field[k].field->name, g->id, s, err)))
        return mr_error_hint(err, "repair it with 'millrace gen --repair'"), rc;
    bool is_image = l->field[k].use == MR_USE_IMAGE;
    if (is_image && (rc = preprocess(g, k, s, part, err)))
        return rc;
    if (l->field[k].use > MR_USE_IMAGE && (rc = join_picture(g, k, s, err)))
        return rc;
    const uint8_t *data = s->data, *slab = g->s->slab;
    if (!is_image && data != f->overflow[g->row] && (data < slab || data >= slab + l->slab_bytes))
        return mr_loader_no_row(l, g->id, s->bytes, err);
    f->rows[g->row] = s->data;
    f->bytes[g->row] = s->bytes;
    f->shapes[g->row] = shape_of_sample(s);
    g->s->bytes[g->row] += s->bytes;
    struct field_sums *sums = &g->t->field[k];
    atomic_fetch_add_explicit(&sums->samples, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&sums->bytes, s->bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&sums->stored_bytes, mr_dataset_reader_field_bytes(g->t->reader, k),
                              memory_order_relaxed);
    return 0;
}

/* The caller's transform, of the first input. */
static int transform(struct engine_thread *t, struct slot *s, uint32_t row, uint64_t id, struct mr_error *err)
{
    struct mr_loader *l = t->loader;
    struct field_slot *f = &s->field[l->main_field];
    uint8_t *at = (uint8_t *)(uintptr_t)f->rows[row]; /* a row of ours */
    uint64_t start = mr_now_ns(), size = f->bytes[row];
    int64_t bytes = l->p.transform(l->p.transform_user, s->batch.epoch, id, at, size, size);
    uint64_t end = mr_now_ns();
    mr_loader_note_transform(t, start, end);
    atomic_fetch_add_explicit(&t->field[l->main_field].transform_ns, end - start, memory_order_relaxed);
    if (bytes < 0)
        return mr_error_plain(err, (int)bytes, "the transform refused sample %llu", (unsigned long long)id);
    return (uint64_t)bytes == size
               ? 0
               : mr_error_plain(err, MR_E_USAGE, "the transform made %lld bytes of the %llu of field '%s'",
                                (long long)bytes, (unsigned long long)size, l->field[l->main_field].field->name);
}

int mr_loader_read_fields(struct engine_thread *t, struct slot *s, uint32_t row, uint64_t id, struct mr_error *err)
{
    struct mr_loader *l = t->loader;
    struct reading g = {.t = t, .s = s, .row = row, .id = id, .part = {.thread = t, .epoch = s->batch.epoch, .id = id}};
    struct mr_field_consumer to = {.user = &g, .room = room, .choose = choose, .value = value};
    struct mr_manifest_pos pos;
    for (unsigned k = 0; k < l->n_fields; k++) /* whose draw the others follow */
        to.first = l->field[k].use == MR_USE_IMAGE ? k : to.first;
    s->bytes[row] = 0;
    int rc = mr_dataset_read_to(t->reader, id, mr_loader_read_flags(l), &to, err);
    for (unsigned k = 0; k < l->n_fields; k++)
        atomic_store_explicit(&t->field[k].decode_ns, mr_dataset_reader_field_ns(t->reader, k), memory_order_relaxed);
    if (rc)
        return rc;
    if (l->p.transform && (rc = transform(t, s, row, id, err)))
        return rc;
    rc = mr_manifest_locate(mr_dataset_manifest(l->dataset), id, &pos, err);
    s->labels[row] = rc ? MR_SAMPLE_NO_LABEL : pos.ref.label;
    return rc;
}

/* ---- a complete batch ---- */

static bool same_shape(const struct mr_shape *a, const struct mr_shape *b)
{
    bool same = a->n_dims == b->n_dims && memcmp(a->dtype, b->dtype, sizeof a->dtype) == 0;
    for (int d = 0; same && d < a->n_dims; d++)
        same = a->dims[d] == b->dims[d];
    return same;
}

static void describe_differing(struct mr_loader *l, const struct slot *s, unsigned k, struct mr_batch_field *out)
{
    struct field_slot *f = &s->field[k];
    uint32_t n = s->batch.n;
    bool alike = true;
    for (uint32_t i = 1; alike && i < n; i++)
        alike = same_shape(&f->shapes[i], &f->shapes[0]);
    out->shape = n ? f->shapes[0] : l->field[k].shape;
    if (!alike) {
        out->shape.n_dims = -1;
        out->shapes = f->shapes;
    }
}

void mr_loader_describe_fields(struct mr_loader *l, struct slot *s)
{
    for (unsigned k = 0; k < l->n_fields; k++) {
        const struct loader_field *x = &l->field[k];
        struct field_slot *f = &s->field[k];
        struct mr_batch_field out = {
            .name = x->field->name, .role = x->field->role, .rows = f->rows, .bytes = f->bytes, .shape = x->shape};
        if (x->fixed) {
            out.data = s->slab + x->at;
            out.row_bytes = x->stride;
        } else if (l->p.ragged == MR_RAGGED_LIST) {
            describe_differing(l, s, k, &out);
        } else { /* loader_ragged.c has set it */
            out = f->out;
            out.name = x->field->name;
            out.role = x->field->role;
        }
        f->out = out;
    }
    const struct mr_batch_field *first = &s->field[l->main_field].out;
    s->batch.n_fields = l->n_fields;
    s->batch.fields = s->field_out;
    s->batch.rows = first->rows;
    s->batch.data = first->data;
    s->batch.row_bytes = first->row_bytes;
    s->batch.bytes = first->bytes;
    s->batch.shape = first->shape;
    s->batch.shapes = first->shapes;
    s->batch.stored = NULL;
}

void mr_loader_move_fields(struct mr_loader *l, struct slot *s, uint32_t from, uint32_t to)
{
    for (unsigned k = 0; k < l->n_fields; k++) {
        const struct loader_field *x = &l->field[k];
        struct field_slot *f = &s->field[k];
        f->bytes[to] = f->bytes[from];
        f->shapes[to] = f->shapes[from];
        if (!x->fixed) {
            f->rows[to] = f->rows[from];
            continue;
        }
        uint8_t *at = s->slab + x->at + to * x->stride;
        memcpy(at, f->rows[from], f->bytes[from]);
        f->rows[to] = at;
    }
}

bool mr_loader_fields_in_slab(const struct mr_loader *l, const struct slot *s)
{
    for (unsigned k = 0; k < l->n_fields; k++) {
        const struct field_slot *f = &s->field[k];
        const uint8_t *data = f->out.data;
        if (data && (data < s->slab || data >= s->slab + s->slab_bytes))
            return false;
        for (uint32_t i = 0; !data && i < s->batch.n; i++) {
            const uint8_t *row = f->rows[i];
            if (row < s->slab || row + f->bytes[i] > s->slab + s->slab_bytes)
                return false;
        }
    }
    return true;
}

/* ---- what they cost ---- */

bool mr_loader_get_field_stats_sized(struct mr_loader *l, uint32_t index, struct mr_loader_field_stats *out,
                                     size_t size)
{
    if (index >= l->n_fields)
        return false;
    struct mr_loader_field_stats s = {.name = l->field[index].field->name};
    for (unsigned i = 0; i < l->n_threads; i++) {
        const struct field_sums *f = &l->threads[i].field[index];
        s.samples += f->samples;
        s.stored_bytes += f->stored_bytes;
        s.bytes += f->bytes;
        s.decode_ns += f->decode_ns;
        s.transform_ns += f->transform_ns;
    }
    memset(out, 0, size);
    memcpy(out, &s, MR_MIN(size, sizeof s));
    return true;
}
