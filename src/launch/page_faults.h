/* Page faults on mapped files, for `millrace trace --mmap`: the kernel's perf events sample every fault of the program
 * and its descendants, and report every mapping; both together give which page of which file was touched first, when
 * and by whom. Nothing runs in the program, so statically linked ones are recorded as well. One thread. */
#ifndef MR_LAUNCH_PAGE_FAULTS_H
#define MR_LAUNCH_PAGE_FAULTS_H

#include "launch/fault_writer.h"

#include <sys/types.h>

struct mr_faults;

/* Watches a child that has not called exec yet; `filter` must live until mr_faults_close. -EACCES or -EPERM: the kernel
 * does not permit it (kernel.perf_event_paranoid). */
int mr_faults_open(pid_t child, const struct mr_fault_filter *filter, struct mr_faults **out, struct mr_error *err);
/* Drains the kernel's buffers; call it every few milliseconds, or they overflow. */
void mr_faults_poll(struct mr_faults *f);
/* Writes everything, before the collector is closed; *lost: faults the kernel had no room for. Accepts NULL. */
int mr_faults_close(struct mr_faults *f, uint64_t *lost, struct mr_error *err);

#endif
