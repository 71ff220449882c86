/* Lets a file use glibc's argp beside core/option.h: argp.h includes getopt.h, which declares
 * another `struct option`. */
#ifndef LEAT_CLI_ARGP_H
#define LEAT_CLI_ARGP_H

#define option getopt_option
#include <argp.h>
#undef option

/* Parses the flags of `leat NAME`. A wrong flag, --help and --usage end the process, as argp does. */
void argp_command(const struct argp *argp, int argc, char **argv, void *input);

#endif
