/* Source `sequence`: numbered records for load tests. Each record is a function of its number, so lanes make
 * records in parallel and a resume begins anywhere. */
#include "core/connector.h"
#include "core/operator.h"

#include <stdlib.h>
#include <xxhash.h>

struct sequence {
    int64_t count, keys, seed, start_us;
    double rate, skew;

    uint64_t next; /* number of the next record */
};

static const struct option sequence_options[] = {
    OPTION_INT(struct sequence, count, "count", 0, "1000000", "0", "1000000000000000", "number of records"),
    OPTION_INT(struct sequence, keys, "keys", 0, "1000", "1", "1000000000000", "number of different keys"),
    OPTION_FLOAT(struct sequence, skew, "skew", 0, "0", "0", "4",
                 "0: keys take turns; above 0: the frequency of key k is about proportional to 1 / (k "
                 "+ 1)^skew (Zipf)"),
    OPTION_FLOAT(struct sequence, rate, "rate", 0, "1000", "0.000001", "1000000000000",
                 "records in a second of event time"),
    OPTION_DURATION(struct sequence, start_us, "start", 0, "0s", "0s", "36500d",
                    "event time of the first record, since 1970"),
    OPTION_INT(struct sequence, seed, "seed", 0, "1", "0", "9223372036854775807", "seed of keys and values"),
    OPTIONS_END,
};

enum { COLUMN_ID, COLUMN_KEY, COLUMN_VALUE, COLUMN_TS, COLUMNS };

static bool sequence_bind(struct source_bind *bind)
{
    static const struct {
        const char *name;
        enum type_tag tag;
    } columns[COLUMNS] = {{"id", TYPE_INT}, {"key", TYPE_INT}, {"value", TYPE_FLOAT}, {"ts", TYPE_TIME}};
    const struct sequence *sequence = bind->config;
    struct schema *schema = arena_new(bind->arena, struct schema);
    schema->fields = arena_array(bind->arena, struct field, COLUMNS);
    for (size_t i = 0; i < COLUMNS; i++)
        schema_add(schema, str_from(columns[i].name), type_of(columns[i].tag));
    bind->schema = schema;
    bind->is_bounded = bind->is_replayable = true;
    if (bind->declared != NULL) {
        struct diag *d = diag_error(bind->diags, DIAG_OPTIONS_CLASH, bind->span,
                                    "source `sequence` defines its own columns");
        diag_hint(bind->diags, d, "leave `schema:` out; the columns are id, key, value and ts");
        return false;
    }
    if ((double)sequence->count / sequence->rate > 1e11) {
        struct diag *d =
            diag_error(bind->diags, DIAG_OPTIONS_CLASH, bind->span,
                       "`count` records at this `rate` span more than 3,000 years of event time");
        diag_hint(bind->diags, d, "choose a smaller `count`, or a higher `rate`");
        return false;
    }
    return true;
}

static bool sequence_open(struct source *source)
{
    source->partitions_count = 1;
    return true;
}

static const char *sequence_partition_name(struct source *source LEAT_UNUSED, uint32_t partition LEAT_UNUSED)
{
    return "sequence";
}

static bool sequence_seek(struct source *source, uint32_t partition LEAT_UNUSED,
                          const struct source_position *position)
{
    struct sequence *sequence = source->config;
    __atomic_store_n(&sequence->next, position->record, __ATOMIC_RELAXED);
    return true;
}

static enum read_status sequence_read(struct source *source, uint32_t partition LEAT_UNUSED,
                                      struct raw_batch *raw)
{
    struct sequence *sequence = source->config;
    uint64_t next = sequence->next, count = (uint64_t)sequence->count;
    if (next >= count)
        return READ_END;
    raw->records = NULL;
    raw->data_bytes = 0;
    raw->count = (uint32_t)MIN(count - next, BATCH_ROWS);
    raw->position = (struct source_position){.record = next};
    raw->next = (struct source_position){.record = next + raw->count};
    raw->path = "sequence";
    raw->first_line = raw->first_offset = -1;
    __atomic_store_n(&sequence->next, next + raw->count, __ATOMIC_RELAXED);
    return READ_BATCH;
}

