/* Sequences of integers in the wire format of batches. Rows follow each other in time and in their source: they are a line,
 * or near one. So differences are what is written, or distances from the least value where these are narrower, in whole
 * bytes, which costs at most 7 bits a value and is packed and unpacked by one unaligned load or store each. */
#include "core/batch_codec_format.h"

enum { WORD_BYTES = 8, WIDTH_MASK = 15, FORM_SHIFT = 4 };

static uint32_t bytes_of(uint64_t value)
{
    return value == 0 ? 0 : (uint32_t)(71 - __builtin_clzll(value)) / 8;
}

static uint64_t zigzag(uint64_t value)
{
    return value << 1 ^ (uint64_t)((int64_t)value >> 63);
}

static uint64_t unzigzag(uint64_t value)
{
    return value >> 1 ^ (0 - (value & 1));
}

static uint64_t mask_of(uint32_t width)
{
    return width == 0 ? 0 : UINT64_MAX >> (64 - 8 * width);
}

/* --- Writing --- */

static void put_head(struct byte_buffer *out, enum wire_form form, uint32_t width, uint64_t base,
                     uint64_t step)
{
    base = zigzag(base), step = zigzag(step);
    uint32_t base_bytes = bytes_of(base), step_bytes = bytes_of(step);
    char *at = buffer_reserve(out, 2 + 2 * WORD_BYTES);
    at[0] = (char)((uint32_t)form << FORM_SHIFT | width);
    at[1] = (char)(base_bytes | step_bytes << FORM_SHIFT);
    memcpy(at + 2, &base, WORD_BYTES);
    memcpy(at + 2 + base_bytes, &step, WORD_BYTES);
    out->length += 2 + base_bytes + step_bytes;
}

void wire_put_line(struct byte_buffer *out, uint64_t base, uint64_t step)
{
    if (base == 0 && step == 0)
        buffer_append(out, "", 1); /* WIRE_ZEROS */
    else
        put_head(out, WIRE_LINE, 0, base, step);
}

static void put_values(struct byte_buffer *out, const int64_t *values, uint32_t count, uint32_t width,
                       uint64_t base)
{
    put_head(out, WIRE_VALUES, width, base, 0);
    char *at = buffer_reserve(out, (size_t)count * width + WORD_BYTES);
    for (uint32_t i = 0; i < count; i++, at += width) {
        uint64_t distance = (uint64_t)values[i] - base;
        memcpy(at, &distance, WORD_BYTES); /* the next one is written over the zeros */
    }
    out->length += (size_t)count * width;
}

static void put_deltas(struct byte_buffer *out, const int64_t *values, uint32_t count, uint32_t width,
                       uint64_t step)
{
    put_head(out, WIRE_DELTAS, width, (uint64_t)values[0], step);
    char *at = buffer_reserve(out, (size_t)count * width + WORD_BYTES);
    for (uint32_t i = 1; i < count; i++, at += width) {
        uint64_t distance = (uint64_t)values[i] - (uint64_t)values[i - 1] - step;
        memcpy(at, &distance, WORD_BYTES);
    }
    out->length += (size_t)(count - 1) * width;
}

void wire_put_sequence(struct byte_buffer *out, const int64_t *values, uint32_t count)
{
    int64_t least = values[0], most = values[0], least_delta = INT64_MAX, most_delta = INT64_MIN;
    for (uint32_t i = 1; i < count; i++) {
        int64_t delta = (int64_t)((uint64_t)values[i] - (uint64_t)values[i - 1]);
        least = MIN(least, values[i]);
        most = MAX(most, values[i]);
        least_delta = MIN(least_delta, delta);
        most_delta = MAX(most_delta, delta);
    }
    if (count == 1)
        least_delta = most_delta = 0;
    uint32_t width = bytes_of((uint64_t)most - (uint64_t)least);
    uint32_t delta_width = bytes_of((uint64_t)most_delta - (uint64_t)least_delta);
    if (delta_width == 0)
        wire_put_line(out, (uint64_t)values[0], (uint64_t)least_delta);
    else if (delta_width < width)
        put_deltas(out, values, count, delta_width, (uint64_t)least_delta);
    else
        put_values(out, values, count, width, (uint64_t)least);
}

/* --- Reading --- */

static uint64_t word_at(const char *at, uint32_t bytes)
{
    uint64_t word = 0;
    memcpy(&word, at, bytes);
    return word;
}

const char *wire_take_sequence(const char *at, const char *end, uint32_t count,
                               struct wire_sequence *sequence)
{
    if (at == end)
        return NULL;
    uint8_t first = (uint8_t)*at++;
    *sequence = (struct wire_sequence){.form = first >> FORM_SHIFT, .width = first & WIDTH_MASK};
    bool has_data = sequence->form == WIRE_VALUES || sequence->form == WIRE_DELTAS;
    if (sequence->form > WIRE_DELTAS || sequence->width > WORD_BYTES || has_data != (sequence->width > 0))
        return NULL;
    if (sequence->form == WIRE_ZEROS)
        return at;
    if (at == end)
        return NULL;
    uint32_t base_bytes = (uint8_t)*at & WIDTH_MASK, step_bytes = (uint8_t)*at >> FORM_SHIFT;
    at++;
    if (base_bytes > WORD_BYTES || step_bytes > (sequence->form == WIRE_VALUES ? 0 : WORD_BYTES) ||
        base_bytes + step_bytes > (size_t)(end - at))
        return NULL;
    sequence->base = unzigzag(word_at(at, base_bytes));
    sequence->step = unzigzag(word_at(at + base_bytes, step_bytes));
    sequence->data = at + base_bytes + step_bytes;
    size_t bytes = (size_t)(count - (sequence->form == WIRE_DELTAS)) * sequence->width;
    return bytes > (size_t)(end - sequence->data) ? NULL : sequence->data + bytes;
}

/* Writes the `count` integers of sequence->data. Loads words of 8 bytes as long as these end before `end`. */
static void load(const struct wire_sequence *sequence, const char *end, uint32_t count, uint64_t *values)
{
    const char *at = sequence->data;
    uint32_t width = sequence->width, i = 0;
    uint64_t mask = mask_of(width);
    size_t left = (size_t)(end - at);
    size_t whole = left < WORD_BYTES ? 0 : (left - WORD_BYTES) / width + 1;
    for (uint32_t words = (uint32_t)MIN(whole, count); i < words; i++, at += width)
        values[i] = word_at(at, WORD_BYTES) & mask;
    for (; i < count; i++, at += width)
        values[i] = word_at(at, width);
}

void wire_decode(const struct wire_sequence *sequence, const char *end, uint32_t count, int64_t *values)
{
    uint64_t *words = (uint64_t *)values, sum = sequence->base;
    switch (sequence->form) {
    case WIRE_ZEROS: memset(values, 0, count * sizeof(*values)); break;
    case WIRE_LINE:
        for (uint32_t i = 0; i < count; i++, sum += sequence->step)
            words[i] = sum;
        break;
    case WIRE_VALUES:
        load(sequence, end, count, words);
        for (uint32_t i = 0; i < count; i++)
            words[i] += sequence->base;
        break;
    case WIRE_DELTAS:
        words[0] = sum;
        load(sequence, end, count - 1, words + 1);
        for (uint32_t i = 1; i < count; i++)
            words[i] = sum += words[i] + sequence->step;
        break;
    }
}
