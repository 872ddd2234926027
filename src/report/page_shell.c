/* Head, sections, tables and the file of a page; see page_shell.h. Style and script are page.css and page.js, which the
 * build turns into page_assets.h together with the script's SHA-256: the content policy names it, and a browser runs
 * that script and no other, whatever a name in a trace looks like. */
#include "report/page_shell.h"
#include "base/common.h"
#include "report/html_text.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <millrace/version.h>
#include <page_assets.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- sections and tables ---- */

void mr_page_section(struct mr_page_shell *p, const char *id, const char *title, const char *caption)
{
    assert(p->sections < MR_PAGE_SECTIONS_MAX);
    p->section[p->sections].id = id;
    p->section[p->sections++].title = title;
    mr_strbuf_printf(&p->body, "<details class=\"sec\" open id=\"%s\"><summary><h2>", id);
    mr_html_text(&p->body, title);
    mr_strbuf_puts(&p->body, "</h2></summary>\n");
    if (caption) {
        mr_strbuf_puts(&p->body, "<p class=\"cap\">");
        mr_html_text(&p->body, caption);
        mr_strbuf_puts(&p->body, "</p>\n");
    }
}

void mr_page_section_end(struct mr_page_shell *p)
{
    mr_strbuf_puts(&p->body, "</details>\n");
}

void mr_page_absent(struct mr_page_shell *p, const char *title, const char *why)
{
    mr_strbuf_puts(&p->body, "<p class=\"absent\"><b>");
    mr_html_text(&p->body, title);
    mr_strbuf_puts(&p->body, "</b> &nbsp;");
    mr_html_text(&p->body, why);
    mr_strbuf_puts(&p->body, "</p>\n");
}

void mr_page_table(struct mr_page_shell *p, const char *caption, const char *heads)
{
    mr_strbuf_puts(&p->body, "<div class=\"tablebox\"><table class=\"sort\">");
    if (caption) {
        mr_strbuf_puts(&p->body, "<caption>");
        mr_html_text(&p->body, caption);
        mr_strbuf_puts(&p->body, "</caption>");
    }
    mr_strbuf_puts(&p->body, "<thead><tr>");
    while (*heads) {
        size_t n = strcspn(heads, "|");
        bool numbers = *heads == '#';
        mr_strbuf_puts(&p->body, numbers ? "<th class=\"n\" scope=\"col\">" : "<th scope=\"col\">");
        mr_html_printf(&p->body, "%.*s", (int)(n - numbers), heads + numbers);
        mr_strbuf_puts(&p->body, "</th>");
        heads += n + (heads[n] == '|');
    }
    mr_strbuf_puts(&p->body, "</tr></thead><tbody>\n");
}

void mr_page_text_cell(struct mr_page_shell *p, const char *text, size_t cap)
{
    mr_strbuf_puts(&p->body, text ? "<td class=\"f\">" : "<td class=\"unknown\">unknown");
    if (text)
        mr_html_name(&p->body, text, cap);
    mr_strbuf_puts(&p->body, "</td>");
}

void mr_page_table_end(struct mr_page_shell *p)
{
    mr_strbuf_puts(&p->body, "</tbody></table></div>\n");
}

/* ---- the whole ---- */

static void put_head(const struct mr_page_shell *p, struct mr_strbuf *o)
{
    mr_strbuf_puts(o, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta "
                      "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src "
                      "'unsafe-inline'; script-src 'sha256-");
    mr_html_base64(o, page_js_sha256, sizeof page_js_sha256);
    mr_strbuf_puts(o, "'; base-uri 'none'; form-action 'none'\">\n"
                      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                      "<meta name=\"generator\" content=\"millrace " MR_VERSION "\">\n"
                      "<meta name=\"referrer\" content=\"no-referrer\">\n<link rel=\"icon\" href=\"data:,\">\n<title>");
    mr_html_text(o, p->title);
    if (p->subject) {
        mr_strbuf_putc(o, ' ');
        mr_html_short(o, p->subject, 80);
    }
    mr_strbuf_puts(o, "</title>\n<style>\n");
    mr_strbuf_add(o, (const char *)page_css, sizeof page_css);
    mr_strbuf_puts(o, "</style></head>\n");
}

