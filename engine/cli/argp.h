/* glibc's argp beside core/option.h: getopt.h, which argp.h includes, has a `struct option` of its own. */
#ifndef LEAT_CLI_ARGP_H
#define LEAT_CLI_ARGP_H

#define option getopt_option
#include <argp.h>
#undef option

/* Parses the flags of `leat NAME`. A wrong flag, --help and --usage end the process, as argp does. */
void argp_command(const struct argp *argp, int argc, char **argv, void *input);

#endif
