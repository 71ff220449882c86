/* What the files of lang share: tokens, the parser's state, small helpers. Not for others. */
#ifndef LEAT_LANG_INTERNAL_H
#define LEAT_LANG_INTERNAL_H

#include "lang/lang.h"

enum token_tag {
    TOKEN_END,
    TOKEN_BAD, /* reported by the lexer; whoever meets it stays silent */
    TOKEN_WORD,
    TOKEN_QUOTED, /* a name in backticks */
    TOKEN_NUMBER,
    TOKEN_TEXT,
    TOKEN_LEFT_BRACE,
    TOKEN_RIGHT_BRACE,
    TOKEN_LEFT_BRACKET,
    TOKEN_RIGHT_BRACKET,
    TOKEN_LEFT_PAREN,
    TOKEN_RIGHT_PAREN,
    TOKEN_COMMA,
    TOKEN_COLON,
    TOKEN_PIPE,
    TOKEN_DOT,
    TOKEN_BANG,
    TOKEN_ASSIGN,
    TOKEN_EQUAL,
    TOKEN_NOT_EQUAL,
    TOKEN_LESS,
    TOKEN_LESS_EQUAL,
    TOKEN_GREATER,
    TOKEN_GREATER_EQUAL,
    TOKEN_PLUS,
    TOKEN_MINUS,
    TOKEN_STAR,
    TOKEN_SLASH,
    TOKEN_PERCENT,
};

/* What the parser found a token to be, where its tag does not say; the formatter's spacing goes by it. */
enum token_role {
    ROLE_NONE,
    ROLE_DECLARATION, /* begins a declaration */
    ROLE_STEP,        /* the `|` of a step */
    ROLE_INPUT,       /* the first token of a stream's input */
    ROLE_CALL,        /* the `(` of a call or of a list of parameters */
    ROLE_UNARY,       /* a minus with one operand */
    ROLE_ITEM,        /* begins an entry, a list element or an argument */
    ROLE_SEPARATOR,   /* a comma between entries, for which a new line will do */
    ROLE_TRAILING,    /* a comma with nothing after it */
};

struct token {
    enum token_tag tag;
    enum token_role role;
    struct span span;
    struct str text;  /* as written; of TOKEN_TEXT and TOKEN_QUOTED what it stands for */
    bool begins_line; /* a new line lies between it and the token before */
    uint8_t breaks;   /* new lines between it and the token or comment before, at most 2 */
};

struct comment {
    struct span span; /* from the `#`, without white space at the end */
    uint32_t before;  /* index of the token that follows */
    uint8_t breaks;
};

struct token_list {
    struct token *tokens; /* the last one is TOKEN_END */
    uint32_t count;       /* without TOKEN_END */
    struct comment *comments;
    uint32_t comments_count;
};

struct parser {
    struct arena *arena;
    struct diag_list *diags;
    const struct registry *registry; /* not NULL */
    struct str source;
    struct token *tokens;
    uint32_t at;
    uint32_t nesting;  /* of the recursion */
    uint32_t open;     /* brackets taken and not closed; after an error, what recovery must skip */
    bool no_kinds;     /* `name {` is a name and the body of a step, not a kind with its block */
    bool takes_names;  /* the next block's entries may be names alone: `{ price }` is `{ price: price }` */
    bool is_broken;    /* something was reported since the flag was last cleared */
    uint32_t error_at; /* token of the last report: one report for one token */
};

/* lexer.c: reports and goes on. */
void lang_tokenize(struct arena *arena, struct diag_list *diags, struct str text, struct token_list *list);

/* parser.c. Parsing as lang_parse does, from tokens; the formatter reads the roles afterwards. */
struct job_file *lang_parse_tokens(struct arena *arena, struct diag_list *diags,
                                   const struct registry *registry, struct str text, struct token_list *list);

/* token.c: the current token, and what is said when it is not the right one. */
struct token *parser_token(struct parser *parser);
struct token *parser_peek(struct parser *parser, uint32_t ahead);
struct token *parser_next(struct parser *parser);
bool parser_is_word(const struct token *token, const char *word);
bool parser_accept_word(struct parser *parser, const char *word);
bool parser_accept(struct parser *parser, enum token_tag tag);
/* "expected WHAT, found ..." at the current token; NULL where something was already said about this token. */
struct diag *parser_expected(struct parser *parser, const char *what);
/* The same where something new begins: points at the token even when it stands on a new line. */
struct diag *parser_expected_item(struct parser *parser, const char *what);
/* Takes the token or reports; `opener` (may be NULL) is the bracket that it closes. */
bool parser_take(struct parser *parser, enum token_tag tag, const char *what, const struct token *opener);
bool parser_take_word(struct parser *parser, const char *word);
struct diag *parser_error(struct parser *parser, enum diag_code code, struct span span, const char *format,
                          ...) LEAT_PRINTF(4, 5);
