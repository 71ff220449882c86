#include "naive.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

typedef struct naive value; /* short, because nearly every line has one */

static const value null_value = {.tag = NAIVE_NULL}, failed = {.tag = NAIVE_FAILED};

static value of_bool(bool b)
{
    return (value){.tag = NAIVE_BOOL, .integer = b};
}

static value of_int(int64_t i)
{
    return (value){.tag = NAIVE_INT, .integer = i};
}

static value of_wide(__int128 i)
{
    return i < INT64_MIN || i > INT64_MAX ? failed : of_int((int64_t)i);
}

static value of_float(double d)
{
    return (value){.tag = NAIVE_FLOAT, .real = d};
}

static value of_text(struct str text)
{
    return (value){.tag = NAIVE_TEXT, .text = text};
}

static value widen(value v, enum naive_tag tag)
{
    return tag == NAIVE_FLOAT && v.tag == NAIVE_INT ? of_float((double)v.integer) : v;
}

/* --- Static types: whether a number is a float --- */

static enum naive_tag infer(struct fixture *f, const struct ast *ast);

/* The common type of the children first, first + step, ..., and of the last child if `last`. */
static enum naive_tag infer_common(struct fixture *f, const struct ast *ast, uint32_t first, uint32_t step,
                                   bool last)
{
    enum naive_tag tag = NAIVE_NULL;
    for (uint32_t i = 0; i < ast->count; i++) {
        bool counts = (i >= first && (i - first) % step == 0) || (last && i + 1 == ast->count);
        enum naive_tag child = counts ? infer(f, ast->children[i]) : NAIVE_NULL;
        if (child != NAIVE_NULL && tag != NAIVE_FLOAT)
            tag = child;
    }
    return tag;
}

static enum naive_tag column_tag(const struct type *type)
{
    static const enum naive_tag tags[] = {NAIVE_BOOL, NAIVE_INT,  NAIVE_FLOAT, NAIVE_TEXT,
                                          NAIVE_TEXT, NAIVE_TIME, NAIVE_LIST};
    return tags[type->tag];
}

static enum naive_tag infer_call(struct fixture *f, const struct ast *ast)
{
    static const struct {
        const char *name;
        enum naive_tag tag;
    } fixed[] = {{"int", NAIVE_INT},          {"float", NAIVE_FLOAT},     {"text", NAIVE_TEXT},
                 {"length", NAIVE_INT},       {"hour_of_day", NAIVE_INT}, {"concat", NAIVE_TEXT},
                 {"substr", NAIVE_TEXT},      {"trim", NAIVE_TEXT},       {"lower", NAIVE_TEXT},
                 {"replace", NAIVE_TEXT},     {"split_part", NAIVE_TEXT}, {"sqrt", NAIVE_FLOAT},
                 {"try_int", NAIVE_INT},      {"time", NAIVE_TIME},       {"contains", NAIVE_BOOL},
                 {"starts_with", NAIVE_BOOL}, {"is_nan", NAIVE_BOOL},     {"len", NAIVE_INT},
                 {"sum", NAIVE_INT},          {"get", NAIVE_INT},         {"bucketize", NAIVE_INT}};
    for (size_t i = 0; i < ARRAY_COUNT(fixed); i++)
        if (str_is(ast->text, fixed[i].name))
            return fixed[i].tag;
    return infer_common(f, ast, 0, 1, false);
}

