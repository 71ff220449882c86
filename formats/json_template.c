#include "formats/json_template.h"

#include "formats/text.h"

#include "core/mem.h"

#include <stdlib.h>

/* SLOTS_MAX: slots of the whole tree. OTHERS_MAX: `other` slots of one slot. When either is reached, the tree
 * is begun anew and deviations_max doubles, up to LEARN_LIMIT: learning must not cost much where records have
 * little in common. */
enum { LEARN_LIMIT = 1024, SLOTS_MAX = 4096, OTHERS_MAX = 8, ARENA_BLOCK_BYTES = 1 << 14 };

void json_template_init(struct json_template *template)
{
    template->log = mem_calloc(JSON_MEMBERS_MAX + 1, sizeof(*template->log));
    template->deviations_max = 1;
    arena_init(&template->arena, ARENA_BLOCK_BYTES);
}

void json_template_free(struct json_template *template)
{
    free(template->log);
    arena_free(&template->arena);
}

void json_template_begin(struct json_template *template, const struct json_slot *last)
{
    template->log_count = last == NULL ? 0 : last->depth + 1;
    for (const struct json_slot *slot = last; slot != NULL; slot = slot->parent)
        template->log[slot->depth] = (struct seen_literal){slot->literal, slot->length, slot->column};
}

void json_template_log(struct json_template *template, const char *begin, const char *end,
                       struct row_column *column)
{
    if (template->log_count <= JSON_MEMBERS_MAX)
        template->log[template->log_count++] = (struct seen_literal){begin, (size_t)(end - begin), column};
}

static enum slot_action slot_action(const struct row_column *column, int64_t *scale)
{
    *scale = 1;
    if (column == NULL)
        return SLOT_SKIP;
    switch (column->tag) {
    case TYPE_INT: return SLOT_INT;
    case TYPE_FLOAT: return SLOT_FLOAT;
    case TYPE_TEXT: return SLOT_TEXT;
    case TYPE_BOOL: return SLOT_BOOL;
    case TYPE_TIME: *scale = text_unit_us(column->unit); return *scale <= 0 ? SLOT_OTHER : SLOT_INT;
    default: return SLOT_OTHER;
    }
}

static struct json_slot *new_slot(struct json_template *template, const struct seen_literal *seen,
                                  const struct json_slot *parent)
{
    struct json_slot *slot = arena_new(&template->arena, struct json_slot);
    *slot = (struct json_slot){.length = (uint32_t)seen->length,
                               .mask = seen->length >= 16 ? 0xffff : (1u << seen->length) - 1,
                               .column = seen->column,
                               .parent = parent,
                               .depth = parent == NULL ? 0 : parent->depth + 1};
    slot->action = slot_action(seen->column, &slot->scale);
    memcpy(slot->head, seen->begin, MIN(seen->length, sizeof(slot->head)));
    slot->literal = arena_copy(&template->arena, seen->begin, seen->length);
    template->slots_count++;
    return slot;
}

static void end_way(struct json_template *template, struct json_slot *slot, struct row_fields *fields,
                    uint64_t object)
{
    slot->action = SLOT_END;
    slot->absent = arena_array(&template->arena, struct row_column *, fields->count + 1);
    for (uint32_t i = 0; i < fields->count; i++)
        if (fields->columns[i].seen != object)
            slot->absent[slot->absent_count++] = &fields->columns[i];
}

/* Adds the way of the logged record to the tree, up to the first literal that is too long for a slot. False
 * where a slot already has OTHERS_MAX others. */
static bool add_way(struct json_template *template, struct row_fields *fields, uint64_t object)
{
    struct json_slot **place = &template->root, *parent = NULL;
    for (uint32_t i = 0; i < template->log_count; i++) {
        const struct seen_literal *seen = &template->log[i];
        if (seen->length > JSON_LITERAL_BYTES)
            return true;
        uint32_t others = 0;
        while (*place != NULL && ((*place)->length != seen->length ||
                                  memcmp((*place)->literal, seen->begin, seen->length) != 0)) {
            place = &(*place)->other;
            others++;
        }
        if (*place == NULL) {
            if (others == OTHERS_MAX)
                return false;
            struct json_slot *slot = new_slot(template, seen, parent);
            if (i == template->log_count - 1)
                end_way(template, slot, fields, object);
            *place = slot;
        }
        parent = *place;
        place = &(*place)->next;
    }
    return true;
}

/* Learns the logged record. A record without members or with too many is not learned: such records always
 * take the general reader. */
static void learn(struct json_template *template, struct row_fields *fields, uint64_t object)
{
    template->deviations = 0;
    if (template->log_count > JSON_MEMBERS_MAX || template->log_count < 2)
        return;
    if (template->slots_count + template->log_count <= SLOTS_MAX && add_way(template, fields, object))
        return;
    struct arena old = template->arena; /* the log may point into it */
    template->deviations_max = MIN(template->deviations_max * 2, LEARN_LIMIT);
    arena_init(&template->arena, ARENA_BLOCK_BYTES);
    template->root = NULL;
    template->slots_count = 0;
    add_way(template, fields, object);
    arena_free(&old);
}

void json_template_end(struct json_template *template, struct row_fields *fields, uint64_t object)
{
    if (++template->deviations >= template->deviations_max)
        learn(template, fields, object);
}
