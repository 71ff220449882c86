/* `log: { ... }` of a `serve`: files by `path`, or what the registry's kind of log offers (core/line_log.h). The log is
 * no part of the fingerprint: it changes neither state nor answers. */
#include "plan/build.h"

static const struct option log_rows[] = {
    OPTION_TEXT(
        struct plan_serve_log, path, "path", 0, "\"\"",
        "the files' path without the number: `out/served` for out/served-000001.jsonl; if empty, there "
        "are no files"),
    OPTION_FLOAT(struct plan_serve_log, sample, "sample", 0, "1.0", "0.0", "1.0",
                 "share of the requests that are logged"),
    OPTION_BYTES(struct plan_serve_log, rotate_bytes, "rotate", 0, "64MiB", "4KiB", "64GiB",
                 "with `path`: a file that is longer is followed by a new one"),
    OPTION_INT(struct plan_serve_log, keep, "keep", 0, "16", "0", "1000000",
               "with `path`: the newest files that are kept; 0: all"),
    OPTIONS_END,
};

static const char *const file_options[] = {"path", "rotate", "keep"};

const struct option *build_log_options(const struct registry *registry, struct arena *arena)
{
    const struct line_log_kind *kind = registry->line_log;
    if (kind == NULL)
        return log_rows;
    leat_assert(kind->size <= LINE_LOG_CONFIG_BYTES);
    const struct option table[] = {
        OPTION_INCLUDE_ROWS(log_rows),
        OPTION_INCLUDE(struct plan_serve_log, config, kind->options),
        OPTIONS_END,
    };
    return arena_copy(arena, table, sizeof(table));
}

static const struct ast_entry *find_entry(const struct ast_entry *entries, uint32_t count, struct str name)
{
    for (uint32_t i = 0; i < count; i++)
        if (str_equal(entries[i].name, name) && entries[i].value != NULL)
            return &entries[i];
    return NULL;
}

static bool is_of_files(struct str name)
{
    for (size_t i = 0; i < ARRAY_COUNT(file_options); i++)
        if (str_is(name, file_options[i]))
            return true;
    return false;
}

/* The text of the option that chooses the kind; empty: it is not chosen. */
static struct str choice_of(const struct line_log_kind *kind, const struct plan_serve_log *log)
{
    if (kind == NULL)
        return (struct str){"", 0};
    struct option_row row = option_find(kind->options, str_from(kind->choice));
    leat_assert(row.name != NULL && row.type == OPTION_TEXT_T);
    return *(const struct str *)(const void *)(log->config + row.offset);
}

/* Refuses options of the place that was not chosen. False after a diagnostic. */
static bool check_others(struct plan_build *b, const struct ast *block, const struct line_log_kind *kind,
                         bool is_files)
{
    for (uint32_t i = 0; i < block->entries_count; i++) {
        const struct ast_entry *entry = &block->entries[i];
        bool is_of_kind = kind != NULL && option_find(kind->options, entry->name).name != NULL;
        if (is_files ? !is_of_kind || str_is(entry->name, kind->choice)
                     : !is_of_files(entry->name) || str_is(entry->name, "path"))
            continue;
        struct diag *d =
            diag_error(b->diags, DIAG_OPTIONS_CLASH, entry->name_span,
                       "`%.*s` is for a log with `%s`, and this one has `%s`", STR_ARGS(entry->name),
                       is_files ? kind->choice : "path", is_files ? "path" : kind->choice);
        diag_hint(b->diags, d, "leave `%.*s` out", STR_ARGS(entry->name));
        return false;
    }
    return true;
}

/* A log that names no place, or two. False after a diagnostic. */
static bool check_place(struct plan_build *b, const struct ast_entry *entry, const struct ast_entry *path,
                        const struct ast_entry *choice, bool has_both)
{
    const struct line_log_kind *kind = b->options->registry->line_log;
    if (path == NULL && choice == NULL) {
        struct diag *d = diag_error(b->diags, DIAG_OPTION_MISSING, entry->name_span,
                                    "`log` does not say where the lines go");
        if (kind == NULL)
            diag_hint(b->diags, d, "say `path: \"out/served\"` for files");
        else
            diag_hint(b->diags, d, "say `path: \"out/served\"` for files, or `%s` for %s", kind->choice,
                      kind->name);
        return false;
    }
    if (!has_both)
        return true;
    struct diag *d = diag_error(b->diags, DIAG_OPTIONS_CLASH, choice->name_span,
                                "`log` has both `path` and `%s`", kind->choice);
    diag_label(b->diags, d, path->name_span, "files, here");
    diag_hint(b->diags, d, "a log goes to files or to %s: leave one of the two out", kind->name);
    return false;
}

bool build_log(struct plan_build *b, const struct serve_decl *decl, struct plan_serve_log *log)
{
    const struct line_log_kind *kind = b->options->registry->line_log;
    const struct ast_entry *entry = find_entry(decl->entries, decl->count, STR("log"));
    if (entry == NULL)
        return true;
    const struct ast *block = entry->value;
    const struct ast_entry *path = find_entry(block->entries, block->entries_count, STR("path"));
    const struct ast_entry *choice =
        kind == NULL ? NULL : find_entry(block->entries, block->entries_count, str_from(kind->choice));
    bool is_files = log->path.length > 0, is_kind = choice_of(kind, log).length > 0;
    if (!check_place(b, entry, path, choice, is_files && is_kind))
        return false;
    if (is_kind && !kind->check(log->config, entry->name_span, b->diags))
        return false;
    if (is_kind)
        log->kind = kind;
    return (!is_files && !is_kind) || check_others(b, block, kind, is_files);
}
