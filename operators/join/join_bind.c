/* The join's options, checked against the columns of both streams. */
#include "operators/join/join.h"

#define BOUND_MAX (3650 * US_PER_DAY)

/* --- Keys --- */

/* Splits `on k, a = b` into the column names of both sides. */
static bool split_keys(struct operator_bind *bind, struct join *join)
{
    for (int side = 0; side < 2; side++)
        join->on_columns[side].items = arena_array(bind->arena, struct column_ref, join->on.count);
    bool is_good = true;
    for (uint32_t i = 0; i < join->on.count; i++) {
        const struct ast *ast = join->on.items[i];
        bool is_pair = ast->tag == AST_BINARY && ast->op == AST_OP_EQUAL &&
                       ast->children[0]->tag == AST_NAME && ast->children[1]->tag == AST_NAME;
        if (!is_pair && ast->tag != AST_NAME) {
            struct diag *d = diag_error(bind->diags, DIAG_OPTION_TYPE, ast->span,
                                        "`on` takes columns, not `%s`", expr_text(bind->arena, ast));
            diag_hint(bind->diags, d,
                      "write `on k` if both streams have the column, `on a = b` if `%.*s` calls it `b`; "
                      "compute other keys in a step `with` before the join",
                      STR_ARGS(bind->inputs[1].stream));
            is_good = false;
            continue;
        }
        for (int side = 0; side < 2; side++) {
            const struct ast *name = is_pair ? ast->children[side] : ast;
            join->on_columns[side].items[join->on_columns[side].count++] =
                (struct column_ref){name->text, name->span, -1};
        }
    }
    return is_good;
}

/* Refuses `on id = auction` where it must be `on auction = id`. */
static bool check_sides(struct operator_bind *bind, const struct join *join)
{
    const struct schema *left = bind->inputs[0].schema, *right = bind->inputs[1].schema;
    for (uint32_t i = 0; i < join->on_columns[0].count; i++) {
        const struct column_ref *a = &join->on_columns[0].items[i], *b = &join->on_columns[1].items[i];
        if (schema_find(left, a->name) >= 0 || schema_find(right, b->name) >= 0 ||
            schema_find(left, b->name) < 0 || schema_find(right, a->name) < 0)
            continue;
        struct diag *d = diag_error(bind->diags, DIAG_NO_COLUMN, a->span, "`%.*s` is a column of `%.*s`",
                                    STR_ARGS(a->name), STR_ARGS(bind->inputs[1].stream));
        diag_hint(bind->diags, d, "the column of the stream before the `|` comes first: `on %.*s = %.*s`",
                  STR_ARGS(b->name), STR_ARGS(a->name));
        return false;
    }
    return true;
}

static bool bind_keys(struct operator_bind *bind, struct join *join)
{
    if (!split_keys(bind, join) || !check_sides(bind, join))
        return false;
    bool is_good = keys_bind(bind, 0, &join->on_columns[0], &join->keys[0]);
    is_good &= keys_bind(bind, 1, &join->on_columns[1], &join->keys[1]);
    for (uint32_t i = 0; is_good && i < join->on.count; i++) {
        const struct field *left = &bind->inputs[0].schema->fields[join->keys[0][i]];
        const struct field *right = &bind->inputs[1].schema->fields[join->keys[1][i]];
        if (type_equal(&left->type, &right->type))
            continue;
        struct diag *d = diag_error(bind->diags, DIAG_TYPE_CLASH, join->on.items[i]->span,
                                    "`%.*s` is a %s here and `%.*s` a %s in `%.*s`", STR_ARGS(left->name),
                                    type_name(bind->arena, &left->type), STR_ARGS(right->name),
                                    type_name(bind->arena, &right->type), STR_ARGS(bind->inputs[1].stream));
        diag_hint(bind->diags, d, "keys of two types are never equal; `cast` one of them before the join");
        return false;
    }
    return is_good;
}

/* --- Bounds --- */

