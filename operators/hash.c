/* hash: adds a column with the hash of one or more columns, or with the hash's bucket among n. */
#include "operators/expr/compute.h"

struct hash {
    struct columns columns;
    int64_t buckets;
    struct name_ref name;
    struct compute compute;
};

static const struct option hash_options[] = {
    OPTION_COLUMNS(struct hash, columns, "columns", OPTION_REQUIRED | OPTION_POSITIONAL,
                   "the columns to hash together"),
    OPTION_INT(struct hash, buckets, "into", 0, "0", "0", NULL,
               "the number of buckets; 0: the hash itself, 64 bits"),
    OPTION_NAME(struct hash, name, "as", OPTION_REQUIRED, "the new column"),
    OPTIONS_END,
};

static bool hash_bind(struct operator_bind *bind)
{
    struct hash *hash = bind->config;
    struct arena *arena = bind->arena;
    if (hash->columns.count > 16) {
        diag_error(bind->diags, DIAG_OUT_OF_RANGE, bind->span, "`hash` takes at most 16 columns");
        return false;
    }
    const struct ast *names[16];
    for (uint32_t i = 0; i < hash->columns.count; i++)
        names[i] = compute_name(arena, hash->columns.items[i].name, hash->columns.items[i].span);
    bool is_single = hash->columns.count == 1;
    struct ast *value = is_single && hash->buckets > 0 ? (struct ast *)names[0]
                                                       : compute_call(arena, is_single ? "hash" : "cross",
                                                                      bind->span, names, hash->columns.count);
    if (hash->buckets > 0) {
        struct ast *buckets = arena_new(arena, struct ast);
        *buckets = (struct ast){.tag = AST_INT, .span = bind->span, .integer = hash->buckets, .height = 1};
        const struct ast *args[] = {value, buckets};
        value = compute_call(arena, "hash_mod", bind->span, args, 2);
    }
    return compute_extend(bind, &hash->compute, 1) &&
           compute_add(bind, &hash->compute, value, hash->compute.schema, hash->name.name, hash->name.span) &&
           compute_done(bind, &hash->compute);
}

static void hash_process(struct operator_context *context, uint32_t input, struct batch *batch)
{
    (void)input;
    const struct hash *hash = context->config;
    compute_process(context, &hash->compute, batch);
}

const struct operator_kind operator_hash = {
    .name = "hash",
    .summary = "adds the hash of columns, or the number of its bucket",
    .example = "events | hash user_id into 1000 as user_bucket",
    .details = "The functions hash, hash_mod and cross do the same in expressions.",
    .options = hash_options,
    .size = sizeof(struct hash),
    .determinism = DETERMINISM_BY_ROW,
    .keeps_columns = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = hash_bind,
    .process = hash_process,
    .read = hash_process,
};