static enum naive_tag infer(struct fixture *f, const struct ast *ast)
{
    switch (ast->tag) {
    case AST_NULL: return NAIVE_NULL;
    case AST_BOOL: return NAIVE_BOOL;
    case AST_FLOAT: return NAIVE_FLOAT;
    case AST_TEXT: return NAIVE_TEXT;
    case AST_NAME: return column_tag(&f->schema->fields[schema_find(f->schema, ast->text)].type);
    case AST_CALL: return infer_call(f, ast);
    case AST_CASE: return infer_common(f, ast, 1, 2, ast->count % 2 == 1);
    case AST_UNARY: return ast->op == AST_OP_NEGATE ? infer(f, ast->children[0]) : NAIVE_BOOL;
    case AST_BINARY: {
        if (ast->op < AST_OP_ADD || ast->op > AST_OP_MODULO)
            return NAIVE_BOOL;
        enum naive_tag a = infer(f, ast->children[0]), b = infer(f, ast->children[1]);
        if (a == NAIVE_TIME || b == NAIVE_TIME)
            return a == b ? NAIVE_INT : NAIVE_TIME;
        return a == NAIVE_FLOAT || b == NAIVE_FLOAT ? NAIVE_FLOAT : NAIVE_INT;
    }
    default: return NAIVE_INT;
    }
}

/* --- Operators --- */

static int order(value a, value b, bool *unordered)
{
    *unordered = false;
    if (a.tag == NAIVE_TEXT) {
        size_t n = a.text.length < b.text.length ? a.text.length : b.text.length;
        int c = n == 0 ? 0 : memcmp(a.text.data, b.text.data, n);
        return c != 0 ? c : (a.text.length > b.text.length) - (a.text.length < b.text.length);
    }
    if (a.tag == NAIVE_FLOAT || b.tag == NAIVE_FLOAT) {
        double x = widen(a, NAIVE_FLOAT).real, y = widen(b, NAIVE_FLOAT).real;
        *unordered = isnan(x) || isnan(y);
        return (x > y) - (x < y);
    }
    return (a.integer > b.integer) - (a.integer < b.integer);
}

static value compare(enum ast_operator op, value a, value b)
{
    bool unordered;
    int c = order(a, b, &unordered);
    switch (op) {
    case AST_OP_EQUAL: return of_bool(!unordered && c == 0);
    case AST_OP_NOT_EQUAL: return of_bool(unordered || c != 0);
    case AST_OP_LESS: return of_bool(!unordered && c < 0);
    case AST_OP_LESS_EQUAL: return of_bool(!unordered && c <= 0);
    case AST_OP_GREATER: return of_bool(!unordered && c > 0);
    default: return of_bool(!unordered && c >= 0);
    }
}

static value arithmetic(enum ast_operator op, value a, value b)
{
    if (a.tag == NAIVE_FLOAT || b.tag == NAIVE_FLOAT) {
        double x = widen(a, NAIVE_FLOAT).real, y = widen(b, NAIVE_FLOAT).real;
        return of_float(op == AST_OP_ADD        ? x + y
                        : op == AST_OP_SUBTRACT ? x - y
                        : op == AST_OP_MULTIPLY ? x * y
                        : op == AST_OP_DIVIDE   ? x / y
                                                : fmod(x, y));
    }
    __int128 x = a.integer, y = b.integer;
    if ((op == AST_OP_DIVIDE || op == AST_OP_MODULO) && y == 0)
        return failed;
    value result = of_wide(op == AST_OP_ADD        ? x + y
                           : op == AST_OP_SUBTRACT ? x - y
                           : op == AST_OP_MULTIPLY ? x * y
                           : op == AST_OP_DIVIDE   ? x / y
                                                   : x % y);
    bool is_time = (a.tag == NAIVE_TIME) != (b.tag == NAIVE_TIME);
    if (is_time && result.tag == NAIVE_INT)
        result.tag = NAIVE_TIME;
    return result;
}

static value logic(struct fixture *f, const struct ast *ast, const struct batch *batch, uint32_t row)
{
    bool absorbing = ast->op == AST_OP_OR;
    value a = naive_eval(f, ast->children[0], batch, row);
    if (a.tag == NAIVE_FAILED || (a.tag == NAIVE_BOOL && a.integer == absorbing))
        return a;
    value b = naive_eval(f, ast->children[1], batch, row);
    if (b.tag == NAIVE_FAILED || (b.tag == NAIVE_BOOL && b.integer == absorbing))
        return b;
    return a.tag == NAIVE_NULL || b.tag == NAIVE_NULL ? null_value : of_bool(!absorbing);
}

