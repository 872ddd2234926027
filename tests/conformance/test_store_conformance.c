/* What every backend, and every shim over one, must do: the same text of tests runs over a list of stacks. To check a
 * new backend, add its stack to `stacks` below. A store that writes whole objects only (MR_CONFORMANCE_ONLY=s3 with
 * MR_CONFORMANCE_DIR=s3://BUCKET/PREFIX) has cases of its own, store_objects.h, instead of those that write in place.
 *
 * test-label: concurrent */
#include "amount.h"
#include "base/common.h"
#include "base/rng.h"
#include "conformance/conformance_plugins.h"
#include "store/store.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static const char *const stacks[] = {
    "posix",
    "posix(threads=2,timing=true)",
    "posix(direct=true)",
    "uring",
    "uring(direct=true,timing=true)",
    "mmap",
    "memory",
    "null",
    "trace:posix",
    "trace:memory",
    "throttle(bandwidth=200GB,latency=1us,stream_bandwidth=100GB,client_bandwidth=150GB,metadata_rate=1000000):memory",
    "throttle(aggregate=1:100GB/4:200GB,open_latency=1us,write_bandwidth=100GB):uring",
    "fault(nth=1000000000,error=EIO):posix",
    "trace:fault(nth=1000000000,error=EIO):throttle(bandwidth=200GB):uring(direct=true)",
};

struct fixture {
    struct mr_store *store;
    const struct mr_store_ops *ops;
    struct mr_error err;
    bool has_content;
    char dir[256];
};

/* ---- helpers ---- */

