/* Arbitrary bytes where batches are read in their wire format. The first byte says whether they have origins and orders
 * (odd) or not, the second which columns they have. A batch that is read has rows of known partitions, and is the same once
 * written and read. */
#include "core/batch_codec.h"
#include "fuzz.h"

enum { PARTITIONS = 9 };

static struct field record_fields[] = {{.name = {"a", 1}, .type = {.tag = TYPE_INT}},
                                       {.name = {"b", 1}, .type = {.tag = TYPE_TEXT}}};
static const struct schema record = {.fields = record_fields, .count = 2};
static const struct type type_bool = {.tag = TYPE_BOOL};
static const struct type type_record = {.tag = TYPE_RECORD, .fields = &record};
static const struct type type_bools = {.tag = TYPE_LIST, .element = &type_bool};
static struct field fields[] = {
    {.name = {"i", 1}, .type = {.tag = TYPE_INT}},
    {.name = {"t", 1}, .type = {.tag = TYPE_TEXT}},
    {.name = {"o", 1}, .type = {.tag = TYPE_BOOL}},
    {.name = {"f", 1}, .type = {.tag = TYPE_FLOAT}},
    {.name = {"r", 1}, .type = {.tag = TYPE_LIST, .element = &type_record}},
    {.name = {"n", 1}, .type = {.tag = TYPE_LIST, .element = &type_bools}},
    {.name = {"y", 1}, .type = {.tag = TYPE_BYTES}},
    {.name = {"u", 1}, .type = {.tag = TYPE_TIME}},
};
static const struct schema schema = {.fields = fields, .count = ARRAY_COUNT(fields)};

static void check_column(const struct column *a, const struct column *b, uint32_t row_a, uint32_t row_b)
{
    must(a->tag == b->tag && column_is_valid(a, row_a) == column_is_valid(b, row_b), "nulls are the same");
    if (a->tag == TYPE_TEXT || a->tag == TYPE_BYTES)
        must(str_equal(column_text(a, row_a), column_text(b, row_b)), "texts are the same");
    else if (a->tag == TYPE_BOOL)
        must(a->bools[row_a] == b->bools[row_b] && a->bools[row_a] <= 1, "bools are the same");
    else if (a->tag != TYPE_LIST)
        must(a->ints[row_a] == b->ints[row_b], "numbers are the same");
    if (a->tag != TYPE_LIST)
        return;
    struct list_ref list = a->lists[row_a], other = b->lists[row_b];
    must(list.length == other.length, "lists are as long");
    must(list.length == 0 || a->children_count == b->children_count, "lists have the same children");
    for (uint32_t k = 0; k < list.length; k++)
        for (uint32_t i = 0; i < a->children_count; i++)
            check_column(&a->children[i], &b->children[i], list.offset + k, other.offset + k);
}

static bool is_known(uint32_t partition)
{
    return partition < PARTITIONS || partition == PARTITION_NONE;
}

static void check_rows(const struct batch *a, const struct batch *b)
{
    must(a->rows == b->rows && (a->arrival_time != NULL) == (b->arrival_time != NULL), "rows are the same");
    for (uint32_t row = 0; row < a->rows; row++) {
        struct row_origin of_a = batch_origin(a, row), of_b = batch_origin(b, row);
        struct row_order order_a = batch_order(a, row), order_b = batch_order(b, row);
        must(is_known(of_a.partition) && is_known(order_a.partition), "a row's partition is known");
        must(of_a.partition == of_b.partition && of_a.record == of_b.record, "origins are the same");
        must(row_order_compare(&order_a, &order_b) == 0, "orders are the same");
        must(a->event_time[row] == b->event_time[row], "event times are the same");
        must(a->arrival_time == NULL || a->arrival_time[row] == b->arrival_time[row],
             "arrival times are the same");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    bool is_whole = fuzz_byte(&input) & 1, columns[ARRAY_COUNT(fields)];
    uint8_t mask = fuzz_byte(&input);
    for (uint32_t i = 0; i < ARRAY_COUNT(fields); i++)
        columns[i] = is_whole || (mask >> i & 1);
    struct str bytes = fuzz_take(&input, SIZE_MAX);
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = is_whole ? batch_read(pool, &schema, bytes, PARTITIONS)
                                   : batch_read_columns(pool, &schema, columns, bytes);
    free((void *)(uintptr_t)bytes.data);
    if (batch != NULL) {
        struct byte_buffer out = {0};
        must(batch->rows <= BATCH_ROWS && batch->selected == batch->rows, "a batch has its rows");
        if (is_whole)
            batch_write(batch, &out);
        else
            batch_write_columns(batch, columns, &out);
        struct str written = {out.data, out.length};
        struct batch *again = is_whole ? batch_read(pool, &schema, written, PARTITIONS)
                                       : batch_read_columns(pool, &schema, columns, written);
        must(again != NULL, "what was written is read");
        check_rows(batch, again);
        for (uint32_t i = 0; i < ARRAY_COUNT(fields); i++)
            for (uint32_t row = 0; row < batch->rows; row++) {
                must(columns[i] || !column_is_valid(&batch->columns[i], row), "other columns are null");
                check_column(&batch->columns[i], &again->columns[i], row, row);
            }
        batch_release(again);
        batch_release(batch);
        buffer_free(&out);
    }
    batch_pool_free(pool);
    return 0;
}
