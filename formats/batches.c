/* leat's own recording of decoded columns, for reading events again and again. Each block has a digest. */
#include "formats/batches.h"

#include "core/mem.h"

#include <stdlib.h>
#include <xxhash.h>

enum { HEADER_START = 16, HEADER_BYTES_MAX = 1 << 20 };

static bool digest_is_good(const char *data, size_t bytes)
{
    XXH128_canonical_t digest;
    if (bytes < sizeof(digest))
        return false;
    memcpy(&digest, data + bytes - sizeof(digest), sizeof(digest));
    return XXH128_isEqual(XXH128_hashFromCanonical(&digest), XXH3_128bits(data, bytes - sizeof(digest)));
}

/* --- header --- */

struct cursor {
    const char *at, *end;
    uint32_t depth, fields;
};

static bool take(struct cursor *cursor, void *into, size_t bytes)
{
    if ((size_t)(cursor->end - cursor->at) < bytes)
        return false;
    memcpy(into, cursor->at, bytes);
    cursor->at += bytes;
    return true;
}

static struct schema *read_fields(struct cursor *cursor, struct arena *arena);

static bool read_type(struct cursor *cursor, struct arena *arena, struct type *type)
{
    uint8_t tag;
    if (cursor->depth == BATCHES_NESTING_MAX || !take(cursor, &tag, 1) || tag > TYPE_RECORD)
        return false;
    *type = (struct type){.tag = (enum type_tag)tag};
    bool is_good = true;
    cursor->depth++;
    if (tag == TYPE_LIST) {
        struct type *element = arena_new(arena, struct type);
        type->element = element;
        is_good = read_type(cursor, arena, element);
    } else if (tag == TYPE_RECORD) {
        type->fields = read_fields(cursor, arena);
        is_good = type->fields != NULL;
    }
    cursor->depth--;
    return is_good;
}

static struct schema *read_fields(struct cursor *cursor, struct arena *arena)
{
    struct schema *schema = arena_new(arena, struct schema);
    uint32_t count;
    if (!take(cursor, &count, sizeof(count)) || count > SCHEMA_FIELDS_MAX)
        return NULL;
    schema->fields = arena_array(arena, struct field, count);
    for (uint32_t i = 0; i < count; i++) {
        struct type type;
        uint16_t length;
        if (!read_type(cursor, arena, &type) || (type.tag == TYPE_RECORD) ||
            !take(cursor, &length, sizeof(length)) || (size_t)(cursor->end - cursor->at) < length)
            return NULL;
        schema_add(schema, arena_str(arena, (struct str){cursor->at, length}), type);
        cursor->at += length;
    }
    return schema;
}

/* Reads the file's columns from a header, into the arena. NULL where the header is damaged. */
static const struct schema *read_schema(struct arena *arena, struct str header)
{
    if (header.length < HEADER_START + BATCHES_DIGEST_BYTES)
        return NULL;
    struct cursor cursor = {header.data + HEADER_START, header.data + header.length - BATCHES_DIGEST_BYTES, 0,
                            0};
    const struct schema *schema = read_fields(&cursor, arena);
    return schema != NULL && cursor.at == cursor.end ? schema : NULL;
}

static enum format_header_status batches_header(const void *config LEAT_UNUSED, const char *data,
                                                size_t bytes, bool is_last, size_t *used, const char **damage)
{
    uint32_t words[2];
    *used = 0;
    if (bytes == 0 && is_last)
        return HEADER_READ; /* an empty file has no records */
    *damage = "is not a recording of batches";
    if (memcmp(data, BATCHES_MAGIC, MIN(bytes, strlen(BATCHES_MAGIC))) != 0)
        return HEADER_BAD;
    if (bytes < HEADER_START)
        return is_last ? HEADER_BAD : HEADER_MORE;
    memcpy(words, data + strlen(BATCHES_MAGIC), sizeof(words));
    *damage = "was written by a newer leat";
    if (words[0] > BATCHES_VERSION)
        return HEADER_BAD;
    *damage = "is damaged: its header is not valid";
    if (words[1] < HEADER_START + BATCHES_DIGEST_BYTES || words[1] > HEADER_BYTES_MAX)
        return HEADER_BAD;
    if (bytes < words[1])
        return is_last ? HEADER_BAD : HEADER_MORE;
    *used = words[1];
    return digest_is_good(data, words[1]) ? HEADER_READ : HEADER_BAD;
}

/* from[i]: the file's column for column i of the schema; -1: none. */
static void match_columns(const struct schema *schema, const struct schema *file, int *from)
{
    for (uint32_t i = 0; i < schema->count; i++)
        from[i] = schema_find(file, schema->fields[i].name);
}

