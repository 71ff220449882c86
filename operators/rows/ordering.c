#include "operators/rows/ordering.h"

#include "core/buffer.h"

enum { WORD_BYTES = 8 };

static bool is_text(const struct ordering_item *item)
{
    return item->type.tag == TYPE_TEXT || item->type.tag == TYPE_BYTES;
}

/* --- Binding --- */

/* Returns x for an expression desc(x) or asc(x), else the expression itself. NULL after a diagnostic. */
static const struct ast *direction(struct operator_bind *bind, const struct ast *ast, bool *is_descending)
{
    bool is_desc = ast->tag == AST_CALL && str_is(ast->text, "desc");
    *is_descending = is_desc;
    if (!is_desc && !(ast->tag == AST_CALL && str_is(ast->text, "asc")))
        return ast;
    if (ast->count == 1)
        return ast->children[0];
    diag_hint(bind->diags,
              diag_error(bind->diags, DIAG_BAD_ARGUMENTS, ast->span, "%s takes one value",
                         is_desc ? "desc" : "asc"),
              "write `%s(a), %s(b)` to order by two values", is_desc ? "desc" : "asc",
              is_desc ? "desc" : "asc");
    return NULL;
}

static bool bind_item(struct operator_bind *bind, const struct schema *schema, const struct ast *ast,
                      const char *option, struct ordering_item *item)
{
    const struct ast *value = direction(bind, ast, &item->is_descending);
    if (value == NULL)
        return false;
    item->expr = expr_compile(value, schema, bind->arena, bind->diags);
    if (item->expr == NULL)
        return false;
    item->type = expr_type(item->expr);
    if (item->type.tag == TYPE_LIST || item->type.tag == TYPE_RECORD) {
        diag_error(bind->diags, DIAG_TYPE_CLASH, value->span, "`%s` is a %s, which has no order",
                   expr_text(bind->arena, value), type_name(bind->arena, &item->type));
        return false;
    }
    if (expr_is_constant(item->expr)) {
        diag_hint(bind->diags,
                  diag_error(bind->diags, DIAG_BAD_ARGUMENTS, value->span,
                             "`%s` has the same value in all rows, so it cannot order them",
                             expr_text(bind->arena, value)),
                  "`%s` takes columns and expressions of columns, such as `%s desc(price), ts`", option,
                  option);
        return false;
    }
    return true;
}

bool ordering_bind(struct operator_bind *bind, uint32_t input, const struct expressions *expressions,
                   const char *option, struct ordering *ordering)
{
    *ordering = (struct ordering){.count = expressions->count};
    if (expressions->count > ORDERING_MAX) {
        diag_error(bind->diags, DIAG_OUT_OF_RANGE, expressions->items[ORDERING_MAX]->span,
                   "`%s` takes at most %d expressions", option, ORDERING_MAX);
        return false;
    }
    bool is_good = true;
    for (uint32_t i = 0; i < expressions->count; i++) {
        struct ordering_item *item = &ordering->items[i];
        is_good &= bind_item(bind, bind->inputs[input].schema, expressions->items[i], option, item);
        ordering->has_texts |= is_text(item);
    }
    return is_good;
}

void ordering_of_latest(struct ordering *ordering)
{
    *ordering = (struct ordering){.count = 1};
    ordering->items[0] = (struct ordering_item){.type = type_of(TYPE_TIME), .is_descending = true};
}

void ordering_lineage(const struct ordering *ordering, struct lineage *lineage)
{
    for (uint32_t i = 0; i < ordering->count; i++)
        if (ordering->items[i].expr != NULL)
            lineage_merge(lineage, expr_lineage(ordering->items[i].expr));
}

void ordering_text(const struct expressions *expressions, struct byte_buffer *out)
{
    for (uint32_t i = 0; i < expressions->count; i++) {
        buffer_append(out, ", ", i == 0 ? 0 : 2);
        ast_print(out, expressions->items[i]);
    }
}

