/* What /metrics says of times: reads nanoseconds from stdin, a number a line, adds each to the histogram of a model's phase
 * `all`, and writes the metrics (test_histograms.py). */
#include "serve/figures.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    static struct figures figures;
    const struct figures *all[] = {&figures};
    const struct str names[] = {STR("planted")};
    struct byte_buffer out = {0};
    struct metrics_text text = {.out = &out};
    int64_t ns;
    while (scanf("%" SCNd64, &ns) == 1)
        histogram_add(&figures.phases[PHASE_ALL], ns);
    figures_write(names, all, 1, &text);
    fwrite(out.data, 1, out.length, stdout);
    buffer_free(&out);
    return EXIT_SUCCESS;
}
