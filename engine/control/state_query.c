#include "control/state_query.h"

#include "core/mem.h"
#include "net/query.h"

#include <stdlib.h>

/* --- Nodes --- */

static int refuse_node(const struct plan *plan, bool is_row, struct byte_buffer *wrong)
{
    uint32_t count = 0;
    buffer_printf(wrong,
                  is_row ? "there is no such learner; there are:\n" : "there is no such state; there are:\n");
    for (uint32_t i = 0; i < plan->nodes_count; i++)
        if (run_peek_can(&plan->nodes[i]) && (!is_row || plan->nodes[i].tag == PLAN_LEARNER)) {
            buffer_printf(wrong, "%s\n", plan->nodes[i].part);
            count++;
        }
    if (count == 0) {
        buffer_clear(wrong);
        buffer_printf(wrong, is_row ? "the job has no learner\n" : "no part of the job keeps state by key\n");
    }
    return 404;
}

/* The node whose part `rest` is, or begins with, before a slash; of several the one with the longest part. NULL: none.
 * *key: what follows the slash; data NULL: nothing does. */
static const struct plan_node *find_node(const struct plan *plan, struct str rest, bool is_row,
                                         struct str *key)
{
    const struct plan_node *found = NULL;
    size_t longest = 0;
    for (uint32_t i = 0; i < plan->nodes_count; i++) {
        const struct plan_node *node = &plan->nodes[i];
        size_t length = strlen(node->part);
        bool is_it = run_peek_can(node) && (!is_row || node->tag == PLAN_LEARNER) && length <= rest.length &&
                     memcmp(rest.data, node->part, length) == 0 &&
                     (length == rest.length || (rest.data[length] == '/' && !is_row));
        if (!is_it || (found != NULL && length < longest))
            continue;
        found = node;
        longest = length;
    }
    *key = (struct str){0};
    if (found != NULL && longest < rest.length)
        *key = (struct str){rest.data + longest + 1, rest.length - longest - 1};
    return found;
}

/* --- Keys --- */

/* How many texts a key of the node has. */
static uint32_t words_of(const struct plan_node *node)
{
    return node->tag == PLAN_LEARNER ? 2 : node->bound[0].key_count;
}

static int refuse_key(const struct plan_node *node, struct byte_buffer *wrong)
{
    const struct operator_input *input = &node->bound[0];
    if (node->tag == PLAN_LEARNER) {
        buffer_printf(wrong,
                      "expected a key of `%s`: a JSON array of the name of a sparse feature and a value\n",
                      node->part);
        return 400;
    }
    if (input->key_count == 0) {
        buffer_printf(wrong, "`%s` has one state for all rows: ask for it without a key\n", node->part);
        return 400;
    }
    buffer_printf(wrong, "expected a key of `%s`: %s", node->part,
                  input->key_count == 1 ? "a value of" : "a JSON array of a value of each of");
    for (uint32_t i = 0; i < input->key_count; i++)
        buffer_printf(wrong, "%s%.*s", i > 0 ? ", " : " ",
                      STR_ARGS(input->schema->fields[input->key_columns[i]].name));
    buffer_printf(wrong, "\n");
    return 400;
}

/* Takes a key as it was written: a text where the node has one key column, else a JSON array. */
static int take_key(struct state_question *question, struct str text, struct byte_buffer *wrong)
{
    uint32_t count = words_of(question->node);
    json_t *words;
    if (question->count == RUN_PEEK_KEYS_MAX) {
        buffer_printf(wrong, "expected at most %d keys\n", RUN_PEEK_KEYS_MAX);
        return 400;
    }
    if (count == 1) {
        words = json_array();
        json_array_append_new(words, json_stringn(text.data, text.length));
    } else {
        words = json_loadb(text.data, text.length, JSON_REJECT_DUPLICATES, NULL);
    }
    bool is_good = count > 0 && json_is_array(words) && json_array_size(words) == count;
    for (size_t i = 0; is_good && i < count; i++) {
        const json_t *word = json_array_get(words, i);
        is_good = word != NULL && !json_is_object(word) && !json_is_array(word);
    }
    if (!is_good) {
        json_decref(words);
        return refuse_key(question->node, wrong);
    }
    question->keys[question->count++].words = words;
    return 200;
}

