/* Sources, formats and sinks: the descriptors that files under connectors/ and formats/ end with.
 *
 * A source has partitions, each an ordered sequence of records. Reading takes two steps, so that all lanes
 * can parse one big file: `read` (one lane at a time per partition, cheap) cuts the next raw batch of bytes
 * at record boundaries; `decode` (any lane, in parallel) turns it into columns. Where a raw batch ends
 * depends on the bytes alone: after BATCH_ROWS records (bad records included), after SOURCE_BATCH_BYTES, or
 * at the first record that begins beyond a multiple of SOURCE_GRID_BYTES of decompressed bytes. */
#ifndef LEAT_CORE_CONNECTOR_H
#define LEAT_CORE_CONNECTOR_H

#include "core/batch.h"
#include "core/buffer.h"
#include "core/claims.h"
#include "core/counters.h"
#include "core/option.h"
#include "core/snapshot.h"

#include <signal.h>
#include <stdatomic.h>

enum { SOURCE_BATCH_BYTES = 1 << 20, SOURCE_GRID_BYTES = 4 << 20, SOURCE_RECORD_BYTES_MAX = 1 << 20 };
enum { SOURCE_MARK_BYTES = 512 };

/* The position at which a partition continues reading. Stored in checkpoints.
 *
 * For sources without offsets (files) it is the first record of a raw batch, and the engine skips the
 * rows of that batch that it already has. The source defines a and b (file: index of the file in the
 * partition, decompressed offset).
 *
 * For sources with offsets (source_kind.has_offsets) b is the next offset to read: behind the last record
 * taken, not beyond the next existing record, and not beyond the end of the log. Everything before b was
 * read, or is known to hold no record; nothing at or after b was read. Offsets without a record (compacted,
 * aborted, transaction markers) are normal: never compute a position as an offset plus a count of records.
 * After reading to the end of the log, b is that end, whatever follows the last record: deleting data before
 * b loses nothing. a: the part of a raw batch that lies before b (struct batch_share); sources that cut
 * batches by records alone read it to end the rest of the batch where the whole batch would have ended. */
struct source_position {
    int64_t a, b;
    uint64_t record; /* number of the partition's records before this position */
    int64_t line;    /* line of the record, from 1; 0: the source does not count lines */
};

/* How much of a raw batch lies before a position within the batch; all zero: the position begins a raw batch.
 * Packed into source_position.a by batch_share_put. */
struct batch_share {
    uint32_t records; /* below BATCH_ROWS */
    size_t bytes;     /* payload bytes of these records */
};

static inline int64_t batch_share_put(struct batch_share share)
{
    return (int64_t)(share.bytes * BATCH_ROWS + share.records);
}

static inline struct batch_share batch_share_of(const struct source_position *position)
{
    uint64_t a = position->a > 0 ? (uint64_t)position->a : 0;
    return (struct batch_share){(uint32_t)(a % BATCH_ROWS), (size_t)(a / BATCH_ROWS)};
}

struct raw_record {
    uint32_t offset, length; /* in raw_batch.data; without the newline */
};

/* The bytes of up to BATCH_ROWS records. Filled by `read`, consumed by `decode`, recycled by the engine. */
struct raw_batch {
    struct arena arena; /* holds data and records; reset before each read */
    char *data;         /* data_bytes bytes, then at least RAW_PADDING bytes that may be read and written */
    size_t data_bytes;
    struct raw_record *records;
    uint32_t count;
    const int64_t *offsets;          /* of each record, rising; NULL without source_kind.has_offsets */
    struct source_position position; /* of the first record */
    /* Where the partition continues after this batch. Sources with offsets set it after READ_QUIET and
     * READ_END, too: how far they read. */
    struct source_position next;
    const char *path;     /* the file, for messages; lives as long as the source */
    int64_t first_line;   /* line number of the first record, from 1; -1: no lines */
    int64_t first_offset; /* decompressed byte offset of data[0] in the file; -1: none */
    struct str header;    /* bytes shared by the file's records (csv: the header line); lives as long
                          as the source */
    void *extra;          /* for the source's own use, in the arena */
};

