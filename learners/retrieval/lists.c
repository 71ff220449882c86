/*
 * Lists as columns. A list's items are rows of two child columns, the item and the score, which all lists of a batch
 * share; texts of items are copied behind each other, once for each place. So the sizes are added up first,
 * row by row, until the next row would not fit.
 */
#include "learners/retrieval/lists.h"

#include <math.h>

/* A row's list has at most ITEMS_TOP_MAX texts, so that offsets of 32 bits are enough for it. */
_Static_assert((uint64_t)ITEMS_TOP_MAX *ITEMS_TEXT_MAX + LISTS_BATCH_BYTES < UINT32_MAX, "offsets of texts");

enum { CHILD_ITEM, CHILD_SCORE, CHILDREN };

bool lists_bind(struct operator_bind *bind, struct schema *schema, const struct field *item, uint32_t most,
                const struct lineage *lineage, struct span span)
{
    leat_assert(most >= 1 && most <= ITEMS_TOP_MAX);
    static const struct schema empty;
    if (item->type.tag != TYPE_INT && item->type.tag != TYPE_TIME && item->type.tag != TYPE_TEXT) {
        struct diag *d = diag_error(bind->diags, DIAG_TYPE_CLASH, span,
                                    "items are of type int, time or text, and `%.*s` is of type %s",
                                    STR_ARGS(item->name), type_name(bind->arena, &item->type));
        diag_hint(bind->diags, d, "cast the column before the learner");
        return false;
    }
    struct schema *record = schema_copy(bind->arena, &empty, CHILDREN);
    schema_add(record, STR("item"), type_of(item->type.tag));
    schema_add(record, STR("score"), type_of(TYPE_FLOAT));
    struct type *element = arena_new(bind->arena, struct type);
    *element = (struct type){.tag = TYPE_RECORD, .fields = record};
    struct type list = {.tag = TYPE_LIST, .element = element, .length_max = most};
    struct field *rank = operator_add_chosen(bind, schema, STR("rank"), type_of(TYPE_FLOAT), span);
    struct field *top = rank == NULL ? NULL : operator_add_chosen(bind, schema, STR("top"), list, span);
    if (top == NULL)
        return false;
    lineage_merge(&rank->lineage, lineage);
    lineage_merge(&rank->lineage, &item->lineage);
    lineage_merge(&top->lineage, lineage);
    return true;
}

/* A batch that is being made, from the selected rows first .. first + count - 1. */
struct piece {
    const struct lists_rows *rows;
    const struct items_numbers *numbers;
    uint32_t first, count;
    uint32_t items;
    size_t text_bytes;
};

static uint32_t length_of(const struct lists_rows *rows, uint32_t i)
{
    return rows->counts == NULL || rows->counts[i] == UINT32_MAX ? 0 : rows->counts[i];
}

static size_t text_bytes(const struct piece *p, uint32_t i)
{
    size_t bytes = 0;
    struct items_value value;
    for (uint32_t k = 0; k < length_of(p->rows, i); k++)
        if (items_numbers_value_now(p->numbers, p->rows->top[i * p->rows->most + k].number, &value))
            bytes += value.text.length;
    return bytes;
}

/* Takes as many rows as fit, at least one. */
static void take(struct piece *p, uint32_t selected, bool has_texts)
{
    size_t item_bytes = sizeof(double) + (has_texts ? sizeof(struct text_ref) : sizeof(int64_t));
    while (p->first + p->count < selected) {
        uint32_t i = p->first + p->count, length = length_of(p->rows, i);
        size_t texts = has_texts ? text_bytes(p, i) : 0;
        if (p->count > 0 && (p->items + length) * item_bytes + p->text_bytes + texts > LISTS_BATCH_BYTES)
            return;
        p->items += length;
        p->text_bytes += texts;
        p->count++;
    }
}

