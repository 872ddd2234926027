/* The answers of S3, which are XML: a reader of elements and their text, no more. Attributes, comments, processing
 * instructions and name spaces are passed over; a DOCTYPE is refused, so no entity can grow. The bytes are foreign:
 * nothing in them makes the reader leave its buffer or take more than linear time (tests/fuzz/fuzz_s3xml.c). */
#ifndef MR_S3_XML_H
#define MR_S3_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mr_s3_xml_event { MR_XML_END, MR_XML_OPEN, MR_XML_CLOSE, MR_XML_BAD };

struct mr_s3_xml {
    const char *at, *end;
    char name[64]; /* of the element that was opened or closed; cut */
    char *text;    /* of an element without children, when it is closed; decoded, NUL-terminated; `text_cap` bytes */
    size_t text_cap, text_len;
    unsigned depth;
    bool empty; /* <x/>: CLOSE follows */
};

/* `text` is the caller's room for the longest text; longer ones are cut. */
void mr_s3_xml_init(struct mr_s3_xml *x, const char *data, size_t len, char *text, size_t cap);
enum mr_s3_xml_event mr_s3_xml_next(struct mr_s3_xml *x);
/* The text of the first element of that name; false: there is none. */
bool mr_s3_xml_find(const char *data, size_t len, const char *name, char *out, size_t cap);

/* One entry of a listing. */
struct mr_s3_entry {
    const char *key; /* decoded */
    uint64_t bytes, mtime_s;
    const char *etag; /* "" where there is none */
    bool is_prefix;   /* a common prefix: a folder */
};
typedef int mr_s3_entry_fn(void *user, const struct mr_s3_entry *e);
/* ListObjectsV2: calls fn for each entry, until one returns nonzero, which is returned. `token` (of `cap` bytes) is the
 * next page's, "" behind the last page. -EBADMSG: not such an answer. */
int mr_s3_xml_listing(const char *data, size_t len, mr_s3_entry_fn *fn, void *user, char *token, size_t cap);
/* ListMultipartUploads: calls fn for each, the same way; `etag` is the upload's id. The markers of the next page. */
int mr_s3_xml_uploads(const char *data, size_t len, mr_s3_entry_fn *fn, void *user, char *key_marker, size_t key_cap,
                      char *id_marker, size_t id_cap);
/* 2009-10-12T17:50:30.000Z, in seconds; 0: not such a time. */
uint64_t mr_s3_parse_time(const char *text);
/* %XX and "+" (a space), in place. */
void mr_s3_url_decode(char *text);

#endif
