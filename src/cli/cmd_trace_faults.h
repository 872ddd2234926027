/* Page faults on mapped files, for `millrace trace --mmap`: the kernel's perf events sample every fault of the program
 * and its descendants, and report every mapping; both together say which page of which file was touched first, when and
 * by whom. Nothing runs in the program, so statically linked ones are seen as well. */
#ifndef MR_CLI_CMD_TRACE_FAULTS_H
#define MR_CLI_CMD_TRACE_FAULTS_H

#include <millrace/error.h>
#include <stdint.h>
#include <sys/types.h>

struct mr_faults;

struct mr_faults_options {
    const char *spool;             /* where the events go; the collector takes them up from there */
    const char *include, *exclude; /* as mr_globs_match takes them */
};

/* Watches a child that has not yet called exec. -EACCES or -EPERM: the kernel does not permit it. */
int mr_faults_open(pid_t child, const struct mr_faults_options *opt, struct mr_faults **out, struct mr_error *err);
/* Takes what has happened; call it every few milliseconds. */
void mr_faults_poll(struct mr_faults *f);
/* Writes everything, before the collector is closed; *lost: samples the kernel had no room for. Accepts NULL. */
int mr_faults_close(struct mr_faults *f, uint64_t *lost, struct mr_error *err);

#endif
