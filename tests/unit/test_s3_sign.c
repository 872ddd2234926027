/* Signature Version 4 against AWS's published vectors: S3's own examples (its API reference, "Authenticating Requests:
 * Using the Authorization Header") and the generic test suite (aws-sig-v4-test-suite). */
#include "base/common.h"
#include "s3/s3_sign.h"

#include <millrace/error.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define HEADERS_MAX 8

struct vector {
    const char *name, *method, *path, *query; /* path as it is before encoding */
    struct mr_s3_header header[HEADERS_MAX];
    const char *payload, *signature;
};

static const struct mr_http_ops *http;

static int load(void **state)
{
    struct mr_error err;
    (void)state;
    if (mr_http_load(&http, &err) == 0)
        return 0;
    printf("skipped: %s\n", err.message);
    _exit(77);
}

static time_t at(int year, int month, int day, int hour, int minute)
{
    struct tm tm = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day, .tm_hour = hour, .tm_min = minute};
    return timegm(&tm);
}

static void check(const struct vector *v, size_t n, time_t t, const char *access_key, const char *secret,
                  const char *service)
{
    struct mr_s3_signing_key key;
    mr_s3_signing_key(http, secret, t, "us-east-1", service, &key);
    for (size_t i = 0; i < n; i++, v++) {
        char path[256], stamp[17], out[MR_S3_AUTHORIZATION_MAX];
        mr_s3_amz_date(t, stamp);
        struct mr_s3_to_sign s = {.method = v->method,
                                  .path = path,
                                  .query = v->query,
                                  .header = v->header,
                                  .payload_hash = v->payload,
                                  .stamp = stamp};
        assert_true(mr_s3_encode(v->path, true, path, sizeof path));
        while (s.headers < HEADERS_MAX && v->header[s.headers].name)
            s.headers++;
        assert_true(mr_s3_authorization(http, &s, access_key, &key, out));
        const char *got = strstr(out, "Signature=");
        assert_non_null(got);
        if (strcmp(got + 10, v->signature) != 0)
            fail_msg("%s: signature %s, want %s", v->name, got + 10, v->signature);
    }
}

static void signs_as_the_examples_of_s3(void **state)
{
    static const char host[] = "examplebucket.s3.amazonaws.com", date[] = "20130524T000000Z";
    static const struct vector v[] = {
        {"get object",
         "GET",
         "/test.txt",
         "",
         {{"host", host}, {"range", "bytes=0-9"}, {"x-amz-content-sha256", EMPTY}, {"x-amz-date", date}},
         EMPTY,
         "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
        {"put object",
         "PUT",
         "/test$file.text",
         "",
         {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
          {"host", host},
          {"x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"},
          {"x-amz-date", date},
          {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
         "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
         "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
        {"get lifecycle",
         "GET",
         "/",
         "lifecycle=",
         {{"host", host}, {"x-amz-content-sha256", EMPTY}, {"x-amz-date", date}},
         EMPTY,
         "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
        {"list objects",
         "GET",
         "/",
         "max-keys=2&prefix=J",
         {{"host", host}, {"x-amz-content-sha256", EMPTY}, {"x-amz-date", date}},
         EMPTY,
         "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
    };
    (void)state;
    check(v, MR_ARRAY_LEN(v), at(2013, 5, 24, 0, 0), "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
          "s3");
}

static void signs_as_the_generic_suite(void **state)
{
    static const char host[] = "example.amazonaws.com", date[] = "20150830T123600Z";
    static const struct vector v[] = {
        {"get-vanilla",
         "GET",
         "/",
         "",
         {{"host", host}, {"x-amz-date", date}},
         EMPTY,
         "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
        {"post-vanilla",
         "POST",
         "/",
         "",
         {{"host", host}, {"x-amz-date", date}},
         EMPTY,
         "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
        {"get-vanilla-query-order-key-case",
         "GET",
         "/",
         "Param1=value1&Param2=value2",
         {{"host", host}, {"x-amz-date", date}},
         EMPTY,
         "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
        {"post-vanilla-query",
         "POST",
         "/",
         "Param1=value1",
         {{"host", host}, {"x-amz-date", date}},
         EMPTY,
         "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"},
        {"get-unreserved",
         "GET",
         "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
         "",
         {{"host", host}, {"x-amz-date", date}},
         EMPTY,
         "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
        {"get-utf8",
         "GET",
         "/\xe1\x88\xb4",
         "",
         {{"host", host}, {"x-amz-date", date}},
         EMPTY,
         "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
        {"get-space",
         "GET",
         "/example space/",
         "",
         {{"host", host}, {"x-amz-date", date}},
         EMPTY,
         "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"},
        {"get-header-value-trim",
         "GET",
         "/",
         "",
         {{"host", host}, {"my-header1", " value1"}, {"my-header2", " \"a   b   c\""}, {"x-amz-date", date}},
         EMPTY,
         "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
    };
    (void)state;
    check(v, MR_ARRAY_LEN(v), at(2015, 8, 30, 12, 36), "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
          "service");
}

static void what_does_not_fit_is_refused_and_not_cut(void **state)
{
    char out[8], authorization[MR_S3_AUTHORIZATION_MAX], query[20000];
    struct mr_s3_signing_key key;
    (void)state;
    assert_false(mr_s3_encode("a b c", false, out, sizeof out));
    assert_true(mr_s3_encode("a b", false, out, sizeof out));
    assert_string_equal(out, "a%20b");
    assert_true(mr_s3_encode("a/b", false, out, sizeof out));
    assert_string_equal(out, "a%2Fb");
    memset(query, 'q', sizeof query - 1);
    query[sizeof query - 1] = '\0';
    mr_s3_signing_key(http, "secret", 0, "r", "s3", &key);
    const struct mr_s3_to_sign s = {.method = "GET", .path = "/", .query = query, .payload_hash = EMPTY};
    assert_false(mr_s3_authorization(http, &s, "key", &key, authorization));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signs_as_the_examples_of_s3),
        cmocka_unit_test(signs_as_the_generic_suite),
        cmocka_unit_test(what_does_not_fit_is_refused_and_not_cut),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
