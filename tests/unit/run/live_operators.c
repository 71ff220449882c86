/* The operators of live_rig.h. */
#include "live_rig.h"

struct unused {
    int64_t unused;
};

static const struct option no_options[] = {OPTIONS_END};

/* --- Operators `lamp` and `watermarks`: note the times that they are told --- */

struct lamp lamp = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool lamp_bind(struct operator_bind *bind)
{
    bind->outputs[0] = bind->inputs[0].schema;
    bind->is_by_arrival = true;
    return true;
}

static bool watermarks_bind(struct operator_bind *bind)
{
    bind->outputs[0] = bind->inputs[0].schema;
    return true;
}

static void lamp_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    context->counters.passed += batch->selected;
    batch_hold(batch);
    operator_emit(context, 0, batch);
}

static void lamp_on_watermark(struct operator_context *context, int64_t watermark)
{
    pthread_mutex_lock(&lamp.mutex);
    lamp.micro_batches++;
    if (watermark == TIME_MAX && lamp.ended == 0)
        lamp.ended = lamp.micro_batches;
    if (watermark != context->watermark && lamp.count < LAMP_TIMES_MAX)
        lamp.times[lamp.count++] = watermark;
    pthread_mutex_unlock(&lamp.mutex);
}

static bool was_told(int64_t time)
{
    bool is_there = false;
    pthread_mutex_lock(&lamp.mutex);
    for (uint32_t i = 0; i < lamp.count; i++)
        is_there |= lamp.times[i] == time;
    pthread_mutex_unlock(&lamp.mutex);
    return is_there;
}

uint32_t lamp_times(int64_t times[LAMP_TIMES_MAX])
{
    pthread_mutex_lock(&lamp.mutex);
    uint32_t count = lamp.count;
    memcpy(times, lamp.times, sizeof(lamp.times));
    pthread_mutex_unlock(&lamp.mutex);
    return count;
}

void wait_for_time(int64_t time)
{
    for (int64_t since = 0; !was_told(time); wait_more(&since)) {
    }
}

static uint32_t micro_batches(void)
{
    pthread_mutex_lock(&lamp.mutex);
    uint32_t count = lamp.micro_batches;
    pthread_mutex_unlock(&lamp.mutex);
    return count;
}

uint32_t wait_for_micro_batch(uint32_t before)
{
    uint32_t count;
    for (int64_t since = 0; (count = micro_batches()) <= before; wait_more(&since)) {
    }
    return count;
}

const struct operator_kind operator_lamp = {.name = "lamp",
                                            .options = no_options,
                                            .size = sizeof(struct unused),
                                            .determinism = DETERMINISM_BY_ALL_ROWS,
                                            .uses_time = true,
                                            .inputs_min = 1,
                                            .inputs_max = 1,
                                            .bind = lamp_bind,
                                            .process = lamp_process,
                                            .on_watermark = lamp_on_watermark};

const struct operator_kind operator_watermarks = {.name = "watermarks",
                                                  .options = no_options,
                                                  .size = sizeof(struct unused),
                                                  .determinism = DETERMINISM_BY_ALL_ROWS,
                                                  .uses_time = true,
                                                  .inputs_min = 1,
                                                  .inputs_max = 1,
                                                  .bind = watermarks_bind,
                                                  .process = lamp_process,
                                                  .on_watermark = lamp_on_watermark};

/* --- Operator `scale`: adds a column with the load of the row's micro-batch --- */

static bool scale_bind(struct operator_bind *bind)
{
    struct schema *schema = operator_extend(bind, 1);
    (void)schema_add(schema, STR("load"), type_of(TYPE_INT));
    bind->outputs[0] = schema;
    bind->follows_load = true;
    return true;
}

static void scale_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    struct batch *out = batch_derive(batch, context->output);
    struct column *load = &out->columns[context->output->count - 1];
    batch_column_init(out, load, type_of(TYPE_INT), batch->rows);
    for (uint32_t row = 0; row < batch->rows; row++)
        load->ints[row] = context->load;
    context->counters.passed += batch->selected;
    operator_emit(context, 0, out);
}

const struct operator_kind operator_scale = {.name = "scale",
                                             .options = no_options,
                                             .size = sizeof(struct unused),
                                             .determinism = DETERMINISM_BY_ALL_ROWS,
                                             .inputs_min = 1,
                                             .inputs_max = 1,
                                             .bind = scale_bind,
                                             .process = scale_process};
