/* A trace in memory, from any of the formats we read: processes with their names, and chunks of events of one thread
 * each. Own files stay mapped and are decoded chunk by chunk on demand, by many threads at once; imported files are
 * decoded when they are added. Times are real (UNIX epoch) nanoseconds.
 *
 * Life: mr_trace_create, mr_trace_add for every file, mr_trace_finish once, then read; mr_trace_free. */
#ifndef MR_IMPORT_TRACE_READ_H
#define MR_IMPORT_TRACE_READ_H

#include "base/arena.h"
#include "base/map.h"
#include "base/vec.h"
#include "event/calls.h"
#include "event/mrt_file.h"
#include "event/storage_probe.h"

#include <millrace/error.h>

#include <stdatomic.h>

struct mr_trace_string {
    const char *text; /* not NUL-terminated */
    uint32_t len;
    uint8_t kind; /* enum mr_string_kind */
    bool unnamed; /* while files are added: a hash whose name has not come yet */
};

#define MR_NO_RESULT                                                                                                   \
    INT64_MIN /* DFTracer writes return values only if asked to: unknown, neither a failure nor a size */

struct mr_trace_process {
    uint64_t key, names_key;              /* names_key: the process whose strings this one uses, 0 its own */
    uint32_t pid, ppid, uid, flags, node; /* node: index into mr_trace.node */
    uint32_t again; /* how many other processes had this pid on this node before it: pids are reused, and
                       containers have their own */
    int32_t rank, world, local_rank, local_world;
    uint64_t start_ns;                   /* real */
    int64_t real_offset;                 /* own files: real = mono + this */
    struct mr_trace_string exe, cmdline; /* words of cmdline separated by NUL */
    struct mr_trace_string *string;      /* by id; [0] is empty */
    uint32_t strings;
    size_t string_cap;
    uint32_t how;    /* enum mr_mrt_how, 0 unknown */
    uint64_t end_ns; /* when that was recorded */
    uint64_t lost;
    uint64_t recorded; /* events according to its end block; the file may have fewer */
    uint64_t *skipped; /* by call: left out by sampling; NULL if none; arena */
    bool known;        /* its process block was read */
    bool borrowed;     /* the names belong to the trace */
};

struct mr_trace_chunk {
    uint32_t process, tid, count;
    uint64_t first_ns, last_ns; /* real */
    uint64_t sequence;
    struct mr_mrt_view view;  /* own format */
    struct mr_columns column; /* imported: the events themselves */
    uint32_t args;
    bool imported;
    bool mapped; /* own format, of a file that is mapped: its pages may be dropped once it is decoded */
};

/* A mount of a machine. */
struct mr_trace_mount {
    const char *type, *source; /* "ext4", "/dev/nvme0n1p1"; NUL-terminated, arena */
    const char *path;          /* NUL-terminated, arena */
    uint32_t path_len;
};

struct mr_trace_node {
    char name[256];
    int64_t real_offset;
    bool has_offset;
    struct mr_trace_mount *mount; /* in the order of mounting; arena */
    uint32_t mounts, mount_cap;
};

/* What the source of a trace cannot say, or says doubtfully: shown in the trust block of a report. */
struct mr_trace_note {
    const char *text; /* arena */
    bool serious;     /* a figure may be wrong because of it */
};

/* What the sources of a trace record at all: of the rest nothing is known, which is not the same as nothing. */
enum mr_trace_sees {
    MR_SEES_DATA = 1,     /* reads and writes of files */
    MR_SEES_METADATA = 2, /* open, stat, readdir ... */
    MR_SEES_OTHERS = 4,   /* pipes, sockets, waits for processes */
};

/* How a program was started: the entries of a block MR_MRT_START, for mr_start_next. */
struct mr_trace_start {
    uint64_t key; /* of its process */
    const uint8_t *entries, *end;
};

struct mr_trace {
    struct mr_trace_process *process;
    size_t processes, process_cap;
    struct mr_trace_chunk *chunk; /* by process, thread, time after mr_trace_finish */
    size_t chunks, chunk_cap;
    struct mr_trace_node *node;
    size_t nodes, node_cap;
    struct mr_trace_start *start;
    size_t starts, start_cap;
    struct mr_storage_probe probe; /* streams 0: none */
    struct mr_arena arena;
    struct mr_trace_file *files;
    struct mr_trace_source *sources; /* the files added; arena */
    struct mr_pfw_names *pfw_names;  /* of each .pfw; arena */
    uint64_t events, lost, skipped_bytes, skipped_lines, file_bytes;
    uint64_t recorded; /* events that size-limited files had in total; 0 unknown */
    uint64_t gone;     /* events recorded that are no longer in the file: size limit, damage */
    uint32_t unended; /* own files without their end: cut off, still being written, or of processes without collector */
    bool unfinished; /* a file is still being written, its collector was killed, or a log was cut off: a note says which
                      */
    uint64_t clock_jumps; /* imported: events an hour before their predecessors, gaps of an hour in all threads */
    unsigned sees;        /* enum mr_trace_sees, of all sources together */
    uint64_t first_ns, last_ns;
    struct mr_counter_log *counters; /* event/counters.h: of Darshan's counters; NULL: none */
    struct mr_darshan *darshan;      /* their reader */
    struct mr_trace_note *note;
    size_t notes, note_cap;
    double clock_offset_ns, clock_residual_ns; /* between hosts, where they were compared; 0 else */
    struct mr_map process_of;                  /* by key: index + 1 */
    bool mapped;                               /* the file being added is */
    const atomic_bool *stop; /* borrowed, may be NULL: once it is set, mr_trace_read fails with MR_E_INTERRUPTED */
};

