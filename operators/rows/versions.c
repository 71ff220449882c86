#include "operators/rows/versions.h"

#include "core/describe.h"
#include "operators/keys.h"

/* The head of an entry's value. */
struct head {
    uint32_t last; /* offset of the newest version */
    uint32_t kept; /* bytes of the value after the last drop of old versions */
};

static struct version *version_at(char *data, size_t offset)
{
    return (struct version *)(void *)(data + offset);
}

/* Bytes of a whole version whose values have `bytes` bytes. */
static uint32_t version_size(size_t bytes)
{
    return (uint32_t)((sizeof(struct version) + bytes + 7) & ~(size_t)7);
}

const struct version *versions_last(const struct keyed_slot *slot)
{
    uint32_t bytes = 0;
    char *data = slot == NULL ? NULL : keyed_read(slot, &bytes);
    return bytes == 0 ? NULL : version_at(data, ((struct head *)(void *)data)->last);
}

const struct version *version_before(const struct version *version)
{
    const char *at = (const char *)version - version->before;
    return version->before == 0 ? NULL : (const struct version *)(const void *)at;
}

const struct version *version_after(const struct version *version)
{
    const char *at = (const char *)version + version_size(version->bytes);
    return (const struct version *)(const void *)at;
}

const struct version *versions_first(const struct keyed_slot *slot)
{
    uint32_t bytes = 0;
    char *data = slot == NULL ? NULL : keyed_read(slot, &bytes);
    return bytes == 0 ? NULL : version_at(data, sizeof(struct head));
}

/* --- Adding --- */

/* The offset of the first version that is still needed: the newest one that is not after the floor. */
static size_t needed_from(char *data, int64_t floor_us)
{
    const struct version *version = version_at(data, ((struct head *)(void *)data)->last);
    while (version->time > floor_us && version->before > 0)
        version = version_before(version);
    return (size_t)((const char *)version - data);
}

/* Removes the versions before the one at `offset`. */
static void drop_before(struct keyed_table *table, struct keyed_slot *slot, size_t offset)
{
    uint32_t bytes;
    keyed_read(slot, &bytes);
    uint32_t gone = (uint32_t)(offset - sizeof(struct head));
    char *data = keyed_write(table, slot, bytes, TIME_MIN);
    if (gone > 0) {
        memmove(data + sizeof(struct head), data + offset, bytes - offset);
        ((struct head *)(void *)data)->last -= gone;
        version_at(data, sizeof(struct head))->before = 0;
        data = keyed_write(table, slot, bytes - gone, TIME_MIN);
    }
    ((struct head *)(void *)data)->kept = bytes - gone;
}

/* Drops the oldest versions of a full entry, until it is at most half full with `growth` bytes more, or has
 * one version left. Returns how many were dropped. */
static uint32_t drop_half(struct keyed_table *table, struct keyed_slot *slot, uint32_t growth)
{
    uint32_t bytes, count = 0;
    char *data = keyed_read(slot, &bytes);
    const struct version *version = version_at(data, sizeof(struct head));
    const struct version *last = version_at(data, ((struct head *)(void *)data)->last);
    size_t left = bytes;
    while (version != last && left + growth > VERSIONS_BYTES_MAX / 2) {
        left -= version_size(version->bytes);
        version = version_after(version);
        count++;
    }
    drop_before(table, slot, (size_t)((const char *)version - data));
    return count;
}

/* Inserts the new version, of `size` bytes, before the version at `offset`; appends it if `offset` is the end
 * of the entry's value. */
static void insert_at(struct keyed_table *table, struct keyed_slot *slot, size_t offset, uint32_t size,
                      const struct version_new *new)
{
    uint32_t bytes;
    keyed_read(slot, &bytes);
    char *data = keyed_write(table, slot, bytes + size, new->expire_us);
    struct head *head = (struct head *)(void *)data;
    struct version *version = version_at(data, offset);
    uint32_t before = 0;
    if (offset < bytes) { /* a version follows */
        before = version->before;
        memmove(data + offset + size, data + offset, bytes - offset);
        version_at(data, offset + size)->before = size;
        head->last += size;
    } else {
        before = offset == sizeof(*head) ? 0 : (uint32_t)(offset - head->last);
        head->last = (uint32_t)offset;
    }
    memset(version, 0, size);
    *version = (struct version){.time = new->time, .bytes = (uint32_t) new->data.length, .before = before};
    if (new->data.length > 0)
        memcpy(version->data, new->data.data, new->data.length);
}

/* Replaces the values of the version at `offset` by those of the new version; size: bytes of the new version
 * as a whole. */
