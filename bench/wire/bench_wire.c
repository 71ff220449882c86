/*
 * The wire format of batches (core/batch_codec.h): CPU nanoseconds a row to write a batch of 1,024 rows and to read it
 * again, and the bytes that a row takes. Batches stay in the cache.
 *
 *     bench_wire          a table
 *     bench_wire --rows   a line a case: name, ns to write, ns to read, bytes a row, bytes a row of its columns
 *
 * Times are medians of ROUNDS rounds. Every batch that is read is compared with the one that was written.
 */
#include "core/batch_codec.h"

#include "core/os.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 9, PASSES = 400, TEXT_BYTES = 12 };

static struct field number_fields[] = {{.name = {"a", 1}, .type = {.tag = TYPE_INT}},
                                       {.name = {"b", 1}, .type = {.tag = TYPE_FLOAT}},
                                       {.name = {"c", 1}, .type = {.tag = TYPE_TIME}},
                                       {.name = {"d", 1}, .type = {.tag = TYPE_INT}}};
static const struct schema numbers = {.fields = number_fields, .count = 4};
static struct field text_fields[] = {{.name = {"a", 1}, .type = {.tag = TYPE_TEXT}},
                                     {.name = {"b", 1}, .type = {.tag = TYPE_INT}}};
static const struct schema texts = {.fields = text_fields, .count = 2};

static uint32_t draw(void)
{
    static uint64_t state = 1;
    state = state * UINT64_C(6364136223846793005) + 1;
    return (uint32_t)(state >> 33);
}

/* Rows of a source, 50 microseconds from each other, whose event times are up to a second late. */
static struct batch *make(struct batch_pool *pool, const struct schema *schema)
{
    struct batch *batch = batch_new(pool, schema, BATCH_ROWS);
    batch->partition = 3;
    batch->first_record = 123456789;
    batch->arrival_time = batch->order_time = arena_alloc(&batch->arena, BATCH_ROWS * sizeof(int64_t));
    char *heap = arena_alloc(&batch->arena, (size_t)BATCH_ROWS * TEXT_BYTES);
    memset(heap, 'a', (size_t)BATCH_ROWS * TEXT_BYTES);
    for (uint32_t i = 0; i < BATCH_ROWS; i++) {
        int64_t time = INT64_C(1700000000000000) + (int64_t)i * 50;
        batch->event_time[i] = time - draw() % 1000000;
        batch->arrival_time[i] = time + draw() % 40;
        for (uint32_t k = 0; k < schema->count; k++)
            if (schema->fields[k].type.tag == TYPE_TEXT)
                batch->columns[k].texts[i] = (struct text_ref){i * TEXT_BYTES, TEXT_BYTES};
            else
                batch->columns[k].ints[i] = (int64_t)draw() << 31 ^ draw();
    }
    for (uint32_t k = 0; k < schema->count; k++)
        batch->columns[k].heap = heap;
    return batch;
}

/* Every second row of the batch. */
static void choose_half(struct batch *batch)
{
    uint16_t *sel = arena_alloc(&batch->arena, BATCH_ROWS / 2 * sizeof(*sel));
    for (uint32_t i = 0; i < BATCH_ROWS / 2; i++)
        sel[i] = (uint16_t)(2 * i);
    batch->sel = sel;
    batch->selected = BATCH_ROWS / 2;
}

/* Rows of four partitions that were merged, as behind an exchange by key. */
static void merge(struct batch *batch)
{
    struct row_origin *origins = arena_alloc(&batch->arena, BATCH_ROWS * sizeof(*origins));
    struct row_order *orders = arena_alloc(&batch->arena, BATCH_ROWS * sizeof(*orders));
    for (uint32_t i = 0; i < BATCH_ROWS; i++) {
        origins[i] = (struct row_origin){draw() % 4, batch->first_record + i};
        orders[i] = (struct row_order){
            .partition = origins[i].partition, .time = batch->order_time[i], .tie = origins[i].record};
    }
    batch->origins = origins;
    batch->orders = orders;
}

