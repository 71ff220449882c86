/* A model as safetensors and as CSV. */
#ifndef LEAT_CLI_MODEL_EXPORT_H
#define LEAT_CLI_MODEL_EXPORT_H

#include "core/buffer.h"
#include "core/learner.h"

/* Shows the model to a visitor; the exports go over it twice. */
typedef bool model_walk(void *argument, struct model_visitor *visitor);

/* Safetensors (github.com/huggingface/safetensors, "Format"): each dense tensor under its name, and of each
 * table NAME.keys (U64), NAME.weights (F32), NAME.count (U64), NAME.seen_us (I64). false: errno in *error, or
 * the walk failed
 * (*error = 0). */
bool model_safetensors(model_walk *walk, void *argument, const char *path, int *error);
/* A line `tensor,NAME,ROW,,,w0,w1...` or `row,TABLE,KEY,COUNT,SEEN_US,w0,w1...`. */
bool model_csv(model_walk *walk, void *argument, const char *path, int *error);

#endif
