/* JSON lines of tokens: values one behind the other, each an array of whole numbers, or an object one of whose members
 * is ("tokens", "input_ids", or the one that was named); a document each. Opening reads the file once and notes where
 * each document begins and how many tokens it has; reading parses a document again. */
#include "base/vec.h"
#include "format/json_push.h"
#include "tokens/tokens_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK ((size_t)1 << 20)

struct line {
    uint64_t offset, tokens;
    uint64_t bytes;
};

struct jsonl {
    MR_VEC(struct line) lines;
};

/* Parsing: of the whole file (out NULL), or of one document. */
struct parsing {
    const char *path, *column;
    uint64_t number; /* of the document */
    unsigned depth;  /* of the tokens, while they come; 0: not now */
    bool is_column, found;
    uint64_t start, count, skip, want;
    int64_t *out;
    struct jsonl *to;
};

static int refuse(const struct parsing *x, struct mr_error *err, const char *what)
{
    return mr_error_plain(err, MR_E_FORMAT, "'%s': document %llu %s", x->path, (ull)x->number, what);
}

static bool is_tokens(const struct parsing *x, const struct mr_json_token *t)
{
    const char *const names[] = {x->column ? x->column : "tokens", x->column ? x->column : "input_ids"};
    for (unsigned i = 0; i < MR_ARRAY_LEN(names); i++)
        if (strlen(names[i]) == t->len && memcmp(names[i], t->text, t->len) == 0)
            return true;
    return false;
}

static void take_number(struct parsing *x, int64_t v)
{
    uint64_t i = x->count++ - x->skip;
    if (x->out && i < x->want)
        x->out[i] = v;
}

static int end_document(struct parsing *x, uint64_t end, struct mr_error *err)
{
    if (!x->found)
        return refuse(x, err, "has no array of tokens");
    if (x->to) {
        struct line *line = MR_VEC_ADD(&x->to->lines);
        if (!line)
            return mr_error_set(err, -ENOMEM, "cannot index '%s'", x->path);
        *line = (struct line){.offset = x->start, .bytes = end - x->start, .tokens = x->count};
    }
    x->number++;
    return 0;
}

static int on_token(void *user, const struct mr_json_token *t, struct mr_error *err)
{
    struct parsing *x = user;
    bool begins = t->event == MR_PUSH_ARRAY || t->event == MR_PUSH_OBJECT;
    if (t->depth == 0 && begins) {
        x->start = t->start;
        x->count = 0;
        x->found = x->is_column = false;
    } else if (t->depth == 0 && t->event != MR_PUSH_ARRAY_END && t->event != MR_PUSH_OBJECT_END) {
        return refuse(x, err, "is neither an object nor an array");
    }
    if (t->event == MR_PUSH_KEY && t->depth == 1) {
        x->is_column = is_tokens(x, t);
        return 0;
    }
    if (t->event == MR_PUSH_ARRAY && !x->depth && (t->depth == 0 || (t->depth == 1 && x->is_column))) {
        if (x->found)
            return refuse(x, err, "has its tokens twice");
        x->found = true;
        x->depth = t->depth + 1;
        return 0;
    }
    if (t->event == MR_PUSH_ARRAY_END && x->depth == t->depth + 1) {
        x->depth = 0;
        x->is_column = false;
    }
    if ((t->event == MR_PUSH_ARRAY_END || t->event == MR_PUSH_OBJECT_END) && t->depth == 0)
        return end_document(x, t->end, err);
    if (x->depth) {
        int64_t v;
        if (t->event != MR_PUSH_NUMBER || !mr_number_to_int64(t->number, &v))
            return refuse(x, err, "has something else than whole numbers among its tokens");
        take_number(x, v);
    } else if (x->is_column && t->depth == 1) {
        return refuse(x, err, "has tokens that are no array");
    }
    return 0;
}

/* Elements that are up to 18 digits and a comma. */
static size_t on_run(void *user, unsigned depth, const char *p, const char *end)
{
    struct parsing *x = user;
    const char *at = p;
    if (!x->depth || depth != x->depth)
        return 0;
    for (;;) {
        const char *digit = at;
        int64_t v = 0;
        while (digit < end && *digit == ' ')
            digit++;
        const char *first = digit;
        for (; digit < end && (unsigned)(*digit - '0') < 10 && digit - first < 18; digit++)
            v = 10 * v + (*digit - '0');
        if (digit >= end || *digit != ',' || digit == first || (*first == '0' && digit - first > 1))
            return (size_t)(at - p);
        take_number(x, v);
        at = digit + 1;
    }
}

