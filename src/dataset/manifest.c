/* Reading the manifest: see manifest.h and doc/reference/manifest.md. The file is untrusted input. Invariants after a
 * successful parse:
 *   1. every section's data lies inside the file and has the recorded checksum;
 *   2. every column that lookups need exists, has the right number of values, and PACKED data has count * width bytes;
 *   3. file_first starts at 0, ascends, ends at N (or k * (F - 1) < N <= k * F);
 *   4. every file's layout number is below L, and the layout index ascends inside the layout data.
 * Names and the position of a sample inside its file are checked at the lookup, so that opening stays fast. */
#include "dataset/manifest.h"
#include "base/common.h"
#include "base/rng.h"
#include "dataset/manifest_bytes.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MANIFEST_READ_MAX (64 * MR_GIB)

struct mr_manifest {
    const uint8_t *data;
    size_t len;
    void *owned; /* malloc'ed copy, when read through a store */
    bool mapped;
    char *name, *spec;
    struct mr_manifest_info info;
    struct mr_column col[MRM_SECTION_COUNT];
    uint64_t layouts;
    struct mr_name_template tmpl;
    bool has_template;
    char **classes;
    uint64_t n_classes;
    struct mr_schema schema;
};

static const char *const section_names[MRM_SECTION_COUNT] = {
    [MRM_SPEC] = "spec",
    [MRM_SAMPLE_OFFSET] = "sample offset",
    [MRM_SAMPLE_LENGTH] = "sample length",
    [MRM_SAMPLE_AUX] = "sample aux",
    [MRM_SAMPLE_LABEL] = "sample label",
    [MRM_FILE_FIRST] = "file first",
    [MRM_FILE_BYTES] = "file bytes",
    [MRM_FILE_LAYOUT] = "file layout",
    [MRM_FILE_MTIME] = "file mtime",
    [MRM_LAYOUT_INDEX] = "layout index",
    [MRM_LAYOUT_DATA] = "layout data",
    [MRM_NAME_TEMPLATE] = "name template",
    [MRM_NAME_INDEX] = "name index",
    [MRM_NAME_DATA] = "name data",
    [MRM_CLASS_NAMES] = "class names",
    [MRM_FIELDS] = "fields",
    [MRM_FIELD_DATA] = "field data",
};

const char *mr_manifest_section_name(unsigned section)
{
    return section < MRM_SECTION_COUNT && section_names[section] ? section_names[section] : "unknown";
}

static int bad(const struct mr_manifest *m, struct mr_error *err, int code, uint64_t offset, const char *what,
               uint64_t want, uint64_t have)
{
    mr_error_set(err, code, "manifest '%s' is damaged: %s at offset %llu (want %llu, have %llu)", m->name, what,
                 (unsigned long long)offset, (unsigned long long)want, (unsigned long long)have);
    return mr_error_hint(err, "write it again with 'millrace gen' (generated sets) or 'millrace scan'"), code;
}

static int check_header(struct mr_manifest *m, struct mr_error *err)
{
    const uint8_t *h = m->data;
    if (m->len < MRM_HEADER_BYTES)
        return bad(m, err, MR_E_FORMAT, 0, "file is shorter than a header", MRM_HEADER_BYTES, m->len);
    if (memcmp(h, MRM_MAGIC, 8) != 0) {
        mr_error_set(err, MR_E_FORMAT, "'%s' is not a manifest: no magic number at offset 0", m->name);
        return mr_error_hint(err, "make one with 'millrace scan'"), MR_E_FORMAT;
    }
    uint32_t version = mr_load_le32(h + MRM_H_VERSION);
    if (version != MR_MANIFEST_VERSION) {
        mr_error_set(err, MR_E_FORMAT, "manifest '%s' has version %u, this program reads version %u", m->name, version,
                     MR_MANIFEST_VERSION);
        return mr_error_hint(err, "use the Millrace that wrote it, or write it again"), MR_E_FORMAT;
    }
    if (mr_load_le32(h + MRM_H_ENDIAN) != MRM_ENDIAN)
        return bad(m, err, MR_E_FORMAT, MRM_H_ENDIAN, "byte order mark", MRM_ENDIAN, mr_load_le32(h + MRM_H_ENDIAN));
    uint64_t length = mr_load_le64(h + MRM_H_LENGTH);
    if (length != m->len)
        return bad(m, err, MR_E_FORMAT, MRM_H_LENGTH, "length of the file", length, m->len);
    uint32_t sections = mr_load_le32(h + MRM_H_SECTIONS);
    if (sections == 0 || sections > MRM_MAX_SECTIONS)
        return bad(m, err, MR_E_FORMAT, MRM_H_SECTIONS, "number of sections", MRM_MAX_SECTIONS, sections);
    size_t table = (size_t)sections * MRM_ENTRY_BYTES;
    if (m->len < MRM_HEADER_BYTES + table)
        return bad(m, err, MR_E_FORMAT, MRM_HEADER_BYTES, "section table is cut", MRM_HEADER_BYTES + table, m->len);
    uint8_t covered[MRM_H_CHECK + MRM_MAX_SECTIONS * MRM_ENTRY_BYTES];
    memcpy(covered, h, MRM_H_CHECK);
    memcpy(covered + MRM_H_CHECK, h + MRM_HEADER_BYTES, table);
    uint64_t want = mr_load_le64(h + MRM_H_CHECK), have = XXH3_64bits(covered, MRM_H_CHECK + table);
    if (want != have)
        return bad(m, err, MR_E_CORRUPT, MRM_H_CHECK, "checksum of the header", want, have);
    return 0;
}

