/* exp, log and pow that give the same bits on every machine.
 *
 * glibc picks an implementation by CPU (with or without fused multiply-add), and their last bits differ;
 * features that use them would then depend on the machine (docs/design.md, section 1, promise 2). These
 * functions use additions, multiplications and divisions of doubles alone, in a fixed order, compiled with
 * -ffp-contract=off. Errors measured by the unit test against long double: exp, log2, log10, pow < 0.75 ulp,
 * log and log1p < 1 ulp. Special values are those of C's Annex F. Any thread. */
#ifndef LEAT_OPERATORS_EXPR_EXACT_MATH_H
#define LEAT_OPERATORS_EXPR_EXACT_MATH_H

double exact_exp(double x);
double exact_log(double x);
double exact_log1p(double x);
double exact_log2(double x);
double exact_log10(double x);
double exact_pow(double x, double y);

#endif
