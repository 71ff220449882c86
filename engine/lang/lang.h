/* The job language: text -> job tree -> tree without parameters and functions; and the formatter.
 *
 *     struct job_file *job = lang_parse(arena, diags, registry, text);
 *     bool is_usable = lang_expand(job, arena, diags, &settings);   -- params, lets, env(), file(), constants
 *     ... bind, plan ...
 *     lang_label_expansions(job, diags);                            -- before printing
 *
 * Both report every error they find and go on; what is wrong is marked `is_broken`, so that a plan can check
 * the rest without follow-up errors. A job may go to work only when diags->errors == 0. The tree and its ASTs
 * belong to the arena and point into `text`, which must live as long. Names of streams are not resolved here.
 *
 * Grammar, in short (words in capitals are names; `#` begins a comment; `,` or a new line separates entries):
 *
 *     param NAME: int|float|bool|text|duration|bytes [= value]
 *     let NAME(NAME, ...) = expression
 *     use "PATH"                                -- a library; before what it brings
 *     job NAME { entries }
 *     source NAME = KIND [{ entries }]
 *     stream NAME = STREAM (| KIND [value] (OPTION value[, value]...)* [{ entries }])*
 *     learner NAME = KIND from STREAM [{ entries }]
 *     sink NAME = KIND from STREAM [{ entries }]
 *     STREAM: NAME or NAME.OUTPUT;  entry: NAME: value;  value: expression, [list], { entries }, KIND {
 * entries }, type!
 *
 * A declaration begins on a line of its own. Sinks have names of their own; all other declarations share one
 * set. Any thread, one at a time per job. */
#ifndef LEAT_LANG_LANG_H
#define LEAT_LANG_LANG_H

#include "core/ast.h"
#include "core/buffer.h"
#include "core/registry.h"

enum {
    LANG_SOURCE_BYTES_MAX = 1 << 20, /* of a job file */
    LANG_NESTING_MAX = 100,          /* brackets within brackets */
    LANG_NAME_BYTES_MAX = 128,
    LANG_EXPANDED_NODES_MAX = 200000, /* AST nodes that expansion may make */
    LANG_SECRET_BYTES_MAX = 64 * 1024,
    LANG_DECLARATIONS_MAX = 10000,
    LANG_LET_DEPTH_MAX = 100, /* functions that call each other */
};

struct lang_name {
    struct str text;
    struct span span;
};

/* `examples`, `ctr.predictions`, `hourly.late`, `dead_letters`. */
struct stream_ref {
    struct str name;
    struct str output; /* length 0: the stream itself */
    struct span span;  /* of both */
    struct span output_span;
};

enum param_type { PARAM_INT, PARAM_FLOAT, PARAM_BOOL, PARAM_TEXT, PARAM_DURATION, PARAM_BYTES };

struct param_decl {
    struct lang_name name;
    enum param_type type;
    struct ast *value; /* the default; after lang_expand the value, a literal of the type. NULL: none */
    struct span span;
    bool is_set;    /* by --set */
    bool is_broken; /* an error was reported; do not report more */
};

struct let_decl {
    struct lang_name name;
    struct lang_name *parameters;
    uint32_t count;
    struct ast *body; /* NULL where it is broken */
    struct span span;
};

/* What binds by an option table. span: the whole declaration; name and kind: for messages. */
struct source_decl {
    struct lang_name name, kind;
    const struct source_kind *descriptor; /* NULL: unknown, reported */
    struct ast_entry *entries;
    uint32_t count;
    struct span span;
    bool is_broken;
};

/* entries: name = the option's name in the table of the kind. The positional option has the name "", the
 * block the name "{}". Several values make an AST_LIST; an option of type assignments is always an AST_LIST
 * of AST_ASSIGN. */
struct step_decl {
    struct lang_name kind;
    const struct operator_kind *descriptor; /* NULL: unknown, reported */
    struct ast_entry *entries;
    uint32_t count;
    struct span span;
    bool is_broken;
};

