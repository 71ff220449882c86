/* The state of a sink `file`, for writing (sink.c) and checkpoints (sink_checkpoint.c). Private to
 * connectors/file. */
#ifndef LEAT_CONNECTORS_FILE_SINK_H
#define LEAT_CONNECTORS_FILE_SINK_H

#include "connectors/file/existing.h"
#include "connectors/file/output.h"
#include "formats/formats.h"

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
    int64_t files; /* files begun so far */
    int64_t slot;  /* roll_every: begin of the open file's span of event time */
    struct pending *pending;
    uint32_t pending_count;
    uint32_t resume_row; /* next row of the batch that could not be written completely */
    int64_t rows;        /* rows of all files */
    bool is_known;       /* a checkpoint refers to this sink's files */
};

/* Sets context->error and its code from the errno `error`. Returns false. */
bool file_sink_error(struct sink_context *context, const char *path, int error);
/* Adds a complete file. path: copied. epoch: of the first checkpoint that covers it; 0: none yet. */
void file_sink_add_pending(struct file_sink *sink, const char *path, uint64_t epoch);
/* Renames a complete file's `.part` to its final name. In a resumed run a file may already have that name,
 * from a later life that got further. Returns false with context->error set. */
bool file_sink_give_name(struct sink_context *context, const char *path);

/* As sink_kind.snapshot and restore. */
bool file_sink_snapshot(struct sink_context *context, struct snapshot_writer *writer);
bool file_sink_restore(struct sink_context *context, struct snapshot_reader *reader);

#endif
