/* What all our pages have in common: head, style, script, sections, tables, and how a page gets into its file.
 *
 *     struct mr_page_shell p = {.title = "millrace compare", .subject = "base, tuned"};
 *     mr_page_section(&p, "steps", "Steps", "One column per step.");
 *     ... charts and text to &p.body ...
 *     mr_page_section_end(&p);
 *     rc = mr_page_save(&p, path, err);
 *     mr_page_done(&p);
 *
 * A page is one file: style and script are in it, a content policy forbids it to load anything or to run another
 * script, and everything can be read without the script. */
#ifndef MR_REPORT_PAGE_SHELL_H
#define MR_REPORT_PAGE_SHELL_H

#include "base/strbuf.h"

#define MR_PAGE_BYTES_MAX (2u << 20) /* no page is larger */
#define MR_PAGE_SECTIONS_MAX 32

struct mr_page_shell {
    const char *title;      /* ours */
    const char *subject;    /* what the page is about, escaped; may be NULL */
    struct mr_strbuf facts; /* HTML of the line below the title; may stay empty */
    struct mr_strbuf body;  /* HTML of the page */
    struct {
        const char *id, *title;
    } section[MR_PAGE_SECTIONS_MAX];
    unsigned sections;
};

/* `id` is ours: letters. `caption` says in one or two sentences how to read it; NULL: none. */
void mr_page_section(struct mr_page_shell *p, const char *id, const char *title, const char *caption);
void mr_page_section_end(struct mr_page_shell *p);
/* One line in place of a section that a reader would look for: "No checkpoint was seen." Escaped. */
void mr_page_absent(struct mr_page_shell *p, const char *title, const char *why);

/* A table whose columns the script can sort. `heads`: names, separated by '|'; one that begins with '#' is of numbers.
 * `caption` may be NULL. Rows are "<tr>" with cells (mr_html_cell, mr_page_text_cell), written by the caller. */
void mr_page_table(struct mr_page_shell *p, const char *caption, const char *heads);
/* A cell with a name, at most `cap` bytes of it; NULL is unknown. */
void mr_page_text_cell(struct mr_page_shell *p, const char *text, size_t cap);
void mr_page_table_end(struct mr_page_shell *p);

/* The whole page as one text. */
void mr_page_compose(const struct mr_page_shell *p, struct mr_strbuf *page);
/* Writes it to `path` ("-": standard output), under a new name first: a failure leaves what was there before. */
int mr_page_save(const struct mr_page_shell *p, const char *path, struct mr_error *err);
void mr_page_done(struct mr_page_shell *p);

#endif
