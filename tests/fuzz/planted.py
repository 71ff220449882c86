#!/usr/bin/env python3
"""Plants bugs in a copy of the tree, one after the other, and fuzzes until each is found.

    tests/fuzz/planted.py [SECONDS] [NAME]          (./dev fuzz --planted ...)

SECONDS: for each bug at most (60). NAME: bugs whose target or name has it. A bug is a piece of code that is there
exactly once and what stands in its place; whoever changes that code changes it here as well. The copy and its build
stay in build/planted. Prints a TAP line for each bug, with the time and runs that it took.
"""

import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import planting  # noqa: E402

ROOT = planting.ROOT
COPY = os.path.join(ROOT, "build", "planted")

# target, name, file, the code, the bug
BUGS = [
    ("json", "low_surrogate_is_any", "formats/json_escape.c",
     "if (low < 0xdc00 || low > 0xdfff)", "if (low < 0xdc00)"),
    ("json", "fast_text_keeps_escapes", "formats/json_decode.c",
     "_mm_movemask_epi8(_mm_or_si128(escape, other))", "_mm_movemask_epi8(other) + 0 * (unsigned)_mm_movemask_epi8(escape)"),
    ("json", "fast_int_with_leading_zero", "formats/json_decode.c",
     "if (count == 0 || (count > 1 && *at == '0'))\n        return NULL;\n    at += count;\n    if (count == 8) {",
     "if (count == 0)\n        return NULL;\n    at += count;\n    if (count == 8) {"),
    ("json", "absent_columns_keep_the_row_before", "formats/json_template.c",
     "if (fields->columns[i].seen != object)\n            slot->absent",
     "if (i > 0 && fields->columns[i].seen != object)\n            slot->absent"),
    ("csv", "escaped_text_is_not_checked", "formats/csv_decode.c",
     "*length = unquote(field, out);\n        return text_is_utf8(out, *length);", "*length = unquote(field, out);\n        return true;"),
    ("csv", "cr_at_the_end_of_a_piece", "formats/csv.c",
     "if (*at == '\\r' && stop - at == 1 && !is_last && bytes < TOO_LONG)", "if (false)"),
    ("csv", "bad_base64_has_a_length", "formats/csv_decode.c",
     "    if (length == SIZE_MAX)\n        return bad_field(decoder, column, field, \"not base64\");\n", ""),
    ("lang", "character_cut_at_the_end", "engine/core/utf8.c",
     "if (s[0] < 0xc2 || s[0] > 0xf4 || left < bytes)", "if (s[0] < 0xc2 || s[0] > 0xf4 || left + 1 < bytes)"),
    ("lang", "smallest_number_by_minus_one", "engine/lang/fold.c",
     "b == 0 || (a == INT64_MIN && b == -1) || ", "b == 0 || "),
    ("lang", "surrogates_in_text", "engine/lang/lexer.c",
     "code > 0x10FFFF ||\n        (code >= 0xD800 && code <= 0xDFFF))", "code > 0x10FFFF)"),
    ("plan", "output_that_is_not_there", "engine/plan/plan.c",
     "if (node->output_names[i] != NULL && str_is(", "if (str_is("),
    ("checkpoint", "bytes_without_bound", "state/checkpoint_manifest.c",
     "if (cursor->is_bad || (uint64_t)(cursor->end - cursor->at) < length) {", "if (cursor->is_bad) {"),
    ("checkpoint", "entry_longer_than_record", "state/table_snapshot.c",
     "entry->bytes > TABLE_VALUE_MAX || entry->bytes > record.length - *at - sizeof(*entry))", "entry->bytes > TABLE_VALUE_MAX)"),
    ("checkpoint", "row_text_a_byte_too_long", "operators/rows/codec.c",
     "if (!take(at, end, &length, sizeof(length)) || length > (size_t)(end - *at))",
     "if (!take(at, end, &length, sizeof(length)) || length > (size_t)(end - *at) + 1)"),
    ("payload_avro", "length_a_byte_too_long", "formats/avro_decode.c",
     "if (unlikely(value > decoder->end - behind))", "if (unlikely(value > decoder->end - behind + 1))"),
    ("payload_avro", "int_of_33_bits", "formats/avro_decode.c",
     "if (is_32 && value != (int32_t)value)", "if (is_32 && value > INT32_MAX)"),
    ("payload_protobuf", "packed_list_runs_on", "formats/protobuf_decode.c",
     "for (end = at + length; at != NULL && at < end;)", "for (const char *stop = at + length; at != NULL && at < stop;)"),
    ("payload_protobuf", "oneof_keeps_both", "formats/protobuf_decode.c",
     "columns[record->steps[i].column].seen = 0;", "columns[record->steps[i].column].seen += 0;"),
    ("kafka_progress", "a_part_longer_than_its_epoch", "connectors/kafka/progress.c",
     "part.to <= part.from || part.to > part.total ||", "part.to <= part.from ||"),
    ("kafka_progress", "a_layout_without_partitions", "connectors/kafka/progress.c",
     "part_version(&part) != head->version || ", ""),
    ("kafka_progress", "a_part_that_comes_again_is_two", "connectors/kafka/progress.c",
     "compare_place(progress_at(progress, high - 1), first, from) < 0)", "compare_place(progress_at(progress, high - 1), first, from) <= 0)"),
    ("kafka_progress", "a_record_of_version_0", "connectors/kafka/progress.c",
     "if (head.version == 0 || head.name_bytes", "if (head.name_bytes"),
    ("kafka_progress", "taking_the_second_back_takes_the_first", "connectors/kafka/progress.c",
     "if (at == 0) /* nearly always", "if (at <= 1) /* nearly always"),
    ("kafka_recording", "a_payload_of_two_lines", "connectors/kafka/recording_json.c",
     "memchr(payload.data, '\\n', payload.length) == NULL && text_is_utf8(", "text_is_utf8("),
    ("kafka_recording", "null_is_a_tombstone", "connectors/kafka/recording_json.c",
     "payload.length > 0 && payload.data[0] != 'n' &&", "payload.length > 0 &&"),
    ("kafka_recording", "bytes_a_byte_too_long", "connectors/kafka/recording_msgpack.c",
     "if ((uint64_t)(c->end - c->at) < bytes)", "if ((uint64_t)(c->end - c->at) + 1 < bytes)"),
    ("infer_json", "nulls_of_moved_elements", "engine/serve/infer_fill.c",
     "memcpy(valid, child->valid, BIT_WORDS((size_t)f->space->elements_capacity) * sizeof(*valid));",
     "memcpy(valid, child->valid, 0);"),
    ("infer_json", "lengths_exceed_the_elements", "engine/serve/infer_check.c",
     "if ((uint64_t)length > values->count - used)", "if ((uint64_t)length > values->count)"),
    ("infer_json", "bytes_of_an_answer_as_text", "engine/serve/infer_json_write.c",
     "if (!tensor->is_bytes) {", "if (!tensor->is_bytes || tensor->count > 2) {"),
    ("msgpack", "a_text_a_byte_too_long", "formats/msgpack.c",
     "if ((size_t)(end - at) < head.length)\n            return NULL;", "if ((size_t)(end - at) + 1 < head.length)\n            return NULL;"),
    ("msgpack", "a_map_has_one_value_a_pair", "formats/msgpack.c",
     "values += 2 * (uint64_t)head.length;", "values += (uint64_t)head.length;"),
    ("batches", "a_payload_runs_behind_its_section", "formats/batches_unpack.c",
     "< bytes)\n        return NULL;", "+ 8 < bytes)\n        return NULL;"),
    ("zone", "a_block_longer_than_its_file", "engine/core/zone.c",
     "bytes.length - HEADER_BYTES >= block->bytes", "bytes.length >= block->bytes"),
    ("zone", "an_instant_of_the_next_span", "engine/core/zone.c",
     "span_at(zone, time_add(wall, -OFFSET_MAX_US))", "span_at(zone, time_add(wall, -US_PER_HOUR))"),
    ("literal", "the_smallest_int_by_minus_one", "engine/core/literal.c",
     "sum > (uint64_t)INT64_MAX + negative", "sum > (uint64_t)INT64_MAX + 1"),
    ("literal", "february_of_each_century", "engine/core/civil.c", "year % 100 != 0 || year % 400 == 0);", "year % 4 == 0);"),
    ("history", "a_node_that_is_no_utf8", "engine/net/query.c",
     "return utf8_is_valid(*decoded);", "return decoded->length > 0 || utf8_is_valid(*decoded);"),
    ("history", "a_time_beyond_the_bound", "engine/control/history_query.c", "ms > MS_MAX", "ms > 2 * MS_MAX"),
    ("registry", "a_reference_without_a_name", "formats/schema_registry.c",
     "if (name.length == 0 || subject.length == 0", "if (subject.length == 0"),
    ("registry", "a_schema_without_text", "formats/schema_registry.c",
     "result == REGISTRY_FOUND && schema->text.length == 0", "result == REGISTRY_FAILED && schema->text.length == 0"),
    ("etcd", "an_event_of_the_past", "engine/cluster/etcd_json.c",
     "            (i > 0 && out->entry.mod_revision < out[-1].entry.mod_revision))", "            (i > 9 && out->entry.mod_revision < out[-1].entry.mod_revision))"),
    ("etcd", "refused_by_nothing", "engine/cluster/etcd_json.c",
     "    return false; /* all hold, and yet it was refused: not etcd */", "    out->compare = txn->compares_count;\n    return true;"),
    ("etcd", "an_epoch_below_0", "engine/cluster/record.c",
     "return json_is_integer(member) && *value >= 0 && *value <= most;", "return json_is_integer(member) && *value <= most;"),
    ("s3_xml", "an_entry_without_a_key", "state/objects/s3_xml.c",
     "if (document->entries[i].key.length == 0)\n            return \"an entry has no key\";\n        ", ""),
    ("s3_xml", "a_list_that_goes_on_nowhere", "state/objects/s3_xml.c",
     "document->root == S3_ROOT_LIST && document->next_token.length == 0", "document->root == S3_ROOT_LIST && document->count == 0"),
    ("checkpoint_head", "a_name_outside_of_the_directory", "state/checkpoint_head.c",
     "objects_name_is_good(file->object) && objects_name_is_good(file->name)", "objects_name_is_good(file->object)"),
    ("checkpoint_head", "a_size_that_is_negative", "state/checkpoint_head.c", "file->bytes <= INT64_MAX &&", "file->bytes <= UINT64_MAX &&"),
    ("input", "a_truncated_frame_is_whole", "connectors/file/input.c",
     "input->is_frame_open = result != Z_STREAM_END;", "input->is_frame_open = false;"),
    ("input", "a_seek_a_byte_too_far", "connectors/file/input.c",
     "while (is_good && input->offset < offset)", "while (is_good && input->offset <= offset)"),
    ("kafka_files", "a_span_outside_of_its_recording", "connectors/kafka/recording.c",
     "file != NULL && file[0] != '/' && file[0] != '\\0'", "file != NULL && file[0] != '\\0'"),
    ("kafka_files", "base64_without_room", "connectors/kafka/token.c", "mem_alloc(length + 4)", "mem_alloc(length + 1)"),
    ("kafka_outbox", "a_record_longer_than_its_chunk", "connectors/kafka/chunk.c",
     "record_bytes(&head) > chunk->used - at)", "record_bytes(&head) > chunk->used - at + 8)"),
    ("kafka_outbox", "more_than_the_chunk_has_room", "connectors/kafka/outbox.c",
     "chunk->capacity - chunk->used < bytes)", "chunk->capacity - chunk->used + 1 < bytes)"),
    ("link", "a_part_that_is_two_dots", "engine/serve/link_format.c",
     "if (!is_plain && (before == '/' || (c != '.' && c != '/')))", "if (!is_plain && c != '.' && c != '/')"),
    ("link", "length_without_bound", "engine/serve/link_format.c",
     "if (head->length != bytes->length ||", "if (head->length > bytes->length ||"),
    ("cut", "items_beyond_the_cut", "learners/tables/cut.c",
     "if (head.counts[s] > length / each)", "if (head.counts[s] > length / each + 4)"),
    ("positions", "a_text_longer_than_what_is_left", "engine/run/base/words.c",
     "length > WORDS_TEXT_MAX || length > words->left.length;", "length > WORDS_TEXT_MAX;"),
    ("expr", "a_blank_text_is_trimmed_twice", "operators/expr/kernels_text.c",
     "while (is_right && end > begin && is_space", "while (is_right && end > 0 && is_space"),
    ("http1", "bytes_that_were_used_are_held", "engine/net/http1.c",
     "hold(http1, bytes + used, count - used);", "hold(http1, bytes, count);"),
    ("http1", "bodies_without_bound", "engine/net/exchange.c",
     "exchange->body.length + more > exchange->listener->listen.body_bytes_max", "false"),
    ("http1", "held_bytes_stay_counted", "engine/net/http1.c",
     "    buffer_clear(&http1->held);\n    count_held(http1);\n    buffer_free", "    buffer_free"),
    ("http2", "an_exchange_of_a_stream_that_was_reset", "engine/net/http2_frames.c",
     "net_exchange_orphan(stream->exchange);", "net_exchange_free(stream->exchange);"),
    ("http2", "an_answered_stream_still_reads", "engine/net/http2_answer.c",
     "http2->reading -= stream->is_reading;\n    stream->is_reading = false;\n", ""),
    ("http2", "what_waits_is_not_bounded", "engine/net/http2.c", "while (!is_full(http2) && ", "while ("),
    ("infer_grpc", "text_a_byte_too_long", "engine/serve/infer_grpc.c",
     "length > left - LENGTH_BYTES)", "length > left - LENGTH_BYTES + 1)"),
    ("infer_grpc", "raw_contents_may_be_short", "engine/serve/infer_grpc.c",
     "expected != raw.length)", "expected / 2 > raw.length)"),
    ("delta_log", "digest_leaves_the_last_word_out", "engine/core/delta_log_read.c",
     "bytes - DELTA_DIGESTED_FROM, tail->digest)", "bytes - DELTA_DIGESTED_FROM - 8, tail->digest)"),
    ("batch", "a_take_a_byte_too_long", "engine/core/batch_codec_read.c",
     "if (bytes > bytes_left(reader))", "if (bytes > bytes_left(reader) + 1)"),
    ("batch", "words_behind_the_end", "engine/core/batch_codec_sequence.c",
     "(left - WORD_BYTES) / width + 1;", "(left - WORD_BYTES) / width + 2;"),
    ("batch", "a_partition_too_many", "engine/core/batch_codec_read.c",
     "partition - 1 < reader->partitions)", "partition - 1 <= reader->partitions)"),
    ("workers", "an_exchange_that_is_not_there", "engine/run/lanes/remote.c",
     "index >= run->plan->exchanges_count", "index > run->plan->exchanges_count"),
    ("workers", "a_cut_of_a_partition_that_is_not_there", "engine/run/sequencer/peers_own.c",
     "(cut != NO_PARTITION && cut >= s->partitions_count))", "false)"),
    ("message", "a_piece_behind_its_frame", "engine/cluster/message.c",
     "MESSAGE_FRAME_MAX || head->offset > head->length)", "MESSAGE_FRAME_MAX)"),
    ("message", "a_body_of_another_kind", "engine/cluster/message.c",
     "case MESSAGE_STATUS: return bytes == sizeof(struct message_status);", "case MESSAGE_STATUS: return bytes != 7;"),
    ("infer_grpc", "int8_of_nine_bits", "engine/serve/infer_grpc.c",
     "(INT64_C(1) << (bits - is_signed)) - 1", "(INT64_C(1) << bits) - 1"),
]


