/* A growing byte buffer, for encoders. One thread at a time. If the system refuses memory,
 * the process ends. */
#ifndef LEAT_CORE_BUFFER_H
#define LEAT_CORE_BUFFER_H

#include "core/base.h"

struct byte_buffer {
    char *data;
    size_t length, capacity;
};

/* Makes room for `bytes` more and returns where to write them. The caller then adds to `length`
 * what it wrote. */
char *buffer_reserve(struct byte_buffer *buffer, size_t bytes);
void buffer_append(struct byte_buffer *buffer, const void *data, size_t bytes);
void buffer_printf(struct byte_buffer *buffer, const char *format, ...) LEAT_PRINTF(2, 3);
/* Appends the number in decimal digits: for the many numbers of large answers, several times as fast as buffer_printf. */
void buffer_count(struct byte_buffer *buffer, uint64_t value);
/* Appends a text for people, wrapped at spaces: the first line begins at column `at`, the others at `indent`;
 * no line is longer than `columns`, unless a single word is. Appends no final newline. */
void buffer_wrap(struct byte_buffer *buffer, uint32_t at, uint32_t indent, uint32_t columns, struct str text);
/* Columns that a text takes on a terminal: counts code points. */
uint32_t text_columns(struct str text);
/* Sets the length to 0; keeps the memory. */
void buffer_clear(struct byte_buffer *buffer);
void buffer_free(struct byte_buffer *buffer);

#endif
