/* Texts of any bytes as JSON. Any thread. */
#ifndef LEAT_CONTROL_JSON_TEXT_H
#define LEAT_CONTROL_JSON_TEXT_H

#include "core/buffer.h"

#include <jansson.h>

/* A string, the caller's; each byte that is no UTF-8 as U+FFFD. */
json_t *json_any_text(struct str text);

#endif
