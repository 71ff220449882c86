/* leat help [GROUP] [NAME]: the reference, made from the program's own tables. */
#include "cli/argp.h"
#include "cli/commands.h"
#include "cli/help.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum { KEY_HTML = 256, KEY_OPTIONS, KEY_USE, KEY_MARKDOWN, WORDS_MAX = 2 };

struct help_arguments {
    const char *words[WORDS_MAX];
    uint32_t count;
    const char *html;
    bool is_dictionary, is_markdown;
    const char *library;
};

static const struct argp_option options_table[] = {
    {"html", KEY_HTML, "DIR", 0, "write the whole reference as HTML pages", 0},
    {"options", KEY_OPTIONS, NULL, 0, "one line for each name and option, as a dictionary for fuzzing", 0},
    {"markdown", KEY_MARKDOWN, NULL, 0, "`leat help metrics` as the tables of docs/metrics.md", 0},
    {"use", KEY_USE, "LIB.so", 0,
     "show what a library adds that a job can `use`; with a GROUP or NAME, together with the built-in "
     "entries",
     0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct help_arguments *arguments = state->input;
    switch (key) {
    case KEY_HTML: arguments->html = argument; return 0;
    case KEY_OPTIONS: arguments->is_dictionary = true; return 0;
    case KEY_MARKDOWN: arguments->is_markdown = true; return 0;
    case KEY_USE: arguments->library = argument; return 0;
    case ARGP_KEY_ARG:
        if (arguments->count == WORDS_MAX)
            argp_error(state, "give at most a group and a name, for example `leat help operator dedup`");
        arguments->words[arguments->count++] = argument;
        return 0;
    case ARGP_KEY_END:
        if (arguments->is_markdown && (arguments->count != 1 || strcmp(arguments->words[0], "metrics") != 0))
            argp_error(state, "--markdown is for one page: `leat help metrics --markdown`");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* The group with that singular or plural name; HELP_GROUPS_COUNT: none. */
static enum help_group find_group(const char *word)
{
    for (uint32_t g = 0; g < HELP_GROUPS_COUNT; g++)
        if (strcmp(word, help_groups[g].plural) == 0 || strcmp(word, help_groups[g].singular) == 0)
            return (enum help_group)g;
    return HELP_GROUPS_COUNT;
}

/* Writes all entries of that name (`file` is a source and a sink); returns their number. */
static uint32_t put_entries(const struct help *help, enum help_group group, const char *name,
                            struct byte_buffer *out)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < help->count; i++) {
        const struct help_entry *e = &help->entries[i];
        bool fits = group == HELP_GROUPS_COUNT ? !e->is_copy : e->group == group;
        if (!fits || strcmp(e->name, name) != 0)
            continue;
        if (found++ > 0)
            buffer_printf(out, "\n----\n\n");
        help_text_entry(help, e, out);
    }
    return found;
}

static int unknown(struct help *help, enum help_group group, const char *name)
{
    const char **names =
        arena_array(&help->arena, const char *, help->count + 2 * HELP_GROUPS_COUNT + HELP_PAGES_COUNT + 1);
    size_t count = 0;
    for (uint32_t i = 0; i < help->count; i++)
        if (group == HELP_GROUPS_COUNT || help->entries[i].group == group)
            names[count++] = help->entries[i].name;
    for (uint32_t g = 0; group == HELP_GROUPS_COUNT && g < HELP_GROUPS_COUNT; g++) {
        names[count++] = help_groups[g].plural;
        names[count++] = help_groups[g].singular;
    }
    for (uint32_t i = 0; group == HELP_GROUPS_COUNT && i < HELP_PAGES_COUNT; i++)
        names[count++] = help_page_names[i];
    if (group == HELP_GROUPS_COUNT)
        names[count++] = "device";
    const char *what = group == HELP_GROUPS_COUNT ? "group or name" : help_groups[group].singular;
    fprintf(stderr, "leat: error[E1001]: there is no %s `%s`\n", what, name);
    const char *near = diag_nearest(str_from(name), names, count);
    if (near != NULL)
        fprintf(stderr, "hint: did you mean `%s`?\n", near);
    else
        fprintf(stderr, "hint: `leat help%s%s` lists all names\n", group == HELP_GROUPS_COUNT ? "" : " ",
                group == HELP_GROUPS_COUNT ? "" : help_groups[group].plural);
    return EXIT_USAGE;
}

/* Writes the entries that the library adds to the built-in ones. */
static void put_library(const struct help *help, struct byte_buffer *out)
{
    struct help own;
    uint32_t found = 0;
    help_collect(&own, &builtin_registry);
    for (uint32_t i = 0; i < help->count; i++) {
        const struct help_entry *e = &help->entries[i];
        bool is_own = e->is_copy;
        for (uint32_t k = 0; k < own.count && !is_own; k++)
            is_own = own.entries[k].group == e->group && strcmp(own.entries[k].name, e->name) == 0;
        if (is_own)
            continue;
        if (found++ > 0)
            buffer_printf(out, "\n----\n\n");
        help_text_entry(help, e, out);
    }
    if (found == 0)
        buffer_printf(out, "The library adds nothing.\n");
    help_free(&own);
}

static int answer_device(const char *name, struct byte_buffer *out)
{
    if (help_device(name, out))
        return EXIT_GOOD;
    fprintf(stderr,
            "leat: error[E1001]: there is no device `%s`\nhint: `leat help device` lists the devices\n",
            name);
    return EXIT_USAGE;
}

static int answer(struct help *help, const struct help_arguments *arguments, struct byte_buffer *out)
{
    if (arguments->is_dictionary) {
        help_dictionary(help, out);
        return EXIT_GOOD;
    }
    if (arguments->is_markdown) {
        help_metrics_markdown(out);
        return EXIT_GOOD;
    }
    if (arguments->count == 0 && arguments->library != NULL) {
        put_library(help, out);
        return EXIT_GOOD;
    }
    if (arguments->count == 0) {
        help_text_overview(help, out);
        return EXIT_GOOD;
    }
    if (strcmp(arguments->words[0], "device") == 0 || strcmp(arguments->words[0], "devices") == 0)
        return answer_device(arguments->count == 2 ? arguments->words[1] : NULL, out);
    for (uint32_t i = 0; i < HELP_PAGES_COUNT && arguments->count == 1; i++)
        if (strcmp(arguments->words[0], help_page_names[i]) == 0) {
            struct help_page page = help_page(help, i);
            help_text_page(&page, out);
            return EXIT_GOOD;
        }
    enum help_group group = find_group(arguments->words[0]);
    if (arguments->count == 2) {
        if (group == HELP_GROUPS_COUNT)
            return unknown(help, group, arguments->words[0]);
        return put_entries(help, group, arguments->words[1], out) > 0
                   ? EXIT_GOOD
                   : unknown(help, group, arguments->words[1]);
    }
    bool is_plural =
        group != HELP_GROUPS_COUNT && strcmp(arguments->words[0], help_groups[group].plural) == 0;
    /* `window` is both an operator and the singular of a group: show the operator, which says more. */
    if (!is_plural || group == HELP_JOB)
        if (put_entries(help, HELP_GROUPS_COUNT, arguments->words[0], out) > 0)
            return EXIT_GOOD;
    if (group == HELP_GROUPS_COUNT) /* cpu and cuda, which the overview lists, too */
        return help_device(arguments->words[0], out) ? EXIT_GOOD : unknown(help, group, arguments->words[0]);
    help_text_group(help, group, out);
    return EXIT_GOOD;
}

/* The registry to describe. NULL: the library cannot be used, and the reason was printed. */
static const struct registry *registry_of(const struct help_arguments *arguments, struct arena *arena)
{
    struct diag_list diags;
    if (arguments->library == NULL)
        return &builtin_registry;
    diag_list_init(&diags, arena);
    const struct registry *registry = builtin_registry.use(&builtin_registry, str_from(arguments->library),
                                                           (struct span){0}, arena, &diags);
    diag_print(stderr, &diags, NULL, isatty(STDERR_FILENO) != 0);
    return registry;
}

int cmd_help(int argc, char **argv)
{
    static const struct argp argp = {
        options_table,
        parse,
        "[GROUP] [NAME]",
        "Describes all that a job can be built from.\vGroups: sources, formats, operators, functions, "
        "windows, learners, optimizers, losses, sinks, job; device: what kernels run on, as found on this machine; "
        "types: values, nulls, times, literals; limits: of everything; metrics: figures of a run and of a server.",
        0,
        0,
        0};
    struct help_arguments arguments = {0};
    argp_command(&argp, argc, argv, &arguments);
    struct arena arena = {0};
    const struct registry *registry = registry_of(&arguments, &arena);
    if (registry == NULL) {
        arena_free(&arena);
        return EXIT_USAGE;
    }
    struct help help;
    help_collect(&help, registry);
    int status = EXIT_GOOD;
    if (arguments.html != NULL) {
        int error = help_html(&help, arguments.html);
        if (error != 0) {
            fprintf(stderr, "leat: error[E0605]: the pages cannot be written to `%s`\ncause: %s\n",
                    arguments.html, strerror(error));
            status = EXIT_FAILED;
        }
    } else {
        struct byte_buffer out = {0};
        status = answer(&help, &arguments, &out);
        if (out.length > 0)
            fwrite(out.data, 1, out.length, stdout);
        buffer_free(&out);
    }
    help_free(&help);
    arena_free(&arena);
    return status;
}
