/* The reference as text for a terminal, and as a dictionary for the fuzzer. */
#include "cli/help.h"

enum { LINE_COLUMNS = 96, INDENT = 2, SUMMARY_COLUMN_MAX = 34 };

void help_put_wrapped(struct byte_buffer *out, uint32_t indent, const char *text)
{
    buffer_printf(out, "%*s", (int)indent, "");
    buffer_wrap(out, indent, indent, LINE_COLUMNS, str_from(text));
    buffer_append(out, "\n", 1);
}

void help_put_item(struct byte_buffer *out, const char *name, const char *summary, uint32_t column)
{
    buffer_printf(out, "  %s", name);
    uint32_t at = INDENT + text_columns(str_from(name));
    if (at + 2 > column) {
        buffer_append(out, "\n", 1);
        at = 0;
    }
    buffer_printf(out, "%*s", (int)(column - at), "");
    buffer_wrap(out, column, column, LINE_COLUMNS, str_from(summary));
    buffer_append(out, "\n", 1);
}

void help_text_overview(struct help *help, struct byte_buffer *out)
{
    buffer_printf(
        out,
        "The reference of leat. `leat help GROUP` lists a group, `leat help NAME` describes one entry.\n");
    for (uint32_t g = 0; g < HELP_GROUPS_COUNT; g++) {
        buffer_printf(out, "\n%s: %s\n  ", help_groups[g].plural, help_groups[g].summary);
        struct byte_buffer names = {0};
        for (uint32_t i = 0; i < help->count; i++)
            if (help->entries[i].group == g)
                buffer_printf(&names, "%s%s", names.length > 0 ? ", " : "", help->entries[i].name);
        buffer_wrap(out, INDENT, INDENT, LINE_COLUMNS, (struct str){names.data, names.length});
        buffer_append(out, "\n", 1);
        buffer_free(&names);
    }
    buffer_printf(out, "\n%s\n  cpu, cuda\n", help_device_summary);
    for (uint32_t i = 0; i < HELP_PAGES_COUNT; i++)
        buffer_printf(out, "\n%s: %s\n", help_page_names[i], help_page(help, i).summary);
}

/* --- Pages --- */

const char *const help_page_names[HELP_PAGES_COUNT] = {"types", "limits", "metrics"};

struct help_page help_page(struct help *help, uint32_t index)
{
    return index == 0 ? help_types(help) : index == 1 ? help_limits(help) : help_metrics(help);
}

void help_text_page(const struct help_page *page, struct byte_buffer *out)
{
    buffer_printf(out, "%s: %s\n\n", page->name, page->summary);
    help_put_wrapped(out, INDENT, page->intro);
    for (uint32_t s = 0; s < page->count; s++) {
        const struct help_section *section = &page->sections[s];
        uint32_t column = 0;
        for (uint32_t i = 0; i < section->count; i++) {
            uint32_t width = INDENT + text_columns(str_from(section->facts[i].name)) + 2;
            column = width <= SUMMARY_COLUMN_MAX ? MAX(column, width) : column;
        }
        column = MAX(column, 12);
        buffer_printf(out, "\n%s\n", section->title);
        for (uint32_t i = 0; i < section->count; i++) {
            const struct help_fact *fact = &section->facts[i];
            help_put_item(out, fact->name, fact->text, column);
            if (fact->example != NULL)
                buffer_printf(out, "%*strue: %s\n", (int)column, "", fact->example);
        }
    }
}

void help_text_group(const struct help *help, enum help_group group, struct byte_buffer *out)
{
    uint32_t column = 0;
    for (uint32_t i = 0; i < help->count; i++) {
        const struct help_entry *e = &help->entries[i];
        const char *shown = group == HELP_FUNCTIONS || e->options == NULL ? e->usage : NULL;
        uint32_t width = text_columns(str_from(shown != NULL ? shown : e->name));
        if (e->group == group && INDENT + width + 2 <= SUMMARY_COLUMN_MAX)
            column = MAX(column, INDENT + width + 2);
    }
    buffer_printf(out, "%s: %s\n\n", help_groups[group].plural, help_groups[group].summary);
    for (uint32_t i = 0; i < help->count; i++) {
        const struct help_entry *e = &help->entries[i];
        const char *shown = group == HELP_FUNCTIONS || e->options == NULL ? e->usage : NULL;
        if (e->group == group)
            help_put_item(out, shown != NULL ? shown : e->name, e->summary, MAX(column, 12));
    }
    buffer_printf(out, "\n`leat help %s NAME` shows more.\n", help_groups[group].singular);
}

/* --- One entry --- */

static void put_options(const struct help *help, const struct option *table, uint32_t indent,
                        struct byte_buffer *out);