static value is_in(struct fixture *f, const struct ast *ast, const struct batch *batch, uint32_t row)
{
    const struct ast *list = ast->children[1];
    value x = naive_eval(f, ast->children[0], batch, row);
    bool has_null = false;
    if (x.tag == NAIVE_FAILED)
        return x;
    for (uint32_t i = 0; i < list->count; i++) {
        value item = naive_eval(f, list->children[i], batch, row);
        if (item.tag == NAIVE_FAILED)
            return item;
        if (item.tag == NAIVE_NULL || x.tag == NAIVE_NULL)
            has_null = true;
        else if (compare(AST_OP_EQUAL, x, item).integer != 0)
            return of_bool(ast->op == AST_OP_IN);
    }
    return has_null || x.tag == NAIVE_NULL ? null_value : of_bool(ast->op == AST_OP_NOT_IN);
}

static value binary(struct fixture *f, const struct ast *ast, const struct batch *batch, uint32_t row)
{
    if (ast->op == AST_OP_AND || ast->op == AST_OP_OR)
        return logic(f, ast, batch, row);
    if (ast->op == AST_OP_IN || ast->op == AST_OP_NOT_IN)
        return is_in(f, ast, batch, row);
    value a = naive_eval(f, ast->children[0], batch, row);
    value b = naive_eval(f, ast->children[1], batch, row);
    if (a.tag == NAIVE_FAILED || b.tag == NAIVE_FAILED)
        return failed;
    if (a.tag == NAIVE_NULL || b.tag == NAIVE_NULL)
        return null_value;
    if (ast->op >= AST_OP_ADD && ast->op <= AST_OP_MODULO) {
        enum naive_tag tag = infer(f, ast);
        return arithmetic(ast->op, widen(a, tag), widen(b, tag));
    }
    return compare(ast->op, a, b);
}

static value unary(struct fixture *f, const struct ast *ast, const struct batch *batch, uint32_t row)
{
    value a = naive_eval(f, ast->children[0], batch, row);
    if (a.tag == NAIVE_FAILED)
        return a;
    if (ast->op == AST_OP_IS_NULL || ast->op == AST_OP_IS_NOT_NULL)
        return of_bool((a.tag == NAIVE_NULL) == (ast->op == AST_OP_IS_NULL));
    if (a.tag == NAIVE_NULL)
        return a;
    if (ast->op == AST_OP_NOT)
        return of_bool(a.integer == 0);
    return a.tag == NAIVE_FLOAT ? of_float(-a.real) : of_wide(-(__int128)a.integer);
}

/* --- Functions --- */

static int64_t points(struct str text)
{
    int64_t n = 0;
    for (size_t i = 0; i < text.length; i++)
        n += ((unsigned char)text.data[i] & 0xc0) != 0x80;
    return n;
}

/* The code points begin .. end - 1 of the text. */
static struct str slice(struct str text, int64_t begin, int64_t end)
{
    int64_t at = -1;
    size_t from = text.length, to = text.length;
    for (size_t i = 0; i < text.length; i++) {
        at += ((unsigned char)text.data[i] & 0xc0) != 0x80;
        if (at == begin && from == text.length)
            from = i;
        if (at == end && to == text.length)
            to = i;
    }
    return from >= to ? STR("") : (struct str){text.data + from, to - from};
}

static value parse_int(struct str text)
{
    char copy[64], *end;
    if (text.length == 0 || text.length >= sizeof(copy) || isspace((unsigned char)text.data[0]))
        return failed;
    memcpy(copy, text.data, text.length);
    copy[text.length] = '\0';
    __int128 sum = 0;
    bool is_negative = copy[0] == '-';
    for (end = copy + (copy[0] == '-' || copy[0] == '+'); isdigit((unsigned char)*end); end++)
        sum =
            sum > (__int128)1 << 100 ? sum : sum * 10 + (*end - '0'); /* large sums are out of range anyway */
    bool has_digits = end > copy && isdigit((unsigned char)end[-1]);
    return *end != '\0' || !has_digits ? failed : of_wide(is_negative ? -sum : sum);
}

