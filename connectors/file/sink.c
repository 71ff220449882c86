/* Sink `file`: rows to files, each row once.
 *
 * A file is written as NAME.part. It is complete when rolling says so, or when the input ends; it gets its
 * final name once a published checkpoint covers it, so that no reader sees a file that a crash could take
 * back. A checkpoint holds how many bytes of the open file are on disk (made durable before the checkpoint is
 * published) and the bytes not yet written; a restore copies the bytes on disk to a new inode, because an
 * older process may still write to the old one.
 *
 * Where a file or a block ends depends on the rows alone: wherever bytes count, rows are encoded one at a
 * time. */
#include "connectors/file/sink.h"

#include "core/mem.h"
#include "core/os.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct option file_options[] = {
    OPTION_TEXT(
        struct file_sink, path, "path", OPTION_REQUIRED | OPTION_RUNTIME | OPTION_WRITES, NULL,
        "path of the file; with rolling, {n} stands for the file's number and {time} for the begin of "
        "its `roll_every` span"),
    OPTION_ENUM(struct file_sink, format, "format", 0, "auto", "auto|json|csv|msgpack|batches",
                "format of the file; auto: by the path's suffix"),
    OPTION_ENUM(struct file_sink, compression, "compression", 0, "auto", "auto|none|gzip|zstd|lz4",
                "auto: by the path's suffix (.gz .zst .lz4)"),
    OPTION_INT(struct file_sink, roll_rows, "roll_rows", 0, "0", "0", "1000000000000",
               "begin a new file after this number of rows; 0: never"),
    OPTION_BYTES(struct file_sink, roll_bytes, "roll_bytes", 0, "0B", "0B", "1024TiB",
                 "begin a new file when the file has this many bytes before compression; 0: never"),
    OPTION_DURATION(struct file_sink, roll_every, "roll_every", 0, "0s", "0s", "365d",
                    "begin a new file for each span of event time of this length; 0: never"),
    OPTION_BOOL(struct file_sink, overwrite, "overwrite", "false",
                "remove existing files of this path when a new run starts; only regular files that the job "
                "does not read"),
    OPTION_TEXT(struct file_sink, delimiter, "delimiter", 0, "\",\"", "csv: the character between fields"),
    OPTION_BOOL(struct file_sink, has_header, "header", "true",
                "csv: begin with a line that names the columns"),
    OPTION_BOOL(
        struct file_sink, quotes_empty, "quote_empty", "true",
        "csv: write an empty text as `\"\"`, so that readers do not take it for null; false: write nothing"),
    OPTION_ENUM(struct file_sink, times, "times", 0, "rfc3339", "rfc3339|s|ms|us|ns",
                "json, csv, msgpack: how times are written"),
    OPTIONS_END,
};

static bool is_rolled(const struct file_sink *sink)
{
    return sink->roll_rows > 0 || sink->roll_bytes > 0 || sink->roll_every > 0;
}

static bool file_bind(struct sink_bind *bind)
{
    static const enum time_unit units[] = {TIME_UNIT_RFC3339, TIME_UNIT_S, TIME_UNIT_MS, TIME_UNIT_US,
                                           TIME_UNIT_NS};
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
        diag_error(bind->diags, DIAG_OUT_OF_RANGE, bind->span, "`path` is empty");
        return false;
    }
    if (sink->path.data[sink->path.length - 1] == '/') {
        struct diag *d =
            diag_error(bind->diags, DIAG_OUT_OF_RANGE, bind->span, "`path` names a directory, not a file");
        diag_hint(bind->diags, d, "for example `path: \"%.*sout.jsonl\"`", STR_ARGS(sink->path));
        return false;
    }
    char *pattern = names_pattern(sink->path, is_rolled(sink)), *glob = names_glob(pattern, "");
    bool has_no_span = names_has_time(pattern) && sink->roll_every == 0;
    bool is_one_name = names_repeat(pattern) && (sink->roll_rows > 0 || sink->roll_bytes > 0);
    bind->owns = sink->path;
    bind->owns_glob = arena_strdup(bind->arena, glob);
    free(pattern);
    free(glob);
    if (has_no_span) {
        struct diag *d =
            diag_error(bind->diags, DIAG_OPTIONS_CLASH, bind->span,
                       "`{time}` in `path` is the begin of a span of `roll_every`, and this sink "
                       "has no `roll_every`");
        diag_hint(bind->diags, d, "set `roll_every`, for example `roll_every: 1h`, or use `{n}` alone");
        return false;
    }
    if (is_one_name) {
        struct diag *d = diag_error(
            bind->diags, DIAG_OPTIONS_CLASH, bind->span,
            "several files may begin in one span of time: they would have the same name, and each would "
            "replace the file before");
        diag_hint(bind->diags, d, "put `{n}`, the number of the file, into `path` beside `{time}`");
        return false;
    }
    return format_schema_check(sink->format_kind, bind->input, bind->diags, bind->span);
}

/* The columns are part of the shape only where the file declares them once: formats whose rows name their
 * columns may go on with other columns. */
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

bool file_sink_error(struct sink_context *context, const char *path, int error)
{
    const struct file_sink *sink = context->config;
    bool is_full = error == ENOSPC || error == EDQUOT;
    context->error_code = is_full ? DIAG_DISK_FULL : DIAG_OUTPUT_FAILED;
    if (is_full)
        snprintf(context->error, sizeof(context->error),
                 "the disk is full: `%s` has %" PRId64
                 " bytes, all of them whole rows; free some space, then resume",
                 path, sink->output.written);
    else
        snprintf(context->error, sizeof(context->error), "`%s` cannot be written: %s", path, strerror(error));
    return false;
}