#define OK(f, call)                                                                                                    \
    do {                                                                                                               \
        long long rc_ = (long long)(call);                                                                             \
        if (rc_ < 0)                                                                                                   \
            fail_msg("%s: %lld %s", #call, rc_, (f)->err.message);                                                     \
    } while (0)

static char *path_of(const struct fixture *f, const char *name, char out[512])
{
    snprintf(out, 512, "%s/%s", f->dir, name);
    return out;
}

static void fill(void *buf, size_t len, uint64_t key)
{
    unsigned char *b = buf;
    for (size_t i = 0; i < len; i++)
        b[i] = (unsigned char)(mr_mix64(key + i) >> 8);
}

static void check(const struct fixture *f, const void *buf, size_t len, uint64_t key)
{
    const unsigned char *b = buf;
    for (size_t i = 0; f->has_content && i < len; i++)
        if (b[i] != (unsigned char)(mr_mix64(key + i) >> 8))
            fail_msg("byte %zu of %zu differs", i, len);
}

static void expect_text(const struct fixture *f, const char *text)
{
    if (!strstr(f->err.message, text))
        fail_msg("message '%s' lacks '%s'", f->err.message, text);
}

static int count_name(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    (void)err;
    (void)is_dir;
    assert_false(strchr(name, '/') != NULL);
    ++*(unsigned *)user;
    return 0;
}

static unsigned entries(struct fixture *f, const char *path)
{
    unsigned n = 0;
    OK(f, f->ops->list(f->store, path, count_name, &n, &f->err));
    return n;
}

static int remove_entry(void *user, const char *name, bool is_dir, struct mr_error *err);

struct removal {
    struct fixture *f;
    const char *dir;
};

static void remove_tree(struct fixture *f, const char *dir)
{
    struct removal r = {.f = f, .dir = dir};
    OK(f, f->ops->list(f->store, dir, remove_entry, &r, &f->err));
    OK(f, f->ops->unlink(f->store, dir, &f->err));
}

static int remove_entry(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    const struct removal *r = user;
    char path[600];
    snprintf(path, sizeof(path), "%s/%s", r->dir, name);
    if (!is_dir)
        return r->f->ops->unlink(r->f->store, path, err);
    remove_tree(r->f, path);
    return 0;
}

static int setup(void **state)
{
    const char *spec = *state;
    static unsigned serial;
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    if (mr_store_open(spec, &f->store, &f->err) != 0)
        fail_msg("'%s': %s", spec, f->err.message);
    f->ops = f->store->ops;
    f->has_content = mr_store_caps(f->store) & MR_STORE_CAP_CONTENT;
    const char *own = getenv("MR_CONFORMANCE_DIR"), *base = own ? own : getenv("TMPDIR");
    snprintf(f->dir, sizeof(f->dir), "%s/mr-store-%ld-%u", base ? base : P_tmpdir, (long)getpid(), serial++);
    OK(f, mr_store_mkdirs(f->store, f->dir, &f->err));
    *state = f;
    return 0;
}

/* Prefixes end with what is below them. */
static int remove_below(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    struct removal *r = user;
    char path[600];
    snprintf(path, sizeof(path), "%s/%s", r->dir, name);
    struct removal below = {.f = r->f, .dir = path};
    return is_dir ? r->f->ops->list(r->f->store, path, remove_below, &below, err)
                  : r->f->ops->unlink(r->f->store, path, err);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    struct removal all = {.f = f, .dir = f->dir};
    if (mr_store_puts_whole(f->store))
        f->ops->list(f->store, f->dir, remove_below, &all, NULL);
    else
        remove_tree(f, f->dir);
    mr_store_close(f->store);
    free(f);
    return 0;
}

/* ---- objects ---- */

static void written_bytes_are_read_back(void **state)
{
    struct fixture *f = *state;
    static const size_t lens[] = {1, 511, 512, 4095, 4096, 4097, 100000, (1 << 20) + 3};
    static const uint64_t offsets[] = {0, 1, 512, 4096, 5000};
    char p[512];
    unsigned char *w = NULL, *r = malloc(2 << 20);
    assert_int_equal(posix_memalign((void **)&w, 4096, 2 << 20), 0);
    assert_non_null(r);
    for (size_t i = 0; i < MR_ARRAY_LEN(lens); i++)
        for (size_t j = i % mr_test_stride(3); j < MR_ARRAY_LEN(offsets); j += mr_test_stride(3)) {
            struct mr_object *o;
            size_t shift = j % 2; /* also unaligned memory */
            path_of(f, "object", p);
            OK(f,
               mr_object_open(f->store, p, MR_OBJ_READ | MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_TRUNCATE, &o, &f->err));
            assert_string_equal(o->path, p);
            fill(w + shift, lens[i], i * 31 + j);
            OK(f, mr_object_write(o, w + shift, lens[i], offsets[j], &f->err));
            uint64_t size = 0;
            OK(f, mr_object_size(o, &size, &f->err));
            assert_int_equal(size, offsets[j] + lens[i]);
            memset(r, 0xa5, lens[i] + 1);
            OK(f, mr_object_read(o, r + (1 - shift), lens[i], offsets[j], &f->err));
            check(f, r + (1 - shift), lens[i], i * 31 + j);
            OK(f, f->ops->fsync(o, &f->err));
            OK(f, mr_object_close(o, &f->err));
            OK(f, mr_object_open(f->store, p, MR_OBJ_READ | MR_OBJ_RANDOM, &o, &f->err));
            OK(f, mr_object_read(o, w, lens[i], offsets[j], &f->err));
            check(f, w, lens[i], i * 31 + j);
            OK(f, mr_object_close(o, &f->err));
        }
    free(w);
    free(r);
}

static void reads_end_at_the_end(void **state)
{
    struct fixture *f = *state;
    struct mr_object *o;
    char p[512], buf[200] = {0};
    OK(f, mr_store_write_file(f->store, path_of(f, "hundred", p), buf, 100, &f->err));
    OK(f, mr_object_open(f->store, p, MR_OBJ_READ, &o, &f->err));
    assert_int_equal(mr_object_read_some(o, buf, 200, 0, &f->err), 100);
    assert_int_equal(mr_object_read_some(o, buf, 200, 60, &f->err), 40);
    assert_int_equal(mr_object_read_some(o, buf, 200, 100, &f->err), 0);
    assert_int_equal(mr_object_read_some(o, buf, 200, 1ull << 40, &f->err), 0);
    assert_int_equal(mr_object_read_some(o, buf, 0, 0, &f->err), 0);
    OK(f, mr_object_read(o, buf, 0, 100, &f->err));
    OK(f, mr_object_read(o, buf, 100, 0, &f->err));
    assert_int_equal(mr_object_read(o, buf, 50, 60, &f->err), MR_E_FORMAT);
    expect_text(f, "unexpected end of file (want 50 bytes at 60, file has 100)");
    expect_text(f, p);
    OK(f, mr_object_close(o, &f->err));
    OK(f, mr_object_close(NULL, &f->err));
}

static void success_leaves_the_error_untouched(void **state)
{
    struct fixture *f = *state;
    char p[512], buf[16] = "abc";
    struct mr_error err;
    memset(&err, 0x5a, sizeof(err));
    struct mr_error before = err;
    OK(f, mr_store_write_file(f->store, path_of(f, "quiet", p), buf, 3, &err));
    void *data;
    size_t len;
    OK(f, mr_store_read_file(f->store, p, 100, &data, &len, &err));
    free(data);
    const char *paths[] = {p};
    struct mr_cold cold;
    OK(f, mr_store_cold_fraction(f->store, paths, 1, &cold, &err));
    assert_int_equal(cold.total_bytes, 3);
    assert_memory_equal(&err, &before, sizeof(err));
}

static void opening_checks_what_is_there(void **state)
{
    struct fixture *f = *state;
    struct mr_object *o = (struct mr_object *)(uintptr_t)1;
    char p[512], q[512];
    path_of(f, "missing", p);
    assert_int_equal(mr_object_open(f->store, p, MR_OBJ_READ, &o, &f->err), -ENOENT);
    expect_text(f, p);
    expect_text(f, "No such file");
    assert_ptr_equal(o, (void *)(uintptr_t)1);
    assert_int_equal(mr_object_open(f->store, p, MR_OBJ_WRITE, &o, &f->err), -ENOENT);
    assert_int_equal(
        mr_object_open(f->store, path_of(f, "no/such/folder", q), MR_OBJ_WRITE | MR_OBJ_CREATE, &o, &f->err), -ENOENT);
    assert_int_equal(mr_object_open(f->store, f->dir, MR_OBJ_READ, &o, &f->err), -EISDIR);
    assert_int_equal(mr_object_open(f->store, f->dir, MR_OBJ_WRITE, &o, &f->err), -EISDIR);
    assert_int_equal(mr_object_open(f->store, p, 0, &o, &f->err), MR_E_USAGE);
    assert_int_equal(mr_object_open(f->store, p, MR_OBJ_READ | MR_OBJ_CREATE, &o, &f->err), MR_E_USAGE);
    assert_int_equal(mr_object_open(f->store, "", MR_OBJ_READ, &o, &f->err), MR_E_USAGE);
    OK(f, mr_object_open(f->store, p, MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_EXCLUSIVE, &o, &f->err));
    OK(f, mr_object_close(o, &f->err));
    assert_int_equal(mr_object_open(f->store, p, MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_EXCLUSIVE, &o, &f->err),
                     -EEXIST);
    expect_text(f, p);
    struct mr_store_stat st;
    assert_int_equal(mr_store_stat(f->store, path_of(f, "other", q), &st, &f->err), -ENOENT);
    expect_text(f, q);
}

static void rights_of_an_object_are_kept(void **state)
{
    struct fixture *f = *state;
    struct mr_object *o;
    char p[512], buf[8] = "1234567";
    OK(f, mr_object_open(f->store, path_of(f, "rights", p), MR_OBJ_WRITE | MR_OBJ_CREATE, &o, &f->err));
    OK(f, mr_object_write(o, buf, 8, 0, &f->err));
    assert_int_equal(mr_object_read(o, buf, 8, 0, &f->err), -EBADF);
    expect_text(f, p);
    OK(f, mr_object_close(o, &f->err));
    OK(f, mr_object_open(f->store, p, MR_OBJ_READ, &o, &f->err));
    assert_int_equal(mr_object_write(o, buf, 8, 0, &f->err), -EBADF);
    expect_text(f, "want 8 bytes at 0");
    OK(f, mr_object_close(o, &f->err));
}

static void holes_read_as_zeros_beyond_4_gib(void **state)
{
    struct fixture *f = *state;
    struct mr_object *o;
    char p[512];
    unsigned char buf[5000], zero[5000] = {0};
    const uint64_t far = 5 * MR_GIB + 123;
    OK(f, mr_object_open(f->store, path_of(f, "sparse", p), MR_OBJ_READ | MR_OBJ_WRITE | MR_OBJ_CREATE, &o, &f->err));
    fill(buf, 1000, 7);
    OK(f, mr_object_write(o, buf, 1000, far, &f->err));
    uint64_t size;
    OK(f, mr_object_size(o, &size, &f->err));
    assert_int_equal(size, far + 1000);
    OK(f, mr_object_read(o, buf, 5000, far - 5000, &f->err));
    if (f->has_content)
        assert_memory_equal(buf, zero, 5000);
    OK(f, mr_object_read(o, buf, 1000, far, &f->err));
    check(f, buf, 1000, 7);
    OK(f, mr_object_close(o, &f->err));
    struct mr_store_stat st;
    OK(f, mr_store_stat(f->store, p, &st, &f->err));
    assert_int_equal(st.bytes, far + 1000);
    assert_false(st.is_dir);
}

/* Random writes, truncations and reads against a shadow copy. */
static void random_history_matches_a_shadow(void **state)
{
    struct fixture *f = *state;
    enum { MAX = 300000 };
    struct mr_object *o;
    char p[512];
    unsigned char *shadow = calloc(1, MAX), *buf = malloc(MAX);
    assert_true(shadow && buf);
    uint64_t size = 0, c = 0;
    OK(f, mr_object_open(f->store, path_of(f, "history", p), MR_OBJ_READ | MR_OBJ_WRITE | MR_OBJ_CREATE, &o, &f->err));
    OK(f, f->ops->allocate(o, 4096, &f->err));
    for (unsigned step = 0; step < 150; step++) {
        uint64_t r = mr_rng_at(42, MR_RNG_TEST, c++);
        size_t at = (size_t)mr_rng_below(mr_rng_at(42, MR_RNG_TEST, c++), MAX);
        size_t len = (size_t)mr_rng_below(mr_rng_at(42, MR_RNG_TEST, c++), MAX - at);
        if (r % 8 < 3) {
            fill(buf, len, step);
            OK(f, mr_object_write(o, buf, len, at, &f->err));
            memcpy(shadow + at, buf, len);
            if (len)
                size = MR_MAX(size, at + len);
        } else if (r % 8 == 3) {
            OK(f, f->ops->truncate(o, at, &f->err));
            if (at < size)
                memset(shadow + at, 0, size - at);
            size = at;
        } else {
            int64_t got = mr_object_read_some(o, buf, len, at, &f->err);
            OK(f, got);
            assert_int_equal(got, at >= size ? 0 : MR_MIN(len, size - at));
            if (f->has_content && got)
                assert_memory_equal(buf, shadow + at, (size_t)got);
        }
        uint64_t have;
        OK(f, mr_object_size(o, &have, &f->err));
        assert_int_equal(have, size);
    }
    OK(f, mr_object_close(o, &f->err));
    free(shadow);
    free(buf);
}

/* ---- paths ---- */

static void folders_list_rename_and_remove(void **state)
{
    struct fixture *f = *state;
    char a[512], b[512], c[512];
    struct mr_store_stat st;
    OK(f, mr_store_mkdirs(f->store, path_of(f, "x/y/z", a), &f->err));
    OK(f, mr_store_mkdirs(f->store, a, &f->err));
    OK(f, mr_store_mkdirs(f->store, path_of(f, "x//y/z/", b), &f->err));
    OK(f, f->ops->mkdir(f->store, a, &f->err));
    OK(f, mr_store_stat(f->store, a, &st, &f->err));
    assert_true(st.is_dir);
    for (unsigned i = 0; i < 50; i++) {
        char name[32];
        snprintf(name, sizeof(name), "x/y/z/file-%u", i);
        path_of(f, name, b);
        OK(f, mr_store_write_file(f->store, b, "abc", 3, &f->err));
    }
    assert_int_equal(entries(f, a), 50);
    assert_int_equal(f->ops->unlink(f->store, a, &f->err), -ENOTEMPTY);
    expect_text(f, a);
    /* A rename replaces what is there. */
    OK(f, mr_store_write_file(f->store, path_of(f, "x/new", c), "longer", 6, &f->err));
    OK(f, f->ops->rename(f->store, c, b, &f->err));
    OK(f, mr_store_stat(f->store, b, &st, &f->err));
    assert_int_equal(st.bytes, 6);
    assert_int_equal(mr_store_stat(f->store, c, &st, &f->err), -ENOENT);
    assert_int_equal(entries(f, a), 50);
    assert_int_equal(f->ops->rename(f->store, c, b, &f->err), -ENOENT);
    expect_text(f, c);
    expect_text(f, b);
    /* A folder moves with what is in it. */
    OK(f, f->ops->rename(f->store, path_of(f, "x/y", a), path_of(f, "moved", b), &f->err));
    assert_int_equal(entries(f, path_of(f, "moved/z", c)), 50);
    assert_int_equal(f->ops->list(f->store, a, count_name, NULL, &f->err), -ENOENT);
    OK(f, f->ops->sync_dir(f->store, b, &f->err));
    uint64_t bytes = 0, inodes = 0;
    OK(f, f->ops->free_space(f->store, f->dir, &bytes, &inodes, &f->err));
    assert_true(bytes > 0 && inodes > 0);
    assert_int_equal(f->ops->unlink(f->store, a, &f->err), -ENOENT);
    assert_int_equal(f->ops->mkdir(f->store, path_of(f, "moved/z/file-1", a), &f->err), -ENOTDIR);
}

static void whole_files_are_replaced_at_once_and_limited(void **state)
{
    struct fixture *f = *state;
    char p[512], sub[512];
    void *data = (void *)(uintptr_t)1;
    size_t len = 77;
    path_of(f, "sub", sub);
    OK(f, mr_store_mkdirs(f->store, sub, &f->err));
    path_of(f, "sub/conf", p);
    OK(f, mr_store_write_file(f->store, p, "first version", 13, &f->err));
    OK(f, mr_store_write_file(f->store, p, "second", 6, &f->err));
    assert_int_equal(entries(f, sub), 1); /* no temporary left */
    assert_int_equal(mr_store_read_file(f->store, p, 5, &data, &len, &f->err), MR_E_LIMIT);
    expect_text(f, "6 bytes, allowed are 5");
    assert_int_equal(len, 77);
    OK(f, mr_store_read_file(f->store, p, 6, &data, &len, &f->err));
    assert_int_equal(len, 6);
    assert_int_equal(((char *)data)[6], '\0');
    if (f->has_content)
        assert_memory_equal(data, "second", 6);
    free(data);
    OK(f, mr_store_write_file(f->store, p, "", 0, &f->err));
    OK(f, mr_store_read_file(f->store, p, 6, &data, &len, &f->err));
    assert_int_equal(len, 0);
    free(data);
    assert_int_equal(mr_store_write_file(f->store, path_of(f, "no/folder/x", p), "x", 1, &f->err), -ENOENT);
}

static void an_open_object_survives_its_removal(void **state)
{
    struct fixture *f = *state;
    struct mr_object *o;
    char p[512], buf[8];
    OK(f, mr_store_write_file(f->store, path_of(f, "gone", p), "content", 8, &f->err));
    OK(f, mr_object_open(f->store, p, MR_OBJ_READ, &o, &f->err));
    OK(f, f->ops->unlink(f->store, p, &f->err));
    OK(f, mr_object_read(o, buf, 8, 0, &f->err));
    if (f->has_content)
        assert_string_equal(buf, "content");
    OK(f, mr_object_close(o, &f->err));
}

/* ---- threads ---- */

enum { WRITERS = 4, BLOCK = 3333, BLOCKS = 64 };

struct writer {
    struct mr_object *o;
    unsigned index;
    bool verify, has_content;
    int rc;
};

static void *write_disjoint(void *arg)
{
    struct writer *w = arg;
    unsigned char buf[BLOCK];
    for (unsigned b = w->index; b < BLOCKS && w->rc == 0; b += WRITERS) {
        unsigned char want[BLOCK];
        fill(want, BLOCK, b);
        if (!w->verify) {
            w->rc = mr_object_write(w->o, want, BLOCK, (uint64_t)b * BLOCK, NULL);
            continue;
        }
        w->rc = mr_object_read(w->o, buf, BLOCK, (uint64_t)b * BLOCK, NULL);
        if (w->rc == 0 && w->has_content && memcmp(buf, want, BLOCK) != 0)
            w->rc = MR_E_CORRUPT;
    }
    return NULL;
}

static void threads_write_disjoint_ranges(void **state)
{
    struct fixture *f = *state;
    struct mr_object *o;
    char p[512];
    OK(f, mr_object_open(f->store, path_of(f, "threads", p), MR_OBJ_READ | MR_OBJ_WRITE | MR_OBJ_CREATE, &o, &f->err));
    for (unsigned pass = 0; pass < 2; pass++) {
        pthread_t t[WRITERS];
        struct writer w[WRITERS];
        for (unsigned i = 0; i < WRITERS; i++) {
            w[i] = (struct writer){
                .o = o, .index = (i + pass) % WRITERS, .verify = pass == 1, .has_content = f->has_content};
            assert_int_equal(pthread_create(&t[i], NULL, write_disjoint, &w[i]), 0);
        }
        for (unsigned i = 0; i < WRITERS; i++) {
            pthread_join(t[i], NULL);
            assert_int_equal(w[i].rc, 0);
        }
    }
    OK(f, mr_object_close(o, &f->err));
}

/* ---- queues ---- */

enum { MAX_DEPTH = 64, REGION = 10000 };

struct place {
    struct mr_io io;
    unsigned char *buf;
    bool busy, expect_end;
    uint64_t version; /* of the region's content; 0 = never written */
};

static void reap_some(struct fixture *f, struct mr_ioq *q, struct place *at, unsigned min, unsigned *flying)
{
    struct mr_io *done[MAX_DEPTH];
    int n = f->ops->ioq_reap(q, min, MAX_DEPTH, done, &f->err);
    OK(f, n);
    assert_true((unsigned)n <= *flying && (unsigned)n >= MR_MIN(min, *flying));
    for (int i = 0; i < n; i++) {
        struct place *p = done[i]->user;
        unsigned region = (unsigned)(p - at);
        assert_true(p->busy);
        p->busy = false;
        --*flying;
        if (p->io.op == MR_IO_FSYNC) {
            assert_int_equal(p->io.result, 0);
        } else if (p->expect_end) {
            assert_int_equal(p->io.result, 0);
        } else {
            assert_int_equal(p->io.result, REGION);
            if (p->io.op != MR_IO_WRITE)
                check(f, p->buf, REGION, p->version * 1000 + region);
        }
        OK(f, mr_io_error(&p->io, p->expect_end ? NULL : &f->err) < 0 && !p->expect_end ? -1 : 0);
    }
}

/* Each place owns one region of the file, so any order of completion gives one right answer. */
static void prepare(struct fixture *f, struct place *at, unsigned i, struct mr_object *o, const char *path, uint64_t r)
{
    struct place *p = &at[i];
    static const enum mr_io_op ops[] = {MR_IO_WRITE, MR_IO_READ, MR_IO_READ_PATH, MR_IO_FSYNC, MR_IO_WRITE, MR_IO_READ};
    enum mr_io_op op = p->version == 0 ? MR_IO_WRITE : ops[r % MR_ARRAY_LEN(ops)];
    p->expect_end = op == MR_IO_READ && r % 64 < 4;
    p->io = (struct mr_io){.op = op,
                           .object = o,
                           .path = path,
                           .buf = p->buf,
                           .len = REGION,
                           .user = p,
                           .offset = p->expect_end ? 1ull << 30 : (uint64_t)i * REGION};
    if (op == MR_IO_READ_PATH)
        p->io.object = NULL;
    if (op == MR_IO_WRITE) {
        p->version++;
        fill(p->buf, REGION, p->version * 1000 + i);
    } else {
        memset(p->buf, 0, REGION);
    }
    p->busy = true;
    (void)f;
}

static void queue_with_depth(struct fixture *f, unsigned depth, unsigned rounds)
{
    struct place *at = calloc(depth, sizeof(*at));
    struct mr_ioq *q;
    struct mr_object *o;
    char path[512];
    unsigned flying = 0, started = 0;
    uint64_t c = depth * 1000;
    assert_non_null(at);
    OK(f, mr_object_open(f->store, path_of(f, "queue", path),
                         MR_OBJ_READ | MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_TRUNCATE, &o, &f->err));
    OK(f, f->ops->truncate(o, (uint64_t)depth * REGION, &f->err));
    OK(f, f->ops->ioq_create(f->store, depth, &q, &f->err));
    assert_int_equal(q->depth, depth);
    for (unsigned i = 0; i < depth; i++)
        assert_int_equal(posix_memalign((void **)&at[i].buf, 4096, MR_ALIGN_UP(REGION, 4096)), 0);
    while (started < rounds || flying > 0) {
        struct mr_io *batch[MAX_DEPTH];
        unsigned n = 0, want = (unsigned)mr_rng_below(mr_rng_at(9, MR_RNG_TEST, c++), depth) + 1;
        for (unsigned i = 0; i < depth && n < want && started < rounds; i++)
            if (!at[i].busy) {
                prepare(f, at, i, o, path, mr_rng_at(9, MR_RNG_TEST, c++));
                batch[n++] = &at[i].io;
                started++;
            }
        OK(f, f->ops->ioq_submit(q, batch, n, &f->err));
        flying += n;
        reap_some(f, q, at, (unsigned)mr_rng_below(mr_rng_at(9, MR_RNG_TEST, c++), flying + 1), &flying);
        if (started >= rounds)
            reap_some(f, q, at, flying, &flying);
    }
    assert_int_equal(f->ops->ioq_reap(q, 5, 5, (struct mr_io *[5]){0}, &f->err), 0); /* nothing in flight: no wait */
    f->ops->ioq_free(q);
    OK(f, mr_object_close(o, &f->err));
    for (unsigned i = 0; i < depth; i++)
        free(at[i].buf);
    free(at);
}

static void queues_complete_every_request_once(void **state)
{
    struct fixture *f = *state;
    static const unsigned depths[] = {1, 2, 7, MAX_DEPTH};
    for (size_t i = 0; i < MR_ARRAY_LEN(depths); i++)
        queue_with_depth(f, depths[i], depths[i] * 4 + 20);
}

static void queue_refuses_more_than_its_depth(void **state)
{
    struct fixture *f = *state;
    struct mr_ioq *q;
    char p[512], buf[4][16];
    struct mr_io io[4], *list[4], *done[4];
    struct mr_object *o;
    OK(f, mr_store_write_file(f->store, path_of(f, "full", p), "0123456789abcdef", 16, &f->err));
    OK(f, mr_object_open(f->store, p, MR_OBJ_READ, &o, &f->err));
    assert_int_equal(f->ops->ioq_create(f->store, 0, &q, &f->err), MR_E_USAGE);
    assert_int_equal(f->ops->ioq_create(f->store, 1u << 20, &q, &f->err), MR_E_USAGE);
    OK(f, f->ops->ioq_create(f->store, 3, &q, &f->err));
    for (unsigned i = 0; i < 4; i++) {
        io[i] = (struct mr_io){.op = MR_IO_READ, .object = o, .buf = buf[i], .len = 16};
        list[i] = &io[i];
    }
    OK(f, f->ops->ioq_submit(q, list, 0, &f->err));
    assert_int_equal(f->ops->ioq_submit(q, list, 4, &f->err), MR_E_USAGE);
    expect_text(f, "depth 3, in flight 0, want 4");
    OK(f, f->ops->ioq_submit(q, list, 2, &f->err));
    assert_int_equal(f->ops->ioq_submit(q, list + 2, 2, &f->err), MR_E_USAGE);
    OK(f, f->ops->ioq_submit(q, list + 2, 1, &f->err));
    assert_int_equal(f->ops->ioq_reap(q, 1000, 4, done, &f->err), 3);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(io[i].result, 16);
    /* Freeing waits for what is in flight. */
    OK(f, f->ops->ioq_submit(q, list, 3, &f->err));
    f->ops->ioq_free(q);
    OK(f, mr_object_close(o, &f->err));
}

static int64_t one(struct fixture *f, struct mr_ioq *q, struct mr_io *io)
{
    struct mr_io *list = io, *done = NULL;
    io->result = -12345;
    OK(f, f->ops->ioq_submit(q, &list, 1, &f->err));
    assert_int_equal(f->ops->ioq_reap(q, 1, 1, &done, &f->err), 1);
    assert_ptr_equal(done, io);
    return io->result;
}

static void queue_reports_errors_and_stays_usable(void **state)
{
    struct fixture *f = *state;
    struct mr_ioq *q;
    struct mr_object *o, *readable;
    char p[512], missing[512];
    unsigned char *buf = NULL;
    assert_int_equal(posix_memalign((void **)&buf, 4096, 3 << 20), 0);
    fill(buf, 9000, 5);
    OK(f, mr_store_write_file(f->store, path_of(f, "nine", p), buf, 9000, &f->err));
    OK(f, mr_object_open(f->store, p, MR_OBJ_WRITE, &o, &f->err));
    OK(f, mr_object_open(f->store, p, MR_OBJ_READ | MR_OBJ_DIRECT, &readable, &f->err));
    OK(f, f->ops->ioq_create(f->store, 4, &q, &f->err));
    for (unsigned pass = 0; pass < 3; pass++) {
        struct mr_io io = {.op = MR_IO_READ_PATH, .path = path_of(f, "missing", missing), .buf = buf, .len = 4096};
        assert_int_equal(one(f, q, &io), -ENOENT);
        assert_int_equal(mr_io_error(&io, &f->err), -ENOENT);
        expect_text(f, missing);
        io.path = f->dir;
        assert_int_equal(one(f, q, &io), -EISDIR);
        io = (struct mr_io){.op = MR_IO_READ, .object = o, .buf = buf, .len = 4096};
        assert_int_equal(one(f, q, &io), -EBADF);
        /* Whole file into a larger buffer, aligned and not, direct and not, with an offset, and far behind the end. */
        unsigned direct = pass == 1 ? MR_OBJ_DIRECT : 0;
        size_t shift = pass == 2 ? 3 : 0;
        io = (struct mr_io){.op = MR_IO_READ_PATH, .flags = direct, .path = p, .buf = buf + shift, .len = 16384};
        memset(buf, 0, 16384 + shift);
        assert_int_equal(one(f, q, &io), 9000);
        check(f, buf + shift, 9000, 5);
        assert_int_equal(mr_io_error(&io, &f->err), MR_E_FORMAT);
        io.len = 9000;
        memset(buf, 0, 16384 + shift);
        assert_int_equal(one(f, q, &io), 9000);
        check(f, buf + shift, 9000, 5);
        io.offset = 4097;
        io.len = (2 << 20) + 5;
        assert_int_equal(one(f, q, &io), 9000 - 4097);
        check(f, buf + shift, 9000 - 4097, 5 + 4097);
        io = (struct mr_io){.op = MR_IO_READ, .object = readable, .buf = buf, .len = 12288, .enough = 8999};
        memset(buf, 0, 12288);
        int64_t got = one(f, q, &io);
        assert_true(got >= 8999 && got <= 9000);
        check(f, buf, 8999, 5);
        assert_int_equal(mr_io_error(&io, &f->err), 0);
        io.enough = 9001;
        assert_int_equal(one(f, q, &io), 9000);
        assert_int_equal(mr_io_error(&io, &f->err), MR_E_FORMAT);
        io = (struct mr_io){.op = MR_IO_READ_PATH, .flags = direct, .path = p, .buf = buf + shift, .len = 4096};
        io.offset = 9000;
        assert_int_equal(one(f, q, &io), 0);
        io.offset = 0;
        io.len = 0;
        assert_int_equal(one(f, q, &io), 0);
    }
    f->ops->ioq_free(q);
    f->ops->ioq_free(NULL);
    OK(f, mr_object_close(readable, &f->err));
    OK(f, mr_object_close(o, &f->err));
    free(buf);
}

/* A large range that starts and ends between blocks takes several pieces in direct mode. */
static void queue_moves_large_unaligned_ranges(void **state)
{
    struct fixture *f = *state;
    enum { BIG = (3 << 20) + 777, AT = 1234 };
    struct mr_ioq *q;
    struct mr_object *o;
    char p[512];
    unsigned char *buf = malloc(BIG + 1);
    assert_non_null(buf);
    OK(f, mr_object_open(f->store, path_of(f, "large", p), MR_OBJ_READ | MR_OBJ_WRITE | MR_OBJ_CREATE, &o, &f->err));
    OK(f, f->ops->ioq_create(f->store, 2, &q, &f->err));
    for (unsigned shift = 0; shift < 2; shift += mr_test_stride(2)) {
        fill(buf + shift, BIG, 99 + shift);
        struct mr_io io = {.op = MR_IO_WRITE, .object = o, .buf = buf + shift, .len = BIG, .offset = AT};
        assert_int_equal(one(f, q, &io), BIG);
        memset(buf, 0, BIG + 1);
        io.op = MR_IO_READ;
        assert_int_equal(one(f, q, &io), BIG);
        check(f, buf + shift, BIG, 99 + shift);
        memset(buf, 0, BIG + 1);
        io = (struct mr_io){
            .op = MR_IO_READ_PATH, .path = p, .buf = buf + shift, .len = BIG, .offset = AT, .flags = MR_OBJ_DIRECT};
        assert_int_equal(one(f, q, &io), BIG);
        check(f, buf + shift, BIG, 99 + shift);
    }
    f->ops->ioq_free(q);
    OK(f, mr_object_close(o, &f->err));
    free(buf);
}

/* Reads and writes inside, outside and across the end of registered memory give the same bytes. */
static void registered_buffers_serve_requests(void **state)
{
    struct fixture *f = *state;
    enum { HALF = 1 << 16 };
    struct mr_ioq *q;
    struct mr_object *o;
    char p[512];
    unsigned char *mem = NULL, *other = malloc(HALF);
    assert_non_null(other);
    assert_int_equal(posix_memalign((void **)&mem, 4096, 4 * HALF), 0);
    OK(f,
       mr_object_open(f->store, path_of(f, "registered", p), MR_OBJ_READ | MR_OBJ_WRITE | MR_OBJ_CREATE, &o, &f->err));
    OK(f, f->ops->ioq_create(f->store, 4, &q, &f->err));
    struct iovec iov[] = {{.iov_base = mem + 2 * HALF, .iov_len = HALF}, {.iov_base = mem, .iov_len = HALF}};
    for (unsigned pass = 0; pass < 3; pass++) { /* registered, registered anew, taken back */
        int used = f->ops->ioq_register(q, iov, pass < 2 ? 2 - pass : 0, &f->err);
        assert_in_range(used, 0, 1);
        unsigned char *places[] = {mem, mem + 100, mem + 2 * HALF, mem + HALF - 2048, mem + 3 * HALF, other};
        for (size_t i = 0; i < MR_ARRAY_LEN(places); i++) {
            fill(places[i], 4096, pass * 10 + i);
            struct mr_io io = {.op = MR_IO_WRITE, .object = o, .buf = places[i], .len = 4096, .offset = i * 4096};
            assert_int_equal(one(f, q, &io), 4096);
            for (unsigned by_path = 0; by_path < 2; by_path++) {
                memset(places[i], 0, 4096);
                io.op = by_path ? MR_IO_READ_PATH : MR_IO_READ;
                io.path = p;
                assert_int_equal(one(f, q, &io), 4096);
                check(f, places[i], 4096, pass * 10 + i);
            }
        }
    }
    f->ops->ioq_free(q);
    OK(f, mr_object_close(o, &f->err));
    free(mem);
    free(other);
}

static void registering_checks_what_it_gets(void **state)
{
    struct fixture *f = *state;
    struct mr_ioq *q;
    char p[512], buf[64];
    OK(f, mr_store_write_file(f->store, path_of(f, "r", p), "0123456789abcdef", 16, &f->err));
    OK(f, f->ops->ioq_create(f->store, 2, &q, &f->err));
    struct iovec none = {0}, some = {.iov_base = buf, .iov_len = sizeof(buf)};
    assert_int_equal(f->ops->ioq_register(q, &none, 1, &f->err), MR_E_USAGE);
    struct mr_io io = {.op = MR_IO_READ_PATH, .path = p, .buf = buf, .len = 16}, *list = &io;
    OK(f, f->ops->ioq_submit(q, &list, 1, &f->err));
    assert_int_equal(f->ops->ioq_register(q, &some, 1, &f->err), MR_E_USAGE);
    expect_text(f, "1 requests in flight");
    assert_int_equal(f->ops->ioq_reap(q, 1, 1, &list, &f->err), 1);
    assert_int_equal(io.result, 16);
    OK(f, f->ops->ioq_register(q, &some, 1, &f->err));
    OK(f, f->ops->ioq_register(q, NULL, 0, &f->err));
    f->ops->ioq_free(q);
}

struct queue_user {
    struct fixture *f;
    const char *path;
    int64_t bytes;
};

static void *use_own_queue(void *arg)
{
    struct queue_user *u = arg;
    const struct mr_store_ops *ops = u->f->ops;
    struct mr_ioq *q;
    unsigned char buf[8][1000];
    struct mr_io io[8], *list[8], *done[8];
    if (ops->ioq_create(u->f->store, 8, &q, NULL) < 0)
        return NULL;
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < 8; i++) {
            io[i] = (struct mr_io){.op = MR_IO_READ_PATH, .path = u->path, .buf = buf[i], .len = 1000, .offset = i};
            list[i] = &io[i];
        }
        if (ops->ioq_submit(q, list, 8, NULL) < 0)
            break;
        int n = ops->ioq_reap(q, 8, 8, done, NULL);
        for (int i = 0; i < n; i++)
            u->bytes += done[i]->result;
    }
    ops->ioq_free(q);
    return NULL;
}