static bool is_forever(const struct ast *ast)
{
    return ast->tag == AST_NAME && str_is(ast->text, "forever");
}

static bool is_duration(const struct ast *ast)
{
    return ast->tag == AST_DURATION || (ast->tag == AST_INT && ast->integer == 0);
}

static bool check_range(struct operator_bind *bind, const struct ast *bound)
{
    if (bound->integer >= -BOUND_MAX && bound->integer <= BOUND_MAX)
        return true;
    struct diag *d =
        diag_error(bind->diags, DIAG_OUT_OF_RANGE, bound->span, "a bound must be from -3650d to 3650d");
    diag_hint(bind->diags, d, "`within forever` has no bounds");
    return false;
}

static bool bind_high(struct operator_bind *bind, struct join *join, const struct ast *bound)
{
    if (is_forever(bound)) {
        join->high_us = INT64_MAX;
        return true;
    }
    if (is_duration(bound)) {
        join->high_us = bound->integer;
        return check_range(bind, bound);
    }
    join->high = expr_compile(bound, bind->inputs[0].schema, bind->arena, bind->diags);
    if (join->high == NULL)
        return false;
    struct type type = expr_type(join->high);
    if (type.tag == TYPE_INT)
        return true;
    struct diag *d = diag_error(bind->diags, DIAG_TYPE_CLASH, bound->span,
                                "the bound is a %s, not a duration", type_name(bind->arena, &type));
    diag_hint(bind->diags, d,
              "give a length of time: `expires - ts`, or an int times a unit, `minutes * 1m`");
    return false;
}

static bool bind_interval(struct operator_bind *bind, struct join *join, const struct ast *within)
{
    const struct ast *low = within->children[0], *high = within->children[1];
    if (!is_duration(low)) {
        struct diag *d =
            diag_error(bind->diags, DIAG_OPTION_TYPE, low->span,
                       "the lower bound must be a duration that is the same for all rows, such as `-5m` "
                       "or `0s`");
        diag_hint(bind->diags, d,
                  "the lower bound decides how long rows of `%.*s` are kept; only the upper bound may be "
                  "an expression",
                  STR_ARGS(bind->inputs[1].stream));
        return false;
    }
    join->low_us = low->integer;
    if (!check_range(bind, low) || !bind_high(bind, join, high))
        return false;
    if (join->high != NULL || join->low_us <= join->high_us)
        return true;
    struct diag *d = diag_error(bind->diags, DIAG_OUT_OF_RANGE, within->span,
                                "this interval is empty: its end is before its beginning");
    diag_hint(bind->diags, d, "the earlier bound comes first: `within [-5m, 30m]`");
    return false;
}

static bool bind_within(struct operator_bind *bind, struct join *join)
{
    const struct ast *within = join->within.ast;
    if (is_forever(within)) {
        join->is_forever = true;
        join->high_us = INT64_MAX;
        return true;
    }
    if (within->tag == AST_LIST && within->count == 2)
        return bind_interval(bind, join, within);
    struct diag *d = diag_error(bind->diags, DIAG_OPTION_TYPE, within->span,
                                "`within` takes two bounds, [from, to], or `forever`");
    if (within->tag == AST_DURATION)
        diag_hint(bind->diags, d,
                  "`within [0s, %s]`: until that long after the row; `within [-%s, %s]`: also from that long "
                  "before it",
                  ast_text(bind->arena, within), ast_text(bind->arena, within),
                  ast_text(bind->arena, within));
    else
        diag_hint(bind->diags, d,
                  "`within [-5m, 30m]`: rows of `%.*s` from 5 minutes before the row to 30 after it",
                  STR_ARGS(bind->inputs[1].stream));
    return false;
}

