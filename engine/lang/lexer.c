/* Text -> tokens and comments. Errors are reported here; the wrong text becomes a TOKEN_BAD (or the intended
 * token, if that is clear), so that the parser can go on. */
#include "core/hex.h"
#include "core/utf8.h"
#include "lang/internal.h"

struct lexer {
    struct arena *arena;
    struct diag_list *diags;
    struct str text;
    uint32_t at;
    struct token_list *list;
    uint8_t breaks;         /* number of line breaks since the last token or comment */
    bool begins_line;       /* a line break was seen since the last token */
    uint32_t bad_utf8_line; /* 1 + offset of the last line with an E0106 report: one report per line */
    uint32_t line_begin;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_word_char(char c)
{
    return is_word_start(c) || is_digit(c);
}

static char peek(const struct lexer *lexer, uint32_t ahead)
{
    size_t at = (size_t)lexer->at + ahead;
    return at < lexer->text.length ? lexer->text.data[at] : '\0';
}

static bool at_end(const struct lexer *lexer)
{
    return lexer->at >= lexer->text.length;
}

/* Steps over one character. false: an invalid UTF-8 byte, reported once per line. */
static bool step_char(struct lexer *lexer)
{
    uint32_t code;
    size_t bytes = utf8_decode(lexer->text.data + lexer->at, lexer->text.length - lexer->at, &code);
    if (bytes > 0) {
        lexer->at += (uint32_t)bytes;
        return true;
    }
    if (lexer->bad_utf8_line != lexer->line_begin + 1) {
        struct diag *d = diag_error(lexer->diags, DIAG_BAD_UTF8, (struct span){lexer->at, lexer->at + 1},
                                    "byte 0x%02X is not valid UTF-8",
                                    (unsigned)(unsigned char)lexer->text.data[lexer->at]);
        diag_hint(lexer->diags, d, "save the file as UTF-8");
        lexer->bad_utf8_line = lexer->line_begin + 1;
    }
    lexer->at++;
    return false;
}

static struct token *add_token(struct lexer *lexer, enum token_tag tag, uint32_t begin)
{
    struct token_list *list = lexer->list;
    list->tokens = lang_grow(lexer->arena, list->tokens, list->count, sizeof(*list->tokens));
    struct token *token = &list->tokens[list->count++];
    *token = (struct token){.tag = tag,
                            .span = {begin, lexer->at},
                            .text = {lexer->text.data + begin, lexer->at - begin},
                            .begins_line = lexer->begins_line,
                            .breaks = lexer->breaks};
    lexer->begins_line = false;
    lexer->breaks = 0;
    return token;
}

static void lex_comment(struct lexer *lexer)
{
    uint32_t begin = lexer->at;
    while (!at_end(lexer) && peek(lexer, 0) != '\n')
        step_char(lexer);
    uint32_t end = lexer->at;
    while (end > begin && (lexer->text.data[end - 1] == ' ' || lexer->text.data[end - 1] == '\t' ||
                           lexer->text.data[end - 1] == '\r'))
        end--;
    struct token_list *list = lexer->list;
    list->comments = lang_grow(lexer->arena, list->comments, list->comments_count, sizeof(*list->comments));
    list->comments[list->comments_count++] =
        (struct comment){.span = {begin, end}, .before = list->count, .breaks = lexer->breaks};
    lexer->breaks = 0;
}

static void lex_word(struct lexer *lexer)
{
    uint32_t begin = lexer->at;
    while (is_word_char(peek(lexer, 0)))
        lexer->at++;
    struct token *token = add_token(lexer, TOKEN_WORD, begin);
    if (token->text.length > LANG_NAME_BYTES_MAX) {
        diag_error(lexer->diags, DIAG_TOO_DEEP, token->span, "this name is longer than %d bytes",
                   LANG_NAME_BYTES_MAX);
        token->tag = TOKEN_BAD;
    }
}

/* Reads a name in backticks, like `user id`; it may contain anything but backticks and control characters. */
static void lex_quoted(struct lexer *lexer)
{
    uint32_t begin = lexer->at++;
    while (!at_end(lexer) && peek(lexer, 0) != '`' && (unsigned char)peek(lexer, 0) >= 0x20)
        step_char(lexer);
    bool is_closed = peek(lexer, 0) == '`';
    lexer->at += is_closed;
    struct token *token = add_token(lexer, TOKEN_QUOTED, begin);
    token->text.data++;
    token->text.length -= 1 + (size_t)is_closed;
    if (is_closed && token->text.length > 0 && token->text.length <= LANG_NAME_BYTES_MAX)
        return;
    token->tag = TOKEN_BAD;
    if (!is_closed)
        diag_hint(lexer->diags,
                  diag_error(lexer->diags, DIAG_OPEN_TEXT, token->span, "this name has no closing backtick"),
                  "close the name with ` on the same line");
    else if (token->text.length == 0)
        diag_error(lexer->diags, DIAG_UNEXPECTED, token->span, "expected a name between the backticks");
    else
        diag_error(lexer->diags, DIAG_TOO_DEEP, token->span, "this name is longer than %d bytes",
                   LANG_NAME_BYTES_MAX);
}

/* Reads digits, fraction, exponent and the letters of a unit; the parser decides what they mean. */
static void lex_number(struct lexer *lexer)
{
    uint32_t begin = lexer->at;
    bool is_plain = true; /* no letters yet */
    while (true) {
        char c = peek(lexer, 0);
        if ((c == 'e' || c == 'E') && is_plain && (peek(lexer, 1) == '-' || peek(lexer, 1) == '+') &&
            is_digit(peek(lexer, 2))) {
            lexer->at += 2;
            is_plain = false;
        } else if (is_word_char(c)) {
            is_plain = is_plain && (is_digit(c) || c == '_');
        } else if (!(c == '.' && is_digit(peek(lexer, 1)))) {
            break;
        }
        lexer->at++;
    }
    add_token(lexer, TOKEN_NUMBER, begin);
}

/* Reads {1F600}: one to six hex digits of a Unicode scalar value. The lexer is behind `\u`. */
static bool lex_unicode_escape(struct lexer *lexer, char **out)
{
    if (peek(lexer, 0) != '{')
        return false;
    lexer->at++;
    uint32_t code = 0, digits = 0;
    for (; hex_value(peek(lexer, 0)) >= 0 && digits < 7; digits++, lexer->at++)
        code = code * 16 + (uint32_t)hex_value(peek(lexer, 0));
    if (digits == 0 || digits > 6 || peek(lexer, 0) != '}' || code > 0x10FFFF ||
        (code >= 0xD800 && code <= 0xDFFF))
        return false;
    lexer->at++;
    *out += utf8_encode(code, *out);
    return true;
}

/* Reads one escape; the lexer is at the backslash. */
static void lex_escape(struct lexer *lexer, char **out)
{
    static const char from[] = "nrt0\"\\", to[] = "\n\r\t\0\"\\";
    uint32_t begin = lexer->at;
    char c = peek(lexer, 1);
    const char *found = c == '\0' ? NULL : strchr(from, c);
    lexer->at++;
    if (found != NULL) {
        lexer->at++;
        *(*out)++ = to[found - from];
        return;
    }
    if (c == 'u') {
        lexer->at++;
        if (lex_unicode_escape(lexer, out))
            return;
    } else if (!at_end(lexer) && c != '\n') {
        step_char(lexer);
    }
    struct diag *d = diag_error(lexer->diags, DIAG_BAD_ESCAPE, (struct span){begin, lexer->at},
                                c == 'u' ? "this is not a Unicode character" : "there is no such escape");
    diag_hint(lexer->diags, d, "escapes are \\n \\r \\t \\0 \\\" \\\\ and \\u{1F600}");
}

/* Upper bound on the bytes of the text that begins at `begin`: no escape is shorter than its value. */
static size_t text_room(const struct lexer *lexer, uint32_t begin)
{
    size_t at = begin;
    const char *data = lexer->text.data;
    while (at < lexer->text.length && data[at] != '"' && data[at] != '\n')
        at += data[at] == '\\' ? 2 : 1;
    return at - begin;
}

static void lex_text_char(struct lexer *lexer)
{
    unsigned char c = (unsigned char)peek(lexer, 0);
    if (c < 0x20 && c != '\t' && c != '\r') {
        struct diag *d = diag_error(lexer->diags, DIAG_BAD_CHARACTER, (struct span){lexer->at, lexer->at + 1},
                                    "a control character (0x%02X) in a text", (unsigned)c);
        diag_hint(lexer->diags, d, "write the character as \\u{%X}", (unsigned)c);
    }
    step_char(lexer);
}

static void lex_text(struct lexer *lexer)
{
    uint32_t begin = lexer->at++;
    char *value = NULL, *out = NULL;
    uint32_t plain = lexer->at;
    while (!at_end(lexer) && peek(lexer, 0) != '"' && peek(lexer, 0) != '\n') {
        if (peek(lexer, 0) != '\\') {
            lex_text_char(lexer);
            continue;
        }
        if (value == NULL)
            value = out = arena_alloc(lexer->arena, text_room(lexer, plain));
        memcpy(out, lexer->text.data + plain, lexer->at - plain);
        out += lexer->at - plain;
        lex_escape(lexer, &out);
        plain = lexer->at;
    }
    struct str text = {lexer->text.data + plain, lexer->at - plain};
    if (value != NULL) {
        memcpy(out, text.data, text.length);
        text = (struct str){value, (size_t)(out - value) + text.length};
    }
    bool is_closed = peek(lexer, 0) == '"';
    lexer->at += is_closed;
    struct token *token = add_token(lexer, TOKEN_TEXT, begin);
    token->text = text;
    if (!is_closed)
        diag_hint(lexer->diags,
                  diag_error(lexer->diags, DIAG_OPEN_TEXT, (struct span){begin, lexer->at},
                             "this text has no closing quote"),
                  "close the text with \" on the same line; write a line break within a text as \\n");
}

static bool lex_mark(struct lexer *lexer)
{
    static const struct {
        char text[3];
        enum token_tag tag;
    } marks[] = {
        {"==", TOKEN_EQUAL},         {"!=", TOKEN_NOT_EQUAL},    {"<=", TOKEN_LESS_EQUAL},
        {">=", TOKEN_GREATER_EQUAL}, {"{", TOKEN_LEFT_BRACE},    {"}", TOKEN_RIGHT_BRACE},
        {"[", TOKEN_LEFT_BRACKET},   {"]", TOKEN_RIGHT_BRACKET}, {"(", TOKEN_LEFT_PAREN},
        {")", TOKEN_RIGHT_PAREN},    {",", TOKEN_COMMA},         {":", TOKEN_COLON},
        {"|", TOKEN_PIPE},           {".", TOKEN_DOT},           {"!", TOKEN_BANG},
        {"=", TOKEN_ASSIGN},         {"<", TOKEN_LESS},          {">", TOKEN_GREATER},
        {"+", TOKEN_PLUS},           {"-", TOKEN_MINUS},         {"*", TOKEN_STAR},
        {"/", TOKEN_SLASH},          {"%", TOKEN_PERCENT},
    };
    for (size_t i = 0; i < ARRAY_COUNT(marks); i++) {
        uint32_t length = (uint32_t)strlen(marks[i].text);
        if (peek(lexer, 0) != marks[i].text[0] || (length == 2 && peek(lexer, 1) != marks[i].text[1]))
            continue;
        uint32_t begin = lexer->at;
        lexer->at += length;
        add_token(lexer, marks[i].tag, begin);
        return true;
    }
    return false;
}

static const char *bad_character_hint(char c)
{
    switch (c) {
    case '\'': return "texts are written in double quotes: \"...\"";
    case '?': return "a choice is written `case when ... then ... else ... end`";
    case ';': return "entries are separated by a comma or a new line";
    case '&': return "write `and`";
    case '$':
    case '@': return "parameters and columns are used by their plain names";
    case '~':
    case '^': return "operators are + - * / % = != < <= > >= and or not";
    default: return NULL;
    }
}

/* If the lexer is at a text in foreign quotes ('...' or typographic), returns the text's end, which must be
 * on the same line; else 0. */
static uint32_t foreign_text_end(const struct lexer *lexer)
{
    static const char *const pairs[][2] = {
        {"'", "'"}, {"\xE2\x80\x9C", "\xE2\x80\x9D"}, {"\xE2\x80\x98", "\xE2\x80\x99"}};
    const char *begin = lexer->text.data + lexer->at;
    size_t left = lexer->text.length - lexer->at;
    for (size_t i = 0; i < ARRAY_COUNT(pairs); i++) {
        size_t length = strlen(pairs[i][0]);
        if (left < length || memcmp(begin, pairs[i][0], length) != 0)
            continue;
        const char *new_line = memchr(begin, '\n', left);
        size_t line = new_line != NULL ? (size_t)(new_line - begin) : left;
        const char *end = memmem(begin + length, line - length, pairs[i][1], length);
        return end != NULL ? lexer->at + (uint32_t)(end - begin) + (uint32_t)length : 0;
    }
    return 0;
}

/* Reads characters that mean nothing here: one report, one TOKEN_BAD. */
static void lex_bad(struct lexer *lexer)
{
    uint32_t begin = lexer->at, text_end = foreign_text_end(lexer);
    char first = peek(lexer, 0);
    bool is_utf8 = step_char(lexer);
    if (text_end > 0)
        lexer->at = text_end;
    while (text_end == 0 && peek(lexer, 0) == first && first != '\0' && !at_end(lexer) && is_utf8 &&
           (unsigned char)first < 0x80)
        lexer->at++;
    struct span span = {begin, lexer->at};
    if (text_end > 0)
        diag_hint(lexer->diags,
                  diag_error(lexer->diags, DIAG_BAD_CHARACTER, span, "these quotes cannot enclose a text"),
                  "texts are written in double quotes: \"...\"");
    else if (is_utf8 && ((unsigned char)first < 0x20 || first == 0x7F))
        diag_error(lexer->diags, DIAG_BAD_CHARACTER, span, "a control character (0x%02X)",
                   (unsigned)(unsigned char)first);
    else if (is_utf8) {
        struct diag *d = diag_error(lexer->diags, DIAG_BAD_CHARACTER, span, "`%.*s` means nothing here",
                                    (int)MIN(lexer->at - begin, 20), lexer->text.data + begin);
        const char *hint = (unsigned char)first >= 0x80
                               ? "write names with characters beyond ASCII in backticks"
                               : bad_character_hint(first);
        if (hint != NULL)
            diag_hint(lexer->diags, d, "%s", hint);
    }
    while (!at_end(lexer) && (unsigned char)peek(lexer, 0) >= 0x80)
        step_char(lexer);
    add_token(lexer, TOKEN_BAD, begin);
}

static void lex_one(struct lexer *lexer)
{
    char c = peek(lexer, 0);
    if (c == '\n') {
        lexer->at++;
        lexer->begins_line = true;
        lexer->breaks = lexer->breaks < 2 ? (uint8_t)(lexer->breaks + 1) : 2;
        lexer->line_begin = lexer->at;
    } else if (c == ' ' || c == '\t' || c == '\r') {
        lexer->at++;
    } else if (c == '#') {
        lex_comment(lexer);
    } else if (is_word_start(c)) {
        lex_word(lexer);
    } else if (is_digit(c)) {
        lex_number(lexer);
    } else if (c == '"') {
        lex_text(lexer);
    } else if (c == '`') {
        lex_quoted(lexer);
    } else if (!lex_mark(lexer)) {
        lex_bad(lexer);
    }
}

void lang_tokenize(struct arena *arena, struct diag_list *diags, struct str text, struct token_list *list)
{
    *list = (struct token_list){0};
    struct lexer lexer = {.arena = arena, .diags = diags, .text = text, .list = list, .begins_line = true};
    if (text.length > LANG_SOURCE_BYTES_MAX) {
        diag_error(diags, DIAG_TOO_DEEP, (struct span){0, 0},
                   "the job file has %zu bytes; at most %d are allowed", text.length, LANG_SOURCE_BYTES_MAX);
        lexer.text.length = 0;
    }
    const char *zero = lexer.text.length > 0 ? memchr(text.data, 0, text.length) : NULL;
    if (zero != NULL) { /* reported once, not for each zero byte */
        uint32_t at = (uint32_t)(zero - text.data);
        struct diag *d = diag_error(diags, DIAG_BAD_CHARACTER, (struct span){at, at + 1},
                                    "a zero byte (offset %u): this is not a text file", at);
        diag_hint(diags, d, "give the path of a job file; recordings are named in the job, or with --replay");
        lexer.text.length = 0;
    }
    if (lexer.text.length == 0)
        lexer.text.data = "";
    if (lexer.text.length >= 3 && memcmp(lexer.text.data, "\xEF\xBB\xBF", 3) == 0)
        lexer.at = 3;
    /* Stop when the list of diagnostics is full: further errors could not be reported. */
    while (!at_end(&lexer) && diags->count < DIAG_MAX)
        lex_one(&lexer);
    add_token(&lexer, TOKEN_END, lexer.at);
    list->count--;
}
