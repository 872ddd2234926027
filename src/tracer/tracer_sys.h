/* System calls by instruction, for the tracer's own work: they touch neither errno nor any wrapped function. The
 * instruction lies behind a pointer, because stray calls (tracer_strays.c) are told from ours by the address of the
 * instruction. */
#ifndef MR_TRACER_SYS_H
#define MR_TRACER_SYS_H

#include <stdint.h>
#include <sys/syscall.h>

#if defined(__clang_analyzer__)
/* For static checks a function like any other that may write where its arguments point: they cannot see that the
 * instruction does. */
long mr_sys6(long n, long a, long b, long c, long d, long e, long f);
#elif defined(__x86_64__)
/* `syscall; ret`. */
extern __attribute__((visibility("hidden"))) const void *mr_gate;

static inline long mr_sys6(long n, long a, long b, long c, long d, long e, long f)
{
    long r;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    /* The call must not write into the red zone. */
    __asm__ volatile("lea -128(%%rsp), %%rsp\n\tcall *%[gate]\n\tlea 128(%%rsp), %%rsp"
                     : "=a"(r)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9), [gate] "r"(mr_gate)
                     : "rcx", "r11", "memory", "cc");
    return r;
}
#elif defined(__aarch64__)
static inline long mr_sys6(long n, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = n;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
#else
#error "the tracer knows x86-64 and aarch64"
#endif

#define mr_sys0(n) mr_sys6(n, 0, 0, 0, 0, 0, 0)
#define mr_sys1(n, a) mr_sys6(n, (long)(a), 0, 0, 0, 0, 0)
#define mr_sys2(n, a, b) mr_sys6(n, (long)(a), (long)(b), 0, 0, 0, 0)
#define mr_sys3(n, a, b, c) mr_sys6(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define mr_sys4(n, a, b, c, d) mr_sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

#endif
