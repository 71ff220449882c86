/* What somebody asks the leader for, and how far it is: between the keeper, who reads and writes the records, and the round's work. */
#include "cluster/worker_internal.h"

#include "core/mem.h"

#include <stdio.h>
#include <stdlib.h>

/* --- The keeper --- */

void worker_requests_look(struct worker *worker)
{
    const struct cluster_text *request = rendezvous_request(worker->rendezvous);
    pthread_mutex_lock(&worker->mutex);
    worker->request_revision = request->revision;
    snprintf(worker->request, sizeof(worker->request), "%.*s", STR_ARGS(request->text));
    pthread_mutex_unlock(&worker->mutex);
}

void worker_requests_end(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    worker->say_answer = false;
    free(worker->places);
    worker->places = NULL;
    pthread_mutex_unlock(&worker->mutex);
}

void worker_requests_place(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    char *places = worker->places;
    worker->places = NULL;
    pthread_mutex_unlock(&worker->mutex);
    if (places != NULL)
        rendezvous_place(worker->rendezvous, str_from(places));
    free(places);
}

/* A write in doubt is asked for first, whatever the work has said since. */
enum etcd_outcome worker_requests_answer(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    if (!worker->answer_is_in_doubt)
        memcpy(worker->told_answer, worker->answer, sizeof(worker->told_answer));
    pthread_mutex_unlock(&worker->mutex);
    enum etcd_outcome outcome =
        coordination_answer(worker->coordination, str_from(worker->told_answer), &worker->diags);
    worker->answer_is_in_doubt = outcome == ETCD_UNKNOWN;
    pthread_mutex_lock(&worker->mutex);
    worker->say_answer &= outcome == ETCD_UNKNOWN || strcmp(worker->told_answer, worker->answer) != 0;
    pthread_mutex_unlock(&worker->mutex);
    return outcome;
}

/* --- The control thread --- */

int64_t worker_request(struct worker *worker, char text[COORDINATION_TEXT_BYTES_MAX + 1])
{
    pthread_mutex_lock(&worker->mutex);
    int64_t revision = worker->request_revision;
    memcpy(text, worker->request, sizeof(worker->request));
    pthread_mutex_unlock(&worker->mutex);
    return revision;
}

void worker_answer(struct worker *worker, const char *text)
{
    leat_assert(strlen(text) < sizeof(worker->answer));
    pthread_mutex_lock(&worker->mutex);
    snprintf(worker->answer, sizeof(worker->answer), "%s", text);
    worker->say_answer = true;
    pthread_mutex_unlock(&worker->mutex);
}

void worker_place(struct worker *worker, const char *places)
{
    pthread_mutex_lock(&worker->mutex);
    free(worker->places);
    worker->places = mem_str(str_from(places));
    pthread_mutex_unlock(&worker->mutex);
}
