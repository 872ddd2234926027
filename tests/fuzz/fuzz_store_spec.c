/* The text form of a store stack: any bytes give a stack or an error, never a crash. Stacks that would touch the system
 * (files, groups, rings) are left out. */
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 2000)
        return 0;
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    struct mr_error err = {0};
    struct mr_store *s = NULL;
    if (!strstr(text, "file") && !strstr(text, "group") && !strstr(text, "uring")) {
        int rc = mr_store_open(text, &s, &err);
        if ((rc == 0) != (s != NULL) || (rc != 0 && !*err.message))
            abort();
        mr_store_close(s);
    }
    free(text);
    return 0;
}
