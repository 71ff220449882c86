/* Operators of libraries, as leat's operator kinds.
 *
 * The option struct of such a kind is a struct user_head, followed by the user's struct. Callbacks do not get
 * the descriptor, so each operator has a slot with a `bind` function of its own, which writes library and
 * operator into the head. */
#include "operators/keys.h"

#include "core/mem.h"
#include "core/moved.h"
#include "core/operator_history.h"
#include "operators/user/making.h"

#include <stdlib.h>

enum { HEAD_BYTES = (sizeof(struct user_head) + 15) & ~(size_t)15 };

static struct {
    const struct user_library *library;
    const struct leat_operator *op;
} slots[USER_OPERATORS_MAX];

static void *user_struct(struct user_head *head)
{
    return (char *)head + HEAD_BYTES;
}

/* --- bind --- */

struct binding {
    struct leat_bind api; /* first, because users' pointers to it are cast back */
    struct operator_bind *bind;
    struct user_head *head;
    uint32_t count;
    struct leat_column_name added[USER_COLUMNS_MAX];
    bool has_failed;
};

static struct type type_from(int type)
{
    static const enum type_tag tags[] = {
        [LEAT_BOOL] = TYPE_BOOL, [LEAT_INT] = TYPE_INT,     [LEAT_FLOAT] = TYPE_FLOAT,
        [LEAT_TEXT] = TYPE_TEXT, [LEAT_BYTES] = TYPE_BYTES, [LEAT_TIME] = TYPE_TIME};
    return type_of(tags[type]);
}

static void say_error(struct leat_bind *api, const char *message, const char *hint)
{
    struct binding *b = (struct binding *)(void *)api;
    struct diag *d = diag_error(b->bind->diags, DIAG_OPTIONS_CLASH, b->bind->span, "`%s`: %s",
                                b->head->op->name, message == NULL ? "wrong" : message);
    if (hint != NULL)
        diag_hint(b->bind->diags, d, "%s", hint);
    b->has_failed = true;
}

static uint32_t add_column(struct leat_bind *api, const char *name, int type)
{
    struct binding *b = (struct binding *)(void *)api;
    if (b->count == USER_COLUMNS_MAX || name == NULL || name[0] == '\0' || type < LEAT_BOOL ||
        type > LEAT_TIME) {
        say_error(api, "`bind` adds a column that has no name or no valid type, or is one too many", NULL);
        return 0;
    }
    b->added[b->count].name = (struct leat_text){name, strlen(name)};
    b->added[b->count].type = type;
    return b->count++;
}

static void read_column(struct leat_bind *api, uint32_t column)
{
    struct binding *b = (struct binding *)(void *)api;
    if (column < b->api.columns)
        bit_set(b->head->reads, column);
}

static void read_columns(struct user_head *head, const struct column_ref *refs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (refs[i].name.length > 0 && refs[i].index >= 0)
            bit_set(head->reads, (size_t)refs[i].index);
}

/* Resolves the columns that the options name, and marks them as read. */
static bool resolve(struct operator_bind *bind, struct user_head *head)
{
    const struct schema *schema = bind->inputs[0].schema;
    bool is_good = true;
    for (const struct leat_option *o = head->op->options; o != NULL && o->name != NULL; o++) {
        char *member = (char *)user_struct(head) + o->offset;
        struct column_ref *ref = (void *)member;
        struct columns *refs = (void *)member;
        if (o->type == LEAT_OPTION_COLUMN && ref->name.length > 0)
            is_good &= column_resolve(ref, schema, bind->arena, bind->diags);
        if (o->type == LEAT_OPTION_COLUMN)
            read_columns(head, ref, 1);
        if (o->type == LEAT_OPTION_COLUMNS) {
            is_good &= columns_resolve(refs, schema, bind->arena, bind->diags);
            read_columns(head, refs->items, refs->count);
        }
        if (!is_good || head->op->key == NULL || strcmp(o->name, head->op->key) != 0)
            continue;
        is_good = keys_bind(bind, 0, refs, &head->keys);
        head->keys_count = refs->count;
    }
    return is_good;
}

/* Any column that a library makes, and whether a row comes out, may depend on all columns that it reads. */
static void set_lineage(const struct user_head *head, struct schema *output, const struct schema *input,
                        uint32_t first)
{
    struct lineage all = input->rows_lineage;
    for (uint32_t i = 0; i < input->count; i++)
        if (bit_get(head->reads, i))
            lineage_merge(&all, &input->fields[i].lineage);
    for (uint32_t i = first; i < output->count; i++)
        output->fields[i].lineage = all;
    for (uint32_t i = 0; i < first; i++)
        field_chosen(&output->fields[i], &all);
    output->rows_lineage = all;
    output->repeats = true;
}

