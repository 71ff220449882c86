#include "operators/join/key_rows.h"

/* OPEN_BYTES_MAX: bytes of rows in a key's own entry. CHUNK_BYTES_MAX: bytes of a chunk. TIDY_BYTES_MIN: in
 * smaller entries dead rows are not looked for. */
enum { OPEN_BYTES_MAX = 8 << 10, CHUNK_BYTES_MAX = 64 << 10, TIDY_BYTES_MIN = 1 << 10 };

/* Head of a key's entry; its newest rows follow. */
struct list_head {
    uint64_t next_id;
    uint64_t count;    /* rows in the entry and all chunks, without dropped ones */
    uint32_t tidy_at;  /* entry size in bytes from which dead rows are looked for */
    uint32_t salt;     /* of the directory's table key */
    uint32_t last_run; /* offset of the last run of rows of one side; 0: no rows */
    uint8_t has_chunks;
    /* Bits 1 << side of the sides that may have rows: in the entry, and in chunks. A search for other sides
     * skips the entry, or the chunks. */
    uint8_t open_sides, chunk_sides;
};

/* Head of a piece: a chunk, whose rows follow, or the directory, whose items (chunk_info) follow. owner: the
 * key that the piece belongs to. */
struct piece_head {
    struct key owner;
    uint32_t number, count; /* number: 0: the directory; count: its items */
};

/* The directory's item for a chunk. until: the largest `until` of the chunk's rows. A side without rows has
 * from > to. */
struct chunk_info {
    uint32_t number, salt;
    uint64_t first_id, last_id, rows;
    int64_t until;
    struct {
        int64_t from, to;
    } sides[KEY_ROW_SIDES];
};

struct change {
    uint32_t at; /* offset of the row in the value */
    unsigned action;
};

/* --- Table keys of pieces --- */

/* The table key of a piece: in the owner's key group. */
static struct key piece_key(struct key owner, uint32_t number, uint32_t salt)
{
    uint64_t mixed = key_hash((struct key){owner.low, owner.high ^ ((uint64_t)number << 32 | salt)});
    uint64_t hash = (key_hash(owner) & UINT64_C(0xffffffff00000000)) | (uint32_t)mixed;
    return key_of_hash(hash, (unsigned)(mixed >> 58));
}

static struct keyed_slot *begin_piece(struct key_rows *rows, struct key owner, uint32_t number, uint32_t salt)
{
    struct key key = piece_key(owner, number, salt);
    uint64_t hash = key_hash(key);
    struct keyed_slot *slot;
    keyed_begin(rows->chunks, &key, &hash, 1, &slot);
    return slot;
}

static const struct keyed_slot *peek_piece(struct key_rows *rows, struct key owner, uint32_t number,
                                           uint32_t salt)
{
    struct key key = piece_key(owner, number, salt);
    return keyed_peek(rows->chunks, key, key_hash(key));
}

/* The piece in the slot; NULL: there is none, or the slot's key is used by another owner's piece. */
static const char *piece_of(const struct keyed_slot *slot, struct key owner, uint32_t number, uint32_t *bytes)
{
    const struct piece_head *head = keyed_read(slot, bytes);
    bool is_there = *bytes >= sizeof(*head) && head->number == number && key_equal(head->owner, owner);
    return is_there ? (const char *)head : NULL;
}

/* Opens a bracket for a new piece, with the first salt whose table key is free. */
static struct keyed_slot *begin_new_piece(struct key_rows *rows, struct key owner, uint32_t number,
                                          uint32_t *salt)
{
    for (*salt = 0;; ++*salt) {
        struct keyed_slot *slot = begin_piece(rows, owner, number, *salt);
        uint32_t bytes;
        keyed_read(slot, &bytes);
        if (bytes == 0)
            return slot;
        keyed_end(rows->chunks);
    }
}

/* --- Visits --- */

static const struct key_row *row_at(const char *value, uint32_t at, uint32_t bytes)
{
    const struct key_row *row = (const struct key_row *)(const void *)(value + at);
    leat_assert(at + sizeof(*row) <= bytes && row->bytes >= sizeof(*row) && row->bytes <= bytes - at);
    return row;
}

/* Adds the row at offset `at`, the last row, to the run at *last if that run is of the same side; else begins
 * a run with the row. A search skips the runs of sides that it does not ask for. */
