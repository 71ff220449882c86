/* Exports a model as safetensors or as CSV. */
#ifndef LEAT_CLI_MODEL_EXPORT_H
#define LEAT_CLI_MODEL_EXPORT_H

#include "core/buffer.h"
#include "core/learner.h"

/* Passes the model to a visitor. Returns false if that failed. */
typedef bool model_walk(void *argument, struct model_visitor *visitor);

/* Writes safetensors (github.com/huggingface/safetensors, "Format"): each dense tensor under its name, and
 * for each table NAME.keys (U64), NAME.weights (F32), NAME.count (U64), NAME.seen_us (I64). false: *error is
 * an errno, or 0 if the walk failed. */
bool model_safetensors(model_walk *walk, void *argument, const char *path, int *error);
/* Writes CSV, with lines `tensor,NAME,ROW,,,w0,w1...` and `row,TABLE,KEY,COUNT,SEEN_US,w0,w1...`.
 * false: as model_safetensors. */
bool model_csv(model_walk *walk, void *argument, const char *path, int *error);

#endif
