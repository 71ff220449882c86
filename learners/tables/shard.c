/* Giving a shard of a table away and taking it; shard.h tells the rules. */
#include "learners/tables/shard.h"
#include "learners/tables/cold.h"
#include "learners/tables/inline.h"

#include "core/mem.h"

enum { SHARD_BUCKETS_MIN = 8 };
static const uint64_t SHARD_MAGIC = UINT64_C(0x31647261687374); /* "tshard1" */

/* A given shard: this head, then the items of each section in this order. */
enum section {
    SECTION_COLD,    /* stored rows, by rising key */
    SECTION_ROWS,    /* rows in memory: header with `step`, payload */
    SECTION_REMOVED, /* keys removed since the last barrier */
    SECTION_CLOSING, /* keys that the giver's open snapshot lists as removed */
    SECTION_COUNTS,  /* struct given_block */
    SECTIONS
};
struct shard_head {
    uint64_t magic, seed, payload_bytes, rows_max, sketch_width;
    int64_t expire_after_us, watermark_us, halved_at_us;
    uint32_t admit_after, epoch, shards, shard;
    uint64_t counts[SECTIONS]; /* items; what stands before must be equal for giver and taker */
};

_Static_assert(offsetof(struct shard_head, counts) == 8 * sizeof(uint64_t) + 4 * sizeof(uint32_t), "no gaps");

/* A block of the sketch and the epoch of its last change. */
struct given_block {
    uint64_t epoch;
    struct sketch_block block;
};

uint32_t table_shards_of(uint64_t sketch_bytes, uint64_t rows_max)
{
    uint64_t buckets = rows_max / TABLE_BUCKET_ROWS + (rows_max % TABLE_BUCKET_ROWS > 0);
    uint32_t shards = TABLE_SHARDS_MAX;
    while (shards > 1 && ((sketch_bytes > 0 && sketch_bytes / SKETCH_BLOCK < shards) ||
                          (rows_max > 0 && buckets / SHARD_BUCKETS_MIN < shards)))
        shards /= 2;
    return shards;
}

static struct shard_head head_of(const struct table *t, uint32_t shard)
{
    return (struct shard_head){.magic = SHARD_MAGIC,
                               .seed = t->options.seed,
                               .payload_bytes = t->options.payload_bytes,
                               .rows_max = t->options.rows_max,
                               .sketch_width = t->sketch.width,
                               .expire_after_us = t->options.expire_after_us,
                               .watermark_us = t->watermark_us,
                               .halved_at_us = t->halved_at_us,
                               .admit_after = t->options.admit_after,
                               .epoch = t->epoch,
                               .shards = MAX(t->options.shards, 1U),
                               .shard = shard};
}

static uint64_t load_u64(const unsigned char *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof(value));
    return value;
}

static size_t item_bytes(const struct table *t, enum section section)
{
    return section == SECTION_ROWS     ? TABLE_ROW_HEADER + t->options.payload_bytes
           : section == SECTION_COLD   ? table_stored_bytes(t)
           : section == SECTION_COUNTS ? sizeof(struct given_block)
                                       : sizeof(uint64_t);
}

/* The blocks of a shard's counts follow each other. */
static size_t shard_blocks(const struct table *t)
{
    return sketch_blocks(&t->sketch) / MAX(t->options.shards, 1U);
}

/* The first hash of a shard, or 2^64: the shards' ranges of hashes follow each other. */
static __uint128_t shard_begin(const struct table *t, uint32_t shard)
{
    uint64_t shards = MAX(t->options.shards, 1U);
    if (t->buckets == 0)
        return ((__uint128_t)shard << 64) / shards;
    __uint128_t bucket = ((__uint128_t)shard * t->buckets + shards - 1) / shards;
    return ((bucket << 64) + t->buckets - 1) / t->buckets;
}

/* Appends the rows in memory, as items of SECTION_ROWS, from the pages of the shard's range of hashes;
 * returns how many. */
static uint64_t copy_rows(const struct table *t, uint32_t shard, struct byte_buffer *out)
{
    __uint128_t begin = shard_begin(t, shard), end = shard_begin(t, shard + 1);
    if (begin == end)
        return 0; /* fewer buckets than shards */
    size_t first = (size_t)(begin >> (64 - t->depth)), last = (size_t)((end - 1) >> (64 - t->depth));
    uint64_t count = 0;
    for (size_t d = first; d <= last; d++) {
        if (d > first && t->directory[d] == t->directory[d - 1])
            continue;
        for (size_t i = 0; i < TABLE_PAGE_SLOTS; i++) {
            const uint64_t *slot = table_slot_at(t, t->directory[d], i);
            if (*slot == 0 || table_shard(t, *slot) != shard)
                continue;
            buffer_append(out, table_slot_row(t, slot), item_bytes(t, SECTION_ROWS));
            count++;
        }
    }
    return count;
}

static uint64_t give_rows(struct table *t, uint32_t shard, struct byte_buffer *out)
{
    size_t at = out->length;
    uint64_t count = copy_rows(t, shard, out);
    for (uint64_t i = 0; i < count; i++, at += item_bytes(t, SECTION_ROWS)) {
        uint64_t key = load_u64((const unsigned char *)out->data + at);
        table_remove(t, key, table_hash(t, key));
    }
    return count;
}

