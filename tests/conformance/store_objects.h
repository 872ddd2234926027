/* What a store must do that writes whole objects only (no rename, no writes in place): object storage. Included by
 * test_store_conformance.c, whose helpers it uses. */
#ifndef MR_TESTS_STORE_OBJECTS_H
#define MR_TESTS_STORE_OBJECTS_H

#define PUT_FLAGS (MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_TRUNCATE)

/* Writes [0, len) in pieces of `piece` bytes, every second one first. */
static void put_in_pieces(struct fixture *f, const char *path, const unsigned char *data, size_t len, size_t piece)
{
    struct mr_object *o;
    OK(f, mr_object_open(f->store, path, PUT_FLAGS, &o, &f->err));
    for (unsigned odd = 0; odd < 2; odd++)
        for (size_t i = 0; i * piece < len; i++)
            if (i % 2 == (odd ^ 1))
                OK(f, mr_object_write(o, data + i * piece, MR_MIN(piece, len - i * piece), i * piece, &f->err));
    uint64_t size = 0;
    OK(f, mr_object_size(o, &size, &f->err));
    assert_int_equal(size, len);
    OK(f, f->ops->fsync(o, &f->err));
    OK(f, mr_object_close(o, &f->err));
}

static void put_bytes_are_read_back(void **state)
{
    struct fixture *f = *state;
    static const size_t lens[] = {0, 1, 4096, 100001, (5 << 20) + 3, (17 << 20) + 1};
    unsigned char *w = malloc(18 << 20), *r = malloc(18 << 20);
    char p[512];
    assert_true(w && r);
    for (size_t i = 0; i < MR_ARRAY_LEN(lens); i++) {
        struct mr_object *o;
        struct mr_store_stat st;
        size_t len = lens[i], from = len / 3;
        path_of(f, "object", p);
        fill(w, len, i);
        put_in_pieces(f, p, w, len, len > 200000 ? 777777 : 3000);
        OK(f, mr_store_stat(f->store, p, &st, &f->err));
        assert_int_equal(st.bytes, len);
        OK(f, mr_object_open(f->store, p, MR_OBJ_READ, &o, &f->err));
        OK(f, mr_object_read(o, r, len, 0, &f->err));
        check(f, r, len, i);
        assert_int_equal(mr_object_read_some(o, r, len, from, &f->err), len - from);
        if (len && memcmp(r, w + from, len - from) != 0)
            fail_msg("a range of %zu bytes differs", len);
        OK(f, mr_object_close(o, &f->err));
    }
    free(w);
    free(r);
}

static void put_objects_open_as_they_are(void **state)
{
    struct fixture *f = *state;
    struct mr_object *o = NULL;
    char p[512], q[512], text[5] = "";
    path_of(f, "a/b/one", p);
    assert_int_equal(mr_object_open(f->store, p, MR_OBJ_READ, &o, &f->err), -ENOENT);
    expect_text(f, p);
    assert_int_equal(mr_object_open(f->store, p, MR_OBJ_WRITE, &o, &f->err), -ENOENT);
    OK(f, mr_store_write_file(f->store, p, "four", 4, &f->err));
    assert_int_equal(mr_object_open(f->store, path_of(f, "a/b", q), MR_OBJ_READ, &o, &f->err), -EISDIR);
    assert_int_equal(mr_object_open(f->store, p, MR_OBJ_WRITE, &o, &f->err), MR_E_UNSUPPORTED);
    expect_text(f, "in place");
    assert_int_equal(mr_object_open(f->store, p, MR_OBJ_READ | PUT_FLAGS, &o, &f->err), MR_E_UNSUPPORTED);
    assert_int_equal(mr_object_open(f->store, p, PUT_FLAGS | MR_OBJ_EXCLUSIVE, &o, &f->err), -EEXIST);
    assert_int_equal(f->ops->rename(f->store, p, q, &f->err), MR_E_UNSUPPORTED);
    OK(f, mr_object_open(f->store, p, MR_OBJ_READ, &o, &f->err));
    OK(f, mr_object_read(o, text, 4, 0, &f->err));
    assert_string_equal(text, "four");
    OK(f, mr_object_close(o, &f->err));
}

