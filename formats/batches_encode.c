/* Columns -> batches: rows are collected until a block is full, then packed. */
#include "formats/batches.h"

#include "core/mem.h"

#include <stdlib.h>
#include <xxhash.h>

/* A column of the block that is being filled. `column` is the packer's view of it; the memory grows. */
struct collected {
    struct column column;
    const struct type *type;
    uint32_t rows, capacity;
    uint64_t *valid; /* room for `capacity` bits; column.valid is NULL until the first null */
    struct byte_buffer heap;
    struct collected *children;
};

struct encoder {
    struct arena arena;
    const struct schema *schema;
    struct collected *columns;
    struct collected times[3]; /* event, arrival, order */
    uint32_t rows;
    size_t bytes; /* roughly the bytes of the values collected */
    uint64_t rows_total, blocks_total;
    struct batches_packer *packer;
};

enum { TIME_EVENT, TIME_ARRIVAL, TIME_ORDER, TIMES };

static void init_column(struct arena *arena, struct collected *into, const struct type *type)
{
    *into = (struct collected){.type = type, .column = {.tag = type->tag}};
    if (type->tag != TYPE_LIST)
        return;
    bool is_record = type->element->tag == TYPE_RECORD;
    uint32_t count = into->column.children_count = is_record ? type->element->fields->count : 1;
    into->children = arena_array(arena, struct collected, count);
    into->column.children = arena_array(arena, struct column, count);
    for (uint32_t i = 0; i < count; i++)
        init_column(arena, &into->children[i],
                    is_record ? &type->element->fields->fields[i].type : type->element);
}

static void free_column(struct collected *column)
{
    free(column->column.data);
    free(column->valid);
    buffer_free(&column->heap);
    for (uint32_t i = 0; i < column->column.children_count; i++)
        free_column(&column->children[i]);
}

static void clear_column(struct collected *column)
{
    column->rows = 0;
    column->column.valid = NULL;
    buffer_clear(&column->heap);
    for (uint32_t i = 0; i < column->column.children_count; i++)
        clear_column(&column->children[i]);
}

static void grow(struct collected *into)
{
    uint32_t capacity = into->capacity == 0 ? BATCH_ROWS : into->capacity * 2;
    into->column.data = mem_realloc(into->column.data, capacity * sizeof(int64_t));
    into->valid = mem_realloc(into->valid, capacity / 8);
    if (into->column.valid != NULL)
        into->column.valid = into->valid;
    into->capacity = capacity;
}

static void add_value(struct collected *into, const struct column *from, uint32_t row);

static void add_list(struct collected *into, const struct column *from, uint32_t row)
{
    struct list_ref list = from->lists[row];
    uint32_t first = into->children[0].rows;
    for (uint32_t i = 0; i < into->column.children_count; i++)
        for (uint32_t j = 0; j < list.length; j++)
            add_value(&into->children[i], &from->children[i], list.offset + j);
    into->column.lists[into->rows] = (struct list_ref){first, list.length};
}

static void add_null(struct collected *into)
{
    if (into->column.valid == NULL) {
        into->column.valid = into->valid;
        memset(into->valid, 0xff, into->capacity / 8);
    }
    bit_clear(into->valid, into->rows);
    if (into->column.tag == TYPE_BOOL)
        into->column.bools[into->rows] = 0;
    else
        into->column.ints[into->rows] = 0;
    if (into->column.tag == TYPE_LIST)
        into->column.lists[into->rows].offset = into->children[0].rows;
}