/* Whether a declaration begins here: `sink x ...` on a line of its own. */
bool parser_at_declaration(struct parser *parser);
/* The same wherever it stands. */
bool parser_looks_like_declaration(struct parser *parser);
/* Where skipping after an error ends at the latest: the end, or what was probably meant as a declaration. */
bool parser_at_recovery(struct parser *parser);
/* Skips to what may begin or end an entry: `,` `}` or a new line, over whole brackets. open: parser->open
 * where the entry began. May skip nothing. */
void parser_skip_entry(struct parser *parser, uint32_t open);
/* Skips to the next `|` (no expression has one) or declaration. */
void parser_skip_step(struct parser *parser);
/* Skips to the next declaration; at least one token. */
void parser_skip_declaration(struct parser *parser);
/* false (after E0105) where it is too deep; each true needs a parser_leave. */
bool parser_enter(struct parser *parser);
void parser_leave(struct parser *parser);
extern const char *const lang_declaration_words[];
enum { LANG_DECLARATION_WORDS = 8 };

/* expression.c: NULL after a diagnostic. */
struct ast *parse_expression(struct parser *parser);

/* block.c: entries between braces; what could not be read is left out. The current token is the `{`. */
void parse_block(struct parser *parser, struct ast_entry **entries, uint32_t *count);

/* step.c: the current token is the `|`. */
void parse_step(struct parser *parser, struct step_decl *step);

/* node.c: nodes and growing arrays in the arena. */
struct ast *lang_node(struct arena *arena, enum ast_tag tag, struct span span);
/* Gives the node its children and its height; NULL after E0105 where that is too high. */
struct ast *lang_node_children(struct arena *arena, struct diag_list *diags, struct ast *node,
                               struct ast *const *children, uint32_t count);
struct ast *lang_node_entries(struct diag_list *diags, struct ast *node, struct ast_entry *entries,
                              uint32_t count);
/* Room for one more item after `count`: doubles at powers of two. */
void *lang_grow(struct arena *arena, void *items, uint32_t count, size_t size);
/* Nodes of the tree, shared ones counted as often as they occur; stops at `limit`. */
uint32_t lang_node_count(const struct ast *ast, uint32_t limit);
struct span span_join(struct span a, struct span b);

/* names.c: names that are declared twice. */
void lang_check_names(struct job_file *job, const struct registry *registry, struct arena *arena,
                      struct diag_list *diags);

/* fold.c: arithmetic over literals. Returns the node itself where there is nothing to do or it would fail. */
struct ast *lang_fold(struct arena *arena, struct ast *node);
/* Why the tree, arithmetic over numbers alone, could not be folded; NULL where it is not such a tree. */
const char *lang_fold_failure(const struct ast *ast);
/* The value of a literal in job text, e.g. of --set; NULL where it is none of that type. */
struct ast *lang_literal(struct arena *arena, enum param_type type, struct str text, struct span span);
const char *lang_param_type_name(enum param_type type);

/* Expansion: what its files share. */
struct expander {
    struct arena *arena;
    struct diag_list *diags;
    struct job_file *job;
    const struct lang_settings *settings;
    struct param_decl **params;          /* by name */
    struct let_decl **lets;              /* by name */
    const struct param_decl *params_end; /* those from here on cannot be used yet; NULL: all can */
    uint32_t nodes;                      /* made so far, shared ones counted as often as they occur */
    bool is_full;                        /* LANG_EXPANDED_NODES_MAX was reported */
};

/* The body of a function while it is put in. */
struct expand_scope {
    const struct let_decl *let;
    struct ast *const *arguments; /* expanded */
    struct span use;              /* what the nodes of the body get as their span */
    uint32_t depth;
};

/* expand.c. scope: NULL outside of functions. NULL after a diagnostic. */
struct ast *expand_ast(struct expander *expander, struct ast *ast, const struct expand_scope *scope);
struct param_decl *expand_find_param(const struct expander *expander, struct str name);
const char *expand_nearest_param(const struct expander *expander, struct str name);
struct let_decl *expand_find_let(const struct expander *expander, struct str name);

/* expand_lets.c: recursion, free names; broken functions lose their body. */
void expand_check_lets(struct expander *expander);

/* expand_params.c: gives every parameter its value, or marks it broken. */
void expand_params(struct expander *expander);

/* secret.c: env(...) and file(...). */
bool expand_is_secret(const struct ast *call);
struct ast *expand_secret(struct expander *expander, const struct ast *call, struct span span);

#endif
