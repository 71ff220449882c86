#include "connectors/kafka/json_walk.h"

#include "core/hex.h"
#include "formats/json_escape.h"

enum { DEPTH_MAX = 64 };

const char *json_walk_blanks(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r'))
        at++;
    return at;
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
                if (at == end || hex_value(*at++) < 0)
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
    at = json_walk_blanks(at, end);
    if (at < end && *at == close)
        return at + 1;
    while (at < end) {
        if (is_object) {
            if (*at != '"' || (at = scan_string(at + 1, end)) == NULL)
                return NULL;
            at = json_walk_blanks(at, end);
            if (at == end || *at != ':')
                return NULL;
            at = json_walk_blanks(at + 1, end);
        }
        if ((at = scan(at, end, depth + 1)) == NULL)
            return NULL;
        at = json_walk_blanks(at, end);
        if (at == end)
            return NULL;
        if (*at == close)
            return at + 1;
        if (*at != ',')
            return NULL;
        at = json_walk_blanks(at + 1, end);
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

const char *json_walk_value(const char *at, const char *end)
{
    return scan(at, end, 0);
}

/* --- Texts --- */

bool json_walk_text(struct str quoted, struct arena *arena, struct str *text)
{
    if (quoted.length < 2 || quoted.data[0] != '"')
        return false;
    const char *at = quoted.data + 1, *end = quoted.data + quoted.length - 1, *why;
    *text = (struct str){at, (size_t)(end - at)};
    if (memchr(at, '\\', text->length) == NULL)
        return true;
    char *begin = arena_alloc(arena, text->length), *out = begin;
    while (at != NULL && at < end)
        if (*at == '\\')
            at = json_unescape(at + 1, end, &out, &why);
        else
            *out++ = *at++;
    *text = (struct str){begin, (size_t)(out - begin)};
    return at != NULL;
}

/* --- Walking --- */

/* Moves to the beginning of the next member or element. ends: the closing bracket was found; the result is
 * behind it. Returns NULL if there is neither. */
static const char *next_item(const char *at, const char *end, char close, bool *ends)
{
    at = json_walk_blanks(at, end);
    *ends = at < end && *at == close;
    if (*ends)
        return at + 1;
    /* There is no comma before the first item. */
    if (at < end && *at == ',')
        at = json_walk_blanks(at + 1, end);
    return at < end ? at : NULL;
}

bool json_walk_member(const char **at, const char *end, struct arena *arena, struct str *name,
                      struct str *value)
{
    bool ends;
    const char *begin = *at = next_item(*at, end, '}', &ends);
    if (begin == NULL || ends)
        return false;
    *at = NULL;
    const char *behind = *begin == '"' ? scan_string(begin + 1, end) : NULL;
    if (behind == NULL || !json_walk_text((struct str){begin, (size_t)(behind - begin)}, arena, name))
        return false;
    behind = json_walk_blanks(behind, end);
    if (behind == end || *behind != ':')
        return false;
    begin = json_walk_blanks(behind + 1, end);
    behind = json_walk_value(begin, end);
    if (behind == NULL)
        return false;
    *value = (struct str){begin, (size_t)(behind - begin)};
    *at = behind;
    return true;
}

bool json_walk_element(const char **at, const char *end, struct str *value)
{
    bool ends;
    const char *begin = *at = next_item(*at, end, ']', &ends);
    if (begin == NULL || ends)
        return false;
    *at = json_walk_value(begin, end);
    if (*at == NULL)
        return false;
    *value = (struct str){begin, (size_t)(*at - begin)};
    return true;
}
