/*
 * The allocator of dense numbers. Slots of numbers lie in chunks that never move; free numbers are a heap whose
 * root is the lowest; a hash table with linear probing finds the number of a key.
 */
#include "learners/items/numbers.h"

#include "core/buffer.h"
#include "core/describe.h"
#include "core/mem.h"
#include "kernels/num.h"

#include <stdlib.h>

enum { CHUNK_BITS = 12, CHUNK = 1 << CHUNK_BITS, MAP_LEAST = 64 };

enum slot_state {
    SLOT_FREE,
    SLOT_LIVE,
    SLOT_RETIRED,
    SLOT_STATES,
    SLOT_PENDING = SLOT_STATES /* its saved record is being taken */
};

struct slot {
    uint64_t key; /* 0 unless live */
    union {
        int64_t integer;
        char *text; /* is_text; NULL: empty */
    };
    uint32_t text_bytes;
    uint32_t epoch;      /* of the last change; 0: as it was loaded */
    uint16_t generation; /* of the item that has the number, or of the next one */
    uint8_t state;       /* enum slot_state */
    bool is_text;
};
_Static_assert(sizeof(struct slot) == 32, "what an item costs");

struct chunk {
    uint32_t epoch; /* of the last change in the chunk */
    struct slot slots[CHUNK];
};

/* An entry of the hash table. */
struct place {
    uint64_t key; /* 0: empty */
    uint32_t number;
};

struct items_numbers {
    uint32_t numbers_max;
    uint32_t epoch; /* that changes now belong to */
    struct chunk **chunks;
    size_t chunks_room;
    uint32_t used, live, retired;
    uint32_t *free; /* heap: a number is not above those at 2i + 1 and 2i + 2 */
    uint32_t free_count, free_room;
    struct place *map;
    size_t map_room; /* power of two, or 0 */
    size_t text_bytes;
};

static struct slot *slot_of(const struct items_numbers *n, uint32_t number)
{
    return &n->chunks[number >> CHUNK_BITS]->slots[number & (CHUNK - 1)];
}

static void mark_changed(struct items_numbers *n, uint32_t number)
{
    slot_of(n, number)->epoch = n->chunks[number >> CHUNK_BITS]->epoch = n->epoch;
}

/* --- Free numbers --- */

static void free_push(struct items_numbers *n, uint32_t number)
{
    if (n->free_count == n->free_room) {
        n->free_room = n->free_room == 0 ? MAP_LEAST : 2 * n->free_room;
        n->free = mem_realloc(n->free, n->free_room * sizeof(*n->free));
    }
    size_t at = n->free_count++;
    for (; at > 0 && n->free[(at - 1) / 2] > number; at = (at - 1) / 2)
        n->free[at] = n->free[(at - 1) / 2];
    n->free[at] = number;
}

static uint32_t free_pop(struct items_numbers *n)
{
    uint32_t lowest = n->free[0], last = n->free[--n->free_count];
    size_t at = 0;
    for (size_t child = 1; child < n->free_count; child = 2 * at + 1) {
        child += child + 1 < n->free_count && n->free[child + 1] < n->free[child];
        if (n->free[child] >= last)
            break;
        n->free[at] = n->free[child];
        at = child;
    }
    n->free[at] = last;
    return lowest;
}

/* --- Key to number --- */

/* Where the key is, or the empty place where it belongs. Keys are mixed: they may be chosen by others. */
static size_t map_at(const struct items_numbers *n, uint64_t key)
{
    size_t at = num_mix(key) & (n->map_room - 1);
    while (n->map[at].key != 0 && n->map[at].key != key)
        at = (at + 1) & (n->map_room - 1);
    return at;
}

/* Makes room for one more key: at most three quarters of the places are taken. */
static void map_grow(struct items_numbers *n)
{
    if ((uint64_t)n->live + 1 <= n->map_room / 4 * 3)
        return;
    struct place *old = n->map;
    size_t room = n->map_room;
    n->map_room = room == 0 ? MAP_LEAST : 2 * room;
    n->map = mem_calloc(n->map_room, sizeof(*n->map));
    for (size_t i = 0; i < room; i++)
        if (old[i].key != 0)
            n->map[map_at(n, old[i].key)] = old[i];
    free(old);
}

