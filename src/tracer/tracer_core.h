/* The heart of the preload library: what every wrapper needs, inlined.
 *
 * Hot path (mr_enter, real call, mr_put): no lock, no malloc, no formatting, no system call; about 15 loads and stores.
 *
 * Invariants
 *  T1. A wrapper behaves as the function it wraps: same result, same errno; the program's pointers are read only after
 * the real call has accepted them. T2. A ring slot is written by its thread only. `busy` is set around every write; a
 * signal handler that interrupts it parks its events in `pending`, and the interrupted code stores them. A handler may
 * also leave by longjmp: then the interrupted code never goes on, and mr_abandoned() finds that out by the stack
 * pointer kept in `busy`. T3. After any kind of fork the page `mr_live` reads as zero (MADV_WIPEONFORK), so a child
 * never writes the parent's rings: it finds active == 0 and starts afresh. A vfork child runs in its parent's memory
 * and is marked by `vforked`. T4. The library keeps no descriptor open, starts no thread, installs no signal handler
 * unless asked to. T5. On internal failure: one line on stderr, tracing ends, the program goes on. T6. A wrapper makes
 * the system call itself (mr_direct) only where the function it wraps would do nothing else: the C library's own read,
 * write, pread, pwrite or lseek in a program of one thread. */
#ifndef MR_TRACER_CORE_H
#define MR_TRACER_CORE_H

#include "base/common.h"
#include "event/calls.h"
#include "event/raw.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define MR_HIDDEN __attribute__((visibility("hidden")))
#define MR_COLD __attribute__((noinline, cold, visibility("hidden")))
/* What most programs need lies together: a program that works on data between its calls finds the tracer out of the
 * caches, and every line of code and every page that it does not touch is time saved. */
#define MR_TOGETHER __attribute__((section(".text.hot.millrace")))
#define MR_HOT __attribute__((noinline, visibility("hidden"))) MR_TOGETHER
#define MR_EXPORT __attribute__((visibility("default")))

/* Keeps the compiler from working a value out once more. */
#define MR_OPAQUE(value) __asm__("" : "+r"(value))

#define MR_FILE_EXCLUDED 0xffffffffu
#define MR_FD_STORED 0xfffeu /* descriptors from here on are stored as one */
#define MR_PENDING 16

struct mr_tls {
    struct mr_slot *slot;
    uint64_t head;  /* next position to write */
    uint64_t limit; /* go to the slow path at this position, which lies in the same lap */
    char *lap;      /* where the cell of position 0 would lie, if all the ring went on like this lap */
    /* Of the event before, for repeats, as in struct mr_carry; last_file 0: none may follow. */
    uint64_t last_end, last_offset;
    uint32_t last_file, last_result;
    uint16_t last_fd1, pendings;
    uint32_t busy; /* inside the tracer: mr_mark() of the frame that entered, or 1 */
    /* A cache line ends here. */
    uint32_t vforked; /* a vfork child is running on this thread */
    uint32_t epoch;   /* mr_core.epoch this state belongs to */
    uint64_t freed;   /* slot->freed, when last looked */
    struct mr_raw pending[MR_PENDING];
};

/* One page that the kernel wipes in a forked child. */
struct mr_live {
    uint32_t active; /* 1: record */
    uint32_t alive;  /* 1: this process is initialised */
    uint32_t plain;  /* descriptors below: reads, writes and seeks are all recorded, with stamps of the TSC; 0 unless
                        active */
    _Atomic uint32_t
        beginning; /* lock: of the threads of a forked child, which may make their first calls at once, one begins */
    _Atomic uint32_t *file_of; /* as in mr_core, if plain */
    const char *alone; /* if plain: not 0 there: mr_direct may do what the C library's read, write, pread, pwrite and
                          lseek would do */
    char page[4064];   /* nothing else may share the page */
};

/* Process-wide state; private memory, so a forked child starts with a copy of it. */
struct mr_core {
    _Atomic uint32_t *file_of; /* by descriptor: string id, 0 unknown, MR_FILE_EXCLUDED */
    uint32_t files;            /* entries of file_of */
    _Atomic uint32_t max_fd;
    uint32_t epoch; /* counts initialisations: 1, 2 in a forked child ... */
    uint32_t use_tsc;
    uint32_t sample;                /* keep every n-th of hot calls */
    uint32_t choosy;                /* not all of call_on is 1: it must be looked at */
    uint32_t python_waits;          /* mr_python_opened wants to know of files */
    uint32_t switched_on;           /* by the program, a signal or the configuration */
    uint8_t call_on[MR_CALL_COUNT]; /* 0 off, 1 on, 2 sampled */
};

