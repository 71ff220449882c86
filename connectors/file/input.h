/* Bytes of one file, decompressed. For connectors. One thread at a time. */
#ifndef LEAT_CONNECTORS_FILE_INPUT_H
#define LEAT_CONNECTORS_FILE_INPUT_H

#include "core/diag.h"

enum compression { COMPRESSION_NONE, COMPRESSION_GZIP, COMPRESSION_ZSTD, COMPRESSION_LZ4 };

/* ".gz" -> COMPRESSION_GZIP ...; a trailing ".part" is ignored. */
enum compression compression_by_suffix(struct str path);

struct file_input {
    int fd;
    enum compression compression;
    void *stream; /* z_stream, ZSTD_DStream, LZ4F_dctx */
    unsigned char *window;
    size_t window_begin, window_end;
    int64_t size;        /* bytes on disk that belong to the input: what there was when it was opened */
    int64_t disk_offset; /* bytes on disk taken so far */
    int64_t offset;      /* bytes given so far, decompressed */
    bool is_frame_open;  /* inside a compressed frame, so the file must not end here */
    int64_t padding;     /* gzip: zeros behind the last frame, as on tapes; they are taken and mean nothing */
    bool is_broken;      /* the decompressor met damage; its state means nothing any more */
    /* Set where input_read fails. */
    enum diag_code error;
    const char *reason; /* static */
    int error_number;   /* errno, or 0 */
};

/* Zeroed or closed -> open. size: how much of the file counts, -1: all. False: error, reason, error_number.
 */
bool input_open(struct file_input *input, const char *path, int64_t size);
/* Some bytes, at least one: *got; 0 at the end. False: damage or an I/O error at input->offset; what came
 * before it was given by earlier calls. */
bool input_read(struct file_input *input, char *data, size_t bytes, size_t *got);
/* The next byte to be read is number `offset`. Only forward in a compressed file. False as input_read, or
 * where the file is shorter. */
bool input_seek(struct file_input *input, int64_t offset);
/* Tolerates a zeroed one. */
void input_close(struct file_input *input);

#endif
