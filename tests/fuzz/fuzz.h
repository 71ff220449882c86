/* What fuzz targets share: a check that must hold, pieces of the input in memory of exact size, and diagnostics as
 * people and programs get them. */
#ifndef LEAT_TESTS_FUZZ_FUZZ_H
#define LEAT_TESTS_FUZZ_FUZZ_H

#include "core/diag.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void must(bool is_true, const char *what)
{
    if (is_true)
        return;
    fprintf(stderr, "fuzz: not so: %s\n", what);
    abort();
}

/* The rest of the input: a target takes bytes from its front. */
struct fuzz_input {
    const uint8_t *at, *end;
};

static inline uint8_t fuzz_byte(struct fuzz_input *input)
{
    return input->at < input->end ? *input->at++ : 0;
}

static inline uint32_t fuzz_below(struct fuzz_input *input, uint32_t limit)
{
    uint32_t value = (uint32_t)fuzz_byte(input) << 8;
    return (value | fuzz_byte(input)) % limit;
}

/* The next `length` bytes, or as many as are left, in malloc'd memory of exact size, so that a sanitizer sees
 * a read beyond them. */
static inline struct str fuzz_take(struct fuzz_input *input, size_t length)
{
    length = MIN(length, (size_t)(input->end - input->at));
    char *copy = malloc(MAX(length, 1));
    must(copy != NULL, "there is memory");
    memcpy(copy, input->at, length);
    input->at += length;
    return (struct str){copy, length};
}

/* Prints the diagnostics of a job in both forms. */
static inline void fuzz_print(const struct diag_list *diags, struct str text)
{
    struct diag_source source = {"fuzz.leat", text};
    char *memory = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&memory, &bytes);
    must(out != NULL, "there is memory");
    diag_print(out, diags, &source, true);
    diag_print_json(out, diags, &source);
    fclose(out);
    free(memory);
}

#endif
