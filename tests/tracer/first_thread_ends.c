/* first_thread_ends FILE: the first thread ends, the other one reads FILE twenty times, with pauses. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *work(void *file)
{
    char b[16];
    int fd = open(file, O_RDONLY), n = 0;
    while (n < 20 && pread(fd, b, sizeof(b), 0) > 0) {
        usleep(30000); /* the collector looks */
        n++;
    }
    exit(n == 20 ? 0 : 1);
}

int main(int argc, char **argv)
{
    pthread_t t;
    if (argc != 2 || pthread_create(&t, NULL, work, argv[1]))
        return 2;
    pthread_exit(NULL);
}
