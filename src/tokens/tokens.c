/* Token corpora: samples over files of tokens. Sample numbers of the files follow one another; inside a file,
 *
 *   FIXED      sample i is tokens i * step ... + length + extra of the file's stream. Files whose documents lie end to end
 *              are read as one range; for others, a table of the first token of each document is made when they are opened
 *   DOCUMENTS  sample i is document i
 *   PACKED     the lengths of all documents are read once, window after window, to pack them; two bytes per document are
 *              kept, by which the pieces of a sequence are found again (tokens_pack.c)
 *
 * Nothing changes after opening but which files are held open and MDS shards that are unpacked: reads need no lock. */
#include "tokens/tokens_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_DOCUMENTS 4096u /* whose lengths are read at once where all are */

struct mr_tokens {
    struct mr_token_store *shared;
    struct mr_store *store; /* its */
    enum mr_tokens_cut cut;
    uint64_t length, step;
    uint32_t row; /* FIXED: length + extra */
    uint32_t window;
    bool drop_tails;
    uint32_t n_files;
    struct token_file *file;
    uint64_t samples, windows;
};

/* ---- opening ---- */

/* Reads the runs of all documents, at most `each` at once, for `take`. */
typedef int take_runs_fn(struct mr_tokens *t, struct token_file *f, uint64_t first, const struct token_run *runs,
                         size_t n, void *user, struct mr_error *err);

static int over_documents(struct mr_tokens *t, struct token_file *f, uint32_t each, take_runs_fn *take, void *user,
                          struct mr_error *err)
{
    struct token_scratch s = {.cap = {0}};
    struct token_run *runs = malloc(each * sizeof(*runs));
    int rc = runs ? 0 : mr_error_set(err, -ENOMEM, "cannot look through '%s'", f->name);
    for (uint64_t at = 0; rc >= 0 && at < f->documents; at += each) {
        size_t n = (size_t)MR_MIN((uint64_t)each, f->documents - at);
        rc = f->ops->runs(f, at, n, runs, &s, err);
        if (rc >= 0)
            rc = take(t, f, at, runs, n, user, err);
    }
    free(runs);
    mr_token_scratch_done(&s);
    return rc;
}

static int take_first_tokens(struct mr_tokens *t, struct token_file *f, uint64_t first, const struct token_run *runs,
                             size_t n, void *user, struct mr_error *err)
{
    (void)t, (void)user, (void)err;
    for (size_t i = 0; i < n; i++)
        f->first_token[first + i + 1] = f->first_token[first + i] + runs[i].tokens;
    return 0;
}

static int open_fixed(struct mr_tokens *t, struct token_file *f, struct mr_error *err)
{
    int rc = 0;
    if (!f->is_stream) {
        f->first_token = calloc((size_t)f->documents + 1, sizeof(*f->first_token));
        rc = f->first_token ? over_documents(t, f, COUNT_DOCUMENTS, take_first_tokens, NULL, err)
                            : mr_error_set(err, -ENOMEM, "cannot index '%s'", f->name);
        if (rc < 0)
            return rc;
        f->tokens = f->first_token[f->documents];
    }
    if (f->tokens < t->row)
        return mr_error_plain(err, MR_E_USAGE, "'%s' has %llu tokens, less than one sample of %u", f->name,
                              (ull)f->tokens, t->row);
    f->samples = (f->tokens - t->row) / t->step + 1;
    f->delivered = f->samples * t->row;
    return rc;
}

static int take_window(struct mr_tokens *t, struct token_file *f, uint64_t first, const struct token_run *runs,
                       size_t n, void *user, struct mr_error *err)
{
    uint64_t window = first / t->window, tokens;
    (void)err;
    f->first_pack[window + 1] = f->first_pack[window] + mr_token_pack(user, runs, n, f->place + first, &tokens);
    f->delivered += tokens;
    for (size_t i = 0; f->tokens == MR_TOKENS_UNKNOWN && i < n; i++)
        f->first_window += runs[i].tokens; /* counted there until it has its own meaning */
    return 0;
}

static int open_packed(struct mr_tokens *t, struct token_file *f, struct mr_error *err)
{
    f->windows = (f->documents + t->window - 1) / t->window;
    f->first_pack = calloc((size_t)f->windows + 1, sizeof(*f->first_pack));
    f->place = malloc((size_t)f->documents * sizeof(*f->place) + 1);
    struct token_packer *packer = mr_token_packer_create(t->window, t->length, t->drop_tails);
    int rc = f->first_pack && f->place && packer ? 0 : mr_error_set(err, -ENOMEM, "cannot pack '%s'", f->name);
    if (rc >= 0)
        rc = over_documents(t, f, t->window, take_window, packer, err);
    mr_token_packer_free(packer);
    if (rc < 0)
        return rc;
    if (f->tokens == MR_TOKENS_UNKNOWN)
        f->tokens = f->first_window;
    f->samples = f->first_pack[f->windows];
    return 0;
}

