#include "learners/tables/sections.h"

struct section_head {
    uint32_t number;
    uint32_t unused;
    uint64_t bytes; /* which follow */
};
_Static_assert(offsetof(struct section_head, bytes) + sizeof(uint64_t) == sizeof(struct section_head),
               "last");

size_t section_begin(struct byte_buffer *out, uint32_t number)
{
    struct section_head head = {.number = number};
    buffer_append(out, &head, sizeof(head));
    return out->length;
}

void section_end(struct byte_buffer *out, size_t begin)
{
    uint64_t bytes = out->length - begin;
    memcpy(out->data + begin - sizeof(bytes), &bytes, sizeof(bytes));
}

bool section_take(struct str *left, uint32_t number, struct str *section)
{
    struct section_head head;
    if (left->length < sizeof(head))
        return false;
    memcpy(&head, left->data, sizeof(head));
    if (head.number != number || head.bytes > left->length - sizeof(head))
        return false;
    *section = (struct str){left->data + sizeof(head), (size_t)head.bytes};
    *left = (struct str){section->data + section->length, left->length - sizeof(head) - section->length};
    return true;
}
