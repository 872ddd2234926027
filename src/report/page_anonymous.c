/* Stand-ins for what a page that is given away must not tell: paths, host names, arguments of the program.
 *
 * Paths are replaced word by word: every folder becomes d1, d2 ... and every file f1, f2 ..., by order of appearance; a
 * short plain ending stays (".npz"), as do "." and the slashes. The same word gets the same stand-in wherever it
 * stands, so that groups and files still belong together. Hosts become host1, host2 ... Of the program its own name
 * stays where it is one everybody has; its arguments become their number.
 *
 * Sentences of findings and notes may quote any of these. In them every known host and whatever looks like a path (a
 * word with a slash at its beginning or "./", "~/", "../") is replaced; so is a name of a known file without its
 * folder, unless it is a word that our sentences are made of: a folder called "data" must not take it out of them.
 *
 * Invariant A1: after it, no string of the explanation holds a component of a path, a host name or an argument, but for
 * words that are ours (plain words of sentences, ids, units, names of file systems, names that the program gave its
 * spans). */
#include "base/common.h"
#include "report/page.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct word {
    char *name;
    char stand_in[24];
    bool host;
};

struct mask {
    struct mr_explanation *x;
    struct word *word; /* sorted by name */
    size_t words, room;
    unsigned folders, files, hosts;
    bool failed;
};

/* ---- words ---- */