static int open_file(struct mr_tokens *t, uint32_t i, const struct mr_tokens_params *p, struct mr_error *err)
{
    struct token_file *f = &t->file[i];
    int rc = mr_token_file_open(f, t->store, p->paths[i], p, err);
    if (rc >= 0 && t->cut == MR_TOKENS_FIXED)
        rc = open_fixed(t, f, err);
    else if (rc >= 0 && t->cut == MR_TOKENS_PACKED)
        rc = open_packed(t, f, err);
    else if (rc >= 0) {
        f->samples = f->documents;
        f->delivered = f->tokens;
    }
    if (rc >= 0 && !f->samples)
        rc = mr_error_plain(err, MR_E_USAGE, "'%s' has no tokens", f->name);
    if (rc < 0)
        return rc;
    f->first_sample = t->samples;
    f->first_window = t->windows;
    t->samples += f->samples;
    t->windows += f->windows;
    return 0;
}

static int check_params(const struct mr_tokens_params *p, struct mr_error *err)
{
    bool needs_length = p->cut != MR_TOKENS_DOCUMENTS;
    if (!p->n_paths)
        return mr_error_plain(err, MR_E_USAGE, "a corpus needs a file of tokens");
    if (needs_length && (!p->length || p->length > MR_TOKENS_MAX_LENGTH))
        return mr_error_plain(err, MR_E_USAGE, "a sample has 1 to %llu tokens, not %llu", (ull)MR_TOKENS_MAX_LENGTH,
                              (ull)p->length);
    if (p->step > MR_TOKENS_MAX_LENGTH || p->extra > MR_TOKENS_MAX_LENGTH || p->window > MR_TOKENS_MAX_WINDOW)
        return mr_error_plain(err, MR_E_USAGE, "a step, extra tokens or a window of so many is not possible");
    return 0;
}

int mr_tokens_open(const struct mr_tokens_params *p, struct mr_tokens **out, struct mr_error *err)
{
    int rc = check_params(p, err);
    if (rc < 0)
        return rc;
    struct mr_tokens *t = calloc(1, sizeof(*t));
    if (t)
        t->file = calloc(p->n_paths, sizeof(*t->file));
    if (!t || !t->file) {
        free(t);
        return mr_error_set(err, -ENOMEM, "cannot open %u files of tokens", p->n_paths);
    }
    t->cut = p->cut;
    t->length = p->length;
    t->step = p->step ? p->step : p->length;
    t->row = (uint32_t)p->length + p->extra;
    t->window = p->window ? p->window : MR_TOKENS_WINDOW;
    t->drop_tails = p->drop_tails;
    rc = mr_token_store_get(p->store, p->paths[0], &t->shared, &t->store, err);
    for (uint32_t i = 0; rc >= 0 && i < p->n_paths; i++) {
        t->n_files++;
        rc = open_file(t, i, p, err);
    }
    if (rc < 0) {
        mr_tokens_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void mr_tokens_free(struct mr_tokens *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; i < t->n_files; i++)
        mr_token_file_close(&t->file[i]);
    free(t->file);
    mr_token_store_put(t->shared);
    free(t);
}

void mr_tokens_get_info(const struct mr_tokens *t, struct mr_tokens_info *out)
{
    *out = (struct mr_tokens_info){.samples = t->samples,
                                   .files = t->n_files,
                                   .windows = t->windows,
                                   .format = t->file[0].ops->name,
                                   .dtype = t->file[0].dtype};
    bool known = true;
    for (uint32_t i = 0; i < t->n_files; i++) {
        known = known && t->file[i].tokens != MR_TOKENS_UNKNOWN;
        out->documents += t->file[i].documents;
        out->tokens += t->file[i].tokens;
        out->delivered += t->file[i].delivered;
    }
    if (!known)
        out->tokens = out->delivered = 0;
}

/* ---- reading ---- */

/* One call: what it reuses for each of its samples. */
struct reading {
    struct mr_tokens *t;
    struct token_scratch s;
    struct token_run *runs; /* PACKED: of the window that was used last */
    struct token_piece *piece;
    size_t n_runs;
    const struct token_file *file;
    uint64_t window;
};

static int begin(struct reading *r, struct mr_tokens *t, struct mr_error *err)
{
    *r = (struct reading){.t = t};
    if (t->cut != MR_TOKENS_PACKED)
        return 0;
    r->runs = malloc(t->window * sizeof(*r->runs));
    r->piece = malloc(t->window * sizeof(*r->piece));
    return r->runs && r->piece ? 0 : mr_error_set(err, -ENOMEM, "cannot unpack %u documents", t->window);
}

static void end(struct reading *r)
{
    free(r->runs);
    free(r->piece);
    mr_token_scratch_done(&r->s);
}

static struct token_file *find_file(const struct mr_tokens *t, uint64_t id, struct mr_error *err)
{
    uint32_t lo = 0, hi = t->n_files;
    if (id >= t->samples) {
        mr_error_plain(err, MR_E_USAGE, "sample %llu does not exist: '%s' has %llu", (ull)id, t->file[0].name,
                       (ull)t->samples);
        return NULL;
    }
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        if (t->file[mid].first_sample <= id)
            lo = mid;
        else
            hi = mid;
    }
    return &t->file[lo];
}

