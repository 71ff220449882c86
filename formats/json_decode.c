/* JSON lines -> columns.
 *
 * Records of one stream look alike: the same names in the same order with the same spacing, or one of a few
 * such orders. The decoder keeps what it saw (json_template.h): for each member the bytes between the value
 * before and its own value (`,"user":`), and how to read the value. A record is then read as: compare 16
 * bytes, read the value, compare 16 bytes ... Names are not looked up, and bytes that compare equal were
 * checked when they were learned. Where a record is unlike all before, the rest of it goes through the
 * general reader (json_value.c), which finds names by hash and makes every diagnosis; when that happens
 * often, such a record is learned. The template makes decoding faster, never different: a test decodes each
 * record both ways.
 *
 * Values are read in place, 8 to 64 bytes at once, past the end of the record if need be: RAW_PADDING bytes
 * behind the batch are readable. A value that crossed the record's end is noticed at the next compare. */
#include "formats/json.h"
#include "formats/json_read.h"
#include "formats/json_scan.h"
#include "formats/json_template.h"
#include "formats/text.h"

#include "core/mem.h"

#include <emmintrin.h>
#include <stdlib.h>

enum { PAUSE_MAX = 63 };

struct json_decoder {
    struct json_reader reader;
    struct json_template template;
    const struct json_scan *scan;
    uint32_t alone, pause; /* records to read one by one before two are read at once again */
};

/* Readers of plain values are always inlined into the loops that call them. */
#define FAST static inline __attribute__((always_inline))

static const uint64_t powers[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
static const double float_powers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8};

/* Returns how many of the 8 bytes at `at`, from the first on, are digits; *value: the number they make. */
FAST unsigned read_digits(const char *at, uint64_t *value)
{
    uint64_t chunk;
    memcpy(&chunk, at, sizeof(chunk));
    chunk ^= UINT64_C(0x3030303030303030);
    /* The top bit of each byte that is not 0 to 9; a carry can only spoil bytes behind the first of them. */
    uint64_t other = ((chunk + UINT64_C(0x7676767676767676)) | chunk) & UINT64_C(0x8080808080808080);
    unsigned count = other == 0 ? 8 : (unsigned)__builtin_ctzll(other) >> 3;
    chunk = count == 0 ? 0 : chunk << (64 - 8 * count);
    chunk = chunk * 10 + (chunk >> 8);
    *value = ((chunk & UINT64_C(0x000000ff000000ff)) * UINT64_C(0x000f424000000064) +
              ((chunk >> 16) & UINT64_C(0x000000ff000000ff)) * UINT64_C(0x0000271000000001)) >>
             32;
    return count;
}

/* Whether a fast reader may end a number before this byte; other ends are left to the general reader. */
static inline bool ends_number(char c)
{
    return c == ',' || c == '}';
}

/* Reads a whole number of at most 15 digits, times `scale`; NULL where the value is anything else. */
FAST const char *fast_int(const char *at, int64_t scale, int64_t *value)
{
    bool is_negative = *at == '-';
    at += is_negative;
    uint64_t sum, rest;
    unsigned count = read_digits(at, &sum);
    if (count == 0 || (count > 1 && *at == '0'))
        return NULL;
    at += count;
    if (count == 8) {
        count = read_digits(at, &rest);
        if (count == 8)
            return NULL;
        sum = sum * powers[count] + rest;
        at += count;
    }
    int64_t number = is_negative ? -(int64_t)sum : (int64_t)sum;
    if (unlikely(!ends_number(*at) || __builtin_mul_overflow(number, scale, value)))
        return NULL;
    return at;
}

/* Reads at most 7 digits on each side of the point: the digits and the power of ten are both exact doubles,
 * so that one division rounds correctly (Clinger 1990). */
FAST const char *fast_float(const char *at, double *value)
{
    bool is_negative = *at == '-';
    at += is_negative;
    uint64_t sum, rest;
    unsigned count = read_digits(at, &sum);
    if (count == 0 || count == 8 || (count > 1 && *at == '0'))
        return NULL;
    at += count;
    double number = (double)(int64_t)sum;
    if (*at == '.') {
        count = read_digits(at + 1, &rest);
        if (count == 0 || count == 8)
            return NULL;
        number = (double)(int64_t)(sum * powers[count] + rest) / float_powers[count];
        at += 1 + count;
    }
    *value = is_negative ? -number : number;
    return ends_number(*at) ? at : NULL;
}

/* Bit i of the result: byte i is not plain. Bit i of *quotes: byte i is a quote. */
FAST unsigned special_bytes(__m128i bytes, unsigned *quotes)
{
    __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
    __m128i escape = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
    /* The signed comparison finds control characters and bytes from 0x80 on. */
    __m128i other = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20));
    *quotes = (unsigned)_mm_movemask_epi8(quote);
    return *quotes | (unsigned)_mm_movemask_epi8(_mm_or_si128(escape, other));
}

