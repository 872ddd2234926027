/* test-label: concurrent
 *
 * Token corpora: the three cuts over files that the test writes; packing against a plain first-fit written here; bad
 * files are named. Files of Megatron's and MosaicML's own writers: tests/python/test_tokens_readers.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/common.h"
#include "base/rng.h"
#include "base/temp_folder.h"

#include <millrace/tokens.h>

static char folder[256];

static char *path_of(const char *name)
{
    static char out[8][512];
    static unsigned turn;
    char *p = out[turn++ % 8];
    snprintf(p, sizeof out[0], "%s/%s", folder, name);
    return p;
}

static void put_file(const char *name, const void *data, size_t len)
{
    FILE *f = fopen(path_of(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static uint64_t draw(uint64_t i, uint64_t n)
{
    return mr_rng_below(mr_rng_at(11, MR_RNG_TEST, i), n);
}

/* Token i of document d. */
static uint16_t token(uint64_t d, uint64_t i)
{
    return (uint16_t)(1 + mr_rng_at(d, MR_RNG_TEST, i) % 50000);
}

struct corpus {
    uint64_t documents;
    uint64_t *length, *first;
    uint16_t *all;
    uint64_t tokens;
};

static struct corpus make_corpus(uint64_t documents, uint64_t seed, uint64_t longest)
{
    struct corpus c = {.documents = documents};
    c.length = calloc(documents, sizeof(*c.length));
    c.first = calloc(documents + 1, sizeof(*c.first));
    for (uint64_t d = 0; d < documents; d++) {
        c.length[d] = draw(seed * 1000003 + d, 10) ? draw(seed + d * 7 + 1, longest) : draw(d, 5);
        c.first[d + 1] = c.first[d] + c.length[d];
    }
    c.tokens = c.first[documents];
    c.all = malloc(c.tokens * sizeof(*c.all) + 2);
    for (uint64_t d = 0; d < documents; d++)
        for (uint64_t i = 0; i < c.length[d]; i++)
            c.all[c.first[d] + i] = token(d, i);
    return c;
}

static void drop_corpus(struct corpus *c)
{
    free(c->length);
    free(c->first);
    free(c->all);
}

/* PREFIX.bin and PREFIX.idx as Megatron writes them; documents of 1 to 3 sequences. */
static void put_megatron(const struct corpus *c, const char *prefix, uint8_t *head, size_t head_len)
{
    size_t cap = 64 + c->documents * 3 * 12 + 8 * (c->documents + 1), at = 34;
    uint8_t *idx = calloc(1, cap);
    uint64_t n = 0, *length = calloc(3 * c->documents + 1, 8), *document = calloc(c->documents + 1, 8);
    for (uint64_t d = 0; d < c->documents; d++) {
        uint64_t parts = 1 + draw(d, 3), left = c->length[d];
        for (uint64_t p = 0; p < parts; p++) {
            length[n] = p + 1 < parts ? left / 2 : left;
            left -= length[n++];
        }
        document[d + 1] = n;
    }
    memcpy(idx, "MMIDIDX\0", 9);
    mr_store_le64(idx + 9, 1);
    idx[17] = 8;
    mr_store_le64(idx + 18, n);
    mr_store_le64(idx + 26, c->documents + 1);
    for (uint64_t i = 0; i < n; i++, at += 4)
        mr_store_le32(idx + at, (uint32_t)length[i]);
    uint64_t pointer = 0;
    for (uint64_t i = 0; i < n; pointer += 2 * length[i], i++, at += 8)
        mr_store_le64(idx + at, pointer);
    for (uint64_t d = 0; d <= c->documents; d++, at += 8)
        mr_store_le64(idx + at, document[d]);
    if (head)
        memcpy(idx, head, head_len);
    char name[64];
    snprintf(name, sizeof name, "%s.idx", prefix);
    put_file(name, idx, at);
    snprintf(name, sizeof name, "%s.bin", prefix);
    put_file(name, c->all, c->tokens * 2);
    free(idx);
    free(length);
    free(document);
}

