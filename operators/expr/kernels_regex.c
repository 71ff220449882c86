/* Regular expressions by PCRE2: compiled to machine code once, when the job is checked; matched in memory of
 * the call's scratch arena, and with limits, so that no pattern can hang a lane. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "operators/expr/node.h"

#include <pcre2.h>

enum { MATCH_STEPS_MAX = 1000000, MATCH_HEAP_KIB_MAX = 4096 };

struct regex {
    pcre2_code *code;
    uint32_t group;         /* of regex_extract */
    struct str replacement; /* of regex_replace */
};

static void *take_memory(PCRE2_SIZE bytes, void *arena)
{
    return arena_alloc(arena, bytes);
}

static void give_memory(void *memory, void *arena)
{
    (void)memory;
    (void)arena;
}

static void free_code(void *code)
{
    pcre2_code_free(code);
}

static struct expr_node *pattern_error(struct expr_compiler *c, const struct expr_node *arg, int error,
                                       size_t offset)
{
    char message[256] = "";
    pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof(message));
    struct diag *d = diag_error(c->diags, DIAG_BAD_REGEX, arg->ast->span,
                                "this regular expression does not compile, at byte %zu: %s", offset, message);
    diag_hint(c->diags, d, "the syntax is Perl's; in a text of the job a backslash is written \\\\");
    return NULL;
}

static bool check_group(struct expr_compiler *c, struct expr_node *node, struct regex *regex)
{
    uint32_t groups = 0;
    pcre2_pattern_info(regex->code, PCRE2_INFO_CAPTURECOUNT, &groups);
    regex->group = groups > 0 ? 1 : 0;
    if (node->args_count < 3 || node->args[2]->type.tag != TYPE_INT)
        return true;
    int64_t group = expr_constant_arg(node, 2)->ints[0];
    if (group < 0 || group > groups) {
        diag_error(c->diags, DIAG_BAD_ARGUMENTS, node->args[2]->ast->span,
                   "the pattern has %u groups; 0 stands for the whole match", groups);
        return false;
    }
    regex->group = (uint32_t)group;
    return true;
}

static int substitute(const struct regex *regex, pcre2_match_data *data, pcre2_match_context *context,
                      struct str text, char *out, size_t *length)
{
    return pcre2_substitute(regex->code, (PCRE2_SPTR)text.data, text.length, 0,
                            PCRE2_SUBSTITUTE_GLOBAL | PCRE2_SUBSTITUTE_OVERFLOW_LENGTH |
                                PCRE2_SUBSTITUTE_UNSET_EMPTY | PCRE2_SUBSTITUTE_UNKNOWN_UNSET,
                            data, context, (PCRE2_SPTR)regex->replacement.data, regex->replacement.length,
                            (PCRE2_UCHAR *)out, length);
}

/* PCRE2 checks the replacement's syntax only at a match: replaces an empty pattern in an empty text. */
static bool check_replacement(struct expr_compiler *c, struct expr_node *node, struct regex *regex)
{
    regex->replacement = column_text(expr_constant_arg(node, 2), 0);
    struct str empty = STR("");
    int error;
    size_t offset, length = 0;
    struct regex trial = *regex;
    trial.code = pcre2_compile((PCRE2_SPTR) "", 0, PCRE2_UTF, &error, &offset, NULL);
    leat_assert(trial.code != NULL);
    int result = substitute(&trial, NULL, NULL, empty, NULL, &length);
    pcre2_code_free(trial.code);
    if (result >= 0 || result == PCRE2_ERROR_NOMEMORY)
        return true;
    pattern_error(c, node->args[2], result, 0);
    return false;
}

