#include "operators/lookup/lookup_table.h"

#include "core/mem.h"

#include "operators/rows/codec.h"

#include <stdlib.h>

enum { VERSION_TEXT_BYTES = UINT32_MAX / BATCH_ROWS }; /* a batch's copied texts stay below 4 GiB */
enum { ROWS_FIRST = 64, BAD_SHOWN_MAX = 5, FIND_AHEAD = 8, DIGEST_HEX_BYTES = 33 };

struct lookup_row {
    struct key key;
    uint64_t values[]; /* by column; then the null bits */
};

struct lookup_table {
    const struct lookup_source *source;
    const struct field *fields; /* of the columns behind the key */
    uint32_t columns;
    size_t stride;
    char *rows;
    uint64_t rows_count, rows_capacity;
    uint32_t *index; /* row number + 1; 0: free */
    uint64_t index_capacity;
    struct byte_buffer *heaps; /* texts and lists of each column */
    uint64_t null_keys, replaced;
    uint32_t longest; /* bytes of the longest text */
    char digest[DIGEST_HEX_BYTES];
};

/* Only needed while the file is read. */
struct loading {
    struct lookup_table *table;
    struct source source;
    struct arena arena; /* freed after the source is closed */
    struct raw_batch raw;
    struct batch_pool *pool;
    struct batch_digest *digest;
    struct diag_list *diags;
    int *keys; /* columns of the key: 0, 1 ... */
    uint32_t bad;
};

static struct lookup_row *row_at(const struct lookup_table *table, uint64_t row)
{
    return (struct lookup_row *)(void *)(table->rows + row * table->stride);
}

static size_t bytes_of(const struct lookup_table *table)
{
    size_t bytes = table->rows_capacity * table->stride + table->index_capacity * sizeof(*table->index);
    for (uint32_t i = 0; i < table->columns; i++)
        bytes += table->heaps[i].capacity;
    return bytes;
}

/* --- The index --- */

static uint64_t home_of(uint64_t hash, uint64_t capacity)
{
    return (uint64_t)((__uint128_t)(hash * UINT64_C(0x9e3779b97f4a7c15)) * capacity >> 64);
}

static uint32_t *place_of(const struct lookup_table *table, struct key key, uint64_t hash)
{
    for (uint64_t i = home_of(hash, table->index_capacity);;) {
        uint32_t row = table->index[i];
        if (row == 0 || key_equal(row_at(table, row - 1)->key, key))
            return &table->index[i];
        if (++i == table->index_capacity)
            i = 0;
    }
}

/* Makes room for one more row. At most half of the index is used. */
static void grow(struct lookup_table *table)
{
    if (table->rows_count < table->rows_capacity)
        return;
    leat_assert(table->rows_capacity < UINT32_MAX / 2);
    table->rows_capacity = MAX(table->rows_capacity * 2, ROWS_FIRST);
    table->rows = mem_realloc(table->rows, table->rows_capacity * table->stride);
    free(table->index);
    table->index_capacity = table->rows_capacity * 2;
    table->index = mem_calloc(table->index_capacity, sizeof(*table->index));
    for (uint64_t i = 0; i < table->rows_count; i++) {
        struct key key = row_at(table, i)->key;
        *place_of(table, key, key_hash(key)) = (uint32_t)i + 1;
    }
}

/* --- Reading the file --- */

static struct diag *complain(struct loading *l, uint32_t row, enum diag_code code, const char *what)
{
    const struct raw_batch *raw = &l->raw;
    int64_t line = raw_record_line(raw, row);
    const struct lookup_source *source = l->table->source;
    const char *path = raw->path == NULL || source->is_version ? source->path : raw->path;
    if (line > 0)
        return diag_error(l->diags, code, l->table->source->span, "`%s`, line %lld: %s", path,
                          (long long)line, what);
    return diag_error(l->diags, code, l->table->source->span, "`%s`, record %llu: %s", path,
                      (unsigned long long)(raw->position.record + row), what);
}

static bool check_bad(struct loading *l, const struct decode_output *output)
{
    for (uint32_t i = 0; i < output->bad_count && l->bad < BAD_SHOWN_MAX; i++, l->bad++) {
        struct diag *d = complain(l, output->bad[i].row, DIAG_FILE_COLUMNS, output->bad[i].reason);
        diag_hint(l->diags, d,
                  "all records of a table must be valid: correct the record, or the column's type");
    }
    return output->bad_count == 0;
}

static void set_values(struct lookup_table *table, struct lookup_row *row, const struct batch *batch,
                       uint32_t at)
{
    memset(row->values, 0, table->stride - sizeof(*row));
    for (uint32_t i = 0; i < table->columns; i++) {
        const struct column *column = &batch->columns[table->source->key_count + i];
        struct byte_buffer *heap = &table->heaps[i];
        struct text_ref ref = {(uint32_t)heap->length, 0};
        if (!column_is_valid(column, at)) {
            bit_set(row->values + table->columns, i);
            continue;
        }
        switch (column->tag) {
        case TYPE_BOOL: row->values[i] = column->bools[at]; continue;
        case TYPE_TEXT:
        case TYPE_BYTES: {
            struct str text = column_text(column, at);
            buffer_append(heap, text.data, text.length);
            table->longest = MAX(table->longest, (uint32_t)text.length);
            break;
        }
        case TYPE_LIST: row_encode_value(heap, column, &table->fields[i].type, at); break;
        default: row->values[i] = (uint64_t)column->ints[at]; continue;
        }
        ref.length = (uint32_t)(heap->length - ref.offset);
        memcpy(&row->values[i], &ref, sizeof(ref));
    }
}