static void add_value(struct collected *into, const struct column *from, uint32_t row)
{
    if (into->rows == into->capacity)
        grow(into);
    if (!column_is_valid(from, row)) {
        add_null(into);
        into->rows++;
        return;
    }
    if (into->column.valid != NULL)
        bit_set(into->valid, into->rows);
    switch (into->column.tag) {
    case TYPE_BOOL: into->column.bools[into->rows] = from->bools[row]; break;
    case TYPE_TEXT:
    case TYPE_BYTES: {
        struct str text = column_text(from, row);
        into->column.texts[into->rows] =
            (struct text_ref){(uint32_t)into->heap.length, (uint32_t)text.length};
        buffer_append(&into->heap, text.data, text.length);
        break;
    }
    case TYPE_LIST: add_list(into, from, row); break;
    default: into->column.ints[into->rows] = from->ints[row]; break;
    }
    into->rows++;
}

/* The bytes of one value, as counted against BATCHES_BLOCK_BYTES. */
static size_t value_bytes(const struct column *column, uint32_t row)
{
    size_t sum = sizeof(int64_t);
    if (!column_is_valid(column, row))
        return sum;
    if (column->tag == TYPE_TEXT || column->tag == TYPE_BYTES)
        return sum + column->texts[row].length;
    if (column->tag != TYPE_LIST)
        return sum;
    for (uint32_t i = 0; i < column->children_count; i++)
        for (uint32_t j = 0; j < column->lists[row].length; j++)
            sum += value_bytes(&column->children[i], column->lists[row].offset + j);
    return sum;
}

/* How many of the rows from `first` on still go into the open block; at least one. */
static uint32_t rows_that_fit(struct encoder *encoder, const struct batch *batch, uint32_t first,
                              uint32_t count)
{
    uint32_t rows = 0;
    count = MIN(count, BATCH_ROWS - encoder->rows);
    while (rows < count && encoder->bytes < BATCHES_BLOCK_BYTES) {
        uint32_t row = batch_row(batch, first + rows++);
        for (uint32_t i = 0; i < encoder->schema->count; i++)
            encoder->bytes += value_bytes(&batch->columns[i], row);
    }
    return rows;
}

static void append_digest(struct byte_buffer *out, size_t begin)
{
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits(out->data + begin, out->length - begin));
    buffer_append(out, &digest, sizeof(digest));
}

/* Completes from->column as a view of the collected memory, children and heaps included. */
static void view(struct collected *from)
{
    from->column.heap = from->heap.data == NULL ? "" : from->heap.data;
    if (from->column.tag != TYPE_LIST)
        return;
    from->column.child_rows = from->children[0].rows;
    for (uint32_t i = 0; i < from->column.children_count; i++) {
        view(&from->children[i]);
        from->column.children[i] = from->children[i].column;
    }
}

static bool same_values(const struct collected *a, const struct collected *b, uint32_t rows)
{
    return a->column.valid == NULL && b->column.valid == NULL &&
           memcmp(a->column.ints, b->column.ints, rows * sizeof(int64_t)) == 0;
}

/* Packs the block's times, and sets in `head` where each is found: in a section, in a column, or nowhere. */
static void pack_times(struct encoder *encoder, struct batches_head *head, struct byte_buffer *out)
{
    struct collected *event = &encoder->times[TIME_EVENT];
    uint32_t rows = encoder->rows;
    head->times = BATCHES_EVENT_TIME;
    for (uint32_t i = 0; i < encoder->schema->count && head->times == BATCHES_EVENT_TIME; i++)
        if (encoder->columns[i].column.tag == TYPE_TIME && same_values(event, &encoder->columns[i], rows)) {
            head->times = BATCHES_EVENT_COLUMN;
            head->event_column = (uint16_t)i;
        }
    if (head->times == BATCHES_EVENT_TIME)
        batches_pack_column(encoder->packer, &event->column, rows, out);
    /* A time that some rows of the block lack is not kept for the block. */
    if (encoder->times[TIME_ARRIVAL].column.valid == NULL) {
        head->times |= BATCHES_ARRIVAL_TIME;
        batches_pack_column(encoder->packer, &encoder->times[TIME_ARRIVAL].column, rows, out);
    }
    if (encoder->times[TIME_ORDER].column.valid != NULL)
        return;
    if (same_values(event, &encoder->times[TIME_ORDER], rows)) {
        head->times |= BATCHES_ORDER_IS_EVENT;
        return;
    }
    head->times |= BATCHES_ORDER_TIME;
    batches_pack_column(encoder->packer, &encoder->times[TIME_ORDER].column, rows, out);
}

