/* Sink `file`: rows to files, each row once.
 *
 * A file is written as NAME.part. It is complete when rolling says so, or when the input ends; it gets its
 * final name once a published checkpoint covers it, so that no reader sees a file that a crash could take
 * back. A checkpoint holds how much of the open file is on disk (made durable before the checkpoint is
 * published) and what is not yet written; restoring copies that much to a new inode, because an older process
 * may still hold the old one.
 *
 * Where a file or a block ends depends on the rows alone: one row at a time is weighed wherever bytes count.
 */
#include "connectors/file/names.h"
#include "connectors/file/output.h"
#include "formats/formats.h"

#include "core/os.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RECORD_BYTES_MAX = 4 << 20 };

/* A complete file that still has its `.part` name. */
struct pending {
    char *path;
    uint64_t epoch; /* of the first checkpoint that covers it; 0: none yet */
};

struct file_sink {
    struct str path;
    int format, compression, times;
    int64_t roll_rows, roll_bytes, roll_every;
    bool overwrite;
    struct str delimiter;
    bool has_header, quotes_empty;

    const struct format_kind *format_kind;
    struct format_config format_config;
    enum compression compression_kind;
    char *pattern;
    struct output output;
    int64_t files; /* begun so far */
    int64_t slot;  /* roll_every: of the open file */
    struct pending *pending;
    uint32_t pending_count;
    uint32_t resume_row; /* of the batch that could not be written */
    int64_t rows;        /* of all files */
    bool is_known;       /* to a checkpoint */
};

static const struct option file_options[] = {
    OPTION_TEXT(struct file_sink, path, "path", OPTION_REQUIRED | OPTION_RUNTIME, NULL,
                "the file; with rolling, {n} stands for its number and {time} for the begin of its span"),
    OPTION_ENUM(struct file_sink, format, "format", 0, "auto", "auto|json|csv|msgpack|batches",
                "what is written; auto: by the path's suffix"),
    OPTION_ENUM(struct file_sink, compression, "compression", 0, "auto", "auto|none|gzip|zstd|lz4",
                "auto: by the path's suffix (.gz .zst .lz4)"),
    OPTION_INT(struct file_sink, roll_rows, "roll_rows", 0, "0", "0", "1000000000000",
               "begin a new file after so many rows; 0: never"),
    OPTION_BYTES(struct file_sink, roll_bytes, "roll_bytes", 0, "0B", "0B", "1024TiB",
                 "begin a new file where one has so many bytes before compression; 0: never"),
    OPTION_DURATION(struct file_sink, roll_every, "roll_every", 0, "0s", "0s", "365d",
                    "begin a new file for each such span of event time; 0: never"),
    OPTION_BOOL(struct file_sink, overwrite, "overwrite", "false",
                "remove files of that name when a new run starts"),
    OPTION_TEXT(struct file_sink, delimiter, "delimiter", 0, "\",\"", "csv: what stands between fields"),
    OPTION_BOOL(struct file_sink, has_header, "header", "true",
                "csv: begin with a line that names the columns"),
    OPTION_BOOL(struct file_sink, quotes_empty, "quote_empty", "true",
                "csv: an empty text is `\"\"`, so that it is not read as null; false: nothing"),
    OPTION_ENUM(struct file_sink, times, "times", 0, "rfc3339", "rfc3339|s|ms|us",
                "json, csv, msgpack: how times are written"),
    OPTIONS_END,
};

static bool is_rolled(const struct file_sink *sink)
{
    return sink->roll_rows > 0 || sink->roll_bytes > 0 || sink->roll_every > 0;
}

static bool file_bind(struct sink_bind *bind)
{
    static const enum time_unit units[] = {TIME_UNIT_RFC3339, TIME_UNIT_S, TIME_UNIT_MS, TIME_UNIT_US};
    struct file_sink *sink = bind->config;
    const struct format_kind *by_suffix = format_by_suffix(sink->path);
    sink->format_kind = sink->format > 0    ? formats_all[sink->format - 1]
                        : by_suffix != NULL ? by_suffix
                                            : &format_json;
    sink->compression_kind = sink->compression == 0 ? compression_by_suffix(sink->path)
                                                    : (enum compression)(sink->compression - 1);
    if (!format_delimiter_check(sink->delimiter, bind->diags, bind->span))
        return false;
    sink->format_config = (struct format_config){.delimiter = sink->delimiter.data[0],
                                                 .has_no_header = !sink->has_header,
                                                 .has_bare_empty = !sink->quotes_empty,
                                                 .times = units[sink->times]};
    if (sink->path.length == 0) {
        diag_error(bind->diags, DIAG_E0404, bind->span, "`path` is empty");
        return false;
    }
    bind->owns = sink->path;
    return format_schema_check(sink->format_kind, bind->input, bind->diags, bind->span);
}

