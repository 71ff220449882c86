/* Source `nexmark`: the events of an auction site, generated as they are read. */
#include "connectors/generator/nexmark_event.h"
#include "core/connector.h"
#include "core/mem.h"
#include "core/operator.h"
#include "core/os.h"

#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

struct nexmark {
    int64_t events, pace;
    struct nexmark_options options;

    int64_t next; /* number of the next event */
    /* Used with a pace: */
    int64_t began_us; /* os_monotonic_us() when event 0 came, or would have come; 0: not begun */
    pthread_t clock;
    bool has_clock, is_over;
};

static const struct option nexmark_options[] = {
    OPTION_INT(struct nexmark, events, "events", 0, "1000000", "1", "1000000000000", "number of events"),
    OPTION_INT(struct nexmark, options.seed, "seed", 0, "1", "0", "9223372036854775807",
               "seed of the random numbers; another seed gives another stream"),
    OPTION_INT(struct nexmark, options.rate, "rate", 0, NEXMARK_RATE_TEXT, "1", "1000000000",
               "events per second of event time"),
    OPTION_INT(struct nexmark, pace, "pace", 0, "0", "0", "1000000000",
               "events per second of real time, as from a live source; 0: as fast as the job reads"),
    OPTION_INT(struct nexmark, options.person_bytes, "person_size", 0, "200", "0", "2000",
               "nominal bytes of a person; `extra` fills the event up to this size"),
    OPTION_INT(struct nexmark, options.auction_bytes, "auction_size", 0, "500", "0", "4000",
               "nominal bytes of an auction"),
    OPTION_INT(struct nexmark, options.bid_bytes, "bid_size", 0, "100", "0", "4000",
               "nominal bytes of a bid"),
    OPTIONS_END,
};

enum column_kind { IS_TYPE, IS_INT, IS_TIME, IS_TEXT };

enum { PERSONS = 1 << NEXMARK_PERSON, AUCTIONS = 1 << NEXMARK_AUCTION, BIDS = 1 << NEXMARK_BID };
#define FIELD(name) offsetof(struct nexmark_event, name)

/* The columns, and which events have them. */
static const struct {
    const char *name;
    enum column_kind kind;
    unsigned events;
    size_t offset; /* in struct nexmark_event */
} columns[] = {
    {"type", IS_TYPE, PERSONS | AUCTIONS | BIDS, 0},
    {"date_time", IS_TIME, PERSONS | AUCTIONS | BIDS, FIELD(time_ms)},
    {"extra", IS_TEXT, PERSONS | AUCTIONS | BIDS, FIELD(extra)},
    {"id", IS_INT, PERSONS | AUCTIONS, FIELD(id)},
    {"name", IS_TEXT, PERSONS, FIELD(name)},
    {"email", IS_TEXT, PERSONS, FIELD(email)},
    {"credit_card", IS_TEXT, PERSONS, FIELD(credit_card)},
    {"city", IS_TEXT, PERSONS, FIELD(city)},
    {"state", IS_TEXT, PERSONS, FIELD(state)},
    {"item_name", IS_TEXT, AUCTIONS, FIELD(item_name)},
    {"description", IS_TEXT, AUCTIONS, FIELD(description)},
    {"initial_bid", IS_INT, AUCTIONS, FIELD(initial_bid)},
    {"reserve", IS_INT, AUCTIONS, FIELD(reserve)},
    {"expires", IS_TIME, AUCTIONS, FIELD(expires_ms)},
    {"seller", IS_INT, AUCTIONS, FIELD(seller)},
    {"category", IS_INT, AUCTIONS, FIELD(category)},
    {"auction", IS_INT, BIDS, FIELD(auction)},
    {"bidder", IS_INT, BIDS, FIELD(bidder)},
    {"price", IS_INT, BIDS, FIELD(price)},
    {"channel", IS_TEXT, BIDS, FIELD(channel)},
    {"url", IS_TEXT, BIDS, FIELD(url)},
};