enum { RAW_PADDING = 64 };

/* The bytes of a record, for messages and dead letters. records is NULL where rows have no bytes (generators,
 * .batches). */
static inline struct str raw_record_text(const struct raw_batch *raw, uint32_t row)
{
    if (raw->records == NULL)
        return (struct str){"", 0};
    return (struct str){raw->data + raw->records[row].offset, raw->records[row].length};
}

/* The line of a record in the file, from 1, or -1. Counts newlines; for messages about few records. */
static inline int64_t raw_record_line(const struct raw_batch *raw, uint32_t row)
{
    if (raw->first_line < 1 || raw->records == NULL)
        return -1;
    int64_t line = raw->first_line;
    for (uint32_t i = raw->records[0].offset; i < raw->records[row].offset; i++)
        line += raw->data[i] == '\n';
    return line;
}

enum read_status {
    READ_BATCH, /* a raw batch was filled, count > 0 */
    READ_LATER, /* no records now, but more will come (stdin, a broker that is behind): micro-batches
                   wait for this partition */
    READ_QUIET, /* live: all available records were read; micro-batches go on without this partition until
                   it has more */
    READ_END,   /* the partition is finished */
    READ_ERROR, /* a diagnostic was added; the job stops */
};

/* A bad record: row `row` of the batch is not selected and goes to dead letters. */
struct bad_record {
    uint32_t row;
    uint32_t column;    /* 0-based byte in the record where decoding failed; UINT32_MAX: unknown */
    const char *reason; /* in the batch's arena, or static */
    /* For dead letters, where the source knows them; in the batch's arena.
     * headers: JSON, [["name","value"]]. */
    struct str key, headers; /* data NULL: none */
    bool has_no_bytes;       /* the raw batch does not hold the original bytes of the record */
};

/* A decoder's output. batch: rows = raw->count; the decoder fills columns and lists bad records, whose rows
 * it leaves null. The engine fills event_time and the selection afterwards. */
struct decode_output {
    struct batch *batch;
    struct bad_record *bad; /* in the batch's arena, room for raw->count */
    uint32_t bad_count;
};

struct source_bind {
    void *config;
    struct arena *arena;
    struct diag_list *diags;
    struct span span;
    const struct schema *declared; /* the job's `schema:`, or NULL */
    bool may_lack;                 /* a header of names (csv) may lack columns that are not required */
    struct str recording;          /* only for source_kind.replay: the path that --replay names;
                                      else length 0 */
    /* Filled by `bind`. */
    const struct schema *schema;
    bool is_bounded;        /* ends by itself */
    bool is_replayable;     /* can be read again from a position */
    bool is_live;           /* what `read` and `discover` find depends on when they are called: READ_QUIET,
                               new partitions */
    bool has_arrival;       /* its rows have arrival times, which processing-time windows use */
    uint32_t streams_count; /* number of streams the source makes (several: generator ctr); 1 by default */
};

struct source {
    void *config;
    const struct schema *schema;
    struct arena *arena; /* lives as long as the source; only used in open */
    struct diag_list *diags;
    struct span span;          /* the option that says where records are, else the kind; for messages */
    struct claims *claims;     /* what the job reads and writes (core/claims.h); NULL: not known */
    uint32_t partitions_count; /* set by open, raised by discover */
    const char *order_log;     /* set by open: path of the recording's order log
                                  (core/order_log.h); NULL: none */
    /* Live sources call wake(engine) when data may be available again after READ_LATER or READ_QUIET, or when
     * a partition was found. Any thread; cheap; never from within a callback of the source. Set before
     * open. */
    void (*wake)(void *engine);
    void *engine;
    /* Set before open: not 0 when the user wants the run to end; open then need not report an error. NULL: no
     * one can stop it. */
    const volatile sig_atomic_t *stop;
    struct str job, name;  /* of the job and of the source: for client ids and messages */
    bool has_dead_letters; /* set before open: a sink reads the job's dead letters */
    /* Set before open: `seek` follows for every partition in the checkpoint. Other partitions are new and
     * start at their beginning, not where the job's options say. */
    bool is_resumed;
};