/* --- exp and log with the same bits on every machine: only + - * /, in a fixed order --- */

static double own_log(double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    int64_t exponent = (bits >> 52) - 1023;
    bits = (bits & INT64_C(0xfffffffffffff)) | INT64_C(1023) << 52;
    double m;
    memcpy(&m, &bits, sizeof(m));
    /* 1 <= m < 2; ln m = 2 atanh((m - 1) / (m + 1)), a series whose terms shrink by a factor of 9. */
    double t = (m - 1) / (m + 1), square = t * t, sum = 0;
    for (int k = 27; k >= 1; k -= 2)
        sum = sum * square + 1.0 / k;
    return (double)exponent * 0.6931471805599453 + 2 * t * sum;
}

static double own_exp(double x)
{
    int64_t n = (int64_t)(x * 1.4426950408889634 + (x < 0 ? -0.5 : 0.5));
    double r = x - (double)n * 0.6931471805599453, sum = 1;
    for (int k = 16; k >= 1; k--)
        sum = sum * r / k + 1;
    int64_t bits = (n + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof(power));
    return sum * power;
}

/* Draws a key by a continuous form of Zipf's law: floor(x) - 1, where x >= 1 has a density of 1 / x^skew up
 * to keys + 1. uniform: a random number in [0, 1). */
static int64_t zipf_key(double uniform, int64_t keys, double skew)
{
    double top = own_log((double)keys + 1), rest = 1 - skew, x;
    if (rest > -1e-6 && rest < 1e-6)
        x = own_exp(uniform * top);
    else
        x = own_exp(own_log(1 + uniform * (own_exp(rest * top) - 1)) / rest);
    int64_t key = (int64_t)x - 1;
    return key < 0 ? 0 : MIN(key, keys - 1);
}

static double to_uniform(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

static void sequence_decode(struct source *source, void *decoder LEAT_UNUSED, struct raw_batch *raw,
                            struct decode_output *output)
{
    const struct sequence *sequence = source->config;
    struct column *columns = output->batch->columns;
    double microseconds = 1e6 / sequence->rate;
    for (uint32_t row = 0; row < raw->count; row++) {
        uint64_t record = raw->position.record + row;
        XXH128_hash_t random = XXH3_128bits_withSeed(&record, sizeof(record), (uint64_t)sequence->seed);
        columns[COLUMN_ID].ints[row] = (int64_t)record;
        columns[COLUMN_KEY].ints[row] =
            sequence->skew > 0 ? zipf_key(to_uniform(random.low64), sequence->keys, sequence->skew)
                               : (int64_t)(record % (uint64_t)sequence->keys);
        columns[COLUMN_VALUE].floats[row] = to_uniform(random.high64);
        columns[COLUMN_TS].ints[row] = sequence->start_us + (int64_t)((double)record * microseconds);
    }
    output->bad_count = 0;
}

static void sequence_progress(struct source *source, struct source_progress *progress)
{
    const struct sequence *sequence = source->config;
    *progress =
        (struct source_progress){.bytes_total = -1, .bytes_done = -1, .records_total = sequence->count};
}

const struct source_kind source_sequence = {
    .name = "sequence",
    .summary = "generated records id, key, value, ts, for load tests",
    .example = "source load = sequence { count: 1000, keys: 100, skew: 1.0, event_time: ts }",
    .details =
        "`id` counts from 0, `key` is an int below `keys`, `value` a float in [0, 1), `ts` rises by 1 / rate "
        "seconds. Each record is a function of its number and the seed.",
    .options = sequence_options,
    .size = sizeof(struct sequence),
    .bind = sequence_bind,
    .open = sequence_open,
    .partition_name = sequence_partition_name,
    .seek = sequence_seek,
    .read = sequence_read,
    .decode = sequence_decode,
    .progress = sequence_progress,
};
