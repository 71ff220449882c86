/* The reference as linked HTML pages: a searchable index, one page per group, one style sheet. */
#include "cli/help.h"
#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static const char style[] =
    ":root{--text:#1f2328;--soft:#656d76;--line:#d8dde3;--paper:#fff;--code:#f3f5f8;--link:#2158c9}\n"
    "@media(prefers-color-scheme:dark){:root{--text:#e6e9ed;--soft:#98a2ad;--line:#333a42;--paper:#14171b;"
    "--code:#1f242b;--link:#7aa5f8}}\n"
    "*{box-sizing:border-box}body{margin:0 auto;max-width:60rem;padding:1.5rem;background:var(--paper);"
    "color:var(--text);font:16px/1.55 system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}\n"
    "a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}\n"
    "nav{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;padding-bottom:.8rem;border-bottom:1px solid "
    "var(--line)}\n"
    "nav b{margin-right:.5rem}h1{font-size:1.7rem;margin:1.4rem 0 .2rem}\n"
    "h2{font-size:1.25rem;margin:2.4rem 0 .3rem;padding-top:.6rem;border-top:1px solid var(--line)}\n"
    "h3{font-size:.95rem;margin:1.1rem 0 .2rem;color:var(--soft)}p{margin:.4rem 0}.soft{color:var(--soft)}\n"
    "code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans "
    "Mono',monospace;font-size:.88em;"
    "background:var(--code);border-radius:4px}code{padding:.1em .3em}\n"
    "pre{padding:.7rem .9rem;overflow-x:auto;white-space:pre-wrap}\n"
    "dl{margin:.3rem 0}dt{margin-top:.7rem}dd{margin:.05rem 0 0 1.4rem}dt "
    "b{font-family:ui-monospace,Menlo,Consolas,"
    "monospace;font-size:.92em}\n"
    "ul{padding-left:0;list-style:none;columns:2 20rem}li{margin:.15rem 0;break-inside:avoid}\n"
    "input{width:100%;padding:.6rem .8rem;margin:1rem 0;font:inherit;color:inherit;background:var(--code);"
    "border:1px solid var(--line);border-radius:6px}\n";

static const char search[] = "<script>\n"
                             "const box = document.getElementById('search');\n"
                             "box.hidden = false;\n"
                             "box.addEventListener('input', () => {\n"
                             "  const words = box.value.toLowerCase().split(/\\s+/).filter(Boolean);\n"
                             "  for (const item of document.querySelectorAll('li')) {\n"
                             "    const text = (item.textContent + ' ' + item.dataset.words).toLowerCase();\n"
                             "    item.hidden = !words.every((word) => text.includes(word));\n"
                             "  }\n"
                             "  for (const part of document.querySelectorAll('section'))\n"
                             "    part.hidden = !part.querySelector('li:not([hidden])');\n"
                             "});\n"
                             "</script>\n";

/* Appends text with special characters escaped; `...` becomes code. */
static void put(struct byte_buffer *out, const char *text)
{
    bool is_code = false;
    for (; *text != '\0'; text++) {
        bool has_end = *text == '`' && (is_code || strchr(text + 1, '`') != NULL);
        if (has_end) {
            buffer_printf(out, is_code ? "</code>" : "<code>");
            is_code = !is_code;
        } else if (*text == '&') {
            buffer_printf(out, "&amp;");
        } else if (*text == '<') {
            buffer_printf(out, "&lt;");
        } else if (*text == '>') {
            buffer_printf(out, "&gt;");
        } else if (*text == '"') {
            buffer_printf(out, "&quot;");
        } else {
            buffer_append(out, text, 1);
        }
    }
}