static value cast_int(value a)
{
    if (a.tag == NAIVE_TEXT)
        return parse_int(a.text);
    if (a.tag != NAIVE_FLOAT)
        return of_int(a.integer);
    double x = trunc(a.real);
    return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? of_int((int64_t)x) : failed;
}

static value cast_text(struct fixture *f, value a)
{
    if (a.tag == NAIVE_INT)
        return of_text(str_from(arena_printf(&f->scratch, "%lld", (long long)a.integer)));
    return a.tag == NAIVE_BOOL ? of_text(str_from(a.integer != 0 ? "true" : "false")) : a;
}

static value replace_text(struct fixture *f, struct str text, struct str from, struct str to)
{
    struct str out = STR("");
    for (size_t i = 0; i < text.length;) {
        bool hit = from.length > 0 && i + from.length <= text.length &&
                   !memcmp(text.data + i, from.data, from.length);
        struct str piece = hit ? to : (struct str){text.data + i, 1};
        out = str_from(arena_printf(&f->scratch, "%.*s%.*s", STR_ARGS(out), STR_ARGS(piece)));
        i += hit ? from.length : 1;
    }
    return of_text(out);
}

/* Part `index` of the text, from the end if negative, or null if there is none; the separator is one byte. */
static value part(struct str text, char separator, int64_t index)
{
    int64_t count = 1;
    for (size_t i = 0; i < text.length; i++)
        count += text.data[i] == separator;
    index = index < 0 ? index + count : index;
    if (index < 0 || index >= count)
        return null_value;
    size_t begin = 0;
    for (; index > 0; begin++)
        index -= text.data[begin] == separator;
    size_t end = begin;
    while (end < text.length && text.data[end] != separator)
        end++;
    return of_text((struct str){text.data + begin, end - begin});
}

static value lower(struct fixture *f, struct str text)
{
    char *copy = arena_strndup(&f->scratch, text.data, text.length);
    /* Letters beyond ASCII in the fixture's words are lower case already. */
    for (size_t i = 0; i < text.length; i++)
        copy[i] = (unsigned char)copy[i] < 128 ? (char)tolower(copy[i]) : copy[i];
    return of_text((struct str){copy, text.length});
}

static struct str trim(struct str text)
{
    while (text.length > 0 && text.data[0] == ' ')
        text = (struct str){text.data + 1, text.length - 1};
    while (text.length > 0 && text.data[text.length - 1] == ' ')
        text.length--;
    return text;
}

static value text_function(struct fixture *f, struct str name, const value *a, uint32_t count)
{
    if (str_is(name, "length"))
        return of_int(points(a[0].text));
    if (str_is(name, "trim"))
        return of_text(trim(a[0].text));
    if (str_is(name, "lower"))
        return lower(f, a[0].text);
    if (str_is(name, "concat")) {
        struct str out = STR("");
        for (uint32_t i = 0; i < count; i++)
            out = str_from(arena_printf(&f->scratch, "%.*s%.*s", STR_ARGS(out), STR_ARGS(a[i].text)));
        return of_text(out);
    }
    if (str_is(name, "substr")) {
        int64_t from = a[1].integer < 0 ? a[1].integer + points(a[0].text) : a[1].integer;
        from = from < 0 ? 0 : from;
        __int128 end = a[2].integer < 0 ? from : (__int128)from + a[2].integer;
        return of_text(slice(a[0].text, from, end > INT64_MAX ? INT64_MAX : (int64_t)end));
    }
    if (str_is(name, "replace"))
        return replace_text(f, a[0].text, a[1].text, a[2].text);
    if (str_is(name, "split_part"))
        return part(a[0].text, a[1].text.data[0], a[2].integer);
    bool begins =
        a[1].text.length <= a[0].text.length && !memcmp(a[0].text.data, a[1].text.data, a[1].text.length);
    if (str_is(name, "starts_with"))
        return of_bool(begins);
    return of_bool(memmem(a[0].text.data, a[0].text.length, a[1].text.data, a[1].text.length) != NULL);
}

