#include "cli/rows_file.h"

#include "core/mem.h"
#include "lang/lang.h"

#include <stdlib.h>

struct rows_file {
    const struct source_kind *kind;
    struct source source;
    struct arena arena;
    struct raw_batch raw;
    void *decoder;
    uint32_t partition;
    struct batch_pool *pool;
    struct diag_list *diags;
};

static void no_wake(void *engine LEAT_UNUSED)
{
}

static struct ast *value_of(struct arena *arena, enum ast_tag tag, const char *text)
{
    struct ast *value = arena_new(arena, struct ast);
    *value = (struct ast){.tag = tag, .text = str_from(text), .height = 1};
    return value;
}

/* Chooses the kind of source for the path, and writes the entries of its options; returns their number. */
static uint32_t choose(struct rows_file *file, const struct registry *registry, const char *path,
                       struct ast_entry entries[2])
{
    const struct source_kind *kafka = registry_source(registry, STR("kafka"));
    if (strcmp(path, "-") == 0) {
        file->kind = registry_source(registry, STR("console"));
        entries[0] = (struct ast_entry){STR("format"), {0}, value_of(&file->arena, AST_NAME, "json")};
        return 1;
    }
    if (kafka != NULL && kafka->replay != NULL && kafka->is_recording(str_from(path))) {
        file->kind = kafka->replay; /* asks no brokers; all topics of the recording */
        entries[0] =
            (struct ast_entry){STR("brokers"), {0}, value_of(&file->arena, AST_TEXT, "localhost:9092")};
        entries[1] = (struct ast_entry){STR("topic"), {0}, value_of(&file->arena, AST_TEXT, "^.*")};
        return 2;
    }
    file->kind = registry_source(registry, STR("file"));
    entries[0] = (struct ast_entry){STR("path"), {0}, value_of(&file->arena, AST_TEXT, path)};
    return 1;
}

static bool bind(struct rows_file *file, const struct registry *registry, const char *path, const char *what,
                 const struct schema *schema)
{
    struct option_env env = {&file->arena, file->diags, lang_parse_value};
    struct ast_entry entries[2];
    uint32_t count = choose(file, registry, path, entries);
    void *config = arena_calloc(&file->arena, 1, file->kind->size);
    struct source_bind bind = {.config = config,
                               .arena = &file->arena,
                               .diags = file->diags,
                               .declared = schema,
                               .recording = str_from(path),
                               .may_lack = true};
    if (!option_bind(file->kind->options, what, (struct span){0}, entries, count, config, &env) ||
        !file->kind->bind(&bind))
        return false;
    file->source = (struct source){.config = config,
                                   .schema = schema,
                                   .arena = &file->arena,
                                   .diags = file->diags,
                                   .wake = no_wake,
                                   .job = STR("leat"),
                                   .name = STR("rows")};
    return file->kind->open(&file->source);
}

struct rows_file *rows_file_open(const struct registry *registry, const char *path, const char *what,
                                 const struct schema *schema, struct batch_pool *pool,
                                 struct diag_list *diags)
{
    struct rows_file *file = mem_calloc(1, sizeof(*file));
    file->pool = pool;
    file->diags = diags;
    if (bind(file, registry, path, what, schema)) {
        if (file->kind->decoder_new != NULL)
            file->decoder = file->kind->decoder_new(&file->source);
        return file;
    }
    rows_file_close(file);
    return NULL;
}

void rows_file_close(struct rows_file *file)
{
    if (file == NULL)
        return;
    if (file->decoder != NULL)
        file->kind->decoder_free(file->decoder);
    if (file->source.config != NULL && file->kind->close != NULL)
        file->kind->close(&file->source);
    arena_free(&file->raw.arena);
    arena_free(&file->arena);
    free(file);
}

static enum rows_status read_more(struct rows_file *file)
{
    while (file->partition < file->source.partitions_count) {
        arena_reset(&file->raw.arena);
        switch (file->kind->read(&file->source, file->partition, &file->raw)) {
        case READ_BATCH: return ROWS_READ;
        case READ_END: file->partition++; break;
        case READ_ERROR: return ROWS_END;
        case READ_LATER:
        case READ_QUIET: return ROWS_WAIT;
        }
    }
    return ROWS_END;
}

static const char *reason_of(const struct bad_record *bad, struct arena *arena)
{
    return bad->column == UINT32_MAX ? arena_strdup(arena, bad->reason)
                                     : arena_printf(arena, "%s, at byte %u", bad->reason, bad->column);
}

enum rows_status rows_file_next(struct rows_file *file, struct batch **rows, const char ***reasons)
{
    enum rows_status status = read_more(file);
    if (status != ROWS_READ)
        return status;
    struct batch *batch = batch_new(file->pool, file->source.schema, file->raw.count);
    batch->partition = 0;
    batch_number(batch, 0, NULL);
    struct decode_output output = {
        .batch = batch,
        .bad = arena_alloc(&batch->arena, MAX(file->raw.count, 1) * sizeof(struct bad_record))};
    file->kind->decode(&file->source, file->decoder, &file->raw, &output);
    *reasons = arena_array(&batch->arena, const char *, MAX(batch->rows, 1));
    for (uint32_t i = 0; i < output.bad_count; i++)
        (*reasons)[output.bad[i].row] = reason_of(&output.bad[i], &batch->arena);
    *rows = batch;
    return ROWS_READ;
}
