/* Does another process of this machine still run? A process number alone is not enough, because numbers are used again:
 * together with the start time it names one process. */
#ifndef MR_BASE_PROCESS_H
#define MR_BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct mr_process_id {
    pid_t pid;
    uint64_t started; /* clock ticks since the machine started; 0: not known (no /proc) */
};
struct mr_process_id mr_process_self(void);
/* False: it has ended, whether or not its parent has taken notice. Where /proc cannot be read the number alone counts.
 */
bool mr_process_lives(const struct mr_process_id *p);
/* By a signal (SIGSTOP, ^Z) or a debugger, until it is continued. */
bool mr_process_is_stopped(const struct mr_process_id *p);
/* By its number alone: there is none, or it has ended. */
bool mr_process_gone(pid_t pid);

#endif
