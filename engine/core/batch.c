#include "core/batch.h"

#include "core/mem.h"

#include <pthread.h>
#include <stdlib.h>

/* A batch that returns to the pool keeps its arena's blocks, unless it used more than POOL_ARENA_KEPT bytes.
 * NEW_BLOCK_BYTES, DERIVED_BLOCK_BYTES: first block of the arena of a batch from batch_new, batch_derive. */
enum {
    POOL_ARENA_KEPT = 4 << 20,
    POOL_BUDGET = 32 << 20,
    NEW_BLOCK_BYTES = 128 << 10,
    DERIVED_BLOCK_BYTES = 8 << 10
};

enum pool_list { POOL_NEW, POOL_DERIVED, POOL_LISTS };

struct batch_pool {
    pthread_mutex_t mutex; /* guards free_lists and writes of kept_bytes */
    struct batch *free_lists[POOL_LISTS];
    size_t kept_bytes; /* of the arenas of free batches; atomic, written under the mutex */
    size_t budget;
    size_t alive; /* atomic: number of batches in use */
};

/* A batch with its pool list; `batch` comes first, so that a pointer to the batch points to this struct,
 * too. */
struct pooled_batch {
    struct batch batch;
    enum pool_list list;
    size_t kept_bytes; /* of the batch's arena, while the batch is free */
};

struct batch_pool *batch_pool_new(void)
{
    struct batch_pool *pool = mem_calloc(1, sizeof(*pool));
    pool->budget = POOL_BUDGET;
    pthread_mutex_init(&pool->mutex, NULL);
    return pool;
}

void batch_pool_set_budget(struct batch_pool *pool, size_t bytes)
{
    pool->budget = bytes;
}

size_t batch_pool_kept_bytes(const struct batch_pool *pool)
{
    return __atomic_load_n(&pool->kept_bytes, __ATOMIC_RELAXED);
}