static int load_info(struct mr_manifest *m, struct mr_error *err)
{
    const uint8_t *h = m->data;
    struct mr_manifest_info *i = &m->info;
    *i = (struct mr_manifest_info){
        .samples = mr_load_le64(h + MRM_H_SAMPLES),
        .files = mr_load_le64(h + MRM_H_FILES),
        .samples_per_file = mr_load_le64(h + MRM_H_PER_FILE),
        .file_bytes = mr_load_le64(h + MRM_H_FILE_BYTES),
        .sample_bytes = mr_load_le64(h + MRM_H_SAMPLE_BYTES),
        .sample_min_bytes = mr_load_le64(h + MRM_H_MIN),
        .sample_max_bytes = mr_load_le64(h + MRM_H_MAX),
        .seed = mr_load_le64(h + MRM_H_SEED),
        .content_version = mr_load_le32(h + MRM_H_CONTENT),
        .rng_version = mr_load_le32(h + MRM_H_RNG),
        .compress_percent = mr_load_le32(h + MRM_H_COMPRESS),
        .flags = mr_load_le32(h + MRM_H_FLAGS),
        .dims.n = mr_load_le32(h + MRM_H_NDIM),
    };
    i->all_samples = i->samples;
    i->all_files = i->files;
    uint32_t dtype = mr_load_le32(h + MRM_H_DTYPE);
    if (dtype >= MR_DTYPE_COUNT)
        return bad(m, err, MR_E_FORMAT, MRM_H_DTYPE, "dtype", MR_DTYPE_COUNT - 1, dtype);
    i->dtype = (enum mr_dtype)dtype;
    if (i->dims.n > MR_DIMS_MAX)
        return bad(m, err, MR_E_FORMAT, MRM_H_NDIM, "number of dimensions", MR_DIMS_MAX, i->dims.n);
    for (unsigned d = 0; d < MR_DIMS_MAX; d++)
        i->dims.dim[d] = mr_load_le64(h + MRM_H_DIMS + 8 * d);
    if (i->compress_percent > 100)
        return bad(m, err, MR_E_FORMAT, MRM_H_COMPRESS, "compressibility", 100, i->compress_percent);
    _Static_assert(sizeof i->format == 2 * MRM_FORMAT_BYTES, "both parts of the name");
    memcpy(i->format, h + MRM_H_FORMAT, MRM_FORMAT_BYTES);
    memcpy(i->format + MRM_FORMAT_BYTES, h + MRM_H_FORMAT_MORE, MRM_FORMAT_BYTES);
    if (i->format[sizeof i->format - 1] != 0)
        return bad(m, err, MR_E_FORMAT, MRM_H_FORMAT_MORE + MRM_FORMAT_BYTES - 1, "end of the format name", 0,
                   h[MRM_H_FORMAT_MORE + MRM_FORMAT_BYTES - 1]);
    return 0;
}