static value extreme(const value *a, uint32_t count, bool is_greatest)
{
    value best = a[0];
    for (uint32_t i = 1; i < count; i++) {
        bool unordered;
        int c = order(a[i], best, &unordered);
        bool is_nan = a[i].tag == NAIVE_FLOAT && isnan(a[i].real);
        if (is_nan || (!unordered && (is_greatest ? c > 0 : c < 0)))
            best = a[i];
    }
    return best;
}

static value number_function(struct str name, const value *a, uint32_t count)
{
    bool is_float = a[0].tag == NAIVE_FLOAT;
    if (str_is(name, "abs"))
        return is_float ? of_float(fabs(a[0].real))
                        : of_wide(a[0].integer < 0 ? -(__int128)a[0].integer : a[0].integer);
    if (str_is(name, "floor"))
        return is_float ? of_float(floor(a[0].real)) : a[0];
    if (str_is(name, "round"))
        return is_float ? of_float(round(a[0].real)) : a[0];
    if (str_is(name, "is_nan"))
        return of_bool(is_float && isnan(a[0].real));
    if (str_is(name, "sqrt"))
        return of_float(sqrt(widen(a[0], NAIVE_FLOAT).real));
    if (str_is(name, "bucketize"))
        return of_int((a[0].integer >= -5) + (a[0].integer >= 0) + (a[0].integer >= 7));
    if (str_is(name, "hour_of_day")) {
        int64_t hour = a[0].integer / 3600000000 - (a[0].integer % 3600000000 < 0);
        return of_int((hour % 24 + 24) % 24);
    }
    value sum = arithmetic(AST_OP_ADD, a[0], a[count - 1]);
    return sum.tag == NAIVE_FAILED ? null_value : sum; /* try_add */
}

static value list_function(struct str name, const value *a)
{
    if (str_is(name, "len"))
        return of_int(a[0].count);
    if (str_is(name, "get")) {
        int64_t i = a[1].integer < 0 ? a[1].integer + a[0].count : a[1].integer;
        return i < 0 || i >= a[0].count ? null_value : a[0].items[i];
    }
    value sum = of_int(0);
    bool has_failed = false;
    __int128 total = 0;
    for (uint32_t i = 0; i < a[0].count; i++) {
        total += a[0].items[i].tag == NAIVE_INT ? a[0].items[i].integer : 0;
        has_failed |= of_wide(total).tag == NAIVE_FAILED;
        sum = of_wide(total);
    }
    return has_failed ? failed : sum;
}

static value strict_call(struct fixture *f, const struct ast *ast, const value *a)
{
    struct str name = ast->text;
    if (str_is(name, "int") || str_is(name, "try_int")) {
        value v = cast_int(a[0]);
        return v.tag == NAIVE_FAILED && str_is(name, "try_int") ? null_value : v;
    }
    if (str_is(name, "float"))
        return widen(a[0], NAIVE_FLOAT);
    if (str_is(name, "text"))
        return cast_text(f, a[0]);
    if (str_is(name, "least") || str_is(name, "greatest"))
        return extreme(a, ast->count, str_is(name, "greatest"));
    if (a[0].tag == NAIVE_LIST)
        return list_function(name, a);
    return a[0].tag == NAIVE_TEXT ? text_function(f, name, a, ast->count)
                                  : number_function(name, a, ast->count);
}

