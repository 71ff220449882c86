/* GET /api/v1/dead-letters?after=N: how many rows became dead letters, and the newest that were kept (run/run.h). */
#include "control/api_internal.h"

#include "core/mem.h"
#include "core/quote.h"

#include <inttypes.h>
#include <stdlib.h>

static void put_letter(struct byte_buffer *out, const struct run_dead_letter *letter)
{
    buffer_printf(out, "{\"n\": %" PRIu64 ", \"time\": %" PRIi64 ", \"part\": ", letter->n,
                  letter->time_us / 1000);
    quote_json(out, str_from(letter->node->part));
    buffer_printf(out, ", \"place\": ");
    quote_json(out, (struct str){letter->place, letter->place_bytes});
    buffer_printf(out, ", \"reason\": ");
    quote_json(out, (struct str){letter->reason, letter->reason_bytes});
    buffer_printf(out, ", \"record\": ");
    quote_json(out, (struct str){letter->record, letter->record_kept});
    buffer_printf(out, ", \"record_bytes\": %" PRIu64 "}", letter->record_bytes);
}

void api_dead_letters_serve(struct api *api, struct net_exchange *exchange)
{
    struct byte_buffer out = {0};
    uint64_t after, total = 0;
    if (!api_after(exchange, &after))
        return;
    struct run_dead_letter *letters = mem_alloc(RUN_DEAD_KEPT * sizeof(*letters));
    uint32_t count = 0;
    pthread_mutex_lock(&api->mutex);
    bool is_there = api->is_there;
    if (is_there) {
        for (uint32_t i = 0; i < api->stats.nodes_count; i++)
            total += api->stats.nodes[i].counters.dead;
        count = run_dead_letters(atomic_load(&api->run), after, letters);
    }
    pthread_mutex_unlock(&api->mutex);
    buffer_printf(&out, "{\"total\": %" PRIu64 ",\n \"letters\": [", total);
    for (uint32_t i = 0; i < count; i++) {
        buffer_printf(&out, "%s", i == 0 ? "" : ",\n  ");
        put_letter(&out, &letters[i]);
    }
    buffer_printf(&out, "]}\n");
    if (is_there)
        api_answer(exchange, 200, STR("application/json"), &out);
    else
        net_respond_text(exchange, 503, "the run is being restored: ask again\n");
    buffer_free(&out);
    free(letters);
}