static void put_holes_are_zeros(void **state)
{
    struct fixture *f = *state;
    enum { FAR = (21 << 20) + 5, N = 1000 };
    struct mr_object *o;
    char p[512];
    unsigned char buf[N], *all = calloc(1, FAR + N), *want = calloc(1, FAR + N);
    assert_true(all && want);
    path_of(f, "sparse", p);
    fill(buf, N, 7);
    fill(want + FAR, N, 7);
    memcpy(want + 4000, buf, N);
    OK(f, mr_object_open(f->store, p, PUT_FLAGS, &o, &f->err));
    OK(f, f->ops->allocate(o, FAR, &f->err));
    OK(f, mr_object_write(o, buf, N, FAR, &f->err));
    OK(f, mr_object_write(o, buf, N, 4000, &f->err));
    OK(f, mr_object_close(o, &f->err));
    OK(f, mr_object_open(f->store, p, MR_OBJ_READ, &o, &f->err));
    OK(f, mr_object_read(o, all, FAR + N, 0, &f->err));
    assert_memory_equal(all, want, FAR + N);
    OK(f, mr_object_close(o, &f->err));
    free(all);
    free(want);
}

struct put_writer {
    struct mr_object *o;
    const unsigned char *data;
    size_t len, piece;
    unsigned index, of;
    int rc;
};

static void *put_some(void *arg)
{
    struct put_writer *w = arg;
    for (size_t i = w->index; i * w->piece < w->len && !w->rc; i += w->of)
        w->rc =
            mr_object_write(w->o, w->data + i * w->piece, MR_MIN(w->piece, w->len - i * w->piece), i * w->piece, NULL);
    return NULL;
}

static void put_threads_write_disjoint_ranges(void **state)
{
    struct fixture *f = *state;
    enum { T = 4, LEN = (26 << 20) + 11 };
    unsigned char *w = malloc(LEN), *r = malloc(LEN);
    struct put_writer who[T];
    struct mr_object *o;
    pthread_t t[T];
    char p[512];
    assert_true(w && r);
    fill(w, LEN, 3);
    path_of(f, "threads", p);
    OK(f, mr_object_open(f->store, p, PUT_FLAGS, &o, &f->err));
    for (unsigned i = 0; i < T; i++) {
        who[i] = (struct put_writer){.o = o, .data = w, .len = LEN, .piece = 999983, .index = i, .of = T};
        assert_int_equal(pthread_create(&t[i], NULL, put_some, &who[i]), 0);
    }
    for (unsigned i = 0; i < T; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(who[i].rc, 0);
    }
    OK(f, mr_object_close(o, &f->err));
    OK(f, mr_object_open(f->store, p, MR_OBJ_READ, &o, &f->err));
    OK(f, mr_object_read(o, r, LEN, 0, &f->err));
    assert_memory_equal(r, w, LEN);
    OK(f, mr_object_close(o, &f->err));
    free(w);
    free(r);
}

static int note_name(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    char *all = user;
    (void)err;
    snprintf(all + strlen(all), 4096 - strlen(all), "%s%s\n", name, is_dir ? "/" : "");
    return 0;
}