int mr_trace_create(struct mr_trace **out, struct mr_error *err);
/* Adds a file, standard input ('-') or all traces in a folder. The format is found from the content. A file that was
 * added before is not added again. */
int mr_trace_add(struct mr_trace *t, const char *path, struct mr_error *err);
/* The same for several paths, loaded by `threads` threads; 0: one per CPU. */
int mr_trace_add_all(struct mr_trace *t, const char *const *paths, size_t n, unsigned threads, struct mr_error *err);
/* True if the file at `path` is one of those added: it is still being read. */
bool mr_trace_reads(const struct mr_trace *t, const char *path);
/* The same from memory that outlives the trace. */
int mr_trace_add_memory(struct mr_trace *t, const void *data, size_t len, const char *name, struct mr_error *err);
/* One block of a file that is still being written (mr_mrt_scan_part), in the order of the file. Its payload must stay as
 * long as what points into it: names as long as the trace, events as long as the chunk. Such a trace is never finished.
 */
int mr_trace_add_block(struct mr_trace *t, const struct mr_mrt_view *v, struct mr_error *err);
int mr_trace_finish(struct mr_trace *t, struct mr_error *err);
void mr_trace_free(struct mr_trace *t);

/* Decoding space of one thread. Zero-initialise; mr_event_batch_done frees. After mr_trace_read the columns are valid
 * until the next read. */
struct mr_event_batch {
    struct mr_columns c;
    uint32_t count, args;
    const struct mr_trace_process *process;
    uint32_t tid;
    void *memory, *zstd;
    size_t cap;
};
int mr_trace_read(const struct mr_trace *t, size_t chunk, unsigned want, struct mr_event_batch *b,
                  struct mr_error *err);
void mr_event_batch_done(struct mr_event_batch *b);

/* A string of a process; an unknown id gives an empty one. */
const struct mr_trace_string *mr_trace_string(const struct mr_trace_process *p, uint32_t id);
/* Category and name of an event: "POSIX" "pread", or those of the region's site. Neither is NUL-terminated for sites.
 */
void mr_trace_label(const struct mr_trace_process *p, unsigned call, uint32_t file, struct mr_trace_string *category,
                    struct mr_trace_string *name);

/* The mount that an absolute path lies on, by the table of the node (an index into mr_trace.node): the longest path
 * that leads to it, of several there the last. NULL if the trace has no table of this node, or the path is none. */
const struct mr_trace_mount *mr_trace_mount_of(const struct mr_trace *t, uint32_t node, const char *path, size_t len);
/* Its type: "ext4", "nfs", "lustre", "tmpfs", "overlay" ... */
const char *mr_trace_fs_of(const struct mr_trace *t, uint32_t node, const char *path, size_t len);

/* For importers. */
int mr_trace_process_get(struct mr_trace *t, uint64_t key, uint32_t *index, struct mr_error *err);
int mr_trace_string_set(struct mr_trace *t, struct mr_trace_process *p, uint32_t id, uint8_t kind, const char *text,
                        uint32_t len, struct mr_error *err);
int mr_trace_node_get(struct mr_trace *t, const char *name, size_t len, uint32_t *index, struct mr_error *err);
int mr_trace_chunk_add(struct mr_trace *t, struct mr_trace_chunk **out, struct mr_error *err);
/* A note, once however often it is given. */
int mr_trace_note(struct mr_trace *t, bool serious, struct mr_error *err, const char *fmt, ...) MR_PRINTF(4, 5);
/* Memory from malloc that the trace frees. */
int mr_trace_keep(struct mr_trace *t, void *data, struct mr_error *err);
/* Text formats: DFTracer's .pfw and darshan-dxt-parser's output, already decompressed. The text need not stay. */
int mr_pfw_import(struct mr_trace *t, const char *data, size_t len, const char *name, struct mr_error *err);
int mr_dxt_import(struct mr_trace *t, const char *data, size_t len, const char *name, struct mr_error *err);
/* mr_pfw_import in two parts: several threads may parse at once; joining is for one thread and frees. */
struct mr_pfw;
int mr_pfw_parse(const char *data, size_t len, const char *name, struct mr_pfw **out, struct mr_error *err);
int mr_pfw_join(struct mr_trace *t, struct mr_pfw *p, struct mr_error *err);
void mr_pfw_free(struct mr_pfw *p);
/* The JSON of torch.profiler (Kineto), and the CSV of TimeLogger: parsed into the same, to be joined. */
bool mr_kineto_is(const char *data, size_t len);
int mr_kineto_parse(const char *data, size_t len, const char *name, struct mr_pfw **out, struct mr_error *err);
bool mr_timelogger_is(const char *data, size_t len);
int mr_timelogger_parse(const char *data, size_t len, const char *name, struct mr_pfw **out, struct mr_error *err);
/* Resolves hashes that a .pfw does not name by the names in the other files. */
void mr_pfw_resolve(struct mr_trace *t);
/* What darshan-parser prints: counters. Lines of other kinds are left alone, so a text may have both. */
void mr_darshan_free(struct mr_darshan *d); /* accepts NULL */
int mr_darshan_import(struct mr_trace *t, const char *data, size_t len, const char *name, struct mr_error *err);
bool mr_dxt_is(const char *data, size_t len);
/* Whether a line of a Darshan text is a counter: a module and a tab. */
bool mr_darshan_is_counter(const char *line, size_t len);
bool mr_pfw_is(const char *data, size_t len);

#endif
