/* The formatter. It works on tokens: line breaks, comments and spellings stay as written; indentation,
 * spacing, separators, blank lines (at most one) and the column of comments become canonical.
 *
 * First the tokens and comments become one list of items, each with the number of line breaks before it. Then
 * the breaks are corrected: commas and opening braces join the line before them; commas that a new line
 * replaces are removed; the entries of a block are either all on the block's line or on lines of their own,
 * and so are the steps of a stream. Then the lines are written: a line's indentation follows from its
 * innermost open bracket and from its first item. */
#include "lang/internal.h"

struct item {
    struct str text;
    enum token_tag tag;
    enum token_role role;
    uint8_t breaks; /* number of line breaks before the item: 0 to 2 */
    bool is_comment;
};

struct bracket {
    uint32_t indent; /* indent of the line that opened the bracket; the closing bracket gets the same */
    uint32_t item;
};

struct line {
    uint32_t indent;
    size_t begin, end; /* range in formatter.code */
    struct str comment;
    bool is_blank_before;
};

struct formatter {
    struct arena *arena;
    struct item *items;
    uint32_t count;
    struct bracket *stack;
    uint32_t depth;
    struct byte_buffer code;
    struct line *lines;
    uint32_t lines_count;
    uint32_t ahead;     /* index of the next item that is a token: comments before it get its indentation */
    uint32_t line_base; /* indent for brackets opened on the current line */
    uint32_t more;      /* indent of continuation lines outside of brackets */
};

static bool opens(const struct item *item)
{
    return !item->is_comment && (item->tag == TOKEN_LEFT_BRACE || item->tag == TOKEN_LEFT_BRACKET ||
                                 item->tag == TOKEN_LEFT_PAREN);
}

static bool closes(const struct item *item)
{
    return !item->is_comment && (item->tag == TOKEN_RIGHT_BRACE || item->tag == TOKEN_RIGHT_BRACKET ||
                                 item->tag == TOKEN_RIGHT_PAREN);
}

static void build_items(struct formatter *f, struct str text, const struct token_list *list)
{
    if (text.length == 0)
        text.data = "";
    f->items = arena_array(f->arena, struct item, (size_t)list->count + list->comments_count + 1);
    uint32_t comment = 0;
    for (uint32_t i = 0; i <= list->count; i++) {
        for (; comment < list->comments_count && list->comments[comment].before == i; comment++) {
            const struct comment *c = &list->comments[comment];
            f->items[f->count++] =
                (struct item){.text = {text.data + c->span.begin, c->span.end - c->span.begin},
                              .breaks = c->breaks,
                              .is_comment = true};
        }
        const struct token *token = &list->tokens[i];
        f->items[f->count++] =
            (struct item){.text = {text.data + token->span.begin, token->span.end - token->span.begin},
                          .tag = token->tag,
                          .role = token->role,
                          .breaks = token->breaks};
    }
    f->items[0].breaks = 0;
}

/* Whether the item must go to the end of the previous line. */
static bool joins_line(const struct item *items, uint32_t i)
{
    if (items[i].is_comment || i == 0)
        return false;
    if (items[i].tag == TOKEN_COMMA)
        return true;
    uint32_t before = i - 1;
    while (before > 0 && items[before].is_comment)
        before--;
    enum token_tag tag = items[before].tag;
    return items[i].tag == TOKEN_LEFT_BRACE && !items[before].is_comment && tag != TOKEN_COMMA &&
           tag != TOKEN_LEFT_BRACKET && tag != TOKEN_LEFT_PAREN;
}

/* Moves commas and opening braces at the beginning of a line to the end of the previous line,
 * before its comment. */
static void join_lines(struct formatter *f)
{
    for (uint32_t i = 1; i < f->count; i++) {
        if (!joins_line(f->items, i))
            continue;
        struct item moved = f->items[i];
        uint32_t to = i;
        for (; f->items[to - 1].is_comment; to--)
            f->items[to] = f->items[to - 1];
        if (i + 1 < f->count)
            f->items[i + 1].breaks = MAX(f->items[i + 1].breaks, moved.breaks);
        moved.breaks = 0;
        f->items[to] = moved;
    }
}

