/* Every function the tracer knows, once: its name, its layer and what it does. The position of a row is its number in
 * trace files, so rows are only ever added at the end. The 64-bit, fortified (_chk, _2) and old (__xstat) spellings of
 * a function share its row. SYSCALL rows are system calls made by instruction, named as the kernel names them, without
 * the `sys_` that tells them apart here.
 *
 * To add one: add a row at the end here, and its wrapper row in the fitting src/tracer/wrap_*.c. */
#ifndef MR_EVENT_CALLS_H
#define MR_EVENT_CALLS_H

#include "event/event.h"

#include <stdbool.h>
#include <stddef.h>

enum mr_layer {
    MR_LAYER_APP,
    MR_LAYER_POSIX,
    MR_LAYER_STDIO,
    MR_LAYER_URING,
    MR_LAYER_MPIIO,
    MR_LAYER_HDF5,
    MR_LAYER_SYSCALL,
    MR_LAYER_MMAP,
    MR_LAYERS
};

#define MR_CALLS(X)                                                                                                    \
    X(more, APP, METADATA)                                                                                             \
    X(region, APP, REGION)                                                                                             \
    X(instant, APP, INSTANT)                                                                                           \
    X(counter, APP, COUNTER)                                                                                           \
    X(metadata, APP, METADATA)                                                                                         \
    X(open, POSIX, OPEN)                                                                                               \
    X(openat, POSIX, OPEN)                                                                                             \
    X(openat2, POSIX, OPEN)                                                                                            \
    X(creat, POSIX, OPEN)                                                                                              \
    X(mkstemp, POSIX, OPEN)                                                                                            \
    X(mkostemp, POSIX, OPEN)                                                                                           \
    X(mkstemps, POSIX, OPEN)                                                                                           \
    X(mkostemps, POSIX, OPEN)                                                                                          \
    X(memfd_create, POSIX, OPEN)                                                                                       \
    X(shm_open, POSIX, OPEN)                                                                                           \
    X(open_by_handle_at, POSIX, OPEN)                                                                                  \
    X(close, POSIX, CLOSE)                                                                                             \
    X(close_range, POSIX, CLOSE)                                                                                       \
    X(closefrom, POSIX, CLOSE)                                                                                         \
    X(read, POSIX, READ)                                                                                               \
    X(pread, POSIX, READ)                                                                                              \
    X(readv, POSIX, READ)                                                                                              \
    X(preadv, POSIX, READ)                                                                                             \
    X(preadv2, POSIX, READ)                                                                                            \
    X(write, POSIX, WRITE)                                                                                             \
    X(pwrite, POSIX, WRITE)                                                                                            \
    X(writev, POSIX, WRITE)                                                                                            \
    X(pwritev, POSIX, WRITE)                                                                                           \
    X(pwritev2, POSIX, WRITE)                                                                                          \
    X(dprintf, POSIX, WRITE)                                                                                           \
    X(vdprintf, POSIX, WRITE)                                                                                          \
    X(lseek, POSIX, SEEK)                                                                                              \
    X(fsync, POSIX, FSYNC)                                                                                             \
    X(fdatasync, POSIX, FSYNC)                                                                                         \
    X(sync, POSIX, FSYNC)                                                                                              \
    X(syncfs, POSIX, FSYNC)                                                                                            \
    X(sync_file_range, POSIX, FSYNC)                                                                                   \
    X(msync, POSIX, FSYNC)                                                                                             \
    X(stat, POSIX, STAT)                                                                                               \
    X(lstat, POSIX, STAT)                                                                                              \
    X(fstat, POSIX, STAT)                                                                                              \
    X(fstatat, POSIX, STAT)                                                                                            \
    X(statx, POSIX, STAT)                                                                                              \
    X(statfs, POSIX, STAT)                                                                                             \
    X(fstatfs, POSIX, STAT)                                                                                            \
    X(statvfs, POSIX, STAT)                                                                                            \
    X(fstatvfs, POSIX, STAT)                                                                                           \
    X(access, POSIX, STAT)                                                                                             \
    X(faccessat, POSIX, STAT)                                                                                          \
    X(euidaccess, POSIX, STAT)                                                                                         \
    X(eaccess, POSIX, STAT)                                                                                            \
    X(realpath, POSIX, STAT)                                                                                           \
    X(truncate, POSIX, RESIZE)                                                                                         \
    X(ftruncate, POSIX, RESIZE)                                                                                        \
    X(fallocate, POSIX, RESIZE)                                                                                        \
    X(posix_fallocate, POSIX, RESIZE)                                                                                  \
    X(posix_fadvise, POSIX, ADVISE)                                                                                    \
    X(readahead, POSIX, ADVISE)                                                                                        \
    X(madvise, POSIX, ADVISE)                                                                                          \
    X(posix_madvise, POSIX, ADVISE)                                                                                    \
    X(sendfile, POSIX, COPY)                                                                                           \
    X(splice, POSIX, COPY)                                                                                             \
    X(tee, POSIX, COPY)                                                                                                \
    X(copy_file_range, POSIX, COPY)                                                                                    \
    X(vmsplice, POSIX, COPY)                                                                                           \
    X(mmap, POSIX, MAP)                                                                                                \
    X(munmap, POSIX, MAP)                                                                                              \
    X(mremap, POSIX, MAP)                                                                                              \
    X(dup, POSIX, HANDLE)                                                                                              \
    X(dup2, POSIX, HANDLE)                                                                                             \
    X(dup3, POSIX, HANDLE)                                                                                             \
    X(fcntl, POSIX, HANDLE)                                                                                            \
    X(flock, POSIX, HANDLE)                                                                                            \
    X(lockf, POSIX, HANDLE)                                                                                            \
    X(pipe, POSIX, HANDLE)                                                                                             \
    X(pipe2, POSIX, HANDLE)                                                                                            \
    X(ioctl, POSIX, HANDLE)                                                                                            \
    X(opendir, POSIX, LIST)                                                                                            \
    X(fdopendir, POSIX, LIST)                                                                                          \
    X(readdir, POSIX, LIST)                                                                                            \
    X(readdir_r, POSIX, LIST)                                                                                          \
    X(closedir, POSIX, LIST)                                                                                           \
    X(rewinddir, POSIX, LIST)                                                                                          \
    X(seekdir, POSIX, LIST)                                                                                            \
    X(telldir, POSIX, LIST)                                                                                            \
    X(scandir, POSIX, LIST)                                                                                            \
    X(scandirat, POSIX, LIST)                                                                                          \
    X(getdents64, POSIX, LIST)                                                                                         \
    X(nftw, POSIX, LIST)                                                                                               \
    X(ftw, POSIX, LIST)                                                                                                \
    X(glob, POSIX, LIST)                                                                                               \
    X(fts_open, POSIX, LIST)                                                                                           \
    X(fts_read, POSIX, LIST)                                                                                           \
    X(fts_close, POSIX, LIST)                                                                                          \
    X(mkdir, POSIX, MKDIR)                                                                                             \
    X(mkdirat, POSIX, MKDIR)                                                                                           \
    X(rmdir, POSIX, MKDIR)                                                                                             \
    X(mknod, POSIX, MKDIR)                                                                                             \
    X(mknodat, POSIX, MKDIR)                                                                                           \
    X(mkfifo, POSIX, MKDIR)                                                                                            \
    X(mkfifoat, POSIX, MKDIR)                                                                                          \
    X(mkdtemp, POSIX, MKDIR)                                                                                           \
    X(unlink, POSIX, UNLINK)                                                                                           \
    X(unlinkat, POSIX, UNLINK)                                                                                         \
    X(remove, POSIX, UNLINK)                                                                                           \
    X(rename, POSIX, RENAME)                                                                                           \
    X(renameat, POSIX, RENAME)                                                                                         \
    X(renameat2, POSIX, RENAME)                                                                                        \
    X(link, POSIX, LINK)                                                                                               \
    X(linkat, POSIX, LINK)                                                                                             \
    X(symlink, POSIX, LINK)                                                                                            \
    X(symlinkat, POSIX, LINK)                                                                                          \
    X(readlink, POSIX, LINK)                                                                                           \
    X(readlinkat, POSIX, LINK)                                                                                         \
    X(chmod, POSIX, ATTR)                                                                                              \
    X(fchmod, POSIX, ATTR)                                                                                             \
    X(fchmodat, POSIX, ATTR)                                                                                           \
    X(chown, POSIX, ATTR)                                                                                              \
    X(fchown, POSIX, ATTR)                                                                                             \
    X(lchown, POSIX, ATTR)                                                                                             \
    X(fchownat, POSIX, ATTR)                                                                                           \
    X(utime, POSIX, ATTR)                                                                                              \
    X(utimes, POSIX, ATTR)                                                                                             \
    X(futimes, POSIX, ATTR)                                                                                            \
    X(lutimes, POSIX, ATTR)                                                                                            \
    X(futimesat, POSIX, ATTR)                                                                                          \
    X(utimensat, POSIX, ATTR)                                                                                          \
    X(futimens, POSIX, ATTR)                                                                                           \
    X(umask, POSIX, ATTR)                                                                                              \
    X(chdir, POSIX, ATTR)                                                                                              \
    X(fchdir, POSIX, ATTR)                                                                                             \
    X(chroot, POSIX, ATTR)                                                                                             \
    X(getcwd, POSIX, ATTR)                                                                                             \
    X(getxattr, POSIX, ATTR)                                                                                           \
    X(lgetxattr, POSIX, ATTR)                                                                                          \
    X(fgetxattr, POSIX, ATTR)                                                                                          \
    X(setxattr, POSIX, ATTR)                                                                                           \
    X(lsetxattr, POSIX, ATTR)                                                                                          \
    X(fsetxattr, POSIX, ATTR)                                                                                          \
    X(listxattr, POSIX, ATTR)                                                                                          \
    X(llistxattr, POSIX, ATTR)                                                                                         \
    X(flistxattr, POSIX, ATTR)                                                                                         \
    X(removexattr, POSIX, ATTR)                                                                                        \
    X(lremovexattr, POSIX, ATTR)                                                                                       \
    X(fremovexattr, POSIX, ATTR)                                                                                       \
    X(aio_read, POSIX, SUBMIT)                                                                                         \
    X(aio_write, POSIX, SUBMIT)                                                                                        \
    X(aio_fsync, POSIX, SUBMIT)                                                                                        \
    X(lio_listio, POSIX, SUBMIT)                                                                                       \
    X(aio_suspend, POSIX, SUBMIT)                                                                                      \
    X(aio_cancel, POSIX, SUBMIT)                                                                                       \
    X(aio_error, POSIX, SUBMIT)                                                                                        \
    X(aio_return_read, POSIX, READ)                                                                                    \
    X(aio_return_write, POSIX, WRITE)                                                                                  \
    X(aio_return_fsync, POSIX, FSYNC)                                                                                  \
    X(fork, POSIX, PROCESS)                                                                                            \
    X(vfork, POSIX, PROCESS)                                                                                           \
    X(clone, POSIX, PROCESS)                                                                                           \
    X(posix_spawn, POSIX, PROCESS)                                                                                     \
    X(posix_spawnp, POSIX, PROCESS)                                                                                    \
    X(execve, POSIX, PROCESS)                                                                                          \
    X(execveat, POSIX, PROCESS)                                                                                        \
    X(execv, POSIX, PROCESS)                                                                                           \
    X(execvp, POSIX, PROCESS)                                                                                          \
    X(execvpe, POSIX, PROCESS)                                                                                         \
    X(execl, POSIX, PROCESS)                                                                                           \
    X(execlp, POSIX, PROCESS)                                                                                          \
    X(execle, POSIX, PROCESS)                                                                                          \
    X(fexecve, POSIX, PROCESS)                                                                                         \
    X(_exit, POSIX, PROCESS)                                                                                           \
    X(exit, POSIX, PROCESS)                                                                                            \
    X(abort, POSIX, PROCESS)                                                                                           \
    X(popen, POSIX, PROCESS)                                                                                           \
    X(pclose, POSIX, PROCESS)                                                                                          \
    X(system, POSIX, PROCESS)                                                                                          \
    X(wait4, POSIX, WAIT)                                                                                              \
    X(kill, POSIX, PROCESS)                                                                                            \
    X(fopen, STDIO, OPEN)                                                                                              \
    X(fdopen, STDIO, OPEN)                                                                                             \
    X(freopen, STDIO, OPEN)                                                                                            \
    X(tmpfile, STDIO, OPEN)                                                                                            \
    X(fmemopen, STDIO, OPEN)                                                                                           \
    X(open_memstream, STDIO, OPEN)                                                                                     \
    X(fopencookie, STDIO, OPEN)                                                                                        \
    X(fclose, STDIO, CLOSE)                                                                                            \
    X(fcloseall, STDIO, CLOSE)                                                                                         \
    X(fread, STDIO, READ)                                                                                              \
    X(fgets, STDIO, READ)                                                                                              \
    X(fgetc, STDIO, READ)                                                                                              \
    X(getc, STDIO, READ)                                                                                               \
    X(getchar, STDIO, READ)                                                                                            \
    X(getline, STDIO, READ)                                                                                            \
    X(getdelim, STDIO, READ)                                                                                           \
    X(fscanf, STDIO, READ)                                                                                             \
    X(scanf, STDIO, READ)                                                                                              \
    X(vfscanf, STDIO, READ)                                                                                            \
    X(vscanf, STDIO, READ)                                                                                             \
    X(getw, STDIO, READ)                                                                                               \
    X(fgetwc, STDIO, READ)                                                                                             \
    X(fgetws, STDIO, READ)                                                                                             \
    X(getwc, STDIO, READ)                                                                                              \
    X(getwchar, STDIO, READ)                                                                                           \
    X(fwscanf, STDIO, READ)                                                                                            \
    X(vfwscanf, STDIO, READ)                                                                                           \
    X(gets, STDIO, READ)                                                                                               \
    X(ungetc, STDIO, READ)                                                                                             \
    X(ungetwc, STDIO, READ)                                                                                            \
    X(fwrite, STDIO, WRITE)                                                                                            \
    X(fputs, STDIO, WRITE)                                                                                             \
    X(fputc, STDIO, WRITE)                                                                                             \
    X(putc, STDIO, WRITE)                                                                                              \
    X(putchar, STDIO, WRITE)                                                                                           \
    X(puts, STDIO, WRITE)                                                                                              \
    X(putw, STDIO, WRITE)                                                                                              \
    X(fprintf, STDIO, WRITE)                                                                                           \
    X(printf, STDIO, WRITE)                                                                                            \
    X(vfprintf, STDIO, WRITE)                                                                                          \
    X(vprintf, STDIO, WRITE)                                                                                           \
    X(fputwc, STDIO, WRITE)                                                                                            \
    X(fputws, STDIO, WRITE)                                                                                            \
    X(putwc, STDIO, WRITE)                                                                                             \
    X(putwchar, STDIO, WRITE)                                                                                          \
    X(fwprintf, STDIO, WRITE)                                                                                          \
    X(vfwprintf, STDIO, WRITE)                                                                                         \
    X(wprintf, STDIO, WRITE)                                                                                           \
    X(vwprintf, STDIO, WRITE)                                                                                          \
    X(perror, STDIO, WRITE)                                                                                            \
    X(fseek, STDIO, SEEK)                                                                                              \
    X(fseeko, STDIO, SEEK)                                                                                             \
    X(ftell, STDIO, SEEK)                                                                                              \
    X(ftello, STDIO, SEEK)                                                                                             \
    X(rewind, STDIO, SEEK)                                                                                             \
    X(fsetpos, STDIO, SEEK)                                                                                            \
    X(fgetpos, STDIO, SEEK)                                                                                            \
    X(fflush, STDIO, FSYNC)                                                                                            \
    X(setvbuf, STDIO, HANDLE)                                                                                          \
    X(io_uring_submit, URING, SUBMIT)                                                                                  \
    X(io_uring_wait, URING, SUBMIT)                                                                                    \
    X(io_uring_queue_init, URING, SUBMIT)                                                                              \
    X(io_uring_queue_exit, URING, SUBMIT)                                                                              \
    X(uring_read, URING, READ)                                                                                         \
    X(uring_readv, URING, READ)                                                                                        \
    X(uring_recv, URING, READ)                                                                                         \
    X(uring_write, URING, WRITE)                                                                                       \
    X(uring_writev, URING, WRITE)                                                                                      \
    X(uring_send, URING, WRITE)                                                                                        \
    X(uring_open, URING, OPEN)                                                                                         \
    X(uring_close, URING, CLOSE)                                                                                       \
    X(uring_fsync, URING, FSYNC)                                                                                       \
    X(uring_statx, URING, STAT)                                                                                        \
    X(uring_advise, URING, ADVISE)                                                                                     \
    X(uring_fallocate, URING, RESIZE)                                                                                  \
    X(uring_splice, URING, COPY)                                                                                       \
    X(uring_unlink, URING, UNLINK)                                                                                     \
    X(uring_rename, URING, RENAME)                                                                                     \
    X(uring_mkdir, URING, MKDIR)                                                                                       \
    X(uring_link, URING, LINK)                                                                                         \
    X(uring_other, URING, HANDLE)                                                                                      \
    X(MPI_File_open, MPIIO, OPEN)                                                                                      \
    X(MPI_File_close, MPIIO, CLOSE)                                                                                    \
    X(MPI_File_delete, MPIIO, UNLINK)                                                                                  \
    X(MPI_File_set_size, MPIIO, RESIZE)                                                                                \
    X(MPI_File_preallocate, MPIIO, RESIZE)                                                                             \
    X(MPI_File_get_size, MPIIO, STAT)                                                                                  \
    X(MPI_File_set_view, MPIIO, ATTR)                                                                                  \
    X(MPI_File_seek, MPIIO, SEEK)                                                                                      \
    X(MPI_File_seek_shared, MPIIO, SEEK)                                                                               \
    X(MPI_File_sync, MPIIO, FSYNC)                                                                                     \
    X(MPI_File_read, MPIIO, READ)                                                                                      \
    X(MPI_File_read_all, MPIIO, READ)                                                                                  \
    X(MPI_File_read_at, MPIIO, READ)                                                                                   \
    X(MPI_File_read_at_all, MPIIO, READ)                                                                               \
    X(MPI_File_read_shared, MPIIO, READ)                                                                               \
    X(MPI_File_read_ordered, MPIIO, READ)                                                                              \
    X(MPI_File_read_all_begin, MPIIO, READ)                                                                            \
    X(MPI_File_read_all_end, MPIIO, READ)                                                                              \
    X(MPI_File_read_at_all_begin, MPIIO, READ)                                                                         \
    X(MPI_File_read_at_all_end, MPIIO, READ)                                                                           \
    X(MPI_File_read_ordered_begin, MPIIO, READ)                                                                        \
    X(MPI_File_read_ordered_end, MPIIO, READ)                                                                          \
    X(MPI_File_iread, MPIIO, READ)                                                                                     \
    X(MPI_File_iread_at, MPIIO, READ)                                                                                  \
    X(MPI_File_iread_shared, MPIIO, READ)                                                                              \
    X(MPI_File_iread_all, MPIIO, READ)                                                                                 \
    X(MPI_File_iread_at_all, MPIIO, READ)                                                                              \
    X(MPI_File_write, MPIIO, WRITE)                                                                                    \
    X(MPI_File_write_all, MPIIO, WRITE)                                                                                \
    X(MPI_File_write_at, MPIIO, WRITE)                                                                                 \
    X(MPI_File_write_at_all, MPIIO, WRITE)                                                                             \
    X(MPI_File_write_shared, MPIIO, WRITE)                                                                             \
    X(MPI_File_write_ordered, MPIIO, WRITE)                                                                            \
    X(MPI_File_write_all_begin, MPIIO, WRITE)                                                                          \
    X(MPI_File_write_all_end, MPIIO, WRITE)                                                                            \
    X(MPI_File_write_at_all_begin, MPIIO, WRITE)                                                                       \
    X(MPI_File_write_at_all_end, MPIIO, WRITE)                                                                         \
    X(MPI_File_write_ordered_begin, MPIIO, WRITE)                                                                      \
    X(MPI_File_write_ordered_end, MPIIO, WRITE)                                                                        \
    X(MPI_File_iwrite, MPIIO, WRITE)                                                                                   \
    X(MPI_File_iwrite_at, MPIIO, WRITE)                                                                                \
    X(MPI_File_iwrite_shared, MPIIO, WRITE)                                                                            \
    X(MPI_File_iwrite_all, MPIIO, WRITE)                                                                               \
    X(MPI_File_iwrite_at_all, MPIIO, WRITE)                                                                            \
    X(H5Fcreate, HDF5, OPEN)                                                                                           \
    X(H5Fopen, HDF5, OPEN)                                                                                             \
    X(H5Dopen1, HDF5, OPEN)                                                                                            \
    X(H5Dopen2, HDF5, OPEN)                                                                                            \
    X(H5Dcreate1, HDF5, OPEN)                                                                                          \
    X(H5Dcreate2, HDF5, OPEN)                                                                                          \
    X(H5Oopen, HDF5, OPEN)                                                                                             \
    X(H5Fclose, HDF5, CLOSE)                                                                                           \
    X(H5Dclose, HDF5, CLOSE)                                                                                           \
    X(H5Oclose, HDF5, CLOSE)                                                                                           \
    X(H5Dread, HDF5, READ)                                                                                             \
    X(H5Dwrite, HDF5, WRITE)                                                                                           \
    X(H5Fflush, HDF5, FSYNC)                                                                                           \
    X(H5Dflush, HDF5, FSYNC)                                                                                           \
    X(sys_read, SYSCALL, READ)                                                                                         \
    X(sys_pread64, SYSCALL, READ)                                                                                      \
    X(sys_readv, SYSCALL, READ)                                                                                        \
    X(sys_preadv, SYSCALL, READ)                                                                                       \
    X(sys_preadv2, SYSCALL, READ)                                                                                      \
    X(sys_write, SYSCALL, WRITE)                                                                                       \
    X(sys_pwrite64, SYSCALL, WRITE)                                                                                    \
    X(sys_writev, SYSCALL, WRITE)                                                                                      \
    X(sys_pwritev, SYSCALL, WRITE)                                                                                     \
    X(sys_pwritev2, SYSCALL, WRITE)                                                                                    \
    X(sys_open, SYSCALL, OPEN)                                                                                         \
    X(sys_openat, SYSCALL, OPEN)                                                                                       \
    X(sys_openat2, SYSCALL, OPEN)                                                                                      \
    X(sys_creat, SYSCALL, OPEN)                                                                                        \
    X(sys_memfd_create, SYSCALL, OPEN)                                                                                 \
    X(sys_open_by_handle_at, SYSCALL, OPEN)                                                                            \
    X(sys_close, SYSCALL, CLOSE)                                                                                       \
    X(sys_close_range, SYSCALL, CLOSE)                                                                                 \
    X(sys_lseek, SYSCALL, SEEK)                                                                                        \
    X(sys_fsync, SYSCALL, FSYNC)                                                                                       \
    X(sys_fdatasync, SYSCALL, FSYNC)                                                                                   \
    X(sys_sync, SYSCALL, FSYNC)                                                                                        \
    X(sys_syncfs, SYSCALL, FSYNC)                                                                                      \
    X(sys_sync_file_range, SYSCALL, FSYNC)                                                                             \
    X(sys_msync, SYSCALL, FSYNC)                                                                                       \
    X(sys_stat, SYSCALL, STAT)                                                                                         \
    X(sys_lstat, SYSCALL, STAT)                                                                                        \
    X(sys_fstat, SYSCALL, STAT)                                                                                        \
    X(sys_newfstatat, SYSCALL, STAT)                                                                                   \
    X(sys_statx, SYSCALL, STAT)                                                                                        \
    X(sys_statfs, SYSCALL, STAT)                                                                                       \
    X(sys_fstatfs, SYSCALL, STAT)                                                                                      \
    X(sys_access, SYSCALL, STAT)                                                                                       \
    X(sys_faccessat, SYSCALL, STAT)                                                                                    \
    X(sys_faccessat2, SYSCALL, STAT)                                                                                   \
    X(sys_truncate, SYSCALL, RESIZE)                                                                                   \
    X(sys_ftruncate, SYSCALL, RESIZE)                                                                                  \
    X(sys_fallocate, SYSCALL, RESIZE)                                                                                  \
    X(sys_fadvise64, SYSCALL, ADVISE)                                                                                  \
    X(sys_readahead, SYSCALL, ADVISE)                                                                                  \
    X(sys_madvise, SYSCALL, ADVISE)                                                                                    \
    X(sys_mmap, SYSCALL, MAP)                                                                                          \
    X(sys_munmap, SYSCALL, MAP)                                                                                        \
    X(sys_mremap, SYSCALL, MAP)                                                                                        \
    X(sys_sendfile, SYSCALL, COPY)                                                                                     \
    X(sys_splice, SYSCALL, COPY)                                                                                       \
    X(sys_tee, SYSCALL, COPY)                                                                                          \
    X(sys_copy_file_range, SYSCALL, COPY)                                                                              \
    X(sys_vmsplice, SYSCALL, COPY)                                                                                     \
    X(sys_dup, SYSCALL, HANDLE)                                                                                        \
    X(sys_dup2, SYSCALL, HANDLE)                                                                                       \
    X(sys_dup3, SYSCALL, HANDLE)                                                                                       \
    X(sys_fcntl, SYSCALL, HANDLE)                                                                                      \
    X(sys_flock, SYSCALL, HANDLE)                                                                                      \
    X(sys_pipe, SYSCALL, HANDLE)                                                                                       \
    X(sys_pipe2, SYSCALL, HANDLE)                                                                                      \
    X(sys_getdents, SYSCALL, LIST)                                                                                     \
    X(sys_getdents64, SYSCALL, LIST)                                                                                   \
    X(sys_mkdir, SYSCALL, MKDIR)                                                                                       \
    X(sys_mkdirat, SYSCALL, MKDIR)                                                                                     \
    X(sys_rmdir, SYSCALL, MKDIR)                                                                                       \
    X(sys_mknod, SYSCALL, MKDIR)                                                                                       \
    X(sys_mknodat, SYSCALL, MKDIR)                                                                                     \
    X(sys_unlink, SYSCALL, UNLINK)                                                                                     \
    X(sys_unlinkat, SYSCALL, UNLINK)                                                                                   \
    X(sys_rename, SYSCALL, RENAME)                                                                                     \
    X(sys_renameat, SYSCALL, RENAME)                                                                                   \
    X(sys_renameat2, SYSCALL, RENAME)                                                                                  \
    X(sys_link, SYSCALL, LINK)                                                                                         \
    X(sys_linkat, SYSCALL, LINK)                                                                                       \
    X(sys_symlink, SYSCALL, LINK)                                                                                      \
    X(sys_symlinkat, SYSCALL, LINK)                                                                                    \
    X(sys_readlink, SYSCALL, LINK)                                                                                     \
    X(sys_readlinkat, SYSCALL, LINK)                                                                                   \
    X(sys_chmod, SYSCALL, ATTR)                                                                                        \
    X(sys_fchmod, SYSCALL, ATTR)                                                                                       \
    X(sys_fchmodat, SYSCALL, ATTR)                                                                                     \
    X(sys_chown, SYSCALL, ATTR)                                                                                        \
    X(sys_fchown, SYSCALL, ATTR)                                                                                       \
    X(sys_lchown, SYSCALL, ATTR)                                                                                       \
    X(sys_fchownat, SYSCALL, ATTR)                                                                                     \
    X(sys_utime, SYSCALL, ATTR)                                                                                        \
    X(sys_utimes, SYSCALL, ATTR)                                                                                       \
    X(sys_futimesat, SYSCALL, ATTR)                                                                                    \
    X(sys_utimensat, SYSCALL, ATTR)                                                                                    \
    X(sys_chdir, SYSCALL, ATTR)                                                                                        \
    X(sys_fchdir, SYSCALL, ATTR)                                                                                       \
    X(sys_chroot, SYSCALL, ATTR)                                                                                       \
    X(sys_getcwd, SYSCALL, ATTR)                                                                                       \
    X(sys_umask, SYSCALL, ATTR)                                                                                        \
    X(sys_getxattr, SYSCALL, ATTR)                                                                                     \
    X(sys_lgetxattr, SYSCALL, ATTR)                                                                                    \
    X(sys_fgetxattr, SYSCALL, ATTR)                                                                                    \
    X(sys_setxattr, SYSCALL, ATTR)                                                                                     \
    X(sys_lsetxattr, SYSCALL, ATTR)                                                                                    \
    X(sys_fsetxattr, SYSCALL, ATTR)                                                                                    \
    X(sys_listxattr, SYSCALL, ATTR)                                                                                    \
    X(sys_llistxattr, SYSCALL, ATTR)                                                                                   \
    X(sys_flistxattr, SYSCALL, ATTR)                                                                                   \
    X(sys_removexattr, SYSCALL, ATTR)                                                                                  \
    X(sys_lremovexattr, SYSCALL, ATTR)                                                                                 \
    X(sys_fremovexattr, SYSCALL, ATTR)                                                                                 \
    X(sys_io_setup, SYSCALL, SUBMIT)                                                                                   \
    X(sys_io_submit, SYSCALL, SUBMIT)                                                                                  \
    X(sys_io_getevents, SYSCALL, SUBMIT)                                                                               \
    X(sys_io_uring_setup, SYSCALL, SUBMIT)                                                                             \
    X(sys_io_uring_enter, SYSCALL, SUBMIT)                                                                             \
    X(sys_fork, SYSCALL, PROCESS)                                                                                      \
    X(sys_clone, SYSCALL, PROCESS)                                                                                     \
    X(sys_execve, SYSCALL, PROCESS)                                                                                    \
    X(sys_execveat, SYSCALL, PROCESS)                                                                                  \
    X(minor_fault, MMAP, READ)                                                                                         \
    X(major_fault, MMAP, READ)                                                                                         \
    X(io_setup, POSIX, SUBMIT)                                                                                         \
    X(io_destroy, POSIX, SUBMIT)                                                                                       \
    X(io_submit, POSIX, SUBMIT)                                                                                        \
    X(io_getevents, POSIX, SUBMIT)                                                                                     \
    X(io_cancel, POSIX, SUBMIT)                                                                                        \
    X(io_read, POSIX, READ)                                                                                            \
    X(io_write, POSIX, WRITE)                                                                                          \
    X(io_fsync, POSIX, FSYNC)                                                                                          \
    X(io_other, POSIX, HANDLE)                                                                                         \
    X(name_to_handle_at, POSIX, STAT)                                                                                  \
    X(pathconf, POSIX, STAT)                                                                                           \
    X(fpathconf, POSIX, STAT)                                                                                          \
    X(fts_children, POSIX, LIST)                                                                                       \
    X(wordexp, POSIX, LIST)                                                                                            \
    X(mlock, POSIX, ADVISE)                                                                                            \
    X(munlock, POSIX, ADVISE)                                                                                          \
    X(remap_file_pages, POSIX, MAP)                                                                                    \
    X(io_uring_register, URING, SUBMIT)                                                                                \
    X(sys_io_uring_register, SYSCALL, SUBMIT)                                                                          \
    X(sys_io_destroy, SYSCALL, SUBMIT)                                                                                 \
    X(sys_io_cancel, SYSCALL, SUBMIT)                                                                                  \
    X(sys_io_pgetevents, SYSCALL, SUBMIT)                                                                              \
    X(sys_name_to_handle_at, SYSCALL, STAT)                                                                            \
    X(sys_ioctl, SYSCALL, HANDLE)                                                                                      \
    X(sys_remap_file_pages, SYSCALL, MAP)                                                                              \
    X(sys_mlock, SYSCALL, ADVISE)                                                                                      \
    X(sys_mlock2, SYSCALL, ADVISE)                                                                                     \
    X(sys_munlock, SYSCALL, ADVISE)                                                                                    \
    X(MPI_File_get_position, MPIIO, SEEK)                                                                              \
    X(MPI_File_get_position_shared, MPIIO, SEEK)                                                                       \
    X(MPI_File_get_byte_offset, MPIIO, SEEK)                                                                           \
    X(MPI_File_get_view, MPIIO, ATTR)                                                                                  \
    X(MPI_File_get_info, MPIIO, ATTR)                                                                                  \
    X(MPI_File_set_info, MPIIO, ATTR)                                                                                  \
    X(MPI_File_get_atomicity, MPIIO, ATTR)                                                                             \
    X(MPI_File_set_atomicity, MPIIO, ATTR)                                                                             \
    X(H5Freopen, HDF5, OPEN)                                                                                           \
    X(H5Fis_hdf5, HDF5, STAT)                                                                                          \
    X(H5Fdelete, HDF5, UNLINK)                                                                                         \
    X(H5Dread_chunk, HDF5, READ)                                                                                       \
    X(H5Dwrite_chunk, HDF5, WRITE)                                                                                     \
    X(H5Dread_multi, HDF5, READ)                                                                                       \
    X(H5Dwrite_multi, HDF5, WRITE)                                                                                     \
    X(H5Dset_extent, HDF5, RESIZE)                                                                                     \
    X(H5Drefresh, HDF5, STAT)                                                                                          \
    X(H5Oflush, HDF5, FSYNC)                                                                                           \
    X(H5Orefresh, HDF5, STAT)                                                                                          \
    X(H5Ocopy, HDF5, LINK)                                                                                             \
    X(H5Olink, HDF5, LINK)                                                                                             \
    X(H5Oget_info, HDF5, STAT)                                                                                         \
    X(H5Oexists_by_name, HDF5, STAT)                                                                                   \
    X(H5Ovisit, HDF5, LIST)                                                                                            \
    X(isatty, POSIX, HANDLE)                                                                                           \
    X(sys_fchmodat2, SYSCALL, ATTR)                                                                                    \
    X(sys_setxattrat, SYSCALL, ATTR)                                                                                   \
    X(sys_getxattrat, SYSCALL, ATTR)                                                                                   \
    X(sys_listxattrat, SYSCALL, ATTR)                                                                                  \
    X(sys_removexattrat, SYSCALL, ATTR)                                                                                \
    X(poll, POSIX, WAIT)                                                                                               \
    X(ppoll, POSIX, WAIT)                                                                                              \
    X(select, POSIX, WAIT)                                                                                             \
    X(pselect, POSIX, WAIT)                                                                                            \
    X(epoll_wait, POSIX, WAIT)                                                                                         \
    X(epoll_pwait, POSIX, WAIT)                                                                                        \
    X(accept, POSIX, WAIT)                                                                                             \
    X(connect, POSIX, WAIT)                                                                                            \
    X(waitpid, POSIX, WAIT)                                                                                            \
    X(waitid, POSIX, WAIT)                                                                                             \
    X(recv, POSIX, READ)                                                                                               \
    X(recvfrom, POSIX, READ)                                                                                           \
    X(recvmsg, POSIX, READ)                                                                                            \
    X(recvmmsg, POSIX, READ)                                                                                           \
    X(send, POSIX, WRITE)                                                                                              \
    X(sendto, POSIX, WRITE)                                                                                            \
    X(sendmsg, POSIX, WRITE)                                                                                           \
    X(sendmmsg, POSIX, WRITE)                                                                                          \
    X(sem_wait, POSIX, WAIT)

