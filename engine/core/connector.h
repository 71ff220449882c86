/* Sources, formats and sinks: the descriptors that files under connectors/ and formats/ end with.
 *
 * A source has partitions, each an ordered sequence of records. Reading is in two steps, so that one big file
 * can be parsed by all lanes: `read` (one lane at a time per partition, cheap) cuts the next raw batch of
 * bytes at record boundaries; `decode` (any lane, in parallel) makes columns of it. Where a raw batch ends
 * depends on the bytes alone: after BATCH_ROWS records (bad ones included), SOURCE_BATCH_BYTES, or where a
 * record begins beyond a multiple of SOURCE_GRID_BYTES of decompressed bytes. */
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

/* Where a partition goes on reading. Stored in checkpoints.
 *
 * Of a source whose records have no places of their own (files) it is the first record of a raw batch, and
 * the engine passes over the rows of that batch which it had. Meaning of a, b: the source's (file: index of
 * the file in the partition, decompressed offset).
 *
 * Of a source with offsets (source_kind.has_offsets) b is the next offset to read: behind the last record
 * that was taken, at most at the next one there is, and at most at the end of the log. All before b was read,
 * or is known to hold nothing; nothing at b or behind it was. Offsets that no record has (compacted away,
 * aborted, markers of transactions) are normal everywhere: so a position is never an offset and a count of
 * records. Where a source has been read to the end of its log, b is that end, whatever lies behind the last
 * record: what is deleted before b is no loss. a: how much of a raw batch lies before b (struct batch_share),
 * so that sources which cut batches by the records alone end the rest of it where the whole would have ended.
 */
struct source_position {
    int64_t a, b;
    uint64_t record; /* records of the partition before this */
    int64_t line;    /* line of the record, from 1, where the source knows lines; else 0 */
};

/* The part of a raw batch that was given before a position within it. Zero: the position begins a batch. */
struct batch_share {
    uint32_t records; /* below BATCH_ROWS */
    size_t bytes;     /* of their payloads */
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

/* Bytes of up to BATCH_ROWS records. Made by `read`, used by `decode`, recycled by the engine. */
struct raw_batch {
    struct arena arena; /* data and records, reset before each read */
    char *data;         /* data_bytes, followed by at least RAW_PADDING bytes that may be read and written */
    size_t data_bytes;
    struct raw_record *records;
    uint32_t count;
    const int64_t *offsets;          /* of each record, rising, where the source's kind says has_offsets */
    struct source_position position; /* of the first record */
    struct source_position next;     /* where the partition goes on behind this batch; where the source has
                                        offsets,     after READ_QUIET and READ_END too: how far it was read */
    const char *path;                /* the file, for messages; lives as long as the source */
    int64_t first_line;              /* of the first record, from 1; -1: has no lines */
    int64_t first_offset;            /* decompressed byte offset of data[0] in the file; -1: none */
    struct str header; /* what the file's records share (csv: the header line); as long as the source */
    void *extra;       /* the source's own, in the arena */
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
    READ_LATER, /* nothing now, but there is more (stdin, a broker that is behind): numbers wait for it */
    READ_QUIET, /* live: all that there is was read; numbers go on without it until it has something */
    READ_END,   /* the partition is finished */
    READ_ERROR, /* a diagnostic was added; the job stops */
};

/* A bad record: row `row` of the batch is not selected and goes to dead letters. */
struct bad_record {
    uint32_t row;
    uint32_t column;    /* 0-based byte in the record where it went wrong, UINT32_MAX unknown */
    const char *reason; /* in the batch's arena, or static */
    /* For dead letters, where the source knows them; in the batch's arena. */
    struct str key, headers; /* data NULL: none; headers: JSON, [["name","value"]] */
    bool has_no_bytes;       /* what the raw batch has is not the record as it was */
};

/* Where a decoder puts a batch: rows = raw->count; it fills columns, and lists bad records (their rows it
 * leaves null). event_time and selection are the engine's work afterwards. */
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
    struct str recording;          /* of source_kind.replay: what --replay names; else length 0 */
    /* Filled by `bind`. */
    const struct schema *schema;
    bool is_bounded;        /* ends by itself */
    bool is_replayable;     /* can be read again from a position */
    bool is_live;           /* what is there depends on when it is asked: READ_QUIET, new partitions */
    bool has_arrival;       /* its rows say when they arrived: what windows over processing time go by */
    uint32_t streams_count; /* sources that make several (generator ctr): 1 by default */
};

