/* Sections of a learner's cut (core/operator.h): each of a number, with a head and the bytes that follow it. All
 * numbers are as they are in memory. */
#ifndef LEAT_LEARNERS_TABLES_SECTIONS_H
#define LEAT_LEARNERS_TABLES_SECTIONS_H

#include "core/buffer.h"

/* Begins a section of that number, whose bytes are then appended to `out`; returns where they begin. */
size_t section_begin(struct byte_buffer *out, uint32_t number);
/* Ends the section; begin: what section_begin returned. */
void section_end(struct byte_buffer *out, size_t begin);
/* Takes the next section, which must be of that number, off the front of `left`; false: it is not there. The bytes may be
 * any. */
LEAT_CHECKED bool section_take(struct str *left, uint32_t number, struct str *section);

#endif
