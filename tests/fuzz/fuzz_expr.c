/* Expressions over arbitrary values: the first line of the input is an expression of the job language; the
 * bytes after it give the values of the columns. A row's value, or the reason why it failed, depends on that
 * row alone: it is the same in a batch and when the row alone is selected. No function may crash, whatever
 * its arguments are. */
#include "core/utf8.h"
#include "fuzz.h"
#include "lang/lang.h"
#include "operators/expr/expr.h"

#include <math.h>

enum { ROWS = 5, LINE_MAX_BYTES = 400 };

static const struct {
    const char *name;
    struct type type;
} columns[] = {
    {"t", {.tag = TYPE_TEXT}},  {"u", {.tag = TYPE_TEXT}},
    {"z", {.tag = TYPE_BYTES}}, {"i", {.tag = TYPE_INT}},
    {"x", {.tag = TYPE_FLOAT}}, {"p", {.tag = TYPE_BOOL}},
    {"m", {.tag = TYPE_TIME}},  {"l", {.tag = TYPE_LIST, .element = &(const struct type){.tag = TYPE_TEXT}}},
};

/* Fills a column with pieces of the input; a text ends before the first byte that is not UTF-8. */
static void fill_text(struct column *column, struct fuzz_input *input, uint32_t rows, char *heap,
                      bool is_text)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t length = fuzz_byte(input) % 24;
        length = MIN(length, (uint32_t)(input->end - input->at));
        memcpy(heap + used, input->at, length);
        input->at += length;
        if (is_text && utf8_error(heap + used, length) != length)
            length = (uint32_t)utf8_error(heap + used, length);
        column->texts[i] = (struct text_ref){used, length};
        used += length;
    }
    column->heap = heap;
}

static void fill(struct batch *batch, struct fuzz_input *input)
{
    for (uint32_t c = 0; c < batch->schema->count; c++) {
        struct column *column = &batch->columns[c];
        char *heap = arena_calloc(&batch->arena, 1, ROWS * 3 * 32);
        if (column->tag == TYPE_TEXT || column->tag == TYPE_BYTES) {
            fill_text(column, input, ROWS, heap, column->tag == TYPE_TEXT);
        } else if (column->tag == TYPE_LIST) {
            for (uint32_t i = 0; i < ROWS; i++)
                column->lists[i] = (struct list_ref){i * 2, i % 3};
            struct column *child = &column->children[0];
            child->data = arena_calloc(&batch->arena, ROWS * 2 + 2, 8);
            child->child_rows = column->child_rows = ROWS * 2 + 2;
            fill_text(child, input, ROWS * 2 + 2, heap, true);
        } else {
            for (uint32_t i = 0; i < ROWS; i++) {
                uint64_t bits = 0;
                for (uint32_t k = fuzz_byte(input) % 9; k > 0; k--)
                    bits = bits << 8 | fuzz_byte(input);
                if (column->tag == TYPE_BOOL)
                    column->bools[i] = bits & 1;
                else
                    column->ints[i] = (int64_t)bits;
            }
        }
        uint8_t nulls = fuzz_byte(input);
        for (uint32_t i = 0; i < ROWS; i++)
            if (nulls >> i & 1) {
                batch_set_null(batch, column, i);
                if (column->tag == TYPE_BOOL)
                    column->bools[i] = 0;
                else
                    column->ints[i] = 0;
            }
    }
    for (uint32_t i = 0; i < ROWS; i++)
        batch->event_time[i] = i;
}

static void show(struct byte_buffer *out, const struct column *column, uint32_t row, const struct type *type)
{
    struct str text;
    uint64_t bits;
    if (!column_is_valid(column, row)) {
        buffer_printf(out, "null");
        return;
    }
    switch (type->tag) {
    case TYPE_TEXT:
    case TYPE_BYTES:
        text = column_text(column, row);
        buffer_append(out, text.data, text.length);
        must(type->tag == TYPE_BYTES || utf8_error(text.data, text.length) == text.length, "a text is UTF-8");
        break;
    case TYPE_BOOL:
        must(column->bools[row] <= 1, "a bool is one");
        buffer_printf(out, "%d", column->bools[row]);
        break;
    case TYPE_FLOAT:
        memcpy(&bits, &column->floats[row], sizeof(bits));
        buffer_printf(out, "%016llx", isnan(column->floats[row]) ? 0ULL : (unsigned long long)bits);
        break;
    case TYPE_LIST:
        for (uint32_t i = 0; type->element->tag != TYPE_RECORD && i < column->lists[row].length; i++) {
            buffer_printf(out, ",");
            show(out, &column->children[0], column->lists[row].offset + i, type->element);
        }
        break;
    default: buffer_printf(out, "%lld", (long long)column->ints[row]); break;
    }
}

/* Appends a line for each selected row: its value, or why it failed. */
static void evaluate(const struct expr *expr, const struct batch *batch, struct byte_buffer *out)
{
    struct arena scratch = {.block_bytes = 4096}, memory = {.block_bytes = 4096};
    struct expr_errors errors = {0};
    struct column column;
    struct type type = expr_type(expr);
    expr_eval(expr, batch, &scratch, &memory, &column, &errors);
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        if (bit_get(errors.rows, row))
            buffer_printf(out, "error: %s", errors.reasons[row]);
        else
            show(out, &column, row, &type);
        buffer_printf(out, "\n");
    }
    arena_free(&scratch);
    arena_free(&memory);
}

static void check(const struct expr *expr, struct batch *batch)
{
    struct byte_buffer all = {0}, alone = {0};
    uint16_t sel[ROWS];
    evaluate(expr, batch, &all);
    for (uint32_t i = 0; i < ROWS; i++) {
        sel[0] = (uint16_t)i;
        batch->sel = sel;
        batch->selected = 1;
        evaluate(expr, batch, &alone);
    }
    must(all.length == alone.length && memcmp(all.data, alone.data, all.length) == 0,
         "a row's value depends on that row alone");
    buffer_free(&all);
    buffer_free(&alone);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    const uint8_t *end = memchr(data, '\n', size);
    size_t length = end == NULL ? size : (size_t)(end - data);
    if (length > LINE_MAX_BYTES)
        return -1;
    struct arena arena = {.block_bytes = 4096};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct schema empty = {0}, *schema = schema_copy(&arena, &empty, ARRAY_COUNT(columns));
    for (size_t i = 0; i < ARRAY_COUNT(columns); i++)
        schema_add(schema, str_from(columns[i].name), columns[i].type);
    struct str line = fuzz_take(&input, length);
    (void)fuzz_byte(&input);
    struct ast *ast = lang_parse_value(&arena, &diags, line);
    struct expr *expr = ast == NULL ? NULL : expr_compile(ast, schema, &arena, &diags);
    must(expr != NULL || diags.errors > 0, "what does not compile has a reason");
    if (expr != NULL) {
        struct batch_pool *pool = batch_pool_new();
        struct batch *batch = batch_new(pool, schema, ROWS);
        fill(batch, &input);
        check(expr, batch);
        batch_release(batch);
        batch_pool_free(pool);
    }
    arena_free(&arena);
    free((char *)(uintptr_t)line.data);
    return 0;
}
