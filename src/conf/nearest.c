/* "Did you mean": edit distance with swaps of neighbours (optimal string alignment), case-blind, '-' equal to '_'.
 * Words longer than EDIT_MAX are cut; keys are far shorter. */
#include "conf/option.h"

#include "base/common.h"

#include <ctype.h>
#include <string.h>

#define EDIT_MAX 64

/* Copies at most EDIT_MAX characters in their common form; returns how many. */
static size_t fold(const char *text, char out[EDIT_MAX])
{
    size_t n = 0;
    for (; text[n] && n < EDIT_MAX; n++)
        out[n] = text[n] == '-' ? '_' : (char)tolower((unsigned char)text[n]);
    return n;
}

unsigned mr_edit_distance(const char *a, const char *b)
{
    unsigned row[3][EDIT_MAX + 1];
    char x[EDIT_MAX], y[EDIT_MAX];
    size_t nx = fold(a, x), ny = fold(b, y);
    for (size_t j = 0; j <= ny; j++)
        row[0][j] = (unsigned)j;
    for (size_t i = 1; i <= nx; i++) {
        unsigned *cur = row[i % 3];
        const unsigned *prev = row[(i - 1) % 3], *prev2 = row[(i + 1) % 3];
        cur[0] = (unsigned)i;
        for (size_t j = 1; j <= ny; j++) {
            unsigned best = prev[j - 1] + (x[i - 1] != y[j - 1]);
            best = MR_MIN(best, prev[j] + 1);
            best = MR_MIN(best, cur[j - 1] + 1);
            if (i > 1 && j > 1 && x[i - 1] == y[j - 2] && x[i - 2] == y[j - 1])
                best = MR_MIN(best, prev2[j - 2] + 1);
            cur[j] = best;
        }
    }
    return row[nx % 3][ny];
}

/* Half of a short word wrong is another word: 'zarr' is no 'tar'. */
bool mr_edit_is_near(const char *word, unsigned d)
{
    size_t n = strlen(word);
    return d == 0 || (d <= (n <= 4 ? 1 : n <= 6 ? 2 : 3) && d < n);
}

void mr_nearest_offer(struct mr_nearest *n, const char *name)
{
    unsigned d = mr_edit_distance(n->word, name);
    if (n->name && d >= n->distance)
        return;
    n->name = name;
    n->distance = d;
}

const char *mr_nearest_name(const struct mr_nearest *n)
{
    return n->name && mr_edit_is_near(n->word, n->distance) ? n->name : NULL;
}

const char *mr_option_nearest(const struct mr_option_table *t, const char *key)
{
    struct mr_nearest n = {.word = key};
    for (const struct mr_option *o = t->options; o->key; o++)
        mr_nearest_offer(&n, o->key);
    return mr_nearest_name(&n);
}