static value call(struct fixture *f, const struct ast *ast, const struct batch *batch, uint32_t row)
{
    value a[8];
    enum naive_tag tag = infer_call(f, ast);
    bool is_coalesce = str_is(ast->text, "coalesce") || str_is(ast->text, "if_null");
    bool is_mixed = is_coalesce || str_is(ast->text, "least") || str_is(ast->text, "greatest") ||
                    str_is(ast->text, "null_if");
    bool has_failed = false, has_null = false;
    for (uint32_t i = 0; i < ast->count; i++) {
        if (ast->children[i]->tag == AST_LIST)
            continue; /* the bounds of bucketize, always [-5, 0, 7]: number_function knows them */
        a[i] = naive_eval(f, ast->children[i], batch, row);
        a[i] = is_mixed ? widen(a[i], tag) : a[i];
        if (is_coalesce && a[i].tag != NAIVE_NULL)
            return a[i];
        has_failed |= a[i].tag == NAIVE_FAILED;
        has_null |= a[i].tag == NAIVE_NULL;
    }
    if (has_failed || is_coalesce)
        return has_failed ? failed : null_value;
    if (str_is(ast->text, "null_if"))
        return !has_null && compare(AST_OP_EQUAL, a[0], a[1]).integer != 0 ? null_value : a[0];
    return has_null ? null_value : strict_call(f, ast, a);
}

static value case_value(struct fixture *f, const struct ast *ast, const struct batch *batch, uint32_t row)
{
    enum naive_tag tag = infer(f, ast);
    for (uint32_t i = 0; i + 1 < ast->count; i += 2) {
        value condition = naive_eval(f, ast->children[i], batch, row);
        if (condition.tag == NAIVE_FAILED)
            return condition;
        if (condition.tag == NAIVE_BOOL && condition.integer != 0)
            return widen(naive_eval(f, ast->children[i + 1], batch, row), tag);
    }
    return ast->count % 2 == 0 ? null_value
                               : widen(naive_eval(f, ast->children[ast->count - 1], batch, row), tag);
}

/* --- Leaves --- */

static value cell(struct fixture *f, const struct column *column, uint32_t row)
{
    if (!column_is_valid(column, row))
        return null_value;
    switch (column->tag) {
    case TYPE_BOOL: return of_bool(column->bools[row] != 0);
    case TYPE_FLOAT: return of_float(column->floats[row]);
    case TYPE_TEXT:
    case TYPE_BYTES: return of_text(column_text(column, row));
    case TYPE_TIME: return (value){.tag = NAIVE_TIME, .integer = column->ints[row]};
    case TYPE_LIST: {
        value list = {.tag = NAIVE_LIST, .count = column->lists[row].length};
        list.items = arena_array(&f->scratch, value, list.count);
        for (uint32_t i = 0; i < list.count; i++)
            list.items[i] = cell(f, &column->children[0], column->lists[row].offset + i);
        return list;
    }
    default: return of_int(column->ints[row]);
    }
}

struct naive naive_eval(struct fixture *f, const struct ast *ast, const struct batch *batch, uint32_t row)
{
    switch (ast->tag) {
    case AST_NULL: return null_value;
    case AST_BOOL: return of_bool(ast->boolean);
    case AST_FLOAT: return of_float(ast->real);
    case AST_TEXT: return of_text(ast->text);
    case AST_NAME: return cell(f, &batch->columns[schema_find(f->schema, ast->text)], row);
    case AST_CALL: return call(f, ast, batch, row);
    case AST_CASE: return case_value(f, ast, batch, row);
    case AST_UNARY: return unary(f, ast, batch, row);
    case AST_BINARY: return binary(f, ast, batch, row);
    default: return of_int(ast->integer);
    }
}

const char *naive_show(struct fixture *f, const struct naive *v)
{
    switch (v->tag) {
    case NAIVE_NULL: return "null";
    case NAIVE_FAILED: return "error";
    case NAIVE_BOOL: return v->integer != 0 ? "true" : "false";
    case NAIVE_FLOAT: return isnan(v->real) ? "nan" : arena_printf(&f->scratch, "%.17g", v->real);
    case NAIVE_TEXT: return arena_printf(&f->scratch, "%.*s", STR_ARGS(v->text));
    default: return arena_printf(&f->scratch, "%lld", (long long)v->integer);
    }
}
