#include "cli/token.h"

#include "core/os.h"

enum { TOKEN_BYTES_MAX = 4096 };

bool token_read(const char *option, const char *path, char **token, struct diag_list *diags)
{
    size_t bytes;
    if (path == NULL)
        return true;
    int error = os_read_file(path, TOKEN_BYTES_MAX, token, &bytes);
    if (error != 0) {
        diag_errno(
            diags,
            diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "%s: `%s` cannot be read", option, path),
            error);
        return false;
    }
    while (bytes > 0 && (unsigned char)(*token)[bytes - 1] <= ' ')
        bytes--;
    (*token)[bytes] = '\0';
    for (size_t i = 0; i < bytes; i++)
        if ((*token)[i] <= ' ' || (*token)[i] > '~')
            bytes = 0;
    if (bytes > 0)
        return true;
    struct diag *d = diag_error(diags, DIAG_NO_COMMAND, (struct span){0},
                                "%s: `%s` holds no token, or several words", option, path);
    diag_hint(diags, d, "a token is one word of printable ASCII; make one with `openssl rand -hex 32`");
    return false;
}
