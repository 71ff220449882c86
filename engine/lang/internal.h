/* Shared by the files of lang only: tokens, the parser's state, helpers. */
#ifndef LEAT_LANG_INTERNAL_H
#define LEAT_LANG_INTERNAL_H

#include "lang/lang.h"

enum token_tag {
    TOKEN_END,
    TOKEN_BAD, /* already reported by the lexer: the parser reports nothing more */
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

/* The parser's classification of a token, where its tag is not enough; the formatter's spacing
 * depends on it. */
enum token_role {
    ROLE_NONE,
    ROLE_DECLARATION, /* begins a declaration */
    ROLE_STEP,        /* the `|` of a step */
    ROLE_INPUT,       /* the first token of a stream's input */
    ROLE_CALL,        /* the `(` of a call or of a list of parameters */
    ROLE_UNARY,       /* a minus with one operand */
    ROLE_ITEM,        /* begins an entry, a list element or an argument */
    ROLE_SEPARATOR,   /* a comma between entries, which a new line can replace */
    ROLE_TRAILING,    /* a comma with nothing after it */
};

struct token {
    enum token_tag tag;
    enum token_role role;
    struct span span;
    struct str text;  /* as written; for TOKEN_TEXT and TOKEN_QUOTED the value it denotes */
    bool begins_line; /* a line break lies between this token and the previous one */
    uint8_t breaks;   /* number of line breaks between this token and the token or comment before it, at
                         most 2 */
};

struct comment {
    struct span span; /* from the `#`, without trailing white space */
    uint32_t before;  /* index of the token that follows the comment */
    uint8_t breaks;   /* as in struct token */
};

struct token_list {
    struct token *tokens; /* the last one is TOKEN_END */
    uint32_t count;       /* number of tokens without TOKEN_END */
    struct comment *comments;
    uint32_t comments_count;
};

struct parser {
    struct arena *arena;
    struct diag_list *diags;
    const struct registry *registry; /* not NULL */
    struct str source;
    struct token *tokens;
    uint32_t at;       /* index of the current token */
    uint32_t nesting;  /* depth of the recursion */
    uint32_t open;     /* number of brackets opened and not yet closed; after an error, recovery must skip
                          to their ends */
    bool no_kinds;     /* read `name {` as a name and the step's body, not as a kind with its block */
    bool takes_names;  /* entries of the next block may be names alone: `{ price }` means `{
                          price: price }` */
    bool is_broken;    /* an error was reported since the flag was last cleared */
    uint32_t error_at; /* index of the token last reported: each token is reported at most once */
};

/* lexer.c: text -> tokens and comments. Reports errors and goes on. */
void lang_tokenize(struct arena *arena, struct diag_list *diags, struct str text, struct token_list *list);

/* parser.c: like lang_parse, but from tokens. Sets the tokens' roles, which the formatter reads. */
struct job_file *lang_parse_tokens(struct arena *arena, struct diag_list *diags,
                                   const struct registry *registry, struct str text, struct token_list *list);

/* token.c: reads tokens, and reports a token that is not the expected one. parser_token: the current token.
 * parser_peek: the token `ahead` places after it. parser_next: returns the current token and steps over it,
 * but not over TOKEN_END. The accept functions step over the current token if it is the given one, else
 * return false. */
struct token *parser_token(struct parser *parser);
struct token *parser_peek(struct parser *parser, uint32_t ahead);
struct token *parser_next(struct parser *parser);
bool parser_is_word(const struct token *token, const char *word);
bool parser_accept_word(struct parser *parser, const char *word);
bool parser_accept(struct parser *parser, enum token_tag tag);
/* Reports "expected WHAT, found ..." at the current token. NULL: this token was reported already. */
struct diag *parser_expected(struct parser *parser, const char *what);
/* Like parser_expected, where a new item begins: points at the token even if it stands on a new line. */
struct diag *parser_expected_item(struct parser *parser, const char *what);
/* Steps over the expected token; false: reported that it is missing. what: its name in the message. opener
 * (may be NULL): the bracket that it closes. */
bool parser_take(struct parser *parser, enum token_tag tag, const char *what, const struct token *opener);
bool parser_take_word(struct parser *parser, const char *word);
/* Reports an error at `span`, and marks the parser as broken. */
struct diag *parser_error(struct parser *parser, enum diag_code code, struct span span, const char *format,
                          ...) LEAT_PRINTF(4, 5);
/* Whether a declaration begins here: `sink x ...` at the beginning of a line. */
bool parser_at_declaration(struct parser *parser);
/* Like parser_at_declaration, but anywhere in a line. */
bool parser_looks_like_declaration(struct parser *parser);
/* Whether skipping after an error must stop here: at the end, or at what is probably meant
 * as a declaration. */
bool parser_at_recovery(struct parser *parser);
/* Skips whole brackets and other tokens up to the start or end of an entry: `,`, `}` or a new line. open:
 * value of parser->open where the entry began. May skip nothing. */
void parser_skip_entry(struct parser *parser, uint32_t open);
/* Skips to the next `|` (expressions contain none) or declaration. */
void parser_skip_step(struct parser *parser);
/* Skips to the next declaration, at least one token. */
void parser_skip_declaration(struct parser *parser);
/* Enters a nesting level; false after E0105: nested too deeply. Call parser_leave once for each call that
 * returned true. */
bool parser_enter(struct parser *parser);
void parser_leave(struct parser *parser);
extern const char *const lang_declaration_words[];
enum { LANG_DECLARATION_WORDS = 9 };

/* expression.c: parses one expression; NULL after a diagnostic. */
struct ast *parse_expression(struct parser *parser);

/* block.c: parses the entries between braces, leaving out unreadable ones. The current token is the `{`. */
void parse_block(struct parser *parser, struct ast_entry **entries, uint32_t *count);

/* step.c: parses one step. The current token is the `|`. */
void parse_step(struct parser *parser, struct step_decl *step);

/* node.c: nodes and growing arrays in the arena. */
struct ast *lang_node(struct arena *arena, enum ast_tag tag, struct span span);
/* Sets the node's children and height; NULL after E0105 if the tree would be too high. */
struct ast *lang_node_children(struct arena *arena, struct diag_list *diags, struct ast *node,
                               struct ast *const *children, uint32_t count);
struct ast *lang_node_entries(struct diag_list *diags, struct ast *node, struct ast_entry *entries,
                              uint32_t count);
/* Returns `items`, moved if necessary, with room for one more after `count`; doubles at powers of two. */
void *lang_grow(struct arena *arena, void *items, uint32_t count, size_t size);
/* Number of nodes in the tree, counting shared nodes at each occurrence; stops counting at `limit`. */
uint32_t lang_node_count(const struct ast *ast, uint32_t limit);
struct span span_join(struct span a, struct span b);

/* names.c: reports names declared twice or already taken. */
void lang_check_names(struct job_file *job, const struct registry *registry, struct arena *arena,
                      struct diag_list *diags);

/* fold.c: folds arithmetic over literals. Returns the node itself if there is nothing to fold or
 * folding would fail. */
struct ast *lang_fold(struct arena *arena, struct ast *node);
/* Why a tree of arithmetic over number literals could not be folded; NULL: not such a tree. */
const char *lang_fold_failure(const struct ast *ast);
/* The literal of that type with the given job text, e.g. from --set; NULL: not a literal of that type. */
struct ast *lang_literal(struct arena *arena, enum param_type type, struct str text, struct span span);
const char *lang_param_type_name(enum param_type type);

/* State of expansion, shared by its files. */
struct expander {
    struct arena *arena;
    struct diag_list *diags;
    struct job_file *job;
    const struct lang_settings *settings;
    struct param_decl **params;          /* sorted by name */
    struct let_decl **lets;              /* sorted by name */
    const struct param_decl *params_end; /* parameters from here on cannot be used yet; NULL: all can */
    uint32_t nodes;                      /* number of nodes made so far, counting shared nodes
                                            at each occurrence */
    bool is_full;                        /* LANG_EXPANDED_NODES_MAX was reported */
};

/* The function whose body is being expanded. */
struct expand_scope {
    const struct let_decl *let;
    struct ast *const *arguments; /* expanded */
    struct span use;              /* span of the outermost call: all nodes of the body get it */
    uint32_t depth;               /* number of functions that are being expanded, this one included */
};

/* expand.c: expands one tree; NULL after a diagnostic. scope: NULL outside of functions. */
struct ast *expand_ast(struct expander *expander, struct ast *ast, const struct expand_scope *scope);
/* The declaration of that name; NULL: there is none. expand_nearest_param: the name of the parameter that
 * `name` is probably a misspelling of, for "did you mean"; NULL: none is near. */
struct param_decl *expand_find_param(const struct expander *expander, struct str name);
const char *expand_nearest_param(const struct expander *expander, struct str name);
struct let_decl *expand_find_let(const struct expander *expander, struct str name);

/* expand_lets.c: reports recursion and free names; sets the body of broken functions to NULL. */
void expand_check_lets(struct expander *expander);

/* expand_params.c: gives every parameter its value, or marks it as broken. */
void expand_params(struct expander *expander);

/* secret.c: env(...) and file(...). expand_is_secret: whether the call is one of them. expand_secret: reads
 * the value and returns it as a text literal with `origin` set, at `span`; NULL after a diagnostic. */
bool expand_is_secret(const struct ast *call);
struct ast *expand_secret(struct expander *expander, const struct ast *call, struct span span);

#endif