static void join_run(char *value, uint32_t *last, uint32_t at)
{
    struct key_row *row = (struct key_row *)(void *)(value + at);
    struct key_row *first = (struct key_row *)(void *)(value + *last);
    row->run = row->bytes / 8 <= UINT16_MAX ? (uint16_t)(row->bytes / 8) : 0;
    if (*last != 0 && first->side == row->side && first->run != 0 && row->run != 0 &&
        first->run + row->run <= UINT16_MAX)
        first->run = (uint16_t)(first->run + row->run);
    else
        *last = at;
}

/* Makes the runs of the rows from byte `from` on; returns the offset of the last run, 0 without rows. */
static uint32_t join_runs(char *value, uint32_t from, uint32_t bytes)
{
    uint32_t last = 0;
    for (uint32_t at = from; at < bytes; at += row_at(value, at, bytes)->bytes)
        join_run(value, &last, at);
    return last;
}

/* Shows the rows of one value; notes rows to drop or mark in rows->changes. Returns false if the visitor
 * returned KEY_ROW_STOP. */
static bool visit_value(struct key_rows *rows, const char *value, uint32_t from, uint32_t bytes,
                        struct key_rows_query *query, key_row_visitor *visit, void *argument)
{
    int64_t watermark = keyed_watermark(rows->heads);
    buffer_clear(&rows->changes);
    for (uint32_t at = from; at < bytes;) {
        const struct key_row *row = row_at(value, at, bytes);
        struct change change = {.at = at};
        if ((query->sides >> row->side & 1) == 0) {
            at += row->run != 0 ? row->run * 8U : row->bytes;
            continue;
        }
        at += row->bytes;
        if (row->from > query->to || row->to < query->from || row->until < watermark ||
            row->id < query->first_id || row->id > query->last_id)
            continue;
        query->first_id = row->id + 1;
        change.action = visit(argument, row);
        if ((change.action & (KEY_ROW_DROP | KEY_ROW_MARK)) != 0)
            buffer_append(&rows->changes, &change, sizeof(change));
        if ((change.action & KEY_ROW_STOP) != 0)
            return false;
    }
    return true;
}

/* Drops and marks the rows in rows->changes. Returns how many rows were dropped. */
static uint64_t apply_changes(struct key_rows *rows, struct keyed_table *table, struct keyed_slot *slot)
{
    const struct change *changes = (const struct change *)(const void *)rows->changes.data;
    size_t count = rows->changes.length / sizeof(*changes);
    if (count == 0)
        return 0;
    uint32_t bytes;
    keyed_read(slot, &bytes);
    char *value = keyed_write(table, slot, bytes, slot->expire_us);
    uint32_t in = changes[0].at, out = in;
    uint64_t dropped = 0;
    for (size_t i = 0; i < count; i++) {
        memmove(value + out, value + in, changes[i].at - in);
        out += changes[i].at - in;
        in = changes[i].at;
        struct key_row *row = (struct key_row *)(void *)(value + in);
        if ((changes[i].action & KEY_ROW_DROP) != 0) {
            in += row->bytes;
            dropped++;
        } else {
            row->is_marked = 1;
        }
    }
    memmove(value + out, value + in, bytes - in);
    if (dropped > 0) {
        uint32_t left = out + bytes - in;
        value = keyed_write(table, slot, left, slot->expire_us);
        if (table == rows->heads)
            ((struct list_head *)(void *)value)->last_run = join_runs(value, sizeof(struct list_head), left);
        else
            (void)join_runs(value, sizeof(struct piece_head), left);
    }
    return dropped;
}

static struct list_head *write_head(struct key_rows *rows, struct keyed_slot *slot)
{
    uint32_t bytes;
    keyed_read(slot, &bytes);
    return keyed_write(rows->heads, slot, bytes, slot->expire_us);
}

static void note_dropped(struct key_rows *rows, struct keyed_slot *slot, uint64_t dropped)
{
    if (dropped > 0)
        write_head(rows, slot)->count -= dropped;
}

static bool may_have(const struct chunk_info *info, const struct key_rows_query *query, int64_t watermark)
{
    if (info->last_id < query->first_id || info->first_id > query->last_id || info->until < watermark)
        return false;
    for (int side = 0; side < KEY_ROW_SIDES; side++)
        if ((query->sides >> side & 1) != 0 && info->sides[side].from <= query->to &&
            info->sides[side].to >= query->from)
            return true;
    return false;
}