struct stream_decl {
    struct lang_name name;
    struct stream_ref input;
    struct step_decl *steps;
    uint32_t steps_count;
    struct span span;
    bool is_broken; /* the input or any step is */
};

struct learner_decl {
    struct lang_name name, kind;
    const struct operator_kind *descriptor; /* NULL: unknown, reported */
    struct stream_ref input;
    struct ast_entry *entries;
    uint32_t count;
    struct span span;
    bool is_broken;
};

struct sink_decl {
    struct lang_name name, kind;
    const struct sink_kind *descriptor; /* NULL: unknown, reported */
    struct stream_ref input;
    struct ast_entry *entries;
    uint32_t count;
    struct span span;
    bool is_broken;
};

/* One place where a parameter or function was put in, for lang_label_expansions. */
struct lang_expansion {
    struct span use, definition;
    struct str name;
};

/* `use "PATH"`. */
struct use_decl {
    struct str path;
    struct span span;
};

/* A job file: declarations of each sort in the order of the file. */
struct job_file {
    struct str text;
    const struct registry *registry; /* what it was parsed with, and what it uses: the plan's, too */
    struct use_decl *uses;
    uint32_t uses_count;
    struct lang_name name; /* of the `job` block; length 0: there is none */
    struct span job_span;
    struct ast_entry *job_entries;
    uint32_t job_entries_count;
    bool job_is_broken;
    struct param_decl *params;
    struct let_decl *lets;
    struct source_decl *sources;
    struct stream_decl *streams;
    struct learner_decl *learners;
    struct sink_decl *sinks;
    uint32_t params_count, lets_count, sources_count, streams_count, learners_count, sinks_count;
    struct lang_expansion *expansions;
    uint32_t expansions_count;
};

/* Never NULL. registry may be NULL or partial: kinds that it does not know are reported (E0203). */
struct job_file *lang_parse(struct arena *arena, struct diag_list *diags, const struct registry *registry,
                            struct str text);

/* One `--set NAME=VALUE`. Values are written as literals, texts without quotes; of equal names the last
 * counts. */
struct lang_setting {
    struct str name, value;
};

struct lang_settings {
    const struct lang_setting *items;
    uint32_t count;
    /* Where env() and file() look; NULL: the process's environment and the file system. read_file returns 0
     * or an errno; its result is copied into the arena by the caller of the hook, then freed with free(). */
    const char *(*get_env)(void *argument, const char *name);
    const char *unset; /* what a variable without a value or default counts as; NULL: that is an error */
    int (*read_file)(void *argument, const char *path, size_t max_bytes, char **data, size_t *bytes);
    void *argument;
};

/* Puts in parameters, functions, env() and file(), and folds arithmetic over literals. Afterwards no AST of
 * the job has a parameter or a `let` left. Nodes that came from elsewhere have the span of the use. A literal
 * that came from env() or file() has `origin` set (core/ast.h): print it with ast_print alone, which shows
 * env("NAME"). settings may be NULL. false where it reported an error. */
LEAT_CHECKED bool lang_expand(struct job_file *job, struct arena *arena, struct diag_list *diags,
                              const struct lang_settings *settings);

/* To each diagnostic that points at the use of a parameter or function, adds a label at its definition. */
void lang_label_expansions(const struct job_file *job, struct diag_list *diags);

/* An ast_parse_function (core/ast.h): one value, constants folded. Spans count from the start of `text`. */
struct ast *lang_parse_value(struct arena *arena, struct diag_list *diags, struct str text);

/* Appends the canonical text of a job to `out`: comments and line breaks stay, indentation, spacing and
 * separators become the usual ones. The meaning stays; formatting twice changes nothing. false (and nothing
 * appended) where the job does not parse. */
LEAT_CHECKED bool lang_format(struct arena *arena, struct diag_list *diags, const struct registry *registry,
                              struct str text, struct byte_buffer *out);

/* Whether the bytes are UTF-8: nothing overlong, cut, or a surrogate. */
bool lang_is_utf8(struct str text);

/* Equal but for spans. */
bool lang_job_equal(const struct job_file *a, const struct job_file *b);

#endif
