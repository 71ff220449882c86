/* The page: the files of page/bundle, which lie in the program. They are answered as they are, or compressed, to clients that
 * take gzip, and not at all (304) to those that have them. Nothing in them is of this run, so they need no token. */
#include "control/api_internal.h"

#include "core/mem.h"

#include <stdlib.h>
#include <xxhash.h>
#include <zlib.h>

/* The bytes of a file, from NAME to NAME_end. CMake knows that this file depends on it. */
#define PAGE_BYTES(name, file)                                                                               \
    extern const char name[], name##_end[];                                                                  \
    __asm__(".pushsection .rodata\n"                                                                         \
            ".globl " #name "\n" #name ":\n"                                                                 \
            ".incbin \"" LEAT_SOURCE_DIR "/page/bundle/" file "\"\n"                                         \
            ".globl " #name "_end\n" #name "_end:\n"                                                         \
            ".byte 0\n"                                                                                      \
            ".popsection\n")

PAGE_BYTES(page_index_html, "index.html");
PAGE_BYTES(page_app_js, "app.js");
PAGE_BYTES(page_app_css, "app.css");

enum { FILES = 3, TAG_BYTES = 24 };

struct page_file {
    const char *path, *type;
    struct str plain, zipped;
    char tag[TAG_BYTES], zipped_tag[TAG_BYTES]; /* entity tags, with their quotes */
};

struct api_page {
    struct page_file files[FILES];
};

const char *const api_page_paths[] = {"/", "/app.js", "/app.css", "/favicon.ico", NULL};

static struct str compress_gzip(struct str plain)
{
    enum { GZIP = 16 };
    z_stream z = {0};
    if (deflateInit2(&z, Z_BEST_COMPRESSION, Z_DEFLATED, MAX_WBITS + GZIP, MAX_MEM_LEVEL,
                     Z_DEFAULT_STRATEGY) != Z_OK)
        return (struct str){NULL, 0};
    size_t room = deflateBound(&z, (uLong)plain.length);
    char *out = mem_alloc(room);
    z.next_in = (Bytef *)(uintptr_t)plain.data;
    z.avail_in = (uInt)plain.length;
    z.next_out = (Bytef *)out;
    z.avail_out = (uInt)room;
    bool is_whole = deflate(&z, Z_FINISH) == Z_STREAM_END;
    size_t length = room - z.avail_out;
    deflateEnd(&z);
    if (is_whole)
        return (struct str){out, length};
    free(out);
    return (struct str){NULL, 0};
}

struct api_page *api_page_new(void)
{
    struct api_page *page = mem_calloc(1, sizeof(*page));
    const struct page_file files[FILES] = {
        {"/", "text/html; charset=utf-8",
         .plain = {page_index_html, (size_t)(page_index_html_end - page_index_html)}},
        {"/app.js", "text/javascript; charset=utf-8",
         .plain = {page_app_js, (size_t)(page_app_js_end - page_app_js)}},
        {"/app.css", "text/css; charset=utf-8",
         .plain = {page_app_css, (size_t)(page_app_css_end - page_app_css)}},
    };
    for (uint32_t i = 0; i < FILES; i++) {
        struct page_file *file = &page->files[i];
        *file = files[i];
        file->zipped = compress_gzip(file->plain);
        unsigned long long digest = XXH3_64bits(file->plain.data, file->plain.length);
        snprintf(file->tag, TAG_BYTES, "\"%016llx\"", digest);
        snprintf(file->zipped_tag, TAG_BYTES, "\"%016llx-z\"", digest);
    }
    return page;
}

void api_page_free(struct api_page *page)
{
    for (uint32_t i = 0; page != NULL && i < FILES; i++)
        free((char *)(uintptr_t)page->files[i].zipped.data);
    free(page);
}

/* --- What the client takes, and has --- */

/* The item before the next comma of a field's value, without spaces around it. */
static struct str next_item(struct str *rest)
{
    const char *comma = memchr(rest->data, ',', rest->length);
    size_t length = comma == NULL ? rest->length : (size_t)(comma - rest->data),
           used = length + (comma != NULL);
    struct str item = {rest->data, length};
    *rest = (struct str){rest->data + used, rest->length - used};
    while (item.length > 0 && (item.data[0] == ' ' || item.data[0] == '\t'))
        item = (struct str){item.data + 1, item.length - 1};
    while (item.length > 0 && (item.data[item.length - 1] == ' ' || item.data[item.length - 1] == '\t'))
        item.length--;
    return item;
}

/* Whether an item of accept-encoding is gzip, and not one with the weight 0. */
static bool is_gzip(struct str item)
{
    const char *end = memchr(item.data, ';', item.length);
    struct str name = {item.data, end == NULL ? item.length : (size_t)(end - item.data)};
    struct str weight = {item.data + name.length, item.length - name.length};
    while (name.length > 0 && name.data[name.length - 1] == ' ')
        name.length--;
    if (!str_is(name, "gzip"))
        return false;
    const char *equals = weight.length == 0 ? NULL : memchr(weight.data, '=', weight.length);
    if (equals == NULL)
        return true;
    for (const char *at = equals + 1; at < weight.data + weight.length; at++)
        if (*at >= '1' && *at <= '9')
            return true;
    return false;
}

static bool takes_gzip(const struct net_exchange *exchange)
{
    struct str rest = net_field(exchange, "accept-encoding");
    bool is_taken = false;
    while (rest.length > 0 && !is_taken)
        is_taken = is_gzip(next_item(&rest));
    return is_taken;
}

static bool has_tag(const struct net_exchange *exchange, const char *tag)
{
    struct str rest = net_field(exchange, "if-none-match");
    bool is_there = false;
    while (rest.length > 0 && !is_there) {
        struct str item = next_item(&rest);
        if (item.length > 2 && memcmp(item.data, "W/", 2) == 0)
            item = (struct str){item.data + 2, item.length - 2};
        is_there = str_is(item, tag) || str_is(item, "*");
    }
    return is_there;
}

/* --- Answers --- */

void api_page_serve(struct api *api, struct net_exchange *exchange)
{
    const struct page_file *file = NULL;
    for (uint32_t i = 0; i < FILES && file == NULL; i++)
        if (str_is(exchange->path, api->page->files[i].path))
            file = &api->page->files[i];
    leat_assert(file != NULL);
    bool is_zipped = file->zipped.data != NULL && takes_gzip(exchange);
    const char *tag = is_zipped ? file->zipped_tag : file->tag;
    bool is_known = has_tag(exchange, tag);
    const struct net_field fields[] = {
        {STR("content-type"), str_from(file->type)},
        {STR("etag"), str_from(tag)},
        {STR("cache-control"), STR("no-cache")},
        {STR("vary"), STR("accept-encoding")},
        {STR("content-security-policy"),
         STR("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
             "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")},
        {STR("x-content-type-options"), STR("nosniff")},
        {STR("referrer-policy"), STR("no-referrer")},
        {STR("content-encoding"), STR("gzip")}, /* last: left out of plain answers */
    };
    struct net_response response = {
        .status = is_known ? 304 : 200, .fields = fields, .fields_count = ARRAY_COUNT(fields) - !is_zipped};
    if (!is_known)
        response.body = is_zipped ? file->zipped : file->plain;
    net_respond(exchange, &response);
}

void api_icon_serve(struct api *api LEAT_UNUSED, struct net_exchange *exchange)
{
    static const struct net_field fields[] = {{{"cache-control", 13}, {"max-age=86400", 13}}};
    net_respond(exchange,
                &(struct net_response){.status = 204, .fields = fields, .fields_count = ARRAY_COUNT(fields)});
}