/* Appends the collected rows as a block. */
static void pack_block(struct encoder *encoder, struct byte_buffer *out)
{
    struct batches_head head = {.magic = BATCHES_BLOCK, .rows = encoder->rows};
    size_t begin = out->length;
    buffer_append(out, &head, sizeof(head));
    pack_times(encoder, &head, out);
    for (uint32_t i = 0; i < encoder->schema->count; i++) {
        view(&encoder->columns[i]);
        batches_pack_column(encoder->packer, &encoder->columns[i].column, encoder->rows, out);
    }
    head.bytes = (uint32_t)(out->length - begin + BATCHES_DIGEST_BYTES);
    memcpy(out->data + begin, &head, sizeof(head));
    append_digest(out, begin);
}

static void clear(struct encoder *encoder)
{
    for (uint32_t i = 0; i < encoder->schema->count; i++)
        clear_column(&encoder->columns[i]);
    for (uint32_t i = 0; i < TIMES; i++)
        clear_column(&encoder->times[i]);
    encoder->rows = 0;
    encoder->bytes = 0;
}

static void end_block(struct encoder *encoder, struct byte_buffer *out)
{
    if (encoder->rows == 0)
        return;
    pack_block(encoder, out);
    encoder->rows_total += encoder->rows;
    encoder->blocks_total++;
    clear(encoder);
}

static void collect_time(struct collected *into, const int64_t *times, uint32_t row)
{
    struct column column = {.tag = TYPE_TIME, .ints = (int64_t *)times};
    uint64_t none[BATCH_VALID_WORDS] = {0};
    if (times == NULL)
        column.valid = none;
    add_value(into, &column, row);
}

static void collect(struct encoder *encoder, const struct batch *batch, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < encoder->schema->count; i++)
        for (uint32_t j = first; j < first + count; j++)
            add_value(&encoder->columns[i], &batch->columns[i], batch_row(batch, j));
    const int64_t *times[TIMES] = {batch->event_time, batch->arrival_time, batch->order_time};
    for (uint32_t i = 0; i < TIMES; i++)
        for (uint32_t j = first; j < first + count; j++)
            collect_time(&encoder->times[i], times[i], batch_row(batch, j));
    encoder->rows += count;
}

void batches_encode(void *self, const struct batch *batch, uint32_t first, uint32_t count,
                    struct byte_buffer *out)
{
    struct encoder *encoder = self;
    while (count > 0) {
        uint32_t rows = rows_that_fit(encoder, batch, first, count);
        collect(encoder, batch, first, rows);
        first += rows;
        count -= rows;
        if (encoder->rows == BATCH_ROWS || encoder->bytes >= BATCHES_BLOCK_BYTES)
            end_block(encoder, out);
    }
}

void batches_encode_end(void *self, struct byte_buffer *out)
{
    struct encoder *encoder = self;
    end_block(encoder, out);
    size_t begin = out->length;
    struct batches_head head = {.magic = BATCHES_END};
    head.bytes = sizeof(head) + 2 * sizeof(uint64_t) + BATCHES_DIGEST_BYTES;
    buffer_append(out, &head, sizeof(head));
    buffer_append(out, &encoder->rows_total, sizeof(encoder->rows_total));
    buffer_append(out, &encoder->blocks_total, sizeof(encoder->blocks_total));
    append_digest(out, begin);
}

/* --- header --- */

static void put_fields(const struct schema *schema, struct byte_buffer *out);

static void put_type(const struct type *type, struct byte_buffer *out)
{
    uint8_t tag = (uint8_t)type->tag;
    buffer_append(out, &tag, 1);
    if (type->tag == TYPE_LIST)
        put_type(type->element, out);
    else if (type->tag == TYPE_RECORD)
        put_fields(type->fields, out);
}

