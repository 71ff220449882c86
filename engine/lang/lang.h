/* The job language: text -> job tree -> tree without parameters and functions; and the formatter.
 *
 *     struct job_file *job = lang_parse(arena, diags, registry, text);
 *     bool is_usable = lang_expand(job, arena, diags, &settings);   -- params, lets, env(), file(), constants
 *     ... bind, plan ...
 *     lang_label_expansions(job, diags);                            -- before printing
 *
 * lang_parse and lang_expand report every error they find and go on; a wrong part is marked `is_broken`, so
 * that the plan can check the rest without follow-up errors. A job may run only if diags->errors == 0. The
 * tree and its ASTs belong to the arena and point into `text`, which must live as long. Names of streams are
 * not resolved here.
 *
 * Grammar, in short (words in capitals are names; `#` begins a comment; `,` or a new line separates entries):
 *
 *     param NAME: int|float|bool|text|duration|bytes [= value]
 *     let NAME(NAME, ...) = expression
 *     use "PATH"                                -- a library; before anything that uses its kinds
 *     job NAME { entries }
 *     source NAME = KIND [{ entries }]
 *     stream NAME = STREAM (| KIND [value] (OPTION value[, value]...)* [{ entries }])*
 *     learner NAME = KIND from STREAM [{ entries }]
 *     sink NAME = KIND from STREAM [{ entries }]
 *     serve NAME { entries }
 *
 *     STREAM: NAME or NAME.OUTPUT
 *     entry: NAME: value
 *     value: expression, [list], { entries }, KIND { entries }, type!
 *
 * A declaration begins on a line of its own. Sinks and serves have name spaces of their own; all other declarations
 * share one. Functions may be called from any thread, for one job from one thread at a time. */
#ifndef LEAT_LANG_LANG_H
#define LEAT_LANG_LANG_H

#include "core/ast.h"
#include "core/buffer.h"
#include "core/registry.h"

enum {
    LANG_SOURCE_BYTES_MAX = 1 << 20, /* size of a job file */
    LANG_NESTING_MAX = 100,          /* depth of nested brackets */
    LANG_NAME_BYTES_MAX = 128,
    LANG_EXPANDED_NODES_MAX = 200000, /* AST nodes that expansion may make */
    LANG_SECRET_BYTES_MAX = 64 * 1024,
    LANG_DECLARATIONS_MAX = 10000,
    LANG_LET_DEPTH_MAX = 100, /* depth of functions that call other functions */
};

struct lang_name {
    struct str text;
    struct span span;
};

/* A reference to a stream: `examples`, `ctr.predictions`, `hourly.late`, `dead_letters`. */
struct stream_ref {
    struct str name;
    struct str output; /* length 0: the stream itself */
    struct span span;  /* of name and output */
    struct span output_span;
};

enum param_type { PARAM_INT, PARAM_FLOAT, PARAM_BOOL, PARAM_TEXT, PARAM_DURATION, PARAM_BYTES };

struct param_decl {
    struct lang_name name;
    enum param_type type;
    struct ast *value; /* the default; after lang_expand the parameter's value, a literal of
                          `type`; NULL: none */
    struct span span;
    bool is_set;    /* the value comes from --set */
    bool is_broken; /* an error was reported; do not report more */
};

struct let_decl {
    struct lang_name name;
    struct lang_name *parameters;
    uint32_t count;
    struct ast *body; /* NULL: the function is broken, and an error was reported */
    struct span span;
};

/* Declarations bound by an option table. span: the whole declaration; name and kind: for messages. */
struct source_decl {
    struct lang_name name, kind;
    const struct source_kind *descriptor; /* NULL: unknown kind, already reported */
    struct ast_entry *entries;
    uint32_t count;
    struct span span;
    bool is_broken;
};

/* entries: named by the option in the kind's table; the positional option has the name "", the block
 * the name "{}". Several values make an AST_LIST; an option of type assignments is always an
 * AST_LIST of AST_ASSIGN. */
