#include "core/shape.h"

struct line {
    char mark;
    struct str what, value;
};

/* Reads the next line; false: no more lines. A malformed line gets the mark `=` and no value. */
static bool next_line(struct str *text, struct line *line)
{
    if (text->length == 0)
        return false;
    const char *end = memchr(text->data, '\n', text->length);
    size_t length = end == NULL ? text->length : (size_t)(end - text->data);
    struct str all = {text->data, length};
    size_t used = MIN(length + 1, text->length);
    *text = (struct str){text->data + used, text->length - used};
    *line = (struct line){.mark = '=', .what = all, .value = {"", 0}};
    const char *colon = length == 0 ? NULL : memchr(all.data, ':', length);
    if (colon == NULL)
        return true;
    line->mark = all.data[0];
    line->what = (struct str){all.data + 1, (size_t)(colon - all.data) - 1};
    size_t skip = (size_t)(colon - all.data) + (colon + 1 < all.data + length && colon[1] == ' ' ? 2 : 1);
    line->value = (struct str){all.data + skip, length - skip};
    return true;
}

static bool find_line(struct str text, struct str what, struct line *line)
{
    while (next_line(&text, line))
        if (str_equal(line->what, what))
            return true;
    return false;
}

void shape_compare(struct str checkpoint, struct str job, struct arena *arena, shape_difference *tell,
                   void *argument)
{
    struct line saved, own;
    for (struct str left = checkpoint; next_line(&left, &saved);) {
        bool is_there = find_line(job, saved.what, &own);
        if (is_there && str_equal(saved.value, own.value))
            continue;
        const char *sentence =
            is_there ? arena_printf(arena, "%.*s: the checkpoint has `%.*s`, the job has `%.*s`",
                                    STR_ARGS(saved.what), STR_ARGS(saved.value), STR_ARGS(own.value))
                     : arena_printf(arena, "%.*s: the checkpoint has `%.*s`, the job has none",
                                    STR_ARGS(saved.what), STR_ARGS(saved.value));
        tell(argument, saved.mark == '~' || (saved.mark == '?' && !is_there), sentence);
    }
    for (struct str left = job; next_line(&left, &own);)
        if (!find_line(checkpoint, own.what, &saved))
            tell(argument, own.mark != '=',
                 arena_printf(arena, "%.*s: the checkpoint has none, the job has `%.*s`", STR_ARGS(own.what),
                              STR_ARGS(own.value)));
}
