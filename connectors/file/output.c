#include "connectors/file/output.h"

#include "connectors/file/names.h"

#include "core/mem.h"
#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <lz4frame.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { FLUSH_BYTES = 256 << 10 };

char *output_part_name(const char *path)
{
    return mem_printf("%s.part", path);
}

static void output_init(struct output *output, const char *path, const struct format_kind *format,
                        enum compression compression, void *encoder)
{
    *output = (struct output){.is_open = true,
                              .fd = -1,
                              .format = format,
                              .compression = compression,
                              .encoder = encoder,
                              .raw = output->raw,
                              .packed = output->packed,
                              .path = mem_strdup(path),
                              .part = output_part_name(path)};
    buffer_clear(&output->raw);
}

/* Gives a file that was made under its name of this life (names_copy) the name `.part`. In a resumed run an existing `.part` is from an
 * earlier life, written after the checkpoint, and goes; in a new run none is expected, and an existing one is kept (EEXIST).
 *
 * A process may be replaced between the question (sink_check) and its step. Its successor removes the files of earlier lives
 * (names_forget_earlier) before it makes its own, so a step that comes too late finds no file to rename. */
static int name_part(const char *copy, const char *part, const struct sink_context *context)
{
    bool has_earlier = context->is_resumed || context->replaces_parts;
    int error = sink_check(context);
    if (error == 0 && has_earlier && claims_refuse(context->claims, part, NULL) != NULL)
        error = EEXIST;
    return error != 0 ? error : (has_earlier ? os_rename : os_rename_new)(copy, part, "sink.create");
}

static int create_part(struct output *output, const struct sink_context *context)
{
    char *own = context->has_checkpoints ? names_copy(output->path, context->life) : NULL;
    const char *name = own != NULL ? own : output->part;
    if (own != NULL)
        (void)unlink(own); /* of a run before this one, whose lives had the same numbers */
    output->fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND | O_CLOEXEC, 0666);
    int error = output->fd < 0 ? errno : own != NULL ? name_part(own, output->part, context) : 0;
    if (error != 0 && own != NULL)
        (void)unlink(own);
    free(own);
    return error;
}

int output_try(const char *path)
{
    char *directory = os_directory(path);
    int error = os_mkdirs(directory);
    if (error == 0 && access(directory, W_OK | X_OK) != 0)
        error = errno;
    free(directory);
    return error;
}

int output_create(struct output *output, const char *path, const struct format_kind *format,
                  enum compression compression, void *encoder, const struct sink_context *context)
{
    output_init(output, path, format, compression, encoder);
    char *directory = os_directory(path);
    int error = sink_check(context);
    if (error == 0)
        error = os_mkdirs(directory);
    free(directory);
    if (error == 0)
        error = create_part(output, context);
    if (error == 0 && context->has_checkpoints) /* durable before a checkpoint refers to it */
        error = os_fsync_parent(path, "sink.fsync");
    if (error != 0) {
        output_close(output);
        return error;
    }
    if (format->encode_header != NULL)
        format->encode_header(encoder, &output->raw);
    output->raw_bytes = (int64_t)output->raw.length;
    return 0;
}

/* Copies the first `bytes` bytes of `from` to the new file `to`. Returns 0 or an errno. */
static int copy_start(const char *from, const char *to, int64_t bytes)
{
    int in = open(from, O_RDONLY | O_CLOEXEC), out = -1;
    int error = in < 0 ? errno : failpoint("sink.truncate");
    if (error == 0 && (out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666)) < 0)
        error = errno;
    if (error == 0)
        error = os_copy_bytes(in, out, (uint64_t)bytes, NULL);
    if (error == 0)
        error = os_fsync(out, "sink.fsync");
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return error;
}

int output_reopen(struct output *output, const char *path, int64_t written, const struct format_kind *format,
                  enum compression compression, void *encoder, const struct sink_context *context)
{
    output_init(output, path, format, compression, encoder);
    output->written = written;
    /* A later life may have published the file; its final name stays until this life publishes it again. */
    const char *from = os_file_bytes(output->part) >= written ? output->part : output->path;
    char *copy = names_copy(path, context->life);
    names_forget_earlier(path, context->life);
    int error = os_file_bytes(from) < written ? ENODATA : copy_start(from, copy, written);
    if (error == 0)
        error = sink_check(context);
    if (error == 0)
        error = os_rename(copy, output->part, "sink.reopen");
    if (error != 0)
        (void)unlink(copy);
    else
        error = os_fsync_parent(path, "sink.fsync");
    free(copy);
    if (error == 0) {
        output->fd = open(output->part, O_WRONLY | O_APPEND | O_CLOEXEC);
        error = output->fd < 0 ? errno : 0;
    }
    if (error != 0)
        output_close(output);
    return error;
}