static int feed(struct mr_json *j, struct parsing *x, const void *data, size_t len, struct mr_error *err)
{
    int rc = mr_json_feed(j, data, len, err);
    if (rc < 0 && rc != -ENOMEM)
        mr_error_context(err, "in '%s', document %llu", x->path, (ull)x->number);
    return rc;
}

static int index_lines(struct token_file *f, struct jsonl *j, const struct mr_tokens_params *p, struct mr_error *err)
{
    struct parsing x = {.path = f->name, .column = p->column, .to = j};
    struct mr_json *json = malloc(sizeof(*json));
    char *chunk = malloc(CHUNK);
    int rc = json && chunk ? 0 : mr_error_set(err, -ENOMEM, "cannot index '%s'", f->name);
    if (rc >= 0) {
        mr_json_init(json, true, 0, on_token, &x);
        json->run = on_run;
    }
    for (uint64_t at = 0; rc >= 0 && at < f->data.bytes; at += CHUNK) {
        size_t len = (size_t)MR_MIN(CHUNK, f->data.bytes - at);
        rc = mr_token_object_read(&f->data, f->store, chunk, len, at, err);
        if (rc >= 0)
            rc = feed(json, &x, chunk, len, err);
    }
    if (rc >= 0)
        rc = mr_json_end(json, err);
    free(json);
    free(chunk);
    f->tokens = 0;
    for (size_t i = 0; i < j->lines.n; i++)
        f->tokens += j->lines.item[i].tokens;
    f->documents = j->lines.n;
    return rc;
}

static int jsonl_open(struct token_file *f, const char *path, const struct mr_tokens_params *p, struct mr_error *err)
{
    struct jsonl *j = f->own = calloc(1, sizeof(*j));
    if (!j)
        return mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    f->dtype = MR_I64;
    int rc = mr_token_object_init(&f->data, f->store, strdup(path), err);
    return rc < 0 ? rc : index_lines(f, j, p, err);
}

static void jsonl_close(struct token_file *f)
{
    struct jsonl *j = f->own;
    if (j)
        free(j->lines.item);
    free(j);
}

static int jsonl_runs(struct token_file *f, uint64_t first, size_t n, struct token_run *runs, struct token_scratch *s,
                      struct mr_error *err)
{
    const struct jsonl *j = f->own;
    (void)s, (void)err;
    for (size_t i = 0; i < n; i++) {
        const struct line *line = &j->lines.item[first + i];
        runs[i] = (struct token_run){.offset = line->offset, .bytes = line->bytes, .tokens = line->tokens};
    }
    return 0;
}

static int jsonl_read(struct token_file *f, const struct token_run *run, uint64_t from, size_t n, int64_t *out,
                      struct token_scratch *s, struct mr_error *err)
{
    char *text = mr_token_scratch(s, 0, (size_t)run->bytes);
    struct mr_json *json = mr_token_scratch(s, 1, sizeof(*json));
    struct parsing x = {.path = f->name, .column = f->column, .skip = from, .want = n, .out = out};
    int rc = text && json ? mr_token_object_read(&f->data, f->store, text, (size_t)run->bytes, run->offset, err)
                          : mr_error_set(err, -ENOMEM, "cannot read '%s'", f->name);
    if (rc < 0)
        return rc;
    mr_json_init(json, true, run->offset, on_token, &x);
    json->run = on_run;
    rc = feed(json, &x, text, (size_t)run->bytes, err);
    if (rc >= 0 && x.count != run->tokens)
        rc = mr_error_plain(err, MR_E_CHANGED, "'%s' was changed: the document at %llu has %llu tokens, and had %llu",
                            f->name, (ull)run->offset, (ull)x.count, (ull)run->tokens);
    return rc;
}

const struct token_file_ops mr_token_jsonl = {
    .name = "jsonl", .open = jsonl_open, .close = jsonl_close, .runs = jsonl_runs, .read = jsonl_read};