struct source {
    void *config;
    const struct schema *schema;
    struct arena *arena; /* lives as long as the source; only used in open */
    struct diag_list *diags;
    struct span span;          /* of the option that says where records are, else of the kind: for messages */
    struct claims *claims;     /* what the job reads and writes (core/claims.h); NULL: not known */
    uint32_t partitions_count; /* set by open, raised by discover */
    const char *order_log;     /* set by open: of the recording (core/order_log.h); NULL: none */
    /* Live: something may be there again where READ_LATER or READ_QUIET was answered, or a partition was
     * found. Any thread; cheap; never from within a callback of the source. Set before open. */
    void (*wake)(void *engine);
    void *engine;
    const volatile sig_atomic_t *stop; /* set before open: not 0 when the user wants the run to end, which
                                          open need not say; NULL: nobody can */
    struct str job, name;              /* of the job and of the source: for client ids and messages */
    bool has_dead_letters;             /* set before open: a sink takes them */
    bool is_resumed; /* set before open: `seek` follows for every partition of the checkpoint; the others are
                        new, and begin where they begin, not where the job's options say */
};

/* For the live view: how much there is and how much is read; -1 unknown. Bytes as they lie on disk. */
struct source_progress {
    int64_t bytes_total, bytes_done;
    int64_t records_total;
};

struct report;
struct source_kind {
    const char *name, *summary, *example, *details;
    const struct option *options;
    size_t size; /* of the option struct, which holds the state too; one per source, shared by all lanes */
    /* Records have places of their own in a partition: raw_batch.offsets, struct source_position; these are
     * the numbers of rows, too (row_origin.record). */
    bool has_offsets;
    /* Recordings of this kind's own: the kind that reads them, which has the same options, and whether a path
     * or pattern of --replay names some. NULL: files take its place. */
    const struct source_kind *replay;
    bool (*is_recording)(struct str path);
    bool (*bind)(struct source_bind *bind);
    /* Finds the partitions and sets partitions_count. */
    bool (*open)(struct source *source);
    const char *(*partition_name)(struct source *source,
                                  uint32_t partition); /* for messages and dead letters */
    /* The topic that the partition is of, and its number there. NULL: the source has no topics. */
    const char *(*partition_topic)(struct source *source, uint32_t partition, int32_t *number);
    /* Live sources: partitions that were found since the last call; raises partitions_count, and keeps the
     * numbers of those before. Called now and then, beside `read` of other partitions; cheap, without I/O.
     * false: a diagnostic was added. NULL: there are never more. */
    bool (*discover)(struct source *source);
    /* Live sources: where the partition will be read first, as open or discover decided it, so that a
     * checkpoint before its first record has it. NULL: at zero. */
    void (*begin)(struct source *source, uint32_t partition, struct source_position *position);
    /* The next read of the partition begins there; before the first read. Live sources are told even of
     * partitions that had no record yet. false + diagnostic: gone or changed. */
    bool (*seek)(struct source *source, uint32_t partition, const struct source_position *position);
    /* One caller at a time per partition; different partitions may be read at the same time. */
    enum read_status (*read)(struct source *source, uint32_t partition, struct raw_batch *raw);
    /* Any thread, several at a time. decoder: from decoder_new, one per lane. */
    void (*decode)(struct source *source, void *decoder, struct raw_batch *raw, struct decode_output *output);
    void *(*decoder_new)(struct source *source);
    void (*decoder_free)(void *decoder);
    void (*progress)(struct source *source, struct source_progress *progress);
    /* Figures for the live view and the summary (core/operator.h); any thread, also while lanes decode. May
     * be NULL. */
    void (*report)(struct source *source, struct report *report);
    /* What was read of the partition up to a position, so that a resume notices a changed input: at most
     * SOURCE_MARK_BYTES; cheap, without I/O. mark_check compares, before the seek: false + diagnostic. Both
     * NULL: nothing to compare. */
    size_t (*mark)(struct source *source, uint32_t partition, const struct source_position *position,
                   char out[SOURCE_MARK_BYTES]);
    bool (*mark_check)(struct source *source, uint32_t partition, const struct source_position *position,
                       struct str mark);
    void (*close)(struct source *source);
};

/* Formats: bytes of records <-> columns. Used by file, console and (later) kafka.
 *
 * A stream format (json, csv, msgpack) cuts records one after another from bytes. A block format (batches)
 * has self-contained blocks of whole columns: one block makes one raw batch, and `split` says how many rows
 * it has. A payload format (raw) cannot cut records from bytes: it is for sources that know where each ends
 * (raw_batch.records), and has no suffix, header or `split`. */
