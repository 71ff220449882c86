/* The checkpoint of a sink `file`; sink.c explains its use. */
#include "connectors/file/sink.h"

#include "core/mem.h"
#include "core/os.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { RECORD_BYTES_MAX = 4 << 20 };

/* Record types of a snapshot, by their first byte. */
enum { RECORD_STATE = 'S', RECORD_PENDING = 'P', RECORD_RAW = 'B', RECORD_ENCODER = 'E', RECORD_PATH = 'N' };

struct state_record {
    uint8_t type, has_open, unused[6];
    int64_t files, slot, rows;
    int64_t open_written, open_rows, open_raw_bytes, open_block_rows;
    /* followed by the open file's path */
};

struct pending_record {
    uint8_t type, unused[7];
    uint64_t epoch;
    /* followed by the path */
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

/* The open file must be durable before the checkpoint is published; the checkpoint's writer syncs it while
 * rows go on. */
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
    int *fd = mem_alloc(sizeof(*fd));
    *fd = dup(output->fd); /* a descriptor of its own: the sink may close the file meanwhile */
    snapshot_defer(writer, sync_write, sync_done, fd);
}

bool file_sink_snapshot(struct sink_context *context, struct snapshot_writer *writer)
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
            return file_sink_error(context, output->part, error);
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

/* The contents of a snapshot's records. */
struct restored {
    struct state_record state;
    char *path;  /* the open file's */
    char *named; /* the job's `path` option at the checkpoint */
    struct byte_buffer raw, encoder;
};

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
    if (type == RECORD_STATE) { /* a new checkpoint of the chain: forget the one before */
        memcpy(&restored->state, record.data, sizeof(restored->state));
        buffer_clear(&restored->raw);
        buffer_clear(&restored->encoder);
        clear_pending(sink);
        free(restored->path);
        restored->path = mem_str(rest);
    } else if (type == RECORD_PENDING) {
        struct pending_record pending;
        memcpy(&pending, record.data, sizeof(pending));
        char *path = mem_str(rest);
        file_sink_add_pending(sink, path, pending.epoch);
        free(path);
    } else if (type == RECORD_PATH) {
        free(restored->named);
        restored->named = mem_str(rest);
    } else if (type == RECORD_RAW || type == RECORD_ENCODER) {
        buffer_append(type == RECORD_RAW ? &restored->raw : &restored->encoder, rest.data, rest.length);
    } else {
        return false;
    }
    return true;
}

static bool cannot_restore(struct sink_context *context, const char *path, int error)
{
    struct diag *d = diag_error(context->diags, DIAG_OUTPUT_FAILED, context->span,
                                "the output `%s` does not match the checkpoint", path);
    diag_errno(context->diags, d, error);
    diag_hint(context->diags, d,
              "restore the file as it was when the checkpoint was taken, or start again with --fresh "
              "and another `path`");
    return false;
}

/* Whether the run may replace the file `path`. Returns false after a diagnostic. */
static bool may_go(struct sink_context *context, const char *path)
{
    if (existing_may_go(context, path))
        return true;
    diag_error(context->diags, context->error_code, context->span, "%s", context->error);
    return false;
}

/* Gives final names to files that the checkpoint covers: a crash may have prevented it. False after a
 * diagnostic. */
static bool redo_pending(struct sink_context *context)
{
    struct file_sink *sink = context->config;
    bool is_good = true;
    for (uint32_t i = 0; i < sink->pending_count && is_good; i++) {
        is_good = may_go(context, sink->pending[i].path);
        int error = is_good ? output_publish(sink->pending[i].path, context) : 0;
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
    char *part = output_part_name(restored->path);
    bool is_free = may_go(context, part) && may_go(context, restored->path);
    free(part);
    if (!is_free)
        return false;
    void *encoder = sink->format_kind->encoder_new(context->input, &sink->format_config);
    int error = output_reopen(&sink->output, restored->path, state->open_written, sink->format_kind,
                              sink->compression_kind, encoder, context);
    if (error != 0)
        return cannot_restore(context, restored->path, error);
    buffer_append(&sink->output.raw, restored->raw.data, restored->raw.length);
    sink->output.rows = state->open_rows;
    sink->output.raw_bytes = state->open_raw_bytes;
    sink->output.block_rows = (uint32_t)state->open_block_rows;
    return sink->format_kind->encoder_load == NULL ||
           sink->format_kind->encoder_load(encoder, restored->encoder.data, restored->encoder.length);
}

/* Whether the job's `path` has changed since the checkpoint, with a diagnostic: rows before the checkpoint
 * are in the old file, and exactly-once output needs the rows after it there, too. */
static bool is_other_path(struct sink_context *context, const char *named)
{
    const struct file_sink *sink = context->config;
    if (str_is(sink->path, named))
        return false;
    struct diag *d =
        diag_error(context->diags, DIAG_RESUME_OR_FRESH, context->span,
                   "the `path` of a file sink was `%s` when the checkpoint was taken, and is `%.*s` now",
                   named, STR_ARGS(sink->path));
    diag_hint(
        context->diags, d,
        "set `path` back; or give the sink another name: a sink of a new name begins with the rows after the "
        "checkpoint, and the files written before stay; or start anew with --fresh");
    return true;
}

bool file_sink_restore(struct sink_context *context, struct snapshot_reader *reader)
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
        snapshot_corrupt(reader, context->diags, "the state of a file sink is not valid");
    is_good = is_good && !is_other_path(context, restored.named);
    sink->files = restored.state.files;
    sink->slot = restored.state.slot;
    sink->rows = restored.state.rows;
    is_good = is_good && (context->is_uncommitted || redo_pending(context));
    if (is_good && restored.state.has_open && !reopen(context, &restored)) {
        is_good = false;
        if (context->diags->errors == 0)
            snapshot_corrupt(reader, context->diags, "the rows of a file sink's open block cannot be read");
    }
    free(restored.path);
    free(restored.named);
    buffer_free(&restored.raw);
    buffer_free(&restored.encoder);
    return is_good;
}