/* Sets rows->wanted to the items of the chunks that may have rows for the query. directory: its entry; NULL: none. */
static void want_chunks(struct key_rows *rows, struct key owner, const struct keyed_slot *directory,
                        const struct key_rows_query *query)
{
    buffer_clear(&rows->wanted);
    uint32_t bytes = 0;
    const char *value = directory == NULL ? NULL : piece_of(directory, owner, 0, &bytes);
    const struct piece_head *head = (const struct piece_head *)(const void *)value;
    const struct chunk_info *items = (const struct chunk_info *)(const void *)(head + 1);
    leat_assert(head == NULL || bytes == sizeof(*head) + head->count * sizeof(*items));
    for (uint32_t i = 0; head != NULL && i < head->count; i++)
        if (may_have(&items[i], query, keyed_watermark(rows->heads)))
            buffer_append(&rows->wanted, &items[i], sizeof(items[i]));
}

/* After rows of a chunk were dropped: corrects the counts of the key and of the directory's item. */
static void note_dropped_of(struct key_rows *rows, struct keyed_slot *slot, uint32_t salt, uint32_t number,
                            uint64_t dropped)
{
    note_dropped(rows, slot, dropped);
    struct keyed_slot *directory = begin_piece(rows, slot->key, 0, salt);
    uint32_t bytes;
    if (piece_of(directory, slot->key, 0, &bytes) != NULL) {
        struct piece_head *head = keyed_write(rows->chunks, directory, bytes, TIME_MIN);
        struct chunk_info *items = (struct chunk_info *)(void *)(head + 1);
        for (uint32_t i = 0; i < head->count; i++)
            if (items[i].number == number)
                items[i].rows -= dropped;
    }
    keyed_end(rows->chunks);
}

static bool visit_chunks(struct key_rows *rows, struct keyed_slot *slot, uint32_t salt,
                         struct key_rows_query *query, key_row_visitor *visit, void *argument)
{
    struct key owner = slot->key;
    want_chunks(rows, owner, begin_piece(rows, owner, 0, salt), query);
    keyed_end(rows->chunks);
    bool goes_on = true;
    for (size_t at = 0; goes_on && at < rows->wanted.length; at += sizeof(struct chunk_info)) {
        const struct chunk_info *info = (const struct chunk_info *)(const void *)(rows->wanted.data + at);
        struct keyed_slot *chunk = begin_piece(rows, owner, info->number, info->salt);
        uint32_t bytes;
        const char *value = piece_of(chunk, owner, info->number, &bytes);
        uint64_t dropped = 0;
        if (value != NULL) {
            goes_on = visit_value(rows, value, sizeof(struct piece_head), bytes, query, visit, argument);
            dropped = apply_changes(rows, rows->chunks, chunk);
        }
        keyed_end(rows->chunks);
        if (dropped > 0)
            note_dropped_of(rows, slot, salt, info->number, dropped);
    }
    return goes_on;
}

bool key_rows_visit(struct key_rows *rows, struct keyed_slot *slot, struct key_rows_query *query,
                    key_row_visitor *visit, void *argument)
{
    uint32_t bytes;
    const char *value = keyed_read(slot, &bytes);
    if (bytes == 0)
        return true;
    const struct list_head *head = (const struct list_head *)(const void *)value;
    leat_assert(bytes >= sizeof(*head));
    if (unlikely((head->chunk_sides & query->sides) != 0) &&
        !visit_chunks(rows, slot, head->salt, query, visit, argument))
        return false;
    value = keyed_read(slot, &bytes);
    head = (const struct list_head *)(const void *)value;
    if ((head->open_sides & query->sides) == 0)
        return true;
    bool goes_on = visit_value(rows, value, sizeof(*head), bytes, query, visit, argument);
    note_dropped(rows, slot, apply_changes(rows, rows->heads, slot));
    return goes_on;
}

