/* lookup: adds columns of a table in a file, by key.
 *
 * The file is read once, when the job begins, and is an input of the run like its sources: a row gets what
 * the file says for its key, wherever and whenever it is processed, so rows need not move between lanes. A
 * checkpoint holds the table's digest, not the table. A resume with other content is refused, as its output
 * would not be a function of the run's input any more (`--from` begins a new run with the current table and
 * the old run's state).
 *
 * With `refresh`, in a job with a live source and checkpoints, a new table takes effect at a checkpoint
 * (lookup_versions.h). A job whose sources end, a replay among them, uses the file as it is when the job
 * begins; a replay of a live run's order log uses the versions that the live run used. For changes of single
 * rows at their own time, make them a stream and use `enrich`. */
#include "operators/expr/compute.h"
#include "operators/keys.h"
#include "operators/lookup/lookup_kept.h"
#include "operators/lookup/lookup_versions.h"
#include "operators/pairs.h"
#include "operators/tally.h"

enum { LOOKUP_LEFT, LOOKUP_INNER };
enum { TABLE_BYTES_LEAST = 1 << 20 };
/* Indices into tally.values. */
enum { LOOKUP_UNMATCHED };

/* Made by bind, shared by the lanes. The first lane to open loads the table and the last one to close frees
 * it, both on the control thread. */
struct shared {
    struct lookup_source source;
    struct lookup_table *table; /* NULL with `refresh` */
    struct versions *versions;  /* with `refresh`; else NULL */
    uint32_t users;
    bool has_failed; /* opening has failed, and a lane has given the diagnostic */
};

struct lookup {
    struct str path;
    struct assignments on;
    struct schema *columns;
    int format;
    int duplicates;
    int kind;
    int64_t refresh_us; /* 0: never */
    /* Made by bind. */
    int *keys;
    struct shared *shared;
    const struct schema *input;
    /* Of the lane. */
    bool is_user;
    struct version_seat seat;
    struct tally tally;
    char restored
        [LOOKUP_DIGEST_BYTES]; /* with versions: the digest in the checkpoint that is being restored */
    bool has_restored;
};

static const struct option lookup_options[] = {
    OPTION_TEXT(struct lookup, path, "file",
                OPTION_REQUIRED | OPTION_POSITIONAL | OPTION_RUNTIME | OPTION_READS | OPTION_INPUT, NULL,
                "the table, with one row for each key: a file that source `file` can read, or a glob for "
                "several files"),
    OPTION_ASSIGNMENTS(
        struct lookup, on, "on", OPTION_REQUIRED,
        "the key columns: `on item_id`, or `on item_id = id` if the table's column is called `id`"),
    OPTION_ENUM(struct lookup, format, "format", 0, "auto", "auto|json|csv|msgpack|batches",
                "the format of the file; auto: by its suffix"),
    OPTION_ENUM(struct lookup, duplicates, "duplicates", 0, "refuse", "refuse|first|last",
                "for a key with several rows: refuse: an error; first, last: the row that counts"),
    OPTION_ENUM(struct lookup, kind, "kind", 0, "left", "left|inner",
                "left: a row whose key is not in the table gets nulls; inner: it is filtered out"),
    OPTION_DURATION(
        struct lookup, refresh_us, "refresh", OPTION_RUNTIME, NULL, "1s", "365d",
        "how often to look whether the file has been replaced, and to change to the new one; by default it "
        "is read once"),
    OPTION_SCHEMA(
        struct lookup, columns, "columns", OPTION_REQUIRED | OPTION_BODY,
        "the new columns, with the names and types that they have in the table: `{ category: text, brand: "
        "text }`"),
    OPTIONS_END,
};

/* --- Binding --- */

