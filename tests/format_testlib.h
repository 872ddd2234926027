/* What the tests of formats share: writing samples of known content, collecting scans, reading back. */
#ifndef MR_TESTS_FORMAT_TESTLIB_H
#define MR_TESTS_FORMAT_TESTLIB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/content.h"
#include "base/rng.h"
#include "format/format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEST_SAMPLES_MAX 64

static const struct mr_content test_content = {.seed = 42};

/* A file written by a format, and everything needed to read it. */
struct test_file {
    const struct mr_format_ops *f;
    struct mr_writer_spec spec;
    unsigned n;
    struct mr_sample_info info[TEST_SAMPLES_MAX];
    struct mr_sample_ref ref[TEST_SAMPLES_MAX];
    struct mr_layout layout;
    uint64_t bytes;
};

static inline int64_t test_label(unsigned i)
{
    return i == 5 ? -7 : (int64_t)(i * 37 % 1000);
}

static inline int test_write_one(struct test_file *t, struct mr_writer *w, unsigned i, size_t piece,
                                 struct mr_error *err)
{
    uint8_t *buf = malloc(piece);
    int rc = t->f->sample_begin(w, &t->info[i], err);
    for (uint64_t at = 0; rc >= 0 && at < t->info[i].bytes;) {
        size_t n = (size_t)MR_MIN((uint64_t)piece, t->info[i].bytes - at);
        t->f->synth(&t->spec, &test_content, &t->info[i], at, buf, n);
        rc = t->f->sample_data(w, buf, n, err);
        at += n;
    }
    free(buf);
    return rc < 0 ? rc : t->f->sample_end(w, &t->ref[i], err);
}

/* Writes t->n samples of about want[i] bytes (want[0] for all when the spec says fixed size). */
static inline int test_write(struct mr_store *s, const char *path, struct test_file *t, const uint64_t *want,
                             size_t piece, struct mr_error *err)
{
    struct mr_writer *w = NULL;
    t->spec.samples = t->n;
    for (unsigned i = 0; i < t->n; i++) {
        t->info[i] = (struct mr_sample_info){.id = 1000 + i, .label = test_label(i)};
        int rc = t->f->shape(&t->spec, t->spec.fixed_size ? want[0] : want[i], &t->info[i], err);
        if (rc < 0)
            return rc;
    }
    if (t->spec.fixed_size)
        t->spec.dims = t->info[0].dims;
    int rc = t->f->writer_open(s, path, &t->spec, &w, err);
    if (rc < 0)
        return rc;
    w->ops = t->f;
    for (unsigned i = 0; i < t->n; i++) {
        rc = test_write_one(t, w, i, piece, err);
        if (rc < 0) {
            t->f->writer_abort(w);
            return rc;
        }
    }
    return t->f->writer_close(w, &t->layout, &t->bytes, err);
}

static inline void test_file_done(struct test_file *t)
{
    free(t->layout.data);
    t->layout = (struct mr_layout){0};
}

struct test_scan {
    unsigned n;
    struct mr_sample_ref ref[TEST_SAMPLES_MAX];
    char key[TEST_SAMPLES_MAX][64];
    struct mr_layout layout;
};

static inline int test_scan_fn(void *user, const struct mr_sample_ref *ref, const char *key, struct mr_error *err)
{
    struct test_scan *c = user;
    (void)err;
    if (c->n < TEST_SAMPLES_MAX) {
        c->ref[c->n] = *ref;
        snprintf(c->key[c->n], sizeof c->key[0], "%s", key ? key : "");
    }
    c->n++;
    return 0;
}

static inline int test_scan_file(struct mr_store *s, const struct mr_format_ops *f, const char *path,
                                 struct test_scan *c, struct mr_error *err)
{
    c->n = 0;
    c->layout = (struct mr_layout){0};
    return f->scan(s, path, test_scan_fn, c, &c->layout, err);
}

static inline struct mr_store *test_store(const char *spec)
{
    struct mr_store *s = NULL;
    struct mr_error err;
    if (mr_store_open(spec, &s, &err) < 0)
        fail_msg("cannot open store '%s': %s", spec, err.message);
    return s;
}

static inline void test_put_file(struct mr_store *s, const char *path, const void *data, size_t len)
{
    struct mr_object *o;
    struct mr_error err;
    if (mr_object_open(s, path, MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_TRUNCATE, &o, &err) < 0 ||
        (len && mr_object_write(o, data, len, 0, &err) < 0) || mr_object_close(o, &err) < 0)
        fail_msg("cannot write '%s': %s", path, err.message);
}

static inline void test_put_text(struct mr_store *s, const char *path, const char *text)
{
    test_put_file(s, path, text, strlen(text));
}

#define assert_ok(expr, err)                                                                                           \
    do {                                                                                                               \
        int rc_ = (expr);                                                                                              \
        if (rc_ < 0)                                                                                                   \
            fail_msg("%s: %d %s / %s", #expr, rc_, (err).message, (err).context);                                      \
    } while (0)

/* Reads one sample from an open store; the caller owns raw and d. */
static inline int test_read(struct mr_store *s, const char *path, const struct mr_format_ops *f,
                            const struct mr_layout *l, const struct mr_sample_ref *ref, unsigned flags,
                            struct mr_decoder *d, struct mr_growbuf *raw, struct mr_sample_out *out,
                            struct mr_error *err)
{
    struct mr_object *o;
    int rc = mr_object_open(s, path, MR_OBJ_READ, &o, err);
    if (rc < 0)
        return rc;
    *out = (struct mr_sample_out){0};
    rc = mr_format_read_sample(f, o, d, l, ref, flags, raw, out, err);
    mr_object_close(o, NULL);
    return rc;
}

#endif
