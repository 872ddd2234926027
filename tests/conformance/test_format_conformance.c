/* What every format of the registry must do, whatever it is. One test per property, each over all formats, all the
 * element types they keep, memory and posix stores. A format that refuses a combination must say MR_E_UNSUPPORTED (or
 * MR_E_USAGE); that is printed and skipped. test-label: concurrent */
#include "amount.h"
#include "conformance/conformance_plugins.h"
#include "format_testlib.h"

#include <pthread.h>

static bool refused(const struct mr_format_ops *f, const char *what, int rc, const struct mr_error *err)
{
    if (rc != MR_E_UNSUPPORTED && rc != MR_E_USAGE)
        return false;
    print_message("%s: %s refused: %s\n", f->name, what, err->message);
    return true;
}

static unsigned samples_for(const struct mr_format_ops *f, unsigned n)
{
    return f->caps & MR_FMT_MULTI ? n : 1;
}

static struct mr_writer_spec plain_spec(enum mr_dtype dtype, bool fixed)
{
    return (struct mr_writer_spec){
        .dtype = dtype, .fixed_size = fixed, .quality = 90, .content_seed = 7, .compression_level = 1};
}

static bool bytes_only(const struct mr_format_ops *f)
{
    return !(f->caps & MR_FMT_DTYPE);
}

/* Is the format's dtype choice its own (images)? */
static bool is_image(const struct mr_format_ops *f)
{
    return strcmp(f->name, "jpeg") == 0 || strcmp(f->name, "png") == 0;
}

/* Text is slow to parse under sanitizers; its samples are kept small. */
static bool is_text(const struct mr_format_ops *f)
{
    return strcmp(f->name, "csv") == 0 || strncmp(f->name, "json", 4) == 0;
}

static void check_sample(const struct test_file *t, unsigned i, const struct mr_sample_out *out)
{
    struct mr_error err;
    if (t->f->check(&t->spec, &test_content, &t->info[i], out, &err) < 0)
        fail_msg("%s sample %u: %s", t->f->name, i, err.message);
    if (!bytes_only(t->f)) {
        assert_int_equal(out->dtype, t->info[i].dtype);
        assert_int_equal(out->dims.n, t->info[i].dims.n);
        assert_memory_equal(out->dims.dim, t->info[i].dims.dim, out->dims.n * sizeof(out->dims.dim[0]));
    }
    assert_true(out->label == t->info[i].label);
}

static void check_all(struct mr_store *s, const char *path, const struct test_file *t)
{
    struct mr_error err;
    struct mr_decoder *d = mr_decoder_create();
    struct mr_growbuf raw = {0};
    struct mr_read_cost cost;
    assert_ok(t->f->cost(&t->layout, &cost, &err), err);
    assert_true(cost.bytes_read_per_payload_byte > 0);
    assert_non_null(cost.note);
    for (unsigned i = 0; i < t->n; i++) {
        assert_true(!i || t->ref[i].raw.offset >= t->ref[i - 1].raw.offset);
        assert_true(t->ref[i].aux < 1u << 24);
        if (cost.access == MR_ACCESS_RANGE)
            assert_true(t->ref[i].raw.offset <= t->bytes && t->ref[i].raw.length <= t->bytes - t->ref[i].raw.offset);
        for (unsigned flags = 0; flags <= MR_READ_VERIFY; flags++) {
            struct mr_sample_out out;
            assert_ok(test_read(s, path, t->f, &t->layout, &t->ref[i], flags, d, &raw, &out, &err), err);
            check_sample(t, i, &out);
        }
    }
    free(raw.data);
    mr_decoder_free(d);
}