/* Reads a text of plain ASCII and copies it to `heap`. at: the opening quote; end: of the record. */
FAST const char *fast_text(const struct json_scan *scan, const char *at, const char *end, char *heap,
                           size_t *length)
{
    unsigned quotes;
    __m128i bytes = _mm_loadu_si128((const __m128i *)(at + 1));
    unsigned special = special_bytes(bytes, &quotes);
    if (unlikely(*at != '"'))
        return NULL;
    _mm_storeu_si128((__m128i *)heap, bytes);
    if (likely(special != 0)) {
        *length = (size_t)__builtin_ctz(special);
        return likely((special & -special & quotes) != 0) ? at + *length + 2 : NULL;
    }
    *length = 16 + scan->copy_plain(at + 17, end, heap + 16);
    at += 1 + *length;
    return likely(at < end && *at == '"') ? at + 1 : NULL;
}

/* Skips a value that no column takes: a text of plain ASCII or a whole number of at most 15 digits. */
FAST const char *fast_skip(const struct json_scan *scan, const char *at, const char *end)
{
    int64_t value;
    unsigned quotes;
    if (*at != '"')
        return fast_int(at, 1, &value);
    unsigned special = special_bytes(_mm_loadu_si128((const __m128i *)(at + 1)), &quotes);
    if (likely(special != 0))
        return likely((special & -special & quotes) != 0) ? at + __builtin_ctz(special) + 2 : NULL;
    at += 17 + scan->skip_plain(at + 17, end);
    return likely(at < end && *at == '"') ? at + 1 : NULL;
}

FAST const char *fast_bool(const char *at, uint8_t *value)
{
    uint32_t word;
    memcpy(&word, at, sizeof(word));
    if (word == 0x65757274) { /* "true" */
        *value = 1;
        return at + 4;
    }
    if (word != 0x736c6166 || at[4] != 'e') /* "fals" */
        return NULL;
    *value = 0;
    return at + 5;
}

/* --- the general reader --- */

/* Reads one member with the comma or brace before it. at: the byte behind the value before. *is_open: false
 * where the object's closing brace was read instead. */
static const char *general_member(struct json_decoder *decoder, uint64_t object, uint32_t *guess,
                                  bool is_first, uint32_t row, const char *at, bool *is_open)
{
    struct json_reader *reader = &decoder->reader;
    struct row_fields *fields = &reader->rows->fields;
    const char *begin = at;
    at = json_space(at, reader->end);
    char c = json_peek(reader, at);
    if (is_first && c != '{')
        return json_fail(reader, at, "a record begins with `{`");
    if (!is_first && c != ',' && c != '}')
        return json_fail(reader, at, "`,` or `}` was expected");
    if (is_first) {
        at = json_space(at + 1, reader->end);
        *is_open = json_peek(reader, at) != '}';
        at += !*is_open;
    } else {
        *is_open = c == ',';
        at++;
    }
    if (!*is_open) {
        json_template_log(&decoder->template, begin, at, NULL);
        return at;
    }
    struct row_column *column;
    const char *name = json_space(at, reader->end);
    at = json_name(reader, fields, *guess, &column, name);
    if (at == NULL)
        return NULL;
    json_template_log(&decoder->template, begin, at, column);
    if (column == NULL)
        return json_skip(reader, at);
    if (column->seen == object)
        return json_fail(reader, name, "`%.*s`: given twice", STR_ARGS(column->name));
    column->seen = object;
    *guess = (uint32_t)(column - fields->columns) + 1;
    return json_value(reader, column, row, NULL, at);
}

/* Reads the rest of a record behind the value of `last` (NULL: the whole record), without the template. */
static const char *decode_general(struct json_decoder *decoder, uint32_t row, const struct json_slot *last,
                                  const char *at)
{
    struct json_reader *reader = &decoder->reader;
    uint64_t object = ++reader->rows->objects;
    uint32_t guess = 0;
    bool is_open = true;
    json_template_begin(&decoder->template, last);
    for (const struct json_slot *slot = last; slot != NULL; slot = slot->parent) {
        if (slot->column == NULL)
            continue;
        slot->column->seen = object;
        if (guess == 0)
            guess = (uint32_t)(slot->column - reader->rows->fields.columns) + 1;
    }
    for (bool is_first = last == NULL; is_open; is_first = false) {
        at = general_member(decoder, object, &guess, is_first, row, at, &is_open);
        if (at == NULL)
            return NULL;
    }
    const char *behind = json_space(at, reader->end);
    if (behind != reader->end)
        return json_fail(reader, behind, "something follows the record");
    const struct row_column *missing = rows_missing(reader->rows, &reader->rows->fields, object, row, NULL);
    if (missing != NULL)
        return json_fail(reader, at - 1, "`%.*s`: missing, but the schema requires it",
                         STR_ARGS(missing->name));
    json_template_end(&decoder->template, &reader->rows->fields, object);
    return at;
}