static bool bind_keys(struct operator_bind *bind, struct lookup *lookup, struct columns *own,
                      struct columns *other)
{
    const struct schema *input = bind->inputs[0].schema;
    if (!pairs_split(bind, &lookup->on, own, other) || !columns_resolve(own, input, bind->arena, bind->diags))
        return false;
    bool is_good = true;
    lookup->keys = arena_array(bind->arena, int, own->count);
    for (uint32_t i = 0; i < own->count; i++) {
        lookup->keys[i] = own->items[i].index;
        const struct type *type = &input->fields[own->items[i].index].type;
        if (type->tag != TYPE_LIST)
            continue;
        diag_error(bind->diags, DIAG_TYPE_CLASH, own->items[i].span, "`%.*s` is a %s, which cannot be a key",
                   STR_ARGS(own->items[i].name), type_name(bind->arena, type));
        is_good = false;
    }
    return is_good;
}

/* The schema of the file: the key columns, with the types that the input gives them, then the new columns. */
static struct schema *table_schema(struct operator_bind *bind, struct lookup *lookup,
                                   const struct columns *own, const struct columns *other)
{
    struct schema empty = {0};
    struct schema *schema = schema_copy(bind->arena, &empty, own->count + lookup->columns->count);
    for (uint32_t i = 0; i < own->count; i++)
        (void)schema_add(schema, other->items[i].name, bind->inputs[0].schema->fields[lookup->keys[i]].type);
    for (uint32_t i = 0; i < lookup->columns->count; i++) {
        const struct field *field = &lookup->columns->fields[i];
        if (schema_find(schema, field->name) >= 0) {
            struct diag *d = diag_error(bind->diags, DIAG_COLUMN_TAKEN, bind->span,
                                        "`%.*s` is a column of the key", STR_ARGS(field->name));
            diag_hint(bind->diags, d, "leave the column out: every row that matches already has its value");
            return NULL;
        }
        schema_add(schema, field->name, field->type)->is_required = field->is_required;
    }
    return schema;
}

static struct ast *value_of(struct operator_bind *bind, enum ast_tag tag, struct str text)
{
    struct ast *ast = arena_new(bind->arena, struct ast);
    *ast = (struct ast){.tag = tag, .span = bind->span, .text = text, .text_span = bind->span, .height = 1};
    return ast;
}

/* Binds a source `file` for the table. It is not one of the plan's sources. */
static bool bind_source(struct operator_bind *bind, const struct lookup *lookup, struct lookup_source *source)
{
    static const char *const formats[] = {"auto", "json", "csv", "msgpack", "batches"};
    const struct source_kind *kind = registry_source(bind->registry, STR("file"));
    leat_assert(kind != NULL);
    source->kind = kind;
    source->config = arena_calloc(bind->arena, 1, kind->size);
    struct ast_entry entries[] = {
        {STR("path"), bind->span, value_of(bind, AST_TEXT, lookup->path)},
        {STR("format"), bind->span, value_of(bind, AST_NAME, str_from(formats[lookup->format]))}};
    if (!option_bind(kind->options, "`lookup`", bind->span, entries, ARRAY_COUNT(entries), source->config,
                     bind->env))
        return false;
    struct source_bind file = {.config = source->config,
                               .arena = bind->arena,
                               .diags = bind->diags,
                               .span = bind->span,
                               .declared = source->schema};
    return kind->bind(&file);
}

static bool add_columns(struct operator_bind *bind, const struct lookup *lookup)
{
    bool is_good = true;
    if (!operator_has_room(bind, lookup->columns->count))
        return false;
    struct schema *output = operator_extend(bind, lookup->columns->count);
    struct lineage keys = {0};
    for (uint32_t i = 0; i < lookup->on.count; i++)
        lineage_merge(&keys, &lookup->input->fields[lookup->keys[i]].lineage);
    if (lookup->kind == LOOKUP_INNER) /* the keys decide which rows pass */
        lineage_merge(&output->rows_lineage, &keys);
    for (uint32_t i = 0; i < lookup->columns->count; i++) {
        const struct field *field = &lookup->columns->fields[i];
        struct field *added = operator_add_column(bind, output, field->name, field->type, bind->span);
        is_good &= added != NULL;
        if (added != NULL)
            added->lineage = keys;
    }
    bind->outputs[0] = output;
    return is_good;
}