static void put_jsonl(const struct corpus *c, const char *name)
{
    FILE *f = fopen(path_of(name), "w");
    for (uint64_t d = 0; d < c->documents; d++) {
        bool object = d % 3;
        fputs(object ? d % 3 == 1 ? "{\"id\": \"[1,2\", \"x\": [[7], {\"tokens\": 3}], \"tokens\": [" : "{\"tokens\":["
                     : "[",
              f);
        for (uint64_t i = 0; i < c->length[d]; i++)
            fprintf(f, "%s%u", i ? d % 2 ? "," : ", " : "", token(d, i));
        fputs(object ? "], \"end\": null}\n" : "]\n", f);
    }
    fclose(f);
}

static struct mr_tokens *open_with(struct mr_tokens_params p, const char *path)
{
    struct mr_tokens *t = NULL;
    struct mr_error err = {0};
    p.paths = &path;
    p.n_paths = 1;
    if (mr_tokens_open(&p, &t, &err) < 0)
        fail_msg("%s", err.message);
    return t;
}

static void check_stream(struct mr_tokens *t, const struct corpus *c, uint64_t length, uint64_t step, uint32_t extra)
{
    struct mr_tokens_info info;
    uint64_t row = length + extra, ids[16];
    int64_t *got = malloc(16 * row * sizeof(*got));
    mr_tokens_get_info(t, &info);
    assert_int_equal(info.samples, (c->tokens - row) / step + 1);
    assert_int_equal(info.tokens, c->tokens);
    for (unsigned round = 0; round < 40; round++) {
        for (unsigned i = 0; i < 16; i++)
            ids[i] = round ? draw(round * 16 + i, info.samples) : info.samples - 1 - i;
        struct mr_token_rows rows = {.tokens = got};
        assert_int_equal(mr_tokens_read(t, ids, 16, &rows, NULL), 0);
        for (unsigned i = 0; i < 16; i++)
            for (uint64_t k = 0; k < row; k++)
                assert_int_equal(got[i * row + k], c->all[ids[i] * step + k]);
    }
    uint64_t beyond = info.samples;
    assert_int_equal(mr_tokens_read(t, &beyond, 1, &(struct mr_token_rows){.tokens = got}, NULL), MR_E_USAGE);
    free(got);
}

static void check_documents(struct mr_tokens *t, const struct corpus *c)
{
    struct mr_tokens_info info;
    mr_tokens_get_info(t, &info);
    assert_int_equal(info.samples, c->documents);
    for (uint64_t d = 0; d + 3 < c->documents; d += 3) {
        const uint64_t ids[] = {d + 2, d, d + 1};
        uint64_t lengths[3];
        assert_int_equal(mr_tokens_lengths(t, ids, 3, lengths, NULL), 0);
        int64_t *got = malloc((lengths[0] + lengths[1] + lengths[2] + 1) * sizeof(*got)), *at = got;
        assert_int_equal(mr_tokens_read(t, ids, 3, &(struct mr_token_rows){.tokens = got}, NULL), 0);
        for (unsigned i = 0; i < 3; i++, at += c->length[ids[i - 1]]) {
            assert_int_equal(lengths[i], c->length[ids[i]]);
            for (uint64_t k = 0; k < lengths[i]; k++)
                assert_int_equal(at[k], token(ids[i], k));
        }
        free(got);
    }
}

/* ---- packing, once more, in the plainest way ---- */

struct plain {
    uint64_t used;
    unsigned n;
    struct {
        uint64_t document, from, tokens;
    } piece[64];
};

static size_t plain_first_fit(const struct corpus *c, uint64_t first, uint64_t n, uint64_t length, bool drop,
                              struct plain *out)
{
    size_t made = 0;
    for (unsigned whole = 0; whole < 2; whole++) /* first the rests, then whole pieces */
        for (uint64_t d = first; d < first + n; d++)
            for (uint64_t from = 0; from < c->length[d]; from += length) {
                uint64_t tokens = MR_MIN(length, c->length[d] - from);
                if ((drop && from && tokens < length) || (tokens == length) != whole)
                    continue;
                size_t i = 0;
                while (i < made && out[i].used + tokens > length)
                    i++;
                if (i == made)
                    out[made++] = (struct plain){.used = 0};
                out[i].piece[out[i].n].document = d;
                out[i].piece[out[i].n].from = from;
                out[i].piece[out[i].n++].tokens = tokens;
                out[i].used += tokens;
                assert_true(out[i].n < 64);
            }
    return made;
}