/* Tokens [at, at + n) of a file's stream. */
static int read_stream(struct reading *r, struct token_file *f, uint64_t at, uint64_t n, int64_t *out,
                       struct mr_error *err)
{
    struct token_run run = {.offset = f->stream_offset, .tokens = f->tokens};
    if (f->is_stream)
        return f->ops->read(f, &run, at, (size_t)n, out, &r->s, err);
    uint64_t lo = 0, hi = f->documents;
    while (hi - lo > 1) {
        uint64_t mid = (lo + hi) / 2;
        if (f->first_token[mid] <= at)
            lo = mid;
        else
            hi = mid;
    }
    int rc = 0;
    for (; rc >= 0 && n; lo++) {
        uint64_t from = at - f->first_token[lo], here = MR_MIN(n, f->first_token[lo + 1] - at);
        if (!here)
            continue;
        rc = f->ops->runs(f, lo, 1, &run, &r->s, err);
        if (rc >= 0 && run.tokens != f->first_token[lo + 1] - f->first_token[lo])
            rc = mr_error_plain(err, MR_E_CHANGED, "'%s' was changed: document %llu has %llu tokens, not %llu", f->name,
                                (ull)lo, (ull)run.tokens, (ull)(f->first_token[lo + 1] - f->first_token[lo]));
        if (rc >= 0)
            rc = f->ops->read(f, &run, from, (size_t)here, out, &r->s, err);
        at += here;
        out += here;
        n -= here;
    }
    return rc;
}