/* Invariant 1 and the part of 2 that concerns one section. */
static int load_section(struct mr_manifest *m, uint64_t at, uint32_t *last_id, struct mr_error *err)
{
    const uint8_t *e = m->data + at;
    uint32_t id = mr_load_le32(e + MRM_E_ID);
    if (id <= *last_id)
        return bad(m, err, MR_E_FORMAT, at, "section ids do not ascend: next id at least", *last_id + 1, id);
    *last_id = id;
    struct mr_column c = {
        .encoding = e[MRM_E_ENC],
        .width = e[MRM_E_WIDTH],
        .count = mr_load_le64(e + MRM_E_COUNT),
        .base = mr_load_le64(e + MRM_E_BASE),
        .step = mr_load_le64(e + MRM_E_STEP),
        .data_bytes = mr_load_le64(e + MRM_E_BYTES),
    };
    uint64_t offset = mr_load_le64(e + MRM_E_OFFSET), bytes = c.data_bytes;
    if (c.encoding < MR_COLUMN_CONST || c.encoding > MR_COLUMN_RANDOM ||
        (c.encoding == MR_COLUMN_RANDOM && id != MRM_SAMPLE_LABEL))
        return bad(m, err, MR_E_FORMAT, at + MRM_E_ENC, "encoding of a section", MR_COLUMN_RANDOM, c.encoding);
    bool has_data = c.encoding == MR_COLUMN_PACKED || c.encoding == MR_COLUMN_BLOB;
    if (!has_data && bytes)
        return bad(m, err, MR_E_FORMAT, at + MRM_E_BYTES, "data of a section that needs none", 0, bytes);
    if (offset % MRM_ALIGN || offset > m->len || bytes > m->len - offset)
        return bad(m, err, MR_E_FORMAT, at + MRM_E_OFFSET, "a section ends beyond the file", m->len, offset + bytes);
    if (c.encoding == MR_COLUMN_PACKED &&
        (c.width < 1 || c.width > 8 || c.count > m->len || bytes != c.count * c.width))
        return bad(m, err, MR_E_FORMAT, at + MRM_E_BYTES, "bytes of a packed column", c.count * c.width, bytes);
    if (c.encoding == MR_COLUMN_BLOB && c.count != bytes)
        return bad(m, err, MR_E_FORMAT, at + MRM_E_BYTES, "bytes of a blob", c.count, bytes);
    c.data = m->data + offset;
    uint64_t want = mr_load_le64(e + MRM_E_CHECK), have = bytes ? XXH3_64bits(c.data, bytes) : 0;
    if (want != have) {
        bad(m, err, MR_E_CORRUPT, offset, "checksum of a section", want, have);
        return mr_error_context(err, "in section '%s'", mr_manifest_section_name(id)), MR_E_CORRUPT;
    }
    if (id < MRM_SECTION_COUNT)
        m->col[id] = c;
    return 0;
}

static int need(struct mr_manifest *m, unsigned id, bool blob, uint64_t count, struct mr_error *err)
{
    const struct mr_column *c = &m->col[id];
    if (c->encoding == MR_COLUMN_NONE || (c->encoding == MR_COLUMN_BLOB) != blob)
        return mr_error_set(err, MR_E_FORMAT, "manifest '%s' is damaged: section '%s' is missing or of the wrong kind",
                            m->name, section_names[id]);
    if (!blob && c->count != count)
        return mr_error_set(
            err, MR_E_FORMAT,
            "manifest '%s' is damaged: section '%s' has the wrong number of values (want %llu, have %llu)", m->name,
            section_names[id], (unsigned long long)count, (unsigned long long)c->count);
    return 0;
}

/* Values must ascend from 0 to `end`; only a packed column needs the walk. */
static int check_ascending(struct mr_manifest *m, unsigned id, uint64_t end, struct mr_error *err)
{
    const struct mr_column *c = &m->col[id];
    uint64_t n = c->count, previous = 0;
    bool ok = n > 0 && mr_column_get(c, 0, 0) == 0 && mr_column_get(c, n - 1, n - 1) == end;
    if (ok && c->encoding == MR_COLUMN_AFFINE) {
        uint64_t last;
        ok = !__builtin_mul_overflow(c->step, n - 1, &last) && last == end;
    }
    for (uint64_t i = 0; ok && c->encoding == MR_COLUMN_PACKED && i < n; i++) {
        uint64_t v = mr_column_get(c, i, i);
        ok = v >= previous && v <= end;
        previous = v;
    }
    if (!ok)
        return mr_error_set(err, MR_E_FORMAT, "manifest '%s' is damaged: section '%s' does not ascend from 0 to %llu",
                            m->name, section_names[id], (unsigned long long)end);
    return 0;
}

static int check_layout_numbers(struct mr_manifest *m, const struct mr_column *layout, struct mr_error *err)
{
    uint64_t files = m->info.files;
    if (layout->encoding == MR_COLUMN_PACKED) {
        for (uint64_t f = 0; f < files; f++)
            if (mr_column_get(layout, f, f) >= m->layouts)
                return bad(m, err, MR_E_FORMAT, 0, "number of a layout", m->layouts, mr_column_get(layout, f, f));
        return 0;
    }
    if (files == 0)
        return 0;
    __int128 last = layout->base;
    if (layout->encoding == MR_COLUMN_AFFINE)
        last += (__int128)(int64_t)layout->step * (files - 1);
    if (layout->base >= m->layouts || last < 0 || last >= m->layouts)
        return bad(m, err, MR_E_FORMAT, 0, "number of a layout", m->layouts, (uint64_t)last);
    return 0;
}

