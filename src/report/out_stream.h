/* A buffered output file, plain or gzip, with the escaping that the text formats need. Errors stick: check once at the
 * end. A regular file is written under another name beside it, and takes its place when it is whole: a full disk leaves
 * neither half a file nor a ruined older one. */
#ifndef MR_REPORT_OUT_STREAM_H
#define MR_REPORT_OUT_STREAM_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mr_out {
    int fd;
    void *gz; /* z_stream, or NULL */
    uint8_t *buffer, *packed;
    size_t used;
    int failed;    /* -errno */
    bool in_field; /* inside a quoted CSV field: every quote is written twice */
    const char *path;
    char *part, *whole; /* names while it is written and then; NULL: it is no regular file */
};

int mr_out_open(struct mr_out *o, const char *path, bool gzip, struct mr_error *err);
/* Takes the descriptor, also when it fails; `name` is for messages. */
int mr_out_open_fd(struct mr_out *o, int fd, const char *name, struct mr_error *err);
void mr_out_bytes(struct mr_out *o, const void *p, size_t n);
void mr_out_text(struct mr_out *o, const char *text);
void mr_out_number(struct mr_out *o, uint64_t v);
void mr_out_signed(struct mr_out *o, int64_t v);
void mr_out_format(struct mr_out *o, const char *fmt, ...) MR_PRINTF(2, 3);
/* How bytes that are not UTF-8 appear in a JSON string. */
enum mr_json_mode {
    MR_JSON_PRIVATE, /* the escape \uefXX, of the private use area: valid for strict parsers, and our importer turns it
                        back */
    MR_JSON_HEX,     /* \\xXX in the text: for people */
};
/* A JSON string with its quotes. */
void mr_out_json(struct mr_out *o, const char *p, size_t n, enum mr_json_mode mode);
/* A CSV field, quoted when it must be. Control characters and line ends become \xNN; what a spreadsheet would take for a
 * formula (= + - @ at the start) gets a ' before it. Other bytes stay as they are. */
void mr_out_csv(struct mr_out *o, const char *p, size_t n);
/* Around anything that is to be one quoted CSV field. */
void mr_out_field_begin(struct mr_out *o);
void mr_out_field_end(struct mr_out *o);
/* A caller that has failed itself sets `failed` before. */
int mr_out_close(struct mr_out *o, struct mr_error *err);
/* Length of the valid UTF-8 sequence at p, 0 if there is none. */
size_t mr_utf8_length(const uint8_t *p, size_t n);

#endif
