/* Hashes and buckets. Features and models depend on the results: a function with other results needs another
 * name. */
#define XXH_INLINE_ALL
#include "operators/expr/node.h"

#include "operators/expr/exact_math.h"

#include <xxhash.h>

/* The hash of null. Types have different seeds, so that 1, 1.0, "1" and true are four values. */
static const uint64_t null_hash = UINT64_C(0x6c1c6f2a8f5fd3b1);

static uint64_t hash_at(const struct column *column, uint32_t row)
{
    uint64_t bits;
    switch (column->tag) {
    case TYPE_TEXT:
    case TYPE_BYTES:
        return XXH3_64bits_withSeed(column->heap + column->texts[row].offset, column->texts[row].length,
                                    column->tag);
    case TYPE_BOOL: bits = column->bools[row] != 0; break;
    case TYPE_FLOAT: {
        double x = column->floats[row];
        x = x == 0 ? 0.0 : x;
        memcpy(&bits, &x, sizeof(bits));
        if (x != x)
            bits = UINT64_C(0x7ff8000000000000);
        break;
    }
    default: bits = (uint64_t)column->ints[row]; break;
    }
    return XXH3_64bits_withSeed(&bits, sizeof(bits), column->tag);
}

uint64_t expr_hash_value(const struct column *column, uint32_t row)
{
    leat_assert(column->tag < TYPE_LIST);
    return column_is_valid(column, row) ? hash_at(column, row) : null_hash;
}

static inline uint64_t combine(uint64_t hash, uint64_t next)
{
    uint64_t pair[] = {hash, next};
    return XXH3_64bits(pair, sizeof(pair));
}

uint64_t expr_hash_combine(uint64_t hash, uint64_t next)
{
    return combine(hash, next);
}

void kernel_hash(struct expr_call *call)
{
    const struct expr_vec *a = &call->args[0];
    for (uint32_t i = 0; i < call->live_count; i++)
        call->out->column.ints[call->live[i]] = (int64_t)hash_at(&a->column, call->live[i] & a->mask);
}

bool prepare_hash_mod(struct expr_compiler *c, struct expr_node *node)
{
    if (expr_constant_arg(node, 1)->ints[0] > 0)
        return true;
    diag_error(c->diags, DIAG_BAD_ARGUMENTS, node->args[1]->ast->span,
               "the number of buckets must be 1 or more");
    return false;
}

void kernel_hash_mod(struct expr_call *call)
{
    const struct expr_vec *a = &call->args[0];
    uint64_t buckets = (uint64_t)call->args[1].column.ints[0];
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        call->out->column.ints[row] = (int64_t)(hash_at(&a->column, row & a->mask) % buckets);
    }
}

/* Combines hashes[i] with the value of row i, as expr_hash_combine does, but faster for the two usual
 * types. */
static void combine_column(uint64_t *hashes, const struct expr_call *call, const struct expr_vec *arg)
{
    const struct column *column = &arg->column;
    uint32_t count = call->rows.count;
    if (column->valid == NULL && column->tag == TYPE_TEXT) {
        for (uint32_t i = 0; i < count; i++) {
            struct text_ref text = column->texts[rows_at(&call->rows, i) & arg->mask];
            uint64_t value = XXH3_64bits_withSeed(column->heap + text.offset, text.length, TYPE_TEXT);
            hashes[i] = combine(hashes[i], value);
        }
    } else if (column->valid == NULL && column->tag == TYPE_INT) {
        for (uint32_t i = 0; i < count; i++) {
            int64_t number = column->ints[rows_at(&call->rows, i) & arg->mask];
            uint64_t value = XXH3_64bits_withSeed(&number, sizeof(number), TYPE_INT);
            hashes[i] = combine(hashes[i], value);
        }
    } else {
        for (uint32_t i = 0; i < count; i++) {
            uint32_t row = rows_at(&call->rows, i) & arg->mask;
            hashes[i] = combine(hashes[i], expr_hash_value(column, row));
        }
    }
}

/* Column by column, so that the rows' hashes are computed in parallel. */
void kernel_cross(struct expr_call *call)
{
    uint64_t hashes[BATCH_ROWS] = {0};
    leat_assert(call->rows.count <= BATCH_ROWS);
    for (uint32_t k = 0; k < call->node->args_count; k++)
        combine_column(hashes, call, &call->args[k]);
    for (uint32_t i = 0; i < call->rows.count; i++)
        call->out->column.ints[rows_at(&call->rows, i)] = (int64_t)hashes[i];
}

