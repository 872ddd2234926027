/* One store for all corpora of the process that want the same stack: opening one looks at the machine, which takes longer
 * than opening a corpus. */
#include "tokens/tokens_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct mr_token_store {
    struct mr_token_store *next;
    char *spec;
    struct mr_store *store;
    unsigned users;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mr_token_store *stores; /* under the lock */

/* Under the lock. Takes `spec`. */
static int add_store(char *spec, struct mr_token_store **out, struct mr_error *err)
{
    struct mr_token_store *s = calloc(1, sizeof(*s));
    int rc = s ? mr_store_open(spec, &s->store, err) : mr_error_set(err, -ENOMEM, "cannot open a store");
    if (rc < 0) {
        free(s);
        free(spec);
        return rc;
    }
    s->spec = spec;
    s->next = stores;
    stores = *out = s;
    return 0;
}

int mr_token_store_get(const char *spec, const char *path, struct mr_token_store **out, struct mr_store **store,
                       struct mr_error *err)
{
    char *whole = NULL;
    int rc = mr_store_spec_for(spec, path, &whole, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&lock);
    struct mr_token_store *s = stores;
    while (s && strcmp(s->spec, whole) != 0)
        s = s->next;
    if (s)
        free(whole);
    else
        rc = add_store(whole, &s, err);
    if (rc >= 0) {
        s->users++;
        *out = s;
        *store = s->store;
    }
    pthread_mutex_unlock(&lock);
    return rc < 0 ? rc : 0;
}

void mr_token_store_put(struct mr_token_store *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&lock);
    bool last = --s->users == 0;
    struct mr_token_store **at = &stores;
    while (last && *at != s)
        at = &(*at)->next;
    if (last)
        *at = s->next;
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    mr_store_close(s->store);
    free(s->spec);
    free(s);
}
