/* The state of a sink `file`, shared by what writes (sink.c) and what checkpoints hold (sink_checkpoint.c).
 * Private to connectors/file. */
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
    int64_t files; /* begun so far */
    int64_t slot;  /* roll_every: of the open file */
    struct pending *pending;
    uint32_t pending_count;
    uint32_t resume_row; /* of the batch that could not be written */
    int64_t rows;        /* of all files */
    bool is_known;       /* to a checkpoint */
};

/* context->error and its code, from an errno. False. */
bool file_sink_error(struct sink_context *context, const char *path, int error);
void file_sink_add_pending(struct file_sink *sink, const char *path, uint64_t epoch);
/* A complete file's `.part` becomes the final one. In a resumed run that may be there, from a later life that
 * came further. False: context->error. */
bool file_sink_give_name(struct sink_context *context, const char *path);

bool file_sink_snapshot(struct sink_context *context, struct snapshot_writer *writer);
bool file_sink_restore(struct sink_context *context, struct snapshot_reader *reader);

#endif
