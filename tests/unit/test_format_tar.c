/* Tar shards: grouping, names, labels, extended headers, hostile archives. Archives are made block by block here, so
 * that every field can be wrong; the interoperability test uses Python's tarfile. */
#include "format_testlib.h"

extern const struct mr_format_ops mr_format_tar;

struct archive {
    uint8_t bytes[64 * 512];
    size_t len;
};

static uint8_t *put_member(struct archive *a, const char *name, char type, const void *data, size_t len)
{
    uint8_t *h = a->bytes + a->len;
    memset(h, 0, 512);
    memcpy(h, name, MR_MIN(strlen(name), (size_t)100));
    snprintf((char *)h + 100, 8, "0000644");
    snprintf((char *)h + 124, 12, "%011zo", len);
    memset(h + 148, ' ', 8);
    h[156] = (uint8_t)type;
    memcpy(h + 257, "ustar\00000", 8);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++)
        sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", sum);
    a->len += 512;
    memcpy(a->bytes + a->len, data, len);
    memset(a->bytes + a->len + len, 0, MR_ALIGN_UP(len, 512) - len);
    a->len += MR_ALIGN_UP(len, 512);
    return h;
}

static void put_text(struct archive *a, const char *name, const char *text)
{
    put_member(a, name, '0', text, strlen(text));
}

static void fix_sum(uint8_t *h)
{
    unsigned sum = 0;
    memset(h + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", sum);
}

struct result {
    struct mr_store *s;
    struct test_scan c;
    struct mr_error err;
};

static int scan(struct archive *a, struct result *r, bool end_blocks)
{
    if (end_blocks) {
        memset(a->bytes + a->len, 0, 1024);
        a->len += 1024;
    }
    r->s = test_store("memory");
    test_put_file(r->s, "f.tar", a->bytes, a->len);
    return test_scan_file(r->s, &mr_format_tar, "f.tar", &r->c, &r->err);
}

static void done(struct result *r)
{
    free(r->c.layout.data);
    mr_store_close(r->s);
}

static void parts_of_one_key_are_one_sample(void **state)
{
    (void)state;
    static struct archive a;
    static struct result r;
    a.len = 0;
    put_member(&a, "./train/", '5', "", 0);
    put_text(&a, "./train/n01.a/0001.cls", "17\n");
    put_text(&a, "./train/n01.a/0001.seg.png", "mask");
    put_text(&a, "./train/n01.a/0001.jpg", "image");
    put_text(&a, "train/README", "skipped");
    put_text(&a, "train/.hidden.jpg", "skipped");
    put_text(&a, "0002.json", "{\"label\": 9, \"nested\": {\"label\": 1}}");
    put_text(&a, "0002.xyz", "odd");
    put_text(&a, "0003.txt", "only text");
    put_member(&a, "link.jpg", '2', "", 0);
    assert_ok(scan(&a, &r, true), r.err);
    assert_int_equal(r.c.n, 3);
    assert_string_equal(r.c.key[0], "train/n01.a/0001");
    assert_memory_equal(a.bytes + r.c.ref[0].raw.offset, "image", 5);
    assert_int_equal(r.c.ref[0].raw.offset % 512, 0);
    assert_true(r.c.ref[0].label == 17);
    assert_memory_equal(a.bytes + r.c.ref[1].raw.offset, "odd", 3);
    assert_true(r.c.ref[1].label == 9);
    assert_memory_equal(a.bytes + r.c.ref[2].raw.offset, "only text", 9);
    assert_true(r.c.ref[2].label == MR_LABEL_NONE);
    done(&r);
}

static void names_that_climb_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"../a.jpg", "a/../../b.jpg", "/etc/a.jpg", "a/..", "x/../\x01\xff.bin"};
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++) {
        static struct archive a;
        static struct result r;
        a.len = 0;
        put_text(&a, names[i], "x");
        assert_int_equal(scan(&a, &r, true), MR_E_FORMAT);
        assert_non_null(strstr(r.err.message, "leaves the archive's folder"));
        for (const char *p = r.err.message; *p; p++)
            assert_true(*p >= ' ' && *p < 127);
        done(&r);
    }
    static struct archive a;
    static struct result r;
    a.len = 0;
    put_text(&a, "a..b/c...jpg", "x"); /* dots alone are no climbing */
    assert_ok(scan(&a, &r, true), r.err);
    assert_int_equal(r.c.n, 1);
    done(&r);
}