static void replace_at(struct keyed_table *table, struct keyed_slot *slot, size_t offset, uint32_t size,
                       const struct version_new *new)
{
    uint32_t bytes;
    char *data = keyed_read(slot, &bytes);
    struct version *version = version_at(data, offset);
    uint32_t old = version_size(version->bytes), behind = bytes - (uint32_t)offset - old;
    uint32_t room = MAX(bytes, bytes - old + size);
    data = keyed_write(table, slot, room, new->expire_us);
    struct head *head = (struct head *)(void *)data;
    bool is_last = head->last == offset;
    memmove(data + offset + size, data + offset + old, behind);
    version = version_at(data, offset);
    memset(version->data, 0, size - sizeof(*version));
    version->bytes = (uint32_t) new->data.length;
    if (new->data.length > 0)
        memcpy(version->data, new->data.data, new->data.length);
    if (!is_last) {
        version_at(data, offset + size)->before = size;
        head->last = head->last - old + size;
    }
    (void)keyed_write(table, slot, bytes - old + size, new->expire_us);
}

uint32_t versions_add(struct keyed_table *table, struct keyed_slot *slot, const struct version_new *new)
{
    uint32_t bytes, size = version_size(new->data.length), dropped = 0;
    char *data = keyed_read(slot, &bytes);
    if (bytes == 0) {
        data = keyed_write(table, slot, sizeof(struct head), new->expire_us);
        *(struct head *)(void *)data = (struct head){.kept = (uint32_t)sizeof(struct head) + size};
        insert_at(table, slot, sizeof(struct head), size, new);
        return 0;
    }
    uint32_t kept = ((const struct head *)(const void *)data)->kept;
    if (bytes + size > MIN(2 * kept, (uint32_t)VERSIONS_BYTES_MAX))
        drop_before(table, slot, needed_from(data, new->floor_us));
    keyed_read(slot, &bytes);
    if (bytes + size > VERSIONS_BYTES_MAX)
        dropped = drop_half(table, slot, size);
    data = keyed_read(slot, &bytes);
    const struct version *after = versions_last(slot);
    size_t offset = bytes;
    for (; after != NULL && after->time > new->time; after = version_before(after))
        offset = (size_t)((const char *)after - data);
    if (after != NULL && after->time == new->time &&new->replaces_equal)
        replace_at(table, slot, (size_t)((const char *)after - data), size, new);
    else
        insert_at(table, slot, offset, size, new);
    return dropped;
}

bool versions_have_room(const struct keyed_slot *slot, size_t bytes, size_t limit)
{
    uint32_t used;
    keyed_read(slot, &used);
    return used + version_size(bytes) <= limit;
}

void versions_remove(struct keyed_table *table, struct keyed_slot *slot, const struct version *first,
                     const struct version *last)
{
    uint32_t bytes;
    char *data = keyed_read(slot, &bytes);
    size_t from = (size_t)((const char *)first - data);
    size_t to = (size_t)((const char *)last - data) + version_size(last->bytes);
    uint32_t before = first->before, gone = (uint32_t)(to - from);
    if (gone + sizeof(struct head) == bytes) {
        (void)keyed_write(table, slot, 0, TIME_MIN);
        return;
    }
    data = keyed_write(table, slot, bytes, TIME_MIN);
    struct head *head = (struct head *)(void *)data;
    if (to == bytes) {
        head->last = (uint32_t)from - before;
    } else {
        version_at(data, to)->before = before;
        memmove(data + from, data + to, bytes - to);
        head->last -= gone;
    }
    head->kept -= MIN(gone, head->kept);
    (void)keyed_write(table, slot, bytes - gone, TIME_MIN);
}

/* --- Columns --- */

bool version_columns_bind(struct operator_bind *bind, const struct assignments *body,
                          const struct schema *schema, struct version_columns *columns)
{
    if (body->count > VERSION_COLUMNS_MAX) {
        diag_error(bind->diags, DIAG_TOO_MANY, bind->span, "more than %d columns", VERSION_COLUMNS_MAX);
        return false;
    }
    uint32_t count = MAX(body->count, 1);
    *columns = (struct version_columns){.exprs = arena_array(bind->arena, struct expr *, count),
                                        .types = arena_array(bind->arena, struct type, count),
                                        .names = arena_array(bind->arena, struct str, count),
                                        .spans = arena_array(bind->arena, struct span, count),
                                        .lineages = arena_array(bind->arena, struct lineage, count),
                                        .count = body->count};
    bool is_good = true;
    for (uint32_t i = 0; i < body->count; i++) {
        columns->names[i] = body->items[i].name;
        columns->spans[i] = body->items[i].name_span;
        columns->exprs[i] = expr_compile(body->items[i].value, schema, bind->arena, bind->diags);
        is_good &= columns->exprs[i] != NULL;
        if (columns->exprs[i] == NULL)
            continue;
        columns->types[i] = expr_type(columns->exprs[i]);
        columns->lineages[i] = *expr_lineage(columns->exprs[i]);
    }
    return is_good;
}

