/* leat top [URL|JOB|DIR]: the live view of a run that goes on in another process, over its control API. */
#include "cli/argp.h"
#include "cli/commands.h"
#include "cli/control_at.h"
#include "control/figures_read.h"
#include "control/picture.h"
#include "core/mem.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum {
    KEY_SET = 256,
    KEY_AUTHORITY,
    KEY_TOKEN_FILE,
    KEY_ONCE,
    STALL_S = 2,
    LOOK_MS = 1000,
    BODY_MAX = 64 << 20,
    SAID_BYTES = 400,
    STILL_US = 30 * 1000 * 1000 /* a watermark that has not moved for so long is said to stand still */
};

struct top {
    struct control_at at;
    bool is_once, has_figures;
    struct fetch *fetch;       /* NULL: to be made */
    struct byte_buffer body;   /* of the last answer */
    struct figures_read *read; /* the newest figures, if has_figures */
    struct pace pace;          /* its clock is the run's own time */
    char why[SAID_BYTES];      /* why the last look got no figures; "": it did */
    time_t answered;           /* when the last figures came */
    struct byte_buffer out;
    struct termios before; /* of the terminal */
    bool has_keys;         /* keys are read one by one */
};

static const struct argp_option options_table[] = {
    {"set", KEY_SET, "NAME=VALUE", 0, "with JOB: as given to the run", 0},
    {"authority", KEY_AUTHORITY, "FILE", 0, CONTROL_AT_AUTHORITY_HELP, 0},
    {"token-file", KEY_TOKEN_FILE, "FILE", 0, CONTROL_AT_TOKEN_HELP, 0},
    {"once", KEY_ONCE, NULL, 0, "print one picture, as plain text, and end", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct top *top = state->input;
    switch (key) {
    case KEY_SET:
        if (!job_pair_add(&top->at.load.settings, argument))
            argp_error(state, "--set takes NAME=VALUE, not `%s`", argument);
        return 0;
    case KEY_AUTHORITY: top->at.authority = argument; return 0;
    case KEY_TOKEN_FILE: top->at.token_file = argument; return 0;
    case KEY_ONCE: top->is_once = true; return 0;
    case ARGP_KEY_ARG:
        if (top->at.word != NULL)
            argp_error(state, "give one run only");
        top->at.word = argument;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static volatile sig_atomic_t must_leave;

static void on_signal(int number LEAT_UNUSED)
{
    must_leave = 1;
}

/* --- Looking --- */

/* Notes why there are no figures. */
static void say(struct top *top, const char *before, struct str why)
{
    struct byte_buffer text = {0};
    buffer_printf(&text, "%s%.*s", before, (int)MIN(why.length, (size_t)SAID_BYTES), why.data);
    while (text.length > 0 && (unsigned char)text.data[text.length - 1] <= ' ')
        text.length--;
    picture_clean(&text, 0);
    snprintf(top->why, sizeof(top->why), "%.*s", (int)text.length, text.data);
    buffer_free(&text);
}

/* Makes a client of the run that is there now. */
static bool connect_anew(struct top *top)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    top->fetch = control_at_connect(&top->at, &diags);
    if (top->fetch == NULL && diags.count > 0) {
        const struct diag *d = &diags.items[0];
        const char *text = arena_printf(&arena, "%s%s%s%s%s", d->message, d->cause != NULL ? ": " : "",
                                        d->cause != NULL ? d->cause : "", d->hint != NULL ? "; " : "",
                                        d->hint != NULL ? d->hint : "");
        say(top, "", str_from(text));
    }
    arena_free(&arena);
    return top->fetch != NULL;
}

static void take_figures(struct top *top)
{
    const struct run_stats *stats = &top->read->stats;
    int64_t now_us = stats->elapsed_us;
    bool is_another =
        !top->has_figures || now_us < top->pace.last_us || stats->records_life < top->pace.last_records;
    if (is_another) {
        pace_begin(&top->pace, stats->records_life, now_us);
        top->pace.rate = (double)stats->records_life / ((double)MAX(now_us, 1) / 1e6);
    } else if (now_us > top->pace.last_us) /* else nothing is new */
        pace_look_at_rate(&top->pace, stats, now_us);
    pace_look_at_watermark(&top->pace, stats, STILL_US, now_us);
    top->has_figures = true;
    top->answered = time(NULL);
}

/* Asks for figures. False: `why` says why there are none; *is_restored: the run is there, but is being restored. */
static bool look(struct top *top, bool *is_restored)
{
    *is_restored = false;
    top->why[0] = '\0';
    if (top->fetch == NULL && !connect_anew(top))
        return false;
    int status = fetch_get(top->fetch, "/api/v1/figures", STALL_S, BODY_MAX, &top->body);
    const char *wrong = NULL;
    if (status == 200) {
        wrong = figures_read(top->read, (struct str){top->body.data, top->body.length});
        if (wrong == NULL) {
            take_figures(top);
            return true;
        }
        top->has_figures = false;
        say(top, "what answers is no run of this leat: ", str_from(wrong));
    } else if (status == 0)
        say(top, "no answer: ", str_from(fetch_why(top->fetch)));
    else if (status == 401)
        say(top, "it wants a token: ", STR("give --token-file"));
    else if (control_at_is_other(status)) {
        snprintf(top->why, sizeof(top->why), CONTROL_AT_OTHER, status);
        buffer_clear(&top->body); /* a page, perhaps */
    } else
        say(top, "", (struct str){top->body.data, top->body.length});
    *is_restored = status == 503;
    fetch_free(top->fetch); /* the next run may listen elsewhere */
    top->fetch = NULL;
    return false;
}

static struct picture picture_of(const struct top *top)
{
    return (struct picture){.job = top->read->job,
                            .stats = &top->read->stats,
                            .watch = &top->read->watch,
                            .recent = top->read->is_recent_known ? &top->read->recent : NULL,
                            .pace = &top->pace};
}

/* --- Showing --- */

static void begin_screen(struct top *top)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct sigaction action = {.sa_handler = on_signal};
    for (size_t i = 0; i < ARRAY_COUNT(signals); i++)
        sigaction(signals[i], &action, NULL);
    if (isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &top->before) == 0) {
        struct termios now = top->before;
        now.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        now.c_cc[VSUSP] = _POSIX_VDISABLE; /* a shell would be left with a terminal that does not echo */
        top->has_keys = tcsetattr(STDIN_FILENO, TCSANOW, &now) == 0;
    }
    printf("\x1b[?1049h\x1b[?25l"); /* the other screen, no cursor */
}