/* Each begins a cache line: the hot path should touch few. */
extern MR_HIDDEN __thread _Alignas(64) struct mr_tls mr_tls __attribute__((tls_model("initial-exec")));
extern MR_HIDDEN struct mr_live mr_live;
extern MR_HIDDEN _Alignas(64) struct mr_core mr_core;

static inline uint64_t mr_clock_stamp(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t mr_stamp_by(uint32_t use_tsc)
{
#if defined(__x86_64__)
    if (MR_LIKELY(use_tsc))
        return __builtin_ia32_rdtsc();
#endif
    (void)use_tsc;
    return mr_clock_stamp();
}

static inline uint64_t mr_stamp(void)
{
    return mr_stamp_by(mr_core.use_tsc);
}

/* What `busy` holds: the low half of the stack pointer. */
static inline uint32_t mr_mark(void)
{
    uintptr_t sp;
#if defined(__x86_64__)
    __asm__("lea 1(%%rsp), %0" : "=r"(sp)); /* it is even */
    return (uint32_t)sp;
#else
    __asm__("mov %0, sp" : "=r"(sp));
    return (uint32_t)sp | 1;
#endif
}

/* With `busy` set: true if the frame that set it is gone, because a signal handler left by longjmp. The tracer's state
 * of this thread is then put in order and `busy` is 0. `frame` is the caller's __builtin_frame_address(0). */
MR_COLD bool mr_abandoned(const void *frame);
/* The program jumps to a frame with this stack pointer. */
MR_COLD void mr_before_jump(uintptr_t stack_pointer);
MR_HIDDEN void mr_names_abandon(void);
/* Around code that takes locks, so that no handler can leave it by longjmp. */
MR_HIDDEN uint64_t mr_signals_block(void);
MR_HIDDEN void mr_signals_restore(uint64_t before);

/* True if the call is to be recorded. The slow form initialises, or re-initialises after a fork. */
MR_COLD bool mr_enter_slow(void);
static inline bool mr_enter(void)
{
    return MR_LIKELY(mr_live.active) || mr_enter_slow();
}

/* In a forked child, on the thread that forked: another thread may begin the process, and this one must not go on in
 * its parent's ring. */
MR_HIDDEN void mr_after_fork(void);

/* What goes with an event beyond its fixed fields. */
struct mr_extra {
    uint32_t type, key; /* enum mr_more */
    uint64_t value;
};

/* Stores an event with extras; also the way out of every case the hot path does not want. */
MR_COLD void mr_put_slow(uint64_t t0, uint64_t t1, unsigned call, uint32_t file, uint32_t fd1, uint64_t offset,
                         int64_t result, const struct mr_extra *extra, unsigned extras);
MR_COLD void mr_flush_pending(void);

/* Starts or stops recording; mr_switch also for the children forked from here on. */
MR_HIDDEN void mr_set_active(bool active);
MR_HIDDEN void mr_switch(bool on);

static inline struct mr_raw mr_raw_of(uint64_t t0, uint64_t dur, unsigned call, uint32_t file, uint32_t fd1,
                                      uint64_t offset, int64_t result)
{
    return (struct mr_raw){
        {offset << 16 | call, (uint64_t)file << 32 | (uint32_t)dur, t0, (uint64_t)result << 16 | (uint16_t)fd1}};
}

static inline struct mr_raw mr_raw_more(const struct mr_extra *e)
{
    return (struct mr_raw){{MR_CALL_more, (uint64_t)e->key << 32 | e->type, e->value, 0}};
}

/* The collector has read the line; without asking for it back the store would wait. The compilers' own prefetch asks
 * for reading, where the instruction set they are told of lacks the other one; processors without it take it for a nop.
 */
static inline void mr_prefetch_for_write(const void *p)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
    __builtin_prefetch(p, 1);
#endif
}