static void check_row(const struct plain *want, uint64_t length, uint32_t row, const struct mr_token_rows *got)
{
    uint64_t at = row * length;
    for (unsigned p = 0; p < want->n; p++)
        for (uint64_t i = 0; i < want->piece[p].tokens; i++, at++) {
            uint64_t from = want->piece[p].from;
            bool last = i + 1 == want->piece[p].tokens;
            assert_int_equal(got->tokens[at], token(want->piece[p].document, from + i));
            assert_int_equal(got->targets[at], last ? -100 : token(want->piece[p].document, from + i + 1));
            assert_int_equal(got->segments[at], p + 1);
            assert_int_equal(got->positions[at], i);
        }
    for (uint64_t i = 0; at < (row + 1) * length; at++, i++) {
        assert_int_equal(got->tokens[at], 99);
        assert_int_equal(got->targets[at], -100);
        assert_int_equal(got->segments[at], 0);
        assert_int_equal(got->positions[at], i);
    }
}

static void check_borders(const struct plain *want, uint64_t length, size_t rows, const struct mr_token_rows *got)
{
    size_t at = 0;
    int32_t end = 0;
    assert_int_equal(got->borders[at++], 0);
    for (size_t r = 0; r < rows; r++) {
        for (unsigned p = 0; p < want[r].n; p++)
            assert_int_equal(got->borders[at++], end += (int32_t)want[r].piece[p].tokens);
        if (want[r].used < length)
            assert_int_equal(got->borders[at++], end += (int32_t)(length - want[r].used));
    }
    assert_int_equal(got->n_borders, at);
}

static void check_packed(struct mr_tokens *t, const struct corpus *c, uint64_t length, uint32_t window, bool drop)
{
    struct mr_tokens_info info;
    uint64_t id = 0, delivered = 0;
    struct plain *want = calloc(8192, sizeof(*want));
    mr_tokens_get_info(t, &info);
    assert_int_equal(info.windows, (c->documents + window - 1) / window);
    for (uint64_t first = 0; first < c->documents; first += window) {
        memset(want, 0, 8192 * sizeof(*want));
        size_t n = plain_first_fit(c, first, MR_MIN(window, c->documents - first), length, drop, want);
        struct mr_token_rows rows = {.pad = 99};
        uint64_t *ids = malloc((n + 1) * sizeof(*ids)), *lengths = malloc((n + 1) * sizeof(*lengths));
        rows.tokens = malloc((n + 1) * length * 8);
        rows.targets = malloc((n + 1) * length * 8);
        rows.segments = malloc((n + 1) * length * 4);
        rows.positions = malloc((n + 1) * length * 4);
        rows.borders = malloc(((n + 1) * (length + 1) + 1) * 4);
        for (size_t i = 0; i < n; i++)
            ids[i] = id + i;
        assert_int_equal(mr_tokens_read(t, ids, n, &rows, NULL), 0);
        assert_int_equal(mr_tokens_lengths(t, ids, n, lengths, NULL), 0);
        check_borders(want, length, n, &rows);
        for (uint32_t r = 0; r < n; r++) {
            struct mr_token_place place;
            check_row(&want[r], length, r, &rows);
            assert_int_equal(mr_tokens_place(t, ids[r], &place, NULL), 0);
            assert_int_equal(place.window, first / window);
            assert_int_equal(place.position, r);
            assert_int_equal(lengths[r], want[r].used);
            delivered += lengths[r];
        }
        id += n;
        free(ids);
        free(lengths);
        free(rows.tokens);
        free(rows.targets);
        free(rows.segments);
        free(rows.positions);
        free(rows.borders);
    }
    assert_int_equal(info.samples, id);
    assert_int_equal(info.delivered, delivered);
    if (!drop)
        assert_int_equal(delivered, c->tokens);
    free(want);
}