static bool make_schemas(struct binding *b, struct user_head *head)
{
    const struct schema *input = b->bind->inputs[0].schema;
    struct schema *added = arena_new(b->bind->arena, struct schema);
    added->fields = arena_array(b->bind->arena, struct field, USER_COLUMNS_MAX);
    struct schema *output = head->keeps_input ? operator_extend(b->bind, b->count) : added;
    uint32_t first = head->keeps_input ? input->count : 0;
    for (uint32_t i = 0; i < b->count; i++) {
        struct str name =
            arena_str(b->bind->arena, (struct str){b->added[i].name.data, b->added[i].name.length});
        if (schema_find(output, name) >= 0) {
            struct diag *d = diag_error(b->bind->diags, DIAG_COLUMN_TAKEN, b->bind->span,
                                        "there is a column `%.*s` already", STR_ARGS(name));
            diag_hint(b->bind->diags, d, "rename it before the step: `| rename %.*s = other`",
                      STR_ARGS(name));
            return false;
        }
        schema_add(added, name, type_from(b->added[i].type));
        if (output != added)
            schema_add(output, name, type_from(b->added[i].type));
    }
    if (output->count == 0 || output->count > SCHEMA_FIELDS_MAX) {
        say_error(&b->api,
                  output->count == 0 ? "the operator has no output columns"
                                     : "the operator has too many output columns",
                  NULL);
        return false;
    }
    set_lineage(head, output, input, first);
    head->added = added;
    b->bind->outputs[0] = output;
    return true;
}

static bool user_bind(uint32_t slot, struct operator_bind *bind)
{
    struct user_head *head = bind->config;
    head->library = slots[slot].library;
    head->op = slots[slot].op;
    if (!resolve(bind, head))
        return false;
    const struct schema *input = bind->inputs[0].schema;
    struct leat_column_name *columns = arena_array(bind->arena, struct leat_column_name, input->count);
    for (uint32_t i = 0; i < input->count; i++)
        columns[i] = (struct leat_column_name){{input->fields[i].name.data, input->fields[i].name.length},
                                               user_type(input->fields[i].type)};
    struct binding *b = arena_new(bind->arena, struct binding);
    *b = (struct binding){.api = {.config = user_struct(head),
                                  .columns = input->count,
                                  .column = columns,
                                  .keeps_input = true,
                                  .add = add_column,
                                  .read = read_column,
                                  .error = say_error},
                          .bind = bind,
                          .head = head};
    if (head->op->bind != NULL) {
        user_enter(head->library, "`bind` of operator", head->op->name);
        bool is_good = head->op->bind(&b->api);
        user_leave();
        if (!is_good && !b->has_failed)
            say_error(&b->api, "`bind` refuses these options, and gives no reason", NULL);
        if (!is_good || b->has_failed)
            return false;
    }
    head->keeps_input = b->api.keeps_input;
    bind->hold_us = MAX(b->api.hold_us, 0);
    bind->is_timer_kind = head->op->on_watermark != NULL;
    return make_schemas(b, head);
}

/* --- Callbacks --- */

static void begin_call(struct operator_context *context, const char *what)
{
    struct user_head *head = context->config;
    head->context = context;
    head->api.config = user_struct(head);
    head->api.watermark = context->watermark;
    head->api.lane = context->lane;
    head->api.lanes = context->lanes;
    head->api.engine = head;
    user_enter(head->library, what, head->op->name);
}

static bool user_open(struct operator_context *context)
{
    struct user_head *head = context->config;
    user_fill_context(&head->api);
    head->making = mem_calloc(1, sizeof(*head->making));
    head->is_open = true;
    if (head->op->open == NULL)
        return true;
    begin_call(context, "`open` of operator");
    bool is_good = head->op->open(&head->api);
    user_leave();
    if (!is_good)
        diag_error(context->diags, DIAG_BAD_LIBRARY, (struct span){0},
                   "operator `%s` of %s could not be opened", head->op->name, head->library->path);
    return is_good;
}

/* The selected rows as a dense batch, without those whose row_order.sub has no bits left, which are rejected.
 * NULL if no row is left. */
