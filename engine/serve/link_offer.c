/* What a mirror asks for, read from the job's checkpoint directory. A thread of its own: reading files delays no score. */
#include "serve/link.h"

#include "core/delta_log.h"
#include "core/hex.h"
#include "core/mem.h"
#include "core/os.h"
#include "core/refused.h"
#include "serve/link_format.h"
#include "serve/server.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    PACKS_MAX = 2 * SERVE_JOBS_MAX, /* one for each job while mirrors begin, and the one before */
    CONNECTIONS_MAX = 64,
    LOOK_MS = 5,                  /* between two looks for new bytes of a log */
    FOLLOW_US = 10 * 1000 * 1000, /* without a request for the log: nobody follows any more */
    TEXT_BYTES = 256,
    GRACE_MS = 1000,
};
#define MEMORY_BYTES (UINT64_C(256) << 20)

struct offered {
    struct link_job job;
    char *log;                       /* the log's directory */
    struct delta_follower *follower; /* the mirrors' sign of life for the job; NULL: none asks */
    bool has_said_apart;             /* that it cannot be followed was said */
    int64_t asked_us;                /* monotonic: when the log was last asked for */
};

/* A checkpoint that is open for mirrors; number 0: none. */
struct pack {
    uint64_t number;
    const struct offered *of;
    struct checkpoint_pack *files;
    int64_t used_us;
};

/* A request for bytes of a log that are not there yet. */
struct waiting {
    struct net_exchange *exchange;
    struct link_ask ask; /* its texts are the exchange's */
    struct offered *of;
    int64_t until_us;
    struct waiting *next;
};

struct link_offer {
    struct net_loop *loop;
    pthread_t thread;
    struct offered *jobs;
    uint32_t count;
    struct pack packs[PACKS_MAX];
    uint64_t packs_begun; /* numbers of packs: none is of an earlier process */
    struct waiting *waiting;
    struct byte_buffer body; /* of the answer in work */
    _Atomic uint64_t answers, refusals, bytes;
    link_say *say;
    void *user;
};

/* --- Answers --- */

static void refuse(struct link_offer *offer, struct net_exchange *exchange, int status, const char *text)
{
    atomic_fetch_add(&offer->refusals, 1);
    net_respond_text(exchange, status, text);
}

/* Begins an answer: room for its head. Bytes are appended to offer->body. */
static void begin_answer(struct link_offer *offer)
{
    static const struct link_head none;
    buffer_clear(&offer->body);
    buffer_append(&offer->body, &none, sizeof(none));
}

static void send_answer(struct link_offer *offer, struct net_exchange *exchange, struct link_head *head)
{
    static const struct net_field type = {{"content-type", 12}, {"application/octet-stream", 24}};
    struct byte_buffer *body = &offer->body;
    link_head_seal(head, (struct str){body->data + sizeof(*head), body->length - sizeof(*head)});
    memcpy(body->data, head, sizeof(*head));
    atomic_fetch_add(&offer->answers, 1);
    atomic_fetch_add(&offer->bytes, body->length);
    struct net_response response = {
        .status = 200, .fields = &type, .fields_count = 1, .body = {body->data, body->length}};
    net_respond(exchange, &response);
}

/* --- Who follows --- */

/* The mirror's sign of life, in its name. */
static void keep_following(struct link_offer *offer, struct offered *of)
{
    of->asked_us = os_monotonic_us();
    if (of->follower != NULL && delta_follower_is_seen(of->follower))
        return;
    delta_follower_leave(of->follower);
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    of->follower = delta_follower_enter(of->log, &diags);
    if (of->follower == NULL && !of->has_said_apart)
        offer->say(offer->user, arena_printf(&arena, "link: job %.*s cannot be followed for others: %s",
                                             STR_ARGS(of->job.name), diags.items[0].message));
    of->has_said_apart = of->follower == NULL;
    arena_free(&arena);
}

/* --- Checkpoints --- */

static void close_pack(struct pack *pack)
{
    checkpoint_pack_close(pack->files);
    *pack = (struct pack){0};
}

/* The open pack of that number. */
static struct pack *pack_of(struct link_offer *offer, const struct offered *of, uint64_t number)
{
    for (uint32_t i = 0; i < PACKS_MAX; i++)
        if (number != 0 && offer->packs[i].number == number && offer->packs[i].of == of)
            return &offer->packs[i];
    return NULL;
}