bool file_sink_give_name(struct sink_context *context, const char *path)
{
    if (!existing_may_go(context, path))
        return false;
    int error = output_publish(path, context);
    return error == 0 || file_sink_error(context, path, error);
}

static bool open_next(struct sink_context *context, int64_t slot)
{
    struct file_sink *sink = context->config;
    char *path = names_expand(sink->pattern, sink->files, slot);
    void *encoder = sink->format_kind->encoder_new(context->input, &sink->format_config);
    int error =
        output_create(&sink->output, path, sink->format_kind, sink->compression_kind, encoder, context);
    char *part = output_part_name(path);
    bool is_good = error == 0;
    if (error == EEXIST)
        is_good = existing_may_go(context, part) && file_sink_error(context, part, error);
    else if (error != 0)
        is_good = file_sink_error(context, path, error);
    free(part);
    sink->files += is_good;
    sink->slot = slot;
    free(path);
    return is_good;
}

void file_sink_add_pending(struct file_sink *sink, const char *path, uint64_t epoch)
{
    sink->pending = mem_realloc(sink->pending, (sink->pending_count + 1) * sizeof(*sink->pending));
    char *copy = mem_strdup(path);
    sink->pending[sink->pending_count++] = (struct pending){copy, epoch};
}

/* Gives their final names to the pending files covered by a checkpoint up to `epoch`; UINT64_MAX: to all
 * pending files. Returns false with context->error set. */
static bool publish(struct sink_context *context, uint64_t epoch)
{
    struct file_sink *sink = context->config;
    uint32_t kept = 0;
    bool is_good = true;
    for (uint32_t i = 0; i < sink->pending_count; i++) {
        struct pending *pending = &sink->pending[i];
        bool is_due = epoch == UINT64_MAX || (pending->epoch != 0 && pending->epoch <= epoch);
        if (is_due && is_good)
            is_good = file_sink_give_name(context, pending->path);
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
        return file_sink_error(context, sink->output.part, error);
    file_sink_add_pending(sink, sink->output.path, 0);
    output_close(&sink->output);
    return context->has_checkpoints || publish(context, UINT64_MAX);
}

/* --- callbacks --- */

static bool file_open(struct sink_context *context)
{
    struct file_sink *sink = context->config;
    sink->pattern = names_pattern(sink->path, is_rolled(sink));
    sink->is_known = context->is_resumed;
    if (context->is_resumed)
        return true;
    if (!existing_check(context, sink->pattern, sink->overwrite))
        return false;
    char *path = names_expand(sink->pattern, 0, 0);
    int error = names_has_time(sink->pattern) ? 0 : output_try(path);
    if (error != 0) {
        struct diag *d = diag_error(context->diags, DIAG_OUTPUT_FAILED, context->span,
                                    "the output `%s` cannot be written", path);
        diag_errno(context->diags, d, error);
        diag_hint(context->diags, d,
                  "check that the directory can be created and that this user may write there, or "
                  "choose another `path`");
    }
    free(path);
    return error == 0;
}

static bool file_begin(struct sink_context *context)
{
    struct file_sink *sink = context->config;
    if (context->has_checkpoints)
        names_forget_earlier(sink->pattern, context->life);
    if (context->is_resumed)
        return true;
    /* Even a run without rows leaves a file, unless the file's name needs a row's time. */
    return existing_remove(context, sink->pattern, sink->overwrite) &&
           (names_has_time(sink->pattern) || open_next(context, 0));
}

/* Count of rows, at most `left`, that can be encoded into the open file before its limits must be checked
 * again; 0: the sink must begin a new file first. */
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

/* The beginning of the roll_every span that the row's event time falls into. */
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
            is_good = file_sink_error(context, sink->output.part, error);
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

static void file_describe(struct sink_context *context, struct byte_buffer *out)
{
    const struct file_sink *sink = context->config;
    buffer_printf(out, "%" PRId64 " row%s in %" PRId64 " file%s", sink->rows, sink->rows == 1 ? "" : "s",
                  sink->files, sink->files == 1 ? "" : "s");
}

static void file_close(struct sink_context *context)
{
    struct file_sink *sink = context->config;
    /* A run that wrote no bytes leaves no file that would stop the next run. */
    if (sink->output.is_open && sink->output.written == 0 && !sink->is_known && sink_check(context) == 0)
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
    .summary = "rows to files, each row exactly once, even after crashes",
    .example = "sink out = file from features { path: \"out/features-{n}.jsonl.zst\", roll_rows: 1000000 }",
    .details =
        "A file is called NAME.part until it is complete and a checkpoint covers its rows. The bytes of a "
        "file depend only on the rows, not on checkpoints, crashes or the number of workers. An existing "
        "file is overwritten only with `overwrite`.",
    .options = file_options,
    .size = sizeof(struct file_sink),
    .bind = file_bind,
    .shape = file_shape,
    .open = file_open,
    .begin = file_begin,
    .write = file_write,
    .snapshot = file_sink_snapshot,
    .restore = file_sink_restore,
    .published = file_published,
    .finish = file_finish,
    .describe = file_describe,
    .close = file_close,
};