static void every_cut_of_every_format_has_the_tokens_of_the_documents(void **state)
{
    (void)state;
    struct corpus c = make_corpus(500, 3, 300);
    put_megatron(&c, "mega", NULL, 0);
    put_jsonl(&c, "lines.jsonl");
    const char *const names[] = {"mega", "mega.idx", "mega.bin", "lines.jsonl"};
    for (unsigned i = 0; i < MR_ARRAY_LEN(names); i++) {
        struct mr_tokens_params fixed = {.cut = MR_TOKENS_FIXED, .length = 64, .extra = 1, .step = i % 2 ? 17 : 0};
        struct mr_tokens *t = open_with(fixed, path_of(names[i]));
        check_stream(t, &c, 64, i % 2 ? 17 : 64, 1);
        mr_tokens_free(t);
        t = open_with((struct mr_tokens_params){.cut = MR_TOKENS_DOCUMENTS}, path_of(names[i]));
        check_documents(t, &c);
        mr_tokens_free(t);
        for (unsigned drop = 0; drop < 2; drop++) {
            const uint32_t windows[] = {1, 7, 64, 1000};
            struct mr_tokens_params packed = {
                .cut = MR_TOKENS_PACKED, .length = 128, .window = windows[i], .drop_tails = drop};
            t = open_with(packed, path_of(names[i]));
            check_packed(t, &c, 128, windows[i], drop);
            mr_tokens_free(t);
        }
    }
    drop_corpus(&c);
}

static void streams_without_documents_are_cut(void **state)
{
    (void)state;
    struct corpus c = make_corpus(60, 5, 300);
    uint8_t *file = calloc(1, 1024 + 2 * c.tokens);
    memcpy(file + 1024, c.all, 2 * c.tokens);
    put_file("plain.bin", c.all, 2 * c.tokens);
    mr_store_le32(file, 20240520);
    mr_store_le32(file + 4, 1);
    mr_store_le32(file + 8, (uint32_t)c.tokens);
    put_file("llmc.bin", file, 1024 + 2 * c.tokens);
    char head[128];
    int n = snprintf(head, sizeof head, "{'descr': '<u2', 'fortran_order': False, 'shape': (%llu,), }",
                     (unsigned long long)c.tokens);
    memcpy(file + 1024 - 128, "\x93NUMPY\1\0", 8);
    mr_store_le16(file + 1024 - 120, 118);
    memset(file + 1024 - 118, ' ', 118);
    memcpy(file + 1024 - 118, head, (size_t)n);
    put_file("array.npy", file + 1024 - 128, 128 + 2 * c.tokens);
    const char *const names[] = {"plain.bin", "llmc.bin", "array.npy"};
    for (unsigned i = 0; i < 3; i++) {
        struct mr_tokens *t =
            open_with((struct mr_tokens_params){.cut = MR_TOKENS_FIXED, .length = 33}, path_of(names[i]));
        check_stream(t, &c, 33, 33, 0);
        mr_tokens_free(t);
    }
    free(file);
    drop_corpus(&c);
}

/* nanoGPT's and llm.c's files end documents with a token. */
static void documents_end_behind_a_token(void **state)
{
    (void)state;
    const uint16_t tokens[] = {5, 6, 9, 9, 7, 9, 8};
    const uint64_t lengths[] = {3, 1, 2, 1};
    put_file("eos.bin", tokens, sizeof tokens);
    struct mr_tokens *t =
        open_with((struct mr_tokens_params){.cut = MR_TOKENS_DOCUMENTS, .has_eos = true, .eos = 9}, path_of("eos.bin"));
    struct mr_tokens_info info;
    mr_tokens_get_info(t, &info);
    assert_int_equal(info.samples, 4);
    for (uint64_t id = 0, at = 0; id < 4; at += lengths[id++]) {
        uint64_t n;
        int64_t got[4];
        assert_int_equal(mr_tokens_lengths(t, &id, 1, &n, NULL), 0);
        assert_int_equal(n, lengths[id]);
        assert_int_equal(mr_tokens_read(t, &id, 1, &(struct mr_token_rows){.tokens = got}, NULL), 0);
        for (uint64_t i = 0; i < n; i++)
            assert_int_equal(got[i], tokens[at + i]);
    }
    mr_tokens_free(t);
    struct corpus c = make_corpus(400, 8, 200);
    for (uint64_t d = 0; d < c.documents; d++)
        if (c.length[d])
            c.all[c.first[d + 1] - 1] = 65535;
    put_file("eos.bin", c.all, 2 * c.tokens);
    t = open_with((struct mr_tokens_params){.cut = MR_TOKENS_PACKED, .length = 64, .has_eos = true, .eos = 65535},
                  path_of("eos.bin"));
    mr_tokens_get_info(t, &info);
    assert_int_equal(info.delivered, c.tokens);
    uint64_t with = 0;
    for (uint64_t d = 0; d < c.documents; d++)
        with += c.length[d] > 0;
    assert_int_equal(info.documents, with);
    mr_tokens_free(t);
    drop_corpus(&c);
}

