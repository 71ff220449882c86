#include "cli/argp.h"

#include "cli/commands.h"

#include <stdio.h>

void argp_command(const struct argp *argp, int argc, char **argv, void *input)
{
    static char name[64];
    snprintf(name, sizeof(name), "leat %s", argv[0]);
    argv[0] = name;
    argp_err_exit_status = EXIT_USAGE;
    argp_parse(argp, argc, argv, 0, NULL, input);
}
