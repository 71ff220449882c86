/* leat fmt JOB...: rewrites jobs in canonical form; comments and meaning stay. */
#include "cli/argp.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "core/os.h"
#include "core/replacement.h"
#include "lang/lang.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { KEY_CHECK = 256, KEY_STDOUT, PATHS_MAX = 1024 };

struct fmt_arguments {
    const char *paths[PATHS_MAX];
    unsigned count;
    bool is_check, to_stdout;
};

static const struct argp_option options_table[] = {
    {"check", KEY_CHECK, NULL, 0, "change nothing; fail if a file is not in its usual form", 0},
    {"stdout", KEY_STDOUT, NULL, 0, "print instead of rewriting the file", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct fmt_arguments *arguments = state->input;
    switch (key) {
    case KEY_CHECK: arguments->is_check = true; return 0;
    case KEY_STDOUT: arguments->to_stdout = true; return 0;
    case ARGP_KEY_ARG:
        if (arguments->count == PATHS_MAX)
            argp_error(state, "too many files");
        arguments->paths[arguments->count++] = argument;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "which job?"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static int replace_file(const char *path, const struct byte_buffer *text)
{
    struct replacement file;
    int error = replacement_begin(&file, path);
    if (error == 0)
        error = os_write_all(file.fd, text->data, text->length, NULL);
    if (error == 0)
        error = replacement_commit(&file);
    replacement_abandon(&file);
    return error;
}

static int format_file(const struct fmt_arguments *arguments, const char *path)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    char *data = NULL;
    size_t bytes = 0;
    int error = job_read_text(path, &diags, &data, &bytes);
    if (error != 0) {
        diag_print(stderr, &diags, NULL, isatty(STDERR_FILENO) != 0);
        arena_free(&arena);
        return EXIT_FAILED;
    }
    struct byte_buffer out = {0};
    struct diag_source source = {path, {data, bytes}};
    int status = EXIT_GOOD;
    if (!lang_format(&arena, &diags, &builtin_registry, source.text, &out)) {
        diag_print(stderr, &diags, &source, isatty(STDERR_FILENO) != 0);
        status = EXIT_BAD_JOB;
    } else if (arguments->to_stdout) {
        fwrite(out.data, 1, out.length, stdout);
    } else if (out.length != bytes || memcmp(out.data, data, bytes) != 0) {
        printf("%s%s\n", path, arguments->is_check ? ": not in its usual form" : "");
        error = arguments->is_check ? 0 : replace_file(path, &out);
        if (error != 0)
            fprintf(stderr, "leat: error[E0605]: %s: %s\n", path, strerror(error));
        status = arguments->is_check || error != 0 ? EXIT_FAILED : EXIT_GOOD;
    }
    buffer_free(&out);
    free(data);
    arena_free(&arena);
    return status;
}

int cmd_fmt(int argc, char **argv)
{
    static const struct argp argp = {options_table,
                                     parse,
                                     "JOB...",
                                     "Puts jobs into their usual form. Comments and meaning stay.",
                                     0,
                                     0,
                                     0};
    struct fmt_arguments arguments = {0};
    argp_command(&argp, argc, argv, &arguments);
    int status = EXIT_GOOD;
    for (unsigned i = 0; i < arguments.count; i++) {
        int one = format_file(&arguments, arguments.paths[i]);
        status = MAX(status, one);
    }
    return status;
}