static bool peek_chunks(struct key_rows *rows, struct key owner, uint32_t salt, struct key_rows_query *query,
                        key_row_visitor *visit, void *argument)
{
    want_chunks(rows, owner, peek_piece(rows, owner, 0, salt), query);
    keyed_peek_end(rows->chunks);
    bool goes_on = true;
    for (size_t at = 0; goes_on && at < rows->wanted.length; at += sizeof(struct chunk_info)) {
        const struct chunk_info *info = (const struct chunk_info *)(const void *)(rows->wanted.data + at);
        const struct keyed_slot *chunk = peek_piece(rows, owner, info->number, info->salt);
        uint32_t bytes = 0;
        const char *value = chunk == NULL ? NULL : piece_of(chunk, owner, info->number, &bytes);
        if (value != NULL)
            goes_on = visit_value(rows, value, sizeof(struct piece_head), bytes, query, visit, argument);
        keyed_peek_end(rows->chunks);
    }
    return goes_on;
}

void key_rows_peek(struct key_rows *rows, const struct keyed_slot *slot, struct key_rows_query *query,
                   key_row_visitor *visit, void *argument)
{
    uint32_t bytes;
    const char *value = keyed_read(slot, &bytes);
    const struct list_head *head = (const struct list_head *)(const void *)value;
    leat_assert(bytes == 0 || bytes >= sizeof(*head));
    if (bytes == 0 || ((head->chunk_sides & query->sides) != 0 &&
                       !peek_chunks(rows, slot->key, head->salt, query, visit, argument)))
        return;
    (void)visit_value(rows, value, sizeof(*head), bytes, query, visit, argument);
    leat_assert(rows->changes.length == 0);
}

/* --- Adding --- */

/* Drops the dead rows of the key's own entry. */
static void tidy(struct key_rows *rows, struct keyed_slot *slot)
{
    uint32_t bytes;
    const char *value = keyed_read(slot, &bytes);
    struct change change = {.action = KEY_ROW_DROP};
    int64_t watermark = keyed_watermark(rows->heads);
    uint8_t sides = 0;
    buffer_clear(&rows->changes);
    for (uint32_t at = sizeof(struct list_head); at < bytes;) {
        const struct key_row *row = row_at(value, at, bytes);
        change.at = at;
        if (row->until < watermark)
            buffer_append(&rows->changes, &change, sizeof(change));
        else
            sides |= (uint8_t)(1U << row->side);
        at += row->bytes;
    }
    uint64_t dropped = apply_changes(rows, rows->heads, slot);
    struct list_head *head = write_head(rows, slot);
    keyed_read(slot, &bytes);
    head->count -= dropped;
    head->open_sides = sides;
    head->tidy_at = MIN(MAX(2 * bytes, TIDY_BYTES_MIN), OPEN_BYTES_MAX);
}

static void note_row(struct chunk_info *info, const struct key_row *row)
{
    info->last_id = row->id;
    info->rows++;
    info->until = MAX(info->until, row->until);
    info->sides[row->side].from = MIN(info->sides[row->side].from, row->from);
    info->sides[row->side].to = MAX(info->sides[row->side].to, row->to);
}

static void note_rows(struct chunk_info *info, const char *data, uint32_t bytes)
{
    for (uint32_t at = 0; at < bytes;) {
        const struct key_row *row = row_at(data, at, bytes);
        note_row(info, row);
        at += row->bytes;
    }
}

static uint64_t count_rows(const char *data, size_t bytes)
{
    uint64_t count = 0;
    for (uint32_t at = 0; at < bytes; count++)
        at += row_at(data, at, (uint32_t)bytes)->bytes;
    return count;
}

/* Opens a bracket with the key's directory, which is marked as changed; removes the items of dead chunks,
 * except the last item; makes a missing directory. Call after the key's own rows were moved to
 * rows->sealed. */
static struct keyed_slot *begin_directory(struct key_rows *rows, struct key owner, struct list_head *head)
{
    struct keyed_slot *slot = NULL;
    uint32_t bytes = 0;
    const char *value = NULL;
    if (head->has_chunks) {
        slot = begin_piece(rows, owner, 0, head->salt);
        value = piece_of(slot, owner, 0, &bytes);
        if (value == NULL)
            keyed_end(rows->chunks);
    }
    head->has_chunks = 1;
    if (value == NULL) {
        head->count = count_rows(rows->sealed.data, rows->sealed.length); /* all chunks are dead */
        slot = begin_new_piece(rows, owner, 0, &head->salt);
        struct piece_head *made = keyed_write(rows->chunks, slot, sizeof(*made), TIME_MIN);
        *made = (struct piece_head){.owner = owner};
        return slot;
    }
    struct piece_head *piece = keyed_write(rows->chunks, slot, bytes, TIME_MIN);
    struct chunk_info *items = (struct chunk_info *)(void *)(piece + 1);
    uint32_t kept = 0;
    int64_t watermark = keyed_watermark(rows->heads);
    for (uint32_t i = 0; i < piece->count; i++) {
        bool is_last = i + 1 == piece->count; /* stays even if dead: it has the newest number */
        if (items[i].until < watermark) {
            head->count -= items[i].rows;
            items[i].rows = 0;
        }
        if (items[i].until >= watermark || is_last)
            items[kept++] = items[i];
    }
    piece->count = kept;
    (void)keyed_write(rows->chunks, slot, (uint32_t)(sizeof(*piece) + kept * sizeof(*items)), TIME_MIN);
    return slot;
}

