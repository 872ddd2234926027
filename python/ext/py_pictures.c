/* What is to be done with pictures: parameters out of a dict, and plans for those who decode elsewhere. */
#include "py_core.h"

#include <string.h>

static int take_number(PyObject *dict, const char *key, double *out)
{
    PyObject *v = PyDict_GetItemString(dict, key); /* borrowed */
    if (!v)
        return 0;
    *out = PyFloat_AsDouble(v);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

static int take_floats(PyObject *dict, const char *key, float *out, Py_ssize_t n)
{
    PyObject *v = PyDict_GetItemString(dict, key);
    for (Py_ssize_t i = 0; v && i < n; i++) {
        PyObject *x = PySequence_GetItem(v, i);
        double d = x ? PyFloat_AsDouble(x) : -1;
        Py_XDECREF(x);
        if (d == -1 && PyErr_Occurred())
            return -1;
        out[i] = (float)d;
    }
    return 0;
}

int take_preprocess(PyObject *dict, uint64_t seed, struct mr_preprocess_params *p)
{
    mr_preprocess_params_init(p);
    double crop = 0, crop_h = 0, crop_w = 0, h = 0, w = 0, to_float = 0, planar = 0, shorter = 0, last = 0, last_h = 0,
           last_w = 0, rgb = 0, fast = 0, if_needed = 0, filter = 0, overshoot = 0;
    const struct {
        const char *key;
        double *to;
    } numbers[] = {{"crop", &crop},
                   {"crop_height", &crop_h},
                   {"crop_width", &crop_w},
                   {"height", &h},
                   {"width", &w},
                   {"to_float", &to_float},
                   {"planar", &planar},
                   {"shorter_side", &shorter},
                   {"last_crop", &last},
                   {"last_height", &last_h},
                   {"last_width", &last_w},
                   {"rgb", &rgb},
                   {"fast", &fast},
                   {"pad_if_needed", &if_needed},
                   {"filter", &filter},
                   {"overshoot", &overshoot},
                   {"flip", &p->flip},
                   {"scale_min", &p->scale_min},
                   {"scale_max", &p->scale_max},
                   {"ratio_min", &p->ratio_min},
                   {"ratio_max", &p->ratio_max}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (take_number(dict, numbers[i].key, numbers[i].to) < 0)
            return -1;
    float pad[4] = {0}, fill[3] = {0};
    if (take_floats(dict, "mean", p->mean, 3) < 0 || take_floats(dict, "stdev", p->stdev, 3) < 0 ||
        take_floats(dict, "pad", pad, 4) < 0 || take_floats(dict, "fill", fill, 3) < 0)
        return -1;
    for (unsigned i = 0; i < 4; i++)
        p->pad[i] = (uint32_t)pad[i];
    for (unsigned i = 0; i < 3; i++)
        p->fill[i] = (uint8_t)fill[i];
    p->crop = (enum mr_crop)crop;
    p->crop_height = (uint32_t)crop_h;
    p->crop_width = (uint32_t)crop_w;
    p->height = (uint32_t)h;
    p->width = (uint32_t)w;
    p->to_float = to_float != 0;
    p->planar = planar != 0;
    p->shorter_side = (uint32_t)shorter;
    p->last_crop = (enum mr_crop)last;
    p->last_height = (uint32_t)last_h;
    p->last_width = (uint32_t)last_w;
    p->rgb = rgb != 0;
    p->fast = fast != 0;
    p->pad_if_needed = if_needed != 0;
    p->filter = (enum mr_filter)filter;
    p->overshoot = overshoot != 0;
    p->seed = seed;
    return 0;
}

/* A plan as Python gets it; doc of Loader.plans has the names. */
static void write_plan(const struct mr_preprocess_plan *p, int32_t *out)
{
    const uint32_t fields[PLAN_FIELDS] = {
        p->need.top,    p->need.left,  p->need.height, p->need.width,    p->from.top,     p->from.left,
        p->from.height, p->from.width, p->height,      p->width,         p->result.top,   p->result.left,
        p->flip,        p->place.top,  p->place.left,  p->result.height, p->result.width, p->filter};
    memcpy(out, fields, sizeof fields);
}

PyObject *make_plans(struct core_state *state, const struct mr_preprocess *x, uint64_t epoch, const uint64_t *ids,
                     const uint32_t *sizes, Py_ssize_t n)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, n * PLAN_FIELDS * 4);
    char *out = bytes ? PyBytes_AsString(bytes) : NULL;
    for (Py_ssize_t i = 0; out && i < n; i++) {
        struct mr_preprocess_plan plan;
        struct mr_error err;
        int32_t fields[PLAN_FIELDS];
        if (mr_preprocess_plan(x, epoch, ids[i], sizes[2 * i], sizes[2 * i + 1], &plan, &err) < 0) {
            Py_DECREF(bytes);
            return raise_error(state, &err);
        }
        write_plan(&plan, fields);
        memcpy(out + i * (Py_ssize_t)sizeof fields, fields, sizeof fields);
    }
    return bytes;
}
