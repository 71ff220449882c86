#include "net/head.h"

#include <strings.h>

enum { LENGTH_DIGITS_MAX = 18 };

static struct broken_rule broken(int status, const char *text)
{
    return (struct broken_rule){status, text};
}

static const struct broken_rule none = {0, NULL};

enum head_end head_find_end(struct head_scan *scan, const char *bytes, size_t count)
{
    while (scan->scanned < count) {
        const char *feed = memchr(bytes + scan->scanned, '\n', count - scan->scanned);
        if (feed == NULL) {
            scan->scanned = count;
            return HEAD_OPEN;
        }
        size_t at = (size_t)(feed - bytes);
        if (at == 0 || bytes[at - 1] != '\r' || at == 1)
            return HEAD_BROKEN;
        scan->scanned = at + 1;
        if (at - 1 == scan->line)
            return HEAD_WHOLE;
        scan->line = at + 1;
    }
    return HEAD_OPEN;
}

/* --- Bytes --- */

/* RFC 9110, 5.6.2. */
static bool is_token(const char *text, size_t length)
{
    static const uint64_t allowed[2] = {
        UINT64_C(0x03FF6CFA00000000), /* ! # $ % & ' * + - . 0-9 */
        UINT64_C(0x57FFFFFFC7FFFFFE), /* A-Z ^ _ ` a-z | ~ */
    };
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 128 || !(allowed[c >> 6] >> (c & 63) & 1))
            return false;
    }
    return length > 0;
}

static bool is_value(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\t') || c == 0x7F)
            return false;
    }
    return true;
}

static struct str trimmed(const char *text, size_t length)
{
    while (length > 0 && (*text == ' ' || *text == '\t')) {
        text++;
        length--;
    }
    while (length > 0 && (text[length - 1] == ' ' || text[length - 1] == '\t'))
        length--;
    return (struct str){text, length};
}

static bool is_named(struct str name, struct str wanted)
{
    return name.length == wanted.length && strncasecmp(name.data, wanted.data, wanted.length) == 0;
}

/* --- Lines --- */

static struct broken_rule check_request_line(const char *line, size_t length, struct head *head)
{
    const char *space = memchr(line, ' ', length);
    size_t method = space == NULL ? length : (size_t)(space - line);
    if (space == NULL || !is_token(line, method))
        return broken(400, "expected a request line: method, target, HTTP/1.1");
    head->method = (struct str){line, method};
    const char *target = space + 1;
    space = memchr(target, ' ', length - method - 1);
    if (space == NULL || space == target)
        return broken(400, "expected a request line: method, target, HTTP/1.1");
    for (const char *c = target; c < space; c++) {
        if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7F)
            return broken(400, "the target has a byte that must be percent-encoded");
    }
    struct str version = {space + 1, length - (size_t)(space + 1 - line)};
    if (str_is(version, "HTTP/1.1"))
        head->minor_version = 1;
    else if (str_is(version, "HTTP/1.0"))
        head->minor_version = 0;
    else if (version.length == 8 && memcmp(version.data, "HTTP/", 5) == 0)
        return broken(505, "expected the version HTTP/1.1 or HTTP/1.0");
    else
        return broken(400, "expected a request line: method, target, HTTP/1.1");
    return none;
}

struct seen {
    uint32_t fields, hosts, lengths, codings;
};

static bool parse_length(struct str value, int64_t *length)
{
    *length = 0;
    if (value.length == 0 || value.length > LENGTH_DIGITS_MAX)
        return false;
    for (size_t i = 0; i < value.length; i++) {
        if (value.data[i] < '0' || value.data[i] > '9')
            return false;
        *length = *length * 10 + (value.data[i] - '0');
    }
    return true;
}

/* A field that decides where the request ends or whom it is for. */
static struct broken_rule check_framing(struct str name, struct str value, struct head *head,
                                        struct seen *seen)
{
    if (is_named(name, STR("host")) && seen->hosts++ > 0)
        return broken(400, "the field `host` is there twice");
    if (is_named(name, STR("content-length"))) {
        if (seen->lengths++ > 0)
            return broken(400, "the field `content-length` is there twice");
        if (!parse_length(value, &head->content_length))
            return broken(400, "the field `content-length` is not a number of digits");
    }
    if (is_named(name, STR("transfer-encoding"))) {
        if (seen->codings++ > 0 || head->minor_version == 0)
            return broken(400, "the field `transfer-encoding` is there twice, or in HTTP/1.0");
        if (!is_named(value, STR("chunked")))
            return broken(501, "the only transfer coding that is known is `chunked`");
        head->is_chunked = true;
    }
    if (is_named(name, STR("expect")) && head->minor_version == 1) {
        if (!is_named(value, STR("100-continue")))
            return broken(417, "the only expectation that is known is `100-continue`");
        head->must_continue = true;
    }
    return none;
}

static struct broken_rule check_field(const char *line, size_t length, struct head *head, struct seen *seen)
{
    if (*line == ' ' || *line == '\t')
        return broken(400, "a header field goes on in a second line");
    const char *colon = memchr(line, ':', length);
    if (colon == NULL || !is_token(line, (size_t)(colon - line)))
        return broken(400, "expected a header field: a name, a colon behind it without a space, and a value");
    struct str name = {line, (size_t)(colon - line)};
    if (!is_value(colon + 1, length - name.length - 1))
        return broken(400, "a header field has a control character");
    if (++seen->fields > NET_FIELDS_MAX)
        return broken(431, "the request has more than 100 header fields");
    switch (name.data[0] | 0x20) {
    case 'h':
    case 'c':
    case 't':
    case 'e': return check_framing(name, trimmed(colon + 1, length - name.length - 1), head, seen);
    default: return none;
    }
}

struct broken_rule head_check(const char *bytes, size_t count, struct head *head)
{
    leat_assert(count >= 4 && memcmp(bytes + count - 4, "\r\n\r\n", 4) == 0);
    *head = (struct head){.content_length = -1};
    struct seen seen = {0};
    size_t begin = 0;
    for (bool is_first = true; begin < count - 2; is_first = false) {
        const char *line = bytes + begin;
        const char *feed = memchr(line, '\n', count - begin);
        size_t length = (size_t)(feed - line) - 1; /* without CR */
        struct broken_rule rule =
            is_first ? check_request_line(line, length, head) : check_field(line, length, head, &seen);
        if (rule.status != 0)
            return rule;
        begin += length + 2;
    }
    if (head->is_chunked && head->content_length >= 0)
        return broken(400, "the request has both `content-length` and `transfer-encoding`");
    if (seen.hosts == 0 && head->minor_version == 1)
        return broken(400, "expected the field `host`");
    return none;
}
