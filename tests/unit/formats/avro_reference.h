/* Avro's binary encoding, written and read by Avro C: the tests compare leat's decoder with it. */
#ifndef LEAT_TESTS_UNIT_FORMATS_AVRO_REFERENCE_H
#define LEAT_TESTS_UNIT_FORMATS_AVRO_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes one random record of the schema to `out`; returns its length in bytes. draw:
 * returns random numbers. */
size_t avro_reference_write(const char *schema, uint64_t (*draw)(void *argument), void *argument, char *out,
                            size_t room);

/* Reads a record and writes it to `out` as text, as harness_exact does, with its fields in the order of
 * `names` (payload_cases.h). Returns false if Avro C finds it bad, or bytes follow it. */
bool avro_reference_read(const char *schema, const char *data, size_t bytes, const char *const *names,
                         char *out, size_t room);

#endif