struct format_split {
    const void *config;         /* the format's, e.g. struct csv_config */
    const char *data;           /* at the beginning of a record */
    size_t bytes;               /* followed by at least RAW_PADDING readable bytes */
    bool is_last;               /* no more bytes follow: an unfinished record is one */
    uint32_t max;               /* records wanted at most */
    struct raw_record *records; /* room for max; a block format leaves it alone */
    /* Filled by `split`. */
    uint32_t count; /* records, or rows of one block */
    size_t used;    /* bytes consumed, line ends included; 0 with count 0: more bytes are needed */
    /* The last record is longer than SOURCE_RECORD_BYTES_MAX: it was cut one byte above that, and the bytes
     * up to and with the next newline belong to nothing. */
    bool is_cut;
    uint32_t lines; /* newlines among the bytes used */
    size_t need;    /* block formats, with count 0: bytes that the block has, once that is known; else 0 */
    bool is_end;    /* block formats: the end mark was read; nothing may follow */
    const char *damage; /* where reading cannot go on behind `used`: what is wrong there (static text) */
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
    /* The bytes at a file's start that are no records (csv: the header line, a byte-order mark): *used, maybe
     * 0. HEADER_MORE: not enough bytes yet (never with is_last). HEADER_BAD: *damage says why. NULL: none. */
    enum format_header_status (*header)(const void *config, const char *data, size_t bytes, bool is_last,
                                        size_t *used, const char **damage);
    /* Whether files with this header can be decoded to the schema; false: diagnostics (E0607) without a path,
     * which the caller adds. NULL: always. */
    bool (*header_check)(const struct schema *schema, const void *config, struct str header,
                         struct diag_list *diags);
    void (*split)(struct format_split *split);
    void *(*decoder_new)(const struct schema *schema, const void *config);
    void (*decode)(void *decoder, struct raw_batch *raw, struct decode_output *output);
    void (*decoder_free)(void *decoder);
    /* Encoder of one file at a time: encode_header at its start, then the rows (selected indices first ..
     * first + count - 1) in order, encode_end at its end; all append to `out`. What is appended depends on
     * the rows of the file alone, not on how they are cut into calls. encode_header: NULL if none. */
    void *(*encoder_new)(const struct schema *schema, const void *config);
    void (*encode_header)(void *encoder, struct byte_buffer *out);
    void (*encode)(void *encoder, const struct batch *batch, uint32_t first, uint32_t count,
                   struct byte_buffer *out);
    void (*encode_end)(void *encoder, struct byte_buffer *out);
    /* Rows that the encoder keeps back, for a checkpoint. NULL where it keeps none. load: false if
     * impossible. */
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
    /* Out: the files that it writes, for people and as a glob (core/claims.h); owns empty: none. */
    struct str owns;
    const char *owns_glob;
};

struct sink_context {
    void *config; /* option struct, holds the state too; one instance per sink */
    const struct schema *input;
    struct arena *arena;
    struct diag_list *diags;  /* open, restore */
    struct counters counters; /* in = absorbed */
    bool is_resumed;          /* `restore` follows `open` */
    /* The run began with another's checkpoint, and this is its first start from there: what is restored is
     * state of the run `from_run` of the job `from_job`. What that one had promised is done in its name;
     * what comes from now on is this run's. */
    bool is_from;
    uint8_t from_run[16];
    struct str from_job;
    struct span span;      /* of the option that says where rows go, else of the kind: for messages */
    struct claims *claims; /* what the job reads and writes (core/claims.h); NULL: not known */
    bool replaces_parts; /* an earlier life ended before its first checkpoint: what it left unfinished is void
                          */
    bool replaces_all;   /* an earlier life of a run without checkpoints: all that it wrote is void */
    bool has_checkpoints; /* `published` will be called; without it complete files get their names at once */
    uint64_t number;
    const volatile sig_atomic_t *stop; /* as of a source: until open and restore have returned */
    struct str job, name;              /* of the job and of the sink */
    uint8_t run_id[16];                /* of the checkpoints; zero where there are none */
    /* Set before restore: numbers below this are executed again by the order log, just as they were. 0: none.
     */
    uint64_t redo_next;
    /* Set by the sink, any thread: what it holds has reached its budget. The sources wait until it is false
     * again. After clearing it: wake(engine). */
    _Atomic bool is_full;
    bool sends_checkpoints; /* set by open: what it holds goes out by `committed` alone: when it is full, a
                               checkpoint is taken at once */
    void (*wake)(void *engine);
    void *engine;
    /* Asked before each step that others can see and that nobody takes back (a file's final name, a
     * transaction): 0: this process may. ESTALE: another one has taken over; the sink does nothing more, and
     * the run says why. Another errno: that cannot be told now. NULL: the job has no checkpoints. Any thread.
     */
    int (*check)(void *engine);
    bool is_new_run; /* nobody can have sent or written anything for run_id */
    bool may_repeat; /* on purpose (--fresh, --from): what earlier runs gave to the sink may come again */
    /* For `fence` alone: the number behind all whose order the directory knows when it is asked;
     * UINT64_MAX: that cannot be told. NULL: it does not matter. */
    uint64_t (*known_next)(void *engine);
    uint32_t life; /* of the run: its generation (state/checkpoint.h); part of the names of temporary files */
    /* Set by a sink that cannot go on (disk full): message for the user. The job stops, or waits and tries
     * again. */
    char error[512];
    enum diag_code error_code; /* goes with `error`; DIAG_NONE: E0605 */
};