/* Orders of rows that a window's timers make, in the order of keys' hashes. */
static void order_by_timers(struct batch *batch)
{
    struct row_order *orders = arena_alloc(&batch->arena, BATCH_ROWS * sizeof(*orders)), last = {0};
    for (uint32_t i = 0; i < BATCH_ROWS; i++) {
        batch->event_time[i] = INT64_C(1700000059999999);
        orders[i] = row_order_of_timer(&last, 5, INT64_C(1700000060000000),
                                       ((uint64_t)i << 54) + ((uint64_t)draw() << 20));
    }
    batch->arrival_time = batch->order_time = NULL;
    batch->partition = PARTITION_NONE;
    batch->orders = orders;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void check(const struct batch *batch, const struct batch *read)
{
    char expected[33], found[33];
    const struct batch *batches[] = {batch, read};
    for (int i = 0; i < 2; i++) {
        struct batch_digest *digest = batch_digest_new();
        batch_digest_add(digest, batches[i]);
        batch_digest_hex(digest, i == 0 ? expected : found);
        batch_digest_free(digest);
    }
    bool is_same = strcmp(expected, found) == 0 && read->rows == batch->selected;
    for (uint32_t i = 0; is_same && i < read->rows; i++) {
        struct row_order a = batch_order(batch, batch_row(batch, i)), b = batch_order(read, i);
        is_same = row_order_compare(&a, &b) == 0;
    }
    if (!is_same) {
        fprintf(stderr, "bench_wire: the rows that were read are not those that were written\n");
        exit(1);
    }
}

static void measure(const char *name, struct batch_pool *pool, const struct batch *batch, bool is_table)
{
    double write_ns[ROUNDS], read_ns[ROUNDS];
    struct byte_buffer out = {0};
    for (int round = 0; round < ROUNDS; round++) {
        int64_t begun = os_thread_cpu_us();
        for (int pass = 0; pass < PASSES; pass++) {
            buffer_clear(&out);
            batch_write(batch, &out);
        }
        int64_t written = os_thread_cpu_us();
        for (int pass = 0; pass < PASSES; pass++)
            batch_release(batch_read(pool, batch->schema, (struct str){out.data, out.length}, UINT32_MAX));
        int64_t read = os_thread_cpu_us();
        double rows = (double)batch->selected * PASSES;
        write_ns[round] = 1000.0 * (double)(written - begun) / rows;
        read_ns[round] = 1000.0 * (double)(read - written) / rows;
    }
    struct batch *read = batch_read(pool, batch->schema, (struct str){out.data, out.length}, UINT32_MAX);
    check(batch, read);
    batch_release(read);
    qsort(write_ns, ROUNDS, sizeof(double), compare);
    qsort(read_ns, ROUNDS, sizeof(double), compare);
    size_t columns = 0;
    for (uint32_t k = 0; k < batch->schema->count; k++)
        columns += sizeof(int64_t) + (batch->schema->fields[k].type.tag == TYPE_TEXT ? TEXT_BYTES : 0);
    printf(is_table ? "%-8s write %5.2f ns, read %5.2f ns, %5.1f bytes a row of which its columns have %zu\n"
                    : "%s %.3f %.3f %.2f %zu\n",
           name, write_ns[ROUNDS / 2], read_ns[ROUNDS / 2], (double)out.length / batch->selected, columns);
    buffer_free(&out);
}

int main(int count, char **arguments)
{
    bool is_table = count < 2 || strcmp(arguments[1], "--rows") != 0;
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = make(pool, &numbers);
    measure("read", pool, batch, is_table);
    choose_half(batch);
    measure("chosen", pool, batch, is_table);
    batch_release(batch);
    batch = make(pool, &texts);
    measure("texts", pool, batch, is_table);
    batch_release(batch);
    batch = make(pool, &numbers);
    merge(batch);
    measure("merged", pool, batch, is_table);
    batch_release(batch);
    batch = make(pool, &numbers);
    order_by_timers(batch);
    measure("timers", pool, batch, is_table);
    batch_release(batch);
    batch_pool_free(pool);
    return 0;
}
