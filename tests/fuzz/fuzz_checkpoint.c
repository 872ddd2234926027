/* The list of a checkpoint: any bytes give a list that is safe to use, or an error. A list that was read can be
 * written, and reads back the same. */
#include "checkpoint/checkpoint_list.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_checkpoint_list l, again;
    struct mr_error e;
    char *text;
    if (mr_checkpoint_list_parse((const char *)data, size, "f", &l, &e))
        return 0;
    for (size_t i = 0; i < l.n; i++)
        if (strchr(l.items[i].name, '/') || l.items[i].name[0] == '.' || l.items[i].rank >= l.world)
            abort();
    if (mr_checkpoint_list_encode(&l, &text, &e))
        abort();
    if (mr_checkpoint_list_parse(text, strlen(text), "f", &again, &e) || again.n != l.n || again.step != l.step)
        abort();
    if (l.n && memcmp(l.items, again.items, l.n * sizeof(*l.items)) != 0)
        abort();
    free(text);
    mr_checkpoint_list_done(&l);
    mr_checkpoint_list_done(&again);
    return 0;
}
