#include "connectors/file/input.h"

#include "core/mem.h"
#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <lz4frame.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { WINDOW_BYTES = 1 << 18 };

/* Suffix and first bytes of each compression. */
static const struct {
    const char *suffix;
    unsigned char magic[4];
    size_t magic_bytes;
} compressions[] = {
    [COMPRESSION_GZIP] = {".gz", {0x1f, 0x8b}, 2},
    [COMPRESSION_ZSTD] = {".zst", {0x28, 0xb5, 0x2f, 0xfd}, 4},
    [COMPRESSION_LZ4] = {".lz4", {0x04, 0x22, 0x4d, 0x18}, 4},
};

static bool ends_with(struct str text, const char *suffix)
{
    size_t length = strlen(suffix);
    return text.length >= length && memcmp(text.data + text.length - length, suffix, length) == 0;
}

enum compression compression_by_suffix(struct str path)
{
    if (ends_with(path, ".part"))
        path.length -= strlen(".part");
    for (int i = COMPRESSION_GZIP; i <= COMPRESSION_LZ4; i++)
        if (ends_with(path, compressions[i].suffix))
            return (enum compression)i;
    return COMPRESSION_NONE;
}

static bool fail(struct file_input *input, enum diag_code error, const char *reason, int error_number)
{
    input->error = error;
    input->reason = reason;
    input->error_number = error_number;
    return false;
}

static bool open_stream(struct file_input *input)
{
    if (input->compression == COMPRESSION_NONE)
        return true;
    input->window = mem_alloc(WINDOW_BYTES);
    if (input->compression == COMPRESSION_GZIP) {
        z_stream *stream = mem_calloc(1, sizeof(*stream));
        input->stream = stream;
        return inflateInit2(stream, 15 + 16) == Z_OK;
    }
    if (input->compression == COMPRESSION_ZSTD)
        return (input->stream = ZSTD_createDStream()) != NULL;
    LZ4F_dctx *context = NULL;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)))
        return false;
    input->stream = context;
    return true;
}