/* Removes commas that a new line or the end of the block replaces. */
static void drop_commas(struct formatter *f)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        const struct item *item = &f->items[i], *next = &f->items[MIN(i + 1, f->count - 1)];
        bool is_needless = item->role == ROLE_TRAILING ||
                           (item->role == ROLE_SEPARATOR &&
                            (next->breaks > 0 || next->is_comment || next->tag == TOKEN_RIGHT_BRACE));
        if (!is_needless)
            f->items[kept++] = *item;
    }
    f->count = kept;
}

/* Makes the breaks of a block consistent: if is_spread, breaks after `{` and before `}`; an empty
 * block has none. */
static void spread_block(struct formatter *f, uint32_t open, uint32_t close, bool is_spread)
{
    struct item *first = &f->items[open + 1], *last = &f->items[close];
    if (open + 1 == close) {
        last->breaks = 0;
    } else if (is_spread) {
        if (!first->is_comment || first->breaks > 0)
            first->breaks = 1;
        last->breaks = 1;
    }
}

static void spread_blocks(struct formatter *f)
{
    bool *is_spread = arena_array(f->arena, bool, f->count);
    for (uint32_t i = 0; i < f->count; i++) {
        const struct item *item = &f->items[i];
        if (closes(item)) {
            struct bracket top = f->stack[--f->depth];
            if (item->tag == TOKEN_RIGHT_BRACE)
                spread_block(f, top.item, i, is_spread[top.item] || item->breaks > 0);
        } else if (f->depth > 0 && (item->is_comment || (item->role == ROLE_ITEM && item->breaks > 0))) {
            is_spread[f->stack[f->depth - 1].item] = true;
        }
        if (opens(item))
            f->stack[f->depth++] = (struct bracket){.item = i};
    }
}

/* If any step of a stream begins a line, all its steps do. */
static void spread_streams(struct formatter *f)
{
    uint32_t begin = 0;
    bool is_spread = false;
    for (uint32_t i = 0; i <= f->count; i++) {
        if (i < f->count && f->items[i].role != ROLE_DECLARATION) {
            is_spread = is_spread || (f->items[i].role == ROLE_STEP && f->items[i].breaks > 0);
            continue;
        }
        for (uint32_t j = begin; j < i && is_spread; j++)
            if (f->items[j].role == ROLE_STEP)
                f->items[j].breaks = MAX(f->items[j].breaks, 1);
        begin = i;
        is_spread = false;
    }
}

/* Keeps blank lines only before declarations, items and comments, and not directly after
 * an opening bracket. */
static void limit_blank_lines(struct formatter *f)
{
    for (uint32_t i = 1; i < f->count; i++) {
        struct item *item = &f->items[i];
        const struct item *before = &f->items[i - 1];
        if (before->is_comment)
            item->breaks = MAX(item->breaks, 1);
        bool may_be_blank = item->is_comment || item->role == ROLE_DECLARATION || item->role == ROLE_ITEM;
        if (!may_be_blank || opens(before))
            item->breaks = MIN(item->breaks, 1);
    }
}

/* Indentation of the line that begins with item i; also sets line_base and more. */
static uint32_t indent_of(struct formatter *f, uint32_t i)
{
    const struct item *item = &f->items[i];
    f->ahead = MAX(f->ahead, i);
    while (f->items[f->ahead].is_comment)
        f->ahead++;
    const struct item *after = &f->items[f->ahead];
    if (f->depth > 0) {
        uint32_t base = f->stack[f->depth - 1].indent;
        bool begins_item = item->is_comment || item->role == ROLE_ITEM || opens(&f->items[i - 1]) ||
                           f->items[i - 1].tag == TOKEN_COMMA;
        f->line_base = closes(item) ? base : begins_item ? base + 2 : base + 4;
        return f->line_base;
    }
    if (after->role == ROLE_DECLARATION || after->tag == TOKEN_END) {
        f->line_base = 0;
        f->more = 4;
        return 0;
    }
    if (after->role == ROLE_STEP) {
        f->line_base = 4;
        f->more = 6;
        return 2;
    }
    f->line_base = after->role == ROLE_INPUT ? 4 : f->more;
    return f->line_base;
}