/* Around storing: a signal handler that comes in between finds `busy` and parks its events. */
static inline __attribute__((always_inline)) void mr_busy(struct mr_tls *t)
{
    t->busy = mr_mark();
    atomic_signal_fence(memory_order_seq_cst);
}
/* True if a handler has, and mr_flush_pending is to be called. */
static inline __attribute__((always_inline)) bool mr_stored(struct mr_tls *t, const uint64_t *word, uint64_t head)
{
    mr_prefetch_for_write(word + 32); /* beyond the end of the ring it is of no use, and does no harm */
    atomic_store_explicit(&t->slot->head, head, memory_order_release);
    t->head = head;
    atomic_signal_fence(memory_order_seq_cst);
    t->busy = 0;
    return MR_UNLIKELY(t->pendings);
}

/* The cell of a position before t->limit. */
static inline __attribute__((always_inline)) uint64_t *mr_words_at(const struct mr_tls *t, uint64_t head)
{
    uint64_t *word = (uint64_t *)(t->lap + head * sizeof(uint64_t));
    MR_OPAQUE(word);
    return word;
}

static inline __attribute__((always_inline)) void mr_set_cells(uint64_t *word, struct mr_raw raw)
{
    word[0] = raw.word[0];
    word[1] = raw.word[1];
    word[2] = raw.word[2];
    word[3] = raw.word[3];
}

/* Stores an event; the caller has set t->busy and found room. */
static inline __attribute__((always_inline)) void mr_store(struct mr_tls *t, uint64_t h, struct mr_raw raw)
{
    uint64_t *word = mr_words_at(t, h);
    mr_set_cells(word, raw);
    t->last_file =
        raw.word[3] >> 48 ? 0 : (uint32_t)(raw.word[1] >> 32); /* an error or a number this large is no usual result */
    t->last_end = raw.word[2] + (uint32_t)raw.word[1];
    t->last_offset = (uint64_t)((int64_t)raw.word[0] >> 16);
    t->last_result = (uint32_t)(raw.word[3] >> 16);
    t->last_fd1 = (uint16_t)raw.word[3];
    if (mr_stored(t, word, h + MR_RECORD_CELLS))
        mr_flush_pending();
}

/* Not 0 if a value does not fit 48 bits signed. */
static inline uint64_t mr_is_wide(uint64_t value)
{
    return (value + (1ull << 47)) >> 48;
}

/* Six arguments go without the stack. */
#define MR_CALL_FD(call, fd) ((uint64_t)(call) << 32 | (uint32_t)(fd))

/* Sets `busy` if there is room for an event. Not the other way around: a handler that comes in between may store
 * events, or fork, and its child has no room in its parent's ring. */
static inline __attribute__((always_inline)) bool mr_busy_with_room(struct mr_tls *t)
{
    mr_busy(t);
    if (MR_LIKELY(t->head < t->limit))
        return true;
    t->busy = 0;
    return false;
}

/* True if an event is for mr_put_slow; otherwise `busy` is set. */
static inline __attribute__((always_inline)) bool mr_is_unusual(struct mr_tls *t, uint64_t dur, unsigned call,
                                                                uint64_t offset, int64_t result)
{
    uint64_t unusual = mr_is_wide(offset) | mr_is_wide((uint64_t)result) | dur >> 32 | t->busy;
    return MR_UNLIKELY(unusual || (mr_core.choosy && mr_core.call_on[call] != 1)) || MR_UNLIKELY(!mr_busy_with_room(t));
}

/* Stores an event. Contract: no lock, no malloc, no system call unless the ring is full. One copy for all wrappers
 * (MR_HOT), and one to be inlined where every nanosecond counts. */
MR_HOT void mr_put_event(uint64_t t0, uint64_t t1, uint64_t call_fd1, uint32_t file, uint64_t offset,
                         int64_t result); /* MR_CALL_FD(call, fd1) */
static inline void mr_put(uint64_t t0, uint64_t t1, unsigned call, uint32_t file, uint32_t fd1, uint64_t offset,
                          int64_t result)
{
    mr_put_event(t0, t1, MR_CALL_FD(call, fd1), file, offset, result);
}
static inline __attribute__((always_inline)) void mr_put_inline(uint64_t t0, uint64_t t1, unsigned call, uint32_t file,
                                                                uint32_t fd1, uint64_t offset, int64_t result)
{
    struct mr_tls *t = &mr_tls;
    uint64_t dur = t1 - t0;
    if (mr_is_unusual(t, dur, call, offset, result))
        mr_put_slow(t0, t1, call, file, fd1, offset, result, NULL, 0);
    else
        mr_store(t, t->head, mr_raw_of(t0, dur, call, file, fd1, offset, result));
}