/* `refresh` takes a single file. */
static bool check_refresh(struct operator_bind *bind, const struct lookup *lookup)
{
    bool is_one = lookup->path.length > 0 && lookup->path.data[lookup->path.length - 1] != '/';
    for (size_t i = 0; i < lookup->path.length; i++)
        is_one &= strchr("*?[", lookup->path.data[i]) == NULL;
    if (lookup->refresh_us == 0 || is_one)
        return true;
    struct diag *d =
        diag_error(bind->diags, DIAG_OPTIONS_CLASH, bind->span,
                   "`refresh` takes one file, but `%.*s` can be several", STR_ARGS(lookup->path));
    diag_hint(bind->diags, d,
              "several files cannot be replaced at the same moment: put the table into one file");
    return false;
}

static bool lookup_bind(struct operator_bind *bind)
{
    struct lookup *lookup = bind->config;
    struct columns own, other;
    lookup->input = bind->inputs[0].schema;
    if (!bind_keys(bind, lookup, &own, &other))
        return false;
    lookup->shared = arena_new(bind->arena, struct shared);
    struct lookup_source *source = &lookup->shared->source;
    *source =
        (struct lookup_source){.key_count = own.count,
                               .path = arena_strndup(bind->arena, lookup->path.data, lookup->path.length),
                               .duplicates = (enum lookup_duplicates)lookup->duplicates,
                               .span = bind->span};
    source->schema = table_schema(bind, lookup, &own, &other);
    bind->needs_memory = true;
    bool is_good = check_refresh(bind, lookup) && source->schema != NULL && bind_source(bind, lookup, source);
    return add_columns(bind, lookup) && is_good;
}

static void open_shared(struct lookup *lookup, struct operator_context *context)
{
    struct shared *shared = lookup->shared;
    struct lookup_source *source = &shared->source;
    source->budget_bytes = MAX((size_t)context->memory_bytes * context->lanes, (size_t)TABLE_BYTES_LEAST);
    if (lookup->refresh_us > 0) {
        struct lookup_source version = *source;
        version.is_version = true;
        version.budget_bytes /= 2; /* during a change two tables are in memory */
        shared->versions = versions_new(&version, lookup->refresh_us, context);
    }
    if (shared->versions != NULL)
        return;
    shared->table = lookup_table_load(source, source->config, context->pool, context->diags);
    shared->has_failed = shared->table == NULL;
}

static bool lookup_open(struct operator_context *context)
{
    struct lookup *lookup = context->config;
    struct shared *shared = lookup->shared;
    if (shared->users == 0 && !shared->has_failed)
        open_shared(lookup, context);
    lookup->is_user = !shared->has_failed;
    shared->users += lookup->is_user;
    if (shared->versions == NULL || versions_wait_for_restore(shared->versions))
        return lookup->is_user;
    return versions_begin(shared->versions, context, (struct str){0}, &lookup->seat);
}

static const struct lookup_table *table_of(const struct lookup *lookup)
{
    const struct version *version = lookup->seat.version;
    return version != NULL ? version_table(version) : lookup->shared->table;
}

/* --- Rows --- */

/* Removes the rows that have no match in the table. */
static void keep_found(struct operator_context *context, const struct lookup_row *const *found,
                       struct batch *out)
{
    uint16_t *sel = arena_alloc(&out->arena, (out->selected + 1) * sizeof(*sel));
    uint32_t count = 0;
    for (uint32_t i = 0; i < out->selected; i++) {
        sel[count] = (uint16_t)batch_row(out, i);
        count += found[i] != NULL;
    }
    context->counters.filtered += out->selected - count;
    out->sel = sel;
    out->selected = count;
}

