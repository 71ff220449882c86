/* keyed_state DIR [ORDER_LOG]: prints a line for each part of the job with state by key in the newest checkpoint of DIR,
 * "stream kind: 50 entries DIGEST". The node is restored as one instance that has all key groups, and gives them all away
 * (core/operator_state.h): so the entries are those that live at the barrier, whether they lay in memory, in deltas or in
 * databases, and the same entries give the same line, however they were placed. What says nothing of single keys is left
 * out: records of the whole instance; the order of pushing in queues, which differs from instance to instance; stays.
 * ORDER_LOG, of --record-order: prints a line of its entries, "order: 70 entries DIGEST", however checkpoints cut it into segments:
 * without their heads, their first partition entries and their last one. --values: all entries, a line each. */
#include "cli/checkpoint_job.h"
#include "run/inspect.h"
#include "state/members.h"
#include "state/table.h"
#include "state/time_queue.h"

#include "core/mem.h"
#include "core/moved.h"
#include "core/operator_state.h"
#include "core/order_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

struct entry {
    struct key identity; /* of two entries of a queue with the same identity one leaves */
    char tag;
    XXH128_hash_t digest;
};

struct entries {
    struct entry *items;
    size_t count, room;
    bool is_shown;
};

/* head: what stands before the value, without what depends on the placement. */
static void add(struct entries *entries, char tag, struct key identity, struct str head, struct str value)
{
    if (entries->count == entries->room) {
        entries->room = MAX(2 * entries->room, 1024);
        entries->items = mem_realloc(entries->items, entries->room * sizeof(*entries->items));
    }
    XXH64_hash_t seed = XXH3_64bits_withSeed(head.data, head.length, (XXH64_hash_t)tag);
    entries->items[entries->count++] =
        (struct entry){identity, tag, XXH3_128bits_withSeed(value.data, value.length, seed)};
    if (!entries->is_shown)
        return;
    printf("%c ", tag);
    for (size_t i = 0; i < head.length + value.length; i++)
        printf("%02x", (unsigned char)(i < head.length ? head.data[i] : value.data[i - head.length]));
    printf("\n");
}

static void add_table_record(struct entries *entries, struct str record)
{
    struct record_entry entry;
    for (size_t at = sizeof(struct record_head); keyed_next_entry(record, &at, &entry);)
        add(entries, record.data[0], entry.key, (struct str){(const char *)&entry, sizeof(entry)},
            (struct str){record.data + at - entry.bytes, entry.bytes});
}

static void add_queue_record(struct entries *entries, struct str record)
{
    struct queue_record row;
    struct queue_snapshot_head head;
    size_t before = sizeof(head) + sizeof(row);
    leat_assert(record.length >= before);
    memcpy(&row, record.data + sizeof(head), sizeof(row));
    struct key identity = {.low = row.hash, .high = row.sequence ^ (uint64_t)row.time_us << 32};
    row.sequence = row.stay = 0;
    add(entries, record.data[0], identity, (struct str){(const char *)&row, sizeof(row)},
        (struct str){record.data + before, record.length - before});
}

static void add_record(struct entries *entries, const struct operator_kind *kind, struct str record)
{
    const struct state_member *row = kind->state;
    while (row != NULL && row->kind != NULL && row->tag != record.data[0])
        row++;
    if (row != NULL && row->kind == &state_table)
        add_table_record(entries, record);
    else if (row != NULL && row->kind == &state_queue)
        add_queue_record(entries, record);
    else
        add(entries, record.data[0], (struct key){entries->count, 0}, (struct str){"", 0}, record);
}

static int compare(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    if (a->tag != b->tag)
        return a->tag < b->tag ? -1 : 1;
    if (a->identity.low != b->identity.low)
        return a->identity.low < b->identity.low ? -1 : 1;
    return a->identity.high < b->identity.high ? -1 : a->identity.high > b->identity.high;
}

static void print_sum(struct str name, const char *kind, struct entries *entries)
{
    uint64_t low = 0, high = 0, count = 0;
    qsort(entries->items, entries->count, sizeof(*entries->items), compare);
    for (size_t i = 0; i < entries->count; i++) {
        if (i > 0 && compare(&entries->items[i - 1], &entries->items[i]) == 0)
            continue;
        low += entries->items[i].digest.low64;
        high += entries->items[i].digest.high64;
        count++;
    }
    printf("%.*s %s: %" PRIu64 " entries %016" PRIx64 "%016" PRIx64 "\n", STR_ARGS(name), kind, count, high,
           low);
}

