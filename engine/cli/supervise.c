#include "cli/supervise.h"

#include "cli/commands.h"
#include "core/log.h"
#include "core/os.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SHORT_LIVES_MAX = 5, SHORT_LIFE_US = 10 * 1000 * 1000, PAUSE_MS_MIN = 100, PAUSE_MS_MAX = 30000 };

static volatile sig_atomic_t child;
static volatile sig_atomic_t passed_on;

static void pass_on(int number)
{
    passed_on++;
    if (child > 0)
        kill(child, number);
}

static void pause_ms(int milliseconds)
{
    struct timespec rest = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    nanosleep(&rest, NULL); /* a signal ends the pause early, as it should */
}

/* Whether to restart the run: after a signal or a failure, but not after success, takeover, Ctrl-C, or errors
 * in the job file or command line. */
static bool is_worth_another(int status)
{
    if (WIFSIGNALED(status))
        return true;
    int code = WEXITSTATUS(status);
    return code != EXIT_GOOD && code != EXIT_FENCED && code != EXIT_USAGE && code != EXIT_BAD_JOB &&
           code != EXIT_INTERRUPTED;
}

static void describe(int status, int pause)
{
    if (WIFSIGNALED(status))
        log_say(LOG_LEVEL_ERROR,
                "the run was ended by signal %d (%s); restarting from the newest checkpoint in %d ms",
                WTERMSIG(status), strsignal(WTERMSIG(status)), pause);
    else
        log_say(LOG_LEVEL_ERROR,
                "the run failed with status %d; restarting from the newest checkpoint in %d ms",
                WEXITSTATUS(status), pause);
}

static int wait_for(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return EXIT_FAILED << 8;
    return status;
}

/* Shared memory of all lives: whether any life has begun. */
static atomic_bool *begun_before;

void supervise_begun(void)
{
    if (begun_before != NULL)
        atomic_store(begun_before, true);
}

/* Begins a life, unless SIGINT or SIGTERM came before; such a signal that comes meanwhile is passed on. Returns
 * the life's pid; 0 in the life itself; -1: no life began. */
static pid_t begin_life(void)
{
    sigset_t held, before;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGTERM);
    sigprocmask(SIG_BLOCK, &held, &before);
    pid_t pid = passed_on > 0 ? -1 : fork();
    if (pid > 0) {
        child = pid;
    } else if (pid == 0) {
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return pid;
}

int supervise(bool *is_restart, bool *had_begun)
{
    begun_before =
        mmap(NULL, sizeof(*begun_before), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (begun_before == MAP_FAILED) {
        log_say(LOG_LEVEL_ERROR, "mmap: %s", strerror(errno));
        return EXIT_FAILED;
    }
    struct sigaction action = {.sa_handler = pass_on};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    int pause = PAUSE_MS_MIN;
    unsigned short_lives = 0;
    for (unsigned life = 0;; life++) {
        int64_t begun = os_monotonic_us();
        pid_t pid = begin_life();
        if (pid < 0 && passed_on > 0)
            return EXIT_INTERRUPTED;
        if (pid < 0) {
            log_say(LOG_LEVEL_ERROR, "fork: %s", strerror(errno));
            return EXIT_FAILED;
        }
        if (pid == 0) {
            /* If the supervisor is killed, the run gets SIGTERM: it takes a checkpoint and stops. */
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            *is_restart = life > 0;
            *had_begun = atomic_load(begun_before);
            return -1;
        }
        int status = wait_for(pid);
        child = 0;
        if (!is_worth_another(status) || passed_on > 0)
            return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        bool is_short = os_monotonic_us() - begun < SHORT_LIFE_US;
        short_lives = is_short ? short_lives + 1 : 0;
        pause = is_short ? MIN(pause * 2, PAUSE_MS_MAX) : PAUSE_MS_MIN;
        if (short_lives == SHORT_LIVES_MAX) {
            log_say(LOG_LEVEL_ERROR,
                    "giving up: %d lives in a row ended within %d s of their start; the last messages show "
                    "why",
                    SHORT_LIVES_MAX, SHORT_LIFE_US / 1000000);
            return EXIT_FAILED;
        }
        describe(status, pause);
        pause_ms(pause);
    }
}