/* Invariants 2, 3, 4. */
static int check_columns(struct mr_manifest *m, struct mr_error *err)
{
    const struct mr_manifest_info *i = &m->info;
    int r;
    if ((r = need(m, MRM_SPEC, true, 0, err)) < 0 || (r = need(m, MRM_LAYOUT_DATA, true, 0, err)) < 0)
        return r;
    for (unsigned id = MRM_SAMPLE_OFFSET; id <= MRM_SAMPLE_LABEL; id++)
        if ((r = need(m, id, false, i->samples, err)) < 0)
            return r;
    if ((r = need(m, MRM_FILE_BYTES, false, i->files, err)) < 0 ||
        (r = need(m, MRM_FILE_LAYOUT, false, i->files, err)) < 0)
        return r;
    if (m->col[MRM_FILE_MTIME].encoding && (r = need(m, MRM_FILE_MTIME, false, i->files, err)) < 0)
        return r;
    if (i->files == 0 && i->samples)
        return bad(m, err, MR_E_FORMAT, MRM_H_FILES, "samples without files", 0, i->samples);
    uint64_t k = i->samples_per_file, most;
    if (k && i->files && (__builtin_mul_overflow(k, i->files, &most) || i->samples > most || i->samples <= most - k))
        return bad(m, err, MR_E_FORMAT, MRM_H_PER_FILE, "samples per file do not fit files and samples", i->samples, k);
    if (!k && ((r = need(m, MRM_FILE_FIRST, false, i->files + 1, err)) < 0 ||
               (r = check_ascending(m, MRM_FILE_FIRST, i->samples, err)) < 0))
        return r;
    struct mr_column *index = &m->col[MRM_LAYOUT_INDEX], *layout = &m->col[MRM_FILE_LAYOUT];
    if ((r = need(m, MRM_LAYOUT_INDEX, false, index->count, err)) < 0 ||
        (r = check_ascending(m, MRM_LAYOUT_INDEX, m->col[MRM_LAYOUT_DATA].count, err)) < 0)
        return r;
    m->layouts = index->count - 1;
    return check_layout_numbers(m, layout, err);
}

static int load_template(struct mr_manifest *m, struct mr_error *err)
{
    const struct mr_column *c = &m->col[MRM_NAME_TEMPLATE];
    struct mr_name_template *t = &m->tmpl;
    if (c->encoding != MR_COLUMN_BLOB || c->count < 24)
        return mr_error_set(err, MR_E_FORMAT, "manifest '%s' is damaged: no file names", m->name);
    t->subfolders = mr_load_le64(c->data);
    t->digits = mr_load_le32(c->data + 8);
    t->folder_digits = mr_load_le32(c->data + 12);
    uint32_t prefix = mr_load_le32(c->data + 16), suffix = mr_load_le32(c->data + 20);
    if (t->digits > MR_NAME_DIGITS_MAX || t->folder_digits > MR_NAME_DIGITS_MAX || prefix >= sizeof t->prefix ||
        suffix >= sizeof t->suffix || 24 + (uint64_t)prefix + suffix != c->count)
        return mr_error_set(err, MR_E_FORMAT, "manifest '%s' is damaged: bad name template", m->name);
    memcpy(t->prefix, c->data + 24, prefix);
    memcpy(t->suffix, c->data + 24 + prefix, suffix);
    m->has_template = true;
    char name[MR_NAME_MAX];
    int n = mr_name_from_template(t, 0, name);
    if (strlen(t->prefix) != prefix || strlen(t->suffix) != suffix || n < 0 || !mr_name_is_safe(name, (size_t)n))
        return mr_error_set(err, MR_E_FORMAT, "manifest '%s' is damaged: its name template leaves the folder", m->name);
    return 0;
}

static int load_names(struct mr_manifest *m, struct mr_error *err)
{
    if (m->col[MRM_NAME_DATA].encoding == MR_COLUMN_NONE)
        return load_template(m, err);
    uint64_t blocks = m->info.files / MRM_NAMES_PER_BLOCK + (m->info.files % MRM_NAMES_PER_BLOCK != 0);
    int r;
    if ((r = need(m, MRM_NAME_DATA, true, 0, err)) < 0 || (r = need(m, MRM_NAME_INDEX, false, blocks + 1, err)) < 0)
        return r;
    return check_ascending(m, MRM_NAME_INDEX, m->col[MRM_NAME_DATA].count, err);
}