static bool batches_header_check(const struct schema *schema, const void *config LEAT_UNUSED,
                                 struct str header, struct diag_list *diags)
{
    struct arena arena = {0};
    int from[SCHEMA_FIELDS_MAX];
    bool is_good = true;
    const struct schema *file = read_schema(&arena, header);
    if (file == NULL)
        diag_error(diags, DIAG_FILE_DAMAGED, (struct span){0, 0}, "the recording's header is damaged");
    else
        match_columns(schema, file, from);
    for (uint32_t i = 0; file != NULL && i < schema->count; i++) {
        const struct field *field = &schema->fields[i];
        const struct type *found = from[i] < 0 ? NULL : &file->fields[from[i]].type;
        if (found == NULL ? !field->is_required : type_equal(found, &field->type))
            continue;
        is_good = false;
        struct diag *d = diag_error(diags, DIAG_FILE_COLUMNS, (struct span){0, 0},
                                    found == NULL ? "the recording has no column `%.*s`"
                                                  : "the recording's column `%.*s` has another type",
                                    STR_ARGS(field->name));
        if (found != NULL)
            diag_hint(diags, d, "the recording has type %s, the schema type %s", type_name(&arena, found),
                      type_name(&arena, &field->type));
    }
    arena_free(&arena);
    return is_good && file != NULL;
}

/* --- blocks --- */

static void batches_split(struct format_split *split)
{
    struct batches_head head;
    split->count = split->lines = 0;
    split->used = 0;
    split->need = sizeof(head);
    split->is_cut = split->is_end = false;
    split->damage = NULL;
    if (split->bytes < sizeof(head))
        return;
    memcpy(&head, split->data, sizeof(head));
    bool is_end = head.magic == BATCHES_END;
    if ((head.magic != BATCHES_BLOCK && !is_end) || head.bytes < sizeof(head) + BATCHES_DIGEST_BYTES ||
        (is_end ? head.rows != 0 : head.rows == 0 || head.rows > BATCH_ROWS)) {
        split->damage = "is damaged: no block begins where a block was expected";
        return;
    }
    split->need = head.bytes;
    if (split->bytes < head.bytes)
        return;
    if (!digest_is_good(split->data, head.bytes)) {
        split->damage = "is damaged: a block does not have its digest";
        return;
    }
    split->used = head.bytes;
    split->count = head.rows;
    split->is_end = is_end;
}

/* --- decoding --- */

struct batches_decoder {
    const struct schema *schema;
    struct arena arena; /* holds `header` and `file` */
    struct str header;
    const struct schema *file;
    int from[SCHEMA_FIELDS_MAX];
};

static void *batches_decoder_new(const struct schema *schema, const void *config LEAT_UNUSED)
{
    struct batches_decoder *decoder = mem_calloc(1, sizeof(*decoder));
    decoder->schema = schema;
    return decoder;
}

static void batches_decoder_free(void *self)
{
    struct batches_decoder *decoder = self;
    if (decoder == NULL)
        return;
    arena_free(&decoder->arena);
    free(decoder);
}

/* Reads the section at *at as times of all rows, and moves *at behind the section. NULL if the section is
 * invalid. */
static int64_t *unpack_times(struct batch *batch, const char **at, const char *end)
{
    static const struct type time = {.tag = TYPE_TIME};
    struct column column;
    batch_column_init(batch, &column, time, batch->rows);
    size_t used = batches_unpack_column(batch, &column, &time, batch->rows, *at, (size_t)(end - *at));
    if (used == 0 || column.valid != NULL)
        return NULL;
    *at += used;
    return column.ints;
}

/* The bytes of the section at `at`, or 0 where it is invalid. */
static size_t section_bytes(const char *at, const char *end)
{
    struct batches_section head;
    if ((size_t)(end - at) < sizeof(head))
        return 0;
    memcpy(&head, at, sizeof(head));
    return head.bytes < sizeof(head) || head.bytes > (size_t)(end - at) ? 0 : head.bytes;
}

static bool unpack_all_times(struct batch *batch, const struct batches_head *head, const char **at,
                             const char *end)
{
    if (head->times & BATCHES_EVENT_TIME && (batch->event_time = unpack_times(batch, at, end)) == NULL)
        return false;
    if (head->times & BATCHES_ARRIVAL_TIME && (batch->arrival_time = unpack_times(batch, at, end)) == NULL)
        return false;
    return !(head->times & BATCHES_ORDER_TIME) || (batch->order_time = unpack_times(batch, at, end)) != NULL;
}

/* Reads the event times from the file's column at `at`, whether the schema has that column or not. */
static bool unpack_event_column(struct batch *batch, const char *at, const char *end)
{
    int64_t *times = unpack_times(batch, &at, end);
    if (times == NULL)
        return false;
    batch->event_time = times;
    return true;
}

