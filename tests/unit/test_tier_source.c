/* Properties of the source that an engine thread reads tiers through: it lends what was announced and nothing else,
 * says why where it cannot, and gives every delivery back that it took. The tier itself is a stand-in here.
 * test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "dataset/fetch.h"
#include "tier/tier_internal.h"

static struct mr_segment *segment;
static _Atomic bool stopped;

struct mr_segment *mr_tier_segment(struct mr_tier *t)
{
    (void)t;
    return segment;
}

uint32_t mr_tier_local_rank(const struct mr_tier *t)
{
    (void)t;
    return 0;
}

void mr_tier_count_found(struct mr_tier *t, uint64_t bytes)
{
    (void)t, (void)bytes;
}

bool mr_tier_stopped(void *t)
{
    (void)t;
    return atomic_load(&stopped);
}

static int open_segment(void **state)
{
    struct mr_segment_params p = {.ranks = 1, .depth = 8, .data_bytes = 65536};
    (void)state;
    atomic_store(&stopped, false);
    return mr_segment_create(&p, &segment, NULL);
}

static int close_segment(void **state)
{
    (void)state;
    mr_segment_close(segment);
    return 0;
}

static void ready(uint64_t n, uint64_t id, uint64_t bytes)
{
    struct mr_delivery d = {.id = id, .at = n * 1024, .bytes = bytes, .from = MR_TIER_SSD};
    memset(mr_segment_data(segment, d.at), (int)id, bytes);
    mr_segment_plan(segment, 0, n, &d, MR_DELIVERY_READY);
}

static void what_was_announced_is_lent_and_given_back(void **state)
{
    (void)state;
    struct mr_fetch_source *s = mr_tier_source(NULL, NULL);
    struct mr_delivery d;
    for (uint64_t n = 0; n < 30; n++) {
        struct mr_fetch f = {.id = n + 7, .length = 100 + n};
        ready(n, f.id, f.length);
        mr_tier_source_at(s, n, f.id);
        const uint8_t *at = s->ops->borrow(s, &f);
        assert_non_null(at);
        assert_int_equal(at[f.length - 1], f.id);
        assert_ptr_equal(s->ops->borrow(s, &f), at); /* as often as the reader likes */
        assert_false(mr_segment_reclaim(segment, 0, &d));
        mr_tier_source_done(s, &d);
        assert_int_equal(d.from, MR_TIER_SSD);
        assert_int_equal(d.id, f.id);
        assert_true(mr_segment_reclaim(segment, 0, &d));
    }
    mr_fetch_source_free(s);
}

static void another_sample_or_length_is_refused_naming_both(void **state)
{
    (void)state;
    struct mr_fetch_source *s = mr_tier_source(NULL, NULL);
    struct mr_error err;
    uint8_t place[200];
    static const struct {
        uint64_t came_id, came_bytes, announced;
    } cases[] = {{12, 100, 11}, {11, 99, 11}, {11, 100, 12}};
    for (unsigned n = 0; n < MR_ARRAY_LEN(cases); n++) {
        struct mr_fetch f = {.id = 11, .length = 100};
        struct mr_delivery d;
        ready(n, cases[n].came_id, cases[n].came_bytes);
        mr_tier_source_at(s, n, cases[n].announced);
        assert_null(s->ops->borrow(s, &f));
        assert_int_equal(s->ops->read(s, &f, place, &err), MR_E_INTERNAL);
        assert_non_null(strstr(err.message, n == 0 ? "sample 12 with 100 bytes" : n == 1 ? "11 with 99" : "12)"));
        mr_tier_source_done(s, NULL);
        assert_true(mr_segment_reclaim(segment, 0, &d));
    }
    mr_fetch_source_free(s);
}

static void a_failed_delivery_says_why_and_goes_back(void **state)
{
    (void)state;
    struct mr_fetch_source *s = mr_tier_source(NULL, NULL);
    struct mr_error err;
    struct mr_fetch f = {.id = 3, .length = 100};
    struct mr_delivery d = {.id = 3};
    mr_segment_plan(segment, 0, 0, &d, MR_DELIVERY_PLANNED);
    d.code = MR_E_CHANGED;
    mr_error_plain(&err, MR_E_CHANGED, "'a.npy' is shorter than before");
    mr_segment_deliver(segment, 0, 0, &d, &err);
    memset(&err, 0, sizeof err);
    mr_tier_source_at(s, 0, 3);
    assert_null(s->ops->borrow(s, &f));
    assert_int_equal(s->ops->read(s, &f, NULL, &err), MR_E_CHANGED);
    assert_string_equal(err.message, "'a.npy' is shorter than before");
    assert_int_equal(s->ops->read_file(s, 0, NULL, 1, &err), MR_E_CHANGED);
    mr_tier_source_done(s, &d);
    assert_true(mr_segment_reclaim(segment, 0, &d));
    mr_fetch_source_free(s);
}

static void one_that_was_never_read_goes_back_too(void **state)
{
    (void)state;
    struct mr_fetch_source *s = mr_tier_source(NULL, NULL);
    struct mr_delivery d;
    ready(0, 1, 10);
    mr_tier_source_at(s, 0, 1);
    mr_tier_source_done(s, NULL); /* e.g. its plan failed */
    assert_true(mr_segment_reclaim(segment, 0, &d));
    mr_fetch_source_free(s);
}

static void *read_and_be_stopped(void *arg)
{
    struct mr_fetch_source *s = arg;
    struct mr_fetch f = {.id = 1, .length = 10};
    struct mr_error err;
    struct mr_delivery d;
    mr_tier_source_at(s, 0, 1);
    bool none = !s->ops->borrow(s, &f) && s->ops->read(s, &f, NULL, &err) == MR_E_INTERRUPTED;
    mr_tier_source_done(s, &d);
    return none && d.from == MR_TIER_FROMS ? arg : NULL;
}

static void a_stop_ends_the_wait_and_leaves_the_delivery_to_the_leader(void **state)
{
    (void)state;
    struct mr_fetch_source *s = mr_tier_source(NULL, NULL);
    struct mr_delivery d = {.id = 1};
    pthread_t t;
    void *result;
    mr_segment_plan(segment, 0, 0, &d, MR_DELIVERY_PLANNED);
    pthread_create(&t, NULL, read_and_be_stopped, s);
    while (mr_segment_wanted(segment, 0) != 0)
        usleep(1000);
    atomic_store(&stopped, true);
    mr_segment_interrupt(segment, 0);
    pthread_join(t, &result);
    assert_non_null(result);
    assert_false(mr_segment_reclaim(segment, 0, &d));
    mr_fetch_source_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_announced_is_lent_and_given_back, open_segment, close_segment),
        cmocka_unit_test_setup_teardown(another_sample_or_length_is_refused_naming_both, open_segment, close_segment),
        cmocka_unit_test_setup_teardown(a_failed_delivery_says_why_and_goes_back, open_segment, close_segment),
        cmocka_unit_test_setup_teardown(one_that_was_never_read_goes_back_too, open_segment, close_segment),
        cmocka_unit_test_setup_teardown(a_stop_ends_the_wait_and_leaves_the_delivery_to_the_leader, open_segment,
                                        close_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
