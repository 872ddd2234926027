/* Element types and dimensions of samples: what an array in a file, a row of a batch and a plug-in's format agree on.
 * Types are numpy's; values are little-endian in memory. */
#ifndef MILLRACE_DTYPE_H
#define MILLRACE_DTYPE_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Dimensions, the slowest axis first; n = 0 is one number. */

/* X(name, numpy kind and size, bytes) */
/* clang-format off */
#define MR_DTYPE_LIST(X) \
    X(MR_U8, "u1", 1) \
    X(MR_I8, "i1", 1) \
    X(MR_U16, "u2", 2) \
    X(MR_I16, "i2", 2) \
    X(MR_U32, "u4", 4) \
    X(MR_I32, "i4", 4) \
    X(MR_U64, "u8", 8) \
    X(MR_I64, "i8", 8) \
    X(MR_F16, "f2", 2) \
    X(MR_F32, "f4", 4) \
    X(MR_F64, "f8", 8) \
    X(MR_BOOL, "b1", 1) \
    X(MR_C64, "c8", 8) \
    X(MR_C128, "c16", 16) \
    X(MR_BF16, "bf2", 2)
/* clang-format on */
enum mr_dtype {
#define MR_DTYPE_ENUM(name, np, bytes) name,
    MR_DTYPE_LIST(MR_DTYPE_ENUM)
#undef MR_DTYPE_ENUM
        MR_DTYPE_COUNT
};
unsigned mr_dtype_bytes(enum mr_dtype t);
const char *mr_dtype_numpy(enum mr_dtype t); /* "u1" */
/* "uint8", "float32", "fp16", "<f4", "|u1" ...; MR_E_USAGE with the list if unknown. Big-endian ('>f4') sets *swap. */
int mr_dtype_parse(const char *text, enum mr_dtype *out, bool *swap, struct mr_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
