/* A mirror of a job's checkpoint directory. What comes is checked by its digest; a request whose answer is damaged is sent
 * again. A checkpoint comes into `.incoming` and is put in place when it is complete.
 *
 * It takes a checkpoint when the server that reads the mirror asks for one (as it would ask the job), and each newer one as
 * long as nobody follows the mirror's log. Who offers a mirror follows it in other mirrors' name, also where the job writes no
 * log; therefore each newer checkpoint of a job that cannot be followed is taken, too. */
#include "serve/link.h"

#include "core/delta_log.h"
#include "core/hex.h"
#include "core/mem.h"
#include "core/os.h"
#include "core/refused.h"
#include "core/wait.h"
#include "serve/link_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    STALL_S = 10, /* for an answer */
    RETRY_US = 500 * 1000,
    LOOK_US = 200 * 1000,  /* for wishes of those who follow the mirror */
    IDLE_US = 1000 * 1000, /* for a newer checkpoint, while nobody wishes */
    EAGER_US =
        10 * 1000 * 1000, /* after a wish, it asks whether the checkpoint is there, every EAGER_LOOK_US */
    EAGER_LOOK_US = 50 * 1000,
    LOG_LOOK_US = 10 * 1000,
    PROGRESS_US = 5 * 1000 * 1000,
    MIRROR_NICE = 10, /* of the thread of checkpoints: scores go first */
    TEXT_BYTES = 400,
};

/* A connection and what it needs; of one thread. stuck: what was said last of files that cannot be written; "": they can. */
struct side {
    struct fetch *fetch;
    struct byte_buffer target, body;
    struct link_head head;
    struct str bytes; /* of the last answer; in `body` */
    char stuck[TEXT_BYTES];
};

struct link_mirror {
    struct link_job job;
    char *from, *log, *incoming; /* the offer's address; directories */
    struct link_place place;
    link_say *say;
    void *user;
    int lock_fd; /* DIRECTORY/.mirror */
    pthread_t checkpoints_thread, log_thread;
    pthread_mutex_t mutex; /* guards what follows, up to the threads' own */
    pthread_cond_t changed;
    bool must_stop;
    bool is_other_run;        /* the log's copy is of an earlier run, and has to go */
    char trouble[TEXT_BYTES]; /* what was said last; "": the link is well */
    struct link_mirror_figures figures;
    /* Of the thread of checkpoints. */
    struct side checkpoints;
    struct checkpoint_id have; /* generation 0: none */
    char run[LINK_RUN_DIGITS + 1];
    /* Of the thread of the log. */
    struct side tail;
    struct delta_copy *copy;
};

/* --- Words --- */

/* Says what is wrong, unless it was said last. */
static void say_trouble(struct link_mirror *m, const char *text)
{
    pthread_mutex_lock(&m->mutex);
    bool is_new =
        strcmp(m->trouble, text) != 0 && !m->must_stop; /* requests that a stop ends are no trouble */
    snprintf(m->trouble, sizeof(m->trouble), "%s", text);
    pthread_mutex_unlock(&m->mutex);
    if (is_new)
        m->say(m->user, text);
}

static void say_well(struct link_mirror *m)
{
    char text[TEXT_BYTES];
    pthread_mutex_lock(&m->mutex);
    bool was_in_trouble = m->trouble[0] != '\0';
    m->trouble[0] = '\0';
    pthread_mutex_unlock(&m->mutex);
    if (!was_in_trouble)
        return;
    snprintf(text, sizeof(text), "link: job %.*s is linked to %s", STR_ARGS(m->job.name), m->from);
    m->say(m->user, text);
}

/* Says what keeps the side's files from being written, unless it was said last. The link may be well meanwhile. */
static void say_stuck(struct link_mirror *m, struct side *side, const char *text)
{
    if (strcmp(side->stuck, text) == 0)
        return;
    snprintf(side->stuck, sizeof(side->stuck), "%s", text);
    m->say(m->user, text);
}

static void say_errno(struct link_mirror *m, struct side *side, const char *what, int error)
{
    char text[TEXT_BYTES], reason[128];
    snprintf(text, sizeof(text), "link: %s in %s: %s; it is tried again", what, m->job.directory,
             strerror_r(error, reason, sizeof(reason)));
    say_stuck(m, side, text);
}