/* Many prefixes as one corpus: samples of the files follow one another; few files stay open. */
static void hundreds_of_prefixes_are_one_corpus(void **state)
{
    (void)state;
    enum { N = 400 };
    char *paths[N];
    for (unsigned i = 0; i < N; i++) {
        struct corpus c = make_corpus(4, i, 50);
        char name[24];
        c.length[0] = 0;
        snprintf(name, sizeof name, "many%u", i);
        put_megatron(&c, name, NULL, 0);
        paths[i] = strdup(path_of(name));
        drop_corpus(&c);
    }
    struct mr_tokens *t;
    struct mr_tokens_info info;
    const struct mr_tokens_params p = {.paths = (const char *const *)paths, .n_paths = N, .cut = MR_TOKENS_DOCUMENTS};
    assert_int_equal(mr_tokens_open(&p, &t, NULL), 0);
    mr_tokens_get_info(t, &info);
    assert_int_equal(info.samples, 4 * N);
    assert_int_equal(info.files, N);
    for (uint64_t id = 0; id < info.samples; id++) {
        struct mr_token_place place;
        int64_t got[64];
        uint64_t n;
        assert_int_equal(mr_tokens_place(t, id, &place, NULL), 0);
        assert_int_equal(place.file, id / 4);
        assert_int_equal(mr_tokens_lengths(t, &id, 1, &n, NULL), 0);
        assert_int_equal(mr_tokens_read(t, &id, 1, &(struct mr_token_rows){.tokens = got}, NULL), 0);
    }
    mr_tokens_free(t);
    for (unsigned i = 0; i < N; i++)
        free(paths[i]);
}

static void *read_much(void *user)
{
    struct mr_tokens *t = user;
    struct mr_tokens_info info;
    int64_t got[4 * 128];
    mr_tokens_get_info(t, &info);
    for (unsigned i = 0; i < 300; i++) {
        uint64_t ids[4];
        for (unsigned k = 0; k < 4; k++)
            ids[k] = draw(i * 4 + k, info.samples);
        if (mr_tokens_read(t, ids, 4, &(struct mr_token_rows){.tokens = got}, NULL) < 0)
            return user;
    }
    return NULL;
}

static void threads_read_one_corpus(void **state)
{
    (void)state;
    struct corpus c = make_corpus(300, 9, 300);
    put_megatron(&c, "shared", NULL, 0);
    struct mr_tokens *t =
        open_with((struct mr_tokens_params){.cut = MR_TOKENS_PACKED, .length = 128, .window = 50}, path_of("shared"));
    pthread_t thread[4];
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, read_much, t), 0);
    for (unsigned i = 0; i < 4; i++) {
        void *failed;
        pthread_join(thread[i], &failed);
        assert_null(failed);
    }
    mr_tokens_free(t);
    drop_corpus(&c);
}

/* ---- bad input ---- */

static void refused(struct mr_tokens_params p, const char *name, int code, const char *text)
{
    struct mr_tokens *t = NULL;
    struct mr_error err = {0};
    const char *path = path_of(name);
    p.paths = &path;
    p.n_paths = 1;
    p.length = p.length ? p.length : 8;
    int rc = mr_tokens_open(&p, &t, &err);
    if (rc == 0) {
        struct mr_tokens_info info;
        mr_tokens_get_info(t, &info);
        for (uint64_t id = 0; rc >= 0 && id < info.samples; id++) {
            uint64_t n = 0;
            int64_t *got = NULL;
            rc = mr_tokens_lengths(t, &id, 1, &n, &err);
            got = malloc(8 * n + 8 * p.length);
            if (rc >= 0)
                rc = mr_tokens_read(t, &id, 1, &(struct mr_token_rows){.tokens = got}, &err);
            free(got);
        }
        mr_tokens_free(t);
    }
    if (rc != code || !strstr(err.message, text))
        fail_msg("want %d '%s', have %d '%s'", code, text, rc, err.message);
}