/* --- Keys of a batch --- */

static uint64_t int_word(int64_t value)
{
    return (uint64_t)value ^ UINT64_C(1) << 63;
}

/* An unsigned word whose order is that of the floats, -0.0 equal to 0.0. The caller treats NaN as null. */
static uint64_t float_word(double value)
{
    uint64_t bits;
    value = value == 0 ? 0 : value;
    memcpy(&bits, &value, sizeof(bits));
    return (bits & UINT64_C(1) << 63) != 0 ? ~bits : bits | UINT64_C(1) << 63;
}

static uint64_t text_word(struct str text)
{
    uint64_t word = 0;
    if (text.length > 0)
        memcpy(&word, text.data, MIN(text.length, WORD_BYTES));
    return __builtin_bswap64(word);
}

/* Writes one expression's word of each selected row, `stride` words apart, and sets `bit` in nulls[i] where
 * the value is null. A row for which the expression failed gets an arbitrary word. */
static void fill_words(const struct ordering_item *item, const struct batch *batch,
                       const struct column *column, uint64_t *words, uint32_t stride, uint64_t *nulls,
                       uint64_t bit)
{
    uint64_t turn = item->is_descending ? UINT64_MAX : 0;
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        uint64_t word = 0;
        bool is_null = !column_is_valid(column, row);
        if (item->type.tag == TYPE_FLOAT) {
            is_null |= column->floats[row] != column->floats[row];
            word = float_word(column->floats[row]);
        } else if (item->type.tag == TYPE_BOOL) {
            word = column->bools[row];
        } else if (is_text(item)) {
            word = is_null ? 0 : text_word(column_text(column, row));
        } else {
            word = int_word(column->ints[row]);
        }
        words[(size_t)i * stride] = is_null ? UINT64_MAX : word ^ turn;
        nulls[i] |= is_null ? bit : 0;
    }
}

static void fill_times(const struct ordering_item *item, const struct batch *batch, uint64_t *words,
                       uint32_t stride)
{
    uint64_t turn = item->is_descending ? UINT64_MAX : 0;
    for (uint32_t i = 0; i < batch->selected; i++)
        words[(size_t)i * stride] = int_word(batch->event_time[batch_row(batch, i)]) ^ turn;
}

/* Sets rows->texts and rows->text_at: the whole texts of all selected rows, row by row. A row for which an
 * expression failed gets empty texts. */
static void fill_texts(const struct ordering *ordering, const struct batch *batch,
                       const struct column *columns, struct arena *scratch, const struct expr_errors *errors,
                       struct ordered_rows *rows)
{
    struct byte_buffer out = {0};
    uint32_t *at = arena_alloc(scratch, ((size_t)batch->selected + 1) * sizeof(*at));
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        bool has_failed = errors->count > 0 && bit_get(errors->rows, row);
        at[i] = (uint32_t)out.length;
        for (uint32_t k = 0; k < ordering->count; k++) {
            if (!is_text(&ordering->items[k]))
                continue;
            struct str text = {NULL, 0};
            if (!has_failed && column_is_valid(&columns[k], row))
                text = column_text(&columns[k], row);
            uint32_t length = (uint32_t)text.length;
            buffer_append(&out, &length, sizeof(length));
            if (length > 0)
                buffer_append(&out, text.data, length);
        }
        leat_assert(out.length <= UINT32_MAX);
    }
    at[batch->selected] = (uint32_t)out.length;
    rows->text_at = at;
    rows->texts = arena_copy(scratch, out.data == NULL ? "" : out.data, MAX(out.length, 1));
    buffer_free(&out);
}

