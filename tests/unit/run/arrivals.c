#include "arrivals.h"

#include "core/key.h"

#include <unistd.h>

enum { PARTITIONS_AT_MOST = 8 };

struct arrivals {
    int64_t partitions, count, keys, batch, seed;
    int64_t step_us, delay_us, late_us;
    int64_t stands_at, stands_us;
    uint64_t next[PARTITIONS_AT_MOST]; /* by partition: number of its next record */
};

static const struct option arrivals_options[] = {
    OPTION_INT(struct arrivals, partitions, "partitions", 0, "1", "1", "8", "number of partitions"),
    OPTION_INT(struct arrivals, count, "count", 0, "1000", "0", "1000000000", "records of each partition"),
    OPTION_INT(struct arrivals, keys, "keys", 0, "10", "1", "1000000", "number of different keys"),
    OPTION_INT(struct arrivals, batch, "batch", 0, "1024", "1", "1024", "records in a batch"),
    OPTION_INT(struct arrivals, seed, "seed", 0, "1", "0", "1000000", "seed of the records"),
    OPTION_DURATION(struct arrivals, step_us, "step", 0, "1ms", "1us", "1d",
                    "time from one arrival to the next one, on average"),
    OPTION_DURATION(
        struct arrivals, delay_us, "delay", 0, "0s", "0s", "1d",
        "time from an event to its arrival in the first partition; in the second one twice as much, and so on"),
    OPTION_DURATION(struct arrivals, late_us, "late", 0, "0s", "0s", "1d", "further time, at most"),
    OPTION_INT(struct arrivals, stands_at, "stands_at", 0, "-1", "-1", "1000000000",
               "the batch that begins with this record is read slowly; -1: none is"),
    OPTION_DURATION(struct arrivals, stands_us, "stands", 0, "0s", "0s", "1d",
                    "for how long; 0s: there is an answer at once, but the records never come"),
    OPTIONS_END,
};

static bool arrivals_bind(struct source_bind *bind)
{
    struct schema *schema = arena_new(bind->arena, struct schema);
    schema->fields = arena_array(bind->arena, struct field, 3);
    schema_add(schema, STR("id"), type_of(TYPE_INT));
    schema_add(schema, STR("key"), type_of(TYPE_INT));
    schema_add(schema, STR("ts"), type_of(TYPE_TIME));
    bind->schema = schema;
    bind->is_bounded = bind->is_replayable = bind->has_arrival = true;
    return true;
}

static bool arrivals_open(struct source *source)
{
    const struct arrivals *arrivals = source->config;
    source->partitions_count = (uint32_t)arrivals->partitions;
    return true;
}

static const char *arrivals_partition_name(struct source *source LEAT_UNUSED, uint32_t partition)
{
    static const char *const names[PARTITIONS_AT_MOST] = {"0", "1", "2", "3", "4", "5", "6", "7"};
    return names[partition];
}

static bool arrivals_seek(struct source *source, uint32_t partition, const struct source_position *position)
{
    struct arrivals *arrivals = source->config;
    arrivals->next[partition] = position->record;
    return true;
}

static enum read_status arrivals_read(struct source *source, uint32_t partition, struct raw_batch *raw)
{
    struct arrivals *arrivals = source->config;
    uint64_t *next = &arrivals->next[partition], count = (uint64_t)arrivals->count;
    if (*next >= count)
        return READ_END;
    if (*next == (uint64_t)arrivals->stands_at) {
        if (arrivals->stands_us == 0)
            return READ_LATER;
        usleep((useconds_t)arrivals->stands_us);
    }
    raw->records = NULL;
    raw->data_bytes = 0;
    raw->count = (uint32_t)MIN(count - *next, MIN((uint64_t)arrivals->batch, BATCH_ROWS));
    raw->position = (struct source_position){.a = partition, .record = *next};
    *next += raw->count;
    raw->next = (struct source_position){.a = partition, .record = *next};
    raw->path = "arrivals";
    raw->first_line = raw->first_offset = -1;
    return READ_BATCH;
}

static void arrivals_decode(struct source *source, void *decoder LEAT_UNUSED, struct raw_batch *raw,
                            struct decode_output *output)
{
    enum { BAD = 50 };
    const struct arrivals *arrivals = source->config;
    struct batch *batch = output->batch;
    uint64_t partition = (uint64_t)raw->position.a;
    batch->arrival_time = arena_alloc(&batch->arena, raw->count * sizeof(int64_t));
    for (uint32_t row = 0; row < raw->count; row++) {
        uint64_t record = raw->position.record + row;
        uint64_t random = key_hash((struct key){(uint64_t)arrivals->seed * 64 + partition, record});
        int64_t arrival =
            1 + (int64_t)record * arrivals->step_us + (int64_t)(random % (uint64_t)arrivals->step_us);
        int64_t late = (int64_t)((random >> 20) % (uint64_t)(arrivals->late_us + 1));
        bool is_bad = (random >> 40) % BAD == 0;
        batch->arrival_time[row] = arrival;
        batch->columns[0].ints[row] = (int64_t)record;
        batch->columns[1].ints[row] = (int64_t)((random >> 10) % (uint64_t)arrivals->keys);
        /* The time of a bad record must not count. */
        batch->columns[2].ints[row] =
            arrival + (is_bad ? US_PER_HOUR : -late - (int64_t)(partition + 1) * arrivals->delay_us);
        if (is_bad)
            output->bad[output->bad_count++] = (struct bad_record){
                .row = row, .column = UINT32_MAX, .reason = "a bad record", .has_no_bytes = true};
    }
}

const struct source_kind source_arrivals = {.name = "arrivals",
                                            .options = arrivals_options,
                                            .size = sizeof(struct arrivals),
                                            .bind = arrivals_bind,
                                            .open = arrivals_open,
                                            .partition_name = arrivals_partition_name,
                                            .seek = arrivals_seek,
                                            .read = arrivals_read,
                                            .decode = arrivals_decode};

/* Finds the last partition when it is asked for the first time. */
static bool growing_open(struct source *source)
{
    const struct arrivals *arrivals = source->config;
    source->partitions_count = MAX((uint32_t)arrivals->partitions, 2) - 1;
    return true;
}

static bool growing_discover(struct source *source)
{
    const struct arrivals *arrivals = source->config;
    source->partitions_count = MAX((uint32_t)arrivals->partitions, 2);
    return true;
}

const struct source_kind source_growing = {.name = "growing",
                                           .options = arrivals_options,
                                           .size = sizeof(struct arrivals),
                                           .bind = arrivals_bind,
                                           .open = growing_open,
                                           .partition_name = arrivals_partition_name,
                                           .discover = growing_discover,
                                           .seek = arrivals_seek,
                                           .read = arrivals_read,
                                           .decode = arrivals_decode};

const struct registry *registry_with_arrivals(const struct registry *registry)
{
    enum { SOURCES_MAX = 32 };
    static struct registry with;
    static const struct source_kind *list[SOURCES_MAX];
    uint32_t count = 0;
    with = *registry;
    for (; registry->sources[count] != NULL && registry->sources[count] != &source_arrivals; count++) {
        leat_assert(count < SOURCES_MAX - 3);
        list[count] = registry->sources[count];
    }
    list[count] = &source_arrivals;
    list[count + 1] = &source_growing;
    list[count + 2] = NULL;
    with.sources = list;
    return &with;
}