static void put_item(struct column *column, uint32_t child, const struct items_value *value,
                     struct batch *out, char *heap, uint32_t *used)
{
    bool is_text = column->tag == TYPE_TEXT;
    if (is_text)
        column->texts[child] = (struct text_ref){*used, 0};
    else
        column->ints[child] = 0;
    if (value == NULL || value->is_text != is_text) {
        if (column->valid == NULL)
            column->valid = batch_valid_new(out, column->child_rows);
        bit_clear(column->valid, child);
    } else if (is_text) {
        column->texts[child].length = (uint32_t)value->text.length;
        if (value->text.length > 0)
            memcpy(heap + *used, value->text.data, value->text.length);
        *used += (uint32_t)value->text.length;
    } else {
        column->ints[child] = value->integer;
    }
}

static void put_lists(const struct piece *p, struct batch *out, struct column *top)
{
    struct column *item = &top->children[CHILD_ITEM], *score = &top->children[CHILD_SCORE];
    char *heap = arena_alloc(&out->arena, p->text_bytes);
    uint32_t child = 0, used = 0;
    top->child_rows = p->items;
    item->data = arena_alloc(&out->arena, MAX(p->items, 1) * sizeof(int64_t));
    score->floats = arena_alloc(&out->arena, MAX(p->items, 1) * sizeof(double));
    item->heap = heap;
    for (uint32_t i = p->first; i < p->first + p->count; i++) {
        uint32_t row = batch_row(out, i - p->first), length = length_of(p->rows, i);
        top->lists[row] = (struct list_ref){child, length};
        if (p->rows->counts == NULL || p->rows->counts[i] == UINT32_MAX)
            batch_set_null(out, top, row);
        for (uint32_t k = 0; k < length; k++, child++) {
            const struct items_scored *scored = &p->rows->top[i * p->rows->most + k];
            struct items_value value;
            bool is_there = items_numbers_value_now(p->numbers, scored->number, &value);
            put_item(item, child, is_there ? &value : NULL, out, heap, &used);
            score->floats[child] = (double)scored->score;
        }
    }
}

static void put_ranks(const struct piece *p, struct batch *out, struct column *rank)
{
    for (uint32_t i = p->first; i < p->first + p->count; i++) {
        uint32_t row = batch_row(out, i - p->first);
        bool is_ranked = p->rows->ranks != NULL && !isnan(p->rows->ranks[i]);
        rank->floats[row] = is_ranked ? p->rows->ranks[i] : 0.0;
        if (!is_ranked)
            batch_set_null(out, rank, row);
    }
}

/* The rows of the piece alone. */
static void select_rows(const struct piece *p, const struct batch *batch, struct batch *out)
{
    if (p->count == batch->selected)
        return;
    uint16_t *sel = arena_array(&out->arena, uint16_t, p->count);
    for (uint32_t i = 0; i < p->count; i++)
        sel[i] = (uint16_t)batch_row(batch, p->first + i);
    out->sel = sel;
    out->selected = p->count;
}

void lists_emit(struct operator_context *context, uint32_t output, const struct schema *schema,
                struct batch *batch, const struct lists_rows *rows, const struct items_numbers *numbers)
{
    uint32_t columns = schema->count - 2;
    const struct field *fields = &schema->fields[columns];
    bool has_texts = fields[1].type.element->fields->fields[CHILD_ITEM].type.tag == TYPE_TEXT;
    for (uint32_t first = 0; first < batch->selected;) {
        struct piece p = {.rows = rows, .numbers = numbers, .first = first};
        take(&p, batch->selected, has_texts);
        struct batch *out = batch_derive(batch, schema);
        select_rows(&p, batch, out);
        struct column *rank = &out->columns[columns], *top = &out->columns[columns + 1];
        batch_column_init(out, rank, fields[0].type, batch->rows);
        batch_column_init(out, top, fields[1].type, batch->rows);
        put_ranks(&p, out, rank);
        put_lists(&p, out, top);
        first += p.count;
        operator_emit(context, output, out);
    }
}