static bool bind_bounds(struct operator_bind *bind, struct join *join)
{
    const struct ast *within = join->within.ast, *over = join->over.ast;
    if (within != NULL && over != NULL) {
        diag_error(bind->diags, DIAG_OPTIONS_CLASH, over->span, "a join has `within` or `over`, not both");
        return false;
    }
    if (within == NULL && over == NULL) {
        struct diag *d = diag_error(bind->diags, DIAG_OPTION_MISSING, bind->span,
                                    "the join has neither `within` nor `over`, which say how long rows wait "
                                    "for a match");
        diag_hint(bind->diags, d,
                  "add `within [-5m, 30m]`, `over tumbling(10s)`, or `within forever`, which keeps all rows");
        return false;
    }
    if (over == NULL && (join->offset_us != 0 || join->zone.length > 0)) {
        diag_error(bind->diags, DIAG_OPTIONS_CLASH, within->span,
                   "`offset` and `zone` are used with `over`, not with `within`");
        return false;
    }
    join->is_window = over != NULL;
    if (over != NULL)
        return windows_bind(bind, over, WINDOWS_OF_TIME & ~WINDOWS_BIT(WINDOWS_FOREVER), join->offset_us,
                            join->zone, &join->windows);
    return bind_within(bind, join);
}

struct join_reach join_left_reach(const struct join *join, int64_t time, int64_t high_us, int64_t window)
{
    struct join_reach reach = {TIME_MIN, TIME_MAX, TIME_MAX - 1};
    if (join->is_window) {
        reach.from = windows_start(&join->windows, window);
        reach.to = time_add(windows_end(&join->windows, window), -1);
        reach.until = MIN(reach.to, TIME_MAX - 1);
    } else if (!join->is_forever) {
        reach.from = time_add(time, join->low_us);
        reach.to = time_add(time, high_us);
        reach.until = MIN(time_add(time, MAX(high_us, 0)), TIME_MAX - 1);
    }
    return reach;
}

int64_t join_right_until(const struct join *join, int64_t time)
{
    if (join->is_forever)
        return TIME_MAX - 1;
    if (join->is_window)
        return MIN(time_add(windows_end(&join->windows, windows_last(&join->windows, time)), -1),
                   TIME_MAX - 1);
    return MIN(time_add(time, MAX(-join->low_us, 0)), TIME_MAX - 1);
}

/* --- Choices --- */

static bool wrong_choice(struct operator_bind *bind, const char *message, const char *hint)
{
    struct diag *d = diag_error(bind->diags, DIAG_OPTIONS_CLASH, bind->span, "%s", message);
    diag_hint(bind->diags, d, "%s", hint);
    return false;
}

static bool bind_choices(struct operator_bind *bind, struct join *join)
{
    bool is_good = true;
    bool has_right = join->kind == JOIN_INNER || join->kind == JOIN_LEFT;
    if (join->take != JOIN_ALL && !has_right)
        is_good = wrong_choice(bind,
                               "`kind semi` and `kind anti` add no row of the other stream that `take` "
                               "could choose",
                               "leave `take` out, or choose `kind inner` or `kind left`");
    if (join->take == JOIN_BEST && join->order.count == 0)
        is_good = wrong_choice(bind, "`take best` needs an `order`", "`take best order desc(price), ts`");
    if (join->take != JOIN_BEST && join->order.count > 0)
        is_good = wrong_choice(bind, "`order` is used with `take best` only",
                               "`take first` and `take last` choose by event time");
    if (join->unique != 0 && join->is_window)
        is_good = wrong_choice(bind, "`unique` is used with `within`, not with `over`",
                               "leave `unique` out: rows of a window are kept for the length of the window");
    if (join->take == JOIN_BEST && join->order.count > 0)
        is_good &= ordering_bind(bind, 1, &join->order, "order", &join->ordering);
    if (join->take == JOIN_FIRST || join->take == JOIN_LAST) {
        ordering_of_latest(&join->ordering);
        join->ordering.items[0].is_descending = join->take == JOIN_LAST;
    }
    join->has_deadline = join->kind == JOIN_LEFT || join->kind == JOIN_ANTI || join->take != JOIN_ALL;
    join->is_time_of_left = !join->is_window && join->high == NULL;
    join->is_single = !join->is_window || join->windows.tag == WINDOWS_TUMBLING;
    return is_good;
}

