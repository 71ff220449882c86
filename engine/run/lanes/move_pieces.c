/* What instances of keyed stages give each other when key groups move (move.c): records of an operator, as messages in the inbox of the
 * instance that takes them, which may be another worker's. A message is what is given (enum given), its number, the operator's place in
 * its stage, as words; then records (core/moved.h). To another worker it goes as PEER_PIECE, with the stage and the instance before.
 * That all have been given (PEER_GIVEN) comes behind the last of them.
 *
 * What lies in inboxes, or is on its way there, is bounded for bases: an instance gives no more of them to a worker that has MOVING_MAX
 * bytes to take, until it hears that some are taken (PEER_ROOM). Changes at a barrier are what one round leaves. */
#include "run/lanes/move.h"

#include "core/moved.h"
#include "run/base/peers.h"

enum { MOVING_MAX = 4 << 20 };

static uint32_t worker_of(const struct run *run, uint32_t instance)
{
    return instance / run->lanes_count;
}

static _Atomic uint64_t *given_by(const struct run *run, uint32_t worker, uint32_t stage, enum given what)
{
    return &run->lanes->given_by[(worker * run->plan->stages_count + stage) * GIVEN_TAGS + what];
}

/* --- Giving --- */

bool pieces_room(const struct run *run, uint32_t to)
{
    return atomic_load(&run->lanes->moving[worker_of(run, to)]) < MOVING_MAX;
}

static void send_piece(struct stage_instance *stage, enum given what, uint32_t to)
{
    struct run *run = stage->run;
    const struct byte_buffer *message = &stage->move->message;
    size_t head = 3 * sizeof(uint64_t); /* tag, stage, instance */
    uint32_t worker = worker_of(run, to);
    struct str piece = {message->data + head, message->length - head};
    if (what == GIVEN_BASE)
        atomic_fetch_add(&run->lanes->moving[worker], piece.length);
    if (worker != peers_self(run)) {
        peers_send(run, worker, message);
        return;
    }
    struct stage_instance *taker = lanes_instance(run, stage->index, to - peers_first_instance(run));
    inbox_put(run, &taker->move->inboxes[what], worker, piece);
    run_wake(run);
}

void pieces_give(struct stage_instance *stage, enum given what, uint64_t number, uint32_t to, uint32_t node,
                 struct byte_buffer *records)
{
    struct str rest = {records->data, records->length}, record;
    struct byte_buffer *message = &stage->move->message;
    uint32_t group;
    while (rest.length > 0) {
        const char *begin = rest.data;
        do {
            bool is_record = moved_next(&rest, &group, &record);
            leat_assert(is_record);
        } while (rest.length > 0 && rest.data - begin < PIECE_BYTES);
        peers_begin(message, PEER_PIECE);
        words_put(message, stage->index);
        words_put(message, to);
        words_put(message, what);
        words_put(message, number);
        words_put(message, node);
        buffer_append(message, begin, (size_t)(rest.data - begin));
        send_piece(stage, what, to);
    }
    buffer_clear(records);
}

void pieces_given(const struct stage_instance *stage, enum given what)
{
    struct run *run = stage->run;
    struct byte_buffer message = {0};
    uint32_t own = run->stage_instances[stage->index];
    uint64_t given = atomic_fetch_add(&run->lanes->given[stage->index][what], 1) + 1;
    if (peers_count(run) > 1 && given % own == 0) {
        peers_begin(&message, PEER_GIVEN);
        words_put(&message, stage->index);
        words_put(&message, what);
        words_put(&message, given / own);
        peers_send_all(run, &message);
        buffer_free(&message);
    }
    run_wake(run);
}

bool pieces_have_given(const struct stage_instance *stage, enum given what, uint64_t number)
{
    const struct run *run = stage->run;
    if (atomic_load(&run->lanes->given[stage->index][what]) < number * run->stage_instances[stage->index])
        return false;
    for (uint32_t worker = 0; worker < peers_count(run); worker++)
        if (worker != peers_self(run) && atomic_load(given_by(run, worker, stage->index, what)) < number)
            return false;
    return true;
}

/* --- Taking --- */

/* The store has failed, of which run_wait says why; or bytes of another worker are no records of this job. */
static void cannot_take(struct stage_instance *stage, uint32_t from)
{
    struct run *run = stage->run;
    if (from != peers_self(run) && state_stores_error(&run->stores) == NULL) {
        pthread_mutex_lock(&run->diags_mutex);
        struct diag *d =
            diag_error(run->diags, DIAG_FILE_DAMAGED, (struct span){0},
                       "state of key groups that worker %u gave to stage %u is no state of this job", from,
                       stage->index);
        diag_hint(run->diags, d, "start all workers with the same job and the same version of leat");
        pthread_mutex_unlock(&run->diags_mutex);
    }
    run_fail(run);
}

