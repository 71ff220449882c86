/* A library for leat: two functions and two operators. Build it with the CMakeLists.txt beside it, then
 *
 *     leat help --use build/libgeo.so
 *     leat run trips.leat
 *
 * What each member means is in leat.h. */
#include "leat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- haversine(lat1, lon1, lat2, lon2): four columns of floats -> one --- */

static void haversine(struct leat_call *call)
{
    const double radius_km = 6371.0, radian = 3.14159265358979323846 / 180;
    const double *lat1 = call->argument[0].values.floats, *lon1 = call->argument[1].values.floats;
    const double *lat2 = call->argument[2].values.floats, *lon2 = call->argument[3].values.floats;
    for (uint32_t i = 0; i < call->rows; i++) {
        if (fabs(lat1[i]) > 90 || fabs(lat2[i]) > 90) {
            call->fail(call, i, "a latitude is beyond 90 degrees");
            continue;
        }
        double a = sin((lat2[i] - lat1[i]) * radian / 2), b = sin((lon2[i] - lon1[i]) * radian / 2);
        double h = a * a + cos(lat1[i] * radian) * cos(lat2[i] * radian) * b * b;
        call->result.floats[i] = 2 * radius_km * asin(sqrt(h < 1 ? h : 1));
    }
}

/* --- initials(name, fallback): texts, and a function that is called for nulls, too --- */

static void initials(struct leat_call *call)
{
    const struct leat_column *names = &call->argument[0], *fallbacks = &call->argument[1];
    for (uint32_t i = 0; i < call->rows; i++) {
        if (leat_is_null(names, i)) {
            if (leat_is_null(fallbacks, i))
                call->set_null(call, i);
            else
                call->result.texts[i] = fallbacks->values.texts[i];
            continue;
        }
        struct leat_text name = names->values.texts[i];
        char *out = call->allocate(call, name.length);
        size_t length = 0;
        for (size_t k = 0; k < name.length; k++)
            if (name.data[k] >= 'A' && name.data[k] <= 'Z')
                out[length++] = name.data[k];
        call->result.texts[i] = (struct leat_text){out, length};
    }
}

static const struct leat_function functions[] = {
    {.name = "haversine",
     .signature = "haversine(lat1, lon1, lat2, lon2)",
     .summary = "kilometres between two places, whose latitudes and longitudes are in degrees",
     .example = "haversine(52.5, 13.4, 48.9, 2.35)",
     .arguments = "ffff",
     .result = 'f',
     .call = haversine},
    {.name = "initials",
     .signature = "initials(name, fallback)",
     .summary = "the capital letters of a name; the fallback for a null name",
     .example = "initials(name, \"?\")",
     .arguments = "tt",
     .result = 't',
     .flags = LEAT_SEES_NULLS,
     .call = initials},
    {0},
};

/* --- since by KEY: the time since the key's row before --- */

/* What is remembered of a key. key.group = free_place: the place is free. */
struct seen {
    struct leat_key key;
    int64_t time; /* of the key's newest row */
    int64_t rows;
    int64_t value; /* of the key's column, in `silent` */
};

/* A hash table with open addressing, at most half full. */
struct table {
    struct seen *places;
    uint32_t capacity, count;
};

static const uint32_t free_place = UINT32_MAX;

static struct seen *find(struct table *table, struct leat_key key)
{
    uint32_t at = (uint32_t)((key.low ^ key.high >> 7) * 0x9E3779B97F4A7C15u >> 32) & (table->capacity - 1);
    while (table->places[at].key.group != free_place &&
           (table->places[at].key.low != key.low || table->places[at].key.high != key.high))
        at = (at + 1) & (table->capacity - 1);
    return &table->places[at];
}

static bool rebuild(struct table *table, uint32_t capacity, int64_t from)
{
    struct table next = {malloc(capacity * sizeof(struct seen)), capacity, 0};
    if (next.places == NULL)
        return false;
    for (uint32_t i = 0; i < capacity; i++)
        next.places[i].key.group = free_place;
    for (uint32_t i = 0; i < table->capacity; i++)
        if (table->places[i].key.group != free_place && table->places[i].time >= from) {
            *find(&next, table->places[i].key) = table->places[i];
            next.count++;
        }
    free(table->places);
    *table = next;
    return true;
}

