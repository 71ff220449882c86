/* Arbitrary records of a sink's outbox in a checkpoint: restoring must not crash, and an outbox that is
 * restored is whole: it can be taken in parts of any size, each record once, and progress of a topic is
 * accepted only if it fits. The first byte says how much is taken at once, the second is the progress. Then
 * follow records, each begun by a byte that chooses: an epoch with a chunk of records, right but for one
 * fault at most, or any bytes. */
#include "connectors/kafka/outbox.h"
#include "fuzz.h"

enum { PARTS = 4, RECORDS_MAX = 32, PAYLOAD_MAX = 20 };

/* The layouts of outbox.c and chunk.c. */
struct epoch_bytes {
    uint64_t type, epoch, first, next, base, records;
    uint64_t since, partitions; /* missing in checkpoints of format 9 */
};
struct chunk_bytes {
    uint32_t type, bytes, records, padding;
};
struct record_bytes {
    uint32_t key, value, headers;
    int32_t partition;
    uint64_t origin;
    int64_t time_ms;
    uint32_t origin_partition, unused;
};

static bool restore(struct outbox *outbox, const void *bytes, size_t length)
{
    char *copy = malloc(MAX(length, (size_t)1)); /* of exact size, for the sanitizer */
    must(copy != NULL, "there is memory");
    if (length > 0)
        memcpy(copy, bytes, length);
    bool is_good = outbox_restore(outbox, (struct str){copy, length});
    free(copy);
    return is_good;
}

static void put_record(struct byte_buffer *out, struct fuzz_input *input, bool is_harmed)
{
    struct record_bytes record = {
        .key = fuzz_byte(input) % PAYLOAD_MAX, .value = fuzz_byte(input) % PAYLOAD_MAX, .partition = -1};
    uint32_t bytes = record.key + record.value;
    if (record.key == 0)
        record.key = UINT32_MAX;
    if (is_harmed)
        record.headers = fuzz_below(input, UINT16_MAX) << (fuzz_byte(input) & 16);
    buffer_append(out, &record, sizeof(record));
    memset(buffer_reserve(out, PAYLOAD_MAX * 2 + 8), 'x', PAYLOAD_MAX * 2 + 8);
    out->length += (bytes + 7) / 8 * 8;
}

/* Restores an epoch that begins at micro-batch *next, and its chunk; moves *next to the epoch's end. */
static bool restore_epoch(struct outbox *outbox, struct fuzz_input *input, uint64_t *next)
{
    struct byte_buffer chunk = {0};
    uint32_t records = 1 + fuzz_byte(input) % 5, harmed = fuzz_byte(input);
    struct chunk_bytes head = {.type = OUTBOX_RECORD_CHUNK, .records = records};
    buffer_append(&chunk, &head, sizeof(head));
    for (uint32_t i = 0; i < records; i++)
        put_record(&chunk, input, i == harmed);
    struct epoch_bytes epoch = {OUTBOX_RECORD_EPOCH,
                                *next + 1,
                                *next,
                                *next + 1 + fuzz_byte(input) % 3,
                                harmed == 9 ? fuzz_byte(input) : 0,
                                harmed == 10 ? fuzz_byte(input) : records,
                                harmed == 12 ? fuzz_byte(input) : *next,
                                3};
    size_t epoch_bytes = harmed & 32 ? offsetof(struct epoch_bytes, since) : sizeof(epoch);
    *next = epoch.next;
    head.bytes = (uint32_t)(chunk.length - sizeof(head));
    memcpy(chunk.data, &head, sizeof(head));
    size_t piece = harmed == 11 ? fuzz_below(input, (uint32_t)chunk.length) : chunk.length;
    bool is_good = restore(outbox, &epoch, epoch_bytes) && restore(outbox, chunk.data, piece);
    if (is_good && piece < chunk.length) {
        /* The rest of the chunk in a second record: the type byte overwrites a byte that was restored. */
        chunk.data[piece - 1] = OUTBOX_RECORD_MORE;
        is_good = restore(outbox, chunk.data + piece - 1, chunk.length - piece + 1);
    }
    buffer_free(&chunk);
    return is_good;
}

static uint64_t print(const struct outbox_part *part, struct byte_buffer *out)
{
    struct chunk_cursor cursor = part->begin;
    for (uint64_t i = part->from; i < part->to; i++) {
        struct kafka_record record = chunk_next(&cursor);
        struct str headers = record.headers, name, value;
        if (record.key.length > 0)
            buffer_append(out, record.key.data, record.key.length);
        if (record.value.length > 0)
            buffer_append(out, record.value.data, record.value.length);
        while (record_take_header(&headers, &name, &value))
            buffer_append(out, name.data, name.length);
    }
    return part->to - part->from;
}

/* Takes everything from the outbox, `at_once` bytes a turn. skipped: some records may count
 * as sent already. */
static void take_all(struct outbox *outbox, uint64_t at_once, bool skipped)
{
    struct outbox_part parts[PARTS];
    struct byte_buffer out = {0};
    uint64_t records = 0, restored = outbox_figures(outbox).records;
    for (uint32_t count; (count = outbox_take(outbox, at_once, parts, PARTS)) > 0;) {
        for (uint32_t i = 0; i < count; i++) {
            must(parts[i].from < parts[i].to, "a part has a record");
            records += print(&parts[i], &out);
        }
        struct progress_part last = outbox_part_progress(&parts[count - 1]);
        must(last.to <= last.total && last.first < last.next, "a part lies in its epoch");
        outbox_sent(outbox, parts, count);
    }
    must(skipped ? records <= restored : records == restored, "each record is taken once");
    must(outbox_is_sent(outbox), "all is taken");
    buffer_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    struct outbox outbox;
    _Atomic bool is_full = false;
    struct outbox_room room;
    outbox_room_init(&room, 1 << 20, &is_full, NULL, NULL);
    outbox_init(&outbox, &room, 0);
    uint64_t at_once = 1 + fuzz_byte(&input) * UINT64_C(3), next = 0;
    uint8_t said = fuzz_byte(&input);
    bool is_good = true;
    for (uint32_t i = 0; is_good && i < RECORDS_MAX && input.at < input.end; i++) {
        uint8_t what = fuzz_byte(&input);
        struct str bytes = what & 1 ? fuzz_take(&input, what >> 1) : (struct str){NULL, 0};
        is_good =
            what & 1 ? restore(&outbox, bytes.data, bytes.length) : restore_epoch(&outbox, &input, &next);
        free((char *)(uintptr_t)bytes.data);
    }
    if (is_good && outbox_restored(&outbox, true)) {
        struct progress_part last = {.first = said & 7,
                                     .next = (said & 7) + 1 + (said >> 3 & 1),
                                     .to = 1 + (said >> 4 & 3),
                                     .total = 1 + (said >> 4 & 3) + (said >> 6)};
        if (said == 0 || outbox_skip(&outbox, &last) == NULL)
            take_all(&outbox, at_once, said != 0);
    }
    outbox_free(&outbox);
    outbox_room_free(&room);
    return 0;
}
