/* batch_digest of core/batch.h. Each column has three xxh3-128 streams: values, lengths (texts, lists) and
 * the row numbers of nulls. A stream's hash does not depend on how its bytes were split into updates, so
 * batches may be split anywhere, and whole arrays are hashed at once. */
#include "core/batch.h"

#include "core/buffer.h"
#include "core/mem.h"

#include <stdio.h>
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum stream { STREAM_VALUES, STREAM_LENGTHS, STREAM_NULLS, STREAMS };

struct column_digest {
    XXH3_state_t streams[STREAMS];
    uint64_t rows;
    uint32_t tag, children_count;
    struct column_digest *children; /* children of a list column */
};

struct batch_digest {
    struct column_digest *columns; /* the event time, then the schema's columns; NULL before
                                      the first batch */
    uint32_t columns_count;
    struct byte_buffer scratch;
};

struct batch_digest *batch_digest_new(void)
{
    struct batch_digest *digest = mem_calloc(1, sizeof(*digest));
    return digest;
}

static struct column_digest *columns_new(uint32_t count)
{
    struct column_digest *columns = mem_aligned(64, MAX(count, 1) * sizeof(*columns));
    memset(columns, 0, MAX(count, 1) * sizeof(*columns));
    for (uint32_t i = 0; i < count; i++)
        for (int stream = 0; stream < STREAMS; stream++)
            XXH3_128bits_reset(&columns[i].streams[stream]);
    return columns;
}

_Static_assert(sizeof(struct column_digest) % 64 == 0, "aligned_alloc");

static void columns_free(struct column_digest *columns, uint32_t count)
{
    for (uint32_t i = 0; columns != NULL && i < count; i++)
        columns_free(columns[i].children, columns[i].children_count);
    free(columns);
}

void batch_digest_free(struct batch_digest *digest)
{
    if (digest == NULL)
        return;
    columns_free(digest->columns, digest->columns_count);
    buffer_free(&digest->scratch);
    free(digest);
}

/* `count` rows of a column: those in `rows`, or rows 0 to count - 1 if `rows` is NULL. */
struct row_set {
    const uint32_t *rows;
    uint32_t count;
};

static inline uint32_t row_at(struct row_set set, uint32_t i)
{
    return set.rows == NULL ? i : set.rows[i];
}

static void update(struct column_digest *into, enum stream stream, const void *data, size_t bytes)
{
    if (bytes > 0)
        XXH3_128bits_update(&into->streams[stream], data, bytes);
}

static void add_nulls(struct column_digest *into, const struct column *column, struct row_set set)
{
    for (uint32_t i = 0; column->valid != NULL && i < set.count; i++) {
        uint64_t number = into->rows + i;
        if (!bit_get(column->valid, row_at(set, i)))
            update(into, STREAM_NULLS, &number, sizeof(number));
    }
}

static void add_fixed(struct batch_digest *digest, struct column_digest *into, const struct column *column,
                      struct row_set set)
{
    size_t width = column->tag == TYPE_BOOL ? sizeof(uint8_t) : sizeof(int64_t);
    if (set.rows == NULL && column->valid == NULL) {
        update(into, STREAM_VALUES, column->data, set.count * width);
        return;
    }
    buffer_clear(&digest->scratch);
    char *out = buffer_reserve(&digest->scratch, set.count * width);
    for (uint32_t i = 0; i < set.count; i++) {
        uint32_t row = row_at(set, i);
        bool is_valid = column_is_valid(column, row);
        if (width == 1) {
            out[i] = (char)(is_valid ? column->bools[row] : 0);
        } else {
            int64_t value = is_valid ? column->ints[row] : 0;
            memcpy(out + i * width, &value, width);
        }
    }
    update(into, STREAM_VALUES, out, set.count * width);
}

static void add_texts(struct batch_digest *digest, struct column_digest *into, const struct column *column,
                      struct row_set set)
{
    buffer_clear(&digest->scratch);
    size_t bytes = 0;
    uint32_t *lengths = (uint32_t *)(void *)buffer_reserve(&digest->scratch, set.count * sizeof(*lengths));
    for (uint32_t i = 0; i < set.count; i++) {
        uint32_t row = row_at(set, i);
        lengths[i] = column_is_valid(column, row) ? column->texts[row].length : 0;
        bytes += lengths[i];
    }
    update(into, STREAM_LENGTHS, lengths, set.count * sizeof(*lengths));
    buffer_clear(&digest->scratch);
    char *out = buffer_reserve(&digest->scratch, bytes);
    for (uint32_t i = 0; i < set.count; i++) {
        uint32_t row = row_at(set, i);
        if (!column_is_valid(column, row) || column->texts[row].length == 0)
            continue;
        memcpy(out, column->heap + column->texts[row].offset, column->texts[row].length);
        out += column->texts[row].length;
    }
    update(into, STREAM_VALUES, digest->scratch.data, bytes);
}

static void add_column(struct batch_digest *digest, struct column_digest *into, const struct column *column,
                       struct row_set set);

static void add_lists(struct batch_digest *digest, struct column_digest *into, const struct column *column,
                      struct row_set set)
{
    struct byte_buffer elements = {0};
    for (uint32_t i = 0; i < set.count; i++) {
        uint32_t row = row_at(set, i);
        struct list_ref list = column_is_valid(column, row) ? column->lists[row] : (struct list_ref){0, 0};
        update(into, STREAM_LENGTHS, &list.length, sizeof(list.length));
        for (uint32_t k = 0; k < list.length; k++) {
            uint32_t element = list.offset + k;
            buffer_append(&elements, &element, sizeof(element));
        }
    }
    uint32_t none = 0;
    struct row_set below = {elements.data == NULL ? &none : (const uint32_t *)(const void *)elements.data,
                            (uint32_t)(elements.length / sizeof(uint32_t))};
    if (into->children == NULL) {
        into->children_count = column->children_count;
        into->children = columns_new(column->children_count);
    }
    for (uint32_t i = 0; i < into->children_count; i++)
        add_column(digest, &into->children[i], &column->children[i], below);
    buffer_free(&elements);
}

