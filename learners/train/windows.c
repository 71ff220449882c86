#include "learners/train/windows.h"
#include "learners/train/net.h"

#include "core/base.h"
#include "core/mem.h"

#include <stdlib.h>

/* Of two neighbours in a slice, the first chunk and the first window of the second have more than BATCH_CHUNK
 * rows together, so that c chunks of a slice have more than (c - 1) / 2 * BATCH_CHUNK rows. */
uint32_t net_chunks_max(uint32_t rows)
{
    return rows / (BATCH_CHUNK / 2) + BATCH_SLICES_MAX + 1;
}

uint32_t windows_tile_rows(const struct net *net, uint32_t tile)
{
    return MAX(tile, MIN(net->options.window_max, net->events_max));
}

static size_t borders_max(const struct net *net)
{
    return (size_t)net_chunks_max(net->events_max) + 1;
}

/* Most bytes of the copy of a pass's windows: identities, offsets, chunks, their rows, seconds. */
static size_t copy_bytes(const struct net *net)
{
    size_t windows = net->events_max, words = windows + 1 + 2 * borders_max(net) + net->events_max;
    return windows * sizeof(uint64_t) + words * sizeof(uint32_t);
}

void windows_take(struct net *net, struct train_memory *memory)
{
    size_t borders = borders_max(net);
    if (net->device->api != NULL) {
        net->copy_to = train_take(memory, TRAIN_INPUT, copy_bytes(net), 1);
        return;
    }
    net->chunks = train_take(memory, TRAIN_INPUT, borders, sizeof(*net->chunks));
    net->tiles = train_take(memory, TRAIN_INPUT, borders, sizeof(*net->tiles));
}

bool windows_pin(struct net *net, struct gpu_error *error)
{
    size_t borders = borders_max(net);
    if (net->device->api == NULL)
        return true;
    net->chunks = mem_calloc(borders, sizeof(*net->chunks));
    net->tiles = mem_calloc(borders, sizeof(*net->tiles));
    net->copy_from = train_host_new(net->device, copy_bytes(net), error);
    return net->copy_from != NULL;
}

void windows_unpin(struct net *net)
{
    if (net->device == NULL || net->device->api == NULL)
        return;
    free(net->chunks);
    free(net->tiles);
    train_host_free(net->device, net->copy_from);
    net->chunks = net->tiles = NULL;
    net->copy_from = NULL;
}

/* Puts `count` words of `size` bytes behind those that are there. Returns where the copy has them. */
static const void *put(const struct net *net, size_t *used, const void *words, size_t count, size_t size)
{
    size_t at = *used;
    if (words == NULL)
        return NULL;
    *used += count * size;
    leat_assert(*used <= copy_bytes(net));
    memcpy(net->copy_from + at, words, count * size);
    return net->copy_to + at;
}

void windows_send(struct net *net, uint32_t n)
{
    const struct net_windows *w = &net->windows;
    uint32_t count = w->count, chunks = net->tiles[1];
    size_t used = 0;
    leat_assert(count <= net->events_max && net->slices.count <= 1);
    net->copy = (struct windows_copy){.count = count, .chunks_count = chunks};
    net->copy.identities = put(net, &used, w->identities, count, sizeof(*w->identities));
    net->copy.offsets = put(net, &used, w->offsets, (size_t)count + 1, sizeof(*w->offsets));
    net->copy.chunks = put(net, &used, net->chunks, (size_t)chunks + 1, sizeof(*net->chunks));
    net->copy.seconds = put(net, &used, w->seconds, n, sizeof(*w->seconds));
    size_t at = used;
    net->copy.chunk_rows = put(net, &used, net->chunks, (size_t)chunks + 1, sizeof(*net->chunks));
    uint32_t *rows = (uint32_t *)(void *)(net->copy_from + at);
    for (uint32_t i = 0; i <= chunks; i++)
        rows[i] = w->offsets[rows[i]];
    train_copy(net->device, net->copy_to, net->copy_from, used);
}

/* The window behind the chunk that begins with window `from`. */
static uint32_t chunk_end(const struct net *net, uint32_t from, bool has_slices)
{
    const struct net_windows *w = &net->windows;
    const struct batch_slices *s = &net->slices;
    uint32_t last = w->count, end = from;
    if (has_slices && s->count > 1)
        last = MIN(last, s->borders[batch_slice_of(s, net->event + from) + 1] - net->event);
    do {
        leat_assert(w->offsets[end] <= w->offsets[end + 1]);
        leat_assert(w->offsets[end + 1] - w->offsets[end] <= net->options.window_max);
        end++;
    } while (end < last && w->offsets[end + 1] - w->offsets[from] <= BATCH_CHUNK);
    return end;
}

uint32_t windows_divide(struct net *net, uint32_t n, uint32_t tile, bool has_slices)
{
    const uint32_t *offsets = net->windows.offsets;
    uint32_t chunks = 0, tiles = 0, begin = 0, count = net->windows.count;
    leat_assert(offsets[0] == 0 && offsets[count] == n && n <= net->events_max);
    for (uint32_t window = 0; window < count;) {
        uint32_t end = chunk_end(net, window, has_slices);
        if (tiles == 0 || offsets[end] - begin > tile) {
            begin = offsets[window];
            net->tiles[tiles++] = chunks;
        }
        net->chunks[chunks++] = window;
        window = end;
    }
    leat_assert(chunks <= net_chunks_max(net->events_max));
    net->chunks[chunks] = count;
    net->tiles[tiles] = chunks;
    return tiles;
}

uint32_t windows_begin(struct net *net, uint32_t number, uint32_t *from)
{
    const uint32_t *offsets = net->windows.offsets;
    uint32_t end = net->chunks[net->tiles[number + 1]];
    net->window = net->chunks[net->tiles[number]];
    *from = offsets[net->window];
    return offsets[end] - *from;
}

uint32_t net_chunks(const struct net *net)
{
    return net->tiles[net->tile + 1] - net->tiles[net->tile];
}

struct net_chunk net_chunk(const struct net *net, uint32_t number)
{
    const uint32_t *offsets = net->windows.offsets, *borders = net->chunks + net->tiles[net->tile] + number;
    return (struct net_chunk){.window = borders[0],
                              .end = borders[1],
                              .from = offsets[borders[0]] - offsets[net->window],
                              .n = offsets[borders[1]] - offsets[borders[0]]};
}

bool windows_next_part(const struct net *net, struct net_part *part)
{
    const struct batch_slices *s = &net->slices;
    uint32_t number = part->chunks, begin = 0, all = net_chunks(net);
    if (number == all)
        return false;
    if (net->device->api != NULL) { /* the whole pass */
        *part = (struct net_part){.n = net->windows.offsets[net->windows.count], .chunks = all};
        part->adds = net->event > 0;
        return true;
    }
    struct net_chunk c = net_chunk(net, number);
    *part = (struct net_part){.from = c.from, .n = c.n, .chunks = number + 1};
    uint32_t first = net->event + c.window - net->window, end = first + c.end - c.window;
    if (s->count > 1) {
        part->slice = batch_slice_of(s, first);
        begin = s->borders[part->slice];
        part->is_last = end == s->borders[part->slice + 1];
    }
    part->adds = first > begin;
    return true;
}
