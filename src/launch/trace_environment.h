/* What a program needs in its environment to be traced: the preload library, where its rings go, the filters. */
#ifndef MR_LAUNCH_TRACE_ENVIRONMENT_H
#define MR_LAUNCH_TRACE_ENVIRONMENT_H

#include <millrace/error.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* What is recorded. Lists are separated by ':'; NULL is an empty list. */
struct mr_trace_settings {
    const char *include, *exclude, *groups;
    int64_t signal, sample;
    bool start, python, strays;
};

/* The path of libmillrace_trace.so, which lies beside this program. */
int mr_trace_library_find(char out[PATH_MAX], struct mr_error *err);
/* Whether this kernel can intercept system calls made outside the C library (Syscall User Dispatch). */
bool mr_trace_strays_possible(void);
/* 0, or the errno with which starting `program` would fail, as far as that can be known before. */
int mr_trace_program_missing(const char *program);
/* Sets the variables in this process, for `program` to inherit. Not thread-safe (setenv): call it after fork. */
void mr_trace_environment_set(const struct mr_trace_settings *s, const char *program, const char *library,
                              const char *spool);

#endif