/* Adds the table's columns to the batch and emits the batch. Returns how many rows have no match. */
static uint32_t look_up(struct operator_context *context, const struct lookup *lookup, struct batch *batch)
{
    const struct lookup_table *table = table_of(lookup);
    struct row_keys keys = keys_of(batch, lookup->keys, lookup->on.count, context->scratch);
    const struct lookup_row *found[BATCH_ROWS];
    uint32_t base = batch->schema->count, unmatched = 0;
    lookup_table_find(table, keys.keys, keys.hashes, batch->selected, found);
    for (uint32_t i = 0; i < batch->selected; i++) {
        context->counters.null_keys += keys.has_null[i];
        found[i] = keys.has_null[i] ? NULL : found[i];
        unmatched += found[i] == NULL;
    }
    struct batch *out = batch_derive(batch, context->output);
    for (uint32_t i = 0; i < lookup->columns->count; i++)
        lookup_table_column(table, i, found, out, &out->columns[base + i]);
    if (lookup->kind == LOOKUP_INNER)
        keep_found(context, found, out);
    context->counters.passed += out->selected;
    operator_emit(context, 0, out);
    return unmatched;
}

static void lookup_process(struct operator_context *context, uint32_t input LEAT_UNUSED, struct batch *batch)
{
    struct lookup *lookup = context->config;
    if (unlikely(lookup->shared->versions != NULL && context->micro_batch >= lookup->seat.until) &&
        !versions_seat(lookup->shared->versions, context, context->micro_batch, &lookup->seat)) {
        context->counters.filtered += batch->selected; /* the run has failed */
        return;
    }
    lookup->tally.values[LOOKUP_UNMATCHED] += look_up(context, lookup, batch);
}

static void lookup_read(struct operator_context *context, uint32_t input LEAT_UNUSED, struct batch *batch)
{
    (void)look_up(context, context->config, batch);
}

/* --- Checkpoints, close --- */

/* The record: the digest of the table that the next micro-batch reads. */
static bool write_digest(struct operator_context *context, struct byte_buffer *out)
{
    struct lookup *lookup = context->config;
    struct versions *versions = lookup->shared->versions;
    if (versions != NULL) { /* later micro-batches may have another table */
        versions_turn(versions, context->micro_batch);
        if (!versions_seat(versions, context, context->micro_batch + 1, &lookup->seat))
            return false;
    }
    buffer_append(out, lookup_table_digest(table_of(lookup)), LOOKUP_DIGEST_BYTES);
    return true;
}

static bool check_digest(const struct operator_context *context, const struct lookup *lookup,
                         struct str saved)
{
    if (context->is_from || str_is(saved, lookup_table_digest(lookup->shared->table)))
        return true;
    if (context->lane > 0)
        return false; /* lane 0 gives the diagnostic */
    struct diag *d = diag_error(context->diags, DIAG_FILE_CHANGED, lookup->shared->source.span,
                                "the content of `%s` is not the same as when the checkpoint was taken",
                                lookup->shared->source.path);
    diag_hint(
        context->diags, d,
        "a run uses one table from its beginning to its end, so that it can be repeated: put the old file "
        "back, or begin a new run with the new file: `--from` with the checkpoint keeps all other state, "
        "`--fresh` keeps none");
    return false;
}

static bool read_digest(struct operator_context *context, struct snapshot_reader *reader LEAT_UNUSED,
                        struct str record)
{
    struct lookup *lookup = context->config;
    struct str digest = {record.data + 1, record.length - 1};
    if (lookup->shared->versions == NULL)
        return check_digest(context, lookup, digest);
    lookup->has_restored = digest.length == sizeof(lookup->restored);
    if (lookup->has_restored)
        memcpy(lookup->restored, digest.data, sizeof(lookup->restored)); /* all lanes have the same */
    return true;
}

static bool begin_restored(struct operator_context *context)
{
    struct lookup *lookup = context->config;
    struct str digest = {lookup->restored, lookup->has_restored ? sizeof(lookup->restored) : 0};
    return lookup->shared->versions == NULL ||
           versions_begin(lookup->shared->versions, context, digest, &lookup->seat);
}

