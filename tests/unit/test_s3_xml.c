/* The answers of S3: entries, markers and texts as servers write them; what is no such answer is refused. */
#include "base/common.h"
#include "s3/s3_credentials.h"
#include "s3/s3_xml.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

struct seen {
    char text[2000];
    int stop_at, n;
};

static int note(void *user, const struct mr_s3_entry *e)
{
    struct seen *s = user;
    size_t len = strlen(s->text);
    snprintf(s->text + len, sizeof s->text - len, "%s%s %llu %s\n", e->key, e->is_prefix ? " (folder)" : "",
             (unsigned long long)e->bytes, e->etag);
    return ++s->n == s->stop_at ? 7 : 0;
}

static int list(const char *xml, struct seen *s, char token[64])
{
    return mr_s3_xml_listing(xml, strlen(xml), note, s, token, 64);
}

#define ENTRY(key) "<Contents><Key>" key "</Key><ETag>&quot;e&quot;</ETag><Size>5</Size></Contents>"

static void keys_are_decoded_as_the_answer_says(void **state)
{
    struct seen url = {0}, plain = {0};
    char token[64];
    (void)state;
    assert_int_equal(list("<ListBucketResult>" ENTRY("a+b%2Bc%25%C3%A4") "<EncodingType>url</EncodingType>"
                                                                         "</ListBucketResult>",
                          &url, token),
                     0);
    assert_string_equal(url.text, "a b+c%\xc3\xa4 5 \"e\"\n");
    assert_int_equal(list("<ListBucketResult>" ENTRY("a+b%2B&lt;&#228;&#x1F600;") "</ListBucketResult>", &plain, token),
                     0);
    assert_string_equal(plain.text, "a+b%2B<\xc3\xa4\xf0\x9f\x98\x80 5 \"e\"\n");
}

static void a_page_names_the_next_one_only_when_it_is_cut(void **state)
{
    struct seen s = {0};
    char token[64], id[64];
    (void)state;
    assert_int_equal(
        list("<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t+/=</NextContinuationToken>"
             "<CommonPrefixes><Prefix>x/</Prefix></CommonPrefixes></ListBucketResult>",
             &s, token),
        0);
    assert_string_equal(token, "t+/=");
    assert_string_equal(s.text, "x/ (folder) 0 \n");
    assert_int_equal(
        list("<ListBucketResult><IsTruncated>false</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
             "</ListBucketResult>",
             &s, token),
        0);
    assert_string_equal(token, "");
    static const char uploads[] =
        "<ListMultipartUploadsResult><EncodingType>url</EncodingType><NextKeyMarker>a%2Fb+c</NextKeyMarker>"
        "<NextUploadIdMarker>u%2B</NextUploadIdMarker><IsTruncated>true</IsTruncated></ListMultipartUploadsResult>";
    assert_int_equal(mr_s3_xml_uploads(uploads, strlen(uploads), note, &s, token, sizeof token, id, sizeof id), 0);
    assert_string_equal(token, "a/b c");
    assert_string_equal(id, "u%2B");
}

static void other_answers_are_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "<html><b>proxy",
                                      "<ListBucketResult>",
                                      "<ListBucketResult></x></y>",
                                      "<Error></Error>",
                                      "<!DOCTYPE x><ListBucketResult></ListBucketResult>",
                                      "plain text",
                                      "<ListBucketResult/"};
    struct seen s = {0};
    char token[64], code[32];
    (void)state;
    for (size_t i = 0; i < MR_ARRAY_LEN(bad); i++)
        assert_int_equal(list(bad[i], &s, token), -EBADMSG);
    s = (struct seen){.stop_at = 2};
    assert_int_equal(list("<ListBucketResult>" ENTRY("a") ENTRY("b") ENTRY("c") "</ListBucketResult>", &s, token), 7);
    assert_int_equal(s.n, 2);
    assert_true(mr_s3_xml_find("<E><Code>Slow</Code></E>", 24, "Code", code, sizeof code));
    assert_string_equal(code, "Slow");
    assert_false(mr_s3_xml_find("<E><Codex>Slow</Codex></E>", 26, "Code", code, sizeof code));
}

static void times_and_profiles_are_read(void **state)
{
    char out[32];
    static const char file[] = "[default]\nregion = eu-west-1 \n# region = no\n[profile other]\nregion=us-west-2\n";
    (void)state;
    assert_int_equal(mr_s3_parse_time("2009-10-12T17:50:30.000Z"), 1255369830);
    assert_int_equal(mr_s3_parse_time("yesterday"), 0);
    assert_true(mr_s3_ini_value(file, "default", "region", out, sizeof out));
    assert_string_equal(out, "eu-west-1");
    assert_true(mr_s3_ini_value(file, "other", "region", out, sizeof out));
    assert_string_equal(out, "us-west-2");
    assert_false(mr_s3_ini_value(file, "third", "region", out, sizeof out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_decoded_as_the_answer_says),
        cmocka_unit_test(a_page_names_the_next_one_only_when_it_is_cut),
        cmocka_unit_test(other_answers_are_refused),
        cmocka_unit_test(times_and_profiles_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