/* Arguments: text, pattern [, group or replacement]. aux: struct regex. */
bool prepare_regex(struct expr_compiler *c, struct expr_node *node)
{
    struct str pattern = column_text(expr_constant_arg(node, 1), 0);
    int error;
    size_t offset;
    if (pattern.length > EXPR_PATTERN_BYTES_MAX) {
        diag_error(c->diags, DIAG_BAD_REGEX, node->args[1]->ast->span, "a pattern has at most %d bytes",
                   EXPR_PATTERN_BYTES_MAX);
        return false;
    }
    struct regex *regex = arena_new(c->arena, struct regex);
    regex->code =
        pcre2_compile((PCRE2_SPTR)pattern.data, pattern.length,
                      PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &offset, NULL);
    if (regex->code == NULL)
        return pattern_error(c, node->args[1], error, offset) != NULL;
    arena_defer(c->arena, free_code, regex->code);
    pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE); /* else matching is slower, with equal results */
    node->aux = regex;
    if (node->args_count == 3 && node->args[2]->type.tag == TYPE_TEXT)
        return check_replacement(c, node, regex);
    return check_group(c, node, regex);
}

struct matcher {
    const struct regex *regex;
    pcre2_match_data *data;
    pcre2_match_context *context;
};

static struct matcher matcher_new(struct expr_call *call)
{
    const struct regex *regex = call->node->aux;
    pcre2_general_context *general =
        pcre2_general_context_create(take_memory, give_memory, call->frame->scratch);
    struct matcher m = {regex, pcre2_match_data_create_from_pattern(regex->code, general),
                        pcre2_match_context_create(general)};
    leat_assert(m.data != NULL && m.context != NULL);
    pcre2_set_match_limit(m.context, MATCH_STEPS_MAX);
    pcre2_set_heap_limit(m.context, MATCH_HEAP_KIB_MAX);
    return m;
}

/* Whether the pattern is found. A match that exceeds the limits fails the row. */
static bool matches(struct expr_call *call, struct matcher *m, uint32_t row)
{
    struct str text = vec_text(&call->args[0], row);
    int result = pcre2_match(m->regex->code, (PCRE2_SPTR)text.data, text.length, 0, 0, m->data, m->context);
    if (result < 0 && result != PCRE2_ERROR_NOMATCH)
        call_fail(call, row);
    return result >= 0;
}

void kernel_regex_match(struct expr_call *call)
{
    struct matcher m = matcher_new(call);
    for (uint32_t i = 0; i < call->live_count; i++)
        call->out->column.bools[call->live[i]] = matches(call, &m, call->live[i]);
}

void kernel_regex_extract(struct expr_call *call)
{
    struct matcher m = matcher_new(call);
    const struct expr_vec *a = &call->args[0];
    call->out->column.heap = a->column.heap;
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        const size_t *ends = pcre2_get_ovector_pointer(m.data) + (size_t)2 * m.regex->group;
        if (!matches(call, &m, row) || ends[0] == PCRE2_UNSET || ends[0] > ends[1]) {
            call_null(call, row);
            continue;
        }
        uint32_t offset = a->column.texts[row & a->mask].offset;
        call->out->column.texts[row] =
            (struct text_ref){offset + (uint32_t)ends[0], (uint32_t)(ends[1] - ends[0])};
    }
}

/* Replaces all matches in a text; false if matching exceeds the limits or the result is too long. */
static bool replace_all(struct matcher *m, struct expr_writer *writer, struct str text)
{
    size_t room = text.length + 64;
    for (int attempt = 0; attempt < 2; attempt++) {
        if (room > EXPR_TEXT_BYTES_MAX + 64)
            return false;
        char *out = writer_reserve(writer, room);
        size_t length = room;
        int result = substitute(m->regex, m->data, m->context, text, out, &length);
        if (result >= 0) {
            writer->length += length;
            return true;
        }
        if (result != PCRE2_ERROR_NOMEMORY)
            return false;
        room = length + 1; /* the room that PCRE2 asked for */
    }
    return false;
}

void kernel_regex_replace(struct expr_call *call)
{
    struct matcher m = matcher_new(call);
    struct expr_writer writer;
    writer_init(&writer, call, (size_t)call->live_count * 32);
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        if (replace_all(&m, &writer, vec_text(&call->args[0], row)))
            writer_end(&writer, row);
        else
            call_fail(call, row);
    }
    writer_finish(&writer);
}
