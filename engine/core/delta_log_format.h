/* Inside the delta log: the bytes of a segment, which core/delta_log_write.c writes and
 * core/delta_log_read.c reads.
 *
 * A segment is a head and entries. Words are little-endian. An entry is a head, its bytes, and zeros up to a
 * multiple of 8. Its digests have the digest of the entry before as their seed (the first entry: the digest
 * of the segment's head), so that an entry that is lost, doubled or of another segment is found. The head's
 * own check says that the length can be believed before all the bytes are there.
 *
 * A complete segment ends with an entry of kind DELTA_KIND_NEXT. The next segment's file is made before that
 * entry is written, and is empty until it is: where the file is missing it was dropped, and where it has
 * bytes, the segment before is complete. A log that was closed in order ends with DELTA_KIND_CLOSED. */
#ifndef LEAT_CORE_DELTA_LOG_FORMAT_H
#define LEAT_CORE_DELTA_LOG_FORMAT_H

#include "core/delta_log.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define DELTA_MAGIC "leatdlt2" /* and version */

enum { DELTA_KIND_NEXT = 0xfffe, DELTA_KIND_CLOSED = 0xffff };
enum { DELTA_PATH_BYTES = 4096, DELTA_NAME_BYTES = 24, DELTA_WRITER_BYTES = 16 };

struct delta_segment_head {
    char magic[8];
    uint32_t generation, run_length;
    uint64_t segment;
    char run[DELTA_RUN_MAX];
    uint64_t digest; /* xxh3-64 of all before */
};

struct delta_entry_head {
    uint64_t digest; /* xxh3-64 of `check` up to the last of the padding */
    uint32_t check;  /* lower half of xxh3-64 of `length` to `zero` */
    uint32_t length; /* of the bytes, without padding */
    uint64_t number;
    int64_t time_us;
    uint16_t kind, part;
    uint32_t zero;
};

_Static_assert(sizeof(struct delta_segment_head) == 96 && sizeof(struct delta_entry_head) == 40,
               "heads are written as they are");

enum {
    DELTA_DIGESTED_FROM = offsetof(struct delta_entry_head, check),
    DELTA_CHECKED_FROM = offsetof(struct delta_entry_head, length),
};

static inline uint64_t delta_segment_digest(const struct delta_segment_head *head)
{
    return XXH3_64bits(head, offsetof(struct delta_segment_head, digest));
}

static inline uint32_t delta_entry_check(const struct delta_entry_head *head, uint64_t seed)
{
    return (uint32_t)XXH3_64bits_withSeed((const char *)head + DELTA_CHECKED_FROM,
                                          sizeof(*head) - DELTA_CHECKED_FROM, seed);
}

/* Bytes that follow an entry's head. */
static inline size_t delta_padded(size_t length)
{
    return (length + 7) / 8 * 8;
}

/* path: DELTA_PATH_BYTES. false: it does not fit. */
static inline bool delta_segment_path(const char *directory, uint32_t generation, uint64_t segment,
                                      char *path)
{
    int length = snprintf(path, DELTA_PATH_BYTES, "%s/gen-%06u-%012llu", directory, generation,
                          (unsigned long long)segment);
    return length > 0 && length < DELTA_PATH_BYTES;
}

/* Reads the numbers of a segment's file name; false: it is none. */
static inline bool delta_segment_name(const char *name, uint32_t *generation, uint64_t *segment)
{
    unsigned long long number;
    int end = 0;
    if (sscanf(name, "gen-%10u-%20llu%n", generation, &number, &end) != 2 || name[end] != '\0')
        return false;
    *segment = number;
    return true;
}

/* Takes WRITER of the directory and writes the generation into it; *fd: WRITER, or -1 to open it. 0 or an errno, and the
 * caller closes *fd unless it is -1. */
int delta_writer_hold(const char *directory, uint32_t generation, int *fd);
/* Removes all segments in the directory. */
void delta_segments_remove(const char *directory);

#endif