static bool refuse_duplicate(struct loading *l, uint32_t row)
{
    struct diag *d = complain(l, row, DIAG_FILE_COLUMNS, "an earlier record has the same key");
    diag_hint(l->diags, d, "use `duplicates first` or `duplicates last`, or add columns to the key");
    l->bad++;
    return false;
}

static bool add_rows(struct loading *l, struct batch *batch)
{
    struct lookup_table *table = l->table;
    struct key keys[BATCH_ROWS];
    bool has_null[BATCH_ROWS], is_good = true;
    key_encode(batch, l->keys, table->source->key_count, keys, has_null);
    for (uint32_t i = 0; i < batch->rows && l->bad < BAD_SHOWN_MAX; i++) {
        table->null_keys += has_null[i];
        if (has_null[i])
            continue;
        grow(table);
        uint32_t *place = place_of(table, keys[i], key_hash(keys[i]));
        bool is_there = *place > 0;
        table->replaced += is_there;
        if (is_there && table->source->duplicates == LOOKUP_REFUSE)
            is_good &= refuse_duplicate(l, i);
        if (is_there && table->source->duplicates != LOOKUP_LAST)
            continue;
        if (!is_there)
            *place = (uint32_t)++table->rows_count;
        struct lookup_row *row = row_at(table, *place - 1);
        row->key = keys[i];
        set_values(table, row, batch, i);
    }
    return is_good;
}

static bool check_room(struct loading *l)
{
    const struct lookup_table *table = l->table;
    bool has_room = bytes_of(table) <= table->source->budget_bytes && table->rows_count < UINT32_MAX / 2;
    for (uint32_t i = 0; i < table->columns; i++)
        has_room &= table->heaps[i].length < UINT32_MAX - SOURCE_BATCH_BYTES * 4;
    if (has_room)
        return true;
    struct diag *d = diag_error(
        l->diags, DIAG_MEMORY_BUDGET, table->source->span,
        "`%s` does not fit: %llu rows of it take more than the %zu KiB that this step has "
        "of the job's memory",
        table->source->path, (unsigned long long)table->rows_count, table->source->budget_bytes >> 10);
    diag_hint(
        l->diags, d,
        "give the job more `memory:`, or make the file a source and use `enrich from` it, which can keep "
        "rows on disk");
    return false;
}

static bool check_texts(struct loading *l)
{
    const struct lookup_table *table = l->table;
    if (!table->source->is_version || table->longest <= VERSION_TEXT_BYTES)
        return true;
    diag_error(l->diags, DIAG_FILE_COLUMNS, table->source->span,
               "`%s` has a text of %u bytes, but with `refresh` a text may have at most %d",
               table->source->path, table->longest, VERSION_TEXT_BYTES);
    return false;
}

static bool add_batch(struct loading *l, void *decoder)
{
    struct batch *batch = batch_new(l->pool, l->source.schema, l->raw.count);
    struct decode_output output = {
        .batch = batch, .bad = arena_alloc(&batch->arena, MAX(l->raw.count, 1) * sizeof(struct bad_record))};
    memset(batch->event_time, 0, batch->rows * sizeof(*batch->event_time));
    l->table->source->kind->decode(&l->source, decoder, &l->raw, &output);
    bool is_good = check_bad(l, &output) && add_rows(l, batch) && check_room(l) && check_texts(l);
    batch_digest_add(l->digest, batch);
    batch_release(batch);
    return is_good;
}

static bool read_file(struct loading *l)
{
    const struct source_kind *kind = l->table->source->kind;
    if (!kind->open(&l->source))
        return false;
    void *decoder = kind->decoder_new == NULL ? NULL : kind->decoder_new(&l->source);
    bool is_good = true;
    for (uint32_t i = 0; i < l->source.partitions_count && is_good; i++)
        for (enum read_status status = READ_BATCH; status == READ_BATCH && is_good;) {
            arena_reset(&l->raw.arena);
            status = kind->read(&l->source, i, &l->raw);
            is_good = status != READ_ERROR;
            if (status == READ_BATCH)
                is_good = add_batch(l, decoder) && l->bad < BAD_SHOWN_MAX;
        }
    if (kind->decoder_free != NULL)
        kind->decoder_free(decoder);
    return is_good && l->bad == 0;
}

static void no_wake(void *engine LEAT_UNUSED)
{
}