bool batches_unpack_block(struct batch *batch, const struct schema *file, const int *from, const char *data,
                          size_t bytes)
{
    struct batches_head head;
    if (bytes < sizeof(head) + BATCHES_DIGEST_BYTES)
        return false;
    memcpy(&head, data, sizeof(head));
    if (head.bytes != bytes || head.rows != batch->rows)
        return false;
    const char *at = data + sizeof(head), *end = data + bytes - BATCHES_DIGEST_BYTES;
    if (!unpack_all_times(batch, &head, &at, end))
        return false;
    int wanted_by[SCHEMA_FIELDS_MAX];
    for (uint32_t i = 0; i < file->count; i++)
        wanted_by[i] = -1;
    for (uint32_t i = 0; i < batch->schema->count; i++)
        if (from[i] >= 0)
            wanted_by[from[i]] = (int)i;
    for (uint32_t i = 0; i < file->count; i++) {
        size_t used = section_bytes(at, end);
        if (used > 0 && wanted_by[i] >= 0)
            used = batches_unpack_column(batch, &batch->columns[wanted_by[i]], &file->fields[i].type,
                                         batch->rows, at, (size_t)(end - at));
        if (used == 0 || (head.times & BATCHES_EVENT_COLUMN && head.event_column == i &&
                          (file->fields[i].type.tag != TYPE_TIME || !unpack_event_column(batch, at, end))))
            return false;
        at += used;
    }
    if (head.times & BATCHES_ORDER_IS_EVENT)
        batch->order_time = batch->event_time;
    return at == end;
}

static void use_header(struct batches_decoder *decoder, struct str header)
{
    if (decoder->file != NULL && str_equal(decoder->header, header))
        return;
    arena_reset(&decoder->arena);
    decoder->header = arena_str(&decoder->arena, header);
    decoder->file = read_schema(&decoder->arena, header);
    if (decoder->file == NULL)
        return;
    match_columns(decoder->schema, decoder->file, decoder->from);
    /* batches_header_check refuses files where types differ; a caller that did not call it gets nulls. */
    for (uint32_t i = 0; i < decoder->schema->count; i++)
        if (decoder->from[i] >= 0 &&
            !type_equal(&decoder->schema->fields[i].type, &decoder->file->fields[decoder->from[i]].type))
            decoder->from[i] = -1;
}

/* Sets null in every row. */
static void null_column(struct batch *batch, struct column *column)
{
    if (batch->rows == 0)
        return;
    batch_set_null(batch, column, 0);
    memset(column->valid, 0, BIT_WORDS((size_t)batch->rows) * sizeof(uint64_t));
    memset(column->data, 0, batch->rows * (column->tag == TYPE_BOOL ? sizeof(uint8_t) : sizeof(int64_t)));
}

/* The index of the first column without the value that the schema requires in this row, or -1. */
static int missing_value(const struct batch *batch, uint32_t row)
{
    for (uint32_t i = 0; i < batch->schema->count; i++)
        if (batch->schema->fields[i].is_required && !column_is_valid(&batch->columns[i], row))
            return (int)i;
    return -1;
}

static void check_required(struct decode_output *output)
{
    struct batch *batch = output->batch;
    for (uint32_t row = 0; row < batch->rows; row++) {
        int missing = missing_value(batch, row);
        if (missing < 0)
            continue;
        output->bad[output->bad_count++] = (struct bad_record){
            .row = row,
            .column = UINT32_MAX,
            .reason = arena_printf(&batch->arena, "`%.*s`: null, but the schema requires a value",
                                   STR_ARGS(batch->schema->fields[missing].name))};
    }
}

static void batches_decode(void *self, struct raw_batch *raw, struct decode_output *output)
{
    struct batches_decoder *decoder = self;
    struct batch *batch = output->batch;
    bool has_required = false;
    use_header(decoder, raw->header);
    output->bad_count = 0;
    bool is_good = decoder->file != NULL &&
                   batches_unpack_block(batch, decoder->file, decoder->from, raw->data, raw->data_bytes);
    for (uint32_t i = 0; i < batch->schema->count; i++) {
        has_required |= batch->schema->fields[i].is_required;
        if (!is_good || decoder->from[i] < 0)
            null_column(batch, &batch->columns[i]);
    }
    for (uint32_t row = 0; !is_good && row < batch->rows; row++)
        output->bad[output->bad_count++] = (struct bad_record){
            .row = row, .column = UINT32_MAX, .reason = "the record's block is not valid"};
    if (is_good && has_required)
        check_required(output);
}

const struct format_kind format_batches = {
    .name = "batches",
    .summary = "leat's own recording of decoded columns, with a digest for each block",
    .suffix = ".batches",
    .is_blocks = true,
    .has_end_mark = true,
    .header = batches_header,
    .header_check = batches_header_check,
    .split = batches_split,
    .decoder_new = batches_decoder_new,
    .decode = batches_decode,
    .decoder_free = batches_decoder_free,
    .encoder_new = batches_encoder_new,
    .encode_header = batches_encode_header,
    .encode = batches_encode,
    .encode_end = batches_encode_end,
    .encoder_save = batches_encoder_save,
    .encoder_load = batches_encoder_load,
    .encoder_free = batches_encoder_free,
};