/* --- Buckets --- */

struct bounds {
    uint32_t count;
    double *floats;
    const int64_t *ints; /* bucketize of ints */
};

/* aux: struct bounds. Bounds must rise strictly. */
bool prepare_bounds(struct expr_compiler *c, struct expr_node *node)
{
    const struct column *list = expr_constant_arg(node, 1);
    const struct column *items = &list->children[0];
    struct list_ref ref = list->lists[0];
    struct bounds *bounds = arena_new(c->arena, struct bounds);
    bool is_int = items->tag == TYPE_INT, rises = true;
    bounds->count = ref.length;
    bounds->floats = arena_array(c->arena, double, ref.length);
    bounds->ints = is_int ? items->ints + ref.offset : NULL;
    for (uint32_t i = 0; i < ref.length; i++) {
        uint32_t at = ref.offset + i;
        rises &= column_is_valid(items, at);
        bounds->floats[i] = is_int ? (double)items->ints[at] : items->floats[at];
        rises &= i == 0   ? bounds->floats[0] == bounds->floats[0]
                 : is_int ? items->ints[at] > items->ints[at - 1]
                          : items->floats[at] > items->floats[at - 1];
    }
    node->aux = bounds;
    if (!rises)
        diag_error(c->diags, DIAG_BAD_ARGUMENTS, node->args[1]->ast->span,
                   "the bounds must rise, without nulls");
    return rises;
}

void kernel_bucketize_int(struct expr_call *call)
{
    const struct bounds *bounds = call->node->aux;
    const struct expr_vec *a = &call->args[0];
    for (uint32_t i = 0; i < call->live_count; i++) {
        int64_t x = a->column.ints[call->live[i] & a->mask], bucket = 0;
        for (uint32_t k = 0; k < bounds->count; k++)
            bucket += bounds->ints[k] <= x;
        call->out->column.ints[call->live[i]] = bucket;
    }
}

void kernel_bucketize_float(struct expr_call *call)
{
    const struct bounds *bounds = call->node->aux;
    const struct expr_vec *a = &call->args[0];
    for (uint32_t i = 0; i < call->live_count; i++) {
        double x = a->column.floats[call->live[i] & a->mask];
        int64_t bucket = 0;
        for (uint32_t k = 0; k < bounds->count; k++)
            bucket += bounds->floats[k] <= x;
        call->out->column.ints[call->live[i]] = bucket;
        if (x != x)
            call_null(call, call->live[i]);
    }
}

enum { LOG_STEPS_MAX = 64 };

struct log_steps {
    uint32_t count;               /* buckets for each doubling */
    double bounds[LOG_STEPS_MAX]; /* 2^(k / count), k = 0 .. count - 1 */
};

bool prepare_log_bucket(struct expr_compiler *c, struct expr_node *node)
{
    struct log_steps *steps = arena_new(c->arena, struct log_steps);
    int64_t count = node->args_count == 1 ? 1 : expr_constant_arg(node, 1)->ints[0];
    node->aux = steps;
    if (count < 1 || count > LOG_STEPS_MAX) {
        diag_error(c->diags, DIAG_BAD_ARGUMENTS, node->args[1]->ast->span, "`steps` must be 1 to %d",
                   LOG_STEPS_MAX);
        return false;
    }
    steps->count = (uint32_t)count;
    for (uint32_t k = 0; k < steps->count; k++)
        steps->bounds[k] = exact_pow(2.0, (double)k / (double)count);
    return true;
}

static int64_t log_bucket(const struct log_steps *steps, double magnitude)
{
    if (magnitude < 1)
        return 0;
    uint64_t bits;
    memcpy(&bits, &magnitude, sizeof(bits));
    int64_t exponent = (int64_t)(bits >> 52) - 1023;
    bits = (bits & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x3ff0000000000000);
    double mantissa;
    memcpy(&mantissa, &bits, sizeof(mantissa));
    int64_t bucket = exponent * steps->count;
    for (uint32_t k = 0; k < steps->count; k++)
        bucket += steps->bounds[k] <= mantissa;
    return bucket;
}

void kernel_log_bucket(struct expr_call *call)
{
    const struct log_steps *steps = call->node->aux;
    const struct expr_vec *a = &call->args[0];
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        double x = a->column.floats[row & a->mask];
        call->out->column.ints[row] = x < 0 ? -log_bucket(steps, -x) : log_bucket(steps, x);
        if (x != x)
            call_null(call, row);
    }
}
