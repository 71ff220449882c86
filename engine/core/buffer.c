#include "core/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

char *buffer_reserve(struct byte_buffer *buffer, size_t bytes)
{
    leat_assert(bytes <= PTRDIFF_MAX / 2);
    size_t need = buffer->length + bytes;
    if (need > buffer->capacity) {
        size_t capacity = MAX(buffer->capacity * 2, MAX(need, 256));
        char *data = realloc(buffer->data, capacity);
        if (data == NULL) {
            fprintf(stderr, "leat: the system refused %zu bytes of memory for output\n", capacity);
            abort();
        }
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

void buffer_clear(struct byte_buffer *buffer)
{
    buffer->length = 0;
}

void buffer_free(struct byte_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct byte_buffer){0};
}