static void say_diags(struct link_mirror *m, const struct diag_list *diags)
{
    char text[TEXT_BYTES], place[80] = "";
    const struct diag *d = &diags->items[0];
    if (d->path != NULL && d->offset >= 0)
        snprintf(place, sizeof(place), ", offset %" PRId64, d->offset);
    snprintf(text, sizeof(text), "link: %s%s%s (%s%s); answers stay as they are until the next checkpoint",
             d->message, d->cause == NULL ? "" : ": ", d->cause == NULL ? "" : d->cause,
             d->path == NULL ? m->job.directory : d->path, place);
    say_stuck(m, &m->checkpoints, text);
}

/* Waits. false: the mirror stops. */
static bool rest(struct link_mirror *m, int64_t us)
{
    struct timespec until = wait_until(us);
    pthread_mutex_lock(&m->mutex);
    while (!m->must_stop && wait_on(&m->changed, &m->mutex, &until))
        continue;
    bool goes_on = !m->must_stop;
    pthread_mutex_unlock(&m->mutex);
    return goes_on;
}

/* --- Requests --- */

enum asked { ASKED_GOOD, ASKED_AGAIN /* nothing came: it may later */, ASKED_REFUSED };

/* Says why the request had no good answer. */
static enum asked refused(struct link_mirror *m, const struct side *side, int status)
{
    char text[TEXT_BYTES], words[200];
    size_t length = MIN(side->body.length, sizeof(words) - 1);
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)side->body.data[i];
        words[i] = (char)(c < ' ' || c > '~' ? ' ' : c);
    }
    words[length] = '\0';
    if (status == 0)
        snprintf(text, sizeof(text),
                 "link: nothing comes from %s (%s); answers stay as they are until it does", m->from,
                 fetch_why(side->fetch));
    else
        snprintf(text, sizeof(text), "link: %s refuses (%d): %s", m->from, status, words);
    say_trouble(m, text);
    return status == 0 || status >= 500 ? ASKED_AGAIN : ASKED_REFUSED;
}

static void count_answer(struct link_mirror *m, int status, const char *wrong, size_t bytes)
{
    struct link_mirror_figures *figures = &m->figures;
    pthread_mutex_lock(&m->mutex);
    figures->is_linked = status == 200 && wrong == NULL;
    if (figures->is_linked) {
        figures->answers++;
        figures->bytes += bytes;
    } else {
        ++*(status == 200 ? &figures->damaged : status == 0 ? &figures->unanswered : &figures->refusals);
    }
    pthread_mutex_unlock(&m->mutex);
}

/* What is wrong with the answer; NULL: nothing. */
static const char *check_answer(struct side *side, const struct link_ask *ask)
{
    const char *wrong = link_head_open((struct str){side->body.data, side->body.length}, ask->kind,
                                       &side->head, &side->bytes);
    uint64_t place = ask->kind == LINK_FILE ? ask->file : ask->segment;
    /* A request may be damaged, too. */
    bool is_other = (place != 0 && side->head.place != place) || side->head.offset != ask->offset;
    return wrong == NULL && ask->kind != LINK_CHECKPOINT && is_other
               ? "the answer is not of what was asked for"
               : wrong;
}

/* Sends the request; side->head and side->bytes have the answer. */
static enum asked ask_offer(struct link_mirror *m, struct side *side, struct link_ask *ask, size_t most)
{
    char text[TEXT_BYTES];
    ask->job = m->job.name;
    ask->fingerprint = str_from(m->job.fingerprint);
    buffer_clear(&side->target);
    link_ask_write(ask, &side->target);
    buffer_append(&side->target, "", 1);
    int status = fetch_get(side->fetch, side->target.data, STALL_S, most + sizeof(side->head), &side->body);
    const char *wrong = status == 200 ? check_answer(side, ask) : NULL;
    count_answer(m, status, wrong, side->body.length);
    if (status != 200)
        return refused(m, side, status);
    if (wrong == NULL)
        return ASKED_GOOD;
    snprintf(text, sizeof(text), "link: what comes from %s is damaged on the way (%s); it is asked for again",
             m->from, wrong);
    say_trouble(m, text);
    return ASKED_AGAIN;
}