static bool needs_space(const struct item *before, const struct item *item)
{
    if (before->role == ROLE_UNARY || before->tag == TOKEN_LEFT_PAREN || before->tag == TOKEN_LEFT_BRACKET ||
        before->tag == TOKEN_DOT)
        return false;
    switch (item->tag) {
    case TOKEN_COMMA:
    case TOKEN_COLON:
    case TOKEN_DOT:
    case TOKEN_BANG:
    case TOKEN_RIGHT_PAREN:
    case TOKEN_RIGHT_BRACKET: return false;
    case TOKEN_LEFT_PAREN: return item->role != ROLE_CALL;
    case TOKEN_RIGHT_BRACE: return before->tag != TOKEN_LEFT_BRACE;
    default: return true;
    }
}

static struct line *begin_line(struct formatter *f, uint32_t i)
{
    f->lines = lang_grow(f->arena, f->lines, f->lines_count, sizeof(*f->lines));
    struct line *line = &f->lines[f->lines_count++];
    *line = (struct line){.indent = indent_of(f, i),
                          .begin = f->code.length,
                          .end = f->code.length,
                          .is_blank_before = f->items[i].breaks > 1};
    return line;
}

static void write_lines(struct formatter *f)
{
    struct line *line = NULL;
    for (uint32_t i = 0; f->items[i].is_comment || f->items[i].tag != TOKEN_END; i++) {
        const struct item *item = &f->items[i];
        bool is_first = line == NULL || item->breaks > 0;
        if (is_first)
            line = begin_line(f, i);
        if (item->is_comment) {
            line->comment = item->text;
            continue;
        }
        if (!is_first && needs_space(&f->items[i - 1], item))
            buffer_append(&f->code, " ", 1);
        buffer_append(&f->code, item->text.data, item->text.length);
        line->end = f->code.length;
        if (opens(item))
            f->stack[f->depth++] = (struct bracket){.indent = f->line_base, .item = i};
        else if (closes(item))
            f->depth--;
    }
}

static size_t line_columns(const struct formatter *f, const struct line *line)
{
    size_t columns = line->indent;
    for (size_t i = line->begin; i < line->end; i++)
        columns += ((unsigned char)f->code.data[i] & 0xC0) != 0x80;
    return columns;
}

/* Prints the lines. Comments after code are aligned over consecutive lines; very long lines do not count
 * for the column. */
static void print_lines(struct formatter *f, struct byte_buffer *out)
{
    enum { ALIGNED_MAX = 100 };
    size_t column = 0;
    uint32_t run_end = 0;
    for (uint32_t i = 0; i < f->lines_count; i++) {
        const struct line *line = &f->lines[i];
        if (i >= run_end)
            for (column = 0, run_end = i; run_end < f->lines_count; run_end++) {
                const struct line *next = &f->lines[run_end];
                if (next->comment.length == 0 || next->begin == next->end)
                    break;
                size_t columns = line_columns(f, next);
                column = columns <= ALIGNED_MAX ? MAX(column, columns) : column;
            }
        run_end = MAX(run_end, i + 1);
        if (line->is_blank_before && i > 0)
            buffer_append(out, "\n", 1);
        buffer_printf(out, "%*s", (int)line->indent, "");
        buffer_append(out, f->code.data + line->begin, line->end - line->begin);
        size_t columns = line_columns(f, line);
        if (line->comment.length > 0 && line->end > line->begin)
            buffer_printf(out, "%*s", (int)(columns < column ? column - columns + 2 : 2), "");
        buffer_append(out, line->comment.data, line->comment.length);
        buffer_append(out, "\n", 1);
    }
}

bool lang_format(struct arena *arena, struct diag_list *diags, const struct registry *registry,
                 struct str text, struct byte_buffer *out)
{
    unsigned errors = diags->errors;
    struct token_list list;
    lang_tokenize(arena, diags, text, &list);
    lang_parse_tokens(arena, diags, registry, text, &list);
    if (diags->errors > errors)
        return false;
    struct formatter f = {.arena = arena, .more = 4};
    build_items(&f, text, &list);
    f.stack = arena_array(arena, struct bracket, f.count);
    join_lines(&f);
    drop_commas(&f);
    spread_blocks(&f);
    spread_streams(&f);
    limit_blank_lines(&f);
    f.depth = 0;
    buffer_reserve(&f.code, text.length + 1);
    write_lines(&f);
    print_lines(&f, out);
    buffer_free(&f.code);
    return true;
}
