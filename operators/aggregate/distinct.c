/* distinct: the number of different values, by HyperLogLog (Flajolet, Fusy, Gandouet, Meunier 2007) with
 * linear counting for small numbers. A sketch is sparse at first: the sorted 32-bit hashes of its values, at
 * most SPARSE_MAX of them. Its count is exact unless hashes collide (one in 2^32 for each pair of values). A
 * larger sketch is dense, with 2^12 registers: the standard error is 1.04 / sqrt(4096) = 1.6 %. Both forms
 * merge to the same bytes in any order. */
#include "operators/aggregate/aggregate.h"

#include <math.h>

enum { SPARSE_MAX = 512, REGISTER_BITS = 12, REGISTERS = 1 << REGISTER_BITS };

static uint32_t hash_at(const char *hashes, uint32_t index)
{
    uint32_t hash;
    memcpy(&hash, hashes + (size_t)index * sizeof(hash), sizeof(hash));
    return hash;
}

/* A dense sketch has REGISTERS bytes, a sparse one at most SPARSE_MAX * 4, which is less. */
_Static_assert(SPARSE_MAX * sizeof(uint32_t) < REGISTERS, "the length tells the forms apart");

static bool is_dense(size_t bytes)
{
    return bytes == REGISTERS;
}

static void set_register(char *registers, uint32_t hash)
{
    uint32_t index = hash >> (32 - REGISTER_BITS), rest = hash << REGISTER_BITS;
    char rank = (char)(rest == 0 ? 32 - REGISTER_BITS + 1 : __builtin_clz(rest) + 1);
    registers[index] = MAX(registers[index], rank);
}

static void make_dense(struct byte_buffer *sketch)
{
    char registers[REGISTERS] = {0};
    for (uint32_t i = 0; i < sketch->length / sizeof(uint32_t); i++)
        set_register(registers, hash_at(sketch->data, i));
    buffer_clear(sketch);
    buffer_append(sketch, registers, sizeof(registers));
}

static void add_hash(struct byte_buffer *sketch, uint32_t hash)
{
    if (is_dense(sketch->length)) {
        set_register(sketch->data, hash);
        return;
    }
    uint32_t count = (uint32_t)(sketch->length / sizeof(hash)), low = 0, high = count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (hash_at(sketch->data, middle) < hash)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < count && hash_at(sketch->data, low) == hash)
        return;
    buffer_reserve(sketch, sizeof(hash));
    char *at = sketch->data + (size_t)low * sizeof(hash);
    memmove(at + sizeof(hash), at, (count - low) * sizeof(hash));
    memcpy(at, &hash, sizeof(hash));
    sketch->length += sizeof(hash);
    if (count + 1 > SPARSE_MAX)
        make_dense(sketch);
}

static void distinct_absorb(const struct aggregate *aggregate, struct byte_buffer *partial,
                            const struct aggregate_row *row)
{
    (void)aggregate;
    add_hash(partial, (uint32_t)(expr_hash_value(row->argument, row->row) >> 32));
}

/* Only for a dense sketch: its length never changes. */
static uint32_t distinct_absorb_here(const struct aggregate *aggregate, char *partial, uint32_t length,
                                     uint32_t capacity, const struct aggregate_row *row)
{
    (void)aggregate, (void)capacity;
    if (!is_dense(length))
        return ABSORB_ELSEWHERE;
    set_register(partial, (uint32_t)(expr_hash_value(row->argument, row->row) >> 32));
    return length;
}

static void distinct_combine(const struct aggregate *aggregate, struct byte_buffer *into, struct str from)
{
    (void)aggregate;
    if (!is_dense(from.length)) {
        for (uint32_t i = 0; i < from.length / sizeof(uint32_t); i++)
            add_hash(into, hash_at(from.data, i));
        return;
    }
    if (!is_dense(into->length))
        make_dense(into);
    char *registers = into->data;
    for (uint32_t i = 0; i < REGISTERS; i++)
        registers[i] = MAX(registers[i], from.data[i]);
}

static int64_t estimate(const char *registers)
{
    /* Sums of powers of two are exact in any order. */
    double sum = 0;
    uint32_t counts[32 - REGISTER_BITS + 2] = {0}, zeros;
    for (uint32_t i = 0; i < REGISTERS; i++)
        counts[(unsigned char)registers[i] % ARRAY_COUNT(counts)]++;
    for (int rank = 0; rank < (int)ARRAY_COUNT(counts); rank++)
        sum += ldexp(counts[rank], -rank);
    zeros = counts[0];
    double count = 0.7213 / (1 + 1.079 / REGISTERS) * REGISTERS * REGISTERS / sum;
    if (count <= 2.5 * REGISTERS && zeros > 0)
        count = REGISTERS * log((double)REGISTERS / zeros);
    return (int64_t)(count + 0.5);
}

static void distinct_finish(const struct aggregate *aggregate, struct str partial, struct column_builder *out,
                            uint32_t row)
{
    (void)aggregate;
    out->column->ints[row] =
        is_dense(partial.length) ? estimate(partial.data) : (int64_t)(partial.length / sizeof(uint32_t));
}

const struct aggregate_kind aggregate_distinct = {.name = "distinct",
                                                  .argument = AGGREGATE_ANY,
                                                  .result = TYPE_INT,
                                                  .absorb = distinct_absorb,
                                                  .absorb_here = distinct_absorb_here,
                                                  .combine = distinct_combine,
                                                  .finish_bytes = distinct_finish};