/* A file goes on with rows of other columns, where each row names them. */
static void file_shape(const struct sink_bind *bind, struct byte_buffer *out)
{
    static const char *const compressions[] = {"none", "gzip", "zstd", "lz4"};
    const struct file_sink *sink = bind->config;
    buffer_printf(out, "=path: %.*s\n=format: %s, %s\n", STR_ARGS(sink->path), sink->format_kind->name,
                  compressions[sink->compression_kind]);
    if (sink->format_kind->encode_header == NULL && !sink->format_kind->is_blocks)
        return;
    buffer_printf(out, "=columns: ");
    for (uint32_t i = 0; i < bind->input->count; i++)
        buffer_printf(out, "%s%.*s %s", i > 0 ? ", " : "", STR_ARGS(bind->input->fields[i].name),
                      type_name(bind->arena, &bind->input->fields[i].type));
    buffer_printf(out, "\n");
}

/* --- files --- */

static bool sink_error(struct sink_context *context, const char *path, int error)
{
    const struct file_sink *sink = context->config;
    bool is_full = error == ENOSPC || error == EDQUOT;
    context->error_code = is_full ? DIAG_E0608 : DIAG_E0605;
    if (is_full)
        snprintf(context->error, sizeof(context->error),
                 "the disk is full (`%s`); it holds %" PRId64
                 " bytes, all whole rows: make room, then resume",
                 path, sink->output.written);
    else
        snprintf(context->error, sizeof(context->error), "`%s` cannot be written: %s", path, strerror(error));
    return false;
}

static bool open_next(struct sink_context *context, int64_t slot)
{
    struct file_sink *sink = context->config;
    char *path = names_expand(sink->pattern, sink->files, slot);
    void *encoder = sink->format_kind->encoder_new(context->input, &sink->format_config);
    int error = output_create(&sink->output, path, sink->format_kind, sink->compression_kind, encoder);
    if (error != 0)
        sink_error(context, path, error);
    else
        sink->files++;
    sink->slot = slot;
    free(path);
    return error == 0;
}

static void add_pending(struct file_sink *sink, const char *path, uint64_t epoch)
{
    sink->pending = realloc(sink->pending, (sink->pending_count + 1) * sizeof(*sink->pending));
    leat_assert(sink->pending != NULL);
    char *copy = strdup(path);
    leat_assert(copy != NULL);
    sink->pending[sink->pending_count++] = (struct pending){copy, epoch};
}

/* Gives the pending files up to that epoch their names. */
static bool publish(struct sink_context *context, uint64_t epoch)
{
    struct file_sink *sink = context->config;
    uint32_t kept = 0;
    bool is_good = true;
    for (uint32_t i = 0; i < sink->pending_count; i++) {
        struct pending *pending = &sink->pending[i];
        bool is_due = epoch == UINT64_MAX || (pending->epoch != 0 && pending->epoch <= epoch);
        int error = is_due && is_good ? output_publish(pending->path) : 0;
        if (error != 0)
            is_good = sink_error(context, pending->path, error);
        if (is_due && is_good)
            free(pending->path);
        else
            sink->pending[kept++] = *pending;
    }
    sink->pending_count = kept;
    return is_good;
}

static bool end_file(struct sink_context *context)
{
    struct file_sink *sink = context->config;
    int error = output_end(&sink->output);
    if (error != 0)
        return sink_error(context, sink->output.part, error);
    add_pending(sink, sink->output.path, 0);
    output_close(&sink->output);
    return context->has_checkpoints || publish(context, UINT64_MAX);
}

/* --- callbacks --- */

static bool is_part_name(const char *name)
{
    size_t length = strlen(name);
    return length > strlen(".part") && strcmp(name + length - strlen(".part"), ".part") == 0;
}

static bool file_open(struct sink_context *context)
{
    struct file_sink *sink = context->config;
    sink->pattern = names_pattern(sink->path, is_rolled(sink));
    sink->is_known = context->is_resumed;
    if (context->is_resumed)
        return true;
    if (context->replaces_parts)
        names_remove_parts(sink->pattern);
    char *existing = names_existing(sink->pattern, sink->overwrite);
    if (existing != NULL) {
        bool is_part = is_part_name(existing);
        struct diag *d = diag_error(context->diags, DIAG_E0606, (struct span){0, 0},
                                    "the output `%s` exists already", existing);
        diag_hint(
            context->diags, d, "%s",
            is_part ? "an earlier run did not end: --resume it, move the file away, or say `overwrite: true`"
                    : "move it away, choose another `path`, or say `overwrite: true`");
        free(existing);
        return false;
    }
    /* Even a run without rows leaves a file, unless its name needs a row. */
    if (names_has_time(sink->pattern) || open_next(context, 0))
        return true;
    diag_error(context->diags, DIAG_E0605, (struct span){0, 0}, "%s", context->error);
    return false;
}

