/* What the files of the tracer's core share beyond tracer_core.h. Everything here runs with mr_tls.busy set. */
#ifndef MR_TRACER_INTERNAL_H
#define MR_TRACER_INTERNAL_H

#include "event/mrt.h"
#include "event/path_glob.h"
#include "tracer/tracer_core.h"

#define MR_PATH_BYTES 4096
#define MR_EXTRAS 36       /* that one event may have */
#define MR_ROOM 160        /* cells that one event and its extras may need */
#define MR_PAGE_CELLS 512u /* cells of a page */

enum mr_trace_mode { MR_MODE_OFF, MR_MODE_SELF, MR_MODE_COLLECTED };

struct mr_config {
    char dir[MR_PATH_BYTES]; /* absolute; rings and own .mrt files */
    char out[MR_PATH_BYTES +
             32]; /* MILLRACE_TRACE_OUT=<dir>, for new programs, which may start elsewhere; empty if collected */
    char include[MR_GLOBS_BYTES], exclude[MR_GLOBS_BYTES]; /* as mr_globs_match takes them */
    bool collected, start, strays;
    int signal;
    uint64_t max_bytes; /* of our own file; 0 any */
};

struct mr_process {
    struct mr_ring_header *segment[MR_RING_SEGMENTS];
    uint32_t segments;
    struct mr_session *session;
    uint64_t key;
    uint32_t pid;
    _Atomic uint32_t claim_lock, encode_lock;
    bool late; /* the program's exit handlers are running: write each event at once */
    /* Own output, when nobody drains. */
    void *workspace;
    uint8_t *out;
    bool header_written, has_events; /* in the file that is being written */
    uint64_t strings_bytes;
    uint32_t strings;
    uint64_t events;
};

extern MR_HIDDEN struct mr_config mr_config;
extern MR_HIDDEN struct mr_process mr_process;
extern MR_HIDDEN _Atomic uint32_t mr_off; /* tracing has ended for good in this process and its children */

MR_HIDDEN void mr_yield(void);
/* Once more in vain for a lock, for the n-th time. */
MR_HIDDEN void mr_wait_turn(unsigned n);
static inline void mr_spin_lock(_Atomic uint32_t *lock)
{
    for (unsigned n = 0; atomic_exchange_explicit(lock, 1, memory_order_acquire); n++)
        mr_wait_turn(n);
}
static inline void mr_spin_unlock(_Atomic uint32_t *lock)
{
    atomic_store_explicit(lock, 0, memory_order_release);
}

MR_HIDDEN enum mr_trace_mode mr_mode(void);
MR_HIDDEN void mr_stop_tracing(const char *why, long error);
MR_HIDDEN void mr_say_plain(const char *what); /* one line on stderr */
MR_HIDDEN void *mr_map_pages(size_t bytes);
extern MR_HIDDEN bool mr_future_locked; /* the program locks all memory that it will map (wrap_mlockall.c) */
/* Makes the pages of a shared mapping exist. On a full file system this fails, where a plain store would end the
 * program by SIGBUS. Kernels before 5.14 cannot; there it does nothing and succeeds. */
MR_HIDDEN bool mr_populate(const void *at, size_t bytes);
MR_HIDDEN size_t mr_copy_text(char *to, size_t cap, const char *from);
MR_HIDDEN size_t mr_hex(char *to, uint64_t v);
MR_HIDDEN size_t mr_decimal(char *to, uint64_t v);
/* Path of one of our files: <dir>/<pid>.<key>[.<segment>.ring | .mrt]. */
MR_HIDDEN void mr_own_path(char out[MR_PATH_BYTES], int segment);
MR_HIDDEN struct mr_slot *mr_slot_claim(void);
MR_HIDDEN int mr_segment_open(uint32_t index);
/* The file of a segment has been removed and is needed after all: one with the same content takes its name and its
 * place in memory. */
MR_HIDDEN int mr_segment_again(uint32_t index);
#define MR_PROCESS_PRESENT 8192u /* bytes of a process's description that are there from the start */
/* The first bytes of a file, up to `cap`; how many there are. */
MR_HIDDEN uint32_t mr_read_small_file(const char *path, char *out, uint32_t cap);
/* Writes everything between tail and head of a slot to our own file; with `whole_only` only complete blocks. */
MR_HIDDEN bool mr_slot_drain(struct mr_slot *slot, unsigned index, bool whole_only);
MR_HIDDEN bool mr_drain_all(enum mr_mrt_how how); /* then the ring files are gone; false: they stay */
MR_HIDDEN void mr_names_begin(void);              /* once, before a fork */
MR_HIDDEN void mr_names_reset(void);
MR_HIDDEN uint64_t mr_names_present(void);    /* bytes of the arena whose memory is there */
MR_HIDDEN void mr_names_ask_no_sockets(void); /* from now on: the program may not ask for the names of sockets */
MR_HIDDEN void mr_files_forget(void);
MR_HIDDEN void mr_calibrate(uint64_t *tick, uint64_t *mono, uint64_t *real);
MR_HIDDEN void mr_process_describe(bool forked);
MR_HIDDEN void mr_config_read(void);
/* A whole number in the environment, -1 if there is none. */
MR_HIDDEN int64_t mr_env_number(const char *name);
/* This library's path, absolute; returns its length, 0 if it is not known. *given, if wanted: the same as the loader
 * has it. */
MR_HIDDEN size_t mr_library_path(char *out, size_t cap, const char **given);
/* Before the program's main: a Python interpreter will instrument itself, if `on`; with `asked_for` it is said if that
 * cannot be. */
MR_HIDDEN void mr_python_begin(bool on, bool asked_for);
MR_HIDDEN bool mr_path_wanted(const char *path);
MR_HIDDEN bool mr_process_begin(bool forked);
/* openat with O_CLOEXEC and O_NOFOLLOW and mode 0600. Where the program has used up its descriptors, the limit is
 * raised for that moment, if it may be. */
MR_HIDDEN long mr_open(long folder, const char *path, int flags);
struct iovec;
/* writev that cannot end the program by a signal: its limit of file sizes may be reached, or nobody may read its stderr
 * any more. */
MR_HIDDEN long mr_write_quietly(long fd, const struct iovec *parts, unsigned n);
/* A file of the spool folder, or an error. */
MR_HIDDEN long mr_spool_open(const char *name, int flags);
/* Something goes unseen, to be told at the end; `why` is a letter that src/launch/untraced.c knows. False: it could
 * not be noted. */
MR_HIDDEN bool mr_note(char why, const char *path);
MR_HIDDEN bool mr_note_self(char why); /* this program */
/* A program is about to be started: notes it if the tracer cannot be in it. `search`: a name without '/' is looked for
 * in PATH. *file is its id, or that of the name as it was given; 0 if it cannot be read. */
enum mr_program { MR_ABSENT, MR_THERE, MR_CANNOT_LOAD };
MR_HIDDEN enum mr_program mr_program_look(const char *path, bool search, uint32_t *file);
MR_HIDDEN enum mr_program mr_program_look_at(int dirfd, const char *path, int flags); /* path NULL: dirfd itself */
/* This program makes system calls that only --strays would see: notes it. */
MR_HIDDEN void mr_note_own_calls(void);
MR_HIDDEN unsigned mr_slot_index(const struct mr_slot *slot);

/* Does not return in a program of another C library than glibc, which is started again without us; before anything
 * else. */
MR_HIDDEN void mr_leave_foreign(void);

/* What is known of the streams is old: recording was, or will be, off (wrap_stdio.c). */
MR_HIDDEN void mr_streams_forget(void);

#endif
