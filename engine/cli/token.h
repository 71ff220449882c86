/* Tokens that clients of a listener must send, which lie in files. */
#ifndef LEAT_CLI_TOKEN_H
#define LEAT_CLI_TOKEN_H

#include "core/diag.h"

/* Sets *token, malloc'd, to the file's only word: option: the flag that names the file, for messages; path NULL: the flag was
 * not given, and *token stays as it is. False after a diagnostic. */
LEAT_CHECKED bool token_read(const char *option, const char *path, char **token, struct diag_list *diags);

#endif
