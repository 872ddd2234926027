/* States of mixtures: a line for the whole and a line per node, which a person can read and any language can write.
 *
 *   millrace-mixture version=1 seed=7 nodes=3 item=1000
 *   node parent=0 samples=0 seed=0 weights=0 hash=93... given=1000 name=mixture
 *   node parent=0 samples=500 seed=93... weights=0 hash=0 given=700 name=wiki
 *
 * `weights` and `hash` are those of the children's weights up to the items given: a mixture that had other weights there
 * gives other items and is refused. `given` is where the turns start again (mixture_turns.c, M3), so nothing is
 * simulated from item 0. */
#include "base/common.h"
#include "base/strbuf.h"
#include "order/mixture_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "millrace-mixture"

typedef unsigned long long ull;

struct saved_node {
    uint64_t parent, samples, seed, weights, hash, given;
    char name[MR_MIXTURE_MAX_NAME];
};

/* The version of the weights of a node's last item before `given`, and a hash of all up to it. */
static void weights_before(const struct mix_node *n, uint64_t given, uint32_t *version, uint64_t *hash)
{
    *hash = n->turns ? mr_turns_hash(n->turns, given) : 0;
    *version = n->turns && given ? mr_turns_version(n->turns, given - 1) : 0;
}

int mr_mixture_save(struct mr_mixture *m, uint64_t k, char **text, struct mr_error *err)
{
    struct mr_strbuf out = {0};
    uint64_t *given = malloc(m->n * sizeof(*given));
    int rc = given ? mr_mixture_given(m, k, given, err) : mr_error_set(err, -ENOMEM, "cannot save a mixture");
    mr_strbuf_printf(&out, MAGIC " version=%d seed=%" PRIu64 " nodes=%u item=%" PRIu64 "\n", MR_MIXTURE_VERSION,
                     m->seed, m->n, k);
    for (uint32_t i = 0; rc >= 0 && i < m->n; i++) {
        const struct mix_node *n = &m->node[i];
        uint64_t hash;
        uint32_t weights;
        weights_before(n, given[i], &weights, &hash);
        mr_strbuf_printf(&out,
                         "node parent=%u samples=%" PRIu64 " seed=%" PRIu64 " weights=%u hash=%" PRIu64
                         " given=%" PRIu64 " name=%s\n",
                         n->parent, n->samples, n->n_children ? 0 : n->seed, weights, hash, given[i], n->name);
    }
    free(given);
    if (rc >= 0 && out.failed)
        rc = mr_error_set(err, -ENOMEM, "cannot save a mixture");
    if (rc < 0)
        mr_strbuf_done(&out);
    else
        *text = mr_strbuf_take(&out);
    return rc;
}

/* Reads "word=NUMBER" and a blank at *at. */
static bool take(const char **at, const char *word, uint64_t *value)
{
    size_t len = strlen(word);
    const char *t = *at;
    if (strncmp(t, word, len) != 0 || t[len] != '=' || t[len + 1] < '0' || t[len + 1] > '9')
        return false;
    char *end;
    errno = 0;
    *value = strtoull(t + len + 1, &end, 10);
    if (errno || (*end != ' ' && *end != '\n'))
        return false;
    *at = end + 1;
    return true;
}

static bool take_word(const char **at, const char *word)
{
    size_t len = strlen(word);
    bool ok = strncmp(*at, word, len) == 0 && (*at)[len] == ' ';
    *at += ok ? len + 1 : 0;
    return ok;
}

static bool take_node(const char **at, struct saved_node *n)
{
    if (!take_word(at, "node") || !take(at, "parent", &n->parent) || !take(at, "samples", &n->samples) ||
        !take(at, "seed", &n->seed) || !take(at, "weights", &n->weights) || !take(at, "hash", &n->hash) ||
        !take(at, "given", &n->given) || strncmp(*at, "name=", 5) != 0)
        return false;
    const char *name = *at + 5;
    size_t len = strcspn(name, "\n");
    if (name[len] != '\n' || len >= sizeof n->name)
        return false;
    memcpy(n->name, name, len);
    n->name[len] = '\0';
    *at = name + len + 1;
    return true;
}

static int other(struct mr_error *err, const char *what, ull saved, ull here)
{
    return mr_error_plain(err, MR_E_USAGE, "cannot continue the saved mixture: its %s is %llu, here %llu", what, saved,
                          here);
}

static int check_size(const struct mix_node *n, const struct saved_node *s, struct mr_error *err)
{
    if (s->samples == n->samples)
        return 0;
    const char *how = n->samples < s->samples ? "shrank" : "grew";
    mr_error_plain(err, MR_E_USAGE,
                   "cannot continue the saved mixture: source '%s' %s: it has %llu samples, and had %llu when the "
                   "state was saved",
                   n->name, how, (ull)n->samples, (ull)s->samples);
    mr_error_hint(err,
                  "its order is that of all its samples: continue with the data as it was, or start a new mixture");
    return MR_E_USAGE;
}

