/* Included before every source by scripts/lint. Tells the analyzer what it cannot see across files: these functions
 * return the (negative) code they are given, so a caller that goes on did get its outputs. */
#ifndef MR_LINT_MODEL_H
#define MR_LINT_MODEL_H
#include <millrace/error.h>

#define mr_error_set(err, code, ...) (mr_error_set(err, code, __VA_ARGS__), (code))
#define mr_error_plain(err, code, ...) (mr_error_plain(err, code, __VA_ARGS__), (code))
#endif
