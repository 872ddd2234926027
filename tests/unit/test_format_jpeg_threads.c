/* Image formats from several threads at once, each with a decoder of its own: same pixels as alone.
 * test-label: concurrent */
#include "image_test.h"

#include <pthread.h>

#define THREADS 4
#define FILES 6

static struct image_file files[2][FILES];
static struct mr_sample_info infos[2][FILES];
static const struct mr_format_ops *const formats[2] = {&mr_format_jpeg, &mr_format_png};
static const struct mr_writer_spec spec = {.samples = 1};
static int failures[THREADS];

static void *decode_all(void *arg)
{
    int *failed = arg;
    struct mr_decoder *d = mr_decoder_create();
    for (int round = 0; round < 10; round++)
        for (int k = 0; k < 2 * FILES; k++) {
            const struct image_file *f = &files[k % 2][k / 2];
            struct mr_sample_out out = {0};
            /* Every third time a broken file in between: the object must recover. */
            size_t len = k % 3 == 2 ? f->len / 2 : f->len;
            int rc = formats[k % 2]->decode(d, &f->layout, &f->ref, 0, f->data, len, &out, NULL);
            if (len < f->len)
                *failed += rc != MR_E_FORMAT;
            else
                *failed +=
                    rc != 0 || formats[k % 2]->check(&spec, &image_content, &infos[k % 2][k / 2], &out, NULL) != 0;
        }
    mr_decoder_free(d);
    return NULL;
}

static void image_decoders_of_threads_do_not_disturb_each_other(void **state)
{
    (void)state;
    pthread_t thread[THREADS];
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&thread[t], NULL, decode_all, &failures[t]), 0);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(thread[t], NULL);
        assert_int_equal(failures[t], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(image_decoders_of_threads_do_not_disturb_each_other)};
    for (int k = 0; k < 2 * FILES; k++) {
        infos[k % 2][k / 2] = image_info((uint64_t)k, 50 + 20 * (uint64_t)k, 90, k % 4 < 2 ? 3 : 1);
        files[k % 2][k / 2] = image_write(formats[k % 2], &spec, &infos[k % 2][k / 2], 5000);
    }
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    for (int k = 0; k < 2 * FILES; k++)
        image_file_done(&files[k % 2][k / 2]);
    return rc;
}
