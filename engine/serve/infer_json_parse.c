#include "serve/infer_json_parse.h"

#include "formats/text.h"

const char *infer_parse_input(struct infer_parse *p, const struct infer_tensor *tensor)
{
    if (tensor->name.data == NULL)
        return arena_printf(p->arena, "input %u", p->request->inputs_count);
    return arena_printf(p->arena, "the input `%s`", infer_shown(tensor->name, p->arena));
}

/* Passes on what a reader of formats/ says. */
static const char *not_json(struct infer_parse *p)
{
    return INFER_BAD(p, "the request is not valid JSON at byte %zu: %s",
                     (size_t)(p->reader.at - p->reader.begin), p->reader.reason);
}

const char *infer_parse_fail(struct infer_parse *p, const char *at, const char *what)
{
    json_fail(&p->reader, at, "%s", what);
    return not_json(p);
}

const char *infer_parse_skip(struct infer_parse *p, const char *at)
{
    at = json_skip(&p->reader, at);
    return at != NULL ? at : not_json(p);
}

bool infer_parse_is(struct infer_parse *p, const char *at, const char *word)
{
    size_t length = strlen(word);
    return (size_t)(p->reader.end - at) >= length && memcmp(at, word, length) == 0;
}

const char *infer_parse_peek(struct infer_parse *p, const char *at, struct str *text)
{
    if (json_peek(&p->reader, at) != '"')
        return infer_parse_fail(p, at, "a text was expected");
    size_t length;
    at = json_text(&p->reader, at + 1, &length);
    *text = (struct str){p->rows.heap, length};
    return at != NULL ? at : not_json(p);
}

const char *infer_parse_text(struct infer_parse *p, const char *at, struct str *text)
{
    at = infer_parse_peek(p, at, text);
    if (at != NULL)
        p->rows.heap += text->length;
    return at;
}

const char *infer_parse_whole(struct infer_parse *p, const char *at, const char *what, int64_t *value)
{
    struct text_number number;
    const char *behind = text_number(at, p->reader.end, &number);
    if (behind == NULL)
        return infer_parse_fail(p, at, "a number was expected");
    if (number.fraction > 0 || number.has_exponent || text_number_int(&number, value) != TEXT_GOOD)
        return INFER_BAD(p, "%s is not a whole number in 64 bits", what);
    return behind;
}

const char *infer_parse_flag(struct infer_parse *p, const char *at, bool *value)
{
    *value = infer_parse_is(p, at, "true");
    if (*value || infer_parse_is(p, at, "false"))
        return at + (*value ? 4 : 5);
    return infer_parse_fail(p, at, "true or false was expected");
}

/* --- Objects and lists --- */

bool infer_parse_item(struct infer_parse *p, char close, bool *is_first, const char **at)
{
    *at = infer_parse_space(p, *at);
    char c = json_peek(&p->reader, *at);
    if (c == close && *at < p->reader.end) {
        (*at)++;
        return false;
    }
    if (!*is_first) {
        if (c != ',') {
            *at = infer_parse_fail(p, *at,
                                   close == '}' ? "`,` or `}` was expected" : "`,` or `]` was expected");
            return false;
        }
        *at = infer_parse_space(p, *at + 1);
    }
    *is_first = false;
    return true;
}

/* Reads a member's name, its quotes included. *member: index of the name; `count`: another name. first: the
 * name that is compared first, with the bytes as they stand; those of a request mostly come in one order. */
static const char *read_name(struct infer_parse *p, const struct infer_member *members, uint32_t count,
                             uint32_t first, uint32_t *member, const char *at)
{
    struct str name;
    for (uint32_t i = 0; i < count; i++) {
        *member = first + i < count ? first + i : first + i - count;
        struct str known = members[*member].name;
        if (memcmp(at + 1, known.data, known.length) == 0 && at[1 + known.length] == '"')
            return at + known.length + 2;
    }
    at = infer_parse_peek(p, at, &name);
    for (*member = 0; at != NULL && *member < count && !str_equal(name, members[*member].name);)
        (*member)++;
    return at;
}

bool infer_parse_member(struct infer_parse *p, const struct infer_member *members, uint32_t count,
                        bool *is_first, uint32_t *seen, uint32_t *found, const char **at)
{
    uint32_t first = *is_first || *found + 1 == count ? 0 : *found + 1, member = count;
    while (infer_parse_item(p, '}', is_first, at)) {
        const char *name = *at;
        *at = json_peek(&p->reader, name) == '"' ? read_name(p, members, count, first, &member, name)
                                                 : infer_parse_fail(p, name, "a name in quotes was expected");
        if (*at != NULL && json_peek(&p->reader, *at = infer_parse_space(p, *at)) != ':')
            *at = infer_parse_fail(p, *at, "`:` was expected");
        if (*at == NULL)
            return false;
        *at = infer_parse_space(p, *at + 1);
        if (member < count && bit_get(&(uint64_t){*seen}, member)) {
            *at = INFER_BAD(p, "the member `%s` is given twice in one object, at byte %zu",
                            members[member].name.data, (size_t)(name - p->reader.begin));
            return false;
        }
        if (member < count) {
            *seen |= 1u << member;
            *found = member;
            return true;
        }
        *at = infer_parse_skip(p, *at);
        if (*at == NULL)
            return false;
    }
    return false;
}