static void end_screen(struct top *top)
{
    printf("\x1b[?25h\x1b[?1049l");
    fflush(stdout);
    if (top->has_keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &top->before);
}

static void draw(struct top *top)
{
    struct picture_size size = picture_terminal(STDOUT_FILENO);
    int columns = (int)size.columns;
    struct picture picture = picture_of(top);
    buffer_clear(&top->out);
    buffer_printf(&top->out, "\x1b[H");
    if (top->why[0] == '\0')
        buffer_printf(&top->out, "%.*s", columns - 1, "leat top: q leaves");
    else if (top->has_figures)
        buffer_printf(&top->out, "\x1b[7mfigures of %lld s ago: %.*s\x1b[0m",
                      (long long)(time(NULL) - top->answered), MAX(columns - 30, 0), top->why);
    else
        buffer_printf(&top->out, "\x1b[7m%.*s\x1b[0m", columns - 1, top->why);
    buffer_printf(&top->out, "\x1b[K\n");
    if (top->has_figures) /* a line is above, and the cursor's row below */
        picture_fit(&picture, size, MAX(size.rows, 3) - 2, "make the terminal higher, or use --once",
                    &top->out);
    buffer_printf(&top->out, "\x1b[J");
    fwrite(top->out.data, 1, top->out.length, stdout);
    if (fflush(stdout) != 0)
        must_leave = 1; /* the terminal is gone */
}

/* Waits for the next look, or for a key. */
static void rest(struct top *top)
{
    struct pollfd keys = {.fd = top->has_keys ? STDIN_FILENO : -1, .events = POLLIN};
    if (poll(&keys, 1, LOOK_MS) <= 0)
        return; /* after a signal, too: of a window of another size, for example */
    char key = 0;
    ssize_t got = read(STDIN_FILENO, &key, 1);
    must_leave |= key == 'q' || key == 'Q' || got == 0 || (got < 0 && errno != EINTR);
}

static void show(struct top *top)
{
    bool is_restored;
    begin_screen(top);
    while (!must_leave) {
        draw(top);
        rest(top);
        if (!must_leave)
            (void)look(top, &is_restored);
    }
    end_screen(top);
}

/* False: what answers is no longer a run of this leat. */
static bool print_once(struct top *top)
{
    bool is_restored;
    (void)poll(NULL, 0, LOOK_MS);
    (void)look(
        top,
        &is_restored); /* the rate is known by two looks; if the run has just ended, the first one stays */
    if (!top->has_figures)
        return false;
    struct picture picture = picture_of(top);
    picture_draw(&picture, 0, "\n", &top->out);
    fwrite(top->out.data, 1, top->out.length, stdout);
    return true;
}

static bool run_top(struct top *top)
{
    bool is_restored, is_shown = !top->is_once && isatty(STDOUT_FILENO);
    bool is_there = look(top, &is_restored) && (is_shown || print_once(top));
    if (!is_there && !(is_restored && is_shown)) {
        struct diag *d = diag_error(&top->at.load.diags, DIAG_NO_COMMAND, (struct span){0}, "%s: %s",
                                    top->at.word, top->why);
        if (top->at.is_url && top->body.length == 0)
            diag_hint(&top->at.load.diags, d,
                      "a run is watched where it was started with `leat run JOB --control HOST:PORT`");
        return false;
    }
    if (is_shown)
        show(top);
    return true;
}

int cmd_top(int argc, char **argv)
{
    static const struct argp argp = {
        options_table,
        parse,
        "[URL|JOB|DIR]",
        "Shows what a run does, as `leat run` shows it on a terminal, but from elsewhere; the picture is drawn anew each "
        "second.\vThe run must have been started with --control. Without an argument it is the run at "
        "http://127.0.0.1:8081; of a JOB or a checkpoint directory, the file CONTROL says where the run is. q or Ctrl-C "
        "leaves; the run goes on. If the run is gone, that is said, and the next one is shown as soon as it is there. "
        "Without a terminal, as with --once.",
        0,
        0,
        0};
    struct top top = {0};
    bool is_bad_job = false;
    argp_command(&argp, argc, argv, &top);
    if (top.at.word == NULL)
        top.at.word = "http://127.0.0.1:8081";
    top.read = mem_calloc(1, sizeof(*top.read));
    bool is_good = control_at_find(&top.at, &is_bad_job) && run_top(&top);
    job_print_diags(&top.at.load);
    fetch_free(top.fetch);
    figures_read_free(top.read);
    buffer_free(&top.body);
    buffer_free(&top.out);
    control_at_free(&top.at);
    return is_good ? EXIT_GOOD : is_bad_job ? EXIT_BAD_JOB : EXIT_FAILED;
}
