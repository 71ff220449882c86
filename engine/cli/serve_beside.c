#include "cli/serve_beside.h"

#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { LISTEN_MS_MAX = 10000, STOP_MS_MAX = 10000, LOOK_MS = 20, TELL_BYTES_MAX = 600 };

static char *path_of(const struct job_load *load, const char *name)
{
    struct str directory = load->plan->config.checkpoint.directory;
    return mem_printf("%.*s/%s", STR_ARGS(directory), name);
}

char *serve_beside_figures(const struct job_load *load)
{
    return path_of(load, "serve.figures");
}

static void rest(void)
{
    struct timespec time = {0, LOOK_MS * 1000000L};
    nanosleep(&time, NULL);
}

/* Whether another process holds the lock on the open file. */
static bool is_held(int fd)
{
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return true;
    flock(fd, LOCK_UN);
    return false;
}

/* The words of `leat serve JOB --set ...`, in the arena. */
static char **words_of(const struct job_load *load, struct arena *arena)
{
    char **words = arena_array(arena, char *, load->settings.count * 2 + 7);
    uint32_t count = 0;
    words[count++] = arena_strdup(arena, "leat");
    words[count++] = arena_strdup(arena, "serve");
    words[count++] = arena_strdup(arena, load->path);
    words[count++] = arena_strdup(arena, "--quiet");
    char *figures = serve_beside_figures(load);
    words[count++] = arena_strdup(arena, "--figures");
    words[count++] = arena_strdup(arena, figures);
    free(figures);
    for (uint32_t i = 0; i < load->settings.count; i++) {
        words[count++] = arena_strdup(arena, "--set");
        words[count++] = arena_printf(arena, "%.*s=%.*s", STR_ARGS(load->settings.names[i]),
                                      STR_ARGS(load->settings.values[i]));
    }
    return words;
}

/* Whether another run has the lock on the checkpoint directory. A killed run's lock is waited for (core/os.h). */
static bool is_run_there(const struct job_load *load)
{
    char *path = path_of(load, "LOCK");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is_there = fd >= 0 && !os_lock(fd);
    if (fd >= 0)
        close(fd);
    free(path);
    return is_there;
}

/* What is served: the job file's text and settings. */
static uint64_t digest_of(const struct job_load *load)
{
    const struct plan *plan = load->plan;
    uint64_t text = XXH3_64bits(plan->job_text.data, plan->job_text.length);
    return XXH3_64bits_withSeed(plan->job_settings.data, plan->job_settings.length, text);
}

/* What SERVE says of the process that serves. */
struct holder {
    long pid;
    uint64_t digest;
};

static bool read_holder(int lock, struct holder *holder)
{
    char text[64] = "", *end;
    size_t got = 0;
    if (os_pread_all(lock, text, sizeof(text) - 1, 0, &got) != 0)
        return false;
    holder->pid = strtol(text, &end, 10);
    holder->digest = strtoull(end, NULL, 16);
    return holder->pid > 1;
}

/* In the child: the lock goes with the descriptor through exec. Does not return. */
static void become(int lock, int log, uint64_t digest, char **words)
{
    char text[64];
    int length = snprintf(text, sizeof(text), "%d %016" PRIx64 "\n", getpid(), digest);
    setsid();
    /* Above the descriptors of standard input, output and errors, whichever of them are closed. */
    lock = fcntl(lock, F_DUPFD, STDERR_FILENO + 1);
    log = fcntl(log, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (flock(lock, LOCK_EX | LOCK_NB) != 0 || ftruncate(lock, 0) != 0 ||
        pwrite(lock, text, (size_t)length, 0) != length)
        _exit(EXIT_FAILURE);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    execv("/proc/self/exe", words);
    _exit(EXIT_FAILURE);
}

/* Makes one line of the text: a `;` in place of each end of a line, and of blanks behind it. */
static void join_lines(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0';) {
        if (*from != '\n') {
            *to++ = *from++;
            continue;
        }
        from += strspn(from, "\n ");
        if (*from != '\0') {
            *to++ = ';';
            *to++ = ' ';
        }
    }
    *to = '\0';
}

/* What the log has from `from` on, at most TELL_BYTES_MAX of it; the caller frees the text. */
static char *text_since(const char *path, int64_t from)
{
    char text[TELL_BYTES_MAX + 1];
    size_t got = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || os_pread_all(fd, text, TELL_BYTES_MAX, (uint64_t)from, &got) != 0)
        got = 0;
    if (fd >= 0)
        close(fd);
    text[got] = '\0';
    return mem_strdup(text);
}