/* Rows from `row` on that can go into the open file before anything has to be weighed; 0: it must roll first.
 */
static uint32_t rows_that_fit(const struct file_sink *sink, int64_t slot, uint32_t left)
{
    const struct output *output = &sink->output;
    if (output->rows > 0 && ((sink->roll_rows > 0 && output->rows >= sink->roll_rows) ||
                             (sink->roll_bytes > 0 && output->raw_bytes >= sink->roll_bytes) ||
                             (sink->roll_every > 0 && slot > sink->slot)))
        return 0;
    if (sink->roll_bytes > 0 || sink->roll_every > 0 || !output_is_plain(output))
        return 1;
    return sink->roll_rows > 0 ? (uint32_t)MIN(left, sink->roll_rows - output->rows) : left;
}

/* The begin of the span of event time that a row falls into. */
static int64_t row_slot(const struct file_sink *sink, const struct batch *batch, uint32_t index)
{
    if (sink->roll_every == 0)
        return 0;
    int64_t time = batch->event_time[batch_row(batch, index)];
    int64_t rest = time % sink->roll_every;
    return time - rest - (rest < 0 ? sink->roll_every : 0);
}

static bool file_write(struct sink_context *context, const struct batch *batch)
{
    struct file_sink *sink = context->config;
    uint32_t row = sink->resume_row;
    while (row < batch->selected) {
        int64_t slot = row_slot(sink, batch, row);
        bool is_good = sink->output.is_open || open_next(context, slot);
        int error = is_good ? output_flush(&sink->output) : 0;
        if (error != 0)
            is_good = sink_error(context, sink->output.part, error);
        uint32_t count = is_good ? rows_that_fit(sink, slot, batch->selected - row) : 1;
        if (count == 0)
            is_good = end_file(context);
        else if (is_good)
            output_encode(&sink->output, batch, row, count);
        if (!is_good) {
            sink->resume_row = row;
            return false;
        }
        row += count;
        if (count > 0 && sink->output.rows == count)
            sink->slot = slot;
    }
    sink->resume_row = 0;
    sink->rows += batch->selected;
    return true;
}

static bool file_published(struct sink_context *context, uint64_t epoch)
{
    return publish(context, epoch);
}

static bool file_finish(struct sink_context *context)
{
    struct file_sink *sink = context->config;
    if (sink->output.is_open && !end_file(context))
        return false;
    return publish(context, UINT64_MAX);
}

/* --- checkpoints --- */

/* Record types of a snapshot, by their first byte. */
enum { RECORD_STATE = 'S', RECORD_PENDING = 'P', RECORD_RAW = 'B', RECORD_ENCODER = 'E', RECORD_PATH = 'N' };

struct state_record {
    uint8_t type, has_open, unused[6];
    int64_t files, slot, rows;
    int64_t open_written, open_rows, open_raw_bytes, open_block_rows;
    /* then the open file's path */
};

struct pending_record {
    uint8_t type, unused[7];
    uint64_t epoch;
    /* then the path */
};

static bool put(struct snapshot_writer *writer, const void *head, size_t head_bytes, const void *data,
                size_t bytes)
{
    struct byte_buffer record = {0};
    buffer_append(&record, head, head_bytes);
    buffer_append(&record, data, bytes);
    bool is_good = snapshot_put(writer, SNAPSHOT_GLOBAL, record.data, record.length);
    buffer_free(&record);
    return is_good;
}

static bool put_pieces(struct snapshot_writer *writer, char type, const struct byte_buffer *bytes)
{
    bool is_good = true;
    for (size_t at = 0; is_good && at < bytes->length; at += RECORD_BYTES_MAX)
        is_good = put(writer, &type, 1, bytes->data + at, MIN(bytes->length - at, (size_t)RECORD_BYTES_MAX));
    return is_good;
}

/* What is written must be durable before the checkpoint counts; its writer sees to that while rows go on. */
static bool sync_write(void *argument, struct snapshot_writer *writer LEAT_UNUSED)
{
    return os_fsync(*(const int *)argument, "sink.fsync") == 0;
}

static void sync_done(void *argument, bool is_published LEAT_UNUSED)
{
    close(*(int *)argument);
    free(argument);
}