/* Keeps what was opened under a number; takes the place that was not used for longest. A checkpoint that is open already
 * stays as it is. */
static struct pack *keep_pack(struct link_offer *offer, const struct offered *of,
                              struct checkpoint_pack *files)
{
    struct checkpoint_id id = checkpoint_pack_id(files);
    struct run_id run = checkpoint_pack_run(files);
    struct pack *place = &offer->packs[0];
    for (uint32_t i = 0; i < PACKS_MAX; i++) {
        struct pack *pack = &offer->packs[i];
        if (pack->number != 0 && pack->of == of) {
            struct checkpoint_id other = checkpoint_pack_id(pack->files);
            struct run_id other_run = checkpoint_pack_run(pack->files);
            if (other.generation == id.generation && other.epoch == id.epoch &&
                memcmp(&run, &other_run, sizeof(run)) == 0) {
                checkpoint_pack_close(files);
                return pack;
            }
        }
        if (pack->used_us < place->used_us)
            place = pack;
    }
    close_pack(place);
    *place = (struct pack){.number = ++offer->packs_begun, .of = of, .files = files};
    return place;
}

static void close_old_packs(struct link_offer *offer)
{
    int64_t now = os_monotonic_us();
    for (uint32_t i = 0; i < PACKS_MAX; i++)
        if (offer->packs[i].number != 0 && now - offer->packs[i].used_us > LINK_PACK_US)
            close_pack(&offer->packs[i]);
}

/* The newest checkpoint, open. NULL with *text "": there is none yet. */
static struct checkpoint_pack *open_newest(const struct offered *of, char *text)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct checkpoint_dir_options options = {.path = of->job.directory, .read_only = true};
    bool is_none = access(of->job.directory, F_OK) != 0;
    struct checkpoint_dir *dir = is_none ? NULL : checkpoint_dir_open(&options, &diags);
    struct checkpoint_pack *files = dir == NULL ? NULL : checkpoint_pack_open(dir, &is_none, &diags);
    checkpoint_dir_close(dir);
    text[0] = '\0';
    if (files == NULL && !is_none)
        snprintf(text, TEXT_BYTES, "the newest checkpoint cannot be opened: %s",
                 diags.count > 0 ? diags.items[0].message : "no reason is known");
    arena_free(&arena);
    return files;
}

static void answer_checkpoint(struct link_offer *offer, struct offered *of, const struct link_ask *ask,
                              struct net_exchange *exchange)
{
    char text[TEXT_BYTES];
    struct link_head head = {.kind = LINK_CHECKPOINT};
    begin_answer(offer);
    if (ask->wants) {
        keep_following(offer, of);
        if (of->follower != NULL)
            (void)delta_follower_ask(of->follower); /* if it fails, the next checkpoint comes in its turn */
    }
    struct checkpoint_pack *files = open_newest(of, text);
    if (files == NULL && text[0] != '\0') {
        refuse(offer, exchange, 503, text);
        return;
    }
    if (files != NULL) {
        struct checkpoint_id id = checkpoint_pack_id(files);
        struct run_id run = checkpoint_pack_run(files);
        char digits[LINK_RUN_DIGITS + 1];
        hex_text(run.bytes, sizeof(run.bytes), digits);
        memcpy(head.run, digits, sizeof(head.run));
        head.generation = id.generation;
        head.place = id.epoch;
        if (ask->have.generation == id.generation && ask->have.epoch == id.epoch &&
            str_is(ask->run, digits)) {
            head.flags = LINK_SAME;
            checkpoint_pack_close(files);
        } else {
            struct pack *pack = keep_pack(offer, of, files);
            uint32_t count;
            const struct checkpoint_pack_file *list = checkpoint_pack_files(pack->files, &count);
            for (uint32_t i = 0; i < count; i++)
                link_list_add(&offer->body, &(struct link_file){.name = str_from(list[i].name),
                                                                .bytes = list[i].bytes,
                                                                .changed_us = list[i].changed_us});
            pack->used_us = os_monotonic_us();
            head.offset = pack->number;
        }
    }
    send_answer(offer, exchange, &head);
}

