/* leat: the table of sub-commands. */
#include "cli/commands.h"
#include "core/log.h"
#include "core/os.h"
#include "core/refused.h"
#include "kernels/kernels.h"
#include "operators/user/user.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"run", cmd_run, "run a job"},
    {"check", cmd_check, "find all errors of a job"},
    {"cluster", cmd_cluster, "show the workers of a job on several machines, or stop it"},
    {"top", cmd_top, "watch a run that goes on elsewhere"},
    {"ctl", cmd_ctl, "tell a run to take a checkpoint or a savepoint, or to stop"},
    {"explain", cmd_explain, "show how a job will run, as text or as a picture"},
    {"fmt", cmd_fmt, "put a job into its usual form"},
    {"score", cmd_score, "answer requests with the features and the model of a checkpoint"},
    {"serve", cmd_serve, "answer requests over HTTP and gRPC, from the newest checkpoints"},
    {"skew", cmd_skew, "compare what was served with what was trained"},
    {"model", cmd_model, "look inside the models of a checkpoint"},
    {"hash", cmd_hash, "show which keys values have in a learner's tables"},
    {"checkpoint", cmd_checkpoint, "look inside a checkpoint directory; save and restore checkpoints"},
    {"state", cmd_state, "show what a checkpoint stores for a key"},
    {"trace", cmd_trace, "show why one record was late, filtered, duplicate or dead, or where it went"},
    {"help", cmd_help, "reference of every source, operator, function, learner and sink"},
    {"record", cmd_record, "record topics of Kafka to files"},
    {"produce", cmd_produce, "send recordings, files or dead letters to a topic of Kafka"},
    {"generate", cmd_generate, "write recorded events of a built-in generator"},
};

static void print_usage(FILE *out)
{
    fprintf(out, "leat carries events from the stream to the model.\n\nusage: leat COMMAND [ARGUMENTS]\n\n");
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(
        out,
        "\n`leat COMMAND --help` shows more. A good start: `leat generate ctr --out data/ctr`, then `leat run "
        "jobs/ctr.leat`.\n");
}

static int unknown_command(const char *name)
{
    const char *names[ARRAY_COUNT(commands)];
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
        names[i] = commands[i].name;
    fprintf(stderr, "leat: error[E1001]: there is no command `%s`\n", name);
    const char *near = diag_nearest(str_from(name), names, ARRAY_COUNT(names));
    if (near != NULL)
        fprintf(stderr, "hint: did you mean `leat %s`?\n", near);
    else
        fprintf(stderr, "hint: `leat --help` lists the commands\n");
    return EXIT_USAGE;
}

/* Refuses invalid environment variables at once, even if the command would not use them. */
static bool read_environment(void)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    const char *reason;
    bool is_good = failpoints_init(&diags);
    if (kernels_pick_env(&reason) == NULL) {
        diag_error(&diags, DIAG_BAD_ENVIRONMENT, (struct span){0, 0}, "LEAT_KERNELS: %s", reason);
        is_good = false;
    }
    diag_print(stderr, &diags, NULL, false);
    arena_free(&arena);
    return is_good;
}

/* What was printed must have arrived: half a picture in a file of a full disk is no success. Returns the exit status. Whoever
 * closes a pipe has seen enough (`leat help | head`). */
static int end_output(int status)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    bool is_good = fflush(stdout) == 0, has_failed = !is_good || ferror(stdout) != 0;
    int error = is_good ? 0 : errno;
    if (!has_failed || status != EXIT_GOOD || (poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0))
        return status;
    fprintf(stderr, "leat: error[E0608]: standard output could not be written\n");
    if (error != 0)
        fprintf(stderr, "      cause: %s\n", strerror(error));
    fprintf(stderr, "      hint: what was written there is not whole: send it to a place that has room\n");
    return EXIT_FAILED;
}

/* Configures jemalloc. Batches and tables are allocated and freed in large pieces: keep those, too, for
 * a second before they go back to the system. The default of ten seconds would double the memory of a
 * job on Kafka. */
extern const char *malloc_conf;
const char *malloc_conf = "oversize_threshold:0,dirty_decay_ms:1000";

int main(int argc, char **argv)
{
    if (!refused_init())
        return EXIT_REFUSED;
    if (!read_environment())
        return EXIT_USAGE;
    if (argc < 2) {
        print_usage(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_usage(stdout);
        return EXIT_GOOD;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("leat %s\n", LEAT_VERSION);
        return EXIT_GOOD;
    }
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            int status = end_output(commands[i].run(argc - 1, argv + 1));
            user_ended();
            log_end();
            return status;
        }
    return unknown_command(argv[1]);
}