/* Planned ranges of a verbatim layout are the payload, byte for byte. */
static void check_verbatim(struct mr_store *s, const char *path, const struct test_file *t)
{
    struct mr_error err;
    struct mr_read_cost cost;
    assert_ok(t->f->cost(&t->layout, &cost, &err), err);
    if (!cost.verbatim)
        return;
    assert_true(t->f->caps & MR_FMT_VERBATIM);
    struct mr_object *o;
    assert_ok(mr_object_open(s, path, MR_OBJ_READ, &o, &err), err);
    for (unsigned i = 0; i < t->n; i++) {
        struct mr_extent ext[64];
        unsigned n = 0;
        assert_ok(t->f->plan(&t->layout, &t->ref[i], 0, ext, 64, &n, &err), err);
        uint8_t *buf = malloc((size_t)t->info[i].bytes + 1);
        size_t at = 0;
        for (unsigned k = 0; k < n; k++) {
            assert_true(ext[k].length <= t->info[i].bytes - at);
            assert_ok(mr_object_read(o, buf + at, ext[k].length, ext[k].offset, &err), err);
            at += ext[k].length;
        }
        struct mr_sample_out out = {.data = buf, .bytes = at};
        assert_ok(t->f->check(&t->spec, &test_content, &t->info[i], &out, &err), err);
        free(buf);
    }
    mr_object_close(o, NULL);
}

static void check_scan(struct mr_store *s, const char *path, const struct test_file *t)
{
    struct mr_error err;
    static struct test_scan c;
    /* Raw files of several samples do not say where one ends. */
    if (t->n > 1 && strcmp(t->f->name, "raw") == 0)
        return;
    struct mr_read_cost cost;
    c.n = 0;
    c.layout = (struct mr_layout){0};
    int (*scan)(struct mr_store *, const char *, mr_scan_fn *, void *, struct mr_layout *, struct mr_error *) =
        t->n > 1 && t->f->scan_rows ? t->f->scan_rows : t->f->scan;
    assert_ok(scan(s, path, test_scan_fn, &c, &c.layout, &err), err);
    assert_ok(t->f->cost(&c.layout, &cost, &err), err);
    assert_int_equal(c.n, t->n);
    struct mr_decoder *d = mr_decoder_create();
    struct mr_growbuf raw = {0};
    for (unsigned i = 0; i < c.n; i++) {
        assert_true(c.ref[i].raw.offset == t->ref[i].raw.offset);
        if (cost.access != MR_ACCESS_UNIT) /* where it is the mean of what a file's rows take */
            assert_true(c.ref[i].raw.length == t->ref[i].raw.length);
        assert_int_equal(c.ref[i].aux, t->ref[i].aux);
        if (t->f->caps & MR_FMT_LABEL)
            assert_true(c.ref[i].label == t->info[i].label);
        /* What was scanned can be read; text without a stated type may come back wider. */
        struct mr_sample_out out;
        assert_ok(test_read(s, path, t->f, &c.layout, &c.ref[i], MR_READ_VERIFY, d, &raw, &out, &err), err);
        if (strcmp(t->f->name, "csv") != 0)
            assert_ok(t->f->check(&t->spec, &test_content, &t->info[i], &out, &err), err);
    }
    free(raw.data);
    mr_decoder_free(d);
    free(c.layout.data);
}

static void round_trip(const struct mr_format_ops *f, const char *store_spec, const char *path, enum mr_dtype dtype,
                       bool fixed, const uint64_t *want, unsigned n, size_t piece)
{
    struct mr_error err;
    struct mr_store *s = test_store(store_spec);
    struct test_file *t = calloc(1, sizeof(*t));
    t->f = f;
    t->spec = plain_spec(dtype, fixed);
    t->n = samples_for(f, n);
    int rc = test_write(s, path, t, want, piece, &err);
    if (!refused(f, fixed ? mr_dtype_numpy(dtype) : "varying size", rc, &err)) {
        assert_ok(rc, err);
        struct mr_store_stat st;
        assert_ok(mr_store_stat(s, path, &st, &err), err);
        assert_true(st.bytes == t->bytes);
        for (const char *side = f->side_suffixes; *side; side += strlen(side) + 1) {
            char name[512];
            snprintf(name, sizeof name, "%s%s", path, side);
            assert_ok(mr_store_stat(s, name, &st, &err), err);
            if (strncmp(store_spec, "posix", 5) == 0)
                assert_true(t->n == 0 || st.bytes > 0);
        }
        check_all(s, path, t);
        check_verbatim(s, path, t);
        check_scan(s, path, t);
    }
    test_file_done(t);
    free(t);
    mr_store_close(s);
}

