/* A loader is seen by the arbiter of its data set's device: while it reads, a drain of that device is held back; when
 * it has read all it may, or is closed, it is not. For every way of reading. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "loader_fixture.h"
#include "store/store.h"
#include "store/traffic.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define SAMPLES 60u

static bool granted(struct mr_traffic *d)
{
    uint64_t wait_ns, now = mr_now_ns();
    const struct mr_traffic_ask ask = {.class = MR_TRAFFIC_DRAIN, .bytes = MR_MIB, .least = MR_MIB};
    uint64_t got = mr_traffic_take(d, &ask, now, &wait_ns);
    if (got)
        mr_traffic_done(d, got, now, now + MR_NS_PER_MS);
    return got > 0;
}

/* Asks until the answer is that one. */
static bool comes(struct mr_traffic *d, bool answer)
{
    for (uint64_t until = mr_now_ns() + 30 * MR_NS_PER_S; mr_now_ns() < until; usleep(500))
        if (granted(d) == answer)
            return true;
    return false;
}

struct consumer {
    struct mr_loader *l;
    uint64_t ids[SAMPLES];
    uint64_t read;
};

static void *consume(void *arg)
{
    struct consumer *c = arg;
    c->read = read_epoch(c->l, 0, c->ids, UINT64_MAX);
    return NULL;
}

static void a_loader_holds_drains_back(void **state)
{
    (void)state;
    static const struct {
        const char *policy, *tiers;
        enum mr_loader_io io;
    } ways[] = {{"naive", NULL, MR_LOADER_IO_THREADS},
                {"staging", NULL, MR_LOADER_IO_THREADS},
                {"staging", NULL, MR_LOADER_IO_QUEUE},
                {"millrace", "ram=4MiB", MR_LOADER_IO_THREADS}};
    char spec[160];
    struct mr_store *s;
    struct mr_error err;
    snprintf(spec, sizeof spec, "throttle(bandwidth=3MB,group=loader-traffic-%d):posix", (int)getpid());
    assert_int_equal(mr_store_open(spec, &s, &err), 0);
    struct mr_traffic *d = mr_traffic_get(s, root); /* as a checkpoint's folder would */
    for (unsigned i = 0; i < MR_ARRAY_LEN(ways); i++) {
        char path[512];
        struct mr_loader_params p = params("raw", path);
        p.store = spec;
        p.policy = ways[i].policy;
        p.tiers = ways[i].tiers;
        p.io = ways[i].io;
        p.last_epoch = 0;
        assert_false(mr_traffic_shared(d));
        assert_true(granted(d));
        struct consumer c = {.l = must_open(&p)};
        pthread_t t;
        assert_true(mr_traffic_shared(d));
        assert_int_equal(pthread_create(&t, NULL, consume, &c), 0);
        assert_true(comes(d, false)); /* it reads */
        pthread_join(t, NULL);
        assert_int_equal(c.read, SAMPLES);
        assert_true(comes(d, true)); /* all is read */
        mr_loader_close(c.l);
        assert_false(mr_traffic_shared(d));
    }
    mr_traffic_put(d);
    mr_store_close(s);
}

static int set_up(void **state)
{
    (void)state;
    open_root("loader-traffic");
    make_set("raw", "raw", SAMPLES, 1, 20000, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove_root();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_loader_holds_drains_back)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