static const struct state_record digest_record = {
    .write = write_digest, .read = read_digest, .restored = begin_restored};

static const struct tally_figure lookup_figures[TALLY_VALUES] = {[LOOKUP_UNMATCHED] = {.name = "unmatched"}};

static const struct state_member lookup_state[] = {
    STATE_RECORD('d', &digest_record),
    STATE_TALLY(struct lookup, tally, 't', lookup_figures),
    STATES_END,
};

static void lookup_report(struct operator_context *context, struct report *report)
{
    const struct lookup *lookup = context->config;
    if (context->lane > 0 || table_of(lookup) == NULL)
        return;
    struct lookup_figures figures;
    lookup_table_figures(table_of(lookup), &figures);
    report_add(report, "table_rows", (double)figures.rows, false);
    report_add(report, "table_bytes", (double)figures.bytes, false);
    report_add(report, "table_null_keys", (double)figures.null_keys, false);
    report_add(report, "table_duplicates", (double)figures.replaced, false);
    if (lookup->shared->versions == NULL)
        return;
    struct version_figures versions;
    versions_figures(lookup->shared->versions, &versions);
    report_add(report, "table_changes", (double)versions.changes, false);
    report_add(report, "table_refused", (double)versions.refused, false);
    memcpy(report->error, versions.error, sizeof(report->error));
}

/* A new table takes effect at a checkpoint. */
static bool lookup_is_steady(const void *config)
{
    return ((const struct lookup *)config)->refresh_us == 0;
}

static void lookup_close(struct operator_context *context)
{
    struct lookup *lookup = context->config;
    if (!lookup->is_user)
        return;
    lookup->is_user = false;
    if (lookup->shared->versions != NULL)
        versions_leave(lookup->shared->versions, &lookup->seat);
    if (--lookup->shared->users > 0)
        return;
    lookup_table_free(lookup->shared->table);
    lookup->shared->table = NULL;
    versions_free(lookup->shared->versions);
    lookup->shared->versions = NULL;
}

const struct operator_kind operator_lookup = {
    .name = "lookup",
    .summary = "adds columns of a table in a file, by key",
    .example = "events | lookup \"items.csv\" on item_id = id { category: text, brand: text }",
    .details =
        "The file is read once, when the job begins, and all of it must be valid: a bad record is an error, "
        "with its line. The table is in memory once for all lanes, and may take the step's share of "
        "`memory:`, or 1 MiB if that is more. A row whose key is not in the table, or is null, gets nulls "
        "and is counted as unmatched. A resumed run must find the same content: keep the file with the "
        "recordings. With `refresh 10m`, a job with a live source and checkpoints looks every 10 minutes "
        "whether the file has been replaced, reads the new file while it runs, and uses it from the next "
        "checkpoint on: all rows between two checkpoints see one version. To replace the file, which must be "
        "a single one, rename another file to its name. A new file that cannot be read or has a bad record "
        "is reported, and the job goes on with its current table; table_refused counts the files with a bad "
        "record. During a change two tables are in memory, each within half of the share. Copies are kept in "
        "`tables` beside the checkpoints, as long as a checkpoint needs them: a resume uses the version of "
        "its checkpoint, and a replay with `--order` and the job's directory of checkpoints uses the "
        "versions of the live run. Any other replay, and a job whose sources end, uses the file as it is "
        "when the job begins. For rows that change at times of their own, make the changes a stream and use "
        "`enrich from`.",
    .options = lookup_options,
    .state = lookup_state,
    .size = sizeof(struct lookup),
    .determinism = DETERMINISM_BY_ROW,
    .keeps_columns = true,
    .inputs_min = 1,
    .inputs_max = 1,
    .bind = lookup_bind,
    .keeps_figures_alone = true,
    .open = lookup_open,
    .process = lookup_process,
    .read = lookup_read,
    .reading = READING_STATE,
    .is_steady = lookup_is_steady,
    .report = lookup_report,
    .close = lookup_close,
};