static void add_column(struct batch_digest *digest, struct column_digest *into, const struct column *column,
                       struct row_set set)
{
    into->tag = column->tag;
    add_nulls(into, column, set);
    switch (column->tag) {
    case TYPE_TEXT:
    case TYPE_BYTES: add_texts(digest, into, column, set); break;
    case TYPE_LIST: add_lists(digest, into, column, set); break;
    default: add_fixed(digest, into, column, set); break;
    }
    into->rows += set.count;
}

void batch_digest_add(struct batch_digest *digest, const struct batch *batch)
{
    uint32_t rows[BATCH_ROWS];
    struct row_set set = {NULL, batch->selected};
    if (batch->sel != NULL) {
        for (uint32_t i = 0; i < batch->selected; i++)
            rows[i] = batch->sel[i];
        set.rows = rows;
    }
    if (digest->columns == NULL) {
        digest->columns_count = 1 + batch->schema->count;
        digest->columns = columns_new(digest->columns_count);
    }
    leat_assert(digest->columns_count == 1 + batch->schema->count);
    struct column event_time = {.tag = TYPE_TIME, .ints = batch->event_time};
    add_column(digest, &digest->columns[0], &event_time, set);
    for (uint32_t i = 0; i < batch->schema->count; i++)
        add_column(digest, &digest->columns[1 + i], &batch->columns[i], set);
}

static void fold(XXH3_state_t *state, const struct column_digest *columns, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        XXH3_128bits_update(state, &columns[i].rows, sizeof(columns[i].rows));
        XXH3_128bits_update(state, &columns[i].tag, sizeof(columns[i].tag));
        for (int stream = 0; stream < STREAMS; stream++) {
            XXH128_canonical_t part;
            XXH128_canonicalFromHash(&part, XXH3_128bits_digest(&columns[i].streams[stream]));
            XXH3_128bits_update(state, &part, sizeof(part));
        }
        fold(state, columns[i].children, columns[i].children_count);
    }
}

void batch_digest_hex(const struct batch_digest *digest, char hex[33])
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    fold(&state, digest->columns, digest->columns_count);
    XXH128_hash_t hash = XXH3_128bits_digest(&state);
    snprintf(hex, 33, "%016llx%016llx", (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}

/* --- Checkpoints: hash states as they are in memory, depth first --- */

static void save_columns(const struct column_digest *columns, uint32_t count, struct byte_buffer *out)
{
    buffer_append(out, &count, sizeof(count));
    for (uint32_t i = 0; i < count; i++) {
        buffer_append(out, &columns[i].rows, sizeof(columns[i].rows));
        buffer_append(out, &columns[i].tag, sizeof(columns[i].tag));
        buffer_append(out, columns[i].streams, sizeof(columns[i].streams));
        save_columns(columns[i].children, columns[i].children_count, out);
    }
}

void batch_digest_save(const struct batch_digest *digest, struct byte_buffer *out)
{
    save_columns(digest->columns, digest->columns_count, out);
}

struct saved {
    const char *at, *end;
    uint32_t depth;
};

static bool take(struct saved *saved, void *into, size_t bytes)
{
    if ((size_t)(saved->end - saved->at) < bytes)
        return false;
    memcpy(into, saved->at, bytes);
    saved->at += bytes;
    return true;
}

/* Makes a hash state that another process saved usable here: sets the state's pointer to the library's
 * secret. false: the state is invalid. */
static bool mend_state(XXH3_state_t *state)
{
    XXH3_state_t fresh;
    XXH3_128bits_reset(&fresh);
    state->extSecret = fresh.extSecret;
    return state->bufferedSize <= sizeof(state->buffer) && state->secretLimit == fresh.secretLimit &&
           state->nbStripesPerBlock == fresh.nbStripesPerBlock &&
           state->nbStripesSoFar <= state->nbStripesPerBlock && state->seed == fresh.seed;
}

static bool load_columns(struct saved *saved, struct column_digest **columns, uint32_t *count)
{
    enum { DEPTH_MAX = 16 };
    uint32_t wanted;
    if (saved->depth == DEPTH_MAX || !take(saved, &wanted, sizeof(wanted)) || wanted > SCHEMA_FIELDS_MAX + 1)
        return false;
    if (wanted == 0)
        return true;
    *columns = columns_new(wanted);
    *count = wanted;
    saved->depth++;
    for (uint32_t i = 0; i < wanted; i++) {
        struct column_digest *into = &(*columns)[i];
        if (!take(saved, &into->rows, sizeof(into->rows)) || !take(saved, &into->tag, sizeof(into->tag)) ||
            !take(saved, into->streams, sizeof(into->streams)))
            return false;
        for (int stream = 0; stream < STREAMS; stream++)
            if (!mend_state(&into->streams[stream]))
                return false;
        if (!load_columns(saved, &into->children, &into->children_count))
            return false;
    }
    saved->depth--;
    return true;
}

bool batch_digest_load(struct batch_digest *digest, const char *data, size_t bytes)
{
    struct saved saved = {data, data + bytes, 0};
    columns_free(digest->columns, digest->columns_count);
    digest->columns = NULL;
    digest->columns_count = 0;
    return load_columns(&saved, &digest->columns, &digest->columns_count) && saved.at == saved.end;
}
