/* GET /api/v1/checkpoints: those in the directory, what this process knows of those that it took, those that failed, and where
 * the order log is (run/checkpoint_list.h). */
#include "control/api_internal.h"

#include "core/quote.h"

#include <inttypes.h>

static void put_checkpoint(struct byte_buffer *out, const struct run_checkpoint *item)
{
    buffer_printf(out,
                  "{\"id\": \"%u-%" PRIu64 "\", \"time\": %" PRIi64 ", \"bytes\": %" PRIu64
                  ", \"total_bytes\": %" PRIu64,
                  item->generation, item->epoch, item->created_us / 1000, item->written_bytes, item->bytes);
    if (item->duration_us < 0)
        buffer_printf(out, ", \"duration_ms\": null, \"stop_ms\": null");
    else
        buffer_printf(out, ", \"duration_ms\": %" PRIi64 ", \"stop_ms\": %.3f", item->duration_us / 1000,
                      (double)item->stop_us / 1000);
    if (item->previous_generation == 0)
        buffer_printf(out, ", \"parents\": [], \"kind\": \"full\"");
    else
        buffer_printf(out, ", \"parents\": [\"%u-%" PRIu64 "\"], \"kind\": \"delta\"",
                      item->previous_generation, item->previous_epoch);
    if (item->micro_batch == UINT64_MAX)
        buffer_printf(out, ", \"micro_batch\": null}");
    else
        buffer_printf(out, ", \"micro_batch\": %" PRIu64 "}", item->micro_batch);
}

struct order_now {
    bool is_there;
    uint64_t next, bytes;
};

static void put_answer(struct byte_buffer *out, const struct plan *plan,
                       const struct run_checkpoint_list *list, const struct order_now *order)
{
    buffer_printf(out, "{\"directory\": ");
    quote_json(out, plan->config.checkpoint.directory);
    if (list->count == 0)
        buffer_printf(out, ", \"newest\": null");
    else
        buffer_printf(out, ", \"newest\": \"%u-%" PRIu64 "\"", list->items[0].generation,
                      list->items[0].epoch);
    buffer_printf(out, ", \"keep\": %" PRIi64 ",\n \"checkpoints\": [", plan->config.checkpoint.keep.last);
    for (uint32_t i = 0; i < list->count; i++) {
        buffer_printf(out, "%s", i == 0 ? "" : ",\n  ");
        put_checkpoint(out, &list->items[i]);
    }
    buffer_printf(out, "],\n \"failed\": [");
    for (uint32_t i = 0; i < list->failed_count; i++) {
        buffer_printf(out, "%s{\"time\": %" PRIi64 ", \"reason\": ", i == 0 ? "" : ",\n  ",
                      list->failed[i].time_us / 1000);
        quote_json(out, str_from(list->failed[i].reason));
        buffer_printf(out, "}");
    }
    if (order->is_there)
        buffer_printf(out, "],\n \"order_log\": {\"micro_batch\": %" PRIu64 ", \"position\": %" PRIu64 "}}\n",
                      order->next, order->bytes);
    else
        buffer_printf(out, "],\n \"order_log\": null}\n");
}

void api_checkpoints_serve(struct api *api, struct net_exchange *exchange)
{
    struct byte_buffer out = {0};
    pthread_mutex_lock(&api->mutex);
    const struct run *run = api->is_there ? atomic_load(&api->run) : NULL;
    struct order_now order = {api->stats.has_order_log, api->stats.order_log_next,
                              api->stats.order_log_bytes};
    pthread_mutex_unlock(&api->mutex);
    if (run == NULL) {
        net_respond_text(exchange, 503, "the run is being restored: ask again\n");
        return;
    }
    if (api->checkpoints == NULL)
        api->checkpoints = run_checkpoint_list_new(run);
    run_checkpoint_list_look(api->checkpoints);
    put_answer(&out, api->plan, api->checkpoints, &order);
    api_answer(exchange, 200, STR("application/json"), &out);
    buffer_free(&out);
}