static int load_classes(struct mr_manifest *m, struct mr_error *err)
{
    const struct mr_column *c = &m->col[MRM_CLASS_NAMES];
    if (c->encoding == MR_COLUMN_NONE || c->count == 0)
        return 0;
    if (c->encoding != MR_COLUMN_BLOB || c->data[c->count - 1] != 0)
        return mr_error_set(err, MR_E_FORMAT, "manifest '%s' is damaged: class names do not end", m->name);
    uint64_t n = 0;
    for (uint64_t i = 0; i < c->count; i++)
        n += c->data[i] == 0;
    m->classes = calloc(MR_MAX(n, 1), sizeof(*m->classes));
    if (!m->classes)
        return mr_error_set(err, -ENOMEM, "cannot keep %llu class names", (unsigned long long)n);
    for (uint64_t i = 0; i < c->count; i += strlen((const char *)c->data + i) + 1)
        m->classes[m->n_classes++] = (char *)(uintptr_t)(c->data + i);
    return 0;
}

static int check_zero(struct mr_manifest *m, uint64_t from, uint64_t to, struct mr_error *err)
{
    for (uint64_t i = from; i < to; i++)
        if (m->data[i])
            return bad(m, err, MR_E_CORRUPT, i, "padding between sections", 0, m->data[i]);
    return 0;
}

/* No checksum covers what lies between the sections, so it must be zero; and their data lie in the order of their ids.
 */
static int check_padding(struct mr_manifest *m, uint32_t sections, struct mr_error *err)
{
    uint64_t at = MRM_HEADER_BYTES + (uint64_t)sections * MRM_ENTRY_BYTES;
    for (uint32_t s = 0; s < sections; s++) {
        uint64_t entry = MRM_HEADER_BYTES + (uint64_t)s * MRM_ENTRY_BYTES;
        uint64_t offset = mr_load_le64(m->data + entry + MRM_E_OFFSET),
                 bytes = mr_load_le64(m->data + entry + MRM_E_BYTES);
        if (!bytes)
            continue;
        if (offset < at)
            return bad(m, err, MR_E_FORMAT, entry + MRM_E_OFFSET, "a section overlaps the one before", at, offset);
        int r = check_zero(m, at, offset, err);
        if (r < 0)
            return r;
        at = offset + bytes;
    }
    return check_zero(m, at, m->len, err);
}

/* Are there labels? A column of nothing but "no label" is constant. */
static bool has_labels(const struct mr_manifest *m)
{
    const struct mr_column *c = &m->col[MRM_SAMPLE_LABEL];
    return c->encoding != MR_COLUMN_CONST || (uint32_t)c->base != MR_LABEL_STORED_NONE;
}

static int load_schema(struct mr_manifest *m, struct mr_error *err)
{
    const struct mr_manifest_info *i = &m->info;
    const struct mr_schema_source from = {.name = m->name,
                                          .samples = i->samples,
                                          .files = i->files,
                                          .layouts = m->layouts,
                                          .fields = &m->col[MRM_FIELDS],
                                          .data = &m->col[MRM_FIELD_DATA]};
    if (from.fields->encoding || from.data->encoding)
        return mr_schema_parse(&from, &m->schema, err);
    return mr_schema_make_up(i->dtype, &i->dims, i->sample_bytes, i->sample_min_bytes, i->sample_max_bytes,
                             has_labels(m), &m->schema, err);
}

static int parse(struct mr_manifest *m, struct mr_error *err)
{
    int r;
    if ((r = check_header(m, err)) < 0 || (r = load_info(m, err)) < 0)
        return r;
    uint32_t sections = mr_load_le32(m->data + MRM_H_SECTIONS), last_id = 0;
    for (uint32_t s = 0; s < sections; s++)
        if ((r = load_section(m, MRM_HEADER_BYTES + (uint64_t)s * MRM_ENTRY_BYTES, &last_id, err)) < 0)
            return r;
    if ((r = check_padding(m, sections, err)) < 0)
        return r;
    if ((r = check_columns(m, err)) < 0 || (r = load_names(m, err)) < 0 || (r = load_classes(m, err)) < 0)
        return r;
    m->spec = strndup((const char *)m->col[MRM_SPEC].data, m->col[MRM_SPEC].count);
    if (!m->spec)
        return mr_error_set(err, -ENOMEM, "cannot open manifest '%s'", m->name);
    if (m->col[MRM_SAMPLE_LABEL].encoding == MR_COLUMN_RANDOM)
        m->info.label_classes = m->col[MRM_SAMPLE_LABEL].step;
    return load_schema(m, err);
}

