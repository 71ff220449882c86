/* Source `console`: records from standard input, which cannot be read twice, so a job with checkpoints
 * refuses it. */
#include "core/connector.h"
#include "formats/account.h"
#include "formats/formats.h"

#include "core/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

enum { BUFFER_BYTES = SOURCE_BATCH_BYTES + SOURCE_RECORD_BYTES_MAX + (64 << 10) };

struct console_source {
    int format;
    struct str delimiter;
    bool has_header, trims;

    const struct format_kind *format_kind;
    struct format_config format_config;
    char *buffer; /* bytes that were read and are in no batch yet */
    size_t filled;
    struct str header;
    bool has_read_header, has_ended, is_failed, skips_line;
    uint64_t record;
    int64_t offset, line, bytes_read;
    struct byte_account account;
};

static const struct option console_options[] = {
    OPTION_ENUM(struct console_source, format, "format", 0, "json", "json|csv|msgpack",
                "format of the records"),
    OPTION_TEXT(struct console_source, delimiter, "delimiter", 0, "\",\"",
                "csv: the character between fields"),
    OPTION_BOOL(struct console_source, has_header, "header", "true", "csv: the first line names the columns"),
    OPTION_BOOL(
        struct console_source, trims, "trim", "false",
        "csv: ignore spaces and tabs around fields and column names, and accept numbers that begin with +"),
    OPTIONS_END,
};

static bool console_bind(struct source_bind *bind)
{
    struct console_source *console = bind->config;
    if (bind->declared == NULL) {
        struct diag *d =
            diag_error(bind->diags, DIAG_OPTION_MISSING, bind->span, "a console source needs a `schema:`");
        diag_hint(bind->diags, d, "for example `schema: { user_id: int, ts: time(ms) }`");
        return false;
    }
    if (!format_delimiter_check(console->delimiter, bind->diags, bind->span))
        return false;
    bind->schema = bind->declared;
    bind->is_bounded = true;
    bind->is_replayable = false;
    console->format_kind = formats_all[console->format];
    console->format_config = (struct format_config){.delimiter = console->delimiter.data[0],
                                                    .has_no_header = !console->has_header,
                                                    .trims = console->trims};
    return format_schema_check(console->format_kind, bind->declared, bind->diags, bind->span);
}

static bool console_open(struct source *source)
{
    struct console_source *console = source->config;
    console->buffer = mem_alloc(BUFFER_BYTES);
    console->line = 1;
    source->partitions_count = 1;
    return true;
}

static const char *console_partition_name(struct source *source LEAT_UNUSED, uint32_t partition LEAT_UNUSED)
{
    return "standard input";
}

static bool report(struct source *source, enum diag_code code, const char *what, int error)
{
    struct console_source *console = source->config;
    struct diag *d = diag_error(source->diags, code, (struct span){0, 0}, "standard input %s", what);
    if (error != 0)
        diag_errno(source->diags, d, error);
    diag_at(source->diags, d, "standard input", console->offset, -1);
    diag_hint(source->diags, d,
              "the records before this place were read; correct the input and run the job again");
    console->is_failed = true;
    return false;
}

/* Reads the bytes that are available, without waiting. Returns false on an error. */
static bool read_more(struct source *source)
{
    struct console_source *console = source->config;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    while (!console->has_ended && console->filled < BUFFER_BYTES && poll(&input, 1, 0) > 0) {
        ssize_t got = read(STDIN_FILENO, console->buffer + console->filled, BUFFER_BYTES - console->filled);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return report(source, DIAG_FILE_UNREADABLE, "cannot be read", errno);
        console->has_ended = got == 0;
        console->filled += (size_t)got;
        console->bytes_read += got;
    }
    return true;
}

static void drop(struct console_source *console, size_t bytes)
{
    console->filled -= bytes;
    console->offset += (int64_t)bytes;
    memmove(console->buffer, console->buffer + bytes, console->filled);
}

/* Reads the header, if the format has one. Returns false if it is not complete yet, or after an error
 * (is_failed). */
static bool read_header(struct source *source)
{
    struct console_source *console = source->config;
    const struct format_kind *format = console->format_kind;
    const char *damage = "has a header that does not end";
    size_t used = 0;
    enum format_header_status status =
        format->header == NULL ? HEADER_READ
                               : format->header(&console->format_config, console->buffer, console->filled,
                                                console->has_ended, &used, &damage);
    if (status == HEADER_BAD ||
        (status == HEADER_MORE && (console->has_ended || console->filled == BUFFER_BYTES)))
        return report(source, DIAG_FILE_DAMAGED, damage, 0);
    if (status == HEADER_MORE)
        return false;
    console->header = arena_str(source->arena, (struct str){console->buffer, used});
    for (size_t i = 0; i < used; i++)
        console->line += console->buffer[i] == '\n';
    bool is_empty = console->has_ended && console->filled == 0;
    if (format->header_check != NULL && !is_empty &&
        !format->header_check(source->schema, &console->format_config, console->header, source->diags)) {
        console->is_failed = true;
        return false;
    }
    console->account.before = (int64_t)used;
    drop(console, used);
    console->has_read_header = true;
    return true;
}

