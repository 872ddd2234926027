/* "Did you mean": edit distance with swaps of neighbours (optimal string alignment), case-blind, '-' equal to '_'. Words
 * longer than EDIT_MAX are cut; keys are far shorter. */
#include "conf/option.h"

#include "base/common.h"

#include <ctype.h>
#include <string.h>

#define EDIT_MAX 64

static int fold(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

unsigned mr_edit_distance(const char *a, const char *b)
{
    unsigned row[3][EDIT_MAX + 1];
    size_t na = MR_MIN(strlen(a), (size_t)EDIT_MAX), nb = MR_MIN(strlen(b), (size_t)EDIT_MAX);
    for (size_t j = 0; j <= nb; j++)
        row[0][j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        unsigned *cur = row[i % 3], *prev = row[(i - 1) % 3], *prev2 = row[(i + 1) % 3];
        cur[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            bool same = fold(a[i - 1]) == fold(b[j - 1]);
            unsigned best = prev[j - 1] + !same;
            best = MR_MIN(best, prev[j] + 1);
            best = MR_MIN(best, cur[j - 1] + 1);
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1]))
                best = MR_MIN(best, prev2[j - 2] + 1);
            cur[j] = best;
        }
    }
    return row[na % 3][nb];
}

bool mr_edit_is_near(const char *word, unsigned d)
{
    size_t n = strlen(word);
    return d == 0 || (d <= (n <= 3 ? 1 : n <= 6 ? 2 : 3) && d < n);
}

const char *mr_option_nearest(const struct mr_option_table *t, const char *key)
{
    const char *best = NULL;
    unsigned best_d = ~0u;
    for (const struct mr_option *o = t->options; o->key; o++) {
        unsigned d = mr_edit_distance(key, o->key);
        if (d < best_d) {
            best_d = d;
            best = o->key;
        }
    }
    return best && mr_edit_is_near(key, best_d) ? best : NULL;
}