/* --- Columns --- */

static bool is_shared_key(const struct join *join, int column, uint32_t *key)
{
    for (uint32_t i = 0; i < join->on.count; i++)
        if (join->keys[1][i] == column &&
            str_equal(join->on_columns[0].items[i].name, join->on_columns[1].items[i].name)) {
            *key = i;
            return true;
        }
    return false;
}

/* Adds the lineage of the choice of right rows: which ones there are, and what decides which ones match. */
static void chosen_by(const struct operator_bind *bind, const struct join *join, struct lineage *lineage)
{
    lineage_merge(lineage, &bind->inputs[1].schema->rows_lineage);
    keys_lineage(bind, 0, lineage);
    keys_lineage(bind, 1, lineage);
    if (join->high != NULL)
        lineage_merge(lineage, expr_lineage(join->high));
    ordering_lineage(&join->ordering, lineage);
}

/* Adds the other stream's columns to `to`. columns[i]: set to the column of `to` for right column i, or -1.
 * is_late: `to` is the schema of late rows, which have the columns of both streams whatever the kind. */
static bool add_right(struct operator_bind *bind, struct join *join, struct schema *to, bool is_late,
                      int *columns)
{
    const struct schema *right = bind->inputs[1].schema;
    bool is_good = true, has_right = join->kind == JOIN_INNER || join->kind == JOIN_LEFT;
    for (uint32_t i = 0; i < right->count; i++) {
        const struct field *from = &right->fields[i];
        uint32_t key;
        columns[i] = -1;
        if (is_shared_key(join, (int)i, &key)) {
            columns[i] = is_late ? join->keys[0][key] : -1;
            continue;
        }
        struct str name =
            str_from(arena_printf(bind->arena, "%.*s%.*s", STR_ARGS(join->prefix), STR_ARGS(from->name)));
        if (schema_find(to, name) >= 0 && is_late && !has_right)
            name = str_from(arena_printf(bind->arena, "%.*s_%.*s", STR_ARGS(bind->inputs[1].stream),
                                         STR_ARGS(from->name)));
        if (schema_find(to, name) >= 0) {
            struct diag *d = diag_error(bind->diags, DIAG_COLUMN_TAKEN, join->stream.span,
                                        "`%.*s` has a column `%.*s`, but there is one of that name already",
                                        STR_ARGS(bind->inputs[1].stream), STR_ARGS(name));
            diag_hint(bind->diags, d,
                      "`prefix \"%.*s_\"` gives its columns other names; or `drop` or `rename` the column "
                      "before the join",
                      STR_ARGS(bind->inputs[1].stream));
            is_good = false;
            continue;
        }
        columns[i] = (int)to->count;
        struct field *field = schema_add(to, name, from->type);
        field->lineage = from->lineage;
        field->rows_only = from->rows_only;
        field->is_required = from->is_required && join->kind == JOIN_INNER && !is_late;
    }
    return is_good;
}

static bool add_window_columns(struct operator_bind *bind, struct join *join, struct schema *to)
{
    static const char *const names[] = {"window_start", "window_end"};
    join->window_column = join->is_window ? (int)to->count : -1;
    for (int i = 0; i < 2 && join->is_window; i++) {
        if (schema_find(to, str_from(names[i])) >= 0) {
            struct diag *d = diag_error(bind->diags, DIAG_COLUMN_TAKEN, join->over.ast->span,
                                        "`over` adds a column `%s`, but there is one already", names[i]);
            diag_hint(bind->diags, d, "`rename` or `drop` the old one before the join");
            return false;
        }
        (void)schema_add(to, str_from(names[i]), type_of(TYPE_TIME));
    }
    return true;
}

