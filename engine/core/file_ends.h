/* Digests of both ends of a file: by them two files are compared at a bounded cost. Changed bytes in the middle are not noticed. */
#ifndef LEAT_CORE_FILE_ENDS_H
#define LEAT_CORE_FILE_ENDS_H

#include "core/base.h"

/* Digests of the first and last 4,096 bytes, or fewer, of the open file within its first `size` bytes. 0 where the file cannot be read at
 * an offset (a pipe). Any thread. */
void file_ends(int fd, int64_t size, uint64_t *head, uint64_t *tail);

#endif
