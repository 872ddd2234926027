/* Point-to-point rates between ranks. */
#include "probe/network_probe.h"
#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* `times` messages from rank 0 to `peer`, and one small answer at the end (bandwidth) or after each (round trips). */
static int exchange(struct mr_comm *c, uint32_t peer, char *buf, size_t len, unsigned times, bool answer_each,
                    double *seconds, struct mr_error *err)
{
    char answer = 0;
    uint64_t begin = mr_now_ns();
    int rc = 0;
    for (unsigned k = 1; k <= times && !rc; k++) {
        bool answers = answer_each || k == times;
        if (c->rank == 0) {
            rc = mr_comm_send(c, buf, len, peer, err);
            rc = !rc && answers ? mr_comm_recv(c, answer_each ? buf : &answer, answer_each ? len : 1, peer, err) : rc;
        } else if (c->rank == peer) {
            rc = mr_comm_recv(c, buf, len, 0, err);
            rc = !rc && answers ? mr_comm_send(c, answer_each ? buf : &answer, answer_each ? len : 1, 0, err) : rc;
        }
    }
    *seconds = (double)(mr_now_ns() - begin) / 1e9;
    return rc;
}

enum { NET_LARGE = 4 << 20, NET_LARGE_TIMES = 32, NET_SMALL_TIMES = 200, NET_ROUNDS = 3 };

/* One pair: the best of the rounds, because a disturbance only slows down. Half a round trip of 8 bytes is the latency.
 */
static int measure_pair(struct mr_comm *c, uint32_t peer, char *buf, struct mr_network_rates *out, struct mr_error *err)
{
    *out = (struct mr_network_rates){.latency_s = INFINITY};
    int rc = 0;
    for (int k = 0; k < NET_ROUNDS && !rc; k++) {
        double large = 0, small = 0;
        rc = mr_comm_barrier(c, err);
        rc = rc ? rc : exchange(c, peer, buf, NET_LARGE, NET_LARGE_TIMES, false, &large, err);
        rc = rc ? rc : exchange(c, peer, buf, 8, NET_SMALL_TIMES, true, &small, err);
        out->bytes_per_s = fmax(out->bytes_per_s, (double)NET_LARGE * NET_LARGE_TIMES / fmax(large, 1e-9));
        out->latency_s = fmin(out->latency_s, small / NET_SMALL_TIMES / 2);
    }
    return rc;
}

int mr_network_measure(struct mr_comm *c, struct mr_network_rates *out, struct mr_error *err)
{
    if (c->world < 2) {
        mr_error_plain(err, MR_E_USAGE, "--net needs at least two ranks, %s started one",
                       mr_comm_detect_launcher(NULL) ? "the launcher" : "this job has");
        return mr_error_hint(err, "start two: mpirun -n 2 --map-by node millrace calibrate ... --net"), MR_E_USAGE;
    }
    char *buf = calloc(1, NET_LARGE);
    int rc = buf ? 0 : mr_error_set(err, -ENOMEM, "measuring the network");
    struct mr_network_rates worst = {.ranks = c->world, .bytes_per_s = INFINITY};
    for (uint32_t peer = 1; peer < c->world && !rc; peer++) {
        struct mr_network_rates pair;
        rc = measure_pair(c, peer, buf, &pair, err);
        worst.bytes_per_s = fmin(worst.bytes_per_s, pair.bytes_per_s);
        worst.latency_s = fmax(worst.latency_s, pair.latency_s);
    }
    free(buf);
    if (!rc)
        *out = worst;
    return rc;
}
