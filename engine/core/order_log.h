/* The order log: the decisions of the sequencer, so that a replay or restart can follow them (docs/design.md,
 * section 6).
 *
 * A log is a sequence of segments, one per epoch. A segment is self-contained:
 *
 *     "leatord2"                      magic and format version
 *     u64 epoch, first, next, bytes   it holds micro-batches [first, next); `bytes` of entries follow
 *     entries
 *     16 bytes                        xxh3-128 of everything before
 *
 * 64-bit words are little-endian. An entry is a type of one byte and its fields, which are LEB128 varints
 * (times and differences: zigzag) and texts (length, bytes). Types:
 *
 *      1 partition  id, source's name, partition's name, number of records read before this entry, order
 *                   time of the last of them, properties (enum order_is); with ORDER_HAS_OFFSETS also the
 *                   offset at which reading continues: behind the last record read, and not behind the
 *                   next record
 *      2 slice      partition, number of records that the slice gives to the micro-batch, order time of the
 *                   last record (minus the order time in the partition's previous slice or partition entry);
 *                   for a partition with offsets also the offset of the last record (minus the offset that
 *                   it would have without gaps). The slice begins where the
 *                   partition's previous slice ended, and has all records up to its last one.
 *      3 ended      partition: it has no more records
 *      4 micro-batch  the micro-batch is complete
 *      5 cut        partition: the micro-batch is complete and ends at a cut of this partition; watermarks
 *                   advance (run/sequencer/sequencer.c)
 *      6 last       the micro-batch is complete and is the last of all: every source has ended
 *      7 epoch      the epoch is complete: number of its slices, number of its records
 *      8 ended all  the micro-batch is complete; every source has ended, and an operator may have work left
 *                   (operator_kind.wants_more)
 *     16 idle       partition: it is left out of the watermark until its next slice
 *     18 tick       time: the arrival clock (processing time) advances to it
 *     19 added      fields as for type 1: a partition found while running
 *     20 load       level: from this micro-batch on, learners that follow the load take steps of 2^level
 *                   examples, within their bounds; ORDER_LOAD_MAX before the first entry of a segment
 *
 * A segment begins with a partition entry for each partition, in the order of their ids (0, 1, 2 ...), and
 * ends with an epoch entry. Entries 2, 3, 16 and 18 to 20 belong to the micro-batch that the next 4, 5, 6
 * or 8 completes; a micro-batch may have no slice. A slice takes 5 to 14 bytes, plus one where there are offsets.
 * Only live sources produce types 16 to 31.
 *
 * A replay checks each slice: the order time and offset of its last record, and the number of records up to
 * it. If a topic was compacted in the meantime, records are missing, and neither the slice nor anything after
 * it can be executed again. A log does not depend on where the records are stored: it says only which records
 * of each partition were read. */
#ifndef LEAT_CORE_ORDER_LOG_H
#define LEAT_CORE_ORDER_LOG_H

#include "core/buffer.h"

enum order_tag {
    ORDER_PARTITION = 1,
    ORDER_SLICE,
    ORDER_ENDED,
    ORDER_MICRO_BATCH,
    ORDER_CUT,
    ORDER_LAST,
    ORDER_EPOCH,
    ORDER_ENDED_ALL,
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
    ORDER_IS_LIVE = 2,     /* how many records the partition gave to a micro-batch depended on timing and
                              cannot be recomputed */
    ORDER_HAS_OFFSETS = 4, /* the partition's records have offsets (kafka) */
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
    int64_t offset; /* at which reading continues; only with ORDER_HAS_OFFSETS */
};

/* The records a micro-batch takes from a partition, and the partition's state before. */
struct order_slice {
    uint32_t partition;
    uint64_t records;
    int64_t time, time_before;     /* order time of the slice's last record, and of the record
                                      before the slice */
    int64_t offset, offset_before; /* offset of the slice's last record; offset behind the record
                                      before the slice */
    bool has_offset;
};

/* --- Writing: entries are appended to a buffer; no allocation once the buffer has grown --- */

/* tag: ORDER_PARTITION or ORDER_ADDED. */
void order_put_partition(struct byte_buffer *out, enum order_tag tag,
                         const struct order_partition *partition);
void order_put_slice(struct byte_buffer *out, const struct order_slice *slice);
/* For entries with a partition as their only field. tag: ORDER_ENDED, ORDER_CUT or ORDER_IDLE. */
void order_put_of(struct byte_buffer *out, enum order_tag tag, uint32_t partition);
void order_put_tick(struct byte_buffer *out, int64_t time);
void order_put_load(struct byte_buffer *out, uint32_t level);
/* For entries without fields. tag: ORDER_MICRO_BATCH, ORDER_ENDED_ALL or ORDER_LAST. */
void order_put(struct byte_buffer *out, enum order_tag tag);
/* Appends a whole segment to `out`: head, partition entries, other entries (`entries`, then `more`, which may
 * be empty), epoch entry with `slices` and `records`, digest. Sets head->bytes. */
void order_seal(struct order_head *head, struct str partitions, struct str entries, struct str more,
                uint64_t slices, uint64_t records, struct byte_buffer *out);

/* --- Reading: bytes from outside, everything is checked --- */

/* Reads the head from a segment's first bytes. Returns NULL, or a static text that says what is wrong. */
const char *order_head_read(struct str text, struct order_head *head);
static inline uint64_t order_segment_bytes(const struct order_head *head)
{
    return ORDER_HEAD_BYTES + head->bytes + ORDER_DIGEST_BYTES;
}

struct order_entry {
    enum order_tag tag;
    uint32_t partition;
    uint64_t records;
    int64_t time;   /* order time of the slice's last record, or time of the tick */
    int64_t offset; /* offset of the slice's last record; only with has_offset */
    bool has_offset;
    struct order_partition added;
    uint64_t slices; /* for ORDER_EPOCH */
    uint32_t load;
};

struct order_place {
    int64_t time, offset; /* order time of the last record; offset behind the last record */
    bool has_offsets;
};

struct order_reader {
    struct order_head head;
    const char *begin, *at, *end;
    const char *why;            /* what is wrong, a static text; NULL: nothing so far */
    struct order_place *places; /* by partition id: the place that the entries read so far lead to; malloc'd,
                                   freed by order_close */
    uint32_t partitions;        /* number of partitions so far */
    uint64_t micro_batch;       /* micro-batch that the next entry belongs to */
    uint64_t slices, records;
    bool has_begun, has_ended;
};

/* Opens the segment that `text` begins with and checks its digest. false: reader->why says what is wrong.
 * `text` must stay valid until order_close, which must be called in either case. */
LEAT_CHECKED bool order_open(struct order_reader *reader, struct str text);
/* Reads the next entry; its texts point into the segment. false: at the end of the segment, or reader->why is
 * set. */
bool order_next(struct order_reader *reader, struct order_entry *entry);
void order_close(struct order_reader *reader);

struct order_figures {
    struct order_head head;
    uint32_t partitions;
    uint64_t entries, slices, records, bytes; /* bytes: of the whole segment */
};
/* Reads all entries of the segment that `text` begins with. Returns NULL, or a static text that says what is
 * wrong. */
const char *order_figures(struct str text, struct order_figures *figures);

#endif
