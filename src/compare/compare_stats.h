/* The statistics of comparisons: pure arithmetic, no I/O.
 *
 * What is compared are runs, not steps: steps of one run share its machine, its cache and its neighbours, so a hundred
 * steps of one run are one observation. A side of n runs has n values per metric; their spread, with n - 1 degrees of
 * freedom, says how sure the mean is: Student's t with the spread of both sides together, or Welch's where one side
 * spreads so much more than the other that chance does not explain it (F-test, 5 %). Two or three runs may agree by
 * luck: the spread is therefore never taken to be smaller than what the steps inside of the runs say, by a bootstrap
 * over blocks of neighbouring steps (neighbours resemble each other; single steps would look more certain than they
 * are). */
#ifndef MR_COMPARE_COMPARE_STATS_H
#define MR_COMPARE_COMPARE_STATS_H

#include <stddef.h>
#include <stdint.h>

/* Parts of a step, seconds; mean over the ranks. */
enum mr_compare_part {
    MR_PART_STEP,
    MR_PART_COMPUTE,
    MR_PART_STALL,
    MR_PART_CHECKPOINT,
    MR_PART_BARRIER,
    MR_PART_COUNT
};
struct mr_compare_step {
    float s[MR_PART_COUNT];
};

/* What the steps of a run amount to. */
struct mr_step_figures {
    double sum[MR_PART_COUNT];
    double p99_step, p99_stall;
};
void mr_step_figures_of(const struct mr_compare_step *step, size_t n, struct mr_step_figures *out);

/* Standard errors of the same figures, and of each part's share of the steps; NAN where there are too few steps to
 * say (fewer than 4 blocks). -ENOMEM. */
struct mr_step_errors {
    double sum[MR_PART_COUNT], share[MR_PART_COUNT];
    double p99_step, p99_stall;
};
int mr_step_errors_of(const struct mr_compare_step *step, size_t n, uint64_t seed, struct mr_step_errors *out);

/* Two means: their difference, how sure it is. */
struct mr_runs_mean {
    double mean, sd; /* of the runs; sd NAN for one */
    double floor;    /* standard error of one run's value by its steps; NAN unknown */
    size_t n;
};
struct mr_difference {
    double change, error, df; /* second - first; error and df NAN with fewer than two runs on either side */
    double p;                 /* two-sided; NAN where error is */
};
struct mr_difference mr_difference_of(const struct mr_runs_mean *a, const struct mr_runs_mean *b);

/* P(F > ratio) of two variances with so many degrees of freedom: how likely chance makes the first so much larger. */
double mr_f_test(double ratio, double df, double other_df);

/* P(|T| > t) of Student's t with df degrees of freedom, and its inverse. */
double mr_student_p(double t, double df);
double mr_student_quantile(double p, double df);

/* Holm's correction in place, with weights: multiplies so that the chance of one false finding among all of them stays
 * at the level, and tests of more weight get more of it. -ENOMEM. */
int mr_holm(double *p, const double *weight, size_t n);

#endif