static struct mr_manifest *blank(const char *name)
{
    struct mr_manifest *m = calloc(1, sizeof(*m));
    if (m && !(m->name = strdup(name))) {
        free(m);
        return NULL;
    }
    return m;
}

int mr_manifest_parse(const void *data, size_t len, const char *name, struct mr_manifest **out, struct mr_error *err)
{
    struct mr_manifest *m = blank(name);
    if (!m)
        return mr_error_set(err, -ENOMEM, "cannot open manifest '%s'", name);
    m->data = data;
    m->len = len;
    int r = parse(m, err);
    if (r < 0)
        mr_manifest_close(m);
    else
        *out = m;
    return r;
}

/* The manifest is the one file Millrace maps by itself: local stores without shims address it by the same path, and a
 * manifest is only ever replaced by rename, so a mapping cannot lose pages. Returns 1 when mapped, 0 to read instead.
 */
static int map_file(struct mr_manifest *m, struct mr_store *s, const char *path)
{
    const char *backend = s->ops->name;
    if (s->ops->is_shim ||
        (strcmp(backend, "posix") != 0 && strcmp(backend, "uring") != 0 && strcmp(backend, "mmap") != 0))
        return 0;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe would wait for a writer */
    struct stat st;
    if (fd < 0)
        return 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p != MAP_FAILED) {
            m->data = p;
            m->len = (size_t)st.st_size;
            m->mapped = true;
        }
    }
    close(fd);
    return m->mapped;
}

int mr_manifest_open(struct mr_store *s, const char *path, struct mr_manifest **out, struct mr_error *err)
{
    struct mr_manifest *m = blank(path);
    if (!m)
        return mr_error_set(err, -ENOMEM, "cannot open manifest '%s'", path);
    int r = 0;
    if (!map_file(m, s, path)) {
        r = mr_store_read_file(s, path, MANIFEST_READ_MAX, &m->owned, &m->len, err);
        m->data = m->owned;
    }
    if (r >= 0)
        r = parse(m, err);
    if (r < 0)
        mr_manifest_close(m);
    else
        *out = m;
    return r < 0 ? r : 0;
}

void mr_manifest_close(struct mr_manifest *m)
{
    if (!m)
        return;
    if (m->mapped)
        munmap((void *)(uintptr_t)m->data, m->len);
    mr_schema_done(&m->schema);
    free(m->owned);
    free(m->classes);
    free(m->spec);
    free(m->name);
    free(m);
}

const struct mr_manifest_info *mr_manifest_get_info(const struct mr_manifest *m)
{
    return &m->info;
}

const char *mr_manifest_get_spec(const struct mr_manifest *m)
{
    return m->spec;
}

void mr_manifest_hash(const struct mr_manifest *m, uint64_t seed, uint8_t out[16])
{
    size_t table = (size_t)mr_load_le32(m->data + MRM_H_SECTIONS) * MRM_ENTRY_BYTES;
    XXH128_hash_t h = XXH3_128bits_withSeed(m->data, MRM_HEADER_BYTES + table, seed);
    mr_store_le64(out, h.low64);
    mr_store_le64(out + 8, h.high64);
}

uint64_t mr_manifest_bytes(const struct mr_manifest *m)
{
    return m->len;
}

uint64_t mr_manifest_layouts(const struct mr_manifest *m)
{
    return m->layouts;
}

const struct mr_schema *mr_manifest_schema(const struct mr_manifest *m)
{
    return &m->schema;
}

int mr_manifest_locate_field(const struct mr_manifest *m, unsigned field, uint64_t id,
                             const struct mr_manifest_pos *pos, struct mr_field_place *out, struct mr_error *err)
{
    const struct mr_schema_field *f = &m->schema.field[field];
    uint64_t layout;
    assert(field < m->schema.n && id < m->info.samples);
    out->ref = pos->ref;
    if (!f->own) {
        layout = mr_manifest_file_layout_id(m, pos->file);
    } else {
        out->ref.raw.offset = mr_column_get(&f->column[MR_FC_OFFSET], id, pos->index);
        out->ref.raw.length = mr_column_get(&f->column[MR_FC_LENGTH], id, pos->index);
        out->ref.aux = (uint32_t)mr_column_get(&f->column[MR_FC_AUX], id, pos->index) & 0xffffff;
        layout = mr_column_get(&f->column[MR_FC_LAYOUT], pos->file, pos->file);
    }
    if (f->field.storage == MR_FIELD_LABEL)
        out->ref.raw = (struct mr_extent){0, 0};
    uint64_t limit = (uint64_t)1 << 48;
    if (MR_UNLIKELY(out->ref.raw.offset >= limit || out->ref.raw.length >= limit || layout >= m->layouts))
        return mr_error_set(err, MR_E_FORMAT, "manifest '%s' is damaged: field '%s' of sample %llu", m->name,
                            f->field.name, (unsigned long long)id);
    out->layout_id = layout;
    return 0;
}

