/* Arbitrary bytes where followers read the delta log. The first byte says what the others are: the columns of a
 * batch (odd), or the parts of a segment. A segment is made with right digests, so that the fuzzer gets past
 * these: entries are whole, or say a length that is not theirs, or are bytes as they come. The whole ones before
 * the first other part must be read, and nothing else. A batch that is read must be the same once written and
 * read. */
#include "core/batch_codec.h"
#include "core/delta_log_format.h"
#include "core/os.h"
#include "fuzz.h"

#include <fcntl.h>
#include <unistd.h>

enum { PARTS_MAX = 8, GENERATION = 1 };

/* --- A segment --- */

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

/* --- Columns of a batch --- */

static struct field record_fields[] = {{.name = {"a", 1}, .type = {.tag = TYPE_INT}},
                                       {.name = {"b", 1}, .type = {.tag = TYPE_TEXT}}};
static const struct schema record = {.fields = record_fields, .count = 2};
static const struct type type_bool = {.tag = TYPE_BOOL};
static const struct type type_record = {.tag = TYPE_RECORD, .fields = &record};
static const struct type type_bools = {.tag = TYPE_LIST, .element = &type_bool};
static struct field fields[] = {
    {.name = {"i", 1}, .type = {.tag = TYPE_INT}},
    {.name = {"t", 1}, .type = {.tag = TYPE_TEXT}},
    {.name = {"o", 1}, .type = {.tag = TYPE_BOOL}},
    {.name = {"r", 1}, .type = {.tag = TYPE_LIST, .element = &type_record}},
    {.name = {"n", 1}, .type = {.tag = TYPE_LIST, .element = &type_bools}},
};
static const struct schema schema = {.fields = fields, .count = ARRAY_COUNT(fields)};

static void check_column(const struct column *a, const struct column *b, uint32_t row_a, uint32_t row_b)
{
    must(a->tag == b->tag && column_is_valid(a, row_a) == column_is_valid(b, row_b), "nulls are the same");
    if (a->tag == TYPE_TEXT)
        must(str_equal(column_text(a, row_a), column_text(b, row_b)), "texts are the same");
    else if (a->tag == TYPE_BOOL)
        must(a->bools[row_a] == b->bools[row_b] && a->bools[row_a] <= 1, "bools are the same");
    else if (a->tag != TYPE_LIST)
        must(a->ints[row_a] == b->ints[row_b], "numbers are the same");
    if (a->tag != TYPE_LIST)
        return;
    struct list_ref list = a->lists[row_a], other = b->lists[row_b];
    must(list.length == other.length, "lists are as long");
    must(list.length == 0 || a->children_count == b->children_count, "lists have the same children");
    for (uint32_t k = 0; k < list.length; k++)
        for (uint32_t i = 0; i < a->children_count; i++)
            check_column(&a->children[i], &b->children[i], list.offset + k, other.offset + k);
}

static void check_batch(struct fuzz_input *input)
{
    uint8_t mask = fuzz_byte(input);
    bool columns[ARRAY_COUNT(fields)];
    for (uint32_t i = 0; i < ARRAY_COUNT(fields); i++)
        columns[i] = mask >> i & 1;
    struct str bytes = fuzz_take(input, SIZE_MAX);
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = batch_read_columns(pool, &schema, columns, bytes);
    free((void *)(uintptr_t)bytes.data);
    if (batch != NULL) {
        struct byte_buffer out = {0};
        must(batch->rows <= BATCH_ROWS && batch->selected == batch->rows, "a batch has its rows");
        batch_write_columns(batch, columns, &out);
        struct batch *again = batch_read_columns(pool, &schema, columns, (struct str){out.data, out.length});
        must(again != NULL && again->rows == batch->rows, "what was written is read");
        for (uint32_t i = 0; i < ARRAY_COUNT(fields); i++)
            for (uint32_t row = 0; row < batch->rows; row++) {
                must(columns[i] || !column_is_valid(&batch->columns[i], row), "other columns are null");
                check_column(&batch->columns[i], &again->columns[i], row, row);
            }
        batch_release(again);
        batch_release(batch);
        buffer_free(&out);
    }
    batch_pool_free(pool);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    if (fuzz_byte(&input) & 1)
        check_batch(&input);
    else
        check_segment(&input);
    return 0;
}
