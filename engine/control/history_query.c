#include "control/history_query.h"

#include "core/option.h"
#include "net/query.h"

static const int64_t MS_MAX = INT64_C(253402300799999); /* the end of the year 9999 */

/* false: it is malformed, empty or too long. */
static bool take_node(struct str text, char out[HISTORY_NODE_BYTES_MAX + 1])
{
    struct str node = {out, 0};
    char whole[3 * HISTORY_NODE_BYTES_MAX];
    if (text.length > sizeof(whole) || !query_decode(text, whole, &node))
        return false;
    if (node.length == 0 || node.length > HISTORY_NODE_BYTES_MAX)
        return false;
    memcpy(out, node.data, node.length);
    out[node.length] = '\0';
    return true;
}

static bool parse_time(struct str text, int64_t *us)
{
    int64_t ms;
    for (size_t i = 0; i < text.length; i++)
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
    if (text.length == 0 || text.length > 15 || !literal_int(text, &ms) || ms > MS_MAX)
        return false;
    *us = ms * 1000;
    return true;
}

enum { HAS_NODE = 1, HAS_SPAN = 2, HAS_FROM = 4, HAS_TO = 8 };

/* Takes one NAME=VALUE. */
static const char *take_field(struct str name, struct str value, struct history_query *parsed, uint32_t *has)
{
    static const char *const names[] = {"node", "span", "from", "to"};
    uint32_t bit = 0;
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (str_is(name, names[i]))
            bit = 1U << i;
    if (bit == 0)
        return "expected the parameters node, span, from and to, each as NAME=VALUE\n";
    if ((*has & bit) != 0)
        return "a parameter is given twice\n";
    *has |= bit;
    if (bit == HAS_NODE)
        return take_node(value, parsed->node) ? NULL
                                              : "node: expected the part of a node, percent-encoded UTF-8\n";
    if (bit == HAS_FROM || bit == HAS_TO) {
        parsed->ask.has_from |= bit == HAS_FROM;
        parsed->ask.has_to |= bit == HAS_TO;
        return parse_time(value, bit == HAS_FROM ? &parsed->ask.from_us : &parsed->ask.to_us)
                   ? NULL
                   : "from, to: expected a Unix time in milliseconds, until the year 9999\n";
    }
    for (uint32_t i = 0; i < HISTORY_RINGS; i++)
        if (str_is(value, history_rings[i].span)) {
            parsed->ask.ring = i;
            return NULL;
        }
    return "span: expected 1h, 12h or 30d\n";
}

const char *history_query_parse(struct str query, struct history_query *parsed)
{
    uint32_t has = 0;
    *parsed = (struct history_query){0};
    struct query_walk walk = query_walk(query);
    for (struct str name, value; query_next(&walk, &name, &value);) {
        const char *wrong = take_field(name, value, parsed, &has);
        if (wrong != NULL)
            return wrong;
    }
    if (parsed->ask.has_from && parsed->ask.has_to && parsed->ask.from_us >= parsed->ask.to_us)
        return "expected a `from` before `to`\n";
    return NULL;
}
