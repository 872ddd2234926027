/* What a descriptor is, told from the name that the trace has for it. Whether a call waited for storage depends on
 * this, not on the name of the call: a read of a pipe waits for another process.
 *
 * Names are those of the tracer and of the kernel (/proc/self/fd): a path, "pipe:[N]", "socket:[local N]" (older traces: also TCP to
 * this machine), "socket:[inet ADDRESS:PORT]", "anon_inode:[eventfd]", "/memfd:NAME (deleted)". A plain "socket:[N]" is
 * one whose other end was not asked for: it counts as local.
 *
 * A folder cannot be told from a file by its name, so MR_FD_DIR never comes from here: calls on folders are told by
 * their kind (MR_EV_LIST). */
#ifndef MR_EVENT_FD_CLASS_H
#define MR_EVENT_FD_CLASS_H

#include <stdbool.h>
#include <stddef.h>

enum mr_fd_class {
    MR_FD_UNKNOWN, /* no name */
    MR_FD_FILE,
    MR_FD_BLOCK, /* a disk itself */
    MR_FD_DIR,
    MR_FD_PIPE,
    MR_FD_SOCKET_LOCAL,
    MR_FD_SOCKET_NET,
    MR_FD_EVENT, /* eventfd, epoll, timerfd, signalfd, inotify, pidfd */
    MR_FD_TTY,
    MR_FD_DEVICE, /* /dev/null, /dev/nvidia0 */
    MR_FD_MEMORY, /* tmpfs, memfd, /dev/shm, /proc, /sys: a file, but of memory */
    MR_FD_CLASSES
};

/* `fs_type` as the mount table has it (mr_trace_fs_of), NULL if it is not known. The name is not NUL-terminated. */
enum mr_fd_class mr_fd_class_of(const char *name, size_t len, const char *fs_type);
/* "file", "pipe", "socket (network)" ... */
const char *mr_fd_class_name(enum mr_fd_class c);
/* False for what is surely no storage: pipes, sockets, events, terminals, character devices. Memory counts as storage
 * here: programs read it as files. */
bool mr_fd_class_stores(enum mr_fd_class c);
/* Whether a file system of this type lies in memory. */
bool mr_fs_is_memory(const char *fs_type);

#endif
