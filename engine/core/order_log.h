/* The order log: what the sequencer decided, so that it can be decided again (design, section 6).
 *
 * A log is a sequence of segments, one for each epoch. A segment stands alone:
 *
 *     "leatord2"                          magic and format version
 *     u64 epoch, first, next, bytes       numbers [first, next) are in it; `bytes` of entries follow
 *     entries
 *     16 bytes                            xxh3-128 of all before it
 *
 * Words of 64 bits are little-endian. An entry is a type of one byte and its fields, which are LEB128 varints
 * (times: zigzag) and texts (length, bytes). Types:
 *
 *      1 partition   id, source's name, partition's name, records before, order time before, what it is (enum
 *                    order_is), and where it has offsets, where it goes on: at least behind the last record
 *                    before, at most at the next
 *      2 slice       partition, records it gave to the number, order time of the last: less that of its last
 *                    slice (or of the partition entry); and where it has offsets, that of the last: less what
 *                    it were without gaps. So it took all records before the offset behind the last, and
 * these were so many 3 ended       partition: it has no more records 4 number      the number is complete 5
 * cut         partition: the number is complete and ends at a cut of this partition; watermarks advance
 * (run/sequencer.c) 6 last        the number is complete and the last of all: every source has ended 7 epoch
 * the epoch is complete: slices in it, records in it 16 idle        partition: left out of the watermark
 * until its next slice 18 tick        time: the clock of arrival (processing time) stands there 19 added as
 * 1: found while running 20 load        level: from this number on, learners that follow the load take steps
 * of 2^level examples, within their bounds; ORDER_LOAD_MAX before the first of a segment
 *
 * A segment begins with a partition entry for each partition, in the order of their ids (0, 1, 2 ...), and
 * ends with an epoch entry. Entries 2, 3, 16 and 18 to 20 belong to the number that the next 4, 5 or 6
 * completes; it may have no slice. A slice takes 5 to 14 bytes, and one more where there are offsets. Types
 * 16 to 31 are what only live sources decide.
 *
 * What a slice was is checked when it is read again: the order time and offset of its last record, and how
 * many there are up to that. Where a topic was compacted since, some are missing, and neither the slice nor
 * what follows can be executed again. A log is not of a recording: it says what was read of each partition,
 * wherever that is kept. */
#ifndef LEAT_CORE_ORDER_LOG_H
#define LEAT_CORE_ORDER_LOG_H

#include "core/buffer.h"

enum order_tag {
    ORDER_PARTITION = 1,
    ORDER_SLICE,
    ORDER_ENDED,
    ORDER_NUMBER,
    ORDER_CUT,
    ORDER_LAST,
    ORDER_EPOCH,
    ORDER_LIVE_FIRST = 16,
    ORDER_IDLE = ORDER_LIVE_FIRST,
    ORDER_TICK = 18,
    ORDER_ADDED = 19,
    ORDER_LOAD = 20,
    ORDER_LIVE_LAST = 31,
};

enum {
    ORDER_HEAD_BYTES = 40,
    ORDER_DIGEST_BYTES = 16,
    ORDER_PARTITIONS_MAX = 4096,
    ORDER_NAME_MAX = 1 << 12,
    ORDER_LOAD_MAX = 16,
};
#define ORDER_SEGMENT_MAX ((uint64_t)1 << 30) /* bytes of entries */

enum order_is {
    ORDER_HAS_ENDED = 1,
    ORDER_IS_LIVE = 2,     /* what it gave to a number depended on when: nobody can compute that again */
    ORDER_HAS_OFFSETS = 4, /* its records have places of their own (kafka) */
    ORDER_IS_ALL = 7,
};

struct order_head {
    uint64_t epoch, first, next, bytes;
};

struct order_partition {
    uint32_t id;
    struct str source, name;
    uint64_t records;
    int64_t time;
    unsigned is;    /* enum order_is */
    int64_t offset; /* where it goes on; ORDER_HAS_OFFSETS */
};

/* What a number takes of a partition, and what was before it. */
struct order_slice {
    uint32_t partition;
    uint64_t records;
    int64_t time, time_before;     /* of the last record */
    int64_t offset, offset_before; /* of the last record; behind the last one before */
    bool has_offset;
};

/* --- Writing: entries are put into a buffer, without allocation once it has grown --- */

/* tag: partition, added. */
void order_put_partition(struct byte_buffer *out, enum order_tag tag,
                         const struct order_partition *partition);
void order_put_slice(struct byte_buffer *out, const struct order_slice *slice);
/* tag: ended, cut, idle. */
void order_put_of(struct byte_buffer *out, enum order_tag tag, uint32_t partition);
void order_put_tick(struct byte_buffer *out, int64_t time);
void order_put_load(struct byte_buffer *out, uint32_t level);
/* tag: number, last. */
void order_put(struct byte_buffer *out, enum order_tag tag);
/* A whole segment of what was put: partitions, then entries in one or two pieces. head->bytes is set. */
void order_seal(struct order_head *head, struct str partitions, struct str entries, struct str more,
                uint64_t slices, uint64_t records, struct byte_buffer *out);

/* --- Reading: any bytes may come in --- */

/* Of the first ORDER_HEAD_BYTES of a segment; NULL where it is one, else what is wrong. */
const char *order_head_read(struct str text, struct order_head *head);
static inline uint64_t order_segment_bytes(const struct order_head *head)
{
    return ORDER_HEAD_BYTES + head->bytes + ORDER_DIGEST_BYTES;
}

struct order_entry {
    enum order_tag tag;
    uint32_t partition;
    uint64_t records;
    int64_t time;   /* of the slice's last record; of the tick */
    int64_t offset; /* likewise; has_offset */
    bool has_offset;
    struct order_partition added;
    uint64_t slices; /* epoch */
    uint32_t load;
};

struct order_place {
    int64_t time, offset; /* of the last record; behind it */
    bool has_offsets;
};

struct order_reader {
    struct order_head head;
    const char *begin, *at, *end;
    const char *why;            /* what is wrong; NULL: nothing */
    struct order_place *places; /* by partition: where the entries so far have got to; malloc'd */
    uint32_t partitions;        /* so far */
    uint64_t number;            /* that the next entry belongs to */
    uint64_t slices, records;
    bool has_begun, has_ended;
};

/* The segment that `text` begins with, once its digest is checked; false: `why` says what is wrong. Its bytes
 * must stay until order_close, which is always called. */
LEAT_CHECKED bool order_open(struct order_reader *reader, struct str text);
/* The next entry; false: at the end, or reader->why. */
bool order_next(struct order_reader *reader, struct order_entry *entry);
void order_close(struct order_reader *reader);

struct order_figures {
    struct order_head head;
    uint32_t partitions;
    uint64_t entries, slices, records, bytes; /* bytes: of the whole segment */
};
/* Reads all entries of the segment; NULL, or what is wrong. */
const char *order_figures(struct str text, struct order_figures *figures);

#endif
