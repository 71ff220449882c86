/* Arbitrary bytes as a cut of a table (learners/tables/cut.h), taken by a table that has rows already. Most inputs get the
 * right magic and bytes of a row, and half of them counts that fit their length. A cut that is taken has each of its rows in the
 * table, and its last copy of it, with the numbers of the table's rows adding up; one that is refused does no harm. */
#include "fuzz.h"
#include "learners/tables/cut.h"

enum { KEYS = 40, SECTIONS = 4, WORD = sizeof(float), PAYLOAD = 4 * WORD, ROW_HEAD = 16 };
enum { READ_FIRST = WORD, READ_AT = 2 * WORD, READ_BYTES = WORD }; /* where predictions do not read all */

static void init_row(void *argument LEAT_UNUSED, uint64_t key LEAT_UNUSED, void *payload)
{
    memset(payload, 0, PAYLOAD);
}

/* A cut of the table as it is, with one row changed: its head is a right one. */
static struct byte_buffer head_of(struct table *table)
{
    struct byte_buffer cut = {0};
    table_cut_note(table, true, table->epoch);
    table_cut(table, table->epoch, &cut);
    table_cut_note(table, false, table->epoch);
    return cut;
}

/* Gives the bytes the head's first two words and, unless keeps_counts, counts that fit. */
static void set_head(char *bytes, size_t length, const struct byte_buffer *right, size_t row_bytes,
                     bool keeps_counts)
{
    size_t head = right->length, left = length - head;
    memcpy(bytes, right->data, 2 * sizeof(uint64_t));
    if (keeps_counts)
        return;
    uint64_t removed = (uint8_t)bytes[2 * sizeof(uint64_t)] % 4;
    removed = MIN(removed, left / sizeof(uint64_t));
    left -= removed * sizeof(uint64_t);
    uint64_t counts[SECTIONS] = {removed, left / row_bytes, 0, 0};
    memcpy(bytes + head - sizeof(counts), counts, sizeof(counts));
}

static void check(struct table *table, const unsigned char *rows, uint64_t count, size_t row_bytes)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t key, later = 0;
        memcpy(&key, rows + i * row_bytes, sizeof(key));
        for (uint64_t k = i + 1; k < count && later != key; k++)
            memcpy(&later, rows + k * row_bytes, sizeof(later));
        struct table_row *row = table_find(table, key);
        must(row != NULL, "a row of the cut is there");
        const unsigned char *from = rows + i * row_bytes,
                            *payload = (const unsigned char *)table_payload(row);
        bool is_all = row_bytes == ROW_HEAD + PAYLOAD;
        size_t first = is_all ? PAYLOAD : READ_FIRST;
        must(later == key ||
                 (memcmp(row, from, ROW_HEAD) == 0 && memcmp(payload, from + ROW_HEAD, first) == 0 &&
                  (is_all || memcmp(payload + READ_AT, from + ROW_HEAD + first, READ_BYTES) == 0)),
             "as the cut has it");
    }
    size_t sorted;
    free(table_sorted(table, &sorted));
    must(sorted == table->stats.rows, "rows add up");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    uint8_t how = fuzz_byte(&input);
    struct table_options options = {.payload_bytes = PAYLOAD,
                                    .read_first = how & 64 ? READ_FIRST : 0,
                                    .read_at = how & 64 ? READ_AT : 0,
                                    .read_bytes = how & 64 ? READ_BYTES : 0,
                                    .align = 8,
                                    .is_inline = how & 1,
                                    .admit_after = how & 2 ? 2 : 1,
                                    .sketch_bytes = 4096,
                                    .rows_max = how & 4 ? 1000 : 0,
                                    .seed = 7,
                                    .init = init_row};
    struct table table;
    table_init(&table, &options);
    uint64_t keys[KEYS];
    uint32_t seen[KEYS] = {0}, steps[KEYS];
    struct table_row *rows[KEYS];
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = i / 2 + 1;
        steps[i] = 1;
    }
    table_resolve(&table, keys, seen, steps, NULL, KEYS, rows);
    struct byte_buffer right = head_of(&table);
    struct str bytes = fuzz_take(&input, size);
    uint64_t row_bytes;
    memcpy(&row_bytes, right.data + sizeof(uint64_t), sizeof(row_bytes));
    bool is_right = how & 24 && bytes.length >= right.length;
    if (is_right)
        set_head((char *)(uintptr_t)bytes.data, bytes.length, &right, (size_t)row_bytes, how & 32);
    bool is_taken = table_take_cut(&table, bytes.data, bytes.length, TABLE_STEP_NONE);
    if (is_taken && is_right) {
        uint64_t counts[SECTIONS];
        memcpy(counts, bytes.data + right.length - sizeof(counts), sizeof(counts));
        check(&table, (const unsigned char *)bytes.data + right.length + counts[0] * sizeof(uint64_t),
              counts[1], row_bytes);
    }
    buffer_free(&right);
    free((char *)(uintptr_t)bytes.data);
    table_free(&table);
    return 0;
}