/* Stores a call on a descriptor with a known file in a plain process (mr_live.plain) that has not failed, and returns
 * its result. One that is like the event before it takes a quarter of the memory, which is less to write, and to take
 * for the first time; the others go elsewhere, by jumps that leave nothing to be kept for their return. `call` and
 * `kind` are constants, and so is an offset that is MR_NO_OFFSET. */
MR_HOT int64_t mr_put_other(uint64_t t0, uint64_t t1, uint64_t offset_call, uint32_t file, int fd, uint64_t result);
/* lseek has no count. */
MR_HOT int64_t mr_put_unusual(uint64_t t0, uint64_t t1, uint64_t call_fd, uint64_t offset, uint64_t count,
                              int64_t result);
MR_COLD int64_t mr_put_flushed(int64_t result);
static inline __attribute__((always_inline)) int64_t mr_put_plain(uint64_t t0, uint64_t t1, unsigned call,
                                                                  enum mr_short kind, uint32_t file, int fd,
                                                                  uint64_t offset, uint64_t count, uint64_t usual,
                                                                  uint64_t result)
{
    struct mr_tls *t = &mr_tls;
    const bool has_offset = kind >= MR_SHORT_pread, is_seek = kind == MR_SHORT_lseek;
    if (MR_UNLIKELY(result != usual) || MR_UNLIKELY(t->busy))
        return mr_put_unusual(t0, t1, MR_CALL_FD(call, fd), offset, count, (int64_t)result);
    mr_busy(t);
    uint64_t dur = t1 - t0, gap = t0 - t->last_end, h = t->head;
    uint64_t step = has_offset ? offset - t->last_offset : 0;
    uint64_t other = (is_seek ? offset : t->last_result) ^ result; /* the usual result of lseek is its offset */
    other |= (t->last_file ^ file) | (t->last_fd1 ^ ((uint32_t)fd + 1)) | gap >> MR_SHORT_GAP_BITS |
             dur >> MR_SHORT_DURATION_BITS;
    if (MR_UNLIKELY(other | (step + (1u << 31)) >> 32) || MR_UNLIKELY(h >= t->limit)) {
        t->busy = 0;
        if (MR_UNLIKELY(has_offset &&
                        offset >> 47)) /* it does not fit a record; a step from one that did always fits */
            return mr_put_unusual(t0, t1, MR_CALL_FD(call, fd), offset, count, (int64_t)result);
        return mr_put_other(t0, t1, offset << 16 | call, file, fd, result);
    }
    uint64_t *word = mr_words_at(t, h);
    word[0] = step << 32 | dur << 16 | MR_RAW_SHORT | gap << 3 | kind;
    t->last_end = t1;
    if (has_offset)
        t->last_offset = offset;
    return MR_LIKELY(!mr_stored(t, word, h + 1)) ? (int64_t)result : mr_put_flushed((int64_t)result);
}

/* In a program of one thread the C library's functions for data are a system call and nothing else, and so is this; a
 * function call less, that is, of the three that a traced one takes. Threads may be cancelled: for them the C library's
 * own is called. */
static inline bool mr_alone(void)
{
#if defined(__x86_64__)
    uint32_t threads; /* what the C library before 2.36 looks at */
    __asm__("movl %%fs:0x18, %0" : "=r"(threads));
    return (uint8_t)*mr_live.alone > threads; /* 1 and 0 */
#else
    return false;
#endif
}

static inline __attribute__((always_inline)) long mr_direct(long number, long a, long b, long c, long d)
{
#if defined(__x86_64__)
    long r;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(r)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory", "cc");
    return r;
#else
    (void)number, (void)a, (void)b, (void)c, (void)d;
    return -ENOSYS;
#endif
}
/* What it gave is an error: errno is set, the event stored, -1 returned. */
#define MR_DIRECT_REFUSED(r) ((unsigned long)(r) > -4096ul)
MR_COLD int64_t mr_put_refused(uint64_t t0, uint64_t t1, uint64_t call_fd, uint64_t offset, uint64_t count,
                               int64_t error);
/* Whether these functions are the C library's own, and not those of another library that stands between; wrap_posix.c.
 */