static void answer_file(struct link_offer *offer, const struct offered *of, const struct link_ask *ask,
                        struct net_exchange *exchange)
{
    struct pack *pack = pack_of(offer, of, ask->pack);
    uint32_t count = 0;
    size_t got = 0;
    if (pack != NULL)
        checkpoint_pack_files(pack->files, &count);
    if (ask->file >= count) {
        refuse(offer, exchange, 404,
               "there is no such pack, or no such file in it: ask for the checkpoint again");
        return;
    }
    pack->used_us = os_monotonic_us();
    begin_answer(offer);
    char *room = buffer_reserve(&offer->body, LINK_BYTES_MAX);
    if (checkpoint_pack_read(pack->files, (uint32_t)ask->file, ask->offset, room, LINK_BYTES_MAX, &got) !=
        0) {
        refuse(offer, exchange, 410, "a file of the checkpoint cannot be read: ask for the checkpoint again");
        return;
    }
    offer->body.length += got;
    struct link_head head = {.kind = LINK_FILE, .place = ask->file, .offset = ask->offset};
    send_answer(offer, exchange, &head);
}

/* --- The log --- */

/* Answers if there is something to say, or if this is the last look. */
static bool answer_log(struct link_offer *offer, const struct waiting *one, bool is_last)
{
    const struct link_ask *ask = &one->ask;
    const struct offered *of = one->of;
    struct delta_piece piece = {0};
    uint32_t generation;
    bool is_written = delta_log_writer(of->log, &generation);
    struct link_head head = {.kind = LINK_LOG,
                             .flags = is_written ? LINK_WRITTEN : 0,
                             .generation = ask->generation,
                             .place = ask->segment,
                             .offset = ask->offset};
    begin_answer(offer);
    if (is_written && generation != ask->generation) {
        head.generation = generation;
        head.flags |= LINK_GONE;
        send_answer(offer, one->exchange, &head);
        return true;
    }
    if (head.place == 0 && ask->generation != 0)
        head.place = delta_log_oldest(of->log, ask->generation);
    if (head.place > 0) {
        char *room = buffer_reserve(&offer->body, LINK_BYTES_MAX);
        int error =
            delta_log_piece(of->log, ask->generation, head.place, ask->offset, room, LINK_BYTES_MAX, &piece);
        if (error != 0) {
            refuse(offer, one->exchange, 500, "the log cannot be read");
            return true;
        }
        offer->body.length += piece.got;
    }
    if (piece.is_gone)
        head.flags |= LINK_GONE;
    if (piece.is_complete)
        head.flags |= LINK_COMPLETE;
    if (piece.has_next)
        head.flags |= LINK_NEXT;
    /* That a log without a writer lacks the segment is none: the next writer begins another one. */
    bool is_news = piece.got > 0 || piece.is_complete || (piece.is_gone && is_written);
    if (is_news || is_last)
        send_answer(offer, one->exchange, &head);
    return is_news || is_last;
}

/* Every LOOK_MS: logs may have grown. */
static void look_at_logs(void *user)
{
    struct link_offer *offer = user;
    int64_t now = os_monotonic_us();
    for (struct waiting **link = &offer->waiting; *link != NULL;) {
        struct waiting *one = *link;
        if (!answer_log(offer, one, one->exchange->is_gone || now >= one->until_us)) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        free(one);
    }
}

/* Every second. */
static void look_at_leases(void *user)
{
    struct link_offer *offer = user;
    int64_t now = os_monotonic_us();
    close_old_packs(offer);
    for (uint32_t i = 0; i < offer->count; i++) {
        struct offered *of = &offer->jobs[i];
        if (of->follower != NULL && now - of->asked_us > FOLLOW_US) {
            delta_follower_leave(of->follower);
            of->follower = NULL;
        }
    }
}

static void begin_log(struct link_offer *offer, struct offered *of, const struct link_ask *ask,
                      struct net_exchange *exchange)
{
    struct waiting *one = mem_calloc(1, sizeof(*one));
    *one = (struct waiting){.exchange = exchange,
                            .ask = *ask,
                            .of = of,
                            .until_us = os_monotonic_us() + LINK_WAIT_MS * 1000,
                            .next = offer->waiting};
    keep_following(offer, of);
    if (answer_log(offer, one, false))
        free(one);
    else
        offer->waiting = one;
}

/* --- Requests --- */