static inline int sink_check(const struct sink_context *context)
{
    return context->check == NULL ? 0 : context->check(context->engine);
}

struct sink_kind {
    const char *name, *summary, *example, *details;
    const struct option *options;
    size_t size;
    bool (*bind)(struct sink_bind *bind);
    /* After bind: what goes on only if it stays as it is (operator_kind.shape): where rows go, what a file
     * that is not complete begins with. NULL: nothing. */
    void (*shape)(const struct sink_bind *bind, struct byte_buffer *out);
    /* Before the checkpoint to go on from is chosen, for sinks that send what checkpoints hold: whoever else
     * still sends for the run `run_id` cannot any more. Of the context, config, input, arena, diags, job,
     * name, run_id, check and known_next are set. Keeps nothing: open follows, maybe of another run, or does
     * not. Where more is out than known_next says, nobody is shut out: the directory is an old copy. false +
     * diagnostic. NULL: nobody else can send. */
    bool (*fence)(struct sink_context *context);
    /* Takes nothing away of what is there: the run may still be refused. */
    bool (*open)(struct sink_context *context);
    /* The run begins: everything is open and restored. false: context->error. NULL: nothing to do. */
    bool (*begin)(struct sink_context *context);
    /* Rows come in the job's one order. false: context->error says why; the same batch may be written again
     * once there is hope, and goes on where it stopped. */
    bool (*write)(struct sink_context *context, const struct batch *batch);
    /* Whether it can go on, asked on its lane while that has nothing to do: sinks that send by themselves
     * fail while no rows come. false: as for write. NULL: it fails in write alone. */
    bool (*is_well)(struct sink_context *context);
    /* At the barrier: flush and fsync what is written; the record holds the length. */
    bool (*snapshot)(struct sink_context *context, struct snapshot_writer *writer);
    bool (*restore)(struct sink_context *context, struct snapshot_reader *reader);
    /* The checkpoint with that epoch is published: files that it covers get their final names. On the sink's
     * lane, before it writes what comes after. */
    bool (*published)(struct sink_context *context, uint64_t epoch);
    /* The same, at once, on the coordinator's thread, beside write: for sinks that only then send what the
     * checkpoint holds. Returns without waiting. order: the epoch's segment of the order log
     * (core/order_log.h), valid during the call. false: as for write, and the job stops (error is then
     * written under the sink's own lock, if `write` may fail meanwhile). */
    bool (*committed)(struct sink_context *context, uint64_t epoch, struct str order);
    /* After the last number, at Ctrl-C too, on the control thread: waits a while until what is committed is
     * out; what is not stays in the checkpoint for the next start. false: as for write. */
    bool (*drain)(struct sink_context *context);
    /* The input has ended (not after Ctrl-C): finish the open file. */
    bool (*finish)(struct sink_context *context);
    /* Figures for the live view and the summary (core/operator.h); any thread, also while rows are written.
     * NULL: none. */
    void (*report)(struct sink_context *context, struct report *report);
    /* Appends a few words for the summary at the end ("digest 9f3a..., 3 files"). NULL: nothing to say. */
    void (*describe)(struct sink_context *context, struct byte_buffer *out);
    void (*close)(struct sink_context *context);
};

#endif
