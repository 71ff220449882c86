/* Rows that wait for the passes, as checkpoints of format 9 have them. Goes when CHECKPOINT_FORMAT_FROM is above 9.
 *
 * A batch: a head, arrays of the rows' event times and perhaps arrival times, the columns. A column: its head, its bitmap if
 * it has nulls, its data, then the heap of a text or the children of a list. Each array begins at a multiple of 8 bytes. All
 * is checked: what does not fit gives NULL. */
#include "learners/sequential/internal_learner.h"

struct older_head {
    uint32_t rows;
    uint16_t has_arrival, has_order;
    uint64_t columns;
};

struct older_column {
    uint16_t tag, has_nulls;
    uint32_t children_count;
    uint64_t extent; /* bytes of the heap, or rows of the children */
};

struct older_reader {
    char *data; /* in the batch's memory: the columns' arrays are parts of it */
    size_t length, at;
    struct batch *batch;
};

static size_t padded(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

static void *take(struct older_reader *reader, size_t bytes)
{
    size_t left = reader->length - reader->at;
    if (bytes > left || padded(bytes) > left)
        return NULL;
    void *data = reader->data + reader->at;
    reader->at += padded(bytes);
    return data;
}

static bool bools_are_good(const uint8_t *bools, uint32_t rows)
{
    uint8_t all = 0;
    for (uint32_t i = 0; i < rows; i++)
        all |= bools[i];
    return all <= 1;
}

static bool texts_are_good(const struct text_ref *texts, uint32_t rows, uint64_t heap)
{
    for (uint32_t i = 0; i < rows; i++)
        if ((uint64_t)texts[i].offset + texts[i].length > heap)
            return false;
    return true;
}

/* Lists lie one behind the other in the children's rows. */
static bool lists_are_good(const struct list_ref *lists, uint32_t rows, uint64_t child_rows)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < rows; i++) {
        if (lists[i].offset < end)
            return false;
        end = (uint64_t)lists[i].offset + lists[i].length;
    }
    return end <= child_rows && child_rows <= UINT32_MAX;
}

static bool take_column(struct older_reader *reader, struct column *column, const struct type *type,
                        uint32_t rows);

static bool take_children(struct older_reader *reader, struct column *column, const struct type *list,
                          const struct older_column *head, uint32_t rows)
{
    bool is_record = list->element->tag == TYPE_RECORD;
    uint32_t children = is_record ? list->element->fields->count : 1;
    /* A column without rows may lack its children. */
    bool is_bare = rows == 0 && head->extent == 0 && head->children_count == 0;
    if (!lists_are_good(column->lists, rows, head->extent) || (!is_bare && head->children_count != children))
        return false;
    column->child_rows = (uint32_t)head->extent;
    column->children_count = head->children_count;
    column->children = arena_array(&reader->batch->arena, struct column, head->children_count);
    for (uint32_t i = 0; i < head->children_count; i++) {
        const struct type *type = is_record ? &list->element->fields->fields[i].type : list->element;
        if (!take_column(reader, &column->children[i], type, column->child_rows))
            return false;
    }
    return true;
}

static bool take_column(struct older_reader *reader, struct column *column, const struct type *type,
                        uint32_t rows)
{
    bool is_text = type->tag == TYPE_TEXT || type->tag == TYPE_BYTES;
    const struct older_column *head = take(reader, sizeof(*head));
    if (head == NULL || head->tag != type->tag || head->has_nulls > 1)
        return false;
    *column = (struct column){.tag = type->tag};
    if (head->has_nulls) {
        size_t words = MAX(BIT_WORDS((size_t)rows), (size_t)BATCH_VALID_WORDS);
        column->valid = take(reader, words * sizeof(uint64_t));
        if (column->valid == NULL)
            return false;
    }
    column->data = take(reader, (size_t)rows * (type->tag == TYPE_BOOL ? 1 : 8));
    if (column->data == NULL)
        return false;
    if (type->tag == TYPE_LIST)
        return take_children(reader, column, type, head, rows);
    if (head->children_count != 0 || (!is_text && head->extent != 0))
        return false;
    if (type->tag == TYPE_BOOL)
        return bools_are_good(column->bools, rows);
    if (!is_text)
        return true;
    column->heap = take(reader, head->extent);
    return column->heap != NULL && texts_are_good(column->texts, rows, head->extent);
}

bool sequential_held_is_older(struct str bytes)
{
    /* The count of rows takes 4 bytes, of which the wire format has its version in the last. */
    return bytes.length >= sizeof(struct older_head) && bytes.data[3] == 0;
}

struct batch *sequential_read_held_older(struct batch_pool *pool, const struct schema *schema,
                                         struct str bytes)
{
    struct older_head head;
    if (bytes.length < sizeof(head))
        return NULL;
    memcpy(&head, bytes.data, sizeof(head));
    if (head.rows > BATCH_ROWS || head.has_arrival > 1 || head.has_order != 0 ||
        head.columns != schema->count)
        return NULL;
    struct batch *batch = batch_new(pool, schema, head.rows);
    struct older_reader reader = {arena_copy(&batch->arena, bytes.data, bytes.length), bytes.length,
                                  sizeof(head), batch};
    batch->event_time = take(&reader, batch->rows * sizeof(int64_t));
    batch->arrival_time = head.has_arrival != 0 ? take(&reader, batch->rows * sizeof(int64_t)) : NULL;
    batch->order_time = batch->event_time;
    bool is_good = batch->event_time != NULL && (batch->arrival_time != NULL) == (head.has_arrival != 0);
    for (uint32_t i = 0; is_good && i < schema->count; i++)
        is_good = take_column(&reader, &batch->columns[i], &schema->fields[i].type, head.rows);
    if (is_good && reader.at == reader.length)
        return batch;
    batch_release(batch);
    return NULL;
}