/* Where `name` is, or belongs. */
static size_t place_of(const struct mask *m, const char *name, size_t n, bool *found)
{
    size_t low = 0, high = m->words;
    while (low < high) {
        size_t mid = (low + high) / 2;
        int c = strncmp(m->word[mid].name, name, n);
        if (c == 0)
            c = m->word[mid].name[n] != '\0';
        if (c == 0) {
            *found = true;
            return mid;
        }
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    *found = false;
    return low;
}

/* A short ending of letters and digits tells the format, not the user. */
static const char *ending_of(const char *name, size_t n)
{
    for (size_t i = n; i-- > 1 && n - i <= 9;)
        if (name[i] == '.')
            return n - i > 1 ? name + i : NULL;
        else if (!isalnum((unsigned char)name[i]))
            return NULL;
    return NULL;
}

static const char *stand_in(struct mask *m, const char *name, size_t n, char kind)
{
    bool found;
    size_t at = place_of(m, name, n, &found);
    if (found)
        return m->word[at].stand_in;
    if (m->words == m->room) {
        size_t room = m->room ? 2 * m->room : 256;
        struct word *more = realloc(m->word, room * sizeof(*more));
        if (!more)
            return m->failed = true, "hidden";
        m->word = more;
        m->room = room;
    }
    char *copy = mr_arena_strndup(&m->x->arena, name, n);
    if (!copy)
        return m->failed = true, "hidden";
    memmove(m->word + at + 1, m->word + at, (m->words - at) * sizeof(*m->word));
    struct word *w = &m->word[at];
    *w = (struct word){.name = copy, .host = kind == 'h'};
    m->words++;
    const char *ending = kind == 'f' ? ending_of(name, n) : NULL;
    unsigned number = kind == 'f' ? ++m->files : kind == 'd' ? ++m->folders : ++m->hosts;
    snprintf(w->stand_in, sizeof w->stand_in, "%s%u%.*s",
             kind == 'f'   ? "f"
             : kind == 'd' ? "d"
                           : "host",
             number, ending ? (int)(name + n - ending) : 0, ending ? ending : "");
    return w->stand_in;
}

/* ---- paths ---- */

static bool is_plain(const char *part, size_t n)
{
    return n == 0 || (n == 1 && (*part == '.' || *part == '*' || *part == '~')) ||
           (n == 2 && memcmp(part, "..", 2) == 0);
}

/* A star with an ending is the name of a group: its ending stays when it is plain. */
static bool is_group(const char *part, size_t n)
{
    return n > 1 && part[0] == '*' && ending_of(part, n) == part + 1;
}

/* Bytes of "s3://" and the like, which tell nothing; 0: it is no address. */
static size_t scheme_of(const char *path, size_t n)
{
    size_t len = 0;
    while (len < n && isalnum((unsigned char)path[len]))
        len++;
    return len && n - len >= 3 && !memcmp(path + len, "://", 3) ? len + 3 : 0;
}

static void put_path(struct mask *m, struct mr_strbuf *o, const char *path, size_t n)
{
    size_t scheme = scheme_of(path, n);
    mr_strbuf_add(o, path, scheme);
    for (size_t at = scheme; at < n;) {
        const char *slash = memchr(path + at, '/', n - at);
        size_t len = slash ? (size_t)(slash - path) - at : n - at;
        const char *part = path + at;
        if (is_plain(part, len) || is_group(part, len))
            mr_strbuf_add(o, part, len);
        else
            mr_strbuf_puts(o, stand_in(m, part, len, slash ? 'd' : 'f'));
        at += len;
        if (slash) {
            mr_strbuf_putc(o, '/');
            at++;
        }
    }
}

static const char *keep(struct mask *m, struct mr_strbuf *o)
{
    const char *text = o->failed ? NULL : mr_arena_strndup(&m->x->arena, o->text ? o->text : "", o->len);
    mr_strbuf_done(o);
    if (!text)
        m->failed = true;
    return text ? text : "hidden";
}

static const char *mask_path(struct mask *m, const char *path)
{
    struct mr_strbuf o = {0};
    if (!path)
        return NULL;
    put_path(m, &o, path, strlen(path));
    return keep(m, &o);
}

static const char *mask_host(struct mask *m, const char *host)
{
    if (!host || !*host)
        return host;
    const char *name = mr_arena_strdup(&m->x->arena, stand_in(m, host, strlen(host), 'h'));
    m->failed |= !name;
    return name ? name : "hidden";
}

/* ---- sentences ---- */

static bool begins_path(const char *at)
{
    return *at == '/' || strncmp(at, "./", 2) == 0 || strncmp(at, "../", 3) == 0 || strncmp(at, "~/", 2) == 0;
}

static bool ends_word(char c)
{
    return c == '\0' || isspace((unsigned char)c) || strchr("'\"`,;()<>=|", c);
}

/* Of "runs/imagenet" we know the parts; of "GiB/s" and "open/stat" none. */
static bool has_known_part(const struct mask *m, const char *word, size_t n)
{
    bool known = false;
    if (!memchr(word, '/', n))
        return false;
    for (size_t at = 0; at < n && !known;) {
        const char *slash = memchr(word + at, '/', n - at);
        size_t len = slash ? (size_t)(slash - word) - at : n - at;
        place_of(m, word + at, len, &known);
        at += len + 1;
    }
    return known;
}

/* Folders have these names everywhere: they tell nothing about anybody. */
static bool is_our_word(const char *word, size_t n)
{
    static const char *const ours[] = {
        "batch", "batches", "cache",   "checkpoint", "checkpoints", "compute", "data",    "disk",
        "epoch", "file",    "files",   "folder",     "loader",      "local",   "memory",  "model",
        "ranks", "read",    "results", "run",        "samples",     "shards",  "storage", "test",
        "time",  "trace",   "train",   "training",   "wait",        "workers", "written"};
    for (size_t i = 0; i < MR_ARRAY_LEN(ours); i++)
        if (strlen(ours[i]) == n && !memcmp(ours[i], word, n))
            return true;
    return false;
}

/* A word of a sentence: a path, a word that stands for something known, or itself. Dots and colons at its end are the
 * sentence's. A lone "/" and fractions ("3/4") stay. */
static void put_word(struct mask *m, struct mr_strbuf *o, const char *word, size_t n)
{
    size_t core = n;
    bool found = false;
    while (core && strchr(".:!?", word[core - 1]))
        core--;
    size_t at = place_of(m, word, core, &found);
    if (core > 1 && (begins_path(word) || scheme_of(word, core) || has_known_part(m, word, core)))
        put_path(m, o, word, core);
    else if (core > 2 && found && (m->word[at].host || !is_our_word(word, core)))
        mr_strbuf_puts(o, m->word[at].stand_in);
    else
        mr_strbuf_add(o, word, core);
    mr_strbuf_add(o, word + core, n - core);
}

static const char *mask_text(struct mask *m, const char *text)
{
    struct mr_strbuf o = {0};
    if (!text)
        return NULL;
    while (*text) {
        size_t n = 0;
        while (!ends_word(text[n]))
            n++;
        if (n)
            put_word(m, &o, text, n);
        else
            mr_strbuf_add(&o, text, n = 1);
        text += n;
    }
    return keep(m, &o);
}

/* "python train.py --lr 0.1" is "python and 3 arguments". */
static const char *mask_program(struct mask *m, const char *program)
{
    static const char *const known[] = {"python", "python3",  "millrace", "mpirun", "mpiexec",
                                        "srun",   "torchrun", "bash",     "sh"};
    struct mr_strbuf o = {0};
    if (!program || !*program)
        return program;
    size_t n = strcspn(program, " "), arguments = 0;
    const char *name = program;
    for (size_t i = 0; i < n; i++)
        if (program[i] == '/')
            name = program + i + 1;
    size_t len = n - (size_t)(name - program);
    bool is_known = false;
    for (unsigned i = 0; i < MR_ARRAY_LEN(known); i++)
        is_known |= strlen(known[i]) == len && memcmp(known[i], name, len) == 0;
    for (const char *at = program + n; *at; at++)
        arguments += *at == ' ' && at[1] && at[1] != ' ';
    mr_strbuf_add(&o, is_known ? name : "program", is_known ? len : 7);
    if (arguments)
        mr_strbuf_printf(&o, " and %zu %s", arguments, mr_plural(arguments, "argument", "arguments"));
    return keep(m, &o);
}

/* ---- the explanation ---- */

static void mask_names(struct mask *m)
{
    struct mr_explanation *x = m->x;
    for (size_t i = 0; i < x->files; i++)
        x->file[i].path = mask_path(m, x->file[i].path);
    for (size_t i = 0; i < x->groups; i++)
        x->group[i].name = mask_path(m, x->group[i].name);
    for (size_t i = 0; i < x->checkpoints; i++)
        x->checkpoint[i].path = mask_path(m, x->checkpoint[i].path);
    for (size_t i = 0; i < x->ranks; i++)
        x->rank[i].host = mask_host(m, x->rank[i].host);
    x->source = mask_path(m, x->source);
    x->facts.peer = mask_host(m, x->facts.peer); /* HOST:PORT, as sentences have it */
    x->facts.objects.peer = mask_host(m, x->facts.objects.peer);
}

static void mask_texts(struct mask *m)
{
    struct mr_explanation *x = m->x;
    for (size_t i = 0; i < x->findings; i++) {
        struct mr_finding *f = &x->finding[i];
        const char **texts[] = {&f->title,      &f->evidence,   &f->formula,    &f->fix,       &f->command,
                                &f->snippet[0], &f->snippet[1], &f->snippet[2], &f->snippet[3]};
        for (unsigned k = 0; k < MR_ARRAY_LEN(texts); k++)
            *texts[k] = mask_text(m, *texts[k]);
        for (size_t k = 0; k < f->changes; k++) {
            struct mr_change *c = &f->change[k];
            c->from = mask_text(m, c->from);
            c->to = mask_text(m, c->to);
            c->file = mask_path(m, c->file);
        }
    }
    for (size_t i = 0; i < x->snippets; i++)
        x->snippet[i].name = mask_text(m, x->snippet[i].name);
    for (size_t i = 0; i < x->silences; i++)
        x->silence[i].why = mask_text(m, x->silence[i].why);
    for (size_t i = 0; i < x->trust.notes; i++)
        x->trust.note[i].text = mask_text(m, x->trust.note[i].text);
    for (unsigned i = 0; i < MR_ARRAY_LEN(x->verdict.line); i++)
        x->verdict.line[i] = mask_text(m, x->verdict.line[i]);
    x->verdict.missing = mask_text(m, x->verdict.missing);
    x->facts.program = mask_program(m, x->facts.program);
}

int mr_explanation_anonymise(struct mr_explanation *x, struct mr_error *err)
{
    struct mask m = {.x = x};
    mask_names(&m); /* first: sentences are searched for them */
    mask_texts(&m);
    free(m.word);
    return m.failed ? mr_error_set(err, -ENOMEM, "cannot replace names") : 0;
}