static void serve(void *user, struct net_exchange *exchange)
{
    struct link_offer *offer = user;
    struct link_ask ask;
    struct offered *of = NULL;
    char text[TEXT_BYTES];
    if (!str_is(exchange->method, "GET") || !link_ask_parse(exchange->path, exchange->query, &ask)) {
        refuse(offer, exchange, 404,
               "expected a request of a mirror, " LINK_PATH
               ": is the other side of another version of leat?");
        return;
    }
    for (uint32_t i = 0; i < offer->count && of == NULL; i++)
        if (str_equal(offer->jobs[i].job.name, ask.job))
            of = &offer->jobs[i];
    if (of == NULL) {
        snprintf(text, sizeof(text), "no job `%.*s` is offered here", (int)MIN(ask.job.length, (size_t)64),
                 ask.job.data);
        refuse(offer, exchange, 404, text);
        return;
    }
    if (!str_is(ask.fingerprint, of->job.fingerprint)) {
        snprintf(text, sizeof(text),
                 "the job here is of another version (fingerprint %s): use the same job file and --set",
                 of->job.fingerprint);
        refuse(offer, exchange, 409, text);
        return;
    }
    if (ask.kind == LINK_CHECKPOINT)
        answer_checkpoint(offer, of, &ask, exchange);
    else if (ask.kind == LINK_FILE)
        answer_file(offer, of, &ask, exchange);
    else
        begin_log(offer, of, &ask, exchange);
}

static const struct net_service service = {.serve = serve};

/* --- Start and stop --- */

static void *run(void *argument)
{
    struct link_offer *offer = argument;
    net_loop_run(offer->loop, GRACE_MS);
    return NULL;
}

static void free_offer(struct link_offer *offer)
{
    net_loop_free(offer->loop);
    for (struct waiting *one = offer->waiting, *next; one != NULL; one = next) {
        next = one->next;
        free(one);
    }
    for (uint32_t i = 0; i < PACKS_MAX; i++)
        close_pack(&offer->packs[i]);
    for (uint32_t i = 0; i < offer->count; i++) {
        delta_follower_leave(offer->jobs[i].follower);
        free(offer->jobs[i].log);
    }
    buffer_free(&offer->body);
    free(offer->jobs);
    free(offer);
}

struct link_offer *link_offer_start(const struct net_listen *listen, const struct link_job *jobs,
                                    uint32_t count, link_say *say, void *user, struct diag_list *diags)
{
    struct link_offer *offer = mem_calloc(1, sizeof(*offer));
    struct net_listen own = *listen;
    own.token = NULL;
    own.needs_certificates = true;
    own.connections_max = CONNECTIONS_MAX;
    offer->say = say;
    offer->user = user;
    offer->packs_begun = (uint64_t)os_wall_us();
    offer->count = count;
    offer->jobs = mem_calloc(count, sizeof(*offer->jobs));
    for (uint32_t i = 0; i < count; i++)
        offer->jobs[i] = (struct offered){.job = jobs[i], .log = mem_printf("%s/log", jobs[i].directory)};
    offer->loop = net_loop_new(MEMORY_BYTES, NULL, NULL);
    uint16_t port = net_loop_listen(offer->loop, &own, &service, offer, diags);
    if (port == 0) {
        free_offer(offer);
        return NULL;
    }
    net_loop_every(offer->loop, LOOK_MS, look_at_logs, offer);
    net_loop_every(offer->loop, 1000, look_at_leases, offer);
    char line[320];
    size_t host = own.address.length;
    while (host > 0 && own.address.data[host - 1] != ':')
        host--;
    snprintf(line, sizeof(line), "offering the jobs to mirrors on %.*s%u", (int)host, own.address.data, port);
    say(user, line);
    refused_unless_begun(pthread_create(&offer->thread, NULL, run, offer));
    return offer;
}

struct link_offer_figures link_offer_figures(struct link_offer *offer)
{
    return (struct link_offer_figures){.answers = atomic_load(&offer->answers),
                                       .refusals = atomic_load(&offer->refusals),
                                       .bytes = atomic_load(&offer->bytes)};
}

void link_offer_stop(struct link_offer *offer)
{
    if (offer == NULL)
        return;
    net_loop_stop(offer->loop);
    pthread_join(offer->thread, NULL);
    free_offer(offer);
}
