/* The control API of a run: what it does now, over HTTP, on a listener and a thread of its own. It reads copies of the
 * run's figures, which the control thread gives it now and then. What acts on the run is only noted here: the control
 * thread asks for it (api_wants), and does it.
 *
 * What it answers is the table of api.c, which is also the document at /api/v1/openapi.json. Calls that act (POST) need the
 * token of DIR/CONTROL (api_key.h), also on loopback; a job without checkpoints has none.
 */
#ifndef LEAT_CONTROL_API_H
#define LEAT_CONTROL_API_H

#include "control/bottleneck.h"
#include "control/dead_watch.h"
#include "control/summary.h"
#include "net/net.h"

struct api;

/* Listens, and starts the thread. plan: must outlive the API. Says on stderr where the page and the figures are. NULL after a diagnostic. */
struct api *api_start(const struct plan *plan, const struct net_listen *listen, struct diag_list *diags);
/* Control thread, while there is no run: for what this process waits; copied, and cut where it is long. */
void api_waits(struct api *api, const char *text);
/* Control thread, once the run has its checkpoint directory: opens the history, which api_publish keeps from then on, and
 * writes CONTROL, in run_folder. run: asked for its state (run/peek.h) until api_stop. */
void api_begin(struct api *api, struct run *run);
/* Control thread: what was asked for since the last call. */
enum api_want { API_WANTS_NOTHING, API_WANTS_CHECKPOINT, API_WANTS_STOP };
enum api_want api_wants(struct api *api);
/* Control thread, some ten times a second: what of it takes longer, savepoints. */
void api_tend(struct api *api, struct run *run);
/* Control thread: copies the figures, at most twice a second, and adds them to the history. recent: of the last seconds;
 * NULL: not known yet. */
void api_publish(struct api *api, struct run *run, const struct run_stats *stats,
                 const struct dead_watch *watch, const struct bottleneck_found *recent);
/* Control thread: what became of the requests to the `serve`s beside the run; copied. */
void api_served(struct api *api, const struct summary_served *served, uint32_t count);
/* Control thread, after run_wait: the last figures, those of `summary`; who reads the events gets them before the streams
 * end. is_good: run_wait's result. */
void api_end(struct api *api, const struct run_stats *stats, const struct dead_watch *watch,
             const struct bottleneck_found *whole, bool is_good);
/* Ends the thread; before run_free, because it reads the run. NULL is allowed. */
void api_stop(struct api *api);

#endif
