/* Reads objects of constant size with many requests at once, by our store or by bare libcurl: product and floor of
 * bench/run_s3, which asks for rounds in turn.
 *
 *   s3_read ours|floor ENDPOINT BYTES REQUESTS        each line of standard input, "N", reads N objects and prints
 *                                                     "bytes wall-seconds CPU-seconds"
 *
 * The floor does what every client must: one kept connection per request that is under way, GET, the body copied to where it
 * belongs. It signs nothing, looks at no header, repeats nothing. Both read into the same kind of slab, touched beforehand. */
#include "bench.h"
#include "store/store.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OBJECTS 1000u

static struct {
    const char *endpoint;
    size_t bytes;
    unsigned requests; /* at once */
    char *slab;        /* a place for each */
} job;

static void object_path(char *out, size_t cap, const char *prefix, unsigned long i)
{
    snprintf(out, cap, "%sbench/%u/%zu/o%06lu.raw", prefix, OBJECTS, job.bytes, i % OBJECTS);
}

/* ---- the floor ---- */

struct transfer {
    CURL *easy;
    char *place;
    size_t got;
};

static CURLM *multi;
static struct transfer *transfers;

static size_t take(char *data, size_t one, size_t n, void *user)
{
    struct transfer *t = user;
    if (n * one > job.bytes - t->got)
        return 0;
    memcpy(t->place + t->got, data, n * one);
    t->got += n * one;
    return n * one;
}

static void floor_open(void)
{
    multi = curl_multi_init();
    transfers = calloc(job.requests, sizeof(*transfers));
    if (!multi || !transfers)
        bench_die("no memory");
    curl_multi_setopt(multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)job.requests);
    for (unsigned i = 0; i < job.requests; i++) {
        struct transfer *t = &transfers[i];
        t->easy = curl_easy_init();
        t->place = job.slab + i * job.bytes;
        const char *buffer = getenv("FLOOR_BUFFER");
        curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
        curl_easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(t->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
        curl_easy_setopt(t->easy, CURLOPT_BUFFERSIZE, buffer ? atol(buffer) : 256L * 1024);
        curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, take);
        curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
    }
}

static void floor_start(struct transfer *t, unsigned long i)
{
    char prefix[256], url[512];
    snprintf(prefix, sizeof prefix, "%s/", job.endpoint);
    object_path(url, sizeof url, prefix, i);
    t->got = 0;
    curl_easy_setopt(t->easy, CURLOPT_URL, url);
    curl_multi_add_handle(multi, t->easy);
}

static void floor_read(unsigned long n)
{
    unsigned long started = 0, done = 0;
    int running, left;
    for (; started < n && started < job.requests; started++)
        floor_start(&transfers[started], started);
    while (done < n) {
        curl_multi_perform(multi, &running);
        bool any = false;
        for (CURLMsg *m; (m = curl_multi_info_read(multi, &left));) {
            struct transfer *t;
            long status = 0;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
            curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
            if (m->data.result != CURLE_OK || status != 200 || t->got != job.bytes)
                bench_die("libcurl: %s, status %ld", curl_easy_strerror(m->data.result), status);
            curl_multi_remove_handle(multi, t->easy);
            done++;
            any = true;
            if (started < n)
                floor_start(t, started++);
        }
        if (!any && done < n)
            curl_multi_poll(multi, NULL, 0, 1000, NULL);
    }
}

/* ---- ours ---- */

static struct mr_store *store;
static struct mr_ioq *queue;
static struct mr_io *ios;

static void ours_open(void)
{
    char spec[256];
    struct mr_error err;
    snprintf(spec, sizeof spec, "s3(endpoint=\"%s\",connections=%u)", job.endpoint, job.requests);
    if (mr_store_open(spec, &store, &err) || store->ops->ioq_create(store, job.requests, &queue, &err))
        bench_die("%s", err.message);
    if (!(ios = calloc(job.requests, sizeof(*ios))))
        bench_die("no memory");
}

static void ours_start(struct mr_io *io, unsigned long i)
{
    static char(*paths)[128];
    struct mr_error err;
    size_t slot = (size_t)(io - ios);
    if (!paths && !(paths = calloc(job.requests, sizeof(*paths))))
        bench_die("no memory");
    object_path(paths[slot], sizeof paths[slot], "s3://", i);
    *io = (struct mr_io){
        .op = MR_IO_READ_PATH, .path = paths[slot], .buf = job.slab + slot * job.bytes, .len = job.bytes};
    if (store->ops->ioq_submit(queue, &io, 1, &err))
        bench_die("%s", err.message);
}

static void ours_read(unsigned long n)
{
    unsigned long started = 0, done = 0;
    struct mr_io *finished[64];
    struct mr_error err;
    for (; started < n && started < job.requests; started++)
        ours_start(&ios[started], started);
    while (done < n) {
        int k = store->ops->ioq_reap(queue, 1, 64, finished, &err);
        for (int i = 0; i < k; i++) {
            if (mr_io_error(finished[i], &err))
                bench_die("%s", err.message);
            done++;
            if (started < n)
                ours_start(finished[i], started++);
        }
    }
}

int main(int argc, char **argv)
{
    char line[64];
    if (argc != 5)
        bench_die("usage: s3_read ours|floor ENDPOINT BYTES REQUESTS");
    bool ours = !strcmp(argv[1], "ours");
    job.endpoint = argv[2];
    job.bytes = strtoull(argv[3], NULL, 10);
    job.requests = (unsigned)strtoul(argv[4], NULL, 10);
    job.slab = malloc(job.bytes * job.requests);
    if (!job.slab || !job.requests)
        bench_die("no memory");
    memset(job.slab, 0, job.bytes * job.requests);
    ours ? ours_open() : floor_open();
    while (fgets(line, sizeof line, stdin)) {
        unsigned long n = strtoul(line, NULL, 10);
        struct bench_time t = bench_clock();
        ours ? ours_read(n) : floor_read(n);
        t = bench_since(t);
        for (unsigned i = 0; i < job.requests && i < n; i++)
            if (job.slab[(i + 1) * job.bytes - 1] != 'x')
                bench_die("place %u holds other bytes", i);
        printf("%.0f %.6f %.6f\n", (double)n * (double)job.bytes, t.wall_s, t.cpu_s);
        fflush(stdout);
    }
    return 0;
}