static bool print_node(struct inspection *inspection, const struct plan_node *node, bool is_shown)
{
    const struct operator_kind *kind = node->operator_kind;
    struct group_set all = {0};
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        bit_set(all.words, group);
    struct operator_context context = {.lanes = 1, .groups = &all};
    struct byte_buffer given = {0};
    struct entries entries = {.is_shown = is_shown};
    bool is_good = inspection_restore(inspection, node, &context) &&
                   operator_give(kind, &context, context.groups, &given);
    struct str rest = {given.data, given.length}, record;
    for (uint32_t group; moved_next(&rest, &group, &record);)
        if (group != SNAPSHOT_GLOBAL && record.length > 0)
            add_record(&entries, kind, record);
    print_sum(node->name, kind->name, &entries);
    inspection_end(node, &context);
    buffer_free(&given);
    free(entries.items);
    return is_good && rest.length == 0;
}

/* Whether the node keeps state by key that instances can give away. */
static bool is_keyed(const struct plan_node *node)
{
    const struct operator_kind *kind = node->operator_kind;
    return kind != NULL && node->tag == PLAN_OPERATOR && node->bound[0].key_count > 0 &&
           operator_has_state(kind) && operator_can_give(kind) && !kind->keeps_figures_alone;
}

static bool print_state(const char *directory, bool is_shown)
{
    struct checkpoint_job job = {.directory = directory};
    checkpoint_job_init(&job);
    bool is_good = checkpoint_job_open(&job);
    struct inspection *inspection = is_good ? inspection_open(job.plan, job.checkpoint, &job.diags) : NULL;
    for (uint32_t i = 0; inspection != NULL && i < job.plan->nodes_count; i++)
        if (is_keyed(&job.plan->nodes[i]))
            is_good &= print_node(inspection, &job.plan->nodes[i], is_shown);
    is_good &= inspection != NULL && inspection_is_well(inspection);
    diag_print(stderr, &job.diags, NULL, false);
    inspection_close(inspection);
    checkpoint_job_close(&job);
    return is_good;
}

/* --- The order log --- */

/* Adds the entries of a segment; false: it is damaged, stderr says how. */
static bool add_segment(struct str text, XXH3_state_t *digest, uint64_t *count)
{
    struct order_reader reader;
    struct order_entry entry;
    bool is_good = order_open(&reader, text);
    while (is_good && order_next(&reader, &entry)) {
        if (entry.tag == ORDER_PARTITION || entry.tag == ORDER_EPOCH)
            continue;
        uint64_t words[] = {
            reader.micro_batch,     entry.tag, entry.partition, entry.records, (uint64_t)entry.time,
            (uint64_t)entry.offset, entry.load};
        XXH3_128bits_update(digest, words, sizeof(words));
        ++*count;
    }
    if (reader.why != NULL)
        fprintf(stderr, "the order log is damaged: %s\n", reader.why);
    is_good = reader.why == NULL;
    order_close(&reader);
    return is_good;
}

static bool print_order(const char *path)
{
    struct byte_buffer text = {0};
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "cannot open %s\n", path);
        return false;
    }
    char piece[64 << 10];
    for (size_t got; (got = fread(piece, 1, sizeof(piece), file)) > 0;)
        buffer_append(&text, piece, got);
    fclose(file);
    XXH3_state_t *digest = XXH3_createState();
    XXH3_128bits_reset(digest);
    uint64_t count = 0;
    bool is_good = true;
    struct order_head head;
    for (struct str rest = {text.data, text.length}; is_good && rest.length > 0;) {
        const char *why = order_head_read(rest, &head);
        is_good = why == NULL && add_segment(rest, digest, &count);
        size_t bytes = is_good ? MIN((size_t)order_segment_bytes(&head), rest.length) : 0;
        rest = (struct str){rest.data + bytes, rest.length - bytes};
    }
    XXH128_hash_t sum = XXH3_128bits_digest(digest);
    printf("order: %" PRIu64 " entries %016" PRIx64 "%016" PRIx64 "\n", count, sum.high64, sum.low64);
    XXH3_freeState(digest);
    buffer_free(&text);
    return is_good;
}

int main(int argc, char **argv)
{
    bool is_shown = argc > 1 && strcmp(argv[argc - 1], "--values") == 0;
    argc -= is_shown;
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: keyed_state DIR [ORDER_LOG] [--values]\n");
        return 2;
    }
    bool is_good = print_state(argv[1], is_shown);
    return (argc == 2 || print_order(argv[2])) && is_good ? 0 : 1;
}
