#include "core/diag.h"

#include <errno.h>
#include <stdarg.h>

static const char *const code_names[] = {
    "",
#define DIAG_CODE(code, name, summary) #code,
#include "core/diag_codes.def"
#undef DIAG_CODE
};

static const char *const code_summaries[] = {
    "",
#define DIAG_CODE(code, name, summary) summary,
#include "core/diag_codes.def"
#undef DIAG_CODE
};

_Static_assert(ARRAY_COUNT(code_names) == DIAG_CODE_COUNT, "one name per code");

bool diag_has_code(const struct diag_list *list, enum diag_code code)
{
    for (unsigned i = 0; i < list->count; i++)
        if (list->items[i].code == code)
            return true;
    return false;
}

const char *diag_code_name(enum diag_code code)
{
    return code_names[code];
}

const char *diag_code_summary(enum diag_code code)
{
    return code_summaries[code];
}

void diag_list_init(struct diag_list *list, struct arena *arena)
{
    *list = (struct diag_list){.arena = arena};
}

static struct diag *next_entry(struct diag_list *list)
{
    if (list->count == DIAG_MAX) {
        list->dropped++;
        return &list->spare;
    }
    if (list->count == list->capacity) {
        unsigned capacity = list->capacity == 0 ? 8 : list->capacity * 2;
        /* The old array stays valid for callers that hold entries: an arena frees nothing. */
        struct diag *items = arena_array(list->arena, struct diag, capacity);
        if (list->count > 0)
            memcpy(items, list->items, list->count * sizeof(*items));
        list->items = items;
        list->capacity = capacity;
    }
    return &list->items[list->count++];
}

static const char *format_text(struct arena *arena, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    leat_assert(length >= 0);
    char *text = arena_alloc(arena, (size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    return text;
}

static struct diag *add(struct diag_list *list, enum diag_severity severity, enum diag_code code,
                        struct span span, const char *format, va_list arguments)
{
    leat_assert(code < DIAG_CODE_COUNT);
    struct diag *diag = next_entry(list);
    *diag = (struct diag){
        .severity = severity, .code = code, .span = span, .offset = -1, .line = -1, .message = ""};
    if (diag != &list->spare)
        diag->message = format_text(list->arena, format, arguments);
    list->errors += severity == DIAG_ERROR;
    return diag;
}

struct diag *diag_error(struct diag_list *list, enum diag_code code, struct span span, const char *format,
                        ...)
{
    va_list arguments;
    va_start(arguments, format);
    struct diag *diag = add(list, DIAG_ERROR, code, span, format, arguments);
    va_end(arguments);
    return diag;
}

struct diag *diag_warning(struct diag_list *list, enum diag_code code, struct span span, const char *format,
                          ...)
{
    va_list arguments;
    va_start(arguments, format);
    struct diag *diag = add(list, DIAG_WARNING, code, span, format, arguments);
    va_end(arguments);
    return diag;
}

struct diag *diag_label(struct diag_list *list, struct diag *diag, struct span span, const char *format, ...)
{
    if (diag == &list->spare || diag->labels_count == DIAG_LABELS_MAX)
        return diag;
    va_list arguments;
    va_start(arguments, format);
    diag->labels[diag->labels_count].span = span;
    diag->labels[diag->labels_count++].message = format_text(list->arena, format, arguments);
    va_end(arguments);
    return diag;
}

struct diag *diag_hint(struct diag_list *list, struct diag *diag, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (diag != &list->spare)
        diag->hint = format_text(list->arena, format, arguments);
    va_end(arguments);
    return diag;
}

struct diag *diag_cause(struct diag_list *list, struct diag *diag, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (diag != &list->spare)
        diag->cause = format_text(list->arena, format, arguments);
    va_end(arguments);
    return diag;
}

/* A hint for errors that are limits of the process or machine; NULL for all other errors. */
static const char *limit_hint(int error)
{
    switch (error) {
    case EFBIG: return "raise the limit of a file's size (ulimit -f), or write smaller files";
    case EMFILE: return "raise the limit of open files (ulimit -n)";
    case ENFILE:
        return "the machine has reached its limit of open files: raise fs.file-max, or stop other programs";
    default: return NULL;
    }
}

struct diag *diag_errno(struct diag_list *list, struct diag *diag, int error)
{
    char text[128];
    if (diag->hint == NULL && limit_hint(error) != NULL)
        diag_hint(list, diag, "%s", limit_hint(error));
    return diag_cause(list, diag, "%s", strerror_r(error, text, sizeof(text)));
}

struct diag *diag_at(struct diag_list *list, struct diag *diag, const char *path, int64_t offset,
                     int64_t line)
{
    if (diag != &list->spare)
        diag->path = arena_strdup(list->arena, path);
    diag->offset = offset;
    diag->line = line;
    return diag;
}
