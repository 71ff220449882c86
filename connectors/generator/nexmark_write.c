#include "connectors/generator/nexmark_write.h"

#include "core/mem.h"
#include "core/os.h"
#include "core/replacement.h"

#include <errno.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FLUSH_BYTES = 1 << 20, PROGRESS_EVENTS = 65536 };

/* --- Lines --- */

static inline char *put(char *at, const char *text, size_t length)
{
    memcpy(at, text, length);
    return at + length;
}
#define PUT(at, literal) put(at, literal, sizeof(literal) - 1)

static inline char *put_text(char *at, struct str text)
{
    return put(at, text.data, text.length);
}

static char *put_int(char *at, int64_t value)
{
    char digits[20], *first = digits + sizeof(digits);
    do {
        *--first = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    return put(at, first, (size_t)(digits + sizeof(digits) - first));
}

static char *put_person(char *at, const struct nexmark_event *event)
{
    at = put_int(PUT(at, "{\"type\":\"person\",\"id\":"), event->id);
    at = put_text(PUT(at, ",\"name\":\""), event->name);
    at = put_text(PUT(at, "\",\"email\":\""), event->email);
    at = put_text(PUT(at, "\",\"credit_card\":\""), event->credit_card);
    at = put_text(PUT(at, "\",\"city\":\""), event->city);
    at = put_text(PUT(at, "\",\"state\":\""), event->state);
    return put_int(PUT(at, "\",\"date_time\":"), event->time_ms);
}

static char *put_auction(char *at, const struct nexmark_event *event)
{
    at = put_int(PUT(at, "{\"type\":\"auction\",\"id\":"), event->id);
    at = put_text(PUT(at, ",\"item_name\":\""), event->item_name);
    at = put_text(PUT(at, "\",\"description\":\""), event->description);
    at = put_int(PUT(at, "\",\"initial_bid\":"), event->initial_bid);
    at = put_int(PUT(at, ",\"reserve\":"), event->reserve);
    at = put_int(PUT(at, ",\"date_time\":"), event->time_ms);
    at = put_int(PUT(at, ",\"expires\":"), event->expires_ms);
    at = put_int(PUT(at, ",\"seller\":"), event->seller);
    return put_int(PUT(at, ",\"category\":"), event->category);
}

static char *put_bid(char *at, const struct nexmark_event *event)
{
    at = put_int(PUT(at, "{\"type\":\"bid\",\"auction\":"), event->auction);
    at = put_int(PUT(at, ",\"bidder\":"), event->bidder);
    at = put_int(PUT(at, ",\"price\":"), event->price);
    at = put_text(PUT(at, ",\"channel\":\""), event->channel);
    at = put_text(PUT(at, "\",\"url\":\""), event->url);
    return put_int(PUT(at, "\",\"date_time\":"), event->time_ms);
}

char *nexmark_line(const struct nexmark_event *event, char *at)
{
    at = event->type == NEXMARK_PERSON    ? put_person(at, event)
         : event->type == NEXMARK_AUCTION ? put_auction(at, event)
                                          : put_bid(at, event);
    at = put_text(PUT(at, ",\"extra\":\""), event->extra);
    return PUT(at, "\"}\n");
}

/* --- The file --- */

struct writer {
    const struct nexmark_write_options *options;
    struct diag_list *diags;
    struct replacement file;
    int fd; /* of `file`, or standard output */
    char *buffer, *at;
};

static bool fail(struct writer *writer, const char *what, const char *path, int error)
{
    bool is_full = error == ENOSPC || error == EDQUOT;
    struct diag *diag = diag_error(writer->diags, is_full ? DIAG_DISK_FULL : DIAG_OUTPUT_FAILED,
                                   (struct span){0}, "cannot %s %s", what, path);
    diag_errno(writer->diags, diag, error);
    if (is_full)
        diag_hint(
            writer->diags, diag,
            "an event takes about 284 bytes: choose fewer --events, or an --out on a disk with more room");
    return false;
}

static const char *place(const struct writer *writer)
{
    return strcmp(writer->options->path, "-") == 0 ? "standard output" : writer->options->path;
}

/* Opens the output. A pipe or device is written directly; a file gets its name when it is complete. */
static bool open_output(struct writer *writer)
{
    const char *path = writer->options->path;
    struct stat status;
    bool is_there = strcmp(path, "-") != 0 && stat(path, &status) == 0;
    if (strcmp(path, "-") == 0) {
        writer->fd = STDOUT_FILENO;
        return true;
    }
    if (is_there && S_ISREG(status.st_mode) && !writer->options->is_forced) {
        struct diag *diag =
            diag_error(writer->diags, DIAG_OUTPUT_EXISTS, (struct span){0}, "%s is already there", path);
        diag_hint(writer->diags, diag, "choose another --out, or replace it with --force");
        return false;
    }
    int error = replacement_begin(&writer->file, path);
    writer->fd = writer->file.fd;
    return error == 0 || fail(writer, "write", path, error);
}

static bool flush(struct writer *writer)
{
    int error = os_write_all(writer->fd, writer->buffer, (size_t)(writer->at - writer->buffer), NULL);
    writer->at = writer->buffer;
    return error == 0 || fail(writer, "write", place(writer), error);
}

static bool write_events(struct writer *writer)
{
    const struct nexmark_write_options *options = writer->options;
    struct nexmark_event event;
    for (int64_t i = 0; i < options->count; i++) {
        if (options->on_progress != NULL && i % PROGRESS_EVENTS == 0)
            options->on_progress((uint64_t)i, (uint64_t)options->count);
        if (i / NEXMARK_GROUP % options->parts != options->part)
            continue;
        nexmark_make(&options->events, i, &event);
        writer->at = nexmark_line(&event, writer->at);
        if (writer->at - writer->buffer >= FLUSH_BYTES && !flush(writer))
            return false;
    }
    if (options->on_progress != NULL)
        options->on_progress((uint64_t)options->count, (uint64_t)options->count);
    return flush(writer);
}

static bool finish(struct writer *writer)
{
    int error = writer->fd == STDOUT_FILENO ? 0 : replacement_commit(&writer->file);
    return error == 0 || fail(writer, "write", writer->options->path, error);
}

bool nexmark_write(const struct nexmark_write_options *options, struct diag_list *diags)
{
    leat_assert(options->count >= 0 && options->count <= NEXMARK_EVENTS_MAX && options->events.rate > 0);
    leat_assert(options->parts > 0);
    struct writer writer = {.options = options, .diags = diags, .fd = -1, .file.fd = -1};
    writer.buffer = writer.at = mem_alloc(FLUSH_BYTES + NEXMARK_LINE_BYTES);
    bool is_written = open_output(&writer) && write_events(&writer) && finish(&writer);
    replacement_abandon(&writer.file);
    free(writer.buffer);
    return is_written;
}
