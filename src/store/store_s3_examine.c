/* A look at object storage for `millrace doctor`: see mr_store_examine_remote in store.h. One listing of one key says
 * whether the endpoint answers, whose credentials are used and what time it is there; then as many listings at a time as a queue has
 * requests say whether so many connections are to be had. */
#include "base/clock.h"
#include "base/common.h"
#include "store/store.h"
#include "store/store_s3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define AT_ONCE 32u

static int ignore(void *user, const struct mr_s3_entry *e)
{
    (void)e;
    *(bool *)user = true;
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Listings of one key, all at once on one lane. */
static void try_connections(struct mr_s3_client *c, const char *bucket, struct mr_remote_look *out)
{
    struct mr_s3_lane *lane;
    struct mr_s3_op *op = calloc(AT_ONCE, sizeof(*op));
    double first[AT_ONCE];
    unsigned n = 0;
    if (!op || mr_s3_lane_get(c, &lane, NULL)) {
        free(op);
        return;
    }
    for (unsigned i = 0; i < AT_ONCE; i++) {
        op[i] = (struct mr_s3_op){.verb = MR_S3_GET,
                                  .bucket = bucket,
                                  .key = "",
                                  .query = "list-type=2&max-keys=1",
                                  .once = true,
                                  .verb_text = "list"};
        mr_s3_lane_start(lane, &op[i]);
    }
    for (struct mr_s3_op *done; (done = mr_s3_lane_wait(lane, UINT64_MAX));) {
        out->answered += done->code == 0;
        if (!done->code && n < AT_ONCE)
            first[n++] = (double)(done->first_byte_ns - MR_MIN(done->connect_ns, done->first_byte_ns)) / 1e9;
        mr_s3_op_done(done);
    }
    out->asked = AT_ONCE;
    if (n) {
        qsort(first, n, sizeof(*first), by_value);
        out->first_byte_s = first[n / 2];
    }
    mr_s3_lane_put(lane);
    free(op);
}

int mr_store_examine_remote(const char *url, struct mr_remote_look *out, struct mr_error *err)
{
    struct mr_store *base;
    char bucket[MR_S3_BUCKET_MAX];
    const char *key;
    *out = (struct mr_remote_look){0};
    int rc = mr_s3_split(url, bucket, &key, err);
    rc = rc ? rc : mr_store_open("s3(deadline=10s)", &base, err);
    if (rc)
        return rc;
    struct mr_s3_client *c = store_of(base)->client;
    const struct mr_s3_stats *st = mr_s3_client_stats(c);
    snprintf(out->endpoint, sizeof out->endpoint, "%s", mr_s3_client_endpoint(c));
    out->tls = !strncmp(out->endpoint, "https:", 6);
    out->code = mr_s3_list(c, bucket, key, "", 1, ignore, &out->found, &out->why);
    out->reached = st->answers > 0 && (out->code == 0 || mr_s3_client_skew_s(c) != 0 || st->bytes_in > 0);
    if (st->connects)
        out->connect_s = (double)st->connect_ns / (double)st->connects / 1e9;
    snprintf(out->credentials, sizeof out->credentials, "%s", mr_s3_client_source(c));
    time_t expires = mr_s3_client_expires(c);
    out->expires_s = expires ? (double)(expires - time(NULL)) : 0;
    out->skew_s = mr_s3_client_skew_s(c);
    mr_s3_client_region(c, out->region);
    if (!out->code)
        try_connections(c, bucket, out);
    mr_store_close(base);
    return 0;
}