static const char *only;

#define FOR_EACH_FORMAT(f)                                                                                             \
    for (const struct mr_format_ops *const *row_ = mr_format_registry(), *f; (f = *row_); row_++)                      \
        if (!only || strcmp(f->name, only) == 0)

/* ---- the properties ---- */

static void assert_same_file(struct mr_store *s, const char *a, const char *b, const char *suffix)
{
    struct mr_error err;
    char path[2][64];
    void *data[2];
    size_t len[2];
    for (unsigned i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s%s", i ? b : a, suffix);
        assert_ok(mr_store_read_file(s, path[i], 1 << 20, &data[i], &len[i], &err), err);
    }
    assert_int_equal(len[0], len[1]);
    assert_memory_equal(data[0], data[1], len[0]);
    free(data[0]);
    free(data[1]);
}

/* Writes samples [first, last) of t->info by a writer that is open, and closes it. */
static void write_range(struct test_file *t, struct mr_writer *w, unsigned first, unsigned last)
{
    struct mr_error err;
    w->ops = t->f;
    for (unsigned i = first; i < last; i++)
        assert_ok(test_write_one(t, w, i, 100, &err), err);
    assert_ok(t->f->writer_close(w, &t->layout, &t->bytes, &err), err);
}

static void files_in_parts_equal_whole_files(void **state)
{
    (void)state;
    static const unsigned cut[] = {0, 2, 9, 15, 20};
    static struct test_file t, p;
    struct mr_error err;
    unsigned formats = 0;
    FOR_EACH_FORMAT(f)
    {
        assert_true(!f->part_bytes == !f->part_open);
        if (!f->part_bytes)
            continue;
        struct mr_store *s = test_store("memory");
        struct mr_writer *w = NULL;
        t = (struct test_file){.f = f, .spec = plain_spec(MR_U8, true), .n = 20};
        t.spec.samples = t.n;
        for (unsigned i = 0; i < t.n; i++) {
            t.info[i] = (struct mr_sample_info){.id = i, .label = i * 5};
            assert_ok(f->shape(&t.spec, 777, &t.info[i], &err), err);
        }
        t.spec.dims = t.info[0].dims;
        p = t;
        struct mr_sample_info one = t.info[3];
        one.label = 95;
        assert_true(f->part_bytes(&t.spec, &one) >= 777);
        assert_ok(f->writer_open(s, "whole", &t.spec, &w, &err), err);
        write_range(&t, w, 0, t.n);
        for (unsigned k = 4; k-- > 0;) { /* the last one first, so the others must leave its bytes and the size alone */
            assert_ok(f->part_open(s, "parts", &t.spec, &one, cut[k], cut[k + 1] - cut[k], &w, &err), err);
            write_range(&p, w, cut[k], cut[k + 1]);
            assert_true(k < 3 || p.bytes == t.bytes);
            assert_int_equal(p.layout.len, t.layout.len);
            assert_memory_equal(p.layout.data, t.layout.data, t.layout.len);
            test_file_done(&p);
        }
        for (unsigned i = 0; i < t.n; i++)
            assert_true(t.ref[i].raw.offset == p.ref[i].raw.offset && t.ref[i].raw.length == p.ref[i].raw.length &&
                        t.ref[i].aux == p.ref[i].aux);
        assert_same_file(s, "whole", "parts", "");
        for (const char *side = f->side_suffixes; *side; side += strlen(side) + 1)
            assert_same_file(s, "whole", "parts", side);
        test_file_done(&t);
        t.spec.fixed_size = false;
        assert_int_equal(f->part_bytes(&t.spec, &one), 0);
        mr_store_close(s);
        formats++;
    }
    assert_true(only || formats >= 4);
}

