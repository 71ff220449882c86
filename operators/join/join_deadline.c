/* The join's deadlines: settles kept left rows when no further right row can match them. */
#include "operators/join/join.h"

/* A left row at its deadline. */
struct deadline {
    struct operator_context *context;
    struct join *join;
    struct key key;
    uint64_t id;
    struct joined_row made;
    bool is_there, is_marked;
};

/* Visitor: copies the left row to join->left; the search for its best right row, which follows, needs the
 * copy. */
static unsigned find_left(void *argument, const struct key_row *kept)
{
    struct deadline *deadline = argument;
    deadline->is_there = true;
    deadline->is_marked = kept->is_marked;
    buffer_clear(&deadline->join->left);
    buffer_append(&deadline->join->left, kept, kept->bytes);
    return KEY_ROW_STOP;
}

static unsigned find_best(void *argument, const struct key_row *kept)
{
    struct deadline *deadline = argument;
    deadline->made.sides[1] = (struct joined_from){.kept = kept, .key = deadline->key};
    joined_add(deadline->join->joined, &deadline->made);
    return KEY_ROW_STOP;
}

/* Makes the output row of the left row at its deadline, if there is one; returns whether there is. */
static bool settle(struct deadline *deadline, struct keyed_slot *slot)
{
    struct join *join = deadline->join;
    struct key_rows_query query = key_rows_query_of(KEY_ROW_LEFT, INT64_MIN, INT64_MAX);
    query.first_id = query.last_id = deadline->id;
    if (slot != NULL)
        (void)key_rows_visit(&join->rows, slot, &query, find_left, deadline);
    if (!deadline->is_there || (join->take == JOIN_ALL && deadline->is_marked))
        return false;
    const struct key_row *left = (const struct key_row *)(const void *)join->left.data;
    int64_t time = held_head_of(key_row_packed(left)).event_time;
    deadline->made.sides[0] = (struct joined_from){.kept = left, .key = deadline->key};
    deadline->made.time = join->is_time_of_left ? time : left->until;
    deadline->made.window_start = left->from;
    deadline->made.window_end = time_add(left->to, 1);
    query = key_rows_query_of(KEY_ROW_BEST, (int64_t)deadline->id, (int64_t)deadline->id);
    if (join->take != JOIN_ALL && !key_rows_visit(&join->rows, slot, &query, find_best, deadline))
        return true;
    if (join->kind == JOIN_INNER)
        return false;
    joined_add(join->joined, &deadline->made);
    return true;
}

static void count_settled(struct operator_context *context, const struct join *join, bool has_come)
{
    struct counters *counters = &context->counters;
    if (!join->is_single) {
        counters->emitted += has_come;
        return;
    }
    counters->held--;
    if (has_come)
        counters->passed++;
    else if (join->kind == JOIN_LEFT)
        counters->absorbed++; /* its pairs were emitted as they were made */
    else
        counters->filtered++;
}

/* Deadlines that are due, at most BATCH_ROWS, settled in one bracket. */
struct deadlines {
    uint32_t count;
    struct key keys[BATCH_ROWS];
    uint64_t hashes[BATCH_ROWS], ids[BATCH_ROWS];
    struct row_order orders[BATCH_ROWS];
};

static void settle_all(struct operator_context *context, struct join *join, struct deadlines *due)
{
    struct keyed_slot *slots[BATCH_ROWS];
    keyed_look(join->rows.heads, due->keys, due->hashes, due->count, slots);
    for (uint32_t i = 0; i < due->count; i++) {
        struct deadline deadline = {.context = context, .join = join, .key = due->keys[i], .id = due->ids[i]};
        deadline.made.order = due->orders[i];
        count_settled(context, join, settle(&deadline, slots[i]));
    }
    keyed_end(join->rows.heads);
    join_emit(context, join, false);
    due->count = 0;
}

void join_on_watermark(struct operator_context *context, int64_t watermark)
{
    struct join *join = context->config;
    struct time_record record;
    struct row_order last = {0};
    struct deadlines *due = join->has_deadline ? arena_alloc(context->scratch, sizeof(*due)) : NULL;
    if (due != NULL)
        due->count = 0;
    while (due != NULL && time_queue_pop(join->queue, watermark, &record)) {
        uint32_t at = due->count++;
        due->keys[at] = record.key;
        due->hashes[at] = record.hash;
        due->orders[at] = row_order_of_timer(&last, 1 + context->place, record.time_us, record.hash);
        due->ids[at] = UINT64_MAX;
        if (record.data.length == sizeof(due->ids[at]))
            memcpy(&due->ids[at], record.data.data, sizeof(due->ids[at]));
        if (due->count == BATCH_ROWS)
            settle_all(context, join, due);
    }
    if (due != NULL && due->count > 0)
        settle_all(context, join, due);
    join_emit(context, join, true);
}