/* --- Checkpoints: files that come --- */

/* A checkpoint on its way. */
struct coming {
    struct checkpoint_id id;
    uint64_t pack, bytes, all; /* bytes: that came, of `all` */
    int64_t said_us;
};

static void say_progress(struct link_mirror *m, struct coming *coming)
{
    char text[TEXT_BYTES];
    int64_t now = os_monotonic_us();
    if (now - coming->said_us < PROGRESS_US)
        return;
    coming->said_us = now;
    snprintf(text, sizeof(text),
             "link: %" PRIu64 " of %" PRIu64 " MiB of checkpoint %u-%" PRIu64 " of job %.*s are here",
             coming->bytes >> 20, coming->all >> 20, coming->id.generation, coming->id.epoch,
             STR_ARGS(m->job.name));
    m->say(m->user, text);
}

/* Fetches a file, over cuts of the link; false: the pack is no longer there, the file cannot be written, or the mirror
 * stops. */
static bool fetch_file(struct link_mirror *m, struct coming *coming, uint64_t number,
                       const struct link_file *file)
{
    int error, fd = link_file_open(&m->place, file->name, &error);
    struct link_ask ask = {.kind = LINK_FILE, .pack = coming->pack, .file = number};
    bool is_good = error == 0;
    while (is_good && ask.offset < file->bytes) {
        enum asked asked = ask_offer(m, &m->checkpoints, &ask, LINK_BYTES_MAX);
        bool is_short = asked == ASKED_GOOD && m->checkpoints.bytes.length == 0;
        if (is_short)
            say_stuck(
                m, &m->checkpoints,
                "link: a file of the checkpoint is shorter than the list says; the checkpoint is asked for again");
        if (asked == ASKED_REFUSED || is_short || (asked == ASKED_AGAIN && !rest(m, RETRY_US)))
            is_good = false;
        if (asked != ASKED_GOOD || is_short)
            continue;
        error = os_write_all(fd, m->checkpoints.bytes.data, m->checkpoints.bytes.length, "ckpt.write");
        is_good = error == 0;
        ask.offset += m->checkpoints.bytes.length;
        coming->bytes += m->checkpoints.bytes.length;
        say_progress(m, coming);
    }
    int closed = fd < 0 ? 0 : link_file_close(fd, file);
    error = error != 0 ? error : closed;
    is_good &= error == 0;
    if (error != 0)
        say_errno(m, &m->checkpoints, "a checkpoint cannot be written", error);
    return is_good && ask.offset == file->bytes;
}

/* Fetches what the mirror does not have of the list. */
static bool fetch_all(struct link_mirror *m, struct coming *coming, struct str list)
{
    struct link_file file;
    bool is_good = true;
    uint64_t count = 0;
    for (struct str rest = list; link_list_take(&rest, &file, &is_good) && count <= LINK_FILES_MAX; count++)
        coming->all += link_file_is_in_place(&m->place, &file) ? 0 : file.bytes;
    if (!is_good || count > LINK_FILES_MAX) {
        say_stuck(m, &m->checkpoints,
                  "link: the list of a checkpoint's files has names or lengths that no checkpoint has");
        return false;
    }
    uint64_t number = 0;
    for (struct str rest = list; is_good && link_list_take(&rest, &file, &is_good); number++)
        if (!link_file_is_in_place(&m->place, &file))
            is_good = fetch_file(m, coming, number, &file);
    return is_good;
}

/* --- Checkpoints: putting them in place --- */

enum placed { PLACED, PLACED_DAMAGED /* as it is at the other side */, PLACED_NOT };

