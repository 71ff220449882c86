/* Functions of texts. Positions count code points. In a text that is not UTF-8 (decoders refuse such texts)
 * they count all bytes except continuation bytes. */
#include "operators/expr/node.h"

#include "operators/expr/letters.h"

/* --- The writer --- */

void writer_init(struct expr_writer *writer, struct expr_call *call, size_t expected_bytes)
{
    size_t capacity = MAX(expected_bytes, 64);
    *writer =
        (struct expr_writer){.call = call, .data = arena_alloc(call->heap, capacity), .capacity = capacity};
}

char *writer_reserve(struct expr_writer *writer, size_t bytes)
{
    if (writer->capacity - writer->length < bytes) {
        size_t capacity = MAX(writer->capacity * 2, writer->length + bytes);
        char *data = arena_alloc(writer->call->heap, capacity);
        memcpy(data, writer->data, writer->length);
        writer->data = data;
        writer->capacity = capacity;
    }
    return writer->data + writer->length;
}

void writer_append(struct expr_writer *writer, const char *data, size_t bytes)
{
    if (bytes == 0 || writer->length - writer->begin > EXPR_TEXT_BYTES_MAX)
        return;
    memcpy(writer_reserve(writer, bytes), data, bytes);
    writer->length += bytes;
}

void writer_end(struct expr_writer *writer, uint32_t row)
{
    size_t length = writer->length - writer->begin;
    struct text_ref *ref = &writer->call->out->column.texts[row];
    if (length > EXPR_TEXT_BYTES_MAX) {
        writer->length = writer->begin;
        *ref = (struct text_ref){0, 0};
        call_fail(writer->call, row);
        return;
    }
    *ref = (struct text_ref){(uint32_t)writer->begin, (uint32_t)length};
    writer->begin = writer->length;
}

void writer_finish(struct expr_writer *writer)
{
    writer->call->out->column.heap = writer->data;
}

/* --- Lengths and parts --- */

static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

static int64_t count_points(struct str text)
{
    int64_t count = 0;
    for (size_t i = 0; i < text.length; i++)
        count += !is_continuation(text.data[i]);
    return count;
}

void kernel_length(struct expr_call *call)
{
    for (uint32_t i = 0; i < call->live_count; i++)
        call->out->column.ints[call->live[i]] = count_points(vec_text(&call->args[0], call->live[i]));
}

void kernel_byte_length(struct expr_call *call)
{
    for (uint32_t i = 0; i < call->live_count; i++)
        call->out->column.ints[call->live[i]] = (int64_t)vec_text(&call->args[0], call->live[i]).length;
}

/* The byte position `count` code points behind byte `at`, or the text's length if there are fewer. */
static size_t skip_points(struct str text, size_t at, int64_t count)
{
    while (at < text.length && is_continuation(text.data[at]))
        at++;
    for (; count > 0 && at < text.length; count--) {
        at++;
        while (at < text.length && is_continuation(text.data[at]))
            at++;
    }
    return at;
}

/* Sets the row's text to a part of the first argument's text. */
static void set_part(struct expr_call *call, uint32_t row, size_t begin, size_t end)
{
    const struct expr_vec *a = &call->args[0];
    leat_assert(begin <= end && end <= a->column.texts[row & a->mask].length);
    uint32_t offset = a->column.texts[row & a->mask].offset;
    call->out->column.texts[row] = (struct text_ref){offset + (uint32_t)begin, (uint32_t)(end - begin)};
}

void kernel_substr(struct expr_call *call)
{
    const struct expr_vec *start = &call->args[1], *count = &call->args[2];
    bool has_count = call->node->args_count == 3;
    call->out->column.heap = call->args[0].column.heap;
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        struct str text = vec_text(&call->args[0], row);
        int64_t from = start->column.ints[row & start->mask];
        int64_t points = has_count ? count->column.ints[row & count->mask] : INT64_MAX;
        if (from < 0)
            from = MAX(from + count_points(text), 0);
        size_t begin = skip_points(text, 0, from);
        set_part(call, row, begin, points <= 0 ? begin : skip_points(text, begin, points));
    }
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void trim(struct expr_call *call, bool is_left, bool is_right)
{
    call->out->column.heap = call->args[0].column.heap;
    for (uint32_t i = 0; i < call->live_count; i++) {
        struct str text = vec_text(&call->args[0], call->live[i]);
        size_t begin = 0, end = text.length;
        while (is_left && begin < end && is_space(text.data[begin]))
            begin++;
        while (is_right && end > begin && is_space(text.data[end - 1]))
            end--;
        set_part(call, call->live[i], begin, end);
    }
}

void kernel_trim(struct expr_call *call)
{
    trim(call, true, true);
}

void kernel_ltrim(struct expr_call *call)
{
    trim(call, true, false);
}

void kernel_rtrim(struct expr_call *call)
{
    trim(call, false, true);
}

/* --- Searching --- */

/* The position of `part` (not empty) at or behind byte `at`, or SIZE_MAX. */
static size_t find(struct str text, struct str part, size_t at)
{
    if (at > text.length || part.length > text.length - at)
        return SIZE_MAX;
    const char *found = memmem(text.data + at, text.length - at, part.data, part.length);
    return found == NULL ? SIZE_MAX : (size_t)(found - text.data);
}

void kernel_contains_text(struct expr_call *call)
{
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        struct str part = vec_text(&call->args[1], row);
        call->out->column.bools[row] =
            part.length == 0 || find(vec_text(&call->args[0], row), part, 0) != SIZE_MAX;
    }
}