static void bad_indexes_are_named(void **state)
{
    (void)state;
    struct corpus c = make_corpus(20, 1, 50);
    const struct mr_tokens_params documents = {.cut = MR_TOKENS_DOCUMENTS};
    uint8_t head[34];
    put_megatron(&c, "bad", NULL, 0);
    refused((struct mr_tokens_params){.cut = MR_TOKENS_DOCUMENTS, .has_eos = true}, "bad", MR_E_USAGE,
            "has documents of its own");
    FILE *f = fopen(path_of("bad.idx"), "rb");
    assert_int_equal(fread(head, 1, sizeof head, f), sizeof head);
    fseek(f, 0, SEEK_END);
    long bytes = ftell(f);
    fclose(f);
    assert_int_equal(truncate(path_of("bad.bin"), (off_t)(c.tokens * 2 - 20)), 0);
    refused(documents, "bad", MR_E_FORMAT, "bad.idx' points behind the end of");
    refused((struct mr_tokens_params){.cut = MR_TOKENS_FIXED}, "bad", MR_E_FORMAT, "bad.bin': document 19 wants");
    put_megatron(&c, "bad", NULL, 0);
    assert_int_equal(truncate(path_of("bad.idx"), bytes - 1), 0);
    refused(documents, "bad", MR_E_FORMAT, "bad.idx' is cut off");
    assert_int_equal(truncate(path_of("bad.idx"), 20), 0);
    refused(documents, "bad", MR_E_FORMAT, "its header is cut off");
    const struct {
        size_t at;
        uint8_t byte;
        int code;
        const char *says;
    } row[] = {{0, 'X', MR_E_FORMAT, "no index of Megatron"},
               {9, 2, MR_E_FORMAT, "unknown version of the index (want 1, have 2)"},
               {17, 6, MR_E_UNSUPPORTED, "numbers of type 6, floats"},
               {17, 7, MR_E_UNSUPPORTED, "numbers of type 7, floats"},
               {17, 9, MR_E_FORMAT, "unknown type 9"},
               {17, 5, MR_E_FORMAT, "points behind the end"},
               {25, 1, MR_E_FORMAT, "impossible number of sequences"},
               {26, 22, MR_E_FORMAT, "is cut off"}};
    for (size_t i = 0; i < MR_ARRAY_LEN(row); i++) {
        uint8_t x[34];
        memcpy(x, head, sizeof x);
        x[row[i].at] = row[i].byte;
        put_megatron(&c, "bad", x, sizeof x);
        refused(documents, "bad", row[i].code, row[i].says);
    }
    /* A pointer in the middle: opening looks at the last one only, reading at each. */
    put_megatron(&c, "bad", NULL, 0);
    int fd = open(path_of("bad.idx"), O_RDWR);
    uint64_t n = mr_load_le64(head + 18);
    uint8_t far[8];
    mr_store_le64(far, 1u << 30);
    assert_int_equal(pwrite(fd, far, 8, (off_t)(34 + 4 * n + 8 * 3)), 8);
    close(fd);
    refused(documents, "bad", MR_E_FORMAT, "points behind the end");
    unlink(path_of("bad.bin"));
    refused(documents, "bad.idx", -ENOENT, "bad.bin");
    drop_corpus(&c);
}

/* Documents that were longer ones when they were packed: no row overflows, and nothing wrong is delivered. */
static void a_corpus_that_changes_after_it_was_opened_is_named(void **state)
{
    (void)state;
    struct corpus c = make_corpus(40, 2, 30), longer = make_corpus(40, 2, 31);
    put_megatron(&c, "changing", NULL, 0);
    struct mr_tokens *t =
        open_with((struct mr_tokens_params){.cut = MR_TOKENS_PACKED, .length = 64, .window = 40}, path_of("changing"));
    struct mr_tokens_info info;
    mr_tokens_get_info(t, &info);
    for (uint64_t d = 0; d < 40; d++) /* the same bytes, other borders */
        longer.length[d] = d < 20 ? 0 : (c.first[40] - 40) / 20;
    put_megatron(&longer, "changing", NULL, 0);
    put_file("changing.bin", c.all, c.tokens * 2);
    unsigned changed = 0;
    for (uint64_t id = 0; id < info.samples; id++) {
        int64_t *got = malloc(64 * sizeof(*got));
        struct mr_error err = {0};
        int rc = mr_tokens_read(t, &id, 1, &(struct mr_token_rows){.tokens = got}, &err);
        if (rc < 0) {
            assert_int_equal(rc, MR_E_CHANGED);
            assert_non_null(strstr(err.message, "changing' was changed"));
            changed++;
        }
        free(got);
    }
    assert_true(changed > 0);
    mr_tokens_free(t);
    drop_corpus(&c);
    drop_corpus(&longer);
}

