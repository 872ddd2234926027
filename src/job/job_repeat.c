/* Repeated runs of one point: medians, how far they spread, and whether they did the same work. Runs that did not are
 * not repeats of each other, and there is no verdict. */
#include "base/common.h"
#include "job/job_search.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIDENCE 0.95

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The k-th least and the k-th most of n values have the median between them unless fewer than k lie on one side: twice
 * P(Binomial(n, 1/2) < k). */
static double coverage(size_t n, size_t k)
{
    double term = pow(0.5, (double)n), sum = 0;
    for (size_t i = 0; i < k; i++) {
        sum += term;
        term *= (double)(n - i) / (double)(i + 1);
    }
    return fmax(0, 1 - 2 * sum);
}

struct mr_job_spread mr_job_spread_of(double *v, size_t n)
{
    size_t k = 1;
    if (!n)
        return (struct mr_job_spread){NAN, NAN, NAN, 0};
    qsort(v, n, sizeof(*v), ascending);
    while (2 * (k + 1) <= n && coverage(n, k + 1) >= CONFIDENCE)
        k++;
    return (struct mr_job_spread){
        .median = (v[(n - 1) / 2] + v[n / 2]) / 2, .low = v[k - 1], .high = v[n - k], .confidence = coverage(n, k)};
}

/* ---- a point ---- */

static struct mr_job_spread spread(const struct mr_job_point *runs, size_t n, size_t stride, size_t member)
{
    double *v = calloc(MR_MAX(n, 1u), sizeof(*v));
    size_t k = 0;
    for (size_t r = 0; v && r < n; r++) {
        const struct mr_job_point *p = &runs[r * stride];
        double x;
        memcpy(&x, (const char *)p + member, sizeof x);
        if (p->measured && !isnan(x))
            v[k++] = x;
    }
    struct mr_job_spread s = mr_job_spread_of(v, k);
    free(v);
    return s;
}

static bool compare_work(const struct mr_job_point *a, const struct mr_job_point *b, size_t which, char *text,
                         size_t cap)
{
    const struct {
        const char *what;
        uint64_t first, other;
    } rows[] = {{"steps", a->steps, b->steps},
                {"samples", a->samples, b->samples},
                {"bytes for the trainer", a->sample_bytes, b->sample_bytes},
                {"bytes read", a->read_bytes, b->read_bytes}};
    for (size_t i = 0; i < MR_ARRAY_LEN(rows); i++)
        if (rows[i].first != rows[i].other) {
            snprintf(text, cap, "repeat %zu did other work: %" PRIu64 " %s, the first had %" PRIu64, which + 1,
                     rows[i].other, rows[i].what, rows[i].first);
            return false;
        }
    return true;
}

/* All say the same, or there is no verdict. */
static void judge(const struct mr_job_point *runs, size_t n, size_t stride, const struct mr_job_repeats *r,
                  struct mr_job_point *point)
{
    size_t count[4] = {0};
    point->because[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        const struct mr_job_point *p = &runs[i * stride];
        if (!p->measured)
            continue;
        count[p->verdict]++;
        if (p->verdict == MR_JOB_NO_VERDICT && !point->because[0])
            snprintf(point->because, sizeof point->because, "%.480s (repeat %zu)", p->because, i + 1);
    }
    point->verdict = count[MR_JOB_PASS] == r->n   ? MR_JOB_PASS
                     : count[MR_JOB_FAIL] == r->n ? MR_JOB_FAIL
                     : count[MR_JOB_NOT_ASKED]    ? MR_JOB_NOT_ASKED
                                                  : MR_JOB_NO_VERDICT;
    if (!r->same_work && point->verdict != MR_JOB_NOT_ASKED) {
        point->verdict = MR_JOB_NO_VERDICT;
        snprintf(point->because, sizeof point->because, "%s", r->other_work);
    } else if (point->verdict == MR_JOB_NO_VERDICT && !point->because[0])
        snprintf(point->because, sizeof point->because, "the repeats disagree: %zu pass, %zu fail", count[MR_JOB_PASS],
                 count[MR_JOB_FAIL]);
}

void mr_job_sum_repeats(const struct mr_job_point *runs, size_t n, size_t stride, struct mr_job_point *point,
                        struct mr_job_repeats *out)
{
    const struct mr_job_point *first = NULL;
    *out = (struct mr_job_repeats){.same_work = true};
    for (size_t r = 0; r < n; r++) {
        const struct mr_job_point *p = &runs[r * stride];
        if (!p->measured)
            continue;
        first = first ? first : p;
        out->n++;
        if (out->same_work)
            out->same_work = compare_work(first, p, r, out->other_work, sizeof out->other_work);
    }
    point->measured = out->n > 0;
    if (!first)
        return;
    out->au = spread(runs, n, stride, offsetof(struct mr_job_point, au));
    out->samples_per_s = spread(runs, n, stride, offsetof(struct mr_job_point, samples_per_s));
    point->ranks = first->ranks;
    point->au = out->au.median;
    point->samples_per_s = out->samples_per_s.median;
    point->read_bytes_per_s = spread(runs, n, stride, offsetof(struct mr_job_point, read_bytes_per_s)).median;
    point->stall_p99_s = spread(runs, n, stride, offsetof(struct mr_job_point, stall_p99_s)).median;
    point->data_share = spread(runs, n, stride, offsetof(struct mr_job_point, data_share)).median;
    point->duration_s = spread(runs, n, stride, offsetof(struct mr_job_point, duration_s)).median;
    point->steps = first->steps;
    point->samples = first->samples;
    point->sample_bytes = first->sample_bytes;
    point->read_bytes = first->read_bytes;
    snprintf(point->limiter, sizeof point->limiter, "%s", first->limiter);
    judge(runs, n, stride, out, point);
}
