/* One output file: rows -> encoded -> compressed -> written. Private to connectors/file. One thread at a
 * time.
 *
 * Compressed files consist of blocks of BLOCK_ROWS rows (fewer where their bytes exceed BLOCK_BYTES), each a
 * frame of its own. Whatever a file holds depends on its rows alone. */
#ifndef LEAT_CONNECTORS_FILE_OUTPUT_H
#define LEAT_CONNECTORS_FILE_OUTPUT_H

#include "connectors/file/input.h"

#include "core/connector.h"

enum { OUTPUT_BLOCK_ROWS = 4096, OUTPUT_BLOCK_BYTES = 4 << 20 };

struct output {
    bool is_open;
    bool has_end; /* encode_end was called */
    int fd;
    const struct format_kind *format;
    enum compression compression;
    void *encoder;
    struct byte_buffer raw; /* encoded, not yet written; compressed: the open block */
    struct byte_buffer packed;
    uint32_t block_rows;
    int64_t rows;
    int64_t raw_bytes; /* encoded so far */
    int64_t written;   /* bytes on disk, all whole */
    char *path;        /* the final name */
    char *part;        /* the name while it is open */
};

/* NAME.part; malloc'd. */
char *output_part_name(const char *path);
/* Zeroed or closed -> open, empty, with the header encoded: a new file under its `.part` name; what an
 * earlier life of the run left there goes, nothing else does (EEXIST). With checkpoints the name is durable.
 * Takes over the encoder. context: of the sink, asked before each step that others can see (sink_check).
 * Returns 0 or an errno. */
int output_create(struct output *output, const char *path, const struct format_kind *format,
                  enum compression compression, void *encoder, const struct sink_context *context);
/* Opens a file again at `written` bytes: cuts a copy of what is there under either name. Takes over the
 * encoder. */
int output_reopen(struct output *output, const char *path, int64_t written, const struct format_kind *format,
                  enum compression compression, void *encoder, const struct sink_context *context);
/* Whether a file can be made under that name: makes its directory. Returns 0 or an errno. */
int output_try(const char *path);
/* Whether rows may be encoded without asking output_flush after each. */
bool output_is_plain(const struct output *output);
void output_encode(struct output *output, const struct batch *batch, uint32_t first, uint32_t count);
/* Writes what is due. Returns 0 or an errno, after which the file holds what it held before, and the call may
 * be repeated. */
int output_flush(struct output *output);
/* Writes everything that can be written without ending a block. */
int output_flush_all(struct output *output);
/* Ends the file: everything is written and on disk, and the file closed; it keeps its `.part` name. */
int output_end(struct output *output);
/* Tolerates a zeroed one; writes nothing. */
void output_close(struct output *output);

/* `.part` -> the final name, the directory made durable. EEXIST where something has that name, but in a
 * resumed run: that is of a later life, which came further. */
int output_publish(const char *path, const struct sink_context *context);

#endif