static void map_put(struct items_numbers *n, uint64_t key, uint32_t number)
{
    map_grow(n);
    n->map[map_at(n, key)] = (struct place){key, number};
}

/* Empties a place, and moves later entries of its run of places forward, so that all are found. */
static void map_remove(struct items_numbers *n, size_t at)
{
    size_t mask = n->map_room - 1;
    for (size_t next = (at + 1) & mask; n->map[next].key != 0; next = (next + 1) & mask) {
        size_t home = num_mix(n->map[next].key) & mask;
        if (((next - home) & mask) < ((next - at) & mask))
            continue; /* its home lies behind the empty place */
        n->map[at] = n->map[next];
        at = next;
    }
    n->map[at] = (struct place){0};
}

/* --- Slots --- */

/* Numbers the next slot; it is free. */
static uint32_t slot_new(struct items_numbers *n)
{
    uint32_t number = n->used++;
    size_t chunk = number >> CHUNK_BITS;
    if ((number & (CHUNK - 1)) != 0)
        return number;
    if (chunk == n->chunks_room) {
        n->chunks_room = chunk == 0 ? 16 : 2 * chunk;
        n->chunks = mem_realloc(n->chunks, n->chunks_room * sizeof(struct chunk *));
    }
    n->chunks[chunk] = mem_calloc(1, sizeof(**n->chunks));
    return number;
}

static void slot_free_text(struct items_numbers *n, const struct slot *s)
{
    if (s->is_text)
        free(s->text);
    n->text_bytes -= s->text_bytes;
}

/* Gives a free slot to an item. */
static void slot_fill(struct items_numbers *n, uint32_t number, const struct items_value *value)
{
    struct slot *s = slot_of(n, number);
    s->state = SLOT_LIVE;
    s->key = value->key;
    s->is_text = value->is_text;
    if (!value->is_text) {
        s->integer = value->integer;
    } else if (value->text.length > 0) {
        s->text_bytes = (uint32_t)value->text.length;
        s->text = mem_alloc(s->text_bytes);
        memcpy(s->text, value->text.data, s->text_bytes);
        n->text_bytes += s->text_bytes;
    }
    n->live++;
}

/* Takes a slot from its item, and gives it its next generation, if there is one. */
static void slot_clear(struct items_numbers *n, uint32_t number)
{
    struct slot *s = slot_of(n, number);
    uint16_t generation = s->generation;
    bool is_last = generation == ITEMS_GENERATION_LAST;
    slot_free_text(n, s);
    *s = (struct slot){.generation = (uint16_t)(is_last ? generation : generation + 1),
                       .state = is_last ? SLOT_RETIRED : SLOT_FREE};
    n->live--;
    n->retired += is_last;
    if (!is_last)
        free_push(n, number);
    mark_changed(n, number);
}

/* --- The interface --- */

struct items_numbers *items_numbers_create(uint32_t numbers_max)
{
    leat_assert(numbers_max > 0 && numbers_max <= ITEMS_NUMBERS_MAX);
    struct items_numbers *n = mem_calloc(1, sizeof(*n));
    n->numbers_max = numbers_max;
    n->epoch = 1;
    return n;
}

static void clear(struct items_numbers *n)
{
    for (uint32_t i = 0; i < n->used; i++)
        slot_free_text(n, slot_of(n, i));
    for (size_t c = 0; c << CHUNK_BITS < n->used; c++)
        free(n->chunks[c]);
    free(n->chunks);
    free(n->free);
    free(n->map);
    *n = (struct items_numbers){.numbers_max = n->numbers_max, .epoch = n->epoch};
}

void items_numbers_free(struct items_numbers *n)
{
    if (n == NULL)
        return;
    clear(n);
    free(n);
}