/* Drops the rest of a line that was too long. Returns false if the line continues beyond the buffer. */
static bool skip_line(struct console_source *console)
{
    const char *newline = memchr(console->buffer, '\n', console->filled);
    size_t rest = newline == NULL ? console->filled : (size_t)(newline - console->buffer) + 1;
    console->account.dropped += (int64_t)rest;
    drop(console, rest);
    console->line += newline != NULL;
    console->skips_line = newline == NULL;
    return newline != NULL;
}

/* Fills in the batch from bytes at the beginning of the buffer. */
static void fill_batch(const struct console_source *console, const struct format_split *split,
                       struct raw_batch *raw)
{
    raw->data = arena_alloc(&raw->arena, split->used + RAW_PADDING);
    memcpy(raw->data, console->buffer, split->used);
    raw->data_bytes = split->used;
    raw->count = split->count;
    raw->position =
        (struct source_position){.b = console->offset, .record = console->record, .line = console->line};
    raw->next = (struct source_position){.b = console->offset + (int64_t)split->used,
                                         .record = console->record + split->count,
                                         .line = console->line + split->lines};
    raw->path = "standard input";
    raw->header = console->header;
    raw->first_offset = console->offset;
    raw->first_line = console->format_kind->has_lines ? console->line : -1;
    for (uint32_t i = 0; i < raw->records[0].offset && raw->first_line > 0; i++)
        raw->first_line += raw->data[i] == '\n';
}

/* The status to return when all bytes read so far are in batches. */
static enum read_status at_end(const struct console_source *console)
{
    if (!console->has_ended)
        return READ_LATER;
    account_check(&console->account, console->bytes_read);
    return READ_END;
}

static enum read_status cut_batch(struct source *source, struct raw_batch *raw)
{
    struct console_source *console = source->config;
    raw->records = arena_alloc(&raw->arena, BATCH_ROWS * sizeof(*raw->records));
    struct format_split split = {.config = &console->format_config,
                                 .data = console->buffer,
                                 .bytes = console->filled,
                                 .is_last = console->has_ended,
                                 .max = BATCH_ROWS,
                                 .records = raw->records};
    console->format_kind->split(&split);
    if (split.count > 0)
        fill_batch(console, &split, raw);
    account_batch(&console->account, console->format_kind, console->buffer, split.used, raw->records,
                  split.count);
    drop(console, split.used);
    console->line += split.lines;
    console->record += split.count;
    console->skips_line = split.is_cut;
    if (split.count > 0)
        return READ_BATCH;
    if (split.damage != NULL || (console->has_ended && console->filled > 0)) {
        report(source, DIAG_FILE_DAMAGED, split.damage != NULL ? split.damage : "ends inside a record", 0);
        return READ_ERROR;
    }
    return at_end(console);
}

static enum read_status console_read(struct source *source, uint32_t partition LEAT_UNUSED,
                                     struct raw_batch *raw)
{
    struct console_source *console = source->config;
    if (console->is_failed || !read_more(source))
        return READ_ERROR;
    if (!console->has_read_header && !read_header(source))
        return console->is_failed ? READ_ERROR : READ_LATER;
    if (console->skips_line && !skip_line(console))
        return at_end(console);
    return cut_batch(source, raw);
}

static void *console_decoder_new(struct source *source)
{
    struct console_source *console = source->config;
    return format_decoder_new(console->format_kind, source->schema, &console->format_config);
}

static void console_decode(struct source *source LEAT_UNUSED, void *decoder, struct raw_batch *raw,
                           struct decode_output *output)
{
    format_decode(decoder, raw, output);
}

static void console_close(struct source *source)
{
    struct console_source *console = source->config;
    free(console->buffer);
    console->buffer = NULL;
}

const struct source_kind source_console = {
    .name = "console",
    .summary = "records from standard input",
    .example =
        "source typed = console { format: json, schema: { user_id: int, ts: time(ms) }, event_time: ts }",
    .details = "Standard input cannot be read twice, so a job with this source cannot use checkpoints.",
    .options = console_options,
    .size = sizeof(struct console_source),
    .bind = console_bind,
    .open = console_open,
    .partition_name = console_partition_name,
    .read = console_read,
    .decode = console_decode,
    .decoder_new = console_decoder_new,
    .decoder_free = format_decoder_free,
    .close = console_close,
};