static void put_head(struct byte_buffer *out, const char *title)
{
    buffer_printf(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                       "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
    put(out, title);
    buffer_printf(out, "</title>\n<link rel=\"stylesheet\" href=\"style.css\">\n</head>\n<body>\n<nav>"
                       "<a href=\"index.html\"><b>leat</b></a>");
    for (uint32_t g = 0; g < HELP_GROUPS_COUNT; g++)
        buffer_printf(out, " <a href=\"%s.html\">%s</a>", help_groups[g].plural, help_groups[g].plural);
    for (uint32_t i = 0; i < HELP_PAGES_COUNT; i++)
        buffer_printf(out, " <a href=\"%s.html\">%s</a>", help_page_names[i], help_page_names[i]);
    buffer_printf(out, "</nav>\n<h1>");
    put(out, title);
    buffer_printf(out, "</h1>\n");
}

static void put_options(const struct help *help, const struct option *table, struct byte_buffer *out);

static void put_option(const struct help *help, const struct option_row *option, struct byte_buffer *out)
{
    struct arena arena = {0};
    struct help_option said = help_option(help, option, &arena);
    buffer_printf(out, "<dt><b>");
    put(out, said.name);
    buffer_printf(out, "</b> <span class=\"soft\">");
    if (said.group != NULL)
        buffer_printf(out, "<a href=\"%s.html\">", said.group->plural);
    put(out, said.type);
    if (said.group != NULL)
        buffer_printf(out, "</a>");
    if (said.facts[0] != '\0')
        buffer_printf(out, "; ");
    put(out, said.facts);
    buffer_printf(out, "</span></dt>\n<dd>");
    put(out, said.text);
    if (said.nested != NULL)
        put_options(help, said.nested, out);
    for (const struct kind_choice *k = said.kinds; k != NULL && k->name != NULL; k++) {
        buffer_printf(out, "<dl><dt><b>");
        put(out, k->name);
        buffer_printf(out, "</b></dt>\n<dd>");
        put(out, k->summary);
        put_options(help, k->options, out);
        buffer_printf(out, "</dd></dl>");
    }
    buffer_printf(out, "</dd>\n");
    arena_free(&arena);
}

static void put_options(const struct help *help, const struct option *table, struct byte_buffer *out)
{
    if (!option_has_rows(table))
        return;
    buffer_printf(out, "<dl>\n");
    for (struct option_walk w = option_walk(table); option_next(&w);)
        put_option(help, &w.row, out);
    buffer_printf(out, "</dl>\n");
}

static void put_block(struct byte_buffer *out, const char *before, const char *text, const char *after)
{
    if (text == NULL)
        return;
    buffer_printf(out, "%s", before);
    put(out, text);
    buffer_printf(out, "%s\n", after);
}

/* Appends code; it keeps its backticks. */
static void put_code(struct byte_buffer *out, const char *text)
{
    if (text == NULL)
        return;
    buffer_printf(out, "<pre>");
    for (; *text != '\0'; text++)
        if (*text == '<' || *text == '&')
            buffer_printf(out, *text == '<' ? "&lt;" : "&amp;");
        else
            buffer_append(out, text, 1);
    buffer_printf(out, "</pre>\n");
}

static void put_entry(const struct help *help, const struct help_entry *e, struct byte_buffer *out)
{
    buffer_printf(out, "<h2 id=\"%s\">", e->anchor);
    put(out, e->name);
    buffer_printf(out, "</h2>\n");
    put_block(out, "<p>", e->summary, "</p>");
    put_code(out, e->usage);
    put_block(out, "<p>", e->details, "</p>");
    put_block(out, "<p class=\"soft\">", e->note, "</p>");
    if (e->example != NULL) {
        buffer_printf(out, "<h3>example</h3>\n");
        put_code(out, e->example);
    }
    if (option_has_rows(e->options))
        buffer_printf(out, "<h3>options</h3>\n");
    put_options(help, e->options, out);
    if (e->common != NULL) {
        put_block(out, "<h3>", e->common_title, "</h3>");
        put_options(help, e->common, out);
    }
}

static void put_page(const struct help *help, enum help_group group, struct byte_buffer *out)
{
    put_head(out, help_groups[group].plural);
    put_block(out, "<p class=\"soft\">", help_groups[group].summary, "</p>");
    for (uint32_t i = 0; i < help->count; i++)
        if (help->entries[i].group == group)
            put_entry(help, &help->entries[i], out);
    buffer_printf(out, "</body>\n</html>\n");
}

static void put_facts(const struct help_page *page, struct byte_buffer *out)
{
    put_head(out, page->name);
    put_block(out, "<p class=\"soft\">", page->summary, "</p>");
    put_block(out, "<p>", page->intro, "</p>");
    for (uint32_t s = 0; s < page->count; s++) {
        put_block(out, "<h2>", page->sections[s].title, "</h2>");
        buffer_printf(out, "<dl>\n");
        for (uint32_t i = 0; i < page->sections[s].count; i++) {
            const struct help_fact *fact = &page->sections[s].facts[i];
            put_block(out, "<dt><b>", fact->name, "</b></dt>");
            put_block(out, "<dd>", fact->text, "");
            put_code(out, fact->example);
            buffer_printf(out, "</dd>\n");
        }
        buffer_printf(out, "</dl>\n");
    }
    buffer_printf(out, "</body>\n</html>\n");
}

static void put_index(const struct help *help, struct byte_buffer *out)
{
    put_head(out, "The reference of leat");
    buffer_printf(
        out, "<p class=\"soft\">What a job can be built from; <code>leat help</code> shows the same in a "
             "terminal.</p>\n"
             "<input id=\"search\" type=\"search\" placeholder=\"search\" autofocus hidden>\n");
    for (uint32_t g = 0; g < HELP_GROUPS_COUNT; g++) {
        buffer_printf(out, "<section>\n<h2><a href=\"%s.html\">%s</a></h2>\n<ul>\n", help_groups[g].plural,
                      help_groups[g].plural);
        for (uint32_t i = 0; i < help->count; i++) {
            const struct help_entry *e = &help->entries[i];
            if (e->group != g)
                continue;
            buffer_printf(out, "<li data-words=\"");
            for (struct option_walk w = option_walk(e->options); option_next(&w);)
                buffer_printf(out, "%s ", w.row.name);
            buffer_printf(out, "\"><a href=\"%s.html#%s\">", help_groups[g].plural, e->anchor);
            put(out, e->name);
            buffer_printf(out, "</a> <span class=\"soft\">");
            put(out, e->summary);
            buffer_printf(out, "</span></li>\n");
        }
        buffer_printf(out, "</ul>\n</section>\n");
    }
    buffer_printf(out, "%s</body>\n</html>\n", search);
}

static int write_file(const char *directory, const char *name, const char *suffix,
                      const struct byte_buffer *text)
{
    char path[4096];
    int length = snprintf(path, sizeof(path), "%s/%s%s", directory, name, suffix);
    if (length < 0 || (size_t)length >= sizeof(path))
        return ENAMETOOLONG;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return errno;
    int error = os_write_all(fd, text->data, text->length, NULL);
    if (close(fd) != 0 && error == 0)
        error = errno;
    return error;
}

int help_html(struct help *help, const char *directory)
{
    int error = os_mkdirs(directory);
    struct byte_buffer out = {0};
    for (uint32_t g = 0; g < HELP_GROUPS_COUNT && error == 0; g++) {
        buffer_clear(&out);
        put_page(help, (enum help_group)g, &out);
        error = write_file(directory, help_groups[g].plural, ".html", &out);
    }
    for (uint32_t i = 0; i < HELP_PAGES_COUNT && error == 0; i++) {
        struct help_page page = help_page(help, i);
        buffer_clear(&out);
        put_facts(&page, &out);
        error = write_file(directory, page.name, ".html", &out);
    }
    buffer_clear(&out);
    put_index(help, &out);
    if (error == 0)
        error = write_file(directory, "index", ".html", &out);
    buffer_clear(&out);
    buffer_append(&out, style, sizeof(style) - 1);
    if (error == 0)
        error = write_file(directory, "style", ".css", &out);
    buffer_free(&out);
    return error;
}
