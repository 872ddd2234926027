/* How much of a long test is done. A sanitizer finds in few repetitions what it finds at all, and makes each of them several
 * times as long; the release build does all of them. With MR_TEST_FULL=1 (make test-full) every build does. */
#ifndef MR_TESTS_AMOUNT_H
#define MR_TESTS_AMOUNT_H
#include <stdbool.h>
#include <stdlib.h>

#ifdef __SANITIZE_THREAD__
#define MR_UNDER_TSAN 1
#else
#define MR_UNDER_TSAN 0
#endif
#ifdef __SANITIZE_ADDRESS__
#define MR_UNDER_ASAN 1
#else
#define MR_UNDER_ASAN 0
#endif

static inline bool mr_test_in_part(bool sanitizer)
{
    return sanitizer && !getenv("MR_TEST_FULL");
}

/* The step of a sweep: every case, or every `tsan`-th under ThreadSanitizer. */
static inline unsigned mr_test_stride(unsigned tsan)
{
    return mr_test_in_part(MR_UNDER_TSAN) ? tsan : 1;
}

/* The number of random worlds: all, or a third of them under a sanitizer. */
static inline unsigned mr_test_few(unsigned all)
{
    return mr_test_in_part(MR_UNDER_TSAN || MR_UNDER_ASAN) ? (all + 2) / 3 : all;
}

#endif
