/* longjmp and its kin: a signal handler that interrupted the tracer may leave by one, and the interrupted code never
 * goes on. The jump itself is not recorded. The stack pointer of the target is read from the buffer as the GNU C
 * library stores it on x86-64 (word 6, rotated and mixed with the thread's pointer guard); elsewhere the next call on
 * the thread finds out (mr_abandoned). */
#include "tracer/wrap.h"

static inline uintptr_t target_of(const void *buffer)
{
#if defined(__x86_64__) && defined(__GLIBC__)
    uint64_t stored = ((const uint64_t *)buffer)[6], guard;
    __asm__("mov %%fs:0x30, %0" : "=r"(guard));
    return (uintptr_t)((stored >> 17 | stored << 47) ^ guard);
#else
    (void)buffer;
    return 0;
#endif
}

#define MR_JUMP(name)                                                                                                  \
    static void boot_##name(void *buffer, int value);                                                                  \
    static void (*real_##name)(void *, int) = boot_##name;                                                             \
    static void boot_##name(void *buffer, int value)                                                                   \
    {                                                                                                                  \
        *(void **)&real_##name = mr_next(#name);                                                                       \
        real_##name(buffer, value);                                                                                    \
    }                                                                                                                  \
    MR_EXPORT _Noreturn void w_##name(void *buffer, int value) __asm__(#name);                                         \
    _Noreturn void w_##name(void *buffer, int value)                                                                   \
    {                                                                                                                  \
        uintptr_t target = mr_tls.busy ? target_of(buffer) : 0;                                                        \
        if (target)                                                                                                    \
            mr_before_jump(target);                                                                                    \
        real_##name(buffer, value);                                                                                    \
        __builtin_unreachable();                                                                                       \
    }
MR_JUMP(longjmp)
MR_JUMP(_longjmp)
MR_JUMP(siglongjmp)
MR_JUMP(__longjmp_chk)