static enum placed put_in_place(struct link_mirror *m, const struct coming *coming, struct str list)
{
    bool is_damaged = false;
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    int error = link_files_move(&m->place, list);
    if (error != 0)
        say_errno(m, &m->checkpoints, "a checkpoint cannot be put in place", error);
    bool is_good = error == 0 && checkpoint_pack_adopt(m->job.directory, coming->id, &is_damaged, &diags);
    if (error == 0 && !is_good)
        say_diags(m, &diags);
    if (is_good)
        link_files_sweep(&m->place, list);
    (void)os_remove_tree(m->place.incoming);
    arena_free(&arena);
    return is_good ? PLACED : is_damaged ? PLACED_DAMAGED : PLACED_NOT;
}

/* A run that begins anew may have the generation of the one before: waits until the log's thread has forgotten its copy. */
static void forget_log(struct link_mirror *m)
{
    pthread_mutex_lock(&m->mutex);
    m->is_other_run = true;
    bool is_waiting = true;
    while (is_waiting) {
        pthread_mutex_unlock(&m->mutex);
        bool goes_on = rest(m, LOG_LOOK_US);
        pthread_mutex_lock(&m->mutex);
        is_waiting = goes_on && m->is_other_run;
    }
    pthread_mutex_unlock(&m->mutex);
}

/* Takes the checkpoint that the answer names. */
static void take_checkpoint(struct link_mirror *m)
{
    char text[TEXT_BYTES], run[LINK_RUN_DIGITS + 1] = "";
    struct link_head head = m->checkpoints.head;
    struct coming coming = {
        .id = {head.generation, head.place}, .pack = head.offset, .said_us = os_monotonic_us()};
    int64_t begun_us = coming.said_us;
    struct str files = m->checkpoints.bytes;
    struct byte_buffer list = m->checkpoints.body; /* has the names; the next answers go to another buffer */
    m->checkpoints.body = (struct byte_buffer){0};
    memcpy(run, head.run, LINK_RUN_DIGITS);
    int error = 0;
    if (strcmp(run, m->run) != 0) { /* another run numbers its checkpoints anew: the mirror has none of it */
        if (m->run[0] != '\0')
            forget_log(m);
        m->have = (struct checkpoint_id){0};
        m->run[0] = '\0';
        error = link_files_forget(&m->place);
    }
    if (error == 0)
        memcpy(m->run, run, sizeof(run));
    else
        say_errno(m, &m->checkpoints, "checkpoints of an earlier run cannot be removed", error);
    enum placed placed = PLACED_NOT;
    if (error == 0 && fetch_all(m, &coming, files))
        placed = put_in_place(m, &coming, files);
    if (placed != PLACED_NOT)
        m->have = coming.id; /* a damaged one is not asked for again: a newer one may be whole */
    if (placed == PLACED) {
        m->checkpoints.stuck[0] = '\0';
        pthread_mutex_lock(&m->mutex);
        m->figures.checkpoints++;
        pthread_mutex_unlock(&m->mutex);
        snprintf(text, sizeof(text),
                 "link: checkpoint %u-%" PRIu64 " of job %.*s is here (%.1f MiB in %.1f s)",
                 coming.id.generation, coming.id.epoch, STR_ARGS(m->job.name),
                 (double)coming.bytes / (1 << 20), (double)(os_monotonic_us() - begun_us) / 1e6);
        m->say(m->user, text);
    }
    buffer_free(&list);
}

/* Asks for a newer checkpoint than the mirror has, and takes it. Returns whether there was an answer. */
static bool look_for_checkpoint(struct link_mirror *m, bool is_wanted)
{
    struct link_ask ask = {
        .kind = LINK_CHECKPOINT, .have = m->have, .run = str_from(m->run), .wants = is_wanted};
    if (ask_offer(m, &m->checkpoints, &ask, LINK_LIST_MAX) != ASKED_GOOD)
        return false;
    if (m->checkpoints.head.generation != 0 && (m->checkpoints.head.flags & LINK_SAME) == 0)
        take_checkpoint(m);
    return true;
}

/* What lies in the directory from before, if it is whole. */
static void find_own(struct link_mirror *m)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct checkpoint_list list = {0};
    struct checkpoint_dir_options options = {.path = m->job.directory, .read_only = true};
    struct checkpoint_dir *dir = checkpoint_dir_open(&options, &diags);
    struct run_id run;
    if (dir != NULL && checkpoint_newest_run(dir, &run) && checkpoint_walk(dir, &arena, &list, &diags) &&
        list.count > 0 && !list.is_damaged[0] && checkpoint_verify(dir, list.items[0].id, &diags)) {
        m->have = list.items[0].id;
        hex_text(run.bytes, sizeof(run.bytes), m->run);
    } else {
        (void)link_files_forget(&m->place);
    }
    checkpoint_dir_close(dir);
    arena_free(&arena);
}

