/* The reference of `leat help`: entries collected from the registry's descriptors and option tables, and two
 * writers, as text and as HTML. Only for the files of engine/cli whose names have `help`. */
#ifndef LEAT_CLI_HELP_H
#define LEAT_CLI_HELP_H

#include "core/buffer.h"
#include "core/registry.h"

/* In the order of `leat help`. */
enum help_group {
    HELP_SOURCES,
    HELP_FORMATS,
    HELP_OPERATORS,
    HELP_FUNCTIONS,
    HELP_WINDOWS,
    HELP_LEARNERS,
    HELP_OPTIMIZERS,
    HELP_LOSSES,
    HELP_SINKS,
    HELP_JOB,
    HELP_GROUPS_COUNT
};

struct help_group_text {
    const char *plural, *singular, *summary;
};
extern const struct help_group_text help_groups[HELP_GROUPS_COUNT];

struct help_entry {
    enum help_group group;
    bool is_copy; /* a copy of an entry of another group; skipped when a name is looked up */
    const char *name, *summary;
    const char *anchor;  /* in its HTML page: the name, except for aggregates, which may share their name
                            with a function */
    const char *usage;   /* "dedup by COLUMNS within DURATION [keep first|last]"; may be NULL */
    const char *details; /* may be NULL */
    const char *example; /* may be NULL */
    const char *note;    /* "takes files that end in .jsonl"; may be NULL */
    const struct option *options;
    const struct option *common; /* options shared by all kinds of the group; may be NULL */
    const char *common_title;
};

struct help {
    struct arena arena;
    struct help_entry *entries;
    uint32_t count;
};

/* Fills *help, whose entries point into the registry. The caller frees it with help_free. */
void help_collect(struct help *help, const struct registry *registry);
void help_free(struct help *help);

/* The description of one option. */
struct help_option {
    const char *name, *type;
    const char *facts; /* "required; 1ms to 365d; default 10s" */
    const char *text;
    const struct option *nested;         /* OPTION_BLOCK_T: the nested table */
    const struct kind_choice *kinds;     /* kinds whose options are listed, too; NULL: none */
    const struct help_group_text *group; /* of its kinds, if they have a group of their own; else NULL */
};
struct help_option help_option(const struct help *help, const struct option_row *option, struct arena *arena);

void help_text_overview(struct help *help, struct byte_buffer *out);
void help_text_group(const struct help *help, enum help_group group, struct byte_buffer *out);
void help_text_entry(const struct help *help, const struct help_entry *entry, struct byte_buffer *out);

/* help_put_wrapped: appends an indented paragraph. help_put_item: appends "  name      summary", with the
 * summary wrapped from `column` on. */
void help_put_wrapped(struct byte_buffer *out, uint32_t indent, const char *text);
void help_put_item(struct byte_buffer *out, const char *name, const char *summary, uint32_t column);

/* Describes the devices that kernels run on, as found on this machine. name: one device ("cpu", "cuda",
 * "cuda(1)"); NULL: all of them. false: no device of that name. */
extern const char help_device_summary[];
bool help_device(const char *name, struct byte_buffer *out);

/* Pages beside the groups ("types", "limits", "metrics"), made from the program's own tables and constants. */
struct help_fact {
    const char *name, *text;
    const char *example; /* a job-language expression that is true; NULL: none */
};
struct help_section {
    const char *title;
    const struct help_fact *facts;
    uint32_t count;
};
enum { HELP_SECTIONS_MAX = 16 };
struct help_page {
    const char *name, *summary, *intro;
    struct help_section sections[HELP_SECTIONS_MAX];
    uint32_t count;
};
enum { HELP_PAGES_COUNT = 3 };
extern const char *const help_page_names[HELP_PAGES_COUNT];
/* The page's texts live in the help's arena. */
struct help_page help_page(struct help *help, uint32_t index);
void help_text_page(const struct help_page *page, struct byte_buffer *out);
struct help_page help_types(struct help *help);
struct help_page help_limits(struct help *help);
struct help_page help_metrics(struct help *help);
/* Appends the tables of docs/metrics.md. */
void help_metrics_markdown(struct byte_buffer *out);

/* Writes all pages as files into the directory; returns 0 or an errno. */
int help_html(struct help *help, const char *directory);

/* Appends a libFuzzer dictionary: one line for each name, option and word of the tables,
 * such as `operator_dedup_by="by"`. */
void help_dictionary(const struct help *help, struct byte_buffer *out);

#endif