static void every_format_declares_itself(void **state)
{
    (void)state;
    struct mr_error err;
    unsigned count = 0;
    FOR_EACH_FORMAT(f)
    {
        count++;
        assert_int_equal(f->abi, MR_FORMAT_ABI);
        assert_int_equal(f->size, sizeof(struct mr_format_ops));
        assert_ptr_equal(mr_format_find(f->name, &err), f);
        assert_true(strlen(f->doc) > 10 && f->extensions[0] == '.');
        assert_true(f->shape && f->synth && f->check && f->writer_open && f->sample_begin && f->sample_data &&
                    f->sample_end);
        assert_true(f->writer_close && f->writer_abort && f->side_suffixes && f->scan && f->cost && f->unpack &&
                    f->plan && f->decode);
        f->writer_abort(NULL);
        char name[64], first[32];
        snprintf(first, sizeof first, "%.*s", (int)strcspn(f->extensions, ","), f->extensions);
        snprintf(name, sizeof name, "folder/file%s", first);
        assert_ptr_equal(mr_format_for_path(name), f);
    }
    assert_true(count >= (only ? 1 : 8));
}

static void samples_of_one_size_read_back(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(f)
    for (unsigned dtype = 0; dtype < MR_DTYPE_COUNT; dtype++)
        if (dtype == MR_U8 || (!bytes_only(f) && !is_image(f)))
            round_trip(f, "memory", "file", dtype, true, (uint64_t[]){is_image(f) ? 20000 : 4800}, 7, 977);
}

static void samples_of_varying_size_read_back(void **state)
{
    (void)state;
    static const uint64_t want[] = {1, 0, 70000, 8, 4096, 300001, 128, 0, 5};
    FOR_EACH_FORMAT(f)
    if (f->caps & MR_FMT_VARSIZE)
        round_trip(f, "memory", "file", MR_U8, false, want, MR_ARRAY_LEN(want), 65537);
}

static void large_samples_in_odd_pieces_read_back(void **state)
{
    (void)state;
    static const size_t pieces[] = {99991, 1 << 20};
    FOR_EACH_FORMAT(f)
    for (unsigned i = 0; i < MR_ARRAY_LEN(pieces); i++)
        if (!is_image(f))
            round_trip(f, "memory", "file", MR_U8, true, (uint64_t[]){is_text(f) ? 270001 : (3 << 20) + 1}, 2,
                       pieces[i]);
}

static void posix_files_read_back(void **state)
{
    (void)state;
    char dir[] = "/tmp/mr-format-XXXXXX", path[128], side[160];
    assert_non_null(mkdtemp(dir));
    FOR_EACH_FORMAT(f)
    {
        snprintf(path, sizeof path, "%s/file.%s", dir, f->name);
        round_trip(f, "posix", path, MR_U8, true, (uint64_t[]){is_image(f) ? 20000 : 5000}, 9, 4096);
        unlink(path);
        for (const char *p = f->side_suffixes; *p; p += strlen(p) + 1) {
            snprintf(side, sizeof side, "%s%s", path, p);
            unlink(side);
        }
    }
    assert_int_equal(rmdir(dir), 0);
}

static void a_file_without_samples_is_a_file(void **state)
{
    (void)state;
    struct mr_error err;
    FOR_EACH_FORMAT(f)
    {
        if (!(f->caps & MR_FMT_MULTI))
            continue;
        struct mr_store *s = test_store("memory");
        struct test_file *t = calloc(1, sizeof(*t));
        t->f = f;
        t->spec = plain_spec(MR_U8, true);
        t->spec.dims = (struct mr_dims){.n = 1, .dim = {100}};
        struct mr_writer *w = NULL;
        int rc = f->writer_open(s, "empty", &t->spec, &w, &err);
        if (rc >= 0)
            rc = f->writer_close(w, &t->layout, &t->bytes, &err);
        if (!refused(f, "no samples", rc, &err))
            assert_ok(rc, err);
        test_file_done(t);
        free(t);
        mr_store_close(s);
    }
}