const struct mr_column *mr_manifest_section(const struct mr_manifest *m, unsigned section)
{
    return &m->col[section < MRM_SECTION_COUNT ? section : 0];
}

static uint64_t first_of(const struct mr_manifest *m, uint64_t file)
{
    uint64_t k = m->info.samples_per_file;
    if (k)
        return file >= m->info.files ? m->info.samples : file * k;
    return mr_column_get(&m->col[MRM_FILE_FIRST], file, file);
}

void mr_manifest_limit(struct mr_manifest *m, uint64_t files)
{
    if (files >= m->info.files)
        return;
    uint64_t samples = first_of(m, files), file_bytes = 0, sample_bytes = 0;
    for (uint64_t f = 0, id = 0; f < files; f++) {
        uint64_t first = id, end = first_of(m, f + 1);
        file_bytes += mr_manifest_file_bytes(m, f);
        for (; id < end; id++)
            sample_bytes += mr_column_get(&m->col[MRM_SAMPLE_LENGTH], id, id - first);
    }
    m->info.files = files;
    m->info.samples = samples;
    m->info.file_bytes = file_bytes;
    m->info.sample_bytes = sample_bytes;
}

static uint64_t file_of(const struct mr_manifest *m, uint64_t id)
{
    if (m->info.samples_per_file)
        return id / m->info.samples_per_file;
    uint64_t low = 0, high = m->info.files; /* first(low) <= id < first(high) */
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if (first_of(m, mid) <= id)
            low = mid;
        else
            high = mid;
    }
    return low;
}

int64_t mr_manifest_random_label(uint64_t seed, uint64_t sample, uint64_t classes)
{
    return (int64_t)mr_rng_below(mr_rng_at(seed, MR_RNG_LABEL, sample), classes);
}

static int64_t label_of(const struct mr_manifest *m, uint64_t id, uint64_t j)
{
    const struct mr_column *c = &m->col[MRM_SAMPLE_LABEL];
    if (c->encoding == MR_COLUMN_RANDOM)
        return mr_manifest_random_label(m->info.seed, id, c->step);
    uint32_t v = (uint32_t)mr_column_get(c, id, j);
    return v == MR_LABEL_STORED_NONE ? MR_LABEL_NONE : (int64_t)(int32_t)v;
}

int mr_manifest_locate(const struct mr_manifest *m, uint64_t id, struct mr_manifest_pos *out, struct mr_error *err)
{
    if (MR_UNLIKELY(id >= m->info.samples)) {
        mr_error_set(err, MR_E_USAGE, "there is no sample %llu in '%s'", (unsigned long long)id, m->name);
        if (m->info.samples == 0)
            mr_error_hint(err, "it has none: were its files empty when they were scanned?");
        else
            mr_error_hint(err, "samples are numbered 0 to %llu", (unsigned long long)m->info.samples - 1);
        return MR_E_USAGE;
    }
    assert(m->info.files > 0); /* invariant 3: samples lie in files */
    struct mr_manifest_pos p = {.file = file_of(m, id)};
    p.index = id - first_of(m, p.file);
    assert(p.file < m->info.files && id >= first_of(m, p.file) && id < first_of(m, p.file + 1)); /* invariant 3 */
    p.ref.raw.offset = mr_column_get(&m->col[MRM_SAMPLE_OFFSET], id, p.index);
    p.ref.raw.length = mr_column_get(&m->col[MRM_SAMPLE_LENGTH], id, p.index);
    p.ref.aux = (uint32_t)mr_column_get(&m->col[MRM_SAMPLE_AUX], id, p.index) & 0xffffff;
    p.ref.label = label_of(m, id, p.index);
    uint64_t limit = (uint64_t)1 << 48;
    if (MR_UNLIKELY(p.ref.raw.offset >= limit || p.ref.raw.length >= limit))
        return mr_error_set(err, MR_E_FORMAT, "manifest '%s' is damaged: sample %llu lies at %llu with %llu bytes",
                            m->name, (unsigned long long)id, (unsigned long long)p.ref.raw.offset,
                            (unsigned long long)p.ref.raw.length);
    *out = p;
    return 0;
}

