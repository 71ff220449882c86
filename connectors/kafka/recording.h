/* Recordings of topics on disk: written by `leat record`; read instead of a topic when a job is replayed or
 * backfilled, or when `leat produce` sends the records again.
 *
 * - DIR/manifest.json: lists the recorded partitions and spans; a file that it does not name is not part of
 *   the recording;
 * - DIR/TOPIC/PPPPP-FFFFFFFFFFFFFFFFFFFF.jsonl.zst: a span: records of partition P from offset F on.
 *
 * The spans of a partition follow each other without a hole. A span has every committed record of the offsets
 * [first, next); offsets without a record were markers of transactions or were compacted away. A span gets
 * its name when it is complete and on disk, and then the manifest is replaced: a crash leaves a file that the
 * manifest does not name, and the next `leat record` writes it again.
 *
 * A record is one line of JSON (recording_json.c) or one msgpack map (recording_msgpack.c). Its bytes are
 * restored exactly: a payload that is one JSON value on one line is stored as it is, any other as text or
 * base64; a record without payload (a tombstone) differs from one with the payload `null`. */
#ifndef LEAT_CONNECTORS_KAFKA_RECORDING_H
#define LEAT_CONNECTORS_KAFKA_RECORDING_H

#include "connectors/kafka/record.h"

#include "core/diag.h"

#include <pthread.h>

enum recording_format { RECORDING_JSONL, RECORDING_MSGPACK };

/* Identifies a record that was the last one read or recorded of a partition: shows later whether a topic is
 * still the same. */
struct kafka_mark {
    int64_t offset, time; /* time: the broker's, in milliseconds */
    uint64_t digest;      /* xxh3-64 of the payload */
};

struct recording_span {
    const char *file;    /* path within the directory: "clicks/00003-00000000000000000000.jsonl.zst" */
    const char *path;    /* path with the directory */
    int64_t first, next; /* the span has the offsets [first, next) */
    uint64_t records;
    int64_t bytes;             /* on disk */
    int64_t first_ms, last_ms; /* least and greatest of the broker's times, milliseconds; -1: none */
};

struct recording_partition {
    const char *name; /* "clicks/3", as in the source `kafka` */
    const char *topic;
    int32_t id;
    int64_t first, next; /* the recorded offsets [first, next); not each of them has a record */
    uint64_t records;
    struct recording_span *spans; /* in order; spans[i + 1].first <= spans[i].next: no hole */
    uint32_t spans_count, spans_room;
    struct kafka_mark mark; /* of the last record; offset -1: no record */
};

struct recording {
    struct recording_partition *partitions; /* sorted by topic, then number */
    uint32_t partitions_count, partitions_room;
    const char *order_log; /* path of the order log that the first directory with one names
                              (core/order_log.h); NULL: none */
};

/* Whether `path` is a recording of topics, a topic's folder in one, or a pattern of such. Looks at the
 * disk. */
bool recording_is(struct str path);

/* Reads the manifests. paths: directories, folders of topics in them, and glob patterns of these. Several
 * make one recording, in which the spans of a partition must leave no hole (they may overlap: each record is
 * read once). topics: names of the wanted topics; count 0: all; a wanted topic may be missing. All results
 * are in the arena. Returns false after a diagnostic (E0601, E0602, E0603). */
LEAT_CHECKED bool recording_open(struct recording *recording, const struct str *paths, uint32_t count,
                                 const struct str *topics, uint32_t topics_count, struct arena *arena,
                                 struct diag_list *diags);
/* Finds the partition of that name, or NULL. */
const struct recording_partition *recording_find(const struct recording *recording, struct str name);

/* --- Reading (recording_read.c): one thread at a time --- */

struct recorded {
    int64_t offset;
    int64_t time_ms; /* the broker's; <= 0: unknown */
    struct kafka_record record;
};

struct recording_reader;
/* Makes a reader at the partition's beginning. The partition must outlive it. diags: written under the mutex,
 * which may be NULL. */
struct recording_reader *recording_reader_new(const struct recording_partition *partition,
                                              struct diag_list *diags, pthread_mutex_t *mutex);
void recording_reader_free(struct recording_reader *reader); /* NULL is allowed */
/* Moves to the first record whose offset is not below `offset`. Returns false after E0612 if the offset is
 * before the recording's beginning or behind its end. */
LEAT_CHECKED bool recording_reader_seek(struct recording_reader *reader, int64_t offset);

enum recorded_status { RECORDED, RECORDED_END, RECORDED_ERROR };
/* Reads the next record; its bytes are valid until the next call. RECORDED_END: partition->next is reached.
 * RECORDED_ERROR: a diagnostic was added (E0601, E0603). */
enum recorded_status recording_reader_next(struct recording_reader *reader, struct recorded *record);
/* Makes the next call return the last record again, with the same bytes. */
void recording_reader_back(struct recording_reader *reader);
/* Bytes read so far, on disk; any thread. */
int64_t recording_reader_done_bytes(const struct recording_reader *reader);

#endif