static void compressed_files_read_back(void **state)
{
    (void)state;
    struct mr_error err;
    unsigned unpacked = 0;
    FOR_EACH_FORMAT(f)
    {
        struct mr_store *s = test_store("memory");
        struct test_file *t = calloc(1, sizeof(*t));
        t->f = f;
        t->spec = plain_spec(MR_U8, true);
        t->spec.compression = strcmp(f->name, "npz") == 0 ? MR_COMP_ZIP : MR_COMP_GZIP;
        t->n = samples_for(f, 6);
        int rc = test_write(s, "file", t, (uint64_t[]){is_image(f) ? 20000 : 5000}, 4096, &err);
        if (!refused(f, "compression", rc, &err)) {
            struct mr_read_cost cost;
            assert_ok(rc, err);
            assert_ok(f->cost(&t->layout, &cost, &err), err);
            unpacked += cost.access == MR_ACCESS_UNPACK;
            check_all(s, "file", t);
            check_scan(s, "file", t);
        }
        test_file_done(t);
        free(t);
        mr_store_close(s);
    }
    assert_true(only || unpacked >= 3);
}

static void too_small_a_buffer_is_told_the_need(void **state)
{
    (void)state;
    struct mr_error err;
    FOR_EACH_FORMAT(f)
    {
        struct mr_store *s = test_store("memory");
        struct test_file *t = calloc(1, sizeof(*t));
        struct mr_decoder *d = mr_decoder_create();
        struct mr_growbuf raw = {0};
        t->f = f;
        t->spec = plain_spec(MR_U8, true);
        t->n = 1;
        int rc = test_write(s, "file", t, (uint64_t[]){is_image(f) ? 20000 : 5000}, 4096, &err);
        if (!refused(f, "one sample", rc, &err)) {
            assert_ok(rc, err);
            struct mr_object *o;
            uint8_t small[16];
            assert_ok(mr_object_open(s, "file", MR_OBJ_READ, &o, &err), err);
            struct mr_sample_out out = {.dst = small, .dst_cap = sizeof small};
            rc = mr_format_read_sample(f, o, d, &t->layout, &t->ref[0], 0, &raw, &out, &err);
            assert_true(out.bytes == t->info[0].bytes);
            if (rc < 0)
                assert_int_equal(rc, MR_E_LIMIT);
            else
                assert_ptr_not_equal(out.data, small);
            uint8_t *fit = malloc(out.bytes);
            out = (struct mr_sample_out){.dst = fit, .dst_cap = out.bytes};
            assert_ok(mr_format_read_sample(f, o, d, &t->layout, &t->ref[0], 0, &raw, &out, &err), err);
            check_sample(t, 0, &out);
            free(fit);
            mr_object_close(o, NULL);
        }
        free(raw.data);
        mr_decoder_free(d);
        test_file_done(t);
        free(t);
        mr_store_close(s);
    }
}

/* ---- damage ---- */

struct damaged {
    struct mr_store *s;
    struct test_file *t;
    void *bytes;
    size_t len;
};

static bool make_victim(const struct mr_format_ops *f, enum mr_compression compression, struct damaged *v)
{
    struct mr_error err;
    v->s = test_store("memory");
    v->t = calloc(1, sizeof(*v->t));
    v->bytes = NULL;
    v->t->f = f;
    v->t->spec = plain_spec(MR_U8, true);
    v->t->spec.compression = compression;
    /* One checksum over an array of several samples (npz) cannot be checked for one of them. */
    v->t->n = f->scan_rows ? 1 : samples_for(f, 3);
    int rc = test_write(v->s, "file", v->t, (uint64_t[]){is_image(f) ? 6000 : 700}, 300, &err);
    if (rc < 0) {
        assert_true(refused(f, "damage test", rc, &err));
        return false;
    }
    assert_ok(mr_store_read_file(v->s, "file", 1 << 20, &v->bytes, &v->len, &err), err);
    return true;
}