bool input_open(struct file_input *input, const char *path, int64_t size)
{
    struct stat info;
    /* O_NONBLOCK: opening a pipe would wait until somebody writes to it. */
    *input = (struct file_input){.fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    if (input->fd < 0)
        return fail(input, DIAG_FILE_UNREADABLE, "cannot be opened", errno);
    if (fstat(input->fd, &info) != 0)
        return fail(input, DIAG_FILE_UNREADABLE, "cannot be read", errno);
    if (!S_ISREG(info.st_mode))
        return fail(input, DIAG_FILE_UNREADABLE,
                    "is not a regular file: a pipe, device or directory cannot be read again", 0);
    input->size = size < 0 ? info.st_size : size;
    if (info.st_size < input->size)
        return fail(input, DIAG_FILE_CHANGED, "is shorter than it was when the job began", 0);
    unsigned char magic[4] = {0};
    size_t got;
    int error = os_pread_all(input->fd, magic, MIN(sizeof(magic), (size_t)input->size), 0, &got);
    if (error != 0)
        return fail(input, DIAG_FILE_UNREADABLE, "cannot be read", error);
    for (int i = COMPRESSION_GZIP; i <= COMPRESSION_LZ4; i++)
        if (got >= compressions[i].magic_bytes &&
            memcmp(magic, compressions[i].magic, compressions[i].magic_bytes) == 0)
            input->compression = (enum compression)i;
    if (got > 0 && input->compression == COMPRESSION_NONE &&
        compression_by_suffix(str_from(path)) != COMPRESSION_NONE)
        return fail(input, DIAG_FILE_DAMAGED, "is not compressed, although its suffix says so", 0);
    posix_fadvise(input->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    if (!open_stream(input))
        return fail(input, DIAG_FILE_UNREADABLE, "cannot be decompressed: no memory", 0);
    return true;
}

void input_close(struct file_input *input)
{
    if (input->compression == COMPRESSION_GZIP && input->stream != NULL)
        inflateEnd(input->stream);
    if (input->compression == COMPRESSION_GZIP)
        free(input->stream);
    if (input->compression == COMPRESSION_ZSTD)
        ZSTD_freeDStream(input->stream);
    if (input->compression == COMPRESSION_LZ4)
        LZ4F_freeDecompressionContext(input->stream);
    free(input->window);
    if (input->fd > 0)
        close(input->fd);
    *input = (struct file_input){0};
}

static bool read_plain(struct file_input *input, char *data, size_t bytes, size_t *got)
{
    bytes = MIN(bytes, (size_t)(input->size - input->disk_offset));
    int error = os_pread_all(input->fd, data, bytes, (uint64_t)input->disk_offset, got);
    if (error != 0)
        return fail(input, DIAG_FILE_UNREADABLE, "cannot be read", error);
    if (*got < bytes && *got == 0)
        return fail(input, DIAG_FILE_CHANGED, "became shorter while it was read", 0);
    input->disk_offset += (int64_t)*got;
    input->offset += (int64_t)*got;
    return true;
}

/* Reads more compressed bytes into the empty window. Returns false only on errors. */
static bool fill_window(struct file_input *input)
{
    size_t want = MIN(WINDOW_BYTES, (size_t)(input->size - input->disk_offset));
    input->window_begin = 0;
    int error =
        os_pread_all(input->fd, input->window, want, (uint64_t)input->disk_offset, &input->window_end);
    if (error != 0)
        return fail(input, DIAG_FILE_UNREADABLE, "cannot be read", error);
    if (input->window_end < want)
        return fail(input, DIAG_FILE_CHANGED, "became shorter while it was read", 0);
    return true;
}

/* One step per library: consumes `taken` bytes of the window and writes `given` bytes, at most `room`, to
 * `to`. Sets is_frame_open. Returns false where the bytes are damaged. */
static bool step_gzip(struct file_input *input, size_t *taken, char *to, size_t room, size_t *given)
{
    z_stream *stream = input->stream;
    stream->next_in = input->window + input->window_begin;
    stream->avail_in = (uInt)(input->window_end - input->window_begin);
    stream->next_out = (Bytef *)to;
    stream->avail_out = (uInt)MIN(room, UINT32_MAX / 2);
    uInt in_before = stream->avail_in, out_before = stream->avail_out;
    if (!input->is_frame_open && inflateReset(stream) != Z_OK)
        return false;
    int result = inflate(stream, Z_NO_FLUSH);
    *taken = in_before - stream->avail_in;
    *given = out_before - stream->avail_out;
    input->is_frame_open = result != Z_STREAM_END;
    return result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR;
}

static bool step_zstd(struct file_input *input, size_t *taken, char *to, size_t room, size_t *given)
{
    ZSTD_inBuffer in = {input->window + input->window_begin, input->window_end - input->window_begin, 0};
    ZSTD_outBuffer out = {to, room, 0};
    size_t result = ZSTD_decompressStream(input->stream, &out, &in);
    *taken = in.pos;
    *given = out.pos;
    input->is_frame_open = result != 0;
    return !ZSTD_isError(result);
}

static bool step_lz4(struct file_input *input, size_t *taken, char *to, size_t room, size_t *given)
{
    *taken = input->window_end - input->window_begin;
    *given = room;
    size_t result =
        LZ4F_decompress(input->stream, to, given, input->window + input->window_begin, taken, NULL);
    input->is_frame_open = result != 0;
    return !LZ4F_isError(result);
}

/* Skips zeros behind the last gzip frame, up to the file's end. Returns false if other bytes follow them. */
static bool skip_padding(struct file_input *input)
{
    while (input->window_begin < input->window_end && input->window[input->window_begin] == 0) {
        input->window_begin++;
        input->disk_offset++;
        input->padding++;
    }
    return input->window_begin == input->window_end ||
           fail(input, DIAG_FILE_DAMAGED,
                "is damaged: the zeros behind its last gzip frame are followed by other bytes", 0);
}

static bool read_compressed(struct file_input *input, char *data, size_t bytes, size_t *got)
{
    for (*got = 0; *got == 0;) {
        if (input->is_broken)
            return fail(input, DIAG_FILE_DAMAGED, "is damaged", 0);
        if (input->window_begin == input->window_end && input->disk_offset < input->size &&
            !fill_window(input))
            return false;
        bool is_out = input->window_begin == input->window_end;
        if (is_out && !input->is_frame_open)
            return true;
        bool is_behind = input->compression == COMPRESSION_GZIP && !input->is_frame_open;
        if (is_behind && (input->padding > 0 || input->window[input->window_begin] == 0)) {
            if (!skip_padding(input))
                return false;
            continue;
        }
        size_t taken = 0;
        bool is_good = input->compression == COMPRESSION_GZIP   ? step_gzip(input, &taken, data, bytes, got)
                       : input->compression == COMPRESSION_ZSTD ? step_zstd(input, &taken, data, bytes, got)
                                                                : step_lz4(input, &taken, data, bytes, got);
        input->window_begin += taken;
        input->disk_offset += (int64_t)taken;
        input->is_broken = !is_good || (taken == 0 && *got == 0 && !is_out);
        if (is_out && *got == 0 && input->is_frame_open)
            return fail(input, DIAG_FILE_DAMAGED, "is truncated: it ends inside a compressed frame", 0);
    }
    input->offset += (int64_t)*got;
    return true;
}

bool input_read(struct file_input *input, char *data, size_t bytes, size_t *got)
{
    leat_assert(bytes > 0);
    *got = 0;
    return input->compression == COMPRESSION_NONE ? read_plain(input, data, bytes, got)
                                                  : read_compressed(input, data, bytes, got);
}

bool input_seek(struct file_input *input, int64_t offset)
{
    if (input->compression == COMPRESSION_NONE) {
        if (offset > input->size)
            return fail(input, DIAG_FILE_CHANGED, "is shorter than when it was read before", 0);
        input->disk_offset = input->offset = offset;
        return true;
    }
    leat_assert(offset >= input->offset);
    char *scratch = mem_alloc(WINDOW_BYTES);
    bool is_good = true;
    while (is_good && input->offset < offset) {
        size_t got = 0;
        is_good = input_read(input, scratch, MIN(WINDOW_BYTES, (size_t)(offset - input->offset)), &got);
        if (is_good && got == 0)
            is_good = fail(input, DIAG_FILE_CHANGED, "is shorter than when it was read before", 0);
    }
    free(scratch);
    return is_good;
}