/* The item of the chunk to append to. With *is_new, or if the directory has no items, a new item, and *is_new
 * is set; else the directory's last item. */
static struct chunk_info next_chunk(const struct keyed_slot *directory, uint64_t first_id, bool *is_new)
{
    uint32_t bytes;
    const struct piece_head *piece = keyed_read(directory, &bytes);
    const struct chunk_info *items = (const struct chunk_info *)(const void *)(piece + 1);
    struct chunk_info info = {.number = 1, .first_id = first_id, .until = TIME_MIN};
    for (int side = 0; side < KEY_ROW_SIDES; side++) {
        info.sides[side].from = INT64_MAX;
        info.sides[side].to = INT64_MIN;
    }
    if (piece->count > 0 && !*is_new)
        return items[piece->count - 1];
    *is_new = true;
    if (piece->count > 0)
        info.number = items[piece->count - 1].number + 1;
    return info;
}

static void put_info(struct key_rows *rows, struct keyed_slot *directory, const struct chunk_info *info,
                     bool is_new)
{
    uint32_t bytes;
    keyed_read(directory, &bytes);
    struct piece_head *piece =
        keyed_write(rows->chunks, directory, bytes + (is_new ? (uint32_t)sizeof(*info) : 0), info->until);
    piece->count += is_new;
    struct chunk_info *items = (struct chunk_info *)(void *)(piece + 1);
    items[piece->count - 1] = *info;
}

/* Whether the chunk is there and has room for `more` bytes. */
static bool has_room(struct key_rows *rows, struct key owner, const struct chunk_info *info, uint32_t more)
{
    uint32_t bytes;
    struct keyed_slot *slot = begin_piece(rows, owner, info->number, info->salt);
    bool is_there = piece_of(slot, owner, info->number, &bytes) != NULL;
    keyed_end(rows->chunks);
    return is_there && bytes + more <= CHUNK_BYTES_MAX;
}

/* Moves the key's own rows into a chunk. Only one bracket of `chunks` can be open, so several follow one
 * another: read the directory, look for room, write the chunk, write the directory. */
static void seal(struct key_rows *rows, struct keyed_slot *slot)
{
    struct key owner = slot->key;
    uint32_t bytes;
    const char *value = keyed_read(slot, &bytes);
    bytes -= (uint32_t)sizeof(struct list_head);
    buffer_clear(&rows->sealed);
    buffer_append(&rows->sealed, value + sizeof(struct list_head), bytes);
    struct list_head *head = keyed_write(rows->heads, slot, sizeof(*head), slot->expire_us);
    head->tidy_at = TIDY_BYTES_MIN;
    head->chunk_sides |= head->open_sides;
    head->open_sides = 0;
    head->last_run = 0;
    uint64_t first_id = row_at(rows->sealed.data, 0, bytes)->id;
    bool is_new = false;
    struct chunk_info info = next_chunk(begin_directory(rows, owner, head), first_id, &is_new);
    keyed_end(rows->chunks);
    if (!is_new && !has_room(rows, owner, &info, bytes)) {
        is_new = true;
        info = next_chunk(begin_directory(rows, owner, head), first_id, &is_new);
        keyed_end(rows->chunks);
    }
    note_rows(&info, rows->sealed.data, bytes);
    struct keyed_slot *chunk = is_new ? begin_new_piece(rows, owner, info.number, &info.salt)
                                      : begin_piece(rows, owner, info.number, info.salt);
    uint32_t before;
    keyed_read(chunk, &before);
    before = MAX(before, (uint32_t)sizeof(struct piece_head));
    char *to = keyed_write(rows->chunks, chunk, before + bytes, info.until);
    memcpy(to, &(struct piece_head){.owner = owner, .number = info.number}, sizeof(struct piece_head));
    memcpy(to + before, rows->sealed.data, bytes);
    keyed_end(rows->chunks);
    put_info(rows, begin_directory(rows, owner, head), &info, is_new);
    keyed_end(rows->chunks);
}

