/* GET /api/v1/log?after=N: the newest lines that the process said (core/log.h), and what answers about the newest of
 * something share. */
#include "control/api_internal.h"

#include "core/log.h"
#include "core/option.h"
#include "core/quote.h"

#include <inttypes.h>

bool api_after(struct net_exchange *exchange, uint64_t *after)
{
    static const char name[] = "after=";
    struct str query = exchange->query;
    int64_t number = 0;
    bool is_good = query.length == 0;
    if (query.length > strlen(name) && memcmp(query.data, name, strlen(name)) == 0) {
        struct str digits = {query.data + strlen(name), query.length - strlen(name)};
        is_good = digits.length <= 18;
        for (size_t i = 0; i < digits.length; i++)
            is_good &= digits.data[i] >= '0' && digits.data[i] <= '9';
        is_good = is_good && literal_int(digits, &number);
    }
    *after = (uint64_t)number;
    if (!is_good)
        net_respond_text(exchange, 400,
                         "expected no parameter but after=N, with the number of an earlier answer\n");
    return is_good;
}

void api_put_log_line(struct byte_buffer *out, const struct log_line *line)
{
    buffer_printf(out, "{\"n\": %" PRIu64 ", \"time\": %" PRIi64 ", \"level\": \"%s\", \"text\": ", line->n,
                  line->time_us / 1000, log_level_names[line->level]);
    quote_json(out, line->text);
    buffer_printf(out, ", \"repeated\": %" PRIu64 "}", line->repeated);
}

struct lines {
    struct byte_buffer out;
    uint32_t count;
};

static void take(void *user, const struct log_line *line)
{
    struct lines *lines = user;
    buffer_printf(&lines->out, "%s", lines->count++ == 0 ? "" : ",\n  ");
    api_put_log_line(&lines->out, line);
}

void api_log_serve(struct api *api LEAT_UNUSED, struct net_exchange *exchange)
{
    uint64_t after;
    struct lines lines = {0};
    struct byte_buffer out = {0};
    if (!api_after(exchange, &after))
        return;
    uint64_t newest = log_since(after, take, &lines);
    buffer_printf(&out, "{\"next\": %" PRIu64 ",\n \"lines\": [", newest);
    buffer_append(&out, lines.out.data, lines.out.length);
    buffer_printf(&out, "]}\n");
    api_answer(exchange, 200, STR("application/json"), &out);
    buffer_free(&lines.out);
    buffer_free(&out);
}
