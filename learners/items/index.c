/* The rows of the exact index: chunks that never move, in bytes for scans and in floats for scores. */
#include "learners/items/internal.h"

#include "core/mem.h"
#include "learners/items/numbers.h"

#include <math.h>
#include <stdlib.h>

struct items_index *items_index_create(const struct items_index_options *options)
{
    leat_assert(options->dims > 0 && options->dims <= INT8_DIMS_MAX);
    leat_assert(options->numbers_max > 0 && options->numbers_max <= ITEMS_NUMBERS_MAX);
    leat_assert(options->overfetch <= ITEMS_OVERFETCH_MAX);
    struct items_index *index = mem_calloc(1, sizeof(*index));
    index->options = *options;
    index->options.overfetch = options->overfetch > 0 ? options->overfetch : 2;
    index->block_bytes = int8_block_bytes(options->dims);
    index->row_floats = (options->dims + 3) / 4 * 4; /* rows begin at multiples of 16 bytes */
    return index;
}

void items_index_free(struct items_index *index)
{
    if (index == NULL)
        return;
    for (size_t c = 0; c < index->chunks_count; c++)
        free(index->chunks[c]);
    free(index->chunks);
    free(index);
}

/* Bytes of a chunk: its head, then scales, rows and blocks. */
static size_t chunk_bytes(const struct items_index *index)
{
    return sizeof(struct items_chunk) + ITEMS_CHUNK * sizeof(float) * (1 + index->row_floats) +
           ITEMS_CHUNK_BLOCKS * index->block_bytes;
}

static struct items_chunk *chunk_create(struct items_index *index)
{
    size_t bytes = (chunk_bytes(index) + 63) / 64 * 64;
    struct items_chunk *chunk = mem_aligned(64, bytes);
    memset(chunk, 0, bytes);
    chunk->scales = (float *)(void *)(chunk + 1);
    chunk->rows = chunk->scales + ITEMS_CHUNK;
    chunk->blocks = (uint8_t *)(chunk->rows + ITEMS_CHUNK * index->row_floats);
    for (size_t i = 0; i < ITEMS_CHUNK; i++)
        chunk->scales[i] = NAN;
    index->chunks_made++;
    return chunk;
}

/* The chunk of a number; made if there is none yet. */
static struct items_chunk *chunk_for(struct items_index *index, uint32_t number)
{
    size_t at = number / ITEMS_CHUNK;
    if (at >= index->chunks_room) {
        size_t room = index->chunks_room == 0 ? 16 : 2 * index->chunks_room;
        index->chunks_room = room > at ? room : at + 1;
        index->chunks = mem_realloc(index->chunks, index->chunks_room * sizeof(struct items_chunk *));
    }
    while (index->chunks_count <= at)
        index->chunks[index->chunks_count++] = NULL;
    if (index->chunks[at] == NULL)
        index->chunks[at] = chunk_create(index);
    return index->chunks[at];
}

bool items_are_in_range(const float *x, size_t n)
{
    bool is_good = true;
    for (size_t i = 0; i < n; i++)
        is_good &= fabsf(x[i]) <= ITEMS_VALUE_MAX; /* false for a NaN */
    return is_good;
}

bool items_index_put(struct items_index *index, uint32_t number, const float *row)
{
    leat_assert(number < index->options.numbers_max);
    if (!items_are_in_range(row, index->options.dims))
        return false;
    struct items_chunk *chunk = chunk_for(index, number);
    int8_t bytes[INT8_DIMS_MAX];
    size_t at = number % ITEMS_CHUNK, dims = index->options.dims;
    float scale = index->options.kernels->int8_quantize(bytes, row, dims);
    bool is_new = !items_is_live(chunk, at);
    int8_block_put(chunk->blocks + at / INT8_BLOCK * index->block_bytes, at % INT8_BLOCK, bytes, dims);
    memcpy(chunk->rows + at * index->row_floats, row, dims * sizeof(*row));
    chunk->scales[at] = scale;
    chunk->live += is_new;
    index->live += is_new;
    return true;
}

static struct items_chunk *chunk_of_live(const struct items_index *index, uint32_t number)
{
    size_t c = number / ITEMS_CHUNK;
    struct items_chunk *chunk = c < index->chunks_count ? index->chunks[c] : NULL;
    return chunk != NULL && items_is_live(chunk, number % ITEMS_CHUNK) ? chunk : NULL;
}

bool items_index_remove(struct items_index *index, uint32_t number)
{
    struct items_chunk *chunk = chunk_of_live(index, number);
    if (chunk == NULL)
        return false;
    chunk->scales[number % ITEMS_CHUNK] = NAN;
    chunk->live--;
    index->live--;
    return true;
}

const float *items_index_row(const struct items_index *index, uint32_t number)
{
    const struct items_chunk *chunk = chunk_of_live(index, number);
    return chunk == NULL ? NULL : chunk->rows + number % ITEMS_CHUNK * index->row_floats;
}

size_t items_index_live(const struct items_index *index)
{
    return index->live;
}

size_t items_index_bytes(const struct items_index *index)
{
    return sizeof(*index) + index->chunks_room * sizeof(struct items_chunk *) +
           index->chunks_made * chunk_bytes(index);
}