/* --- the template --- */

static inline const char *slot_value(struct json_decoder *decoder, const struct json_slot *slot, uint32_t row,
                                     const char *at)
{
    struct row_column *column = slot->column;
    const char *behind = NULL, *end = decoder->reader.end;
    switch (slot->action) {
    case SLOT_INT: behind = fast_int(at, slot->scale, &column->ints[row]); break;
    case SLOT_FLOAT: behind = fast_float(at, &column->floats[row]); break;
    case SLOT_TEXT: {
        size_t length;
        behind = fast_text(decoder->scan, at, end, decoder->reader.rows->heap, &length);
        if (likely(behind != NULL))
            rows_text(decoder->reader.rows, column, row, length);
        break;
    }
    case SLOT_BOOL: behind = fast_bool(at, &column->bools[row]); break;
    case SLOT_SKIP:
        behind = fast_skip(decoder->scan, at, end);
        return likely(behind != NULL) ? behind : json_skip(&decoder->reader, at);
    default: break;
    }
    if (likely(behind != NULL))
        return behind;
    /* The learned record had no space before this value, but this record may have some. */
    return json_value(&decoder->reader, column, row, NULL, json_space(at, end));
}

static void null_absent(struct json_decoder *decoder, const struct json_slot *end, uint32_t row)
{
    for (uint32_t i = 0; i < end->absent_count; i++)
        rows_null(decoder->reader.rows, end->absent[i], row, NULL);
}

static const char *decode_record(struct json_decoder *decoder, uint32_t row)
{
    const char *at = decoder->reader.begin, *end = decoder->reader.end;
    const struct json_slot *last = NULL;
    for (;;) {
        const struct json_slot *next = last == NULL ? decoder->template.root : last->next;
        const struct json_slot *slot = likely(at < end) ? json_slot_at(next, at) : NULL;
        if (unlikely(slot == NULL))
            return decode_general(decoder, row, last, MIN(at, end));
        const char *value = at + slot->length;
        if (slot->action == SLOT_END) {
            if (unlikely(value != end))
                return decode_general(decoder, row, last, at);
            null_absent(decoder, slot, row);
            return value;
        }
        if (unlikely(value >= end))
            return decode_general(decoder, row, last, at);
        char *heap = decoder->reader.rows->heap;
        at = slot_value(decoder, slot, row, value);
        if (unlikely(at > end)) {
            /* The fast reader read on in the next record: the general reader, which stops at the end, says
             * what is wrong. */
            decoder->reader.rows->heap = heap;
            value = json_space(value, end);
            at = slot->action == SLOT_SKIP ? json_skip(&decoder->reader, value)
                                           : json_value(&decoder->reader, slot->column, row, NULL, value);
        }
        if (unlikely(at == NULL))
            return NULL;
        last = slot;
    }
}

/* One of two records that are read side by side. */
struct side {
    const char *at, *end;
    uint32_t row;
};

/* Reads a value that the fast readers refused, or that has no fast reader. */
static __attribute__((noinline)) void side_value(struct json_decoder *decoder, const struct json_slot *slot,
                                                 struct side *side)
{
    struct json_reader *reader = &decoder->reader;
    const char *at = json_space(side->at, side->end);
    reader->begin = side->at;
    reader->end = side->end;
    side->at = at >= side->end             ? NULL
               : slot->action == SLOT_SKIP ? json_skip(reader, at)
                                           : json_value(reader, slot->column, side->row, NULL, at);
}

#define SIDE_FAST(side, call)                                                                                \
    do {                                                                                                     \
        const char *behind = call;                                                                           \
        if (likely(behind != NULL))                                                                          \
            (side).at = behind;                                                                              \
        else                                                                                                 \
            side_value(decoder, slot, &(side));                                                              \
    } while (0)

FAST void side_text(struct json_decoder *decoder, const struct json_slot *slot, struct side *side)
{
    size_t length;
    struct rows *rows = decoder->reader.rows;
    const char *behind = fast_text(decoder->scan, side->at, side->end, rows->heap, &length);
    if (unlikely(behind == NULL)) {
        side_value(decoder, slot, side);
        return;
    }
    rows_text(rows, slot->column, side->row, length);
    side->at = behind;
}

/* Reads two records at once, as far as both follow the template: finding where each value ends is one long
 * chain of dependent steps, and two chains fill the processor better than one. Returns false where either
 * record is unusual or bad: then nothing was taken, and each record is read alone. */