static void every_thread_has_its_own_queue(void **state)
{
    struct fixture *f = *state;
    char p[512];
    unsigned char data[2000];
    fill(data, sizeof(data), 1);
    OK(f, mr_store_write_file(f->store, path_of(f, "shared", p), data, sizeof(data), &f->err));
    pthread_t t[4];
    struct queue_user u[4];
    for (unsigned i = 0; i < 4; i++) {
        u[i] = (struct queue_user){.f = f, .path = p};
        assert_int_equal(pthread_create(&t[i], NULL, use_own_queue, &u[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(u[i].bytes, 20 * 8 * 1000);
    }
}

/* ---- page cache ---- */

static void page_cache_can_be_dropped_and_measured(void **state)
{
    struct fixture *f = *state;
    struct mr_object *o;
    char p[512];
    enum { BYTES = 1 << 20 };
    char *buf = calloc(1, BYTES);
    assert_non_null(buf);
    OK(f, mr_store_write_file(f->store, path_of(f, "cached", p), buf, BYTES, &f->err));
    OK(f, mr_object_open(f->store, p, MR_OBJ_READ, &o, &f->err));
    uint64_t resident = 0, total = 0;
    int rc = f->ops->drop_cache(o, &f->err);
    if (rc == MR_E_UNSUPPORTED) {
        expect_text(f, "has no page cache");
        assert_int_equal(f->ops->resident(o, &resident, &total, &f->err), MR_E_UNSUPPORTED);
    } else {
        struct mr_cold cold;
        const char *paths[] = {p};
        OK(f, rc);
        OK(f, f->ops->resident(o, &resident, &total, &f->err));
        assert_int_equal(total, BYTES);
        struct stat st;
        bool tmpfs = stat(p, &st) == 0 && resident == BYTES; /* a memory file system drops nothing */
        if (!tmpfs)
            assert_int_equal(resident, 0);
        OK(f, mr_store_cold_fraction(f->store, paths, 1, &cold, &f->err));
        assert_int_equal(cold.total_bytes, BYTES);
        assert_int_equal(cold.cold_bytes, BYTES - resident);
        OK(f, mr_object_read(o, buf, BYTES, 0, &f->err));
        OK(f, f->ops->resident(o, &resident, &total, &f->err));
        assert_true(resident <= total);
    }
    OK(f, mr_object_close(o, &f->err));
    free(buf);
}

#include "conformance/store_objects.h"

enum kind { ANY, IN_PLACE, WHOLE }; /* every store; those that write in place; those that write whole objects */

static bool fits(const char *stack, enum kind kind)
{
    unsigned caps = 0;
    struct mr_error err;
    if (mr_store_spec_caps(stack, &caps, &err) < 0)
        return kind != WHOLE; /* the setup says what is wrong */
    bool whole = (caps & MR_STORE_CAP_WHOLE_PUT) && !(caps & MR_STORE_CAP_RENAME);
    return kind == ANY || whole == (kind == WHOLE);
}

int main(void)
{
    static const struct {
        const char *name;
        CMUnitTestFunction fn;
        enum kind kind;
    } cases[] = {
#define CASE(fn, kind) {#fn, fn, kind}
        CASE(written_bytes_are_read_back, IN_PLACE),
        CASE(reads_end_at_the_end, ANY),
        CASE(success_leaves_the_error_untouched, ANY),
        CASE(opening_checks_what_is_there, IN_PLACE),
        CASE(rights_of_an_object_are_kept, ANY),
        CASE(holes_read_as_zeros_beyond_4_gib, IN_PLACE),
        CASE(random_history_matches_a_shadow, IN_PLACE),
        CASE(folders_list_rename_and_remove, IN_PLACE),
        CASE(whole_files_are_replaced_at_once_and_limited, IN_PLACE),
        CASE(an_open_object_survives_its_removal, IN_PLACE),
        CASE(threads_write_disjoint_ranges, IN_PLACE),
        CASE(queues_complete_every_request_once, IN_PLACE),
        CASE(queue_refuses_more_than_its_depth, ANY),
        CASE(queue_reports_errors_and_stays_usable, IN_PLACE),
        CASE(queue_moves_large_unaligned_ranges, IN_PLACE),
        CASE(registered_buffers_serve_requests, IN_PLACE),
        CASE(registering_checks_what_it_gets, ANY),
        CASE(every_thread_has_its_own_queue, ANY),
        CASE(page_cache_can_be_dropped_and_measured, ANY),
        CASE(put_bytes_are_read_back, WHOLE),
        CASE(put_objects_open_as_they_are, WHOLE),
        CASE(put_holes_are_zeros, WHOLE),
        CASE(put_threads_write_disjoint_ranges, WHOLE),
        CASE(put_folders_are_prefixes, WHOLE),
        CASE(put_replaces_at_once, WHOLE),
        CASE(put_exclusive_has_one_winner, WHOLE),
        CASE(put_versions_are_not_mixed, WHOLE),
        CASE(put_queues_read_many, WHOLE),
    };
    const char *only = conformance_only();
    size_t n_stacks = only ? 1 : MR_ARRAY_LEN(stacks);
    enum { N = MR_ARRAY_LEN(stacks) * MR_ARRAY_LEN(cases) };
    static struct CMUnitTest tests[N];
    static char names[N][160];
    size_t n = 0;
    for (size_t i = 0; i < n_stacks * MR_ARRAY_LEN(cases); i++) {
        size_t c = i % MR_ARRAY_LEN(cases);
        const char *stack = only ? only : stacks[i / MR_ARRAY_LEN(cases)];
        if (!fits(stack, cases[c].kind))
            continue;
        snprintf(names[n], sizeof(names[n]), "%s [%.60s]", cases[c].name, stack);
        tests[n] = (struct CMUnitTest){.name = names[n],
                                       .test_func = cases[c].fn,
                                       .setup_func = setup,
                                       .teardown_func = teardown,
                                       .initial_state = (void *)(uintptr_t)stack};
        n++;
    }
    return _cmocka_run_group_tests("stores", tests, n, NULL, NULL);
}