bool items_numbers_find(const struct items_numbers *n, uint64_t key, struct items_ref *ref)
{
    if (key == 0 || n->map_room == 0)
        return false;
    const struct place *place = &n->map[map_at(n, key)];
    if (place->key == 0)
        return false;
    *ref = (struct items_ref){place->number, slot_of(n, place->number)->generation};
    return true;
}

enum items_added items_numbers_add(struct items_numbers *n, const struct items_value *value,
                                   struct items_ref *ref)
{
    leat_assert(value->key != 0);
    if (items_numbers_find(n, value->key, ref))
        return ITEMS_FOUND;
    if (value->is_text && value->text.length > ITEMS_TEXT_MAX)
        return ITEMS_TEXT_LONG;
    if (n->free_count == 0 && n->used == n->numbers_max)
        return ITEMS_FULL;
    uint32_t number = n->free_count > 0 ? free_pop(n) : slot_new(n);
    map_put(n, value->key, number);
    slot_fill(n, number, value);
    mark_changed(n, number);
    *ref = (struct items_ref){number, slot_of(n, number)->generation};
    return ITEMS_NEW;
}

bool items_numbers_remove(struct items_numbers *n, uint64_t key, struct items_ref *ref)
{
    if (!items_numbers_find(n, key, ref))
        return false;
    map_remove(n, map_at(n, key));
    slot_clear(n, ref->number);
    return true;
}

bool items_numbers_value(const struct items_numbers *n, struct items_ref ref, struct items_value *value)
{
    if (ref.number >= n->used)
        return false;
    const struct slot *s = slot_of(n, ref.number);
    if (s->state != SLOT_LIVE || s->generation != ref.generation)
        return false;
    *value = (struct items_value){.key = s->key,
                                  .is_text = s->is_text,
                                  .integer = s->is_text ? 0 : s->integer,
                                  .text = {s->text_bytes > 0 ? s->text : "", s->text_bytes}};
    return true;
}

void items_numbers_set_epoch(struct items_numbers *n, uint32_t epoch)
{
    leat_assert(epoch >= n->epoch);
    n->epoch = epoch;
}

bool items_numbers_value_now(const struct items_numbers *n, uint32_t number, struct items_value *value)
{
    return number < n->used &&
           items_numbers_value(n, (struct items_ref){number, slot_of(n, number)->generation}, value);
}

void items_numbers_describe(const struct items_numbers *n, struct items_ref ref, const char *name,
                            struct describe *out)
{
    struct items_value value;
    if (!items_numbers_value(n, ref, &value))
        describe_text(out, name, STR("gone"));
    else if (value.is_text)
        describe_text(out, name, value.text);
    else
        describe_int(out, name, value.integer);
}

struct items_counts items_numbers_counts(const struct items_numbers *n)
{
    size_t chunks = ((size_t)n->used + CHUNK - 1) / CHUNK;
    size_t bytes = sizeof(*n) + n->chunks_room * sizeof(struct chunk *) + chunks * sizeof(struct chunk) +
                   n->free_room * sizeof(*n->free) + n->map_room * sizeof(*n->map) + n->text_bytes;
    return (struct items_counts){
        .live = n->live, .free = n->free_count, .retired = n->retired, .used = n->used, .bytes = bytes};
}

/* --- Saving --- */

/* As stored: a head, then records of numbers by rising number, which a live text follows. */
enum { SAVED_MAGIC = 0x324e4c49 }; /* "ILN2" */

struct saved_head {
    uint32_t magic, used;
    uint32_t since, count; /* records of numbers that changed after epoch `since`; 0: of all numbers */
};

struct saved_slot {
    uint64_t key;
    int64_t value; /* the integer, or the bytes of the text */
    uint32_t number;
    uint16_t generation;
    uint8_t state, is_text;
};

