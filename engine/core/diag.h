/* Diagnostics: what leat reports about a job, a record, a file or a system call that is wrong.
 *
 * A diagnostic carries a stable code, the message (what was expected, what was found), the place, a hint
 * (what to do) and a cause (the text of errno, RocksDB, CUDA ...). Callers add what they know:
 *
 *     struct diag *d = diag_error(diags, DIAG_NO_COLUMN, name->span, "no column `%.*s`", STR_ARGS(name->text));
 *     diag_hint(diags, d, "did you mean `%s`?", near);
 *     return false;
 *
 * A list lives in an arena and keeps at most DIAG_MAX entries; further entries are only counted. One thread
 * at a time. The codes are in diag_codes.def; each has a job or a test that provokes it. */
#ifndef LEAT_CORE_DIAG_H
#define LEAT_CORE_DIAG_H

#include "core/arena.h"

#include <stdio.h>

/* A range of bytes in the job file; {0, 0} where there is no place. */
struct span {
    uint32_t begin, end;
};

enum diag_code {
    DIAG_NONE,
#define DIAG_CODE(code, name, summary) DIAG_##name,
#include "core/diag_codes.def"
#undef DIAG_CODE
    DIAG_CODE_COUNT
};

enum diag_severity { DIAG_NOTE, DIAG_WARNING, DIAG_ERROR };

enum { DIAG_MAX = 200, DIAG_LABELS_MAX = 3 };

struct diag {
    enum diag_severity severity;
    enum diag_code code;
    struct span span;
    const char *message;
    struct {
        struct span span;
        const char *message;
    } labels[DIAG_LABELS_MAX]; /* other places that matter, e.g. the first definition */
    unsigned labels_count;
    const char *hint;
    const char *cause;
    const char *path; /* another file that the error is in; NULL: none, `span` is the place in the job */
    int64_t offset;   /* byte offset in `path`, -1 where unknown */
    int64_t line;     /* line in `path` from 1, -1 where unknown */
};

struct diag_list {
    struct arena *arena;
    struct diag *items;
    unsigned count, capacity;
    unsigned errors;   /* number of DIAG_ERROR entries, dropped ones included */
    unsigned dropped;  /* number of entries beyond DIAG_MAX */
    struct diag spare; /* what diag_error and diag_warning return for dropped entries; never printed */
};

/* The arena must outlive the list. */
void diag_list_init(struct diag_list *list, struct arena *arena);

/* Adds an entry and returns it (never NULL), so that labels, hint and cause can be added; the list owns the
 * entry. Texts are formatted into the list's arena. */
struct diag *diag_error(struct diag_list *list, enum diag_code code, struct span span, const char *format,
                        ...) LEAT_PRINTF(4, 5);
struct diag *diag_warning(struct diag_list *list, enum diag_code code, struct span span, const char *format,
                          ...) LEAT_PRINTF(4, 5);
struct diag *diag_label(struct diag_list *list, struct diag *diag, struct span span, const char *format, ...)
    LEAT_PRINTF(4, 5);
struct diag *diag_hint(struct diag_list *list, struct diag *diag, const char *format, ...) LEAT_PRINTF(3, 4);
struct diag *diag_cause(struct diag_list *list, struct diag *diag, const char *format, ...) LEAT_PRINTF(3, 4);
/* Sets the cause to errno's text; where the error is a limit of the process (open files, file size), also
 * sets the hint, unless there is one. */
struct diag *diag_errno(struct diag_list *list, struct diag *diag, int error);
/* Sets a place in another file than the job; offset and line may be -1. The path is copied. */
struct diag *diag_at(struct diag_list *list, struct diag *diag, const char *path, int64_t offset,
                     int64_t line);

/* Whether the list has an entry of that code. */
bool diag_has_code(const struct diag_list *list, enum diag_code code);

/* "E0302"; static. */
const char *diag_code_name(enum diag_code code);
const char *diag_code_summary(enum diag_code code);

/* The text of the job that spans refer to. */
struct diag_source {
    const char *path;
    struct str text;
};

/* Prints `path:line:col: error[E0302]: message`, the source line with `^~~~`, labels, cause and hint. color:
 * use ANSI escapes, unless the environment has a NO_COLOR that is not empty (no-color.org). */
void diag_print(FILE *out, const struct diag_list *list, const struct diag_source *source, bool color);
/* Fills `sorted` with the list's entries as they are printed: by place in the job, entries without a place first, entries of
 * one place in the order of reporting. Returns their number. */
unsigned diag_in_order(const struct diag_list *list, const struct diag *sorted[DIAG_MAX]);
/* Prints a JSON array of objects {severity, code, message, file, line, column, end_line, end_column,
 * hint, cause, labels}. */
void diag_print_json(FILE *out, const struct diag_list *list, const struct diag_source *source);

/* The candidate nearest to `word` by edit distance, case ignored, if near enough for "did you mean", else
 * NULL. */
const char *diag_nearest(struct str word, const char *const *candidates, size_t count);

#endif
