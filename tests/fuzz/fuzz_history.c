/* Arbitrary bytes as the query of GET /api/v1/history (engine/control/history_query.h): a query that is taken says the same
 * once it is written again, each byte of the node's name percent-encoded; one that is not is refused in a line. */
#include "fuzz.h"

#include "control/history_query.h"
#include "core/utf8.h"

#include <inttypes.h>

/* From 1970 to 9999. */
static bool is_year(int64_t us)
{
    return us >= 0 && us < INT64_C(253402300800) * US_PER_SECOND;
}

static void write_query(const struct history_query *query, struct byte_buffer *out)
{
    buffer_printf(out, "span=%s", history_rings[query->ask.ring].span);
    if (query->node[0] != '\0')
        buffer_printf(out, "&node=");
    for (const char *c = query->node; *c != '\0'; c++)
        buffer_printf(out, "%%%02x", (unsigned char)*c);
    if (query->ask.has_from)
        buffer_printf(out, "&from=%" PRIi64, query->ask.from_us / 1000);
    if (query->ask.has_to)
        buffer_printf(out, "&to=%" PRIi64, query->ask.to_us / 1000);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    struct str text = fuzz_take(&input, size);
    struct history_query query, again;
    struct byte_buffer out = {0};
    const char *wrong = history_query_parse(text, &query);
    if (wrong != NULL) {
        must(strlen(wrong) > 1 && strchr(wrong, '\n') == wrong + strlen(wrong) - 1, "a refusal is a line");
    } else {
        must(utf8_is_valid(str_from(query.node)), "a node's name is UTF-8");
        must(query.ask.ring < HISTORY_RINGS && is_year(query.ask.from_us) && is_year(query.ask.to_us),
             "what is asked for is within bounds");
        must(!query.ask.has_from || !query.ask.has_to || query.ask.from_us < query.ask.to_us, "times rise");
        write_query(&query, &out);
        must(history_query_parse((struct str){out.data, out.length}, &again) == NULL,
             "what is written is taken");
        must(strcmp(query.node, again.node) == 0 && query.ask.ring == again.ask.ring &&
                 query.ask.has_from == again.ask.has_from && query.ask.from_us == again.ask.from_us &&
                 query.ask.has_to == again.ask.has_to && query.ask.to_us == again.ask.to_us,
             "what is written says the same");
    }
    buffer_free(&out);
    free((char *)(uintptr_t)text.data);
    return 0;
}
