/* A CUDA runtime library for tests, as far as a saver and a load use it. Device memory cannot be touched by the host:
 * fake_device_memory gives addresses without access and the same memory where it can be looked at. Copies happen when
 * their stream is waited for, not before: who forgets to wait sees old bytes. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define HOST_TO_DEVICE 1

struct copy {
    struct copy *next;
    void *into;
    const void *from;
    size_t n;
    int kind;
};

struct stream {
    struct copy *first, **tail;
};

static uint8_t *closed, *open_; /* the device's addresses, and where they can be reached */
static size_t device_bytes;
static int pinned, copies_to, copies_from, fail_after = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

EXPORT void *fake_device_memory(size_t bytes, void **look)
{
    int fd = memfd_create("device", 0);
    if (fd < 0 || ftruncate(fd, (off_t)bytes))
        return NULL;
    closed = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
    open_ = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    device_bytes = bytes;
    *look = open_;
    return closed;
}

EXPORT void fake_counts(int *to, int *from, int *pins)
{
    pthread_mutex_lock(&lock);
    *to = copies_to, *from = copies_from, *pins = pinned;
    pthread_mutex_unlock(&lock);
}

/* The n-th copy from now on fails; -1: none does. */
EXPORT void fake_fail_after(int n)
{
    fail_after = n;
}

static void *reach(const void *p)
{
    const uint8_t *at = p;
    return closed && at >= closed && at < closed + device_bytes ? open_ + (at - closed) : (void *)(uintptr_t)p;
}

EXPORT int cudaSetDevice(int device)
{
    return device == 0 ? 0 : 101;
}

EXPORT int cudaStreamCreateWithFlags(void **stream, unsigned flags)
{
    struct stream *s = calloc(1, sizeof(*s));
    (void)flags;
    s->tail = &s->first;
    *stream = s;
    return 0;
}

EXPORT int cudaMemcpyAsync(void *into, const void *from, size_t n, int kind, void *stream)
{
    struct stream *s = stream;
    struct copy *c = calloc(1, sizeof(*c));
    *c = (struct copy){.into = into, .from = from, .n = n, .kind = kind};
    *s->tail = c;
    s->tail = &c->next;
    pthread_mutex_lock(&lock);
    kind == HOST_TO_DEVICE ? copies_to++ : copies_from++;
    int rc = fail_after == 0 ? 700 : 0;
    if (fail_after >= 0)
        fail_after--;
    pthread_mutex_unlock(&lock);
    return rc;
}

EXPORT int cudaStreamSynchronize(void *stream)
{
    struct stream *s = stream;
    while (s->first) {
        struct copy *c = s->first;
        memcpy(reach(c->into), reach(c->from), c->n);
        s->first = c->next;
        free(c);
    }
    s->tail = &s->first;
    return 0;
}

EXPORT int cudaStreamDestroy(void *stream)
{
    free(stream);
    return 0;
}

EXPORT int cudaStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    (void)stream, (void)event, (void)flags;
    return 0;
}

EXPORT int cudaEventCreateWithFlags(void **event, unsigned flags)
{
    (void)flags;
    *event = malloc(1);
    return 0;
}

EXPORT int cudaEventRecord(void *event, void *stream)
{
    (void)event, (void)stream;
    return 0;
}

EXPORT int cudaEventDestroy(void *event)
{
    free(event);
    return 0;
}

EXPORT int cudaHostRegister(void *base, size_t bytes, unsigned flags)
{
    (void)base, (void)bytes, (void)flags;
    pthread_mutex_lock(&lock);
    pinned++;
    pthread_mutex_unlock(&lock);
    return 0;
}

EXPORT int cudaHostUnregister(void *base)
{
    (void)base;
    pthread_mutex_lock(&lock);
    pinned--;
    pthread_mutex_unlock(&lock);
    return 0;
}

EXPORT int cudaGetLastError(void)
{
    return 0;
}

EXPORT const char *cudaGetErrorString(int code)
{
    return code == 700 ? "an illegal memory access was encountered" : "invalid device ordinal";
}