static void put_fields(const struct schema *schema, struct byte_buffer *out)
{
    buffer_append(out, &schema->count, sizeof(schema->count));
    for (uint32_t i = 0; i < schema->count; i++) {
        uint16_t length = (uint16_t)MIN(schema->fields[i].name.length, UINT16_MAX);
        put_type(&schema->fields[i].type, out);
        buffer_append(out, &length, sizeof(length));
        buffer_append(out, schema->fields[i].name.data, length);
    }
}

void batches_encode_header(void *self, struct byte_buffer *out)
{
    const struct encoder *encoder = self;
    size_t begin = out->length;
    uint32_t words[2] = {BATCHES_VERSION, 0};
    buffer_append(out, BATCHES_MAGIC, strlen(BATCHES_MAGIC));
    buffer_append(out, words, sizeof(words));
    put_fields(encoder->schema, out);
    words[1] = (uint32_t)(out->length - begin + BATCHES_DIGEST_BYTES);
    memcpy(out->data + begin + strlen(BATCHES_MAGIC), words, sizeof(words));
    append_digest(out, begin);
}

/* --- new, free, save, load --- */

void *batches_encoder_new(const struct schema *schema, const void *config LEAT_UNUSED)
{
    static const struct type time = {.tag = TYPE_TIME};
    struct encoder *encoder = mem_calloc(1, sizeof(*encoder));
    encoder->schema = schema;
    encoder->packer = batches_packer_new();
    encoder->columns = arena_array(&encoder->arena, struct collected, schema->count);
    for (uint32_t i = 0; i < schema->count; i++)
        init_column(&encoder->arena, &encoder->columns[i], &schema->fields[i].type);
    for (uint32_t i = 0; i < TIMES; i++)
        init_column(&encoder->arena, &encoder->times[i], &time);
    return encoder;
}

void batches_encoder_free(void *self)
{
    struct encoder *encoder = self;
    if (encoder == NULL)
        return;
    for (uint32_t i = 0; i < encoder->schema->count; i++)
        free_column(&encoder->columns[i]);
    for (uint32_t i = 0; i < TIMES; i++)
        free_column(&encoder->times[i]);
    batches_packer_free(encoder->packer);
    arena_free(&encoder->arena);
    free(encoder);
}

void batches_encoder_save(void *self, struct byte_buffer *out)
{
    struct encoder *encoder = self;
    uint64_t totals[3] = {encoder->rows_total, encoder->blocks_total, encoder->bytes};
    buffer_append(out, totals, sizeof(totals));
    if (encoder->rows > 0)
        pack_block(encoder, out);
}

bool batches_encoder_load(void *self, const char *data, size_t bytes)
{
    struct encoder *encoder = self;
    uint64_t totals[3];
    if (bytes < sizeof(totals))
        return false;
    memcpy(totals, data, sizeof(totals));
    data += sizeof(totals);
    bytes -= sizeof(totals);
    struct batches_head head = {0};
    if (bytes > 0) {
        if (bytes < sizeof(head))
            return false;
        memcpy(&head, data, sizeof(head));
        if (head.rows > BATCH_ROWS)
            return false;
        struct batch_pool *pool = batch_pool_new();
        struct batch *batch = batch_new(pool, encoder->schema, head.rows);
        int from[SCHEMA_FIELDS_MAX];
        for (uint32_t i = 0; i < encoder->schema->count; i++)
            from[i] = (int)i;
        bool is_good = batches_unpack_block(batch, encoder->schema, from, data, bytes);
        if (is_good)
            collect(encoder, batch, 0, head.rows);
        batch_release(batch);
        batch_pool_free(pool);
        if (!is_good)
            return false;
    }
    encoder->rows_total = totals[0];
    encoder->blocks_total = totals[1];
    encoder->bytes = totals[2];
    return true;
}