void mr_manifest_file_samples(const struct mr_manifest *m, uint64_t file, uint64_t *first, uint64_t *n)
{
    uint64_t a = first_of(m, file), b = first_of(m, file + 1);
    *first = a;
    *n = b - a;
}

uint64_t mr_manifest_file_bytes(const struct mr_manifest *m, uint64_t file)
{
    return mr_column_get(&m->col[MRM_FILE_BYTES], file, file);
}

uint64_t mr_manifest_file_mtime_ns(const struct mr_manifest *m, uint64_t file)
{
    const struct mr_column *c = &m->col[MRM_FILE_MTIME];
    return c->encoding ? mr_column_get(c, file, file) : 0;
}

uint64_t mr_manifest_file_layout_id(const struct mr_manifest *m, uint64_t file)
{
    return mr_column_get(&m->col[MRM_FILE_LAYOUT], file, file);
}

void mr_manifest_layout(const struct mr_manifest *m, uint64_t id, struct mr_layout *out)
{
    assert(id < m->layouts); /* invariant 4 */
    const struct mr_column *index = &m->col[MRM_LAYOUT_INDEX];
    uint64_t a = mr_column_get(index, id, id), b = mr_column_get(index, id + 1, id + 1);
    out->data = (void *)(uintptr_t)(m->col[MRM_LAYOUT_DATA].data + a);
    out->len = b - a;
}

void mr_manifest_file_layout(const struct mr_manifest *m, uint64_t file, struct mr_layout *out)
{
    mr_manifest_layout(m, mr_manifest_file_layout_id(m, file), out);
}

const char *mr_manifest_label_name(const struct mr_manifest *m, int64_t label)
{
    return label >= 0 && (uint64_t)label < m->n_classes ? m->classes[label] : NULL;
}

static bool get_varint(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 32 && *p < end; shift += 7) {
        uint8_t b = *(*p)++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *out = v;
            return true;
        }
    }
    return false;
}

/* Decodes names of a block up to the wanted one; every length is checked before it is used. */
static int name_from_block(const struct mr_manifest *m, uint64_t file, char *out)
{
    const struct mr_column *index = &m->col[MRM_NAME_INDEX];
    uint64_t block = file / MRM_NAMES_PER_BLOCK;
    const uint8_t *p = m->col[MRM_NAME_DATA].data + mr_column_get(index, block, block);
    const uint8_t *end = m->col[MRM_NAME_DATA].data + mr_column_get(index, block + 1, block + 1);
    uint64_t len = 0;
    for (uint64_t i = 0; i <= file % MRM_NAMES_PER_BLOCK; i++) {
        uint64_t shared, rest;
        if (!get_varint(&p, end, &shared) || !get_varint(&p, end, &rest) || shared > len ||
            rest > (uint64_t)(end - p) || shared + rest >= MR_NAME_MAX)
            return MR_E_FORMAT;
        memcpy(out + shared, p, rest);
        p += rest;
        len = shared + rest;
    }
    out[len] = '\0';
    return mr_name_is_safe(out, len) ? (int)len : MR_E_FORMAT;
}

int mr_manifest_file_name(const struct mr_manifest *m, uint64_t file, char *out, struct mr_error *err)
{
    if (m->has_template)
        return mr_name_from_template(&m->tmpl, file, out);
    int n = name_from_block(m, file, out);
    if (n < 0)
        return mr_error_set(err, MR_E_FORMAT, "manifest '%s' is damaged: bad name of file %llu", m->name,
                            (unsigned long long)file);
    return n;
}

/* The number in a templated name sits before the suffix; writing the name again and comparing is the whole check. */
static uint64_t find_templated(const struct mr_manifest *m, const char *name)
{
    const char *base = strrchr(name, '/');
    base = base ? base + 1 : name;
    size_t prefix = strlen(m->tmpl.prefix);
    if (strncmp(base, m->tmpl.prefix, prefix) != 0 || base[prefix] < '0' || base[prefix] > '9')
        return UINT64_MAX;
    uint64_t file = strtoull(base + prefix, NULL, 10);
    char again[MR_NAME_MAX];
    if (file >= m->info.files)
        return UINT64_MAX;
    mr_name_from_template(&m->tmpl, file, again);
    return strcmp(again, name) == 0 ? file : UINT64_MAX;
}

uint64_t mr_manifest_find_file(const struct mr_manifest *m, const char *name)
{
    if (m->has_template)
        return find_templated(m, name);
    char have[MR_NAME_MAX];
    uint64_t low = 0, high = m->info.files;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (name_from_block(m, mid, have) < 0)
            return UINT64_MAX;
        int c = strcmp(name, have);
        if (c == 0)
            return mid;
        if (c < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return UINT64_MAX;
}