void items_numbers_save(const struct items_numbers *n, uint32_t since, struct byte_buffer *out)
{
    struct saved_head head = {.magic = SAVED_MAGIC, .used = n->used, .since = since};
    size_t at = out->length;
    buffer_append(out, &head, sizeof(head));
    for (uint32_t i = 0; i < n->used; i++) {
        if (since > 0 && n->chunks[i >> CHUNK_BITS]->epoch <= since) {
            i |= CHUNK - 1; /* nothing changed in this chunk */
            continue;
        }
        const struct slot *s = slot_of(n, i);
        if (since > 0 && s->epoch <= since)
            continue;
        struct saved_slot saved = {
            s->key, s->is_text ? (int64_t)s->text_bytes : s->integer, i, s->generation, s->state, s->is_text};
        buffer_append(out, &saved, sizeof(saved));
        if (s->text_bytes > 0)
            buffer_append(out, s->text, s->text_bytes);
        head.count++;
    }
    memcpy(out->data + at, &head, sizeof(head));
}

/* --- Loading --- */

/* Records of a saved state that are not read yet. */
struct unread {
    const char *at;
    size_t left;
    uint32_t count;
};

/* Reads the next record, whose text then is at *text. False: there is none, or it is cut off. */
static bool read_slot(struct unread *r, struct saved_slot *s, const char **text)
{
    if (r->count == 0 || r->left < sizeof(*s))
        return false;
    memcpy(s, r->at, sizeof(*s));
    size_t text_bytes = s->is_text != 0 ? (size_t)s->value : 0;
    if (text_bytes > r->left - sizeof(*s))
        return false;
    *text = r->at + sizeof(*s);
    *r = (struct unread){*text + text_bytes, r->left - sizeof(*s) - text_bytes, r->count - 1};
    return true;
}

/* Why a saved record is refused, whatever the other numbers are, or NULL. */
static const char *check_slot(const struct saved_slot *s)
{
    if (s->state >= SLOT_STATES || s->is_text > 1)
        return "an item's number has a state that does not exist";
    if (s->state != SLOT_LIVE && (s->key != 0 || s->value != 0 || s->is_text != 0))
        return "a number that no item has has a value";
    if (s->state == SLOT_RETIRED && s->generation != ITEMS_GENERATION_LAST)
        return "an item's number is retired before its last generation";
    if (s->state == SLOT_FREE && s->generation == 0)
        return "an item's number is free and was never used";
    if (s->state == SLOT_LIVE && s->key == 0)
        return "an item's key is 0";
    if (s->is_text != 0 && s->value > ITEMS_TEXT_MAX)
        return "an item's text is longer than the limit";
    return NULL;
}

/* A number's states come in this order: of a generation first free, then live, at last retired. */
static uint32_t rank_of(uint16_t generation, uint8_t state)
{
    return 2 * (uint32_t)generation + (state == SLOT_LIVE ? 1 : state == SLOT_RETIRED ? 2 : 0);
}

static bool is_older(const struct slot *now, const struct saved_slot *s)
{
    return rank_of(s->generation, s->state) < rank_of(now->generation, now->state);
}

/* Why the records cannot be taken, or NULL. is_strict: they are of a later time than the allocator's state. */
static const char *check_slots(const struct items_numbers *n, const struct saved_head *head, struct unread r,
                               bool is_strict)
{
    struct saved_slot s;
    const char *text;
    uint32_t used = n->used; /* numbers of slots that are there, or come with a record */
    uint64_t least = 0;      /* the least number that may come next */
    while (r.count > 0) {
        if (!read_slot(&r, &s, &text))
            return "the numbers of items are cut off";
        const char *reason = check_slot(&s);
        if (reason != NULL)
            return reason;
        if (s.number < least || s.number >= head->used || s.number > used)
            return "the numbers of items are not in their order, or one is missing";
        if (is_strict && s.number < n->used && is_older(slot_of(n, s.number), &s))
            return "an item's number is older than before";
        used += s.number == used;
        least = (uint64_t)s.number + 1;
    }
    if (used < head->used || (is_strict && head->used < n->used))
        return "there are fewer numbers of items than before, or than the head says";
    return r.left > 0 ? "bytes follow the numbers of items" : NULL;
}