static bool nexmark_bind(struct source_bind *bind)
{
    struct schema *schema = arena_new(bind->arena, struct schema);
    schema->fields = arena_array(bind->arena, struct field, ARRAY_COUNT(columns));
    for (size_t i = 0; i < ARRAY_COUNT(columns); i++) {
        struct type type = type_of(columns[i].kind == IS_INT    ? TYPE_INT
                                   : columns[i].kind == IS_TIME ? TYPE_TIME
                                                                : TYPE_TEXT);
        type.unit = columns[i].kind == IS_TIME ? TIME_UNIT_MS : type.unit;
        schema_add(schema, str_from(columns[i].name), type);
    }
    bind->schema = schema;
    bind->is_bounded = bind->is_replayable = true;
    if (bind->declared != NULL) {
        struct diag *diag = diag_error(bind->diags, DIAG_OPTIONS_CLASH, bind->span,
                                       "source `nexmark` defines its own columns");
        diag_hint(bind->diags, diag, "leave `schema:` out; `leat help source nexmark` lists the columns");
        return false;
    }
    return true;
}

enum { WAKE_LEAST_US = 200, WAKE_MOST_US = 50000 };

/* Wakes the engine as often as a batch of events becomes due, but not more often than WAKE_LEAST_US and not
 * less often than WAKE_MOST_US say. */
static void *run_clock(void *argument)
{
    struct source *source = argument;
    struct nexmark *nexmark = source->config;
    int64_t every_us = MIN(MAX(BATCH_ROWS * US_PER_SECOND / nexmark->pace, WAKE_LEAST_US), WAKE_MOST_US);
    while (!__atomic_load_n(&nexmark->is_over, __ATOMIC_ACQUIRE)) {
        usleep((useconds_t)every_us);
        source->wake(source->engine);
    }
    return NULL;
}

static bool nexmark_open(struct source *source)
{
    struct nexmark *nexmark = source->config;
    source->partitions_count = 1;
    if (nexmark->pace == 0)
        return true;
    nexmark->has_clock = pthread_create(&nexmark->clock, NULL, run_clock, source) == 0;
    if (!nexmark->has_clock)
        diag_error(source->diags, DIAG_MEMORY_BUDGET, (struct span){0},
                   "the system refuses to start a thread");
    return nexmark->has_clock;
}

static void nexmark_close(struct source *source)
{
    struct nexmark *nexmark = source->config;
    if (nexmark->has_clock) {
        __atomic_store_n(&nexmark->is_over, true, __ATOMIC_RELEASE);
        pthread_join(nexmark->clock, NULL);
    }
    nexmark->has_clock = false;
}

static const char *nexmark_partition_name(struct source *source LEAT_UNUSED, uint32_t partition LEAT_UNUSED)
{
    return "nexmark";
}

static bool nexmark_seek(struct source *source, uint32_t partition LEAT_UNUSED,
                         const struct source_position *position)
{
    struct nexmark *nexmark = source->config;
    if (position->record > (uint64_t)nexmark->events) {
        diag_error(source->diags, DIAG_FILE_CHANGED, (struct span){0},
                   "the checkpoint is at event %" PRIu64 ", and the generator has only %" PRId64,
                   position->record, nexmark->events);
        return false;
    }
    __atomic_store_n(&nexmark->next, (int64_t)position->record, __ATOMIC_RELAXED);
    return true;
}

/* Whether the first `count` events are due. The clock decides when a batch is read, never its contents. */
static bool have_come(struct nexmark *nexmark, int64_t count)
{
    int64_t now_us = os_monotonic_us();
    if (nexmark->began_us == 0)
        __atomic_store_n(&nexmark->began_us,
                         now_us - (int64_t)((double)nexmark->next * 1e6 / (double)nexmark->pace),
                         __ATOMIC_RELAXED);
    return (double)(now_us - nexmark->began_us) * (double)nexmark->pace >= (double)count * 1e6;
}

static enum read_status nexmark_read(struct source *source, uint32_t partition LEAT_UNUSED,
                                     struct raw_batch *raw)
{
    struct nexmark *nexmark = source->config;
    int64_t next = nexmark->next;
    if (next >= nexmark->events)
        return READ_END;
    raw->records = NULL;
    raw->data_bytes = 0;
    raw->count = (uint32_t)MIN(nexmark->events - next, BATCH_ROWS);
    if (nexmark->pace > 0 && !have_come(nexmark, next + raw->count))
        return READ_LATER;
    raw->position = (struct source_position){.record = (uint64_t)next};
    raw->next = (struct source_position){.record = (uint64_t)next + raw->count};
    raw->path = "nexmark";
    raw->first_line = raw->first_offset = -1;
    __atomic_store_n(&nexmark->next, next + raw->count, __ATOMIC_RELAXED);
    return READ_BATCH;
}

