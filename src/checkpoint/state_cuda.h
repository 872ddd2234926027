/* Tensors in the memory of a CUDA device. Nothing of CUDA is needed to build or to link: a program that has such
 * tensors has its runtime library loaded already, and that one is used. */
#ifndef MR_CHECKPOINT_STATE_CUDA_H
#define MR_CHECKPOINT_STATE_CUDA_H

#include <millrace/error.h>
#include <stddef.h>

/* 0, or MR_E_UNSUPPORTED: this process has no CUDA runtime. */
int mr_cuda_find(struct mr_error *err);
/* A point in the work of a stream (NULL: the default stream) of that device: copies wait for it, nobody else does. */
int mr_cuda_mark(int device, void *stream, void **point, struct mr_error *err);
void mr_cuda_point_free(void *point); /* accepts NULL */
/* From the device to memory of the host, after that point, or (NULL) from the host to the device; both beside what the
 * device does otherwise. Any thread: each has a stream of its own meanwhile. Both sides must stay until mr_cuda_flush of
 * the same thread, which waits for all its copies. */
int mr_cuda_copy(int device, void *after, void *into, const void *from, size_t n, struct mr_error *err);
int mr_cuda_flush(struct mr_error *err);
/* Makes memory of the host known to the device: copies to it are several times faster. False: they work all the same.
 */
int mr_cuda_pin(void *base, size_t bytes);
void mr_cuda_unpin(void *base);

#endif
