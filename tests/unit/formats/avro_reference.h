/* Avro's binary encoding as Avro C writes and reads it: what the decoder is held against. */
#ifndef LEAT_TESTS_FORMATS_AVRO_REFERENCE_H
#define LEAT_TESTS_FORMATS_AVRO_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One random record of the schema into `out`; returns its bytes. draw: random numbers. */
size_t avro_reference_write(const char *schema, uint64_t (*draw)(void *argument), void *argument, char *out,
                            size_t room);

/* The record as text, as harness_exact writes it, with its fields in the order of `names`
 * (payload_cases.h). False: Avro C calls it bad, or something follows it. */
bool avro_reference_read(const char *schema, const char *data, size_t bytes, const char *const *names,
                         char *out, size_t room);

#endif
