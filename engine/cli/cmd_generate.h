#ifndef LEAT_CLI_CMD_GENERATE_H
#define LEAT_CLI_CMD_GENERATE_H

/* leat generate: argv[0] is the command's name. Returns the exit status. */
int cmd_generate(int argc, char **argv);

#endif
