#include "trial.h"

void suite_fm(struct suite *suite)
{
    (void)suite;
}

void suite_ffm(struct suite *suite)
{
    (void)suite;
}