static struct str value_text(const struct nexmark_event *event, size_t column)
{
    static const struct str types[] = {STR("person"), STR("auction"), STR("bid")};
    if (columns[column].kind == IS_TYPE)
        return types[event->type];
    return *(const struct str *)(const void *)((const char *)event + columns[column].offset);
}

static int64_t value_int(const struct nexmark_event *event, size_t column)
{
    int64_t value = *(const int64_t *)(const void *)((const char *)event + columns[column].offset);
    return columns[column].kind == IS_TIME ? value * 1000 : value;
}

/* The texts of all columns go into one buffer, `heap`, which becomes the heap of each column. */
static void put_event(struct batch *batch, const struct nexmark_event *event, uint32_t row,
                      struct byte_buffer *heap)
{
    for (size_t i = 0; i < ARRAY_COUNT(columns); i++) {
        struct column *column = &batch->columns[i];
        if ((columns[i].events & 1u << event->type) == 0) {
            if (column->valid == NULL)
                column->valid = batch_valid_new(batch, batch->rows);
            bit_clear(column->valid, row);
            column->ints[row] = 0;
        } else if (columns[i].kind == IS_INT || columns[i].kind == IS_TIME) {
            column->ints[row] = value_int(event, i);
        } else {
            struct str text = value_text(event, i);
            column->texts[row] = (struct text_ref){(uint32_t)heap->length, (uint32_t)text.length};
            buffer_append(heap, text.data, text.length);
        }
    }
}

static void nexmark_decode(struct source *source, void *decoder, struct raw_batch *raw,
                           struct decode_output *output)
{
    const struct nexmark *nexmark = source->config;
    struct byte_buffer *heap = decoder;
    struct batch *batch = output->batch;
    struct nexmark_event event;
    buffer_clear(heap);
    for (uint32_t row = 0; row < raw->count; row++) {
        nexmark_make(&nexmark->options, (int64_t)raw->position.record + row, &event);
        put_event(batch, &event, row, heap);
    }
    const char *texts = arena_copy(&batch->arena, heap->data, heap->length);
    for (size_t i = 0; i < ARRAY_COUNT(columns); i++)
        if (columns[i].kind == IS_TYPE || columns[i].kind == IS_TEXT)
            batch->columns[i].heap = texts;
    output->bad_count = 0;
}

static void *nexmark_decoder_new(struct source *source LEAT_UNUSED)
{
    return mem_calloc(1, sizeof(struct byte_buffer));
}

static void nexmark_decoder_free(void *decoder)
{
    if (decoder != NULL)
        buffer_free(decoder);
    free(decoder);
}

static void nexmark_progress(struct source *source, struct source_progress *progress)
{
    const struct nexmark *nexmark = source->config;
    *progress =
        (struct source_progress){.bytes_total = -1, .bytes_done = -1, .records_total = nexmark->events};
}

static void nexmark_report(struct source *source, struct report *report)
{
    struct nexmark *nexmark = source->config;
    if (nexmark->pace > 0)
        report_add(report, "began_us", (double)__atomic_load_n(&nexmark->began_us, __ATOMIC_RELAXED), false);
}

const struct source_kind source_nexmark = {
    .name = "nexmark",
    .summary = "generated events of an auction site: persons, auctions, bids",
    .example = "source events = nexmark { events: 1000, seed: 1, event_time: date_time }",
    .details =
        "Of 50 events one is a person, three are auctions, 46 are bids. Columns: type (person, auction, "
        "bid), date_time, extra; of persons and auctions id; of persons name, email, credit_card, city, "
        "state; of auctions item_name, description, initial_bid, reserve, expires, seller, category; of bids "
        "auction, bidder, price, channel, url. Columns that an event does not have are null. `leat generate "
        "nexmark` writes the same events as JSON lines. With a `pace` the report has began_us, the time of "
        "event 0 by the machine's monotonic clock.",
    .options = nexmark_options,
    .size = sizeof(struct nexmark),
    .bind = nexmark_bind,
    .open = nexmark_open,
    .partition_name = nexmark_partition_name,
    .seek = nexmark_seek,
    .read = nexmark_read,
    .decode = nexmark_decode,
    .decoder_new = nexmark_decoder_new,
    .decoder_free = nexmark_decoder_free,
    .progress = nexmark_progress,
    .report = nexmark_report,
    .close = nexmark_close,
};