static void drop_victim(struct damaged *v)
{
    free(v->bytes);
    test_file_done(v->t);
    free(v->t);
    mr_store_close(v->s);
}

/* Scans and reads everything the damaged file still gives; whatever happens, it must not crash. */
static int survive(const struct damaged *v)
{
    static struct test_scan c;
    struct mr_error err;
    struct mr_decoder *d = mr_decoder_create();
    struct mr_growbuf raw = {0};
    int rc = test_scan_file(v->s, v->t->f, "file", &c, &err);
    if (rc < 0)
        assert_true(err.message[0] != 0 && c.layout.data == NULL);
    for (unsigned i = 0; rc >= 0 && i < MR_MIN(c.n, (unsigned)TEST_SAMPLES_MAX); i++) {
        struct mr_sample_out out;
        (void)test_read(v->s, "file", v->t->f, &c.layout, &c.ref[i], MR_READ_VERIFY, d, &raw, &out, &err);
    }
    free(raw.data);
    mr_decoder_free(d);
    free(c.layout.data);
    return rc;
}

/* With the manifest's refs: an error, or the right content. Returns how many samples failed. */
static unsigned never_wrong(const struct damaged *v, bool may_be_wrong)
{
    struct mr_error err;
    struct mr_decoder *d = mr_decoder_create();
    struct mr_growbuf raw = {0};
    unsigned failed = 0;
    for (unsigned i = 0; i < v->t->n; i++) {
        struct mr_sample_out out;
        int rc = test_read(v->s, "file", v->t->f, &v->t->layout, &v->t->ref[i], MR_READ_VERIFY, d, &raw, &out, &err);
        if (rc < 0)
            failed++;
        else if (!may_be_wrong && v->t->f->check(&v->t->spec, &test_content, &v->t->info[i], &out, &err) < 0)
            fail_msg("%s: wrong content of sample %u went unnoticed: %s", v->t->f->name, i, err.message);
    }
    free(raw.data);
    mr_decoder_free(d);
    return failed;
}

static bool is_unpacked(const struct test_file *t)
{
    struct mr_error err;
    struct mr_read_cost cost;
    assert_ok(t->f->cost(&t->layout, &cost, &err), err);
    return cost.access == MR_ACCESS_UNPACK;
}

static void truncation_is_detected(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(f)
    for (enum mr_compression comp = MR_COMP_NONE; comp <= MR_COMP_GZIP; comp++) {
        struct damaged v;
        if (make_victim(f, comp, &v)) {
            struct mr_sample_ref *last = &v.t->ref[v.t->n - 1];
            for (unsigned k = 0; k < 40; k++) {
                size_t cut = v.len * k / 40;
                test_put_file(v.s, "file", v.bytes, cut);
                survive(&v);
                unsigned failed = never_wrong(&v, false);
                if (comp == MR_COMP_NONE && cut < last->raw.offset + last->raw.length)
                    assert_true(failed >= 1);
                if (is_unpacked(v.t))
                    assert_int_equal(failed, v.t->n);
            }
        }
        drop_victim(&v);
    }
}

static void one_wrong_byte_never_gives_wrong_samples(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(f)
    {
        struct damaged v;
        /* HDF5 has checksums only in chunked files with Fletcher32, which others write. */
        bool checked = (f->caps & MR_FMT_CHECKSUM) && strcmp(f->name, "hdf5") != 0;
        if (make_victim(f, MR_COMP_NONE, &v)) {
            unsigned noticed = 0, tries = 150;
            for (unsigned k = 0; k < tries; k++) {
                uint64_t r = mr_rng_at(99, MR_RNG_TEST, k);
                size_t at = (size_t)mr_rng_below(r, v.len);
                uint8_t *b = v.bytes, old = b[at];
                b[at] ^= (uint8_t)(1u << (r & 7));
                test_put_file(v.s, "file", v.bytes, v.len);
                b[at] = old;
                survive(&v);
                noticed += never_wrong(&v, !checked) > 0;
            }
            if (checked)
                assert_true(noticed > tries / 4);
        }
        drop_victim(&v);
    }
}