bool output_is_plain(const struct output *output)
{
    return output->compression == COMPRESSION_NONE;
}

void output_encode(struct output *output, const struct batch *batch, uint32_t first, uint32_t count)
{
    size_t before = output->raw.length;
    output->format->encode(output->encoder, batch, first, count, &output->raw);
    output->raw_bytes += (int64_t)(output->raw.length - before);
    output->rows += count;
    output->block_rows += count;
}

/* --- blocks --- */

static void pack_gzip(const struct byte_buffer *raw, struct byte_buffer *packed)
{
    z_stream stream = {0};
    leat_assert(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) ==
                Z_OK);
    size_t bound = deflateBound(&stream, raw->length);
    stream.next_out = (Bytef *)buffer_reserve(packed, bound);
    stream.avail_out = (uInt)bound;
    stream.next_in = (Bytef *)raw->data;
    stream.avail_in = (uInt)raw->length;
    leat_assert(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    packed->length = stream.total_out;
    deflateEnd(&stream);
}

static void pack_zstd(const struct byte_buffer *raw, struct byte_buffer *packed)
{
    ZSTD_CCtx *context = ZSTD_createCCtx();
    leat_assert(context != NULL);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    size_t bound = ZSTD_compressBound(raw->length);
    size_t length = ZSTD_compress2(context, buffer_reserve(packed, bound), bound, raw->data, raw->length);
    leat_assert(!ZSTD_isError(length));
    packed->length = length;
    ZSTD_freeCCtx(context);
}

static void pack_lz4(const struct byte_buffer *raw, struct byte_buffer *packed)
{
    LZ4F_preferences_t preferences = {
        .frameInfo = {.contentChecksumFlag = LZ4F_contentChecksumEnabled, .contentSize = raw->length}};
    size_t bound = LZ4F_compressFrameBound(raw->length, &preferences);
    size_t length =
        LZ4F_compressFrame(buffer_reserve(packed, bound), bound, raw->data, raw->length, &preferences);
    leat_assert(!LZ4F_isError(length));
    packed->length = length;
}

/* Writes all of `raw`, as one block if the file is compressed. Returns 0 or an errno. */
static int write_raw(struct output *output)
{
    const struct byte_buffer *bytes = &output->raw;
    if (bytes->length == 0)
        return 0;
    if (output->compression != COMPRESSION_NONE) {
        buffer_clear(&output->packed);
        (output->compression == COMPRESSION_GZIP   ? pack_gzip
         : output->compression == COMPRESSION_ZSTD ? pack_zstd
                                                   : pack_lz4)(bytes, &output->packed);
        bytes = &output->packed;
    }
    int error = os_write_all(output->fd, bytes->data, bytes->length, "sink.write");
    if (error != 0) {
        /* Cuts off partly written bytes, so that the file ends with a whole row. If that fails too, a torn
         * row stays, which a resume cuts off. */
        int ignored LEAT_UNUSED = ftruncate(output->fd, output->written);
        return error;
    }
    output->written += (int64_t)bytes->length;
    output->block_rows = 0;
    buffer_clear(&output->raw);
    return 0;
}

int output_flush(struct output *output)
{
    bool is_due = output_is_plain(output)
                      ? output->raw.length >= FLUSH_BYTES
                      : output->block_rows >= OUTPUT_BLOCK_ROWS || output->raw.length >= OUTPUT_BLOCK_BYTES;
    return is_due ? write_raw(output) : 0;
}

int output_flush_all(struct output *output)
{
    int error = output_flush(output);
    return error == 0 && output_is_plain(output) ? write_raw(output) : error;
}

int output_end(struct output *output)
{
    int error = output_flush(output);
    if (error != 0)
        return error;
    if (!output->has_end && output->format->encode_end != NULL)
        output->format->encode_end(output->encoder, &output->raw);
    output->has_end = true;
    error = write_raw(output);
    if (error == 0)
        error = os_fsync(output->fd, "sink.fsync");
    return error;
}

void output_close(struct output *output)
{
    if (output->is_open && output->encoder != NULL)
        output->format->encoder_free(output->encoder);
    if (output->is_open && output->fd >= 0)
        close(output->fd);
    free(output->path);
    free(output->part);
    buffer_free(&output->raw);
    buffer_free(&output->packed);
    *output = (struct output){0};
}

int output_publish(const char *path, const struct sink_context *context)
{
    char *part = output_part_name(path);
    int error = sink_check(context);
    if (error == 0)
        error = (context->is_resumed ? os_rename : os_rename_new)(part, path, "sink.rename");
    free(part);
    if (error == ENOENT && context->is_resumed && os_file_bytes(path) >= 0)
        error = 0; /* an earlier life has renamed it */
    return error == 0 ? os_fsync_parent(path, "sink.fsync") : error;
}
