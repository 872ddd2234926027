/* Keys of annotations, which the tracer remembers by address: one memory with other texts, long keys, none, two threads
 * at once, a forked child. A key begins with the number that is its value. Prints how many spans there are. */
#include <millrace/trace.h>

#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 2000
static struct millrace_site site = {"keys", "key", 0, 0};

static void put(const char *key, int64_t value, unsigned n)
{
    struct millrace_arg a[2] = {{key, MILLRACE_INT, {.i = value}}, {"second", MILLRACE_INT, {.i = 2}}};
    millrace_trace_span(&site, millrace_trace_now(), a, n);
}

/* All lengths around what is remembered (39), in the same memory; the texts differ in their first and their last
 * character. */
static void *reuse(void *unused)
{
    char key[64];
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(key, sizeof(key), "%d%-*s%c", i % 7, 30 + i % 20, "_", 'a' + i % 3);
        put(key, i % 7, 1 + i % 2);
        put(key, i % 7, 1);
    }
    return NULL;
}

/* More constants than are remembered, with places that they share. */
static void *constants(void *keys)
{
    for (int i = 0; i < ROUNDS; i++)
        put((const char *)keys + (size_t)(i % 100) * 16, i % 100, 1);
    return NULL;
}

static void in_threads(void *(*one)(void *), void *(*two)(void *), void *keys)
{
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, i % 2 ? one : two, keys);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
}

int main(void)
{
    static _Alignas(1024) char keys[100][16];
    int status[2] = {1, 1};
    for (int i = 0; i < 100; i++)
        snprintf(keys[i], sizeof(keys[i]), "%d_key", i);
    for (int i = 0; i < 100; i++)
        put(keys[i], i, 1);
    for (int c = 0; c < 2; c++) { /* a child's numbers for texts are others, and it has remembered none */
        pid_t child = fork();
        if (child == 0 && c == 0) {
            in_threads(reuse, reuse, NULL);
            _exit(0);
        } else if (child == 0) {
            for (int i = 99; i >= 0; i--) /* in another order, beginning with those that the parent remembers */
                put(keys[(i + 32) % 100], (i + 32) % 100, 1);
            _exit(0);
        }
        waitpid(child, &status[c], 0);
    }
    in_threads(reuse, constants, keys);
    put(NULL, -1, 1);
    put("", -1, 1);
    put(NULL, -1, 2);
    printf("%d\n", 100 + 4 * 2 * ROUNDS + 100 + 2 * 2 * ROUNDS + 2 * ROUNDS + 3);
    return status[0] || status[1];
}