static void hostile_layouts_and_refs_do_not_crash(void **state)
{
    (void)state;
    struct mr_error err;
    FOR_EACH_FORMAT(f)
    {
        struct damaged v;
        if (make_victim(f, MR_COMP_NONE, &v)) {
            struct mr_decoder *d = mr_decoder_create();
            struct mr_growbuf raw = {0};
            for (unsigned k = 0; k < 300; k++) {
                uint64_t r = mr_rng_at(5, MR_RNG_TEST, k);
                size_t len = v.t->layout.len;
                uint8_t *copy = malloc(len ? len : 1);
                memcpy(copy, v.t->layout.data, len);
                struct mr_sample_ref ref = v.t->ref[0];
                struct mr_layout layout = {copy, len};
                struct mr_sample_out out;
                if (k % 3 == 0 && len)
                    copy[r % len] ^= (uint8_t)(r >> 16 | 1);
                else if (k % 3 == 1 && len)
                    layout.len = r % len;
                else
                    ref = (struct mr_sample_ref){.raw = {k % 2 ? r : r % (v.len + 9), (r >> 20) % (v.len + 9)},
                                                 .aux = (uint32_t)(r >> 40),
                                                 .label = 1};
                (void)test_read(v.s, "file", f, &layout, &ref, k & 1, d, &raw, &out, &err);
                free(copy);
            }
            free(raw.data);
            mr_decoder_free(d);
        }
        drop_victim(&v);
    }
}

/* ---- failing storage ---- */

static int write_with_fault(const struct mr_format_ops *f, const char *op, unsigned nth, struct mr_error *err)
{
    char spec[96];
    snprintf(spec, sizeof spec, "fault(op=%s,nth=%u,error=EIO):memory", op, nth);
    struct mr_store *s = test_store(spec);
    struct test_file *t = calloc(1, sizeof(*t));
    t->f = f;
    t->spec = plain_spec(MR_U8, true);
    t->n = samples_for(f, 3);
    int rc = test_write(s, "file", t, (uint64_t[]){is_image(f) ? 6000 : is_text(f) ? 90000 : 300000}, 300000, err);
    test_file_done(t);
    free(t);
    mr_store_close(s);
    return rc;
}

static void every_failing_call_while_writing_is_reported(void **state)
{
    (void)state;
    static const char *const ops[] = {"open", "write", "close"};
    struct mr_error err;
    FOR_EACH_FORMAT(f)
    for (unsigned o = 0; o < MR_ARRAY_LEN(ops); o++) {
        unsigned nth = 1;
        int rc;
        while ((rc = write_with_fault(f, ops[o], nth, &err)) < 0 && nth < 200 && !refused(f, "fault test", rc, &err)) {
            assert_int_equal(rc, -EIO);
            nth++;
        }
        assert_true(rc >= 0 || refused(f, "fault test", rc, &err));
        assert_true(nth > 1 || rc < 0);
    }
}