/* Whether that worker may give records of the group; those of all groups come with changes. */
static bool may_give(const struct stage_move *move, enum given what, uint32_t from, uint32_t group)
{
    return group == SNAPSHOT_GLOBAL ? what == GIVEN_CHANGES : move->giver[group] == from;
}

static bool take_records(struct stage_instance *stage, enum given what, uint64_t number, uint32_t from,
                         struct str bytes)
{
    struct words words = {.left = bytes};
    struct stage_move *move = stage->move;
    bool is_due = words_take(&words) == what && words_take(&words) == number;
    uint64_t index = words_take(&words);
    if (words.is_short || !is_due || index >= stage->stage->nodes_count ||
        stage->nodes[index].node->operator_kind == NULL)
        return false;
    struct node_instance *node = &stage->nodes[index];
    const struct operator_kind *kind = node->node->operator_kind;
    struct str rest = words.left, given = words.left, record;
    uint32_t group;
    while (moved_next(&rest, &group, &record))
        if (!may_give(move, what, from, group) ||
            (what == GIVEN_BASE && !operator_take_base(kind, &node->context, &move->coming, record)))
            return false;
    return rest.length == 0 && (what == GIVEN_BASE || operator_take(kind, &node->context, given));
}

static void say_room(struct run *run, uint32_t from, size_t bytes)
{
    struct byte_buffer message = {0};
    if (from == peers_self(run)) {
        atomic_fetch_sub(&run->lanes->moving[from], bytes);
        run_wake(run);
        return;
    }
    peers_begin(&message, PEER_ROOM);
    words_put(&message, bytes);
    peers_send(run, from, &message);
    buffer_free(&message);
}

bool pieces_take(struct stage_instance *stage, enum given what, uint64_t number, size_t *bytes)
{
    struct run *run = stage->run;
    struct message *message = inbox_take(run, &stage->move->inboxes[what]);
    if (message == NULL)
        return false;
    *bytes = message->length;
    if (!take_records(stage, what, number, message->from, (struct str){message->bytes, message->length}))
        cannot_take(stage, message->from);
    if (what == GIVEN_BASE)
        say_room(run, message->from, message->length);
    message_free(run, message);
    return true;
}

/* --- Messages of other workers: the transport's thread --- */

/* Whether the worker may give that now: it has given what comes before, and this worker's instances have taken all rounds of before. */
static bool is_in_turn(const struct run *run, uint32_t worker, uint64_t stage, uint64_t what, uint64_t number)
{
    if (stage == 0 || stage >= run->plan->stages_count || run->plan->stages[stage].tag == STAGE_SINGLE ||
        what >= GIVEN_TAGS ||
        number != atomic_load(given_by(run, worker, (uint32_t)stage, (enum given)what)) + 1)
        return false;
    return placements_have_taken(run, what == GIVEN_BASE ? number - 1 : number * PLACEMENT_ROUNDS);
}

static bool receive_piece(struct run *run, uint32_t worker, struct words *message)
{
    uint64_t stage = words_take(message), instance = words_take(message) - peers_first_instance(run);
    struct words piece = *message;
    uint64_t what = words_take(&piece), number = words_take(&piece), node = words_take(&piece);
    if (piece.is_short || piece.left.length == 0 || instance >= run->lanes_count ||
        !is_in_turn(run, worker, stage, what, number) || node >= run->plan->stages[stage].nodes_count)
        return false;
    struct stage_instance *taker = lanes_instance(run, (uint32_t)stage, (uint32_t)instance);
    inbox_put(run, &taker->move->inboxes[what], worker, message->left);
    run_wake(run);
    return true;
}

static bool receive_given(struct run *run, uint32_t worker, struct words *message)
{
    uint64_t stage = words_take(message), what = words_take(message), number = words_take(message);
    if (!peers_is_whole(message) || !is_in_turn(run, worker, stage, what, number))
        return false;
    atomic_store(given_by(run, worker, (uint32_t)stage, (enum given)what), number);
    run_wake(run);
    return true;
}

static bool receive_room(struct run *run, uint32_t worker, struct words *message)
{
    uint64_t bytes = words_take(message);
    _Atomic uint64_t *moving = &run->lanes->moving[worker];
    if (!peers_is_whole(message) || bytes > atomic_load(moving))
        return false;
    atomic_fetch_sub(moving, bytes);
    run_wake(run);
    return true;
}

bool moves_receive(struct run *run, uint32_t worker, enum peer_message tag, struct words *message)
{
    if (run->lanes->given_by == NULL)
        return false;
    switch (tag) {
    case PEER_PIECE: return receive_piece(run, worker, message);
    case PEER_GIVEN: return receive_given(run, worker, message);
    default: return receive_room(run, worker, message);
    }
}
