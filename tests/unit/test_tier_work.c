/* The scheduler of the tiers: jobs in the order of their keys, raised, taken back and dropped once; more threads where
 * that makes a device faster; background jobs leave a thread for demand; and the books of the holdings over random use.
 * test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/common.h"
#include "base/rng.h"
#include "tier/holdings.h"
#include "tier/work.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define JOBS 64u

struct job {
    struct mr_work_job job; /* first member */
    unsigned number;
};
struct bench {
    struct job jobs[JOBS];
    _Atomic unsigned done, dropped, running, most;
    unsigned order[JOBS];
    _Atomic bool gate; /* jobs wait for it */
    uint64_t takes_ns;
};

static uint64_t run(void *user, void *mine, struct mr_work_job *job)
{
    struct bench *b = user;
    (void)mine;
    unsigned now = atomic_fetch_add(&b->running, 1) + 1, most = b->most;
    while (now > most && !atomic_compare_exchange_weak(&b->most, &most, now))
        ;
    while (!b->gate)
        mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + MR_NS_PER_MS / 2, NULL);
    if (b->takes_ns)
        mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + b->takes_ns, NULL);
    unsigned at = atomic_fetch_add(&b->done, 1);
    b->order[at % JOBS] = ((struct job *)job)->number;
    atomic_fetch_sub(&b->running, 1);
    return 1000;
}

static void drop(void *user, struct mr_work_job *job)
{
    (void)job;
    atomic_fetch_add(&((struct bench *)user)->dropped, 1);
}

static struct mr_work *start(struct bench *b, unsigned threads)
{
    struct mr_work *w;
    struct mr_error err;
    struct mr_work_params p = {.name = "a test", .threads = threads, .user = b, .run = run, .drop = drop};
    memset(b, 0, sizeof *b);
    for (unsigned i = 0; i < JOBS; i++)
        b->jobs[i] = (struct job){.job = {.at = MR_WORK_IDLE, .bytes = 1000}, .number = i};
    assert_int_equal(mr_work_start(&p, &w, &err), 0);
    return w;
}

static void push(struct mr_work *w, struct bench *b, unsigned i, enum mr_urgency u, uint64_t access)
{
    b->jobs[i].job.key = mr_work_key(u, access);
    assert_true(mr_work_push(w, &b->jobs[i].job));
}

static void wait_done(const struct bench *b, unsigned n)
{
    while (b->done < n)
        mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + MR_NS_PER_MS, NULL);
}

static void wait_running(const struct bench *b, unsigned n)
{
    while (b->running < n)
        mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + MR_NS_PER_MS, NULL);
}

static void jobs_run_by_urgency_and_access(void **state)
{
    (void)state;
    struct bench b;
    struct mr_work *w = start(&b, 1);
    push(w, &b, 0, MR_URGENT_READ, 5);
    wait_running(&b, 1); /* it holds the only thread */
    push(w, &b, 1, MR_URGENT_FILL, 1);
    push(w, &b, 2, MR_URGENT_READ, 30);
    push(w, &b, 3, MR_URGENT_READ, 20);
    push(w, &b, 4, MR_URGENT_SPILL, 0);
    push(w, &b, 5, MR_URGENT_READ, 0);
    push(w, &b, 6, MR_URGENT_FILL, 7);
    push(w, &b, 7, MR_URGENT_READ, 40);
    mr_work_raise(w, &b.jobs[6].job, mr_work_key(MR_URGENT_READ, 10)); /* somebody joined it */
    mr_work_raise(w, &b.jobs[3].job, mr_work_key(MR_URGENT_READ, 90)); /* never later */
    assert_true(mr_work_take_back(w, &b.jobs[7].job));
    assert_false(mr_work_take_back(w, &b.jobs[7].job));
    assert_false(mr_work_take_back(w, &b.jobs[0].job)); /* it runs */
    b.gate = true;
    wait_done(&b, 7);
    static const unsigned expected[] = {0, 5, 6, 3, 2, 1, 4};
    assert_memory_equal(b.order, expected, sizeof expected);
    mr_work_stop(w);
    assert_int_equal(b.dropped, 0);
}

static void the_last_one_can_be_taken(void **state)
{
    (void)state;
    struct bench b;
    struct mr_work *w = start(&b, 1);
    push(w, &b, 0, MR_URGENT_READ, 0);
    wait_running(&b, 1);
    for (unsigned i = 1; i < JOBS; i++)
        push(w, &b, i, MR_URGENT_READ, mr_mix64(i) % 10000);
    uint64_t before = UINT64_MAX;
    for (unsigned i = 1; i < JOBS; i++) {
        struct mr_work_job *j = mr_work_take_last(w);
        assert_non_null(j);
        assert_true(j->key <= before);
        before = j->key;
    }
    assert_null(mr_work_take_last(w));
    b.gate = true;
    mr_work_stop(w);
}

