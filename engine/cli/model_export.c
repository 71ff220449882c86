#include "cli/model_export.h"

#include "core/replacement.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* --- Safetensors: one walk collects the columns of each table; then header and data are written --- */

struct export_table {
    struct byte_buffer keys, weights, counts, seen, name;
    size_t dim;
    uint64_t rows;
    bool is_open;
};

struct export
{
    struct byte_buffer header, data;
    struct export_table table; /* the table being visited */
    FILE *csv;
    struct byte_buffer csv_table;
    size_t csv_dim;
};

static void add_entry(struct export *e, const char *name, const char *suffix, const char *type, uint64_t rows,
                      uint64_t columns, const void *data, size_t bytes)
{
    buffer_printf(&e->header, "%s\"", e->header.length == 0 ? "{" : ",");
    for (const char *c = name; *c != '\0'; c++)
        buffer_printf(&e->header, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    buffer_printf(&e->header, "%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64, suffix, type, rows);
    if (columns > 0)
        buffer_printf(&e->header, ",%" PRIu64, columns);
    buffer_printf(&e->header, "],\"data_offsets\":[%zu,%zu]}", e->data.length, e->data.length + bytes);
    buffer_append(&e->data, data, bytes);
}

static void finish_table(struct export *e)
{
    struct export_table *t = &e->table;
    const char *name = t->name.data;
    if (!t->is_open)
        return;
    add_entry(e, name, ".keys", "U64", t->rows, 0, t->keys.data, t->keys.length);
    add_entry(e, name, ".weights", "F32", t->rows, t->dim, t->weights.data, t->weights.length);
    add_entry(e, name, ".count", "U64", t->rows, 0, t->counts.data, t->counts.length);
    add_entry(e, name, ".seen_us", "I64", t->rows, 0, t->seen.data, t->seen.length);
    buffer_clear(&t->keys);
    buffer_clear(&t->weights);
    buffer_clear(&t->counts);
    buffer_clear(&t->seen);
    t->rows = 0;
    t->is_open = false;
}

static bool save_tensor(void *argument, const char *name, const float *data, size_t rows, size_t columns)
{
    add_entry(argument, name, "", "F32", rows, columns, data, rows * columns * sizeof(*data));
    return true;
}

/* Sets the table's name, with its NUL. A table must not be named like the dense tensors. */
static void set_name(struct byte_buffer *to, const char *name)
{
    buffer_clear(to);
    buffer_printf(to, "%s%s", strcmp(name, "dense") == 0 ? "table." : "", name);
    buffer_append(to, "", 1);
}

static bool save_table(void *argument, const char *name, size_t dim, uint64_t rows)
{
    struct export *e = argument;
    (void)rows;
    finish_table(e);
    set_name(&e->table.name, name);
    e->table.dim = dim;
    e->table.is_open = true;
    return true;
}

static bool save_row(void *argument, uint64_t key, const float *weights, uint64_t count, int64_t seen_us)
{
    struct export_table *t = &((struct export *)argument)->table;
    buffer_append(&t->keys, &key, sizeof(key));
    buffer_append(&t->weights, weights, t->dim * sizeof(*weights));
    buffer_append(&t->counts, &count, sizeof(count));
    buffer_append(&t->seen, &seen_us, sizeof(seen_us));
    t->rows++;
    return true;
}

/* Opens a stdio stream that writes to the new file. NULL: *error is set and the file abandoned. */
static FILE *open_stream(struct replacement *file, int *error)
{
    int fd = dup(file->fd);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    *error = out == NULL ? errno : 0;
    if (out == NULL)
        replacement_abandon(file);
    return out;
}

/* Closes the stream and, unless something failed, gives the file its name. Returns the error, or 0. */
static int close_stream(struct replacement *file, FILE *out, int error)
{
    if (fclose(out) != 0 && error == 0)
        error = errno;
    if (error == 0)
        error = replacement_commit(file);
    replacement_abandon(file);
    return error;
}

static int write_safetensors(struct export *e, const char *path)
{
    if (e->header.length == 0)
        buffer_append(&e->header, "{", 1);
    buffer_append(&e->header, "}", 1);
    while (e->header.length % 8 != 0) /* so that the data begins at a multiple of 8 bytes */
        buffer_append(&e->header, " ", 1);
    struct replacement file;
    int error = replacement_begin(&file, path);
    FILE *out = error == 0 ? open_stream(&file, &error) : NULL;
    if (out == NULL)
        return error;
    uint64_t length = e->header.length;
    bool is_good = fwrite(&length, sizeof(length), 1, out) == 1 &&
                   fwrite(e->header.data, 1, e->header.length, out) == e->header.length &&
                   fwrite(e->data.data, 1, e->data.length, out) == e->data.length;
    return close_stream(&file, out, is_good ? 0 : errno);
}

bool model_safetensors(model_walk *walk, void *argument, const char *path, int *error)
{
    struct export e = {0};
    struct model_visitor visitor = {&e, save_tensor, save_table, save_row};
    *error = 0;
    bool is_good = walk(argument, &visitor);
    finish_table(&e);
    if (is_good)
        *error = write_safetensors(&e, path);
    buffer_free(&e.header);
    buffer_free(&e.data);
    buffer_free(&e.table.keys);
    buffer_free(&e.table.weights);
    buffer_free(&e.table.counts);
    buffer_free(&e.table.seen);
    buffer_free(&e.table.name);
    return is_good && *error == 0;
}

/* --- CSV --- */

static void print_floats(FILE *out, const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        fprintf(out, ",%.9g", (double)values[i]);
    fputc('\n', out);
}

static void print_name(FILE *out, const char *name)
{
    fputc('"', out);
    for (; *name != '\0'; name++)
        fprintf(out, *name == '"' ? "\"\"" : "%c", *name);
    fputc('"', out);
}

static bool print_tensor(void *argument, const char *name, const float *data, size_t rows, size_t columns)
{
    struct export *e = argument;
    for (size_t row = 0; row < rows; row++) {
        fputs("tensor,", e->csv);
        print_name(e->csv, name);
        fprintf(e->csv, ",%zu,,", row);
        print_floats(e->csv, data + row * columns, columns);
    }
    return ferror(e->csv) == 0;
}

static bool print_table(void *argument, const char *name, size_t dim, uint64_t rows)
{
    struct export *e = argument;
    (void)rows;
    buffer_clear(&e->csv_table);
    buffer_append(&e->csv_table, name, strlen(name) + 1);
    e->csv_dim = dim;
    return true;
}

static bool print_row(void *argument, uint64_t key, const float *weights, uint64_t count, int64_t seen_us)
{
    struct export *e = argument;
    fputs("row,", e->csv);
    print_name(e->csv, e->csv_table.data);
    fprintf(e->csv, ",%" PRIu64 ",%" PRIu64 ",%" PRId64, key, count, seen_us);
    print_floats(e->csv, weights, e->csv_dim);
    return ferror(e->csv) == 0;
}

bool model_csv(model_walk *walk, void *argument, const char *path, int *error)
{
    struct replacement file;
    *error = replacement_begin(&file, path);
    struct export e = {.csv = *error == 0 ? open_stream(&file, error) : NULL};
    if (e.csv == NULL)
        return false;
    struct model_visitor visitor = {&e, print_tensor, print_table, print_row};
    bool is_good = walk(argument, &visitor);
    buffer_free(&e.csv_table);
    int failed = ferror(e.csv) != 0 ? EIO : is_good ? 0 : ECANCELED;
    *error = close_stream(&file, e.csv, failed);
    if (failed == ECANCELED) /* the walk has reported the reason */
        *error = 0;
    return is_good && *error == 0;
}