def make_copy():
    planting.make_copy(COPY)
    release = os.path.join(COPY, "build", "release")
    os.makedirs(release, exist_ok=True)
    if not os.path.lexists(os.path.join(release, "leat")):
        os.symlink(os.path.join(ROOT, "build", "release", "leat"), os.path.join(release, "leat"))


def fuzz(target, seconds):
    """(found, seconds, runs, what was said)."""
    for folder in ("corpus", "found"):
        shutil.rmtree(os.path.join(COPY, "build", "fuzz", folder, target), ignore_errors=True)
    begin = time.monotonic()
    result = subprocess.run(["./dev", "fuzz-one", target, str(seconds)], cwd=COPY, capture_output=True, text=True, check=False)
    took = time.monotonic() - begin
    log = planting.read(os.path.join(COPY, "build", "fuzz", f"{target}.log")).decode("utf-8", "replace")
    runs = re.findall(r"number_of_executed_units: (\d+)", log)
    what = re.findall(r"(?:SUMMARY: |not so: |runtime error: |Assertion ).*", log)
    return result.returncode != 0, took, int(runs[-1]) if runs else 0, what[0][:90] if what else ""


def main():
    numbers = [a for a in sys.argv[1:] if a.isdigit()]
    names = [a for a in sys.argv[1:] if not a.isdigit()]
    seconds, status = int(numbers[0]) if numbers else 60, 0
    make_copy()
    for target, name, path, code, bug in BUGS:
        if names and not any(n in target or n in name for n in names):
            continue
        with planting.planted(COPY, path, code, bug) as times:
            if times != 1:
                status = 1
                print(f"not ok - planted: {target}: {name}: its code is {times} times in {path}", flush=True)
                continue
            wrong = planting.build(COPY, "fuzz", target)
            if wrong:
                sys.exit(f"not ok - planted: {wrong}")
            is_found, took, runs, what = fuzz(target, seconds)
        status |= not is_found
        print(f"{'ok' if is_found else 'not ok'} - planted: {target}: {name}: "
              f"{'found' if is_found else 'not found'} in {took:.1f} s, {runs:,} runs: {what}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