static void defer_sync(const struct output *output, struct snapshot_writer *writer)
{
    int *fd = malloc(sizeof(*fd));
    leat_assert(fd != NULL);
    *fd = dup(output->fd); /* the file may be ended meanwhile */
    snapshot_defer(writer, sync_write, sync_done, fd);
}

static bool file_snapshot(struct sink_context *context, struct snapshot_writer *writer)
{
    struct file_sink *sink = context->config;
    struct output *output = &sink->output;
    sink->is_known = true;
    struct state_record state = {
        .type = RECORD_STATE, .files = sink->files, .slot = sink->slot, .rows = sink->rows};
    const char *path = "";
    if (output->is_open) {
        int error = output_flush_all(output);
        if (error != 0)
            return sink_error(context, output->part, error);
        state.has_open = 1;
        state.open_written = output->written;
        state.open_rows = output->rows;
        state.open_raw_bytes = output->raw_bytes;
        state.open_block_rows = output->block_rows;
        path = output->path;
    }
    const char named = RECORD_PATH;
    bool is_good = put(writer, &state, sizeof(state), path, strlen(path)) &&
                   put(writer, &named, 1, sink->path.data, sink->path.length);
    for (uint32_t i = 0; is_good && i < sink->pending_count; i++) {
        struct pending *pending = &sink->pending[i];
        if (pending->epoch == 0)
            pending->epoch = snapshot_epoch(writer);
        struct pending_record record = {.type = RECORD_PENDING, .epoch = pending->epoch};
        is_good = put(writer, &record, sizeof(record), pending->path, strlen(pending->path));
    }
    if (is_good && output->is_open) {
        is_good = put_pieces(writer, RECORD_RAW, &output->raw);
        struct byte_buffer saved = {0};
        if (sink->format_kind->encoder_save != NULL)
            sink->format_kind->encoder_save(output->encoder, &saved);
        is_good = is_good && put_pieces(writer, RECORD_ENCODER, &saved);
        buffer_free(&saved);
        defer_sync(output, writer);
    }
    return is_good;
}

/* What the records of a snapshot say. */
struct restored {
    struct state_record state;
    char *path;  /* of the open file */
    char *named; /* the `path` of the job */
    struct byte_buffer raw, encoder;
};

/* malloc'd, terminated. */
static char *copy_path(struct str path)
{
    char *copy = malloc(path.length + 1);
    leat_assert(copy != NULL);
    memcpy(copy, path.data, path.length);
    copy[path.length] = '\0';
    return copy;
}

static void clear_pending(struct file_sink *sink)
{
    for (uint32_t i = 0; i < sink->pending_count; i++)
        free(sink->pending[i].path);
    sink->pending_count = 0;
}

static bool read_record(struct file_sink *sink, struct str record, struct restored *restored)
{
    char type = record.length == 0 ? '\0' : record.data[0];
    size_t head = type == RECORD_STATE     ? sizeof(struct state_record)
                  : type == RECORD_PENDING ? sizeof(struct pending_record)
                                           : 1;
    if (record.length < head)
        return false;
    struct str rest = {record.data + head, record.length - head};
    if (type == RECORD_STATE) { /* the first of a checkpoint: what the chain before it said is over */
        memcpy(&restored->state, record.data, sizeof(restored->state));
        buffer_clear(&restored->raw);
        buffer_clear(&restored->encoder);
        clear_pending(sink);
        free(restored->path);
        restored->path = copy_path(rest);
        leat_assert(restored->path != NULL);
    } else if (type == RECORD_PENDING) {
        struct pending_record pending;
        memcpy(&pending, record.data, sizeof(pending));
        char *path = copy_path(rest);
        add_pending(sink, path, pending.epoch);
        free(path);
    } else if (type == RECORD_PATH) {
        free(restored->named);
        restored->named = copy_path(rest);
    } else if (type == RECORD_RAW || type == RECORD_ENCODER) {
        buffer_append(type == RECORD_RAW ? &restored->raw : &restored->encoder, rest.data, rest.length);
    } else {
        return false;
    }
    return true;
}

static bool cannot_restore(struct sink_context *context, const char *path, int error)
{
    struct diag *d = diag_error(context->diags, DIAG_E0605, (struct span){0, 0},
                                "the output `%s` is not what the checkpoint says it is", path);
    diag_errno(context->diags, d, error);
    diag_hint(context->diags, d,
              "put the file back as it was, or start again with --fresh and another `path`");
    return false;
}

