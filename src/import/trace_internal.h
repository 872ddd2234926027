/* What the files of the trace reader share; see trace_read.h. */
#ifndef MR_IMPORT_TRACE_INTERNAL_H
#define MR_IMPORT_TRACE_INTERNAL_H

#include "import/trace_read.h"

#define MR_TRACE_STRING_MAX (1u << 28) /* ids of strings, in what a damaged file may claim */

/* Memory that lives as long as the trace. */
struct mr_trace_file {
    struct mr_trace_file *next;
    void *data;
    size_t len;
    bool mapped;
};

/* The trace frees or unmaps `data`; on failure it stays the caller's. */
int mr_trace_keep_memory(struct mr_trace *t, void *data, size_t len, bool mapped, struct mr_error *err);
/* The process of a key, or NULL. */
struct mr_trace_process *mr_trace_find_process(struct mr_trace *t, uint64_t key);
/* Adds an own trace. `data` must stay as long as the trace: events are decoded there. */
int mr_trace_add_mrt(struct mr_trace *t, const uint8_t *data, size_t len, const char *name, struct mr_error *err);
/* Adds the entries of a block MR_MRT_MOUNTS to the node of its process; entries it has already are left out. */
int mr_trace_add_mounts(struct mr_trace *t, const struct mr_mrt_view *v, struct mr_error *err);
/* All members of a gzip file, in memory from malloc. A cut end keeps what was whole; behind damage reading continues at
 * the next member. Adds to *skipped the compressed bytes passed over; *cut tells of a cut end. MR_E_FORMAT if nothing
 * could be read, MR_E_LIMIT beyond 64 GiB. */
int mr_trace_gunzip(const uint8_t *data, size_t len, const char *name, char **out, size_t *out_len, uint64_t *skipped,
                    bool *cut, struct mr_error *err);

/* A binary log of Darshan, and what Darshan's own programs print about it: counters, and segments where it has them
 * (NULL else). Both from malloc. */
bool mr_darshan_log_is(const uint8_t *data, size_t len);
int mr_darshan_log_text(const char *path, char **counters, size_t *counters_len, char **segments, size_t *segments_len,
                        struct mr_error *err);

#endif