static void put_folders_are_prefixes(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {
        "x/a b", "x/a+b", "x/a%20b", "x/\xc3\xa4\xc3\xb6", "x/a&b<c>'\"", "x/y/z/one", "x/y/two", "x=1,2;3@4:5!", "xx"};
    char p[512], all[4096] = "", text[16];
    struct mr_store_stat st;
    void *data;
    size_t len;
    OK(f, f->ops->mkdir(f->store, path_of(f, "x", p), &f->err));
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++) {
        snprintf(text, sizeof text, "%zu", i);
        OK(f, mr_store_write_file(f->store, path_of(f, names[i], p), text, strlen(text), &f->err));
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++) {
        snprintf(text, sizeof text, "%zu", i);
        OK(f, mr_store_read_file(f->store, path_of(f, names[i], p), 9, &data, &len, &f->err));
        assert_string_equal(data, text);
        free(data);
    }
    OK(f, f->ops->list(f->store, path_of(f, "x", p), note_name, all, &f->err));
    static const char *const want[] = {"a b\n", "a+b\n", "a%20b\n", "\xc3\xa4\xc3\xb6\n", "a&b<c>'\"\n", "y/\n"};
    for (size_t i = 0; i < MR_ARRAY_LEN(want); i++)
        if (!strstr(all, want[i]))
            fail_msg("'%s' is missing in the list '%s'", want[i], all);
    assert_int_equal(entries(f, p), 6);
    OK(f, mr_store_stat(f->store, path_of(f, "x/y", p), &st, &f->err));
    assert_true(st.is_dir);
    assert_int_equal(f->ops->unlink(f->store, p, &f->err), -ENOTEMPTY);
    assert_int_equal(f->ops->list(f->store, path_of(f, "nothing", p), count_name, NULL, &f->err), -ENOENT);
    assert_int_equal(f->ops->list(f->store, path_of(f, "xx", p), count_name, NULL, &f->err), -ENOTDIR);
    assert_int_equal(f->ops->unlink(f->store, path_of(f, "nothing", p), &f->err), -ENOENT);
    OK(f, f->ops->unlink(f->store, path_of(f, "xx", p), &f->err));
    assert_int_equal(mr_store_stat(f->store, p, &st, &f->err), -ENOENT);
    OK(f, mr_store_remove_objects(f->store, path_of(f, "x", p), "a+b", &f->err)); /* many by one request */
    assert_int_equal(entries(f, p), 1);                                           /* what lies deeper stays */
    OK(f, mr_store_remove_objects(f->store, path_of(f, "x/y", p), "two", &f->err));
    OK(f, mr_store_remove_objects(f->store, path_of(f, "x/y/z", p), "none", &f->err));
    OK(f, mr_store_remove_objects(f->store, p, "none", &f->err)); /* there is nothing any more */
    assert_int_equal(f->ops->list(f->store, path_of(f, "x", p), count_name, NULL, &f->err), -ENOENT);
}

/* Until the close there is the old object, whole; a writer that abandons its object leaves no trace. */
static void put_replaces_at_once(void **state)
{
    struct fixture *f = *state;
    enum { LEN = 7 << 20 };
    unsigned char *w = malloc(LEN);
    struct mr_object *o;
    char p[512];
    void *data;
    size_t len;
    assert_non_null(w);
    fill(w, LEN, 1);
    path_of(f, "conf", p);
    OK(f, mr_store_write_file(f->store, p, "first version", 13, &f->err));
    for (unsigned keep = 0; keep < 2; keep++) {
        OK(f, mr_object_open(f->store, p, PUT_FLAGS, &o, &f->err));
        OK(f, mr_object_write(o, w, LEN, LEN, &f->err));
        OK(f, mr_object_write(o, w, LEN, 0, &f->err));
        OK(f, mr_store_read_file(f->store, p, 20, &data, &len, &f->err));
        assert_string_equal(data, "first version");
        free(data);
        if (!keep)
            mr_object_abandon(o);
        int rc = mr_object_close(o, keep ? &f->err : NULL);
        OK(f, keep ? rc : 0);
    }
    OK(f, mr_store_read_file(f->store, p, 2 * LEN, &data, &len, &f->err));
    assert_int_equal(len, 2 * LEN);
    assert_memory_equal(data, w, LEN);
    assert_memory_equal((char *)data + LEN, w, LEN);
    free(data);
    uint64_t n = 0;
    OK(f, mr_store_abort_unfinished(f->store, f->dir, "", &n, &f->err));
    assert_int_equal(n, 0);
    free(w);
}

/* Of two that make the same new object one succeeds: small ones and such in parts. */
static void put_exclusive_has_one_winner(void **state)
{
    struct fixture *f = *state;
    enum { LEN = 9 << 20 };
    unsigned char *w = calloc(1, LEN);
    assert_non_null(w);
    for (unsigned large = 0; large < 2; large++) {
        struct mr_object *a, *b;
        char p[512];
        size_t len = large ? LEN : 10, had;
        void *data;
        path_of(f, large ? "large" : "small", p);
        OK(f, mr_object_open(f->store, p, PUT_FLAGS | MR_OBJ_EXCLUSIVE, &a, &f->err));
        OK(f, mr_object_open(f->store, p, PUT_FLAGS | MR_OBJ_EXCLUSIVE, &b, &f->err));
        memset(w, 'a', len);
        OK(f, mr_object_write(a, w, len, 0, &f->err));
        memset(w, 'b', len);
        OK(f, mr_object_write(b, w, len, 0, &f->err));
        OK(f, mr_object_close(a, &f->err));
        assert_int_equal(mr_object_close(b, &f->err), -EEXIST);
        OK(f, mr_store_read_file(f->store, p, LEN, &data, &had, &f->err));
        assert_int_equal(had, len);
        assert_int_equal(((char *)data)[len - 1], 'a');
        free(data);
    }
    free(w);
}

