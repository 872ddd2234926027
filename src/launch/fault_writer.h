/* Writes page faults as events of the trace: faults.mrt in a spool folder, in blocks of thousands. One thread. A
 * failure to write is kept and returned when the writer is closed. */
#ifndef MR_LAUNCH_FAULT_WRITER_H
#define MR_LAUNCH_FAULT_WRITER_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stdint.h>

struct mr_fault_writer;
struct mr_fault_process; /* belongs to its writer */

struct mr_fault_filter {
    const char *spool;             /* faults.mrt goes there; the folder's own files are never recorded */
    const char *include, *exclude; /* as mr_globs_match takes them */
};

struct mr_fault {
    uint32_t tid, file;
    uint32_t exe; /* the program as of now, a number of a file or 0: for when /proc has forgotten the process */
    uint64_t offset, time_ns;
    bool major; /* the page had to be read */
};

int mr_fault_writer_open(const struct mr_fault_filter *filter, struct mr_fault_writer **out, struct mr_error *err);
/* The number of a file; 0: its faults are filtered out. */
uint32_t mr_fault_writer_file(struct mr_fault_writer *f, const char *path);
/* A process with page faults to record. NULL when out of memory. */
struct mr_fault_process *mr_fault_writer_process(struct mr_fault_writer *f, uint32_t pid);
void mr_fault_writer_put(struct mr_fault_writer *f, struct mr_fault_process *p, const struct mr_fault *fault);
/* Counts faults that could not be recorded. */
void mr_fault_writer_lost(struct mr_fault_writer *f, uint64_t events);
/* Writes what is left, frees. *lost: all that could not be recorded. Accepts NULL. */
int mr_fault_writer_close(struct mr_fault_writer *f, uint64_t *lost, struct mr_error *err);

#endif