struct str *state_question_words(const struct state_question *question, uint32_t i, struct arena *arena,
                                 uint32_t *count)
{
    const json_t *list = question->keys[i].words;
    *count = (uint32_t)json_array_size(list);
    struct str *words = arena_array(arena, struct str, MAX(*count, 1));
    for (uint32_t k = 0; k < *count; k++) {
        const json_t *word = json_array_get(list, k);
        if (json_is_string(word)) {
            words[k] = arena_str(arena, (struct str){json_string_value(word), json_string_length(word)});
        } else if (!json_is_null(word)) {
            char *text = json_dumps(word, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
            words[k] = str_from(arena_strdup(arena, text == NULL ? "" : text));
            free(text);
        }
    }
    return words;
}

void state_question_free(struct state_question *question)
{
    for (uint32_t i = 0; i < question->count; i++)
        json_decref(question->keys[i].words);
    question->count = 0;
}

/* --- The query --- */

struct fields {
    struct str field, value; /* of /api/v1/model; data NULL: not given */
};

static int take_field(struct state_question *question, struct str name, struct str value,
                      struct fields *fields, struct byte_buffer *wrong)
{
    if (!question->is_row && str_is(name, "key"))
        return take_key(question, value, wrong);
    struct str *to = str_is(name, "field") ? &fields->field : str_is(name, "value") ? &fields->value : NULL;
    if (!question->is_row || to == NULL || to->data != NULL) {
        buffer_printf(wrong, question->is_row ? "expected the parameters field and value, once each\n"
                                              : "expected the parameter key, once for each key\n");
        return 400;
    }
    *to = value;
    return 200;
}

static int take_query(struct state_question *question, struct str query, struct arena *arena,
                      struct fields *fields, struct byte_buffer *wrong)
{
    int status = 200;
    struct query_walk walk = query_walk(query);
    for (struct str name, text, value; status == 200 && query_next(&walk, &name, &text);) {
        if (!query_decode(text, arena_alloc(arena, text.length + 1), &value)) {
            buffer_printf(wrong, "expected values in percent-encoded UTF-8, without a NUL\n");
            return 400;
        }
        status = take_field(question, name, value, fields, wrong);
    }
    return status;
}

static int take_all(struct state_question *question, struct str in_path, struct str query,
                    struct arena *arena, struct byte_buffer *wrong)
{
    struct fields fields = {0};
    int status = 200;
    if (in_path.data != NULL)
        status = take_key(question, in_path, wrong);
    if (status == 200)
        status = take_query(question, query, arena, &fields, wrong);
    if (status != 200)
        return status;
    if (question->is_row && fields.field.data != NULL && fields.value.data != NULL)
        question->keys[question->count++].words = json_pack("[s%s%]", fields.field.data, fields.field.length,
                                                            fields.value.data, fields.value.length);
    else if (question->is_row)
        buffer_printf(wrong, "expected the parameters field and value\n");
    else if (question->count == 0 && words_of(question->node) == 0)
        question->keys[question->count++].words = json_array();
    else if (question->count == 0)
        (void)refuse_key(question->node, wrong);
    return question->count > 0 ? 200 : 400;
}

int state_question_parse(const struct plan *plan, struct str path, struct str query, bool is_row,
                         struct state_question *question, struct byte_buffer *wrong)
{
    struct str prefix = is_row ? STR("/api/v1/model/") : STR("/api/v1/state/"), in_path;
    leat_assert(path.length >= prefix.length);
    struct str rest = {path.data + prefix.length, path.length - prefix.length};
    struct arena arena = {0};
    *question = (struct state_question){.node = find_node(plan, rest, is_row, &in_path), .is_row = is_row};
    int status = question->node == NULL ? refuse_node(plan, is_row, wrong)
                                        : take_all(question, in_path, query, &arena, wrong);
    buffer_append(wrong, "", 1);
    arena_free(&arena);
    return status;
}