static uint64_t window_of(const struct token_file *f, uint64_t pack)
{
    uint64_t lo = 0, hi = f->windows;
    while (hi - lo > 1) {
        uint64_t mid = (lo + hi) / 2;
        if (f->first_pack[mid] <= pack)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* The pieces of a packed sequence. */
static int find_pieces(struct reading *r, struct token_file *f, uint64_t pack, size_t *n, struct mr_error *err)
{
    const struct mr_tokens *t = r->t;
    uint64_t window = window_of(f, pack), first = window * t->window;
    if (r->file != f || r->window != window) {
        r->file = NULL;
        r->n_runs = (size_t)MR_MIN((uint64_t)t->window, f->documents - first);
        int rc = f->ops->runs(f, first, r->n_runs, r->runs, &r->s, err);
        if (rc < 0)
            return rc;
        r->file = f;
        r->window = window;
    }
    *n = mr_token_pack_pieces(t->length, r->runs, r->n_runs, f->place + first, pack - f->first_pack[window], r->piece);
    if (*n)
        return 0;
    return mr_error_plain(err, MR_E_CHANGED,
                          "'%s' was changed: window %llu has other documents than when it was opened", f->name,
                          (ull)window);
}

static void fill_row(const struct mr_tokens *t, struct mr_token_rows *out, size_t row, const struct token_piece *piece,
                     size_t n)
{
    uint64_t length = t->length, at = row * length, end = at + length;
    for (size_t p = 0; p <= n; p++) {
        uint64_t tokens = p < n ? piece[p].tokens : end - at;
        if (out->borders && tokens)
            out->borders[out->n_borders++] = (int32_t)(at + tokens);
        if (p == n)
            for (uint64_t i = 0; i < tokens; i++)
                out->tokens[at + i] = out->pad;
        for (uint64_t i = 0; out->segments && i < tokens; i++)
            out->segments[at + i] = p < n ? (int32_t)p + 1 : 0;
        for (uint64_t i = 0; out->positions && i < tokens; i++)
            out->positions[at + i] = (int32_t)i;
        if (out->targets && tokens) {
            for (uint64_t i = 0; p < n && i + 1 < tokens; i++)
                out->targets[at + i] = out->tokens[at + i + 1];
            for (uint64_t i = p < n ? tokens - 1 : 0; i < tokens; i++)
                out->targets[at + i] = -100;
        }
        at += tokens;
    }
}

/* Does `next` begin in the file where so many tokens from `piece` on end? */
static bool is_next(const struct reading *r, const struct token_file *f, const struct token_piece *piece,
                    uint64_t tokens, const struct token_piece *next)
{
    uint64_t item = mr_dtype_bytes(f->dtype);
    return r->runs[piece->document].offset + (piece->from + tokens) * item ==
           r->runs[next->document].offset + next->from * item;
}

static int read_packed(struct reading *r, struct token_file *f, uint64_t pack, size_t row, struct mr_token_rows *out,
                       struct mr_error *err)
{
    size_t n;
    int rc = find_pieces(r, f, pack, &n, err);
    if (rc < 0)
        return rc;
    int64_t *at = out->tokens + row * r->t->length;
    for (size_t p = 0; rc >= 0 && p < n;) {
        const struct token_piece *piece = &r->piece[p];
        uint64_t tokens = piece->tokens;
        for (p++; f->is_stream && p < n && is_next(r, f, piece, tokens, &r->piece[p]); p++)
            tokens += r->piece[p].tokens; /* documents that lie end to end are read together */
        rc = f->ops->read(f, &r->runs[piece->document], piece->from, (size_t)tokens, at, &r->s, err);
        at += tokens;
    }
    if (rc >= 0)
        fill_row(r->t, out, row, r->piece, n);
    return rc;
}

static int read_one(struct reading *r, uint64_t id, size_t row, int64_t **document, struct mr_token_rows *out,
                    struct mr_error *err)
{
    struct mr_tokens *t = r->t;
    struct token_file *f = find_file(t, id, err);
    if (!f)
        return MR_E_USAGE;
    uint64_t i = id - f->first_sample;
    if (t->cut == MR_TOKENS_FIXED)
        return read_stream(r, f, i * t->step, t->row, out->tokens + row * t->row, err);
    if (t->cut == MR_TOKENS_PACKED)
        return read_packed(r, f, i, row, out, err);
    struct token_run run;
    int rc = f->ops->runs(f, i, 1, &run, &r->s, err);
    if (rc >= 0 && run.tokens)
        rc = f->ops->read(f, &run, 0, (size_t)run.tokens, *document, &r->s, err);
    if (rc >= 0)
        *document += run.tokens;
    return rc;
}

int mr_tokens_read(struct mr_tokens *t, const uint64_t *ids, size_t n, struct mr_token_rows *rows, struct mr_error *err)
{
    struct reading r;
    int64_t *document = rows->tokens;
    if (t->cut == MR_TOKENS_PACKED && rows->borders && n > INT32_MAX / t->length)
        return mr_error_plain(err, MR_E_USAGE, "borders of %zu sequences of %llu tokens do not fit 32 bits", n,
                              (ull)t->length);
    int rc = begin(&r, t, err);
    rows->n_borders = 0;
    if (rows->borders)
        rows->borders[rows->n_borders++] = 0;
    for (size_t i = 0; rc >= 0 && i < n; i++)
        rc = read_one(&r, ids[i], i, &document, rows, err);
    end(&r);
    return rc;
}

int mr_tokens_lengths(struct mr_tokens *t, const uint64_t *ids, size_t n, uint64_t *lengths, struct mr_error *err)
{
    struct reading r;
    int rc = begin(&r, t, err);
    for (size_t i = 0; rc >= 0 && i < n; i++) {
        struct token_file *f = find_file(t, ids[i], err);
        struct token_run run = {.tokens = t->row};
        size_t pieces = 0;
        if (!f)
            rc = MR_E_USAGE;
        else if (t->cut == MR_TOKENS_PACKED)
            rc = find_pieces(&r, f, ids[i] - f->first_sample, &pieces, err);
        else if (t->cut == MR_TOKENS_DOCUMENTS)
            rc = f->ops->runs(f, ids[i] - f->first_sample, 1, &run, &r.s, err);
        lengths[i] = t->cut == MR_TOKENS_PACKED ? 0 : run.tokens;
        for (size_t p = 0; rc >= 0 && p < pieces; p++)
            lengths[i] += r.piece[p].tokens;
    }
    end(&r);
    return rc;
}

int mr_tokens_place(const struct mr_tokens *t, uint64_t id, struct mr_token_place *out, struct mr_error *err)
{
    const struct token_file *f = find_file(t, id, err);
    if (!f)
        return MR_E_USAGE;
    *out = (struct mr_token_place){.file = (uint32_t)(f - t->file), .position = id - f->first_sample};
    if (t->cut == MR_TOKENS_PACKED) {
        uint64_t window = window_of(f, out->position);
        out->window = f->first_window + window;
        out->position -= f->first_pack[window];
    }
    return 0;
}
