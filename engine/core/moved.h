/* State on its way between instances of an operator: records of key groups in memory, each with its group and length before
 * it, as in a checkpoint's state.bin (core/snapshot.h). */
#ifndef LEAT_CORE_MOVED_H
#define LEAT_CORE_MOVED_H

#include "core/buffer.h"
#include "core/snapshot.h"

enum { MOVED_RECORD_MAX = 16 << 20 };

/* Appends a record of at most MOVED_RECORD_MAX bytes. key_group: SNAPSHOT_GLOBAL where the record is for all groups. */
void moved_put(struct byte_buffer *out, uint32_t key_group, const void *data, size_t bytes);
/* Takes the first record off *rest; its data lies in there. False: there are no more; or the bytes are no records, and *rest
 * is as long as before. */
bool moved_next(struct str *rest, uint32_t *key_group, struct str *data);

#endif