bool version_columns_add(struct operator_bind *bind, const struct version_columns *columns,
                         const struct lineage *chosen, const struct schema *from, struct schema *output)
{
    bool is_good = true;
    for (uint32_t i = 0; i < columns->count; i++) {
        struct field *field =
            operator_add_column(bind, output, columns->names[i], columns->types[i], columns->spans[i]);
        is_good &= field != NULL;
        if (field == NULL)
            continue;
        field->lineage = columns->lineages[i];
        lineage_merge(&field->lineage, chosen);
        field_chosen(field, &from->rows_lineage);
    }
    return is_good;
}

void version_columns_shape(const struct operator_bind *bind, const struct version_columns *columns,
                           const struct assignments *body, struct byte_buffer *out)
{
    for (uint32_t i = 0; i < columns->count; i++)
        buffer_printf(out, "=value %.*s: %s, %s\n", STR_ARGS(columns->names[i]),
                      ast_text(bind->arena, body->items[i].value),
                      type_name(bind->arena, &columns->types[i]));
}

struct column *version_columns_evaluate(const struct version_columns *columns, const struct batch *batch,
                                        struct arena *scratch, struct expr_errors *errors)
{
    struct column *values = arena_array(scratch, struct column, MAX(columns->count, 1));
    for (uint32_t i = 0; i < columns->count; i++)
        expr_eval(columns->exprs[i], batch, scratch, scratch, &values[i], errors);
    return values;
}

void version_encode(const struct version_columns *columns, const struct column *values, uint32_t row,
                    struct byte_buffer *out)
{
    for (uint32_t i = 0; i < columns->count; i++)
        row_encode_value(out, &values[i], &columns->types[i], row);
}

struct column_builder *version_builders(const struct version_columns *columns, struct batch *batch,
                                        uint32_t first, struct arena *scratch)
{
    struct column_builder *builders = arena_array(scratch, struct column_builder, MAX(columns->count, 1));
    for (uint32_t i = 0; i < columns->count; i++)
        builder_init(&builders[i], batch, &batch->columns[first + i], columns->types[i]);
    return builders;
}

void version_read(const struct version_columns *columns, struct column_builder *builders, uint32_t row,
                  const struct version *version)
{
    const char *at = version == NULL ? NULL : version->data,
               *end = version == NULL ? NULL : at + version->bytes;
    for (uint32_t i = 0; i < columns->count; i++)
        if (at == NULL || !builder_decode(&builders[i], row, &at, end)) {
            builder_null(&builders[i], row);
            at = NULL;
        }
}

/* --- Description --- */

static void describe_version(const struct version_columns *columns, const struct schema *schema,
                             const struct version *version, struct operator_context *context,
                             struct describe *out)
{
    struct batch *batch = batch_new(context->pool, schema, 1);
    struct column_builder *builders = version_builders(columns, batch, 0, context->scratch);
    version_read(columns, builders, 0, version);
    describe_record(out, NULL);
    describe_time(out, "time", version->time);
    for (uint32_t i = 0; i < columns->count; i++) {
        builder_finish(&builders[i]);
        describe_value(out, arena_strndup(context->scratch, columns->names[i].data, columns->names[i].length),
                       &batch->columns[i], &columns->types[i], 0);
    }
    describe_close(out);
    batch_release(batch);
}

void versions_describe(const struct version_columns *columns, const struct keyed_slot *slot, const char *name,
                       struct operator_context *context, struct describe *out)
{
    struct schema empty = {0};
    struct schema *schema = schema_copy(context->scratch, &empty, columns->count);
    for (uint32_t i = 0; i < columns->count; i++)
        (void)schema_add(schema, columns->names[i], columns->types[i]);
    const struct version *version = versions_last(slot), *last = version;
    while (version != NULL && version->before > 0)
        version = version_before(version);
    describe_list(out, name);
    for (; version != NULL && !describe_is_full(out);
         version = version == last ? NULL : version_after(version))
        describe_version(columns, schema, version, context, out);
    describe_close(out);
}