/* For the live view: how much the source has in all, and how much of that has been read; -1: unknown. Bytes
 * are counted as on disk (compressed). */
struct source_progress {
    int64_t bytes_total, bytes_done;
    int64_t records_total;
};

struct report;
struct source_kind {
    const char *name, *summary, *example, *details;
    const struct option *options;
    size_t size; /* of the option struct, which holds the state, too; one per source, shared by all lanes */
    /* Records have offsets in their partition (raw_batch.offsets, struct source_position), which also serve
     * as the rows' record numbers (row_origin.record). */
    bool has_offsets;
    /* Where recordings of this source have a kind of their own: replay is the kind that reads them (same
     * options), and is_recording says whether a path or pattern of --replay names such recordings. NULL:
     * files replace the source. */
    const struct source_kind *replay;
    bool (*is_recording)(struct str path);
    /* Checks the options and fills `bind`; false after a diagnostic. */
    bool (*bind)(struct source_bind *bind);
    /* Finds the partitions and sets partitions_count. false after a diagnostic, which may be missing if
     * source.stop is set. */
    bool (*open)(struct source *source);
    /* The partition's name, for messages and dead letters; lives as long as the source. NULL: partitions have
     * no names. */
    const char *(*partition_name)(struct source *source, uint32_t partition);
    /* The partition's topic, and the partition's number in the topic. NULL: the source has no topics. */
    const char *(*partition_topic)(struct source *source, uint32_t partition, int32_t *number);
    /* Live sources: raises partitions_count by the partitions found since the last call; earlier partitions
     * keep their numbers. Called now and then, while other partitions may be in `read`; cheap, without I/O.
     * false: a diagnostic was added. NULL: partitions are never added. */
    bool (*discover)(struct source *source);
    /* Live sources: sets *position to where the partition's first read will begin, as `open` or `discover`
     * decided, so that a checkpoint before the partition's first record contains it. NULL: at zero. */
    void (*begin)(struct source *source, uint32_t partition, struct source_position *position);
    /* Called before the partition's first read: the next read starts at `position`. Live sources get it even
     * for partitions without any record yet. false + diagnostic: the data is gone or changed. */
    bool (*seek)(struct source *source, uint32_t partition, const struct source_position *position);
    /* Reads the next raw batch. One caller at a time per partition; several partitions may be
     * read at once. */
    enum read_status (*read)(struct source *source, uint32_t partition, struct raw_batch *raw);
    /* Turns a raw batch into columns. Any thread, several calls at a time. decoder: from decoder_new, one per
     * lane. */
    void (*decode)(struct source *source, void *decoder, struct raw_batch *raw, struct decode_output *output);
    void *(*decoder_new)(struct source *source);
    void (*decoder_free)(void *decoder);
    /* Fills *progress; any thread, while lanes read and decode. NULL: all is unknown. */
    void (*progress)(struct source *source, struct source_progress *progress);
    /* Metrics for the live view and the summary (core/operator.h); any thread, while lanes decode, too.
     * May be NULL. */
    void (*report)(struct source *source, struct report *report);
    /* mark: writes a fingerprint of the partition's input up to a position, so that a resume notices a
     * changed input; returns its length in bytes; cheap, without I/O. mark_check: called before `seek`,
     * compares a saved fingerprint with the input as it is now; false + diagnostic: the input changed. Both
     * NULL: no check. */
    size_t (*mark)(struct source *source, uint32_t partition, const struct source_position *position,
                   char out[SOURCE_MARK_BYTES]);
    bool (*mark_check)(struct source *source, uint32_t partition, const struct source_position *position,
                       struct str mark);
    void (*close)(struct source *source);
};

