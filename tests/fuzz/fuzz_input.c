/* Arbitrary bytes as a file that is compressed or not; the first byte says how, and how the file is read.
 * Read in pieces of any size, or after a seek, the file has the same bytes and the same end, good or bad.
 * Some inputs are compressed here and then damaged in places, so that the fuzzer gets deeper; if they are not
 * damaged, the bytes must come back. */
#include "connectors/file/input.h"
#include "core/buffer.h"
#include "fuzz.h"

#include <fcntl.h>
#include <lz4frame.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { BYTES_MAX = 1 << 18, ROOM = 1 << 16 };

static int file = -1;
static char path[64];

static void set_file(struct str bytes)
{
    if (file < 0) {
        file = memfd_create("fuzz", MFD_CLOEXEC);
        must(file >= 0, "a file in memory");
        snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    }
    must(ftruncate(file, 0) == 0 && pwrite(file, bytes.data, bytes.length, 0) == (ssize_t)bytes.length,
         "a file in memory is written");
}

/* Reads about BYTES_MAX bytes at most from offset `from` on, in pieces of at most `piece`, and appends them
 * to `out`. Returns false after an error. */
static bool read_all(size_t piece, int64_t from, struct byte_buffer *out)
{
    struct file_input input = {0};
    bool is_good = input_open(&input, path, -1);
    must(is_good, "a file opens");
    size_t got = 1;
    is_good = from == 0 || input_seek(&input, from);
    while (is_good && got > 0 && out->length < BYTES_MAX) {
        is_good = input_read(&input, buffer_reserve(out, piece), piece, &got);
        must(got <= piece, "no more comes than there is room for");
        if (is_good)
            out->length += got;
    }
    must(is_good || input.reason != NULL || input.error_number != 0, "what cannot be read has a reason");
    input_close(&input);
    return is_good;
}

static struct str compressed(enum compression compression, struct str bytes, char *room)
{
    size_t length = 0;
    if (compression == COMPRESSION_GZIP) {
        z_stream z = {0};
        must(deflateInit2(&z, 1, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY) == Z_OK, "zlib begins");
        z.next_in = (unsigned char *)(uintptr_t)bytes.data;
        z.avail_in = (unsigned)bytes.length;
        z.next_out = (unsigned char *)room;
        z.avail_out = ROOM;
        must(deflate(&z, Z_FINISH) == Z_STREAM_END, "zlib ends");
        length = z.total_out;
        deflateEnd(&z);
    } else if (compression == COMPRESSION_ZSTD) {
        length = ZSTD_compress(room, ROOM, bytes.data, bytes.length, 1);
        must(!ZSTD_isError(length), "zstd");
    } else {
        length = LZ4F_compressFrame(room, ROOM, bytes.data, bytes.length, NULL);
        must(!LZ4F_isError(length), "lz4");
    }
    return (struct str){room, length};
}

/* Makes a file in `room`: the rest of the input, *plain, after the magic bytes of the compression; or *plain
 * compressed, with up to three bytes damaged. */
static struct str make_file(struct fuzz_input *input, enum compression compression, uint8_t how, char *room,
                            struct str *plain)
{
    static const struct str magic[] = {STR(""), STR("\x1f\x8b"), STR("\x28\xb5\x2f\xfd"),
                                       STR("\x04\x22\x4d\x18")};
    bool is_made = (how & 4) != 0 && compression != COMPRESSION_NONE;
    uint32_t damages = is_made ? how >> 3 & 3 : 0, places[3];
    uint8_t flips[3];
    for (uint32_t i = 0; i < damages; i++) {
        places[i] = fuzz_below(input, ROOM);
        flips[i] = fuzz_byte(input);
    }
    *plain = fuzz_take(input, MIN((size_t)(input->end - input->at), (size_t)ROOM / 2));
    if (!is_made) {
        size_t length = magic[compression].length;
        memcpy(room, magic[compression].data, length);
        memcpy(room + length, plain->data, plain->length);
        return (struct str){room, length + plain->length};
    }
    struct str bytes = compressed(compression, *plain, room);
    for (uint32_t i = 0; i < damages; i++)
        room[places[i] % bytes.length] ^= (char)flips[i];
    return bytes;
}

static bool is_same(const struct byte_buffer *a, struct str b)
{
    return a->length == b.length && (b.length == 0 || memcmp(a->data, b.data, b.length) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    static char room[ROOM];
    uint8_t how = fuzz_byte(&input);
    enum compression compression = (enum compression)(how & 3);
    uint32_t seek = fuzz_below(&input, 1 << 12);
    struct str plain;
    struct str bytes = make_file(&input, compression, how, room, &plain);
    set_file(bytes);
    struct byte_buffer whole = {0}, pieces = {0}, behind = {0};
    bool is_good = read_all(1 << 16, 0, &whole);
    bool is_long = whole.length >= BYTES_MAX;
    /* libzstd, when streaming, does not check the size in a frame's head if the last block is empty. */
    must(read_all(1 + (how >> 5) * 3, 0, &pieces) == is_good || is_long || compression == COMPRESSION_ZSTD,
         "it ends the same in pieces");
    size_t common = MIN(whole.length, pieces.length);
    must(!is_good || is_long || whole.length == pieces.length, "as many bytes in pieces");
    must(common == 0 || memcmp(whole.data, pieces.data, common) == 0, "the same bytes in pieces");
    if ((how & 4) != 0 && (how & 0x18) == 0 && compression != COMPRESSION_NONE)
        must(is_good && is_same(&whole, plain), "what was compressed comes back");
    if (is_good && !is_long && seek <= whole.length) {
        must(read_all(1000, seek, &behind), "it ends the same behind a seek");
        must(is_same(&behind, (struct str){whole.data + seek, whole.length - seek}),
             "the same bytes behind a seek");
    }
    buffer_free(&whole);
    buffer_free(&pieces);
    buffer_free(&behind);
    free((char *)(uintptr_t)plain.data);
    return 0;
}