static bool decode_pair(struct json_decoder *decoder, uint32_t row, const struct raw_record *records,
                        const char *data)
{
    struct side a = {data + records[0].offset, data + records[0].offset + records[0].length, row};
    struct side b = {data + records[1].offset, data + records[1].offset + records[1].length, row + 1};
    struct rows *rows = decoder->reader.rows;
    char *heap = rows->heap;
    for (const struct json_slot *slot = decoder->template.root;; slot = slot->next) {
        /* NULL, which a bad value leaves in `at`, must not be compared with literals: check it first. */
        if (unlikely(a.at == NULL || b.at == NULL || a.at >= a.end || b.at >= b.end))
            break;
        slot = json_slot_at(slot, a.at);
        if (unlikely(slot == NULL || !json_slot_is_at(slot, b.at)))
            break;
        a.at += slot->length;
        b.at += slot->length;
        struct row_column *column = slot->column;
        switch (slot->action) {
        case SLOT_INT:
            SIDE_FAST(a, fast_int(a.at, slot->scale, &column->ints[row]));
            SIDE_FAST(b, fast_int(b.at, slot->scale, &column->ints[row + 1]));
            break;
        case SLOT_FLOAT:
            SIDE_FAST(a, fast_float(a.at, &column->floats[row]));
            SIDE_FAST(b, fast_float(b.at, &column->floats[row + 1]));
            break;
        case SLOT_TEXT:
            side_text(decoder, slot, &a);
            side_text(decoder, slot, &b);
            break;
        case SLOT_BOOL:
            SIDE_FAST(a, fast_bool(a.at, &column->bools[row]));
            SIDE_FAST(b, fast_bool(b.at, &column->bools[row + 1]));
            break;
        case SLOT_END:
            if (unlikely(a.at != a.end || b.at != b.end))
                goto unusual;
            null_absent(decoder, slot, row);
            null_absent(decoder, slot, row + 1);
            return true;
        case SLOT_SKIP:
            SIDE_FAST(a, fast_skip(decoder->scan, a.at, a.end));
            SIDE_FAST(b, fast_skip(decoder->scan, b.at, b.end));
            break;
        default:
            side_value(decoder, slot, &a);
            if (likely(a.at != NULL))
                side_value(decoder, slot, &b);
            break;
        }
    }
unusual:
    rows->heap = heap;
    return false;
}

static void decode_one(struct json_decoder *decoder, uint32_t row, struct raw_record record, const char *data)
{
    struct json_reader *reader = &decoder->reader;
    reader->begin = data + record.offset;
    reader->end = reader->begin + record.length;
    rows_mark(reader->rows);
    if (unlikely(record.length > SOURCE_RECORD_BYTES_MAX))
        rows_bad(reader->rows, row, SOURCE_RECORD_BYTES_MAX, "a record longer than 1 MiB");
    else if (unlikely(decode_record(decoder, row) == NULL))
        rows_bad(reader->rows, row, (uint32_t)(reader->at - reader->begin), reader->reason);
}

void json_decode(void *self, struct raw_batch *raw, struct decode_output *output)
{
    struct json_decoder *decoder = self;
    struct rows *rows = decoder->reader.rows;
    /* Zeros behind the last record end every scan. */
    memset(raw->data + raw->data_bytes, 0, RAW_PADDING);
    rows_begin(rows, raw, output, raw->data_bytes);
    decoder->reader.arena = &output->batch->arena;
    for (uint32_t row = 0; row < raw->count;) {
        bool has_pair = rows->lists_count == 0 && row + 1 < raw->count && decoder->alone == 0;
        if (has_pair && likely(decode_pair(decoder, row, raw->records + row, raw->data))) {
            decoder->pause = 0;
            row += 2;
            continue;
        }
        if (has_pair) /* A failed try costs time: pause for more records after each failure in a row. */
            decoder->alone = decoder->pause = MIN(decoder->pause * 2 + 1, PAUSE_MAX);
        decoder->alone -= decoder->alone > 0;
        decode_one(decoder, row, raw->records[row], raw->data);
        row++;
    }
    rows_end(rows);
}

void json_decoder_free(void *self)
{
    struct json_decoder *decoder = self;
    if (decoder == NULL)
        return;
    rows_free(decoder->reader.rows);
    json_template_free(&decoder->template);
    free(decoder);
}

void *json_decoder_new(const struct schema *schema, const void *config LEAT_UNUSED)
{
    struct json_decoder *decoder = mem_calloc(1, sizeof(*decoder));
    decoder->reader.rows = rows_new(schema);
    decoder->scan = json_scan_best();
    json_template_init(&decoder->template);
    return decoder;
}