/* Formats: bytes of records <-> columns. Used by file, console and kafka.
 *
 * A stream format (json, csv, msgpack) cuts records one after another from bytes. A block format (batches)
 * has self-contained blocks of whole columns: one block makes one raw batch, and `split` sets its number of
 * rows. A payload format (raw) cannot cut records from bytes: it is for sources that know where each record
 * ends (raw_batch.records), and has no suffix, header or `split`. */
struct format_split {
    const void *config;         /* the format's configuration, e.g. struct csv_config */
    const char *data;           /* at the beginning of a record */
    size_t bytes;               /* followed by at least RAW_PADDING readable bytes */
    bool is_last;               /* no more bytes follow: an unfinished record counts as a record */
    uint32_t max;               /* records wanted at most */
    struct raw_record *records; /* room for max; a block format leaves it alone */
    /* Filled by `split`. */
    uint32_t count; /* records, or rows of one block */
    size_t used;    /* bytes consumed, line ends included; 0 with count 0: more bytes are needed */
    /* The last record is longer than SOURCE_RECORD_BYTES_MAX, and was cut after SOURCE_RECORD_BYTES_MAX + 1
     * bytes; the following bytes, up to and including the next newline, belong to no record. */
    bool is_cut;
    uint32_t lines;     /* newlines among the bytes used */
    size_t need;        /* block formats, with count 0: bytes of the whole block, once known; else 0 */
    bool is_end;        /* block formats: the end mark was read; nothing may follow */
    const char *damage; /* an error after which reading cannot continue beyond `used` (static
                           text); NULL: none */
};

enum format_header_status { HEADER_READ, HEADER_MORE, HEADER_BAD };

struct format_kind {
    const char *name, *summary;
    const char *details, *example; /* for help; the example is a source; may be NULL */
    const char *suffix;            /* ".jsonl"; NULL: a payload format */
    bool has_lines;                /* records end at newlines */
    bool is_blocks;                /* a block format */
    bool has_end_mark;             /* a file without its end mark is truncated */
    bool is_payload;               /* a payload format */
    /* Finds the bytes at a file's start that are not records (csv: the header line, a byte-order mark) and
     * sets *used to their number, maybe 0. HEADER_MORE: not enough bytes yet (never with is_last).
     * HEADER_BAD: *damage says why. NULL: files have no header. */
    enum format_header_status (*header)(const void *config, const char *data, size_t bytes, bool is_last,
                                        size_t *used, const char **damage);
    /* Whether files with this header can be decoded to the schema; false: diagnostics (E0607) without a path,
     * which the caller adds. NULL: always true. */
    bool (*header_check)(const struct schema *schema, const void *config, struct str header,
                         struct diag_list *diags);
    void (*split)(struct format_split *split);
    void *(*decoder_new)(const struct schema *schema, const void *config);
    void (*decode)(void *decoder, struct raw_batch *raw, struct decode_output *output);
    void (*decoder_free)(void *decoder);
    /* Encodes one file at a time: encode_header at its start, then rows in order (selected indices first ..
     * first + count - 1), encode_end at its end; all append to `out`. The bytes depend on the file's rows
     * alone, not on how calls split the rows. encode_header NULL: no header. */
    void *(*encoder_new)(const struct schema *schema, const void *config);
    void (*encode_header)(void *encoder, struct byte_buffer *out);
    void (*encode)(void *encoder, const struct batch *batch, uint32_t first, uint32_t count,
                   struct byte_buffer *out);
    void (*encode_end)(void *encoder, struct byte_buffer *out);
    /* For checkpoints: encoder_save appends the rows that the encoder has taken but not yet written as bytes;
     * encoder_load takes them in again, false if the bytes are invalid. NULL: the encoder holds no rows
     * back. */
    void (*encoder_save)(void *encoder, struct byte_buffer *out);
    bool (*encoder_load)(void *encoder, const char *data, size_t bytes);
    void (*encoder_free)(void *encoder);
};

struct sink_bind {
    void *config;
    struct arena *arena;
    struct diag_list *diags;
    struct span span;
    const struct schema *input;
    /* Set by `bind`: the files that the sink writes, as text for people and as a glob (core/claims.h);
     * owns empty: none. */
    struct str owns;
    const char *owns_glob;
};

