/* See the header. */
#include "checkpoint/state_cuda.h"

#include "base/vec.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_TO_DEVICE 1 /* cudaMemcpyHostToDevice */
#define DEVICE_TO_HOST 2 /* cudaMemcpyDeviceToHost */
#define NO_TIMING 2      /* cudaEventDisableTiming */
#define NON_BLOCKING 1   /* cudaStreamNonBlocking: beside the default stream */
#define PORTABLE 1       /* cudaHostRegisterPortable: for all devices */

/* The calls that are used: our name, the library's, what it takes. last_error also forgets it. */
#define CALLS(X)                                                                                                       \
    X(set_device, "cudaSetDevice", int, (int device))                                                                  \
    X(copy, "cudaMemcpyAsync", int, (void *into, const void *from, size_t n, int kind, void *stream))                  \
    X(stream_create, "cudaStreamCreateWithFlags", int, (void **stream, unsigned flags))                                \
    X(stream_destroy, "cudaStreamDestroy", int, (void *stream))                                                        \
    X(stream_wait, "cudaStreamWaitEvent", int, (void *stream, void *event, unsigned flags))                            \
    X(stream_sync, "cudaStreamSynchronize", int, (void *stream))                                                       \
    X(event_create, "cudaEventCreateWithFlags", int, (void **event, unsigned flags))                                   \
    X(event_record, "cudaEventRecord", int, (void *event, void *stream))                                               \
    X(event_destroy, "cudaEventDestroy", int, (void *event))                                                           \
    X(host_register, "cudaHostRegister", int, (void *base, size_t bytes, unsigned flags))                              \
    X(host_unregister, "cudaHostUnregister", int, (void *base))                                                        \
    X(last_error, "cudaGetLastError", int, (void))                                                                     \
    X(error_text, "cudaGetErrorString", const char *, (int code))

static struct {
    pthread_once_t once;
    char path[1024];
    bool found;
#define MEMBER(name, symbol, type, takes) type(*name) takes;
    CALLS(MEMBER)
#undef MEMBER
} cuda = {.once = PTHREAD_ONCE_INIT};

static int look_for_runtime(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size, (void)user;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "libcudart"))
        return 0;
    snprintf(cuda.path, sizeof cuda.path, "%s", info->dlpi_name);
    return 1;
}

static void find(void)
{
    if (!dl_iterate_phdr(look_for_runtime, NULL))
        return;
    void *lib = dlopen(cuda.path, RTLD_NOLOAD | RTLD_NOW);
    if (!lib)
        return;
    cuda.found = true;
#define FIND(name, symbol, type, takes)                                                                                \
    {                                                                                                                  \
        void *at = dlsym(lib, symbol);                                                                                 \
        memcpy(&cuda.name, &at, sizeof at);                                                                            \
        cuda.found = cuda.found && at;                                                                                 \
    }
    CALLS(FIND)
#undef FIND
}

static bool is_found(void)
{
    pthread_once(&cuda.once, find);
    return cuda.found;
}

int mr_cuda_find(struct mr_error *err)
{
    return is_found() ? 0
                      : mr_error_plain(err, MR_E_UNSUPPORTED,
                                       "a tensor lies on a CUDA device, and this process has no CUDA runtime library");
}

static int failed(const char *what, int device, int rc, struct mr_error *err)
{
    return mr_error_plain(err, MR_E_INTERNAL, "cannot %s CUDA device %d: %s", what, device, cuda.error_text(rc));
}

int mr_cuda_mark(int device, void *stream, void **point, struct mr_error *err)
{
    int rc = mr_cuda_find(err);
    if (rc)
        return rc;
    void *event = NULL;
    rc = cuda.set_device(device);
    rc = rc ? rc : cuda.event_create(&event, NO_TIMING);
    rc = rc ? rc : cuda.event_record(event, stream);
    if (!rc) {
        *point = event;
        return 0;
    }
    mr_cuda_point_free(event);
    return failed("wait for", device, rc, err);
}

void mr_cuda_point_free(void *point)
{
    if (point)
        cuda.event_destroy(point);
}

/* This thread's stream, from its first copy to its flush; and those that no thread uses at the moment: a save and a load
 * have threads of their own, each time. */
struct stream {
    void *stream;
    int device;
};
static _Thread_local struct stream mine = {NULL, -1};
static struct {
    pthread_mutex_t lock;
    MR_VEC(struct stream) free;
} spare = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *spare_stream(int device)
{
    void *found = NULL;
    pthread_mutex_lock(&spare.lock);
    for (size_t i = spare.free.n; i-- > 0 && !found;)
        if (spare.free.item[i].device == device) {
            found = spare.free.item[i].stream;
            spare.free.item[i] = spare.free.item[--spare.free.n];
        }
    pthread_mutex_unlock(&spare.lock);
    return found;
}

static void give_back(void)
{
    pthread_mutex_lock(&spare.lock);
    struct stream *kept = MR_VEC_ADD(&spare.free);
    if (kept)
        *kept = mine;
    pthread_mutex_unlock(&spare.lock);
    if (!kept)
        cuda.stream_destroy(mine.stream);
    mine.device = -1;
}

static int my_stream(int device)
{
    int rc = cuda.set_device(device);
    if (rc || mine.device == device)
        return rc;
    mine.stream = spare_stream(device);
    if (!mine.stream)
        rc = cuda.stream_create(&mine.stream, NON_BLOCKING);
    mine.device = rc ? -1 : device;
    return rc;
}

int mr_cuda_flush(struct mr_error *err)
{
    int device = mine.device;
    if (device < 0)
        return 0;
    int rc = cuda.stream_sync(mine.stream);
    give_back();
    return rc ? failed("copy with", device, rc, err) : 0;
}

int mr_cuda_copy(int device, void *after, void *into, const void *from, size_t n, struct mr_error *err)
{
    /* Copies of this thread on another device are waited for: it has one stream. */
    int rc = mine.device >= 0 && mine.device != device ? mr_cuda_flush(err) : 0;
    if (rc)
        return rc;
    rc = my_stream(device);
    if (!rc && after)
        rc = cuda.stream_wait(mine.stream, after, 0);
    if (!rc)
        rc = cuda.copy(into, from, n, after ? DEVICE_TO_HOST : HOST_TO_DEVICE, mine.stream);
    return rc ? failed(after ? "copy from" : "copy to", device, rc, err) : 0;
}

int mr_cuda_pin(void *base, size_t bytes)
{
    if (!is_found())
        return -1;
    if (cuda.host_register(base, bytes, PORTABLE) == 0)
        return 0;
    cuda.last_error(); /* the program would find it otherwise */
    return -1;
}

void mr_cuda_unpin(void *base)
{
    if (is_found() && cuda.host_unregister(base))
        cuda.last_error();
}