uint64_t key_rows_add(struct key_rows *rows, struct keyed_slot *slot, const struct key_row *head,
                      const char *order, const char *packed)
{
    size_t order_room = ((size_t)head->order_bytes + 7) & ~(size_t)7;
    size_t wanted = (sizeof(*head) + order_room + head->row_bytes + 7) & ~(size_t)7;
    if (wanted > KEY_ROW_BYTES_MAX)
        return UINT64_MAX;
    uint32_t bytes, added = (uint32_t)wanted;
    const struct list_head *list = keyed_read(slot, &bytes);
    if (bytes > 0 && bytes + added > list->tidy_at) {
        tidy(rows, slot);
        list = keyed_read(slot, &bytes);
        if (bytes > sizeof(*list) && bytes + added > OPEN_BYTES_MAX)
            seal(rows, slot);
    }
    keyed_read(slot, &bytes);
    uint32_t at = MAX(bytes, (uint32_t)sizeof(*list));
    char *value = keyed_write(rows->heads, slot, at + added, head->until);
    struct list_head *mine = (struct list_head *)(void *)value;
    if (bytes == 0)
        mine->tidy_at = TIDY_BYTES_MIN;
    struct key_row *row = (struct key_row *)(void *)(value + at);
    *row = *head;
    row->bytes = added;
    row->id = mine->next_id++;
    mine->open_sides |= (uint8_t)(1U << head->side);
    if (head->order_bytes > 0)
        memcpy(row + 1, order, head->order_bytes);
    if (head->row_bytes > 0)
        memcpy((char *)(row + 1) + order_room, packed, head->row_bytes);
    join_run(value, &mine->last_run, at);
    if (++mine->count > rows->rows_max) {
        rows->rows_max = mine->count;
        rows->rows_max_key = slot->key;
    }
    return row->id;
}

/* --- As a member of an operator's state: a record of rows_max; the tables are members of their own --- */

struct max_record {
    char tag[8];
    uint64_t epoch, rows_max;
    struct key key;
};

static bool max_snapshot(const struct state_member *row, struct operator_context *context LEAT_UNUSED,
                         void *object, struct snapshot_writer *writer)
{
    const struct key_rows *rows = object;
    struct max_record record = {{row->tag}, snapshot_epoch(writer), rows->rows_max, rows->rows_max_key};
    return snapshot_put(writer, SNAPSHOT_GLOBAL, &record, sizeof(record));
}

static bool max_restore(const struct state_member *row LEAT_UNUSED, struct operator_context *context,
                        void *object, struct snapshot_reader *reader, struct str data)
{
    struct key_rows *rows = object;
    struct max_record record;
    if (data.length != sizeof(record)) {
        snapshot_corrupt(reader, context->diags, "the record of a join's counts has the wrong size");
        return false;
    }
    memcpy(&record, data.data, sizeof(record));
    if (record.epoch < rows->restored_epoch)
        return true;
    if (record.epoch > rows->restored_epoch)
        rows->rows_max = 0;
    rows->restored_epoch = record.epoch;
    bool is_ours = group_set_has(context->groups, key_group(key_hash(record.key)));
    if (!is_ours || record.rows_max <= rows->rows_max)
        return true;
    rows->rows_max = record.rows_max;
    rows->rows_max_key = record.key;
    return true;
}

static void max_report(const struct state_member *row LEAT_UNUSED, void *object, struct report *report)
{
    const struct key_rows *rows = object;
    report_add(report, "state_key_rows_max", (double)rows->rows_max, false);
}

static void max_close(void *object)
{
    struct key_rows *rows = object;
    buffer_free(&rows->changes);
    buffer_free(&rows->wanted);
    buffer_free(&rows->sealed);
}

const struct state_kind state_key_rows = {
    .snapshot = max_snapshot, .restore = max_restore, .report = max_report, .close = max_close};