struct sink_context {
    void *config; /* the option struct, which holds the state, too; one instance per sink */
    const struct schema *input;
    struct arena *arena;
    struct diag_list *diags;  /* open, restore */
    struct counters counters; /* in = absorbed */
    bool is_resumed;          /* `restore` follows `open` */
    /* The restored checkpoint is not committed: output that it covers waits for `published` or `committed`. */
    bool is_uncommitted;
    /* The run began from another run's checkpoint (--from), and this is its first start: the restored state
     * belongs to run `from_run` of job `from_job`. Output that the other run committed is still sent
     * under that run's id; later output belongs to this run. */
    bool is_from;
    uint8_t from_run[16];
    struct str from_job;
    struct span span;      /* the option that says where rows go, else the kind; for messages */
    struct claims *claims; /* what the job reads and writes (core/claims.h); NULL: not known */
    bool replaces_parts;   /* an earlier life ended before its first checkpoint: the sink may replace the
                            unfinished files of that life */
    bool replaces_all;     /* an earlier life of a run without checkpoints: the sink may replace all files of
                            that life */
    /* `published` will be called; without checkpoints, complete files get their final names at once. */
    bool has_checkpoints;
    uint64_t micro_batch;
    const volatile sig_atomic_t *stop; /* like source.stop; valid until open and restore have returned */
    struct str job, name;              /* of the job and of the sink */
    uint8_t run_id[16];                /* id of this run; zero without checkpoints */
    /* Set before restore: micro-batches below this are executed again by the order log, exactly as
     * before. 0: none. */
    uint64_t redo_next;
    /* Set by the sink, any thread: its buffered output has reached the budget, and sources wait until is_full
     * is false again. After clearing is_full, the sink calls wake(engine). */
    _Atomic bool is_full;
    /* Set by open: buffered output is sent only by `committed`, so a full buffer triggers a
     * checkpoint at once. */
    bool sends_checkpoints;
    void (*wake)(void *engine);
    void *engine;
    /* Call before each step that others can see and that cannot be undone (a file's final name, a
     * transaction). Returns 0: go ahead; ESTALE: another process has taken over, the sink does nothing more,
     * and the run reports why; another errno: the check itself failed for now. NULL: the job has no
     * checkpoints. Any thread. */
    int (*check)(void *engine);
    bool is_new_run; /* run_id is new: no process can have sent or written output under it */
    bool may_repeat; /* --fresh or --from: output of earlier runs may be written again */
    /* For `fence` only: the micro-batch number after the last one whose order is in the checkpoint directory, or, where the run begins
     * with a head, behind that; UINT64_MAX: unknown. NULL: not needed. */
    uint64_t (*known_next)(void *engine);
    /* Checkpoints are copied to an object store, which may be behind what is out: the sink notes the order log (`committed`)
     * beside what it sends, so that a run which goes on from the store alone makes the same rows again. */
    bool notes_order;
    /* With notes_order: calls `take` for each segment of the order log that the checkpoint directory has from micro-batch
     * `since` (0: the oldest one) on, up to the checkpoint with which the run goes on. Control thread, in `restore`. */
    void (*each_segment)(void *engine, uint64_t since, void (*take)(void *argument, struct str segment),
                         void *argument);
    /* For `fence` only: the checkpoint directory was restored from an object store; gives it a segment of the order log that
     * the sink has noted. Where two have a micro-batch, the later call counts. false after a diagnostic. NULL: it was not. */
    bool (*take_segment)(void *engine, struct str segment);
    uint32_t life; /* generation of the run (state/checkpoint.h); part of the names of temporary files */
    /* Set by a sink that cannot go on (disk full): message for the user. The job stops. */
    char error[512];
    enum diag_code error_code; /* code for `error`; DIAG_NONE: E0605 */
};

static inline int sink_check(const struct sink_context *context)
{
    return context->check == NULL ? 0 : context->check(context->engine);
}