struct ordered_rows ordering_evaluate(const struct ordering *ordering, const struct batch *batch,
                                      struct arena *scratch, struct expr_errors *errors)
{
    size_t selected = MAX(batch->selected, 1);
    uint64_t *words = arena_alloc(scratch, selected * ordering->count * sizeof(*words));
    uint64_t *nulls = arena_calloc(scratch, selected, sizeof(*nulls));
    struct column *columns = arena_array(scratch, struct column, ordering->count);
    struct ordered_rows rows = {.count = ordering->count, .words = words, .nulls = nulls};
    for (uint32_t k = 0; k < ordering->count; k++)
        if (ordering->items[k].expr != NULL)
            expr_eval(ordering->items[k].expr, batch, scratch, scratch, &columns[k], errors);
    for (uint32_t k = 0; k < ordering->count; k++)
        if (ordering->items[k].expr == NULL)
            fill_times(&ordering->items[k], batch, words + k, ordering->count);
        else
            fill_words(&ordering->items[k], batch, &columns[k], words + k, ordering->count, nulls,
                       UINT64_C(1) << k);
    if (ordering->has_texts)
        fill_texts(ordering, batch, columns, scratch, errors, &rows);
    return rows;
}

/* --- Compares --- */

static struct str next_text(const char **at)
{
    uint32_t length;
    memcpy(&length, *at, sizeof(length));
    struct str text = {*at + sizeof(length), length};
    *at += sizeof(length) + length;
    return text;
}

static int compare_texts(struct str a, struct str b)
{
    size_t common = MIN(a.length, b.length);
    int order = common == 0 ? 0 : memcmp(a.data, b.data, common);
    return order != 0 ? order : a.length < b.length ? -1 : a.length > b.length;
}

int ordering_compare_rest(const struct ordering *ordering, const struct order_key *a,
                          const struct order_key *b)
{
    const char *a_text = a->texts, *b_text = b->texts;
    for (uint32_t k = 0; k < ordering->count; k++) {
        if (a->words[k] != b->words[k])
            return a->words[k] < b->words[k] ? -1 : 1;
        uint64_t a_null = a->nulls >> k & 1, b_null = b->nulls >> k & 1;
        if (a_null != b_null)
            return a_null < b_null ? -1 : 1;
        if (!is_text(&ordering->items[k]))
            continue;
        int order = compare_texts(next_text(&a_text), next_text(&b_text));
        if (order != 0)
            return (order < 0) != ordering->items[k].is_descending ? -1 : 1;
    }
    return 0;
}

/* --- Keys as bytes: words, then null bits, then texts --- */

size_t ordering_key_bytes(const struct ordering *ordering, const struct order_key *key)
{
    return ((size_t)ordering->count + 1) * WORD_BYTES + key->texts_bytes;
}

void ordering_put(const struct ordering *ordering, const struct order_key *key, char *out)
{
    size_t words = (size_t)ordering->count * WORD_BYTES;
    memcpy(out, key->words, words);
    memcpy(out + words, &key->nulls, WORD_BYTES);
    if (key->texts_bytes > 0)
        memcpy(out + words + WORD_BYTES, key->texts, key->texts_bytes);
}

static bool texts_are_whole(const struct ordering *ordering, const char *texts, size_t bytes)
{
    for (uint32_t k = 0; k < ordering->count; k++) {
        uint32_t length;
        if (!is_text(&ordering->items[k]))
            continue;
        if (bytes < sizeof(length))
            return false;
        memcpy(&length, texts, sizeof(length));
        if (length > bytes - sizeof(length))
            return false;
        texts += sizeof(length) + length;
        bytes -= sizeof(length) + length;
    }
    return bytes == 0;
}

bool ordering_get(const struct ordering *ordering, struct str data, struct order_key *key)
{
    size_t words = (size_t)ordering->count * WORD_BYTES;
    if (data.length < words + WORD_BYTES)
        return false;
    *key = (struct order_key){.words = (const uint64_t *)(const void *)data.data,
                              .texts = data.data + words + WORD_BYTES,
                              .texts_bytes = (uint32_t)(data.length - words - WORD_BYTES)};
    memcpy(&key->nulls, data.data + words, WORD_BYTES);
    return texts_are_whole(ordering, key->texts, key->texts_bytes);
}