void batch_pool_free(struct batch_pool *pool)
{
    if (pool == NULL)
        return;
    leat_assert(pool->alive == 0);
    for (int list = 0; list < POOL_LISTS; list++)
        while (pool->free_lists[list] != NULL) {
            struct batch *batch = pool->free_lists[list];
            pool->free_lists[list] = batch->next;
            arena_free(&batch->arena);
            free(batch);
        }
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

size_t batch_pool_alive(const struct batch_pool *pool)
{
    return __atomic_load_n(&pool->alive, __ATOMIC_RELAXED);
}

/* Adds `bytes` to kept_bytes; negative: subtracts. Under the mutex. */
static void keep(struct batch_pool *pool, int64_t bytes)
{
    size_t kept = (size_t)((int64_t)pool->kept_bytes + bytes);
    __atomic_store_n(&pool->kept_bytes, kept, __ATOMIC_RELAXED);
}

static struct batch *pool_take(struct batch_pool *pool, enum pool_list list)
{
    pthread_mutex_lock(&pool->mutex);
    struct batch *batch = pool->free_lists[list];
    if (batch != NULL) {
        pool->free_lists[list] = batch->next;
        keep(pool, -(int64_t)((struct pooled_batch *)batch)->kept_bytes);
    }
    pthread_mutex_unlock(&pool->mutex);
    __atomic_add_fetch(&pool->alive, 1, __ATOMIC_RELAXED);
    struct arena arena = {.block_bytes = list == POOL_NEW ? NEW_BLOCK_BYTES : DERIVED_BLOCK_BYTES};
    if (batch != NULL) {
        arena = batch->arena;
    } else {
        struct pooled_batch *pooled = mem_calloc(1, sizeof(*pooled));
        pooled->list = list;
        batch = &pooled->batch;
    }
    *batch = (struct batch){.pool = pool, .references = 1, .partition = PARTITION_NONE, .arena = arena};
    return batch;
}

static void pool_give(struct batch *batch)
{
    struct batch_pool *pool = batch->pool;
    struct pooled_batch *pooled = (struct pooled_batch *)batch;
    enum pool_list list = pooled->list;
    if (batch->arena.used_bytes > POOL_ARENA_KEPT) {
        arena_free(&batch->arena);
        batch->arena.block_bytes = list == POOL_NEW ? NEW_BLOCK_BYTES : DERIVED_BLOCK_BYTES;
    } else {
        arena_reset(&batch->arena);
    }
    pooled->kept_bytes = arena_kept_bytes(&batch->arena);
    __atomic_sub_fetch(&pool->alive, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&pool->mutex);
    bool is_kept = pool->kept_bytes + pooled->kept_bytes <= pool->budget;
    if (is_kept) {
        keep(pool, (int64_t)pooled->kept_bytes);
        batch->next = pool->free_lists[list];
        pool->free_lists[list] = batch;
    }
    pthread_mutex_unlock(&pool->mutex);
    if (!is_kept) {
        arena_free(&batch->arena);
        free(batch);
    }
}

static size_t value_bytes(enum type_tag tag)
{
    return tag == TYPE_BOOL ? 1 : 8;
}

_Static_assert(sizeof(struct text_ref) == 8 && sizeof(struct list_ref) == 8, "value_bytes");

void batch_column_init(struct batch *batch, struct column *column, struct type type, uint32_t rows)
{
    *column = (struct column){.tag = type.tag};
    column->data = arena_alloc(&batch->arena, MAX(rows, 1) * value_bytes(type.tag));
    if (type.tag == TYPE_LIST) {
        bool is_record = type.element->tag == TYPE_RECORD;
        column->children_count = is_record ? type.element->fields->count : 1;
        column->children = arena_array(&batch->arena, struct column, column->children_count);
        for (uint32_t i = 0; i < column->children_count; i++)
            column->children[i].tag =
                is_record ? type.element->fields->fields[i].type.tag : type.element->tag;
    }
}

struct batch *batch_new(struct batch_pool *pool, const struct schema *schema, uint32_t rows)
{
    leat_assert(rows <= BATCH_ROWS);
    struct batch *batch = pool_take(pool, POOL_NEW);
    batch->schema = schema;
    batch->rows = batch->selected = rows;
    batch->columns = arena_alloc(&batch->arena, MAX(schema->count, 1) * sizeof(struct column));
    for (uint32_t i = 0; i < schema->count; i++)
        batch_column_init(batch, &batch->columns[i], schema->fields[i].type, rows);
    batch->event_time = arena_alloc(&batch->arena, MAX(rows, 1) * sizeof(int64_t));
    return batch;
}

struct batch *batch_derive(struct batch *parent, const struct schema *schema)
{
    struct batch *batch = pool_take(parent->pool, POOL_DERIVED);
    batch->schema = schema;
    batch->rows = parent->rows;
    batch->selected = parent->selected;
    batch->sel = parent->sel;
    batch->event_time = parent->event_time;
    batch->arrival_time = parent->arrival_time;
    batch->order_time = parent->order_time;
    batch->partition = parent->partition;
    batch->first_record = parent->first_record;
    batch->origins = parent->origins;
    batch->orders = parent->orders;
    batch->columns = arena_alloc(&batch->arena, MAX(schema->count, 1) * sizeof(struct column));
    memcpy(batch->columns, parent->columns,
           MIN(schema->count, parent->schema->count) * sizeof(struct column));
    batch->parents[0] = parent;
    batch_hold(parent);
    return batch;
}

void batch_hold(struct batch *batch)
{
    __atomic_add_fetch(&batch->references, 1, __ATOMIC_RELAXED);
}

void batch_release(struct batch *batch)
{
    while (batch != NULL && __atomic_sub_fetch(&batch->references, 1, __ATOMIC_ACQ_REL) == 0) {
        for (int i = 1; i < BATCH_PARENTS_MAX; i++)
            batch_release(batch->parents[i]);
        struct batch *parent = batch->parents[0];
        pool_give(batch);
        batch = parent;
    }
}

size_t batch_held_bytes(const struct batch *batch)
{
    size_t bytes = sizeof(*batch) + batch->arena.used_bytes;
    for (int i = 0; i < BATCH_PARENTS_MAX; i++)
        bytes += batch->parents[i] == NULL ? 0 : batch_held_bytes(batch->parents[i]);
    return bytes;
}

uint64_t *batch_valid_new(struct batch *batch, uint32_t rows)
{
    size_t words = MAX(BIT_WORDS((size_t)rows), BATCH_VALID_WORDS);
    uint64_t *valid = arena_alloc(&batch->arena, words * sizeof(uint64_t));
    memset(valid, 0xff, words * sizeof(uint64_t));
    return valid;
}

void batch_set_null(struct batch *batch, struct column *column, uint32_t row)
{
    if (column->valid == NULL)
        column->valid = batch_valid_new(batch, batch->rows);
    bit_clear(column->valid, row);
}

void batch_number(struct batch *batch, uint64_t first, const int64_t *numbers)
{
    batch->first_record = numbers == NULL ? first : (uint64_t)numbers[0];
    if (numbers == NULL || numbers[batch->rows - 1] - numbers[0] == (int64_t)batch->rows - 1)
        return;
    struct row_origin *origins = arena_alloc(&batch->arena, batch->rows * sizeof(*origins));
    for (uint32_t i = 0; i < batch->rows; i++)
        origins[i] = (struct row_origin){batch->partition, (uint64_t)numbers[i]};
    batch->origins = origins;
}

struct row_origin batch_origin(const struct batch *batch, uint32_t row)
{
    if (batch->origins != NULL)
        return batch->origins[row];
    return (struct row_origin){batch->partition, batch->first_record + row};
}

struct row_order batch_order(const struct batch *batch, uint32_t row)
{
    if (batch->orders != NULL)
        return batch->orders[row];
    return (struct row_order){.partition = batch->partition,
                              .time = batch->order_time == NULL ? 0 : batch->order_time[row],
                              .tie = batch->first_record + row};
}

int row_order_compare(const struct row_order *a, const struct row_order *b)
{
    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    if (a->partition != b->partition)
        return a->partition < b->partition ? -1 : 1;
    if (a->tie != b->tie)
        return a->tie < b->tie ? -1 : 1;
    if (a->sub != b->sub)
        return a->sub < b->sub ? -1 : 1;
    return a->depth < b->depth ? -1 : a->depth > b->depth;
}

int row_order_compare_inputs(const struct row_order *a, const struct row_order *b)
{
    bool are_of_one_record =
        a->place == b->place && a->time == b->time && a->partition == b->partition && a->tie == b->tie;
    if (!are_of_one_record || a->depth == b->depth)
        return row_order_compare(a, b);
    uint32_t least = MIN(a->depth, b->depth);
    if (least == 0) /* a row that is in no list: the record itself */
        return 0;
    uint64_t of_a = a->sub >> (a->depth - least) * ROW_ORDER_ELEMENT_BITS;
    uint64_t of_b = b->sub >> (b->depth - least) * ROW_ORDER_ELEMENT_BITS;
    return of_a < of_b ? -1 : of_a > of_b;
}