static struct batch *dense_of(struct operator_context *context, struct batch *batch)
{
    struct batch *sources[BATCH_ROWS];
    uint16_t rows[BATCH_ROWS];
    uint32_t count = 0;
    if (batch->sel == NULL && batch->orders == NULL) {
        batch_hold(batch);
        return batch;
    }
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        sources[count] = batch;
        rows[count] = (uint16_t)row;
        if (batch_order(batch, row).sub >> (64 - USER_SUB_SHIFT) == 0)
            count++;
        else
            operator_reject(context, batch, row,
                            "too many earlier steps have each made several rows out of one");
    }
    return count == 0 ? NULL : batch_gather(context->pool, batch->schema, sources, rows, count);
}

static void user_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    struct user_head *head = context->config;
    struct making *m = head->making;
    struct leat_key *keys = NULL;
    if (batch->selected == 0)
        return;
    m->input = dense_of(context, batch);
    if (m->input == NULL)
        return;
    memset(m->seen, 0, sizeof(m->seen));
    memset(m->dead, 0, sizeof(m->dead));
    if (head->op->key != NULL) {
        struct row_keys own = keys_of(m->input, head->keys, head->keys_count, context->scratch);
        keys = arena_array(context->scratch, struct leat_key, m->input->rows);
        for (uint32_t i = 0; i < m->input->rows; i++)
            keys[i] = (struct leat_key){own.keys[i].low, own.keys[i].high, key_group(own.hashes[i])};
    }
    struct leat_batch rows = {.rows = m->input->rows,
                              .columns = m->input->schema->count,
                              .column = user_columns(m->input, head->reads, context->scratch),
                              .event_time = m->input->event_time,
                              .key = keys};
    begin_call(context, "`process` of operator");
    head->op->process(&head->api, &rows);
    user_leave();
    user_flush(head);
    for (uint32_t i = 0; i < m->input->rows; i++) {
        bool is_gone = !bit_get(m->seen, i) && !bit_get(m->dead, i);
        context->counters.absorbed += is_gone && head->op->snapshot != NULL;
        context->counters.filtered += is_gone && head->op->snapshot == NULL;
    }
    batch_release(m->input);
    m->input = NULL;
}

static void user_on_watermark(struct operator_context *context, int64_t watermark)
{
    struct user_head *head = context->config;
    if (head->op->on_watermark == NULL)
        return;
    begin_call(context, "`on_watermark` of operator");
    head->op->on_watermark(&head->api, watermark);
    user_leave();
    user_emit_timers(head);
}

struct writer {
    struct leat_writer api; /* first, because users' pointers to it are cast back */
    struct snapshot_writer *to;
};

enum { RECORD_BYTES_MAX = 16 << 20 };

static bool put(struct leat_writer *api, uint32_t group, const void *data, size_t bytes)
{
    struct writer *writer = (struct writer *)(void *)api;
    leat_assert(bytes <= RECORD_BYTES_MAX && (group < KEY_GROUPS || group == LEAT_ALL_GROUPS));
    return snapshot_put(writer->to, group == LEAT_ALL_GROUPS ? SNAPSHOT_GLOBAL : group, data, bytes);
}

static bool user_snapshot(struct operator_context *context, struct snapshot_writer *writer)
{
    struct user_head *head = context->config;
    struct writer to = {.api = {.put = put}, .to = writer};
    begin_call(context, "`snapshot` of operator");
    bool is_good = head->op->snapshot(&head->api, &to.api);
    user_leave();
    return is_good;
}

static bool user_restore(struct operator_context *context, struct snapshot_reader *reader)
{
    struct user_head *head = context->config;
    uint32_t group;
    struct str record;
    while (snapshot_get(reader, &group, &record)) {
        begin_call(context, "`restore` of operator");
        bool is_good = head->op->restore(&head->api, record.data, record.length);
        user_leave();
        if (!is_good) {
            snapshot_corrupt(reader, context->diags, "the library refuses a record that it wrote");
            return false;
        }
    }
    return true;
}

struct giver {
    struct leat_writer api; /* first, because users' pointers to it are cast back */
    struct byte_buffer *out;
};

static bool put_moved(struct leat_writer *api, uint32_t group, const void *data, size_t bytes)
{
    struct giver *giver = (struct giver *)(void *)api;
    leat_assert(bytes <= RECORD_BYTES_MAX && (group < KEY_GROUPS || group == LEAT_ALL_GROUPS));
    moved_put(giver->out, group == LEAT_ALL_GROUPS ? SNAPSHOT_GLOBAL : group, data, bytes);
    return true;
}

