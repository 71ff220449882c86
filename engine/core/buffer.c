#include "core/buffer.h"

#include "core/mem.h"
#include "core/refused.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

char *buffer_reserve(struct byte_buffer *buffer, size_t bytes)
{
    leat_assert(bytes <= PTRDIFF_MAX / 2);
    size_t need = buffer->length + bytes;
    if (need > buffer->capacity) {
        size_t capacity = MAX(buffer->capacity * 2, MAX(need, 256));
        char *data = mem_realloc(buffer->data, capacity);
        if (data == NULL)
            refused_memory(capacity);
        buffer->data = data;
        buffer->capacity = capacity;
    }
    return buffer->data + buffer->length;
}

void buffer_append(struct byte_buffer *buffer, const void *data, size_t bytes)
{
    if (bytes == 0)
        return;
    memcpy(buffer_reserve(buffer, bytes), data, bytes);
    buffer->length += bytes;
}

void buffer_printf(struct byte_buffer *buffer, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    leat_assert(length >= 0);
    vsnprintf(buffer_reserve(buffer, (size_t)length + 1), (size_t)length + 1, format, again);
    va_end(again);
    buffer->length += (size_t)length;
}

void buffer_count(struct byte_buffer *buffer, uint64_t value)
{
    char digits[20];
    size_t at = sizeof(digits);
    do
        digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    buffer_append(buffer, digits + at, sizeof(digits) - at);
}

uint32_t text_columns(struct str text)
{
    uint32_t columns = 0;
    for (size_t i = 0; i < text.length; i++)
        columns += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    return columns;
}

void buffer_wrap(struct byte_buffer *buffer, uint32_t at, uint32_t indent, uint32_t columns, struct str text)
{
    for (size_t begin = 0, end = 0; begin < text.length; begin = end + 1) {
        for (end = begin; end < text.length && text.data[end] != ' ';)
            end++;
        struct str word = {text.data + begin, end - begin};
        uint32_t width = text_columns(word);
        if (begin > 0 && at + 1 + width > columns) {
            buffer_printf(buffer, "\n%*s", (int)indent, "");
            at = indent;
        } else if (begin > 0) {
            buffer_append(buffer, " ", 1);
            at++;
        }
        buffer_append(buffer, word.data, word.length);
        at += width;
    }
}

void buffer_clear(struct byte_buffer *buffer)
{
    buffer->length = 0;
}

void buffer_free(struct byte_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct byte_buffer){0};
}