static int check_node(const struct mr_mixture *m, uint32_t i, const struct saved_node *s, struct mr_error *err)
{
    const struct mix_node *n = &m->node[i];
    if (strcmp(s->name, n->name) != 0)
        return mr_error_plain(err, MR_E_USAGE,
                              "cannot continue the saved mixture: its source number %u is '%s', here '%s'", i, s->name,
                              n->name);
    if (s->parent != n->parent)
        return mr_error_plain(err, MR_E_USAGE, "cannot continue the saved mixture: source '%s' is nested otherwise",
                              n->name);
    int rc = check_size(n, s, err);
    if (rc >= 0 && s->seed != (n->n_children ? 0 : n->seed))
        rc = mr_error_plain(err, MR_E_USAGE,
                            "cannot continue the saved mixture: the seed of source '%s' is %llu, here %llu", n->name,
                            (ull)s->seed, (ull)n->seed);
    uint64_t hash = 0;
    uint32_t weights = 0;
    if (rc >= 0 && s->given < MR_MIXTURE_MAX_ITEMS)
        weights_before(n, s->given, &weights, &hash);
    if (rc >= 0 && (s->hash != hash || s->weights != weights)) {
        rc = mr_error_plain(err, MR_E_USAGE,
                            "cannot continue the saved mixture: the weights of '%s' before its item %llu are others "
                            "(%llu changes before it were saved)",
                            n->name, (ull)s->given, (ull)s->weights);
        mr_error_hint(err, "keep the weights as they were and change them from that item on");
    }
    return rc;
}

static int parse(const struct mr_mixture *m, const char *text, struct saved_node *node, uint64_t *k,
                 struct mr_error *err)
{
    uint64_t version = 0, seed = 0, nodes = 0;
    const char *at = text;
    bool ok = take_word(&at, MAGIC) && take(&at, "version", &version) && take(&at, "seed", &seed) &&
              take(&at, "nodes", &nodes) && take(&at, "item", k) && *k < MR_MIXTURE_MAX_ITEMS;
    if (!ok)
        return mr_error_plain(err, MR_E_FORMAT, "not a saved mixture: '%.60s'", text);
    if (version != MR_MIXTURE_VERSION)
        return other(err, "version", version, MR_MIXTURE_VERSION);
    if (seed != m->seed)
        return other(err, "seed", seed, m->seed);
    if (nodes != m->n)
        return other(err, "number of sources, with the mixtures around them,", nodes, m->n);
    for (uint32_t i = 0; i < m->n; i++) {
        if (!take_node(&at, &node[i]))
            return mr_error_plain(err, MR_E_FORMAT, "not a saved mixture: line %u of it is '%.60s'", i + 2, at);
        int rc = check_node(m, i, &node[i], err);
        if (rc < 0)
            return rc;
    }
    if (*at || node[0].given != *k)
        return mr_error_plain(err, MR_E_FORMAT, "not a saved mixture: '%.60s'", *at ? at : text);
    return 0;
}

/* The turns at the saved places. */
static int start(struct mr_mixture *m, const struct saved_node *node, struct mr_error *err)
{
    uint64_t *part = malloc(m->n * sizeof(*part));
    int rc = part ? 0 : mr_error_set(err, -ENOMEM, "cannot continue a mixture");
    for (unsigned pass = 0; pass < 2; pass++) /* first look, then start: all of them or none */
        for (uint32_t i = 0; rc >= 0 && i < m->n; i++) {
            const struct mix_node *n = &m->node[i];
            uint64_t sum = 0;
            for (uint32_t c = 0; c < n->n_children; c++) {
                part[c] = node[n->child[c]].given;
                sum += part[c] <= node[i].given ? part[c] : node[i].given + 1;
            }
            if (n->n_children && sum != node[i].given)
                rc = mr_error_plain(err, MR_E_FORMAT,
                                    "not a saved mixture: the sources of '%s' have not given its %llu items", n->name,
                                    (ull)node[i].given);
            else if (n->n_children && pass)
                rc = mr_turns_start(n->turns, node[i].given, part, err);
        }
    free(part);
    return rc;
}

int mr_mixture_restore(struct mr_mixture *m, const char *text, uint64_t *k, struct mr_error *err)
{
    struct saved_node *node = calloc(m->n, sizeof(*node));
    uint64_t item = 0;
    int rc = node ? parse(m, text, node, &item, err) : mr_error_set(err, -ENOMEM, "cannot continue a mixture");
    if (rc >= 0)
        rc = start(m, node, err);
    free(node);
    if (rc >= 0)
        *k = item;
    return rc;
}
