/* Follows the checkpoints of a job: a thread of low priority opens each newer one while the one before still
 * answers. Calls come from one thread, that of the server. */
#ifndef LEAT_SERVE_LOADER_H
#define LEAT_SERVE_LOADER_H

#include "serve/loaded.h"

struct loader;

/* plan, directory: must outlive the loader. id: generation 0 follows the newest checkpoint; else that one alone is
 * loaded, once. is_off: it begins with loader_resume. ready: called from the loader's thread when a checkpoint can be taken,
 * or when loading failed. */
struct loader *loader_start(const struct plan *plan, const char *directory, struct checkpoint_id id,
                            bool is_off, uint32_t look_every_ms, void (*ready)(void *user), void *user);
/* The newest checkpoint that was opened since the last call; NULL: none. The caller gives it back. */
struct loaded *loader_take(struct loader *loader);
/* While it is held it does not look for newer checkpoints. */
void loader_hold(struct loader *loader, bool is_held);
/* Closes what loader_take gave, in the loader's thread. NULL is allowed. */
void loader_give_back(struct loader *loader, struct loaded *loaded);
/* The same, of a checkpoint that is not needed while the loader is held: afterwards the newest one is opened, be it this
 * one. */
void loader_decline(struct loader *loader, struct loaded *loaded);
/* Closes all that is open, `loaded` with it (of loader_take; NULL: none was taken), in the loader's thread. What is being
 * opened is closed as soon as it is open. From then on the loader looks for nothing. Returns at once. */
void loader_rest(struct loader *loader, struct loaded *loaded);
/* After loader_rest: the loader begins as after loader_start, behind what it still closes. */
void loader_resume(struct loader *loader);
/* The state of a checkpoint that was taken cannot be read: its diagnostics become complaints, and the newest checkpoint
 * is opened again. */
void loader_broken(struct loader *loader, const struct loaded *loaded);
/* Appends the diagnostics of loads that failed since the last call, as text, each text once until a load succeeds.
 * Returns whether there are any. */
bool loader_complaints(struct loader *loader, struct byte_buffer *out);
/* Whether it has looked at the directory since it began, and opened what it found there. What it found, and what it
 * complains of, is there by then. */
bool loader_has_looked(struct loader *loader);
/* Waits for the thread; closes what nobody took. NULL is allowed. */
void loader_stop(struct loader *loader);

#endif
