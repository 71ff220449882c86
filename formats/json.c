/* JSON lines: each line is one record, an object. README.md says what is accepted. */
#include "formats/json.h"
#include "formats/formats.h"
#include "formats/lines.h"

const struct format_kind format_json = {
    .name = "json",
    .summary = "JSON lines: one object a line",
    .suffix = ".jsonl",
    .has_lines = true,
    .header = lines_header,
    .split = lines_split,
    .decoder_new = json_decoder_new,
    .decode = json_decode,
    .decoder_free = json_decoder_free,
    .encoder_new = json_encoder_new,
    .encode = json_encode,
    .encoder_free = json_encoder_free,
};
