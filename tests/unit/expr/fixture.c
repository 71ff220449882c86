#include "fixture.h"

#include <math.h>

void fixture_init(struct fixture *f)
{
    static const char *const names[] = {"a", "b", "x",  "y",  "s",  "t",  "p", "q",
                                        "m", "n", "li", "lf", "lt", "lr", "z"};
    static const enum type_tag tags[] = {TYPE_INT,  TYPE_INT,  TYPE_FLOAT, TYPE_FLOAT, TYPE_TEXT,
                                         TYPE_TEXT, TYPE_BOOL, TYPE_BOOL,  TYPE_TIME,  TYPE_TIME};
    static const struct type elements[] = {{.tag = TYPE_INT}, {.tag = TYPE_FLOAT}, {.tag = TYPE_TEXT}};
    *f = (struct fixture){.pool = batch_pool_new()};
    diag_list_init(&f->diags, &f->arena);
    struct schema empty = {0};
    f->schema = schema_copy(&f->arena, &empty, COLUMNS);
    struct schema *record = schema_copy(&f->arena, &empty, 2);
    schema_add(record, STR("aid"), type_of(TYPE_INT));
    schema_add(record, STR("tag"), type_of(TYPE_TEXT));
    struct type *record_type = arena_new(&f->arena, struct type);
    *record_type = (struct type){.tag = TYPE_RECORD, .fields = record};
    for (int i = 0; i < COLUMNS; i++) {
        struct type type = i < COLUMN_LI ? type_of(tags[i])
                           : i == COLUMN_Z
                               ? type_of(TYPE_BYTES)
                               : (struct type){.tag = TYPE_LIST, .element = &elements[(i - COLUMN_LI) % 3]};
        if (i == COLUMN_LR)
            type.element = record_type;
        bit_set(schema_add(f->schema, str_from(names[i]), type)->lineage.words, (size_t)i);
    }
}

void fixture_free(struct fixture *f)
{
    batch_pool_free(f->pool);
    arena_free(&f->scratch);
    arena_free(&f->arena);
}

/* splitmix64 */
uint64_t fixture_random(uint64_t *seed)
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static int64_t random_int(uint64_t *seed)
{
    static const int64_t special[] = {0, 1,  -1,      INT64_MAX, INT64_MIN,
                                      2, 10, 1000000, -7,        INT64_C(3037000500)};
    uint64_t r = fixture_random(seed);
    return r % 3 == 0 ? special[(r >> 8) % ARRAY_COUNT(special)] : (int64_t)((r >> 8) % 41) - 20;
}

static double random_float(uint64_t *seed)
{
    static const double special[] = {0.0,       -0.0, 1.0,   -1.0,   0.5,    INFINITY,
                                     -INFINITY, NAN,  1e300, 1e-300, 9.3e18, -2.5};
    uint64_t r = fixture_random(seed);
    return r % 3 == 0 ? special[(r >> 8) % ARRAY_COUNT(special)] : ((double)((r >> 8) % 2001) - 1000) / 16;
}

static const char *const words[] = {"",
                                    "a",
                                    "b",
                                    "abc",
                                    "Abc",
                                    "äöü",
                                    "a,b,c",
                                    " padded ",
                                    "12",
                                    "-7",
                                    "3.5",
                                    "true",
                                    "x1",
                                    "ß€𝄞",
                                    "a-b",
                                    ",",
                                    "2024-05-06",
                                    "nan",
                                    "99999999999999999999",
                                    "1e5"};

static struct text_ref random_text(uint64_t *seed, char *heap, uint32_t *used)
{
    const char *word = words[fixture_random(seed) % ARRAY_COUNT(words)];
    struct text_ref ref = {*used, (uint32_t)strlen(word)};
    memcpy(heap + *used, word, ref.length);
    *used += ref.length;
    return ref;
}

static void fill_values(struct batch *batch, struct column *column, enum type_tag tag, uint32_t rows,
                        uint64_t *seed)
{
    char *heap = arena_alloc(&batch->arena, (size_t)rows * 32 + 1);
    uint32_t used = 0;
    for (uint32_t i = 0; i < rows; i++)
        switch (tag) {
        case TYPE_BOOL: column->bools[i] = fixture_random(seed) & 1; break;
        case TYPE_FLOAT: column->floats[i] = random_float(seed); break;
        case TYPE_TEXT:
        case TYPE_BYTES: column->texts[i] = random_text(seed, heap, &used); break;
        default: column->ints[i] = random_int(seed); break;
        }
    column->heap = heap;
}