static void *mirror_checkpoints(void *argument)
{
    struct link_mirror *m = argument;
    int64_t asked_us = INT64_MIN, eager_us = 0;
    setpriority(PRIO_PROCESS, (id_t)gettid(), MIRROR_NICE);
    (void)os_remove_tree(m->place.incoming);
    find_own(m);
    do {
        bool is_wanted;
        uint32_t living = delta_followers_look(m->log, &is_wanted);
        int64_t now = os_monotonic_us();
        if (is_wanted)
            eager_us = now + EAGER_US;
        bool is_due = asked_us == INT64_MIN || is_wanted || now < eager_us ||
                      ((living == 0 || !m->job.can_be_followed) && now - asked_us >= IDLE_US);
        uint64_t had = m->have.epoch;
        if (!is_due)
            continue;
        if (look_for_checkpoint(m, is_wanted))
            asked_us = os_monotonic_us();
        if (m->have.epoch != had) { /* wishes from before are answered */
            (void)delta_followers_look(m->log, &is_wanted);
            eager_us = 0;
        }
    } while (rest(m, eager_us > os_monotonic_us() ? EAGER_LOOK_US : LOOK_US));
    return NULL;
}

/* --- The log --- */

/* Applies an answer to the copy. 0 or an errno. */
static int take_log(struct link_mirror *m)
{
    const struct link_head *head = &m->tail.head;
    bool is_written = (head->flags & LINK_WRITTEN) != 0;
    uint32_t generation = delta_copy_generation(m->copy);
    if (is_written && ((head->flags & LINK_GONE) != 0 || head->generation != generation))
        return head->generation == 0 ? 0 : delta_copy_begin(m->copy, head->generation);
    struct delta_piece piece = {.got = m->tail.bytes.length,
                                .is_complete = (head->flags & LINK_COMPLETE) != 0,
                                .has_next = (head->flags & LINK_NEXT) != 0};
    bool is_news = piece.got > 0 || piece.is_complete;
    if (!is_news && !is_written)
        delta_copy_pause(m->copy);
    if (!is_news || generation == 0 || head->place == 0 || head->generation != generation)
        return 0;
    return delta_copy_append(m->copy, head->place, m->tail.bytes.data, &piece);
}

static void forget_other_run(struct link_mirror *m)
{
    pthread_mutex_lock(&m->mutex);
    if (m->is_other_run)
        delta_copy_forget(m->copy);
    m->is_other_run = false;
    pthread_mutex_unlock(&m->mutex);
}

static void *mirror_log(void *argument)
{
    struct link_mirror *m = argument;
    bool goes_on = true;
    while (goes_on) {
        struct link_ask ask = {.kind = LINK_LOG, .generation = delta_copy_generation(m->copy)};
        delta_copy_place(m->copy, &ask.segment, &ask.offset);
        bool is_good = ask_offer(m, &m->tail, &ask, LINK_BYTES_MAX) == ASKED_GOOD;
        forget_other_run(m);
        int error = is_good ? take_log(m) : 0;
        if (is_good && error == 0 && m->tail.bytes.length > 0)
            m->tail.stuck[0] = '\0';
        if (error != 0) {
            say_errno(m, &m->tail, "the log's copy cannot be written", error);
            delta_copy_forget(m->copy);
        } else if (is_good) {
            say_well(m);
        }
        goes_on = rest(m, is_good && error == 0 ? 0 : RETRY_US);
    }
    return NULL;
}

/* --- Start and stop --- */

