#include "trial.h"

void suite_round(struct suite *suite)
{
    (void)suite;
}

void suite_widen(struct suite *suite)
{
    (void)suite;
}

void suite_quantize(struct suite *suite)
{
    (void)suite;
}