enum mr_call {
    MR_CALL_none,
#define MR_CALL_ENUM(name, layer, kind) MR_CALL_##name,
    MR_CALLS(MR_CALL_ENUM)
#undef MR_CALL_ENUM
        MR_CALL_COUNT
};

struct mr_call_info {
    const char *name;
    uint8_t layer; /* enum mr_layer */
    uint8_t kind;  /* enum mr_event_kind */
};

/* Row of a call; numbers that this version does not know give the row of MR_CALL_none, named "unknown". */
const struct mr_call_info *mr_call_get(unsigned call);
/* By name, also under its other spellings (open64, __xstat64, fopen64); MR_CALL_none if there is none. */
unsigned mr_call_find(const char *name, size_t len);
/* A system call of the layer SYSCALL by the kernel's name. */
unsigned mr_call_find_raw(const char *name, size_t len);
/* "POSIX", "STDIO" ...; the category in exports. */
const char *mr_layer_name(unsigned layer);
/* Lower-case name of a kind: "open", "read" ... */
const char *mr_kind_name(unsigned kind);
/* Whether text[0, len) names a layer, a kind or a call, or is "all"; case does not matter. */
bool mr_call_group_known(const char *text, size_t len);
/* True for calls whose positive result is a number of bytes moved. */
int mr_kind_moves_data(unsigned kind);
/* True for calls that can only be made on sockets: their bytes never come from storage. */
bool mr_call_on_socket(unsigned call);
/* True for calls that may wait for another process's lock on a file. */
bool mr_call_locks(unsigned call);

#endif