/* The key's place. A new key has rows = 0. */
static struct seen *take(struct table *table, struct leat_key key)
{
    if (table->count * 2 >= table->capacity && !rebuild(table, table->capacity * 2, INT64_MIN))
        abort(); /* no memory: leat's message names this library */
    struct seen *seen = find(table, key);
    if (seen->key.group == free_place) {
        *seen = (struct seen){.key = key};
        table->count++;
    }
    return seen;
}

static bool write_table(const struct table *table, struct leat_writer *writer)
{
    for (uint32_t i = 0; i < table->capacity; i++)
        if (table->places[i].key.group != free_place &&
            !writer->put(writer, table->places[i].key.group, &table->places[i], sizeof(struct seen)))
            return false;
    return true;
}

/* Writes the keys of the groups that leave, and forgets them. */
static bool give_table(struct table *table, const bool *leaving, struct leat_writer *writer)
{
    struct table rest = {NULL, 0, 0};
    if (!rebuild(&rest, table->capacity, INT64_MIN))
        return false;
    for (uint32_t i = 0; i < table->capacity; i++) {
        const struct seen *seen = &table->places[i];
        if (seen->key.group == free_place)
            continue;
        if (!leaving[seen->key.group])
            *take(&rest, seen->key) = *seen;
        else if (!writer->put(writer, seen->key.group, seen, sizeof(*seen)))
            return false; /* the job stops */
    }
    free(table->places);
    *table = rest;
    return true;
}

static bool read_table(struct table *table, const void *data, size_t bytes)
{
    struct seen seen;
    if (bytes != sizeof(seen))
        return false;
    memcpy(&seen, data, bytes);
    *take(table, seen.key) = seen;
    return true;
}

struct since {
    struct leat_column_refs by;
    int64_t forget_us;
    struct table table;
};

static const struct leat_option since_options[] = {
    {.name = "by",
     .type = LEAT_OPTION_COLUMNS,
     .flags = LEAT_REQUIRED,
     .offset = offsetof(struct since, by),
     .help = "the columns of the key"},
    {.name = "forget",
     .type = LEAT_OPTION_DURATION,
     .offset = offsetof(struct since, forget_us),
     .default_text = "1h",
     .min_text = "1s",
     .max_text = "30d",
     .help = "how long a key without rows is remembered"},
    {0},
};

static bool since_bind(struct leat_bind *bind)
{
    bind->add(bind, "since_ms", LEAT_INT);
    return true;
}

static bool since_open(struct leat_context *context)
{
    struct since *since = context->config;
    return rebuild(&since->table, 64, INT64_MIN);
}

/* Keys with an earlier time count as forgotten, removed or not: so no row depends on when rebuild runs. */
static int64_t oldest_at(const struct since *since, int64_t watermark)
{
    return watermark < INT64_MIN + since->forget_us ? INT64_MIN : watermark - since->forget_us;
}

static void since_process(struct leat_context *context, const struct leat_batch *batch)
{
    struct since *since = context->config;
    int64_t oldest = oldest_at(since, context->watermark);
    for (uint32_t i = 0; i < batch->rows; i++) {
        struct seen *seen = take(&since->table, batch->key[i]);
        bool is_known =
            seen->rows > 0 && seen->time >= oldest && batch->event_time[i] - seen->time <= since->forget_us;
        context->emit(context, i);
        if (is_known)
            context->set_int(context, 0, (batch->event_time[i] - seen->time) / 1000);
        seen->time = !is_known || batch->event_time[i] > seen->time ? batch->event_time[i] : seen->time;
        seen->rows++;
    }
}

static void since_on_watermark(struct leat_context *context, int64_t watermark)
{
    struct since *since = context->config;
    if (since->table.count * 4 > since->table.capacity)
        rebuild(&since->table, since->table.capacity, oldest_at(since, watermark));
}

static bool since_snapshot(struct leat_context *context, struct leat_writer *writer)
{
    return write_table(&((struct since *)context->config)->table, writer);
}

static bool since_restore(struct leat_context *context, const void *data, size_t bytes)
{
    return read_table(&((struct since *)context->config)->table, data, bytes);
}

static bool since_give(struct leat_context *context, const bool *leaving, struct leat_writer *writer)
{
    return give_table(&((struct since *)context->config)->table, leaving, writer);
}

static void since_close(struct leat_context *context)
{
    free(((struct since *)context->config)->table.places);
}

/* --- silent by KEY after 30m: a row for each key that has been without rows --- */

struct silent {
    struct leat_column_refs by;
    int64_t after_us;
    struct table table;
};

