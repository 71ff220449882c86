/*
 * Cuts of a learner: what it learned since the last cut, as bytes, for followers that answer requests
 * (core/operator.h). A cut: a head, then a section of each feature's table (tables/cut.h), then one of what else
 * predictions depend on (model_save_reader). All numbers as they are in memory.
 */
#include "learners/tables/cut.h"
#include "learners/learner/records.h"
#include "learners/tables/sections.h"

#include "core/buffer.h"

enum { CUT_VERSION = 2 };
static const uint32_t CUT_MAGIC = 0x7475636c; /* "lcut" */

struct cut_head {
    uint32_t magic, version, fields, unused;
};

/* Numbers of sections: of a table its own (struct learner_state); the last one. */
enum { CUT_MODEL = UINT16_MAX + 1 };

bool learner_cut_note(struct operator_context *context, bool is_on)
{
    struct learner_config *c = context->config;
    struct learner_state *s = c->state;
    s->notes_changes = false;
    if (is_on && s->epoch >= CUT_EPOCH_LAST)
        return false;
    if (s->device.api != NULL && !learner_device_cut_note(s, c->inputs.sparse_count, is_on))
        return false;
    for (uint32_t f = 0; f < c->inputs.sparse_count && s->device.api == NULL; f++)
        table_cut_note(model_table(s->model, f), is_on, s->epoch);
    s->epoch += is_on;
    s->notes_changes = is_on;
    return true;
}

bool learner_cut(struct operator_context *context, struct byte_buffer *out)
{
    struct learner_config *c = context->config;
    struct learner_state *s = c->state;
    struct cut_head head = {.magic = CUT_MAGIC, .version = CUT_VERSION, .fields = c->inputs.sparse_count};
    leat_assert(s->notes_changes);
    if (s->epoch >= CUT_EPOCH_LAST || (s->device.api != NULL && !learner_device_cut(s, head.fields)))
        return false;
    size_t cut_begin = out->length;
    buffer_append(out, &head, sizeof(head));
    for (uint32_t f = 0; f < head.fields; f++) {
        size_t begin = section_begin(out, s->tables[f]);
        if (s->device.api != NULL)
            learner_device_cut_write(s, f, out);
        else
            table_cut(model_table(s->model, f), s->epoch, out);
        section_end(out, begin);
    }
    s->epoch++;
    size_t begin = section_begin(out, CUT_MODEL);
    model_save_reader(s->model, out);
    section_end(out, begin);
    s->cut_model_bytes = out->length - begin;
    s->cut_bytes = out->length - cut_begin;
    return true;
}

size_t learner_cut_bytes(const struct operator_context *context)
{
    const struct learner_config *c = context->config;
    const struct learner_state *s = c->state;
    size_t bytes = s->cut_model_bytes;
    leat_assert(s->notes_changes);
    if (s->device.api != NULL) /* what has changed is known there alone */
        return s->cut_bytes;
    for (uint32_t f = 0; f < c->inputs.sparse_count; f++)
        bytes += table_cut_bytes(model_table(s->model, f));
    return bytes;
}

bool learner_take_cut(struct operator_context *context, struct str bytes)
{
    struct learner_config *c = context->config;
    struct learner_state *s = c->state;
    struct cut_head head;
    struct str section;
    leat_assert(!s->notes_changes && s->snapshot == NULL);
    if (s->device.api != NULL || bytes.length < sizeof(head))
        return false;
    memcpy(&head, bytes.data, sizeof(head));
    if (head.magic != CUT_MAGIC || head.version != CUT_VERSION || head.fields != c->inputs.sparse_count)
        return false;
    bytes = (struct str){bytes.data + sizeof(head), bytes.length - sizeof(head)};
    for (uint32_t f = 0; f < head.fields; f++)
        if (!section_take(&bytes, s->tables[f], &section) ||
            !table_take_cut(model_table(s->model, f), section.data, section.length,
                            model_step_in_progress(s->model)))
            return false;
    return section_take(&bytes, CUT_MODEL, &section) && bytes.length == 0 &&
           model_load_reader(s->model, section.data, section.length);
}
