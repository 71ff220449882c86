#include "control/api_key.h"

#include "core/buffer.h"
#include "core/mem.h"
#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

enum { KEY_BYTES_MAX = 16 << 10, LINES = 4 };
static const char FIRST_LINE[] = "leat control 1";

bool api_token_make(char token[API_TOKEN_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char bytes[API_TOKEN_BYTES / 2];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return false;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        token[2 * i] = digits[bytes[i] >> 4];
        token[2 * i + 1] = digits[bytes[i] & 15];
    }
    token[API_TOKEN_BYTES - 1] = '\0';
    return true;
}

static char *path_of(struct str directory, const char *name)
{
    return mem_printf("%.*s/%s", STR_ARGS(directory), name);
}

static int write_new(const char *path, const struct byte_buffer *text)
{
    (void)unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    ssize_t done = write(fd, text->data, text->length);
    int error = done == (ssize_t)text->length ? 0 : done < 0 ? errno : ENOSPC;
    close(fd);
    return error;
}

int api_key_write(struct str directory, const struct api_key *key)
{
    struct byte_buffer text = {0};
    char *path = path_of(directory, "CONTROL"), *temporary = path_of(directory, "CONTROL.tmp");
    buffer_printf(&text, "%s\n%s\n%s\n%s\n", FIRST_LINE, key->address, key->token,
                  key->certificate == NULL ? "" : key->certificate);
    int error = write_new(temporary, &text);
    if (error == 0 && rename(temporary, path) != 0)
        error = errno;
    if (error != 0)
        (void)unlink(temporary);
    free(path);
    free(temporary);
    buffer_free(&text);
    return error;
}

/* Takes a line off the text; false: there is none. */
static bool take_line(struct str *text, struct str *line)
{
    const char *end = text->length == 0 ? NULL : memchr(text->data, '\n', text->length);
    if (end == NULL)
        return false;
    *line = (struct str){text->data, (size_t)(end - text->data)};
    *text = (struct str){end + 1, text->length - line->length - 1};
    return true;
}

/* Returns an errno; EBADMSG: the file is none of this version. */
static int read_key(const char *path, struct api_key *key)
{
    char *data = NULL;
    size_t bytes = 0;
    *key = (struct api_key){0};
    int error = os_read_file(path, KEY_BYTES_MAX, &data, &bytes);
    if (error != 0)
        return error;
    struct str text = {data, bytes}, lines[LINES];
    bool is_good = true;
    for (int i = 0; i < LINES && is_good; i++)
        is_good = take_line(&text, &lines[i]);
    is_good = is_good && text.length == 0 && str_is(lines[0], FIRST_LINE) && lines[1].length > 0 &&
              lines[2].length == API_TOKEN_BYTES - 1;
    if (is_good) {
        key->address = mem_str(lines[1]);
        memcpy(key->token, lines[2].data, lines[2].length);
        key->certificate = lines[3].length > 0 ? mem_str(lines[3]) : NULL;
    }
    free(data);
    return is_good ? 0 : EBADMSG;
}

void api_key_remove(struct str directory, const struct api_key *key)
{
    char *path = path_of(directory, "CONTROL");
    struct api_key found;
    if (read_key(path, &found) == 0 && strcmp(found.token, key->token) == 0)
        (void)unlink(path);
    api_key_free(&found);
    free(path);
}

bool api_key_read(struct str directory, struct api_key *key, struct diag_list *diags)
{
    char *path = path_of(directory, "CONTROL");
    int error = read_key(path, key);
    if (error == ENOENT)
        diag_hint(diags,
                  diag_error(diags, DIAG_NO_COMMAND, (struct span){0},
                             "no run with a control API uses `%.*s`", STR_ARGS(directory)),
                  "start the job with `leat run JOB --control 127.0.0.1:8081`");
    else if (error == EBADMSG)
        diag_hint(diags,
                  diag_error(diags, DIAG_NO_COMMAND, (struct span){0},
                             "`%s` is damaged, or of another version of leat", path),
                  "start the job again with --control: that writes the file anew");
    else if (error != 0) {
        struct diag *d = diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "`%s` cannot be read", path);
        diag_errno(diags, d, error);
        if (error == EACCES)
            diag_hint(
                diags, d,
                "only the user who started the run may read this file, because it has the token: be that user; "
                "`leat top` may also be given the run's URL");
    }
    free(path);
    return error == 0;
}

void api_key_free(struct api_key *key)
{
    free(key->address);
    free(key->certificate);
    *key = (struct api_key){0};
}
