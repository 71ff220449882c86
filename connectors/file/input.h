/* Reads the bytes of one file, decompressed. For all connectors. One thread at a time. */
#ifndef LEAT_CONNECTORS_FILE_INPUT_H
#define LEAT_CONNECTORS_FILE_INPUT_H

#include "core/diag.h"

enum compression { COMPRESSION_NONE, COMPRESSION_GZIP, COMPRESSION_ZSTD, COMPRESSION_LZ4 };

/* The compression by a path's suffix: ".gz" -> COMPRESSION_GZIP ...; a trailing ".part" is ignored. */
enum compression compression_by_suffix(struct str path);

struct file_input {
    int fd;
    enum compression compression;
    void *stream; /* z_stream, ZSTD_DStream, LZ4F_dctx */
    unsigned char *window;
    size_t window_begin, window_end;
    int64_t size;        /* bytes on disk to read: the caller's limit, or the file's size at opening */
    int64_t disk_offset; /* bytes on disk consumed so far */
    int64_t offset;      /* decompressed bytes returned so far */
    bool is_frame_open;  /* reading is inside a compressed frame; the file must not end here */
    int64_t padding;     /* gzip: zero bytes behind the last frame, as tapes add them; skipped */
    bool is_broken;      /* the decompressor found damage; its state is useless from then on */
    /* Set when input_read fails. */
    enum diag_code error;
    const char *reason; /* static text */
    int error_number;   /* errno, or 0 */
};

/* Opens a zeroed or closed input. size: bytes of the file to read; -1: all. Returns false with error, reason
 * and error_number set. */
bool input_open(struct file_input *input, const char *path, int64_t size);
/* Reads at least one byte and at most `bytes` into `data`. got: bytes read; 0 at the end. Returns false on
 * damage or an I/O error at input->offset; earlier calls returned all bytes before that place. */
bool input_read(struct file_input *input, char *data, size_t bytes, size_t *got);
/* Moves to the decompressed offset `offset`, which a compressed file allows only forward. Returns false as
 * input_read does, and where the file is shorter. */
bool input_seek(struct file_input *input, int64_t offset);
/* Accepts a zeroed input. */
void input_close(struct file_input *input);

#endif