MR_HIDDEN bool mr_data_calls_are_plain(void);
MR_HIDDEN void mr_never_direct(void); /* from now on */

/* File of a descriptor; the slow form asks the kernel for one that was opened out of our sight. */
MR_COLD uint32_t mr_file_resolve(int fd);
static inline __attribute__((always_inline)) uint32_t mr_file_of(int fd)
{
    if (MR_LIKELY((uint32_t)fd < mr_core.files)) {
        uint32_t id = atomic_load_explicit(&mr_core.file_of[fd], memory_order_relaxed);
        if (MR_LIKELY(id))
            return id;
    }
    return mr_file_resolve(fd);
}

/* The same without asking, in a plain process: 0 if it is not known or the process is not plain. */
static inline uint32_t mr_file_plain(int fd)
{
    return MR_LIKELY((uint32_t)fd < mr_live.plain) ? atomic_load_explicit(&mr_live.file_of[fd], memory_order_relaxed)
                                                   : 0;
}

/* How a descriptor is stored. */
static inline uint32_t mr_fd1(int fd)
{
    if (MR_UNLIKELY(fd < 0))
        return 0;
    return (uint32_t)fd < MR_FD_STORED ? (uint32_t)fd + 1 : 0xffffu;
}

/* With mr_core.python_waits: a file was opened (tracer_python.c). */
MR_COLD void mr_python_opened(void);

MR_HOT void mr_file_set(int fd, uint32_t file);
MR_HIDDEN void mr_file_dup(int from, int to);
MR_HIDDEN void mr_file_forget_range(unsigned first, unsigned last);
/* String id of a path relative to a directory descriptor (AT_FDCWD: the working directory); MR_FILE_EXCLUDED if a
 * filter says so; 0 if it cannot be stored. */
MR_HOT uint32_t mr_path_id(int dirfd, const char *path);
MR_HIDDEN uint32_t mr_string_id(enum mr_string_kind kind, const char *text, size_t len);
MR_HIDDEN void mr_cwd_changed(void);

/* Stores an event with one extra. */
MR_HOT void mr_put_one(uint64_t t0, uint64_t t1, unsigned call, uint32_t file, uint32_t fd1, uint64_t offset,
                       int64_t result, const struct mr_extra *extra);

/* An event on a descriptor; `count` is what was asked for. Returns `result`, as the real call gave it. */
MR_HOT int64_t mr_put_fd(uint64_t t0, uint64_t t1, unsigned call, int fd, uint64_t offset, uint64_t count,
                         int64_t result);
/* The same for one that moves nothing: no count. */
MR_HOT void mr_put_fd0(uint64_t t0, uint64_t t1, unsigned call, int fd, uint64_t offset, int64_t result);

/* Process events. */
/* exec, whose event must be there when nobody comes back to record it: R9. */
struct mr_exec {
    uint64_t t0;
    unsigned call;
    uint32_t file, fd1;
    bool on, done; /* to be recorded; recorded already */
    bool ends;     /* this image, if it succeeds; otherwise a child in its parent's memory */
};
/* `file`: MR_FILE_EXCLUDED leaves it out. `likely`: the program seems to be there; else nothing is prepared for its
 * success. */
MR_HIDDEN void mr_exec_begin(struct mr_exec *e, unsigned call, uint32_t file, uint32_t fd1, bool likely);
MR_HIDDEN void mr_exec_failed(const struct mr_exec *e, int error);
/* The event of this thread's exec waits in its slot; or it is taken away, which says whether it was there. */
MR_HIDDEN void mr_exec_prepare(const struct mr_exec *e);
MR_HIDDEN bool mr_exec_withdraw(void);
MR_HIDDEN void mr_before_exec(void); /* everything recorded is safe; the image is about to go */
MR_HIDDEN void mr_after_exec(void);  /* exec failed: go on */
MR_HIDDEN void mr_before_exit(void);
MR_HIDDEN int mr_errno_keep(void);
MR_HIDDEN void mr_say(const char *what, long error);
/* Environment with our variables put back: returns env itself if they are there, else a copy in `space`. */
MR_HIDDEN char *const *mr_env_inject(char *const *env, char **space, size_t slots);
/* dlsym(RTLD_NEXT), or, for libraries outside the global scope, by the module that called us. */
MR_HIDDEN void *mr_next(const char *name);
MR_HIDDEN void *mr_next_for(const char *name, void *caller);

#endif