struct step_decl {
    struct lang_name kind;
    const struct operator_kind *descriptor; /* NULL: unknown kind, already reported */
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
    bool is_broken; /* the input or a step is broken */
};

struct learner_decl {
    struct lang_name name, kind;
    const struct operator_kind *descriptor; /* NULL: unknown kind, already reported */
    struct stream_ref input;
    struct ast_entry *entries;
    uint32_t count;
    struct span span;
    bool is_broken;
};

struct sink_decl {
    struct lang_name name, kind;
    const struct sink_kind *descriptor; /* NULL: unknown kind, already reported */
    struct stream_ref input;
    struct ast_entry *entries;
    uint32_t count;
    struct span span;
    bool is_broken;
};

/* `serve NAME { from: STREAM, request: SOURCE }` */
struct serve_decl {
    struct lang_name name;
    struct ast_entry *entries;
    uint32_t count;
    struct span span;
    bool is_broken;
};

/* One use of a parameter or function that was replaced by its definition, for lang_label_expansions. */
struct lang_expansion {
    struct span use, definition;
    struct str name;
};

/* `use "PATH"`: a library. */
struct use_decl {
    struct str path;
    struct span span;
};

/* A job file: declarations of each sort in the order of the file. */
struct job_file {
    struct str text;
    const struct registry *registry; /* all known kinds, those of used libraries included; the plan
                                        uses it, too */
    struct use_decl *uses;
    uint32_t uses_count;
    struct lang_name name; /* of the `job` block; length 0: no such block */
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
    struct serve_decl *serves;
    uint32_t params_count, lets_count, sources_count, streams_count, learners_count, sinks_count,
        serves_count;
    struct lang_expansion *expansions;
    uint32_t expansions_count;
};

/* Never returns NULL. registry: may be NULL or partial; unknown kinds are reported (E0203). */
struct job_file *lang_parse(struct arena *arena, struct diag_list *diags, const struct registry *registry,
                            struct str text);

/* One `--set NAME=VALUE`. A value is written as a literal, a text without quotes. If a name is set twice, the
 * last one counts. */
struct lang_setting {
    struct str name, value;
};

struct lang_settings {
    const struct lang_setting *items;
    uint32_t count;
    /* Hooks for env() and file(); NULL: the process's environment and the file system. read_file returns 0 or
     * an errno; lang_expand copies *data into the arena and frees it with free(). */
    const char *(*get_env)(void *argument, const char *name);
    const char *unset; /* value of environment variables that are not set and have no default; NULL: such
                          a variable is an error */
    int (*read_file)(void *argument, const char *path, size_t max_bytes, char **data, size_t *bytes);
    void *argument; /* passed to both hooks */
};

/* Replaces parameters, functions, env() and file() by their values and bodies, and folds arithmetic over
 * literals. Afterwards no AST of the job contains a parameter or a `let`. Inserted nodes have the span of the
 * use. A literal that came from env() or file() has `origin` set (core/ast.h): print it only with ast_print,
 * which shows env("NAME"). settings may be NULL. false: an error was reported. */
LEAT_CHECKED bool lang_expand(struct job_file *job, struct arena *arena, struct diag_list *diags,
                              const struct lang_settings *settings);

/* Adds to each diagnostic that points at the use of a parameter or function a label at the definition. */
void lang_label_expansions(const struct job_file *job, struct diag_list *diags);

/* An ast_parse_function (core/ast.h): parses one value and folds constants. Spans count from the
 * start of `text`. */
struct ast *lang_parse_value(struct arena *arena, struct diag_list *diags, struct str text);

/* Appends the canonical text of a job to `out`: comments and line breaks are kept; indentation, spacing and
 * separators become canonical. The meaning does not change, and formatting twice changes nothing. false (and
 * nothing appended): the job does not parse. */
LEAT_CHECKED bool lang_format(struct arena *arena, struct diag_list *diags, const struct registry *registry,
                              struct str text, struct byte_buffer *out);

/* Whether two jobs are equal, ignoring spans. */
bool lang_job_equal(const struct job_file *a, const struct job_file *b);

#endif
