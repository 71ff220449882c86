/* The syntax tree of expressions and option values: the parser makes the tree from the text to the right of a
 * name, keyword or colon. The tree is declared in `core` because option tables and operators read it; the
 * parser is in `lang`. Nodes are immutable after parsing and `let` expansion, and belong to the job's
 * arena. */
#ifndef LEAT_CORE_AST_H
#define LEAT_CORE_AST_H

#include "core/diag.h"

enum ast_tag {
    AST_NULL,     /* null */
    AST_BOOL,     /* true, false */
    AST_INT,      /* 42 */
    AST_FLOAT,    /* 1.5, 1e-3 */
    AST_TEXT,     /* "text", escapes resolved */
    AST_DURATION, /* 10s; integer = microseconds */
    AST_SIZE,     /* 64MiB; integer = bytes */
    AST_NAME,     /* user_id */
    AST_FIELD,    /* children[0].text */
    AST_CALL,     /* text(children...) */
    AST_UNARY,    /* op children[0] */
    AST_BINARY,   /* children[0] op children[1] */
    AST_CASE,     /* case when c0 then v0 [when c1 then v1]... [else v] end; children in that order */
    AST_LIST,     /* [children...] */
    AST_ASSIGN,   /* text = children[0], in `with a = x, b = y` */
    AST_BLOCK,    /* { entries... } */
    AST_KIND,     /* text { entries... }, e.g. adagrad { rate: 0.05 } */
};

enum ast_operator {
    AST_OP_NONE,
    AST_OP_NEGATE,
    AST_OP_NOT,
    AST_OP_IS_NULL,     /* x is null */
    AST_OP_IS_NOT_NULL, /* x is not null */
    AST_OP_ADD,
    AST_OP_SUBTRACT,
    AST_OP_MULTIPLY,
    AST_OP_DIVIDE,
    AST_OP_MODULO,
    AST_OP_EQUAL,
    AST_OP_NOT_EQUAL,
    AST_OP_LESS,
    AST_OP_LESS_EQUAL,
    AST_OP_GREATER,
    AST_OP_GREATER_EQUAL,
    AST_OP_AND,
    AST_OP_OR,
    AST_OP_IN, /* children[0] in children[1], an AST_LIST */
    AST_OP_NOT_IN,
};

struct ast_entry {
    struct str name;
    struct span name_span;
    struct ast *value;
};

struct ast {
    enum ast_tag tag;
    enum ast_operator op;
    struct span span;
    struct span text_span; /* span of `text` alone: the function's name, the field's name */
    struct str text;
    union {
        bool boolean;
        int64_t integer;
        double real;
    };
    struct ast **children;
    uint32_t count; /* number of children */
    uint32_t entries_count;
    struct ast_entry *entries;
    /* Not empty: the source text of a literal that came from env() or file(), e.g.
     * `env("PASSWORD")`. Show this instead of the value: the value must never reach a message, a
     * dump, a checkpoint or a fingerprint. */
    struct str origin;
    uint32_t height; /* of the tree; leaf: 1; the parser keeps it <= AST_HEIGHT_MAX: recursion is safe */
};

enum { AST_HEIGHT_MAX = 500 };

/* Parses one expression or option value from `text`; NULL after a diagnostic. Used for option defaults. */
typedef struct ast *ast_parse_function(struct arena *arena, struct diag_list *diags, struct str text);

/* Appends the tree as canonical job text: one spelling per meaning, stable across versions, for fingerprints,
 * messages and `explain`. A literal with an `origin` is shown as its origin. */
struct byte_buffer;
void ast_print(struct byte_buffer *out, const struct ast *ast);
/* Like ast_print, but returns a terminated text in the arena. */
const char *ast_text(struct arena *arena, const struct ast *ast);
/* Whether two trees are equal, ignoring spans. NULL equals only NULL. */
bool ast_equal(const struct ast *a, const struct ast *b);
/* Whether the word is reserved by the language, so that it needs backticks when used as a name. */
bool ast_is_reserved(struct str word);

#endif
