/* Keys of annotations, which the tracer remembers by address: one memory with other texts, long keys, none, two threads at once, a forked child.
 * A key begins with the number that is its value. Prints how many spans there are. */
#include <millrace/trace.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 2000
static struct millrace_site site = {"keys", "key", 0, 0};

static void put(const char *key, int64_t value, unsigned n)
{
    struct millrace_arg a[2] = {{key, MILLRACE_INT, {.i = value}}, {"second", MILLRACE_INT, {.i = 2}}};
    millrace_trace_span(&site, millrace_trace_now(), a, n);
}

/* All lengths around what is remembered (39), in the same memory; the texts differ in their first and their last character. */
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

int main(void)
{
    static char keys[100][16];
    pthread_t thread[4];
    for (int i = 0; i < 100; i++)
        snprintf(keys[i], sizeof(keys[i]), "%d_key", i);
    for (int i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, i % 2 ? reuse : constants, keys);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    pid_t child = fork(); /* its numbers for texts are others: it meets the keys in another order */
    if (child == 0) {
        for (int i = 99; i >= 0; i--)
            put(keys[i], i, 1);
        reuse(NULL);
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    put(NULL, -1, 1);
    put("", -1, 1);
    put(NULL, -1, 2);
    printf("%d\n", 2 * ROUNDS + 2 * 2 * ROUNDS + 100 + 2 * ROUNDS + 3);
    return status != 0;
}