static void put_option(const struct help *help, const struct option_row *option, uint32_t indent,
                       struct byte_buffer *out)
{
    struct arena arena = {0};
    struct help_option said = help_option(help, option, &arena);
    buffer_printf(out, "%*s%s  ", (int)indent, "", said.name);
    const char *facts =
        arena_printf(&arena, "%s%s%s%s%s%s", said.type, said.facts[0] != '\0' ? "; " : "", said.facts,
                     said.group != NULL ? "; see `leat help " : "",
                     said.group != NULL ? said.group->plural : "", said.group != NULL ? "`" : "");
    uint32_t at = indent + text_columns(str_from(said.name)) + 2;
    buffer_wrap(out, at, indent + 8, LINE_COLUMNS, str_from(facts));
    buffer_append(out, "\n", 1);
    help_put_wrapped(out, indent + 4, said.text);
    if (said.nested != NULL)
        put_options(help, said.nested, indent + 4, out);
    for (const struct kind_choice *k = said.kinds; k != NULL && k->name != NULL; k++) {
        buffer_printf(out, "%*s%s  ", (int)indent + 4, "", k->name);
        at = indent + 4 + text_columns(str_from(k->name)) + 2;
        buffer_wrap(out, at, indent + 8, LINE_COLUMNS, str_from(k->summary));
        buffer_append(out, "\n", 1);
        put_options(help, k->options, indent + 8, out);
    }
    arena_free(&arena);
}

static void put_options(const struct help *help, const struct option *table, uint32_t indent,
                        struct byte_buffer *out)
{
    for (struct option_walk w = option_walk(table); option_next(&w);)
        put_option(help, &w.row, indent, out);
}

void help_text_entry(const struct help *help, const struct help_entry *e, struct byte_buffer *out)
{
    buffer_printf(out, "%s %s: ", help_groups[e->group].singular, e->name);
    uint32_t at =
        text_columns(str_from(help_groups[e->group].singular)) + text_columns(str_from(e->name)) + 3;
    buffer_wrap(out, at, INDENT, LINE_COLUMNS, str_from(e->summary));
    buffer_append(out, "\n", 1);
    if (e->usage != NULL) {
        buffer_printf(out, "\n  ");
        buffer_wrap(out, INDENT, 3 * INDENT, LINE_COLUMNS, str_from(e->usage));
        buffer_append(out, "\n", 1);
    }
    if (e->details != NULL) {
        buffer_append(out, "\n", 1);
        help_put_wrapped(out, INDENT, e->details);
    }
    if (e->note != NULL) {
        buffer_append(out, "\n", 1);
        help_put_wrapped(out, INDENT, e->note);
    }
    if (e->example != NULL)
        buffer_printf(out, "\nexample\n  %s\n", e->example);
    if (option_has_rows(e->options)) {
        buffer_printf(out, "\noptions\n");
        put_options(help, e->options, INDENT, out);
    }
    if (e->common != NULL) {
        buffer_printf(out, "\n%s\n", e->common_title);
        put_options(help, e->common, INDENT, out);
    }
}

/* --- Dictionary --- */

/* Appends a line of the dictionary. path: prefix of the name, like "operator_dedup". Names contain no quotes
 * and no backslashes. */
static void put_word(struct byte_buffer *out, const char *path, const char *name, struct str word)
{
    buffer_printf(out, "%s_%s=\"%.*s\"\n", path, name, STR_ARGS(word));
}

static void put_words(struct byte_buffer *out, const char *path, const struct option *table,
                      struct arena *arena)
{
    for (struct option_walk w = option_walk(table); option_next(&w);) {
        const struct option_row *o = &w.row;
        put_word(out, path, o->name, str_from(o->name));
        const char *own = arena_printf(arena, "%s_%s", path, o->name);
        for (const char *at = o->type == OPTION_ENUM_T ? o->choices : ""; *at != '\0';) {
            size_t length = strcspn(at, "|");
            put_word(out, own, "choice", (struct str){at, length});
            at += length + (at[length] == '|');
        }
        if (o->type == OPTION_BLOCK_T)
            put_words(out, own, o->block, arena);
        for (const struct kind_choice *k = o->kinds; o->type == OPTION_KIND_T && k->name != NULL; k++)
            put_word(out, own, k->name, str_from(k->name));
    }
}

void help_dictionary(const struct help *help, struct byte_buffer *out)
{
    struct arena arena = {0};
    for (uint32_t i = 0; i < help->count; i++) {
        const struct help_entry *e = &help->entries[i];
        if (e->is_copy)
            continue;
        put_word(out, help_groups[e->group].singular, e->name, str_from(e->name));
        const char *path = arena_printf(&arena, "%s_%s", help_groups[e->group].singular, e->name);
        put_words(out, path, e->options, &arena);
        bool is_first = i == 0 || help->entries[i - 1].common != e->common;
        if (e->common != NULL && is_first)
            put_words(out, help_groups[e->group].singular, e->common, &arena);
    }
    arena_free(&arena);
}
