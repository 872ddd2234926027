/* JSON and JSON lines: strict syntax, what gives numbers, shapes, labels; every text also fed byte by byte. */
#include "format_testlib.h"

#include "format/json_push.h"

extern const struct mr_format_ops mr_format_json, mr_format_jsonl;

static int ignore_token(void *user, const struct mr_json_token *t, struct mr_error *err)
{
    (void)err;
    if (t->event == MR_PUSH_STRING || t->event == MR_PUSH_KEY)
        snprintf(user, 64, "%.*s", (int)t->len, t->text);
    return 0;
}

static int parse(const char *text, size_t len, size_t piece, char last_string[64])
{
    struct mr_json j;
    struct mr_error err;
    mr_json_init(&j, false, 0, ignore_token, last_string);
    for (size_t at = 0; at < len; at += piece) {
        int rc = mr_json_feed(&j, text + at, MR_MIN(piece, len - at), &err);
        if (rc < 0)
            return rc;
    }
    return mr_json_end(&j, &err);
}

static void only_json_is_json(void **state)
{
    (void)state;
    static const char *const good[] = {"1",
                                       "-0",
                                       "0.5e-3",
                                       "[]",
                                       "{}",
                                       "[1,2]",
                                       " {\"a\" : [ true , false , null ] } \r\n",
                                       "\"\"",
                                       "\"\\u00e9\\ud83d\\ude00\\n\\/\"",
                                       "\"\xc3\xa9\xf0\x9f\x98\x80\"",
                                       "[NaN,-Infinity,Infinity]",
                                       "[[[[]]]]"};
    static const char *const bad[] = {"",
                                      "[",
                                      "]",
                                      "[1,]",
                                      "[,1]",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{a:1}",
                                      "{\"a\":1,}",
                                      "01",
                                      "1.",
                                      ".5",
                                      "+1",
                                      "1e",
                                      "--1",
                                      "tru",
                                      "trux",
                                      "nul",
                                      "\"",
                                      "\"\\x\"",
                                      "\"\\u12g4\"",
                                      "\"\\ud800\"",
                                      "\"\\ud800x\"",
                                      "\"\\udc00\"",
                                      "\"\\ud800\\u0041\"",
                                      "\"\n\"",
                                      "\"\xff\"",
                                      "\"\xc0\x80\"",
                                      "\"\xed\xa0\x80\"",
                                      "\"\xe2\x82\"",
                                      "1 2",
                                      "[1 2]",
                                      "{\"a\":1 \"b\":2}",
                                      "[1}",
                                      "{]",
                                      "nan",
                                      "inf",
                                      "[-]",
                                      "1x"};
    char text[64];
    for (size_t piece = 1; piece <= 64; piece *= 8) {
        for (size_t i = 0; i < MR_ARRAY_LEN(good); i++)
            if (parse(good[i], strlen(good[i]), piece, text) < 0)
                fail_msg("refused: %s", good[i]);
        for (size_t i = 0; i < MR_ARRAY_LEN(bad); i++)
            if (parse(bad[i], strlen(bad[i]), piece, text) != MR_E_FORMAT)
                fail_msg("accepted: %s", bad[i]);
    }
    assert_int_equal(parse("\"a\\u00e9\\ud83d\\ude00\\tz\"", 24, 3, text), 0);
    assert_string_equal(text, "a\xc3\xa9\xf0\x9f\x98\x80\tz");
}

static void nesting_is_limited(void **state)
{
    (void)state;
    char text[400], last[64];
    memset(text, '[', 200);
    memset(text + 200, ']', 200);
    assert_int_equal(parse(text, 400, 400, last), MR_E_FORMAT);
    assert_int_equal(parse(text + 200 - MR_JSON_DEPTH, 2 * MR_JSON_DEPTH, 7, last), 0);
}

struct result {
    struct mr_store *s;
    struct test_scan c;
    struct mr_error err;
    struct mr_decoder *d;
    struct mr_growbuf raw;
    struct mr_sample_out out;
    const struct mr_format_ops *f;
};

static int scan(struct result *r, const struct mr_format_ops *f, const char *text)
{
    memset(r, 0, sizeof(*r));
    r->s = test_store("memory");
    r->d = mr_decoder_create();
    r->f = f;
    test_put_text(r->s, "f", text);
    return test_scan_file(r->s, f, "f", &r->c, &r->err);
}

static const struct mr_sample_out *read_sample(struct result *r, unsigned i)
{
    assert_true(i < r->c.n);
    assert_ok(test_read(r->s, "f", r->f, &r->c.layout, &r->c.ref[i], 0, r->d, &r->raw, &r->out, &r->err), r->err);
    return &r->out;
}

static void done(struct result *r)
{
    free(r->c.layout.data);
    free(r->raw.data);
    mr_decoder_free(r->d);
    mr_store_close(r->s);
}