static bool bind_output(struct operator_bind *bind, struct join *join)
{
    const struct schema *left = bind->inputs[0].schema, *right = bind->inputs[1].schema;
    bool has_right = join->kind == JOIN_INNER || join->kind == JOIN_LEFT;
    if (!operator_has_room(bind, right->count + 2))
        return false;
    struct schema *output = operator_extend(bind, right->count + 2);
    struct schema *late = operator_extend(bind, right->count);
    for (int side = 0; side < 2; side++) {
        uint32_t count = MAX(bind->inputs[side].schema->count, 1);
        join->columns[side] = arena_array(bind->arena, int, count);
        join->late_columns[side] = arena_array(bind->arena, int, count);
    }
    for (uint32_t i = 0; i < left->count; i++) {
        join->columns[0][i] = join->late_columns[0][i] = (int)i;
        late->fields[i].is_required = false;
    }
    for (uint32_t i = 0; i < right->count; i++)
        join->columns[1][i] = -1;
    bool is_good = !has_right || add_right(bind, join, output, false, join->columns[1]);
    is_good = is_good && add_window_columns(bind, join, output);
    is_good = is_good && add_right(bind, join, late, true, join->late_columns[1]);
    struct lineage rows = {0};
    chosen_by(bind, join, &rows);
    lineage_merge(&output->rows_lineage, &rows);
    for (uint32_t i = left->count; i < output->count; i++)
        field_chosen(&output->fields[i], &rows);
    /* A left row may be in several output rows, a right row in one for each left row that it matched. */
    output->repeats |=
        has_right && (right->repeats || join->unique != (JOIN_UNIQUE_LEFT | JOIN_UNIQUE_RIGHT));
    bind->outputs[0] = output;
    bind->outputs[1] = join->late = late;
    return is_good;
}

bool join_bind(struct operator_bind *bind)
{
    struct join *join = bind->config;
    join->inputs[0] = bind->inputs[0].schema;
    join->inputs[1] = bind->inputs[1].schema;
    bool is_good = bind_keys(bind, join);
    is_good &= bind_bounds(bind, join);
    is_good &= bind_choices(bind, join);
    bind->needs_memory = true;
    bind->is_timer_kind = join->has_deadline;
    if (join->has_deadline && join->is_time_of_left)
        bind->hold_us = MAX(join->high_us, 0);
    bind->needs_end = join->has_deadline && !join->is_window && join->high_us == INT64_MAX;
    return is_good && bind_output(bind, join);
}

void join_shape(const struct operator_bind *bind, struct byte_buffer *out)
{
    static const char *const kinds[] = {"inner", "left", "anti", "semi"};
    static const char *const takes[] = {"all", "first", "last", "best"};
    const struct join *join = bind->config;
    buffer_printf(out, "=with: %.*s, kind %s, take %s, unique %d\n", STR_ARGS(join->stream.name),
                  kinds[join->kind], takes[join->take], join->unique);
    buffer_printf(out, "=order: ");
    ordering_text(&join->order, out);
    const struct ast *reach = join->is_window ? join->over.ast : join->within.ast;
    buffer_printf(out, "\n=%s: ", join->is_window ? "over" : "within");
    ast_print(out, reach);
    if (join->is_window)
        buffer_printf(out, ", offset %lld us, zone %.*s", (long long)join->offset_us, STR_ARGS(join->zone));
    buffer_printf(out, "\n");
    for (uint32_t i = 0; i < join->on.count; i++)
        buffer_printf(out, "=on %.*s, %.*s: %s\n", STR_ARGS(join->on_columns[0].items[i].name),
                      STR_ARGS(join->on_columns[1].items[i].name),
                      type_name(bind->arena, &join->inputs[0]->fields[join->keys[0][i]].type));
    static const char *const sides[] = {"left", "right"};
    for (int side = 0; side < 2; side++)
        for (uint32_t i = 0; i < join->inputs[side]->count; i++)
            buffer_printf(out, "?column %.*s of %s rows kept: %s\n",
                          STR_ARGS(join->inputs[side]->fields[i].name), sides[side],
                          type_name(bind->arena, &join->inputs[side]->fields[i].type));
}
