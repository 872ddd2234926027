/* Stores as the program uses them. What a store is, and how to write one, stands in <millrace/plugin_store.h>.
 *
 * How to add a built-in backend: copy store_null.c, fill struct mr_store_ops, add the row to the registry in
 * store_stack.c, run the conformance suite (tests/conformance/test_store_conformance). */
#ifndef MR_STORE_STORE_H
#define MR_STORE_STORE_H

#include "base/clock.h"
#include "conf/option.h"

#include <millrace/plugin_store.h>

const struct mr_store_ops *const *mr_store_registry(void); /* NULL-terminated, for help and doctor */

/* What mr_store_caps would say of the stack that this text names, without opening it (a shim may write). The names are
 * checked, the options are not. Errors: those of mr_store_open about the names. */
int mr_store_spec_caps(const char *spec, unsigned *caps, struct mr_error *err);
/* Whether the text gives an option by which a layer writes to a place of its own (MR_OPTF_WRITES), as trace(file=PATH)
 * does; `which` gets its name, e.g. "file of store 'trace'". Where the text cannot be read: false. */
bool mr_store_spec_writes(const char *spec, char *which, size_t cap);

/* The stack for what lies at `path`: `spec` itself, or, where the path is an address of object storage (s3://) and the
 * stack ends in plain posix (the default), the same stack over s3. Malloc'ed. MR_E_USAGE: the stack is over another
 * backend for files. */
int mr_store_spec_for(const char *spec, const char *path, char **out, struct mr_error *err);
/* The same without the shims. */
int mr_store_backend_for(const char *spec, const char *path, char **out, struct mr_error *err);
/* Opens the stack for `path`. */
int mr_store_open_at(const char *spec, const char *path, struct mr_store **out, struct mr_error *err);
/* The store has no rename and needs none: a new object appears whole at its close, and is written in any order. */
bool mr_store_puts_whole(const struct mr_store *s);
/* A path that no file system has. */
bool mr_store_is_url(const char *path);
/* Its backend takes such paths, and no others. */
bool mr_store_is_remote(const struct mr_store *s);
/* Where a writer that was killed leaves something without a name (multipart uploads of s3): removes what there is below
 * `folder` whose name in it begins with `begins`; *n (or NULL): how many. Whoever calls it is the only writer there. 0
 * where a store has no such thing, and where listing uploads is not allowed: the bucket's rules remove those. */
int mr_store_abort_unfinished(struct mr_store *s, const char *folder, const char *begins, uint64_t *n,
                              struct mr_error *err);
/* Whether there is something at `path`: 1, 0 (-ENOENT, -ENOTDIR), or the error of the look: over a network that is not the same. */
int mr_store_look(struct mr_store *s, const char *path, struct mr_store_stat *out, struct mr_error *err);
/* Of a store that puts objects whole: removes the objects right below a folder, `first` before the others, a thousand per
 * request where the store has such a request (s3). What lies in folders below stays; a missing folder is fine. */
int mr_store_remove_objects(struct mr_store *s, const char *folder, const char *first, struct mr_error *err);
/* From now on stat is answered from what `list` showed, where asking costs a request (s3): for commands that look at a
 * whole tree once and write none of it. Nothing elsewhere. */
void mr_store_remember_listings(struct mr_store *s);

/* A look at the object storage behind an address, with the credentials and the endpoint that a run would use. */
struct mr_remote_look {
    char endpoint[320], region[64], credentials[64]; /* credentials: where they are from */
    bool tls, reached, found;                        /* found: something is below the prefix */
    int code;                                        /* of a listing; else `why` says more */
    struct mr_error why;
    double connect_s, first_byte_s; /* first byte: median, without connecting */
    double skew_s, expires_s;       /* the server's clock is ahead by so much; credentials end in: 0 never */
    unsigned asked, answered;       /* requests at a time */
};
/* MR_E_USAGE, MR_E_UNSUPPORTED, MR_E_CONFIG where nothing can be asked; what the server says is in `out`. */
int mr_store_examine_remote(const char *url, struct mr_remote_look *out, struct mr_error *err);

/* From now on each request to object storage is an event, and their sums are one when the store is closed
 * (MR_SPAN_REQUEST, MR_SPAN_OBJECTS). Before the first call; `e` outlives the store, NULL is fine. Nothing elsewhere. */
struct mr_events;
void mr_store_emit_requests(struct mr_store *s, struct mr_events *e);

/* From now on an object may be another one each time it is opened (s3: no MR_E_CHANGED for it; what is open stays one
 * version): for objects that other processes replace. Nothing elsewhere. */
void mr_store_expect_changes(struct mr_store *s);

/* How much of these files a first read would have to fetch from the device: the share of bytes outside the page cache,
 * measured, without root. Files of a backend that cannot tell count as cold. */
struct mr_cold {
    uint64_t cold_bytes, total_bytes;
    uint64_t unknown_files; /* the backend could not tell */
};
int mr_store_cold_fraction(struct mr_store *s, const char *const *paths, size_t n, struct mr_cold *out,
                           struct mr_error *err);

/* Shims, for programs and tests; each finds the first shim of its kind in the stack (MR_E_USAGE when there is none).
 * The clock of a throttle or fault shim, e.g. a virtual one; set before I/O starts. */
int mr_store_set_clock(struct mr_store *s, struct mr_clock *clock, struct mr_error *err);
/* Where the trace shim's events go; set before I/O starts. The sink must outlive the store. */
struct mr_event_sink;
int mr_store_trace_set_sink(struct mr_store *s, struct mr_event_sink *sink, struct mr_error *err);
/* Opens a stack whose calls go to `calls` (mr_events_calls), through the stack's trace shim or one that is put on top;
 * NULL: an ordinary mr_store_open. An empty spec is posix. The sink must outlive the store. */
int mr_store_open_with_events(const char *spec, struct mr_event_sink *calls, struct mr_store **out,
                              struct mr_error *err);
/* From now on, in a stack on the operating system's files, nothing below `folder` is opened, made, listed or removed
 * through a symbolic link: paths there are walked by descriptors, and what is neither a file nor a folder (a pipe, a
 * device) is refused without waiting for it. Links in `folder` itself are the caller's. owner_only: files and folders
 * are made for the user alone (0600, 0700), and a call is -EPERM where `folder` has become another user's, writable by
 * others, or a link that another user made. Before the first call below it. Other backends have no links. -ENOMEM. */
int mr_store_confine(struct mr_store *s, const char *folder, bool owner_only);
/* Calls the fault shim saw that its op and path selected, and those it spoilt. */
int mr_store_fault_counts(struct mr_store *s, uint64_t *matched, uint64_t *injected, struct mr_error *err);

#endif