static void bad_lines_are_named(void **state)
{
    (void)state;
    const struct {
        const char *text, *says;
    } row[] = {{"[1,2]\n{\"x\": 1}\n", "document 1 has no array of tokens"},
               {"[1,2.5]\n", "document 0 has something else than whole numbers"},
               {"[1,\"2\"]\n", "document 0 has something else than whole numbers"},
               {"[1,[2]]\n", "document 0 has something else than whole numbers"},
               {"[1,2]\n7\n", "document 1 is neither an object nor an array"},
               {"{\"tokens\": 5}\n", "document 0 has tokens that are no array"},
               {"{\"tokens\": [1], \"tokens\": [2]}", "document 0 has its tokens twice"},
               {"[1,2", ""},
               {"", "has no tokens"}};
    for (size_t i = 0; i < MR_ARRAY_LEN(row); i++) {
        put_file("bad.jsonl", row[i].text, strlen(row[i].text));
        refused((struct mr_tokens_params){.cut = MR_TOKENS_DOCUMENTS}, "bad.jsonl",
                row[i].text[0] ? MR_E_FORMAT : MR_E_USAGE, row[i].says);
    }
    put_file("good.jsonl", "{\"a\": [1], \"b\": [2, 3]}\n", 23);
    struct mr_tokens *t =
        open_with((struct mr_tokens_params){.cut = MR_TOKENS_DOCUMENTS, .column = "b"}, path_of("good.jsonl"));
    int64_t got[2];
    assert_int_equal(mr_tokens_read(t, &(uint64_t){0}, 1, &(struct mr_token_rows){.tokens = got}, NULL), 0);
    assert_true(got[0] == 2 && got[1] == 3);
    mr_tokens_free(t);
    put_file("t.parquet", "PAR1", 4);
    refused((struct mr_tokens_params){.cut = MR_TOKENS_DOCUMENTS}, "t.parquet", MR_E_FORMAT, "no Parquet file");
    put_file("odd.bin", "abc", 3);
    refused((struct mr_tokens_params){.cut = MR_TOKENS_FIXED}, "odd.bin", MR_E_FORMAT, "no whole number of u2");
    refused((struct mr_tokens_params){.cut = MR_TOKENS_FIXED}, "nowhere", -ENOENT, "nowhere");
    refused((struct mr_tokens_params){.format = "xyz"}, "odd.bin", MR_E_USAGE, "unknown format of tokens 'xyz'");
}

/* ---- MDS, as small as it is ---- */

static const char mds_index[] =
    "{\"version\": 2, \"shards\": [{\"column_encodings\": [\"%s\", \"%s\"], \"column_names\": [\"id\", \"tokens\"],"
    "\"column_sizes\": [%s, null], \"compression\": %s, \"format\": \"mds\", \"hashes\": [], \"raw_data\": "
    "{\"basename\": "
    "\"%s\", \"bytes\": %u, \"hashes\": {}}, \"samples\": %u, \"size_limit\": 1, \"version\": 2, \"zip_data\": null}]}";

static void put_index(const char *id, const char *tokens, const char *id_size, const char *compression,
                      const char *name, unsigned bytes, unsigned samples)
{
    char text[1024];
    int n = snprintf(text, sizeof text, mds_index, id, tokens, id_size, compression, name, bytes, samples);
    put_file("mds/index.json", text, (size_t)n);
}

