/* A line of a .pfw, member by member. See pfw_internal.h. */
#include "import/pfw_internal.h"

/* Arguments with a meaning in every flavour; the rest become arguments of a region. After a host name, a second one is
 * an argument of the program. */
struct pfw_text *mr_pfw_known_fact(struct pfw_facts *f, const struct pfw_text *key, bool has_host)
{
    switch (key->n) {
    case 2: return mr_pfw_text_is(key, "fd") ? &f->fd : NULL;
    case 3: return mr_pfw_text_is(key, "ret") ? &f->ret : NULL;
    case 5:
        switch (key->p[1]) {
        case 'n': return mr_pfw_text_is(key, "fname") ? &f->file : NULL;
        case 'h':
            return mr_pfw_text_is(key, "fhash")                ? &f->fhash
                   : mr_pfw_text_is(key, "hhash") && !has_host ? &f->hhash
                                                               : NULL;
        case 'o': return mr_pfw_text_is(key, "count") ? &f->count : NULL;
        default: return NULL;
        }
    case 6: return mr_pfw_text_is(key, "offset") ? &f->offset : NULL;
    case 8: return mr_pfw_text_is(key, "hostname") && !has_host ? &f->host : NULL;
    default: return NULL;
    }
}

/* Takes the object at p apart; returns the place after it, NULL if it is broken. */
static const char *read_facts(const char *p, const char *end, struct pfw_facts *f)
{
    struct pfw_text key, value;
    bool broken = false;
    const char *at = ++p;
    for (; (p = mr_pfw_take_pair(p, end, &key, &value, &broken)); at = p) {
        struct pfw_text *to = mr_pfw_known_fact(f, &key, f->host.p != NULL);
        if (to)
            *to = value;
        if (f->n < PFW_PAIRS && to != &f->host && to != &f->hhash) {
            f->key[f->n] = key;
            f->value[f->n] = value;
            f->meant[f->n++] = to != NULL;
        }
    }
    if (broken)
        return NULL;
    at = mr_pfw_skip_space(at, end); /* the closing brace */
    return at < end ? at + 1 : NULL;
}

/* Where a member of the line goes: dispatch on length and first letter, then compare. */
struct pfw_text *mr_pfw_line_member(struct pfw_line *l, const struct pfw_text *key)
{
    switch (key->n) {
    case 2:
        return mr_pfw_text_is(key, "ts")   ? &l->ts
               : mr_pfw_text_is(key, "ph") ? &l->ph
               : mr_pfw_text_is(key, "id") ? &l->id
                                           : NULL;
    case 3:
        switch (key->p[0]) {
        case 'c': return mr_pfw_text_is(key, "cat") ? &l->cat : NULL;
        case 'p': return mr_pfw_text_is(key, "pid") ? &l->pid : NULL;
        case 't': return mr_pfw_text_is(key, "tid") ? &l->tid : NULL;
        case 'd': return mr_pfw_text_is(key, "dur") ? &l->dur : NULL;
        default: return NULL;
        }
    case 4: return mr_pfw_text_is(key, "name") ? &l->name : NULL;
    default: return NULL;
    }
}

bool mr_pfw_parse_line(const char *p, const char *end, struct pfw_line *l)
{
    struct pfw_text key, value;
    bool broken = false;
    memset(l, 0, offsetof(struct pfw_line, f));
    memset(&l->f, 0, offsetof(struct pfw_facts, key));
    l->f.n = 0;
    p++;
    while ((p = mr_pfw_take_key(p, end, &key, &broken))) {
        struct pfw_text *to = mr_pfw_line_member(l, &key);
        if (!to && mr_pfw_text_is(&key, "args") && p < end && *p == '{')
            p = read_facts(p, end, &l->f);
        else
            p = mr_pfw_take_value(p, end, &value);
        if (!p)
            return false;
        if (to)
            *to = value;
    }
    if (!l->cat.p)
        l->cat = (struct pfw_text){.p = "", .quoted = true};
    return !broken && l->name.p;
}