static void stopping_drops_what_waits(void **state)
{
    (void)state;
    struct bench b;
    struct mr_work *w = start(&b, 2);
    b.gate = true;
    b.takes_ns = 5 * MR_NS_PER_MS;
    for (unsigned i = 0; i < JOBS; i++)
        push(w, &b, i, MR_URGENT_READ, i);
    wait_done(&b, 2);
    mr_work_stop(w);
    assert_int_equal(b.done + b.dropped, JOBS);
    assert_true(b.dropped > 0);
}

static void background_leaves_a_thread(void **state)
{
    (void)state;
    struct bench b;
    struct mr_work *w = start(&b, 3);
    struct mr_work_load load;
    for (unsigned i = 0; i < 8; i++)
        push(w, &b, i, MR_URGENT_FILL, i);
    wait_running(&b, 2);
    push(w, &b, 20, MR_URGENT_READ, 0);
    wait_running(&b, 3); /* the third thread was kept for it */
    mr_work_load(w, &load);
    assert_int_equal(load.background, 2);
    assert_int_equal(load.running, 3);
    b.gate = true;
    wait_done(&b, 9);
    mr_work_stop(w);
}

/* Jobs that only wait: more threads make the device faster, so there are more in the end. */
static void threads_are_added_where_it_helps(void **state)
{
    (void)state;
    struct bench b;
    struct mr_work *w = start(&b, 0);
    struct mr_work_load load = {0};
    b.gate = true;
    b.takes_ns = 4 * MR_NS_PER_MS;
    unsigned pushed = 0;
    for (uint64_t until = mr_now_ns() + 20 * MR_NS_PER_S; load.threads <= 4 && mr_now_ns() < until;) {
        while (pushed < b.done + JOBS / 2) {
            push(w, &b, pushed % JOBS, MR_URGENT_READ, pushed);
            pushed++;
        }
        mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + MR_NS_PER_MS, NULL);
        mr_work_load(w, &load);
    }
    assert_true(load.threads > 4);
    assert_true(load.busy_ns > 0);
    mr_work_stop(w);
}

/* ---- holdings ---- */

static void books_of_holdings_stay_right(void **state)
{
    (void)state;
    struct mr_holdings h;
    assert_int_equal(mr_holdings_init(&h, 200000), 0);
    unsigned claims[500] = {0};
    for (uint64_t k = 0; k < 40000; k++) {
        uint64_t bits = mr_rng_at(7, MR_RNG_TEST, k), id = bits % 500, what = (bits >> 20) % 8;
        struct mr_holding *e = mr_holdings_find(&h, id);
        if (!e && what < 4) {
            e = mr_holdings_add(&h, id);
            assert_non_null(e);
            if (!mr_holdings_place(&h, e, 100 + id * 4))
                mr_holdings_settle(&h, e); /* H3: it is gone */
        } else if (e && e->state == MR_HOLDING_COMING && what < 6) {
            mr_holdings_ready(&h, e, e->bytes);
            mr_holdings_settle(&h, e);
        } else if (e && what == 4) {
            mr_holdings_set_class(&h, e, MR_CLASS_RAM);
        } else if (e && what == 5) {
            mr_holdings_set_class(&h, e, MR_CLASS_NONE);
            mr_holdings_settle(&h, e);
        } else if (e && what == 6 && e->state == MR_HOLDING_READY) {
            mr_holdings_claim(&h, e);
            claims[id]++;
        } else if (e && what == 7 && claims[id]) {
            claims[id]--;
            mr_holdings_unclaim(&h, e);
        }
        h.keep_spare = k % 3000 < 1000;
        if (k % 5000 == 4999)
            mr_holdings_forget_classes(&h);
        if (claims[id])
            assert_non_null(mr_holdings_find(&h, id)); /* H1 */
        if (k % 100 == 0) {
            assert_true(mr_holdings_check(&h));
            assert_int_equal(h.bytes[0] + h.bytes[1] + h.bytes[2], mr_space_used(h.space)); /* H2 */
        }
    }
    assert_true(h.used > 0);
    mr_holdings_done(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_run_by_urgency_and_access),   cmocka_unit_test(the_last_one_can_be_taken),
        cmocka_unit_test(stopping_drops_what_waits),        cmocka_unit_test(background_leaves_a_thread),
        cmocka_unit_test(threads_are_added_where_it_helps), cmocka_unit_test(books_of_holdings_stay_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
