#include "core/moved.h"

#include "core/key.h"

struct head {
    uint32_t key_group, bytes;
};

void moved_put(struct byte_buffer *out, uint32_t key_group, const void *data, size_t bytes)
{
    leat_assert(bytes <= MOVED_RECORD_MAX && (key_group < KEY_GROUPS || key_group == SNAPSHOT_GLOBAL));
    struct head head = {key_group, (uint32_t)bytes};
    buffer_append(out, &head, sizeof(head));
    buffer_append(out, data, bytes);
}

bool moved_next(struct str *rest, uint32_t *key_group, struct str *data)
{
    struct head head;
    if (rest->length < sizeof(head))
        return false;
    memcpy(&head, rest->data, sizeof(head));
    if (head.bytes > MOVED_RECORD_MAX || head.bytes > rest->length - sizeof(head) ||
        (head.key_group >= KEY_GROUPS && head.key_group != SNAPSHOT_GLOBAL))
        return false;
    *key_group = head.key_group;
    *data = (struct str){rest->data + sizeof(head), head.bytes};
    rest->data += sizeof(head) + head.bytes;
    rest->length -= sizeof(head) + head.bytes;
    return true;
}