static bool user_give(struct operator_context *context, const struct group_set *leaving,
                      struct byte_buffer *out)
{
    struct user_head *head = context->config;
    struct giver to = {.api = {.put = put_moved}, .out = out};
    bool groups[KEY_GROUPS];
    for (uint32_t group = 0; group < KEY_GROUPS; group++)
        groups[group] = group_set_has(leaving, group);
    begin_call(context, "`give` of operator");
    bool is_good = head->op->give(&head->api, groups, &to.api);
    user_leave();
    if (!is_good)
        operator_fail(context, DIAG_BAD_LIBRARY, (struct span){0},
                      "the library cannot give the state of keys away", "its `give` returned false");
    return is_good;
}

static bool user_take(struct operator_context *context, struct str record)
{
    struct user_head *head = context->config;
    begin_call(context, "`take` of operator");
    bool is_good = head->op->take(&head->api, record.data, record.length);
    user_leave();
    if (!is_good)
        operator_fail(context, DIAG_BAD_LIBRARY, (struct span){0},
                      "the library refuses a record that its `give` wrote", "its `take` returned false");
    return is_good;
}

static void user_close(struct operator_context *context)
{
    struct user_head *head = context->config;
    if (head->is_open && head->op->close != NULL) {
        begin_call(context, "`close` of operator");
        head->op->close(&head->api);
        user_leave();
    }
    if (head->making != NULL) {
        free(head->making->timed);
        free(head->making->timers);
    }
    free(head->making);
    head->making = NULL;
    head->is_open = false;
}

/* --- Kinds --- */

#define SLOT(n)                                                                                              \
    static bool bind_##n(struct operator_bind *bind)                                                         \
    {                                                                                                        \
        return user_bind(n, bind);                                                                           \
    }
#define SLOTS_8(X, a, b, c, d, e, f, g, h) X(a) X(b) X(c) X(d) X(e) X(f) X(g) X(h)
#define SLOTS_ALL(X)                                                                                         \
    SLOTS_8(X, 0, 1, 2, 3, 4, 5, 6, 7)                                                                       \
    SLOTS_8(X, 8, 9, 10, 11, 12, 13, 14, 15)                                                                 \
    SLOTS_8(X, 16, 17, 18, 19, 20, 21, 22, 23)                                                               \
    SLOTS_8(X, 24, 25, 26, 27, 28, 29, 30, 31)
SLOTS_ALL(SLOT)

#define SLOT_NAME(n) bind_##n,
static bool (*const binds[])(struct operator_bind *bind) = {SLOTS_ALL(SLOT_NAME)};
_Static_assert(ARRAY_COUNT(binds) == USER_OPERATORS_MAX, "one for each slot");

const struct operator_kind *user_operator_kind(const struct user_library *library,
                                               const struct leat_operator *op, uint32_t slot,
                                               struct arena *arena)
{
    leat_assert(slot < USER_OPERATORS_MAX);
    slots[slot].library = library;
    slots[slot].op = op;
    struct operator_kind *kind = arena_new(arena, struct operator_kind);
    bool is_by_row_alone =
        op->key == NULL && op->order == LEAT_BY_ROW && op->snapshot == NULL && op->on_watermark == NULL;
    *kind = (struct operator_kind){.name = op->name,
                                   .summary = op->summary,
                                   .example = op->example,
                                   .details = op->details,
                                   .options = user_options(op->options, HEAD_BYTES, arena),
                                   .size = HEAD_BYTES + op->size,
                                   .determinism = op->key != NULL            ? DETERMINISM_BY_RECORD_ORDER
                                                  : op->order == LEAT_BY_ROW ? DETERMINISM_BY_ROW
                                                                             : DETERMINISM_BY_ALL_ROWS,
                                   .uses_time = op->uses_time,
                                   .inputs_min = 1,
                                   .inputs_max = 1,
                                   .bind = binds[slot],
                                   .open = user_open,
                                   .process = user_process,
                                   .read = is_by_row_alone ? user_process : NULL,
                                   .on_watermark = op->on_watermark == NULL ? NULL : user_on_watermark,
                                   .snapshot = op->snapshot == NULL ? NULL : user_snapshot,
                                   .restore = op->restore == NULL ? NULL : user_restore,
                                   .give = op->give == NULL ? NULL : user_give,
                                   .take = op->take == NULL ? NULL : user_take,
                                   .close = user_close};
    return kind;
}