static const struct leat_option silent_options[] = {
    {.name = "by",
     .type = LEAT_OPTION_COLUMNS,
     .flags = LEAT_REQUIRED,
     .offset = offsetof(struct silent, by),
     .help = "the columns of the key"},
    {.name = "after",
     .type = LEAT_OPTION_DURATION,
     .flags = LEAT_REQUIRED,
     .offset = offsetof(struct silent, after_us),
     .min_text = "1s",
     .max_text = "30d",
     .help = "how long a key must be without rows"},
    {0},
};

static bool silent_bind(struct leat_bind *bind)
{
    const struct silent *silent = bind->config;
    if (silent->by.count != 1 || bind->column[silent->by.items[0].index].type != LEAT_INT) {
        bind->error(bind, "the key must be one column of type int", "for example: silent by user after 30m");
        return false;
    }
    bind->keeps_input = false;
    bind->add(bind, "key", LEAT_INT);
    bind->add(bind, "last", LEAT_TIME);
    bind->add(bind, "rows", LEAT_INT);
    return true;
}

static bool silent_open(struct leat_context *context)
{
    struct silent *silent = context->config;
    return rebuild(&silent->table, 64, INT64_MIN);
}

static void silent_process(struct leat_context *context, const struct leat_batch *batch)
{
    struct silent *silent = context->config;
    const struct leat_column *column = &batch->column[silent->by.items[0].index];
    for (uint32_t i = 0; i < batch->rows; i++) {
        if (leat_is_null(column, i)) {
            context->reject(context, i, "the key is null");
            continue;
        }
        struct seen *seen = take(&silent->table, batch->key[i]);
        seen->time = seen->rows == 0 || batch->event_time[i] > seen->time ? batch->event_time[i] : seen->time;
        seen->value = column->values.ints[i];
        seen->rows++;
    }
}

static void silent_on_watermark(struct leat_context *context, int64_t watermark)
{
    struct silent *silent = context->config;
    /* INT64_MIN: no watermark yet; INT64_MAX: the end. */
    bool is_end = watermark == INT64_MIN || watermark == INT64_MAX;
    int64_t from = is_end ? watermark : watermark - silent->after_us;
    uint32_t gone = 0;
    for (uint32_t i = 0; i < silent->table.capacity; i++) {
        const struct seen *seen = &silent->table.places[i];
        if (seen->key.group == free_place || seen->time >= from)
            continue;
        context->emit_at(context, seen->time + silent->after_us, seen->key);
        context->set_int(context, 0, seen->value);
        context->set_int(context, 1, seen->time);
        context->set_int(context, 2, seen->rows);
        gone++;
    }
    if (gone > 0)
        rebuild(&silent->table, silent->table.capacity, from);
}

static bool silent_snapshot(struct leat_context *context, struct leat_writer *writer)
{
    return write_table(&((struct silent *)context->config)->table, writer);
}

static bool silent_restore(struct leat_context *context, const void *data, size_t bytes)
{
    return read_table(&((struct silent *)context->config)->table, data, bytes);
}

static bool silent_give(struct leat_context *context, const bool *leaving, struct leat_writer *writer)
{
    return give_table(&((struct silent *)context->config)->table, leaving, writer);
}

static void silent_close(struct leat_context *context)
{
    free(((struct silent *)context->config)->table.places);
}

static const struct leat_operator operators[] = {
    {.name = "since",
     .summary = "adds the time since the key's previous row",
     .example = "trips | since by user forget 2h",
     .details = "`since_ms`: int, null where no previous row of the key is remembered.",
     .options = since_options,
     .size = sizeof(struct since),
     .key = "by",
     .uses_time = true,
     .bind = since_bind,
     .open = since_open,
     .process = since_process,
     .on_watermark = since_on_watermark,
     .snapshot = since_snapshot,
     .restore = since_restore,
     .give = since_give,
     .take = since_restore,
     .close = since_close},
    {.name = "silent",
     .summary = "emits a row for each key that has had no rows for a while",
     .example = "trips | silent by user after 30m",
     .options = silent_options,
     .size = sizeof(struct silent),
     .key = "by",
     .uses_time = true,
     .bind = silent_bind,
     .open = silent_open,
     .process = silent_process,
     .on_watermark = silent_on_watermark,
     .snapshot = silent_snapshot,
     .restore = silent_restore,
     .give = silent_give,
     .take = silent_restore,
     .close = silent_close},
    {0},
};

LEAT_EXPORT = {.abi = LEAT_ABI, .name = "geo 1.0", .functions = functions, .operators = operators};