struct sink_kind {
    const char *name, *summary, *example, *details;
    const struct option *options;
    size_t size;
    /* Checks the options and fills `bind`; false after a diagnostic. */
    bool (*bind)(struct sink_bind *bind);
    /* After bind: what must stay the same for a run to go on (operator_kind.shape): where rows go, what an
     * incomplete file begins with. NULL: nothing. */
    void (*shape)(const struct sink_bind *bind, struct byte_buffer *out);
    /* For sinks that send what checkpoints hold; called before the checkpoint to resume from is chosen: shuts
     * out any other process that still sends for run `run_id`. Of the context, only config, input, arena,
     * diags, job, name, run_id, has_checkpoints, check, engine, known_next and take_segment are set. Keeps no state: `open`
     * may follow, also for another run, or not. If micro-batches from known_next on have been sent, the
     * checkpoint directory is an old copy, and no process is shut out. false + diagnostic. NULL: no other
     * process can send. */
    bool (*fence)(struct sink_context *context);
    /* Prepares the sink, but removes and replaces no output that exists: the run may still be refused. false
     * after a diagnostic. */
    bool (*open)(struct sink_context *context);
    /* The run begins: everything is open and restored. false: see context->error. NULL: nothing to do. */
    bool (*begin)(struct sink_context *context);
    /* Batches come one after another, their rows sorted by row_order over all of them. false: context->error
     * says why, and the job stops. */
    bool (*write)(struct sink_context *context, const struct batch *batch);
    /* Whether the sink can go on; called on its idle lane, because sinks that send in the background can fail
     * while no rows come. false: as for write. NULL: the sink fails in write only. */
    bool (*is_well)(struct sink_context *context);
    /* At the barrier: flushes and fsyncs the output, and puts its length into the checkpoint. false: the
     * checkpoint is abandoned. */
    bool (*snapshot)(struct sink_context *context, struct snapshot_writer *writer);
    /* false after a diagnostic. */
    bool (*restore)(struct sink_context *context, struct snapshot_reader *reader);
    /* The checkpoint of that epoch is committed, as are those before it: it is published, and with `commit: store` in the
     * object store. Files that it covers get their final names. Called on the
     * sink's lane before the next micro-batch's rows are written, or at the end of the run on the control
     * thread. false: as for write. */
    bool (*published)(struct sink_context *context, uint64_t epoch);
    /* Like published, but called at once on the coordinator's thread, parallel to write: for sinks that send
     * a checkpoint's output only when the checkpoint is committed (with `commit: store`, on the thread that copies
     * checkpoints). Must not block. order: the epoch's segment of the order log (core/order_log.h), valid during the
     * call; empty with `commit: store`. false: as for write, and the job stops (if
     * `write` may fail at the same time, the sink writes `error` under its own lock). */
    bool (*committed)(struct sink_context *context, uint64_t epoch, struct str order);
    /* With notes_order: the object store has the checkpoint of that epoch, so that what the sink notes of the order log up to
     * it is not needed. On the thread that copies checkpoints. NULL: nothing to do. */
    void (*stored)(struct sink_context *context, uint64_t epoch);
    /* Called on the control thread after the last micro-batch, also after Ctrl-C: waits a while until
     * committed output is sent. Output that is not sent by then stays in the checkpoint for the next start.
     * false: as for write. */
    bool (*drain)(struct sink_context *context);
    /* Called on the control thread, before `drain`, when the input has ended (not after Ctrl-C): completes
     * the open file. false: as for write. */
    bool (*finish)(struct sink_context *context);
    /* Metrics for the live view and the summary (core/operator.h); any thread, while rows are written,
     * too. NULL: none. */
    void (*report)(struct sink_context *context, struct report *report);
    /* Appends a few words for the summary at the end ("digest 9f3a..., 3 files"). NULL: nothing. */
    void (*describe)(struct sink_context *context, struct byte_buffer *out);
    void (*close)(struct sink_context *context);
};

#endif