void kernel_occurrences(struct expr_call *call)
{
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        struct str text = vec_text(&call->args[0], row), part = vec_text(&call->args[1], row);
        int64_t count = 0;
        if (part.length == 1) {
            for (size_t at = 0; at < text.length; at++)
                count += text.data[at] == part.data[0];
        } else if (part.length > 1) {
            for (size_t at = 0; (at = find(text, part, at)) != SIZE_MAX; at += part.length)
                count++;
        }
        call->out->column.ints[row] = count;
    }
}

void kernel_starts_with(struct expr_call *call)
{
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        struct str text = vec_text(&call->args[0], row), part = vec_text(&call->args[1], row);
        call->out->column.bools[row] =
            part.length <= text.length && str_equal((struct str){text.data, part.length}, part);
    }
}

void kernel_ends_with(struct expr_call *call)
{
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        struct str text = vec_text(&call->args[0], row), part = vec_text(&call->args[1], row);
        call->out->column.bools[row] =
            part.length <= text.length &&
            str_equal((struct str){text.data + text.length - part.length, part.length}, part);
    }
}

/* --- Building --- */

void kernel_concat(struct expr_call *call)
{
    struct expr_writer writer;
    writer_init(&writer, call, (size_t)call->live_count * 32);
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        for (uint32_t k = 0; k < call->node->args_count; k++) {
            struct str text = vec_text(&call->args[k], row);
            writer_append(&writer, text.data, text.length);
        }
        writer_end(&writer, row);
    }
    writer_finish(&writer);
}

void kernel_replace(struct expr_call *call)
{
    struct expr_writer writer;
    writer_init(&writer, call, (size_t)call->live_count * 32);
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        struct str text = vec_text(&call->args[0], row), from = vec_text(&call->args[1], row);
        struct str to = vec_text(&call->args[2], row);
        size_t at = 0;
        while (from.length > 0) {
            size_t found = find(text, from, at);
            if (found == SIZE_MAX)
                break;
            writer_append(&writer, text.data + at, found - at);
            writer_append(&writer, to.data, to.length);
            at = found + from.length;
        }
        writer_append(&writer, text.data + at, text.length - at);
        writer_end(&writer, row);
    }
    writer_finish(&writer);
}

static void map_letters(struct expr_call *call, size_t (*map)(struct str text, char *out))
{
    struct expr_writer writer;
    writer_init(&writer, call, (size_t)call->live_count * 16);
    for (uint32_t i = 0; i < call->live_count; i++) {
        struct str text = vec_text(&call->args[0], call->live[i]);
        writer.length += map(text, writer_reserve(&writer, text.length * LETTERS_GROWTH_MAX));
        writer_end(&writer, call->live[i]);
    }
    writer_finish(&writer);
}

void kernel_lower(struct expr_call *call)
{
    map_letters(call, letters_lower);
}

void kernel_upper(struct expr_call *call)
{
    map_letters(call, letters_upper);
}

/* --- Splitting --- */

/* The end of the part that begins at `begin`. *next: where the next part begins, or SIZE_MAX. */
static size_t part_end(struct str text, struct str separator, size_t begin, size_t *next)
{
    size_t found = separator.length == 0 ? SIZE_MAX : find(text, separator, begin);
    *next = found == SIZE_MAX ? SIZE_MAX : found + separator.length;
    return found == SIZE_MAX ? text.length : found;
}

static uint32_t count_parts(struct str text, struct str separator)
{
    uint32_t count = 1;
    size_t next;
    for (part_end(text, separator, 0, &next); next != SIZE_MAX; part_end(text, separator, next, &next))
        count++;
    return count;
}

void kernel_split(struct expr_call *call)
{
    struct column *out = &call->out->column;
    const struct expr_vec *a = &call->args[0];
    size_t total = 0, bytes = 0;
    for (uint32_t i = 0; i < call->live_count; i++) {
        total += count_parts(vec_text(a, call->live[i]), vec_text(&call->args[1], call->live[i]));
        bytes += vec_text(a, call->live[i]).length;
    }
    struct text_ref *parts = arena_alloc(call->heap, MAX(total, 1) * sizeof(*parts));
    char *heap = arena_alloc(call->heap, bytes);
    uint32_t used = 0, copied = 0;
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i], first = used;
        struct str text = vec_text(a, row), separator = vec_text(&call->args[1], row);
        if (text.length > 0)
            memcpy(heap + copied, text.data, text.length);
        for (size_t begin = 0, next; begin != SIZE_MAX; begin = next) {
            size_t end = part_end(text, separator, begin, &next);
            parts[used++] = (struct text_ref){copied + (uint32_t)begin, (uint32_t)(end - begin)};
        }
        copied += (uint32_t)text.length;
        out->lists[row] = (struct list_ref){first, used - first};
    }
    out->child_rows = used;
    out->children[0] = (struct column){.tag = TYPE_TEXT, .texts = parts, .heap = heap, .child_rows = used};
}

void kernel_split_part(struct expr_call *call)
{
    const struct expr_vec *index = &call->args[2];
    call->out->column.heap = call->args[0].column.heap;
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        struct str text = vec_text(&call->args[0], row), separator = vec_text(&call->args[1], row);
        int64_t wanted = index->column.ints[row & index->mask];
        if (wanted < 0)
            wanted += count_parts(text, separator);
        size_t begin = 0, next, end = part_end(text, separator, 0, &next);
        for (; wanted > 0 && next != SIZE_MAX; wanted--) {
            begin = next;
            end = part_end(text, separator, begin, &next);
        }
        if (wanted == 0)
            set_part(call, row, begin, end);
        else
            call_null(call, row);
    }
}