/* An open object is one version: what replaces it is never mixed in. */
static void put_versions_are_not_mixed(void **state)
{
    struct fixture *f = *state;
    struct mr_object *o;
    char p[512], buf[8];
    OK(f, mr_store_write_file(f->store, path_of(f, "versions", p), "content", 8, &f->err));
    OK(f, mr_object_open(f->store, p, MR_OBJ_READ, &o, &f->err));
    OK(f, mr_object_read(o, buf, 4, 0, &f->err));
    OK(f, mr_store_write_file(f->store, p, "another", 8, &f->err));
    assert_int_equal(mr_object_read(o, buf, 4, 4, &f->err), MR_E_CHANGED);
    expect_text(f, "replaced");
    OK(f, mr_object_close(o, &f->err));
    OK(f, mr_object_open(f->store, p, MR_OBJ_READ, &o, &f->err));
    OK(f, mr_object_read(o, buf, 8, 0, &f->err));
    assert_string_equal(buf, "another");
    OK(f, f->ops->unlink(f->store, p, &f->err));
    assert_true(mr_object_read(o, buf, 8, 0, &f->err) < 0);
    OK(f, mr_object_close(o, &f->err));
}

static void put_queues_read_many(void **state)
{
    struct fixture *f = *state;
    enum { FILES = 40, LEN = 20000, BIG = (19 << 20) + 5, DEPTH = 16 };
    struct mr_io io[DEPTH], *list[DEPTH], *done[DEPTH];
    char path[DEPTH][512], p[512], missing[512], name[32];
    unsigned char *buf = malloc(BIG), *small = malloc((size_t)DEPTH * LEN);
    struct mr_ioq *q;
    assert_true(buf && small);
    for (unsigned i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "many/%u", i);
        fill(buf, LEN, i);
        OK(f, mr_store_write_file(f->store, path_of(f, name, p), buf, LEN, &f->err));
    }
    fill(buf, BIG, 77);
    put_in_pieces(f, path_of(f, "big", p), buf, BIG, 1 << 20);
    OK(f, f->ops->ioq_create(f->store, DEPTH, &q, &f->err));
    for (unsigned from = 0; from < FILES; from += DEPTH) {
        unsigned n = MR_MIN(FILES - from, (unsigned)DEPTH);
        for (unsigned i = 0; i < n; i++) {
            snprintf(name, sizeof name, "many/%u", from + i);
            io[i] = (struct mr_io){
                .op = MR_IO_READ_PATH, .path = path_of(f, name, path[i]), .buf = small + (size_t)i * LEN, .len = LEN};
            list[i] = &io[i];
        }
        OK(f, f->ops->ioq_submit(q, list, n, &f->err));
        for (unsigned got = 0; got < n;) {
            int r = f->ops->ioq_reap(q, 1, DEPTH, done, &f->err);
            OK(f, r);
            got += (unsigned)r;
        }
        for (unsigned i = 0; i < n; i++) {
            assert_int_equal(io[i].result, LEN);
            check(f, io[i].buf, LEN, from + i);
        }
    }
    for (unsigned pass = 0; pass < 2; pass++) { /* errors leave the queue usable */
        struct mr_io bad = {.op = MR_IO_READ_PATH, .path = path_of(f, "missing", missing), .buf = buf, .len = 10};
        assert_int_equal(one(f, q, &bad), -ENOENT);
        assert_int_equal(mr_io_error(&bad, &f->err), -ENOENT);
        expect_text(f, missing);
        struct mr_io whole = {.op = MR_IO_READ_PATH, .path = p, .buf = buf, .len = BIG - 9, .offset = 9};
        memset(buf, 0, BIG);
        assert_int_equal(one(f, q, &whole), BIG - 9);
        check(f, buf, BIG - 9, 77 + 9);
        whole.offset = BIG - 100;
        assert_int_equal(one(f, q, &whole), 100);
        whole.offset = BIG;
        assert_int_equal(one(f, q, &whole), 0);
    }
    f->ops->ioq_free(q);
    free(buf);
    free(small);
}

#endif
