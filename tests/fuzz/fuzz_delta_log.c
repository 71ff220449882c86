/* Arbitrary bytes as the parts of a segment of the delta log. A segment is made with right digests, so that the fuzzer gets
 * past these: entries are whole, or say a length that is not theirs, or are bytes as they come. The whole ones before the
 * first other part must be read, and nothing else. */
#include "core/buffer.h"
#include "core/delta_log_format.h"
#include "core/os.h"
#include "fuzz.h"

#include <fcntl.h>
#include <unistd.h>

enum { PARTS_MAX = 8, GENERATION = 1 };

static char path_made[] = "/tmp/leat-fuzz-delta-XXXXXX";

static void remove_directory(void)
{
    (void)os_remove_tree(path_made);
}

static const char *directory(void)
{
    static bool is_made;
    if (is_made)
        return path_made;
    must(mkdtemp(path_made) != NULL && atexit(remove_directory) == 0, "a directory can be made");
    is_made = true;
    return path_made;
}

/* Appends an entry of the bytes that says `length`, which may be another; *digest: of the entry before. */
static void put_entry(struct byte_buffer *out, struct str bytes, uint32_t length, uint16_t kind,
                      uint64_t *digest)
{
    struct delta_entry_head head = {.length = length, .number = bytes.length, .kind = kind, .part = 9};
    size_t begin = out->length;
    head.check = delta_entry_check(&head, *digest);
    buffer_append(out, &head, sizeof(head));
    buffer_append(out, bytes.data, bytes.length);
    buffer_append(out, "\0\0\0\0\0\0\0", delta_padded(bytes.length) - bytes.length);
    *digest = XXH3_64bits_withSeed(out->data + begin + DELTA_DIGESTED_FROM,
                                   out->length - begin - DELTA_DIGESTED_FROM, *digest);
    memcpy(out->data + begin, digest, sizeof(*digest));
}

struct expected {
    struct str entries[PARTS_MAX];
    uint32_t count;
    bool is_closed;
};

static void put_segment(struct fuzz_input *input, struct byte_buffer *out, struct expected *expected)
{
    struct delta_segment_head head = {.generation = GENERATION, .segment = 1};
    memcpy(head.magic, DELTA_MAGIC, sizeof(head.magic));
    head.digest = delta_segment_digest(&head);
    uint64_t digest = head.digest;
    buffer_append(out, &head, sizeof(head));
    bool is_good = true;
    while (expected->count < PARTS_MAX && input->at < input->end) {
        uint8_t how = fuzz_byte(input);
        uint32_t length = 0;
        for (int i = 0; i < 4 && how % 4 == 2; i++)
            length = length << 8 | fuzz_byte(input);
        struct str bytes = fuzz_take(input, fuzz_byte(input));
        if (how % 4 < 2) {
            uint16_t kind = how == 255 - 255 % 4 ? DELTA_KIND_CLOSED : how;
            put_entry(out, bytes, (uint32_t)bytes.length, kind, &digest);
            if (is_good && kind == DELTA_KIND_CLOSED)
                expected->is_closed = true;
            is_good &= kind != DELTA_KIND_CLOSED;
            if (is_good) {
                expected->entries[expected->count++] = bytes;
                continue;
            }
        } else if (how % 4 == 2) {
            if (delta_padded(length) == delta_padded(bytes.length))
                length = (uint32_t)bytes.length; /* else it would be a whole entry of another length */
            put_entry(out, bytes, length, how, &digest);
            is_good &= length == bytes.length;
            if (is_good) {
                expected->entries[expected->count++] = bytes;
                continue;
            }
        } else {
            buffer_append(out, bytes.data, bytes.length);
            is_good &= bytes.length == 0;
        }
        free((void *)(uintptr_t)bytes.data);
    }
}

static void check_segment(struct fuzz_input *input)
{
    struct byte_buffer out = {0};
    struct expected expected = {0};
    char path[DELTA_PATH_BYTES];
    put_segment(input, &out, &expected);
    must(delta_segment_path(directory(), GENERATION, 1, path), "a path fits");
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    must(fd >= 0 && os_write_all(fd, out.data, out.length, NULL) == 0, "a file can be written");
    close(fd);
    struct arena arena = {.block_bytes = 256};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct delta_tail *tail = delta_tail_open(directory(), GENERATION, &diags);
    must(tail != NULL, "the log can be opened");
    struct delta_entry entry;
    enum delta_tail_status status;
    uint32_t count = 0;
    while ((status = delta_tail_next(tail, &entry)) == DELTA_ENTRY) {
        must(count < expected.count && str_equal(entry.bytes, expected.entries[count]),
             "an entry is one that was written");
        must(entry.part == 9 && entry.number == entry.bytes.length, "its numbers are its own");
        count++;
    }
    must(count == expected.count, "whole entries are read");
    must((status == DELTA_CLOSED) == expected.is_closed, "a log is closed where it says so");
    must(status != DELTA_NOTHING_YET, "a log that nobody writes has an end");
    delta_tail_close(tail);
    unlink(path);
    for (uint32_t i = 0; i < expected.count; i++)
        free((void *)(uintptr_t)expected.entries[i].data);
    buffer_free(&out);
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    check_segment(&input);
    return 0;
}