struct lookup_table *lookup_table_load(const struct lookup_source *source, void *config,
                                       struct batch_pool *pool, struct diag_list *diags)
{
    struct lookup_table *table = mem_calloc(1, sizeof(*table));
    table->source = source;
    table->fields = source->schema->fields + source->key_count;
    table->columns = source->schema->count - source->key_count;
    table->stride = sizeof(struct lookup_row) + (table->columns + BIT_WORDS((size_t)table->columns)) * 8;
    table->heaps = mem_calloc(MAX(table->columns, 1), sizeof(*table->heaps));
    struct loading l = {.table = table, .pool = pool, .digest = batch_digest_new(), .diags = diags};
    l.source = (struct source){.config = config,
                               .schema = source->schema,
                               .arena = &l.arena,
                               .diags = diags,
                               .span = source->span,
                               .wake = no_wake,
                               .job = STR("lookup"),
                               .name = STR("lookup")};
    l.keys = arena_array(&l.arena, int, source->key_count);
    for (uint32_t i = 0; i < source->key_count; i++)
        l.keys[i] = (int)i;
    grow(table);
    bool is_good = read_file(&l);
    if (source->kind->close != NULL)
        source->kind->close(&l.source);
    batch_digest_hex(l.digest, table->digest);
    batch_digest_free(l.digest);
    arena_free(&l.raw.arena);
    arena_free(&l.arena);
    if (is_good)
        return table;
    lookup_table_free(table);
    return NULL;
}

void lookup_table_free(struct lookup_table *table)
{
    if (table == NULL)
        return;
    for (uint32_t i = 0; i < table->columns; i++)
        buffer_free(&table->heaps[i]);
    free(table->heaps);
    free(table->rows);
    free(table->index);
    free(table);
}

const char *lookup_table_digest(const struct lookup_table *table)
{
    return table->digest;
}

void lookup_table_figures(const struct lookup_table *table, struct lookup_figures *figures)
{
    *figures = (struct lookup_figures){.rows = table->rows_count,
                                       .null_keys = table->null_keys,
                                       .replaced = table->replaced,
                                       .bytes = bytes_of(table)};
}

/* --- Looking up --- */

void lookup_table_find(const struct lookup_table *table, const struct key *keys, const uint64_t *hashes,
                       uint32_t count, const struct lookup_row **found)
{
    for (uint32_t i = 0; i < count; i++) {
        if (i + FIND_AHEAD < count)
            prefetch_line(&table->index[home_of(hashes[i + FIND_AHEAD], table->index_capacity)]);
        uint32_t row = *place_of(table, keys[i], hashes[i]);
        found[i] = row == 0 ? NULL : row_at(table, row - 1);
    }
}

static void set_lists(const struct lookup_table *table, uint32_t i, const struct lookup_row *const *found,
                      struct batch *batch, struct column *column)
{
    struct column_builder builder;
    builder_init(&builder, batch, column, table->fields[i].type);
    for (uint32_t k = 0; k < batch->selected; k++) {
        uint32_t row = batch_row(batch, k);
        if (found[k] == NULL || bit_get(found[k]->values + table->columns, i)) {
            builder_null(&builder, row);
            continue;
        }
        struct text_ref ref;
        memcpy(&ref, &found[k]->values[i], sizeof(ref));
        const char *at = table->heaps[i].data + ref.offset;
        bool is_good = builder_decode(&builder, row, &at, at + ref.length);
        leat_assert(is_good);
    }
    builder_finish(&builder);
}

/* Copies the texts of the rows found into the batch. */
static void copy_texts(const struct lookup_table *table, uint32_t i, struct batch *batch,
                       struct column *column)
{
    size_t bytes = 0;
    for (uint32_t k = 0; k < batch->selected; k++)
        bytes += column->texts[batch_row(batch, k)].length;
    char *heap = arena_alloc(&batch->arena, bytes + 1), *at = heap;
    for (uint32_t k = 0; k < batch->selected; k++) {
        struct text_ref *ref = &column->texts[batch_row(batch, k)];
        if (ref->length > 0)
            memcpy(at, table->heaps[i].data + ref->offset, ref->length);
        ref->offset = (uint32_t)(at - heap);
        at += ref->length;
    }
    column->heap = heap;
}

void lookup_table_column(const struct lookup_table *table, uint32_t i, const struct lookup_row *const *found,
                         struct batch *batch, struct column *column)
{
    struct type type = table->fields[i].type;
    batch_column_init(batch, column, type, batch->rows);
    if (type.tag == TYPE_LIST) {
        set_lists(table, i, found, batch, column);
        return;
    }
    if (type.tag == TYPE_TEXT || type.tag == TYPE_BYTES)
        column->heap = table->heaps[i].length == 0 ? "" : table->heaps[i].data;
    for (uint32_t k = 0; k < batch->selected; k++) {
        uint32_t row = batch_row(batch, k);
        bool is_null = found[k] == NULL || bit_get(found[k]->values + table->columns, i);
        uint64_t value = is_null ? 0 : found[k]->values[i];
        if (type.tag == TYPE_BOOL)
            column->bools[row] = (uint8_t)value;
        else
            memcpy(&column->ints[row], &value, sizeof(value));
        if (is_null)
            batch_set_null(batch, column, row);
    }
    if (table->source->is_version && (type.tag == TYPE_TEXT || type.tag == TYPE_BYTES))
        copy_texts(table, i, batch, column);
}