/* Waits some seconds for the process to listen, and says what it does. False after a diagnostic: it has ended. */
static bool wait_listening(pid_t pid, const char *log_path, int64_t from, struct diag_list *diags)
{
    for (int waited_ms = 0; waited_ms < LISTEN_MS_MAX; waited_ms += LOOK_MS) {
        int status;
        char *text = text_since(log_path, from);
        bool is_there = strstr(text, "listening on ") != NULL;
        if (!is_there && waitpid(pid, &status, WNOHANG) == pid) {
            struct diag *d = diag_error(diags, DIAG_NO_COMMAND, (struct span){0},
                                        "--serve: `leat serve` ended before it listened");
            free(text);
            text = text_since(log_path, from); /* also what it wrote last */
            join_lines(text);
            diag_cause(diags, d, "%s", text);
            diag_hint(diags, d, "its messages are in `%s`", log_path);
            free(text);
            return false;
        }
        free(text);
        if (is_there) {
            log_say(LOG_LEVEL_INFO, "process %d serves; its messages are in %s", (int)pid, log_path);
            return true;
        }
        rest();
    }
    log_say(LOG_LEVEL_INFO, "process %d does not listen yet; its messages are in %s", (int)pid, log_path);
    return true;
}

/* Starts the process; the caller has the lock file and the log open. */
static bool start(const struct job_load *load, int lock, int log, const char *log_path,
                  struct diag_list *diags)
{
    struct arena arena = {0};
    int64_t from = os_file_bytes(log_path);
    char *figures = serve_beside_figures(load);
    unlink(figures); /* of a server that has ended */
    free(figures);
    char **words = words_of(load, &arena);
    pid_t pid = fork();
    if (pid == 0)
        become(lock, log, digest_of(load), words);
    if (pid < 0)
        diag_errno(diags, diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "--serve: no process"), errno);
    bool is_good = pid > 0 && wait_listening(pid, log_path, from, diags);
    arena_free(&arena);
    return is_good;
}

bool serve_beside_start(const struct job_load *load, bool takes_over, bool *is_new, struct diag_list *diags)
{
    if (load->plan->serves_count == 0) {
        struct diag *d =
            diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "--serve: the job serves nothing");
        diag_hint(diags, d, "add `serve NAME { from: MODEL.predictions, request: SOURCE }` to the job");
        return false;
    }
    char *directory = path_of(load, ""), *lock_path = path_of(load, "SERVE"),
         *log_path = path_of(load, "serve.log");
    int error = os_mkdirs(directory);
    int lock = error == 0 ? open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1;
    int log = lock < 0 ? -1 : open(log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    bool is_good = log >= 0;
    struct holder holder;
    if (!is_good) {
        diag_errno(diags,
                   diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "--serve: `%s` cannot be opened",
                              lock < 0 ? lock_path : log_path),
                   error != 0 ? error : errno);
    } else if (is_held(lock) && read_holder(lock, &holder) && holder.digest == digest_of(load)) {
        log_say(LOG_LEVEL_INFO, "a process that an earlier run started serves already");
    } else if (is_held(lock) && !takes_over && is_run_there(load)) {
        *is_new = false; /* the server is another run's; this run is going to be refused, and says why */
    } else {
        if (is_held(lock)) {
            log_say(LOG_LEVEL_INFO, "the process that serves another version of the job ends");
            serve_beside_stop(load);
        }
        is_good = start(load, lock, log, log_path, diags);
        *is_new = is_good;
    }
    if (lock >= 0)
        close(lock);
    if (log >= 0)
        close(log);
    free(directory);
    free(lock_path);
    free(log_path);
    return is_good;
}

bool serve_beside_is_there(const struct job_load *load)
{
    char *lock_path = path_of(load, "SERVE");
    int lock = open(lock_path, O_RDONLY | O_CLOEXEC);
    bool is_there = lock >= 0 && is_held(lock);
    if (lock >= 0)
        close(lock);
    free(lock_path);
    return is_there;
}

void serve_beside_stop(const struct job_load *load)
{
    char *lock_path = path_of(load, "SERVE");
    struct holder holder;
    int lock = open(lock_path, O_RDONLY | O_CLOEXEC);
    if (lock >= 0 && is_held(lock) && read_holder(lock, &holder)) {
        kill((pid_t)holder.pid, SIGTERM);
        for (int waited_ms = 0; waited_ms < STOP_MS_MAX && is_held(lock); waited_ms += LOOK_MS) {
            waitpid((pid_t)holder.pid, NULL, WNOHANG);
            rest();
        }
    }
    if (lock >= 0)
        close(lock);
    free(lock_path);
}