static void fill_list(struct batch *batch, struct column *column, uint32_t rows, uint64_t *seed)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < rows; i++) {
        column->lists[i] = (struct list_ref){total, (uint32_t)(fixture_random(seed) % 4)};
        total += column->lists[i].length;
    }
    column->child_rows = total;
    for (uint32_t k = 0; k < column->children_count; k++) {
        struct column *child = &column->children[k];
        child->data = arena_calloc(&batch->arena, total + 1, 8);
        child->child_rows = total;
        fill_values(batch, child, child->tag, total, seed);
        child->valid = batch_valid_new(batch, total);
        for (uint32_t i = 0; i < total; i++)
            if (fixture_random(seed) % 5 == 0)
                bit_clear(child->valid, i);
    }
}

struct batch *fixture_batch(struct fixture *f, uint64_t *seed, uint32_t rows, bool has_nulls)
{
    struct batch *batch = batch_new(f->pool, f->schema, rows);
    for (uint32_t c = 0; c < f->schema->count; c++) {
        struct column *column = &batch->columns[c];
        if (column->tag == TYPE_LIST)
            fill_list(batch, column, rows, seed);
        else
            fill_values(batch, column, column->tag, rows, seed);
        for (uint32_t i = 0; has_nulls && i < rows; i++)
            if (fixture_random(seed) % 4 == 0) {
                batch_set_null(batch, column, i);
                if (column->tag == TYPE_BOOL)
                    column->bools[i] = 0;
                else
                    column->ints[i] = 0;
            }
    }
    for (uint32_t i = 0; i < rows; i++)
        batch->event_time[i] = i;
    return batch;
}

void fixture_select(struct batch *batch, uint64_t *seed)
{
    uint16_t *sel = arena_alloc(&batch->arena, (batch->rows + 1) * sizeof(*sel));
    batch->selected = 0;
    for (uint32_t i = 0; i < batch->rows; i++)
        if (fixture_random(seed) & 1)
            sel[batch->selected++] = (uint16_t)i;
    batch->sel = sel;
}

struct ast *fixture_parse(struct fixture *f, const char *text)
{
    return lang_parse_value(&f->arena, &f->diags, str_from(text));
}

struct expr *fixture_compile(struct fixture *f, const char *text)
{
    struct ast *ast = fixture_parse(f, text);
    return ast == NULL ? NULL : expr_compile(ast, f->schema, &f->arena, &f->diags);
}

static const char *show_scalar(struct fixture *f, const struct column *column, uint32_t row)
{
    switch (column->tag) {
    case TYPE_BOOL: return column->bools[row] != 0 ? "true" : "false";
    case TYPE_FLOAT:
        return column->floats[row] != column->floats[row]
                   ? "nan"
                   : arena_printf(&f->scratch, "%.17g", column->floats[row]);
    case TYPE_TEXT:
    case TYPE_BYTES: return arena_printf(&f->scratch, "%.*s", STR_ARGS(column_text(column, row)));
    default: return arena_printf(&f->scratch, "%lld", (long long)column->ints[row]);
    }
}

const char *fixture_show(struct fixture *f, const struct column *column, uint32_t row,
                         const struct type *type)
{
    if (!column_is_valid(column, row))
        return "null";
    if (type->tag != TYPE_LIST)
        return show_scalar(f, column, row);
    const char *text = "[";
    struct list_ref ref = column->lists[row];
    for (uint32_t k = 0; k < ref.length; k++)
        text = arena_printf(&f->scratch, "%s%s%s", text, k > 0 ? ", " : "",
                            fixture_show(f, &column->children[0], ref.offset + k, type->element));
    return arena_printf(&f->scratch, "%s]", text);
}

const char *fixture_value(struct fixture *f, const struct expr *expr, const struct batch *batch, uint32_t row)
{
    struct arena memory = {0}, scratch = {0};
    struct expr_errors errors = {0};
    struct column out;
    struct type type = expr_type(expr);
    expr_eval(expr, batch, &scratch, &memory, &out, &errors);
    const char *value = bit_get(errors.rows, row)
                            ? arena_printf(&f->scratch, "error: %s", errors.reasons[row])
                            : arena_strdup(&f->scratch, fixture_show(f, &out, row, &type));
    arena_free(&memory);
    arena_free(&scratch);
    return value;
}
