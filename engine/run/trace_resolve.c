/* Finds the record that the user of `leat trace` named. */
#include "run/trace.h"

#include "core/connector.h"

/* A place as the user wrote it: the name before the last `:` or `@`, this sign, and the number behind it. */
struct place {
    struct str name;
    char sign;
    int64_t at;
};

static bool parse_place(const struct trace *trace, struct place *place, struct diag_list *diags)
{
    struct str text = trace->place;
    size_t sign = text.length;
    while (sign > 0 && text.data[sign - 1] != ':' && text.data[sign - 1] != '@')
        sign--;
    if (sign > 1 && literal_int((struct str){text.data + sign, text.length - sign}, &place->at) &&
        place->at >= 0) {
        place->name = (struct str){text.data, sign - 1};
        place->sign = text.data[sign - 1];
        return true;
    }
    struct diag *d =
        diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "`%.*s` does not name a record", STR_ARGS(text));
    diag_hint(diags, d, "give topic/partition@offset of a topic, path:line or path@record of a file");
    return false;
}

static const struct plan_node *find_source(struct trace *trace, const struct plan *plan,
                                           struct diag_list *diags)
{
    const char *all = "";
    for (uint32_t i = 0; i < plan->sources_count; i++) {
        const struct plan_node *node = &plan->nodes[plan->sources[i]];
        trace->source_index = i;
        if (str_equal(node->name, trace->source))
            return node;
        all = arena_printf(plan->arena, "%s%s%.*s", all, i > 0 ? ", " : "", STR_ARGS(node->name));
    }
    struct diag *d = diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "the job reads no source `%.*s`",
                                STR_ARGS(trace->source));
    diag_hint(diags, d, "its sources are: %s", all);
    return NULL;
}

/* Whether the path equals the name, or ends in it behind a `/`. */
static bool is_named(const char *path, struct str name)
{
    size_t length = strlen(path);
    return length >= name.length && memcmp(path + length - name.length, name.data, name.length) == 0 &&
           (length == name.length || path[length - name.length - 1] == '/');
}

static const char *name_of(struct source *source, const struct source_kind *kind, uint32_t partition)
{
    return kind->partition_name == NULL ? "" : kind->partition_name(source, partition);
}

static bool find_partition(struct trace *trace, struct source *source, const struct source_kind *kind,
                           const struct place *place, struct diag_list *diags)
{
    uint32_t found = 0, exact = 0;
    trace->partition = 0;
    /* With a single unnamed partition any name will do. */
    if (kind->partition_name == NULL && source->partitions_count == 1)
        return true;
    for (uint32_t i = 0; i < source->partitions_count && exact == 0; i++) {
        const char *name = name_of(source, kind, i);
        exact += str_is(place->name, name);
        if (exact > 0 || is_named(name, place->name)) {
            trace->partition = i;
            found++;
        }
    }
    if (exact > 0 || found == 1)
        return true;
    struct byte_buffer names = {0};
    for (uint32_t i = 0; i < MIN(source->partitions_count, 20); i++)
        buffer_printf(&names, "%s%s", i > 0 ? ", " : "", name_of(source, kind, i));
    struct diag *d = diag_error(diags, DIAG_NO_COMMAND, (struct span){0},
                                found == 0 ? "source `%.*s` has no partition `%.*s`"
                                           : "source `%.*s` has several partitions `%.*s`",
                                STR_ARGS(trace->source), STR_ARGS(place->name));
    diag_hint(diags, d, "it has: %.*s%s", (int)names.length, names.data,
              source->partitions_count > 20 ? ", ..." : "");
    buffer_free(&names);
    return false;
}

/* Whether the batch has the line; sets trace->at to its record. */
static bool find_line(struct trace *trace, const struct raw_batch *raw)
{
    for (uint32_t row = 0; row < raw->count; row++)
        if (raw_record_line(raw, row) == trace->line) {
            trace->at = (int64_t)(raw->position.record + row);
            return true;
        }
    return false;
}

/* Reads the source's files, without decoding, up to the line. False after a diagnostic, if there is no such
 * line. */
static bool scan_lines(struct trace *trace, struct source *source, const struct source_kind *kind,
                       const struct place *place, struct diag_list *diags)
{
    struct raw_batch raw = {0};
    enum read_status status = READ_BATCH;
    bool is_found = false, has_file = false, has_lines = true;
    trace->line = place->at;
    for (uint32_t i = 0; i < source->partitions_count && !is_found && status != READ_ERROR; i++) {
        trace->partition = i;
        do {
            arena_reset(&raw.arena);
            status = kind->read(source, i, &raw);
            bool is_file = status == READ_BATCH && raw.path != NULL && is_named(raw.path, place->name);
            has_file |= is_file;
            has_lines &= status != READ_BATCH || raw.first_line > 0;
            is_found = is_file && has_lines && raw.first_line <= trace->line && find_line(trace, &raw);
        } while (status == READ_BATCH && !is_found && has_lines);
    }
    arena_free(&raw.arena);
    if (is_found || status == READ_ERROR)
        return is_found;
    struct diag *d = diag_error(
        diags, DIAG_NO_COMMAND, (struct span){0},
        !has_lines ? "source `%.*s` has no lines: `%.*s` does not name a record"
        : has_file ? "source `%.*s` has no record at `%.*s`: the line is empty, a header, or after the end"
                   : "source `%.*s` has no file that matches `%.*s`",
        STR_ARGS(trace->source), STR_ARGS(trace->place));
    diag_hint(diags, d,
              has_lines ? "give path:line, counted from 1"
                        : "give partition@record, counted from 0, as dead letters do");
    return false;
}

static void no_wake(void *engine)
{
    (void)engine;
}

bool trace_resolve(struct trace *trace, const struct plan *plan, struct diag_list *diags)
{
    struct place place;
    const struct plan_node *node = parse_place(trace, &place, diags) ? find_source(trace, plan, diags) : NULL;
    if (node == NULL)
        return false;
    const struct source_kind *kind = node->source_kind;
    if (!node->is_replayable || (place.sign == ':' && (kind->has_offsets || kind->discover != NULL))) {
        diag_error(diags, DIAG_NO_COMMAND, (struct span){0},
                   node->is_replayable ? "source `%.*s` has offsets: give topic/partition@offset"
                                       : "source `%.*s` cannot be read again",
                   STR_ARGS(trace->source));
        return false;
    }
    struct source source = {.config = node->config,
                            .schema = node->outputs[0],
                            .arena = &trace->arena,
                            .diags = diags,
                            .wake = no_wake,
                            .job = plan->name,
                            .name = node->name};
    bool is_good = kind->open(&source);
    trace->by = kind->has_offsets ? TRACE_BY_OFFSET : TRACE_BY_RECORD;
    trace->at = place.at;
    is_good = is_good && (place.sign == ':' ? scan_lines(trace, &source, kind, &place, diags)
                                            : find_partition(trace, &source, kind, &place, diags));
    if (is_good)
        trace->partition_name = arena_strdup(&trace->arena, name_of(&source, kind, trace->partition));
    if (kind->close != NULL)
        kind->close(&source);
    return is_good;
}
