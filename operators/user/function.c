/* Functions of libraries, as kernels of expressions. */
#include "operators/expr/node.h"
#include "operators/user/user.h"

static struct user_function functions[USER_FUNCTIONS_MAX];
static struct expr_extra extras[USER_FUNCTIONS_MAX + 1];
static uint32_t functions_count;

/* One call of a user's function, for the rows that are wanted, made dense. */
struct function_call {
    struct leat_call api; /* first, because users' pointers to it are cast back */
    struct expr_call *call;
    const uint16_t *rows; /* rows of the batch, by position in the call; NULL: the same */
    const struct user_function *user;
    uint64_t gone[BATCH_VALID_WORDS]; /* by position: null or failed */
};

static uint32_t row_of(const struct function_call *f, uint32_t row)
{
    return f->rows == NULL ? row : f->rows[row];
}

static void *allocate(struct leat_call *api, size_t bytes)
{
    return arena_alloc(((struct function_call *)(void *)api)->call->frame->scratch, MAX(bytes, 1));
}

static void set_null(struct leat_call *api, uint32_t row)
{
    struct function_call *f = (struct function_call *)(void *)api;
    leat_assert(row < api->rows);
    bit_set(f->gone, row);
    call_null(f->call, row_of(f, row));
}

static void fail(struct leat_call *api, uint32_t row, const char *reason)
{
    struct function_call *f = (struct function_call *)(void *)api;
    leat_assert(row < api->rows);
    bit_set(f->gone, row);
    call_fail_reason(f->call, row_of(f, row),
                     arena_printf(f->call->frame->memory, "%s in `%s`", reason == NULL ? "failed" : reason,
                                  f->user->function->name));
}

static void take_argument(struct function_call *f, const struct expr_vec *from, int type,
                          struct leat_column *to)
{
    struct arena *scratch = f->call->frame->scratch;
    uint32_t count = f->api.rows;
    to->type = type;
    uint64_t *valid = NULL;
    for (uint32_t i = 0; from->column.valid != NULL && i < count; i++)
        if (!vec_is_valid(from, row_of(f, i))) {
            if (valid == NULL) {
                valid = arena_alloc(scratch, BATCH_VALID_WORDS * sizeof(*valid));
                memset(valid, 0xff, BATCH_VALID_WORDS * sizeof(*valid));
            }
            bit_clear(valid, i);
        }
    to->valid = valid;
    if (type == LEAT_TEXT || type == LEAT_BYTES) {
        struct leat_text *texts = arena_array(scratch, struct leat_text, count);
        for (uint32_t i = 0; i < count; i++)
            if (valid == NULL || bit_get(valid, i)) {
                struct str text = vec_text(from, row_of(f, i));
                texts[i] = (struct leat_text){text.data, text.length};
            }
        to->values.texts = texts;
    } else if (type == LEAT_BOOL) {
        uint8_t *bools = arena_calloc(scratch, count, sizeof(*bools));
        for (uint32_t i = 0; i < count; i++)
            if (valid == NULL || bit_get(valid, i))
                bools[i] = from->column.bools[row_of(f, i) & from->mask];
        to->values.bools = bools;
    } else {
        int64_t *ints = arena_calloc(scratch, count, sizeof(*ints));
        for (uint32_t i = 0; i < count; i++)
            if (valid == NULL || bit_get(valid, i))
                ints[i] = from->column.ints[row_of(f, i) & from->mask];
        to->values.ints = ints;
    }
}

static void give_result(struct function_call *f)
{
    struct column *out = &f->call->out->column;
    struct expr_writer writer;
    bool is_text = out->tag == TYPE_TEXT || out->tag == TYPE_BYTES;
    if (is_text)
        writer_init(&writer, f->call, (size_t)f->api.rows * 16);
    for (uint32_t i = 0; i < f->api.rows; i++) {
        uint32_t row = row_of(f, i);
        if (bit_get(f->gone, i))
            continue;
        if (is_text) {
            const struct leat_text *text = &f->api.result.texts[i];
            writer_append(&writer, text->data, text->length);
            writer_end(&writer, row);
        } else if (out->tag == TYPE_BOOL) {
            out->bools[row] = f->api.result.bools[i] != 0;
        } else {
            out->ints[row] = f->api.result.ints[i];
        }
    }
    if (is_text)
        writer_finish(&writer);
}

static void kernel_user(struct expr_call *call)
{
    const struct user_function *user = call->node->aux;
    const struct leat_function *function = user->function;
    bool sees_nulls = (function->flags & LEAT_SEES_NULLS) != 0;
    uint32_t count = sees_nulls ? call->rows.count : call->live_count;
    struct function_call f = {.call = call, .user = user};
    if (count == 0)
        return;
    f.rows = sees_nulls ? call->rows.sel : call->live;
    struct leat_column arguments[EXPR_ARGS_MAX];
    f.api = (struct leat_call){.rows = count,
                               .arguments = call->node->args_count,
                               .argument = arguments,
                               .set_null = set_null,
                               .fail = fail,
                               .allocate = allocate};
    for (uint32_t i = 0; i < call->node->args_count; i++)
        take_argument(&f, &call->args[i], user_type(call->node->args[i]->type), &arguments[i]);
    f.api.result.data = arena_calloc(call->frame->scratch, count, sizeof(struct leat_text));
    user_enter(user->library, "function", function->name);
    function->call(&f.api);
    user_leave();
    give_result(&f);
}

static const struct expr_extra *find(struct str name)
{
    for (uint32_t i = 0; i < functions_count; i++)
        if (str_is(name, extras[i].help.name))
            return &extras[i];
    return NULL;
}

void user_add_function(const struct user_library *library, const struct leat_function *function,
                       bool is_first)
{
    functions_count = is_first ? 0 : functions_count;
    if (function == NULL)
        return;
    leat_assert(functions_count < USER_FUNCTIONS_MAX);
    functions[functions_count] = (struct user_function){library, function};
    bool sees_nulls = (function->flags & LEAT_SEES_NULLS) != 0;
    extras[functions_count] = (struct expr_extra){
        .help = {function->name, function->signature, function->summary, function->example, false},
        .args = function->arguments,
        .result = function->result,
        .flags = EXPR_HEAVY | (sees_nulls ? EXPR_OWN_NULLS : EXPR_LIVE),
        .kernel = kernel_user,
        .aux = &functions[functions_count]};
    functions_count++;
    expr_find_extra = find;
}