/* Files that the checkpoint covers, and whose renaming a crash may have prevented. */
static bool redo_pending(struct sink_context *context)
{
    struct file_sink *sink = context->config;
    bool is_good = true;
    for (uint32_t i = 0; i < sink->pending_count; i++) {
        int error = output_publish(sink->pending[i].path);
        if (error == ENOENT && os_file_bytes(sink->pending[i].path) >= 0)
            error = 0;
        if (error != 0)
            is_good = cannot_restore(context, sink->pending[i].path, error);
    }
    clear_pending(sink);
    return is_good;
}

static bool reopen(struct sink_context *context, struct restored *restored)
{
    struct file_sink *sink = context->config;
    const struct state_record *state = &restored->state;
    void *encoder = sink->format_kind->encoder_new(context->input, &sink->format_config);
    int error = output_reopen(&sink->output, restored->path, state->open_written, sink->format_kind,
                              sink->compression_kind, encoder);
    if (error != 0)
        return cannot_restore(context, restored->path, error);
    buffer_append(&sink->output.raw, restored->raw.data, restored->raw.length);
    sink->output.rows = state->open_rows;
    sink->output.raw_bytes = state->open_raw_bytes;
    sink->output.block_rows = (uint32_t)state->open_block_rows;
    return sink->format_kind->encoder_load == NULL ||
           sink->format_kind->encoder_load(encoder, restored->encoder.data, restored->encoder.length);
}

/* Rows before the checkpoint are in the file of before, and exactly once only if those after it go there. */
static bool is_other_path(struct sink_context *context, const char *named)
{
    const struct file_sink *sink = context->config;
    if (str_is(sink->path, named))
        return false;
    struct diag *d = diag_error(context->diags, DIAG_E0707, (struct span){0, 0},
                                "a file sink wrote to `%s` so far, and its `path` is `%.*s` now", named,
                                STR_ARGS(sink->path));
    diag_hint(context->diags, d,
              "give it its path back; or give the sink another name: it then begins with the rows after the "
              "checkpoint, and what was written stays; or start anew with --fresh");
    return true;
}

static bool file_restore(struct sink_context *context, struct snapshot_reader *reader)
{
    struct file_sink *sink = context->config;
    struct restored restored = {0};
    struct str record;
    uint32_t group;
    bool is_good = true;
    while (is_good && snapshot_get(reader, &group, &record))
        is_good = read_record(sink, record, &restored);
    is_good = is_good && restored.path != NULL && restored.named != NULL;
    if (!is_good)
        snapshot_corrupt(reader, context->diags, "a file sink's record that is none");
    is_good = is_good && !is_other_path(context, restored.named);
    sink->files = restored.state.files;
    sink->slot = restored.state.slot;
    sink->rows = restored.state.rows;
    is_good = is_good && redo_pending(context);
    if (is_good && restored.state.has_open && !reopen(context, &restored)) {
        is_good = false;
        if (context->diags->errors == 0)
            snapshot_corrupt(reader, context->diags, "rows of an open block that cannot be read");
    }
    free(restored.path);
    free(restored.named);
    buffer_free(&restored.raw);
    buffer_free(&restored.encoder);
    return is_good;
}

static void file_describe(struct sink_context *context, struct byte_buffer *out)
{
    const struct file_sink *sink = context->config;
    buffer_printf(out, "%" PRId64 " rows in %" PRId64 " file%s", sink->rows, sink->files,
                  sink->files == 1 ? "" : "s");
}

static void file_close(struct sink_context *context)
{
    struct file_sink *sink = context->config;
    /* A run that did not come to its first row leaves nothing that the next one would stumble over. */
    if (sink->output.is_open && sink->output.written == 0 && !sink->is_known)
        unlink(sink->output.part);
    output_close(&sink->output);
    for (uint32_t i = 0; i < sink->pending_count; i++)
        free(sink->pending[i].path);
    free(sink->pending);
    free(sink->pattern);
    sink->pending = NULL;
    sink->pending_count = 0;
    sink->pattern = NULL;
}

const struct sink_kind sink_file = {
    .name = "file",
    .summary = "rows to files, each once, whatever crashes",
    .example = "sink out = file from features { path: \"out/features-{n}.jsonl.zst\", roll_rows: 1000000 }",
    .details =
        "A file is called NAME.part until it is complete and a checkpoint covers it. Its bytes depend on the "
        "rows "
        "alone: not on checkpoints, crashes or the number of workers. An existing file is never overwritten "
        "unless told.",
    .options = file_options,
    .size = sizeof(struct file_sink),
    .bind = file_bind,
    .shape = file_shape,
    .open = file_open,
    .write = file_write,
    .snapshot = file_snapshot,
    .restore = file_restore,
    .published = file_published,
    .finish = file_finish,
    .describe = file_describe,
    .close = file_close,
};