static void bad_mds_is_named(void **state)
{
    (void)state;
    const struct mr_tokens_params documents = {.cut = MR_TOKENS_DOCUMENTS};
    /* Two samples: id "x" and tokens [5, 6]; id "yz" and tokens [7]. ndarray with type u2 and one dimension in front. */
    uint8_t shard[64] = {2, 0, 0, 0, 16, 0, 0, 0, 32, 0, 0, 0, 46, 0, 0, 0};
    memcpy(shard + 16, "\1\0\0\0\7\0\0\0x\x10\x04\2\5\0\6\0", 16);
    memcpy(shard + 32, "\2\0\0\0\5\0\0\0yz\x10\x04\1\7\0", 15);
    shard[12] = 47;
    mkdir(path_of("mds"), 0700);
    put_file("mds/s.mds", shard, 47);
    put_index("str", "ndarray", "null", "null", "s.mds", 47, 2);
    struct mr_tokens *t = open_with(documents, path_of("mds"));
    int64_t got[3];
    assert_int_equal(mr_tokens_read(t, (const uint64_t[]){0, 1}, 2, &(struct mr_token_rows){.tokens = got}, NULL), 0);
    assert_true(got[0] == 5 && got[1] == 6 && got[2] == 7);
    mr_tokens_free(t);
    put_index("str", "pkl", "null", "null", "s.mds", 47, 2);
    refused(documents, "mds", MR_E_UNSUPPORTED, "column 'tokens' is pickled");
    put_index("str", "ndarray:float32", "null", "null", "s.mds", 47, 2);
    refused(documents, "mds", MR_E_UNSUPPORTED, "column 'tokens' has float32");
    put_index("str", "jpeg", "null", "null", "s.mds", 47, 2);
    refused(documents, "mds", MR_E_UNSUPPORTED, "encoding 'jpeg'");
    put_index("str", "ndarray", "null", "\"snappy\"", "s.mds", 47, 2);
    refused(documents, "mds", MR_E_UNSUPPORTED, "compressed with 'snappy'");
    put_index("str", "ndarray", "null", "null", "../s.mds", 47, 2);
    refused(documents, "mds", MR_E_FORMAT, "outside of the folder");
    put_index("str", "ndarray", "null", "null", "s.mds", 48, 2);
    refused(documents, "mds", MR_E_FORMAT, "not as large as index.json says (want 48, have 47)");
    put_index("str", "ndarray", "null", "null", "s.mds", 47, 3);
    refused(documents, "mds", MR_E_FORMAT, "not as many samples");
    put_index("str", "bytes", "null", "null", "s.mds", 47, 2);
    refused(documents, "mds", MR_E_USAGE, "pass the type");
    put_index("str", "ndarray", "null", "null", "s.mds", 47, 2);
    refused((struct mr_tokens_params){.cut = MR_TOKENS_DOCUMENTS, .column = "text"}, "mds", MR_E_USAGE,
            "no column 'text'");
    for (unsigned at = 4; at < 47; at++) { /* nothing crashes, whatever a byte is */
        shard[at] ^= 0x55;
        put_file("mds/s.mds", shard, 47);
        const char *path = path_of("mds");
        struct mr_tokens_params p = documents;
        p.paths = &path;
        p.n_paths = 1;
        assert_int_equal(mr_tokens_open(&p, &t, NULL), 0);
        uint64_t n;
        for (uint64_t id = 0; id < 2; id++)
            if (mr_tokens_lengths(t, &id, 1, &n, NULL) >= 0 && n < 3)
                mr_tokens_read(t, &id, 1, &(struct mr_token_rows){.tokens = got}, NULL);
        mr_tokens_free(t);
        shard[at] ^= 0x55;
    }
}

static int set_up(void **state)
{
    (void)state;
    return mr_temp_folder_make("", "tokens", folder, sizeof folder, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    mr_temp_folder_remove(folder, NULL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_of_every_format_has_the_tokens_of_the_documents),
        cmocka_unit_test(streams_without_documents_are_cut),
        cmocka_unit_test(documents_end_behind_a_token),
        cmocka_unit_test(hundreds_of_prefixes_are_one_corpus),
        cmocka_unit_test(threads_read_one_corpus),
        cmocka_unit_test(bad_indexes_are_named),
        cmocka_unit_test(a_corpus_that_changes_after_it_was_opened_is_named),
        cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(bad_mds_is_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