static void put_header(const struct mr_page_shell *p, struct mr_strbuf *o)
{
    mr_strbuf_puts(o, "<body>\n<header><h1>");
    mr_html_text(o, p->title);
    if (p->subject) {
        mr_strbuf_putc(o, ' ');
        mr_html_name(o, p->subject, 160);
    }
    mr_strbuf_puts(o, "</h1>\n");
    if (p->facts.len)
        mr_strbuf_printf(o, "<p class=\"facts\">%s</p>\n", p->facts.text);
    mr_strbuf_puts(o, "<nav aria-label=\"sections\">");
    for (unsigned i = 0; i < p->sections; i++) {
        mr_strbuf_printf(o, "<a href=\"#%s\">", p->section[i].id);
        mr_html_text(o, p->section[i].title);
        mr_strbuf_puts(o, "</a>");
    }
    mr_strbuf_puts(o, "</nav></header>\n<main>\n");
}

void mr_page_compose(const struct mr_page_shell *p, struct mr_strbuf *page)
{
    put_head(p, page);
    put_header(p, page);
    if (p->body.len)
        mr_strbuf_add(page, p->body.text, p->body.len);
    mr_strbuf_puts(page, "</main>\n<footer>Made by millrace " MR_VERSION
                         ". This file is complete: it loads nothing.</footer>\n<script>");
    mr_strbuf_add(page, (const char *)page_js, sizeof page_js);
    mr_strbuf_puts(page, "</script>\n</body></html>\n");
    page->failed |= p->body.failed || p->facts.failed;
}

/* ---- the file ---- */

static int write_all(int fd, const char *text, size_t n)
{
    while (n) {
        ssize_t r = write(fd, text, n);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return r ? -errno : -EIO;
        text += r;
        n -= (size_t)r;
    }
    return 0;
}

/* Devices and pipes cannot be replaced by a new file. */
static bool is_replaceable(const char *path)
{
    struct stat st;
    return lstat(path, &st) != 0 || S_ISREG(st.st_mode);
}

static int write_in_place(const struct mr_strbuf *page, const char *path)
{
    int fd = strcmp(path, "-") ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : dup(STDOUT_FILENO);
    if (fd < 0)
        return -errno;
    int rc = write_all(fd, page->text, page->len);
    return close(fd) && !rc ? -errno : rc;
}

static int write_anew(const struct mr_strbuf *page, const char *path)
{
    struct mr_strbuf name = {0};
    mr_strbuf_printf(&name, "%s.new-%ld", path, (long)getpid());
    if (name.failed)
        return mr_strbuf_done(&name), -ENOMEM;
    int fd = open(name.text, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int rc = fd < 0 ? -errno : write_all(fd, page->text, page->len);
    if (fd >= 0 && close(fd) && !rc)
        rc = -errno;
    if (!rc && rename(name.text, path))
        rc = -errno;
    if (rc && fd >= 0)
        unlink(name.text);
    mr_strbuf_done(&name);
    return rc;
}

int mr_page_save(const struct mr_page_shell *p, const char *path, struct mr_error *err)
{
    struct mr_strbuf page = {0};
    mr_page_compose(p, &page);
    int rc = page.failed                                      ? -ENOMEM
             : strcmp(path, "-") != 0 && is_replaceable(path) ? write_anew(&page, path)
                                                              : write_in_place(&page, path);
    mr_strbuf_done(&page);
    return rc ? mr_error_set(err, rc, "cannot write '%s'", path) : 0;
}

void mr_page_done(struct mr_page_shell *p)
{
    mr_strbuf_done(&p->facts);
    mr_strbuf_done(&p->body);
}
