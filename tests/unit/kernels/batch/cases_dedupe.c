#include "trial.h"

void suite_dedupe(struct suite *suite)
{
    (void)suite;
}