static void long_names_and_sizes_of_extended_headers_count(void **state)
{
    (void)state;
    static struct archive a;
    static struct result r;
    char name[300], pax[320];
    memset(name, 'd', 250);
    snprintf(name + 250, 50, "/0007.bin");
    a.len = 0;
    put_member(&a, "././@LongLink", 'L', name, strlen(name) + 1);
    put_text(&a, "cut", "gnu");
    int n = snprintf(pax, sizeof pax, "%zu path=%s\n", strlen(name) + 10, name);
    assert_int_equal(n, (int)strlen(name) + 10);
    put_member(&a, "PaxHeader", 'x', pax, (size_t)n);
    put_text(&a, "cut", "pax");
    put_member(&a, "PaxHeader", 'x', "10 size=4\n", 10);
    uint8_t *h = put_member(&a, "8.bin", '0', "size", 4);
    memset(h + 124, '0', 11);
    fix_sum(h);
    h = put_member(&a, "9.bin", '0', "base256", 7);
    memset(h + 124, 0, 12);
    h[124] = 0x80;
    h[135] = 7;
    fix_sum(h);
    /* The two long names have the same key and extension. */
    assert_int_equal(scan(&a, &r, true), MR_E_FORMAT);
    assert_non_null(strstr(r.err.message, "appears twice"));
    done(&r);
    memcpy(a.bytes + 512 + 251, "0006", 4);
    assert_ok(scan(&a, &r, false), r.err);
    assert_int_equal(r.c.n, 4);
    assert_memory_equal(a.bytes + r.c.ref[1].raw.offset, "pax", 3);
    assert_int_equal(r.c.ref[2].raw.length, 4);
    assert_int_equal(r.c.ref[3].raw.length, 7);
    done(&r);
}

static void hostile_archives_are_refused(void **state)
{
    (void)state;
    static struct archive a;
    static struct result r;
    static const char *const pax[] = {"5 x\n",
                                      "99 size=4\n",
                                      "0 size=4\n",
                                      "10 size=x\n",
                                      "11 size=-4\n",
                                      "12 size4444\n",
                                      "22 GNU.sparse.major=1\n"};
    for (size_t i = 0; i < MR_ARRAY_LEN(pax); i++) {
        a.len = 0;
        put_member(&a, "PaxHeader", 'x', pax[i], strlen(pax[i]));
        put_text(&a, "a.bin", "x");
        assert_int_equal(scan(&a, &r, true), MR_E_FORMAT);
        done(&r);
    }
    a.len = 0;
    put_member(&a, "s.bin", 'S', "x", 1);
    assert_int_equal(scan(&a, &r, true), MR_E_FORMAT);
    assert_non_null(strstr(r.err.message, "sparse"));
    done(&r);
    a.len = 0;
    uint8_t *h = put_member(&a, "big.bin", '0', "x", 1);
    memset(h + 124, 0xff, 12);
    fix_sum(h);
    assert_int_equal(scan(&a, &r, true), MR_E_FORMAT);
    done(&r);
    a.len = 0;
    h = put_member(&a, "big.bin", '0', "x", 1);
    memset(h + 124, '7', 11);
    fix_sum(h);
    assert_int_equal(scan(&a, &r, true), MR_E_FORMAT);
    assert_non_null(strstr(r.err.message, "want 8589934591 bytes at 512"));
    done(&r);
    a.len = 0;
    h = put_member(&a, "a.bin", '0', "x", 1);
    h[0] = 'b';
    assert_int_equal(scan(&a, &r, true), MR_E_CORRUPT);
    done(&r);
}

static void archives_without_an_end_are_cut_short(void **state)
{
    (void)state;
    static struct archive a;
    static struct result r;
    a.len = 0;
    put_text(&a, "a.bin", "x");
    put_text(&a, "b.bin", "y");
    size_t full = a.len;
    for (size_t cut = 0; cut <= full; cut += 100) {
        a.len = cut;
        assert_int_equal(scan(&a, &r, false), MR_E_FORMAT);
        done(&r);
    }
    a.len = full;
    assert_int_equal(scan(&a, &r, false), MR_E_FORMAT);
    assert_non_null(strstr(r.err.message, "cut short"));
    done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_one_key_are_one_sample),
        cmocka_unit_test(names_that_climb_are_refused),
        cmocka_unit_test(long_names_and_sizes_of_extended_headers_count),
        cmocka_unit_test(hostile_archives_are_refused),
        cmocka_unit_test(archives_without_an_end_are_cut_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
