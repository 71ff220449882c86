/* Writes one output file: rows -> encoded -> compressed -> written. Private to connectors/file. One thread at
 * a time.
 *
 * Compressed files consist of blocks of OUTPUT_BLOCK_ROWS rows (fewer where their bytes exceed
 * OUTPUT_BLOCK_BYTES), each a compressed frame. The bytes of a file depend on its rows alone. */
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
    struct byte_buffer raw; /* encoded bytes not yet written; of a compressed file, the open block */
    struct byte_buffer packed;
    uint32_t block_rows;
    int64_t rows;
    int64_t raw_bytes; /* bytes encoded so far */
    int64_t written;   /* bytes on disk: whole rows; of a compressed file, whole blocks */
    char *path;        /* the final name */
    char *part;        /* the name until the file is published */
};

/* `path` with `.part` behind it; malloc'd. */
char *output_part_name(const char *path);
/* Opens a zeroed or closed output as a new file under its `.part` name, with the header encoded. Removes a
 * `.part` that an earlier life of the run left; any other existing file is EEXIST. If the job has
 * checkpoints, makes the name durable. Takes ownership of the encoder. context: the sink's, for sink_check
 * before each step that other processes can see. Returns 0 or an errno. */
int output_create(struct output *output, const char *path, const struct format_kind *format,
                  enum compression compression, void *encoder, const struct sink_context *context);
/* Opens a file of an earlier life again: copies the first `written` bytes of what exists under either name.
 * Takes ownership of the encoder. Returns 0 or an errno. */
int output_reopen(struct output *output, const char *path, int64_t written, const struct format_kind *format,
                  enum compression compression, void *encoder, const struct sink_context *context);
/* Whether a file named `path` can be created; makes its directory. Returns 0 or an errno. */
int output_try(const char *path);
/* Whether the file is uncompressed: rows may be encoded without a call of output_flush after each. */
bool output_is_plain(const struct output *output);
void output_encode(struct output *output, const struct batch *batch, uint32_t first, uint32_t count);
/* Writes the encoded bytes if a block is complete, or, of a plain file, if there are enough. Returns 0 or an
 * errno; after an error the file has its old contents, and the call may be repeated. */
int output_flush(struct output *output);
/* Writes all bytes that can be written without ending a block. Returns 0 or an errno. */
int output_flush_all(struct output *output);
/* Ends the file: all bytes are written, synced and the file closed; it keeps its `.part` name. Returns 0 or
 * an errno. */
int output_end(struct output *output);
/* Closes without writing; accepts a zeroed output. */
void output_close(struct output *output);

/* Renames `.part` to the final name `path` and makes the directory durable. EEXIST where a file has that
 * name, except in a resumed run: that file is from a later life, which got further. Returns 0 or an errno. */
int output_publish(const char *path, const struct sink_context *context);

#endif