static uint64_t give_counts(struct table *t, uint32_t shard, struct byte_buffer *out)
{
    const struct sketch *s = &t->sketch;
    uint64_t count = 0;
    for (size_t i = 0, number = shard * shard_blocks(t); i < shard_blocks(t); i++, number++) {
        struct given_block given = {.epoch = s->block_epochs[number], .block.number = number};
        if (given.epoch == 0)
            continue; /* all counts are zero */
        memcpy(given.block.counts, s->counts + number * SKETCH_BLOCK, SKETCH_BLOCK);
        buffer_append(out, &given, sizeof(given));
        sketch_replace(&t->sketch, &(struct sketch_block){.number = number}, 0);
        count++;
    }
    return count;
}

bool table_give_shard(struct table *t, uint32_t shard, struct byte_buffer *out)
{
    struct shard_head head = head_of(t, shard);
    size_t at = out->length;
    leat_assert(shard < head.shards && head.shards <= TABLE_SHARDS_MAX && t->cut == NULL);
    buffer_append(out, &head, sizeof(head));
    bool lists_removed = t->lists_removed;
    t->lists_removed = false; /* the rows live on in another table */
    bool is_good = t->cold == NULL || table_cold_give(t, shard, out, &head.counts[SECTION_COLD]);
    head.counts[SECTION_ROWS] = give_rows(t, shard, out);
    t->lists_removed = lists_removed;
    head.counts[SECTION_REMOVED] = table_keys_give(t, &t->removed, shard, out);
    head.counts[SECTION_CLOSING] = table_snapshot_give_removed(t, shard, out);
    head.counts[SECTION_COUNTS] = give_counts(t, shard, out);
    memcpy(out->data + at, &head, sizeof(head));
    table_begin(t); /* nobody points at the given rows */
    return is_good;
}

/* Whether an item can belong to the shard. */
static bool can_take(const struct table *t, const struct shard_head *head, enum section section,
                     const unsigned char *item)
{
    if (section == SECTION_COUNTS) {
        struct given_block given;
        memcpy(&given, item, sizeof(given));
        return given.epoch > 0 && given.epoch <= t->epoch && shard_blocks(t) > 0 &&
               given.block.number / shard_blocks(t) == head->shard;
    }
    uint64_t key = load_u64(item);
    uint32_t epoch = 0;
    if (section == SECTION_ROWS || section == SECTION_COLD)
        memcpy(&epoch, item + offsetof(struct table_row, epoch), sizeof(epoch));
    return key != 0 && table_shard(t, key) == head->shard && epoch <= t->epoch &&
           (section != SECTION_COLD || t->cold != NULL);
}

/* Whether no bucket gets more rows than it may have, and the table has no rows of the shard yet. */
static bool has_room(struct table *t, uint32_t shard, const unsigned char *rows, uint64_t count)
{
    struct byte_buffer own = {0};
    bool fits = copy_rows(t, shard, &own) == 0;
    buffer_free(&own);
    if (!fits || t->bucket_counts == NULL)
        return fits;
    for (int pass = 0; pass < 2; pass++) /* counts the rows in the empty buckets, then empties them again */
        for (uint64_t i = 0; i < count; i++) {
            uint64_t hash = table_hash(t, load_u64(rows + i * item_bytes(t, SECTION_ROWS)));
            uint16_t *in_bucket = &t->bucket_counts[table_bucket(t, hash)];
            *in_bucket = pass == 0 ? (uint16_t)(*in_bucket + 1) : 0;
            fits &= *in_bucket <= table_bucket_rows(t, table_bucket(t, hash));
        }
    return fits;
}

static void take_item(struct table *t, enum section section, const unsigned char *item)
{
    uint64_t key = load_u64(item);
    if (section == SECTION_ROWS) {
        const uint64_t *slot =
            table_slot_of(t, key, table_hash(t, key)); /* NULL unless the row comes twice */
        struct table_row *row =
            slot != NULL ? table_slot_row(t, slot) : table_add_row(t, key, table_hash(t, key));
        memcpy(row, item, item_bytes(t, section));
    } else if (section == SECTION_REMOVED) {
        table_keys_add(&t->removed, key);
    } else if (section == SECTION_CLOSING) {
        table_snapshot_take_removed(t, key);
    } else {
        struct given_block given;
        memcpy(&given, item, sizeof(given));
        sketch_replace(&t->sketch, &given.block, (uint32_t)given.epoch);
    }
}

bool table_take_shard(struct table *t, const void *bytes, size_t length)
{
    struct shard_head head;
    const unsigned char *sections[SECTIONS + 1];
    if (length < sizeof(head))
        return false;
    memcpy(&head, bytes, sizeof(head));
    struct shard_head own = head_of(t, head.shard);
    if (memcmp(&own, &head, offsetof(struct shard_head, counts)) != 0 || head.shard >= head.shards)
        return false;
    sections[0] = (const unsigned char *)bytes + sizeof(head);
    length -= sizeof(head);
    for (enum section s = 0; s < SECTIONS; s++) {
        if (head.counts[s] > length / item_bytes(t, s))
            return false;
        length -= head.counts[s] * item_bytes(t, s);
        sections[s + 1] = sections[s] + head.counts[s] * item_bytes(t, s);
        for (const unsigned char *item = sections[s]; item < sections[s + 1]; item += item_bytes(t, s))
            if (!can_take(t, &head, s, item))
                return false;
    }
    if (length != 0 || !has_room(t, head.shard, sections[SECTION_ROWS], head.counts[SECTION_ROWS]))
        return false;
    for (enum section s = SECTION_ROWS; s < SECTIONS; s++)
        for (const unsigned char *item = sections[s]; item < sections[s + 1]; item += item_bytes(t, s))
            take_item(t, s, item);
    return t->cold == NULL || table_cold_take(t, sections[SECTION_COLD], head.counts[SECTION_COLD]);
}
