/* Rules about requests to object storage: what they bring, how many there are at a time, over how many connections, and
 * what was repeated. Of programs that are traced the calls on their sockets show them; our own runs told the sums. */
#include "base/common.h"
#include "advise/advise_internal.h"

#include <string.h>

#define REQUESTS_LEAST 50.0
#define SMALL 1048576.0      /* a request of less is mostly latency on most object stores */
#define GOOD_BYTES 8388608.0 /* latency is a small part */
#define LATENCY_SHARE 0.5    /* of a request: from there on latency is what it waits for */
#define FEW 8.0              /* in flight, of a rank */
#define WANTED 32.0
#define NEW_SHARE 0.5    /* requests on a new connection: they are not kept */
#define RETRY_SHARE 0.01 /* repeats */

/* "512 requests of boto3 to 127.0.0.1:9000 (TLS)" */
static const char *whose(struct mr_advice *a)
{
    const struct mr_explain_objects *o = &a->f->objects;
    return mr_say(a, "%s requests of %s%s%s%s", mr_say_count(a, o->requests), o->client, o->peer ? " to " : "",
                  o->peer ? o->peer : " to object storage", o->tls ? " (TLS)" : "");
}

static const char *requests_of(struct mr_advice *a)
{
    const struct mr_explain_objects *o = &a->f->objects;
    const char *flight = mr_known(o->in_flight) ? mr_say(a, "%.1f in flight", o->in_flight) : "in flight: not known";
    return mr_say(a, "%s: %s each, first byte after %s, last one after %s; %s; %s new connections", whose(a),
                  mr_say_bytes(a, o->bytes / o->requests), mr_say_s(a, o->first_byte_s / o->requests),
                  mr_say_s(a, o->answer_s / o->requests), flight, mr_say_count(a, o->connections));
}

/* Of a request's time: until its first byte. */
static double latency_share(const struct mr_explain_objects *o)
{
    return o->answer_s > 0 ? fmin(1, o->first_byte_s / o->answer_s) : 0;
}

static double ranks_of(const struct mr_advice *a)
{
    return fmax(1, mr_known_or(a->f->ranks, 1));
}

/* False, with the reason, where there is nothing to say about requests. */
static bool has_requests(struct mr_advice *a)
{
    const struct mr_explain_objects *o = &a->f->objects;
    if (!o->client)
        return mr_silent(a, "no requests to object storage in the trace");
    if (!(o->requests >= REQUESTS_LEAST))
        return mr_silent(a, "only %s", whose(a));
    return true;
}

/* Reads take `left` of their time: by a replay where there is one, else of the waits for reads. */
static void save_reads(struct mr_advice *a, struct mr_draft *d, double left, const char *what)
{
    struct mr_pipeline q = mr_pipeline_now(a);
    double pool = mr_pool_s(a, d->pools);
    q.read_x = left;
    d->f.potential = a->f->has_steps && !a->starved;
    d->f.confidence = 0.6;
    if (a->f->has_steps && mr_predict(a, d, &q)) {
        d->pools |= MR_POOL_STALL; /* quicker loads shorten all waits */
        d->f.saves_low_s = 0;
        d->f.formula = mr_replay_formula(a, what);
        return;
    }
    d->f.saves_s = pool * (1 - left);
    d->f.saves_low_s = 0;
    d->f.saves_high_s = pool;
    d->f.formula =
        mr_say(a, "not replayed: waits for reads %s x (1 - %s): %s", mr_say_s(a, pool), mr_say_share(a, left), what);
}

bool mr_rule_ob1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_objects *o = &a->f->objects;
    double latency = latency_share(o), each = o->bytes / o->requests;
    if (!has_requests(a))
        return false;
    if (each >= SMALL)
        return mr_silent(a, "%s each: not small", mr_say_bytes(a, each));
    if (latency < LATENCY_SHARE)
        return mr_silent(a, "the first byte comes after %s of a request's time", mr_say_share(a, latency));
    double left = 1 - latency * (1 - each / GOOD_BYTES);
    save_reads(
        a, d, left,
        mr_say(a, "one request per %s instead of one per %s", mr_say_bytes(a, GOOD_BYTES), mr_say_bytes(a, each)));
    d->f.title = mr_say(a, "object storage is asked for %s at a time: %s of each request is latency",
                        mr_say_bytes(a, each), mr_say_share(a, latency));
    d->f.fix = "pack samples into objects of 100 MB or more and read ranges of them, or keep them near after the first "
               "epoch";
    d->f.evidence = requests_of(a);
    mr_change_storage(a, d, MR_TARGET_FILES, "millrace pack SET SHARDS --to tar");
    mr_change_option(a, d, "reader.tiers", NULL, "auto");
    mr_change_to_new_data(a, d);
    return true;
}