/* Takes the directory: only an empty one, or one that is a mirror. */
static bool take_directory(struct link_mirror *m, struct diag_list *diags)
{
    struct diag *d;
    char *path = mem_printf("%s/.mirror", m->job.directory);
    int error = os_mkdirs(m->job.directory);
    DIR *dir = error == 0 ? opendir(m->job.directory) : NULL;
    bool is_empty = true, is_mirror = access(path, F_OK) == 0;
    for (const struct dirent *one; dir != NULL && (one = readdir(dir)) != NULL;)
        is_empty &= one->d_name[0] == '.';
    if (dir != NULL)
        closedir(dir);
    if (error == 0 && (is_empty || is_mirror)) {
        m->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        error = m->lock_fd < 0 ? errno : os_lock(m->lock_fd) ? 0 : EWOULDBLOCK;
    }
    free(path);
    if (error == 0 && (is_empty || is_mirror))
        return true;
    if (error == EWOULDBLOCK) {
        d = diag_error(diags, DIAG_DIRECTORY_IN_USE, (struct span){0}, "another process mirrors into %s",
                       m->job.directory);
        diag_hint(diags, d, "stop that process, or name another directory (--link-dir)");
    } else if (error != 0) {
        d = diag_error(diags, DIAG_FOREIGN_DIRECTORY, (struct span){0}, "%s cannot be made a mirror",
                       m->job.directory);
        diag_errno(diags, d, error);
        diag_hint(diags, d, "check that this user may write there, or name another directory (--link-dir)");
    } else {
        d = diag_error(diags, DIAG_FOREIGN_DIRECTORY, (struct span){0}, "%s has files, and is no mirror",
                       m->job.directory);
        diag_hint(diags, d, "name a directory of its own for the mirror (--link-dir)");
    }
    return false;
}

static void free_side(struct side *side)
{
    fetch_free(side->fetch);
    buffer_free(&side->target);
    buffer_free(&side->body);
}

static void free_mirror(struct link_mirror *m)
{
    delta_copy_close(m->copy);
    free_side(&m->checkpoints);
    free_side(&m->tail);
    if (m->lock_fd >= 0)
        close(m->lock_fd);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->mutex);
    free(m->from);
    free(m->log);
    free(m->incoming);
    free(m);
}

struct link_mirror *link_mirror_start(const struct fetch_options *from, const struct link_job *job,
                                      link_say *say, void *user, struct diag_list *diags)
{
    struct link_mirror *m = mem_calloc(1, sizeof(*m));
    *m = (struct link_mirror){.job = *job,
                              .from = mem_printf("%.*s", STR_ARGS(from->address)),
                              .log = mem_printf("%s/log", job->directory),
                              .incoming = mem_printf("%s/.incoming", job->directory),
                              .say = say,
                              .user = user,
                              .lock_fd = -1};
    m->place = (struct link_place){.directory = job->directory, .incoming = m->incoming};
    snprintf(m->trouble, sizeof(m->trouble), "not linked yet");
    pthread_mutex_init(&m->mutex, NULL);
    pthread_cond_init(&m->changed, NULL);
    m->checkpoints.fetch = fetch_new(from, diags);
    m->tail.fetch = m->checkpoints.fetch == NULL ? NULL : fetch_new(from, diags);
    bool is_good = m->tail.fetch != NULL && take_directory(m, diags);
    if (is_good)
        m->copy = delta_copy_open(m->log, job->log_bytes, diags);
    if (m->copy == NULL) {
        free_mirror(m);
        return NULL;
    }
    refused_unless_begun(pthread_create(&m->checkpoints_thread, NULL, mirror_checkpoints, m));
    refused_unless_begun(pthread_create(&m->log_thread, NULL, mirror_log, m));
    return m;
}

struct link_mirror_figures link_mirror_figures(struct link_mirror *m)
{
    pthread_mutex_lock(&m->mutex);
    struct link_mirror_figures figures = m->figures;
    pthread_mutex_unlock(&m->mutex);
    return figures;
}

void link_mirror_stop(struct link_mirror *m)
{
    if (m == NULL)
        return;
    pthread_mutex_lock(&m->mutex);
    m->must_stop = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
    fetch_stop(m->checkpoints.fetch);
    fetch_stop(m->tail.fetch);
    pthread_join(m->checkpoints_thread, NULL);
    pthread_join(m->log_thread, NULL);
    free_mirror(m);
}