static int scan_with_fault(const struct damaged *v, const char *op, unsigned nth, struct mr_error *err)
{
    char spec[96];
    static struct test_scan c;
    snprintf(spec, sizeof spec, "fault(op=%s,nth=%u,error=EIO,path=file*):memory", op, nth);
    struct mr_store *s = test_store(spec);
    /* The file gets there under another name, so that only the scan's calls count. */
    test_put_file(s, "other", v->bytes, v->len);
    assert_ok(s->ops->rename(s, "other", "file", err), *err);
    for (const char *side = v->t->f->side_suffixes; *side; side += strlen(side) + 1) {
        char name[64];
        void *data;
        size_t len;
        snprintf(name, sizeof name, "file%s", side);
        assert_ok(mr_store_read_file(v->s, name, 1 << 20, &data, &len, err), *err);
        test_put_file(s, "other", data, len);
        assert_ok(s->ops->rename(s, "other", name, err), *err);
        free(data);
    }
    int rc = test_scan_file(s, v->t->f, "file", &c, err);
    free(c.layout.data);
    mr_store_close(s);
    return rc;
}

static void every_failing_call_while_scanning_is_reported(void **state)
{
    (void)state;
    static const char *const ops[] = {"open", "read", "stat"};
    struct mr_error err;
    FOR_EACH_FORMAT(f)
    {
        struct damaged v;
        if (make_victim(f, MR_COMP_NONE, &v)) {
            unsigned failures = 0;
            for (unsigned o = 0; o < MR_ARRAY_LEN(ops); o++)
                for (unsigned nth = 1; nth < 200 && scan_with_fault(&v, ops[o], nth, &err) < 0; nth++)
                    failures++;
            assert_true(failures >= 1);
        }
        drop_victim(&v);
    }
}

/* ---- threads ---- */

struct reader {
    pthread_t thread;
    const struct damaged *v;
    unsigned good;
};

static void *read_many(void *arg)
{
    struct reader *r = arg;
    const struct test_file *t = r->v->t;
    struct mr_error err;
    struct mr_decoder *d = mr_decoder_create();
    struct mr_growbuf raw = {0};
    for (unsigned round = 0; round < 20; round++)
        for (unsigned i = 0; i < t->n; i++) {
            struct mr_sample_out out;
            if (test_read(r->v->s, "file", t->f, &t->layout, &t->ref[i], round & 1, d, &raw, &out, &err) >= 0 &&
                t->f->check(&t->spec, &test_content, &t->info[i], &out, &err) >= 0)
                r->good++;
        }
    free(raw.data);
    mr_decoder_free(d);
    return NULL;
}

static void two_threads_decode_the_same_file(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(f)
    {
        struct damaged v;
        if (make_victim(f, MR_COMP_NONE, &v)) {
            struct reader r[2] = {{.v = &v}, {.v = &v}};
            for (int i = 0; i < 2; i++)
                assert_int_equal(pthread_create(&r[i].thread, NULL, read_many, &r[i]), 0);
            for (int i = 0; i < 2; i++)
                pthread_join(r[i].thread, NULL);
            assert_int_equal(r[0].good, 20 * v.t->n);
            assert_int_equal(r[1].good, 20 * v.t->n);
        }
        drop_victim(&v);
    }
}

int main(void)
{
    only = conformance_only();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_declares_itself),
        cmocka_unit_test(files_in_parts_equal_whole_files),
        cmocka_unit_test(samples_of_one_size_read_back),
        cmocka_unit_test(samples_of_varying_size_read_back),
        cmocka_unit_test(large_samples_in_odd_pieces_read_back),
        cmocka_unit_test(posix_files_read_back),
        cmocka_unit_test(a_file_without_samples_is_a_file),
        cmocka_unit_test(compressed_files_read_back),
        cmocka_unit_test(too_small_a_buffer_is_told_the_need),
        cmocka_unit_test(truncation_is_detected),
        cmocka_unit_test(one_wrong_byte_never_gives_wrong_samples),
        cmocka_unit_test(hostile_layouts_and_refs_do_not_crash),
        cmocka_unit_test(every_failing_call_while_writing_is_reported),
        cmocka_unit_test(every_failing_call_while_scanning_is_reported),
        cmocka_unit_test(two_threads_decode_the_same_file),
    };
    if (mr_test_in_part(MR_UNDER_TSAN))
        cmocka_set_test_filter("two_threads*"); /* the others are of one thread */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