/* Takes the slots of all records from their items. Returns whether a free one is among them, which is still in the heap. */
static bool empty_slots(struct items_numbers *n, struct unread r)
{
    struct saved_slot saved;
    const char *text;
    bool has_free = false;
    while (read_slot(&r, &saved, &text) && saved.number < n->used) {
        struct slot *s = slot_of(n, saved.number);
        if (s->state == SLOT_LIVE) {
            map_remove(n, map_at(n, s->key));
            slot_free_text(n, s);
            n->live--;
        }
        n->retired -= s->state == SLOT_RETIRED;
        has_free |= s->state == SLOT_FREE;
        *s = (struct slot){.state = SLOT_PENDING};
    }
    return has_free;
}

/* Takes the numbers of the records' keys, which other slots still have, from those. False: is_strict, and there is such
 * a slot. */
static bool free_keys(struct items_numbers *n, struct unread r, bool is_strict)
{
    struct saved_slot s;
    const char *text;
    struct items_ref other;
    while (read_slot(&r, &s, &text))
        if (s.state == SLOT_LIVE && items_numbers_find(n, s.key, &other)) {
            if (is_strict)
                return false;
            (void)items_numbers_remove(n, s.key, &other);
        }
    return true;
}

/* Leaves only those numbers in the heap that are free. */
static void sift_free(struct items_numbers *n)
{
    uint32_t count = n->free_count;
    n->free_count = 0;
    for (uint32_t i = 0; i < count; i++) /* free_push writes at places up to i alone */
        if (slot_of(n, n->free[i])->state == SLOT_FREE)
            free_push(n, n->free[i]);
}

/* Fills the slots of all records. False: a key has two numbers. */
static bool fill_slots(struct items_numbers *n, struct unread r)
{
    struct saved_slot s;
    struct items_ref other;
    const char *text;
    while (read_slot(&r, &s, &text)) {
        uint32_t number = s.number == n->used ? slot_new(n) : s.number;
        struct slot *slot = slot_of(n, number);
        *slot = (struct slot){.generation = s.generation, .state = s.state};
        n->retired += s.state == SLOT_RETIRED;
        if (s.state == SLOT_FREE)
            free_push(n, number);
        if (s.state != SLOT_LIVE)
            continue;
        slot->state = SLOT_PENDING;
        if (items_numbers_find(n, s.key, &other))
            return false;
        map_put(n, s.key, number);
        bool is_text = s.is_text != 0;
        slot_fill(n, number,
                  &(struct items_value){.key = s.key,
                                        .is_text = is_text,
                                        .integer = is_text ? 0 : s.value,
                                        .text = {text, is_text ? (size_t)s.value : 0}});
    }
    return true;
}

static const char *load(struct items_numbers *n, const char *data, size_t bytes, bool is_strict)
{
    struct saved_head head;
    if (bytes < sizeof(head))
        return "the numbers of items are cut off";
    memcpy(&head, data, sizeof(head));
    if (head.magic != SAVED_MAGIC)
        return "these are no numbers of items";
    if (head.used > n->numbers_max)
        return "there are more items than the limit";
    if (head.since == 0)
        clear(n);
    struct unread records = {data + sizeof(head), bytes - sizeof(head), head.count};
    const char *reason = check_slots(n, &head, records, is_strict);
    if (reason != NULL)
        return reason;
    bool has_free = empty_slots(n, records), is_ok = free_keys(n, records, is_strict);
    if (has_free)
        sift_free(n);
    return is_ok && fill_slots(n, records) ? NULL : "an item's key has two numbers";
}

const char *items_numbers_load(struct items_numbers *n, const void *data, size_t bytes)
{
    const char *reason = load(n, data, bytes, true);
    if (reason != NULL)
        clear(n);
    return reason;
}

const char *items_numbers_follow(struct items_numbers *n, const void *data, size_t bytes)
{
    const char *reason = load(n, data, bytes, false);
    if (reason != NULL)
        clear(n);
    return reason;
}