static void arrays_of_numbers_become_arrays(void **state)
{
    (void)state;
    struct result r;
    assert_ok(
        scan(&r, &mr_format_json,
             "[ {\"label\": 3, \"x\": [[1,2,3],[4,5,6]]},\n{\"extra\":{\"x\":[0]},\"data\":[[7]],\"label\":-4} ]"),
        r.err);
    assert_int_equal(r.c.n, 2);
    const int64_t *v = read_sample(&r, 0)->data;
    assert_int_equal(r.out.dtype, MR_I64);
    assert_true(r.out.dims.n == 2 && r.out.dims.dim[0] == 2 && r.out.dims.dim[1] == 3 && v[5] == 6 && r.out.label == 3);
    v = read_sample(&r, 1)->data;
    assert_true(r.out.bytes == 8 && v[0] == 7 && r.out.label == -4);
    done(&r);
    assert_ok(scan(&r, &mr_format_jsonl, "[1,2.5]\n\n[3]\n"), r.err);
    const double *d = read_sample(&r, 0)->data;
    assert_int_equal(r.out.dtype, MR_F64);
    assert_true(r.c.n == 2 && d[1] == 2.5);
    done(&r);
}

static void other_records_are_bytes(void **state)
{
    (void)state;
    static const char *const texts[] = {"{\"text\":\"hi\"}\n{\"x\":[1]}",
                                        "{\"x\":[[1,2],[3]]}",
                                        "{\"x\":[1,[2]]}",
                                        "{\"x\":[[1],2]}",
                                        "{\"x\":[1,\"a\"]}",
                                        "{\"x\":[1,null]}",
                                        "{\"x\":[{}]}",
                                        "{\"x\":[1,2],\"shape\":[3]}",
                                        "{\"x\":[[[[[[[[[1]]]]]]]]]}",
                                        "\"just text\"",
                                        "true",
                                        "{\"x\":[1],\"dtype\":\"u1\"}\n{\"x\":[1],\"dtype\":\"i2\"}"};
    for (size_t i = 0; i < MR_ARRAY_LEN(texts); i++) {
        struct result r;
        assert_ok(scan(&r, &mr_format_jsonl, texts[i]), r.err);
        assert_true(r.c.n >= 1);
        assert_int_equal(read_sample(&r, 0)->dtype, MR_U8);
        size_t line = strcspn(texts[i], "\n");
        assert_int_equal(r.out.bytes, line);
        assert_memory_equal(r.out.data, texts[i], line);
        done(&r);
    }
}

static void stated_types_and_shapes_are_kept(void **state)
{
    (void)state;
    struct result r;
    assert_ok(scan(&r, &mr_format_jsonl,
                   "{\"dtype\":\"uint8\",\"shape\":[2,2],\"x\":[1,2,3,255]}\n{\"dtype\":\"u1\",\"x\":[]}"),
              r.err);
    const uint8_t *v = read_sample(&r, 0)->data;
    assert_true(r.out.dtype == MR_U8 && r.out.bytes == 4 && v[3] == 255 && r.out.dims.n == 2);
    assert_int_equal(read_sample(&r, 1)->bytes, 0);
    done(&r);
    /* A value outside its type is found when it is read. */
    assert_ok(scan(&r, &mr_format_jsonl, "{\"dtype\":\"u1\",\"x\":[256]}"), r.err);
    assert_int_equal(test_read(r.s, "f", r.f, &r.c.layout, &r.c.ref[0], 0, r.d, &r.raw, &r.out, &r.err), MR_E_FORMAT);
    done(&r);
}

static void wrong_files_are_told_with_offset(void **state)
{
    (void)state;
    struct result r;
    assert_int_equal(scan(&r, &mr_format_json, "{\"x\":[1]}\n"), MR_E_FORMAT);
    assert_non_null(strstr(r.err.hint, "jsonl"));
    done(&r);
    assert_int_equal(scan(&r, &mr_format_json, "[{\"x\":[1]},"), MR_E_FORMAT);
    assert_non_null(strstr(r.err.message, "offset 11"));
    assert_non_null(strstr(r.err.context, "'f'"));
    done(&r);
    assert_int_equal(scan(&r, &mr_format_jsonl, "{\"x\":[1]}\n{\"x\":[2}\n"), MR_E_FORMAT);
    assert_non_null(strstr(r.err.message, "offset 17"));
    done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_json_is_json),
        cmocka_unit_test(nesting_is_limited),
        cmocka_unit_test(arrays_of_numbers_become_arrays),
        cmocka_unit_test(other_records_are_bytes),
        cmocka_unit_test(stated_types_and_shapes_are_kept),
        cmocka_unit_test(wrong_files_are_told_with_offset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
