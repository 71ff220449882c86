/* The sub-commands, one file each. argv[0] is the command's name; returns the exit status. */
#ifndef LEAT_CLI_COMMANDS_H
#define LEAT_CLI_COMMANDS_H

#include "core/registry.h"

enum exit_status {
    EXIT_GOOD = 0,
    EXIT_FAILED = 1,  /* the job stopped with an error, or the command found a problem */
    EXIT_USAGE = 2,   /* wrong flags or arguments */
    EXIT_BAD_JOB = 3, /* the job file has errors */
    EXIT_FENCED = 4,  /* another process has taken over the checkpoint directory */
    /* EXIT_REFUSED: the system refused memory or a thread (core/refused.h) */
    EXIT_INTERRUPTED = 130,
};

/* All built-in kinds. */
extern const struct registry builtin_registry;

int cmd_run(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_ctl(int argc, char **argv);
int cmd_cluster(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_fmt(int argc, char **argv);
int cmd_model(int argc, char **argv);
int cmd_checkpoint(int argc, char **argv);
int cmd_state(int argc, char **argv);
int cmd_score(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_skew(int argc, char **argv);
int cmd_trace(int argc, char **argv);
int cmd_hash(int argc, char **argv);
int cmd_help(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_record(int argc, char **argv);
int cmd_produce(int argc, char **argv);

#endif