bool mr_rule_ob2(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_objects *o = &a->f->objects;
    double latency = latency_share(o), flying = o->in_flight / ranks_of(a);
    if (!has_requests(a))
        return false;
    if (!mr_known(o->in_flight))
        return mr_silent(a, "how many requests are in flight is not known");
    if (flying >= FEW)
        return mr_silent(a, "%.1f requests of a rank are in flight", flying);
    if (latency < LATENCY_SHARE)
        return mr_silent(a, "the first byte comes after %s of a request's time: more at a time share the rest",
                         mr_say_share(a, latency));
    if (mr_storage_is_limit(a))
        return mr_silent(a, "the storage is the limit (TH4)");
    double more = WANTED / fmax(flying, 1), left = 1 - latency * (1 - 1 / more);
    save_reads(a, d, left, mr_say(a, "%.0f requests in flight instead of %.1f hide latency", WANTED, flying));
    d->f.title = mr_say(a, "%.1f requests to object storage in flight, each waits %s for its first byte", flying,
                        mr_say_s(a, o->first_byte_s / o->requests));
    d->f.fix =
        "more requests at a time: more workers, several objects per worker, or a loader that keeps many in flight";
    d->f.evidence = requests_of(a);
    mr_change_option(a, d, "reader.read_threads", NULL, "16");
    mr_change_code(a, d, MR_IDIOM_PYTORCH,
                   "concurrent.futures.ThreadPoolExecutor(16).map(get, keys)    # the objects of a batch at a time");
    mr_change_argument(a, d, MR_TARGET_LOADER, "num_workers", NULL, "8");
    return true;
}

bool mr_rule_ob3(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_objects *o = &a->f->objects;
    double latency = latency_share(o), each = o->bytes / o->requests;
    if (!has_requests(a))
        return false;
    if (!mr_known(o->in_flight) || o->in_flight > 1.5 * ranks_of(a))
        return mr_silent(a, "more than one request of a rank is in flight, or how many is not known");
    if (latency >= LATENCY_SHARE || each < SMALL)
        return mr_silent(a, "requests wait for latency, not for their bytes (OB1, OB2)");
    double rate = o->bytes / fmax(o->answer_s - o->first_byte_s, 1e-9);
    save_reads(a, d, 0.25, "four connections at a time bring four times one's rate");
    d->f.title = mr_say(a, "one connection to object storage at a time, which brings %s", mr_say_rate(a, rate));
    d->f.fix = "read large objects in parallel ranges, over 8 to 16 connections";
    d->f.evidence = requests_of(a);
    mr_change_option(a, d, "reader.read_threads", NULL, "8");
    mr_change_code(a, d, MR_IDIOM_PYTORCH,
                   "boto3.s3.transfer.TransferConfig(multipart_chunksize=8 << 20, max_concurrency=16)    # for "
                   "download_fileobj");
    return true;
}

bool mr_rule_ob4(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_objects *o = &a->f->objects;
    if (!has_requests(a))
        return false;
    double share = o->connections / o->requests;
    if (!(share >= NEW_SHARE))
        return mr_silent(a, "%s of the requests were on a new connection", mr_say_share(a, share));
    double each = mr_known(o->connect_s) ? o->connect_s / fmax(o->connections, 1) : NAN;
    double left = mr_known(each) && o->answer_s > 0 ? fmax(0.1, 1 - o->connect_s / o->answer_s) : o->tls ? 0.5 : 0.8;
    save_reads(a, d, left, "connections are kept: no handshake for each request");
    d->f.confidence = 0.5;
    d->f.title = mr_say(a, "%s of the requests to object storage open a new connection%s", mr_say_share(a, share),
                        o->tls ? ", with a TLS handshake" : "");
    d->f.fix = "one client per worker for its whole life: make it once, not for each sample; close what is read";
    d->f.evidence = requests_of(a);
    mr_change_code(a, d, MR_IDIOM_PYTORCH,
                   "self.client = self.client or boto3.client('s3')    # in __getitem__: once per worker");
    return true;
}

bool mr_rule_ob5(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_objects *o = &a->f->objects;
    if (!has_requests(a))
        return false;
    if (!mr_known(o->retries))
        return mr_silent(a, "repeats do not show in calls");
    double share = o->retries / o->requests;
    if (share < RETRY_SHARE)
        return mr_silent(a, "%s of the requests were repeats", mr_say_share(a, share));
    save_reads(a, d, 1 - share, "no request is repeated");
    d->f.confidence = 0.5;
    d->f.title = mr_say(a, "%s of the requests to object storage were repeats; %s answers asked to slow down",
                        mr_say_share(a, share), mr_say_count(a, mr_known_or(o->slowdowns, 0)));
    d->f.fix =
        "fewer requests at a time (connections=), more prefixes or a higher limit of the server; '-v' names each "
        "repeat";
    d->f.evidence = requests_of(a);
    mr_change_option(a, d, "--store", NULL, "s3(connections=8)");
    return true;
}
