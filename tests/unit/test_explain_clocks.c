/* Clocks of hosts: an offset is found by the ends of barriers and taken out; without barriers nothing is moved, and
 * that is said. */
#include "base/common.h"
#include "base/rng.h"
#include "base/strbuf.h"
#include "explain/clock_align.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BARRIERS 20
#define ORIGIN 1700000000000000ull /* us */

/* Two ranks on two hosts; the second host's clock is ahead by `ahead` us, and it leaves barriers up to 8 us later. */
static char *two_hosts(int64_t ahead, unsigned barriers)
{
    struct mr_strbuf s = {0};
    mr_strbuf_puts(&s, "[\n");
    for (unsigned h = 0; h < 2; h++)
        for (unsigned k = 0; k < BARRIERS; k++) {
            uint64_t at = ORIGIN + k * 100000 + (h ? (uint64_t)ahead + mr_rng_at(1, 2, k) % 9 : 0);
            mr_strbuf_printf(&s,
                             "{\"id\":1,\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%u,\"tid\":1,\"ph\":\"X\",\"ts\":%llu,"
                             "\"dur\":%u,\"args\":{\"hostname\":\"n%u\"}}\n",
                             k < barriers ? "all_reduce" : "other", k < barriers ? "barrier" : "program", 100 + h,
                             (unsigned long long)at, 1000 + h * 500, h);
        }
    return mr_strbuf_take(&s);
}

static struct mr_trace *load(char *text)
{
    struct mr_trace *t;
    assert_int_equal(mr_trace_create(&t, NULL), 0);
    assert_int_equal(mr_trace_add_memory(t, text, strlen(text), "two.pfw", NULL), 0);
    assert_int_equal(mr_trace_finish(t, NULL), 0);
    assert_int_equal(mr_clock_align(t, NULL), 0);
    free(text);
    return t;
}

static void offset_is_taken_out(void **state)
{
    (void)state;
    for (int64_t ahead = -3000000; ahead <= 3000000; ahead += 2999999) {
        struct mr_trace *t = load(two_hosts(ahead, BARRIERS));
        assert_float_equal(t->clock_offset_ns, fabs((double)ahead * 1e3 + 500e3), 6e3); /* it stays 0.5 ms longer */
        assert_in_range((uint64_t)t->clock_residual_ns, 0, 5000);
        uint64_t end[2] = {0};
        for (size_t c = 0; c < t->chunks; c++)
            end[t->process[t->chunk[c].process].node] = t->chunk[c].column.end_ns[BARRIERS / 2];
        assert_true(llabs((int64_t)(end[0] - end[1])) <= 8000);
        assert_int_equal(t->first_ns, MR_MIN(t->chunk[0].first_ns, t->chunk[1].first_ns));
        assert_non_null(strstr(t->note[0].text, "aligned by the ends of 20 barriers"));
        mr_trace_free(t);
    }
}

static void without_barriers_times_stay(void **state)
{
    (void)state;
    struct mr_trace *t = load(two_hosts(5000, 2)); /* two are too few */
    assert_int_equal(t->clock_offset_ns, 0);
    assert_int_equal(t->first_ns, ORIGIN * 1000);
    assert_int_equal(t->notes, 1);
    assert_non_null(strstr(t->note[0].text, "taken as recorded"));
    mr_trace_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offset_is_taken_out),
        cmocka_unit_test(without_barriers_times_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
