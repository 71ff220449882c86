/* JSON's grammar: finds where values begin and end, without building them. */
#include "connectors/kafka/recording_form.h"

enum { DEPTH_MAX = 64 };

const char *json_skip_blanks(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r'))
        at++;
    return at;
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* at: behind the opening quote. Returns the byte behind the closing quote, or NULL. */
static const char *scan_string(const char *at, const char *end)
{
    while (at < end) {
        unsigned char c = (unsigned char)*at++;
        if (c == '"')
            return at;
        if (c < 0x20)
            return NULL;
        if (c != '\\')
            continue;
        if (at == end)
            return NULL;
        c = (unsigned char)*at++;
        if (c == 'u') {
            for (int i = 0; i < 4; i++)
                if (at == end || !is_hex(*at++))
                    return NULL;
        } else if (c == '\0' || strchr("\"\\/bfnrt", c) == NULL) {
            return NULL;
        }
    }
    return NULL;
}

static const char *scan_digits(const char *at, const char *end)
{
    const char *begin = at;
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at == begin ? NULL : at;
}

static const char *scan_number(const char *at, const char *end)
{
    at += at < end && *at == '-';
    const char *begin = at;
    if ((at = scan_digits(at, end)) == NULL || (*begin == '0' && at > begin + 1))
        return NULL;
    if (at < end && *at == '.' && (at = scan_digits(at + 1, end)) == NULL)
        return NULL;
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        at += at < end && (*at == '+' || *at == '-');
        at = scan_digits(at, end);
    }
    return at;
}

static const char *scan_word(const char *at, const char *end, const char *word)
{
    size_t length = strlen(word);
    return (size_t)(end - at) >= length && memcmp(at, word, length) == 0 ? at + length : NULL;
}

static const char *scan(const char *at, const char *end, int depth);

/* at: behind the opening bracket. Returns the byte behind the closing bracket, or NULL. */
static const char *scan_members(const char *at, const char *end, bool is_object, int depth)
{
    char close = is_object ? '}' : ']';
    at = json_skip_blanks(at, end);
    if (at < end && *at == close)
        return at + 1;
    while (at < end) {
        if (is_object) {
            if (*at != '"' || (at = scan_string(at + 1, end)) == NULL)
                return NULL;
            at = json_skip_blanks(at, end);
            if (at == end || *at != ':')
                return NULL;
            at = json_skip_blanks(at + 1, end);
        }
        if ((at = scan(at, end, depth + 1)) == NULL)
            return NULL;
        at = json_skip_blanks(at, end);
        if (at == end)
            return NULL;
        if (*at == close)
            return at + 1;
        if (*at != ',')
            return NULL;
        at = json_skip_blanks(at + 1, end);
    }
    return NULL;
}

static const char *scan(const char *at, const char *end, int depth)
{
    if (at == end || depth > DEPTH_MAX)
        return NULL;
    switch (*at) {
    case '{': return scan_members(at + 1, end, true, depth);
    case '[': return scan_members(at + 1, end, false, depth);
    case '"': return scan_string(at + 1, end);
    case 't': return scan_word(at, end, "true");
    case 'f': return scan_word(at, end, "false");
    case 'n': return scan_word(at, end, "null");
    default: return scan_number(at, end);
    }
}

const char *json_scan(const char *at, const char *end)
{
    return scan(at, end, 0);
}

/* --- Texts --- */

static int hex_value(char c)
{
    return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
}

static uint32_t take_unit(const char *at)
{
    uint32_t unit = 0;
    for (int i = 0; i < 4; i++)
        unit = unit << 4 | (uint32_t)hex_value(at[i]);
    return unit;
}

static char *put_code(char *out, uint32_t code)
{
    if (code < 0x80) {
        *out++ = (char)code;
        return out;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char leads[] = {0, 0xc0, 0xe0, 0xf0};
    *out++ = (char)(leads[more] | code >> (6 * more));
    while (more-- > 0)
        *out++ = (char)(0x80 | (code >> (6 * more) & 0x3f));
    return out;
}

/* Decodes the \u escape whose digits begin at `at`, with a second escape if they are a surrogate pair.
 * Returns the byte behind; NULL: a lone surrogate. */
static const char *take_code(const char *at, const char *end, uint32_t *code)
{
    *code = take_unit(at);
    at += 4;
    if (*code < 0xd800 || *code > 0xdfff)
        return at;
    if (*code > 0xdbff || end - at < 6 || at[0] != '\\' || at[1] != 'u')
        return NULL;
    uint32_t low = take_unit(at + 2);
    if (low < 0xdc00 || low > 0xdfff)
        return NULL;
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return at + 6;
}

bool json_unescape(struct str quoted, struct arena *arena, struct str *text)
{
    static const char plain[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    if (quoted.length < 2 || quoted.data[0] != '"')
        return false;
    const char *at = quoted.data + 1, *end = quoted.data + quoted.length - 1;
    *text = (struct str){at, (size_t)(end - at)};
    if (memchr(at, '\\', text->length) == NULL)
        return true;
    char *begin = arena_alloc(arena, text->length), *out = begin;
    while (at < end) {
        if (*at != '\\') {
            *out++ = *at++;
            continue;
        }
        if (at[1] != 'u') {
            *out++ = means[strchr(plain, at[1]) - plain];
            at += 2;
            continue;
        }
        uint32_t code;
        if ((at = take_code(at + 2, end, &code)) == NULL)
            return false;
        out = put_code(out, code);
    }
    *text = (struct str){begin, (size_t)(out - begin)};
    return true;
}

/* --- Walking --- */

/* Moves to the beginning of the next member or element. ends: the closing bracket was found; the result is
 * behind it. Returns NULL if there is neither. */
static const char *next_item(const char *at, const char *end, char close, bool *ends)
{
    at = json_skip_blanks(at, end);
    *ends = at < end && *at == close;
    if (*ends)
        return at + 1;
    /* There is no comma before the first item. */
    if (at < end && *at == ',')
        at = json_skip_blanks(at + 1, end);
    return at < end ? at : NULL;
}

bool json_next_member(const char **at, const char *end, struct arena *arena, struct str *name,
                      struct str *value)
{
    bool ends;
    const char *begin = *at = next_item(*at, end, '}', &ends);
    if (begin == NULL || ends)
        return false;
    *at = NULL;
    const char *behind = *begin == '"' ? scan_string(begin + 1, end) : NULL;
    if (behind == NULL || !json_unescape((struct str){begin, (size_t)(behind - begin)}, arena, name))
        return false;
    behind = json_skip_blanks(behind, end);
    if (behind == end || *behind != ':')
        return false;
    begin = json_skip_blanks(behind + 1, end);
    behind = json_scan(begin, end);
    if (behind == NULL)
        return false;
    *value = (struct str){begin, (size_t)(behind - begin)};
    *at = behind;
    return true;
}

bool json_next_element(const char **at, const char *end, struct str *value)
{
    bool ends;
    const char *begin = *at = next_item(*at, end, ']', &ends);
    if (begin == NULL || ends)
        return false;
    *at = json_scan(begin, end);
    if (*at == NULL)
        return false;
    *value = (struct str){begin, (size_t)(*at - begin)};
    return true;
}
